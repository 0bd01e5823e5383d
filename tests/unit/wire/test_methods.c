/* The methods over the real library. What could break: a reply that points into a plan which is
 * gone, an error that names a field nobody sent, a number that is another one's, a leak when memory
 * runs out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "octet/v1/octet.pb-c.h"
#include "test_wire.h"
#include "wire/methods.h"

enum { BUDGET = 64 * 1024 * 1024 };

static octet_arena *arena;
static octet_context *context;
static struct octet_error err;
static struct octet_cancel cancel;
static const struct octet_server_backend backends[] = {{.name = "cpu", .device = "0"},
                                                       {.name = "other", .device = "1"}};
static const char *const features[] = {"avx2"}, *const accumulations[] = {"EXACT_ORDER"};
static const struct octet_server_facts facts = {
    .message_bytes_max = 1u << 30,
    .request_memory_bytes = 3000000000u,
    .queue_length = 77,
    .config_request_bytes = 4096,
    .lanes = 5,
    .backends = backends,
    .backend_count = 2,
    .cpu_features = features,
    .cpu_feature_count = 1,
    .kernels = "avx2",
    .accumulations = accumulations,
    .accumulation_count = 1,
};

static void setup(void)
{
    arena = octet_arena_create(BUDGET);
    memset(&err, 0, sizeof err);
    cancel.cancelled = false;
    cancel.deadline_ns = 0;
    ck_assert_int_eq(octet_context_create(NULL, &context, &err), OCTET_OK);
}

static void teardown(void)
{
    octet_context_destroy(context);
    octet_arena_destroy(arena);
}

static enum octet_status run(const char *method, const ProtobufCMessage *request, void *out)
{
    const struct octet_call call = {
        .context = context, .arena = arena, .cancel = &cancel, .facts = &facts};
    const struct octet_method *m = octet_method_find(method);
    ProtobufCMessage *response = NULL;

    ck_assert_ptr_nonnull(m);
    ck_assert_ptr_eq(request->descriptor, m->request);
    enum octet_status status = m->run(&call, request, &response, &err);
    ck_assert((status == OCTET_OK) == (response != NULL));
    if (response)
        ck_assert_ptr_eq(response->descriptor, m->response);
    if (status != OCTET_OK)
        ck_assert_int_eq(err.status, status);
    if (out)
        *(ProtobufCMessage **)out = response;
    return status;
}

/* A model config from "key=value" texts, ended by NULL. */
struct model {
    Octet__V1__ModelConfig config;
    Octet__V1__ModelConfig__OverridesEntry entries[8], *list[8];
    char texts[8][128];
};

static Octet__V1__ModelConfig *model_of(struct model *m, const char *name,
                                        const char *const *settings)
{
    octet__v1__model_config__init(&m->config);
    m->config.name = (char *)(uintptr_t)name;
    m->config.overrides = m->list;
    for (size_t i = 0; settings && settings[i]; i++) {
        snprintf(m->texts[i], sizeof m->texts[i], "%s", settings[i]);
        char *equals = strchr(m->texts[i], '=');
        *equals = '\0';
        octet__v1__model_config__overrides_entry__init(&m->entries[i]);
        m->entries[i].key = m->texts[i];
        m->entries[i].value = equals + 1;
        m->list[i] = &m->entries[i];
        m->config.n_overrides = i + 1;
    }
    return &m->config;
}

static const char *const tiny[] = {"quantization=fp8_full", "mtp_num_layers=1", NULL};
static const char *const tiny_mtp[] = {"quantization=fp8_full", "mtp_num_layers=1",
                                       "quantize_mtp=true", NULL};

START_TEST(every_method_is_found)
{
    static const char *const names[] = {"GetServerInfo", "Trace",      "Check",      "Inspect",
                                        "Quantize",      "Dequantize", "DotGeneral", "RaggedDot"};

    ck_assert_uint_eq(octet_method_count, 22);
    for (size_t i = 0; i < 8; i++)
        ck_assert_str_eq(octet_method_find(names[i])->name, names[i]);
    ck_assert_ptr_null(octet_method_find("trace"));
    ck_assert_ptr_null(octet_method_find(""));
}
END_TEST

START_TEST(info_tells_the_facts)
{
    Octet__V1__GetServerInfoRequest request = OCTET__V1__GET_SERVER_INFO_REQUEST__INIT;
    Octet__V1__GetServerInfoResponse *info;

    ck_assert_int_eq(run("GetServerInfo", &request.base, &info), OCTET_OK);
    ck_assert_str_eq(info->version, octet_version());
    ck_assert_str_eq(info->git_commit, octet_git_commit());
    ck_assert_uint_eq(info->n_backends, 2);
    ck_assert_str_eq(info->backends[0], "cpu");
    ck_assert_str_eq(info->backends[1], "other:1");
    ck_assert_str_eq(info->cpu_features[0], "avx2");
    ck_assert_str_eq(info->kernels, "avx2");
    ck_assert_str_eq(info->accumulations[0], "EXACT_ORDER");
    ck_assert_uint_eq(info->n_models, octet_model_count());
    ck_assert_int_eq(info->limits->max_message_bytes, 1 << 30);
    ck_assert_int_eq(info->limits->request_memory_bytes, 3000000000);
    ck_assert_int_eq(info->limits->queue_length, 77);
    ck_assert_int_eq(info->limits->config_request_bytes, 4096);
    ck_assert_int_eq(info->limits->lanes, 5);
    ck_assert_int_eq(info->limits->rules, 256);
    ck_assert_int_eq(info->limits->yaml_bytes, 1 << 20);
    ck_assert_int_eq(info->limits->graph_nodes, 1000000);
}
END_TEST

static void check_shape(const struct octet_shape *shape, size_t rank, const int64_t *sizes,
                        size_t axis_count, char *const *axes)
{
    ck_assert_uint_eq(rank, (size_t)shape->rank);
    ck_assert_uint_eq(axis_count, rank);
    for (size_t i = 0; i < rank; i++) {
        ck_assert_int_eq(sizes[i], shape->dim[i]);
        ck_assert_str_eq(axes[i], octet_axis_name(shape->axis[i]));
    }
}

/* The trace on the wire beside the plan that the library makes of the same config. */
START_TEST(trace_is_the_plan)
{
    struct model model;
    Octet__V1__TraceRequest request = OCTET__V1__TRACE_REQUEST__INIT;
    Octet__V1__TraceResponse *response;
    const struct octet_pair pairs[] = {{"quantization", "fp8_full"}, {"mtp_num_layers", "1"}};
    const struct octet_config_input input = {
        .name = "deepseek3-tiny", .overrides = pairs, .override_count = 2};
    const struct octet_graph_options sizes = {.batch_size = 2, .sequence_length = 64};
    const octet_config *config;
    octet_plan *plan;

    request.model = model_of(&model, "deepseek3-tiny", tiny);
    request.batch_size = 2;
    request.sequence_length = 64;
    ck_assert_int_eq(run("Trace", &request.base, &response), OCTET_OK);
    ck_assert_int_eq(octet_config_build(context, arena, &input, &config, &err), OCTET_OK);
    ck_assert_int_eq(octet_plan_create(context, config, NULL, &sizes, NULL, &plan, &err), OCTET_OK);

    const Octet__V1__Trace *trace = response->trace;
    ck_assert_uint_eq(trace->n_interceptions, octet_plan_interception_count(plan));
    ck_assert_uint_gt(trace->n_interceptions, 40);
    for (size_t i = 0; i < trace->n_interceptions; i++) {
        const struct octet_interception *p = octet_plan_interception(plan, i);
        const Octet__V1__Interception *t = trace->interceptions[i];
        ck_assert_str_eq(t->module, p->module);
        ck_assert_str_eq(t->op, p->op);
        ck_assert_str_eq(t->kind, octet_lookup_name(p->kind));
        ck_assert_str_eq(t->equation, p->equation);
        ck_assert_int_eq(t->rule, p->rule);
        ck_assert_int_eq(t->count, p->count);
        ck_assert_int_eq(t->flops, p->flops);
        ck_assert_int_eq(t->weight_bytes, p->weight_bytes);
        ck_assert_int_eq(t->logged, p->logged);
        ck_assert_int_eq(t->looked_up, p->looked_up);
        check_shape(&p->lhs, t->n_lhs_shape, t->lhs_shape, t->n_lhs_axes, t->lhs_axes);
        check_shape(&p->rhs, t->n_rhs_shape, t->rhs_shape, t->n_rhs_axes, t->rhs_axes);
        check_shape(&p->out, t->n_out_shape, t->out_shape, t->n_out_axes, t->out_axes);
    }
    const struct octet_coverage *rows;
    size_t count = octet_plan_coverage(plan, &rows);
    ck_assert_uint_eq(trace->coverage->n_by_block + 1, count);
    ck_assert_int_eq(trace->coverage->flops_quantized, rows[0].flops_quantized);
    ck_assert_int_eq(trace->coverage->weight_bytes_total, rows[0].weight_bytes_total);
    ck_assert_str_eq(trace->coverage->by_block[0]->block, rows[1].block);
    ck_assert_int_eq(trace->coverage->by_block[0]->flops_total, rows[1].flops_total);
    ck_assert_uint_eq(trace->n_rules, octet_rules_count(octet_plan_rules(plan)));
    ck_assert_str_eq(trace->rules[0]->weight_qtype, "float8_e4m3fn");
    ck_assert_int_eq(response->parameters, octet_plan_totals(plan)->parameters);
    ck_assert_int_eq(response->activation_bytes, octet_plan_totals(plan)->activation_bytes);
    ck_assert_ptr_null(response->against);
    octet_plan_unref(plan);
}
END_TEST

/* Encoding happens after the call, when nothing but the arena may still be there. */
START_TEST(the_reply_outlives_plan_and_context)
{
    struct model model, other;
    Octet__V1__TraceRequest request = OCTET__V1__TRACE_REQUEST__INIT;
    Octet__V1__TraceResponse *response;

    request.model = model_of(&model, "deepseek3-tiny", tiny);
    request.against = model_of(&other, "deepseek3-tiny", tiny_mtp);
    ck_assert_int_eq(run("Trace", &request.base, &response), OCTET_OK);
    octet_context_destroy(context);
    context = NULL;
    size_t size = protobuf_c_message_get_packed_size(&response->base);
    uint8_t *bytes = malloc(size);
    ck_assert_uint_eq(protobuf_c_message_pack(&response->base, bytes), size);
    ProtobufCMessage *again;
    ck_assert_int_eq(octet_wire_decode(response->base.descriptor, arena, bytes, size, &again, &err),
                     OCTET_OK);
    const Octet__V1__TraceResponse *read = (const Octet__V1__TraceResponse *)again;
    ck_assert_uint_eq(read->n_differences, response->n_differences);
    ck_assert_uint_gt(read->n_differences, 5);
    for (size_t i = 0; i < read->n_differences; i++) {
        const Octet__V1__Difference *d = read->differences[i];
        ck_assert_int_eq(d->kind, OCTET__V1__DIFFERENCE_KIND__DIFFERENCE_KIND_CHANGED);
        ck_assert_int_eq(d->rule, -1);
        ck_assert_int_eq(d->against_rule, 0);
        ck_assert_int_eq(strncmp(d->module, "mtp_block/", 10), 0);
    }
    free(bytes);
}
END_TEST

START_TEST(rules_of_the_request_come_back)
{
    struct model model;
    Octet__V1__TraceRequest request = OCTET__V1__TRACE_REQUEST__INIT;
    Octet__V1__TraceResponse *response;
    Octet__V1__QuantizationRule first = OCTET__V1__QUANTIZATION_RULE__INIT, second = first;
    Octet__V1__QuantizationRule *rules[] = {&first, &second};
    Octet__V1__QuantizationRule__AdditionalQtConfigEntry entry =
        OCTET__V1__QUANTIZATION_RULE__ADDITIONAL_QT_CONFIG_ENTRY__INIT;
    Octet__V1__QuantizationRule__AdditionalQtConfigEntry *entries[] = {&entry};
    Octet__V1__Sparsity sparsity = OCTET__V1__SPARSITY__INIT;
    char *ops[] = {(char *)"dot_general"};
    int32_t axes[] = {0, 1};

    first.module_path = (char *)"decoder/.*wq_b";
    first.n_op_names = 1;
    first.op_names = ops;
    first.weight_qtype = first.act_qtype = (char *)"int8";
    first.tile_size = (char *)"1/4";
    first.n_act_batch_axes = 2;
    first.act_batch_axes = axes;
    entry.key = (char *)"disable_gradient_clipping";
    entry.value = (char *)"true";
    first.n_additional_qt_config = 1;
    first.additional_qt_config = entries;
    sparsity.n = 2;
    sparsity.m = 4;
    second.sparsity = &sparsity;
    second.module_path = (char *)"no/such/module";
    request.model = model_of(&model, "deepseek3-tiny", tiny);
    request.n_rules = 2;
    request.rules = rules;
    ck_assert_int_eq(run("Trace", &request.base, &response), OCTET_OK);
    const Octet__V1__Trace *trace = response->trace;
    ck_assert_uint_eq(trace->n_rules, 2);
    ck_assert_str_eq(trace->rules[0]->module_path, "decoder/.*wq_b");
    ck_assert_str_eq(trace->rules[0]->op_names[0], "dot_general");
    ck_assert_str_eq(trace->rules[0]->tile_size, "1/4");
    ck_assert_int_eq(trace->rules[0]->act_batch_axes[1], 1);
    ck_assert_str_eq(trace->rules[0]->additional_qt_config[0]->key, "disable_gradient_clipping");
    ck_assert_int_eq(trace->rules[1]->sparsity->m, 4);
    ck_assert_ptr_null(trace->rules[0]->sparsity);
    ck_assert_uint_eq(trace->n_unused_rules, 1);
    ck_assert_int_eq(trace->unused_rules[0], 1);
    for (size_t i = 0; i < trace->n_interceptions; i++) {
        const Octet__V1__Interception *t = trace->interceptions[i];
        bool taken = strncmp(t->module, "decoder/", 8) == 0 && strstr(t->module, "wq_b") &&
                     strcmp(t->kind, "dot_general") == 0;
        ck_assert_int_eq(t->rule, taken ? 0 : -1);
    }
    request.strict = 1;
    ck_assert_int_eq(run("Trace", &request.base, &response), OCTET_FAILED_PRECONDITION);
    ck_assert_str_eq(err.field, "strict");
    ck_assert_ptr_nonnull(strstr(err.text, "1 of 2 rules"));
    ck_assert_ptr_nonnull(strstr(err.text, "rules[1] (module_path 'no/such/module')"));
}
END_TEST

static void expect_field(Octet__V1__TraceRequest *request, enum octet_status status,
                         const char *field)
{
    ck_assert_int_eq(run("Trace", &request->base, NULL), status);
    ck_assert_str_eq(err.field, field);
    ck_assert_uint_gt(strlen(err.text), 10);
}

START_TEST(errors_name_the_wire_s_fields)
{
    struct model model, other;
    Octet__V1__TraceRequest request = OCTET__V1__TRACE_REQUEST__INIT, plain = request;
    Octet__V1__QuantizationRule fine = OCTET__V1__QUANTIZATION_RULE__INIT, bad = fine, worse = fine;
    Octet__V1__QuantizationRule *rules[] = {&fine, &bad};

    request.model = model_of(&model, "deepseek3-tinny", NULL);
    expect_field(&request, OCTET_NOT_FOUND, "model.name");
    request.model = model_of(&model, "deepseek3-tiny", (const char *const[]){"scan_layer=1", NULL});
    expect_field(&request, OCTET_INVALID_ARGUMENT, "model.overrides[scan_layer]");
    request.model = model_of(&model, "deepseek3-tiny", NULL);
    request.model->yaml = (char *)"scan_layer: 1\n";
    expect_field(&request, OCTET_INVALID_ARGUMENT, "model.yaml[scan_layer]");
    request.model = model_of(&model, "deepseek3-tiny", NULL);
    request.against = model_of(&other, "deepseek3-tiny", (const char *const[]){"dtype=x", NULL});
    expect_field(&request, OCTET_INVALID_ARGUMENT, "against.overrides[dtype]");
    request = plain;
    request.model = model_of(&model, "deepseek3-tiny", NULL);
    request.batch_size = -1;
    expect_field(&request, OCTET_INVALID_ARGUMENT, "batch_size");
    request.batch_size = 0;
    request.sequence_length = INT64_MIN;
    expect_field(&request, OCTET_INVALID_ARGUMENT, "sequence_length");
    request.sequence_length = 0;
    bad.module_path = (char *)"(";
    worse.act_qtype = (char *)"int99";
    request.n_rules = 2;
    request.rules = rules;
    expect_field(&request, OCTET_INVALID_ARGUMENT, "rules[1].module_path");
    rules[1] = &worse;
    expect_field(&request, OCTET_INVALID_ARGUMENT, "rules[1].act_qtype");
    /* A value that makes no model is named where it was set. */
    request = plain;
    request.model =
        model_of(&model, "deepseek3-tiny", (const char *const[]){"num_experts_per_tok=1000", NULL});
    ck_assert_int_ne(run("Trace", &request.base, NULL), OCTET_OK);
    ck_assert_str_eq(err.field, "model.overrides[num_experts_per_tok]");
}
END_TEST

START_TEST(inspect_lists_what_maxtext_stores)
{
    struct model model;
    Octet__V1__InspectRequest request = OCTET__V1__INSPECT_REQUEST__INIT;
    Octet__V1__InspectResponse *response;
    bool found = false;
    int64_t bytes = 0;

    request.model = model_of(&model, "deepseek3-tiny", NULL);
    request.batch_size = 3;
    request.sequence_length = 40;
    ck_assert_int_eq(run("Inspect", &request.base, &response), OCTET_OK);
    for (size_t i = 0; i < response->n_parameters; i++) {
        const Octet__V1__Parameter *p = response->parameters[i];
        bytes += p->bytes;
        if (i)
            ck_assert_int_lt(strcmp(response->parameters[i - 1]->name, p->name), 0);
        if (strcmp(p->name, "decoder/moe_layers/self_attention/wq_b/kernel") != 0)
            continue;
        /* spec: [q_lora, L, H, nope + rope] with the layer index on axis 1 */
        found = true;
        ck_assert_uint_eq(p->n_shape, 4);
        ck_assert_int_eq(p->shape[1], 58);
        ck_assert_int_eq(p->dtype, OCTET__V1__DATA_TYPE__DATA_TYPE_F32);
        ck_assert_str_eq(p->axes[0], "q_lora");
        ck_assert_str_eq(p->axes[1], "layers");
        ck_assert_int_eq(p->bytes, 4 * p->shape[0] * p->shape[1] * p->shape[2] * p->shape[3]);
    }
    ck_assert(found);
    ck_assert_int_eq(bytes, response->parameter_bytes);
    ck_assert_int_eq(response->parameter_bytes, 4 * response->parameter_count);
    ck_assert_int_eq(response->batch_size, 3);
    ck_assert_int_eq(response->sequence_length, 40);
    ck_assert_int_gt(response->flops_backward, response->flops_forward);
}
END_TEST

START_TEST(check_answers_with_and_without_a_plan)
{
    struct model model;
    Octet__V1__CheckRequest request = OCTET__V1__CHECK_REQUEST__INIT;
    Octet__V1__CheckResponse *response;
    char *require[] = {(char *)"decoder/logits_dense"}, *bad[] = {(char *)"("};
    bool unquantized = false;

    request.model = model_of(&model, "deepseek3-tiny", tiny);
    request.n_require = 1;
    request.require = require;
    ck_assert_int_eq(run("Check", &request.base, &response), OCTET_OK);
    ck_assert_ptr_nonnull(response->trace);
    for (size_t i = 0; i < response->n_findings; i++)
        unquantized |= response->findings[i]->severity == OCTET__V1__SEVERITY__SEVERITY_ERROR &&
                       strstr(response->findings[i]->message, "logits_dense");
    ck_assert(unquantized);
    request.require = bad;
    ck_assert_int_eq(run("Check", &request.base, &response), OCTET_INVALID_ARGUMENT);
    ck_assert_str_eq(err.field, "require[0]");
    /* quantize_mtp without MTP layers makes no plan: that is a finding, not an error. */
    request.n_require = 0;
    request.model =
        model_of(&model, "deepseek3-tiny", (const char *const[]){"quantize_mtp=true", NULL});
    ck_assert_int_eq(run("Check", &request.base, &response), OCTET_OK);
    ck_assert_ptr_null(response->trace);
    ck_assert_uint_ge(response->n_findings, 1);
    ck_assert_int_eq(response->findings[0]->severity, OCTET__V1__SEVERITY__SEVERITY_ERROR);
}
END_TEST

START_TEST(cancelled_calls_end)
{
    struct model model;
    Octet__V1__TraceRequest request = OCTET__V1__TRACE_REQUEST__INIT;

    request.model = model_of(&model, "deepseek3-tiny", tiny);
    cancel.cancelled = true;
    ck_assert_int_eq(run("Trace", &request.base, NULL), OCTET_CANCELLED);
    cancel.cancelled = false;
    cancel.deadline_ns = 1;
    ck_assert_int_eq(run("Trace", &request.base, NULL), OCTET_DEADLINE_EXCEEDED);
    Octet__V1__CheckRequest check = OCTET__V1__CHECK_REQUEST__INIT;
    check.model = request.model;
    ck_assert_int_eq(run("Check", &check.base, NULL), OCTET_DEADLINE_EXCEEDED);
}
END_TEST

/* Every allocation of the arena fails once; the call says so, and (under ASan) leaves nothing
 * behind. */
static void torture(const char *method, const ProtobufCMessage *request)
{
    uint64_t n = 0, failures = 0;
    bool done = false;

    while (!done) {
        octet_arena_reset(arena);
        n = n < 200 ? n + 1 : n + n / 16;
        octet_arena_fail_at(arena, n);
        enum octet_status status = run(method, request, NULL);
        if (status == OCTET_OK) {
            /* Did it succeed because the n-th allocation was never made? One more would fail then.
             */
            done = octet_arena_alloc(arena, 1) != NULL || n > 1000000;
            octet_arena_fail_at(arena, 0);
        } else {
            ck_assert_msg(status == OCTET_RESOURCE_EXHAUSTED, "%s at %llu: %s %s", method,
                          (unsigned long long)n, err.field, err.text);
            failures++;
        }
        ck_assert_uint_lt(n, 1000000);
    }
    ck_assert_uint_gt(failures, 1);
}

START_TEST(memory_that_runs_out_is_told)
{
    struct model model, other;
    Octet__V1__TraceRequest trace = OCTET__V1__TRACE_REQUEST__INIT;
    Octet__V1__CheckRequest check = OCTET__V1__CHECK_REQUEST__INIT;
    Octet__V1__InspectRequest inspect = OCTET__V1__INSPECT_REQUEST__INIT;
    Octet__V1__GetServerInfoRequest info = OCTET__V1__GET_SERVER_INFO_REQUEST__INIT;
    Octet__V1__QuantizationRule rule = OCTET__V1__QUANTIZATION_RULE__INIT, *rules[] = {&rule};

    rule.weight_qtype = (char *)"int8";
    trace.model = check.model = inspect.model = model_of(&model, "deepseek3-tiny", tiny);
    trace.against = model_of(&other, "deepseek3-tiny", tiny_mtp);
    torture("GetServerInfo", &info.base);
    torture("Trace", &trace.base);
    torture("Check", &check.base);
    torture("Inspect", &inspect.base);
    trace.n_rules = 1;
    trace.rules = rules;
    torture("Trace", &trace.base);
}
END_TEST

TCase *methods_cases(void)
{
    TCase *cases = tcase_create("methods");

    tcase_set_timeout(cases, 120);
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, every_method_is_found);
    tcase_add_test(cases, info_tells_the_facts);
    tcase_add_test(cases, trace_is_the_plan);
    tcase_add_test(cases, the_reply_outlives_plan_and_context);
    tcase_add_test(cases, rules_of_the_request_come_back);
    tcase_add_test(cases, errors_name_the_wire_s_fields);
    tcase_add_test(cases, inspect_lists_what_maxtext_stores);
    tcase_add_test(cases, check_answers_with_and_without_a_plan);
    tcase_add_test(cases, cancelled_calls_end);
    tcase_add_test(cases, memory_that_runs_out_is_told);
    return cases;
}
