/* A context, workers and the plan of a small model, for the suites of lib/train. */
#ifndef OCTET_TESTS_TRAIN_FIXTURE_H
#define OCTET_TESTS_TRAIN_FIXTURE_H

#include <check.h>

#include "octet/octet.h"

struct fixture {
    octet_context *context;
    octet_arena *arena;
    octet_workers *workers;
    struct octet_compute compute;
    struct octet_error err;
};

void fixture_begin(struct fixture *f);
void fixture_end(struct fixture *f);
/* settings: "key=value" texts, ended by NULL; in the fixture's arena. */
struct octet_config_input fixture_input(struct fixture *f, const char *model,
                                        const char *const *settings);
const octet_config *fixture_config(struct fixture *f, const char *model,
                                   const char *const *settings);
octet_plan *fixture_plan(struct fixture *f, const char *model, const char *const *settings);
/* Random tokens in the fixture's arena; all else is left to octet_batch_complete. */
struct octet_batch fixture_batch(struct fixture *f, int64_t rows, int64_t length, int64_t vocab,
                                 uint32_t seed);
#define SETTINGS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define ck_assert_ok(f, call)                                                                      \
    do {                                                                                           \
        enum octet_status ok_status = (call);                                                      \
        ck_assert_msg(ok_status == OCTET_OK, "%s: %s: %s", octet_status_name(ok_status),           \
                      (f)->err.field, (f)->err.text);                                              \
    } while (0)

/* deepseek3-tiny with scanned layers, small: a dense layer, MoE layers, an MTP layer. */
#define TINY_SETTINGS                                                                              \
    "base_emb_dim=32", "base_num_query_heads=2", "base_num_kv_heads=2", "base_mlp_dim=48",         \
        "base_moe_mlp_dim=24", "base_num_decoder_layers=4", "first_num_dense_layers=1",            \
        "vocab_size=64", "num_experts=4", "num_experts_per_tok=2", "mtp_num_layers=1",             \
        "max_target_length=16", "per_device_batch_size=2"

TCase *checkpoint_tests(void);
TCase *initialise_tests(void);
TCase *optimizer_tests(void);
TCase *parameters_tests(void);
TCase *placed_tests(void);
TCase *session_tests(void);

#endif
