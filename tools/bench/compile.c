/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Compiled functions: what the guards of a call cost, and small functions
 * called as they are and compiled. */

#include "bench.h"

#include <stdio.h>

enum { GUARDED = 8, PERCEPTRON = 4 };

typedef struct fixture {
    core_tensor_function function;
    core_compiled *compiled;
    core_tensor *inputs[GUARDED];
    size_t ninputs;
} fixture;

/* A graph break, so that only guards and lookup are measured. */
static core_status returns_an_input(void *context, core_tensor *const *inputs,
                                    size_t ninputs, core_tensor **outputs,
                                    size_t *noutputs)
{
    void *data;

    (void)context;
    (void)ninputs;
    CORE_TRY(core_tensor_data(inputs[0], &data));
    outputs[0] = core_tensor_retain(inputs[0]);
    *noutputs = 1;
    return CORE_OK;
}

/* relu(x * x + x) */
static core_status chain(void *context, core_tensor *const *inputs,
                         size_t ninputs, core_tensor **outputs,
                         size_t *noutputs)
{
    core_tensor *square, *sum;
    core_status status;

    (void)context;
    (void)ninputs;
    CORE_TRY(core_mul(inputs[0], inputs[0], &square));
    status = core_add(square, inputs[0], core_int(1), &sum);
    core_tensor_release(square);
    CORE_TRY(status);
    status = core_relu(sum, &outputs[0]);
    core_tensor_release(sum);
    *noutputs = 1;
    return status;
}

static core_status loss_of(core_tensor *const *inputs, core_tensor **out_loss)
{
    core_tensor *h = NULL, *a = NULL, *y = NULL;
    core_status status = core_mm(inputs[0], inputs[2], &h);

    *out_loss = NULL;
    if (status == CORE_OK)
        status = core_relu(h, &a);
    if (status == CORE_OK)
        status = core_mm(a, inputs[3], &y);
    if (status == CORE_OK)
        status = core_mse_loss(y, inputs[1], CORE_REDUCTION_MEAN, out_loss);
    core_tensor_release(h);
    core_tensor_release(a);
    core_tensor_release(y);
    return status;
}

/* A step of the smallest perceptron: 8-16-4, batch 1, plain gradient descent. */
static core_status step(void *context, core_tensor *const *inputs,
                        size_t ninputs, core_tensor **outputs, size_t *noutputs)
{
    core_tensor *loss, *grads[2] = {NULL};
    core_status status = loss_of(inputs, &loss);
    bool before;

    (void)context;
    (void)ninputs;
    if (status == CORE_OK)
        status = core_grad(&loss, 1, NULL, &inputs[2], 2, 0, grads);
    before = core_grad_mode_set(false);
    for (int i = 0; i < 2 && status == CORE_OK; i++)
        status = core_add_(inputs[2 + i], grads[i], core_float(-.01));
    core_grad_mode_set(before);
    if (status == CORE_OK)
        status = core_detach(loss, &outputs[0]);
    core_tensor_release(loss);
    core_tensor_release(grads[0]);
    core_tensor_release(grads[1]);
    *noutputs = 1;
    return status;
}

/* The same, of which the caller makes the backward. */
static core_status loss(void *context, core_tensor *const *inputs,
                        size_t ninputs, core_tensor **outputs, size_t *noutputs)
{
    (void)context;
    (void)ninputs;
    *noutputs = 1;
    return loss_of(inputs, &outputs[0]);
}

static void take_gradients(const fixture *f, core_tensor *out)
{
    core_tensor *grads[2];

    if (!core_tensor_requires_grad(out))
        return;
    must(core_grad(&out, 1, NULL, &f->inputs[2], 2, 0, grads));
    core_tensor_release(grads[0]);
    core_tensor_release(grads[1]);
}

static void call_function(void *context)
{
    fixture *f = context;
    core_tensor *out = NULL;
    size_t count = 1;

    must(f->function(NULL, f->inputs, f->ninputs, &out, &count));
    take_gradients(f, out);
    core_tensor_release(out);
}

static void call_compiled(void *context)
{
    fixture *f = context;
    core_tensor *out;

    must(core_compiled_call(f->compiled, f->inputs, f->ninputs, &out, 1));
    take_gradients(f, out);
    core_tensor_release(out);
}

static void compile_again(void *context)
{
    fixture *f = context;
    core_compiled *before = f->compiled;

    must(core_compile(f->function, NULL, NULL, &f->compiled));
    call_compiled(f);
    core_compiled_release(before);
}

static void measure(const char *name, fixture *f)
{
    char full[64];

    must(core_compile(f->function, NULL, NULL, &f->compiled));
    snprintf(full, sizeof full, "%s.eager", name);
    bench_out(full, bench_seconds(call_function, f, 0.02) * 1e9, "ns");
    snprintf(full, sizeof full, "%s.compiled", name);
    bench_out(full, bench_seconds(call_compiled, f, 0.02) * 1e9, "ns");
    snprintf(full, sizeof full, "%s.compile_ms", name);
    bench_out(full, bench_seconds(compile_again, f, 0.02) * 1e3, "ms");
    core_compiled_release(f->compiled);
}

static void release(fixture *f)
{
    for (size_t i = 0; i < f->ninputs; i++)
        core_tensor_release(f->inputs[i]);
}

void bench_compile(void)
{
    int64_t sizes[] = {4, 4}, wide[] = {1, 8}, narrow[] = {1, 4};
    int64_t first[] = {8, 16}, second[] = {16, 4};
    fixture f = {.function = returns_an_input, .ninputs = GUARDED};
    bool before;

    for (int i = 0; i < GUARDED; i++)
        f.inputs[i] = bench_full(sizes, 2, 1);
    must(core_compile(f.function, NULL, NULL, &f.compiled));
    bench_ns("compile.guards_8_inputs", call_compiled, &f);
    core_compiled_release(f.compiled);
    release(&f);
    f = (fixture){.function = chain, .ninputs = 1};
    f.inputs[0] = bench_full(sizes, 2, 1);
    measure("compile.chain3", &f);
    release(&f);
    f = (fixture){.function = step, .ninputs = PERCEPTRON};
    f.inputs[0] = bench_full(wide, 2, 1);
    f.inputs[1] = bench_full(narrow, 2, 1);
    f.inputs[2] = bench_requires_grad(bench_full(first, 2, .01F));
    f.inputs[3] = bench_requires_grad(bench_full(second, 2, .01F));
    before = core_grad_mode_set(true);
    measure("compile.mlp_tiny_8-16-4_b1_step", &f);
    f.function = loss;
    measure("compile.mlp_tiny_8-16-4_b1_loss_and_grad", &f);
    core_grad_mode_set(before);
    release(&f);
}
