/* See config_file.h. The file is a list of events to us, no tree: two levels need no recursion. */
#include "config_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <yaml.h>

#include "options.h"

enum { KEYS_MAX = 64, FILE_BYTES_MAX = 1 << 20 };

struct reader {
    yaml_parser_t parser;
    yaml_event_t event; /* the last one; deleted before the next */
    struct config *config;
    char seen[KEYS_MAX][64];
    size_t seen_count;
    struct octet_error *err;
};

static enum octet_status fail_here(struct reader *r, const char *what)
{
    return octet_fail(r->err, OCTET_INVALID_ARGUMENT, NULL, "line %zu: %s",
                      r->event.start_mark.line + 1, what);
}

static enum octet_status next(struct reader *r)
{
    yaml_event_delete(&r->event);
    if (yaml_parser_parse(&r->parser, &r->event))
        return OCTET_OK;
    memset(&r->event, 0, sizeof r->event);
    return octet_fail(r->err, OCTET_INVALID_ARGUMENT, NULL, "line %zu: not YAML: %s",
                      r->parser.problem_mark.line + 1,
                      r->parser.problem ? r->parser.problem : "cannot be read");
}

/* The scalar's text; fails for a NUL inside, which would hide what follows it. */
static enum octet_status scalar(struct reader *r, const char *expected, const char **text)
{
    if (r->event.type != YAML_SCALAR_EVENT)
        return fail_here(r, expected);
    *text = (const char *)r->event.data.scalar.value;
    if (strlen(*text) != r->event.data.scalar.length)
        return fail_here(r, "text with a zero byte");
    return OCTET_OK;
}

static enum octet_status remember(struct reader *r, const char *key)
{
    for (size_t i = 0; i < r->seen_count; i++)
        if (strcmp(r->seen[i], key) == 0)
            return fail_here(r, "the key stands here for the second time");
    if (r->seen_count == KEYS_MAX)
        return fail_here(r, "too many keys");
    snprintf(r->seen[r->seen_count++], sizeof r->seen[0], "%s", key);
    return OCTET_OK;
}

/* The event is the value of `key`. */
static enum octet_status read_value(struct reader *r, const char *key)
{
    const char *value = "";
    struct octet_error cause = {.status = OCTET_OK};
    char text[1280];
    enum octet_status status = scalar(r, "expected one value, not a list or a section", &value);

    if (status == OCTET_OK)
        status = remember(r, key);
    if (status != OCTET_OK)
        return status;
    if (option_set_key(r->config, key, value, &cause) == OCTET_OK)
        return OCTET_OK;
    return fail_here(r, octet_error_message(&cause, text, sizeof text));
}

/* The event after the mapping's start is next. section: "" at the top. */
static enum octet_status read_mapping(struct reader *r, const char *section);

static enum octet_status read_entry(struct reader *r, const char *section)
{
    char key[128];
    const char *name = "";
    enum octet_status status = scalar(r, "expected a key", &name);

    if (status != OCTET_OK)
        return status;
    snprintf(key, sizeof key, "%s%s%.60s", section, section[0] ? "." : "", name);
    status = next(r);
    if (status != OCTET_OK)
        return status;
    if (r->event.type == YAML_MAPPING_START_EVENT && !section[0])
        return read_mapping(r, key);
    return read_value(r, key);
}

static enum octet_status read_mapping(struct reader *r, const char *section)
{
    for (;;) {
        enum octet_status status = next(r);
        if (status != OCTET_OK || r->event.type == YAML_MAPPING_END_EVENT)
            return status;
        status = read_entry(r, section);
        if (status != OCTET_OK)
            return status;
    }
}

static enum octet_status read_stream(struct reader *r)
{
    enum octet_status status = next(r); /* stream start */

    if (status == OCTET_OK)
        status = next(r); /* document start, or the end of an empty file */
    if (status != OCTET_OK || r->event.type == YAML_STREAM_END_EVENT)
        return status;
    status = next(r);
    if (status != OCTET_OK)
        return status;
    if (r->event.type != YAML_MAPPING_START_EVENT)
        return fail_here(r, "expected keys and values");
    status = read_mapping(r, "");
    if (status == OCTET_OK)
        status = next(r); /* document end */
    if (status == OCTET_OK)
        status = next(r);
    if (status == OCTET_OK && r->event.type != YAML_STREAM_END_EVENT)
        return fail_here(r, "a second document; one is expected");
    return status;
}

enum octet_status config_file_read(const char *path, struct config *config, struct octet_error *err)
{
    struct reader reader = {.config = config, .err = err};
    enum octet_status status;
    FILE *file = fopen(path, "re");

    struct stat what;

    if (file && fstat(fileno(file), &what) == 0 && S_ISDIR(what.st_mode)) {
        status = octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                            "the config file '%s' is a directory", path);
        goto done;
    }
    if (!file || fseek(file, 0, SEEK_END) != 0) {
        status = octet_fail(err, OCTET_NOT_FOUND, NULL, "the config file '%s' cannot be read: %s",
                            path, strerror(errno));
        goto done;
    }
    if (ftell(file) > FILE_BYTES_MAX) {
        status = octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                            "the config file '%s' has more than %d bytes", path, FILE_BYTES_MAX);
        goto done;
    }
    rewind(file);
    if (!yaml_parser_initialize(&reader.parser)) {
        status = octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
        goto done;
    }
    yaml_parser_set_input_file(&reader.parser, file);
    status = read_stream(&reader);
    if (status != OCTET_OK)
        octet_error_within(err, path);
    yaml_event_delete(&reader.event);
    yaml_parser_delete(&reader.parser);
done:
    if (file)
        fclose(file);
    return status;
}
