/* How octet train tells what happens: rows of a table on standard output, one living line on a
 * terminal's standard error, the plot, and what to do after an interruption. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "plot.h"
#include "train.h"

enum { BAR_CELLS = 24, LINE_MS = 100, ROWS_DEFAULT = 25 };

static double value_at(const struct training *run, enum history_column column, size_t row)
{
    return run->history.values[column][row];
}

/* "2.3456", or blanks where there is nothing to tell. */
static const char *cell(char *buffer, size_t size, const char *format, double value)
{
    if (isnan(value))
        snprintf(buffer, size, "-");
    else {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(buffer, size, format, value);
#pragma GCC diagnostic pop
    }
    return buffer;
}

void train_clear_line(struct training *run)
{
    if (run->line_is_shown)
        fputs("\r\x1b[K", stderr);
    run->line_is_shown = false;
}

void train_show_event(struct training *run, const char *text)
{
    train_clear_line(run);
    output_printf(run->session->out, "%s\n", text);
    (void)output_flush(run->session->out);
}

void train_show_start(struct training *run)
{
    struct output *out = run->session->out;
    const char *terminal = getenv("TERM");
    char tokens[32];

    run->live = isatty(STDERR_FILENO) && terminal && strcmp(terminal, "dumb") != 0;
    output_printf(out, "%s: %s\n", run->model, run->about);
    output_printf(out,
                  "steps %" PRId64 " to %" PRId64 ", %" PRId64 " x %" PRId64
                  " tokens each, from %s tokens of %zu file%s\n",
                  run->step, run->steps, run->batch.rows, run->batch.length,
                  human_count((int64_t)run->train_range.count, tokens), run->corpus.part_count,
                  run->corpus.part_count == 1 ? "" : "s");
    output_printf(out, "unigram entropy of the data: %.4f nats a token\n", run->unigram_entropy);
    output_printf(out, "%6s %7s %7s %6s %8s %7s %8s %7s %8s %6s\n", "step", "loss", "mtp", "acc",
                  "rate", "|grad|", "tokens/s", "eval", "eval mtp", "acc");
    (void)output_flush(out);
}

/* 79 columns: a terminal has 80 unless somebody has made it wider. */
static void print_row(struct training *run, size_t row)
{
    char text[9][32];
    const double share = 100;

    output_printf(run->session->out, "%6.0f %7s %7s %6s %8s %7s %8s %7s %8s %6s\n",
                  value_at(run, HISTORY_STEP, row),
                  cell(text[0], 32, "%.4f", value_at(run, HISTORY_TRAIN_MAIN, row)),
                  cell(text[1], 32, "%.4f", value_at(run, HISTORY_TRAIN_MTP, row)),
                  cell(text[2], 32, "%.1f%%", share * value_at(run, HISTORY_TRAIN_ACCEPTANCE, row)),
                  cell(text[3], 32, "%.2e", value_at(run, HISTORY_LEARNING_RATE, row)),
                  cell(text[4], 32, "%.4f", value_at(run, HISTORY_GRAD_NORM, row)),
                  cell(text[5], 32, "%.0f", run->rate > 0 ? run->rate : (double)NAN),
                  cell(text[6], 32, "%.4f", value_at(run, HISTORY_EVAL_MAIN, row)),
                  cell(text[7], 32, "%.4f", value_at(run, HISTORY_EVAL_MTP, row)),
                  cell(text[8], 32, "%.1f%%", share * value_at(run, HISTORY_EVAL_ACCEPTANCE, row)));
    (void)output_flush(run->session->out);
}

/* Tokens a second, smoothed over about ten steps. */
static void measure_rate(struct training *run, size_t row)
{
    if (row == 0)
        return;
    double seconds = value_at(run, HISTORY_SECONDS, row) - value_at(run, HISTORY_SECONDS, row - 1);
    double now = (double)(run->batch.rows * run->batch.length) / seconds;

    if (seconds > 0) /* false for NaN: the first step */
        run->rate = run->rate > 0 ? run->rate * 0.9 + now * 0.1 : now;
}

/* Columns of the terminal, 80 when it does not tell. */
static size_t columns_of_terminal(void)
{
    struct winsize size;

    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : 80;
}

/* A line that were longer than the terminal is wide could not be overwritten: the bar goes first,
 * then what is at the end. */
static void print_line(struct training *run, size_t row)
{
    uint64_t now = octet_now_ns();
    char bar[64], mtp[32], left[32] = "", text[160];
    int64_t filled = run->step * BAR_CELLS / (run->steps ? run->steps : 1);
    size_t columns = columns_of_terminal();

    if (!run->live || isnan(value_at(run, HISTORY_TRAIN_MAIN, row)) ||
        (run->line_is_shown && now - run->line_ns < LINE_MS * 1000000u))
        return;
    snprintf(bar, sizeof bar, "[%.*s%.*s] ", (int)filled, "########################",
             (int)(BAR_CELLS - filled), "........................");
    if (run->rate > 0) {
        double seconds =
            (double)((run->steps - run->step) * run->batch.rows * run->batch.length) / run->rate;
        snprintf(left, sizeof left, "  %.0f tokens/s, %.0f:%02.0f left", run->rate,
                 floor(seconds / 60), floor(fmod(seconds, 60)));
    }
    int length =
        snprintf(text, sizeof text, "%" PRId64 "/%" PRId64 "  loss %.4f  mtp %s%s", run->step,
                 run->steps, value_at(run, HISTORY_TRAIN_MAIN, row),
                 cell(mtp, sizeof mtp, "%.4f", value_at(run, HISTORY_TRAIN_MTP, row)), left);
    bool fits = (size_t)length + BAR_CELLS + 3 < columns;
    fprintf(stderr, "\r%s%.*s\x1b[K", fits ? bar : "", (int)(columns - 1), text);
    fflush(stderr);
    run->line_is_shown = true;
    run->line_ns = now;
}

void train_show_step(struct training *run, size_t row)
{
    int64_t every = run->arguments.log_every ? run->arguments.log_every
                    : run->eval_range.count  ? train_eval_every(run)
                                             : (run->steps + ROWS_DEFAULT - 1) / ROWS_DEFAULT;
    bool has_eval = !isnan(value_at(run, HISTORY_EVAL_MAIN, row));

    measure_rate(run, row);
    if (has_eval || run->step % every == 0 || run->step == run->steps ||
        run->step == run->first_step + 1) {
        train_clear_line(run);
        print_row(run, row);
    }
    if (run->step < run->steps)
        print_line(run, row);
}

enum octet_status train_write_plot(struct training *run, struct octet_error *err)
{
    static const struct {
        enum history_column column;
        const char *name;
        int colour;
        bool faint, dash;
    } wanted[] = {{HISTORY_TRAIN_MAIN, "train", 0, true, false},
                  {HISTORY_TRAIN_MTP, "train MTP", 1, true, false},
                  {HISTORY_EVAL_MAIN, "eval", 0, false, false},
                  {HISTORY_EVAL_MTP, "eval MTP", 1, false, true}};
    struct plot_curve curves[4];
    struct plot plot = {.title = octet_arena_format(run->calls.arena, "%s", run->model),
                        .x_label = "step",
                        .y_label = "loss (nats a token)",
                        .curves = curves};
    size_t length;

    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        bool any = false;
        for (size_t row = 0; row < run->history.rows && !any; row++)
            any = !isnan(value_at(run, wanted[i].column, row));
        if (any)
            curves[plot.count++] = (struct plot_curve){.name = wanted[i].name,
                                                       .x = run->history.values[HISTORY_STEP],
                                                       .y = run->history.values[wanted[i].column],
                                                       .count = run->history.rows,
                                                       .colour = wanted[i].colour,
                                                       .faint = wanted[i].faint,
                                                       .dash = wanted[i].dash};
    }
    char *text = plot.title ? plot_draw(run->calls.arena, &plot, &length) : NULL;
    if (!text)
        return octet_arena_exhausted(run->calls.arena, err);
    return file_replace(run->arguments.plot, text, length, err);
}

/* The command again, as a shell takes it, with --resume. */
static void print_resume(struct training *run)
{
    struct output *out = run->session->out;
    const struct arguments *a = &run->arguments;

    output_text(out, "go on with:\n  octet");
    for (int i = 1; i < a->argc; i++) {
        if (strcmp(a->argv[i], "--overwrite") == 0 || strcmp(a->argv[i], "--resume") == 0)
            continue;
        bool plain = a->argv[i][strcspn(a->argv[i], " '\"\\$`*?[](){}<>|&;!#~\t\n")] == '\0';
        output_text(out, plain ? " " : " '");
        for (const char *c = a->argv[i]; *c; c++) {
            if (*c == '\'')
                output_text(out, "'\\'");
            output_write(out, c, 1);
        }
        output_text(out, plain ? "" : "'");
    }
    output_text(out, " --resume\n");
}

static void print_curve(struct training *run, const char *name, enum history_column column)
{
    double first = NAN, last = NAN, least = INFINITY;

    for (size_t row = 0; row < run->history.rows; row++) {
        double value = value_at(run, column, row);
        if (isnan(value))
            continue;
        first = isnan(first) ? value : first;
        last = value;
        least = value < least ? value : least;
    }
    if (!isnan(first))
        output_printf(run->session->out, "%-12s %.4f at first, %.4f at last, least %.4f\n", name,
                      first, last, least);
}

void train_show_end(struct training *run, bool interrupted)
{
    struct output *out = run->session->out;
    int64_t steps = run->step - run->first_step;
    double seconds = (double)(octet_now_ns() - run->started_ns) / 1e9;

    if (steps == 0 && !interrupted) {
        output_printf(out,
                      "\nnothing to do: checkpoint '%s' is at step %" PRId64 " of %" PRId64
                      "; a larger --steps goes on\n",
                      run->checkpoint, run->step, run->steps);
        return;
    }
    output_printf(out, "\n%s at step %" PRId64 " of %" PRId64 "; %" PRId64 " steps in this run\n",
                  interrupted ? "interrupted" : "done", run->step, run->steps, steps);
    print_curve(run, "loss", HISTORY_TRAIN_MAIN);
    print_curve(run, "mtp loss", HISTORY_TRAIN_MTP);
    print_curve(run, "eval loss", HISTORY_EVAL_MAIN);
    print_curve(run, "eval mtp", HISTORY_EVAL_MTP);
    output_printf(out, "%-12s %.1f s in all, %.0f tokens/s\n", "time", seconds,
                  (double)(run->step * run->batch.rows * run->batch.length) / seconds);
    if (run->arguments.csv)
        output_printf(out, "%-12s %s\n", "figures", run->arguments.csv);
    if (run->arguments.plot)
        output_printf(out, "%-12s %s\n", "plot", run->arguments.plot);
    if (interrupted)
        print_resume(run);
}
