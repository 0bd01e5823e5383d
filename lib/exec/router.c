/* Router: which experts a token goes to, with which weights, and how evenly tokens are spread.
 *
 * Source: MaxText, layers/moe.py (get_topk, deepseek_routing, expert_group_mask,
 * deepseek_scale_weights, load_balance_loss). The weights are computed in f32 and rounded once;
 * MaxText rounds to bfloat16 in between where XLA does not fuse. What is saved for backward is the
 * weights in f32 and what they were divided by, so that backward reads no scores. */
#include <string.h>

#include "base/float_env.h"
#include "exec/moe.h"
#include "exec/piece.h"
#include "kernels/math.h"

static int64_t last_dim(const struct octet_array *x)
{
    return x->dim[x->rank - 1];
}

/* ---- top_k ---- */

/* Scores as integers in the order of the numbers: -NaN < -Inf < ... < -0 < +0 < ... < Inf < NaN, as
 * XLA's TopK compares; so the order is total, and the indices are distinct whatever the scores. */
static int32_t rank_of(float score)
{
    int32_t bits;

    memcpy(&bits, &score, sizeof bits);
    return bits < 0 ? INT32_MIN - bits - 1 : bits;
}

/* The k best of scores, best first; of equals the lower index first. allowed: a flag for each group
 * of `group` neighbours; those of other groups count as -Inf. NULL: all. */
static void choose(const float *scores, int32_t experts, const bool *allowed, int32_t group,
                   int32_t k, int32_t *chosen)
{
    int32_t count = 0;

    for (int32_t e = 0; e < experts; e++) {
        float score = allowed && !allowed[e / group] ? -__builtin_inff() : scores[e];
        int32_t rank = rank_of(score), at = count;
        for (; at > 0; at--) {
            int32_t other = chosen[at - 1];
            bool masked = allowed && !allowed[other / group];
            if (rank_of(masked ? -__builtin_inff() : scores[other]) >= rank)
                break;
        }
        if (at == k)
            continue;
        count += count < k;
        memmove(chosen + at + 1, chosen + at, (size_t)(count - 1 - at) * sizeof *chosen);
        chosen[at] = e;
    }
}

enum { GROUPS_MAX = 1024 };

/* A group's rating is the sum of its two best scores. */
static void choose_groups(const float *scores, int32_t experts, int32_t groups, int32_t kept,
                          bool *allowed)
{
    const int32_t size = experts / groups;
    float rating[GROUPS_MAX];
    int32_t best[GROUPS_MAX];

    for (int32_t g = 0; g < groups; g++) {
        int32_t two[2];
        choose(scores + g * size, size, NULL, 1, 2, two);
        rating[g] = scores[g * size + two[0]] + scores[g * size + two[1]];
        allowed[g] = false;
    }
    choose(rating, groups, NULL, 1, kept, best);
    for (int32_t i = 0; i < kept; i++)
        allowed[best[i]] = true;
}

struct routing {
    const struct oct_op_call *call;
    const struct oct_kernels *kernels;
    const struct octet_array *cotangent, *gradient;
    const struct octet_array *values; /* the scores that become weights */
    int32_t experts, k, groups, groups_kept;
    bool softmax, normalize;
    float scaling;
    float *saved; /* a row: k weights before scaling, then the divisor; or NULL */
};

static struct routing routing_of(const struct oct_op_call *call)
{
    const union oct_attributes *a = &call->node->attributes;

    return (struct routing){.call = call,
                            .kernels = oct_call_kernels(call),
                            .values = &call->in[call->node->input_count - 1],
                            .experts = (int32_t)last_dim(&call->in[0]),
                            .k = a->top_k.k,
                            .groups = a->top_k.groups,
                            .groups_kept = a->top_k.groups_kept,
                            .softmax = a->top_k.softmax_weights,
                            .normalize = a->top_k.normalize,
                            .scaling = a->top_k.scaling,
                            .saved = call->saved};
}

/* w: the chosen scores, made weights before scaling. Returns what they were divided by at last. */
static float weigh(const struct routing *r, float *w)
{
    const struct oct_math *math = r->kernels->math;
    const size_t k = (size_t)r->k;
    float divisor = 1;

    if (r->softmax) {
        float sum = math->exp_sum(k, w, math->maximum(k, w), w);
        for (size_t i = 0; i < k; i++)
            w[i] /= sum;
    }
    if (r->normalize) {
        divisor = math->sum(k, w);
        if (!r->softmax)
            divisor += 1e-20f; /* DeepSeek's guard against scores that are all zero */
        for (size_t i = 0; i < k; i++)
            w[i] /= divisor;
    }
    return divisor;
}

enum { EXPERTS_MAX = OCT_PIECE };

static void route_row(const struct routing *r, int64_t row)
{
    float buffer[EXPERTS_MAX], other[EXPERTS_MAX], w[EXPERTS_MAX];
    bool allowed[GROUPS_MAX];
    int32_t *chosen = (int32_t *)r->call->out[1].data + row * r->k;
    const int64_t at = row * r->experts;
    const float *scores = oct_piece_read(r->kernels, &r->call->in[0], at, r->experts, buffer);
    const float *values = oct_piece_read(r->kernels, r->values, at, r->experts, other);

    if (r->groups)
        choose_groups(scores, r->experts, r->groups, r->groups_kept, allowed);
    choose(scores, r->experts, r->groups ? allowed : NULL, r->groups ? r->experts / r->groups : 1,
           r->k, chosen);
    for (int32_t i = 0; i < r->k; i++)
        w[i] = values[chosen[i]];
    float divisor = weigh(r, w);
    if (r->saved) {
        float *saved = r->saved + row * (r->k + 1);
        memcpy(saved, w, (size_t)r->k * sizeof *w);
        saved[r->k] = divisor;
    }
    if (r->scaling != 1)
        r->kernels->math->scale((size_t)r->k, w, r->scaling, w);
    oct_piece_write(r->kernels, &r->call->out[0], row * r->k, r->k, w);
}

static void route_rows(void *user, int64_t first, int64_t end)
{
    for (int64_t row = first; row < end; row++)
        route_row(user, row);
}

enum { ROWS = 64 }; /* a range */

enum octet_status oct_top_k_forward(struct oct_op_call *call, struct octet_error *err)
{
    struct routing r = routing_of(call);

    if (r.experts > EXPERTS_MAX || r.groups > GROUPS_MAX)
        return octet_fail(err, OCTET_UNIMPLEMENTED, "num_experts",
                          "%d experts in %d groups; at most %d in %d can be run", r.experts,
                          r.groups, EXPERTS_MAX, GROUPS_MAX);
    return oct_ranges(call, oct_rows(&call->in[0]), ROWS, 8 * octet_array_elements(&call->in[0]),
                      route_rows, &r, err);
}

/* g: the cotangent of the weights, made that of the chosen scores. w: the weights before scaling.
 * Both a division by the sum and a softmax take the weighted mean of g off. */
static void weigh_vjp(const struct routing *r, const float *w, float divisor, float *g)
{
    const struct oct_math *math = r->kernels->math;
    const size_t k = (size_t)r->k;

    math->scale(k, g, r->scaling, g);
    if (r->normalize) {
        float mean = math->sum_product(k, g, w);
        for (size_t i = 0; i < k; i++)
            g[i] = (g[i] - mean) / divisor;
    }
    if (r->softmax) { /* its result was w * divisor */
        float mean = oct_mul(math->sum_product(k, g, w), divisor);
        for (size_t i = 0; i < k; i++)
            g[i] = oct_mul(oct_mul(w[i], divisor), g[i] - mean);
    }
}

static void route_row_vjp(const struct routing *r, int64_t row)
{
    float g[EXPERTS_MAX], buffer[EXPERTS_MAX];
    const int32_t *chosen = (const int32_t *)r->call->out[1].data + row * r->k;
    const float *saved = r->saved + row * (r->k + 1);
    const float *cotangent = oct_piece_read(r->kernels, r->cotangent, row * r->k, r->k, buffer);
    float *place = oct_piece_place(r->gradient, row * r->experts, buffer);

    memcpy(g, cotangent, (size_t)r->k * sizeof *g);
    weigh_vjp(r, saved, saved[r->k], g);
    memset(place, 0, (size_t)r->experts * sizeof *place);
    for (int32_t i = 0; i < r->k; i++)
        place[chosen[i]] = g[i];
    oct_piece_write(r->kernels, r->gradient, row * r->experts, r->experts, place);
}

static void route_rows_vjp(void *user, int64_t first, int64_t end)
{
    for (int64_t row = first; row < end; row++)
        route_row_vjp(user, row);
}

/* With two inputs the first only steers the choice: its gradient is exactly 0. */
enum octet_status oct_top_k_vjp(struct oct_op_call *call, const struct octet_array *cotangent,
                                struct octet_array *gradient, struct octet_error *err)
{
    struct routing r = routing_of(call);
    int of_values = call->node->input_count - 1;

    r.cotangent = &cotangent[0];
    r.gradient = &gradient[of_values];
    for (int i = 0; i <= of_values; i++)
        if (gradient[i].data && (i < of_values || !cotangent[0].data))
            memset(gradient[i].data, 0, (size_t)octet_array_bytes(&gradient[i]));
    if (!cotangent[0].data || !gradient[of_values].data)
        return OCTET_OK;
    return oct_ranges(call, oct_rows(&call->in[0]), ROWS, 2 * octet_array_elements(&call->in[0]),
                      route_rows_vjp, &r, err);
}

size_t oct_top_k_saved_bytes(const octet_graph *graph, const struct oct_node *node,
                             const struct octet_rule *rule)
{
    const struct octet_shape *out = &graph->tensors[node->outputs[0]].shape;
    int64_t k = node->attributes.top_k.k, rows = octet_shape_elements(out) / k;

    (void)rule;
    return (size_t)(rows * (k + 1)) * sizeof(float);
}

int oct_top_k_reads(const octet_graph *graph, const struct oct_node *node,
                    const struct octet_rule *rule)
{
    (void)graph;
    (void)node;
    (void)rule;
    return OUT;
}

/* ---- load_balance_loss ---- */

/* Of SUM: this batch's part of all that share the denominator, so that batches add up to the whole
 * also in a loss that is a mean. */
static double share_of(const struct oct_execution *execution)
{
    return execution->reduction == OCT_REDUCE_SUM ? execution->weights / execution->denominator : 1;
}

/* With density[b,e] = choices of e in sequence b / S and p = softmax of the scores, the loss is the
 * mean over b and e of density * mean over the sequence of p, times experts^2 and the factor. */
struct balance {
    const struct oct_op_call *call;
    const struct oct_kernels *kernels;
    const struct octet_array *gradient;
    int64_t length, experts, k;
    double *choices; /* [b, experts]: density * S */
    double *losses;  /* [b]: sum over experts and tokens of choices * p */
    double factor;   /* on the sum of losses */
};

static struct balance balance_of(const struct oct_op_call *call)
{
    const struct octet_array *scores = &call->in[0];
    int64_t experts = last_dim(scores), length = scores->dim[scores->rank - 2];
    double count = (double)(octet_array_elements(scores) / length); /* b, e of the mean */

    return (struct balance){.call = call,
                            .kernels = oct_call_kernels(call),
                            .length = length,
                            .experts = experts,
                            .k = last_dim(&call->in[1]),
                            .factor = share_of(call->execution) *
                                      (double)call->node->attributes.factor * (double)experts *
                                      (double)experts / (count * (double)length * (double)length)};
}

static void count_choices(const struct balance *l, int64_t b)
{
    const int32_t *indices = (const int32_t *)l->call->in[1].data + b * l->length * l->k;
    double *choices = l->choices + b * l->experts;

    for (int64_t i = 0; i < l->length * l->k; i++)
        choices[indices[i]] += 1;
}

/* p of one token. */
static void softmax_row(const struct balance *l, int64_t row, float *p)
{
    const struct oct_math *math = l->kernels->math;
    const size_t n = (size_t)l->experts;
    const float *scores =
        oct_piece_read(l->kernels, &l->call->in[0], row * l->experts, l->experts, p);
    float sum = math->exp_sum(n, scores, math->maximum(n, scores), p);

    for (size_t e = 0; e < n; e++)
        p[e] /= sum;
}

static void balance_range(void *user, int64_t first, int64_t end)
{
    const struct balance *l = user;
    float p[EXPERTS_MAX];

    for (int64_t b = first; b < end; b++) {
        const double *choices = l->choices + b * l->experts;
        count_choices(l, b);
        for (int64_t s = 0; s < l->length; s++) {
            softmax_row(l, b * l->length + s, p);
            for (int64_t e = 0; e < l->experts; e++)
                l->losses[b] += choices[e] * (double)p[e];
        }
    }
}

static enum octet_status balance_scratch(struct balance *l, int64_t batch, struct octet_error *err)
{
    l->choices = oct_call_scratch(l->call, batch * l->experts, sizeof *l->choices, err);
    l->losses = l->choices ? oct_call_scratch(l->call, batch, sizeof *l->losses, err) : NULL;
    return l->losses ? OCTET_OK : OCTET_RESOURCE_EXHAUSTED;
}

enum octet_status oct_load_balance_loss_forward(struct oct_op_call *call, struct octet_error *err)
{
    struct balance l = balance_of(call);
    int64_t batch = oct_rows(&call->in[0]) / l.length;
    enum octet_status status = balance_scratch(&l, batch, err);
    double sum = 0;

    if (status == OCTET_OK)
        status = oct_ranges(call, batch, 1, 8 * octet_array_elements(&call->in[0]), balance_range,
                            &l, err);
    if (status != OCTET_OK)
        return status;
    for (int64_t b = 0; b < batch; b++)
        sum += l.losses[b];
    *(float *)call->out[0].data = (float)(sum * l.factor);
    return OCTET_OK;
}

static void balance_range_vjp(void *user, int64_t first, int64_t end)
{
    const struct balance *l = user;
    float p[EXPERTS_MAX];

    for (int64_t row = first; row < end; row++) {
        const double *choices = l->choices + row / l->length * l->experts;
        double mean = 0;
        softmax_row(l, row, p);
        for (int64_t e = 0; e < l->experts; e++)
            mean += choices[e] * (double)p[e];
        float *place = oct_piece_place(l->gradient, row * l->experts, p);
        for (int64_t e = 0; e < l->experts; e++)
            place[e] = (float)(l->factor * (double)p[e] * (choices[e] - mean));
        oct_piece_write(l->kernels, l->gradient, row * l->experts, l->experts, place);
    }
}

enum octet_status oct_load_balance_loss_vjp(struct oct_op_call *call,
                                            const struct octet_array *cotangent,
                                            struct octet_array *gradient, struct octet_error *err)
{
    struct balance l = balance_of(call);
    int64_t rows = oct_rows(&call->in[0]), batch = rows / l.length;
    enum octet_status status = balance_scratch(&l, batch, err);

    if (!gradient[0].data || status != OCTET_OK)
        return status;
    for (int64_t b = 0; b < batch; b++)
        count_choices(&l, b);
    l.gradient = &gradient[0];
    l.factor *= (double)*(const float *)cotangent[0].data;
    return oct_ranges(call, rows, ROWS, 8 * octet_array_elements(&call->in[0]), balance_range_vjp,
                      &l, err);
}

size_t oct_load_balance_loss_scratch_bytes(const octet_graph *graph, const struct oct_node *node,
                                           const struct octet_rule *rule, bool backward)
{
    const struct octet_shape *scores = &graph->tensors[node->inputs[0]].shape;
    int64_t batch = octet_shape_elements(scores) / scores->dim[scores->rank - 1] /
                    scores->dim[scores->rank - 2];

    (void)rule;
    (void)backward;
    return (size_t)(batch * (scores->dim[scores->rank - 1] + 1)) * sizeof(double) +
           OCT_SCRATCH_LOSS;
}

/* ---- The update of the bias ---- */

void oct_expert_counts(const struct octet_array *indices, int64_t experts, int64_t *count)
{
    const int32_t *index = indices->data;

    memset(count, 0, (size_t)experts * sizeof *count);
    for (int64_t i = 0, n = octet_array_elements(indices); i < n; i++)
        count[index[i]]++;
}

void oct_router_bias_update(int64_t experts, const int64_t *count, double rate, float *bias)
{
    int64_t total = 0;

    for (int64_t e = 0; e < experts; e++)
        total += count[e];
    for (int64_t e = 0; e < experts; e++) {
        int64_t above = count[e] * experts - total;
        if (above)
            bias[e] += above > 0 ? -(float)rate : (float)rate;
    }
}
