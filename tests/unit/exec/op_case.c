/* One op at a time; see op_case.h. */
#include "op_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"

enum { ALIGNMENT = 64, SCRATCH_DEFAULT = 64 << 10 };

/* Threads spin when they begin and end, so all cases share them. */
static struct {
    const char *set;
    int32_t threads;
    octet_workers *workers;
} kept[32];

octet_workers *op_case_workers(const char *set, int32_t threads)
{
    struct octet_error err;
    size_t i = 0;

    while (kept[i].workers && (kept[i].set != set || kept[i].threads != threads))
        i++;
    ck_assert_uint_lt(i + 1, sizeof kept / sizeof *kept);
    if (!kept[i].workers)
        ck_assert_int_eq(octet_workers_create(set, threads, &kept[i].workers, &err), OCTET_OK);
    kept[i].set = set;
    kept[i].threads = threads;
    return kept[i].workers;
}

void op_case_close(void)
{
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        octet_workers_destroy(kept[i].workers);
        kept[i].workers = NULL;
    }
}

void op_case_begin(struct op_case *c)
{
    memset(c, 0, sizeof *c);
    c->dice = 1;
    ck_assert_int_eq(octet_context_create(NULL, &c->context, &c->err), OCTET_OK);
    c->arena = octet_arena_create((size_t)1 << 30);
    c->compute = (struct octet_compute){c->arena, op_case_workers(NULL, 1), NULL};
    oct_builder_begin(&c->b, c->context, c->arena, NULL, &c->err);
    c->b.dtype = c->b.weight_dtype = OCTET_DTYPE_F32;
}

void op_case_end(struct op_case *c)
{
    octet_arena_destroy(c->arena);
    octet_context_destroy(c->context);
}

/* ---- Numbers ---- */

uint64_t op_case_roll(struct op_case *c)
{
    uint64_t z = c->dice += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

double op_case_normal(struct op_case *c)
{
    double sum = -6;

    for (int i = 0; i < 12; i++)
        sum += (double)(op_case_roll(c) >> 11) * 0x1p-53;
    return sum;
}

static float from_bf16(uint16_t code)
{
    uint32_t bits = (uint32_t)code << 16;
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint16_t to_bf16(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

double op_case_get(const struct octet_array *array, int64_t i)
{
    switch (array->dtype) {
    case OCTET_DTYPE_F32:
        return (double)((const float *)array->data)[i];
    case OCTET_DTYPE_BF16:
        return (double)from_bf16(((const uint16_t *)array->data)[i]);
    case OCTET_DTYPE_S32:
        return (double)((const int32_t *)array->data)[i];
    default:
        return (double)((const uint8_t *)array->data)[i];
    }
}

void op_case_set(struct octet_array *array, int64_t i, double value)
{
    switch (array->dtype) {
    case OCTET_DTYPE_F32:
        ((float *)array->data)[i] = (float)value;
        break;
    case OCTET_DTYPE_BF16:
        ((uint16_t *)array->data)[i] = to_bf16((float)value);
        break;
    default:
        ((int32_t *)array->data)[i] = (int32_t)value;
    }
}

void op_case_near(double value, double expected, double tolerance, const char *what, int64_t i)
{
    double most = tolerance * fmax(1, fabs(expected));

    /* Not ck_assert: it leaves a mark on each success, and there are millions. */
    if (value != expected && !(fabs(value - expected) <= most))
        ck_abort_msg("%s[%lld] is %.9g, expected %.9g", what, (long long)i, value, expected);
}

/* ---- Inputs ---- */

/* As a program's values lie: each at a multiple of 64. */
static void *aligned(struct op_case *c, size_t size)
{
    char *memory = octet_arena_alloc(c->arena, size + ALIGNMENT);

    ck_assert_ptr_nonnull(memory);
    return memory + (ALIGNMENT - (uintptr_t)memory % ALIGNMENT) % ALIGNMENT;
}

static struct octet_array array_of(struct op_case *c, enum octet_dtype dtype, int rank,
                                   const int64_t *dims)
{
    struct octet_array array = {.dtype = dtype, .rank = rank};

    if (rank)
        memcpy(array.dim, dims, (size_t)rank * sizeof *dims);
    array.data = aligned(c, (size_t)octet_array_bytes(&array));
    return array;
}

struct octet_array op_case_zeros(struct op_case *c, enum octet_dtype dtype, int rank,
                                 const int64_t *dims)
{
    return array_of(c, dtype, rank, dims);
}

static struct octet_array *add_input(struct op_case *c, enum octet_dtype dtype, int rank,
                                     const int64_t *dims, bool parameter)
{
    struct oct_dim named[OCTET_RANK_MAX] = {0};
    char *name = octet_arena_format(c->arena, "x%d", c->inputs);

    for (int i = 0; i < rank; i++)
        named[i] = OCT_DIM(dims[i], none);
    c->b.weight_dtype = dtype;
    c->x[c->inputs] = parameter ? oct_parameter(&c->b, name, rank, named)
                                : oct_input(&c->b, name, dtype, rank, named);
    c->in[c->inputs] = array_of(c, dtype, rank, dims);
    if (dtype == OCTET_DTYPE_F32 || dtype == OCTET_DTYPE_BF16)
        c->wanted |= 1u << c->inputs;
    return &c->in[c->inputs++];
}

static struct octet_array *randomized(struct op_case *c, struct octet_array *array,
                                      double deviation)
{
    for (int64_t i = 0, n = octet_array_elements(array); i < n; i++)
        op_case_set(array, i, deviation * op_case_normal(c));
    return array;
}

struct octet_array *op_case_input(struct op_case *c, enum octet_dtype dtype, int rank,
                                  const int64_t *dims)
{
    return add_input(c, dtype, rank, dims, false);
}

struct octet_array *op_case_random(struct op_case *c, enum octet_dtype dtype, int rank,
                                   const int64_t *dims, double deviation)
{
    return randomized(c, add_input(c, dtype, rank, dims, false), deviation);
}

struct octet_array *op_case_parameter(struct op_case *c, enum octet_dtype dtype, int rank,
                                      const int64_t *dims, double deviation)
{
    return randomized(c, add_input(c, dtype, rank, dims, true), deviation);
}

struct octet_array *op_case_values(struct op_case *c, enum octet_dtype dtype, int rank,
                                   const int64_t *dims, const double *values)
{
    struct octet_array *array = add_input(c, dtype, rank, dims, false);

    for (int64_t i = 0, n = octet_array_elements(array); i < n; i++)
        op_case_set(array, i, values[i]);
    return array;
}

/* ---- Running ---- */

static const struct oct_op_code *code_of(const struct op_case *c)
{
    return &oct_op_codes[c->node->op];
}

void op_case_made(struct op_case *c)
{
    ck_assert_msg(c->b.status == OCTET_OK, "%s", c->err.text);
    ck_assert_uint_eq(c->b.graph.node_count, 1);
    c->node = &c->b.graph.nodes[0];
    for (int i = 0; i < c->node->output_count; i++) {
        const struct octet_tensor *tensor = &c->b.graph.tensors[c->node->outputs[i]];
        bool number = tensor->dtype == OCTET_DTYPE_F32 || tensor->dtype == OCTET_DTYPE_BF16;
        c->out[i] =
            array_of(c, (enum octet_dtype)tensor->dtype, tensor->shape.rank, tensor->shape.dim);
        c->cotangent[i] = c->out[i];
        c->cotangent[i].data = NULL;
        if (number) {
            c->cotangent[i] = array_of(c, c->out[i].dtype, tensor->shape.rank, tensor->shape.dim);
            randomized(c, &c->cotangent[i], 1);
        }
    }
    for (int i = 0; i < c->inputs; i++) {
        const struct octet_tensor *tensor = &c->b.graph.tensors[c->x[i]];
        bool parameter = tensor->kind == OCTET_TENSOR_PARAMETER;
        c->gradient[i] = array_of(c, parameter ? OCTET_DTYPE_F32 : c->in[i].dtype,
                                  tensor->shape.rank, tensor->shape.dim);
    }
    if (!code_of(c)->vjp)
        c->wanted = 0;
    if (code_of(c)->saved_bytes && code_of(c)->vjp) {
        c->saved_bytes = code_of(c)->saved_bytes(&c->b.graph, c->node, c->rule);
        c->saved = aligned(c, c->saved_bytes + ALIGNMENT);
        memset((char *)c->saved + c->saved_bytes, 0xa5, ALIGNMENT);
    }
}

static struct oct_op_call call_of(struct op_case *c, bool backward)
{
    const struct oct_op_code *code = code_of(c);
    size_t scratch = code->scratch_bytes
                         ? code->scratch_bytes(&c->b.graph, c->node, c->rule, backward)
                         : SCRATCH_DEFAULT;
    struct oct_op_call call = {.execution = &c->execution,
                               .node = c->node,
                               .rule = c->rule,
                               .saved = c->saved,
                               .saved_bytes = c->saved_bytes,
                               .report = c->report};

    c->execution.compute = &c->compute;
    c->execution.graph = &c->b.graph;
    memcpy(call.in, c->in, sizeof call.in);
    memcpy(call.out, c->out, sizeof call.out);
    c->scratch = aligned_alloc(ALIGNMENT, (scratch / ALIGNMENT + 1) * ALIGNMENT);
    call.scratch = octet_arena_create_over(c->scratch, scratch, scratch);
    ck_assert_ptr_nonnull(call.scratch);
    return call;
}

static void end_call(struct op_case *c, struct oct_op_call *call)
{
    octet_arena_destroy(call->scratch);
    free(c->scratch);
}

static void fill(const struct octet_array *array)
{
    if (array->data)
        memset(array->data, 0xff, (size_t)octet_array_bytes(array));
}

static void check_saved(const struct op_case *c)
{
    for (size_t i = 0; c->saved && i < ALIGNMENT; i++)
        if (((const uint8_t *)c->saved)[c->saved_bytes + i] != 0xa5)
            ck_abort_msg("more was saved than saved_bytes said");
}

void op_case_forward(struct op_case *c)
{
    struct oct_op_call call = call_of(c, false);

    for (int i = 0; i < c->node->output_count; i++)
        fill(&c->out[i]);
    enum octet_status status = code_of(c)->forward(&call, &c->err);
    ck_assert_msg(status == OCTET_OK, "%s: %s", c->err.field, c->err.text);
    check_saved(c);
    end_call(c, &call);
}

/* As in a program, where the memory of what backward does not read may hold something else. */
static void hide_unread(const struct op_case *c, struct oct_op_call *call)
{
    int reads = code_of(c)->reads ? code_of(c)->reads(&c->b.graph, c->node, c->rule)
                                  : oct_op_rows[c->node->op].reads;

    for (int i = 0; i < c->inputs; i++)
        if (!(reads >> i & 1))
            call->in[i].data = NULL;
    for (int i = 0; i < c->node->output_count && !(reads & OUT); i++)
        call->out[i].data = NULL;
}

void op_case_backward(struct op_case *c)
{
    struct oct_op_call call = call_of(c, true);
    struct octet_array gradient[OCTET_NODE_INPUTS_MAX];

    hide_unread(c, &call);
    for (int i = 0; i < c->inputs; i++) {
        gradient[i] = c->gradient[i];
        if (c->wanted & 1u << i)
            fill(&gradient[i]);
        else
            gradient[i].data = NULL;
    }
    enum octet_status status = code_of(c)->vjp(&call, c->cotangent, gradient, &c->err);
    ck_assert_msg(status == OCTET_OK, "%s: %s", c->err.field, c->err.text);
    end_call(c, &call);
}

/* ---- Gradients ---- */

static double weighted_output(struct op_case *c)
{
    double sum = 0;

    op_case_forward(c);
    for (int o = 0; o < c->node->output_count; o++)
        for (int64_t i = 0, n = octet_array_elements(&c->out[o]); c->cotangent[o].data && i < n;
             i++)
            sum += op_case_get(&c->out[o], i) * op_case_get(&c->cotangent[o], i);
    return sum;
}

static void check_gradient(struct op_case *c, int input, double step, double tolerance)
{
    enum { ELEMENTS_MAX = 200 };
    struct octet_array *x = &c->in[input];
    const int64_t n = octet_array_elements(x), stride = n / ELEMENTS_MAX + 1;
    double largest = 1e-30;
    char what[32];

    snprintf(what, sizeof what, "gradient of input %d", input);
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(op_case_get(&c->gradient[input], i)));
    for (int64_t i = 0; i < n; i += stride) {
        double value = op_case_get(x, i);
        op_case_set(x, i, value + step);
        double right = op_case_get(x, i), above = weighted_output(c);
        op_case_set(x, i, value - step);
        double left = op_case_get(x, i), below = weighted_output(c);
        op_case_set(x, i, value);
        op_case_near(op_case_get(&c->gradient[input], i) / largest,
                     (above - below) / (right - left) / largest, tolerance, what, i);
    }
}

void op_case_check_gradients(struct op_case *c, double step, double tolerance)
{
    op_case_forward(c);
    op_case_backward(c);
    for (int i = 0; i < c->inputs; i++)
        if (c->wanted & 1u << i)
            check_gradient(c, i, step, tolerance);
}

/* ---- Bits ---- */

struct snapshot {
    void *data;
    const struct octet_array *of;
};

static size_t snapshots(struct op_case *c, struct snapshot *list)
{
    size_t count = 0;

    for (int i = 0; i < c->node->output_count; i++)
        list[count++].of = &c->out[i];
    for (int i = 0; i < c->inputs; i++)
        if (c->wanted & 1u << i)
            list[count++].of = &c->gradient[i];
    return count;
}

static void run_both(struct op_case *c)
{
    op_case_forward(c);
    if (c->wanted)
        op_case_backward(c);
}

static void same_bits(struct op_case *c, const struct snapshot *list, size_t count, const char *set,
                      int32_t threads)
{
    c->compute.workers = op_case_workers(set, threads);
    run_both(c);
    for (size_t i = 0; i < count; i++)
        ck_assert_msg(
            memcmp(list[i].data, list[i].of->data, (size_t)octet_array_bytes(list[i].of)) == 0,
            "%s of %s with %d threads has other bits",
            i < c->node->output_count ? "an output" : "a gradient", set ? set : "the best",
            threads);
}

/* Kernels and threads have nothing to do with one another, so not each pair of them is run. */
void op_case_check_bits(struct op_case *c)
{
    static const int32_t threads[] = {7, 1, 2};
    struct snapshot list[2 + OCTET_NODE_INPUTS_MAX];
    const char *name;
    size_t count = snapshots(c, list);

    run_both(c);
    for (size_t i = 0; i < count; i++) {
        size_t bytes = (size_t)octet_array_bytes(list[i].of);
        list[i].data = memcpy(aligned(c, bytes), list[i].of->data, bytes);
    }
    for (size_t s = 0; (name = octet_kernel_set_name(s)); s++)
        if (!octet_kernel_set_obstacle(s))
            same_bits(c, list, count, name, threads[s % 3]);
    for (int t = 0; t < 3; t++)
        same_bits(c, list, count, NULL, threads[t]);
}
