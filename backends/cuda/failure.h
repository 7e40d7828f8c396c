/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* failure.h: what the codes of CUDA's driver mean. */

#ifndef CUDA_FAILURE_H
#define CUDA_FAILURE_H

#include <gpu/driver.h>

/* gpu_driver.failure */
gpu_failure cuda_failure(int code);

#endif
