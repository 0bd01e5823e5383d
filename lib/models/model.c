/* From a config to the graph of one training step's forward pass: embedding, decoder, head, MTP,
 * losses. */
#include <string.h>

#include "models/decoder.h"
#include "models/draft.h"
#include "models/layers.h"
#include "models/mtp.h"

static void refuse_what_is_unknown(struct oct_model *m)
{
    const int64_t *engram;

    if (!oct_bool(m, enable_nnx) && !oct_bool(m, pure_nnx) && !oct_bool(m, pure_nnx_decoder))
        oct_builder_fail(&m->b, OCTET_UNIMPLEMENTED, "pure_nnx_decoder",
                         "the Linen flavour (enable_nnx, pure_nnx and pure_nnx_decoder all false) "
                         "numbers ops by Linen scope and is not traced; with MTP no rule reaches "
                         "its MTP block, which is one scope named 'mtp_block'");
    if (oct_config_ints(m->config, OCT_KEY_engram_layers, &engram))
        oct_builder_fail(&m->b, OCTET_UNIMPLEMENTED, "engram_layers",
                         "layer 'engram' is unknown (its table sizes come from a tokenizer's "
                         "vocabulary); engram_layers=[] leaves it out");
    if (oct_bool(m, use_multimodal) || oct_bool(m, use_audio))
        oct_builder_fail(
            &m->b, OCTET_UNIMPLEMENTED, oct_bool(m, use_audio) ? "use_audio" : "use_multimodal",
            "the vision and audio encoders are unknown; only the text decoder is traced");
    if (oct_int(m, ici_pipeline_parallelism) > 1 || oct_int(m, dcn_pipeline_parallelism) > 1)
        oct_builder_fail(&m->b, OCTET_UNIMPLEMENTED, "ici_pipeline_parallelism",
                         "pipeline stages are unknown; ici_pipeline_parallelism=1 traces the same "
                         "layers in one stage");
}

static void refuse(struct oct_model *m, enum oct_key key, const char *expected)
{
    oct_builder_fail(&m->b, OCTET_INVALID_ARGUMENT, oct_key_name(key), "%lld; %s",
                     (long long)oct_config_int(m->config, key), expected);
}

/* Sizes that only some families read, so that no key's own range can hold them. */
static void refuse_what_makes_no_model(struct oct_model *m)
{
    static const enum oct_key latent[] = {OCT_KEY_kv_lora_rank, OCT_KEY_qk_nope_head_dim,
                                          OCT_KEY_qk_rope_head_dim, OCT_KEY_v_head_dim};
    bool deepseek = oct_is(m, decoder_block, "deepseek");
    bool experts = deepseek || oct_is(m, decoder_block, "qwen3_moe");

    if (deepseek != oct_is(m, attention_type, "mla"))
        oct_builder_fail(
            &m->b, OCTET_INVALID_ARGUMENT, "attention_type",
            "'%s' with decoder_block=%s: latent attention (mla) is that of deepseek's layers, "
            "and they have no other",
            oct_config_text(m->config, OCT_KEY_attention_type),
            oct_config_text(m->config, OCT_KEY_decoder_block));
    for (size_t i = 0; deepseek && i < sizeof latent / sizeof *latent; i++)
        if (oct_config_int(m->config, latent[i]) < 1)
            refuse(m, latent[i], "latent attention needs at least 1");
    enum oct_key rotated = deepseek ? OCT_KEY_qk_rope_head_dim : OCT_KEY_head_dim;
    if (oct_config_int(m->config, rotated) % 2)
        refuse(m, rotated, "rotary position embedding needs a multiple of 2");
    if (deepseek && oct_int(m, shared_experts) < 1 &&
        oct_int(m, first_num_dense_layers) < m->dims->num_decoder_layers)
        refuse(m, OCT_KEY_shared_experts, "deepseek's expert layers need at least 1");
    if (experts && m->dims->moe_mlp_dim < 1)
        refuse(m, OCT_KEY_base_moe_mlp_dim, "layers with experts need their width");
    if (!deepseek && oct_int(m, mhc_expansion_rate) > 1)
        refuse(m, OCT_KEY_mhc_expansion_rate, "only deepseek's layers have hyper-connections");
}

static enum octet_dtype dtype_of(struct oct_model *m, enum oct_key key)
{
    const char *name = oct_config_text(m->config, key);
    enum octet_dtype dtype = octet_dtype_find(name);

    if (dtype)
        return dtype;
    oct_builder_fail(&m->b, OCTET_UNIMPLEMENTED, oct_key_name(key),
                     "'%s' is not a type that Octet computes in; float32 and bfloat16 are", name);
    return OCTET_DTYPE_F32;
}

static oct_tensor token_input(struct oct_model *m, const char *name, enum octet_dtype dtype)
{
    return oct_input(&m->b, name, dtype, 2,
                     (struct oct_dim[]){OCT_DIM(m->batch, batch), OCT_DIM(m->length, length)});
}

static void begin(struct oct_model *m, const octet_context *context, octet_arena *arena,
                  const octet_config *config, const struct octet_graph_options *options,
                  const struct octet_cancel *cancel, struct octet_error *err)
{
    *m = (struct oct_model){.config = config, .dims = oct_config_dims(config)};
    oct_builder_begin(&m->b, context, arena, cancel, err);
    m->batch = options && options->batch_size ? options->batch_size : m->dims->global_batch_size;
    m->length =
        options && options->sequence_length ? options->sequence_length : m->dims->max_target_length;
    m->dtype = m->b.dtype = dtype_of(m, OCT_KEY_dtype);
    m->weight_dtype = m->b.weight_dtype = dtype_of(m, OCT_KEY_weight_dtype);
    m->b.graph.batch_size = m->batch;
    m->b.graph.sequence_length = m->length;
    m->tokens = token_input(m, "tokens", OCTET_DTYPE_S32);
    m->targets = token_input(m, "targets", OCTET_DTYPE_S32);
    m->target_weights = token_input(m, "target_weights", OCTET_DTYPE_F32);
    m->b.positions = token_input(m, "positions", OCTET_DTYPE_S32);
    m->b.segment_ids = token_input(m, "segment_ids", OCTET_DTYPE_S32);
}

/* Streams [B,S,K,E], all the embedding, when the model has hyper-connections. */
static oct_tensor expand(struct oct_model *m, oct_tensor x)
{
    int64_t k = oct_int(m, mhc_expansion_rate);

    if (k <= 1)
        return x;
    x = oct_reshape(&m->b, x, 4,
                    (struct oct_dim[]){OCT_DIM(m->batch, batch), OCT_DIM(m->length, length),
                                       OCT_DIM(1, none), OCT_DIM(m->dims->emb_dim, embed)});
    return oct_broadcast(&m->b, x, 2, OCT_DIM(k, none));
}

static oct_tensor reduce(struct oct_model *m, oct_tensor x)
{
    if (oct_int(m, mhc_expansion_rate) <= 1)
        return x;
    return oct_add_node(&m->b, OCT_OP_stream_sum, OCTET_LOOKUP_NONE, (union oct_attributes){.k = 0},
                        1, &x, NULL);
}

static oct_tensor loss_ratio(struct oct_model *m, oct_tensor sum, oct_tensor weights)
{
    return oct_add_node(&m->b, OCT_OP_loss_ratio, OCTET_LOOKUP_NONE,
                        (union oct_attributes){.factor = 1e-8f}, 2, (oct_tensor[]){sum, weights},
                        NULL);
}

/* While only the indexer is warmed up, MaxText leaves the head out. */
static bool head_is_left_out(const struct oct_model *m)
{
    return oct_bool(m, use_indexer) && oct_float(m, indexer_loss_scaling_factor) > 0 &&
           !oct_bool(m, indexer_sparse_training);
}

/* With num_vocab_tiling the loss itself runs the head, tile by tile, where Qwix does not look. */
static oct_tensor main_loss(struct oct_model *m, oct_tensor hidden)
{
    oct_tensor weights;

    m->b.dry = head_is_left_out(m);
    m->b.unseen = oct_int(m, num_vocab_tiling) > 1;
    oct_tensor logits = oct_output_head(m, hidden);
    oct_tensor sum =
        oct_add_node(&m->b, OCT_OP_cross_entropy, OCTET_LOOKUP_NONE,
                     (union oct_attributes){.factor = (float)oct_float(m, z_loss_multiplier)}, 3,
                     (oct_tensor[]){logits, m->targets, m->target_weights}, &weights);
    oct_tensor loss = loss_ratio(m, sum, weights);
    m->headed = m->headed && !m->b.dry && !m->b.unseen;
    bool runs = !m->b.dry;
    m->b.dry = m->b.unseen = false;
    return runs ? loss : 0;
}

static oct_tensor mtp_loss(struct oct_model *m, oct_tensor hidden)
{
    oct_tensor sum, weights;

    oct_mtp_block(m, hidden, &sum, &weights);
    return oct_scale(&m->b, loss_ratio(m, sum, weights), oct_float(m, mtp_loss_scaling_factor));
}

enum octet_status octet_graph_build(const octet_context *context, octet_arena *arena,
                                    const octet_config *config,
                                    const struct octet_graph_options *options,
                                    const struct octet_cancel *cancel, const octet_graph **out,
                                    struct octet_error *err)
{
    struct oct_model m;

    begin(&m, context, arena, config, options, cancel, err);
    refuse_what_is_unknown(&m);
    refuse_what_makes_no_model(&m);
    oct_tensor x = expand(&m, oct_embedding(&m, m.tokens, m.b.positions));
    oct_tensor hidden = reduce(&m, oct_decoder_layers(&m, x));
    oct_tensor losses[] = {main_loss(&m, hidden),
                           oct_int(&m, mtp_num_layers) > 0 ? mtp_loss(&m, hidden) : 0,
                           oct_auxiliary_total(&m)};
    oct_tensor loss = 0;
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++)
        if (losses[i])
            loss = loss ? oct_plus(&m.b, loss, losses[i]) : losses[i];
    m.b.graph.dense_init_scale = oct_float(&m, dense_init_scale);
    m.b.graph.loss = loss;
    m.b.graph.hidden = hidden;
    m.b.graph.main_loss = losses[0];
    m.b.graph.mtp_loss = losses[1];
    m.b.graph.auxiliary_loss = losses[2];
    return oct_builder_finish(&m.b, out);
}
