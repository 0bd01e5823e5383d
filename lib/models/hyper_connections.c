/* Manifold-constrained hyper-connections (mhc.ManifoldConstrainedHyperConnections): K residual
 * streams instead of one; each branch reads a mix of them and is mixed back. Source of the
 * arithmetic: arXiv 2512.24880, as MaxText has it. */
#include "models/hyper_connections.h"

#include "models/layers.h"

static oct_tensor gate_of(struct oct_model *m, oct_tensor mix, int64_t start, int64_t size,
                          const char *scale_leaf, const char *beta_leaf, bool square)
{
    int64_t k = oct_int(m, mhc_expansion_rate);
    struct oct_dim one = OCT_DIM(1, none), width = OCT_DIM(k, none), flat = OCT_DIM(size, none);
    oct_tensor scale = oct_parameter(&m->b, scale_leaf, 1, &one);
    oct_tensor beta = square ? oct_parameter(&m->b, beta_leaf, 2, (struct oct_dim[]){width, width})
                             : oct_parameter(&m->b, beta_leaf, 1, &flat);
    oct_tensor h = oct_slice(&m->b, mix, 2, start, size);

    if (square)
        h = oct_reshape(
            &m->b, h, 4,
            (struct oct_dim[]){OCT_DIM(m->batch, batch), OCT_DIM(m->length, length), width, width});
    h = oct_plus(&m->b, oct_times(&m->b, h, scale), beta);
    return oct_add_node(&m->b, OCT_OP_stream_mix, OCTET_LOOKUP_NONE,
                        (union oct_attributes){.k = square ? oct_int(m, sinkhorn_iterations) : 0},
                        1, &h, NULL);
}

static int64_t factorial(int64_t k)
{
    int64_t product = 1;

    for (int64_t i = 2; i <= k; i++)
        product = oct_saturating_multiply(product, i);
    return product;
}

oct_tensor oct_streams_begin(struct oct_model *m, const char *name, oct_tensor streams,
                             struct oct_streams *state)
{
    int64_t k = oct_int(m, mhc_expansion_rate), e = m->dims->emb_dim;
    bool lite = oct_bool(m, enable_mhc_lite);
    int64_t residual = lite ? factorial(k) : k * k;
    struct oct_dim in = OCT_DIM(k * e, embed);
    oct_tensor flat =
        oct_reshape(&m->b, streams, 3,
                    (struct oct_dim[]){OCT_DIM(m->batch, batch), OCT_DIM(m->length, length), in});

    state->outer = oct_enter(&m->b, name);
    state->streams = streams;
    flat = oct_norm(m, "mhc_norm", flat);
    oct_tensor alpha = oct_concat(
        &m->b,
        oct_concat(&m->b,
                   oct_parameter(&m->b, "pre_alpha", 2, (struct oct_dim[]){in, OCT_DIM(k, none)}),
                   oct_parameter(&m->b, "post_alpha", 2, (struct oct_dim[]){in, OCT_DIM(k, none)})),
        oct_parameter(&m->b, "res_alpha", 2, (struct oct_dim[]){in, OCT_DIM(residual, none)}));
    oct_tensor mix = oct_einsum(&m->b, "bsm,mn -> bsn", flat, alpha);
    oct_tensor pre = gate_of(m, mix, 0, k, "pre_alpha_scale", "pre_beta", false);
    state->post = gate_of(m, mix, k, k, "post_alpha_scale", "post_beta", false);
    state->residual = gate_of(m, mix, 2 * k, residual, "res_alpha_scale", "res_beta", !lite);
    oct_tensor input = oct_einsum(&m->b, "bsk,bskd->bsd", pre, streams);
    uint32_t inside = m->b.module;
    oct_leave(&m->b, state->outer); /* the branch is a sibling */
    state->outer = inside;
    return input;
}

/* Every order of the K streams (mhc-lite): a constant [K!, K, K]. */
static oct_tensor permutations(struct oct_model *m, int64_t k)
{
    return oct_input(
        &m->b, "permutation_matrices", m->dtype, 3,
        (struct oct_dim[]){OCT_DIM(factorial(k), none), OCT_DIM(k, none), OCT_DIM(k, none)});
}

oct_tensor oct_streams_end(struct oct_model *m, struct oct_streams *state, oct_tensor branch)
{
    int64_t k = oct_int(m, mhc_expansion_rate), e = m->dims->emb_dim;
    struct oct_dim b = OCT_DIM(m->batch, batch), s = OCT_DIM(m->length, length);
    uint32_t outer = m->b.module;

    m->b.module = state->outer;
    oct_tensor residual = state->residual;
    if (oct_bool(m, enable_mhc_lite))
        residual = oct_einsum(&m->b, "bsn,nkm -> bskm", residual, permutations(m, k));
    oct_tensor streams = oct_einsum(&m->b, "bskm,bskd->bsmd", residual, state->streams);
    branch = oct_reshape(&m->b, branch, 4,
                         (struct oct_dim[]){b, s, OCT_DIM(1, none), OCT_DIM(e, embed)});
    branch = oct_broadcast(&m->b, branch, 2, OCT_DIM(k, none));
    oct_tensor post = oct_reshape(&m->b, state->post, 4,
                                  (struct oct_dim[]){b, s, OCT_DIM(k, none), OCT_DIM(1, none)});
    branch = oct_times(&m->b, branch, post);
    m->b.module = outer;
    return oct_plus(&m->b, streams, branch);
}
