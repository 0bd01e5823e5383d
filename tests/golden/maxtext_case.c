#include "maxtext_case.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "octet/dtype.h"

static const octet_safetensors *open_file(octet_arena *arena, const char *folder, const char *stem,
                                          const char *what)
{
    const octet_safetensors *file;
    char *path = octet_arena_format(arena, "%s/%s.%s.safetensors", folder, stem, what);

    return path && !octet_safetensors_open(arena, path, &file, NULL) ? file : NULL;
}

static bool make_batch(struct maxtext_case *c)
{
    const struct {
        const char *name;
        struct octet_array *array;
    } parts[] = {{"inputs", &c->batch.tokens},
                 {"targets", &c->batch.targets},
                 {"inputs_position", &c->batch.positions},
                 {"inputs_segmentation", &c->batch.segment_ids},
                 {"targets_segmentation", &c->batch.target_mask}};

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const struct octet_named_array *found = octet_safetensors_find(c->data, parts[i].name);
        if (!found)
            return false;
        *parts[i].array = found->array;
    }
    return true;
}

/* "ds_tiny.f32.gmm.none" -> "ds_tiny", the longest beginning that has parameters. A file of the
 * case's own name is its parameters, and it has no batch. */
static bool find_files(struct maxtext_case *c)
{
    char *stem = octet_arena_copy(c->arena, c->name, strlen(c->name));
    char *path = octet_arena_format(c->arena, "%s/%s.safetensors", c->folder, c->name);

    if (!octet_safetensors_open(c->arena, path, &c->params, NULL))
        return true;
    while (!(c->params = open_file(c->arena, c->folder, stem, "params"))) {
        char *dot = strrchr(stem, '.');
        if (!dot)
            return false;
        *dot = 0;
    }
    c->data = open_file(c->arena, c->folder, stem, "data");
    return c->data && make_batch(c);
}

/* ---- config ---- */

static const char *value_text(octet_arena *arena, const json_t *value)
{
    if (json_is_string(value))
        return json_string_value(value);
    if (json_is_boolean(value))
        return json_is_true(value) ? "true" : "false";
    char *dump = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT), *text;
    text = octet_arena_copy(arena, dump, strlen(dump));
    free(dump);
    return text;
}

static void add(struct maxtext_case *c, struct octet_pair *pairs, const char *key,
                const char *value)
{
    pairs[c->input.override_count++] = (struct octet_pair){key, value};
}

/* What the runs had beside their overrides: see the README of the reference data. */
static void make_input(struct maxtext_case *c)
{
    static const char *const fixed[][2] = {
        {"dtype", "float32"},         {"weight_dtype", "float32"},
        {"scan_layers", "false"},     {"enable_dropout", "false"},
        {"attention", "dot_product"}, {"override_model_config", "true"}};
    size_t most = json_object_size(c->overrides) + 16;
    struct octet_pair *pairs = OCTET_NEW_ARRAY(c->arena, most, struct octet_pair);
    const char *key;
    json_t *value;

    json_object_foreach(c->overrides, key, value)
    {
        if (!strcmp(key, "model_name"))
            c->input.name = json_string_value(value);
        else
            add(c, pairs, key, value_text(c->arena, value));
        c->bfloat16 |= strstr(key, "dtype") && json_is_string(value) &&
                       !strcmp(json_string_value(value), "bfloat16");
    }
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        if (!json_object_get(c->overrides, fixed[i][0]))
            add(c, pairs, fixed[i][0], fixed[i][1]);
    value = json_object_get(c->optimizer, "warmup_steps_fraction");
    if (value)
        add(c, pairs, "warmup_steps_fraction", value_text(c->arena, value));
    c->input.overrides = pairs;
}

const json_t *maxtext_case_get(const struct maxtext_case *c, const char *key)
{
    return json_object_get(c->overrides, key);
}

int64_t maxtext_case_int(const struct maxtext_case *c, const char *key, int64_t otherwise)
{
    const json_t *value = maxtext_case_get(c, key);

    return value ? (int64_t)json_integer_value(value) : otherwise;
}

/* ---- batch ---- */

/* ---- opening ---- */

struct maxtext_case *maxtext_case_open(octet_arena *arena, const char *folder, const char *name,
                                       json_t *overrides, json_t *optimizer)
{
    struct maxtext_case *c = OCTET_NEW(arena, struct maxtext_case);

    *c = (struct maxtext_case){.folder = folder,
                               .name = name,
                               .arena = arena,
                               .overrides = overrides,
                               .optimizer = optimizer};
    const char *dot = strrchr(name, '.');
    c->arm = dot ? dot + 1 : name;
    if (!overrides || !find_files(c)) {
        printf("FAIL %s: parameters or data cannot be read\n", name);
        maxtext_case_close(c);
        return NULL;
    }
    make_input(c);
    return c;
}

void maxtext_case_close(struct maxtext_case *c)
{
    if (!c)
        return;
    octet_safetensors_close(c->params);
    octet_safetensors_close(c->data);
    json_decref(c->overrides);
    json_decref(c->optimizer);
}

/* ---- parameters ---- */

static uint64_t fowler(const char *name)
{
    uint64_t h = 0xCBF29CE484222325U;

    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 0x100000001B3U;
    return h;
}

/* The number that make_maxtext.py's `uniform` gives at i. */
static float uniform(uint64_t hash, uint64_t seed, uint64_t i)
{
    uint64_t z = hash + 0x9E3779B97F4A7C15U * ((seed << 32) + i + 1);

    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    z ^= z >> 31;
    return (float)((int64_t)(z >> 40) - (1 << 23)) / (float)(1 << 23);
}

static uint16_t to_bfloat16(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

static float from_bfloat16(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A parameter's numbers: stored, or offset + amplitude * uniform. */
static bool numbers_of(const struct maxtext_case *c, const char *name, size_t count, float *out)
{
    const struct octet_pair *pairs;
    size_t pair_count = octet_safetensors_metadata(c->params, &pairs);
    const struct octet_named_array *found = octet_safetensors_find(c->params, name);
    uint64_t seed = 0, hash = fowler(name);

    for (size_t i = 0; i < pair_count; i++)
        if (!strcmp(pairs[i].key, "seed"))
            seed = strtoull(pairs[i].value, NULL, 10);
    if (!found || found->array.dtype != OCTET_DTYPE_F32)
        return false;
    const float *stored = found->array.data;
    if (seed) {
        for (size_t i = 0; i < count; i++)
            out[i] = stored[0] + stored[1] * uniform(hash, seed, i);
        return true;
    }
    if ((size_t)octet_array_elements(&found->array) != count)
        return false;
    memcpy(out, stored, count * sizeof *out);
    return true;
}

static enum octet_status put_parameter(const struct maxtext_case *c, octet_session *session,
                                       size_t i, struct octet_error *err)
{
    const octet_parameters *parameters = octet_session_tensors(session, OCTET_SET_PARAMETER);
    const char *name;
    struct octet_array array;

    octet_parameters_describe(parameters, i, &name, &array);
    size_t count = (size_t)octet_array_elements(&array);
    float *numbers = OCTET_NEW_ARRAY(c->arena, count, float);
    if (!numbers || !numbers_of(c, name, count, numbers))
        return octet_fail(err, OCTET_NOT_FOUND, name, "MaxText has no such parameter");
    uint16_t *narrow = OCTET_NEW_ARRAY(c->arena, count, uint16_t);
    bool is_narrow = array.dtype == OCTET_DTYPE_BF16;
    for (size_t k = 0; k < count && is_narrow; k++)
        narrow[k] = to_bfloat16(numbers[k]);
    return octet_session_put(session, OCTET_SET_PARAMETER, i, 0,
                             (uint64_t)octet_array_bytes(&array),
                             is_narrow ? (void *)narrow : (void *)numbers, err);
}

static enum octet_status put_all(const struct maxtext_case *c, octet_session *session,
                                 struct octet_error *err)
{
    const octet_parameters *parameters = octet_session_tensors(session, OCTET_SET_PARAMETER);
    size_t count = octet_parameters_count(parameters);
    enum octet_status status = OCTET_OK;

    for (size_t i = 0; i < count && !status; i++)
        status = put_parameter(c, session, i, err);
    for (size_t i = 0; i < octet_safetensors_count(c->params) && !status; i++) {
        const char *name = octet_safetensors_get(c->params, i)->name;
        if (octet_parameters_find(parameters, name) == SIZE_MAX)
            status = octet_fail(err, OCTET_NOT_FOUND, name, "the session has no such parameter");
    }
    return status;
}

enum octet_status maxtext_case_session(const struct maxtext_case *c, octet_context *context,
                                       enum octet_session_mode mode, octet_session **out,
                                       struct octet_error *err)
{
    struct octet_session_options options = {.mode = mode,
                                            .batch_size = c->batch.tokens.dim[0],
                                            .sequence_length = c->batch.tokens.dim[1]};
    enum octet_status status = octet_session_create(context, &c->input, NULL, &options, out, err);

    if (status)
        return status;
    status = put_all(c, *out, err);
    if (status)
        octet_session_destroy(*out);
    return status;
}

const float *maxtext_tensor(const struct maxtext_case *c, const octet_session *session,
                            enum octet_tensor_set set, const char *name, size_t *count)
{
    const octet_parameters *all = octet_session_tensors(session, set);
    size_t i = all ? octet_parameters_find(all, name) : SIZE_MAX;
    struct octet_array array;
    struct octet_error err;

    if (i == SIZE_MAX)
        return NULL;
    octet_parameters_describe(all, i, &name, &array);
    *count = (size_t)octet_array_elements(&array);
    uint64_t bytes = (uint64_t)octet_array_bytes(&array);
    void *raw = octet_arena_array(c->arena, *count + 1, sizeof(float));
    if (!raw || octet_session_get(session, set, i, 0, bytes, raw, &err))
        return NULL;
    if (array.dtype != OCTET_DTYPE_BF16)
        return raw;
    float *wide = OCTET_NEW_ARRAY(c->arena, *count + 1, float);
    for (size_t k = 0; wide && k < *count; k++)
        wide[k] = from_bfloat16(((const uint16_t *)raw)[k]);
    return wide;
}
