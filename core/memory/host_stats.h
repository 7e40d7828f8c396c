/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* host_stats.h: statistics of devices whose memory is the host's. */

#ifndef CORE_MEMORY_HOST_STATS_H
#define CORE_MEMORY_HOST_STATS_H

#include "device/device.h"

#include <libcore/memory.h>

void core__host_stats_get(core_device *device, core_memory_stats *out);
void core__host_stats_reset_peaks(core_device *device);

#endif
