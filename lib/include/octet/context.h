/* The library's only home for state that outlives a call: limits and the cache of plans.
 *
 * Life: 1. One context a process is usual; several may coexist. 2. All functions that take a
 * context may be called from several threads at once. 3. Destroy it after everything made from it
 * is released. */
#ifndef OCTET_CONTEXT_H
#define OCTET_CONTEXT_H

#include <stdint.h>

#include "octet/status.h"

typedef struct octet_context octet_context;

/* 0 in a field means the default named beside it. */
struct octet_limits {
    uint64_t plan_memory_bytes;   /* 256 MiB: config, graph and plan of one model */
    uint64_t plan_cache_bytes;    /* 64 MiB: plans kept for the next request */
    uint32_t graph_nodes;         /* 1,000,000 nodes in one graph */
    uint32_t rules;               /* 256 rules in one set */
    uint32_t pattern_bytes;       /* 4096: length of one module_path */
    uint32_t pattern_match_steps; /* 100,000: PCRE2's match limit for one lookup */
    uint32_t yaml_bytes;          /* 1 MiB: one YAML text */
};

OCTET_API enum octet_status octet_context_create(const struct octet_limits *limits,
                                                 octet_context **out,
                                                 struct octet_error *err) OCTET_MUST_CHECK;
OCTET_API void octet_context_destroy(octet_context *context);
OCTET_API const struct octet_limits *octet_context_limits(const octet_context *context);

/* "0.1.0" and the git commit of the build ("unknown" outside a checkout). */
OCTET_API const char *octet_version(void);
OCTET_API const char *octet_git_commit(void);

#endif
