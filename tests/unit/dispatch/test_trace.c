/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The output of LIBCORE_TRACE_DISPATCH=1. */

#define SUITE_FORKS true

#include "support/modes.h"

#include <libcore/settings.h>

static char lines[8192];

static void collect(void *context, uint32_t level, const char *component,
                    const char *text)
{
    (void)context;
    (void)level;
    if (strcmp(component, "dispatch") != 0)
        return;
    ck_assert_uint_lt(strlen(lines) + strlen(text) + 2, sizeof lines);
    strcat(strcat(lines, text), "\n");
}

static void traced(void)
{
    setenv("LIBCORE_TRACE_DISPATCH", "1", 1);
    core_log_set_sink(collect, NULL, CORE_LOG_INFO);
}

static void stop(void)
{
    drop_all();
    core_log_set_sink(NULL, NULL, CORE_LOG_INFO);
}

static void printed(const char *expected)
{
    ck_assert_str_eq(lines, expected);
    lines[0] = '\0';
}

START_TEST(call_without_autograd_prints_its_backend)
{
    core_tensor *x = keep(VECTOR(2, 1, 2));

    lines[0] = '\0';
    mul(x, x); /* the operator's first call */
    printed("mul.Tensor: cpu\n");
    mul(x, x);
    printed("mul.Tensor: cpu\n");
}
END_TEST

START_TEST(call_with_autograd_prints_each_step)
{
    core_tensor *x = leaf(VECTOR(2, 1, 2)), *y;

    lines[0] = '\0';
    y = mul(x, x);
    printed("mul.Tensor: autograd -> cpu\n");
    OK(core_add_(y, y, core_int(1)));
    printed("add_.Tensor: autograd -> inplace-or-view -> cpu\n");
    sum(y);
    printed("sum: autograd -> cpu\n");
}
END_TEST

START_TEST(nested_calls_follow_their_caller)
{
    core_tensor *x = leaf(VECTOR(2, 1, 2));

    lines[0] = '\0';
    CALL(reshape, x, (int64_t[]){1, 2}, 2);
    printed("reshape: autograd\n"
            "view: autograd -> inplace-or-view -> cpu\n");
}
END_TEST

/* Even if it is the first call of that operator. */
START_TEST(call_inside_a_kernel_is_printed_once)
{
    const int64_t size = 2;
    core_tensor *x;

    lines[0] = '\0';
    OK(core_ones(&size, 1, CORE_F32, NULL, &x));
    core_tensor_release(x);
    printed("ones: cpu\n"
            "fill_.Scalar: cpu\n");
}
END_TEST

START_TEST(failing_call_is_printed)
{
    core_tensor *x = leaf(VECTOR(2, 1, 2));

    lines[0] = '\0';
    FAILS(core_add_(x, x, core_int(1)), CORE_ERROR_AUTOGRAD, "leaf");
    printed("add_.Tensor: autograd\n");
}
END_TEST

/* API modes come before the steps; the others are one of them. */
START_TEST(modes_below_autograd_are_a_step)
{
    core_tensor *x = leaf(VECTOR(2, 1, 2)), *y;

    push(CORE_MODE_API, note, NULL);
    push(CORE_MODE_BELOW_AUTOGRAD, note, NULL);
    push(CORE_MODE_BELOW_AUTOGRAD, note, NULL);
    lines[0] = '\0';
    y = mul(x, x);
    printed("mul.Tensor: autograd -> mode -> cpu\n");
    OK(core_add_(y, y, core_int(1)));
    printed("add_.Tensor: autograd -> inplace-or-view -> mode -> cpu\n");
    pop();
    pop();
    pop();
}
END_TEST

START_TEST(nothing_is_printed_without_the_setting)
{
    core_tensor *x = leaf(VECTOR(2, 1, 2));

    mul(x, x);
    printed("");
}
END_TEST

/* Threads read the setting without synchronization: it is read once. */
START_TEST(setting_is_refused_with_a_reason_after_the_first_call)
{
    core_tensor *x;

    OK(core_setting_set("LIBCORE_TRACE_DISPATCH", "1"));
    OK(core_setting_set("LIBCORE_TRACE_DISPATCH", "0"));
    x = keep(VECTOR(2, 1, 2));
    FAILS(core_setting_set("LIBCORE_TRACE_DISPATCH", "1"),
          CORE_ERROR_UNSUPPORTED, "LIBCORE_TRACE_DISPATCH", "first call");
    mul(x, x);
    printed("");
    OK(core_setting_set("LIBCORE_TRACE_DISPATCH", "no"));
    OK(core_setting_set("LIBCORE_TRACE_DISPATCH", NULL));
}
END_TEST

START_TEST(setting_cannot_be_reset_after_the_first_call)
{
    core_tensor *x = keep(VECTOR(2, 1, 2));

    mul(x, x);
    FAILS(core_setting_set("LIBCORE_TRACE_DISPATCH", "0"),
          CORE_ERROR_UNSUPPORTED, "first call");
    OK(core_setting_set("LIBCORE_TRACE_DISPATCH", "yes"));
}
END_TEST

int main(void)
{
    const TTest *const on_tests[] = {
        call_without_autograd_prints_its_backend,
        call_with_autograd_prints_each_step,
        nested_calls_follow_their_caller,
        call_inside_a_kernel_is_printed_once,
        failing_call_is_printed,
        modes_below_autograd_are_a_step,
        setting_cannot_be_reset_after_the_first_call,
    };
    const TTest *const off_tests[] = {
        setting_is_refused_with_a_reason_after_the_first_call,
        nothing_is_printed_without_the_setting,
    };
    const test_suite suites[] = {
        {
            .name = "dispatch/trace, on",
            .setup = traced,
            .teardown = stop,
            SUITE_TESTS(on_tests),
        },
        {
            .name = "dispatch/trace, off",
            .teardown = stop,
            SUITE_TESTS(off_tests),
        },
    };

    return suite_run(suites, sizeof suites / sizeof *suites);
}
