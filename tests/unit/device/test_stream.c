/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Streams: current streams, guards, lifetime, and a synchronous device. */

#define SUITE_FORKS true

#include "support/stream.h"

#include <pthread.h>

START_TEST(synchronous_device_accepts_every_call)
{
    core_device *cpu = device_of("cpu");
    core_stream *stream, *standard, *current;
    core_event *start, *end;
    int32_t least = 1, greatest = 1;
    double milliseconds = -1;

    OK(core_stream_create(cpu, &stream));
    OK(core_stream_default(cpu, &standard));
    ck_assert_uint_eq(core_stream_id(standard), 0);
    ck_assert_uint_ne(core_stream_id(stream), 0);
    ck_assert_ptr_eq(core_stream_device(stream), cpu);
    OK(core_device_priorities(cpu, &least, &greatest));
    ck_assert_int_eq(least, 0);
    ck_assert_int_eq(greatest, 0);
    OK(core_stream_query(stream));
    OK(core_stream_synchronize(stream));
    OK(core_stream_wait_stream(stream, standard));
    OK(core_event_create(cpu, CORE_EVENT_TIMING, &start));
    OK(core_event_create(cpu, CORE_EVENT_TIMING, &end));
    OK(core_event_record(start, stream));
    OK(core_event_record(end, standard));
    OK(core_event_query(end));
    OK(core_event_synchronize(end));
    OK(core_stream_wait_event(standard, start));
    OK(core_event_elapsed(start, end, &milliseconds));
    ck_assert(milliseconds >= 0);
    ck_assert_uint_eq(core_device_events_created(cpu), 0);
    OK(core_stream_set_current(stream));
    OK(core_stream_current(cpu, &current));
    ck_assert_ptr_eq(current, stream);
    HOLDS(add(VECTOR(2, 1, 2), VECTOR(2, 3, 4)), 2, 4, 6);
    OK(core_stream_set_current(standard));
    OK(core_device_synchronize(cpu));
    OK(core_device_status(cpu));
    core_event_release(start);
    core_event_release(end);
    core_stream_release(stream);
}
END_TEST

START_TEST(meta_device_has_a_stream)
{
    core_device *meta = device_of("meta");
    core_stream *stream, *current;

    OK(core_stream_current(meta, &current));
    ck_assert_ptr_nonnull(current);
    OK(core_stream_create(meta, &stream));
    OK(core_stream_set_current(stream));
    OK(core_stream_synchronize(stream));
    OK(core_stream_set_current(current));
    core_stream_release(stream);
}
END_TEST

static void *other_thread(void *argument)
{
    core_stream *current, *standard;
    core_device *device = core_stream_device(argument);

    OK(core_stream_current(device, &current));
    OK(core_stream_default(device, &standard));
    ck_assert_ptr_eq(current, standard);
    OK(core_stream_set_current(argument)); /* and is released with it */
    return NULL;
}

START_TEST(each_thread_has_its_own_current_stream)
{
    core_device *sim = device_of("sim");
    core_stream *stream, *current;
    pthread_t thread;

    OK(core_stream_create(sim, &stream));
    OK(core_stream_set_current(stream));
    ck_assert_int_eq(pthread_create(&thread, NULL, other_thread, stream), 0);
    pthread_join(thread, NULL);
    OK(core_stream_current(sim, &current));
    ck_assert_ptr_eq(current, stream);
    core_stream_release(stream); /* the thread holds a reference */
    OK(core_stream_current(sim, &current));
    ck_assert_ptr_eq(current, stream);
    OK(core_stream_synchronize(current));
}
END_TEST

START_TEST(guards_nest_and_restore)
{
    core_device *sim = device_of("sim");
    core_stream *first, *second, *standard, *current;
    core_stream_guard outer, inner, failed;
    core_device_guard device_guard;
    core_device *device;

    OK(core_stream_default(sim, &standard));
    OK(core_stream_create(sim, &first));
    OK(core_stream_create(sim, &second));
    OK(core_stream_guard_enter(first, &outer));
    OK(core_device_default(&device));
    ck_assert_ptr_eq(device, sim);
    OK(core_stream_guard_enter(second, &inner));
    OK(core_stream_current(sim, &current));
    ck_assert_ptr_eq(current, second);
    FAILS(core_stream_guard_enter(NULL, &failed), CORE_ERROR_INVALID_ARGUMENT,
          "stream");
    core_stream_guard_leave(&failed);
    OK(core_stream_current(sim, &current));
    ck_assert_ptr_eq(current, second);
    core_stream_guard_leave(&inner);
    core_stream_guard_leave(&inner); /* has no effect any more */
    OK(core_stream_current(sim, &current));
    ck_assert_ptr_eq(current, first);
    core_stream_guard_leave(&outer);
    OK(core_stream_current(sim, &current));
    ck_assert_ptr_eq(current, standard);
    OK(core_device_default(&device));
    ck_assert_str_eq(core_device_name(device), "cpu");
    OK(core_device_guard_enter(sim, &device_guard));
    OK(core_device_default(&device));
    ck_assert_ptr_eq(device, sim);
    core_device_guard_leave(&device_guard);
    OK(core_device_default(&device));
    ck_assert_str_eq(core_device_name(device), "cpu");
    core_stream_release(first);
    core_stream_release(second);
}
END_TEST

START_TEST(wait_for_the_same_stream_needs_no_event)
{
    core_device *sim = device_of("sim");
    core_stream *stream, *standard;
    uint64_t before;

    OK(core_stream_default(sim, &standard));
    OK(core_stream_create(sim, &stream));
    before = core_device_events_created(sim);
    OK(core_stream_wait_stream(stream, stream));
    OK(core_stream_wait_stream(standard, standard));
    ck_assert_uint_eq(core_device_events_created(sim), before);
    OK(core_stream_wait_stream(stream, standard));
    ck_assert_uint_eq(core_device_events_created(sim), before + 1);
    /* an event from the pool */
    OK(core_stream_wait_stream(standard, stream));
    ck_assert_uint_eq(core_device_events_created(sim), before + 1);
    core_stream_release(stream);
}
END_TEST

SUITE("device/stream", synchronous_device_accepts_every_call,
      meta_device_has_a_stream, each_thread_has_its_own_current_stream,
      guards_nest_and_restore, wait_for_the_same_stream_needs_no_event)
