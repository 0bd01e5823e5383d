/* Qwix's lines read back: from a user's log, from a lock file, and from a trace; and what two sets
 * of them do not agree on. Used by verify and by check --lock.
 *
 * Life: lines live in the arena of their list. */
#ifndef OCTET_CLI_LINES_H
#define OCTET_CLI_LINES_H

#include "session.h"

struct line {
    const char *module, *op;
    int rule;       /* -1: None */
    bool torn;      /* the same op stands there with another rule too: */
    int other_rule; /* that rule */
};

struct line_list {
    octet_arena *arena;
    struct line *items; /* distinct (module, op), in order of first appearance */
    size_t count, room;
    size_t *slots; /* hash table over items: index + 1, 0 = free */
    size_t slot_count;
    size_t repeated; /* lines that had been seen before */
};

void lines_start(struct line_list *list, octet_arena *arena);
/* Adds a copy. false: no memory. */
bool lines_add(struct line_list *list, const char *module, size_t module_length, const char *op,
               size_t op_length, int rule);
const struct line *lines_find(const struct line_list *list, const char *module, const char *op);

/* Adds Qwix's line when `text` holds one, wherever it starts ("... qconfig.py:1] [QWIX]
 * module=..."). */
enum line_found { LINE_NONE, LINE_ADDED, LINE_NO_MEMORY };
enum line_found lines_read(struct line_list *list, const char *text, size_t length);
/* Adds the plain lines of a trace; gmm: also the lookups that Qwix does not log. */
bool lines_take_trace(struct line_list *list, const Octet__V1__Trace *trace, bool gmm);

enum line_difference_kind { LINE_MISSING, LINE_EXTRA, LINE_CHANGED };
struct line_difference {
    enum line_difference_kind kind;
    const struct line *expected, *found; /* NULL where there is none */
    int found_rule;                      /* LINE_CHANGED: the rule that is not expected's */
};
struct line_comparison {
    struct line_difference *items; /* in order of `expected`, then what is extra */
    size_t count, missing, extra, changed, same;
    const struct line *out_of_order; /* the first common line that stands elsewhere; NULL: none */
};
bool lines_compare(octet_arena *arena, const struct line_list *expected,
                   const struct line_list *found, struct line_comparison *out);

/* "[QWIX] module='...' op=... rule=..." with the rule given; NULL: no memory. */
const char *line_text(octet_arena *arena, const struct line *line, int rule);

#endif
