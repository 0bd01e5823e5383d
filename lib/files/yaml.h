/* YAML text -> a tree of values, as PyYAML's safe loader with OmegaConf's number syntax types them.
 *
 * For: configs and rules, whoever wrote them: hostile text costs at most its limits.
 * Not for: writing YAML, several documents, tags other than !!str.
 * Decision: YAML 1.1 typing (yes is true, 010 is 8, 1:30 is 90) because MaxText reads it so, and
 * 1e-6 is a number because OmegaConf makes it one; aliases share the anchor's subtree, and each use
 * counts against the limit on nodes, so that a bomb of aliases is refused before anyone walks it.
 *
 * Life: the tree lives in the arena and is read-only. */
#ifndef OCTET_FILES_YAML_H
#define OCTET_FILES_YAML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "octet/arena.h"

enum { OCT_YAML_DEPTH_MAX = 32, OCT_YAML_NODES_MAX = 32768, OCT_YAML_ANCHORS_MAX = 256 };

enum oct_yaml_kind {
    OCT_YAML_NULL,
    OCT_YAML_BOOL,
    OCT_YAML_INT,
    OCT_YAML_FLOAT,
    OCT_YAML_TEXT,
    OCT_YAML_LIST,
    OCT_YAML_MAP,
};

struct oct_yaml {
    enum oct_yaml_kind kind;
    int line;         /* from 1 */
    bool quoted;      /* a scalar that was written in quotes, or as a block */
    bool too_large;   /* an INT outside 64 bits: integer is the nearest end */
    bool boolean;     /* BOOL */
    int64_t integer;  /* INT */
    double number;    /* FLOAT, INT */
    const char *text; /* a scalar as it was written, without quotes; never holds NUL; "" for
                         LIST and MAP */
    const char *key;  /* in a map: the key's text; else NULL */
    const struct oct_yaml *next;  /* the next item of the list or map that this is in */
    const struct oct_yaml *first; /* LIST, MAP: the first item; NULL when empty */
    size_t count;                 /* LIST, MAP: items */
};

/* One document; empty text (or only comments) is a NULL node. Keys of a map are scalars, each once;
 * merge keys ("<<") are resolved.
 * bytes_max: the longest text that is read (octet_limits.yaml_bytes).
 * Errors: INVALID_ARGUMENT, no field, "line 3: ..."; RESOURCE_EXHAUSTED. */
enum octet_status oct_yaml_parse(octet_arena *arena, const char *text, size_t length,
                                 size_t bytes_max, const struct oct_yaml **out,
                                 struct octet_error *err) OCTET_MUST_CHECK;

/* The item of a map under `key`, or NULL. */
const struct oct_yaml *oct_yaml_get(const struct oct_yaml *map, const char *key);

/* "true or false", "a whole number", "a text", ...: for messages. */
const char *oct_yaml_kind_name(enum oct_yaml_kind kind);

/* Types a plain (unquoted) scalar: kind, boolean, integer, number, text of *out are written; text
 * is `text` itself. */
void oct_yaml_resolve(const char *text, struct oct_yaml *out);

#endif
