/* See config.h. */
#include "config.h"

#include <inttypes.h>
#include <string.h>
#include <uv.h>

enum { MEMORY_FLOOR_BYTES = 64 << 20, REQUEST_FLOOR_BYTES = 64 << 10, CREW_THREADS = 8 };

bool config_has_tls(const struct config *config)
{
    return config->tls.certificate[0] != 0;
}

/* One file without its other half is a mistake that would otherwise show as a broken handshake. */
static enum octet_status check_tls(const struct config *config, struct octet_error *err)
{
    bool certificate = config->tls.certificate[0], key = config->tls.key[0];

    if (certificate != key)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, certificate ? "tls.key" : "tls.certificate",
                          "is not set, but %s is; TLS needs both",
                          certificate ? "tls.certificate" : "tls.key");
    if (config->tls.client_ca[0] && !certificate)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "tls.certificate",
                          "is not set, but tls.client_ca is; client certificates need TLS");
    return OCTET_OK;
}

/* An open port without TLS and without a check of who calls must be asked for in so many words. */
static enum octet_status check_exposure(const struct config *config, struct octet_error *err)
{
    if (config->insecure || address_is_local(&config->address))
        return OCTET_OK;
    if (config_has_tls(config) && (config->tls.client_ca[0] || config->auth.token_file[0]))
        return OCTET_OK;
    return octet_fail(err, OCTET_INVALID_ARGUMENT, "listen",
                      "'%s' can be reached from other machines: set tls.certificate, tls.key and "
                      "either tls.client_ca (client certificates) or auth.token_file, or say "
                      "--insecure",
                      config->listen);
}

static enum octet_status check_limits(struct config *config, struct octet_error *err)
{
    if (config->limits.config_request_bytes > config->limits.max_message_bytes)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "limits.config_request_bytes",
                          "%" PRId64 " is more than limits.max_message_bytes, %" PRId64,
                          config->limits.config_request_bytes, config->limits.max_message_bytes);
    if (config->limits.memory_bytes == 0) {
        config->limits.memory_bytes = (int64_t)(uv_get_total_memory() / 2);
        uint64_t constrained = uv_get_constrained_memory(); /* 0: no control group says anything */
        if (constrained && constrained / 2 < (uint64_t)config->limits.memory_bytes)
            config->limits.memory_bytes = (int64_t)(constrained / 2);
        if (config->limits.memory_bytes < MEMORY_FLOOR_BYTES)
            config->limits.memory_bytes = MEMORY_FLOOR_BYTES;
        if (config->limits.memory_bytes < config->limits.request_memory_bytes)
            config->limits.request_memory_bytes = config->limits.memory_bytes;
    }
    if (config->limits.request_memory_bytes == 0)
        config->limits.request_memory_bytes = config->limits.memory_bytes;
    if (config->limits.session_memory_bytes == 0)
        config->limits.session_memory_bytes = config->limits.memory_bytes;
    if (config->sessions.lease_ms > config->sessions.lease_max_ms)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "sessions.lease_ms",
                          "%" PRId64 " is more than sessions.lease_max_ms, %" PRId64,
                          config->sessions.lease_ms, config->sessions.lease_max_ms);
    if (config->limits.request_memory_bytes < REQUEST_FLOOR_BYTES)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "limits.request_memory_bytes",
                          "%" PRId64 " is less than %d, which every call needs",
                          config->limits.request_memory_bytes, REQUEST_FLOOR_BYTES);
    if (config->limits.request_memory_bytes > config->limits.memory_bytes)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "limits.request_memory_bytes",
                          "%" PRId64 " is more than limits.memory_bytes, %" PRId64,
                          config->limits.request_memory_bytes, config->limits.memory_bytes);
    return OCTET_OK;
}

enum octet_status config_check(struct config *config, struct octet_error *err)
{
    enum octet_status status = address_parse(config->listen, &config->address, err);

    if (status != OCTET_OK) {
        octet_error_within(err, "listen");
        return status;
    }
    int64_t cpus = (int64_t)uv_available_parallelism();
    if (config->threads == 0)
        config->threads = cpus;
    if (config->lane_threads == 0)
        config->lane_threads = cpus <= CREW_THREADS       ? cpus
                               : cpus <= 4 * CREW_THREADS ? CREW_THREADS
                                                          : cpus / 4;
    if (config->lane_threads > cpus) /* more would only wait for each other */
        config->lane_threads = cpus;
    status = check_tls(config, err);
    if (status == OCTET_OK)
        status = check_exposure(config, err);
    if (status == OCTET_OK)
        status = check_limits(config, err);
    return status;
}
