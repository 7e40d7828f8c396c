/* SPDX-License-Identifier: Apache-2.0 OR MIT-0
 * Copyright The libcore authors */

/* backend.h: the tables by which a plugin gives the core devices, memory,
 * streams and events.  The core copies each table at registration into a full
 * zero-filled one, so a slot that an older plugin lacks reads as NULL; what a
 * NULL slot means is said beside it.
 *
 * Threads: unless said, a slot may be called by any thread, for different
 * objects at once; calls on one stream or event object are serialised by the
 * core.  Functions that destroy cannot fail and accept objects of a lost
 * device. */

#ifndef LIBCORE_BACKEND_H
#define LIBCORE_BACKEND_H

#include "plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------- devices -- */

enum {
    CORE_DEVICE_FLAT = 1u << 0,        /* handle + offset is an address */
    CORE_DEVICE_HOST_ACCESS = 1u << 1, /* FLAT, and the host may use it */
    CORE_DEVICE_HOST_STABLE = 1u << 2, /* async copies keep their host side */
    CORE_DEVICE_HAS_F64 = 1u << 3,     /* f64 kernels exist */
    /* since 0.5 */
    CORE_DEVICE_UNIFIED = 1u << 4 /* its memory is the host's own */
};

typedef struct core_device_properties {
    uint32_t struct_size;
    uint32_t flags;              /* CORE_DEVICE_… */
    uint64_t base_alignment;     /* of every allocation, a power of two */
    uint64_t granularity;        /* sizes are rounded up to it; >= 1 */
    uint64_t tail_padding;       /* bytes readable behind every allocation */
    uint64_t largest_allocation; /* 0 = total_memory */
    uint64_t total_memory;       /* bytes; 0 = not known */
    uint32_t compute_units;
    uint32_t numa_node; /* UINT32_MAX = none */
    /* since 0.2 */
    uint32_t max_streams; /* that work side by side; 0 = any number.  The core
                             shares them out among its own. */
    uint32_t reserved;
} core_device_properties;
CORE_STATIC_ASSERT(sizeof(core_device_properties) == 64, "properties");

/* For people and for core-info.  Strings live as long as the device. */
typedef struct core_device_information {
    uint32_t struct_size;
    uint32_t reserved;
    core_string name;      /* "AMD EPYC 9354", "NVIDIA H100" */
    core_string stable_id; /* UUID or PCI address; may be empty */
    core_string driver;    /* versions; may be empty */
    core_string runtime;
    core_string firmware;
    core_string features; /* comma-separated */
} core_device_information;
CORE_STATIC_ASSERT(sizeof(core_device_information) == 104, "information");

/* -------------------------------------------------------------- memory -- */

/* device: the word of device_open.  Sizes and offsets in bytes. */
typedef struct core_memory_table {
    uint32_t struct_size;
    uint32_t reserved;
    /* size > 0.  OUT_OF_MEMORY when there is none. */
    core_status (*alloc)(void *device, uint64_t size, core_memory *out_memory);
    void (*free)(void *device, core_memory memory, uint64_t size);
    core_status (*info)(void *device, uint64_t *out_free, uint64_t *out_total);
    /* Ordered on stream (NULL on a synchronous device).  Host memory of an
     * asynchronous copy stays valid until completion only with HOST_STABLE:
     * the core otherwise waits. */
    core_status (*copy_from_host)(void *device, void *stream, core_memory to,
                                  const void *from, uint64_t size);
    core_status (*copy_to_host)(void *device, void *stream, void *to,
                                core_memory from, uint64_t size);
    core_status (*copy)(void *device, void *stream, core_memory to,
                        core_memory from, uint64_t size);
    /* Repeats the pattern of 1, 2, 4 or 8 bytes; size is a multiple. */
    core_status (*fill)(void *device, void *stream, core_memory to,
                        uint64_t size, uint64_t pattern, uint32_t pattern_size);
} core_memory_table;
CORE_STATIC_ASSERT(sizeof(core_memory_table) == 64, "core_memory_table");

/* ---------------------------------------------------- streams, events -- */

/* Work on one stream runs in order.  A NULL table: the device is synchronous,
 * every call is complete when it returns.
 *
 * Memory is ordered by streams: what the core takes back from a stream it gives
 * anew only to work that comes later on that stream, or after an event.  So a
 * launch need not keep its operands alive; alloc and free are not ordered by
 * any stream, and free comes when no work uses the memory any more.
 *
 * Several threads may give work (kernels, copies, fills, callbacks) to one
 * stream at once, and wait for it meanwhile (synchronize); its other calls come
 * one at a time.  wait_event also gets events of other devices of the same
 * backend.  destroy waits for nothing: what was given runs to its end.  Work
 * that fails after its call returned poisons its stream: from then on query,
 * synchronize and the like of that stream, and of events recorded on it later,
 * answer its error (severity CORE_SEVERITY_STREAM_POISONED), and its later work
 * is dropped.  Bad data (an index out of range) poisons nothing: see
 * core.stream_error. */
typedef struct core_stream_table {
    uint32_t struct_size;
    uint32_t reserved;
    core_status (*create)(void *device, uint32_t flags, void **out_stream);
    void (*destroy)(void *device, void *stream);
    /* CORE_OK: all work is done; BUSY: not yet; else the error of that work. */
    core_status (*query)(void *device, void *stream);
    core_status (*synchronize)(void *device, void *stream);
    core_status (*wait_event)(void *device, void *stream, void *event);
} core_stream_table;
CORE_STATIC_ASSERT(sizeof(core_stream_table) == 48, "core_stream_table");

enum {
    CORE_EVENT_TIMING = 1u << 0 /* core.timing will be asked about it */
};

/* An event snapshots the work of a stream when it is recorded.  Recording it
 * again leaves earlier waiters alone.  Never waited for, queried or
 * synchronised before it was recorded: the core refuses that. */
typedef struct core_event_table {
    uint32_t struct_size;
    uint32_t reserved;
    core_status (*create)(void *device, uint32_t flags, void **out_event);
    void (*destroy)(void *device, void *event);
    core_status (*record)(void *device, void *event, void *stream);
    core_status (*query)(void *device, void *event);
    core_status (*synchronize)(void *device, void *event);
} core_event_table;
CORE_STATIC_ASSERT(sizeof(core_event_table) == 48, "core_event_table");

/* ------------------------------------------------------------- backend -- */

struct core_backend {
    uint32_t struct_size;
    uint32_t flags;          /* 0 */
    core_string device_type; /* "cpu", "cuda"; [a-z][a-z0-9]* */
    void *user;              /* given back as `backend` below */

    /* How many devices there are now.  May be called again.  Zero devices is
     * CORE_OK with a reason (copied) in *out_reason. */
    core_status (*enumerate)(void *backend, uint32_t *out_count,
                             core_string *out_reason);
    core_status (*device_open)(void *backend, uint32_t index,
                               void **out_device);
    void (*device_close)(void *backend, void *device);
    core_status (*device_information)(void *device,
                                      core_device_information *out);
    core_status (*device_properties)(void *device, core_device_properties *out);
    /* CORE_OK, DEVICE_LOST, …  NULL: always well. */
    core_status (*device_status)(void *device);
    /* An optional interface by name ("core.timing") and least version; NULL
     * when absent.  A NULL slot: there are none. */
    const void *(*get_interface)(void *backend, core_string name,
                                 uint32_t version);
    const core_memory_table *memory;  /* never NULL */
    const core_stream_table *streams; /* NULL: synchronous */
    const core_event_table *events;   /* NULL only if streams is */
};
CORE_STATIC_ASSERT(sizeof(core_backend) == 112, "core_backend");

/* ------------------------------------------------ optional interfaces -- */

/* "core.cpu_threads", version 1: a backend that computes with host threads. */
typedef struct core_cpu_threads_interface {
    uint32_t struct_size;
    uint32_t reserved;
    core_status (*set)(uint32_t threads); /* >= 1 */
    uint32_t (*get)(void);
} core_cpu_threads_interface;

/* Those below are known since minor 0.2; each is version 1. */

/* "core.timing": time on the device. */
typedef struct core_timing_interface {
    uint32_t struct_size;
    uint32_t reserved;
    /* Between two completed events that were created with CORE_EVENT_TIMING;
     * negative if `end` came first. */
    core_status (*elapsed)(void *device, void *start, void *end,
                           int64_t *out_nanoseconds);
} core_timing_interface;

/* "core.host_callback": function(context) runs on a thread of the plugin's
 * when the stream comes to it; work behind it waits.  Exactly one of function
 * and drop is called, once: drop where the stream is poisoned or ends before,
 * and when enqueue fails.  It calls nothing of libcore but releases. */
typedef struct core_host_callback_interface {
    uint32_t struct_size;
    uint32_t reserved;
    core_status (*enqueue)(void *device, void *stream,
                           void (*function)(void *context), void *context,
                           void (*drop)(void *context));
} core_host_callback_interface;

/* "core.host_memory": host memory that asynchronous copies of this device read
 * and write without the core waiting ("pinned").  It begins at a multiple of 64
 * bytes at least.  A reset of the device leaves it where it is, for the host to
 * read and write until it is freed: tensors of the CPU may lie there. */
typedef struct core_host_memory_interface {
    uint32_t struct_size;
    uint32_t reserved;
    core_status (*alloc)(void *device, uint64_t size, void **out_data);
    void (*free)(void *device, void *data, uint64_t size);
} core_host_memory_interface;

/* "core.stream_adopt": streams that another library made. */
typedef struct core_stream_adopt_interface {
    uint32_t struct_size;
    uint32_t reserved;
    /* The foreign stream outlives the adopted one; destroy leaves it alone. */
    core_status (*adopt)(void *device, void *native, void **out_stream);
    /* The vendor's handle of any stream; borrowed. */
    core_status (*native)(void *device, void *stream, void **out_native);
} core_stream_adopt_interface;

/* "core.stream_priority": smaller numbers go first, 0 is the default. */
typedef struct core_stream_priority_interface {
    uint32_t struct_size;
    uint32_t reserved;
    core_status (*range)(void *device, int32_t *out_least,
                         int32_t *out_greatest);
    core_status (*create)(void *device, uint32_t flags, int32_t priority,
                          void **out_stream);
} core_stream_priority_interface;

/* "core.virtual_memory": address ranges that are filled bit by bit.  Sizes and
 * offsets are multiples of the granularity. */
typedef struct core_virtual_memory_interface {
    uint32_t struct_size;
    uint32_t reserved;
    core_status (*granularity)(void *device, uint64_t *out_bytes);
    core_status (*reserve)(void *device, uint64_t size,
                           core_memory *out_memory);
    void (*release)(void *device, core_memory memory, uint64_t size);
    /* Memory behind [offset, offset + size) of a reservation.  OUT_OF_MEMORY
     * when there is none. */
    core_status (*map)(void *device, core_memory memory, uint64_t offset,
                       uint64_t size);
    void (*unmap)(void *device, core_memory memory, uint64_t offset,
                  uint64_t size);
} core_virtual_memory_interface;

/* "core.peer": copies between two devices of this backend. */
typedef struct core_peer_interface {
    uint32_t struct_size;
    uint32_t reserved;
    core_status (*can_access)(void *device, void *other, uint32_t *out_yes);
    /* Ordered on a stream of `device`, which `to` lies on; the core makes that
     * wait for the source, and the source's owner for it. */
    core_status (*copy)(void *device, void *stream, core_memory to,
                        void *from_device, core_memory from, uint64_t size);
} core_peer_interface;

/* "core.graph_capture": what is given to a stream between begin and end does
 * not run but becomes a graph, which can be launched any number of times; what
 * other streams are given meanwhile runs as ever, and is no part of it.
 * Kernels see CORE_CALL_CAPTURING; memory stays where it was.  Waiting for a
 * capturing stream, or for an event recorded on it, is an error of the core's
 * that the plugin never sees. */
typedef struct core_graph_capture_interface {
    uint32_t struct_size;
    uint32_t reserved;
    core_status (*begin)(void *device, void *stream);
    /* Ends it, on failure too.  out_graph NULL: the work is thrown away. */
    core_status (*end)(void *device, void *stream, void **out_graph);
    core_status (*launch)(void *device, void *graph, void *stream);
    /* Waits for nothing: launches that were given run to their end. */
    void (*destroy)(void *device, void *graph);
} core_graph_capture_interface;

/* "core.device_reset": a lost device starts anew.  Memory, streams, events and
 * graphs of before are gone: the core names none of them again, but host memory,
 * which it frees. */
typedef struct core_device_reset_interface {
    uint32_t struct_size;
    uint32_t reserved;
    core_status (*reset)(void *device);
} core_device_reset_interface;

/* What a kernel found wrong with its data while it ran. */
typedef struct core_stream_error {
    uint32_t struct_size;
    core_status code; /* CORE_OK: nothing */
    uint64_t call_id; /* core_call.id of the first kernel that set it */
    int64_t index;    /* the bad value; INT64_MIN, as it is before: only text
                         says it, or there is none */
    core_string text; /* may be empty; valid until the next take */
} core_stream_error;
CORE_STATIC_ASSERT(sizeof(core_stream_error) == 40, "core_stream_error");

/* "core.stream_error": the error word of a stream.  A kernel that meets bad
 * data clamps, sets the word if it is clear, and goes on.  The core takes it
 * (which clears it) after each wait for the stream that succeeded. */
typedef struct core_stream_error_interface {
    uint32_t struct_size;
    uint32_t reserved;
    core_status (*take)(void *device, void *stream, core_stream_error *out);
} core_stream_error_interface;

/* Those below are known since minor 0.3; each is version 1. */

/* How a device counts.  Zeroed before the plugin fills it, and 0 everywhere
 * means as IEEE 754 does. */
typedef struct core_numerics {
    uint32_t struct_size;
    /* Mask of floating dtypes (CORE_DTYPE_MASK) in which arithmetic may take
     * denormals for 0, among operands or results; moves never do. */
    uint32_t flushes_denormals;
    /* Bits of significand that operands of f32 products (mm, convolution, …)
     * keep: 24, or 0, is all of it; 11 is TF32. */
    uint32_t product_bits;
    /* Mask of dtypes whose sums and products are added up in that very dtype,
     * not in a wider one: of F16 and BF16 that is worth telling. */
    uint32_t narrow_sums;
    /* Largest error of any element-wise function in f32 and f64, in units in
     * the last place; 0: at most 4. */
    double max_ulp;
} core_numerics;
CORE_STATIC_ASSERT(sizeof(core_numerics) == 24, "core_numerics");

/* "core.numerics": what a program, and core-conformance, may expect of results.
 * The suite chooses its bounds from it, up to a cap of its own. */
typedef struct core_numerics_interface {
    uint32_t struct_size;
    uint32_t reserved;
    core_status (*get)(void *device, core_numerics *out);
    /* The same as max_ulp for one function and dtype, where that is less
     * exact than the others; NULL or 0: max_ulp.  operator_name: "exp". */
    double (*function_ulp)(void *device, core_string operator_name,
                           core_dtype dtype);
} core_numerics_interface;
CORE_STATIC_ASSERT(sizeof(core_numerics_interface) == 24, "core.numerics");

/* One thing that a device measures, at this moment. */
typedef struct core_measurement {
    uint32_t struct_size;
    uint32_t reserved;
    core_string key;  /* "temperature", "power", "clock.memory" */
    core_string unit; /* "celsius", "watt", "hertz"; may be empty */
    double value;
} core_measurement;
CORE_STATIC_ASSERT(sizeof(core_measurement) == 48, "core_measurement");

/* "core.telemetry": what the device measures of itself.  Texts live as long as
 * the device. */
typedef struct core_telemetry_interface {
    uint32_t struct_size;
    uint32_t reserved;
    /* index from 0 while CORE_OK; NOT_FOUND (no message needed) ends. */
    core_status (*read)(void *device, uint32_t index, core_measurement *out);
} core_telemetry_interface;

/* "core.fork_safe": a device without streams goes on working in a child of
 * fork, with all that was allocated before.  Without it the child gets
 * DEVICE_LOST, and so does every device with streams.  The core calls `child`,
 * unless NULL, once in the child for each open device, before anything else of
 * the plugin: other threads are gone, and what they had locked is as it was. */
typedef struct core_fork_safe_interface {
    uint32_t struct_size;
    uint32_t reserved;
    void (*child)(void *device);
} core_fork_safe_interface;

/* Known since minor 0.4, version 1. */

/* "core.allocator": a device with streams that keeps freed memory itself.  The
 * core then caches nothing: memory of tensors comes from alloc when it is
 * wanted, and goes to free as soon as it is released, in the order of streams.
 * Both come in any thread, also while others give work to the stream.  Without
 * streams it is not asked for. */
typedef struct core_allocator_interface {
    uint32_t struct_size;
    uint32_t reserved;
    /* For work that is given to `stream` from now on; NULL: to any, as in
     * captures.  It may wait for `stream`.  size is a multiple of the
     * granularity; OUT_OF_MEMORY when there is none. */
    core_status (*alloc)(void *device, void *stream, uint64_t size,
                         core_memory *out_memory);
    /* Work that `stream` was given up to now may still use it, and no other
     * does; NULL: none does.  It need not be the stream of alloc.  It waits for
     * nothing: it comes in host callbacks, too. */
    void (*free)(void *device, void *stream, core_memory memory, uint64_t size);
    /* What is kept and not used goes back (core_memory_empty_cache). */
    core_status (*trim)(void *device);
} core_allocator_interface;
CORE_STATIC_ASSERT(sizeof(core_allocator_interface) == 32, "core.allocator");

/* Those below are known since minor 0.5; each is version 1. */

enum {
    CORE_ACTIVITY_KERNEL = 1,
    CORE_ACTIVITY_COPY = 2, /* from or to the host, too */
    CORE_ACTIVITY_FILL = 3
};

/* What a device did, from when to when. */
typedef struct core_activity {
    uint32_t kind;        /* CORE_ACTIVITY_…; others are taken as named */
    uint32_t flags;       /* 0 */
    uint64_t correlation; /* as `correlate` had it; 0: none */
    /* A number of the plugin's for the stream that it ran on: what has the same
     * one ran in order. */
    uint64_t stream;
    int64_t begin; /* nanoseconds of `clock` */
    int64_t end;
    uint64_t bytes;   /* of copies and fills; else 0 */
    core_string name; /* of the kernel, "copy to the host", … */
} core_activity;
CORE_STATIC_ASSERT(sizeof(core_activity) == 64, "core_activity");

typedef struct core_activity_batch {
    uint32_t struct_size;
    uint32_t stride; /* bytes from one record to the next: the plugin's
                        sizeof(core_activity) */
    uint64_t count;  /* 0: there is no more now */
    /* With their names the plugin's: valid until the next take or start. */
    const core_activity *first;
    uint64_t dropped; /* since the last take, for want of room */
} core_activity_batch;
CORE_STATIC_ASSERT(sizeof(core_activity_batch) == 32, "core_activity_batch");

/* "core.profiler": the device tells what it did.  A session of the core's
 * profiler begins it before the first work that it sees on a device, and
 * without it takes the time between two events around each launch.  start, stop
 * and take come one at a time; the others in any thread.  Without streams it
 * is not asked for. */
typedef struct core_profiler_interface {
    uint32_t struct_size;
    uint32_t reserved;
    /* Kernels, copies and fills that are given from now on are recorded: at
     * most `limit` records that were not taken, and those beyond are counted.
     * What costs something is done here, not before.  An error (REFUSED:
     * nobody may; BUSY: another tool has it) is told in the report, and events
     * serve instead. */
    core_status (*start)(void *device, uint64_t limit);
    /* The core has waited for all streams.  Whatever was finished has its
     * record when it returns, and what is given later gets none. */
    core_status (*stop)(void *device);
    /* What this thread gives to the device's streams from now on has this
     * correlation.  The core sets it before each launch, to core_call.id (of
     * copies, fills and graphs to a number of the same sequence), and to 0
     * behind it.  It comes at other times, too, and changes nothing then. */
    void (*correlate)(void *device, uint64_t correlation);
    /* Finished work, each record once, in any order. */
    core_status (*take)(void *device, core_activity_batch *out);
    /* What the clock that records are of shows now; it never runs backwards
     * between start and stop. */
    core_status (*clock)(void *device, int64_t *out_nanoseconds);
} core_profiler_interface;
CORE_STATIC_ASSERT(sizeof(core_profiler_interface) == 48, "core.profiler");

/* "core.layout": in which memory format operators are computed best. */
typedef struct core_layout_interface {
    uint32_t struct_size;
    uint32_t reserved;
    /* For operands of so many dimensions: CORE_FORMAT_CONTIGUOUS, with 4
     * CORE_FORMAT_CHANNELS_LAST, with 5 CORE_FORMAT_CHANNELS_LAST_3D.  Always
     * the same for the same; the core keeps it.  Programs ask for it, and under
     * LIBCORE_LAYOUT=device results of convolution are allocated so.  Kernels
     * take every layout nevertheless, or demand what they want. */
    uint32_t (*preferred)(void *device, core_string operator_name,
                          core_dtype dtype, uint32_t ndim);
} core_layout_interface;
CORE_STATIC_ASSERT(sizeof(core_layout_interface) == 16, "core.layout");

/* "core.ranges": a vendor's tool shows what the program does beside what the
 * device does.  A session of the core's profiler tells it operators,
 * nodes of a backward, waits, and the ranges that the program names, to the
 * first device of a plugin that is open when the session, or a round of its
 * schedule, begins.  That device is kept from then on: the plugin is not
 * unloaded.  A plugin offers it where such a tool is there. */
typedef struct core_ranges_interface {
    uint32_t struct_size;
    uint32_t reserved;
    /* The calling thread comes into a stretch, inside of those that it is in;
     * in any thread.  The name ends with the call. */
    void (*begin)(void *device, core_string name);
    /* It leaves the innermost. */
    void (*end)(void *device);
} core_ranges_interface;
CORE_STATIC_ASSERT(sizeof(core_ranges_interface) == 24, "core.ranges");

#ifdef __cplusplus
}
#endif
#endif
