/* See microbatch.h. */
#include "train/microbatch.h"

#include <string.h>

/* Rows first, first + stride, ... of an array, or back to them. */
static void copy_rows(const struct octet_array *whole, const struct octet_array *part,
                      int64_t first, int64_t stride, bool back)
{
    size_t row = (size_t)(octet_array_bytes(part) / part->dim[0]);

    for (int64_t i = 0; i < part->dim[0]; i++) {
        char *in_whole = (char *)whole->data + (size_t)(first + i * stride) * row;
        char *in_part = (char *)part->data + (size_t)i * row;
        memcpy(back ? in_whole : in_part, back ? in_part : in_whole, row);
    }
}

static enum octet_status take_rows(const struct octet_array *whole, int64_t first, int64_t stride,
                                   octet_arena *arena, struct octet_array *part,
                                   struct octet_error *err)
{
    int64_t dim[OCTET_ARRAY_RANK_MAX];

    *part = *whole;
    if (!whole->data)
        return OCTET_OK;
    memcpy(dim, whole->dim, sizeof dim);
    dim[0] /= stride;
    enum octet_status status = octet_array_create(arena, whole->dtype, whole->rank, dim, part, err);
    if (status == OCTET_OK)
        copy_rows(whole, part, first, stride, false);
    return status;
}

enum octet_status oct_microbatch_take(const struct octet_batch *whole, int64_t j, int64_t count,
                                      octet_arena *arena, struct octet_batch *out,
                                      struct octet_error *err)
{
    const struct octet_array *from[] = {&whole->tokens,      &whole->targets,     &whole->positions,
                                        &whole->segment_ids, &whole->target_mask, &whole->weights};
    struct octet_array *to[] = {&out->tokens,      &out->targets,     &out->positions,
                                &out->segment_ids, &out->target_mask, &out->weights};
    enum octet_status status = OCTET_OK;

    for (size_t i = 0; i < sizeof to / sizeof *to && status == OCTET_OK; i++)
        status = take_rows(from[i], j, count, arena, to[i], err);
    return status;
}

static enum octet_status put_rows(const struct octet_array *part, int64_t first, int64_t stride,
                                  octet_arena *arena, struct octet_array *whole,
                                  struct octet_error *err)
{
    int64_t dim[OCTET_ARRAY_RANK_MAX];

    if (!part->data)
        return OCTET_OK;
    memcpy(dim, part->dim, sizeof dim);
    dim[0] *= stride;
    enum octet_status status =
        whole->data ? OCTET_OK
                    : octet_array_create(arena, part->dtype, part->rank, dim, whole, err);
    if (status == OCTET_OK)
        copy_rows(whole, part, first, stride, true);
    return status;
}

enum octet_status oct_microbatch_collect(const struct oct_run_result *r, int64_t j, int64_t count,
                                         octet_arena *arena, struct oct_run_result *all,
                                         struct octet_error *err)
{
    enum octet_status status = OCTET_OK;

    if (j == 0) {
        *all = *r;
        all->logits.data = all->hidden.data = all->logprobs.data = NULL;
        all->mtp_logits = OCTET_NEW_ARRAY(arena, r->mtp_layers, struct octet_array);
        if (!all->mtp_logits)
            return octet_arena_exhausted(arena, err);
    } else {
        all->main_sum += r->main_sum;
        all->mtp += r->mtp;
        all->load_balance += r->load_balance;
        all->weight_sum += r->weight_sum;
        all->mtp_weight_sum += r->mtp_weight_sum;
        all->figures = r->figures;
        for (size_t i = 0; i < r->mtp_layers; i++) {
            all->mtp_accepted[i] += r->mtp_accepted[i];
            all->mtp_drafted[i] += r->mtp_drafted[i];
        }
    }
    if ((status = put_rows(&r->logits, j, count, arena, &all->logits, err)) ||
        (status = put_rows(&r->hidden, j, count, arena, &all->hidden, err)) ||
        (status = put_rows(&r->logprobs, j, count, arena, &all->logprobs, err)))
        return status;
    for (size_t i = 0; i < r->mtp_layers && status == OCTET_OK; i++)
        status = put_rows(&r->mtp_logits[i], j, count, arena, &all->mtp_logits[i], err);
    return status;
}
