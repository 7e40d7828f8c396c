/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* copy.h: copies bytes between devices and the host, and fills them, on the
 * current streams.
 *
 * Host memory that is not pinned for the device (memory/host_memory.h) may be
 * freed or changed as soon as a call returns, so such calls wait for the copy;
 * all others only submit it. */

#ifndef CORE_TRANSFER_COPY_H
#define CORE_TRANSFER_COPY_H

#include "device/device.h"
#include "dispatch/operator.h"

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
/* Fills memory with a pattern of the memory table's `fill`, which the device
 * has.  op: a built-in operator, which errors of the work name. */
core_status core__fill_bytes(const core_operator *op, core_device *device,
                             core_memory to, uint64_t size, uint64_t pattern,
                             uint32_t pattern_size);

#endif
