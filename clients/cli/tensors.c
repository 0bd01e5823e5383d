/* Operands of files, arrays of messages; see tensors.h. */
#include "tensors.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "figures.h"
#include "octet/nearest.h"
#include "octet/safetensors.h"
#include "wire/convert.h"
#include "wire/tensor.h"

#define SCALE ".scale"
#define ZERO_POINT ".zero_point"
#define DTYPE_KEY "octet.dtype." /* + NAME = "int4" */

static bool holds_codes(const struct octet_array *array)
{
    return octet_dtype_bits(array->dtype) <= 8 && array->dtype != OCTET_DTYPE_U8 &&
           array->dtype != OCTET_DTYPE_BOOL && array->dtype != OCTET_DTYPE_F8_E8M0FNU;
}

static enum octet_status open_file(struct tensors *set, const char *path,
                                   const octet_safetensors **out, struct octet_error *err)
{
    for (size_t i = 0; i < set->file_count; i++)
        if (strcmp(set->files[i].path, path) == 0) {
            *out = set->files[i].file;
            return OCTET_OK;
        }
    if (set->file_count == TENSOR_FILES_MAX)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "more than %d files",
                          TENSOR_FILES_MAX);
    enum octet_status status = octet_safetensors_open(set->arena, path, out, err);
    if (status == OCTET_OK) {
        set->files[set->file_count].path = path;
        set->files[set->file_count++].file = *out;
    }
    return status;
}

void tensors_close(struct tensors *set)
{
    for (size_t i = 0; i < set->file_count; i++)
        octet_safetensors_close(set->files[i].file);
    set->file_count = 0;
}

static bool is_file(const char *path)
{
    struct stat about;

    return stat(path, &about) == 0;
}

/* Both a path and a name may hold ':', so the longest path that is a file counts. *name NULL: none
 * given. */
static bool split(octet_arena *arena, const char *text, const char **path, const char **name)
{
    const char *last = strrchr(text, ':');

    *path = text;
    *name = NULL;
    if (!last || is_file(text))
        return true;
    for (const char *colon = last; colon; colon = memrchr(text, ':', (size_t)(colon - text))) {
        char *front = octet_arena_copy(arena, text, (size_t)(colon - text));
        if (!front)
            return false;
        if (colon == last || is_file(front)) { /* of none that is there, the last is meant */
            *path = front;
            *name = colon + 1;
        }
        if (is_file(front))
            return true;
    }
    return true;
}

/* NAME.scale and the like; NULL when it is not there, or no memory. */
static const struct octet_named_array *companion(octet_arena *arena, const octet_safetensors *file,
                                                 const char *name, const char *ending)
{
    const char *full = octet_arena_format(arena, "%s%s", name, ending);

    return full ? octet_safetensors_find(file, full) : NULL;
}

/* Is it the scale or zero point of codes in the same file? */
static bool is_companion(octet_arena *arena, const octet_safetensors *file, const char *name)
{
    static const char *const endings[] = {SCALE, ZERO_POINT};
    size_t length = strlen(name);

    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t ending = strlen(endings[i]);
        if (length <= ending || strcmp(name + length - ending, endings[i]) != 0)
            continue;
        const char *base = octet_arena_copy(arena, name, length - ending);
        const struct octet_named_array *codes = base ? octet_safetensors_find(file, base) : NULL;
        if (codes && holds_codes(&codes->array))
            return true;
    }
    return false;
}

static const char *array_name(const void *user, size_t i)
{
    return octet_safetensors_get(user, i)->name;
}

/* The array that is meant when no name is given. */
static enum octet_status find_only(octet_arena *arena, const octet_safetensors *file,
                                   const char *path, const struct octet_named_array **out,
                                   struct octet_error *err)
{
    size_t count = octet_safetensors_count(file), found = 0;

    for (size_t i = 0; i < count && found < 2; i++) {
        const struct octet_named_array *named = octet_safetensors_get(file, i);
        if (is_companion(arena, file, named->name))
            continue;
        if (found++ == 0)
            *out = named;
    }
    if (found == 1)
        return OCTET_OK;
    if (count == 0)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "the file holds no arrays");
    return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                      "the file holds %zu arrays; name one: %s:%s", count, path,
                      octet_safetensors_get(file, 0)->name);
}

static enum octet_status find_named(const octet_safetensors *file, const char *name,
                                    const struct octet_named_array **out, struct octet_error *err)
{
    size_t count = octet_safetensors_count(file);

    *out = octet_safetensors_find(file, name);
    if (*out)
        return OCTET_OK;
    if (count == 0)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "the file holds no arrays");
    return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                      "the file holds no array '%s'; the nearest of %zu is '%s'", name, count,
                      array_name(file, octet_nearest(name, count, array_name, file)));
}

/* I8 that was int4 when it was written. */
static void restore_dtype(const octet_safetensors *file, const char *name,
                          struct octet_array *array)
{
    const struct octet_pair *pairs;
    size_t count = octet_safetensors_metadata(file, &pairs);

    for (size_t i = 0; i < count && array->dtype == OCTET_DTYPE_S8; i++)
        if (strncmp(pairs[i].key, DTYPE_KEY, strlen(DTYPE_KEY)) == 0 &&
            strcmp(pairs[i].key + strlen(DTYPE_KEY), name) == 0 &&
            octet_dtype_find(pairs[i].value) == OCTET_DTYPE_S4)
            array->dtype = OCTET_DTYPE_S4;
}

static enum octet_status find(struct tensors *set, const char *text, struct tensor *out,
                              struct octet_error *err)
{
    const octet_safetensors *file;
    const struct octet_named_array *named = NULL, *scale = NULL, *zero_point = NULL;
    const char *name;

    *out = (struct tensor){0};
    if (!split(set->arena, text, &out->path, &name))
        return octet_arena_exhausted(set->arena, err);
    enum octet_status status = open_file(set, out->path, &file, err);
    if (status != OCTET_OK)
        return status;
    status = name ? find_named(file, name, &named, err)
                  : find_only(set->arena, file, out->path, &named, err);
    if (status != OCTET_OK)
        return status;
    out->name = named->name;
    out->array = named->array;
    restore_dtype(file, named->name, &out->array);
    if (holds_codes(&named->array)) {
        scale = companion(set->arena, file, named->name, SCALE);
        zero_point = scale ? companion(set->arena, file, named->name, ZERO_POINT) : NULL;
    }
    out->is_quantized = scale != NULL;
    if (scale) {
        out->scale = scale->array;
        out->scale_name = scale->name;
    }
    if (zero_point) {
        out->zero_point = zero_point->array;
        restore_dtype(file, zero_point->name, &out->zero_point);
    }
    return OCTET_OK;
}

void scales_warn(const char *whose, const struct octet_array *scale)
{
    int64_t count = octet_array_elements(scale), bad = 0, first = 0;

    for (int64_t i = 0; figures_reads(scale->dtype) && i < count; i++) {
        double value = figures_number(scale, i);
        if (value > 0 && isfinite(value))
            continue;
        first = bad++ ? first : i;
    }
    if (!bad)
        return;
    fputs("octet: warning: ", stderr);
    print_safe(whose);
    fprintf(stderr,
            ": %" PRId64 " of %" PRId64
            " scales are no finite number above 0; the first, at index %" PRId64 ", is %g\n",
            bad, count, first, figures_number(scale, first));
}

static void warn_of_scales(octet_arena *arena, const char *what, const char *path,
                           const struct tensor *tensor)
{
    const char *whose = octet_arena_format(arena, "%s '%s:%s'", what, path, tensor->scale_name);

    scales_warn(whose ? whose : what, &tensor->scale);
}

/* The operand before the sentence: "LHS 'x.safetensors:w': the file holds no array 'w'". */
static enum octet_status fail_operand(const char *what, const char *text, enum octet_status status,
                                      struct octet_error *err)
{
    bool has_field = err->field[0] && strcmp(err->field, "path") != 0;
    char sentence[sizeof err->text];

    snprintf(sentence, sizeof sentence, "%.60s '%.200s': %.100s%s%.600s", what, text,
             has_field ? err->field : "", has_field ? ": " : "", err->text);
    return octet_fail(err, status, NULL, "%s", sentence);
}

enum octet_status tensors_find(struct tensors *set, const char *what, const char *text,
                               struct tensor *out, struct octet_error *err)
{
    enum octet_status status = find(set, text, out, err);

    if (status == OCTET_OK && out->is_quantized)
        warn_of_scales(set->arena, what, out->path, out);
    return status == OCTET_OK ? OCTET_OK : fail_operand(what, text, status, err);
}

/* Does each axis of the scale have 1, or a number that divides the array's? */
static bool scale_fits(const struct octet_array *array, const struct octet_array *scale)
{
    bool fits = array->rank == scale->rank;

    for (int32_t i = 0; fits && i < array->rank; i++)
        fits = scale->dim[i] == 1 || (scale->dim[i] > 0 && array->dim[i] % scale->dim[i] == 0);
    return fits;
}

static enum octet_status find_scale(struct tensors *set, const char *text, struct tensor *codes,
                                    struct tensor *out, struct octet_error *err)
{
    const octet_safetensors *file;
    enum octet_status status = open_file(set, codes->path, &file, err); /* it is open */
    const struct octet_named_array *named =
        status == OCTET_OK ? octet_safetensors_find(file, text) : NULL;

    if (status != OCTET_OK)
        return status;
    if (named)
        *out = (struct tensor){.path = codes->path, .name = named->name, .array = named->array};
    else if (!strchr(text, ':') && !is_file(text))
        return find_named(file, text, &named, err);
    else if ((status = find(set, text, out, err)) != OCTET_OK)
        return status;
    if (!scale_fits(&codes->array, &out->array)) {
        char of_codes[160], of_scale[160];
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                          "shape %s does not go with %s of '%.100s': each axis must have 1, or a "
                          "number that divides the array's",
                          octet_array_shape_text(&out->array, of_scale, sizeof of_scale),
                          octet_array_shape_text(&codes->array, of_codes, sizeof of_codes),
                          codes->name);
    }
    return OCTET_OK;
}

enum octet_status tensors_scale(struct tensors *set, const char *what, const char *text,
                                struct tensor *codes, struct octet_error *err)
{
    struct tensor found = {0};
    enum octet_status status = find_scale(set, text, codes, &found, err);

    if (status != OCTET_OK)
        return fail_operand(what, text, status, err);
    codes->scale = found.array;
    codes->scale_name = found.name;
    codes->zero_point = (struct octet_array){0};
    codes->is_quantized = true;
    warn_of_scales(set->arena, what, found.path, codes);
    return OCTET_OK;
}

static bool is_same_file(const char *a, const char *b)
{
    struct stat first, second;

    return stat(a, &first) == 0 && stat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

enum octet_status tensors_write(const struct tensors *set, const char *path,
                                const struct octet_named_array *arrays, size_t count,
                                struct octet_error *err)
{
    struct octet_pair *metadata = OCTET_NEW_ARRAY(set->arena, count, struct octet_pair);
    size_t metadata_count = 0;

    if (!metadata)
        return octet_arena_exhausted(set->arena, err);
    for (size_t i = 0; i < set->file_count; i++)
        if (is_same_file(path, set->files[i].path))
            return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                              "option --output: '%s' is read from; writing there would lose its "
                              "other arrays",
                              path);
    for (size_t i = 0; i < count; i++) {
        if (arrays[i].array.dtype != OCTET_DTYPE_S4)
            continue;
        const char *key = octet_arena_format(set->arena, DTYPE_KEY "%s", arrays[i].name);
        if (!key)
            return octet_arena_exhausted(set->arena, err);
        metadata[metadata_count++] = (struct octet_pair){key, octet_dtype_name(OCTET_DTYPE_S4)};
    }
    enum octet_status status =
        octet_safetensors_write(set->arena, path, arrays, count, metadata, metadata_count, err);
    if (status != OCTET_OK && err && strcmp(err->field, "path") == 0)
        err->field[0] = '\0'; /* the sentence names it */
    return status;
}

Octet__V1__Tensor *request_tensor(struct request_buffers *to, const struct octet_array *array)
{
    Octet__V1__Tensor *tensor = oct_wire_new(to->arena, &octet__v1__tensor__descriptor);
    size_t rank = (size_t)array->rank;
    int64_t *shape = OCTET_NEW_ARRAY(to->arena, rank, int64_t);

    if (!tensor || !shape || to->count == TENSOR_BUFFERS_MAX)
        return NULL;
    memcpy(shape, array->dim, rank * sizeof *shape);
    tensor->dtype = (Octet__V1__DataType)array->dtype;
    tensor->shape = shape;
    tensor->n_shape = rank;
    to->list[to->count++] = (ProtobufCBinaryData){(size_t)octet_array_bytes(array), array->data};
    tensor->buffer = (int32_t)to->count;
    return tensor;
}

Octet__V1__QuantizedTensor *request_quantized(struct request_buffers *to,
                                              const struct tensor *tensor)
{
    Octet__V1__QuantizedTensor *out =
        oct_wire_new(to->arena, &octet__v1__quantized_tensor__descriptor);

    if (!out || !(out->qvalue = request_tensor(to, &tensor->array)) ||
        !(out->scale = request_tensor(to, &tensor->scale)))
        return NULL;
    if (tensor->zero_point.data && !(out->zero_point = request_tensor(to, &tensor->zero_point)))
        return NULL;
    return out;
}

Octet__V1__Operand *request_operand(struct request_buffers *to, const struct tensor *tensor)
{
    Octet__V1__Operand *out = oct_wire_new(to->arena, &octet__v1__operand__descriptor);

    if (!out)
        return NULL;
    if (tensor->is_quantized) {
        out->kind_case = OCTET__V1__OPERAND__KIND_QUANTIZED;
        out->quantized = request_quantized(to, tensor);
        return out->quantized ? out : NULL;
    }
    out->kind_case = OCTET__V1__OPERAND__KIND_TENSOR;
    out->tensor = request_tensor(to, &tensor->array);
    return out->tensor ? out : NULL;
}

enum octet_status reply_array(octet_arena *arena, const Octet__V1__Tensor *tensor,
                              size_t buffer_count, const ProtobufCBinaryData *buffers,
                              const char *field, struct octet_array *out, struct octet_error *err)
{
    const struct oct_wire_buffers all = {buffers, buffer_count};
    enum octet_status status = oct_wire_to_array(arena, tensor, &all, field, out, err);
    char message[sizeof err->text];

    if (status != OCTET_INVALID_ARGUMENT)
        return status;
    octet_error_message(err, message, sizeof message);
    return octet_fail(err, OCTET_DATA_LOSS, NULL, "the reply does not hold what it says: %.900s",
                      message);
}
