/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "support/suite.h"

#include "dispatch/dispatch.h"
#include "tensor/tensor.h"

#include <libcore/dispatch.h>
#include <libcore/tensor.h>

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define DIMS(...) ((const int64_t[]){__VA_ARGS__})

static core_operator *find(const char *name)
{
    core_operator *op;

    ck_assert_msg(core_op_find(name, &op) == CORE_OK, "%s",
                  core_error_message());
    return op;
}

static core_tensor *row(float a, float b)
{
    float data[2] = {a, b};
    core_tensor *tensor;

    ck_assert_msg(core_tensor_from_data(data, CORE_F32, DIMS(2), 1, NULL,
                                        &tensor) == CORE_OK,
                  "%s", core_error_message());
    return tensor;
}

static core_value tensor_value(core_tensor *tensor)
{
    return (core_value){CORE_VALUE_TENSOR, 0, {.tensor = tensor}};
}

static void holds(const core_value *value, float a, float b)
{
    float data[2];

    ck_assert_uint_eq(value->tag, CORE_VALUE_TENSOR);
    ck_assert_int_eq(core_tensor_read(value->u.tensor, data, sizeof data),
                     CORE_OK);
    ck_assert_float_eq(data[0], a);
    ck_assert_float_eq(data[1], b);
}

static void says(core_status status, core_status expected, const char *what)
{
    ck_assert_int_eq(status, expected);
    ck_assert_msg(strstr(core_error_message(), what) != NULL,
                  "\"%s\" does not say \"%s\"", core_error_message(), what);
}

/* ---------------------------------------------------------------- names -- */

START_TEST(operators_are_found_by_name)
{
    core_operator *op = find("add.Tensor");

    ck_assert_str_eq(core_op_name(op), "add.Tensor");
    ck_assert_str_eq(core_op_schema(op),
                     "add.Tensor(Tensor self, Tensor other, *, Scalar "
                     "alpha=1) -> Tensor");
    find("sum");
    find("add_.Tensor");
    find("add.out");
}
END_TEST

START_TEST(unknown_operator_names_the_existing_overloads)
{
    core_operator *op = (core_operator *)1;

    says(core_op_find("add", &op), CORE_ERROR_NOT_FOUND, "add.Tensor");
    ck_assert_ptr_null(op);
    says(core_op_find("add.Nothing", &op), CORE_ERROR_NOT_FOUND, "add.Scalar");
    says(core_op_find("no_such_thing", &op), CORE_ERROR_NOT_FOUND,
         "no_such_thing");
    says(core_op_find("", &op), CORE_ERROR_NOT_FOUND, "");
    says(core_op_find(NULL, &op), CORE_ERROR_INVALID_ARGUMENT, "name");
    says(core_op_find("ad", &op), CORE_ERROR_NOT_FOUND, "\"ad\"");
    ck_assert_ptr_null(strstr(core_error_message(), "add"));
}
END_TEST

START_TEST(operators_are_listed_once_each)
{
    uint32_t count = 0;
    core_operator *found;
    core_operator *op;

    while ((op = core_op_at(count))) {
        ck_assert_int_eq(core_op_find(core_op_name(op), &found), CORE_OK);
        ck_assert_ptr_eq(found, op);
        count++;
    }
    ck_assert_uint_gt(count, 300);
    ck_assert_ptr_null(core_op_at(count + 1));
    ck_assert_ptr_null(core_op_at(UINT32_MAX));
}
END_TEST

/* ------------------------------------------------------------ arguments -- */

START_TEST(missing_trailing_arguments_get_defaults)
{
    core_value args[3] = {tensor_value(row(1, 2)), tensor_value(row(10, 20))};
    core_value results[1];

    ck_assert_int_eq(core_op_call(find("add.Tensor"), args, 2, results, 1),
                     CORE_OK);
    holds(&results[0], 11, 22);
    core_value_release(&results[0]);
    ck_assert_int_eq(core_op_call(find("add.Tensor"), args, 3, results, 1),
                     CORE_OK);
    holds(&results[0], 11, 22);
    core_value_release(&results[0]);
    args[2] = core_float(0.5);
    ck_assert_int_eq(core_op_call(find("add.Tensor"), args, 3, results, 1),
                     CORE_OK);
    holds(&results[0], 6, 12);
    core_value_release(&results[0]);
    args[2] = core_bool(true);
    ck_assert_int_eq(core_op_call(find("add.Tensor"), args, 3, results, 1),
                     CORE_OK);
    holds(&results[0], 11, 22);
    core_value_release(&results[0]);
    ck_assert_uint_eq(core_tensor_references(args[0].u.tensor), 1);
    core_value_release(&args[0]);
    core_value_release(&args[1]);
}
END_TEST

START_TEST(int_is_accepted_for_a_float)
{
    core_value args[2] = {tensor_value(row(4, -1)), core_int(2)};
    core_value result;

    ck_assert_int_eq(core_op_call(find("leaky_relu"), args, 2, &result, 1),
                     CORE_OK);
    holds(&result, 4, -2);
    core_value_release(&result);
    core_value_release(&args[0]);
}
END_TEST

START_TEST(one_number_is_accepted_for_a_list_of_fixed_size)
{
    core_value args[3] = {tensor_value(row(1, 2)), core_int(0)};
    core_value result;

    /* the dim argument is int[1]? */
    ck_assert_msg(core_op_call(find("sum.dim_IntList"), args, 2, &result, 1) ==
                      CORE_OK,
                  "%s", core_error_message());
    ck_assert_uint_eq(core_tensor_ndim(result.u.tensor), 0);
    core_value_release(&result);
    /* int[] has no fixed size to repeat the number to */
    says(core_op_call(find("permute"), args, 2, &result, 1),
         CORE_ERROR_INVALID_ARGUMENT, "a list of ints");
    core_value_release(&args[0]);
}
END_TEST

START_TEST(argument_of_the_wrong_type_is_named)
{
    core_tensor *tensor = row(1, 2);
    core_value args[4] = {tensor_value(tensor), tensor_value(tensor),
                          core_int(1), core_int(1)};
    core_value result = {CORE_VALUE_INT, 0, {7}};
    core_operator *add = find("add.Tensor");

    says(core_op_call(add, args, 4, &result, 1), CORE_ERROR_INVALID_ARGUMENT,
         "4 arguments");
    ck_assert_uint_eq(result.tag, CORE_VALUE_NONE);
    says(core_op_call(add, args, 1, &result, 1), CORE_ERROR_INVALID_ARGUMENT,
         "other");
    says(core_op_call(add, args, 0, &result, 1), CORE_ERROR_INVALID_ARGUMENT,
         "self");
    args[1] = core_int(3);
    says(core_op_call(add, args, 2, &result, 1), CORE_ERROR_INVALID_ARGUMENT,
         "is an int; it must be a tensor");
    args[1] = tensor_value(NULL);
    says(core_op_call(add, args, 2, &result, 1), CORE_ERROR_INVALID_ARGUMENT,
         "NULL");
    args[1] = (core_value){99, 0, {0}};
    says(core_op_call(add, args, 2, &result, 1), CORE_ERROR_INVALID_ARGUMENT,
         "unknown type");
    args[1] = tensor_value(tensor);
    args[2] = (core_value){CORE_VALUE_STRING, 1, {.string = "x"}};
    says(core_op_call(add, args, 3, &result, 1), CORE_ERROR_INVALID_ARGUMENT,
         "a number");
    says(core_op_call(NULL, args, 2, &result, 1), CORE_ERROR_INVALID_ARGUMENT,
         "core_op_call: the argument op is NULL");
    says(core_op_call(add, args, 2, NULL, 0), CORE_ERROR_INVALID_ARGUMENT,
         "space for 0");
    ck_assert_uint_eq(core_tensor_references(tensor), 1);
    core_tensor_release(tensor);
}
END_TEST

START_TEST(dtypes_and_formats_are_checked)
{
    core_value args[2] = {tensor_value(row(1, 2)),
                          {CORE_VALUE_DTYPE, 0, {CORE_F64}}};
    core_value result;
    core_operator *sum = find("sum");

    ck_assert_int_eq(core_op_call(sum, args, 2, &result, 1), CORE_OK);
    ck_assert_uint_eq(core_tensor_dtype(result.u.tensor), CORE_F64);
    core_value_release(&result);
    args[1].u.i = CORE_DTYPE_NONE;
    ck_assert_int_eq(core_op_call(sum, args, 2, &result, 1), CORE_OK);
    ck_assert_uint_eq(core_tensor_dtype(result.u.tensor), CORE_F32);
    core_value_release(&result);
    args[1].u.i = -1;
    says(core_op_call(sum, args, 2, &result, 1), CORE_ERROR_INVALID_ARGUMENT,
         "-1 is not a dtype; accepted: f64, f32");
    args[1].u.i = CORE_COMPLEX64;
    says(core_op_call(sum, args, 2, &result, 1), CORE_ERROR_UNSUPPORTED,
         "reserved");
    args[1] = (core_value){CORE_VALUE_FORMAT, 0, {99}};
    says(core_op_call(find("clone"), args, 2, &result, 1),
         CORE_ERROR_UNSUPPORTED, "99 is not a memory format");
    core_value_release(&args[0]);
}
END_TEST

START_TEST(lists_of_tensors_are_checked)
{
    core_tensor *tensors[2] = {row(1, 2), NULL};
    core_value args[1] = {{CORE_VALUE_TENSOR_LIST, 2, {.tensors = tensors}}};
    core_value result;
    core_operator *cat = find("cat");

    says(core_op_call(cat, args, 1, &result, 1), CORE_ERROR_INVALID_ARGUMENT,
         "tensor 1 of argument 1");
    args[0].u.tensors = NULL;
    says(core_op_call(cat, args, 1, &result, 1), CORE_ERROR_INVALID_ARGUMENT,
         "at address NULL");
    args[0].u.tensors = tensors;
    args[0].count = 1;
    ck_assert_int_eq(core_op_call(cat, args, 1, &result, 1), CORE_OK);
    holds(&result, 1, 2);
    core_value_release(&result);
    core_tensor_release(tensors[0]);
}
END_TEST

/* -------------------------------------------------------------- results -- */

START_TEST(spare_results_stay_empty)
{
    core_value args[1] = {tensor_value(row(3, -4))};
    core_value results[4];

    memset(results, 0xff, sizeof results);
    ck_assert_int_eq(core_op_call(find("abs"), args, 1, results, 4), CORE_OK);
    holds(&results[0], 3, 4);
    for (int i = 1; i < 4; i++)
        ck_assert_uint_eq(results[i].tag, CORE_VALUE_NONE);
    core_value_release(&results[0]);
    core_value_release(&args[0]);
}
END_TEST

START_TEST(in_place_call_may_omit_its_result)
{
    core_value args[2] = {tensor_value(row(1, 2)), tensor_value(row(3, 4))};
    core_operator *op = find("add_.Tensor");
    core_value result;

    ck_assert_int_eq(core_op_call(op, args, 2, NULL, 0), CORE_OK);
    holds(&args[0], 4, 6);
    ck_assert_uint_eq(core_tensor_version(args[0].u.tensor), 1);
    ck_assert_int_eq(core_op_call(op, args, 2, &result, 1), CORE_OK);
    ck_assert_ptr_eq(result.u.tensor, args[0].u.tensor);
    ck_assert_uint_eq(core_tensor_references(args[0].u.tensor), 2);
    core_value_release(&result);
    holds(&args[0], 7, 10);
    core_value_release(&args[0]);
    core_value_release(&args[1]);
}
END_TEST

START_TEST(out_call_fills_its_argument)
{
    core_value args[4] = {tensor_value(row(1, 2)), tensor_value(row(3, 4)),
                          core_int(2), tensor_value(row(0, 0))};
    core_value result;

    ck_assert_msg(core_op_call(find("add.out"), args, 4, &result, 1) == CORE_OK,
                  "%s", core_error_message());
    ck_assert_ptr_eq(result.u.tensor, args[3].u.tensor);
    holds(&args[3], 7, 10);
    core_value_release(&result);
    for (int i = 0; i < 4; i++)
        core_value_release(&args[i]);
}
END_TEST

START_TEST(several_results_and_lists_are_owned_by_the_caller)
{
    core_value args[2] = {tensor_value(row(5, 3)), core_int(0)};
    core_value results[2];

    ck_assert_int_eq(core_op_call(find("max.dim"), args, 2, results, 2),
                     CORE_OK);
    ck_assert_uint_eq(core_tensor_dtype(results[0].u.tensor), CORE_F32);
    ck_assert_uint_eq(core_tensor_dtype(results[1].u.tensor), CORE_I64);
    core_value_release(&results[0]);
    core_value_release(&results[1]);
    ck_assert_int_eq(core_op_call(find("unbind.int"), args, 2, results, 1),
                     CORE_OK);
    ck_assert_uint_eq(results[0].tag, CORE_VALUE_TENSOR_LIST);
    ck_assert_uint_eq(results[0].count, 2);
    ck_assert_uint_gt(core_tensor_references(args[0].u.tensor), 1);
    core_value_release(&results[0]);
    ck_assert_uint_eq(core_tensor_references(args[0].u.tensor), 1);
    core_value_release(&args[0]);
}
END_TEST

START_TEST(failing_call_returns_no_results)
{
    float data[3] = {1, 2, 3};
    core_tensor *three;
    core_value args[2] = {tensor_value(row(1, 2))};
    core_value result = {CORE_VALUE_INT, 0, {1}};

    ck_assert_int_eq(
        core_tensor_from_data(data, CORE_F32, DIMS(3), 1, NULL, &three),
        CORE_OK);
    args[1] = tensor_value(three);
    says(core_op_call(find("add.Tensor"), args, 2, &result, 1),
         CORE_ERROR_SHAPE, "add.Tensor");
    ck_assert_uint_eq(result.tag, CORE_VALUE_NONE);
    core_value_release(&args[0]);
    core_value_release(&args[1]);
}
END_TEST

/* Custom operators are called in the same way. */
static core_status twice(core_call *call, const core_value *args,
                         uint32_t nargs, core_value *results, uint32_t nresults)
{
    core_value add[2] = {args[0], args[0]};

    (void)call;
    ck_assert_uint_eq(nargs, 2);
    ck_assert_uint_eq(nresults, 1);
    ck_assert_uint_eq(args[1].tag, CORE_VALUE_INT);
    ck_assert_int_eq(args[1].u.i, 3);
    return core_op_call(find("add.Tensor"), add, 2, results, 1);
}

static core_status gives_an_int(core_call *call, const core_value *args,
                                uint32_t nargs, core_value *results,
                                uint32_t nresults)
{
    (void)call;
    (void)nresults;
    if (nargs < 1 || args[0].tag != CORE_VALUE_TENSOR)
        return CORE_ERROR_INTERNAL;
    core_tensor_retain(args[0].u.tensor);
    results[0] = args[0];
    results[1] = (core_value){CORE_VALUE_INT, 0, {.i = 3}};
    return CORE_OK;
}

static core_status gives_nothing(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults)
{
    (void)call;
    (void)args;
    (void)nargs;
    (void)results;
    (void)nresults;
    return CORE_OK;
}

START_TEST(custom_operator_must_return_what_its_schema_declares)
{
    const core_function functions[] = {gives_an_int, gives_nothing};
    const char *const words[] = {"an int as result 2", "nothing as result 1"};
    core_value arg = tensor_value(row(1, 2));
    core_registration *op = NULL, *function = NULL;
    core_value results[2];

    ck_assert_int_eq(core_op_register("mine::two(Tensor self) -> "
                                      "(Tensor, Tensor)",
                                      &op),
                     CORE_OK);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(core_function_register("mine::two", CORE_KEY_BACKEND,
                                                "cpu", functions[i], NULL,
                                                &function),
                         CORE_OK);
        says(core_op_call(find("mine::two"), &arg, 1, results, 2),
             CORE_ERROR_INVALID_ARGUMENT, words[i]);
        ck_assert_uint_eq(results[0].tag, CORE_VALUE_NONE);
        ck_assert_uint_eq(results[1].tag, CORE_VALUE_NONE);
        ck_assert_uint_eq(arg.u.tensor->references, 1);
        core_registration_release(function);
    }
    core_registration_release(op);
    core_value_release(&arg);
}
END_TEST

START_TEST(custom_operator_is_called_with_its_defaults)
{
    core_registration *op = NULL;
    core_registration *function = NULL;
    core_value args[1] = {tensor_value(row(1, 2))};
    core_operator *found;
    core_value result;

    ck_assert_msg(core_op_register("mine::twice(Tensor self, int n=3) -> "
                                   "Tensor",
                                   &op) == CORE_OK,
                  "%s", core_error_message());
    ck_assert_msg(core_function_register("mine::twice",
                                         CORE_KEY_COMPOSITE_IMPLICIT, NULL,
                                         twice, NULL, &function) == CORE_OK,
                  "%s", core_error_message());
    ck_assert_msg(core_op_call(find("mine::twice"), args, 1, &result, 1) ==
                      CORE_OK,
                  "%s", core_error_message());
    holds(&result, 2, 4);
    core_value_release(&result);
    core_registration_release(function);
    core_registration_release(op);
    says(core_op_find("mine::twice", &found), CORE_ERROR_NOT_FOUND,
         "mine::twice");
    core_value_release(&args[0]);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        operators_are_found_by_name,
        unknown_operator_names_the_existing_overloads,
        operators_are_listed_once_each,
        missing_trailing_arguments_get_defaults,
        int_is_accepted_for_a_float,
        one_number_is_accepted_for_a_list_of_fixed_size,
        argument_of_the_wrong_type_is_named,
        dtypes_and_formats_are_checked,
        lists_of_tensors_are_checked,
        spare_results_stay_empty,
        in_place_call_may_omit_its_result,
        out_call_fills_its_argument,
        several_results_and_lists_are_owned_by_the_caller,
        failing_call_returns_no_results,
        custom_operator_is_called_with_its_defaults,
        custom_operator_must_return_what_its_schema_declares,
    };
    const test_suite suite = {
        .name = "dispatch/boxed",
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
