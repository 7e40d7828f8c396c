/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* sim.h: a simulated accelerator with strict checks.
 *
 * It tests the core without hardware.  Its devices have memory that the host
 * cannot access, poisoned when it is new and when it is freed; each stream is a
 * thread that runs its work later, after random delays; a missing wait shows as
 * a wrong number, as a fault, or, under LIBCORE_SIM_CHECK=1, as an error that
 * names both operators (race.h).  It builds from installed headers alone.  It
 * borrows the CPU's kernels through the host table.
 *
 * Threads: one lock, sim_lock, guards everything except the contents of device
 * memory; kernels, host callbacks and calls of the host table run without
 * it. */

#ifndef SIM_H
#define SIM_H

#include <libcore/sdk.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct sim_device sim_device;
typedef struct sim_stream sim_stream;
typedef struct sim_event sim_event;
typedef struct sim_marker sim_marker;
typedef struct sim_work sim_work;
typedef struct sim_clock sim_clock;
typedef struct sim_graph sim_graph;
typedef struct sim_plan sim_plan;
typedef struct sim_profile sim_profile;

extern const core_host *sim_host;
extern pthread_mutex_t sim_lock;

/* ------------------------------------------------------------- settings -- */

enum { SIM_DEVICES = 64, SIM_FAULT_KINDS = 13 };

typedef struct sim_settings {
    uint64_t devices;
    uint64_t queues; /* 0: unlimited */
    uint64_t copy_queues;
    uint64_t seed;
    uint64_t delay_us; /* the longest delay */
    uint64_t check;    /* 1: race.h */
    bool flat;         /* memory has addresses */
    uint64_t bytes;    /* of memory, per device; the rest are properties */
    uint64_t alignment;
    uint64_t granularity;
    uint64_t tail;
    uint64_t largest;
    uint64_t compile;  /* 1: plan.h */
    uint64_t own;      /* 1: the device manages its memory */
    uint64_t profiler; /* 1: profile.h; 2: refuses to start */
    uint64_t layout;   /* 1: convolutions prefer channels-last */
    uint64_t codegen;  /* 1: codegen.h */
} sim_settings;

extern sim_settings sim_set;

/* Reads LIBCORE_SIM_…; an invalid value is an error. */
core_status sim_settings_read(void);

/* -------------------------------------------------------------- devices -- */

struct sim_device {
    uint32_t index; /* in sim_devices, and part of its id */
    bool open;
    _Atomic bool present; /* hotplug.c */
    _Atomic bool lost;
    bool held; /* starts no new work */
    pthread_cond_t released;
    sim_stream *streams; /* all that exist or still have work */
    sim_event *events;
    sim_graph *graphs;
    struct sim_memory *memory; /* block.h */
    sim_profile *profile;
    _Atomic uint64_t
        faults[SIM_FAULT_KINDS]; /* operations left until it occurs; 0: never */
    struct {
        uint64_t streams_created, events, events_created, records, waits,
            launches;
        uint64_t copies, callbacks, graphs, graph_launches, stream_errors;
        _Atomic uint64_t faults;
    } count;
    char name[16]; /* "sim:1" */
    char id[16];
};

extern sim_device sim_devices[SIM_DEVICES];

/* hotplug.c: which devices are present, and in which order. */
void sim_hotplug_open(void);
uint32_t sim_hotplug_count(void);
/* Returns the device at an index of the enumeration; NULL: there is none. */
sim_device *sim_hotplug_device(uint32_t index);
core_status sim_hotplug_remove(uint32_t device);
core_status sim_hotplug_add(uint32_t device);
core_status sim_hotplug_reverse(void);
void sim_hotplug_watch(core_status (*function)(void *user), void *user);
core_status sim_hotplug_before_read(void);
/* Removes and adds the devices that LIBCORE_SIM_ABSENT says. */
core_status sim_hotplug_update(void);
extern const core_hotplug_interface sim_hotplug;
extern const core_ipc_interface sim_ipc;

/* Returns CORE_OK, or why the device cannot be used: lost, or in a forked
 * child. */
core_status sim_usable(const sim_device *device);
void sim_device_set_lost(sim_device *device,
                         const char *reason); /* under the lock */
/* Returns true in a child of fork, which has no workers. */
bool sim_forked(void);

/* --------------------------------------------------------------- memory -- */

extern const core_memory_table sim_memory_table;

/* Replaces the device's memory; on failure the old memory remains. */
core_status sim_memory_open(sim_device *device);
void sim_memory_close(sim_device *device);
/* Returns the host address of `size` bytes of device memory, for running work.
 * The error message says what is wrong with the range. */
core_status sim_memory_resolve(sim_device *device, core_memory memory,
                               uint64_t size, void **out_address);

/* -------------------------------------------------------------- streams -- */

extern const core_stream_table sim_stream_table;

enum { SIM_TEXT = 400 };

/* The error that poisoned a stream, or its data error. */
typedef struct sim_failure {
    core_status code;
    uint64_t call_id;
    char text[SIM_TEXT];
} sim_failure;

struct sim_stream {
    sim_stream *next; /* of the device */
    sim_device *device;
    uint32_t references; /* held by markers, the worker, the device's list */
    uint32_t holders;    /* create and adopt, minus destroy */
    uint64_t id;
    int32_t priority;
    uint32_t kind; /* CORE_STREAM_… */
    bool started;
    bool idle;    /* the worker sleeps until there is work */
    bool busy;    /* has work that is not waiting */
    bool running; /* its worker is running work */
    bool closing; /* ends when all work is done */
    pthread_t thread;
    pthread_cond_t wake;     /* the worker */
    pthread_cond_t progress; /* wakes waiters for a number */
    sim_work *first;
    sim_work *last;
    uint64_t given;
    uint64_t done;
    uint64_t awaited; /* the smallest number that is waited for */
    uint64_t random;
    uint32_t place; /* index in clocks */
    uint64_t time;
    uint64_t host_version; /* the version of the host's clock that it knows */
    sim_clock *clock;
    pthread_t turn_of; /* the thread that runs a call instead of the worker */
    sim_graph *graph;  /* being captured */
    uint64_t turn;     /* the number of that call; 0: none */
    sim_failure failure;
    sim_failure data_error;
};

/* A unit of work.  run is called at most once; then end is called, always. */
struct sim_work {
    sim_work *next;
    uint64_t number;
    uint64_t time; /* the stream's clock */
    sim_stream *stream;
    core_status (*run)(sim_work *work);
    void (*end)(sim_work *work); /* releases its references */
    core_operator *op;           /* of a kernel */
    const core_loop *loop;       /* of a loop program; codegen.c */
    uint64_t call_id;
    uint64_t correlation; /* profile.h */
    uint64_t session;
    const char *what; /* name of other work, such as "fill" */
    sim_marker *marker;
    bool records;      /* records the marker; otherwise waits for it */
    bool undelayed;    /* runs without the random delay */
    bool loses_device; /* the device is lost with it */
    bool fails;        /* injected failure */
    char *conflict;    /* why it must not run */
    bool turn;         /* holds the stream for its caller */
    pthread_t caller;  /* of a turn */
    sim_graph *graph;  /* the graph of which it is a replay */
    sim_plan *plan;
    core_memory to;
    core_memory from;
    sim_device *from_device;
    void *host;
    uint64_t size;
    uint64_t pattern;
    uint32_t pattern_size;
    core_memory scratch; /* of a loop program */
    uint64_t scratch_size;
    uint32_t nargs;
    uint32_t nresults;
    core_call *call;
    const core_value *args;
    core_value *results;
    const core_kernel *kernel;
    void (*function)(void *context);
    void (*drop)(void *context);
    void *context;
};

static inline bool sim_is_kernel(const sim_work *work)
{
    return work->op || work->loop;
}

/* The work that this thread, a worker, is running; else NULL. */
extern _Thread_local sim_work *sim_running;

/* Appends a copy of *work to the stream.  On failure the caller keeps its
 * references. */
core_status sim_enqueue(sim_stream *stream, const sim_work *work);
core_status sim_enqueue_locked(sim_stream *stream, const sim_work *work);
/* Waits (with the lock) until the stream has passed a number. */
void sim_stream_await(sim_stream *stream, uint64_t number);
/* Waits until the work that its worker is running has ended. */
void sim_stream_await_running(sim_stream *stream);
/* Returns the stream's failure as this thread's error; CORE_OK if it has
 * none. */
core_status sim_stream_report(const sim_failure *failure, uint32_t severity);
void sim_stream_unref(sim_stream *stream); /* under the lock */
/* Between begin, which waits for earlier work, and end, the caller runs a call
 * instead of the stream's worker. */
core_status sim_stream_run_inline_begin(sim_stream *stream,
                                        const sim_work *call);
void sim_stream_run_inline_end(sim_stream *stream);
/* Records a failure of work, or of this thread's newest error: data errors set
 * the stream's error, others poison it. */
void sim_stream_failed(sim_stream *stream, const sim_work *work,
                       core_status status);
void sim_stream_error_set(sim_stream *stream, core_status code,
                          uint64_t call_id,
                          const char *text); /* under the lock */
/* Joins the workers of ended streams; all of them, once they have been asked to
 * end. */
void sim_streams_close(sim_device *device);
extern const core_stream_error_interface sim_stream_error;
extern const core_peer_interface sim_peer;
extern const core_host_callback_interface sim_host_callback;
extern const core_timing_interface sim_timing;
extern const core_stream_adopt_interface sim_stream_adopt;
extern const core_stream_priority_interface sim_stream_priority;
extern const core_virtual_memory_interface sim_virtual_memory;
extern const core_device_reset_interface sim_device_reset;
extern const core_host_memory_interface sim_host_memory;
extern const core_allocator_interface sim_allocator;
extern const core_profiler_interface sim_profiler;
extern const core_layout_interface sim_layout;
extern _Atomic bool sim_errors_taken; /* the core reads stream errors itself */

/* --------------------------------------------------------------- events -- */

extern const core_event_table sim_event_table;

/* A position in a stream. */
struct sim_marker {
    uint32_t references;
    sim_stream *stream;
    uint64_t number;
    int64_t time_ns; /* when the stream passed it */
    sim_clock *clock;
    sim_failure failure;
};

void sim_marker_unref(sim_marker *marker); /* under the lock */
bool sim_marker_done(const sim_marker *marker);

/* -------------------------------------------------------------- kernels -- */

/* Registers every kernel of the CPU for this device. */
core_status sim_register_kernels(core_registry *registry);
void sim_kernels_close(void);

extern const core_graph_capture_interface sim_graph_capture;
extern _Atomic uint64_t sim_compiles;
extern _Atomic uint64_t sim_plans; /* that exist */

#endif
