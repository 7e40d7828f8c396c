/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Weights and order are drawn on the host, so that they are the same bits on
 * every device and with any number of threads. */

#include "train.h"

/* The finalizer of SplitMix64 (Steele, Lea and Flood 2014). */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

uint64_t train_random(uint64_t seed, uint64_t stream, uint64_t index)
{
    const uint64_t golden = UINT64_C(0x9e3779b97f4a7c15);

    return mix(mix(mix(seed + golden) + (stream + 1) * golden) +
               (index + 1) * golden);
}

/* Returns a number below bound > 0.  The bias of the product is below 2^-40 for
 * the sizes used here. */
int64_t train_random_below(uint64_t number, int64_t bound)
{
    return (int64_t)((unsigned __int128)number * (uint64_t)bound >> 64);
}

void train_shuffle(int64_t *order, int64_t count, uint64_t seed, uint64_t epoch)
{
    const uint64_t stream = TRAIN_STREAM_ORDER | epoch;

    for (int64_t i = 0; i < count; i++)
        order[i] = i;
    for (int64_t i = count - 1; i > 0; i--) {
        int64_t k =
            train_random_below(train_random(seed, stream, (uint64_t)i), i + 1);
        int64_t kept = order[i];

        order[i] = order[k];
        order[k] = kept;
    }
}
