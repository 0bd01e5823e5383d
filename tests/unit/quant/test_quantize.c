/* octet_quantize and octet_dequantize beside the reference, to the bit. What could break: a step in
 * another type or order, an axis taken for another, a tile's edge, a special value. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fixture.h"
#include "reference.h"

static const char *const qtypes[] = {
    "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn", "mxfp8", "mxfp4", "nvfp4", "int8",
    "int4",          "int2",        "int3",          "int5",  "int6",  "int7"};
static const char *const methods[] = {"absmax", "",           "absmax,0.8", "absmax,1.3",
                                      "rms,7",  "rms,0.6",    "fixed,-2,2", "fixed,1.5",
                                      "minmax", "minmax,0.7", "fixed,-1,3"};
enum { QTYPES = sizeof qtypes / sizeof *qtypes, SYMMETRIC = 8, METHODS = 11 };

static bool is_asymmetric(int qtype)
{
    return strcmp(qtypes[qtype], "int8") == 0 || strcmp(qtypes[qtype], "int4") == 0;
}

static int block_of(int qtype)
{
    return qtype == 3 || qtype == 4 ? 32 : qtype == 5 ? 16 : 0;
}

/* A case: shape, axes, tiles and numbers. */
struct trial {
    struct octet_array array;
    struct octet_quantize_options options;
    struct ref_how how;
    int32_t axes[8];
    struct octet_tiled_axis tiled[8];
    char tiles[8][16];
};

static void add_tile(struct trial *t, struct dice *dice, int32_t axis, int64_t size)
{
    size_t i = t->options.tiled_axis_count++;
    int64_t dim = t->array.dim[axis];

    /* "1" is one element, "1/4" a quarter, "1.0" the whole axis. */
    if (dim == size && roll_chance(dice, 30))
        snprintf(t->tiles[i], sizeof t->tiles[i], "1.0");
    else if (dim == 4 * size && roll_chance(dice, 50))
        snprintf(t->tiles[i], sizeof t->tiles[i], roll_chance(dice, 50) ? "1/4" : "0.25");
    else
        snprintf(t->tiles[i], sizeof t->tiles[i], "%d", (int)size);
    t->tiled[i] =
        (struct octet_tiled_axis){roll_chance(dice, 20) ? axis - t->array.rank : axis, t->tiles[i]};
    t->how.tile[axis] = size;
}

static void choose_axes(struct trial *t, struct dice *dice, const int64_t *tile)
{
    for (int32_t axis = 0; axis < t->array.rank; axis++) {
        if (tile[axis]) {
            add_tile(t, dice, axis, tile[axis]);
        } else if (roll_chance(dice, 45)) {
            t->axes[t->options.channelwise_axis_count++] =
                roll_chance(dice, 20) ? axis - t->array.rank : axis;
            t->how.channelwise |= 1u << axis;
        }
    }
    t->options.channelwise_axes = t->axes;
    t->options.tiled_axes = t->tiled;
}

/* Ordinary numbers of many sizes, and now and then what is not ordinary. */
static float any_number(struct dice *dice, int oddities)
{
    static const float odd[] = {0,          -0.0f,    1e-39f, -3e-45f,  0x1p-126f,
                                0x1.ep-64f, 0x1p-62f, 3e38f,  -3.4e38f, INFINITY,
                                -INFINITY,  NAN,      448,    0x1p127f, 1e-20f};

    if (roll_chance(dice, oddities))
        return odd[roll_between(dice, 0, 14)];
    return ldexpf(roll_normal(dice), (int)roll_between(dice, -4, 4));
}

static void choose(struct trial *t, struct dice *dice)
{
    int qtype = (int)roll_between(dice, 0, QTYPES - 1);
    int method = (int)roll_between(dice, 0, (is_asymmetric(qtype) ? METHODS : SYMMETRIC) - 1);
    int32_t rank = (int32_t)roll_between(dice, block_of(qtype) ? 1 : 0, 5);
    enum octet_dtype dtype = roll_chance(dice, 50) ? OCTET_DTYPE_F32 : OCTET_DTYPE_BF16;
    int64_t dim[8] = {0}, tile[8] = {0};
    int oddities = roll_chance(dice, 30) ? 12 : 0;

    memset(t, 0, sizeof *t);
    for (int32_t i = 0; i < rank; i++) {
        dim[i] = roll_between(dice, rank > 3 ? 1 : 0, rank > 3 ? 4 : rank > 2 ? 7 : 20);
        if (dim[i] && roll_chance(dice, 25)) {
            tile[i] = roll_between(dice, 1, 6);
            dim[i] = tile[i] * roll_between(dice, 1, 4);
        }
    }
    if (block_of(qtype)) { /* tiles of the block's size on one axis, on others none */
        int32_t axis = (int32_t)roll_between(dice, 0, rank - 1);
        memset(tile, 0, sizeof tile);
        tile[axis] = block_of(qtype);
        dim[axis] = tile[axis] * roll_between(dice, 1, 3);
    }
    struct octet_array numbers = array_zero(OCTET_DTYPE_F32, rank, dim);
    int exponent = roll_chance(dice, 20) ? (int)roll_between(dice, -90, 90) : 0;
    for (int64_t i = 0; i < octet_array_elements(&numbers); i++)
        ((float *)numbers.data)[i] = ldexpf(any_number(dice, oddities), exponent);
    t->array = array_of(dtype, rank, dim, numbers.data);
    t->options.qtype = t->how.qtype = qtypes[qtype];
    t->options.calibration_method = t->how.method = methods[method];
    choose_axes(t, dice, tile);
    snprintf(bench.label, sizeof bench.label, "%s %s %s", qtypes[qtype], methods[method],
             octet_dtype_name(dtype));
}

static void run_case(uint64_t seed)
{
    struct dice dice = {seed};
    struct trial t;
    struct octet_quantized q;
    struct octet_array back;

    bench_clear();
    choose(&t, &dice);
    snprintf(bench.label + strlen(bench.label), 40, " (seed %llu)", (unsigned long long)seed);
    bench_use_any(seed);
    bench_ok(octet_quantize(&bench.compute, &t.array, &t.options, &q, &bench.err));
    struct ref x = ref_of(&t.array);
    struct ref_value expected = ref_quantize(&x, &t.how);
    ref_same_codes(&q, &expected, "quantized");
    struct ref values = ref_dequantize(&expected);
    bench_ok(octet_dequantize(&bench.compute, &q, OCTET_DTYPE_UNSPECIFIED, &back, &bench.err));
    ref_same(&back, &values, "dequantized");
    enum octet_dtype other = values.dtype == OCTET_DTYPE_F32 ? OCTET_DTYPE_BF16 : OCTET_DTYPE_F32;
    values = ref_cast(&values, other);
    bench_ok(octet_dequantize(&bench.compute, &q, other, &back, &bench.err));
    ref_same(&back, &values, "dequantized and cast");
}

START_TEST(arrays_have_the_references_codes)
{
    for (uint64_t seed = 1; seed <= SEEDS(1000); seed++)
        run_case(seed);
}
END_TEST

/* Large enough that runs are cut and shared by threads; each layout of kept and reduced axes. */
START_TEST(large_arrays_too)
{
    static const struct {
        int64_t dim[3];
        uint32_t channelwise;
        const char *method;
    } shapes[] = {{{1, 1, 140000}, 0, "absmax"}, {{1, 1, 70000}, 4, "absmax,0.5"},
                  {{3, 70001, 1}, 2, "absmax"},  {{3, 70001, 1}, 1, "absmax"},
                  {{300, 300, 2}, 5, "absmax"},  {{300, 7, 100}, 2, "rms,5"},
                  {{1500, 1, 100}, 1, "absmax"}, {{1500, 100, 1}, 2, "absmax"},
                  {{1500, 100, 1}, 2, "minmax"}};
    struct dice dice = {(uint64_t)_i};
    struct octet_array x =
        array_random(&dice, _i % 2 ? OCTET_DTYPE_BF16 : OCTET_DTYPE_F32, 3, shapes[_i].dim);
    struct ref_how how = {.qtype = _i == 8 ? "int8" : "float8_e4m3fn",
                          .method = shapes[_i].method,
                          .channelwise = shapes[_i].channelwise};
    int32_t axes[3];
    struct octet_quantize_options options = {
        .qtype = how.qtype, .calibration_method = how.method, .channelwise_axes = axes};
    struct octet_quantized first, q;

    for (int32_t i = 0; i < 3; i++)
        if (how.channelwise >> i & 1)
            axes[options.channelwise_axis_count++] = i;
    bench_ok(octet_quantize(&bench.compute, &x, &options, &first, &bench.err));
    struct ref values = ref_of(&x);
    struct ref_value expected = ref_quantize(&values, &how);
    ref_same_codes(&first, &expected, "quantized");
    for (size_t w = 1; w < bench.workers_count; w++) {
        snprintf(bench.label, sizeof bench.label, "%s with %d threads",
                 octet_workers_kernels(bench.workers[w]), octet_workers_threads(bench.workers[w]));
        bench_use(w);
        bench_ok(octet_quantize(&bench.compute, &x, &options, &q, &bench.err));
        ck_assert_msg(array_same(&q.qvalue, &first.qvalue) && array_same(&q.scale, &first.scale),
                      "%s", bench.label);
    }
}
END_TEST

/* Up to 31 squares are added one by one in f32, more in a better way: both sides of the edge. */
START_TEST(sums_of_squares_change_their_way)
{
    static const int64_t lengths[] = {30, 31, 32, 33, 1000};
    struct dice dice = {(uint64_t)_i};
    struct octet_array x = array_random(&dice, OCTET_DTYPE_F32, 2, DIMS(200, lengths[_i]));
    struct ref_how how = {.qtype = "float8_e4m3fn", .method = "rms,3", .channelwise = 1};
    struct octet_quantize_options options = {.qtype = how.qtype,
                                             .calibration_method = how.method,
                                             .channelwise_axes = (const int32_t[]){0},
                                             .channelwise_axis_count = 1};
    struct octet_quantized q;

    bench_ok(octet_quantize(&bench.compute, &x, &options, &q, &bench.err));
    struct ref values = ref_of(&x);
    struct ref_value expected = ref_quantize(&values, &how);
    ref_same_codes(&q, &expected, "quantized");
}
END_TEST

/* The scale is computed in the array's type; another scale_dtype is a cast of it. */
START_TEST(a_scale_dtype_is_a_cast)
{
    struct dice dice = {5};
    struct octet_array x = array_random(&dice, OCTET_DTYPE_F32, 2, DIMS(9, 20));
    struct octet_quantize_options options = {.qtype = "float8_e4m3fn",
                                             .channelwise_axes = (const int32_t[]){0},
                                             .channelwise_axis_count = 1};
    struct octet_quantized q, r;

    bench_ok(octet_quantize(&bench.compute, &x, &options, &q, &bench.err));
    options.scale_dtype = OCTET_DTYPE_BF16;
    bench_ok(octet_quantize(&bench.compute, &x, &options, &r, &bench.err));
    ck_assert(array_same(&q.qvalue, &r.qvalue));
    struct ref scale = ref_of(&q.scale);
    scale = ref_cast(&scale, OCTET_DTYPE_BF16);
    ref_same(&r.scale, &scale, "scale");
}
END_TEST

/* A code of NaN has the sign of x if that is NaN, else of the scale if that is (always +), else -,
 * whether the scale is shared (a product with its inverse) or the element's own (a division). */
START_TEST(codes_of_nan)
{
    static const float given[] = {-NAN, NAN, INFINITY, -INFINITY, -2};
    static const struct {
        const char *method;
        bool is_own;
        unsigned char codes[5];
    } cases[] = {{"absmax", true, {0xff, 0x7f, 0xff, 0xff, 0xfe}},
                 {"absmax", false, {0xff, 0x7f, 0x7f, 0x7f, 0x7f}},
                 {"absmax,1e-40", true, {0xff, 0x7f, 0x7f, 0x7f, 0xc0}}, /* Inf * 0 is a NaN */
                 {"absmax,1e-40", false, {0xff, 0x7f, 0x7f, 0x7f, 0x7f}}};
    const int32_t axis = 0;
    struct octet_quantized q;

    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        enum octet_dtype dtype = i % 2 ? OCTET_DTYPE_F32 : OCTET_DTYPE_BF16;
        struct octet_array x = array_of(dtype, 1, DIMS(5), given);
        struct octet_quantize_options how = {.qtype = "float8_e4m3fn",
                                             .calibration_method = cases[i / 2].method,
                                             .channelwise_axes = &axis,
                                             .channelwise_axis_count = cases[i / 2].is_own};
        bench_use((size_t)_i);
        snprintf(bench.label, sizeof bench.label, "case %zu, workers %d", i, _i);
        bench_ok(octet_quantize(&bench.compute, &x, &how, &q, &bench.err));
        for (int at = 0; at < 5; at++)
            ck_assert_msg(((unsigned char *)q.qvalue.data)[at] == cases[i / 2].codes[at],
                          "%s: code %d is 0x%02x", bench.label, at,
                          ((unsigned char *)q.qvalue.data)[at]);
        for (int64_t at = 0; at < octet_array_elements(&q.scale); at++) {
            float scale = array_at(&q.scale, at);
            ck_assert_msg(scale == scale || !signbit(scale), "%s: a NaN of a scale", bench.label);
        }
    }
}
END_TEST

TCase *quantize_tests(void)
{
    TCase *tests = tcase_create("quantize");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, bench_begin, bench_end);
    tcase_add_test(tests, arrays_have_the_references_codes);
    tcase_add_loop_test(tests, large_arrays_too, 0, 9);
    tcase_add_loop_test(tests, sums_of_squares_change_their_way, 0, 5);
    tcase_add_test(tests, a_scale_dtype_is_a_cast);
    tcase_add_loop_test(tests, codes_of_nan, 0, BENCH_WORKERS_MAX);
    return tests;
}
