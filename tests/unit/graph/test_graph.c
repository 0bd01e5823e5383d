/* Builder, shape inference and costs, on small graphs whose numbers were worked out by hand.
 * What could break: an axis lost or swapped, a cost off by a factor, a failure that does not stick,
 * a scanned segment that counts once; it would show as another shape, number or status. */
#include <check.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "graph/builder.h"
#include "graph/infer.h"

struct fixture {
    octet_context *context;
    octet_arena *arena;
    struct octet_error err;
    struct oct_builder b;
};

static void begin(struct fixture *f)
{
    struct octet_limits limits = {.graph_nodes = 8};

    ck_assert_int_eq(octet_context_create(&limits, &f->context, &f->err), OCTET_OK);
    f->arena = octet_arena_create(1 << 20);
    oct_builder_begin(&f->b, f->context, f->arena, NULL, &f->err);
}

static void end(struct fixture *f)
{
    octet_arena_destroy(f->arena);
    octet_context_destroy(f->context);
}

static void expect_shape(const struct oct_builder *b, oct_tensor t, int rank, const int64_t *dims)
{
    const struct octet_shape *shape = oct_shape(b, t);

    ck_assert_int_ne(t, 0);
    ck_assert_int_eq(shape->rank, rank);
    for (int i = 0; i < rank; i++)
        ck_assert_int_eq(shape->dim[i], dims[i]);
}
#define EXPECT_SHAPE(b, t, ...)                                                                    \
    expect_shape(b, t, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),                  \
                 (int64_t[]){__VA_ARGS__})

static int64_t cost_of_last(const struct oct_builder *b)
{
    const struct oct_node *node = &b->graph.nodes[b->graph.node_count - 1];

    return oct_op_rows[node->op].cost(&b->graph, node);
}

START_TEST(dense_contracts_trailing_with_leading_axes)
{
    struct fixture f;

    begin(&f);
    oct_tensor x = oct_input(&f.b, "x", OCTET_DTYPE_F32, 4,
                             (struct oct_dim[]){OCT_DIM(2, batch), OCT_DIM(3, length),
                                                OCT_DIM(4, heads), OCT_DIM(5, kv)});
    uint32_t outer = oct_enter(&f.b, "out");
    oct_tensor w =
        oct_parameter(&f.b, "kernel", 3,
                      (struct oct_dim[]){OCT_DIM(4, heads), OCT_DIM(5, kv), OCT_DIM(7, embed)});
    oct_tensor y = oct_dense(&f.b, x, w, 2);
    oct_leave(&f.b, outer);
    EXPECT_SHAPE(&f.b, y, 2, 3, 7);
    ck_assert_int_eq(oct_shape(&f.b, y)->axis[2], OCTET_AXIS_embed);
    ck_assert_int_eq(cost_of_last(&f.b), 2 * (2 * 3) * (4 * 5) * 7);
    const octet_graph *graph;
    ck_assert_int_eq(oct_builder_finish(&f.b, &graph), OCTET_OK);
    ck_assert_str_eq(octet_graph_parameter(graph, 0)->name, "out/kernel");
    end(&f);
}
END_TEST

START_TEST(contractions_that_do_not_fit_name_both_shapes)
{
    struct fixture f;

    begin(&f);
    oct_tensor x = oct_input(&f.b, "x", OCTET_DTYPE_F32, 2,
                             (struct oct_dim[]){OCT_DIM(2, batch), OCT_DIM(6, embed)});
    oct_tensor w =
        oct_parameter(&f.b, "kernel", 2, (struct oct_dim[]){OCT_DIM(4, embed), OCT_DIM(8, mlp)});
    ck_assert_int_eq(oct_dense(&f.b, x, w, 1), 0);
    ck_assert_int_eq(f.b.status, OCTET_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(f.err.text, "[2, 6] and [4, 8]"));
    /* The failure sticks: what follows does nothing and the first sentence stays. */
    ck_assert_int_eq(oct_plus(&f.b, x, x), 0);
    oct_builder_fail(&f.b, OCTET_INTERNAL, NULL, "later");
    const octet_graph *graph;
    ck_assert_int_eq(oct_builder_finish(&f.b, &graph), OCTET_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(f.err.text, "[2, 6] and [4, 8]"));
    end(&f);
}
END_TEST

START_TEST(einsum_equations_give_labels_shapes_and_costs)
{
    struct fixture f;
    static const struct {
        const char *equation;
        int lhs_rank, rhs_rank;
        int64_t lhs[5], rhs[5], out[5], out_rank, flops;
    } cases[] = {
        {"...k,k->...k", 3, 1, {2, 3, 4}, {4}, {2, 3, 4}, 3, 24},
        {"btkgd,bskd->bkgts", 5, 4, {1, 6, 2, 3, 8}, {1, 5, 2, 8}, {1, 2, 3, 6, 5}, 5, 2 * 180 * 8},
        {"BSM,EMH -> BSEH", 3, 3, {2, 3, 4}, {5, 4, 6}, {2, 3, 5, 6}, 4, 2 * 180 * 4},
        {"BSEM,BSE -> BSM", 4, 3, {2, 3, 5, 4}, {2, 3, 5}, {2, 3, 4}, 3, 2 * 24 * 5},
        {"bskm,bskd->bsmd", 4, 4, {1, 2, 4, 4}, {1, 2, 4, 9}, {1, 2, 4, 9}, 4, 2 * 72 * 4},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct oct_dim lhs[5] = {0}, rhs[5] = {0};
        begin(&f);
        for (int k = 0; k < 5; k++) {
            lhs[k] = OCT_DIM(cases[i].lhs[k], none);
            rhs[k] = OCT_DIM(cases[i].rhs[k], none);
        }
        oct_tensor x = oct_input(&f.b, "x", OCTET_DTYPE_F32, cases[i].lhs_rank, lhs);
        oct_tensor y = oct_input(&f.b, "y", OCTET_DTYPE_F32, cases[i].rhs_rank, rhs);
        oct_tensor z = oct_einsum(&f.b, cases[i].equation, x, y);
        expect_shape(&f.b, z, (int)cases[i].out_rank, cases[i].out);
        ck_assert_int_eq(cost_of_last(&f.b), cases[i].flops);
        end(&f);
    }
}
END_TEST

START_TEST(einsum_refuses_what_does_not_fit)
{
    char a[OCTET_RANK_MAX], b[OCTET_RANK_MAX], c[OCTET_RANK_MAX];
    int rank;

    ck_assert(!oct_einsum_labels("ab,bc->ac", 3, 2, a, b, c, &rank));
    ck_assert(!oct_einsum_labels("ab,bc", 2, 2, a, b, c, &rank));
    ck_assert(!oct_einsum_labels("...ab,b->...a", 1, 1, a, b, c, &rank));
    ck_assert(!oct_einsum_labels("abcdefg,a->b", 7, 1, a, b, c, &rank));
    ck_assert(oct_einsum_labels("ab,bc->ac", 2, 2, a, b, c, &rank));
    ck_assert_int_eq(rank, 2);
    ck_assert_mem_eq(c, "ac", 2);
}
END_TEST

START_TEST(a_scanned_segment_stacks_parameters_and_repeats)
{
    struct fixture f;
    struct oct_dim dims[] = {OCT_DIM(4, embed), OCT_DIM(4, mlp)};

    begin(&f);
    oct_tensor x = oct_input(&f.b, "x", OCTET_DTYPE_F32, 2,
                             (struct oct_dim[]){OCT_DIM(3, tokens), OCT_DIM(4, embed)});
    oct_tensor body = oct_scan_begin(&f.b, 5, 1, x);
    oct_tensor y = oct_scan_end(&f.b, oct_dense(&f.b, body, oct_parameter(&f.b, "w", 2, dims), 1));
    EXPECT_SHAPE(&f.b, y, 3, 4);
    const octet_graph *graph;
    ck_assert_int_eq(oct_builder_finish(&f.b, &graph), OCTET_OK);
    const struct octet_tensor *w = octet_graph_parameter(graph, 0);
    struct octet_shape stored = octet_parameter_shape(w);
    ck_assert_int_eq(stored.rank, 3);
    ck_assert_int_eq(stored.dim[1], 5);
    ck_assert_int_eq(stored.axis[1], OCTET_AXIS_layers);
    ck_assert_int_eq(octet_tensor_bytes(w), 4 * 5 * 4 * 4);
    ck_assert_int_eq(graph->nodes[0].repeat, 5);
    ck_assert_int_eq(graph->segments[0].repeat, 5);
    ck_assert_uint_eq(graph->segments[0].result, y);
    end(&f);
}
END_TEST

START_TEST(the_node_limit_and_bad_sizes_are_errors)
{
    struct fixture f;

    begin(&f);
    oct_tensor x = oct_input(&f.b, "x", OCTET_DTYPE_F32, 1, (struct oct_dim[]){OCT_DIM(4, embed)});
    for (int i = 0; i < 8; i++)
        x = oct_plus(&f.b, x, x);
    ck_assert_int_eq(f.b.status, OCTET_OK);
    oct_plus(&f.b, x, x);
    ck_assert_int_eq(f.b.status, OCTET_RESOURCE_EXHAUSTED);
    end(&f);
    begin(&f);
    oct_enter(&f.b, "mlp");
    oct_parameter(&f.b, "wi", 2, (struct oct_dim[]){OCT_DIM(4, embed), OCT_DIM(0, mlp)});
    ck_assert_int_eq(f.b.status, OCTET_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(f.err.text, "mlp/wi"));
    end(&f);
}
END_TEST

START_TEST(modules_of_one_path_are_one_module)
{
    struct fixture f;

    begin(&f);
    uint32_t root = oct_enter(&f.b, "decoder");
    oct_enter_number(&f.b, "layers", 3);
    uint32_t first = f.b.module;
    oct_leave(&f.b, root);
    oct_enter(&f.b, "decoder");
    oct_enter(&f.b, "layers_3");
    ck_assert_uint_eq(f.b.module, first);
    ck_assert_str_eq(f.b.graph.modules[first], "decoder/layers_3");
    /* Many of them: the index grows and still finds the first. */
    for (int i = 0; i < 5000; i++) {
        uint32_t outer = oct_enter_number(&f.b, "m", i);
        oct_leave(&f.b, outer);
    }
    ck_assert_int_eq(f.b.status, OCTET_OK);
    oct_leave(&f.b, root);
    oct_enter(&f.b, "decoder/layers_3");
    ck_assert_uint_eq(f.b.module, first);
    end(&f);
}
END_TEST

START_TEST(products_stop_at_the_largest_number)
{
    struct octet_shape shape = {.rank = 3, .dim = {INT64_C(1) << 40, INT64_C(1) << 40, 2}};

    ck_assert_int_eq(octet_shape_elements(&shape), INT64_MAX);
    ck_assert_int_eq(oct_saturating_add(INT64_MAX, 1), INT64_MAX);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("graph");
    TCase *tests = tcase_create("all");
    SRunner *runner = srunner_create(suite);

    suite_add_tcase(suite, tests);
    tcase_add_test(tests, dense_contracts_trailing_with_leading_axes);
    tcase_add_test(tests, contractions_that_do_not_fit_name_both_shapes);
    tcase_add_test(tests, einsum_equations_give_labels_shapes_and_costs);
    tcase_add_test(tests, einsum_refuses_what_does_not_fit);
    tcase_add_test(tests, a_scanned_segment_stacks_parameters_and_repeats);
    tcase_add_test(tests, the_node_limit_and_bad_sizes_are_errors);
    tcase_add_test(tests, modules_of_one_path_are_one_module);
    tcase_add_test(tests, products_stop_at_the_largest_number);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
