/* The methods that make sessions, tell of them and end them. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/convert.h"
#include "wire/held.h"

static int64_t clamp(uint64_t bytes)
{
    return bytes > INT64_MAX ? INT64_MAX : (int64_t)bytes;
}

static int32_t seconds(int64_t ms)
{
    return (int32_t)(ms / 1000);
}

/* ---- The message Session ---- */

bool oct_wire_put_memory(octet_arena *arena, const struct octet_session_memory *from,
                         Octet__V1__SessionMemory **out)
{
    Octet__V1__SessionMemory *to = oct_wire_new(arena, &octet__v1__session_memory__descriptor);

    *out = to;
    if (!to)
        return false;
    to->parameters = clamp(from->parameters);
    to->gradients = clamp(from->gradients);
    to->moments = clamp(from->moments);
    to->activations = clamp(from->activations);
    to->scratch = clamp(from->scratch);
    to->peak = clamp(from->peak);
    to->resident = clamp(from->resident);
    return true;
}

static bool put_info(octet_arena *arena, const struct octet_held_info *from, Octet__V1__Session *to)
{
    to->session_id = oct_wire_text(arena, from->id);
    to->model = oct_wire_text(arena, from->model);
    to->memory_bytes = clamp(from->memory.resident);
    to->peak_bytes = clamp(from->memory.peak);
    to->step = from->step;
    to->accumulated = from->accumulated;
    to->mode = from->mode == OCTET_SESSION_INFER ? OCTET__V1__SESSION_MODE__SESSION_MODE_INFER
                                                 : OCTET__V1__SESSION_MODE__SESSION_MODE_TRAIN;
    to->accumulation = (char *)octet_accumulation_name(from->accumulation);
    to->backend = (char *)from->backend;
    to->batch_size = from->batch_size;
    to->sequence_length = from->sequence_length;
    to->lease_seconds = seconds(from->lease_ms);
    return to->session_id && to->model && oct_wire_put_memory(arena, &from->memory, &to->memory);
}

static enum octet_status answer(const struct octet_call *call, const octet_held *held,
                                bool replayed, ProtobufCMessage **response, struct octet_error *err)
{
    octet_plan *plan = octet_session_plan(held->session);
    Octet__V1__Session *out = oct_wire_new(call->arena, &octet__v1__session__descriptor);
    struct octet_held_info info;

    octet_held_tell(held, &info);
    if (!out || !put_info(call->arena, &info, out) ||
        !oct_wire_put_parameters(call->arena, plan, &out->n_parameters, &out->parameters))
        return octet_arena_exhausted(call->arena, err);
    out->replayed = replayed;
    *response = &out->base;
    return oct_wire_put_trace(call->arena, plan, &out->trace, err);
}

/* ---- CreateSession ---- */

struct creation {
    const struct octet_call *call;
    const Octet__V1__CreateSessionRequest *in;
    struct octet_session_options options;
    struct octet_config_input input;
    octet_rules *rules;
    bool has_model; /* else the checkpoint's */
    const octet_config *config;
    const char *directory, *note;
    uint64_t admitted_bytes;
    bool is_admitted;
    octet_held *held;
};

/* The names that a client may give. */
static void list_backends(const struct octet_server_facts *facts, char *text, size_t size)
{
    size_t used = 0;

    for (size_t i = 0; i < facts->backend_count && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s:%s", i ? ", " : "",
                                 facts->backends[i].name, facts->backends[i].device);
}

/* *out NULL: the CPU. */
static enum octet_status find_backend(const struct octet_server_facts *facts,
                                      const Octet__V1__Placement *placement, octet_backend **out,
                                      struct octet_error *err)
{
    const char *name = placement ? placement->backend : "";
    const char *device = placement ? placement->device : "";
    bool has_name = false;
    char text[256] = "cpu:0";

    *out = NULL;
    for (size_t i = 0; i < facts->backend_count; i++) {
        const struct octet_server_backend *b = &facts->backends[i];
        if (name[0] && strcmp(b->name, name) != 0)
            continue;
        has_name = true;
        if (device[0] && strcmp(b->device, device) != 0)
            continue;
        *out = b->opened;
        return OCTET_OK;
    }
    bool is_cpu = (!name[0] || strcmp(name, "cpu") == 0) && (!device[0] || device[0] == '0');
    if (!facts->backend_count && is_cpu)
        return OCTET_OK;
    list_backends(facts, text, sizeof text);
    if (!has_name && name[0])
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "placement.backend",
                          "'%.100s' is no backend of this server; it has %s", name, text);
    return octet_fail(err, OCTET_INVALID_ARGUMENT, "placement.device",
                      "'%.100s%s%.100s' is no device of this server; it has %s", name,
                      name[0] ? ":" : "", device, text);
}

static enum octet_status check_placement(const struct octet_server_facts *facts,
                                         const Octet__V1__Placement *placement,
                                         struct octet_error *err)
{
    octet_backend *backend;

    if (placement && placement->memory_limit_bytes < 0)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "placement.memory_limit_bytes",
                          "%" PRId64 " is negative; 0 stands for no limit of its own",
                          placement->memory_limit_bytes);
    return find_backend(facts, placement, &backend, err);
}

static enum octet_status check_request(const struct octet_call *call,
                                       const Octet__V1__CreateSessionRequest *in,
                                       struct octet_error *err)
{
    struct octet_graph_options sizes;
    enum octet_status status = oct_wire_check_id(in->request_id, err);

    if (status == OCTET_OK)
        status = oct_wire_sizes(in->batch_size, in->sequence_length, &sizes, err);
    if (status == OCTET_OK)
        status = check_placement(call->facts, in->placement, err);
    if (status != OCTET_OK)
        return status;
    if (in->adapter)
        return octet_fail(err, OCTET_UNIMPLEMENTED, "adapter", "adapters are not supported");
    if (in->lease_seconds < 0 || in->lease_seconds > call->host->lease_ms_max / 1000)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "lease_seconds",
                          "%" PRId32 " is not in 0 .. %" PRId64 " (0: the server's, %" PRId64 ")",
                          in->lease_seconds, call->host->lease_ms_max / 1000,
                          call->host->lease_ms / 1000);
    if (in->start_case == OCTET__V1__CREATE_SESSION_REQUEST__START_CHECKPOINT)
        return oct_wire_check_checkpoint(in->checkpoint, "checkpoint", err);
    return OCTET_OK;
}

/* What the sessions of this server leave, or the client's own limit if that is less. */
static void set_limit(struct creation *c)
{
    const Octet__V1__Placement *placement = c->in->placement;
    uint64_t limit = placement ? (uint64_t)placement->memory_limit_bytes : 0;
    uint64_t room = c->has_model ? UINT64_MAX : c->call->host->room(c->call->host->user);

    if (limit == 0 || room < limit)
        limit = room;
    c->options.memory_limit_bytes = limit == UINT64_MAX ? 0 : limit ? limit : 1;
}

static enum octet_status read_request(struct creation *c, struct octet_error *err)
{
    const Octet__V1__CreateSessionRequest *in = c->in;
    const Octet__V1__ModelConfig *model = in->model;
    enum octet_status status = OCTET_OK;

    c->has_model = in->start_case != OCTET__V1__CREATE_SESSION_REQUEST__START_CHECKPOINT ||
                   (model && (model->name[0] || model->yaml[0] || model->n_overrides));
    c->options = (struct octet_session_options){
        .mode = in->mode == OCTET__V1__SESSION_MODE__SESSION_MODE_INFER ? OCTET_SESSION_INFER
                                                                        : OCTET_SESSION_TRAIN,
        .accumulation = in->accumulation == OCTET__V1__ACCUMULATION__ACCUMULATION_FAST
                            ? OCTET_FAST
                            : OCTET_EXACT_ORDER,
        .batch_size = in->batch_size,
        .sequence_length = in->sequence_length,
        .threads = c->call->facts->lane_threads,
        .account = c->call->host->account.take ? &c->call->host->account : NULL,
    };
    set_limit(c);
    status = find_backend(c->call->facts, in->placement, &c->options.backend, err);
    if (status != OCTET_OK)
        return status;
    if (!c->has_model && in->n_rules)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "rules",
                          "a session from a checkpoint's own model takes its rules too; give the "
                          "model to set others");
    if (in->start_case == OCTET__V1__CREATE_SESSION_REQUEST__START_CHECKPOINT)
        status = c->call->host->directory(c->call->host->user, false, &c->directory, err);
    if (status == OCTET_OK)
        status = oct_wire_rules(c->call, in->n_rules, in->rules, &c->rules, err);
    if (status == OCTET_OK)
        status = oct_wire_config_input(c->call, model, &c->input, err);
    if (status == OCTET_OK && c->has_model)
        status = oct_wire_config(c->call, model, "model", &c->config, err);
    return status;
}

static enum octet_status admit(struct creation *c, uint64_t peak_bytes, struct octet_error *err)
{
    const struct octet_host *host = c->call->host;
    enum octet_status status = host->admit(host->user, peak_bytes, err);

    c->is_admitted = status == OCTET_OK;
    c->admitted_bytes = peak_bytes;
    return status;
}

static enum octet_status hold(struct creation *c, octet_session *session, struct octet_error *err)
{
    c->held = octet_held_create(session);
    return c->held ? OCTET_OK : octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
}

/* From a config: its memory is known, and admitted, before anything is made. */
static enum octet_status make(struct creation *c, struct octet_error *err)
{
    const struct octet_call *call = c->call;
    struct octet_session_memory memory;
    octet_session *session;
    enum octet_status status =
        octet_session_estimate(call->context, c->config, c->rules, &c->options, &memory, err);

    if (status != OCTET_OK)
        return oct_wire_name_key(call, c->config, "model", err);
    status = admit(c, memory.peak, err);
    if (status == OCTET_OK) {
        status =
            octet_session_create(call->context, &c->input, c->rules, &c->options, &session, err);
        if (status != OCTET_OK && status != OCTET_RESOURCE_EXHAUSTED)
            oct_wire_name_key(call, c->config, "model", err);
    }
    return status == OCTET_OK ? hold(c, session, err) : status;
}

static enum octet_status restore(struct creation *c, struct octet_error *err)
{
    octet_session *session;
    enum octet_status status =
        octet_session_restore(c->call->context, c->directory, c->in->checkpoint, &c->options,
                              c->call->arena, &c->note, &session, err);

    if (status == OCTET_OK)
        status = hold(c, session, err);
    if (status == OCTET_OK)
        status = admit(c, c->held->memory.peak, err);
    return status;
}

static enum octet_status initialise(struct creation *c, uint64_t seed, struct octet_error *err)
{
    struct octet_compute compute;
    enum octet_status status = oct_wire_compute(c->call, &compute, err);

    return status == OCTET_OK ? octet_session_initialise(c->held->session, seed, &compute, err)
                              : status;
}

static enum octet_status fill(struct creation *c, struct octet_error *err)
{
    const Octet__V1__CreateSessionRequest *in = c->in;
    struct octet_checkpoint loaded;
    const char *seed;

    switch (in->start_case) {
    case OCTET__V1__CREATE_SESSION_REQUEST__START_EMPTY:
        return OCTET_OK;
    case OCTET__V1__CREATE_SESSION_REQUEST__START_SEED:
        return initialise(c, in->seed, err);
    case OCTET__V1__CREATE_SESSION_REQUEST__START_CHECKPOINT:
        return c->has_model ? octet_session_load(c->held->session, c->directory, in->checkpoint,
                                                 c->call->arena, &c->note, &loaded, err)
                            : OCTET_OK;
    default:
        seed = oct_wire_setting(c->call->arena, c->config, "init_weights_seed", NULL);
        return initialise(c, seed ? strtoull(seed, NULL, 10) : 0, err);
    }
}

/* Of a session that was made from a checkpoint alone. */
static const char *restored_model(const struct creation *c)
{
    const struct octet_checkpoint *list;
    size_t count;

    if (octet_checkpoint_list(c->directory, c->call->arena, &list, &count, NULL) == OCTET_OK)
        for (size_t i = 0; i < count; i++)
            if (strcmp(list[i].name, c->in->checkpoint) == 0)
                return list[i].model;
    return "";
}

static void name(struct creation *c)
{
    octet_held *held = c->held;
    const char *model = c->config ? octet_config_model_name(c->config) : restored_model(c);
    int64_t lease_ms = (int64_t)c->in->lease_seconds * 1000;

    strncpy(held->model, model, sizeof held->model - 1);
    strncpy(held->request_id, c->in->request_id, sizeof held->request_id - 1);
    held->accumulation = c->options.accumulation;
    held->lease_ms = lease_ms ? lease_ms : c->call->host->lease_ms;
    if (c->note)
        oct_wire_read_note(held, c->note);
    oct_wire_tell_state(held);
}

static enum octet_status create(struct creation *c, ProtobufCMessage **response,
                                struct octet_error *err)
{
    const struct octet_host *host = c->call->host;
    enum octet_status status = read_request(c, err);

    if (status == OCTET_OK)
        status = c->has_model ? make(c, err) : restore(c, err);
    if (status == OCTET_OK)
        status = fill(c, err);
    if (status == OCTET_OK) {
        name(c);
        status = answer(c->call, c->held, false, response, err);
    }
    if (status == OCTET_OK) {
        char *id = octet_arena_alloc(c->call->arena, OCTET_SESSION_ID_BYTES);
        ((Octet__V1__Session *)*response)->session_id = id;
        if (!id)
            status = octet_arena_exhausted(c->call->arena, err);
    }
    /* Last, since others see the session from here on; only its id is still to come. */
    if (status == OCTET_OK) {
        char *id = ((Octet__V1__Session *)*response)->session_id;
        status = host->keep(host->user, c->held, id, err);
        if (status == OCTET_OK) {
            c->held = NULL;
            c->is_admitted = false;
            c->call->exchange->has_changed = true;
            memcpy(c->call->exchange->session, id, OCTET_SESSION_ID_BYTES);
        }
    }
    octet_held_destroy(c->held);
    if (c->is_admitted)
        host->withdraw(host->user, c->admitted_bytes);
    octet_rules_unref(c->rules);
    return status;
}

/* A session that another call with this request_id has made: it must be lent to be told of. */
static enum octet_status want(const struct octet_call *call, const char *id,
                              struct octet_error *err)
{
    memcpy(call->exchange->wanted_session, id, OCTET_SESSION_ID_BYTES);
    return octet_fail(err, OCTET_UNAVAILABLE, "request_id", "session '%s' was not lent to the call",
                      id);
}

enum octet_status oct_wire_create_session(const struct octet_call *call,
                                          const ProtobufCMessage *request,
                                          ProtobufCMessage **response, struct octet_error *err)
{
    const Octet__V1__CreateSessionRequest *in = (const Octet__V1__CreateSessionRequest *)request;
    struct creation creation = {.call = call, .in = in};
    char known[OCTET_SESSION_ID_BYTES] = "";

    if (!call->host || !call->exchange)
        return octet_fail(err, OCTET_FAILED_PRECONDITION, NULL,
                          "sessions are held by a server; there is none here");
    if (call->session) {
        memcpy(call->exchange->session, call->session->id, OCTET_SESSION_ID_BYTES);
        return answer(call, call->session, true, response, err);
    }
    enum octet_status status = check_request(call, in, err);
    if (status == OCTET_OK && in->request_id[0])
        status = call->host->begin(call->host->user, in->request_id, known, err);
    if (status != OCTET_OK)
        return status;
    if (known[0])
        return want(call, known, err);
    status = create(&creation, response, err);
    if (in->request_id[0])
        call->host->end(call->host->user, in->request_id);
    return status;
}

/* ---- The others ---- */

enum octet_status oct_wire_describe_session(const struct octet_call *call,
                                            const ProtobufCMessage *request,
                                            ProtobufCMessage **response, struct octet_error *err)
{
    const Octet__V1__DescribeSessionRequest *in =
        (const Octet__V1__DescribeSessionRequest *)request;
    octet_held *held;
    enum octet_status status = oct_wire_session(call, in->session_id, &held, err);

    return status == OCTET_OK ? answer(call, held, false, response, err) : status;
}

enum octet_status oct_wire_list_sessions(const struct octet_call *call,
                                         const ProtobufCMessage *request,
                                         ProtobufCMessage **response, struct octet_error *err)
{
    Octet__V1__ListSessionsResponse *out =
        oct_wire_new(call->arena, &octet__v1__list_sessions_response__descriptor);
    struct octet_held_info *list = NULL;
    ProtobufCMessage **messages;
    size_t count = 0;
    enum octet_status status = OCTET_OK;

    (void)request;
    if (!out)
        return octet_arena_exhausted(call->arena, err);
    if (call->host)
        status = call->host->list(call->host->user, call->arena, &list, &count, err);
    if (status != OCTET_OK)
        return status;
    if (!oct_wire_new_list(call->arena, &octet__v1__session__descriptor, count, &messages))
        return octet_arena_exhausted(call->arena, err);
    for (size_t i = 0; i < count; i++)
        if (!put_info(call->arena, &list[i], (Octet__V1__Session *)messages[i]))
            return octet_arena_exhausted(call->arena, err);
    out->sessions = (Octet__V1__Session **)messages;
    out->n_sessions = count;
    *response = &out->base;
    return OCTET_OK;
}

enum octet_status oct_wire_keep_alive(const struct octet_call *call,
                                      const ProtobufCMessage *request, ProtobufCMessage **response,
                                      struct octet_error *err)
{
    const Octet__V1__KeepAliveRequest *in = (const Octet__V1__KeepAliveRequest *)request;
    Octet__V1__KeepAliveResponse *out =
        oct_wire_new(call->arena, &octet__v1__keep_alive_response__descriptor);
    int64_t lease_ms;
    octet_held *none;

    if (!out)
        return octet_arena_exhausted(call->arena, err);
    if (!call->host || !call->host->touch(call->host->user, in->session_id, &lease_ms)) {
        struct octet_call alone = *call; /* it needs no loan: what is not there is not wanted */
        alone.exchange = NULL;
        return oct_wire_session(&alone, in->session_id, &none, err);
    }
    out->lease_seconds = seconds(lease_ms);
    *response = &out->base;
    return OCTET_OK;
}

/* The host ends it when the call is done. */
enum octet_status oct_wire_delete_session(const struct octet_call *call,
                                          const ProtobufCMessage *request,
                                          ProtobufCMessage **response, struct octet_error *err)
{
    const Octet__V1__DeleteSessionRequest *in = (const Octet__V1__DeleteSessionRequest *)request;
    Octet__V1__DeleteSessionResponse *out =
        oct_wire_new(call->arena, &octet__v1__delete_session_response__descriptor);
    octet_held *held;

    if (!out)
        return octet_arena_exhausted(call->arena, err);
    *response = &out->base;
    return oct_wire_session(call, in->session_id, &held, err);
}
