/* octet help, --help, --version, and completion: the tables of options.c in words. */
#include <stdio.h>
#include <string.h>

#include "session.h"

static void print_options(struct output *out, const struct command *command)
{
    output_text(out, "\noptions:\n");
    for (size_t i = 0; i < option_count; i++) {
        const struct option *o = &options[i];
        char left[64];
        if (!(o->commands & command->id))
            continue;
        const char letter[] = {'-', option_letter(o), ',', ' ', '\0'};
        snprintf(left, sizeof left, "%s--%s%s%s", letter[1] ? letter : "", o->name,
                 o->value ? " " : "", o->value ? o->value : "");
        if (strlen(left) > 26)
            output_printf(out, "  %s\n  %-28s%s\n", left, "", o->help);
        else
            output_printf(out, "  %-28s%s\n", left, o->help);
    }
}

static void print_command(struct output *out, const struct command *command)
{
    output_printf(out, "usage: octet %s%s%s [OPTION ...]\n\n%s\n", command->name,
                  command->operands[0] ? " " : "", command->operands, command->about);
    if (strstr(command->operands, "MODEL"))
        output_text(
            out,
            "\nMODEL is a name that octet info lists; KEY=VALUE are MaxText's own settings, as are "
            "the\n"
            "environment variables M_KEY. Later wins: MODEL, --config, environment, KEY=VALUE.\n");
    print_options(out, command);
}

static void print_overview(struct output *out)
{
    output_text(out, "usage: octet COMMAND [OPERAND ...] [OPTION ...]\n\n"
                     "Which matmuls of a MaxText model do Qwix's FP8 rules touch, what do they "
                     "compute,\nand how does the model learn under them?\n\ncommands:\n");
    for (size_t i = 0; i < command_count; i++)
        output_printf(out, "  %-12s%s\n", commands[i].name, commands[i].summary);
    output_text(out,
                "\noctet help COMMAND tells its options.\n\nexample:\n"
                "  octet trace deepseek3-671b mtp_num_layers=1 quantization=fp8_full "
                "--against quantize_mtp=true\n"
                "  octet dot x.safetensors:x w.safetensors:w --weight-qtype float8_e4m3fn "
                "--act-qtype float8_e4m3fn\n"
                "  octet train --config configs/train/deepseek-small.yml quantization=fp8_full "
                "--data FILE.txt\n"
                "\nexit status: 0 fine; 1 check found errors or verify found differences; 2 "
                "wrong use or input;\n130 interrupted by Ctrl-C (128 + N by another signal "
                "N).\n"
                "environment:\n"
                "  OCTET_SERVER                HOST:PORT to ask, as --server does\n"
                "  OCTET_CPU                   kernels to compute with here: scalar, avx2, "
                "...\n"
                "  OCTET_TOKEN                 sent as 'authorization: Bearer ...'\n"
                "  OCTET_TLS_CA                certificates (PEM) to trust; turns TLS on\n"
                "  OCTET_TLS_CERT, _KEY        this client's own (mutual TLS)\n"
                "  M_KEY                       MaxText's setting KEY, as KEY=VALUE does\n"
                "  NO_COLOR                    no colours\n");
}

/* A cell of a Markdown table: '|' would end it. */
static void print_cell(struct output *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '|')
            output_text(out, "\\");
        output_write(out, text, 1);
    }
}

static void print_markdown(struct output *out)
{
    output_text(out,
                "# The commands of octet\n\nWritten by `octet help --markdown`; exit status and "
                "environment are in `octet help`.\n");
    for (size_t i = 0; i < command_count; i++) {
        const struct command *command = &commands[i];
        output_printf(out, "\n## octet %s\n`octet %s%s%s [OPTION ...]`: %s.\n\n%s\n\n",
                      command->name, command->name, command->operands[0] ? " " : "",
                      command->operands, command->summary, command->about);
        output_text(out, "| option | meaning |\n|---|---|\n");
        for (size_t k = 0; k < option_count; k++) {
            if (!(options[k].commands & command->id))
                continue;
            output_text(out, "| `");
            if (option_letter(&options[k]))
                output_printf(out, "-%c`, `", option_letter(&options[k]));
            output_printf(out, "--%s%s", options[k].name, options[k].value ? " " : "");
            print_cell(out, options[k].value ? options[k].value : "");
            output_text(out, "` | ");
            print_cell(out, options[k].help);
            output_text(out, " |\n");
        }
    }
}

int run_help(struct session *session)
{
    const struct arguments *a = session->arguments;
    /* `octet help` is the overview, `octet help --help` is about help. */
    const struct command *command = a->command->id == COMMAND_HELP && !a->help ? NULL : a->command;

    if (a->version) {
        output_printf(session->out, "octet %s (%s)\n", octet_version(), octet_git_commit());
        return EXIT_FINE;
    }
    if (!command && a->topic) {
        command = command_find(a->topic);
        if (!command) {
            fputs("octet help: unknown command '", stderr);
            print_safe(a->topic);
            fprintf(stderr, "'; the nearest is '%s'\n", command_nearest(a->topic));
            return EXIT_FAILED;
        }
    }
    if (a->markdown)
        print_markdown(session->out);
    else if (command)
        print_command(session->out, command);
    else
        print_overview(session->out);
    return EXIT_FINE;
}

/* The words that may follow: one `case` arm a command, with its options, and its operands unless
 * these are files, which bash finds itself. */
static void print_bash_arm(struct output *out, const struct command *command)
{
    output_printf(out, "    %s) words=\"", command->name);
    for (size_t i = 0; i < option_count; i++)
        if (options[i].commands & command->id)
            output_printf(out, "--%s ", options[i].name);
    output_text(out, "\" operands=\"");
    if (strstr(command->operands, "MODEL"))
        output_text(out, "$models");
    else if (command->id == COMMAND_HELP)
        output_text(out, "$commands");
    else if (command->id & (COMMAND_BENCH | COMMAND_COMPLETION | COMMAND_SESSION))
        for (const char *c = command->operands; *c && *c != ' '; c++) /* "gemm|quantize|rpc" */
            output_write(out, *c == '|' ? " " : c, 1);
    output_text(out, "\" ;;\n");
}

static void print_bash(struct output *out)
{
    output_text(out, "_octet() {\n"
                     "  local current=\"${COMP_WORDS[COMP_CWORD]}\" command=\"${COMP_WORDS[1]}\"\n"
                     "  local words=\"\" operands=\"\" commands=\"");
    for (size_t i = 0; i < command_count; i++)
        output_printf(out, "%s ", commands[i].name);
    output_text(out, "\" models=\"");
    for (size_t i = 0; i < octet_model_count(); i++)
        output_printf(out, "%s ", octet_model_name(i));
    output_text(out, "\"\n  if [ \"$COMP_CWORD\" -eq 1 ]; then\n    operands=\"$commands\"\n"
                     "  else\n    case \"$command\" in\n");
    for (size_t i = 0; i < command_count; i++)
        print_bash_arm(out, &commands[i]);
    output_text(out, "    esac\n  fi\n"
                     "  case \"$current\" in\n    -*) ;;\n    *) words=\"$operands\" ;;\n  esac\n"
                     "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
                     "}\n"
                     "complete -o default -F _octet octet\n");
}

int run_completion(struct session *session)
{
    const char *shell = session->arguments->topic;

    if (!shell || strcmp(shell, "bash") != 0) {
        fputs("octet completion: the shell is '", stderr);
        print_safe(shell ? shell : "");
        fputs("', expected bash\n", stderr);
        return EXIT_FAILED;
    }
    print_bash(session->out);
    return EXIT_FINE;
}
