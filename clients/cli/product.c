/* octet dot and octet gmm: one product of two arrays under a rule.
 *
 * Decision: the two requests share most of their fields by name, not by type; one struct of
 * pointers to those fields (`fields`) lets one code fill both. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "figures.h"
#include "numbers.h"
#include "progress.h"
#include "tensors.h"
#include "view.h"
#include "wire/convert.h"
#include "wire/methods.h"

/* What DotGeneralRequest and RaggedDotRequest have in common. */
struct fields {
    Octet__V1__Operand **lhs, **rhs;
    char **module_path;
    size_t *n_rules;
    Octet__V1__QuantizationRule ***rules;
    Octet__V1__DataType *out_dtype;
    Octet__V1__Tensor **cotangent;
    protobuf_c_boolean *qwix_compatible;
    Octet__V1__TraceLevel *trace_level;
};
#define FIELDS(r)                                                                                  \
    {                                                                                              \
        &(r)->lhs, &(r)->rhs, &(r)->module_path, &(r)->n_rules, &(r)->rules, &(r)->out_dtype,      \
            &(r)->cotangent, &(r)->qwix_compatible, &(r)->trace_level                              \
    }

/* And their responses. */
struct answer {
    ProtobufCMessage *message;
    Octet__V1__Tensor *tensors[3]; /* out, lhs_grad, rhs_grad; NULL: absent */
    Octet__V1__Trace *trace;
    size_t *n_buffers;
    ProtobufCBinaryData *buffers;
};
typedef struct answer answer_function(ProtobufCMessage *message);
#define ANSWER(r)                                                                                  \
    (struct answer)                                                                                \
    {                                                                                              \
        &(r)->base, {(r)->out, (r)->lhs_grad, (r)->rhs_grad}, (r)->trace, &(r)->n_buffers,         \
            (r)->buffers                                                                           \
    }

static const char *const array_names[] = {"out", "lhs_grad", "rhs_grad"};

struct work {
    struct session *session;
    struct tensors set;
    struct tensor lhs, rhs, group_sizes, cotangent, reference;
    struct request_buffers buffers;
    struct octet_array arrays[3]; /* of the answer; data NULL: absent */
    struct octet_array plain[3];  /* of the same op without rules; data NULL: absent */
    bool compared;
    struct difference difference;
    struct octet_error err;
};

static enum octet_status no_memory(struct work *w)
{
    return octet_arena_exhausted(w->session->arena, &w->err);
}

/* ---- The request ---- */

static enum octet_status find_operands(struct work *w)
{
    const struct arguments *a = w->session->arguments;
    enum octet_status status = tensors_find(&w->set, "LHS", a->operands.items[0], &w->lhs, &w->err);

    if (status == OCTET_OK)
        status = tensors_find(&w->set, "RHS", a->operands.items[1], &w->rhs, &w->err);
    if (status == OCTET_OK && a->lhs_scale)
        status = tensors_scale(&w->set, "option --lhs-scale", a->lhs_scale, &w->lhs, &w->err);
    if (status == OCTET_OK && a->rhs_scale)
        status = tensors_scale(&w->set, "option --rhs-scale", a->rhs_scale, &w->rhs, &w->err);
    if (status == OCTET_OK && a->cotangent)
        status = tensors_find(&w->set, "option --cotangent", a->cotangent, &w->cotangent, &w->err);
    if (status == OCTET_OK && a->reference)
        status = tensors_find(&w->set, "option --reference", a->reference, &w->reference, &w->err);
    return status;
}

/* "2:4"; no value at all leaves the rule without. */
static enum octet_status parse_sparsity(struct work *w, const char *text, Octet__V1__Sparsity **out)
{
    const char *colon = text ? strchr(text, ':') : NULL;
    int64_t n, m;

    if (!text)
        return OCTET_OK;
    if (!colon || !number_parse(text, (size_t)(colon - text), 1, INT32_MAX, &n) ||
        !number_parse(colon + 1, strlen(colon + 1), 1, INT32_MAX, &m))
        return octet_fail(&w->err, OCTET_INVALID_ARGUMENT, NULL,
                          "option --sparsity: '%.100s' is not N:M, for example 2:4", text);
    *out = oct_wire_new(w->session->arena, &octet__v1__sparsity__descriptor);
    if (!*out)
        return no_memory(w);
    (*out)->n = (int32_t)n;
    (*out)->m = (int32_t)m;
    return OCTET_OK;
}

static char *text_or_none(const char *text)
{
    return (char *)(uintptr_t)(text ? text : "");
}

/* One rule for every op, of the options in place of --rules. */
static enum octet_status short_rules(struct work *w, size_t *count,
                                     Octet__V1__QuantizationRule ***out)
{
    const struct arguments *a = w->session->arguments;
    ProtobufCMessage **list;

    if (!a->weight_qtype && !a->act_qtype && !a->bwd_qtype)
        return OCTET_OK;
    if (!oct_wire_new_list(w->session->arena, &octet__v1__quantization_rule__descriptor, 1, &list))
        return no_memory(w);
    Octet__V1__QuantizationRule *rule = (Octet__V1__QuantizationRule *)list[0];
    rule->weight_qtype = text_or_none(a->weight_qtype);
    rule->act_qtype = text_or_none(a->act_qtype);
    rule->bwd_qtype = text_or_none(a->bwd_qtype);
    rule->weight_calibration_method = text_or_none(a->weight_method);
    rule->act_calibration_method = text_or_none(a->act_method);
    rule->bwd_calibration_method = text_or_none(a->bwd_method);
    rule->tile_size = text_or_none(a->tile_size);
    rule->bwd_weight_grad_tile_size = text_or_none(a->bwd_tile_size);
    rule->disable_channelwise_axes = a->disable_channelwise_axes;
    *out = (Octet__V1__QuantizationRule **)list;
    *count = 1;
    return parse_sparsity(w, a->sparsity, &rule->sparsity);
}

static enum octet_status fill_common(struct work *w, const struct fields *f)
{
    const struct arguments *a = w->session->arguments;
    enum octet_status status = dtype_parse("out-dtype", a->out_dtype, f->out_dtype, &w->err);

    if (status == OCTET_OK)
        status = a->rules ? request_rules(w->session, f->n_rules, f->rules, &w->err)
                          : short_rules(w, f->n_rules, f->rules);
    if (status != OCTET_OK)
        return status;
    *f->module_path = text_or_none(a->module);
    *f->qwix_compatible = a->qwix_compatible;
    *f->trace_level = OCTET__V1__TRACE_LEVEL__TRACE_LEVEL_NUMERICS;
    *f->lhs = request_operand(&w->buffers, &w->lhs);
    *f->rhs = request_operand(&w->buffers, &w->rhs);
    if (!*f->lhs || !*f->rhs)
        return no_memory(w);
    if (!a->cotangent)
        return OCTET_OK;
    *f->cotangent = request_tensor(&w->buffers, &w->cotangent.array);
    return *f->cotangent ? OCTET_OK : no_memory(w);
}

/* The four lists of DotDimensionNumbers; room for all axes that an array can have. */
static bool make_dims(octet_arena *arena, Octet__V1__DotDimensionNumbers **out)
{
    Octet__V1__DotDimensionNumbers *dims =
        oct_wire_new(arena, &octet__v1__dot_dimension_numbers__descriptor);
    int32_t *lists = OCTET_NEW_ARRAY(arena, 4 * OCTET_ARRAY_RANK_MAX, int32_t);

    if (!dims || !lists)
        return false;
    dims->lhs_contracting = lists;
    dims->rhs_contracting = lists + OCTET_ARRAY_RANK_MAX;
    dims->lhs_batch = lists + 2 * OCTET_ARRAY_RANK_MAX;
    dims->rhs_batch = lists + 3 * OCTET_ARRAY_RANK_MAX;
    *out = dims;
    return true;
}

/* "L,R" onto the two lists. */
static enum octet_status add_pair(struct work *w, const char *option, const char *text, size_t *n,
                                  int32_t *lhs, int32_t *rhs)
{
    const int32_t l = w->lhs.array.rank, r = w->rhs.array.rank;
    const char *comma = strchr(text, ',');
    int64_t left, right;

    if (!comma || !number_parse(text, (size_t)(comma - text), -l, l - 1, &left) ||
        !number_parse(comma + 1, strlen(comma + 1), -r, r - 1, &right))
        return octet_fail(&w->err, OCTET_INVALID_ARGUMENT, NULL,
                          "option --%s: '%.100s' is not L,R, an axis of LHS (which has %d) and one "
                          "of RHS (which has %d)",
                          option, text, l, r);
    if (*n == OCTET_ARRAY_RANK_MAX)
        return octet_fail(&w->err, OCTET_INVALID_ARGUMENT, NULL,
                          "option --%s: given more than %d times", option, OCTET_ARRAY_RANK_MAX);
    lhs[*n] = (int32_t)(left < 0 ? left + l : left);
    rhs[(*n)++] = (int32_t)(right < 0 ? right + r : right);
    return OCTET_OK;
}

/* JAX's text holds four flat lists, in whatever brackets: ((lhs, rhs), (lhs, rhs)). */
static enum octet_status parse_dims(struct work *w, const char *text,
                                    Octet__V1__DotDimensionNumbers *dims)
{
    int32_t *const lists[] = {dims->lhs_contracting, dims->rhs_contracting, dims->lhs_batch,
                              dims->rhs_batch};
    size_t *const counts[] = {&dims->n_lhs_contracting, &dims->n_rhs_contracting,
                              &dims->n_lhs_batch, &dims->n_rhs_batch};
    const int32_t ranks[] = {w->lhs.array.rank, w->rhs.array.rank};
    int list = -1, depth = 0;
    const char *at = text;

    for (bool good = true; good && *at;) {
        size_t digits = strspn(at, "-0123456789");
        int64_t axis;
        if (digits) {
            int32_t rank = ranks[list & 1];
            good = depth == 3 && list < 4 && number_parse(at, digits, -rank, rank - 1, &axis) &&
                   *counts[list] < OCTET_ARRAY_RANK_MAX;
            if (good)
                lists[list][(*counts[list])++] = (int32_t)(axis < 0 ? axis + rank : axis);
            at += good ? digits : 0;
        } else {
            bool opens = strchr("([", *at) != NULL, closes = strchr(")]", *at) != NULL;
            depth += opens - closes;
            list += opens && depth == 3;
            good = depth >= 0 && depth <= 3 && (opens || closes || strchr(", ", *at));
            at += good;
        }
        if (!good)
            break;
    }
    if (!*at && depth == 0 && list == 3)
        return OCTET_OK;
    return octet_fail(
        &w->err, OCTET_INVALID_ARGUMENT, NULL,
        "option --dims: '%.100s' does not read as JAX's dimension numbers from '%.20s' "
        "on; expected is (((lhs axes), (rhs axes)), ((lhs batch), (rhs batch))) with "
        "axes of [%d] and [%d] dimensions",
        text, at, ranks[0], ranks[1]);
}

/* As jnp.dot: the last axis of LHS, and of RHS the first that is no batch axis. */
static enum octet_status default_pair(struct work *w, Octet__V1__DotDimensionNumbers *dims)
{
    int32_t right = 0;

    for (size_t i = 0; i < dims->n_rhs_batch; i++) /* the list has no order: look again from 0 */
        if (dims->rhs_batch[i] == right) {
            right++;
            i = (size_t)-1;
        }
    if (w->lhs.array.rank == 0 || right >= w->rhs.array.rank)
        return octet_fail(&w->err, OCTET_INVALID_ARGUMENT, NULL,
                          "LHS has %d axes and RHS %d, of them %zu batch axes; there is none to "
                          "contract (--dims takes an outer product)",
                          w->lhs.array.rank, w->rhs.array.rank, dims->n_rhs_batch);
    dims->lhs_contracting[0] = w->lhs.array.rank - 1;
    dims->rhs_contracting[0] = right;
    dims->n_lhs_contracting = dims->n_rhs_contracting = 1;
    return OCTET_OK;
}

static enum octet_status fill_dims(struct work *w, Octet__V1__DotDimensionNumbers *dims)
{
    const struct arguments *a = w->session->arguments;
    enum octet_status status = OCTET_OK;

    if (a->dims)
        return parse_dims(w, a->dims, dims);
    for (size_t i = 0; i < a->batch_axes.count && status == OCTET_OK; i++)
        status = add_pair(w, "batch", a->batch_axes.items[i], &dims->n_lhs_batch, dims->lhs_batch,
                          dims->rhs_batch);
    dims->n_rhs_batch = dims->n_lhs_batch;
    for (size_t i = 0; i < a->contract.count && status == OCTET_OK; i++)
        status = add_pair(w, "contract", a->contract.items[i], &dims->n_lhs_contracting,
                          dims->lhs_contracting, dims->rhs_contracting);
    dims->n_rhs_contracting = dims->n_lhs_contracting;
    return status == OCTET_OK && !a->contract.count ? default_pair(w, dims) : status;
}

/* "3,0,5" as an array; anything else is FILE[:NAME]. */
static enum octet_status find_group_sizes(struct work *w)
{
    const char *text = w->session->arguments->operands.items[2];
    enum { DIGITS_MAX = 10 };
    int64_t count = 1, value;

    if (text[strspn(text, "0123456789,-")])
        return tensors_find(&w->set, "GROUP_SIZES", text, &w->group_sizes, &w->err);
    for (const char *c = text; *c; c++)
        count += *c == ',';
    enum octet_status status = octet_array_create(w->session->arena, OCTET_DTYPE_S32, 1, &count,
                                                  &w->group_sizes.array, &w->err);
    int32_t *sizes = w->group_sizes.array.data;
    for (int64_t i = 0; i < count && status == OCTET_OK; i++) {
        size_t length = strcspn(text, ",");
        if (!number_parse(text, length, INT32_MIN, INT32_MAX, &value))
            return octet_fail(&w->err, OCTET_INVALID_ARGUMENT, NULL,
                              "GROUP_SIZES: '%.*s' is no whole number of 32 bits",
                              length < 40 ? (int)length : 40, text);
        sizes[i] = (int32_t)value;
        text += length + (text[length] == ',');
    }
    return status;
}

/* ---- The answer ---- */

static enum octet_status take_answer(struct work *w, const struct answer *answer,
                                     struct octet_array arrays[3])
{
    enum octet_status status = OCTET_OK;

    for (int i = 0; i < 3 && status == OCTET_OK; i++)
        if (answer->tensors[i] || i == 0)
            status = reply_array(w->session->arena, answer->tensors[i], *answer->n_buffers,
                                 answer->buffers, array_names[i], &arrays[i], &w->err);
    return status;
}

static bool has_shape_of(const struct octet_array *a, const struct octet_array *b)
{
    bool same = a->rank == b->rank;

    for (int32_t i = 0; same && i < a->rank; i++)
        same = a->dim[i] == b->dim[i];
    return same;
}

static enum octet_status compare(struct work *w)
{
    const struct octet_array *out = &w->arrays[0], *reference = &w->reference.array;
    octet_arena *arena = w->session->arena;

    if (!w->session->arguments->reference)
        return OCTET_OK;
    if (!has_shape_of(out, reference))
        return octet_fail(&w->err, OCTET_INVALID_ARGUMENT, NULL,
                          "option --reference '%s': shape %s is not the result's, %s",
                          w->session->arguments->reference,
                          view_shape(arena, reference->dim, (size_t)reference->rank),
                          view_shape(arena, out->dim, (size_t)out->rank));
    if (!figures_reads(out->dtype) || !figures_reads(reference->dtype))
        return octet_fail(
            &w->err, OCTET_INVALID_ARGUMENT, NULL,
            "option --reference '%s': %s and %s are not compared; expected are float32, bfloat16, "
            "float16, int32 or int8",
            w->session->arguments->reference, octet_dtype_name(out->dtype),
            octet_dtype_name(reference->dtype));
    difference_measure(out, reference, &w->difference);
    w->compared = true;
    return OCTET_OK;
}

static enum octet_status write_answer(struct work *w)
{
    struct octet_named_array arrays[3];
    size_t count = 0;

    if (!w->session->arguments->output)
        return OCTET_OK;
    for (int i = 0; i < 3; i++)
        if (w->arrays[i].data)
            arrays[count++] = (struct octet_named_array){array_names[i], w->arrays[i]};
    return tensors_write(&w->set, w->session->arguments->output, arrays, count, &w->err);
}

/* The type that the rule gave it. */
static const char *type_of(const struct work *w, const Octet__V1__Trace *trace, int rule,
                           const char *name)
{
    const char *weight = w->session->arguments->weight;

    if (rule < 0 || (size_t)rule >= trace->n_rules)
        return "-";
    if (strcmp(name, "cotangent") == 0)
        return trace->rules[rule]->bwd_qtype;
    return strcmp(name, weight ? weight : "rhs") == 0 ? trace->rules[rule]->weight_qtype
                                                      : trace->rules[rule]->act_qtype;
}

static bool add_stats(struct table *table, octet_arena *arena, const char *name, const char *qtype,
                      const struct tensor *tensor, const Octet__V1__OperandStats *s)
{
    bool quantized = s && s->is_quantized;
    const char *scale = "-", *saturated = "-", *underflowed = "-", *sqnr = "-", *destroyed = "-";

    if (quantized)
        scale = s->scale_min == s->scale_max
                    ? octet_arena_format(arena, "%.4g", (double)s->scale_min)
                    : octet_arena_format(arena, "%.4g to %.4g", (double)s->scale_min,
                                         (double)s->scale_max);
    if (quantized && !tensor->is_quantized) { /* of one that came quantized nothing was lost here */
        saturated = octet_arena_format(arena, "%" PRId64, s->saturated);
        underflowed = octet_arena_format(arena, "%" PRId64, s->underflowed);
        sqnr = view_decibel(arena, s->sqnr_db);
        destroyed = octet_arena_format(arena, "%" PRId64, s->destroyed);
    }
    const char *cells[] = {
        name,
        octet_dtype_name(tensor->array.dtype),
        view_shape(arena, tensor->array.dim, (size_t)tensor->array.rank),
        tensor->is_quantized
            ? octet_arena_format(arena, "%s given", octet_dtype_name(tensor->array.dtype))
        : quantized ? qtype
                    : "-",
        s ? octet_arena_format(arena, "%.5g", (double)s->amax) : "-",
        scale,
        saturated,
        underflowed,
        s ? octet_arena_format(arena, "%" PRId64, s->nonfinite) : "-",
        sqnr,
        destroyed,
    };
    return table_add(table, cells, COLOUR_NONE);
}

static bool add_result(struct table *table, octet_arena *arena, const char *name,
                       const struct octet_array *array)
{
    const char *cells[] = {name,
                           octet_dtype_name(array->dtype),
                           view_shape(arena, array->dim, (size_t)array->rank),
                           "",
                           "",
                           "",
                           "",
                           "",
                           "",
                           "",
                           ""};

    return table_add(table, cells, COLOUR_NONE);
}

/* Did quantizing make NaN or Inf of finite elements? */
static bool is_destroyed(const struct tensor *tensor, const Octet__V1__OperandStats *s)
{
    return s && s->destroyed && !tensor->is_quantized;
}

/* As octet quantize warns of its scales, which are not in this reply. */
static void warn_of_scales(const char *what, const char *typed, const struct tensor *tensor,
                           const Octet__V1__OperandStats *s)
{
    if (!is_destroyed(tensor, s))
        return;
    fprintf(stderr, "octet: warning: %s '", what);
    print_safe(typed);
    fprintf(stderr,
            "': %" PRId64 " finite elements became NaN or Inf, since they share a scale with one\n",
            s->destroyed);
}

static bool print_numerics(struct work *w, const Octet__V1__Trace *trace,
                           const Octet__V1__Interception *line)
{
    const struct {
        const char *name;
        const struct tensor *tensor;
        const Octet__V1__OperandStats *stats;
    } operands[] = {{"lhs", &w->lhs, line->lhs},
                    {"rhs", &w->rhs, line->rhs},
                    {"cotangent", &w->cotangent, line->cotangent}};
    static const struct column columns[] = {
        {"ARRAY", false},  {"DTYPE", false}, {"SHAPE", false},    {"QUANTIZED", false},
        {"AMAX", true},    {"SCALE", true},  {"SATURATED", true}, {"UNDERFLOWED", true},
        {"NAN/INF", true}, {"SQNR", true},   {"BECAME NAN", true}};
    octet_arena *arena = w->session->arena;
    size_t count = sizeof columns / sizeof *columns - 1; /* the last one only where it tells */

    for (int i = 0; i < 3; i++)
        if (is_destroyed(operands[i].tensor, operands[i].stats))
            count = sizeof columns / sizeof *columns;
    struct table *table = table_create(arena, columns, count);
    for (int i = 0; i < 3; i++)
        if (operands[i].tensor->array.data &&
            (!table || !add_stats(table, arena, operands[i].name,
                                  type_of(w, trace, line->rule, operands[i].name),
                                  operands[i].tensor, operands[i].stats)))
            return false;
    for (int i = 0; i < 3; i++)
        if (w->arrays[i].data && !add_result(table, arena, array_names[i], &w->arrays[i]))
            return false;
    table_print(table, w->session->out);
    if (line->cotangent && line->cotangent->is_quantized)
        output_text(w->session->out,
                    "cotangent: after the other operand's scale was moved onto it; its "
                    "quantizations for both gradients together\n");
    return true;
}

/* Where the rules were looked up in vain. */
static void warn_of_no_rule(const Octet__V1__Trace *trace, const Octet__V1__Interception *line)
{
    if (trace->n_rules == 0 || line->rule >= 0)
        return;
    fputs("octet: warning: no rule takes ", stderr);
    print_safe(line->op);
    fputs(" of module '", stderr);
    print_safe(line->module);
    fputs("', so nothing is quantized (--module sets the module that rules see)\n", stderr);
}

static void print_note(const char *note)
{
    if (!note[0])
        return;
    fputs("octet: note: ", stderr);
    print_safe(note);
    fputs("\n", stderr);
}

static void print_difference(struct work *w)
{
    const struct difference *d = &w->difference;
    struct output *out = w->session->out;

    output_printf(out, "reference  largest difference %.6g, %.3g %% of the largest element",
                  d->absolute_max, 100 * d->relative);
    if (d->nonfinite)
        output_printf(out, "; %" PRId64 " NaN or Inf in one of them only", d->nonfinite);
    if (d->equal_bits >= 0)
        output_printf(out, "; equal bits: %" PRId64 " of %" PRId64 "\n", d->equal_bits,
                      d->elements);
    else
        output_printf(out, "; %s beside %s\n", octet_dtype_name(w->arrays[0].dtype),
                      octet_dtype_name(w->reference.array.dtype));
}

/* What quantizing did to the results, in all. */
static void print_unquantized(struct work *w)
{
    octet_arena *arena = w->session->arena;
    struct difference d;

    for (int i = 0; i < 3; i++) {
        if (!w->plain[i].data)
            continue;
        difference_measure(&w->arrays[i], &w->plain[i], &d);
        output_printf(w->session->out,
                      "unquantized %s: largest difference %.6g, %.3g %% of the largest element; "
                      "SQNR %s",
                      array_names[i], d.absolute_max, 100 * d.relative,
                      view_decibel(arena, d.sqnr_db));
        if (d.nonfinite)
            output_printf(w->session->out, "; %" PRId64 " NaN or Inf in one of them only",
                          d.nonfinite);
        output_text(w->session->out, "\n");
    }
}

static enum octet_status print_answer(struct work *w, const struct answer *answer)
{
    const struct arguments *a = w->session->arguments;
    const Octet__V1__Trace *trace = answer->trace;
    struct output *out = w->session->out;
    char line[4096];

    for (size_t i = 0; trace && i < trace->n_interceptions; i++) {
        const Octet__V1__Interception *x = trace->interceptions[i];
        if (view_is_line(x)) {
            output_write(out, line, view_line(x, line, sizeof line));
            output_text(out, "\n");
        }
        if (!print_numerics(w, trace, x))
            return no_memory(w);
        output_printf(out, "digest     %s (of out)\n", x->digest);
        warn_of_no_rule(trace, x);
        warn_of_scales("LHS", a->operands.items[0], &w->lhs, x->lhs);
        warn_of_scales("RHS", a->operands.items[1], &w->rhs, x->rhs);
        warn_of_scales("option --cotangent", a->cotangent, &w->cotangent, x->cotangent);
        print_note(x->note);
    }
    if (w->compared)
        print_difference(w);
    print_unquantized(w);
    return OCTET_OK;
}

/* JSON that ends one member later than the message's own. */
struct spliced {
    struct output *out;
    char tail[4]; /* the last bytes are held back: "\n}\n" */
    size_t held;
};

static bool write_but_end(void *user, const char *text, size_t length)
{
    struct spliced *s = user;

    for (size_t i = 0; i < length; i++) {
        if (s->held == 3) {
            output_write(s->out, s->tail, 1);
            memmove(s->tail, s->tail + 1, 2);
            s->held--;
        }
        s->tail[s->held++] = text[i];
    }
    return !s->out->error;
}

static void json_unquantized(struct work *w)
{
    struct output *out = w->session->out;
    struct difference d;

    output_text(out, ",\n  \"unquantized\": {");
    for (int i = 0; i < 3; i++) {
        if (!w->plain[i].data)
            continue;
        difference_measure(&w->arrays[i], &w->plain[i], &d);
        output_printf(out, "%s\n    \"%s\": {\"absolute_max\": ", i ? "," : "", array_names[i]);
        json_number(out, d.absolute_max);
        output_text(out, ", \"relative\": ");
        json_number(out, d.relative);
        output_text(out, ", \"sqnr_db\": ");
        json_number(out, d.sqnr_db);
        output_printf(out, ", \"nonfinite\": %" PRId64 "}", d.nonfinite);
    }
    output_text(out, "\n  }");
}

/* The message without its numbers, and the comparisons as further members. */
static void print_json(struct work *w, const struct answer *answer)
{
    const struct difference *d = &w->difference;
    struct output *out = w->session->out;
    struct spliced spliced = {.out = out};

    for (int i = 0; i < 3; i++)
        if (answer->tensors[i]) {
            answer->tensors[i]->data.len = 0;
            answer->tensors[i]->buffer = 0;
        }
    *answer->n_buffers = 0;
    (void)octet_wire_json(answer->message, write_but_end,
                          &spliced); /* the output keeps the error */
    if (w->compared) {
        output_text(out, ",\n  \"reference\": {\n    \"absolute_max\": ");
        json_number(out, d->absolute_max);
        output_text(out, ",\n    \"relative\": ");
        json_number(out, d->relative);
        output_printf(out, ",\n    \"nonfinite\": %" PRId64 ",\n    \"elements\": %" PRId64,
                      d->nonfinite, d->elements);
        if (d->equal_bits >= 0)
            output_printf(out, ",\n    \"equal_bits\": %" PRId64, d->equal_bits);
        output_text(out, "\n  }");
    }
    if (w->plain[0].data)
        json_unquantized(w);
    output_write(out, spliced.tail, spliced.held);
}

/* ---- The commands ---- */

static void start_progress(const struct work *w)
{
    octet_arena *arena = w->session->arena;
    const char *what =
        octet_arena_format(arena, "%s of %s and %s", w->session->arguments->command->name,
                           view_shape(arena, w->lhs.array.dim, (size_t)w->lhs.array.rank),
                           view_shape(arena, w->rhs.array.dim, (size_t)w->rhs.array.rank));

    progress_start(what ? what : "running");
}

/* The same call without rules. */
static enum octet_status call_plain(struct work *w, const char *method, ProtobufCMessage *request,
                                    const struct fields *f, answer_function *answer_of)
{
    ProtobufCMessage *message;
    enum octet_status status;

    *f->n_rules = 0;
    *f->trace_level = OCTET__V1__TRACE_LEVEL__TRACE_LEVEL_NONE;
    status = session_call(w->session, method, request, &message, &w->err);
    if (status != OCTET_OK)
        return status;
    const struct answer answer = answer_of(message);
    status = take_answer(w, &answer, w->plain);
    for (int i = 0; i < 3 && status == OCTET_OK; i++)
        if (!w->arrays[i].data != !w->plain[i].data ||
            (w->plain[i].data &&
             (!has_shape_of(&w->arrays[i], &w->plain[i]) || !figures_reads(w->arrays[i].dtype) ||
              !figures_reads(w->plain[i].dtype))))
            status = octet_fail(&w->err, OCTET_INVALID_ARGUMENT, NULL,
                                "option --compare-unquantized: without rules, %s is another array",
                                array_names[i]);
    return status;
}

static enum octet_status call(struct work *w, const char *method, ProtobufCMessage *request,
                              const struct fields *f, answer_function *answer_of)
{
    ProtobufCMessage *message;

    start_progress(w);
    enum octet_status status = session_call(w->session, method, request, &message, &w->err);
    if (status != OCTET_OK)
        return status;
    const struct answer answer = answer_of(message);
    status = take_answer(w, &answer, w->arrays);
    if (status == OCTET_OK && w->session->arguments->compare_unquantized)
        status = call_plain(w, method, request, f, answer_of);
    if (status == OCTET_OK)
        status = compare(w);
    if (status == OCTET_OK)
        status = write_answer(w);
    progress_end();
    if (status != OCTET_OK)
        return status;
    if (!w->session->arguments->json)
        return print_answer(w, &answer);
    print_json(w, &answer);
    return OCTET_OK;
}

static int end(struct work *w, enum octet_status status)
{
    progress_end();
    int result = status == OCTET_OK ? EXIT_FINE : report(w->session, &w->err);
    tensors_close(&w->set);
    return result;
}

static struct answer answer_of_dot(ProtobufCMessage *message)
{
    Octet__V1__DotGeneralResponse *response = (Octet__V1__DotGeneralResponse *)message;

    return ANSWER(response);
}

static enum octet_status dot(struct work *w)
{
    const char *weight = w->session->arguments->weight;
    Octet__V1__DotGeneralRequest request = OCTET__V1__DOT_GENERAL_REQUEST__INIT;
    const struct fields fields = FIELDS(&request);
    enum octet_status status = find_operands(w);

    if (status == OCTET_OK)
        status = fill_common(w, &fields);
    if (status == OCTET_OK && !make_dims(w->session->arena, &request.dimension_numbers))
        status = no_memory(w);
    if (status == OCTET_OK)
        status = fill_dims(w, request.dimension_numbers);
    if (status != OCTET_OK)
        return status;
    request.weight_operand =
        !weight || strcmp(weight, "rhs") == 0 ? OCTET__V1__WEIGHT_OPERAND__WEIGHT_OPERAND_RHS
        : strcmp(weight, "lhs") == 0          ? OCTET__V1__WEIGHT_OPERAND__WEIGHT_OPERAND_LHS
                                              : OCTET__V1__WEIGHT_OPERAND__WEIGHT_OPERAND_NONE;
    request.buffers = w->buffers.list;
    request.n_buffers = w->buffers.count;
    return call(w, "DotGeneral", &request.base, &fields, answer_of_dot);
}

static struct answer answer_of_gmm(ProtobufCMessage *message)
{
    Octet__V1__RaggedDotResponse *response = (Octet__V1__RaggedDotResponse *)message;

    return ANSWER(response);
}

static enum octet_status gmm(struct work *w)
{
    const struct arguments *a = w->session->arguments;
    Octet__V1__RaggedDotRequest request = OCTET__V1__RAGGED_DOT_REQUEST__INIT;
    const struct fields fields = FIELDS(&request);
    enum octet_status status = find_operands(w);

    if (status == OCTET_OK)
        status = find_group_sizes(w);
    if (status == OCTET_OK)
        status = fill_common(w, &fields);
    if (status != OCTET_OK)
        return status;
    request.group_sizes = request_tensor(&w->buffers, &w->group_sizes.array);
    if (!request.group_sizes)
        return no_memory(w);
    request.transpose_rhs = a->transpose_rhs;
    request.op_name = (char *)(uintptr_t)(a->op ? a->op : "");
    request.buffers = w->buffers.list;
    request.n_buffers = w->buffers.count;
    return call(w, "RaggedDot", &request.base, &fields, answer_of_gmm);
}

static struct work start(struct session *session)
{
    return (struct work){
        .session = session, .set = {.arena = session->arena}, .buffers = {.arena = session->arena}};
}

int run_dot(struct session *session)
{
    struct work w = start(session);

    return end(&w, dot(&w));
}

int run_gmm(struct session *session)
{
    struct work w = start(session);

    return end(&w, gmm(&w));
}
