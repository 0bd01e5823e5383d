/* octet-bench-rpc: starts the bare server, calls both in turns, prints what came out; see
 * bench_rpc_load.h. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench_rpc_load.h"
#include "octet/cancel.h"
#include "octet/v1/octet.pb-c.h"
#include "octet_client.h"

enum { TURNS = 15, CALLS = 1500, CALLS_ALONE = 300, CONNECTIONS = 64, UPLOAD_SIDE = 4096 };

enum side { OURS, BARE, SIDES };

/* One kind of call, there and at the bare server. */
struct row {
    const char *name;
    size_t calls, connections; /* calls: of a turn */
    size_t bytes;              /* of a request; 0: too few to speak of */
    double *latencies[SIDES];  /* [TURNS * calls] */
    double turns[SIDES][TURNS], ratios[TURNS];
};

_Noreturn static void fail(const char *what, const char *why)
{
    fprintf(stderr, "octet-bench-rpc: %s: %s\n", what, why);
    exit(EXIT_FAILURE);
}

static void *take(size_t bytes)
{
    void *memory = calloc(1, bytes);

    if (!memory)
        fail("out of memory", "cannot go on");
    return memory;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, by_size);
    return values[count / 2];
}

static void row_init(struct row *row, const char *name, size_t connections, size_t calls)
{
    *row = (struct row){.name = name, .connections = connections, .calls = calls};
    for (int side = 0; side < SIDES; side++)
        row->latencies[side] = take(TURNS * calls * sizeof(double));
}

/* The line that octet reads (bench_rpc.c). */
static void row_print(struct row *row)
{
    size_t all = TURNS * row->calls;

    for (size_t t = 0; t < TURNS; t++)
        row->ratios[t] = row->turns[BARE][t] / row->turns[OURS][t];
    double ratio = median(row->ratios, TURNS);
    printf("%s|%zu|%zu|%.4f|%.4f", row->name, row->connections, row->bytes, ratio, row->ratios[0]);
    for (int side = 0; side < SIDES; side++) {
        double p50 = median(row->latencies[side], all);
        printf("|%.1f|%.2f|%.2f", (double)row->calls / median(row->turns[side], TURNS), 1e6 * p50,
               1e6 * row->latencies[side][all * 99 / 100]);
        free(row->latencies[side]);
    }
    putchar('\n');
    fflush(stdout);
}

/* ---- Small calls ---- */

static void small_calls(const char *const targets[SIDES], const char *name,
                        const struct load_request *request, size_t connections)
{
    static const uint8_t body[LOAD_BODY_BYTES] = {0};
    const struct load_request echo = {"/bench.Bare/Echo", body, sizeof body};
    struct row row;
    struct load *loads[SIDES];

    row_init(&row, name, connections, connections == 1 ? CALLS_ALONE : CALLS);
    for (int side = 0; side < SIDES; side++) {
        loads[side] = load_open(targets[side], side == OURS ? request : &echo, connections);
        load_run(loads[side], row.calls, row.latencies[side]); /* warms up */
    }
    for (size_t t = 0; t < TURNS; t++)
        for (int side = 0; side < SIDES; side++)
            row.turns[side][t] =
                load_run(loads[side], row.calls, row.latencies[side] + t * row.calls);
    for (int side = 0; side < SIDES; side++)
        load_close(loads[side]);
    row_print(&row);
}

/* [1, 8] f32 to E4M3: with the message around it about as large as the bare server's. */
static size_t quantize_request(uint8_t out[128])
{
    float numbers[8] = {1, -2, 3, -4, 5, -6, 7, -8};
    int64_t shape[] = {1, 8};
    int32_t axis = 0;
    Octet__V1__Tensor tensor = OCTET__V1__TENSOR__INIT;
    Octet__V1__QuantizeRequest request = OCTET__V1__QUANTIZE_REQUEST__INIT;

    tensor.dtype = OCTET__V1__DATA_TYPE__DATA_TYPE_F32;
    tensor.shape = shape;
    tensor.n_shape = 2;
    tensor.data = (ProtobufCBinaryData){sizeof numbers, (uint8_t *)numbers};
    request.array = &tensor;
    request.qtype = (char *)(uintptr_t) "float8_e4m3fn";
    request.channelwise_axes = &axis;
    request.n_channelwise_axes = 1;
    return octet__v1__quantize_request__pack(&request, out);
}

/* ---- Uploads ---- */

/* All of a DotGeneral but its large buffer, behind which the head of that stands. The operands do
 * not fit together: octetd finds it out where the kernel would begin to read, when all has arrived,
 * was put together, decoded and checked. */
static size_t upload_head(size_t bytes, uint8_t out[256])
{
    uint8_t number[4] = {0};
    int64_t shapes[2][2] = {{UPLOAD_SIDE, UPLOAD_SIDE}, {1, 1}};
    int32_t axes[2] = {1, 0};
    Octet__V1__Tensor tensors[2] = {OCTET__V1__TENSOR__INIT, OCTET__V1__TENSOR__INIT};
    Octet__V1__Operand operands[2] = {OCTET__V1__OPERAND__INIT, OCTET__V1__OPERAND__INIT};
    Octet__V1__DotDimensionNumbers dims = OCTET__V1__DOT_DIMENSION_NUMBERS__INIT;
    Octet__V1__DotGeneralRequest request = OCTET__V1__DOT_GENERAL_REQUEST__INIT;

    for (int i = 0; i < 2; i++) {
        tensors[i].dtype = OCTET__V1__DATA_TYPE__DATA_TYPE_F32;
        tensors[i].shape = shapes[i];
        tensors[i].n_shape = 2;
        operands[i].kind_case = OCTET__V1__OPERAND__KIND_TENSOR;
        operands[i].tensor = &tensors[i];
    }
    tensors[0].buffer = 1;
    tensors[1].data = (ProtobufCBinaryData){sizeof number, number};
    dims.lhs_contracting = &axes[0];
    dims.rhs_contracting = &axes[1];
    dims.n_lhs_contracting = dims.n_rhs_contracting = 1;
    request.lhs = &operands[0];
    request.rhs = &operands[1];
    request.dimension_numbers = &dims;
    size_t used = octet__v1__dot_general_request__pack(&request, out);
    out[used++] = 15 << 3 | 2;
    for (; bytes > 0x7f; bytes >>= 7)
        out[used++] = (uint8_t)(bytes | 0x80);
    out[used++] = (uint8_t)bytes;
    return used;
}

static double upload(octet_client *client, enum side side, const void *numbers, size_t bytes)
{
    uint8_t head[256];
    struct octet_client_reply reply;
    struct octet_error err = {.status = OCTET_OK};
    uint64_t start = octet_now_ns();
    const struct octet_client_piece pieces[] = {{head, upload_head(bytes, head)}, {numbers, bytes}};
    enum octet_status status =
        octet_client_call_pieces(client, "DotGeneral", pieces, 2, NULL, &reply, &err);
    double took = 1e-9 * (double)(octet_now_ns() - start);

    octet_client_reply_clear(&reply);
    if (status != (side == OURS ? OCTET_INVALID_ARGUMENT : OCTET_OK))
        fail("an upload", err.text);
    return took;
}

static void uploads(const char *const targets[SIDES])
{
    size_t bytes = (size_t)UPLOAD_SIDE * UPLOAD_SIDE * sizeof(float);
    void *numbers = take(bytes);
    octet_client *clients[SIDES];
    struct octet_error err;
    struct row row;

    memset(numbers, 1, bytes);
    row_init(&row, "upload of 64 MiB, to where the kernel begins", 1, 1);
    row.bytes = bytes;
    for (int side = 0; side < SIDES; side++) {
        const struct octet_client_options options = {.target = targets[side]};
        if (octet_client_connect(&options, &clients[side], &err) != OCTET_OK)
            fail(targets[side], err.text);
        upload(clients[side], side, numbers, bytes);
    }
    for (size_t t = 0; t < TURNS; t++)
        for (int side = 0; side < SIDES; side++)
            row.turns[side][t] = row.latencies[side][t] =
                upload(clients[side], side, numbers, bytes);
    for (int side = 0; side < SIDES; side++)
        octet_client_destroy(clients[side]);
    free(numbers);
    row_print(&row);
}

/* ---- The program ---- */

static pid_t start_bare(char target[32])
{
    int ends[2], port = 0;
    char text[16] = "";

    if (pipe(ends) != 0)
        fail("no pipe", "cannot go on");
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        execl("/proc/self/exe", "octet-bench-rpc", "serve", (char *)NULL);
        _exit(EXIT_FAILURE);
    }
    close(ends[1]);
    for (size_t used = 0; child > 0 && used + 1 < sizeof text && !strchr(text, '\n');) {
        ssize_t got = read(ends[0], text + used, sizeof text - 1 - used);
        if (got <= 0)
            break;
        used += (size_t)got;
    }
    close(ends[0]);
    port = (int)strtol(text, NULL, 10);
    if (port <= 0)
        fail("the bare server", "does not start");
    snprintf(target, 32, "127.0.0.1:%d", port);
    return child;
}

int main(int argc, char **argv)
{
    uint8_t bytes[128];
    char bare[32];

    if (argc == 2 && strcmp(argv[1], "serve") == 0)
        return bare_server_main();
    if (argc != 3 || strcmp(argv[1], "run") != 0) {
        fputs("usage: octet-bench-rpc serve | run HOST:PORT\n", stderr);
        return 2;
    }
    pid_t child = start_bare(bare);
    const char *const targets[SIDES] = {argv[2], bare};
    const struct load_request info = {"/octet.v1.Octet/GetServerInfo", "", 0};
    const struct load_request quantize = {"/octet.v1.Octet/Quantize", bytes,
                                          quantize_request(bytes)};
    small_calls(targets, "GetServerInfo", &info, 1);
    small_calls(targets, "GetServerInfo", &info, CONNECTIONS);
    small_calls(targets, "Quantize [1, 8]", &quantize, 1);
    small_calls(targets, "Quantize [1, 8]", &quantize, CONNECTIONS);
    uploads(targets);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return EXIT_SUCCESS;
}
