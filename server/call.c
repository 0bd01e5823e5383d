/* See call.h. The order here is the order of a call's life. */
#include "call.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <grpc/byte_buffer_reader.h>
#include <grpc/support/alloc.h>
#include <grpc/support/time.h>

#include "credentials.h"
#include "job.h"
#include "log.h"
#include "loop.h"
#include "octet/v1/octet.pb-c.h"
#include "rpc.h"

enum { ACCEPTS = 16 }; /* calls that may arrive before the loop comes to ask for more */

static void on_arrival(struct event *event, bool ok);
static void on_closing(struct event *event, bool ok);
static void on_receipt(struct event *event, bool ok);
static void on_sending(struct event *event, bool ok);
static void on_ending(struct event *event, bool ok);
static void on_job_done(struct event *event, bool ok);
static void tell(struct watcher *watcher);
static void set_outgoing(struct call *call, grpc_slice slice);
static void begin(struct call *call);
static void receive(struct call *call);
static void go_on(struct call *call, grpc_byte_buffer *body);
static void release_when_over(struct call *call);

static bool accept_one(struct loop *loop)
{
    struct call *call = calloc(1, sizeof *call);

    if (!call)
        return false;
    call->loop = loop;
    call->arrival.deliver = on_arrival;
    call->closing.deliver = on_closing;
    call->receipt.deliver = on_receipt;
    call->sending.deliver = on_sending;
    call->ending.deliver = on_ending;
    grpc_call_details_init(&call->details);
    grpc_metadata_array_init(&call->metadata);
    loop->accepting++;
    rpc_request_call(loop->rpc, &call->handle, &call->details, &call->metadata, &call->arrival);
    return true;
}

void call_accept_all(struct loop *loop)
{
    while (loop->accepting < ACCEPTS && loop->phase != LOOP_CLOSING && accept_one(loop))
        ;
}

static void destroy(struct call *call)
{
    if (call->received)
        grpc_byte_buffer_destroy(call->received);
    if (call->outgoing)
        grpc_byte_buffer_destroy(call->outgoing);
    if (call->exchange.state_free)
        call->exchange.state_free(call->exchange.state);
    grpc_metadata_array_destroy(&call->metadata);
    grpc_call_details_destroy(&call->details);
    if (call->handle)
        grpc_call_unref(call->handle);
    free(call);
}

static void log_end(const struct call *call)
{
    if (!log_enabled(LOG_LEVEL_DEBUG))
        return;
    log_event(LOG_LEVEL_DEBUG, "call", log_text("method", call->method ? call->method->path : "?"),
              log_text("status", call->is_gone ? "gone" : octet_status_name(call->status)),
              log_text("peer", call->peer), log_text("id", call->request_id),
              log_number("us", (int64_t)((octet_now_ns() - call->arrived_ns) / 1000)));
}

static void join_list(struct call *call)
{
    struct loop *loop = call->loop;

    call->next = loop->calls;
    if (call->next)
        call->next->previous = call;
    loop->calls = call;
    loop->open++;
    loop->counts.calls++;
}

static void leave_list(struct call *call)
{
    struct loop *loop = call->loop;

    if (call->previous)
        call->previous->next = call->next;
    else
        loop->calls = call->next;
    if (call->next)
        call->next->previous = call->previous;
    loop->open--;
    loop->streams -= call->is_stream;
    loop->on_call_freed(loop->drain);
}

/* Frees the call if nothing more will happen to it. */
static void settle(struct call *call)
{
    if (call->owed > 0 || call->job || !(call->is_gone || call->is_ending))
        return;
    log_end(call);
    if (call->held_bytes)
        scheduler_hold(&call->loop->schedulers[call->method->pool], -call->held_bytes);
    if (call->is_gone)
        call->loop->counts.cancelled++;
    else if (call->status == OCTET_OK)
        call->loop->counts.ok++;
    else
        call->loop->counts.failed++;
    leave_list(call);
    destroy(call);
}

/* An event that gRPC owed has been dealt with. Last thing in its function: the debt keeps the call
 * alive until then. */
static void settle_one(struct call *call)
{
    call->owed--;
    settle(call);
}

/* Starts a batch whose event must come back before the call may go. */
static void start(struct call *call, const grpc_op *ops, size_t count, struct event *event)
{
    call->owed++;
    rpc_start(call->handle, ops, count, event);
}

static void on_arrival(struct event *event, bool ok)
{
    struct call *call = OWNER_OF(event, struct call, arrival);
    struct loop *loop = call->loop;

    loop->accepting--;
    if (!ok) { /* gRPC takes no more calls */
        destroy(call);
        return;
    }
    begin(call);
    /* A supply for bursts; it is filled up when there is time, see on_ending. */
    if (loop->accepting < ACCEPTS / 2)
        call_accept_all(loop);
}

/* ---- What came with the call ---- */

static bool slice_is(grpc_slice slice, const char *text)
{
    size_t length = strlen(text);

    return GRPC_SLICE_LENGTH(slice) == length &&
           memcmp(GRPC_SLICE_START_PTR(slice), text, length) == 0;
}

static const grpc_slice *metadata_find(const struct call *call, const char *key)
{
    for (size_t i = 0; i < call->metadata.count; i++)
        if (slice_is(call->metadata.metadata[i].key, key))
            return &call->metadata.metadata[i].value;
    return NULL;
}

/* An id goes into logs and metadata: only what can do no harm there is taken over. */
static bool take_request_id(struct call *call, const char *key)
{
    const grpc_slice *value = metadata_find(call, key);
    size_t length = value ? GRPC_SLICE_LENGTH(*value) : 0;

    if (length == 0 || length >= sizeof call->request_id)
        return false;
    const char *text = (const char *)GRPC_SLICE_START_PTR(*value);
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        if (!((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
              strchr("-._:", c)) ||
            c == 0)
            return false;
    }
    memcpy(call->request_id, text, length);
    call->request_id[length] = 0;
    return true;
}

/* SplitMix64 of a counter: ids do not repeat within a process and are hard to mistake for
 * another's. */
static void make_request_id(struct call *call)
{
    uint64_t x = call->loop->id_seed + ++call->loop->id_count * 0x9e3779b97f4a7c15u;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    snprintf(call->request_id, sizeof call->request_id, "%016" PRIx64, x ^ x >> 31);
}

static void read_arrival(struct call *call)
{
    gpr_timespec never = gpr_inf_future(call->details.deadline.clock_type);

    call->arrived_ns = octet_now_ns();
    if (gpr_time_cmp(call->details.deadline, never) != 0) {
        gpr_timespec left =
            gpr_time_sub(call->details.deadline, gpr_now(call->details.deadline.clock_type));
        int64_t left_ns = left.tv_sec * 1000000000 + left.tv_nsec;
        call->deadline_ns = left_ns > 0 ? call->arrived_ns + (uint64_t)left_ns : 1;
    }
    char *peer = grpc_call_get_peer(call->handle);
    snprintf(call->peer, sizeof call->peer, "%s", peer);
    gpr_free(peer);
    call->peer_key = peer_key_parse(call->peer);
    guard_call(call->loop->guard, &call->peer_key);
    if (!take_request_id(call, "octet-request-id") && !take_request_id(call, "x-request-id"))
        make_request_id(call);
}

/* ---- Replies ---- */

static grpc_metadata pair(const char *key, const char *value)
{
    return (grpc_metadata){.key = grpc_slice_from_static_string(key),
                           .value = grpc_slice_from_static_string(value)};
}

/* Metadata of the first batch that sends anything. The texts lie in the call and outlive the batch.
 */
static size_t put_initial(struct call *call, grpc_op *op)
{
    if (call->has_sent)
        return 0;
    call->has_sent = true;
    call->initial[0] = pair("octet-request-id", call->request_id);
    *op = (grpc_op){.op = GRPC_OP_SEND_INITIAL_METADATA};
    op->data.send_initial_metadata.count = 1;
    if (call->exchange.session[0]) /* so that a proxy can send the session's calls here */
        call->initial[op->data.send_initial_metadata.count++] =
            pair("octet-session", call->exchange.session);
    op->data.send_initial_metadata.metadata = call->initial;
    return 1;
}

static size_t put_message(struct call *call, grpc_op *op)
{
    *op = (grpc_op){.op = GRPC_OP_SEND_MESSAGE};
    op->data.send_message.send_message = call->outgoing;
    return 1;
}

/* text is copied by gRPC when the batch starts. */
static size_t put_status(struct call *call, grpc_op *op, grpc_slice *text)
{
    size_t count = 0;

    call->trailing[count++] = pair("octet-request-id", call->request_id);
    if (call->status == OCTET_RESOURCE_EXHAUSTED) {
        enum pool pool = call->method ? call->method->pool : POOL_COMPUTE;
        snprintf(call->retry_ms, sizeof call->retry_ms, "%" PRId64,
                 scheduler_retry_ms(&call->loop->schedulers[pool]));
        call->trailing[count++] = pair("retry-after-ms", call->retry_ms);
    }
    *op = (grpc_op){.op = GRPC_OP_SEND_STATUS_FROM_SERVER};
    op->data.send_status_from_server.trailing_metadata_count = count;
    op->data.send_status_from_server.trailing_metadata = call->trailing;
    op->data.send_status_from_server.status = (grpc_status_code)call->status;
    op->data.send_status_from_server.status_details = text;
    return 1;
}

static size_t put_closing(struct call *call, grpc_op *op)
{
    *op = (grpc_op){.op = GRPC_OP_RECV_CLOSE_ON_SERVER};
    op->data.recv_close_on_server.cancelled = &call->cancelled;
    call->is_closing_watched = true;
    return 1;
}

/* Asks for the event that tells of cancellation. Not at arrival, but as soon as the call's next
 * step is on its way: starting a batch takes gRPC some microseconds, and a client that goes while
 * its request is read ends the reading as well. */
static void watch_closing(struct call *call)
{
    grpc_op op;

    if (!call->is_closing_watched)
        start(call, &op, put_closing(call, &op), &call->closing);
}

/* Sends the status, with the last message if there is one. */
static void send_end(struct call *call)
{
    grpc_op ops[4];
    size_t count = put_initial(call, &ops[0]);
    grpc_slice text = grpc_slice_from_static_string(call->text);

    if (call->outgoing)
        count += put_message(call, &ops[count]);
    count += put_status(call, &ops[count], &text);
    if (!call->is_closing_watched)
        count += put_closing(call, &ops[count]);
    start(call, ops, count, &call->ending);
}

static void send_message(struct call *call)
{
    grpc_op ops[2];
    size_t count = put_initial(call, &ops[0]);

    count += put_message(call, &ops[count]);
    call->is_sending = true;
    call->sending_since_ns = octet_now_ns();
    start(call, ops, count, &call->sending);
}

/* The request is here (received bytes) or is not waited for any longer (0). The client of an upload
 * sends on while a lane has its last message, as far as gRPC's window goes, which grows to
 * megabytes: more is expected until all has been said. */
static void stop_receiving(struct call *call, int64_t received)
{
    struct guard *guard = call->loop->guard;

    if (received == 0 && call->is_receiving) /* what has come of it is freed by gRPC */
        call->loop->large_ns = octet_now_ns();
    call->is_receiving = false;
    if (received > 0 && call->method && call->method->shape == CALL_UPLOAD) {
        guard_count(guard, &call->peer_key, received);
        return;
    }
    if (call->is_expected)
        guard_settle(guard, &call->peer_key, call->method->request_bytes_max, received);
    call->is_expected = false;
}

static void give_place_back(struct call *call)
{
    if (call->has_place)
        scheduler_leave(&call->loop->schedulers[call->method->pool]);
    call->has_place = false;
}

void call_end(struct call *call, enum octet_status status, const char *text)
{
    if (call->is_gone || call->is_ending)
        return;
    give_place_back(call);
    health_unwatch(&call->watcher);
    stop_receiving(call, 0);
    call->is_ending = true;
    call->status = status;
    snprintf(call->text, sizeof call->text, "%s", text);
    release_when_over(call);
    if (!call->is_sending) /* else on_sending goes on from here */
        send_end(call);
}

static void end_with(struct call *call, const struct octet_error *error)
{
    char text[MESSAGE_BYTES];

    call_end(call, error->status, octet_error_message(error, text, sizeof text));
}

static void on_ending(struct event *event, bool ok)
{
    struct call *call = OWNER_OF(event, struct call, ending);

    (void)ok; /* false: the client did not wait for the status, which is its right */
    call_accept_all(call->loop);
    settle_one(call);
}

/* ---- Admission ---- */

static const struct method *find_method(const struct call *call)
{
    return services_find(&call->loop->services,
                         (const char *)GRPC_SLICE_START_PTR(call->details.method),
                         GRPC_SLICE_LENGTH(call->details.method));
}

/* Asks gRPC for the request. */
static void start_receipt(struct call *call)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};

    op.data.recv_message.recv_message = &call->received;
    rpc_start(call->handle, &op, 1, &call->receipt);
}

static enum octet_status unknown_method(const struct call *call, struct octet_error *err)
{
    int length = (int)GRPC_SLICE_LENGTH(call->details.method);

    return octet_fail(err, OCTET_UNIMPLEMENTED, NULL,
                      "method '%.*s' is unknown to this server; it serves octet.v1.Octet",
                      length > 200 ? 200 : length,
                      (const char *)GRPC_SLICE_START_PTR(call->details.method));
}

static bool may_call(const struct call *call)
{
    const grpc_slice *header;

    if (!call->loop->tokens || call->method->is_public)
        return true;
    header = metadata_find(call, "authorization");
    return header && tokens_accept(call->loop->tokens, (const char *)GRPC_SLICE_START_PTR(*header),
                                   GRPC_SLICE_LENGTH(*header));
}

/* A place in the queue; streams, which stay, are counted on their own. */
static enum octet_status admit(struct call *call, struct octet_error *err)
{
    struct loop *loop = call->loop;
    enum octet_status status;

    bool stays = call->method->shape == CALL_WATCH || call->method->shape == CALL_DIALOGUE;
    if (stays && loop->streams >= loop->config->limits.control_calls)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL,
                          "%" PRId64 " streams are open, as many as limits.control_calls allows",
                          loop->streams);
    if (call->method->shape != CALL_DIALOGUE) {
        status = scheduler_admit(&loop->schedulers[call->method->pool], err);
        if (status != OCTET_OK)
            return status;
        call->has_place = true;
    }
    call->is_stream = stays;
    loop->streams += call->is_stream;
    return OCTET_OK;
}

/* Why the call is not taken; OCTET_OK when it is, with its place. */
static enum octet_status judge(struct call *call, struct octet_error *err)
{
    struct loop *loop = call->loop;

    call->method = find_method(call);
    if (!call->method)
        return unknown_method(call, err);
    if (!may_call(call))
        return octet_fail(err, OCTET_UNAUTHENTICATED, NULL,
                          "this server wants a token: metadata 'authorization: Bearer TOKEN'");
    if (loop->phase == LOOP_CLOSING || (loop->phase == LOOP_DRAINING && !call->method->is_public))
        return octet_fail(err, OCTET_UNAVAILABLE, NULL, "the server is shutting down");
    return admit(call, err);
}

static void begin(struct call *call)
{
    struct octet_error error;

    join_list(call);
    read_arrival(call);
    if (judge(call, &error) == OCTET_OK) {
        receive(call);
    } else {
        call->loop->counts.refused++;
        guard_refused(call->loop->guard, &call->peer_key);
        end_with(call, &error);
    }
}

/* ---- Requests ---- */

static void receive(struct call *call)
{
    call->is_receiving = true;
    if (!call->is_expected)
        guard_expect(call->loop->guard, &call->peer_key, call->method->request_bytes_max);
    call->is_expected = true;
    call->receiving_since_ns = octet_now_ns();
    call->owed++;
    start_receipt(call);
}

bool call_is_late(const struct call *call, uint64_t now_ns, int64_t receive_ms)
{
    /* A dialogue may pause between its questions: it takes a place when one has arrived. */
    uint64_t limit_ms = (uint64_t)receive_ms;
    if (call->is_receiving && call->method->takes_tensors) /* 8 MiB/s is slow, and not late */
        limit_ms += (uint64_t)call->method->request_bytes_max / (8 << 10);
    return call->is_receiving && (call->has_place || call->method->shape == CALL_UPLOAD) &&
           now_ns - call->receiving_since_ns > limit_ms * 1000000u;
}

void call_check_sending(struct call *call, uint64_t now_ns, int64_t receive_ms)
{
    if (call->is_sending && call->method && call->method->shape == CALL_DOWNLOAD &&
        now_ns - call->sending_since_ns > (uint64_t)receive_ms * 1000000u)
        grpc_call_cancel(call->handle, NULL);
}

/* ---- Sessions ---- */

static void drop_job(struct call *call, const struct octet_error *error)
{
    job_free(call->job);
    call->job = NULL;
    end_with(call, error);
}

/* The session is the call's for a while, or (false) it has ended while the call waited for it. */
static void on_turn(struct claim *claim, bool granted)
{
    struct call *call = OWNER_OF(claim, struct call, claim);
    struct scheduler *scheduler = &call->loop->schedulers[call->method->pool];
    struct octet_error error;

    if (!granted) {
        scheduler_remove(scheduler, call->job);
        octet_fail(&error, OCTET_NOT_FOUND, "session_id",
                   "the session was deleted while the call waited for it");
        drop_job(call, &error);
        settle(call);
        return;
    }
    call->job->held = claim_held(claim);
    if (scheduler_unpark(scheduler, call->job, call->peer, &error) != OCTET_OK)
        drop_job(call, &error);
    scheduler_run(scheduler);
}

/* The id that a request starts with, as known writers put it: the first field. A glance: what it
 * says is only where the call waits, and the lane that decodes the request has the last word. */
static bool peek_session(const grpc_byte_buffer *body, char id[OCTET_SESSION_ID_BYTES])
{
    enum { TAG = 1 << 3 | 2 };
    grpc_byte_buffer_reader reader;
    grpc_slice *slice;
    bool is_found = false;

    if (!body || !grpc_byte_buffer_reader_init(&reader, (grpc_byte_buffer *)(uintptr_t)body))
        return false;
    if (grpc_byte_buffer_reader_peek(&reader, &slice)) {
        const uint8_t *bytes = GRPC_SLICE_START_PTR(*slice);
        size_t length = GRPC_SLICE_LENGTH(*slice);
        if (length > 2 && bytes[0] == TAG && bytes[1] > 0 && bytes[1] < OCTET_SESSION_ID_BYTES &&
            length >= 2 + (size_t)bytes[1]) {
            memcpy(id, bytes + 2, bytes[1]);
            id[bytes[1]] = 0;
            is_found = true;
        }
    }
    grpc_byte_buffer_reader_destroy(&reader);
    return is_found;
}

static enum octet_access access_of(const struct call *call)
{
    enum octet_access access =
        call->method->method ? call->method->method->access : OCTET_ACCESS_NONE;

    return access == OCTET_ACCESS_NONE ? OCTET_ACCESS_READ : access;
}

/* A parked job waits for its turn on the session. false: there is none of that id. */
static bool claim(struct call *call, const char *id)
{
    return sessions_claim(&call->loop->sessions, id, access_of(call), &call->claim, on_turn);
}

/* A call that has ended, or whose client is gone, gives its session up as soon as no lane works on
 * it. */
static void release_when_over(struct call *call)
{
    if (!call->job && (call->is_ending || call->is_gone))
        sessions_release(&call->loop->sessions, &call->claim);
}

/* The lane wants a session that it was not lent: the request named it where nobody glanced. Returns
 * false when the call ends instead. */
static bool lend(struct call *call, struct job *job)
{
    enum { LOANS_MAX = 4 };
    struct scheduler *scheduler = &call->loop->schedulers[call->method->pool];
    char id[OCTET_SESSION_ID_BYTES];

    memcpy(id, call->exchange.wanted_session, sizeof id);
    call->exchange.wanted_session[0] = 0;
    if (call->is_gone || call->is_ending || call->loans++ >= LOANS_MAX)
        return false;
    sessions_release(&call->loop->sessions, &call->claim);
    job->held = NULL;
    job->wants_session = false;
    scheduler_park_again(scheduler, job);
    if (claim(call, id))
        return true;
    scheduler_remove(scheduler, job);
    char field[sizeof job->error.field];
    memcpy(field, job->error.field, sizeof field);
    job->status = octet_fail(&job->error, OCTET_NOT_FOUND, field,
                             "there is no session '%s': it was deleted, its lease has ended, or "
                             "the server has started anew",
                             id);
    return false;
}

/* ---- Jobs ---- */

static struct job *make_job(struct call *call, grpc_byte_buffer *body)
{
    struct job *job = job_create(call, call->method, &call->loop->job_settings, body);

    if (!job)
        return NULL;
    job->cancel.deadline_ns = call->deadline_ns;
    job->done.deliver = on_job_done;
    job->queued_ns = octet_now_ns();
    job->exchange = &call->exchange;
    return job;
}

/* Metadata octet-session, by which proxies route, says it where the request does not start with it.
 */
static bool session_of(const struct call *call, char id[OCTET_SESSION_ID_BYTES])
{
    const grpc_slice *value;

    if (peek_session(call->job->body, id))
        return true;
    value = metadata_find(call, "octet-session");
    if (!value || GRPC_SLICE_LENGTH(*value) >= OCTET_SESSION_ID_BYTES)
        return false;
    memcpy(id, GRPC_SLICE_START_PTR(*value), GRPC_SLICE_LENGTH(*value));
    id[GRPC_SLICE_LENGTH(*value)] = 0;
    return id[0] != 0;
}

/* A session's call waits for its turn, others only for a lane. The job's place is there. */
static enum octet_status push(struct call *call, struct octet_error *err)
{
    struct scheduler *scheduler = &call->loop->schedulers[call->method->pool];
    const struct octet_method *method = call->method->method;
    char id[OCTET_SESSION_ID_BYTES];

    if (!method || method->access == OCTET_ACCESS_NONE || !session_of(call, id))
        return scheduler_push(scheduler, call->job, call->peer, err);
    enum octet_status status = scheduler_park(scheduler, call->job, err);
    if (status != OCTET_OK || claim(call, id))
        return status;
    /* Unknown: the request may still name another one, further on. */
    return scheduler_unpark(scheduler, call->job, call->peer, err);
}

/* The request becomes a job; what goes wrong ends the call. */
static void enqueue(struct call *call, grpc_byte_buffer *body)
{
    struct scheduler *scheduler = &call->loop->schedulers[call->method->pool];
    struct octet_error error;
    struct job *job = make_job(call, body);

    if (job && !call->has_place && scheduler_admit(scheduler, &error) != OCTET_OK) {
        job_free(job);
        end_with(call, &error);
        return;
    }
    if (!job) {
        call_end(call, OCTET_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    call->has_place = false; /* the job's now */
    call->job = job;
    if (push(call, &error) != OCTET_OK) {
        if (call->job) /* else it ended at once, for another reason */
            drop_job(call, &error);
        return;
    }
    scheduler_run(scheduler);
}

/* The next step of a stream that was admitted as a whole, and has its session. */
static void go_on(struct call *call, grpc_byte_buffer *body)
{
    struct scheduler *scheduler = &call->loop->schedulers[call->method->pool];
    struct job *job = make_job(call, body);

    if (!job || !scheduler_push_again(scheduler, job, call->peer)) {
        job_free(job);
        call_end(call, OCTET_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    job->held = claim_held(&call->claim);
    call->job = job;
    scheduler_run(scheduler);
}

static void check_request(struct call *call, grpc_byte_buffer *body)
{
    const struct method *method = call->method;
    size_t length = grpc_byte_buffer_length(body);
    char text[300];

    if (length == 0 && method->constant) {
        grpc_byte_buffer_destroy(body);
        set_outgoing(call,
                     grpc_slice_from_static_buffer(method->constant, method->constant_length));
        call_end(call, OCTET_OK, "");
        return;
    }
    if (length <= (size_t)method->request_bytes_max) {
        if (method->shape == CALL_UPLOAD && call->claim.is_granted)
            go_on(call, body);
        else
            enqueue(call, body);
        return;
    }
    snprintf(text, sizeof text, "the request has %zu bytes, more than %s, %" PRId64, length,
             method->limit_name, method->request_bytes_max);
    grpc_byte_buffer_destroy(body);
    call_end(call, OCTET_RESOURCE_EXHAUSTED, text);
}

static void on_receipt(struct event *event, bool ok)
{
    struct call *call = OWNER_OF(event, struct call, receipt);
    grpc_byte_buffer *body = call->received;

    stop_receiving(call, body ? (int64_t)grpc_byte_buffer_length(body) : 0);
    call->received = NULL;
    if (call->is_gone || call->is_ending) {
        if (body)
            grpc_byte_buffer_destroy(body);
    } else if (ok && body) {
        check_request(call, body);
    } else if (call->method->shape == CALL_DIALOGUE) {
        call_end(call, OCTET_OK, ""); /* the client has said all */
    } else if (call->method->shape == CALL_UPLOAD && call->claim.is_granted) {
        call->exchange.is_last = true;
        go_on(call, NULL);
    } else {
        call_end(call, OCTET_INVALID_ARGUMENT, "the request message is missing");
    }
    watch_closing(call);
    settle_one(call);
}

/* ---- Results ---- */

static void set_outgoing(struct call *call, grpc_slice slice)
{
    if (call->outgoing)
        grpc_byte_buffer_destroy(call->outgoing);
    call->outgoing = grpc_raw_byte_buffer_create(&slice, 1); /* takes its own reference */
}

static void take_result(struct call *call, struct job *job)
{
    if (job->status != OCTET_OK) {
        end_with(call, &job->error);
    } else if (call->method->shape == CALL_WATCH) {
        health_watch(&call->loop->health, &call->watcher, (int)job->answer, tell);
        tell(&call->watcher);
    } else if (!job->has_reply) {
        receive(call); /* of an upload: the next message */
    } else {
        bool is_last = call->method->shape == CALL_UNARY || call->method->shape == CALL_UPLOAD ||
                       (call->method->shape == CALL_DOWNLOAD && !call->exchange.has_more);
        set_outgoing(call, job->reply);
        if (is_last) {
            call->held_bytes = (int64_t)GRPC_SLICE_LENGTH(job->reply);
            scheduler_hold(&call->loop->schedulers[call->method->pool], call->held_bytes);
            call_end(call, OCTET_OK, "");
        } else {
            send_message(call);
        }
    }
}

/* Its budget was too small: once more with a larger one. */
static bool run_again(struct call *call, struct job *job)
{
    if (!job->wants_memory || call->is_gone || call->is_ending)
        return false;
    job->memory_bytes = job->memory_wanted < job->method->memory_bytes ? job->memory_wanted
                                                                       : job->method->memory_bytes;
    job->wants_memory = false;
    return scheduler_push_again(&call->loop->schedulers[job->method->pool], job, call->peer);
}

/* A session that was made for a client that is gone, and cannot ask for it again. */
static void forget_made(struct call *call, const struct job *job)
{
    const struct octet_method *method = call->method->method;

    if (job->status == OCTET_OK && method && call->exchange.has_changed &&
        method->request == &octet__v1__create_session_request__descriptor)
        sessions_forget(&call->loop->sessions, call->exchange.session);
}

static void on_job_done(struct event *event, bool ok)
{
    struct job *job = OWNER_OF(event, struct job, done);
    struct call *call = job->call;
    struct scheduler *scheduler = &call->loop->schedulers[job->method->pool];

    (void)ok;
    scheduler_finished(scheduler, job);
    if (job->was_large)
        call->loop->large_ns = job->ended_ns;
    call->owed++; /* the call stays until the end of this function */
    if (!(job->wants_session && lend(call, job)) && !run_again(call, job)) {
        call->job = NULL;
        if (!call->is_gone && !call->is_ending)
            take_result(call, job);
        else
            forget_made(call, job);
        job_free(job);
        release_when_over(call);
    }
    scheduler_run(scheduler);
    settle_one(call);
}

/* ---- Streams ---- */

/* The watcher's status may have changed: tell the client. */
static void tell(struct watcher *watcher)
{
    struct call *call = OWNER_OF(watcher, struct call, watcher);
    enum serving now = health_status(&call->loop->health, call->watcher.service);
    char message[2] = {1 << 3, (char)now}; /* HealthCheckResponse: field 1, varint */

    if (call->is_gone || call->is_ending || call->is_sending || call->watcher.told == now)
        return;
    call->watcher.told = now;
    grpc_slice slice = grpc_slice_from_copied_buffer(message, sizeof message);
    set_outgoing(call, slice);
    grpc_slice_unref(slice);
    send_message(call);
}

/* A message is out: a watcher may have missed a change, a dialogue asks for the next question. */
static void on_sending(struct event *event, bool ok)
{
    struct call *call = OWNER_OF(event, struct call, sending);

    (void)ok; /* false: the connection is lost, which on_closing learns too */
    call->is_sending = false;
    grpc_byte_buffer_destroy(call->outgoing);
    call->outgoing = NULL;
    if (call->is_gone) {
        /* nothing more */
    } else if (call->is_ending) {
        send_end(call);
    } else if (call->method->shape == CALL_WATCH) {
        tell(&call->watcher);
    } else if (call->method->shape == CALL_DOWNLOAD) {
        go_on(call, NULL);
    } else {
        receive(call);
    }
    settle_one(call);
}

/* ---- The client has gone, or has all it wanted ---- */

static void give_up(struct call *call)
{
    stop_receiving(call, 0);
    call->is_gone = true;
    give_place_back(call);
    health_unwatch(&call->watcher);
    if (call->job) {
        atomic_store_explicit(&call->job->cancel.cancelled, true, memory_order_relaxed);
        if (scheduler_remove(&call->loop->schedulers[call->method->pool], call->job)) {
            job_free(call->job);
            call->job = NULL;
        }
    }
    release_when_over(call);
}

static void on_closing(struct event *event, bool ok)
{
    struct call *call = OWNER_OF(event, struct call, closing);

    (void)ok;
    if (call->cancelled && !call->is_gone)
        give_up(call);
    settle_one(call);
}
