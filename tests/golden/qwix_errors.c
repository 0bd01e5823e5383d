/* The cases of errors.json have names for people; this table says which call each of them is. */
#include "golden/qwix_errors.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "octet/array.h"

enum what { QUANTIZE, DOT, RAGGED, CONV, EINSUM3 };

struct attempt {
    const char *name; /* of errors.json */
    enum what what;
    const char *qtype, *method;   /* of quantize; of both sides of a dot */
    const char *tile;             /* of axis 1 */
    bool channelwise_1, is_int32; /* axis 1 is channelwise as well; the array is S32 */
    struct octet_rule rule;
};

#define Q(text, type, ...)                                                                         \
    {                                                                                              \
        .name = text, .what = QUANTIZE, .qtype = type, .method = __VA_ARGS__                       \
    }
#define FP8 .weight_qtype = "float8_e4m3fn", .act_qtype = "float8_e4m3fn"
static const struct attempt attempts[] = {
    Q("e4m3 minmax", "float8_e4m3fn", "minmax"),
    Q("e5m2 minmax", "float8_e5m2", "minmax"),
    Q("e4m3 fixed,-1,3 (asymmetric)", "float8_e4m3fn", "fixed,-1,3"),
    Q("int8 fixed,-1,3 (asymmetric)", "int8", "fixed,-1,3"),
    Q("e4m3 fixed,4 (one number)", "float8_e4m3fn", "fixed,4"),
    Q("e4m3 fixed,1,3", "float8_e4m3fn", "fixed,1,3"),
    Q("e4m3 fixed,0,0", "float8_e4m3fn", "fixed,0,0"),
    Q("e4m3 fixed", "float8_e4m3fn", "fixed"),
    Q("e4m3 rms without factor", "float8_e4m3fn", "rms"),
    Q("e4m3 absmax,1.5", "float8_e4m3fn", "absmax,1.5"),
    Q("e4m3 ABSMAX (upper case)", "float8_e4m3fn", "ABSMAX"),
    Q("e4m3 unknown method", "float8_e4m3fn", "median"),
    Q("e4m3 tile 48 on 64", "float8_e4m3fn", "absmax", .tile = "48"),
    Q("e4m3 tile 1/3 on 64", "float8_e4m3fn", "absmax", .tile = "1/3"),
    Q("e4m3 axis both channelwise and tiled", "float8_e4m3fn", "absmax", .tile = "32",
      .channelwise_1 = true),
    Q("bfloat16 as qtype", "bfloat16", "absmax"),
    Q("mxfp8 without tiled axes", "mxfp8", "absmax"),
    Q("mxfp8 tile 16", "mxfp8", "absmax", .tile = "16"),
    Q("int32 input", "float8_e4m3fn", "absmax", .is_int32 = true),
    {.name = "ragged_dot with act_qtype None",
     .what = RAGGED,
     .rule = {.weight_qtype = "float8_e4m3fn"}},
    {.name = "dot_general int8 minmax both operands, forward",
     .what = DOT,
     .rule = {.weight_qtype = "int8",
              .act_qtype = "int8",
              .weight_calibration_method = "minmax",
              .act_calibration_method = "minmax"}},
    {.name = "dot_general int8 minmax lhs, quantized backward",
     .what = DOT,
     .rule = {.weight_qtype = "int8",
              .act_qtype = "int8",
              .bwd_qtype = "int8",
              .act_calibration_method = "minmax"}},
    {.name = "sparsity 2:4 on a size not divisible by 4",
     .what = DOT,
     .rule = {FP8, .sparsity = {.n = 2, .m = 4}}},
    {.name = "rule act_static_scale without act_qtype",
     .what = DOT,
     .rule = {.weight_qtype = "float8_e4m3fn", .act_static_scale = true}},
    {.name = "conv with tile_size", .what = CONV, .rule = {FP8, .tile_size = "4"}},
    {.name = "einsum with three operands under a rule", .what = EINSUM3, .rule = {FP8}},
};
#undef FP8
#undef Q

static struct octet_array array_of(octet_arena *arena, enum octet_dtype dtype, int32_t rank,
                                   int64_t a, int64_t b, int64_t c)
{
    struct octet_array array;
    struct octet_error err;
    int64_t dim[3] = {a, b, c};

    if (octet_array_create(arena, dtype, rank, dim, &array, &err))
        printf("FAIL %s\n", err.text);
    for (int64_t i = 0; dtype == OCTET_DTYPE_F32 && i < octet_array_elements(&array); i++)
        ((float *)array.data)[i] = (float)(i % 13) - 5.5f;
    return array;
}

static enum octet_status try_quantize(const struct attempt *a, const struct octet_compute *compute,
                                      struct octet_error *err)
{
    static const int32_t axes[] = {0, 1};
    struct octet_array x =
        array_of(compute->arena, a->is_int32 ? OCTET_DTYPE_S32 : OCTET_DTYPE_F32, 2, 8, 64, 1);
    struct octet_tiled_axis tiled = {1, a->tile};
    struct octet_quantize_options options = {.qtype = a->qtype,
                                             .calibration_method = a->method,
                                             .channelwise_axes = axes,
                                             .channelwise_axis_count = a->channelwise_1 ? 2 : 1,
                                             .tiled_axes = &tiled,
                                             .tiled_axis_count = a->tile ? 1 : 0};
    struct octet_quantized out;

    return octet_quantize(compute, &x, &options, &out, err);
}

static enum octet_status try_product(const struct attempt *a, const struct octet_rule *rule,
                                     const struct octet_compute *compute, struct octet_error *err)
{
    octet_arena *arena = compute->arena;
    struct octet_operand lhs = {.array = array_of(arena, OCTET_DTYPE_F32, 2, 5, 9, 1)},
                         rhs = {.array = array_of(arena, OCTET_DTYPE_F32, 2, 9, 7, 1)};
    struct octet_array g = array_of(arena, OCTET_DTYPE_F32, 2, 5, 7, 1),
                       sizes = array_of(arena, OCTET_DTYPE_S32, 1, 2, 1, 1);
    struct octet_product_options options = {
        .rule = rule, .cotangent = rule->bwd_qtype[0] ? &g : NULL, .qwix_compatible = true};
    struct octet_dot_dims dims = {.contracting_count = 1, .lhs_contracting = {1}};
    struct octet_conv_options conv = {1, {1}, {0}, {0}, {1}, {1}, 1};
    struct octet_product out;

    if (a->what == EINSUM3)
        return octet_einsum(compute, "ab,bc,cd->ad", &lhs, &rhs, &options, &out, err);
    if (a->what == RAGGED) {
        rhs.array = array_of(arena, OCTET_DTYPE_F32, 3, 2, 9, 7);
        return octet_ragged_dot(compute, &lhs, &rhs, &sizes, false, OCTET_RAGGED_DOT, &options,
                                &out, err);
    }
    if (a->what == CONV) {
        lhs.array = array_of(arena, OCTET_DTYPE_F32, 3, 2, 8, 4);
        rhs.array = array_of(arena, OCTET_DTYPE_F32, 3, 3, 4, 5);
        return octet_conv(compute, &lhs, &rhs, &conv, &options, &out, err);
    }
    return octet_dot_general(compute, &lhs, &rhs, &dims, &options, &out, err);
}

static enum octet_status try_it(const struct attempt *a, const octet_context *context,
                                const struct octet_compute *compute, struct octet_error *err)
{
    octet_rules *rules = NULL;
    enum octet_status status;

    if (a->what == QUANTIZE)
        return try_quantize(a, compute, err);
    status = octet_rules_create(context, &a->rule, 1, &rules, err);
    if (!status)
        status = try_product(a, octet_rules_get(rules, 0), compute, err);
    octet_rules_unref(rules);
    return status;
}

void qwix_errors_check(const char *path, const octet_context *context, octet_workers *workers,
                       int64_t *passed, int64_t *failed, int64_t *not_run)
{
    json_error_t error;
    json_t *json = json_load_file(path, 0, &error), *item;
    size_t i;

    json_array_foreach(json_object_get(json, "cases"), i, item)
    {
        const char *name = json_string_value(json_object_get(item, "name"));
        bool raises = !json_is_null(json_object_get(item, "raises"));
        const struct attempt *a = NULL;
        for (size_t j = 0; j < sizeof attempts / sizeof attempts[0]; j++)
            if (!strcmp(attempts[j].name, name))
                a = &attempts[j];
        if (!a) {
            printf("not run: %s (the library is told which operand is a weight)\n", name);
            ++*not_run;
            continue;
        }
        octet_arena *arena = octet_arena_create((size_t)1 << 28);
        struct octet_compute compute = {arena, workers, NULL};
        struct octet_error err = {0};
        enum octet_status status = try_it(a, context, &compute, &err);
        if ((status != OCTET_OK) != raises)
            printf("FAIL %s: %s: %s; Qwix: %s\n", path, name, status ? err.text : "accepted",
                   raises ? json_string_value(json_object_get(item, "message")) : "accepted");
        ++*((status != OCTET_OK) == raises ? passed : failed);
        octet_arena_destroy(arena);
    }
    json_decref(json);
}
