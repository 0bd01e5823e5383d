/* All of MaxText's config keys: one row a key, in alphabetical order (strcmp's).
 *
 * For: the enum in settings.h, the table in keys.c, tests.
 * Not for: what a key means where it is used; models, rules and train know that.
 * Source: MaxText of 22 August 2026, configs/base.yml (defaults) and configs/types.py (types,
 * limits, choices); quantize_mtp from MaxText's pull request 5141. Octet's own:
 * use_qwix_quantization is true, attention is dot_product, and the three keys that say how a mesh
 * is sharded start empty.
 *
 * X(name, kind, null, default, limit, choices, effect, place)
 *   kind     BOOL INT FLOAT TEXT; LIST (of texts), INTS (list of integers); MAP, ANY (kept as text)
 *   null     OPTIONAL: None is a value of this key; REQUIRED: it is not
 *   default  B(bool) I(int) F(float) W(whole number of a FLOAT) T(text) L(texts) N(integers) EMPTY
 * (list) Y(what YAML has, as flow YAML) NONE WORD_NONE (the text None, which MaxText reads as None)
 *   limit    of numbers, a row of OCT_LIMITS
 *   choices  of texts, an array of keys.c; any = all texts
 *   effect   EFFECT: something in Octet reads it; NO_EFFECT: known, kept, without effect here;
 *            DERIVED: MaxText computes it and drops what it is given
 *   place    YML: base.yml has it, so M_KEY sets it; CODE: only types.py has it, M_KEY is ignored
 */
#ifndef OCTET_MODELS_KEYS_H
#define OCTET_MODELS_KEYS_H

/* X(name, smallest, largest). WIDTH to BATCH size arrays or loops: MaxText does not bound them,
 * here each factor of a product is, far above every known model (the widest is 53,248, the deepest
 * 126). */
/* clang-format off */
#define OCT_LIMITS(X) \
    X(ANY, INT64_MIN, INT64_MAX) \
    X(NOT_NEGATIVE, 0, INT64_MAX) \
    X(POSITIVE, 1, INT64_MAX) \
    X(FROM_MINUS_ONE, -1, INT64_MAX) \
    X(FRACTION, 0, 1) \
    X(POSITIVE_FRACTION, 0, 1) /* not 0 itself */ \
    X(ZERO_TO_TWO, 0, 2) \
    X(WIDTH, 1, 1048576) \
    X(WIDTH_OR_ZERO, 0, 1048576) \
    X(WIDTH_OR_LESS, -1, 1048576) \
    X(HEADS, 1, 16384) \
    X(HEADS_OR_ZERO, 0, 16384) \
    X(LAYERS, 1, 8192) \
    X(LAYERS_OR_ZERO, 0, 8192) \
    X(MTP_LAYERS, 0, 256) /* each stands unrolled in the graph */ \
    X(EXPERTS, 1, 16384) \
    X(EXPERTS_OR_ZERO, 0, 16384) \
    X(VOCABULARY, 1, 268435456) \
    X(VOCABULARY_OR_ZERO, 0, 268435456) \
    X(LENGTH, 1, 268435456) \
    X(LENGTH_OR_ZERO, 0, 268435456) \
    X(BATCH, 0, 16777216)

#define OCT_KEYS(X) \
    X(abort_on_inf_loss, BOOL, REQUIRED, B(true), ANY, any, NO_EFFECT, YML) \
    X(abort_on_nan_loss, BOOL, REQUIRED, B(true), ANY, any, NO_EFFECT, YML) \
    X(act_quantization_calibration_method, TEXT, REQUIRED, T("absmax"), ANY, any, EFFECT, YML) \
    X(activation_dropout_for_audio, FLOAT, REQUIRED, F(0.0), ANY, any, NO_EFFECT, YML) \
    X(activation_function_for_audio, TEXT, REQUIRED, T("gelu"), ANY, any, NO_EFFECT, YML) \
    X(activations_in_float32, BOOL, REQUIRED, B(false), ANY, any, EFFECT, YML) \
    X(adam_b1, FLOAT, REQUIRED, F(0.9), ANY, any, EFFECT, YML) \
    X(adam_b2, FLOAT, REQUIRED, F(0.95), ANY, any, EFFECT, YML) \
    X(adam_eps, FLOAT, REQUIRED, F(1e-08), ANY, any, EFFECT, YML) \
    X(adam_eps_root, FLOAT, REQUIRED, F(0.0), ANY, any, EFFECT, YML) \
    X(adam_weight_decay, FLOAT, REQUIRED, F(0.1), ANY, any, EFFECT, YML) \
    X(adamw_mask, LIST, REQUIRED, EMPTY, ANY, any, EFFECT, YML) \
    X(add_bos, BOOL, REQUIRED, B(true), ANY, any, NO_EFFECT, YML) \
    X(add_eos, BOOL, REQUIRED, B(true), ANY, any, NO_EFFECT, YML) \
    X(allow_split_physical_axes, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(ar_cache_axis_order, TEXT, REQUIRED, T("1,2,0,3"), ANY, any, NO_EFFECT, YML) \
    X(async_checkpointing, BOOL, REQUIRED, B(true), ANY, any, NO_EFFECT, YML) \
    X(async_scheduling, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, CODE) \
    X(attention, TEXT, REQUIRED, T("dot_product"), ANY, any, EFFECT, YML) \
    X(attention_bias, BOOL, REQUIRED, B(false), ANY, any, EFFECT, YML) \
    X(attention_dropout_for_audio, FLOAT, REQUIRED, F(0.0), ANY, any, NO_EFFECT, YML) \
    X(attention_for_vit, TEXT, REQUIRED, T("dot_product"), ANY, any, NO_EFFECT, CODE) \
    X(attention_out, TEXT, REQUIRED, T("remat"), ANY, remat, NO_EFFECT, YML) \
    X(attention_output_dim, INT, REQUIRED, I(-1), WIDTH_OR_LESS, any, EFFECT, YML) \
    X(attention_sink, BOOL, REQUIRED, B(false), ANY, any, EFFECT, YML) \
    X(attention_type, TEXT, REQUIRED, T("global"), ANY, attention_type, EFFECT, YML) \
    X(attn_logits_soft_cap, FLOAT, OPTIONAL, F(0.0), NOT_NEGATIVE, any, EFFECT, YML) \
    X(attn_module_name, TEXT, OPTIONAL, NONE, ANY, any, NO_EFFECT, CODE) \
    X(audio_path, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(audio_placeholder, TEXT, REQUIRED, T("<|audio|>"), ANY, any, NO_EFFECT, YML) \
    X(autoregressive_decode_assert, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(base_config, TEXT, OPTIONAL, NONE, ANY, any, EFFECT, CODE) \
    X(base_emb_dim, INT, REQUIRED, I(2048), WIDTH, any, EFFECT, YML) \
    X(base_mlp_dim, INT, REQUIRED, I(7168), WIDTH, any, EFFECT, YML) \
    X(base_moe_mlp_dim, INT, REQUIRED, I(-1), WIDTH_OR_LESS, any, EFFECT, YML) \
    X(base_num_decoder_layers, INT, REQUIRED, I(16), LAYERS, any, EFFECT, YML) \
    X(base_num_kv_heads, INT, REQUIRED, I(16), HEADS, any, EFFECT, YML) \
    X(base_num_query_heads, INT, REQUIRED, I(16), HEADS, any, EFFECT, YML) \
    X(base_output_directory, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(batch_split_factor, INT, REQUIRED, I(1), ANY, any, EFFECT, YML) \
    X(beta_fast, INT, REQUIRED, I(32), ANY, any, EFFECT, YML) \
    X(beta_slow, INT, REQUIRED, I(1), ANY, any, EFFECT, YML) \
    X(block_diffusion_canvas_policy, TEXT, REQUIRED, T("all_masked"), ANY, \
      block_diffusion_canvas_policy, NO_EFFECT, YML) \
    X(block_diffusion_logit_alignment, TEXT, REQUIRED, T("same_position"), ANY, \
      block_diffusion_logit_alignment, NO_EFFECT, YML) \
    X(block_diffusion_mask_id, INT, REQUIRED, I(-1), ANY, any, NO_EFFECT, YML) \
    X(block_diffusion_min_noise, FLOAT, REQUIRED, F(0.001), POSITIVE_FRACTION, any, NO_EFFECT, \
      YML) \
    X(bwd_quantization_calibration_method, TEXT, REQUIRED, T("absmax"), ANY, any, EFFECT, YML) \
    X(capacity_factor, FLOAT, REQUIRED, F(-1.0), ANY, any, EFFECT, YML) \
    X(cast_logits_to_fp32, BOOL, REQUIRED, B(true), ANY, any, EFFECT, YML) \
    X(causal_block_size, INT, REQUIRED, I(32), POSITIVE, any, EFFECT, YML) \
    X(chat_template, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(chat_template_path, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(check_vma, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(checkpoint_conversion_fn, TEXT, OPTIONAL, WORD_NONE, ANY, any, NO_EFFECT, YML) \
    X(checkpoint_dir, TEXT, OPTIONAL, NONE, ANY, any, DERIVED, CODE) \
    X(checkpoint_is_quantized, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(checkpoint_period, INT, REQUIRED, I(10000), ANY, any, NO_EFFECT, YML) \
    X(checkpoint_storage_concurrent_gb, INT, REQUIRED, I(96), ANY, any, NO_EFFECT, YML) \
    X(checkpoint_storage_target_data_file_size_bytes, INT, REQUIRED, I(2147483648), ANY, any, \
      NO_EFFECT, YML) \
    X(checkpoint_storage_use_ocdbt, BOOL, REQUIRED, B(true), ANY, any, NO_EFFECT, YML) \
    X(checkpoint_storage_use_zarr3, BOOL, REQUIRED, B(true), ANY, any, NO_EFFECT, YML) \
    X(checkpoint_todelete_full_path, TEXT, OPTIONAL, WORD_NONE, ANY, any, NO_EFFECT, YML) \
    X(checkpoint_todelete_subdir, TEXT, OPTIONAL, WORD_NONE, ANY, any, NO_EFFECT, YML) \
    X(chunk_attn_window_size, INT, REQUIRED, I(0), LENGTH_OR_ZERO, any, EFFECT, YML) \
    X(colocated_python_checkpointing, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(colocated_python_data_input, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(communication_overlapping_alpha, FLOAT, REQUIRED, F(0.0), FRACTION, any, NO_EFFECT, YML) \
    X(compile_topology, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(compile_topology_num_slices, INT, REQUIRED, I(-1), ANY, any, NO_EFFECT, YML) \
    X(compile_xla_flags, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(compiled_trainstep_file, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(compress_ratios, INTS, REQUIRED, EMPTY, ANY, any, EFFECT, YML) \
    X(compressed_rope_max_timescale, INT, REQUIRED, I(160000), ANY, any, EFFECT, YML) \
    X(compute_axis_order, TEXT, REQUIRED, T("0,1,2,3"), ANY, any, NO_EFFECT, YML) \
    X(constant_bound_config, ANY, REQUIRED, Y(TEXT, ""), ANY, any, NO_EFFECT, YML) \
    X(context, TEXT, REQUIRED, T("remat"), ANY, remat, NO_EFFECT, YML) \
    X(context_parallel_load_balance, BOOL, REQUIRED, B(true), ANY, any, NO_EFFECT, YML) \
    X(context_parallel_reorder_strategy, TEXT, REQUIRED, T("auto"), ANY, \
      context_parallel_reorder_strategy, NO_EFFECT, YML) \
    X(context_parallel_strategy, TEXT, REQUIRED, T("all_gather"), ANY, any, NO_EFFECT, YML) \
    X(context_sharding, TEXT, REQUIRED, T("context"), ANY, any, NO_EFFECT, YML) \
    X(conv_chunksize_for_audio, INT, REQUIRED, I(500), ANY, any, NO_EFFECT, YML) \
    X(conv_stride_for_vit, INT, REQUIRED, I(14), ANY, any, NO_EFFECT, YML) \
    X(convert_checkpoint_if_possible, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, CODE) \
    X(cost_estimate_flops_bwd, INT, REQUIRED, I(-1), ANY, any, NO_EFFECT, YML) \
    X(cost_estimate_flops_fwd, INT, REQUIRED, I(-1), ANY, any, NO_EFFECT, YML) \
    X(custom_mesh, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(custom_mesh_and_rule, TEXT, REQUIRED, T(""), ANY, mesh_rule, NO_EFFECT, YML) \
    X(custom_mesh_and_rule_for_eval, TEXT, REQUIRED, T(""), ANY, mesh_rule, NO_EFFECT, YML) \
    X(d_model_for_audio, INT, REQUIRED, I(256), ANY, any, NO_EFFECT, YML) \
    X(data_sharding, ANY, REQUIRED, Y(LIST, "[]"), ANY, any, NO_EFFECT, YML) \
    X(data_shuffle_seed, INT, REQUIRED, I(0), ANY, any, NO_EFFECT, YML) \
    X(data_template_path, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, CODE) \
    X(dataset_name, TEXT, REQUIRED, T("c4/en:3.1.0"), ANY, any, NO_EFFECT, YML) \
    X(dataset_path, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(dataset_type, TEXT, REQUIRED, T("tfds"), ANY, dataset_type, NO_EFFECT, YML) \
    X(dcn_autoregressive_parallelism, INT, REQUIRED, I(1), ANY, any, NO_EFFECT, YML) \
    X(dcn_bandwidth_burst, TEXT, REQUIRED, T("10mb"), ANY, any, NO_EFFECT, YML) \
    X(dcn_bandwidth_interface, TEXT, REQUIRED, T("eth0"), ANY, any, NO_EFFECT, YML) \
    X(dcn_bandwidth_latency, TEXT, REQUIRED, T("50ms"), ANY, any, NO_EFFECT, YML) \
    X(dcn_bandwidth_limit, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(dcn_context_autoregressive_parallelism, INT, REQUIRED, I(1), ANY, any, NO_EFFECT, YML) \
    X(dcn_context_parallelism, INT, REQUIRED, I(1), ANY, any, NO_EFFECT, YML) \
    X(dcn_context_usp_ulysses_parallelism, INT, REQUIRED, I(1), ANY, any, NO_EFFECT, YML) \
    X(dcn_data_parallelism, INT, REQUIRED, I(-1), ANY, any, NO_EFFECT, YML) \
    X(dcn_diloco_parallelism, INT, REQUIRED, I(1), ANY, any, NO_EFFECT, YML) \
    X(dcn_expert_parallelism, INT, REQUIRED, I(1), ANY, any, NO_EFFECT, YML) \
    X(dcn_fsdp_parallelism, INT, REQUIRED, I(1), ANY, any, NO_EFFECT, YML) \
    X(dcn_fsdp_transpose_parallelism, INT, REQUIRED, I(1), ANY, any, NO_EFFECT, YML) \
    X(dcn_parallelism, INTS, OPTIONAL, NONE, ANY, any, DERIVED, CODE) \
    X(dcn_pipeline_parallelism, INT, REQUIRED, I(1), ANY, any, EFFECT, YML) \
    X(dcn_sequence_parallelism, INT, REQUIRED, I(1), ANY, any, NO_EFFECT, YML) \
    X(dcn_tensor_parallelism, INT, REQUIRED, I(1), ANY, any, NO_EFFECT, YML) \
    X(dcn_tensor_sequence_parallelism, INT, REQUIRED, I(1), ANY, any, NO_EFFECT, YML) \
    X(debug_converter, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, CODE) \
    X(debug_sharding, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(decode_sampling_nucleus_p, FLOAT, REQUIRED, W(-1), ANY, any, NO_EFFECT, YML) \
    X(decode_sampling_strategy, TEXT, REQUIRED, T("greedy"), ANY, decode_sampling_strategy, \
      NO_EFFECT, YML) \
    X(decode_sampling_temperature, FLOAT, REQUIRED, F(1.0), ANY, any, NO_EFFECT, YML) \
    X(decode_sampling_top_k, INT, REQUIRED, I(0), ANY, any, NO_EFFECT, YML) \
    X(decoder_block, TEXT, REQUIRED, T("llama2"), ANY, decoder_block, EFFECT, YML) \
    X(decoder_layer_input, TEXT, REQUIRED, T("device"), ANY, remat, NO_EFFECT, YML) \
    X(deepstack_visual_indexes_for_vit, INTS, REQUIRED, EMPTY, ANY, any, NO_EFFECT, YML) \
    X(default_prompt, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(dense_fsdp_use_two_stage_all_gather, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(dense_init_scale, FLOAT, REQUIRED, F(1.0), ANY, any, EFFECT, YML) \
    X(diloco_outer_lr, FLOAT, REQUIRED, F(0.3), ANY, any, NO_EFFECT, YML) \
    X(diloco_outer_momentum, FLOAT, REQUIRED, F(0.9), ANY, any, NO_EFFECT, YML) \
    X(diloco_sync_period, INT, REQUIRED, I(36), ANY, any, NO_EFFECT, YML) \
    X(distill_alpha, FLOAT, REQUIRED, F(0.5), ANY, any, NO_EFFECT, YML) \
    X(distill_alpha_end, FLOAT, OPTIONAL, WORD_NONE, ANY, any, NO_EFFECT, YML) \
    X(distill_alpha_schedule, TEXT, REQUIRED, T("constant"), ANY, schedule, NO_EFFECT, YML) \
    X(distill_beta, FLOAT, REQUIRED, F(0.0), ANY, any, NO_EFFECT, YML) \
    X(distill_beta_end, FLOAT, OPTIONAL, WORD_NONE, ANY, any, NO_EFFECT, YML) \
    X(distill_beta_schedule, TEXT, REQUIRED, T("constant"), ANY, schedule, NO_EFFECT, YML) \
    X(distill_feature_loss_type, TEXT, REQUIRED, T("cosine"), ANY, distill_feature_loss_type, \
      NO_EFFECT, YML) \
    X(distill_layer_indices, ANY, OPTIONAL, WORD_NONE, ANY, any, NO_EFFECT, YML) \
    X(distill_student_weights_share_map, MAP, REQUIRED, Y(MAP, "{}"), ANY, any, NO_EFFECT, CODE) \
    X(distill_temperature, FLOAT, REQUIRED, F(1.0), ANY, any, NO_EFFECT, YML) \
    X(distill_temperature_end, FLOAT, OPTIONAL, WORD_NONE, ANY, any, NO_EFFECT, YML) \
    X(distill_temperature_schedule, TEXT, REQUIRED, T("constant"), ANY, schedule, NO_EFFECT, YML) \
    X(distill_weights_copy_map, MAP, REQUIRED, Y(MAP, "{}"), ANY, any, NO_EFFECT, CODE) \
    X(downsample_hidden_size_for_audio, INT, REQUIRED, I(256), ANY, any, NO_EFFECT, YML) \
    X(dpo, MAP, REQUIRED, Y(MAP, "{algo: dpo, dpo_beta: 0.1, orpo_lambda: 0.1, \
      dpo_label_smoothing: 0.0, max_prompt_length: null}"), ANY, any, NO_EFFECT, CODE) \
    X(dq_reduction_steps, INT, REQUIRED, I(0), ANY, any, NO_EFFECT, YML) \
    X(dropout_rate, FLOAT, REQUIRED, F(0.0), FRACTION, any, EFFECT, YML) \
    X(dtype, TEXT, REQUIRED, T("bfloat16"), ANY, float_type, EFFECT, YML) \
    X(dtype_mm, TEXT, REQUIRED, T("float32"), ANY, any, NO_EFFECT, YML) \
    X(dump_hlo, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(dump_hlo_delete_local_after, BOOL, REQUIRED, B(true), ANY, any, NO_EFFECT, YML) \
    X(dump_hlo_gcs_dir, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(dump_hlo_local_dir, TEXT, REQUIRED, T("/tmp/xla_dump/"), ANY, any, NO_EFFECT, YML) \
    X(dump_hlo_local_module_name, TEXT, REQUIRED, T("jit_train_step"), ANY, any, NO_EFFECT, YML) \
    X(dump_hlo_module_name, TEXT, REQUIRED, T("jit_train_step"), ANY, any, NO_EFFECT, YML) \
    X(dump_hlo_upload_all, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(dump_hlo_xla_flags, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(dump_jaxpr, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(dump_jaxpr_delete_local_after, BOOL, REQUIRED, B(true), ANY, any, NO_EFFECT, YML) \
    X(dump_jaxpr_gcs_dir, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(dump_jaxpr_local_dir, TEXT, REQUIRED, T("/tmp/jaxpr_dump/"), ANY, any, NO_EFFECT, YML) \
    X(dump_step, INT, REQUIRED, I(-1), ANY, any, NO_EFFECT, YML) \
    X(elastic_backup_kind, TEXT, REQUIRED, T("snapshot"), ANY, any, NO_EFFECT, YML) \
    X(elastic_enabled, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(elastic_max_retries, INT, REQUIRED, I(10), ANY, any, NO_EFFECT, YML) \
    X(elastic_min_slice_count, INT, REQUIRED, I(-1), ANY, any, NO_EFFECT, YML) \
    X(elastic_timeout_seconds, INT, REQUIRED, I(300), ANY, any, NO_EFFECT, YML) \
    X(emb_dim, INT, OPTIONAL, NONE, ANY, any, DERIVED, CODE) \
    X(enable_autocheckpoint, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(enable_checkpoint_cloud_logger, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(enable_checkpointing, BOOL, REQUIRED, B(true), ANY, any, NO_EFFECT, YML) \
    X(enable_continuous_checkpointing, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(enable_data_shuffling, BOOL, REQUIRED, B(true), ANY, any, NO_EFFECT, YML) \
    X(enable_diloco, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(enable_dp_attention, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, CODE) \
    X(enable_dropout, BOOL, REQUIRED, B(true), ANY, any, EFFECT, YML) \
    X(enable_emergency_checkpoint, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(enable_expert_parallel, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, CODE) \
    X(enable_gcp_goodput_metrics, BOOL, REQUIRED, B(true), ANY, any, NO_EFFECT, YML) \
    X(enable_gcp_step_deviation_metrics, BOOL, REQUIRED, B(true), ANY, any, NO_EFFECT, YML) \
    X(enable_goodput_recording, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(enable_jax_profiler, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(enable_llm_inference_pool, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(enable_mhc_lite, BOOL, REQUIRED, B(false), ANY, any, EFFECT, YML) \
    X(enable_model_warmup, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(enable_multi_tier_checkpointing, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(enable_nnx, BOOL, REQUIRED, B(true), ANY, any, EFFECT, YML) \
    X(enable_orbax_v1, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(enable_padding_causal_mask, BOOL, REQUIRED, B(true), ANY, any, NO_EFFECT, YML) \
    X(enable_pathways_goodput, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(enable_prefix_caching, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(enable_rampup_batch_size, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(enable_single_controller, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(enable_single_replica_ckpt_restoring, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(enable_streaming_diloco, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(enable_tensorboard, BOOL, REQUIRED, B(true), ANY, any, NO_EFFECT, YML) \
    X(enable_tpu_profiling_options, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(enable_wandb, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(encoder_attention_heads_for_audio, INT, REQUIRED, I(4), ANY, any, NO_EFFECT, YML) \
    X(encoder_ffn_dim_for_audio, INT, REQUIRED, I(512), ANY, any, NO_EFFECT, YML) \
    X(encoder_layers_for_audio, INT, REQUIRED, I(2), ANY, any, NO_EFFECT, YML) \
    X(engram, TEXT, REQUIRED, T("remat"), ANY, remat, NO_EFFECT, YML) \
    X(engram_head_dim, INT, REQUIRED, I(1280), ANY, any, EFFECT, YML) \
    X(engram_kernel_size, INT, REQUIRED, I(4), ANY, any, EFFECT, YML) \
    X(engram_layers, INTS, REQUIRED, EMPTY, ANY, any, EFFECT, YML) \
    X(engram_max_ngram_size, INT, REQUIRED, I(3), ANY, any, EFFECT, YML) \
    X(engram_num_heads, INT, REQUIRED, I(8), ANY, any, EFFECT, YML) \
    X(engram_seed, INT, REQUIRED, I(0), ANY, any, EFFECT, YML) \
    X(engram_vocab_bases, INTS, REQUIRED, EMPTY, ANY, any, EFFECT, YML) \
    X(eval_data_columns, LIST, REQUIRED, L("text"), ANY, any, NO_EFFECT, YML) \
    X(eval_dataset_name, TEXT, REQUIRED, T("c4/en:3.1.0"), ANY, any, NO_EFFECT, YML) \
    X(eval_image_column, ANY, REQUIRED, Y(TEXT, "image"), ANY, any, NO_EFFECT, YML) \
    X(eval_interval, INT, REQUIRED, I(-1), ANY, any, NO_EFFECT, YML) \
    X(eval_per_device_batch_size, FLOAT, REQUIRED, F(0.0), ANY, any, NO_EFFECT, YML) \
    X(eval_split, TEXT, REQUIRED, T("validation"), ANY, any, NO_EFFECT, YML) \
    X(eval_start_step, INT, REQUIRED, I(0), NOT_NEGATIVE, any, NO_EFFECT, YML) \
    X(eval_steps, INT, REQUIRED, I(-1), ANY, any, NO_EFFECT, YML) \
    X(expansion_factor_real_data, FLOAT, REQUIRED, F(-1.0), ANY, any, NO_EFFECT, YML) \
    X(experimental_sa_quant_k_fp8, BOOL, OPTIONAL, B(false), ANY, any, NO_EFFECT, YML) \
    X(experimental_sa_quant_q_fp8, BOOL, OPTIONAL, B(false), ANY, any, NO_EFFECT, YML) \
    X(final_logits_soft_cap, FLOAT, OPTIONAL, F(0.0), NOT_NEGATIVE, any, EFFECT, YML) \
    X(first_num_dense_layers, INT, REQUIRED, I(0), LAYERS_OR_ZERO, any, EFFECT, YML) \
    X(first_num_hash_layers, INT, REQUIRED, I(0), ANY, any, EFFECT, YML) \
    X(float32_gate_logits, BOOL, REQUIRED, B(false), ANY, any, EFFECT, YML) \
    X(float32_logits, BOOL, REQUIRED, B(false), ANY, any, EFFECT, YML) \
    X(float32_qk_product, BOOL, REQUIRED, B(false), ANY, any, EFFECT, YML) \
    X(float32_weight_sum, BOOL, REQUIRED, B(true), ANY, any, EFFECT, YML) \
    X(force_q_layout, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(force_unroll, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(formatting_func_kwargs, MAP, REQUIRED, Y(MAP, "{}"), ANY, any, NO_EFFECT, CODE) \
    X(formatting_func_path, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, CODE) \
    X(freeze_audio_encoder_params, BOOL, REQUIRED, B(true), ANY, any, NO_EFFECT, YML) \
    X(freeze_vision_encoder_params, BOOL, REQUIRED, B(true), ANY, any, NO_EFFECT, YML) \
    X(fuse_expert_scales, BOOL, REQUIRED, B(false), ANY, any, EFFECT, CODE) \
    X(fused_mlp, BOOL, REQUIRED, B(false), ANY, any, EFFECT, YML) \
    X(fused_qkv, BOOL, REQUIRED, B(false), ANY, any, EFFECT, YML) \
    X(gcs_debug_path, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, CODE) \
    X(gcs_metrics, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(gdn_chunk_size, INT, REQUIRED, I(64), ANY, any, EFFECT, YML) \
    X(gdn_conv_kernel_dim, INT, REQUIRED, I(4), WIDTH, any, EFFECT, YML) \
    X(gdn_key_head_dim, INT, REQUIRED, I(128), WIDTH, any, EFFECT, YML) \
    X(gdn_num_key_heads, INT, REQUIRED, I(16), WIDTH, any, EFFECT, YML) \
    X(gdn_num_value_heads, INT, REQUIRED, I(32), WIDTH, any, EFFECT, YML) \
    X(gdn_value_head_dim, INT, REQUIRED, I(128), WIDTH, any, EFFECT, YML) \
    X(generate_padding_batch_eval, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(generate_padding_batch_train, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(generate_slice, TEXT, REQUIRED, T("v5e-16"), ANY, any, NO_EFFECT, YML) \
    X(global_batch_size_to_eval_on, INT, OPTIONAL, NONE, ANY, any, DERIVED, CODE) \
    X(global_batch_size_to_load, INT, OPTIONAL, NONE, ANY, any, DERIVED, CODE) \
    X(global_batch_size_to_load_eval, INT, OPTIONAL, NONE, ANY, any, DERIVED, CODE) \
    X(global_batch_size_to_load_increment, INT, OPTIONAL, NONE, ANY, any, DERIVED, CODE) \
    X(global_batch_size_to_load_start, INT, OPTIONAL, NONE, ANY, any, DERIVED, CODE) \
    X(global_batch_size_to_train_on, INT, OPTIONAL, NONE, ANY, any, DERIVED, CODE) \
    X(global_head_dim, INT, REQUIRED, I(0), WIDTH_OR_ZERO, any, EFFECT, YML) \
    X(global_num_kv_heads, INT, REQUIRED, I(0), HEADS_OR_ZERO, any, EFFECT, YML) \
    X(global_parameter_scale, INT, REQUIRED, I(1), ANY, any, EFFECT, YML) \
    X(global_rampup_samples, INT, REQUIRED, I(500), ANY, any, NO_EFFECT, YML) \
    X(global_rope_max_timescale, INT, REQUIRED, I(-1), ANY, any, EFFECT, YML) \
    X(global_rope_proportion, FLOAT, REQUIRED, F(0.25), ANY, any, EFFECT, YML) \
    X(goodput_upload_interval_seconds, INT, REQUIRED, I(30), ANY, any, NO_EFFECT, YML) \
    X(grad_dtype, TEXT, REQUIRED, T("float32"), ANY, float_type, EFFECT, YML) \
    X(gradient_accumulation_steps, INT, REQUIRED, I(1), POSITIVE, any, EFFECT, YML) \
    X(gradient_clipping_threshold, FLOAT, REQUIRED, F(1.0), NOT_NEGATIVE, any, EFFECT, YML) \
    X(grain_data_source_max_workers, INT, REQUIRED, I(16), ANY, any, NO_EFFECT, YML) \
    X(grain_eval_files, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(grain_file_type, TEXT, REQUIRED, T("arrayrecord"), ANY, any, NO_EFFECT, YML) \
    X(grain_index_storage_option, TEXT, OPTIONAL, NONE, ANY, grain_index_storage_option, \
      NO_EFFECT, YML) \
    X(grain_num_threads, INT, REQUIRED, I(16), ANY, any, NO_EFFECT, YML) \
    X(grain_num_threads_eval, INT, REQUIRED, I(16), ANY, any, NO_EFFECT, YML) \
    X(grain_packing_type, TEXT, REQUIRED, T("first_fit"), ANY, grain_packing_type, NO_EFFECT, \
      YML) \
    X(grain_per_worker_buffer_size, INT, REQUIRED, I(1), ANY, any, NO_EFFECT, YML) \
    X(grain_per_worker_buffer_size_eval, INT, REQUIRED, I(1), ANY, any, NO_EFFECT, YML) \
    X(grain_prefetch_buffer_size, INT, REQUIRED, I(500), ANY, any, NO_EFFECT, YML) \
    X(grain_prefetch_buffer_size_eval, INT, REQUIRED, I(500), ANY, any, NO_EFFECT, YML) \
    X(grain_ram_budget_mb, INT, REQUIRED, I(1024), ANY, any, NO_EFFECT, YML) \
    X(grain_shuffle_buffer_size, INT, REQUIRED, I(100), ANY, any, NO_EFFECT, YML) \
    X(grain_train_files, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(grain_train_mixture_config_path, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(grain_use_elastic_iterator, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(grain_worker_count, INT, REQUIRED, I(1), ANY, any, NO_EFFECT, YML) \
    X(grain_worker_count_eval, INT, REQUIRED, I(1), ANY, any, NO_EFFECT, YML) \
    X(hardware, TEXT, REQUIRED, T("tpu"), ANY, hardware, EFFECT, YML) \
    X(hbm_utilization_vllm, FLOAT, REQUIRED, F(0.72), POSITIVE_FRACTION, any, NO_EFFECT, CODE) \
    X(head_dim, INT, REQUIRED, I(128), WIDTH, any, EFFECT, YML) \
    X(heartbeat_reporting_interval_in_seconds, INT, REQUIRED, I(5), ANY, any, NO_EFFECT, YML) \
    X(hf_access_token, TEXT, OPTIONAL, T(""), ANY, any, NO_EFFECT, YML) \
    X(hf_data_dir, TEXT, OPTIONAL, T(""), ANY, any, NO_EFFECT, YML) \
    X(hf_eval_files, TEXT, OPTIONAL, T(""), ANY, any, NO_EFFECT, YML) \
    X(hf_eval_split, TEXT, OPTIONAL, T(""), ANY, any, NO_EFFECT, YML) \
    X(hf_lora_adapter_path, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(hf_name, TEXT, OPTIONAL, T(""), ANY, any, NO_EFFECT, YML) \
    X(hf_path, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(hf_train_files, TEXT, OPTIONAL, T(""), ANY, any, NO_EFFECT, YML) \
    X(hidden_size_for_vit, INT, REQUIRED, I(1408), ANY, any, NO_EFFECT, YML) \
    X(hidden_size_per_layer_input, INT, REQUIRED, I(0), WIDTH_OR_ZERO, any, EFFECT, YML) \
    X(hide_profiler_step_metric, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(ici_autoregressive_parallelism, INT, REQUIRED, I(1), ANY, any, NO_EFFECT, YML) \
    X(ici_context_autoregressive_parallelism, INT, REQUIRED, I(1), ANY, any, NO_EFFECT, YML) \
    X(ici_context_parallelism, INT, REQUIRED, I(1), ANY, any, NO_EFFECT, YML) \
    X(ici_context_usp_ulysses_parallelism, INT, REQUIRED, I(1), ANY, any, NO_EFFECT, YML) \
    X(ici_data_parallelism, INT, REQUIRED, I(1), ANY, any, NO_EFFECT, YML) \
    X(ici_diloco_parallelism, INT, REQUIRED, I(1), ANY, any, NO_EFFECT, YML) \
    X(ici_expert_parallelism, INT, REQUIRED, I(1), ANY, any, NO_EFFECT, YML) \
    X(ici_fsdp_parallelism, INT, REQUIRED, I(-1), ANY, any, NO_EFFECT, YML) \
    X(ici_fsdp_transpose_parallelism, INT, REQUIRED, I(1), ANY, any, NO_EFFECT, YML) \
    X(ici_parallelism, INTS, OPTIONAL, NONE, ANY, any, DERIVED, CODE) \
    X(ici_pipeline_parallelism, INT, REQUIRED, I(1), ANY, any, EFFECT, YML) \
    X(ici_sequence_parallelism, INT, REQUIRED, I(1), ANY, any, NO_EFFECT, YML) \
    X(ici_tensor_parallelism, INT, REQUIRED, I(1), ANY, any, NO_EFFECT, YML) \
    X(ici_tensor_sequence_parallelism, INT, REQUIRED, I(1), ANY, any, NO_EFFECT, YML) \
    X(image_path, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(image_placeholder, TEXT, REQUIRED, T("<|image|>"), ANY, any, NO_EFFECT, YML) \
    X(image_size_for_vit, ANY, OPTIONAL, Y(INT, "896"), ANY, any, NO_EFFECT, YML) \
    X(indexer_approx_top_k_recall, FLOAT, REQUIRED, F(0.95), ANY, any, NO_EFFECT, YML) \
    X(indexer_cutoff_threshold, TEXT, REQUIRED, T("remat"), ANY, remat, NO_EFFECT, YML) \
    X(indexer_head_dim, INT, REQUIRED, I(128), WIDTH_OR_ZERO, any, EFFECT, YML) \
    X(indexer_loss_scaling_factor, FLOAT, REQUIRED, F(0.0), ANY, any, EFFECT, YML) \
    X(indexer_mask_exact_topk, BOOL, REQUIRED, B(true), ANY, any, EFFECT, YML) \
    X(indexer_n_heads, INT, REQUIRED, I(64), WIDTH_OR_ZERO, any, EFFECT, YML) \
    X(indexer_sparse_training, BOOL, REQUIRED, B(false), ANY, any, EFFECT, YML) \
    X(indexer_topk, INT, REQUIRED, I(2048), LENGTH_OR_ZERO, any, EFFECT, YML) \
    X(indexer_use_approx_top_k, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(inference_benchmark_test, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(inference_metadata_file, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(inference_microbenchmark_log_file_path, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(inference_microbenchmark_loop_iters, INT, REQUIRED, I(10), ANY, any, NO_EFFECT, YML) \
    X(inference_microbenchmark_num_samples, INTS, REQUIRED, N(1, 2, 3, 4, 5), ANY, any, \
      NO_EFFECT, YML) \
    X(inference_microbenchmark_prefill_lengths, TEXT, REQUIRED, T("64,128,256,512,1024"), ANY, \
      any, NO_EFFECT, YML) \
    X(inference_microbenchmark_stages, TEXT, REQUIRED, T("prefill,generate"), ANY, any, \
      NO_EFFECT, YML) \
    X(inference_server, TEXT, REQUIRED, T("MaxtextInterleavedServer"), ANY, any, NO_EFFECT, YML) \
    X(inhomogeneous_layer_cycle_interval, INT, REQUIRED, I(1), LAYERS, any, EFFECT, YML) \
    X(init_weights_seed, INT, REQUIRED, I(0), ANY, any, EFFECT, YML) \
    X(input_data_sharding_logical_axes, LIST, REQUIRED, L("activation_embed_and_logits_batch", \
      "activation_norm_length"), ANY, any, NO_EFFECT, YML) \
    X(interleave_moe_layer_step, INT, REQUIRED, I(1), LAYERS, any, EFFECT, YML) \
    X(intermediate_size_for_vit, INT, REQUIRED, I(5632), ANY, any, NO_EFFECT, YML) \
    X(internal_compile, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(internal_compile_num_devices, INT, REQUIRED, I(-1), ANY, any, NO_EFFECT, YML) \
    X(jax_cache_dir, TEXT, OPTIONAL, T("~/jax_cache"), ANY, any, NO_EFFECT, YML) \
    X(jax_debug_log_modules, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(jax_distributed_initialization_timeout, INT, REQUIRED, I(300), ANY, any, NO_EFFECT, YML) \
    X(jax_profiler_port, INT, REQUIRED, I(9999), ANY, any, NO_EFFECT, YML) \
    X(key_proj, TEXT, REQUIRED, T("remat"), ANY, remat, NO_EFFECT, YML) \
    X(kv_cache_buffer, INT, REQUIRED, I(256), POSITIVE, any, NO_EFFECT, CODE) \
    X(kv_lora_rank, INT, REQUIRED, I(512), WIDTH_OR_ZERO, any, EFFECT, YML) \
    X(kv_proj, TEXT, REQUIRED, T("remat"), ANY, remat, NO_EFFECT, YML) \
    X(kv_quant_axis, TEXT, REQUIRED, T("heads_and_dkv"), ANY, kv_quant_axis, NO_EFFECT, YML) \
    X(kv_quant_dtype, TEXT, REQUIRED, T("int8"), ANY, kv_quant_dtype, NO_EFFECT, YML) \
    X(kv_wa_proj, TEXT, REQUIRED, T("remat"), ANY, remat, NO_EFFECT, YML) \
    X(learn_to_init_mode, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, CODE) \
    X(learning_rate, FLOAT, REQUIRED, F(3e-05), NOT_NEGATIVE, any, EFFECT, YML) \
    X(learning_rate_final_fraction, FLOAT, REQUIRED, F(0.1), ANY, any, EFFECT, YML) \
    X(learning_rate_schedule_steps, INT, REQUIRED, I(-1), FROM_MINUS_ONE, any, EFFECT, YML) \
    X(load_balance_loss_weight, FLOAT, REQUIRED, F(0.0), NOT_NEGATIVE, any, EFFECT, YML) \
    X(load_checkpoint_only_once, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, CODE) \
    X(load_from_prefill_dir, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(load_full_state_path, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(load_parameters_path, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(local_checkpoint_directory, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(local_checkpoint_period, INT, REQUIRED, I(0), NOT_NEGATIVE, any, NO_EFFECT, YML) \
    X(local_rope_max_timescale, INT, REQUIRED, I(-1), ANY, any, EFFECT, YML) \
    X(local_rope_proportion, FLOAT, REQUIRED, F(1.0), ANY, any, EFFECT, YML) \
    X(local_sa_block_kv, INT, OPTIONAL, WORD_NONE, ANY, any, NO_EFFECT, YML) \
    X(local_sa_block_kv_compute, INT, OPTIONAL, WORD_NONE, ANY, any, NO_EFFECT, YML) \
    X(local_sa_block_kv_dkv, INT, OPTIONAL, WORD_NONE, ANY, any, NO_EFFECT, YML) \
    X(local_sa_block_kv_dkv_compute, INT, OPTIONAL, WORD_NONE, ANY, any, NO_EFFECT, YML) \
    X(local_sa_block_kv_dq, INT, OPTIONAL, WORD_NONE, ANY, any, NO_EFFECT, YML) \
    X(local_sa_block_q, INT, OPTIONAL, WORD_NONE, ANY, any, NO_EFFECT, YML) \
    X(local_sa_block_q_dkv, INT, OPTIONAL, WORD_NONE, ANY, any, NO_EFFECT, YML) \
    X(local_sa_block_q_dq, INT, OPTIONAL, WORD_NONE, ANY, any, NO_EFFECT, YML) \
    X(local_sa_fuse_reciprocal, BOOL, OPTIONAL, WORD_NONE, ANY, any, NO_EFFECT, YML) \
    X(local_sa_k_layout, TEXT, OPTIONAL, WORD_NONE, ANY, any, NO_EFFECT, YML) \
    X(local_sa_q_layout, TEXT, OPTIONAL, WORD_NONE, ANY, any, NO_EFFECT, YML) \
    X(local_sa_use_base2_exp, BOOL, OPTIONAL, WORD_NONE, ANY, any, NO_EFFECT, YML) \
    X(local_sa_use_fused_bwd_kernel, BOOL, OPTIONAL, WORD_NONE, ANY, any, NO_EFFECT, YML) \
    X(local_sa_v_layout, TEXT, OPTIONAL, WORD_NONE, ANY, any, NO_EFFECT, YML) \
    X(local_use_splash_scheduler, BOOL, OPTIONAL, WORD_NONE, ANY, any, NO_EFFECT, YML) \
    X(log_config, BOOL, REQUIRED, B(true), ANY, any, NO_EFFECT, YML) \
    X(log_moe_bias_norms, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, CODE) \
    X(log_period, INT, REQUIRED, I(100), ANY, any, NO_EFFECT, YML) \
    X(log_weight_sync_time, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, CODE) \
    X(logical_axis_rules, ANY, REQUIRED, Y(LIST, "[]"), ANY, any, NO_EFFECT, YML) \
    X(logical_axis_rules_for_eval, ANY, REQUIRED, Y(LIST, "[]"), ANY, any, NO_EFFECT, YML) \
    X(logits_dot_in_fp32, BOOL, REQUIRED, B(false), ANY, any, EFFECT, YML) \
    X(logits_via_embedding, BOOL, REQUIRED, B(false), ANY, any, EFFECT, YML) \
    X(lora, MAP, REQUIRED, Y(MAP, "{enable_lora: false, lora_rank: 0, lora_alpha: 0.0, \
      lora_module_path: '', lora_weight_qtype: null, lora_tile_size: null, lora_restore_path: \
      ''}"), ANY, any, NO_EFFECT, CODE) \
    X(lora_input_adapters_path, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(lr_schedule_type, TEXT, REQUIRED, T("cosine"), ANY, lr_schedule_type, EFFECT, YML) \
    X(lti_layer_indices, INTS, OPTIONAL, NONE, ANY, any, NO_EFFECT, CODE) \
    X(lti_use_general_linear_map, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, CODE) \
    X(managed_mldiagnostics, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(managed_mldiagnostics_dir, TEXT, OPTIONAL, NONE, ANY, any, DERIVED, CODE) \
    X(managed_mldiagnostics_on_demand_profiling, BOOL, REQUIRED, B(true), ANY, any, NO_EFFECT, \
      YML) \
    X(managed_mldiagnostics_region, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(managed_mldiagnostics_run_group, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(managed_mldiagnostics_storage_path, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(matmul_precision, TEXT, REQUIRED, T("default"), ANY, matmul_precision, EFFECT, YML) \
    X(max_checkify, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(max_corpus_chars, INT, REQUIRED, I(10000000), ANY, any, NO_EFFECT, YML) \
    X(max_inflight_computations, INT, REQUIRED, I(2), ANY, any, NO_EFFECT, YML) \
    X(max_num_batched_tokens, INT, OPTIONAL, NONE, ANY, any, NO_EFFECT, CODE) \
    X(max_num_checkpoints_to_keep, INT, OPTIONAL, WORD_NONE, ANY, any, NO_EFFECT, YML) \
    X(max_num_images_per_example, INT, REQUIRED, I(-1), ANY, any, NO_EFFECT, YML) \
    X(max_num_seqs, INT, OPTIONAL, NONE, ANY, any, NO_EFFECT, CODE) \
    X(max_position_embeddings, INT, REQUIRED, I(163840), ANY, any, EFFECT, YML) \
    X(max_prefill_predict_length, INT, REQUIRED, I(64), ANY, any, NO_EFFECT, YML) \
    X(max_sample_len_for_audio, INT, REQUIRED, I(10000), ANY, any, NO_EFFECT, YML) \
    X(max_segments_per_seq, INT, REQUIRED, I(-1), ANY, any, NO_EFFECT, YML) \
    X(max_source_positions_for_audio, INT, REQUIRED, I(1500), ANY, any, NO_EFFECT, YML) \
    X(max_target_length, INT, REQUIRED, I(2048), LENGTH, any, EFFECT, YML) \
    X(max_timescale_for_audio, FLOAT, REQUIRED, F(10000.0), ANY, any, NO_EFFECT, YML) \
    X(megablox, BOOL, REQUIRED, B(true), ANY, any, EFFECT, YML) \
    X(merge_gating_gmm, BOOL, REQUIRED, B(false), ANY, any, EFFECT, YML) \
    X(mesh_axes, LIST, REQUIRED, L("diloco", "data", "stage", "fsdp", "fsdp_transpose", \
      "context", "context_usp_ulysses", "context_autoregressive", "tensor", "tensor_sequence", \
      "expert", "autoregressive"), ANY, any, NO_EFFECT, YML) \
    X(metrics_dir, TEXT, OPTIONAL, NONE, ANY, any, DERIVED, CODE) \
    X(metrics_file, TEXT, OPTIONAL, T(""), ANY, any, NO_EFFECT, YML) \
    X(mhc_expansion_rate, INT, REQUIRED, I(1), EXPERTS, any, EFFECT, YML) \
    X(mhc_pallas_kernel_bwd_block_size, INT, REQUIRED, I(128), ANY, any, NO_EFFECT, YML) \
    X(mhc_pallas_kernel_fwd_block_size, INT, REQUIRED, I(256), ANY, any, NO_EFFECT, YML) \
    X(micro_batch_size_to_eval_on, INT, OPTIONAL, NONE, ANY, any, DERIVED, CODE) \
    X(micro_batch_size_to_train_on, INT, OPTIONAL, NONE, ANY, any, DERIVED, CODE) \
    X(mla_kv, TEXT, REQUIRED, T("remat"), ANY, remat, NO_EFFECT, YML) \
    X(mla_naive_kvcache, BOOL, REQUIRED, B(true), ANY, any, NO_EFFECT, YML) \
    X(mla_q, TEXT, REQUIRED, T("remat"), ANY, remat, NO_EFFECT, YML) \
    X(mla_qk_head_chunk_size, INT, REQUIRED, I(0), NOT_NEGATIVE, any, EFFECT, YML) \
    X(mlp_activations, LIST, REQUIRED, L("silu", "linear"), ANY, any, EFFECT, YML) \
    X(mlp_activations_limit, FLOAT, REQUIRED, F(-1.0), ANY, any, EFFECT, YML) \
    X(mlp_bias, BOOL, REQUIRED, B(false), ANY, any, EFFECT, YML) \
    X(mlp_dim, INT, OPTIONAL, NONE, ANY, any, DERIVED, CODE) \
    X(mlpwi, TEXT, REQUIRED, T("remat"), ANY, remat, NO_EFFECT, YML) \
    X(mlpwi_0, TEXT, REQUIRED, T("remat"), ANY, remat, NO_EFFECT, YML) \
    X(mlpwi_1, TEXT, REQUIRED, T("remat"), ANY, remat, NO_EFFECT, YML) \
    X(mlpwo, TEXT, REQUIRED, T("remat"), ANY, remat, NO_EFFECT, YML) \
    X(moba, BOOL, REQUIRED, B(false), ANY, any, EFFECT, YML) \
    X(moba_chunk_size, INT, REQUIRED, I(1024), ANY, any, EFFECT, YML) \
    X(moba_topk, INT, REQUIRED, I(8), ANY, any, EFFECT, YML) \
    X(model_call_mode, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(model_name, TEXT, REQUIRED, T("default"), ANY, any, EFFECT, YML) \
    X(moe_chunk_barrier, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(moe_dispatch_no_expert_sharding, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(moe_expert_input_dim, INT, REQUIRED, I(-1), WIDTH_OR_LESS, any, EFFECT, YML) \
    X(moe_fsdp_use_two_stage_all_gather, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(moe_mlp_dim, INT, OPTIONAL, NONE, ANY, any, DERIVED, CODE) \
    X(moe_mlpwi_0, TEXT, REQUIRED, T("remat"), ANY, remat, NO_EFFECT, YML) \
    X(moe_mlpwi_1, TEXT, REQUIRED, T("remat"), ANY, remat, NO_EFFECT, YML) \
    X(moe_mlpwo, TEXT, REQUIRED, T("remat"), ANY, remat, NO_EFFECT, YML) \
    X(monitor_goodput, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(monitor_step_time_deviation, BOOL, REQUIRED, B(true), ANY, any, NO_EFFECT, YML) \
    X(mrope_section, INTS, REQUIRED, N(24, 20, 20), ANY, any, NO_EFFECT, YML) \
    X(mscale, FLOAT, REQUIRED, F(1.0), ANY, any, EFFECT, YML) \
    X(mtc_data_parallelism, INT, REQUIRED, I(0), ANY, any, NO_EFFECT, YML) \
    X(mtp_eval_target_module, INT, REQUIRED, I(0), NOT_NEGATIVE, any, EFFECT, YML) \
    X(mtp_loss_scaling_factor, FLOAT, REQUIRED, F(0.1), NOT_NEGATIVE, any, EFFECT, YML) \
    X(mtp_num_layers, INT, REQUIRED, I(0), MTP_LAYERS, any, EFFECT, YML) \
    X(mu_dtype, TEXT, REQUIRED, T(""), ANY, any, EFFECT, YML) \
    X(multi_sampling, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(multi_tier_checkpointing_backup_interval_minutes, INT, OPTIONAL, NONE, POSITIVE, any, \
      NO_EFFECT, YML) \
    X(multi_tier_checkpointing_backup_interval_steps, INT, OPTIONAL, NONE, POSITIVE, any, \
      NO_EFFECT, YML) \
    X(muon_beta, FLOAT, REQUIRED, F(0.95), ANY, any, EFFECT, YML) \
    X(muon_consistent_rms, FLOAT, OPTIONAL, WORD_NONE, ANY, any, EFFECT, YML) \
    X(muon_weight_decay, FLOAT, REQUIRED, W(0), ANY, any, EFFECT, YML) \
    X(n_routing_groups, INT, REQUIRED, I(-1), ANY, any, EFFECT, YML) \
    X(n_window_for_audio, INT, REQUIRED, I(50), ANY, any, NO_EFFECT, YML) \
    X(n_window_infer_for_audio, INT, REQUIRED, I(800), ANY, any, NO_EFFECT, YML) \
    X(nope_layer_interval, INT, REQUIRED, I(-1), ANY, any, EFFECT, YML) \
    X(norm_topk_prob, BOOL, REQUIRED, B(false), ANY, any, EFFECT, YML) \
    X(normalization_layer_epsilon, FLOAT, REQUIRED, F(1e-05), ANY, any, EFFECT, YML) \
    X(normalize_embedding_logits, BOOL, REQUIRED, B(true), ANY, any, EFFECT, YML) \
    X(num_attention_heads_for_vit, INT, REQUIRED, I(16), ANY, any, NO_EFFECT, YML) \
    X(num_channels_for_vit, INT, REQUIRED, I(3), ANY, any, NO_EFFECT, YML) \
    X(num_communication_overlapping_steps, INT, REQUIRED, I(0), NOT_NEGATIVE, any, NO_EFFECT, \
      YML) \
    X(num_conv_layers_for_audio, INT, REQUIRED, I(3), ANY, any, NO_EFFECT, YML) \
    X(num_decoder_layers, INT, OPTIONAL, NONE, ANY, any, DERIVED, CODE) \
    X(num_diloco_fragments, INT, OPTIONAL, NONE, ANY, any, NO_EFFECT, YML) \
    X(num_diloco_replicas, INT, OPTIONAL, NONE, ANY, any, DERIVED, CODE) \
    X(num_epoch, INT, REQUIRED, I(1), ANY, any, NO_EFFECT, YML) \
    X(num_experts, INT, REQUIRED, I(1), EXPERTS, any, EFFECT, YML) \
    X(num_experts_per_tok, INT, REQUIRED, I(1), EXPERTS, any, EFFECT, YML) \
    X(num_hidden_layers_for_vit, INT, REQUIRED, I(34), ANY, any, NO_EFFECT, YML) \
    X(num_kv_heads, INT, OPTIONAL, NONE, ANY, any, DERIVED, CODE) \
    X(num_kv_shared_layers, INT, REQUIRED, I(0), LAYERS_OR_ZERO, any, EFFECT, YML) \
    X(num_layers_per_pipeline_stage, INT, REQUIRED, I(1), ANY, any, EFFECT, YML) \
    X(num_mel_bins_for_audio, INT, REQUIRED, I(128), ANY, any, NO_EFFECT, YML) \
    X(num_moe_emb_chunks, INT, REQUIRED, I(0), ANY, any, NO_EFFECT, YML) \
    X(num_moe_token_chunks, INT, REQUIRED, I(1), POSITIVE, any, NO_EFFECT, YML) \
    X(num_pipeline_microbatches, INT, REQUIRED, I(-1), ANY, any, EFFECT, YML) \
    X(num_pipeline_repeats, INT, REQUIRED, I(-1), ANY, any, EFFECT, YML) \
    X(num_position_embeddings_for_vit, INT, REQUIRED, I(1024), ANY, any, NO_EFFECT, YML) \
    X(num_query_heads, INT, OPTIONAL, NONE, ANY, any, DERIVED, CODE) \
    X(num_slices, INT, REQUIRED, I(-1), ANY, any, NO_EFFECT, YML) \
    X(num_target_devices, INT, OPTIONAL, NONE, ANY, any, DERIVED, CODE) \
    X(num_vocab_tiling, INT, REQUIRED, I(1), ANY, any, EFFECT, YML) \
    X(o_groups, INT, REQUIRED, I(0), WIDTH_OR_ZERO, any, EFFECT, YML) \
    X(o_lora_rank, INT, REQUIRED, I(0), WIDTH_OR_ZERO, any, EFFECT, YML) \
    X(offline_data_dir, TEXT, OPTIONAL, NONE, ANY, any, NO_EFFECT, CODE) \
    X(olmo_apply_ngram_filter, BOOL, REQUIRED, B(true), ANY, any, NO_EFFECT, YML) \
    X(olmo_index_path, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(olmo_path_remap_from, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(olmo_path_remap_to, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(opt_type, TEXT, REQUIRED, T("adamw"), ANY, opt_type, EFFECT, YML) \
    X(optimize_mesh_for_tpu_v6e, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(optimizer_memory_host_offload, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(original_max_position_embeddings, INT, REQUIRED, I(4096), ANY, any, EFFECT, YML) \
    X(out_hidden_size_for_vit, INT, REQUIRED, I(512), ANY, any, NO_EFFECT, YML) \
    X(out_proj, TEXT, REQUIRED, T("remat"), ANY, remat, NO_EFFECT, YML) \
    X(output_dim_for_audio, INT, REQUIRED, I(512), ANY, any, NO_EFFECT, YML) \
    X(override_logical_axis_rules, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(override_model_config, BOOL, REQUIRED, B(false), ANY, any, EFFECT, YML) \
    X(packing, BOOL, REQUIRED, B(true), ANY, any, NO_EFFECT, YML) \
    X(padded_base_moe_mlp_dim, INT, OPTIONAL, NONE, WIDTH_OR_LESS, any, EFFECT, CODE) \
    X(param_scan_axis, INT, REQUIRED, I(1), ANY, any, EFFECT, YML) \
    X(parameter_memory_host_offload, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(partial_rotary_factor, FLOAT, REQUIRED, F(1.0), ANY, any, EFFECT, YML) \
    X(patch_size_for_vit, INT, REQUIRED, I(14), ANY, any, NO_EFFECT, YML) \
    X(per_device_batch_size, FLOAT, REQUIRED, F(12.0), BATCH, any, EFFECT, YML) \
    X(per_device_batch_size_increment, FLOAT, REQUIRED, F(2.0), ANY, any, NO_EFFECT, YML) \
    X(per_device_batch_size_start, FLOAT, REQUIRED, F(4.0), ANY, any, NO_EFFECT, YML) \
    X(pipeline_delay_activation_forwarding, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(pipeline_fsdp_ag_once, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(pipeline_fsdp_ag_per_repeat, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(pipeline_parallel_layers, INT, REQUIRED, I(-1), ANY, any, EFFECT, YML) \
    X(pixel_shuffle_ratio_for_vit, FLOAT, REQUIRED, F(0.5), ANY, any, NO_EFFECT, YML) \
    X(posemb_type_for_vit, TEXT, REQUIRED, T("learn"), ANY, any, NO_EFFECT, YML) \
    X(position_id_per_seconds, INT, REQUIRED, I(25), ANY, any, NO_EFFECT, YML) \
    X(prefill_cache_axis_order, TEXT, REQUIRED, T("1,2,0,3"), ANY, any, NO_EFFECT, YML) \
    X(prefill_cache_dir, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(prefill_chunk_size, INT, REQUIRED, I(256), ANY, any, NO_EFFECT, YML) \
    X(prefill_slice, TEXT, REQUIRED, T("v5e-16"), ANY, any, NO_EFFECT, YML) \
    X(prefix_caching_dram_byte, INT, REQUIRED, I(100000000000), ANY, any, NO_EFFECT, YML) \
    X(prefix_caching_hbm_byte, INT, REQUIRED, I(10000000000), ANY, any, NO_EFFECT, YML) \
    X(prefuse_moe_weights, BOOL, REQUIRED, B(false), ANY, any, EFFECT, CODE) \
    X(profile_cleanly, BOOL, REQUIRED, B(true), ANY, any, NO_EFFECT, YML) \
    X(profile_periodically_period, INT, REQUIRED, I(-1), ANY, any, NO_EFFECT, YML) \
    X(profile_power_events, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(profiler, TEXT, REQUIRED, T(""), ANY, profiler, NO_EFFECT, YML) \
    X(profiler_steps, INT, REQUIRED, I(5), ANY, any, NO_EFFECT, YML) \
    X(projector_dropout_for_vit, FLOAT, REQUIRED, F(0.0), ANY, any, NO_EFFECT, YML) \
    X(projector_input_dim_for_vit, INT, REQUIRED, I(4096), ANY, any, NO_EFFECT, YML) \
    X(projector_output_dim_for_vit, INT, REQUIRED, I(4096), ANY, any, NO_EFFECT, YML) \
    X(prometheus_port, INT, REQUIRED, I(0), ANY, any, NO_EFFECT, YML) \
    X(prompt, TEXT, REQUIRED, T("I love to"), ANY, any, NO_EFFECT, YML) \
    X(pure_nnx, BOOL, REQUIRED, B(true), ANY, any, EFFECT, YML) \
    X(pure_nnx_decoder, BOOL, REQUIRED, B(true), ANY, any, EFFECT, YML) \
    X(q_lora_rank, INT, REQUIRED, I(0), WIDTH_OR_ZERO, any, EFFECT, YML) \
    X(qk_clip_threshold, FLOAT, REQUIRED, F(100.0), ANY, any, EFFECT, YML) \
    X(qk_nope_head_dim, INT, REQUIRED, I(128), WIDTH_OR_ZERO, any, EFFECT, YML) \
    X(qk_norm_with_scale, BOOL, REQUIRED, B(true), ANY, any, EFFECT, YML) \
    X(qk_rope_head_dim, INT, REQUIRED, I(64), WIDTH_OR_ZERO, any, EFFECT, YML) \
    X(qkv_proj, TEXT, REQUIRED, T("remat"), ANY, remat, NO_EFFECT, YML) \
    X(quant_cfg_path, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(quantization, TEXT, OPTIONAL, T(""), ANY, quantization, EFFECT, YML) \
    X(quantization_local_shard_count, INT, REQUIRED, I(-1), ANY, any, EFFECT, YML) \
    X(quantize_kvcache, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(quantize_mtp, BOOL, REQUIRED, B(false), ANY, any, EFFECT, YML) \
    X(query_proj, TEXT, REQUIRED, T("remat"), ANY, remat, NO_EFFECT, YML) \
    X(query_wa_proj, TEXT, REQUIRED, T("remat"), ANY, remat, NO_EFFECT, YML) \
    X(ragged_block_size, INT, REQUIRED, I(256), ANY, any, NO_EFFECT, YML) \
    X(ragged_buffer_factor, FLOAT, REQUIRED, F(-1.0), ANY, any, NO_EFFECT, YML) \
    X(ragged_gather_cost_estimate_bytes_accessed, INT, REQUIRED, I(-1), ANY, any, NO_EFFECT, YML) \
    X(ragged_gather_cost_estimate_flops, INT, REQUIRED, I(-1), ANY, any, NO_EFFECT, YML) \
    X(ragged_gather_fallback, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(ragged_gather_reduce_cost_estimate_bytes_accessed, INT, REQUIRED, I(-1), ANY, any, \
      NO_EFFECT, YML) \
    X(ragged_gather_reduce_cost_estimate_flops, INT, REQUIRED, I(-1), ANY, any, NO_EFFECT, YML) \
    X(ragged_gather_reduce_fallback, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(ragged_sort_use_single_sparsecore, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, CODE) \
    X(rampup_end_step, INT, OPTIONAL, NONE, ANY, any, DERIVED, CODE) \
    X(rampup_samples_per_increment_to_load, FLOAT, OPTIONAL, NONE, ANY, any, DERIVED, CODE) \
    X(record_internal_nn_metrics, INT, REQUIRED, I(0), ANY, any, NO_EFFECT, YML) \
    X(remat_policy, TEXT, OPTIONAL, T("full"), ANY, any, EFFECT, YML) \
    X(remat_policy_for_vit, TEXT, OPTIONAL, T("minimal"), ANY, any, NO_EFFECT, YML) \
    X(remove_size_one_mesh_axis_from_type, BOOL, REQUIRED, B(true), ANY, any, NO_EFFECT, YML) \
    X(replicate_quant_scale, BOOL, REQUIRED, B(false), ANY, any, EFFECT, YML) \
    X(replicator_backup_interval_minutes, INT, REQUIRED, I(0), NOT_NEGATIVE, any, NO_EFFECT, \
      CODE) \
    X(report_heartbeat_metric_for_gcp_monitoring, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, \
      YML) \
    X(report_performance_metric_for_gcp_monitoring, BOOL, REQUIRED, B(false), ANY, any, \
      NO_EFFECT, YML) \
    X(reshape_q, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(return_log_prob, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(reuse_example_batch, INT, REQUIRED, I(0), ANY, any, NO_EFFECT, YML) \
    X(ring_scan_unroll, INT, REQUIRED, I(1), NOT_NEGATIVE, any, NO_EFFECT, YML) \
    X(rope_attention_scaling, BOOL, REQUIRED, B(false), ANY, any, EFFECT, YML) \
    X(rope_factor, INT, REQUIRED, I(40), ANY, any, EFFECT, YML) \
    X(rope_interleave, BOOL, REQUIRED, B(true), ANY, any, EFFECT, YML) \
    X(rope_linear_scaling_factor, FLOAT, REQUIRED, F(1.0), ANY, any, EFFECT, YML) \
    X(rope_max_timescale, INT, REQUIRED, I(10000), ANY, any, EFFECT, YML) \
    X(rope_min_timescale, INT, REQUIRED, I(1), ANY, any, EFFECT, YML) \
    X(rope_pairwise, BOOL, REQUIRED, B(false), ANY, any, EFFECT, YML) \
    X(rope_theta_for_vit, INT, REQUIRED, I(10000), ANY, any, NO_EFFECT, YML) \
    X(rope_truncate, BOOL, REQUIRED, B(true), ANY, any, EFFECT, YML) \
    X(rope_type, TEXT, REQUIRED, T("default"), ANY, rope_type, EFFECT, YML) \
    X(rope_use_scale, BOOL, REQUIRED, B(true), ANY, any, EFFECT, YML) \
    X(routed_bias, BOOL, REQUIRED, B(false), ANY, any, EFFECT, YML) \
    X(routed_bias_update_rate, FLOAT, REQUIRED, F(0.0), ANY, any, EFFECT, YML) \
    X(routed_scaling_factor, FLOAT, REQUIRED, F(1.0), ANY, any, EFFECT, YML) \
    X(routed_score_func, TEXT, REQUIRED, T(""), ANY, any, EFFECT, YML) \
    X(run_name, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(sa_block_kv, INT, REQUIRED, I(512), ANY, any, NO_EFFECT, YML) \
    X(sa_block_kv_compute, INT, REQUIRED, I(512), ANY, any, NO_EFFECT, YML) \
    X(sa_block_kv_dkv, INT, REQUIRED, I(512), ANY, any, NO_EFFECT, YML) \
    X(sa_block_kv_dkv_compute, INT, REQUIRED, I(512), ANY, any, NO_EFFECT, YML) \
    X(sa_block_kv_dq, INT, REQUIRED, I(512), ANY, any, NO_EFFECT, YML) \
    X(sa_block_q, INT, REQUIRED, I(512), ANY, any, NO_EFFECT, YML) \
    X(sa_block_q_dkv, INT, REQUIRED, I(512), ANY, any, NO_EFFECT, YML) \
    X(sa_block_q_dq, INT, REQUIRED, I(512), ANY, any, NO_EFFECT, YML) \
    X(sa_bwd_dkv_megacore, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(sa_fuse_reciprocal, BOOL, REQUIRED, B(true), ANY, any, NO_EFFECT, YML) \
    X(sa_k_layout, TEXT, REQUIRED, T("HEAD_DIM_MINOR"), ANY, any, NO_EFFECT, YML) \
    X(sa_q_layout, TEXT, REQUIRED, T("HEAD_DIM_MINOR"), ANY, any, NO_EFFECT, YML) \
    X(sa_use_base2_exp, BOOL, REQUIRED, B(true), ANY, any, NO_EFFECT, YML) \
    X(sa_use_fused_bwd_kernel, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(sa_v_layout, TEXT, REQUIRED, T("HEAD_DIM_MINOR"), ANY, any, NO_EFFECT, YML) \
    X(save_checkpoint_on_completion, BOOL, REQUIRED, B(true), ANY, any, NO_EFFECT, YML) \
    X(save_checkpoint_on_start, BOOL, REQUIRED, B(true), ANY, any, NO_EFFECT, YML) \
    X(save_config_to_gcs, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(save_quantized_params_path, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(scale_embedding_for_audio, BOOL, REQUIRED, B(true), ANY, any, NO_EFFECT, YML) \
    X(scan_layers, BOOL, REQUIRED, B(true), ANY, any, EFFECT, YML) \
    X(scan_layers_per_stage, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(scan_pipeline_iterations, BOOL, REQUIRED, B(true), ANY, any, NO_EFFECT, YML) \
    X(scan_pipeline_repeats, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(set_remat_policy_on_layers_per_stage, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(set_remat_policy_on_pipeline_iterations, BOOL, REQUIRED, B(true), ANY, any, NO_EFFECT, YML) \
    X(sft_train_on_completion_only, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(shard_exp_on_fsdp, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(shard_mode, TEXT, REQUIRED, T("auto"), ANY, shard_mode, NO_EFFECT, YML) \
    X(shard_optimizer_over_data, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(sharding_strategy, TEXT, OPTIONAL, NONE, ANY, sharding_strategy, NO_EFFECT, CODE) \
    X(sharding_tolerance, FLOAT, REQUIRED, F(0.02), FRACTION, any, NO_EFFECT, YML) \
    X(shardy, BOOL, REQUIRED, B(true), ANY, any, NO_EFFECT, YML) \
    X(share_kv_projections, BOOL, REQUIRED, B(false), ANY, any, EFFECT, YML) \
    X(shared_experts, INT, REQUIRED, I(0), EXPERTS_OR_ZERO, any, EFFECT, YML) \
    X(sinkhorn_iterations, INT, REQUIRED, I(20), POSITIVE, any, EFFECT, YML) \
    X(skip_first_n_steps_for_profiler, INT, REQUIRED, I(1), ANY, any, NO_EFFECT, YML) \
    X(skip_jax_distributed_system, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(skip_step_interval, INT, REQUIRED, I(128), POSITIVE, any, EFFECT, YML) \
    X(skip_step_on_spikes, BOOL, REQUIRED, B(false), ANY, any, EFFECT, YML) \
    X(skip_step_scaling_factor, FLOAT, REQUIRED, F(6.0), ANY, any, EFFECT, YML) \
    X(sliding_window_size, INT, REQUIRED, I(0), LENGTH_OR_ZERO, any, EFFECT, YML) \
    X(source_checkpoint_layout, TEXT, REQUIRED, T("orbax"), ANY, source_checkpoint_layout, \
      NO_EFFECT, YML) \
    X(sparse_matmul, BOOL, REQUIRED, B(true), ANY, any, EFFECT, YML) \
    X(spatial_merge_size_for_vit, INT, REQUIRED, I(2), ANY, any, NO_EFFECT, YML) \
    X(stack_prefill_result_cache, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(step_deviation_interval_seconds, INT, REQUIRED, I(30), ANY, any, NO_EFFECT, YML) \
    X(steps, INT, REQUIRED, I(150001), FROM_MINUS_ONE, any, EFFECT, YML) \
    X(stop_strings, LIST, OPTIONAL, NONE, ANY, any, NO_EFFECT, CODE) \
    X(student_overrides, MAP, REQUIRED, Y(MAP, "{}"), ANY, any, NO_EFFECT, CODE) \
    X(student_params_to_update, ANY, OPTIONAL, NONE, ANY, any, NO_EFFECT, CODE) \
    X(subslice_shape, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(swap_space_vllm_gb, INT, REQUIRED, I(2), NOT_NEGATIVE, any, NO_EFFECT, CODE) \
    X(system_prompt, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, CODE) \
    X(target_eval_loss, FLOAT, REQUIRED, F(0.0), ANY, any, NO_EFFECT, YML) \
    X(te_comm_gemm_overlap, TEXT, REQUIRED, T("disabled"), ANY, any, NO_EFFECT, YML) \
    X(teacher_overrides, MAP, REQUIRED, Y(MAP, "{}"), ANY, any, NO_EFFECT, CODE) \
    X(temperature_tuning, BOOL, REQUIRED, B(false), ANY, any, EFFECT, YML) \
    X(temporal_patch_size_for_vit, INT, REQUIRED, I(2), ANY, any, NO_EFFECT, YML) \
    X(tensorboard_dir, TEXT, OPTIONAL, NONE, ANY, any, DERIVED, CODE) \
    X(tensors_on_device, LIST, OPTIONAL, NONE, ANY, any, DERIVED, CODE) \
    X(tensors_to_offload, LIST, OPTIONAL, NONE, ANY, any, DERIVED, CODE) \
    X(tile_size_for_vit, INT, REQUIRED, I(336), ANY, any, NO_EFFECT, YML) \
    X(tokenize_eval_data, BOOL, REQUIRED, B(true), ANY, any, NO_EFFECT, YML) \
    X(tokenize_train_data, BOOL, REQUIRED, B(true), ANY, any, NO_EFFECT, YML) \
    X(tokenizer_path, TEXT, OPTIONAL, T(""), ANY, any, NO_EFFECT, YML) \
    X(tokenizer_type, TEXT, REQUIRED, T("sentencepiece"), ANY, tokenizer_type, NO_EFFECT, YML) \
    X(topk_routing_group, INT, REQUIRED, I(-1), ANY, any, EFFECT, YML) \
    X(tpu_num_chips_to_profile_per_task, INT, REQUIRED, I(1), ANY, any, NO_EFFECT, YML) \
    X(tpu_num_sparse_core_tiles_to_trace, INT, REQUIRED, I(1), ANY, any, NO_EFFECT, YML) \
    X(tpu_num_sparse_cores_to_trace, INT, REQUIRED, I(2), ANY, any, NO_EFFECT, YML) \
    X(train_data_columns, LIST, REQUIRED, L("text"), ANY, any, NO_EFFECT, YML) \
    X(train_image_column, ANY, REQUIRED, Y(TEXT, "image"), ANY, any, NO_EFFECT, YML) \
    X(train_split, TEXT, REQUIRED, T("train"), ANY, any, NO_EFFECT, YML) \
    X(trainable_parameters_mask, LIST, REQUIRED, EMPTY, ANY, any, NO_EFFECT, YML) \
    X(trainable_position_size, INT, REQUIRED, I(-1), WIDTH_OR_LESS, any, EFFECT, YML) \
    X(training_objective, TEXT, REQUIRED, T("causal_lm"), ANY, training_objective, NO_EFFECT, \
      YML) \
    X(ulysses_context_sharding, TEXT, REQUIRED, T("context_usp_ulysses"), ANY, any, NO_EFFECT, \
      YML) \
    X(upload_all_profiler_results, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(use_2d_fsdp_sharding, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(use_audio, BOOL, REQUIRED, B(false), ANY, any, EFFECT, YML) \
    X(use_audio_in_video, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(use_batch_split_schedule, BOOL, REQUIRED, B(false), ANY, any, EFFECT, YML) \
    X(use_chat_template, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(use_chunked_prefill, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(use_custom_sort_vjp, BOOL, REQUIRED, B(true), ANY, any, NO_EFFECT, YML) \
    X(use_double_wide_mlp, BOOL, REQUIRED, B(false), ANY, any, EFFECT, YML) \
    X(use_dpo, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(use_gather_mosaic_kernel, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(use_gmm_v2, BOOL, REQUIRED, B(false), ANY, any, EFFECT, YML) \
    X(use_grpo, BOOL, OPTIONAL, NONE, ANY, any, NO_EFFECT, CODE) \
    X(use_indexer, BOOL, REQUIRED, B(false), ANY, any, EFFECT, YML) \
    X(use_iota_embed, BOOL, REQUIRED, B(false), ANY, any, EFFECT, YML) \
    X(use_jax_splash, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(use_manual_quantization, BOOL, REQUIRED, B(false), ANY, any, EFFECT, YML) \
    X(use_max_logit_estimate, INT, REQUIRED, I(-1), ANY, any, NO_EFFECT, YML) \
    X(use_mhc_pallas_kernel, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(use_mrope, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(use_multimodal, BOOL, REQUIRED, B(false), ANY, any, EFFECT, YML) \
    X(use_post_attn_norm, BOOL, REQUIRED, B(false), ANY, any, EFFECT, YML) \
    X(use_post_ffw_norm, BOOL, REQUIRED, B(false), ANY, any, EFFECT, YML) \
    X(use_qk_clip, BOOL, REQUIRED, B(false), ANY, any, EFFECT, YML) \
    X(use_qk_norm, BOOL, REQUIRED, B(false), ANY, any, EFFECT, YML) \
    X(use_qk_norm_in_gdn, BOOL, REQUIRED, B(true), ANY, any, EFFECT, YML) \
    X(use_qwix_quantization, BOOL, REQUIRED, B(true), ANY, any, EFFECT, YML) \
    X(use_ragged_attention, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(use_ragged_sort, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(use_random_routing, BOOL, REQUIRED, B(false), ANY, any, EFFECT, YML) \
    X(use_replicator_service, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, CODE) \
    X(use_ring_of_experts, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(use_sequential_layers, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(use_sft, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(use_sliced_mla_proj, BOOL, REQUIRED, B(false), ANY, any, EFFECT, YML) \
    X(use_splash_scheduler, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(use_standalone_converter, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, CODE) \
    X(use_tokamax_gmm, BOOL, REQUIRED, B(false), ANY, any, EFFECT, YML) \
    X(use_tokamax_splash, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(use_truncation, BOOL, REQUIRED, B(true), ANY, any, NO_EFFECT, YML) \
    X(use_tunix_gradient_accumulation, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, CODE) \
    X(use_untrainable_positional_embedding, BOOL, REQUIRED, B(false), ANY, any, EFFECT, YML) \
    X(use_vertex_tensorboard, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(use_weight_converter, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, CODE) \
    X(using_pipeline_parallelism, BOOL, OPTIONAL, NONE, ANY, any, DERIVED, CODE) \
    X(v_head_dim, INT, REQUIRED, I(128), WIDTH_OR_ZERO, any, EFFECT, YML) \
    X(v_norm_with_scale, BOOL, REQUIRED, B(true), ANY, any, EFFECT, YML) \
    X(value_proj, TEXT, REQUIRED, T("remat"), ANY, remat, NO_EFFECT, YML) \
    X(vertex_tensorboard_project, TEXT, OPTIONAL, T(""), ANY, any, NO_EFFECT, YML) \
    X(vertex_tensorboard_region, TEXT, OPTIONAL, T(""), ANY, any, NO_EFFECT, YML) \
    X(video_max_grid_h, INT, OPTIONAL, NONE, ANY, any, NO_EFFECT, YML) \
    X(video_max_grid_t, INT, OPTIONAL, NONE, ANY, any, NO_EFFECT, YML) \
    X(video_max_grid_w, INT, OPTIONAL, NONE, ANY, any, NO_EFFECT, YML) \
    X(video_path, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(video_placeholder, TEXT, REQUIRED, T("<|video|>"), ANY, any, NO_EFFECT, YML) \
    X(vision_connector_activation, TEXT, REQUIRED, T("gelu"), ANY, any, NO_EFFECT, CODE) \
    X(vision_connector_hidden_size, INT, REQUIRED, I(0), ANY, any, NO_EFFECT, CODE) \
    X(vision_connector_num_layers, INT, REQUIRED, I(2), ANY, any, NO_EFFECT, CODE) \
    X(vision_connector_use_bias, BOOL, REQUIRED, B(true), ANY, any, NO_EFFECT, CODE) \
    X(vision_encoder_block, TEXT, REQUIRED, T("none"), ANY, vision_encoder_block, NO_EFFECT, \
      CODE) \
    X(vision_output_dim_for_vit, INT, REQUIRED, I(4096), ANY, any, NO_EFFECT, YML) \
    X(vision_output_length, INT, REQUIRED, I(-1), ANY, any, NO_EFFECT, YML) \
    X(vision_projector_type, TEXT, REQUIRED, T("default"), ANY, any, NO_EFFECT, CODE) \
    X(vllm_additional_config, MAP, REQUIRED, Y(MAP, "{}"), ANY, any, NO_EFFECT, YML) \
    X(vllm_hf_config_path, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(vllm_hf_overrides, MAP, REQUIRED, Y(MAP, "{}"), ANY, any, NO_EFFECT, YML) \
    X(vllm_load_format, TEXT, REQUIRED, T("dummy"), ANY, any, NO_EFFECT, CODE) \
    X(vocab_size, INT, REQUIRED, I(32000), VOCABULARY, any, EFFECT, YML) \
    X(vocab_size_per_layer_input, INT, REQUIRED, I(0), VOCABULARY_OR_ZERO, any, EFFECT, YML) \
    X(vocab_tiling_ag_once, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(wandb_project_name, TEXT, REQUIRED, T("maxtext"), ANY, any, NO_EFFECT, YML) \
    X(wandb_run_name, TEXT, REQUIRED, T(""), ANY, any, NO_EFFECT, YML) \
    X(warmup_steps_fraction, FLOAT, REQUIRED, F(0.1), FRACTION, any, EFFECT, YML) \
    X(weight_dtype, TEXT, REQUIRED, T("float32"), ANY, float_type, EFFECT, YML) \
    X(weight_quantization_calibration_method, TEXT, REQUIRED, T("absmax"), ANY, any, EFFECT, YML) \
    X(weight_sparsity_m, INT, OPTIONAL, NONE, ANY, any, EFFECT, YML) \
    X(weight_sparsity_n, INT, OPTIONAL, NONE, ANY, any, EFFECT, YML) \
    X(weight_sparsity_start_step, INT, REQUIRED, I(50), ANY, any, EFFECT, YML) \
    X(weight_sparsity_update_step, INT, REQUIRED, I(10), ANY, any, EFFECT, YML) \
    X(weight_sync_debug, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, CODE) \
    X(wi_tile_dlhs_batch_seq, INT, REQUIRED, I(512), ANY, any, EFFECT, YML) \
    X(wi_tile_dlhs_embed_dim, INT, REQUIRED, I(1024), ANY, any, EFFECT, YML) \
    X(wi_tile_dlhs_mlp_dim, INT, REQUIRED, I(1024), ANY, any, EFFECT, YML) \
    X(wi_tile_drhs_batch_seq, INT, REQUIRED, I(512), ANY, any, EFFECT, YML) \
    X(wi_tile_drhs_embed_dim, INT, REQUIRED, I(1024), ANY, any, EFFECT, YML) \
    X(wi_tile_drhs_mlp_dim, INT, REQUIRED, I(1024), ANY, any, EFFECT, YML) \
    X(wi_tile_fwd_batch_seq, INT, REQUIRED, I(512), ANY, any, EFFECT, YML) \
    X(wi_tile_fwd_embed_dim, INT, REQUIRED, I(1024), ANY, any, EFFECT, YML) \
    X(wi_tile_fwd_mlp_dim, INT, REQUIRED, I(1024), ANY, any, EFFECT, YML) \
    X(wo_tile_dlhs_batch_seq, INT, REQUIRED, I(512), ANY, any, EFFECT, YML) \
    X(wo_tile_dlhs_embed_dim, INT, REQUIRED, I(1024), ANY, any, EFFECT, YML) \
    X(wo_tile_dlhs_mlp_dim, INT, REQUIRED, I(1024), ANY, any, EFFECT, YML) \
    X(wo_tile_drhs_batch_seq, INT, REQUIRED, I(512), ANY, any, EFFECT, YML) \
    X(wo_tile_drhs_embed_dim, INT, REQUIRED, I(1024), ANY, any, EFFECT, YML) \
    X(wo_tile_drhs_mlp_dim, INT, REQUIRED, I(1024), ANY, any, EFFECT, YML) \
    X(wo_tile_fwd_batch_seq, INT, REQUIRED, I(512), ANY, any, EFFECT, YML) \
    X(wo_tile_fwd_embed_dim, INT, REQUIRED, I(1024), ANY, any, EFFECT, YML) \
    X(wo_tile_fwd_mlp_dim, INT, REQUIRED, I(1024), ANY, any, EFFECT, YML) \
    X(write_estimator_result, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(wsd_decay_steps_fraction, FLOAT, REQUIRED, F(0.1), FRACTION, any, EFFECT, YML) \
    X(wsd_decay_style, TEXT, REQUIRED, T("linear"), ANY, wsd_decay_style, EFFECT, YML) \
    X(xprof_e2e_enable_fw_power_level_event, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(xprof_e2e_enable_fw_thermal_event, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(xprof_e2e_enable_fw_throttle_event, BOOL, REQUIRED, B(false), ANY, any, NO_EFFECT, YML) \
    X(xprof_tpu_power_trace_level, INT, REQUIRED, I(0), ZERO_TO_TWO, any, NO_EFFECT, YML) \
    X(z_loss_multiplier, FLOAT, REQUIRED, F(0.0), ANY, any, EFFECT, YML)
/* clang-format on */

#endif
