/* The table of ops that run: one row for each of graph/ops.h. An op without a forward function can
 * be traced, and a session of a model that has it is refused by its name. */
#include "exec/op.h"

/* ---- attention.c ---- */
#define code_attention_softmax                                                                     \
    {                                                                                              \
        0                                                                                          \
    }
#define code_attention_normalize                                                                   \
    {                                                                                              \
        0                                                                                          \
    }

/* ---- rope.c ---- */
#define code_rope                                                                                  \
    {                                                                                              \
        0                                                                                          \
    }
#define code_sinusoid                                                                              \
    {                                                                                              \
        0                                                                                          \
    }

/* ---- norm.c ---- */
#define code_rms_norm                                                                              \
    {                                                                                              \
        0                                                                                          \
    }
#define code_layer_norm                                                                            \
    {                                                                                              \
        0                                                                                          \
    }

/* ---- activation.c ---- */
#define code_activation                                                                            \
    {                                                                                              \
        0                                                                                          \
    }
#define code_soft_cap                                                                              \
    {                                                                                              \
        0                                                                                          \
    }

/* ---- dense.c ---- */
#define code_dot_general                                                                           \
    {                                                                                              \
        0                                                                                          \
    }
#define code_einsum                                                                                \
    {                                                                                              \
        0                                                                                          \
    }
#define code_grouped_matmul                                                                        \
    {                                                                                              \
        0                                                                                          \
    }

/* ---- elementwise.c ---- */
#define code_add                                                                                   \
    {                                                                                              \
        0                                                                                          \
    }
#define code_multiply                                                                              \
    {                                                                                              \
        0                                                                                          \
    }
#define code_scale                                                                                 \
    {                                                                                              \
        0                                                                                          \
    }
#define code_cast                                                                                  \
    {                                                                                              \
        0                                                                                          \
    }
#define code_stop_gradient                                                                         \
    {                                                                                              \
        0                                                                                          \
    }

/* ---- layout.c ---- */
#define code_slice                                                                                 \
    {                                                                                              \
        0                                                                                          \
    }
#define code_concat                                                                                \
    {                                                                                              \
        0                                                                                          \
    }
#define code_reshape                                                                               \
    {                                                                                              \
        0                                                                                          \
    }
#define code_transpose                                                                             \
    {                                                                                              \
        0                                                                                          \
    }
#define code_broadcast                                                                             \
    {                                                                                              \
        0                                                                                          \
    }
#define code_one_hot                                                                               \
    {                                                                                              \
        0                                                                                          \
    }

/* ---- moe.c ---- */
#define code_top_k                                                                                 \
    {                                                                                              \
        0                                                                                          \
    }
#define code_dispatch                                                                              \
    {                                                                                              \
        0                                                                                          \
    }
#define code_undispatch                                                                            \
    {                                                                                              \
        0                                                                                          \
    }
#define code_expert_bias                                                                           \
    {                                                                                              \
        0                                                                                          \
    }
#define code_expert_weights                                                                        \
    {                                                                                              \
        0                                                                                          \
    }
#define code_capacity_masks                                                                        \
    {                                                                                              \
        0                                                                                          \
    }
#define code_load_balance_loss                                                                     \
    {                                                                                              \
        0                                                                                          \
    }

/* ---- embed.c ---- */
#define code_embed                                                                                 \
    {                                                                                              \
        0                                                                                          \
    }

/* ---- loss.c ---- */
#define code_shift_left                                                                            \
    {                                                                                              \
        0                                                                                          \
    }
#define code_cross_entropy                                                                         \
    {                                                                                              \
        0                                                                                          \
    }
#define code_loss_ratio                                                                            \
    {                                                                                              \
        0                                                                                          \
    }

/* ---- DeepSeek 3.2's indexer, block attention, hyper-connections: traced only ---- */
#define code_chunk_mean                                                                            \
    {                                                                                              \
        0                                                                                          \
    }
#define code_index_mask                                                                            \
    {                                                                                              \
        0                                                                                          \
    }
#define code_index_loss                                                                            \
    {                                                                                              \
        0                                                                                          \
    }
#define code_stream_mix                                                                            \
    {                                                                                              \
        0                                                                                          \
    }
#define code_stream_sum                                                                            \
    {                                                                                              \
        0                                                                                          \
    }

const struct oct_op_code oct_op_codes[OCT_OP_COUNT] = {
#define ROW(name, inputs, outputs, reads) [OCT_OP_##name] = code_##name,
    OCTET_OPS(ROW)
#undef ROW
};
