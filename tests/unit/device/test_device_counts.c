/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* core_device_get_counts: proves that the device itself computed. */

#include "support/devices.h"

#include <libcore/capture.h>
#include <libcore/settings.h>

static core_device_counts counts_of(const char *name)
{
    core_device_counts counts = {.struct_size = sizeof counts};

    OK(core_device_get_counts(device_of(name), &counts));
    ck_assert_uint_eq(counts.struct_size, sizeof counts);
    return counts;
}

static core_tensor *numbers_on(const char *name)
{
    const float values[3] = {1, 2, 3};
    core_tensor *tensor;

    OK(core_tensor_from_data(values, CORE_F32, (int64_t[]){3}, 1,
                             device_of(name), &tensor));
    return keep(tensor);
}

static void launches_by_device(const char *name)
{
    core_tensor *a = numbers_on(name);
    uint64_t before = counts_of(name).launches;

    CALL(neg, a);
    CALL(neg, a);
    ck_assert_uint_eq(counts_of(name).launches, before + 2);
}

START_TEST(each_device_counts_its_kernels)
{
    uint64_t cpu, second;

    launches_by_device("cpu");
    launches_by_device("sim");
    launches_by_device("sim:1");
    cpu = counts_of("cpu").launches;
    second = counts_of("sim:1").launches;
    launches_by_device("sim");
    ck_assert_uint_eq(counts_of("cpu").launches, cpu);
    ck_assert_uint_eq(counts_of("sim:1").launches, second);
}
END_TEST

static void *negate_many(void *context)
{
    core_tensor *out;

    for (int i = 0; i < 100; i++) {
        if (core_neg(context, &out) != CORE_OK)
            return context;
        core_tensor_release(out);
    }
    return NULL;
}

START_TEST(launches_of_ended_threads_are_counted)
{
    core_tensor *a = numbers_on("cpu");
    uint64_t before = counts_of("cpu").launches;
    pthread_t threads[4];

    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, negate_many, a), 0);
    for (int i = 0; i < 4; i++) {
        void *failed;

        pthread_join(threads[i], &failed);
        ck_assert_ptr_null(failed);
    }
    ck_assert_uint_eq(counts_of("cpu").launches, before + 400);
}
END_TEST

START_TEST(failing_call_is_not_a_launch)
{
    core_tensor *a = numbers_on("cpu");
    uint64_t before = counts_of("cpu").launches;
    core_tensor *out;

    ck_assert_int_ne(core_mm(a, a, &out), CORE_OK);
    ck_assert_uint_eq(counts_of("cpu").launches, before);
}
END_TEST

START_TEST(meta_device_launches_nothing)
{
    core_tensor *out;

    OK(core_neg(on(numbers_on("cpu"), "meta"), &out));
    core_tensor_release(out);
    ck_assert_uint_eq(counts_of("meta").launches, 0);
}
END_TEST

START_TEST(graph_launches_are_counted_separately)
{
    core_stream *stream = new_stream("sim");
    core_tensor *a = numbers_on("sim");
    core_device_counts before, after;
    core_stream_guard guard;
    core_graph *graph;

    OK(core_stream_guard_enter(stream, &guard));
    CALL(neg, a);
    OK(core_stream_synchronize(stream));
    before = counts_of("sim");
    OK(core_capture_begin(stream, NULL));
    CALL(neg, a);
    OK(core_capture_end(stream, &graph));
    for (int i = 0; i < 3; i++)
        OK(core_graph_launch(graph, stream));
    OK(core_stream_synchronize(stream));
    after = counts_of("sim");
    core_stream_guard_leave(&guard);
    ck_assert_uint_eq(after.launches, before.launches + 1);
    ck_assert_uint_eq(after.graphs, before.graphs + 3);
    core_graph_release(graph);
    core_stream_release(stream);
}
END_TEST

START_TEST(older_struct_size_is_filled_to_its_size)
{
    struct {
        core_device_counts counts;
        uint64_t behind;
    } given = {.counts = {.struct_size = 16}, .behind = 7};

    CALL(neg, numbers_on("cpu"));
    OK(core_device_get_counts(device_of("cpu"), &given.counts));
    ck_assert_uint_eq(given.counts.struct_size, 16);
    ck_assert_uint_gt(given.counts.launches, 0);
    ck_assert_uint_eq(given.counts.fallbacks, 0);
    for (uint32_t none = 0; none <= 8; none += 4) {
        given.counts.struct_size = none;
        FAILS(core_device_get_counts(device_of("cpu"), &given.counts),
              CORE_ERROR_INVALID_ARGUMENT,
              "core_device_get_counts: struct_size is", "core_device_counts");
    }
    ck_assert_int_eq(core_device_get_counts(NULL, &given.counts),
                     CORE_ERROR_INVALID_ARGUMENT);
    ck_assert_int_eq(core_device_get_counts(device_of("cpu"), NULL),
                     CORE_ERROR_INVALID_ARGUMENT);
}
END_TEST

START_TEST(measurement_index_out_of_range_names_their_number)
{
    core_device *sim = device_of("sim");
    core_measurement one = {.struct_size = sizeof one};
    char text[40];
    uint32_t count = 0;

    while (core_device_measure(sim, count, &one) == CORE_OK)
        count++;
    ck_assert_uint_lt(count, 99);
    snprintf(text, sizeof text, "has no measurement 99; it has %u", count);
    FAILS(core_device_measure(sim, 99, &one), CORE_ERROR_NOT_FOUND, text);
}
END_TEST

SUITE("device/device_counts", each_device_counts_its_kernels,
      launches_of_ended_threads_are_counted, failing_call_is_not_a_launch,
      meta_device_launches_nothing, graph_launches_are_counted_separately,
      older_struct_size_is_filled_to_its_size,
      measurement_index_out_of_range_names_their_number)
