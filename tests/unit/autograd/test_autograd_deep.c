/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Graphs of 100,000 nodes on a thread with a small stack: code that follows a
 * graph must not recurse. */

#include "support/autograd.h"

#include "base/memory.h"

#include <libcore/saved.h>

#include <pthread.h>
#include <unistd.h>

enum { DEPTH = 100000, STACK = 96 * 1024 };

/* The least that an aarch64 allows is 128 KiB. */
static size_t small_stack(void)
{
    long least = sysconf(_SC_THREAD_STACK_MIN);

    return least > STACK ? (size_t)least : STACK;
}

static core_status (*body)(core_tensor *x, core_tensor **out_y);
static uint32_t flags;
static double first_gradient;

/* Returns failures as a status because Check cannot fail in another thread. */
static core_status walk(core_tensor *x)
{
    core_tensor *y = NULL, *grad = NULL, *again = NULL;
    core_status status = body(x, &y);

    if (status == CORE_OK)
        status = core_grad(&y, 1, NULL, &x, 1, flags, &grad);
    core_tensor_release(y);
    if (status == CORE_OK)
        status = core_tensor_read(grad, &first_gradient, sizeof first_gradient);
    /* The graph of the backward pass is just as deep. */
    if (status == CORE_OK && flags & CORE_CREATE_GRAPH &&
        core_tensor_requires_grad(grad))
        status = core_grad(&grad, 1, NULL, &x, 1, CORE_ALLOW_UNUSED, &again);
    core_tensor_release(again);
    core_tensor_release(grad);
    return status;
}

static void *in_thread(void *argument)
{
    core_status status = walk(argument);
    core_error *error = NULL;

    if (status != CORE_OK)
        core_error_detach(&error);
    return error;
}

static double gradient_of(core_status (*function)(core_tensor *,
                                                  core_tensor **),
                          uint32_t with)
{
    core_tensor *x = leaf(VECTOR(1, 1));
    pthread_attr_t attributes;
    pthread_t thread;
    void *error;

    body = function;
    flags = with;
    ck_assert_int_eq(pthread_attr_init(&attributes), 0);
    ck_assert_int_eq(pthread_attr_setstacksize(&attributes, small_stack()), 0);
    ck_assert_int_eq(pthread_create(&thread, &attributes, in_thread, x), 0);
    ck_assert_int_eq(pthread_join(thread, &error), 0);
    pthread_attr_destroy(&attributes);
    if (error)
        OK(core_error_raise(error));
    return first_gradient;
}

/* Applies a step `count` times to y. */
#define STEPS(count, step)                                   \
    core_tensor *y = core_tensor_retain(x), *next = NULL;    \
    core_status status = CORE_OK;                            \
                                                             \
    for (int i = 0; i < (count) && status == CORE_OK; i++) { \
        status = (step);                                     \
        if (status == CORE_OK) {                             \
            core_tensor_release(y);                          \
            y = next;                                        \
        }                                                    \
    }                                                        \
    *out_y = y;                                              \
    return status

static core_status chain(core_tensor *x, core_tensor **out_y)
{
    STEPS(DEPTH, i % 2 ? core_mul_scalar(y, core_float(1), &next)
                       : core_abs(y, &next));
}

START_TEST(deep_chain_runs_on_small_stack)
{
    ck_assert_double_eq(gradient_of(chain, 0), 1);
}
END_TEST

START_TEST(deep_chain_has_second_derivative_on_small_stack)
{
    ck_assert_double_eq(gradient_of(chain, CORE_CREATE_GRAPH), 1);
}
END_TEST

static core_status products(core_tensor *x, core_tensor **out_y)
{
    bool before = core_grad_mode_set(false);
    core_tensor *one = NULL;
    core_status status_of_one = core_clone(x, -1, &one);

    core_grad_mode_set(before);
    if (status_of_one != CORE_OK)
        return status_of_one;
    {
        core_tensor *y = core_tensor_retain(x), *next = NULL;
        core_status status = CORE_OK;

        for (int i = 0; i < DEPTH && status == CORE_OK; i++) {
            status = core_mul(y, one, &next);
            if (status == CORE_OK) {
                core_tensor_release(y);
                y = next;
            }
        }
        core_tensor_release(one);
        *out_y = y;
        return status;
    }
}

START_TEST(deep_chain_of_saved_values_runs_on_small_stack)
{
    ck_assert_double_eq(gradient_of(products, 0), 1);
    ck_assert_double_eq(gradient_of(products, CORE_CREATE_GRAPH), 1);
}
END_TEST

static core_status views(core_tensor *x, core_tensor **out_y)
{
    STEPS(DEPTH,
          i % 2 ? core_squeeze_dim(y, 0, &next) : core_unsqueeze(y, 0, &next));
}

START_TEST(deep_chain_of_views_runs_on_small_stack)
{
    ck_assert_double_eq(gradient_of(views, 0), 1);
    ck_assert_double_eq(gradient_of(views, CORE_CREATE_GRAPH), 1);
}
END_TEST

/* In-place changes through views of one base: copy-slices upon copy-slices. */
static core_status slices(core_tensor *x, core_tensor **out_y)
{
    core_tensor *base = NULL, *view = NULL;
    core_status status = core_mul_scalar(x, core_float(1), &base);

    for (int i = 0; i < DEPTH / 4 && status == CORE_OK; i++) {
        status = core_select(base, 0, 0, &view);
        if (status == CORE_OK)
            status = core_mul_scalar_(view, core_float(1));
        core_tensor_release(view);
        view = NULL;
    }
    *out_y = base;
    return status;
}

START_TEST(deep_history_of_copy_slices_runs_on_small_stack)
{
    ck_assert_double_eq(gradient_of(slices, 0), 1);
    ck_assert_double_eq(gradient_of(slices, CORE_CREATE_GRAPH), 1);
}
END_TEST

static core_status part(void *context, core_tensor *const *inputs,
                        size_t ninputs, core_tensor **outputs, size_t *noutputs)
{
    (void)context;
    (void)ninputs;
    *noutputs = 1;
    return core_mul_scalar(inputs[0], core_float(1), &outputs[0]);
}

static core_status checkpoints(core_tensor *x, core_tensor **out_y)
{
    const core_checkpoint_info info = {.struct_size = sizeof info,
                                       .function = part};
    core_tensor *y = core_tensor_retain(x);
    core_status status = CORE_OK;

    for (int i = 0; i < DEPTH / 4 && status == CORE_OK; i++) {
        core_tensor *next = NULL;
        size_t count = 1;

        status = core_checkpoint(&info, &y, 1, &next, &count);
        if (status == CORE_OK) {
            core_tensor_release(y);
            y = next;
        }
    }
    *out_y = y;
    return status;
}

START_TEST(deep_chain_of_checkpoints_runs_on_small_stack)
{
    ck_assert_double_eq(gradient_of(checkpoints, 0), 1);
}
END_TEST

static core_status chain_that_fails(core_tensor *x, core_tensor **out_y)
{
    core_status status = chain(x, out_y);
    core_tensor *bad = NULL;

    return status == CORE_OK ? core_select(*out_y, 7, 0, &bad) : status;
}

START_TEST(unused_deep_graph_is_freed_on_small_stack)
{
    core_tensor *x = leaf(VECTOR(1, 1));
    pthread_attr_t attributes;
    pthread_t thread;
    void *error;

    body = chain_that_fails;
    ck_assert_int_eq(pthread_attr_init(&attributes), 0);
    ck_assert_int_eq(pthread_attr_setstacksize(&attributes, small_stack()), 0);
    ck_assert_int_eq(pthread_create(&thread, &attributes, in_thread, x), 0);
    ck_assert_int_eq(pthread_join(thread, &error), 0);
    pthread_attr_destroy(&attributes);
    ck_assert_ptr_nonnull(error);
    ck_assert_int_eq(core_error_raise(error), CORE_ERROR_INDEX);
}
END_TEST

SUITE("autograd/autograd_deep", deep_chain_runs_on_small_stack,
      deep_chain_has_second_derivative_on_small_stack,
      deep_chain_of_saved_values_runs_on_small_stack,
      deep_chain_of_views_runs_on_small_stack,
      deep_history_of_copy_slices_runs_on_small_stack,
      deep_chain_of_checkpoints_runs_on_small_stack,
      unused_deep_graph_is_freed_on_small_stack)
