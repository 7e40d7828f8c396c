/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The profiler: it reports the operators that ran in a session with their
 * callers, times, memory and devices, and no others. */

#include "support/children.h"
#include "support/profiler.h"

#include "autograd/engine/state.h"
#include "profiler/profile.h"

#include <libcore/device.h>
#include <libcore/dispatch.h>
#include <libcore/memory.h>
#include <libcore/stream.h>

#include <pthread.h>
#include <time.h>

/* ----------------------------------------------------------------- rows -- */

START_TEST(operators_are_counted_only_during_a_session)
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

START_TEST(self_time_excludes_called_operators)
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
    /* The flop are counted once, at the operator that computes them. */
    ck_assert_uint_eq(inner.flop, 2 * 8 * 8 * 8);
    ck_assert_uint_eq(outer.flop, 0);
    ck_assert_uint_eq(inner.bytes, 3 * 64 * 4);
}
END_TEST

START_TEST(convolution_counts_two_flop_per_weight_and_element)
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

/* 2 heads with 3 queries and 4 keys of 8 elements, and values of 6 elements. */
START_TEST(attention_counts_its_products_and_their_gradients)
{
    const char *name = "_scaled_dot_product_efficient_attention";
    const uint64_t pairs = 2 * 3 * 4;
    core_tensor *q =
        leaf(typed(CORE_F32, 4, (int64_t[]){1, 2, 3, 8}, (double[48]){1}));
    core_tensor *k =
        typed(CORE_F32, 4, (int64_t[]){1, 2, 4, 8}, (double[64]){1});
    core_tensor *v =
        leaf(typed(CORE_F32, 4, (int64_t[]){1, 2, 4, 6}, (double[48]){1}));
    core_tensor *y[4] = {NULL};

    start();
    OK(core_efficient_attention(q, k, v, NULL, true, 0, false, NULL, &y[0],
                                &y[1], &y[2], &y[3]));
    for (int i = 0; i < 4; i++)
        keep(y[i]);
    backward(sum(y[0]));
    stop();
    ck_assert_uint_eq(row_of(CORE_PROFILE_OPERATOR, name).flop,
                      2 * pairs * (8 + 6));
    /* Recomputed scores and their gradient, then those of query and value. */
    ck_assert_uint_eq(row_of(CORE_PROFILE_OPERATOR,
                             "_scaled_dot_product_efficient_attention_backward")
                          .flop,
                      2 * pairs * (8 + 6 + 8 + 6));
}
END_TEST

START_TEST(addbmm_and_addr_count_flop_of_every_product)
{
    core_tensor *c = square(0),
                *row = typed(CORE_F32, 1, (int64_t[]){8}, (double[8]){1});
    core_tensor *a = typed(CORE_F32, 3, (int64_t[]){2, 8, 3}, (double[48]){1});
    core_tensor *b = typed(CORE_F32, 3, (int64_t[]){2, 3, 8}, (double[48]){1});

    start();
    CALL(addbmm, c, a, b, core_int(1), core_int(1));
    CALL(addr, c, row, row, core_int(1), core_int(1));
    stop();
    ck_assert_uint_eq(row_of(CORE_PROFILE_OPERATOR, "addbmm").flop,
                      2 * 64 * 3 * 2);
    ck_assert_uint_eq(row_of(CORE_PROFILE_OPERATOR, "addr").flop, 2 * 64);
}
END_TEST

START_TEST(backward_nodes_contain_the_operators_they_call)
{
    core_tensor *a = leaf(VECTOR(2, 3, 4));
    core_profile_row node, inner;

    start();
    backward(sum(mul(a, a)));
    stop();
    node = row_of(CORE_PROFILE_BACKWARD, "mul.Tensor backward");
    inner = row_of(CORE_PROFILE_OPERATOR, "mul.Tensor");
    ck_assert_uint_eq(node.calls, 1);
    ck_assert_uint_ge(inner.calls, 2); /* forward, and the formula twice */
    ck_assert_uint_gt(node.cpu_total, node.cpu_self);
}
END_TEST

START_TEST(range_contains_operators_run_inside)
{
    core_tensor *a = square(2);
    core_range range;
    core_profile_row row;

    ck_assert_uint_eq(core_range_begin("without a session"), 0);
    start();
    range = core_range_begin("mine");
    mul(a, a);
    core_range_end(range);
    mul(a, a);
    stop();
    row = row_of(CORE_PROFILE_RANGE, "mine");
    ck_assert_uint_eq(row.calls, 1);
    ck_assert_uint_gt(row.cpu_total, row.cpu_self);
    ck_assert_uint_eq(row_of(CORE_PROFILE_RANGE, "without a session").calls, 0);
}
END_TEST

START_TEST(end_of_range_ends_inner_ranges)
{
    core_range outer, inner;
    core_tensor *a = square(2);

    start();
    outer = core_range_begin("outer");
    inner = core_range_begin("inner");
    core_range_end(outer);
    core_range_end(inner); /* has ended already: no effect */
    outer = core_range_begin("after");
    mul(a, a);
    core_range_end(outer);
    stop();
    ck_assert_uint_eq(row_of(CORE_PROFILE_RANGE, "inner").calls, 1);
    /* "after" is inside neither range. */
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

START_TEST(names_outlive_unregistered_operators)
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

/* -------------------------------------------------------------- devices -- */

START_TEST(kernel_time_is_measured_on_device)
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

START_TEST(waits_are_reported_with_their_cause)
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

START_TEST(operator_memory_counts_device_allocations)
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

/* ------------------------------------------------------------ schedules -- */

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

START_TEST(schedule_records_only_active_steps)
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
    ck_assert_ptr_null(core__observer_now()); /* the session is over */
    stop();
    ck_assert_uint_eq(readies, 2);
    ck_assert_uint_eq(calls_of("mul.Tensor"), 2);
}
END_TEST

static core_status stop_in_ready(core_profiler *own, void *user)
{
    ++*(unsigned *)user;
    return core_profiler_stop(own);
}

START_TEST(session_stopped_in_ready_callback_is_over)
{
    core_profiler_options options = {.struct_size = sizeof options,
                                     .active = 1,
                                     .ready = stop_in_ready,
                                     .user = &readies};
    core_tensor *a = square(2);

    readies = 0;
    OK(core_profiler_start(&options, &profiler));
    mul(a, a);
    OK(core_profiler_step(profiler));
    ck_assert_ptr_null(core__observer_now());
    mul(a, a);
    FAILS(core_profiler_step(profiler), CORE_ERROR_INVALID_ARGUMENT, "stopped");
    ck_assert_uint_eq(readies, 1);
    ck_assert_uint_eq(calls_of("mul.Tensor"), 1);
}
END_TEST

START_TEST(events_beyond_the_limit_are_counted_as_missing)
{
    core_profiler_options options = {.struct_size = sizeof options, .limit = 3};
    core_tensor *a = square(2);
    char *text;

    OK(core_profiler_start(&options, &profiler));
    for (int i = 0; i < 5; i++)
        mul(a, a);
    stop();
    /* One of the 3 is the range of the step. */
    ck_assert_uint_eq(calls_of("mul.Tensor"), 2);
    OK(core_profiler_table(profiler, CORE_PROFILE_BY_SELF, 0, &text));
    ck_assert_ptr_nonnull(strstr(text, "3 events are missing"));
    core_text_free(text);
}
END_TEST

/* The limit also bounds memory and launch records. */
START_TEST(allocations_and_launches_beyond_limit_are_counted)
{
    core_profiler_options options = {.struct_size = sizeof options,
                                     .flags = CORE_PROFILE_MEMORY |
                                              CORE_PROFILE_DEVICE,
                                     .limit = 4};
    core_tensor *a = on(square(2), "sim:0"), *b;
    char *text;

    OK(core_profiler_start(&options, &profiler));
    for (int i = 0; i < 20; i++) {
        OK(core_mul(a, a, &b));
        core_tensor_release(b);
    }
    stop();
    /* 3 of 20 operators, 4 of 20 launches and 4 of 40 memory changes are
     * kept. */
    OK(core_profiler_table(profiler, CORE_PROFILE_BY_SELF, 0, &text));
    ck_assert_ptr_nonnull(strstr(text, "69 events are missing"));
    core_text_free(text);
}
END_TEST

START_TEST(limit_is_clamped_to_maximum)
{
    core_profiler_options options = {.struct_size = sizeof options,
                                     .limit = UINT64_MAX};

    OK(core_profiler_start(&options, &profiler));
    ck_assert_uint_eq(core__profile_limit(), UINT32_MAX / 2);
    stop();
}
END_TEST

/* ------------------------------------------------------------ bad input -- */

START_TEST(second_session_is_refused_while_one_runs)
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

START_TEST(session_cannot_be_stopped_by_another_thread)
{
    core_tensor *a = square(2);
    pthread_t thread;

    start();
    ck_assert_int_eq(pthread_create(&thread, NULL, stop_elsewhere, NULL), 0);
    pthread_join(thread, NULL);
    mul(a, a); /* the session continues */
    stop();
    ck_assert_uint_eq(calls_of("mul.Tensor"), 1);
    FAILS(core_profiler_stop(profiler), CORE_ERROR_INVALID_ARGUMENT, "stopped");
}
END_TEST

START_TEST(invalid_profiler_options_are_refused)
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

START_TEST(reports_are_refused_while_recording)
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
          CORE_ERROR_INVALID_ARGUMENT, "order is 9");
}
END_TEST

START_TEST(unwritable_report_is_an_error)
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

/* This test's process never started a session. */
START_TEST(ending_unknown_range_has_no_effect)
{
    core_range_end(1);
    core_range_end(UINT64_MAX);
    ck_assert_uint_eq(core_range_begin("without a session"), 0);
}
END_TEST

static void *end_the_others(void *of_another)
{
    core_tensor *a = square(2);
    core_range first = core_range_begin("own, first");
    core_range own = core_range_begin("own");

    core_range_end(*(core_range *)of_another);
    mul(a, a);
    core_range_end(own);
    core_range_end(first);
    return NULL;
}

/* The range number equals that of one of the thread's own ranges. */
START_TEST(ending_range_of_another_thread_has_no_effect)
{
    core_range range, second;
    pthread_t thread;
    char *text;

    start();
    range = core_range_begin("first");
    second = core_range_begin("second");
    ck_assert_int_eq(pthread_create(&thread, NULL, end_the_others, &range), 0);
    pthread_join(thread, NULL);
    core_range_end(second);
    core_range_end(range);
    stop();
    text = saved(core_profiler_save_stacks);
    ck_assert_ptr_nonnull(strstr(text, ";own, first;own;mul.Tensor "));
    ck_assert_ptr_nonnull(strstr(text, ";first;second "));
    free(text);
}
END_TEST

/* -------------------------------------------------------------- threads -- */

enum { THREADS = 4, ROUNDS = 50 };

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

START_TEST(sessions_may_start_and_stop_while_threads_compute)
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

START_TEST(ended_thread_is_in_the_report)
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

START_TEST(forked_child_is_not_profiled)
{
    core_tensor *a = square(2);
    pid_t child;

    start();
    mul(a, a);
    child = fork();
    if (child == 0) {
        child_begins(200);
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
        child_begins(200);
        child_ends(core_profiler_start(NULL, &other) == CORE_OK &&
                   core_profiler_stop(other) == CORE_OK);
    }
    wait_for_child(child);
    return NULL;
}

START_TEST(child_may_start_session_despite_session_of_other_thread)
{
    pthread_t thread;

    start();
    ck_assert_int_eq(pthread_create(&thread, NULL, fork_and_profile, NULL), 0);
    pthread_join(thread, NULL);
    stop();
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        operators_are_counted_only_during_a_session,
        self_time_excludes_called_operators,
        convolution_counts_two_flop_per_weight_and_element,
        attention_counts_its_products_and_their_gradients,
        addbmm_and_addr_count_flop_of_every_product,
        backward_nodes_contain_the_operators_they_call,
        range_contains_operators_run_inside,
        end_of_range_ends_inner_ranges,
        names_outlive_unregistered_operators,
        kernel_time_is_measured_on_device,
        waits_are_reported_with_their_cause,
        operator_memory_counts_device_allocations,
        schedule_records_only_active_steps,
        session_stopped_in_ready_callback_is_over,
        events_beyond_the_limit_are_counted_as_missing,
        allocations_and_launches_beyond_limit_are_counted,
        limit_is_clamped_to_maximum,
        second_session_is_refused_while_one_runs,
        session_cannot_be_stopped_by_another_thread,
        invalid_profiler_options_are_refused,
        reports_are_refused_while_recording,
        unwritable_report_is_an_error,
        ending_unknown_range_has_no_effect,
        ending_range_of_another_thread_has_no_effect,
        sessions_may_start_and_stop_while_threads_compute,
        ended_thread_is_in_the_report,
        forked_child_is_not_profiled,
        child_may_start_session_despite_session_of_other_thread,
    };
    const test_suite suite = {
        .name = "profiler/profiler",
        .setup = setup,
        .teardown = teardown,
        .seconds = 60,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
