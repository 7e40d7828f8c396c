/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Host callbacks release objects while another thread waits for the callbacks
 * and holds the allocator's lock. */

/* A release that waits for its own callback would hang. */
#define SUITE_SECONDS 30

#define SUITE_FORKS true

#include "support/memory.h"

#include <libcore/capture.h>

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

static core_tensor *vector(int64_t n)
{
    core_tensor *made;

    OK(core_empty(&n, 1, CORE_F32, sim, -1, &made));
    return made;
}

static _Atomic bool emptying;

static void *empty(void *context)
{
    (void)context;
    atomic_store(&emptying, true);
    OK(core_memory_empty_cache(sim));
    return NULL;
}

/* Another thread waits for the callback and holds the allocator's lock. */
static void wait_until_waited_for(void)
{
    core__allocator *allocator = sim->allocator;

    while (!atomic_load(&emptying))
        sched_yield();
    while (pthread_mutex_trylock(&allocator->lock) == 0) {
        pthread_mutex_unlock(&allocator->lock);
        sched_yield();
    }
}

static void nothing(void *context)
{
    (void)context;
}

static void release_stream(void *context)
{
    wait_until_waited_for();
    core_stream_release(context);
}

static void release_pool(void *context)
{
    wait_until_waited_for();
    core_memory_pool_release(context);
}

static void release_pinned(void *context)
{
    while (!atomic_load(&emptying))
        sched_yield();
    for (int i = 0; i < 100; i++)
        usleep(1000); /* by now the other thread waits */
    core_tensor_release(context);
}

START_TEST(callback_may_release_objects_without_memory)
{
    core_memory_pool *pool;
    core_stream *own, *other;
    core_tensor *t;
    pthread_t thread;

    open_sim("");
    for (int i = 0; i < 2; i++) {
        other = stream();
        own = stream();
        OK(core_memory_pool_create(sim, &pool));
        t = vector(1000);
        OK(core_tensor_record_stream(t, other));
        atomic_store(&emptying, false);
        OK(core_stream_callback(other, i ? release_stream : release_pool,
                                i ? (void *)own : (void *)pool, NULL));
        core_tensor_release(t); /* waits for the callback */
        ck_assert_int_eq(pthread_create(&thread, NULL, empty, NULL), 0);
        pthread_join(thread, NULL);
        if (i)
            core_memory_pool_release(pool);
        else
            core_stream_release(own);
        OK(core_stream_synchronize(other));
        core_stream_release(other);
    }
    OK(core_device_synchronize(sim));
    all_is_back();
}
END_TEST

START_TEST(callback_may_release_host_memory)
{
    core_tensor *t, *host, *another;
    core_stream *now;
    pthread_t thread;
    int64_t n = 1000;

    open_sim("");
    OK(core_stream_current(sim, &now));
    t = vector(n);
    OK(core_fill_(t, core_float(3)));
    OK(core_tensor_pinned(sim, CORE_F32, &n, 1, &host));
    OK(core_tensor_pinned(sim, CORE_F32, &n, 1, &another));
    OK(core_tensor_copy(host, t, CORE_COPY_NON_BLOCKING));
    OK(core_stream_callback(now, release_pinned, another, NULL));
    core_tensor_release(host); /* waits for the callback */
    ck_assert_int_eq(pthread_create(&thread, NULL, empty, NULL), 0);
    pthread_join(thread, NULL);
    core_tensor_release(t);
    all_is_back();
    ck_assert_uint_eq(counters().pinned, 0);
}
END_TEST

/* ------------------------------------------- memory of the very stream -- */

/* The stream, and any stream that waits for it, is not done before the callback
 * is: waiting for it here would be a deadlock. */

static void drop_tensor(void *context)
{
    core_tensor_release(context);
}

static void drop_pool(void *context)
{
    core_memory_pool_release(context);
}

static void drop_graph(void *context)
{
    core_graph_release(context);
}

static void drop_stream(void *context)
{
    core_stream_release(context);
}

/* All streams end, and freed memory returns to the device at the next call that
 * looks for it. */
static void is_given_back(core_stream *on)
{
    OK(core_stream_synchronize(on));
    OK(core_stream_synchronize(on)); /* the event that the callback created */
    core__allocator_settle_uses(sim->allocator);
    ck_assert_uint_eq(counters().blocks, 0);
    ck_assert_uint_eq(stats().segments[0].current, 0);
    all_is_back();
}

START_TEST(callback_may_release_the_last_tensor_of_a_pool)
{
    core_memory_pool *pool;
    core_stream *own;
    core_tensor *t;

    for (int expandable = 0; expandable < 2; expandable++) {
        open_sim("");
        OK(core_memory_configure(sim,
                                 expandable ? "expandable_segments:true" : ""));
        own = stream();
        OK(core_stream_set_current(own));
        OK(core_memory_pool_create(sim, &pool));
        OK(core_memory_pool_begin(pool));
        t = vector(1000);
        OK(core_memory_pool_end(pool));
        core_memory_pool_release(pool);
        OK(core_stream_callback(own, drop_tensor, t, drop_tensor));
        is_given_back(own);
        core_stream_release(own);
    }
}
END_TEST

START_TEST(callback_may_release_a_pool_with_memory)
{
    core_memory_pool *pool;
    core_stream *own;

    for (int expandable = 0; expandable < 2; expandable++) {
        open_sim("");
        OK(core_memory_configure(sim,
                                 expandable ? "expandable_segments:true" : ""));
        own = stream();
        OK(core_stream_set_current(own));
        OK(core_memory_pool_create(sim, &pool));
        OK(core_memory_pool_begin(pool));
        core_tensor_release(vector(1000));
        OK(core_memory_pool_end(pool));
        OK(core_stream_callback(own, drop_pool, pool, drop_pool));
        is_given_back(own);
        core_stream_release(own);
    }
}
END_TEST

START_TEST(callback_may_release_a_graph)
{
    core_stream *own;
    core_graph *graph;
    core_tensor *t, *u;

    open_sim("");
    own = stream();
    OK(core_stream_set_current(own));
    t = vector(1000);
    OK(core_fill_(t, core_float(1)));
    OK(core_capture_begin(own, NULL));
    OK(core_mul(t, t, &u));
    OK(core_capture_end(own, &graph));
    core_tensor_release(u);
    OK(core_graph_launch(graph, own));
    OK(core_stream_callback(own, drop_graph, graph, drop_graph));
    OK(core_stream_synchronize(own));
    core_tensor_release(t);
    all_is_back();
}
END_TEST

START_TEST(callback_may_release_memory_without_caching)
{
    core_stream *own, *other;
    core_tensor *t;

    open_sim("caching:false");
    own = stream();
    other = stream();
    OK(core_stream_set_current(own));
    /* its own or that of a stream that waits for it */
    for (int i = 0; i < 3; i++) {
        t = vector(1000);
        if (i == 1)
            OK(core_stream_wait_stream(own, other));
        OK(core_stream_callback(i ? other : own, drop_tensor, t, drop_tensor));
        if (i)
            OK(core_stream_wait_stream(own, other));
        is_given_back(own);
    }
    core_stream_release(own);
    core_stream_release(other);
}
END_TEST

/* The callback is dropped in the thread that detects the failure of the
 * stream. */
START_TEST(dropped_callback_may_release_memory_without_caching)
{
    core_stream *own;
    core_tensor *t, *u;

    open_sim("caching:false");
    own = stream();
    OK(core_stream_set_current(own));
    t = vector(1000);
    OK(core_fill_(t, core_float(1)));
    OK(control->fault(0, SIM_FAULT_ASYNC, 1));
    OK(core_mul(t, t, &u));
    OK(core_stream_callback(own, drop_tensor, t, drop_tensor));
    ck_assert_int_eq(core_stream_synchronize(own), CORE_ERROR_STREAM);
    core_tensor_release(u);
    all_is_back();
    core_stream_release(own);
}
END_TEST

START_TEST(stream_may_end_in_its_own_callback)
{
    const uint32_t faults[] = {0, SIM_FAULT_EVENT, SIM_FAULT_RECORD};
    core_stream_guard guard;
    core_stream *own;

    open_sim("");
    for (int i = 0; i < 3; i++) {
        own = stream();
        OK(core_stream_guard_enter(own, &guard));
        core_tensor_release(vector(1000));
        core_stream_guard_leave(&guard);
        OK(control->hold(0));
        OK(core_stream_callback(own, drop_stream, own, drop_stream));
        if (i)
            OK(control->fault(0, faults[i], 1));
        OK(control->release(0));
        OK(core_device_synchronize(sim));
        all_is_back();
    }
}
END_TEST

/* A request that needs memory at once can use memory that is about to be
 * freed. */
START_TEST(allocation_waits_for_memory_that_is_about_to_be_freed)
{
    core_stream *own;
    piece p, q;

    open_sim("caching:false");
    own = stream();
    OK(core_stream_set_current(own));
    p = take(20 * MIB);
    OK(control->delay(1, 20000));
    OK(core_memory_set_fraction(
        sim, 30.0 * MIB / (double)((core__allocator *)sim->allocator)->total));
    OK(control->hold(0));
    OK(core_stream_callback(own, nothing, NULL, NULL));
    give(p);
    ck_assert_uint_eq(counters().blocks, 1); /* work may still use it */
    OK(control->release(0));
    q = take(20 * MIB);
    ck_assert_uint_eq(counters().blocks, 1);
    ck_assert_uint_eq(stats().out_of_memories, 0);
    give(q);
    OK(control->delay(1, 0));
    all_is_back();
    core_stream_release(own);
}
END_TEST

SUITE("memory/memory_callbacks", callback_may_release_objects_without_memory,
      callback_may_release_host_memory,
      callback_may_release_the_last_tensor_of_a_pool,
      callback_may_release_a_pool_with_memory, callback_may_release_a_graph,
      callback_may_release_memory_without_caching,
      dropped_callback_may_release_memory_without_caching,
      stream_may_end_in_its_own_callback,
      allocation_waits_for_memory_that_is_about_to_be_freed)
