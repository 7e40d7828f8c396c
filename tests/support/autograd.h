/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* autograd.h: short helpers for the tests of autograd.  Tensors that these
 * functions return belong to the test and are released when it ends. */

#ifndef TESTS_SUPPORT_AUTOGRAD_H
#define TESTS_SUPPORT_AUTOGRAD_H

#include "suite.h"

#include <libcore/autograd.h>
#include <libcore/ops.h>
#include <libcore/tensor.h>

#define OK(call)                                           \
    do {                                                   \
        core_status status_ = (call);                      \
        ck_assert_msg(status_ == CORE_OK, "%s: %s", #call, \
                      core_error_message());               \
    } while (0)

/* The call fails with this code, and its message contains all of the texts. */
#define FAILS(call, code, ...)                                         \
    do {                                                               \
        const char *texts_[] = {"", __VA_ARGS__};                      \
        ck_assert_int_eq((call), (code));                              \
        for (size_t i_ = 0; i_ < sizeof texts_ / sizeof *texts_; i_++) \
            ck_assert_msg(strstr(core_error_message(), texts_[i_]),    \
                          "\"%s\" is not in \"%s\"", texts_[i_],       \
                          core_error_message());                       \
    } while (0)

static core_tensor *pool[4096];
static size_t pooled;

static inline core_tensor *keep(core_tensor *tensor)
{
    ck_assert_ptr_nonnull(tensor);
    ck_assert_uint_lt(pooled, sizeof pool / sizeof *pool);
    pool[pooled++] = tensor;
    return tensor;
}

/* Releases a tensor before the end of the test. */
static inline void drop(core_tensor *tensor)
{
    for (size_t i = pooled; i-- > 0;)
        if (pool[i] == tensor) {
            pool[i] = pool[--pooled];
            core_tensor_release(tensor);
            return;
        }
    ck_abort_msg("not of the pool");
}

static inline void drop_all(void)
{
    while (pooled)
        core_tensor_release(pool[--pooled]);
}

static inline void release_tensors(core_tensor **tensors, size_t count)
{
    for (size_t i = 0; i < count; i++)
        core_tensor_release(tensors[i]);
}

static inline core_tensor *typed(core_dtype dtype, size_t ndim,
                                 const int64_t *sizes, const double *values)
{
    core_tensor *wide, *tensor;

    OK(core_tensor_from_data(values, CORE_F64, sizes, ndim, NULL, &wide));
    if (dtype == CORE_F64)
        return keep(wide);
    OK(core_to_copy(wide, dtype, NULL, false, -1, &tensor));
    core_tensor_release(wide);
    return keep(tensor);
}

#define VECTOR(n, ...) \
    typed(CORE_F64, 1, (int64_t[]){n}, (double[]){__VA_ARGS__})
#define MATRIX(r, c, ...) \
    typed(CORE_F64, 2, (int64_t[]){r, c}, (double[]){__VA_ARGS__})
#define SCALAR(x) typed(CORE_F64, 0, NULL, (double[]){x})

static inline core_tensor *leaf(core_tensor *tensor)
{
    OK(core_tensor_set_requires_grad(tensor, true));
    return tensor;
}

#define CALL(name, ...)                      \
    __extension__({                          \
        core_tensor *out_;                   \
        OK(core_##name(__VA_ARGS__, &out_)); \
        keep(out_);                          \
    })

static inline core_tensor *add(core_tensor *a, core_tensor *b)
{
    return CALL(add, a, b, core_int(1));
}

static inline core_tensor *mul(core_tensor *a, core_tensor *b)
{
    return CALL(mul, a, b);
}

static inline core_tensor *sum(core_tensor *a)
{
    return CALL(sum, a, CORE_DTYPE_NONE);
}

static inline void backward(core_tensor *tensor)
{
    OK(core_backward(&tensor, 1, NULL, 0));
}

/* Compares the elements of the tensor, in row-major order. */
static inline void holds(core_tensor *tensor, size_t count,
                         const double *values)
{
    double have[64];
    core_tensor *wide;

    ck_assert_ptr_nonnull(tensor);
    ck_assert_int_eq(core_tensor_numel(tensor), (int64_t)count);
    OK(core_to_copy(tensor, CORE_F64, NULL, false, -1, &wide));
    OK(core_tensor_read(wide, have, count * sizeof *have));
    core_tensor_release(wide);
    for (size_t i = 0; i < count; i++)
        ck_assert_double_eq_tol(have[i], values[i], 1e-6);
}

#define HOLDS(tensor, n, ...) holds(tensor, n, (double[]){__VA_ARGS__})

/* Seconds for each test, for programs whose tests take long on a busy machine;
 * 0: Check's default. */
#ifndef SUITE_SECONDS
#define SUITE_SECONDS 0
#endif

/* Runs a program of one suite, whose tests may leave tensors in the pool. */
static inline int run_suite(const char *name, const TTest *const *tests,
                            size_t count)
{
    const test_suite suite = {.name = name,
                              .teardown = drop_all,
                              .seconds = SUITE_SECONDS,
                              .tests = tests,
                              .test_count = count};

    return suite_run(&suite, 1);
}

#define SUITE(name, ...)                                             \
    int main(void)                                                   \
    {                                                                \
        const TTest *const tests[] = {__VA_ARGS__};                  \
                                                                     \
        return run_suite(name, tests, sizeof tests / sizeof *tests); \
    }

#endif
