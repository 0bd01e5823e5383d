/* The loops of attention_private.h over a set's vector words. Included by each set's kernels.c
 * after math_body.h and gemm_body.h, whose NR is the number of lanes. */

#define EACH_LANE for (size_t l = 0; l < NR; l += VL)

static void lanes_hide(size_t keys, int32_t first_key, const int32_t *from, const int32_t *last,
                       float *x)
{
    const vf32 hidden = vu32_float(vu32_set1(0xff800000u));

    for (size_t k = 0; k < keys; k++, x += NR) {
        const vu32 key = vu32_set1((uint32_t)first_key + (uint32_t)k);
        EACH_LANE
        {
            vf32 v = vf32_select(vu32_above(vu32_load(from + l), key), hidden, vf32_load(x + l));
            vf32_store(x + l, vf32_select(vu32_above(key, vu32_load(last + l)), hidden, v));
        }
    }
}

static void lanes_largest(size_t keys, const float *x, float *largest, uint32_t *sizes)
{
    EACH_LANE
    {
        vf32 most = vf32_load(largest + l);
        vu32 size = vu32_load(sizes + l);
        for (size_t k = 0; k < keys; k++) {
            vf32 v = vf32_load(x + k * NR + l);
            most = vf32_max(v, most);
            size = vu32_max(size, vu32_and(vf32_bits(v), vu32_set1(F32_ABS)));
        }
        vf32_store(largest + l, most);
        vu32_store(sizes + l, size);
    }
}

/* Up to 16 keys of a vector of lanes. x, to: at the lane; to: where the first pair goes. */
static INLINE void exp_some(size_t keys, enum oct_lane_format format, const float *x, vf32 shift,
                            float *sums, float *to)
{
    for (size_t k = 0; k < keys; k += 2) {
        vf32 even = exp_of(vf32_sub(vf32_load(x + k * NR), shift)), odd = vf32_zero();
        vf32_store(sums + k * NR, vf32_add(vf32_load(sums + k * NR), even));
        if (k + 1 < keys) {
            odd = exp_of(vf32_sub(vf32_load(x + (k + 1) * NR), shift));
            vf32_store(sums + (k + 1) * NR, vf32_add(vf32_load(sums + (k + 1) * NR), odd));
        }
        if (format != OCT_LANES_F32) {
            even = round_bf16(even);
            odd = round_bf16(odd);
        }
        if (format == OCT_LANES_PAIRS) {
            vu32_store(to + k / 2 * NR, vu32_or(vf32_bits(odd), vu32_shr(vf32_bits(even), 16)));
        } else {
            vf32_store(to + k * NR, even);
            vf32_store(to + (k + 1) * NR, odd);
        }
    }
}

static INLINE void exp_sum_as(size_t keys, enum oct_lane_format format, float *x,
                              const float *shift, float *sums)
{
    const size_t row = format == OCT_LANES_PAIRS ? NR / 2 : NR;

    EACH_LANE
    {
        const vf32 by = vf32_load(shift + l);
        size_t k = 0;
        for (; k + OCT_SUMS <= keys; k += OCT_SUMS)
            exp_some(OCT_SUMS, format, x + k * NR + l, by, sums + l, x + k * row + l);
        exp_some(keys - k, format, x + k * NR + l, by, sums + l, x + k * row + l);
    }
}

static void lanes_exp_sum(size_t keys, enum oct_lane_format format, float *x, const float *shift,
                          float *sums)
{
    if (format == OCT_LANES_F32)
        exp_sum_as(keys, OCT_LANES_F32, x, shift, sums);
    else if (format == OCT_LANES_ROUNDED)
        exp_sum_as(keys, OCT_LANES_ROUNDED, x, shift, sums);
    else
        exp_sum_as(keys, OCT_LANES_PAIRS, x, shift, sums);
}

static void lanes_tree(const float *sums, float *total)
{
    EACH_LANE
    {
        vf32 t[OCT_SUMS];
        for (size_t i = 0; i < OCT_SUMS; i++)
            t[i] = vf32_load(sums + i * NR + l);
        for (size_t half = OCT_SUMS / 2; half; half /= 2)
            for (size_t i = 0; i < half; i++)
                t[i] = vf32_add(t[i], t[i + half]);
        vf32_store(total + l, canonical(t[0]));
    }
}

static INLINE void slope_as(size_t keys, bool rounds, float *x, float *g, const float *shift,
                            const float *slopes)
{
    EACH_LANE
    {
        const vf32 by = vf32_load(shift + l), c = vf32_load(slopes + l);
        for (size_t k = 0; k < keys; k++) {
            float *at = x + k * NR + l, *to = g + k * NR + l;
            vf32 p = exp_of(vf32_sub(vf32_load(at), by));
            if (rounds)
                p = round_bf16(p);
            vf32 ds = canonical(vf32_mul(vf32_load(to), p));
            vf32_store(to, canonical(vf32_add(ds, vf32_mul(p, c))));
            vf32_store(at, p);
        }
    }
}

static void lanes_slope(size_t keys, bool rounds, float *x, float *g, const float *shift,
                        const float *slopes)
{
    if (rounds)
        slope_as(keys, true, x, g, shift, slopes);
    else
        slope_as(keys, false, x, g, shift, slopes);
}

static void lanes_round(size_t keys, float *x)
{
    for (size_t i = 0; i < keys * NR; i += VL)
        vf32_store(x + i, round_bf16(vf32_load(x + i)));
}

static void lanes_pairs(size_t keys, bool pairs, float *x, uint16_t *codes)
{
    for (size_t k = 0; k < keys; k += 2) {
        const bool has_odd = k + 1 < keys;
        EACH_LANE
        {
            vu32 even = vf32_bits(round_bf16(vf32_load(x + k * NR + l))), odd = vu32_set1(0);
            if (has_odd)
                odd = vf32_bits(round_bf16(vf32_load(x + (k + 1) * NR + l)));
            store(2, codes + k * NR + l, vu32_shr(even, 16));
            if (has_odd)
                store(2, codes + (k + 1) * NR + l, vu32_shr(odd, 16));
            if (pairs)
                vu32_store(x + k / 2 * NR + l, vu32_or(odd, vu32_shr(even, 16)));
        }
    }
}

static void lanes_turn(size_t rows, size_t count, bool rounds, const float *x,
                       const float *divisors, float *y, size_t y_stride)
{
    for (size_t l = 0; l < count; l += VL)
        for (size_t i = 0; i < rows; i += VL) {
            const size_t some = rows - i < VL ? rows - i : VL;
            vu32 square[VL];
            for (size_t r = 0; r < VL; r++) {
                vf32 v = r < some ? canonical(vf32_load(x + (i + r) * NR + l)) : vf32_zero();
                if (rounds)
                    v = round_bf16(v);
                if (divisors)
                    v = vf32_div(v, vf32_load(divisors + l));
                square[r] = vf32_bits(v);
            }
            vu32_transpose(square);
            for (size_t r = 0; r < VL && l + r < count; r++)
                vf32_store_part(y + (l + r) * y_stride + i, some, vu32_float(square[r]));
        }
}

#undef EACH_LANE

static const struct oct_attention_kernels attention_kernels = {.lanes = NR,
                                                               .hide = lanes_hide,
                                                               .largest = lanes_largest,
                                                               .exp_sum = lanes_exp_sum,
                                                               .tree = lanes_tree,
                                                               .slope = lanes_slope,
                                                               .round = lanes_round,
                                                               .pairs = lanes_pairs,
                                                               .turn = lanes_turn};
