/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* blas.h: products of matrices by cuBLAS, which is looked for when the first
 * one is wanted.  The device's context is current in every call. */

#ifndef CUDA_BLAS_H
#define CUDA_BLAS_H

#include <gpu/driver.h>

/* What NVIDIA's manual asks for on sm_90, the most of all. */
enum { CUDA_BLAS_WORKSPACE = 32 << 20 };

/* 0, GPU_ABSENT, or the driver's code. */
int cuda_blas_multiply(void *context, void *stream, const gpu_gemm *g);
/* Makes what products on the stream want: none can be made in a capture. */
void cuda_blas_prepare(void *context, void *stream);
/* The stream ends; waits for nothing. */
void cuda_blas_leave(void *context, void *stream);
/* Gives back what it has of the context.  lost: the device's memory is gone
 * already. */
void cuda_blas_forget(void *context, int lost);

#endif
