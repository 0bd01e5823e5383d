/* Decoder layers: one function a family, one table of families, and how each family stacks its
 * layers. To add a family: write its layer, add its row. */
#include "models/decoder.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "models/attention.h"
#include "models/hyper_connections.h"
#include "models/layers.h"
#include "models/mla.h"
#include "models/moe.h"

/* index: the layer's place in its stack, for those whose attention alternates. */
typedef oct_tensor layer_function(struct oct_model *m, oct_tensor x, int64_t index);

enum stacking {
    STACK_PLAIN,     /* decoder/layers */
    STACK_CYCLE,     /* scanned: decoder/layers/layers_i, one of each in the cycle */
    STACK_REMAINDER, /* scanned: the same with a fixed cycle, then decoder/layers_remainder/layers_i
                      */
    STACK_DEEPSEEK,  /* decoder/dense_layers, then decoder/moe_layers */
};

struct oct_family {
    const char *decoder_block;
    layer_function *layer;
    enum stacking stacking;
};

/* ---- layers ---- */

static struct oct_attention plain_attention(const struct oct_model *m)
{
    return (struct oct_attention){.name = "self_attention",
                                  .query_scale = 1,
                                  .float32_qk = oct_bool(m, float32_qk_product),
                                  .float32_logits = oct_bool(m, float32_logits)};
}

static double head_scale(const struct oct_model *m)
{
    return 1 / sqrt((double)m->dims->head_dim);
}

/* Norm, attention, add; norm, MLP, add: llama2, mistral, qwen2, qwen3. */
static oct_tensor pre_norm_layer(struct oct_model *m, oct_tensor x, const struct oct_attention *a,
                                 const char *moe, int64_t mlp_dim)
{
    oct_tensor normed = oct_norm(m, "pre_self_attention_layer_norm", x);

    x = oct_plus(&m->b, x, oct_attention_layer(m, a, normed));
    normed = oct_norm(m, "post_self_attention_layer_norm", x);
    oct_tensor y =
        moe ? oct_routed_moe(m, moe, normed, mlp_dim) : oct_mlp(m, "mlp", normed, mlp_dim);
    return oct_plus(&m->b, y, x);
}

/* attention_type and sliding_window_size are not handed on: every layer sees all keys. */
static oct_tensor layer_llama2(struct oct_model *m, oct_tensor x, int64_t index)
{
    struct oct_attention a = plain_attention(m);

    (void)index;
    a.soft_cap = oct_float(m, attn_logits_soft_cap);
    return pre_norm_layer(m, x, &a, NULL, m->dims->mlp_dim);
}

static oct_tensor layer_mistral(struct oct_model *m, oct_tensor x, int64_t index)
{
    struct oct_attention a = plain_attention(m);

    (void)index;
    return pre_norm_layer(m, x, &a, NULL, m->dims->mlp_dim);
}

static oct_tensor layer_mixtral(struct oct_model *m, oct_tensor x, int64_t index)
{
    struct oct_attention a = plain_attention(m);

    (void)index;
    return pre_norm_layer(m, x, &a, "MoeBlock_0", m->dims->mlp_dim);
}

static oct_tensor layer_qwen2(struct oct_model *m, oct_tensor x, int64_t index)
{
    struct oct_attention a = plain_attention(m);

    (void)index;
    a.qk_norm = oct_bool(m, use_qk_norm);
    a.bias = oct_bool(m, attention_bias);
    a.query_scale = head_scale(m);
    return pre_norm_layer(m, x, &a, NULL, m->dims->mlp_dim);
}

static struct oct_attention qwen3_attention(const struct oct_model *m)
{
    struct oct_attention a = plain_attention(m);

    a.qk_norm = oct_bool(m, use_qk_norm);
    a.query_scale = head_scale(m);
    return a;
}

static oct_tensor layer_qwen3(struct oct_model *m, oct_tensor x, int64_t index)
{
    struct oct_attention a = qwen3_attention(m);

    (void)index;
    return pre_norm_layer(m, x, &a, NULL, m->dims->mlp_dim);
}

static oct_tensor layer_qwen3_moe(struct oct_model *m, oct_tensor x, int64_t index)
{
    struct oct_attention a = qwen3_attention(m);

    (void)index;
    return pre_norm_layer(m, x, &a, "moe_block", m->dims->moe_mlp_dim);
}

/* Local and global attention in turn. */
static oct_tensor layer_gpt_oss(struct oct_model *m, oct_tensor x, int64_t index)
{
    struct oct_attention a = {.name = "GptOssAttention",
                              .query_scale = head_scale(m),
                              .bias = oct_bool(m, attention_bias),
                              .window = index % 2 == 0 ? oct_int(m, sliding_window_size) : 0};

    return pre_norm_layer(m, x, &a, "GptOssMlp", m->dims->mlp_dim);
}

/* The norms stand behind attention and MLP. Every fourth layer attends to all keys. */
static oct_tensor layer_olmo3(struct oct_model *m, oct_tensor x, int64_t index)
{
    struct oct_attention a = {.name = "attention",
                              .query_scale = head_scale(m),
                              .qk_norm = oct_bool(m, use_qk_norm),
                              .bias = oct_bool(m, attention_bias),
                              .window = index % 4 < 3 ? oct_int(m, sliding_window_size) : 0};
    oct_tensor y = oct_norm(m, "post_self_attention_layer_norm", oct_attention_layer(m, &a, x));

    x = oct_plus(&m->b, x, y);
    y = oct_norm(m, "post_mlp_layer_norm", oct_mlp(m, "mlp", x, m->dims->mlp_dim));
    return oct_plus(&m->b, y, x);
}

static oct_tensor layer_gemma(struct oct_model *m, oct_tensor x, int64_t index)
{
    struct oct_attention a = plain_attention(m);

    (void)index;
    x = oct_plus(&m->b,
                 oct_attention_layer(m, &a, oct_norm_default(m, "pre_self_attention_norm", x)), x);
    oct_tensor normed = oct_norm_default(m, "pre_ffw_norm", x);
    return oct_plus(&m->b, oct_mlp(m, "mlp", normed, m->dims->mlp_dim), x);
}

/* Gemma 2 and 3: optional norms behind attention and MLP. suffix: "", "_local", "_global". */
static oct_tensor gemma_sandwich(struct oct_model *m, oct_tensor x, const struct oct_attention *a,
                                 const char *suffix)
{
    static const char *const stems[] = {"pre_self_attention_norm", "post_self_attention_norm",
                                        "pre_ffw_norm", "mlp", "post_ffw_norm"};
    char names[sizeof stems / sizeof *stems][48];

    for (size_t i = 0; i < sizeof stems / sizeof *stems; i++)
        snprintf(names[i], sizeof names[i], "%s%s", stems[i], suffix);
    oct_tensor y = oct_attention_layer(m, a, oct_norm_default(m, names[0], x));
    if (oct_bool(m, use_post_attn_norm))
        y = oct_norm_default(m, names[1], y);
    x = oct_plus(&m->b, y, x);
    y = oct_mlp(m, names[3], oct_norm_default(m, names[2], x), m->dims->mlp_dim);
    if (oct_bool(m, use_post_ffw_norm))
        y = oct_norm_default(m, names[4], y);
    return oct_plus(&m->b, y, x);
}

/* One layer of MaxText's is two of the model's: local, then global attention. */
static oct_tensor layer_gemma2(struct oct_model *m, oct_tensor x, int64_t index)
{
    struct oct_attention local = plain_attention(m), global = plain_attention(m);

    (void)index;
    local.name = "self_attention_local";
    local.window = oct_int(m, sliding_window_size);
    global.name = "self_attention_global";
    global.float32_qk = global.float32_logits = true;
    local.soft_cap = global.soft_cap = oct_float(m, attn_logits_soft_cap);
    x = gemma_sandwich(m, x, &local, "_local");
    return gemma_sandwich(m, x, &global, "_global");
}

enum { GEMMA3_CYCLE = 6 }; /* five local layers, then a global one */

static oct_tensor layer_gemma3(struct oct_model *m, oct_tensor x, int64_t index)
{
    struct oct_attention a = plain_attention(m);

    a.qk_norm = true;
    a.soft_cap = oct_float(m, attn_logits_soft_cap);
    a.window = index % GEMMA3_CYCLE < GEMMA3_CYCLE - 1 ? oct_int(m, sliding_window_size) : 0;
    a.query_scale =
        oct_named(m, "gemma3-27b")
            ? 1 / sqrt((double)(oct_int(m, base_emb_dim) / oct_int(m, base_num_query_heads)))
            : head_scale(m);
    return gemma_sandwich(m, x, &a, "");
}

/* NNXDecoderLayer: attention and MLP side by side on one norm. */
static oct_tensor layer_default(struct oct_model *m, oct_tensor x, int64_t index)
{
    struct oct_attention a = plain_attention(m);

    (void)index;
    a.share_kv = oct_bool(m, share_kv_projections);
    oct_tensor normed = oct_norm(m, "pre_self_attention_norm", x);
    oct_tensor attended = oct_attention_layer(m, &a, normed);
    oct_tensor y = oct_mlp(m, "mlp", normed, m->dims->mlp_dim);
    return oct_plus(&m->b, oct_plus(&m->b, y, attended), x);
}

static oct_tensor deepseek_ffn(struct oct_model *m, oct_tensor x, bool moe)
{
    return moe ? oct_routed_and_shared_moe(m, x) : oct_mlp(m, "mlp", x, m->dims->mlp_dim);
}

/* With hyper-connections each branch stands between streams_begin and streams_end. MaxText also
 * runs the norm behind attention on the streams themselves, for a value that nothing reads; Qwix
 * sees that call first, so it stands in the list. */
static oct_tensor deepseek_streams(struct oct_model *m, oct_tensor x, bool moe)
{
    struct oct_streams attention, ffn;
    double epsilon = oct_float(m, normalization_layer_epsilon);
    oct_tensor branch = oct_streams_begin(m, "mhc_attention", x, &attention);

    branch = oct_mla(m, oct_norm(m, "pre_self_attention_layer_norm", branch));
    x = oct_streams_end(m, &attention, branch);
    uint32_t outer = oct_enter(&m->b, "post_self_attention_layer_norm"), norm = m->b.module;
    oct_tensor scale =
        oct_parameter(&m->b, "scale", 1, (struct oct_dim[]){OCT_DIM(m->dims->emb_dim, norm)});
    oct_rms_norm(&m->b, x, scale, epsilon, 0);
    oct_leave(&m->b, outer);
    branch = oct_streams_begin(m, "mhc_mlp", x, &ffn);
    m->b.module = norm;
    branch = oct_rms_norm(&m->b, branch, scale, epsilon, 0);
    oct_leave(&m->b, outer);
    branch = deepseek_ffn(m, branch, moe);
    return oct_streams_end(m, &ffn, branch);
}

static oct_tensor deepseek_layer(struct oct_model *m, oct_tensor x, bool moe)
{
    if (oct_int(m, mhc_expansion_rate) > 1)
        return deepseek_streams(m, x, moe);
    oct_tensor normed = oct_norm(m, "pre_self_attention_layer_norm", x);
    x = oct_plus(&m->b, x, oct_mla(m, normed));
    normed = oct_norm(m, "post_self_attention_layer_norm", x);
    return oct_plus(&m->b, deepseek_ffn(m, normed, moe), x);
}

static oct_tensor layer_deepseek_dense(struct oct_model *m, oct_tensor x, int64_t index)
{
    (void)index;
    return deepseek_layer(m, x, false);
}

static oct_tensor layer_deepseek(struct oct_model *m, oct_tensor x, int64_t index)
{
    (void)index;
    return deepseek_layer(m, x, true);
}

/* ---- families ---- */

static const struct oct_family families[] = {
    {"default", layer_default, STACK_PLAIN},      {"llama2", layer_llama2, STACK_PLAIN},
    {"mistral", layer_mistral, STACK_PLAIN},      {"mixtral", layer_mixtral, STACK_PLAIN},
    {"qwen2", layer_qwen2, STACK_PLAIN},          {"qwen3", layer_qwen3, STACK_PLAIN},
    {"qwen3_moe", layer_qwen3_moe, STACK_PLAIN},  {"gemma", layer_gemma, STACK_PLAIN},
    {"gemma2", layer_gemma2, STACK_PLAIN},        {"gemma3", layer_gemma3, STACK_REMAINDER},
    {"gpt_oss", layer_gpt_oss, STACK_CYCLE},      {"olmo3", layer_olmo3, STACK_CYCLE},
    {"deepseek", layer_deepseek, STACK_DEEPSEEK},
};

static const struct oct_family *family_of(struct oct_model *m)
{
    const char *block = oct_config_text(m->config, OCT_KEY_decoder_block);

    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(block, families[i].decoder_block) == 0)
            return &families[i];
    oct_builder_fail(&m->b, OCTET_UNIMPLEMENTED, "decoder_block",
                     "layer '%s' is unknown; known are default, llama2, mistral, mixtral, qwen2, "
                     "qwen3, qwen3_moe, gemma, gemma2, gemma3, gpt_oss, olmo3 and deepseek",
                     block);
    return NULL;
}

/* ---- stacks ---- */

/* name_first ... name_{end-1}, one after the other. */
static oct_tensor layers_in_turn(struct oct_model *m, oct_tensor x, layer_function *layer,
                                 const char *name, int64_t first, int64_t end)
{
    for (int64_t i = first; i < end && m->b.status == OCTET_OK; i++) {
        uint32_t outer = oct_enter_number(&m->b, name, i);
        x = layer(m, x, i);
        oct_leave(&m->b, outer);
    }
    return x;
}

/* One scanned module: `turns` times the body, which is one layer or (cycle > 0) layers_0 ... */
static oct_tensor scanned(struct oct_model *m, oct_tensor x, layer_function *layer,
                          const char *name, int64_t turns, int64_t cycle)
{
    uint32_t outer = oct_enter(&m->b, name);

    if (turns < 1)
        oct_builder_fail(&m->b, OCTET_INVALID_ARGUMENT, "inhomogeneous_layer_cycle_interval",
                         "%lld layers are scanned in whole cycles of this many, which leaves none",
                         (long long)m->dims->num_decoder_layers);
    x = oct_scan_begin(&m->b, turns, (int)oct_int(m, param_scan_axis), x);
    x = cycle ? layers_in_turn(m, x, layer, "layers", 0, cycle) : layer(m, x, 0);
    x = oct_scan_end(&m->b, x);
    oct_leave(&m->b, outer);
    return x;
}

static oct_tensor stack_deepseek(struct oct_model *m, oct_tensor x)
{
    int64_t dense = oct_int(m, first_num_dense_layers);
    int64_t moe = m->dims->num_decoder_layers - dense;

    if (!oct_bool(m, scan_layers)) {
        /* Where there are more dense layers than layers, the rest is built and never run. */
        int64_t run = moe < 0 ? m->dims->num_decoder_layers : dense;
        x = layers_in_turn(m, x, layer_deepseek_dense, "dense_layers", 0, run);
        m->b.dry = true;
        layers_in_turn(m, x, layer_deepseek_dense, "dense_layers", run, dense);
        m->b.dry = false;
        return layers_in_turn(m, x, layer_deepseek, "moe_layers", 0, moe);
    }
    if (moe < 0)
        oct_builder_fail(&m->b, OCTET_INVALID_ARGUMENT, "first_num_dense_layers",
                         "%lld is more than the number of decoder layers, %lld", (long long)dense,
                         (long long)m->dims->num_decoder_layers);
    if (dense)
        x = scanned(m, x, layer_deepseek_dense, "dense_layers", dense, 0);
    return moe ? scanned(m, x, layer_deepseek, "moe_layers", moe, 0) : x;
}

static oct_tensor stack_remainder(struct oct_model *m, oct_tensor x, layer_function *layer)
{
    int64_t turns = m->dims->num_decoder_layers / GEMMA3_CYCLE;
    int64_t rest = m->dims->num_decoder_layers % GEMMA3_CYCLE;

    if (turns)
        x = scanned(m, x, layer, "layers", turns, GEMMA3_CYCLE);
    uint32_t outer = oct_enter(&m->b, "layers_remainder");
    x = layers_in_turn(m, x, layer, "layers", 0, rest);
    oct_leave(&m->b, outer);
    return x;
}

oct_tensor oct_decoder_layers(struct oct_model *m, oct_tensor x)
{
    int64_t cycle = oct_int(m, inhomogeneous_layer_cycle_interval);

    m->family = family_of(m);
    if (!m->family || m->b.status != OCTET_OK)
        return 0;
    uint32_t outer = oct_enter(&m->b, "decoder");
    bool scan = oct_bool(m, scan_layers);
    if (m->family->stacking == STACK_DEEPSEEK)
        x = stack_deepseek(m, x);
    else if (!scan)
        x = layers_in_turn(m, x, m->family->layer, "layers", 0, m->dims->num_decoder_layers);
    else if (m->family->stacking == STACK_REMAINDER)
        x = stack_remainder(m, x, m->family->layer);
    else
        x = scanned(m, x, m->family->layer, "layers", m->dims->num_decoder_layers / cycle,
                    m->family->stacking == STACK_CYCLE ? cycle : 0);
    oct_leave(&m->b, outer);
    return x;
}

/* The last of MaxText's layer classes; a scanned family of cycles puts the whole cycle there. */
oct_tensor oct_mtp_transformer_layer(struct oct_model *m, oct_tensor x)
{
    if (m->family->stacking == STACK_CYCLE && oct_bool(m, scan_layers))
        return layers_in_turn(m, x, m->family->layer, "layers", 0,
                              oct_int(m, inhomogeneous_layer_cycle_interval));
    /* Gemma 3's class attends globally when it is not told its place. */
    return m->family->layer(m, x, m->family->stacking == STACK_REMAINDER ? GEMMA3_CYCLE - 1 : 0);
}
