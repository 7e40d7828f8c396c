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

/* c = alpha (a[0] b[0] + … + a[sums - 1] b[sums - 1]) + beta d, `batch` times.
 * d.memory.handle NULL: no d.  dtype: f32 or f64. */
typedef struct opencl_product {
    core_dtype dtype;
    int64_t batch, rows, inner, columns, sums;
    opencl_matrix a, b, c, d;
    double alpha, beta;
} opencl_product;

core_status opencl_multiply(core_call *call, const opencl_product *product);

/* The same with CLBlast.  Returns UNSUPPORTED, without an error message and
 * having done nothing, if it is not installed or not the better choice for this
 * shape. */
core_status opencl_clblast(core_call *call, const opencl_product *product);

#endif
