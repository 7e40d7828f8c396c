/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* failure.h: what HIP's codes mean. */

#ifndef ROCM_FAILURE_H
#define ROCM_FAILURE_H

#include <gpu/driver.h>

/* gpu_driver.failure */
gpu_failure rocm_failure(int code);

#endif
