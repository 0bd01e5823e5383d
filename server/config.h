/* What octetd was told: the values of all options, checked.
 *
 * For: one struct that the rest of the server reads and never writes.
 * Not for: how a value came here (options.h has the table, config_file.h reads YAML). */
#ifndef OCTET_SERVER_CONFIG_H
#define OCTET_SERVER_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "address.h"
#include "octet/status.h"

enum { CONFIG_PATH_BYTES = 1024, CONFIG_TEXT_BYTES = 300 };

/* What the process is to do. */
enum config_action {
    CONFIG_SERVE,
    CONFIG_HELP,
    CONFIG_VERSION,
    CONFIG_CHECK,
    CONFIG_PRINT,
    CONFIG_HEALTH,
};

/* Numbers are all int64_t, texts all char arrays, so that the table of options can address them. */
struct config {
    enum config_action action;
    char file[CONFIG_PATH_BYTES];
    char listen[CONFIG_TEXT_BYTES];
    char port_file[CONFIG_PATH_BYTES], data_dir[CONFIG_PATH_BYTES];
    int64_t insecure; /* bool */
    int64_t threads, lane_threads;
    char kernels[CONFIG_TEXT_BYTES], backends[CONFIG_TEXT_BYTES];
    char log_level[CONFIG_TEXT_BYTES];

    struct {
        int64_t max_message_bytes, config_request_bytes, request_memory_bytes, memory_bytes;
        int64_t queue_length, control_calls, streams_per_connection, connections;
        int64_t metadata_bytes, unclaimed_bytes, receive_ms;
        int64_t sessions, session_memory_bytes, device_memory_bytes;
    } limits;
    struct {
        int64_t lease_ms, lease_max_ms;
    } sessions;
    struct {
        int64_t delay_ms, grace_ms;
    } drain;
    struct {
        int64_t interval_ms, timeout_ms, client_interval_ms;
    } keepalive;
    struct {
        char certificate[CONFIG_PATH_BYTES], key[CONFIG_PATH_BYTES], client_ca[CONFIG_PATH_BYTES];
    } tls;
    struct {
        char token_file[CONFIG_PATH_BYTES];
    } auth;

    struct address address; /* listen, parsed by config_check */
};

/* Checks what one option alone cannot show: the address, that files come in pairs, and that an
 * address other machines can reach is protected. Replaces the zeros that stand for "as this machine
 * has". */
enum octet_status config_check(struct config *config, struct octet_error *err) OCTET_MUST_CHECK;

/* TLS is on. */
bool config_has_tls(const struct config *config);

#endif
