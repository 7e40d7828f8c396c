/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* interposer.h: declarations shared by the files of this folder. */

#ifndef CORE_INTERPOSE_INTERPOSER_H
#define CORE_INTERPOSE_INTERPOSER_H

#include "base/fork.h"
#include "interpose/interposers.h"

#include <pthread.h>
#include <signal.h>

enum { INTERPOSER_VALIDATE = 1, INTERPOSER_TRACE = 2, INTERPOSER_FAULT = 4 };

/* The kinds of calls that `fault` counts; the names in LIBCORE_FAULT, in this
 * order. */
typedef enum interposer_kind {
    INTERPOSER_OPEN,
    INTERPOSER_ALLOC,
    INTERPOSER_COPY,
    INTERPOSER_FILL,
    INTERPOSER_STREAM,
    INTERPOSER_EVENT,
    INTERPOSER_SYNCHRONIZE,
    INTERPOSER_PREPARE,
    INTERPOSER_LAUNCH,
    INTERPOSER_FUNCTION,
    INTERPOSER_INTERFACE,
    INTERPOSER_HOST,
    INTERPOSER_KINDS,
    /* never failed, or cannot report a failure */
    INTERPOSER_NEVER = INTERPOSER_KINDS
} interposer_kind;

typedef enum interposer_object_kind {
    INTERPOSER_MEMORY = 1,
    INTERPOSER_STREAM_OBJECT,
    INTERPOSER_EVENT_OBJECT,
    INTERPOSER_GRAPH_OBJECT,
    INTERPOSER_HOST_OBJECT,
    INTERPOSER_CALL_OBJECT,
    INTERPOSER_KERNEL_OBJECT
} interposer_object_kind;

/* An object that was created and may be used until it is destroyed.  Destroyed
 * ones are kept for a while, so that their use is reported as such. */
typedef struct interposer_object {
    struct interposer_object *next;
    uint32_t kind;
    bool destroyed;
    bool recorded;     /* an event was recorded */
    bool capturing;    /* a stream is capturing */
    const void *owner; /* the device */
    const void *handle;
    uint64_t offset, size;
} interposer_object;

enum {
    INTERPOSER_BUCKETS = 1024,
    INTERPOSER_DESTROYED_MAX = 4096,
    INTERPOSER_ACTIVITY_0_5 = 64 /* sizeof(core_activity) in ABI 0.5 */
};

typedef struct interposer_backend {
    core__retired retired;
    struct interposer_backend *next;
    core__interposers *interposers;
    /* Complete copies of the plugin's tables, and the tables that wrap them. */
    core_backend real, wrapped;
    core_memory_table memory, wrapped_memory;
    core_stream_table streams, wrapped_streams;
    core_event_table events, wrapped_events;
    core__interfaces interfaces, wrapped_interfaces;
    core_hotplug_interface hotplug, wrapped_hotplug;
    uint32_t enumerated;
    char type[32];
} interposer_backend;

/* The core's handle of a device of the plugin. */
typedef struct interposer_device {
    struct interposer_device *next;
    interposer_backend *backend;
    void *impl;
    uint32_t flags;
    uint64_t base_alignment, tail_padding;
    bool open;
    _Atomic bool recording;       /* core.profiler */
    _Atomic uint64_t correlation; /* the greatest that was set */
} interposer_device;

typedef struct interposer_kernel {
    core__retired retired;
    struct interposer_kernel *next;
    interposer_backend *backend;
    core_kernel real, wrapped;
} interposer_kernel;

typedef struct interposer_function {
    core__retired retired;
    struct interposer_function *next;
    core__interposers *interposers;
    core_function function;
    void *user;
    char name[96];
} interposer_function;

typedef struct interposer_shape {
    core__retired retired;
    struct interposer_shape *next;
    core__interposers *interposers;
    core_shape_function function;
    void *user;
    char name[96];
} interposer_shape;

typedef struct interposer_plan {
    interposer_kernel *kernel;
    void *plan;
} interposer_plan;

struct core__interposers {
    core__retired retired;
    char plugin[32];
    uint32_t on;    /* INTERPOSER_… */
    uint32_t minor; /* negotiated */
    pthread_mutex_t lock;
    _Atomic uint8_t lock_mark; /* base/fork.h */
    uint64_t violations;
    char first[512];
    uint64_t counts[INTERPOSER_KINDS];
    struct {
        uint64_t nth; /* 0: never */
        bool all;     /* and every later one */
    } faults[INTERPOSER_KINDS];
    interposer_backend *backends;
    interposer_device *devices;
    interposer_kernel *kernels;
    interposer_function *functions;
    interposer_shape *shapes;
    struct interposer_callback *callbacks;
    interposer_object *objects[INTERPOSER_BUCKETS];
    uint32_t destroyed;
    bool lasting; /* referenced by host.c */
    bool ended;
};

/* State of the process or thread that plugins must not change. */
enum { INTERPOSER_SIGNALS = 65 };
typedef struct interposer_process_state {
    uint32_t reported; /* number of changes already reported */
    uint32_t x87;      /* its control word */
    sigset_t mask;
    void (*handlers[INTERPOSER_SIGNALS])(int);
    const void *own_locale; /* the thread's */
    char locale[256];
} interposer_process_state;

/* A call into the plugin, or out of it. */
typedef struct interposer_call {
    core__interposers *interposers;
    const char *device; /* the backend's type, or "" */
    const char *slot;
    uint32_t errors;     /* sequence of the thread's error record before the
                       * call */
    uint32_t control;    /* of the floating-point unit */
    bool violated;       /* a violation was detected */
    bool to_host;        /* the plugin calls the host */
    uint32_t violations; /* violations of this call */
    char first[256];
    /* Before the call; with validate only. */
    interposer_process_state process_state;
} interposer_call;

/* If the result is not CORE_OK, fail the call with it instead of making it. */
core_status interposer_enter(interposer_call *call,
                             core__interposers *interposers, const char *device,
                             const char *slot, interposer_kind kind);
/* Checks the result of the call, traces it, and returns the status to pass
 * on. */
core_status interposer_leave(interposer_call *call, core_status status,
                             const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* For calls that return nothing. */
void interposer_leave_void(interposer_call *call, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Reports a violation of the contract: the plugin's, unless the text begins
 * with "libcore". */
void interposer_violation(interposer_call *call, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

void interposer_process_state_save(interposer_process_state *out);
/* Reports changes since the state was saved.  with_x87: also of the x87
 * control word, which is not part of a change that is reported already. */
void interposer_process_state_check(interposer_call *call, bool with_x87);

static inline void interposer_lock(core__interposers *interposers)
{
    core__fork_lock(&interposers->lock, &interposers->lock_mark);
}

static inline bool interposer_validates(const core__interposers *interposers)
{
    return interposers->on & INTERPOSER_VALIDATE;
}

/* ------------------------------------------------------------- objects -- */

/* Records a created object.  A violation if its handle is NULL, or if it
 * already exists. */
void interposer_created(interposer_call *call, interposer_object_kind kind,
                        const void *owner, const void *handle, uint64_t offset,
                        uint64_t size);
/* Records its destruction: false, and a violation, if it does not exist. */
bool interposer_destroys(interposer_call *call, interposer_object_kind kind,
                         const void *owner, const void *handle, uint64_t offset,
                         uint64_t size);
/* Records its use.  A violation if it was destroyed; with `known` also if it
 * was never created. */
bool interposer_uses(interposer_call *call, interposer_object_kind kind,
                     const void *owner, const void *handle, bool known);
/* Records the use of memory.  Memory that the plugin did not allocate
 * (imported memory) is not checked. */
bool interposer_uses_memory(interposer_call *call,
                            const interposer_device *device, core_memory memory,
                            uint64_t size);
/* Records the beginning or end of a stream's capture; a violation if it is not
 * possible. */
void interposer_captures(interposer_call *call, const void *owner,
                         const void *stream, bool on);
bool interposer_is_capturing(core__interposers *interposers, const void *owner,
                             const void *stream);
/* Records that the host waits for a stream or, with NULL, for an event: false,
 * and a violation, in a callback, which would wait for itself, and if the
 * stream is capturing. */
bool interposer_waits(interposer_call *call, const void *owner,
                      const void *stream);
/* True while this thread runs a host callback. */
extern _Thread_local bool interposer_in_callback;
/* True while the plugin names a stream that may be private to it. */
extern _Thread_local bool interposer_names_stream;
void interposer_records(interposer_call *call, const void *owner,
                        const void *event);
bool interposer_was_recorded(interposer_call *call, const void *owner,
                             const void *event);
/* Drops all objects of the device (reset), except kernels of loop programs,
 * which are destroyed after a reset too. */
void interposer_objects_drop(core__interposers *interposers, const void *owner);
/* The number of existing objects of a kind. */
uint64_t interposer_alive(core__interposers *interposers,
                          interposer_object_kind kind, const void *owner);
void interposer_objects_free(core__interposers *interposers);

/* -------------------------------------------------------------- tables -- */

/* A slot that the plugin leaves NULL stays NULL, because that has a meaning. */
#define INTERPOSER_KEEP(slot)     \
    do {                          \
        if (!real->slot)          \
            wrapped->slot = NULL; \
    } while (0)

void interposer_wrap_streams(interposer_backend *backend);
void interposer_wrap_events(interposer_backend *backend);
void interposer_callbacks_free(core__interposers *interposers);
extern const core_profiler_interface interposer_profiler;
extern const core_layout_interface interposer_layout;
extern const core_ranges_interface interposer_ranges;
extern const core_hotplug_interface interposer_hotplug;
extern const core_ipc_interface interposer_ipc;
extern const core_codegen_interface interposer_codegen;
/* Checks that a loop from libcore is inside of its memory. */
void interposer_check_loop(interposer_call *call,
                           const interposer_device *device,
                           const core_loop *loop);
const void *interposer_get_interface(void *user, core_string name,
                                     uint32_t version);
/* True if the call runs in this thread; the host accepts no other. */
bool interposer_runs(const core_call *call);
/* The plugin's handle of a device if it is one of ours; other handles (of
 * another backend whose kernels are borrowed) are returned unchanged. */
void *interposer_device_handle(core__interposers *interposers, void *device,
                               interposer_device **out_device);

#endif
