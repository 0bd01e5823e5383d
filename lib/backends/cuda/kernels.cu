/* The devices' kernels as CUDA C++, for PTX. */
#include "backends/kernels/cuda.h"
#include "backends/kernels/plan.h"
#include "backends/kernels/numbers.h"
#include "backends/kernels/elements.h"
#include "backends/kernels/product.h"
