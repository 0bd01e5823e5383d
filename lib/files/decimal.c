/* Decision: strtod and printf only ever see numbers without a decimal point (0.95 goes in as
 * "95e-2", 9.5e-1 comes out and its point is skipped), so the caller's locale cannot change a
 * value. */
#include "files/decimal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* digits * 10^exponent; `digits` has room for "e-123456" behind its n characters. */
static double scaled(char *digits, size_t n, long exponent)
{
    if (exponent > 100000)
        exponent = 100000;
    if (exponent < -100000)
        exponent = -100000;
    snprintf(digits + n, 16, "e%ld", exponent);
    return strtod(digits, NULL);
}

bool oct_decimal_parse(const char *text, size_t length, double *out)
{
    char digits[OCT_DECIMAL_LENGTH_MAX + 17];
    const char *p = text, *end = text + length;
    size_t n = 0;
    long fraction = 0, exponent = 0;
    bool point = false;

    if (length > OCT_DECIMAL_LENGTH_MAX)
        return false;
    bool negative = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+'))
        p++;
    for (; p < end && (is_digit(*p) || *p == '_' || (*p == '.' && !point)); p++) {
        if (*p == '.') {
            point = true;
        } else if (*p != '_') {
            digits[n++] = *p;
            fraction += point;
        }
    }
    if (!n)
        return false;
    if (p < end && (*p == 'e' || *p == 'E')) {
        bool minus = ++p < end && *p == '-';
        p += p < end && (*p == '-' || *p == '+');
        if (p == end)
            return false;
        for (; p < end && is_digit(*p); p++)
            if (exponent < 100000)
                exponent = exponent * 10 + (*p - '0');
        exponent = minus ? -exponent : exponent;
    }
    if (p < end)
        return false;
    double value = scaled(digits, n, exponent - fraction);
    *out = negative ? -value : value;
    return true;
}

/* The shortest digits d1 d2 ... dn with value = d1.d2...dn * 10^exponent; returns n. value > 0. */
static size_t shortest_digits(double value, char digits[24], int *exponent)
{
    size_t n = 0;

    for (int precision = 0; precision <= 16; precision++) {
        char text[40], again[48];
        snprintf(text, sizeof text, "%.*e", precision, value);
        const char *e = strchr(text, 'e');
        n = 0;
        for (const char *p = text; p < e; p++)
            if (is_digit(*p))
                digits[n++] = *p;
        *exponent = (int)strtol(e + 1, NULL, 10);
        memcpy(again, digits, n);
        if (scaled(again, n, *exponent - (long)n + 1) == value)
            break;
    }
    while (n > 1 && digits[n - 1] == '0')
        n--;
    return n;
}

const char *oct_decimal_print(double value, char buffer[OCT_DECIMAL_SIZE])
{
    char digits[24];
    int exponent = 0;
    size_t n = 1;
    const char *sign = signbit(value) ? "-" : "";

    if (isnan(value) || isinf(value)) {
        snprintf(buffer, OCT_DECIMAL_SIZE, "%s",
                 isnan(value) ? ".nan"
                 : value > 0  ? ".inf"
                              : "-.inf");
        return buffer;
    }
    if (value == 0.0)
        digits[0] = '0';
    else
        n = shortest_digits(fabs(value), digits, &exponent);

    if (exponent < -4 || exponent >= 16) { /* 1e-05, 1.5e+16 */
        snprintf(buffer, OCT_DECIMAL_SIZE, "%s%c%s%.*se%c%02d", sign, digits[0], n > 1 ? "." : "",
                 (int)n - 1, digits + 1, exponent < 0 ? '-' : '+', abs(exponent));
    } else if (exponent < 0) { /* 0.00095 */
        snprintf(buffer, OCT_DECIMAL_SIZE, "%s0.%.*s%.*s", sign, -exponent - 1, "000", (int)n,
                 digits);
    } else { /* 10000.0, 128.5 */
        int whole = exponent + 1, have = (int)n < whole ? (int)n : whole;
        snprintf(buffer, OCT_DECIMAL_SIZE, "%s%.*s%.*s.%.*s", sign, have, digits, whole - have,
                 "0000000000000000", (int)n > whole ? (int)n - whole : 1,
                 (int)n > whole ? digits + whole : "0");
    }
    return buffer;
}
