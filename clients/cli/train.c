/* octet train: a model learns from a file, in a daemon.
 *
 * Decision: this program holds the data and the daemon the model. What a step sees depends on seed
 * and step alone (corpus.h), so a run that was interrupted goes on from its checkpoint as if
 * nothing had happened. */
#include "train.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "numbers.h"
#include "own_daemon.h"
#include "sessions.h"
#include "tensors.h"
#include "view.h"
#include "wire/convert.h"
#include "wire/held.h"

enum { STEPS_DEFAULT = 1000, EVAL_BATCHES_DEFAULT = 8, EVALS_DEFAULT = 20 };

/* One setting of the model's config as this program reads it; *given: somebody has set it. */
static double setting(const struct octet_config *config, octet_arena *arena, const char *key,
                      bool *given)
{
    enum octet_config_origin origin = OCTET_FROM_DEFAULT;
    const char *text = oct_wire_setting(arena, config, key, &origin);

    if (given)
        *given = origin > OCTET_FROM_MODEL;
    return text ? strtod(text, NULL) : NAN;
}

/* The optimizer's numbers that were set in this command go along with each step: a checkpoint has
 * settings of its own. */
static void read_optimizer(struct training *run, const struct octet_config *config)
{
    Octet__V1__OptimizerSettings *o = &run->optimizer;
    octet_arena *arena = run->session->arena;
    bool given;

    octet__v1__optimizer_settings__init(o);
#define READ(field, KEY)                                                                           \
    do {                                                                                           \
        o->field = setting(config, arena, #field, &given);                                         \
        if (given)                                                                                 \
            o->given_##field##_case = OCTET__V1__OPTIMIZER_SETTINGS__GIVEN_##KEY##_##KEY;          \
    } while (0)
    READ(learning_rate, LEARNING_RATE);
    READ(cosine_learning_rate_final_fraction, COSINE_LEARNING_RATE_FINAL_FRACTION);
    READ(warmup_steps_fraction, WARMUP_STEPS_FRACTION);
    READ(gradient_clipping_threshold, GRADIENT_CLIPPING_THRESHOLD);
    READ(adam_b1, ADAM_B1);
    READ(adam_b2, ADAM_B2);
    READ(adam_eps, ADAM_EPS);
    READ(adam_eps_root, ADAM_EPS_ROOT);
    READ(adam_weight_decay, ADAM_WEIGHT_DECAY);
    READ(routed_bias_update_rate, ROUTED_BIAS_UPDATE_RATE);
#undef READ
    o->given_steps_case = OCTET__V1__OPTIMIZER_SETTINGS__GIVEN_STEPS_STEPS;
    o->steps = run->steps;
    double schedule = setting(config, arena, "learning_rate_schedule_steps", &given);
    o->given_learning_rate_schedule_steps_case =
        OCTET__V1__OPTIMIZER_SETTINGS__GIVEN_LEARNING_RATE_SCHEDULE_STEPS_LEARNING_RATE_SCHEDULE_STEPS;
    o->learning_rate_schedule_steps = given && schedule > 0 ? (int64_t)schedule : run->steps;
}

static enum octet_status read_config(struct training *run, struct octet_error *err)
{
    struct session *session = run->session;
    octet_arena *arena = session->arena;
    const struct octet_call call = {.context = session->context, .arena = arena};
    Octet__V1__ModelConfig *model;
    const octet_config *config;
    enum octet_status status = request_model(session, false, &model, err);
    bool given;

    if (status == OCTET_OK)
        status = oct_wire_config(&call, model, "model", &config, err);
    if (status != OCTET_OK)
        return status;
    run->model = octet_config_model_name(config);
    run->vocab_size = (int64_t)setting(config, arena, "vocab_size", NULL);
    run->mtp_factor = setting(config, arena, "mtp_loss_scaling_factor", NULL);
    double steps = setting(config, arena, "steps", &given);
    run->steps = session->arguments->steps ? session->arguments->steps
                 : given && steps > 0      ? (int64_t)steps
                                           : STEPS_DEFAULT;
    read_optimizer(run, config);
    return OCTET_OK;
}

static enum octet_status read_fraction(const char *text, double *out, struct octet_error *err)
{
    char *end;

    *out = strtod(text, &end);
    if (*end || end == text || !(*out > 0 && *out < 1))
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL,
                          "option --eval-fraction: '%s' is not a number between 0 and 1", text);
    return OCTET_OK;
}

static enum octet_status open_data(struct training *run, struct octet_error *err)
{
    const struct arguments *a = &run->arguments;
    octet_arena *arena = run->session->arena;
    double fraction = 0;
    enum octet_status status = OCTET_OK;

    if (a->eval_fraction)
        status = read_fraction(a->eval_fraction, &fraction, err);
    if (status == OCTET_OK)
        status = corpus_open(arena, "--data", &a->data, a->tokens, a->document_end, run->vocab_size,
                             &run->corpus, err);
    if (status == OCTET_OK && a->eval.count)
        status = corpus_open(arena, "--eval", &a->eval, a->tokens, a->document_end, run->vocab_size,
                             &run->eval_corpus, err);
    if (status != OCTET_OK)
        return status;
    corpus_split(&run->corpus, fraction, &run->train_range, &run->eval_range);
    if (a->eval.count)
        run->eval_range = (struct corpus_range){0, run->eval_corpus.count};
    size_t *counts = OCTET_NEW_ARRAY(arena, run->vocab_size, size_t);
    if (!counts)
        return octet_arena_exhausted(arena, err);
    run->unigram_entropy =
        corpus_unigram_entropy(&run->corpus, &run->train_range, counts, (size_t)run->vocab_size);
    return OCTET_OK;
}

static const struct corpus *eval_corpus(const struct training *run)
{
    return run->arguments.eval.count ? &run->eval_corpus : &run->corpus;
}

/* The daemon's answer tells the batch's shape, since the config may have set it. */
static enum octet_status make_batch(struct training *run, const Octet__V1__Session *made,
                                    struct octet_error *err)
{
    int64_t rows = made->batch_size, length = made->sequence_length, count;
    octet_arena *arena = run->session->arena;
    enum octet_status status = corpus_check(&run->corpus, "--data", &run->train_range, length, err);

    if (status == OCTET_OK && run->eval_range.count)
        status =
            corpus_check(eval_corpus(run), run->arguments.eval.count ? "--eval" : "--eval-fraction",
                         &run->eval_range, length, err);
    if (status != OCTET_OK)
        return status;
    if (rows < 1 || length < 1 || __builtin_mul_overflow(rows, length, &count))
        return octet_fail(err, OCTET_DATA_LOSS, NULL, "the daemon names no batch");
    run->batch = (struct corpus_batch){.rows = rows, .length = length};
    int32_t **arrays[] = {&run->batch.tokens, &run->batch.targets, &run->batch.positions,
                          &run->batch.segments, &run->batch.mask};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        if (!(*arrays[i] = OCTET_NEW_ARRAY(arena, count, int32_t)))
            return octet_arena_exhausted(arena, err);
    return OCTET_OK;
}

/* A checkpoint of that name; *found NULL: none. */
static enum octet_status find_checkpoint(struct training *run, Octet__V1__Checkpoint **found,
                                         struct octet_error *err)
{
    Octet__V1__ListCheckpointsRequest request = OCTET__V1__LIST_CHECKPOINTS_REQUEST__INIT;
    ProtobufCMessage *message;
    enum octet_status status =
        session_ask(&run->calls, "ListCheckpoints", &request.base,
                    &octet__v1__list_checkpoints_response__descriptor, &message, err);

    *found = NULL;
    if (status != OCTET_OK)
        return status;
    Octet__V1__ListCheckpointsResponse *all = (Octet__V1__ListCheckpointsResponse *)message;
    for (size_t i = 0; i < all->n_checkpoints; i++)
        if (strcmp(all->checkpoints[i]->name, run->checkpoint) == 0)
            *found = all->checkpoints[i];
    return OCTET_OK;
}

static enum octet_status check_checkpoint(struct training *run, struct octet_error *err)
{
    Octet__V1__Checkpoint *found;
    enum octet_status status = find_checkpoint(run, &found, err);

    if (status != OCTET_OK)
        return status;
    if (!found && run->arguments.resume)
        return octet_fail(err, OCTET_NOT_FOUND, NULL,
                          "there is no checkpoint '%s' to go on from (%s); without --resume a new "
                          "run starts",
                          run->checkpoint, run->place);
    if (found && !run->arguments.resume && !run->arguments.overwrite)
        return octet_fail(err, OCTET_FAILED_PRECONDITION, NULL,
                          "checkpoint '%s' is there, at step %" PRId64
                          " (%s): --resume goes on from it, --overwrite replaces it, --checkpoint "
                          "NAME takes another name",
                          run->checkpoint, found->step, run->place);
    return OCTET_OK;
}

/* "285 K parameters, 31.1 MiB in a step; 65.4 % of the forward's FLOPS quantized, 79.2 % of the MTP
 * layers'". Whether rules catch what they were meant for is best seen before the run. */
static enum octet_status describe(struct training *run, const Octet__V1__Session *made,
                                  struct octet_error *err)
{
    octet_arena *arena = run->session->arena;
    const Octet__V1__Coverage *coverage = made->trace ? made->trace->coverage : NULL;
    char values[32], peak[32], share[32], mtp_share[32], placement[96];
    int64_t mtp = 0, mtp_quantized = 0;
    const char *quantized = "nothing quantized", *of_mtp = "";

    for (size_t i = 0; coverage && i < coverage->n_by_block; i++)
        if (strncmp(coverage->by_block[i]->block, "mtp_block/", 10) == 0) {
            mtp += coverage->by_block[i]->flops_total;
            mtp_quantized += coverage->by_block[i]->flops_quantized;
        }
    if (coverage && coverage->flops_quantized)
        quantized = octet_arena_format(
            arena, "%s of the forward's FLOPS quantized",
            human_share(coverage->flops_quantized, coverage->flops_total, share));
    if (coverage && coverage->flops_quantized && mtp)
        of_mtp = octet_arena_format(arena, ", %s of the MTP layers'",
                                    human_share(mtp_quantized, mtp, mtp_share));
    if (made->trace)
        view_warn_unused(made->trace);
    sessions_placement(made, placement);
    if (quantized && of_mtp)
        run->about = octet_arena_format(arena, "%s parameters, %s in a step; %s%s%s%s",
                                        human_count(sessions_count_values(made), values),
                                        human_bytes(made->peak_bytes, peak), quantized, of_mtp,
                                        placement[0] ? "; " : "", placement);
    return run->about ? OCTET_OK : octet_arena_exhausted(arena, err);
}

/* Before a run whose end could not be kept. Parameters and both moments make a checkpoint. */
static void warn_of_space(const struct training *run, const Octet__V1__Session *made)
{
    struct statvfs about;
    int64_t bytes = made->memory ? made->memory->parameters + made->memory->moments : 0;
    char needed[32], free_bytes[32];

    if (!run->folder || statvfs(run->folder, &about) != 0)
        return;
    uint64_t room = (uint64_t)about.f_bavail * about.f_frsize;
    if (room < (uint64_t)bytes)
        fprintf(stderr,
                "octet: warning: a checkpoint takes %s, but only %s are free %s (--data-dir)\n",
                human_bytes(bytes, needed), human_bytes((int64_t)room, free_bytes), run->place);
}

static enum octet_status open_session(struct training *run, struct octet_error *err)
{
    Octet__V1__Session *made;
    enum octet_status status = check_checkpoint(run, err);

    if (status == OCTET_OK)
        status = sessions_create(&run->calls, run->arguments.resume ? run->checkpoint : NULL, &made,
                                 err);
    if (status != OCTET_OK)
        return status;
    run->session_id =
        octet_arena_copy(run->session->arena, made->session_id, strlen(made->session_id));
    run->step = run->first_step = made->step;
    if (!run->session_id)
        return octet_arena_exhausted(run->session->arena, err);
    if (run->step > run->steps)
        return octet_fail(err, OCTET_FAILED_PRECONDITION, NULL,
                          "checkpoint '%s' is at step %" PRId64 ", beyond --steps %" PRId64,
                          run->checkpoint, run->step, run->steps);
    warn_of_space(run, made);
    status = make_batch(run, made, err);
    return status == OCTET_OK ? describe(run, made, err) : status;
}

/* Rows up to the step at which the run goes on. */
static enum octet_status read_history(struct training *run, struct octet_error *err)
{
    struct number_table old;
    enum octet_status status = csv_read(run->session->arena, run->arguments.csv, &old, err);
    size_t step = status == OCTET_OK ? number_table_column(&old, "step") : SIZE_MAX;

    for (size_t row = 0; step != SIZE_MAX && row < old.rows; row++) {
        if (!(old.values[step][row] <= (double)run->step))
            continue;
        size_t to = table_add_row(&run->history);
        for (size_t c = 0; to != SIZE_MAX && c < HISTORY_COLUMNS; c++) {
            size_t from = number_table_column(&old, history_names[c]);
            if (from != SIZE_MAX)
                run->history.values[c][to] = old.values[from][row];
        }
    }
    if (status == OCTET_OK)
        history_clear(&old);
    return status;
}

static enum octet_status open_csv(struct training *run, struct octet_error *err)
{
    const char *path = run->arguments.csv;
    enum octet_status status = OCTET_OK;

    history_start(&run->history);
    if (!path)
        return OCTET_OK;
    if (run->arguments.resume) {
        FILE *old = fopen(path, "r");
        if (old) {
            fclose(old);
            status = read_history(run, err);
        }
    }
    if (status != OCTET_OK)
        return status;
    run->csv = fopen(path, "w");
    if (!run->csv)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "option --csv: cannot write '%s': %s",
                          path, strerror(errno));
    csv_write_head(run->csv, &run->history);
    for (size_t row = 0; row < run->history.rows; row++)
        csv_write_row(run->csv, &run->history, row);
    return OCTET_OK;
}

/* The batch as a message; its numbers stay where they are. */
static Octet__V1__Batch *put_batch(struct training *run, struct request_buffers *buffers)
{
    const struct corpus_batch *from = &run->batch;
    Octet__V1__Batch *batch = oct_wire_new(buffers->arena, &octet__v1__batch__descriptor);
    struct octet_array array = {
        .dtype = OCTET_DTYPE_S32, .rank = 2, .dim = {from->rows, from->length}};

    if (!batch)
        return NULL;
    const struct {
        Octet__V1__Tensor **to;
        int32_t *data;
    } fields[] = {{&batch->tokens, from->tokens},
                  {&batch->targets, from->targets},
                  {&batch->positions, from->positions},
                  {&batch->segment_ids, from->segments},
                  {&batch->target_mask, from->mask}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        array.data = fields[i].data;
        if (!(*fields[i].to = request_tensor(buffers, &array)))
            return NULL;
    }
    return batch;
}

static double mean_of(const double *values, size_t count)
{
    double sum = 0;

    for (size_t i = 0; i < count; i++)
        sum += values[i];
    return count ? sum / (double)count : (double)NAN;
}

static double mtp_of(const struct training *run, const Octet__V1__Losses *losses)
{
    return losses->has_mtp_case == OCTET__V1__LOSSES__HAS_MTP_MTP ? losses->mtp / run->mtp_factor
                                                                  : (double)NAN;
}

static enum octet_status train_step(struct training *run, struct octet_error *err)
{
    Octet__V1__TrainStepRequest request = OCTET__V1__TRAIN_STEP_REQUEST__INIT;
    octet_arena *arena = run->calls.arena;
    struct request_buffers buffers = {.arena = arena};
    uint64_t seed = run->arguments.seed > 0 ? (uint64_t)run->arguments.seed : 0;
    ProtobufCMessage *message;

    corpus_fill(&run->corpus, &run->train_range, seed, run->step, &run->batch);
    request.session_id = run->session_id;
    request.batch = put_batch(run, &buffers);
    request.buffers = buffers.list;
    request.n_buffers = buffers.count;
    request.step = run->step;
    request.request_id = request_id(arena, "train", run->step);
    request.return_acceptance = true;
    request.optimizer = &run->optimizer;
    if (!request.batch || !request.request_id)
        return octet_arena_exhausted(arena, err);
    enum octet_status status =
        session_ask(&run->calls, "TrainStep", &request.base,
                    &octet__v1__train_step_response__descriptor, &message, err);
    if (status != OCTET_OK)
        return status;
    const Octet__V1__TrainStepResponse *response = (Octet__V1__TrainStepResponse *)message;
    size_t row = table_add_row(&run->history);
    if (row == SIZE_MAX || !response->losses)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
    run->step = response->step;
    double **to = run->history.values;
    to[HISTORY_STEP][row] = (double)run->step;
    to[HISTORY_TRAIN_TOTAL][row] = response->losses->total;
    to[HISTORY_TRAIN_MAIN][row] = response->losses->main;
    to[HISTORY_TRAIN_MTP][row] = mtp_of(run, response->losses);
    to[HISTORY_TRAIN_ACCEPTANCE][row] =
        mean_of(response->mtp_acceptance, response->n_mtp_acceptance);
    to[HISTORY_LEARNING_RATE][row] = response->learning_rate;
    to[HISTORY_GRAD_NORM][row] = response->grad_norm;
    to[HISTORY_TOKENS][row] = (double)(run->step * run->batch.rows * run->batch.length);
    to[HISTORY_SECONDS][row] = (double)(octet_now_ns() - run->started_ns) / 1e9;
    return OCTET_OK;
}

struct evaluation {
    double main, mtp, acceptance, weight, mtp_weight;
    int64_t batches;
};

static enum octet_status evaluate_batch(struct training *run, struct evaluation *sum,
                                        struct octet_error *err)
{
    Octet__V1__ForwardRequest request = OCTET__V1__FORWARD_REQUEST__INIT;
    struct request_buffers buffers = {.arena = run->calls.arena};
    ProtobufCMessage *message;

    request.session_id = run->session_id;
    request.batch = put_batch(run, &buffers);
    request.buffers = buffers.list;
    request.n_buffers = buffers.count;
    if (!request.batch)
        return octet_arena_exhausted(run->calls.arena, err);
    enum octet_status status = session_ask(&run->calls, "Forward", &request.base,
                                           &octet__v1__forward_response__descriptor, &message, err);
    if (status != OCTET_OK)
        return status;
    const Octet__V1__ForwardResponse *response = (Octet__V1__ForwardResponse *)message;
    const Octet__V1__Losses *losses = response->losses;
    if (!losses)
        return octet_fail(err, OCTET_DATA_LOSS, NULL, "the daemon's answer has no losses");
    sum->main += losses->main * losses->weight_sum;
    sum->weight += losses->weight_sum;
    sum->mtp += mtp_of(run, losses) * losses->mtp_weight_sum;
    sum->mtp_weight += losses->mtp_weight_sum;
    sum->acceptance += mean_of(response->mtp_acceptance, response->n_mtp_acceptance);
    sum->batches++;
    return OCTET_OK;
}

/* Losses of the held-out data, into the row. */
static enum octet_status evaluate(struct training *run, size_t row, struct octet_error *err)
{
    int64_t batches =
        run->arguments.eval_batches ? run->arguments.eval_batches : EVAL_BATCHES_DEFAULT;
    struct evaluation sum = {0};

    for (int64_t i = 0; i < batches; i++) {
        octet_arena_reset(run->calls.arena);
        corpus_fill_even(eval_corpus(run), &run->eval_range, i, batches, &run->batch);
        enum octet_status status = evaluate_batch(run, &sum, err);
        if (status != OCTET_OK)
            return status;
    }
    run->history.values[HISTORY_EVAL_MAIN][row] = sum.main / sum.weight;
    run->history.values[HISTORY_EVAL_MTP][row] =
        sum.mtp_weight > 0 ? sum.mtp / sum.mtp_weight : (double)NAN;
    run->history.values[HISTORY_EVAL_ACCEPTANCE][row] = sum.acceptance / (double)sum.batches;
    return OCTET_OK;
}

static enum octet_status save(struct training *run, struct octet_error *err)
{
    Octet__V1__Checkpoint *made;
    char text[512], bytes[32];

    octet_arena_reset(run->calls.arena);
    enum octet_status status =
        sessions_save(&run->calls, run->session_id, run->checkpoint, &made, err);
    if (status != OCTET_OK)
        return status;
    snprintf(text, sizeof text, "saved checkpoint '%.100s' at step %" PRId64 ": %s (%.200s)",
             run->checkpoint, made->step, human_bytes(made->bytes, bytes), run->place);
    train_show_event(run, text);
    run->saved_step = made->step;
    return OCTET_OK;
}

/* The checkpoint before is untouched, and the next may succeed: a full disk ends no run. */
static void save_on_the_way(struct training *run)
{
    struct octet_error err = {0};

    if (save(run, &err) == OCTET_OK || err.status == OCTET_CANCELLED)
        return;
    train_clear_line(run);
    fprintf(stderr, "octet: warning: no checkpoint at step %" PRId64 ": ", run->step);
    print_safe(err.text);
    fputc('\n', stderr);
}

static bool is_due(int64_t step, int64_t every, int64_t last)
{
    return step == last || (every && step % every == 0);
}

/* The row at which a run starts (or goes on) has no training losses, only those of evaluation. */
static enum octet_status start_history(struct training *run, struct octet_error *err)
{
    bool known = run->history.rows > 0;

    if (known || !run->eval_range.count)
        return OCTET_OK;
    size_t row = table_add_row(&run->history);
    if (row == SIZE_MAX)
        return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory");
    run->history.values[HISTORY_STEP][row] = (double)run->step;
    enum octet_status status = evaluate(run, row, err);
    if (status != OCTET_OK)
        return status;
    if (run->csv)
        csv_write_row(run->csv, &run->history, row);
    train_show_step(run, row);
    return OCTET_OK;
}

int64_t train_eval_every(const struct training *run)
{
    return run->arguments.eval_every ? run->arguments.eval_every
                                     : (run->steps + EVALS_DEFAULT - 1) / EVALS_DEFAULT;
}

/* A picture that cannot be written is no reason to lose a run. */
static void draw(struct training *run)
{
    struct octet_error err = {0};

    if (train_write_plot(run, &err) == OCTET_OK || run->plot_has_failed)
        return;
    run->plot_has_failed = true;
    train_clear_line(run);
    fputs("octet: warning: ", stderr);
    print_safe(err.text);
    fputc('\n', stderr);
}

static enum octet_status one_step(struct training *run, struct octet_error *err)
{
    const struct arguments *a = &run->arguments;
    int64_t eval_every = train_eval_every(run);

    octet_arena_reset(run->calls.arena);
    enum octet_status status = train_step(run, err);
    if (status != OCTET_OK)
        return status;
    size_t row = run->history.rows - 1;
    if (run->eval_range.count && is_due(run->step, eval_every, run->steps))
        status = evaluate(run, row, err);
    if (status != OCTET_OK)
        return status;
    if (run->csv) {
        csv_write_row(run->csv, &run->history, row);
        fflush(run->csv);
    }
    train_show_step(run, row);
    if (a->plot && is_due(run->step, eval_every, run->steps))
        draw(run);
    if (a->save_every && run->step < run->steps && run->step % a->save_every == 0)
        save_on_the_way(run);
    return status;
}

static bool is_interrupted(const struct training *run)
{
    return atomic_load_explicit(&run->session->cancel->cancelled, memory_order_relaxed);
}

static enum octet_status run_steps(struct training *run, struct octet_error *err)
{
    run->started_ns = octet_now_ns();
    train_show_start(run);
    enum octet_status status = start_history(run, err);
    if (status == OCTET_OK && run->history.rows) { /* the clock goes on where it stopped */
        double before = run->history.values[HISTORY_SECONDS][run->history.rows - 1];
        if (before > 0)
            run->started_ns -= (uint64_t)(before * 1e9);
    }
    while (status == OCTET_OK && run->step < run->steps && !is_interrupted(run))
        status = one_step(run, err);
    train_clear_line(run);
    bool is_saved = run->arguments.resume && run->step == run->first_step; /* as it was found */
    if (status == OCTET_OK && !is_saved)
        status = save(run, err);
    if (status == OCTET_OK && run->arguments.plot && run->history.rows)
        draw(run);
    return status;
}

/* Before hours of work: can the picture be written at all? */
static enum octet_status check_plot(struct training *run, struct octet_error *err)
{
    const char *path = run->arguments.plot;
    bool is_there = access(path, F_OK) == 0;
    FILE *file = fopen(path, "a");

    if (!file)
        return octet_fail(err, OCTET_INVALID_ARGUMENT, NULL, "option --plot: cannot write '%s': %s",
                          path, strerror(errno));
    fclose(file);
    if (!is_there)
        unlink(path);
    return OCTET_OK;
}

static enum octet_status prepare(struct training *run, struct own_daemon *daemon,
                                 struct octet_error *err)
{
    struct session *session = run->session;

    run->checkpoint = run->arguments.checkpoint ? run->arguments.checkpoint : "train";
    enum octet_status status = oct_wire_check_checkpoint(run->checkpoint, "checkpoint", err);
    if (status == OCTET_OK)
        status = read_config(run, err);
    if (status == OCTET_OK)
        status = open_data(run, err);
    if (status == OCTET_OK && run->arguments.plot)
        status = check_plot(run, err);
    if (status != OCTET_OK)
        return status;
    run->calls = *session;
    run->calls.arguments = &run->arguments;
    run->calls.cancel = &run->cancel;
    run->calls.arena = octet_arena_create(octet_arena_budget(session->arena));
    if (!run->calls.arena)
        return octet_arena_exhausted(session->arena, err);
    if (!session_server(session)) {
        run->folder = run->arguments.data_dir ? run->arguments.data_dir : "octet-data";
        status = own_daemon_start(session->arena, run->folder, run->arguments.threads,
                                  run->arguments.backend, session->cancel, daemon, err);
        run->arguments.server = daemon->address;
        run->arguments.local = false;
        run->place = octet_arena_format(session->arena, "in folder %s", run->folder);
    } else {
        run->place =
            octet_arena_format(session->arena, "in the daemon %s", session_server(session));
    }
    if (status == OCTET_OK && !run->place)
        status = octet_arena_exhausted(session->arena, err);
    if (status == OCTET_OK)
        status = open_session(run, err);
    return status == OCTET_OK ? open_csv(run, err) : status;
}

int run_train(struct session *session)
{
    static struct training run; /* large: the parts of its corpora */
    struct own_daemon daemon = {0};
    struct octet_error err = {0}, ignored = {0};

    run.session = session;
    run.arguments = *session->arguments;
    enum octet_status status = prepare(&run, &daemon, &err);
    if (status == OCTET_OK)
        status = run_steps(&run, &err);
    bool interrupted = is_interrupted(&run) && run.step < run.steps;
    if (status == OCTET_OK)
        train_show_end(&run, interrupted);
    if (run.session_id && !daemon.process && /* its own daemon's end is the session's */
        sessions_delete(&run.calls, run.session_id, &ignored) != OCTET_OK)
        fputs("octet: warning: the session could not be ended; its lease will end it\n", stderr);
    if (run.csv && fclose(run.csv) != 0 && status == OCTET_OK)
        status = octet_fail(&err, OCTET_INVALID_ARGUMENT, NULL, "cannot write '%s': %s",
                            run.arguments.csv, strerror(errno));
    session->remote = run.calls.remote; /* main ends it */
    history_clear(&run.history);
    corpus_close(&run.corpus);
    corpus_close(&run.eval_corpus);
    octet_arena_destroy(run.calls.arena);
    own_daemon_stop(&daemon);
    if (status != OCTET_OK) {
        int exit_status = report(session, &err);
        if (run.saved_step)
            fprintf(stderr,
                    "octet: checkpoint '%s' is at step %" PRId64
                    " (%s); --resume goes on from it\n",
                    run.checkpoint, run.saved_step, run.place);
        return exit_status;
    }
    return interrupted ? EXIT_INTERRUPTED : EXIT_FINE;
}
