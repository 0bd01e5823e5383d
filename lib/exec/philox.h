/* Philox4x32-10: random bits from a counter and a key.
 *
 * For: draws that any thread can make at any place, with the same bits on every machine.
 * Source: J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011, section 3.3.
 * Checked against that paper's known answers. */
#ifndef OCTET_EXEC_PHILOX_H
#define OCTET_EXEC_PHILOX_H

#include <stdint.h>

struct oct_philox {
    uint32_t word[4];
};

static inline struct oct_philox oct_philox(struct oct_philox counter, uint64_t key)
{
    uint32_t *x = counter.word, low = (uint32_t)key, high = (uint32_t)(key >> 32);

    for (int round = 0; round < 10; round++) {
        uint64_t a = UINT64_C(0xD2511F53) * x[0], b = UINT64_C(0xCD9E8D57) * x[2];
        uint32_t one = x[1], three = x[3];
        x[0] = (uint32_t)(b >> 32) ^ one ^ low;
        x[1] = (uint32_t)b;
        x[2] = (uint32_t)(a >> 32) ^ three ^ high;
        x[3] = (uint32_t)a;
        low += 0x9E3779B9u;
        high += 0xBB67AE85u;
    }
    return counter;
}

#endif
