/* Fuzz target of YAML: any bytes as a document, and as a config.
 *
 * Holds: reading fails only with the two statuses it promises and a sentence of printable ASCII; a
 * tree is no larger than its limit; a tree printed as flow YAML is read back as an equal one; a
 * config that was built from YAML is built again from the settings that it prints, and prints the
 * same. The first byte selects: bit 0 a config rather than a bare document, bit 1 on top of a known
 * model. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/value.h"
#include "octet/octet.h"

enum { MEMORY_BYTES_MAX = 64 * 1024 * 1024, YAML_BYTES_MAX = 1 << 16, KEY_LENGTH_MAX = 1000 };
enum { CONFIG = 1, MODEL = 2 };

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
    require(status == OCTET_INVALID_ARGUMENT || status == OCTET_RESOURCE_EXHAUSTED ||
                status == OCTET_NOT_FOUND,
            "the status is one that is promised");
    require(status == err->status, "the error has the status that was returned");
    require(err->text[0] != '\0', "an error says something");
    for (const char *p = err->field; *p; p++)
        require(*p >= ' ' && *p <= '~', "a field is printable");
}

/* Counts the nodes; *prints: whether flow YAML can say this tree. */
static size_t walk(const struct oct_yaml *node, int depth, bool *prints)
{
    size_t count = 1, items = 0;

    require(depth <= OCT_YAML_DEPTH_MAX, "no tree is deeper than its limit");
    require(node->text != NULL, "every node has a text");
    if (node->kind == OCT_YAML_FLOAT && isnan(node->number))
        *prints = false; /* it never equals itself */
    for (const struct oct_yaml *item = node->first; item; item = item->next, items++) {
        require((item->key != NULL) == (node->kind == OCT_YAML_MAP), "items of maps have keys");
        if (item->key && strlen(item->key) > KEY_LENGTH_MAX)
            *prints = false; /* YAML's own limit for keys in one line */
        count += walk(item, depth + 1, prints);
    }
    require(items == node->count, "a list or map counts its items");
    return count;
}

static void check_document(octet_arena *arena, const char *text, size_t size)
{
    const struct oct_yaml *tree = NULL, *again = NULL;
    struct octet_error err = {0};
    bool prints = true;
    enum octet_status status = oct_yaml_parse(arena, text, size, YAML_BYTES_MAX, &tree, &err);

    if (status) {
        require(err.field[0] == '\0', "the caller names the field");
        check_status(status, &err);
        return;
    }
    require(walk(tree, 0, &prints) <= OCT_YAML_NODES_MAX, "no tree is larger than its limit");
    if (tree->kind == OCT_YAML_TEXT || !prints)
        return;
    const char *flow = oct_yaml_flow(arena, tree);
    require(flow != NULL, "there is memory for the printed tree");
    status = oct_yaml_parse(arena, flow, strlen(flow), SIZE_MAX, &again, &err);
    require(status == OCTET_OK, "a printed tree is YAML");
    require(oct_yaml_equal(tree, again), "a printed tree is read back as it was");
}

static const octet_config *build(octet_context *context, octet_arena *arena,
                                 const struct octet_config_input *input)
{
    const octet_config *config = NULL;
    struct octet_error err = {0};
    enum octet_status status = octet_config_build(context, arena, input, &config, &err);

    if (status)
        check_status(status, &err);
    require((status == OCTET_OK) == (config != NULL),
            "a config is there exactly when it was built");
    return config;
}

/* All settings as overrides, but for those that MaxText derives or that print what they stand for.
 */
static size_t settings_as_overrides(const octet_config *config, octet_arena *arena,
                                    struct octet_pair *pairs)
{
    size_t count = 0;

    for (size_t i = 0; i < octet_config_setting_count(config); i++) {
        struct octet_setting setting;
        struct octet_error err;
        require(octet_config_setting(config, arena, i, &setting, &err) == OCTET_OK,
                "a setting is printed");
        if (setting.origin == OCTET_FROM_YAML && oct_keys[i].effect != OCT_DERIVED)
            pairs[count++] = (struct octet_pair){setting.key, setting.text};
    }
    return count;
}

static void check_config(octet_context *context, octet_arena *arena,
                         const struct octet_config_input *input)
{
    struct octet_pair *pairs = OCTET_NEW_ARRAY(arena, OCT_KEY_COUNT, struct octet_pair);
    const octet_config *config = build(context, arena, input);

    if (!config || !pairs)
        return;
    struct octet_config_input again = {.name = octet_config_model_name(config), .overrides = pairs};
    again.override_count = settings_as_overrides(config, arena, pairs);
    const octet_config *same = build(context, arena, &again);
    require(same != NULL, "printed settings build a config");
    for (size_t i = 0; i < OCT_KEY_COUNT; i++) {
        struct octet_setting before, after;
        struct octet_error err;
        require(!octet_config_setting(config, arena, i, &before, &err) &&
                    !octet_config_setting(same, arena, i, &after, &err),
                "a setting is printed");
        if (strcmp(before.text, after.text))
            fprintf(stderr, "%s: %s, then %s\n", before.key, before.text, after.text);
        require(!strcmp(before.text, after.text), "printed settings are read back as they were");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    const struct octet_limits limits = {.yaml_bytes = YAML_BYTES_MAX};
    struct octet_error err;
    octet_context *context;

    if (size == 0)
        return 0;
    octet_arena *arena = octet_arena_create(MEMORY_BYTES_MAX);
    require(arena != NULL, "there is memory for an arena");
    require(octet_context_create(&limits, &context, &err) == OCTET_OK, "a context is made");
    const char *text = (const char *)bytes + 1;
    const struct octet_config_input input = {
        .name = bytes[0] & MODEL ? "deepseek3-tiny" : NULL, .yaml = text, .yaml_length = size - 1};
    if (bytes[0] & CONFIG)
        check_config(context, arena, &input);
    else
        check_document(arena, text, size - 1);
    octet_context_destroy(context);
    octet_arena_destroy(arena);
    return 0;
}
