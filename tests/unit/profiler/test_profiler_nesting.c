/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Deeply nested or unended ranges, names that are not valid text, and sessions
 * stopped by their `ready` callback. */

#include "support/profiler.h"

#include "base/text.h"
#include "profiler/profile.h"

enum { MANY = 200000, CASE_SECONDS = 20 };

/* An algorithm that visits every enclosing range of every event would exceed
 * the time limit. */
START_TEST(reports_scale_with_deeply_nested_ranges)
{
    core_tensor *x = VECTOR(2, 3, 4);
    core_profile_row row;
    char *text;

    start();
    for (int i = 0; i < MANY; i++)
        core_range_begin("never ended");
    for (int i = 0; i < MANY; i++)
        drop(CALL(neg, x));
    stop();
    row = row_of(CORE_PROFILE_OPERATOR, "neg");
    ck_assert_uint_eq(row.calls, MANY);
    ck_assert_uint_eq(row.cpu_total, row.cpu_self);
    row = row_of(CORE_PROFILE_RANGE, "never ended");
    ck_assert_uint_eq(row.calls, MANY);
    OK(core_profiler_table(profiler, CORE_PROFILE_BY_SELF, 0, &text));
    core_text_free(text);
    text = saved(core_profiler_save_html);
    /* The outermost range is "step". */
    ck_assert_ptr_nonnull(strstr(text, "\"deeper\": 399751,"));
    free(text);
}
END_TEST

START_TEST(each_of_many_names_has_its_row)
{
    core_profile_row row = {.struct_size = sizeof row};
    char name[32];
    size_t count;

    start();
    for (int turn = 0; turn < 2; turn++)
        for (int i = 0; i < MANY; i++) {
            snprintf(name, sizeof name, "range %d", i);
            core_range_end(core_range_begin(name));
        }
    stop();
    OK(core_profiler_count_rows(profiler, &count));
    ck_assert_uint_eq(count, MANY + 1);
    for (size_t i = 0; i < count; i++) {
        OK(core_profiler_get_row(profiler, CORE_PROFILE_BY_CALLS, i, &row));
        ck_assert_uint_eq(row.calls, i < MANY ? 2 : 1);
    }
}
END_TEST

START_TEST(kernel_time_counts_for_all_enclosing_ranges)
{
    core_tensor *x = on(VECTOR(2, 3, 4), "sim:0");
    core_profile_row outer, inner, kernel;

    start();
    for (int i = 0; i < MANY; i++)
        core_range_begin("outer");
    for (int i = 0; i < 2; i++) {
        core_range range = core_range_begin("inner");

        drop(CALL(neg, x));
        core_range_end(range);
    }
    drop(CALL(exp, x));
    stop();
    outer = row_of(CORE_PROFILE_RANGE, "outer");
    inner = row_of(CORE_PROFILE_RANGE, "inner");
    kernel = row_of(CORE_PROFILE_OPERATOR, "neg");
    ck_assert_uint_eq(kernel.calls, 2);
    ck_assert_uint_eq(kernel.kernels, 2);
    ck_assert_uint_eq(inner.device_total, kernel.device_total);
    ck_assert_uint_eq(inner.device_self, 0);
    kernel = row_of(CORE_PROFILE_OPERATOR, "exp");
    ck_assert_uint_eq(kernel.kernels, 1);
    ck_assert_uint_gt(kernel.device_total, 0);
    ck_assert_uint_eq(outer.device_total,
                      inner.device_total + kernel.device_total);
}
END_TEST

/* a contains b, which contains a; a second b follows outside. */
START_TEST(recursive_range_counts_time_once)
{
    core_range ranges[4];
    core_profile_row a, b, step;

    start();
    for (int i = 0; i < 3; i++)
        ranges[i] = core_range_begin(i == 1 ? "b" : "a");
    for (int i = 3; i-- > 0;)
        core_range_end(ranges[i]);
    ranges[3] = core_range_begin("b");
    core_range_end(ranges[3]);
    stop();
    a = row_of(CORE_PROFILE_RANGE, "a");
    b = row_of(CORE_PROFILE_RANGE, "b");
    step = row_of(CORE_PROFILE_RANGE, "step");
    ck_assert_uint_eq(a.calls, 2);
    ck_assert_uint_eq(b.calls, 2);
    ck_assert_uint_eq(step.calls, 1);
    ck_assert_uint_ge(a.cpu_total, a.cpu_self);
    /* Each instant is self time of one range; the second b is outside a. */
    ck_assert_uint_eq(step.cpu_total, step.cpu_self + a.cpu_self + b.cpu_self);
    ck_assert_uint_le(a.cpu_total, step.cpu_total);
    ck_assert_uint_ge(a.cpu_total + b.cpu_total, a.cpu_self + b.cpu_self);
}
END_TEST

START_TEST(ending_ended_range_has_no_effect)
{
    core_range outer, inner, next;

    start();
    outer = core_range_begin("outer");
    inner = core_range_begin("inner");
    core_range_end(outer); /* also ends inner */
    next = core_range_begin("next");
    core_range_end(inner);
    core_range_end(outer);
    drop(VECTOR(1, 2));
    drop(CALL(neg, VECTOR(1, 2)));
    core_range_end(next);
    stop();
    ck_assert_uint_ge(row_of(CORE_PROFILE_RANGE, "next").cpu_total,
                      row_of(CORE_PROFILE_OPERATOR, "neg").cpu_total);
    ck_assert_uint_lt(row_of(CORE_PROFILE_RANGE, "next").cpu_self,
                      row_of(CORE_PROFILE_RANGE, "next").cpu_total);
}
END_TEST

/* ---------------------------------------------------------------- names -- */

static bool is_text(const char *text)
{
    size_t left = strlen(text), length;

    for (; left > 0; text += length, left -= length)
        if ((length = core__utf8_sequence(text, left)) == 0)
            return false;
    return true;
}

START_TEST(invalid_utf8_names_are_replaced_in_reports)
{
    static const char *const names[] = {"cut \xc3",       "\xff\xfe; odd",
                                        "lone \xa9 half", "\xed\xa0\x80",
                                        "good \u00e9",    "deleted\x7f"};
    char *text;

    start();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        core_range_end(core_range_begin(names[i]));
    stop();
    OK(core_profiler_table(profiler, CORE_PROFILE_BY_SELF, 0, &text));
    ck_assert(is_text(text));
    ck_assert_ptr_nonnull(strstr(text, "cut ? (range)"));
    ck_assert_ptr_nonnull(strstr(text, "??; odd (range)"));
    ck_assert_ptr_nonnull(strstr(text, "lone ? half (range)"));
    ck_assert_ptr_nonnull(strstr(text, "??? (range)"));
    ck_assert_ptr_nonnull(strstr(text, "good \u00e9 (range)"));
    core_text_free(text);
    text = saved(core_profiler_save_stacks);
    ck_assert(is_text(text));
    ck_assert_ptr_nonnull(strstr(text, ";step;cut ? "));
    ck_assert_ptr_nonnull(strstr(text, ";step;??, odd "));
    ck_assert_ptr_nonnull(strstr(text, ";step;good \u00e9 "));
    ck_assert_ptr_nonnull(strstr(text, ";step;deleted? "));
    free(text);
}
END_TEST

START_TEST(names_are_truncated_between_characters)
{
    char out[8];

    ck_assert_uint_eq(core__profile_printable_name(out, 7, "abcdef\u00e9"), 6);
    ck_assert_str_eq(out, "abcdef");
    ck_assert_uint_eq(core__profile_printable_name(out, 7, "abcde\u00e9"), 7);
    ck_assert_str_eq(out, "abcde\u00e9");
    ck_assert_uint_eq(core__profile_printable_name(out, 0, "a"), 0);
    ck_assert_str_eq(out, "");
}
END_TEST

/* ---------------------------------------------------------------- ready -- */

static unsigned readies;

static core_status stop_it(core_profiler *session, void *user)
{
    (void)user;
    readies++;
    return core_profiler_stop(session);
}

static core_status stop_it_and_fail(core_profiler *session, void *user)
{
    (void)user;
    readies++;
    OK(core_profiler_stop(session));
    return core_profiler_stop(NULL);
}

START_TEST(ready_callback_may_stop_a_stopping_session)
{
    core_profiler_options options = {.struct_size = sizeof options,
                                     .ready = stop_it};

    OK(core_profiler_start(&options, &profiler));
    drop(CALL(neg, VECTOR(1, 2)));
    OK(core_profiler_stop(profiler));
    ck_assert_uint_eq(readies, 1);
    ck_assert_uint_eq(calls_of("neg"), 1);
    FAILS(core_profiler_stop(profiler), CORE_ERROR_INVALID_ARGUMENT,
          "has been stopped");
    ck_assert_uint_eq(readies, 1);
    core_profiler_release(profiler);
    options.ready = stop_it_and_fail; /* its error becomes that of the call */
    OK(core_profiler_start(&options, &profiler));
    FAILS(core_profiler_stop(profiler), CORE_ERROR_INVALID_ARGUMENT,
          "profiler is NULL");
    ck_assert_uint_eq(readies, 2);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        reports_scale_with_deeply_nested_ranges,
        each_of_many_names_has_its_row,
        kernel_time_counts_for_all_enclosing_ranges,
        recursive_range_counts_time_once,
        ending_ended_range_has_no_effect,
        invalid_utf8_names_are_replaced_in_reports,
        names_are_truncated_between_characters,
        ready_callback_may_stop_a_stopping_session,
    };
    const test_suite suite = {
        .name = "profiler/profiler_nesting",
        .setup = setup,
        .teardown = teardown,
        .seconds = CASE_SECONDS,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
