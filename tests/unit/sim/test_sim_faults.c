/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Faults injected into the simulated accelerator: failing calls, failing work,
 * lost devices, the errors that its streams report; and graphs and plans. */

#include "support/sim.h"

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
    sim_close();
}

START_TEST(only_the_nth_call_fails)
{
    core_memory memory;
    void *event, *stream;

    OK(control->fault(0, SIM_FAULT_ALLOC, 2));
    new_block(device, N);
    new_block(device1, N);
    FAILS(sim.memory->alloc(device, N, &memory), CORE_ERROR_OUT_OF_MEMORY,
          "injected failure");
    new_block(device, N);
    OK(control->fault(0, SIM_FAULT_LAUNCH, 1));
    FAILS(launch_named("increment", device, first, a, 1, b, 1, N),
          CORE_ERROR_INTERNAL, "launch");
    increment_bytes(device, first, a, b, N);
    OK(control->fault(0, SIM_FAULT_COPY, 1));
    FAILS(sim.memory->fill(device, first, a, N, 0, 1), CORE_ERROR_INTERNAL,
          "copy");
    OK(control->fault(0, SIM_FAULT_STREAM, 1));
    FAILS(sim.streams->create(device, 0, &stream), CORE_ERROR_INTERNAL,
          "stream");
    OK(control->fault(0, SIM_FAULT_EVENT, 1));
    FAILS(sim.events->create(device, 0, &event), CORE_ERROR_INTERNAL, "event");
    event = new_event(device, 0);
    OK(control->fault(0, SIM_FAULT_RECORD, 1));
    FAILS(sim.events->record(device, event, first), CORE_ERROR_INTERNAL,
          "record");
    OK(sim.events->record(device, event, first));
    OK(control->fault(0, SIM_FAULT_WAIT, 1));
    FAILS(sim.streams->wait_event(device, second, event), CORE_ERROR_INTERNAL,
          "wait");
    OK(sim.streams->wait_event(device, second, event));
    OK(sim.streams->synchronize(device, second));
    sim.events->destroy(device, event);
    ck_assert_uint_eq(counted(0).faults, 7);
}
END_TEST

START_TEST(environment_injects_faults)
{
    core_memory memory;

    sim_close();
    setenv("LIBCORE_SIM_FAULT", "alloc:2@1,copy:1", 1);
    sim_open();
    new_block(device, N);
    new_block(device, N);
    new_block(device1, N);
    FAILS(sim.memory->alloc(device1, N, &memory), CORE_ERROR_OUT_OF_MEMORY,
          "sim:1");
    first = new_stream(device);
    FAILS(sim.memory->fill(device, first, new_block(device, N), N, 0, 1),
          CORE_ERROR_INTERNAL, "copy");
    unsetenv("LIBCORE_SIM_FAULT");
}
END_TEST

START_TEST(failed_work_poisons_only_its_stream_and_later_events)
{
    void *before = new_event(device, 0), *after = new_event(device, 0);

    fill(device, first, a, N, 1);
    OK(sim.events->record(device, before, first));
    OK(launch_named("breaks", device, first, a, 1, a, 1, N));
    OK(sim.events->record(device, after, first));
    fill(device, first, a, N, 2); /* dropped */
    FAILS(sim.streams->synchronize(device, first), CORE_ERROR_STREAM,
          "breaks: it broke");
    ck_assert_uint_eq(error_now.severity, CORE_SEVERITY_STREAM_POISONED);
    FAILS(sim.streams->query(device, first), CORE_ERROR_STREAM, "it broke");
    OK(sim.events->query(device, before));
    FAILS(sim.events->query(device, after), CORE_ERROR_STREAM, "it broke");
    FAILS(sim.events->synchronize(device, after), CORE_ERROR_STREAM,
          "it broke");
    ck_assert_uint_eq(byte_of(device, second, a), 1);
    sim.events->destroy(device, before);
    sim.events->destroy(device, after);
}
END_TEST

START_TEST(wait_for_failed_work_reports_it_and_the_stream_continues)
{
    const core_stream_error_interface *words = interface("core.stream_error");
    core_stream_error word = {.struct_size = sizeof word};

    OK(launch_named("breaks", device, first, a, 1, a, 1, N));
    order(device, first, device, second);
    fill(device, second, b, N, 3);
    ck_assert_uint_eq(byte_of(device, second, b), 3);
    OK(words->take(device, second, &word));
    ck_assert_int_eq(word.code, CORE_ERROR_STREAM);
    ck_assert_ptr_nonnull(strstr(word.text.data, "it broke"));
}
END_TEST

/* A failed stream drops its wait; a stream that waits for it nevertheless runs
 * after both, since the stream that was not waited for may still be busy. */
START_TEST(work_before_a_dropped_wait_is_waited_for)
{
    void *other = new_stream(device1);
    core_memory c = new_block(device1, N);

    OK(launch_named("breaks", device, first, a, 1, a, 1, N));
    FAILS(sim.streams->synchronize(device, first), CORE_ERROR_STREAM,
          "it broke");
    OK(control->hold(1));
    fill(device1, other, c, N, 1);
    order(device1, other, device, first);
    order(device, first, device, second);
    for (int i = 0; i < 100; i++) {
        ck_assert_int_eq(sim.streams->query(device, second), CORE_ERROR_BUSY);
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    OK(control->release(1));
    OK(sim.streams->synchronize(device1, other));
    sim.streams->synchronize(device, second);
    OK(sim.streams->query(device, second));
}
END_TEST

START_TEST(bad_data_sets_the_error_flag_once_and_the_stream_continues)
{
    const core_stream_error_interface *words = interface("core.stream_error");
    core_stream_error word = {.struct_size = sizeof word};
    uint64_t id;

    increment_bytes(device, first, a, a, N);
    OK(launch_named("bad_index", device, first, a, 1, a, 1, N));
    OK(launch_named("bad_index", device, first, a, 1, a, 1, N));
    fill(device, first, a, N, 2);
    ck_assert_uint_eq(byte_of(device, first, a), 2);
    OK(words->take(device, first, &word));
    ck_assert_int_eq(word.code, CORE_ERROR_INDEX);
    ck_assert_str_eq(word.text.data, "index 7 of 3");
    ck_assert_int_eq(word.index, INT64_MIN); /* sim knows only the text */
    id = word.call_id;
    OK(words->take(device, first, &word));
    ck_assert_int_eq(word.code, CORE_OK);
    OK(launch_named("bad_index", device, first, a, 1, a, 1, N));
    OK(sim.streams->synchronize(device, first));
    OK(words->take(device, first, &word));
    /* the first of the two before it */
    ck_assert_uint_eq(word.call_id, id + 2);
}
END_TEST

START_TEST(wait_reports_bad_data_if_the_core_has_no_error_flags)
{
    sim_close();
    OK(sim_load());
    OK(sim.device_open(sim.user, 0, &device));
    OK(sim.device_open(sim.user, 1, &device1));
    a = new_block(device, N);
    first = new_stream(device);
    OK(launch_named("bad_index", device, first, a, 1, a, 1, N));
    FAILS(sim.streams->synchronize(device, first), CORE_ERROR_INDEX,
          "index 7 of 3");
    ck_assert_uint_eq(error_now.severity, CORE_SEVERITY_RECOVERABLE);
    OK(sim.streams->synchronize(device, first));
}
END_TEST

START_TEST(lost_device_returns_errors_until_it_is_reset)
{
    const core_device_reset_interface *again = interface("core.device_reset");
    void *event = new_event(device, 0);
    core_memory memory;

    OK(sim.device_status(device));
    fill(device, first, a, N, 1);
    OK(sim.streams->synchronize(device, first));
    OK(control->fault(0, SIM_FAULT_LOST, 2));
    fill(device, first, a, N, 1);
    fill(device, second, a, N, 1);
    /* detected by waiting for any stream */
    while (sim.device_status(device) == CORE_OK)
        sim.streams->query(device, second);
    FAILS(sim.streams->synchronize(device, first), CORE_ERROR_DEVICE_LOST,
          "lost");
    ck_assert_uint_eq(error_now.severity, CORE_SEVERITY_DEVICE_LOST);
    ck_assert_int_eq(sim.memory->alloc(device, N, &memory),
                     CORE_ERROR_DEVICE_LOST);
    ck_assert_int_eq(sim.events->record(device, event, first),
                     CORE_ERROR_DEVICE_LOST);
    ck_assert_int_eq(launch_named("increment", device, second, a, 1, a, 1, N),
                     CORE_ERROR_DEVICE_LOST);
    sim.memory->free(device, a, N);
    sim.streams->destroy(device, second);
    sim.events->destroy(device, event);
    new_block(device1, N); /* the other device works */
    OK(again->reset(device));
    OK(sim.device_status(device));
    ck_assert_uint_eq(counted(0).blocks, 0);
    ck_assert_uint_eq(counted(0).streams, 0);
    ck_assert_uint_eq(counted(0).events, 0);
    a = new_block(device, N);
    first = new_stream(device);
    fill(device, first, a, N, 6);
    ck_assert_uint_eq(byte_of(device, first, a), 6);
}
END_TEST

START_TEST(wait_for_a_lost_device_returns)
{
    void *there = new_stream(device1);

    OK(control->hold(1));
    fill(device1, there, new_block(device1, N), N, 1);
    order(device1, there, device, first);
    fill(device, first, a, N, 4);
    OK(control->lose(1));
    ck_assert_uint_eq(byte_of(device, first, a), 4);
}
END_TEST

/* Work that takes a while uses `memory` when the device is lost. */
static void lose_while_it_fills(core_memory memory, uint64_t size)
{
    OK(sim.memory->fill(device, first, memory, size, 1, 8));
    usleep(1000); /* or the work was dropped, and there is nothing to observe */
    OK(control->lose(0));
}

START_TEST(memory_in_use_by_a_lost_device_may_be_freed)
{
    enum { LARGE = 32 << 20 };
    const core_virtual_memory_interface *mapped =
        interface("core.virtual_memory");
    const core_device_reset_interface *again = interface("core.device_reset");
    core_memory memory = new_block(device, LARGE);

    lose_while_it_fills(memory, LARGE);
    sim.memory->free(device, memory, LARGE);
    sim.memory->free(device, memory, LARGE); /* only counted */
    OK(again->reset(device));
    first = new_stream(device);
    OK(mapped->reserve(device, LARGE, &memory));
    OK(mapped->map(device, memory, 0, LARGE));
    lose_while_it_fills(memory, LARGE);
    mapped->unmap(device, memory, 0, LARGE);
    mapped->release(device, memory, LARGE);
    OK(again->reset(device));
    ck_assert_uint_eq(counted(0).blocks, 0);
    ck_assert_uint_eq(counted(0).bad_frees, 1);
}
END_TEST

/* A wait for a stream of a lost device fails only when the stream's work no
 * longer uses the host's memory; for pinned memory it may fail earlier. */
START_TEST(host_memory_in_use_by_a_lost_device_may_be_freed)
{
    enum { LARGE = 32 << 20 };
    const core_host_memory_interface *host = interface("core.host_memory");
    const core_device_reset_interface *again = interface("core.device_reset");
    core_memory memory = new_block(device, LARGE);
    void *pinned, *mine = malloc(LARGE);

    OK(sim.memory->copy_to_host(device, first, mine, memory, LARGE));
    usleep(1000);
    OK(control->lose(0));
    FAILS(sim.streams->synchronize(device, first), CORE_ERROR_DEVICE_LOST,
          "lost");
    free(mine);
    OK(again->reset(device));
    first = new_stream(device);
    memory = new_block(device, LARGE);
    OK(host->alloc(device, LARGE, &pinned));
    OK(sim.memory->copy_to_host(device, first, pinned, memory, LARGE));
    usleep(1000);
    OK(control->lose(0));
    host->free(device, pinned, LARGE);
    OK(again->reset(device));
    ck_assert_uint_eq(counted(0).blocks, 0);
}
END_TEST

/* ---------------------------------------------------------------- graphs -- */

START_TEST(captured_work_runs_only_at_every_launch)
{
    const core_graph_capture_interface *capture =
        interface("core.graph_capture");
    void *graph;

    fill(device, first, a, N, 0);
    OK(capture->begin(device, first));
    increment_bytes(device, first, a, a, N);
    increment_bytes(device, first, b, a, N);
    OK(capture->end(device, first, &graph));
    ck_assert_uint_eq(byte_of(device, first, a), 0);
    for (int i = 0; i < 3; i++)
        OK(capture->launch(device, graph, first));
    ck_assert_uint_eq(byte_of(device, first, a), 3);
    ck_assert_uint_eq(byte_of(device, first, b), 4);
    OK(capture->launch(device, graph, second));
    capture->destroy(device, graph); /* while it is running */
    ck_assert_uint_eq(byte_of(device, second, b), 5);
    ck_assert_uint_eq(counted(0).graphs, 0);
    ck_assert_uint_eq(counted(0).graph_launches, 4);
}
END_TEST

START_TEST(capture_can_be_discarded)
{
    const core_graph_capture_interface *capture =
        interface("core.graph_capture");

    fill(device, first, a, N, 0);
    OK(capture->begin(device, first));
    FAILS(capture->begin(device, first), CORE_ERROR_BUSY, "already");
    increment_bytes(device, first, a, a, N);
    OK(capture->end(device, first, NULL));
    ck_assert_uint_eq(byte_of(device, first, a), 0);
    FAILS(capture->end(device, first, NULL), CORE_ERROR_INTERNAL, "not begun");
}
END_TEST

START_TEST(work_that_cannot_be_captured_is_refused)
{
    const core_graph_capture_interface *capture =
        interface("core.graph_capture");
    const core_host_callback_interface *callbacks =
        interface("core.host_callback");
    void *event = new_event(device, 0);

    OK(sim.events->record(device, event, second));
    OK(capture->begin(device, first));
    FAILS(sim.events->record(device, event, first), CORE_ERROR_UNSUPPORTED,
          "record");
    FAILS(sim.streams->wait_event(device, first, event), CORE_ERROR_UNSUPPORTED,
          "wait");
    FAILS(callbacks->enqueue(device, first, free, NULL, NULL),
          CORE_ERROR_UNSUPPORTED, "callback");
    OK(capture->end(device, first, NULL));
    sim.events->destroy(device, event);
}
END_TEST

START_TEST(replays_are_checked_for_races)
{
    const core_graph_capture_interface *capture;
    void *graph;

    sim_close();
    setenv("LIBCORE_SIM_CHECK", "1", 1);
    setup();
    capture = interface("core.graph_capture");
    OK(capture->begin(device, first));
    increment_bytes(device, first, a, b, N);
    OK(capture->end(device, first, &graph));
    OK(capture->launch(device, graph, first));
    order(device, first, device, second);
    OK(capture->launch(device, graph, second));
    OK(sim.streams->synchronize(device, second));
    ck_assert_uint_eq(counted(0).conflicts, 0);
    OK(capture->launch(device, graph, first));
    OK(capture->launch(device, graph, second));
    ck_assert_uint_eq(counted(0).conflicts, 1);
    capture->destroy(device, graph);
    sim.streams->synchronize(device, first);
    sim.streams->synchronize(device, second);
    unsetenv("LIBCORE_SIM_CHECK");
}
END_TEST

/* ----------------------------------------------------------------- plans -- */

START_TEST(launch_requires_the_plan_of_its_structure)
{
    void *of_n, *of_less;

    sim_close();
    setenv("LIBCORE_SIM_COMPILE", "1", 1);
    setup();
    ck_assert_ptr_nonnull(sim_kernels[0]->prepare);
    FAILS(launch_named("increment", device, first, a, 1, b, 1, N),
          CORE_ERROR_INTERNAL, "without a plan");
    OK(prepare_named("increment", device, first, a, 1, b, 1, N, &of_n));
    OK(prepare_named("increment", device, first, a, 1, b, 1, N / 2, &of_less));
    ck_assert_uint_eq(counted(0).compiles, 2);
    plan_now = of_less;
    FAILS(launch_named("increment", device, first, a, 1, b, 1, N),
          CORE_ERROR_INTERNAL, "another structure");
    plan_now = of_n;
    fill(device, first, b, N, 0);
    OK(control->hold(0));
    increment_bytes(device, first, a, b, N);
    increment_bytes(device, first, b, a, N); /* other memory, same plan */
    /* the running work holds a reference */
    sim_kernels[0]->plan_destroy(of_n);
    ck_assert_uint_eq(counted(0).plans, 2);
    OK(control->release(0));
    ck_assert_uint_eq(byte_of(device, first, b), 2);
    ck_assert_uint_eq(counted(0).plans, 1);
    sim_kernels[0]->plan_destroy(of_less);
    ck_assert_uint_eq(counted(0).plans, 0);
    plan_now = NULL;
    OK(control->fault(0, SIM_FAULT_PLAN, 1));
    FAILS(prepare_named("increment", device, first, a, 1, b, 1, N, &of_n),
          CORE_ERROR_INTERNAL, "plan");
    ck_assert_ptr_null(of_n);
    unsetenv("LIBCORE_SIM_COMPILE");
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        only_the_nth_call_fails,
        environment_injects_faults,
        failed_work_poisons_only_its_stream_and_later_events,
        wait_for_failed_work_reports_it_and_the_stream_continues,
        work_before_a_dropped_wait_is_waited_for,
        bad_data_sets_the_error_flag_once_and_the_stream_continues,
        wait_reports_bad_data_if_the_core_has_no_error_flags,
        lost_device_returns_errors_until_it_is_reset,
        wait_for_a_lost_device_returns,
        memory_in_use_by_a_lost_device_may_be_freed,
        host_memory_in_use_by_a_lost_device_may_be_freed,
        captured_work_runs_only_at_every_launch,
        capture_can_be_discarded,
        work_that_cannot_be_captured_is_refused,
        replays_are_checked_for_races,
        launch_requires_the_plan_of_its_structure,
    };
    const test_suite suite = {
        .name = "sim/sim_faults",
        .setup = setup,
        .teardown = teardown,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
