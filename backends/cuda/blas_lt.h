/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* blas_lt.h: products of 8-bit floats by cuBLASLt, which is looked for at the
 * first product.  The functions make the device's context current. */

#ifndef CUDA_BLAS_LT_H
#define CUDA_BLAS_LT_H

#include "api.h"

#include <gpu/driver.h>

/* Registers a device and its context. */
void cuda_lt_open(void *context, CUdevice device, CUcontext handle);
void cuda_lt_close(void *context);
/* Replaces the context after a reset; NULL: the device is being reset, and is
 * not used until it has a new one. */
void cuda_lt_renew(void *context, CUcontext handle);
/* Destroys everything that belongs to the context. */
void cuda_lt_destroy(void *context);
/* Creates what products need, which a capture cannot create. */
void cuda_lt_prepare(void *context);

/* The functions of gpu_driver. */
int cuda_lt_query(void *context, gpu_scaled *g);
int cuda_lt_multiply(void *context, void *stream, const gpu_scaled *g);

#endif
