/* The command line of octetd; see command_line.h. */
#include "command_line.h"

#include <stdio.h>
#include <string.h>

#include "config_file.h"
#include "options.h"

/* "--name=value", "--name value" or "--name"; moves *i to the last word used. */
static enum octet_status parse_argument(int argc, char **argv, int *i, struct config *config,
                                        bool only_file, struct octet_error *err)
{
    char name[64];
    const char *word = argv[*i], *equals = strchr(word, '=');

    snprintf(name, sizeof name, "%.*s", equals ? (int)(equals - word) : (int)strlen(word), word);
    if (strncmp(name, "--", 2) != 0)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                          "unexpected argument '%.100s'; options start with --", word);
    const struct option *option = option_find(name, true, err);
    if (!option)
        return OCTET_INVALID_ARGUMENT;
    const char *value = equals ? equals + 1 : "true";
    if (option->argument && !equals) {
        if (*i + 1 >= argc)
            return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "%s needs a value: %s %s", name,
                              name, option->argument);
        value = argv[++*i];
    } else if (equals && !option->argument && option->type == OPTION_ACTION) {
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "%s takes no value", name);
    }
    if (only_file && option->offset != offsetof(struct config, file))
        return OCTET_OK;
    enum octet_status status = option_set(config, option, value, err);
    if (status != OCTET_OK)
        octet_error_within(err, name);
    return status;
}

static enum octet_status parse_arguments(int argc, char **argv, struct config *config,
                                         bool only_file, struct octet_error *err)
{
    for (int i = 1; i < argc; i++) {
        enum octet_status status = parse_argument(argc, argv, &i, config, only_file, err);
        if (status != OCTET_OK)
            return status;
    }
    return OCTET_OK;
}

enum octet_status command_line_parse(int argc, char **argv, struct config *out,
                                     struct octet_error *err)
{
    options_defaults(out);
    enum octet_status status = parse_arguments(argc, argv, out, true, err);
    if (status == OCTET_OK && out->file[0])
        status = config_file_read(out->file, out, err);
    if (status == OCTET_OK)
        status = parse_arguments(argc, argv, out, false, err);
    return status;
}
