/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Functions of a plugin that take the place of built-in ones, and call what they
 * displaced (fixtures/displaces.c). */

#define SUITE_FORKS true

#include "support/autograd.h"
#include "support/loader.h"

#include <libcore/autocast.h>
#include <libcore/device.h>
#include <libcore/dispatch.h>
#include <libcore/profiler.h>

static core_plugin *plugin;

static void setup(void)
{
    folder_make_with("own_kernels");
    setenv("FIXTURE_DISPLACES_OWN", "1", 1);
    OK(core_plugin_load(fixture("displaces"), &plugin));
    unsetenv("FIXTURE_SEEN");
}

static void teardown(void)
{
    drop_all();
    folder_remove();
}

/* Checks the functions that were called since the last check. */
static void saw(const char *wanted)
{
    const char *text = getenv("FIXTURE_SEEN");

    ck_assert_str_eq(text ? text : "", wanted);
    unsetenv("FIXTURE_SEEN");
}

static core_value of(core_tensor *tensor)
{
    return (core_value){CORE_VALUE_TENSOR, 0, {.tensor = tensor}};
}

START_TEST(observed_operators_keep_their_gradients)
{
    core_tensor *x = leaf(VECTOR(2, 3, 4)), *y = leaf(VECTOR(2, 3, 7)), *z;

    z = sum(mul(x, x));
    saw("A");
    backward(z);
    HOLDS(core_tensor_grad(x), 2, 6, 8);
    unsetenv("FIXTURE_SEEN");
    z = sum(CALL(relu6, y));
    saw("I");
    backward(z);
    HOLDS(core_tensor_grad(y), 2, 1, 0);
    y = leaf(VECTOR(2, 3, 4));
    unsetenv("FIXTURE_SEEN");
    z = sum(CALL(clone, y, CORE_FORMAT_PRESERVE));
    saw("E");
    backward(z);
    HOLDS(core_tensor_grad(y), 2, 1, 1);
}
END_TEST

START_TEST(call_that_is_passed_on_is_not_recorded)
{
    core_tensor *x = leaf(VECTOR(2, 3, 4));
    core_tensor *y = CALL(sub, x, x, core_int(1));

    ck_assert(!core_tensor_requires_grad(y));
    HOLDS(y, 2, 0, 0);
    saw("b");
}
END_TEST

START_TEST(observed_change_is_counted_and_seen_by_backward)
{
    core_tensor *x = leaf(VECTOR(2, 3, 4)), *y = mul(x, VECTOR(2, 1, 1));
    core_tensor *z = sum(mul(y, y));
    uint32_t version = core_tensor_version(y);

    saw("AA");
    OK(core_add_(y, y, core_int(1)));
    saw("V");
    ck_assert_uint_eq(core_tensor_version(y), version + 1);
    FAILS(core_backward(&z, 1, NULL, 0), CORE_ERROR_VERSION, "mul.Tensor");
}
END_TEST

START_TEST(observed_cast_and_record_take_place)
{
    core_tensor *x, *y;
    core_profiler *profiler;
    core_device *cpu;
    uint64_t region;

    OK(core_device_find("cpu", &cpu));
    x = typed(CORE_F32, 2, (int64_t[]){1, 1}, (double[]){3});
    OK(core_autocast_begin(cpu, CORE_BF16, 0, &region));
    y = CALL(mm, x, x);
    OK(core_autocast_end(region));
    ck_assert_uint_eq(core_tensor_dtype(y), CORE_BF16);
    saw("C");
    OK(core_profiler_start(NULL, &profiler));
    mul(x, x);
    OK(core_profiler_stop(profiler));
    core_profiler_release(profiler);
    saw("PA");
}
END_TEST

START_TEST(displaced_kernel_receives_other_arguments)
{
    core_tensor *x = leaf(VECTOR(2, 0, 0)), *y = CALL(exp, x);

    HOLDS(y, 2, 1, 1);
    saw("B");
    HOLDS(CALL(exp, VECTOR(1, 1)), 1, 7.38905609893065);
}
END_TEST

START_TEST(kernel_of_another_plugin_is_called)
{
    core_value args[3], result = {0};
    core_operator *op;
    core_device *own;
    core_tensor *x;
    float got[2];

    OK(core_device_find("own", &own));
    OK(core_tensor_from_data((float[]){1, 2}, CORE_F32, (int64_t[]){2}, 1, own,
                             &x));
    args[0] = args[1] = of(keep(x));
    args[2] = core_float(2);
    OK(core_op_find("own::blend", &op));
    OK(core_op_call(op, args, 3, &result, 1));
    OK(core_tensor_read(keep(result.u.tensor), got, sizeof got));
    ck_assert_float_eq(got[1], 6);
    saw("O");
}
END_TEST

START_TEST(unloading_restores_what_was_displaced)
{
    core_tensor *x = leaf(VECTOR(2, 0, 1));

    backward(sum(mul(x, x)));
    drop_all();
    unsetenv("FIXTURE_SEEN");
    OK(core_plugin_unload(plugin, 0));
    x = leaf(VECTOR(2, 3, 4));
    backward(sum(mul(x, x)));
    HOLDS(core_tensor_grad(x), 2, 6, 8);
    HOLDS(CALL(exp, VECTOR(1, 0)), 1, 1);
    saw("");
    core_plugin_release(plugin);
    OK(core_plugin_load(fixture("displaces"), &plugin));
    HOLDS(CALL(exp, VECTOR(1, 0)), 1, 1);
    saw("B");
}
END_TEST

/* A program's function, registered later, calls the plugin's, and then what that
 * displaced. */
static core_status passes(core_call *call, const core_value *args,
                          uint32_t nargs, core_value *results,
                          uint32_t nresults)
{
    return core_redispatch_displaced(call, args, nargs, results, nresults);
}

START_TEST(unloaded_function_is_left_out_of_the_chain)
{
    core_tensor *x = leaf(VECTOR(2, 3, 4));
    core_registration *registration;

    OK(core_function_register("mul.Tensor", CORE_KEY_AUTOGRAD, NULL, passes,
                              NULL, &registration));
    mul(x, x);
    saw("A");
    drop_all();
    OK(core_plugin_unload(plugin, 0));
    x = leaf(VECTOR(2, 3, 4));
    backward(sum(mul(x, x)));
    HOLDS(core_tensor_grad(x), 2, 6, 8);
    saw("");
    core_registration_release(registration);
}
END_TEST

static void refused(int64_t how, const char *says)
{
    core_value args[2] = {of(VECTOR(2, 3, 4)), core_int(how)}, result = {0};
    core_operator *op;

    OK(core_op_find("displaces::wrong", &op));
    FAILS(core_op_call(op, args, 2, &result, 1), CORE_ERROR_INVALID_ARGUMENT,
          says);
    ck_assert_uint_eq(result.tag, CORE_VALUE_NONE);
}

START_TEST(what_was_not_displaced_is_refused)
{
    refused(0, "displaces::wrong has displaced nothing");
    mul(VECTOR(1, 2), VECTOR(1, 3)); /* its call is kept */
    refused(1, "this thread does not run");
    refused(2, "in another thread");
    refused(3, "this thread does not run");
    refused(4, "this thread does not run");
    HOLDS(mul(VECTOR(1, 2), VECTOR(1, 3)), 1, 6);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        observed_operators_keep_their_gradients,
        call_that_is_passed_on_is_not_recorded,
        observed_change_is_counted_and_seen_by_backward,
        observed_cast_and_record_take_place,
        displaced_kernel_receives_other_arguments,
        kernel_of_another_plugin_is_called,
        unloading_restores_what_was_displaced,
        unloaded_function_is_left_out_of_the_chain,
        what_was_not_displaced_is_refused,
    };
    const test_suite suite = {
        .name = "loader/plugin_displaced",
        .setup = setup,
        .teardown = teardown,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
