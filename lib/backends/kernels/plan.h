/* What the host tells a kernel about shapes: arrays of longs, and where in them things stand. Read
 * by the kernels (OpenCL C, CUDA C) and by the host (C). */
#ifndef OCTET_BACKENDS_KERNELS_PLAN_H
#define OCTET_BACKENDS_KERNELS_PLAN_H

/* Types of numbers: enum octet_dtype's values. */
enum {
    DEVICE_NONE = 0,
    DEVICE_F32 = 1,
    DEVICE_BF16 = 2,
    DEVICE_E4M3FN = 4,
    DEVICE_E5M2 = 5,
    DEVICE_E2M1FN = 6,
    DEVICE_S8 = 8,
    DEVICE_S4 = 9
};

/* A layout: an array as rows of consecutive elements, and which scale goes with them. Element i of
 * a row has scale base + i * step, where the row's base is the sum of digit * stride over its
 * number's mixed-radix digits. */
enum {
    LAYOUT_ROWS,
    LAYOUT_LENGTH, /* of a row */
    LAYOUT_STEP,
    LAYOUT_FACTORS,
    LAYOUT_FACTOR /* extent, stride of each factor, the slowest first */
};

/* A product: panels (out = lhs rhs' over all of k, of one shape but for m and k), all in one list.
 * Places of offsets are pairs: a stride, and 0 or where a table stands that counts instead. */
enum {
    PRODUCT_PANELS, /* how many */
    PRODUCT_PANEL,  /* where their records begin: count + 1, the last for its first tile */
    PRODUCT_COLUMNS,
    PRODUCT_ROUNDS, /* tiles of a scale along k, added up in f32 */
    PRODUCT_LHS_TYPE,
    PRODUCT_RHS_TYPE,
    PRODUCT_OUT_TYPE,
    PRODUCT_ROUNDING,     /* R */
    PRODUCT_LHS_ROUNDING, /* of the sum and lhs' scale; DEVICE_NONE: R */
    PRODUCT_THROUGH,      /* R's numbers are rounded to this; DEVICE_NONE: as they are */
    PRODUCT_HAS_LHS_SCALE,
    PRODUCT_HAS_RHS_SCALE,
    PRODUCT_LHS_ROW = 12,
    PRODUCT_LHS_DEPTH = 14,
    PRODUCT_LHS_TILE = 16,
    PRODUCT_RHS_COLUMN = 18,
    PRODUCT_RHS_DEPTH = 20,
    PRODUCT_RHS_TILE = 22,
    PRODUCT_LHS_SCALE = 24,
    PRODUCT_LHS_SCALE_TILE = 26,
    PRODUCT_RHS_SCALE = 28,
    PRODUCT_RHS_SCALE_TILE = 30,
    PRODUCT_OUT_ROW = 32,
    PRODUCT_OUT_COLUMN = 34,
    PRODUCT_HEAD = 36
};

/* A panel's record. */
enum {
    PANEL_FIRST, /* tile of rows, counted over all panels */
    PANEL_ROWS,
    PANEL_DEPTH, /* of a round */
    PANEL_LHS,   /* elements before the panel's first, as the others */
    PANEL_RHS,
    PANEL_LHS_SCALE,
    PANEL_RHS_SCALE,
    PANEL_OUT,
    PANEL_SIZE
};

enum {
    PRODUCT_TILE = 64,  /* rows and columns of the result for a work-group */
    PRODUCT_ITEMS = 256 /* of a work-group */
};

#endif
