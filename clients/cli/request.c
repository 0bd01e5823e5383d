/* Arguments, files and environment -> request messages. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "session.h"
#include "wire/convert.h"

extern char **environ;

/* MaxText's own environment variables: M_ and the key in capitals. Anything else that happens to
 * start with M_ is not meant for it. Returns the key's length, 0: not one. */
static size_t variable_key(const char *variable)
{
    size_t length = 0;

    if (strncmp(variable, "M_", 2) != 0)
        return 0;
    while (isupper((unsigned char)variable[2 + length]) ||
           isdigit((unsigned char)variable[2 + length]) || variable[2 + length] == '_')
        length++;
    return variable[2 + length] == '=' ? length : 0;
}

static bool key_equals(const char *key, const char *capitals, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)key[i] != tolower((unsigned char)capitals[i]))
            return false;
    return key[length] == '\0';
}

static bool list_sets(const struct text_list *list, const char *key)
{
    size_t length = strlen(key);

    for (size_t i = 0; i < list->count; i++)
        if (strncmp(list->items[i], key, length) == 0 && list->items[i][length] == '=')
            return true;
    return false;
}

const char *request_variable(struct session *session, const char *key)
{
    if (list_sets(&session->arguments->overrides, key))
        return NULL;
    for (char **variable = environ; *variable; variable++) {
        size_t length = variable_key(*variable);
        if (length && key_equals(key, *variable + 2, length))
            return octet_arena_copy(session->arena, *variable, length + 2);
    }
    return NULL;
}

/* The overrides of a model as it is filled; room was made for all. */
struct overrides {
    octet_arena *arena;
    Octet__V1__ModelConfig__OverridesEntry **items;
    size_t count;
};

static bool add_override(struct overrides *to, char *key, const char *value)
{
    Octet__V1__ModelConfig__OverridesEntry *entry = to->items[to->count++];

    entry->key = key;
    entry->value = octet_arena_copy(to->arena, value, strlen(value));
    return key && entry->value;
}

/* named: a MODEL was given, which M_MODEL_NAME must not replace. */
static bool add_environment(struct overrides *to, bool named)
{
    for (char **variable = environ; *variable; variable++) {
        size_t length = variable_key(*variable);
        if (!length || (named && strncmp(*variable, "M_MODEL_NAME=", 13) == 0))
            continue;
        char *key = octet_arena_copy(to->arena, *variable + 2, length);
        for (char *c = key; c && *c; c++)
            *c = (char)tolower((unsigned char)*c);
        if (!add_override(to, key, *variable + 2 + length + 1))
            return false;
    }
    return true;
}

static bool add_list(struct overrides *to, const struct text_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        const char *equals = strchr(list->items[i], '=');
        char *key = octet_arena_copy(to->arena, list->items[i], (size_t)(equals - list->items[i]));
        if (!add_override(to, key, equals + 1))
            return false;
    }
    return true;
}

/* MODEL and M_MODEL_NAME that name two models: MaxText refuses a key that is given twice. */
static enum octet_status check_one_model(const struct arguments *a, struct octet_error *err)
{
    const char *variable = getenv("M_MODEL_NAME");

    if (!a->model || !variable || strcmp(variable, a->model) == 0)
        return OCTET_OK;
    return octet_fail(
        err, OCTET_INVALID_ARGUMENT, NULL,
        "the environment variable 'M_MODEL_NAME' names '%s', MODEL is '%s'; unset one", variable,
        a->model);
}

static size_t count_environment(void)
{
    size_t count = 0;

    for (char **variable = environ; *variable; variable++)
        count += variable_key(*variable) > 0;
    return count;
}

enum octet_status request_model(struct session *session, bool against, Octet__V1__ModelConfig **out,
                                struct octet_error *err)
{
    const struct arguments *a = session->arguments;
    octet_arena *arena = session->arena;
    size_t most = count_environment() + a->overrides.count + a->against_overrides.count, length;
    Octet__V1__ModelConfig *model = oct_wire_new(arena, &octet__v1__model_config__descriptor);
    const char *name = against && a->against_model ? a->against_model : a->model;
    struct overrides overrides = {.arena = arena};
    ProtobufCMessage **list;

    if (!model || !oct_wire_new_list(arena, &octet__v1__model_config__overrides_entry__descriptor,
                                     most, &list))
        return octet_arena_exhausted(arena, err);
    enum octet_status status = check_one_model(a, err);
    if (status != OCTET_OK)
        return status;
    overrides.items = (Octet__V1__ModelConfig__OverridesEntry **)list;
    /* Later wins: the environment is below the arguments, and --against above both. */
    model->name = oct_wire_text(arena, name);
    if (!model->name || !add_environment(&overrides, name != NULL) ||
        !add_list(&overrides, &a->overrides) ||
        (against && !add_list(&overrides, &a->against_overrides)))
        return octet_arena_exhausted(arena, err);
    model->overrides = overrides.items;
    model->n_overrides = overrides.count;
    *out = model;
    if (!a->config)
        return OCTET_OK;
    return file_read(arena, a->config, octet_context_limits(session->context)->yaml_bytes,
                     &model->yaml, &length, err);
}

enum octet_status request_rules(struct session *session, size_t *count,
                                Octet__V1__QuantizationRule ***out, struct octet_error *err)
{
    const char *path = session->arguments->rules;
    octet_rules *rules = NULL;
    char *text;
    size_t length;

    if (!path)
        return OCTET_OK;
    enum octet_status status =
        file_read(session->arena, path, octet_context_limits(session->context)->yaml_bytes, &text,
                  &length, err);
    if (status != OCTET_OK)
        return status;
    status = octet_rules_parse(session->context, text, length, &rules, err);
    if (status != OCTET_OK) {
        if (err && !err->field[0])
            octet_error_within(err, "rules");
        return status;
    }
    if (octet_rules_count(rules) == 0) /* on the wire that would mean: the config's */
        status = octet_fail(err, OCTET_INVALID_ARGUMENT, "rules", "the list is empty");
    else
        status = oct_wire_put_rules(session->arena, rules, count, out, err);
    octet_rules_unref(rules);
    return status;
}

const char *request_title(struct session *session)
{
    const struct arguments *a = session->arguments;
    char *title = octet_arena_format(session->arena, "%s", a->model ? a->model : "");

    if (title && a->config)
        title = octet_arena_format(session->arena, "%s%s--config %s", title, title[0] ? " " : "",
                                   a->config);
    for (size_t i = 0; title && i < a->overrides.count; i++)
        title = octet_arena_format(session->arena, "%s%s%s", title, title[0] ? " " : "",
                                   a->overrides.items[i]);
    return title;
}
