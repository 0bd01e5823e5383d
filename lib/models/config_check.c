/* What MaxText refuses when single values are fine and their combination is not.
 *
 * For: keys that bear on the model, its loss and its optimizer.
 * Not for: quantization keys (rules), and keys of data, storage, meshes and devices, which have no
 * effect here and so no say. Source: MaxText's configs/types.py, validators of MaxTextConfig in
 * their order; the last one is layers/attentions.py's. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "models/config_private.h"

#define INT(key) oct_config_int(c, OCT_KEY_##key)
#define FLOAT(key) oct_config_float(c, OCT_KEY_##key)
#define BOOL(key) oct_config_bool(c, OCT_KEY_##key)
#define IS(key, text) oct_config_text_is(c, OCT_KEY_##key, text)
#define REFUSE(key, ...) octet_fail(err, OCTET_INVALID_ARGUMENT, #key, __VA_ARGS__)

typedef enum octet_status check_function(const octet_config *c, struct octet_error *err);

static enum octet_status check_parts(const octet_config *c, struct octet_error *err)
{
    if (INT(num_moe_token_chunks) > 1 && !BOOL(use_ring_of_experts))
        return REFUSE(num_moe_token_chunks, "more than 1 needs use_ring_of_experts=true");
    if (BOOL(use_mhc_pallas_kernel) && !BOOL(enable_mhc_lite))
        return REFUSE(use_mhc_pallas_kernel, "true needs enable_mhc_lite=true");
    if (BOOL(rope_pairwise) && !BOOL(rope_interleave))
        return REFUSE(rope_pairwise, "true needs rope_interleave=true");
    return OCTET_OK;
}

/* Experts are spread over the mesh axis `expert`; -1 means as many devices as are left. */
static bool experts_are_spread(const octet_config *c)
{
    int64_t ici = INT(ici_expert_parallelism), dcn = INT(dcn_expert_parallelism);

    return ici == -1 || dcn == -1 || ici != 1 || dcn > 1;
}

static enum octet_status check_expert_parallelism(const octet_config *c, struct octet_error *err)
{
    if (BOOL(override_logical_axis_rules) || experts_are_spread(c))
        return OCTET_OK;
    static const char why[] = "needs experts spread over devices (ici_expert_parallelism above 1)";
    if (BOOL(use_random_routing))
        return REFUSE(use_random_routing, "true %s", why);
    if (BOOL(use_ragged_sort))
        return REFUSE(use_ragged_sort, "true %s", why);
    if (FLOAT(ragged_buffer_factor) != -1.0)
        return REFUSE(ragged_buffer_factor, "a value other than -1 %s", why);
    if (BOOL(use_ring_of_experts))
        return REFUSE(use_ring_of_experts, "true %s", why);
    if (INT(num_moe_emb_chunks))
        return REFUSE(num_moe_emb_chunks, "a value other than 0 %s", why);
    return OCTET_OK;
}

static enum octet_status check_schedule(const octet_config *c, struct octet_error *err)
{
    const int64_t *indexes;

    if (oct_config_ints(c, OCT_KEY_deepstack_visual_indexes_for_vit, &indexes) && BOOL(scan_layers))
        return REFUSE(scan_layers, "deepstack_visual_indexes_for_vit needs scan_layers=false");
    double fractions = FLOAT(warmup_steps_fraction) + FLOAT(wsd_decay_steps_fraction);
    if (IS(lr_schedule_type, "wsd") && fractions > 1.0)
        return REFUSE(
            wsd_decay_steps_fraction,
            "with warmup_steps_fraction it makes %g; at most 1 is left to warm up and decay",
            fractions);
    if (FLOAT(distill_beta) > 0.0 && !BOOL(scan_layers))
        return REFUSE(distill_beta, "above 0 it needs scan_layers=true");
    if (FLOAT(distill_beta) > 0.0 && !BOOL(enable_nnx))
        return REFUSE(distill_beta, "above 0 it needs enable_nnx=true");
    return OCTET_OK;
}

/* Layers that the pipeline's stages share out. */
static int64_t pipeline_layers(const octet_config *c)
{
    int64_t layers = oct_config_dims(c)->num_decoder_layers;

    if (INT(pipeline_parallel_layers) != -1)
        return INT(pipeline_parallel_layers);
    return IS(decoder_block, "deepseek") ? layers - INT(first_num_dense_layers) : layers;
}

static enum octet_status check_pipeline_layers(const octet_config *c, int64_t stages,
                                               struct octet_error *err)
{
    int64_t layers = pipeline_layers(c), per_stage = INT(num_layers_per_pipeline_stage);
    int64_t repeats = INT(num_pipeline_repeats), turn, product;

    if (per_stage <= 0 || __builtin_mul_overflow(stages, per_stage, &turn))
        return REFUSE(num_layers_per_pipeline_stage, "%" PRId64 " is no number of layers",
                      per_stage);
    if (repeats == -1) {
        if (layers % turn)
            return REFUSE(num_layers_per_pipeline_stage,
                          "%" PRId64 " stages of %" PRId64 " do not divide %" PRId64 " layers",
                          stages, per_stage, layers);
        repeats = layers / turn;
    }
    if (BOOL(pipeline_fsdp_ag_per_repeat) && repeats <= 1)
        return REFUSE(pipeline_fsdp_ag_per_repeat, "true needs more than one pipeline repeat");
    if (__builtin_mul_overflow(turn, repeats, &product) || product != layers)
        return REFUSE(num_pipeline_repeats,
                      "%" PRId64 " stages, %" PRId64 " repeats and %" PRId64
                      " layers a stage do not make %" PRId64 " layers",
                      stages, repeats, per_stage, layers);
    return OCTET_OK;
}

static enum octet_status check_pipeline(const octet_config *c, struct octet_error *err)
{
    int64_t ici = INT(ici_pipeline_parallelism), dcn = INT(dcn_pipeline_parallelism), stages;
    int64_t batch = (int64_t)FLOAT(per_device_batch_size);
    bool delayed = BOOL(pipeline_delay_activation_forwarding);

    if (ici <= 1 && dcn <= 1)
        return OCTET_OK;
    if (__builtin_mul_overflow(ici, dcn, &stages) || stages <= 0)
        return REFUSE(ici_pipeline_parallelism,
                      "%" PRId64 " times %" PRId64 " is no number of stages", ici, dcn);
    enum octet_status status = check_pipeline_layers(c, stages, err);
    if (status)
        return status;
    if (INT(num_pipeline_microbatches) == -1 && stages > INT64_MAX / 2)
        return REFUSE(ici_pipeline_parallelism, "%" PRId64 " stages are too many", stages);
    int64_t batches = INT(num_pipeline_microbatches) != -1 ? INT(num_pipeline_microbatches)
                      : delayed                            ? 2 * stages
                                                           : stages;
    if (batches <= 0 || batches % stages)
        return REFUSE(num_pipeline_microbatches,
                      "%" PRId64 " is not a positive multiple of the %" PRId64 " stages", batches,
                      stages);
    if (batch > 0 && batch % batches)
        return REFUSE(num_pipeline_microbatches,
                      "%" PRId64 " microbatches do not divide the batch of %" PRId64, batches,
                      batch);
    if (delayed && batches / 2 < stages)
        return REFUSE(num_pipeline_microbatches,
                      "delayed forwarding needs two microbatches a stage, and %" PRId64
                      " stages have "
                      "%" PRId64,
                      stages, batches);
    return OCTET_OK;
}

/* dot_product, or flash through Tokamax's splash kernel. */
static bool attention_takes_masks(const octet_config *c)
{
    return IS(attention, "dot_product") || (IS(attention, "flash") && BOOL(use_tokamax_splash));
}

static enum octet_status check_indexer(const octet_config *c, struct octet_error *err)
{
    if (!BOOL(use_indexer))
        return IS(indexer_cutoff_threshold, "remat")
                   ? OCTET_OK
                   : REFUSE(indexer_cutoff_threshold, "it needs use_indexer=true");
    if (!IS(attention_type, "mla"))
        return REFUSE(use_indexer, "true needs attention_type=mla");
    if (!INT(q_lora_rank))
        return REFUSE(use_indexer, "true needs a q_lora_rank above 0");
    if (!attention_takes_masks(c))
        return REFUSE(use_indexer,
                      "true needs attention=dot_product, or flash with use_tokamax_splash=true");
    if (FLOAT(indexer_loss_scaling_factor) > 0.0 && INT(indexer_topk) >= INT(max_target_length))
        return REFUSE(indexer_topk,
                      "%" PRId64 " selects all of max_target_length = %" PRId64
                      ", so that the indexer has no loss to scale",
                      INT(indexer_topk), INT(max_target_length));
    return OCTET_OK;
}

static enum octet_status check_head_chunks(const octet_config *c, struct octet_error *err)
{
    int64_t chunk = INT(mla_qk_head_chunk_size), heads = oct_config_dims(c)->num_query_heads;

    if (chunk <= 0)
        return OCTET_OK;
    if (heads % chunk)
        return REFUSE(mla_qk_head_chunk_size, "%" PRId64 " does not divide %" PRId64 " query heads",
                      chunk, heads);
    if (BOOL(use_indexer) && (!INT(indexer_n_heads) || INT(indexer_n_heads) % chunk))
        return REFUSE(mla_qk_head_chunk_size,
                      "%" PRId64 " does not divide %" PRId64 " indexer heads", chunk,
                      INT(indexer_n_heads));
    return OCTET_OK;
}

static enum octet_status check_attention_kind(const octet_config *c, struct octet_error *err)
{
    if (BOOL(moba) && !IS(attention, "dot_product"))
        return REFUSE(moba, "true needs attention=dot_product");
    if (IS(decoder_block, "deepseek4") && !attention_takes_masks(c))
        return REFUSE(attention,
                      "deepseek4 needs dot_product, or flash with use_tokamax_splash=true");
    if (IS(attention_type, "chunk") && !INT(chunk_attn_window_size))
        return REFUSE(chunk_attn_window_size, "attention_type=chunk needs a window above 0");
    if (IS(attention_type, "local_sliding") && !INT(sliding_window_size))
        return REFUSE(sliding_window_size, "attention_type=local_sliding needs a window above 0");
    if (!IS(attention_type, "block_diffusion"))
        return OCTET_OK;
    if (BOOL(packing))
        return REFUSE(packing, "attention_type=block_diffusion needs packing=false");
    if (!IS(attention, "autoselected") && !IS(attention, "dot_product") && !IS(attention, "flash"))
        return REFUSE(attention, "attention_type=block_diffusion needs dot_product or flash");
    return OCTET_OK;
}

static enum octet_status check_objective(const octet_config *c, struct octet_error *err)
{
    if (!IS(training_objective, "block_diffusion"))
        return OCTET_OK;
    if (!IS(attention_type, "block_diffusion"))
        return REFUSE(training_objective, "block_diffusion needs attention_type=block_diffusion");
    if (INT(block_diffusion_mask_id) < 0 || INT(block_diffusion_mask_id) >= INT(vocab_size))
        return REFUSE(block_diffusion_mask_id, "%" PRId64 " is outside the vocabulary of %" PRId64,
                      INT(block_diffusion_mask_id), INT(vocab_size));
    if (INT(mtp_num_layers) > 0)
        return REFUSE(mtp_num_layers, "training_objective=block_diffusion goes without MTP");
    if (INT(num_vocab_tiling) > 1)
        return REFUSE(num_vocab_tiling, "training_objective=block_diffusion needs 1");
    return OCTET_OK;
}

static enum octet_status check_engram(const octet_config *c, struct octet_error *err)
{
    const int64_t *items;
    int64_t grams = INT(engram_max_ngram_size);

    if (!oct_config_ints(c, OCT_KEY_engram_layers, &items))
        return OCTET_OK;
    size_t bases = oct_config_ints(c, OCT_KEY_engram_vocab_bases, &items);
    if (grams < 1 || (int64_t)bases != grams - 1)
        return REFUSE(engram_vocab_bases,
                      "%zu vocabularies; engram_max_ngram_size = %" PRId64
                      " needs one less than that",
                      bases, grams);
    return OCTET_OK;
}

static enum octet_status check_expert_widths(const octet_config *c, struct octet_error *err)
{
    bool in_every_layer = INT(interleave_moe_layer_step) == 1 && !INT(first_num_dense_layers) &&
                          INT(inhomogeneous_layer_cycle_interval) == 1;

    if (oct_config_dims(c)->moe_mlp_dim <= 0)
        return REFUSE(base_moe_mlp_dim, "num_experts = %" PRId64 " needs a width above 0",
                      INT(num_experts));
    if (in_every_layer && INT(base_mlp_dim) != INT(base_moe_mlp_dim) &&
        !IS(decoder_block, "gemma4"))
        return REFUSE(base_mlp_dim,
                      "%" PRId64 " is not base_moe_mlp_dim = %" PRId64
                      ", though every layer has experts",
                      INT(base_mlp_dim), INT(base_moe_mlp_dim));
    return OCTET_OK;
}

static enum octet_status check_experts(const octet_config *c, struct octet_error *err)
{
    if (INT(num_experts) <= 1)
        return OCTET_OK;
    enum octet_status status = check_expert_widths(c, err);
    if (status)
        return status;
    if (IS(decoder_block, "gpt_oss") && !BOOL(sparse_matmul) && FLOAT(capacity_factor) != -1.0)
        return REFUSE(capacity_factor, "gpt_oss with sparse_matmul=false needs -1");
    bool deepseek4 = IS(decoder_block, "deepseek4");
    if (BOOL(routed_bias) && FLOAT(routed_bias_update_rate) > 0.0 && !deepseek4 &&
        !IS(decoder_block, "deepseek"))
        return REFUSE(routed_bias_update_rate,
                      "balancing without a loss is for decoder_block=deepseek");
    if (deepseek4 && BOOL(routed_bias) && !BOOL(pure_nnx))
        return REFUSE(routed_bias, "deepseek4 needs pure_nnx=true for it");
    if (FLOAT(ragged_buffer_factor) > 0.0 && BOOL(use_ring_of_experts) && !BOOL(use_ragged_sort))
        return REFUSE(ragged_buffer_factor,
                      "with use_ring_of_experts=true it needs use_ragged_sort=true");
    return OCTET_OK;
}

static enum octet_status check_multimodal(const octet_config *c, struct octet_error *err)
{
    static const char *const models[] = {
        "default",         "gemma3-4b",        "gemma3-12b",       "gemma3-27b",
        "gemma4-26b",      "gemma4-31b",       "llama4-17b-16e",   "llama4-17b-128e",
        "qwen3-vl-2b",     "qwen3-vl-4b",      "qwen3-vl-30b-a3b", "qwen3-omni-30b-a3b",
        "qwen3.5-35b-a3b", "qwen3.5-397b-a17b"};

    if (INT(num_moe_emb_chunks) > 0 && (!BOOL(use_gmm_v2) || !BOOL(use_ring_of_experts)))
        return REFUSE(num_moe_emb_chunks,
                      "above 0 it needs use_gmm_v2=true and use_ring_of_experts=true");
    if (!BOOL(use_multimodal))
        return OCTET_OK;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        if (IS(model_name, models[i]))
            return OCTET_OK;
    return REFUSE(use_multimodal, "model '%s' has no images or sounds", octet_config_model_name(c));
}

static enum octet_status check_sharding(const octet_config *c, struct octet_error *err)
{
    int64_t tiles = INT(num_vocab_tiling);
    double tokens = FLOAT(per_device_batch_size) * (double)INT(max_target_length);

    if (IS(shard_mode, "explicit") && !IS(decoder_block, "simple") &&
        !IS(decoder_block, "simple_mlp") && !IS(decoder_block, "llama2") &&
        !IS(decoder_block, "deepseek"))
        return REFUSE(shard_mode,
                      "explicit is for simple, simple_mlp, llama2 and deepseek decoders");
    if (!tiles || (tokens > 0.0 && fmod(tokens, (double)tiles) != 0.0))
        return REFUSE(num_vocab_tiling,
                      "%" PRId64 " does not divide per_device_batch_size x max_target_length = %g",
                      tiles, tokens);
    return OCTET_OK;
}

static enum octet_status check_decoder(const octet_config *c, struct octet_error *err)
{
    bool llama4 = IS(decoder_block, "llama4");

    if (llama4 && FLOAT(capacity_factor) >= 0.0)
        return REFUSE(capacity_factor, "llama4 needs -1");
    if (llama4 && INT(num_experts_per_tok) > 1)
        return REFUSE(num_experts_per_tok, "llama4 routes to one expert");
    if ((llama4 || IS(decoder_block, "envy")) &&
        INT(base_num_decoder_layers) % INT(interleave_moe_layer_step))
        return REFUSE(base_num_decoder_layers,
                      "%" PRId64 " is no multiple of interleave_moe_layer_step = %" PRId64,
                      INT(base_num_decoder_layers), INT(interleave_moe_layer_step));
    double rotary = FLOAT(partial_rotary_factor);
    if (!IS(decoder_block, "qwen3_next") && !IS(decoder_block, "qwen3_5"))
        return rotary == 1.0 ? OCTET_OK
                             : REFUSE(partial_rotary_factor, "it is for decoder_block=qwen3_next");
    if (INT(gdn_num_value_heads) % INT(gdn_num_key_heads))
        return REFUSE(gdn_num_value_heads, "%" PRId64 " is no multiple of gdn_num_key_heads",
                      INT(gdn_num_value_heads));
    double rotary_dim = trunc((double)INT(head_dim) * rotary);
    if (!(fmod(rotary_dim, 2.0) == 0.0))
        return REFUSE(partial_rotary_factor, "%g of head_dim is %g, not a multiple of 2", rotary,
                      rotary_dim);
    return OCTET_OK;
}

static enum octet_status check_optimizer(const octet_config *c, struct octet_error *err)
{
    static const char *const decoders[] = {"deepseek", "deepseek4", "qwen3", "gemma3", "llama2"};
    bool known = false;

    for (size_t i = 0; i < sizeof decoders / sizeof decoders[0]; i++)
        known |= IS(decoder_block, decoders[i]);
    if (IS(opt_type, "muon") && !known)
        return REFUSE(opt_type, "muon is not tried with decoder_block=%s",
                      oct_config_text(c, OCT_KEY_decoder_block));
    return OCTET_OK;
}

static enum octet_status check_kernels(const octet_config *c, struct octet_error *err)
{
    bool mla = IS(attention_type, "mla");

    if (BOOL(force_q_layout) && !BOOL(use_jax_splash))
        return REFUSE(force_q_layout, "true needs use_jax_splash=true");
    if (BOOL(use_tokamax_splash) && BOOL(use_jax_splash))
        return REFUSE(use_jax_splash, "use_tokamax_splash is true too; at most one of them may be");
    if (BOOL(use_qk_clip) && !mla)
        return REFUSE(use_qk_clip, "true needs attention_type=mla");
    if (BOOL(use_qk_clip) && !oct_config_is_null(c, OCT_KEY_attn_logits_soft_cap))
        return REFUSE(use_qk_clip, "true goes without attn_logits_soft_cap");
    if (BOOL(experimental_sa_quant_q_fp8) && !mla)
        return REFUSE(experimental_sa_quant_q_fp8, "true needs attention_type=mla");
    if (BOOL(experimental_sa_quant_k_fp8) && !mla)
        return REFUSE(experimental_sa_quant_k_fp8, "true needs attention_type=mla");
    if (BOOL(share_kv_projections) && (BOOL(fused_qkv) || mla))
        return REFUSE(share_kv_projections, "true goes without %s",
                      mla ? "attention_type=mla" : "fused_qkv");
    if (BOOL(use_gmm_v2) && !BOOL(use_tokamax_gmm))
        return REFUSE(use_gmm_v2, "true needs use_tokamax_gmm=true");
    if (BOOL(use_gmm_v2) && BOOL(use_batch_split_schedule))
        return REFUSE(use_gmm_v2, "true goes without use_batch_split_schedule");
    return OCTET_OK;
}

static enum octet_status check_layers(const octet_config *c, struct octet_error *err)
{
    const int64_t *ratios;
    size_t count = oct_config_ints(c, OCT_KEY_compress_ratios, &ratios);
    int64_t chunks = INT(num_moe_token_chunks);

    for (size_t i = 0; i < count; i++)
        if (ratios[i] && ratios[i] < 4)
            return REFUSE(compress_ratios, "%" PRId64 " is neither 0 nor at least 4", ratios[i]);
    if (IS(decoder_block, "deepseek4") && INT(mtp_num_layers) > 0)
        return REFUSE(mtp_num_layers, "deepseek4 goes without MTP");
    if (INT(num_kv_shared_layers) > 0 && (BOOL(fused_qkv) || BOOL(share_kv_projections)))
        return REFUSE(num_kv_shared_layers, "above 0 it goes without %s",
                      BOOL(fused_qkv) ? "fused_qkv" : "share_kv_projections");
    if (chunks > 1 && INT(max_target_length) % chunks)
        return REFUSE(num_moe_token_chunks,
                      "%" PRId64 " does not divide max_target_length = %" PRId64, chunks,
                      INT(max_target_length));
    if (IS(decoder_block, "qwen3_custom_moe") &&
        INT(moe_expert_input_dim) != INT(attention_output_dim))
        return REFUSE(moe_expert_input_dim,
                      "%" PRId64 " is not attention_output_dim = %" PRId64
                      ", as qwen3_custom_moe needs",
                      INT(moe_expert_input_dim), INT(attention_output_dim));
    return OCTET_OK;
}

static enum octet_status check_heads(const octet_config *c, struct octet_error *err)
{
    int64_t query = oct_config_dims(c)->num_query_heads, kv = oct_config_dims(c)->num_kv_heads;

    if (!IS(attention_type, "mla") && query % kv)
        return REFUSE(base_num_kv_heads,
                      "%" PRId64 " heads for keys and values do not divide %" PRId64 " query heads",
                      kv, query);
    return OCTET_OK;
}

enum octet_status oct_config_check(const struct octet_config *config, struct octet_error *err)
{
    static check_function *const checks[] = {
        check_parts,          check_expert_parallelism,
        check_schedule,       check_pipeline,
        check_attention_kind, check_head_chunks,
        check_indexer,        check_objective,
        check_engram,         check_experts,
        check_multimodal,     check_sharding,
        check_decoder,        check_optimizer,
        check_kernels,        check_layers,
        check_heads,
    };

    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        enum octet_status status = checks[i](config, err);
        if (status)
            return status;
    }
    return OCTET_OK;
}
