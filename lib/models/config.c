/* octet_config_build: layers of YAML values, each key's last one converted.
 *
 * Decision: layers hold YAML nodes, and only the value that stays is converted, as in MaxText: a
 * bad value that a later layer replaces does not matter. Source: MaxText's configs/pyconfig.py,
 * _initialize_pydantic. Octet differs in that a YAML text lies above the named model, not below it,
 * and in that a key set on top of the model needs no override_model_config=true: the setting tells
 * (overrides_model). */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "models/config_private.h"
#include "models/known_models.h"
#include "octet/config.h"

enum { BASE_CONFIG_DEPTH_MAX = 8, FIELD_SIZE = 160 };

struct build {
    const octet_context *context;
    octet_arena *arena;
    const struct octet_config_input *input;
    struct octet_error *err;
    struct octet_config *config;
    const struct oct_yaml *yaml; /* the YAML text's map; NULL when there is none */
    const char *model_name;      /* as given, "default" when none is */
    const char *model_field;     /* whom to blame for it */
    bool model_named;            /* by `name` or an override: M_MODEL_NAME then conflicts */
    bool override_model_config;
    const struct oct_yaml *nodes[OCT_KEY_COUNT];     /* the value that stays; NULL: the default */
    const struct oct_yaml *model[OCT_KEY_COUNT];     /* the model's */
    const struct oct_yaml *overrides[OCT_KEY_COUNT]; /* the overrides' */
};

static enum octet_status within(struct build *b, const char *origin, const char *key)
{
    char field[FIELD_SIZE], shown[OCT_SHOWN_SIZE];

    if (!b->err)
        return OCTET_INVALID_ARGUMENT;
    snprintf(field, sizeof field, "%s[%s]", origin, oct_shown(key, shown));
    b->err->field[0] = '\0';
    return octet_error_within(b->err, field);
}

static enum octet_status no_memory(struct build *b)
{
    return octet_arena_exhausted(b->arena, b->err);
}

static enum octet_status unknown_key(struct build *b, const char *origin, const char *key)
{
    char shown[OCT_SHOWN_SIZE];

    if (!strcmp(key, "rules"))
        (void)octet_fail(b->err, OCTET_INVALID_ARGUMENT, NULL,
                         "MaxText has no config key 'rules'; a file of Qwix rules goes in as "
                         "`--rules FILE.yml`, or as the request's rules");
    else
        (void)octet_fail(b->err, OCTET_INVALID_ARGUMENT, NULL,
                         "MaxText has no config key '%s'; did you mean '%s'?",
                         oct_shown(key, shown), oct_key_nearest(key));
    (void)within(b, origin, key);
    return OCTET_INVALID_ARGUMENT;
}

/* A value of one layer: known key, no interpolation. */
static enum octet_status accept(struct build *b, const char *origin, const struct oct_yaml *node,
                                const char *name, enum oct_key *key)
{
    *key = oct_key_find(name);
    if (*key >= OCT_KEY_COUNT)
        return unknown_key(b, origin, name);
    if (node->kind == OCT_YAML_TEXT && strstr(node->text, "${")) {
        (void)octet_fail(b->err, OCTET_INVALID_ARGUMENT, NULL,
                         "'${...}' is not resolved here; write the value itself");
        (void)within(b, origin, name);
        return OCTET_INVALID_ARGUMENT;
    }
    return OCTET_OK;
}

/* An override's value: one YAML document. Bare words and numbers, nearly all there are, skip the
 * parser. */
static bool is_bare_word(const char *text)
{
    const char *p = text;

    if (*p == '-' || *p == '+' || *p == '.')
        p++;
    if (!((*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z')))
        return false;
    return !p[strspn(p, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_.+-/")];
}

static enum octet_status parse_value(struct build *b, const char *text, const struct oct_yaml **out)
{
    size_t bytes_max = octet_context_limits(b->context)->yaml_bytes;
    size_t length = strlen(text);

    if (length <= bytes_max && is_bare_word(text)) {
        struct oct_yaml *node = OCTET_NEW(b->arena, struct oct_yaml);
        char *copy = octet_arena_copy(b->arena, text, length);
        if (!node || !copy)
            return no_memory(b);
        oct_yaml_resolve(copy, node);
        *out = node;
        return OCTET_OK;
    }
    return oct_yaml_parse(b->arena, text, length, bytes_max, out, b->err);
}

/* "lora.enable_lora" -> the key "lora" and a map around the value; OmegaConf's dotted keys. Only
 * keys that hold mappings have anything below them, and none of those has an effect here, so one
 * level and the last setting are kept. */
static enum octet_status nest(struct build *b, const char *name, const char **key,
                              const struct oct_yaml **node)
{
    size_t length = strcspn(name, ".[");

    *key = name;
    if (!name[length] || !length)
        return OCTET_OK;
    char *root = octet_arena_copy(b->arena, name, length);
    struct oct_yaml *map = OCTET_NEW(b->arena, struct oct_yaml);
    struct oct_yaml *item = OCTET_NEW(b->arena, struct oct_yaml);
    size_t rest = strcspn(name + length + 1, "]");
    char *below = octet_arena_copy(b->arena, name + length + 1, rest);
    if (!root || !map || !item || !below)
        return no_memory(b);
    *item = **node;
    item->key = below;
    *map = (struct oct_yaml){.kind = OCT_YAML_MAP, .text = "", .first = item, .count = 1};
    *key = root;
    *node = map;
    return OCTET_OK;
}

static enum octet_status read_override(struct build *b, const struct octet_pair *pair)
{
    const char *name = pair->key ? pair->key : "", *root;
    const struct oct_yaml *node;
    enum oct_key key;
    enum octet_status status = parse_value(b, pair->value ? pair->value : "", &node);

    if (status == OCTET_INVALID_ARGUMENT)
        (void)within(b, "overrides", name);
    if (!status)
        status = nest(b, name, &root, &node);
    if (!status)
        status = accept(b, "overrides", node, root, &key);
    if (!status)
        b->overrides[key] = node;
    return status;
}

static enum octet_status read_overrides(struct build *b)
{
    enum octet_status status = OCTET_OK;

    for (size_t i = 0; i < b->input->override_count && !status; i++)
        status = read_override(b, &b->input->overrides[i]);
    return status;
}

static enum octet_status read_yaml(struct build *b)
{
    const struct oct_yaml *tree;

    if (!b->input->yaml)
        return OCTET_OK;
    enum octet_status status =
        oct_yaml_parse(b->arena, b->input->yaml, b->input->yaml_length,
                       octet_context_limits(b->context)->yaml_bytes, &tree, b->err);
    if (!status && tree->kind == OCT_YAML_MAP)
        b->yaml = tree;
    else if (!status && tree->kind != OCT_YAML_NULL)
        status = octet_fail(b->err, OCTET_INVALID_ARGUMENT, NULL,
                            "line %d: the config is %s; expected 'key: value' lines", tree->line,
                            oct_yaml_kind_name(tree->kind));
    if (status == OCTET_INVALID_ARGUMENT && b->err)
        (void)octet_error_within(b->err, "yaml");
    return status;
}

/* One layer of `key: value` lines. */
static enum octet_status apply_map(struct build *b, const struct oct_yaml *map,
                                   enum octet_config_origin origin)
{
    for (const struct oct_yaml *item = map->kind == OCT_YAML_MAP ? map->first : NULL; item;
         item = item->next) {
        enum oct_key key;
        enum octet_status status = accept(b, "yaml", item, item->key, &key);
        if (status)
            return status;
        b->nodes[key] = item;
        b->config->origins[key] = (uint8_t)origin;
        if (origin == OCTET_FROM_MODEL)
            b->model[key] = item;
    }
    return OCTET_OK;
}

static enum octet_status model_missing(struct build *b, const char *name, const char *field)
{
    char shown[OCT_SHOWN_SIZE];
    size_t length = strlen(name);
    bool path = strchr(name, '/') || strstr(name, "..") ||
                (length > 4 && !strcmp(name + length - 4, ".yml"));

    oct_shown(name, shown);
    if (path)
        return octet_fail(b->err, OCTET_NOT_FOUND, field,
                          "'%s' looks like a path; a config names a known model, such as '%s'",
                          shown, oct_known_model_nearest(name));
    return octet_fail(b->err, OCTET_NOT_FOUND, field, "no model is called '%s'; did you mean '%s'?",
                      shown, oct_known_model_nearest(name));
}

/* The name that `base_config` of a map gives; NULL: none, or MaxText's own base.yml, the defaults.
 */
static enum octet_status base_name(struct build *b, const struct oct_yaml *map, const char **out)
{
    const struct oct_yaml *node = oct_yaml_get(map, "base_config");

    *out = NULL;
    if (!node || node->kind == OCT_YAML_NULL)
        return OCTET_OK;
    if (node->kind != OCT_YAML_TEXT)
        return octet_fail(b->err, OCTET_INVALID_ARGUMENT, "yaml[base_config]",
                          "the value is %s; expected the name of a known model",
                          oct_yaml_kind_name(node->kind));
    if (strcmp(node->text, "base.yml") && strcmp(node->text, "base") &&
        strcmp(node->text, "default"))
        *out = node->text;
    return OCTET_OK;
}

static enum octet_status parse_known(struct build *b, const struct oct_known_model *model,
                                     const struct oct_yaml **out)
{
    return oct_yaml_parse(b->arena, model->yaml, model->yaml_length, model->yaml_length, out,
                          b->err);
}

/* Applies the maps that base_config leads to, the farthest first. */
static enum octet_status apply_bases(struct build *b, const struct oct_yaml *map,
                                     enum octet_config_origin origin)
{
    const struct oct_yaml *chain[BASE_CONFIG_DEPTH_MAX];
    const struct oct_known_model *seen[BASE_CONFIG_DEPTH_MAX];
    size_t count = 0;
    const char *name;
    enum octet_status status = base_name(b, map, &name);

    while (!status && name) {
        const struct oct_known_model *model = oct_known_model_find(name);
        if (!model)
            return model_missing(b, name, "yaml[base_config]");
        for (size_t i = 0; i < count; i++)
            if (seen[i] == model)
                return octet_fail(b->err, OCTET_INVALID_ARGUMENT, "yaml[base_config]",
                                  "'%s' is based on itself", model->name);
        if (count == BASE_CONFIG_DEPTH_MAX)
            return octet_fail(b->err, OCTET_INVALID_ARGUMENT, "yaml[base_config]",
                              "more than %d configs are based on each other",
                              (int)BASE_CONFIG_DEPTH_MAX);
        seen[count] = model;
        status = parse_known(b, model, &chain[count]);
        if (!status)
            status = base_name(b, chain[count++], &name);
    }
    while (count-- && !status)
        status = apply_map(b, chain[count], origin);
    return status;
}

/* A YAML text that names another model than the request was written for that one: neither is what
 * both mean. */
static enum octet_status check_model_named_once(struct build *b)
{
    const struct oct_yaml *inside = b->yaml ? oct_yaml_get(b->yaml, "model_name") : NULL;
    char shown[OCT_SHOWN_SIZE];

    if (!b->model_named || !inside || inside->kind != OCT_YAML_TEXT ||
        !strcmp(inside->text, "default") || !strcmp(inside->text, b->model_name))
        return OCTET_OK;
    return octet_fail(b->err, OCTET_INVALID_ARGUMENT, "yaml[model_name]",
                      "'%s' is another model than '%s'; name one of them",
                      oct_shown(inside->text, shown), b->model_name);
}

/* Which model, and who says so: an override, `name`, or the YAML text. */
static enum octet_status choose_model(struct build *b)
{
    const struct oct_yaml *node = b->overrides[OCT_KEY_model_name];

    b->model_field = "name";
    b->model_name = b->input->name && *b->input->name ? b->input->name : NULL;
    b->model_named = b->model_name || node;
    if (node) {
        b->model_field = "overrides[model_name]";
    } else if (!b->model_name && b->yaml) {
        node = oct_yaml_get(b->yaml, "model_name");
        b->model_field = "yaml[model_name]";
    }
    if (node && node->kind != OCT_YAML_TEXT)
        return octet_fail(b->err, OCTET_INVALID_ARGUMENT, b->model_field,
                          "the value is %s; expected a model's name",
                          oct_yaml_kind_name(node->kind));
    if (node)
        b->model_name = node->text;
    if (!b->model_name)
        b->model_name = "default";
    return check_model_named_once(b);
}

static enum octet_status apply_model(struct build *b)
{
    const struct oct_yaml *map;

    if (!strcmp(b->model_name, "default"))
        return OCTET_OK;
    const struct oct_known_model *model = oct_known_model_find(b->model_name);
    if (!model)
        return model_missing(b, b->model_name, b->model_field);
    enum octet_status status = parse_known(b, model, &map);
    if (!status)
        status = apply_bases(b, map, OCTET_FROM_MODEL);
    if (!status)
        status = apply_map(b, map, OCTET_FROM_MODEL);
    return status;
}

static enum octet_status apply_yaml(struct build *b)
{
    if (!b->yaml)
        return OCTET_OK;
    enum octet_status status = apply_bases(b, b->yaml, OCTET_FROM_YAML);
    if (!status)
        status = apply_map(b, b->yaml, OCTET_FROM_YAML);
    return status;
}

static void apply_overrides(struct build *b)
{
    for (size_t key = 0; key < OCT_KEY_COUNT; key++) {
        if (!b->overrides[key])
            continue;
        b->nodes[key] = b->overrides[key];
        b->config->origins[key] = OCTET_FROM_OVERRIDE;
    }
}

/* Python's bool(value) of the key as YAML and overrides leave it; the environment does not count.
 */
static bool is_truthy(const struct oct_yaml *node)
{
    switch (node->kind) {
    case OCT_YAML_NULL:
        return false;
    case OCT_YAML_BOOL:
        return node->boolean;
    case OCT_YAML_INT:
    case OCT_YAML_FLOAT:
        return node->number != 0.0;
    case OCT_YAML_TEXT:
        return *node->text;
    default:
        return node->count > 0;
    }
}

/* M_KEY -> the key, when MaxText would look it up: in capitals, and in the merged config by then.
 */
static enum oct_key environment_key(const struct build *b, const char *name)
{
    char lower[FIELD_SIZE];
    size_t length = strlen(name);

    if (strncmp(name, "M_", 2) || length - 2 >= sizeof lower)
        return OCT_KEY_COUNT;
    for (size_t i = 2; i <= length; i++) {
        if (name[i] >= 'a' && name[i] <= 'z')
            return OCT_KEY_COUNT;
        bool capital = name[i] >= 'A' && name[i] <= 'Z';
        lower[i - 2] = capital ? (char)(name[i] - 'A' + 'a') : name[i];
    }
    enum oct_key key = oct_key_find(lower);
    if (key < OCT_KEY_COUNT && !oct_keys[key].in_yml && !b->nodes[key])
        return OCT_KEY_COUNT;
    return key;
}

/* Python's str2bool, int() or float() by the type of what is there so far; a text is taken as it
 * is. */
static bool environment_value(enum oct_yaml_kind raw, const char *text, struct oct_yaml *node)
{
    static const char *const yes[] = {"y", "yes", "t", "true", "1"};
    static const char *const no[] = {"n", "no", "f", "false", "0"};

    node->text = text;
    node->kind = raw;
    if (raw == OCT_YAML_TEXT)
        return true;
    if (raw == OCT_YAML_INT) {
        node->number = 0.0;
        if (strchr(text, '.') || !oct_text_to_int(text, &node->integer))
            return false;
        node->number = (double)node->integer;
        return true;
    }
    if (raw == OCT_YAML_FLOAT)
        return oct_text_to_number(text, &node->number);
    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++) {
        node->boolean = !strcasecmp(text, yes[i]);
        if (node->boolean || !strcasecmp(text, no[i]))
            return true;
    }
    return false;
}

static enum octet_status refuse_environment(struct build *b, const struct octet_pair *pair,
                                            enum oct_key key, const char *why)
{
    char shown[OCT_SHOWN_SIZE];

    (void)octet_fail(b->err, OCTET_INVALID_ARGUMENT, NULL, "'%s' for key '%s': %s",
                     oct_shown(pair->value, shown), oct_keys[key].name, why);
    (void)within(b, "environment", pair->key);
    return OCTET_INVALID_ARGUMENT;
}

static enum octet_status apply_variable(struct build *b, const struct octet_pair *pair)
{
    enum oct_key key = pair->key && pair->value ? environment_key(b, pair->key) : OCT_KEY_COUNT;

    if (key >= OCT_KEY_COUNT)
        return OCTET_OK;
    if (b->overrides[key] || (key == OCT_KEY_model_name && b->model_named))
        return refuse_environment(b, pair, key,
                                  "the key is given as an argument too; MaxText takes one of them");
    enum oct_yaml_kind raw =
        b->nodes[key] ? b->nodes[key]->kind : (enum oct_yaml_kind)oct_keys[key].value.raw;
    if (raw == OCT_YAML_NULL || raw == OCT_YAML_LIST || raw == OCT_YAML_MAP)
        return refuse_environment(
            b, pair, key,
            "a key that holds none, a list or a mapping cannot be set from the "
            "environment");
    struct oct_yaml *node = OCTET_NEW(b->arena, struct oct_yaml);
    char *copy = octet_arena_copy(b->arena, pair->value, strlen(pair->value));
    if (!node || !copy)
        return no_memory(b);
    if (!oct_is_utf8(copy))
        return refuse_environment(b, pair, key, "the value is not UTF-8");
    if (!environment_value(raw, copy, node))
        return refuse_environment(b, pair, key,
                                  raw == OCT_YAML_BOOL  ? "expected true or false"
                                  : raw == OCT_YAML_INT ? "expected a whole number"
                                                        : "expected a number");
    b->nodes[key] = node;
    b->config->origins[key] = OCTET_FROM_ENVIRONMENT;
    return OCTET_OK;
}

static enum octet_status apply_environment(struct build *b)
{
    enum octet_status status = OCTET_OK;

    for (size_t i = 0; i < b->input->environment_count && !status; i++)
        status = apply_variable(b, &b->input->environment[i]);
    return status;
}

/* Would MaxText ask for override_model_config=true? An equal value is no conflict, but a variable
 * is. */
static bool overrides_model(const struct build *b, size_t key)
{
    if (!b->model[key] || b->override_model_config || b->nodes[key] == b->model[key])
        return false;
    return b->config->origins[key] == OCTET_FROM_ENVIRONMENT ||
           !oct_yaml_equal(b->nodes[key], b->model[key]);
}

static const char *origin_name(enum octet_config_origin origin)
{
    static const char *const names[] = {"default", "yaml", "yaml", "environment", "overrides"};

    return names[origin];
}

static enum octet_status convert(struct build *b, enum oct_key key)
{
    enum octet_config_origin origin = (enum octet_config_origin)b->config->origins[key];
    char field[FIELD_SIZE];

    b->config->overrides_model[key] = overrides_model(b, key);
    enum octet_status status =
        oct_value_convert(b->arena, key, b->nodes[key], &b->config->values[key], b->err);
    if (status != OCTET_INVALID_ARGUMENT)
        return status;
    snprintf(field, sizeof field, "%s", oct_keys[key].name);
    if (origin == OCTET_FROM_ENVIRONMENT) {
        field[0] = 'M';
        field[1] = '_';
        snprintf(field + 2, sizeof field - 2, "%s", oct_keys[key].name);
        for (char *p = field; *p; p++)
            *p = *p >= 'a' && *p <= 'z' ? (char)(*p - 'a' + 'A') : *p;
    }
    (void)within(b, origin_name(origin), field);
    return status;
}

static enum octet_status convert_all(struct build *b)
{
    enum octet_status status = OCTET_OK;

    for (size_t key = 0; key < OCT_KEY_COUNT && !status; key++) {
        b->config->values[key] = oct_keys[key].value;
        if (b->nodes[key])
            status = convert(b, (enum oct_key)key);
        if (oct_keys[key].effect == OCT_DERIVED) /* checked, then dropped: derive.c has the word */
            b->config->values[key] = oct_keys[key].value;
    }
    return status;
}

/* The name as chosen, unless the environment replaced it: then the name alone changes, as in
 * MaxText. */
static enum octet_status set_model_name(struct build *b)
{
    struct oct_value *value = &b->config->values[OCT_KEY_model_name];

    if (b->config->origins[OCT_KEY_model_name] != OCTET_FROM_ENVIRONMENT) {
        char *copy = octet_arena_copy(b->arena, b->model_name, strlen(b->model_name));
        if (!copy)
            return no_memory(b);
        *value = (struct oct_value){.raw = OCT_YAML_TEXT, .as.text = copy};
        if (b->input->name && *b->input->name && !b->overrides[OCT_KEY_model_name])
            b->config->origins[OCT_KEY_model_name] = OCTET_FROM_MODEL;
        return OCTET_OK;
    }
    if (strcmp(value->as.text, "default") && !oct_known_model_find(value->as.text))
        return model_missing(b, value->as.text, "environment[M_MODEL_NAME]");
    return OCTET_OK;
}

static enum octet_status build_layers(struct build *b)
{
    enum octet_status status = read_overrides(b);

    if (!status)
        status = read_yaml(b);
    if (!status)
        status = choose_model(b);
    if (!status)
        status = apply_model(b);
    if (!status)
        status = apply_yaml(b);
    if (status)
        return status;
    apply_overrides(b);
    const struct oct_yaml *override = b->nodes[OCT_KEY_override_model_config];
    b->override_model_config = override && is_truthy(override);
    return apply_environment(b);
}

enum octet_status octet_config_build(const octet_context *context, octet_arena *arena,
                                     const struct octet_config_input *input,
                                     const octet_config **out, struct octet_error *err)
{
    struct build *b = OCTET_NEW(arena, struct build);
    struct octet_config *config = OCTET_NEW(arena, struct octet_config);

    if (!b || !config)
        return octet_arena_exhausted(arena, err);
    *b = (struct build){
        .context = context, .arena = arena, .input = input, .err = err, .config = config};
    enum octet_status status = build_layers(b);
    if (!status)
        status = convert_all(b);
    if (!status)
        status = set_model_name(b);
    if (!status)
        status = oct_config_derive(config, err);
    if (!status)
        status = oct_config_check(config, err);
    if (!status)
        *out = config;
    return status;
}
