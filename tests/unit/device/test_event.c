/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Events: what they order, which streams may wait for them, and which calls are
 * refused. */

#include "support/stream.h"

static void delays(void)
{
    setenv("LIBCORE_SIM_DEVICES", "2", 1);
    setenv("LIBCORE_SIM_DELAY_US", "2000", 1);
}

START_TEST(stream_waits_for_an_event_of_another_stream)
{
    core_device *sim = device_of("sim");
    core_stream *producer = stream_of(sim), *consumer = stream_of(sim);
    core_event *event = event_of(sim);

    for (int i = 0; i < 20; i++) {
        core_stream_guard guard;
        core_tensor *made, *seen;

        OK(core_stream_guard_enter(producer, &guard));
        made = add(filled(sim, 64, i), filled(sim, 64, 1));
        OK(core_event_record(event, producer));
        core_stream_guard_leave(&guard);
        OK(core_stream_guard_enter(consumer, &guard));
        OK(core_stream_wait_event(consumer, event));
        seen = add(made, made);
        all_are(seen, 2 * (i + 1));
        core_stream_guard_leave(&guard);
        OK(core_stream_synchronize(producer));
    }
    core_event_release(event);
    core_stream_release(producer);
    core_stream_release(consumer);
}
END_TEST

START_TEST(stream_waits_for_a_stream_of_another_device)
{
    core_device *one = device_of("sim"), *two = device_of("sim:1");
    core_stream *first = stream_of(one), *second = stream_of(two);
    core_event *event = event_of(one), *later = event_of(two);

    OK(core_stream_set_current(first));
    for (int i = 0; i < 10; i++)
        filled(one, 16, i);
    OK(core_event_record(event, first));
    OK(core_stream_wait_stream(second, first));
    OK(core_event_record(later, second));
    OK(core_event_synchronize(later));
    OK(core_event_query(event)); /* recorded before that work */
    core_event_release(event);
    core_event_release(later);
    core_stream_release(first);
    core_stream_release(second);
}
END_TEST

START_TEST(event_is_done_when_its_work_is_done)
{
    core_device *sim = device_of("sim");
    core_stream *stream = stream_of(sim);
    core_event *event = event_of(sim);
    uint64_t waits = core_host_waits();
    core_status status;

    OK(core_stream_set_current(stream));
    filled(sim, 16, 1);
    OK(core_event_record(event, stream));
    do {
        status = core_event_query(event);
        ck_assert(status == CORE_OK || status == CORE_ERROR_BUSY);
    } while (status != CORE_OK);
    OK(core_stream_query(stream));
    ck_assert_uint_eq(core_host_waits(), waits);
    OK(core_event_synchronize(event));
    ck_assert_uint_eq(core_host_waits(), waits + 1);
    core_event_release(event);
    core_stream_release(stream);
}
END_TEST

START_TEST(wait_on_unrecorded_event_fails)
{
    core_device *sim = device_of("sim"), *cpu = device_of("cpu");
    core_device *devices[2] = {sim, cpu};

    for (int i = 0; i < 2; i++) {
        core_event *event = event_of(devices[i]);
        core_stream *stream = stream_of(sim), *host = stream_of(cpu);

        FAILS(core_event_query(event), CORE_ERROR_INVALID_ARGUMENT,
              "never recorded");
        FAILS(core_event_synchronize(event), CORE_ERROR_INVALID_ARGUMENT,
              "never recorded");
        FAILS(core_stream_wait_event(stream, event),
              CORE_ERROR_INVALID_ARGUMENT, "never recorded");
        FAILS(core_stream_wait_event(host, event), CORE_ERROR_INVALID_ARGUMENT,
              "never recorded");
        /* as if nothing had been recorded */
        OK(core_stream_synchronize(stream));
        {
            core_event *timed;
            double ms;

            OK(core_event_create(devices[i], CORE_EVENT_TIMING, &timed));
            FAILS(core_event_elapsed(timed, timed, &ms),
                  CORE_ERROR_INVALID_ARGUMENT, "core_event_elapsed: the event");
            core_event_release(timed);
        }
        core_event_release(event);
        core_stream_release(stream);
        core_stream_release(host);
    }
}
END_TEST

START_TEST(event_of_another_device_is_refused)
{
    core_device *one = device_of("sim"), *two = device_of("sim:1");
    core_stream *stream = stream_of(two), *host = stream_of(device_of("cpu"));
    core_event *event = event_of(one);

    ck_assert_ptr_eq(core_event_device(event), one);
    FAILS(core_event_record(event, stream), CORE_ERROR_DEVICE, "\"sim\"",
          "\"sim:1\"");
    FAILS(core_event_record(event, host), CORE_ERROR_DEVICE, "\"cpu\"");
    FAILS(core_event_query(event), CORE_ERROR_INVALID_ARGUMENT,
          "never recorded");
    core_event_release(event);
    FAILS(core_event_create(one, 8, &event), CORE_ERROR_INVALID_ARGUMENT,
          "0x8");
    ck_assert_ptr_null(event);
    core_stream_release(stream);
    core_stream_release(host);
}
END_TEST

START_TEST(elapsed_time_needs_events_with_timing)
{
    core_device *sim = device_of("sim"), *cpu = device_of("cpu");
    core_event *plain = event_of(cpu), *timed, *other = event_of(sim);
    core_stream *stream = stream_of(cpu);
    double milliseconds;

    OK(core_event_create(cpu, CORE_EVENT_TIMING, &timed));
    OK(core_event_record(plain, stream));
    OK(core_event_record(timed, stream));
    FAILS(core_event_elapsed(plain, timed, &milliseconds),
          CORE_ERROR_INVALID_ARGUMENT, "start", "CORE_EVENT_TIMING");
    FAILS(core_event_elapsed(timed, plain, &milliseconds),
          CORE_ERROR_INVALID_ARGUMENT, "end");
    FAILS(core_event_elapsed(timed, other, &milliseconds), CORE_ERROR_DEVICE,
          "\"sim\"", "\"cpu\"");
    core_event_release(plain);
    core_event_release(timed);
    core_event_release(other);
    core_stream_release(stream);
}
END_TEST

START_TEST(event_outlives_its_stream)
{
    core_device *sim = device_of("sim");
    core_stream *stream = stream_of(sim), *other = stream_of(sim);
    core_event *event = event_of(sim);
    core_stream_guard guard;

    OK(core_stream_guard_enter(stream, &guard));
    filled(sim, 16, 1);
    OK(core_event_record(event, stream));
    core_stream_guard_leave(&guard);
    core_stream_release(stream);
    OK(core_stream_wait_event(other, event));
    OK(core_event_synchronize(event));
    OK(core_event_query(event));
    OK(core_stream_synchronize(other));
    core_event_release(event);
    core_stream_release(other);
}
END_TEST

START_TEST(null_is_refused)
{
    core_device *cpu = device_of("cpu");
    core_stream *stream = stream_of(cpu);
    core_event *event;
    double milliseconds;

    FAILS(core_event_create(NULL, 0, &event), CORE_ERROR_INVALID_ARGUMENT,
          "core_event_create", "device");
    ck_assert_ptr_null(event);
    event = event_of(cpu);
    FAILS(core_event_create(cpu, 0, NULL), CORE_ERROR_INVALID_ARGUMENT,
          "out_event");
    FAILS(core_event_record(NULL, stream), CORE_ERROR_INVALID_ARGUMENT,
          "event");
    FAILS(core_event_record(event, NULL), CORE_ERROR_INVALID_ARGUMENT,
          "stream");
    FAILS(core_event_query(NULL), CORE_ERROR_INVALID_ARGUMENT, "event");
    FAILS(core_event_synchronize(NULL), CORE_ERROR_INVALID_ARGUMENT, "event");
    FAILS(core_stream_wait_event(stream, NULL), CORE_ERROR_INVALID_ARGUMENT,
          "event");
    FAILS(core_stream_wait_stream(stream, NULL), CORE_ERROR_INVALID_ARGUMENT,
          "other");
    FAILS(core_event_elapsed(event, NULL, &milliseconds),
          CORE_ERROR_INVALID_ARGUMENT, "end");
    core_event_release(event);
    core_stream_release(stream);
    core_event_release(NULL);
    core_stream_release(NULL);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        stream_waits_for_an_event_of_another_stream,
        stream_waits_for_a_stream_of_another_device,
        event_is_done_when_its_work_is_done,
        wait_on_unrecorded_event_fails,
        event_of_another_device_is_refused,
        elapsed_time_needs_events_with_timing,
        event_outlives_its_stream,
        null_is_refused,
    };

    delays();
    return run_suite("device/event", tests, sizeof tests / sizeof *tests);
}
