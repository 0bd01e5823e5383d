/* octet plot: columns of CSV files as curves of one picture. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "history.h"
#include "plot.h"
#include "session.h"

enum { PLOT_FILES_MAX = 8 };

struct pictured {
    const char *name, *path;
    struct number_table table;
};

/* "NAME=FILE.csv", or "FILE.csv", whose name is the file's own without folder and ending. */
static bool take_operand(octet_arena *arena, const char *text, struct pictured *out)
{
    const char *equals = strchr(text, '='), *slash;

    out->path = equals ? equals + 1 : text;
    if (equals) {
        out->name = octet_arena_copy(arena, text, (size_t)(equals - text));
        return out->name != NULL;
    }
    slash = strrchr(text, '/');
    text = slash ? slash + 1 : text;
    const char *dot = strrchr(text, '.');
    out->name = octet_arena_copy(arena, text, dot ? (size_t)(dot - text) : strlen(text));
    return out->name != NULL;
}

static bool has_values(const struct number_table *table, size_t column)
{
    for (size_t i = 0; i < table->rows; i++)
        if (isfinite(table->values[column][i]))
            return true;
    return false;
}

/* The first row that is drawn; steps do not fall. */
static size_t first_row(const struct number_table *table, size_t step, int64_t from)
{
    size_t row = 0;

    while (row < table->rows && table->values[step][row] < (double)from)
        row++;
    return row;
}

/* "step, train_main, ..."; as much as fits into an error. */
static const char *column_names(octet_arena *arena, const struct number_table *table)
{
    const char *text = table->columns ? table->names[0] : "";

    for (size_t i = 1; text && i < table->columns; i++)
        text = octet_arena_format(arena, "%s, %s", text, table->names[i]);
    return text ? text : "others";
}

/* Adds the curve of one column; points without a value are left out by the drawing. */
static enum octet_status add_curve(struct plot *plot, struct plot_curve *curves, octet_arena *arena,
                                   const struct pictured *file, const char *column, bool several,
                                   int colour, int64_t from, struct octet_error *err)
{
    size_t x = number_table_column(&file->table, "step"),
           y = number_table_column(&file->table, column);
    struct plot_curve *curve = &curves[plot->count];

    if (x == SIZE_MAX || y == SIZE_MAX)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "'%s' has no column '%s'; it has %s",
                          file->path, x == SIZE_MAX ? "step" : column,
                          column_names(arena, &file->table));
    if (!has_values(&file->table, y))
        return OCTET_OK;
    if (plot->count == PLOT_CURVES_MAX)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "more than %d curves",
                          PLOT_CURVES_MAX);
    const char *name = several ? octet_arena_format(arena, "%s %s", file->name, column) : column;
    size_t first = first_row(&file->table, x, from);
    *curve = (struct plot_curve){.name = name,
                                 .x = file->table.values[x] + first,
                                 .y = file->table.values[y] + first,
                                 .count = file->table.rows - first,
                                 .colour = colour,
                                 .faint = strncmp(column, "train_", 6) == 0,
                                 .dash = strstr(column, "_mtp") != NULL};
    plot->count++;
    return name ? OCTET_OK : octet_arena_exhausted(arena, err);
}

/* Without --columns: the losses that are there. */
static const char *default_columns(octet_arena *arena, const struct number_table *table)
{
    static const char *const wanted[] = {"train_main", "eval_main", "eval_mtp",
                                         "eval_mtp_unscaled"};
    const char *text = "";

    for (size_t i = 0; text && i < sizeof wanted / sizeof *wanted; i++)
        if (number_table_column(table, wanted[i]) != SIZE_MAX)
            text = octet_arena_format(arena, "%s%s%s", text, text[0] ? "," : "", wanted[i]);
    return text && !text[0] && table->columns > 1 ? table->names[1] : text;
}

static enum octet_status add_file(struct session *session, struct plot *plot,
                                  struct plot_curve *curves, struct pictured *file, int index,
                                  bool several, struct octet_error *err)
{
    octet_arena *arena = session->arena;
    enum octet_status status = csv_read(arena, file->path, &file->table, err);

    if (status != OCTET_OK)
        return status;
    const char *columns = session->arguments->columns ? session->arguments->columns
                                                      : default_columns(arena, &file->table);
    char *list = columns ? octet_arena_copy(arena, columns, strlen(columns)) : NULL;
    if (!list)
        return octet_arena_exhausted(arena, err);
    bool one = !strchr(list, ',');
    for (int i = 0; list && status == OCTET_OK; i++) {
        const char *column = strsep(&list, ",");
        size_t before = plot->count;
        status = add_curve(plot, curves, arena, file, column, several, several ? index : i,
                           session->arguments->first_step, err);
        if (several && one && plot->count > before)
            curves[before].name = file->name;
    }
    return status;
}

int run_plot(struct session *session)
{
    const struct arguments *a = session->arguments;
    struct pictured files[PLOT_FILES_MAX] = {0};
    struct plot_curve curves[PLOT_CURVES_MAX];
    struct octet_error err = {0};
    struct plot plot = {.title = a->title ? a->title : "Training",
                        .x_label = "step",
                        .y_label = "loss (nats a token)",
                        .curves = curves};
    enum octet_status status = OCTET_OK;
    size_t count = a->operands.count, length = 0;

    if (count > PLOT_FILES_MAX) {
        octet_fail(&err, OCTET_INVALID_ARGUMENT, NULL, "more than %d files", PLOT_FILES_MAX);
        return report(session, &err);
    }
    for (size_t i = 0; i < count && status == OCTET_OK; i++) {
        if (!take_operand(session->arena, a->operands.items[i], &files[i]))
            status = octet_arena_exhausted(session->arena, &err);
        else
            status = add_file(session, &plot, curves, &files[i], (int)i, count > 1, &err);
    }
    if (status == OCTET_OK) {
        char *text = plot_draw(session->arena, &plot, &length);
        status = text ? file_replace(a->output, text, length, &err)
                      : octet_arena_exhausted(session->arena, &err);
    }
    for (size_t i = 0; i < count; i++)
        history_clear(&files[i].table);
    return status == OCTET_OK ? EXIT_FINE : report(session, &err);
}
