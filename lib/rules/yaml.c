/* A rules file -> a set of rules.
 *
 * For: "rules: [{module_path: 'decoder/.*', op_names: [dot_general], weight_qtype: int8}]".
 * Not for: what the fields may say (fields.c); here they only get their YAML types checked.
 * Decision: every message names the line, also those of the checks that come after reading: their
 * field
 * ("rules[2].act_qtype") leads back to the line where it stands. */
#include "files/yaml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rules/fields.h"
#include "rules/rules_private.h"

struct file {
    octet_arena *scratch;
    struct octet_error *err;
};

static enum octet_status at_line(enum octet_status status, int line, struct octet_error *err)
{
    char prefix[32];

    if (status && err && status != OCTET_RESOURCE_EXHAUSTED) {
        size_t length = (size_t)snprintf(prefix, sizeof prefix, "line %d: ", line);
        size_t kept = strnlen(err->text, sizeof err->text - 1 - length);
        memmove(err->text + length, err->text, kept);
        memcpy(err->text, prefix, length);
        err->text[length + kept] = '\0';
    }
    return status;
}

static enum octet_status refuse_kind(struct file *file, const struct oct_yaml *node,
                                     const char *field, const char *expected)
{
    enum octet_status status =
        octet_fail(file->err, OCTET_INVALID_ARGUMENT, field, "%s where %s is expected",
                   oct_yaml_kind_name(node->kind), expected);

    return at_line(status, node->line, file->err);
}

static enum octet_status exhausted(struct file *file)
{
    return octet_arena_exhausted(file->scratch, file->err);
}

/* ---- values ---- */

static enum octet_status read_text(struct file *file, const struct oct_yaml *node,
                                   const char *field, enum oct_field_kind kind, const char **out)
{
    bool number = node->kind == OCT_YAML_INT || node->kind == OCT_YAML_FLOAT;

    if (node->kind == OCT_YAML_NULL)
        return OCTET_OK;
    if (node->kind != OCT_YAML_TEXT && !(kind == OCT_FIELD_TILE && number))
        return refuse_kind(file, node, field,
                           kind == OCT_FIELD_TILE ? "a tile size (128, 1/4 or 0.25)"
                                                  : "a text (write it in quotes)");
    *out = node->text;
    return OCTET_OK;
}

static enum octet_status read_bool(struct file *file, const struct oct_yaml *node,
                                   const char *field, bool *out)
{
    if (node->kind == OCT_YAML_NULL)
        return OCTET_OK;
    if (node->kind != OCT_YAML_BOOL)
        return refuse_kind(file, node, field, "true or false");
    *out = node->boolean;
    return OCTET_OK;
}

static enum octet_status read_int(struct file *file, const struct oct_yaml *node, const char *field,
                                  int32_t *out)
{
    if (node->kind != OCT_YAML_INT)
        return refuse_kind(file, node, field, "a whole number");
    if (node->integer < INT32_MIN || node->integer > INT32_MAX)
        return at_line(octet_fail(file->err, OCTET_INVALID_ARGUMENT, field,
                                  "%.40s is beyond 32 bits", node->text),
                       node->line, file->err);
    *out = (int32_t)node->integer;
    return OCTET_OK;
}

static enum octet_status read_axes(struct file *file, const struct oct_yaml *node,
                                   const char *field, const int32_t **out, size_t *count)
{
    if (node->kind == OCT_YAML_NULL)
        return OCTET_OK;
    if (node->kind != OCT_YAML_LIST)
        return refuse_kind(file, node, field, "a list of axes such as [0]");
    if (!node->count)
        return at_line(octet_fail(file->err, OCTET_INVALID_ARGUMENT, field,
                                  "an empty list of axes cannot be told from the default [0]; "
                                  "leave it out"),
                       node->line, file->err);
    int32_t *axes = OCTET_NEW_ARRAY(file->scratch, node->count, int32_t);
    if (!axes)
        return exhausted(file);
    *out = axes;
    for (const struct oct_yaml *item = node->first; item; item = item->next) {
        enum octet_status status = read_int(file, item, field, &axes[(*count)++]);
        if (status)
            return status;
    }
    return OCTET_OK;
}

static enum octet_status read_ops(struct file *file, const struct oct_yaml *node,
                                  struct octet_rule *rule)
{
    if (node->kind == OCT_YAML_NULL)
        return OCTET_OK;
    if (node->kind != OCT_YAML_LIST)
        return refuse_kind(file, node, "op_names", "a list of ops such as [dot_general]");
    const char **names = OCTET_NEW_ARRAY(file->scratch, node->count, const char *);
    if (!names)
        return exhausted(file);
    rule->op_names = names;
    for (const struct oct_yaml *item = node->first; item; item = item->next) {
        if (item->kind != OCT_YAML_TEXT)
            return refuse_kind(file, item, "op_names", "an op's name");
        names[rule->op_name_count++] = item->text;
    }
    return OCTET_OK;
}

static enum octet_status read_sparsity(struct file *file, const struct oct_yaml *node,
                                       struct octet_sparsity *out)
{
    static const char *const names[] = {
#define NAME(name) #name,
        OCT_RULE_SPARSITY(NAME)
#undef NAME
    };

    if (node->kind == OCT_YAML_NULL)
        return OCTET_OK;
    if (node->kind != OCT_YAML_MAP)
        return refuse_kind(file, node, "sparsity", "a mapping such as {n: 2, m: 4}");
    for (const struct oct_yaml *item = node->first; item; item = item->next) {
        enum octet_status status = OCTET_NOT_FOUND;
#define NUMBER(name)                                                                               \
    if (!strcmp(item->key, #name))                                                                 \
        status = read_int(file, item, "sparsity." #name, &out->name);
        OCT_RULE_SPARSITY(NUMBER)
#undef NUMBER
        if (status == OCTET_NOT_FOUND)
            return at_line(
                oct_field_unknown("sparsity", "key of a sparsity", item->key, names, 4, file->err),
                item->line, file->err);
        if (status)
            return status;
    }
    return OCTET_OK;
}

static enum octet_status read_additional(struct file *file, const struct oct_yaml *node,
                                         struct octet_rule *rule)
{
    if (node->kind == OCT_YAML_NULL)
        return OCTET_OK;
    if (node->kind != OCT_YAML_MAP)
        return refuse_kind(file, node, "additional_qt_config", "a mapping");
    struct octet_pair *pairs = OCTET_NEW_ARRAY(file->scratch, node->count, struct octet_pair);
    if (!pairs)
        return exhausted(file);
    rule->additional_qt_config = pairs;
    for (const struct oct_yaml *item = node->first; item; item = item->next) {
        if (item->kind == OCT_YAML_LIST || item->kind == OCT_YAML_MAP)
            return refuse_kind(file, item, "additional_qt_config", "one value for each key");
        const char *value = item->kind == OCT_YAML_NULL   ? ""
                            : item->kind != OCT_YAML_BOOL ? item->text
                            : item->boolean               ? "true"
                                                          : "false";
        pairs[rule->additional_qt_config_count++] = (struct octet_pair){item->key, value};
    }
    return OCTET_OK;
}

/* ---- rules ---- */

static enum octet_status refuse_key(struct file *file, const struct oct_yaml *item)
{
    static const char *const names[] = {
#define TEXT(name, kind) #name,
#define BOOL(name) #name,
#define AXES(name, count, least, most) #name,
        OCT_RULE_TEXTS(TEXT) OCT_RULE_BOOLS(BOOL) OCT_RULE_AXES(AXES)
#undef TEXT
#undef BOOL
#undef AXES
            "op_names",
        "sparsity",
        "additional_qt_config",
    };

    return at_line(oct_field_unknown(NULL, "key of a rule", item->key, names,
                                     sizeof names / sizeof names[0], file->err),
                   item->line, file->err);
}

static enum octet_status read_field(struct file *file, const struct oct_yaml *item,
                                    struct octet_rule *rule)
{
#define TEXT(name, kind)                                                                           \
    if (!strcmp(item->key, #name))                                                                 \
        return read_text(file, item, #name, OCT_FIELD_##kind, &rule->name);
    OCT_RULE_TEXTS(TEXT)
#undef TEXT
#define BOOL(name)                                                                                 \
    if (!strcmp(item->key, #name))                                                                 \
        return read_bool(file, item, #name, &rule->name);
    OCT_RULE_BOOLS(BOOL)
#undef BOOL
#define AXES(name, count, least, most)                                                             \
    if (!strcmp(item->key, #name))                                                                 \
        return read_axes(file, item, #name, &rule->name, &rule->count);
    OCT_RULE_AXES(AXES)
#undef AXES
    if (!strcmp(item->key, "op_names"))
        return read_ops(file, item, rule);
    if (!strcmp(item->key, "sparsity"))
        return read_sparsity(file, item, &rule->sparsity);
    if (!strcmp(item->key, "additional_qt_config"))
        return read_additional(file, item, rule);
    return refuse_key(file, item);
}

static enum octet_status read_rules(struct file *file, const struct oct_yaml *list,
                                    struct octet_rule *rules)
{
    size_t i = 0;

    for (const struct oct_yaml *node = list->first; node; node = node->next, i++) {
        enum octet_status status = OCTET_OK;
        if (node->kind != OCT_YAML_MAP)
            status = refuse_kind(file, node, NULL, "a rule, {module_path: ..., ...},");
        for (const struct oct_yaml *item = node->first; item && !status; item = item->next)
            status = read_field(file, item, &rules[i]);
        if (status) {
            char field[32];
            snprintf(field, sizeof field, "rules[%zu]", i);
            octet_error_within(file->err, field);
            return status;
        }
    }
    return OCTET_OK;
}

/* The list under the one key that a rules file has. */
static enum octet_status find_list(struct file *file, const struct oct_yaml *root,
                                   const struct oct_yaml **list)
{
    static const char *const names[] = {"rules"};

    if (root->kind != OCT_YAML_MAP)
        return refuse_kind(file, root, NULL, "a mapping, rules: [...],");
    for (const struct oct_yaml *item = root->first; item; item = item->next)
        if (strcmp(item->key, "rules"))
            return at_line(
                oct_field_unknown(NULL, "key of a rules file", item->key, names, 1, file->err),
                item->line, file->err);
    *list = oct_yaml_get(root, "rules");
    if (!*list)
        return refuse_kind(file, root, NULL, "the key 'rules'");
    if ((*list)->kind != OCT_YAML_LIST)
        return refuse_kind(file, *list, "rules", "a list of rules");
    return OCTET_OK;
}

/* The line of the field that the checks named: "rules[2].act_qtype", "rules[0].sparsity.n". */
static int line_of(const struct oct_yaml *list, const char *field)
{
    const struct oct_yaml *node = list->first;

    if (strncmp(field, "rules[", 6))
        return list->line;
    char *end;
    for (unsigned long i = strtoul(field + 6, &end, 10); i && node; i--)
        node = node->next;
    if (!node)
        return list->line;
    if (strncmp(end, "].", 2))
        return node->line;
    size_t length = strcspn(end + 2, ".[");
    for (const struct oct_yaml *item = node->first; item; item = item->next)
        if (strlen(item->key) == length && !memcmp(item->key, end + 2, length))
            return item->line;
    return node->line;
}

static enum octet_status read_file(struct file *file, const octet_context *context,
                                   const char *yaml, size_t length, const struct oct_yaml **list,
                                   struct octet_rule **rules)
{
    const struct octet_limits *limits = octet_context_limits(context);
    const struct oct_yaml *root;
    enum octet_status status =
        oct_yaml_parse(file->scratch, yaml, length, limits->yaml_bytes, &root, file->err);

    for (char *p = file->err->text; status && *p; p++) /* a key is quoted as it is */
        *p = (unsigned char)*p < ' ' ? ' ' : *p;
    if (!status)
        status = find_list(file, root, list);
    if (status)
        return status;
    if ((*list)->count > limits->rules)
        return octet_fail(file->err, OCTET_INVALID_ARGUMENT, "rules",
                          "%zu rules; at most %u are allowed", (*list)->count, limits->rules);
    *rules = OCTET_NEW_ARRAY(file->scratch, (*list)->count, struct octet_rule);
    return *rules ? read_rules(file, *list, *rules) : exhausted(file);
}

enum octet_status oct_rules_parse_in(const octet_context *context, octet_arena *take,
                                     octet_arena *scratch, octet_arena *tree, const char *yaml,
                                     size_t length, octet_rules **out, struct octet_error *err)
{
    struct octet_error local;
    struct file file = {.scratch = tree, .err = err ? err : &local};
    const struct oct_yaml *list = NULL;
    struct octet_rule *rules = NULL;
    enum octet_status status = read_file(&file, context, yaml, length, &list, &rules);

    if (status) {
        octet_arena_destroy(take);
        return status;
    }
    status = oct_rules_create_in(context, take, scratch, rules, list->count, out, file.err);
    return status ? at_line(status, line_of(list, file.err->field), file.err) : OCTET_OK;
}

enum octet_status octet_rules_parse(const octet_context *context, const char *yaml, size_t length,
                                    octet_rules **out, struct octet_error *err)
{
    uint64_t budget = octet_context_limits(context)->plan_memory_bytes;
    octet_arena *arena = octet_arena_create(budget), *scratch = octet_arena_create(budget);
    octet_arena *tree = octet_arena_create(budget);
    enum octet_status status;

    if (arena && scratch && tree) {
        status = oct_rules_parse_in(context, arena, scratch, tree, yaml, length, out, err);
    } else {
        octet_arena_destroy(arena);
        status = octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory: rules");
    }
    octet_arena_destroy(tree);
    octet_arena_destroy(scratch);
    return status;
}
