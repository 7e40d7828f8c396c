/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Blocks of 64 bytes: with the SHA instructions of x86, where the processor has
 * them, or in C, which takes six times as long. */

#include "base/sha256.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

/* The first 32 bits of the fractional parts of the cube roots of the first 64
 * primes. */
static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
    0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
    0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
    0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
    0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
    0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotated(uint32_t x, int by)
{
    return x >> by | x << (32 - by);
}

static void schedule(const unsigned char *block, uint32_t *w)
{
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];

        w[i] = w[i - 16] + (rotated(a, 7) ^ rotated(a, 18) ^ a >> 3) +
               w[i - 7] + (rotated(b, 17) ^ rotated(b, 19) ^ b >> 10);
    }
}

static void add_block(uint32_t *state, const unsigned char *block)
{
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    uint32_t w[64];

    schedule(block, w);
    for (int i = 0; i < 64; i++) {
        uint32_t e1 = rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25);
        uint32_t a0 = rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22);
        uint32_t one = h + e1 + ((e & f) ^ (~e & g)) + constants[i] + w[i];
        uint32_t two = a0 + ((a & b) ^ (a & c) ^ (b & c));

        h = g;
        g = f;
        f = e;
        e = d + one;
        d = c;
        c = b;
        b = a;
        a = one + two;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
    state[5] += f;
    state[6] += g;
    state[7] += h;
}

static void add_in_c(uint32_t *state, const unsigned char *data, size_t count)
{
    for (size_t i = 0; i < count; i++)
        add_block(state, data + 64 * i);
}

#if defined(__x86_64__)
bool core__sha256_has_instructions(void)
{
    unsigned a, b, c, d;
    bool ssse3_sse41;

    if (!__get_cpuid(1, &a, &b, &c, &d))
        return false;
    ssse3_sse41 = (c & bit_SSSE3) && (c & bit_SSE4_1);
    return ssse3_sse41 && __get_cpuid_count(7, 0, &a, &b, &c, &d) &&
           (b & bit_SHA);
}

#define SHA __attribute__((target("sha,ssse3,sse4.1")))

/* Words 4 i to 4 i + 3 of the schedule, from the 16 before them; words[j % 4]
 * holds words 4 j to 4 j + 3. */
SHA static __m128i next_words(const __m128i *words, int i)
{
    __m128i last = words[(i + 3) % 4];
    __m128i seven = _mm_alignr_epi8(last, words[(i + 2) % 4], 4);
    __m128i sum = _mm_sha256msg1_epu32(words[i % 4], words[(i + 1) % 4]);

    return _mm_sha256msg2_epu32(_mm_add_epi32(sum, seven), last);
}

/* The instructions have the state as two vectors: abef, and cdgh. */
SHA static void add_words(__m128i *abef, __m128i *cdgh,
                          const unsigned char *block)
{
    const __m128i bytes =
        _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    const __m128i *from = (const __m128i *)(const void *)block;
    const __m128i *k = (const __m128i *)(const void *)constants;
    __m128i words[4], first = *abef, second = *cdgh;

    for (int i = 0; i < 16; i++) {
        __m128i sum;

        words[i % 4] = i < 4
                           ? _mm_shuffle_epi8(_mm_loadu_si128(from + i), bytes)
                           : next_words(words, i);
        sum = _mm_add_epi32(words[i % 4], _mm_loadu_si128(k + i));
        second = _mm_sha256rnds2_epu32(second, first, sum);
        sum = _mm_shuffle_epi32(sum, 0x0e);
        first = _mm_sha256rnds2_epu32(first, second, sum);
    }
    *abef = _mm_add_epi32(*abef, first);
    *cdgh = _mm_add_epi32(*cdgh, second);
}

SHA static void add_with_instructions(uint32_t *state,
                                      const unsigned char *data, size_t count)
{
    __m128i *half = (__m128i *)(void *)state;
    __m128i low = _mm_shuffle_epi32(_mm_loadu_si128(half), 0xb1);
    __m128i high = _mm_shuffle_epi32(_mm_loadu_si128(half + 1), 0x1b);
    __m128i abef = _mm_alignr_epi8(low, high, 8);
    __m128i cdgh = _mm_blend_epi16(high, low, 0xf0);

    for (size_t i = 0; i < count; i++)
        add_words(&abef, &cdgh, data + 64 * i);
    low = _mm_shuffle_epi32(abef, 0x1b);
    high = _mm_shuffle_epi32(cdgh, 0xb1);
    _mm_storeu_si128(half, _mm_blend_epi16(low, high, 0xf0));
    _mm_storeu_si128(half + 1, _mm_alignr_epi8(high, low, 8));
}
#else
bool core__sha256_has_instructions(void)
{
    return false;
}

#define add_with_instructions add_in_c
#endif

void core__sha256_blocks(core__sha256 *self, const void *data, size_t count)
{
    (self->in_c ? add_in_c : add_with_instructions)(self->state, data, count);
}
