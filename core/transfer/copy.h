/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* copy.h: bytes between devices and the host, on the current streams.
 *
 * Host memory that the device does not know ("pinned": memory/host_memory.h)
 * may be freed or changed as soon as a call returns, so that such calls wait
 * for the copy; all others only give it. */

#ifndef CORE_DEVICE_COPY_H
#define CORE_DEVICE_COPY_H

#include "device/device.h"

/* Memory that every device's copies can name: the host's own. */
static inline bool core__device_is_host(const core_device *device)
{
    return device->synchronous && core__device_host_access(device);
}

/* non_blocking: does not wait where the host memory is pinned.  reason: of the
 * wait. */
core_status core__copy_to_host(core_device *device, void *to, core_memory from,
                               uint64_t size, bool non_blocking,
                               const char *reason);
core_status core__copy_from_host(core_device *device, core_memory to,
                                 const void *from, uint64_t size,
                                 bool non_blocking);
/* Between two devices of one plugin that reach each other: *out_done false
 * where they do not.  Both current streams go on after the copy. */
core_status core__copy_peer(core_device *to_device, core_memory to,
                            core_device *from_device, core_memory from,
                            uint64_t size, bool *out_done);

#endif
