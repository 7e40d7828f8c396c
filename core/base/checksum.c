/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Eight sums of 64 bits, one for each word of a block.  A word is mixed with a
 * key, and the product of its halves added to its own sum, for which hardware
 * has one instruction for several words at once.  The word as it is goes to
 * its neighbour's sum: a product may hide a change, when its other half is 0,
 * and a sum of words does not.  The keys change from block to block, so that
 * their order counts. */

#include "base/checksum.h"

#include <string.h>

#if defined __x86_64__
#include <immintrin.h>
/* What the C library knows of the processor: to ask the processor itself, at
 * every start, costs a virtual machine more than a checksum. */
#if __has_include(<sys/platform/x86.h>)
#include <sys/platform/x86.h>
#define HAS_AVX2 CPU_FEATURE_ACTIVE(AVX2)
#else
#define HAS_AVX2 0
#endif
#endif

enum { LANES = CORE__CHECKSUM_LANES, BLOCK = CORE__CHECKSUM_BLOCK };

/* The golden ratio, and primes without a pattern. */
static const uint64_t step = UINT64_C(0x9e3779b97f4a7c15);
static const uint64_t forth = UINT64_C(0xd6e8feb86659fd93);
static const uint64_t back = UINT64_C(0xff51afd7ed558ccd);

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
            self->keys[i] += step;
        }
}

#if defined __x86_64__
__attribute__((target("avx2"))) static void blocks_avx2(
    core__checksum *self, const unsigned char *bytes, size_t count)
{
    const __m256i steps = _mm256_set1_epi64x((long long)step);
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
            /* Each word in its neighbour's place. */
            __m256i turned = _mm256_shuffle_epi32(words, 0x4e);

            sums[i] =
                _mm256_add_epi64(sums[i], _mm256_add_epi64(product, turned));
            keys[i] = _mm256_add_epi64(keys[i], steps);
        }
    memcpy(self->sums, sums, sizeof sums);
    memcpy(self->keys, keys, sizeof keys);
}
#endif

void core__checksum_begin(core__checksum *self, bool plain)
{
    uint64_t key = step;

    memset(self, 0, sizeof *self);
    for (uint32_t i = 0; i < LANES; i++) {
        key = (key ^ key >> 29) * forth;
        self->keys[i] = key;
    }
    self->blocks = blocks_plain;
#if defined __x86_64__
    if (!plain && HAS_AVX2)
        self->blocks = blocks_avx2;
#else
    (void)plain;
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

/* One to one in every sum: what changed one of them changes the result. */
static uint64_t mix(uint64_t all, uint64_t sum, uint64_t factor)
{
    all = (all ^ sum) * factor;
    return all ^ all >> 32;
}

void core__checksum_end(core__checksum *self, uint8_t out_sum[16])
{
    uint64_t first = mix(step, self->bytes, forth), second = ~first;
    size_t held = self->bytes % BLOCK;

    if (held > 0) {
        memset(self->block + held, 0, BLOCK - held);
        self->blocks(self, self->block, 1);
    }
    for (uint32_t i = 0; i < LANES; i++) {
        first = mix(first, self->sums[i], forth);
        second = mix(second, self->sums[LANES - 1 - i], back);
    }
    memcpy(out_sum, &first, sizeof first);
    memcpy(out_sum + sizeof first, &second, sizeof second);
}
