/* Acceptance of MTP's drafts. */
#ifndef OCTET_EXEC_ACCEPTANCE_H
#define OCTET_EXEC_ACCEPTANCE_H

#include "octet/batch.h"

/* Layer k (from 1) at token i drafts what the main head says k tokens later. drafted: tokens whose
 * target k places on lies in their document and counts; accepted: those of them with the same
 * likeliest token.
 * batch: complete     main, draft: [B,S] S32, the likeliest tokens of the main head and of layer k
 * Source: MaxText, layers/multi_token_prediction.py, calculate_mtp_acceptance_rate. */
void oct_mtp_acceptance(const struct octet_batch *batch, int64_t k, const struct octet_array *main,
                        const struct octet_array *draft, int64_t *accepted, int64_t *drafted);

#endif
