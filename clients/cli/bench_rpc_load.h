/* octet-bench-rpc: the other side of `octet bench rpc`, a program of its own since it links gRPC.
 *
 *     octet-bench-rpc serve          a bare gRPC server; prints its port, serves until killed
 *     octet-bench-rpc run HOST:PORT  starts such a server, calls it and octetd there in turns, and
 *                                    prints a line for each kind of call:
 *     NAME|CONNECTIONS|BYTES|RATIO|ITS MINIMUM|CALLS/S|P50 us|P99 us|and these three of the bare
 * server
 *
 * Decision: the peer is what gRPC's core does with one completion queue and one thread: no limits,
 * no admission, no queue, no decoding. What octetd costs beside it is what octetd adds. */
#ifndef OCTET_CLI_BENCH_RPC_LOAD_H
#define OCTET_CLI_BENCH_RPC_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LOAD_BODY_BYTES = 64, LOAD_ECHO_BYTES_MAX = 64 << 10 };

/* Echoes messages of up to LOAD_ECHO_BYTES_MAX, and answers larger ones with an empty one. Returns
 * the exit status. */
int bare_server_main(void);

/* One kind of call to one server, from `connections` connections with one call each under way. */
struct load_request {
    const char *path; /* "/octet.v1.Octet/GetServerInfo" */
    const void *bytes;
    size_t length;
};
struct load;
/* Connects, and makes one call on each connection. Ends the process when that fails: nothing can be
 * measured then. */
struct load *load_open(const char *target, const struct load_request *request, size_t connections);
/* Makes `calls` calls, as fast as they are answered. latencies [calls] in seconds, written. Returns
 * the seconds that all of it took. */
double load_run(struct load *load, size_t calls, double *latencies);
void load_close(struct load *load);

#endif
