/* Products: every set, every path through packing, against three loops in the stated order.
 * What could break: an edge of a tile that is read, written or added wrongly, an offset table read
 * as a run, a pair or block that begins at the wrong k, a set whose order of additions differs, a
 * thread that uses another's buffer. Compared bit for bit, NaN included. */
#include <math.h>

#include "kernels/gemm_private.h"
#include "octet/workers.h"
#include "unit/kernels/fixture.h"

enum { THREAD_COUNTS = 3 };
static const int32_t thread_counts[THREAD_COUNTS] = {1, 2, 7};

/* How the elements of one side lie in memory. */
enum layout { K_RUNS, FREE_RUNS, BOTH_STRIDED, GATHERED, PIECES, LAYOUTS };

struct side {
    struct oct_gemm_side side;
    int64_t *free, *depth;
    float *values; /* [free][k], decoded by the reference */
    void *data;
};

static bool is_integer(enum octet_dtype dtype)
{
    return dtype == OCTET_DTYPE_S8 || dtype == OCTET_DTYPE_S4;
}

/* specials: NaN, Inf, -0, numbers near both ends of the range now and then. */
static void put_element(enum octet_dtype dtype, void *data, int64_t at, bool specials,
                        uint64_t *state)
{
    uint32_t r = random_next(state), kind = specials ? random_next(state) % 64 : 64;
    uint32_t f = (r & 0x80ffffff) | (124 + (r >> 25) % 8) << 23;

    if (kind == 0)
        f = (r & 0x80000000) | 0x7f800000 | (r & 0x400000); /* Inf, NaN */
    else if (kind < 4)
        f = r & 0x80000000;
    else if (kind < 10)
        f = r & 0x80ffffff; /* subnormal or just not */
    else if (kind < 20)
        f = (r & 0x807fffff) | (kind < 15 ? 40u + kind : 190u + kind) << 23;
    else if (kind < 22)
        f = (r & 0x807fffff) | (246 + r % 9) << 23; /* what a multiplication by 2^8 makes Inf */
    if (dtype == OCTET_DTYPE_F32)
        ((uint32_t *)data)[at] = f;
    else if (dtype == OCTET_DTYPE_BF16)
        ((uint16_t *)data)[at] = (uint16_t)(f >> 16);
    else if (!specials && dtype == OCTET_DTYPE_F8_E4M3FN && (r & 0x7f) == 0x7f)
        ((uint8_t *)data)[at] = (uint8_t)(r & 0xf0);
    else if (!specials && dtype == OCTET_DTYPE_F8_E5M2 && (r & 0x7c) == 0x7c)
        ((uint8_t *)data)[at] = (uint8_t)(r & 0xb3);
    else
        ((uint8_t *)data)[at] = (uint8_t)r;
}

static void shuffle(int64_t *offsets, int64_t n, uint64_t *state)
{
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t j = random_next(state) % (uint32_t)(i + 1), t = offsets[i];
        offsets[i] = offsets[j];
        offsets[j] = t;
    }
}

static void lay_out(struct side *s, enum layout layout, int64_t n, int64_t k, uint64_t *state)
{
    int64_t free_stride = layout == FREE_RUNS ? 1 : k + 3,
            depth_stride = layout == FREE_RUNS ? n : 1;

    if (layout == BOTH_STRIDED) {
        free_stride = 3;
        depth_stride = 3 * n + 1;
    }
    for (int64_t i = 0; i < n; i++)
        s->free[i] = i * free_stride;
    for (int64_t i = 0; i < k; i++)
        s->depth[i] = i * depth_stride;
    if (layout == GATHERED) {
        shuffle(s->free, n, state);
        shuffle(s->depth, k, state);
    }
    for (int64_t i = 0; layout == PIECES && i + 32 <= k; i += 64) /* runs of 32, in pairs swapped */
        for (int64_t j = 0; j < 32 && i + 32 + j < k; j++) {
            int64_t t = s->depth[i + j];
            s->depth[i + j] = s->depth[i + 32 + j];
            s->depth[i + 32 + j] = t;
        }
    s->side.free = s->free;
    s->side.depth = s->depth;
    if (layout < GATHERED && random_next(state) % 2) { /* strides instead of tables */
        s->side.free_stride = free_stride;
        s->side.depth_stride = depth_stride;
        s->side.free = s->side.depth = NULL;
    }
}

static struct side make_side(enum octet_dtype dtype, enum layout layout, int64_t n, int64_t k,
                             bool specials, uint64_t *state)
{
    const size_t bytes = octet_dtype_bytes(dtype);
    struct side s = {.side = {.dtype = dtype},
                     .free = malloc((size_t)(n + 1) * sizeof(int64_t)),
                     .depth = malloc((size_t)(k + 1) * sizeof(int64_t)),
                     .values = malloc((size_t)(n * k + 1) * sizeof(float))};
    int64_t most = 0;

    lay_out(&s, layout, n, k, state);
    for (int64_t i = 0; i < n; i++)
        for (int64_t q = 0; q < k; q++)
            most = s.free[i] + s.depth[q] >= most ? s.free[i] + s.depth[q] + 1 : most;
    /* No more than the elements, at an address that is aligned to one of them only. */
    s.data = malloc((size_t)(most + 1) * bytes);
    s.side.data = (char *)s.data + bytes;
    for (int64_t i = 0; i < most; i++)
        put_element(dtype, (char *)s.data + bytes, i, specials, state);
    for (int64_t i = 0; i < n; i++)
        for (int64_t q = 0; q < k; q++)
            s.values[i * k + q] = ref_value(dtype, s.side.data, (size_t)(s.free[i] + s.depth[q]));
    return s;
}

/* The packed form of a side, fenced. */
struct packed {
    struct oct_gemm_side side;
    struct fenced codes;
};

static struct packed pack_side(const octet_workers *workers, const struct side *s, int64_t n,
                               int64_t k)
{
    struct packed p = {.side = {.dtype = s->side.dtype, .packed_depth = k}};

    p.codes = fenced_create(oct_gemm_packed_bytes(s->side.dtype, n, k), 64);
    ck_assert_int_eq(oct_gemm_pack(workers, NULL, &s->side, n, k, p.codes.data, NULL), OCTET_OK);
    p.side.data = p.codes.data;
    return p;
}

static void free_side(struct side *s)
{
    free(s->free);
    free(s->depth);
    free(s->values);
    free(s->data);
}

/* One result in the order of gemm.h. */
static float ref_sum(const float *a, const float *b, int64_t k)
{
    float total = 0;

    for (int64_t from = 0; from < k; from += OCT_GEMM_BLOCK) {
        int64_t to = k - from < OCT_GEMM_BLOCK ? k : from + OCT_GEMM_BLOCK;
        float sum = 0;
        for (int64_t q = from; q < to; q += 2) {
            sum = q + 1 < to ? fmaf(a[q + 1], b[q + 1], sum) : fmaf(0, 0, sum);
            sum = fmaf(a[q], b[q], sum);
        }
        total = from ? total + sum : sum;
    }
    return isnan(total) ? float_of(0x7fc00000) : total;
}

static float ref_integer_sum(const float *a, const float *b, int64_t k)
{
    int64_t total = 0;

    for (int64_t q = 0; q < k; q++)
        total += (int64_t)a[q] * (int64_t)b[q];
    return (float)(int32_t)(uint32_t)total;
}

static float *ref_product(const struct side *lhs, const struct side *rhs, int64_t m, int64_t n,
                          int64_t k)
{
    float *out = malloc((size_t)(m * n + 1) * sizeof(float));
    bool integer = is_integer(lhs->side.dtype) && is_integer(rhs->side.dtype);
    struct oct_float_env env = oct_float_env_enter();

    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            out[i * n + j] =
                (integer ? ref_integer_sum : ref_sum)(lhs->values + i * k, rhs->values + j * k, k);
    oct_float_env_leave(env);
    return out;
}

/* ---- Workers of all sets and thread counts, made once ---- */

struct crew {
    octet_workers *workers[16][THREAD_COUNTS];
    size_t sets;
};
static struct crew crew;

static void hire(void)
{
    for (size_t s = 0; octet_kernel_set_name(s); s++) {
        ck_assert_uint_lt(s, 16);
        crew.sets = s + 1;
        for (int t = 0; t < THREAD_COUNTS && set_at(s); t++)
            ck_assert_int_eq(octet_workers_create(octet_kernel_set_name(s), thread_counts[t],
                                                  &crew.workers[s][t], NULL),
                             OCTET_OK);
    }
}

static void dismiss(void)
{
    for (size_t s = 0; s < crew.sets; s++)
        for (int t = 0; t < THREAD_COUNTS; t++)
            octet_workers_destroy(crew.workers[s][t]);
    memset(&crew, 0, sizeof crew);
}

static void compare(const octet_workers *workers, const struct oct_gemm *g, const float *got,
                    const float *want, const char *what)
{
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++)
            if (bits_of(got[i * g->out_stride + j]) != bits_of(want[i * g->n + j]))
                ck_abort_msg("%s: %s: m %d n %d k %d, %s x %s, at (%d, %d): %a, expected %a",
                             octet_workers_kernels(workers), what, (int)g->m, (int)g->n, (int)g->k,
                             octet_dtype_name(g->lhs.dtype), octet_dtype_name(g->rhs.dtype), (int)i,
                             (int)j, got[i * g->out_stride + j], want[i * g->n + j]);
}

/* One product on every set with a number of threads that changes from call to call. */
static void check_product(int64_t m, int64_t n, int64_t k, enum octet_dtype lhs_dtype,
                          enum octet_dtype rhs_dtype, enum layout lhs_layout,
                          enum layout rhs_layout, bool specials, uint64_t *state)
{
    struct side lhs = make_side(lhs_dtype, lhs_layout, m, k, specials, state);
    struct side rhs = make_side(rhs_dtype, rhs_layout, n, k, specials, state);
    float *want = ref_product(&lhs, &rhs, m, n, k);
    int64_t gap = random_next(state) % 3;
    uint32_t canary = 0xa5a5a5a5;

    for (size_t s = 0; s < crew.sets; s++) {
        octet_workers *workers = crew.workers[s][random_next(state) % THREAD_COUNTS];
        if (!workers)
            continue;
        struct fenced out = fenced_create((size_t)(m * (n + gap)) * sizeof(float), 4);
        struct oct_gemm g = {.m = m,
                             .n = n,
                             .k = k,
                             .lhs = lhs.side,
                             .rhs = rhs.side,
                             .out = (float *)out.data,
                             .out_stride = n + gap};
        ck_assert_int_eq(oct_gemm_run(workers, NULL, &g, 1, NULL), OCTET_OK);
        compare(workers, &g, g.out, want, "product");
        if (oct_gemm_packed_bytes(rhs_dtype, n, k) && k) {
            struct packed packed = pack_side(workers, &rhs, n, k);
            g.rhs = packed.side;
            ck_assert_int_eq(oct_gemm_run(workers, NULL, &g, 1, NULL), OCTET_OK);
            compare(workers, &g, g.out, want, "product of packed codes");
            ck_assert(fenced_destroy(&packed.codes));
        }
        for (int64_t i = 0; i < m; i++) /* what lies between the rows */
            for (int64_t j = n; j < n + gap; j++)
                ck_assert(bits_of(g.out[i * (n + gap) + j]) == canary);
        ck_assert_msg(fenced_destroy(&out), "%s wrote outside", octet_workers_kernels(workers));
    }
    free(want);
    free_side(&lhs);
    free_side(&rhs);
}

static const enum octet_dtype types[] = {
    OCTET_DTYPE_F32,       OCTET_DTYPE_BF16, OCTET_DTYPE_F8_E4M3FN, OCTET_DTYPE_F8_E5M2,
    OCTET_DTYPE_F4_E2M1FN, OCTET_DTYPE_S8,   OCTET_DTYPE_S4};
enum { TYPES = sizeof types / sizeof types[0] };

START_TEST(all_types_and_layouts)
{
    uint64_t state = 3;

    for (int a = 0; a < TYPES; a++)
        for (int b = 0; b < TYPES; b++)
            for (int l = 0; l < LAYOUTS; l++)
                check_product(1 + random_next(&state) % 20, 1 + random_next(&state) % 40,
                              1 + random_next(&state) % 300, types[a], types[b], (enum layout)l,
                              (enum layout)((l + a + b) % LAYOUTS), false, &state);
}
END_TEST

START_TEST(all_edges_of_tiles)
{
    static const int64_t ms[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 14, 15, 29};
    static const int64_t ns[] = {1, 15, 16, 17, 31, 32, 33, 63, 65, 97, 129};
    static const int64_t ks[] = {1, 2, 3, 17, 31, 64};
    uint64_t state = 5;

    for (size_t i = 0; i < sizeof ms / sizeof ms[0]; i++)
        for (size_t j = 0; j < sizeof ns / sizeof ns[0]; j++)
            for (size_t l = 0; l < sizeof ks / sizeof ks[0]; l++) {
                uint32_t r = random_next(&state);
                check_product(ms[i], ns[j], ks[l], r & 1 ? OCTET_DTYPE_F32 : OCTET_DTYPE_F8_E4M3FN,
                              r & 1 ? OCTET_DTYPE_F32 : OCTET_DTYPE_F8_E5M2,
                              (enum layout)(r >> 1 & 1), (enum layout)(r >> 2 & 1), false, &state);
            }
}
END_TEST

START_TEST(all_edges_of_blocks)
{
    static const int64_t ks[] = {1, 2, 255, 256, 257, 258, 511, 512, 513, 1021};
    uint64_t state = 7;

    for (size_t l = 0; l < sizeof ks / sizeof ks[0]; l++)
        for (int t = 0; t < TYPES; t++)
            for (int layout = 0; layout < LAYOUTS; layout++)
                check_product(1 + random_next(&state) % 16, 1 + random_next(&state) % 34, ks[l],
                              types[t], types[t], (enum layout)layout,
                              (enum layout)((layout + 1) % LAYOUTS), false, &state);
}
END_TEST

START_TEST(special_values)
{
    uint64_t state = 11;

    for (int turn = 0; turn < 40; turn++)
        for (int t = 0; t < TYPES; t++)
            check_product(1 + random_next(&state) % 9, 1 + random_next(&state) % 70,
                          1 + random_next(&state) % 40, types[t],
                          types[turn % 2 ? (size_t)t : random_next(&state) % TYPES],
                          (enum layout)(random_next(&state) % LAYOUTS),
                          (enum layout)(random_next(&state) % LAYOUTS), true, &state);
}
END_TEST

/* Larger than one chunk of rows and of columns; primes. */
START_TEST(several_chunks)
{
    uint64_t state = 13;

    check_product(293, 37, 263, OCTET_DTYPE_F8_E4M3FN, OCTET_DTYPE_F8_E4M3FN, K_RUNS, FREE_RUNS,
                  false, &state);
    check_product(571, 33, 67, OCTET_DTYPE_F32, OCTET_DTYPE_BF16, FREE_RUNS, K_RUNS, false, &state);
    check_product(17, 1031, 259, OCTET_DTYPE_F8_E5M2, OCTET_DTYPE_F8_E4M3FN, GATHERED, FREE_RUNS,
                  false, &state);
    check_product(2, 2053, 131, OCTET_DTYPE_S8, OCTET_DTYPE_S8, K_RUNS, K_RUNS, false, &state);
    check_product(1, 541, 7169, OCTET_DTYPE_F8_E4M3FN, OCTET_DTYPE_F8_E4M3FN, K_RUNS, FREE_RUNS,
                  false, &state);
}
END_TEST

/* Columns from a multiple of 32 on, k from an even one on, and the way back. */
START_TEST(parts_of_packed_codes)
{
    enum { N = 101, K = 301 };
    uint64_t state = 15;

    for (int t = 1; t < TYPES; t++) {
        struct side lhs = make_side(types[t], K_RUNS, 5, K, true, &state);
        struct side rhs = make_side(types[t], GATHERED, N, K, true, &state);
        const size_t bytes = octet_dtype_bytes(types[t]);
        for (size_t s = 0; s < crew.sets && crew.workers[s][0]; s++) {
            octet_workers *workers = crew.workers[s][random_next(&state) % THREAD_COUNTS];
            struct packed packed = pack_side(workers, &rhs, N, K);
            for (int64_t column = 0; column < N; column += 32)
                for (int64_t from = 0; from < K; from += 34) {
                    int64_t m = 1 + from % 5, n = N - column, k = K - from;
                    struct side a = lhs, b = rhs;
                    float *out = malloc((size_t)(m * n) * sizeof(float)), *want;
                    char *back = malloc((size_t)(n * k) * bytes);
                    a.values = malloc((size_t)(m * k) * sizeof(float));
                    b.values = malloc((size_t)(n * k) * sizeof(float));
                    for (int64_t i = 0; i < m * k; i++)
                        a.values[i] = lhs.values[i / k * K + from + i % k];
                    for (int64_t i = 0; i < n * k; i++)
                        b.values[i] = rhs.values[(column + i / k) * K + from + i % k];
                    struct oct_gemm g = {
                        .m = m,
                        .n = n,
                        .k = k,
                        .lhs = {.dtype = types[t],
                                .data = (const char *)lhs.side.data + (size_t)from * bytes,
                                .free_stride = lhs.free[1],
                                .depth_stride = 1},
                        .rhs = packed.side,
                        .out = out,
                        .out_stride = n};
                    g.rhs.packed_free = column, g.rhs.packed_from = from;
                    want = ref_product(&a, &b, m, n, k);
                    ck_assert_int_eq(oct_gemm_run(workers, NULL, &g, 1, NULL), OCTET_OK);
                    compare(workers, &g, out, want, "part of packed codes");
                    ck_assert_int_eq(oct_gemm_unpack(workers, NULL, &g.rhs, n, k, back, 1, n, NULL),
                                     OCTET_OK);
                    for (int64_t i = 0; i < n * k; i++) {
                        int64_t at = rhs.free[column + i % n] + rhs.depth[from + i / n];
                        ck_assert_mem_eq(back + (size_t)i * bytes,
                                         (const char *)rhs.side.data + at * (int64_t)bytes, bytes);
                    }
                    free(out);
                    free(want);
                    free(back);
                    free(a.values);
                    free(b.values);
                }
            ck_assert(fenced_destroy(&packed.codes));
        }
        free_side(&lhs);
        free_side(&rhs);
    }
}
END_TEST

/* -128 * -128 * 131072 wraps to -2^31, as int32 sums do. */
START_TEST(integers_wrap)
{
    enum { K = 131072 };
    signed char *ones = malloc(K);

    memset(ones, -128, K);
    for (size_t s = 0; s < crew.sets; s++) {
        struct oct_gemm_side side = {
            .dtype = OCTET_DTYPE_S8, .data = ones, .free_stride = K, .depth_stride = 1};
        float out = 0;
        struct oct_gemm g = {
            .m = 1, .n = 1, .k = K, .lhs = side, .rhs = side, .out = &out, .out_stride = 1};
        if (!crew.workers[s][0])
            continue;
        ck_assert_int_eq(oct_gemm_run(crew.workers[s][0], NULL, &g, 1, NULL), OCTET_OK);
        ck_assert_msg(out == -0x1p31f, "%s: %a", octet_workers_kernels(crew.workers[s][0]), out);
    }
    free(ones);
}
END_TEST

/* ---- Lists ---- */

enum { LIST = 23 };

START_TEST(lists_share_the_workers)
{
    uint64_t state = 17;
    struct side lhs[LIST], rhs[LIST];
    struct oct_gemm list[LIST];
    struct fenced outs[LIST];
    float *want[LIST];

    for (int i = 0; i < LIST; i++) {
        int64_t m = random_next(&state) % 40, n = random_next(&state) % 90;
        int64_t k = i % 5 ? random_next(&state) % 300 : 0;
        enum octet_dtype a = types[random_next(&state) % TYPES], b = types[random_next(&state) % 3];
        lhs[i] = make_side(a, (enum layout)(i % LAYOUTS), m, k, false, &state);
        rhs[i] = make_side(b, (enum layout)(i / 2 % LAYOUTS), n, k, false, &state);
        want[i] = ref_product(&lhs[i], &rhs[i], m, n, k);
        list[i] = (struct oct_gemm){
            .m = m, .n = n, .k = k, .lhs = lhs[i].side, .rhs = rhs[i].side, .out_stride = n};
        /* a table where there may be a stride of 0 */
        list[i].lhs.free = lhs[i].free, list[i].rhs.free = rhs[i].free;
    }
    for (size_t s = 0; s < crew.sets; s++)
        for (int t = 0; t < THREAD_COUNTS && crew.workers[s][t]; t++) {
            for (int i = 0; i < LIST; i++) {
                outs[i] = fenced_create((size_t)(list[i].m * list[i].n) * sizeof(float), 4);
                list[i].out = (float *)outs[i].data;
            }
            ck_assert_int_eq(oct_gemm_run(crew.workers[s][t], NULL, list, LIST, NULL), OCTET_OK);
            for (int i = 0; i < LIST; i++) {
                compare(crew.workers[s][t], &list[i], list[i].out, want[i], "list");
                ck_assert(fenced_destroy(&outs[i]));
            }
        }
    for (int i = 0; i < LIST; i++) {
        free(want[i]);
        free_side(&lhs[i]);
        free_side(&rhs[i]);
    }
}
END_TEST

START_TEST(nothing_to_do)
{
    struct octet_cancel cancel = {0};

    ck_assert_int_eq(oct_gemm_run(crew.workers[0][0], NULL, NULL, 0, NULL), OCTET_OK);
    atomic_store(&cancel.cancelled, true);
    ck_assert_int_eq(oct_gemm_run(crew.workers[0][0], &cancel, NULL, 0, NULL), OCTET_CANCELLED);
}
END_TEST

/* Writes 42 where sums belong: whose merge it is shows in the result. */
static void merge_42(size_t rows, size_t columns, const float *tile, size_t tile_stride, float *out,
                     size_t out_stride, int mode)
{
    (void)tile, (void)tile_stride, (void)mode;
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++)
            out[r * out_stride + c] = 42;
}

/* A set that does not add in order is there for FAST alone. */
START_TEST(fast_products_may_have_a_set_of_their_own)
{
    struct oct_gemm_kernels other_gemm = *oct_kernels_at(0)->gemm;
    struct oct_kernels other = *oct_kernels_at(0);
    struct octet_workers workers = {.kernels = oct_kernels_at(0), .fast = &other, .threads = 1};
    float a[12], out[9];
    struct oct_gemm_side side = {
        .dtype = OCTET_DTYPE_F32, .data = a, .free_stride = 4, .depth_stride = 1};
    struct oct_gemm list[2] = {
        {.m = 3, .n = 3, .k = 4, .lhs = side, .rhs = side, .out = out, .out_stride = 3}};

    other.gemm = &other_gemm;
    other_gemm.merge = merge_42;
    for (int i = 0; i < 12; i++)
        a[i] = (float)(i / 4 + 1);
    ck_assert_int_eq(oct_gemm_run(&workers, NULL, list, 1, NULL), OCTET_OK);
    for (int i = 0; i < 9; i++)
        ck_assert(out[i] == (float)(4 * (i / 3 + 1) * (i % 3 + 1)));
    list[0].is_fast = true;
    ck_assert_int_eq(oct_gemm_run(&workers, NULL, list, 1, NULL), OCTET_OK);
    for (int i = 0; i < 9; i++)
        ck_assert(out[i] == 42);
    workers.fast = NULL;
    ck_assert_int_eq(oct_gemm_run(&workers, NULL, list, 1, NULL), OCTET_OK);
    ck_assert(out[8] == 36);
}
END_TEST

/* A deadline ends a product of many seconds soon, also on the slowest set. */
START_TEST(deadlines_are_noticed)
{
    enum { M = 1024, N = 1024, K = 1 << 20 };
    struct octet_error err;
    /* All elements are the same one: rows of 1 MiB, all at the same place. */
    unsigned char *data = calloc(K, 1);
    int64_t *zeros = calloc(M, sizeof *zeros);
    float *out = malloc((size_t)M * N * sizeof(float));

    for (size_t s = 0; s < crew.sets; s++)
        for (int t = 0; t < THREAD_COUNTS && crew.workers[s][t]; t++) {
            struct octet_cancel cancel = {.deadline_ns = octet_now_ns() + 20000000};
            struct oct_gemm_side side = {
                .dtype = OCTET_DTYPE_F8_E4M3FN, .data = data, .free = zeros, .depth_stride = 1};
            struct oct_gemm g = {
                .m = M, .n = N, .k = K, .lhs = side, .rhs = side, .out = out, .out_stride = N};
            uint64_t begin = octet_now_ns();
            ck_assert_int_eq(oct_gemm_run(crew.workers[s][t], &cancel, &g, 1, &err),
                             OCTET_DEADLINE_EXCEEDED);
            ck_assert_uint_lt(octet_now_ns() - begin, 10000000000u);
        }
    free(data);
    free(zeros);
    free(out);
}
END_TEST

void add_gemm_tests(Suite *suite)
{
    TCase *tests = tcase_create("gemm");

    tcase_set_timeout(tests, 240);
    tcase_add_checked_fixture(tests, hire, dismiss);
    tcase_add_test(tests, all_types_and_layouts);
    tcase_add_test(tests, all_edges_of_tiles);
    tcase_add_test(tests, all_edges_of_blocks);
    tcase_add_test(tests, special_values);
    tcase_add_test(tests, several_chunks);
    tcase_add_test(tests, parts_of_packed_codes);
    tcase_add_test(tests, integers_wrap);
    tcase_add_test(tests, lists_share_the_workers);
    tcase_add_test(tests, nothing_to_do);
    tcase_add_test(tests, fast_products_may_have_a_set_of_their_own);
    tcase_add_test(tests, deadlines_are_noticed);
    suite_add_tcase(suite, tests);
}
