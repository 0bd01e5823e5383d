/* The gRPC side: the server object, its port, and the one thread that waits on its completion
 * queue.
 *
 * For: turning gRPC's events into events of the loop, and starting batches.
 * Not for: what a call is about (call.h).
 * Decision: one queue, one thread, and that thread only passes tags on. A tag is a struct event.
 *
 * Life: create -> listen -> (calls) -> shutdown -> its event -> close -> its event -> destroy.
 * All functions but the queue's own thread run on the loop's thread. */
#ifndef OCTET_SERVER_RPC_H
#define OCTET_SERVER_RPC_H

#include <grpc/grpc.h>

#include "config.h"
#include "inbox.h"

struct rpc;

enum octet_status rpc_create(const struct config *config, struct inbox *inbox, struct rpc **out,
                             struct octet_error *err) OCTET_MUST_CHECK;
/* Binds the config's address; *port is the bound one (1 for unix sockets). */
enum octet_status rpc_listen(struct rpc *rpc, const struct config *config, int *port,
                             struct octet_error *err) OCTET_MUST_CHECK;
/* Last step of the start: from here on, only rpc_shutdown and rpc_close lead to rpc_destroy. */
enum octet_status rpc_serve(struct rpc *rpc, struct octet_error *err) OCTET_MUST_CHECK;

/* Asks for the next call. The event's ok is false when there will be none. */
void rpc_request_call(struct rpc *rpc, grpc_call **call, grpc_call_details *details,
                      grpc_metadata_array *metadata, struct event *event);
/* The event comes back exactly once. */
void rpc_start(grpc_call *call, const grpc_op *ops, size_t count, struct event *event);

/* Closes the port and says goodbye to the clients; the event comes when the last call has ended. */
void rpc_shutdown(struct rpc *rpc, struct event *event);
void rpc_cancel_calls(struct rpc *rpc);
/* After rpc_shutdown's event: the event comes after all others, as the queue's last. */
void rpc_close(struct rpc *rpc, struct event *event);
/* After rpc_close's event: its thread is at its end. NULL is fine. */
void rpc_join(struct rpc *rpc);
/* After rpc_close's event, or where rpc_serve was not reached or failed. NULL is fine. */
void rpc_destroy(struct rpc *rpc);

#endif
