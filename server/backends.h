/* The backends that this daemon was told to open.
 *
 * For: placing sessions; opened before the first call, closed after the last. */
#ifndef OCTET_SERVER_BACKENDS_H
#define OCTET_SERVER_BACKENDS_H

#include "config.h"
#include "wire/methods.h"

enum { BACKENDS_MAX = 8 };

struct backends {
    struct octet_server_backend list[BACKENDS_MAX]; /* the first is where sessions go by default */
    size_t count;
    char text[CONFIG_TEXT_BYTES]; /* that names and devices are in */
};

/* config->backends: "cuda,opencl:1,cpu". All or none: one that cannot be opened is an error with
 * field "backends". Kernels may be compiled, which takes seconds the first time. */
enum octet_status backends_open(struct backends *backends, const struct config *config,
                                struct octet_error *err) OCTET_MUST_CHECK;
void backends_close(struct backends *backends); /* zeros are fine */

#endif
