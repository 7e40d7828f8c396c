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
    core__error_source *words; /* referenced */
    uint64_t at;               /* position of the newest wait for it:
                         * core__queue_mark.waited */
};

/* -------------------------------------------------- core__error_source -- */

static core__error_source *retain(core__error_source *words)
{
    atomic_fetch_add_explicit(&words->references, 1, memory_order_relaxed);
    return words;
}

static void release(core__error_source *words)
{
    if (!words || atomic_fetch_sub_explicit(&words->references, 1,
                                            memory_order_acq_rel) != 1)
        return;
    pthread_mutex_destroy(&words->lock);
    core__free(words->text);
    core__free(words);
}

/* With the queue's lock held. */
static core_status error_source_of(core__queue *queue,
                                   core__error_source **out_words)
{
    core__error_source *words = queue->words;

    if (!words) {
        words = core__alloc_zero(sizeof *words);
        if (!words)
            return core__error_memory(sizeof *words);
        atomic_init(&words->references, 1); /* the queue's reference */
        pthread_mutex_init(&words->lock, NULL);
        words->queue = queue;
        queue->words = words;
    }
    *out_words = retain(words);
    return CORE_OK;
}

/* ----------------------------------------------------------- recording -- */

/* With the lock held: removes sources that have no error left to report. */
static void prune(core__queue *queue)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < queue->heard_count; i++) {
        if (atomic_load(&queue->heard[i].words->over))
            release(queue->heard[i].words);
        else
            queue->heard[kept++] = queue->heard[i];
    }
    queue->heard_count = kept;
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
    list = core__alloc((queue->heard_count + 1) * sizeof(core__error_source *));
    status = list ? error_source_of(queue, &list[0])
                  : core__error_memory(sizeof(core__error_source *));
    for (uint32_t i = 0; status == CORE_OK && i <= queue->heard_count; i++) {
        if (i > 0)
            list[i] = retain(queue->heard[i - 1].words);
        *out_count = i + 1;
    }
    pthread_mutex_unlock(&queue->lock);
    *out_list = list;
    return status;
}

static core_status grow_links(core__queue *queue, uint32_t count)
{
    uint64_t room = queue->heard_room;
    core__error_source_link *heard;

    if (queue->heard_count + count > room)
        prune(queue);
    if (queue->heard_count + count <= room)
        return CORE_OK;
    room = 2 * room + count;
    heard = core__realloc(queue->heard, room * sizeof *heard);
    if (!heard)
        return core__error_memory(room * sizeof *heard);
    queue->heard = heard;
    queue->heard_room = (uint32_t)room;
    return CORE_OK;
}

/* With the lock held, and with space for it; takes the reference. */
static void add_link(core__queue *queue, core__error_source *words)
{
    uint64_t at = atomic_load(&queue->waited);
    uint32_t i = 0;

    while (i < queue->heard_count && queue->heard[i].words != words)
        i++;
    if (i < queue->heard_count) {
        queue->heard[i].at = at;
        release(words);
    } else if (words == queue->words) {
        release(words);
    } else {
        queue->heard[queue->heard_count++] =
            (core__error_source_link){words, at};
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

static core_status take(core__error_source *words, const char *reason)
{
    core_status status = CORE_OK;

    if (atomic_load(&words->over))
        return CORE_OK;
    pthread_mutex_lock(&words->lock);
    if (words->queue) {
        status = core__queue_take_error(words->queue, reason);
    } else if (!atomic_load(&words->over)) {
        status =
            core__error(words->code, "%s (found by %s)",
                        words->text ? words->text
                                    : "a stream that has ended failed; there "
                                      "was no memory to keep the reason",
                        reason);
        atomic_store(&words->over, true);
    }
    pthread_mutex_unlock(&words->lock);
    return status;
}

/* The oldest source waited for up to that position; NULL: no more. */
static core__error_source *next(core__queue *queue, uint64_t waited)
{
    core__error_source *words = NULL;
    uint32_t i = 0;

    pthread_mutex_lock(&queue->lock);
    while (i < queue->heard_count && queue->heard[i].at > waited)
        i++;
    if (i < queue->heard_count) {
        words = queue->heard[i].words;
        queue->heard_count--;
        for (; i < queue->heard_count; i++)
            queue->heard[i] = queue->heard[i + 1];
    }
    pthread_mutex_unlock(&queue->lock);
    return words;
}

core_status core__queue_take_awaited_errors(core__queue *queue, uint64_t waited,
                                            const char *reason)
{
    core_status status = CORE_OK;
    core__error_source *words;

    while (status == CORE_OK && atomic_load(&queue->heard_count) > 0 &&
           (words = next(queue, waited)) != NULL) {
        status = take(words, reason);
        release(words);
    }
    return status;
}

/* -------------------------------------------------------------- ending -- */

core_status core__queue_take_unshared_error(core__queue *queue,
                                            const char *reason)
{
    bool shared;

    pthread_mutex_lock(&queue->lock);
    shared = queue->words && atomic_load(&queue->words->references) > 1;
    pthread_mutex_unlock(&queue->lock);
    return shared ? CORE_OK : core__queue_take_error(queue, reason);
}

/* Takes the last error of a queue that ends.  Errors that its work finds
 * afterwards are lost, because this does not wait. */
static void keep_last_error(core__error_source *words)
{
    core__error_record said;

    core__error_save(&said);
    words->code = core__queue_take_error(words->queue, "the stream's end");
    if (words->code != CORE_OK)
        words->text = core__strdup(core_error_message());
    core__error_restore(&said);
}

void core__queue_own_errors_end(core__queue *queue)
{
    core__error_source *words;

    pthread_mutex_lock(&queue->lock);
    words = queue->words;
    queue->words = NULL;
    pthread_mutex_unlock(&queue->lock);
    if (!words)
        return;
    pthread_mutex_lock(&words->lock);
    if (atomic_load(&words->references) > 1)
        keep_last_error(words);
    words->queue = NULL;
    atomic_store(&words->over, words->code == CORE_OK);
    pthread_mutex_unlock(&words->lock);
    release(words);
}

void core__queue_errors_end(core__queue *queue)
{
    for (uint32_t i = 0; i < queue->heard_count; i++)
        release(queue->heard[i].words);
    core__free(queue->heard);
    core__queue_own_errors_end(queue);
}
