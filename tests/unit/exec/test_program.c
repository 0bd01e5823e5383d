/* Programs: order, places, gradients that add up.
 * What could break: two values in one place at a time, a value that is gone when backward reads it,
 * a scanned stack that differs from the same layers one by one, recomputation that changes a bit,
 * lines whose counts are not the plan's. Such faults show as wrong numbers far away, so places are
 * checked for every pair of slots, and whole models are run both ways. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/program_private.h"
#include "octet/octet.h"
#include "suite.h"

#define SETTINGS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* A small DeepSeek: latent attention, one dense and two expert layers, MTP. */
#define TINY                                                                                       \
    "base_emb_dim=32", "base_num_query_heads=2", "base_num_kv_heads=2", "base_mlp_dim=48",         \
        "base_moe_mlp_dim=16", "base_num_decoder_layers=3", "first_num_dense_layers=1",            \
        "vocab_size=64", "num_experts=4", "num_experts_per_tok=2", "shared_experts=1",             \
        "q_lora_rank=16", "kv_lora_rank=8", "qk_nope_head_dim=8", "qk_rope_head_dim=4",            \
        "v_head_dim=8", "max_target_length=16", "per_device_batch_size=2", "dtype=float32",        \
        "weight_dtype=float32", "attention=dot_product", "mtp_num_layers=1"

struct model {
    octet_context *context;
    octet_arena *arena;
    octet_plan *plan;
    octet_workers *workers;
    struct octet_error err;
};

static void model_begin(struct model *m, const char *name, const char *const *settings)
{
    struct octet_pair pairs[48];
    struct octet_config_input input = {.name = name, .overrides = pairs};
    const octet_config *config;

    *m = (struct model){.context = NULL};
    ck_assert_int_eq(octet_context_create(NULL, &m->context, &m->err), OCTET_OK);
    m->arena = octet_arena_create((size_t)1 << 30);
    for (; settings[input.override_count]; input.override_count++) {
        char *text = octet_arena_format(m->arena, "%s", settings[input.override_count]);
        char *equals = strchr(text, '=');
        *equals = '\0';
        pairs[input.override_count] = (struct octet_pair){text, equals + 1};
    }
    enum octet_status status = octet_config_build(m->context, m->arena, &input, &config, &m->err);
    ck_assert_msg(status == OCTET_OK, "%s: %s", m->err.field, m->err.text);
    status = octet_plan_create(m->context, config, NULL, NULL, NULL, &m->plan, &m->err);
    ck_assert_msg(status == OCTET_OK, "%s: %s", m->err.field, m->err.text);
    ck_assert_int_eq(octet_workers_create(NULL, 2, &m->workers, &m->err), OCTET_OK);
}

static void model_end(struct model *m)
{
    octet_workers_destroy(m->workers);
    octet_plan_unref(m->plan);
    octet_arena_destroy(m->arena);
    octet_context_destroy(m->context);
}

static oct_program *make(struct model *m, bool backward, bool recompute)
{
    const struct oct_program_options options = {
        .backward = backward, .recompute = recompute, .threads = 2};
    oct_program *program;
    enum octet_status status = oct_program_create(m->plan, &options, &program, &m->err);

    ck_assert_msg(status == OCTET_OK, "%s: %s", m->err.field, m->err.text);
    return program;
}

/* ---- places ---- */

static void check_places(const oct_program *p)
{
    uint64_t peak = 0;

    for (uint32_t i = 1; i < p->slot_count; i++) {
        const struct oct_slot *a = &p->slots[i];
        if (a->owner != i || a->place != OCT_PLACE_BLOCK || a->first == UINT32_MAX)
            continue;
        peak = a->offset + a->bytes > peak ? a->offset + a->bytes : peak;
        ck_assert_uint_eq(a->offset % OCT_SLOT_ALIGNMENT, 0);
        for (uint32_t j = i + 1; j < p->slot_count; j++) {
            const struct oct_slot *b = &p->slots[j];
            if (b->owner != j || b->place != OCT_PLACE_BLOCK || b->first == UINT32_MAX)
                continue;
            bool together = a->first <= b->last && b->first <= a->last;
            bool overlap = a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
            ck_assert_msg(!together || !overlap || !a->bytes || !b->bytes,
                          "slots %u and %u share bytes at a time", i, j);
        }
    }
    ck_assert_uint_le(peak, p->memory.block_bytes);
}

/* What a step reads was written before, by a step or by the batch. */
static void check_order(const oct_program *p)
{
    bool *written = calloc(p->slot_count, sizeof *written);

    for (uint32_t i = 0; i < p->step_count; i++) {
        const struct oct_step *step = &p->steps[i];
        bool vjp = step->kind == OCT_STEP_VJP;
        for (int j = 0; j < step->input_count; j++) {
            uint32_t owner = p->slots[step->in[j]].owner;
            if (step->in[j] && p->slots[owner].place == OCT_PLACE_BLOCK &&
                !(vjp && !(step->reads >> j & 1)))
                ck_assert_msg(written[owner], "step %u reads slot %u before it is written", i,
                              owner);
        }
        for (int j = 0; j < 2 && vjp; j++)
            ck_assert(!step->cotangent[j] || written[step->cotangent[j]]);
        for (int j = 0; j < step->input_count; j++) {
            written[step->gradient[j]] = true;
            if (step->sum[j] && p->slots[step->sum[j]].place == OCT_PLACE_BLOCK)
                ck_assert(written[step->sum[j]]);
        }
        for (int j = 0; j < 2 && !vjp; j++)
            written[step->out[j]] = true;
    }
    free(written);
}

static const char *const *const models[] = {
    SETTINGS(TINY),
    SETTINGS(TINY, "scan_layers=false"),
    SETTINGS(TINY, "mtp_num_layers=2", "quantization=fp8_full", "quantize_mtp=true"),
    SETTINGS(TINY, "load_balance_loss_weight=0.01", "mtp_num_layers=0"),
    SETTINGS(TINY, "use_sliced_mla_proj=true", "quantization=fp8_full"),
    SETTINGS(TINY, "logits_via_embedding=true", "sparse_matmul=false"),
};
enum { MODEL_COUNT = sizeof models / sizeof *models };

START_TEST(no_two_values_share_a_place)
{
    struct model m;

    model_begin(&m, "deepseek3-tiny", models[_i]);
    for (int kind = 0; kind < 3; kind++) {
        oct_program *program = make(&m, kind > 0, kind > 1);
        check_places(program);
        check_order(program);
        oct_program_unref(program);
    }
    model_end(&m);
}
END_TEST

/* A program's lists grow as they are written, and what pointed into one must not be used after:
 * some number of layers fills a list just when backward begins. */
START_TEST(any_number_of_layers_has_gradients)
{
    for (int layers = 1; layers <= 40; layers++) {
        char text[64];
        struct model m;
        snprintf(text, sizeof text, "base_num_decoder_layers=%d", layers);
        model_begin(&m, "mixtral-8x7b",
                    SETTINGS("base_emb_dim=32", "base_num_query_heads=2", "base_num_kv_heads=2",
                             "head_dim=16", "base_mlp_dim=16", "base_moe_mlp_dim=16",
                             "vocab_size=64", "num_experts=4", "max_target_length=16",
                             "per_device_batch_size=2", "attention=dot_product", text));
        oct_program *program = make(&m, true, false);
        ck_assert_msg(program->untouched_count == 0, "%d layers: %u slices without a gradient",
                      layers, program->untouched_count);
        oct_program_unref(program);
        model_end(&m);
    }
}
END_TEST

/* ---- whole runs ---- */

struct outcome {
    struct oct_run_result result;
    octet_parameters *gradients;
    octet_arena *arena;
};

static void fill(octet_parameters *parameters, uint64_t seed)
{
    struct octet_error err;

    for (size_t i = 0; i < octet_parameters_count(parameters); i++) {
        const char *name;
        struct octet_array shape;
        octet_parameters_describe(parameters, i, &name, &shape);
        size_t n = (size_t)octet_array_elements(&shape);
        float *values = malloc(n * sizeof *values);
        bool is_scale = strstr(name, "scale") != NULL;
        for (size_t j = 0; j < n; j++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            float u = (float)(seed >> 40) / (float)(1 << 24) - 0.5f;
            values[j] = is_scale ? 1 + 0.2f * u : 0.5f * u;
        }
        ck_assert_int_eq(octet_parameters_write(parameters, i, 0, n * sizeof *values, values, &err),
                         OCTET_OK);
        free(values);
    }
}

static void batch_of(struct model *m, octet_arena *arena, struct octet_batch *out)
{
    const struct octet_plan_totals *t = octet_plan_totals(m->plan);
    int64_t dim[] = {t->batch_size, t->sequence_length};
    struct octet_batch given = {.weights = {.data = NULL}};

    ck_assert_int_eq(octet_array_create(arena, OCTET_DTYPE_S32, 2, dim, &given.tokens, &m->err),
                     OCTET_OK);
    int32_t *tokens = given.tokens.data;
    for (int64_t i = 0; i < dim[0] * dim[1]; i++)
        tokens[i] = (int32_t)(i * 37 % 61);
    ck_assert_int_eq(octet_batch_complete(&given, 64, arena, out, &m->err), OCTET_OK);
}

static struct outcome run(struct model *m, const octet_parameters *parameters, bool recompute)
{
    struct outcome o = {.arena = octet_arena_create((size_t)1 << 30)};
    oct_program *program = make(m, true, recompute);
    const struct octet_compute compute = {o.arena, m->workers, NULL};
    struct octet_batch batch;

    ck_assert_int_eq(octet_parameters_create(m->plan, OCTET_DTYPE_F32, &o.gradients, &m->err),
                     OCTET_OK);
    batch_of(m, o.arena, &batch);
    const struct oct_run settings = {.compute = &compute,
                                     .parameters = parameters,
                                     .gradients = o.gradients,
                                     .gradients_are_zero = true,
                                     .batch = &batch,
                                     .want_logits = true};
    enum octet_status status = oct_program_run(program, &settings, &o.result, &m->err);
    ck_assert_msg(status == OCTET_OK, "%s: %s", m->err.field, m->err.text);
    for (size_t i = 0; i < octet_plan_interception_count(m->plan); i++)
        ck_assert_int_eq(o.result.counts[i], octet_plan_interception(m->plan, i)->count);
    oct_program_unref(program);
    return o;
}

static void outcome_end(struct outcome *o)
{
    octet_parameters_destroy(o->gradients);
    octet_arena_destroy(o->arena);
}

START_TEST(recomputation_changes_no_bit)
{
    struct model m;
    octet_parameters *parameters;
    char a[33], b[33];

    model_begin(&m, "deepseek3-tiny", models[_i]);
    ck_assert_int_eq(octet_parameters_create(m.plan, OCTET_DTYPE_UNSPECIFIED, &parameters, &m.err),
                     OCTET_OK);
    fill(parameters, 7);
    struct outcome kept = run(&m, parameters, false), again = run(&m, parameters, true);
    ck_assert(isfinite(kept.result.total));
    ck_assert(kept.result.total == again.result.total);
    octet_parameters_digest(kept.gradients, a);
    octet_parameters_digest(again.gradients, b);
    ck_assert_str_eq(a, b);
    outcome_end(&kept);
    outcome_end(&again);
    octet_parameters_destroy(parameters);
    model_end(&m);
}
END_TEST

/* ---- documents, drafts ---- */

/* A forward and backward pass over tokens of one's own. segment: id of all documents. */
static struct outcome run_tokens(struct model *m, const octet_parameters *parameters,
                                 const int32_t *tokens, int32_t segment)
{
    struct outcome o = {.arena = octet_arena_create((size_t)1 << 30)};
    const struct octet_plan_totals *t = octet_plan_totals(m->plan);
    int64_t dim[] = {t->batch_size, t->sequence_length}, count = dim[0] * dim[1];
    const struct octet_compute compute = {o.arena, m->workers, NULL};
    struct octet_batch given = {.weights = {.data = NULL}}, batch;
    oct_program *program = make(m, true, false);

    ck_assert_int_eq(octet_parameters_create(m->plan, OCTET_DTYPE_F32, &o.gradients, &m->err),
                     OCTET_OK);
    ck_assert_int_eq(octet_array_create(o.arena, OCTET_DTYPE_S32, 2, dim, &given.tokens, &m->err),
                     OCTET_OK);
    ck_assert_int_eq(
        octet_array_create(o.arena, OCTET_DTYPE_S32, 2, dim, &given.segment_ids, &m->err),
        OCTET_OK);
    memcpy(given.tokens.data, tokens, (size_t)count * sizeof *tokens);
    for (int64_t i = 0; i < count; i++)
        ((int32_t *)given.segment_ids.data)[i] = segment;
    ck_assert_int_eq(octet_batch_complete(&given, 64, o.arena, &batch, &m->err), OCTET_OK);
    const struct oct_run settings = {.compute = &compute,
                                     .parameters = parameters,
                                     .gradients = o.gradients,
                                     .gradients_are_zero = true,
                                     .batch = &batch,
                                     .want_logits = true,
                                     .want_mtp_logits = true};
    ck_assert_int_eq(oct_program_run(program, &settings, &o.result, &m->err), OCTET_OK);
    oct_program_unref(program);
    return o;
}

static bool is_same(const struct octet_array *a, const struct octet_array *b, int64_t position)
{
    const size_t bytes = (size_t)a->dim[2] * sizeof(float);

    return memcmp((const char *)a->data + (size_t)position * bytes,
                  (const char *)b->data + (size_t)position * bytes, bytes) == 0;
}

/* Ids of documents are names and no weights: 7 for 1 changes no bit. And MTP at position 0 reads
 * the embedding of token 1, which the main model does not see there. */
START_TEST(ids_are_names_and_drafts_read_the_next_token)
{
    struct model m;
    octet_parameters *parameters;
    int32_t tokens[32];
    char a[33], b[33];

    model_begin(&m, "deepseek3-tiny", SETTINGS(TINY));
    ck_assert_int_eq(octet_parameters_create(m.plan, OCTET_DTYPE_UNSPECIFIED, &parameters, &m.err),
                     OCTET_OK);
    fill(parameters, 11);
    for (int32_t i = 0; i < 32; i++)
        tokens[i] = i * 29 % 63;
    struct outcome one = run_tokens(&m, parameters, tokens, 1);
    struct outcome seven = run_tokens(&m, parameters, tokens, 7);
    ck_assert(one.result.total == seven.result.total && one.result.mtp > 0);
    octet_parameters_digest(one.gradients, a);
    octet_parameters_digest(seven.gradients, b);
    ck_assert_str_eq(a, b);

    tokens[1]++;
    struct outcome other = run_tokens(&m, parameters, tokens, 1);
    ck_assert(is_same(&one.result.logits, &other.result.logits, 0));
    ck_assert(!is_same(&one.result.logits, &other.result.logits, 1));
    ck_assert(!is_same(&one.result.mtp_logits[0], &other.result.mtp_logits[0], 0));
    ck_assert(is_same(&one.result.mtp_logits[0], &other.result.mtp_logits[0], 16)); /* row 1 */
    outcome_end(&one);
    outcome_end(&seven);
    outcome_end(&other);
    octet_parameters_destroy(parameters);
    model_end(&m);
}
END_TEST

TCase *program_tests(void)
{
    TCase *tests = tcase_create("program");

    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, no_two_values_share_a_place, 0, MODEL_COUNT);
    tcase_add_test(tests, any_number_of_layers_has_gradients);
    tcase_add_loop_test(tests, recomputation_changes_no_bit, 0, MODEL_COUNT);
    tcase_add_test(tests, ids_are_names_and_drafts_read_the_next_token);
    return tests;
}
