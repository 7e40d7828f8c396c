/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* device.h: backends and their devices. */

#ifndef CORE_DEVICE_DEVICE_H
#define CORE_DEVICE_DEVICE_H

#include "base/fork.h"
#include "base/error.h"
#include "base/settings.h"
#include "base/thread.h"
#include "base/keys.h"

#include <libcore/backend.h>
#include <libcore/codegen.h>
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
    core_backend table;  /* complete, zero-filled copies, like the next three */
    core_memory_table memory;
    core_stream_table streams;
    core_event_table events;
    bool synchronous;      /* no streams */
    uint32_t device_count; /* from the last enumeration */
    core_device **devices; /* each opened at its first use */
    const char *reason;    /* why there are no devices; lives as long as the
                            * process */
    /* Names of kernels that are never called, or NULL. */
    char *unmatched_kernels;
    void *fallback; /* core__kernel_set of its fallback kernel */
    /* It is being removed: nothing is registered for it any more.  Guarded by
     * the lock of registrations. */
    bool leaving;
    /* core.hotplug (device/hotplug.c); NULL where the plugin has none. */
    core_hotplug_interface hotplug;
    _Atomic bool hotplug_missing; /* it was queried, and there is none */
    _Atomic bool changed;         /* announced since the last enumeration */
    struct core__device_place *places; /* of each device, with hotplug */
} core__backend;

/* Larger numbers are taken for a mistake of the plugin.  How often the core
 * reads the list of devices again that changed meanwhile. */
enum { CORE__DEVICES_LIMIT = 4096, CORE__HOTPLUG_ATTEMPTS = 16 };

/* Where a device is in the plugin's enumeration. */
typedef struct core__device_place {
    const char *id;    /* lives as long as the process */
    uint32_t position; /* UINT32_MAX: not present */
} core__device_place;

/* Complete copies of the optional tables; all NULL where the plugin has
 * none. */
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
    core_ipc_interface ipc;
    core_codegen_interface codegen;
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
    /* The device was opened by the process that this one was forked from, and
     * it has streams or its plugin does not offer core.fork_safe: it is not
     * used, waited for, locked or closed in this process. */
    bool forked;
    bool small_blocks;   /* threads cache its small blocks (memory/memory.c) */
    void *impl;          /* the backend's handle */
    core_stream *stream; /* default stream; its impl is NULL if synchronous */
    uint32_t ordinal;    /* small, unique among open devices */
    /* Counts losses and resets: objects of another generation are stale.
     * Between a loss and the reset, `lost` is set, and the plugin still has
     * the objects of the previous generation. */
    _Atomic uint32_t generation;
    _Atomic bool lost;
    char *loss; /* the reason */
    _Atomic uint64_t events_created;
    /* For core_device_get_counts.  Threads count launches; launches_before is
     * their count when the device was opened. */
    uint32_t launch_slot;
    uint64_t launches_before;
    _Atomic uint64_t fallbacks;
    _Atomic uint64_t graphs;
    core__interfaces interfaces; /* NULL where the plugin has none */
    core_memory_table memory;    /* copy for fast access */
    core_device_properties properties;
    core_device_information information;
    void *allocator; /* memory/allocator.h; NULL: blocks of host memory
                      * (memory/memory.c) */
    void *host_pool; /* pinned blocks (memory/host_memory.c) */
    void *event_stock;
    struct core__queues *queues; /* NULL when synchronous */
    /* dispatch/preferred_layout.c */
    _Atomic uint64_t formats[CORE__DEVICE_FORMATS];
};

enum { CORE__ORDINAL_META = 0 };

extern core_stream core__meta_stream;
extern core_device core__meta_device;
extern core__backend core__meta_backend;

/* The lock of the registry of backends and devices guards these. */
core_status core__backend_add(const core_backend *table, core_plugin *plugin,
                              core__backend **out_backend);
void core__backend_remove(core__backend *backend);
/* The device of an index, or NULL if it is not open; false if there is no such
 * device. */
bool core__backend_device_at(const core__backend *backend, uint32_t index,
                             core_device **out_device);
/* Whether objects of the device exist.  Closes imported memory that no work uses
 * any more. */
bool core__device_is_in_use(core_device *device);
/* Called without locks for each device that is about to be closed; NULL until
 * autograd's workers have something to end. */
extern void (*_Atomic core__device_closing)(core_device *device);
core__backend *core__backend_by_type(const char *type, size_t size);
core__backend *core__backend_by_slot(uint32_t slot);
/* NOT_FOUND, with the device types of the loaded backends. */
core_status core__backend_not_found(const char *type, size_t size);
/* Removes the device from all threads and caches, before it is closed. */
void core__device_remove_from_threads(core_device *device);
void core__device_lock(void);
void core__device_unlock(void);
core_status core__backend_enumerate(core__backend *backend);
/* Calls enumerate.  The reason lives as long as the process. */
core_status core__backend_call_enumerate(core__backend *backend,
                                         uint32_t *out_count,
                                         const char **out_reason);
/* Matches the devices that the plugin enumerates now with the known ones, by
 * their ids; adds new ones, and loses those that are missing.  If this fails, or
 * the devices keep changing, the last list remains and the next lookup tries
 * again.  With the lock held. */
core_status core__hotplug_enumerate(core__backend *backend);
/* The plugin's index of a device.  NO_DEVICE if it is not present. */
core_status core__hotplug_position(const core__backend *backend, uint32_t index,
                                   uint32_t *out_position);
/* BUSY if the plugin opened a device with another id. */
core_status core__hotplug_check_id(const core_device *device);
/* For core_host.devices_changed. */
core_status core__devices_changed(core_string device_type);
/* Notes that the devices of a type changed; false: no backend has the type. */
bool core__backend_note_change(core_string device_type, bool *out_supported);
/* Marks a device as lost for a reason that its plugin did not report. */
void core__device_lose(core_device *device, const char *reason);
/* Enumerates the devices if that was not done, and opens the device. */
core_status core__backend_device(core__backend *backend, uint32_t index,
                                 core_device **out_device);

/* The device of a call that names none. */
core_status core__device_current(core_device **out_device);
/* The same if it is known without a search, else NULL. */
extern core_device *_Atomic core__default_device;
/* generation of the settings at that time */
extern _Atomic uint32_t core__default_device_generation;
static inline core_device *core__device_current_known(const core__thread *self)
{
    core_device *device = self->device;

    if (device)
        return device;
    device = atomic_load_explicit(&core__default_device, memory_order_acquire);
    return device && atomic_load_explicit(&core__default_device_generation,
                                          memory_order_acquire) ==
                         core__settings_generation()
               ? device
               : NULL;
}
/* The host's device: "cpu". */
core_status core__device_host(core_device **out_device);

static inline bool core__device_host_access(const core_device *device)
{
    return device->flags & CORE_DEVICE_HOST_ACCESS;
}

/* The error record of a plugin's call for this device that returned status; a
 * generic one if the call set none.  errors: core__error_sequence before the
 * call. */
core__error_record *core__device_error_record(const core_device *device,
                                              core_status status,
                                              uint32_t errors);
/* Handles the status of a plugin's call for this device: a loss is recorded.
 * errors: as above.  Returns the status. */
core_status core__device_check_status(core_device *device, core_status status,
                                      uint32_t errors);
/* Fails with DEVICE_LOST and the reason, for objects of an older generation. */
core_status core__device_stale_error(core_device *device);
/* For functions that would take a lock or call the plugin before any other
 * check: fails if the device belongs to the process before a fork. */
static inline core_status core__device_check_process(core_device *device)
{
    return core__unlikely(device->forked) ? core__device_stale_error(device)
                                          : CORE_OK;
}
/* For a child of fork (base/fork.h describes these functions). */
void core__device_after_fork(core_device *device);
/* True if the plugin still has objects of that generation, so that they must
 * be destroyed. */
static inline bool core__device_has_generation(const core_device *device,
                                               uint32_t generation)
{
    uint32_t now = atomic_load(&device->generation);

    return generation == now ||
           (generation + 1 == now && atomic_load(&device->lost));
}

/* Waits until all work on this thread's stream of the device is done
 * (stream.h).  The only place where the core waits for data.  reason is
 * counted and reported. */
core_status core__host_wait(core_device *device, const char *reason);

/* Copies as much of a struct as fits the caller's struct_size; both begin with
 * that field. */
void core__device_copy_struct(void *out, const void *from, size_t size);

/* For the child of a fork: renews the locks of the devices and of their
 * state. */
void core__devices_after_fork(void);
/* Fork handler of the lock of backends and devices: a fork waits while another
 * thread opens a plugin or a device, but at most core__device_fork_wait
 * milliseconds, which tests change. */
void core__devices_fork(core__fork_phase at);
extern int core__device_fork_wait;
/* In a child: another thread of the parent had the lock. */
bool core__device_fork_interrupted(void);
void core__device_health_after_fork(void);

/* Checks the form of LIBCORE_DEVICE.  Whether the device exists is found out
 * when it is used. */
core_status core__device_name_check(const char *text);

#endif
