/* Multi-head latent attention (attention_mla.MLA), DeepSeek's, and the indexer of DeepSeek 3.2. */
#include <math.h>

#include "models/model.h"

/* 1/sqrt(depth), times the square of YaRN's temperature where the context was stretched. */
static double softmax_scale(const struct oct_model *m)
{
    double depth = (double)(oct_int(m, qk_nope_head_dim) + oct_int(m, qk_rope_head_dim));
    double scale = 1 / sqrt(depth);

    if (oct_int(m, max_position_embeddings) > oct_int(m, original_max_position_embeddings)) {
        double temperature = 0.1 * oct_float(m, mscale) * log(oct_float(m, rope_factor)) + 1;
        scale *= temperature * temperature;
    }
    return scale;
}

/* One projection whose output is split in two along the head dimension: as a whole, then cut; or
 * (use_sliced_mla_proj) as two dots over slices of the one kernel. */
static void split_projection(struct oct_model *m, const char *name, oct_tensor x, struct oct_dim in,
                             struct oct_dim heads, int64_t first, int64_t second, bool sliced,
                             oct_tensor *a, oct_tensor *b)
{
    uint32_t outer = oct_enter(&m->b, name);
    oct_tensor kernel = oct_parameter(&m->b, "kernel", 3,
                                      (struct oct_dim[]){in, heads, OCT_DIM(first + second, kv)});

    if (sliced) {
        *a = oct_dense(&m->b, x, oct_slice(&m->b, kernel, 2, 0, first), 1);
        *b = oct_dense(&m->b, x, oct_slice(&m->b, kernel, 2, first, second), 1);
    } else {
        oct_tensor both = oct_dense(&m->b, x, kernel, 1);
        *a = oct_slice(&m->b, both, 3, 0, first);
        *b = oct_slice(&m->b, both, 3, first, second);
    }
    oct_leave(&m->b, outer);
}

/* Query [B,S,H,nope+rope], scaled; *low_rank is the normed latent that the indexer reads, or 0. */
static oct_tensor query_of(struct oct_model *m, oct_tensor x, oct_tensor *low_rank)
{
    struct oct_dim embed = OCT_DIM(m->dims->emb_dim, embed);
    struct oct_dim heads = OCT_DIM(m->dims->num_query_heads, heads);
    int64_t rank = oct_int(m, q_lora_rank), nope_dim = oct_int(m, qk_nope_head_dim);
    int64_t rope_dim = oct_int(m, qk_rope_head_dim);
    oct_tensor nope, rope;

    *low_rank = 0;
    if (rank == 0) {
        split_projection(m, "query", x, embed, heads, nope_dim, rope_dim, false, &nope, &rope);
    } else {
        struct oct_dim dims[] = {embed, OCT_DIM(rank, q_lora)};
        *low_rank = oct_norm(m, "q_norm", oct_dense_layer(m, "wq_a", x, 1, 1, dims, false));
        split_projection(m, "wq_b", *low_rank, OCT_DIM(rank, q_lora), heads, nope_dim, rope_dim,
                         oct_bool(m, use_sliced_mla_proj), &nope, &rope);
    }
    return oct_scale(&m->b, oct_concat(&m->b, nope, oct_rotate(m, rope, false)), softmax_scale(m));
}

static void key_value_of(struct oct_model *m, oct_tensor x, oct_tensor *key, oct_tensor *value)
{
    int64_t rank = oct_int(m, kv_lora_rank), rope_dim = oct_int(m, qk_rope_head_dim);
    struct oct_dim heads = OCT_DIM(m->dims->num_query_heads, kv_heads);
    struct oct_dim dims[] = {OCT_DIM(m->dims->emb_dim, embed), OCT_DIM(rank + rope_dim, kv_lora)};
    oct_tensor low_rank = oct_dense_layer(m, "wkv_a", x, 1, 1, dims, false), nope;
    oct_tensor latent = oct_norm(m, "kv_norm", oct_slice(&m->b, low_rank, 2, 0, rank));
    oct_tensor rope = oct_slice(&m->b, low_rank, 2, rank, rope_dim);

    rope = oct_reshape(&m->b, rope, 4,
                       (struct oct_dim[]){OCT_DIM(m->batch, batch), OCT_DIM(m->length, length),
                                          OCT_DIM(1, kv_heads), OCT_DIM(rope_dim, kv)});
    rope = oct_broadcast(&m->b, oct_rotate(m, rope, false), 2, heads);
    split_projection(m, "wkv_b", latent, OCT_DIM(rank, kv_lora), heads,
                     oct_int(m, qk_nope_head_dim), oct_int(m, v_head_dim),
                     oct_bool(m, use_sliced_mla_proj), &nope, value);
    *key = oct_concat(&m->b, nope, rope);
}

/* The first rope_dim of the head dimension are rotated. */
static oct_tensor rotate_front(struct oct_model *m, oct_tensor x, int64_t rope_dim, int64_t depth)
{
    oct_tensor front = oct_rotate(m, oct_slice(&m->b, x, 3, 0, rope_dim), false);

    return oct_concat(&m->b, front, oct_slice(&m->b, x, 3, rope_dim, depth - rope_dim));
}

/* attention_mla.Indexer: which keys each query sees. With no more keys than top-k it sees all: only
 * the two projections run. Returns the mask, or 0 for all. */
static oct_tensor indexer(struct oct_model *m, oct_tensor x, oct_tensor low_rank)
{
    int64_t n = oct_int(m, indexer_n_heads), depth = oct_int(m, indexer_head_dim);
    int64_t rope_dim = oct_int(m, qk_rope_head_dim), top_k = oct_int(m, indexer_topk);
    union oct_attributes none = {.k = 0};
    uint32_t outer = oct_enter(&m->b, "indexer");

    x = oct_add_node(&m->b, OCT_OP_stop_gradient, OCTET_LOOKUP_NONE, none, 1, &x, NULL);
    low_rank =
        oct_add_node(&m->b, OCT_OP_stop_gradient, OCTET_LOOKUP_NONE, none, 1, &low_rank, NULL);
    struct oct_dim wq[] = {OCT_DIM(oct_int(m, q_lora_rank), q_lora), OCT_DIM(n, index_heads),
                           OCT_DIM(depth, kv)};
    struct oct_dim wk[] = {OCT_DIM(m->dims->emb_dim, embed), OCT_DIM(depth, kv)};
    oct_tensor query = oct_dense_layer(m, "wq_b", low_rank, 1, 2, wq, false);
    query = rotate_front(m, query, rope_dim, depth);
    oct_tensor key = oct_dense_layer(m, "wk", x, 1, 1, wk, false);
    uint32_t here = oct_enter(&m->b, "k_norm");
    oct_tensor scale = oct_parameter(&m->b, "scale", 1, (struct oct_dim[]){OCT_DIM(depth, norm)});
    oct_tensor bias = oct_parameter(&m->b, "bias", 1, (struct oct_dim[]){OCT_DIM(depth, norm)});
    key = oct_add_node(&m->b, OCT_OP_layer_norm, OCTET_LOOKUP_NONE,
                       (union oct_attributes){.norm = {1e-6f, 0}}, 3,
                       (oct_tensor[]){key, scale, bias}, NULL);
    oct_leave(&m->b, here);
    key = oct_reshape(&m->b, key, 4,
                      (struct oct_dim[]){OCT_DIM(m->batch, batch), OCT_DIM(m->length, length),
                                         OCT_DIM(1, kv_heads), OCT_DIM(depth, kv)});
    key = rotate_front(m, key, rope_dim, depth);
    key = oct_reshape(&m->b, key, 3,
                      (struct oct_dim[]){OCT_DIM(m->batch, batch), OCT_DIM(m->length, kv_length),
                                         OCT_DIM(depth, kv)});
    /* The kernel exists also where it is not read. */
    struct oct_dim wp[] = {OCT_DIM(m->dims->emb_dim, embed), OCT_DIM(n, index_heads)};
    oct_tensor mask = 0;
    enum octet_dtype weight_dtype = m->b.weight_dtype;
    m->b.weight_dtype = OCTET_DTYPE_F32;
    if (m->length <= top_k) {
        here = oct_enter(&m->b, "weights_proj");
        oct_parameter(&m->b, "kernel", 2, wp);
        oct_leave(&m->b, here);
    } else {
        oct_tensor wide = oct_cast(&m->b, x, OCTET_DTYPE_F32);
        oct_tensor weights = oct_dense_layer(m, "weights_proj", wide, 1, 1, wp, false);
        weights = oct_scale(&m->b, weights, 1 / sqrt((double)n) / sqrt((double)depth));
        oct_tensor logits = oct_einsum(&m->b, "bthd, bsd -> btsh", query, key);
        logits = oct_activate(&m->b, logits, OCT_ACTIVATION_relu, 0);
        mask = oct_einsum(&m->b, "btsh, bth -> bts", logits, weights);
        mask = oct_add_node(&m->b, OCT_OP_index_mask, OCTET_LOOKUP_NONE,
                            (union oct_attributes){.k = top_k}, 1, &mask, NULL);
    }
    m->b.weight_dtype = weight_dtype;
    oct_leave(&m->b, outer);
    return mask;
}

oct_tensor oct_mla(struct oct_model *m, oct_tensor x)
{
    struct oct_attention a = {
        .name = "self_attention", .query_scale = 1, .soft_cap = oct_float(m, attn_logits_soft_cap)};
    struct oct_dim out[] = {OCT_DIM(m->dims->num_query_heads, heads),
                            OCT_DIM(oct_int(m, v_head_dim), kv), OCT_DIM(m->dims->emb_dim, embed)};
    uint32_t outer = oct_enter(&m->b, a.name);
    oct_tensor low_rank, key = 0, value = 0, mask = 0;
    oct_tensor query = query_of(m, x, &low_rank);

    key_value_of(m, x, &key, &value);
    if (oct_bool(m, use_indexer) && !low_rank)
        oct_builder_fail(&m->b, OCTET_INVALID_ARGUMENT, "use_indexer",
                         "the indexer reads the query's latent; q_lora_rank must be above 0");
    else if (oct_bool(m, use_indexer))
        mask = indexer(m, x, low_rank);
    oct_tensor y = oct_attend(m, &a, query, key, value, mask, 0);
    y = oct_dense_layer(m, "out", y, 2, 1, out, false);
    oct_leave(&m->b, outer);
    return y;
}
