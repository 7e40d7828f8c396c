/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* dnn.h: convolutions by cuDNN.  The library is looked for when a device is
 * opened, and started at the first convolution.  The device's context is
 * current in every call except cuda_dnn_text.
 *
 *     LIBCORE_CUDA_CUDNN=0    cuDNN is not used
 *     LIBCORE_CUDA_CUDNN=1    convolutions that cuDNN supports fail if it cannot be
 *                             used */

#ifndef CUDA_DNN_H
#define CUDA_DNN_H

#include <gpu/driver.h>

/* Returns "cuDNN 9.1.0", or why it is not used; the text stays valid. */
const char *cuda_dnn_text(void);

/* The functions of gpu_driver. */
int cuda_dnn_query(void *context, void *stream, gpu_convolution *g);
int cuda_dnn_convolve(void *context, void *stream, const gpu_convolution *g);

/* Creates what convolutions on the stream need, if the device has convolved
 * before; called when a capture begins. */
void cuda_dnn_prepare(void *context, void *stream);
/* Frees the stream's handle for another stream; does not wait. */
void cuda_dnn_release(void *context, void *stream);
/* Destroys everything that belongs to the context.  lost: the device's memory
 * is already gone. */
void cuda_dnn_destroy(void *context, int lost);

#endif
