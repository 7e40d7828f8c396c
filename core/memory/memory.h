/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* memory.h: device memory for storages.  Policy is the core's: this is the
 * room of the caching allocator. */

#ifndef CORE_MEMORY_MEMORY_H
#define CORE_MEMORY_MEMORY_H

#include "base/fork.h"
#include "base/thread.h"
#include "device/device.h"

struct core__block; /* allocator.h */

/* size may be 0: memory is then a null pair.  *out_capacity and *out_block
 * (NULL where the device has no caching allocator) must be handed back.  Memory
 * is the current stream's.  Small blocks of devices that the host can use come
 * from per-thread free lists. */
core_status core__memory_alloc(core_device *device, uint64_t size,
                               core_memory *out_memory, uint64_t *out_capacity,
                               struct core__block **out_block);
void core__memory_free(core_device *device, core_memory memory,
                       uint64_t capacity, struct core__block *block);
/* For core_host.call_record_stream and tensor_record_stream: what a stream,
 * named by its plugin's word, was given up to now uses a block (NULL: nothing
 * to do) or a tensor's memory.  UNSUPPORTED while the device captures. */
core_status core__memory_record_word(core_device *device,
                                     struct core__block *block, void *word);
/* Gives the blocks that an ending thread kept back to their device. */
void core__memory_thread_end(core__thread *thread);
/* The same of all threads, for a device that ends, or NULL: all.  They must not
 * be computing on it. */
void core__memory_forget(const core_device *device);
/* Ends the pools that it had begun. */
void core__memory_pools_end(core__thread *thread);

/* Fork handler of the allocator's settings. */
void core__alloc_options_fork(core__fork at);
/* Checks the text of LIBCORE_ALLOC. */
core_status core__alloc_check(const char *text);

#endif
