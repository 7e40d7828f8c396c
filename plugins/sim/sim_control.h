/* SPDX-License-Identifier: Apache-2.0 OR MIT-0
 * Copyright The libcore authors */

/* sim_control.h: the table "sim.control", version 1, by which a program injects
 * failures into a simulated device and reads counters.  Get it with
 * core_device_interface from any device of the plugin; `device` below is the
 * index of an open device.  Thread-safe. */

#ifndef SIM_CONTROL_H
#define SIM_CONTROL_H

#include <libcore/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Failures.  LIBCORE_SIM_FAULT="alloc:3,lost:100@1" requests the same by the
 * names in the comments, on all devices or on the one after the @. */
enum {
    SIM_FAULT_ALLOC = 0,  /* alloc: out of memory */
    SIM_FAULT_LAUNCH = 1, /* launch: the launch of a kernel */
    SIM_FAULT_COPY = 2,   /* copy: the submission of a copy or fill */
    SIM_FAULT_ASYNC = 3,  /* async: a kernel, when it runs: poisons the
                           * stream */
    SIM_FAULT_LOST = 4,   /* lost: the device, when it reaches that work */
    SIM_FAULT_STREAM = 5, /* stream: creating one */
    SIM_FAULT_EVENT = 6,  /* event: creating one */
    SIM_FAULT_RECORD = 7, /* record: recording an event */
    SIM_FAULT_WAIT = 8,   /* wait: a stream's wait for an event */
    SIM_FAULT_HOST = 9,   /* host: pinned memory */
    SIM_FAULT_MAP = 10,   /* map: mapping memory into a reservation */
    SIM_FAULT_GRAPH = 11, /* graph: the launch of one */
    SIM_FAULT_PLAN = 12,  /* plan: compiling one */
    SIM_FAULTS = 13
};

/* Counters of one device since it was opened, except for those of the
 * plugin. */
typedef struct sim_counters {
    uint32_t struct_size; /* set by the caller to sizeof */
    uint32_t reserved;
    uint64_t blocks; /* that exist */
    uint64_t bytes;  /* of blocks, and mapped into reservations */
    uint64_t blocks_created;
    uint64_t reservations; /* that exist */
    uint64_t streams;      /* that exist or still have work */
    uint64_t streams_created;
    uint64_t events; /* that exist */
    uint64_t events_created;
    uint64_t records;
    uint64_t waits; /* of streams, for events */
    uint64_t launches;
    uint64_t copies; /* including fills */
    uint64_t callbacks;
    uint64_t graphs; /* that exist */
    uint64_t graph_launches;
    uint64_t stream_errors; /* stream errors set */
    uint64_t faults;        /* injected failures that occurred */
    uint64_t imports;       /* open memory of core.ipc */
    /* of the plugin */
    uint64_t compiles;
    uint64_t plans;     /* that exist */
    uint64_t pinned;    /* blocks of pinned host memory that exist */
    uint64_t conflicts; /* found under LIBCORE_SIM_CHECK */
    uint64_t overruns;  /* freed blocks that were written past their end */
    uint64_t bad_frees; /* frees of invalid blocks, or of blocks in use */
} sim_counters;

typedef struct sim_control {
    uint32_t struct_size;
    uint32_t reserved;
    /* Makes the nth operation from now on fail (1: the next); 0: none. */
    core_status (*fault)(uint32_t device, uint32_t kind, uint64_t nth);
    core_status (*counters)(uint32_t device, sim_counters *out);
    /* Sets random delays before work, up to max_us, on all devices. */
    core_status (*delay)(uint64_t seed, uint64_t max_us);
    /* A held device starts no new work; do not nest.  Waiting for its work
     * blocks until it is released. */
    core_status (*hold)(uint32_t device);
    core_status (*release)(uint32_t device);
    core_status (*lose)(uint32_t device);
    /* Sets the memory size of all devices. */
    core_status (*limit)(uint64_t bytes);

    /* Simulate a library of the same vendor: its own streams, for adoption, and
     * its work on any stream. */
    core_status (*native_create)(uint32_t device, void **out_native);
    void (*native_destroy)(void *native);
    core_status (*native_fill)(void *native, core_memory memory, uint64_t size,
                               uint8_t value);
    core_status (*native_synchronize)(void *native);

    /* Copies the text of the newest conflict, NUL-terminated; at most size
     * bytes. */
    core_status (*conflict)(char *text, uint64_t size);

    /* Simulate changes of the hardware, which are announced to the core
     * (core.hotplug).  `device` is the number in the device's stable id,
     * "sim-1": below 64. */
    core_status (*remove)(uint32_t device);
    core_status (*add)(uint32_t device);
    core_status (*reverse)(void); /* the order of the enumeration */
    /* Calls the function at the start of each enumerate, device_id and
     * device_open, without locks, so that it can change the list.  A status
     * that is not CORE_OK is returned by that call.  NULL: no longer. */
    void (*watch)(core_status (*function)(void *user), void *user);
} sim_control;

#ifdef __cplusplus
}
#endif
#endif
