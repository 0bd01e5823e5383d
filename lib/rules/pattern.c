/* Patterns: PCRE2 with Python's meaning of fullmatch, bounded in time and memory.
 *
 * For: see pattern_private.h, and octet_pattern of octet/rules.h.
 * Not for: reading Python's syntax (translate.c).
 * Decision: no JIT. Its start-up costs more than the thousand short matches of a whole trace, and
 * its machine stack would need limits of its own. Decision: one match works in a buffer on its
 * caller's stack, so that a lookup allocates nothing and a compiled pattern can be shared by
 * threads without a lock. Only a match that backtracks deeply goes to malloc, within the limit. */
#define PCRE2_CODE_UNIT_WIDTH 8

#include "rules/pattern_private.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "octet/rules.h"
#include "rules/translate_private.h"

enum {
    /* PCRE2 10.42 begins with 20 KiB of backtracking frames; the rest is the match block. */
    MATCH_BUFFER_BYTES = 24 * 1024,
    /* A frame is some 150 bytes and 16 for each group; a step makes at most one. */
    FRAME_BYTES = 256,
    HEAP_KIB_MIN = 64,
    PATTERN_MEMORY_BYTES = 4 * 1024 * 1024,
};

/* ---- compiling ---- */

static void *arena_take(size_t size, void *arena)
{
    return octet_arena_alloc(arena, size);
}

static void arena_give(void *piece, void *arena)
{
    (void)piece;
    (void)arena; /* goes with the arena */
}

static enum octet_status refuse_code(int code, PCRE2_SIZE at, const char *pattern,
                                     struct octet_error *err)
{
    PCRE2_UCHAR reason[160];
    char shown[201];

    if (code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAP_FAILED)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory: a pattern");
    pcre2_get_error_message(code, reason, sizeof reason);
    return octet_fail(
        err, OCTET_INVALID_ARGUMENT, NULL, "'%s' cannot be used: %s (code %d, offset %zu)",
        oct_pattern_show(pattern, shown, sizeof shown), (const char *)reason, code, at);
}

static enum octet_status set_limits(pcre2_general_context *memory, uint32_t steps,
                                    octet_arena *arena, struct oct_pattern *out,
                                    struct octet_error *err)
{
    uint64_t heap_kib = (uint64_t)steps * FRAME_BYTES / 1024;
    pcre2_match_context *context = pcre2_match_context_create(memory);

    if (!context)
        return octet_arena_exhausted(arena, err);
    pcre2_set_match_limit(context, steps);
    pcre2_set_depth_limit(context, steps);
    pcre2_set_heap_limit(context, heap_kib < HEAP_KIB_MIN ? HEAP_KIB_MIN
                                  : heap_kib > UINT32_MAX ? UINT32_MAX
                                                          : (uint32_t)heap_kib);
    out->match_context = context;
    out->steps_max = steps;
    return OCTET_OK;
}

static enum octet_status compile(octet_arena *arena, const struct oct_translation *translation,
                                 const char *pattern, pcre2_general_context *memory,
                                 struct oct_pattern *out, struct octet_error *err)
{
    uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_DOTALL |
                       PCRE2_MULTILINE | PCRE2_ALT_CIRCUMFLEX | PCRE2_NEVER_BACKSLASH_C |
                       PCRE2_NO_START_OPTIMIZE | PCRE2_NO_AUTO_POSSESS;
    pcre2_compile_context *context = pcre2_compile_context_create(memory);
    PCRE2_SIZE at = 0;
    int code = 0;

    if (!context)
        return octet_arena_exhausted(arena, err);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    /* A level of the source may take two here. */
    pcre2_set_parens_nest_limit(context, 2 * OCT_PATTERN_DEPTH_MAX + 10);
    out->code =
        pcre2_compile((PCRE2_SPTR)translation->text, translation->length,
                      options | (translation->caseless ? PCRE2_CASELESS : 0), &code, &at, context);
    return out->code ? OCTET_OK : refuse_code(code, at, pattern, err);
}

enum octet_status oct_pattern_compile(octet_arena *arena, octet_arena *scratch,
                                      const struct octet_limits *limits, const char *pattern,
                                      struct oct_pattern *out, struct octet_error *err)
{
    size_t length = strlen(pattern);
    struct oct_translation translation;

    if (length > limits->pattern_bytes)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                          "a pattern of %zu bytes; at most %u are allowed", length,
                          limits->pattern_bytes);
    enum octet_status status = oct_pattern_translate(scratch, pattern, length, &translation, err);
    if (status)
        return status;
    pcre2_general_context *memory = pcre2_general_context_create(arena_take, arena_give, arena);
    if (!memory)
        return octet_arena_exhausted(arena, err);
    status = set_limits(memory, limits->pattern_match_steps, arena, out, err);
    return status ? status : compile(arena, &translation, pattern, memory, out, err);
}

/* ---- matching ---- */

struct match_buffer {
    size_t used;
    _Alignas(max_align_t) unsigned char bytes[MATCH_BUFFER_BYTES];
};

static void *buffer_take(size_t size, void *user)
{
    struct match_buffer *buffer = user;
    size_t rounded =
        (size + _Alignof(max_align_t) - 1) / _Alignof(max_align_t) * _Alignof(max_align_t);

    if (rounded < size || rounded > sizeof buffer->bytes - buffer->used)
        return malloc(size);
    buffer->used += rounded;
    return buffer->bytes + (buffer->used - rounded);
}

static void buffer_give(void *piece, void *user)
{
    struct match_buffer *buffer = user;
    unsigned char *p = piece;

    if (p < buffer->bytes || p >= buffer->bytes + sizeof buffer->bytes)
        free(piece);
}

static enum octet_status match_failed(const struct oct_pattern *pattern, int code,
                                      struct octet_error *err)
{
    switch (code) {
    case PCRE2_ERROR_MATCHLIMIT:
    case PCRE2_ERROR_DEPTHLIMIT:
    case PCRE2_ERROR_HEAPLIMIT:
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                          "a pattern needs more than %u steps to tell whether it matches "
                          "(limit pattern_match_steps); nested repeats such as (a+)+ are the "
                          "usual cause",
                          pattern->steps_max);
    case PCRE2_ERROR_NOMEMORY:
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory: matching a pattern");
    }
    if (code <= PCRE2_ERROR_UTF8_ERR1 && code >= PCRE2_ERROR_UTF8_ERR21)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "the text to match is not UTF-8");
    return octet_fail(err, OCTET_INTERNAL, NULL, "PCRE2 failed with code %d", code);
}

enum octet_status oct_pattern_test(const struct oct_pattern *pattern, const char *text,
                                   size_t length, bool *matches, struct octet_error *err)
{
    struct match_buffer buffer;
    int code = PCRE2_ERROR_NOMEMORY;

    buffer.used = 0;
    pcre2_general_context *memory = pcre2_general_context_create(buffer_take, buffer_give, &buffer);
    pcre2_match_data *data = memory ? pcre2_match_data_create(1, memory) : NULL;
    if (data)
        code = pcre2_match(pattern->code, (PCRE2_SPTR)text, length, 0, 0, data,
                           pattern->match_context);
    pcre2_match_data_free(data);
    pcre2_general_context_free(memory);
    *matches = code >= 0; /* 0: more groups than were asked for */
    if (code >= 0 || code == PCRE2_ERROR_NOMATCH)
        return OCTET_OK;
    return match_failed(pattern, code, err);
}

/* ---- one pattern by itself ---- */

struct octet_pattern {
    octet_arena *arena;
    struct oct_pattern compiled;
};

enum octet_status octet_pattern_create(const octet_context *context, const char *pattern,
                                       octet_pattern **out, struct octet_error *err)
{
    octet_pattern *created = calloc(1, sizeof *created);
    octet_arena *scratch = octet_arena_create(PATTERN_MEMORY_BYTES);
    enum octet_status status = OCTET_RESOURCE_EXHAUSTED;

    if (created)
        created->arena = octet_arena_create(PATTERN_MEMORY_BYTES);
    if (!created || !scratch || !created->arena)
        octet_fail(err, status, NULL, "out of memory: a pattern");
    else
        status = oct_pattern_compile(created->arena, scratch, octet_context_limits(context),
                                     pattern, &created->compiled, err);
    octet_arena_destroy(scratch);
    if (status)
        octet_pattern_destroy(created);
    else
        *out = created;
    return status;
}

enum octet_status octet_pattern_match(const octet_pattern *pattern, const char *text, bool *matches,
                                      struct octet_error *err)
{
    return oct_pattern_test(&pattern->compiled, text, strlen(text), matches, err);
}

void octet_pattern_destroy(octet_pattern *pattern)
{
    if (!pattern)
        return;
    octet_arena_destroy(pattern->arena);
    free(pattern);
}
