/* Weights held quantized. */
#ifndef OCTET_EXEC_PREPARED_PRIVATE_H
#define OCTET_EXEC_PREPARED_PRIVATE_H

#include "exec/program.h"

/* What step->prepared - 1 reads as its second operand. */
const struct octet_quantized *oct_prepared_get(const oct_prepared *prepared, uint32_t index);

#endif
