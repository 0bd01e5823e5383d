/* The lock file: a header (lines that start with #, for people), the rules, and Qwix's lines. Only
 * rules and lines are compared: the same trace by other settings is the same trace. */
#include "lock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lines.h"
#include "view.h"

static const char head[] = "# octet trace lock 1";
enum { LOCK_BYTES_MAX = 64 * 1024 * 1024 };

/* A text that grows by doubling in the arena. */
struct text {
    octet_arena *arena;
    char *bytes;
    size_t length, room;
    bool failed;
};

static void text_add(struct text *to, const char *piece)
{
    size_t length = piece ? strlen(piece) : 0;

    if (!piece || to->failed) {
        to->failed = true;
        return;
    }
    if (to->length + length + 1 > to->room) {
        size_t room = 2 * (to->length + length + 1) + 4096;
        char *bytes = octet_arena_alloc(to->arena, room);
        to->failed = !bytes;
        if (!bytes)
            return;
        if (to->length)
            memcpy(bytes, to->bytes, to->length);
        to->bytes = bytes;
        to->room = room;
    }
    memcpy(to->bytes + to->length, piece, length + 1);
    to->length += length;
}

/* Settings stand in one line of the header, whatever they hold. */
static void text_add_flat(struct text *to, const char *piece)
{
    size_t start = to->length;

    text_add(to, piece);
    for (size_t i = start; !to->failed && i < to->length; i++)
        if ((unsigned char)to->bytes[i] < 0x20)
            to->bytes[i] = ' ';
}

static const char *rule_line(octet_arena *arena, const Octet__V1__Trace *trace, size_t i)
{
    struct text line = {.arena = arena};
    const char *settings = view_rule_settings(arena, trace->rules[i]);

    text_add(&line, octet_arena_format(arena, "rule %zu: ", i));
    text_add_flat(&line, settings);
    return line.failed ? NULL : line.bytes;
}

static enum octet_status write_lock(struct session *session, const Octet__V1__Trace *trace,
                                    struct octet_error *err)
{
    struct text text = {.arena = session->arena};
    char line[4096];

    text_add(&text, head);
    text_add(&text, "\n# config: ");
    text_add_flat(&text, request_title(session));
    text_add(&text,
             octet_arena_format(session->arena,
                                "\n# written by octet %s; to accept a new trace, delete this "
                                "file and run the check again\n",
                                octet_version()));
    for (size_t i = 0; i < trace->n_rules; i++) {
        text_add(&text, rule_line(session->arena, trace, i));
        text_add(&text, "\n");
    }
    for (size_t i = 0; i < trace->n_interceptions; i++)
        if (view_is_line(trace->interceptions[i])) {
            view_line(trace->interceptions[i], line, sizeof line);
            text_add(&text, line);
            text_add(&text, "\n");
        }
    if (text.failed)
        return octet_arena_exhausted(session->arena, err);
    return file_replace(session->arguments->lock, text.bytes, text.length, err);
}

/* What a lock file holds. */
struct lock {
    const char **rules; /* whole lines */
    size_t rule_count;
    struct line_list lines;
};

static enum octet_status parse_lock(octet_arena *arena, const char *path, char *text,
                                    struct lock *out, struct octet_error *err)
{
    size_t number = 0, room = 1;

    for (const char *c = text; *c; c++)
        room += *c == '\n';
    out->rules = OCTET_NEW_ARRAY(arena, room, const char *);
    if (!out->rules)
        return octet_arena_exhausted(arena, err);
    lines_start(&out->lines, arena);
    for (char *line = text, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        number++;
        size_t length = strlen(line);
        if (length && line[length - 1] == '\r') /* git may have put it there */
            line[--length] = '\0';
        if (number == 1 && strcmp(line, head) != 0)
            return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                              "'%s' is not a lock file: its first line is not '%s'", path, head);
        if (!length || line[0] == '#')
            continue;
        enum line_found found = LINE_ADDED;
        if (strncmp(line, "rule ", 5) == 0)
            out->rules[out->rule_count++] = line;
        else
            found = lines_read(&out->lines, line, length);
        if (found == LINE_NO_MEMORY)
            return octet_arena_exhausted(arena, err);
        if (found == LINE_NONE)
            return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                              "'%s' line %zu is neither a rule nor a line of Qwix", path, number);
    }
    return OCTET_OK;
}

static void add_change(struct text *to, char sign, const char *line)
{
    const char prefix[] = {sign, ' ', '\0'};

    if (to->length)
        text_add(to, "\n");
    text_add(to, prefix);
    text_add(to, line);
}

static void compare_rules(octet_arena *arena, const struct lock *lock,
                          const Octet__V1__Trace *trace, struct text *changes)
{
    for (size_t i = 0; i < lock->rule_count || i < trace->n_rules; i++) {
        const char *before = i < lock->rule_count ? lock->rules[i] : NULL;
        const char *now = i < trace->n_rules ? rule_line(arena, trace, i) : NULL;
        if (i < trace->n_rules && !now) {
            changes->failed = true;
            return;
        }
        if (before && now && strcmp(before, now) == 0)
            continue;
        if (before)
            add_change(changes, '-', before);
        if (now)
            add_change(changes, '+', now);
    }
}

static void compare_lines(octet_arena *arena, const struct lock *lock,
                          const Octet__V1__Trace *trace, struct text *changes)
{
    struct line_list now;
    struct line_comparison c;

    lines_start(&now, arena);
    if (!lines_take_trace(&now, trace, true) || !lines_compare(arena, &lock->lines, &now, &c)) {
        changes->failed = true;
        return;
    }
    for (size_t i = 0; i < c.count; i++) {
        if (c.items[i].expected)
            add_change(changes, '-',
                       line_text(arena, c.items[i].expected, c.items[i].expected->rule));
        if (c.items[i].found)
            add_change(changes, '+', line_text(arena, c.items[i].found, c.items[i].found->rule));
    }
    if (c.count == 0 && c.out_of_order) {
        add_change(changes, '!',
                   "the same lines in another order; the first that stands elsewhere:");
        add_change(changes, '!', line_text(arena, c.out_of_order, c.out_of_order->rule));
    }
}

enum octet_status lock_check(struct session *session, const Octet__V1__Trace *trace, bool may_write,
                             enum lock_state *state, const char **changes, struct octet_error *err)
{
    const char *path = session->arguments->lock;
    struct text diff = {.arena = session->arena};
    struct lock lock = {0};
    char *text;
    size_t length;

    if (access(path, F_OK) != 0 && errno == ENOENT) {
        *state = may_write ? LOCK_WRITTEN : LOCK_ABSENT;
        return may_write ? write_lock(session, trace, err) : OCTET_OK;
    }
    enum octet_status status = file_read(session->arena, path, LOCK_BYTES_MAX, &text, &length, err);
    if (status == OCTET_OK)
        status = parse_lock(session->arena, path, text, &lock, err);
    if (status != OCTET_OK)
        return status;
    compare_rules(session->arena, &lock, trace, &diff);
    compare_lines(session->arena, &lock, trace, &diff);
    if (diff.failed)
        return octet_arena_exhausted(session->arena, err);
    *state = diff.length ? LOCK_DIFFERS : LOCK_SAME;
    *changes = diff.bytes;
    return OCTET_OK;
}
