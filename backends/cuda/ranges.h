/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* ranges.h: gpu_driver.ranges_enabled, range_begin and range_end. */

#ifndef CUDA_RANGES_H
#define CUDA_RANGES_H

#include <stdbool.h>

bool cuda_ranges_enabled(void);
void cuda_range_begin(const char *name);
void cuda_range_end(void);

#endif
