/* Conversions as pydantic makes them; see value.h. Messages say what is there, then what was
 * expected. */
#include "models/value.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "files/decimal.h"

static const struct {
    int64_t smallest, largest;
} limits[] = {
#define LIMIT(name, smallest, largest) {smallest, largest},
    OCT_LIMITS(LIMIT)
#undef LIMIT
};

static const char *const kind_names[] = {
    [OCT_KIND_BOOL] = "true or false",   [OCT_KIND_INT] = "a whole number",
    [OCT_KIND_FLOAT] = "a number",       [OCT_KIND_TEXT] = "a text",
    [OCT_KIND_LIST] = "a list of texts", [OCT_KIND_INTS] = "a list of whole numbers",
    [OCT_KIND_MAP] = "a mapping",        [OCT_KIND_ANY] = "a value",
};

const char *oct_shown(const char *text, char buffer[OCT_SHOWN_SIZE])
{
    size_t n = 0;

    for (; text[n] && n < OCT_SHOWN_SIZE - 1; n++)
        buffer[n] = text[n] >= ' ' && text[n] <= '~' ? text[n] : '?';
    if (text[n])
        memcpy(buffer + n - 3, "...", 3);
    buffer[n] = '\0';
    return buffer;
}

/* "'abc' is a text; expected a whole number". */
static enum octet_status refuse_kind(enum oct_key key, const struct oct_yaml *node,
                                     struct octet_error *err)
{
    const struct oct_key_info *info = &oct_keys[key];
    const char *or_none = info->optional ? " or none" : "";
    char shown[OCT_SHOWN_SIZE];

    if (node->kind == OCT_YAML_NULL)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "no value is given; expected %s",
                          kind_names[info->kind]);
    if (node->kind == OCT_YAML_LIST || node->kind == OCT_YAML_MAP)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "%s is given; expected %s%s",
                          oct_yaml_kind_name(node->kind), kind_names[info->kind], or_none);
    return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "'%s' is %s; expected %s%s%s",
                      oct_shown(node->text, shown), oct_yaml_kind_name(node->kind),
                      kind_names[info->kind], or_none,
                      info->kind == OCT_KIND_TEXT ? " (quote it)" : "");
}

static enum octet_status refuse_range(enum oct_key key, const char *value, bool too_large,
                                      struct octet_error *err)
{
    int64_t smallest = limits[oct_keys[key].limit].smallest;
    int64_t largest = limits[oct_keys[key].limit].largest;

    if (largest == INT64_MAX && too_large)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "%s needs more than 64 bits", value);
    if (largest == INT64_MAX)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "%s; expected %" PRId64 " or more",
                          value, smallest);
    return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "%s is outside %s%" PRId64 " to %" PRId64,
                      value, oct_keys[key].limit == OCT_LIMIT_POSITIVE_FRACTION ? "above " : "",
                      smallest, largest);
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

bool oct_text_to_int(const char *text, int64_t *out)
{
    bool digits = false, negative;

    while (is_space(*text))
        text++;
    negative = *text == '-';
    text += *text == '-' || *text == '+';
    for (*out = 0; (*text >= '0' && *text <= '9') ||
                   (*text == '_' && digits && text[1] >= '0' && text[1] <= '9');
         text++) {
        int digit = *text == '_' ? -1 : *text - '0';
        if (digit >= 0 && (__builtin_mul_overflow(*out, 10, out) ||
                           __builtin_add_overflow(*out, negative ? -digit : digit, out)))
            return false;
        digits = true;
    }
    if (*text == '.' && text[1] == '0' && digits)
        text += 1 + strspn(text + 1, "0");
    while (is_space(*text))
        text++;
    return digits && !*text;
}

/* Python takes single underscores between digits only. */
static bool underscores_are_tidy(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (text[i] != '_')
            continue;
        if (!i || i + 1 == length || text[i - 1] < '0' || text[i - 1] > '9' || text[i + 1] < '0' ||
            text[i + 1] > '9')
            return false;
    }
    return true;
}

bool oct_text_to_number(const char *text, double *out)
{
    while (is_space(*text))
        text++;
    size_t length = strlen(text);
    while (length && is_space(text[length - 1]))
        length--;
    const char *word = text + (*text == '-' || *text == '+');
    size_t word_length = length - (size_t)(word - text);
    double magnitude;
    if ((word_length == 3 && !strncasecmp(word, "inf", 3)) ||
        (word_length == 8 && !strncasecmp(word, "infinity", 8)))
        magnitude = INFINITY;
    else if (word_length == 3 && !strncasecmp(word, "nan", 3))
        magnitude = NAN;
    else
        return underscores_are_tidy(text, length) && oct_decimal_parse(text, length, out);
    *out = *text == '-' ? -magnitude : magnitude;
    return true;
}

bool oct_is_utf8(const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p;) {
        size_t more = *p < 0x80 ? 0 : *p >= 0xf0 ? 3 : *p >= 0xe0 ? 2 : 1;
        unsigned lead = *p++, least = more == 1 ? 0x80 : more == 2 ? 0x800 : 0x10000;
        if (more && (lead < 0xc2 || lead > 0xf4))
            return false;
        unsigned point = more ? lead & (0x3fu >> more) : lead;
        for (size_t i = 0; i < more; i++, p++) {
            if ((*p & 0xc0) != 0x80)
                return false;
            point = point << 6 | (*p & 0x3f);
        }
        if (more && (point < least || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff)))
            return false;
    }
    return true;
}

static bool text_to_bool(const char *text, bool *out)
{
    static const char *const words[] = {"0", "off", "f", "false", "n", "no",
                                        "1", "on",  "t", "true",  "y", "yes"};

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcasecmp(text, words[i]))
            continue;
        *out = i >= 6;
        return true;
    }
    return false;
}

static bool to_bool(const struct oct_yaml *node, bool *out)
{
    switch (node->kind) {
    case OCT_YAML_BOOL:
        *out = node->boolean;
        return true;
    case OCT_YAML_INT:
    case OCT_YAML_FLOAT:
        *out = node->number == 1.0;
        return node->number == 1.0 || node->number == 0.0;
    case OCT_YAML_TEXT:
        return text_to_bool(node->text, out);
    default:
        return false;
    }
}

/* A whole number that 64 bits do not hold gives true and *too_large. */
static bool to_int(const struct oct_yaml *node, int64_t *out, bool *too_large)
{
    *too_large = false;
    switch (node->kind) {
    case OCT_YAML_BOOL:
        *out = node->boolean;
        return true;
    case OCT_YAML_INT:
        *out = node->integer;
        *too_large = node->too_large;
        return true;
    case OCT_YAML_FLOAT:
        *too_large = !(fabs(node->number) < 0x1p63);
        *out = *too_large ? 0 : (int64_t)node->number;
        return *too_large || (double)*out == node->number;
    case OCT_YAML_TEXT:
        return oct_text_to_int(node->text, out);
    default:
        return false;
    }
}

static bool to_number(const struct oct_yaml *node, double *out)
{
    switch (node->kind) {
    case OCT_YAML_BOOL:
        *out = node->boolean;
        return true;
    case OCT_YAML_INT:
    case OCT_YAML_FLOAT:
        *out = node->number;
        return true;
    case OCT_YAML_TEXT:
        return oct_text_to_number(node->text, out);
    default:
        return false;
    }
}

static enum octet_status convert_int(enum oct_key key, const struct oct_yaml *node, int64_t *out,
                                     struct octet_error *err)
{
    char shown[OCT_SHOWN_SIZE];
    bool too_large;

    if (!to_int(node, out, &too_large))
        return refuse_kind(key, node, err);
    if (too_large || *out < limits[oct_keys[key].limit].smallest ||
        *out > limits[oct_keys[key].limit].largest)
        return refuse_range(key, oct_shown(node->text, shown), too_large, err);
    return OCTET_OK;
}

static enum octet_status convert_number(enum oct_key key, const struct oct_yaml *node, double *out,
                                        struct octet_error *err)
{
    enum oct_limit limit = oct_keys[key].limit;
    char shown[OCT_SHOWN_SIZE];

    if (!to_number(node, out))
        return refuse_kind(key, node, err);
    if (limit == OCT_LIMIT_ANY)
        return OCTET_OK;
    /* So written that a not-a-number is refused; an infinity is not, where no largest value is set.
     */
    bool above = limits[limit].largest == INT64_MAX || *out <= (double)limits[limit].largest;
    bool below = *out >= (double)limits[limit].smallest;
    if (!above || !below || (limit == OCT_LIMIT_POSITIVE_FRACTION && *out == 0.0))
        return refuse_range(key, oct_shown(node->text, shown), false, err);
    return OCTET_OK;
}

static enum octet_status refuse_choice(const char *text, const char *const *choices,
                                       struct octet_error *err)
{
    char shown[OCT_SHOWN_SIZE], list[640];
    size_t n = 0;

    for (; *choices && n < sizeof list; choices++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "",
                              **choices ? *choices : "''");
    return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "'%s' is not one of: %s",
                      oct_shown(text, shown), list);
}

static enum octet_status convert_text(enum oct_key key, const struct oct_yaml *node,
                                      struct oct_value *out, struct octet_error *err)
{
    const char *const *choices = oct_keys[key].choices;

    if (node->kind != OCT_YAML_TEXT)
        return refuse_kind(key, node, err);
    out->as.text = node->text;
    if (!choices)
        return OCTET_OK;
    for (const char *const *choice = choices; *choice; choice++)
        if (!strcmp(*choice, node->text))
            return OCTET_OK;
    return refuse_choice(node->text, choices, err);
}

/* Lists that may be given as one bare text. */
static bool takes_bare_text(enum oct_key key)
{
    return key == OCT_KEY_adamw_mask || key == OCT_KEY_eval_data_columns ||
           key == OCT_KEY_train_data_columns || key == OCT_KEY_trainable_parameters_mask;
}

static enum octet_status convert_list(octet_arena *arena, enum oct_key key,
                                      const struct oct_yaml *node, struct oct_value *out,
                                      struct octet_error *err)
{
    bool bare = node->kind == OCT_YAML_TEXT && takes_bare_text(key);

    if (node->kind != OCT_YAML_LIST && !bare)
        return refuse_kind(key, node, err);
    const char **texts = OCTET_NEW_ARRAY(arena, bare ? 1 : node->count, const char *);
    if (!texts)
        return octet_arena_exhausted(arena, err);
    out->as.texts = texts;
    if (bare)
        texts[out->count++] = node->text;
    for (const struct oct_yaml *item = bare ? NULL : node->first; item; item = item->next) {
        if (item->kind != OCT_YAML_TEXT)
            return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                              "item %" PRIu32 " is %s; expected a text", out->count,
                              oct_yaml_kind_name(item->kind));
        texts[out->count++] = item->text;
    }
    return OCTET_OK;
}

static enum octet_status convert_ints(octet_arena *arena, enum oct_key key,
                                      const struct oct_yaml *node, struct oct_value *out,
                                      struct octet_error *err)
{
    if (node->kind != OCT_YAML_LIST)
        return refuse_kind(key, node, err);
    int64_t *integers = OCTET_NEW_ARRAY(arena, node->count, int64_t);
    if (!integers)
        return octet_arena_exhausted(arena, err);
    out->as.integers = integers;
    for (const struct oct_yaml *item = node->first; item; item = item->next) {
        bool too_large;
        if (!to_int(item, &integers[out->count], &too_large) || too_large)
            return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                              "item %" PRIu32 " is %s; expected a whole number of 64 bits",
                              out->count, oct_yaml_kind_name(item->kind));
        out->count++;
    }
    return OCTET_OK;
}

static enum octet_status convert_flow(octet_arena *arena, enum oct_key key,
                                      const struct oct_yaml *node, struct oct_value *out,
                                      struct octet_error *err)
{
    if (oct_keys[key].kind == OCT_KIND_MAP && node->kind != OCT_YAML_MAP)
        return refuse_kind(key, node, err);
    out->as.text = oct_yaml_flow(arena, node);
    return out->as.text ? OCTET_OK : octet_arena_exhausted(arena, err);
}

/* None for these is the empty text. */
static bool null_is_empty(enum oct_key key)
{
    return key == OCT_KEY_run_name || key == OCT_KEY_dump_hlo_module_name ||
           key == OCT_KEY_dump_hlo_local_module_name;
}

enum octet_status oct_value_convert(octet_arena *arena, enum oct_key key,
                                    const struct oct_yaml *node, struct oct_value *out,
                                    struct octet_error *err)
{
    static const struct oct_yaml none = {.kind = OCT_YAML_NULL, .text = ""};
    static const struct oct_yaml empty = {.kind = OCT_YAML_TEXT, .text = ""};
    const struct oct_key_info *info = &oct_keys[key];

    memset(out, 0, sizeof *out);
    out->raw = (uint8_t)node->kind;
    if (node->kind == OCT_YAML_TEXT && !strcasecmp(node->text, "none"))
        node = &none;
    if (node->kind == OCT_YAML_NULL && null_is_empty(key))
        node = &empty;
    if (node->kind == OCT_YAML_NULL && info->optional) {
        out->is_null = true;
        return OCTET_OK;
    }
    switch ((enum oct_kind)info->kind) {
    case OCT_KIND_BOOL:
        return to_bool(node, &out->as.boolean) ? OCTET_OK : refuse_kind(key, node, err);
    case OCT_KIND_INT:
        return convert_int(key, node, &out->as.integer, err);
    case OCT_KIND_FLOAT:
        return convert_number(key, node, &out->as.number, err);
    case OCT_KIND_TEXT:
        return convert_text(key, node, out, err);
    case OCT_KIND_LIST:
        return convert_list(arena, key, node, out, err);
    case OCT_KIND_INTS:
        return convert_ints(arena, key, node, out, err);
    case OCT_KIND_MAP:
    case OCT_KIND_ANY:
        break;
    }
    return convert_flow(arena, key, node, out, err);
}

static bool is_number(const struct oct_yaml *node)
{
    return node->kind == OCT_YAML_BOOL || node->kind == OCT_YAML_INT ||
           node->kind == OCT_YAML_FLOAT;
}

static double number_of(const struct oct_yaml *node)
{
    return node->kind == OCT_YAML_BOOL ? (double)node->boolean : node->number;
}

static bool scalars_equal(const struct oct_yaml *a, const struct oct_yaml *b)
{
    if (a->kind == OCT_YAML_INT && b->kind == OCT_YAML_INT)
        return a->integer == b->integer;
    if (is_number(a) && is_number(b))
        return number_of(a) == number_of(b);
    if (a->kind != b->kind)
        return false;
    return a->kind == OCT_YAML_NULL || !strcmp(a->text, b->text);
}

/* Recursion is bounded by OCT_YAML_DEPTH_MAX. */
bool oct_yaml_equal(const struct oct_yaml *a, const struct oct_yaml *b)
{
    bool a_holds = a->kind >= OCT_YAML_LIST, b_holds = b->kind >= OCT_YAML_LIST;

    if (!a_holds && !b_holds)
        return scalars_equal(a, b);
    if (a->kind != b->kind || a->count != b->count)
        return false;
    const struct oct_yaml *other = b->first;
    for (const struct oct_yaml *item = a->first; item; item = item->next) {
        const struct oct_yaml *match = a->kind == OCT_YAML_MAP ? oct_yaml_get(b, item->key) : other;
        if (!match || !oct_yaml_equal(item, match))
            return false;
        other = other->next;
    }
    return true;
}
