/* Optimal string alignment distance over short names; capitals count as small letters. */
#include "octet/nearest.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

enum { LENGTH_MAX = 64 };

static size_t min3(size_t a, size_t b, size_t c)
{
    size_t ab = a < b ? a : b;

    return ab < c ? ab : c;
}

static bool same_letter(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

static size_t distance(const char *a, size_t m, const char *b, size_t n)
{
    size_t rows[3][LENGTH_MAX + 1];
    size_t *before = rows[0], *last = rows[1], *row = rows[2];

    for (size_t j = 0; j <= n; j++)
        last[j] = j;
    for (size_t i = 1; i <= m; i++) {
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            row[j] =
                min3(last[j] + 1, row[j - 1] + 1, last[j - 1] + !same_letter(a[i - 1], b[j - 1]));
            if (i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) &&
                same_letter(a[i - 2], b[j - 1]) && before[j - 2] + 1 < row[j])
                row[j] = before[j - 2] + 1;
        }
        size_t *spare = before;
        before = last;
        last = row;
        row = spare;
    }
    return last[n];
}

/* 0: the candidate begins with the text, 1: it contains it, 2: neither. Who types a part means the
 * whole: "e4m3" is float8_e4m3fn, though int3 takes fewer changes. */
static int likeness(const char *text, size_t length, const char *candidate)
{
    enum { PART_MIN = 3 };

    if (length < PART_MIN)
        return 2;
    const char *at = strcasestr(candidate, text);
    return !at ? 2 : at != candidate;
}

size_t octet_nearest(const char *text, size_t count,
                     const char *(*name)(const void *user, size_t i), const void *user)
{
    size_t best = 0, best_distance = (size_t)-1, m = strnlen(text, LENGTH_MAX);
    int best_class = 3;

    for (size_t i = 0; i < count; i++) {
        const char *candidate = name(user, i);
        size_t d = distance(text, m, candidate, strnlen(candidate, LENGTH_MAX));
        int class = likeness(text, m, candidate);
        if (class < best_class || (class == best_class && d < best_distance)) {
            best = i;
            best_distance = d;
            best_class = class;
        }
    }
    return best;
}
