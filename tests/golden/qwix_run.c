/* Calling the library as a reference file says. */
#include "golden/qwix_run.h"

#include <stdio.h>
#include <string.h>

#include "quant/record.h"

const struct octet_array *qwix_tensors_find(const struct qwix_tensors *tensors, const char *name)
{
    for (size_t i = 0; i < tensors->count; i++)
        if (!strcmp(tensors->item[i].name, name))
            return &tensors->item[i].array;
    return NULL;
}

static void put(struct qwix_tensors *out, const char *name, const struct octet_array *array)
{
    if (array->data && out->count < QWIX_TENSORS_MAX)
        out->item[out->count++] = (struct octet_named_array){name, *array};
}

static void put_quantized(octet_arena *arena, struct qwix_tensors *out, const char *name,
                          const char *separator, const struct octet_quantized *quantized)
{
    put(out, octet_arena_format(arena, "%s%sq", name, separator), &quantized->qvalue);
    if (!quantized->qvalue.data)
        return;
    put(out, octet_arena_format(arena, "%s%sscale", name, separator), &quantized->scale);
    put(out, octet_arena_format(arena, "%s%szp", name, separator), &quantized->zero_point);
}

static void put_record(octet_arena *arena, struct qwix_tensors *out, const char *lhs,
                       const char *rhs, const char *prefix, const struct oct_record *record)
{
#define NAMED(text) octet_arena_format(arena, "%s" text, prefix)
    put_quantized(arena, out, lhs, "_", &record->lhs);
    put_quantized(arena, out, rhs, "_", &record->rhs);
    put(out, NAMED("rhs_sparse"), &record->rhs_sparse);
    if (record->g_dlhs.qvalue.data)
        put(out, NAMED("g_dlhs_pre"), &record->g_dlhs_pre);
    if (record->g_drhs.qvalue.data)
        put(out, NAMED("g_drhs_pre"), &record->g_drhs_pre);
    put_quantized(arena, out, NAMED("g_dlhs"), "_", &record->g_dlhs);
    put_quantized(arena, out, NAMED("g_drhs"), "_", &record->g_drhs);
    put_quantized(arena, out, NAMED("y_dlhs"), "_", &record->y_dlhs);
    put_quantized(arena, out, NAMED("y_drhs"), "_", &record->y_drhs);
#undef NAMED
}

/* A side that the file has quantized (direct calls of Qwix's dot_general) or as it is. */
static struct octet_operand operand_of(const struct qwix_case *c, octet_arena *arena,
                                       const char *name)
{
    json_t *how = qwix_case_get(c, octet_arena_format(arena, "%s_how", name));
    const struct octet_array *plain = qwix_case_tensor(c, name);
    struct octet_operand operand = {0};

    if (!how) {
        operand.array = *plain;
        return operand;
    }
    enum octet_dtype dtype = qwix_dtype_of_qtype(json_string_value(json_object_get(how, "qtype")));
    const struct octet_array *q = qwix_case_tensor(c, octet_arena_format(arena, "%s_q", name)),
                             *zp = qwix_case_tensor(c, octet_arena_format(arena, "%s_zp", name));
    operand.is_quantized = true;
    operand.quantized.qvalue = qwix_codes(arena, q, dtype);
    operand.quantized.scale = *qwix_case_tensor(c, octet_arena_format(arena, "%s_scale", name));
    if (zp)
        operand.quantized.zero_point = qwix_codes(arena, zp, dtype);
    return operand;
}

static enum octet_weight_operand weight_of(const struct qwix_case *c)
{
    const char *text = qwix_case_text(c, "weight_operand");

    if (!strcmp(text, "lhs"))
        return OCTET_WEIGHT_LHS;
    return !strcmp(text, "rhs") || !json_object_get(c->json, "weight_operand") ? OCTET_WEIGHT_RHS
                                                                               : OCTET_WEIGHT_NONE;
}

struct octet_conv_options qwix_conv_options(const struct qwix_case *c)
{
    json_t *strides = qwix_case_get(c, "strides"), *pads = qwix_case_get(c, "pads"),
           *ld = qwix_case_get(c, "lhs_dilation"), *rd = qwix_case_get(c, "rhs_dilation"),
           *groups = qwix_case_get(c, "feature_group_count");
    const struct octet_array *x = qwix_case_tensor(c, "x"), *w = qwix_case_tensor(c, "w");
    bool is_same = !strcmp(qwix_case_text(c, "padding"), "SAME");
    struct octet_conv_options conv = {.spatial_count = (int32_t)json_array_size(strides),
                                      .feature_groups = groups ? json_integer_value(groups) : 1};

#define AT(list, i, otherwise)                                                                     \
    (list ? json_integer_value(json_array_get(list, (size_t)(i))) : (otherwise))
    for (int32_t i = 0; i < conv.spatial_count; i++) {
        conv.stride[i] = AT(strides, i, 1);
        conv.lhs_dilation[i] = AT(ld, i, 1);
        conv.rhs_dilation[i] = AT(rd, i, 1);
        if (pads) {
            json_t *pair = json_array_get(pads, (size_t)i);
            conv.padding_low[i] = AT(pair, 0, 0);
            conv.padding_high[i] = AT(pair, 1, 0);
        } else if (is_same) {
            int64_t in = x->dim[i + 1], s = conv.stride[i];
            int64_t reach = (w->dim[i] - 1) * conv.rhs_dilation[i] + 1;
            int64_t total = ((in + s - 1) / s - 1) * s + reach - in;
            total = total < 0 ? 0 : total;
            conv.padding_low[i] = total / 2;
            conv.padding_high[i] = total - total / 2;
        }
    }
#undef AT
    return conv;
}

static void put_product(octet_arena *arena, struct qwix_tensors *out,
                        const struct octet_product *product)
{
    (void)arena;
    put(out, "out", &product->out);
    put(out, "dlhs", &product->lhs_grad);
    put(out, "drhs", &product->rhs_grad);
}

enum octet_status qwix_run(const struct qwix_case *c, const octet_context *context,
                           octet_workers *workers, octet_arena *arena, struct qwix_tensors *out,
                           struct octet_error *err)
{
    struct octet_compute compute = {arena, workers, NULL};
    octet_rules *rules;
    struct octet_error refused = {0};
    struct octet_product_options options = {
        .rule = qwix_case_rule(c, context, &rules, &refused),
        .weight_operand = weight_of(c),
        .cotangent = qwix_case_tensor(c, "g"),
        .qwix_compatible = true,
        .numerics = true,
    };
    struct oct_record record = {0};
    struct octet_product product = {0};
    bool is_einsum = !strcmp(c->op, "einsum"), is_conv = !strcmp(c->op, "conv_general_dilated");
    bool is_dot = !strcmp(c->op, "dot_general");
    enum octet_status status = refused.status;
    struct octet_operand lhs = operand_of(c, arena, is_einsum || is_conv ? "x" : "lhs"),
                         rhs = operand_of(c, arena, is_einsum || is_conv ? "w" : "rhs");

    if (status)
        *err = refused;
    else if (is_dot) {
        struct octet_dot_dims dims = qwix_case_dims(c);
        status =
            oct_quant_dot_general(&compute, &lhs, &rhs, &dims, &options, &record, &product, err);
    } else if (is_einsum) {
        status = oct_quant_einsum(&compute, qwix_case_text(c, "einsum"), &lhs, &rhs, &options,
                                  &record, &product, err);
    } else if (is_conv) {
        struct octet_conv_options conv = qwix_conv_options(c);
        status = oct_quant_conv(&compute, &lhs, &rhs, &conv, &options, &record, &product, err);
    } else {
        bool is_gmm = !strcmp(c->op, "gmm");
        status = oct_quant_ragged_dot(&compute, &lhs, &rhs, qwix_case_tensor(c, "group_sizes"),
                                      json_is_true(qwix_case_get(c, "transpose_rhs")),
                                      is_gmm ? OCTET_GMM : OCTET_RAGGED_DOT, &options, &record,
                                      &product, err);
    }
    if (!status && !qwix_case_get(c, "direct")) {
        /* The operands in the equation's order; g and y in that of its dot, which may be the other
         * one. */
        bool is_named = is_einsum || is_conv;
        put_record(arena, out, is_named ? "x" : "lhs", is_named ? "w" : "rhs",
                   is_einsum ? "dot_" : "", &record);
    }
    if (!status)
        put_product(arena, out, &product);
    octet_rules_unref(rules);
    return status;
}

/* ---- quantize ---- */

enum octet_status qwix_run_combo(const struct qwix_case *c, const char *name, json_t *combo,
                                 octet_workers *workers, octet_arena *arena,
                                 struct qwix_tensors *out, struct octet_error *err)
{
    struct octet_compute compute = {arena, workers, NULL};
    const struct octet_array *x =
        qwix_case_tensor(c, json_string_value(json_object_get(combo, "x")));
    json_t *channels = json_object_get(combo, "channelwise_axes"),
           *tiles = json_object_get(combo, "tiled_axes"), *tile;
    int32_t axes[OCTET_ARRAY_RANK_MAX];
    struct octet_tiled_axis tiled[OCTET_ARRAY_RANK_MAX];
    const char *scale_dtype = json_string_value(json_object_get(combo, "scale_dtype")), *axis;
    struct octet_quantize_options options = {
        .qtype = qwix_qtype(json_string_value(json_object_get(combo, "qtype"))),
        .calibration_method = json_string_value(json_object_get(combo, "calibration")),
        .channelwise_axes = axes,
        .channelwise_axis_count = json_array_size(channels),
        .tiled_axes = tiled,
        .scale_dtype = scale_dtype ? octet_dtype_find(scale_dtype) : OCTET_DTYPE_UNSPECIFIED,
    };
    struct octet_quantized quantized = {0};
    struct octet_array back = {0};

    for (size_t i = 0; i < json_array_size(channels); i++)
        axes[i] = (int32_t)json_integer_value(json_array_get(channels, i));
    json_object_foreach(tiles, axis, tile) tiled[options.tiled_axis_count++] =
        (struct octet_tiled_axis){axis[0] - '0', qwix_tile(arena, tile)};
    enum octet_status status = octet_quantize(&compute, x, &options, &quantized, err);
    if (!status)
        status = octet_dequantize(&compute, &quantized, OCTET_DTYPE_UNSPECIFIED, &back, err);
    if (!status) {
        put_quantized(arena, out, name, ".", &quantized);
        put(out, octet_arena_format(arena, "%s.deq", name), &back);
    }
    return status;
}

/* ---- rows alone ---- */

/* Index `at` of axis `axis`, as an array of its own with that axis of size 1. */
static struct octet_array slice_of(octet_arena *arena, const struct octet_array *array,
                                   int32_t axis, int64_t at)
{
    struct octet_array slice = *array;
    size_t element = octet_dtype_bytes(array->dtype), inner = element, outer = 1;

    for (int32_t i = 0; i < axis; i++)
        outer *= (size_t)array->dim[i];
    for (int32_t i = axis + 1; i < array->rank; i++)
        inner *= (size_t)array->dim[i];
    slice.dim[axis] = 1;
    slice.data = octet_arena_alloc(arena, outer * inner + 1);
    for (size_t i = 0; i < outer; i++)
        memcpy((char *)slice.data + i * inner,
               (char *)array->data + (i * (size_t)array->dim[axis] + (size_t)at) * inner, inner);
    return slice;
}

static int32_t first_free_axis(const struct octet_dot_dims *dims, int32_t rank)
{
    for (int32_t a = 0; a < rank; a++) {
        bool is_free = true;
        for (int32_t i = 0; i < dims->contracting_count; i++)
            is_free = is_free && dims->lhs_contracting[i] != a;
        for (int32_t i = 0; i < dims->batch_count; i++)
            is_free = is_free && dims->lhs_batch[i] != a;
        if (is_free)
            return a;
    }
    return -1;
}

/* The rows have scales of their own: else a row alone is another product. */
static bool rows_are_independent(const struct octet_rule *rule)
{
    if (!rule)
        return true;
    for (size_t i = 0; i < rule->additional_qt_config_count; i++)
        if (strstr(rule->additional_qt_config[i].key, "lhs_"))
            return false;
    return !rule->disable_channelwise_axes && !rule->act_static_scale;
}

int64_t qwix_run_rows_alone(const struct qwix_case *c, const octet_context *context,
                            octet_workers *workers, octet_arena *arena,
                            const struct octet_array *out)
{
    struct octet_compute compute = {arena, workers, NULL};
    struct octet_error err = {0};
    octet_rules *rules;
    const struct octet_rule *rule = qwix_case_rule(c, context, &rules, &err);
    bool is_dot = !strcmp(c->op, "dot_general");
    struct octet_product_options options = {
        .rule = rule, .weight_operand = weight_of(c), .qwix_compatible = true};
    struct octet_dot_dims dims = is_dot ? qwix_case_dims(c) : (struct octet_dot_dims){0};
    const struct octet_array *lhs = qwix_case_tensor(c, "lhs"),
                             *sizes = qwix_case_tensor(c, "group_sizes");
    int32_t axis = !lhs ? -1 : is_dot ? first_free_axis(&dims, lhs->rank) : 0;
    int64_t wrong = 0;

    if (err.status || axis < 0 || !rows_are_independent(rule) || qwix_case_get(c, "direct") ||
        (!is_dot && !sizes)) {
        octet_rules_unref(rules);
        return -1;
    }
    struct octet_operand left = {.array = *lhs}, right = operand_of(c, arena, "rhs");
    for (int64_t row = 0; row < lhs->dim[axis]; row++) {
        struct octet_product product = {0};
        enum octet_status status;
        left.array = slice_of(arena, lhs, axis, row);
        if (is_dot) {
            status = oct_quant_dot_general(&compute, &left, &right, &dims, &options, NULL, &product,
                                           &err);
        } else {
            struct octet_array one = *sizes;
            int32_t *count = OCTET_NEW_ARRAY(arena, sizes->dim[0] + 1, int32_t);
            int64_t end = 0, g = 0;
            for (; g < sizes->dim[0]; g++)
                if ((end += ((const int32_t *)sizes->data)[g]) > row)
                    break;
            if (g < sizes->dim[0])
                count[g] = 1;
            one.data = count;
            status = oct_quant_ragged_dot(&compute, &left, &right, &one,
                                          json_is_true(qwix_case_get(c, "transpose_rhs")),
                                          !strcmp(c->op, "gmm") ? OCTET_GMM : OCTET_RAGGED_DOT,
                                          &options, NULL, &product, &err);
        }
        struct octet_array whole = slice_of(arena, out, is_dot ? dims.batch_count : 0, row);
        size_t bytes = (size_t)octet_array_bytes(&whole);
        wrong += status || whole.dtype != product.out.dtype ||
                 memcmp(whole.data, product.out.data, bytes) != 0;
    }
    octet_rules_unref(rules);
    return wrong;
}
