/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* allocator.h: the caching allocator of a device with streams
 * (libcore/memory.h describes its policy).
 *
 * A block is a part of a segment, {handle, offset}; the allocator never reads
 * or writes its memory.  Free blocks are kept by the stream (and pool) on
 * which they were allocated, under that stream's lock; segments belong to the
 * device. */

#ifndef CORE_MEMORY_ALLOCATOR_H
#define CORE_MEMORY_ALLOCATOR_H

#include "device/stream.h"

#include <libcore/memory.h>

typedef struct core__allocator core__allocator;
typedef struct core__block core__block;

core_status core__allocator_create(core_device *device);
/* All blocks have been freed or are stale.  Returns segments to the device. */
void core__allocator_destroy(core_device *device);
/* For a child of fork: the allocator's locks are never taken again. */
void core__allocator_forked(core_device *device);
/* After a loss and reset: drops everything without calling the device.  Blocks
 * from before the reset are freed without effect. */
void core__allocator_reset(core_device *device);

/* size > 0.  The block has its memory. */
core_status core__allocator_alloc(core_device *device, core_stream *stream,
                                  uint64_t size, core_memory *out_memory,
                                  uint64_t *out_capacity,
                                  core__block **out_block);
void core__allocator_free(core_device *device, core__block *block);
core_status core__allocator_record(core_device *device, core__block *block,
                                   core_stream *stream);
/* The stream ends: its free blocks become available to any other stream that
 * can wait for it.  Calls core__stream_gone, perhaps later and in another
 * thread. */
void core__allocator_stream_end(core_stream *stream);

/* DEVICE error for a pool of another device.  pool may be NULL. */
core_status core__allocator_capture_check(const core_stream *stream,
                                          const core_memory_pool *pool);
/* During a capture, blocks for this stream come from the pool. */
core_status core__allocator_capture_begin(core_stream *stream,
                                          core_memory_pool *pool);
void core__allocator_capture_end(core_stream *stream);

#endif
