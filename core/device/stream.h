/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* stream.h: streams and events, inside the core. */

#ifndef CORE_DEVICE_STREAM_H
#define CORE_DEVICE_STREAM_H

#include "base/thread.h"
#include "device/device.h"

#include <libcore/stream.h>

#include <pthread.h>

enum { CORE__QUEUE_RING = 64 };

typedef struct core__words core__words; /* error_propagation.c */
typedef struct core__heard core__heard;

/* How far a queue is: the calls given to it, and the waits for others. */
typedef struct core__queue_mark {
    uint64_t launched;
    uint64_t waited;
} core__queue_mark;

/* What the plugin knows as a stream.  Mostly one core_stream has it to itself;
 * where max_streams bounds them, several share one. */
typedef struct core__queue {
    /* Under the lock of the device's queues, with the next five. */
    uint32_t references;
    uint32_t streams; /* that it serves */
    uint32_t waiting; /* those who wait for all queues, for this one too */
    bool capturing;   /* for its one stream */
    /* Its last stream ended before its work did: the list has a reference until
     * that is done, and its error told or kept. */
    bool lingers;
    uint32_t served;     /* streams, ever */
    uint32_t generation; /* of the device, when it was made */
    core_device *device;
    void *impl; /* backend's word; NULL on a synchronous device */
    int32_t priority;
    bool adopted;
    /* The plugin has destroyed it, which events may outlive.  Set under the
     * lock. */
    _Atomic bool ended;
    /* Plugin calls that name this stream, one at a time, but for giving work
     * and waiting.  A leaf: nothing else is taken, and no other plugin called,
     * while it is held. */
    pthread_mutex_t lock;
    /* STREAM once it is poisoned, and what was said then: set before. */
    _Atomic core_status failed;
    char *failure;
    _Atomic bool told; /* that it failed, to the user */
    /* Calls given, and how many of them are known to have succeeded.  The
     * oldest one after those, and the newest ones, by number and operator. */
    _Atomic uint64_t launched;
    _Atomic uint64_t succeeded;
    _Atomic uint64_t first_call;
    core_operator *_Atomic first_op;
    struct {
        _Atomic uint64_t call;
        core_operator *_Atomic op;
    } ring[CORE__QUEUE_RING];
    /* Whose error words are taken with its own (error_propagation.c).  Under the
     * lock; the counts are read without. */
    core__words *words; /* its own, for others; NULL: nobody waited */
    core__heard *heard;
    uint32_t heard_room;
    _Atomic uint32_t heard_count;
    _Atomic uint64_t waited;
} core__queue;

struct core_stream {
    /* Those of a default stream are its device's references. */
    _Atomic uint32_t references;
    uint32_t generation;   /* of the device, when it was made */
    core_device *device;   /* referenced, but for the default stream */
    core__queue *queue;    /* never NULL */
    void *impl;            /* the queue's */
    uint64_t id;           /* 0: the default stream */
    void *pool;            /* memory/: where its blocks come from */
    void *_Atomic capture; /* capture.c: the capture under way; NULL */
    /* Its number, that no other one ever has; 0: there is none. */
    _Atomic uint64_t capture_id;
    core_stream *leaving; /* memory/'s: the next that ends */
};

struct core_event {
    _Atomic uint32_t references;
    uint32_t generation;
    core_device *device; /* referenced, but of an event of the core's own */
    void *impl;          /* NULL on a synchronous device */
    uint32_t flags;
    bool own; /* from the stock: core__event_take */
    /* Under the lock, which goes before a queue's. */
    pthread_mutex_t lock;
    _Atomic uint8_t lock_mark; /* base/fork.h */
    bool recorded;
    core__queue *queue;    /* of the newest record; referenced */
    core__queue_mark mark; /* how far it was then */
    uint64_t capture_id;   /* which one its stream was making; 0: none */
    uint64_t recorded_ns;  /* synchronous devices: host clock */
    core_event *next;      /* in the stock */
};

/* This thread's stream of a device, never NULL: its default one has no other
 * cost than this. */
core_stream *core__stream_current_slow(core__thread *self, core_device *device);
static inline core_stream *core__stream_current_of(core__thread *self,
                                                   core_device *device)
{
    if (core__likely(!self->streams))
        return device->stream;
    return core__stream_current_slow(self, device);
}

static inline core_stream *core__stream_current(core_device *device)
{
    return core__stream_current_of(core__thread_self(), device);
}

/* Makes a stream its device's current one in this thread, without changes to
 * the current device.  *out_before, what was current, comes with a reference,
 * which core__stream_restore takes back; it accepts NULL. */
core_status core__stream_swap(core_stream *stream, core_stream **out_before);
void core__stream_restore(core_stream *before);

/* A kernel call was given to it: for the messages of errors that come later.
 * Under LIBCORE_BLOCKING it waits, and an error names this operator. */
core_status core__stream_launched(core_stream *stream, core_operator *op,
                                  uint64_t id);
/* Before work is given: CORE_OK, or the error of a stream that is poisoned, or
 * of a device that was lost or reset since the stream was made. */
core_status core__stream_check_slow(core_stream *stream);
static inline core_status core__stream_check(core_stream *stream)
{
    if (core__likely(atomic_load_explicit(&stream->queue->failed,
                                          memory_order_relaxed) == CORE_OK &&
                     stream->generation ==
                         atomic_load_explicit(&stream->device->generation,
                                              memory_order_relaxed)))
        return CORE_OK;
    return core__stream_check_slow(stream);
}
/* Waits for the stream, counted, refused while it is capturing; takes its error
 * word.  reason: "item", "copy to the host". */
core_status core__stream_wait(core_stream *stream, const char *reason);
/* What a plugin's call that waits for or asks about this stream answered,
 * turned into what the user is told: range of operators, poison, loss.  BUSY
 * passes. */
core_status core__stream_result(core_stream *stream, core_status status,
                                const char *reason);
/* What a plugin's call that gives work to this stream answered: the message is
 * left as it is, poison and loss are noted. */
core_status core__stream_given(core_stream *stream, core_status status);

/* `later` waits for all that was given to `earlier`; nothing if they are equal,
 * and no event is made then. */
core_status core__stream_order(core_stream *later, core_stream *earlier);
/* The same where `later` uses no result of `earlier`, only memory that this one
 * is done with: then bad data found there is not told to who waits for
 * `later`. */
core_status core__stream_order_memory(core_stream *later, core_stream *earlier);
core_status core__stream_wait_memory(core_stream *stream, core_event *event);

/* Events for the core's own use, from a per-device stock. */
core_status core__event_take(core_device *device, core_event **out_event);
void core__event_give(core_event *event);

/* Records an event of the core's own on a stream that a plugin names by its
 * word: one of the core's, or one that only the plugin knows. */
core_status core__event_record_word(core_event *event, void *word);

/* Kernel calls, numbered over the process. */
uint64_t core__call_number(void);
/* Counts a wait that is not core__stream_wait's. */
void core__host_wait_count(void);

/* The default stream of a device that is being opened, and back. */
core_status core__stream_default_make(core_device *device);
void core__stream_default_drop(core_device *device);
/* The same stream on a new queue, after a reset. */
core_status core__stream_default_renew(core_device *device);
/* It has no reference and no memory any more. */
void core__stream_gone(core_stream *stream);
/* When a thread ends. */
void core__stream_thread_end(core__thread *thread);
/* The default stream is current in all threads: when a device closes or is
 * reset. */
void core__stream_forget(core_device *device);

/* ---------------------------------------------------------- queues (queue.c,
 * queue_error.c) -- */

/* Of synchronous devices: nothing ever happens to it. */
extern core__queue core__queue_idle;

core_status core__queues_create(core_device *device);
/* All but the default stream's are gone, or are destroyed here. */
void core__queues_destroy(core_device *device);
/* One for a new stream: its own, or one that it shares. */
core_status core__queue_take(core_device *device, int32_t priority,
                             core__queue **out_queue);
core_status core__queue_adopt(core_device *device, void *native,
                              core__queue **out_queue);
/* A stream ends, and gives back the reference that it took or adopted. */
void core__queue_leave(core__queue *queue);
/* Whether its stream captures.  UNSUPPORTED where it serves several: the work
 * of the others would be captured too. */
core_status core__queue_capture(core__queue *queue, bool on);
/* The one that the plugin knows by this word, referenced; NULL: it is none of
 * the core's. */
core__queue *core__queue_of_word(core_device *device, const void *word);
core__queue *core__queue_retain(core__queue *queue);
void core__queue_release(core__queue *queue);
/* Of streams that ended, what has done its work goes, and its first error is
 * kept for core__queues_wait.  Waits for nothing. */
void core__queues_settle(core_device *device);
/* Waits for all of a device, streams that ended included; the first error. */
core_status core__queues_wait(core_device *device, const char *reason);
/* Nothing of the device runs any more, as far as can be: what failed is not
 * told, and stays to be told.  For those who only look on. */
void core__queues_quiet(core_device *device);

core_status core__queue_check(core__queue *queue);
core_status core__queue_wait(core__queue *queue, const char *reason);
core_status core__queue_result(core__queue *queue, core_status status,
                               const char *reason);
/* Taken before the plugin is asked whether it is that far. */
static inline core__queue_mark core__queue_now(core__queue *queue)
{
    return (core__queue_mark){atomic_load(&queue->launched),
                              atomic_load(&queue->waited)};
}
/* Up to there all has succeeded; takes the error word, and those of the queues
 * that it waited for. */
core_status core__queue_passed(core__queue *queue, core__queue_mark mark,
                               const char *reason);
/* Its error word alone: bad data that a kernel met, told once. */
core_status core__queue_word(core__queue *queue, const char *reason);

/* ------------------------------------------------------- error_propagation.c -- */

/* A wait for the other was given to this one: its error word, and those of all
 * that it waited for, are for who waits for this one. */
core_status core__queue_hears(core__queue *queue, core__queue *other);
/* The words of those that were waited for up to then; the first error. */
core_status core__queue_hear(core__queue *queue, uint64_t waited,
                             const char *reason);
/* Of one whose streams ended: its own word alone, and that only if nobody is
 * told it who waited for it. */
core_status core__queue_last_word(core__queue *queue, const char *reason);
/* Before the plugin's stream is destroyed. */
void core__queue_words_end(core__queue *queue);
/* The same of its own word alone. */
void core__queue_own_words_end(core__queue *queue);

/* UNSUPPORTED: what the host wants of this stream cannot be inside a capture;
 * its own, if there is one, is spoilt. */
core_status core__capture_refuses(core_stream *stream, const char *what);

core_status core__event_stock_make(core_device *device);
void core__event_stock_empty(core_device *device);
void core__event_stock_drop(core_device *device);

#endif
