/* octet bench rpc: calls to a daemon, beside a bare gRPC server and beside the same calls in this
 * process. What is called beside the bare server is octet-bench-rpc's business (bench_rpc_load.h):
 * it links gRPC, and octet does not. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "progress.h"
#include "tensors.h"
#include "wire/convert.h"
#include "wire/methods.h"

enum { CALLS_SMALL = 300, CALLS_LARGE = 5, CALLS_MAX = CALLS_SMALL };

/* A call that is made again and again. */
struct call {
    const char *name; /* of the row */
    const char *method;
    const ProtobufCMessage *request;
    int count;
    double bytes; /* of the request; 0: too few to speak of */
    bool alone;   /* no peer: a daemon knows the answer since its start, this process asks around */
};

struct times {
    double all[CALLS_MAX];
    double p50, p99;
};

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static enum octet_status call_once(struct session *session, const struct call *call,
                                   double *seconds, struct octet_error *err)
{
    ProtobufCMessage *response;
    uint64_t start = octet_now_ns();
    enum octet_status status = session_call(session, call->method, call->request, &response, err);

    *seconds = 1e-9 * (double)(octet_now_ns() - start);
    return status;
}

/* Both in turns, after one of each that does not count: it connects, and makes workers. Each call
 * has the scratch arena for itself. */
static enum octet_status measure(struct session *there, struct session *here,
                                 const struct call *call, struct times *remote, struct times *local,
                                 struct octet_error *err)
{
    enum octet_status status = OCTET_OK;

    for (int i = -1; i < call->count && status == OCTET_OK; i++) {
        int at = i < 0 ? 0 : i;
        octet_arena_reset(there->arena);
        status = call_once(there, call, &remote->all[at], err);
        octet_arena_reset(there->arena);
        if (status == OCTET_OK && !call->alone)
            status = call_once(here, call, &local->all[at], err);
    }
    struct times *both[] = {remote, local};
    for (int k = 0; k < 2 && status == OCTET_OK; k++) {
        qsort(both[k]->all, (size_t)call->count, sizeof(double), by_size);
        both[k]->p50 = both[k]->all[call->count / 2];
        both[k]->p99 = both[k]->all[(call->count * 99) / 100];
    }
    return status;
}

static void add_row(struct bench *bench, const struct call *call, const struct times *remote,
                    const struct times *local)
{
    struct bench_row *row = bench_add(bench);
    double beside = call->alone ? (double)NAN : local->p50;
    double bytes = call->bytes ? call->bytes : (double)NAN;

    bench_number(row, "ratio", "RATIO", beside / remote->p50, 3);
    bench_number(row, "ratio_min", "LEAST", (double)NAN, 3);
    bench_text(row, "call", "CALL", call->name);
    bench_number(row, "connections", "CONNECTIONS", 1, 0);
    bench_text(row, "peer", "PEER", call->alone ? "none" : "in-process");
    bench_number(row, "p50_us", "P50 us", 1e6 * remote->p50, 0);
    bench_number(row, "p99_us", "P99 us", 1e6 * remote->p99, 0);
    bench_number(row, "peer_p50_us", "PEER'S P50 us", 1e6 * beside, 0);
    bench_number(row, "peer_p99_us", "PEER'S P99 us", call->alone ? (double)NAN : 1e6 * local->p99,
                 0);
    bench_number(row, "calls_per_s", "CALLS/s", (double)NAN, 0);
    bench_number(row, "peer_calls_per_s", "PEER'S CALLS/s", (double)NAN, 0);
    bench_number(row, "mbytes_per_s", "MB/s", 1e-6 * bytes / remote->p50, 0);
    bench_number(row, "peer_mbytes_per_s", "PEER'S MB/s", 1e-6 * bytes / beside, 0);
}

/* ---- Beside a bare gRPC server ---- */

struct figures {
    double connections, bytes, ratio, ratio_min, calls_per_s, p50_us, p99_us;
    double peer_calls_per_s, peer_p50_us, peer_p99_us;
};

/* A line of octet-bench-rpc. Its name is copied. */
static bool read_line(octet_arena *arena, char *line, const char **name, struct figures *f)
{
    char *bar = strchr(line, '|');

    if (!bar)
        return false;
    *bar = '\0';
    *name = octet_arena_format(arena, "%s", line);
    return *name &&
           sscanf(bar + 1, "%lf|%lf|%lf|%lf|%lf|%lf|%lf|%lf|%lf|%lf", &f->connections, &f->bytes,
                  &f->ratio, &f->ratio_min, &f->calls_per_s, &f->p50_us, &f->p99_us,
                  &f->peer_calls_per_s, &f->peer_p50_us, &f->peer_p99_us) == 10;
}

static void add_bare_row(struct bench *bench, const char *name, const struct figures *f)
{
    struct bench_row *row = bench_add(bench);
    double bytes = f->bytes > 0 ? f->bytes : (double)NAN;

    bench_number(row, "ratio", "RATIO", f->ratio, 3);
    bench_number(row, "ratio_min", "LEAST", f->ratio_min, 3);
    bench_text(row, "call", "CALL", name);
    bench_number(row, "connections", "CONNECTIONS", f->connections, 0);
    bench_text(row, "peer", "PEER", "bare-grpc");
    bench_number(row, "p50_us", "P50 us", f->p50_us, 0);
    bench_number(row, "p99_us", "P99 us", f->p99_us, 0);
    bench_number(row, "peer_p50_us", "PEER'S P50 us", f->peer_p50_us, 0);
    bench_number(row, "peer_p99_us", "PEER'S P99 us", f->peer_p99_us, 0);
    bench_number(row, "calls_per_s", "CALLS/s", f->calls_per_s, 0);
    bench_number(row, "peer_calls_per_s", "PEER'S CALLS/s", f->peer_calls_per_s, 0);
    bench_number(row, "mbytes_per_s", "MB/s", bytes / f->p50_us, 0);
    bench_number(row, "peer_mbytes_per_s", "PEER'S MB/s", bytes / f->peer_p50_us, 0);
}

/* Runs octet-bench-rpc, which lies beside this program. *out: what it prints. */
static pid_t start_load(const char *target, FILE **out)
{
    static const char name[] = "octet-bench-rpc";
    char self[PATH_MAX], program[PATH_MAX + sizeof name];
    int ends[2];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);

    if (length <= 0 || pipe(ends) != 0)
        return -1;
    self[length] = '\0';
    *(strrchr(self, '/') + 1) = '\0';
    snprintf(program, sizeof program, "%s%s", self, name);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execl(program, name, "run", target, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    *out = fdopen(ends[0], "r");
    return child;
}

static enum octet_status beside_bare(struct bench *bench, struct octet_error *err)
{
    struct session *session = bench->session;
    FILE *lines = NULL;
    char line[512];
    const char *name;
    struct figures f;
    int ended = -1;
    pid_t child = start_load(session_server(session), &lines);

    while (child > 0 && lines && fgets(line, sizeof line, lines))
        if (read_line(session->arena, line, &name, &f))
            add_bare_row(bench, name, &f);
    if (lines)
        fclose(lines);
    if (child > 0 && waitpid(child, &ended, 0) == child && ended == 0)
        return OCTET_OK;
    return octet_fail(err, OCTET_UNAVAILABLE, NULL,
                      "octet-bench-rpc, which calls the daemon and a bare gRPC server beside it, "
                      "%s",
                      child > 0 && WIFEXITED(ended) && WEXITSTATUS(ended) == 127
                          ? "is not where this program is"
                          : "ended with an error");
}

/* ---- Beside this process ---- */

/* A request for [m, k] x [k, n]; its arrays live in the arena. */
static enum octet_status make_dot(octet_arena *arena, int64_t m, int64_t k, int64_t n,
                                  struct request_buffers *buffers,
                                  Octet__V1__DotGeneralRequest *out, struct octet_error *err)
{
    static int32_t lhs_axis = 1, rhs_axis = 0;
    struct tensor lhs = {0}, rhs = {0};
    const int64_t left[] = {m, k}, right[] = {k, n};
    enum octet_status status = octet_array_create(arena, OCTET_DTYPE_F32, 2, left, &lhs.array, err);

    if (status == OCTET_OK)
        status = octet_array_create(arena, OCTET_DTYPE_F32, 2, right, &rhs.array, err);
    if (status != OCTET_OK)
        return status;
    bench_fill(lhs.array.data, (size_t)(m * k), 1);
    bench_fill(rhs.array.data, (size_t)(k * n), 2);
    octet__v1__dot_general_request__init(out);
    *buffers = (struct request_buffers){.arena = arena};
    out->lhs = request_operand(buffers, &lhs);
    out->rhs = request_operand(buffers, &rhs);
    out->dimension_numbers = oct_wire_new(arena, &octet__v1__dot_dimension_numbers__descriptor);
    if (!out->lhs || !out->rhs || !out->dimension_numbers)
        return octet_arena_exhausted(arena, err);
    out->dimension_numbers->lhs_contracting = &lhs_axis;
    out->dimension_numbers->rhs_contracting = &rhs_axis;
    out->dimension_numbers->n_lhs_contracting = out->dimension_numbers->n_rhs_contracting = 1;
    out->buffers = buffers->list;
    out->n_buffers = buffers->count;
    return OCTET_OK;
}

static enum octet_status run_all(struct bench *bench, octet_arena *scratch, struct octet_error *err)
{
    struct session *session = bench->session, there = *session, here = *session;
    struct arguments local = *session->arguments;
    Octet__V1__GetServerInfoRequest info = OCTET__V1__GET_SERVER_INFO_REQUEST__INIT;
    Octet__V1__DotGeneralRequest small, large;
    struct request_buffers small_buffers, large_buffers;
    struct times *remote = OCTET_NEW(session->arena, struct times);
    struct times *beside = OCTET_NEW(session->arena, struct times);
    enum octet_status status;

    if (!remote || !beside)
        return octet_arena_exhausted(session->arena, err);
    if ((status = make_dot(session->arena, 8, 64, 16, &small_buffers, &small, err)) ||
        (status = make_dot(session->arena, 4096, 4096, 1, &large_buffers, &large, err)))
        return status;
    local.local = true;
    local.server = NULL;
    here.arguments = &local;
    there.arena = here.arena = scratch;
    const struct call calls[] = {
        {"GetServerInfo", "GetServerInfo", &info.base, CALLS_SMALL, 0, true},
        {"DotGeneral [8, 64] x [64, 16]", "DotGeneral", &small.base, CALLS_SMALL, 0, false},
        {"DotGeneral of 64 MiB", "DotGeneral", &large.base, CALLS_LARGE, 4096.0 * 4096 * 4, false},
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls && status == OCTET_OK; i++) {
        status = measure(&there, &here, &calls[i], remote, beside, err);
        if (status == OCTET_OK)
            add_row(bench, &calls[i], remote, beside);
    }
    session->remote = there.remote; /* main ends both */
    session->workers = here.workers;
    return status;
}

/* The load speaks plaintext and has no token. */
static bool uses_tls(void)
{
    const char *ca = getenv("OCTET_TLS_CA"), *token = getenv("OCTET_TOKEN");

    return (ca && ca[0]) || (token && token[0]);
}

enum octet_status bench_rpc(struct bench *bench, struct octet_error *err)
{
    struct session *session = bench->session;

    if (!session_server(session))
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                          "rpc measures calls to a daemon, and there is none: give --server "
                          "HOST:PORT");
    octet_arena *scratch = octet_arena_create(octet_arena_budget(session->arena));
    if (!scratch)
        return octet_arena_exhausted(session->arena, err);
    progress_start("bench rpc");
    enum octet_status status = uses_tls() ? OCTET_OK : beside_bare(bench, err);
    if (status == OCTET_OK)
        status = run_all(bench, scratch, err);
    progress_end();
    octet_arena_destroy(scratch);
    return status;
}
