/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Kernels of a plugin's own operators, whose results a shape function infers
 * (fixtures/own_kernels.c). */

#define SUITE_FORKS true

#include "support/autograd.h"
#include "support/loader.h"

#include <libcore/device.h>
#include <libcore/dispatch.h>
#include <libcore/stream.h>

static core_plugin *plugin;
static core_device *device;

static void setup(void)
{
    folder_make_with("own_kernels");
    OK(core_plugin_load(fixture("own_kernels"), &plugin));
    OK(core_device_find("own", &device));
}

static void teardown(void)
{
    drop_all();
    folder_remove();
}

static core_tensor *vector(int64_t size, const float *values)
{
    core_tensor *tensor;

    OK(core_tensor_from_data(values, CORE_F32, &size, 1, device, &tensor));
    return keep(tensor);
}

#define ON_DEVICE(...)                                     \
    vector(sizeof((float[]){__VA_ARGS__}) / sizeof(float), \
           (const float[]){__VA_ARGS__})

static void is(core_tensor *tensor, int64_t size, const float *values)
{
    float got[16];

    ck_assert_int_eq(core_tensor_numel(tensor), size);
    OK(core_tensor_read(tensor, got, (size_t)size * sizeof *got));
    for (int64_t i = 0; i < size; i++)
        ck_assert_float_eq(got[i], values[i]);
}

#define IS(tensor, ...)                                        \
    is(tensor, sizeof((float[]){__VA_ARGS__}) / sizeof(float), \
       (const float[]){__VA_ARGS__})

static core_value of(core_tensor *tensor)
{
    return (core_value){CORE_VALUE_TENSOR, 0, {.tensor = tensor}};
}

static core_status try(const char *name, const core_value *args, uint32_t nargs,
                       core_value *results, uint32_t nresults)
{
    core_operator *op;

    OK(core_op_find(name, &op));
    return core_op_call(op, args, nargs, results, nresults);
}

static core_tensor *blend(core_tensor *a, core_tensor *b, double by)
{
    core_value args[] = {of(a), of(b), core_float(by)}, result = {0};

    OK(try("own::blend", args, 3, &result, 1));
    return keep(result.u.tensor);
}

START_TEST(kernel_of_an_own_operator_runs_on_a_stream)
{
    core_device_counts before = {.struct_size = sizeof before}, after = before;
    core_stream *stream;

    OK(core_device_get_counts(device, &before));
    IS(blend(ON_DEVICE(1, 2, 3), ON_DEVICE(10, 20, 30), 2), 21, 42, 63);
    OK(core_device_get_counts(device, &after));
    ck_assert_uint_eq(after.launches, before.launches + 1);
    OK(core_stream_create(device, &stream));
    OK(core_stream_set_current(stream));
    IS(blend(ON_DEVICE(1), ON_DEVICE(2), 0.5), 2);
    core_stream_release(stream);
}
END_TEST

/* The plugin's kernel requires contiguous operands. */
START_TEST(requirements_are_met)
{
    core_tensor *pairs, *column;
    core_value args[3], result = {0};
    core_operator *op;
    uint64_t before;

    OK(core_tensor_from_data((float[]){1, 2, 3, 4}, CORE_F32, (int64_t[]){2, 2},
                             2, device, &pairs));
    column = CALL(select, keep(pairs), 1, 0);
    args[0] = args[1] = of(column);
    args[2] = core_float(1);
    /* The device has no kernel of copy_, with which the core would copy. */
    FAILS(try("own::blend", args, 3, &result, 1), CORE_ERROR_NO_KERNEL,
          "own::blend", "copy_");
    ck_assert_int_eq(result.tag, CORE_VALUE_NONE);
    OK(core_setting_set("LIBCORE_FALLBACK", "copy_"));
    OK(core_op_find("own::blend", &op));
    before = core_op_conversions(op, CORE_CONVERSION_CONTIGUOUS);
    OK(try("own::blend", args, 3, &result, 1));
    IS(keep(result.u.tensor), 2, 6);
    ck_assert_uint_gt(core_op_conversions(op, CORE_CONVERSION_CONTIGUOUS),
                      before);
}
END_TEST

START_TEST(defaults_and_several_results)
{
    core_tensor *x = ON_DEVICE(1, 2, 3, 4);
    core_value args[2] = {of(x), of(x)}, results[2] = {{0}, {0}};

    OK(try("own::blend", args, 2, results, 1)); /* by is 0.5 */
    IS(keep(results[0].u.tensor), 1.5, 3, 4.5, 6);
    OK(try("own::halves", args, 1, results, 2));
    IS(keep(results[0].u.tensor), 1, 2);
    IS(keep(results[1].u.tensor), 3, 4);
}
END_TEST

START_TEST(list_and_optional_arguments_reach_the_kernel)
{
    core_tensor *parts[20];
    core_value args[2] = {{CORE_VALUE_TENSOR_LIST, 20, {.tensors = parts}},
                          of(ON_DEVICE(10))},
               result = {0};

    for (int i = 0; i < 20; i++)
        parts[i] = ON_DEVICE(1, (float)i);
    OK(try("own::total", args, 1, &result, 1));
    IS(keep(result.u.tensor), 20, 190);
    OK(try("own::total", args, 2, &result, 1));
    IS(keep(result.u.tensor), 200, 1900);
}
END_TEST

START_TEST(in_place_operator_changes_its_argument)
{
    core_tensor *x = ON_DEVICE(1, 2);
    core_value args[2] = {of(x), core_float(3)}, result = {0};
    uint32_t version = core_tensor_version(x);

    OK(try("own::grow_", args, 2, &result, 1));
    ck_assert_ptr_eq(keep(result.u.tensor), x);
    IS(x, 3, 6);
    ck_assert_uint_eq(core_tensor_version(x), version + 1);
}
END_TEST

START_TEST(shape_function_is_the_call_on_meta)
{
    core_value args[2], results[2] = {{0}, {0}};
    core_device *meta;
    core_tensor *x;

    OK(core_device_find("meta", &meta));
    OK(core_zeros((int64_t[]){6}, 1, CORE_BF16, meta, &x));
    args[0] = args[1] = of(keep(x));
    OK(try("own::halves", args, 1, results, 2));
    keep(results[0].u.tensor);
    keep(results[1].u.tensor);
    ck_assert_ptr_eq(core_tensor_device(results[1].u.tensor), meta);
    ck_assert_int_eq(core_tensor_numel(results[1].u.tensor), 3);
    ck_assert_uint_eq(core_tensor_dtype(results[1].u.tensor), CORE_BF16);
}
END_TEST

START_TEST(errors_name_the_operator)
{
    core_tensor *three = ON_DEVICE(1, 2, 3), *wide;
    core_value args[2] = {of(three), of(ON_DEVICE(1, 2))};
    core_value results[2] = {{0}, {0}};

    FAILS(try("own::blend", args, 2, results, 1), CORE_ERROR_SHAPE,
          "own::blend: a has 3 elements, b 2");
    FAILS(try("own::halves", args, 1, results, 2), CORE_ERROR_SHAPE,
          "own::halves: the shape function refuses the arguments", "f32 [3]");
    OK(core_tensor_from_data((double[]){1, 2}, CORE_F64, (int64_t[]){2}, 1,
                             device, &wide));
    args[0] = of(keep(wide));
    FAILS(try("own::halves", args, 1, results, 2), CORE_ERROR_NO_KERNEL,
          "own::halves", "f64");
    ck_assert_int_eq(results[0].tag, CORE_VALUE_NONE);
}
END_TEST

START_TEST(wrong_results_of_a_shape_function_are_reported)
{
    core_value args = of(ON_DEVICE(1, 2)), results[2] = {{0}, {0}};
    core_value in_place[2] = {args, core_float(3)};

    setenv("FIXTURE_SHAPE", "dtype", 1);
    FAILS(try("own::halves", &args, 1, results, 2), CORE_ERROR_INTERNAL,
          "own::halves: the shape function sets the dtype of result 2 to 0");
    setenv("FIXTURE_SHAPE", "ndim", 1);
    FAILS(try("own::halves", &args, 1, results, 2), CORE_ERROR_INTERNAL,
          "own::halves: the shape function gives result 2 99 dimensions");
    setenv("FIXTURE_SHAPE", "size", 1);
    FAILS(try("own::halves", &args, 1, results, 2), CORE_ERROR_INTERNAL,
          "own::halves: the shape function gives dimension 0 of result 2 the "
          "size -3");
    setenv("FIXTURE_SHAPE", "large", 1);
    FAILS(try("own::halves", &args, 1, results, 2), CORE_ERROR_INTERNAL,
          "own::halves: the shape function gives dimension 1 of result 2",
          "too large");
    FAILS(try("own::grow_", in_place, 2, results, 1), CORE_ERROR_INTERNAL,
          "own::grow_: the shape function gives the result the dtype f64; the "
          "operator works in place on f32");
    unsetenv("FIXTURE_SHAPE");
}
END_TEST

START_TEST(gradient_of_an_own_kernel)
{
    core_tensor *a = leaf(ON_DEVICE(1, 2)), *b = leaf(ON_DEVICE(3, 4));
    core_tensor *y = blend(a, b, 4), *seed = ON_DEVICE(1, 10);

    OK(core_setting_set("LIBCORE_FALLBACK", "copy_")); /* grad is a copy */
    OK(core_backward(&y, 1, &seed, 0));
    IS(core_tensor_grad(a), 1, 10);
    IS(core_tensor_grad(b), 4, 40);
}
END_TEST

START_TEST(own_kernels_are_listed)
{
    const core_kernel *kernel;
    uint32_t found = 0, index = 0;

    for (; core_kernel_at("own", index, &kernel) == CORE_OK; index++)
        found += kernel->name.size == 10 &&
                 memcmp(kernel->name.data, "own::blend", 10) == 0;
    ck_assert_uint_eq(found, 1);
    ck_assert_uint_eq(index, 4);
}
END_TEST

START_TEST(unloading_removes_kernels_and_shapes)
{
    core_value results[2] = {{0}, {0}}, self;
    core_operator *op;

    IS(blend(ON_DEVICE(1), ON_DEVICE(2), 1), 3);
    drop_all();
    OK(core_plugin_unload(plugin, 0));
    FAILS(core_op_find("own::blend", &op), CORE_ERROR_NOT_FOUND, "own::blend");
    core_plugin_release(plugin);
    OK(core_plugin_load(fixture("own_kernels"), &plugin));
    OK(core_device_find("own", &device));
    IS(blend(ON_DEVICE(1), ON_DEVICE(2), 1), 3);
    self = of(ON_DEVICE(1, 2));
    OK(try("own::halves", &self, 1, results, 2));
    IS(keep(results[0].u.tensor), 1);
    IS(keep(results[1].u.tensor), 2);
}
END_TEST

/* ------------------------------------------------------------- refusals -- */

static void refused(const char *what, core_status status, const char *says)
{
    setenv("FIXTURE_OWN", what, 1);
    core_plugin_release(plugin);
    plugin = NULL;
    FAILS(core_plugin_load(fixture("own_kernels"), &plugin), status, says);
    unsetenv("FIXTURE_OWN");
}

START_TEST(what_a_shape_function_cannot_serve_is_refused)
{
    OK(core_plugin_unload(plugin, 0));
    refused("kernel", CORE_ERROR_UNSUPPORTED,
            "kernel \"own::none\": the results of this operator are not known "
            "before the call; register a shape function first");
    refused("null", CORE_ERROR_INVALID_ARGUMENT, "is NULL");
    refused("missing", CORE_ERROR_NOT_FOUND, "no operator \"own::none\"");
    refused("built in", CORE_ERROR_REFUSED,
            "exp: a shape function is accepted "
            "only from the plugin");
    refused("twice", CORE_ERROR_REFUSED,
            "own::blend: the operator has a shape function");
    refused("own::none(Tensor self) -> ()", CORE_ERROR_UNSUPPORTED,
            "own::none: an operator with a shape function has 1 to 4 results");
    refused("own::none(Tensor self) -> Tensor[]", CORE_ERROR_UNSUPPORTED,
            "own::none: result 1 is not a new tensor");
    refused("own::none(Tensor(a) self) -> Tensor(a)", CORE_ERROR_UNSUPPORTED,
            "own::none: result 1 is not a new tensor");
    refused("own::none(Tensor x, Tensor(a!) self) -> Tensor",
            CORE_ERROR_UNSUPPORTED, "own::none: the argument self is changed");
    refused("own::none(int[] size, *, Device? device=None) -> Tensor",
            CORE_ERROR_UNSUPPORTED,
            "own::none: the argument device is a device");
    OK(core_plugin_load(fixture("own_kernels"), &plugin));
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        kernel_of_an_own_operator_runs_on_a_stream,
        requirements_are_met,
        defaults_and_several_results,
        list_and_optional_arguments_reach_the_kernel,
        in_place_operator_changes_its_argument,
        shape_function_is_the_call_on_meta,
        errors_name_the_operator,
        wrong_results_of_a_shape_function_are_reported,
        gradient_of_an_own_kernel,
        own_kernels_are_listed,
        unloading_removes_kernels_and_shapes,
        what_a_shape_function_cannot_serve_is_refused,
    };
    const test_suite suite = {
        .name = "loader/plugin_kernels",
        .setup = setup,
        .teardown = teardown,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
