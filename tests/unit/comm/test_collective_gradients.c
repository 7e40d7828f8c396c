/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Gradients of collectives. */

#include "support/ranks.h"

#include <libcore/autograd.h>

/* The gradient of sum_r weight_r * f(x)_r, where weight_r is r + 1. */
static core_tensor *gradient_of(core_comm *comm, core_tensor *input,
                                core_tensor *result)
{
    float weight = (float)core_comm_rank(comm) + 1;
    core_tensor *weighted, *loss, *gradient;

    OK(core_mul_scalar(result, core_float(weight), &weighted));
    OK(core_sum(weighted, CORE_DTYPE_NONE, &loss));
    OK(core_grad(&loss, 1, NULL, &input, 1, 0, &gradient));
    core_tensor_release(weighted);
    core_tensor_release(loss);
    core_tensor_release(result);
    return gradient;
}

/* Releases the result. */
static void expect_gradient(core_comm *comm, core_tensor *input,
                            core_tensor *result, const float *values,
                            int64_t count)
{
    core_tensor *gradient = gradient_of(comm, input, result);

    rank_expect(gradient, values, count);
    core_tensor_release(gradient);
}

static void differentiate(core_comm *comm)
{
    core_tensor *x = rank_numbers(comm, 3), *y;

    OK(core_tensor_set_requires_grad(x, true));
    OK(core_all_reduce(comm, x, CORE_REDUCE_SUM, &y));
    expect_gradient(comm, x, y, (float[]){6, 6, 6}, 3);
    OK(core_all_reduce(comm, x, CORE_REDUCE_AVG, &y));
    expect_gradient(comm, x, y, (float[]){2, 2, 2}, 3);
    OK(core_all_gather(comm, x, &y));
    expect_gradient(comm, x, y, (float[]){6, 6, 6}, 3);
    OK(core_reduce_scatter(comm, x, CORE_REDUCE_SUM, &y));
    expect_gradient(comm, x, y, (float[]){1, 2, 3}, 3);
    OK(core_all_to_all(comm, x, &y));
    expect_gradient(comm, x, y, (float[]){1, 2, 3}, 3);
    ck_assert_int_eq(core_all_reduce(comm, x, CORE_REDUCE_MAX, &y),
                     CORE_ERROR_AUTOGRAD);
    ck_assert_int_eq(core_all_reduce_(comm, x, CORE_REDUCE_SUM),
                     CORE_ERROR_AUTOGRAD);
    core_tensor_release(x);
}

/* d/dx of (all_reduce(x))^2, twice. */
static void differentiate_twice(core_comm *comm)
{
    core_tensor *x = rank_numbers(comm, 1), *y, *square, *loss, *first, *second;

    OK(core_tensor_set_requires_grad(x, true));
    OK(core_all_reduce(comm, x, CORE_REDUCE_SUM, &y));
    OK(core_mul(y, y, &square));
    OK(core_sum(square, CORE_DTYPE_NONE, &loss));
    OK(core_grad(&loss, 1, NULL, &x, 1, CORE_CREATE_GRAPH, &first));
    rank_expect(first, (float[]){36}, 1); /* 3 ranks, each 2 * 6 */
    OK(core_grad(&first, 1, NULL, &x, 1, 0, &second));
    rank_expect(second, (float[]){18}, 1);
    core_tensor_release(x);
    core_tensor_release(y);
    core_tensor_release(square);
    core_tensor_release(loss);
    core_tensor_release(first);
    core_tensor_release(second);
}

static void differentiate_roots(core_comm *comm)
{
    core_tensor *x = rank_numbers(comm, 3), *y;

    OK(core_tensor_set_requires_grad(x, true));
    OK(core_reduce(comm, x, CORE_REDUCE_SUM, 1, &y));
    expect_gradient(comm, x, y, (float[]){2, 2, 2}, 3);
    OK(core_reduce(comm, x, CORE_REDUCE_AVG, 2, &y));
    expect_gradient(comm, x, y, (float[]){1, 1, 1}, 3);
    core_tensor_release(x);
}

/* The weight is that of the rank that receives the row. */
static void differentiate_rows(core_comm *comm)
{
    uint32_t rank = core_comm_rank(comm);
    int64_t send[3], receive[3];
    core_tensor *x = rank_numbers(comm, 3 * rank + 1), *y, *g;

    rank_row_counts(comm, send, receive);
    OK(core_tensor_set_requires_grad(x, true));
    OK(core_all_to_all_rows(comm, x, send, receive, &y));
    memset(send, 0, sizeof send); /* not kept */
    g = gradient_of(comm, x, y);
    if (rank == 0)
        rank_expect(g, (float[]){1}, 1);
    if (rank == 1)
        rank_expect(g, (float[]){1, 2, 2, 3}, 4);
    if (rank == 2)
        rank_expect(g, (float[]){1, 1, 2, 2, 3, 3, 3}, 7);
    core_tensor_release(g);
    core_tensor_release(x);
}

/* d/dx of (reduce(x))^2 at the root, twice. */
static void differentiate_reduce_twice(core_comm *comm)
{
    core_tensor *x = rank_numbers(comm, 1), *y, *square, *loss, *first, *second;

    OK(core_tensor_set_requires_grad(x, true));
    OK(core_reduce(comm, x, CORE_REDUCE_SUM, 0, &y));
    OK(core_mul(y, y, &square));
    OK(core_sum(square, CORE_DTYPE_NONE, &loss));
    OK(core_grad(&loss, 1, NULL, &x, 1, CORE_CREATE_GRAPH, &first));
    rank_expect(first, (float[]){12}, 1); /* 2 * 6 */
    OK(core_grad(&first, 1, NULL, &x, 1, 0, &second));
    rank_expect(second, (float[]){6}, 1); /* of the sum of 3 ranks' */
    core_tensor_release(x);
    core_tensor_release(y);
    core_tensor_release(square);
    core_tensor_release(loss);
    core_tensor_release(first);
    core_tensor_release(second);
}

static void gather_scalars(core_comm *comm)
{
    float value = (float)core_comm_rank(comm);
    core_tensor *x, *y, *g;

    OK(core_tensor_from_data(&value, CORE_F32, NULL, 0, core_comm_device(comm),
                             &x));
    OK(core_tensor_set_requires_grad(x, true));
    OK(core_all_gather(comm, x, &y));
    ck_assert_int_eq(core_tensor_ndim(y), 1);
    g = gradient_of(comm, x, y);
    ck_assert_int_eq(core_tensor_ndim(g), 0);
    rank_expect(g, (float[]){6}, 1);
    core_tensor_release(x);
    core_tensor_release(g);
}

START_TEST(gradients_are_those_of_the_sum_of_all_losses)
{
    rank_device = rank_devices[_i];
    on_ranks(3, differentiate);
    on_ranks(3, gather_scalars);
    on_ranks(3, differentiate_roots);
    on_ranks(3, differentiate_rows);
}
END_TEST

START_TEST(gradients_of_gradients_communicate_too)
{
    on_ranks(3, differentiate_twice);
    on_ranks(3, differentiate_reduce_twice);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        gradients_of_gradients_communicate_too,
    };
    const suite_loop loops[] = {
        {gradients_are_those_of_the_sum_of_all_losses, 0, 2},
    };
    const test_suite suites[] = {
        {"comm/collective_gradients", SUITE_TESTS(tests), SUITE_LOOPS(loops)},
    };

    return suite_run(suites, sizeof suites / sizeof *suites);
}
