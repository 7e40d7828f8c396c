/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* copy.h: copies bytes between devices and the host, on the current streams.
 *
 * Host memory that is not pinned for the device (memory/host_memory.h) may be
 * freed or changed as soon as a call returns, so such calls wait for the copy;
 * all others only submit it. */

#ifndef CORE_TRANSFER_COPY_H
#define CORE_TRANSFER_COPY_H

#include "device/device.h"

/* True for devices whose memory every device's copies can address: the
 * host's. */
static inline bool core__device_is_host(const core_device *device)
{
    return device->synchronous && core__device_host_access(device);
}

/* non_blocking: does not wait if the host memory is pinned.  reason: of the
 * wait. */
core_status core__copy_to_host(core_device *device, void *to, core_memory from,
                               uint64_t size, bool non_blocking,
                               const char *reason);
core_status core__copy_from_host(core_device *device, core_memory to,
                                 const void *from, uint64_t size,
                                 bool non_blocking);
/* Copies between two devices of one plugin that can access each other; sets
 * *out_done to false if they cannot.  Both current streams continue after the
 * copy. */
core_status core__copy_peer(core_device *to_device, core_memory to,
                            core_device *from_device, core_memory from,
                            uint64_t size, bool *out_done);

#endif
