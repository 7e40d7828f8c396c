/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* zero_ and fill_.Scalar on a device that has no kernel for them: its memory
 * table fills, and its kernel of fill_.Scalar computes zero_. */

#define SUITE_FORKS true

#include "support/autograd.h"
#include "support/host_backend.h"

#include "dispatch/dispatch.h"
#include "dispatch/registry.h"
#include "tensor/dtype.h"

#include <libcore/device.h>
#include <libcore/dispatch.h>

#include <math.h>

static core_device *device; /* memory and copies, no kernels */
static core_backend backend = {HOST_BACKEND("plain"), .user = &backend};
static core_registry registry;

static void setup(void)
{
    OK(core__registry_add_backend(&registry, &backend));
    OK(core_device_find("plain", &device));
}

static core_tensor *ones(const int64_t *sizes, size_t ndim)
{
    static const float values[24] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                     1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    core_tensor *tensor;

    OK(core_tensor_from_data(values, CORE_F32, sizes, ndim, device, &tensor));
    return keep(tensor);
}

#define ONES(...)                  \
    ones((int64_t[]){__VA_ARGS__}, \
         sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

static void contents_are(core_tensor *tensor, const float *expected)
{
    int64_t count = core_tensor_numel(tensor);
    float got[24];

    OK(core_tensor_read(tensor, got, (size_t)count * sizeof *got));
    for (int64_t i = 0; i < count; i++)
        ck_assert_float_eq(got[i], expected[i]);
}

START_TEST(dense_tensor_is_filled_by_the_memory_table)
{
    core_tensor *x = ONES(2, 3), *turned = CALL(transpose, x, 0, 1);

    OK(core_zero_(x));
    contents_are(x, (float[]){0, 0, 0, 0, 0, 0});
    OK(core_fill_(turned, core_float(2.5)));
    contents_are(x, (float[]){2.5, 2.5, 2.5, 2.5, 2.5, 2.5});
    ck_assert_uint_eq(core_tensor_version(x), 2);
}
END_TEST

START_TEST(factories_need_no_kernel)
{
    core_tensor *zeros, *halves;

    OK(core_zeros((int64_t[]){3}, 1, CORE_F32, device, &zeros));
    contents_are(keep(zeros), (float[]){0, 0, 0});
    OK(core_full((int64_t[]){3}, 1, core_float(0.5), CORE_F32, device,
                 &halves));
    contents_are(keep(halves), (float[]){.5, .5, .5});
}
END_TEST

START_TEST(only_the_elements_of_a_slice_are_filled)
{
    core_tensor *x = ONES(4);

    OK(core_fill_(CALL(narrow, x, 0, 1, 2), core_int(7)));
    contents_are(x, (float[]){1, 7, 7, 1});
}
END_TEST

START_TEST(each_dtype_is_filled_with_its_own_pattern)
{
    static const struct {
        core_dtype dtype;
        double value, stored;
    } cases[] = {
        {CORE_F64, 0.1, 0.1},      {CORE_F16, 1.0 / 3, 0x1.554p-2},
        {CORE_BF16, -2, -2},       {CORE_I64, -5, -5},
        {CORE_I32, 1e9, 1e9},      {CORE_I16, -300, -300},
        {CORE_I8, -7, -7},         {CORE_U8, 250, 250},
        {CORE_BOOL, 3, 1},         {CORE_F8E5M2, 1.5, 1.5},
        {CORE_F8E4M3, -448, -448},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        core_tensor *x;
        char got[40];

        OK(core_empty((int64_t[]){5}, 1, cases[i].dtype, device,
                      CORE_FORMAT_CONTIGUOUS, &x));
        OK(core_fill_(keep(x), core_float(cases[i].value)));
        OK(core_tensor_read(x, got, 5 * core_dtype_size(cases[i].dtype)));
        for (size_t k = 0; k < 5; k++) {
            core_scalar element = core__element_load(
                cases[i].dtype, got + k * core_dtype_size(cases[i].dtype));

            ck_assert_double_eq(element.tag == CORE_VALUE_FLOAT
                                    ? element.u.f
                                    : (double)element.u.i,
                                cases[i].stored);
        }
    }
}
END_TEST

START_TEST(number_out_of_range_is_refused)
{
    core_tensor *x;

    OK(core_empty((int64_t[]){2}, 1, CORE_I8, device, CORE_FORMAT_CONTIGUOUS,
                  &x));
    FAILS(core_fill_(keep(x), core_int(1000)), CORE_ERROR_INVALID_ARGUMENT,
          "fill_.Scalar", "1000", "i8");
}
END_TEST

START_TEST(strided_fill_without_a_kernel_is_an_error)
{
    core_tensor *x = ONES(2, 3), *column = CALL(narrow, x, 1, 0, 1);

    FAILS(core_zero_(column), CORE_ERROR_NO_KERNEL, "zero_",
          "\"plain\" has no kernel");
    FAILS(core_fill_(column, core_int(0)), CORE_ERROR_NO_KERNEL, "fill_.Scalar",
          "\"plain\" has no kernel");
    contents_are(x, (float[]){1, 1, 1, 1, 1, 1});
}
END_TEST

static core_status fill_row(core_call *call, const core_value *args,
                            uint32_t nargs, core_value *results,
                            uint32_t nresults)
{
    const core_operand *out = &call->loop->operands[0];

    (void)nargs;
    (void)results;
    (void)nresults;
    ck_assert_uint_eq(call->loop->ndim, 1);
    for (int64_t i = 0; i < call->loop->sizes[0]; i++)
        *(float *)(void *)((char *)out->memory.handle + out->memory.offset +
                           i * out->strides[0]) = (float)args[1].u.i;
    return CORE_OK;
}

START_TEST(kernel_of_fill_computes_zero)
{
    core_kernel kernel = {.struct_size = sizeof kernel,
                          .name = {"fill_.Scalar", 12},
                          .signature = {CORE_DTYPE_MASK(CORE_F32)},
                          .launch = fill_row};
    const core_kernel *kernels = &kernel;
    core_tensor *x = ONES(2, 3), *integers;

    OK(core__registry_add_kernels(&registry, backend.device_type, &kernels, 1));
    OK(core_zero_(CALL(narrow, x, 1, 0, 1)));
    contents_are(x, (float[]){0, 1, 1, 0, 1, 1});
    OK(core_zero_(x));
    contents_are(x, (float[]){0, 0, 0, 0, 0, 0});
    OK(core_empty((int64_t[]){2, 2}, 2, CORE_I32, device,
                  CORE_FORMAT_CONTIGUOUS, &integers));
    FAILS(core_zero_(CALL(narrow, keep(integers), 1, 0, 1)),
          CORE_ERROR_NO_KERNEL, "zero_");
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        dense_tensor_is_filled_by_the_memory_table,
        factories_need_no_kernel,
        only_the_elements_of_a_slice_are_filled,
        each_dtype_is_filled_with_its_own_pattern,
        number_out_of_range_is_refused,
        strided_fill_without_a_kernel_is_an_error,
        kernel_of_fill_computes_zero,
    };
    const test_suite suite = {
        .name = "transfer/fill",
        .setup = setup,
        .teardown = drop_all,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
