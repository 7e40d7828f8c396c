/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* nontemporal.h: non-temporal stores.  An ordinary store to a cache line first
 * reads it, and evicts another one; for an output larger than the last-level
 * cache both are useless, since its beginning is evicted before it is used.
 * Compiled per instruction set. */

#ifndef CPU_NONTEMPORAL_H
#define CPU_NONTEMPORAL_H

#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

/* Outputs of at least this size use non-temporal stores: the size of the
 * last-level cache of the machine on which it was measured, where sums of two
 * such tensors followed by products with the result became a quarter faster. */
enum { CPU_NONTEMPORAL_BYTES = 32 << 20, CPU_NONTEMPORAL_LINE = 64 };

/* Tests the whole tensor: its address and size in bytes. */
static inline int cpu_writes_nontemporal(const void *to, int64_t bytes)
{
#if defined(__SSE2__)
    return bytes >= CPU_NONTEMPORAL_BYTES &&
           (uintptr_t)to % CPU_NONTEMPORAL_LINE == 0;
#else
    (void)to;
    (void)bytes;
    return 0;
#endif
}

/* Copies; the ranges do not overlap.  After the last one call
 * cpu_nontemporal_end. */
static inline void cpu_copy_nontemporal(char *to, const char *from,
                                        int64_t bytes)
{
    int64_t k = 0;

#if defined(__AVX512F__)
    for (; (uintptr_t)to % 64 == 0 && k + 64 <= bytes; k += 64)
        _mm512_stream_si512((void *)(to + k), _mm512_loadu_si512(from + k));
#elif defined(__SSE2__)
    for (; (uintptr_t)to % 16 == 0 && k + 16 <= bytes; k += 16)
        _mm_stream_si128((__m128i *)(to + k),
                         _mm_loadu_si128((const __m128i *)(from + k)));
#endif
    memcpy(to + k, from + k, (size_t)(bytes - k));
}

/* Makes these stores visible to other threads. */
static inline void cpu_nontemporal_end(void)
{
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

#endif
