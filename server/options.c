/* See options.h. */
#include "options.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "octet/nearest.h"

#define KIB (INT64_C(1) << 10)
#define MIB (INT64_C(1) << 20)
#define GIB (INT64_C(1) << 30)
#define HOUR_MS INT64_C(3600000)

#define AT(member) .offset = offsetof(struct config, member)
#define TEXT(member) AT(member), .size = sizeof((struct config *)0)->member

const struct option options[] = {
    {.flag = "--config",
     .type = OPTION_TEXT,
     TEXT(file),
     .initial_text = "",
     .argument = "FILE.yml",
     .help = "read settings from this file; the command line overrides it"},
    {.key = "listen",
     .flag = "--listen",
     .type = OPTION_TEXT,
     TEXT(listen),
     .initial_text = "127.0.0.1:50051",
     .argument = "HOST:PORT",
     .help = "address to serve on: HOST:PORT (port 0: a free one), [IPV6]:PORT or unix:/path"},
    {.key = "port_file",
     .flag = "--port-file",
     .type = OPTION_TEXT,
     TEXT(port_file),
     .initial_text = "",
     .argument = "FILE",
     .help = "write the bound port into this file when ready (for scripts)"},
    {.key = "data_dir",
     .flag = "--data-dir",
     .type = OPTION_TEXT,
     TEXT(data_dir),
     .initial_text = "",
     .argument = "DIR",
     .help = "where checkpoints of sessions lie; empty: none can be saved"},
    {.key = "threads",
     .flag = "--threads",
     .type = OPTION_COUNT,
     AT(threads),
     .initial = 0,
     .min = 0,
     .max = 1024,
     .argument = "N",
     .help = "requests computed at the same time; 0: one per CPU"},
    {.key = "lane_threads",
     .flag = "--lane-threads",
     .type = OPTION_COUNT,
     AT(lane_threads),
     .initial = 0,
     .min = 0,
     .max = 1024,
     .argument = "N",
     .help =
         "threads that a large operation gets, at most one a CPU; 0: up to 8, or a quarter of all"},
    {.key = "kernels",
     .flag = "--kernels",
     .type = OPTION_TEXT,
     TEXT(kernels),
     .initial_text = "",
     .argument = "SET",
     .help = "instruction set to compute with (scalar, avx2, ...); empty: OCTET_CPU, or the best"},
    {.key = "backends",
     .flag = "--backends",
     .type = OPTION_TEXT,
     TEXT(backends),
     .initial_text = "cpu",
     .argument = "LIST",
     .help = "where sessions may be placed: cpu, opencl, cuda, opencl:1 (a device), separated by "
             "commas; the first is the default"},
    {.key = "insecure",
     .flag = "--insecure",
     .type = OPTION_FLAG,
     AT(insecure),
     .help = "serve addresses that other machines reach without TLS or without checking who calls"},
    {.key = "log_level",
     .flag = "--log-level",
     .type = OPTION_LEVEL,
     TEXT(log_level),
     .initial_text = "info",
     .argument = "LEVEL",
     .help = "error, warning, info or debug (debug: a line for each call)"},

    {.key = "limits.max_message_bytes",
     .type = OPTION_BYTES,
     AT(limits.max_message_bytes),
     .initial = GIB,
     .min = KIB,
     .max = 2 * GIB - 1,
     .help = "largest message of any call"},
    {.key = "limits.config_request_bytes",
     .type = OPTION_BYTES,
     AT(limits.config_request_bytes),
     .initial = 4 * MIB,
     .min = KIB,
     .max = 2 * GIB - 1,
     .help = "largest request of a call that carries no tensors"},
    {.key = "limits.request_memory_bytes",
     .type = OPTION_BYTES,
     AT(limits.request_memory_bytes),
     .initial = 0,
     .min = 0,
     .max = 1024 * GIB,
     .help = "request, working memory and reply of one call; 0: as limits.memory_bytes"},
    {.key = "limits.memory_bytes",
     .type = OPTION_BYTES,
     AT(limits.memory_bytes),
     .initial = 0,
     .min = 0,
     .max = 1024 * GIB,
     .help =
         "requests held and computed together; 0: half of the machine's (or container's) memory"},
    {.key = "limits.queue_length",
     .type = OPTION_COUNT,
     AT(limits.queue_length),
     .initial = 256,
     .min = 1,
     .max = 65536,
     .help = "calls that wait for a lane; one more gets RESOURCE_EXHAUSTED"},
    {.key = "limits.control_calls",
     .type = OPTION_COUNT,
     AT(limits.control_calls),
     .initial = 1024,
     .min = 1,
     .max = 65536,
     .help = "open calls of the health and reflection services"},
    {.key = "limits.connections",
     .type = OPTION_COUNT,
     AT(limits.connections),
     .initial = 1024,
     .min = 1,
     .max = 1000000,
     .help = "open connections; the newest beyond it are closed (TCP)"},
    {.key = "limits.streams_per_connection",
     .type = OPTION_COUNT,
     AT(limits.streams_per_connection),
     .initial = 1024,
     .min = 1,
     .max = 65536,
     .help = "calls that one connection may have open at a time"},
    {.key = "limits.metadata_bytes",
     .type = OPTION_BYTES,
     AT(limits.metadata_bytes),
     .initial = 16 * KIB,
     .min = KIB,
     .max = MIB,
     .help = "metadata of one call"},
    {.key = "limits.unclaimed_bytes",
     .type = OPTION_BYTES,
     AT(limits.unclaimed_bytes),
     .initial = 256 * KIB,
     .min = 0,
     .max = GIB,
     .help = "bytes a connection may send beyond its calls before it is closed (TCP); 0: no limit"},
    {.key = "limits.receive_ms",
     .type = OPTION_MS,
     AT(limits.receive_ms),
     .initial = 30000,
     .min = 100,
     .max = HOUR_MS,
     .help =
         "time in which an admitted call's request must arrive; with tensors, a second more for "
         "each 8 MiB of max_message_bytes"},
    {.key = "limits.sessions",
     .type = OPTION_COUNT,
     AT(limits.sessions),
     .initial = 64,
     .min = 1,
     .max = 65536,
     .help = "sessions held at a time"},
    {.key = "limits.session_memory_bytes",
     .type = OPTION_BYTES,
     AT(limits.session_memory_bytes),
     .initial = 0,
     .min = 0,
     .max = 1024 * GIB,
     .help = "what all sessions may take at their peaks, beside memory_bytes; 0: as memory_bytes"},
    {.key = "limits.device_memory_bytes",
     .type = OPTION_BYTES,
     AT(limits.device_memory_bytes),
     .initial = 0,
     .min = 0,
     .max = 1024 * GIB,
     .help = "memory that each backend but the CPU may take on its device; 0: all that it has"},

    {.key = "sessions.lease_ms",
     .type = OPTION_MS,
     AT(sessions.lease_ms),
     .initial = 600000,
     .min = 1000,
     .max = 30 * 24 * HOUR_MS,
     .help =
         "a session that nobody calls for so long ends, unless its client asked for another lease"},
    {.key = "sessions.lease_max_ms",
     .type = OPTION_MS,
     AT(sessions.lease_max_ms),
     .initial = 7 * 24 * HOUR_MS,
     .min = 1000,
     .max = 365 * 24 * HOUR_MS,
     .help = "the longest lease that a client may ask for"},

    {.key = "drain.delay_ms",
     .type = OPTION_MS,
     AT(drain.delay_ms),
     .initial = 250,
     .min = 0,
     .max = HOUR_MS,
     .help = "after SIGTERM: how long health says NOT_SERVING before the port is closed"},
    {.key = "drain.grace_ms",
     .type = OPTION_MS,
     AT(drain.grace_ms),
     .initial = 30000,
     .min = 0,
     .max = HOUR_MS,
     .help = "after SIGTERM: when calls that still run are cancelled"},

    {.key = "keepalive.interval_ms",
     .type = OPTION_MS,
     AT(keepalive.interval_ms),
     .initial = 60000,
     .min = 1000,
     .max = 24 * HOUR_MS,
     .help = "ping a quiet connection this often"},
    {.key = "keepalive.timeout_ms",
     .type = OPTION_MS,
     AT(keepalive.timeout_ms),
     .initial = 20000,
     .min = 1000,
     .max = HOUR_MS,
     .help = "close a connection whose ping is not answered in this time"},
    {.key = "keepalive.client_interval_ms",
     .type = OPTION_MS,
     AT(keepalive.client_interval_ms),
     .initial = 5000,
     .min = 100,
     .max = HOUR_MS,
     .help = "clients may ping this often; faster ones are sent away (too_many_pings)"},

    {.key = "tls.certificate",
     .type = OPTION_TEXT,
     TEXT(tls.certificate),
     .initial_text = "",
     .help = "PEM file with the daemon's certificate chain; turns TLS on"},
    {.key = "tls.key",
     .type = OPTION_TEXT,
     TEXT(tls.key),
     .initial_text = "",
     .help = "PEM file with the certificate's private key"},
    {.key = "tls.client_ca",
     .type = OPTION_TEXT,
     TEXT(tls.client_ca),
     .initial_text = "",
     .help = "PEM file with the authorities whose client certificates are accepted; demands one"},
    {.key = "auth.token_file",
     .type = OPTION_TEXT,
     TEXT(auth.token_file),
     .initial_text = "",
     .help = "file with bearer tokens, one a line; all calls but health checks must bring one"},

    {.flag = "--check-config",
     .type = OPTION_ACTION,
     .action = CONFIG_CHECK,
     .help = "check the settings and exit"},
    {.flag = "--print-config",
     .type = OPTION_ACTION,
     .action = CONFIG_PRINT,
     .help = "print the settings as a config file and exit"},
    {.flag = "--health",
     .type = OPTION_ACTION,
     .action = CONFIG_HEALTH,
     .help = "ask the daemon at --listen whether it serves; exit 0 if so, else 1"},
    {.flag = "--version",
     .type = OPTION_ACTION,
     .action = CONFIG_VERSION,
     .help = "print the version and exit"},
    {.flag = "--help", .type = OPTION_ACTION, .action = CONFIG_HELP, .help = "print this and exit"},
};
const size_t option_count = sizeof options / sizeof options[0];

static int64_t *number_of(struct config *config, const struct option *option)
{
    return (int64_t *)(void *)((char *)config + option->offset);
}

static char *text_of(struct config *config, const struct option *option)
{
    return (char *)config + option->offset;
}

static bool is_text(const struct option *option)
{
    return option->type == OPTION_TEXT || option->type == OPTION_LEVEL;
}

void options_defaults(struct config *out)
{
    *out = (struct config){.action = CONFIG_SERVE};
    for (size_t i = 0; i < option_count; i++) {
        const struct option *option = &options[i];
        if (is_text(option))
            snprintf(text_of(out, option), option->size, "%s", option->initial_text);
        else if (option->type != OPTION_ACTION)
            *number_of(out, option) = option->initial;
    }
}

/* The names of one kind, for the nearest one. */
struct names {
    const char *names[64];
    size_t count;
};

static const char *name_at(const void *names, size_t i)
{
    return ((const struct names *)names)->names[i];
}

/* flags: look among "--threads", else among "limits.queue_length". */
const struct option *option_find(const char *name, bool flags, struct octet_error *err)
{
    struct names all = {.count = 0};

    for (size_t i = 0; i < option_count; i++) {
        const char *candidate = flags ? options[i].flag : options[i].key;
        if (!candidate)
            continue;
        if (strcmp(candidate, name) == 0)
            return &options[i];
        if (all.count < sizeof all.names / sizeof *all.names)
            all.names[all.count++] = candidate;
    }
    octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "unknown %s '%.100s'; the nearest is '%s'",
               flags ? "option" : "key", name,
               all.names[octet_nearest(name, all.count, name_at, &all)]);
    return NULL;
}

static enum octet_status set_text(struct config *config, const struct option *option,
                                  const char *value, struct octet_error *err)
{
    size_t length = strlen(value);

    if (length >= option->size)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "has %zu bytes, at most %zu fit",
                          length, option->size - 1);
    if (option->type == OPTION_LEVEL && strcmp(value, "error") != 0 &&
        strcmp(value, "warning") != 0 && strcmp(value, "info") != 0 && strcmp(value, "debug") != 0)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                          "'%.100s' is not one of error, warning, info, debug", value);
    memcpy(text_of(config, option), value, length + 1);
    return OCTET_OK;
}

/* "4096", "4KiB", "4MiB", "1GiB"; the suffixes for sizes only. */
static bool number_parse(const char *text, bool bytes, int64_t *out)
{
    static const struct {
        const char *suffix;
        int64_t factor;
    } units[] = {{"", 1}, {"KiB", KIB}, {"MiB", MIB}, {"GiB", GIB}};
    char *end;

    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (errno)
        return false;
    for (size_t i = 0; i < (bytes ? sizeof units / sizeof units[0] : 1); i++)
        if (strcmp(end, units[i].suffix) == 0)
            return !__builtin_mul_overflow(number, units[i].factor, out);
    return false;
}

static enum octet_status set_number(struct config *config, const struct option *option,
                                    const char *value, struct octet_error *err)
{
    bool bytes = option->type == OPTION_BYTES;
    int64_t number;

    if (!number_parse(value, bytes, &number) || number < option->min || number > option->max)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                          "'%.100s' is not a whole number from %" PRId64 " to %" PRId64 "%s", value,
                          option->min, option->max, bytes ? " (KiB, MiB, GiB may follow it)" : "");
    *number_of(config, option) = number;
    return OCTET_OK;
}

static enum octet_status set_flag(struct config *config, const struct option *option,
                                  const char *value, struct octet_error *err)
{
    bool on = strcmp(value, "true") == 0;

    if (!on && strcmp(value, "false") != 0)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "'%.100s' is not true or false",
                          value);
    *number_of(config, option) = on;
    return OCTET_OK;
}

enum octet_status option_set(struct config *config, const struct option *option, const char *value,
                             struct octet_error *err)
{
    switch (option->type) {
    case OPTION_TEXT:
    case OPTION_LEVEL:
        return set_text(config, option, value, err);
    case OPTION_BYTES:
    case OPTION_COUNT:
    case OPTION_MS:
        return set_number(config, option, value, err);
    case OPTION_FLAG:
        return set_flag(config, option, value, err);
    case OPTION_ACTION:
        break;
    }
    config->action = option->action;
    return OCTET_OK;
}

enum octet_status option_set_key(struct config *config, const char *key, const char *value,
                                 struct octet_error *err)
{
    const struct option *option = option_find(key, false, err);

    if (!option)
        return OCTET_INVALID_ARGUMENT;
    enum octet_status status = option_set(config, option, value, err);
    if (status != OCTET_OK)
        octet_error_within(err, key);
    return status;
}

/* "4MiB" where that is exact and "4194304" where it is not. */
static const char *number_format(const struct option *option, int64_t number, char buffer[32])
{
    static const char *const suffixes[] = {"", "KiB", "MiB", "GiB"};
    int unit = 0;

    if (option->type == OPTION_BYTES)
        for (; unit < 3 && number && number % 1024 == 0; unit++)
            number /= 1024;
    snprintf(buffer, 32, "%" PRId64 "%s", number, suffixes[unit]);
    return buffer;
}

static void print_flag(const struct option *option, FILE *out)
{
    char head[64], initial[32];

    snprintf(head, sizeof head, "%s%s%s", option->flag, option->argument ? " " : "",
             option->argument ? option->argument : "");
    fprintf(out, "  %-22s %s", head, option->help);
    if (is_text(option) && option->initial_text[0])
        fprintf(out, " [%s]", option->initial_text);
    else if (option->type == OPTION_COUNT)
        fprintf(out, " [%s]", number_format(option, option->initial, initial));
    fputc('\n', out);
}

void options_print_help(FILE *out)
{
    char initial[32];

    fputs("octetd: tells which matmuls of a model FP8 rules touch, over gRPC.\n\n"
          "usage: octetd [OPTION ...]\n\n",
          out);
    for (size_t i = 0; i < option_count; i++)
        if (options[i].flag)
            print_flag(&options[i], out);
    fputs("\nkeys of the config file without an option of their own:\n", out);
    for (size_t i = 0; i < option_count; i++) {
        const struct option *option = &options[i];
        if (option->flag)
            continue;
        fprintf(out, "  %-30s %s", option->key, option->help);
        if (!is_text(option))
            fprintf(out, " [%s]", number_format(option, option->initial, initial));
        fputc('\n', out);
    }
    fputs(
        "\nexit status: 0 after a clean stop; 1 when serving failed or --health found no serving\n"
        "daemon; 2 for a mistake in the settings; 128 + N when a second signal N ended it at "
        "once\n",
        out);
}

/* Writes "limits:" when the key enters a new section; returns the key's last part. */
static const char *enter_section(const char *key, char section[32], FILE *out)
{
    const char *dot = strchr(key, '.');
    char name[32] = "";

    if (dot)
        snprintf(name, sizeof name, "%.*s", (int)(dot - key), key);
    if (strcmp(name, section) != 0) {
        memcpy(section, name, sizeof name);
        fprintf(out, "\n%s:\n", name);
    }
    return dot ? dot + 1 : key;
}

void options_print_config(const struct config *config, FILE *out)
{
    char section[32] = "", number[32];
    struct config copy = *config;

    fputs("# Settings of octetd, each with its value; octetd --config FILE reads them.\n", out);
    for (size_t i = 0; i < option_count; i++) {
        const struct option *option = &options[i];
        if (!option->key)
            continue;
        const char *name = enter_section(option->key, section, out);
        const char *indent = section[0] ? "  " : "";
        fprintf(out, "%s# %s\n%s%s: ", indent, option->help, indent, name);
        if (option->type == OPTION_TEXT)
            fprintf(out, "'%s'\n", text_of(&copy, option));
        else if (option->type == OPTION_LEVEL)
            fprintf(out, "%s\n", text_of(&copy, option));
        else if (option->type == OPTION_FLAG)
            fprintf(out, "%s\n", *number_of(&copy, option) ? "true" : "false");
        else
            fprintf(out, "%s\n", number_format(option, *number_of(&copy, option), number));
    }
}
