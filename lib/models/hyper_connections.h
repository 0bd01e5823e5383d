/* Manifold-constrained hyper-connections. */
#ifndef OCTET_MODELS_HYPER_CONNECTIONS_H
#define OCTET_MODELS_HYPER_CONNECTIONS_H

#include "models/draft.h"

/* mhc.ManifoldConstrainedHyperConnections `name` around one branch: begin gives the branch's input
 * [B,S,E] of streams [B,S,K,E], end mixes its output back in. */
struct oct_streams {
    uint32_t outer; /* module to go back to */
    oct_tensor streams, post, residual;
};
oct_tensor oct_streams_begin(struct oct_model *m, const char *name, oct_tensor streams,
                             struct oct_streams *state);
oct_tensor oct_streams_end(struct oct_model *m, struct oct_streams *state, oct_tensor branch);

#endif
