/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* blas.h: cuBLAS. */

#ifndef CUDA_BLAS_H
#define CUDA_BLAS_H

#include <gpu/host/blas_library.h>

extern const gpu_blas cuda_blas;

#endif
