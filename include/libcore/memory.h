/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* memory.h: the caching allocator of each device.
 *
 * The core takes large segments from a plugin and cuts blocks out of them.  A
 * freed block stays with the stream that it was allocated on and serves later
 * requests there at once, without waiting for the device, since work on one
 * stream is ordered.  Sizes round up to 512 bytes; requests up to 1 MiB come
 * from segments of 2 MiB, those below 10 MiB from 20 MiB, larger ones from
 * their own, a multiple of 2 MiB.  What the device cannot serve first makes the
 * allocator give cached segments back and try again.
 *
 * A device that keeps memory itself (core.allocator of backend.h) is asked for
 * each block, and has it back as soon as it is released: nothing is cached, and
 * settings that want it to be are UNSUPPORTED.
 *
 * Devices whose memory is the host's (cpu) keep blocks per thread instead.  Of
 * the statistics they have how many storages there are (allocations, all), and
 * they have no streams, settings, pools or snapshots: UNSUPPORTED.
 *
 * Any thread may call everything here. */

#ifndef LIBCORE_MEMORY_H
#define LIBCORE_MEMORY_H

#include "device.h"
#include "stream.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ----------------------------------------------------------- statistics -- */

enum { CORE_MEMORY_ALL = 0, CORE_MEMORY_SMALL = 1, CORE_MEMORY_LARGE = 2 };

typedef struct core_memory_stat {
    uint64_t current;
    uint64_t peak;
    uint64_t allocated; /* added up since the device was opened */
    uint64_t freed;
} core_memory_stat;

/* Each by CORE_MEMORY_ALL, _SMALL (blocks of the 2 MiB segments), _LARGE.  The
 * first four count, the others are bytes. */
typedef struct core_memory_stats {
    uint32_t struct_size; /* set by the caller to sizeof */
    uint32_t reserved;
    core_memory_stat allocations[3];     /* blocks that tensors hold */
    core_memory_stat segments[3];        /* taken from the device */
    core_memory_stat active[3];          /* blocks held, or awaiting an event */
    core_memory_stat inactive_split[3];  /* free blocks that are part of one */
    core_memory_stat requested_bytes[3]; /* as asked for */
    core_memory_stat allocated_bytes[3]; /* as rounded */
    core_memory_stat reserved_bytes[3];  /* of segments */
    core_memory_stat active_bytes[3];
    core_memory_stat inactive_split_bytes[3];
    uint64_t retries;         /* times that the cache was given back first */
    uint64_t out_of_memories; /* times that even that did not help */
    uint64_t events;          /* made for core_tensor_record_stream */
} core_memory_stats;

core_status core_memory_get_stats(core_device *device, core_memory_stats *out);
/* Peaks become what is current. */
core_status core_memory_reset_peaks(core_device *device);
/* A table for people; freed with core_text_free (tensor.h). */
core_status core_memory_summary(core_device *device, char **out_text);
/* JSON: {"device", "settings", "segments": [{"address", "size", "stream",
 * "pool", "expandable", "blocks": [{"offset", "size", "requested", "state":
 * "active"|"awaiting"|"free"}]}], "history": [{"time_ns", "action":
 * "alloc"|"free_requested"|"free_completed"|"segment_alloc"|"segment_free"|
 * "segment_map"|"segment_unmap"|"oom", "address", "size", "stream"}]}. */
core_status core_memory_snapshot(core_device *device, char **out_json);
/* Keeps the last `entries` actions in a ring for the snapshot; 0 stops. */
core_status core_memory_record_history(core_device *device, uint64_t entries);

/* ------------------------------------------------------------- settings -- */

/* "name:value" pairs, comma-separated, as in LIBCORE_ALLOC:
 *
 *   max_split_size_mb:N                blocks above are never split
 *   roundup_power2_divisions:N         sizes round up to 1/N of a power of two
 *   garbage_collection_threshold:F     share of the limit (0 to 1) above which
 *                                      old cached segments are given back
 *   expandable_segments:true|false     grow one range (needs virtual memory)
 *   fraction:F                         at most this share of the device
 *   caching:true|false                 false: every block from the device,
 *                                      which has it back when its work is done
 *
 * device NULL: of devices opened later.  INVALID_ARGUMENT names what is wrong,
 * and then nothing changed. */
core_status core_memory_configure(core_device *device, const char *settings);
/* At most this share, 0 < fraction <= 1, of the device's memory. */
core_status core_memory_set_fraction(core_device *device, double fraction);
/* Gives all cached segments back to the device; waits for the work that still
 * uses them.  (Releasing waits for nothing: what is not cached goes back when
 * somebody looks again and the work is done.) */
core_status core_memory_empty_cache(core_device *device);

/* -------------------------------------------------------------- streams -- */

/* The tensor's memory is used by work of this stream too: once released it is
 * not given anew before that work is done.  Nothing where it is the very
 * stream that the memory belongs to. */
core_status core_tensor_record_stream(core_tensor *tensor, core_stream *stream);

/* ---------------------------------------------------------------- pools -- */

typedef struct core_memory_pool core_memory_pool;

/* A pool has segments of its own, given back when the last reference and the
 * last tensor in it are gone, and the work that used them is done: for
 * captures, whose replays need the addresses. */
core_status core_memory_pool_create(core_device *device,
                                    core_memory_pool **out_pool);
core_memory_pool *core_memory_pool_retain(core_memory_pool *pool);
void core_memory_pool_release(core_memory_pool *pool);
/* Between the two, this thread's allocations on that device are the pool's.
 * They nest. */
core_status core_memory_pool_begin(core_memory_pool *pool);
core_status core_memory_pool_end(core_memory_pool *pool);

/* ---------------------------------------------------------- host memory -- */

/* Host memory that the device copies from and to without the host waiting,
 * cached like the device's own.  Plain memory for a synchronous device;
 * UNSUPPORTED where the plugin has none.  Freed memory is given anew only when
 * the copies that used it are done. */
core_status core_host_memory_alloc(core_device *device, size_t size,
                                   void **out_data);
core_status core_host_memory_free(core_device *device, void *data);
/* A row-major tensor on "cpu" in such memory, not initialised.  The memory goes
 * with it: core_host_memory_free refuses it. */
core_status core_tensor_pinned(core_device *device, core_dtype dtype,
                               const int64_t *sizes, size_t ndim,
                               core_tensor **out_tensor);

#ifdef __cplusplus
}
#endif
#endif
