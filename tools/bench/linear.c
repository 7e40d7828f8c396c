/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The host's cost of the fused Linear beyond its products: on matrices so small
 * that nothing else takes time, next to the mm calls that it makes, with
 * results and views prepared. */

#include "bench.h"

#include <math.h>
#include <stdio.h>

enum { SIDE = 4 };

typedef struct fixture {
    core_tensor *x, *w, *turned, *grad, *grad_turned, *out;
    core_tensor *x_grad, *w_grad; /* x and w that require grad */
    core_linear_backward_args backward;
} fixture;

static void gemm(void *context)
{
    fixture *f = context;

    must(core_mm_out(f->x, f->turned, f->out));
}

static void two_gemms(void *context)
{
    fixture *f = context;

    must(core_mm_out(f->grad, f->w, f->out));
    must(core_mm_out(f->grad_turned, f->x, f->out));
}

static void forward(void *context)
{
    fixture *f = context;
    core_linear_forward_args args = {
        .struct_size = sizeof args, .input = f->x, .weight = f->w};
    core_linear_intermediates made;
    core_tensor *y;

    must(core_linear_forward(&args, &y, &made));
    core_linear_intermediates_release(&made);
    core_tensor_release(y);
}

static void backward(void *context)
{
    fixture *f = context;
    core_tensor *gradients[3];

    must(core_linear_backward(&f->backward, &gradients[0], &gradients[1],
                              &gradients[2]));
    for (int i = 0; i < 3; i++)
        core_tensor_release(gradients[i]);
}

static core_tensor *applied(fixture *f)
{
    core_linear_forward_args args = {
        .struct_size = sizeof args, .input = f->x_grad, .weight = f->w_grad};
    core_tensor *y;

    must(core_linear_apply(&args, &y));
    return y;
}

static void recorded(void *context)
{
    core_tensor_release(applied(context));
}

static void recorded_and_backward(void *context)
{
    fixture *f = context;
    core_tensor *inputs[2] = {f->x_grad, f->w_grad}, *gradients[2];
    core_tensor *y = applied(f);

    must(core_grad(&y, 1, &f->grad, inputs, 2, 0, gradients));
    core_tensor_release(y);
    core_tensor_release(gradients[0]);
    core_tensor_release(gradients[1]);
}

static const struct {
    const char *name;
    bench_row row;
} rows[] = {{"linear.gemm", gemm},
            {"linear.forward", forward},
            {"linear.two_gemms", two_gemms},
            {"linear.backward", backward},
            {"linear.recorded_forward", recorded},
            {"linear.recorded_forward_and_backward", recorded_and_backward}};
enum {
    GEMM,
    FORWARD,
    TWO_GEMMS,
    BACKWARD,
    RECORDED,
    RECORDED_BOTH,
    ROWS = sizeof rows / sizeof *rows
};

static void fixture_open(fixture *f)
{
    const int64_t sizes[] = {SIDE, SIDE};

    *f = (fixture){.x = bench_normal(sizes, 2, 1),
                   .w = bench_normal(sizes, 2, 1),
                   .grad = bench_normal(sizes, 2, 1),
                   .out = bench_full(sizes, 2, 0),
                   .x_grad = bench_requires_grad(bench_normal(sizes, 2, 1)),
                   .w_grad = bench_requires_grad(bench_normal(sizes, 2, 1)),
                   .backward = {.struct_size = sizeof f->backward,
                                .dtype = CORE_F32,
                                .input_requires_grad = 1,
                                .weight_requires_grad = 1}};
    must(core_t(f->w, &f->turned));
    must(core_t(f->grad, &f->grad_turned));
    f->backward.grad_output = f->grad;
    f->backward.input = f->x;
    f->backward.weight = f->w;
}

static void fixture_close(fixture *f)
{
    core_tensor *all[] = {f->x,           f->w,   f->turned, f->grad,
                          f->grad_turned, f->out, f->x_grad, f->w_grad};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        core_tensor_release(all[i]);
}

/* Nanoseconds per call, of `count` calls. */
static double once(bench_row row, void *context, int count)
{
    double begin = bench_now();

    for (int i = 0; i < count; i++)
        row(context);
    return (bench_now() - begin) / count * 1e9;
}

/* Runs all rows in turn and takes the minimum of each, so that other load
 * affects all alike. */
void bench_linear(void)
{
    enum { TURNS = 200, COUNT = 1000 };
    double least[ROWS];
    fixture f;

    fixture_open(&f);
    for (int i = 0; i < ROWS; i++)
        least[i] = INFINITY;
    for (int turn = 0; turn < TURNS; turn++)
        for (int i = 0; i < ROWS; i++)
            least[i] = fmin(least[i], once(rows[i].row, &f, COUNT));
    for (int i = 0; i < ROWS; i++)
        bench_out(rows[i].name, least[i], "ns");
    bench_out("linear.forward_beyond_gemm", least[FORWARD] - least[GEMM], "ns");
    bench_out("linear.backward_beyond_gemms",
              least[BACKWARD] - least[TWO_GEMMS], "ns");
    bench_out("linear.recorded_forward_beyond_gemm",
              least[RECORDED] - least[GEMM], "ns");
    bench_out("linear.recorded_backward_beyond_gemms",
              least[RECORDED_BOTH] - least[RECORDED] - least[TWO_GEMMS], "ns");
    fixture_close(&f);
}
