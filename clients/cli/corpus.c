/* See corpus.h. */
#include "corpus.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "octet/safetensors.h"
#include "tensors.h"

static int64_t token_of(const struct corpus_part *part, size_t i)
{
    const unsigned char *at = part->data + i * part->width;
    uint64_t value = 0;

    for (int byte = (int)part->width - 1; byte >= 0; byte--)
        value = value << 8 | at[byte];
    return part->is_signed && part->width == CORPUS_U32 ? (int32_t)value : (int64_t)value;
}

static const struct corpus_part *part_of(const struct corpus *corpus, size_t at)
{
    size_t low = 0, high = corpus->part_count;

    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        *(corpus->parts[middle].first <= at ? &low : &high) = middle;
    }
    return &corpus->parts[low];
}

static enum octet_status map_file(struct corpus_part *part, struct octet_error *err)
{
    int fd = open(part->path, O_RDONLY | O_CLOEXEC);
    struct stat about;

    if (fd < 0 || fstat(fd, &about) != 0) {
        int error = errno;
        if (fd >= 0)
            close(fd);
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "cannot be opened: %s",
                          strerror(error));
    }
    if (!S_ISREG(about.st_mode) || about.st_size == 0) {
        close(fd);
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "%s",
                          S_ISREG(about.st_mode) ? "is empty" : "is not a regular file");
    }
    part->map_bytes = (size_t)about.st_size;
    part->map = mmap(NULL, part->map_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (part->map == MAP_FAILED) {
        part->map = NULL;
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "cannot be mapped: %s",
                          strerror(errno));
    }
    if (part->map_bytes % part->width)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                          "has %zu bytes, which is no multiple of the %d of a token",
                          part->map_bytes, part->width);
    part->data = part->map;
    part->count = part->map_bytes / part->width;
    return OCTET_OK;
}

/* FILE.safetensors[:NAME] */
static enum octet_status open_array(struct corpus *corpus, octet_arena *arena, const char *text,
                                    struct corpus_part *part, struct octet_error *err)
{
    struct tensors set = {.arena = arena};
    struct tensor found = {0};
    enum octet_status status = tensors_find(&set, "array", text, &found, err);

    if (set.file_count)
        part->file = set.files[0].file;
    if (status != OCTET_OK)
        return status;
    switch (found.array.dtype) {
    case OCTET_DTYPE_U8:
        part->width = CORPUS_BYTES;
        break;
    case OCTET_DTYPE_S32:
        part->width = CORPUS_U32;
        part->is_signed = true;
        break;
    case OCTET_DTYPE_S64:
        part->width = CORPUS_S64;
        break;
    default:
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                          "the array is %s; tokens are int32, int64 or uint8",
                          octet_dtype_name(found.array.dtype));
    }
    if (found.array.rank < 1 || found.array.rank > 2 || octet_array_elements(&found.array) == 0)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                          "the array has %d axes; tokens are [count] or [rows, row's tokens], and "
                          "not none",
                          found.array.rank);
    part->data = found.array.data;
    part->count = (size_t)octet_array_elements(&found.array);
    corpus->row_tokens = found.array.rank == 2 ? (size_t)found.array.dim[1] : 0;
    return OCTET_OK;
}

static enum octet_status check_tokens(const struct corpus_part *part, int64_t vocab_size,
                                      struct octet_error *err)
{
    for (size_t i = 0; i < part->count; i++) {
        int64_t token = token_of(part, i);
        if (token < 0 || token >= vocab_size)
            return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                              "token %zu is %" PRId64 ", the model's vocab_size is %" PRId64 "%s",
                              i, token, vocab_size,
                              part->width == CORPUS_BYTES ? " (bytes need 256)" : "");
    }
    return OCTET_OK;
}

static bool is_safetensors(const char *text)
{
    const char *found = strstr(text, ".safetensors");

    return found && strchr(":", found[12]); /* strchr finds the NUL too */
}

static enum octet_status open_part(struct corpus *corpus, octet_arena *arena, const char *text,
                                   const char *format, int64_t vocab_size, struct octet_error *err)
{
    struct corpus_part *part = &corpus->parts[corpus->part_count++];

    *part = (struct corpus_part){.path = text, .first = corpus->count, .width = CORPUS_BYTES};
    if (format && strcmp(format, "bytes") != 0)
        part->width = strcmp(format, "u16") == 0 ? CORPUS_U16 : CORPUS_U32;
    enum octet_status status =
        is_safetensors(text) ? open_array(corpus, arena, text, part, err) : map_file(part, err);
    if (status == OCTET_OK)
        status = check_tokens(part, vocab_size, err);
    corpus->count += part->count;
    return status;
}

enum octet_status corpus_open(octet_arena *arena, const char *option, const struct text_list *files,
                              const char *format, int64_t document_end, int64_t vocab_size,
                              struct corpus *out, struct octet_error *err)
{
    enum octet_status status = OCTET_OK;

    *out = (struct corpus){.document_end = document_end};
    if (files->count > CORPUS_PARTS_MAX)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "option %s: more than %d files",
                          option, CORPUS_PARTS_MAX);
    for (size_t i = 0; i < files->count && status == OCTET_OK; i++) {
        struct octet_error inner = {0};
        status = open_part(out, arena, files->items[i], format, vocab_size, &inner);
        if (status == OCTET_OK && out->row_tokens && files->count > 1)
            status = octet_fail(&inner, OCTET_INVALID_ARGUMENT, NULL,
                                "an array of rows goes with no other file");
        if (status != OCTET_OK)
            octet_fail(err, status, NULL, "option %s '%.300s': %.600s", option, files->items[i],
                       inner.text);
    }
    if (status != OCTET_OK)
        corpus_close(out);
    return status;
}

void corpus_close(struct corpus *corpus)
{
    for (size_t i = 0; i < corpus->part_count; i++) {
        if (corpus->parts[i].map)
            munmap(corpus->parts[i].map, corpus->parts[i].map_bytes);
        octet_safetensors_close(corpus->parts[i].file);
    }
    corpus->part_count = 0;
}

void corpus_split(const struct corpus *corpus, double fraction, struct corpus_range *first,
                  struct corpus_range *last)
{
    size_t unit = corpus->row_tokens ? corpus->row_tokens : 1;
    size_t held = (size_t)((double)(corpus->count / unit) * fraction) * unit;

    *first = (struct corpus_range){0, corpus->count - held};
    *last = (struct corpus_range){corpus->count - held, held};
}

enum octet_status corpus_check(const struct corpus *corpus, const char *option,
                               const struct corpus_range *range, int64_t length,
                               struct octet_error *err)
{
    size_t needed = (size_t)length + 1;

    if (corpus->row_tokens && corpus->row_tokens != needed)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                          "option %s: its rows have %zu tokens; --length %" PRId64
                          " needs %zu, the last one as a target",
                          option, corpus->row_tokens, length, needed);
    if (range->count < needed)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                          "option %s: %zu tokens are too few for a row of %" PRId64
                          " and its targets",
                          option, range->count, length);
    return OCTET_OK;
}

/* One row from token `first` on. A document's last token has no target. */
static void fill_row(const struct corpus *corpus, size_t first, int64_t row,
                     struct corpus_batch *out)
{
    const struct corpus_part *part = part_of(corpus, first);
    int64_t length = out->length, at = row * length;
    int32_t segment = 1, position = 0;

    for (int64_t i = 0; i < length; i++, at++) {
        int64_t token = token_of(part, first + (size_t)i - part->first);
        bool ends = token == corpus->document_end;
        if (first + (size_t)i + 1 == part->first + part->count) {
            ends = true;
            part += part + 1 < corpus->parts + corpus->part_count;
        }
        out->tokens[at] = (int32_t)token;
        out->segments[at] = segment;
        out->positions[at] = position++;
        out->mask[at] = !ends;
        out->targets[at] = ends ? 0 : (int32_t)token_of(part, first + (size_t)i + 1 - part->first);
        if (ends) {
            segment++;
            position = 0;
        }
    }
}

/* SplitMix64: seed, step and row to 64 bits that look like chance. */
static uint64_t scramble(uint64_t value)
{
    value += 0x9e3779b97f4a7c15u;
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
    value = (value ^ value >> 27) * 0x94d049bb133111ebu;
    return value ^ value >> 31;
}

void corpus_fill(const struct corpus *corpus, const struct corpus_range *range, uint64_t seed,
                 int64_t step, struct corpus_batch *out)
{
    for (int64_t row = 0; row < out->rows; row++) {
        size_t first;
        if (corpus->row_tokens) {
            size_t rows = range->count / corpus->row_tokens;
            first = ((size_t)step * (size_t)out->rows + (size_t)row) % rows * corpus->row_tokens;
        } else {
            uint64_t places = range->count - (size_t)out->length;
            uint64_t drawn = scramble(scramble(scramble(seed) ^ (uint64_t)step) ^ (uint64_t)row);
            first = (size_t)(drawn % places);
        }
        fill_row(corpus, range->first + first, row, out);
    }
}

void corpus_fill_even(const struct corpus *corpus, const struct corpus_range *range, int64_t index,
                      int64_t batches, struct corpus_batch *out)
{
    size_t all = (size_t)(batches * out->rows);

    for (int64_t row = 0; row < out->rows; row++) {
        size_t i = (size_t)(index * out->rows + row), first;
        if (corpus->row_tokens)
            first = i % (range->count / corpus->row_tokens) * corpus->row_tokens;
        else
            first = (size_t)((double)(range->count - (size_t)out->length - 1) * (double)i /
                             (double)all);
        fill_row(corpus, range->first + first, row, out);
    }
}

double corpus_unigram_entropy(const struct corpus *corpus, const struct corpus_range *range,
                              size_t *counts, size_t vocab_size)
{
    const struct corpus_part *part = part_of(corpus, range->first);
    double sum = 0;

    memset(counts, 0, vocab_size * sizeof *counts);
    for (size_t i = range->first; i < range->first + range->count; i++) {
        part += i == part->first + part->count;
        counts[token_of(part, i - part->first)]++;
    }
    for (size_t token = 0; token < vocab_size; token++)
        if (counts[token])
            sum += (double)counts[token] * log((double)counts[token]);
    return range->count ? log((double)range->count) - sum / (double)range->count : 0;
}
