/* Multi-token prediction (multi_token_prediction.MultiTokenPredictionBlock): layer k sees the
 * hidden state of layer k-1 (the main model's for k = 1) and the embedding of the token k places
 * ahead, and predicts the one after it through the main model's own head. */
#include "models/mtp.h"

#include "models/decoder.h"
#include "models/layers.h"

/* segment_ids 0: over document boundaries too. */
static oct_tensor shift_left(struct oct_model *m, oct_tensor x, oct_tensor segment_ids)
{
    return oct_add_node(&m->b, OCT_OP_shift_left, OCTET_LOOKUP_NONE, (union oct_attributes){.k = 0},
                        segment_ids ? 2 : 1, (oct_tensor[]){x, segment_ids}, NULL);
}

static oct_tensor numbered_norm(struct oct_model *m, int64_t k, const char *what, oct_tensor x)
{
    char *name = octet_arena_format(m->b.arena, "mtp_%lld_%s", (long long)k, what);
    return name ? oct_norm(m, name, x) : 0;
}

static oct_tensor layer(struct oct_model *m, int64_t k, oct_tensor hidden, oct_tensor embedded)
{
    uint32_t outer = oct_enter_number(&m->b, "mtp_layer", k);
    oct_tensor a = numbered_norm(m, k, "embedding_norm", embedded);
    oct_tensor b = numbered_norm(m, k, "hidden_state_norm", hidden);
    char *projection = octet_arena_format(m->b.arena, "mtp_%lld_projection", (long long)k);
    char *transformer = octet_arena_format(m->b.arena, "mtp_%lld_transformer_layer", (long long)k);

    if (!projection || !transformer) {
        oct_builder_fail(&m->b, OCTET_RESOURCE_EXHAUSTED, NULL, "out of memory for module names");
        return 0;
    }
    struct oct_dim dims[] = {OCT_DIM(2 * m->dims->emb_dim, concat_embed),
                             OCT_DIM(m->dims->emb_dim, embed)};
    oct_tensor x = oct_dense_layer(m, projection, oct_concat(&m->b, a, b), 1, 1, dims, false);
    uint32_t here = oct_enter(&m->b, transformer);
    x = oct_mtp_transformer_layer(m, x);
    oct_leave(&m->b, here);
    oct_leave(&m->b, outer);
    return x;
}

void oct_mtp_block(struct oct_model *m, oct_tensor hidden, oct_tensor *loss_sum,
                   oct_tensor *weight_sum)
{
    oct_tensor ids = m->tokens, targets = m->targets, weights = m->target_weights;
    oct_tensor segment_ids = m->b.segment_ids, positions = m->b.positions;

    *loss_sum = *weight_sum = 0;
    for (int64_t k = 1; k <= oct_int(m, mtp_num_layers) && m->b.status == OCTET_OK; k++) {
        uint32_t outer = oct_enter(&m->b, "mtp_block");
        ids = shift_left(m, ids, segment_ids);
        targets = shift_left(m, targets, segment_ids);
        weights = shift_left(m, weights, segment_ids);
        positions = shift_left(m, positions, segment_ids); /* only position embeddings read them */
        segment_ids = shift_left(m, segment_ids, 0);
        oct_leave(&m->b, outer);

        oct_tensor embedded = oct_embedding(m, ids, positions);
        outer = oct_enter(&m->b, "mtp_block");
        hidden = layer(m, k, hidden, embedded);
        oct_leave(&m->b, outer);
        oct_tensor logits = oct_output_head(m, hidden), sum;
        outer = oct_enter(&m->b, "mtp_block");
        oct_tensor loss = oct_add_node(&m->b, OCT_OP_cross_entropy, OCTET_LOOKUP_NONE,
                                       (union oct_attributes){.factor = 0}, 3,
                                       (oct_tensor[]){logits, targets, weights}, &sum);
        *loss_sum = *loss_sum ? oct_plus(&m->b, *loss_sum, loss) : loss;
        *weight_sum = *weight_sum ? oct_plus(&m->b, *weight_sum, sum) : sum;
        oct_leave(&m->b, outer);
    }
}
