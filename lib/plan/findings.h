/* A growing list of findings, and the config and plan that they are about. */
#ifndef OCTET_PLAN_FINDINGS_H
#define OCTET_PLAN_FINDINGS_H

#include "models/settings.h"
#include "octet/check.h"

struct oct_findings {
    octet_context *context;
    octet_arena *arena;
    const octet_config *config;
    const octet_plan *plan; /* NULL: it could not be made */
    struct octet_finding *items;
    size_t count, capacity;
    enum octet_status status; /* the first failure sticks */
    struct octet_error *err;
};

/* subject and remedy may be ""; both and the message are copied. */
void oct_find(struct oct_findings *f, enum octet_severity severity, const char *id,
              const char *subject, const char *remedy, const char *format, ...) OCTET_PRINTF(6, 7);

#define oct_find_bool(f, key) oct_config_bool((f)->config, OCT_KEY_##key)
#define oct_find_int(f, key) oct_config_int((f)->config, OCT_KEY_##key)
#define oct_find_is(f, key, text) oct_config_text_is((f)->config, OCT_KEY_##key, text)

#endif
