/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Streams that only copy. */

#define SUITE_FORKS true

#include "support/sim_device.h"
#include "support/stream.h"

#include <libcore/memory.h>

static void start(void)
{
    sim_find("sim");
}

static core_stream *copy_stream(core_device *device)
{
    core_stream *stream;

    OK(core_stream_create_kind(device, CORE_STREAM_COPY, &stream));
    return stream;
}

static uint32_t kinds_of(const char *name)
{
    uint32_t kinds;

    OK(core_device_stream_kinds(device_of(name), &kinds));
    return kinds;
}

START_TEST(devices_report_their_kinds_of_streams)
{
    core_stream *stream = copy_stream(sim), *other;

    ck_assert_uint_eq(kinds_of("cpu"), 1u << CORE_STREAM_COMPUTE);
    ck_assert_uint_eq(kinds_of("meta"), 1u << CORE_STREAM_COMPUTE);
    ck_assert_uint_eq(kinds_of("sim"),
                      1u << CORE_STREAM_COMPUTE | 1u << CORE_STREAM_COPY);
    ck_assert_uint_eq(core_stream_kind(stream), CORE_STREAM_COPY);
    ck_assert_uint_eq(core_stream_kind(NULL), CORE_STREAM_COMPUTE);
    OK(core_stream_create_kind(sim, CORE_STREAM_COMPUTE, &other));
    ck_assert_uint_eq(core_stream_kind(other), CORE_STREAM_COMPUTE);
    core_stream_release(other);
    core_stream_release(stream);
}
END_TEST

START_TEST(kind_that_a_device_lacks_is_refused)
{
    core_stream *stream;

    FAILS(core_stream_create_kind(device_of("cpu"), CORE_STREAM_COPY, &stream),
          CORE_ERROR_UNSUPPORTED, "core_stream_create_kind", "cpu",
          "only copy");
    ck_assert_ptr_null(stream);
    FAILS(core_stream_create_kind(sim, 2, &stream), CORE_ERROR_INVALID_ARGUMENT,
          "the kind is 2", "CORE_STREAM_COPY (1)");
    ck_assert_ptr_null(stream);
}
END_TEST

START_TEST(device_without_copy_queues_refuses_them)
{
    core_stream *stream;

    setenv("LIBCORE_SIM_COPY_QUEUES", "0", 1);
    sim_find("sim");
    ck_assert_uint_eq(kinds_of("sim"), 1u << CORE_STREAM_COMPUTE);
    FAILS(core_stream_create_kind(sim, CORE_STREAM_COPY, &stream),
          CORE_ERROR_UNSUPPORTED, "sim");
}
END_TEST

/* Copies run while the compute stream is busy, and events order the two. */
START_TEST(copy_stream_copies_beside_the_compute_stream)
{
    const int64_t n = 256;
    core_stream *stream = copy_stream(sim);
    core_event *copied = event_of(sim);
    core_tensor *pinned, *there = filled(sim, n, 1), *sum;
    core_stream_guard guard;

    OK(core_tensor_pinned(sim, CORE_F32, &n, 1, &pinned));
    keep(pinned);
    OK(core_fill_(pinned, core_float(5)));
    OK(core_device_synchronize(sim));
    OK(core_stream_guard_enter(stream, &guard));
    OK(core_tensor_copy(there, pinned, CORE_COPY_NON_BLOCKING));
    OK(core_event_record(copied, stream));
    core_stream_guard_leave(&guard);
    OK(core_tensor_record_stream(there, stream));
    OK(core_event_synchronize(copied));
    sum = add(there, there);
    all_are(sum, 10);
    core_event_release(copied);
    core_stream_release(stream);
}
END_TEST

START_TEST(kernel_on_a_copy_stream_is_refused)
{
    core_stream *stream = copy_stream(sim);
    core_tensor *one = filled(sim, 8, 1), *result;
    core_stream_guard guard;

    OK(core_device_synchronize(sim));
    OK(core_stream_guard_enter(stream, &guard));
    FAILS(core_mul(one, one, &result), CORE_ERROR_UNSUPPORTED, "mul",
          "only copies");
    ck_assert_ptr_null(result);
    core_stream_guard_leave(&guard);
    /* The stream stays usable. */
    OK(core_stream_synchronize(stream));
    all_are(add(one, one), 2);
    core_stream_release(stream);
}
END_TEST

/* One queue of each kind: they are shared among streams of their kind only. */
START_TEST(copy_streams_share_queues_of_their_kind)
{
    core_stream *copies[3], *computes[3];
    core_tensor *one;
    core_stream_guard guard;

    setenv("LIBCORE_SIM_QUEUES", "1", 1);
    sim_find("sim");
    for (int i = 0; i < 3; i++) {
        copies[i] = copy_stream(sim);
        computes[i] = stream_of(sim);
    }
    ck_assert_uint_eq(counters_of(0).streams_created, 2);
    one = filled(sim, 8, 1);
    for (int i = 0; i < 3; i++) {
        ck_assert_uint_eq(core_stream_kind(copies[i]), CORE_STREAM_COPY);
        OK(core_stream_guard_enter(computes[i], &guard));
        all_are(add(one, one), 2);
        core_stream_guard_leave(&guard);
    }
    for (int i = 0; i < 3; i++) {
        core_stream_release(copies[i]);
        core_stream_release(computes[i]);
    }
}
END_TEST

int main(void)
{
    const TTest *const plain[] = {
        devices_report_their_kinds_of_streams,
        kind_that_a_device_lacks_is_refused,
        copy_stream_copies_beside_the_compute_stream,
        kernel_on_a_copy_stream_is_refused,
    };
    const TTest *const settings[] = {
        device_without_copy_queues_refuses_them,
        copy_streams_share_queues_of_their_kind,
    };

    const test_suite suites[] = {
        {"device/stream_kinds", start, drop_all, 0, SUITE_TESTS(plain)},
        {"device/stream_kinds, queues", NULL, drop_all, 0,
         SUITE_TESTS(settings)},
    };

    return suite_run(suites, sizeof suites / sizeof *suites);
}
