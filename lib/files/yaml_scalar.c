/* Which plain scalars are numbers, truth values or nothing.
 * Source: YAML 1.1's type repository, PyYAML 6.0 resolver.py and constructor.py, and the float
 * syntax that OmegaConf 2.4 adds in _yaml.py. */
#include "files/yaml.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#include "files/decimal.h"

static bool is_one_of(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (!strcmp(text, *words))
            return true;
    return false;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Skips characters of `set`. */
static const char *skip(const char *p, const char *set)
{
    return p + strspn(p, set);
}

/* [0-9]+(_[0-9]+)*, or NULL. */
static const char *skip_grouped(const char *p)
{
    if (!is_digit(*p))
        return NULL;
    p = skip(p, "0123456789");
    while (*p == '_' && is_digit(p[1]))
        p = skip(p + 1, "0123456789");
    return p;
}

/* (:[0-5]?[0-9])*; *parts counts them. */
static const char *skip_sixties(const char *p, int *parts)
{
    for (*parts = 0; *p == ':' && is_digit(p[1]); (*parts)++) {
        if (is_digit(p[2])) {
            if (p[1] > '5')
                break;
            p += 3;
        } else {
            p += 2;
        }
    }
    return p;
}

static bool is_exponent(const char *p, bool sign_needed)
{
    if (*p != 'e' && *p != 'E')
        return false;
    p++;
    if (*p == '+' || *p == '-')
        p++;
    else if (sign_needed)
        return false;
    return is_digit(*p) && !*skip(p, "0123456789");
}

static bool is_int(const char *text)
{
    const char *p = text + (*text == '-' || *text == '+');
    int parts;

    if (p[0] == '0' && p[1] == 'b')
        return p[2] && !*skip(p + 2, "01_") && strpbrk(p + 2, "01");
    if (p[0] == '0' && p[1] == 'x')
        return p[2] && !*skip(p + 2, "0123456789abcdefABCDEF_") && p[2 + strspn(p + 2, "_")];
    if (*p == '0')
        return !*skip(p, "01234567_");
    if (!is_digit(*p))
        return false;
    p = skip_sixties(skip(p, "0123456789_"), &parts);
    return !*p;
}

static bool is_float(const char *text)
{
    bool sign = *text == '-' || *text == '+';
    const char *p = text + sign;
    int parts;

    if (is_one_of(p, (const char *const[]){".inf", ".Inf", ".INF", NULL}))
        return true;
    if (is_one_of(text, (const char *const[]){".nan", ".NaN", ".NAN", NULL}))
        return true;
    if (*p == '.') { /* no sign, and an exponent only with one: as the sources have it */
        if (sign || !is_digit(p[1]))
            return false;
        p = skip(p + 1, "0123456789_");
        return !*p || is_exponent(p, true);
    }
    const char *grouped = skip_grouped(p);
    if (!grouped)
        return false;
    if (is_exponent(grouped, false))
        return true;
    p = skip(p, "0123456789_");
    if (*p == '.') {
        bool tidy = p == grouped;
        p = skip(p + 1, "0123456789_");
        return !*p || is_exponent(p, !tidy);
    }
    p = skip_sixties(p, &parts);
    return parts && *p == '.' && !*skip(p + 1, "0123456789_");
}

static int digit_of(char c)
{
    return is_digit(c) ? c - '0' : tolower((unsigned char)c) - 'a' + 10;
}

/* Digits in base `base` up to `end`; saturates, and says so. */
static int64_t read_digits(const char *p, const char *end, int base, bool negative, bool *too_large)
{
    int64_t value = 0;

    for (; p < end; p++) {
        if (*p == '_')
            continue;
        int digit = digit_of(*p);
        if (__builtin_mul_overflow(value, base, &value) ||
            __builtin_add_overflow(value, negative ? -digit : digit, &value)) {
            *too_large = true;
            return negative ? INT64_MIN : INT64_MAX;
        }
    }
    return value;
}

/* "1:30:00" in base 60. */
static int64_t read_sixties(const char *p, bool negative, bool *too_large)
{
    int64_t value = 0;

    while (*p && !*too_large) {
        const char *end = p + strcspn(p, ":");
        int64_t part = read_digits(p, end, 10, negative, too_large);
        if (__builtin_mul_overflow(value, 60, &value) ||
            __builtin_add_overflow(value, part, &value))
            *too_large = true;
        p = end + (*end == ':');
    }
    return *too_large ? (negative ? INT64_MIN : INT64_MAX) : value;
}

static void read_int(const char *text, struct oct_yaml *out)
{
    bool negative = *text == '-';
    const char *p = text + (*text == '-' || *text == '+');
    const char *end = p + strlen(p);
    int base = *p != '0' ? 10 : p[1] == 'b' ? 2 : p[1] == 'x' ? 16 : 8;

    out->kind = OCT_YAML_INT;
    if (strchr(p, ':'))
        out->integer = read_sixties(p, negative, &out->too_large);
    else
        out->integer = read_digits(p + (base == 2 || base == 16 ? 2 : 0), end, base, negative,
                                   &out->too_large);
    out->number = (double)out->integer;
    if (out->too_large) { /* base 60 beyond 64 bits stays at the end of them */
        double value = 0.0;
        if (base == 10)
            oct_decimal_parse(p, (size_t)(end - p), &value);
        for (p += base == 2 || base == 16 ? 2 : 0; base != 10 && p < end; p++)
            if (*p != '_')
                value = value * base + digit_of(*p);
        if (value > 0.0)
            out->number = negative ? -value : value;
    }
}

static void read_float(const char *text, struct oct_yaml *out)
{
    bool negative = *text == '-';
    const char *p = text + (*text == '-' || *text == '+');
    double value = 0.0;

    if (*p == '.' && (p[1] == 'i' || p[1] == 'I'))
        value = INFINITY;
    else if (*p == '.' && (p[1] == 'n' || p[1] == 'N'))
        value = NAN;
    else
        for (const char *end; *p; p = end + (*end == ':')) { /* base 60 when there are colons */
            double part = 0.0;
            end = p + strcspn(p, ":");
            if (oct_decimal_parse(p, (size_t)(end - p), &part))
                value = value * 60 + part;
        }
    out->kind = OCT_YAML_FLOAT;
    out->number = negative ? -value : value;
}

void oct_yaml_resolve(const char *text, struct oct_yaml *out)
{
    static const char *const yes[] = {"true", "True", "TRUE", "yes", "Yes",
                                      "YES",  "on",   "On",   "ON",  NULL};
    static const char *const no[] = {"false", "False", "FALSE", "no",  "No",
                                     "NO",    "off",   "Off",   "OFF", NULL};
    static const char *const null[] = {"", "~", "null", "Null", "NULL", NULL};

    out->text = text;
    out->kind = OCT_YAML_TEXT;
    if (is_digit(*text) || *text == '-' || *text == '+' || *text == '.') {
        if (strnlen(text, OCT_DECIMAL_LENGTH_MAX + 1) > OCT_DECIMAL_LENGTH_MAX)
            return;
        if (is_int(text))
            read_int(text, out);
        else if (is_float(text))
            read_float(text, out);
    } else if (is_one_of(text, null)) {
        out->kind = OCT_YAML_NULL;
    } else if (is_one_of(text, yes)) {
        out->kind = OCT_YAML_BOOL;
        out->boolean = true;
    } else if (is_one_of(text, no)) {
        out->kind = OCT_YAML_BOOL;
    }
}

const char *oct_yaml_kind_name(enum oct_yaml_kind kind)
{
    static const char *const names[] = {
        [OCT_YAML_NULL] = "nothing",       [OCT_YAML_BOOL] = "true or false",
        [OCT_YAML_INT] = "a whole number", [OCT_YAML_FLOAT] = "a number",
        [OCT_YAML_TEXT] = "a text",        [OCT_YAML_LIST] = "a list",
        [OCT_YAML_MAP] = "a mapping",
    };

    return names[kind];
}
