/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Jacobians and Hessians: core_jacobian and core_hessian, which compute rows
 * with core_vmap, beside one backward for each row. */

#include "bench.h"

#include <stdio.h>

enum { MOST = 256 };

/* Two layers with equal numbers of inputs, hidden units and outputs. */
typedef struct fixture {
    core_tensor *first, *second, *x;
    core_tensor *identity;
    int64_t size;
} fixture;

/* tanh(tanh(x A) B) */
static core_status layers(void *context, core_tensor *const *inputs,
                          size_t ninputs, core_tensor **outputs,
                          size_t *noutputs)
{
    const fixture *f = context;
    core_tensor *t[3] = {NULL};
    core_status status = core_matmul(inputs[0], f->first, &t[0]);

    (void)ninputs;
    if (status == CORE_OK)
        status = core_tanh(t[0], &t[1]);
    if (status == CORE_OK)
        status = core_matmul(t[1], f->second, &t[2]);
    if (status == CORE_OK)
        status = core_tanh(t[2], &outputs[0]);
    for (int i = 0; i < 3; i++)
        core_tensor_release(t[i]);
    *noutputs = 1;
    return status;
}

/* The sum of these. */
static core_status energy(void *context, core_tensor *const *inputs,
                          size_t ninputs, core_tensor **outputs,
                          size_t *noutputs)
{
    core_tensor *y = NULL;
    core_status status = layers(context, inputs, ninputs, &y, noutputs);

    if (status == CORE_OK)
        status = core_sum(y, CORE_DTYPE_NONE, &outputs[0]);
    core_tensor_release(y);
    return status;
}

/* ---------------------------------------------------------- all rows at once -- */

static core_derivative derivative_of(fixture *f, core_tensor_function function)
{
    return (core_derivative){.struct_size = sizeof(core_derivative),
                             .function = function,
                             .context = f,
                             .inputs = &f->x,
                             .ninputs = 1};
}

static void jacobian(void *context)
{
    core_derivative of = derivative_of(context, layers);
    core_tensor *result;
    size_t count = 1;

    must(core_jacobian(&of, &result, &count));
    core_tensor_release(result);
}

static void hessian(void *context)
{
    core_derivative of = derivative_of(context, energy);
    core_tensor *result;

    must(core_hessian(&of, &result));
    core_tensor_release(result);
}

/* --------------------------------------------------------------- row by row -- */

/* The gradients of each element of y, stacked. */
static void rows_of(const fixture *f, core_tensor *y, core_tensor *x)
{
    core_tensor *rows[MOST], *all;

    for (int64_t i = 0; i < f->size; i++) {
        core_tensor *seed;

        must(core_select(f->identity, 0, i, &seed));
        must(core_grad(&y, 1, &seed, &x, 1, CORE_RETAIN_GRAPH, &rows[i]));
        core_tensor_release(seed);
    }
    must(core_stack(rows, (size_t)f->size, 0, &all));
    for (int64_t i = 0; i < f->size; i++)
        core_tensor_release(rows[i]);
    core_tensor_release(all);
}

/* A leaf with the content of x. */
static core_tensor *leaf_of(const fixture *f)
{
    core_tensor *x;

    must(core_detach(f->x, &x));
    return bench_requires_grad(x);
}

static void jacobian_by_rows(void *context)
{
    const fixture *f = context;
    core_tensor *x = leaf_of(f), *y;
    size_t count = 1;

    must(layers(context, &x, 1, &y, &count));
    rows_of(f, y, x);
    core_tensor_release(y);
    core_tensor_release(x);
}

static void hessian_by_rows(void *context)
{
    const fixture *f = context;
    core_tensor *x = leaf_of(f), *y, *gradient;
    size_t count = 1;

    must(energy(context, &x, 1, &y, &count));
    must(core_grad(&y, 1, NULL, &x, 1, CORE_CREATE_GRAPH, &gradient));
    rows_of(f, gradient, x);
    core_tensor_release(gradient);
    core_tensor_release(y);
    core_tensor_release(x);
}

/* ------------------------------------------------------------------- rows -- */

static void row(const char *name, const char *suffix, bench_row run, fixture *f)
{
    char full[96];

    snprintf(full, sizeof full, "ad.%s_%lld%s", name, (long long)f->size,
             suffix);
    bench_out(full, bench_seconds(run, f, 0.02) * 1e3, "ms");
}

static void rows(int64_t size)
{
    fixture f = {.first = bench_normal((int64_t[]){size, size}, 2, .1F),
                 .second = bench_normal((int64_t[]){size, size}, 2, .1F),
                 .x = bench_normal(&size, 1, 1),
                 .size = size};

    must(core_eye(size, CORE_F32, NULL, &f.identity));
    row("jacobian", "", jacobian, &f);
    row("jacobian", "_by_rows", jacobian_by_rows, &f);
    row("hessian", "", hessian, &f);
    row("hessian", "_by_rows", hessian_by_rows, &f);
    core_tensor_release(f.first);
    core_tensor_release(f.second);
    core_tensor_release(f.x);
    core_tensor_release(f.identity);
}

void bench_jacobians(void)
{
    rows(16);
    rows(MOST);
}
