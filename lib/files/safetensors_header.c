/* The header of a safetensors file: JSON of one shape, read strictly.
 *
 * For: bytes that anybody may have made. Not for: JSON in general.
 * Decision: a parser of its own. A general one builds a tree first, and 100 MB of "[[[[" or of tiny
 * members become gigabytes of nodes before anyone can say that they are no tensors. This one knows
 * the only two objects that may stand here, so its depth is fixed; it reads the text twice, the
 * first time to count, and then asks for exactly four pieces of memory: tensors (some two bytes for
 * each byte of header at worst), metadata pairs (three) and all texts together (one). */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "safetensors_private.h"

struct reader {
    const uint8_t *begin, *at, *end;
    char *texts; /* decoded strings, one after the other; the header's length is room for all */
    size_t text_used;
    struct oct_safetensors_header *out; /* its lists are NULL while counting */
    struct octet_error *err;
};

OCTET_PRINTF(3, 4)
static enum octet_status fail(struct reader *r, const char *field, const char *format, ...)
{
    char text[200];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return octet_fail(r->err, OCTET_INVALID_ARGUMENT, field, "byte %td of the header: %s",
                      r->at - r->begin, text);
}

static void skip_blanks(struct reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\r' || *r->at == '\t'))
        r->at++;
}

/* What stands at the cursor, for messages: "'x'", "byte 0xff", "the end". */
static const char *found(const struct reader *r, char buffer[16])
{
    if (r->at == r->end)
        return "the end";
    snprintf(buffer, 16, *r->at > 0x20 && *r->at < 0x7f ? "'%c'" : "byte 0x%02x", *r->at);
    return buffer;
}

static bool take(struct reader *r, char c)
{
    skip_blanks(r);
    if (r->at == r->end || *r->at != (uint8_t)c)
        return false;
    r->at++;
    return true;
}

static enum octet_status expect(struct reader *r, char c, const char *field)
{
    char buffer[16];

    return take(r, c) ? OCTET_OK : fail(r, field, "'%c' expected, not %s", c, found(r, buffer));
}

/* Behind a member or element: `more` when a comma follows, else the closing bracket must. */
static enum octet_status next_item(struct reader *r, char close, const char *field, bool *more)
{
    char buffer[16];

    *more = take(r, ',');
    if (*more || take(r, close))
        return OCTET_OK;
    return fail(r, field, "',' or '%c' expected, not %s", close, found(r, buffer));
}

static int hex_digit(uint8_t c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Four hexadecimal digits; -1 when there are none. */
static int32_t take_hex(struct reader *r)
{
    int32_t value = 0;

    for (int i = 0; i < 4; i++) {
        int digit = r->at < r->end ? hex_digit(*r->at) : -1;
        if (digit < 0)
            return -1;
        value = 16 * value + digit;
        r->at++;
    }
    return value;
}

static void put_utf8(struct reader *r, uint32_t c)
{
    char *to = r->texts + r->text_used;
    int tail = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const uint8_t lead[] = {0, 0xc0, 0xe0, 0xf0};

    *to++ = (char)(lead[tail] | (c >> (6 * tail)));
    for (int i = tail - 1; i >= 0; i--)
        *to++ = (char)(0x80 | ((c >> (6 * i)) & 0x3f));
    r->text_used += (size_t)tail + 1;
}

/* Behind "\u": six bytes or twelve become at most four. */
static enum octet_status take_code_point(struct reader *r, const char *field)
{
    int32_t high = take_hex(r), low;

    if (high < 0)
        return fail(r, field, "four hexadecimal digits expected");
    if (high == 0)
        return fail(r, field, "a text that holds NUL");
    if (high >= 0xdc00 && high < 0xe000)
        return fail(r, field, "half of a surrogate pair");
    if (high >= 0xd800 && high < 0xdc00) {
        bool second = r->end - r->at >= 2 && r->at[0] == '\\' && r->at[1] == 'u';
        r->at += second ? 2 : 0;
        low = second ? take_hex(r) : -1;
        if (low < 0xdc00 || low >= 0xe000)
            return fail(r, field, "half of a surrogate pair");
        high = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
    }
    put_utf8(r, (uint32_t)high);
    return OCTET_OK;
}

static enum octet_status take_escape(struct reader *r, const char *field)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    const char *name = r->at < r->end && *r->at ? memchr(names, *r->at, sizeof names - 1) : NULL;

    if (name) {
        r->texts[r->text_used++] = values[name - names];
        r->at++;
        return OCTET_OK;
    }
    if (r->at < r->end && *r->at == 'u') {
        r->at++;
        return take_code_point(r, field);
    }
    return fail(r, field, "an escape that JSON does not have");
}

static enum octet_status take_text(struct reader *r, const char *field, const char **out)
{
    enum octet_status status = expect(r, '"', field);
    size_t start = r->text_used;

    while (status == OCTET_OK) {
        size_t length = oct_safetensors_utf8(r->at, r->end);
        if (length == 0)
            return fail(r, field, r->at < r->end ? "not UTF-8" : "a text without its end");
        uint8_t c = *r->at;
        if (c < 0x20)
            return fail(r, field, "a control character in a text (byte 0x%02x)", c);
        if (c == '"' || c == '\\')
            r->at++;
        if (c == '"') {
            r->texts[r->text_used++] = '\0'; /* in place of the quotes */
            *out = r->texts + start;
            return OCTET_OK;
        }
        if (c == '\\') {
            status = take_escape(r, field);
            continue;
        }
        memcpy(r->texts + r->text_used, r->at, length);
        r->text_used += length;
        r->at += length;
    }
    return status;
}

/* A tensor while its members are read. */
struct tensor {
    const char *name;
    struct oct_safetensors_entry entry;
    bool has_dtype, has_shape, has_offsets;
};

OCTET_PRINTF(4, 5)
static enum octet_status fail_in(struct reader *r, const struct tensor *t, const char *part,
                                 const char *format, ...)
{
    char text[200];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return oct_safetensors_fail(r->err, t->name, part, "byte %td of the header: %s",
                                r->at - r->begin, text);
}

static enum octet_status take_number(struct reader *r, const struct tensor *t, const char *part,
                                     int64_t *out)
{
    char buffer[16];
    int64_t value = 0;

    skip_blanks(r);
    const uint8_t *start = r->at;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *r->at - '0', &value))
            return fail_in(r, t, part, "the number does not fit 63 bits");
    bool more = r->at < r->end && memchr(".eE", *r->at, 3);
    if (r->at == start || more)
        return fail_in(r, t, part, "a whole number from 0 up expected, not %s", found(r, buffer));
    if (*start == '0' && r->at - start > 1)
        return fail_in(r, t, part, "a number with zeros in front");
    *out = value;
    return OCTET_OK;
}

/* "[1, 2]" into out[max]. */
static enum octet_status take_numbers(struct reader *r, const struct tensor *t, const char *part,
                                      int32_t max, int64_t *out, int32_t *count)
{
    char buffer[16];
    bool more;

    *count = 0;
    if (!take(r, '['))
        return fail_in(r, t, part, "'[' expected, not %s", found(r, buffer));
    if (take(r, ']'))
        return OCTET_OK;
    do {
        if (*count == max)
            return fail_in(r, t, part, "more than %d numbers", max);
        enum octet_status status = take_number(r, t, part, &out[(*count)++]);
        if (status != OCTET_OK)
            return status;
        more = take(r, ',');
    } while (more);
    return take(r, ']') ? OCTET_OK
                        : fail_in(r, t, part, "',' or ']' expected, not %s", found(r, buffer));
}

static enum octet_status take_dtype(struct reader *r, struct tensor *t)
{
    const char *name;
    enum octet_status status = take_text(r, "header", &name);

    if (status != OCTET_OK)
        return status;
    t->entry.named.array.dtype = oct_safetensors_dtype_find(name);
    if (t->entry.named.array.dtype == OCTET_DTYPE_UNSPECIFIED)
        return oct_safetensors_fail(r->err, t->name, "dtype",
                                    "'%.40s' is none of the types that Octet reads: F32, BF16, "
                                    "F16, F8_E4M3, F8_E5M2, F8_E8M0, F4, I8, I32, I64, U8, BOOL",
                                    name);
    return OCTET_OK;
}

static enum octet_status take_offsets(struct reader *r, struct tensor *t)
{
    int64_t offsets[2];
    int32_t count;
    enum octet_status status = take_numbers(r, t, "data_offsets", 2, offsets, &count);

    if (status != OCTET_OK)
        return status;
    if (count != 2)
        return oct_safetensors_fail(r->err, t->name, "data_offsets",
                                    "two numbers expected, begin and end, not %d", count);
    if (offsets[0] > offsets[1])
        return oct_safetensors_fail(r->err, t->name, "data_offsets",
                                    "begin %" PRId64 " is behind end %" PRId64, offsets[0],
                                    offsets[1]);
    t->entry.begin = offsets[0];
    t->entry.end = offsets[1];
    return OCTET_OK;
}

static enum octet_status take_member(struct reader *r, struct tensor *t)
{
    struct octet_array *array = &t->entry.named.array;
    enum octet_status status;
    const char *key;

    if ((status = take_text(r, "header", &key)) || (status = expect(r, ':', "header")))
        return status;
    bool *seen = strcmp(key, "dtype") == 0          ? &t->has_dtype
                 : strcmp(key, "shape") == 0        ? &t->has_shape
                 : strcmp(key, "data_offsets") == 0 ? &t->has_offsets
                                                    : NULL;
    if (!seen)
        return oct_safetensors_fail(
            r->err, t->name, "",
            "has a key '%.40s'; a tensor has dtype, shape and data_offsets, nothing else", key);
    if (*seen)
        return oct_safetensors_fail(r->err, t->name, key, "is there twice");
    *seen = true;
    if (seen == &t->has_dtype)
        return take_dtype(r, t);
    if (seen == &t->has_shape)
        return take_numbers(r, t, "shape", OCTET_ARRAY_RANK_MAX, array->dim, &array->rank);
    return take_offsets(r, t);
}

static enum octet_status check_span(const struct tensor *t, struct octet_error *err)
{
    const struct octet_array *array = &t->entry.named.array;
    int64_t bytes = oct_safetensors_bytes(array), span = t->entry.end - t->entry.begin;
    char shape[200];

    octet_array_shape_text(array, shape, sizeof shape);
    if (bytes < 0)
        return oct_safetensors_fail(err, t->name, "shape",
                                    "%s is an odd number of 4-bit elements, which do not fill "
                                    "their last byte",
                                    shape);
    if (bytes == INT64_MAX)
        return oct_safetensors_fail(err, t->name, "shape", "%s has more bytes than 63 bits count",
                                    shape);
    if (bytes != span)
        return oct_safetensors_fail(err, t->name, "data_offsets",
                                    "the span has %" PRId64 " bytes; %s of %s needs %" PRId64, span,
                                    shape, oct_safetensors_dtype_name(array->dtype), bytes);
    return OCTET_OK;
}

static enum octet_status take_tensor(struct reader *r, const char *name)
{
    struct tensor t = {.name = name};
    char buffer[16];
    bool more = true;

    if (!take(r, '{'))
        return fail_in(r, &t, "", "'{' expected, not %s", found(r, buffer));
    if (take(r, '}'))
        more = false;
    while (more) {
        enum octet_status status = take_member(r, &t);
        if (status == OCTET_OK)
            status = next_item(r, '}', "header", &more);
        if (status != OCTET_OK)
            return status;
    }
    const char *missing = !t.has_dtype     ? "dtype"
                          : !t.has_shape   ? "shape"
                          : !t.has_offsets ? "data_offsets"
                                           : NULL;
    if (missing)
        return oct_safetensors_fail(r->err, name, missing, "is missing");
    enum octet_status status = check_span(&t, r->err);
    if (status != OCTET_OK)
        return status;
    t.entry.named.name = name;
    if (r->out->entries)
        r->out->entries[r->out->count] = t.entry;
    r->out->count++;
    return OCTET_OK;
}

static enum octet_status take_metadata(struct reader *r)
{
    enum octet_status status = expect(r, '{', "metadata");
    struct octet_pair pair;
    bool more = true;

    if (status == OCTET_OK && take(r, '}'))
        return OCTET_OK;
    while (status == OCTET_OK && more) {
        if ((status = take_text(r, "metadata", &pair.key)) ||
            (status = expect(r, ':', "metadata")) ||
            (status = take_text(r, "metadata", &pair.value)))
            return status;
        if (r->out->metadata)
            r->out->metadata[r->out->metadata_count] = pair;
        r->out->metadata_count++;
        status = next_item(r, '}', "metadata", &more);
    }
    return status;
}

static enum octet_status read_once(struct reader *r)
{
    bool more = true, has_metadata = false;
    enum octet_status status;
    const char *name;

    if (r->at == r->end || *r->at != '{')
        return fail(r, "header", "the header must begin with '{'");
    r->at++;
    if (take(r, '}'))
        more = false;
    while (more) {
        if ((status = take_text(r, "header", &name)) || (status = expect(r, ':', "header")))
            return status;
        bool metadata = strcmp(name, OCT_SAFETENSORS_METADATA) == 0;
        if (metadata && has_metadata)
            return fail(r, "metadata", "is there twice");
        has_metadata |= metadata;
        status = metadata ? take_metadata(r) : take_tensor(r, name);
        if (status == OCTET_OK)
            status = next_item(r, '}', "header", &more);
        if (status != OCTET_OK)
            return status;
    }
    skip_blanks(r);
    return r->at == r->end ? OCTET_OK : fail(r, "header", "something follows the last '}'");
}

enum octet_status oct_safetensors_header_read(octet_arena *arena, const uint8_t *text,
                                              size_t length, struct oct_safetensors_header *out,
                                              struct octet_error *err)
{
    struct reader r = {.begin = text, .at = text, .end = text + length, .out = out, .err = err};

    *out = (struct oct_safetensors_header){0};
    r.texts = octet_arena_alloc(arena, length);
    if (!r.texts)
        return octet_arena_exhausted(arena, err);
    enum octet_status status = read_once(&r);
    if (status != OCTET_OK)
        return status;
    out->entries = OCTET_NEW_ARRAY(arena, out->count, struct oct_safetensors_entry);
    out->metadata = OCTET_NEW_ARRAY(arena, out->metadata_count, struct octet_pair);
    if (!out->entries || !out->metadata)
        return octet_arena_exhausted(arena, err);
    out->count = out->metadata_count = r.text_used = 0;
    r.at = text;
    return read_once(&r);
}
