/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* block.h: moving and converting short runs of elements.  Kernels of loop
 * families compute on dense runs of one type; strided and broadcast operands
 * and other dtypes pass through blocks of this size, which stay in the
 * first-level cache.  Compiled per instruction set. */

#ifndef CPU_BLOCK_H
#define CPU_BLOCK_H

#include "cpu.h"
#include "isa.h"

enum {
    CPU_BLOCK = 512,          /* elements */
    CPU_BLOCK_BYTES = 8 * 512 /* of the widest */
};

static inline uint32_t cpu_bytes_of(core_dtype dtype)
{
    static const uint8_t sizes[CORE_DTYPE_LIMIT] = {
        [CORE_F64] = 8,    [CORE_F32] = 4,    [CORE_F16] = 2, [CORE_BF16] = 2,
        [CORE_F8E4M3] = 1, [CORE_F8E5M2] = 1, [CORE_I64] = 8, [CORE_I32] = 4,
        [CORE_I16] = 2,    [CORE_I8] = 1,     [CORE_U8] = 1,  [CORE_BOOL] = 1};

    return sizes[dtype];
}

/* Returns a number argument as an element of dtype, in the low bytes. */
uint64_t CPU_NAME(cpu_scalar_bits)(const core_value *value, core_dtype dtype);
#define cpu_scalar_bits CPU_NAME(cpu_scalar_bits)

/* Dense to dense; to and from do not overlap.  Floats to integers: truncated;
 * values that do not fit i32 or i64 (and NaN) become its least value, narrower
 * types take the low bits of the i64.  To bool: 1 if not zero. */
void CPU_NAME(cpu_convert)(core_dtype to_dtype, void *to, core_dtype dtype,
                           const void *from, int64_t n);
#define cpu_convert CPU_NAME(cpu_convert)

/* n elements of `bytes` bytes, `stride` bytes apart, to dense ones, and back.
 * A stride of 0 repeats the element. */
void CPU_NAME(cpu_gather)(void *to, const char *from, int64_t stride,
                          uint32_t bytes, int64_t n);
#define cpu_gather CPU_NAME(cpu_gather)
void CPU_NAME(cpu_scatter)(char *to, int64_t stride, const void *from,
                           uint32_t bytes, int64_t n);
#define cpu_scatter CPU_NAME(cpu_scatter)

/* Both at once: a run of `dtype` at a stride, to and from dense `type`. */
void CPU_NAME(cpu_load)(core_dtype type, void *to, core_dtype dtype,
                        const char *from, int64_t stride, int64_t n);
#define cpu_load CPU_NAME(cpu_load)
void CPU_NAME(cpu_store)(core_dtype dtype, char *to, int64_t stride,
                         core_dtype type, const void *from, int64_t n);
#define cpu_store CPU_NAME(cpu_store)

#endif
