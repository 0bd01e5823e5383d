/* octet bench step: a training step and a forward pass of two small DeepSeek models, and where the
 * time goes, beside JAX with Qwix.
 *
 * Decision: JAX is not run here, it takes minutes to compile and a gigabyte to install. Its figures
 * are those that MaxText itself gave on two cores of an AMD EPYC without rematerialisation
 * (shared/golden/maxtext/timing.json, November 2026), or those of a file that scripts/bench-jax
 * --json wrote on this machine. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "octet/session.h"
#include "progress.h"

enum { RUNS_TINY = 60, RUNS_MED = 12, WARM_UP = 2, RUNS_OF_OPS = 5 };

static const char *const tiny_settings[] = {
    "base_emb_dim=64",
    "base_num_query_heads=4",
    "base_num_kv_heads=4",
    "base_mlp_dim=128",
    "base_moe_mlp_dim=32",
    "base_num_decoder_layers=3",
    "first_num_dense_layers=1",
    "vocab_size=256",
    "q_lora_rank=32",
    "kv_lora_rank=16",
    "qk_nope_head_dim=16",
    "qk_rope_head_dim=8",
    "v_head_dim=16",
    "max_position_embeddings=64",
    "original_max_position_embeddings=16",
    NULL,
};
static const char *const med_settings[] = {
    "base_emb_dim=512",
    "base_num_query_heads=8",
    "base_num_kv_heads=8",
    "base_mlp_dim=1024",
    "base_moe_mlp_dim=256",
    "base_num_decoder_layers=4",
    "first_num_dense_layers=1",
    "vocab_size=512",
    "q_lora_rank=192",
    "kv_lora_rank=128",
    "qk_nope_head_dim=64",
    "qk_rope_head_dim=32",
    "v_head_dim=64",
    "max_position_embeddings=256",
    "original_max_position_embeddings=64",
    NULL,
};
static const char *const common_settings[] = {
    "num_experts=8",
    "num_experts_per_tok=2",
    "shared_experts=1",
    "rope_factor=4",
    "beta_fast=32",
    "mscale=1.0",
    "mtp_num_layers=1",
    "scan_layers=false",
    "sparse_matmul=true",
    "megablox=false",
    "routed_scaling_factor=2.5",
    "enable_dropout=false",
    NULL,
};

static const struct bench_model {
    const char *name;
    const char *const *settings;
    int64_t batch, length;
    int runs;
} models[] = {{"tiny", tiny_settings, 2, 32, RUNS_TINY}, {"med", med_settings, 4, 128, RUNS_MED}};

static const struct bench_arm {
    const char *name, *settings[3];
} arms[] = {{"none", {"quantization=", NULL}},
            {"fp8", {"quantization=fp8_full", "quantize_mtp=false", NULL}},
            {"fp8mtp", {"quantization=fp8_full", "quantize_mtp=true", NULL}}};

/* Median milliseconds of MaxText on JAX 0.10.2 with Qwix 0.1.8; see above. */
static const struct {
    const char *model, *arm, *dtype;
    double forward_ms, step_ms;
} jax_figures[] = {
    {"tiny", "none", "float32", 0.94, 4.07},     {"tiny", "fp8", "float32", 2.80, 8.34},
    {"tiny", "fp8mtp", "float32", 3.30, 9.50},   {"med", "none", "float32", 114.12, 459.81},
    {"med", "fp8", "float32", 238.20, 593.94},   {"med", "fp8mtp", "float32", 269.54, 655.60},
    {"med", "none", "bfloat16", 165.95, 464.83}, {"med", "fp8mtp", "bfloat16", 285.43, 644.53},
};

/* One session that is measured. */
struct stepped {
    octet_context *context;
    octet_workers *workers;
    octet_session *session;
    struct octet_batch batch;
    octet_arena *data, *call; /* the batch's memory; emptied after each call */
    const struct octet_cancel *cancel;
    struct octet_optimizer optimizer;
};

static enum octet_status make_session(struct stepped *s, const struct bench_model *model,
                                      const struct bench_arm *arm, const char *dtype,
                                      struct octet_error *err)
{
    const char *const *lists[] = {common_settings, model->settings, arm->settings};
    struct octet_pair pairs[64];
    size_t count = 0;

    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++)
        for (const char *const *text = lists[l]; *text; text++) {
            const char *equals = strchr(*text, '=');
            char *key = octet_arena_copy(s->data, *text, (size_t)(equals - *text));
            if (!key)
                return octet_arena_exhausted(s->data, err);
            pairs[count++] = (struct octet_pair){key, equals + 1};
        }
    pairs[count++] = (struct octet_pair){"dtype", dtype};
    const struct octet_config_input input = {
        .name = "deepseek3-tiny", .overrides = pairs, .override_count = count};
    const struct octet_session_options how = {.mode = OCTET_SESSION_TRAIN,
                                              .batch_size = model->batch,
                                              .sequence_length = model->length,
                                              .threads = octet_workers_threads(s->workers)};
    const struct octet_compute compute = {s->call, s->workers, s->cancel};
    enum octet_status status =
        octet_session_create(s->context, &input, NULL, &how, &s->session, err);
    if (status == OCTET_OK)
        status = octet_session_initialise(s->session, 0, &compute, err);
    if (status == OCTET_OK)
        octet_session_optimizer(s->session, &s->optimizer);
    octet_arena_reset(s->call);
    return status;
}

static enum octet_status make_batch(struct stepped *s, const struct bench_model *model,
                                    int64_t vocab_size, struct octet_error *err)
{
    const int64_t dim[] = {model->batch, model->length};
    uint64_t state = 1;
    enum octet_status status =
        octet_array_create(s->data, OCTET_DTYPE_S32, 2, dim, &s->batch.tokens, err);

    for (int64_t i = 0; status == OCTET_OK && i < dim[0] * dim[1]; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        ((int32_t *)s->batch.tokens.data)[i] = (int32_t)((state >> 33) % (uint64_t)vocab_size);
    }
    return status;
}

static enum octet_status run_forward(struct stepped *s, struct octet_error *err)
{
    const struct octet_compute compute = {s->call, s->workers, s->cancel};
    const struct octet_pass_options how = {.reduction = OCTET_REDUCTION_MEAN};
    struct octet_pass pass = {0};
    enum octet_status status =
        octet_session_forward(s->session, &compute, &s->batch, &how, &pass, err);

    if (status == OCTET_OK)
        octet_plan_unref(pass.plan);
    return status;
}

/* Keeps the least that each kind of op took. */
static enum octet_status keep_times(struct bench_row *row, const struct octet_pass *pass,
                                    double optimizer_ms, octet_arena *arena,
                                    struct octet_error *err)
{
    size_t count = pass->time_count + 1;
    bool first = !row->times;

    if (first && !(row->times = OCTET_NEW_ARRAY(arena, count, struct bench_time)))
        return octet_arena_exhausted(arena, err);
    row->time_count = count;
    for (size_t i = 0; i < count; i++) {
        bool is_op = i < pass->time_count;
        struct bench_time now = {is_op ? pass->times[i].op : "optimizer",
                                 is_op ? pass->times[i].forward_s * 1e3 : 0,
                                 is_op ? pass->times[i].backward_s * 1e3 : optimizer_ms};
        struct bench_time *least = &row->times[i];
        if (first)
            *least = now;
        least->forward_ms = fmin(least->forward_ms, now.forward_ms);
        least->backward_ms = fmin(least->backward_ms, now.backward_ms);
    }
    return OCTET_OK;
}

/* row NULL: times are not asked for. */
static enum octet_status run_step(struct stepped *s, struct bench_row *row, octet_arena *arena,
                                  struct octet_error *err)
{
    const struct octet_compute compute = {s->call, s->workers, s->cancel};
    const struct octet_pass_options how = {.reduction = OCTET_REDUCTION_MEAN, .times = row != NULL};
    struct octet_pass pass = {0};
    struct octet_step step;
    enum octet_status status =
        octet_session_forward_backward(s->session, &compute, &s->batch, &how, &pass, err);

    if (status != OCTET_OK)
        return status;
    octet_plan_unref(pass.plan);
    uint64_t begin = octet_now_ns();
    status = octet_session_optim_step(s->session, &compute, &s->optimizer, &step, err);
    if (status != OCTET_OK || !row)
        return status;
    return keep_times(row, &pass, (double)(octet_now_ns() - begin) / 1e6, arena, err);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

struct timing {
    double min_ms, median_ms;
};

static enum octet_status measure(struct stepped *s, bool train, int runs, octet_arena *arena,
                                 struct timing *out, struct octet_error *err)
{
    double *ms = OCTET_NEW_ARRAY(arena, runs, double);

    if (!ms)
        return octet_arena_exhausted(arena, err);
    for (int i = -WARM_UP; i < runs; i++) {
        uint64_t begin = octet_now_ns();
        enum octet_status status = train ? run_step(s, NULL, arena, err) : run_forward(s, err);
        if (status != OCTET_OK)
            return status;
        if (i >= 0)
            ms[i] = (double)(octet_now_ns() - begin) / 1e6;
        octet_arena_reset(s->call);
    }
    qsort(ms, (size_t)runs, sizeof *ms, compare);
    *out = (struct timing){ms[0], (ms[(runs - 1) / 2] + ms[runs / 2]) / 2};
    return OCTET_OK;
}

static void add_jax(struct bench_row *row, const struct bench_model *model,
                    const struct bench_arm *arm, const char *dtype, double step_ms)
{
    double jax_forward = NAN, jax_step = NAN;

    for (size_t i = 0; i < sizeof jax_figures / sizeof *jax_figures; i++)
        if (strcmp(jax_figures[i].model, model->name) == 0 &&
            strcmp(jax_figures[i].arm, arm->name) == 0 &&
            strcmp(jax_figures[i].dtype, dtype) == 0) {
            jax_forward = jax_figures[i].forward_ms;
            jax_step = jax_figures[i].step_ms;
        }
    bench_text(row, "peer", NULL, "MaxText on JAX 0.10.2 with Qwix 0.1.8, two cores, recorded");
    bench_number(row, "peer_forward_ms", "JAX FORWARD", jax_forward, 2);
    bench_number(row, "peer_step_ms", "JAX STEP", jax_step, 2);
    bench_number(row, "ratio", "RATIO", jax_step / step_ms, 2);
}

static enum octet_status measure_row(struct bench *bench, struct stepped *s,
                                     const struct bench_model *model, const struct bench_arm *arm,
                                     const char *dtype, struct octet_error *err)
{
    octet_arena *arena = bench->session->arena;
    int runs = bench->session->arguments->runs ? (int)bench->session->arguments->runs : model->runs;
    struct timing forward, step;
    enum octet_status status = make_session(s, model, arm, dtype, err);

    if (status == OCTET_OK)
        status = make_batch(s, model, strcmp(model->name, "tiny") == 0 ? 256 : 512, err);
    if (status == OCTET_OK)
        status = measure(s, false, runs, arena, &forward, err);
    if (status == OCTET_OK)
        status = measure(s, true, runs, arena, &step, err);
    if (status != OCTET_OK)
        return status;
    struct bench_row *row = bench_add(bench);
    struct octet_session_memory memory = octet_session_memory(s->session);
    bench_text(row, "model", "MODEL", model->name);
    bench_text(row, "dtype", "DTYPE", dtype);
    bench_text(row, "arm", "ARM", arm->name);
    bench_text(row, "kernels", "KERNELS", octet_workers_kernels(s->workers));
    bench_number(row, "threads", NULL, octet_workers_threads(s->workers), 0);
    bench_number(row, "forward_ms_min", NULL, forward.min_ms, 3);
    bench_number(row, "forward_ms", "FORWARD ms", forward.median_ms, 2);
    bench_number(row, "step_ms_min", "STEP ms min", step.min_ms, 2);
    bench_number(row, "step_ms", "median", step.median_ms, 2);
    bench_number(row, "tokens_per_second", "TOKENS/s",
                 (double)(model->batch * model->length) / step.median_ms * 1e3, 0);
    bench_number(row, "peak_bytes", NULL, (double)memory.peak, 0);
    bench_number(row, "peak_mib", "PEAK MiB", (double)memory.peak / 1048576, 1);
    add_jax(row, model, arm, dtype, step.median_ms);
    for (int i = 0; i < RUNS_OF_OPS && status == OCTET_OK; i++) {
        status = run_step(s, row, arena, err);
        octet_arena_reset(s->call);
    }
    return status;
}

static enum octet_status run_row(struct bench *bench, const struct bench_model *model,
                                 const struct bench_arm *arm, const char *dtype,
                                 struct octet_error *err)
{
    struct session *session = bench->session;
    size_t budget = octet_arena_budget(session->arena);
    struct stepped s = {.context = session->context,
                        .workers = session->workers,
                        .cancel = session->cancel,
                        .data = octet_arena_create(budget),
                        .call = octet_arena_create(budget)};
    enum octet_status status = OCTET_OK;

    if (!s.data || !s.call)
        status = octet_arena_exhausted(session->arena, err);
    if (status == OCTET_OK)
        status = measure_row(bench, &s, model, arm, dtype, err);
    octet_session_destroy(s.session);
    octet_arena_destroy(s.call);
    octet_arena_destroy(s.data);
    return status;
}

static bool is_wanted(const char *wanted, const char *name)
{
    return !wanted || strcmp(wanted, "all") == 0 || strcmp(wanted, name) == 0;
}

enum octet_status bench_step(struct bench *bench, struct octet_error *err)
{
    struct session *session = bench->session;
    const struct arguments *a = session->arguments;
    const char *dtype = a->dtype ? a->dtype : "float32";

    if (strcmp(dtype, "float32") != 0 && strcmp(dtype, "bfloat16") != 0)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                          "option --dtype: step takes float32 or bfloat16, not '%s'", dtype);
    enum octet_status status =
        octet_workers_create(getenv("OCTET_CPU"), (int32_t)a->threads, &session->workers, err);

    progress_start("bench step");
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (size_t i = 0; i < sizeof arms / sizeof *arms; i++)
            if (status == OCTET_OK && is_wanted(a->bench_model, models[m].name) &&
                is_wanted(a->arm, arms[i].name))
                status = run_row(bench, &models[m], &arms[i], dtype, err);
    progress_end();
    return status;
}
