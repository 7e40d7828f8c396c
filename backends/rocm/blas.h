/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* blas.h: products of matrices by rocBLAS, which is looked for when the first
 * one is wanted.  The device is the thread's current one in every call. */

#ifndef ROCM_BLAS_H
#define ROCM_BLAS_H

#include <gpu/driver.h>

enum { ROCM_BLAS_WORKSPACE = 32 << 20 };

/* 0, GPU_ABSENT, or HIP's code. */
int rocm_blas_multiply(void *context, void *stream, const gpu_gemm *g);
/* Makes what products on the stream want: none can be made in a capture. */
void rocm_blas_prepare(void *context, void *stream);
/* The stream ends; waits for nothing. */
void rocm_blas_leave(void *context, void *stream);
/* Gives back what it has of the context.  lost: the device's memory is gone
 * already. */
void rocm_blas_forget(void *context, int lost);

#endif
