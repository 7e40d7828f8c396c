/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The one stream: a list of work that runs when somebody waits for it, on the
 * thread that waits.  The first failure is kept and told to the next who
 * synchronises; then the stream goes on. */

#include "sim.h"

#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the list */
static pthread_mutex_t running = PTHREAD_MUTEX_INITIALIZER;
static sim_work *first;
static sim_work *last;
static uint64_t enqueued;
static uint64_t done;
static core_status failure;
static pthread_t failed_in; /* whose error record has the message */

core_status sim_enqueue(const sim_work *work)
{
    sim_work *item = malloc(sizeof *item);

    if (!item)
        return core_sdk_error(sim_host, CORE_ERROR_OUT_OF_MEMORY, "sim",
                              "no host memory to queue work");
    *item = *work;
    item->next = NULL;
    pthread_mutex_lock(&lock);
    item->number = ++enqueued;
    if (last)
        last->next = item;
    else
        first = item;
    last = item;
    pthread_mutex_unlock(&lock);
    return CORE_OK;
}

static sim_work *take(uint64_t until)
{
    sim_work *work;

    pthread_mutex_lock(&lock);
    work = first && first->number <= until ? first : NULL;
    if (work) {
        first = work->next;
        if (!first)
            last = NULL;
    }
    pthread_mutex_unlock(&lock);
    return work;
}

/* Runs what was enqueued up to a number.  Work may be enqueued meanwhile, by
 * the release of what a kernel call held. */
static void run_until(uint64_t until)
{
    sim_work *work;

    pthread_mutex_lock(&running);
    while ((work = take(until)) != NULL) {
        core_status status = work->run(work);

        if (status != CORE_OK && failure == CORE_OK) {
            failure = status;
            failed_in = pthread_self();
        }
        done = work->number;
        free(work);
    }
    pthread_mutex_unlock(&running);
}

static uint64_t newest(void)
{
    uint64_t number;

    pthread_mutex_lock(&lock);
    number = enqueued;
    pthread_mutex_unlock(&lock);
    return number;
}

static core_status report(void)
{
    core_status status;

    pthread_mutex_lock(&running);
    status = failure;
    failure = CORE_OK;
    pthread_mutex_unlock(&running);
    if (status == CORE_OK || pthread_equal(failed_in, pthread_self()))
        return status;
    return core_sdk_error(sim_host, status, "sim",
                          "a kernel failed while another thread waited for "
                          "the stream");
}

static core_status create(void *device, uint32_t flags, void **out_stream)
{
    (void)device;
    (void)flags;
    *out_stream = &first; /* any word that is not NULL */
    return CORE_OK;
}

static void destroy(void *device, void *stream)
{
    (void)device;
    (void)stream;
    run_until(newest());
}

static core_status query(void *device, void *stream)
{
    (void)device;
    (void)stream;
    if (newest() == done)
        return report();
    run_until(done + 1); /* something happens between two looks */
    return CORE_ERROR_BUSY;
}

static core_status synchronize(void *device, void *stream)
{
    (void)device;
    (void)stream;
    run_until(newest());
    return report();
}

static core_status wait_event(void *device, void *stream, void *event)
{
    (void)device;
    (void)stream;
    (void)event; /* one stream: whatever was recorded lies before */
    return CORE_OK;
}

void sim_stream_close(void)
{
    run_until(UINT64_MAX);
}

const core_stream_table sim_stream_table = {
    .struct_size = sizeof(core_stream_table),
    .create = create,
    .destroy = destroy,
    .query = query,
    .synchronize = synchronize,
    .wait_event = wait_event,
};

/* -------------------------------------------------------------- events -- */

static core_status event_create(void *device, uint32_t flags, void **out_event)
{
    (void)device;
    (void)flags;
    *out_event = calloc(1, sizeof(uint64_t));
    return *out_event ? CORE_OK
                      : core_sdk_error(sim_host, CORE_ERROR_OUT_OF_MEMORY,
                                       "sim", "no host memory for an event");
}

static void event_destroy(void *device, void *event)
{
    (void)device;
    free(event);
}

static core_status event_record(void *device, void *event, void *stream)
{
    (void)device;
    (void)stream;
    *(uint64_t *)event = newest();
    return CORE_OK;
}

static core_status event_query(void *device, void *event)
{
    (void)device;
    if (*(uint64_t *)event <= done)
        return report();
    run_until(done + 1);
    return CORE_ERROR_BUSY;
}

static core_status event_synchronize(void *device, void *event)
{
    (void)device;
    run_until(*(uint64_t *)event);
    return report();
}

const core_event_table sim_event_table = {
    .struct_size = sizeof(core_event_table),
    .create = event_create,
    .destroy = event_destroy,
    .record = event_record,
    .query = event_query,
    .synchronize = event_synchronize,
};
