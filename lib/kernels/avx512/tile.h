/* The tile of both AVX-512 sets: 28 sums, 2 columns and 2 to spare of 32 registers. */
#define MR 14
#define NV 2
#define ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)
#define WIDE(X) X(1, 4) X(2, 4) X(3, 2) X(4, 2)
#define SPLIT 1
#define DIRECT_ROWS 8
#define DIRECT_UNITS_MAX 4
#define DIRECT(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)
#define UNROLL _Pragma("GCC unroll 32")
