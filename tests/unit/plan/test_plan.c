/* Plans: rules met in order, counts, coverage, differences, cache, limits.
 * What could break: an op id that goes on counting from one plan to the next, a rule that wins
 * although a earlier one matches, a parameter counted twice, a plan shared by two configs, a leak
 * when memory runs out. The lines of real models are compared with MaxText's in tests/golden. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

static const struct octet_interception *line_of(const octet_plan *plan, const char *module,
                                                const char *op)
{
    for (size_t i = 0; i < octet_plan_interception_count(plan); i++) {
        const struct octet_interception *line = octet_plan_interception(plan, i);
        if (strcmp(line->module, module) == 0 && strcmp(line->op, op) == 0)
            return line;
    }
    return NULL;
}

static const struct octet_coverage *block_of(const octet_plan *plan, const char *block)
{
    const struct octet_coverage *coverage;
    size_t count = octet_plan_coverage(plan, &coverage);

    for (size_t i = 0; i < count; i++)
        if (strcmp(coverage[i].block, block) == 0)
            return &coverage[i];
    return NULL;
}

/* Heads as many as 32, layers as many as 32, 128 positions, bfloat16. */
START_TEST(fused_attention_keeps_no_scores)
{
    struct fixture f;

    fixture_begin(&f);
    octet_plan *dot = fixture_plan(&f, fixture_config(&f, "llama2-7b", SETTINGS(NULL)), NULL);
    octet_plan *fused =
        fixture_plan(&f, fixture_config(&f, "llama2-7b", SETTINGS("attention=flash")), NULL);
    ck_assert_int_eq(octet_plan_totals(dot)->activation_bytes -
                         octet_plan_totals(fused)->activation_bytes,
                     INT64_C(32) * 32 * 128 * 128 * 2);
    ck_assert_int_eq(octet_plan_totals(dot)->flops_forward,
                     octet_plan_totals(fused)->flops_forward);
    octet_plan_unref(dot);
    octet_plan_unref(fused);
    fixture_end(&f);
}
END_TEST

/* A matmul's two gradients cost as much as itself, each; everything else is counted once more. */
START_TEST(backward_costs_a_forward_and_the_matmuls_again)
{
    const int64_t tokens = 128, width = 4096, mlp = 11008, heads = 32, depth = 128, layers = 32;
    const int64_t layer = 2 * tokens * (4 * width * width + 3 * width * mlp) +
                          2 * (2 * heads * tokens * tokens * depth);
    struct fixture f;

    fixture_begin(&f);
    octet_plan *plan = fixture_plan(&f, fixture_config(&f, "llama2-7b", SETTINGS(NULL)), NULL);
    const struct octet_plan_totals *t = octet_plan_totals(plan);
    ck_assert_int_eq(t->flops_backward - t->flops_forward,
                     layers * layer + 2 * tokens * width * 32000);
    octet_plan_unref(plan);
    fixture_end(&f);
}
END_TEST

START_TEST(lines_carry_shapes_counts_and_costs)
{
    struct fixture f;

    fixture_begin(&f);
    octet_plan *plan =
        fixture_plan(&f, fixture_config(&f, "llama2-7b", SETTINGS("quantization=fp8_full")), NULL);
    const struct octet_interception *query =
        line_of(plan, "decoder/layers/self_attention/query", "dot_general0");
    ck_assert_ptr_nonnull(query);
    ck_assert_int_eq(query->rule, 0);
    ck_assert_int_eq(query->count, 32);
    ck_assert_int_eq(query->out.rank, 4);
    ck_assert_int_eq(query->out.dim[2], 32);
    ck_assert_str_eq(octet_axis_name(query->rhs.axis[1]), "q_heads");
    ck_assert_int_eq(query->flops, INT64_C(32) * 2 * 128 * 4096 * 4096);
    ck_assert_int_eq(query->weight_bytes, INT64_C(32) * 4096 * 4096 * 4);
    const struct octet_interception *scores =
        line_of(plan, "decoder/layers/self_attention/attention_op", "einsum0");
    ck_assert_int_eq(scores->flops, INT64_C(32) * 2 * 32 * 128 * 128 * 128);
    ck_assert_int_eq(scores->weight_bytes, 0);
    ck_assert_str_eq(scores->equation, "btkgd,bskd->bkgts");
    octet_plan_unref(plan);
    fixture_end(&f);
}
END_TEST

/* Llama 2 7B has 6,738,415,616 parameters (the sum of its published shapes). */
START_TEST(parameters_are_counted_once)
{
    struct fixture f;

    fixture_begin(&f);
    octet_plan *plan =
        fixture_plan(&f, fixture_config(&f, "llama2-7b", SETTINGS("quantization=fp8_full")), NULL);
    const struct octet_plan_totals *totals = octet_plan_totals(plan);
    ck_assert_int_eq(totals->parameters, INT64_C(6738415616));
    ck_assert_int_eq(totals->parameter_bytes, 4 * totals->parameters);
    const struct octet_coverage *all;
    size_t blocks = octet_plan_coverage(plan, &all);
    ck_assert_int_eq(all[0].weight_bytes_total, totals->parameter_bytes);
    /* 32 layers of four attention and three MLP kernels are quantized, norms, embedding and head
     * not. */
    ck_assert_int_eq(all[0].weight_bytes_quantized,
                     INT64_C(4) * 32 * (4 * 4096 * 4096 + 3 * INT64_C(4096) * 11008));
    int64_t flops = 0, bytes = 0;
    for (size_t i = 1; i < blocks; i++) {
        flops += all[i].flops_total;
        bytes += all[i].weight_bytes_total;
    }
    ck_assert_int_eq(flops, all[0].flops_total);
    ck_assert_int_eq(bytes, all[0].weight_bytes_total);
    ck_assert_int_eq(block_of(plan, "decoder/logits_dense")->flops_quantized, 0);
    octet_plan_unref(plan);
    fixture_end(&f);
}
END_TEST

START_TEST(scanned_and_unrolled_models_cost_the_same)
{
    struct fixture f;

    fixture_begin(&f);
    octet_plan *scanned = fixture_plan(
        &f,
        fixture_config(&f, "deepseek2-16b", SETTINGS("quantization=fp8_full", "mtp_num_layers=1")),
        NULL);
    octet_plan *unrolled = fixture_plan(
        &f,
        fixture_config(&f, "deepseek2-16b",
                       SETTINGS("quantization=fp8_full", "mtp_num_layers=1", "scan_layers=false")),
        NULL);
    const struct octet_plan_totals *a = octet_plan_totals(scanned),
                                   *b = octet_plan_totals(unrolled);
    ck_assert_int_eq(a->parameters, b->parameters);
    ck_assert_int_eq(a->flops_forward, b->flops_forward);
    ck_assert_int_eq(a->activation_bytes, b->activation_bytes);
    const struct octet_coverage *ca, *cb;
    ck_assert_uint_eq(octet_plan_coverage(scanned, &ca), octet_plan_coverage(unrolled, &cb));
    ck_assert_int_eq(ca[0].flops_quantized, cb[0].flops_quantized);
    ck_assert_int_eq(ca[0].weight_bytes_quantized, cb[0].weight_bytes_quantized);
    octet_plan_unref(scanned);
    octet_plan_unref(unrolled);
    fixture_end(&f);
}
END_TEST

START_TEST(the_first_matching_rule_wins_and_unused_ones_are_told)
{
    struct fixture f;
    static const char *const dots[] = {"dot_general"};
    struct octet_rule given[] = {
        {.module_path = ".*/gate"}, /* excludes: no weight_qtype */
        {.module_path = "decoder/.*layerz.*", .weight_qtype = "int8"},
        {.module_path = "decoder/.*layers.*",
         .op_names = dots,
         .op_name_count = 1,
         .weight_qtype = "float8_e4m3fn",
         .act_qtype = "float8_e4m3fn"},
        {.module_path = "decoder/.*mlp.*", .weight_qtype = "int8"},
    };
    octet_rules *rules;
    const int32_t *unused;

    fixture_begin(&f);
    ck_assert_int_eq(octet_rules_create(f.context, given, 4, &rules, &f.err), OCTET_OK);
    octet_plan *plan =
        fixture_plan(&f, fixture_config(&f, "mixtral-8x7b", SETTINGS("dtype=bfloat16")), rules);
    const struct octet_interception *gate =
        line_of(plan, "decoder/layers/MoeBlock_0/gate", "dot_general0");
    ck_assert_int_eq(gate->rule, 0);
    ck_assert_int_eq(line_of(plan, "decoder/layers/self_attention/query", "dot_general0")->rule, 2);
    /* Rules of one's own: grouped matmuls are looked up too, and here none takes them. */
    const struct octet_interception *experts = line_of(plan, "decoder/layers/MoeBlock_0", "gmm");
    ck_assert(experts->looked_up);
    ck_assert_int_eq(experts->rule, -1);
    ck_assert_int_eq(experts->count, 3 * 32);
    ck_assert_uint_eq(octet_plan_unused_rules(plan, &unused), 2);
    ck_assert_int_eq(unused[0], 1);
    ck_assert_int_eq(unused[1], 3);
    octet_plan_unref(plan);
    octet_rules_unref(rules);
    fixture_end(&f);
}
END_TEST

/* Sliced projections: the second dot of a module is dot_general1, also in the second plan. */
START_TEST(op_ids_start_anew_in_each_plan)
{
    struct fixture f;
    const char *const *settings = SETTINGS("quantization=fp8_full", "use_sliced_mla_proj=true",
                                           "mtp_num_layers=1", "quantize_mtp=true");

    fixture_begin(&f);
    for (int round = 0; round < 2; round++) {
        octet_context *context = f.context;
        struct octet_limits no_cache = {.plan_cache_bytes = 1};
        ck_assert_int_eq(octet_context_create(&no_cache, &f.context, &f.err), OCTET_OK);
        octet_plan *plan = fixture_plan(&f, fixture_config(&f, "deepseek3-671b", settings), NULL);
        const char *modules[] = {
            "decoder/moe_layers/self_attention/wq_b", "decoder/moe_layers/self_attention/wkv_b",
            "mtp_block/mtp_layer_1/mtp_1_transformer_layer/self_attention/wq_b"};
        for (int i = 0; i < 3; i++) {
            ck_assert_ptr_nonnull(line_of(plan, modules[i], "dot_general0"));
            ck_assert_ptr_nonnull(line_of(plan, modules[i], "dot_general1"));
            ck_assert_ptr_null(line_of(plan, modules[i], "dot_general2"));
        }
        octet_plan_unref(plan);
        octet_context_destroy(f.context);
        f.context = context;
    }
    fixture_end(&f);
}
END_TEST

START_TEST(differences_are_what_a_flag_changes)
{
    struct fixture f;
    const struct octet_difference *found;
    size_t count;

    fixture_begin(&f);
    octet_plan *with = fixture_plan(
        &f,
        fixture_config(&f, "deepseek3-671b",
                       SETTINGS("quantization=fp8_full", "mtp_num_layers=1", "quantize_mtp=true")),
        NULL);
    octet_plan *without = fixture_plan(
        &f,
        fixture_config(&f, "deepseek3-671b", SETTINGS("quantization=fp8_full", "mtp_num_layers=1")),
        NULL);
    octet_plan *none = fixture_plan(
        &f, fixture_config(&f, "deepseek3-671b", SETTINGS("quantization=fp8_full")), NULL);
    ck_assert_int_eq(octet_plan_compare(with, with, f.arena, &found, &count, &f.err), OCTET_OK);
    ck_assert_uint_eq(count, 0);
    ck_assert_int_eq(octet_plan_compare(with, without, f.arena, &found, &count, &f.err), OCTET_OK);
    ck_assert_uint_eq(count, 11); /* ten dot_generals and the experts of the MTP layer */
    for (size_t i = 0; i < count; i++) {
        ck_assert_int_eq(found[i].kind, OCTET_CHANGED);
        ck_assert_int_eq(strncmp(found[i].module, "mtp_block/", 10), 0);
        ck_assert_int_eq(found[i].rule, 0);
        ck_assert_int_eq(found[i].against_rule, -1);
    }
    ck_assert_int_eq(octet_plan_compare(none, with, f.arena, &found, &count, &f.err), OCTET_OK);
    ck_assert_uint_eq(count,
                      octet_plan_interception_count(with) - octet_plan_interception_count(none));
    ck_assert_int_eq(found[0].kind, OCTET_ONLY_AGAINST);
    ck_assert_int_eq(octet_plan_compare(with, none, f.arena, &found, &count, &f.err), OCTET_OK);
    ck_assert_int_eq(found[0].kind, OCTET_ONLY_HERE);
    octet_plan_unref(with);
    octet_plan_unref(without);
    octet_plan_unref(none);
    fixture_end(&f);
}
END_TEST

START_TEST(the_cache_gives_the_same_plan_for_the_same_request_only)
{
    struct fixture f;

    fixture_begin(&f);
    const octet_config *config = fixture_config(&f, "llama2-7b", SETTINGS("quantization=fp8_full"));
    octet_plan *first = fixture_plan(&f, config, NULL), *again = fixture_plan(&f, config, NULL);
    /* Without effect on a plan: the very same. */
    octet_plan *named = fixture_plan(
        &f, fixture_config(&f, "llama2-7b", SETTINGS("quantization=fp8_full", "run_name=x")), NULL);
    octet_plan *other = fixture_plan(
        &f, fixture_config(&f, "llama2-7b", SETTINGS("quantization=fp8_full", "scan_layers=false")),
        NULL);
    ck_assert_ptr_eq(first, again);
    ck_assert_ptr_eq(first, named);
    ck_assert_ptr_ne(first, other);
    octet_plan_unref(first);
    octet_plan_unref(again);
    octet_plan_unref(named);
    octet_plan_unref(other);
    fixture_end(&f);
}
END_TEST

/* A key given as its default may say more than one left out. */
START_TEST(the_cache_tells_given_hardware_from_the_default)
{
    struct fixture f;

    fixture_begin(&f);
    octet_plan *silent = fixture_plan(
        &f, fixture_config(&f, "llama2-7b", SETTINGS("quantization=fp8", "attention=autoselected")),
        NULL);
    octet_plan *given = fixture_plan(
        &f,
        fixture_config(&f, "llama2-7b",
                       SETTINGS("quantization=fp8", "attention=autoselected", "hardware=tpu")),
        NULL);
    const char *module = "decoder/layers/self_attention/attention_op";
    ck_assert_ptr_nonnull(line_of(silent, module, "einsum0"));
    ck_assert_ptr_null(line_of(given, module, "einsum0"));
    octet_plan_unref(silent);
    octet_plan_unref(given);
    fixture_end(&f);
}
END_TEST

START_TEST(the_cache_forgets_the_oldest)
{
    struct fixture f;
    struct octet_limits limits = {.plan_cache_bytes = 600 * 1024};
    octet_plan *plans[20];

    fixture_begin(&f);
    octet_context *spare = f.context;
    ck_assert_int_eq(octet_context_create(&limits, &f.context, &f.err), OCTET_OK);
    for (int i = 0; i < 20; i++) {
        char layers[40];
        snprintf(layers, sizeof layers, "base_num_decoder_layers=%d", i + 1);
        plans[i] = fixture_plan(
            &f, fixture_config(&f, "llama2-7b", SETTINGS("quantization=fp8_full", layers)), NULL);
    }
    octet_plan *last = fixture_plan(
        &f,
        fixture_config(&f, "llama2-7b",
                       SETTINGS("quantization=fp8_full", "base_num_decoder_layers=20")),
        NULL);
    octet_plan *oldest =
        fixture_plan(&f,
                     fixture_config(&f, "llama2-7b",
                                    SETTINGS("quantization=fp8_full", "base_num_decoder_layers=1")),
                     NULL);
    ck_assert_ptr_eq(last, plans[19]);
    ck_assert_ptr_ne(oldest, plans[0]);
    for (int i = 0; i < 20; i++)
        octet_plan_unref(plans[i]);
    octet_plan_unref(last);
    octet_plan_unref(oldest);
    octet_context_destroy(f.context);
    f.context = spare;
    fixture_end(&f);
}
END_TEST

START_TEST(without_quantization_nothing_is_logged_but_all_is_listed)
{
    struct fixture f;

    fixture_begin(&f);
    octet_plan *plan =
        fixture_plan(&f, fixture_config(&f, "llama2-7b", SETTINGS("dtype=bfloat16")), NULL);
    ck_assert_uint_eq(octet_plan_interception_count(plan), 13);
    for (size_t i = 0; i < 13; i++) {
        ck_assert(!octet_plan_interception(plan, i)->logged);
        ck_assert_int_eq(octet_plan_interception(plan, i)->rule, -1);
    }
    octet_plan_unref(plan);
    fixture_end(&f);
}
END_TEST

START_TEST(lines_are_qwixs_own)
{
    struct octet_interception line = {.module = "a/b", .op = "einsum1", .rule = -1};
    char text[64];

    ck_assert_int_eq(octet_interception_line(&line, text, sizeof text), 40);
    ck_assert_str_eq(text, "[QWIX] module='a/b' op=einsum1 rule=None");
    line.rule = 7;
    octet_interception_line(&line, text, sizeof text);
    ck_assert_str_eq(text, "[QWIX] module='a/b' op=einsum1 rule=7");
}
END_TEST

START_TEST(cancellation_and_limits_end_the_work)
{
    struct fixture f;
    struct octet_cancel cancel = {.deadline_ns = 1};
    struct octet_graph_options options = {.batch_size = 1, .sequence_length = 128},
                               bad = {.batch_size = -1, .sequence_length = 0};
    octet_plan *plan;

    fixture_begin(&f);
    atomic_init(&cancel.cancelled, false);
    const octet_config *config =
        fixture_config(&f, "llama2-7b", SETTINGS("quantization=fp8_full", "scan_layers=false"));
    ck_assert_int_eq(octet_plan_create(f.context, config, NULL, &options, &cancel, &plan, &f.err),
                     OCTET_DEADLINE_EXCEEDED);
    atomic_store(&cancel.cancelled, true);
    ck_assert_int_eq(octet_plan_create(f.context, config, NULL, &options, &cancel, &plan, &f.err),
                     OCTET_CANCELLED);
    ck_assert_int_eq(octet_plan_create(f.context, config, NULL, &bad, NULL, &plan, &f.err),
                     OCTET_INVALID_ARGUMENT);
    ck_assert_str_eq(f.err.field, "batch_size");
    fixture_end(&f);

    struct octet_limits small = {.graph_nodes = 500}, poor = {.plan_memory_bytes = 100000};
    fixture_begin(&f);
    octet_context *spare = f.context;
    config =
        fixture_config(&f, "llama2-7b", SETTINGS("quantization=fp8_full", "scan_layers=false"));
    ck_assert_int_eq(octet_context_create(&small, &f.context, &f.err), OCTET_OK);
    ck_assert_int_eq(octet_plan_create(f.context, config, NULL, &options, NULL, &plan, &f.err),
                     OCTET_RESOURCE_EXHAUSTED);
    ck_assert_ptr_nonnull(strstr(f.err.text, "scan_layers=true"));
    octet_context_destroy(f.context);
    ck_assert_int_eq(octet_context_create(&poor, &f.context, &f.err), OCTET_OK);
    ck_assert_int_eq(octet_plan_create(f.context, config, NULL, &options, NULL, &plan, &f.err),
                     OCTET_RESOURCE_EXHAUSTED);
    octet_context_destroy(f.context);
    f.context = spare;
    fixture_end(&f);
}
END_TEST

/* Every budget between none and enough either makes the plan or says that memory ran out. */
START_TEST(every_shortage_of_memory_is_an_error)
{
    struct fixture f;
    struct octet_graph_options options = {.batch_size = 1, .sequence_length = 128};
    bool made = false;

    fixture_begin(&f);
    octet_context *spare = f.context;
    const octet_config *config =
        fixture_config(&f, "deepseek3-tiny",
                       SETTINGS("quantization=fp8_full", "mtp_num_layers=1", "quantize_mtp=true"));
    for (uint64_t budget = 1000; !made; budget += 977) {
        struct octet_limits limits = {.plan_memory_bytes = budget};
        octet_plan *plan;
        ck_assert_int_eq(octet_context_create(&limits, &f.context, &f.err), OCTET_OK);
        enum octet_status status =
            octet_plan_create(f.context, config, NULL, &options, NULL, &plan, &f.err);
        made = status == OCTET_OK;
        if (made)
            octet_plan_unref(plan);
        else
            ck_assert_int_eq(status, OCTET_RESOURCE_EXHAUSTED);
        octet_context_destroy(f.context);
        ck_assert_uint_lt(budget, 4 << 20);
    }
    f.context = spare;
    fixture_end(&f);
}
END_TEST

START_TEST(unknown_layers_are_named)
{
    struct fixture f;
    struct octet_graph_options options = {.batch_size = 1, .sequence_length = 128};
    octet_plan *plan;

    fixture_begin(&f);
    const octet_config *config =
        fixture_config(&f, "llama2-7b", SETTINGS("quantization=fp8_full", "decoder_block=llama4"));
    ck_assert_int_eq(octet_plan_create(f.context, config, NULL, &options, NULL, &plan, &f.err),
                     OCTET_UNIMPLEMENTED);
    ck_assert_str_eq(f.err.field, "decoder_block");
    ck_assert_ptr_nonnull(strstr(f.err.text, "llama4"));
    fixture_end(&f);
}
END_TEST

TCase *plan_tests(void)
{
    TCase *tests = tcase_create("plan");

    tcase_add_test(tests, lines_carry_shapes_counts_and_costs);
    tcase_add_test(tests, fused_attention_keeps_no_scores);
    tcase_add_test(tests, backward_costs_a_forward_and_the_matmuls_again);
    tcase_add_test(tests, parameters_are_counted_once);
    tcase_add_test(tests, scanned_and_unrolled_models_cost_the_same);
    tcase_add_test(tests, the_first_matching_rule_wins_and_unused_ones_are_told);
    tcase_add_test(tests, op_ids_start_anew_in_each_plan);
    tcase_add_test(tests, differences_are_what_a_flag_changes);
    tcase_add_test(tests, the_cache_gives_the_same_plan_for_the_same_request_only);
    tcase_add_test(tests, the_cache_tells_given_hardware_from_the_default);
    tcase_add_test(tests, the_cache_forgets_the_oldest);
    tcase_add_test(tests, without_quantization_nothing_is_logged_but_all_is_listed);
    tcase_add_test(tests, lines_are_qwixs_own);
    tcase_add_test(tests, cancellation_and_limits_end_the_work);
    tcase_add_test(tests, every_shortage_of_memory_is_an_error);
    tcase_add_test(tests, unknown_layers_are_named);
    tcase_set_timeout(tests, 120);
    return tests;
}
