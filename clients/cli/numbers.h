/* Small values of options, and JSON that is written by hand. */
#ifndef OCTET_CLI_NUMBERS_H
#define OCTET_CLI_NUMBERS_H

#include "octet/v1/octet.pb-c.h"
#include "output.h"

/* A whole number of `length` characters within [min, max]. */
bool number_parse(const char *text, size_t length, int64_t min, int64_t max, int64_t *out);
/* "0,-1" as axes of an array with that rank, negative ones from the end; NULL: none.
 * option: its name, for the error. */
enum octet_status axes_parse(octet_arena *arena, const char *option, const char *text, int32_t rank,
                             size_t *count, int32_t **out,
                             struct octet_error *err) OCTET_MUST_CHECK;
/* "bfloat16" or "bf16"; NULL: unspecified. Errors name the nearest. */
enum octet_status dtype_parse(const char *option, const char *text, Octet__V1__DataType *out,
                              struct octet_error *err) OCTET_MUST_CHECK;

/* A text in quotes; bytes that are no UTF-8 must not come here. */
void json_text(struct output *out, const char *text);
/* A number as proto3 JSON writes it: "NaN", "Infinity" and "-Infinity" are texts. */
void json_number(struct output *out, double value);
/*   "name": value,\n */
void json_member(struct output *out, const char *name, double value);

#endif
