/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* nontemporal.h: writing past the caches.  A line of memory that is written in the
 * ordinary way is read before, and throws another one out; where an output is
 * larger than the last cache both are for nothing, since its beginning is gone
 * when it has been written.  Compiled per instruction set. */

#ifndef CPU_STREAM_H
#define CPU_STREAM_H

#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

/* Outputs of so many bytes are written past the caches: as large as the last
 * cache of the machine where it was measured, and there sums of two such
 * tensors, and then products with the result, became a quarter faster. */
enum { CPU_STREAM_BYTES = 32 << 20, CPU_STREAM_LINE = 64 };

/* Of a whole tensor: where it begins, and its bytes. */
static inline int cpu_streams(const void *to, int64_t bytes)
{
#if defined(__SSE2__)
    return bytes >= CPU_STREAM_BYTES && (uintptr_t)to % CPU_STREAM_LINE == 0;
#else
    (void)to;
    (void)bytes;
    return 0;
#endif
}

/* Copies; they do not overlap.  After the last one: cpu_stream_end. */
static inline void cpu_stream(char *to, const char *from, int64_t bytes)
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

/* What was written so is there for other threads. */
static inline void cpu_stream_end(void)
{
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

#endif
