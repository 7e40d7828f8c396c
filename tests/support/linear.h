/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* linear.h: for the tests of the fused Linear: input, weight and bias, and the
 * arguments made of them. */

#ifndef TESTS_SUPPORT_LINEAR_H
#define TESTS_SUPPORT_LINEAR_H

#include "devices.h"

#include <libcore/autocast.h>
#include <libcore/destination.h>
#include <libcore/linear.h>
#include <libcore/memory.h>

#include <math.h>

enum { ROWS = 6, IN = 32, OUT = 4 };

static core_tensor *x, *w, *b;
static core_quantizer *quantizers[3];
static core_linear_forward_args args;

static inline core_tensor *wave(core_dtype dtype, size_t ndim,
                                const int64_t *sizes, double step)
{
    double values[ROWS * IN];
    int64_t numel = 1;

    for (size_t i = 0; i < ndim; i++)
        numel *= sizes[i];
    for (int64_t i = 0; i < numel; i++)
        values[i] = sin((double)(i + 1) * step) + 0.6;
    return typed(dtype, ndim, sizes, values);
}

static inline void tensors(core_dtype dtype)
{
    x = leaf(wave(dtype, 3, (int64_t[]){2, 3, IN}, 0.7));
    w = leaf(wave(dtype, 2, (int64_t[]){OUT, IN}, 0.3));
    b = leaf(wave(dtype, 1, (int64_t[]){OUT}, 1.1));
    args = (core_linear_forward_args){
        .struct_size = sizeof args, .input = x, .weight = w, .bias = b};
}

/* OUT columns are not a whole block, so neither are the gradient's. */
static inline void quantized(uint32_t scaling)
{
    for (int i = 0; i < 3; i++) {
        bool block = i == 2 && scaling == CORE_SCALING_BLOCK;
        core_quantizer_options options = {
            .struct_size = sizeof options,
            .scaling = block ? CORE_SCALING_CURRENT : scaling,
            .dtype = i == 2 ? CORE_F8E5M2 : CORE_F8E4M3,
            .history_length = 4};

        core_quantizer_release(quantizers[i]);
        OK(core_quantizer_create(&options, &quantizers[i]));
    }
    args.input_quantizer = quantizers[0];
    args.weight_quantizer = quantizers[1];
    args.grad_quantizer = quantizers[2];
}

static inline void setup(void)
{
    tensors(CORE_F32);
}

static inline void teardown(void)
{
    for (int i = 0; i < 3; i++) {
        core_quantizer_release(quantizers[i]);
        quantizers[i] = NULL;
    }
    drop_all();
}

static inline core_tensor *apply(void)
{
    core_tensor *y;

    OK(core_linear_apply(&args, &y));
    return keep(y);
}

static inline uint64_t calls(int quantizer)
{
    core_quantizer_state state = {.struct_size = sizeof state};

    OK(core_quantizer_get_state(quantizers[quantizer], &state));
    return state.calls;
}

static inline void read_all(core_tensor *tensor, double *to)
{
    core_tensor *wide;

    OK(core_to_copy(tensor, CORE_F64, NULL, false, -1, &wide));
    OK(core_tensor_read(wide, to, (size_t)core_tensor_numel(wide) * 8));
    core_tensor_release(wide);
}

/* The difference is at most `share` of the largest element of `want`. */
static inline void near(core_tensor *have, core_tensor *want, double share)
{
    static double a[4096], c[4096];
    int64_t n = core_tensor_numel(want);
    double most = 0;

    ck_assert_ptr_nonnull(have);
    ck_assert_int_eq(core_tensor_numel(have), n);
    ck_assert_uint_eq(core_tensor_ndim(have), core_tensor_ndim(want));
    read_all(have, a);
    read_all(want, c);
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(c[i]));
    for (int64_t i = 0; i < n; i++)
        ck_assert_msg(fabs(a[i] - c[i]) <= share * most, "%g, not %g", a[i],
                      c[i]);
}

/* As vectors they have the same direction. */
static inline void alike(core_tensor *have, core_tensor *want)
{
    static double a[4096], c[4096];
    double dot = 0, aa = 0, cc = 0;

    ck_assert_ptr_nonnull(have);
    ck_assert_int_eq(core_tensor_numel(have), core_tensor_numel(want));
    read_all(have, a);
    read_all(want, c);
    for (int64_t i = 0; i < core_tensor_numel(want); i++) {
        dot += a[i] * c[i];
        aa += a[i] * a[i];
        cc += c[i] * c[i];
    }
    ck_assert_msg(dot > 0.98 * sqrt(aa * cc), "cosine %g", dot / sqrt(aa * cc));
    ck_assert_msg(aa > 0.7 * cc && aa < 1.4 * cc, "%g, not %g", aa, cc);
}

/* Sum of squares: its gradient is not constant. */
static inline core_tensor *loss(core_tensor *y)
{
    return sum(mul(y, y));
}

static inline void clear(void)
{
    core_tensor_set_grad(x, NULL);
    core_tensor_set_grad(w, NULL);
    core_tensor_set_grad(b, NULL);
}

/* The first two steps, without autograd. */
static inline core_linear_backward_args kept(bool input, bool weight, bool bias)
{
    core_linear_backward_args backward;
    core_linear_intermediates made;
    core_tensor *y;

    args.input_requires_grad = input;
    args.weight_requires_grad = weight;
    args.bias_requires_grad = bias;
    OK(core_linear_forward(&args, &y, &made));
    OK(core_linear_setup(&args, &made, &backward));
    core_linear_intermediates_release(&made);
    core_tensor_release(y);
    return backward;
}

#endif
