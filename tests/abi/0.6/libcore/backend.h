/* SPDX-License-Identifier: Apache-2.0 OR MIT-0
 * Copyright The libcore authors */

/* backend.h: the tables through which a plugin provides devices, memory,
 * streams and events.
 *
 * The core copies each table at registration into a zero-filled table of the
 * full size, so a slot that an older plugin does not have reads as NULL.  What
 * a NULL slot means is documented at the slot; other slots must not be NULL.
 *
 * Threads.  Unless stated otherwise, any thread may call a slot, and several
 * threads may call it at once for different objects; the core serialises the
 * calls on one stream or event.  Functions that destroy an object cannot fail,
 * and accept objects of a lost device.
 *
 * Handles.  `backend` is core_backend.user.  `device`, `stream`, `event` and
 * `graph` are the pointers that the plugin returned when it created the
 * object; the core does not dereference them.  None of the four is NULL, and
 * neither is the handle of memory that a plugin allocates: a NULL stream is
 * that of a synchronous device, and NULL memory that of a tensor without
 * elements.  A plugin whose handles are numbers counts from 1. */

#ifndef LIBCORE_BACKEND_H
#define LIBCORE_BACKEND_H

#include "plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------- devices -- */

/* Flags of a device (core_device_properties.flags). */
enum {
    CORE_DEVICE_FLAT = 1u << 0,        /* handle + offset is an address */
    CORE_DEVICE_HOST_ACCESS = 1u << 1, /* FLAT, and the host can access it */
    CORE_DEVICE_HOST_STABLE = 1u << 2, /* copy_from_host has read the host
                                          memory when it returns */
    CORE_DEVICE_HAS_F64 = 1u << 3,     /* there are f64 kernels */
    /* Since ABI 0.5. */
    CORE_DEVICE_UNIFIED = 1u << 4 /* device memory is the host's memory */
};

/* The properties of a device that the core relies on. */
typedef struct core_device_properties {
    uint32_t struct_size;
    uint32_t flags;              /* CORE_DEVICE_…; other bits are 0 */
    uint64_t base_alignment;     /* of every allocation, a power of two */
    uint64_t granularity;        /* sizes are rounded up to it; >= 1 */
    uint64_t tail_padding;       /* readable bytes after every allocation */
    uint64_t largest_allocation; /* in bytes; 0 = total_memory */
    uint64_t total_memory;       /* in bytes; 0 = unknown */
    uint32_t compute_units;
    uint32_t numa_node; /* UINT32_MAX = none */
    /* Since ABI 0.2. */
    uint32_t max_streams; /* that execute concurrently; 0 = no limit.  The core
                             multiplexes its streams onto that many. */
    uint32_t reserved;    /* 0 */
    /* Since ABI 0.6. */
    uint32_t copy_streams; /* streams of the kind CORE_STREAM_COPY that execute
                              concurrently, in addition to max_streams; 0 =
                              the device has none, UINT32_MAX = no limit */
    uint32_t reserved_copy_streams; /* 0 */
} core_device_properties;
CORE_STATIC_ASSERT(sizeof(core_device_properties) == 72, "properties");

/* Human-readable information about a device, as core-info prints it.  Strings
 * live as long as the device. */
typedef struct core_device_information {
    uint32_t struct_size;
    uint32_t reserved;
    core_string name;      /* "AMD EPYC 9354", "NVIDIA H100" */
    core_string stable_id; /* UUID or PCI address; may be empty */
    core_string driver;    /* version; this and the following may be empty */
    core_string runtime;
    core_string firmware;
    core_string features; /* comma-separated */
} core_device_information;
CORE_STATIC_ASSERT(sizeof(core_device_information) == 104, "information");

/* -------------------------------------------------------------- memory -- */

/* The memory of a device.  Sizes and offsets are in bytes.
 *
 * The copies and the fill are ordered on `stream`, which is NULL on a
 * synchronous device.  A copy may access its host memory until it completes:
 * the core keeps pinned memory (core.host_memory) valid until then, and waits
 * for copies of other memory.  With CORE_DEVICE_HOST_STABLE, copy_from_host
 * must not access the host memory after it has returned, and the core does not
 * wait for it. */
typedef struct core_memory_table {
    uint32_t struct_size;
    uint32_t reserved;

    /* Allocates device memory.  size > 0.  OUT_OF_MEMORY if there is not
     * enough.  Not ordered by any stream. */
    core_status (*alloc)(void *device, uint64_t size, core_memory *out_memory);

    /* Frees memory from alloc; `size` is the size that was requested.  No
     * unfinished work uses the memory. */
    void (*free)(void *device, core_memory memory, uint64_t size);

    /* Gets the free and the total memory of the device.  NULL: unknown. */
    core_status (*info)(void *device, uint64_t *out_free, uint64_t *out_total);

    /* Copies host memory to device memory. */
    core_status (*copy_from_host)(void *device, void *stream, core_memory to,
                                  const void *from, uint64_t size);

    /* Copies device memory to host memory. */
    core_status (*copy_to_host)(void *device, void *stream, void *to,
                                core_memory from, uint64_t size);

    /* Copies within the memory of the device. */
    core_status (*copy)(void *device, void *stream, core_memory to,
                        core_memory from, uint64_t size);

    /* Fills memory with a repeated pattern of 1, 2, 4 or 8 bytes.  size is a
     * multiple of pattern_size.  core-conformance requires it.  It also serves
     * zero_ and fill_.Scalar of dense tensors where no kernel does.  If it is
     * NULL, random operators cannot be captured. */
    core_status (*fill)(void *device, void *stream, core_memory to,
                        uint64_t size, uint64_t pattern, uint32_t pattern_size);
} core_memory_table;
CORE_STATIC_ASSERT(sizeof(core_memory_table) == 64, "core_memory_table");

/* ---------------------------------------------------- streams, events -- */

/* Since ABI 0.6.  The kinds of a stream.  Programs name them too
 * (core_stream_create_kind in stream.h). */
enum {
    CORE_STREAM_COMPUTE = 0, /* takes all work */
    CORE_STREAM_COPY = 1     /* takes the copies and fills of the memory table
                                and of core.peer, waits for events and host
                                callbacks; the launch of a kernel on it returns
                                UNSUPPORTED */
};

/* The streams of a device.  Work on one stream runs in order.  A backend whose
 * stream table is NULL is synchronous: every call completes before it returns.
 *
 * Memory.  Streams order the reuse of memory: the core reuses memory that was
 * freed on a stream only for later work on that stream, or after an event.  A
 * launch therefore need not keep its operands alive.  alloc and free of the
 * memory table are not ordered by any stream; the core calls free when no work
 * uses the memory any more.
 *
 * Threads.  Several threads may enqueue work (kernels, copies, fills,
 * callbacks) on one stream at once, and wait for it at the same time
 * (synchronize).  The core serialises all other calls on a stream.
 *
 * Errors.  Work that fails after its call has returned poisons its stream: from
 * then on query, synchronize and similar calls for that stream, and for events
 * recorded on it afterwards, return the error with the severity
 * CORE_SEVERITY_STREAM_POISONED, and later work on it is dropped.  Bad data (an
 * index out of range) does not poison a stream: see core.stream_error. */
typedef struct core_stream_table {
    uint32_t struct_size;
    uint32_t reserved;

    /* Creates a stream.  flags: its kind, CORE_STREAM_….  Until ABI 0.5: 0.
     * The core requests CORE_STREAM_COPY only of a device with copy_streams. */
    core_status (*create)(void *device, uint32_t flags, void **out_stream);

    /* Destroys a stream without waiting for it: work that was enqueued runs to
     * completion. */
    void (*destroy)(void *device, void *stream);

    /* Checks whether all work of a stream has completed.  Returns CORE_OK, BUSY
     * if some work has not, or the error of that work. */
    core_status (*query)(void *device, void *stream);

    /* Waits until all work of a stream has completed.  Returns the error of
     * that work, if any. */
    core_status (*synchronize)(void *device, void *stream);

    /* Makes later work of a stream wait for an event, without blocking the
     * host.  The event may belong to another device of the same backend. */
    core_status (*wait_event)(void *device, void *stream, void *event);
} core_stream_table;
CORE_STATIC_ASSERT(sizeof(core_stream_table) == 48, "core_stream_table");

/* Flags of an event. */
enum {
    CORE_EVENT_TIMING = 1u << 0 /* core.timing will be called for the event */
};

/* The events of a device.  Recording an event captures the work that a stream
 * has received until then.  Recording it again does not affect waits that were
 * enqueued before.  The core never waits for, queries or synchronises an event
 * that was not recorded. */
typedef struct core_event_table {
    uint32_t struct_size;
    uint32_t reserved;

    /* Creates an event.  flags: 0 or CORE_EVENT_TIMING. */
    core_status (*create)(void *device, uint32_t flags, void **out_event);

    /* Destroys an event.  Streams that wait for it keep waiting. */
    void (*destroy)(void *device, void *event);

    /* Records an event on a stream of its device. */
    core_status (*record)(void *device, void *event, void *stream);

    /* Checks whether the recorded work has completed.  Returns CORE_OK, BUSY if
     * it has not, or the error of that work. */
    core_status (*query)(void *device, void *event);

    /* Waits until the recorded work has completed.  Returns the error of that
     * work, if any. */
    core_status (*synchronize)(void *device, void *event);
} core_event_table;
CORE_STATIC_ASSERT(sizeof(core_event_table) == 48, "core_event_table");

/* ------------------------------------------------------------- backend -- */

/* A device type, as a plugin registers it (core_host.register_backend). */
struct core_backend {
    uint32_t struct_size;
    uint32_t flags;          /* 0 */
    core_string device_type; /* "cpu", "cuda"; [a-z][a-z0-9]* */
    void *user;              /* passed as `backend` below */

    /* Counts the devices that are present now.  May be called repeatedly.  If
     * there are none, it returns CORE_OK and sets *out_reason, which is
     * copied. */
    core_status (*enumerate)(void *backend, uint32_t *out_count,
                             core_string *out_reason);

    /* Opens a device.  index: below the count that enumerate returned.  If that
     * device is open already, which happens only if the list of devices changed
     * (core.hotplug), returns BUSY, and the open device stays as it is; the
     * core then enumerates again. */
    core_status (*device_open)(void *backend, uint32_t index,
                               void **out_device);

    /* Closes a device that device_open opened. */
    void (*device_close)(void *backend, void *device);

    /* Fills in human-readable information about a device.  NULL: none. */
    core_status (*device_information)(void *device,
                                      core_device_information *out);

    /* Fills in the properties of a device. */
    core_status (*device_properties)(void *device, core_device_properties *out);

    /* Checks a device.  Returns CORE_OK, or DEVICE_LOST and the like.  NULL:
     * the device is always usable. */
    core_status (*device_status)(void *device);

    /* Returns an optional interface by name ("core.timing") and minimum
     * version, or NULL if the plugin does not provide it.  The table lives as
     * long as the plugin is loaded.  A NULL slot: there are none. */
    const void *(*get_interface)(void *backend, core_string name,
                                 uint32_t version);

    const core_memory_table *memory;  /* never NULL */
    const core_stream_table *streams; /* NULL: synchronous */
    const core_event_table *events;   /* NULL only if streams is NULL */
};
CORE_STATIC_ASSERT(sizeof(core_backend) == 112, "core_backend");

/* ------------------------------------------------ optional interfaces -- */

/* Each interface is a table that get_interface returns by the name in quotes.
 * Every interface here has version 1. */

/* "core.cpu_threads": the threads of a backend that computes with host
 * threads. */
typedef struct core_cpu_threads_interface {
    uint32_t struct_size;
    uint32_t reserved;

    /* Sets the number of threads.  threads >= 1. */
    core_status (*set)(uint32_t threads);

    /* Returns the number of threads. */
    uint32_t (*get)(void);
} core_cpu_threads_interface;

/* Since ABI 0.2. */

/* "core.timing": time measured on the device. */
typedef struct core_timing_interface {
    uint32_t struct_size;
    uint32_t reserved;

    /* Gets the time between two completed events that were created with
     * CORE_EVENT_TIMING.  It is negative if `end` completed before `start`. */
    core_status (*elapsed)(void *device, void *start, void *end,
                           int64_t *out_nanoseconds);
} core_timing_interface;

/* "core.host_callback": host functions in the order of a stream. */
typedef struct core_host_callback_interface {
    uint32_t struct_size;
    uint32_t reserved;

    /* Enqueues a host function.  function(context) runs on a thread of the
     * plugin's when the stream reaches it, and later work of the stream waits
     * for it.  Exactly one of function and drop is called, once: drop if the
     * stream is poisoned or ends before, and if enqueue fails.  Of libcore, the
     * two may call only release functions.  The stream is not capturing. */
    core_status (*enqueue)(void *device, void *stream,
                           void (*function)(void *context), void *context,
                           void (*drop)(void *context));
} core_host_callback_interface;

/* "core.host_memory": host memory for asynchronous copies, which the core does
 * not wait for ("pinned" memory).  It is aligned to at least 64 bytes.  A reset
 * of the device leaves it valid: the host may read and write it until it is
 * freed, because CPU tensors may use it. */
typedef struct core_host_memory_interface {
    uint32_t struct_size;
    uint32_t reserved;

    /* Allocates host memory.  size: in bytes. */
    core_status (*alloc)(void *device, uint64_t size, void **out_data);

    /* Frees memory from alloc; `size` is the size that was requested. */
    void (*free)(void *device, void *data, uint64_t size);

    /* Since ABI 0.6. */

    /* Pins host memory of the program's, which may begin and end anywhere, so
     * that copies from and to it are asynchronous.  It overlaps no other pinned
     * memory of the device.  OUT_OF_MEMORY if the system pins no more.  NULL:
     * the device pins only what it allocates. */
    core_status (*register_memory)(void *device, void *data, uint64_t size);

    /* Ends register_memory of the same range; the program keeps the memory.  No
     * unfinished work uses it.  NULL only if register_memory is NULL. */
    void (*unregister_memory)(void *device, void *data, uint64_t size);
} core_host_memory_interface;
CORE_STATIC_ASSERT(sizeof(core_host_memory_interface) == 40,
                   "core.host_memory");

/* "core.stream_adopt": streams that another library created. */
typedef struct core_stream_adopt_interface {
    uint32_t struct_size;
    uint32_t reserved;

    /* Wraps a stream of the vendor's library.  `native` outlives the wrapping
     * stream; destroying the latter leaves `native` alone. */
    core_status (*adopt)(void *device, void *native, void **out_stream);

    /* Gets the vendor's handle of any stream.  It is borrowed. */
    core_status (*native)(void *device, void *stream, void **out_native);
} core_stream_adopt_interface;

/* "core.stream_priority": streams with a priority.  A lower number is a higher
 * priority; 0 is the default. */
typedef struct core_stream_priority_interface {
    uint32_t struct_size;
    uint32_t reserved;

    /* Gets the range of priorities: the number of the lowest priority and that
     * of the highest. */
    core_status (*range)(void *device, int32_t *out_least,
                         int32_t *out_greatest);

    /* Creates a stream with a priority within the range.  flags: 0. */
    core_status (*create)(void *device, uint32_t flags, int32_t priority,
                          void **out_stream);
} core_stream_priority_interface;

/* "core.virtual_memory": address ranges that are backed with memory piece by
 * piece.  Sizes and offsets are multiples of the granularity. */
typedef struct core_virtual_memory_interface {
    uint32_t struct_size;
    uint32_t reserved;

    /* Gets the granularity in bytes. */
    core_status (*granularity)(void *device, uint64_t *out_bytes);

    /* Reserves an address range without memory. */
    core_status (*reserve)(void *device, uint64_t size,
                           core_memory *out_memory);

    /* Releases a reserved range, of which nothing is mapped. */
    void (*release)(void *device, core_memory memory, uint64_t size);

    /* Backs [offset, offset + size) of a reserved range with memory.
     * OUT_OF_MEMORY if there is not enough. */
    core_status (*map)(void *device, core_memory memory, uint64_t offset,
                       uint64_t size);

    /* Frees the memory behind [offset, offset + size) of a reserved range. */
    void (*unmap)(void *device, core_memory memory, uint64_t offset,
                  uint64_t size);
} core_virtual_memory_interface;

/* "core.peer": copies between two devices of the backend. */
typedef struct core_peer_interface {
    uint32_t struct_size;
    uint32_t reserved;

    /* Checks whether `device` can copy from `other`. */
    core_status (*can_access)(void *device, void *other, uint32_t *out_yes);

    /* Copies from another device.  The copy is ordered on `stream`, a stream of
     * `device`, whose memory `to` is in.  The core orders it with the work of
     * `from_device` by events. */
    core_status (*copy)(void *device, void *stream, core_memory to,
                        void *from_device, core_memory from, uint64_t size);
} core_peer_interface;

/* "core.graph_capture": captures work as a graph.  Work that a stream receives
 * between begin and end does not run; it becomes a graph that can be launched
 * any number of times.  Work of other streams runs as usual and is not part of
 * the graph.  Kernels see CORE_CALL_CAPTURING.  A launch uses the memory that
 * the captured work used.  The core refuses waits for a capturing stream and
 * for events recorded on it; the plugin never sees them.
 *
 * Launches on another stream.  A kernel is called once, while its stream
 * captures.  So call->stream, in copies of the call too, is the stream that was
 * captured, on whichever stream of the device the graph runs.
 *
 * Errors.  Work of a graph that fails poisons the stream on which the graph was
 * launched.  An error in its data (core.stream_error) may be set on that stream
 * or on the one that was captured: after a wait for the launch the core takes
 * the errors of both. */
typedef struct core_graph_capture_interface {
    uint32_t struct_size;
    uint32_t reserved;

    /* Begins the capture of a stream. */
    core_status (*begin)(void *device, void *stream);

    /* Ends the capture, even if it fails.  out_graph NULL: the captured work is
     * discarded. */
    core_status (*end)(void *device, void *stream, void **out_graph);

    /* Enqueues the captured work on a stream of the device. */
    core_status (*launch)(void *device, void *graph, void *stream);

    /* Destroys a graph without waiting: launches that were enqueued run to
     * completion. */
    void (*destroy)(void *device, void *graph);
} core_graph_capture_interface;

/* "core.device_reset": makes a lost device usable again. */
typedef struct core_device_reset_interface {
    uint32_t struct_size;
    uint32_t reserved;

    /* Resets a device.  Its memory, streams, events and graphs are gone, and
     * the core does not pass them to the plugin again.  Host memory
     * (core.host_memory) stays valid, and the core still frees it. */
    core_status (*reset)(void *device);
} core_device_reset_interface;

/* An error that a kernel found in its data while it ran. */
typedef struct core_stream_error {
    uint32_t struct_size;
    core_status code; /* CORE_OK: none */
    uint64_t call_id; /* core_call.id of the first kernel that set it; in a
                         graph the id of the captured call */
    int64_t index;    /* the bad value; INT64_MIN, which the core stores before
                         the call: unknown, or only in text */
    core_string text; /* may be empty; valid until the next take */
} core_stream_error;
CORE_STATIC_ASSERT(sizeof(core_stream_error) == 40, "core_stream_error");

/* "core.stream_error": the error flag of a stream.  A kernel that meets bad
 * data clamps it, sets the flag if it is clear, and continues.  The core takes
 * the error after each successful wait for the stream. */
typedef struct core_stream_error_interface {
    uint32_t struct_size;
    uint32_t reserved;

    /* Gets the error of a stream and clears it. */
    core_status (*take)(void *device, void *stream, core_stream_error *out);
} core_stream_error_interface;

/* Since ABI 0.3. */

/* The numerical behaviour of a device.  The core zeroes it before the plugin
 * fills it; 0 in every field means IEEE 754 behaviour. */
typedef struct core_numerics {
    uint32_t struct_size;
    /* Mask of floating dtypes (CORE_DTYPE_MASK) in which arithmetic may flush
     * denormal operands or results to 0.  Copies never do. */
    uint32_t flushes_denormals;
    /* Bits of significand that the operands of f32 products (mm, convolution,
     * …) keep.  24 or 0: all of them.  11: TF32. */
    uint32_t product_bits;
    /* Mask of dtypes in which sums and products accumulate in the dtype itself
     * and not in a wider one.  Relevant for F16 and BF16. */
    uint32_t narrow_sums;
    /* Largest error of an element-wise function in f32 and f64, in units in the
     * last place.  0: at most 4. */
    double max_ulp;
} core_numerics;
CORE_STATIC_ASSERT(sizeof(core_numerics) == 24, "core_numerics");

/* "core.numerics": the accuracy that a program and core-conformance may expect.
 * The conformance suite derives its tolerances from it, up to fixed limits. */
typedef struct core_numerics_interface {
    uint32_t struct_size;
    uint32_t reserved;

    /* Fills in the numerical behaviour of a device. */
    core_status (*get)(void *device, core_numerics *out);

    /* Returns the largest error of one function in one dtype, in units in the
     * last place, for a function that is less accurate than the others.
     * operator_name: "exp".  A NULL slot, or 0: max_ulp applies. */
    double (*function_ulp)(void *device, core_string operator_name,
                           core_dtype dtype);
} core_numerics_interface;
CORE_STATIC_ASSERT(sizeof(core_numerics_interface) == 24, "core.numerics");

/* The current value of one sensor of a device. */
typedef struct core_measurement {
    uint32_t struct_size;
    uint32_t reserved;
    core_string key;  /* "temperature", "power", "clock.memory" */
    core_string unit; /* "celsius", "watt", "hertz"; may be empty */
    double value;
} core_measurement;
CORE_STATIC_ASSERT(sizeof(core_measurement) == 48, "core_measurement");

/* "core.telemetry": the sensors of a device. */
typedef struct core_telemetry_interface {
    uint32_t struct_size;
    uint32_t reserved;

    /* Reads a sensor.  index counts from 0.  Strings live as long as the
     * device.  NOT_FOUND, without a message, after the last sensor. */
    core_status (*read)(void *device, uint32_t index, core_measurement *out);
} core_telemetry_interface;

/* "core.fork_safe": a device without streams that keeps working in a child of
 * fork, with all memory that was allocated before.  Without this interface, and
 * on every device with streams, the child gets DEVICE_LOST. */
typedef struct core_fork_safe_interface {
    uint32_t struct_size;
    uint32_t reserved;

    /* Called in the child once for each open device, before any other function
     * of the plugin.  Other threads do not exist in the child, and locks that
     * they held are still locked.  NULL: nothing to do. */
    void (*child)(void *device);
} core_fork_safe_interface;

/* Since ABI 0.4. */

/* "core.allocator": a device with streams that caches freed memory itself.  The
 * core then caches nothing: it calls alloc for each tensor's memory, and free
 * as soon as the memory is released, in the order of streams.  Any thread may
 * call both, also while others enqueue work on the stream.  `stream` is never
 * one that is capturing: memory that is released meanwhile is freed after the
 * capture.  The core does not use this interface on a device without
 * streams. */
typedef struct core_allocator_interface {
    uint32_t struct_size;
    uint32_t reserved;

    /* Allocates memory for later work of `stream`; NULL: of any stream, as
     * captures need.  size is a multiple of the granularity.  It may wait for
     * `stream`.  OUT_OF_MEMORY if there is not enough. */
    core_status (*alloc)(void *device, void *stream, uint64_t size,
                         core_memory *out_memory);

    /* Frees memory that only work enqueued on `stream` until now may still use;
     * NULL: no work uses it.  The stream may differ from the one passed to
     * alloc.  It must not wait, because host callbacks may call it. */
    void (*free)(void *device, void *stream, core_memory memory, uint64_t size);

    /* Returns cached memory that is not in use to the device
     * (core_memory_empty_cache). */
    core_status (*trim)(void *device);
} core_allocator_interface;
CORE_STATIC_ASSERT(sizeof(core_allocator_interface) == 32, "core.allocator");

/* Since ABI 0.5. */

/* What a core_activity record describes.  The profiler shows records of an
 * unknown kind under their name. */
enum {
    CORE_ACTIVITY_KERNEL = 1,
    CORE_ACTIVITY_COPY = 2, /* including copies from and to the host */
    CORE_ACTIVITY_FILL = 3
};

/* One piece of work that a device did, with its start and end time. */
typedef struct core_activity {
    uint32_t kind;        /* CORE_ACTIVITY_… */
    uint32_t flags;       /* 0 */
    uint64_t correlation; /* as set with `correlate`; 0: none */
    /* A number that the plugin assigns to the stream on which the work ran.
     * Work with the same number ran in order. */
    uint64_t stream;
    int64_t begin; /* nanoseconds of `clock` */
    int64_t end;
    uint64_t bytes;   /* of copies and fills; otherwise 0 */
    core_string name; /* of the kernel; or "copy to the host", … */
} core_activity;
CORE_STATIC_ASSERT(sizeof(core_activity) == 64, "core_activity");

/* A batch of records from `take`. */
typedef struct core_activity_batch {
    uint32_t struct_size;
    uint32_t stride; /* bytes from one record to the next: the plugin's
                        sizeof(core_activity) */
    uint64_t count;  /* 0: no more records now */
    /* Owned by the plugin, with the names; valid until the next take or
     * start. */
    const core_activity *first;
    uint64_t dropped; /* records beyond the limit since the last take */
} core_activity_batch;
CORE_STATIC_ASSERT(sizeof(core_activity_batch) == 32, "core_activity_batch");

/* "core.profiler": a device that records its own activity.  A session of the
 * core's profiler starts it before the first work that it observes on a device.
 * Without this interface the core measures the time between two events around
 * each launch.  The core serialises start, stop and take; any thread may call
 * the others.  The core does not use this interface on a device without
 * streams. */
typedef struct core_profiler_interface {
    uint32_t struct_size;
    uint32_t reserved;

    /* Starts recording the kernels, copies and fills that are enqueued from now
     * on.  limit: the maximum number of records not yet taken; further records
     * are counted as dropped.  Do expensive preparation here, not earlier.  On
     * an error (REFUSED: not permitted; BUSY: another tool is recording) the
     * report contains the message, and the core uses events instead. */
    core_status (*start)(void *device, uint64_t limit);

    /* Stops recording.  The core has waited for all streams.  When it returns,
     * all completed work has a record; later work gets none. */
    core_status (*stop)(void *device);

    /* Sets the correlation of the work that the calling thread enqueues on the
     * device from now on.  The core sets it before each launch, to core_call.id
     * (for copies, fills and graphs: a number of the same sequence), and to 0
     * afterwards.  The core may call it while recording is off; it then has no
     * effect. */
    void (*correlate)(void *device, uint64_t correlation);

    /* Gets records of completed work, each record once, in any order. */
    core_status (*take)(void *device, core_activity_batch *out);

    /* Reads the clock that the times of records refer to.  It never runs
     * backwards between start and stop. */
    core_status (*clock)(void *device, int64_t *out_nanoseconds);
} core_profiler_interface;
CORE_STATIC_ASSERT(sizeof(core_profiler_interface) == 48, "core.profiler");

/* "core.layout": the memory format in which a device computes an operator
 * fastest.  Programs query it, and under LIBCORE_LAYOUT=device the core
 * allocates results of convolution in it.  Kernels must still accept every
 * layout, or require the one that they need (CORE_REQUIRE_…). */
typedef struct core_layout_interface {
    uint32_t struct_size;
    uint32_t reserved;

    /* Returns the preferred format of operands with ndim dimensions:
     * CORE_FORMAT_CONTIGUOUS, with 4 dimensions also CORE_FORMAT_CHANNELS_LAST,
     * with 5 also CORE_FORMAT_CHANNELS_LAST_3D.  The result depends on the
     * arguments only; the core caches it. */
    uint32_t (*preferred)(void *device, core_string operator_name,
                          core_dtype dtype, uint32_t ndim);
} core_layout_interface;
CORE_STATIC_ASSERT(sizeof(core_layout_interface) == 16, "core.layout");

/* "core.ranges": passes named ranges to a vendor's tool, which shows what the
 * program did next to what the device did.  A session of the core's profiler
 * passes operators, nodes of a backward, waits, and the ranges that the program
 * names, to the first device of a plugin that is open when the session, or a
 * round of its schedule, begins.  The session keeps that device open, so the
 * plugin cannot be unloaded.  A plugin provides the interface only if such a
 * tool is attached. */
typedef struct core_ranges_interface {
    uint32_t struct_size;
    uint32_t reserved;

    /* Begins a range in the calling thread, nested in those that are open
     * there.  The name is valid only during the call. */
    void (*begin)(void *device, core_string name);

    /* Ends the innermost range of the calling thread. */
    void (*end)(void *device);
} core_ranges_interface;
CORE_STATIC_ASSERT(sizeof(core_ranges_interface) == 24, "core.ranges");

/* Since ABI 0.6. */

/* The size of the handles of core.ipc, in bytes. */
enum { CORE_IPC_HANDLE_SIZE = 128 };

/* "core.ipc": device memory that several processes share.  The process that
 * allocated memory exports it; another one of the same machine opens it by the
 * handle.  The processes order their work themselves.
 *
 * Lifetime.  The exporting process keeps the memory allocated until the others
 * have closed it.  If it frees the memory or ends before that, the content of
 * the opened memory is undefined, or the device reports DEVICE_LOST; calls that
 * use the memory must not crash the process, and `close` must still work. */
typedef struct core_ipc_interface {
    uint32_t struct_size;
    uint32_t reserved;

    /* Exports an allocation.  memory, size: as alloc (of the memory table, or
     * of core.allocator) returned and received them.  handle:
     * CORE_IPC_HANDLE_SIZE bytes, which the core has zeroed; they contain no
     * address.  An allocation may be exported several times. */
    core_status (*export_memory)(void *device, core_memory memory,
                                 uint64_t size, void *handle);

    /* Opens exported memory.  size: that of the export.  The same export may be
     * opened several times, also by the process that made it; each success is
     * closed once.  A plugin whose driver does not open an export of its own
     * process, or one that is open, counts the openings itself, or returns
     * UNSUPPORTED.  NOT_FOUND if the export has ended or its process has;
     * INVALID_ARGUMENT if the handle is not one of this device's. */
    core_status (*open)(void *device, const void *handle, uint64_t size,
                        core_memory *out_memory);

    /* Closes memory from `open`, which no unfinished work uses. */
    void (*close)(void *device, core_memory memory, uint64_t size);

    /* Ends one export, before the memory is freed.  Where the device can tell,
     * the handle opens no more; memory that is open stays open.  NULL: nothing
     * to do. */
    void (*end_export)(void *device, core_memory memory, uint64_t size);
} core_ipc_interface;
CORE_STATIC_ASSERT(sizeof(core_ipc_interface) == 40, "core.ipc");

/* "core.hotplug": devices that are added and removed while the process runs.
 * The plugin announces a change with core_host.devices_changed.  The core then
 * calls enumerate and, for each index, device_id.  It identifies devices by
 * their ids: a device that it knows keeps the index by which programs know it,
 * whatever its place in the enumeration; a new one gets the next index; and one
 * that is missing is lost.  Every call for an object of a missing device
 * returns DEVICE_LOST.  If the device is present again, the `reset` of
 * core.device_reset makes its handle usable.
 *
 * Order.  The plugin keeps a list of the devices under a lock that enumerate,
 * device_id and device_open take to read it, and announces a change of the list
 * before it releases that lock.  The core does not use what it read if a change
 * was announced meanwhile, but reads again.  A change that is announced later
 * can make the core take a device that is present for a removed one.
 *
 * If the devices keep changing, or a function fails, the core continues with
 * the last list, and reads again when a program looks for a device the next
 * time. */
typedef struct core_hotplug_interface {
    uint32_t struct_size;
    uint32_t reserved;

    /* Gets the id of the device that device_open opens by `index`, without
     * opening it.  The id is not empty, differs from those of other devices,
     * and equals stable_id of its core_device_information, which the core
     * compares after device_open: without one the device is refused.  The core
     * copies the string.  NOT_FOUND if that device has gone since enumerate. */
    core_status (*device_id)(void *backend, uint32_t index,
                             core_string *out_id);
} core_hotplug_interface;
CORE_STATIC_ASSERT(sizeof(core_hotplug_interface) == 16, "core.hotplug");

/* ---------------------------------------------------------- collectives -- */

/* What a core_collective does.  All ranks of a communicator make the same calls
 * in the same order. */
enum {
    CORE_COLLECTIVE_ALL_REDUCE = 1,     /* output = reduction of all inputs */
    CORE_COLLECTIVE_BROADCAST = 2,      /* output = input of the peer */
    CORE_COLLECTIVE_ALL_GATHER = 3,     /* output = inputs, in rank order */
    CORE_COLLECTIVE_REDUCE_SCATTER = 4, /* output = rank's part of the
                                           reduction */
    CORE_COLLECTIVE_ALL_TO_ALL = 5,     /* part r of the input goes to rank r */
    CORE_COLLECTIVE_SEND = 6,           /* input goes to the peer */
    CORE_COLLECTIVE_RECV = 7,           /* output comes from the peer */
    CORE_COLLECTIVE_BARRIER = 8,        /* no data */
    CORE_COLLECTIVE_REDUCE = 9,         /* output of the peer = reduction of all
                                           inputs; the others have no output */
    /* Part r of the input goes to rank r; the parts have their own sizes. */
    CORE_COLLECTIVE_ALL_TO_ALL_COUNTS = 10
};
/* The bit of a collective in a mask of collectives. */
#define CORE_COLLECTIVE_MASK(kind) (UINT32_C(1) << (kind))

/* How a collective combines the elements of all ranks. */
enum {
    CORE_REDUCE_SUM = 1,
    CORE_REDUCE_PROD = 2,
    CORE_REDUCE_MIN = 3,
    CORE_REDUCE_MAX = 4,
    CORE_REDUCE_AVG = 5 /* of floating dtypes: the sum, divided by the number
                           of ranks */
};
/* The bit of a reduction in a mask of reductions. */
#define CORE_REDUCE_MASK(reduction) (UINT32_C(1) << (reduction))

/* The size of the id of a communicator, in bytes. */
enum { CORE_COLLECTIVES_ID_SIZE = 128 };

/* One call of a collective on one rank.  input and output are host memory or,
 * for an engine that has create_on_device, memory of its device: the handle
 * plus the offset of a flat device.  They are valid until the call returns;
 * they are equal or do not overlap. */
typedef struct core_collective {
    uint32_t struct_size;
    uint32_t kind; /* CORE_COLLECTIVE_… */
    core_dtype dtype;
    uint32_t reduction; /* CORE_REDUCE_…; 0 where nothing is reduced */
    uint32_t peer; /* root of BROADCAST and REDUCE, the other rank of SEND and
                      RECV */
    uint32_t reserved;
    /* How many elements a part has.  The output of ALL_GATHER, the input of
     * REDUCE_SCATTER, and both of ALL_TO_ALL have one part for each rank, in
     * the order of ranks; any other input or output is one part.  For
     * ALL_TO_ALL_COUNTS, the elements of a row, of which all parts are
     * multiples. */
    uint64_t count;
    uint64_t sequence; /* number of the call, equal on all ranks; 0 for SEND
                          and RECV */
    const void *input; /* NULL: there is none */
    void *output;      /* NULL: there is none */
    int64_t timeout_ns;
    /* Of ALL_TO_ALL_COUNTS: how many elements the part for, or from, each rank
     * has, in the order of ranks, in which the parts are stored without gaps.
     * What one rank sends is what the other receives.  Valid until the call
     * returns; NULL for other collectives. */
    const uint64_t *input_counts;
    const uint64_t *output_counts;
    /* 1: input and output are host memory also for an engine that has
     * create_on_device.  They then have at most CORE_COLLECTIVES_ID_SIZE bytes
     * for each rank, and nothing is reduced. */
    uint32_t on_host;
    uint32_t reserved_on_host;
} core_collective;
CORE_STATIC_ASSERT(sizeof(core_collective) == 72 + 2 * sizeof(void *),
                   "core_collective");

/* "core.collectives": collectives among processes.  An engine moves host
 * memory, and the core copies the memory of devices; or, with create_on_device,
 * it moves the memory of the devices of its own plugin.  A plugin registers it
 * with register_interface.
 *
 * Threads.  One thread at a time uses a communicator; several threads may use
 * different ones at once.
 *
 * Errors.  Functions that communicate wait until they are done, and no longer
 * than their timeout; they then return CORE_ERROR_CANCELLED with a message that
 * names the ranks that were waited for, if the engine can find out.  If a rank
 * has ended, they return another error that names it.  After an error the core
 * calls only abort, shrink and destroy on the communicator. */
typedef struct core_collectives_interface {
    uint32_t struct_size;
    uint32_t dtypes;     /* mask (CORE_DTYPE_MASK) of dtypes that can be
                            reduced; f16 and bf16 are summed in f32, unless the
                            documentation of the engine says otherwise.
                            Collectives without a reduction move elements of
                            every dtype */
    uint32_t reductions; /* mask (CORE_REDUCE_MASK) */
    uint32_t kinds;      /* mask (CORE_COLLECTIVE_MASK) of the collectives
                            after CORE_COLLECTIVE_BARRIER that the engine has;
                            every engine has the first eight */
    core_string engine;  /* a name such as "mpi", of 1 to 31 bytes.  Of several
                           plugins with the same, the first whose probe
                           succeeds is used */

    /* Checks whether the engine can be used in this process, for example
     * whether its library is found and the process was started by its launcher.
     * UNSUPPORTED with the reason if not. */
    core_status (*probe)(void *user);

    /* Gets the rank of this process and the number of processes, as the
     * engine's launcher set them.  NULL: the engine has no launcher. */
    core_status (*world)(void *user, uint32_t *out_rank, uint32_t *out_size);

    /* Makes the id of a new communicator, on one rank; the core passes it to
     * the others.  id: CORE_COLLECTIVES_ID_SIZE bytes, zeroed.  NULL: none is
     * needed, because the launcher connects the processes. */
    core_status (*unique_id)(void *user, void *id);

    /* Creates a communicator, which the core destroys; all ranks call it.  id:
     * NULL if unique_id is.  NULL: the engine has create_on_device. */
    core_status (*create)(void *user, uint32_t rank, uint32_t size,
                          const void *id, int64_t timeout_ns, void **out_comm);

    /* Destroys a communicator.  failed: 1 after an error, when other ranks may
     * not have finished their calls; it must then not wait for them. */
    void (*destroy)(void *comm, uint32_t failed);

    /* Creates a communicator for each group of ranks; all ranks call it.  The
     * ranks with the same color form a group, of `size` ranks, in which this
     * process has the given rank.  NULL: the core makes an id for each group
     * and calls create. */
    core_status (*split)(void *comm, uint32_t color, uint32_t rank,
                         uint32_t size, int64_t timeout_ns, void **out_comm);

    /* Gathers `bytes` bytes of every rank, at most 128, in the order of ranks;
     * `mine` is valid until the call returns.  The core uses it to compare the
     * calls of all ranks before each collective and, without unique_id, what
     * they run after create. */
    core_status (*exchange)(void *comm, const void *mine, uint32_t bytes,
                            void *out_all, int64_t timeout_ns);

    /* Runs one collective.  The result of a reduction has the same bits on all
     * ranks. */
    core_status (*run)(void *comm, const core_collective *call);

    /* Makes pending and later calls of all ranks on the communicator fail, as
     * soon as the other ranks can be notified.  Any thread may call it while
     * another function runs, which then returns CORE_ERROR_CANCELLED.  NULL:
     * the other ranks wait until their timeout. */
    void (*abort)(void *comm);

    /* Creates a communicator of the ranks that still work, after an error; all
     * of these ranks call it.  At most one set of ranks goes on.  It may take
     * three times the timeout.  NULL: the engine cannot. */
    core_status (*shrink)(void *comm, int64_t timeout_ns, uint32_t *out_rank,
                          uint32_t *out_size, void **out_comm);

    /* Does what create does, for the memory of a device that the plugin has
     * opened (core_backend), with CORE_DEVICE_FLAT.  `run` is called when the
     * device has finished the work before the collective, and returns when the
     * result is in the device's memory; it may use the device.  The core calls
     * it instead of create, and refuses the devices of other plugins.  NULL:
     * the engine moves host memory. */
    core_status (*create_on_device)(void *user, void *device, uint32_t rank,
                                    uint32_t size, const void *id,
                                    int64_t timeout_ns, void **out_comm);

    /* Runs several collectives, of the same numbers on all ranks, as run does,
     * but at once: no call writes memory that another one uses, and none is a
     * BARRIER, a SEND or a RECV.  The timeout is that of the first.  The core
     * calls it for core_comm_group_end if the engine has create_on_device.
     * NULL: the core calls run for each. */
    core_status (*run_group)(void *comm, const core_collective *calls,
                             uint32_t count);

    /* Does what exchange does, with the timeout of the call, and may do the
     * call with the same messages, if what all ranks pass is the same: *out_ran
     * is then 1 on every rank.  Otherwise it is 0, and nothing was written to
     * the output; if the ranks agree, the core then calls run.  It is called
     * for an ALL_REDUCE of at least one element, while other ranks may be in
     * another call, or in exchange.  NULL: the core calls exchange and run. */
    core_status (*exchange_and_run)(void *comm, const core_collective *call,
                                    const void *mine, uint32_t bytes,
                                    void *out_all, uint32_t *out_ran);
} core_collectives_interface;
CORE_STATIC_ASSERT(sizeof(core_collectives_interface) == 136,
                   "core.collectives");

#ifdef __cplusplus
}
#endif
#endif
