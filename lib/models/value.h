/* One value of a config: the table of keys, conversion from YAML, and back to text.
 *
 * For: config.c and derive.c. Others read values through settings.h.
 * Decision: conversions are pydantic's lax ones, since MaxText reads its config through them:
 * "7", 7.0 and true are whole numbers, 7 is no text, and the word none in any case is None for
 * every key. Source: pydantic 2.14 (conversion table, Python input, lax mode); MaxText's
 * pyconfig.py, _prepare_for_pydantic. */
#ifndef OCTET_MODELS_VALUE_H
#define OCTET_MODELS_VALUE_H

#include "files/yaml.h"
#include "models/settings.h"

enum oct_kind {
    OCT_KIND_BOOL,
    OCT_KIND_INT,
    OCT_KIND_FLOAT,
    OCT_KIND_TEXT,
    OCT_KIND_LIST,
    OCT_KIND_INTS,
    OCT_KIND_MAP,
    OCT_KIND_ANY,
};

enum oct_limit {
#define OCT_LIMIT_ENUM(name, smallest, largest) OCT_LIMIT_##name,
    OCT_LIMITS(OCT_LIMIT_ENUM)
#undef OCT_LIMIT_ENUM
};

enum oct_effect { OCT_NO_EFFECT, OCT_EFFECT, OCT_DERIVED };

struct oct_value {
    uint8_t
        raw; /* enum oct_yaml_kind: what MaxText's merged dict holds; decides how M_KEY is read */
    bool is_null;   /* all below is then zero */
    uint32_t count; /* items */
    union {
        bool boolean;
        int64_t integer;
        double number;
        const char *text; /* MAP and ANY: flow YAML */
        const char *const *texts;
        const int64_t *integers;
    } as;
};

struct oct_key_info {
    const char *name;
    uint8_t kind, limit, effect;
    bool optional;              /* None is a value */
    bool in_yml;                /* base.yml has the key */
    const char *const *choices; /* ends with NULL; NULL: all texts */
    struct oct_value value;     /* the default */
};

extern const struct oct_key_info oct_keys[OCT_KEY_COUNT];

/* The key's number, or OCT_KEY_COUNT. */
enum oct_key oct_key_find(const char *name);
/* The key whose name looks most like `name`. */
const char *oct_key_nearest(const char *name);

/* Errors: INVALID_ARGUMENT without a field, saying what is there and what was expected. */
enum octet_status oct_value_convert(octet_arena *arena, enum oct_key key,
                                    const struct oct_yaml *node, struct oct_value *out,
                                    struct octet_error *err) OCTET_MUST_CHECK;

/* As YAML would print it, in the arena; NULL when there is no memory. */
const char *oct_value_text(octet_arena *arena, enum oct_key key, const struct oct_value *value);
/* A node as flow YAML. */
const char *oct_yaml_flow(octet_arena *arena, const struct oct_yaml *node);

/* Python's int(text), and pydantic's leave to end in ".000"; float(text). */
bool oct_text_to_int(const char *text, int64_t *out);
bool oct_text_to_number(const char *text, double *out);
bool oct_is_utf8(const char *text);

/* Python's ==: 4096 equals 4096.0 and true equals 1. */
bool oct_yaml_equal(const struct oct_yaml *a, const struct oct_yaml *b);

/* For messages: at most `size` - 1 bytes of text, what is not printable ASCII as '?'. Returns
 * buffer. */
enum { OCT_SHOWN_SIZE = 80 };
const char *oct_shown(const char *text, char buffer[OCT_SHOWN_SIZE]);

#endif
