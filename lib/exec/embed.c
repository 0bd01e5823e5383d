/* Embedding: rows of a table by id, and the gradient of the table.
 *
 * The gradient is a scatter. Tokens are sorted by id (stable, by counting), so that each row of the
 * table has one owner, which adds the row's tokens in their order in f64: no atomics, no dependence
 * on threads, and a token that is everywhere (0, which padding and the ends of documents look up)
 * loses nothing. An id outside of the table is taken as the nearest in it, as JAX gathers clamp. */
#include "exec/embed.h"

#include <string.h>

#include "exec/piece.h"

struct embedding {
    const struct oct_kernels *kernels;
    const int32_t *ids;
    int64_t count, size, width; /* ids; rows of the table; their elements */
};

static struct embedding embedding_of(const struct oct_op_call *call)
{
    const struct octet_array *table = &call->in[1];

    return (struct embedding){oct_call_kernels(call), call->in[0].data,
                              octet_array_elements(&call->in[0]), table->dim[0], table->dim[1]};
}

static int64_t row_of(const struct embedding *e, int64_t i)
{
    int64_t id = e->ids[i];

    return id < 0 ? 0 : id < e->size ? id : e->size - 1;
}

/* ---- forward ---- */

struct gather {
    struct embedding e;
    const struct octet_array *table, *out;
};

static void gather_range(void *user, int64_t first, int64_t end)
{
    const struct gather *g = user;

    for (int64_t i = first; i < end; i++)
        oct_piece_copy(g->e.kernels, g->table, row_of(&g->e, i) * g->e.width, g->out,
                       i * g->e.width, g->e.width);
}

enum octet_status oct_embed_forward(struct oct_op_call *call, struct octet_error *err)
{
    struct gather g = {embedding_of(call), &call->in[1], &call->out[0]};

    return oct_ranges(call, g.e.count, (1 << 15) / (g.e.width + 1), g.e.count * g.e.width,
                      gather_range, &g, err);
}

/* ---- VJP ---- */

enum { COLUMNS = 512 };

struct scatter {
    struct embedding e;
    const struct octet_array *cotangent;
    float *gradient;      /* [size, width] */
    const int32_t *from;  /* [size + 1]: where a row's tokens begin in order */
    const int32_t *order; /* [count]: tokens by row */
    const int32_t *rows;  /* [row_count]: rows that have tokens */
    int64_t row_count, blocks;
};

/* Columns [at, at + n) of one row: sum, then one addition. */
static void scatter_row(const struct scatter *s, int32_t row, int64_t at, int64_t n)
{
    double sums[COLUMNS] = {0};
    float buffer[COLUMNS], *to = s->gradient + row * s->e.width + at;

    for (int32_t i = s->from[row]; i < s->from[row + 1]; i++) {
        const float *x = oct_piece_read(s->e.kernels, s->cotangent,
                                        (int64_t)s->order[i] * s->e.width + at, n, buffer);
        for (int64_t c = 0; c < n; c++)
            sums[c] += (double)x[c];
    }
    for (int64_t c = 0; c < n; c++)
        to[c] += (float)sums[c];
}

static void scatter_range(void *user, int64_t first, int64_t end)
{
    const struct scatter *s = user;

    for (int64_t i = first; i < end; i++) {
        int64_t at = i % s->blocks * COLUMNS, left = s->e.width - at;
        scatter_row(s, s->rows[i / s->blocks], at, left < COLUMNS ? left : COLUMNS);
    }
}

/* Counting sort. The memory: size + 1 places, count tokens, at most count rows. */
static enum octet_status sort_by_row(const struct oct_op_call *call, struct scatter *s,
                                     struct octet_error *err)
{
    int32_t *from = oct_call_scratch(call, s->e.size + 1, sizeof *from, err);
    int32_t *order = from ? oct_call_scratch(call, 2 * s->e.count, sizeof *order, err) : NULL;
    int32_t *rows = order + s->e.count;

    if (!order)
        return OCTET_RESOURCE_EXHAUSTED;
    for (int64_t i = 0; i < s->e.count; i++)
        from[row_of(&s->e, i) + 1]++;
    for (int64_t row = 0; row < s->e.size; row++) {
        if (from[row + 1])
            rows[s->row_count++] = (int32_t)row;
        from[row + 1] += from[row];
    }
    for (int64_t i = 0; i < s->e.count; i++)
        order[from[row_of(&s->e, i)]++] = (int32_t)i;
    memmove(from + 1, from, (size_t)s->e.size * sizeof *from); /* each now is its row's end */
    from[0] = 0;
    s->from = from;
    s->order = order;
    s->rows = rows;
    return OCTET_OK;
}

enum octet_status oct_embed_vjp_add(struct oct_op_call *call, const struct octet_array *cotangent,
                                    struct octet_array *gradient, struct octet_error *err)
{
    struct scatter s = {
        .e = embedding_of(call), .cotangent = cotangent, .gradient = gradient[1].data};
    enum octet_status status = sort_by_row(call, &s, err);

    if (status != OCTET_OK)
        return status;
    s.blocks = (s.e.width + COLUMNS - 1) / COLUMNS;
    return oct_ranges(call, s.row_count * s.blocks, 8, s.e.count * s.e.width, scatter_range, &s,
                      err);
}

static void zero_range(void *user, int64_t first, int64_t end)
{
    memset((float *)user + first, 0, (size_t)(end - first) * sizeof(float));
}

enum octet_status oct_embed_vjp(struct oct_op_call *call, const struct octet_array *cotangent,
                                struct octet_array *gradient, struct octet_error *err)
{
    int64_t count = octet_array_elements(&call->in[1]);

    if (!gradient[1].data)
        return OCTET_OK;
    enum octet_status status =
        oct_ranges(call, count, 1 << 18, count, zero_range, gradient[1].data, err);
    return status == OCTET_OK ? oct_embed_vjp_add(call, cotangent, gradient, err) : status;
}

size_t oct_embed_scratch_bytes(const octet_graph *graph, const struct oct_node *node,
                               const struct octet_rule *rule, bool backward)
{
    int64_t count = octet_shape_elements(&graph->tensors[node->inputs[0]].shape);
    int64_t size = graph->tensors[node->inputs[1]].shape.dim[0];

    (void)rule;
    return backward ? (size_t)(size + 1 + 2 * count) * sizeof(int32_t) + OCT_SCRATCH_LOSS : 0;
}
