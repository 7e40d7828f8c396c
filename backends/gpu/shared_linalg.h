/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* shared_linalg.h: the parameters of kernels that factor matrices. */

#ifndef GPU_SHARED_LINALG_H
#define GPU_SHARED_LINALG_H

#include <gpu/shared.h>

/* A batch of dense matrices of rows x columns, f32 or f64, computed in f64. */
typedef struct gpu_factor {
    void *to, *to_q;
    const void *from;
    void *info; /* i64 or i32: order of a non-positive minor, or 0 */
    double *scratch;
    int64_t batch, rows, columns;
    int64_t q_columns, r_rows; /* of the results of QR; q_columns 0: no Q */
    uint32_t dtype, info_dtype;
    uint32_t upper, unit, left, check;
    gpu_error *error;
    int64_t call;
} gpu_factor;

#endif
