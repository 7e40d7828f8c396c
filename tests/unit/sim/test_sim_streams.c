/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Streams and events of the simulated accelerator. */

#include "support/sanitizers.h"
#include "support/sim.h"

#include <sys/wait.h>
#include <unistd.h>

enum { N = 256 };

static core_memory a, b;
static void *first, *second;

static void setup(void)
{
    sim_open();
    a = new_block(device, N);
    b = new_block(device, N);
    first = new_stream(device);
    second = new_stream(device);
}

static void teardown(void)
{
    sim.streams->destroy(device, first);
    sim.streams->destroy(device, second);
    sim_close();
}

START_TEST(nothing_runs_before_the_call_returns_while_the_device_is_held)
{
    OK(control->hold(0));
    fill(device, first, a, N, 9);
    ck_assert_int_eq(sim.streams->query(device, first), CORE_ERROR_BUSY);
    OK(control->release(0));
    ck_assert_uint_eq(byte_of(device, first, a), 9);
    OK(sim.streams->query(device, first));
}
END_TEST

START_TEST(work_of_one_stream_keeps_its_order_under_delays)
{
    OK(control->delay((uint64_t)_i, 300));
    fill(device, first, a, N, 0);
    for (int i = 0; i < 50; i++)
        increment_bytes(device, first, a, a, N);
    ck_assert_uint_eq(byte_of(device, first, at(a, N - 1)), 50);
}
END_TEST

START_TEST(streams_overtake_each_other_without_an_event)
{
    bool overtaken = false;

    OK(control->delay(1, 2000));
    for (int i = 0; i < 100 && !overtaken; i++) {
        fill(device, first, a, 1, 0);
        OK(sim.streams->synchronize(device, first));
        fill(device, first, a, 1, 1);
        increment_bytes(device, second, b, a, 1);
        overtaken = byte_of(device, second, b) == 1;
    }
    ck_assert(overtaken);
}
END_TEST

START_TEST(event_delays_the_waiting_stream)
{
    OK(control->delay(1, 500));
    for (int i = 0; i < 50; i++) {
        fill(device, first, a, N, (uint8_t)i);
        order(device, first, device, second);
        increment_bytes(device, second, b, a, N);
        order(device, second, device, first);
        ck_assert_uint_eq(byte_of(device, second, b), (uint8_t)(i + 1));
    }
}
END_TEST

START_TEST(rerecording_does_not_affect_earlier_waits)
{
    void *event = new_event(device, 0);

    fill(device, first, a, N, 1);
    OK(sim.events->record(device, event, first));
    OK(sim.events->synchronize(device, event));
    OK(sim.streams->wait_event(device, second, event));
    OK(control->hold(0));
    fill(device, first, a, N, 2);
    OK(sim.events->record(device, event, first));
    ck_assert_int_eq(sim.events->query(device, event), CORE_ERROR_BUSY);
    OK(control->release(0));
    OK(sim.streams->synchronize(device, second));
    OK(sim.events->synchronize(device, event));
    OK(sim.events->query(device, event));
    sim.events->destroy(device, event);
}
END_TEST

START_TEST(destroyed_stream_finishes_its_work)
{
    void *stream = new_stream(device);
    void *event = new_event(device, 0);

    OK(control->delay(1, 2000));
    fill(device, stream, a, N, 1);
    increment_bytes(device, stream, a, a, N);
    OK(sim.events->record(device, event, stream));
    sim.streams->destroy(device, stream);
    OK(sim.events->synchronize(device, event));
    ck_assert_uint_eq(byte_of(device, first, a), 2);
    sim.events->destroy(device, event);
}
END_TEST

START_TEST(elapsed_time_between_events_is_positive)
{
    const core_timing_interface *timing = interface("core.timing");
    void *start = new_event(device, CORE_EVENT_TIMING);
    void *end = new_event(device, CORE_EVENT_TIMING);
    void *plain = new_event(device, 0);
    int64_t there = 0, back = 0;

    OK(sim.events->record(device, start, first));
    fill(device, first, a, N, 1);
    OK(sim.events->record(device, end, first));
    OK(sim.events->record(device, plain, first));
    OK(sim.streams->synchronize(device, first));
    OK(timing->elapsed(device, start, end, &there));
    OK(timing->elapsed(device, end, start, &back));
    ck_assert_int_gt(there, 0);
    ck_assert_int_eq(there, -back);
    FAILS(timing->elapsed(device, start, plain, &there), CORE_ERROR_INTERNAL,
          "CORE_EVENT_TIMING");
    sim.events->destroy(device, start);
    sim.events->destroy(device, end);
    sim.events->destroy(device, plain);
}
END_TEST

static _Atomic int called, dropped;

static void count_call(void *context)
{
    (void)context;
    atomic_fetch_add(&called, 1);
}

static void count_drop(void *context)
{
    (void)context;
    atomic_fetch_add(&dropped, 1);
}

START_TEST(callback_runs_once_or_is_dropped_once)
{
    const core_host_callback_interface *callbacks =
        interface("core.host_callback");

    OK(callbacks->enqueue(device, first, count_call, NULL, count_drop));
    OK(sim.streams->synchronize(device, first));
    ck_assert_int_eq(called, 1);
    ck_assert_int_eq(dropped, 0);
    OK(control->fault(0, SIM_FAULT_ASYNC, 1));
    increment_bytes(device, first, a, a, N);
    OK(callbacks->enqueue(device, first, count_call, NULL, count_drop));
    FAILS(sim.streams->synchronize(device, first), CORE_ERROR_STREAM,
          "increment");
    ck_assert_int_eq(called, 1);
    ck_assert_int_eq(dropped, 1);
    OK(control->lose(0));
    FAILS(callbacks->enqueue(device, second, count_call, NULL, count_drop),
          CORE_ERROR_DEVICE_LOST, "lost");
    ck_assert_int_eq(dropped, 2);
}
END_TEST

START_TEST(streams_of_high_priority_run_first)
{
    const core_stream_priority_interface *priorities =
        interface("core.stream_priority");
    int32_t least, greatest;
    void *low, *high;

    OK(priorities->range(device, &least, &greatest));
    ck_assert_int_lt(greatest, least);
    OK(priorities->create(device, 0, least, &low));
    OK(priorities->create(device, 0, greatest, &high));
    fill(device, low, b, 1, 0);
    OK(sim.streams->synchronize(device, low));
    OK(control->hold(0));
    increment_bytes(device, low, a, b, 1);
    for (int i = 0; i < 50; i++)
        increment_bytes(device, high, b, b, 1);
    OK(control->release(0));
    OK(sim.streams->synchronize(device, low));
    /* The earlier work ran after all work of the other stream. */
    ck_assert_uint_eq(byte_of(device, low, a), 51);
    sim.streams->destroy(device, low);
    sim.streams->destroy(device, high);
    FAILS(priorities->create(device, 0, greatest - 1, &low),
          CORE_ERROR_INVALID_ARGUMENT, "priority");
}
END_TEST

START_TEST(foreign_stream_is_adopted_and_not_destroyed)
{
    const core_stream_adopt_interface *adoption =
        interface("core.stream_adopt");
    void *native, *stream, *same, *none;

    OK(control->native_create(0, &native));
    OK(adoption->adopt(device, native, &stream));
    OK(adoption->native(device, stream, &same));
    ck_assert_ptr_eq(native, same);
    OK(control->native_fill(native, a, N, 4));
    increment_bytes(device, stream, a, a, N);
    ck_assert_uint_eq(byte_of(device, stream, a), 5);
    sim.streams->destroy(device, stream);
    OK(control->native_fill(native, a, N, 6));
    OK(control->native_synchronize(native));
    ck_assert_uint_eq(byte_of(device, first, a), 6);
    control->native_destroy(native);
    FAILS(adoption->adopt(device, &none, &stream), CORE_ERROR_INVALID_ARGUMENT,
          "not a stream");
}
END_TEST

START_TEST(number_of_queues_is_limited)
{
    core_device_properties properties = {.struct_size = sizeof properties};
    void *third;

    sim_close();
    setenv("LIBCORE_SIM_QUEUES", "2", 1);
    sim_open();
    OK(sim.device_properties(device, &properties));
    ck_assert_uint_eq(properties.max_streams, 2);
    first = new_stream(device);
    second = new_stream(device);
    FAILS(sim.streams->create(device, 0, &third), CORE_ERROR_UNSUPPORTED,
          "2 streams");
    ck_assert_ptr_null(third);
    new_stream(device1);
}
END_TEST

START_TEST(device_returns_an_error_in_a_forked_child)
{
    pid_t child;
    int status;

    fill(device, first, a, N, 1);
    OK(sim.streams->synchronize(device, first)); /* no lock is held */
    child = fork();
    if (child == 0) {
        bool right =
            sim.memory->fill(device, first, a, N, 1, 1) ==
                CORE_ERROR_UNSUPPORTED &&
            sim.streams->synchronize(device, first) == CORE_ERROR_UNSUPPORTED;

        /* What the device's thread had when it was forked looks leaked. */
        if (has_address_sanitizer())
            _exit(right ? 42 : 1);
        exit(right ? 42 : 1); /* destructors do not hang either */
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 42);
    ck_assert_uint_eq(byte_of(device, first, a), 1);
}
END_TEST

START_TEST(exit_with_running_work_does_not_hang)
{
    pid_t child;
    int status;

    sim_close();
    child = fork();
    if (child == 0) { /* loads its own copy of the plugin */
        sim_open();
        a = new_block(device, N);
        first = new_stream(device);
        OK(control->delay(1, 1000));
        for (int i = 0; i < 100; i++)
            increment_bytes(device, first, a, a, N);
        OK(control->hold(0));
        exit(42);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 42);
    setup();
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        nothing_runs_before_the_call_returns_while_the_device_is_held,
        streams_overtake_each_other_without_an_event,
        event_delays_the_waiting_stream,
        rerecording_does_not_affect_earlier_waits,
        destroyed_stream_finishes_its_work,
        elapsed_time_between_events_is_positive,
        callback_runs_once_or_is_dropped_once,
        streams_of_high_priority_run_first,
        foreign_stream_is_adopted_and_not_destroyed,
        number_of_queues_is_limited,
        device_returns_an_error_in_a_forked_child,
        exit_with_running_work_does_not_hang,
    };
    const suite_loop loops[] = {
        {work_of_one_stream_keeps_its_order_under_delays, 0, 3},
    };
    const test_suite suite = {
        .name = "sim/sim_streams",
        .setup = setup,
        .teardown = teardown,
        SUITE_TESTS(tests),
        SUITE_LOOPS(loops),
    };

    return suite_run(&suite, 1);
}
