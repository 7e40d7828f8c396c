/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* block_table.h: the functions of block.h, for files that are compiled once:
 * those of the chosen instruction set. */

#ifndef CPU_BLOCK_TABLE_H
#define CPU_BLOCK_TABLE_H

#include <stdint.h>

#include <libcore/plugin.h>

typedef struct cpu_block_functions {
    void (*gather)(void *to, const char *from, int64_t stride, uint32_t bytes,
                   int64_t n);
    void (*scatter)(char *to, int64_t stride, const void *from, uint32_t bytes,
                    int64_t n);
    void (*load)(core_dtype type, void *to, core_dtype dtype, const char *from,
                 int64_t stride, int64_t n);
    void (*store)(core_dtype dtype, char *to, int64_t stride, core_dtype type,
                  const void *from, int64_t n);
} cpu_block_functions;

extern const cpu_block_functions cpu_block_functions_baseline,
    cpu_block_functions_avx2, cpu_block_functions_avx512;

#endif
