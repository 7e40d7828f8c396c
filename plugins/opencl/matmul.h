/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* matmul.h: matrix products for other operators. */

#ifndef OPENCL_MATMUL_H
#define OPENCL_MATMUL_H

#include "opencl.h"

/* Strides in elements.  sum: from one addend to the next. */
typedef struct opencl_matrix {
    core_memory memory;
    int64_t row, column, batch, sum;
} opencl_matrix;

/* Scratch memory of a call. */
typedef struct opencl_room {
    core_memory memory;
    uint64_t size;
} opencl_room;

/* c = alpha (a[0] b[0] + … + a[sums - 1] b[sums - 1]) + beta d, `batch` times.
 * d.memory.handle NULL: no d.  weight: the view of b, an argument of the call,
 * if it may be kept packed, or NULL.  room: what several products of a call
 * share, or NULL. */
typedef struct opencl_product {
    core_dtype dtype;
    int64_t batch, rows, inner, columns, sums;
    opencl_matrix a, b, c, d;
    const core_view *weight;
    opencl_room *room;
    double alpha, beta;
} opencl_product;

core_status opencl_multiply(core_call *call, const opencl_product *product);

/* The right operands of a product in the layout of kernels/matmul.cl. */
uint64_t opencl_packed_bytes(const opencl_product *product);
core_status opencl_pack(core_call *call, const opencl_product *product,
                        core_memory to);

/* The same with CLBlast.  Returns UNSUPPORTED, without an error message and
 * having done nothing, if it is not installed or not the better choice for this
 * shape. */
core_status opencl_clblast(core_call *call, const opencl_product *product);

#endif
