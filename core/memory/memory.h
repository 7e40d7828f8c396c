/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* memory.h: device memory for storages.  The core decides the allocation
 * policy (docs/architecture.md, Decisions 8). */

#ifndef CORE_MEMORY_MEMORY_H
#define CORE_MEMORY_MEMORY_H

#include "base/fork.h"
#include "base/thread.h"
#include "device/device.h"

struct core__block; /* allocator.h */

/* size may be 0: memory is then a null pair.  *out_capacity and *out_block
 * (NULL if the device has no caching allocator) must be passed to
 * core__memory_free.  The memory belongs to the current stream.  Small blocks
 * of devices that the host can access come from free lists per thread. */
core_status core__memory_alloc(core_device *device, uint64_t size,
                               core_memory *out_memory, uint64_t *out_capacity,
                               struct core__block **out_block);
void core__memory_free(core_device *device, core_memory memory,
                       uint64_t capacity, struct core__block *block);
/* For core_host.call_record_stream and tensor_record_stream: the work
 * submitted up to now to a stream, named by its plugin's handle, uses a block
 * (NULL: nothing to do) or a tensor's memory.  UNSUPPORTED while the device
 * captures. */
core_status core__memory_record_handle(core_device *device,
                                       struct core__block *block, void *handle);
/* Returns the blocks cached by an ending thread to their device. */
void core__memory_thread_end(core__thread *thread);
/* The same for all threads, for a device that closes, or NULL: all devices.
 * The threads must not be computing on it. */
void core__memory_free_cached(const core_device *device);
/* Ends the pools that the thread has begun. */
void core__memory_pools_end(core__thread *thread);

/* Fork handler of the lock of the allocator's settings. */
void core__alloc_settings_fork(core__fork_phase at);
/* Checks the text of LIBCORE_ALLOC. */
core_status core__alloc_settings_check(const char *text);

#endif
