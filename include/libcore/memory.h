/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* memory.h: the caching allocator of each device.
 *
 * The core allocates large segments from a plugin and splits them into blocks.
 * A freed block stays with the stream on which it was allocated, and serves
 * later requests there at once, without waiting for the device, because work on
 * one stream is ordered.  Sizes are rounded up to 512 bytes.  Requests up to
 * 1 MiB are served from segments of 2 MiB, requests below 10 MiB from segments
 * of 20 MiB, and larger ones from a segment each, of a multiple of 2 MiB.  If
 * the device cannot serve a request, the allocator returns cached segments to
 * it and tries again.
 *
 * A device that caches memory itself (core.allocator in backend.h) serves each
 * block, and gets it back as soon as it is released: the core caches nothing,
 * and settings that need the cache are UNSUPPORTED.
 *
 * A device whose memory is the host's (cpu) caches blocks per thread instead.
 * Its statistics contain only the current number of storages (allocations,
 * ALL).  It has no settings, pools, snapshots or history: those functions
 * return UNSUPPORTED.
 *
 * Every function here is thread-safe. */

#ifndef LIBCORE_MEMORY_H
#define LIBCORE_MEMORY_H

#include "device.h"
#include "stream.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ----------------------------------------------------------- statistics -- */

/* Index into the arrays of core_memory_stats.  SMALL: blocks in segments of
 * 2 MiB. */
enum { CORE_MEMORY_ALL = 0, CORE_MEMORY_SMALL = 1, CORE_MEMORY_LARGE = 2 };

/* One statistic, as a count or in bytes. */
typedef struct core_memory_stat {
    uint64_t current;
    uint64_t peak;      /* largest since core_memory_reset_peaks */
    uint64_t allocated; /* total since the device was opened */
    uint64_t freed;     /* total since the device was opened */
} core_memory_stat;

/* The statistics of a device's allocator.  Index of the arrays:
 * CORE_MEMORY_….  The first four arrays are counts, the others bytes. */
typedef struct core_memory_stats {
    uint32_t struct_size; /* in: sizeof of the caller's; out: filled */
    uint32_t reserved;
    core_memory_stat allocations[3];     /* blocks in use by tensors */
    core_memory_stat segments[3];        /* allocated from the device */
    core_memory_stat active[3];          /* in use, or awaiting an event */
    core_memory_stat inactive_split[3];  /* free blocks of a split segment */
    core_memory_stat requested_bytes[3]; /* before rounding */
    core_memory_stat allocated_bytes[3]; /* after rounding */
    core_memory_stat reserved_bytes[3];  /* of segments */
    core_memory_stat active_bytes[3];
    core_memory_stat inactive_split_bytes[3];
    uint64_t retries;         /* requests that first had to empty the cache */
    uint64_t out_of_memories; /* requests that failed even then */
    uint64_t events;          /* created for core_tensor_record_stream */
} core_memory_stats;

/* Fills in the statistics of a device, up to out->struct_size, and sets that to
 * the number of bytes filled.  The caller sets out->struct_size to
 * sizeof(core_memory_stats) before the call. */
core_status core_memory_get_stats(core_device *device, core_memory_stats *out);

/* Sets every peak to the current value. */
core_status core_memory_reset_peaks(core_device *device);

/* Formats the statistics as a human-readable table.  The caller frees it with
 * core_text_free (tensor.h). */
core_status core_memory_summary(core_device *device, char **out_text);

/* Describes all segments and blocks, and the recorded history, as JSON:
 * {"device", "settings", "segments": [{"address", "size", "stream", "pool",
 * "expandable", "blocks": [{"offset", "size", "requested", "state":
 * "active"|"awaiting"|"free"}]}], "history": [{"time_ns", "action":
 * "alloc"|"free_requested"|"free_completed"|"segment_alloc"|"segment_free"|
 * "segment_map"|"segment_unmap"|"oom", "address", "size", "stream"}]}.
 * The caller frees it with core_text_free (tensor.h). */
core_status core_memory_snapshot(core_device *device, char **out_json);

/* Records the last `entries` actions of the allocator in a ring buffer, which
 * core_memory_snapshot includes.  0 stops recording.  Discards the previous
 * history.  INVALID_ARGUMENT above 2^32 entries. */
core_status core_memory_record_history(core_device *device, uint64_t entries);

/* ------------------------------------------------------------- settings -- */

/* Changes the settings of a device's allocator; device NULL: the settings of
 * devices that are opened later.  settings: "name:value" pairs,
 * comma-separated, as in LIBCORE_ALLOC:
 *
 *   max_split_size_mb:N                larger blocks are never split
 *   roundup_power2_divisions:N         sizes are rounded up to 1/N of a power
 *                                      of two
 *   garbage_collection_threshold:F     share of the limit (0 to 1) above which
 *                                      old cached segments are returned to the
 *                                      device
 *   expandable_segments:true|false     segments grow in place (requires virtual
 *                                      memory)
 *   fraction:F                         largest share of the device's memory
 *   caching:true|false                 false: every block is allocated from the
 *                                      device, and returned to it when the work
 *                                      that uses it is done
 *
 * INVALID_ARGUMENT for an unknown name or value; nothing changes then. */
core_status core_memory_configure(core_device *device, const char *settings);

/* Limits the memory that the allocator takes from a device to a share of the
 * device's memory.  INVALID_ARGUMENT unless 0 < fraction <= 1. */
core_status core_memory_set_fraction(core_device *device, double fraction);

/* Returns all cached segments to the device, including pinned host memory.
 * Waits for the work that still uses them.  (Releasing a tensor never waits:
 * memory that is not cached is returned at a later call of the allocator, when
 * the work is done.) */
core_status core_memory_empty_cache(core_device *device);

/* Returns whether a range of addresses is in one segment of a device's
 * allocator, whether tensors use it or not.  size: in bytes.  false for NULL,
 * for size 0, for a device whose handles are no addresses (CORE_DEVICE_FLAT),
 * for memory that libcore did not allocate, for memory from before a reset, in
 * a child of fork, and for a device that has no segments: one without streams,
 * such as cpu.  Waits while another thread grows or empties the allocator,
 * which may wait for streams: not to be called from a stream's callback. */
bool core_memory_contains(core_device *device, const void *address,
                          size_t size);

/* -------------------------------------------------------------- streams -- */

/* Declares that work of a stream uses the memory of a tensor.  After the tensor
 * is released, the memory is not reused before the work enqueued on that stream
 * until then is done.  Has no effect for the stream to which the memory
 * belongs.  DEVICE if the stream belongs to another device, unless the tensor
 * is in host memory that is pinned for that device. */
core_status core_tensor_record_stream(core_tensor *tensor, core_stream *stream);

/* ---------------------------------------------------------------- pools -- */

/* A private set of segments, for captures, whose launches need the same
 * addresses.  The segments are returned when the last reference to the pool is
 * released, the last tensor in it is gone, and the work that used it is
 * done. */
typedef struct core_memory_pool core_memory_pool;

/* Creates a pool.  The caller owns one reference. */
core_status core_memory_pool_create(core_device *device,
                                    core_memory_pool **out_pool);

/* Adds a reference and returns pool.  Accepts NULL. */
core_memory_pool *core_memory_pool_retain(core_memory_pool *pool);

/* Drops a reference.  Accepts NULL. */
void core_memory_pool_release(core_memory_pool *pool);

/* Makes the calling thread allocate from a pool on the pool's device, until
 * core_memory_pool_end.  Calls nest.  The thread keeps a reference. */
core_status core_memory_pool_begin(core_memory_pool *pool);

/* Ends the innermost core_memory_pool_begin of the calling thread.
 * INVALID_ARGUMENT if that was for another pool, or there was none. */
core_status core_memory_pool_end(core_memory_pool *pool);

/* ---------------------------------------------- memory between processes -- */

/* A process exports the memory of a tensor and sends the handle to another
 * process of the same machine, which imports it as its own tensor.  Both then
 * read and write the same device memory.
 *
 * Order.  An export waits for the work of the current stream.  From then on the
 * processes order their work themselves: one synchronizes its stream and then
 * sends the other a message.
 *
 * Lifetime.  The exporting process keeps the core_memory_export, which keeps
 * the memory allocated, until the others have released what they imported.  If
 * it releases the export or ends before the memory is imported, the import
 * returns NOT_FOUND where the device can tell.  If it does so later, the
 * content of the imported tensors is undefined, or the device reports
 * DEVICE_LOST; they are released as usual.  The importing process may end at
 * any time.
 *
 * The same export may be imported several times, also by the process that made
 * it: all these tensors share the memory.  UNSUPPORTED from a plugin that
 * cannot do that. */

/* What names exported memory in another process: bytes without pointers, to be
 * sent in any way.  Whoever has it can read and write the memory, if the system
 * lets that process access the exporting one. */
typedef struct core_memory_handle {
    uint8_t bytes[256];
} core_memory_handle;

/* Memory that is exported. */
typedef struct core_memory_export core_memory_export;

/* Exports the memory of a row-major tensor, and fills *out_handle.  The caller
 * owns *out_export, which keeps the memory allocated, and passes it to
 * core_memory_export_release.  Waits for the work enqueued so far on the
 * current stream.  The same memory may be exported several times.  The other
 * process can also access the rest of the allocation that contains the tensor.
 * SHAPE if the tensor is not row-major or has no elements; UNSUPPORTED if the
 * plugin does not provide core.ipc, for memory that libcore did not allocate
 * (imported memory, for example), and for segments that grow in place. */
core_status core_memory_export_create(core_tensor *tensor,
                                      core_memory_handle *out_handle,
                                      core_memory_export **out_export);

/* Ends an export.  Accepts NULL.  Where the device can tell, the handle cannot
 * be imported any more. */
void core_memory_export_release(core_memory_export *exported);

/* Creates a row-major tensor in memory that another process has exported, at
 * the first element of the exported tensor.  device: the same device there and
 * here, by its stable id.  dtype, sizes: any that need no more bytes than were
 * exported.  The caller owns one reference.  The memory belongs to the current
 * stream, and is closed after the last tensor in it is released and the work
 * that uses it is done.  NOT_FOUND if the export has ended or its process has;
 * INVALID_ARGUMENT if the bytes are not a handle, CORRUPT if it is damaged;
 * DEVICE if the memory is on another device; SHAPE if the tensor needs more
 * bytes; UNSUPPORTED if the plugin does not provide core.ipc. */
core_status core_memory_import(core_device *device,
                               const core_memory_handle *handle,
                               core_dtype dtype, const int64_t *sizes,
                               size_t ndim, core_tensor **out_tensor);

/* ---------------------------------------------------------- host memory -- */

/* Allocates host memory that the device copies from and to asynchronously
 * ("pinned" memory), aligned to at least 64 bytes.  size: in bytes.  It is
 * cached like device memory, and plain memory on a synchronous device.  The
 * caller frees it with core_host_memory_free.  UNSUPPORTED if the plugin does
 * not provide core.host_memory. */
core_status core_host_memory_alloc(core_device *device, size_t size,
                                   void **out_data);

/* Frees memory from core_host_memory_alloc of the same device.  Accepts NULL.
 * The memory is not reused before the copies that use it are done.
 * INVALID_ARGUMENT for other memory, and for that of core_tensor_pinned. */
core_status core_host_memory_free(core_device *device, void *data);

/* Pins host memory that the caller has allocated, so that copies between it and
 * the device are asynchronous (CORE_COPY_NON_BLOCKING), as with memory of
 * core_host_memory_alloc.  data, size: any range, in bytes.  The system may pin
 * whole pages around the range, and some systems refuse two ranges that share a
 * page.  The caller keeps the memory allocated until
 * core_host_memory_unregister.  The same range may be registered for several
 * devices.  core_device_reset ends the pinning but not the registration: to pin
 * the memory again, call core_host_memory_unregister and then this function.
 * INVALID_ARGUMENT if a byte of the range is already pinned for the device;
 * UNSUPPORTED if the plugin cannot register memory; OUT_OF_MEMORY if the system
 * pins no more. */
core_status core_host_memory_register(core_device *device, void *data,
                                      size_t size);

/* Ends core_host_memory_register.  data: the first byte of the registered
 * range.  Waits until the copies that use the memory are done; afterwards no
 * graph that contains such a copy may be launched.  INVALID_ARGUMENT if no
 * range that begins there is registered for the device; BUSY if a copy cannot
 * be waited for because work of the device is being captured. */
core_status core_host_memory_unregister(core_device *device, void *data);

/* Returns whether copies of a device from and to a range of host memory are
 * asynchronous: whether core_host_memory_alloc, core_tensor_pinned or
 * core_host_memory_register made all of it.  size: in bytes.  false for NULL,
 * for freed memory, for memory from before a reset, and for a device that
 * cannot pin memory. */
bool core_host_memory_is_pinned(core_device *device, const void *data,
                                size_t size);

/* Creates an uninitialised, row-major tensor on "cpu" in pinned memory of a
 * device.  The caller owns one reference; the memory is freed with the last
 * tensor that uses it.  UNSUPPORTED if the plugin does not provide
 * core.host_memory. */
core_status core_tensor_pinned(core_device *device, core_dtype dtype,
                               const int64_t *sizes, size_t ndim,
                               core_tensor **out_tensor);

#ifdef __cplusplus
}
#endif
#endif
