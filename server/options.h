/* The options of octetd: one table, read by the command line, the config file, --help,
 * --print-config and the checks of values.
 *
 * For: names, types, defaults, ranges and help of everything that can be set.
 * Not for: what options mean together (config_check). */
#ifndef OCTET_SERVER_OPTIONS_H
#define OCTET_SERVER_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "config.h"

enum option_type {
    OPTION_TEXT,
    OPTION_BYTES,
    OPTION_COUNT,
    OPTION_MS,
    OPTION_FLAG,
    OPTION_LEVEL,
    OPTION_ACTION
};

struct option {
    const char *key;  /* "limits.queue_length" in the config file; NULL: command line only */
    const char *flag; /* "--threads"; NULL: config file only */
    enum option_type type;
    size_t offset; /* in struct config */
    size_t size;   /* of a text's array */
    int64_t initial, min, max;
    const char *initial_text; /* of texts */
    const char *argument;     /* "N" in --help; NULL for flags and actions */
    enum config_action action;
    const char *help;
};

extern const struct option options[];
extern const size_t option_count;

/* The option of that name, "--threads" (flags) or "limits.queue_length"; NULL with err naming the
 * nearest. */
const struct option *option_find(const char *name, bool flags, struct octet_error *err);
/* Errors: INVALID_ARGUMENT without a field. */
enum octet_status option_set(struct config *config, const struct option *option, const char *value,
                             struct octet_error *err) OCTET_MUST_CHECK;

/* Every option at its default. */
void options_defaults(struct config *out);

/* Sets one option from text; used by the config file. Errors: field is the key. */
enum octet_status option_set_key(struct config *config, const char *key, const char *value,
                                 struct octet_error *err) OCTET_MUST_CHECK;

void options_print_help(FILE *out);
/* The config file that would lead to these values, with the table's help as comments. */
void options_print_config(const struct config *config, FILE *out);

#endif
