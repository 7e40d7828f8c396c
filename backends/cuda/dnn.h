/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* dnn.h: convolutions by cuDNN, which is looked for when a device is opened,
 * and started when the first convolution is wanted.  The device's context is
 * current in every call but cuda_dnn_text.
 *
 *     LIBCORE_CUDA_CUDNN=0    it is not used
 *     LIBCORE_CUDA_CUDNN=1    where it cannot be used convolutions are refused,
 *                             but for those that it does not know */

#ifndef CUDA_DNN_H
#define CUDA_DNN_H

#include <gpu/driver.h>

/* "cuDNN 9.1.0", or why there is none; stays. */
const char *cuda_dnn_text(void);

/* The slots of driver.h. */
int cuda_dnn_query(void *context, void *stream, gpu_convolution *g);
int cuda_dnn_convolve(void *context, void *stream, const gpu_convolution *g);

/* A capture begins: makes what convolutions on the stream want, where there
 * were some on the device before. */
void cuda_dnn_prepare(void *context, void *stream);
/* The stream ends; waits for nothing. */
void cuda_dnn_release(void *context, void *stream);
/* Gives back what it has of the context.  lost: the device's memory is gone
 * already. */
void cuda_dnn_forget(void *context, int lost);

#endif
