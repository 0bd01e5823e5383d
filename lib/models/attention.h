/* Attention with query, key and value projections, and the scores that all kinds share. */
#ifndef OCTET_MODELS_ATTENTION_H
#define OCTET_MODELS_ATTENTION_H

#include "models/draft.h"

/* attentions.Attention `name`. */
struct oct_attention {
    const char *name;
    bool qk_norm, bias, share_kv;
    bool float32_qk, float32_logits;
    double query_scale; /* 1: none */
    int64_t window;     /* keys looked back on; 0: all */
    double soft_cap;
};
oct_tensor oct_attention_layer(struct oct_model *m, const struct oct_attention *a, oct_tensor x);
/* attention_op.AttentionOp: query [B,S,H,D], key [B,S,K,D], value [B,S,K,V] -> [B,S,H,V].
 * mask: an additive one [B,S,S]; 0: none. sinks [H]; 0: none. */
oct_tensor oct_attend(struct oct_model *m, const struct oct_attention *a, oct_tensor query,
                      oct_tensor key, oct_tensor value, oct_tensor mask, oct_tensor sinks);
oct_tensor oct_rotate(struct oct_model *m, oct_tensor x, bool local);

#endif
