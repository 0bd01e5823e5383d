/* Attention with query, key and value projections (attentions.Attention), and the scores that all
 * kinds of attention share (attention_op.AttentionOp). */
#include "models/attention.h"

#include <math.h>
#include <string.h>

#include "models/layers.h"

static void use_yarn(struct oct_model *m, union oct_attributes *attributes)
{
    attributes->rope.kind = OCT_ROPE_yarn;
    attributes->rope.interleave = oct_bool(m, rope_interleave);
    attributes->rope.pairwise = oct_bool(m, rope_pairwise);
    attributes->rope.truncate = oct_bool(m, rope_truncate);
    attributes->rope.scales = oct_bool(m, rope_attention_scaling);
    attributes->rope.beta_fast = (float)oct_int(m, beta_fast);
    attributes->rope.beta_slow = (float)oct_int(m, beta_slow);
    attributes->rope.factor = (float)oct_int(m, rope_factor);
    attributes->rope.original_positions = (float)oct_int(m, original_max_position_embeddings);
}

oct_tensor oct_rotate(struct oct_model *m, oct_tensor x, bool local)
{
    union oct_attributes attributes = {
        .rope = {.kind = OCT_ROPE_default,
                 .min_timescale = (float)oct_int(m, rope_min_timescale),
                 .max_timescale = (float)oct_int(m, rope_max_timescale),
                 .linear_scaling = (float)oct_float(m, rope_linear_scaling_factor)}};
    const char *type = oct_config_text(m->config, OCT_KEY_rope_type);

    if (oct_named(m, "llama3.1") || strncmp(type, "llama3.1", 8) == 0) {
        attributes.rope.kind = OCT_ROPE_llama31;
        attributes.rope.scales = oct_bool(m, rope_use_scale);
    } else if (strncmp(type, "yarn", 4) == 0) {
        use_yarn(m, &attributes);
    } else if (local) {
        if (oct_int(m, local_rope_max_timescale) > 0)
            attributes.rope.max_timescale = (float)oct_int(m, local_rope_max_timescale);
        if (oct_named(m, "gemma3"))
            attributes.rope.linear_scaling = 1;
    }
    return oct_add_node(&m->b, OCT_OP_rope, OCTET_LOOKUP_NONE, attributes, 2,
                        (oct_tensor[]){x, m->b.positions}, NULL);
}

enum { FUSED_LENGTH_MIN = 128 };

/* Is each product of attention an einsum of its own (and so in Qwix's sight), or part of a kernel?
 * "autoselected" is dot_product on a CPU, and for fewer than 128 positions everywhere. */
static bool products_are_einsums(const struct oct_model *m)
{
    return oct_is(m, attention, "dot_product") ||
           (oct_is(m, attention, "autoselected") &&
            (!oct_config_is_for_accelerator(m->config) || m->length < FUSED_LENGTH_MIN)) ||
           oct_is(m, attention, "paged") || oct_is(m, attention, "vllm_rpa") ||
           oct_is(m, attention, "vllm_batched_rpa");
}

static oct_tensor product(struct oct_model *m, const char *equation, oct_tensor x, oct_tensor y)
{
    return oct_add_node(
        &m->b, OCT_OP_einsum, products_are_einsums(m) ? OCTET_LOOKUP_EINSUM : OCTET_LOOKUP_NONE,
        (union oct_attributes){.equation = equation}, 2, (oct_tensor[]){x, y}, NULL);
}

/* Mixture of block attention (AttentionOp.calculate_moba_gate_logic): each query sees the blocks of
 * keys whose mean suits it best. MaxText maps over the batch, so its equation lacks the leading
 * axis. */
static oct_tensor block_mask(struct oct_model *m, oct_tensor query, oct_tensor key)
{
    oct_tensor means =
        oct_add_node(&m->b, OCT_OP_chunk_mean, OCTET_LOOKUP_NONE,
                     (union oct_attributes){.k = oct_int(m, moba_chunk_size)}, 1, &key, NULL);
    oct_tensor gate =
        oct_einsum(&m->b, "bskgd,bNkd->bkgsN", oct_cast(&m->b, query, OCTET_DTYPE_F32),
                   oct_cast(&m->b, means, OCTET_DTYPE_F32));

    return oct_add_node(&m->b, OCT_OP_index_mask, OCTET_LOOKUP_NONE,
                        (union oct_attributes){.k = oct_int(m, moba_topk)}, 1, &gate, NULL);
}

oct_tensor oct_attend(struct oct_model *m, const struct oct_attention *a, oct_tensor query,
                      oct_tensor key, oct_tensor value, oct_tensor mask, oct_tensor sinks)
{
    if (m->b.status != OCTET_OK)
        return 0;
    int64_t heads = oct_shape(&m->b, query)->dim[2], depth = oct_shape(&m->b, query)->dim[3];
    int64_t kv_heads = oct_shape(&m->b, key)->dim[2], value_depth = oct_shape(&m->b, value)->dim[3];
    uint32_t outer = oct_enter(&m->b, "attention_op");

    if (a->float32_qk) {
        query = oct_cast(&m->b, query, OCTET_DTYPE_F32);
        key = oct_cast(&m->b, key, OCTET_DTYPE_F32);
    }
    query = oct_reshape(&m->b, query, 5,
                        (struct oct_dim[]){OCT_DIM(m->batch, batch), OCT_DIM(m->length, length),
                                           OCT_DIM(kv_heads, kv_heads),
                                           OCT_DIM(heads / kv_heads, heads), OCT_DIM(depth, kv)});
    oct_tensor scores = product(m, "btkgd,bskd->bkgts", query, key);
    if (a->float32_logits)
        scores = oct_cast(&m->b, scores, OCTET_DTYPE_F32);
    oct_tensor inputs[OCTET_NODE_INPUTS_MAX] = {scores, m->b.segment_ids, m->b.positions};
    int count = 3;
    if (sinks)
        inputs[count++] = sinks;
    if (mask)
        inputs[count++] = mask;
    if (oct_bool(m, moba) && products_are_einsums(m))
        inputs[count++] = block_mask(m, query, key);
    oct_tensor sums;
    oct_tensor exps = oct_add_node(
        &m->b, OCT_OP_attention_softmax, OCTET_LOOKUP_NONE,
        (union oct_attributes){.softmax = {a->window, (float)a->soft_cap}}, count, inputs, &sums);
    oct_tensor out = product(m, "bkgts,bskd->btkgd", exps, value);
    out = oct_add_node(&m->b, OCT_OP_attention_normalize, OCTET_LOOKUP_NONE,
                       (union oct_attributes){.k = 0}, 2, (oct_tensor[]){out, sums}, NULL);
    out = oct_reshape(&m->b, oct_cast(&m->b, out, m->dtype), 4,
                      (struct oct_dim[]){OCT_DIM(m->batch, batch), OCT_DIM(m->length, length),
                                         OCT_DIM(heads, heads), OCT_DIM(value_depth, kv)});
    oct_leave(&m->b, outer);
    return out;
}

struct qkv {
    oct_tensor query, key, value;
};

static struct qkv fused_projection(struct oct_model *m, const struct oct_attention *a, oct_tensor x)
{
    const struct oct_dims *d = m->dims;
    struct oct_dim dims[] = {OCT_DIM(d->emb_dim, embed),
                             OCT_DIM(d->num_query_heads + 2 * d->num_kv_heads, heads),
                             OCT_DIM(d->head_dim, kv)};
    oct_tensor all = oct_dense_layer(m, "qkv_proj", x, 1, 2, dims, a->bias);

    return (struct qkv){
        oct_slice(&m->b, all, 2, 0, d->num_query_heads),
        oct_slice(&m->b, all, 2, d->num_query_heads, d->num_kv_heads),
        oct_slice(&m->b, all, 2, d->num_query_heads + d->num_kv_heads, d->num_kv_heads)};
}

static struct qkv projections(struct oct_model *m, const struct oct_attention *a, oct_tensor x)
{
    const struct oct_dims *d = m->dims;
    struct oct_dim query[] = {OCT_DIM(d->emb_dim, embed), OCT_DIM(d->num_query_heads, heads),
                              OCT_DIM(d->head_dim, kv)};
    struct oct_dim kv[] = {OCT_DIM(d->emb_dim, embed), OCT_DIM(d->num_kv_heads, kv_heads),
                           OCT_DIM(d->head_dim, kv)};
    struct qkv p;

    p.query = oct_dense_layer(m, "query", x, 1, 2, query, a->bias);
    p.key = oct_dense_layer(m, "key", x, 1, 2, kv, a->bias);
    p.value = a->share_kv ? p.key : oct_dense_layer(m, "value", x, 1, 2, kv, a->bias);
    return p;
}

/* Per head; Olmo 3 normalizes over all heads together (GlobalRMSNorm). */
static oct_tensor head_norm(struct oct_model *m, const char *name, oct_tensor x)
{
    if (m->b.status != OCTET_OK)
        return 0;
    double epsilon = oct_float(m, normalization_layer_epsilon);
    bool scaled = oct_bool(m, qk_norm_with_scale);
    if (!oct_named(m, "olmo3"))
        return oct_norm_layer(m, name, x, epsilon, scaled);

    struct octet_shape shape = *oct_shape(&m->b, x);
    struct oct_dim flat[] = {OCT_DIM(m->batch, batch), OCT_DIM(m->length, length),
                             OCT_DIM(shape.dim[2] * shape.dim[3], qkv)};
    struct oct_dim heads[] = {OCT_DIM(m->batch, batch), OCT_DIM(m->length, length),
                              OCT_DIM(shape.dim[2], heads), OCT_DIM(shape.dim[3], kv)};
    x = oct_norm_layer(m, name, oct_reshape(&m->b, x, 3, flat), epsilon, scaled);
    return oct_reshape(&m->b, x, 4, heads);
}

oct_tensor oct_attention_layer(struct oct_model *m, const struct oct_attention *a, oct_tensor x)
{
    const struct oct_dims *d = m->dims;
    uint32_t outer = oct_enter(&m->b, a->name);
    struct qkv p = oct_bool(m, fused_qkv) ? fused_projection(m, a, x) : projections(m, a, x);
    oct_tensor sinks = 0;

    if (oct_bool(m, attention_sink))
        sinks = oct_parameter(&m->b, "sinks", 1,
                              (struct oct_dim[]){OCT_DIM(d->num_query_heads, heads)});
    if (a->qk_norm) {
        p.query = head_norm(m, "query_norm", p.query);
        p.key = head_norm(m, "key_norm", p.key);
    }
    p.query = oct_rotate(m, p.query, a->window > 0);
    p.key = oct_rotate(m, p.key, a->window > 0);
    if (a->query_scale != 1)
        p.query = oct_scale(&m->b, p.query, a->query_scale);
    oct_tensor y = oct_attend(m, a, p.query, p.key, p.value, 0, sinks);
    struct oct_dim out[] = {OCT_DIM(d->num_query_heads, heads), OCT_DIM(d->head_dim, kv),
                            OCT_DIM(d->emb_dim, embed)};
    y = oct_dense_layer(m, "out", y, 2, 1, out, a->bias && !oct_is(m, decoder_block, "qwen2"));
    oct_leave(&m->b, outer);
    return y;
}
