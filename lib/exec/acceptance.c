/* Acceptance; see acceptance.h.
 *
 * MaxText shifts mask and segment ids k times, the mask inside of documents, the ids not. Worked
 * out, all k conditions on a token are one: the last step, from k - 1 places on to k, stays inside
 * of a document. For k above 1 a document may thus begin on the way, as in MaxText. */
#include "exec/acceptance.h"

void oct_mtp_acceptance(const struct octet_batch *batch, int64_t k, const struct octet_array *main,
                        const struct octet_array *draft, int64_t *accepted, int64_t *drafted)
{
    const int32_t *segment = batch->segment_ids.data, *mask = batch->target_mask.data;
    const int32_t *expected = main->data, *said = draft->data;
    const int64_t length = batch->tokens.dim[1], count = octet_array_elements(&batch->tokens);

    *accepted = *drafted = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t target = i + k;
        if (i % length + k >= length || segment[target] == 0 ||
            segment[target - 1] != segment[target] || mask[target] == 0)
            continue;
        ++*drafted;
        *accepted += said[i] == expected[target];
    }
}
