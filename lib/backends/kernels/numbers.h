/* Numbers on the device: codes, rounding, and the floating-point environment of the CPU, where
 * subnormals are zero. Devices differ in that, so nothing here depends on it: what is loaded and
 * what is computed is flushed in so many words. */

FUNCTION int is_nan(float x)
{
    return (bits_of(x) & 0x7fffffffu) > 0x7f800000u;
}

FUNCTION float flush(float x)
{
    uint bits = bits_of(x);

    return (bits & 0x7f800000u) != 0 ? x : float_of(bits & 0x80000000u);
}

FUNCTION float one_nan(float x)
{
    return is_nan(x) ? float_of(0x7fc00000u) : x;
}

FUNCTION float times(float a, float b)
{
    return flush(flush(a) * flush(b));
}

FUNCTION float plus(float a, float b)
{
    return flush(flush(a) + flush(b));
}

/* a / b, rounded to nearest even wherever the device's own division is within 3 units of that: of
 * the candidates the one that leaves the smallest rest, which fma gives exactly. */
FUNCTION float divide(float a, float b)
{
    float q = a / b, best = q, least;
    uint bits = bits_of(q), magnitude = bits & 0x7fffffffu;
    int d;

    if (magnitude < 0x00800004u || magnitude > 0x7f7ffff0u)
        return flush(q);
    least = float_of(bits_of(fma_f32(-q, b, a)) & 0x7fffffffu);
    for (d = -3; d <= 3; d++) {
        float candidate = float_of(bits + (uint)d);
        float rest = float_of(bits_of(fma_f32(-candidate, b, a)) & 0x7fffffffu);
        if (rest < least) {
            least = rest;
            best = candidate;
        }
    }
    return best;
}

/* A NaN becomes 0x7fc00000. */
FUNCTION float round_to(long type, float x)
{
    uint bits = bits_of(x);

    if (is_nan(x))
        return float_of(0x7fc00000u);
    if (type != DEVICE_BF16)
        return x;
    return float_of((bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u);
}

/* ---- codes to numbers ---- */

/* A code of `bits` mantissa bits whose exponent is f32's less `bias`; subnormal codes are so many
 * of the smallest, `unit`. nan, inf: magnitudes; 0: none. */
FUNCTION float minifloat(uint code, int mantissa, uint bias, float unit, uint nan, uint inf,
                         uint sign)
{
    uint magnitude = code & (sign - 1u), minus = (code & sign) != 0u ? 0x80000000u : 0u;
    uint bits;

    if (nan != 0u && magnitude >= nan)
        return float_of(0x7fc00000u | minus);
    if (inf != 0u && magnitude == inf)
        return float_of(0x7f800000u | minus);
    if (magnitude >> mantissa)
        bits = (magnitude << (23 - mantissa)) + (bias << 23);
    else
        bits = bits_of((float)magnitude * unit);
    return float_of(bits | minus);
}

FUNCTION float number_of_code(long type, uint code)
{
    switch ((int)type) {
    case DEVICE_E4M3FN:
        return minifloat(code, 3, 120u, 0.001953125f, 0x7fu, 0u, 0x80u);
    case DEVICE_E5M2:
        return minifloat(code, 2, 112u, 0.0000152587890625f, 0x7du, 0x7cu, 0x80u);
    case DEVICE_E2M1FN:
        return minifloat(code & 15u, 1, 126u, 0.5f, 0u, 0u, 8u);
    case DEVICE_S4:
        return (float)((int)((code & 15u) ^ 8u) - 8);
    default: /* S8 */
        return (float)((int)((code & 255u) ^ 128u) - 128);
    }
}

FUNCTION float number_at(GLOBAL const uchar *from, long type, long i)
{
    if (type == DEVICE_F32)
        return flush(((GLOBAL const float *)from)[i]);
    if (type == DEVICE_BF16)
        return flush(float_of((uint)((GLOBAL const ushort *)from)[i] << 16));
    return number_of_code(type, (uint)from[i]);
}

/* x as a cast has it: a NaN keeps its sign, subnormals stay. */
FUNCTION void put_number(GLOBAL uchar *to, long type, long i, float x)
{
    uint bits = bits_of(x);

    if (type == DEVICE_F32) {
        ((GLOBAL float *)to)[i] = x;
        return;
    }
    if (is_nan(x))
        bits = (bits >> 31 << 31) | 0x7fc00000u;
    else
        bits = bits + 0x7fffu + (bits >> 16 & 1u);
    ((GLOBAL ushort *)to)[i] = (ushort)(bits >> 16);
}

/* ---- numbers to codes ---- */

/* Saturates; rounds to nearest even, below the smallest normal code to multiples of the smallest
 * code: of |x| + 2^23 of these the low bits count them. */
FUNCTION uint minifloat_code(float x, int mantissa, uint bias, uint most, float magic, uint sign)
{
    int shift = 23 - mantissa;
    uint bits = bits_of(x), a = bits & 0x7fffffffu, minus = bits >> 31 ? sign : 0u;

    if (a > most)
        a = most;
    if (a >= (bias + 1u) << 23) {
        a -= bias << 23;
        a = (a + (1u << (shift - 1)) - 1u + (a >> shift & 1u)) >> shift;
    } else {
        a = bits_of(float_of(a) + magic) - bits_of(magic);
    }
    return a | minus;
}

/* Half to even, then cut off; a NaN is 0. */
FUNCTION uint integer_code(float x, float least, float most)
{
    float magic = 12582912.0f; /* 1.5 * 2^23 */

    if (is_nan(x))
        return 0u;
    x = x < least ? least : x > most ? most : x;
    return (bits_of(x + magic) - bits_of(magic)) & 255u;
}

FUNCTION uint code_of(long type, float x, float least, float most)
{
    switch ((int)type) {
    case DEVICE_E4M3FN:
        return is_nan(x) ? 0x7fu | bits_of(x) >> 31 << 7
                         : minifloat_code(x, 3, 120u, 0x43e00000u, 16384.0f, 0x80u);
    case DEVICE_E5M2:
        return is_nan(x) ? 0x7eu | bits_of(x) >> 31 << 7
                         : minifloat_code(x, 2, 112u, 0x47600000u, 128.0f, 0x80u);
    case DEVICE_E2M1FN:
        return is_nan(x) ? 8u : minifloat_code(x, 1, 126u, 0x40c00000u, 4194304.0f, 8u);
    default:
        return integer_code(x, least, most);
    }
}
