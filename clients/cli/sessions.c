/* octet session: what a daemon holds, and how it is filled, read, saved and ended. */
#include "sessions.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "numbers.h"
#include "progress.h"
#include "wire/convert.h"
#include "wire/methods.h"

char *request_id(octet_arena *arena, const char *prefix, int64_t step)
{
    static uint64_t drawn; /* of this process */

    if (!drawn && getrandom(&drawn, sizeof drawn, 0) != sizeof drawn)
        drawn = octet_now_ns();
    if (step >= 0)
        return octet_arena_format(arena, "%s-%016" PRIx64 "-%" PRId64, prefix, drawn, step);
    return octet_arena_format(arena, "%s-%016" PRIx64 "-%" PRIu64, prefix, drawn, octet_now_ns());
}

static bool set_start(struct session *session, const char *from,
                      Octet__V1__CreateSessionRequest *request)
{
    const struct arguments *a = session->arguments;

    if (from) {
        request->start_case = OCTET__V1__CREATE_SESSION_REQUEST__START_CHECKPOINT;
        request->checkpoint = octet_arena_copy(session->arena, from, strlen(from));
        return request->checkpoint != NULL;
    }
    if (a->empty) {
        request->start_case = OCTET__V1__CREATE_SESSION_REQUEST__START_EMPTY;
        request->empty = true;
    } else if (a->seed >= 0) {
        request->start_case = OCTET__V1__CREATE_SESSION_REQUEST__START_SEED;
        request->seed = (uint64_t)a->seed;
    }
    return true;
}

/* "cuda:1" is device 1 of cuda. */
static enum octet_status set_placement(struct session *session,
                                       Octet__V1__CreateSessionRequest *request,
                                       struct octet_error *err)
{
    const char *text = session->arguments->backend;

    if (!text)
        return OCTET_OK;
    request->placement = oct_wire_new(session->arena, &octet__v1__placement__descriptor);
    char *name = octet_arena_copy(session->arena, text, strlen(text));
    if (!request->placement || !name)
        return octet_arena_exhausted(session->arena, err);
    char *colon = strchr(name, ':');
    if (colon) {
        *colon = '\0';
        request->placement->device = colon + 1;
    }
    request->placement->backend = name;
    return OCTET_OK;
}

static enum octet_status set_accumulation(struct session *session,
                                          Octet__V1__CreateSessionRequest *request,
                                          struct octet_error *err)
{
    const char *text = session->arguments->accumulation;

    if (text && strcmp(text, "fast") == 0)
        request->accumulation = OCTET__V1__ACCUMULATION__ACCUMULATION_FAST;
    else if (text && strcmp(text, "exact") != 0)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                          "option --accumulation '%.100s'; exact or fast was expected", text);
    return OCTET_OK;
}

enum octet_status sessions_create(struct session *session, const char *from,
                                  Octet__V1__Session **out, struct octet_error *err)
{
    const struct arguments *a = session->arguments;
    Octet__V1__CreateSessionRequest request = OCTET__V1__CREATE_SESSION_REQUEST__INIT;
    ProtobufCMessage *message;
    enum octet_status status = OCTET_OK;

    if (!from || arguments_name_model(a)) /* else: the checkpoint's own */
        status = request_model(session, false, &request.model, err);
    if (status == OCTET_OK)
        status = request_rules(session, &request.n_rules, &request.rules, err);
    if (status == OCTET_OK)
        status = set_placement(session, &request, err);
    if (status == OCTET_OK)
        status = set_accumulation(session, &request, err);
    if (status != OCTET_OK)
        return status;
    if (a->infer || (a->mode && strcmp(a->mode, "infer") == 0))
        request.mode = OCTET__V1__SESSION_MODE__SESSION_MODE_INFER;
    request.batch_size = a->batch;
    request.sequence_length = a->sequence;
    request.lease_seconds = (int32_t)(a->lease < INT32_MAX ? a->lease : INT32_MAX);
    request.request_id = request_id(session->arena, "create", -1);
    if (!request.request_id || !set_start(session, from, &request))
        return octet_arena_exhausted(session->arena, err);
    status = session_ask(session, "CreateSession", &request.base, &octet__v1__session__descriptor,
                         &message, err);
    if (status == OCTET_OK)
        *out = (Octet__V1__Session *)message;
    else if (strstr(err->text, "session_memory_bytes")) {
        size_t used = strlen(err->text);
        snprintf(err->text + used, sizeof err->text - used,
                 "; a smaller --batch and --length take less, and octet plan tells how much");
    }
    return status;
}

enum octet_status sessions_save(struct session *session, const char *session_id, const char *name,
                                Octet__V1__Checkpoint **out, struct octet_error *err)
{
    Octet__V1__SaveCheckpointRequest request = OCTET__V1__SAVE_CHECKPOINT_REQUEST__INIT;
    ProtobufCMessage *message;

    request.session_id = oct_wire_text(session->arena, session_id);
    request.name = oct_wire_text(session->arena, name);
    request.request_id = request_id(session->arena, "save", -1);
    if (!request.session_id || !request.name || !request.request_id)
        return octet_arena_exhausted(session->arena, err);
    enum octet_status status = session_ask(session, "SaveCheckpoint", &request.base,
                                           &octet__v1__checkpoint__descriptor, &message, err);
    if (status == OCTET_OK)
        *out = (Octet__V1__Checkpoint *)message;
    return status;
}

enum octet_status sessions_delete(struct session *session, const char *session_id,
                                  struct octet_error *err)
{
    Octet__V1__DeleteSessionRequest request = OCTET__V1__DELETE_SESSION_REQUEST__INIT;
    ProtobufCMessage *message;

    request.session_id = oct_wire_text(session->arena, session_id);
    if (!request.session_id)
        return octet_arena_exhausted(session->arena, err);
    return session_ask(session, "DeleteSession", &request.base,
                       &octet__v1__delete_session_response__descriptor, &message, err);
}

static const char *mode_name(Octet__V1__SessionMode mode)
{
    return mode == OCTET__V1__SESSION_MODE__SESSION_MODE_INFER ? "infer" : "train";
}

static bool print_json(struct session *session, const ProtobufCMessage *message)
{
    if (session->arguments->json)
        (void)octet_wire_json(message, output_json, session->out); /* it keeps the error */
    return session->arguments->json;
}

int64_t sessions_count_values(const Octet__V1__Session *s)
{
    int64_t count = 0;

    for (size_t i = 0; i < s->n_parameters; i++) {
        int64_t elements = 1;
        for (size_t k = 0; k < s->parameters[i]->n_shape; k++)
            elements *= s->parameters[i]->shape[k];
        count += elements;
    }
    return count;
}

const char *sessions_placement(const Octet__V1__Session *s, char out[96])
{
    const char *name = NULL;
    size_t all = s->trace ? s->trace->n_interceptions : 0, placed = 0;

    for (size_t i = 0; i < all; i++) {
        const char *backend = s->trace->interceptions[i]->backend;
        if (backend[0] && strcmp(backend, "cpu") != 0) {
            name = backend;
            placed++;
        }
    }
    out[0] = '\0';
    if (name)
        snprintf(out, 96, "%zu of %zu traced ops on %s", placed, all, name);
    return out;
}

static void print_session(struct session *session, const Octet__V1__Session *s)
{
    struct output *out = session->out;
    char resident[32], peak[32], values[32], placement[96];

    if (print_json(session, &s->base))
        return;
    output_printf(out, "session     %s\nmodel       %s, %s\n", s->session_id, s->model,
                  mode_name(s->mode));
    if (s->n_parameters)
        output_printf(out, "parameters  %zu arrays, %s values\n", s->n_parameters,
                      human_count(sessions_count_values(s), values));
    output_printf(out, "memory      %s between calls, %s in a call of %" PRId64 " x %" PRId64 "\n",
                  human_bytes(s->memory_bytes, resident), human_bytes(s->peak_bytes, peak),
                  s->batch_size, s->sequence_length);
    output_printf(out, "step        %" PRId64 "%s\n", s->step,
                  s->accumulated ? " (gradients have accumulated since)" : "");
    if (sessions_placement(s, placement)[0])
        output_printf(out, "backend     %s, the rest on the CPU\n", placement);
    if (strcmp(s->accumulation, "FAST") == 0)
        output_text(out, "additions   in any order (FAST)\n");
    output_printf(out, "lease       %d s from the last call on\n", s->lease_seconds);
}

static enum octet_status create(struct session *session, struct octet_error *err)
{
    Octet__V1__Session *made = NULL;

    progress_start("octet session create");
    enum octet_status status = sessions_create(session, session->arguments->from, &made, err);
    progress_end();
    if (status == OCTET_OK)
        print_session(session, made);
    return status;
}

static enum octet_status list(struct session *session, struct octet_error *err)
{
    static const struct column columns[] = {{"SESSION", false}, {"MODEL", false}, {"MODE", false},
                                            {"BACKEND", false}, {"STEP", true},   {"MEMORY", true},
                                            {"PEAK", true}};
    Octet__V1__ListSessionsRequest request = OCTET__V1__LIST_SESSIONS_REQUEST__INIT;
    ProtobufCMessage *message;
    enum octet_status status =
        session_ask(session, "ListSessions", &request.base,
                    &octet__v1__list_sessions_response__descriptor, &message, err);

    if (status != OCTET_OK || print_json(session, message))
        return status;
    const Octet__V1__ListSessionsResponse *all = (Octet__V1__ListSessionsResponse *)message;
    octet_arena *arena = session->arena;
    struct table *table = table_create(arena, columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; table && i < all->n_sessions; i++) {
        const Octet__V1__Session *s = all->sessions[i];
        char resident[32], peak[32];
        const char *cells[] = {
            s->session_id,
            s->model,
            mode_name(s->mode),
            s->backend,
            octet_arena_format(arena, "%" PRId64, s->step),
            octet_arena_format(arena, "%s", human_bytes(s->memory_bytes, resident)),
            octet_arena_format(arena, "%s", human_bytes(s->peak_bytes, peak))};
        if (!table_add(table, cells, COLOUR_NONE))
            table = NULL;
    }
    if (!table)
        return octet_arena_exhausted(arena, err);
    if (all->n_sessions)
        table_print(table, session->out);
    else
        fputs("octet: the daemon holds no session\n", stderr);
    return OCTET_OK;
}

static enum octet_status show(struct session *session, struct octet_error *err)
{
    Octet__V1__DescribeSessionRequest request = OCTET__V1__DESCRIBE_SESSION_REQUEST__INIT;
    ProtobufCMessage *message;

    request.session_id = oct_wire_text(session->arena, session->arguments->operands.items[0]);
    if (!request.session_id)
        return octet_arena_exhausted(session->arena, err);
    enum octet_status status = session_ask(session, "DescribeSession", &request.base,
                                           &octet__v1__session__descriptor, &message, err);
    if (status == OCTET_OK)
        print_session(session, (Octet__V1__Session *)message);
    return status;
}

static Octet__V1__TensorKind kind_of(const struct session *session)
{
    const char *kind = session->arguments->kind;

    if (kind && strcmp(kind, "gradient") == 0)
        return OCTET__V1__TENSOR_KIND__TENSOR_KIND_GRADIENT;
    if (kind && strcmp(kind, "optimizer") == 0)
        return OCTET__V1__TENSOR_KIND__TENSOR_KIND_OPTIMIZER;
    return OCTET__V1__TENSOR_KIND__TENSOR_KIND_PARAMETER;
}

static void print_transfer(struct session *session, const char *verb, int64_t tensors,
                           int64_t bytes)
{
    char text[32];

    output_printf(session->out, "%s %" PRId64 " arrays, %s\n", verb, tensors,
                  human_bytes(bytes, text));
}

static enum octet_status put(struct session *session, struct octet_error *err)
{
    const struct text_list *operands = &session->arguments->operands;
    int64_t tensors = 0, bytes = 0;
    enum octet_status status = transfer_put(session, operands->items[0], kind_of(session),
                                            operands->items[1], &tensors, &bytes, err);

    if (status == OCTET_OK)
        print_transfer(session, "put", tensors, bytes);
    return status;
}

static enum octet_status get(struct session *session, struct octet_error *err)
{
    const struct arguments *a = session->arguments;
    int64_t tensors = 0, bytes = 0;
    enum octet_status status =
        transfer_get(session, a->operands.items[0], kind_of(session),
                     (char **)(uintptr_t)(a->operands.items + 1), a->operands.count - 1, a->output,
                     &tensors, &bytes, err);

    if (status == OCTET_OK)
        print_transfer(session, "got", tensors, bytes);
    return status;
}

static void print_checkpoint(struct session *session, const char *verb,
                             const Octet__V1__Checkpoint *c)
{
    char text[32];

    if (!print_json(session, &c->base))
        output_printf(session->out, "%s checkpoint '%s': step %" PRId64 ", %s, digest %s\n", verb,
                      c->name, c->step, human_bytes(c->bytes, text), c->digest);
}

static enum octet_status save(struct session *session, struct octet_error *err)
{
    const struct text_list *operands = &session->arguments->operands;
    Octet__V1__Checkpoint *made = NULL;

    progress_start("octet session save");
    enum octet_status status =
        sessions_save(session, operands->items[0], operands->items[1], &made, err);
    progress_end();
    if (status == OCTET_OK)
        print_checkpoint(session, "saved", made);
    return status;
}

static enum octet_status load(struct session *session, struct octet_error *err)
{
    const struct text_list *operands = &session->arguments->operands;
    Octet__V1__LoadCheckpointRequest request = OCTET__V1__LOAD_CHECKPOINT_REQUEST__INIT;
    ProtobufCMessage *message;

    request.session_id = oct_wire_text(session->arena, operands->items[0]);
    request.name = oct_wire_text(session->arena, operands->items[1]);
    request.request_id = request_id(session->arena, "load", -1);
    if (!request.session_id || !request.name || !request.request_id)
        return octet_arena_exhausted(session->arena, err);
    progress_start("octet session load");
    enum octet_status status = session_ask(session, "LoadCheckpoint", &request.base,
                                           &octet__v1__checkpoint__descriptor, &message, err);
    progress_end();
    if (status == OCTET_OK)
        print_checkpoint(session, "loaded", (Octet__V1__Checkpoint *)message);
    return status;
}

static enum octet_status delete (struct session *session, struct octet_error *err) {
    const char *session_id = session->arguments->operands.items[0];
    enum octet_status status = sessions_delete(session, session_id, err);

    if (status == OCTET_OK) output_printf(session->out, "ended session %s\n", session_id);
    return status;
}

static enum octet_status checkpoints(struct session *session, struct octet_error *err)
{
    static const struct column columns[] = {
        {"CHECKPOINT", false}, {"MODEL", false}, {"STEP", true}, {"BYTES", true}, {"SAVED", false}};
    Octet__V1__ListCheckpointsRequest request = OCTET__V1__LIST_CHECKPOINTS_REQUEST__INIT;
    ProtobufCMessage *message;
    octet_arena *arena = session->arena;
    enum octet_status status =
        session_ask(session, "ListCheckpoints", &request.base,
                    &octet__v1__list_checkpoints_response__descriptor, &message, err);

    if (status != OCTET_OK || print_json(session, message))
        return status;
    const Octet__V1__ListCheckpointsResponse *all = (Octet__V1__ListCheckpointsResponse *)message;
    struct table *table = table_create(arena, columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; table && i < all->n_checkpoints; i++) {
        const Octet__V1__Checkpoint *c = all->checkpoints[i];
        time_t when = (time_t)c->saved_at;
        struct tm parts;
        char bytes[32], saved[32] = "";
        if (localtime_r(&when, &parts))
            strftime(saved, sizeof saved, "%Y-%m-%d %H:%M:%S", &parts);
        const char *cells[] = {c->name, c->model, octet_arena_format(arena, "%" PRId64, c->step),
                               octet_arena_format(arena, "%s", human_bytes(c->bytes, bytes)),
                               octet_arena_format(arena, "%s", saved)};
        if (!table_add(table, cells, COLOUR_NONE))
            table = NULL;
    }
    if (!table)
        return octet_arena_exhausted(arena, err);
    if (all->n_checkpoints)
        table_print(table, session->out);
    else
        fputs("octet: the daemon has no checkpoint\n", stderr);
    return OCTET_OK;
}

int run_session(struct session *session)
{
    static const struct {
        const char *name;
        enum octet_status (*run)(struct session *session, struct octet_error *err);
    } actions[] = {{"create", create}, {"list", list},     {"show", show},
                   {"put", put},       {"get", get},       {"save", save},
                   {"load", load},     {"delete", delete}, {"checkpoints", checkpoints}};
    struct octet_error err = {0};

    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
        if (strcmp(actions[i].name, session->arguments->topic) == 0)
            return actions[i].run(session, &err) == OCTET_OK ? EXIT_FINE : report(session, &err);
    return EXIT_FAILED; /* the parser lets no other through */
}
