/* The methods with tensors, beside the library that they call. What could break: an operand, axis
 * or setting that arrives as another's, a gradient under the wrong name, a rule that is not the one
 * the path says, an error in words that the request does not have, a crash on sizes of 0 or on
 * sizes that no memory holds. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "octet/v1/octet.pb-c.h"
#include "test_wire.h"
#include "wire/methods.h"

enum { BUDGET = 64 * 1024 * 1024 };

static octet_arena *arena;
static octet_context *context;
static octet_workers *workers;
static struct octet_error err;
static struct octet_cancel cancel;
static const struct octet_server_facts facts = {.lanes = 1};

static void setup(void)
{
    arena = octet_arena_create(BUDGET);
    cancel.cancelled = false;
    cancel.deadline_ns = 0;
    memset(&err, 0, sizeof err);
    ck_assert_int_eq(octet_context_create(NULL, &context, &err), OCTET_OK);
    ck_assert_int_eq(octet_workers_create("scalar", 1, &workers, &err), OCTET_OK);
}

static void teardown(void)
{
    octet_workers_destroy(workers);
    octet_context_destroy(context);
    octet_arena_destroy(arena);
}

static enum octet_status run(const char *name, const ProtobufCMessage *request, void *out)
{
    const struct octet_call call = {
        .context = context, .arena = arena, .cancel = &cancel, .facts = &facts, .workers = workers};
    const struct octet_method *method = octet_method_find(name);
    ProtobufCMessage *response = NULL;

    memset(&err, 0, sizeof err);
    enum octet_status status = method->run(&call, request, &response, &err);
    ck_assert((status == OCTET_OK) == (response != NULL));
    if (status != OCTET_OK)
        ck_assert_int_eq(err.status, status);
    if (out)
        *(ProtobufCMessage **)out = response;
    return status;
}

static void expect(const char *name, const ProtobufCMessage *request, enum octet_status status,
                   const char *field)
{
    enum octet_status got = run(name, request, NULL);

    ck_assert_msg(got == status && strcmp(err.field, field) == 0, "%d, field '%s': %s", got,
                  err.field, err.text);
    ck_assert_str_ne(err.text, "");
}

/* A tensor and the operand that it is, on the stack. */
struct side {
    Octet__V1__Tensor tensor, scale;
    Octet__V1__QuantizedTensor quantized;
    Octet__V1__Operand operand;
    int64_t shape[4], scale_shape[4];
};

static void fill_tensor(Octet__V1__Tensor *t, int64_t *shape, Octet__V1__DataType dtype,
                        size_t rank, const int64_t *dims, void *data)
{
    struct octet_array array = {.dtype = (enum octet_dtype)dtype, .rank = (int32_t)rank};

    octet__v1__tensor__init(t);
    if (rank) {
        memcpy(shape, dims, rank * sizeof *shape);
        memcpy(array.dim, dims, rank * sizeof *shape);
    }
    t->dtype = dtype;
    t->shape = shape;
    t->n_shape = rank;
    t->data = (ProtobufCBinaryData){(size_t)octet_array_bytes(&array), data};
}

#define F32 OCTET__V1__DATA_TYPE__DATA_TYPE_F32
#define E4M3 OCTET__V1__DATA_TYPE__DATA_TYPE_F8_E4M3FN
#define SHAPE(...)                                                                                 \
    sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (const int64_t[])                    \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

static Octet__V1__Operand *plain(struct side *s, size_t rank, const int64_t *shape, float *data)
{
    fill_tensor(&s->tensor, s->shape, F32, rank, shape, data);
    octet__v1__operand__init(&s->operand);
    s->operand.kind_case = OCTET__V1__OPERAND__KIND_TENSOR;
    s->operand.tensor = &s->tensor;
    return &s->operand;
}

static struct octet_array array_of(const Octet__V1__Tensor *t)
{
    struct octet_array array = {
        .dtype = (enum octet_dtype)t->dtype, .rank = (int32_t)t->n_shape, .data = t->data.data};

    memcpy(array.dim, t->shape, t->n_shape * sizeof *t->shape);
    return array;
}

static void expect_same(const Octet__V1__Tensor *got, const struct octet_array *wanted)
{
    ck_assert_ptr_nonnull(got);
    ck_assert_int_eq(got->dtype, (int)wanted->dtype);
    ck_assert_uint_eq(got->n_shape, (size_t)wanted->rank);
    for (size_t i = 0; i < got->n_shape; i++)
        ck_assert_int_eq(got->shape[i], wanted->dim[i]);
    ck_assert_uint_eq(got->data.len, (size_t)octet_array_bytes(wanted));
    ck_assert_mem_eq(got->data.data, wanted->data, got->data.len);
}

static void fill(float *out, size_t count, unsigned seed)
{
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        out[i] = (float)(int)(seed >> 16) / 65536.0f - 0.5f;
    }
}

/* A batched product, b = 2, m = 3, k = 5, n = 4, with a cotangent, under the second of two rules.
 */
struct dot {
    float a[2 * 3 * 5], b[2 * 5 * 4], g[2 * 3 * 4];
    struct side lhs, rhs, cotangent;
    int32_t axes[4];
    Octet__V1__DotDimensionNumbers dims;
    Octet__V1__QuantizationRule rules[2], *list[2];
    Octet__V1__DotGeneralRequest request;
};

static Octet__V1__DotGeneralRequest *dot_of(struct dot *d)
{
    fill(d->a, 30, 1);
    fill(d->b, 40, 2);
    fill(d->g, 24, 3);
    octet__v1__dot_general_request__init(&d->request);
    d->request.lhs = plain(&d->lhs, SHAPE(2, 3, 5), d->a);
    d->request.rhs = plain(&d->rhs, SHAPE(2, 5, 4), d->b);
    plain(&d->cotangent, SHAPE(2, 3, 4), d->g);
    d->request.cotangent = &d->cotangent.tensor;
    octet__v1__dot_dimension_numbers__init(&d->dims);
    memcpy(d->axes, (const int32_t[]){2, 1, 0, 0}, sizeof d->axes);
    d->dims.lhs_contracting = &d->axes[0];
    d->dims.rhs_contracting = &d->axes[1];
    d->dims.lhs_batch = &d->axes[2];
    d->dims.rhs_batch = &d->axes[3];
    d->dims.n_lhs_contracting = d->dims.n_rhs_contracting = 1;
    d->dims.n_lhs_batch = d->dims.n_rhs_batch = 1;
    d->request.dimension_numbers = &d->dims;
    for (int i = 0; i < 2; i++) {
        octet__v1__quantization_rule__init(&d->rules[i]);
        d->list[i] = &d->rules[i];
    }
    d->rules[0].module_path = (char *)"encoder/.*";
    d->rules[0].weight_qtype = (char *)"int8";
    d->rules[1].module_path = (char *)"decoder/.*";
    d->rules[1].weight_qtype = d->rules[1].act_qtype = (char *)"float8_e4m3fn";
    d->rules[1].bwd_qtype = (char *)"float8_e5m2";
    d->request.rules = d->list;
    d->request.n_rules = 2;
    d->request.module_path = (char *)"decoder/layers/mlp/wi_0";
    return &d->request;
}

START_TEST(a_dot_general_is_the_library_s)
{
    struct dot d;
    Octet__V1__DotGeneralResponse *response;
    const struct octet_compute compute = {arena, workers, NULL};
    const struct octet_dot_dims dims = {
        .contracting_count = 1, .batch_count = 1, .lhs_contracting = {2}, .rhs_contracting = {1}};
    const struct octet_rule rule = {
        .weight_qtype = "float8_e4m3fn", .act_qtype = "float8_e4m3fn", .bwd_qtype = "float8_e5m2"};
    octet_rules *rules;
    struct octet_product product;

    dot_of(&d);
    d.request.trace_level = OCTET__V1__TRACE_LEVEL__TRACE_LEVEL_NUMERICS;
    ck_assert_int_eq(run("DotGeneral", &d.request.base, &response), OCTET_OK);
    const struct octet_operand lhs = {.array = array_of(&d.lhs.tensor)};
    const struct octet_operand rhs = {.array = array_of(&d.rhs.tensor)};
    const struct octet_array cotangent = array_of(&d.cotangent.tensor);
    ck_assert_int_eq(octet_rules_create(context, &rule, 1, &rules, &err), OCTET_OK);
    const struct octet_product_options options = {
        .rule = octet_rules_get(rules, 0), .cotangent = &cotangent, .numerics = true};
    ck_assert_int_eq(octet_dot_general(&compute, &lhs, &rhs, &dims, &options, &product, &err),
                     OCTET_OK);
    expect_same(response->out, &product.out);
    expect_same(response->lhs_grad, &product.lhs_grad);
    expect_same(response->rhs_grad, &product.rhs_grad);

    const Octet__V1__Trace *trace = response->trace;
    ck_assert_uint_eq(trace->n_interceptions, 1);
    const Octet__V1__Interception *line = trace->interceptions[0];
    ck_assert_str_eq(line->module, "decoder/layers/mlp/wi_0");
    ck_assert_str_eq(line->op, "dot_general0");
    ck_assert_str_eq(line->kind, "dot_general");
    ck_assert_int_eq(line->rule, 1);
    ck_assert_int_eq(line->flops, 2 * 2 * 3 * 5 * 4);
    ck_assert_int_eq(line->weight_bytes, sizeof d.b);
    ck_assert_str_eq(line->backend, "cpu");
    ck_assert_str_eq(line->accumulation, "EXACT_ORDER");
    ck_assert_int_eq(line->count, 1);
    ck_assert(line->logged && line->looked_up);
    ck_assert_uint_eq(line->n_out_shape, 3);
    ck_assert_int_eq(line->out_shape[2], 4);
    ck_assert_str_eq(line->digest, product.digest);
    ck_assert_uint_eq(strlen(line->digest), 32);
    ck_assert(line->lhs->is_quantized && line->rhs->is_quantized && line->cotangent->is_quantized);
    ck_assert(line->lhs->amax == product.lhs.amax);
    ck_assert(line->rhs->amax == product.rhs.amax && line->lhs->amax != line->rhs->amax);
    ck_assert(line->cotangent->sqnr_db == product.cotangent.sqnr_db);
    ck_assert_uint_eq(trace->n_rules, 2);
    ck_assert_uint_eq(trace->n_unused_rules, 1);
    ck_assert_int_eq(trace->unused_rules[0], 0);
    ck_assert_int_eq(trace->coverage->flops_quantized, line->flops);
    octet_rules_unref(rules);
}
END_TEST

START_TEST(the_trace_is_as_detailed_as_asked)
{
    struct dot d;
    Octet__V1__DotGeneralResponse *response;

    dot_of(&d);
    ck_assert_int_eq(run("DotGeneral", &d.request.base, &response), OCTET_OK);
    ck_assert_ptr_null(response->trace);
    d.request.trace_level = OCTET__V1__TRACE_LEVEL__TRACE_LEVEL_LINES;
    d.request.cotangent = NULL;
    ck_assert_int_eq(run("DotGeneral", &d.request.base, &response), OCTET_OK);
    ck_assert_ptr_null(response->lhs_grad);
    ck_assert_ptr_null(response->rhs_grad);
    ck_assert_ptr_null(response->trace->interceptions[0]->lhs);
    ck_assert_str_eq(response->trace->interceptions[0]->digest, "");
    /* No rule takes it; and there are no rules. */
    d.request.module_path = (char *)"";
    ck_assert_int_eq(run("DotGeneral", &d.request.base, &response), OCTET_OK);
    ck_assert_int_eq(response->trace->interceptions[0]->rule, -1);
    ck_assert_int_eq(response->trace->coverage->flops_quantized, 0);
    ck_assert_uint_eq(response->trace->n_unused_rules, 2);
    d.request.n_rules = 0;
    ck_assert_int_eq(run("DotGeneral", &d.request.base, &response), OCTET_OK);
    ck_assert(!response->trace->interceptions[0]->logged);
    ck_assert_uint_eq(response->trace->n_rules, 0);
    /* FAST is accepted; what ran is said. */
    d.request.accumulation = OCTET__V1__ACCUMULATION__ACCUMULATION_FAST;
    ck_assert_int_eq(run("DotGeneral", &d.request.base, &response), OCTET_OK);
    ck_assert_str_eq(response->trace->interceptions[0]->accumulation, "EXACT_ORDER");
}
END_TEST

START_TEST(dot_general_s_errors_are_in_the_request_s_words)
{
    const char *const name = "DotGeneral";
    struct dot d;
    ProtobufCMessage *const request = &d.request.base;
    int32_t many[9] = {0};

#define EXPECT(status, field) expect(name, request, OCTET_##status, field), dot_of(&d)
    dot_of(&d);
    d.request.lhs = NULL;
    EXPECT(INVALID_ARGUMENT, "lhs");
    d.rhs.tensor.data.len--;
    EXPECT(INVALID_ARGUMENT, "rhs.tensor.data");
    d.rhs.shape[1] = 4;
    d.rhs.shape[2] = 5;
    EXPECT(INVALID_ARGUMENT, "rhs.shape");
    d.cotangent.shape[1] = 4;
    d.cotangent.shape[2] = 3;
    EXPECT(INVALID_ARGUMENT, "cotangent.shape");
    d.cotangent.tensor.dtype = OCTET__V1__DATA_TYPE__DATA_TYPE_S32;
    EXPECT(INVALID_ARGUMENT, "cotangent.dtype");
    d.lhs.tensor.dtype = OCTET__V1__DATA_TYPE__DATA_TYPE_S32;
    EXPECT(INVALID_ARGUMENT, "lhs.dtype");
    d.rhs.tensor.dtype = E4M3; /* codes without a scale */
    d.rhs.tensor.data.len = 40;
    EXPECT(INVALID_ARGUMENT, "rhs.dtype");
    d.request.out_dtype = E4M3;
    EXPECT(INVALID_ARGUMENT, "out_dtype");
    d.request.dimension_numbers = NULL;
    EXPECT(INVALID_ARGUMENT, "dimension_numbers");
    d.dims.n_rhs_contracting = 0;
    EXPECT(INVALID_ARGUMENT, "dimension_numbers.rhs_contracting");
    d.dims.n_lhs_batch = 0;
    EXPECT(INVALID_ARGUMENT, "dimension_numbers.rhs_batch");
    d.dims.lhs_contracting = d.dims.rhs_contracting = many;
    d.dims.n_lhs_contracting = d.dims.n_rhs_contracting = 9;
    EXPECT(INVALID_ARGUMENT, "dimension_numbers.lhs_contracting");
    d.axes[0] = 3;
    EXPECT(INVALID_ARGUMENT, "dimension_numbers.lhs_contracting[0]");
    d.axes[1] = -4;
    EXPECT(INVALID_ARGUMENT, "dimension_numbers.rhs_contracting[0]");
    d.rules[0].act_qtype = (char *)"float7";
    EXPECT(INVALID_ARGUMENT, "rules[0].act_qtype");
    d.rules[1].weight_calibration_method = (char *)"medianmax";
    EXPECT(INVALID_ARGUMENT, "rules[1].weight_calibration_method");
    d.rules[1].module_path = (char *)"(";
    EXPECT(INVALID_ARGUMENT, "rules[1].module_path");
    d.rules[1].tile_size = (char *)"2"; /* of 5 */
    EXPECT(INVALID_ARGUMENT, "rules[1].tile_size");
#undef EXPECT
}
END_TEST

START_TEST(sizes_of_nothing_and_of_too_much)
{
    struct dot d;
    Octet__V1__DotGeneralResponse *response;
    float one = 2;

    for (int axis = 0; axis < 4; axis++) { /* b, m, k, n = 0 */
        int64_t s[4] = {2, 3, 5, 4};
        s[axis] = 0;
        dot_of(&d);
        d.request.lhs = plain(&d.lhs, SHAPE(s[0], s[1], s[2]), d.a);
        d.request.rhs = plain(&d.rhs, SHAPE(s[0], s[2], s[3]), d.b);
        plain(&d.cotangent, SHAPE(s[0], s[1], s[3]), d.g);
        enum octet_status status = run("DotGeneral", &d.request.base, &response);
        ck_assert_msg(status == OCTET_OK, "axis %d: %s: %s", axis, err.field, err.text);
        for (size_t i = 0; i < response->out->data.len; i++)
            ck_assert_uint_eq(response->out->data.data[i], 0);
    }
    /* Two numbers. */
    dot_of(&d);
    d.request.lhs = plain(&d.lhs, 0, NULL, &one);
    d.request.rhs = plain(&d.rhs, 0, NULL, &one);
    octet__v1__dot_dimension_numbers__init(&d.dims);
    d.request.cotangent = NULL;
    d.request.n_rules = 0;
    ck_assert_int_eq(run("DotGeneral", &d.request.base, &response), OCTET_OK);
    ck_assert_uint_eq(response->out->n_shape, 0);
    ck_assert(*(float *)(void *)response->out->data.data == 4);
    /* Small inputs, a result of 2^80 elements, and one that is only too large. */
    dot_of(&d);
    octet__v1__dot_dimension_numbers__init(&d.dims);
    d.request.cotangent = NULL;
    d.request.lhs = plain(&d.lhs, SHAPE(0, 1LL << 40), d.a);
    d.request.rhs = plain(&d.rhs, SHAPE(0, 1LL << 40), d.b);
    d.request.n_rules = 0;
    enum octet_status status = run("DotGeneral", &d.request.base, &response);
    ck_assert_msg(status == OCTET_OK || status == OCTET_INVALID_ARGUMENT ||
                      status == OCTET_RESOURCE_EXHAUSTED,
                  "%d", status);
    float *large = octet_arena_array(arena, 8192, sizeof *large);
    d.request.lhs = plain(&d.lhs, SHAPE(8192), large);
    d.request.rhs = plain(&d.rhs, SHAPE(8192), large);
    expect("DotGeneral", &d.request.base, OCTET_RESOURCE_EXHAUSTED, "");
}
END_TEST

/* m = 6, k = 4, n = 3, g = 3. */
struct grouped {
    float a[24], b[36], g[18];
    int32_t sizes[3];
    struct side lhs, rhs, group_sizes, cotangent;
    Octet__V1__QuantizationRule rule, *list[1];
    Octet__V1__RaggedDotRequest request;
};

static Octet__V1__RaggedDotRequest *grouped_of(struct grouped *d)
{
    fill(d->a, 24, 1);
    fill(d->b, 36, 2);
    fill(d->g, 18, 3);
    memcpy(d->sizes, (const int32_t[]){2, 0, 3}, sizeof d->sizes);
    octet__v1__ragged_dot_request__init(&d->request);
    d->request.lhs = plain(&d->lhs, SHAPE(6, 4), d->a);
    d->request.rhs = plain(&d->rhs, SHAPE(3, 4, 3), d->b);
    fill_tensor(&d->group_sizes.tensor, d->group_sizes.shape, OCTET__V1__DATA_TYPE__DATA_TYPE_S32,
                SHAPE(3), d->sizes);
    d->request.group_sizes = &d->group_sizes.tensor;
    plain(&d->cotangent, SHAPE(6, 3), d->g);
    d->request.cotangent = &d->cotangent.tensor;
    octet__v1__quantization_rule__init(&d->rule);
    d->rule.weight_qtype = d->rule.act_qtype = d->rule.bwd_qtype = (char *)"float8_e4m3fn";
    d->list[0] = &d->rule;
    d->request.rules = d->list;
    d->request.n_rules = 1;
    d->request.module_path = (char *)"moe";
    return &d->request;
}

START_TEST(a_grouped_matmul_is_the_library_s)
{
    static const char *const names[] = {"", "gmm", "ragged_dot"};
    const struct octet_compute compute = {arena, workers, NULL};
    const struct octet_rule rule = {.weight_qtype = "float8_e4m3fn",
                                    .act_qtype = "float8_e4m3fn",
                                    .bwd_qtype = "float8_e4m3fn"};
    struct grouped d;
    octet_rules *rules;

    ck_assert_int_eq(octet_rules_create(context, &rule, 1, &rules, &err), OCTET_OK);
    for (int i = 0; i < 3; i++) {
        Octet__V1__RaggedDotResponse *response;
        struct octet_product product;
        grouped_of(&d);
        d.request.op_name = (char *)(uintptr_t)names[i];
        d.request.trace_level = OCTET__V1__TRACE_LEVEL__TRACE_LEVEL_LINES;
        enum octet_status status = run("RaggedDot", &d.request.base, &response);
        ck_assert_msg(status == OCTET_OK, "%s: %s", err.field, err.text);
        const struct octet_operand lhs = {.array = array_of(&d.lhs.tensor)};
        const struct octet_operand rhs = {.array = array_of(&d.rhs.tensor)};
        const struct octet_array sizes = array_of(&d.group_sizes.tensor);
        const struct octet_array cotangent = array_of(&d.cotangent.tensor);
        const struct octet_product_options options = {.rule = octet_rules_get(rules, 0),
                                                      .cotangent = &cotangent};
        ck_assert_int_eq(octet_ragged_dot(&compute, &lhs, &rhs, &sizes, false,
                                          i == 2 ? OCTET_RAGGED_DOT : OCTET_GMM, &options, &product,
                                          &err),
                         OCTET_OK);
        expect_same(response->out, &product.out);
        expect_same(response->lhs_grad, &product.lhs_grad);
        expect_same(response->rhs_grad, &product.rhs_grad);
        const Octet__V1__Interception *line = response->trace->interceptions[0];
        ck_assert_str_eq(line->op, i == 2 ? "ragged_dot0" : "gmm");
        ck_assert_str_eq(line->kind, i == 2 ? "ragged_dot" : "gmm");
        ck_assert_int_eq(line->logged, i == 2);
        ck_assert(line->looked_up);
        ck_assert_int_eq(line->flops, 2 * 6 * 4 * 3);
        /* Rows past the groups, and the empty group's gradient, are zero. */
        for (size_t k = 5 * 3 * 4; k < response->out->data.len; k++)
            ck_assert_uint_eq(response->out->data.data[k], 0);
        for (size_t k = 12 * 4; k < 24 * 4; k++)
            ck_assert_uint_eq(response->rhs_grad->data.data[k], 0);
    }
    octet_rules_unref(rules);
}
END_TEST

START_TEST(a_grouped_matmul_s_errors_are_in_the_request_s_words)
{
    struct grouped d;
    ProtobufCMessage *const request = &d.request.base;

#define EXPECT(status, field) expect("RaggedDot", request, OCTET_##status, field), grouped_of(&d)
    grouped_of(&d);
    d.sizes[1] = -1;
    EXPECT(INVALID_ARGUMENT, "group_sizes[1]");
    d.sizes[1] = 2;
    EXPECT(INVALID_ARGUMENT, "group_sizes");
    d.sizes[0] = d.sizes[1] = d.sizes[2] = INT32_MAX;
    EXPECT(INVALID_ARGUMENT, "group_sizes");
    d.group_sizes.shape[0] = 2;
    d.group_sizes.tensor.data.len = 8;
    EXPECT(INVALID_ARGUMENT, "group_sizes.shape");
    d.group_sizes.tensor.dtype = F32;
    EXPECT(INVALID_ARGUMENT, "group_sizes.dtype");
    d.group_sizes.tensor.data.len = 11;
    EXPECT(INVALID_ARGUMENT, "group_sizes.data");
    d.request.group_sizes = NULL;
    EXPECT(INVALID_ARGUMENT, "group_sizes");
    d.request.transpose_rhs = true;
    EXPECT(INVALID_ARGUMENT, "rhs.shape");
    d.lhs.tensor.n_shape = 1;
    d.lhs.shape[0] = 24;
    EXPECT(INVALID_ARGUMENT, "lhs.shape");
    d.cotangent.shape[0] = 3;
    d.cotangent.shape[1] = 6;
    EXPECT(INVALID_ARGUMENT, "cotangent.shape");
    d.request.op_name = (char *)"dot_general";
    EXPECT(INVALID_ARGUMENT, "op_name");
#undef EXPECT
}
END_TEST

START_TEST(quantize_and_dequantize_are_the_library_s)
{
    float a[12] = {0, 1, -2, 3, 448, -0.5f, 0.001f, 7, 8, 9, 10, 11};
    struct side array;
    int32_t axes[] = {0};
    Octet__V1__QuantizeRequest request = OCTET__V1__QUANTIZE_REQUEST__INIT;
    Octet__V1__QuantizeResponse *response;
    Octet__V1__DequantizeRequest back = OCTET__V1__DEQUANTIZE_REQUEST__INIT;
    Octet__V1__DequantizeResponse *restored;
    const struct octet_compute compute = {arena, workers, NULL};
    const struct octet_quantize_options options = {
        .qtype = "float8_e4m3fn", .channelwise_axes = axes, .channelwise_axis_count = 1};
    struct octet_quantized quantized;
    struct octet_array wanted;

    plain(&array, SHAPE(3, 4), a);
    request.array = &array.tensor;
    request.qtype = (char *)"float8_e4m3fn";
    request.channelwise_axes = axes;
    request.n_channelwise_axes = 1;
    ck_assert_int_eq(run("Quantize", &request.base, &response), OCTET_OK);
    const struct octet_array in = array_of(&array.tensor);
    ck_assert_int_eq(octet_quantize(&compute, &in, &options, &quantized, &err), OCTET_OK);
    expect_same(response->quantized->qvalue, &quantized.qvalue);
    expect_same(response->quantized->scale, &quantized.scale);
    ck_assert_ptr_null(response->quantized->zero_point);
    ck_assert_int_eq(response->quantized->scale->shape[0], 3);

    back.quantized = response->quantized;
    ck_assert_int_eq(run("Dequantize", &back.base, &restored), OCTET_OK);
    ck_assert_int_eq(octet_dequantize(&compute, &quantized, OCTET_DTYPE_UNSPECIFIED, &wanted, &err),
                     OCTET_OK);
    expect_same(restored->array, &wanted);
}
END_TEST

START_TEST(quantize_s_errors_are_in_the_request_s_words)
{
    float a[12] = {0};
    uint8_t codes[12] = {0};
    int32_t axes[] = {2};
    struct side array, q;
    Octet__V1__QuantizeRequest request;
    Octet__V1__QuantizeRequest__TiledAxesEntry tile, *tiles[] = {&tile};
    Octet__V1__DequantizeRequest back = OCTET__V1__DEQUANTIZE_REQUEST__INIT;

#define RESET()                                                                                    \
    octet__v1__quantize_request__init(&request), plain(&array, SHAPE(3, 4), a),                    \
        request.array = &array.tensor, request.qtype = (char *)"int8"
#define EXPECT(field) expect("Quantize", &request.base, OCTET_INVALID_ARGUMENT, field), RESET()
    RESET();
    request.array = NULL;
    EXPECT("array");
    array.tensor.dtype = OCTET__V1__DATA_TYPE__DATA_TYPE_S32;
    EXPECT("array.dtype");
    request.qtype = (char *)"int9";
    EXPECT("qtype");
    request.qtype = (char *)"";
    EXPECT("qtype");
    request.calibration_method = (char *)"minmax,";
    EXPECT("calibration_method");
    request.scale_dtype = E4M3;
    EXPECT("scale_dtype");
    request.channelwise_axes = axes;
    request.n_channelwise_axes = 1;
    EXPECT("channelwise_axes[0]");
    octet__v1__quantize_request__tiled_axes_entry__init(&tile);
    tile.key = 1;
    tile.value = (char *)"3";
    request.tiled_axes = tiles;
    request.n_tiled_axes = 1;
    ck_assert_int_eq(run("Quantize", &request.base, NULL), OCTET_INVALID_ARGUMENT);
    ck_assert_int_eq(strncmp(err.field, "tiled_axes", 10), 0);
#undef EXPECT
#undef RESET
    expect("Dequantize", &back.base, OCTET_INVALID_ARGUMENT, "quantized");
    fill_tensor(&q.tensor, q.shape, E4M3, SHAPE(3, 4), codes);
    fill_tensor(&q.scale, q.scale_shape, F32, SHAPE(2, 1), a);
    octet__v1__quantized_tensor__init(&q.quantized);
    q.quantized.qvalue = &q.tensor;
    q.quantized.scale = &q.scale;
    back.quantized = &q.quantized;
    expect("Dequantize", &back.base, OCTET_INVALID_ARGUMENT, "quantized.scale.shape");
    fill_tensor(&q.scale, q.scale_shape, F32, SHAPE(1), a);
    expect("Dequantize", &back.base, OCTET_INVALID_ARGUMENT, "quantized.scale.shape");
    fill_tensor(&q.scale, q.scale_shape, OCTET__V1__DATA_TYPE__DATA_TYPE_S32, SHAPE(1, 1), a);
    expect("Dequantize", &back.base, OCTET_INVALID_ARGUMENT, "quantized.scale.dtype");
    fill_tensor(&q.scale, q.scale_shape, F32, SHAPE(1, 1), a);
    q.tensor.dtype = OCTET__V1__DATA_TYPE__DATA_TYPE_U8;
    expect("Dequantize", &back.base, OCTET_INVALID_ARGUMENT, "quantized.qvalue.dtype");
    q.tensor.dtype = E4M3;
    back.dtype = OCTET__V1__DATA_TYPE__DATA_TYPE_S8;
    expect("Dequantize", &back.base, OCTET_INVALID_ARGUMENT, "dtype");
}
END_TEST

/* NaN and Inf are arithmetic, not errors; they stay in their rows and are counted. */
START_TEST(what_is_not_finite_is_counted)
{
    struct dot d;
    Octet__V1__DotGeneralResponse *response;

    dot_of(&d);
    d.a[0] = NAN;
    d.a[16] = INFINITY;
    d.request.cotangent = NULL;
    d.request.trace_level = OCTET__V1__TRACE_LEVEL__TRACE_LEVEL_NUMERICS;
    ck_assert_int_eq(run("DotGeneral", &d.request.base, &response), OCTET_OK);
    ck_assert_int_eq(response->trace->interceptions[0]->lhs->nonfinite, 2);
    ck_assert_int_eq(response->trace->interceptions[0]->rhs->nonfinite, 0);
    const float *out = (const float *)(void *)response->out->data.data;
    for (int i = 4; i < 12; i++)
        ck_assert(isfinite(out[i]));
    for (int i = 0; i < 4; i++)
        ck_assert(isnan(out[i]));
}
END_TEST

START_TEST(products_stop_and_need_workers)
{
    struct dot d;
    const struct octet_call call = {
        .context = context, .arena = arena, .cancel = &cancel, .facts = &facts};
    ProtobufCMessage *response;

    dot_of(&d);
    cancel.cancelled = true;
    expect("DotGeneral", &d.request.base, OCTET_CANCELLED, "");
    cancel.cancelled = false;
    cancel.deadline_ns = 1;
    expect("DotGeneral", &d.request.base, OCTET_DEADLINE_EXCEEDED, "");
    cancel.deadline_ns = 0;
    ck_assert_int_eq(octet_method_find("DotGeneral")->run(&call, &d.request.base, &response, &err),
                     OCTET_INTERNAL);
}
END_TEST

/* Every allocation of the arena fails once. */
static void torture(const char *method, const ProtobufCMessage *request)
{
    bool done = false;

    for (uint64_t n = 1; !done; n++) {
        octet_arena_reset(arena);
        octet_arena_fail_at(arena, n);
        enum octet_status status = run(method, request, NULL);
        ck_assert_msg(status == OCTET_OK || status == OCTET_RESOURCE_EXHAUSTED, "%s at %llu: %s",
                      method, (unsigned long long)n, err.text);
        done = status == OCTET_OK && octet_arena_alloc(arena, 1) != NULL;
        octet_arena_fail_at(arena, 0);
        ck_assert_uint_lt(n, 10000);
    }
}

START_TEST(memory_that_runs_out_is_told)
{
    struct dot d;
    struct grouped g;

    dot_of(&d);
    d.request.trace_level = OCTET__V1__TRACE_LEVEL__TRACE_LEVEL_NUMERICS;
    torture("DotGeneral", &d.request.base);
    grouped_of(&g);
    g.request.trace_level = OCTET__V1__TRACE_LEVEL__TRACE_LEVEL_NUMERICS;
    torture("RaggedDot", &g.request.base);
}
END_TEST

TCase *products_cases(void)
{
    TCase *cases = tcase_create("products");

    tcase_set_timeout(cases, 120);
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, a_dot_general_is_the_library_s);
    tcase_add_test(cases, the_trace_is_as_detailed_as_asked);
    tcase_add_test(cases, dot_general_s_errors_are_in_the_request_s_words);
    tcase_add_test(cases, sizes_of_nothing_and_of_too_much);
    tcase_add_test(cases, a_grouped_matmul_is_the_library_s);
    tcase_add_test(cases, a_grouped_matmul_s_errors_are_in_the_request_s_words);
    tcase_add_test(cases, quantize_and_dequantize_are_the_library_s);
    tcase_add_test(cases, quantize_s_errors_are_in_the_request_s_words);
    tcase_add_test(cases, what_is_not_finite_is_counted);
    tcase_add_test(cases, products_stop_and_need_workers);
    tcase_add_test(cases, memory_that_runs_out_is_told);
    return cases;
}
