/* Draws from MaxText's initialisers; see octet/parameters.h.
 *
 * For: which distribution each parameter has, and the draws.
 * Source: MaxText, layers/initializers.py (nd_dense_init), attentions.py (query_init), moe.py,
 * embeddings.py, normalizations.py, mhc.py; jax.nn.initializers.variance_scaling.
 * Decision: element e of a parameter depends on the seed, the parameter's name and e alone, so that
 * threads, and a model that has other parameters beside it, change nothing. */
#include <math.h>
#include <string.h>
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include "dtypes/codes.h"
#include "exec/parameters_private.h"
#include "exec/philox.h"
#include "kernels/kernels.h"
#include "kernels/math.h"
#include "plan/record.h"

enum distribution { CONSTANT, NORMAL, TRUNCATED_NORMAL };

struct draw {
    enum distribution distribution;
    double value; /* CONSTANT: of all elements; else the standard deviation */
};

/* ---- Which distribution ---- */

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);

    return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* Does the path have this as one of its names? */
static bool has_name(const char *path, const char *name)
{
    size_t length = strlen(name);

    for (const char *at = path; (at = strstr(at, name)); at++)
        if ((at == path || at[-1] == '/') && (at[length] == '/' || !at[length]))
            return true;
    return false;
}

static bool any_ends_with(const char *name, const char *const *ends)
{
    for (; *ends; ends++)
        if (ends_with(name, *ends))
            return true;
    return false;
}

/* Layers with experts, and what they share, use dense_init_scale. */
static double init_scale(const octet_graph *graph, const char *name)
{
    return has_name(name, "MoeBlock_0") || has_name(name, "DeepSeekMoeBlock_0") ||
                   has_name(name, "moe_block") || has_name(name, "GptOssMlp")
               ? graph->dense_init_scale
               : 1;
}

static bool module_exists(const octet_graph *graph, const char *path, size_t length,
                          const char *child)
{
    for (uint32_t i = 0; i < graph->module_count; i++)
        if (strncmp(graph->modules[i], path, length) == 0 &&
            strcmp(graph->modules[i] + length, child) == 0)
            return true;
    return false;
}

/* Attention divides its initial query kernel by sqrt(head_dim), in the type of the activations,
 * where nothing scales the query: no norm of it and no factor. Latent attention never does. path:
 * of the attention, `length` characters. */
static double query_divisor(const octet_graph *graph, const struct octet_tensor *kernel,
                            const char *path, size_t length)
{
    enum octet_dtype dtype = OCTET_DTYPE_F32;

    if (module_exists(graph, path, length, "/wkv_a") ||
        module_exists(graph, path, length, "/query_norm"))
        return 1;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const struct oct_node *node = &graph->nodes[i];
        const char *module = graph->modules[node->module];
        if (strncmp(module, path, length) != 0)
            continue;
        if (node->op == OCT_OP_scale && !module[length])
            return 1;
        if (node->op == OCT_OP_dot_general && strcmp(module + length, "/query") == 0)
            dtype = (enum octet_dtype)graph->tensors[node->outputs[0]].dtype;
    }
    double divisor = sqrt((double)kernel->shape.dim[kernel->shape.rank - 1]);
    return dtype == OCTET_DTYPE_BF16 ? oct_bf16_decode(oct_bf16_cast((float)divisor)) : divisor;
}

/* The axes that the product contracts: those before the outputs' axes. A kernel's dot_general
 * contracts its leading ones. */
static double fan_in_of(const octet_graph *graph, const struct octet_tensor *kernel,
                        const char *module, size_t length)
{
    const struct octet_shape *shape = &kernel->shape;
    int32_t contracted = 1;

    for (uint32_t i = 0; i < graph->node_count; i++) {
        const struct oct_node *node = &graph->nodes[i];
        const char *path = graph->modules[node->module];
        if (node->op == OCT_OP_dot_general && strncmp(path, module, length) == 0 && !path[length]) {
            contracted = node->attributes.dot.contracting_count;
            break;
        }
    }
    double fan_in = 1;
    for (int32_t axis = 0; axis < contracted; axis++)
        fan_in *= (double)shape->dim[axis];
    return fan_in;
}

static struct draw scaled(enum distribution distribution, double variance)
{
    /* The standard deviation of a normal one that is cut off at 2: what JAX divides by. */
    const double cut = 0.87962566103423978;

    return (struct draw){distribution,
                         sqrt(variance) / (distribution == TRUNCATED_NORMAL ? cut : 1)};
}

static struct draw kernel_draw(const octet_graph *graph, const struct octet_tensor *p)
{
    static const char *const attention[] = {
        "/query/kernel",    "/key/kernel",  "/value/kernel",        "/out/kernel",
        "/qkv_proj/kernel", "/wq_a/kernel", "/wq_b/kernel",         "/wkv_a/kernel",
        "/wkv_b/kernel",    "/wk/kernel",   "/weights_proj/kernel", NULL};
    size_t module = strlen(p->name) - strlen("/kernel");
    double variance = init_scale(graph, p->name) / fan_in_of(graph, p, p->name, module);

    if (!any_ends_with(p->name, attention))
        return scaled(TRUNCATED_NORMAL, variance);
    struct draw draw = scaled(NORMAL, variance);
    if (ends_with(p->name, "/query/kernel"))
        draw.value /= query_divisor(graph, p, p->name, module - strlen("/query"));
    return draw;
}

static struct draw draw_of(const octet_graph *graph, const struct octet_tensor *p)
{
    static const char *const zeros[] = {"/bias",      "_bias",     "/sinks", "/pre_beta",
                                        "/post_beta", "/res_beta", NULL};
    static const char *const small[] = {"/pre_alpha_scale", "/post_alpha_scale", "/res_alpha_scale",
                                        NULL};
    static const char *const alpha[] = {"/pre_alpha", "/post_alpha", "/res_alpha", NULL};
    static const char *const experts[] = {"/wi", "/wi_0", "/wi_1", "/wo", NULL};

    if (any_ends_with(p->name, zeros))
        return (struct draw){CONSTANT, 0};
    if (any_ends_with(p->name, small))
        return (struct draw){CONSTANT, 0.01};
    if (ends_with(p->name, "/scale"))
        return (struct draw){CONSTANT, 1};
    if (ends_with(p->name, "/embedding"))
        return scaled(NORMAL, 1);
    if (any_ends_with(p->name, alpha))
        return scaled(NORMAL, 1 / (double)p->shape.dim[0]);
    /* The initialiser is told that axis 0 goes in and axis 1 out, so the last counts as a receptive
     * field: the fan-in is experts * last axis. */
    if (any_ends_with(p->name, experts))
        return scaled(TRUNCATED_NORMAL, init_scale(graph, p->name) / (double)p->shape.dim[0] /
                                            (double)p->shape.dim[p->shape.rank - 1]);
    return kernel_draw(graph, p);
}

/* ---- Draws ---- */

/* Above 0, at most 1: 53 bits. */
static double unit(uint32_t high, uint32_t low)
{
    return (double)(((uint64_t)high << 32 | low) >> 11) * 0x1p-53 + 0x1p-53;
}

/* Two independent normal numbers (Box and Muller). */
static void normal_pair(uint64_t seed, uint64_t name, uint64_t pair, uint32_t attempt,
                        double out[2])
{
    struct oct_philox bits =
        oct_philox((struct oct_philox){{(uint32_t)pair, (uint32_t)(pair >> 32), (uint32_t)name,
                                        (uint32_t)(name >> 40 << 8) | attempt}},
                   seed);
    double radius = sqrt(-2 * oct_exact_log(unit(bits.word[0], bits.word[1])));
    double angle = 6.283185307179586477 * unit(bits.word[2], bits.word[3]);

    out[0] = radius * oct_exact_cos(angle);
    out[1] = radius * oct_exact_sin(angle);
}

struct initialising {
    octet_parameters *parameters;
    const octet_graph *graph;
    uint64_t seed;
};

static void store(void *data, enum octet_dtype dtype, size_t e, double value)
{
    if (dtype == OCTET_DTYPE_BF16)
        ((uint16_t *)data)[e] = oct_bf16_cast((float)value);
    else
        ((float *)data)[e] = (float)value;
}

/* A number that the cut refuses is drawn again, from the next attempt's pair. */
static void fill_pair(const struct draw *draw, uint64_t seed, uint64_t name, uint64_t pair,
                      double out[2])
{
    enum { ATTEMPTS_MAX = 255 }; /* 22 refusals in a row have a chance below 2^-96 */
    double again[2];

    normal_pair(seed, name, pair, 0, out);
    for (int k = 0; draw->distribution == TRUNCATED_NORMAL && k < 2; k++)
        for (uint32_t attempt = 1; fabs(out[k]) > 2 && attempt <= ATTEMPTS_MAX; attempt++) {
            normal_pair(seed, name, pair, attempt, again);
            out[k] = again[k];
        }
}

static void fill_piece(void *user, size_t item, size_t thread)
{
    const struct initialising *s = user;
    struct oct_piece piece = oct_parameters_piece(s->parameters, item);
    const struct oct_parameter *p = &s->parameters->entries[piece.parameter];
    struct draw draw = draw_of(s->graph, p->tensor);
    void *data = oct_parameters_data(s->parameters, piece.parameter);
    size_t end = piece.begin + piece.count;
    uint64_t name = XXH3_64bits(p->tensor->name, strlen(p->tensor->name));

    (void)thread;
    for (size_t e = piece.begin; e < end; e += 2) { /* pieces begin at even elements */
        double numbers[2] = {draw.value, draw.value};
        if (draw.distribution != CONSTANT) {
            fill_pair(&draw, s->seed, name, e / 2, numbers);
            numbers[0] *= draw.value;
            numbers[1] *= draw.value;
        }
        store(data, p->dtype, e, numbers[0]);
        if (e + 1 < end)
            store(data, p->dtype, e + 1, numbers[1]);
    }
}

enum octet_status octet_parameters_initialise(octet_parameters *parameters, uint64_t seed,
                                              const struct octet_compute *compute,
                                              struct octet_error *err)
{
    struct initialising s = {parameters, parameters->plan->graph, seed};

    return oct_pool_run(compute->workers->pool, parameters->pieces, compute->cancel, fill_piece, &s,
                        err);
}
