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
    CORE_DEVICE_HAS_F64 = 1u << 3      /* f64 kernels exist */
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
} core_device_properties;
CORE_STATIC_ASSERT(sizeof(core_device_properties) == 56, "properties");

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
 * every call is complete when it returns. */
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

/* An event snapshots the work of a stream when it is recorded. */
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

#ifdef __cplusplus
}
#endif
#endif
