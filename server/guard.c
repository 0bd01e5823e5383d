/* See guard.h. */
#include "guard.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "log.h"
#include "octet/cancel.h"
#include "tcp_bytes.h"

enum {
    BUCKETS = 1024,
    BUSY_MS = 10,          /* between looks while somebody sends much */
    QUIET_MS = 50,         /* and else */
    BUSY_BYTES = 64 << 10, /* in one look: much */
    WINDOW_BYTES = 64 << 10,
    /* What may still come after a connection's calls were ended, until its client has heard of it;
     * gRPC throws it away. A header that never ends would use up its time first. */
    PATIENCE_BYTES = 256 << 20,
    PATIENCE_MS = 1000,
    /* Over for so long: it is no busy machine's late loop. Ending calls costs less than a cut. */
    EXCESS_MS = 30,
    FLOOD_MS = 100,
    EXCESSES_MAX = 16,
};

struct connection {
    struct connection *chain;
    struct peer_key key;
    int64_t claimed, expected; /* see guard.h; expected: largest requests on their way */
    int64_t received;          /* at the last look */
    uint64_t since_ns;
    int64_t forgiven_from; /* received when its calls were ended */
    uint64_t forgiven_until_ns;
    uint64_t over_since_ns; /* since when it was over at every look; 0: it is not */
    uint64_t over_heard_ns; /* since when the loop is known to have run after that; 0: not yet */
    uint32_t seen;          /* the last look that saw it */
};

struct guard {
    uv_mutex_t lock; /* guards the connections, excesses and stopping */
    uv_cond_t stopped;
    bool stopping;
    struct connection *buckets[BUCKETS];

    struct event event; /* carries the excesses to the loop, and asks whether it runs */
    bool event_posted;
    uint64_t heard_ns; /* when the loop answered last */
    struct peer_key excesses[EXCESSES_MAX];
    size_t excess_count;

    /* Read-only after the start. */
    uv_thread_t thread;
    struct inbox *inbox;
    void (*on_excess)(void *user, const struct peer_key *peer);
    void *user;
    uint16_t port;
    int64_t unclaimed_bytes, call_bytes, connections_max;

    uint32_t look; /* the thread's */
};

/* ---- Keys ---- */

static struct in6_addr mapped(struct in_addr v4)
{
    struct in6_addr address = {.s6_addr = {[10] = 0xff, [11] = 0xff}};

    memcpy(&address.s6_addr[12], &v4, sizeof v4);
    return address;
}

struct peer_key peer_key_parse(const char *peer)
{
    static const struct peer_key none;
    struct peer_key key = none;
    struct in_addr v4;
    char host[64];
    const char *colon = strrchr(peer, ':');

    if (!colon)
        return none;
    key.port = (uint16_t)strtoul(colon + 1, NULL, 10);
    if (strncmp(peer, "ipv4:", 5) == 0) {
        snprintf(host, sizeof host, "%.*s", (int)(colon - peer - 5), peer + 5);
        if (inet_pton(AF_INET, host, &v4) != 1)
            return none;
        key.address = mapped(v4);
        return key;
    }
    if (strncmp(peer, "ipv6:", 5) != 0)
        return none;
    const char *start = peer + 5;
    start += strncmp(start, "%5B", 3) == 0 ? 3 : *start == '[';
    snprintf(host, sizeof host, "%.*s", (int)strcspn(start, "%]"), start); /* a zone is left out */
    return inet_pton(AF_INET6, host, &key.address) == 1 ? key : none;
}

bool peer_key_equal(const struct peer_key *a, const struct peer_key *b)
{
    return a->port == b->port && memcmp(&a->address, &b->address, sizeof a->address) == 0;
}

static bool key_of(const struct sockaddr_storage *address, struct peer_key *key)
{
    if (address->ss_family == AF_INET) {
        const struct sockaddr_in *v4 = (const void *)address;
        *key = (struct peer_key){.address = mapped(v4->sin_addr), .port = ntohs(v4->sin_port)};
        return true;
    }
    if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const void *)address;
        *key = (struct peer_key){.address = v6->sin6_addr, .port = ntohs(v6->sin6_port)};
        return true;
    }
    return false;
}

/* ---- The accounts; the lock is held ---- */

static struct connection **bucket_of(struct guard *guard, const struct peer_key *key)
{
    uint32_t hash = 2166136261u ^ key->port;

    for (size_t i = 0; i < sizeof key->address; i++)
        hash = (hash ^ key->address.s6_addr[i]) * 16777619u;
    return &guard->buckets[(hash ^ hash >> 16) % BUCKETS];
}

/* NULL when there is no memory: then this connection is not watched. */
static struct connection *connection_get(struct guard *guard, const struct peer_key *key)
{
    struct connection **bucket = bucket_of(guard, key);

    for (struct connection *c = *bucket; c; c = c->chain)
        if (peer_key_equal(&c->key, key))
            return c;
    struct connection *c = calloc(1, sizeof *c);
    if (c) {
        c->key = *key;
        c->since_ns = octet_now_ns();
        c->seen = guard->look;
        c->chain = *bucket;
        *bucket = c;
    }
    return c;
}

static int64_t with_margin(int64_t bytes)
{
    return bytes + bytes / 4 + 1024;
}

static int64_t allowed(const struct guard *guard, const struct connection *c, int64_t sent)
{
    int64_t seconds = (int64_t)((octet_now_ns() - c->since_ns) / 1000000000u);

    return guard->unclaimed_bytes + c->claimed + c->expected + sent / 64 + seconds * 32;
}

/* Forgets connections that two looks did not see. */
static void sweep(struct guard *guard)
{
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct connection **link = &guard->buckets[i]; *link;) {
            struct connection *c = *link;
            if (guard->look - c->seen < 2) {
                link = &c->chain;
                continue;
            }
            *link = c->chain;
            free(c);
        }
}

static void forgive(struct connection *c)
{
    c->forgiven_from = c->received;
    c->forgiven_until_ns = octet_now_ns() + PATIENCE_MS * 1000000u;
}

/* ---- The loop's side ---- */

static const struct peer_key no_peer;

void guard_call(struct guard *guard, const struct peer_key *peer)
{
    if (!guard || peer_key_equal(peer, &no_peer))
        return;
    uv_mutex_lock(&guard->lock);
    struct connection *c = connection_get(guard, peer);
    if (c)
        c->claimed += guard->call_bytes;
    uv_mutex_unlock(&guard->lock);
}

void guard_expect(struct guard *guard, const struct peer_key *peer, int64_t bytes)
{
    if (!guard || peer_key_equal(peer, &no_peer))
        return;
    uv_mutex_lock(&guard->lock);
    struct connection *c = connection_get(guard, peer);
    if (c)
        c->expected += with_margin(bytes);
    uv_mutex_unlock(&guard->lock);
}

void guard_count(struct guard *guard, const struct peer_key *peer, int64_t received)
{
    if (!guard || peer_key_equal(peer, &no_peer))
        return;
    uv_mutex_lock(&guard->lock);
    struct connection *c = connection_get(guard, peer);
    if (c)
        c->claimed += with_margin(received);
    uv_mutex_unlock(&guard->lock);
}

void guard_settle(struct guard *guard, const struct peer_key *peer, int64_t expected,
                  int64_t received)
{
    if (!guard || peer_key_equal(peer, &no_peer))
        return;
    uv_mutex_lock(&guard->lock);
    struct connection *c = connection_get(guard, peer);
    if (c) {
        /* An account that was forgotten with its connection begins anew, at nothing expected. */
        c->expected -= c->expected < with_margin(expected) ? c->expected : with_margin(expected);
        c->claimed += with_margin(received);
        if (received == 0)
            forgive(c); /* its client sends on until it hears that nobody reads */
    }
    uv_mutex_unlock(&guard->lock);
}

void guard_refused(struct guard *guard, const struct peer_key *peer)
{
    if (!guard || peer_key_equal(peer, &no_peer))
        return;
    uv_mutex_lock(&guard->lock);
    struct connection *c = connection_get(guard, peer);
    if (c)
        forgive(c);
    uv_mutex_unlock(&guard->lock);
}

static void on_event(struct event *event, bool ok)
{
    struct guard *guard = OWNER_OF(event, struct guard, event);
    struct peer_key peers[EXCESSES_MAX];

    (void)ok;
    uv_mutex_lock(&guard->lock);
    size_t count = guard->excess_count;
    memcpy(peers, guard->excesses, count * sizeof *peers);
    guard->excess_count = 0;
    guard->event_posted = false;
    guard->heard_ns = octet_now_ns();
    uv_mutex_unlock(&guard->lock);
    for (size_t i = 0; i < count; i++)
        guard->on_excess(guard->user, &peers[i]);
}

/* ---- The thread's side ---- */

/* One of our connections? Then its peer and what the kernel counted. */
static bool inspect(const struct guard *guard, int fd, struct peer_key *key,
                    struct tcp_bytes *bytes)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    struct peer_key local;

    if (getsockname(fd, (struct sockaddr *)&address, &length) != 0 || !key_of(&address, &local) ||
        local.port != guard->port)
        return false;
    length = sizeof address;
    if (getpeername(fd, (struct sockaddr *)&address, &length) != 0 || !key_of(&address, key))
        return false; /* the listening socket */
    return tcp_bytes_read(fd, bytes);
}

/* Resets the connection and drops what it has sent. gRPC may close and reuse the number at any
 * time, so the socket is held by a number of our own and looked at again before it is touched. */
static void cut(const struct guard *guard, int fd, const struct peer_key *key, const char *why)
{
    struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    struct peer_key now;
    struct tcp_bytes bytes;
    char host[INET6_ADDRSTRLEN] = "?";
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);

    if (own < 0)
        return;
    if (inspect(guard, own, &now, &bytes) && peer_key_equal(&now, key)) {
        if (connect(own, &nobody, sizeof nobody) != 0)
            (void)shutdown(own, SHUT_RDWR);
        inet_ntop(AF_INET6, &key->address, host, sizeof host);
        log_event(LOG_LEVEL_WARNING, "connection cut", log_text("why", why), log_text("peer", host),
                  log_number("port", key->port), log_number("received_bytes", bytes.received));
    }
    close(own);
}

enum verdict { FINE, EXCESS, FLOOD };

/* The client of calls that were just ended sends on until it hears of that. */
static bool is_forgiven(const struct connection *c)
{
    return octet_now_ns() < c->forgiven_until_ns &&
           c->received - c->forgiven_from <= PATIENCE_BYTES;
}

/* It must be over for a while: a connection whose windows have grown sends megabytes with a call of
 * which the loop, on a busy machine, has not told yet. */
static enum verdict judge(struct guard *guard, struct connection *c, const struct tcp_bytes *bytes)
{
    int64_t over = bytes->received - allowed(guard, c, bytes->sent);

    c->seen = guard->look;
    c->received = bytes->received;
    if (over > 0 && is_forgiven(c)) {
        c->claimed += over;
        over = 0;
    }
    if (guard->unclaimed_bytes == 0 || over <= 0) {
        c->over_since_ns = 0;
        return FINE;
    }
    uint64_t now_ns = octet_now_ns();
    if (!c->over_since_ns) {
        c->over_since_ns = now_ns;
        c->over_heard_ns = 0;
    }
    /* Where threads crowd the CPUs the loop may not have run since the bytes came. */
    if (!c->over_heard_ns) {
        if (guard->heard_ns <= c->over_since_ns)
            return FINE;
        c->over_heard_ns = now_ns;
    }
    uint64_t over_ms = (now_ns - c->over_heard_ns) / 1000000;
    if (over_ms < (c->expected ? EXCESS_MS : FLOOD_MS))
        return FINE;
    if (c->expected == 0 || guard->excess_count == EXCESSES_MAX)
        return FLOOD;
    c->over_since_ns = 0;
    c->claimed += over;
    forgive(c);
    guard->excesses[guard->excess_count++] = c->key;
    return EXCESS;
}

/* Looks at one descriptor. Returns whether it sends much. */
static bool look_at(struct guard *guard, int fd, int64_t *count)
{
    struct peer_key key;
    struct tcp_bytes bytes;
    enum verdict verdict = FINE;
    bool is_new = false, is_busy = false;

    if (!inspect(guard, fd, &key, &bytes))
        return false;
    ++*count;
    uv_mutex_lock(&guard->lock);
    struct connection *c = connection_get(guard, &key);
    if (c) {
        is_new = c->received == 0;
        is_busy = bytes.received - c->received > BUSY_BYTES || c->over_since_ns;
        verdict = judge(guard, c, &bytes);
        if ((verdict == EXCESS || c->over_since_ns) && !guard->event_posted) {
            guard->event_posted = true;
            inbox_post(guard->inbox, &guard->event, true);
        }
    }
    uv_mutex_unlock(&guard->lock);
    if (verdict == FLOOD)
        cut(guard, fd, &key, "it sent more than its calls account for");
    else if (is_new && *count > guard->connections_max)
        cut(guard, fd, &key, "as many connections as limits.connections allows are open");
    return is_busy || verdict != FINE;
}

static bool look(struct guard *guard, DIR *directory)
{
    int64_t count = 0;
    bool is_busy = false;

    rewinddir(directory);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9')
            is_busy |= look_at(guard, (int)strtol(entry->d_name, NULL, 10), &count);
    return is_busy || count > guard->connections_max / 2;
}

static void guard_main(void *argument)
{
    struct guard *guard = argument;
    uint64_t pause_ms = QUIET_MS;
    DIR *directory = opendir("/proc/self/fd");

    if (!directory)
        log_event(LOG_LEVEL_WARNING, "connections are not watched: /proc/self/fd cannot be read");
    uv_mutex_lock(&guard->lock);
    while (!guard->stopping) {
        uv_cond_timedwait(&guard->stopped, &guard->lock, pause_ms * 1000000);
        guard->look++;
        sweep(guard);
        uv_mutex_unlock(&guard->lock);
        pause_ms = directory && look(guard, directory) ? BUSY_MS : QUIET_MS;
        uv_mutex_lock(&guard->lock);
    }
    uv_mutex_unlock(&guard->lock);
    if (directory)
        closedir(directory);
}

/* ---- Start and end ---- */

enum octet_status guard_start(const struct config *config, int port, struct inbox *inbox,
                              void (*on_excess)(void *user, const struct peer_key *peer),
                              void *user, struct guard **out, struct octet_error *err)
{
    struct guard *guard = NULL;

    *out = NULL;
    if (config->address.is_unix)
        return OCTET_OK;
    guard = calloc(1, sizeof *guard);
    if (!guard || uv_mutex_init(&guard->lock) != 0)
        goto failed;
    guard->event = (struct event){.deliver = on_event, .needs_loop = true};
    guard->inbox = inbox;
    guard->on_excess = on_excess;
    guard->user = user;
    guard->port = (uint16_t)port;
    guard->unclaimed_bytes = config->limits.unclaimed_bytes;
    guard->call_bytes = config->limits.metadata_bytes + WINDOW_BYTES;
    guard->connections_max = config->limits.connections;
    if (uv_cond_init(&guard->stopped) != 0)
        goto failed_after_lock;
    if (uv_thread_create(&guard->thread, guard_main, guard) != 0)
        goto failed_after_cond;
    *out = guard;
    return OCTET_OK;

failed_after_cond:
    uv_cond_destroy(&guard->stopped);
failed_after_lock:
    uv_mutex_destroy(&guard->lock);
failed:
    free(guard);
    return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "no thread to watch connections");
}

void guard_stop(struct guard *guard)
{
    if (!guard)
        return;
    uv_mutex_lock(&guard->lock);
    guard->stopping = true;
    uv_cond_signal(&guard->stopped);
    uv_mutex_unlock(&guard->lock);
    uv_thread_join(&guard->thread);
}

void guard_free(struct guard *guard)
{
    if (!guard)
        return;
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct connection *c = guard->buckets[i], *next; c; c = next) {
            next = c->chain;
            free(c);
        }
    uv_cond_destroy(&guard->stopped);
    uv_mutex_destroy(&guard->lock);
    free(guard);
}
