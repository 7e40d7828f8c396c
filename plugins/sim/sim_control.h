/* SPDX-License-Identifier: Apache-2.0 OR MIT-0
 * Copyright The libcore authors */

/* sim_control.h: the table "sim.control", version 1, by which a program makes
 * things go wrong on a simulated device, and counts.  It is had from
 * core_device_interface of any device of the plugin; `device` below is a
 * device's index, which must be open.  Any thread may call everything. */

#ifndef SIM_CONTROL_H
#define SIM_CONTROL_H

#include <libcore/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What fails; LIBCORE_SIM_FAULT="alloc:3,lost:100@1" asks for the same by the
 * names behind, on all devices or the one behind the @. */
enum {
    SIM_FAULT_ALLOC = 0,  /* alloc: out of memory */
    SIM_FAULT_LAUNCH = 1, /* launch: the launch of a kernel */
    SIM_FAULT_COPY = 2,   /* copy: the call of a copy or fill */
    SIM_FAULT_ASYNC = 3,  /* async: a kernel, when it runs: poison */
    SIM_FAULT_LOST = 4,   /* lost: the device, when it comes to that work */
    SIM_FAULT_STREAM = 5, /* stream: making one */
    SIM_FAULT_EVENT = 6,  /* event: making one */
    SIM_FAULT_RECORD = 7, /* record: recording an event */
    SIM_FAULT_WAIT = 8,   /* wait: a stream's wait for an event */
    SIM_FAULT_HOST = 9,   /* host: pinned memory */
    SIM_FAULT_MAP = 10,   /* map: memory behind a reservation */
    SIM_FAULT_GRAPH = 11, /* graph: the launch of one */
    SIM_FAULT_PLAN = 12,  /* plan: compiling one */
    SIM_FAULTS = 13
};

/* Of one device since it was opened, but what is said to be the plugin's. */
typedef struct sim_counters {
    uint32_t struct_size; /* set by the caller to sizeof */
    uint32_t reserved;
    uint64_t blocks; /* that live */
    uint64_t bytes;  /* of blocks, and mapped behind reservations */
    uint64_t blocks_made;
    uint64_t reservations; /* that live */
    uint64_t streams;      /* that live, or still work */
    uint64_t streams_made;
    uint64_t events; /* that live */
    uint64_t events_made;
    uint64_t records;
    uint64_t waits; /* of streams, for events */
    uint64_t launches;
    uint64_t copies; /* and fills */
    uint64_t callbacks;
    uint64_t graphs; /* that live */
    uint64_t graph_launches;
    uint64_t words;  /* error words set */
    uint64_t faults; /* that were asked for, and came */
    /* of the plugin */
    uint64_t compiles;
    uint64_t plans;     /* that live */
    uint64_t pinned;    /* blocks of host memory that live */
    uint64_t conflicts; /* found under LIBCORE_SIM_CHECK */
    uint64_t overruns;  /* freed blocks with something behind their end */
    uint64_t bad_frees; /* frees of what is no block, or is in use */
} sim_counters;

typedef struct sim_control {
    uint32_t struct_size;
    uint32_t reserved;
    /* The nth from now fails (1: the next); 0: none. */
    core_status (*fault)(uint32_t device, uint32_t kind, uint64_t nth);
    core_status (*counters)(uint32_t device, sim_counters *out);
    /* Random delays before work, up to max_us; all devices. */
    core_status (*delay)(uint64_t seed, uint64_t max_us);
    /* While it is held, a device begins no work; nest not.  Who waits for work
     * of a held device waits until it is let go. */
    core_status (*hold)(uint32_t device);
    core_status (*let_go)(uint32_t device);
    core_status (*lose)(uint32_t device);
    /* How much memory all devices have from now on. */
    core_status (*limit)(uint64_t bytes);

    /* A library of the same vendor: streams of its own, for adoption, and work
     * on any stream. */
    core_status (*native_create)(uint32_t device, void **out_native);
    void (*native_destroy)(void *native);
    core_status (*native_fill)(void *native, core_memory memory, uint64_t size,
                               uint8_t value);
    core_status (*native_synchronize)(void *native);

    /* The text of the newest conflict, NUL-terminated; at most size bytes. */
    core_status (*conflict)(char *text, uint64_t size);
} sim_control;

#ifdef __cplusplus
}
#endif
#endif
