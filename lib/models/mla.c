/* Multi-head latent attention (attention_mla.MLA), DeepSeek's, and the indexer of DeepSeek 3.2. */
#include "models/mla.h"

#include <math.h>

#include "models/attention.h"
#include "models/layers.h"

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

/* Query [B,S,N,D] and key [B,S,D] of the indexer. */
static void indexer_query_key(struct oct_model *m, oct_tensor x, oct_tensor low_rank,
                              oct_tensor *query, oct_tensor *key)
{
    int64_t n = oct_int(m, indexer_n_heads), depth = oct_int(m, indexer_head_dim);
    int64_t rope_dim = oct_int(m, qk_rope_head_dim);
    struct oct_dim wq[] = {OCT_DIM(oct_int(m, q_lora_rank), q_lora), OCT_DIM(n, index_heads),
                           OCT_DIM(depth, kv)};
    struct oct_dim wk[] = {OCT_DIM(m->dims->emb_dim, embed), OCT_DIM(depth, kv)};
    struct oct_dim norm = OCT_DIM(depth, norm);

    *query =
        rotate_front(m, oct_dense_layer(m, "wq_b", low_rank, 1, 2, wq, false), rope_dim, depth);
    oct_tensor k = oct_dense_layer(m, "wk", x, 1, 1, wk, false);
    uint32_t here = oct_enter(&m->b, "k_norm");
    oct_tensor scale = oct_parameter(&m->b, "scale", 1, &norm);
    oct_tensor bias = oct_parameter(&m->b, "bias", 1, &norm);
    k = oct_add_node(&m->b, OCT_OP_layer_norm, OCTET_LOOKUP_NONE,
                     (union oct_attributes){.norm = {1e-6f, 0}}, 3, (oct_tensor[]){k, scale, bias},
                     NULL);
    oct_leave(&m->b, here);
    k = oct_reshape(&m->b, k, 4,
                    (struct oct_dim[]){OCT_DIM(m->batch, batch), OCT_DIM(m->length, length),
                                       OCT_DIM(1, kv_heads), OCT_DIM(depth, kv)});
    k = rotate_front(m, k, rope_dim, depth);
    *key = oct_reshape(&m->b, k, 3,
                       (struct oct_dim[]){OCT_DIM(m->batch, batch), OCT_DIM(m->length, kv_length),
                                          OCT_DIM(depth, kv)});
}

/* How much each key matters to each query, [B,S,S], from all indexer heads; its weights are
 * float32. */
static oct_tensor indexer_scores(struct oct_model *m, oct_tensor x, oct_tensor query,
                                 oct_tensor key)
{
    int64_t n = oct_int(m, indexer_n_heads), depth = oct_int(m, indexer_head_dim);
    struct oct_dim dims[] = {OCT_DIM(m->dims->emb_dim, embed), OCT_DIM(n, index_heads)};
    enum octet_dtype weight_dtype = m->b.weight_dtype;

    m->b.weight_dtype = OCTET_DTYPE_F32;
    oct_tensor weights =
        oct_dense_layer(m, "weights_proj", oct_cast(&m->b, x, OCTET_DTYPE_F32), 1, 1, dims, false);
    m->b.weight_dtype = weight_dtype;
    weights = oct_scale(&m->b, weights, 1 / sqrt((double)n) / sqrt((double)depth));
    oct_tensor logits = oct_einsum(&m->b, "bthd, bsd -> btsh", query, key);
    logits = oct_activate(&m->b, logits, OCT_ACTIVATION_relu, 0);
    return oct_einsum(&m->b, "btsh, bth -> bts", logits, weights);
}

static oct_tensor stop_gradient(struct oct_model *m, oct_tensor x)
{
    return oct_add_node(&m->b, OCT_OP_stop_gradient, OCTET_LOOKUP_NONE,
                        (union oct_attributes){.k = 0}, 1, &x, NULL);
}

/* attention_mla.Indexer: which keys each query sees; *scores for its loss. With no more keys than
 * top-k it sees all: only query and key are projected, mask and scores are 0. */
static oct_tensor indexer(struct oct_model *m, oct_tensor x, oct_tensor low_rank,
                          oct_tensor *scores)
{
    int64_t top_k = oct_int(m, indexer_topk);
    uint32_t outer = oct_enter(&m->b, "indexer");
    oct_tensor query, key, mask = 0;

    x = stop_gradient(m, x);
    indexer_query_key(m, x, stop_gradient(m, low_rank), &query, &key);
    bool dry = m->b.dry;
    m->b.dry = dry || m->length <= top_k; /* its kernel exists also where it is not read */
    *scores = indexer_scores(m, x, query, key);
    m->b.dry = dry;
    if (m->length > top_k)
        mask = oct_add_node(&m->b, OCT_OP_index_mask, OCTET_LOOKUP_NONE,
                            (union oct_attributes){.k = top_k}, 1, scores, NULL);
    oct_leave(&m->b, outer);
    return mask;
}

/* MLA.calculate_indexer_loss: the indexer learns the distribution of the real attention. */
static void indexer_loss(struct oct_model *m, oct_tensor scores, oct_tensor query, oct_tensor key)
{
    double factor = oct_float(m, indexer_loss_scaling_factor);

    if (!(factor > 0))
        return;
    oct_tensor attention =
        oct_einsum(&m->b, "bthd, bshd -> bhts", stop_gradient(m, query), stop_gradient(m, key));
    oct_auxiliary_loss(m, oct_add_node(&m->b, OCT_OP_index_loss, OCTET_LOOKUP_NONE,
                                       (union oct_attributes){.factor = (float)factor}, 2,
                                       (oct_tensor[]){attention, scores}, NULL));
}

oct_tensor oct_mla(struct oct_model *m, oct_tensor x)
{
    struct oct_attention a = {
        .name = "self_attention", .query_scale = 1, .soft_cap = oct_float(m, attn_logits_soft_cap)};
    struct oct_dim out[] = {OCT_DIM(m->dims->num_query_heads, heads),
                            OCT_DIM(oct_int(m, v_head_dim), kv), OCT_DIM(m->dims->emb_dim, embed)};
    uint32_t outer = oct_enter(&m->b, a.name);
    oct_tensor low_rank, key = 0, value = 0, mask = 0, scores;
    oct_tensor query = query_of(m, x, &low_rank);

    key_value_of(m, x, &key, &value);
    if (oct_bool(m, use_indexer) && !low_rank)
        oct_builder_fail(&m->b, OCTET_INVALID_ARGUMENT, "use_indexer",
                         "the indexer reads the query's latent; q_lora_rank must be above 0");
    else if (oct_bool(m, use_indexer))
        mask = indexer(m, x, low_rank, &scores);
    if (mask)
        indexer_loss(m, scores, query, key);
    if (oct_bool(m, attention_sink)) /* built, and not handed to attention_op */
        oct_parameter(&m->b, "sinks", 1,
                      (struct oct_dim[]){OCT_DIM(m->dims->num_query_heads, heads)});
    oct_tensor y = oct_attend(m, &a, query, key, value, mask, 0);
    y = oct_dense_layer(m, "out", y, 2, 1, out, false);
    oct_leave(&m->b, outer);
    return y;
}
