/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Kernels that refuse a call (docs/abi.md 10): which kernel is tried next. */

#define SUITE_FORKS true

#include "support/autograd.h"
#include "support/loader.h"

#include <libcore/device.h>

#include <pthread.h>

static void setup(void)
{
    folder_make_with("selective");
}

static void teardown(void)
{
    drop_all();
    folder_remove();
}

static core_tensor *ones(uint32_t ndim, int64_t size)
{
    static const float values[64] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                     1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    core_tensor *tensor;
    core_device *device;

    OK(core_device_find("selective", &device));
    OK(core_tensor_from_data(values, CORE_F32, (int64_t[]){size, size, size},
                             ndim, device, &tensor));
    return keep(tensor);
}

static float first_of(core_tensor *tensor)
{
    float got[64];

    OK(core_tensor_read(tensor, got,
                        (size_t)core_tensor_numel(tensor) * sizeof *got));
    return got[0];
}

START_TEST(newest_kernel_that_supports_the_call_runs)
{
    ck_assert_float_eq(first_of(CALL(mm, ones(2, 2), ones(2, 2))), 2);
    ck_assert_float_eq(first_of(CALL(mm, ones(2, 3), ones(2, 3))), 1);
}
END_TEST

static void *serve(void *out)
{
    *(float *)out = first_of(CALL(mm, ones(2, 2), ones(2, 2)));
    return NULL;
}

START_TEST(kernels_get_the_deterministic_flag)
{
    float got = 0;
    pthread_t thread;

    OK(core_setting_set("LIBCORE_DETERMINISTIC", "1"));
    ck_assert_float_eq(first_of(CALL(mm, ones(2, 2), ones(2, 2))), 12);
    ck_assert_int_eq(pthread_create(&thread, NULL, serve, &got), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_float_eq(got, 12);
    OK(core_setting_set("LIBCORE_DETERMINISTIC", "0"));
    ck_assert_float_eq(first_of(CALL(mm, ones(2, 2), ones(2, 2))), 2);
}
END_TEST

START_TEST(kernels_get_the_tf32_flag)
{
    float got = 0;
    pthread_t thread;

    OK(core_setting_set("LIBCORE_ALLOW_TF32", "1"));
    ck_assert_float_eq(first_of(CALL(mm, ones(2, 2), ones(2, 2))), 102);
    OK(core_setting_set("LIBCORE_DETERMINISTIC", "1"));
    ck_assert_int_eq(pthread_create(&thread, NULL, serve, &got), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_float_eq(got, 112);
    OK(core_setting_set("LIBCORE_ALLOW_TF32", "0"));
    ck_assert_float_eq(first_of(CALL(mm, ones(2, 2), ones(2, 2))), 12);
    OK(core_setting_set("LIBCORE_DETERMINISTIC", "0"));
    ck_assert_float_eq(first_of(CALL(mm, ones(2, 2), ones(2, 2))), 2);
}
END_TEST

START_TEST(environment_allows_tf32)
{
    setenv("LIBCORE_ALLOW_TF32", "1", 1);
    ck_assert_float_eq(first_of(CALL(mm, ones(2, 2), ones(2, 2))), 102);
}
END_TEST

START_TEST(environment_requests_determinism)
{
    setenv("LIBCORE_DETERMINISTIC", "yes", 1);
    ck_assert_float_eq(first_of(CALL(mm, ones(2, 2), ones(2, 2))), 12);
}
END_TEST

START_TEST(invalid_setting_is_reported_before_the_first_device)
{
    static const char *const names[] = {
        "LIBCORE_DETERMINISTIC", "LIBCORE_TRACE_DISPATCH", "LIBCORE_PLAN_CACHE",
        "LIBCORE_ALLOW_TF32"};
    core_device *device;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (i == (size_t)_i)
            setenv(names[i], "maybe", 1);
    FAILS(core_device_find("cpu", &device), CORE_ERROR_INVALID_ARGUMENT,
          names[_i], "maybe");
    ck_assert_ptr_null(device);
}
END_TEST

START_TEST(fallback_runs_if_no_kernel_supports_the_call)
{
    core_tensor *out;

    FAILS(core_cumsum(ones(1, 3), 0, CORE_DTYPE_NONE, &out),
          CORE_ERROR_NO_KERNEL, "cumsum", "selective");
    core_setting_set("LIBCORE_FALLBACK", "count");
    ck_assert_float_eq(first_of(CALL(cumsum, ones(1, 3), 0, CORE_DTYPE_NONE)),
                       1);
}
END_TEST

START_TEST(supports_is_called_with_the_loop)
{
    core_tensor *out;

    ck_assert_float_eq(first_of(CALL(exp, ones(1, 3))), 7);
    FAILS(core_exp(ones(1, 5), &out), CORE_ERROR_NO_KERNEL, "exp");
    core_setting_set("LIBCORE_FALLBACK", "count");
    ck_assert_float_eq_tol(first_of(CALL(exp, ones(1, 5))), 2.7182817f, 1e-5f);
    FAILS(core_amax(ones(1, 5), (int64_t[]){0}, 1, false, &out),
          CORE_ERROR_UNSUPPORTED, "allows no other kernel");
}
END_TEST

/* If another kernel computes the call, the message of a kernel that refused it
 * is not the thread's error. */
START_TEST(successful_calls_keep_an_earlier_error)
{
    core_tensor *small = ones(2, 2), *large = ones(2, 3), *cube = ones(3, 3);

    core_setting_set("LIBCORE_FALLBACK", "count");
    core_error_set(CORE_ERROR_IO, "earlier");
    CALL(mm, small, small);
    CALL(mm, large, large);
    CALL(exp, ones(1, 3));
    CALL(exp, ones(1, 5));
    CALL(cumsum, cube, 0, CORE_DTYPE_NONE);
    CALL(log, small);
    ck_assert_str_eq(core_error_message(), "earlier");
    ck_assert_int_eq(core_error_code(), CORE_ERROR_IO);
    core_error_clear();
    CALL(cumsum, cube, 0, CORE_DTYPE_NONE);
    ck_assert_int_eq(core_error_code(), CORE_OK);
}
END_TEST

START_TEST(kernel_may_forbid_the_fallback)
{
    core_tensor *out;

    core_setting_set("LIBCORE_FALLBACK", "count");
    FAILS(core_bmm(ones(3, 2), ones(3, 2), &out), CORE_ERROR_UNSUPPORTED,
          "not this time");
    ck_assert_ptr_null(out);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        newest_kernel_that_supports_the_call_runs,
        fallback_runs_if_no_kernel_supports_the_call,
        supports_is_called_with_the_loop,
        successful_calls_keep_an_earlier_error,
        kernel_may_forbid_the_fallback,
        kernels_get_the_deterministic_flag,
        kernels_get_the_tf32_flag,
        environment_allows_tf32,
        environment_requests_determinism,
    };
    const suite_loop loops[] = {
        {invalid_setting_is_reported_before_the_first_device, 0, 4},
    };
    const test_suite suite = {
        .name = "dispatch/supports",
        .setup = setup,
        .teardown = teardown,
        SUITE_TESTS(tests),
        SUITE_LOOPS(loops),
    };

    return suite_run(&suite, 1);
}
