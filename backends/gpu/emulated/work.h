/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* work.h: what the files of the emulated driver share: a device, and work that
 * waits on its streams. */

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
    EMULATED_CAPTURING = 900,  /* the stream, which was waited for */
    EMULATED_INVALIDATED = 901 /* such a capture ends */
};

/* In front of what goes with its context, where nobody frees it before. */
typedef struct held {
    struct held *next, **link;
} held;

typedef struct context {
    uint32_t index;
    held *memory, *pinned, *events;
    held *pins; /* what the host's memory is noted in */
    int lost;   /* the code that lost it */
    uint64_t used;
    uint64_t pending;           /* work that is not done, of all streams */
    gpu_activity_callback tell; /* NULL: nobody records */
    void *told;
} context;

typedef struct work {
    struct work *next;
    /* For records: what it is, or NULL; who gave it, and where it runs. */
    const char *name;
    uint32_t kind;
    uint64_t bytes, correlation, stream;
    /* On the stream's thread, without the lock; 0 or what lost the device. */
    int (*run)(struct work *work, context *device);
    /* When it has run, or was passed over.  NULL: nothing. */
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
        void *object; /* a mark, a graph */
    } u;
    /* what a launch is given */
    unsigned char parameters[] __attribute__((aligned(16)));
} work;

/* Of all that several threads touch, and told when any of it changes. */
extern pthread_mutex_t gpu_emulated_lock;
extern pthread_cond_t gpu_emulated_changed;

/* extra: bytes of parameters.  NULL: no memory. */
work *gpu_emulated_work(int (*run)(work *, context *), size_t extra);
/* Runs it; what it did is told where somebody records. */
int gpu_emulated_run(work *w, context *device, uint64_t correlation,
                     uint64_t stream);
/* Gives it to the stream's thread, or keeps it where the stream captures; takes
 * it over in every case. */
int gpu_emulated_submit(void *device, void *stream, work *w);

context *gpu_emulated_device_of(const void *stream);
/* How much was given to it since its capture began. */
unsigned gpu_emulated_captured_count(void *stream);
/* What every call asks first: a host function may call nothing of the
 * driver. */
int gpu_emulated_in_host_function(void);
/* What frees memory waits for all that the device has to do. */
void gpu_emulated_wait_idle(context *device);
/* With the lock. */
void gpu_emulated_list_add(held **list, held *one);
void gpu_emulated_list_remove(held *one);
/* Frees the events that a context still has; with the lock. */
void gpu_emulated_events_forget(context *device);

/* The slots of records (trace.c). */
int gpu_emulated_trace_start(void *device, gpu_activity_callback tell,
                             void *opaque);
int gpu_emulated_trace_stop(void *device);
void gpu_emulated_trace_correlate(void *device, uint64_t correlation);
int gpu_emulated_trace_clock(void *device, int64_t *out_nanoseconds);
bool gpu_emulated_ranges_enabled(void);
void gpu_emulated_range_begin(const char *name);
void gpu_emulated_range_end(void);
uint64_t gpu_emulated_correlation(void);

/* The slots of streams, events and graphs (stream.c, event.c). */
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
