/* Mixture of experts: moe.RoutedMoE in its three implementations, and DeepSeek's with shared
 * experts.
 *
 * sparse_matmul with megablox: rows sorted by expert, grouped matmul, which asks for a rule by name
 * (gmm); sparse_matmul without: the same with lax.ragged_dot; dense: einsums of every expert with
 * every token, or, with a capacity factor, of the tokens that fit. */
#include "models/moe.h"

#include <math.h>

#include "models/layers.h"

struct route {
    oct_tensor logits;           /* [B,S,n] biased scores */
    oct_tensor weights, indices; /* [B,S,k] */
};

struct experts {
    oct_tensor wi_0, wi_1, wo; /* [n,E,F], [n,E,F], [n,F,E]; wi_0 also holds both when fused */
    oct_tensor wi_0_bias, wi_1_bias, wo_bias; /* [n,F], [n,F], [n,E]; 0: none */
};

/* RoutedMoE.expert_group_mask: 0 when any experts may be chosen. A group is rated by its two best.
 */
static int32_t routing_groups(struct oct_model *m)
{
    int64_t n = oct_int(m, num_experts), groups = oct_int(m, n_routing_groups);
    int64_t kept = oct_int(m, topk_routing_group);

    if (groups <= 0)
        return 0;
    if (groups > n || n % groups || n / groups < 2)
        oct_builder_fail(
            &m->b, OCTET_INVALID_ARGUMENT, "n_routing_groups",
            "%lld groups of num_experts=%lld; equal groups of at least 2 were expected",
            (long long)groups, (long long)n);
    else if (kept < 1 || kept > groups)
        oct_builder_fail(&m->b, OCTET_INVALID_ARGUMENT, "topk_routing_group",
                         "%lld of n_routing_groups=%lld cannot be kept", (long long)kept,
                         (long long)groups);
    return (int32_t)groups;
}

/* GateLogit: scores; a bias steers the choice only, the weights are the unbiased scores (DeepSeek
 * 3). */
static struct route route_of(struct oct_model *m, oct_tensor x)
{
    int64_t n = oct_int(m, num_experts), k = oct_int(m, num_experts_per_tok);
    bool deepseek = oct_is(m, decoder_block, "deepseek");
    bool deepseek3 = oct_named(m, "deepseek3");
    uint32_t outer = oct_enter(&m->b, "gate");
    struct oct_dim dims[] = {OCT_DIM(m->dims->emb_dim, embed), OCT_DIM(n, exp)};
    oct_tensor kernel = oct_parameter(&m->b, "kernel", 2, dims);

    if (oct_bool(m, float32_gate_logits))
        x = oct_cast(&m->b, x, OCTET_DTYPE_F32);
    oct_tensor scores = oct_dense(&m->b, x, kernel, 1);
    if (oct_is(m, routed_score_func, "sigmoid"))
        scores = oct_activate(&m->b, scores, OCT_ACTIVATION_sigmoid, 0);
    else if (oct_is(m, routed_score_func, "softmax"))
        scores = oct_activate(&m->b, scores, OCT_ACTIVATION_softmax, 0);
    oct_tensor unbiased = scores;
    if (oct_bool(m, routed_bias))
        scores = oct_plus(&m->b, scores, oct_parameter(&m->b, "bias", 1, dims + 1));
    oct_leave(&m->b, outer);

    struct route r = {.logits = scores};
    union oct_attributes attributes = {
        .top_k = {.k = (int32_t)k,
                  .groups = deepseek3 ? routing_groups(m) : 0,
                  .groups_kept = (int32_t)oct_int(m, topk_routing_group),
                  .softmax_weights = !deepseek,
                  .normalize = deepseek ? oct_is(m, routed_score_func, "sigmoid")
                                        : oct_bool(m, norm_topk_prob),
                  .scaling = deepseek ? (float)oct_float(m, routed_scaling_factor) : 1}};
    r.weights = oct_add_node(&m->b, OCT_OP_top_k, OCTET_LOOKUP_NONE, attributes, deepseek3 ? 2 : 1,
                             (oct_tensor[]){scores, unbiased}, &r.indices);
    if (!deepseek) /* these leave float32_gate_logits' type behind */
        r.weights = oct_cast(&m->b, r.weights, m->dtype);
    return r;
}

static void add_load_balance(struct oct_model *m, const struct route *r)
{
    if (!(oct_float(m, load_balance_loss_weight) > 0))
        return;
    oct_tensor loss = oct_add_node(
        &m->b, OCT_OP_load_balance_loss, OCTET_LOOKUP_NONE,
        (union oct_attributes){.factor = (float)oct_float(m, load_balance_loss_weight)}, 2,
        (oct_tensor[]){r->logits, r->indices}, NULL);
    oct_auxiliary_loss(m, loss);
}

static struct experts experts_of(struct oct_model *m, int64_t mlp_dim)
{
    struct oct_dim n = OCT_DIM(oct_int(m, num_experts), exp);
    struct oct_dim e = OCT_DIM(m->dims->emb_dim, embed), f = OCT_DIM(mlp_dim, mlp);
    struct experts x = {0};

    if (oct_bool(m, prefuse_moe_weights)) {
        x.wi_0 = oct_parameter(&m->b, "wi", 3, (struct oct_dim[]){n, e, OCT_DIM(2 * mlp_dim, mlp)});
    } else {
        x.wi_0 = oct_parameter(&m->b, "wi_0", 3, (struct oct_dim[]){n, e, f});
        x.wi_1 = oct_parameter(&m->b, "wi_1", 3, (struct oct_dim[]){n, e, f});
    }
    x.wo = oct_parameter(&m->b, "wo", 3, (struct oct_dim[]){n, f, e});
    if (oct_bool(m, mlp_bias)) {
        x.wi_0_bias = oct_parameter(&m->b, "wi_0_bias", 2, (struct oct_dim[]){n, f});
        x.wi_1_bias = oct_parameter(&m->b, "wi_1_bias", 2, (struct oct_dim[]){n, f});
        x.wo_bias = oct_parameter(&m->b, "wo_bias", 2, (struct oct_dim[]){n, e});
    }
    return x;
}

/* RoutedMoE.apply_ffn_activation: gate times up; gpt-oss clips both and adds one to up. DeepSeek
 * clips both where a limit is set, others take no notice of it. */
static oct_tensor gated(struct oct_model *m, oct_tensor gate, oct_tensor up)
{
    double limit = oct_float(m, mlp_activations_limit);

    if (oct_is(m, decoder_block, "gpt_oss")) {
        gate = oct_activate(&m->b, gate, OCT_ACTIVATION_swiglu_oai, limit);
        up = oct_activate(&m->b, up, OCT_ACTIVATION_clip_plus_one, limit);
    } else if (oct_is(m, decoder_block, "deepseek") && limit > 0) {
        gate = oct_activate(&m->b, gate, oct_mlp_activation(m, 0), limit);
        up = oct_activate(&m->b, up, OCT_ACTIVATION_clip, limit);
    } else {
        gate = oct_activate(&m->b, gate, oct_mlp_activation(m, 0), 0);
    }
    return oct_cast(&m->b, oct_times(&m->b, gate, up), m->dtype);
}

/* ---- sparse: rows by expert ---- */

static enum octet_lookup grouped_lookup(const struct oct_model *m)
{
    return oct_bool(m, megablox) || oct_bool(m, use_tokamax_gmm) ? OCTET_LOOKUP_GMM
                                                                 : OCTET_LOOKUP_RAGGED_DOT;
}

static oct_tensor biased(struct oct_model *m, oct_tensor rows, oct_tensor bias, oct_tensor indices)
{
    if (!bias)
        return rows;
    oct_tensor by_row =
        oct_add_node(&m->b, OCT_OP_expert_bias, OCTET_LOOKUP_NONE, (union oct_attributes){.k = 0},
                     2, (oct_tensor[]){bias, indices}, NULL);
    return oct_plus(&m->b, rows, by_row);
}

static oct_tensor sparse(struct oct_model *m, oct_tensor x, const struct route *r,
                         const struct experts *w, int64_t mlp_dim)
{
    enum octet_lookup lookup = grouped_lookup(m);
    oct_tensor sizes, gate, up;
    oct_tensor rows = oct_add_node(&m->b, OCT_OP_dispatch, OCTET_LOOKUP_NONE,
                                   (union oct_attributes){.k = oct_int(m, num_experts)}, 2,
                                   (oct_tensor[]){x, r->indices}, &sizes);

    if (w->wi_1) {
        gate = oct_grouped_matmul(&m->b, lookup, rows, w->wi_0, sizes);
        gate = biased(m, gate, w->wi_0_bias, r->indices);
        up = oct_grouped_matmul(&m->b, lookup, rows, w->wi_1, sizes);
        up = biased(m, up, w->wi_1_bias, r->indices);
    } else {
        oct_tensor both = oct_grouped_matmul(&m->b, lookup, rows, w->wi_0, sizes);
        gate = biased(m, oct_slice(&m->b, both, 1, 0, mlp_dim), w->wi_0_bias, r->indices);
        up = biased(m, oct_slice(&m->b, both, 1, mlp_dim, mlp_dim), w->wi_1_bias, r->indices);
    }
    oct_tensor y = oct_grouped_matmul(&m->b, lookup, gated(m, gate, up), w->wo, sizes);
    y = biased(m, y, w->wo_bias, r->indices);
    y = oct_add_node(&m->b, OCT_OP_undispatch, OCTET_LOOKUP_NONE, (union oct_attributes){.k = 0}, 2,
                     (oct_tensor[]){y, r->indices}, NULL);
    oct_tensor weights =
        oct_reshape(&m->b, r->weights, 2,
                    (struct oct_dim[]){OCT_DIM(m->batch * m->length, tokens),
                                       OCT_DIM(oct_int(m, num_experts_per_tok), exp_per_tok)});
    if (oct_bool(m, float32_weight_sum))
        weights = oct_cast(&m->b, weights, OCTET_DTYPE_F32);
    y = oct_cast(&m->b, y, (enum octet_dtype)m->b.graph.tensors[weights].dtype);
    y = oct_einsum(&m->b, "BKE,BK -> BE", y, weights);
    return oct_reshape(&m->b, y, 3,
                       (struct oct_dim[]){OCT_DIM(m->batch, batch), OCT_DIM(m->length, length),
                                          OCT_DIM(m->dims->emb_dim, embed)});
}

/* ---- dense ---- */

/* bias [n, d] as it broadcasts to [B,S,n,d], or (by_expert) to [n,B,C,d]. */
static oct_tensor dense_bias(struct oct_model *m, oct_tensor y, oct_tensor bias, bool by_expert)
{
    if (!bias || m->b.status != OCTET_OK)
        return y;
    const struct octet_shape *shape = oct_shape(&m->b, bias);
    struct oct_dim n = OCT_DIM(shape->dim[0], exp), d = OCT_DIM(shape->dim[1], mlp);
    struct oct_dim one = OCT_DIM(1, none);

    if (by_expert)
        bias = oct_reshape(&m->b, bias, 4, (struct oct_dim[]){n, one, one, d});
    return oct_plus(&m->b, y, bias);
}

static oct_tensor maybe_wide(struct oct_model *m, oct_tensor x)
{
    return oct_bool(m, activations_in_float32) ? oct_cast(&m->b, x, OCTET_DTYPE_F32) : x;
}

/* Three einsums through the experts, and the last over them. */
static oct_tensor through_experts(struct oct_model *m, oct_tensor x, const struct experts *w,
                                  const char *up_equation, const char *down_equation,
                                  bool by_expert, int64_t mlp_dim)
{
    oct_tensor wi_0 = w->wi_0, wi_1 = w->wi_1;

    if (!wi_1) {
        wi_1 = oct_slice(&m->b, wi_0, 2, mlp_dim, mlp_dim);
        wi_0 = oct_slice(&m->b, wi_0, 2, 0, mlp_dim);
    }
    oct_tensor gate = oct_einsum(&m->b, up_equation, x, wi_0);
    gate = maybe_wide(m, dense_bias(m, gate, w->wi_0_bias, by_expert));
    oct_tensor up = oct_einsum(&m->b, up_equation, x, wi_1);
    up = maybe_wide(m, dense_bias(m, up, w->wi_1_bias, by_expert));
    oct_tensor y = oct_einsum(&m->b, down_equation, gated(m, gate, up), w->wo);
    return maybe_wide(m, dense_bias(m, y, w->wo_bias, by_expert));
}

/* RoutedMoE.generate_masks: rows an expert takes of each sequence. */
static int64_t capacity_of(const struct oct_model *m)
{
    double factor = oct_float(m, capacity_factor);
    double tokens = (double)m->length * (double)oct_int(m, num_experts_per_tok);
    double fair = ceil(tokens / (double)oct_int(m, num_experts));

    return (int64_t)fmax(fmax(fair * factor, factor), 1);
}

static oct_tensor dense(struct oct_model *m, oct_tensor x, const struct route *r,
                        const struct experts *w, int64_t mlp_dim)
{
    oct_tensor weights = oct_cast(&m->b, r->weights, m->dtype);

    weights = oct_add_node(&m->b, OCT_OP_expert_weights, OCTET_LOOKUP_NONE,
                           (union oct_attributes){.k = oct_int(m, num_experts)}, 2,
                           (oct_tensor[]){weights, r->indices}, NULL);

    if (oct_float(m, capacity_factor) > 0) {
        oct_tensor combine;
        oct_tensor dispatch = oct_add_node(&m->b, OCT_OP_capacity_masks, OCTET_LOOKUP_NONE,
                                           (union oct_attributes){.capacity = capacity_of(m)}, 2,
                                           (oct_tensor[]){weights, r->indices}, &combine);
        oct_tensor rows = oct_einsum(&m->b, "BSM,BSEC -> EBCM", x, dispatch);
        rows = through_experts(m, rows, w, "EBCM,EMH -> EBCH", "EBCH,EHM -> EBCM", true, mlp_dim);
        return oct_einsum(&m->b, "EBCM,BSEC -> BSM", rows, combine);
    }
    oct_tensor y = through_experts(m, x, w, "BSM,EMH -> BSEH", "BSEH,EHM -> BSEM", false, mlp_dim);
    if (oct_bool(m, float32_weight_sum)) {
        y = oct_cast(&m->b, y, OCTET_DTYPE_F32);
        weights = oct_cast(&m->b, weights, OCTET_DTYPE_F32);
    }
    return oct_einsum(&m->b, "BSEM,BSE -> BSM", y, weights);
}

oct_tensor oct_routed_moe(struct oct_model *m, const char *name, oct_tensor x, int64_t mlp_dim)
{
    uint32_t outer = oct_enter(&m->b, name);
    struct route r = route_of(m, x);
    struct experts w = experts_of(m, mlp_dim);

    add_load_balance(m, &r);
    oct_tensor y =
        oct_bool(m, sparse_matmul) ? sparse(m, x, &r, &w, mlp_dim) : dense(m, x, &r, &w, mlp_dim);
    oct_leave(&m->b, outer);
    return oct_cast(&m->b, y, m->dtype);
}

oct_tensor oct_routed_and_shared_moe(struct oct_model *m, oct_tensor x)
{
    int64_t width = m->dims->moe_mlp_dim;
    uint32_t outer = oct_enter(&m->b, "DeepSeekMoeBlock_0");
    oct_tensor routed = oct_routed_moe(m, "MoeBlock_0", x, width);
    oct_tensor shared = oct_mlp(m, "shared_experts", x, oct_int(m, shared_experts) * width);

    oct_leave(&m->b, outer);
    return oct_plus(&m->b, routed, shared);
}
