/* Services: every method that the daemon serves, found by its path. */
#ifndef OCTET_SERVER_SERVICES_H
#define OCTET_SERVER_SERVICES_H

#include "config.h"
#include "health.h"
#include "method.h"

struct job_settings;
struct reflection;

struct services {
    struct method *methods; /* [count] */
    size_t count;
    struct reflection *reflection;
};

/* methods: of octet.v1.Octet. health is kept. */
enum octet_status services_create(const struct config *config, const struct octet_method *methods,
                                  size_t method_count, const struct health *health,
                                  struct services *out, struct octet_error *err) OCTET_MUST_CHECK;
/* Makes the answers that never change, when settings are complete. */
enum octet_status services_prepare(struct services *services, const struct job_settings *settings,
                                   struct octet_error *err) OCTET_MUST_CHECK;
const struct method *services_find(const struct services *services, const char *path,
                                   size_t length);
void services_free(struct services *services); /* fine after a failed create */

/* Fills method->constant. */
enum octet_status octet_service_prepare(struct method *method, const struct job_settings *settings,
                                        struct octet_error *err) OCTET_MUST_CHECK;
/* What lanes run; method->data is given by services_create. */
enum octet_status octet_service_run(struct job *job, struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status health_service_check(struct job *job, struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status health_service_watch(struct job *job, struct octet_error *err) OCTET_MUST_CHECK;
enum octet_status reflection_service_run(struct job *job, struct octet_error *err) OCTET_MUST_CHECK;

#endif
