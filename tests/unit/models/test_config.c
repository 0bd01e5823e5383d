/* Configs: layers, names, errors, derived sizes, and what may not hurt.
 *
 * What could break: a layer that wins over the wrong one; an error that names another field than
 * the one at fault; a size that passes its bound and overflows later; a path taken for a name; an
 * allocation failure that leaks or goes unnoticed. Values as such are compared with MaxText's in
 * test_config_golden.c. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "config_fixture.h"

#define KEY(name) OCT_KEY_##name

/* The build must fail with `status`, on `field`, with a sentence that holds `why`. */
static void refused(const char *name, const char *yaml, const char *const *environment,
                    const char *const *overrides, enum octet_status status, const char *field,
                    const char *why)
{
    const octet_config *config;

    ck_assert_msg(try_config(name, yaml, environment, overrides, &config) == status,
                  "%s: expected %s, got %s", field, octet_status_name(status),
                  octet_status_name(err.status));
    ck_assert_ptr_null(config);
    ck_assert_str_eq(err.field, field);
    ck_assert_msg(strstr(err.text, why) != NULL, "'%s' does not say '%s'", err.text, why);
}

/* ---- layers ---- */

START_TEST(later_layers_win)
{
    const octet_config *config =
        config_of("llama3-8b", "base_num_decoder_layers: 5\nvocab_size: 500\nsteps: 50\n",
                  WORDS("M_LOG_PERIOD=60", "M_STEPS=70"), WORDS("vocab_size=80"));

    ck_assert_int_eq(oct_config_int(config, KEY(base_emb_dim)), 4096);
    ck_assert_int_eq(oct_config_origin(config, KEY(base_emb_dim)), OCTET_FROM_MODEL);
    ck_assert_int_eq(oct_config_int(config, KEY(base_num_decoder_layers)), 5);
    ck_assert_int_eq(oct_config_origin(config, KEY(base_num_decoder_layers)), OCTET_FROM_YAML);
    ck_assert_int_eq(oct_config_int(config, KEY(steps)), 70);
    ck_assert_int_eq(oct_config_origin(config, KEY(steps)), OCTET_FROM_ENVIRONMENT);
    ck_assert_int_eq(oct_config_int(config, KEY(vocab_size)), 80);
    ck_assert_int_eq(oct_config_origin(config, KEY(vocab_size)), OCTET_FROM_OVERRIDE);
    ck_assert_int_eq(oct_config_int(config, KEY(checkpoint_period)), 10000);
    ck_assert_int_eq(oct_config_origin(config, KEY(checkpoint_period)), OCTET_FROM_DEFAULT);
}
END_TEST

START_TEST(the_last_of_equal_keys_wins)
{
    const octet_config *config =
        config_of(NULL, NULL, NULL, WORDS("scan_layers=false", "steps=1", "scan_layers=true"));

    ck_assert(oct_config_bool(config, KEY(scan_layers)));
    config = config_of(NULL, NULL, WORDS("M_STEPS=1", "M_STEPS=2"), NULL);
    ck_assert_int_eq(oct_config_int(config, KEY(steps)), 2);
}
END_TEST

START_TEST(a_value_that_is_replaced_may_be_bad)
{
    const octet_config *config =
        config_of(NULL, "base_emb_dim: many\n", NULL, WORDS("base_emb_dim=64"));

    ck_assert_int_eq(oct_config_int(config, KEY(base_emb_dim)), 64);
    refused(NULL, "base_emb_dim: many\n", NULL, NULL, OCTET_INVALID_ARGUMENT, "yaml[base_emb_dim]",
            "'many' is a text; expected a whole number");
}
END_TEST

START_TEST(the_model_is_named_by_override_name_or_yaml)
{
    const octet_config *config = config_of(NULL, "model_name: gemma-2b\n", NULL, NULL);

    ck_assert_str_eq(octet_config_model_name(config), "gemma-2b");
    ck_assert_int_eq(oct_config_int(config, KEY(base_num_decoder_layers)), 18);
    config = config_of("llama2-7b", "model_name: default\n", NULL, NULL);
    ck_assert_str_eq(octet_config_model_name(config), "llama2-7b");
    config = config_of("llama2-7b", NULL, NULL, WORDS("model_name=gemma-7b"));
    ck_assert_str_eq(octet_config_model_name(config), "gemma-7b");
    ck_assert_int_eq(oct_config_int(config, KEY(base_num_decoder_layers)), 28);
    ck_assert_str_eq(octet_config_model_name(config_of("", NULL, NULL, NULL)), "default");
    ck_assert_str_eq(octet_config_model_name(config_of("default", NULL, NULL, NULL)), "default");
}
END_TEST

START_TEST(a_model_named_twice_is_refused)
{
    refused("llama2-7b", "model_name: gemma-2b\n", NULL, NULL, OCTET_INVALID_ARGUMENT,
            "yaml[model_name]", "'gemma-2b' is another model than 'llama2-7b'");
    config_of("llama2-7b", "model_name: llama2-7b\n", NULL, NULL);
}
END_TEST

START_TEST(instruct_is_the_same_architecture)
{
    const octet_config *config = config_of("llama3.1-8b-Instruct", NULL, NULL, NULL);

    ck_assert_str_eq(octet_config_model_name(config), "llama3.1-8b-Instruct");
    ck_assert_int_eq(oct_config_int(config, KEY(base_emb_dim)), 4096);
}
END_TEST

START_TEST(base_config_lies_below_its_config)
{
    const octet_config *config =
        config_of(NULL, "base_config: llama3-8b\nvocab_size: 7\n", NULL, NULL);

    ck_assert_int_eq(oct_config_int(config, KEY(base_emb_dim)), 4096);
    ck_assert_int_eq(oct_config_origin(config, KEY(base_emb_dim)), OCTET_FROM_YAML);
    ck_assert_int_eq(oct_config_int(config, KEY(vocab_size)), 7);
    /* ... and above the named model. */
    config = config_of("gemma-2b", "base_config: llama3-8b\n", NULL, NULL);
    ck_assert_int_eq(oct_config_int(config, KEY(base_num_decoder_layers)), 32);
    ck_assert_int_eq(oct_config_int(config, KEY(head_dim)), 128);
    /* MaxText's own base.yml is the defaults. */
    config = config_of(NULL, "base_config: base.yml\n", NULL, NULL);
    ck_assert_int_eq(oct_config_int(config, KEY(base_emb_dim)), 2048);
}
END_TEST

/* ---- names ---- */

START_TEST(unknown_names_are_answered_with_the_nearest)
{
    refused("deepseek3-671", NULL, NULL, NULL, OCTET_NOT_FOUND, "name",
            "did you mean 'deepseek3-671b'?");
    refused(NULL, "model_name: lama3-8b\n", NULL, NULL, OCTET_NOT_FOUND, "yaml[model_name]",
            "did you mean 'llama3-8b'?");
    refused(NULL, NULL, NULL, WORDS("model_name=gemma2b"), OCTET_NOT_FOUND, "overrides[model_name]",
            "did you mean 'gemma-2b'?");
    refused(NULL, NULL, WORDS("M_MODEL_NAME=gemma2b"), NULL, OCTET_NOT_FOUND,
            "environment[M_MODEL_NAME]", "gemma-2b");
    refused(NULL, "base_config: lama3-8b\n", NULL, NULL, OCTET_NOT_FOUND, "yaml[base_config]",
            "did you mean 'llama3-8b'?");
    refused(NULL, NULL, NULL, WORDS("scan_layer=true"), OCTET_INVALID_ARGUMENT,
            "overrides[scan_layer]", "did you mean 'scan_layers'?");
    refused(NULL, "mtp_layers: 1\n", NULL, NULL, OCTET_INVALID_ARGUMENT, "yaml[mtp_layers]",
            "did you mean 'mtp_num_layers'?");
}
END_TEST

START_TEST(a_name_is_never_a_path)
{
    static const char *const paths[] = {
        "/etc/passwd", "../models/llama3-8b", "models/llama3-8b", "llama3-8b.yml",
        "..",          "./llama3-8b"};

    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        char yaml[64];
        refused(paths[i], NULL, NULL, NULL, OCTET_NOT_FOUND, "name", "looks like a path");
        snprintf(yaml, sizeof yaml, "base_config: %s\n", paths[i]);
        refused(NULL, yaml, NULL, NULL, OCTET_NOT_FOUND, "yaml[base_config]", "looks like a path");
    }
}
END_TEST

START_TEST(environment_names_are_exact)
{
    const octet_config *config =
        config_of(NULL, NULL,
                  WORDS("M_scan_layers=false", "m_SCAN_LAYERS=false", "SCAN_LAYERS=false", "M_=1",
                        "M_NO_SUCH=1", "M_EMB_DIM=7", "HOME=/root", "M_TRAIN_SPLIT="),
                  NULL);

    ck_assert(oct_config_bool(config, KEY(scan_layers)));
    ck_assert_int_eq(oct_config_int(config, KEY(emb_dim)), 2048);
    ck_assert_str_eq(oct_config_text(config, KEY(train_split)), "");
}
END_TEST

/* ---- errors ---- */

START_TEST(bad_values_name_type_range_and_choices)
{
    static const struct {
        const char *word, *field, *why;
    } rows[] = {
        {"base_emb_dim=abc", "overrides[base_emb_dim]", "'abc' is a text; expected a whole number"},
        {"base_emb_dim=7.5", "overrides[base_emb_dim]", "'7.5' is a number; expected a whole"},
        {"base_emb_dim=[1]", "overrides[base_emb_dim]", "a list is given; expected a whole number"},
        {"base_emb_dim=", "overrides[base_emb_dim]", "no value is given; expected a whole number"},
        {"base_emb_dim=0", "overrides[base_emb_dim]", "0 is outside 1 to 1048576"},
        {"weight_sparsity_n=x", "overrides[weight_sparsity_n]", "expected a whole number or none"},
        {"learning_rate=-1", "overrides[learning_rate]", "expected 0 or more"},
        {"warmup_steps_fraction=2", "overrides[warmup_steps_fraction]", "2 is outside 0 to 1"},
        {"scan_layers=maybe", "overrides[scan_layers]", "expected true or false"},
        {"run_name=1", "overrides[run_name]", "'1' is a whole number; expected a text (quote it)"},
        {"dtype=bf16", "overrides[dtype]", "'bf16' is not one of: bfloat16, float32, float16"},
        {"mlp_activations=silu", "overrides[mlp_activations]", "expected a list of texts"},
        {"mlp_activations=[silu, 1]", "overrides[mlp_activations]", "item 1 is a whole number"},
        {"engram_layers=[1, x]", "overrides[engram_layers]", "item 1 is a text"},
        {"lora=3", "overrides[lora]", "expected a mapping"},
        {"scan_layers.x=3", "overrides[scan_layers]", "a mapping is given"},
        {"run_name=[x", "overrides[run_name]", "did not find expected"},
        {"run_name=${x}", "overrides[run_name]", "not resolved"},
        {"nosuch.key=1", "overrides[nosuch]", "no config key 'nosuch'"},
        {"=1", "overrides[]", "no config key ''"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        refused(NULL, NULL, NULL, WORDS(rows[i].word), OCTET_INVALID_ARGUMENT, rows[i].field,
                rows[i].why);
}
END_TEST

START_TEST(bad_yaml_names_its_line)
{
    refused(NULL, "a: [\n", NULL, NULL, OCTET_INVALID_ARGUMENT, "yaml", "line 2");
    refused(NULL, "- a\n- b\n", NULL, NULL, OCTET_INVALID_ARGUMENT, "yaml",
            "line 1: the config is a list");
    refused(NULL, "steps: 1\nsteps: 2\n", NULL, NULL, OCTET_INVALID_ARGUMENT, "yaml",
            "line 2: key 'steps' stands twice");
    refused(NULL, "base_config: [a]\n", NULL, NULL, OCTET_INVALID_ARGUMENT, "yaml[base_config]",
            "expected the name of a known model");
    refused(NULL, "model_name: 3\n", NULL, NULL, OCTET_INVALID_ARGUMENT, "yaml[model_name]",
            "expected a model's name");
    ck_assert_ptr_nonnull(config_of(NULL, "", NULL, NULL));
    ck_assert_ptr_nonnull(config_of(NULL, "# nothing\n", NULL, NULL));
}
END_TEST

START_TEST(bad_variables_name_the_variable)
{
    refused(NULL, NULL, WORDS("M_SCAN_LAYERS=on"), NULL, OCTET_INVALID_ARGUMENT,
            "environment[M_SCAN_LAYERS]", "expected true or false");
    refused(NULL, NULL, WORDS("M_STEPS=1e3"), NULL, OCTET_INVALID_ARGUMENT, "environment[M_STEPS]",
            "expected a whole number");
    refused(NULL, NULL, WORDS("M_STEPS=-7"), NULL, OCTET_INVALID_ARGUMENT, "environment[M_STEPS]",
            "expected -1 or more");
    refused(NULL, NULL, WORDS("M_MLP_ACTIVATIONS=[silu]"), NULL, OCTET_INVALID_ARGUMENT,
            "environment[M_MLP_ACTIVATIONS]", "cannot be set from the environment");
    refused(NULL, NULL, WORDS("M_STEPS=7"), WORDS("steps=7"), OCTET_INVALID_ARGUMENT,
            "environment[M_STEPS]", "given as an argument too");
    refused("gemma-2b", NULL, WORDS("M_MODEL_NAME=gemma-2b"), NULL, OCTET_INVALID_ARGUMENT,
            "environment[M_MODEL_NAME]", "given as an argument too");
    refused(NULL, NULL, WORDS("M_RUN_NAME=\xff"), NULL, OCTET_INVALID_ARGUMENT,
            "environment[M_RUN_NAME]", "not UTF-8");
}
END_TEST

/* Text of others in messages is printable ASCII and cut, whatever it was. */
START_TEST(hostile_words_stay_harmless_in_messages)
{
    char word[5000];
    const octet_config *config;

    memset(word, 'x', sizeof word - 1);
    word[sizeof word - 1] = '\0';
    memcpy(word, "\x1b[31m\xff\n", 7);
    ck_assert_int_eq(try_config(NULL, NULL, NULL, WORDS(word), &config), OCTET_INVALID_ARGUMENT);
    ck_assert_int_eq(try_config(word, NULL, NULL, NULL, &config), OCTET_NOT_FOUND);
    for (const char *p = err.text; *p; p++)
        ck_assert(*p >= ' ' && *p <= '~');
    ck_assert_uint_lt(strlen(err.text), 300);
    memcpy(word, "run_name=[", 10);
    ck_assert_int_eq(try_config(NULL, NULL, NULL, WORDS(word), &config), OCTET_INVALID_ARGUMENT);
    memcpy(word, "dtype=xxxx", 10);
    ck_assert_int_eq(try_config(NULL, NULL, NULL, WORDS(word), &config), OCTET_INVALID_ARGUMENT);
    ck_assert_uint_lt(strlen(err.text), 300);
}
END_TEST

START_TEST(yaml_is_limited_by_the_context)
{
    const struct octet_limits limits = {.yaml_bytes = 20};
    struct octet_config_input input = {.yaml = "steps: 100000000000000000", .yaml_length = 25};
    const octet_config *config;
    octet_context *small;

    ck_assert_int_eq(octet_context_create(&limits, &small, &err), OCTET_OK);
    ck_assert_int_eq(octet_config_build(small, arena, &input, &config, &err),
                     OCTET_INVALID_ARGUMENT);
    ck_assert_str_eq(err.field, "yaml");
    input.yaml_length = 9;
    ck_assert_int_eq(octet_config_build(small, arena, &input, &config, &err), OCTET_OK);
    ck_assert_int_eq(oct_config_int(config, KEY(steps)), 10);
    octet_context_destroy(small);
}
END_TEST

/* ---- what MaxText refuses across keys ---- */

START_TEST(combinations_name_the_key_at_fault)
{
    static const struct {
        const char *words[6];
        const char *field;
    } rows[] = {
        {{"lr_schedule_type=wsd", "warmup_steps_fraction=0.6", "wsd_decay_steps_fraction=0.5"},
         "wsd_decay_steps_fraction"},
        {{"rope_pairwise=true", "rope_interleave=false"}, "rope_pairwise"},
        {{"use_mhc_pallas_kernel=true"}, "use_mhc_pallas_kernel"},
        {{"num_moe_token_chunks=2"}, "num_moe_token_chunks"},
        {{"use_random_routing=true"}, "use_random_routing"},
        {{"ici_pipeline_parallelism=3"}, "num_layers_per_pipeline_stage"},
        {{"ici_pipeline_parallelism=4", "num_pipeline_repeats=3"}, "num_pipeline_repeats"},
        {{"ici_pipeline_parallelism=4", "num_pipeline_microbatches=6"},
         "num_pipeline_microbatches"},
        {{"ici_pipeline_parallelism=8", "per_device_batch_size=12"}, "num_pipeline_microbatches"},
        {{"ici_pipeline_parallelism=9223372036854775807", "dcn_pipeline_parallelism=2"},
         "ici_pipeline_parallelism"},
        {{"moba=true", "attention=flash"}, "moba"},
        {{"decoder_block=deepseek4", "attention=flash"}, "attention"},
        {{"decoder_block=deepseek4", "mtp_num_layers=1"}, "mtp_num_layers"},
        {{"mla_qk_head_chunk_size=3"}, "mla_qk_head_chunk_size"},
        {{"use_indexer=true"}, "use_indexer"},
        {{"use_indexer=true", "attention_type=mla", "q_lora_rank=8",
          "indexer_loss_scaling_factor=1"},
         "indexer_topk"},
        {{"indexer_cutoff_threshold=device"}, "indexer_cutoff_threshold"},
        {{"attention_type=chunk"}, "chunk_attn_window_size"},
        {{"attention_type=local_sliding"}, "sliding_window_size"},
        {{"attention_type=block_diffusion"}, "packing"},
        {{"training_objective=block_diffusion"}, "training_objective"},
        {{"engram_layers=[1]", "engram_vocab_bases=[5]"}, "engram_vocab_bases"},
        {{"num_experts=8"}, "base_moe_mlp_dim"},
        {{"num_experts=8", "base_moe_mlp_dim=64"}, "base_mlp_dim"},
        {{"use_multimodal=true", "model_name=llama2-7b"}, "use_multimodal"},
        {{"shard_mode=explicit", "decoder_block=mixtral"}, "shard_mode"},
        {{"num_vocab_tiling=0"}, "num_vocab_tiling"},
        {{"num_vocab_tiling=7"}, "num_vocab_tiling"},
        {{"decoder_block=llama4", "num_experts_per_tok=2"}, "num_experts_per_tok"},
        {{"partial_rotary_factor=0.5"}, "partial_rotary_factor"},
        {{"decoder_block=qwen3_next", "partial_rotary_factor=0.3", "head_dim=10"},
         "partial_rotary_factor"},
        {{"decoder_block=qwen3_next", "gdn_num_value_heads=33"}, "gdn_num_value_heads"},
        {{"opt_type=muon", "decoder_block=mixtral"}, "opt_type"},
        {{"use_qk_clip=true"}, "use_qk_clip"},
        {{"use_qk_clip=true", "attention_type=mla", "attn_logits_soft_cap=5"}, "use_qk_clip"},
        {{"share_kv_projections=true", "fused_qkv=true"}, "share_kv_projections"},
        {{"use_gmm_v2=true"}, "use_gmm_v2"},
        {{"compress_ratios=[0, 4, 3]"}, "compress_ratios"},
        {{"num_kv_shared_layers=1", "fused_qkv=true"}, "num_kv_shared_layers"},
        {{"base_num_kv_heads=5"}, "base_num_kv_heads"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        refused(NULL, NULL, NULL, rows[i].words, OCTET_INVALID_ARGUMENT, rows[i].field, "");
    printf("combinations: %zu refused\n", sizeof rows / sizeof rows[0]);
}
END_TEST

START_TEST(combinations_at_their_edge_are_taken)
{
    static const char *const rows[][6] = {
        {"lr_schedule_type=wsd", "warmup_steps_fraction=0.5", "wsd_decay_steps_fraction=0.5"},
        {"ici_pipeline_parallelism=4"},
        {"ici_pipeline_parallelism=2", "num_layers_per_pipeline_stage=4", "num_pipeline_repeats=2"},
        {"ici_expert_parallelism=2", "use_random_routing=true"},
        {"use_random_routing=true", "override_logical_axis_rules=true"},
        {"mla_qk_head_chunk_size=4"},
        {"use_indexer=true", "attention_type=mla", "q_lora_rank=8"},
        {"attention_type=local_sliding", "sliding_window_size=1"},
        {"engram_layers=[1]", "engram_vocab_bases=[5, 6]", "engram_max_ngram_size=3"},
        {"num_experts=8", "base_moe_mlp_dim=7168"},
        {"num_experts=8", "base_moe_mlp_dim=64", "first_num_dense_layers=1"},
        {"use_multimodal=true", "model_name=gemma3-4b"},
        {"base_num_kv_heads=5", "attention_type=mla"},
        {"compress_ratios=[0, 4, 128]"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        ck_assert_ptr_nonnull(config_of(NULL, NULL, NULL, rows[i]));
}
END_TEST

/* ---- derived sizes ---- */

/* get_individual_scales, written down again the slow way: share the scale's doublings out among
 * heads and MLP, then the embedding, then layers, over and over. */
static void expected_scales(int doublings, int64_t *heads, int64_t *embedding, int64_t *layers)
{
    *heads = *embedding = *layers = 1;
    for (int i = 0; i < doublings; i++) {
        if (i % 3 == 0)
            *heads *= 2;
        else if (i % 3 == 1)
            *embedding *= 2;
        else
            *layers *= 2;
    }
}

START_TEST(sizes_follow_the_global_scale)
{
    for (int doublings = 0; doublings <= 9; doublings++) {
        char word[64];
        int64_t heads, embedding, layers;
        snprintf(word, sizeof word, "global_parameter_scale=%d", 1 << doublings);
        const struct oct_dims *dims = oct_config_dims(
            config_of(NULL, NULL, NULL, WORDS(word, "base_moe_mlp_dim=96", "head_dim=24")));
        expected_scales(doublings, &heads, &embedding, &layers);
        ck_assert_int_eq(dims->emb_dim, 2048 * embedding);
        ck_assert_int_eq(dims->num_query_heads, 16 * heads);
        ck_assert_int_eq(dims->num_kv_heads, 16 * heads);
        ck_assert_int_eq(dims->mlp_dim, 7168 * heads);
        ck_assert_int_eq(dims->moe_mlp_dim, 96 * heads);
        ck_assert_int_eq(dims->num_decoder_layers, 16 * layers);
        ck_assert_int_eq(dims->head_dim, 24);
    }
    for (int bad = -8; bad <= 12; bad++) {
        char word[64];
        snprintf(word, sizeof word, "global_parameter_scale=%d", bad);
        if (bad != 1 && bad != 2 && bad != 4 && bad != 8)
            refused(NULL, NULL, NULL, WORDS(word), OCTET_INVALID_ARGUMENT, "global_parameter_scale",
                    "not a power of two");
    }
    refused(NULL, NULL, NULL, WORDS("global_parameter_scale=4611686018427387904"),
            OCTET_INVALID_ARGUMENT, "global_parameter_scale", "base_emb_dim = 2048 times 2097152");
}
END_TEST

START_TEST(the_batch_is_at_least_one)
{
    static const struct {
        const char *word;
        int64_t batch;
    } rows[] = {
        {"per_device_batch_size=0.5", 1}, {"per_device_batch_size=0", 1},
        {"per_device_batch_size=1", 1},   {"per_device_batch_size=2.5", 2},
        {"per_device_batch_size=12", 12},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        ck_assert_int_eq(
            oct_config_dims(config_of(NULL, NULL, NULL, WORDS(rows[i].word)))->global_batch_size,
            rows[i].batch);
}
END_TEST

START_TEST(fully_moe_qwen3_takes_its_experts_width)
{
    const octet_config *config = config_of("qwen3-30b-a3b", NULL, NULL, NULL);

    ck_assert_int_eq(oct_config_dims(config)->mlp_dim, oct_config_dims(config)->moe_mlp_dim);
    ck_assert_int_eq(oct_config_int(config, KEY(base_mlp_dim)), 768);
}
END_TEST

/* No model can be described whose factors leave 64 bits when two of them are multiplied. */
START_TEST(sizes_are_bounded)
{
    static const char *const keys[] = {"base_emb_dim",
                                       "base_mlp_dim",
                                       "base_moe_mlp_dim",
                                       "base_num_query_heads",
                                       "base_num_kv_heads",
                                       "base_num_decoder_layers",
                                       "head_dim",
                                       "vocab_size",
                                       "num_experts",
                                       "num_experts_per_tok",
                                       "shared_experts",
                                       "q_lora_rank",
                                       "kv_lora_rank",
                                       "qk_nope_head_dim",
                                       "qk_rope_head_dim",
                                       "v_head_dim",
                                       "mtp_num_layers",
                                       "max_target_length",
                                       "per_device_batch_size",
                                       "indexer_n_heads",
                                       "indexer_head_dim",
                                       "mhc_expansion_rate",
                                       "first_num_dense_layers"};

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        char word[80], field[80];
        snprintf(field, sizeof field, "overrides[%s]", keys[i]);
        snprintf(word, sizeof word, "%s=4294967296", keys[i]);
        refused(NULL, NULL, NULL, WORDS(word), OCTET_INVALID_ARGUMENT, field, "is outside");
        snprintf(word, sizeof word, "%s=1e300", keys[i]);
        refused(NULL, NULL, NULL, WORDS(word), OCTET_INVALID_ARGUMENT, field, "is outside");
        snprintf(word, sizeof word, "%s=-5", keys[i]);
        refused(NULL, NULL, NULL, WORDS(word), OCTET_INVALID_ARGUMENT, field, "is outside");
    }
}
END_TEST

/* ---- settings ---- */

START_TEST(settings_list_all_keys_in_order)
{
    const octet_config *config = config_of("deepseek3-671b", NULL, NULL, NULL);
    struct octet_setting setting;
    const char *before = "";

    ck_assert_uint_eq(octet_config_setting_count(config), OCT_KEY_COUNT);
    for (size_t i = 0; i < OCT_KEY_COUNT; i++) {
        ck_assert_int_eq(octet_config_setting(config, arena, i, &setting, &err), OCTET_OK);
        ck_assert_int_lt(strcmp(before, setting.key), 0);
        ck_assert_str_eq(setting.key, oct_key_name((enum oct_key)i));
        before = setting.key;
    }
    ck_assert_int_eq(octet_config_setting(config, arena, OCT_KEY_COUNT, &setting, &err),
                     OCTET_OUT_OF_RANGE);
}
END_TEST

START_TEST(settings_tell_what_maxtext_would_ask_for)
{
    const octet_config *config =
        config_of("llama3-8b", "head_dim: 64\n", WORDS("M_ENABLE_DROPOUT=false"),
                  WORDS("base_emb_dim=4096.0", "base_mlp_dim=77",
                        "mlp_activations=['silu', linear]", "steps=3"));

    ck_assert(!setting_of(config, "base_emb_dim").overrides_model); /* equal is no conflict */
    ck_assert(!setting_of(config, "mlp_activations").overrides_model);
    ck_assert(setting_of(config, "base_mlp_dim").overrides_model);
    ck_assert(setting_of(config, "head_dim").overrides_model);
    ck_assert(setting_of(config, "enable_dropout").overrides_model); /* a variable always is */
    ck_assert(!setting_of(config, "steps").overrides_model);
    config =
        config_of("llama3-8b", NULL, NULL, WORDS("base_mlp_dim=77", "override_model_config=true"));
    ck_assert(!setting_of(config, "base_mlp_dim").overrides_model);
    ck_assert(setting_of(config, "base_mlp_dim").has_effect);
    ck_assert(!setting_of(config, "hf_path").has_effect);
}
END_TEST

START_TEST(settings_print_what_yaml_reads_back)
{
    static const struct {
        const char *key, *word, *text;
    } rows[] = {
        {"run_name", "run_name='a: b'", "'a: b'"},
        {"run_name", "run_name='it''s'", "'it''s'"},
        {"run_name", "run_name=\"a\\tb\"", "\"a\\x09b\""},
        {"run_name", "run_name='1'", "'1'"},
        {"run_name", "run_name=''", "''"},
        {"run_name", "run_name='yes'", "'yes'"},
        {"learning_rate", "learning_rate=1e-5", "1e-05"},
        {"learning_rate", "learning_rate=0.0001", "0.0001"},
        {"learning_rate", "learning_rate=123456789", "123456789.0"},
        {"learning_rate", "learning_rate=1e16", "1e+16"},
        {"learning_rate", "learning_rate=0.1", "0.1"},
        {"learning_rate", "learning_rate=.inf", ".inf"},
        {"z_loss_multiplier", "z_loss_multiplier=-1.5e-300", "-1.5e-300"},
        {"mlp_activations", "mlp_activations=[gelu, 'x y', \"\"]", "[gelu, 'x y', '']"},
        {"engram_layers", "engram_layers=[]", "[]"},
        {"weight_sparsity_n", "weight_sparsity_n=none", "null"},
        {"lora", "lora.enable_lora=true", "{enable_lora: true}"},
        {"data_sharding", "data_sharding=[[a, 1, null, 0.5], {b: no}]",
         "[[a, 1, null, 0.5], {b: false}]"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const octet_config *config = config_of(NULL, NULL, NULL, WORDS(rows[i].word));
        ck_assert_str_eq(setting_of(config, rows[i].key).text, rows[i].text);
        /* Printed text is a value again, and the same one. */
        char *word = octet_arena_format(arena, "%s=%s", rows[i].key, rows[i].text);
        config = config_of(NULL, NULL, NULL, WORDS(word));
        ck_assert_str_eq(setting_of(config, rows[i].key).text, rows[i].text);
    }
}
END_TEST

START_TEST(none_reads_as_nothing)
{
    const octet_config *config =
        config_of(NULL, NULL, NULL, WORDS("quantization=NONE", "weight_sparsity_n="));
    const char *const *items;
    const int64_t *integers;

    ck_assert(oct_config_is_null(config, KEY(quantization)));
    ck_assert_str_eq(oct_config_text(config, KEY(quantization)), "");
    ck_assert(oct_config_is_null(config, KEY(weight_sparsity_n)));
    ck_assert_int_eq(oct_config_int(config, KEY(weight_sparsity_n)), 0);
    ck_assert(oct_config_is_null(config, KEY(attn_logits_soft_cap)));
    ck_assert_uint_eq(oct_config_list(config, KEY(adamw_mask), &items), 0);
    ck_assert_ptr_nonnull(items);
    ck_assert_uint_eq(oct_config_ints(config, KEY(engram_layers), &integers), 0);
    ck_assert_ptr_nonnull(integers);
    ck_assert_uint_eq(oct_config_list(config, KEY(mlp_activations), &items), 2);
    ck_assert_str_eq(items[1], "linear");
    ck_assert_uint_eq(oct_config_ints(config, KEY(mrope_section), &integers), 3);
    ck_assert_int_eq(integers[2], 20);
    ck_assert_double_eq(oct_config_float(config, KEY(rope_max_timescale)), 10000.0);
}
END_TEST

/* ---- memory and speed ---- */

START_TEST(every_failed_allocation_is_reported)
{
    const octet_config *config;
    uint64_t n = 1;

    for (;; n++) {
        octet_arena *own = octet_arena_create(ARENA_BYTES);
        const struct octet_pair variables[] = {{"M_STEPS", "3"}, {"M_RUN_NAME", "x"}};
        const struct octet_pair overrides[] = {{"mlp_activations", "[silu, linear]"},
                                               {"scan_layers", "false"},
                                               {"lora.x", "1"},
                                               {"adamw_mask", "bias"}};
        static const char yaml[] = "base_config: gemma-2b\nlora: {lora_rank: 3}\n";
        const struct octet_config_input input = {.name = "llama3-8b",
                                                 .yaml = yaml,
                                                 .yaml_length = sizeof yaml - 1,
                                                 .environment = variables,
                                                 .environment_count = 2,
                                                 .overrides = overrides,
                                                 .override_count = 4};
        octet_arena_fail_at(own, n);
        config = NULL;
        enum octet_status status = octet_config_build(context, own, &input, &config, &err);
        octet_arena_destroy(own);
        if (!status)
            break;
        ck_assert_int_eq(status, OCTET_RESOURCE_EXHAUSTED);
        ck_assert_int_eq(err.status, OCTET_RESOURCE_EXHAUSTED);
        ck_assert_ptr_null(config);
    }
    ck_assert_uint_gt(n, 50);
    printf("allocations: each of %" PRIu64 " was made to fail\n", n - 1);
}
END_TEST

START_TEST(a_small_budget_is_reported)
{
    octet_arena *small = octet_arena_create(30000);
    const struct octet_config_input input = {.name = "llama3-8b"};
    const octet_config *config = NULL;

    ck_assert_int_eq(octet_config_build(context, small, &input, &config, &err),
                     OCTET_RESOURCE_EXHAUSTED);
    ck_assert_ptr_null(config);
    octet_arena_destroy(small);
}
END_TEST

/* Printed, not asserted: octet trace has 10 ms for everything, of which a config may take 0.5. */
START_TEST(building_is_fast)
{
    static const char *const names[] = {"default", "llama3-8b", "deepseek3-671b",
                                        "deepseek3-671b-2dfsdp"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        uint64_t best = UINT64_MAX, first = 0;
        for (int turn = 0; turn < 50; turn++) {
            const octet_config *config;
            octet_arena_reset(arena);
            uint64_t start = octet_now_ns();
            ck_assert_int_eq(try_config(names[i], NULL, NULL,
                                        WORDS("quantization=fp8_full", "steps=7"), &config),
                             OCTET_OK);
            uint64_t took = octet_now_ns() - start;
            first = turn ? first : took;
            best = took < best ? took : best;
        }
        printf("build %s: first %.1f us, best of 50 %.1f us\n", names[i], (double)first / 1e3,
               (double)best / 1e3);
    }
}
END_TEST

static void add_tests(TCase *tests)
{
    tcase_add_test(tests, later_layers_win);
    tcase_add_test(tests, the_last_of_equal_keys_wins);
    tcase_add_test(tests, a_value_that_is_replaced_may_be_bad);
    tcase_add_test(tests, the_model_is_named_by_override_name_or_yaml);
    tcase_add_test(tests, a_model_named_twice_is_refused);
    tcase_add_test(tests, instruct_is_the_same_architecture);
    tcase_add_test(tests, base_config_lies_below_its_config);
    tcase_add_test(tests, unknown_names_are_answered_with_the_nearest);
    tcase_add_test(tests, a_name_is_never_a_path);
    tcase_add_test(tests, environment_names_are_exact);
    tcase_add_test(tests, bad_values_name_type_range_and_choices);
    tcase_add_test(tests, bad_yaml_names_its_line);
    tcase_add_test(tests, bad_variables_name_the_variable);
    tcase_add_test(tests, hostile_words_stay_harmless_in_messages);
    tcase_add_test(tests, yaml_is_limited_by_the_context);
    tcase_add_test(tests, combinations_name_the_key_at_fault);
    tcase_add_test(tests, combinations_at_their_edge_are_taken);
    tcase_add_test(tests, sizes_follow_the_global_scale);
    tcase_add_test(tests, the_batch_is_at_least_one);
    tcase_add_test(tests, fully_moe_qwen3_takes_its_experts_width);
    tcase_add_test(tests, sizes_are_bounded);
    tcase_add_test(tests, settings_list_all_keys_in_order);
    tcase_add_test(tests, settings_tell_what_maxtext_would_ask_for);
    tcase_add_test(tests, settings_print_what_yaml_reads_back);
    tcase_add_test(tests, none_reads_as_nothing);
    tcase_add_test(tests, every_failed_allocation_is_reported);
    tcase_add_test(tests, a_small_budget_is_reported);
    tcase_add_test(tests, building_is_fast);
}

int main(void)
{
    Suite *suite = suite_create("config");
    TCase *tests = tcase_create("config");

    tcase_add_checked_fixture(tests, config_setup, config_teardown);
    tcase_set_timeout(tests, 120);
    add_tests(tests);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
