/* Settings that run, and that experts know to be risky. */
#include "plan/check_risks.h"

#include <stdio.h>
#include <string.h>

#include "plan/weights.h"

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);

    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

/* What the lines say about one question: how many there are, how many are quantized, which comes
 * first. */
struct tally {
    size_t lines, quantized;
    const struct octet_interception *first;
};

static struct tally tally_of(const struct oct_findings *f,
                             bool (*belongs)(const struct octet_interception *line))
{
    struct tally t = {0};
    size_t count = octet_plan_interception_count(f->plan);

    for (size_t i = 0; i < count; i++) {
        const struct octet_interception *line = octet_plan_interception(f->plan, i);
        if (!belongs(line))
            continue;
        bool quantized = oct_rule_quantizes(octet_plan_rules(f->plan), line->rule);
        t.lines++;
        t.quantized += quantized;
        if (!t.first || (quantized && t.quantized == 1))
            t.first = line;
    }
    return t;
}

static bool is_gate(const struct octet_interception *line)
{
    return ends_with(line->module, "/gate");
}

static bool is_indexer_weights(const struct octet_interception *line)
{
    return ends_with(line->module, "/indexer/weights_proj");
}

static bool is_attention_product(const struct octet_interception *line)
{
    return line->looked_up && ends_with(line->module, "/attention_op");
}

static bool is_head(const struct octet_interception *line)
{
    return strcmp(line->module, "decoder/logits_dense") == 0;
}

/* A weight matmul of the MTP block; attention's own products have no weights. */
static bool is_mtp(const struct octet_interception *line)
{
    return starts_with(line->module, "mtp_block/") && line->weight_bytes > 0 &&
           strcmp(line->equation, "...k,k->...k") != 0;
}

static bool is_expert(const struct octet_interception *line)
{
    return line->kind == OCTET_LOOKUP_GMM || line->kind == OCTET_LOOKUP_RAGGED_DOT ||
           (line->kind == OCTET_LOOKUP_EINSUM && strstr(line->equation, "EMH")) ||
           (line->kind == OCTET_LOOKUP_EINSUM && strstr(line->equation, "EHM"));
}

static bool is_ragged_dot(const struct octet_interception *line)
{
    return line->kind == OCTET_LOOKUP_RAGGED_DOT;
}

static bool is_decoder_dot(const struct octet_interception *line)
{
    return starts_with(line->module, "decoder/") && line->kind == OCTET_LOOKUP_DOT_GENERAL;
}

/* Kinds of matmuls that published recipes keep in high precision (DeepSeek-V3's report, 3.3.1:
 * embedding, output head, MoE gating, normalization, attention). */
static const struct sensitive {
    const char *id, *path, *what, *why;
    bool (*belongs)(const struct octet_interception *line);
} sensitive[] = {
    {"router-quantized", ".*/gate", "router gate",
     "small errors in its scores send tokens to other experts", is_gate},
    {"indexer-quantized", ".*/indexer/weights_proj", "indexer's head weights",
     "the model computes them in float32 for stability", is_indexer_weights},
    {"attention-scores-quantized", ".*/attention_op", "product inside attention",
     "softmax amplifies errors of its scores", is_attention_product},
    {"head-quantized", "decoder/logits_dense", "output head",
     "its errors go into every logit and into the loss", is_head},
};

static void check_sensitive(struct oct_findings *f)
{
    for (size_t i = 0; i < sizeof sensitive / sizeof *sensitive; i++) {
        const struct sensitive *s = &sensitive[i];
        struct tally t = tally_of(f, s->belongs);
        char remedy[256];
        if (!t.quantized)
            continue;
        snprintf(
            remedy, sizeof remedy,
            "with rules of your own, put one with module_path '%s' and no weight_qtype before "
            "the others; the rules that MaxText makes from quantization=... have no exceptions",
            s->path);
        oct_find(f, OCTET_WARNING, s->id, t.first->module, remedy,
                 "the %s is quantized (rule %d, %zu of %zu lines): %s", s->what, t.first->rule,
                 t.quantized, t.lines, s->why);
    }
}

static bool from_file(const struct oct_findings *f)
{
    size_t count = octet_config_setting_count(f->config);

    for (size_t key = 0; key < count; key++)
        if (oct_config_origin(f->config, (enum oct_key)key) == OCTET_FROM_YAML)
            return true;
    return false;
}

/* Two defaults are not MaxText's own; who copies a config to a run must know. A config file is that
 * of a run, so what it leaves out is more than a note. */
static void check_defaults(struct oct_findings *f)
{
    bool qwix = oct_config_origin(f->config, OCT_KEY_use_qwix_quantization) == OCTET_FROM_DEFAULT &&
                !oct_find_is(f, quantization, "");
    struct tally scores = tally_of(f, is_attention_product);

    if (qwix)
        oct_find(f, from_file(f) ? OCTET_WARNING : OCTET_NOTE, "qwix-assumed",
                 "use_qwix_quantization", "set use_qwix_quantization=true, here and in the run",
                 "taken as true; MaxText's default is false, which quantizes by AQT without Qwix");
    if (scores.lines && oct_config_origin(f->config, OCT_KEY_attention) == OCTET_FROM_DEFAULT)
        oct_find(f, OCTET_NOTE, "attention-assumed", "attention",
                 "set attention=flash for a run on TPU or GPU, attention=dot_product otherwise",
                 "taken as dot_product; MaxText's default on TPU and GPU is a fused kernel, inside "
                 "which Qwix logs nothing: a run there lacks the %zu attention_op lines",
                 scores.lines);
}

static void check_mtp(struct oct_findings *f)
{
    struct tally mtp = tally_of(f, is_mtp), decoder = tally_of(f, is_decoder_dot);

    if (mtp.lines && !mtp.quantized && decoder.quantized)
        oct_find(f, OCTET_WARNING, "mtp-left-out", mtp.first->module,
                 "add quantize_mtp=true (with quantization=fp8_full), or a rule that matches "
                 "'mtp_block/.*'",
                 "the decoder is quantized and none of the %zu weight matmuls of the MTP block is",
                 mtp.lines);
}

static void check_experts(struct oct_findings *f)
{
    struct tally experts = tally_of(f, is_expert), decoder = tally_of(f, is_decoder_dot);

    if (!experts.lines || experts.quantized || !decoder.quantized)
        return;
    if (!oct_find_bool(f, sparse_matmul))
        oct_find(
            f, OCTET_WARNING, "experts-unquantized", experts.first->module,
            "set sparse_matmul=true, so that experts run as a grouped matmul",
            "the experts stay unquantized: with sparse_matmul=false they run as einsums, which no "
            "rule takes");
    else
        oct_find(
            f, OCTET_WARNING, "experts-unquantized", experts.first->module,
            "quantization=fp8_full covers experts; or add gmm and ragged_dot to a rule's op_names",
            "the experts stay unquantized: no rule takes op %s",
            octet_lookup_name(experts.first->kind));
}

static bool is_absmax(const char *method)
{
    return !method[0] || strcmp(method, "absmax") == 0;
}

/* Qwix hands ragged_dot the types of a rule and nothing else (0.1.8, ragged_dot_qt.py). */
static void check_ragged_dot(struct oct_findings *f)
{
    struct tally ragged = tally_of(f, is_ragged_dot);

    if (!ragged.quantized)
        return;
    const struct octet_rule *rule =
        octet_rules_get(octet_plan_rules(f->plan), (size_t)ragged.first->rule);
    if (is_absmax(rule->weight_calibration_method) && is_absmax(rule->act_calibration_method) &&
        is_absmax(rule->bwd_calibration_method) && !rule->tile_size[0] &&
        !rule->disable_channelwise_axes)
        return;
    oct_find(f, OCTET_WARNING, "ragged-dot-settings-ignored", ragged.first->module,
             "use megablox=true, whose grouped matmul honours them, or plain absmax",
             "Qwix ignores calibration, tile size and disable_channelwise_axes of rule %d for "
             "ragged_dot: it always calibrates by absmax, per row and column",
             ragged.first->rule);
}

static void check_quantization(struct oct_findings *f)
{
    if (octet_rules_count(octet_plan_rules(f->plan)) == 0 && oct_find_is(f, quantization, ""))
        oct_find(f, OCTET_NOTE, "no-quantization", "quantization",
                 "set quantization=fp8_full, or give rules",
                 "no quantization is set: Qwix intercepts nothing");
    else if (oct_find_bool(f, use_batch_split_schedule))
        oct_find(f, OCTET_NOTE, "batch-split", "use_batch_split_schedule",
                 "set use_batch_split_schedule=false to see which layers the rules touch",
                 "the batch-split schedule quantizes by itself: Qwix intercepts nothing");
    if (oct_find_is(f, quantization, "fp8_gpu") || oct_find_is(f, quantization, "fp8_nanoo"))
        oct_find(f, OCTET_NOTE, "trace-only", "quantization", "",
                 "%s keeps scales in the model's state; Octet traces it and does not run it",
                 oct_config_text(f->config, OCT_KEY_quantization));
}

static void trace_only(struct oct_findings *f, const char *key, const char *remedy,
                       const char *what)
{
    oct_find(f, OCTET_NOTE, "trace-only", key, remedy,
             "%s can be traced and not run: a session of this model is refused", what);
}

/* Ops that the graph knows and lib/exec does not run; a session names the op when it refuses. */
static void check_trace_only(struct oct_findings *f)
{
    int64_t length = octet_plan_totals(f->plan)->sequence_length;

    if (oct_find_bool(f, use_indexer) && length > oct_find_int(f, indexer_topk))
        trace_only(f, "use_indexer",
                   "set max_target_length to indexer_topk or less, where every key is seen",
                   "sparse attention by DeepSeek 3.2's indexer");
    if (oct_find_bool(f, moba))
        trace_only(f, "moba", "set moba=false", "mixture of block attention");
    if (oct_find_is(f, dtype, "float16") || oct_find_is(f, weight_dtype, "float16"))
        trace_only(f, oct_find_is(f, dtype, "float16") ? "dtype" : "weight_dtype",
                   "use float32 or bfloat16", "a model in float16");
    if (oct_find_int(f, mhc_expansion_rate) > 1)
        trace_only(f, "mhc_expansion_rate", "set mhc_expansion_rate=1",
                   "a model with hyper-connections");
}

static void check_size(struct oct_findings *f)
{
    const struct octet_plan_totals *t = octet_plan_totals(f->plan);

    if (t->flops_forward == INT64_MAX || t->flops_backward == INT64_MAX ||
        t->activation_bytes == INT64_MAX || t->parameter_bytes == INT64_MAX)
        oct_find(f, OCTET_NOTE, "too-large", "",
                 "lower per_device_batch_size or max_target_length to see figures",
                 "at batch %lld and length %lld the step's work or memory exceeds 2^63 - 1 FLOPs "
                 "or bytes",
                 (long long)t->batch_size, (long long)t->sequence_length);
}

void oct_check_risks(struct oct_findings *f)
{
    if (!f->plan)
        return;
    check_size(f);
    check_trace_only(f);
    check_quantization(f);
    check_sensitive(f);
    check_defaults(f);
    check_mtp(f);
    check_experts(f);
    check_ragged_dot(f);
}
