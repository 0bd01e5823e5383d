/* What the files of octet train share: the run and how it is told. */
#ifndef OCTET_CLI_TRAIN_H
#define OCTET_CLI_TRAIN_H

#include "corpus.h"
#include "history.h"
#include "session.h"

struct training {
    struct session *session; /* the command's: its arena lives as long as the run */
    struct session calls;    /* the same with an arena that each step empties */
    struct arguments arguments;
    struct octet_cancel cancel; /* of calls: Ctrl-C ends the run between two steps */
    struct corpus corpus, eval_corpus;
    struct corpus_range train_range, eval_range; /* eval_range.count 0: no evaluation */
    struct corpus_batch batch;
    char *session_id;
    const char *model, *checkpoint;
    const char *place;  /* where the checkpoint is, for people */
    const char *folder; /* the same of a daemon of its own; NULL: somebody else's daemon */
    const char *about;  /* the model's size and how much of it is quantized, for people */
    int64_t vocab_size, steps, step, first_step;
    int64_t saved_step;                     /* of the last checkpoint of this run; 0: none yet */
    Octet__V1__OptimizerSettings optimizer; /* what was set, so that it counts after --resume too */
    double mtp_factor, unigram_entropy;
    struct number_table history;
    FILE *csv; /* NULL: none */
    uint64_t started_ns;
    /* Of the terminal's line. */
    bool live, line_is_shown, plot_has_failed;
    uint64_t line_ns;
    double rate; /* tokens a second, of the last steps */
};

int64_t train_eval_every(const struct training *run); /* steps between evaluations */

/* train_view.c */
void train_show_start(struct training *run);
void train_show_step(struct training *run, size_t row); /* after each */
void train_show_event(struct training *run, const char *text);
void train_clear_line(struct training *run);
void train_show_end(struct training *run, bool interrupted);
enum octet_status train_write_plot(struct training *run, struct octet_error *err) OCTET_MUST_CHECK;

#endif
