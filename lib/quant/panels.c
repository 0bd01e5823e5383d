/* See panels.h. */
#include "quant/panels.h"

#include <string.h>

#include "base/pool.h"
#include "quant/quantize.h"

enum { PIECE = 2048, ITEM_ELEMENTS = 1 << 16 };

void oct_strides(const struct octet_array *array, int64_t *stride)
{
    int64_t s = 1;

    for (int32_t i = array->rank - 1; i >= 0; i--) {
        stride[i] = s;
        s *= array->dim[i];
    }
}

enum octet_status oct_offsets(octet_arena *arena, int32_t rank, const int64_t *extent,
                              const int64_t *divisor, const int64_t *stride, const int64_t **table,
                              int64_t *step, struct octet_error *err)
{
    int64_t count = 1, digit[OCTET_ARRAY_RANK_MAX] = {0};
    bool is_even = true;

    for (int32_t i = 0; i < rank; i++)
        count *= extent[i];
    int64_t *entries = OCTET_NEW_ARRAY(arena, count, int64_t);
    if (!entries)
        return octet_arena_exhausted(arena, err);
    for (int64_t at = 0; at < count; at++) {
        int64_t offset = 0;
        for (int32_t i = 0; i < rank; i++)
            offset += digit[i] / (divisor ? divisor[i] : 1) * stride[i];
        entries[at] = offset;
        is_even = is_even && offset == at * entries[count > 1];
        for (int32_t i = rank - 1; i >= 0 && ++digit[i] == extent[i]; i--)
            digit[i] = 0;
    }
    *table = entries;
    if (step)
        *step = !is_even ? 0 : count > 1 ? entries[1] : 1;
    return OCTET_OK;
}

/* ---- one round of products, then their ends ---- */

struct round {
    struct oct_panels *panels;
    const struct oct_panel *list;
    size_t count;
    size_t index, rounds;
    const int64_t *first_row; /* [count + 1], rows of the panels before */
    int64_t rows_an_item;
    size_t element_bytes; /* of the result */
};

static void put(const struct round *round, int64_t origin, int64_t column, int64_t n,
                const void *values)
{
    const struct oct_places *places = &round->panels->places;
    char *result = round->panels->result->data;
    size_t bytes = round->element_bytes;

    if (places->is_contiguous) {
        memcpy(result + (size_t)(origin + column) * bytes, values, (size_t)n * bytes);
        return;
    }
    for (int64_t j = 0; j < n; j++)
        memcpy(result + (size_t)(origin + places->columns[column + j]) * bytes,
               (const char *)values + (size_t)j * bytes, bytes);
}

static bool is_integer(enum octet_dtype dtype)
{
    return dtype == OCTET_DTYPE_S8 || dtype == OCTET_DTYPE_S4;
}

/* sum - shift as Qwix has it: of integers exact (up to 2^24), else of two rounded numbers. */
static const float *less_shift(const struct oct_panel *panel, enum octet_dtype rounding, int64_t n,
                               const float *sum, const float *shift, float *out)
{
    bool is_exact = is_integer(panel->gemm.lhs.dtype) && is_integer(panel->gemm.rhs.dtype);

    for (int64_t j = 0; j < n; j++)
        out[j] = is_exact ? sum[j] - shift[j]
                          : oct_round_to(rounding, sum[j]) - oct_round_to(rounding, shift[j]);
    return out; /* kernels.finish rounds the difference */
}

/* Adds a rounded piece to the total; after the last round *done is the result as f32. */
static void add_round(const struct round *round, int64_t n, const void *y, float *total)
{
    const struct oct_kernels *kernels = round->panels->compute->workers->kernels;
    float values[PIECE];

    kernels->decode(round->panels->rounding, (size_t)n, y, values);
    for (int64_t j = 0; j < n; j++)
        total[j] = round->index == 0 ? values[j] : total[j] + values[j];
}

/* Rounds f32 values to R, then casts them to the result's dtype. */
static void put_total(const struct round *round, int64_t origin, int64_t column, int64_t n,
                      const float *total)
{
    const struct oct_panels *panels = round->panels;
    const struct oct_kernels *kernels = panels->compute->workers->kernels;
    float values[PIECE], cast[PIECE]; /* the latter for any dtype of up to 4 bytes */

    kernels->finish((size_t)n, total, NULL, NULL, 0, OCTET_DTYPE_F32, values);
    for (int64_t j = 0; j < n; j++)
        values[j] = oct_round_to(panels->rounding, values[j]);
    kernels->cast(panels->result->dtype, (size_t)n, values, cast);
    put(round, origin, column, n, cast);
}

/* R's numbers of the only round: through another type if need be, cast, put. */
static void put_once(const struct round *round, int64_t origin, int64_t column, int64_t n, void *y)
{
    const struct oct_panels *panels = round->panels;
    const struct oct_kernels *kernels = panels->compute->workers->kernels;
    enum octet_dtype from = panels->rounding, to = panels->result->dtype;
    float values[PIECE], cast[PIECE];
    const void *last = values;

    kernels->decode(from, (size_t)n, y, values);
    if (panels->through && panels->through != from) {
        kernels->cast(panels->through, (size_t)n, values, cast);
        kernels->decode(panels->through, (size_t)n, cast, values);
    }
    if (to != OCTET_DTYPE_F32) {
        kernels->cast(to, (size_t)n, values, cast);
        last = cast;
    }
    put(round, origin, column, n, last);
}

/* Columns [column, column + n) of a row, n up to PIECE. sum may be where the result goes. */
static void finish_piece(const struct round *round, const struct oct_panel *panel, int64_t row,
                         int64_t column, int64_t n, const float *sum)
{
    const struct oct_panels *panels = round->panels;
    const struct oct_kernels *kernels = panels->compute->workers->kernels;
    int64_t at = row * panel->gemm.n + column, origin = panel->origin + panels->places.rows[row];
    const float *ls = panel->lhs_scale ? panel->lhs_scale + panel->lhs_index[row] : NULL;
    const float *rs =
        panel->rhs_scale ? panel->rhs_scale + (size_t)column * panel->rhs_stride : NULL;
    float shifted[PIECE], y[PIECE];

    if (panel->has_shift)
        sum = less_shift(panel, panels->rounding, n, sum, panel->shift.out + at, shifted);
    bool is_direct = !panels->total && panels->rounding == panels->result->dtype &&
                     (!panels->through || panels->through == panels->rounding);
    void *to = is_direct && panels->places.is_contiguous
                   ? (char *)panels->result->data + (size_t)(origin + column) * round->element_bytes
                   : (void *)y;
    if (panels->lhs_rounding) {
        kernels->finish((size_t)n, sum, ls, NULL, 0, panels->lhs_rounding, y);
        kernels->decode(panels->lhs_rounding, (size_t)n, y, shifted);
        sum = shifted;
        ls = NULL;
    }
    kernels->finish((size_t)n, sum, ls, rs, panel->rhs_stride, panels->rounding, to);
    if (is_direct) {
        if (to == y)
            put(round, origin, column, n, y);
    } else if (!panels->total) {
        put_once(round, origin, column, n, y);
    } else {
        float *total = panels->total + (panel->gemm.out - panels->sums) + at;
        add_round(round, n, y, total);
        if (round->index + 1 == round->rounds)
            put_total(round, origin, column, n, total);
    }
}

static void finish_item(void *user, size_t item, size_t thread)
{
    const struct round *round = user;
    int64_t row = (int64_t)item * round->rows_an_item, end = row + round->rows_an_item;
    size_t p = 0;

    (void)thread;
    end = end < round->first_row[round->count] ? end : round->first_row[round->count];
    for (; row < end; row++) {
        while (round->first_row[p + 1] <= row)
            p++;
        const struct oct_panel *panel = &round->list[p];
        for (int64_t column = 0; column < panel->gemm.n && panel->gemm.k; column += PIECE) {
            int64_t left = panel->gemm.n - column;
            int64_t of_panel = row - round->first_row[p];
            finish_piece(round, panel, of_panel, column, left < PIECE ? left : PIECE,
                         panel->gemm.out + of_panel * panel->gemm.n + column);
        }
    }
}

static enum octet_status finish_all(struct round *round, octet_arena *scratch,
                                    struct octet_error *err)
{
    int64_t *first = OCTET_NEW_ARRAY(scratch, round->count + 1, int64_t), columns = 1;
    const struct octet_compute *compute = round->panels->compute;

    if (!first)
        return octet_arena_exhausted(scratch, err);
    for (size_t i = 0; i < round->count; i++) {
        first[i + 1] = first[i] + round->list[i].gemm.m;
        columns = round->list[i].gemm.n > columns ? round->list[i].gemm.n : columns;
    }
    round->first_row = first;
    round->rows_an_item = (ITEM_ELEMENTS + columns - 1) / columns;
    size_t items = (size_t)((first[round->count] + round->rows_an_item - 1) / round->rows_an_item);
    return oct_pool_run(compute->workers->pool, items, compute->cancel, finish_item, round, err);
}

static enum octet_status make_room(struct oct_panels *panels, const struct oct_panel *list,
                                   size_t count, size_t rounds, struct octet_error *err)
{
    int64_t elements = 0;
    bool has_shift = false;

    for (size_t i = 0; i < count; i++) {
        elements += list[i].gemm.m * list[i].gemm.n;
        has_shift |= list[i].has_shift;
    }
    size_t bytes = (size_t)elements * sizeof(float);
    panels->sums = octet_arena_alloc_unset(panels->scratch, bytes);
    panels->shifts = has_shift ? octet_arena_alloc_unset(panels->scratch, bytes) : NULL;
    panels->total = rounds > 1 ? octet_arena_alloc_unset(panels->scratch, bytes) : NULL;
    if (!panels->sums || (has_shift && !panels->shifts) || (rounds > 1 && !panels->total))
        return octet_arena_exhausted(panels->scratch, err);
    return OCTET_OK;
}

/* All products of a round, those of the zero points behind them. */
static enum octet_status multiply(struct oct_panels *panels, struct oct_panel *list, size_t count,
                                  struct octet_error *err)
{
    struct oct_gemm *products = OCTET_NEW_ARRAY(panels->scratch, 2 * count, struct oct_gemm);
    int64_t at = 0;
    size_t n = 0;

    if (!products)
        return octet_arena_exhausted(panels->scratch, err);
    for (size_t i = 0; i < count; i++) {
        struct oct_panel *panel = &list[i];
        panel->gemm.out = panels->sums + at;
        panel->gemm.out_stride = panel->gemm.n;
        panel->gemm.is_fast = panels->is_fast;
        products[n++] = panel->gemm;
        if (panel->has_shift) {
            panel->shift.out = panels->shifts + at;
            panel->shift.out_stride = panel->gemm.n;
            products[n++] = panel->shift;
        }
        at += panel->gemm.m * panel->gemm.n;
    }
    return oct_gemm_run(panels->compute->workers, panels->compute->cancel, products, n, err);
}

/* ---- one round, without zero points: finished where the sums are added up ---- */

/* What lies in the middle of work is still in cache; of a result in f32 it even is the result's own
 * memory. */
static void finish_part(void *user, size_t index, int64_t row, int64_t rows, int64_t column,
                        int64_t columns, float *sums, int64_t stride)
{
    const struct round *round = user;
    const struct oct_panel *panel = &round->list[index];

    if (!panel->gemm.k)
        return;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j += PIECE)
            finish_piece(round, panel, row + i, column + j,
                         columns - j < PIECE ? columns - j : PIECE, sums + i * stride + j);
}

/* Elements from each row of the result to the next, where they are even; else 0. */
static int64_t row_step(const struct oct_panels *panels, const struct oct_panel *list, size_t count)
{
    int64_t rows = 0;

    for (size_t i = 0; i < count; i++)
        rows = list[i].gemm.m > rows ? list[i].gemm.m : rows;
    int64_t step = rows > 1 ? panels->places.rows[1] : list[0].gemm.n;
    for (int64_t i = 0; i < rows; i++)
        if (panels->places.rows[i] != i * step)
            return 0;
    return step;
}

static enum octet_status run_fused(struct round *round, struct oct_panel *list,
                                   struct octet_error *err)
{
    const struct oct_panels *panels = round->panels;
    struct oct_gemm *products = OCTET_NEW_ARRAY(panels->scratch, round->count, struct oct_gemm);
    struct oct_gemm_end end = {finish_part, round};
    int64_t step = row_step(panels, list, round->count);
    bool in_place = panels->rounding == OCTET_DTYPE_F32 && !panels->lhs_rounding &&
                    panels->result->dtype == OCTET_DTYPE_F32 && panels->places.is_contiguous &&
                    step && (!panels->through || panels->through == OCTET_DTYPE_F32);
    bool has_scale = false;

    if (!products)
        return octet_arena_exhausted(panels->scratch, err);
    for (size_t i = 0; i < round->count; i++) {
        list[i].gemm.out = in_place ? (float *)panels->result->data + list[i].origin : NULL;
        list[i].gemm.out_stride = step;
        list[i].gemm.is_fast = panels->is_fast;
        has_scale |= list[i].lhs_scale || list[i].rhs_scale;
        products[i] = list[i].gemm;
    }
    return oct_gemm_run_to(panels->compute->workers, panels->compute->cancel, products,
                           round->count, in_place && !has_scale ? NULL : &end, err);
}

enum octet_status oct_panels_add(struct oct_panels *panels, struct oct_panel *list, size_t count,
                                 size_t round, size_t rounds, struct octet_error *err)
{
    struct round r = {.panels = panels,
                      .list = list,
                      .count = count,
                      .index = round,
                      .rounds = rounds,
                      .element_bytes = octet_dtype_bytes(panels->result->dtype)};
    enum octet_status status = OCTET_OK;
    bool has_shift = false;

    for (size_t i = 0; i < count; i++)
        has_shift |= list[i].has_shift;
    if (rounds == 1 && !has_shift && count)
        return run_fused(&r, list, err);
    if (round == 0)
        status = make_room(panels, list, count, rounds, err);
    if (status == OCTET_OK)
        status = multiply(panels, list, count, err);
    return status == OCTET_OK ? finish_all(&r, panels->scratch, err) : status;
}
