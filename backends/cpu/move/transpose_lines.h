/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* transpose_lines.h: transposes some lines of elements of any size.  Compiled
 * per instruction set. */

#ifndef CPU_TRANSPOSE_LINES_H
#define CPU_TRANSPOSE_LINES_H

#include <stdint.h>

#include "isa.h"

/* Transposes `lines` lines of `length` elements of `size` bytes: element j of
 * line i, at from + i * from_stride + j * size, is written to to + j *
 * to_stride + i * size.  Strides are in bytes.  Cache lines are completed soon
 * on both sides, since those at a stride that is a power of two evict each
 * other. */
void CPU_NAME(cpu_transpose_lines)(uint32_t size, char *to, int64_t to_stride,
                                   const char *from, int64_t from_stride,
                                   int64_t lines, int64_t length);

/* Prefetches `bytes` bytes of each of some lines to the second-level cache: in
 * the first, lines at a stride that is a power of two would evict each other
 * before they are used. */
static inline void cpu_prefetch_lines(const char *from, int64_t stride,
                                      int64_t lines, int64_t bytes)
{
    for (int64_t i = 0; i < lines; i++)
        for (int64_t k = 0; k < bytes; k += 64)
            __builtin_prefetch(from + i * stride + k, 0, 2);
}

#endif
