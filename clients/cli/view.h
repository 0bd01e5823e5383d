/* Pieces that several commands print. Each returns NULL when there is no memory. */
#ifndef OCTET_CLI_VIEW_H
#define OCTET_CLI_VIEW_H

#include "session.h"

/* "None" for -1, else the index and what the rule makes of the operands: "0 float8_e4m3fn",
 * "1 float8_e4m3fn/int8" where weights and activations differ. */
const char *view_rule(octet_arena *arena, const Octet__V1__Trace *trace, int rule);
/* All that is set in a rule, in one line: "module_path='decoder/.*' weight_qtype=int8". */
const char *view_rule_settings(octet_arena *arena, const Octet__V1__QuantizationRule *rule);
/* "[1, 128, 7168]" */
const char *view_shape(octet_arena *arena, const int64_t *sizes, size_t rank);
/* "31.62 dB"; "no loss" for Infinity, "-" for NaN. */
const char *view_decibel(octet_arena *arena, double decibel);
/* A name from a file: control characters, which could steer the terminal, become '?'. */
const char *view_name(octet_arena *arena, const char *name);
/* Qwix's own line in the buffer; returns its length. */
size_t view_line(const Octet__V1__Interception *from, char *buffer, size_t size);
/* Is it a line of the plain trace? Qwix's own, and the lookups that MaxText makes for grouped
 * matmuls. */
bool view_is_line(const Octet__V1__Interception *from);
/* Rules that match nothing, on standard error, so that what is printed stays the answer alone. */
void view_warn_unused(const Octet__V1__Trace *trace);

#endif
