/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* LIBCORE_NAN_CHECK: who makes a NaN says so. */

#include "support/devices.h"

#include <libcore/ops.h>
#include <libcore/profiler.h>
#include <libcore/settings.h>

#include <math.h>

static void check(bool on)
{
    OK(core_setting_set("LIBCORE_NAN_CHECK", on ? "1" : NULL));
}

static void begin(void)
{
    check(true);
}

static void end(void)
{
    check(false);
    drop_all();
}

#define MAKES_NAN(call, op) FAILS(call, CORE_ERROR_REFUSED, op ": the result, ")

START_TEST(who_makes_a_nan_is_told)
{
    const char *devices[] = {"cpu", "sim:0"};

    for (int i = 0; i < 2; i++) {
        core_tensor *x = fresh_on(VECTOR(2, 1, -1), devices[i]), *y = x;
        core_tensor *zero = fresh_on(VECTOR(2, 0, 0), devices[i]);

        MAKES_NAN(core_log(x, &y), "log");
        ck_assert_ptr_null(y);
        ck_assert_ptr_nonnull(strstr(core_error_message(), "f64 [2] on "));
        MAKES_NAN(core_div(zero, zero, &y), "div.Tensor");
        MAKES_NAN(core_sqrt_(x), "sqrt_");
    }
}
END_TEST

START_TEST(who_passes_one_on_is_not)
{
    core_tensor *x = VECTOR(2, 1, NAN), *y = VECTOR(2, 1, 2);
    double have[2];

    CALL(add, x, y, core_int(1));
    CALL(sum, x, CORE_DTYPE_NONE);
    CALL(mul, y, x);
    OK(core_mul_(x, y));
    OK(core_mul_scalar_(y, core_float(NAN)));
    OK(core_tensor_read(x, have, sizeof have));
    ck_assert(have[0] == 1 && isnan(have[1]));
}
END_TEST

START_TEST(what_was_never_computed_is_not_looked_at)
{
    const int64_t n = 100000;
    core_device *sim = device_of("sim:0");
    core_tensor *x;

    /* Fresh memory there is full of what reads as NaN. */
    for (int i = 0; i < 4; i++) {
        OK(core_empty(&n, 1, CORE_F32, sim, -1, &x));
        OK(core_fill_(x, core_float(i)));
        core_tensor_release(x);
    }
    CALL(full, &n, 1, core_float(NAN), CORE_F32, NULL);
}
END_TEST

static core_status nan_of(core_call *call, const core_value *args,
                          uint32_t nargs, core_value *results,
                          uint32_t nresults)
{
    (void)call;
    (void)nargs;
    (void)nresults;
    results[0].tag = CORE_VALUE_TENSOR;
    return core_mul_scalar(args[0].u.tensor, core_float(NAN),
                           &results[0].u.tensor);
}

/* Whatever it is called. */
START_TEST(an_operator_of_a_program_is_looked_at)
{
    core_value arg = {CORE_VALUE_TENSOR, 0, {.tensor = VECTOR(2, 1, 2)}};
    core_registration *op, *kernel;
    core_value result = {0};
    core_operator *found;

    OK(core_op_register("mine::empty_spot(Tensor a) -> Tensor", &op));
    OK(core_function_register("mine::empty_spot", CORE_KEY_BACKEND, "cpu",
                              nan_of, NULL, &kernel));
    OK(core_op_find("mine::empty_spot", &found));
    MAKES_NAN(core_op_call(found, &arg, 1, &result, 1), "mine::empty_spot");
    core_registration_release(kernel);
    core_registration_release(op);
}
END_TEST

START_TEST(a_given_result_may_have_held_one)
{
    core_tensor *x = VECTOR(2, 1, 4), *negative = VECTOR(2, 1, -4);
    core_tensor *out = VECTOR(2, NAN, NAN);

    OK(core_sqrt_out(x, out));
    HOLDS(out, 2, 1, 2);
    FAILS(core_sqrt_out(negative, out), CORE_ERROR_REFUSED, "sqrt.out");
}
END_TEST

START_TEST(a_backward_tells_it_too)
{
    core_tensor *x = leaf(VECTOR(2, 0, 1)), *y;

    /* The slope of the root at 0 is infinite, and 0 of it no number. */
    y = sum(mul(CALL(sqrt, x), VECTOR(2, 0, 1)));
    FAILS(core_backward(&y, 1, NULL, 0), CORE_ERROR_REFUSED, "no operand does");
    check(false);
    y = sum(mul(CALL(sqrt, x), VECTOR(2, 0, 1)));
    OK(core_backward(&y, 1, NULL, 0));
}
END_TEST

START_TEST(a_profile_does_not_end_it)
{
    core_tensor *x = VECTOR(2, -1, 1), *y;
    core_profiler *profiler;

    OK(core_profiler_start(NULL, &profiler));
    MAKES_NAN(core_log(x, &y), "log");
    OK(core_profiler_stop(profiler));
    core_profiler_release(profiler);
    MAKES_NAN(core_log(x, &y), "log");
    check(true); /* which it is */
    check(false);
    CALL(log, x);
}
END_TEST

START_TEST(only_a_switch_is_accepted)
{
    core_tensor *x = VECTOR(2, -1, 1), *y;

    FAILS(core_setting_set("LIBCORE_NAN_CHECK", "perhaps"),
          CORE_ERROR_INVALID_ARGUMENT, "LIBCORE_NAN_CHECK is \"perhaps\"");
    MAKES_NAN(core_log(x, &y), "log");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("nan check");
    TCase *tcase = tcase_create("nan check");
    SRunner *runner = srunner_create(suite);
    int failed;

    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, begin, end);
    tcase_add_test(tcase, who_makes_a_nan_is_told);
    tcase_add_test(tcase, who_passes_one_on_is_not);
    tcase_add_test(tcase, what_was_never_computed_is_not_looked_at);
    tcase_add_test(tcase, an_operator_of_a_program_is_looked_at);
    tcase_add_test(tcase, a_given_result_may_have_held_one);
    tcase_add_test(tcase, a_backward_tells_it_too);
    tcase_add_test(tcase, a_profile_does_not_end_it);
    tcase_add_test(tcase, only_a_switch_is_accepted);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
