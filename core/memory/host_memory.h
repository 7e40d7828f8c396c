/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* host_memory.h: host memory that a device copies from and to by itself
 * ("pinned"), inside the core. */

#ifndef CORE_MEMORY_HOST_MEMORY_H
#define CORE_MEMORY_HOST_MEMORY_H

#include "device/device.h"
#include "device/stream.h"

/* All of [data, data + size) lies in one block from core_host_memory_alloc of
 * this device that is in use. */
/* In a child of fork; the device is synchronous. */
void core__host_memory_forked(core_device *device);
bool core__host_memory_is_pinned(core_device *device, const void *data,
                                 uint64_t size);
/* Work given to the stream uses the block that data lies in: once freed it is
 * not given anew before that work is done. */
core_status core__host_memory_record(core_device *device, const void *data,
                                     core_stream *stream);
/* What is cached goes back; waits for what streams still use. */
void core__host_memory_empty(core_device *device);
/* The device was reset: what is free goes back, and what is in use once it is. */
void core__host_memory_reset(core_device *device);
/* The device closes. */
void core__host_memory_end(core_device *device);

/* Takes size bytes of pinned memory, and gives them back.  tensor: for a
 * tensor, which alone may free it. */
core_status core__host_memory_take(core_device *device, size_t size,
                                   bool tensor, void **out_data);
core_status core__host_memory_give(core_device *device, void *data,
                                   bool tensor);

#endif
