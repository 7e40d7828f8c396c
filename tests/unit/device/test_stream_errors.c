/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Work that fails after its call has returned: which calls report it, and
 * how. */

#include "support/stream.h"

#include "device/device.h"
#include "device/stream.h"

/* index_select beyond the end: detected on the device, later. */
static core_tensor *bad_data(core_device *sim)
{
    core_tensor *result;

    OK(core_index_select(filled(sim, 4, 1), 0,
                         indices(sim, 2, (int64_t[]){1, 77}), &result));
    return keep(result);
}

START_TEST(bad_data_is_reported_once_and_the_stream_continues)
{
    core_device *sim = device_of("sim");
    core_stream *stream;

    OK(core_stream_current(sim, &stream));
    bad_data(sim);
    FAILS(core_stream_synchronize(stream), CORE_ERROR_INDEX, "index_select",
          "77", "core_stream_synchronize");
    OK(core_stream_synchronize(stream));
    all_are(add(filled(sim, 4, 1), filled(sim, 4, 2)), 3);
}
END_TEST

static core_status take_zero(void *device, void *stream, core_stream_error *out)
{
    (void)device;
    (void)stream;
    out->code = CORE_ERROR_INDEX;
    out->call_id = 1;
    out->index = 0;
    out->text = (core_string){"an index is out of range", 24};
    return CORE_OK;
}

/* The simulator reports the value only as part of the text. */
START_TEST(bad_value_is_reported_only_if_the_plugin_knows_it)
{
    core_device *sim = device_of("sim");
    core_stream_error_interface real = sim->interfaces.stream_error;
    core_stream *stream;

    OK(core_stream_current(sim, &stream));
    bad_data(sim);
    FAILS(core_stream_synchronize(stream), CORE_ERROR_INDEX,
          "index_select (call ", ") encountered invalid data: ", "contains 77");
    ck_assert_ptr_null(strstr(core_error_message(), "invalid data, "));

    sim->interfaces.stream_error.take = take_zero;
    FAILS(core_stream_synchronize(stream), CORE_ERROR_INDEX,
          "encountered invalid data, 0: an index is out of range");
    sim->interfaces.stream_error = real;
    OK(core_stream_synchronize(stream));
}
END_TEST

START_TEST(bad_data_is_reported_by_every_waiting_call)
{
    core_device *sim = device_of("sim");
    core_stream *stream = stream_of(sim);
    core_event *event = event_of(sim);
    core_status status;
    double number;

    OK(core_stream_set_current(stream));
    bad_data(sim);
    OK(core_event_record(event, stream));
    FAILS(core_event_synchronize(event), CORE_ERROR_INDEX, "index_select");
    bad_data(sim);
    FAILS(core_tensor_item_float(filled(sim, 1, 1), &number), CORE_ERROR_INDEX,
          "index_select", "item");
    bad_data(sim);
    FAILS(core_device_synchronize(sim), CORE_ERROR_INDEX, "index_select");
    bad_data(sim);
    OK(core_event_record(event, stream));
    do
        status = core_event_query(event);
    while (status == CORE_ERROR_BUSY);
    ck_assert_int_eq(status, CORE_ERROR_INDEX);
    bad_data(sim);
    do
        status = core_stream_query(stream);
    while (status == CORE_ERROR_BUSY);
    ck_assert_int_eq(status, CORE_ERROR_INDEX);
    OK(core_device_synchronize(sim));
    core_event_release(event);
    core_stream_release(stream);
}
END_TEST

START_TEST(call_itself_fails_in_blocking_mode)
{
    core_device *sim = device_of("sim");
    core_tensor *result, *source = filled(sim, 4, 1);
    core_tensor *which = indices(sim, 2, (int64_t[]){1, 77});
    core_stream *stream;
    uint64_t waits;

    OK(core_stream_current(sim, &stream));
    OK(core_setting_set("LIBCORE_BLOCKING", "1"));
    waits = core_host_waits();
    FAILS(core_index_select(source, 0, which, &result), CORE_ERROR_INDEX,
          "index_select", "LIBCORE_BLOCKING");
    ck_assert_ptr_null(result);
    ck_assert_uint_gt(core_host_waits(), waits);
    OK(core_setting_set("LIBCORE_BLOCKING", NULL));
    waits = core_host_waits();
    bad_data(sim);
    /* the wait for the copy of the indices */
    ck_assert_uint_eq(core_host_waits(), waits + 1);
    FAILS(core_stream_synchronize(stream), CORE_ERROR_INDEX, "index_select");
}
END_TEST

static core_tensor *moved(core_tensor *tensor, core_device *device)
{
    core_tensor *result;

    OK(core_to_copy(tensor, CORE_DTYPE_NONE, device, false, false, &result));
    return keep(result);
}

static core_tensor *bad_data_on(core_stream *stream)
{
    core_stream_guard guard;
    core_tensor *result;

    OK(core_stream_guard_enter(stream, &guard));
    result = bad_data(core_stream_device(stream));
    core_stream_guard_leave(&guard);
    return result;
}

/* A model on two devices, whose loss is read on the second. */
START_TEST(bad_data_is_reported_where_its_results_are_read)
{
    core_device *sim = device_of("sim:0"), *other = device_of("sim:1");
    double number;

    for (int i = 0; i < 3; i++) {
        FAILS(core_tensor_item_float(sum(moved(bad_data(other), sim)), &number),
              CORE_ERROR_INDEX, "sim:1: index_select (call ", "contains 77",
              "found by item");
        all_are(filled(other, 4, i), i);
        OK(core_device_synchronize(sim));
        OK(core_device_synchronize(other));
    }
    moved(bad_data(other), sim);
    FAILS(core_device_synchronize(sim), CORE_ERROR_INDEX, "sim:1");
    OK(core_device_synchronize(other));
}
END_TEST

/* A call that waits only for memory does not report the error. */
START_TEST(bad_data_is_not_reported_to_the_source_of_a_copy)
{
    core_device *sim = device_of("sim:0"), *other = device_of("sim:1");
    core_tensor *from = filled(other, 4, 2);

    bad_data(sim);
    moved(from, sim);
    OK(core_device_synchronize(other));
    FAILS(core_device_synchronize(sim), CORE_ERROR_INDEX, "index_select");
}
END_TEST

START_TEST(bad_data_follows_waits_between_streams)
{
    core_device *sim = device_of("sim");
    core_stream *a = stream_of(sim), *b = stream_of(sim), *stream;
    core_event *event = event_of(sim);
    core_tensor *result;
    float values[2];

    OK(core_stream_current(sim, &stream));
    result = bad_data_on(a);
    OK(core_stream_wait_stream(stream, a));
    FAILS(core_tensor_read(result, values, sizeof values), CORE_ERROR_INDEX,
          "index_select", "a copy to the host");
    OK(core_stream_synchronize(a));

    bad_data_on(a);
    OK(core_stream_wait_stream(b, a));
    OK(core_event_record(event, b));
    OK(core_stream_wait_stream(a, b)); /* a cycle of waits */
    OK(core_stream_wait_stream(stream, b));
    FAILS(core_stream_synchronize(stream), CORE_ERROR_INDEX, "index_select");
    bad_data_on(a);
    OK(core_stream_wait_stream(b, a));
    OK(core_event_record(event, b));
    FAILS(core_event_synchronize(event), CORE_ERROR_INDEX, "index_select");
    OK(core_device_synchronize(sim));
    core_event_release(event);
    core_stream_release(a);
    core_stream_release(b);
}
END_TEST

/* The stream waits only after the point that the host waits for. */
START_TEST(bad_data_is_not_reported_before_the_wait_ends)
{
    core_device *sim = device_of("sim");
    core_stream *a = stream_of(sim), *b = stream_of(sim);
    core_event *event = event_of(sim);

    bad_data_on(a);
    OK(core_event_record(event, b));
    OK(core_stream_wait_stream(b, a));
    OK(core_event_synchronize(event));
    FAILS(core_stream_synchronize(b), CORE_ERROR_INDEX, "index_select");
    OK(core_stream_synchronize(a));
    core_event_release(event);
    core_stream_release(a);
    core_stream_release(b);
}
END_TEST

/* Each error is reported once, and none is lost; a stream may have been
 * released by then, if its work was done. */
START_TEST(bad_data_of_ended_streams_is_reported)
{
    core_device *sim = device_of("sim");
    core_stream *stream;

    OK(core_stream_current(sim, &stream));
    for (int i = 0; i < 3; i++) {
        core_stream *a = stream_of(sim);

        bad_data_on(a);
        OK(core_stream_wait_stream(stream, a));
        while (sim->backend->streams.query(sim->impl, a->impl) != CORE_OK)
            ;
        core_stream_release(a);
    }
    for (int i = 0; i < 3; i++)
        FAILS(core_stream_synchronize(stream), CORE_ERROR_INDEX,
              "index_select");
    OK(core_stream_synchronize(stream));
    OK(core_device_synchronize(sim));
}
END_TEST

/* Nothing is stored for waits that ended long ago. */
START_TEST(waits_leak_nothing)
{
    core_device *sim = device_of("sim");
    core_stream *a = stream_of(sim), *stream;

    OK(core_stream_current(sim, &stream));
    for (int i = 0; i < 100; i++) {
        core_stream *b = stream_of(sim);

        OK(core_stream_wait_stream(b, stream));
        OK(core_stream_wait_stream(stream, a));
        OK(core_stream_wait_stream(stream, b));
        ck_assert_uint_ge(stream->queue->awaited_count, 2);
        OK(core_stream_synchronize(b));
        core_stream_release(b);
    }
    ck_assert_uint_le(stream->queue->awaited_count, 16);
    OK(core_stream_synchronize(stream));
    ck_assert_uint_eq(stream->queue->awaited_count, 0);
    core_stream_release(a);
}
END_TEST

START_TEST(operands_of_two_devices_are_refused)
{
    core_device *sim = device_of("sim");
    core_tensor *here = VECTOR(2, 1, 2), *there = filled(sim, 2, 1), *result;
    void *data;

    FAILS(core_add(here, there, core_int(1), &result), CORE_ERROR_DEVICE,
          "\"sim\"", "\"cpu\"");
    FAILS(core_tensor_data(there, &data), CORE_ERROR_UNSUPPORTED, "\"sim\"");
    ck_assert_ptr_null(data);
    OK(core_device_synchronize(sim));
}
END_TEST

SUITE("device/stream_errors",
      bad_data_is_reported_once_and_the_stream_continues,
      bad_value_is_reported_only_if_the_plugin_knows_it,
      bad_data_is_reported_by_every_waiting_call,
      call_itself_fails_in_blocking_mode,
      bad_data_is_reported_where_its_results_are_read,
      bad_data_is_not_reported_to_the_source_of_a_copy,
      bad_data_follows_waits_between_streams,
      bad_data_is_not_reported_before_the_wait_ends,
      bad_data_of_ended_streams_is_reported, waits_leak_nothing,
      operands_of_two_devices_are_refused)
