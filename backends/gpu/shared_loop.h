/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* shared_loop.h: the parameters of kernels of loop programs (kernels/loop.h). */

#ifndef GPU_SHARED_LOOP_H
#define GPU_SHARED_LOOP_H

#include <gpu/shared.h>

enum { GPU_LOOP_OPERANDS = 32 };

/* Operands, outputs first, are the addresses of their elements, or numbers, the
 * bits of an element. */

/* Every operand is dense or a number. */
typedef struct gpu_loop_dense {
    uint64_t count;
    void *data[GPU_LOOP_OPERANDS];
    uint64_t number[GPU_LOOP_OPERANDS];
    gpu_error *error;
    int64_t call;
    uint32_t vectors; /* 1: all addresses are multiples of 16 */
    uint32_t reserved;
} gpu_loop_dense;

/* Any strides, in bytes; dimension 0 is the innermost.  With fewer than 2^31
 * elements `sizes` is used, otherwise `wide_sizes`. */
typedef struct gpu_loop_strided {
    uint64_t count;
    uint32_t ndim;
    gpu_divisor sizes[GPU_DIMS];
    uint32_t reserved;
    int64_t wide_sizes[GPU_DIMS];
    int64_t strides[GPU_LOOP_OPERANDS][GPU_DIMS];
    void *data[GPU_LOOP_OPERANDS];
    uint64_t number[GPU_LOOP_OPERANDS];
    gpu_error *error;
    int64_t call;
} gpu_loop_strided;

/* Rows, of the innermost `nreduced` dimensions. */
typedef struct gpu_loop_rows {
    gpu_loop_strided loop;
    uint64_t rows, size; /* how many, and of how many elements */
    uint32_t nreduced, reserved;
} gpu_loop_rows;

#endif
