/* What a training run has told so far: a row a step, written and read as CSV.
 *
 * For: octet train (CSV, plot, the summary) and octet plot (any CSV of numbers). A value that is
 * not known is NaN, and an empty cell of the file.
 *
 * Life: rows grow by doubling, in memory of their own; history_clear frees them. */
#ifndef OCTET_CLI_HISTORY_H
#define OCTET_CLI_HISTORY_H

#include <stdio.h>

#include "octet/arena.h"

enum history_column {
    HISTORY_STEP,
    HISTORY_TRAIN_TOTAL,
    HISTORY_TRAIN_MAIN,
    HISTORY_TRAIN_MTP, /* before mtp_loss_scaling_factor */
    HISTORY_TRAIN_ACCEPTANCE,
    HISTORY_LEARNING_RATE,
    HISTORY_GRAD_NORM,
    HISTORY_TOKENS, /* trained on so far */
    HISTORY_SECONDS,
    HISTORY_EVAL_MAIN,
    HISTORY_EVAL_MTP,
    HISTORY_EVAL_ACCEPTANCE,
    HISTORY_COLUMNS
};

extern const char *const history_names[HISTORY_COLUMNS];

enum { TABLE_COLUMNS_MAX = 64 };

/* Numbers under names, column by column. */
struct number_table {
    size_t columns, rows, room;
    const char *names[TABLE_COLUMNS_MAX];
    double *values[TABLE_COLUMNS_MAX]; /* malloc'ed */
};

/* The columns above, without rows. */
void history_start(struct number_table *table);
/* A row of NaN; its index, or SIZE_MAX when there is no memory. */
size_t table_add_row(struct number_table *table);
void history_clear(struct number_table *table);
/* SIZE_MAX: none of that name. */
size_t number_table_column(const struct number_table *table, const char *name);

/* Reads a whole CSV file; names are in the arena. Errors: INVALID_ARGUMENT naming file and line. */
enum octet_status csv_read(octet_arena *arena, const char *path, struct number_table *out,
                           struct octet_error *err) OCTET_MUST_CHECK;
void csv_write_head(FILE *file, const struct number_table *table);
void csv_write_row(FILE *file, const struct number_table *table, size_t row);

#endif
