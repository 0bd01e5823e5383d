/* The record of applied requests, and its form in checkpoints.
 *
 * Decision: figures are kept, tensors are not, but for those of the last reply: who asks again asks
 * for what was lost last. Numbers are written in hexadecimal, so that they come back bit for bit.
 */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "wire/held.h"

enum { KEPT_BYTES_MAX = 16 << 20 };

/* ---- Ids that left the ring ---- */

static uint64_t hash_of(const char *id)
{
    return XXH3_64bits(id, strlen(id));
}

bool oct_wire_is_forgotten(const octet_held *held, const char *id)
{
    uint64_t hash = hash_of(id);

    if (!id[0] || held->forgotten_step != octet_session_step(held->session))
        return false;
    for (size_t i = 0; i < held->forgotten_count; i++)
        if (held->forgotten[i] == hash)
            return true;
    return false;
}

/* Ids of steps that are over need no memory: a request for such a step is refused by its number. */
static void forget(octet_held *held, const struct oct_wire_applied *applied)
{
    int64_t now = octet_session_step(held->session);

    if (held->forgotten_step != now)
        held->forgotten_count = 0;
    held->forgotten_step = now;
    if (applied->step_after == now && held->forgotten_count < OCT_WIRE_FORGOTTEN_MAX)
        held->forgotten[held->forgotten_count++] = hash_of(applied->id);
}

static enum octet_status check_forgotten(const octet_held *held, const char *id,
                                         struct octet_error *err)
{
    if (oct_wire_is_forgotten(held, id))
        return octet_fail(err, OCTET_FAILED_PRECONDITION, "request_id",
                          "'%s' was applied already; its figures are no longer kept (those of the "
                          "last %d requests are)",
                          id, OCT_WIRE_APPLIED_MAX);
    if (id[0] && held->forgotten_count == OCT_WIRE_FORGOTTEN_MAX &&
        held->forgotten_step == octet_session_step(held->session))
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, "request_id",
                          "%d requests with ids have come since the last step; no more can be told "
                          "apart from one that comes again",
                          OCT_WIRE_FORGOTTEN_MAX + OCT_WIRE_APPLIED_MAX);
    return OCTET_OK;
}

/* ---- The ring ---- */

enum octet_status oct_wire_find_applied(const octet_held *held, const char *method, const char *id,
                                        int64_t step, uint64_t payload,
                                        const struct oct_wire_applied **out,
                                        struct octet_error *err)
{
    int64_t now = octet_session_step(held->session);

    *out = NULL;
    for (size_t i = 0; id[0] && i < held->applied_count; i++) {
        const struct oct_wire_applied *a = &held->applied[i];
        if (strcmp(a->id, id) != 0)
            continue;
        if (strcmp(a->method, method) != 0 || a->step != step)
            return octet_fail(err, OCTET_INVALID_ARGUMENT, "request_id",
                              "'%s' was applied already, by %s for step %" PRId64
                              "; a new request needs an id of its own",
                              id, a->method, a->step);
        if (a->payload && payload && a->payload != payload)
            return octet_fail(
                err, OCTET_INVALID_ARGUMENT, "request_id",
                "'%s' was applied already, with another batch or other settings; a "
                "request that comes again must be the same, and a new one needs an id "
                "of its own",
                id);
        *out = a;
        return OCTET_OK;
    }
    if (step == now || (step == 0 && !id[0]))
        return check_forgotten(held, id, err);
    return octet_fail(err, OCTET_FAILED_PRECONDITION, "step",
                      "the request is for step %" PRId64 ", but the session has taken %" PRId64
                      " steps",
                      step, now);
}

static void put(octet_held *held, const struct oct_wire_applied *applied)
{
    if (held->applied_count == OCT_WIRE_APPLIED_MAX)
        forget(held, &held->applied[held->applied_next]);
    held->applied[held->applied_next] = *applied;
    held->applied_next = (held->applied_next + 1) % OCT_WIRE_APPLIED_MAX;
    if (held->applied_count < OCT_WIRE_APPLIED_MAX)
        held->applied_count++;
}

void oct_wire_add_applied(octet_held *held, const struct oct_wire_applied *applied)
{
    oct_wire_tell_state(held);
    free(held->kept);
    held->kept = NULL;
    if (applied->id[0])
        put(held, applied);
}

void oct_wire_keep_reply(octet_held *held, const char *id, const ProtobufCMessage *reply)
{
    size_t bytes = protobuf_c_message_get_packed_size(reply);

    if (!id[0] || bytes > KEPT_BYTES_MAX)
        return;
    held->kept = malloc(bytes + 1);
    if (!held->kept)
        return;
    held->kept_bytes = protobuf_c_message_pack(reply, held->kept);
    snprintf(held->kept_id, sizeof held->kept_id, "%s", id);
}

enum octet_status oct_wire_kept_reply(const struct octet_call *call, const octet_held *held,
                                      const char *id, const ProtobufCMessageDescriptor *descriptor,
                                      ProtobufCMessage **out, struct octet_error *err)
{
    *out = NULL;
    if (!held->kept || strcmp(held->kept_id, id) != 0)
        return OCTET_OK;
    return octet_wire_decode_in_place(descriptor, call->arena, held->kept, held->kept_bytes, out,
                                      err);
}

/* ---- In checkpoints ---- */

/* The numbers of a record, in one order for both directions. */
static size_t numbers_of(struct oct_wire_applied *a, double *out[16])
{
    double *all[] = {&a->losses.total,        &a->losses.main,       &a->losses.mtp,
                     &a->losses.load_balance, &a->losses.weight_sum, &a->losses.mtp_weight_sum,
                     &a->grad_norm,           &a->learning_rate};

    memcpy(out, all, sizeof all);
    return sizeof all / sizeof *all;
}

static json_t *hexadecimal(double value)
{
    return json_sprintf("%a", value);
}

static json_t *to_json(const struct oct_wire_applied *a)
{
    struct oct_wire_applied copy = *a;
    double *numbers[16];
    size_t count = numbers_of(&copy, numbers);
    json_t *figures = json_array(), *acceptance = json_array();

    for (size_t i = 0; i < count; i++)
        json_array_append_new(figures, hexadecimal(*numbers[i]));
    for (size_t i = 0; i < a->acceptance_count; i++)
        json_array_append_new(acceptance, hexadecimal(a->acceptance[i]));
    return json_pack("{s:s,s:s,s:I,s:I,s:I,s:I,s:b,s:b,s:s,s:s,s:I,s:I,s:o,s:o}", "id", a->id,
                     "method", a->method, "step", (json_int_t)a->step, "payload",
                     (json_int_t)a->payload, "step_after", (json_int_t)a->step_after, "accumulated",
                     (json_int_t)a->accumulated, "has_mtp", a->losses.has_mtp, "has_load_balance",
                     a->losses.has_load_balance, "digest", a->digest, "name", a->name, "bytes",
                     (json_int_t)a->bytes, "saved_at", (json_int_t)a->saved_at, "figures", figures,
                     "acceptance", acceptance);
}

static json_t *forgotten_to_json(const octet_held *held)
{
    json_t *list = json_array();

    if (held->forgotten_step == octet_session_step(held->session))
        for (size_t i = 0; i < held->forgotten_count; i++)
            json_array_append_new(list, json_sprintf("%016" PRIx64, held->forgotten[i]));
    return list;
}

char *oct_wire_applied_note(const octet_held *held, octet_arena *arena)
{
    json_t *list = json_array();
    json_t *note = json_pack("{s:i,s:o,s:o}", "version", 1, "applied", list, "forgotten",
                             forgotten_to_json(held));
    size_t first = (held->applied_next + OCT_WIRE_APPLIED_MAX - held->applied_count);
    char *copy = NULL;

    for (size_t i = 0; note && i < held->applied_count; i++)
        json_array_append_new(list, to_json(&held->applied[(first + i) % OCT_WIRE_APPLIED_MAX]));
    char *text = note ? json_dumps(note, JSON_COMPACT) : NULL;
    if (text)
        copy = octet_arena_copy(arena, text, strlen(text));
    free(text);
    json_decref(note);
    return copy;
}

static bool read_text(const json_t *from, const char *key, char *out, size_t size)
{
    const char *text = json_string_value(json_object_get(from, key));

    if (!text || strlen(text) >= size)
        return false;
    memcpy(out, text, strlen(text) + 1);
    return true;
}

static int64_t read_integer(const json_t *from, const char *key)
{
    return (int64_t)json_integer_value(json_object_get(from, key));
}

static double read_number(const json_t *list, size_t i)
{
    const char *text = json_string_value(json_array_get(list, i));

    return text ? strtod(text, NULL) : 0;
}

static bool from_json(const json_t *from, struct oct_wire_applied *a)
{
    const json_t *figures = json_object_get(from, "figures");
    const json_t *acceptance = json_object_get(from, "acceptance");
    double *numbers[16];

    *a = (struct oct_wire_applied){
        .step = read_integer(from, "step"),
        .payload = (uint64_t)read_integer(from, "payload"),
        .step_after = read_integer(from, "step_after"),
        .accumulated = read_integer(from, "accumulated"),
        .bytes = (uint64_t)read_integer(from, "bytes"),
        .saved_at = read_integer(from, "saved_at"),
        .acceptance_count = json_array_size(acceptance),
    };
    a->losses.has_mtp = json_is_true(json_object_get(from, "has_mtp"));
    a->losses.has_load_balance = json_is_true(json_object_get(from, "has_load_balance"));
    size_t count = numbers_of(a, numbers);
    for (size_t i = 0; i < count; i++)
        *numbers[i] = read_number(figures, i);
    if (a->acceptance_count > OCT_WIRE_ACCEPTANCE_MAX)
        return false;
    for (size_t i = 0; i < a->acceptance_count; i++)
        a->acceptance[i] = read_number(acceptance, i);
    return read_text(from, "id", a->id, sizeof a->id) &&
           read_text(from, "method", a->method, sizeof a->method) &&
           read_text(from, "digest", a->digest, sizeof a->digest) &&
           read_text(from, "name", a->name, sizeof a->name) && a->id[0];
}

static void read_forgotten(octet_held *held, const json_t *list)
{
    size_t count = json_array_size(list);

    held->forgotten_step = octet_session_step(held->session);
    held->forgotten_count = count < OCT_WIRE_FORGOTTEN_MAX ? count : OCT_WIRE_FORGOTTEN_MAX;
    for (size_t i = 0; i < held->forgotten_count; i++) {
        const char *hash = json_string_value(json_array_get(list, i));
        held->forgotten[i] = hash ? strtoull(hash, NULL, 16) : 0;
    }
}

void oct_wire_read_note(octet_held *held, const char *text)
{
    json_t *note = text ? json_loads(text, 0, NULL) : NULL;
    const json_t *list = json_object_get(note, "applied"), *item;
    size_t i;

    held->applied_count = held->applied_next = 0;
    free(held->kept);
    held->kept = NULL;
    read_forgotten(held, json_object_get(note, "forgotten"));
    json_array_foreach((json_t *)(uintptr_t)list, i, item)
    {
        struct oct_wire_applied applied;
        if (from_json(item, &applied))
            put(held, &applied);
    }
    json_decref(note);
}
