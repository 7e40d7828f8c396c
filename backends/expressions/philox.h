/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* philox.h: random numbers by index (Philox4x32-10; J. Salmon and others,
 * "Parallel random numbers: as easy as 1, 2, 3", 2011).
 *
 * A draw is a function of seed and place alone, so any thread, chunk or device
 * computes any element.  The counter is the block's number in its two low
 * words, the round in the third, and zero in the last; the key is the seed, low
 * word first.  The round is 0, except for elements that need more than one
 * block: they use the rounds 1, 2, … of theirs.  Of round 0, element
 * i of a draw that begins at block `offset` has
 *     32 bits:  word i mod 4 of block offset + i / 4
 *     64 bits:  words 2 (i mod 2), low, and 2 (i mod 2) + 1, high, of block
 *               offset + i / 2. */

#ifndef EXPRESSIONS_PHILOX_H
#define EXPRESSIONS_PHILOX_H

#include <stdint.h>

#include "number.h"

MATH_INLINE void philox_block_round(uint64_t seed, uint64_t block,
                                    uint32_t third, uint32_t out[4])
{
    uint32_t a = (uint32_t)block, b = (uint32_t)(block >> 32), c = third, d = 0;
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);

    for (int round = 0; round < 10; round++) {
        uint64_t p = (uint64_t)a * UINT32_C(0xd2511f53);
        uint64_t q = (uint64_t)c * UINT32_C(0xcd9e8d57);

        a = (uint32_t)(q >> 32) ^ b ^ k0;
        b = (uint32_t)q;
        c = (uint32_t)(p >> 32) ^ d ^ k1;
        d = (uint32_t)p;
        k0 += UINT32_C(0x9e3779b9);
        k1 += UINT32_C(0xbb67ae85);
    }
    out[0] = a;
    out[1] = b;
    out[2] = c;
    out[3] = d;
}

MATH_INLINE void philox_block(uint64_t seed, uint64_t block, uint32_t out[4])
{
    philox_block_round(seed, block, 0, out);
}

MATH_INLINE uint32_t philox_32(uint64_t seed, uint64_t offset, uint64_t i)
{
    uint32_t block[4];

    philox_block(seed, offset + i / 4, block);
    return block[i % 4];
}

MATH_INLINE uint64_t philox_64(uint64_t seed, uint64_t offset, uint64_t i)
{
    uint32_t block[4];

    philox_block(seed, offset + i / 2, block);
    return block[i % 2 * 2] | (uint64_t)block[i % 2 * 2 + 1] << 32;
}

/* [0, 1) with the bits of a type's mantissa, exactly. */
MATH_INLINE float philox_unit_f32(uint32_t bits)
{
    return (float)(bits >> 8) * 0x1p-24f;
}

MATH_INLINE double philox_unit_f64(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1p-53;
}

#endif
