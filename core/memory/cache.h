/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* cache.h: freed blocks cached for devices whose memory is the host's.
 *
 * The C library returns large blocks to the system when they are freed, and a
 * training step that allocates them again pays for their pages each time,
 * about as long as it computes on them.  They are kept here by size class
 * (eight per power of two, so at most an eighth is lost), for any thread, and
 * the newest, which is most likely in the processor's caches, is reused first.
 * A free block stores the link to the next one. */

#ifndef CORE_MEMORY_CACHE_H
#define CORE_MEMORY_CACHE_H

#include "device/device.h"

/* Takes a cached block for `size` bytes; false if there is none.
 * *out_capacity: what is allocated for so many bytes, in either case. */
bool core__block_cache_take(core_device *device, uint64_t size,
                            core_memory *out_memory, uint64_t *out_capacity);
/* Caches a block, if its capacity is one that is cached; false if the caller
 * must free it. */
bool core__block_cache_put(core_device *device, core_memory memory,
                           uint64_t capacity);
/* Frees all cached blocks: when memory is short, and before a device closes. */
void core__block_cache_empty(core_device *device);

/* For the child of a fork. */
void core__block_cache_after_fork(void);

#endif
