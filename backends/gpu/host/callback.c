/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* callback.c: host functions in a stream.
 *
 * A vendor's own host functions must not call its driver, one may keep others
 * from running, and none runs once the device is lost.  So a stream with
 * callbacks has a thread for them.  Each callback is an event in the stream,
 * which the thread waits for, followed by a gate, where the stream waits for
 * the thread: a number in memory or, if the driver has no such thing, a host
 * function that only waits.  Memory that a callback frees is freed later
 * (deferred_free.c).
 *
 * A driver waits for all work of the device when it frees a gate's memory, and may
 * keep other threads out meanwhile.  So gates are kept for other streams until the
 * device is closed.  A stream may read its gate some time after the host has
 * opened it, even when it has been destroyed: numbers only grow, so that it still
 * finds the gate open. */

#include <gpu/host/interfaces.h>
#include <gpu/host/thread.h>

#include <stdlib.h>
#include <time.h>

#define calls (gpu_this_vendor.driver)

typedef struct callback {
    struct callback *next;
    void (*function)(void *context);
    void (*drop)(void *context);
    void *context;
    void *event;
    bool polled; /* the event is not a GPU_EVENT_SLEEPING */
    uint32_t number;
} callback;

struct gpu_gate {
    gpu_gate *next; /* of the device's unused ones */
    uint32_t *number;
};

struct gpu_callbacks {
    gpu_callbacks *next; /* of the device */
    gpu_device *device;
    pthread_mutex_t enqueueing; /* keeps the parts of an enqueue together */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    callback *first, **last;
    gpu_gate *gate;    /* NULL: host functions are used */
    uint32_t enqueued; /* the number of the newest callback */
    uint32_t finished; /* the last one that was run or dropped */
    uint32_t waiting;  /* host functions that have started to wait */
    int closed;        /* the stream was destroyed */
    int abandoned;     /* the device was reset: no driver objects remain */
};

static _Thread_local bool running;

bool gpu_in_callback(void)
{
    return running;
}

/* ------------------------------------------------------------ the gate -- */

/* The host function that stands for a gate; runs in the vendor's thread, in
 * stream order. */
static void wait_for_callback(void *opaque)
{
    gpu_callbacks *q = opaque;
    uint32_t number;

    pthread_mutex_lock(&q->lock);
    number = ++q->waiting;
    while ((int32_t)(q->finished - number) < 0 && !q->abandoned)
        pthread_cond_wait(&q->changed, &q->lock);
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
}

static int enqueue_gate(gpu_callbacks *q, gpu_stream *stream, uint32_t number)
{
    void *context = q->device->context;

    return q->gate != NULL ? calls->stream_gate(context, stream->native,
                                                q->gate->number, number)
                           : calls->stream_call(context, stream->native,
                                                wait_for_callback, q);
}

static void open_gate(gpu_callbacks *q, uint32_t number)
{
    pthread_mutex_lock(&q->lock);
    q->finished = number;
    if (q->gate != NULL && !q->abandoned)
        __atomic_store_n(q->gate->number, number, __ATOMIC_SEQ_CST);
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
}

/* -------------------------------------------------------------- events -- */

/* A driver's queue, which streams may share, holds few events that make a thread
 * sleep; recording another one waits (docs/gpu-results.md). */
enum { SLEEPING_MOST = 16 };

static int create_event(gpu_device *device, callback *c)
{
    int code;

    c->polled = atomic_fetch_add(&device->sleeping_events, 1) >= SLEEPING_MOST;
    code = calls->event_create(device->context,
                               c->polled ? GPU_EVENT_PLAIN : GPU_EVENT_SLEEPING,
                               &c->event);
    if (c->polled || code != 0)
        atomic_fetch_sub(&device->sleeping_events, 1);
    return code;
}

/* ---------------------------------------------------------- the thread -- */

static callback *next_callback(gpu_callbacks *q)
{
    callback *c;

    pthread_mutex_lock(&q->lock);
    while (q->first == NULL && !q->closed)
        pthread_cond_wait(&q->changed, &q->lock);
    c = q->first;
    if (c != NULL)
        q->first = c->next;
    if (q->first == NULL)
        q->last = &q->first;
    pthread_mutex_unlock(&q->lock);
    return c;
}

static int is_abandoned(gpu_callbacks *q)
{
    int abandoned;

    pthread_mutex_lock(&q->lock);
    abandoned = q->abandoned;
    pthread_mutex_unlock(&q->lock);
    return abandoned;
}

static int wait_for_event(gpu_callbacks *q, const callback *c)
{
    void *context = q->device->context;
    struct timespec pause = {0, 10000};

    while (c->polled && !is_abandoned(q) &&
           calls->event_query(context, c->event) == GPU_BUSY) {
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < 1000000)
            pause.tv_nsec *= 2;
    }
    return is_abandoned(q) ? GPU_ABSENT : gpu_wait_event(q->device, c->event);
}

/* Under the lock, because a reset destroys the events after it has taken the
 * lock to abandon the queue. */
static void destroy_event(gpu_callbacks *q, const callback *c)
{
    pthread_mutex_lock(&q->lock);
    if (!q->abandoned)
        calls->event_destroy(q->device->context, c->event);
    pthread_mutex_unlock(&q->lock);
    if (!c->polled)
        atomic_fetch_sub(&q->device->sleeping_events, 1);
}

static void run_callback(gpu_callbacks *q, callback *c)
{
    gpu_device *device = q->device;
    int code = atomic_load(&device->lost);

    if (code == 0)
        code = wait_for_event(q, c);
    else if (is_abandoned(q))
        code = GPU_ABSENT;
    running = true;
    if (code == 0) {
        c->function(c->context);
    } else {
        if (code != GPU_ABSENT)
            (void)gpu_report(device, code, "work before a host callback");
        c->drop(c->context);
    }
    running = false;
    /* The gate first: a thread that is in the driver, in a copy that waits for
     * this stream, may keep others out of it. */
    open_gate(q, c->number);
    destroy_event(q, c);
    free(c);
}

/* Waits until all host functions have started; returns false if the rest never
 * will.  The loss of a device is not signalled, so it is polled. */
static int host_functions_ended(gpu_callbacks *q)
{
    struct timespec until;
    int ended;

    pthread_mutex_lock(&q->lock);
    while (q->gate == NULL && q->waiting != q->enqueued && !q->abandoned &&
           !atomic_load(&q->device->lost)) {
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        pthread_cond_timedwait(&q->changed, &q->lock, &until);
    }
    ended = q->gate != NULL || q->waiting == q->enqueued;
    pthread_mutex_unlock(&q->lock);
    return ended;
}

static void destroy(gpu_callbacks *q)
{
    pthread_mutex_destroy(&q->enqueueing);
    pthread_mutex_destroy(&q->lock);
    pthread_cond_destroy(&q->changed);
    free(q);
}

/* Under the device's lock.  A reset has freed the memory. */
static void return_gate(gpu_callbacks *q)
{
    if (q->gate != NULL && is_abandoned(q)) {
        free(q->gate);
    } else if (q->gate != NULL) {
        q->gate->next = q->device->gates;
        q->device->gates = q->gate;
    }
    q->gate = NULL;
}

static void *callback_thread(void *opaque)
{
    gpu_callbacks *q = opaque, **at;
    gpu_device *device = q->device;
    int ended;

    for (callback *c; (c = next_callback(q)) != NULL;)
        run_callback(q, c);
    ended = host_functions_ended(q);
    if (ended) {
        pthread_mutex_lock(&device->lock);
        return_gate(q);
        for (at = &device->callbacks; *at != q;)
            at = &(*at)->next;
        *at = q->next;
        pthread_mutex_unlock(&device->lock);
        destroy(q);
    }
    gpu_device_release(device);
    return NULL;
}

/* ------------------------------------------------------------- streams -- */

/* Takes an unused gate, or creates one.  Without the device's lock, because the
 * driver may wait for streams.  *out is NULL if the driver has no gates. */
static core_status take_gate(gpu_device *device, gpu_gate **out)
{
    gpu_gate *gate;
    int code;

    *out = NULL;
    if (calls->gate_create == NULL)
        return CORE_OK;
    pthread_mutex_lock(&device->lock);
    gate = device->gates;
    if (gate != NULL)
        device->gates = gate->next;
    pthread_mutex_unlock(&device->lock);
    if (gate == NULL) {
        gate = calloc(1, sizeof *gate);
        if (gate == NULL)
            return gpu_refuse(CORE_ERROR_OUT_OF_MEMORY,
                              "no host memory for a stream's callbacks");
        code = calls->gate_create(device->context, &gate->number);
        if (code != 0) {
            free(gate);
            return code == GPU_ABSENT
                       ? CORE_OK
                       : gpu_report(device, code, "a gate for host callbacks");
        }
    }
    *out = gate;
    return CORE_OK;
}

static core_status create(gpu_device *device, gpu_callbacks **out)
{
    gpu_callbacks *q = calloc(1, sizeof *q);
    core_status status;

    *out = NULL;
    if (q == NULL)
        return gpu_refuse(CORE_ERROR_OUT_OF_MEMORY,
                          "no host memory for a stream's callbacks");
    status = take_gate(device, &q->gate);
    if (status != CORE_OK) {
        free(q);
        return status;
    }
    if (q->gate != NULL)
        q->enqueued = q->finished = *q->gate->number;
    q->device = device;
    q->last = &q->first;
    pthread_mutex_init(&q->enqueueing, NULL);
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->changed, NULL);
    atomic_fetch_add(&device->references, 1);
    if (gpu_thread_start(callback_thread, q) == 0) {
        *out = q;
        return CORE_OK;
    }
    atomic_fetch_sub(&device->references, 1);
    pthread_mutex_lock(&device->lock);
    return_gate(q);
    pthread_mutex_unlock(&device->lock);
    destroy(q);
    return gpu_refuse(CORE_ERROR_OUT_OF_MEMORY,
                      "no thread for a stream's callbacks");
}

/* Lets the queue's thread end; if abandoned, without further driver calls. */
static void close_queue(gpu_callbacks *q, int abandoned)
{
    pthread_mutex_lock(&q->lock);
    q->closed = 1;
    q->abandoned = q->abandoned || abandoned;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
}

/* Attaches a queue that was created without the lock: meanwhile another thread
 * may have attached one to the stream, or reset the device. */
static core_status attach(gpu_device *device, gpu_stream *stream,
                          gpu_callbacks *q)
{
    bool reset = stream->generation != device->generation;

    q->next = device->callbacks;
    device->callbacks = q;
    if (reset || stream->callbacks != NULL)
        close_queue(q, reset);
    else
        stream->callbacks = q;
    atomic_store_explicit(&device->has_callbacks, true, memory_order_relaxed);
    return reset
               ? gpu_refuse(CORE_ERROR_DEVICE_LOST,
                            "the device was reset since the stream was created")
               : CORE_OK;
}

static core_status callbacks_of(gpu_stream *stream, gpu_callbacks **out)
{
    gpu_device *device = stream->device;
    core_status status = CORE_OK;
    gpu_callbacks *made;

    pthread_mutex_lock(&device->lock);
    if (stream->callbacks == NULL) {
        pthread_mutex_unlock(&device->lock);
        status = create(device, &made);
        pthread_mutex_lock(&device->lock);
        if (status == CORE_OK)
            status = attach(device, stream, made);
    }
    *out = stream->callbacks;
    pthread_mutex_unlock(&device->lock);
    return status;
}

void gpu_callbacks_close(gpu_callbacks *q)
{
    if (q != NULL)
        close_queue(q, 0);
}

/* Without the memory, which a reset or the end of a lost device has freed. */
static void forget_gates(gpu_device *device)
{
    gpu_gate *next;

    for (gpu_gate *gate = device->gates; gate != NULL; gate = next) {
        next = gate->next;
        free(gate);
    }
    device->gates = NULL;
}

void gpu_callbacks_abandon(gpu_device *device)
{
    forget_gates(device);
    for (gpu_callbacks *q = device->callbacks; q != NULL; q = q->next)
        close_queue(q, 1);
}

void gpu_callbacks_destroy(gpu_device *device)
{
    gpu_callbacks *next;

    for (gpu_callbacks *q = device->callbacks; q != NULL; q = next) {
        next = q->next;
        return_gate(q);
        destroy(q);
    }
    device->callbacks = NULL;
    for (gpu_gate *gate = device->gates; gate != NULL; gate = gate->next)
        if (!atomic_load(&device->lost))
            calls->gate_destroy(device->context, gate->number);
    forget_gates(device);
}

/* ----------------------------------------------------------- interface -- */

/* Returns the driver's code; if it is 0, the thread owns c. */
static int enqueue_callback(gpu_callbacks *q, gpu_stream *stream, callback *c)
{
    void *context = q->device->context;
    int code = create_event(q->device, c);

    if (code != 0)
        return code;
    pthread_mutex_lock(&q->enqueueing);
    c->number = q->enqueued + 1;
    code = calls->event_record(context, c->event, stream->native);
    if (code == 0)
        code = enqueue_gate(q, stream, c->number);
    if (code == 0) {
        pthread_mutex_lock(&q->lock);
        q->enqueued = c->number;
        *q->last = c;
        q->last = &c->next;
        pthread_cond_broadcast(&q->changed);
        pthread_mutex_unlock(&q->lock);
    }
    pthread_mutex_unlock(&q->enqueueing);
    if (code != 0) {
        calls->event_destroy(context, c->event);
        if (!c->polled)
            atomic_fetch_sub(&q->device->sleeping_events, 1);
    }
    return code;
}

static core_status enqueue(void *opaque, void *on, void (*function)(void *),
                           void *context, void (*drop)(void *))
{
    gpu_device *device = opaque;
    gpu_stream *stream = on;
    gpu_callbacks *q = NULL;
    callback *c = calloc(1, sizeof *c);
    core_status status;

    status = gpu_report(device, atomic_load(&device->lost), "a host callback");
    if (status == CORE_OK && c == NULL)
        status = gpu_refuse(CORE_ERROR_OUT_OF_MEMORY,
                            "no host memory for a callback");
    if (status == CORE_OK)
        status = callbacks_of(stream, &q);
    if (status == CORE_OK) {
        c->function = function;
        c->drop = drop;
        c->context = context;
        status = gpu_report(device, enqueue_callback(q, stream, c),
                            "a host callback");
    }
    if (status != CORE_OK) {
        free(c);
        drop(context);
    }
    return status;
}

const core_host_callback_interface gpu_host_callback = {
    .struct_size = sizeof(core_host_callback_interface),
    .enqueue = enqueue,
};
