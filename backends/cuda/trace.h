/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* trace.h: what devices did, by CUPTI, which is looked for when somebody wants
 * it. */

#ifndef CUDA_TRACE_H
#define CUDA_TRACE_H

#include <gpu/driver.h>

/* device: CUDA's number.  As the slots of driver.h have it. */
int cuda_trace_start(int device, gpu_activity_callback tell, void *opaque);
int cuda_trace_stop(int device);
/* The slots themselves. */
void cuda_trace_correlate(void *context, uint64_t correlation);
int cuda_trace_clock(void *context, int64_t *out_nanoseconds);

#endif
