/* octet quantize and octet dequantize: one array of a file, its codes and scales, and what they
 * lost. */
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

/* What one command works with. */
struct work {
    struct session *session;
    struct tensors set;
    struct tensor in;
    struct octet_array codes, scale, zero_point, dequantized;
    const Octet__V1__OperandStats *stats;
    struct difference difference; /* of dequantized from in */
    struct octet_error err;
};

static enum octet_status no_memory(struct work *w)
{
    return octet_arena_exhausted(w->session->arena, &w->err);
}

/* "0=128" -> axis and size. The text is the arena's. */
static enum octet_status parse_tile(struct work *w, const char *text,
                                    const Octet__V1__QuantizeRequest *request,
                                    Octet__V1__QuantizeRequest__TiledAxesEntry *out)
{
    const char *equals = strchr(text, '=');
    int64_t axis;

    if (!equals || !equals[1] ||
        !number_parse(text, (size_t)(equals - text), -w->in.array.rank, w->in.array.rank - 1,
                      &axis))
        return octet_fail(&w->err, OCTET_INVALID_ARGUMENT, NULL,
                          "option --tiles: '%.100s' is not AXIS=SIZE with an axis of %s", text,
                          view_shape(w->session->arena, w->in.array.dim, (size_t)w->in.array.rank));
    out->key = (int32_t)(axis < 0 ? axis + w->in.array.rank : axis);
    out->value = (char *)(uintptr_t)(equals + 1);
    for (size_t i = 0; request->tiled_axes[i] != out; i++)
        if (request->tiled_axes[i]->key == out->key)
            return octet_fail(&w->err, OCTET_INVALID_ARGUMENT, NULL,
                              "option --tiles: axis %d is given twice", out->key);
    for (size_t i = 0; i < request->n_channelwise_axes; i++)
        if (request->channelwise_axes[i] == out->key)
            return octet_fail(&w->err, OCTET_INVALID_ARGUMENT, NULL,
                              "options --axes and --tiles: both name axis %d; it has a scale for "
                              "each index or for each tile",
                              out->key);
    return OCTET_OK;
}

/* "0=128,1=128", and as often as the option was given. */
static enum octet_status parse_tiles(struct work *w, Octet__V1__QuantizeRequest *request)
{
    const struct text_list *given = &w->session->arguments->tiles;
    octet_arena *arena = w->session->arena;
    size_t count = given->count;
    ProtobufCMessage **list;

    for (size_t i = 0; i < given->count; i++)
        for (const char *c = given->items[i]; *c; c++)
            count += *c == ',';
    if (!oct_wire_new_list(arena, &octet__v1__quantize_request__tiled_axes_entry__descriptor, count,
                           &list))
        return no_memory(w);
    request->tiled_axes = (Octet__V1__QuantizeRequest__TiledAxesEntry **)list;
    for (size_t i = 0; i < given->count; i++)
        for (const char *at = given->items[i]; at;
             at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
            const char *text = octet_arena_copy(arena, at, strcspn(at, ","));
            if (!text)
                return no_memory(w);
            enum octet_status status =
                parse_tile(w, text, request, request->tiled_axes[request->n_tiled_axes++]);
            if (status != OCTET_OK)
                return status;
        }
    return OCTET_OK;
}

static enum octet_status fill_request(struct work *w, Octet__V1__QuantizeRequest *request)
{
    const struct arguments *a = w->session->arguments;
    octet_arena *arena = w->session->arena;
    enum octet_status status;

    request->qtype = (char *)(uintptr_t)a->qtype;
    request->calibration_method = (char *)(uintptr_t)(a->method ? a->method : "");
    status = dtype_parse("scale-dtype", a->scale_dtype, &request->scale_dtype, &w->err);
    if (status == OCTET_OK)
        status = axes_parse(arena, "axes", a->axes, w->in.array.rank, &request->n_channelwise_axes,
                            &request->channelwise_axes, &w->err);
    return status == OCTET_OK ? parse_tiles(w, request) : status;
}

static enum octet_status take_quantized(struct work *w, const Octet__V1__QuantizeResponse *from)
{
    static const char *const names[] = {"quantized.qvalue", "quantized.scale",
                                        "quantized.zero_point"};
    struct octet_array *to[] = {&w->codes, &w->scale, &w->zero_point};
    const Octet__V1__QuantizedTensor *q = from->quantized;
    const Octet__V1__Tensor *parts[] = {q ? q->qvalue : NULL, q ? q->scale : NULL,
                                        q ? q->zero_point : NULL};
    enum octet_status status = OCTET_OK;

    for (int i = 0; i < 3 && status == OCTET_OK; i++)
        if (parts[i] || i < 2) /* only the zero point may be absent */
            status = reply_array(w->session->arena, parts[i], from->n_buffers, from->buffers,
                                 names[i], to[i], &w->err);
    w->stats = from->stats;
    if (status == OCTET_OK && !w->stats)
        return octet_fail(&w->err, OCTET_DATA_LOSS, NULL, "the reply has no figures");
    return status;
}

static enum octet_status call_quantize(struct work *w)
{
    Octet__V1__QuantizeRequest request = OCTET__V1__QUANTIZE_REQUEST__INIT;
    struct request_buffers buffers = {.arena = w->session->arena};
    ProtobufCMessage *response;
    enum octet_status status = fill_request(w, &request);

    if (status != OCTET_OK)
        return status;
    request.trace_level = OCTET__V1__TRACE_LEVEL__TRACE_LEVEL_NUMERICS;
    request.array = request_tensor(&buffers, &w->in.array);
    request.buffers = buffers.list;
    request.n_buffers = buffers.count;
    if (!request.array)
        return no_memory(w);
    status = session_call(w->session, "Quantize", &request.base, &response, &w->err);
    return status == OCTET_OK ? take_quantized(w, (Octet__V1__QuantizeResponse *)response) : status;
}

/* codes, scale, zero_point -> dequantized */
static enum octet_status call_dequantize(struct work *w, Octet__V1__DataType dtype)
{
    Octet__V1__DequantizeRequest request = OCTET__V1__DEQUANTIZE_REQUEST__INIT;
    struct request_buffers buffers = {.arena = w->session->arena};
    const struct tensor quantized = {
        .array = w->codes, .scale = w->scale, .zero_point = w->zero_point};
    ProtobufCMessage *message;

    request.dtype = dtype;
    request.quantized = request_quantized(&buffers, &quantized);
    request.buffers = buffers.list;
    request.n_buffers = buffers.count;
    if (!request.quantized)
        return no_memory(w);
    enum octet_status status =
        session_call(w->session, "Dequantize", &request.base, &message, &w->err);
    if (status != OCTET_OK)
        return status;
    const Octet__V1__DequantizeResponse *response = (Octet__V1__DequantizeResponse *)message;
    return reply_array(w->session->arena, response->array, response->n_buffers, response->buffers,
                       "array", &w->dequantized, &w->err);
}

/* A reply whose shapes do not go with the request's would be read beyond its end. */
static enum octet_status check_reply(struct work *w)
{
    const struct octet_array *array = &w->in.array, *dequantized = &w->dequantized;
    bool good = dequantized->rank == array->rank && dequantized->dtype == OCTET_DTYPE_F32;

    for (int32_t i = 0; good && i < array->rank; i++)
        good = dequantized->dim[i] == array->dim[i];
    if (good)
        return OCTET_OK;
    return octet_fail(&w->err, OCTET_DATA_LOSS, NULL,
                      "the reply's shapes do not go with the request's");
}

static const char *type_and_shape(octet_arena *arena, const struct octet_array *array)
{
    return octet_arena_format(arena, "%s %s", octet_dtype_name(array->dtype),
                              view_shape(arena, array->dim, (size_t)array->rank));
}

static int64_t bytes_after(const struct work *w)
{
    int64_t codes = octet_array_bytes(&w->codes);

    if (octet_dtype_bits(w->codes.dtype) == 4)
        codes = (codes + 1) / 2;
    return codes + octet_array_bytes(&w->scale) +
           (w->zero_point.data ? octet_array_bytes(&w->zero_point) : 0);
}

static bool add_row(struct table *table, const char *name, const char *value, const char *note)
{
    const char *cells[] = {name, value, note};

    return table_add(table, cells, COLOUR_NONE);
}

static const char *share(octet_arena *arena, int64_t part, int64_t whole)
{
    char text[32];

    return part ? octet_arena_format(arena, "%s of the elements", human_share(part, whole, text))
                : "";
}

static bool print_table(struct work *w, bool symmetric)
{
    static const struct column columns[] = {{"FIGURE", false}, {"VALUE", true}, {"NOTE", false}};
    octet_arena *arena = w->session->arena;
    struct output *out = w->session->out;
    struct table *table = table_create(arena, columns, 3);
    const Octet__V1__OperandStats *s = w->stats;
    double error = w->difference.absolute_max;
    char before[32], after[32], part[32];
    int64_t bytes = octet_array_bytes(&w->in.array);
    int64_t elements = octet_array_elements(&w->in.array);

    output_printf(out, "%s: %s -> %s, scale %s%s\n", view_name(arena, w->in.name),
                  type_and_shape(arena, &w->in.array), octet_dtype_name(w->codes.dtype),
                  type_and_shape(arena, &w->scale), symmetric ? "" : ", with a zero point");
    if (!table || !add_row(table, "amax", octet_arena_format(arena, "%.6g", (double)s->amax), "") ||
        !add_row(table, "smallest scale", octet_arena_format(arena, "%.6g", (double)s->scale_min),
                 "") ||
        !add_row(table, "largest scale", octet_arena_format(arena, "%.6g", (double)s->scale_max),
                 "") ||
        !add_row(table, "saturated",
                 symmetric ? octet_arena_format(arena, "%" PRId64, s->saturated) : "-",
                 share(arena, s->saturated, elements)) ||
        !add_row(table, "underflowed", octet_arena_format(arena, "%" PRId64, s->underflowed),
                 share(arena, s->underflowed, elements)) ||
        !add_row(table, "NaN or Inf", octet_arena_format(arena, "%" PRId64, s->nonfinite),
                 share(arena, s->nonfinite, elements)) ||
        (s->destroyed &&
         !add_row(table, "became NaN", octet_arena_format(arena, "%" PRId64, s->destroyed),
                  octet_arena_format(arena, "%s that were finite",
                                     share(arena, s->destroyed, elements)))) ||
        !add_row(table, "SQNR", view_decibel(arena, s->sqnr_db), "signal to quantization noise") ||
        !add_row(table, "largest error", octet_arena_format(arena, "%.3g", error),
                 error > 0
                     ? octet_arena_format(arena, "%.3g %% of amax", 100 * error / (double)s->amax)
                     : "") ||
        !add_row(table, "bytes",
                 octet_arena_format(arena, "%s", human_share(bytes_after(w), bytes, part)),
                 octet_arena_format(arena, "%s, were %s", human_bytes(bytes_after(w), after),
                                    human_bytes(bytes, before))))
        return false;
    table_print(table, out);
    return true;
}

static void print_json(struct work *w, bool symmetric)
{
    struct output *out = w->session->out;
    octet_arena *arena = w->session->arena;
    const Octet__V1__OperandStats *s = w->stats;

    output_text(out, "{\n  \"name\": ");
    json_text(out, w->in.name);
    output_printf(out, ",\n  \"dtype\": \"%s\",\n  \"shape\": %s,\n",
                  octet_dtype_name(w->in.array.dtype),
                  view_shape(arena, w->in.array.dim, (size_t)w->in.array.rank));
    output_printf(out, "  \"code_dtype\": \"%s\",\n  \"scale_dtype\": \"%s\",\n",
                  octet_dtype_name(w->codes.dtype), octet_dtype_name(w->scale.dtype));
    output_printf(out, "  \"scale_shape\": %s,\n  \"zero_point\": %s,\n",
                  view_shape(arena, w->scale.dim, (size_t)w->scale.rank),
                  symmetric ? "false" : "true");
    json_member(out, "amax", (double)s->amax);
    json_member(out, "scale_min", (double)s->scale_min);
    json_member(out, "scale_max", (double)s->scale_max);
    output_printf(out, "  \"elements\": %" PRId64 ",\n", octet_array_elements(&w->in.array));
    if (symmetric)
        output_printf(out, "  \"saturated\": %" PRId64 ",\n", s->saturated);
    output_printf(out, "  \"underflowed\": %" PRId64 ",\n  \"nonfinite\": %" PRId64 ",\n",
                  s->underflowed, s->nonfinite);
    output_printf(out, "  \"destroyed\": %" PRId64 ",\n", s->destroyed);
    json_member(out, "sqnr_db", s->sqnr_db);
    json_member(out, "error_max", w->difference.absolute_max);
    output_printf(out, "  \"bytes_before\": %" PRId64 ",\n  \"bytes_after\": %" PRId64 "\n}\n",
                  octet_array_bytes(&w->in.array), bytes_after(w));
}

static enum octet_status print_figures(struct work *w)
{
    bool symmetric = !w->zero_point.data;

    difference_measure(&w->dequantized, &w->in.array, &w->difference);
    if (w->session->arguments->json)
        print_json(w, symmetric);
    else if (!print_table(w, symmetric))
        return no_memory(w);
    return OCTET_OK;
}

static enum octet_status write_quantized(struct work *w)
{
    octet_arena *arena = w->session->arena;
    const struct octet_named_array arrays[] = {
        {w->in.name, w->codes},
        {octet_arena_format(arena, "%s.scale", w->in.name), w->scale},
        {octet_arena_format(arena, "%s.zero_point", w->in.name), w->zero_point}};

    if (!w->session->arguments->output)
        return OCTET_OK;
    if (!arrays[1].name || !arrays[2].name)
        return no_memory(w);
    return tensors_write(&w->set, w->session->arguments->output, arrays, w->zero_point.data ? 3 : 2,
                         &w->err);
}

static int end(struct work *w, enum octet_status status)
{
    progress_end();
    int result = status == OCTET_OK ? EXIT_FINE : report(w->session, &w->err);
    tensors_close(&w->set);
    return result;
}

static void start_progress(const struct work *w)
{
    const char *what =
        octet_arena_format(w->session->arena, "%s of %s", w->session->arguments->command->name,
                           type_and_shape(w->session->arena, &w->in.array));

    progress_start(what ? what : "running");
}

/* A NaN or Inf spoils the scale of its group, and with it all of the group. */
static void warn_of_scales(struct work *w)
{
    const char *whose = octet_arena_format(w->session->arena, "FILE '%s'",
                                           w->session->arguments->operands.items[0]);

    scales_warn(whose ? whose : "FILE", &w->scale);
}

int run_quantize(struct session *session)
{
    struct work w = {.session = session, .set = {.arena = session->arena}};
    enum octet_status status =
        tensors_find(&w.set, "FILE", session->arguments->operands.items[0], &w.in, &w.err);

    if (status == OCTET_OK) {
        start_progress(&w);
        status = call_quantize(&w);
    }
    if (status == OCTET_OK)
        status = call_dequantize(&w, OCTET__V1__DATA_TYPE__DATA_TYPE_F32);
    if (status == OCTET_OK)
        status = check_reply(&w);
    if (status == OCTET_OK)
        status = write_quantized(&w);
    progress_end();
    if (status == OCTET_OK)
        status = print_figures(&w);
    if (status == OCTET_OK)
        warn_of_scales(&w);
    return end(&w, status);
}

/* The operand of octet dequantize must have its scale. */
static enum octet_status find_quantized(struct work *w)
{
    const struct arguments *a = w->session->arguments;
    enum octet_status status = tensors_find(&w->set, "FILE", a->operands.items[0], &w->in, &w->err);

    if (status == OCTET_OK && a->scale)
        status = tensors_scale(&w->set, "option --scale", a->scale, &w->in, &w->err);
    if (status == OCTET_OK && !w->in.is_quantized)
        return octet_fail(&w->err, OCTET_INVALID_ARGUMENT, NULL,
                          "FILE '%s': %s is not quantized: codes with '%s.scale' beside them are "
                          "expected, or --scale",
                          a->operands.items[0], octet_dtype_name(w->in.array.dtype), w->in.name);
    w->codes = w->in.array;
    w->scale = w->in.scale;
    w->zero_point = w->in.zero_point;
    return status;
}

int run_dequantize(struct session *session)
{
    const struct arguments *a = session->arguments;
    struct work w = {.session = session, .set = {.arena = session->arena}};
    Octet__V1__DataType dtype = OCTET__V1__DATA_TYPE__DATA_TYPE_UNSPECIFIED;
    enum octet_status status = dtype_parse("dtype", a->dtype, &dtype, &w.err);

    if (status == OCTET_OK)
        status = find_quantized(&w);
    if (status == OCTET_OK) {
        start_progress(&w);
        status = call_dequantize(&w, dtype);
    }
    if (status == OCTET_OK) {
        const struct octet_named_array array = {w.in.name, w.dequantized};
        status = tensors_write(&w.set, a->output, &array, 1, &w.err);
    }
    progress_end();
    if (status == OCTET_OK && a->json) {
        output_text(session->out, "{\n  \"name\": ");
        json_text(session->out, w.in.name);
        output_printf(session->out, ",\n  \"dtype\": \"%s\",\n  \"shape\": %s\n}\n",
                      octet_dtype_name(w.dequantized.dtype),
                      view_shape(session->arena, w.dequantized.dim, (size_t)w.dequantized.rank));
    } else if (status == OCTET_OK) {
        output_printf(session->out, "%s: %s, scale %s -> %s\n",
                      view_name(session->arena, w.in.name), octet_dtype_name(w.codes.dtype),
                      type_and_shape(session->arena, &w.scale),
                      type_and_shape(session->arena, &w.dequantized));
    }
    return end(&w, status);
}
