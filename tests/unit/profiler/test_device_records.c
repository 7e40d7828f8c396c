/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The profiler on plugins that record what their device does (core.profiler)
 * and on plugins that do not; docs/abi.md 9. */

#define SUITE_FORKS true

#include "support/devices.h"

#include "loader/plugin_note.h"
#include "profiler/profile.h"

#include <libcore/capture.h>
#include <libcore/profiler.h>

enum { SKEW = 1000000 }; /* tolerance in ns of reading two clocks */

static core_profiler *profiler;

static void setup(void)
{
    profiler = NULL;
}

static void teardown(void)
{
    core_profiler_release(profiler);
    drop_all();
}

static void start(void)
{
    OK(core_profiler_start(NULL, &profiler));
}

static void stop(void)
{
    OK(core_profiler_stop(profiler));
}

static core_tensor *ones(const char *device)
{
    return on(VECTOR(3, 1, 1, 1), device);
}

static bool table_has(const char *part)
{
    char *text;
    bool found;

    OK(core_profiler_table(profiler, CORE_PROFILE_BY_SELF, 0, &text));
    found = strstr(text, part) != NULL;
    core_text_free(text);
    return found;
}

static bool trace_has(const char *part)
{
    static const char path[] = "records-test.json";
    static char text[1 << 18];
    FILE *file;
    size_t size;

    OK(core_profiler_save_trace(profiler, path));
    file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    size = fread(text, 1, sizeof text - 1, file);
    text[size] = 0;
    fclose(file);
    unlink(path);
    return strstr(text, part) != NULL;
}

/* The name of the operator that launched a slice. */
static const char *launcher(const core__device_activity *slice)
{
    const core__profile_work *work =
        core__device_activity_work(profiler, slice);

    return !work ? "none"
           : work->parent == CORE__PROFILE_NONE
               ? "no operator"
               : profiler->parts[slice->part].events[work->parent].name;
}

static size_t count_slices(uint32_t kind, const char *name)
{
    size_t count = 0;

    for (size_t i = 0; i < profiler->nslices; i++)
        count += profiler->slices[i].kind == kind &&
                 strcmp(profiler->slices[i].name, name) == 0;
    return count;
}

static const core__device_activity *slice_of(uint32_t kind, const char *name)
{
    for (size_t i = 0; i < profiler->nslices; i++)
        if (profiler->slices[i].kind == kind &&
            strcmp(profiler->slices[i].name, name) == 0)
            return &profiler->slices[i];
    ck_abort_msg("no slice of kind %u is called %s", kind, name);
    return NULL;
}

static core_profile_row row_of(core_profile_kind kind, const char *name)
{
    core_profile_row row = {.struct_size = sizeof row};
    size_t count;

    OK(core_profiler_count_rows(profiler, &count));
    for (size_t i = 0; i < count; i++) {
        OK(core_profiler_get_row(profiler, CORE_PROFILE_BY_NAME, i, &row));
        if (row.kind == kind && strcmp(row.name, name) == 0)
            return row;
    }
    return (core_profile_row){0};
}

/* -------------------------------------------------------------- records -- */

START_TEST(kernels_and_copies_come_from_plugin_records)
{
    const core__device_activity *copy, *kernel;
    core_tensor *a, *b;
    double values[3];

    start();
    a = ones("sim");
    b = CALL(exp, CALL(mul, a, a));
    OK(core_tensor_read(b, values, sizeof values));
    stop();
    ck_assert(table_has("sim: device times are those of its plugin, "));
    ck_assert(trace_has("\"labels\": \"recorded by its plugin\""));
    ck_assert(trace_has("\"cat\": \"copy\""));
    ck_assert(trace_has("\"name\": \"stream 0\""));
    copy = slice_of(CORE_ACTIVITY_COPY, "copy from the host");
    ck_assert_uint_eq(copy->bytes, sizeof values);
    ck_assert_str_eq(launcher(copy), "_to_copy");
    slice_of(CORE_ACTIVITY_COPY, "copy to the host");
    kernel = slice_of(CORE_ACTIVITY_KERNEL, "exp");
    ck_assert_str_eq(launcher(kernel), "exp");
    ck_assert_uint_eq(count_slices(CORE_ACTIVITY_KERNEL, "exp"), 1);
    ck_assert_uint_eq(row_of(CORE_PROFILE_OPERATOR, "exp").device_self,
                      kernel->end - kernel->begin);
    /* A copy is not a kernel but counts as device time. */
    ck_assert_uint_eq(row_of(CORE_PROFILE_OPERATOR, "_to_copy").kernels, 0);
    ck_assert_uint_eq(row_of(CORE_PROFILE_OPERATOR, "_to_copy").device_self,
                      copy->end - copy->begin);
}
END_TEST

/* The device clock has another zero than the host clock. */
START_TEST(device_times_are_converted_to_host_clock)
{
    core_tensor *a = ones("sim");

    start();
    for (int i = 0; i < 10; i++)
        CALL(mul, a, a);
    stop();
    ck_assert_uint_ge(profiler->nslices, 10);
    for (size_t i = 0; i < profiler->nslices; i++) {
        const core__device_activity *slice = &profiler->slices[i];

        ck_assert_uint_ge(slice->begin + SKEW, profiler->round_began);
        ck_assert_uint_le(slice->begin, slice->end);
        ck_assert_uint_le(slice->end,
                          profiler->round_ended + UINT64_C(60) * 1000000000);
    }
}
END_TEST

typedef struct job {
    core_status (*run)(core_tensor *self, core_tensor **out);
    core_tensor *input;
} job;

static void *work(void *context)
{
    job *job = context;
    core_stream *stream;

    OK(core_stream_create(core_tensor_device(job->input), &stream));
    OK(core_stream_set_current(stream));
    for (int i = 0; i < 50; i++) {
        core_tensor *out;

        OK(job->run(job->input, &out));
        core_tensor_release(out);
    }
    OK(core_stream_synchronize(stream));
    core_stream_release(stream);
    return NULL;
}

START_TEST(records_are_attributed_to_the_launching_thread)
{
    core_tensor *a = ones("sim");
    job jobs[] = {{core_exp, a}, {core_sqrt, a}, {core_neg, a}};
    static const char *const names[] = {"exp", "sqrt", "neg"};
    uint64_t lanes[3] = {0};
    pthread_t threads[3];

    OK(core_device_synchronize(device_of("sim")));
    start();
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, work, &jobs[i]), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    stop();
    for (int i = 0; i < 3; i++) {
        ck_assert_uint_eq(count_slices(CORE_ACTIVITY_KERNEL, names[i]), 50);
        lanes[i] = slice_of(CORE_ACTIVITY_KERNEL, names[i])->lane;
        ck_assert_uint_lt(lanes[i], CORE__PROFILE_LANE);
    }
    ck_assert_uint_ne(lanes[0], lanes[1]);
    ck_assert_uint_ne(lanes[1], lanes[2]);
    for (size_t i = 0; i < profiler->nslices; i++)
        if (profiler->slices[i].kind == CORE_ACTIVITY_KERNEL)
            ck_assert_str_eq(launcher(&profiler->slices[i]),
                             profiler->slices[i].name);
}
END_TEST

START_TEST(kernels_of_graph_are_attributed_to_its_launch)
{
    core_stream *stream = new_stream("sim"), *before = current_of("sim");
    core_tensor *a = ones("sim"), *b;
    core_graph *graph;
    core_range range;
    uint64_t id = 0;

    OK(core_device_synchronize(device_of("sim")));
    OK(core_stream_set_current(stream));
    OK(core_capture_begin(stream, NULL));
    OK(core_exp(a, &b));
    OK(core_sqrt_(b));
    OK(core_capture_end(stream, &graph));
    start();
    range = core_range_begin("launch");
    OK(core_graph_launch(graph, stream));
    core_range_end(range);
    stop();
    ck_assert_uint_eq(count_slices(CORE_ACTIVITY_KERNEL, "exp"), 1);
    ck_assert_uint_eq(count_slices(CORE_ACTIVITY_KERNEL, "sqrt_"), 1);
    for (size_t i = 0; i < profiler->nslices; i++) {
        const core__profile_work *given =
            core__device_activity_work(profiler, &profiler->slices[i]);

        ck_assert_ptr_nonnull(given);
        ck_assert_str_eq(given->name, "graph");
        ck_assert(id == 0 || id == given->id);
        id = given->id;
        ck_assert_str_eq(launcher(&profiler->slices[i]), "launch");
    }
    ck_assert_uint_gt(row_of(CORE_PROFILE_RANGE, "launch").device_self, 0);
    core_graph_release(graph);
    core_tensor_release(b);
    OK(core_stream_set_current(before));
    core_stream_release(stream);
}
END_TEST

START_TEST(device_records_beyond_the_limit_are_counted)
{
    core_profiler_options options = {.struct_size = sizeof options,
                                     .flags = CORE_PROFILE_DEVICE,
                                     .limit = 4};
    core_tensor *a = ones("sim");

    OK(core_profiler_start(&options, &profiler));
    for (int i = 0; i < 9; i++)
        OK(core_neg_(a));
    stop();
    ck_assert_uint_eq(profiler->nslices, 4);
    ck_assert(table_has("sim: 5 records are missing"));
}
END_TEST

START_TEST(each_round_starts_and_stops_recording)
{
    core_profiler_options options = {.struct_size = sizeof options,
                                     .flags = CORE_PROFILE_DEVICE,
                                     .warmup = 1,
                                     .active = 1,
                                     .repeat = 2};
    core_tensor *a = ones("sim");

    OK(core_profiler_start(&options, &profiler));
    for (int i = 0; i < 4; i++) {
        OK(core_neg_(a));
        OK(core_profiler_step(profiler));
        if (i % 2)
            ck_assert_uint_eq(count_slices(CORE_ACTIVITY_KERNEL, "neg_"), 1);
    }
    OK(core_neg_(a)); /* not recorded */
    stop();
    ck_assert_uint_eq(count_slices(CORE_ACTIVITY_KERNEL, "neg_"), 1);
    ck_assert(table_has("those of its plugin, 1 records"));
    core_profiler_release(profiler);
    start();
    OK(core_neg_(a));
    stop();
    ck_assert_uint_eq(count_slices(CORE_ACTIVITY_KERNEL, "neg_"), 1);
}
END_TEST

START_TEST(device_reset_discards_records)
{
    core_device *sim = device_of("sim");
    core_tensor *a = ones("sim");

    start();
    OK(core_neg_(a));
    OK(core_device_reset(sim));
    a = ones("sim");
    OK(core_neg_(a));
    stop();
    ck_assert(table_has("its plugin's records are lost: the device was reset"));
    core_profiler_release(profiler);
    start();
    OK(core_neg_(a));
    stop();
    ck_assert(table_has("those of its plugin, "));
}
END_TEST

/* --------------------------------------------------------------- events -- */

static void check_timed_by_events(const char *why)
{
    core_tensor *a = ones("sim");

    start();
    OK(core_neg_(a));
    stop();
    ck_assert(table_has("sim: device times are between events around each "
                        "launch"));
    ck_assert_msg(table_has(why), "%s", why);
    ck_assert(trace_has("\"labels\": \"events around each launch\""));
    ck_assert_uint_eq(count_slices(CORE_ACTIVITY_KERNEL, "neg_"), 1);
    ck_assert_str_eq(launcher(slice_of(CORE_ACTIVITY_KERNEL, "neg_")), "neg_");
    ck_assert_uint_gt(row_of(CORE_PROFILE_OPERATOR, "neg_").device_self, 0);
}

START_TEST(plugin_without_records_is_timed_by_events)
{
    setenv("LIBCORE_SIM_PROFILER", "0", 1);
    check_timed_by_events("launch\n");
}
END_TEST

START_TEST(plugin_that_cannot_record_is_reported_with_reason)
{
    setenv("LIBCORE_SIM_PROFILER", "2", 1);
    check_timed_by_events("launch: its plugin records nothing: ");
    ck_assert(table_has("LIBCORE_SIM_PROFILER is 2"));
}
END_TEST

START_TEST(plugin_of_abi_0_4_is_timed_by_events)
{
    core__abi_minor_offered = 4;
    check_timed_by_events("launch\n");
}
END_TEST

/* --------------------------------------------------------------- errors -- */

/* The profiler does not consume errors: they are still reported afterwards. */
START_TEST(profiler_does_not_consume_device_errors)
{
    static const char *const modes[] = {"1", "0"};
    core_tensor *a, *index, *out;

    setenv("LIBCORE_SIM_PROFILER", modes[_i], 1);
    a = ones("sim");
    index =
        CALL(full, (int64_t[]){1}, 1, core_int(77), CORE_I64, device_of("sim"));
    start();
    OK(core_index_select(a, 0, index, &out));
    stop();
    FAILS(core_device_synchronize(device_of("sim")), CORE_ERROR_INDEX,
          "index_select", "77");
    core_tensor_release(out);
    core_profiler_release(profiler);
    /* Nor an error from before the session's first operator. */
    OK(core_index_select(a, 0, index, &out));
    start();
    OK(core_neg_(a));
    stop();
    FAILS(core_device_synchronize(device_of("sim")), CORE_ERROR_INDEX,
          "index_select", "77");
    core_tensor_release(out);
}
END_TEST

START_TEST(recording_passes_validation_interposer)
{
    setenv("LIBCORE_INTERPOSERS", "validate", 1);
    start();
    OK(core_neg_(ones("sim")));
    stop();
    ck_assert_uint_eq(count_slices(CORE_ACTIVITY_KERNEL, "neg_"), 1);
    ck_assert(table_has("sim: device times are those of its plugin, "));
    ck_assert(!table_has("could not be had"));
}
END_TEST

START_TEST(failing_profiler_does_not_affect_operators)
{
    core_tensor *a;
    double values[3];

    setenv("LIBCORE_INTERPOSERS", "fault", 1);
    setenv("LIBCORE_FAULT", "interface:1+", 1);
    a = ones("sim");
    start();
    OK(core_neg_(a));
    OK(core_tensor_read(a, values, sizeof values));
    ck_assert_double_eq(values[0], -1);
    stop();
    ck_assert(table_has("sim: no device times: its plugin records nothing: "));
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        kernels_and_copies_come_from_plugin_records,
        device_times_are_converted_to_host_clock,
        records_are_attributed_to_the_launching_thread,
        kernels_of_graph_are_attributed_to_its_launch,
        device_records_beyond_the_limit_are_counted,
        each_round_starts_and_stops_recording,
        device_reset_discards_records,
        plugin_without_records_is_timed_by_events,
        plugin_that_cannot_record_is_reported_with_reason,
        plugin_of_abi_0_4_is_timed_by_events,
        recording_passes_validation_interposer,
        failing_profiler_does_not_affect_operators,
    };
    const suite_loop loops[] = {
        {profiler_does_not_consume_device_errors, 0, 2},
    };
    const test_suite suite = {
        .name = "profiler/device_records",
        .setup = setup,
        .teardown = teardown,
        SUITE_TESTS(tests),
        SUITE_LOOPS(loops),
    };

    return suite_run(&suite, 1);
}
