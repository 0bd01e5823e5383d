/* Attention: as one op, and as softmax and division by themselves.
 * What could break: a mask (segments, padding, windows, ids that come back) that lets a key through
 * or hides one, a block of queries or keys that is left out or taken twice, heads that share keys,
 * rounding that differs between the two ways, memory that grows with the square of the length.
 * Results are compared with a direct computation in double, gradients with its differences. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/float_env.h"
#include "kernels/gemm.h"
#include "kernels/kernels.h"
#include "op_case.h"
#include "suite.h"

enum documents { ONE, PACKED, RECURRING, SINGLES };

struct shape {
    int64_t batch, kv, g, length, d, v, window;
    double cap;
    bool sinks;
    enum documents documents;
};

static const struct shape shapes[] = {
    {2, 2, 1, 17, 8, 6, 0, 0, false, PACKED},     {1, 1, 3, 33, 5, 7, 0, 0, false, ONE},
    {2, 1, 4, 1, 8, 8, 0, 0, false, ONE},         {2, 2, 2, 150, 16, 8, 0, 0, false, PACKED},
    {1, 1, 1, 300, 8, 8, 20, 0, false, ONE},      {1, 1, 2, 600, 4, 4, 70, 0, false, PACKED},
    {1, 2, 2, 40, 8, 8, 0, 2, false, PACKED},     {1, 2, 2, 40, 8, 8, 9, 0, true, RECURRING},
    {1, 1, 2, 130, 4, 4, 0, 1.5, true, PACKED},   {2, 1, 1, 64, 8, 8, 0, 0, false, SINGLES},
    {1, 3, 1, 257, 8, 4, 0, 0, false, RECURRING}, {1, 1, 1, 37, 300, 270, 0, 0, false, ONE},
    {1, 1, 40, 9, 8, 8, 0, 0, true, ONE},         {1, 2, 1, 530, 6, 10, 40, 0, false, PACKED}};
enum { SHAPES = sizeof shapes / sizeof shapes[0], INPUTS = 6, THREADS_MAX = 7, WIDTH_MAX = 300 };

struct attention {
    struct op_case c; /* for its arena, its numbers and its workers */
    struct shape s;
    struct oct_node node;
    struct oct_attention_call call;
    struct octet_array cotangent, gradient[INPUTS];
    size_t scratch_bytes[2];
};

static int32_t segment(const struct shape *s, int64_t i)
{
    switch (s->documents) {
    case ONE:
        return 1;
    case PACKED: /* three documents and padding */
        return i < s->length / 3 ? 1 : i < s->length / 2 ? 2 : i < s->length * 4 / 5 ? 3 : 0;
    case RECURRING:
        return (int32_t)(i / 5 % 3);
    default:
        return (int32_t)i + 1;
    }
}

static struct octet_array made(struct attention *a, enum octet_dtype dtype, int rank,
                               const int64_t *dims, double deviation)
{
    struct octet_array array = op_case_zeros(&a->c, dtype, rank, dims);

    for (int64_t i = 0; i < octet_array_elements(&array); i++)
        op_case_set(&array, i, deviation * op_case_normal(&a->c));
    return array;
}

static void begin(struct attention *a, const struct shape *s, enum octet_dtype dtype)
{
    struct octet_array *in = a->call.call.in;

    memset(a, 0, sizeof *a);
    op_case_begin(&a->c);
    a->s = *s;
    a->node = (struct oct_node){.op = OCT_OP_attention_softmax,
                                .input_count = s->sinks ? 4 : 3,
                                .attributes.softmax = {s->window, (float)s->cap}};
    in[0] = made(a, dtype, 5, (int64_t[]){s->batch, s->length, s->kv, s->g, s->d},
                 s->d > 16 ? 2 / sqrt((double)s->d) : 0.6);
    in[1] = made(a, dtype, 4, (int64_t[]){s->batch, s->length, s->kv, s->d}, 1);
    in[2] = made(a, dtype, 4, (int64_t[]){s->batch, s->length, s->kv, s->v}, 1);
    in[3] = made(a, OCTET_DTYPE_S32, 2, (int64_t[]){s->batch, s->length}, 0);
    in[4] = made(a, OCTET_DTYPE_S32, 2, (int64_t[]){s->batch, s->length}, 0);
    in[5] = made(a, OCTET_DTYPE_F32, 1, (int64_t[]){s->kv * s->g}, 1);
    for (int64_t i = 0; i < s->batch * s->length; i++)
        op_case_set(&in[3], i, segment(s, i % s->length));
    a->call.call.out[0] = made(a, dtype, 5, (int64_t[]){s->batch, s->length, s->kv, s->g, s->v}, 0);
    a->cotangent = made(a, dtype, 5, a->call.call.out[0].dim, 1);
    for (int i = 0; i < INPUTS; i++)
        if (i < 3 || (i == 5 && s->sinks))
            a->gradient[i] = made(a, in[i].dtype, in[i].rank, in[i].dim, 0);
    a->call.call.node = &a->node;
    a->call.call.execution = &a->c.execution;
    a->c.execution.compute = &a->c.compute;
    a->call.product_dtype = a->call.scores_dtype = dtype;
    size_t saved = oct_attention_saved_bytes(s->batch, s->kv * s->g, s->length);
    a->call.call.saved = op_case_zeros(&a->c, OCTET_DTYPE_U8, 1, (int64_t[]){(int64_t)saved}).data;
    for (int backward = 0; backward < 2; backward++)
        a->scratch_bytes[backward] =
            oct_attention_scratch_bytes(&in[0], &in[2], backward, THREADS_MAX);
}

static octet_arena *scratch(struct attention *a, bool backward, void **memory)
{
    const size_t bytes = a->scratch_bytes[backward];

    *memory = aligned_alloc(64, (bytes / 64 + 1) * 64);
    return octet_arena_create_over(*memory, bytes, bytes);
}

static void run(struct attention *a)
{
    for (int backward = 0; backward < 2; backward++) {
        void *memory;
        a->call.call.scratch = scratch(a, backward, &memory);
        struct oct_float_env env = oct_float_env_enter();
        enum octet_status status =
            backward ? oct_attention_vjp(&a->call, &a->cotangent, a->gradient, &a->c.err)
                     : oct_attention_forward(&a->call, &a->c.err);
        oct_float_env_leave(env);
        ck_assert_msg(status == OCTET_OK, "%s: %s", a->c.err.field, a->c.err.text);
        octet_arena_destroy(a->call.call.scratch);
        free(memory);
    }
}

/* ---- A direct computation in double ---- */

static bool sees(const struct attention *a, int64_t query, int64_t key)
{
    return key <= query && segment(&a->s, key) == segment(&a->s, query) &&
           (a->s.window == 0 || key > query - a->s.window);
}

static double score(const struct attention *a, int64_t b, int64_t head, int64_t query, int64_t key)
{
    const struct shape *s = &a->s;
    const struct octet_array *in = a->call.call.in;
    int64_t q = ((b * s->length + query) * s->kv * s->g + head) * s->d;
    int64_t k = ((b * s->length + key) * s->kv + head / s->g) * s->d;
    double sum = 0;

    for (int64_t i = 0; i < s->d; i++)
        sum += op_case_get(&in[0], q + i) * op_case_get(&in[1], k + i);
    return s->cap > 0 ? s->cap * tanh(sum / s->cap) : sum;
}

/* out [v] of one row */
static void expected_row(const struct attention *a, int64_t b, int64_t head, int64_t query,
                         double *out)
{
    const struct shape *s = &a->s;
    double most = s->sinks ? op_case_get(&a->call.call.in[5], head) : -INFINITY, sum, *p;

    p = calloc((size_t)s->length, sizeof *p);
    for (int64_t key = 0; key < s->length; key++) {
        p[key] = sees(a, query, key) ? score(a, b, head, query, key) : -INFINITY;
        most = fmax(most, p[key]);
    }
    sum = s->sinks ? exp(op_case_get(&a->call.call.in[5], head) - most) : 0;
    for (int64_t key = 0; key < s->length; key++)
        sum += p[key] = exp(p[key] - most);
    for (int64_t i = 0; i < s->v; i++) {
        out[i] = 0;
        for (int64_t key = 0; key < s->length; key++)
            out[i] += p[key] / sum *
                      op_case_get(&a->call.call.in[2],
                                  ((b * s->length + key) * s->kv + head / s->g) * s->v + i);
    }
    free(p);
}

/* sum of cotangent * out over the rows that an element of an input can change. */
static double objective(const struct attention *a, int64_t batch, int64_t first_head,
                        int64_t end_head, int64_t first, int64_t end)
{
    const struct shape *s = &a->s;
    double sum = 0, out[WIDTH_MAX];

    for (int64_t head = first_head; head < end_head; head++)
        for (int64_t query = first; query < end; query++) {
            expected_row(a, batch, head, query, out);
            for (int64_t i = 0; i < s->v; i++)
                sum += out[i] *
                       op_case_get(&a->cotangent,
                                   ((batch * s->length + query) * s->kv * s->g + head) * s->v + i);
        }
    return sum;
}

static double touched(const struct attention *a, int input, int64_t i)
{
    const struct shape *s = &a->s;
    double sum = 0;

    if (input == 5) {
        for (int64_t b = 0; b < s->batch; b++)
            sum += objective(a, b, i, i + 1, 0, s->length);
        return sum;
    }
    const int64_t width = input == 0 ? s->d * s->g : input == 1 ? s->d : s->v;
    const int64_t kv = i / width % s->kv, token = i / width / s->kv % s->length;
    const int64_t end = input == 0 ? token + 1 : s->length;
    return objective(a, i / width / s->kv / s->length, kv * s->g, (kv + 1) * s->g, token, end);
}

static void check_gradient(struct attention *a, int input, double tolerance)
{
    struct octet_array *x = &a->call.call.in[input];
    const int64_t n = octet_array_elements(x), stride = n / 12 + 1;

    for (int64_t i = 0; i < n; i += stride) {
        const double value = op_case_get(x, i), step = 0x1p-9;
        op_case_set(x, i, value + step);
        const double right = op_case_get(x, i);
        double difference = touched(a, input, i);
        op_case_set(x, i, value - step);
        const double left = op_case_get(x, i);
        difference -= touched(a, input, i);
        op_case_set(x, i, value);
        op_case_near(op_case_get(&a->gradient[input], i), difference / (right - left), tolerance,
                     "gradient", i);
    }
}

static void check_output(struct attention *a, double tolerance)
{
    const struct shape *s = &a->s;

    for (int64_t row = 0; row < s->batch * s->length * s->kv * s->g; row++) {
        double want[WIDTH_MAX];
        const int64_t head = row % (s->kv * s->g), token = row / (s->kv * s->g);
        if (s->length > 100 && token % 7)
            continue;
        expected_row(a, token / s->length, head, token % s->length, want);
        for (int64_t i = 0; i < s->v; i++)
            op_case_near(op_case_get(&a->call.call.out[0], row * s->v + i), want[i], tolerance,
                         "output", row * s->v + i);
    }
}

START_TEST(follows_the_definition)
{
    struct attention a;

    begin(&a, &shapes[_i], OCTET_DTYPE_F32);
    run(&a);
    check_output(&a, 3e-6);
    for (int input = 0; input < INPUTS; input++)
        if (a.gradient[input].data)
            check_gradient(&a, input, 3e-5);
    op_case_end(&a.c);
}
END_TEST

START_TEST(follows_the_definition_in_bf16)
{
    struct attention a;

    begin(&a, &shapes[_i], OCTET_DTYPE_BF16);
    run(&a);
    check_output(&a, 3e-2);
    op_case_end(&a.c);
}
END_TEST

/* Gradients of a bf16 run against those of an f32 run of the same numbers, as a whole. */
START_TEST(gradients_in_bf16)
{
    struct attention a, b;
    double difference, size;

    begin(&a, &shapes[_i], OCTET_DTYPE_BF16);
    begin(&b, &shapes[_i], OCTET_DTYPE_F32);
    for (int input = 0; input < 3; input++)
        for (int64_t i = 0; i < octet_array_elements(&a.call.call.in[input]); i++)
            op_case_set(&b.call.call.in[input], i, op_case_get(&a.call.call.in[input], i));
    for (int64_t i = 0; i < octet_array_elements(&a.cotangent); i++)
        op_case_set(&b.cotangent, i, op_case_get(&a.cotangent, i));
    run(&a);
    run(&b);
    for (int input = 0; input < INPUTS; input++) {
        difference = size = 0;
        for (int64_t i = 0; a.gradient[input].data && i < octet_array_elements(&a.gradient[input]);
             i++) {
            double got = op_case_get(&a.gradient[input], i);
            double want = op_case_get(&b.gradient[input], i);
            difference += (got - want) * (got - want);
            size += want * want;
        }
        ck_assert_msg(sqrt(difference) <= 0.03 * sqrt(size) + 1e-6, "input %d: %g of %g", input,
                      sqrt(difference), sqrt(size));
    }
    op_case_end(&a.c);
    op_case_end(&b.c);
}
END_TEST

/* ---- Bits ---- */

static void *copied(const struct octet_array *array)
{
    const size_t bytes = (size_t)octet_array_bytes(array);
    void *copy = malloc(bytes ? bytes : 1);

    return memcpy(copy, array->data, bytes);
}

START_TEST(sets_and_threads_agree)
{
    static const int32_t threads[] = {1, 2, 7};

    for (int d = 0; d < 2; d++) {
        struct attention a;
        void *want[1 + INPUTS] = {0};
        const char *name;
        begin(&a, &shapes[_i], d ? OCTET_DTYPE_BF16 : OCTET_DTYPE_F32);
        run(&a);
        want[INPUTS] = copied(&a.call.call.out[0]);
        for (int i = 0; i < INPUTS; i++)
            want[i] = a.gradient[i].data ? copied(&a.gradient[i]) : NULL;
        for (size_t s = 0; (name = octet_kernel_set_name(s)); s++)
            for (size_t t = 0; !octet_kernel_set_obstacle(s) && t < 3; t++) {
                a.c.compute.workers = op_case_workers(name, threads[t]);
                run(&a);
                ck_assert_msg(!memcmp(want[INPUTS], a.call.call.out[0].data,
                                      (size_t)octet_array_bytes(&a.call.call.out[0])),
                              "output of %s with %d threads", name, threads[t]);
                for (int i = 0; i < INPUTS; i++)
                    ck_assert_msg(!want[i] || !memcmp(want[i], a.gradient[i].data,
                                                      (size_t)octet_array_bytes(&a.gradient[i])),
                                  "gradient %d of %s with %d threads", i, name, threads[t]);
            }
        for (int i = 0; i <= INPUTS; i++)
            free(want[i]);
        op_case_end(&a.c);
    }
}
END_TEST

/* ---- The ops by themselves ---- */

/* All rows of one (b, kv), [g, t] outermost first, of a [.., kv, g, width] array. */
static struct oct_gemm_side rows_side(const struct octet_array *array, const struct shape *s,
                                      int64_t b, int64_t head, int64_t heads, int64_t width,
                                      bool swap)
{
    const float *data = (const float *)array->data + (b * s->length * heads + head) * width;
    const int64_t row = heads * width;

    return (struct oct_gemm_side){.dtype = OCTET_DTYPE_F32,
                                  .data = data,
                                  .free_stride = swap ? 1 : row,
                                  .depth_stride = swap ? row : 1};
}

static void multiply(struct attention *a, int64_t m, int64_t n, int64_t k, struct oct_gemm_side lhs,
                     struct oct_gemm_side rhs, float *out, int64_t out_stride)
{
    struct oct_gemm gemm = {
        .m = m, .n = n, .k = k, .lhs = lhs, .rhs = rhs, .out = out, .out_stride = out_stride};

    ck_assert_int_eq(oct_gemm_run(a->c.compute.workers, NULL, &gemm, 1, &a->c.err), OCTET_OK);
}

static struct oct_gemm_side plain_side(const float *data, int64_t row, bool swap)
{
    return (struct oct_gemm_side){.dtype = OCTET_DTYPE_F32,
                                  .data = data,
                                  .free_stride = swap ? 1 : row,
                                  .depth_stride = swap ? row : 1};
}

/* Scores -> softmax -> values -> division, each by itself, with memory of its own. */
struct unfused {
    struct octet_graph graph;
    struct octet_tensor tensors[3];
    struct oct_node normalize;
    struct oct_op_call softmax_call, normalize_call;
    struct octet_array scores, exps, sums, values, out;
};

static void run_op(struct attention *a, struct oct_op_call *call,
                   const struct octet_array *cotangent, struct octet_array *gradient)
{
    const struct oct_op_code *code = &oct_op_codes[call->node->op];
    size_t bytes = code->scratch_bytes ? code->scratch_bytes(a->c.execution.graph, call->node, NULL,
                                                             gradient != NULL)
                                       : 65536;
    enum octet_status status;

    call->scratch = octet_arena_create(bytes + 4096);
    struct oct_float_env env = oct_float_env_enter();
    status =
        gradient ? code->vjp(call, cotangent, gradient, &a->c.err) : code->forward(call, &a->c.err);
    oct_float_env_leave(env);
    ck_assert_msg(status == OCTET_OK, "%s: %s", a->c.err.field, a->c.err.text);
    octet_arena_destroy(call->scratch);
}

static void prepare_unfused(struct attention *a, struct unfused *u)
{
    const struct shape *s = &a->s;

    memset(u, 0, sizeof *u);
    u->scores =
        made(a, OCTET_DTYPE_F32, 5, (int64_t[]){s->batch, s->kv, s->g, s->length, s->length}, 0);
    u->exps = made(a, OCTET_DTYPE_F32, 5, u->scores.dim, 0);
    u->sums = made(a, OCTET_DTYPE_F32, 5, (int64_t[]){s->batch, s->length, s->kv, s->g, 1}, 0);
    u->values = made(a, OCTET_DTYPE_F32, 5, a->call.call.out[0].dim, 0);
    u->out = made(a, OCTET_DTYPE_F32, 5, a->call.call.out[0].dim, 0);
    u->graph.tensors = u->tensors;
    u->tensors[1].shape.rank = 5;
    memcpy(u->tensors[1].shape.dim, u->scores.dim, 5 * sizeof(int64_t));
    a->node.inputs[0] = 1;
    a->c.execution.graph = &u->graph;
    u->softmax_call = (struct oct_op_call){
        .execution = &a->c.execution,
        .node = &a->node,
        .in = {u->scores, a->call.call.in[3], a->call.call.in[4], a->call.call.in[5]},
        .out = {u->exps, u->sums}};
    size_t saved = oct_op_codes[a->node.op].saved_bytes(&u->graph, &a->node, NULL);
    u->softmax_call.saved =
        op_case_zeros(&a->c, OCTET_DTYPE_U8, 1, (int64_t[]){(int64_t)saved}).data;
    u->normalize = (struct oct_node){.op = OCT_OP_attention_normalize, .input_count = 2};
    u->normalize_call = (struct oct_op_call){.execution = &a->c.execution,
                                             .node = &u->normalize,
                                             .in = {u->values, u->sums},
                                             .out = {u->out}};
}

static float *head_of(const struct attention *a, const struct octet_array *scores, int64_t b,
                      int64_t head)
{
    const struct shape *s = &a->s;
    return (float *)scores->data + (b * s->kv * s->g + head) * s->length * s->length;
}

static void forward_unfused(struct attention *a, struct unfused *u)
{
    const struct shape *s = &a->s;
    const int64_t heads = s->kv * s->g, n = s->length;

    for (int64_t i = 0; i < s->batch * heads; i++)
        multiply(a, n, n, s->d,
                 rows_side(&a->call.call.in[0], s, i / heads, i % heads, heads, s->d, false),
                 rows_side(&a->call.call.in[1], s, i / heads, i % heads / s->g, s->kv, s->d, false),
                 head_of(a, &u->scores, i / heads, i % heads), n);
    run_op(a, &u->softmax_call, NULL, NULL);
    for (int64_t i = 0; i < s->batch * heads; i++)
        multiply(a, n, s->v, n, plain_side(head_of(a, &u->exps, i / heads, i % heads), n, false),
                 rows_side(&a->call.call.in[2], s, i / heads, i % heads / s->g, s->kv, s->v, true),
                 (float *)u->values.data + (i / heads * n * heads + i % heads) * s->v,
                 heads * s->v);
    run_op(a, &u->normalize_call, NULL, NULL);
}

START_TEST(fused_gives_the_bits_of_its_parts)
{
    struct attention a;
    struct unfused u;

    begin(&a, &shapes[_i], OCTET_DTYPE_F32);
    prepare_unfused(&a, &u);
    run(&a);
    struct oct_float_env env = oct_float_env_enter();
    forward_unfused(&a, &u);
    oct_float_env_leave(env);
    ck_assert(memcmp(u.out.data, a.call.call.out[0].data, (size_t)octet_array_bytes(&u.out)) == 0);
    op_case_end(&a.c);
}
END_TEST

/* The gradients of scores, sums and sinks, by hand where a product stands between. */
START_TEST(gradients_of_the_parts_agree)
{
    struct attention a;
    struct unfused u;

    begin(&a, &shapes[_i], OCTET_DTYPE_F32);
    prepare_unfused(&a, &u);
    run(&a);
    const struct shape *s = &a.s;
    const int64_t heads = s->kv * s->g, n = s->length;
    struct octet_array d_values = made(&a, OCTET_DTYPE_F32, 5, u.values.dim, 0);
    struct octet_array d_exps[2] = {made(&a, OCTET_DTYPE_F32, 5, u.scores.dim, 0),
                                    made(&a, OCTET_DTYPE_F32, 5, u.sums.dim, 0)};
    struct octet_array d_scores[4] = {made(&a, OCTET_DTYPE_F32, 5, u.scores.dim, 0)};
    struct octet_array d_query = made(&a, OCTET_DTYPE_F32, 5, a.call.call.in[0].dim, 0);
    if (s->sinks)
        d_scores[3] = made(&a, OCTET_DTYPE_F32, 1, a.call.call.in[5].dim, 0);
    struct oct_float_env env = oct_float_env_enter();
    forward_unfused(&a, &u);
    run_op(&a, &u.normalize_call, &a.cotangent, (struct octet_array[]){d_values, d_exps[1]});
    for (int64_t i = 0; i < s->batch * heads; i++)
        multiply(&a, n, n, s->v, rows_side(&d_values, s, i / heads, i % heads, heads, s->v, false),
                 rows_side(&a.call.call.in[2], s, i / heads, i % heads / s->g, s->kv, s->v, false),
                 head_of(&a, &d_exps[0], i / heads, i % heads), n);
    run_op(&a, &u.softmax_call, d_exps, d_scores);
    for (int64_t i = 0; i < s->batch * heads; i++)
        multiply(&a, n, s->d, n,
                 plain_side(head_of(&a, &d_scores[0], i / heads, i % heads), n, false),
                 rows_side(&a.call.call.in[1], s, i / heads, i % heads / s->g, s->kv, s->d, true),
                 (float *)d_query.data + (i / heads * n * heads + i % heads) * s->d, heads * s->d);
    oct_float_env_leave(env);
    for (int64_t i = 0; i < octet_array_elements(&d_query); i++)
        op_case_near(op_case_get(&a.gradient[0], i), op_case_get(&d_query, i),
                     s->v > 16 ? 1e-5 : 2e-6, "query", i);
    for (int64_t i = 0; s->sinks && i < heads; i++)
        op_case_near(op_case_get(&a.gradient[5], i), op_case_get(&d_scores[3], i), 1e-5, "sink", i);
    op_case_end(&a.c);
}
END_TEST

/* ---- Memory ---- */

START_TEST(memory_grows_with_the_length)
{
    for (int backward = 0; backward < 2; backward++) {
        size_t before = 0;
        for (int64_t length = 1 << 12; length <= 1 << 20; length *= 2) {
            struct octet_array query = {OCTET_DTYPE_BF16, 5, {1, length, 8, 1, 128}, NULL};
            struct octet_array value = {OCTET_DTYPE_BF16, 4, {1, length, 8, 128}, NULL};
            size_t bytes = oct_attention_scratch_bytes(&query, &value, backward, 2);
            ck_assert_uint_lt(bytes, ((size_t)16 << 20) + (size_t)length * 8 * 1400);
            ck_assert(before == 0 || bytes < 2 * before + 65536);
            before = bytes;
        }
    }
}
END_TEST

/* ---- Long sequences, in the memory that was promised (run's arena has no more) ---- */

/* Of one head without sinks and caps: probabilities of a row, and what flows back into its scores.
 */
static void direct_row(const struct attention *a, int64_t query, double *p, double *ds)
{
    const struct shape *s = &a->s;
    double most = -INFINITY, sum = 0, mean = 0;

    for (int64_t key = 0; key <= query; key++) {
        p[key] = sees(a, query, key) ? score(a, 0, 0, query, key) : -INFINITY;
        most = fmax(most, p[key]);
    }
    for (int64_t key = 0; key <= query; key++)
        sum += p[key] = exp(p[key] - most);
    for (int64_t key = 0; key <= query; key++) {
        p[key] /= sum;
        ds[key] = 0;
        for (int64_t i = 0; i < s->v; i++)
            ds[key] += op_case_get(&a->cotangent, query * s->v + i) *
                       op_case_get(&a->call.call.in[2], key * s->v + i);
        mean += p[key] * ds[key];
    }
    for (int64_t key = 0; key <= query; key++)
        ds[key] = p[key] * (ds[key] - mean);
}

/* Gradients of the keys from `first` on, which only the queries from there on see. */
static void check_last_keys(struct attention *a, int64_t first, double tolerance)
{
    const struct shape *s = &a->s;
    const int64_t n = s->length - first;
    double *p = calloc((size_t)s->length, sizeof *p), *ds = calloc((size_t)s->length, sizeof *ds);
    double *d_key = calloc((size_t)(n * s->d), sizeof *d_key);
    double *d_value = calloc((size_t)(n * s->v), sizeof *d_value);

    for (int64_t query = first; query < s->length; query++) {
        direct_row(a, query, p, ds);
        for (int64_t key = first; key <= query; key++) {
            for (int64_t i = 0; i < s->d; i++)
                d_key[(key - first) * s->d + i] +=
                    ds[key] * op_case_get(&a->call.call.in[0], query * s->d + i);
            for (int64_t i = 0; i < s->v; i++)
                d_value[(key - first) * s->v + i] +=
                    p[key] * op_case_get(&a->cotangent, query * s->v + i);
        }
    }
    for (int64_t i = 0; i < n * s->d; i++)
        op_case_near(op_case_get(&a->gradient[1], first * s->d + i), d_key[i], tolerance, "key", i);
    for (int64_t i = 0; i < n * s->v; i++)
        op_case_near(op_case_get(&a->gradient[2], first * s->v + i), d_value[i], tolerance, "value",
                     i);
    free(p);
    free(ds);
    free(d_key);
    free(d_value);
}

static void check_query(struct attention *a, int64_t query, double tolerance)
{
    const struct shape *s = &a->s;
    double *p = calloc((size_t)s->length, sizeof *p), *ds = calloc((size_t)s->length, sizeof *ds);

    direct_row(a, query, p, ds);
    for (int64_t i = 0; i < s->v; i++) {
        double out = 0;
        for (int64_t key = 0; key <= query; key++)
            out += p[key] * op_case_get(&a->call.call.in[2], key * s->v + i);
        op_case_near(op_case_get(&a->call.call.out[0], query * s->v + i), out, tolerance, "output",
                     query);
    }
    for (int64_t i = 0; i < s->d; i++) {
        double d_query = 0;
        for (int64_t key = 0; key <= query; key++)
            d_query += ds[key] * op_case_get(&a->call.call.in[1], key * s->d + i);
        op_case_near(op_case_get(&a->gradient[0], query * s->d + i), d_query, tolerance, "query",
                     query);
    }
    free(p);
    free(ds);
}

static const struct {
    struct shape shape;
    int64_t first_key; /* gradients of keys are looked at from here on */
} long_cases[] = {{{1, 1, 1, 4097, 6, 5, 0, 0, false, ONE}, 0},
                  {{1, 1, 1, 4097, 6, 5, 777, 0, false, PACKED}, 0},
                  {{1, 1, 1, 32768, 4, 4, 0, 0, false, ONE}, 32700}};
enum { LONG_CASES = sizeof long_cases / sizeof long_cases[0] };

START_TEST(long_sequences)
{
    const struct shape *s = &long_cases[_i].shape;
    struct attention a;

    begin(&a, s, OCTET_DTYPE_F32);
    a.c.compute.workers = op_case_workers(NULL, 2);
    run(&a);
    for (int64_t query = 0; query < s->length; query += 311)
        check_query(&a, query, 3e-5);
    check_query(&a, s->length - 1, 3e-5);
    check_last_keys(&a, long_cases[_i].first_key, 3e-5);
    op_case_end(&a.c);
}
END_TEST

TCase *attention_tests(void)
{
    TCase *tests = tcase_create("attention");

    tcase_set_timeout(tests, 240);
    tcase_add_loop_test(tests, follows_the_definition, 0, SHAPES);
    tcase_add_loop_test(tests, follows_the_definition_in_bf16, 0, SHAPES);
    tcase_add_loop_test(tests, gradients_in_bf16, 0, SHAPES);
    tcase_add_loop_test(tests, sets_and_threads_agree, 0, SHAPES);
    tcase_add_loop_test(tests, fused_gives_the_bits_of_its_parts, 0, SHAPES);
    tcase_add_loop_test(tests, gradients_of_the_parts_agree, 0, SHAPES);
    tcase_add_test(tests, memory_grows_with_the_length);
    tcase_add_loop_test(tests, long_sequences, 0, LONG_CASES);
    return tests;
}
