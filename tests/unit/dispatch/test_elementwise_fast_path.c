/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The fast path of element-wise calls: cached state of the previous call is
 * either valid for the next one or not used.  Runs on a backend defined here,
 * in host memory and without streams. */

#include "support/autograd.h"
#include "support/host_backend.h"

#include "dispatch/registry.h"

#include <libcore/dispatch.h>

static core_registry registry;
static core_device *device;
static const core_kernel *served; /* the kernel that ran last */
/* operands that a kernel adds while it runs */
static core_tensor *inner[2];

static float *address(core_memory memory)
{
    return (float *)(void *)host_backend_address(memory);
}

static core_backend backend = {HOST_BACKEND("plain"), .user = &backend};

/* out = a + b, f32; first adds the inner operands. */
static core_status launch(core_call *call, const core_value *args,
                          uint32_t nargs, core_value *results,
                          uint32_t nresults)
{
    const core_loop *loop = call->loop;
    core_tensor *target = inner[0];

    (void)args;
    (void)nargs;
    (void)results;
    (void)nresults;
    inner[0] = NULL;
    if (target)
        OK(core_add_(target, inner[1], core_int(1)));
    for (int64_t i = 0; i < loop->numel; i++)
        address(loop->operands[0].memory)[i] =
            address(loop->operands[1].memory)[i] +
            address(loop->operands[2].memory)[i];
    served = call->user;
    return CORE_OK;
}

static core_kernel kernels[2] = {
    {.struct_size = sizeof *kernels,
     .name = {"add.Tensor", 10},
     .signature = {1u << CORE_F32, 1u << CORE_F32, 1u << CORE_F32},
     .launch = launch,
     .user = &kernels[0]},
    {.struct_size = sizeof *kernels,
     .name = {"add.Tensor", 10},
     .signature = {1u << CORE_F32, 1u << CORE_F32, 1u << CORE_F32},
     .launch = launch,
     .user = &kernels[1]},
};

static void register_kernel(uint32_t index)
{
    const core_kernel *list[] = {&kernels[index]};

    OK(core__registry_add_kernels(&registry, backend.device_type, list, 1));
}

static void begin(void)
{
    OK(core__registry_add_backend(&registry, &backend));
    register_kernel(0);
    OK(core_device_find("plain", &device));
}

static void end(void)
{
    drop_all();
    core__registry_undo(&registry);
}

static core_tensor *there(int64_t n, float first)
{
    float data[4] = {first, first + 1, first + 2, first + 3};
    core_tensor *tensor;

    OK(core_tensor_from_data(data, CORE_F32, &n, 1, device, &tensor));
    return keep(tensor);
}

static void is(core_tensor *tensor, const float *values)
{
    float have[4];
    size_t size = (size_t)core_tensor_numel(tensor) * sizeof *have;

    OK(core_tensor_read(tensor, have, size));
    ck_assert_mem_eq(have, values, size);
}

#define IS(tensor, ...) is(tensor, (const float[]){__VA_ARGS__})

START_TEST(newer_kernel_runs_the_next_call)
{
    core_tensor *a = there(2, 1), *b = there(2, 10);

    for (int i = 0; i < 3; i++)
        OK(core_add_(a, b, core_int(1)));
    ck_assert_ptr_eq(served, &kernels[0]);
    register_kernel(1);
    OK(core_add_(a, b, core_int(1)));
    ck_assert_ptr_eq(served, &kernels[1]);
    add(a, b);
    ck_assert_ptr_eq(served, &kernels[1]);
    IS(a, 41, 46);
}
END_TEST

START_TEST(kernel_may_call_its_own_operator)
{
    core_tensor *a = there(2, 1), *b = there(2, 10);

    for (int i = 0; i < 3; i++)
        OK(core_add_(a, b, core_int(1)));
    inner[0] = there(4, 0);
    inner[1] = there(4, 100);
    a = there(2, 1);
    {
        core_tensor *within = inner[0];

        OK(core_add_(a, b, core_int(1)));
        IS(within, 100, 102, 104, 106);
    }
    IS(a, 11, 13);
    OK(core_add_(a, b, core_int(1)));
    IS(a, 21, 24);
}
END_TEST

START_TEST(operands_of_another_dtype_or_size_do_not_match_the_cached_call)
{
    core_tensor *x = VECTOR(3, 1, 2, 3), *y = VECTOR(3, 10, 20, 30);
    core_tensor *narrow = typed(CORE_F32, 1, (int64_t[]){2}, (double[]){1, 2});
    core_tensor *integers =
        typed(CORE_I64, 1, (int64_t[]){2}, (double[]){1, 2});

    for (int i = 0; i < 3; i++)
        HOLDS(add(x, y), 3, 11, 22, 33);
    HOLDS(add(narrow, narrow), 2, 2, 4);
    HOLDS(add(integers, integers), 2, 2, 4);
    HOLDS(add(x, y), 3, 11, 22, 33);
    HOLDS(add(CALL(slice, x, 0, (int64_t[]){1}, NULL, 1), VECTOR(2, 1, 1)), 2,
          3, 4);
}
END_TEST

START_TEST(version_of_an_out_tensor_is_incremented_by_each_call)
{
    core_tensor *a = VECTOR(2, 1, 2), *out = VECTOR(2, 0, 0);
    uint32_t version = core_tensor_version(out);

    for (uint32_t i = 1; i < 4; i++) {
        OK(core_add_out(a, a, core_int(1), out));
        ck_assert_uint_eq(core_tensor_version(out), version + i);
    }
    for (uint32_t i = 4; i < 7; i++) {
        OK(core_mul_(out, a));
        ck_assert_uint_eq(core_tensor_version(out), version + i);
    }
    HOLDS(out, 2, 2, 32);
}
END_TEST

START_TEST(out_tensor_of_inference_mode_is_refused_each_time)
{
    core_tensor *a = VECTOR(2, 1, 2), *out;
    uint64_t before = core_inference_begin();

    out = VECTOR(2, 5, 5);
    for (int i = 0; i < 3; i++)
        OK(core_add_out(a, a, core_int(1), out));
    core_inference_end(before);
    for (int i = 0; i < 3; i++)
        OK(core_add_out(a, a, core_int(1), VECTOR(2, 0, 0)));
    FAILS(core_add_out(a, a, core_int(2), out), CORE_ERROR_AUTOGRAD, "add.out",
          "inference mode");
    FAILS(core_add_(out, a, core_int(2)), CORE_ERROR_AUTOGRAD, "add_",
          "inference mode");
    HOLDS(out, 2, 2, 4);
}
END_TEST

START_TEST(out_tensor_that_overlaps_an_operand_is_refused_each_time)
{
    core_tensor *all = VECTOR(3, 1, 2, 3);
    core_tensor *low = CALL(slice, all, 0, NULL, (int64_t[]){2}, 1);
    core_tensor *high = CALL(slice, all, 0, (int64_t[]){1}, NULL, 1);
    core_tensor *b = VECTOR(2, 1, 1);

    for (int i = 0; i < 3; i++)
        OK(core_add_out(b, b, core_int(1), VECTOR(2, 0, 0)));
    ck_assert_int_ne(core_add_out(low, b, core_int(1), high), CORE_OK);
    ck_assert_int_ne(core_add_(high, low, core_int(1)), CORE_OK);
    HOLDS(all, 3, 1, 2, 3);
}
END_TEST

/* The first call of an operator takes the slow path, later ones the fast
 * path. */
START_TEST(recording_is_the_same_on_both_paths)
{
    core_tensor *x = leaf(VECTOR(2, 2, 3)), *y = leaf(VECTOR(2, 5, 7));
    core_tensor *plain = VECTOR(2, 1, 1);

    for (int i = 0; i < 3; i++) {
        core_tensor *product = mul(x, y), *sums = add(product, plain);
        core_tensor *z = mul(sums, CALL(exp, plain));

        drop(product); /* its node stays alive */
        drop(sums);
        OK(core_tensor_set_grad(x, NULL));
        OK(core_tensor_set_grad(y, NULL));
        backward(sum(z));
        HOLDS(core_tensor_grad(x), 2, 5 * 2.718281828, 7 * 2.718281828);
        HOLDS(core_tensor_grad(y), 2, 2 * 2.718281828, 3 * 2.718281828);
        /* mul saved tensors and cannot run again; add saved none */
        ck_assert_int_eq(core_backward((core_tensor *[]){sum(z)}, 1, NULL, 0),
                         CORE_ERROR_AUTOGRAD);
    }
}
END_TEST

START_TEST(gradient_of_one_of_several_results_reaches_it)
{
    core_tensor *x = leaf(MATRIX(2, 2, 1, 2, 3, 4)), **rows;
    size_t count;

    for (int i = 0; i < 3; i++) {
        OK(core_unbind(x, 0, &rows, &count));
        ck_assert_uint_eq(count, 2);
        OK(core_tensor_set_grad(x, NULL));
        backward(sum(mul(rows[1], VECTOR(2, 10, 100))));
        HOLDS(core_tensor_grad(x), 4, 0, 0, 10, 100);
        core_tensors_release(rows, count);
    }
}
END_TEST

static void have_equal_bits(core_tensor *a, core_tensor *b)
{
    uint64_t x[4] = {0}, y[4] = {0};
    size_t size = (size_t)core_tensor_numel(a) * 8;

    ck_assert_int_eq(core_tensor_dtype(a), core_tensor_dtype(b));
    a = CALL(to, a, CORE_F64, NULL, false, false, -1);
    b = CALL(to, b, CORE_F64, NULL, false, false, -1);
    OK(core_tensor_read(a, x, size));
    OK(core_tensor_read(b, y, size));
    ck_assert_mem_eq(x, y, size);
}

/* Every other element is general, dense ones are fast from the second call
 * on. */
START_TEST(numbers_are_the_same_on_both_paths)
{
    static const core_dtype dtypes[] = {CORE_F64,  CORE_F32, CORE_F16,
                                        CORE_BF16, CORE_I64, CORE_BOOL};
    const core_scalar numbers[] = {core_float(.3), core_int(3),
                                   core_bool(true)};

    for (int i = 0; i < 6 * 3; i++) {
        const core_scalar number = numbers[i % 3];
        const core_scalar alpha = core_int(dtypes[i / 3] == CORE_BOOL ? 1 : 2);
        core_tensor *wide = typed(dtypes[i / 3], 1, (int64_t[]){8},
                                  (double[]){1, 0, 0, 0, 5, 0, 7, 0});
        core_tensor *strided = CALL(slice, wide, 0, NULL, NULL, 2);
        core_tensor *dense = CALL(contiguous, strided, -1);

        for (int again = 0; again < 2; again++) {
            have_equal_bits(CALL(add_scalar, dense, number, alpha),
                            CALL(add_scalar, strided, number, alpha));
            have_equal_bits(CALL(mul_scalar, dense, number),
                            CALL(mul_scalar, strided, number));
            have_equal_bits(CALL(div_scalar, dense, number),
                            CALL(div_scalar, strided, number));
            have_equal_bits(CALL(lt_scalar, dense, number),
                            CALL(lt_scalar, strided, number));
            ck_assert_int_eq(core_mul_scalar_(dense, number),
                             core_mul_scalar_(strided, number));
            have_equal_bits(dense, strided);
        }
    }
}
END_TEST

START_TEST(numbers_of_changed_tensors_are_checked_each_time)
{
    core_tensor *x = VECTOR(2, 1, 2), *y = leaf(VECTOR(2, 3, 5));
    core_tensor *integers =
        typed(CORE_I64, 1, (int64_t[]){2}, (double[]){1, 2});
    uint32_t version = core_tensor_version(x);

    for (uint32_t i = 1; i < 4; i++) {
        core_tensor *z = CALL(mul_scalar, y, core_float(2));

        OK(core_mul_scalar_(x, core_float(2)));
        ck_assert_uint_eq(core_tensor_version(x), version + i);
        FAILS(core_mul_scalar_(integers, core_float(.5)), CORE_ERROR_DTYPE,
              "mul_");
        FAILS(core_mul_scalar_(x, (core_scalar){0}),
              CORE_ERROR_INVALID_ARGUMENT, "mul_");
        FAILS(core_mul_scalar_(y, core_float(2)), CORE_ERROR_AUTOGRAD, "mul_");
        OK(core_tensor_set_grad(y, NULL));
        backward(sum(z));
        HOLDS(core_tensor_grad(y), 2, 2, 2);
    }
    HOLDS(x, 2, 8, 16);
}
END_TEST

int main(void)
{
    const TTest *const mine[] = {
        newer_kernel_runs_the_next_call,
        kernel_may_call_its_own_operator,
    };
    const TTest *const tests[] = {
        operands_of_another_dtype_or_size_do_not_match_the_cached_call,
        version_of_an_out_tensor_is_incremented_by_each_call,
        out_tensor_of_inference_mode_is_refused_each_time,
        out_tensor_that_overlaps_an_operand_is_refused_each_time,
        recording_is_the_same_on_both_paths,
        gradient_of_one_of_several_results_reaches_it,
        numbers_are_the_same_on_both_paths,
        numbers_of_changed_tensors_are_checked_each_time,
    };
    const test_suite suites[] = {
        {
            .name = "dispatch/elementwise_fast_path, backend",
            .setup = begin,
            .teardown = end,
            SUITE_TESTS(mine),
        },
        {
            .name = "dispatch/elementwise_fast_path, cpu",
            .teardown = drop_all,
            SUITE_TESTS(tests),
        },
    };

    return suite_run(suites, sizeof suites / sizeof *suites);
}
