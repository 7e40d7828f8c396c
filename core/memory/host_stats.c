/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "memory/host_stats.h"

#include "base/thread.h"

void core__host_stats_get(core_device *device, core_memory_stats *out)
{
    int64_t alive =
        device->meta
            ? 0
            : core__thread_storages((uint32_t)__builtin_ctzll(device->keys));

    out->allocations[CORE_MEMORY_ALL].current = alive > 0 ? (uint64_t)alive : 0;
}

void core__host_stats_reset_peaks(core_device *device)
{
    (void)device;
}
