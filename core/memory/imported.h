/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* imported.h: device memory that another process exports (core.ipc). */

#ifndef CORE_MEMORY_IMPORTED_H
#define CORE_MEMORY_IMPORTED_H

#include "base/fork.h"
#include "device/device.h"
#include "device/stream.h"

struct core__block; /* allocator.h */

typedef struct core__imported core__imported;

/* Opens an allocation of `size` bytes by the plugin's handle.  It belongs to
 * the current stream, as allocated memory does. */
core_status core__imported_open(core_device *device, const void *handle,
                                uint64_t size, core__imported **out_imported,
                                core_memory *out_memory);
/* Work submitted to the stream uses it. */
core_status core__imported_record_stream(core__imported *imported,
                                         core_stream *stream);
/* Closes it when the work that uses it is done, now or at a later call.  Does
 * not wait. */
void core__imported_release(core__imported *imported);
/* Closes what waits for work, and waits for that work. */
void core__imported_empty(core_device *device);
/* Closes what no unfinished work uses, or what a reset of the device ended.
 * Does not wait. */
void core__imported_settle(core_device *device);

/* Fork handler of the lock of imported memory. */
void core__imported_fork(core__fork_phase at);

/* The allocation that contains a block, as the plugin allocated it.
 * UNSUPPORTED if it grows in place. */
core_status core__block_allocation(const core_device *device,
                                   const struct core__block *block,
                                   core_memory *out_memory, uint64_t *out_size);

#endif
