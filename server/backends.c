/* See backends.h. */
#include "backends.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "log.h"

static bool is_known(const char *name)
{
    const char *known;

    for (size_t i = 0; (known = octet_backend_name(i)) != NULL; i++)
        if (strcmp(known, name) == 0)
            return true;
    return strcmp(name, "cpu") == 0;
}

/* A device is its number, in one way of writing it: two entries are never the same device. */
static bool is_number(const char *text)
{
    return text[0] && strlen(text) < 10 && text[strspn(text, "0123456789")] == '\0' &&
           (text[0] != '0' || !text[1]);
}

/* Compiled kernels stay with the daemon's data, if it has any. */
static const char *cache_directory(const struct config *config, char *buffer, size_t size)
{
    if (!config->data_dir[0])
        return NULL;
    snprintf(buffer, size, "%s/kernels", config->data_dir);
    return mkdir(buffer, 0700) == 0 || access(buffer, W_OK) == 0 ? buffer : NULL;
}

static enum octet_status open_one(const struct config *config, struct octet_server_backend *entry,
                                  struct octet_error *err)
{
    char directory[CONFIG_PATH_BYTES + 16];
    const struct octet_backend_options options = {
        .device = entry->device,
        .memory_limit_bytes = (uint64_t)config->limits.device_memory_bytes,
        .cache_directory = cache_directory(config, directory, sizeof directory),
    };
    enum octet_status status = octet_backend_open(entry->name, &options, &entry->opened, err);

    if (status != OCTET_OK) {
        if (err)
            snprintf(err->field, sizeof err->field, "backends");
        return status;
    }
    const struct octet_backend_facts *facts = octet_backend_facts(entry->opened);
    log_event(LOG_LEVEL_INFO, "backend", log_text("backend", facts->name),
              log_text("device", facts->device), log_text("driver", facts->driver),
              log_number("memory_bytes", (int64_t)facts->memory_bytes));
    return OCTET_OK;
}

static enum octet_status add(struct backends *backends, const struct config *config, char *name,
                             struct octet_error *err)
{
    struct octet_server_backend *entry = &backends->list[backends->count];
    char *colon = strchr(name, ':');

    if (colon)
        *colon = '\0';
    *entry = (struct octet_server_backend){.name = name, .device = colon ? colon + 1 : "0"};
    if (!is_known(name) || (colon && (strcmp(name, "cpu") == 0 || !is_number(colon + 1))))
        return octet_fail(err, OCTET_INVALID_ARGUMENT, "backends",
                          "'%.100s%s%.20s'; cpu, opencl or cuda were expected, the latter two with "
                          "or without a device's number (cuda:1)",
                          name, colon ? ":" : "", colon ? colon + 1 : "");
    for (size_t i = 0; i < backends->count; i++)
        if (strcmp(backends->list[i].name, name) == 0 &&
            strcmp(backends->list[i].device, entry->device) == 0)
            return octet_fail(err, OCTET_INVALID_ARGUMENT, "backends", "'%.100s' is named twice",
                              name);
    enum octet_status status = strcmp(name, "cpu") == 0 ? OCTET_OK : open_one(config, entry, err);
    backends->count += status == OCTET_OK;
    return status;
}

enum octet_status backends_open(struct backends *backends, const struct config *config,
                                struct octet_error *err)
{
    enum octet_status status = OCTET_OK;
    char *rest = backends->text;

    snprintf(backends->text, sizeof backends->text, "%s", config->backends);
    backends->count = 0;
    for (char *name = rest; name && status == OCTET_OK; name = rest) {
        rest = strchr(name, ',');
        if (rest)
            *rest++ = '\0';
        name += strspn(name, " ");
        for (size_t end = strlen(name); end && name[end - 1] == ' ';)
            name[--end] = '\0';
        if (backends->count == BACKENDS_MAX)
            status = octet_fail(err, OCTET_INVALID_ARGUMENT, "backends", "more than %d are named",
                                BACKENDS_MAX);
        else
            status = add(backends, config, name, err);
    }
    if (status != OCTET_OK)
        backends_close(backends);
    return status;
}

void backends_close(struct backends *backends)
{
    for (size_t i = 0; i < backends->count; i++)
        octet_backend_close(backends->list[i].opened);
    backends->count = 0;
}
