/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* cache.h: freed blocks that a host device keeps.
 *
 * The C library gives large blocks back to the system when they are freed, and
 * a training step that takes them anew pays for their pages each time, about
 * as long as it computes on them.  Here they are kept, by size class (eight to
 * a power of two, so that at most an eighth is lost), for any thread; the
 * newest first, which is the warmest.  A block holds the link to the next. */

#ifndef CORE_MEMORY_CACHE_H
#define CORE_MEMORY_CACHE_H

#include "device/device.h"

/* The size that a block for `size` bytes is allocated with; 0 if blocks of
 * that size are not kept. */
uint64_t core__cache_capacity(uint64_t size);
/* A kept block of exactly this capacity; false if there is none. */
bool core__cache_take(core_device *device, uint64_t capacity,
                      core_memory *out_memory);
/* Keeps a block; false if it is to be freed. */
bool core__cache_keep(core_device *device, core_memory memory,
                      uint64_t capacity);
/* Frees all that is kept: when memory is short, and before a device closes. */
void core__cache_empty(core_device *device);

/* In the child of a fork. */
void core__cache_forked(void);

#endif
