/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Versions (core_tensor_version) of what lazy regions write: a change counts
 * once, and those that other threads make meanwhile count, too. */

#include "support/program.h"

#include <libcore/core.h>

#include <pthread.h>

enum { SIZE = 64, CHANGES = 200 };

/* A view without elements: a change of it counts, and touches no data that
 * another thread uses. */
static core_tensor *nothing_of(core_tensor *x)
{
    const int64_t first = SIZE, end = SIZE;
    core_tensor *view;

    OK(core_slice(x, 0, &first, &end, 1, &view));
    return keep(view);
}

static core_tensor *zeros(void)
{
    const int64_t size = SIZE;
    core_tensor *x;

    OK(core_zeros(&size, 1, CORE_F32, program_device, &x));
    return keep(x);
}

/* A segment that changes x once; the first one of its kind runs operator by
 * operator, later ones as prepared calls. */
static core_status change_once(core_tensor *x)
{
    core_status status = core_lazy_begin(NULL);

    if (status == CORE_OK)
        status = core_add_scalar_(x, core_float(1), core_int(1));
    return status == CORE_OK ? core_lazy_end() : status;
}

START_TEST(a_change_in_a_region_counts_once)
{
    core_tensor *x = zeros();
    uint32_t version = core_tensor_version(x);

    for (uint32_t i = 1; i <= 4; i++) {
        OK(change_once(x));
        ck_assert_uint_eq(core_tensor_version(x), version + i);
    }
}
END_TEST

/* Changed by another thread while a segment runs. */
static core_tensor *changed_elsewhere;

static void *change_elsewhere(void *context)
{
    (void)context;
    return (void *)(intptr_t)core_add_scalar_(changed_elsewhere, core_float(1),
                                              core_int(1));
}

static core_status changes_meanwhile(core_call *c, const core_value *args,
                                     uint32_t nargs, core_value *results,
                                     uint32_t nresults)
{
    pthread_t thread;
    void *status = NULL;

    (void)c;
    (void)nargs;
    (void)nresults;
    if (changed_elsewhere) {
        ck_assert_int_eq(pthread_create(&thread, NULL, change_elsewhere, NULL),
                         0);
        ck_assert_int_eq(pthread_join(thread, &status), 0);
        ck_assert_int_eq((intptr_t)status, CORE_OK);
    }
    return core_add_scalar(
        args[0].u.tensor, core_float(1), core_int(1),
        (results[0].tag = CORE_VALUE_TENSOR, &results[0].u.tensor));
}

static core_status like_the_argument(core_call *c, const core_value *args,
                                     uint32_t nargs, core_value *results,
                                     uint32_t nresults)
{
    (void)c;
    (void)nargs;
    (void)nresults;
    results[0].tag = CORE_VALUE_TENSOR;
    return core_empty_like(args[0].u.tensor, CORE_DTYPE_NONE, NULL, -1,
                           &results[0].u.tensor);
}

static void call_meanwhile(core_tensor *x)
{
    core_value arg = {.tag = CORE_VALUE_TENSOR, .u.tensor = x}, result = {0};
    core_operator *op;

    OK(core_op_find("lazy::meanwhile", &op));
    OK(core_op_call(op, &arg, 1, &result, 1));
    OK(core_copy_(x, result.u.tensor, false));
    core_tensor_release(result.u.tensor);
}

START_TEST(a_change_while_a_segment_runs_counts)
{
    const char *const type =
        strcmp(core_device_name(program_device), "cpu") == 0 ? "cpu" : "sim";
    core_tensor *x = zeros();
    core_registration *handles[3];

    OK(core_op_register("lazy::meanwhile(Tensor a) -> Tensor", &handles[0]));
    OK(core_function_register("lazy::meanwhile", CORE_KEY_BACKEND, type,
                              changes_meanwhile, NULL, &handles[1]));
    OK(core_shape_register("lazy::meanwhile", like_the_argument, NULL,
                           &handles[2]));
    for (int i = 0; i < 3; i++) {
        uint32_t version = core_tensor_version(x);

        changed_elsewhere = nothing_of(x);
        OK(core_lazy_begin(NULL));
        call_meanwhile(x);
        OK(core_lazy_end());
        ck_assert_uint_eq(core_tensor_version(x), version + 2);
    }
    changed_elsewhere = NULL;
    for (int k = 2; k >= 0; k--)
        core_registration_release(handles[k]);
}
END_TEST

static void *change_often(void *context)
{
    core_status status = CORE_OK;

    for (int i = 0; i < CHANGES && status == CORE_OK; i++)
        status = change_once(context);
    return (void *)(intptr_t)status;
}

START_TEST(changes_of_two_threads_count)
{
    core_tensor *x = zeros(), *nothing = nothing_of(x);
    uint32_t version = core_tensor_version(x);
    pthread_t thread;
    void *status;

    ck_assert_int_eq(pthread_create(&thread, NULL, change_often, x), 0);
    for (int i = 0; i < CHANGES; i++)
        OK(core_add_scalar_(nothing, core_float(1), core_int(1)));
    ck_assert_int_eq(pthread_join(thread, &status), 0);
    ck_assert_int_eq((intptr_t)status, CORE_OK);
    ck_assert_uint_eq(core_tensor_version(x), version + 2 * CHANGES);
}
END_TEST

SUITE_ON_CPU_AND_SIM("compile/lazy_versions", a_change_in_a_region_counts_once,
                     a_change_while_a_segment_runs_counts,
                     changes_of_two_threads_count)
