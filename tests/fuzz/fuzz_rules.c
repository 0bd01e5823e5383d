/* Fuzz target of rules: any bytes as a pattern with a text, and as a rules file.
 *
 * Holds: reading fails only with the two statuses it promises and a sentence; a match ends, and has
 * the same answer when the pattern is put into a group or into an alternative with itself; rules
 * that were read are made again from their normal form, as the same rules. The first byte selects:
 * bit 0 a rules file rather than a pattern. A pattern ends at the first NUL, the text to match
 * follows it. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "octet/octet.h"

enum { YAML = 1, RULES_MAX = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void require(bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "does not hold: %s\n", what);
        abort();
    }
}

static void check_status(enum octet_status status, const struct octet_error *err)
{
    require(status == OCTET_INVALID_ARGUMENT || status == OCTET_RESOURCE_EXHAUSTED,
            "the status is one that is promised");
    require(status == err->status, "the error has the status that was returned");
    require(err->text[0] != '\0', "an error says something");
    for (const char *p = err->field; *p; p++)
        require(*p >= ' ' && *p <= '~', "a field is printable");
    for (const char *p = err->text; *p; p++)
        require((unsigned char)*p >= ' ', "a message is one line");
}

/* 1, 0, or -1 when the pattern is refused or a limit ends the match. */
static int match(const octet_context *context, const char *source, const char *text)
{
    struct octet_error err = {0};
    octet_pattern *pattern = NULL;
    bool matches = false;
    enum octet_status status = octet_pattern_create(context, source, &pattern, &err);

    require((status == OCTET_OK) == (pattern != NULL),
            "a pattern is there exactly when it was made");
    if (!status)
        status = octet_pattern_match(pattern, text, &matches, &err);
    octet_pattern_destroy(pattern);
    if (status)
        check_status(status, &err);
    return status ? -1 : matches;
}

/* The answer for `source` inside of `format`, which has one or two %s. */
static int match_inside(const octet_context *context, const char *format, const char *source,
                        const char *text)
{
    size_t size = 2 * strlen(source) + strlen(format) + 1;
    char *wrapped = malloc(size);

    require(wrapped != NULL, "there is memory for a pattern");
    snprintf(wrapped, size, format, source, source);
    int answer = match(context, wrapped, text);
    free(wrapped);
    return answer;
}

static void check_pattern(const octet_context *context, const char *source, const char *text)
{
    int answer = match(context, source, text), grouped;

    /* Flags for the whole pattern may not stand in a group, and in verbose mode a comment may
     * swallow what is put behind it; those are refused there, or mean something else. */
    if (answer < 0 || strstr(source, "(?") || strchr(source, '\\'))
        return;
    grouped = match_inside(context, "(?:%s)", source, text);
    require(grouped == answer || grouped < 0, "a group does not change what matches");
    grouped = match_inside(context, "%s|%s", source, text);
    require(grouped == answer || grouped < 0, "an alternative with itself changes nothing");
    if (answer == 1)
        require(match_inside(context, "(?!(?:%s)\\Z)(?:.|\\n)*", source, text) <= 0,
                "what matches is not without a match");
}

static void check_file(const octet_context *context, const char *yaml, size_t length)
{
    struct octet_rule copies[RULES_MAX];
    struct octet_error err = {0};
    octet_rules *rules = NULL, *same = NULL;
    uint64_t digest[2], again[2];
    enum octet_status status = octet_rules_parse(context, yaml, length, &rules, &err);

    require((status == OCTET_OK) == (rules != NULL), "rules are there exactly when they were read");
    if (status) {
        check_status(status, &err);
        return;
    }
    size_t count = octet_rules_count(rules);
    require(count <= RULES_MAX, "there are no more rules than allowed");
    for (size_t i = 0; i < count; i++)
        copies[i] = *octet_rules_get(rules, i);
    require(octet_rules_create(context, copies, count, &same, &err) == OCTET_OK,
            "the normal form makes rules");
    octet_rules_digest(rules, digest);
    octet_rules_digest(same, again);
    require(!memcmp(digest, again, sizeof digest), "the normal form makes the same rules");
    int rule;
    status = octet_rules_match(rules, "decoder/layers_0/mlp/wi_0", "dot_general", &rule, &err);
    if (status)
        check_status(status, &err);
    else
        require(rule >= -1 && rule < (int)count, "a lookup gives a rule or none");
    octet_rules_unref(same);
    octet_rules_unref(rules);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    const struct octet_limits limits = {.rules = RULES_MAX, .pattern_match_steps = 5000};
    struct octet_error err;
    octet_context *context;

    if (size == 0)
        return 0;
    require(octet_context_create(&limits, &context, &err) == OCTET_OK, "a context is made");
    if (bytes[0] & YAML) {
        check_file(context, (const char *)bytes + 1, size - 1);
    } else {
        char *pattern = malloc(size + 1);
        require(pattern != NULL, "there is memory for the input");
        memcpy(pattern, bytes + 1, size - 1);
        memset(pattern + size - 1, 0, 2);
        check_pattern(context, pattern, pattern + strlen(pattern) + (strlen(pattern) + 1 < size));
        free(pattern);
    }
    octet_context_destroy(context);
    return 0;
}
