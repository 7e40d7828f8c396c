/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Streams that fail and devices that are lost: the error is clear, nothing
 * hangs or leaks, and other streams and devices still work. */

#define SUITE_FORKS true

#include "support/sim_device.h"
#include "support/stream.h"

#include <libcore/memory.h>

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static core_device *other;

static void start(void)
{
    sim_find("sim");
    other = device_of("sim:1");
}

/* Enqueues calls on the current stream, of which the nth fails when it runs. */
static core_status fail_later(core_tensor *operand, uint64_t nth, int calls)
{
    core_tensor *result;

    OK(control->hold(0));
    OK(control->fault(0, SIM_FAULT_ASYNC, nth));
    for (int i = 0; i < calls; i++)
        if (core_mul(operand, operand, &result) == CORE_OK)
            core_tensor_release(result);
    return control->release(0);
}

static void works(core_device *device)
{
    core_stream *stream = stream_of(device);
    core_stream_guard guard;

    OK(core_stream_guard_enter(stream, &guard));
    all_are(add(filled(device, 8, 1), filled(device, 8, 2)), 3);
    core_stream_guard_leave(&guard);
    drop_all();
    core_stream_release(stream);
}

START_TEST(failed_stream_names_its_calls_and_stays_failed)
{
    core_stream *stream = stream_of(sim), *standard;
    core_event *event = event_of(sim), *before = event_of(sim);
    core_tensor *one, *result;

    OK(core_stream_set_current(stream));
    one = filled(sim, 4, 1);
    OK(core_stream_synchronize(stream));
    OK(core_event_record(before, stream));
    OK(fail_later(one, 2, 5));
    FAILS(core_stream_synchronize(stream), CORE_ERROR_STREAM, "sim",
          "one of the 5 calls since the last success", "mul.Tensor (call",
          "core_stream_synchronize");
    FAILS(core_stream_synchronize(stream), CORE_ERROR_STREAM, "mul.Tensor");
    FAILS(core_stream_query(stream), CORE_ERROR_STREAM, "mul.Tensor");
    FAILS(core_mul(one, one, &result), CORE_ERROR_STREAM, "mul.Tensor");
    ck_assert_ptr_null(result);
    FAILS(core_event_record(event, stream), CORE_ERROR_STREAM, "mul.Tensor");
    FAILS(core_device_synchronize(sim), CORE_ERROR_STREAM, "mul.Tensor");
    OK(core_event_query(before));
    works(sim);
    works(other);
    OK(core_stream_default(sim, &standard));
    OK(core_stream_set_current(standard));
    core_stream_release(stream); /* releases the failed stream */
    core_event_release(before);
    OK(core_device_synchronize(sim));
    core_event_release(event);
}
END_TEST

START_TEST(failing_operator_is_named_in_blocking_mode)
{
    core_stream *stream = stream_of(sim);
    core_tensor *one = filled(sim, 4, 1), *result;
    core_stream_guard guard;

    OK(core_device_synchronize(sim));
    OK(core_stream_guard_enter(stream, &guard));
    OK(core_setting_set("LIBCORE_BLOCKING", "1"));
    OK(core_mul(one, one, &result));
    keep(result);
    OK(control->fault(0, SIM_FAULT_ASYNC, 1));
    FAILS(core_exp(one, &result), CORE_ERROR_STREAM, "sim: exp (call",
          "LIBCORE_BLOCKING");
    ck_assert_ptr_null(result);
    OK(core_setting_set("LIBCORE_BLOCKING", NULL));
    core_stream_guard_leave(&guard);
    core_stream_release(stream);
}
END_TEST

static void *synchronize(void *stream)
{
    FAILS(core_stream_synchronize(stream), CORE_ERROR_STREAM, "mul.Tensor");
    return NULL;
}

START_TEST(error_is_reported_to_the_thread_that_waits)
{
    core_stream *stream = stream_of(sim);
    core_tensor *one = filled(sim, 4, 1);
    core_stream_guard guard;
    float values[4];
    pthread_t thread;

    OK(core_device_synchronize(sim));
    OK(core_stream_guard_enter(stream, &guard));
    OK(fail_later(one, 1, 1));
    ck_assert_int_eq(pthread_create(&thread, NULL, synchronize, stream), 0);
    pthread_join(thread, NULL);
    FAILS(core_tensor_read(one, values, sizeof values), CORE_ERROR_STREAM,
          "mul.Tensor");
    core_stream_guard_leave(&guard);
    core_stream_release(stream);
}
END_TEST

START_TEST(default_stream_works_again_after_a_reset)
{
    core_tensor *one = filled(sim, 4, 1), *result;
    core_stream *stream, *same;
    float values[4];

    OK(core_stream_default(sim, &stream));
    OK(core_stream_synchronize(stream));
    OK(fail_later(one, 1, 1));
    FAILS(core_stream_synchronize(stream), CORE_ERROR_STREAM, "mul.Tensor");
    OK(core_device_reset(sim));
    OK(core_stream_default(sim, &same));
    ck_assert_ptr_eq(same, stream);
    FAILS(core_add(one, one, core_int(1), &result), CORE_ERROR_DEVICE_LOST,
          "reset");
    FAILS(core_tensor_read(one, values, sizeof values), CORE_ERROR_DEVICE_LOST,
          "reset");
    drop_all();
    works(sim);
    OK(core_device_synchronize(sim));
}
END_TEST

START_TEST(tensors_of_a_lost_device_are_lost_and_other_devices_work)
{
    core_stream *stream = stream_of(sim), *made, *standard;
    core_event *event = event_of(sim), *none;
    core_tensor *one = filled(sim, 4, 1), *there = filled(other, 4, 1), *result;

    OK(core_event_record(event, stream));
    OK(core_device_status(sim));
    OK(control->lose(0));
    FAILS(core_device_synchronize(sim), CORE_ERROR_DEVICE_LOST, "\"sim\"");
    FAILS(core_device_status(sim), CORE_ERROR_DEVICE_LOST, "\"sim\"", "lost");
    FAILS(core_add(one, one, core_int(1), &result), CORE_ERROR_DEVICE_LOST,
          "\"sim\"");
    FAILS(core_empty((int64_t[]){4}, 1, CORE_F32, sim, -1, &result),
          CORE_ERROR_DEVICE_LOST, "lost");
    FAILS(core_stream_create(sim, &made), CORE_ERROR_DEVICE_LOST, "lost");
    ck_assert_ptr_null(made);
    FAILS(core_event_create(sim, 0, &none), CORE_ERROR_DEVICE_LOST, "lost");
    FAILS(core_event_query(event), CORE_ERROR_DEVICE_LOST, "lost");
    FAILS(core_stream_synchronize(stream), CORE_ERROR_DEVICE_LOST, "lost");
    FAILS(core_tensor_copy(there, one, 0), CORE_ERROR_DEVICE_LOST, "lost");
    works(other);
    OK(core_device_reset(sim));
    OK(core_device_status(sim));
    FAILS(core_event_synchronize(event), CORE_ERROR_DEVICE_LOST, "reset");
    FAILS(core_event_record(event, stream), CORE_ERROR_DEVICE_LOST, "reset");
    FAILS(core_stream_query(stream), CORE_ERROR_DEVICE_LOST, "reset");
    OK(core_stream_default(sim, &standard));
    FAILS(core_stream_wait_stream(standard, stream), CORE_ERROR_DEVICE_LOST,
          "reset");
    FAILS(core_stream_wait_event(standard, event), CORE_ERROR_DEVICE_LOST,
          "reset");
    core_event_release(event);
    core_stream_release(stream);
    works(sim);
    works(other);
    OK(core_memory_empty_cache(sim));
    ck_assert_uint_eq(counters_of(0).blocks, 0);
    for (int i = 0; counters_of(0).streams > 1 && i < 20000; i++)
        usleep(1000); /* a released stream may not have ended yet */
    ck_assert_uint_eq(counters_of(0).streams, 1);
}
END_TEST

START_TEST(every_call_on_a_stale_tensor_returns_an_error)
{
    core_tensor *one = filled(sim, 1, 1), *there = filled(other, 1, 1);
    core_tensor *host = filled(device_of("cpu"), 1, 1), *result;
    float value = 1;
    double number;

    OK(core_device_synchronize(sim));
    OK(core_device_reset(sim));
    FAILS(core_tensor_read(one, &value, sizeof value), CORE_ERROR_DEVICE_LOST,
          "reset");
    FAILS(core_tensor_write(one, &value, sizeof value), CORE_ERROR_DEVICE_LOST,
          "reset");
    FAILS(core_tensor_item_float(one, &number), CORE_ERROR_DEVICE_LOST,
          "reset");
    FAILS(core_tensor_copy(one, host, 0), CORE_ERROR_DEVICE_LOST, "reset");
    FAILS(core_tensor_copy(host, one, 0), CORE_ERROR_DEVICE_LOST, "reset");
    FAILS(core_tensor_copy(there, one, 0), CORE_ERROR_DEVICE_LOST, "reset");
    FAILS(core_tensor_copy(one, there, 0), CORE_ERROR_DEVICE_LOST, "reset");
    FAILS(core_sum(one, CORE_DTYPE_NONE, &result), CORE_ERROR_DEVICE_LOST,
          "reset");
    FAILS(core_cat((core_tensor *[]){one, one}, 2, 0, &result),
          CORE_ERROR_DEVICE_LOST, "reset");
    FAILS(core_add(filled(sim, 1, 1), one, core_int(1), &result),
          CORE_ERROR_DEVICE_LOST, "reset");
    FAILS(core_clone(one, -1, &result), CORE_ERROR_DEVICE_LOST, "reset");
    OK(core_device_synchronize(sim));
}
END_TEST

START_TEST(device_may_be_lost_while_it_works)
{
    core_tensor *one = filled(sim, 4, 1), *result;
    core_status status = CORE_OK;

    OK(control->fault(0, SIM_FAULT_LOST, 10));
    for (int i = 0; i < 30 && status == CORE_OK; i++) {
        status = core_mul(one, one, &result);
        if (status == CORE_OK)
            core_tensor_release(result);
    }
    if (status == CORE_OK)
        status = core_device_synchronize(sim);
    ck_assert_int_eq(status, CORE_ERROR_DEVICE_LOST);
    FAILS(core_device_status(sim), CORE_ERROR_DEVICE_LOST, "lost");
    works(other);
    OK(core_device_reset(sim));
    works(sim);
}
END_TEST

START_TEST(calls_that_fail_at_once_leave_the_device_usable)
{
    core_tensor *one = filled(sim, 4, 1), *result,
                *host = VECTOR(4, 1, 2, 3, 4);
    core_stream *stream = stream_of(sim), *standard, *none;
    core_event *event, *failed;
    float values[4];

    OK(core_stream_default(sim, &standard));
    OK(control->fault(0, SIM_FAULT_LAUNCH, 1));
    FAILS(core_mul(one, one, &result), CORE_ERROR_INTERNAL, "launch");
    ck_assert_ptr_null(result);
    OK(control->fault(0, SIM_FAULT_COPY, 1));
    FAILS(core_tensor_read(one, values, sizeof values), CORE_ERROR_INTERNAL,
          "copy");
    OK(control->fault(0, SIM_FAULT_COPY, 1));
    FAILS(core_to(host, CORE_F64, sim, false, false, -1, &result),
          CORE_ERROR_INTERNAL, "copy");
    OK(control->fault(0, SIM_FAULT_STREAM, 1));
    FAILS(core_stream_create(sim, &none), CORE_ERROR_INTERNAL, "stream");
    ck_assert_ptr_null(none);
    OK(control->fault(0, SIM_FAULT_EVENT, 1));
    FAILS(core_event_create(sim, 0, &failed), CORE_ERROR_INTERNAL, "event");
    ck_assert_ptr_null(failed);
    OK(control->fault(0, SIM_FAULT_EVENT, 1));
    FAILS(core_stream_wait_stream(stream, standard), CORE_ERROR_INTERNAL,
          "event");
    event = event_of(sim);
    OK(control->fault(0, SIM_FAULT_RECORD, 1));
    FAILS(core_event_record(event, stream), CORE_ERROR_INTERNAL, "record");
    FAILS(core_event_query(event), CORE_ERROR_INVALID_ARGUMENT, "recorded");
    OK(core_event_record(event, stream));
    OK(control->fault(0, SIM_FAULT_WAIT, 1));
    FAILS(core_stream_wait_event(standard, event), CORE_ERROR_INTERNAL, "wait");
    OK(core_stream_wait_event(standard, event));
    all_are(one, 1);
    core_event_release(event);
    core_stream_release(stream);
    works(sim);
}
END_TEST

/* ------------------------------------------------------ streams that ended -- */

static void wait_for(void *context)
{
    while (!atomic_load((_Atomic bool *)context))
        usleep(100);
}

static void note(void *context)
{
    atomic_store((_Atomic bool *)context, true);
}

static void *let_go_later(void *context)
{
    usleep(20000); /* by now the other thread waits, or never will */
    note(context);
    return NULL;
}

START_TEST(device_waits_for_work_of_released_streams)
{
    static _Atomic bool go_on, done;
    core_stream *stream = stream_of(sim);
    pthread_t thread;

    OK(core_stream_callback(stream, wait_for, (void *)&go_on, NULL));
    OK(core_stream_callback(stream, note, (void *)&done, NULL));
    core_stream_release(stream); /* does not wait */
    ck_assert(!atomic_load(&done));
    ck_assert_int_eq(
        pthread_create(&thread, NULL, let_go_later, (void *)&go_on), 0);
    OK(core_device_synchronize(sim));
    ck_assert(atomic_load(&done));
    pthread_join(thread, NULL);
}
END_TEST

/* Enqueues a call in place, so that the stream never allocates, which fails
 * when it runs; the stream is released before. */
static void fail_and_end(core_tensor *operand)
{
    core_stream *stream = stream_of(sim);
    core_stream_guard guard;

    OK(control->hold(0));
    OK(control->fault(0, SIM_FAULT_ASYNC, 1));
    OK(core_stream_guard_enter(stream, &guard));
    OK(core_add_(operand, operand, core_int(1)));
    core_stream_guard_leave(&guard);
    core_stream_release(stream);
    OK(control->release(0));
}

static void until_streams(uint64_t count)
{
    for (int i = 0; counters_of(0).streams > count && i < 20000; i++)
        usleep(1000);
    ck_assert_uint_le(counters_of(0).streams, count);
}

START_TEST(error_of_a_released_stream_is_reported_once)
{
    for (int again = 0; again < 3; again++) {
        core_tensor *one = filled(sim, 4, 1);

        OK(core_device_synchronize(sim));
        fail_and_end(one);
        if (again == 1)
            works(sim); /* creates a stream, which may detect the failure */
        FAILS(core_device_synchronize(sim), CORE_ERROR_STREAM, "add_.Tensor",
              "core_device_synchronize");
        OK(core_device_synchronize(sim));
    }
    drop_all();
    works(sim);
    OK(core_device_synchronize(sim));
    OK(core_memory_empty_cache(sim));
    until_streams(1);
}
END_TEST

START_TEST(reported_error_ends_with_its_stream)
{
    core_stream *stream = stream_of(sim);
    core_tensor *one = filled(sim, 4, 1), *result;
    core_event *event = event_of(sim);
    core_stream_guard guard;

    OK(core_device_synchronize(sim));
    OK(core_stream_guard_enter(stream, &guard));
    OK(control->fault(0, SIM_FAULT_ASYNC, 1));
    OK(core_mul(one, one, &result)); /* the stream has cached memory, too */
    core_stream_guard_leave(&guard);
    OK(core_event_record(event, stream));
    FAILS(core_stream_synchronize(stream), CORE_ERROR_STREAM, "mul.Tensor");
    core_tensor_release(result);
    core_stream_release(stream);
    OK(core_device_synchronize(sim));
    works(sim);
    core_event_release(event);
    OK(core_device_synchronize(sim));
}
END_TEST

START_TEST(bad_data_of_a_released_stream_is_reported_once)
{
    core_stream *stream = stream_of(sim);
    core_tensor *table = filled(sim, 4, 1), *result;
    core_tensor *wrong = indices(sim, 1, (int64_t[]){9});
    core_stream_guard guard;

    OK(core_device_synchronize(sim));
    OK(control->hold(0));
    OK(core_stream_guard_enter(stream, &guard));
    OK(core_index_select(table, 0, wrong, &result));
    core_stream_guard_leave(&guard);
    core_tensor_release(result);
    core_stream_release(stream);
    OK(control->release(0));
    for (int i = 0; i < 3; i++)
        core_stream_release(stream_of(sim)); /* checks the streams that ended */
    FAILS(core_device_synchronize(sim), CORE_ERROR_INDEX, "index_select");
    OK(core_device_synchronize(sim));
}
END_TEST

START_TEST(streams_released_while_busy_do_not_accumulate)
{
    core_stream *stream;
    _Atomic bool go_on;

    for (int i = 0; i < 50; i++) {
        atomic_store(&go_on, false);
        stream = stream_of(sim);
        OK(core_stream_callback(stream, wait_for, (void *)&go_on, NULL));
        core_stream_release(stream);
        atomic_store(&go_on, true);
        stream = stream_of(sim); /* nothing waits for the device */
        OK(core_stream_synchronize(stream));
        core_stream_release(stream);
    }
    for (int i = 0; counters_of(0).streams > 1 && i < 20000; i++) {
        usleep(1000);
        core_stream_release(stream_of(sim));
    }
    ck_assert_uint_le(counters_of(0).streams, 1);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        failed_stream_names_its_calls_and_stays_failed,
        failing_operator_is_named_in_blocking_mode,
        error_is_reported_to_the_thread_that_waits,
        default_stream_works_again_after_a_reset,
        tensors_of_a_lost_device_are_lost_and_other_devices_work,
        every_call_on_a_stale_tensor_returns_an_error,
        device_may_be_lost_while_it_works,
        calls_that_fail_at_once_leave_the_device_usable,
        device_waits_for_work_of_released_streams,
        error_of_a_released_stream_is_reported_once,
        reported_error_ends_with_its_stream,
        bad_data_of_a_released_stream_is_reported_once,
        streams_released_while_busy_do_not_accumulate,
    };

    return run_suite_with("device/stream_faults", start, tests,
                          sizeof tests / sizeof *tests);
}
