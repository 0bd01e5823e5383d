/* liboctet_client over the wire. What could break: a call that never ends, an error that loses its
 * field, a limit that is told in gRPC's words only, a connection that is not remade, memory that is
 * not given back (seen under ASan).
 *
 *     test_client OCTETD SLOW */
#include "octet_client.h"

#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon.h"
#include "octet/v1/octet.pb-c.h"

static const char *octetd_path, *slow_path;
static struct daemon server;
static octet_client *client;
static struct octet_client_reply reply;
static struct octet_error err;

static void start(const char *program, const char *listen)
{
    const char *arguments[] = {"--listen", listen, "--log-level", "error", NULL};
    int status = 0;

    ck_assert_msg(daemon_start(&server, program, arguments, NULL, &status),
                  "%s did not start: status %d", program, status);
}

static void stop(void)
{
    daemon_signal(&server, SIGTERM);
    ck_assert_int_eq(daemon_wait(&server, 60), 0);
}

static void connect_to_server(uint64_t reply_bytes_max)
{
    const struct octet_client_options options = {.target = server.address,
                                                 .reply_bytes_max = reply_bytes_max};

    memset(&err, 0, sizeof err);
    ck_assert_int_eq(octet_client_connect(&options, &client, &err), OCTET_OK);
}

static enum octet_status call_trace(const char *method, int64_t batch_size, const char *model,
                                    const struct octet_cancel *cancel)
{
    Octet__V1__ModelConfig config = OCTET__V1__MODEL_CONFIG__INIT;
    Octet__V1__TraceRequest request = OCTET__V1__TRACE_REQUEST__INIT;
    uint8_t bytes[256];

    config.name = (char *)(uintptr_t)model;
    request.model = &config;
    request.batch_size = batch_size;
    ck_assert_uint_le(octet__v1__trace_request__get_packed_size(&request), sizeof bytes);
    size_t size = octet__v1__trace_request__pack(&request, bytes);
    enum octet_status status = octet_client_call(client, method, bytes, size, cancel, &reply, &err);
    ck_assert((status == OCTET_OK) == (reply.data != NULL));
    return status;
}

START_TEST(replies_come_whole)
{
    start(octetd_path, "127.0.0.1:0");
    connect_to_server(0);
    for (int i = 0; i < 3; i++) { /* one connection, several calls */
        ck_assert_int_eq(call_trace("Trace", 2, "deepseek3-tiny", NULL), OCTET_OK);
        Octet__V1__TraceResponse *response =
            octet__v1__trace_response__unpack(NULL, reply.size, reply.data);
        ck_assert_ptr_nonnull(response);
        ck_assert_uint_gt(response->trace->n_interceptions, 20);
        ck_assert_int_eq(response->trace->interceptions[0]->lhs_shape[0], 2);
        octet__v1__trace_response__free_unpacked(response, NULL);
        ck_assert_str_ne(reply.request_id, "");
        ck_assert_int_eq(reply.retry_after_ms, -1);
        octet_client_reply_clear(&reply);
        ck_assert_ptr_null(reply.data);
    }
    octet_client_destroy(client);
    stop();
}
END_TEST

START_TEST(errors_are_as_in_a_local_call)
{
    start(octetd_path, "127.0.0.1:0");
    connect_to_server(0);
    ck_assert_int_eq(call_trace("Trace", 0, "deepseek3-tinny", NULL), OCTET_NOT_FOUND);
    ck_assert_int_eq(err.status, OCTET_NOT_FOUND);
    ck_assert_str_eq(err.field, "model.name");
    ck_assert_ptr_nonnull(strstr(err.text, "'deepseek3-tiny'"));
    ck_assert_str_ne(reply.request_id, "");
    ck_assert_int_eq(call_trace("Trace", -3, "deepseek3-tiny", NULL), OCTET_INVALID_ARGUMENT);
    ck_assert_str_eq(err.field, "batch_size");
    ck_assert_int_eq(call_trace("NoSuchMethod", 0, "", NULL), OCTET_UNIMPLEMENTED);
    ck_assert_int_eq(octet_client_call(client, "Trace", "\x0b", 1, NULL, &reply, &err),
                     OCTET_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(err.text, "malformed"));
    octet_client_destroy(client);
    stop();
}
END_TEST

START_TEST(large_replies_name_the_limit)
{
    start(octetd_path, "127.0.0.1:0");
    connect_to_server(2000);
    ck_assert_int_eq(call_trace("Trace", 0, "deepseek3-tiny", NULL), OCTET_RESOURCE_EXHAUSTED);
    ck_assert_ptr_nonnull(strstr(err.text, "reply_bytes_max"));
    ck_assert_ptr_nonnull(strstr(err.text, "2000"));
    octet_client_destroy(client);
    stop();
}
END_TEST

static void *interrupt(void *user)
{
    struct octet_cancel *cancel = user;

    nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    atomic_store_explicit(&cancel->cancelled, true, memory_order_relaxed);
    return NULL;
}

START_TEST(calls_can_be_cancelled)
{
    struct octet_cancel cancel = {0};
    pthread_t thread;

    start(slow_path, "127.0.0.1:0");
    connect_to_server(0);
    uint64_t before = octet_now_ns();
    ck_assert_int_eq(pthread_create(&thread, NULL, interrupt, &cancel), 0);
    ck_assert_int_eq(call_trace("Sleep", 30000, "", &cancel), OCTET_CANCELLED);
    pthread_join(thread, NULL);
    ck_assert_uint_lt(octet_now_ns() - before, 10u * 1000000000u);
    /* Cancelled before it starts; and the client is as good as before. */
    ck_assert_int_eq(call_trace("Sleep", 30000, "", &cancel), OCTET_CANCELLED);
    ck_assert_int_eq(call_trace("Sleep", 1, "", NULL), OCTET_OK);
    octet_client_reply_clear(&reply);
    octet_client_destroy(client);
    stop();
}
END_TEST

START_TEST(deadlines_end_calls)
{
    struct octet_cancel cancel = {.deadline_ns = octet_now_ns() + 300000000u};

    start(slow_path, "127.0.0.1:0");
    connect_to_server(0);
    uint64_t before = octet_now_ns();
    ck_assert_int_eq(call_trace("Sleep", 30000, "", &cancel), OCTET_DEADLINE_EXCEEDED);
    /* On a crowded machine the deadline may be over before anything is sent. */
    ck_assert_msg(strstr(err.text, server.address) || strstr(err.text, "deadline has passed"), "%s",
                  err.text);
    ck_assert_uint_lt(octet_now_ns() - before, 10u * 1000000000u);
    while (octet_now_ns() <= cancel.deadline_ns) /* gRPC's timer may have been a little early */
        ;
    ck_assert_int_eq(call_trace("Sleep", 1, "", &cancel), OCTET_DEADLINE_EXCEEDED);
    octet_client_destroy(client);
    stop();
}
END_TEST

START_TEST(connections_are_remade)
{
    char address[sizeof server.address];
    struct octet_cancel cancel = {0};

    start(octetd_path, "127.0.0.1:0");
    connect_to_server(0);
    snprintf(address, sizeof address, "%s", server.address);
    ck_assert_int_eq(call_trace("Trace", 0, "deepseek3-tiny", NULL), OCTET_OK);
    octet_client_reply_clear(&reply);
    stop();
    ck_assert_int_eq(call_trace("Trace", 0, "deepseek3-tiny", NULL), OCTET_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(err.text, address));
    start(octetd_path, address);
    uint64_t end =
        octet_now_ns() + 30u * 1000000000u; /* gRPC waits a moment before it tries again */
    enum octet_status status;
    do {
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
        status = call_trace("Trace", 0, "deepseek3-tiny", &cancel);
    } while (status == OCTET_UNAVAILABLE && octet_now_ns() < end);
    ck_assert_int_eq(status, OCTET_OK);
    octet_client_reply_clear(&reply);
    octet_client_destroy(client);
    stop();
}
END_TEST

/* Quantize of `bytes` bytes of f32 that are a piece of their own. */
static enum octet_status call_in_pieces(const void *numbers, size_t bytes,
                                        const struct octet_cancel *cancel)
{
    uint8_t head[128];
    int64_t shape[] = {(int64_t)(bytes / 4)};
    Octet__V1__Tensor tensor = OCTET__V1__TENSOR__INIT;
    Octet__V1__QuantizeRequest request = OCTET__V1__QUANTIZE_REQUEST__INIT;

    tensor.dtype = OCTET__V1__DATA_TYPE__DATA_TYPE_F32;
    tensor.shape = shape;
    tensor.n_shape = 1;
    tensor.buffer = 1;
    request.array = &tensor;
    request.qtype = (char *)(uintptr_t) "float8_e4m3fn";
    size_t size = octet__v1__quantize_request__pack(&request, head);
    head[size++] = 15 << 3 | 2;
    for (size_t left = bytes; left > 0; left >>= 7)
        head[size++] = (uint8_t)((left & 0x7f) | (left > 0x7f ? 0x80 : 0));
    const struct octet_client_piece pieces[] = {{head, size}, {NULL, 0}, {numbers, bytes}};
    return octet_client_call_pieces(client, "Quantize", pieces, 3, cancel, &reply, &err);
}

START_TEST(pieces_arrive_as_one_request)
{
    enum { COUNT = 300000 }; /* large enough to be sent from where it lies */
    float *numbers = malloc(COUNT * sizeof *numbers);

    start(octetd_path, "127.0.0.1:0");
    connect_to_server(0);
    for (int i = 0; i < COUNT; i++)
        numbers[i] = (float)(i % 3 - 1) * 448; /* scale 1: codes 0xfe, 0, 0x7e */
    ck_assert_int_eq(call_in_pieces(numbers, COUNT * sizeof *numbers, NULL), OCTET_OK);
    Octet__V1__QuantizeResponse *response =
        octet__v1__quantize_response__unpack(NULL, reply.size, reply.data);
    ck_assert_ptr_nonnull(response);
    ck_assert_uint_eq(response->n_buffers, 1);
    ck_assert_uint_eq(response->buffers[0].len, COUNT);
    for (int i = 0; i < COUNT; i++)
        ck_assert_uint_eq(response->buffers[0].data[i], i % 3 == 0 ? 0xfe : i % 3 == 1 ? 0 : 0x7e);
    octet__v1__quantize_response__free_unpacked(response, NULL);
    octet_client_reply_clear(&reply);
    free(numbers);
    octet_client_destroy(client);
    stop();
}
END_TEST

/* gRPC still holds most of the request when the call ends: the memory must be the caller's again,
 * and the client must go on. A read after the free would show under ASan. */
START_TEST(memory_comes_back_from_a_peer_that_stands_still)
{
    enum { BYTES = 48 << 20 };
    void *numbers = calloc(1, BYTES);

    start(octetd_path, "127.0.0.1:0");
    connect_to_server(0);
    ck_assert_int_eq(call_in_pieces(numbers, 1 << 20, NULL), OCTET_OK); /* knows the limits now */
    octet_client_reply_clear(&reply);
    daemon_signal(&server, SIGSTOP);
    const struct octet_cancel soon = {.deadline_ns = octet_now_ns() + 300000000u};
    ck_assert_int_eq(call_in_pieces(numbers, BYTES, &soon), OCTET_DEADLINE_EXCEEDED);
    free(numbers);
    daemon_signal(&server, SIGCONT);
    ck_assert_int_eq(call_trace("Trace", 0, "deepseek3-tiny", NULL), OCTET_OK);
    octet_client_reply_clear(&reply);
    octet_client_destroy(client);
    stop();
}
END_TEST

START_TEST(unix_sockets_work)
{
    char path[64];

    snprintf(path, sizeof path, "unix:/tmp/octet-client-test-%d", (int)getpid());
    start(octetd_path, path);
    snprintf(server.address, sizeof server.address, "%s", path);
    connect_to_server(0);
    ck_assert_int_eq(call_trace("Trace", 0, "deepseek3-tiny", NULL), OCTET_OK);
    octet_client_reply_clear(&reply);
    octet_client_destroy(client);
    stop();
}
END_TEST

/* A session of the smallest DeepSeek model; its name, to be freed. */
static char *create_session(void)
{
    Octet__V1__ModelConfig config = OCTET__V1__MODEL_CONFIG__INIT;
    Octet__V1__CreateSessionRequest request = OCTET__V1__CREATE_SESSION_REQUEST__INIT;
    uint8_t bytes[256];

    config.name = (char *)(uintptr_t) "deepseek3-tiny";
    request.model = &config;
    request.batch_size = request.sequence_length = 4;
    ck_assert_uint_le(octet__v1__create_session_request__get_packed_size(&request), sizeof bytes);
    size_t size = octet__v1__create_session_request__pack(&request, bytes);
    ck_assert_msg(octet_client_call(client, "CreateSession", bytes, size, NULL, &reply, &err) ==
                      OCTET_OK,
                  "%s: %s", err.field, err.text);
    Octet__V1__Session *session = octet__v1__session__unpack(NULL, reply.size, reply.data);
    char *name = strdup(session->session_id);
    octet__v1__session__free_unpacked(session, NULL);
    octet_client_reply_clear(&reply);
    return name;
}

static octet_client_stream *open_get(const char *session_id, const char *pattern,
                                     const struct octet_cancel *cancel)
{
    Octet__V1__GetTensorsRequest request = OCTET__V1__GET_TENSORS_REQUEST__INIT;
    char *names[] = {(char *)(uintptr_t)pattern};
    octet_client_stream *stream = NULL;
    uint8_t bytes[256];

    request.session_id = (char *)(uintptr_t)session_id;
    request.names = names;
    request.n_names = 1;
    request.chunk_bytes = 4096;
    ck_assert_uint_le(octet__v1__get_tensors_request__get_packed_size(&request), sizeof bytes);
    size_t size = octet__v1__get_tensors_request__pack(&request, bytes);
    ck_assert_int_eq(octet_client_stream_open(client, "GetTensors", cancel, &stream, &err),
                     OCTET_OK);
    ck_assert_int_eq(octet_client_stream_send(stream, bytes, size, &err), OCTET_OK);
    ck_assert_int_eq(octet_client_stream_close_send(stream, &err), OCTET_OK);
    return stream;
}

/* All bytes of the one tensor that matches, in chunks; into `out`, whose length is returned. */
static size_t get_tensor(const char *session_id, const char *name, uint8_t *out, size_t room)
{
    octet_client_stream *stream = open_get(session_id, name, NULL);
    size_t used = 0, chunks = 0;
    bool more = true;

    while (more) {
        ck_assert_int_eq(octet_client_stream_receive(stream, &reply, &more, &err), OCTET_OK);
        ck_assert(more == (reply.data != NULL));
        if (!more)
            break;
        Octet__V1__GetTensorsResponse *chunk =
            octet__v1__get_tensors_response__unpack(NULL, reply.size, reply.data);
        ck_assert_int_eq((int)chunk->offset, (int)used);
        ck_assert_uint_le(chunk->data.len, 4096);
        ck_assert_uint_le(used + chunk->data.len, room);
        memcpy(out + used, chunk->data.data, chunk->data.len);
        used += chunk->data.len;
        chunks++;
        octet__v1__get_tensors_response__free_unpacked(chunk, NULL);
        octet_client_reply_clear(&reply);
    }
    ck_assert_str_ne(reply.request_id, "");
    ck_assert_uint_eq(chunks, (used + 4095) / 4096);
    octet_client_stream_destroy(stream);
    return used;
}

static void put_tensor(const char *session_id, const char *name, int64_t rows, int64_t columns,
                       const uint8_t *data)
{
    Octet__V1__PutTensorsRequest chunk = OCTET__V1__PUT_TENSORS_REQUEST__INIT;
    int64_t shape[] = {rows, columns}, size = rows * columns * 4;
    octet_client_stream *stream = NULL;
    bool more;

    ck_assert_int_eq(octet_client_stream_open(client, "PutTensors", NULL, &stream, &err), OCTET_OK);
    chunk.session_id = (char *)(uintptr_t)session_id;
    chunk.name = (char *)(uintptr_t)name;
    chunk.dtype = OCTET__V1__DATA_TYPE__DATA_TYPE_F32;
    chunk.shape = shape;
    chunk.n_shape = 2;
    for (int64_t at = 0; at < size; at += 1024) {
        uint8_t bytes[2048];
        chunk.offset = at;
        chunk.data.data = (uint8_t *)(uintptr_t)data + at;
        chunk.data.len = (size_t)(size - at < 1024 ? size - at : 1024);
        size_t length = octet__v1__put_tensors_request__pack(&chunk, bytes);
        ck_assert_msg(octet_client_stream_send(stream, bytes, length, &err) == OCTET_OK, "%s: %s",
                      err.field, err.text);
    }
    ck_assert_int_eq(octet_client_stream_close_send(stream, &err), OCTET_OK);
    ck_assert_msg(octet_client_stream_receive(stream, &reply, &more, &err) == OCTET_OK, "%s: %s",
                  err.field, err.text);
    ck_assert(more);
    Octet__V1__PutTensorsResponse *response =
        octet__v1__put_tensors_response__unpack(NULL, reply.size, reply.data);
    ck_assert_int_eq((int)response->tensors, 1);
    ck_assert_int_eq((int)response->bytes, (int)size);
    octet__v1__put_tensors_response__free_unpacked(response, NULL);
    octet_client_reply_clear(&reply);
    ck_assert_int_eq(octet_client_stream_receive(stream, &reply, &more, &err), OCTET_OK);
    ck_assert(!more);
    octet_client_stream_destroy(stream);
}

START_TEST(streams_carry_tensors)
{
    static const char name[] = "decoder/logits_dense/kernel";
    enum { ROWS = 64, BYTES_MAX = 64 << 20 };
    uint8_t *first = malloc(BYTES_MAX), *second = malloc(BYTES_MAX);

    start(octetd_path, "127.0.0.1:0");
    connect_to_server(0);
    char *session_id = create_session();
    size_t size = get_tensor(session_id, name, first, BYTES_MAX);
    ck_assert_uint_gt(size, 1 << 20);
    ck_assert_uint_eq(size % (ROWS * 4), 0);
    for (size_t i = 0; i < size; i += 4)
        first[i] ^= 1; /* the last bit of each number */
    put_tensor(session_id, name, ROWS, (int64_t)size / ROWS / 4, first);
    ck_assert_uint_eq(get_tensor(session_id, name, second, BYTES_MAX), size);
    ck_assert_int_eq(memcmp(first, second, size), 0);
    free(session_id);
    free(first);
    free(second);
    octet_client_destroy(client);
    stop();
}
END_TEST

START_TEST(streams_end_with_the_servers_error)
{
    struct octet_cancel cancel = {0};
    bool more = true;

    start(octetd_path, "127.0.0.1:0");
    connect_to_server(0);
    octet_client_stream *stream = open_get("nobody", ".*", NULL);
    ck_assert_int_eq(octet_client_stream_receive(stream, &reply, &more, &err), OCTET_NOT_FOUND);
    ck_assert(!more && !reply.data);
    ck_assert_str_eq(err.field, "session_id");
    /* What comes after the end says the same again. */
    ck_assert_int_eq(octet_client_stream_receive(stream, &reply, &more, &err), OCTET_NOT_FOUND);
    ck_assert_int_eq(octet_client_stream_send(stream, "", 0, &err), OCTET_NOT_FOUND);
    octet_client_stream_destroy(stream);
    /* Left in the middle, and cancelled; the client is as good as before. */
    char *session_id = create_session();
    stream = open_get(session_id, ".*", NULL);
    ck_assert_int_eq(octet_client_stream_receive(stream, &reply, &more, &err), OCTET_OK);
    octet_client_reply_clear(&reply);
    octet_client_stream_destroy(stream);
    stream = open_get(session_id, ".*", &cancel);
    atomic_store_explicit(&cancel.cancelled, true, memory_order_relaxed);
    enum octet_status status = OCTET_OK;
    while (status == OCTET_OK) {
        status = octet_client_stream_receive(stream, &reply, &more, &err);
        octet_client_reply_clear(&reply);
        if (status == OCTET_OK && !more)
            break; /* it was faster */
    }
    ck_assert(status == OCTET_OK || status == OCTET_CANCELLED);
    octet_client_stream_destroy(stream);
    ck_assert_int_eq(octet_client_stream_open(client, "GetTensors", &cancel, &stream, &err),
                     OCTET_CANCELLED);
    ck_assert_int_eq(call_trace("Trace", 2, "deepseek3-tiny", NULL), OCTET_OK);
    octet_client_reply_clear(&reply);
    free(session_id);
    stop();
    /* Nobody there any more. */
    ck_assert_int_eq(octet_client_stream_open(client, "PutTensors", NULL, &stream, &err), OCTET_OK);
    status = octet_client_stream_send(stream, "", 0, &err);
    if (status == OCTET_OK)
        status = octet_client_stream_receive(stream, &reply, &more, &err);
    ck_assert_int_eq(status, OCTET_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(err.text, server.address));
    octet_client_stream_destroy(stream);
    octet_client_destroy(client);
}
END_TEST

START_TEST(options_are_checked)
{
    static const struct {
        struct octet_client_options options;
        const char *field;
    } cases[] = {
        {{.target = NULL}, "target"},
        {{.target = ""}, "target"},
        {{.target = "localhost"}, "target"},
        {{.target = ":80"}, "target"},
        {{.target = "localhost:"}, "target"},
        {{.target = "localhost:0"}, "target"},
        {{.target = "localhost:65536"}, "target"},
        {{.target = "localhost:8x"}, "target"},
        {{.target = "localhost:1", .token = "two words"}, "token"},
        {{.target = "example.org:1", .token = "secret"}, "token"},
        {{.target = "localhost:1", .tls_ca = "/no/such"}, "tls_ca"},
        {{.target = "localhost:1", .tls_ca = "/dev/null"}, "tls_ca"},
        {{.target = "localhost:1", .tls_ca = "/dev/zero"}, "tls_ca"},
        {{.target = "localhost:1", .tls_cert = "/x"}, "tls_ca"},
        {{.target = "localhost:1", .tls_ca = "/x", .tls_cert = "/x"}, "tls_key"},
        {{.target = "localhost:1", .tls_ca = "/x", .tls_key = "/x"}, "tls_cert"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_int_eq(octet_client_connect(&cases[i].options, &client, &err),
                         OCTET_INVALID_ARGUMENT);
        ck_assert_msg(strcmp(err.field, cases[i].field) == 0, "case %zu: field '%s', expected '%s'",
                      i, err.field, cases[i].field);
    }
    octet_client_destroy(NULL);
}
END_TEST

START_TEST(the_environment_is_read)
{
    struct octet_client_options options;

    setenv("OCTET_SERVER", "h:1", 1);
    setenv("OCTET_TOKEN", "t", 1);
    setenv("OCTET_TLS_CA", "a", 1);
    setenv("OCTET_TLS_CERT", "c", 1);
    setenv("OCTET_TLS_KEY", "k", 1);
    octet_client_options_from_environment(&options);
    ck_assert_str_eq(options.target, "h:1");
    ck_assert_str_eq(options.token, "t");
    ck_assert_str_eq(options.tls_ca, "a");
    ck_assert_str_eq(options.tls_cert, "c");
    ck_assert_str_eq(options.tls_key, "k");
    ck_assert_uint_eq(options.reply_bytes_max, 0);
}
END_TEST

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: %s OCTETD SLOW\n", argv[0]);
        return 2;
    }
    octetd_path = argv[1];
    slow_path = argv[2];
    Suite *suite = suite_create("client");
    TCase *cases = tcase_create("client");
    tcase_set_timeout(cases, 120);
    tcase_add_test(cases, replies_come_whole);
    tcase_add_test(cases, errors_are_as_in_a_local_call);
    tcase_add_test(cases, large_replies_name_the_limit);
    tcase_add_test(cases, calls_can_be_cancelled);
    tcase_add_test(cases, deadlines_end_calls);
    tcase_add_test(cases, connections_are_remade);
    tcase_add_test(cases, pieces_arrive_as_one_request);
    tcase_add_test(cases, memory_comes_back_from_a_peer_that_stands_still);
    tcase_add_test(cases, unix_sockets_work);
    tcase_add_test(cases, streams_carry_tensors);
    tcase_add_test(cases, streams_end_with_the_servers_error);
    tcase_add_test(cases, options_are_checked);
    tcase_add_test(cases, the_environment_is_read);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
