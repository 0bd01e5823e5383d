/* Tensors through the real daemon. What could break: a large message that is cut, copied too often
 * or never given back, work that goes on when nobody waits, a long operation that blocks a short
 * one, results that depend on kernels, threads, neighbours or load. */
#include "suite.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "octet/octet.h"
#include "octet/v1/octet.pb-c.h"

#define DOT "/octet.v1.Octet/DotGeneral"
#define QUANTIZE "/octet.v1.Octet/Quantize"
#define INFO "/octet.v1.Octet/GetServerInfo"

/* ---- Requests ---- */

struct bytes {
    uint8_t *data;
    size_t length;
};

static void fill(float *out, size_t count, uint32_t seed)
{
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        out[i] = (float)(int32_t)seed / 2147483648.0f;
    }
}

/* [m, k] x [k, n], f32 in buffers, under an fp8 rule; with a cotangent, backward too. Row r of lhs
 * depends on first_row + r only. */
struct dot {
    int64_t m, k, n, first_row;
    bool backward;
    Octet__V1__TraceLevel level;
};

static struct bytes dot_request(const struct dot *dot)
{
    int64_t m = dot->m, k = dot->k, n = dot->n;
    int64_t shapes[3][2] = {{m, k}, {k, n}, {m, n}};
    int32_t contracting[2] = {1, 0};
    Octet__V1__Tensor t[3];
    Octet__V1__Operand operands[2];
    ProtobufCBinaryData buffers[3];
    Octet__V1__DotDimensionNumbers dims = OCTET__V1__DOT_DIMENSION_NUMBERS__INIT;
    Octet__V1__QuantizationRule rule = OCTET__V1__QUANTIZATION_RULE__INIT, *rules[] = {&rule};
    Octet__V1__DotGeneralRequest request = OCTET__V1__DOT_GENERAL_REQUEST__INIT;
    struct bytes out;

    for (int i = 0; i < 3; i++) {
        size_t count = (size_t)(shapes[i][0] * shapes[i][1]);
        float *data = malloc(count * sizeof *data + 1);
        if (i == 0)
            for (int64_t row = 0; row < m; row++)
                fill(data + row * k, (size_t)k, (uint32_t)(dot->first_row + row));
        else
            fill(data, count, (uint32_t)i);
        buffers[i] = (ProtobufCBinaryData){count * sizeof *data, (uint8_t *)data};
        octet__v1__tensor__init(&t[i]);
        t[i].dtype = OCTET__V1__DATA_TYPE__DATA_TYPE_F32;
        t[i].shape = shapes[i];
        t[i].n_shape = 2;
        t[i].buffer = i + 1;
    }
    for (int i = 0; i < 2; i++) {
        octet__v1__operand__init(&operands[i]);
        operands[i].kind_case = OCTET__V1__OPERAND__KIND_TENSOR;
        operands[i].tensor = &t[i];
    }
    dims.lhs_contracting = &contracting[0];
    dims.rhs_contracting = &contracting[1];
    dims.n_lhs_contracting = dims.n_rhs_contracting = 1;
    rule.weight_qtype = rule.act_qtype = (char *)"float8_e4m3fn";
    rule.bwd_qtype = (char *)"float8_e5m2";
    request.lhs = &operands[0];
    request.rhs = &operands[1];
    request.dimension_numbers = &dims;
    request.module_path = (char *)"decoder/layers/mlp/wi_0";
    request.rules = rules;
    request.n_rules = 1;
    request.cotangent = dot->backward ? &t[2] : NULL;
    request.trace_level = dot->level;
    request.buffers = buffers;
    request.n_buffers = dot->backward ? 3 : 2;
    out.length = octet__v1__dot_general_request__get_packed_size(&request);
    out.data = malloc(out.length);
    octet__v1__dot_general_request__pack(&request, out.data);
    for (int i = 0; i < 3; i++)
        free(buffers[i].data);
    return out;
}

static Octet__V1__DotGeneralResponse *answer_of(const struct reply *reply)
{
    ck_assert_msg(reply->status == 0, "status %d: %s", reply->status, reply->text);
    Octet__V1__DotGeneralResponse *response =
        octet__v1__dot_general_response__unpack(NULL, reply->length, reply->bytes);
    ck_assert_ptr_nonnull(response);
    return response;
}

static ProtobufCBinaryData data_of(const Octet__V1__DotGeneralResponse *r,
                                   const Octet__V1__Tensor *tensor)
{
    ck_assert_ptr_nonnull(tensor);
    return tensor->buffer ? r->buffers[tensor->buffer - 1] : tensor->data;
}

/* One call; the digest of its result. */
static void digest_of(struct client *client, const struct dot *dot, char digest[33])
{
    struct bytes bytes = dot_request(dot);
    struct reply reply;

    client_call(client, DOT, bytes.data, bytes.length, 120000, &reply);
    Octet__V1__DotGeneralResponse *response = answer_of(&reply);
    snprintf(digest, 33, "%s", response->trace->interceptions[0]->digest);
    ck_assert_uint_eq(strlen(digest), 32);
    octet__v1__dot_general_response__free_unpacked(response, NULL);
    reply_free(&reply);
    free(bytes.data);
}

/* ---- Threads ---- */

/* How many threads of the daemon have this name, and how many of all do something. */
static int threads_named(const struct daemon *d, const char *name, int *all)
{
    char path[64], text[32];
    int count = 0;
    DIR *directory;

    snprintf(path, sizeof path, "/proc/%d/task", (int)d->pid);
    ck_assert_ptr_nonnull(directory = opendir(path));
    *all = 0;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        snprintf(path, sizeof path, "/proc/%d/task/%.20s/comm", (int)d->pid, entry->d_name);
        FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (!file)
            continue;
        if (fgets(text, sizeof text, file)) {
            text[strcspn(text, "\n")] = 0;
            count += strcmp(text, name) == 0;
            ++*all;
        }
        fclose(file);
    }
    closedir(directory);
    return count;
}

/* ThreadSanitizer starts one thread with the first of the program's, which inherits its name. */
#if defined(__SANITIZE_THREAD__)
enum { SANITIZERS_OWN = 1 };
#else
enum { SANITIZERS_OWN = 0 };
#endif

/* 32 large products at once: the threads that compute are those that the settings name, made at the
 * start. A pool a call, or a BLAS with threads of its own, would show here. */
START_TEST(a_crowd_of_products_starts_no_threads)
{
    enum { CALLS = 32, LANES = 3, CREW = 2, OTHERS_MAX = 8 };
    const struct dot dot = {.m = 128, .k = 1024, .n = 512, .backward = true};
    const char *const more[] = {"--threads", "3", "--lane-threads", "2", NULL};
    struct bytes bytes = dot_request(&dot);
    struct pending *pending[CALLS];
    struct daemon d;
    int all, before;

    start_daemon(&d, octetd_path, more);
    struct client *client = connect_now(&d);
    int crew = threads_named(&d, "octet-crew", &before);
    /* The lane is part of its crew. */
    ck_assert_int_lt(crew - SANITIZERS_OWN, sysconf(_SC_NPROCESSORS_ONLN));
    for (int i = 0; i < CALLS; i++)
        pending[i] = client_start(client, DOT, bytes.data, bytes.length, 120000, NULL);
    for (int i = 0; i < CALLS; i++) {
        struct reply reply;
        client_wait(pending[i], &reply);
        ck_assert_msg(reply.status == 0, "status %d: %s", reply.status, reply.text);
        reply_free(&reply);
        ck_assert_int_eq(threads_named(&d, "octet-lane", &all), LANES);
        ck_assert_int_eq(threads_named(&d, "octet-crew", &all), crew);
        /* gRPC and libuv start a few as they need them; none of these computes. */
        ck_assert_msg(all <= before + OTHERS_MAX, "%d threads, %d before", all, before);
    }
    client_close(client);
    stop_daemon(&d);
    free(bytes.data);
}
END_TEST

/* ---- Size ---- */

/* 64 MiB by 64 MiB, forward and backward: with what a daemon is by default. */
START_TEST(sixty_four_mib_each_way)
{
    enum { K = WITH_SANITIZER ? 16384 : 262144, SIDE = 64 };
    const struct dot dot = {.m = SIDE, .k = K, .n = SIDE, .backward = true};
    struct bytes bytes = dot_request(&dot);
    struct daemon d;

    start_daemon(&d, octetd_path, NULL);
    struct client *client = connect_now(&d);
    long before = daemon_rss_kib(&d);
    for (int round = 0; round < 3; round++) {
        struct reply reply;
        client_call(client, DOT, bytes.data, bytes.length, 120000, &reply);
        Octet__V1__DotGeneralResponse *response = answer_of(&reply);
        ck_assert_uint_eq(response->n_buffers, 2); /* the gradients; the result is small */
        ck_assert_uint_eq(data_of(response, response->out).len, SIDE * SIDE * 4);
        ck_assert_uint_eq(data_of(response, response->lhs_grad).len, SIDE * K * 4);
        ck_assert_uint_eq(data_of(response, response->rhs_grad).len, SIDE * K * 4);
        octet__v1__dot_general_response__free_unpacked(response, NULL);
        reply_free(&reply);
    }
    free(bytes.data);
    pause_ms(2500);
    long growth = daemon_rss_kib(&d) - before;
    ck_assert_msg(WITH_SANITIZER || growth < 64 * 1024, "an idle daemon holds %ld KiB more",
                  growth);
    client_close(client);
    stop_daemon(&d);
}
END_TEST

START_TEST(a_message_over_the_limit_is_refused)
{
    const struct dot fits = {.m = 16, .k = 4000, .n = 48}, over = {.m = 16, .k = 4000, .n = 51};
    struct bytes bytes[] = {dot_request(&fits), dot_request(&over)};
    struct daemon d;
    const char *const more[] = {
        "--config", config_file("limits: {max_message_bytes: 1MiB, config_request_bytes: 64KiB}\n"),
        NULL};

    ck_assert_uint_lt(bytes[0].length, 1 << 20);
    ck_assert_uint_gt(bytes[1].length, 1 << 20);
    start_daemon(&d, octetd_path, more);
    struct client *client = connect_now(&d);
    for (int i = 0; i < 2; i++) {
        struct reply reply;
        client_call(client, DOT, bytes[i].data, bytes[i].length, 20000, &reply);
        ck_assert_int_eq(reply.status, i ? 8 : 0);
        if (i)
            ck_assert_ptr_nonnull(strstr(reply.text, "1048576"));
        reply_free(&reply);
        free(bytes[i].data);
    }
    client_close(client);
    stop_daemon(&d);
}
END_TEST

/* A result much larger than the operands outgrows the first budget; the second attempt has it. What
 * no budget holds is refused. */
START_TEST(a_job_that_outgrows_its_first_budget_runs_again)
{
    const struct dot outer = {.m = 6000, .k = 4, .n = 4000}; /* 160 KiB make 92 MiB */
    struct bytes bytes = dot_request(&outer);
    struct daemon d;
    struct reply reply;
    const char *const more[] = {"--config", config_file("limits: {request_memory_bytes: 128MiB}\n"),
                                NULL};

    start_daemon(&d, octetd_path, NULL);
    struct client *client = connect_now(&d);
    client_call(client, DOT, bytes.data, bytes.length, 120000, &reply);
    Octet__V1__DotGeneralResponse *response = answer_of(&reply);
    ck_assert_uint_eq(data_of(response, response->out).len, 96000000);
    octet__v1__dot_general_response__free_unpacked(response, NULL);
    reply_free(&reply);
    client_close(client);
    stop_daemon(&d);

    start_daemon(&d, octetd_path, more);
    client = connect_now(&d);
    client_call(client, DOT, bytes.data, bytes.length, 120000, &reply);
    ck_assert_int_eq(reply.status, 8);
    ck_assert_str_ne(reply.retry_ms, "");
    reply_free(&reply);
    client_close(client);
    stop_daemon(&d);
    free(bytes.data);
}
END_TEST

/* A crowd pushes more than the daemon may hold: some are told to come back, and the memory in use
 * stays bounded. */
START_TEST(a_crowd_of_large_requests_stays_within_the_memory)
{
    enum { CROWD = 20, LIMIT_MIB = 384 };
    const struct dot dot = {.m = 64, .k = 131072, .n = 64}; /* 64 MiB */
    struct bytes bytes = dot_request(&dot);
    struct daemon d;
    struct client *clients[CROWD];
    struct pending *pending[CROWD];
    long most = 0;
    int ok = 0;
    const char *const more[] = {"--config", config_file("limits: {memory_bytes: 384MiB}\n"),
                                "--threads", "2", NULL};

    start_daemon(&d, octetd_path, more);
    for (int i = 0; i < CROWD; i++)
        clients[i] = connect_now(&d);
    long before = daemon_rss_kib(&d);
    for (int i = 0; i < CROWD; i++)
        pending[i] = client_start(clients[i], DOT, bytes.data, bytes.length, 120000, NULL);
    for (int i = 0; i < 200; i++) {
        long now = daemon_rss_kib(&d) - before;
        most = now > most ? now : most;
        pause_ms(10);
    }
    for (int i = 0; i < CROWD; i++) {
        struct reply reply;
        client_wait(pending[i], &reply);
        /* gRPC may also close a connection on which nothing has begun: UNAVAILABLE, try again. */
        ck_assert_msg(reply.status == 0 || reply.status == 8 || reply.status == 14, "status %d: %s",
                      reply.status, reply.text);
        ok += reply.status == 0;
        reply_free(&reply);
    }
    ck_assert_int_gt(ok, 0);
    ck_assert_msg(WITH_SANITIZER || most < LIMIT_MIB * 1024 * 7 / 4, "%ld KiB were in use", most);
    for (int i = 0; i < CROWD; i++)
        client_close(clients[i]);
    free(bytes.data);
    stop_daemon(&d);
}
END_TEST

/* ---- Time ---- */

/* Some seconds of work on the slowest kernels. */
static const struct dot long_dot = {.m = 2048, .k = 2048, .n = 2048, .backward = true};

START_TEST(deadline_and_cancel_stop_within_an_operation)
{
    struct bytes bytes = dot_request(&long_dot);
    struct daemon d;
    struct reply reply;
    const char *const more[] = {"--threads", "1", "--kernels", "scalar", NULL};
    const struct dot small = {.m = 2, .k = 2, .n = 2};
    struct bytes small_bytes = dot_request(&small);

    start_daemon(&d, octetd_path, more);
    struct client *client = connect_now(&d);
    long before = daemon_rss_kib(&d);
    for (int way = 0; way < 4; way++) {
        struct pending *pending =
            client_start(client, DOT, bytes.data, bytes.length, way % 2 ? 0 : 700, NULL);
        if (way % 2) {
            pause_ms(700);
            client_cancel(pending);
        }
        client_wait(pending, &reply);
        ck_assert_msg(reply.status == (way % 2 ? 1 : 4), "status %d: %s", reply.status, reply.text);
        reply_free(&reply);
        /* The only lane is free again when another call gets it. */
        long long start = now_ms();
        client_call(client, DOT, small_bytes.data, small_bytes.length, 60000, &reply);
        long long took = now_ms() - start;
        ck_assert_int_eq(reply.status, 0);
        ck_assert_msg(took < (WITH_SANITIZER ? 5000 : 1500), "the lane was free after %lld ms",
                      took);
        reply_free(&reply);
    }
    pause_ms(2500);
    long growth = daemon_rss_kib(&d) - before;
    ck_assert_msg(WITH_SANITIZER || growth < 32 * 1024, "grew by %ld KiB", growth);
    client_close(client);
    stop_daemon(&d);
    free(bytes.data);
    free(small_bytes.data);
}
END_TEST

START_TEST(a_small_call_runs_beside_a_long_one)
{
    struct bytes bytes = dot_request(&long_dot);
    const struct dot small = {.m = 4, .k = 64, .n = 4};
    struct bytes small_bytes = dot_request(&small);
    struct daemon d;
    struct reply reply;
    const char *const more[] = {"--threads", "2", "--kernels", "scalar", NULL};

    start_daemon(&d, octetd_path, more);
    struct client *slow = connect_now(&d), *quick = connect_now(&d);
    struct pending *pending = client_start(slow, DOT, bytes.data, bytes.length, 0, NULL);
    pause_ms(400);
    for (int i = 0; i < 20; i++) {
        long long start = now_ms();
        client_call(quick, DOT, small_bytes.data, small_bytes.length, 60000, &reply);
        ck_assert_int_eq(reply.status, 0);
        ck_assert_int_lt(now_ms() - start, WITH_SANITIZER ? 5000 : 1500);
        reply_free(&reply);
    }
    client_cancel(pending);
    client_wait(pending, &reply);
    ck_assert_int_eq(reply.status, 1); /* it was at work all the time */
    reply_free(&reply);
    client_close(slow);
    client_close(quick);
    stop_daemon(&d);
    free(bytes.data);
    free(small_bytes.data);
}
END_TEST

enum { STORM = WITH_SANITIZER ? 500 : 5000 };

/* Calls with deadlines of 0 to 20 ms, the same ones each time. */
static void storm(struct client *client, const struct bytes *requests, size_t request_count,
                  unsigned *random, int tally[17])
{
    enum { AT_A_TIME = 25 };

    for (int i = 0; i < STORM; i += AT_A_TIME) {
        struct pending *pending[AT_A_TIME];
        for (int k = 0; k < AT_A_TIME; k++) {
            *random = *random * 1664525u + 1013904223u;
            const struct bytes *request = &requests[(*random >> 8) % request_count];
            pending[k] = client_start(client, DOT, request->data, request->length,
                                      1 + (int)(*random >> 16) % 20, NULL);
        }
        for (int k = 0; k < AT_A_TIME; k++) {
            struct reply reply;
            client_wait(pending[k], &reply);
            ck_assert_int_lt(reply.status, 17);
            tally[reply.status]++;
            reply_free(&reply);
        }
    }
}

/* What the daemon holds after a storm on a connection of its own, which has been closed: until then
 * gRPC keeps some MiB for what may still come. The least of some seconds: what is free goes back in
 * its own time, what leaked never does. */
static long rss_after_storm(const struct daemon *d, const struct bytes *requests,
                            size_t request_count, unsigned *random, int tally[17])
{
    struct client *client = connect_now(d);
    long least = LONG_MAX;

    storm(client, requests, request_count, random, tally);
    client_close(client);
    for (int i = 0; i < (WITH_SANITIZER ? 1 : 4); i++) {
        pause_ms(1500);
        long now = daemon_rss_kib(d);
        least = now < least ? now : least;
    }
    return least;
}

START_TEST(storms_of_short_deadlines_leave_nothing_behind)
{
    const struct dot dots[] = {{.m = 8, .k = 64, .n = 8},
                               {.m = 128, .k = 256, .n = 128, .backward = true},
                               {.m = 512, .k = 512, .n = 512}};
    struct bytes requests[3];
    struct daemon d;
    int tally[17] = {0};
    unsigned random = 1;
    const char *const more[] = {"--threads", "2", NULL};

    for (int i = 0; i < 3; i++)
        requests[i] = dot_request(&dots[i]);
    start_daemon(&d, octetd_path, more);
    long before = rss_after_storm(&d, requests, 3, &random, tally);
    long growth = rss_after_storm(&d, requests, 3, &random, tally) - before;
    ck_assert_int_gt(tally[0], 0);
    ck_assert_int_gt(tally[4], 50); /* many deadlines passed */
    ck_assert_int_eq(tally[0] + tally[4] + tally[8] + tally[1], 2 * STORM);
    ck_assert_msg(WITH_SANITIZER || growth < 5 * 1024, "grew by %ld KiB", growth);
    stop_daemon(&d);
    for (int i = 0; i < 3; i++)
        free(requests[i].data);
}
END_TEST

/* ---- Results ---- */

/* The bits depend on the request alone: not on the kernels, the threads, nor the load. */
START_TEST(every_set_of_kernels_gives_the_same_bits)
{
    const struct dot dots[] = {
        {.m = 1, .k = 300, .n = 33, .level = OCTET__V1__TRACE_LEVEL__TRACE_LEVEL_NUMERICS},
        {.m = 37, .k = 1031, .n = 70, .level = OCTET__V1__TRACE_LEVEL__TRACE_LEVEL_NUMERICS},
        {.m = 130, .k = 515, .n = 260, .level = OCTET__V1__TRACE_LEVEL__TRACE_LEVEL_NUMERICS}};
    char first[3][33] = {""};
    int sets = 0;

    for (size_t s = 0; octet_kernel_set_name(s); s++) {
        const char *name = octet_kernel_set_name(s), *obstacle = octet_kernel_set_obstacle(s);
        if (obstacle) {
            printf("not run: kernels %s (%s)\n", name, obstacle);
            continue;
        }
        for (int threads = 1; threads <= 3; threads += 2) {
            struct daemon d;
            const char *const more[] = {"--lane-threads", threads == 1 ? "1" : "3", NULL};
            setenv("OCTET_CPU", name, 1);
            start_daemon(&d, octetd_path, more);
            unsetenv("OCTET_CPU");
            struct client *client = connect_now(&d);
            struct reply reply;
            client_call(client, INFO, "", 0, 20000, &reply);
            Octet__V1__GetServerInfoResponse *info =
                octet__v1__get_server_info_response__unpack(NULL, reply.length, reply.bytes);
            ck_assert_str_eq(info->kernels, name);
            octet__v1__get_server_info_response__free_unpacked(info, NULL);
            reply_free(&reply);
            for (int i = 0; i < 3; i++) {
                char digest[33];
                digest_of(client, &dots[i], digest);
                if (!first[i][0])
                    memcpy(first[i], digest, sizeof digest);
                ck_assert_msg(strcmp(digest, first[i]) == 0, "%s, %d threads, product %d", name,
                              threads, i);
            }
            client_close(client);
            stop_daemon(&d);
            sets++;
        }
    }
    ck_assert_int_ge(sets, 2);
}
END_TEST

START_TEST(kernels_that_are_not_there_stop_the_start)
{
    struct daemon d;
    int status = 0;
    const char *const unknown[] = {"--listen", "127.0.0.1:0", "--kernels", "abacus", NULL};

    ck_assert(!daemon_start(&d, octetd_path, unknown, log_path, &status));
    ck_assert_int_eq(status, 1);
    ck_assert(log_has("abacus"));
}
END_TEST

/* A row's codes and sums are its own: alone or in a batch, the same bits. */
START_TEST(a_row_is_the_same_alone_and_in_a_batch)
{
    enum { ROWS = 40, K = 700, N = 50 };
    const struct dot batch = {.m = ROWS, .k = K, .n = N};
    struct bytes bytes = dot_request(&batch);
    struct daemon d;
    struct reply whole, one;

    start_daemon(&d, octetd_path, NULL);
    struct client *client = connect_now(&d);
    client_call(client, DOT, bytes.data, bytes.length, 20000, &whole);
    Octet__V1__DotGeneralResponse *response = answer_of(&whole);
    ProtobufCBinaryData out = data_of(response, response->out);
    for (int row = 0; row < ROWS; row += 13) {
        const struct dot alone = {.m = 1, .k = K, .n = N, .first_row = row};
        struct bytes single = dot_request(&alone);
        client_call(client, DOT, single.data, single.length, 20000, &one);
        Octet__V1__DotGeneralResponse *answer = answer_of(&one);
        ck_assert_mem_eq(data_of(answer, answer->out).data, out.data + row * N * 4, N * 4);
        octet__v1__dot_general_response__free_unpacked(answer, NULL);
        reply_free(&one);
        free(single.data);
    }
    octet__v1__dot_general_response__free_unpacked(response, NULL);
    reply_free(&whole);
    free(bytes.data);
    client_close(client);
    stop_daemon(&d);
}
END_TEST

START_TEST(parallel_clients_get_the_bits_they_get_alone)
{
    enum { CLIENTS = 12, ROUNDS = 5, KINDS = 3 };
    const struct dot dots[KINDS] = {{.m = 9, .k = 100, .n = 17},
                                    {.m = 64, .k = 600, .n = 64, .backward = true},
                                    {.m = 300, .k = 256, .n = 300}};
    struct bytes requests[KINDS];
    struct reply alone[KINDS];
    struct daemon d;
    struct client *clients[CLIENTS];
    struct pending *pending[CLIENTS];
    const char *const more[] = {"--threads", "4", "--lane-threads", "2", NULL};

    start_daemon(&d, octetd_path, more);
    for (int i = 0; i < CLIENTS; i++)
        clients[i] = connect_now(&d);
    for (int i = 0; i < KINDS; i++) {
        requests[i] = dot_request(&dots[i]);
        client_call(clients[0], DOT, requests[i].data, requests[i].length, 60000, &alone[i]);
        ck_assert_int_eq(alone[i].status, 0);
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < CLIENTS; i++) {
            const struct bytes *request = &requests[(i + round) % KINDS];
            pending[i] = client_start(clients[i], DOT, request->data, request->length, 60000, NULL);
        }
        for (int i = 0; i < CLIENTS; i++) {
            struct reply reply;
            const struct reply *wanted = &alone[(i + round) % KINDS];
            client_wait(pending[i], &reply);
            ck_assert_msg(reply.status == 0, "status %d: %s", reply.status, reply.text);
            ck_assert_uint_eq(reply.length, wanted->length);
            ck_assert_mem_eq(reply.bytes, wanted->bytes, reply.length);
            reply_free(&reply);
        }
    }
    for (int i = 0; i < CLIENTS; i++)
        client_close(clients[i]);
    for (int i = 0; i < KINDS; i++) {
        reply_free(&alone[i]);
        free(requests[i].data);
    }
    stop_daemon(&d);
}
END_TEST

TCase *tensors_tests(void)
{
    TCase *tests = tcase_create("tensors");

    tcase_set_timeout(tests, 240);
    tcase_add_test(tests, a_crowd_of_products_starts_no_threads);
    tcase_add_test(tests, sixty_four_mib_each_way);
    tcase_add_test(tests, a_message_over_the_limit_is_refused);
    tcase_add_test(tests, a_job_that_outgrows_its_first_budget_runs_again);
    tcase_add_test(tests, a_crowd_of_large_requests_stays_within_the_memory);
    tcase_add_test(tests, deadline_and_cancel_stop_within_an_operation);
    tcase_add_test(tests, a_small_call_runs_beside_a_long_one);
    tcase_add_test(tests, storms_of_short_deadlines_leave_nothing_behind);
    tcase_add_test(tests, every_set_of_kernels_gives_the_same_bits);
    tcase_add_test(tests, kernels_that_are_not_there_stop_the_start);
    tcase_add_test(tests, a_row_is_the_same_alone_and_in_a_batch);
    tcase_add_test(tests, parallel_clients_get_the_bits_they_get_alone);
    return tests;
}
