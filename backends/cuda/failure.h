/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* failure.h: what the driver's codes mean. */

#ifndef CUDA_FAILURE_H
#define CUDA_FAILURE_H

#include <gpu/driver.h>

/* The slot of driver.h. */
gpu_failure cuda_failure(int code);

#endif
