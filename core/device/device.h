/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* device.h: backends and their devices, inside the core. */

#ifndef CORE_DEVICE_DEVICE_H
#define CORE_DEVICE_DEVICE_H

#include "base/error.h"
#include "base/settings.h"
#include "base/thread.h"
#include "base/keys.h"

#include <libcore/backend.h>
#include <libcore/kernel.h>

#include <stdatomic.h>
#include <stdbool.h>

typedef struct core_plugin core_plugin;
typedef struct core_stream core_stream;

/* One registered backend.  Lives until its plugin is unloaded. */
typedef struct core__backend {
    char type[32]; /* "cpu" */
    uint32_t slot;
    core_plugin *plugin; /* NULL: built in (meta) */
    core_backend table;  /* full, zero-filled copy, likewise the next three */
    core_memory_table memory;
    core_stream_table streams;
    core_event_table events;
    bool synchronous;      /* no streams */
    uint32_t device_count; /* as enumerated last */
    core_device **devices; /* opened when first asked for */
    char *reason;          /* why there are none */
    char *unasked;         /* names of kernels that no call finds, or NULL */
    void *fallback;        /* core__kernel_set of its kernel for everything */
} core__backend;

/* Optional tables, full copies; one that is absent is all NULL. */
typedef struct core__interfaces {
    core_timing_interface timing;
    core_host_callback_interface host_callback;
    core_host_memory_interface host_memory;
    core_stream_adopt_interface stream_adopt;
    core_stream_priority_interface stream_priority;
    core_virtual_memory_interface virtual_memory;
    core_peer_interface peer;
    core_graph_capture_interface graph_capture;
    core_device_reset_interface device_reset;
    core_stream_error_interface stream_error;
    core_numerics_interface numerics;
    core_telemetry_interface telemetry;
    core_fork_safe_interface fork_safe;
    core_allocator_interface allocator;
    core_profiler_interface profiler;
    core_layout_interface layout;
    core_ranges_interface ranges;
} core__interfaces;

enum { CORE__DEVICE_FORMATS = 64 };

struct core_device {
    _Atomic uint32_t references; /* one is the backend's */
    uint32_t index;
    core__backend *backend;
    char name[40];  /* "cpu", "cuda:1" */
    uint64_t keys;  /* CORE__KEY_SLOT */
    uint32_t flags; /* CORE_DEVICE_… of the properties */
    bool meta;
    bool synchronous;
    /* It is one of the process that this one was forked from, and has streams
     * or a plugin that is not core.fork_safe: nothing of it is used, waited for,
     * locked or given back here. */
    bool forked;
    bool small_blocks;   /* threads keep its small blocks: memory/ */
    void *impl;          /* backend's word */
    core_stream *stream; /* default stream; its impl is NULL when
                                 synchronous */
    uint32_t ordinal;    /* small, unique among open devices */
    /* Counts losses and resets: what is older is stale.  Between a loss and
     * the reset, `lost` is set, and the plugin still knows what is one older. */
    _Atomic uint32_t generation;
    _Atomic bool lost;
    char *loss; /* why */
    _Atomic uint64_t events_made;
    /* For core_device_get_counts.  Launches are counted by the threads; what
     * they had counted before it was opened is taken off. */
    uint32_t launch_slot;
    uint64_t launches_before;
    _Atomic uint64_t fallbacks;
    _Atomic uint64_t graphs;
    core__interfaces interfaces; /* NULL where the plugin has none */
    core_memory_table memory;    /* hot copy */
    core_device_properties properties;
    core_device_information information;
    void *allocator; /* memory/allocator.h; NULL: host blocks (memory.c) */
    void *host_pool; /* memory/: pinned blocks */
    void *event_stock;
    struct core__queues *queues;                    /* NULL when synchronous */
    _Atomic uint64_t formats[CORE__DEVICE_FORMATS]; /* layout.c */
};

enum { CORE__ORDINAL_META = 0 };

extern core_stream core__meta_stream;
extern core_device core__meta_device;
extern core__backend core__meta_backend;

/* Lock of the registry of backends and devices. */
core_status core__backend_add(const core_backend *table, core_plugin *plugin,
                              core__backend **out_backend);
void core__backend_remove(core__backend *backend);
/* Called with each device that is going to be closed, no lock held; NULL until
 * someone (autograd's workers) has something to end then. */
extern void (*_Atomic core__device_closing)(core_device *device);
core__backend *core__backend_by_type(const char *type, size_t size);
core__backend *core__backend_by_slot(uint32_t slot);
/* No thread and no cache holds the device any more: before it is closed. */
void core__device_forget(core_device *device);
void core__device_lock(void);
void core__device_unlock(void);
core_status core__backend_enumerate(core__backend *backend);
/* Enumerates if not done; opens. */
core_status core__backend_device(core__backend *backend, uint32_t index,
                                 core_device **out_device);

/* The device of a call that names none. */
core_status core__device_current(core_device **out_device);
/* The same, where that takes no search; else NULL. */
extern core_device *_Atomic core__default_device;
extern _Atomic uint32_t core__default_device_of; /* settings' generation then */
static inline core_device *core__device_current_known(const core__thread *self)
{
    core_device *device = self->device;

    if (device)
        return device;
    device = atomic_load_explicit(&core__default_device, memory_order_acquire);
    return device && atomic_load_explicit(&core__default_device_of,
                                          memory_order_acquire) ==
                         core__settings_generation()
               ? device
               : NULL;
}
/* The host's own device: "cpu". */
core_status core__device_host(core_device **out_device);

static inline bool core__device_host_access(const core_device *device)
{
    return device->flags & CORE_DEVICE_HOST_ACCESS;
}

/* What a plugin's call for this device answered: a loss is noted.  Returns
 * status. */
core_status core__device_result(core_device *device, core_status status);
/* DEVICE_LOST, and why, for what was made in an older generation. */
core_status core__device_stale(core_device *device);
/* Where a lock or the plugin would be met before any other check: CORE_OK, or
 * the error of a device of the process before the fork. */
static inline core_status core__device_here(core_device *device)
{
    return core__unlikely(device->forked) ? core__device_stale(device)
                                          : CORE_OK;
}
/* In a child of fork (base/fork.h tells all of them). */
void core__device_forked(core_device *device);
/* Whether the plugin still knows an object of that generation, so that it is
 * to be destroyed; else it is gone already. */
static inline bool core__device_knows(const core_device *device,
                                      uint32_t generation)
{
    uint32_t now = atomic_load(&device->generation);

    return generation == now ||
           (generation + 1 == now && atomic_load(&device->lost));
}

/* All work on this thread's stream of the device is done (stream.h); the one
 * place in which the core waits for data.  reason is counted and reported. */
core_status core__host_wait(core_device *device, const char *reason);

/* As much of a struct as the caller has room for: both begin with their
 * struct_size. */
void core__device_give(void *out, const void *from, size_t size);

/* In the child of a fork: the devices, and what is known of their state. */
void core__devices_forked(void);
void core__state_forked(void);

/* Checks the text of LIBCORE_DEVICE; whether there is such a device is found
 * out when it is used. */
core_status core__device_name_check(const char *text);

#endif
