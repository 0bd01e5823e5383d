/* A method that the daemon serves: what the loop must know of it, and what a lane runs. */
#ifndef OCTET_SERVER_METHOD_H
#define OCTET_SERVER_METHOD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "octet/status.h"

struct job;
struct octet_method;

enum call_shape {
    CALL_UNARY,    /* one request, one reply */
    CALL_WATCH,    /* one request; replies as the daemon's health changes */
    CALL_DIALOGUE, /* a reply to each request, until the client has said all */
    CALL_UPLOAD,   /* requests until the client has said all; then one reply */
    CALL_DOWNLOAD, /* one request, a reply after the other */
};

/* Two sets of lanes: health and reflection answer also when every compute lane is busy and its
 * queue full. */
enum pool { POOL_COMPUTE, POOL_CONTROL, POOL_COUNT };

struct method {
    const char *path; /* "/octet.v1.Octet/Trace" */
    enum call_shape shape;
    enum pool pool;
    bool is_public; /* needs no token */
    int64_t request_bytes_max;
    const char *limit_name; /* the setting that request_bytes_max comes from */
    bool takes_tensors;     /* its messages may be large; a job's first budget follows its size */
    bool is_step;           /* runs a model: a crew's work, however small the request */
    uint64_t memory_bytes;  /* the most that a job reserves: request, arena and reply */
    /* Runs on a lane: reads job->bytes, answers with job_reply or job->answer. */
    enum octet_status (*run)(struct job *job, struct octet_error *err);
    const void *data;                  /* run's own */
    const struct octet_method *method; /* of octet.v1.Octet; else NULL */
    /* The answer to an empty request, where it never changes: sent from the loop. NULL: none. */
    uint8_t *constant;
    size_t constant_length;
};

#endif
