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

enum { COTANGENT = -2 };

/* Fields of requests with arrays, and what was typed. operand: its number, -1: an option, or
 * COTANGENT, an option whose value is an array. */
static const struct {
    const char *field;
    unsigned commands;
    int operand;
    const char *label;
} tensor_fields[] = {
    {"array", COMMAND_QUANTIZE, 0, "FILE"},
    {"quantized", COMMAND_QUANTIZE | COMMAND_DEQUANTIZE, 0, "FILE"},
    {"lhs", COMMAND_DOT | COMMAND_GMM, 0, "LHS"},
    {"rhs", COMMAND_DOT | COMMAND_GMM, 1, "RHS"},
    {"group_sizes", COMMAND_GMM, 2, "GROUP_SIZES"},
    {"cotangent", COMMAND_DOT | COMMAND_GMM, COTANGENT, "--cotangent"},
    {"qtype", COMMAND_QUANTIZE, -1, "--qtype"},
    {"calibration_method", COMMAND_QUANTIZE, -1, "--method"},
    {"channelwise_axes", COMMAND_QUANTIZE, -1, "--axes"},
    {"tiled_axes", COMMAND_QUANTIZE, -1, "--tiles"},
    {"scale_dtype", COMMAND_QUANTIZE, -1, "--scale-dtype"},
    {"dtype", COMMAND_DEQUANTIZE, -1, "--dtype"},
    {"out_dtype", COMMAND_DOT | COMMAND_GMM, -1, "--out-dtype"},
    {"module_path", COMMAND_DOT | COMMAND_GMM, -1, "--module"},
    {"dimension_numbers.lhs_contracting", COMMAND_DOT, -1, "--contract"},
    {"dimension_numbers.rhs_contracting", COMMAND_DOT, -1, "--contract"},
    {"dimension_numbers.lhs_batch", COMMAND_DOT, -1, "--batch"},
    {"dimension_numbers.rhs_batch", COMMAND_DOT, -1, "--batch"},
    {"rules[0].weight_qtype", COMMAND_DOT | COMMAND_GMM, -1, "--weight-qtype"},
    {"rules[0].act_qtype", COMMAND_DOT | COMMAND_GMM, -1, "--act-qtype"},
    {"rules[0].bwd_qtype", COMMAND_DOT | COMMAND_GMM, -1, "--bwd-qtype"},
    {"rules[0].weight_calibration_method", COMMAND_DOT | COMMAND_GMM, -1, "--weight-method"},
    {"rules[0].act_calibration_method", COMMAND_DOT | COMMAND_GMM, -1, "--act-method"},
    {"rules[0].bwd_calibration_method", COMMAND_DOT | COMMAND_GMM, -1, "--bwd-method"},
    {"rules[0].tile_size", COMMAND_DOT | COMMAND_GMM, -1, "--tile-size"},
    {"rules[0].bwd_weight_grad_tile_size", COMMAND_DOT | COMMAND_GMM, -1, "--bwd-tile-size"},
    {"rules[0].disable_channelwise_axes", COMMAND_DOT | COMMAND_GMM, -1,
     "--disable-channelwise-axes"},
    {"rules[0].sparsity", COMMAND_DOT | COMMAND_GMM, -1, "--sparsity"},
    {"threads", COMMANDS_OF_TENSORS | COMMAND_BENCH, -1, "--threads"},
};

/* What is left of "lhs.tensor.shape" for people: "shape"; of "rhs.quantized.scale.dtype":
 * "scale.dtype". Where in the request an array stands is not theirs. */
static const char *rest_of_field(const char *rest)
{
    static const char *const wrappers[] = {"tensor", "quantized"};

    rest += *rest == '.';
    for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers; i++) {
        size_t length = strlen(wrappers[i]);
        if (strncmp(rest, wrappers[i], length) == 0 && (!rest[length] || rest[length] == '.'))
            return rest + length + (rest[length] == '.');
    }
    return rest;
}

/* "LHS 'x.safetensors:x': shape: "; false when the field is none of the above. */
static bool print_tensor_place(struct session *session, const char *field)
{
    const struct arguments *a = session->arguments;

    if (strcmp(field, "kernels") == 0) {
        fputs("environment variable 'OCTET_CPU': ", stderr);
        return true;
    }
    for (size_t i = 0; i < sizeof tensor_fields / sizeof *tensor_fields; i++) {
        size_t length = strlen(tensor_fields[i].field);
        if (!(tensor_fields[i].commands & a->command->id) ||
            strncmp(field, tensor_fields[i].field, length) != 0 ||
            !strchr(".[", field[length])) /* strchr finds the NUL too */
            continue;
        if (a->rules && field[0] == 'r' && field[1] == 'u') /* the file's rule, not an option's */
            return false;
        if (a->dims && take_prefix(&field, "dimension_numbers.")) {
            fputs("option --dims: ", stderr);
            print_safe(field);
            fputs(": ", stderr);
            return true;
        }
        int operand = tensor_fields[i].operand;
        fprintf(stderr, "%s%s", operand < 0 ? "option " : "", tensor_fields[i].label);
        const char *typed = operand >= 0           ? a->operands.items[operand]
                            : operand == COTANGENT ? a->cotangent
                                                   : NULL;
        if (typed) {
            fputs(" '", stderr);
            print_safe(typed);
            fputs("'", stderr);
        }
        const char *rest = rest_of_field(field + length);
        fputs(rest[0] ? ": " : "", stderr);
        print_safe(rest);
        fputs(": ", stderr);
        return true;
    }
    return false;
}

/* Fields of requests about sessions and checkpoints, and what was typed for them. action: of octet
 * session, NULL: any. A label that is empty: the text speaks for itself. */
static const struct {
    const char *field;
    unsigned command;
    const char *action, *label;
} session_fields[] = {
    {"checkpoint", COMMAND_TRAIN, NULL, "option --checkpoint"},
    {"name", COMMAND_TRAIN, NULL, "option --checkpoint"},
    {"checkpoint", COMMAND_SESSION, "create", "option --from"},
    {"name", COMMAND_SESSION, "create", "option --from"},
    {"name", COMMAND_SESSION, "save", "CHECKPOINT"},
    {"name", COMMAND_SESSION, "load", "CHECKPOINT"},
    {"name", COMMAND_SESSION, "put", ""},
    {"names", COMMAND_SESSION, "get", "NAME"},
    {"names[", COMMAND_SESSION, "get", "NAME"},
    {"lease_seconds", COMMAND_SESSION, NULL, "option --lease"},
    {"placement.backend", COMMAND_SESSION, NULL, "option --backend"},
    {"placement.device", COMMAND_SESSION, NULL, "option --backend"},
    {"placement.backend", COMMAND_TRAIN, NULL, "option --backend"},
    {"placement.device", COMMAND_TRAIN, NULL, "option --backend"},
    {"session_id", COMMAND_SESSION, NULL, ""},
};

/* false when the field is none of the above. "model.name" is not: what names a model has "model."
 * before it. */
static bool print_session_place(struct session *session, const char *field)
{
    const struct arguments *a = session->arguments;

    for (size_t i = 0; i < sizeof session_fields / sizeof *session_fields; i++) {
        const char *known = session_fields[i].field, *action = session_fields[i].action;
        size_t length = strlen(known);
        bool is_list = known[length - 1] == '[';
        if (session_fields[i].command != a->command->id ||
            (action && strcmp(action, a->topic) != 0) ||
            (is_list ? strncmp(field, known, length) : strcmp(field, known)) != 0)
            continue;
        if (session_fields[i].label[0])
            fprintf(stderr, "%s: ", session_fields[i].label);
        return true;
    }
    return false;
}

static void print_place(struct session *session, const char *field)
{
    static const char *const by_option[][2] = {{"batch_size", "--batch"},
                                               {"sequence_length", "--length (or --seq)"},
                                               {"strict", "--strict"},
                                               {"require[", "--require"},
                                               {"forbid[", "--forbid"}};
    const struct arguments *a = session->arguments;
    const char *variable;

    if ((a->command->id & (COMMANDS_OF_TENSORS | COMMAND_BENCH)) &&
        print_tensor_place(session, field))
        return;
    if (print_session_place(session, field))
        return;
    for (size_t i = 0; i < sizeof by_option / sizeof *by_option; i++) {
        const char *rest = field;
        if (take_prefix(&rest, by_option[i][0])) {
            fprintf(stderr, "option %s: ", by_option[i][1]);
            return;
        }
    }
    if (strcmp(field, "--server") == 0) {
        fputs(a->server ? "option --server: " : "environment variable 'OCTET_SERVER': ", stderr);
        return;
    }
    if (strncmp(field, "OCTET_", 6) == 0) {
        fprintf(stderr, "environment variable '%s': ", field);
        return;
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
    if (strcmp(err->field, "tiled_axes") == 0) /* "mxfp8 needs an axis with tiles of 32" */
        fprintf(stderr, ": --tiles AXIS=%s",
                strrchr(err->text, ' ') ? strrchr(err->text, ' ') + 1 : "SIZE");
    fputs("\n", stderr);
    return EXIT_FAILED;
}
