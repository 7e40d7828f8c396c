/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* trace.h: records of device activity, by CUPTI, which is looked for when
 * tracing starts. */

#ifndef CUDA_TRACE_H
#define CUDA_TRACE_H

#include <gpu/driver.h>

/* Like the functions of gpu_driver, with CUDA's device number. */
int cuda_trace_start(int device, gpu_activity_callback callback, void *user);
int cuda_trace_stop(int device);
/* The functions of gpu_driver. */
void cuda_trace_correlate(void *context, uint64_t correlation);
int cuda_trace_clock(void *context, int64_t *out_nanoseconds);

#endif
