/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* preferred_layout.h: the memory formats that devices prefer. */

#ifndef CORE_DISPATCH_PREFERRED_LAYOUT_H
#define CORE_DISPATCH_PREFERRED_LAYOUT_H

#include "device/device.h"
#include "dispatch/operator.h"

/* Returns CORE_FORMAT_…, one that fits the number of dimensions. */
uint32_t core__device_format(core_device *device, const core_operator *op,
                             core_dtype dtype, uint32_t ndim);
/* True with LIBCORE_LAYOUT=device: the device's format is used for results
 * whose format nothing else determines. */
bool core__layout_by_device(void);

#endif
