/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* host_memory.h: pinned host memory, which a device copies from and to
 * directly. */

#ifndef CORE_MEMORY_HOST_MEMORY_H
#define CORE_MEMORY_HOST_MEMORY_H

#include "device/device.h"
#include "device/stream.h"

/* True if all of [data, data + size) is in one allocated block from
 * core_host_memory_alloc of this device. */
/* For a child of fork; the device is synchronous. */
void core__host_memory_forked(core_device *device);
bool core__host_memory_is_pinned(core_device *device, const void *data,
                                 uint64_t size);
/* Records that work submitted to the stream uses the block at data: after it
 * is freed, the block is not reused before that work is done. */
core_status core__host_memory_record(core_device *device, const void *data,
                                     core_stream *stream);
/* Releases cached blocks; waits for streams that still use them. */
void core__host_memory_empty(core_device *device);
/* The device was reset: free blocks are released, others when they are
 * freed. */
void core__host_memory_reset(core_device *device);
/* The device closes. */
void core__host_memory_end(core_device *device);

/* Allocates and frees size bytes of pinned memory.  tensor: for a tensor,
 * which alone may free it. */
core_status core__host_memory_take(core_device *device, size_t size,
                                   bool tensor, void **out_data);
core_status core__host_memory_give(core_device *device, void *data,
                                   bool tensor);

#endif
