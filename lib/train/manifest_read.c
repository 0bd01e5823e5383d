/* Reading manifests; see manifest.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "files/yaml.h"
#include "train/manifest.h"

/* A manifest under way. */
struct reading {
    const char *path;
    octet_arena *arena;
    struct octet_error *err;
    enum octet_status status; /* the first failure */
};

static void lose(struct reading *r, const char *what)
{
    if (r->status == OCTET_OK)
        r->status = octet_fail(r->err, OCTET_DATA_LOSS, NULL, "checkpoint '%s' is damaged: %s",
                               r->path, what);
}

static const struct oct_yaml *get(struct reading *r, const struct oct_yaml *map, const char *key,
                                  enum oct_yaml_kind kind, bool or_null)
{
    static const struct oct_yaml none = {.kind = OCT_YAML_NULL, .text = ""};
    const struct oct_yaml *node = map->kind == OCT_YAML_MAP ? oct_yaml_get(map, key) : NULL;

    if (node && (node->kind == kind || (or_null && node->kind == OCT_YAML_NULL)))
        return node;
    char what[96];
    snprintf(what, sizeof what, "it says no %s", key);
    lose(r, what);
    return &none;
}

static const char *text_of(struct reading *r, const struct oct_yaml *map, const char *key)
{
    return get(r, map, key, OCT_YAML_TEXT, false)->text;
}

static const char *text_or_null(struct reading *r, const struct oct_yaml *map, const char *key)
{
    const struct oct_yaml *node = get(r, map, key, OCT_YAML_TEXT, true);

    return node->kind == OCT_YAML_TEXT ? node->text : NULL;
}

static int64_t number_of(struct reading *r, const struct oct_yaml *map, const char *key)
{
    const struct oct_yaml *node = get(r, map, key, OCT_YAML_INT, false);

    if (node->integer < 0 || node->too_large)
        lose(r, "a number is negative or too large");
    return node->integer;
}

static void read_overrides(struct reading *r, const struct oct_yaml *list,
                           struct octet_config_input *out)
{
    struct octet_pair *pairs = OCTET_NEW_ARRAY(r->arena, list->count, struct octet_pair);

    if (!pairs) {
        r->status = octet_arena_exhausted(r->arena, r->err);
        return;
    }
    for (const struct oct_yaml *item = list->first; item; item = item->next) {
        if (item->kind != OCT_YAML_LIST || item->count != 2 || item->first->kind != OCT_YAML_TEXT ||
            item->first->next->kind != OCT_YAML_TEXT) {
            lose(r, "an override is no pair of texts");
            return;
        }
        pairs[out->override_count++] =
            (struct octet_pair){item->first->text, item->first->next->text};
    }
    out->overrides = pairs;
}

static void read_all(struct reading *r, const struct oct_yaml *root, struct oct_manifest *out)
{
    const struct oct_yaml *model = get(r, root, "model", OCT_YAML_MAP, false);
    const struct oct_yaml *tensors = get(r, root, "tensors", OCT_YAML_MAP, false);

    out->mode = text_of(r, root, "mode");
    out->accumulation = text_of(r, root, "accumulation");
    out->step = number_of(r, root, "step");
    out->accumulated = number_of(r, root, "accumulated");
    out->saved_at = number_of(r, root, "saved_at");
    out->model_name = text_of(r, model, "model_name");
    out->input.name = text_of(r, model, "name");
    out->input.yaml = text_or_null(r, model, "yaml");
    out->input.yaml_length = out->input.yaml ? strlen(out->input.yaml) : 0;
    read_overrides(r, get(r, model, "overrides", OCT_YAML_LIST, false), &out->input);
    out->rules = text_or_null(r, root, "rules");
    out->file = text_of(r, tensors, "file");
    out->bytes = (uint64_t)number_of(r, tensors, "bytes");
    const char *digest = text_of(r, tensors, "xxh3_128");
    out->note = text_or_null(r, root, "note");
    if (strlen(digest) != sizeof out->digest - 1 || strchr(out->file, '/'))
        lose(r, "what it says of the tensor file makes no sense");
    else
        memcpy(out->digest, digest, sizeof out->digest);
}

/* The last field is the hash of all before it. */
static bool hash_fits(const char *text, size_t length)
{
    static const char end[] = ",\n \"xxh3_64\": \"0123456789abcdef\"\n}\n";
    char expected[sizeof end];

    if (length < sizeof end)
        return false;
    size_t body = length - (sizeof end - 1);
    snprintf(expected, sizeof expected, ",\n \"xxh3_64\": \"%016" PRIx64 "\"\n}\n",
             XXH3_64bits(text, body));
    return memcmp(text + body, expected, sizeof end - 1) == 0;
}

enum octet_status oct_manifest_read(const char *path, const char *text, size_t length,
                                    octet_arena *arena, struct oct_manifest *out,
                                    struct octet_error *err)
{
    struct reading r = {path, arena, err, OCTET_OK};
    const struct oct_yaml *root;
    struct octet_error why;

    *out = (struct oct_manifest){.step = 0};
    if (!hash_fits(text, length)) {
        lose(&r, "its manifest does not fit its own checksum");
        return r.status;
    }
    enum octet_status status =
        oct_yaml_parse(arena, text, length, OCT_MANIFEST_BYTES_MAX, &root, &why);
    if (status == OCTET_RESOURCE_EXHAUSTED)
        return octet_fail(err, status, NULL, "%s", why.text);
    if (status != OCTET_OK) {
        lose(&r, why.text);
        return r.status;
    }
    if (strcmp(text_of(&r, root, "format"), "octet-checkpoint") != 0)
        lose(&r, "it is no checkpoint's manifest");
    int64_t version = number_of(&r, root, "version");
    if (r.status == OCTET_OK && version != OCT_MANIFEST_VERSION)
        return octet_fail(err, OCTET_UNIMPLEMENTED, NULL,
                          "checkpoint '%s' has version %" PRId64 "; this program reads version %d",
                          path, version, OCT_MANIFEST_VERSION);
    read_all(&r, root, out);
    return r.status;
}
