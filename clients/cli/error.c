/* Errors in the user's terms. What the wire calls "model.overrides[dtype]" was typed as dtype=...,
 * set as M_DTYPE or written in a file, and the message says which. */
#include <stdio.h>
#include <string.h>

#include "session.h"
#include "wire/scan.h"

void print_safe(const char *text)
{
    size_t length = strlen(text);
    bool valid = oct_wire_text_prefix((const uint8_t *)text, length) == length;

    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < 0x20 || c == 0x7f || (c >= 0x80 && !valid))
            fprintf(stderr, "\\x%02x", c);
        else
            putc(c, stderr);
    }
}

static bool take_prefix(const char **text, const char *prefix)
{
    size_t length = strlen(prefix);

    if (strncmp(*text, prefix, length) != 0)
        return false;
    *text += length;
    return true;
}

/* The variable behind "overrides[KEY]", NULL when it was not the environment. */
static const char *variable_of(struct session *session, const char *field)
{
    char key[256];

    if (!take_prefix(&field, "overrides["))
        return NULL;
    snprintf(key, sizeof key, "%s", field);
    char *end = strrchr(key, ']');
    if (!end || end[1])
        return NULL;
    *end = '\0';
    return request_variable(session, key);
}

static void print_place(struct session *session, const char *field)
{
    static const char *const by_option[][2] = {{"batch_size", "--batch"},
                                               {"sequence_length", "--seq"},
                                               {"strict", "--strict"},
                                               {"require[", "--require"},
                                               {"forbid[", "--forbid"}};
    const struct arguments *a = session->arguments;
    const char *variable;

    for (size_t i = 0; i < sizeof by_option / sizeof *by_option; i++) {
        const char *rest = field;
        if (take_prefix(&rest, by_option[i][0])) {
            fprintf(stderr, "option %s: ", by_option[i][1]);
            return;
        }
    }
    if (take_prefix(&field, "against."))
        fputs("option --against: ", stderr);
    else
        take_prefix(&field, "model.");
    variable = variable_of(session, field);
    if (variable) {
        fprintf(stderr, "environment variable '%s': ", variable);
        return;
    }
    if (strcmp(field, "name") == 0) {
        fputs("MODEL: ", stderr);
        return;
    }
    if (a->config && strncmp(field, "yaml", 4) == 0)
        fprintf(stderr, "%s: ", a->config);
    if (a->rules && strncmp(field, "rules", 5) == 0)
        fprintf(stderr, "%s: ", a->rules);
    if (take_prefix(&field, "overrides[")) { /* KEY=VALUE, as it was typed */
        char key[256];
        snprintf(key, sizeof key, "%s", field);
        key[strcspn(key, "]")] = '\0';
        fputs("setting '", stderr);
        print_safe(key);
        fputs("': ", stderr);
        return;
    }
    if (field[0]) {
        fputs("field '", stderr);
        print_safe(field);
        fputs("': ", stderr);
    }
}

int report(struct session *session, const struct octet_error *err)
{
    if (err->status == OCTET_CANCELLED) {
        fputs("octet: interrupted\n", stderr);
        return EXIT_INTERRUPTED;
    }
    fputs("octet: ", stderr);
    print_place(session, err->field);
    print_safe(err->text);
    fputs("\n", stderr);
    return EXIT_FAILED;
}
