/* Matrix products in EXACT_ORDER (lib/kernels/gemm.h), from operands as they lie in memory: a
 * work-group makes 64 x 64 numbers of one panel, a work-item 4 x 4 of them. 16 steps of k at a time
 * lie decoded in local memory.
 *
 * Rows of a work-item are 16 apart, and its columns too: neighbours read neighbouring words, and
 * write neighbouring numbers. */

enum {
    STEP = 16,
    PITCH = PRODUCT_TILE + 1, /* so that what is written down a column meets 16 banks */
    SIDE = 16,
    OWN = PRODUCT_TILE / SIDE,
    BLOCK = 256
};

FUNCTION long offset(GLOBAL const long *plan, int place, long i)
{
    long table = plan[place + 1];

    return table ? plan[table + i] : i * plan[place];
}

FUNCTION long panel_of_tile(GLOBAL const long *plan, long tile)
{
    long low = 0, high = plan[PRODUCT_PANELS];
    GLOBAL const long *panel = plan + plan[PRODUCT_PANEL];

    while (high - low > 1) {
        long middle = (low + high) / 2;
        if (panel[middle * PANEL_SIZE + PANEL_FIRST] <= tile)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* A step of one side into local memory: [STEP][PITCH]; zeros for what is beyond. Neighbours take
 * neighbours along k where these are next to each other in memory, else along the free axis. */
FUNCTION void load_step(GLOBAL const long *plan, int free_place, int depth_place,
                        GLOBAL const uchar *from, long type, long base, long first, long count,
                        long k, long depth, LOCAL_POINTER float *to)
{
    int along_k = plan[depth_place + 1] == 0 && plan[depth_place] == 1;
    int n, item = item_id(0);

    for (n = 0; n < STEP * PRODUCT_TILE / PRODUCT_ITEMS; n++) {
        int at = item + n * PRODUCT_ITEMS;
        int d = along_k ? at % STEP : at / PRODUCT_TILE;
        int f = along_k ? at / STEP : at % PRODUCT_TILE;
        float x = 0.0f;
        if (d < depth && first + f < count)
            x = number_at(from, type,
                          base + offset(plan, free_place, first + f) +
                              offset(plan, depth_place, k + d));
        to[d * PITCH + f] = x;
    }
}

/* One step of k for a work-item's numbers. */
FUNCTION void add_one(LOCAL_POINTER const float *a, LOCAL_POINTER const float *b, int flushes,
                      float *sum)
{
    float x[OWN], y[OWN];
    int i, j;

    UNROLL
    for (i = 0; i < OWN; i++) {
        x[i] = a[i * SIDE];
        y[i] = b[i * SIDE];
    }
    UNROLL
    for (i = 0; i < OWN; i++) {
        UNROLL
        for (j = 0; j < OWN; j++) {
            float s = fma_f32(x[i], y[j], sum[i * OWN + j]);
            sum[i * OWN + j] = flushes ? flush(s) : s;
        }
    }
}

/* Block sums: the first is the result so far. Of integers they are added as such. */
FUNCTION void end_block(float *sum, float *total, int is_first, int is_integer, int flushes)
{
    int i;

    UNROLL
    for (i = 0; i < OWN * OWN; i++) {
        if (is_integer)
            total[i] = float_of((is_first ? 0u : bits_of(total[i])) + (uint)(int)sum[i]);
        else if (is_first)
            total[i] = sum[i];
        else
            total[i] = flushes ? flush(total[i] + sum[i]) : total[i] + sum[i];
        sum[i] = 0.0f;
    }
}

/* All of k of one round, block by block. */
FUNCTION void add_up(GLOBAL const long *plan, GLOBAL const uchar *lhs, GLOBAL const uchar *rhs,
                     long lhs_at, long rhs_at, long row, long rows, long column, long k,
                     int flushes, LOCAL_POINTER float *a, LOCAL_POINTER float *b, float *total)
{
    long columns = plan[PRODUCT_COLUMNS], l = plan[PRODUCT_LHS_TYPE], r = plan[PRODUCT_RHS_TYPE];
    int is_integer = l >= DEVICE_S8 && r >= DEVICE_S8, d;
    int x = item_id(0) % SIDE, y = item_id(0) / SIDE;
    float sum[OWN * OWN];
    long begin;

    UNROLL
    for (d = 0; d < OWN * OWN; d++)
        sum[d] = total[d] = 0.0f;
    for (begin = 0; begin < k; begin += STEP) {
        long left = k - begin, depth = left < STEP ? left : STEP;
        BARRIER();
        load_step(plan, PRODUCT_LHS_ROW, PRODUCT_LHS_DEPTH, lhs, l, lhs_at, row, rows, begin, depth,
                  a);
        load_step(plan, PRODUCT_RHS_COLUMN, PRODUCT_RHS_DEPTH, rhs, r, rhs_at, column, columns,
                  begin, depth, b);
        BARRIER();
        for (d = 0; d < depth; d += 2) { /* of each pair the odd k first */
            add_one(a + (d + 1) * PITCH + y, b + (d + 1) * PITCH + x, flushes, sum);
            add_one(a + d * PITCH + y, b + d * PITCH + x, flushes, sum);
        }
        if ((begin + STEP) % BLOCK == 0 || begin + STEP >= k)
            end_block(sum, total, begin < BLOCK, is_integer, flushes);
    }
    UNROLL
    for (d = 0; d < OWN * OWN; d++)
        total[d] = is_integer ? (float)(int)bits_of(total[d]) : one_nan(total[d]);
}

/* R(R(R(sum) * lhs' scale) * rhs' scale): formula 9. */
FUNCTION float finish(GLOBAL const long *plan, float sum, GLOBAL const float *lhs_scale, long l,
                      GLOBAL const float *rhs_scale, long r)
{
    long rounding = plan[PRODUCT_ROUNDING], first = plan[PRODUCT_LHS_ROUNDING];
    float y;

    if (first == DEVICE_NONE)
        first = rounding;
    y = round_to(first, sum);
    if (plan[PRODUCT_HAS_LHS_SCALE])
        y = round_to(first, times(y, lhs_scale[l]));
    y = round_to(rounding, y);
    if (plan[PRODUCT_HAS_RHS_SCALE])
        y = round_to(rounding, times(y, rhs_scale[r]));
    return y;
}

/* A round's numbers, scaled, onto those of the rounds before. */
FUNCTION void end_round(GLOBAL const long *plan, GLOBAL const long *panel, long round, long row,
                        long column, GLOBAL const float *lhs_scale, GLOBAL const float *rhs_scale,
                        const float *total, float *result)
{
    long columns = plan[PRODUCT_COLUMNS];
    long l_base = panel[PANEL_LHS_SCALE] + offset(plan, PRODUCT_LHS_SCALE_TILE, round);
    long r_base = panel[PANEL_RHS_SCALE] + offset(plan, PRODUCT_RHS_SCALE_TILE, round);
    int i, j;

    UNROLL
    for (i = 0; i < OWN; i++) {
        UNROLL
        for (j = 0; j < OWN; j++) {
            long m = row + i * SIDE, n = column + j * SIDE;
            float y;
            if (m >= panel[PANEL_ROWS] || n >= columns)
                continue;
            y = finish(plan, total[i * OWN + j], lhs_scale,
                       l_base + offset(plan, PRODUCT_LHS_SCALE, m), rhs_scale,
                       r_base + offset(plan, PRODUCT_RHS_SCALE, n));
            result[i * OWN + j] = round == 0 ? y : plus(result[i * OWN + j], y);
        }
    }
}

FUNCTION void put_result(GLOBAL const long *plan, GLOBAL const long *panel, long row, long column,
                         const float *result, GLOBAL uchar *out)
{
    long columns = plan[PRODUCT_COLUMNS], through = plan[PRODUCT_THROUGH];
    int i, j;

    if (plan[PRODUCT_ROUNDS] > 1)
        through = plan[PRODUCT_ROUNDING];
    UNROLL
    for (i = 0; i < OWN; i++) {
        UNROLL
        for (j = 0; j < OWN; j++) {
            long m = row + i * SIDE, n = column + j * SIDE;
            float y = panel[PANEL_DEPTH] ? one_nan(result[i * OWN + j]) : 0.0f;
            if (m >= panel[PANEL_ROWS] || n >= columns)
                continue;
            put_number(out, plan[PRODUCT_OUT_TYPE],
                       panel[PANEL_OUT] + offset(plan, PRODUCT_OUT_ROW, m) +
                           offset(plan, PRODUCT_OUT_COLUMN, n),
                       round_to(through, y));
        }
    }
}

FUNCTION void multiply(GLOBAL const long *plan, GLOBAL const uchar *lhs, GLOBAL const uchar *rhs,
                       GLOBAL const float *lhs_scale, GLOBAL const float *rhs_scale,
                       GLOBAL uchar *out, int flushes, LOCAL_POINTER float *a,
                       LOCAL_POINTER float *b)
{
    GLOBAL const long *panel =
        plan + plan[PRODUCT_PANEL] + panel_of_tile(plan, group_id(0)) * PANEL_SIZE;
    long row = (group_id(0) - panel[PANEL_FIRST]) * PRODUCT_TILE;
    long column = group_id(1) * PRODUCT_TILE, round;
    int x = item_id(0) % SIDE, y = item_id(0) / SIDE;
    float total[OWN * OWN], result[OWN * OWN];

    UNROLL
    for (round = 0; round < OWN * OWN; round++)
        result[round] = 0.0f;
    for (round = 0; round < plan[PRODUCT_ROUNDS]; round++) {
        add_up(plan, lhs, rhs, panel[PANEL_LHS] + offset(plan, PRODUCT_LHS_TILE, round),
               panel[PANEL_RHS] + offset(plan, PRODUCT_RHS_TILE, round), row, panel[PANEL_ROWS],
               column, panel[PANEL_DEPTH], flushes, a, b, total);
        end_round(plan, panel, round, row + y, column + x, lhs_scale, rhs_scale, total, result);
    }
    put_result(plan, panel, row + y, column + x, result, out);
}

/* Of two operands of codes: their products and sums are never subnormal. */
KERNEL(gemm_codes)
(GLOBAL const long *plan, GLOBAL const uchar *lhs, GLOBAL const uchar *rhs,
 GLOBAL const float *lhs_scale, GLOBAL const float *rhs_scale, GLOBAL uchar *out)
{
    LOCAL float a[STEP * PITCH];
    LOCAL float b[STEP * PITCH];

    multiply(plan, lhs, rhs, lhs_scale, rhs_scale, out, 0, a, b);
}

/* Of any others. */
KERNEL(gemm_numbers)
(GLOBAL const long *plan, GLOBAL const uchar *lhs, GLOBAL const uchar *rhs,
 GLOBAL const float *lhs_scale, GLOBAL const float *rhs_scale, GLOBAL uchar *out)
{
    LOCAL float a[STEP * PITCH];
    LOCAL float b[STEP * PITCH];

    multiply(plan, lhs, rhs, lhs_scale, rhs_scale, out, 1, a, b);
}
