/* What MaxText itself would refuse, or crash on while it builds the model, though the config reads
 * well. Source: MaxText of 22 August 2026, run on these configs; the quoted errors are its own. */
#include "plan/check_maxtext.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "plan/record.h"
#include "plan/weights.h"

enum { GEMMA3_CYCLE = 6 }; /* layers of one scanned block */

static bool decoder_is_one_of(const struct oct_findings *f, const char *const *blocks)
{
    for (; *blocks; blocks++)
        if (oct_find_is(f, decoder_block, *blocks))
            return true;
    return false;
}

/* ---- flavours of flax ---- */

static void check_flavour(struct oct_findings *f)
{
    bool nnx = oct_find_bool(f, enable_nnx), pure = oct_find_bool(f, pure_nnx);
    bool decoder = oct_find_bool(f, pure_nnx_decoder);
    bool qwix = oct_find_bool(f, use_qwix_quantization) && !oct_find_is(f, quantization, "");
    const char *way_out = "set enable_nnx, pure_nnx and pure_nnx_decoder all true";

    if (!nnx && !pure && !decoder) {
        if (oct_find_int(f, mtp_num_layers) > 0)
            oct_find(
                f, OCTET_ERROR, "linen-mtp", "pure_nnx_decoder", way_out,
                "under Linen all of MTP is one scope, 'mtp_block', which 'mtp_block/.*' does not "
                "match: no rule reaches the MTP block, whatever quantize_mtp says");
        return;
    }
    if (pure && !decoder && qwix)
        oct_find(
            f, OCTET_ERROR, "maxtext-refuses", "pure_nnx_decoder", way_out,
            "MaxText refuses pure_nnx=true with pure_nnx_decoder=false and Qwix: a bridged Linen "
            "decoder is invisible to Qwix");
    else if (!pure && decoder && qwix)
        oct_find(f, OCTET_ERROR, "maxtext-crashes", "pure_nnx", way_out,
                 "MaxText ends with 'ValueError: Model inputs must be provided for nnx models.' on "
                 "pure_nnx=false with pure_nnx_decoder=true and Qwix");
    else if (!pure && !decoder && oct_find_int(f, mtp_num_layers) > 0)
        oct_find(
            f, OCTET_ERROR, "maxtext-crashes", "pure_nnx", way_out,
            "MaxText ends with \"AttributeError: 'ToNNX' object has no attribute 'model_mode'\" "
            "in the MTP block on pure_nnx=false and pure_nnx_decoder=false");
}

/* ---- multi-token prediction ---- */

static void check_mtp(struct oct_findings *f)
{
    static const char *const need_quant[] = {"qwen2", "qwen3", "qwen3_moe", NULL};
    static const char *const need_type[] = {"gpt_oss", "olmo3", NULL};
    const char *block = oct_config_text(f->config, OCT_KEY_decoder_block);

    if (oct_find_int(f, mtp_num_layers) <= 0)
        return;
    if (decoder_is_one_of(f, need_quant))
        oct_find(
            f, OCTET_ERROR, "maxtext-crashes", "mtp_num_layers",
            "set mtp_num_layers=0 for this model",
            "MaxText ends with a TypeError (__init__() missing 1 required positional argument: "
            "'quant'): its MTP block builds the %s layer without one",
            block);
    if (decoder_is_one_of(f, need_type) && !oct_find_bool(f, scan_layers))
        oct_find(
            f, OCTET_ERROR, "maxtext-crashes", "mtp_num_layers",
            "set scan_layers=true, or mtp_num_layers=0",
            "MaxText ends with a TypeError (__init__() missing 1 required positional argument: "
            "'attention_type'): its MTP block builds the unscanned %s layer without one",
            block);
}

/* ---- stacks ---- */

static void check_stack(struct oct_findings *f)
{
    const struct oct_dims *d = oct_config_dims(f->config);
    int64_t cycle = oct_find_int(f, inhomogeneous_layer_cycle_interval);
    int64_t dense = oct_find_int(f, first_num_dense_layers);

    if (oct_find_bool(f, scan_layers) && oct_find_int(f, param_scan_axis) > 1)
        oct_find(
            f, OCTET_ERROR, "maxtext-crashes", "param_scan_axis", "set param_scan_axis=1 or 0",
            "MaxText ends with 'ValueError: axis %" PRId64
            " is out of bounds for array of dimension 2': the norms' scales have one axis of their "
            "own",
            oct_find_int(f, param_scan_axis));
    if (oct_find_is(f, decoder_block, "deepseek")) {
        if (oct_find_bool(f, scan_layers) && dense > d->num_decoder_layers)
            oct_find(
                f, OCTET_ERROR, "maxtext-crashes", "first_num_dense_layers",
                "lower first_num_dense_layers or raise base_num_decoder_layers",
                "MaxText ends with a TypeError (broadcast_in_dim shape must have every element be "
                "nonnegative): %" PRId64 " dense layers of %" PRId64 " in all",
                dense, d->num_decoder_layers);
        return;
    }
    if (oct_find_is(f, decoder_block, "gemma3") && oct_find_bool(f, scan_layers) &&
        d->num_decoder_layers % GEMMA3_CYCLE &&
        (oct_find_is(f, quantization, "fp8_gpu") || oct_find_is(f, quantization, "fp8_nanoo")))
        oct_find(
            f, OCTET_ERROR, "maxtext-crashes", "quantization",
            "set scan_layers=false, or a multiple of 6 layers",
            "MaxText ends with a ValueError (Found data on value of type State assigned to static "
            "attribute): %s keeps its state where the %" PRId64
            " layers left over from cycles of 6 cannot have one",
            oct_config_text(f->config, OCT_KEY_quantization), d->num_decoder_layers % GEMMA3_CYCLE);
    if (!oct_find_bool(f, scan_layers) || cycle < 2)
        return;
    if (d->num_decoder_layers < cycle)
        oct_find(
            f, OCTET_ERROR, "maxtext-crashes", "base_num_decoder_layers",
            "set scan_layers=false, or as many layers as a cycle has",
            "MaxText ends with \"AttributeError: 'NNXDecoder' object has no attribute 'layers'\": "
            "%" PRId64 " layers are less than one cycle of %" PRId64,
            d->num_decoder_layers, cycle);
    else if (d->num_decoder_layers % cycle)
        oct_find(f, OCTET_WARNING, "layers-dropped", "base_num_decoder_layers",
                 "choose a multiple of inhomogeneous_layer_cycle_interval, or scan_layers=false",
                 "MaxText scans whole cycles of %" PRId64 " and silently drops the last %" PRId64
                 " of %" PRId64 " layers",
                 cycle, d->num_decoder_layers % cycle, d->num_decoder_layers);
}

/* ---- what Qwix takes for a weight ---- */

/* Qwix tells a weight by identity, else by shape: an activation that is as large as the one
 * parameter of the module counts as a weight too. A norm's product comes out as [E,B,S] before it
 * is transposed, so heads as many as rows and as deep as the sequence is long are enough. Source:
 * Qwix 0.1.8, flax_util.find_param. */
static bool looks_like_its_weight(const octet_graph *g, const struct oct_node *node)
{
    const struct octet_shape *lhs = &g->tensors[node->inputs[0]].shape;
    const struct octet_shape *rhs = &g->tensors[node->inputs[1]].shape;
    uint32_t producer = g->producers[node->inputs[0]];

    return producer != UINT32_MAX && g->nodes[producer].op == OCT_OP_rms_norm &&
           g->nodes[producer].input_count > 1 && lhs->rank == 3 && rhs->rank == 3 &&
           rhs->dim[0] == lhs->dim[2] && rhs->dim[1] == lhs->dim[0] && rhs->dim[2] == lhs->dim[1];
}

static void check_weight_shapes(struct oct_findings *f)
{
    const octet_graph *g = f->plan->graph;

    for (uint32_t i = 0; i < g->node_count; i++) {
        uint32_t line = f->plan->interception_of[i];
        if (g->nodes[i].op != OCT_OP_dot_general || !line ||
            !oct_rule_quantizes(octet_plan_rules(f->plan), f->plan->interceptions[line - 1].rule) ||
            !looks_like_its_weight(g, &g->nodes[i]))
            continue;
        oct_find(f, OCTET_ERROR, "maxtext-crashes", f->plan->interceptions[line - 1].module,
                 "change the batch size or the sequence length",
                 "Qwix ends with 'AssertionError: lhs and rhs cannot be both weights.': at batch "
                 "%" PRId64 " and length %" PRId64 " the activation has its weight's shape",
                 f->plan->totals.batch_size, f->plan->totals.sequence_length);
        return;
    }
}

/* ---- grouped matmul's tiles ---- */

static bool calibrates_per_tensor(const struct oct_findings *f, enum oct_key key)
{
    return strncmp(oct_config_text(f->config, key), "fixed", 5) == 0;
}

static void check_tile(struct oct_findings *f, enum oct_key key, const char *what, int64_t size)
{
    int64_t tile = oct_config_int(f->config, key);
    char remedy[128];

    if (tile > 0 && size % tile == 0)
        return;
    snprintf(remedy, sizeof remedy, "set %s=%" PRId64 " (or another divisor)", oct_key_name(key),
             size);
    oct_find(f, OCTET_ERROR, "maxtext-tile-size", oct_key_name(key), remedy,
             "MaxText ends with 'AssertionError: v=%" PRId64 " bv=%" PRId64 " s=%" PRId64
             "': a scale per column needs a tile that divides the %s",
             size, tile, size, what);
}

static bool grouped_matmul_is_quantized(const struct oct_findings *f)
{
    size_t count = f->plan ? octet_plan_interception_count(f->plan) : 0;

    for (size_t i = 0; i < count; i++) {
        const struct octet_interception *line = octet_plan_interception(f->plan, i);
        if (line->kind == OCTET_LOOKUP_GMM &&
            oct_rule_quantizes(octet_plan_rules(f->plan), line->rule))
            return true;
    }
    return false;
}

/* Rows: padded to the first tile, so the others must divide that. */
static void check_row_tile(struct oct_findings *f, enum oct_key key)
{
    int64_t rows = oct_find_int(f, wi_tile_fwd_batch_seq), tile = oct_config_int(f->config, key);
    char remedy[128];

    if (tile > 0 && rows > 0 && rows % tile == 0)
        return;
    snprintf(remedy, sizeof remedy, "set %s=%" PRId64, oct_key_name(key), rows);
    oct_find(f, OCTET_WARNING, "maxtext-tile-size", oct_key_name(key), remedy,
             "MaxText pads rows to wi_tile_fwd_batch_seq=%" PRId64
             "; a scale per row then needs that %s=%" PRId64 " divides the padded rows",
             rows, oct_key_name(key), tile);
}

static void check_tiles(struct oct_findings *f)
{
    const struct oct_dims *d = oct_config_dims(f->config);
    static const char *const wide[] = {"mixtral", "gpt_oss", NULL};

    if (!oct_find_bool(f, sparse_matmul) || !oct_find_bool(f, megablox) ||
        oct_find_bool(f, use_tokamax_gmm) || !grouped_matmul_is_quantized(f))
        return;
    int64_t mlp = decoder_is_one_of(f, wide) ? d->mlp_dim : d->moe_mlp_dim;
    if (!calibrates_per_tensor(f, OCT_KEY_weight_quantization_calibration_method)) {
        check_tile(f, OCT_KEY_wi_tile_fwd_mlp_dim, "expert width", mlp);
        check_tile(f, OCT_KEY_wo_tile_fwd_embed_dim, "embedding width", d->emb_dim);
    }
    if (!calibrates_per_tensor(f, OCT_KEY_act_quantization_calibration_method))
        check_row_tile(f, OCT_KEY_wo_tile_fwd_batch_seq);
    if (!calibrates_per_tensor(f, OCT_KEY_bwd_quantization_calibration_method)) {
        check_tile(f, OCT_KEY_wi_tile_drhs_mlp_dim, "expert width", mlp);
        check_tile(f, OCT_KEY_wo_tile_drhs_embed_dim, "embedding width", d->emb_dim);
        check_row_tile(f, OCT_KEY_wi_tile_dlhs_batch_seq);
        check_row_tile(f, OCT_KEY_wo_tile_dlhs_batch_seq);
    }
}

/* ---- models ---- */

static void check_attention_type(struct oct_findings *f)
{
    bool deepseek = oct_find_is(f, decoder_block, "deepseek");
    bool mla = oct_find_is(f, attention_type, "mla");

    if (deepseek && !mla)
        oct_find(f, OCTET_ERROR, "maxtext-crashes", "attention_type", "set attention_type=mla",
                 "MaxText ends with 'AssertionError: MLA requires MLA attention type mla'");
    if (!deepseek && mla)
        oct_find(f, OCTET_ERROR, "maxtext-crashes", "attention_type", "set attention_type=global",
                 "MaxText ends with \"AttributeError: 'Attention' object has no attribute "
                 "'qk_rope_head_dim'\": the %s layer has no latent attention",
                 oct_config_text(f->config, OCT_KEY_decoder_block));
}

static void check_model(struct oct_findings *f)
{
    const int64_t *engram;

    if (strcmp(octet_config_model_name(f->config), "llama3-405b") == 0)
        oct_find(f, OCTET_ERROR, "maxtext-refuses", "model_name", "use llama3.1-405b",
                 "MaxText has a config file of this name but refuses model_name=llama3-405b");
    if (oct_config_ints(f->config, OCT_KEY_engram_layers, &engram) &&
        (oct_find_is(f, hf_access_token, "") || oct_find_is(f, tokenizer_path, "")))
        oct_find(
            f, OCTET_ERROR, "maxtext-refuses", "engram_layers", "set both, or engram_layers=[]",
            "MaxText refuses engram_layers without hf_access_token and tokenizer_path: it loads "
            "the tokenizer to size its tables");
    if (oct_find_is(f, quantization, "fp4_e2m1"))
        oct_find(f, OCTET_ERROR, "maxtext-refuses", "quantization",
                 "write quantization=fp4, which is the same",
                 "MaxText's rules know fp4_e2m1, and its config refuses it");
    if (oct_find_is(f, decoder_block, "gemma3") &&
        strncmp(octet_config_model_name(f->config), "gemma3-", 7) != 0)
        oct_find(
            f, OCTET_ERROR, "maxtext-crashes", "decoder_block",
            "name the model gemma3-4b, gemma3-12b or gemma3-27b",
            "MaxText ends with 'ValueError: Unsupported model name: %s': the layer's query scale "
            "depends on the name",
            octet_config_model_name(f->config));
    check_attention_type(f);
    if (oct_find_is(f, attention_type, "mla") && oct_find_bool(f, fused_qkv))
        oct_find(f, OCTET_ERROR, "maxtext-crashes", "fused_qkv", "set fused_qkv=false",
                 "MaxText ends with 'AssertionError: Fused QKV is not supported for MLA'");
}

void oct_check_maxtext(struct oct_findings *f)
{
    if (f->plan)
        check_weight_shapes(f);
    check_model(f);
    check_flavour(f);
    check_stack(f);
    check_mtp(f);
    check_tiles(f);
}
