/* See plot.h. Text is gathered in one buffer that doubles; a curve of more points than the eye can
 * tell apart is drawn by the means of as many groups. */
#include "plot.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    WIDTH = 860,
    HEIGHT = 460,
    LEFT = 70,
    RIGHT = 240, /* the legend's place */
    TOP = 48,
    BOTTOM = 56,
    LEGEND_LETTERS = 26,
    POINTS_MAX = 600,
    COLOURS = 6,
};

struct drawing {
    octet_arena *arena;
    char *text; /* NULL: out of memory */
    size_t used, size;
    double x_low, x_high, y_low, y_high;
};

/* Numbers are the program's own, and the C locale holds: a point is a point. */
OCTET_PRINTF(2, 3)
static void put(struct drawing *d, const char *format, ...)
{
    va_list arguments;

    while (d->text) {
        va_start(arguments, format);
        int length = vsnprintf(d->text + d->used, d->size - d->used, format, arguments);
        va_end(arguments);
        if ((size_t)length < d->size - d->used) {
            d->used += (size_t)length;
            return;
        }
        char *larger = octet_arena_alloc(d->arena, d->size * 2 + (size_t)length);
        if (larger)
            memcpy(larger, d->text, d->used);
        d->text = larger;
        d->size = d->size * 2 + (size_t)length;
    }
}

/* A text of the user's: what XML means otherwise is spelled out, control characters are left out.
 */
static void put_text(struct drawing *d, const char *text, size_t letters_max)
{
    for (size_t i = 0; text[i]; i++) {
        if (i >= letters_max && ((unsigned char)text[i] & 0xc0) != 0x80) {
            put(d, "…");
            return;
        }
        if (strchr("&<>\"'", text[i]))
            put(d, "&#%d;", text[i]);
        else if ((unsigned char)text[i] >= ' ')
            put(d, "%c", text[i]);
    }
}

static double x_of(const struct drawing *d, double x)
{
    return LEFT + (x - d->x_low) / (d->x_high - d->x_low) * (WIDTH - LEFT - RIGHT);
}

static double y_of(const struct drawing *d, double y)
{
    return HEIGHT - BOTTOM - (y - d->y_low) / (d->y_high - d->y_low) * (HEIGHT - TOP - BOTTOM);
}

/* 1, 2 or 5 times a power of ten, so that about `wanted` of them make the range. */
static double tick_of(double range, int wanted)
{
    double raw = range / wanted, power = pow(10, floor(log10(raw)));
    double step = raw / power;

    return power * (step <= 1 ? 1 : step <= 2 ? 2 : step <= 5 ? 5 : 10);
}

static void widen(double *low, double *high, double value)
{
    *low = value < *low ? value : *low;
    *high = value > *high ? value : *high;
}

static bool is_point(const struct plot_curve *curve, size_t i)
{
    return isfinite(curve->x[i]) && isfinite(curve->y[i]);
}

/* Ranges that hold all points, made round at the y axis. */
static void find_ranges(struct drawing *d, const struct plot *plot)
{
    d->x_low = d->y_low = INFINITY;
    d->x_high = d->y_high = -INFINITY;
    for (size_t c = 0; c < plot->count; c++)
        for (size_t i = 0; i < plot->curves[c].count; i++)
            if (is_point(&plot->curves[c], i)) {
                widen(&d->x_low, &d->x_high, plot->curves[c].x[i]);
                widen(&d->y_low, &d->y_high, plot->curves[c].y[i]);
            }
    if (d->x_low > d->x_high) { /* nothing to draw */
        d->x_low = d->y_low = 0;
        d->x_high = d->y_high = 1;
    }
    if (d->x_high == d->x_low)
        d->x_high = d->x_low + 1;
    double slack = fabs(d->y_low) * 1e-3 + 1e-9;
    if (d->y_high - d->y_low < slack) {
        d->y_low -= slack;
        d->y_high += slack;
    }
    double tick = tick_of(d->y_high - d->y_low, 6);
    d->y_low = floor(d->y_low / tick) * tick;
    d->y_high = ceil(d->y_high / tick) * tick;
}

static void put_head(struct drawing *d, const struct plot *plot)
{
    put(d,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d "
        "%d\" role=\"img\">\n<title>",
        WIDTH, HEIGHT, WIDTH, HEIGHT);
    put_text(d, plot->title, SIZE_MAX);
    put(d, "</title>\n<style>\n"
           ".paper { fill: #ffffff } .grid { stroke: #e3e5e8 } .axis { stroke: #6b7280 }\n"
           "text { font: 13px system-ui, 'DejaVu Sans', sans-serif; fill: #374151 }\n"
           ".title { font-size: 16px; font-weight: 600; fill: #111827 }\n"
           ".curve { fill: none; stroke-width: 2; stroke-linejoin: round }\n"
           ".faint { stroke-width: 1; stroke-opacity: 0.45 } .dash { stroke-dasharray: 6 4 }\n"
           ".c0 { stroke: #2f6db3 } .c1 { stroke: #d1652a } .c2 { stroke: #2e8b57 }\n"
           ".c3 { stroke: #8a56b0 } .c4 { stroke: #b8860b } .c5 { stroke: #c2417d }\n"
           "@media (prefers-color-scheme: dark) {\n"
           ".paper { fill: #15181d } .grid { stroke: #2b3038 } .axis { stroke: #9ca3af }\n"
           "text { fill: #c7ccd4 } .title { fill: #f3f4f6 }\n"
           ".c0 { stroke: #6ea8e8 } .c1 { stroke: #f0935c } .c2 { stroke: #5fbf8a }\n"
           ".c3 { stroke: #bb90de } .c4 { stroke: #ddb34a } .c5 { stroke: #e884b0 }\n"
           "}\n</style>\n");
    put(d, "<rect class=\"paper\" width=\"%d\" height=\"%d\"/>\n", WIDTH, HEIGHT);
    put(d, "<text class=\"title\" x=\"%d\" y=\"28\">", LEFT);
    put_text(d, plot->title, 88);
    put(d, "</text>\n");
}

/* "12000" becomes "12k"; what a tick of that size needs of digits. */
static void put_number(struct drawing *d, double value, double tick)
{
    if (fabs(tick) >= 1e6 || fabs(value) >= 1e9)
        put(d, "%.4g", value);
    else if (tick >= 1000 && fmod(value, 1000) == 0 && value != 0)
        put(d, "%.0fk", value / 1000);
    else {
        int digits = tick >= 1 ? 0 : (int)ceil(-log10(tick) - 1e-9);
        put(d, "%.*f", digits < 9 ? digits : 9, value == 0 ? 0 : value);
    }
}

static void put_axes(struct drawing *d, const struct plot *plot)
{
    double x_tick = tick_of(d->x_high - d->x_low, 8), y_tick = tick_of(d->y_high - d->y_low, 6);
    const int right = WIDTH - RIGHT, bottom = HEIGHT - BOTTOM;

    for (double k = ceil(d->y_low / y_tick - 1e-6); k * y_tick <= d->y_high + y_tick * 1e-6; k++) {
        double y = y_of(d, k * y_tick);
        put(d, "<path class=\"grid\" d=\"M%d %.1fH%d\"/>\n<text x=\"%d\" y=\"%.1f\" ", LEFT, y,
            right, LEFT - 8, y + 4.5);
        put(d, "text-anchor=\"end\">");
        put_number(d, k * y_tick, y_tick);
        put(d, "</text>\n");
    }
    for (double k = ceil(d->x_low / x_tick - 1e-6); k * x_tick <= d->x_high + x_tick * 1e-6; k++) {
        double x = x_of(d, k * x_tick);
        put(d, "<path class=\"grid\" d=\"M%.1f %dV%d\"/>\n<text x=\"%.1f\" y=\"%d\" ", x, TOP,
            bottom, x, bottom + 20);
        put(d, "text-anchor=\"middle\">");
        put_number(d, k * x_tick, x_tick);
        put(d, "</text>\n");
    }
    put(d, "<path class=\"axis\" fill=\"none\" d=\"M%d %dV%dH%d\"/>\n", LEFT, TOP, bottom, right);
    put(d, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">", (LEFT + right) / 2, HEIGHT - 14);
    put_text(d, plot->x_label, 60);
    put(d, "</text>\n<text transform=\"translate(18 %d) rotate(-90)\" text-anchor=\"middle\">",
        (TOP + bottom) / 2);
    put_text(d, plot->y_label, 60);
    put(d, "</text>\n");
}

static void put_class(struct drawing *d, const struct plot_curve *curve)
{
    put(d, "class=\"curve c%d%s%s\"", curve->colour % COLOURS, curve->faint ? " faint" : "",
        curve->dash ? " dash" : "");
}

static void put_curve(struct drawing *d, const struct plot_curve *curve)
{
    size_t group = (curve->count + POINTS_MAX - 1) / POINTS_MAX, drawn = 0;

    put(d, "<path ");
    put_class(d, curve);
    put(d, " d=\"");
    for (size_t begin = 0; begin < curve->count; begin += group) {
        double x = 0, y = 0;
        size_t count = 0;
        for (size_t i = begin; i < begin + group && i < curve->count; i++)
            if (is_point(curve, i)) {
                x += curve->x[i];
                y += curve->y[i];
                count++;
            }
        if (count)
            put(d, "%c%.1f %.1f", drawn++ ? 'L' : 'M', x_of(d, x / (double)count),
                y_of(d, y / (double)count));
    }
    put(d, drawn == 1 ? "h1\"/>\n" : "\"/>\n"); /* one point is to be seen as well */
}

static void put_legend(struct drawing *d, const struct plot *plot)
{
    const int left = WIDTH - RIGHT + 16;

    for (size_t c = 0; c < plot->count; c++) {
        int y = TOP + 12 + 22 * (int)c;
        put(d, "<path ");
        put_class(d, &plot->curves[c]);
        put(d, " d=\"M%d %dh24\"/>\n<text x=\"%d\" y=\"%d\">", left, y, left + 32, y + 5);
        put_text(d, plot->curves[c].name, LEGEND_LETTERS);
        put(d, "</text>\n");
    }
}

char *plot_draw(octet_arena *arena, const struct plot *plot, size_t *length)
{
    struct drawing d = {.arena = arena, .size = 64 * 1024};

    d.text = octet_arena_alloc(arena, d.size);
    find_ranges(&d, plot);
    put_head(&d, plot);
    put_axes(&d, plot);
    for (size_t c = 0; c < plot->count; c++)
        put_curve(&d, &plot->curves[c]);
    put_legend(&d, plot);
    put(&d, "</svg>\n");
    *length = d.used;
    return d.text;
}
