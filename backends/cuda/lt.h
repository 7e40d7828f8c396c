/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* lt.h: products of eight bits by cuBLASLt, which is looked for when the first
 * one is wanted.  Makes the device's context current itself. */

#ifndef CUDA_LT_H
#define CUDA_LT_H

#include "api.h"

#include <gpu/driver.h>

/* A device is there, and this is to be made current. */
void cuda_lt_open(void *context, CUdevice device, CUcontext handle);
void cuda_lt_close(void *context);
/* It is reset: nothing is asked of it until it has another; NULL: from now
 * on. */
void cuda_lt_renew(void *context, CUcontext handle);
/* Gives back what it has of the context. */
void cuda_lt_forget(void *context);
/* Makes what products want: it cannot be made in a capture. */
void cuda_lt_prepare(void *context);

/* The slots of driver.h. */
int cuda_lt_query(void *context, gpu_scaled *g);
int cuda_lt_multiply(void *context, void *stream, const gpu_scaled *g);

#endif
