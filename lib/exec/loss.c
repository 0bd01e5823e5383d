/* Losses: targets shifted inside of documents, cross entropy, and what it is divided by.
 *
 * A target without weight takes no part: its row is not looked at, its gradient is exactly 0, also
 * where its logits are not finite. Sums over targets run in f64, in their order. Source: MaxText,
 * utils/max_utils.py (cross_entropy_with_logits), layers/multi_token_prediction.py
 * (roll_and_mask_by_segment), trainers/pre_train/train.py (loss_fn). */
#include "exec/loss.h"

#include <string.h>

#include "base/float_env.h"
#include "exec/piece.h"
#include "kernels/math.h"

static int64_t last_dim(const struct octet_array *x)
{
    return x->rank ? x->dim[x->rank - 1] : 1;
}

/* ---- shift_left ---- */

/* Numbers of 4 bytes, S32 or F32; the 0 behind a document has the same bits in both. */
enum octet_status oct_shift_left_forward(struct oct_op_call *call, struct octet_error *err)
{
    const int32_t *x = call->in[0].data, *segment = NULL;
    const int64_t length = last_dim(&call->in[0]), count = octet_array_elements(&call->in[0]);
    int32_t *out = call->out[0].data;

    (void)err;
    if (call->node->input_count > 1)
        segment = call->in[1].data;
    for (int64_t i = 0; i < count; i++) {
        bool last = (i + 1) % length == 0;
        bool inside = !last && (!segment || (segment[i] != 0 && segment[i] == segment[i + 1]));
        out[i] = inside ? x[i + 1] : 0;
    }
    return OCTET_OK;
}

/* ---- cross_entropy ---- */

/* softmax = exp(x - maximum) / sum, log z = maximum + log(sum). */
struct row {
    float maximum, sum;
};

struct entropy {
    const struct oct_op_call *call;
    const struct oct_kernels *kernels;
    const struct octet_array *logits, *gradient;
    const int32_t *target;
    const float *weight;
    int64_t classes;
    double z_loss;
    struct row *saved; /* [rows], or NULL */
    double *losses;    /* [rows], weighted; forward */
    float cotangent;   /* of the sum; backward */
};

static struct entropy entropy_of(const struct oct_op_call *call)
{
    return (struct entropy){.call = call,
                            .kernels = oct_call_kernels(call),
                            .logits = &call->in[0],
                            .target = call->in[1].data,
                            .weight = call->in[2].data,
                            .classes = last_dim(&call->in[0]),
                            .z_loss = (double)call->node->attributes.factor,
                            .saved = call->saved};
}

/* The largest logit and the first place where it stands. */
static float maximum_of(const struct entropy *l, int64_t row, int32_t *place)
{
    float buffer[OCT_PIECE], best = 0;

    for (int64_t at = 0, n; at < l->classes; at += n) {
        n = l->classes - at < OCT_PIECE ? l->classes - at : OCT_PIECE;
        const float *x = oct_piece_read(l->kernels, l->logits, row * l->classes + at, n, buffer);
        size_t first = l->kernels->math->argmax((size_t)n, x);
        if (at == 0 || x[first] > best) {
            best = x[first];
            *place = (int32_t)(at + (int64_t)first);
        }
    }
    return best;
}

/* The sum of exp(x - maximum): pieces in f32, their sums in f64. */
static float sum_of(const struct entropy *l, int64_t row, float maximum)
{
    float buffer[OCT_PIECE], exps[OCT_PIECE];
    double sum = 0;

    for (int64_t at = 0, n; at < l->classes; at += n) {
        n = l->classes - at < OCT_PIECE ? l->classes - at : OCT_PIECE;
        const float *x = oct_piece_read(l->kernels, l->logits, row * l->classes + at, n, buffer);
        sum += (double)l->kernels->math->exp_sum((size_t)n, x, maximum, exps);
    }
    return (float)sum;
}

static double logit_of_target(const struct entropy *l, int64_t row)
{
    float buffer[1];

    return (double)*oct_piece_read(l->kernels, l->logits, row * l->classes + l->target[row], 1,
                                   buffer);
}

static double log_z(struct row row)
{
    return (double)row.maximum + oct_exact_log((double)row.sum);
}

static void entropy_range(void *user, int64_t first, int64_t end)
{
    const struct entropy *l = user;
    const struct oct_report *report = l->call->report;
    float *logprobs = report ? report->logprobs.data : NULL;
    int32_t *argmax = report ? report->argmax.data : NULL;

    for (int64_t i = first; i < end; i++) {
        int32_t place = 0;
        struct row row = {0, 1};
        if (l->weight[i] != 0 || logprobs || argmax)
            row.maximum = maximum_of(l, i, &place);
        if (argmax)
            argmax[i] = place;
        if (l->weight[i] != 0 || logprobs) {
            row.sum = sum_of(l, i, row.maximum);
            double z = log_z(row), nats = z - logit_of_target(l, i);
            if (logprobs)
                logprobs[i] = (float)-nats;
            if (l->weight[i] != 0)
                l->losses[i] = (double)l->weight[i] * (nats + l->z_loss * z * z);
        }
        if (l->saved)
            l->saved[i] = row;
    }
}

static int64_t rows_of_a_range(int64_t classes)
{
    return (1 << 14) / (classes + 1);
}

enum octet_status oct_cross_entropy_forward(struct oct_op_call *call, struct octet_error *err)
{
    struct entropy l = entropy_of(call);
    const int64_t rows = oct_rows(&call->in[0]);
    double loss = 0, weights = 0;

    l.losses = oct_call_scratch(call, rows, sizeof *l.losses, err);
    if (!l.losses)
        return OCTET_RESOURCE_EXHAUSTED;
    enum octet_status status = oct_ranges(call, rows, rows_of_a_range(l.classes),
                                          8 * rows * l.classes, entropy_range, &l, err);
    for (int64_t i = 0; i < rows; i++) {
        loss += l.losses[i];
        weights += (double)l.weight[i];
    }
    *(float *)call->out[0].data = (float)loss;
    *(float *)call->out[1].data = (float)weights;
    return status;
}

/* One row of the gradient: scale * ((1 + 2 z_loss log z) softmax - onehot). Each piece is read
 * before it is written, and the target's logit before all, so that both may be one array. */
static void entropy_row_vjp(const struct entropy *l, int64_t i, float scale)
{
    const struct oct_math *math = l->kernels->math;
    const struct row row = l->saved[i];
    const float z_factor = (float)(1 + 2 * l->z_loss * log_z(row)), from = row.maximum;
    float at_target = (float)logit_of_target(l, i), buffer[OCT_PIECE];

    math->exp_sum(1, &at_target, from, &at_target);
    at_target = oct_mul(scale, z_factor * at_target / row.sum - 1);
    for (int64_t at = 0, n; at < l->classes; at += n) {
        n = l->classes - at < OCT_PIECE ? l->classes - at : OCT_PIECE;
        int64_t place = i * l->classes + at, target = l->target[i] - at;
        const float *x = oct_piece_read(l->kernels, l->logits, place, n, buffer);
        float *out = oct_piece_place(l->gradient, place, buffer);
        math->exp_sum((size_t)n, x, from, out);
        math->scale((size_t)n, out, scale * z_factor / row.sum, out);
        if (target >= 0 && target < n)
            out[target] = at_target;
        oct_piece_write(l->kernels, l->gradient, place, n, out);
    }
}

static void entropy_range_vjp(void *user, int64_t first, int64_t end)
{
    const struct entropy *l = user;
    const int64_t bytes = l->classes * (int64_t)octet_dtype_bytes(l->gradient->dtype);

    for (int64_t i = first; i < end; i++) {
        float scale = oct_mul(l->cotangent, l->weight[i]);
        if (l->weight[i] != 0 && scale != 0)
            entropy_row_vjp(l, i, scale);
        else
            memset((char *)l->gradient->data + i * bytes, 0, (size_t)bytes);
    }
}

/* Targets and weights are the batch's: no gradient. */
enum octet_status oct_cross_entropy_vjp(struct oct_op_call *call,
                                        const struct octet_array *cotangent,
                                        struct octet_array *gradient, struct octet_error *err)
{
    struct entropy l = entropy_of(call);
    const int64_t rows = oct_rows(&call->in[0]);

    if (!gradient[0].data)
        return OCTET_OK;
    l.gradient = &gradient[0];
    l.cotangent = cotangent[0].data ? *(const float *)cotangent[0].data : 0;
    return oct_ranges(call, rows, rows_of_a_range(l.classes), 8 * rows * l.classes,
                      entropy_range_vjp, &l, err);
}

static int64_t targets_of(const octet_graph *graph, const struct oct_node *node)
{
    return octet_shape_elements(&graph->tensors[node->inputs[1]].shape);
}

size_t oct_cross_entropy_saved_bytes(const octet_graph *graph, const struct oct_node *node,
                                     const struct octet_rule *rule)
{
    (void)rule;
    return (size_t)targets_of(graph, node) * sizeof(struct row);
}

size_t oct_cross_entropy_scratch_bytes(const octet_graph *graph, const struct oct_node *node,
                                       const struct octet_rule *rule, bool backward)
{

    (void)rule;
    return backward ? 0 : (size_t)targets_of(graph, node) * sizeof(double) + OCT_SCRATCH_LOSS;
}

/* ---- loss_ratio ---- */

/* MEAN adds a hair to the sum of weights, so that a batch without any target has loss 0; no
 * gradient comes out of it either, since none of its targets has weight. */
static float denominator_of(const struct oct_op_call *call)
{
    const struct oct_execution *execution = call->execution;
    const bool is_main = call->node->outputs[0] == execution->graph->main_loss;

    if (execution->reduction == OCT_REDUCE_SUM ||
        (execution->reduction == OCT_REDUCE_MAIN_SUM && is_main))
        return (float)execution->denominator;
    return *(const float *)call->in[1].data + call->node->attributes.factor;
}

enum octet_status oct_loss_ratio_forward(struct oct_op_call *call, struct octet_error *err)
{
    (void)err;
    *(float *)call->out[0].data = *(const float *)call->in[0].data / denominator_of(call);
    return OCTET_OK;
}

/* The weights' sum is the batch's, not the model's: no gradient. */
enum octet_status oct_loss_ratio_vjp(struct oct_op_call *call, const struct octet_array *cotangent,
                                     struct octet_array *gradient, struct octet_error *err)
{
    (void)err;
    if (gradient[0].data)
        *(float *)gradient[0].data = *(const float *)cotangent[0].data / denominator_of(call);
    if (gradient[1].data)
        *(float *)gradient[1].data = 0;
    return OCTET_OK;
}
