/* octet inspect and octet plan: two views of one answer. */
#include <stdio.h>
#include <string.h>

#include "view.h"
#include "wire/convert.h"
#include "wire/methods.h"

static const char *with_commas(octet_arena *arena, int64_t value)
{
    char digits[32], text[48];
    size_t used = 0;
    int length = snprintf(digits, sizeof digits, "%lld", (long long)value);

    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0)
            text[used++] = ',';
        text[used++] = digits[i];
    }
    return octet_arena_copy(arena, text, used);
}

static int64_t elements_of(const Octet__V1__Parameter *parameter)
{
    int64_t count = 1;

    for (size_t i = 0; i < parameter->n_shape; i++)
        if (__builtin_mul_overflow(count, parameter->shape[i], &count))
            return INT64_MAX;
    return count;
}

static bool add_parameter(struct table *table, octet_arena *arena, const Octet__V1__Parameter *p)
{
    char bytes[32];
    const char *cells[] = {
        p->name,
        p->dtype ? octet_dtype_name((enum octet_dtype)p->dtype) : "-",
        view_shape(arena, p->shape, p->n_shape),
        with_commas(arena, elements_of(p)),
        octet_arena_format(arena, "%s", human_bytes(p->bytes, bytes)),
    };

    return table_add(table, cells, COLOUR_NONE);
}

static bool print_parameters(octet_arena *arena, const Octet__V1__InspectResponse *response,
                             struct output *out)
{
    static const struct column columns[] = {
        {"PARAMETER", false}, {"DTYPE", false}, {"SHAPE", false}, {"COUNT", true}, {"BYTES", true}};
    struct table *table = table_create(arena, columns, sizeof columns / sizeof *columns);
    char bytes[32];

    if (!table)
        return false;
    for (size_t i = 0; i < response->n_parameters; i++)
        if (!add_parameter(table, arena, response->parameters[i]))
            return false;
    const char *total[] = {
        octet_arena_format(arena, "total: %zu arrays", response->n_parameters),
        "",
        "",
        with_commas(arena, response->parameter_count),
        octet_arena_format(arena, "%s", human_bytes(response->parameter_bytes, bytes)),
    };
    if (!table_add(table, total, COLOUR_BOLD))
        return false;
    table_print(table, out);
    return true;
}

static int64_t sum(const int64_t *values, size_t count)
{
    int64_t total = 0;

    for (size_t i = 0; i < count; i++)
        if (__builtin_add_overflow(total, values[i], &total))
            return INT64_MAX;
    return total;
}

static bool print_plan(octet_arena *arena, const Octet__V1__InspectResponse *r, struct output *out)
{
    static const struct column columns[] = {{"STEP", false}, {"", true}, {"", false}};
    const int64_t memory[] = {r->parameter_bytes, r->gradient_bytes, r->optimizer_bytes,
                              r->activation_bytes};
    const int64_t work[] = {r->flops_forward, r->flops_backward};
    const struct {
        const char *name;
        bool bytes;
        int64_t value;
        const char *note;
    } rows[] = {
        {"parameters", true, memory[0],
         octet_arena_format(arena, "%s values", with_commas(arena, r->parameter_count))},
        {"gradients", true, memory[1], ""},
        {"optimizer", true, memory[2], "AdamW: two moments of each value"},
        {"activations", true, memory[3], "kept for backward, nothing recomputed"},
        {"memory", true, sum(memory, 4),
         "of the whole, before it is sharded; the same for every quantization"},
        {"FLOPs forward", false, work[0], ""},
        {"FLOPs backward", false, work[1], ""},
        {"FLOPs", false, sum(work, 2),
         octet_arena_format(arena, "batch of %lld x %lld tokens (--batch, --seq)",
                            (long long)r->batch_size, (long long)r->sequence_length)},
    };
    struct table *table = table_create(arena, columns, sizeof columns / sizeof *columns);

    if (!table)
        return false;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[32];
        rows[i].bytes ? human_bytes(rows[i].value, text) : human_count(rows[i].value, text);
        const char *cells[] = {rows[i].name, octet_arena_format(arena, "%s", text), rows[i].note};
        bool total = strcmp(rows[i].name, "memory") == 0 || strcmp(rows[i].name, "FLOPs") == 0;
        if (!table_add(table, cells, total ? COLOUR_BOLD : COLOUR_NONE))
            return false;
    }
    table_print(table, out);
    return true;
}

static enum octet_status ask(struct session *session, Octet__V1__InspectResponse **out,
                             struct octet_error *err)
{
    Octet__V1__InspectRequest request = OCTET__V1__INSPECT_REQUEST__INIT;
    ProtobufCMessage *message;
    enum octet_status status = request_model(session, false, &request.model, err);

    request.batch_size = session->arguments->batch;
    request.sequence_length = session->arguments->sequence;
    if (status == OCTET_OK)
        status = session_call(session, "Inspect", &request.base, &message, err);
    if (status == OCTET_OK)
        *out = (Octet__V1__InspectResponse *)message;
    return status;
}

static int run(struct session *session,
               bool (*print)(octet_arena *, const Octet__V1__InspectResponse *, struct output *))
{
    Octet__V1__InspectResponse *response;
    struct octet_error err = {0};

    if (ask(session, &response, &err) != OCTET_OK)
        return report(session, &err);
    if (session->arguments->json) {
        (void)octet_wire_json(&response->base, output_json, session->out); /* it keeps the error */
        return EXIT_FINE;
    }
    if (!print(session->arena, response, session->out)) {
        octet_arena_exhausted(session->arena, &err);
        return report(session, &err);
    }
    return EXIT_FINE;
}

int run_inspect(struct session *session)
{
    return run(session, print_parameters);
}

int run_plan(struct session *session)
{
    return run(session, print_plan);
}
