/* Guard: watches how much each TCP connection sends, and ends those that send what no call
 * accounts for.
 *
 * For: two faults of gRPC 1.51 that no setting of it covers. A header that never ends is parsed
 * again from its beginning with each CONTINUATION frame, whatever the metadata limit says
 * (CVE-2023-33953: 40 MB in 40 s, all of it CPU); and a message is held whole before its size is
 * looked at. It also keeps the number of connections below the number of descriptors, since gRPC
 * stops listening for good when they run out.
 * Not for: hostile networks. It looks some 20 to 100 times a second, so a flood costs a few MB and
 * tens of milliseconds before it is cut. HAProxy in front is the answer there. Unix sockets are
 * not watched.
 * Decision: the kernel counts a connection's bytes (TCP_INFO), and calls tell what they account
 * for; the sockets are found in /proc/self/fd, because gRPC does not hand them out. Its own
 * thread, so that the loop does not wait for system calls.
 *
 * Account of a connection, in bytes: allowed = limits.unclaimed_bytes + for each call its metadata
 * and one flow-control window + 1.25 x each request received + 1.25 x the largest request for each
 * that is on its way + 1/64 of what we sent (window updates) + 32 a second (pings). */
#ifndef OCTET_SERVER_GUARD_H
#define OCTET_SERVER_GUARD_H

#include <netinet/in.h>

#include "config.h"
#include "inbox.h"

/* A TCP peer; all zero: not one. */
struct peer_key {
    struct in6_addr address; /* IPv4 mapped into IPv6 */
    uint16_t port;
};

/* From gRPC's name of a peer: "ipv4:127.0.0.1:48524", "ipv6:%5B::1%5D:48524". */
struct peer_key peer_key_parse(const char *peer);
bool peer_key_equal(const struct peer_key *a, const struct peer_key *b);

struct guard;

/* on_excess comes to the loop when a connection sends more than the requests it has on the way may
 * hold: end these. port 0: nothing is watched, *out is NULL. */
enum octet_status guard_start(const struct config *config, int port, struct inbox *inbox,
                              void (*on_excess)(void *user, const struct peer_key *peer),
                              void *user, struct guard **out,
                              struct octet_error *err) OCTET_MUST_CHECK;
/* NULL is fine in all of these. Before the inbox is closed; what is posted by then is still
 * delivered. */
void guard_stop(struct guard *guard);
void guard_free(struct guard *guard); /* when the loop has ended */

/* On the loop. */
void guard_call(struct guard *guard, const struct peer_key *peer);
/* A call that will not be read; its client may have begun to send. */
void guard_refused(struct guard *guard, const struct peer_key *peer);
void guard_expect(struct guard *guard, const struct peer_key *peer, int64_t bytes);
/* A message of a call that more is expected of. */
void guard_count(struct guard *guard, const struct peer_key *peer, int64_t received);
/* What was expected has come (received bytes), or will not (0). */
void guard_settle(struct guard *guard, const struct peer_key *peer, int64_t expected,
                  int64_t received);

#endif
