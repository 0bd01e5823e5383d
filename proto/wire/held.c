/* See held.h. */
#include "wire/held.h"

#include <stdlib.h>
#include <string.h>

octet_held *octet_held_create(octet_session *session)
{
    octet_held *held = calloc(1, sizeof *held);

    if (!held) {
        octet_session_destroy(session);
        return NULL;
    }
    held->session = session;
    held->memory = octet_session_memory(session);
    return held;
}

void octet_held_destroy(octet_held *held)
{
    if (!held)
        return;
    octet_session_destroy(held->session);
    free(held->kept);
    free(held);
}

void oct_wire_tell_state(octet_held *held)
{
    atomic_store_explicit(&held->step, octet_session_step(held->session), memory_order_relaxed);
    atomic_store_explicit(&held->accumulated, octet_session_accumulated(held->session),
                          memory_order_relaxed);
}

void octet_held_tell(const octet_held *held, struct octet_held_info *out)
{
    const struct octet_plan_totals *totals = octet_plan_totals(octet_session_plan(held->session));
    const octet_backend *backend = octet_session_backend(held->session);

    *out = (struct octet_held_info){
        .mode = octet_session_mode(held->session),
        .accumulation = held->accumulation,
        .backend = backend ? octet_backend_facts(backend)->capabilities.name : "cpu",
        .memory = held->memory,
        .step = atomic_load_explicit(&held->step, memory_order_relaxed),
        .accumulated = atomic_load_explicit(&held->accumulated, memory_order_relaxed),
        .batch_size = totals->batch_size,
        .sequence_length = totals->sequence_length,
        .lease_ms = held->lease_ms,
    };
    memcpy(out->id, held->id, sizeof out->id);
    memcpy(out->model, held->model, sizeof out->model);
}

enum octet_status oct_wire_session(const struct octet_call *call, const char *id, octet_held **out,
                                   struct octet_error *err)
{
    if (!id[0])
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "session_id", "is missing");
    if (call->session && strcmp(call->session->id, id) == 0) {
        *out = call->session;
        if (call->exchange)
            memcpy(call->exchange->session, call->session->id, OCTET_SESSION_ID_BYTES);
        return OCTET_OK;
    }
    if (call->host && call->exchange && strlen(id) < OCTET_SESSION_ID_BYTES) {
        strncpy(call->exchange->wanted_session, id, OCTET_SESSION_ID_BYTES - 1);
        return octet_fail(err, OCTET_UNAVAILABLE, "session_id", "'%s' was not lent to the call",
                          id);
    }
    return octet_fail(err, OCTET_NOT_FOUND, "session_id",
                      "there is no session '%.100s': it was deleted, its lease has ended, or the "
                      "server has started anew",
                      id);
}

#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

static enum octet_status check_letters(const char *name, const char *field, const char *others,
                                       const char *letters, struct octet_error *err)
{
    size_t length = strlen(name), good = strspn(name, letters);

    if (length >= OCTET_NAME_BYTES)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, field, "has %zu bytes, at most %d can be",
                          length, OCTET_NAME_BYTES - 1);
    if (good < length)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, field,
                          "byte %zu (0x%02x) is none of letters, digits and %s", good,
                          (unsigned char)name[good], others);
    return OCTET_OK;
}

enum octet_status oct_wire_check_id(const char *id, struct octet_error *err)
{
    return check_letters(id, "request_id", "-._:/@+=,", LETTERS "-._:/@+=,", err);
}

enum octet_status oct_wire_check_checkpoint(const char *name, const char *field,
                                            struct octet_error *err)
{
    if (!name[0])
        return octet_fail(err, OCTET_INVALID_ARGUMENT, field, "is missing");
    if (name[0] == '.')
        return octet_fail(err, OCTET_INVALID_ARGUMENT, field, "'%.100s' begins with a dot", name);
    return check_letters(name, field, "-_.", LETTERS "-_.", err);
}
