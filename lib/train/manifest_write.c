/* Writing manifests; see manifest.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "octet/context.h"
#include "rules/fields.h"
#include "train/manifest.h"

/* The character at `at`, or -1; *bytes: its length. Overlong forms and surrogates are none. */
static int32_t utf8(const unsigned char *at, int *bytes)
{
    static const int32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    int n = at[0] < 0x80       ? 1
            : at[0] >> 5 == 6  ? 2
            : at[0] >> 4 == 14 ? 3
            : at[0] >> 3 == 30 ? 4
                               : 0;
    int32_t c = n == 1 ? at[0] : n ? at[0] & (0x7f >> n) : -1;

    for (int i = 1; i < n; i++) {
        if (at[i] >> 6 != 2)
            return -1;
        c = c << 6 | (at[i] & 0x3f);
    }
    *bytes = n;
    return n && c >= least[n] && c <= 0x10ffff && !(c >= 0xd800 && c <= 0xdfff) ? c : -1;
}

/* What JSON or YAML would take for more than a character: quotes, controls, YAML's line ends. */
static bool is_escaped(int32_t c)
{
    return c < 0x20 || c == '"' || c == '\\' || (c >= 0x7f && c < 0xa0) || c == 0x2028 ||
           c == 0x2029 || c == 0xfeff || c == 0xfffe || c == 0xffff;
}

static bool put_text(FILE *to, const char *text)
{
    int bytes;

    if (!text)
        return fputs("null", to) >= 0;
    fputc('"', to);
    for (const unsigned char *at = (const unsigned char *)text; *at; at += bytes) {
        int32_t c = utf8(at, &bytes);
        if (c < 0)
            return false;
        if (is_escaped(c))
            fprintf(to, "\\u%04x", (unsigned)c);
        else
            fwrite(at, 1, (size_t)bytes, to);
    }
    fputc('"', to);
    return true;
}

/* ---- Into memory ---- */

struct memory {
    FILE *file;
    char *text;
    size_t length;
};

static enum octet_status memory_begin(struct memory *m, struct octet_error *err)
{
    *m = (struct memory){.text = NULL};
    m->file = open_memstream(&m->text, &m->length);
    return m->file ? OCTET_OK : octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
}

/* The text, in the arena. status: of what was written. */
static enum octet_status memory_end(struct memory *m, enum octet_status status, octet_arena *arena,
                                    const char **text, struct octet_error *err)
{
    bool written = !ferror(m->file);

    if (fclose(m->file) != 0 || !written) {
        free(m->text);
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
    }
    if (status == OCTET_OK) {
        *text = octet_arena_copy(arena, m->text, m->length);
        if (!*text)
            status = octet_arena_exhausted(arena, err);
    }
    free(m->text);
    return status;
}

static enum octet_status refuse(const char *field, struct octet_error *err)
{
    return octet_fail(err, OCTET_INVALID_ARGUMENT, field, "is not UTF-8");
}

/* ---- Rules ---- */

static bool put_axes(FILE *to, const char *name, const int32_t *axes, size_t count)
{
    fprintf(to, ", \"%s\": [", name);
    for (size_t i = 0; i < count; i++)
        fprintf(to, "%s%" PRId32, i ? ", " : "", axes[i]);
    return fputs("]", to) >= 0;
}

static bool put_rule(FILE *to, const struct octet_rule *rule)
{
    bool good = true;

    fputs("{\"op_names\": [", to);
    for (size_t i = 0; i < rule->op_name_count; i++) {
        fputs(i ? ", " : "", to);
        good = put_text(to, rule->op_names[i]) && good;
    }
    fputs("]", to);
#define PUT_TEXT(name, kind)                                                                       \
    if (rule->name[0]) {                                                                           \
        fputs(", \"" #name "\": ", to);                                                            \
        good = put_text(to, rule->name) && good;                                                   \
    }
    OCT_RULE_TEXTS(PUT_TEXT)
#undef PUT_TEXT
#define PUT_BOOL(name) fprintf(to, ", \"" #name "\": %s", rule->name ? "true" : "false");
    OCT_RULE_BOOLS(PUT_BOOL)
#undef PUT_BOOL
#define PUT_AXES(name, count, low, high) put_axes(to, #name, rule->name, rule->count);
    OCT_RULE_AXES(PUT_AXES)
#undef PUT_AXES
    const char *joint = ", \"sparsity\": {";
#define PUT_SPARSITY(name)                                                                         \
    fprintf(to, "%s\"" #name "\": %" PRId32, joint, rule->sparsity.name);                          \
    joint = ", ";
    OCT_RULE_SPARSITY(PUT_SPARSITY)
#undef PUT_SPARSITY
    fputs("}, \"additional_qt_config\": {", to);
    for (size_t i = 0; i < rule->additional_qt_config_count; i++) {
        fputs(i ? ", " : "", to);
        good = put_text(to, rule->additional_qt_config[i].key) && good;
        fputs(": ", to);
        good = put_text(to, rule->additional_qt_config[i].value) && good;
    }
    fputs("}}", to);
    return good;
}

enum octet_status oct_rules_write(const octet_rules *rules, octet_arena *arena, const char **text,
                                  struct octet_error *err)
{
    struct memory m;
    enum octet_status status = memory_begin(&m, err);

    if (status != OCTET_OK)
        return status;
    fputs("{\"rules\": [", m.file);
    for (size_t i = 0; i < octet_rules_count(rules); i++) {
        fputs(i ? ",\n " : "", m.file);
        if (!put_rule(m.file, octet_rules_get(rules, i)))
            status = refuse("rules", err);
    }
    fputs("]}", m.file);
    return memory_end(&m, status, arena, text, err);
}

/* ---- The manifest ---- */

static enum octet_status put_model(FILE *to, const struct oct_manifest *m, struct octet_error *err)
{
    bool good = true;

    fputs(" \"model\": {\"model_name\": ", to);
    good = put_text(to, m->model_name) && good;
    fputs(", \"name\": ", to);
    good = put_text(to, m->input.name) && good;
    fputs(",\n  \"yaml\": ", to);
    good = put_text(to, m->input.yaml) && good;
    fputs(",\n  \"overrides\": [", to);
    for (size_t i = 0; i < m->input.override_count; i++) {
        fputs(i ? ", [" : "[", to);
        good = put_text(to, m->input.overrides[i].key) && good;
        fputs(", ", to);
        good = put_text(to, m->input.overrides[i].value) && good;
        fputs("]", to);
    }
    fputs("]},\n \"rules\": ", to);
    good = put_text(to, m->rules) && good;
    return good ? OCTET_OK : refuse("model", err);
}

static enum octet_status put_manifest(FILE *to, const struct oct_manifest *m,
                                      struct octet_error *err)
{
    fprintf(to,
            "{\n \"format\": \"octet-checkpoint\",\n \"version\": %d,\n \"octet\": \"%s\",\n"
            " \"mode\": \"%s\",\n \"accumulation\": \"%s\",\n \"step\": %" PRId64
            ",\n \"accumulated\": %" PRId64 ",\n \"saved_at\": %" PRId64 ",\n",
            OCT_MANIFEST_VERSION, octet_version(), m->mode, m->accumulation, m->step,
            m->accumulated, m->saved_at);
    enum octet_status status = put_model(to, m, err);
    if (status != OCTET_OK)
        return status;
    fputs(",\n \"tensors\": {\"file\": ", to);
    put_text(to, m->file);
    fprintf(to, ", \"bytes\": %" PRIu64 ", \"xxh3_128\": \"%s\"},\n \"note\": ", m->bytes,
            m->digest);
    return put_text(to, m->note) ? OCTET_OK : refuse("note", err);
}

enum octet_status oct_manifest_write(const struct oct_manifest *manifest, octet_arena *arena,
                                     const char **text, size_t *length, struct octet_error *err)
{
    struct memory m;
    const char *body;
    enum octet_status status = memory_begin(&m, err);

    if (status != OCTET_OK)
        return status;
    status = put_manifest(m.file, manifest, err);
    status = memory_end(&m, status, arena, &body, err);
    if (status != OCTET_OK)
        return status;
    *text = octet_arena_format(arena, "%s,\n \"xxh3_64\": \"%016" PRIx64 "\"\n}\n", body,
                               XXH3_64bits(body, strlen(body)));
    if (!*text)
        return octet_arena_exhausted(arena, err);
    *length = strlen(*text);
    if (*length > OCT_MANIFEST_BYTES_MAX)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "note",
                          "makes a manifest of %zu bytes; at most %d are read", *length,
                          OCT_MANIFEST_BYTES_MAX);
    return OCTET_OK;
}
