/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Eight 64-bit sums, one per 64-bit word of a block.  Each word is XORed with
 * a key, and the product of the two halves of the result is added to the
 * word's own sum; vector instructions do this for several words at once.  The
 * word itself is added to its neighbour's sum, because a product can hide a
 * change of one half when the other half is 0.  The keys change from block to
 * block, so the order of the blocks matters. */

#include "base/checksum.h"

#include <string.h>

#if defined __x86_64__
#include <immintrin.h>
/* Uses what the C library knows about the processor: executing CPUID at every
 * start costs more than a checksum on a virtual machine. */
#if __has_include(<sys/platform/x86.h>)
#include <sys/platform/x86.h>
#define HAS_AVX2 CPU_FEATURE_ACTIVE(AVX2)
#else
#define HAS_AVX2 0
#endif
#endif

enum { LANES = CORE__CHECKSUM_LANES, BLOCK = CORE__CHECKSUM_BLOCK };

/* The golden ratio, and odd multipliers without a pattern. */
static const uint64_t key_step = UINT64_C(0x9e3779b97f4a7c15);
static const uint64_t forward_factor = UINT64_C(0xd6e8feb86659fd93);
static const uint64_t backward_factor = UINT64_C(0xff51afd7ed558ccd);

static void blocks_plain(core__checksum *self, const unsigned char *bytes,
                         size_t count)
{
    for (; count > 0; count--, bytes += BLOCK)
        for (uint32_t i = 0; i < LANES; i++) {
            uint64_t word, mixed;

            memcpy(&word, bytes + i * sizeof word, sizeof word);
            mixed = word ^ self->keys[i];
            self->sums[i] += (mixed & UINT32_MAX) * (mixed >> 32);
            self->sums[i ^ 1] += word;
            self->keys[i] += key_step;
        }
}

#if defined __x86_64__
__attribute__((target("avx2"))) static void blocks_avx2(
    core__checksum *self, const unsigned char *bytes, size_t count)
{
    const __m256i steps = _mm256_set1_epi64x((long long)key_step);
    __m256i sums[2], keys[2];

    memcpy(sums, self->sums, sizeof sums);
    memcpy(keys, self->keys, sizeof keys);
    for (; count > 0; count--, bytes += BLOCK)
        for (uint32_t i = 0; i < 2; i++) {
            __m256i words =
                _mm256_loadu_si256((const __m256i *)(bytes + i * 32));
            __m256i mixed = _mm256_xor_si256(words, keys[i]);
            __m256i product =
                _mm256_mul_epu32(mixed, _mm256_srli_epi64(mixed, 32));
            /* Each word in its neighbour's position. */
            __m256i turned = _mm256_shuffle_epi32(words, 0x4e);

            sums[i] =
                _mm256_add_epi64(sums[i], _mm256_add_epi64(product, turned));
            keys[i] = _mm256_add_epi64(keys[i], steps);
        }
    memcpy(self->sums, sums, sizeof sums);
    memcpy(self->keys, keys, sizeof keys);
}
#endif

void core__checksum_begin(core__checksum *self, bool portable)
{
    uint64_t key = key_step;

    memset(self, 0, sizeof *self);
    for (uint32_t i = 0; i < LANES; i++) {
        key = (key ^ key >> 29) * forward_factor;
        self->keys[i] = key;
    }
    self->blocks = blocks_plain;
#if defined __x86_64__
    if (!portable && HAS_AVX2)
        self->blocks = blocks_avx2;
#else
    (void)portable;
#endif
}

void core__checksum_add(core__checksum *self, const void *data, size_t size)
{
    const unsigned char *bytes = data;
    size_t held = self->bytes % BLOCK;

    self->bytes += size;
    if (held > 0) {
        size_t part = size < BLOCK - held ? size : BLOCK - held;

        memcpy(self->block + held, bytes, part);
        if (held + part < BLOCK)
            return;
        self->blocks(self, self->block, 1);
        bytes += part;
        size -= part;
    }
    self->blocks(self, bytes, size / BLOCK);
    memcpy(self->block, bytes + size / BLOCK * BLOCK, size % BLOCK);
}

/* Bijective in each sum, so a change of one sum changes the result. */
static uint64_t mix(uint64_t all, uint64_t sum, uint64_t factor)
{
    all = (all ^ sum) * factor;
    return all ^ all >> 32;
}

void core__checksum_end(core__checksum *self, uint8_t out_sum[16])
{
    uint64_t first = mix(key_step, self->bytes, forward_factor),
             second = ~first;
    size_t held = self->bytes % BLOCK;

    if (held > 0) {
        memset(self->block + held, 0, BLOCK - held);
        self->blocks(self, self->block, 1);
    }
    for (uint32_t i = 0; i < LANES; i++) {
        first = mix(first, self->sums[i], forward_factor);
        second = mix(second, self->sums[LANES - 1 - i], backward_factor);
    }
    memcpy(out_sum, &first, sizeof first);
    memcpy(out_sum + sizeof first, &second, sizeof second);
}
