/* Curves as an SVG file, for people: axes with round ticks, a legend, colours that can be read on
 * light and on dark paper. */
#ifndef OCTET_CLI_PLOT_H
#define OCTET_CLI_PLOT_H

#include <stdbool.h>
#include <stddef.h>

#include "octet/arena.h"

enum { PLOT_CURVES_MAX = 16 };

/* Points with an x or y that is no finite number are left out. */
struct plot_curve {
    const char *name;
    const double *x, *y; /* x does not fall */
    size_t count;
    int colour;       /* curves of one colour belong together */
    bool faint, dash; /* a noisy one in the background; the second of a colour */
};

struct plot {
    const char *title, *x_label, *y_label;
    const struct plot_curve *curves;
    size_t count;
};

/* The SVG's text, in the arena; NULL: no memory. */
char *plot_draw(octet_arena *arena, const struct plot *plot, size_t *length);

#endif
