/* The table of ops that run: one row for each of graph/ops.h. An op without a forward function can
 * be traced, and a session of a model that has it is refused by its name. */
#include "exec/activation.h"
#include "exec/dense.h"
#include "exec/elementwise.h"
#include "exec/embed.h"
#include "exec/layout.h"
#include "exec/loss.h"
#include "exec/moe.h"
#include "exec/norm.h"
#include "exec/op.h"
#include "exec/rope.h"
#include "exec/softmax.h"

/* ---- softmax.c ---- */
#define code_attention_softmax                                                                     \
    {                                                                                              \
        .forward = oct_attention_softmax_forward, .vjp = oct_attention_softmax_vjp,                \
        .saved_bytes = oct_attention_softmax_saved_bytes, .reads = oct_attention_softmax_reads,    \
        .scratch_bytes = oct_attention_softmax_scratch_bytes                                       \
    }
#define code_attention_normalize                                                                   \
    {                                                                                              \
        .forward = oct_attention_normalize_forward, .vjp = oct_attention_normalize_vjp             \
    }

/* ---- rope.c ---- */
#define code_rope                                                                                  \
    {                                                                                              \
        .forward = oct_rope_forward, .vjp = oct_rope_vjp, .scratch_bytes = oct_rope_scratch_bytes  \
    }
#define code_sinusoid                                                                              \
    {                                                                                              \
        .forward = oct_sinusoid_forward, .scratch_bytes = oct_sinusoid_scratch_bytes               \
    }

/* ---- norm.c ---- */
#define code_rms_norm                                                                              \
    {                                                                                              \
        .forward = oct_norm_forward, .vjp = oct_norm_vjp, .scratch_bytes = oct_norm_scratch_bytes  \
    }
#define code_layer_norm                                                                            \
    {                                                                                              \
        .forward = oct_norm_forward, .vjp = oct_norm_vjp, .scratch_bytes = oct_norm_scratch_bytes  \
    }

/* ---- activation.c ---- */
#define code_activation                                                                            \
    {                                                                                              \
        .forward = oct_activation_forward, .vjp = oct_activation_vjp,                              \
        .scratch_bytes = oct_activation_scratch_bytes                                              \
    }
#define code_soft_cap                                                                              \
    {                                                                                              \
        .forward = oct_soft_cap_forward, .vjp = oct_soft_cap_vjp                                   \
    }

/* ---- dense.c ---- */
#define DENSE                                                                                      \
    {                                                                                              \
        .forward = oct_dense_forward, .vjp = oct_dense_vjp, .saved_bytes = oct_dense_saved_bytes,  \
        .reads = oct_dense_reads, .scratch_bytes = oct_dense_scratch_bytes                         \
    }
#define code_dot_general DENSE
#define code_einsum DENSE
#define code_grouped_matmul DENSE

/* ---- elementwise.c ---- */
#define code_add                                                                                   \
    {                                                                                              \
        .forward = oct_add_forward, .vjp = oct_add_vjp                                             \
    }
#define code_multiply                                                                              \
    {                                                                                              \
        .forward = oct_multiply_forward, .vjp = oct_multiply_vjp                                   \
    }
#define code_scale                                                                                 \
    {                                                                                              \
        .forward = oct_scale_forward, .vjp = oct_scale_vjp                                         \
    }
#define code_cast                                                                                  \
    {                                                                                              \
        .forward = oct_cast_forward, .vjp = oct_cast_vjp                                           \
    }
#define code_stop_gradient                                                                         \
    {                                                                                              \
        .forward = oct_stop_gradient_forward                                                       \
    }

/* ---- layout.c ---- */
#define code_slice                                                                                 \
    {                                                                                              \
        .forward = oct_slice_forward, .vjp = oct_slice_vjp                                         \
    }
#define code_concat                                                                                \
    {                                                                                              \
        .forward = oct_concat_forward, .vjp = oct_concat_vjp                                       \
    }
#define code_reshape                                                                               \
    {                                                                                              \
        .forward = oct_reshape_forward, .vjp = oct_reshape_vjp                                     \
    }
#define code_transpose                                                                             \
    {                                                                                              \
        .forward = oct_transpose_forward, .vjp = oct_transpose_vjp                                 \
    }
#define code_broadcast                                                                             \
    {                                                                                              \
        .forward = oct_broadcast_forward, .vjp = oct_broadcast_vjp                                 \
    }
#define code_one_hot                                                                               \
    {                                                                                              \
        .forward = oct_one_hot_forward                                                             \
    }

/* ---- moe.c ---- */
#define code_top_k                                                                                 \
    {                                                                                              \
        .forward = oct_top_k_forward, .vjp = oct_top_k_vjp, .saved_bytes = oct_top_k_saved_bytes,  \
        .reads = oct_top_k_reads                                                                   \
    }
#define code_dispatch                                                                              \
    {                                                                                              \
        .forward = oct_dispatch_forward, .vjp = oct_dispatch_vjp,                                  \
        .scratch_bytes = oct_dispatch_scratch_bytes                                                \
    }
#define code_undispatch                                                                            \
    {                                                                                              \
        .forward = oct_undispatch_forward, .vjp = oct_undispatch_vjp,                              \
        .scratch_bytes = oct_dispatch_scratch_bytes                                                \
    }
#define code_expert_bias                                                                           \
    {                                                                                              \
        .forward = oct_expert_bias_forward, .vjp = oct_expert_bias_vjp,                            \
        .scratch_bytes = oct_dispatch_scratch_bytes                                                \
    }
#define code_expert_weights                                                                        \
    {                                                                                              \
        .forward = oct_expert_weights_forward, .vjp = oct_expert_weights_vjp                       \
    }
#define code_capacity_masks                                                                        \
    {                                                                                              \
        .forward = oct_capacity_masks_forward, .vjp = oct_capacity_masks_vjp,                      \
        .scratch_bytes = oct_capacity_masks_scratch_bytes                                          \
    }
#define code_load_balance_loss                                                                     \
    {                                                                                              \
        .forward = oct_load_balance_loss_forward, .vjp = oct_load_balance_loss_vjp,                \
        .scratch_bytes = oct_load_balance_loss_scratch_bytes                                       \
    }

/* ---- embed.c ---- */
#define code_embed                                                                                 \
    {                                                                                              \
        .forward = oct_embed_forward, .vjp = oct_embed_vjp,                                        \
        .scratch_bytes = oct_embed_scratch_bytes                                                   \
    }

/* ---- loss.c ---- */
#define code_shift_left                                                                            \
    {                                                                                              \
        .forward = oct_shift_left_forward                                                          \
    }
#define code_cross_entropy                                                                         \
    {                                                                                              \
        .forward = oct_cross_entropy_forward, .vjp = oct_cross_entropy_vjp,                        \
        .saved_bytes = oct_cross_entropy_saved_bytes,                                              \
        .scratch_bytes = oct_cross_entropy_scratch_bytes                                           \
    }
#define code_loss_ratio                                                                            \
    {                                                                                              \
        .forward = oct_loss_ratio_forward, .vjp = oct_loss_ratio_vjp                               \
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
