/* The tables of commands and options, and their parser; see options.h. */
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "octet/nearest.h"
#include "session.h"

#define MODEL_OPERANDS "MODEL [KEY=VALUE ...]"

const struct command commands[] = {
    {"trace", COMMAND_TRACE, MODEL_OPERANDS, "which matmuls the quantization rules touch",
     "Prints Qwix's own log lines for a training step of MODEL, without running it: one line for "
     "each\n"
     "intercepted op and the rule that takes it. Lookups for grouped matmuls, which Qwix does not "
     "log,\n"
     "stand among them as op=gmm.",
     run_trace},
    {"check", COMMAND_CHECK, MODEL_OPERANDS, "what an expert would object to, before a run",
     "Prints findings, each with the way out. The exit status is 1 when there is an error among "
     "them.",
     run_check},
    {"verify", COMMAND_VERIFY, "LOG " MODEL_OPERANDS, "compare a run's Qwix log with the trace",
     "Reads the log of a run of yours (- for standard input), finds Qwix's lines in it and "
     "compares "
     "them\n"
     "with the trace of MODEL. The run must log at absl level DEBUG: "
     "absl.logging.set_verbosity(\"debug\").\n"
     "The log has no gmm lookups and no types, so these are not compared. The exit status is 1 "
     "when "
     "lines\n"
     "differ.",
     run_verify},
    {"inspect", COMMAND_INSPECT, MODEL_OPERANDS, "names, shapes and sizes of the parameters",
     "Prints every parameter as MaxText stores it, and the totals.", run_inspect},
    {"plan", COMMAND_PLAN, MODEL_OPERANDS, "memory and work of one training step",
     "Prints what a session of MODEL takes, which octetd holds against its limit before it makes "
     "one, and\n"
     "the floating-point operations of its matmuls, by parts of the model. --infer: of a session "
     "that only\n"
     "runs forward and keeps quantized weights as codes. With --server the daemon is asked.",
     run_plan},
    {"quantize", COMMAND_QUANTIZE, "FILE[:NAME]",
     "an array to codes and scales, and what that loses",
     "Quantizes the array NAME (float32 or bfloat16) of a safetensors file as Qwix does, and "
     "prints "
     "what was\n"
     "lost. With -o the file OUT holds NAME (the codes), NAME.scale and, for a calibration that is "
     "not\n"
     "symmetric, NAME.zero_point; value = (code - zero_point) * scale. Each axis of a scale has 1, "
     "the\n"
     "array's own size, or the number of its tiles; int4 codes stand as I8. (DeepSeek's files name "
     "the same\n"
     "scale weight_scale_inv.) NAME may be left out where the file has one array.\n"
     "Scales are computed in the array's dtype, and --scale-dtype only casts them afterwards, as "
     "Qwix's\n"
     "astype does. Those of mxfp8, mxfp4 and nvfp4 are written in that dtype too: their values are "
     "powers\n"
     "of two (mxfp) or of float8_e4m3fn (nvfp4).",
     run_quantize},
    {"dequantize", COMMAND_DEQUANTIZE, "FILE[:NAME]", "codes and scales back to an array",
     "Reads NAME, NAME.scale and, where it is there, NAME.zero_point as octet quantize writes "
     "them. With\n"
     "--scale another array is the scale: weight_scale_inv of DeepSeek's files. Each of its axes "
     "must have\n"
     "1, or a number that divides NAME's axis.",
     run_dequantize},
    {"dot", COMMAND_DOT, "LHS RHS", "one dot_general under a rule, forward and backward",
     "Computes jax.lax.dot_general of two arrays, FILE[:NAME] each, with Qwix's arithmetic under "
     "the first\n"
     "rule that takes it, and prints Qwix's line, what quantizing did to the operands, and a "
     "digest "
     "of the\n"
     "result. Without rules and qtypes nothing is quantized. An operand of codes that has "
     "NAME.scale beside\n"
     "it is taken as quantized. -o writes out and, with --cotangent, lhs_grad and rhs_grad.",
     run_dot},
    {"gmm", COMMAND_GMM, "LHS RHS GROUP_SIZES", "one grouped matmul under a rule",
     "Multiplies rows of LHS [m, k], in groups, with the matrices of RHS [g, k, n]: MaxText's gmm, "
     "or\n"
     "JAX's ragged_dot. GROUP_SIZES is an int32 array FILE[:NAME], or its numbers: 3,0,5. Prints "
     "and writes\n"
     "as octet dot does.",
     run_gmm},
    {"session", COMMAND_SESSION, "create|list|show|put|get|save|load|delete|checkpoints ...",
     "what a daemon holds: models with their numbers",
     "create MODEL [KEY=VALUE ...]   makes a session of a model, of --seed, --from CHECKPOINT or "
     "--empty\n"
     "list                           the daemon's sessions\n"
     "show SESSION                   one of them\n"
     "put SESSION FILE.safetensors   fills its parameters (--kind) from a file, in chunks\n"
     "get SESSION [NAME ...] -o OUT  reads those that match the patterns NAME, or all\n"
     "save SESSION CHECKPOINT        keeps it in the daemon's --data-dir\n"
     "load SESSION CHECKPOINT        takes a checkpoint's numbers\n"
     "delete SESSION                 ends it\n"
     "checkpoints                    what the daemon has in its --data-dir",
     run_session},
    {"train", COMMAND_TRAIN, "MODEL [KEY=VALUE ...] --data FILE",
     "a model learns from a file, in a daemon",
     "Trains MODEL on a text file (its bytes are the tokens) or on tokens, and tells the losses, "
     "the MTP\n"
     "block's acceptance, the learning rate and the speed. Without --server it starts an octetd "
     "that ends\n"
     "with it; checkpoints are then in --data-dir. Ctrl-C (or SIGTERM) ends the run after the "
     "step, "
     "saves\n"
     "a checkpoint and says how to go on. Losses are in nats a token; that of the MTP block is the "
     "unscaled\n"
     "one.",
     run_train},
    {"plot", COMMAND_PLOT, "[NAME=]FILE.csv ...", "curves of training runs as one SVG",
     "Draws columns of CSV files that octet train --csv wrote over their column 'step'.", run_plot},
    {"bench", COMMAND_BENCH, "gemm|gemv|gmm|vjp|quantize|peaks|step|rpc",
     "speed beside a peer's in the same run",
     "gemm: products of codes with each kernel set, beside OpenBLAS's sgemm;\n"
     "gemv: the same with few rows and a weight that no cache holds, beside sgemv;\n"
     "gmm: the grouped product of a layer of experts, beside a loop of sgemm;\n"
     "vjp: a matmul of training under fp8_full, forward and both gradients, beside three sgemm;\n"
     "quantize: codes by rows, beside a copy of the same bytes;\n"
     "peaks: what this machine's instructions and memory give at most;\n"
     "step: a training step and a forward pass of small DeepSeek models, beside JAX's recorded "
     "time;\n"
     "rpc: calls to the daemon of --server, beside a bare gRPC server and beside this process.\n"
     "All sides take turns in one process. OpenBLAS runs with its kernels for Haswell and with "
     "those for the\n"
     "best AVX-512 core, each a copy of the library. Ratios above 1 are in Octet's favour.",
     run_bench},
    {"info", COMMAND_INFO, "", "version, limits and known models",
     "Prints facts of this program, or with --server of a daemon.", run_info},
    {"completion", COMMAND_COMPLETION, "bash", "a completion script for the shell",
     "Prints a script for bash; use it with: source <(octet completion bash)", run_completion},
    {"help", COMMAND_HELP, "[COMMAND]", "this text, or a command's", "Prints what a command does.",
     run_help},
};
const size_t command_count = sizeof commands / sizeof *commands;

#define DAEMONS (COMMAND_SESSION | COMMAND_TRAIN)
#define MODELS (COMMAND_TRACE | COMMAND_CHECK | COMMAND_VERIFY | COMMAND_INSPECT | COMMAND_PLAN)
#define TENSORS COMMANDS_OF_TENSORS
#define PRODUCTS (COMMAND_DOT | COMMAND_GMM)
#define CALLS (MODELS | COMMAND_INFO)
#define ALL                                                                                        \
    (CALLS | TENSORS | DAEMONS | COMMAND_PLOT | COMMAND_BENCH | COMMAND_COMPLETION | COMMAND_HELP)
#define AT(field) offsetof(struct arguments, field)

enum { GROUP_VIEW = 1, GROUP_PLACE, GROUP_EVAL, GROUP_START, GROUP_LENGTH, GROUP_COUNT };

const struct option options[] = {
    {"config", "FILE.yml", "MaxText's YAML keys, on top of MODEL (or with a model_name of its own)",
     MODELS | DAEMONS, OPTION_TEXT, 0, AT(config)},
    {"model", "MODEL", "the same as the operand MODEL", COMMAND_TRAIN, OPTION_TEXT, 0, AT(model)},
    {"rules", "FILE.yml", "Qwix rules in place of the config's",
     COMMAND_TRACE | COMMAND_CHECK | COMMAND_VERIFY | DAEMONS, OPTION_TEXT, 0, AT(rules)},
    {"against", "[MODEL] KEY=VALUE ...",
     "a second config: this one with these changes; print only what differs", COMMAND_TRACE,
     OPTION_AGAINST, 0, AT(against_overrides)},
    {"table", NULL, "every matmul with shapes, rule, count, work and weights", COMMAND_TRACE,
     OPTION_FLAG, GROUP_VIEW, AT(table)},
    {"coverage", NULL, "the share of work and weights that is quantized, by block", COMMAND_TRACE,
     OPTION_FLAG, GROUP_VIEW, AT(coverage)},
    {"json", NULL, "the whole answer as proto3 JSON",
     COMMAND_TRACE | COMMAND_INSPECT | COMMAND_PLAN | COMMAND_INFO, OPTION_FLAG, GROUP_VIEW,
     AT(json)},
    {"qtype", "TYPE", "float8_e4m3fn, float8_e5m2, int8, int4, mxfp8, nvfp4, ...", COMMAND_QUANTIZE,
     OPTION_TEXT, 0, AT(qtype)},
    {"method", "METHOD",
     "calibration: absmax (default), absmax,0.8, minmax, rms,7, fixed,MIN,MAX, fixed,BOUND",
     COMMAND_QUANTIZE, OPTION_TEXT, 0, AT(method)},
    {"axes", "AXIS,...", "axes with a scale for each index (default: one scale for all)",
     COMMAND_QUANTIZE, OPTION_TEXT, 0, AT(axes)},
    {"tiles", "AXIS=SIZE,...", "axes with a scale for each SIZE (128, or 1/4) indices",
     COMMAND_QUANTIZE, OPTION_LIST, 0, AT(tiles)},
    {"scale-dtype", "TYPE", "cast the scale to float32 or bfloat16 (default: the array's)",
     COMMAND_QUANTIZE, OPTION_TEXT, 0, AT(scale_dtype)},
    {"scale", "[FILE:]NAME", "the scale, where it is not NAME.scale", COMMAND_DEQUANTIZE,
     OPTION_TEXT, 0, AT(scale)},
    {"dtype", "TYPE", "float32 or bfloat16 (default: the scale's)", COMMAND_DEQUANTIZE, OPTION_TEXT,
     0, AT(dtype)},
    {"contract", "L,R", "axis L of LHS goes with R of RHS; may be repeated (default: last, first)",
     COMMAND_DOT, OPTION_LIST, 0, AT(contract)},
    {"batch", "L,R", "axis L of LHS and R of RHS are a batch; may be repeated", COMMAND_DOT,
     OPTION_LIST, 0, AT(batch_axes)},
    {"dims", "TEXT", "both in JAX's form: (((1,), (0,)), ((), ()))", COMMAND_DOT, OPTION_TEXT, 0,
     AT(dims)},
    {"transpose-rhs", NULL, "RHS is [g, n, k]", COMMAND_GMM, OPTION_FLAG, 0, AT(transpose_rhs)},
    {"op", "gmm|ragged_dot", "whose arithmetic: MaxText's gmm (default) or JAX's ragged_dot",
     COMMAND_GMM, OPTION_TEXT, 0, AT(op)},
    {"rules", "FILE.yml", "Qwix rules; the first that takes the op applies", PRODUCTS, OPTION_TEXT,
     0, AT(rules)},
    {"weight-qtype", "TYPE", "in place of --rules: the weight's type", PRODUCTS, OPTION_TEXT, 0,
     AT(weight_qtype)},
    {"act-qtype", "TYPE", "in place of --rules: the other operand's type (needs the weight's)",
     PRODUCTS, OPTION_TEXT, 0, AT(act_qtype)},
    {"bwd-qtype", "TYPE", "in place of --rules: the cotangent's type", PRODUCTS, OPTION_TEXT, 0,
     AT(bwd_qtype)},
    {"weight-method", "METHOD", "with --weight-qtype: its calibration, as of octet quantize",
     PRODUCTS, OPTION_TEXT, 0, AT(weight_method)},
    {"act-method", "METHOD", "with --act-qtype: its calibration", PRODUCTS, OPTION_TEXT, 0,
     AT(act_method)},
    {"bwd-method", "METHOD", "with --bwd-qtype: its calibration", PRODUCTS, OPTION_TEXT, 0,
     AT(bwd_method)},
    {"tile-size", "SIZE", "a scale for each SIZE (128, or 1/4) of the contracted elements",
     PRODUCTS, OPTION_TEXT, 0, AT(tile_size)},
    {"bwd-tile-size", "SIZE", "tiles of the weight's gradient (bwd_weight_grad_tile_size)",
     PRODUCTS, OPTION_TEXT, 0, AT(bwd_tile_size)},
    {"disable-channelwise-axes", NULL, "one scale for all channels", PRODUCTS, OPTION_FLAG, 0,
     AT(disable_channelwise_axes)},
    {"sparsity", "N:M", "of each M elements of the weight, keep the N largest", PRODUCTS,
     OPTION_TEXT, 0, AT(sparsity)},
    {"lhs-scale", "[FILE:]NAME", "the scale of LHS, where it is not NAME.scale", PRODUCTS,
     OPTION_TEXT, 0, AT(lhs_scale)},
    {"rhs-scale", "[FILE:]NAME", "the scale of RHS, where it is not NAME.scale", PRODUCTS,
     OPTION_TEXT, 0, AT(rhs_scale)},
    {"module", "PATH", "the module that rules see, decoder/layers/mlp/wi_0", PRODUCTS, OPTION_TEXT,
     0, AT(module)},
    {"weight", "rhs|lhs|none", "which operand is the weight (default: rhs)", COMMAND_DOT,
     OPTION_TEXT, 0, AT(weight)},
    {"cotangent", "FILE[:NAME]", "of the result: the gradients are computed too", PRODUCTS,
     OPTION_TEXT, 0, AT(cotangent)},
    {"out-dtype", "TYPE", "a final cast of the result", PRODUCTS, OPTION_TEXT, 0, AT(out_dtype)},
    {"qwix-compatible", NULL, "ignore those settings of a rule that Qwix ignores", PRODUCTS,
     OPTION_FLAG, 0, AT(qwix_compatible)},
    {"reference", "FILE[:NAME]", "an array to compare the result with", PRODUCTS, OPTION_TEXT, 0,
     AT(reference)},
    {"compare-unquantized", NULL, "how far the results are from those without rules", PRODUCTS,
     OPTION_FLAG, 0, AT(compare_unquantized)},
    {"data", "FILE", "text, tokens, or FILE.safetensors[:NAME]; may be repeated, each a document",
     COMMAND_TRAIN, OPTION_LIST, 0, AT(data)},
    {"tokens", "bytes|u16|u32", "what the files hold (default: bytes); numbers are little-endian",
     COMMAND_TRAIN, OPTION_TEXT, 0, AT(tokens)},
    {"document-end", "TOKEN", "the token that ends a document: attention stops there",
     COMMAND_TRAIN, OPTION_INDEX, 0, AT(document_end)},
    {"steps", "N",
     "the step at which the run and the rate's schedule end (default: steps=, else 1000)",
     COMMAND_TRAIN, OPTION_NUMBER, 0, AT(steps)},
    {"seed", "N", "of the parameters and of the order of the data (default: 0)", COMMAND_TRAIN,
     OPTION_INDEX, 0, AT(seed)},
    {"seed", "N", "of the parameters (default: the config's init_weights_seed)", COMMAND_SESSION,
     OPTION_INDEX, 0, AT(seed)},
    {"eval", "FILE", "data to evaluate on; may be repeated", COMMAND_TRAIN, OPTION_LIST, GROUP_EVAL,
     AT(eval)},
    {"eval-fraction", "SHARE", "hold back the last SHARE of the data, 0.1, to evaluate on",
     COMMAND_TRAIN, OPTION_TEXT, GROUP_EVAL, AT(eval_fraction)},
    {"eval-every", "N", "steps between evaluations (default: a twentieth of all)", COMMAND_TRAIN,
     OPTION_NUMBER, 0, AT(eval_every)},
    {"eval-batches", "N", "batches of an evaluation (default: 8)", COMMAND_TRAIN, OPTION_NUMBER, 0,
     AT(eval_batches)},
    {"log-every", "N", "steps between printed rows (default: with each evaluation)", COMMAND_TRAIN,
     OPTION_NUMBER, 0, AT(log_every)},
    {"plot", "FILE.svg", "draw the losses", COMMAND_TRAIN, OPTION_TEXT, 0, AT(plot)},
    {"csv", "FILE.csv", "write every step's figures", COMMAND_TRAIN, OPTION_TEXT, 0, AT(csv)},
    {"checkpoint", "NAME", "the checkpoint's name (default: train)", COMMAND_TRAIN, OPTION_TEXT, 0,
     AT(checkpoint)},
    {"save-every", "N", "steps between checkpoints (default: one at the end)", COMMAND_TRAIN,
     OPTION_NUMBER, 0, AT(save_every)},
    {"resume", NULL, "go on from the checkpoint, with the settings given here", COMMAND_TRAIN,
     OPTION_FLAG, GROUP_START, AT(resume)},
    {"overwrite", NULL, "replace a checkpoint of that name", COMMAND_TRAIN, OPTION_FLAG,
     GROUP_START, AT(overwrite)},
    {"data-dir", "DIR", "of the octetd that is started without --server (default: octet-data)",
     COMMAND_TRAIN, OPTION_TEXT, 0, AT(data_dir)},
    {"mode", "train|infer", "infer: weights that a rule quantizes are kept as codes",
     COMMAND_SESSION, OPTION_TEXT, 0, AT(mode)},
    {"from", "CHECKPOINT", "a checkpoint: its numbers, and without a MODEL its model and settings",
     COMMAND_SESSION, OPTION_TEXT, GROUP_START, AT(from)},
    {"empty", NULL, "all parameters are 0, to be filled with put", COMMAND_SESSION, OPTION_FLAG,
     GROUP_START, AT(empty)},
    {"lease", "SECONDS", "how long it lives without a call", COMMAND_SESSION, OPTION_NUMBER, 0,
     AT(lease)},
    {"backend", "NAME[:DEVICE]",
     "where products under rules run: cpu, opencl, cuda:1 (default: the daemon's first)",
     COMMAND_SESSION | COMMAND_TRAIN, OPTION_TEXT, 0, AT(backend)},
    {"accumulation", "exact|fast",
     "exact: one order of additions, the same bits everywhere (default); fast: any order",
     COMMAND_SESSION | COMMAND_TRAIN, OPTION_TEXT, 0, AT(accumulation)},
    {"kind", "parameter|gradient|optimizer", "what put and get are about (default: parameter)",
     COMMAND_SESSION, OPTION_TEXT, 0, AT(kind)},
    {"columns", "NAME,...",
     "columns to draw: of the losses, grad_norm, learning_rate, ... (default: train_main, "
     "eval_main, eval_mtp)",
     COMMAND_PLOT, OPTION_TEXT, 0, AT(columns)},
    {"first-step", "N", "leave out what was before this step", COMMAND_PLOT, OPTION_NUMBER, 0,
     AT(first_step)},
    {"title", "TEXT", "above the picture", COMMAND_PLOT, OPTION_TEXT, 0, AT(title)},
    {"model", "tiny|med|all", "step: the model (default: all)", COMMAND_BENCH, OPTION_TEXT, 0,
     AT(bench_model)},
    {"arm", "none|fp8|fp8mtp|all",
     "step: not quantized, fp8_full without and with the MTP block (default: all)", COMMAND_BENCH,
     OPTION_TEXT, 0, AT(arm)},
    {"shape", "MxKxN",
     "what is multiplied; each part may be a list, 1,8x2048x512,1024; may be repeated (gmm: "
     "TOKENSxKxN; quantize: MxK)",
     COMMAND_BENCH, OPTION_LIST, 0, AT(shapes)},
    {"dtype", "TYPE[xTYPE],...",
     "types of both operands: e4m3 (default), e5m2, int8, bf16, f32; quantize: f32xe4m3; step: "
     "float32 or bfloat16",
     COMMAND_BENCH, OPTION_TEXT, 0, AT(dtype)},
    {"layout", "kn|nk|packed|all",
     "rhs lies as [K,N], as [N,K], or packed as a session packs weights (default)", COMMAND_BENCH,
     OPTION_TEXT, 0, AT(layout)},
    {"kernels", "SET,...", "kernel sets (default: all that the CPU has)", COMMAND_BENCH,
     OPTION_TEXT, 0, AT(kernels)},
    {"core", "NAME,...", "OpenBLAS's kernels (default: Haswell, and Cooperlake or SkylakeX)",
     COMMAND_BENCH, OPTION_TEXT, 0, AT(core)},
    {"backend", "NAME[:DEVICE]",
     "a device, cuda or opencl:1, beside the CPU's best kernels in place of OpenBLAS (gemm, gmm, "
     "vjp, quantize)",
     COMMAND_BENCH, OPTION_TEXT, 0, AT(backend)},
    {"experts", "N", "gmm: matrices (default: 64)", COMMAND_BENCH, OPTION_NUMBER, 0, AT(experts)},
    {"top", "N", "gmm: of which each token goes to that many (default: 8)", COMMAND_BENCH,
     OPTION_NUMBER, 0, AT(top)},
    {"cold", NULL, "empty the caches before each run", COMMAND_BENCH, OPTION_FLAG, 0, AT(cold)},
    {"runs", "N", "timed runs (default: about a second of them; step: 60 of tiny, 12 of med)",
     COMMAND_BENCH, OPTION_NUMBER, 0, AT(runs)},
    {"threads", "N",
     "threads that compute, beside one thread (default: one; step: one for each CPU)",
     COMMAND_BENCH, OPTION_NUMBER, 0, AT(threads)},
    {"infer", NULL, "of a session that only runs the model forward", COMMAND_PLAN, OPTION_FLAG, 0,
     AT(infer)},
    {"output", "OUT", "write the result to this safetensors file", TENSORS | COMMAND_SESSION,
     OPTION_TEXT, 0, AT(output)},
    {"output", "OUT.svg", "the file to write", COMMAND_PLOT, OPTION_TEXT, 0, AT(output)},
    {"json", NULL, "figures as JSON", COMMAND_QUANTIZE | COMMAND_BENCH, OPTION_FLAG, 0, AT(json)},
    {"json", NULL, "the answer as proto3 JSON", COMMAND_SESSION, OPTION_FLAG, 0, AT(json)},
    {"json", NULL, "the answer as proto3 JSON, without the numbers of arrays",
     COMMAND_DEQUANTIZE | PRODUCTS, OPTION_FLAG, 0, AT(json)},
    {"threads", "N", "threads that compute here (default, and at most: one for each CPU)", TENSORS,
     OPTION_NUMBER, 0, AT(threads)},
    {"threads", "N", "threads of the octetd that is started without --server", COMMAND_TRAIN,
     OPTION_NUMBER, 0, AT(threads)},
    {"require", "REGEX", "modules that must be quantized; may be repeated", COMMAND_CHECK,
     OPTION_LIST, 0, AT(require)},
    {"forbid", "REGEX", "modules that must not be quantized; may be repeated", COMMAND_CHECK,
     OPTION_LIST, 0, AT(forbid)},
    {"lock", "FILE", "write the trace to FILE the first time, compare with it from then on",
     COMMAND_CHECK, OPTION_TEXT, 0, AT(lock)},
    {"format", "text|github|junit|json", "how findings are printed", COMMAND_CHECK, OPTION_TEXT, 0,
     AT(format)},
    {"strict", NULL, "a rule that matches nothing is an error", COMMAND_TRACE, OPTION_FLAG, 0,
     AT(strict)},
    {"strict", NULL, "warnings count as errors", COMMAND_CHECK, OPTION_FLAG, 0, AT(strict)},
    {"strict", NULL, "another order of the same lines is a difference too", COMMAND_VERIFY,
     OPTION_FLAG, 0, AT(strict)},
    {"batch", "N", "rows of the batch (default: the config's per_device_batch_size)",
     MODELS | DAEMONS, OPTION_NUMBER, 0, AT(batch)},
    {"length", "N", "length of a row (default: the config's max_target_length)", MODELS | DAEMONS,
     OPTION_NUMBER, GROUP_LENGTH, AT(sequence)},
    {"seq", "N", "the same as --length", MODELS | DAEMONS, OPTION_NUMBER, GROUP_LENGTH,
     AT(sequence)},
    {"server", "HOST:PORT", "ask this daemon (default: $OCTET_SERVER, else none)", CALLS | TENSORS,
     OPTION_TEXT, GROUP_PLACE, AT(server)},
    {"server", "HOST:PORT", "the daemon for rpc (default: $OCTET_SERVER)", COMMAND_BENCH,
     OPTION_TEXT, GROUP_PLACE, AT(server)},
    {"server", "HOST:PORT", "the daemon (default: $OCTET_SERVER)", COMMAND_SESSION, OPTION_TEXT,
     GROUP_PLACE, AT(server)},
    {"server", "HOST:PORT", "the daemon (default: $OCTET_SERVER, else one is started)",
     COMMAND_TRAIN, OPTION_TEXT, GROUP_PLACE, AT(server)},
    {"local", NULL, "ask no daemon, whatever $OCTET_SERVER says", CALLS | TENSORS, OPTION_FLAG,
     GROUP_PLACE, AT(local)},
    {"local", NULL, "start a daemon, whatever $OCTET_SERVER says", COMMAND_TRAIN, OPTION_FLAG,
     GROUP_PLACE, AT(local)},
    {"timeout", "SECONDS", "give up after this long (default: 60)", CALLS, OPTION_NUMBER, 0,
     AT(timeout)},
    {"timeout", "SECONDS", "give up after this long (default: 60 with a daemon, else never)",
     TENSORS, OPTION_NUMBER, 0, AT(timeout)},
    {"timeout", "SECONDS", "give a call up after this long (default: never)", DAEMONS,
     OPTION_NUMBER, 0, AT(timeout)},
    {"help", NULL, "this text", ALL, OPTION_FLAG, 0, AT(help)},
    {"markdown", NULL, "all commands as Markdown (docs/commands.md)", COMMAND_HELP, OPTION_FLAG, 0,
     AT(markdown)},
    {"version", NULL, "version and commit", COMMAND_HELP, OPTION_FLAG, 0, AT(version)},
};
const size_t option_count = sizeof options / sizeof *options;

char option_letter(const struct option *option)
{
    return strcmp(option->name, "output") == 0 ? 'o' : '\0';
}

const struct command *command_find(const char *name)
{
    for (size_t i = 0; i < command_count; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

struct parser {
    struct arguments *out;
    int argc, next;
    char **argv;
    const struct option *groups[GROUP_COUNT]; /* the option given of each exclusive group */
    bool in_against;                          /* operands belong to the second config */
    bool options_ended;                       /* after -- */
    struct octet_error *err;
};

OCTET_PRINTF(2, 3)
static enum octet_status usage(struct parser *p, const char *format, ...)
{
    char text[sizeof p->err->text];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return octet_fail(p->err, OCTET_INVALID_ARGUMENT, NULL, "%s", text);
}

static const struct option *option_find(const struct command *command, const char *name,
                                        size_t length)
{
    for (size_t i = 0; i < option_count; i++)
        if ((options[i].commands & command->id) && strlen(options[i].name) == length &&
            memcmp(options[i].name, name, length) == 0)
            return &options[i];
    return NULL;
}

static const struct option *option_by_letter(const struct command *command, char letter)
{
    for (size_t i = 0; i < option_count; i++)
        if ((options[i].commands & command->id) && option_letter(&options[i]) == letter)
            return &options[i];
    return NULL;
}

static const char *command_name(const void *user, size_t i)
{
    (void)user;
    return commands[i].name;
}

const char *command_nearest(const char *name)
{
    return commands[octet_nearest(name, command_count, command_name, NULL)].name;
}

/* Name of the i-th option that the command takes. */
static const char *option_name(const void *user, size_t i)
{
    const struct command *command = user;

    for (size_t k = 0; k < option_count; k++)
        if ((options[k].commands & command->id) && i-- == 0)
            return options[k].name;
    return "";
}

static enum octet_status unknown_option(struct parser *p, const char *word)
{
    const struct command *command = p->out->command;
    size_t count = 0;

    for (size_t k = 0; k < option_count; k++)
        count += (options[k].commands & command->id) != 0;
    const char *text = word + strspn(word, "-"), *equals = strchr(text, '=');
    if (equals && (command->id & (MODELS | DAEMONS)))
        return usage(p, "unknown option '%s'; a setting goes without dashes: %s", word, text);
    size_t best = octet_nearest(text, count, option_name, command);
    return usage(p, "unknown option '%s'; the nearest is --%s (octet help %s lists all)", word,
                 option_name(command, best), command->name);
}

static enum octet_status parse_number(struct parser *p, const struct option *option,
                                      const char *text, int64_t *out)
{
    int least = option->kind == OPTION_NUMBER;
    char *end;

    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end || errno || value < least)
        return usage(p, "option --%s: '%s' is not a whole number from %d up", option->name, text,
                     least);
    *out = value;
    return OCTET_OK;
}

/* Is the value one of those that help lists, "rhs|lhs|none"? */
static enum octet_status check_choice(struct parser *p, const struct option *option,
                                      const char *value)
{
    const char *at = option->value;
    size_t length = strlen(value);
    char listed[64];

    while (*at) {
        size_t word = strcspn(at, "|");
        if (word == length && memcmp(at, value, length) == 0)
            return OCTET_OK;
        at += word + (at[word] == '|');
    }
    size_t used = 0;
    for (at = option->value; *at && used + 3 < sizeof listed; at++) {
        listed[used++] = *at == '|' ? ',' : *at;
        if (*at == '|')
            listed[used++] = ' ';
    }
    listed[used] = '\0';
    return usage(p, "option --%s: '%s' is none of %s", option->name, value, listed);
}

static enum octet_status set_option(struct parser *p, const struct option *option,
                                    const char *value)
{
    void *field = (char *)p->out + option->offset;
    struct text_list *list = field;

    switch (option->kind) {
    case OPTION_FLAG:
        *(bool *)field = true;
        return OCTET_OK;
    case OPTION_TEXT:
        *(const char **)field = value;
        return strchr(option->value, '|') ? check_choice(p, option, value) : OCTET_OK;
    case OPTION_NUMBER:
    case OPTION_INDEX:
        return parse_number(p, option, value, field);
    case OPTION_LIST:
        list->items[list->count++] = value;
        return OCTET_OK;
    case OPTION_AGAINST:
        p->out->compare = p->in_against = true;
        return OCTET_OK;
    }
    return OCTET_OK;
}

static enum octet_status parse_operand(struct parser *p, const char *word);

static enum octet_status take_option(struct parser *p, const struct option *option,
                                     const char *value);

/* --name, --name=value */
static enum octet_status parse_option(struct parser *p, const char *word)
{
    const char *name = word + 2, *equals = strchr(name, '=');
    size_t length = equals ? (size_t)(equals - name) : strlen(name);
    const struct option *option = option_find(p->out->command, name, length);

    return option ? take_option(p, option, equals ? equals + 1 : NULL) : unknown_option(p, word);
}

/* -o VALUE, -oVALUE */
static enum octet_status parse_letter(struct parser *p, const char *word)
{
    const struct option *option = option_by_letter(p->out->command, word[1]);

    return option ? take_option(p, option, word[2] ? word + 2 : NULL) : unknown_option(p, word);
}

static enum octet_status take_option(struct parser *p, const struct option *option,
                                     const char *value)
{
    p->in_against = false;
    if (option->kind == OPTION_FLAG && value)
        return usage(p, "option --%s takes no value, but got '%s'", option->name, value);
    if (option->kind != OPTION_FLAG && option->kind != OPTION_AGAINST && !value) {
        if (p->next == p->argc)
            return usage(p, "option --%s needs a value: %s", option->name, option->value);
        value = p->argv[p->next++];
    }
    if (value && !*value)
        return usage(p, "option --%s: its value is empty", option->name);
    if (option->group) {
        const struct option **given = &p->groups[option->group];
        if (*given && *given != option)
            return usage(p, "options --%s and --%s exclude each other", (*given)->name,
                         option->name);
        *given = option;
    }
    enum octet_status status = set_option(p, option, value);
    if (status == OCTET_OK && option->kind == OPTION_AGAINST && value)
        status = parse_operand(p, value); /* --against=KEY=VALUE */
    return status;
}

/* What octet session does, and how many operands that has. */
static const struct action {
    const char *name, *operands;
    size_t least, most;
} actions[] = {{"create", "MODEL [KEY=VALUE ...]", 0, 0},
               {"list", "nothing more", 0, 0},
               {"show", "SESSION", 1, 1},
               {"put", "SESSION FILE.safetensors", 2, 2},
               {"get", "SESSION [NAME ...] -o OUT", 1, SIZE_MAX},
               {"save", "SESSION CHECKPOINT", 2, 2},
               {"load", "SESSION CHECKPOINT", 2, 2},
               {"delete", "SESSION", 1, 1},
               {"checkpoints", "nothing more", 0, 0}};

static const struct action *find_action(const char *name)
{
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
        if (strcmp(actions[i].name, name) == 0)
            return &actions[i];
    return NULL;
}

static const char *action_name(const void *user, size_t i)
{
    (void)user;
    return actions[i].name;
}

static enum octet_status take_action(struct parser *p, const char *word)
{
    size_t count = sizeof actions / sizeof *actions;

    if (!find_action(word))
        return usage(p, "unknown action '%s'; the nearest is '%s' (octet help session lists all)",
                     word, action_name(NULL, octet_nearest(word, count, action_name, NULL)));
    p->out->topic = word;
    return OCTET_OK;
}

static enum octet_status parse_operand(struct parser *p, const char *word)
{
    struct arguments *out = p->out;
    unsigned command = out->command->id;
    const char *equals = strchr(word, '=');
    struct text_list *list = p->in_against ? &out->against_overrides : &out->overrides;
    const char **model = p->in_against ? &out->against_model : &out->model;

    if (command == COMMAND_SESSION && !out->topic)
        return take_action(p, word);
    if ((command & (TENSORS | COMMAND_PLOT)) ||
        (command == COMMAND_SESSION && strcmp(out->topic, "create") != 0)) {
        if (!*word)
            return usage(p, "an operand is empty; expected %s", out->command->operands);
        out->operands.items[out->operands.count++] = word;
        return OCTET_OK;
    }
    if (command & (COMMAND_HELP | COMMAND_COMPLETION | COMMAND_BENCH)) {
        if (out->topic)
            return usage(p, "one operand is enough: '%s', '%s'", out->topic, word);
        out->topic = word;
        return OCTET_OK;
    }
    if (!(command & (MODELS | DAEMONS)))
        return usage(p, "takes no operand, but got '%s'", word);
    if (command == COMMAND_VERIFY && !out->log) {
        out->log = word;
        return OCTET_OK;
    }
    if (equals == word)
        return usage(p, "'%s' has no key before the '='", word);
    if (equals) {
        list->items[list->count++] = word;
        return OCTET_OK;
    }
    if (!*word)
        return usage(p, "an operand is empty; expected a MODEL or KEY=VALUE");
    if (*model || list->count)
        return usage(p, "'%s' is not KEY=VALUE%s", word, *model ? "" : " (a model comes first)");
    *model = word;
    return OCTET_OK;
}

bool arguments_name_model(const struct arguments *out)
{
    if (out->model || out->config)
        return true;
    for (size_t i = 0; i < out->overrides.count; i++)
        if (strncmp(out->overrides.items[i], "model_name=", 11) == 0)
            return true;
    return false;
}

/* "LHS RHS" are two. */
static size_t count_words(const char *text)
{
    size_t count = 1;

    for (; *text; text++)
        count += *text == ' ';
    return count;
}

/* The options that stand for the fields of a rule. */
static enum octet_status check_short_rule(struct parser *p)
{
    const struct arguments *a = p->out;
    const struct {
        const char *option, *needed; /* needed: the option without which it has no effect */
        bool given, has_effect;
    } rows[] = {
        {"weight-qtype", "", a->weight_qtype, true},
        {"act-qtype", "", a->act_qtype, true}, /* without the weight's, the answer has a note */
        {"bwd-qtype", "", a->bwd_qtype, true},
        {"weight-method", "weight-qtype", a->weight_method, a->weight_qtype},
        {"act-method", "act-qtype", a->act_method, a->act_qtype},
        {"bwd-method", "bwd-qtype", a->bwd_method, a->bwd_qtype},
        {"tile-size", "weight-qtype", a->tile_size, a->weight_qtype},
        {"bwd-tile-size", "bwd-qtype", a->bwd_tile_size, a->bwd_qtype},
        {"disable-channelwise-axes", "weight-qtype", a->disable_channelwise_axes, a->weight_qtype},
        {"sparsity", "weight-qtype", a->sparsity, a->weight_qtype},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].given && a->rules)
            return usage(p, "options --rules and --%s exclude each other", rows[i].option);
        if (rows[i].given && !rows[i].has_effect)
            return usage(p, "option --%s has no effect without --%s", rows[i].option,
                         rows[i].needed);
    }
    return OCTET_OK;
}

static enum octet_status check_tensors(struct parser *p)
{
    const struct arguments *out = p->out;
    const struct command *command = out->command;

    size_t expected = count_words(command->operands);
    if (out->operands.count != expected)
        return usage(p, "%zu operand%s expected (%s), not %zu", expected, expected == 1 ? "" : "s",
                     command->operands, out->operands.count);
    if (command->id == COMMAND_QUANTIZE && !out->qtype)
        return usage(p, "needs --qtype, for example: --qtype float8_e4m3fn");
    if (command->id == COMMAND_DEQUANTIZE && !out->output)
        return usage(p, "needs -o OUT, the file to write");
    if (out->dims && (out->contract.count || out->batch_axes.count))
        return usage(p, "options --dims and --%s exclude each other",
                     out->contract.count ? "contract" : "batch");
    if (out->server && out->threads)
        return usage(p, "option --threads is about this process, and --server computes elsewhere");
    return check_short_rule(p);
}

static enum octet_status check_session(struct parser *p)
{
    const struct arguments *out = p->out;

    if (!out->topic)
        return usage(p, "needs an action: create, list, show, put, get, save, load, delete or "
                        "checkpoints");
    const struct action *action = find_action(out->topic);
    size_t given = out->operands.count;
    if (given < action->least || given > action->most)
        return usage(p, "%s: expected %s, not %zu operand%s", action->name, action->operands, given,
                     given == 1 ? "" : "s");
    if (strcmp(action->name, "get") == 0 && !out->output)
        return usage(p, "get: needs -o OUT, the file to write");
    if (strcmp(action->name, "create") != 0)
        return OCTET_OK;
    if (out->from && !arguments_name_model(out) && (out->overrides.count || out->rules))
        return usage(p, "create: --from without a MODEL takes the checkpoint's own settings; with "
                        "others the MODEL must be named too");
    if (out->from)
        return OCTET_OK;
    if (!arguments_name_model(out))
        return usage(p, "create: needs a MODEL (octet info lists all) or --from CHECKPOINT");
    return OCTET_OK;
}

/* A picture by the name of another format would be a file that its programs do not open. */
static enum octet_status check_svg(struct parser *p, const char *option, const char *path)
{
    static const char *const others[] = {".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf", ".eps"};
    const char *dot = path ? strrchr(path, '.') : NULL;

    for (size_t i = 0; dot && i < sizeof others / sizeof *others; i++)
        if (strcasecmp(dot, others[i]) == 0)
            return usage(p,
                         "option %s: '%s': pictures are SVG; name it .svg (rsvg-convert, for "
                         "one, turns it into another format)",
                         option, path);
    return OCTET_OK;
}

static enum octet_status check_train(struct parser *p)
{
    const struct arguments *out = p->out;

    if (!arguments_name_model(out))
        return usage(p, "needs a MODEL, for example: octet train deepseek3-tiny --data FILE (octet "
                        "info lists all)");
    if (!out->data.count)
        return usage(p, "needs --data FILE, a text to learn from");
    if (out->eval_every && !out->eval.count && !out->eval_fraction)
        return usage(p, "option --eval-every has no effect without --eval or --eval-fraction");
    return check_svg(p, "--plot", out->plot);
}

static enum octet_status check_plot(struct parser *p)
{
    const struct arguments *out = p->out;

    if (!out->operands.count)
        return usage(p, "needs a file: [NAME=]FILE.csv");
    if (!out->output)
        return usage(p, "needs -o OUT.svg, the file to write");
    return check_svg(p, "--output", out->output);
}

static enum octet_status check_complete(struct parser *p)
{
    struct arguments *out = p->out;
    unsigned command = out->command->id;

    if (out->help || out->version)
        return OCTET_OK;
    if (command == COMMAND_SESSION)
        return check_session(p);
    if (command == COMMAND_TRAIN)
        return check_train(p);
    if (command == COMMAND_PLOT)
        return check_plot(p);
    if (command & TENSORS)
        return check_tensors(p);
    if (!(command & MODELS))
        return OCTET_OK;
    if (command == COMMAND_VERIFY && !out->log)
        return usage(p, "needs a LOG and a MODEL (octet help verify shows how)");
    if (!arguments_name_model(out) && command == COMMAND_VERIFY)
        return usage(p,
                     "'%s' is taken as the LOG, then there is no MODEL; for example: octet verify "
                     "run.log deepseek3-671b",
                     out->log);
    if (!arguments_name_model(out))
        return usage(p,
                     "needs a MODEL, for example: octet %s deepseek3-671b (octet info lists all)",
                     out->command->name);
    if (out->compare && !out->against_model && !out->against_overrides.count)
        return usage(p, "option --against needs KEY=VALUE or another model");
    return OCTET_OK;
}

static enum octet_status find_command(struct parser *p, const char *word)
{
    static const char *const synonyms[][2] = {
        {"--help", "help"}, {"-h", "help"}, {"--version", "help"}, {"-V", "help"}};

    p->out->command = command_find(word);
    for (size_t i = 0; !p->out->command && i < sizeof synonyms / sizeof *synonyms; i++)
        if (strcmp(word, synonyms[i][0]) == 0) {
            p->out->command = command_find(synonyms[i][1]);
            p->out->version = i >= 2;
        }
    if (p->out->command)
        return OCTET_OK;
    return usage(p, "unknown command '%s'; the nearest is '%s' (octet help lists all)", word,
                 command_nearest(word));
}

/* Every list can hold all words, so that none has to grow. */
static bool make_lists(octet_arena *arena, int argc, struct arguments *out)
{
    struct text_list *lists[] = {
        &out->overrides, &out->against_overrides, &out->require,    &out->forbid, &out->operands,
        &out->tiles,     &out->contract,          &out->batch_axes, &out->data,   &out->eval,
        &out->shapes};

    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        lists[i]->items = OCTET_NEW_ARRAY(arena, argc + 1, const char *);
        if (!lists[i]->items)
            return false;
    }
    return true;
}

enum octet_status arguments_parse(octet_arena *arena, int argc, char **argv, struct arguments *out,
                                  struct octet_error *err)
{
    struct parser p = {.out = out, .argc = argc, .argv = argv, .next = 2, .err = err};

    *out = (struct arguments){.argc = argc, .argv = argv, .seed = -1, .document_end = -1};
    if (!make_lists(arena, argc, out))
        return octet_arena_exhausted(arena, err);
    enum octet_status status = find_command(&p, argc < 2 ? "help" : argv[1]);
    while (status == OCTET_OK && p.next < argc) {
        const char *word = argv[p.next++];
        if (p.options_ended || word[0] != '-' || strcmp(word, "-") == 0)
            status = parse_operand(&p, word);
        else if (strcmp(word, "--") == 0)
            p.options_ended = true;
        else if (strcmp(word, "-h") == 0)
            out->help = true;
        else if (word[1] != '-')
            status = parse_letter(&p, word);
        else
            status = parse_option(&p, word);
    }
    return status == OCTET_OK ? check_complete(&p) : status;
}
