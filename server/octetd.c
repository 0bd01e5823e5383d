/* See octetd.h. */
#include "octetd.h"

#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

#include "accept.h"
#include "command_line.h"
#include "credentials.h"
#include "log.h"
#include "octet/context.h"
#include "options.h"
#include "probe.h"
#include "serve.h"
#include "signals.h"

enum { EXIT_USAGE = 2 };

/* gRPC takes a message in as pieces of 64 KiB. With glibc's defaults their memory goes back to the
 * kernel after each large message and is faulted in again, page by page, for the next. Here it
 * stays until the daemon is idle (tidy_up in serve.c). One arena, since malloc_trim gives back the
 * top of the main one only; small pieces do not meet at its lock, threads keep those for
 * themselves. */
static void tune_malloc(void)
{
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, INT_MAX);
}

static int fail(const struct octet_error *error, int status)
{
    char text[1400];

    fprintf(stderr, "octetd: %s\n", octet_error_message(error, text, sizeof text));
    if (status == EXIT_USAGE)
        fputs("octetd: see octetd --help\n", stderr);
    return status;
}

static void set_log_level(const struct config *config)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};

    for (int i = 0; i < 4; i++)
        if (strcmp(config->log_level, names[i]) == 0)
            log_set_level((enum log_level)i);
}

static enum octet_status fit_connections(struct config *config, struct octet_error *err)
{
    int most;
    enum octet_status status = accept_init(&most, err);

    if (status != OCTET_OK || config->limits.connections <= most)
        return status;
    log_event(LOG_LEVEL_WARNING, "fewer connections than asked for: the process may open few files",
              log_number("limits.connections", most));
    config->limits.connections = most;
    return OCTET_OK;
}

static int start(struct config *config, const struct octet_method *methods, size_t count)
{
    struct octet_error error;

    set_log_level(config);
    log_take_grpc();
    if (fit_connections(config, &error) != OCTET_OK ||
        serve(config, methods, count, &error) != OCTET_OK)
        return fail(&error, EXIT_FAILURE);
    return EXIT_SUCCESS;
}

static int ask_health(const struct config *config)
{
    struct octet_error error;

    log_take_grpc();
    log_set_level(LOG_LEVEL_ERROR);
    if (probe_health(config, &error) != OCTET_OK)
        return fail(&error, EXIT_FAILURE);
    puts("SERVING");
    return EXIT_SUCCESS;
}

/* All that the start would refuse but for the port: files of certificates and tokens are read. */
static int check_files(const struct config *config)
{
    struct octet_error error;
    grpc_server_credentials *credentials = NULL;
    struct tokens *tokens = NULL;

    log_take_grpc();
    log_set_level(LOG_LEVEL_ERROR);
    grpc_init();
    enum octet_status status = credentials_create(config, &credentials, &error);
    if (status == OCTET_OK)
        status = tokens_read(config, &tokens, &error);
    if (credentials)
        grpc_server_credentials_release(credentials);
    tokens_free(tokens);
    grpc_shutdown_blocking();
    if (status != OCTET_OK)
        return fail(&error, EXIT_USAGE);
    puts("the settings are valid");
    return EXIT_SUCCESS;
}

/* OCTET_CPU is for tests and bug reports; what an option says is nearer. */
static void take_environment(struct config *config)
{
    const char *kernels = getenv("OCTET_CPU");

    if (kernels && !config->kernels[0])
        snprintf(config->kernels, sizeof config->kernels, "%s", kernels);
}

int octetd_main(int argc, char **argv, const struct octet_method *methods, size_t method_count)
{
    struct config config;
    struct octet_error error;

    signals_install();
    tune_malloc();
    if (command_line_parse(argc, argv, &config, &error) != OCTET_OK)
        return fail(&error, EXIT_USAGE);
    switch (config.action) {
    case CONFIG_HELP:
        options_print_help(stdout);
        return EXIT_SUCCESS;
    case CONFIG_VERSION:
        printf("octetd %s (%s)\n", octet_version(), octet_git_commit());
        return EXIT_SUCCESS;
    case CONFIG_PRINT:
        options_print_config(&config, stdout);
        return EXIT_SUCCESS;
    case CONFIG_SERVE:
    case CONFIG_CHECK:
    case CONFIG_HEALTH:
        break;
    }
    take_environment(&config);
    /* --health only asks: whether the address is protected is the serving process's business. */
    config.insecure |= config.action == CONFIG_HEALTH;
    if (config_check(&config, &error) != OCTET_OK)
        return fail(&error, EXIT_USAGE);
    if (config.action == CONFIG_CHECK)
        return check_files(&config);
    return config.action == CONFIG_HEALTH ? ask_health(&config)
                                          : start(&config, methods, method_count);
}
