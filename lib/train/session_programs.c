/* Programs for batch shapes, and memory for their runs.
 *
 * Decision: the few shapes that a client uses keep their programs, and one block of memory is kept
 * between runs, so that a step neither plans nor faults pages in. Readers run at the same time, so
 * both are behind the session's lock. */
#include "base/pages.h"
#include "train/session_private.h"

/* ---- Programs ---- */

static bool fits(const struct oct_kept_program *kept, const struct oct_kept_program *wanted)
{
    return kept->program && kept->batch_size == wanted->batch_size &&
           kept->sequence_length == wanted->sequence_length && kept->backward == wanted->backward &&
           kept->threads >= wanted->threads;
}

/* The plan of the session's own shape is at hand; another comes from the context's cache or is
 * made. */
static enum octet_status plan_of(octet_session *s, const struct oct_kept_program *wanted,
                                 octet_plan **out, struct octet_error *err)
{
    struct octet_graph_options shape =
        oct_session_shape(s, wanted->batch_size, wanted->sequence_length);
    const struct octet_plan_totals *planned = octet_plan_totals(s->plan);

    if (planned->batch_size == shape.batch_size &&
        planned->sequence_length == shape.sequence_length) {
        *out = octet_plan_ref(s->plan);
        return OCTET_OK;
    }
    return octet_plan_create(s->context, s->config, s->rules, &shape, NULL, out, err);
}

static enum octet_status make(octet_session *s, struct oct_kept_program *wanted,
                              struct octet_error *err)
{
    struct oct_program_options options = {.backward = wanted->backward,
                                          .recompute = wanted->backward && s->recompute,
                                          .prepares = s->options.mode == OCTET_SESSION_INFER,
                                          .threads = wanted->threads};
    octet_plan *plan;
    enum octet_status status = plan_of(s, wanted, &plan, err);

    if (status != OCTET_OK)
        return status;
    status = oct_program_create(plan, &options, &wanted->program, err);
    octet_plan_unref(plan);
    return status;
}

static struct oct_kept_program *find(octet_session *s, const struct oct_kept_program *wanted)
{
    for (int i = 0; i < OCT_KEPT_PROGRAMS; i++)
        if (fits(&s->kept[i], wanted))
            return &s->kept[i];
    return NULL;
}

/* A free place, or the one that was used longest ago. */
static struct oct_kept_program *make_room(octet_session *s)
{
    struct oct_kept_program *oldest = &s->kept[0];

    for (int i = 1; i < OCT_KEPT_PROGRAMS; i++)
        if (s->kept[i].used < oldest->used)
            oldest = &s->kept[i];
    oct_program_unref(oldest->program);
    *oldest = (struct oct_kept_program){.program = NULL};
    return oldest;
}

enum octet_status oct_session_program(const octet_session *session, int64_t batch_size,
                                      int64_t sequence_length, bool backward, int threads,
                                      oct_program **out, struct octet_error *err)
{
    octet_session *s = (octet_session *)session; /* what its lock guards */
    struct oct_kept_program wanted = {.batch_size = batch_size,
                                      .sequence_length = sequence_length,
                                      .threads = threads > 1 ? threads : 1,
                                      .backward = backward};
    enum octet_status status = OCTET_OK;

    pthread_mutex_lock(&s->lock);
    struct oct_kept_program *kept = find(s, &wanted);
    if (!kept) {
        status = make(s, &wanted, err);
        if (status == OCTET_OK) {
            kept = make_room(s);
            *kept = wanted;
        }
    }
    if (status == OCTET_OK) {
        kept->used = ++s->clock;
        *out = oct_program_ref(kept->program);
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

/* ---- Memory ---- */

static uint64_t sets_bytes(const octet_session *s)
{
    uint64_t bytes = oct_session_parameter_bytes(s) + s->memory.gradients + s->memory.moments;

    return bytes + (s->pending ? s->memory.gradients : 0);
}

static enum octet_status check_limit(const octet_session *s, uint64_t bytes,
                                     struct octet_error *err)
{
    uint64_t limit = s->options.memory_limit_bytes, used = sets_bytes(s) + s->busy_bytes;

    if (!limit || (used <= limit && bytes <= limit - used))
        return OCTET_OK;
    return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL,
                      "the session holds %llu bytes and this call would take %llu more; its limit "
                      "is %llu",
                      (unsigned long long)used, (unsigned long long)bytes,
                      (unsigned long long)limit);
}

/* ---- The account; with the lock held ---- */

static uint64_t planned_block(const octet_session *s)
{
    return s->memory.activations + s->memory.scratch;
}

/* What the session would have beyond its planned peak with `more` bytes more. */
static uint64_t beyond_peak(const octet_session *s, uint64_t more)
{
    uint64_t bytes = s->busy_bytes + s->spare_bytes + (s->pending ? s->memory.gradients : 0) + more;

    return bytes > planned_block(s) ? bytes - planned_block(s) : 0;
}

static enum octet_status cover(octet_session *s, uint64_t more, struct octet_error *err)
{
    const struct octet_session_account *account = s->options.account;
    uint64_t wanted = beyond_peak(s, more);

    if (!account || wanted <= s->extra_bytes)
        return OCTET_OK;
    enum octet_status status = account->take(account->user, wanted - s->extra_bytes, err);
    if (status == OCTET_OK)
        s->extra_bytes = wanted;
    return status;
}

static void give_back(octet_session *s)
{
    const struct octet_session_account *account = s->options.account;
    uint64_t wanted = beyond_peak(s, 0);

    if (!account || wanted >= s->extra_bytes)
        return;
    account->give(account->user, s->extra_bytes - wanted);
    s->extra_bytes = wanted;
}

enum octet_status oct_session_add_pending(octet_session *s, struct octet_error *err)
{
    pthread_mutex_lock(&s->lock);
    enum octet_status status = check_limit(s, s->memory.gradients, err);
    if (status == OCTET_OK)
        status = cover(s, s->memory.gradients, err);
    if (status == OCTET_OK)
        status = octet_parameters_create(s->plan, OCTET_DTYPE_F32, &s->pending, err);
    if (status != OCTET_OK) {
        s->pending = NULL;
        give_back(s);
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

void oct_session_drop_pending(octet_session *s)
{
    pthread_mutex_lock(&s->lock);
    octet_parameters_destroy(s->pending);
    s->pending = NULL;
    give_back(s);
    pthread_mutex_unlock(&s->lock);
}

/* ---- Blocks ---- */

static void drop_spare(octet_session *s)
{
    oct_pages_unmap(s->spare_block, s->spare_bytes);
    s->spare_block = NULL;
    s->spare_bytes = 0;
}

/* *block: the spare one when it fits; else NULL, with room for a new one. */
static enum octet_status reserve(octet_session *s, uint64_t bytes, void **block,
                                 struct octet_error *err)
{
    enum octet_status status = check_limit(s, bytes, err);

    *block = NULL;
    if (status != OCTET_OK)
        return status;
    if (s->spare_block && s->spare_bytes == bytes) {
        *block = s->spare_block;
        s->spare_block = NULL;
        s->spare_bytes = 0;
    } else if (s->spare_block &&
               (s->options.memory_limit_bytes || (s->options.account && beyond_peak(s, bytes)))) {
        drop_spare(s); /* two might be too much */
    }
    status = cover(s, bytes, err);
    if (status == OCTET_OK)
        s->busy_bytes += bytes;
    return status;
}

enum octet_status oct_session_take_block(const octet_session *session, uint64_t bytes, void **out,
                                         struct octet_error *err)
{
    octet_session *s = (octet_session *)session; /* what its lock guards */

    pthread_mutex_lock(&s->lock);
    enum octet_status status = reserve(s, bytes, out, err);
    pthread_mutex_unlock(&s->lock);
    if (status != OCTET_OK || *out)
        return status;
    *out = oct_pages_map(bytes);
    if (*out)
        return OCTET_OK;
    oct_session_give_block(session, NULL, bytes);
    return octet_fail(err, OCTET_RESOURCE_EXHAUSTED, NULL, "no memory for the %llu bytes of a pass",
                      (unsigned long long)bytes);
}

void oct_session_give_block(const octet_session *session, void *block, uint64_t bytes)
{
    octet_session *s = (octet_session *)session; /* what its lock guards */
    void *unused = block;
    uint64_t unused_bytes = bytes;

    pthread_mutex_lock(&s->lock);
    s->busy_bytes -= bytes;
    /* The larger one is the one of training steps; one beyond the plan would be held for nothing.
     */
    if (block && bytes >= s->spare_bytes && (!s->options.account || bytes <= planned_block(s))) {
        unused = s->spare_block;
        unused_bytes = s->spare_bytes;
        s->spare_block = block;
        s->spare_bytes = bytes;
    }
    give_back(s);
    pthread_mutex_unlock(&s->lock);
    oct_pages_unmap(unused, unused_bytes);
}
