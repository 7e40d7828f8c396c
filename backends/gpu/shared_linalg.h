/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* shared_linalg.h: what kernels that factor matrices are handed. */

#ifndef GPU_SHARED_LINALG_H
#define GPU_SHARED_LINALG_H

#include <gpu/shared.h>

/* batch matrices of rows x columns, dense; f32 or f64, computed in f64. */
typedef struct gpu_factor {
    void *to, *to_q;
    const void *from;
    void *info; /* i64 or i32: the order of a minor that is not positive */
    double *scratch;
    int64_t batch, rows, columns;
    int64_t q_columns, r_rows; /* of QR's results; 0: nobody wants Q */
    uint32_t dtype, info_dtype;
    uint32_t upper, unit, left, check;
    gpu_error *error;
    int64_t call;
} gpu_factor;

#endif
