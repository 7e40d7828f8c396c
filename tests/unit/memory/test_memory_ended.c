/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Memory of streams that ended: which stream gets it next, and that streams
 * which share memory do end. */

#include "support/memory.h"

#include <unistd.h>

static core_tensor *tensor_of(core_device *device, int64_t n)
{
    core_tensor *made;

    OK(core_empty(&n, 1, CORE_F32, device, -1, &made));
    return made;
}

static void wait_for(void *context)
{
    while (!atomic_load((_Atomic bool *)context))
        usleep(100);
}

START_TEST(next_stream_does_not_wait_for_unfinished_work_of_an_ended_one)
{
    static _Atomic bool go_on;
    core_stream *first, *second, *third;
    piece p, q, r;

    open_sim("");
    first = stream();
    second = stream();
    third = stream();
    p = take_on(first, 20 * MIB);
    OK(core_stream_callback(first, wait_for, (void *)&go_on, NULL));
    give(p);
    core_stream_release(first);
    q = take_on(second, 20 * MIB);
    ck_assert(!same(p, q)); /* the unfinished work may still fail */
    OK(core_stream_query(second));
    atomic_store(&go_on, true);
    OK(core_device_synchronize(sim));
    r = take_on(third, 20 * MIB);
    ck_assert(same(p, r));
    give(q);
    give(r);
    core_stream_release(second);
    core_stream_release(third);
    all_is_back();
}
END_TEST

START_TEST(next_stream_waits_if_many_ended_with_unfinished_work)
{
    static _Atomic bool go_on;
    core_stream *made, *next;
    piece p;

    open_sim("");
    next = stream();
    for (int i = 0; i < CORE__HEAPS_BUSY; i++) {
        made = stream();
        p = take_on(made, 1000);
        OK(core_stream_callback(made, wait_for, (void *)&go_on, NULL));
        give(p);
        core_stream_release(made);
    }
    ck_assert_uint_eq(stats().segments[0].current, CORE__HEAPS_BUSY);
    p = take_on(next, 1000);
    ck_assert_uint_eq(stats().segments[0].current, CORE__HEAPS_BUSY);
    ck_assert_int_eq(core_stream_query(next), CORE_ERROR_BUSY);
    atomic_store(&go_on, true);
    OK(core_stream_synchronize(next));
    OK(core_device_synchronize(sim));
    give(p);
    core_stream_release(next);
    all_is_back();
}
END_TEST

/* A stream with memory whose work fails after the stream is released. */
static void fail_and_end(core_memory_pool *from)
{
    core_stream *made = stream();
    core_stream_guard guard;
    core_tensor *t;

    if (from)
        OK(core_memory_pool_begin(from));
    OK(control->hold(0));
    OK(control->fault(0, SIM_FAULT_ASYNC, 1));
    OK(core_stream_guard_enter(made, &guard));
    t = tensor_of(sim, 10);
    OK(core_fill_(t, core_float(1)));
    core_stream_guard_leave(&guard);
    if (from)
        OK(core_memory_pool_end(from));
    core_tensor_release(t);
    core_stream_release(made);
    OK(control->release(0));
}

START_TEST(memory_of_failed_work_is_reused_without_its_error)
{
    core_stream *second;
    piece p;

    open_sim("");
    for (int reported = 0; reported < 2; reported++) {
        fail_and_end(NULL);
        if (reported)
            FAILS(core_device_synchronize(sim), CORE_ERROR_STREAM, "fill");
        second = stream();
        p = take_on(second, 1000);
        OK(core_stream_synchronize(second));
        give(p);
        core_stream_release(second);
        if (!reported)
            FAILS(core_device_synchronize(sim), CORE_ERROR_STREAM, "fill");
        OK(core_device_synchronize(sim));
        all_is_back();
    }
}
END_TEST

START_TEST(memory_of_failed_work_is_freed)
{
    core_memory_pool *pool;

    open_sim("");
    OK(core_memory_pool_create(sim, &pool));
    fail_and_end(pool);
    core_memory_pool_release(pool);
    ck_assert_int_eq(core_device_synchronize(sim), CORE_ERROR_STREAM);
    give(take(1000));
    ck_assert_uint_eq(stats().segments[0].current, 1);
    all_is_back();
}
END_TEST

/* Two streams that use each other's memory, and are released. */
static void share_and_end(void)
{
    core_stream *of[2] = {stream(), stream()};
    core_tensor *t[2];

    for (int i = 0; i < 2; i++) {
        core_stream_guard guard;

        OK(core_stream_guard_enter(of[i], &guard));
        t[i] = tensor_of(sim, 100);
        OK(core_fill_(t[i], core_float(1)));
        core_stream_guard_leave(&guard);
    }
    for (int i = 0; i < 2; i++) {
        OK(core_tensor_record_stream(t[i], of[1 - i]));
        core_tensor_release(t[i]);
    }
    core_stream_release(of[0]);
    core_stream_release(of[1]);
    OK(core_device_synchronize(sim));
}

static void until_streams(uint64_t most)
{
    for (int i = 0; counters().streams > most && i < 20000; i++)
        usleep(1000);
    ck_assert_uint_le(counters().streams, most);
}

START_TEST(streams_that_share_memory_do_not_keep_each_other_alive)
{
    open_sim("");
    for (int i = 0; i < 30; i++)
        share_and_end();
    ck_assert_uint_le(stats().segments[0].current, 2);
    until_streams(1 + 4); /* and the default stream */
    share_and_end();
    OK(core_memory_empty_cache(sim)); /* one call is enough */
    until_streams(1);
    ck_assert_uint_eq(counters().events, 0);
    all_is_back();
}
END_TEST

SUITE("memory/memory_ended",
      next_stream_does_not_wait_for_unfinished_work_of_an_ended_one,
      next_stream_waits_if_many_ended_with_unfinished_work,
      memory_of_failed_work_is_reused_without_its_error,
      memory_of_failed_work_is_freed,
      streams_that_share_memory_do_not_keep_each_other_alive)
