/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Host callbacks, priorities, adopted streams, time, and limited queues. */

#define SUITE_FORKS true

#include "support/sim_device.h"
#include "support/stream.h"

#include <libcore/memory.h>

#include "device/device.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static void start(void)
{
    sim_find("sim");
}

/* ------------------------------------------------------------ callbacks -- */

static _Atomic int ran, dropped;

static void run(void *context)
{
    (*(_Atomic int *)context)++;
}

static void drop_it(void *context)
{
    (void)context;
    dropped++;
}

START_TEST(callback_runs_once_when_the_stream_reaches_it)
{
    core_stream *stream = stream_of(sim);

    OK(control->hold(0));
    OK(core_stream_callback(stream, run, &ran, drop_it));
    OK(core_stream_callback(stream, run, &ran, NULL));
    usleep(5000);
    ck_assert_int_eq(ran, 0);
    OK(control->release(0));
    OK(core_stream_synchronize(stream));
    ck_assert_int_eq(ran, 2);
    ck_assert_int_eq(dropped, 0);
    core_stream_release(stream);
}
END_TEST

START_TEST(callback_that_cannot_run_is_dropped_once)
{
    core_stream *stream = stream_of(sim), *standard;
    core_tensor *one = filled(sim, 4, 1), *result;

    FAILS(core_stream_callback(NULL, run, &ran, drop_it),
          CORE_ERROR_INVALID_ARGUMENT, "stream");
    ck_assert_int_eq(dropped, 1);
    OK(core_device_synchronize(sim));
    OK(core_stream_set_current(stream));
    OK(control->hold(0));
    OK(control->fault(0, SIM_FAULT_ASYNC, 1));
    OK(core_exp(one, &result));
    core_tensor_release(result);
    OK(core_stream_callback(stream, run, &ran, drop_it)); /* after it */
    OK(control->release(0));
    FAILS(core_stream_synchronize(stream), CORE_ERROR_STREAM, "exp");
    for (int i = 0; dropped < 2 && i < 20000; i++)
        usleep(1000);
    ck_assert_int_eq(dropped, 2);
    FAILS(core_stream_callback(stream, run, &ran, drop_it), CORE_ERROR_STREAM,
          "exp");
    ck_assert_int_eq(dropped, 3);
    ck_assert_int_eq(ran, 0);
    OK(core_stream_default(sim, &standard));
    OK(core_stream_set_current(standard));
    core_stream_release(stream);
}
END_TEST

START_TEST(callbacks_of_a_lost_device_are_dropped)
{
    core_stream *stream = stream_of(sim);

    OK(control->hold(0));
    OK(core_stream_callback(stream, run, &ran, drop_it));
    OK(control->lose(0));
    OK(control->release(0));
    FAILS(core_stream_synchronize(stream), CORE_ERROR_DEVICE_LOST, "lost");
    for (int i = 0; dropped < 1 && i < 20000; i++)
        usleep(1000);
    ck_assert_int_eq(dropped, 1);
    FAILS(core_stream_callback(stream, run, &ran, drop_it),
          CORE_ERROR_DEVICE_LOST, "lost");
    ck_assert_int_eq(dropped, 2);
    OK(core_device_reset(sim));
    FAILS(core_stream_callback(stream, run, &ran, drop_it),
          CORE_ERROR_DEVICE_LOST, "reset");
    ck_assert_int_eq(dropped, 3);
    ck_assert_int_eq(ran, 0);
    core_stream_release(stream);
}
END_TEST

START_TEST(synchronous_device_runs_callbacks_at_once)
{
    core_stream *stream = stream_of(device_of("cpu"));

    OK(core_stream_callback(stream, run, &ran, drop_it));
    ck_assert_int_eq(ran, 1);
    ck_assert_int_eq(dropped, 0);
    core_stream_release(stream);
}
END_TEST

static void release(void *context)
{
    core_tensor_release(((void **)context)[0]);
    core_stream_release(((void **)context)[1]);
    core_event_release(((void **)context)[2]);
    ran++;
}

START_TEST(callback_may_release_objects)
{
    core_stream *stream = stream_of(sim), *other = stream_of(sim);
    void *context[3] = {NULL, other, event_of(sim)};
    core_tensor *tensor;

    OK(core_full(&(int64_t){1000}, 1, core_float(1), CORE_F32, sim, &tensor));
    OK(core_tensor_record_stream(tensor, other));
    OK(core_event_record(context[2], other));
    context[0] = tensor;
    OK(core_stream_callback(stream, release, context, NULL));
    OK(core_stream_synchronize(stream));
    ck_assert_int_eq(ran, 1);
    core_stream_release(stream);
}
END_TEST

/* ------------------------------------------- priorities, adoption, time -- */

START_TEST(priorities_are_clamped_to_the_range_of_the_device)
{
    int32_t least = 0, greatest = 0;
    core_stream *stream;

    OK(core_device_priorities(sim, &least, &greatest));
    ck_assert_int_gt(least, greatest);
    for (int32_t p = greatest - 2; p <= least + 2; p++) {
        OK(core_stream_create_priority(sim, p, &stream));
        OK(core_stream_synchronize(stream));
        core_stream_release(stream);
    }
}
END_TEST

START_TEST(adopted_stream_is_ordered_with_its_library)
{
    core_stream *stream, *mine = stream_of(sim);
    core_tensor *made;
    core_stream_guard guard;
    void *native, *same;

    OK(control->native_create(0, &native));
    OK(core_stream_adopt(sim, native, &stream));
    OK(core_stream_native(stream, &same));
    ck_assert_ptr_eq(same, native);
    OK(core_stream_native(mine, &same));
    ck_assert_ptr_nonnull(same);
    OK(core_stream_guard_enter(stream, &guard));
    made = filled(sim, 64, 2);
    all_are(add(made, made), 4);
    core_stream_guard_leave(&guard);
    OK(core_stream_wait_stream(mine, stream));
    OK(core_stream_synchronize(mine));
    drop_all();
    core_stream_release(stream);
    core_stream_release(mine);
    /* the native stream still exists */
    OK(control->native_synchronize(native));
    control->native_destroy(native);
}
END_TEST

/* The plugin's objects for the stream are destroyed with the last reference, so
 * that its library may destroy it; work that was enqueued on it is still
 * done. */
START_TEST(events_outlive_an_adopted_stream)
{
    uint64_t before = counters_of(0).streams;
    core_stream_guard guard;
    core_stream *stream;
    core_event *event;
    void *native;

    OK(core_event_create(sim, 0, &event));
    OK(control->native_create(0, &native));
    OK(core_stream_adopt(sim, native, &stream));
    OK(core_stream_guard_enter(stream, &guard));
    all_are(filled(sim, 64, 2), 2);
    core_stream_guard_leave(&guard);
    drop_all();
    OK(core_event_record(event, stream));
    core_stream_release(stream);
    control->native_destroy(native);
    OK(core_event_synchronize(event));
    for (int i = 0; i < 20000 && counters_of(0).streams > before; i++)
        usleep(1000);
    ck_assert_uint_eq(counters_of(0).streams, before);
    OK(core_event_query(event));
    stream = stream_of(sim);
    OK(core_stream_wait_event(stream, event));
    OK(core_stream_synchronize(stream));
    core_stream_release(stream);
    core_event_release(event);
}
END_TEST

static atomic_bool enough;

static void *wait_for_all(void *word)
{
    (void)word;
    while (!atomic_load(&enough))
        OK(core_device_synchronize(sim));
    return NULL;
}

/* A thread that waits for the stream holds a reference meanwhile. */
START_TEST(adopted_streams_may_end_while_the_device_synchronizes)
{
    uint64_t before = counters_of(0).streams;
    pthread_t thread;

    ck_assert_int_eq(pthread_create(&thread, NULL, wait_for_all, NULL), 0);
    for (int i = 0; i < 300; i++) {
        core_stream *stream;
        core_event *event;
        void *native;

        OK(core_event_create(sim, 0, &event));
        OK(control->native_create(0, &native));
        OK(core_stream_adopt(sim, native, &stream));
        OK(core_event_record(event, stream));
        core_stream_release(stream);
        OK(core_event_synchronize(event));
        core_event_release(event);
        control->native_destroy(native);
    }
    atomic_store(&enough, true);
    pthread_join(thread, NULL);
    for (int i = 0; i < 20000 && counters_of(0).streams > before; i++)
        usleep(1000);
    ck_assert_uint_eq(counters_of(0).streams, before);
}
END_TEST

START_TEST(elapsed_time_between_events_is_positive)
{
    core_stream *stream = stream_of(sim);
    core_event *first, *last;
    double milliseconds;
    core_status status;

    OK(core_event_create(sim, CORE_EVENT_TIMING, &first));
    OK(core_event_create(sim, CORE_EVENT_TIMING, &last));
    OK(core_event_record(first, stream));
    OK(core_stream_synchronize(stream));
    OK(control->hold(0));
    OK(core_event_record(last, stream));
    status = core_event_elapsed(first, last, &milliseconds);
    usleep(20000);
    OK(control->release(0));
    ck_assert_int_eq(status, CORE_ERROR_BUSY);
    OK(core_event_synchronize(last));
    OK(core_event_elapsed(first, last, &milliseconds));
    ck_assert(milliseconds >= 15);
    OK(core_event_elapsed(last, first, &milliseconds));
    ck_assert(milliseconds <= -15);
    core_event_release(first);
    core_event_release(last);
    core_stream_release(stream);
}
END_TEST

/* ----------------------------------------------------------- few queues -- */

/* In a process that has not loaded the plugin yet. */
static void with_queues(const char *count)
{
    setenv("LIBCORE_SIM_QUEUES", count, 1);
    start();
}

START_TEST(one_queue_serves_all_streams)
{
    core_stream *streams[5];
    core_tensor *made;
    uint64_t events;

    with_queues("1");
    for (int i = 0; i < 5; i++)
        streams[i] = stream_of(sim);
    ck_assert_uint_eq(counters_of(0).streams_created, 1);
    events = core_device_events_created(sim);
    OK(core_stream_set_current(streams[0]));
    made = filled(sim, 64, 1);
    for (int i = 1; i < 5; i++) {
        OK(core_stream_wait_stream(streams[i], streams[i - 1]));
        OK(core_stream_set_current(streams[i]));
        made = add(made, made);
    }
    all_are(made, 16);
    ck_assert_uint_eq(core_device_events_created(sim), events);
    for (int i = 0; i < 5; i++)
        core_stream_release(streams[i]);
}
END_TEST

/* A destroyed stream is counted until its thread has ended. */
static void until_queues(uint64_t most)
{
    for (int i = 0; counters_of(0).streams > most && i < 20000; i++)
        usleep(1000);
    ck_assert_uint_le(counters_of(0).streams, most);
}

START_TEST(streams_are_assigned_to_queues_in_turn)
{
    core_stream *streams[7];

    with_queues("3");
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 7; i++)
            streams[i] = stream_of(sim);
        for (int i = 0; i < 7; i++) {
            core_stream_guard guard;

            OK(core_stream_guard_enter(streams[i], &guard));
            all_are(add(filled(sim, 8, i), filled(sim, 8, 1)), i + 1);
            core_stream_guard_leave(&guard);
        }
        drop_all();
        for (int i = 0; i < 7; i++)
            core_stream_release(streams[i]);
        until_queues(3);
    }
    OK(core_device_synchronize(sim));
}
END_TEST

static core_status (*plugins_create)(void *, uint32_t, void **);
static void (*plugins_destroy)(void *, void *);
static core_stream *meanwhile; /* created while another one is destroyed */
static _Atomic int live;
static int most;
static bool apart; /* in another thread */
static pthread_t maker;

static core_status counted_create(void *device, uint32_t flags, void **out)
{
    if (++live > most)
        most = live;
    return plugins_create(device, flags, out);
}

static void *make_one(void *context)
{
    OK(core_stream_create(sim, &meanwhile));
    return context;
}

static void slow_destroy(void *device, void *stream)
{
    if (apart) {
        ck_assert_int_eq(pthread_create(&maker, NULL, make_one, NULL), 0);
        usleep(20000); /* better if it comes by then, but either is right */
    } else if (!meanwhile) {
        make_one(NULL);
    }
    plugins_destroy(device, stream);
    live--;
}

/* A plugin that has two streams, one of which it is just destroying. */
static void watch_the_plugin(void)
{
    plugins_create = sim->backend->streams.create;
    plugins_destroy = sim->backend->streams.destroy;
    sim->backend->streams.create = counted_create;
    sim->backend->streams.destroy = slow_destroy;
    live = most = 1;
}

START_TEST(queue_counts_until_the_plugin_has_destroyed_it)
{
    with_queues("2");
    watch_the_plugin();
    core_stream_release(stream_of(sim));
    ck_assert_int_eq(most, 2);
    /* on the queue of the default stream */
    OK(core_stream_synchronize(meanwhile));
    core_stream_release(meanwhile);
}
END_TEST

START_TEST(stream_creation_waits_for_a_queue_if_all_have_failed)
{
    core_tensor *one, *result;

    with_queues("2");
    watch_the_plugin();
    apart = true;
    one = filled(sim, 4, 1);
    OK(core_device_synchronize(sim));
    OK(control->fault(0, SIM_FAULT_ASYNC, 1));
    OK(core_exp(one, &result));
    core_tensor_release(result);
    FAILS(core_device_synchronize(sim), CORE_ERROR_STREAM, "exp");
    core_stream_release(stream_of(sim));
    ck_assert_int_eq(pthread_join(maker, NULL), 0);
    ck_assert_int_eq(most, 2);
    OK(core_stream_synchronize(meanwhile));
    apart = false;
    core_stream_release(meanwhile);
}
END_TEST

START_TEST(failed_queue_is_not_reused)
{
    core_stream *failed, *next;
    core_tensor *one, *result;
    core_stream_guard guard;

    with_queues("2");
    one = filled(sim, 4, 1);
    OK(core_device_synchronize(sim));
    failed = stream_of(sim);
    OK(core_stream_guard_enter(failed, &guard));
    OK(control->fault(0, SIM_FAULT_ASYNC, 1));
    OK(core_exp(one, &result));
    core_tensor_release(result);
    FAILS(core_stream_synchronize(failed), CORE_ERROR_STREAM, "exp");
    core_stream_guard_leave(&guard);
    for (int i = 0; i < 3; i++) {
        next = stream_of(sim);
        OK(core_stream_synchronize(next));
        core_stream_release(next);
    }
    core_stream_release(failed);
    OK(core_device_synchronize(sim));
}
END_TEST

int main(void)
{
    const TTest *const plain[] = {
        callback_runs_once_when_the_stream_reaches_it,
        callback_that_cannot_run_is_dropped_once,
        callbacks_of_a_lost_device_are_dropped,
        synchronous_device_runs_callbacks_at_once,
        callback_may_release_objects,
        priorities_are_clamped_to_the_range_of_the_device,
        adopted_stream_is_ordered_with_its_library,
        events_outlive_an_adopted_stream,
        adopted_streams_may_end_while_the_device_synchronizes,
        elapsed_time_between_events_is_positive,
    };
    const TTest *const few[] = {
        one_queue_serves_all_streams,
        streams_are_assigned_to_queues_in_turn,
        queue_counts_until_the_plugin_has_destroyed_it,
        stream_creation_waits_for_a_queue_if_all_have_failed,
        failed_queue_is_not_reused,
    };
    const test_suite suites[] = {
        {"device/stream_order", start, drop_all, 0, SUITE_TESTS(plain)},
        {"device/stream_order, queues", NULL, drop_all, 0, SUITE_TESTS(few)},
    };

    return suite_run(suites, sizeof suites / sizeof *suites);
}
