/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* interposer.h: what the files of this folder share. */

#ifndef CORE_LAYERS_LAYER_H
#define CORE_LAYERS_LAYER_H

#include "base/fork.h"
#include "interpose/interposers.h"

#include <pthread.h>
#include <signal.h>

enum { LAYER_VALIDATE = 1, LAYER_TRACE = 2, LAYER_FAULT = 4 };

/* What `fault` counts; the words of LIBCORE_FAULT, in this order. */
typedef enum layer_kind {
    LAYER_OPEN,
    LAYER_ALLOC,
    LAYER_COPY,
    LAYER_FILL,
    LAYER_STREAM,
    LAYER_EVENT,
    LAYER_SYNCHRONIZE,
    LAYER_PREPARE,
    LAYER_LAUNCH,
    LAYER_FUNCTION,
    LAYER_INTERFACE,
    LAYER_HOST,
    LAYER_KINDS,
    LAYER_NEVER = LAYER_KINDS /* fails never, or has no way to say so */
} layer_kind;

typedef enum layer_object_kind {
    LAYER_MEMORY = 1,
    LAYER_STREAM_OBJECT,
    LAYER_EVENT_OBJECT,
    LAYER_GRAPH_OBJECT,
    LAYER_HOST_OBJECT,
    LAYER_CALL_OBJECT
} layer_object_kind;

/* Something that has been made and is to be used until it is destroyed.  Gone
 * ones are remembered for a while: who uses one is told that. */
typedef struct layer_object {
    struct layer_object *next;
    uint32_t kind;
    bool gone;
    bool recorded;     /* an event was */
    bool capturing;    /* a stream is */
    const void *owner; /* the device */
    const void *word;  /* handle */
    uint64_t offset, size;
} layer_object;

enum {
    LAYER_BUCKETS = 1024,
    LAYER_GONE_MAX = 4096,
    LAYER_ACTIVITY_0_5 = 64 /* sizeof(core_activity) when it came */
};

typedef struct layer_backend {
    core__retired retired;
    struct layer_backend *next;
    core__layers *layers;
    /* The plugin's own, in full copies, and what stands for them. */
    core_backend real, wrapped;
    core_memory_table memory, wrapped_memory;
    core_stream_table streams, wrapped_streams;
    core_event_table events, wrapped_events;
    core__interfaces interfaces, wrapped_interfaces;
    uint32_t enumerated;
    char type[32];
} layer_backend;

/* What the core has for a device of the plugin's. */
typedef struct layer_device {
    struct layer_device *next;
    layer_backend *backend;
    void *impl;
    uint32_t flags;
    uint64_t base_alignment, tail_padding;
    bool open;
    _Atomic bool recording;       /* core.profiler */
    _Atomic uint64_t correlation; /* the greatest that was given */
} layer_device;

typedef struct layer_kernel {
    core__retired retired;
    struct layer_kernel *next;
    layer_backend *backend;
    core_kernel real, wrapped;
} layer_kernel;

typedef struct layer_function {
    core__retired retired;
    struct layer_function *next;
    core__layers *layers;
    core_function function;
    void *user;
    char name[96];
} layer_function;

typedef struct layer_plan {
    layer_kernel *kernel;
    void *plan;
} layer_plan;

struct core__layers {
    core__retired retired;
    char plugin[32];
    uint32_t on;    /* LAYER_… */
    uint32_t minor; /* negotiated */
    pthread_mutex_t lock;
    _Atomic uint8_t lock_mark; /* base/fork.h */
    uint64_t breaches;
    char first[512];
    uint64_t counts[LAYER_KINDS];
    struct {
        uint64_t nth; /* 0: never */
        bool all;     /* and every later one */
    } faults[LAYER_KINDS];
    layer_backend *backends;
    layer_device *devices;
    layer_kernel *kernels;
    layer_function *functions;
    struct layer_callback *callbacks;
    layer_object *objects[LAYER_BUCKETS];
    uint32_t gone;
    bool lasting; /* host.c keeps it */
    bool ended;
};

/* What is the process's or the thread's, and no plugin's to change. */
enum { LAYER_SIGNALS = 65 };
typedef struct layer_manners {
    uint32_t told; /* changes that are no news */
    uint32_t x87;  /* its control word */
    sigset_t mask;
    void (*handlers[LAYER_SIGNALS])(int);
    const void *own_locale; /* the thread's */
    char locale[256];
} layer_manners;

/* One call into the plugin, or out of it. */
typedef struct layer_call {
    core__layers *layers;
    const char *device; /* the backend's type, or "" */
    const char *slot;
    uint32_t errors;  /* the thread's error record before */
    uint32_t control; /* of the floating-point unit */
    bool broken;      /* a breach was seen: what was found wrong */
    bool outwards;    /* the plugin calls the host */
    uint32_t told;    /* breaches of this call */
    char first[256];
    layer_manners manners; /* before; with validate only */
} layer_call;

/* Not CORE_OK: fail the call with that, and do not make it. */
core_status layer_enter(layer_call *call, core__layers *layers,
                        const char *device, const char *slot, layer_kind kind);
/* Checks what the call answered, traces it, and returns what to answer. */
core_status layer_leave(layer_call *call, core_status status,
                        const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* For calls that answer nothing. */
void layer_leave_void(layer_call *call, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A breach of the contract.  The plugin's, unless the text begins with
 * "libcore". */
void layer_breach(layer_call *call, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

void layer_manners_note(layer_manners *out);
/* Breaches, for what is not as it was noted.  with_x87: that unit is no part of
 * a change that is told already. */
void layer_manners_check(layer_call *call, bool with_x87);

static inline void layer_lock(core__layers *layers)
{
    core__fork_lock(&layers->lock, &layers->lock_mark);
}

static inline bool layer_validates(const core__layers *layers)
{
    return layers->on & LAYER_VALIDATE;
}

/* ------------------------------------------------------------- objects -- */

/* Something was made.  A breach if the same lives already. */
void layer_made(layer_call *call, layer_object_kind kind, const void *owner,
                const void *word, uint64_t offset, uint64_t size);
/* It is to be destroyed: false, and a breach, if it is not there. */
bool layer_destroys(layer_call *call, layer_object_kind kind, const void *owner,
                    const void *word, uint64_t offset, uint64_t size);
/* It is used.  A breach if it is gone; with `known` also if it never was. */
bool layer_uses(layer_call *call, layer_object_kind kind, const void *owner,
                const void *word, bool known);
/* Bytes of memory are used.  What the plugin did not allocate (imported
 * memory) is not judged. */
bool layer_uses_memory(layer_call *call, const layer_device *device,
                       core_memory memory, uint64_t size);
/* A capture of the stream begins or ends; a breach where that cannot be. */
void layer_captures(layer_call *call, const void *owner, const void *stream,
                    bool on);
bool layer_is_capturing(core__layers *layers, const void *owner,
                        const void *stream);
/* The host waits for a stream, or, with NULL, an event: false, and a breach, in
 * a callback, which would wait for itself, and where the stream captures. */
bool layer_waits(layer_call *call, const void *owner, const void *stream);
/* This thread runs a host callback. */
extern _Thread_local bool layer_in_callback;
/* The plugin names a stream that it may keep to itself. */
extern _Thread_local bool layer_names_stream;
void layer_records(layer_call *call, const void *owner, const void *event);
bool layer_was_recorded(layer_call *call, const void *owner, const void *event);
/* Nothing of the device is there any more (reset). */
void layer_forget(core__layers *layers, const void *owner);
/* How many of a kind live. */
uint64_t layer_alive(core__layers *layers, layer_object_kind kind,
                     const void *owner);
void layer_objects_free(core__layers *layers);

/* -------------------------------------------------------------- tables -- */

/* A slot that the plugin lacks stays NULL: that has a meaning. */
#define LAYER_KEEP(slot)          \
    do {                          \
        if (!real->slot)          \
            wrapped->slot = NULL; \
    } while (0)

void layer_wrap_streams(layer_backend *backend);
void layer_wrap_events(layer_backend *backend);
void layer_callbacks_free(core__layers *layers);
extern const core_profiler_interface layer_profiler;
extern const core_layout_interface layer_layout;
extern const core_ranges_interface layer_ranges;
const void *layer_get_interface(void *user, core_string name, uint32_t version);
/* A call that runs in this thread: the host answers no other. */
bool layer_runs(const core_call *call);
/* The plugin's word for a device that may be one of ours; others (of another
 * backend whose kernels are borrowed) stay. */
void *layer_device_word(core__layers *layers, void *device,
                        layer_device **out_device);

#endif
