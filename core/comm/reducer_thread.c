/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The thread that makes a reducer's collectives on a device without streams, so
 * that the backward goes on meanwhile. */

#include "comm/reducer.h"

#include "base/memory.h"
#include "base/thread.h"
#include "base/thread_start.h"

#include <string.h>
#include <time.h>

uint64_t core__reducer_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Keeps the thread's error, unless there is one. */
static void fail(core__reducer_thread *thread, core_status status)
{
    core_error *error = NULL;

    core_error_detach(&error);
    pthread_mutex_lock(&thread->lock);
    if (thread->status == CORE_OK) {
        thread->status = status;
        thread->error = error;
        error = NULL;
    }
    pthread_mutex_unlock(&thread->lock);
    core_error_release(error);
}

static void reduce(core_reducer *reducer, core__bucket *bucket)
{
    core_status status = core__bucket_average(reducer, bucket);

    if (status != CORE_OK)
        fail(reducer->thread, status);
}

static void *run(void *context)
{
    core_reducer *reducer = context;
    core__reducer_thread *thread = reducer->thread;

    pthread_mutex_lock(&thread->lock);
    for (;;) {
        core__bucket *bucket;
        uint64_t begin;

        while (thread->done == thread->begun && !thread->ends)
            pthread_cond_wait(&thread->change, &thread->lock);
        if (thread->done == thread->begun)
            break;
        bucket = &thread->buckets[thread->done];
        pthread_mutex_unlock(&thread->lock);
        begin = core__reducer_now_ns();
        reduce(reducer, bucket);
        pthread_mutex_lock(&thread->lock);
        thread->communicated_ns += core__reducer_now_ns() - begin;
        thread->done++;
        pthread_cond_broadcast(&thread->change);
    }
    pthread_mutex_unlock(&thread->lock);
    return NULL;
}

static void destroy(core_reducer *reducer)
{
    core__reducer_thread *thread = reducer->thread;

    core_error_release(thread->error);
    pthread_cond_destroy(&thread->change);
    pthread_mutex_destroy(&thread->lock);
    core__free(thread);
    reducer->thread = NULL;
}

core_status core__reducer_thread_start(core_reducer *reducer)
{
    core__reducer_thread *thread = core__alloc_zero(sizeof *thread);
    int failed;

    if (!thread)
        return core__error_memory(sizeof *thread);
    pthread_mutex_init(&thread->lock, NULL);
    pthread_cond_init(&thread->change, NULL);
    reducer->thread = thread;
    failed = core__thread_start(&thread->id, run, reducer);
    if (failed) {
        destroy(reducer);
        return core__error(CORE_ERROR_OUT_OF_MEMORY,
                           "core_reducer_create: cannot create a thread: %s",
                           strerror(failed));
    }
    return CORE_OK;
}

void core__reducer_thread_end(core_reducer *reducer)
{
    core__reducer_thread *thread = reducer->thread;

    if (!thread)
        return;
    if (reducer->comm->process != core__fork_mark) {
        core__free(thread); /* it does not exist in this process */
        reducer->thread = NULL;
        return;
    }
    pthread_mutex_lock(&thread->lock);
    thread->ends = true;
    pthread_cond_broadcast(&thread->change);
    pthread_mutex_unlock(&thread->lock);
    pthread_join(thread->id, NULL);
    destroy(reducer);
}

void core__reducer_thread_begin(core_reducer *reducer)
{
    core__reducer_thread *thread = reducer->thread;

    pthread_mutex_lock(&thread->lock);
    thread->buckets = reducer->buckets;
    thread->begun++;
    pthread_cond_broadcast(&thread->change);
    pthread_mutex_unlock(&thread->lock);
}

core_status core__reducer_thread_wait(core_reducer *reducer)
{
    core__reducer_thread *thread = reducer->thread;
    core_status status;
    core_error *error;

    pthread_mutex_lock(&thread->lock);
    while (thread->done != thread->begun)
        pthread_cond_wait(&thread->change, &thread->lock);
    thread->begun = thread->done = 0;
    status = thread->status;
    error = thread->error;
    thread->status = CORE_OK;
    thread->error = NULL;
    pthread_mutex_unlock(&thread->lock);
    if (error || status == CORE_OK)
        return core_error_raise(error);
    return core__error(status, "a collective failed in another thread; its "
                               "error message was lost for lack of memory");
}
