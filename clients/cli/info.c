/* octet info: what answers, here or in a daemon. */
#include <string.h>

#include "session.h"
#include "wire/convert.h"
#include "wire/methods.h"

/* Words in lines of at most 100 characters, under each other. */
static void print_words(struct output *out, const char *name, char *const *words, size_t count)
{
    enum { INDENT = 22, WIDTH = 100 };
    size_t column = INDENT;

    output_printf(out, "%-*s", INDENT, name);
    for (size_t i = 0; i < count; i++) {
        size_t length = strlen(words[i]);
        if (i && column + 1 + length > WIDTH) {
            output_printf(out, "\n%*s", INDENT, "");
            column = INDENT;
        } else if (i) {
            output_text(out, " ");
            column++;
        }
        output_text(out, words[i]);
        column += length;
    }
    output_text(out, count ? "\n" : "none\n");
}

static void print_limits(struct output *out, const Octet__V1__Limits *limits)
{
    char text[32];
    const struct {
        const char *name;
        int64_t bytes, number;
    } rows[] = {
        {"message, at most", limits->max_message_bytes, 0},
        {"config request", limits->config_request_bytes, 0},
        {"memory of a request", limits->request_memory_bytes, 0},
        {"YAML text", limits->yaml_bytes, 0},
        {"queue", 0, limits->queue_length},
        {"lanes", 0, limits->lanes},
        {"graph nodes", 0, limits->graph_nodes},
        {"rules", 0, limits->rules},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].bytes)
            output_printf(out, "%-22s%s\n", rows[i].name, human_bytes(rows[i].bytes, text));
        else if (rows[i].number)
            output_printf(out, "%-22s%lld\n", rows[i].name, (long long)rows[i].number);
    }
}

static void print_info(struct session *session, const Octet__V1__GetServerInfoResponse *info)
{
    const char *server = session_server(session);
    struct output *out = session->out;

    output_printf(out, "%-22s%s (%s)\n", server ? "octetd" : "octet", info->version,
                  info->git_commit);
    output_printf(out, "%-22s%s\n", "answers", server ? server : "this process, no daemon");
    print_words(out, "backends", info->backends, info->n_backends);
    print_words(out, "accumulations", info->accumulations, info->n_accumulations);
    output_printf(out, "%-22s%s\n", "kernels", info->kernels[0] ? info->kernels : "none built in");
    if (info->n_cpu_features)
        print_words(out, "CPU features", info->cpu_features, info->n_cpu_features);
    if (info->limits)
        print_limits(out, info->limits);
    print_words(out, "models", info->models, info->n_models);
}

int run_info(struct session *session)
{
    Octet__V1__GetServerInfoRequest request = OCTET__V1__GET_SERVER_INFO_REQUEST__INIT;
    ProtobufCMessage *message;
    struct octet_error err = {0};

    if (session_call(session, "GetServerInfo", &request.base, &message, &err) != OCTET_OK)
        return report(session, &err);
    if (session->arguments->json)
        (void)octet_wire_json(message, output_json, session->out); /* it keeps the error */
    else
        print_info(session, (const Octet__V1__GetServerInfoResponse *)message);
    return EXIT_FINE;
}
