/* See sessions.h. */
#include "sessions.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "log.h"
#include "octet/cancel.h"

struct session {
    struct session *next; /* of the table */
    octet_held *held;     /* NULL: retired */
    char id[OCTET_SESSION_ID_BYTES];
    uint64_t expires_ns;
    bool is_listed; /* in the table */
    /* The loop's. */
    struct claim *first, *last; /* those that wait */
    int64_t readers, writers;   /* granted claims */
    bool is_giving;
    struct event leaving;
    uv_work_t work;
    struct sessions *sessions; /* of a session that is being freed */
};

struct making {
    struct making *next;
    char request_id[OCTET_NAME_BYTES];
};

/* ---- The table; with the lock held ---- */

static struct session *find(const struct sessions *s, const char *id)
{
    for (struct session *session = s->first; session; session = session->next)
        if (strcmp(session->id, id) == 0)
            return session;
    return NULL;
}

static void renew(struct session *session)
{
    session->expires_ns = octet_now_ns() + (uint64_t)session->held->lease_ms * 1000000u;
}

static void unlist(struct sessions *s, struct session *session)
{
    struct session **link = &s->first;

    if (!session->is_listed)
        return;
    while (*link != session)
        link = &(*link)->next;
    *link = session->next;
    session->is_listed = false;
}

/* ---- The host; on any thread ---- */

static struct making **find_making(struct sessions *s, const char *request_id)
{
    struct making **link = &s->making;

    while (*link && strcmp((*link)->request_id, request_id) != 0)
        link = &(*link)->next;
    return link;
}

static enum octet_status host_begin(void *user, const char *request_id,
                                    char known[OCTET_SESSION_ID_BYTES], struct octet_error *err)
{
    struct sessions *s = user;
    struct making *making = calloc(1, sizeof *making);
    enum octet_status status = OCTET_OK;

    if (!making)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
    snprintf(making->request_id, sizeof making->request_id, "%s", request_id);
    known[0] = '\0';
    uv_mutex_lock(&s->lock);
    for (const struct session *session = s->first; session; session = session->next)
        if (strcmp(session->held->request_id, request_id) == 0)
            memcpy(known, session->id, OCTET_SESSION_ID_BYTES);
    if (!known[0] && *find_making(s, request_id))
        status =
            octet_fail(err, OCTET_UNAVAILABLE, "request_id",
                       "another call with '%s' is making the session; try again later", request_id);
    if (!known[0] && status == OCTET_OK) {
        making->next = s->making;
        s->making = making;
        making = NULL;
    }
    uv_mutex_unlock(&s->lock);
    free(making);
    return status;
}

static void host_end(void *user, const char *request_id)
{
    struct sessions *s = user;

    uv_mutex_lock(&s->lock);
    struct making **link = find_making(s, request_id), *making = *link;
    if (making)
        *link = making->next;
    uv_mutex_unlock(&s->lock);
    free(making);
}

static enum octet_status host_admit(void *user, uint64_t peak_bytes, struct octet_error *err)
{
    struct sessions *s = user;
    enum octet_status status = OCTET_OK;

    uv_mutex_lock(&s->lock);
    if (s->count >= s->count_max)
        status = octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL,
                            "there are %" PRId64 " sessions, as many as limits.sessions allows",
                            s->count);
    else if (peak_bytes > s->memory_max || s->memory > s->memory_max - peak_bytes)
        status = octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL,
                            "the session takes %" PRIu64 " bytes at its peak, but only %" PRIu64
                            " of limits.session_memory_bytes, %" PRIu64 ", are left",
                            peak_bytes, s->memory_max - s->memory, s->memory_max);
    if (status == OCTET_OK) {
        s->count++;
        s->memory += peak_bytes;
    }
    uv_mutex_unlock(&s->lock);
    return status;
}

static void host_withdraw(void *user, uint64_t peak_bytes)
{
    struct sessions *s = user;

    uv_mutex_lock(&s->lock);
    s->count--;
    s->memory -= peak_bytes;
    uv_mutex_unlock(&s->lock);
}

static enum octet_status host_take(void *user, uint64_t bytes, struct octet_error *err)
{
    struct sessions *s = user;
    enum octet_status status = OCTET_OK;

    uv_mutex_lock(&s->lock);
    uint64_t left = s->memory_max - s->memory;
    if (bytes <= left)
        s->memory += bytes;
    else
        status = octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL,
                            "the call takes %" PRIu64 " bytes beyond the peak that its session was "
                            "planned for, but only %" PRIu64
                            " of limits.session_memory_bytes, %" PRIu64 ", are left",
                            bytes, left, s->memory_max);
    uv_mutex_unlock(&s->lock);
    return status;
}

static void host_give(void *user, uint64_t bytes)
{
    struct sessions *s = user;

    uv_mutex_lock(&s->lock);
    s->memory -= bytes;
    uv_mutex_unlock(&s->lock);
}

static uint64_t host_room(void *user)
{
    struct sessions *s = user;

    uv_mutex_lock(&s->lock);
    uint64_t room = s->memory_max - s->memory;
    uv_mutex_unlock(&s->lock);
    return room;
}

/* 96 bits that nobody can guess: who knows an id may use the session. */
static enum octet_status make_id(char id[OCTET_SESSION_ID_BYTES], struct octet_error *err)
{
    uint32_t random[3];

    if (getrandom(random, sizeof random, 0) != sizeof random)
        return octet_fail(err, OCTET_INTERNAL, NULL, "no random numbers: %s", strerror(errno));
    snprintf(id, OCTET_SESSION_ID_BYTES, "s-%08" PRIx32 "%08" PRIx32 "%08" PRIx32, random[0],
             random[1], random[2]);
    return OCTET_OK;
}

static enum octet_status host_keep(void *user, octet_held *held, char id[OCTET_SESSION_ID_BYTES],
                                   struct octet_error *err)
{
    struct sessions *s = user;
    struct session *session = calloc(1, sizeof *session);

    if (!session)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
    enum octet_status status = make_id(session->id, err);
    if (status != OCTET_OK) {
        free(session);
        return status;
    }
    memcpy(held->id, session->id, sizeof held->id);
    memcpy(id, session->id, sizeof held->id);
    struct octet_held_info info;
    octet_held_tell(held, &info);
    log_event(LOG_LEVEL_INFO, "session made", log_text("session", held->id),
              log_text("model", held->model), log_text("backend", info.backend),
              log_number("peak_bytes", (int64_t)held->memory.peak));
    session->held = held;
    session->is_listed = true;
    session->sessions = s;
    renew(session);
    uv_mutex_lock(&s->lock);
    session->next = s->first;
    s->first = session;
    uv_mutex_unlock(&s->lock);
    return OCTET_OK;
}

static bool host_touch(void *user, const char *id, int64_t *lease_ms)
{
    struct sessions *s = user;

    uv_mutex_lock(&s->lock);
    struct session *session = find(s, id);
    if (session) {
        renew(session);
        *lease_ms = session->held->lease_ms;
    }
    uv_mutex_unlock(&s->lock);
    return session != NULL;
}

static enum octet_status host_list(void *user, octet_arena *arena, struct octet_held_info **out,
                                   size_t *count, struct octet_error *err)
{
    struct sessions *s = user;
    size_t n = 0;

    uv_mutex_lock(&s->lock);
    for (const struct session *session = s->first; session; session = session->next)
        n++;
    *out = OCTET_NEW_ARRAY(arena, n, struct octet_held_info);
    *count = *out ? n : 0;
    n = 0;
    for (const struct session *session = s->first; *out && session; session = session->next)
        octet_held_tell(session->held, &(*out)[n++]);
    uv_mutex_unlock(&s->lock);
    return *out ? OCTET_OK : octet_arena_exhausted(arena, err);
}

/* Sets errno when not. */
static bool may_use(const char *path, bool writes)
{
    struct stat what;

    if (stat(path, &what) != 0)
        return false;
    if (!S_ISDIR(what.st_mode)) {
        errno = ENOTDIR;
        return false;
    }
    return access(path, writes ? W_OK | X_OK : R_OK | X_OK) == 0;
}

static enum octet_status host_directory(void *user, bool writes, const char **out,
                                        struct octet_error *err)
{
    struct sessions *s = user;
    const char *path = s->config->data_dir;

    *out = path;
    if (!path[0])
        return octet_fail(err, OCTET_FAILED_PRECONDITION, NULL,
                          "this server keeps no checkpoints: data_dir (--data-dir) is not set");
    if (may_use(path, writes))
        return OCTET_OK;
    return octet_fail(err, OCTET_FAILED_PRECONDITION, NULL,
                      "data_dir '%s' cannot be %s by uid %ld: %s", path,
                      writes ? "written" : "read", (long)geteuid(), strerror(errno));
}

void sessions_retire(struct sessions *s, octet_held *held)
{
    uint64_t peak = held->memory.peak;

    uv_mutex_lock(&s->lock);
    struct session *session = find(s, held->id);
    unlist(s, session);
    session->held = NULL;
    uv_mutex_unlock(&s->lock);
    log_event(LOG_LEVEL_INFO, "session deleted", log_text("session", held->id));
    octet_held_destroy(held);
    host_withdraw(s, peak);
}

/* ---- Start and end; on the loop ---- */

enum octet_status sessions_init(struct sessions *s, const struct config *config, uv_loop_t *uv,
                                struct inbox *inbox, struct octet_error *err)
{
    *s = (struct sessions){
        .count_max = config->limits.sessions,
        .memory_max = (uint64_t)config->limits.session_memory_bytes,
        .config = config,
        .uv = uv,
        .inbox = inbox,
        .host = {.lease_ms = config->sessions.lease_ms,
                 .lease_ms_max = config->sessions.lease_max_ms,
                 .begin = host_begin,
                 .end = host_end,
                 .admit = host_admit,
                 .withdraw = host_withdraw,
                 .room = host_room,
                 .account = {.take = host_take, .give = host_give},
                 .keep = host_keep,
                 .touch = host_touch,
                 .list = host_list,
                 .directory = host_directory},
    };
    if (uv_mutex_init(&s->lock) != 0) {
        s->uv = NULL;
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
    }
    s->host.user = s->host.account.user = s;
    return OCTET_OK;
}

void sessions_free(struct sessions *s)
{
    if (!s->uv)
        return;
    while (s->first) {
        struct session *session = s->first;
        unlist(s, session);
        octet_held_destroy(session->held);
        free(session);
    }
    uv_mutex_destroy(&s->lock);
    s->uv = NULL;
}

void sessions_check_directory(const struct config *config)
{
    const char *path = config->data_dir;

    if (!path[0])
        return;
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        log_event(LOG_LEVEL_WARNING, "data_dir cannot be made", log_text("path", path),
                  log_text("reason", strerror(errno)), log_number("uid", (int64_t)geteuid()));
    else if (!may_use(path, true))
        log_event(LOG_LEVEL_WARNING, "data_dir is not writable; checkpoints cannot be saved",
                  log_text("path", path), log_text("reason", strerror(errno)),
                  log_number("uid", (int64_t)geteuid()));
}

/* A gigabyte takes milliseconds to give back: not on the loop. */
static void free_work(uv_work_t *work)
{
    struct session *session = OWNER_OF(work, struct session, work);
    uint64_t peak = session->held->memory.peak;

    octet_held_destroy(session->held);
    host_withdraw(session->sessions, peak);
}

static void on_freed(uv_work_t *work, int status)
{
    (void)status;
    free(OWNER_OF(work, struct session, work));
}

static void on_leaving(struct event *event, bool ok)
{
    struct session *session = OWNER_OF(event, struct session, leaving);

    (void)ok;
    if (uv_queue_work(session->sessions->uv, &session->work, free_work, on_freed) != 0) {
        free_work(&session->work);
        free(session);
    }
}

/* A lane may retire the session while others are given their turns. */
static bool is_listed(struct session *session)
{
    uv_mutex_lock(&session->sessions->lock);
    bool listed = session->is_listed;
    uv_mutex_unlock(&session->sessions->lock);
    return listed;
}

static bool is_held(struct session *session)
{
    uv_mutex_lock(&session->sessions->lock);
    bool held = session->held != NULL;
    uv_mutex_unlock(&session->sessions->lock);
    return held;
}

/* The session is not in the table: it goes with its last claim. */
static void settle(struct session *session)
{
    if (session->readers || session->writers || session->first || session->is_giving ||
        is_listed(session))
        return;
    if (!session->held) {
        free(session);
        return;
    }
    session->leaving = (struct event){.deliver = on_leaving, .needs_loop = true};
    inbox_post(session->sessions->inbox, &session->leaving, true);
}

static bool is_idle(const struct session *session)
{
    return !session->readers && !session->writers && !session->first;
}

void sessions_sweep(struct sessions *s, uint64_t now_ns)
{
    struct session *over = NULL;

    uv_mutex_lock(&s->lock);
    for (struct session *session = s->first, *next; session; session = next) {
        next = session->next;
        if (now_ns < session->expires_ns || !is_idle(session))
            continue;
        unlist(s, session);
        session->next = over;
        over = session;
    }
    uv_mutex_unlock(&s->lock);
    while (over) {
        struct session *session = over;
        over = session->next;
        log_event(LOG_LEVEL_INFO, "session expired", log_text("session", session->id));
        settle(session);
    }
}

void sessions_forget(struct sessions *s, const char *id)
{
    uv_mutex_lock(&s->lock);
    struct session *session = find(s, id);
    if (session)
        session->expires_ns = 0;
    uv_mutex_unlock(&s->lock);
}

/* ---- Claims ---- */

static bool may_take(const struct session *session, const struct claim *claim)
{
    return session->writers == 0 && (claim->access == OCTET_ACCESS_READ || session->readers == 0);
}

/* Gives turns in order of arrival: who reads does not overtake who waits to write. */
static void give_turns(struct session *session)
{
    if (session->is_giving) /* called by a turn that is given below */
        return;
    session->is_giving = true;
    while (session->first && (!is_held(session) || may_take(session, session->first))) {
        struct claim *claim = session->first;
        bool granted = is_held(session);
        session->first = claim->next;
        if (!session->first)
            session->last = NULL;
        claim->next = NULL;
        claim->is_granted = granted;
        if (granted && claim->access == OCTET_ACCESS_READ)
            session->readers++;
        else if (granted)
            session->writers++;
        else
            claim->session = NULL;
        claim->on_turn(claim, granted);
    }
    session->is_giving = false;
    settle(session);
}

bool sessions_claim(struct sessions *s, const char *id, enum octet_access access,
                    struct claim *claim, void (*on_turn)(struct claim *claim, bool granted))
{
    uv_mutex_lock(&s->lock);
    struct session *session = find(s, id);
    if (session)
        renew(session);
    uv_mutex_unlock(&s->lock);
    if (!session)
        return false;
    *claim = (struct claim){.session = session, .access = access, .on_turn = on_turn};
    if (session->last)
        session->last->next = claim;
    else
        session->first = claim;
    session->last = claim;
    give_turns(session);
    return true;
}

static void unqueue(struct session *session, struct claim *claim)
{
    struct claim **link = &session->first, *before = NULL;

    while (*link != claim) {
        before = *link;
        link = &(*link)->next;
    }
    *link = claim->next;
    if (session->last == claim)
        session->last = before;
}

void sessions_release(struct sessions *s, struct claim *claim)
{
    struct session *session = claim->session;

    if (!session)
        return;
    claim->session = NULL;
    if (!claim->is_granted)
        unqueue(session, claim);
    else if (claim->access == OCTET_ACCESS_READ)
        session->readers--;
    else
        session->writers--;
    claim->is_granted = false;
    uv_mutex_lock(&s->lock);
    if (session->is_listed)
        renew(session); /* the time of the call does not count */
    uv_mutex_unlock(&s->lock);
    give_turns(session);
}

octet_held *claim_held(const struct claim *claim)
{
    return claim->session && claim->is_granted ? claim->session->held : NULL;
}
