/* Reading the case of a reference file, and turning its rule into the library's. */
#include "golden/qwix_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"

struct qwix_case *qwix_case_open(octet_arena *arena, const char *path)
{
    struct qwix_case *c = OCTET_NEW(arena, struct qwix_case);
    const struct octet_pair *pairs;
    struct octet_error err = {0};
    json_error_t error;

    c->arena = arena;
    c->path = path;
    const char *slash = strrchr(path, '/');
    c->name = slash ? slash + 1 : path;
    if (octet_safetensors_open(arena, path, &c->file, &err)) {
        printf("FAIL %s: %s: %s\n", path, err.field, err.text);
        return NULL;
    }
    size_t count = octet_safetensors_metadata(c->file, &pairs);
    for (size_t i = 0; i < count; i++)
        if (!strcmp(pairs[i].key, "case"))
            c->json = json_loads(pairs[i].value, 0, &error);
    if (!c->json) {
        printf("FAIL %s: no case in its metadata\n", path);
        octet_safetensors_close(c->file);
        return NULL;
    }
    c->op = qwix_case_text(c, "op");
    return c;
}

void qwix_case_close(struct qwix_case *c)
{
    json_decref(c->json);
    octet_safetensors_close(c->file);
}

const struct octet_array *qwix_case_tensor(const struct qwix_case *c, const char *name)
{
    const struct octet_named_array *found = octet_safetensors_find(c->file, name);

    return found ? &found->array : NULL;
}

json_t *qwix_case_get(const struct qwix_case *c, const char *key)
{
    json_t *value = json_object_get(c->json, key);

    return json_is_null(value) ? NULL : value;
}

const char *qwix_case_text(const struct qwix_case *c, const char *key)
{
    const char *text = json_string_value(json_object_get(c->json, key));

    return text ? text : "";
}

const char *qwix_qtype(const char *name)
{
    static const char *const names[][2] = {
        {"e4m3", "float8_e4m3fn"}, {"e5m2", "float8_e5m2"}, {"e2m1", "float4_e2m1fn"}};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (name && !strcmp(name, names[i][0]))
            return names[i][1];
    return name ? name : "";
}

enum octet_dtype qwix_dtype_of_qtype(const char *name)
{
    name = qwix_qtype(name);
    if (!strcmp(name, "mxfp8"))
        return OCTET_DTYPE_F8_E4M3FN;
    if (!strcmp(name, "mxfp4") || !strcmp(name, "nvfp4"))
        return OCTET_DTYPE_F4_E2M1FN;
    return octet_dtype_find(name);
}

const char *qwix_tile(octet_arena *arena, const json_t *number)
{
    if (json_is_integer(number))
        return octet_arena_format(arena, "%lld", (long long)json_integer_value(number));
    const char *text = octet_arena_format(arena, "%.17g", json_real_value(number));
    return strchr(text, '.') ? text : octet_arena_format(arena, "%s.0", text);
}

/* ---- rules ---- */

static const char *text_of(octet_arena *arena, const char *key, const json_t *value)
{
    if (json_is_boolean(value))
        return json_is_true(value) ? "true" : "false";
    if (json_is_number(value))
        return qwix_tile(arena, value);
    const char *text = json_string_value(value);
    return strstr(key, "qtype") ? qwix_qtype(text) : text ? text : "";
}

static const char *field(const struct qwix_case *c, const json_t *rule, const char *key)
{
    json_t *value = json_object_get(rule, key);

    return value && !json_is_null(value) ? text_of(c->arena, key, value) : "";
}

static void read_additional(const struct qwix_case *c, json_t *object, struct octet_rule *rule)
{
    struct octet_pair *pairs =
        OCTET_NEW_ARRAY(c->arena, json_object_size(object) + 1, struct octet_pair);
    const char *key;
    json_t *value;

    rule->additional_qt_config = pairs;
    json_object_foreach(object, key, value)
    {
        if (!strcmp(key, "sparsity_rule"))
            rule->sparsity = (struct octet_sparsity){
                (int32_t)json_integer_value(json_array_get(value, 0)),
                (int32_t)json_integer_value(json_array_get(value, 1)), 0, 0};
        else
            pairs[rule->additional_qt_config_count++] =
                (struct octet_pair){key, text_of(c->arena, key, value)};
    }
}

const struct octet_rule *qwix_case_rule(const struct qwix_case *c, const octet_context *context,
                                        octet_rules **rules, struct octet_error *err)
{
    json_t *json = qwix_case_get(c, "rule"), *axes;

    *rules = NULL;
    if (!json)
        return NULL;
    struct octet_rule rule = {
        .weight_qtype = field(c, json, "weight_qtype"),
        .act_qtype = field(c, json, "act_qtype"),
        .bwd_qtype = field(c, json, "bwd_qtype"),
        .weight_calibration_method = field(c, json, "weight_calibration_method"),
        .act_calibration_method = field(c, json, "act_calibration_method"),
        .bwd_calibration_method = field(c, json, "bwd_calibration_method"),
        .tile_size = field(c, json, "tile_size"),
        .bwd_weight_grad_tile_size = field(c, json, "bwd_weight_grad_tile_size"),
        .bwd_stochastic_rounding = field(c, json, "bwd_stochastic_rounding"),
        .act_static_scale = json_is_true(json_object_get(json, "act_static_scale")),
        .disable_channelwise_axes = json_is_true(json_object_get(json, "disable_channelwise_axes")),
    };
    if ((axes = json_object_get(json, "act_batch_axes"))) {
        int32_t *copy = OCTET_NEW_ARRAY(c->arena, json_array_size(axes), int32_t);
        for (size_t i = 0; i < json_array_size(axes); i++)
            copy[i] = (int32_t)json_integer_value(json_array_get(axes, i));
        rule.act_batch_axes = copy;
        rule.act_batch_axis_count = json_array_size(axes);
    }
    if (json_is_object(json_object_get(json, "additional_qt_config")))
        read_additional(c, json_object_get(json, "additional_qt_config"), &rule);
    if (octet_rules_create(context, &rule, 1, rules, err))
        return NULL;
    return octet_rules_get(*rules, 0);
}

static int32_t read_axes(const json_t *axes, int32_t *out)
{
    for (size_t i = 0; i < json_array_size(axes); i++)
        out[i] = (int32_t)json_integer_value(json_array_get(axes, i));
    return (int32_t)json_array_size(axes);
}

struct octet_dot_dims qwix_case_dims(const struct qwix_case *c)
{
    json_t *json = qwix_case_get(c, "dimension_numbers");
    struct octet_dot_dims dims = {0};

    dims.contracting_count =
        read_axes(json_array_get(json_array_get(json, 0), 0), dims.lhs_contracting);
    read_axes(json_array_get(json_array_get(json, 0), 1), dims.rhs_contracting);
    dims.batch_count = read_axes(json_array_get(json_array_get(json, 1), 0), dims.lhs_batch);
    read_axes(json_array_get(json_array_get(json, 1), 1), dims.rhs_batch);
    return dims;
}

/* ---- numbers ---- */

struct octet_array qwix_codes(octet_arena *arena, const struct octet_array *stored,
                              enum octet_dtype dtype)
{
    const struct oct_kernels *scalar = oct_kernels_find("scalar", NULL);
    struct octet_array codes = *stored;
    size_t n = (size_t)octet_array_elements(stored);

    if (stored->dtype == dtype)
        return codes;
    float *values = OCTET_NEW_ARRAY(arena, n + 1, float);
    codes.dtype = dtype;
    codes.data = octet_arena_array(arena, n + 1, octet_dtype_bytes(dtype));
    scalar->decode(stored->dtype, n, stored->data, values);
    scalar->saturate(dtype, n, values, codes.data);
    return codes;
}

double *qwix_doubles(octet_arena *arena, const struct octet_array *array)
{
    const struct oct_kernels *scalar = oct_kernels_find("scalar", NULL);
    size_t n = (size_t)octet_array_elements(array);
    float *values = OCTET_NEW_ARRAY(arena, n + 1, float);
    double *out = OCTET_NEW_ARRAY(arena, n + 1, double);

    scalar->decode(array->dtype, n, array->data, values);
    for (size_t i = 0; i < n; i++)
        out[i] = (double)values[i];
    return out;
}
