/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* hooks.h: for the tests of hooks and of the engine. */

#ifndef TESTS_SUPPORT_HOOKS_H
#define TESTS_SUPPORT_HOOKS_H

#include "autograd.h"

static char story[256];

static inline core_status tell(void *context, core_tensor *grad,
                               core_tensor **out_grad)
{
    (void)grad;
    (void)out_grad;
    strcat(story, context);
    return CORE_OK;
}

static inline core_status tell_pre(void *context, core_node *node,
                                   core_tensor **grads, size_t count)
{
    (void)node;
    (void)grads;
    ck_assert_uint_eq(count, 1);
    strcat(story, context);
    return CORE_OK;
}

static inline core_status tell_post(void *context, core_node *node,
                                    core_tensor *const *grads, size_t ngrads,
                                    core_tensor **gradients, size_t ngradients)
{
    (void)node;
    ck_assert_uint_eq(ngrads, 1);
    ck_assert_ptr_nonnull(grads[0]);
    ck_assert_uint_eq(ngradients, 2);
    ck_assert_ptr_nonnull(gradients[0]);
    strcat(story, context);
    return CORE_OK;
}

static inline core_status tell_leaf(void *context, core_tensor *leaf)
{
    ck_assert_ptr_nonnull(core_tensor_grad(leaf));
    strcat(story, context);
    return CORE_OK;
}

/* Leaves the error record of another failed call. */
static inline void fail_before(void)
{
    core_tensor *out;

    FAILS(core_add(VECTOR(3, 1, 1, 1), VECTOR(2, 1, 1), core_int(1), &out),
          CORE_ERROR_SHAPE, "add.Tensor");
}

#endif
