/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* blas.h: rocBLAS. */

#ifndef ROCM_BLAS_H
#define ROCM_BLAS_H

#include <gpu/host/blas_library.h>

extern const gpu_blas rocm_blas;

#endif
