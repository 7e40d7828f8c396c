/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* layout.h: the memory formats that devices prefer. */

#ifndef CORE_DEVICE_LAYOUT_H
#define CORE_DEVICE_LAYOUT_H

#include "device/device.h"
#include "dispatch/operator.h"

/* CORE_FORMAT_…, one that fits the number of dimensions. */
uint32_t core__device_format(core_device *device, const core_operator *op,
                             core_dtype dtype, uint32_t ndim);
/* LIBCORE_LAYOUT=device: results that nothing else decides are so. */
bool core__layout_by_device(void);

#endif
