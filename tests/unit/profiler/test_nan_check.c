/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* LIBCORE_NAN_CHECK: an operator that creates a NaN fails and is named. */

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

#define CREATES_NAN(call, op) \
    FAILS(call, CORE_ERROR_REFUSED, op ": the result, ")

START_TEST(operator_that_creates_nan_is_named)
{
    const char *devices[] = {"cpu", "sim:0"};

    for (int i = 0; i < 2; i++) {
        core_tensor *x = fresh_on(VECTOR(2, 1, -1), devices[i]), *y = x;
        core_tensor *zero = fresh_on(VECTOR(2, 0, 0), devices[i]);

        CREATES_NAN(core_log(x, &y), "log");
        ck_assert_ptr_null(y);
        ck_assert_ptr_nonnull(strstr(core_error_message(), "f64 [2] on "));
        CREATES_NAN(core_div(zero, zero, &y), "div.Tensor");
        CREATES_NAN(core_sqrt_(x), "sqrt_");
    }
}
END_TEST

START_TEST(operator_that_propagates_nan_is_accepted)
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

START_TEST(uninitialized_and_constant_tensors_are_not_checked)
{
    const int64_t n = 100000;
    core_device *sim = device_of("sim:0");
    core_tensor *x;

    /* Fresh memory of sim is filled with bytes that read as NaN. */
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

/* The operator's name does not matter. */
START_TEST(custom_operators_are_checked)
{
    core_value arg = {CORE_VALUE_TENSOR, 0, {.tensor = VECTOR(2, 1, 2)}};
    core_registration *op, *kernel;
    core_value result = {0};
    core_operator *found;

    OK(core_op_register("mine::empty_spot(Tensor a) -> Tensor", &op));
    OK(core_function_register("mine::empty_spot", CORE_KEY_BACKEND, "cpu",
                              nan_of, NULL, &kernel));
    OK(core_op_find("mine::empty_spot", &found));
    CREATES_NAN(core_op_call(found, &arg, 1, &result, 1), "mine::empty_spot");
    core_registration_release(kernel);
    core_registration_release(op);
}
END_TEST

/* Multiplies what its second argument names by the number that user points to. */
static core_status multiply_second(core_call *call, const core_value *args,
                                   uint32_t nargs, core_value *results,
                                   uint32_t nresults)
{
    const double *factor = call->user;
    core_tensor *const *tensors = args[1].tag == CORE_VALUE_TENSOR
                                      ? &args[1].u.tensor
                                      : args[1].u.tensors;
    uint32_t count = args[1].tag == CORE_VALUE_TENSOR ? 1 : args[1].count;

    (void)nargs;
    (void)results;
    (void)nresults;
    for (uint32_t i = 0; i < count; i++)
        CORE_TRY(core_mul_scalar_(tensors[i], core_float(*factor)));
    return CORE_OK;
}

/* Not only the first argument may be changed, and it may be a list. */
START_TEST(changed_arguments_may_contain_nan_before_the_call)
{
    static const char *const schemas[] = {
        "mine::change(Tensor a, Tensor(b!) b) -> ()",
        "mine::change(Tensor a, Tensor(b!)[] b) -> ()"};
    core_tensor *spoilt[2] = {VECTOR(2, 1, 2), VECTOR(2, 1, NAN)};
    core_tensor *clean[2] = {VECTOR(2, 1, 2), VECTOR(2, 3, 4)};
    double factor;

    for (uint32_t list = 0; list < 2; list++) {
        core_value args[2] = {
            {CORE_VALUE_TENSOR, 0, {.tensor = VECTOR(2, 5, 6)}}};
        core_registration *op, *kernel;
        core_operator *found;

        OK(core_op_register(schemas[list], &op));
        OK(core_function_register("mine::change", CORE_KEY_BACKEND, "cpu",
                                  multiply_second, &factor, &kernel));
        OK(core_op_find("mine::change", &found));
        for (int nan = 0; nan < 2; nan++) {
            core_tensor **given = nan ? clean : spoilt;

            args[1] =
                list ? (core_value){CORE_VALUE_TENSOR_LIST,
                                    2,
                                    {.tensors = given}}
                     : (core_value){CORE_VALUE_TENSOR, 0, {.tensor = given[1]}};
            factor = nan ? NAN : 2;
            if (nan)
                CREATES_NAN(core_op_call(found, args, 2, NULL, 0),
                            "mine::change");
            else
                OK(core_op_call(found, args, 2, NULL, 0));
        }
        clean[0] = VECTOR(2, 1, 2);
        clean[1] = VECTOR(2, 3, 4);
        core_registration_release(kernel);
        core_registration_release(op);
    }
}
END_TEST

START_TEST(out_tensor_may_contain_nan_before_the_call)
{
    core_tensor *x = VECTOR(2, 1, 4), *negative = VECTOR(2, 1, -4);
    core_tensor *out = VECTOR(2, NAN, NAN);

    OK(core_sqrt_out(x, out));
    HOLDS(out, 2, 1, 2);
    FAILS(core_sqrt_out(negative, out), CORE_ERROR_REFUSED, "sqrt.out");
}
END_TEST

START_TEST(nan_in_backward_is_reported)
{
    core_tensor *x = leaf(VECTOR(2, 0, 1)), *y;

    /* The slope of sqrt at 0 is infinite; multiplied by 0 it is NaN. */
    y = sum(mul(CALL(sqrt, x), VECTOR(2, 0, 1)));
    FAILS(core_backward(&y, 1, NULL, 0), CORE_ERROR_REFUSED, "no operand does");
    check(false);
    y = sum(mul(CALL(sqrt, x), VECTOR(2, 0, 1)));
    OK(core_backward(&y, 1, NULL, 0));
}
END_TEST

START_TEST(profiling_does_not_disable_nan_check)
{
    core_tensor *x = VECTOR(2, -1, 1), *y;
    core_profiler *profiler;

    OK(core_profiler_start(NULL, &profiler));
    CREATES_NAN(core_log(x, &y), "log");
    OK(core_profiler_stop(profiler));
    core_profiler_release(profiler);
    CREATES_NAN(core_log(x, &y), "log");
    check(true); /* it already is on */
    check(false);
    CALL(log, x);
}
END_TEST

START_TEST(nan_check_accepts_only_boolean_values)
{
    core_tensor *x = VECTOR(2, -1, 1), *y;

    FAILS(core_setting_set("LIBCORE_NAN_CHECK", "perhaps"),
          CORE_ERROR_INVALID_ARGUMENT, "LIBCORE_NAN_CHECK is \"perhaps\"");
    CREATES_NAN(core_log(x, &y), "log");
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        operator_that_creates_nan_is_named,
        operator_that_propagates_nan_is_accepted,
        uninitialized_and_constant_tensors_are_not_checked,
        custom_operators_are_checked,
        changed_arguments_may_contain_nan_before_the_call,
        out_tensor_may_contain_nan_before_the_call,
        nan_in_backward_is_reported,
        profiling_does_not_disable_nan_check,
        nan_check_accepts_only_boolean_values,
    };
    const test_suite suite = {
        .name = "profiler/nan_check",
        .setup = begin,
        .teardown = end,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
