/* A growing list of findings; for the files of check. */
#ifndef OCTET_PLAN_FINDINGS_PRIVATE_H
#define OCTET_PLAN_FINDINGS_PRIVATE_H

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

/* What MaxText refuses or crashes on although Octet can trace it (check_maxtext.c), and what
 * experts know to be risky (check_risks.c). */
void oct_check_maxtext(struct oct_findings *f);
void oct_check_risks(struct oct_findings *f);

#define oct_find_bool(f, key) oct_config_bool((f)->config, OCT_KEY_##key)
#define oct_find_int(f, key) oct_config_int((f)->config, OCT_KEY_##key)
#define oct_find_is(f, key, text) oct_config_text_is((f)->config, OCT_KEY_##key, text)

#endif
