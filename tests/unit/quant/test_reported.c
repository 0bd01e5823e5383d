/* Faults that users of other programs reported, each tried here as its whole kind. The names behind
 * the tests are the reports' (project and number). What could break: a scale of zero or infinity, a
 * cast in place of a saturation, an axis mixed up, a group that is empty or too large. */
#include <math.h>
#include <string.h>

#include "fixture.h"
#include "kernels/kernels.h"
#include "reference.h"

static const char *const float_types[] = {
    "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn", "mxfp8", "mxfp4", "nvfp4", "int8",
    "int4",          "int2",        "int3",          "int5",  "int6",  "int7"};
enum { TYPES = sizeof float_types / sizeof *float_types };

static const uint8_t *codes_of(const struct octet_quantized *q)
{
    return q->qvalue.data;
}

static struct octet_quantized quantize(struct octet_array array, const char *qtype,
                                       const char *method, int32_t axis)
{
    struct octet_quantize_options options = {.qtype = qtype,
                                             .calibration_method = method,
                                             .channelwise_axes = &axis,
                                             .channelwise_axis_count = axis >= 0};
    struct octet_quantized out;

    bench_ok(octet_quantize(&bench.compute, &array, &options, &out, &bench.err));
    return out;
}

static void expect_codes(const struct octet_quantized *q, size_t count, const uint8_t *expected)
{
    ck_assert_int_eq(octet_array_elements(&q->qvalue), (int64_t)count);
    ck_assert_mem_eq(q->qvalue.data, expected, count);
}
#define EXPECT_CODES(q, ...)                                                                       \
    expect_codes((q), sizeof((const uint8_t[]){__VA_ARGS__}), (const uint8_t[]){__VA_ARGS__})

/* ---- THUDM/slime 2256, huggingface/kernels-community 681, pytorch/ao 4713: zeros give scale 0,
 * then NaN ---- */

START_TEST(zeros_stay_zeros)
{
    struct octet_array x = array_zero(OCTET_DTYPE_BF16, 2, DIMS(256, 256)), back;
    struct octet_quantize_options blocks = {
        .qtype = "float8_e4m3fn",
        .tiled_axes = (const struct octet_tiled_axis[]){{0, "128"}, {1, "128"}},
        .tiled_axis_count = 2};
    struct octet_quantized q;

    bench_use((size_t)_i);
    ((uint16_t *)x.data)[0] = 0x3f80; /* 1 */
    bench_ok(octet_quantize(&bench.compute, &x, &blocks, &q, &bench.err));
    ck_assert_int_eq(octet_array_elements(&q.scale), 4);
    for (int i = 0; i < 256 * 256; i++)
        ck_assert_uint_ne(codes_of(&q)[i] & 0x7f, 0x7f);
    bench_ok(octet_dequantize(&bench.compute, &q, OCTET_DTYPE_UNSPECIFIED, &back, &bench.err));
    ck_assert(array_same(&back, &x));

    q = quantize(array_zero(OCTET_DTYPE_F32, 2, DIMS(1, 3)), "float8_e4m3fn", NULL, 0);
    EXPECT_CODES(&q, 0, 0, 0);
    ck_assert_float_eq(array_at(&q.scale, 0), 1);
}
END_TEST

START_TEST(zeros_stay_zeros_in_every_type)
{
    static const char *const methods[] = {"absmax", "absmax,0.5", "rms,3", "minmax"};

    for (int t = 0; t < TYPES; t++)
        for (int m = 0; m < 4; m++) {
            bool asymmetric = m == 3;
            if (asymmetric && strcmp(float_types[t], "int8") && strcmp(float_types[t], "int4"))
                continue;
            struct octet_array x = array_zero(t % 2 ? OCTET_DTYPE_BF16 : OCTET_DTYPE_F32, 2,
                                              DIMS(3, 64)),
                               back;
            struct octet_quantize_options options = {
                .qtype = float_types[t],
                .calibration_method = methods[m],
                .tiled_axes =
                    &(struct octet_tiled_axis){1, strcmp(float_types[t], "nvfp4") ? "32" : "16"},
                .tiled_axis_count = 1};
            struct octet_quantized q;
            bench_ok(octet_quantize(&bench.compute, &x, &options, &q, &bench.err));
            for (int64_t i = 0; i < octet_array_elements(&q.scale); i++)
                ck_assert_float_eq(array_at(&q.scale, i), 1);
            for (int i = 0; i < 3 * 64 && !asymmetric; i++)
                ck_assert_uint_eq(codes_of(&q)[i], 0);
            bench_ok(
                octet_dequantize(&bench.compute, &q, OCTET_DTYPE_UNSPECIFIED, &back, &bench.err));
            ck_assert(array_same(&back, &x));
        }
}
END_TEST

/* The same in products: a row, a column, an operand, the gradient all zero. */
START_TEST(zeros_stay_zeros_in_products)
{
    const struct octet_rule *rule = bench_rule(&(struct octet_rule){
        .weight_qtype = "float8_e4m3fn", .act_qtype = "float8_e4m3fn", .bwd_qtype = "float8_e5m2"});
    struct octet_array x = array_of(OCTET_DTYPE_BF16, 2, DIMS(2, 2), FLOATS(0, 0, 1, 2));
    struct octet_array w = array_of(OCTET_DTYPE_BF16, 2, DIMS(2, 2), FLOATS(2, 0, 4, 0));
    struct octet_array g = array_zero(OCTET_DTYPE_BF16, 2, DIMS(2, 2));
    struct octet_operand l = plain(x), r = plain(w);
    struct octet_product_options options = {.rule = rule, .cotangent = &g};
    struct octet_product out;

    bench_ok(octet_dot_general(&bench.compute, &l, &r, &matmul_dims, &options, &out, &bench.err));
    ck_assert_float_eq(array_at(&out.out, 0), 0);
    ck_assert_float_eq(array_at(&out.out, 1), 0);
    ck_assert_float_eq(array_at(&out.out, 2), 10);
    ck_assert_float_eq(array_at(&out.out, 3), 0);
    ck_assert(array_same(&out.lhs_grad, &g));
    ck_assert(array_same(&out.rhs_grad, &g));
}
END_TEST

/* ---- NVIDIA/TransformerEngine 786: a tiny maximum gives an infinite scale ---- */

START_TEST(tiny_rows_have_scale_one)
{
    struct octet_array x =
        array_of(OCTET_DTYPE_F32, 2, DIMS(2, 3), FLOATS(1e-20f, 2e-20f, 0, 1e-30f, 1e-38f, 0));

    bench_use((size_t)_i);
    struct octet_quantized q = quantize(x, "float8_e4m3fn", NULL, 0);
    EXPECT_CODES(&q, 0, 0, 0, 0, 0, 0);
    ck_assert_float_eq(array_at(&q.scale, 0), 1);
    ck_assert_float_eq(array_at(&q.scale, 1), 1);
}
END_TEST

/* Every power of two as a row's maximum: the scale is finite and above zero, no code is NaN. */
START_TEST(finite_rows_have_usable_scales)
{
    for (int t = 0; t < TYPES; t++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            struct octet_array x = array_zero(OCTET_DTYPE_F32, 2, DIMS(277, 32));
            bool nv = strcmp(float_types[t], "nvfp4") == 0;
            for (int i = 0; i < 277; i++)
                for (int k = 0; k < 32; k++)
                    ((float *)x.data)[i * 32 + k] = (float)ldexp(1, i - 149 - k % 5);
            if (bf16)
                x = array_of(OCTET_DTYPE_BF16, 2, DIMS(277, 32), x.data);
            struct octet_quantize_options options = {
                .qtype = float_types[t],
                .channelwise_axes = (const int32_t[]){0},
                .channelwise_axis_count = 1,
                .tiled_axes = &(struct octet_tiled_axis){1, nv ? "16" : "32"},
                .tiled_axis_count = 1};
            struct octet_quantized q;
            bench_ok(octet_quantize(&bench.compute, &x, &options, &q, &bench.err));
            for (int64_t i = 0; i < octet_array_elements(&q.scale); i++) {
                float s = array_at(&q.scale, i);
                ck_assert(isfinite(s));
                ck_assert(nv ? s >= 0 : s > 0); /* NVFP4's E4M3 scale may round to 0 */
            }
            for (int i = 0; i < 277 * 32; i++)
                ck_assert(isfinite(ref_decode(q.qvalue.dtype, codes_of(&q)[i])));
        }
}
END_TEST

/* ---- jax-ml/ml_dtypes 400, 260, 147: saturating and casting are two operations ---- */

START_TEST(quantizing_saturates)
{
    struct octet_array x =
        array_of(OCTET_DTYPE_F32, 1, DIMS(6), FLOATS(448, 464, 465, -1000, INFINITY, NAN));
    struct octet_array y =
        array_of(OCTET_DTYPE_F32, 1, DIMS(4), FLOATS(INFINITY, -INFINITY, 61440, -57344));

    bench_use((size_t)_i);
    struct octet_quantized q = quantize(x, "float8_e4m3fn", "fixed,-448,448", -1);
    EXPECT_CODES(&q, 0x7e, 0x7e, 0x7e, 0xfe, 0x7e, 0x7f);
    q = quantize(y, "float8_e5m2", "fixed,-57344,57344", -1);
    EXPECT_CODES(&q, 0x7b, 0xfb, 0x7b, 0xfb);
    q = quantize(y, "float4_e2m1fn", "fixed,-6,6", -1);
    EXPECT_CODES(&q, 0x7, 0xf, 0x7, 0xf);
    x = array_of(OCTET_DTYPE_BF16, 1, DIMS(6), FLOATS(448, 464, 466, -1000, INFINITY, NAN));
    q = quantize(x, "float8_e4m3fn", "fixed,-448,448", -1);
    EXPECT_CODES(&q, 0x7e, 0x7e, 0x7e, 0xfe, 0x7e, 0x7f);
    q = quantize(x, "int8", "fixed,-127.5,127.5", -1);
    EXPECT_CODES(&q, 127, 127, 127, 0x80, 127, 0);
}
END_TEST

START_TEST(casting_does_not_saturate)
{
    const float values[] = {464, 464.1f, 1000, -1000, INFINITY};
    const float larger[] = {57344, 61439, 61440, -1e6f, INFINITY};
    const struct oct_kernels *kernels = oct_kernels_find(
        octet_workers_kernels(bench.workers[(size_t)_i % bench.workers_count]), NULL);
    uint8_t codes[5];

    kernels->cast(OCTET_DTYPE_F8_E4M3FN, 5, values, codes);
    ck_assert_mem_eq(codes, ((const uint8_t[]){0x7e, 0x7f, 0x7f, 0xff, 0x7f}), 5);
    kernels->saturate(OCTET_DTYPE_F8_E4M3FN, 5, values, codes);
    ck_assert_mem_eq(codes, ((const uint8_t[]){0x7e, 0x7e, 0x7e, 0xfe, 0x7e}), 5);
    kernels->cast(OCTET_DTYPE_F8_E5M2, 5, larger, codes);
    ck_assert_mem_eq(codes, ((const uint8_t[]){0x7b, 0x7b, 0x7c, 0xfc, 0x7c}), 5);
    kernels->saturate(OCTET_DTYPE_F8_E5M2, 5, larger, codes);
    ck_assert_mem_eq(codes, ((const uint8_t[]){0x7b, 0x7b, 0x7b, 0xfb, 0x7b}), 5);
}
END_TEST

/* ---- tile-ai/tilelang-metax 140: the last binade taken for an overflow ---- */

START_TEST(the_last_binade_is_finite)
{
    struct octet_array x =
        array_of(OCTET_DTYPE_F32, 1, DIMS(7), FLOATS(256, 288, 320, 352, 384, 416, 448));

    bench_use((size_t)_i);
    struct octet_quantized q = quantize(x, "float8_e4m3fn", "fixed,-448,448", -1);
    EXPECT_CODES(&q, 0x78, 0x79, 0x7a, 0x7b, 0x7c, 0x7d, 0x7e);
}
END_TEST

/* Every finite code of every type comes back from its own number. */
START_TEST(every_code_survives)
{
    static const struct {
        const char *qtype, *method;
        enum octet_dtype dtype;
        int codes;
    } types[] = {{"float8_e4m3fn", "fixed,-448,448", OCTET_DTYPE_F8_E4M3FN, 256},
                 {"float8_e5m2", "fixed,-57344,57344", OCTET_DTYPE_F8_E5M2, 256},
                 {"float4_e2m1fn", "fixed,-6,6", OCTET_DTYPE_F4_E2M1FN, 16},
                 {"int8", "fixed,-127.5,127.5", OCTET_DTYPE_S8, 256},
                 {"int4", "fixed,-7.5,7.5", OCTET_DTYPE_S4, 16}};
    float values[256];

    bench_use((size_t)_i);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            enum octet_dtype dtype = bf16 ? OCTET_DTYPE_BF16 : OCTET_DTYPE_F32;
            for (int i = 0; i < types[t].codes; i++) {
                values[i] = ref_decode(types[t].dtype, (uint8_t)i);
                values[i] = isfinite(values[i]) ? values[i] : 0;
            }
            struct octet_array x = array_of(dtype, 1, DIMS(types[t].codes), values);
            struct octet_quantized q = quantize(x, types[t].qtype, types[t].method, -1);
            for (int i = 0; i < types[t].codes; i++)
                if (isfinite(ref_decode(types[t].dtype, (uint8_t)i))) {
                    int sign = types[t].dtype == OCTET_DTYPE_S4 && i & 8 ? 0xf0 : 0;
                    ck_assert_int_eq(codes_of(&q)[i], i | sign);
                }
        }
}
END_TEST

/* ---- triton-lang/triton 10745: FNUZ codes read as FN ---- */

START_TEST(fnuz_is_refused_by_name)
{
    static const char *const names[] = {"float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e4m3b11fnuz"};
    struct octet_array x = array_zero(OCTET_DTYPE_F32, 1, DIMS(3));
    octet_rules *rules;
    struct octet_quantized q;

    for (int i = 0; i < 3; i++) {
        struct octet_quantize_options options = {.qtype = names[i]};
        bench_refused(octet_quantize(&bench.compute, &x, &options, &q, &bench.err), "qtype",
                      names[i]);
        struct octet_rule rule = {.weight_qtype = names[i]};
        bench_refused(octet_rules_create(bench.context, &rule, 1, &rules, &bench.err),
                      "rules[0].weight_qtype", names[i]);
        ck_assert_int_eq(octet_dtype_find(names[i]), OCTET_DTYPE_UNSPECIFIED);
    }
}
END_TEST

START_TEST(fn_codes_mean_fn_numbers)
{
    struct octet_array codes = array_zero(OCTET_DTYPE_F8_E4M3FN, 1, DIMS(4)), back;
    struct octet_quantized q = {.qvalue = codes,
                                .scale = array_of(OCTET_DTYPE_F32, 1, DIMS(1), FLOATS(1))};

    bench_use((size_t)_i);
    memcpy(codes.data, ((const uint8_t[]){0x40, 0x80, 0x7f, 0xff}), 4);
    bench_ok(octet_dequantize(&bench.compute, &q, OCTET_DTYPE_UNSPECIFIED, &back, &bench.err));
    ck_assert_float_eq(array_at(&back, 0), 2);
    ck_assert(array_at(&back, 1) == 0 && signbit(array_at(&back, 1)));
    ck_assert(isnan(array_at(&back, 2)) && isnan(array_at(&back, 3)));
}
END_TEST

/* ---- vllm 50137, 43277; unslothai/unsloth 8953; flashinfer 4093: a scale on the wrong axis ----
 */

/* rhs and its transposed copy. */
static struct octet_array transposed(const struct octet_array *w)
{
    int64_t g = w->dim[0], k = w->dim[1], n = w->dim[2];
    struct octet_array t = array_zero(w->dtype, 3, DIMS(g, n, k));
    size_t bytes = octet_dtype_bytes(w->dtype);

    for (int64_t i = 0; i < g * k * n; i++) {
        int64_t e = i / (k * n), row = i / n % k, column = i % n;
        memcpy((char *)t.data + (size_t)((e * n + column) * k + row) * bytes,
               (const char *)w->data + (size_t)i * bytes, bytes);
    }
    return t;
}

START_TEST(a_scale_travels_with_its_axis)
{
    struct octet_array w =
        array_of(OCTET_DTYPE_F32, 3, DIMS(1, 3, 2), FLOATS(1, 100, 2, 200, 4, 400));
    struct octet_quantized q = quantize(w, "float8_e4m3fn", NULL, 2);

    ck_assert_float_eq_tol(array_at(&q.scale, 0), 0.00892857f, 1e-7f);
    ck_assert_float_eq_tol(array_at(&q.scale, 1), 0.892857f, 1e-5f);
}
END_TEST

/* Scales that are all different powers of two, and square matrices, so that a mix-up shows. */
START_TEST(transposing_changes_nothing)
{
    enum { G = 2, N = 8, M = 5 };
    const struct octet_rule *rule = bench_rule(&(struct octet_rule){
        .weight_qtype = "float8_e4m3fn", .act_qtype = "float8_e4m3fn", .bwd_qtype = "float8_e5m2"});
    struct dice dice = {11};
    enum octet_dtype dtype = _i % 2 ? OCTET_DTYPE_BF16 : OCTET_DTYPE_F32;
    struct octet_array x = array_random(&dice, OCTET_DTYPE_F32, 2, DIMS(M, N));
    struct octet_array w = array_random(&dice, OCTET_DTYPE_F32, 3, DIMS(G, N, N));
    struct octet_array g = array_random(&dice, dtype, 2, DIMS(M, N));
    struct octet_array sizes = sizes_of(G, (const int32_t[]){2, 3});
    struct octet_product a, b;

    bench_use((size_t)_i / 4);
    for (int i = 0; i < G * N * N; i++)
        ((float *)w.data)[i] = ldexpf(((float *)w.data)[i] > 0 ? 1.5f : -1.25f, i % N - 3);
    for (int i = 0; i < M * N; i++)
        ((float *)x.data)[i] = ldexpf(((float *)x.data)[i], i / N);
    w = array_of(dtype, 3, DIMS(G, N, N), w.data);
    x = array_of(dtype, 2, DIMS(M, N), x.data);
    struct octet_array t = transposed(&w);
    struct octet_operand lhs = plain(x), rhs = plain(w), turned = plain(t);
    struct octet_product_options options = {.rule = rule, .cotangent = &g};
    enum octet_grouped_op op = _i / 2 % 2 ? OCTET_GMM : OCTET_RAGGED_DOT;
    bench_ok(
        octet_ragged_dot(&bench.compute, &lhs, &rhs, &sizes, false, op, &options, &a, &bench.err));
    bench_ok(octet_ragged_dot(&bench.compute, &lhs, &turned, &sizes, true, op, &options, &b,
                              &bench.err));
    ck_assert(array_same(&a.out, &b.out));
    ck_assert(array_same(&a.lhs_grad, &b.lhs_grad));
    struct octet_array back = transposed(&a.rhs_grad);
    ck_assert(array_same(&back, &b.rhs_grad));
}
END_TEST

/* ---- safetensors README: NaN and Inf among the values ---- */

START_TEST(damage_stays_in_its_row)
{
    struct octet_array x = array_of(OCTET_DTYPE_F32, 2, DIMS(2, 3), FLOATS(NAN, 1, 2, 1, 2, 3));

    bench_use((size_t)_i);
    struct octet_quantized q = quantize(x, "float8_e4m3fn", NULL, 0);
    EXPECT_CODES(&q, 0x7f, 0x7f, 0x7f, 0x71, 0x79, 0x7e);
    ck_assert(isnan(array_at(&q.scale, 0)));
    ck_assert_float_eq_tol(array_at(&q.scale, 1), 3.0f / 448, 1e-9f);
    x = array_of(OCTET_DTYPE_F32, 2, DIMS(1, 3), FLOATS(INFINITY, 1, 2));
    q = quantize(x, "float8_e4m3fn", NULL, 0);
    EXPECT_CODES(&q, 0xff, 0x00, 0x00);
}
END_TEST

START_TEST(damage_is_counted)
{
    const struct octet_rule *rule = bench_rule(
        &(struct octet_rule){.weight_qtype = "float8_e4m3fn", .act_qtype = "float8_e4m3fn"});
    struct octet_array x = array_of(OCTET_DTYPE_BF16, 2, DIMS(3, 3),
                                    FLOATS(NAN, 1, 2, INFINITY, -INFINITY, 2, 1, 2, 3));
    struct octet_array w = array_of(OCTET_DTYPE_BF16, 2, DIMS(3, 1), FLOATS(1, 1, 1));
    struct octet_operand lhs = plain(x), rhs = plain(w);
    struct octet_product_options options = {.rule = rule, .numerics = true};
    struct octet_product out;

    bench_use((size_t)_i);
    bench_ok(
        octet_dot_general(&bench.compute, &lhs, &rhs, &matmul_dims, &options, &out, &bench.err));
    ck_assert_int_eq(out.lhs.nonfinite, 3);
    ck_assert_int_eq(out.rhs.nonfinite, 0);
    ck_assert(isnan(array_at(&out.out, 0)) && isnan(array_at(&out.out, 1)));
    ck_assert_float_eq_tol(array_at(&out.out, 2), 6, 0.2f);
}
END_TEST

/* ---- groups ---- */

struct moe {
    struct octet_operand lhs, rhs;
    struct octet_array cotangent;
    struct octet_product out;
};

/* M = 6, K = 4, N = 3, G = 3. */
static enum octet_status run_moe(struct moe *moe, int variant, const int32_t *sizes)
{
    static const struct octet_rule full = {
        .weight_qtype = "float8_e4m3fn", .act_qtype = "float8_e4m3fn", .bwd_qtype = "float8_e5m2"};
    enum octet_dtype dtype = variant & 1 ? OCTET_DTYPE_BF16 : OCTET_DTYPE_F32;
    bool turned = variant >> 1 & 1;
    struct dice dice = {13};

    moe->lhs = plain(array_random(&dice, dtype, 2, DIMS(6, 4)));
    moe->rhs = plain(array_random(&dice, dtype, 3, turned ? DIMS(3, 3, 4) : DIMS(3, 4, 3)));
    moe->cotangent = array_random(&dice, dtype, 2, DIMS(6, 3));
    struct octet_array groups = sizes_of(3, sizes);
    struct octet_product_options options = {.rule = variant >> 3 & 1 ? bench_rule(&full) : NULL,
                                            .cotangent = &moe->cotangent};
    return octet_ragged_dot(&bench.compute, &moe->lhs, &moe->rhs, &groups, turned,
                            variant >> 2 & 1 ? OCTET_GMM : OCTET_RAGGED_DOT, &options, &moe->out,
                            &bench.err);
}

static bool is_zero(const struct octet_array *array, int64_t first, int64_t count)
{
    size_t bytes = octet_dtype_bytes(array->dtype);
    const char *data = array->data;

    for (size_t i = (size_t)first * bytes; i < (size_t)(first + count) * bytes; i++)
        if (data[i])
            return false;
    return true;
}

/* NVIDIA/TransformerEngine 3037, 988; deepseek-ai/DeepGEMM 20; pytorch/torchtitan 1166 */
START_TEST(an_expert_may_be_empty)
{
    struct moe moe;

    bench_ok(run_moe(&moe, _i, (const int32_t[]){2, 0, 4}));
    ck_assert(!is_zero(&moe.out.rhs_grad, 0, 12));
    ck_assert(is_zero(&moe.out.rhs_grad, 12, 12));
    ck_assert(!is_zero(&moe.out.rhs_grad, 24, 12));
    ck_assert(!is_zero(&moe.out.out, 15, 3) && !is_zero(&moe.out.lhs_grad, 20, 4));
    bench_ok(run_moe(&moe, _i, (const int32_t[]){6, 0, 0}));
    ck_assert(!is_zero(&moe.out.rhs_grad, 0, 12));
    ck_assert(is_zero(&moe.out.rhs_grad, 12, 24));
    bench_ok(run_moe(&moe, _i, (const int32_t[]){0, 0, 0}));
    ck_assert(is_zero(&moe.out.out, 0, 18));
    ck_assert(is_zero(&moe.out.lhs_grad, 0, 24));
    ck_assert(is_zero(&moe.out.rhs_grad, 0, 36));
}
END_TEST

/* deepseek-ai/DeepGEMM 38 */
START_TEST(sizes_must_fit)
{
    struct moe moe;

    bench_refused(run_moe(&moe, _i, (const int32_t[]){2, 3, 4}), "group_sizes",
                  "add up to 9, more than the 6");
    bench_refused(run_moe(&moe, _i, (const int32_t[]){-1, 3, 4}), "group_sizes[0]",
                  "-1 is negative");
    bench_refused(run_moe(&moe, _i, (const int32_t[]){INT32_MAX, INT32_MAX, INT32_MAX}),
                  "group_sizes", "add up to 6442450941");
    bench_refused(run_moe(&moe, _i, (const int32_t[]){6, 1, -1}), "group_sizes[2]", "negative");
    bench_ok(run_moe(&moe, _i, (const int32_t[]){2, 0, 2}));
    ck_assert(!is_zero(&moe.out.out, 9, 3) && !is_zero(&moe.out.lhs_grad, 12, 4));
    ck_assert(is_zero(&moe.out.out, 12, 6));
    ck_assert(is_zero(&moe.out.lhs_grad, 16, 8));
}
END_TEST

/* pytorch/torchtitan 1651, 2262; pytorch/ao 2678: test_grouped.c compares such sizes with the
 * reference; here that they are taken at all. */
START_TEST(sizes_need_no_alignment)
{
    const struct octet_rule *rule = bench_rule(&(struct octet_rule){
        .weight_qtype = "float8_e4m3fn", .act_qtype = "float8_e4m3fn", .bwd_qtype = "float8_e5m2"});
    struct dice dice = {16};
    struct octet_operand lhs = plain(array_random(&dice, OCTET_DTYPE_BF16, 2, DIMS(33, 24)));
    struct octet_operand rhs = plain(array_random(&dice, OCTET_DTYPE_BF16, 3, DIMS(3, 24, 10)));
    struct octet_array g = array_random(&dice, OCTET_DTYPE_BF16, 2, DIMS(33, 10));
    struct octet_array sizes = sizes_of(3, (const int32_t[]){5, 11, 17});
    struct octet_product_options options = {.rule = rule, .cotangent = &g};
    struct octet_product out;

    bench_use((size_t)_i / 2);
    bench_ok(octet_ragged_dot(&bench.compute, &lhs, &rhs, &sizes, false,
                              _i % 2 ? OCTET_GMM : OCTET_RAGGED_DOT, &options, &out, &bench.err));
    for (int64_t i = 0; i < 33; i++)
        ck_assert(!is_zero(&out.out, i * 10, 10) && !is_zero(&out.lhs_grad, i * 24, 24));
    for (int64_t i = 0; i < 3; i++)
        ck_assert(!is_zero(&out.rhs_grad, i * 240, 240));
}
END_TEST

/* google/qwix ragged_dot_qt.py: a rule's calibration is ignored without a word */
START_TEST(a_ragged_dot_obeys_its_rule)
{
    static const struct octet_rule rules[] = {
        {.weight_qtype = "float8_e4m3fn", .act_qtype = "float8_e4m3fn"},
        {.weight_qtype = "float8_e4m3fn",
         .act_qtype = "float8_e4m3fn",
         .act_calibration_method = "fixed,-0.1,0.1"},
        {.weight_qtype = "float8_e4m3fn",
         .act_qtype = "float8_e4m3fn",
         .disable_channelwise_axes = true},
        {.weight_qtype = "float8_e4m3fn", .act_qtype = "float8_e4m3fn", .tile_size = "4"}};
    struct dice dice = {17};
    struct octet_operand lhs = plain(array_random(&dice, OCTET_DTYPE_F32, 2, DIMS(6, 8)));
    struct octet_operand rhs = plain(array_random(&dice, OCTET_DTYPE_F32, 3, DIMS(2, 8, 3)));
    struct octet_array sizes = sizes_of(2, (const int32_t[]){2, 4});
    struct octet_product out[4], silent;

    for (int i = 0; i < 4; i++) {
        struct octet_product_options options = {.rule = bench_rule(&rules[i])};
        bench_ok(octet_ragged_dot(&bench.compute, &lhs, &rhs, &sizes, false, OCTET_RAGGED_DOT,
                                  &options, &out[i], &bench.err));
        ck_assert_int_eq(i > 0, array_same(&out[0].out, &out[i].out) == 0);
        ck_assert_int_eq(i > 0, strstr(out[i].note, "honoured") != NULL);
        options.qwix_compatible = true;
        bench_ok(octet_ragged_dot(&bench.compute, &lhs, &rhs, &sizes, false, OCTET_RAGGED_DOT,
                                  &options, &silent, &bench.err));
        ck_assert(array_same(&out[0].out, &silent.out));
        ck_assert_int_eq(i > 0, strstr(silent.note, "no effect") != NULL);
    }
}
END_TEST

TCase *bug_tests(void)
{
    TCase *tests = tcase_create("reported");

    tcase_add_checked_fixture(tests, bench_begin, bench_end);
    tcase_add_loop_test(tests, zeros_stay_zeros, 0, BENCH_WORKERS_MAX);
    tcase_add_test(tests, zeros_stay_zeros_in_every_type);
    tcase_add_test(tests, zeros_stay_zeros_in_products);
    tcase_add_loop_test(tests, tiny_rows_have_scale_one, 0, BENCH_WORKERS_MAX);
    tcase_add_test(tests, finite_rows_have_usable_scales);
    tcase_add_loop_test(tests, quantizing_saturates, 0, BENCH_WORKERS_MAX);
    tcase_add_loop_test(tests, casting_does_not_saturate, 0, BENCH_WORKERS_MAX);
    tcase_add_loop_test(tests, the_last_binade_is_finite, 0, BENCH_WORKERS_MAX);
    tcase_add_loop_test(tests, every_code_survives, 0, BENCH_WORKERS_MAX);
    tcase_add_test(tests, fnuz_is_refused_by_name);
    tcase_add_loop_test(tests, fn_codes_mean_fn_numbers, 0, BENCH_WORKERS_MAX);
    tcase_add_test(tests, a_scale_travels_with_its_axis);
    tcase_add_loop_test(tests, transposing_changes_nothing, 0, 4 * BENCH_WORKERS_MAX);
    tcase_add_loop_test(tests, damage_stays_in_its_row, 0, BENCH_WORKERS_MAX);
    tcase_add_loop_test(tests, damage_is_counted, 0, BENCH_WORKERS_MAX);
    tcase_add_loop_test(tests, an_expert_may_be_empty, 0, 16);
    tcase_add_loop_test(tests, sizes_must_fit, 0, 16);
    tcase_add_loop_test(tests, sizes_need_no_alignment, 0, 2 * BENCH_WORKERS_MAX);
    tcase_add_test(tests, a_ragged_dot_obeys_its_rule);
    return tests;
}
