/* Training data: files of text or tokens as one long row of tokens, cut into rows of a batch.
 *
 * For: octet train. Bytes of a text are its tokens; token files are 16 or 32 bit little-endian
 * numbers, or an array of a safetensors file. Each file is a document, and a token may end one.
 * Decision: where a training row begins depends on seed, step and row alone, so that a run that
 * goes on from a checkpoint sees what it would have seen.
 *
 * Life: files stay mapped until corpus_close; the rest is in the arena. */
#ifndef OCTET_CLI_CORPUS_H
#define OCTET_CLI_CORPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "octet/arena.h"
#include "options.h"

enum { CORPUS_PARTS_MAX = 256 };

enum corpus_width { CORPUS_BYTES = 1, CORPUS_U16 = 2, CORPUS_U32 = 4, CORPUS_S64 = 8 };

struct corpus_part {
    const char *path;
    const unsigned char *data; /* of the first token */
    size_t first, count;       /* tokens */
    enum corpus_width width;
    bool is_signed;
    void *map; /* to be unmapped; NULL: none */
    size_t map_bytes;
    const struct octet_safetensors *file; /* to be closed; NULL: none */
};

struct corpus {
    struct corpus_part parts[CORPUS_PARTS_MAX];
    size_t part_count, count; /* count: tokens of all */
    int64_t document_end;     /* the token that ends a document; -1: none */
    size_t row_tokens;        /* of an array [rows, row_tokens]: rows are what they are; 0: cut */
};

/* Tokens [first, first + count) of a corpus. */
struct corpus_range {
    size_t first, count;
};

/* All [rows, length] S32, owned by the caller. */
struct corpus_batch {
    int64_t rows, length;
    int32_t *tokens, *targets, *positions, *segments, *mask;
};

/* option: "--data", for messages. format: NULL or "bytes", "u16", "u32"; a file that ends in
 * .safetensors is one, as FILE[:NAME]. Every token is checked against the vocabulary. Errors:
 * INVALID_ARGUMENT that names the file, the token and where it stands. */
enum octet_status corpus_open(octet_arena *arena, const char *option, const struct text_list *files,
                              const char *format, int64_t document_end, int64_t vocab_size,
                              struct corpus *out, struct octet_error *err) OCTET_MUST_CHECK;
void corpus_close(struct corpus *corpus);

/* Cuts the last `fraction` off for evaluation; whole rows where rows are given. */
void corpus_split(const struct corpus *corpus, double fraction, struct corpus_range *first,
                  struct corpus_range *last);
/* Can rows of that length be cut from the range? */
enum octet_status corpus_check(const struct corpus *corpus, const char *option,
                               const struct corpus_range *range, int64_t length,
                               struct octet_error *err) OCTET_MUST_CHECK;

/* Rows of step `step`: at places drawn by seed; of an array of rows, the next in its order, and
 * from the start again after the last. */
void corpus_fill(const struct corpus *corpus, const struct corpus_range *range, uint64_t seed,
                 int64_t step, struct corpus_batch *out);
/* Rows of the `index`-th of `batches` batches for evaluation, spread evenly over the range. */
void corpus_fill_even(const struct corpus *corpus, const struct corpus_range *range, int64_t index,
                      int64_t batches, struct corpus_batch *out);

/* Nats a token: of a model that knows only how often each token comes. counts: scratch, [vocab]. */
double corpus_unigram_entropy(const struct corpus *corpus, const struct corpus_range *range,
                              size_t *counts, size_t vocab_size);

#endif
