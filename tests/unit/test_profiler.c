/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The profiler: what ran is there, with its callers, its times, its memory and
 * its device; what did not is not. */

#include "children.h"
#include "devices.h"

#include "autograd/state.h"
#include "base/observe.h"
#include "dispatch/dispatch.h"

#include <libcore/device.h>
#include <libcore/dispatch.h>
#include <libcore/memory.h>
#include <libcore/profiler.h>
#include <libcore/stream.h>

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

static core_profiler *profiler;

static void setup(void)
{
    profiler = NULL;
}

static void teardown(void)
{
    core_profiler_release(profiler);
    drop_all();
    ck_assert_ptr_null(core__observer_now());
    ck_assert_uint_eq(core__keys_everywhere, 0);
}

static void start(void)
{
    OK(core_profiler_start(NULL, &profiler));
}

static void stop(void)
{
    OK(core_profiler_stop(profiler));
}

/* calls is 0 if there is no such row. */
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

static uint64_t calls_of(const char *name)
{
    return row_of(CORE_PROFILE_OPERATOR, name).calls;
}

static core_tensor *square(double value)
{
    double values[64];

    for (size_t i = 0; i < 64; i++)
        values[i] = value;
    return typed(CORE_F32, 2, (int64_t[]){8, 8}, values);
}

/* ------------------------------------------------------------------- rows -- */

START_TEST(operators_are_counted_while_a_session_runs_and_not_else)
{
    core_tensor *a = square(2);

    mul(a, a);
    start();
    mul(a, a);
    mul(a, a);
    stop();
    mul(a, a);
    ck_assert_uint_eq(calls_of("mul.Tensor"), 2);
    ck_assert_uint_eq(calls_of("sub.Tensor"), 0);
}
END_TEST

START_TEST(an_operator_that_calls_others_has_the_rest_for_itself)
{
    core_profile_row outer, inner;
    core_tensor *a = square(2);

    start();
    CALL(matmul, a, a);
    stop();
    outer = row_of(CORE_PROFILE_OPERATOR, "matmul");
    inner = row_of(CORE_PROFILE_OPERATOR, "mm");
    ck_assert_uint_eq(outer.calls, 1);
    ck_assert_uint_eq(inner.calls, 1);
    ck_assert_uint_ge(outer.cpu_total, inner.cpu_total);
    ck_assert_uint_le(outer.cpu_self, outer.cpu_total - inner.cpu_total);
    ck_assert_uint_eq(inner.cpu_self, inner.cpu_total);
    /* The product is counted once, where it is computed. */
    ck_assert_uint_eq(inner.flop, 2 * 8 * 8 * 8);
    ck_assert_uint_eq(outer.flop, 0);
    ck_assert_uint_eq(inner.bytes, 3 * 64 * 4);
}
END_TEST

START_TEST(convolutions_have_two_operations_per_weight_and_element)
{
    core_tensor *x =
        typed(CORE_F32, 4, (int64_t[]){1, 1, 8, 8}, (double[64]){1});
    core_tensor *w =
        typed(CORE_F32, 4, (int64_t[]){2, 1, 3, 3}, (double[18]){1});
    core_tensor *y = NULL;

    start();
    OK(core_conv2d(x, w, NULL, (int64_t[]){1, 1}, 2, (int64_t[]){1, 1}, 2,
                   (int64_t[]){1, 1}, 2, 1, &y));
    keep(y);
    stop();
    ck_assert_uint_eq(row_of(CORE_PROFILE_OPERATOR, "convolution").flop,
                      2 * (2 * 8 * 8) * 9);
}
END_TEST

START_TEST(nodes_of_a_backward_are_there_and_what_they_call_is_inside)
{
    core_tensor *a = leaf(VECTOR(2, 3, 4));
    core_profile_row node, inner;

    start();
    backward(sum(mul(a, a)));
    stop();
    node = row_of(CORE_PROFILE_BACKWARD, "mul.Tensor backward");
    inner = row_of(CORE_PROFILE_OPERATOR, "mul.Tensor");
    ck_assert_uint_eq(node.calls, 1);
    ck_assert_uint_ge(inner.calls, 2); /* forward, and two in the formula */
    ck_assert_uint_gt(node.cpu_total, node.cpu_self);
}
END_TEST

START_TEST(ranges_hold_what_runs_inside)
{
    core_tensor *a = square(2);
    core_range range;
    core_profile_row row;

    ck_assert_uint_eq(core_range_begin("nobody sees it"), 0);
    start();
    range = core_range_begin("mine");
    mul(a, a);
    core_range_end(range);
    mul(a, a);
    stop();
    row = row_of(CORE_PROFILE_RANGE, "mine");
    ck_assert_uint_eq(row.calls, 1);
    ck_assert_uint_gt(row.cpu_total, row.cpu_self);
    ck_assert_uint_eq(row_of(CORE_PROFILE_RANGE, "nobody sees it").calls, 0);
}
END_TEST

START_TEST(a_range_that_is_left_early_ends_those_inside)
{
    core_range outer, inner;
    core_tensor *a = square(2);

    start();
    outer = core_range_begin("outer");
    inner = core_range_begin("inner");
    core_range_end(outer);
    core_range_end(inner); /* too late: nothing */
    outer = core_range_begin("after");
    mul(a, a);
    core_range_end(outer);
    stop();
    ck_assert_uint_eq(row_of(CORE_PROFILE_RANGE, "inner").calls, 1);
    /* "after" lies in none of them. */
    ck_assert_uint_eq(row_of(CORE_PROFILE_RANGE, "outer").cpu_self +
                          row_of(CORE_PROFILE_RANGE, "inner").cpu_total,
                      row_of(CORE_PROFILE_RANGE, "outer").cpu_total);
}
END_TEST

static core_status doubled(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    (void)call;
    (void)nargs;
    (void)nresults;
    results[0].tag = CORE_VALUE_TENSOR;
    return core_add(args[0].u.tensor, args[0].u.tensor, core_int(1),
                    &results[0].u.tensor);
}

START_TEST(names_outlive_the_operators_that_had_them)
{
    core_registration *own, *function;
    core_tensor *a = square(1), *b;
    core_value value, result = {0};
    core_operator *op;

    OK(core_op_register("mine::doubled(Tensor x) -> Tensor", &own));
    OK(core_function_register("mine::doubled", CORE_KEY_COMPOSITE_EXPLICIT,
                              NULL, doubled, NULL, &function));
    value = (core_value){CORE_VALUE_TENSOR, 0, {.tensor = a}};
    start();
    OK(core_op_find("mine::doubled", &op));
    OK(core_op_call(op, &value, 1, &result, 1));
    stop();
    b = result.u.tensor;
    core_tensor_release(b);
    core_registration_release(function);
    core_registration_release(own);
    ck_assert_uint_eq(calls_of("mine::doubled"), 1);
    ck_assert_uint_eq(calls_of("add.Tensor"), 1);
}
END_TEST

/* ---------------------------------------------------------------- devices -- */

START_TEST(kernels_of_a_device_have_its_time)
{
    core_tensor *a = on(square(2), "sim:0");
    core_profile_row row;

    start();
    mul(a, a);
    stop();
    row = row_of(CORE_PROFILE_OPERATOR, "mul.Tensor");
    ck_assert_uint_eq(row.kernels, 1);
    ck_assert_uint_gt(row.device_self, 0);
    ck_assert_uint_eq(row.device_self, row.device_total);
}
END_TEST

START_TEST(waits_say_what_for)
{
    core_tensor *a = on(typed(CORE_F32, 0, NULL, (double[]){3}), "sim:0");
    core_scalar value;
    char *text;

    start();
    OK(core_tensor_item(a, &value));
    stop();
    ck_assert_uint_ge(row_of(CORE_PROFILE_WAIT, "item").calls, 1);
    OK(core_profiler_table(profiler, CORE_PROFILE_BY_SELF, 0, &text));
    ck_assert_ptr_nonnull(strstr(text, "the host waited 1 time"));
    ck_assert_ptr_nonnull(strstr(text, "item (1)"));
    core_text_free(text);
}
END_TEST

START_TEST(memory_of_a_device_goes_up_and_down)
{
    core_tensor *a = on(square(2), "sim:0"), *b;
    core_profile_row row;

    start();
    b = CALL(exp, a);
    stop();
    row = row_of(CORE_PROFILE_OPERATOR, "exp");
    ck_assert_int_ge(row.memory, 64 * 4);
    core_profiler_release(profiler);
    start();
    drop(b);
    CALL(exp, a);
    stop();
    ck_assert_int_ge(row_of(CORE_PROFILE_OPERATOR, "exp").memory, 64 * 4);
}
END_TEST

/* -------------------------------------------------------------- schedules -- */

static unsigned readies;

static core_status ready(core_profiler *own, void *user)
{
    core_profiler *before = profiler;

    profiler = own;
    ck_assert_ptr_eq(user, &readies);
    readies++;
    ck_assert_uint_eq(calls_of("mul.Tensor"), 2);
    ck_assert_uint_eq(row_of(CORE_PROFILE_RANGE, "step").calls, 2);
    profiler = before;
    return CORE_OK;
}

START_TEST(a_schedule_records_its_active_steps_alone)
{
    core_profiler_options options = {.struct_size = sizeof options,
                                     .wait = 1,
                                     .warmup = 1,
                                     .active = 2,
                                     .repeat = 2,
                                     .ready = ready,
                                     .user = &readies};
    core_tensor *a = square(2);

    readies = 0;
    OK(core_profiler_start(&options, &profiler));
    for (int i = 0; i < 11; i++) {
        mul(a, a);
        OK(core_profiler_step(profiler));
        ck_assert_uint_eq(readies, i < 3 ? 0 : i < 7 ? 1 : 2);
    }
    ck_assert_ptr_null(core__observer_now()); /* it is over */
    stop();
    ck_assert_uint_eq(readies, 2);
    ck_assert_uint_eq(calls_of("mul.Tensor"), 2);
}
END_TEST

START_TEST(events_beyond_the_limit_are_counted)
{
    core_profiler_options options = {.struct_size = sizeof options, .limit = 3};
    core_tensor *a = square(2);
    char *text;

    OK(core_profiler_start(&options, &profiler));
    for (int i = 0; i < 5; i++)
        mul(a, a);
    stop();
    /* One is the range of the step. */
    ck_assert_uint_eq(calls_of("mul.Tensor"), 2);
    OK(core_profiler_table(profiler, CORE_PROFILE_BY_SELF, 0, &text));
    ck_assert_ptr_nonnull(strstr(text, "3 events are missing"));
    core_text_free(text);
}
END_TEST

/* -------------------------------------------------------------- bad input -- */

START_TEST(one_session_runs_at_a_time)
{
    core_profiler *second = profiler;

    start();
    FAILS(core_profiler_start(NULL, &second), CORE_ERROR_BUSY, "another");
    ck_assert_ptr_null(second);
    stop();
    OK(core_profiler_start(NULL, &second));
    core_profiler_release(second);
}
END_TEST

static void *stop_elsewhere(void *unused)
{
    FAILS(core_profiler_stop(profiler), CORE_ERROR_INVALID_ARGUMENT, "thread");
    FAILS(core_profiler_step(profiler), CORE_ERROR_INVALID_ARGUMENT, "thread");
    return unused;
}

START_TEST(another_thread_cannot_stop_it)
{
    core_tensor *a = square(2);
    pthread_t thread;

    start();
    ck_assert_int_eq(pthread_create(&thread, NULL, stop_elsewhere, NULL), 0);
    pthread_join(thread, NULL);
    mul(a, a); /* it goes on */
    stop();
    ck_assert_uint_eq(calls_of("mul.Tensor"), 1);
    FAILS(core_profiler_stop(profiler), CORE_ERROR_INVALID_ARGUMENT, "stopped");
}
END_TEST

START_TEST(options_that_cannot_be_are_refused)
{
    core_profiler_options options = {.struct_size = sizeof options};

    options.flags = 1u << 20;
    FAILS(core_profiler_start(&options, &profiler), CORE_ERROR_UNSUPPORTED,
          "0x100000");
    options.flags = 0;
    options.wait = 1;
    FAILS(core_profiler_start(&options, &profiler), CORE_ERROR_INVALID_ARGUMENT,
          "active");
    options.struct_size = 4;
    FAILS(core_profiler_start(&options, &profiler), CORE_ERROR_INVALID_ARGUMENT,
          "struct_size");
    FAILS(core_profiler_start(&options, NULL), CORE_ERROR_INVALID_ARGUMENT,
          "NULL");
}
END_TEST

START_TEST(there_is_no_report_while_it_records)
{
    size_t count;
    char *text;

    start();
    FAILS(core_profiler_count_rows(profiler, &count), CORE_ERROR_BUSY, "stop");
    FAILS(core_profiler_table(profiler, CORE_PROFILE_BY_SELF, 0, &text),
          CORE_ERROR_BUSY, "stop");
    FAILS(core_profiler_save_trace(profiler, "no.json"), CORE_ERROR_BUSY,
          "stop");
    stop();
    FAILS(core_profiler_table(profiler, (core_profile_order)9, 0, &text),
          CORE_ERROR_INVALID_ARGUMENT, "order 9");
}
END_TEST

START_TEST(a_report_that_cannot_be_written_is_an_error)
{
    start();
    stop();
    FAILS(core_profiler_save_trace(profiler, "no/such/folder/trace.json"),
          CORE_ERROR_IO, "no/such/folder");
    FAILS(core_profiler_save_stacks(profiler, "no/such/folder/stacks"),
          CORE_ERROR_IO, "no/such/folder");
    FAILS(core_profiler_save_html(profiler, "no/such/folder/page.html"),
          CORE_ERROR_IO, "no/such/folder");
}
END_TEST

/* ---------------------------------------------------------------- threads -- */

enum { THREADS = 4, ROUNDS = 200 };

static _Atomic int go_on;

static void *work(void *unused)
{
    const int64_t sizes[] = {8, 8};
    core_tensor *x, *y;

    OK(core_ones(sizes, 2, CORE_F32, NULL, &x));
    while (atomic_load(&go_on)) {
        core_range range = core_range_begin("work");

        OK(core_mul(x, x, &y));
        core_tensor_release(y);
        core_range_end(range);
    }
    core_tensor_release(x);
    return unused;
}

START_TEST(sessions_come_and_go_while_threads_compute)
{
    pthread_t threads[THREADS];

    atomic_store(&go_on, 1);
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, work, NULL), 0);
    for (int i = 0; i < ROUNDS; i++) {
        start();
        sched_yield();
        stop();
        row_of(CORE_PROFILE_RANGE, "work");
        core_profiler_release(profiler);
        profiler = NULL;
    }
    atomic_store(&go_on, 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}
END_TEST

START_TEST(a_thread_that_ended_is_in_the_report)
{
    pthread_t thread;

    atomic_store(&go_on, 0);
    start();
    atomic_store(&go_on, 1);
    ck_assert_int_eq(pthread_create(&thread, NULL, work, NULL), 0);
    atomic_store(&go_on, 0);
    pthread_join(thread, NULL);
    stop();
    ck_assert_uint_eq(row_of(CORE_PROFILE_OPERATOR, "ones").calls, 1);
}
END_TEST

START_TEST(a_forked_child_is_not_profiled)
{
    core_tensor *a = square(2);
    pid_t child;

    start();
    mul(a, a);
    child = fork();
    if (child == 0) {
        child_begins(20);
        mul(a, a);
        child_ends(core_profiler_stop(profiler) == CORE_OK &&
                   calls_of("mul.Tensor") == 1);
    }
    wait_for_child(child);
    mul(a, a);
    stop();
    ck_assert_uint_eq(calls_of("mul.Tensor"), 2);
}
END_TEST

static void *fork_and_profile(void *unused)
{
    core_profiler *other;
    pid_t child = fork();

    (void)unused;
    if (child == 0) {
        child_begins(20);
        child_ends(core_profiler_start(NULL, &other) == CORE_OK &&
                   core_profiler_stop(other) == CORE_OK);
    }
    wait_for_child(child);
    return NULL;
}

START_TEST(a_session_of_another_thread_does_not_last_in_a_child)
{
    pthread_t thread;

    start();
    ck_assert_int_eq(pthread_create(&thread, NULL, fork_and_profile, NULL), 0);
    pthread_join(thread, NULL);
    stop();
}
END_TEST

/* ---------------------------------------------------------------- reports -- */

static char *content(const char *path)
{
    FILE *file = fopen(path, "r");
    char *text = calloc(1, 1 << 20);
    size_t size;

    ck_assert_ptr_nonnull(file);
    size = fread(text, 1, (1 << 20) - 1, file);
    ck_assert_uint_gt(size, 0);
    fclose(file);
    unlink(path);
    return text;
}

static bool has(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}

/* A forward and backward on sim within a range. */
static void record_something(void)
{
    core_tensor *a = leaf(on(VECTOR(2, 3, 4), "sim:0"));
    core_range range;

    start();
    range = core_range_begin("a; \"name\" </script>");
    backward(sum(mul(a, a)));
    core_range_end(range);
    stop();
}

START_TEST(a_trace_has_threads_streams_memory_and_arrows)
{
    char *text;

    record_something();
    OK(core_profiler_save_trace(profiler, "profiler-test.json"));
    text = content("profiler-test.json");
    ck_assert(has(text, "\"name\": \"mul.Tensor\""));
    ck_assert(has(text, "\"shapes\": \"f64[2] f64[2]\""));
    ck_assert(has(text, "a; \\\"name\\\" </script>"));
    ck_assert(has(text, "\"cat\": \"kernel\""));
    ck_assert(has(text, "\"name\": \"sim\""));
    ck_assert(has(text, "\"name\": \"memory sim\""));
    ck_assert(has(text, "\"ph\": \"s\", \"name\": \"launch\""));
    ck_assert(has(text, "\"ph\": \"f\", \"name\": \"backward\""));
    free(text);
}
END_TEST

START_TEST(stacks_go_from_the_outermost_to_the_innermost)
{
    char *text;

    record_something();
    OK(core_profiler_save_stacks(profiler, "profiler-test.txt"));
    text = content("profiler-test.txt");
    ck_assert(has(text, ";a, \"name\" </script>;sum.dim_IntList") ||
              has(text, ";a, \"name\" </script>;sum"));
    ck_assert(has(text, ";mul.Tensor backward;mul.Tensor "));
    free(text);
}
END_TEST

START_TEST(a_page_is_one_file_whose_data_ends_where_it_should)
{
    char *text, *at;
    int scripts = 0;

    record_something();
    OK(core_profiler_save_html(profiler, "profiler-test.html"));
    text = content("profiler-test.html");
    for (at = text; (at = strstr(at, "</script>")); at++)
        scripts++;
    ck_assert_int_eq(scripts, 2); /* none of them in the data */
    ck_assert(has(text, "\\u003c/script>"));
    ck_assert(has(text, "sim stream 0"));
    ck_assert(!has(text, "http"));
    free(text);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        operators_are_counted_while_a_session_runs_and_not_else,
        an_operator_that_calls_others_has_the_rest_for_itself,
        convolutions_have_two_operations_per_weight_and_element,
        nodes_of_a_backward_are_there_and_what_they_call_is_inside,
        ranges_hold_what_runs_inside,
        a_range_that_is_left_early_ends_those_inside,
        names_outlive_the_operators_that_had_them,
        kernels_of_a_device_have_its_time,
        waits_say_what_for,
        memory_of_a_device_goes_up_and_down,
        a_schedule_records_its_active_steps_alone,
        events_beyond_the_limit_are_counted,
        one_session_runs_at_a_time,
        another_thread_cannot_stop_it,
        options_that_cannot_be_are_refused,
        there_is_no_report_while_it_records,
        a_report_that_cannot_be_written_is_an_error,
        sessions_come_and_go_while_threads_compute,
        a_thread_that_ended_is_in_the_report,
        a_forked_child_is_not_profiled,
        a_session_of_another_thread_does_not_last_in_a_child,
        a_trace_has_threads_streams_memory_and_arrows,
        stacks_go_from_the_outermost_to_the_innermost,
        a_page_is_one_file_whose_data_ends_where_it_should,
    };
    Suite *suite = suite_create("profiler");
    TCase *tcase = tcase_create("profiler");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(tcase, setup, teardown);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        tcase_add_test(tcase, tests[i]);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
