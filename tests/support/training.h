/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* training.h: compares a backward through a compiled function with one through
 * the function itself. */

#ifndef TESTS_SUPPORT_TRAINING_H
#define TESTS_SUPPORT_TRAINING_H

#include "compiled.h"

/* Tensors that a function makes on its way; finish() releases them. */
static _Thread_local core_tensor *temporaries[64];
static _Thread_local size_t ntemporaries;

#define T(name, ...)                          \
    __extension__({                           \
        core_tensor *made_ = NULL;            \
        OK(core_##name(__VA_ARGS__, &made_)); \
        temporaries[ntemporaries++] = made_;  \
    })

static inline core_status finish(void)
{
    while (ntemporaries)
        core_tensor_release(temporaries[--ntemporaries]);
    return CORE_OK;
}

static inline core_tensor *own(core_tensor *tensor)
{
    return core_tensor_retain(tensor);
}

/* A backward of the outputs in `used`, a set of bits, that require grad. */
static inline void backward_of(core_tensor *const *outputs, size_t count,
                               unsigned used, uint32_t flags)
{
    core_tensor *roots[WORLD_OUTPUTS], *grads[WORLD_OUTPUTS];
    size_t n = 0;

    for (size_t i = 0; i < count; i++) {
        core_tensor *y = outputs[i];

        if (!(used >> i & 1) || !core_tensor_requires_grad(y))
            continue;
        grads[n] = numbers_on(core_tensor_device(y), core_tensor_ndim(y),
                              core_tensor_sizes(y), 900 + (uint32_t)i);
        if (core_tensor_dtype(y) != CORE_F32)
            grads[n] =
                CALL(to_copy, grads[n], core_tensor_dtype(y), NULL, false, -1);
        roots[n++] = y;
    }
    ck_assert_uint_gt(n, 0);
    OK(core_backward(roots, n, grads, flags));
}

static inline void same_gradients(const char *what, core_tensor *const *a,
                                  core_tensor *const *b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        core_tensor *x = core_tensor_grad(a[i]), *y = core_tensor_grad(b[i]);

        ck_assert_msg(!x == !y, "%s %zu has %s", what, i,
                      x ? "no gradient" : "a gradient");
        if (x)
            same_bits(what, i, x, y);
    }
}

/* Calls both, makes the backward of some outputs, and compares everything. */
static inline void same_training_of(core_tensor_function function, world *eager,
                                    core_compiled *compiled, world *traced,
                                    unsigned used)
{
    core_tensor *a[WORLD_OUTPUTS] = {NULL}, *b[WORLD_OUTPUTS] = {NULL};
    size_t count = call_world(function, eager, NULL, WORLD_OUTPUTS, a);

    call_world(function, traced, compiled, count, b);
    same_worlds(eager, a, traced, b, count);
    for (size_t i = 0; i < count; i++)
        ck_assert_int_eq(core_tensor_requires_grad(a[i]),
                         core_tensor_requires_grad(b[i]));
    backward_of(a, count, used, 0);
    backward_of(b, count, used, 0);
    same_gradients("input", eager->inputs, traced->inputs, eager->ninputs);
    same_gradients("hidden input", eager->hidden, traced->hidden,
                   eager->nhidden);
    release_tensors(a, count);
    release_tensors(b, count);
}

static inline void same_training(core_tensor_function function, world *eager,
                                 core_compiled *compiled, world *traced)
{
    same_training_of(function, eager, compiled, traced, ~0u);
}

/* ------------------------------------------------------------- functions -- */

static inline world two_leaves(void)
{
    world w = {.device = program_device, .ninputs = 2};

    w.inputs[0] = leaf(NUMBERS(&w, 1, 3, 4));
    w.inputs[1] = leaf(NUMBERS(&w, 50, 3, 4));
    return w;
}

COMPILED_FUNCTION(products)
{
    core_tensor *y = T(mul, x[0], x[1]);

    out[0] = own(T(mul, y, y));
    *noutputs = 1;
    return finish();
}

static inline world input_and_weight(void)
{
    world w = {.device = program_device, .ninputs = 1, .nhidden = 1};

    w.inputs[0] = leaf(NUMBERS(&w, 1, 3, 4));
    w.hidden[0] = leaf(NUMBERS(&w, 50, 3, 4));
    return w;
}

COMPILED_FUNCTION(scaled)
{
    out[0] = own(T(mul, x[0], w->hidden[0]));
    *noutputs = 1;
    return finish();
}

static inline world mlp(void)
{
    world w = {.device = program_device, .ninputs = 2, .nhidden = 4};

    w.inputs[0] = NUMBERS(&w, 1, 8, 5);
    w.inputs[1] = NUMBERS(&w, 100, 8, 3);
    w.hidden[0] = leaf(NUMBERS(&w, 200, 6, 5));
    w.hidden[1] = leaf(NUMBERS(&w, 300, 6));
    w.hidden[2] = leaf(NUMBERS(&w, 400, 3, 6));
    w.hidden[3] = leaf(NUMBERS(&w, 500, 3));
    return w;
}

COMPILED_FUNCTION(mlp_loss)
{
    core_tensor *h = T(linear, x[0], w->hidden[0], w->hidden[1]);
    core_tensor *y;

    h = T(dropout, T(gelu, h, "none"), .25, true);
    y = T(linear, h, w->hidden[2], w->hidden[3]);
    out[0] = own(T(mse_loss, y, x[1], CORE_REDUCTION_MEAN));
    out[1] = own(y);
    *noutputs = 2;
    return finish();
}

COMPILED_FUNCTION(sum_and_tanh)
{
    out[0] = own(T(tanh, T(add, x[0], x[1], core_int(1))));
    *noutputs = 1;
    return finish();
}

#endif
