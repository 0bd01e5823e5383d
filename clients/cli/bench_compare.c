/* Kernel sets beside their peers; see bench.h. */
#include <string.h>

#include "bench.h"

/* Octet's side. */
struct ours {
    const struct bench_work *work;
    octet_backend *backend; /* NULL: on the CPU */
    struct octet_compute compute;
};

/* A peer's side; blas NULL: the other one. */
struct peer {
    const struct bench_work *work;
    const struct blas *blas;
};

struct sides {
    size_t ours_count, count; /* ours come first: sets, then the same with one thread */
    struct bench_side all[BENCH_SIDES_MAX];
    struct ours ours[2 * BENCH_SETS_MAX];
    struct peer peers[BENCH_PEERS_MAX + 1];
    const char *names[BENCH_PEERS_MAX + 1]; /* of peers */
    size_t set_count;
    const struct bench_set *sets[BENCH_SETS_MAX];
};

static enum octet_status run_ours(void *user, struct octet_error *err)
{
    const struct ours *ours = user;

    octet_arena_reset(ours->compute.arena);
    return ours->work->ours(ours->work->user, ours->backend, &ours->compute, err);
}

static enum octet_status run_peer(void *user, struct octet_error *err)
{
    const struct peer *peer = user;

    (void)err;
    if (peer->blas)
        peer->work->blas(peer->work->user, peer->blas);
    else
        peer->work->other(peer->work->user);
    return OCTET_OK;
}

static bool takes_part(const struct bench_set *set, const struct bench_work *work)
{
    const double most = 3e8; /* nobody waits for more */

    return strcmp(set->name, "scalar") != 0 || work->flops <= most;
}

/* Pages of its working memory come now, not while it is measured, and serve each run again. */
static enum octet_status add_ours(struct bench *bench, octet_arena *arena, struct sides *sides,
                                  const struct bench_work *work, octet_backend *backend,
                                  octet_workers *workers, struct octet_error *err)
{
    struct ours *ours = &sides->ours[sides->ours_count];
    void *memory = octet_arena_alloc_unset(arena, work->scratch_bytes);
    octet_arena *scratch =
        memory ? octet_arena_create_over(memory, work->scratch_bytes, SIZE_MAX) : NULL;

    if (!scratch)
        return octet_arena_exhausted(arena, err);
    memset(memory, 0, work->scratch_bytes);
    *ours = (struct ours){work, backend, {scratch, workers, bench->session->cancel}};
    sides->all[sides->count++] = (struct bench_side){.run = run_ours, .user = ours};
    sides->ours_count++;
    return OCTET_OK;
}

static void add_peer(struct sides *sides, const struct bench_work *work, const struct blas *blas,
                     const char *name)
{
    size_t at = sides->count - sides->ours_count;

    sides->peers[at] = (struct peer){work, blas};
    sides->names[at] = name;
    sides->all[sides->count++] = (struct bench_side){.run = run_peer, .user = &sides->peers[at]};
}

/* Is each set compared with itself: one thread, or the CPU in place of the backend? */
static bool is_own_peer(const struct bench *bench)
{
    return bench->threads > 1 || bench->backend;
}

static enum octet_status find_sides(struct bench *bench, octet_arena *arena, struct sides *sides,
                                    const struct bench_work *work, struct octet_error *err)
{
    enum octet_status status = OCTET_OK;

    for (size_t i = 0; i < bench->set_count && status == OCTET_OK; i++)
        if (takes_part(&bench->sets[i], work)) {
            sides->sets[sides->set_count++] = &bench->sets[i];
            status =
                add_ours(bench, arena, sides, work, bench->backend, bench->sets[i].workers, err);
        }
    for (size_t i = 0; i < sides->set_count && status == OCTET_OK && is_own_peer(bench); i++)
        status = add_ours(bench, arena, sides, work, NULL,
                          bench->backend ? sides->sets[i]->workers : sides->sets[i]->one, err);
    if (bench->backend)
        return status;
    for (size_t i = 0; i < bench->peer_count && work->blas; i++)
        add_peer(sides, work, &bench->peers[i], bench->peers[i].name);
    if (work->other)
        add_peer(sides, work, NULL, work->other_name);
    return status;
}

static void add_rows(const struct bench *bench, const struct sides *sides,
                     const struct bench_work *work)
{
    const struct bench_side *peers = sides->all + sides->ours_count;

    for (size_t i = sides->set_count; i-- > 0;) {
        const struct bench_side *ours = &sides->all[i];
        for (size_t p = 0; p < sides->count - sides->ours_count; p++)
            work->add(work->user, sides->sets[i], ours, sides->names[p], &peers[p]);
        if (is_own_peer(bench))
            work->add(work->user, sides->sets[i], ours,
                      bench->backend ? bench->backend_peer : "one-thread",
                      &sides->all[sides->set_count + i]);
        else if (sides->count == sides->ours_count)
            work->add(work->user, sides->sets[i], ours, "none", NULL);
    }
}

enum octet_status bench_compare(struct bench *bench, octet_arena *arena,
                                const struct bench_work *work, struct octet_error *err)
{
    struct sides *sides = OCTET_NEW(arena, struct sides);

    if (!sides)
        return octet_arena_exhausted(arena, err);
    enum octet_status status = find_sides(bench, arena, sides, work, err);
    if (status == OCTET_OK)
        status = bench_turns(bench, sides->all, sides->count, err);
    if (status == OCTET_OK)
        add_rows(bench, sides, work);
    for (size_t i = 0; i < sides->ours_count; i++)
        octet_arena_destroy(sides->ours[i].compute.arena);
    return status;
}
