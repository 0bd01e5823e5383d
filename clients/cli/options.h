/* The command line as data: commands, their options, and what was given.
 *
 * For: parser, help and shell completion, which all read the two tables in options.c.
 * Not for: what the words mean to a model; that is the request's business. */
#ifndef OCTET_CLI_OPTIONS_H
#define OCTET_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "octet/arena.h"

enum command_id {
    COMMAND_TRACE = 1 << 0,
    COMMAND_CHECK = 1 << 1,
    COMMAND_VERIFY = 1 << 2,
    COMMAND_INSPECT = 1 << 3,
    COMMAND_PLAN = 1 << 4,
    COMMAND_INFO = 1 << 5,
    COMMAND_COMPLETION = 1 << 6,
    COMMAND_HELP = 1 << 7,
    COMMAND_QUANTIZE = 1 << 8,
    COMMAND_DEQUANTIZE = 1 << 9,
    COMMAND_DOT = 1 << 10,
    COMMAND_GMM = 1 << 11,
    COMMAND_BENCH = 1 << 12,
    COMMAND_SESSION = 1 << 13,
    COMMAND_TRAIN = 1 << 14,
    COMMAND_PLOT = 1 << 15,
};
/* Those that compute with arrays of files. */
#define COMMANDS_OF_TENSORS (COMMAND_QUANTIZE | COMMAND_DEQUANTIZE | COMMAND_DOT | COMMAND_GMM)

struct session;

struct command {
    const char *name;
    unsigned id;                         /* one of enum command_id */
    const char *operands;                /* as in the usage line */
    const char *summary;                 /* half a sentence */
    const char *about;                   /* what help says below the usage line */
    int (*run)(struct session *session); /* returns the exit status */
};

enum option_kind {
    OPTION_FLAG,
    OPTION_TEXT,
    OPTION_NUMBER, /* from 1 up; 0: not given */
    OPTION_INDEX,  /* from 0 up; -1: not given */
    OPTION_LIST,
    OPTION_AGAINST
};

struct option {
    const char *name;  /* without the dashes */
    const char *value; /* what help calls its value; NULL: none */
    const char *help;  /* half a sentence */
    unsigned commands; /* those that take it */
    enum option_kind kind;
    unsigned group; /* options of one group exclude each other; 0: none */
    size_t offset;  /* of its field in struct arguments */
};

struct text_list {
    const char **items;
    size_t count;
};

/* What was given. Texts are argv's own; lists live in the arena. */
struct arguments {
    int argc;
    char **argv;
    const struct command *command;
    const char *log;                    /* verify's first operand */
    const char *model;                  /* NULL: none */
    const char *topic;                  /* of help, completion, bench; what session does */
    struct text_list operands;          /* FILE[:NAME] */
    struct text_list overrides;         /* KEY=VALUE */
    bool compare;                       /* --against was given */
    const char *against_model;          /* NULL: the same */
    struct text_list against_overrides; /* KEY=VALUE, on top of overrides */
    const char *config, *rules, *server, *lock, *format;
    struct text_list require, forbid;
    int64_t batch, sequence, timeout, threads; /* 0: not given */
    bool table, json, coverage, strict, local, help, markdown, version;
    /* Of commands with tensors. */
    const char *qtype, *method, *axes, *scale_dtype, *dtype, *output;
    const char *module, *weight, *cotangent, *out_dtype, *reference, *dims, *op;
    const char *scale, *lhs_scale, *rhs_scale;
    /* A rule in place of --rules. */
    const char *weight_qtype, *act_qtype, *bwd_qtype, *weight_method, *act_method, *bwd_method;
    const char *tile_size, *bwd_tile_size, *sparsity;
    struct text_list tiles, contract, batch_axes;
    /* Of sessions, training, plots and bench step. */
    struct text_list data, eval;
    const char *tokens, *eval_fraction, *plot, *csv, *checkpoint, *data_dir, *mode, *from, *kind;
    const char *columns, *title, *bench_model, *arm, *kernels, *core, *layout;
    struct text_list shapes; /* of bench */
    int64_t experts, top;
    bool cold;
    const char *backend, *accumulation;
    int64_t steps, eval_every, eval_batches, save_every, log_every, lease, runs;
    int64_t first_step;         /* 0: all */
    int64_t seed, document_end; /* -1: not given */
    bool resume, overwrite, infer, empty;
    bool qwix_compatible, transpose_rhs, disable_channelwise_axes, compare_unquantized;
};

extern const struct command commands[];
extern const size_t command_count;
extern const struct option options[];
extern const size_t option_count;

/* 'o' for --output, which may be given as -o; 0: none. */
char option_letter(const struct option *option);
const struct command *command_find(const char *name); /* NULL: none */
const char *command_nearest(const char *name);

/* Is there a model in what was given, in one of the three ways to name it? */
bool arguments_name_model(const struct arguments *out);
/* Errors: INVALID_ARGUMENT; unknown commands and options name the nearest. */
enum octet_status arguments_parse(octet_arena *arena, int argc, char **argv, struct arguments *out,
                                  struct octet_error *err) OCTET_MUST_CHECK;

#endif
