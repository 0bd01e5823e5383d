/* See history.h. */
#include "history.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "session.h"

enum { CSV_BYTES_MAX = 256 * 1024 * 1024 };

const char *const history_names[HISTORY_COLUMNS] = {
    [HISTORY_STEP] = "step",
    [HISTORY_TRAIN_TOTAL] = "train_total",
    [HISTORY_TRAIN_MAIN] = "train_main",
    [HISTORY_TRAIN_MTP] = "train_mtp",
    [HISTORY_TRAIN_ACCEPTANCE] = "train_acceptance",
    [HISTORY_LEARNING_RATE] = "learning_rate",
    [HISTORY_GRAD_NORM] = "grad_norm",
    [HISTORY_TOKENS] = "tokens",
    [HISTORY_SECONDS] = "seconds",
    [HISTORY_EVAL_MAIN] = "eval_main",
    [HISTORY_EVAL_MTP] = "eval_mtp",
    [HISTORY_EVAL_ACCEPTANCE] = "eval_acceptance",
};

void history_start(struct number_table *table)
{
    *table = (struct number_table){.columns = HISTORY_COLUMNS};
    memcpy(table->names, history_names, sizeof history_names);
}

size_t table_add_row(struct number_table *table)
{
    if (table->rows == table->room) {
        size_t room = table->room ? 2 * table->room : 256;
        for (size_t c = 0; c < table->columns; c++) {
            double *larger = realloc(table->values[c], room * sizeof *larger);
            if (!larger)
                return SIZE_MAX; /* those that have grown already stay larger */
            table->values[c] = larger;
        }
        table->room = room;
    }
    for (size_t c = 0; c < table->columns; c++)
        table->values[c][table->rows] = NAN;
    return table->rows++;
}

void history_clear(struct number_table *table)
{
    for (size_t c = 0; c < table->columns; c++) {
        free(table->values[c]);
        table->values[c] = NULL;
    }
    table->rows = table->room = 0;
}

size_t number_table_column(const struct number_table *table, const char *name)
{
    for (size_t c = 0; c < table->columns; c++)
        if (strcmp(table->names[c], name) == 0)
            return c;
    return SIZE_MAX;
}

void csv_write_head(FILE *file, const struct number_table *table)
{
    for (size_t c = 0; c < table->columns; c++)
        fprintf(file, "%s%s", c ? "," : "", table->names[c]);
    fputc('\n', file);
}

void csv_write_row(FILE *file, const struct number_table *table, size_t row)
{
    for (size_t c = 0; c < table->columns; c++) {
        double value = table->values[c][row];
        fputs(c ? "," : "", file);
        if (!isnan(value))
            fprintf(file, "%.10g", value);
    }
    fputc('\n', file);
}

/* Cuts the line at its commas; the cells point into it. Returns their count, at most `most`. */
static size_t cut(char *line, char **cells, size_t most)
{
    size_t count = 0;

    while (line && count < most) {
        cells[count++] = strsep(&line, ",");
    }
    return line ? SIZE_MAX : count;
}

static enum octet_status read_line(struct number_table *table, const char *path, size_t number,
                                   char *line, struct octet_error *err)
{
    char *cells[TABLE_COLUMNS_MAX];
    size_t count = cut(line, cells, TABLE_COLUMNS_MAX);

    if (number == 1) {
        if (count == SIZE_MAX)
            return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "'%s': more than %d columns", path,
                              TABLE_COLUMNS_MAX);
        table->columns = count;
        for (size_t c = 0; c < count; c++)
            table->names[c] = cells[c];
        return OCTET_OK;
    }
    if (count != table->columns)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                          "'%s' line %zu has not the %zu columns of its first line", path, number,
                          table->columns);
    size_t row = table_add_row(table);
    if (row == SIZE_MAX)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
    for (size_t c = 0; c < count; c++) {
        char *end;
        double value = strtod(cells[c], &end);
        if (*end)
            return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                              "'%s' line %zu column '%s': '%.40s' is not a number", path, number,
                              table->names[c], cells[c]);
        table->values[c][row] = end == cells[c] ? (double)NAN : value;
    }
    return OCTET_OK;
}

enum octet_status csv_read(octet_arena *arena, const char *path, struct number_table *out,
                           struct octet_error *err)
{
    char *text;
    size_t length, number = 0;
    enum octet_status status = file_read(arena, path, CSV_BYTES_MAX, &text, &length, err);

    *out = (struct number_table){0};
    while (status == OCTET_OK && text && *text) {
        char *line = strsep(&text, "\n");
        line[strcspn(line, "\r")] = '\0';
        status = read_line(out, path, ++number, line, err);
    }
    if (status == OCTET_OK && !number)
        status = octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "'%s' is empty", path);
    if (status != OCTET_OK)
        history_clear(out);
    return status;
}
