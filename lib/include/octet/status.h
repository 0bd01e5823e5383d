/* Status codes and errors.
 *
 * For: how every fallible function of liboctet says what went wrong.
 * Not for: programmer's errors, which are asserted.
 * Decision: the codes are gRPC's, number for number, so that a server needs no table of its own.
 *
 * Life: an octet_error belongs to the caller, usually on its stack; a function writes it only when
 * it fails, and the first writer wins where several could (the cause is nearer than the
 * consequence). */
#ifndef OCTET_STATUS_H
#define OCTET_STATUS_H

#include <stddef.h>

#if defined(__GNUC__)
#define OCTET_MUST_CHECK __attribute__((warn_unused_result))
#define OCTET_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define OCTET_MUST_CHECK
#define OCTET_PRINTF(text, first)
#endif
#define OCTET_API __attribute__((visibility("default")))

/* One list: name, gRPC's number. */
#define OCTET_STATUSES(X)                                                                          \
    X(OK, 0)                                                                                       \
    X(CANCELLED, 1)                                                                                \
    X(UNKNOWN, 2)                                                                                  \
    X(INVALID_ARGUMENT, 3)                                                                         \
    X(DEADLINE_EXCEEDED, 4)                                                                        \
    X(NOT_FOUND, 5)                                                                                \
    X(ALREADY_EXISTS, 6)                                                                           \
    X(PERMISSION_DENIED, 7)                                                                        \
    X(RESOURCE_EXHAUSTED, 8)                                                                       \
    X(FAILED_PRECONDITION, 9)                                                                      \
    X(ABORTED, 10)                                                                                 \
    X(OUT_OF_RANGE, 11)                                                                            \
    X(UNIMPLEMENTED, 12)                                                                           \
    X(INTERNAL, 13)                                                                                \
    X(UNAVAILABLE, 14)                                                                             \
    X(DATA_LOSS, 15)                                                                               \
    X(UNAUTHENTICATED, 16)

enum octet_status {
#define OCTET_STATUS_ENUM(name, number) OCTET_##name = number,
    OCTET_STATUSES(OCTET_STATUS_ENUM)
#undef OCTET_STATUS_ENUM
};

/* field: the path of the field at fault in the caller's terms ("rhs.shape",
 * "overrides[scan_layers]"), empty when no field is at fault. text: one sentence with the value and
 * what was expected. Both are cut, never overrun, and always end in NUL. */
struct octet_error {
    enum octet_status status;
    char field[256];
    char text[1024];
};

/* "INVALID_ARGUMENT" for OCTET_INVALID_ARGUMENT; "UNKNOWN" for numbers outside the list. */
OCTET_API const char *octet_status_name(enum octet_status status);

/* Writes err (which may be NULL) and returns status, so that a check is one line:
 *     return octet_fail(err, OCTET_INVALID_ARGUMENT, "batch_size", "%d is negative", n);
 * field may be NULL. */
OCTET_API enum octet_status octet_fail(struct octet_error *err, enum octet_status status,
                                       const char *field, const char *format, ...)
    OCTET_PRINTF(4, 5);

/* Puts "outer." before err->field ("shape" -> "rhs.shape"); a field that starts with '[' gets no
 * dot. Used on the way up, by whoever knows the field's name. Returns err->status. */
OCTET_API enum octet_status octet_error_within(struct octet_error *err, const char *outer);

/* The one sentence users see: "field 'rhs.shape': [4, 8] ..." or just the text, control characters
 * as '?'. Returns buffer. */
OCTET_API const char *octet_error_message(const struct octet_error *err, char *buffer, size_t size);

#endif
