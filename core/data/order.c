/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The order of samples, by integer arithmetic alone, so that a seed gives the
 * same one on every machine. */

#include "data/loader.h"

/* The finalizer of SplitMix64 (Steele, Lea and Flood 2014). */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* The index-th random number of an epoch, in [0, bound).  The bias of the
 * product is below bound / 2^64. */
static int64_t random_below(uint64_t seed, uint64_t epoch, int64_t index,
                            int64_t bound)
{
    const uint64_t golden = UINT64_C(0x9e3779b97f4a7c15);
    uint64_t number = mix(mix(mix(seed + golden) + (epoch + 1) * golden) +
                          ((uint64_t)index + 1) * golden);

    return (int64_t)((unsigned __int128)number * (uint64_t)bound >> 64);
}

/* Fisher and Yates, from the end. */
void core__data_shuffle(int64_t *order, int64_t count, uint64_t seed,
                        uint64_t epoch)
{
    for (int64_t i = 0; i < count; i++)
        order[i] = i;
    for (int64_t i = count - 1; i > 0; i--) {
        int64_t k = random_below(seed, epoch, i, i + 1);
        int64_t kept = order[i];

        order[i] = order[k];
        order[k] = kept;
    }
}
