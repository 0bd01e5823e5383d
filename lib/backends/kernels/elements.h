/* What is done to each element of an array, with the scale that goes with it: kernels over a layout
 * (plan.h). Rows, and elements of a row, are shared by the work-items as they come. */

/* The first scale of a row. */
FUNCTION long scale_of_row(GLOBAL const long *layout, long row)
{
    long i, scale = 0;

    for (i = layout[LAYOUT_FACTORS] - 1; i >= 0; i--) {
        long extent = layout[LAYOUT_FACTOR + 2 * i];
        scale += row % extent * layout[LAYOUT_FACTOR + 2 * i + 1];
        row /= extent;
    }
    return scale;
}

FUNCTION uint magnitude_at(GLOBAL const uchar *x, long type, long i)
{
    return bits_of(number_at(x, type, i)) & 0x7fffffffu;
}

/* amax[s] = the largest bits of |x|, which are in the order of the numbers, NaN above all. A
 * work-group takes a piece of a row whose elements have one scale. */
KERNEL(amax_rows)
(GLOBAL const long *layout, GLOBAL const uchar *x, long type, long piece, GLOBAL uint *amax)
{
    LOCAL uint part[256];
    long rows = layout[LAYOUT_ROWS], length = layout[LAYOUT_LENGTH], row, i;
    long begin = group_id(1) * piece, end = begin + piece < length ? begin + piece : length;
    int item = item_id(0), width;

    for (row = group_id(0); row < rows; row += group_count(0)) {
        uint most = 0u;
        for (i = begin + item; i < end; i += item_count(0)) {
            uint a = magnitude_at(x, type, row * length + i);
            most = a > most ? a : most;
        }
        part[item] = most;
        BARRIER();
        for (width = item_count(0) / 2; width > 0; width /= 2) {
            if (item < width && part[item + width] > part[item])
                part[item] = part[item + width];
            BARRIER();
        }
        if (item == 0)
            atomic_max_u32(amax + scale_of_row(layout, row), part[0]);
        BARRIER();
    }
}

/* The same where the elements of a row have scales of their own: a work-item takes one element of
 * each of `piece` rows. */
KERNEL(amax_columns)
(GLOBAL const long *layout, GLOBAL const uchar *x, long type, long piece, GLOBAL uint *amax)
{
    long rows = layout[LAYOUT_ROWS], length = layout[LAYOUT_LENGTH], row;
    long begin = group_id(1) * piece, end = begin + piece < rows ? begin + piece : rows;
    long column = group_id(0) * item_count(0) + item_id(0), scale = -1;
    uint most = 0u;

    for (row = begin; row < end && column < length; row++) {
        long its = scale_of_row(layout, row) + column * layout[LAYOUT_STEP];
        uint a = magnitude_at(x, type, row * length + column);
        if (its != scale) {
            if (scale >= 0)
                atomic_max_u32(amax + scale, most);
            scale = its;
            most = 0u;
        }
        most = a > most ? a : most;
    }
    if (scale >= 0)
        atomic_max_u32(amax + scale, most);
}

/* From maxima to scales: formulas 3 to 5 of Qwix's arithmetic for a symmetric range, as
 * lib/quant/quantize.c has them. factor: of the calibration, 1: none. reciprocal: 1 / bound,
 * rounded. is_e4m3: a scale is rounded to that. upper: the range. */
KERNEL(scales)
(long count, long type, GLOBAL const uint *amax, float factor, float bound, float reciprocal,
 long is_e4m3, GLOBAL float *scale, GLOBAL float *inverse, GLOBAL float *upper)
{
    long i = group_id(0) * item_count(0) + item_id(0);

    for (; i < count; i += group_count(0) * item_count(0)) {
        float a = one_nan(float_of(amax[i])), s;
        a = round_to(type, times(a, factor));
        upper[i] = a;
        s = type == DEVICE_BF16 ? round_to(type, divide(a, bound)) : times(a, reciprocal);
        if (s < 1.0842021724855044e-19f) /* 2^-63 */
            s = 1.0f;
        if (is_e4m3)
            s = number_of_code(DEVICE_E4M3FN, code_of(DEVICE_E4M3FN, s, 0.0f, 0.0f));
        s = one_nan(s);
        scale[i] = s;
        inverse[i] = divide(1.0f, s);
    }
}

/* x / scale, rounded as x's type is, for a code. A NaN's sign: x's, else the scale's, else minus.
 */
FUNCTION float quotient(long type, float x, float scale, float inverse, long divides)
{
    float y = divides ? divide(x, flush(scale)) : times(x, inverse);

    if (is_nan(y)) {
        uint sign = is_nan(x) ? bits_of(x) : is_nan(scale) ? bits_of(scale) : 0x80000000u;
        return float_of((sign & 0x80000000u) | 0x7fc00000u);
    }
    return round_to(type, y);
}

KERNEL(quantize)
(GLOBAL const long *layout, GLOBAL const uchar *x, long type, GLOBAL const float *scale,
 GLOBAL const float *inverse, long divides, long code_type, float least, float most,
 GLOBAL uchar *codes)
{
    long rows = layout[LAYOUT_ROWS], length = layout[LAYOUT_LENGTH], step = layout[LAYOUT_STEP];
    long row = group_id(1) * item_count(1) + item_id(1), i;

    for (; row < rows; row += group_count(1) * item_count(1)) {
        long base = scale_of_row(layout, row);
        for (i = group_id(0) * item_count(0) + item_id(0); i < length;
             i += group_count(0) * item_count(0)) {
            long s = base + i * step, at = row * length + i;
            float y = quotient(type, number_at(x, type, at), scale[s], inverse[s], divides);
            codes[at] = (uchar)code_of(code_type, y, least, most);
        }
    }
}

/* y = x * scale in y's type: dequantization, a residual's scale moved onto the gradient. */
KERNEL(scale)
(GLOBAL const long *layout, GLOBAL const uchar *x, long x_type, GLOBAL const float *scales,
 long y_type, GLOBAL uchar *y)
{
    long rows = layout[LAYOUT_ROWS], length = layout[LAYOUT_LENGTH], step = layout[LAYOUT_STEP];
    long row = group_id(1) * item_count(1) + item_id(1), i;

    for (; row < rows; row += group_count(1) * item_count(1)) {
        long base = scale_of_row(layout, row);
        for (i = group_id(0) * item_count(0) + item_id(0); i < length;
             i += group_count(0) * item_count(0)) {
            long at = row * length + i;
            float product = times(number_at(x, x_type, at), scales[base + i * step]);
            put_number(y, y_type, at, one_nan(product));
        }
    }
}

/* x = 0 where `array` lies outside of its range, or is NaN. */
KERNEL(mask)
(GLOBAL const long *layout, GLOBAL const uchar *array, long array_type, long has_lower,
 GLOBAL const float *lower, GLOBAL const float *upper, long x_type, GLOBAL uchar *x)
{
    long rows = layout[LAYOUT_ROWS], length = layout[LAYOUT_LENGTH], step = layout[LAYOUT_STEP];
    long row = group_id(1) * item_count(1) + item_id(1), i;

    for (; row < rows; row += group_count(1) * item_count(1)) {
        long base = scale_of_row(layout, row);
        for (i = group_id(0) * item_count(0) + item_id(0); i < length;
             i += group_count(0) * item_count(0)) {
            long s = base + i * step, at = row * length + i;
            float v = number_at(array, array_type, at), high = flush(upper[s]);
            float low = has_lower ? flush(lower[s]) : -high;
            if (!(v >= low && v <= high))
                put_number(x, x_type, at, 0.0f);
        }
    }
}

/* Between F32 and BF16. */
KERNEL(cast)(long count, GLOBAL const uchar *from, long from_type, long to_type, GLOBAL uchar *to)
{
    long i = group_id(0) * item_count(0) + item_id(0);

    for (; i < count; i += group_count(0) * item_count(0)) {
        float x = from_type == DEVICE_F32 ? ((GLOBAL const float *)from)[i]
                                          : float_of((uint)((GLOBAL const ushort *)from)[i] << 16);
        put_number(to, to_type, i, x);
    }
}

/* out = sum * row's scale * column's scale, of sums in F32: the end of a product that a library's
 * matrix units made. One scale, or one for each row (column) of all the batch. */
KERNEL(rescale)
(GLOBAL const float *sum, GLOBAL const float *row_scale, GLOBAL const float *column_scale,
 long rows, long columns, long row_scales, long column_scales, long type, GLOBAL uchar *out)
{
    long row = group_id(0), column = group_id(1) * item_count(0) + item_id(0);
    float y;

    if (column < columns) {
        y = sum[row * columns + column];
        if (row_scales)
            y *= row_scale[row_scales == 1 ? 0 : row];
        if (column_scales)
            y *= column_scale[column_scales == 1 ? 0 : row / rows * columns + column];
        put_number(out, type, row * columns + column, one_nan(y));
    }
}

/* Matrices [rows][columns], one behind the other, into [columns][rows]; elements of 1 or 2 bytes. A
 * work-group takes 32 x 32, through local memory, so that both sides are met along their rows. */
KERNEL(turn)
(GLOBAL const uchar *from, long rows, long columns, long bytes, GLOBAL uchar *to)
{
    LOCAL ushort tile[32 * 33];
    long across = (columns + 31) / 32, tiles = across * ((rows + 31) / 32);
    long base = group_id(0) / tiles * rows * columns, at = group_id(0) % tiles;
    long row = at / across * 32, column = at % across * 32;
    int x = item_id(0) % 32, y;

    for (y = item_id(0) / 32; y < 32; y += 8)
        if (row + y < rows && column + x < columns) {
            long i = base + (row + y) * columns + column + x;
            tile[y * 33 + x] = bytes == 1 ? (ushort)from[i] : ((GLOBAL const ushort *)from)[i];
        }
    BARRIER();
    for (y = item_id(0) / 32; y < 32; y += 8)
        if (column + y < columns && row + x < rows) {
            long i = base + (column + y) * rows + row + x;
            if (bytes == 1)
                to[i] = (uchar)tile[x * 33 + y];
            else
                ((GLOBAL ushort *)to)[i] = tile[x * 33 + y];
        }
}
