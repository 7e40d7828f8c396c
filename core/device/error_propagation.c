/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Passes data errors between streams.
 *
 * A data error concerns everything computed from the kernel's results, so it
 * must also be reported on streams that waited for the kernel's stream.
 * Therefore a queue remembers the queues that its streams waited for, and the
 * queues that those waited for; once a wait is known to be complete, their
 * errors are taken together with the queue's own.  Each error is reported
 * once, to the first caller that takes it.
 *
 * A queue may end before the queues that waited for it take its errors.  They
 * refer to it by an error source, a separate object that outlives the queue
 * and keeps its last error.
 *
 * Lock order: the lock of an error source before that of a queue. */

#include "base/memory.h"
#include "device/stream.h"

#include <stdio.h>

struct core__error_source {
    _Atomic uint32_t references;
    pthread_mutex_t lock;
    /* NULL once the queue has ended; the error that it ended with is below. */
    core__queue *queue;
    char *text;
    core_status code;
    _Atomic bool over; /* ended, and there is no error to report */
};

struct core__error_source_link {
    core__error_source *source; /* referenced */
    uint64_t at;                /* position of the newest wait for it:
                         * core__queue_mark.waited */
};

/* -------------------------------------------------- core__error_source -- */

static core__error_source *retain(core__error_source *source)
{
    atomic_fetch_add_explicit(&source->references, 1, memory_order_relaxed);
    return source;
}

static void release(core__error_source *source)
{
    if (!source || atomic_fetch_sub_explicit(&source->references, 1,
                                             memory_order_acq_rel) != 1)
        return;
    pthread_mutex_destroy(&source->lock);
    core__free(source->text);
    core__free(source);
}

/* With the queue's lock held. */
static core_status error_source_of(core__queue *queue,
                                   core__error_source **out_source)
{
    core__error_source *source = queue->error_source;

    if (!source) {
        source = core__alloc_zero(sizeof *source);
        if (!source)
            return core__error_memory(sizeof *source);
        atomic_init(&source->references, 1); /* the queue's reference */
        pthread_mutex_init(&source->lock, NULL);
        source->queue = queue;
        queue->error_source = source;
    }
    *out_source = retain(source);
    return CORE_OK;
}

/* ----------------------------------------------------------- recording -- */

/* With the lock held: removes sources that have no error left to report. */
static void prune(core__queue *queue)
{
    uint32_t used = 0;

    for (uint32_t i = 0; i < queue->awaited_count; i++) {
        if (atomic_load(&queue->awaited_sources[i].source->over))
            release(queue->awaited_sources[i].source);
        else
            queue->awaited_sources[used++] = queue->awaited_sources[i];
    }
    queue->awaited_count = used;
}

/* References to the other queue's source and to all sources that it waited
 * for. */
static core_status list_of(core__queue *queue, core__error_source ***out_list,
                           uint32_t *out_count)
{
    core__error_source **list;
    core_status status;

    pthread_mutex_lock(&queue->lock);
    *out_count = 0;
    prune(queue);
    list =
        core__alloc((queue->awaited_count + 1) * sizeof(core__error_source *));
    status = list ? error_source_of(queue, &list[0])
                  : core__error_memory(sizeof(core__error_source *));
    for (uint32_t i = 0; status == CORE_OK && i <= queue->awaited_count; i++) {
        if (i > 0)
            list[i] = retain(queue->awaited_sources[i - 1].source);
        *out_count = i + 1;
    }
    pthread_mutex_unlock(&queue->lock);
    *out_list = list;
    return status;
}

static core_status grow_links(core__queue *queue, uint32_t count)
{
    uint64_t capacity = queue->awaited_capacity;
    core__error_source_link *awaited_sources;

    if (queue->awaited_count + count > capacity)
        prune(queue);
    if (queue->awaited_count + count <= capacity)
        return CORE_OK;
    capacity = 2 * capacity + count;
    awaited_sources = core__realloc(queue->awaited_sources,
                                    capacity * sizeof *awaited_sources);
    if (!awaited_sources)
        return core__error_memory(capacity * sizeof *awaited_sources);
    queue->awaited_sources = awaited_sources;
    queue->awaited_capacity = (uint32_t)capacity;
    return CORE_OK;
}

/* With the lock held, and with space for it; takes the reference. */
static void add_link(core__queue *queue, core__error_source *source)
{
    uint64_t at = atomic_load(&queue->waited);
    uint32_t i = 0;

    while (i < queue->awaited_count &&
           queue->awaited_sources[i].source != source)
        i++;
    if (i < queue->awaited_count) {
        queue->awaited_sources[i].at = at;
        release(source);
    } else if (source == queue->error_source) {
        release(source);
    } else {
        queue->awaited_sources[queue->awaited_count++] =
            (core__error_source_link){source, at};
    }
}

core_status core__queue_add_awaited(core__queue *queue, core__queue *other)
{
    core__error_source **list;
    core_status status;
    uint32_t count;

    if (!other || other == queue || other == &core__queue_synchronous ||
        queue == &core__queue_synchronous ||
        !other->device->interfaces.stream_error.take)
        return CORE_OK;
    status = list_of(other, &list, &count);
    pthread_mutex_lock(&queue->lock);
    if (status == CORE_OK)
        status = grow_links(queue, count);
    if (status == CORE_OK) {
        atomic_fetch_add(&queue->waited, 1);
        while (count > 0)
            add_link(queue, list[--count]);
    }
    pthread_mutex_unlock(&queue->lock);
    while (count > 0)
        release(list[--count]);
    core__free(list);
    return status;
}

/* -------------------------------------------------------------- taking -- */

static core_status take(core__error_source *source, const char *reason)
{
    core_status status = CORE_OK;

    if (atomic_load(&source->over))
        return CORE_OK;
    pthread_mutex_lock(&source->lock);
    if (source->queue) {
        status = core__queue_take_error(source->queue, reason);
    } else if (!atomic_load(&source->over)) {
        status =
            core__error(source->code, "%s (found by %s)",
                        source->text ? source->text
                                     : "a stream that has ended failed; there "
                                       "was no memory to keep the reason",
                        reason);
        atomic_store(&source->over, true);
    }
    pthread_mutex_unlock(&source->lock);
    return status;
}

/* The oldest source waited for up to that position; NULL: no more. */
static core__error_source *next(core__queue *queue, uint64_t waited)
{
    core__error_source *source = NULL;
    uint32_t i = 0;

    pthread_mutex_lock(&queue->lock);
    while (i < queue->awaited_count && queue->awaited_sources[i].at > waited)
        i++;
    if (i < queue->awaited_count) {
        source = queue->awaited_sources[i].source;
        queue->awaited_count--;
        for (; i < queue->awaited_count; i++)
            queue->awaited_sources[i] = queue->awaited_sources[i + 1];
    }
    pthread_mutex_unlock(&queue->lock);
    return source;
}

core_status core__queue_take_awaited_errors(core__queue *queue, uint64_t waited,
                                            const char *reason)
{
    core_status status = CORE_OK;
    core__error_source *source;

    while (status == CORE_OK && atomic_load(&queue->awaited_count) > 0 &&
           (source = next(queue, waited)) != NULL) {
        status = take(source, reason);
        release(source);
    }
    return status;
}

/* -------------------------------------------------------------- ending -- */

core_status core__queue_take_unshared_error(core__queue *queue,
                                            const char *reason)
{
    bool shared;

    pthread_mutex_lock(&queue->lock);
    shared = queue->error_source &&
             atomic_load(&queue->error_source->references) > 1;
    pthread_mutex_unlock(&queue->lock);
    return shared ? CORE_OK : core__queue_take_error(queue, reason);
}

/* Takes the last error of a queue that ends.  Errors that its work finds
 * afterwards are lost, because this does not wait. */
static void keep_last_error(core__error_source *source)
{
    core__error_record saved;

    core__error_save(&saved);
    source->code = core__queue_take_error(source->queue, "the stream's end");
    if (source->code != CORE_OK)
        source->text = core__strdup(core_error_message());
    core__error_restore(&saved);
}

void core__queue_end_own_errors(core__queue *queue)
{
    core__error_source *source;

    pthread_mutex_lock(&queue->lock);
    source = queue->error_source;
    queue->error_source = NULL;
    pthread_mutex_unlock(&queue->lock);
    if (!source)
        return;
    pthread_mutex_lock(&source->lock);
    if (atomic_load(&source->references) > 1)
        keep_last_error(source);
    source->queue = NULL;
    atomic_store(&source->over, source->code == CORE_OK);
    pthread_mutex_unlock(&source->lock);
    release(source);
}

void core__queue_end_errors(core__queue *queue)
{
    for (uint32_t i = 0; i < queue->awaited_count; i++)
        release(queue->awaited_sources[i].source);
    core__free(queue->awaited_sources);
    core__queue_end_own_errors(queue);
}
