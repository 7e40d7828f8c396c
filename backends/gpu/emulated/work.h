/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* work.h: what the files of the emulated driver share: devices, and work that
 * waits in their streams. */

#ifndef GPU_EMULATED_WORK_H
#define GPU_EMULATED_WORK_H

#include <gpu/driver.h>

#include "emulate.h"

#include <pthread.h>

/* The driver's codes. */
enum {
    EMULATED_INVALID = 1,
    EMULATED_OUT_OF_MEMORY = 2,
    EMULATED_ABSENT = 500,
    EMULATED_LOST = 700,
    EMULATED_DIVERGED = 701,
    EMULATED_REFUSED = 800,    /* a host function called the driver */
    EMULATED_CAPTURING = 900,  /* the host waited for a capturing stream */
    EMULATED_INVALIDATED = 901 /* the end of such a capture */
};

/* Links what is freed with its context if nothing frees it before. */
typedef struct held {
    struct held *next, **link;
} held;

typedef struct context {
    uint32_t index;
    held *memory, *pinned, *events;
    held *pins; /* host memory that is pinned */
    int lost;   /* the code that lost it */
    uint64_t used;
    uint64_t pending;            /* unfinished work of all streams */
    int sleeping;                /* recorded GPU_EVENT_SLEEPING, not passed */
    gpu_activity_callback trace; /* NULL: not tracing */
    void *trace_user;
} context;

typedef struct work {
    struct work *next;
    /* For records: the name, or NULL if there is no record; the correlation and
     * the stream. */
    const char *name;
    uint32_t kind;
    uint64_t bytes, correlation, stream;
    /* Called on the stream's thread, without the lock.  Returns 0 or the code
     * that loses the device. */
    int (*run)(struct work *work, context *device);
    /* Called when the work has run or was skipped; may be NULL. */
    void (*end)(struct work *work, context *device);
    union {
        struct {
            const gpu_emulated_kernel *kernel;
            uint32_t grid[3], block[3], shared;
            uint64_t loses; /* the launch that loses the device */
        } launch;
        struct {
            void *to;
            const void *from;
            uint64_t size;
        } copy;
        struct {
            void *to;
            uint32_t pattern, bytes;
            uint64_t count;
        } fill;
        struct {
            void (*function)(void *);
            void *argument;
        } call;
        struct {
            uint32_t *number;
            uint32_t least;
        } gate;
        void *object; /* a mark or a graph */
    } u;
    /* the parameters of a launch */
    unsigned char parameters[] __attribute__((aligned(16)));
} work;

/* Protects all that threads share; the condition is signalled after each
 * change. */
extern pthread_mutex_t gpu_emulated_lock;
extern pthread_cond_t gpu_emulated_changed;

/* extra: the size of parameters.  Returns NULL if there is no memory. */
work *gpu_emulated_work(int (*run)(work *, context *), size_t extra);
/* Runs the work, and records it if somebody traces. */
int gpu_emulated_run(work *w, context *device, uint64_t correlation,
                     uint64_t stream);
/* Passes work to the stream's thread, or adds it to the graph if the stream
 * captures.  Takes ownership in every case. */
int gpu_emulated_submit(void *device, void *stream, work *w);

context *gpu_emulated_device_of(const void *stream);
/* The amount of work that was enqueued since the capture began. */
unsigned gpu_emulated_captured_count(void *stream);
/* Every call checks this first: host functions must not call the driver. */
int gpu_emulated_in_host_function(void);
/* Waits for all work of the device, as calls that free memory do. */
void gpu_emulated_wait_idle(context *device);
/* The same with GPUEMU_LOADS, otherwise nothing. */
void gpu_emulated_wait_if_loads_wait(context *device);
/* These are called under the lock. */
void gpu_emulated_list_add(held **list, held *one);
void gpu_emulated_list_remove(held *one);
/* Frees the remaining events of a context; under the lock. */
void gpu_emulated_events_free(context *device);

/* The driver's functions for kernels (module.c, compile.c). */
int gpu_emulated_module_load(void *device, const void *image,
                             void **out_module);
int gpu_emulated_module_unload(void *device, void *module);
int gpu_emulated_function_find(void *device, void *module, const char *name,
                               void **out_function);
const char *gpu_emulated_compiler(void *device);
int gpu_emulated_compile(void *device, gpu_compilation *c);

/* The driver's functions for traces (trace.c). */
int gpu_emulated_trace_start(void *device, gpu_activity_callback callback,
                             void *user);
int gpu_emulated_trace_stop(void *device);
void gpu_emulated_trace_correlate(void *device, uint64_t correlation);
int gpu_emulated_trace_clock(void *device, int64_t *out_nanoseconds);
bool gpu_emulated_ranges_enabled(void);
void gpu_emulated_range_begin(const char *name);
void gpu_emulated_range_end(void);
uint64_t gpu_emulated_correlation(void);

/* The driver's functions for streams, events and graphs (stream.c, event.c). */
int gpu_emulated_copy(void *device, void *stream, void *to, const void *from,
                      uint64_t size, int direction);
int gpu_emulated_fill(void *device, void *stream, void *to, uint32_t pattern,
                      uint32_t bytes, uint64_t count);
int gpu_emulated_stream_create(void *device, int32_t priority,
                               void **out_stream);
int gpu_emulated_stream_destroy(void *device, void *stream);
int gpu_emulated_stream_query(void *device, void *stream);
int gpu_emulated_stream_is_capturing(void *device, void *stream,
                                     uint32_t *out_yes);
int gpu_emulated_stream_synchronize(void *device, void *stream);
int gpu_emulated_stream_wait(void *device, void *stream, void *event);
int gpu_emulated_stream_call(void *device, void *stream,
                             void (*function)(void *), void *argument);
int gpu_emulated_stream_gate(void *device, void *stream, uint32_t *number,
                             uint32_t least);
/* Whether the driver has allocated or pinned the host memory. */
bool gpu_emulated_is_pinned(context *device, const void *data);
/* With GPUEMU_PAGEABLE_WAITS a copy to pageable memory waits in the driver and
 * keeps other threads from creating and destroying objects, as a real one may. */
void gpu_emulated_wait_for_copies(void);
int gpu_emulated_event_create(void *device, int kind, void **out_event);
int gpu_emulated_event_destroy(void *device, void *event);
int gpu_emulated_event_record(void *device, void *event, void *stream);
int gpu_emulated_event_query(void *device, void *event);
int gpu_emulated_event_synchronize(void *device, void *event);
int gpu_emulated_event_elapsed(void *device, void *start, void *end,
                               int64_t *out_nanoseconds);
int gpu_emulated_capture_begin(void *device, void *stream);
int gpu_emulated_capture_end(void *device, void *stream, void **out_graph);
int gpu_emulated_graph_launch(void *device, void *graph, void *stream);
int gpu_emulated_graph_destroy(void *device, void *graph);

#endif
