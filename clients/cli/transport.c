/* Request bytes -> response message, here or in a daemon.
 *
 * Decision: a local call packs its request and decodes it again. It costs microseconds and makes
 * sure that both ways check the same bytes with the same code. */
#include <dlfcn.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "facts.h"
#include "octet_client.h"
#include "session.h"
#include "wire/methods.h"

const char *session_server(const struct session *session)
{
    const struct arguments *a = session->arguments;
    const char *server = a->server ? a->server : getenv("OCTET_SERVER");

    return a->local || !server || !server[0] ? NULL : server;
}

/* The instruction set is OCTET_CPU's choice; threads are the option's. */
static enum octet_status make_workers(struct session *session, struct octet_error *err)
{
    int64_t threads = session->arguments->threads;
    cpu_set_t cpus;

    if (session->workers)
        return OCTET_OK;
    /* More would wait for each other, and starting them takes long. */
    int64_t most = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
    threads = threads < most ? threads : most;
    return octet_workers_create(getenv("OCTET_CPU"), (int32_t)threads, &session->workers, err);
}

static enum octet_status call_here(struct session *session, const struct octet_method *method,
                                   const uint8_t *bytes, size_t size, ProtobufCMessage **response,
                                   struct octet_error *err)
{
    struct octet_server_facts facts = facts_local();
    ProtobufCMessage *request;
    enum octet_status status = method->takes_tensors ? make_workers(session, err) : OCTET_OK;

    if (status == OCTET_OK)
        status =
            octet_wire_decode_in_place(method->request, session->arena, bytes, size, &request, err);
    if (method->is_constant)
        facts_of_cpu(&facts);
    const struct octet_call call = {
        .context = session->context,
        .arena = session->arena,
        .cancel = session->cancel,
        .facts = &facts,
        .workers = session->workers,
    };
    return status == OCTET_OK ? method->run(&call, request, response, err) : status;
}

/* The functions of liboctet_client that are used here. */
struct client_library {
    __typeof__(&octet_client_options_from_environment) options;
    __typeof__(&octet_client_connect) connect;
    __typeof__(&octet_client_call) call;
    __typeof__(&octet_client_reply_clear) clear;
    __typeof__(&octet_client_destroy) destroy;
    __typeof__(&octet_client_stream_open) stream_open;
    __typeof__(&octet_client_stream_send) stream_send;
    __typeof__(&octet_client_stream_close_send) stream_close_send;
    __typeof__(&octet_client_stream_receive) stream_receive;
    __typeof__(&octet_client_stream_destroy) stream_destroy;
};

struct remote {
    struct client_library library;
    octet_client *client; /* NULL: to be made */
};

/* Only beside this program or where it was installed: a library that a search path names could be
 * anyone's. */
static void *open_library(char *tried, size_t size)
{
    static const char *const places[] = {"../c/", "./", "../lib/", "../" OCTET_LIBRARY_DIR "/"};
    char program[PATH_MAX], path[PATH_MAX + 64];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    void *library = NULL;

    snprintf(tried, size, "this program's own path is not known");
    if (length <= 0)
        return NULL;
    program[length] = '\0';
    *(strrchr(program, '/') + 1) = '\0';
    for (size_t i = 0; !library && i < sizeof places / sizeof *places; i++) {
        snprintf(path, sizeof path, "%s%sliboctet_client.so.0", program, places[i]);
        if (access(path, F_OK) == 0 || i + 1 == sizeof places / sizeof *places) {
            library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
            if (!library)
                snprintf(tried, size, "%s", dlerror());
        }
    }
    return library;
}

static enum octet_status load_library(struct client_library *out, struct octet_error *err)
{
    char tried[512];

    setenv("GRPC_VERBOSITY", "NONE", 0); /* the reply's status says it, in one line */
    void *library = open_library(tried, sizeof tried);
    if (!library)
        return octet_fail(err, OCTET_UNAVAILABLE, NULL,
                          "liboctet_client, which calls to a daemon need, does not load: %s",
                          tried);
#define FIND(field, function) *(void **)(void *)&out->field = dlsym(library, #function)
    FIND(options, octet_client_options_from_environment);
    FIND(connect, octet_client_connect);
    FIND(call, octet_client_call);
    FIND(clear, octet_client_reply_clear);
    FIND(destroy, octet_client_destroy);
    FIND(stream_open, octet_client_stream_open);
    FIND(stream_send, octet_client_stream_send);
    FIND(stream_close_send, octet_client_stream_close_send);
    FIND(stream_receive, octet_client_stream_receive);
    FIND(stream_destroy, octet_client_stream_destroy);
#undef FIND
    if (!out->options || !out->connect || !out->call || !out->clear || !out->destroy ||
        !out->stream_open || !out->stream_send || !out->stream_close_send || !out->stream_receive ||
        !out->stream_destroy)
        return octet_fail(err, OCTET_UNAVAILABLE, NULL,
                          "liboctet_client is of another version than this program");
    return OCTET_OK; /* never closed: gRPC has threads of its own until the process ends */
}

/* Which option or variable an option of the client came from. */
static void name_client_option(struct octet_error *err)
{
    static const char *const names[][2] = {{"target", "--server"},
                                           {"tls_ca", "OCTET_TLS_CA"},
                                           {"tls_cert", "OCTET_TLS_CERT"},
                                           {"tls_key", "OCTET_TLS_KEY"},
                                           {"token", "OCTET_TOKEN"}};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(err->field, names[i][0]) == 0)
            snprintf(err->field, sizeof err->field, "%s", names[i][1]);
}

static enum octet_status connect_there(struct session *session, struct octet_error *err)
{
    struct remote *remote = session->remote;
    struct octet_client_options how;
    enum octet_status status;

    if (!remote) {
        remote = calloc(1, sizeof *remote);
        if (!remote)
            return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
        status = load_library(&remote->library, err);
        if (status != OCTET_OK) {
            free(remote);
            return status;
        }
        session->remote = remote;
    }
    if (remote->client)
        return OCTET_OK;
    remote->library.options(&how);
    how.target = session_server(session);
    status = remote->library.connect(&how, &remote->client, err);
    if (status != OCTET_OK) {
        remote->client = NULL;
        name_client_option(err);
    }
    return status;
}

static void disconnect(struct remote *remote)
{
    if (remote && remote->client)
        remote->library.destroy(remote->client);
    if (remote)
        remote->client = NULL;
}

/* A method of the daemon's, and what it answers. */
struct remote_method {
    const char *name;
    const ProtobufCMessageDescriptor *response;
};

static enum octet_status try_there(struct session *session, const struct remote_method *method,
                                   const uint8_t *bytes, size_t size, ProtobufCMessage **response,
                                   struct octet_error *err)
{
    struct octet_client_reply reply;
    enum octet_status status = connect_there(session, err);

    if (status != OCTET_OK)
        return status;
    const struct client_library *library = &session->remote->library;
    status = library->call(session->remote->client, method->name, bytes, size, session->cancel,
                           &reply, err);
    if (status == OCTET_OK)
        status = octet_wire_decode(method->response, session->arena, reply.data, reply.size,
                                   response, err);
    else if (reply.retry_after_ms >= 1000) { /* less is for programs, not for people */
        size_t used = strlen(err->text);
        snprintf(err->text + used, sizeof err->text - used, "; try again in %lld s",
                 (long long)(reply.retry_after_ms + 999) / 1000);
    }
    library->clear(&reply);
    return status;
}

/* Every method only asks, or has a request_id, so a call may be made twice. Once more is enough for
 * a daemon that is being restarted, and for gRPC 1.51, which now and then takes a connection that
 * is on its way for failed (tcp_client_posix.cc looks at errno after other calls). */
static enum octet_status call_there(struct session *session, const struct remote_method *method,
                                    const uint8_t *bytes, size_t size, ProtobufCMessage **response,
                                    struct octet_error *err)
{
    static const struct timespec pause = {.tv_nsec = 250000000};
    enum octet_status status = try_there(session, method, bytes, size, response, err);

    if (status != OCTET_UNAVAILABLE || !session->remote || nanosleep(&pause, NULL) != 0)
        return status;
    disconnect(session->remote);
    return try_there(session, method, bytes, size, response, err);
}

void session_end(struct session *session)
{
    octet_workers_destroy(session->workers);
    disconnect(session->remote);
    free(session->remote);
}

/* When the call is given up; 0: never. */
static uint64_t deadline_after(int64_t seconds)
{
    enum { SECONDS_MAX = 1000000000 };

    seconds = seconds < SECONDS_MAX ? seconds : SECONDS_MAX;
    return seconds ? octet_now_ns() + (uint64_t)seconds * 1000000000u : 0;
}

/* What computes in this process may take as long as it takes. */
static uint64_t call_deadline(const struct session *session, const struct octet_method *method)
{
    enum { SECONDS_DEFAULT = 60 };
    int64_t seconds = session->arguments->timeout;

    if (!seconds && method->takes_tensors && !session_server(session))
        return 0;
    return deadline_after(seconds ? seconds : SECONDS_DEFAULT);
}

/* The request's bytes, in the arena. */
static enum octet_status pack(struct session *session, const ProtobufCMessage *request,
                              uint8_t **bytes, size_t *size, struct octet_error *err)
{
    *size = protobuf_c_message_get_packed_size(request);
    if (*size > INT32_MAX) { /* protobuf's own end */
        char text[32];
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL,
                          "the request would have %s; a message has at most 2 GiB: cut the arrays "
                          "into parts",
                          human_bytes((int64_t)*size, text));
    }
    *bytes = octet_arena_alloc(session->arena, *size);
    if (!*bytes)
        return octet_arena_exhausted(session->arena, err);
    protobuf_c_message_pack(request, *bytes);
    return OCTET_OK;
}

enum octet_status session_call(struct session *session, const char *name,
                               const ProtobufCMessage *request, ProtobufCMessage **response,
                               struct octet_error *err)
{
    const struct octet_method *method = octet_method_find(name);
    const struct remote_method there = {method->name, method->response};
    uint8_t *bytes;
    size_t size;
    enum octet_status status = pack(session, request, &bytes, &size, err);

    if (status != OCTET_OK)
        return status;
    session->cancel->deadline_ns = call_deadline(session, method);
    status = session_server(session) ? call_there(session, &there, bytes, size, response, err)
                                     : call_here(session, method, bytes, size, response, err);
    session->cancel->deadline_ns = 0; /* it was the call's, not the command's */
    return status;
}

static enum octet_status need_server(const struct session *session, struct octet_error *err)
{
    if (session_server(session))
        return OCTET_OK;
    return octet_fail(
        err, OCTET_INVALID_ARGUMENT, NULL,
        "sessions live in a daemon: start octetd, and give --server HOST:PORT (or set "
        "OCTET_SERVER)");
}

enum octet_status session_ask(struct session *session, const char *name,
                              const ProtobufCMessage *request,
                              const ProtobufCMessageDescriptor *answer, ProtobufCMessage **response,
                              struct octet_error *err)
{
    const struct remote_method method = {name, answer};
    uint8_t *bytes;
    size_t size;
    enum octet_status status = need_server(session, err);

    if (status == OCTET_OK)
        status = pack(session, request, &bytes, &size, err);
    if (status != OCTET_OK)
        return status;
    session->cancel->deadline_ns = deadline_after(session->arguments->timeout);
    status = call_there(session, &method, bytes, size, response, err);
    session->cancel->deadline_ns = 0;
    return status;
}

struct stream {
    struct session *session;
    octet_arena *arena; /* of one message */
    octet_client_stream *stream;
};

enum octet_status stream_open(struct session *session, const char *method, struct stream **out,
                              struct octet_error *err)
{
    enum octet_status status = need_server(session, err);
    struct stream *stream = OCTET_NEW(session->arena, struct stream);

    if (status != OCTET_OK)
        return status;
    if (!stream || !(stream->arena = octet_arena_create_within(session->arena)))
        return octet_arena_exhausted(session->arena, err);
    stream->session = session;
    session->cancel->deadline_ns = deadline_after(session->arguments->timeout);
    status = connect_there(session, err);
    if (status == OCTET_OK)
        status = session->remote->library.stream_open(session->remote->client, method,
                                                      session->cancel, &stream->stream, err);
    if (status != OCTET_OK)
        stream_end(stream);
    else
        *out = stream;
    return status;
}

enum octet_status stream_send(struct stream *stream, const ProtobufCMessage *message,
                              struct octet_error *err)
{
    size_t size = protobuf_c_message_get_packed_size(message);

    octet_arena_reset(stream->arena);
    uint8_t *bytes = octet_arena_alloc_unset(stream->arena, size);
    if (!bytes)
        return octet_arena_exhausted(stream->arena, err);
    protobuf_c_message_pack(message, bytes);
    return stream->session->remote->library.stream_send(stream->stream, bytes, size, err);
}

enum octet_status stream_close_send(struct stream *stream, struct octet_error *err)
{
    return stream->session->remote->library.stream_close_send(stream->stream, err);
}

enum octet_status stream_receive(struct stream *stream, const ProtobufCMessageDescriptor *what,
                                 ProtobufCMessage **out, struct octet_error *err)
{
    const struct client_library *library = &stream->session->remote->library;
    struct octet_client_reply reply;
    bool more;
    enum octet_status status = library->stream_receive(stream->stream, &reply, &more, err);

    *out = NULL;
    octet_arena_reset(stream->arena);
    if (status == OCTET_OK && more)
        status = octet_wire_decode(what, stream->arena, reply.data, reply.size, out, err);
    library->clear(&reply);
    return status;
}

void stream_end(struct stream *stream)
{
    if (!stream)
        return;
    if (stream->stream)
        stream->session->remote->library.stream_destroy(stream->stream);
    octet_arena_destroy(stream->arena);
    stream->session->cancel->deadline_ns = 0;
}
