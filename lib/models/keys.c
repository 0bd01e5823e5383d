/* The table behind keys.h: static data, so that start-up pays nothing for MaxText's defaults. */
#include <string.h>

#include "octet/nearest.h"
#include "models/value.h"

/* Source: MaxText's configs/types.py and common/common_types.py. fp4_e2m1 is Qwix's own name for
 * fp4, which MaxText's rules know though its config refuses it. */
#define choices_any NULL
static const char *const choices_attention_type[] = {
    "global", "local_sliding", "chunk", "mla", "full", "compressed", "block_diffusion", NULL};
static const char *const choices_block_diffusion_canvas_policy[] = {"all_masked", "seed_and_mask",
                                                                    NULL};
static const char *const choices_block_diffusion_logit_alignment[] = {"same_position", "shifted",
                                                                      NULL};
static const char *const choices_context_parallel_reorder_strategy[] = {"auto", "dual_chunk_swap",
                                                                        "striped", NULL};
static const char *const choices_dataset_type[] = {"synthetic", "hf",         "grain", "tfds",
                                                   "c4_mlperf", "olmo_grain", NULL};
static const char *const choices_decode_sampling_strategy[] = {"greedy", "weighted",  "nucleus",
                                                               "topk",   "composite", NULL};
static const char *const choices_decoder_block[] = {
    "default",   "llama2",           "mistral",    "mixtral",      "deepseek",  "gemma",
    "gemma2",    "gemma3",           "gemma4",     "gemma4_small", "qwen2",     "qwen3",
    "qwen3_moe", "qwen3_custom_moe", "qwen3_next", "qwen3_5",      "gpt3",      "gpt_oss",
    "simple",    "simple_mlp",       "llama4",     "olmo3",        "deepseek4", "envy",
    NULL};
static const char *const choices_distill_feature_loss_type[] = {"cosine", "l2", NULL};
static const char *const choices_float_type[] = {"bfloat16", "float32", "float16", NULL};
static const char *const choices_grain_index_storage_option[] = {"in_memory", "offloaded", NULL};
static const char *const choices_grain_packing_type[] = {"first_fit", "best_fit",
                                                         "concat_then_split", NULL};
static const char *const choices_hardware[] = {"tpu", "gpu", "gpu_multiprocess", "cpu", NULL};
static const char *const choices_kv_quant_axis[] = {"", "dkv", "heads_and_dkv", NULL};
static const char *const choices_kv_quant_dtype[] = {"int8", "int4", NULL};
static const char *const choices_lr_schedule_type[] = {"cosine", "wsd", NULL};
static const char *const choices_matmul_precision[] = {"default",  "high",    "highest",
                                                       "bfloat16", "float32", NULL};
static const char *const choices_mesh_rule[] = {"",         "pure-fsdp",          "cp-as-ep",
                                                "ep-as-cp", "pipeline-large-moe", "2d-fsdp",
                                                "ep-as-dp", "shard-exp-on-fsdp",  NULL};
static const char *const choices_opt_type[] = {"adamw", "adam_pax", "sgd", "muon", NULL};
static const char *const choices_profiler[] = {"", "xplane", "nsys", NULL};
static const char *const choices_quantization[] = {"",
                                                   "fp4",
                                                   "fp4_e2m1",
                                                   "int4",
                                                   "int8",
                                                   "intmp",
                                                   "fp8_e5m2",
                                                   "fp8_e4m3",
                                                   "fp8",
                                                   "nanoo_fp8",
                                                   "fp8_nanoo",
                                                   "fp8_gpu",
                                                   "fp8_full",
                                                   "te_fp8_delayedscaling",
                                                   "te_fp8_currentscaling",
                                                   "te_mxfp8",
                                                   "te_nvfp4",
                                                   "te_nvfp4_no_rht",
                                                   NULL};
static const char *const choices_remat[] = {"remat", "device", "offload", NULL};
static const char *const choices_rope_type[] = {"default", "llama3.1", "yarn", NULL};
static const char *const choices_schedule[] = {"constant", "linear", "cosine", NULL};
static const char *const choices_shard_mode[] = {"auto", "explicit", NULL};
static const char *const choices_sharding_strategy[] = {"experimental", NULL};
static const char *const choices_source_checkpoint_layout[] = {"orbax", "safetensors",
                                                               "safetensors_dynamic", NULL};
static const char *const choices_tokenizer_type[] = {"sentencepiece", "huggingface", "tiktoken",
                                                     NULL};
static const char *const choices_training_objective[] = {"causal_lm", "block_diffusion", NULL};
static const char *const choices_vision_encoder_block[] = {
    "none", "gemma3", "llama4", "qwen3_omni", "gemma4", "qwen3_5", "qwen3_vl", NULL};
static const char *const choices_wsd_decay_style[] = {"linear", "cosine", NULL};

/* How the rows of keys.h become initializers. */
/* clang-format off */
#define B(v) {.raw = OCT_YAML_BOOL, .as.boolean = (v)}
#define I(v) {.raw = OCT_YAML_INT, .as.integer = (v)}
#define F(v) {.raw = OCT_YAML_FLOAT, .as.number = (v)}
#define W(v) {.raw = OCT_YAML_INT, .as.number = (v)}
#define T(v) {.raw = OCT_YAML_TEXT, .as.text = (v)}
#define COUNT(type, ...) sizeof((const type[]){__VA_ARGS__}) / sizeof(type)
#define L(...) {.raw = OCT_YAML_LIST, .count = COUNT(char *, __VA_ARGS__), \
                .as.texts = (const char *const[]){__VA_ARGS__}}
#define N(...) {.raw = OCT_YAML_LIST, .count = COUNT(int64_t, __VA_ARGS__), \
                .as.integers = (const int64_t[]){__VA_ARGS__}}
#define EMPTY {.raw = OCT_YAML_LIST}
#define Y(kind, v) {.raw = OCT_YAML_##kind, .as.text = (v)}
#define NONE {.raw = OCT_YAML_NULL, .is_null = true}
#define WORD_NONE {.raw = OCT_YAML_TEXT, .is_null = true}
/* clang-format on */

#define REQUIRED false
#define OPTIONAL true
#define YML true
#define CODE false
enum { EFFECT_EFFECT = OCT_EFFECT, EFFECT_NO_EFFECT = OCT_NO_EFFECT, EFFECT_DERIVED = OCT_DERIVED };

#define ROW(key, k, null, default_value, lim, list, what, place)                                   \
    [OCT_KEY_##key] = {.name = #key,                                                               \
                       .kind = OCT_KIND_##k,                                                       \
                       .limit = OCT_LIMIT_##lim,                                                   \
                       .effect = EFFECT_##what,                                                    \
                       .optional = null,                                                           \
                       .in_yml = place,                                                            \
                       .choices = choices_##list,                                                  \
                       .value = default_value},
const struct oct_key_info oct_keys[OCT_KEY_COUNT] = {OCT_KEYS(ROW)};

enum oct_key oct_key_find(const char *name)
{
    size_t low = 0, high = OCT_KEY_COUNT;

    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = strcmp(name, oct_keys[middle].name);
        if (!order)
            return (enum oct_key)middle;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return OCT_KEY_COUNT;
}

static const char *key_name_at(const void *user, size_t i)
{
    (void)user;
    return oct_keys[i].name;
}

const char *oct_key_nearest(const char *name)
{
    return oct_keys[octet_nearest(name, OCT_KEY_COUNT, key_name_at, NULL)].name;
}

const char *oct_key_name(enum oct_key key)
{
    return oct_keys[key].name;
}
