/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Compiled functions: what the guards of a call cost, and small functions
 * called as they are and compiled. */

#include "bench.h"

#include <stdio.h>
#include <stdlib.h>

enum { GUARDED = 8, PERCEPTRON = 4 };

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

core_status bench_chain3(void *context, core_tensor *const *inputs,
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

/* Of the weights, which are the last two inputs. */
static void take_gradients(bench_compiled *b, core_tensor *out)
{
    core_tensor *grads[2];

    must(core_grad(&out, 1, NULL, &b->inputs[b->ninputs - 2], 2, 0, grads));
    core_tensor_release(grads[0]);
    core_tensor_release(grads[1]);
}

void bench_call_function(void *context)
{
    bench_compiled *b = context;
    core_tensor *out = NULL;
    size_t count = 1;

    must(b->function(b->context, b->inputs, b->ninputs, &out, &count));
    if (b->after)
        b->after(b, out);
    core_tensor_release(out);
}

void bench_call_compiled(void *context)
{
    bench_compiled *b = context;
    core_tensor *out = NULL;

    must(core_compiled_call(b->compiled, b->inputs, b->ninputs, &out,
                            b->noutputs));
    if (b->after)
        b->after(b, out);
    core_tensor_release(out);
}

static void compile_again(void *context)
{
    bench_compiled *b = context;
    core_compiled *before = b->compiled;

    must(core_compile(b->function, b->context, NULL, &b->compiled));
    bench_call_compiled(b);
    core_compiled_release(before);
}

/* How long core_compile and the first call take as in a new process: no kernel
 * is in memory, and what an earlier one measured is on disk. */
static double seconds_from_disk(bench_compiled *b)
{
    const core_compile_options options = {.struct_size = sizeof options,
                                          .mode = CORE_COMPILE_MAX_AUTOTUNE};
    double begin = bench_now(), seconds;

    must(core_compile(b->function, b->context, &options, &b->compiled));
    bench_call_compiled(b);
    seconds = bench_now() - begin;
    core_compiled_release(b->compiled);
    return seconds;
}

static uint64_t choices_stored(void)
{
    core_compile_cache cache = {.struct_size = sizeof cache};

    must(core_compile_get_cache(&cache, NULL, 0));
    return cache.choices_stored;
}

static void measure_cached(const char *name, const char *suffix,
                           bench_compiled *b)
{
    bool trial = bench_only_checks();
    int repeats = trial ? 1 : BENCH_REPEATS;
    double values[BENCH_REPEATS];
    uint64_t stored;
    char full[96];

    seconds_from_disk(b);
    stored = choices_stored();
    for (int i = 0; i < repeats; i++)
        values[i] = seconds_from_disk(b);
    snprintf(full, sizeof full, "%s.cached_ms%s", name, suffix);
    bench_out(full, bench_median(values, repeats) * 1e3, "ms");
    if (choices_stored() != stored) {
        fprintf(stderr, "core-bench: %s: the cache on disk was not used\n",
                full);
        exit(EXIT_FAILURE);
    }
}

static core_compile_counts counts_now(void)
{
    core_compile_counts counts = {.struct_size = sizeof counts};

    must(core_compile_get_counts(&counts));
    return counts;
}

/* Prints the rows; `scale` is that of `unit`. */
static void measure(const char *name, const char *suffix, bench_compiled *b,
                    double scale, const char *unit)
{
    core_compile_counts before, after;
    char full[96];

    must(core_compile(b->function, b->context, NULL, &b->compiled));
    snprintf(full, sizeof full, "%s.eager%s", name, suffix);
    bench_out(full, bench_seconds(bench_call_function, b, 0.02) * scale, unit);
    snprintf(full, sizeof full, "%s.compiled%s", name, suffix);
    bench_out(full, bench_seconds(bench_call_compiled, b, 0.02) * scale, unit);
    before = counts_now();
    snprintf(full, sizeof full, "%s.compile_ms%s", name, suffix);
    bench_out(full, bench_seconds(compile_again, b, 0.02) * 1e3, "ms");
    after = counts_now();
    snprintf(full, sizeof full, "%s.trace_ms%s", name, suffix);
    bench_out(full,
              (double)(after.trace_ns + after.prepare_ns - before.trace_ns -
                       before.prepare_ns) *
                  1e-6 / (double)(after.traces - before.traces),
              "ms");
    core_compiled_release(b->compiled);
    measure_cached(name, suffix, b);
}

void bench_compiled_small(const char *name, bench_compiled *b)
{
    measure(name, "", b, 1e9, "ns");
}

void bench_compiled_large(const char *name, uint32_t threads, bench_compiled *b)
{
    char suffix[16];

    snprintf(suffix, sizeof suffix, "/t%u", threads);
    measure(name, suffix, b, 1e3, "ms");
}

void bench_compiled_release(bench_compiled *b)
{
    for (size_t i = 0; i < b->ninputs; i++)
        core_tensor_release(b->inputs[i]);
}

void bench_guards_open(bench_compiled *b)
{
    int64_t sizes[] = {4, 4};

    *b = (bench_compiled){
        .function = returns_an_input, .ninputs = GUARDED, .noutputs = 1};
    for (int i = 0; i < GUARDED; i++)
        b->inputs[i] = bench_full(sizes, 2, 1);
    must(core_compile(b->function, NULL, NULL, &b->compiled));
}

void bench_step_open(bench_compiled *b)
{
    int64_t wide[] = {1, 8}, narrow[] = {1, 4};
    int64_t first[] = {8, 16}, second[] = {16, 4};

    *b = (bench_compiled){
        .function = step, .ninputs = PERCEPTRON, .noutputs = 1};
    b->inputs[0] = bench_full(wide, 2, 1);
    b->inputs[1] = bench_full(narrow, 2, 1);
    b->inputs[2] = bench_requires_grad(bench_full(first, 2, .01F));
    b->inputs[3] = bench_requires_grad(bench_full(second, 2, .01F));
}

static void guards(void)
{
    bench_compiled b;

    bench_guards_open(&b);
    bench_ns("compile.guards_8_inputs", bench_call_compiled, &b);
    core_compiled_release(b.compiled);
    bench_compiled_release(&b);
}

static void smallest(void)
{
    int64_t sizes[] = {4, 4};
    bench_compiled b = {.function = bench_chain3, .ninputs = 1, .noutputs = 1};
    bool before;

    b.inputs[0] = bench_full(sizes, 2, 1);
    bench_compiled_small("compile.chain3", &b);
    bench_compiled_release(&b);
    bench_step_open(&b);
    before = core_grad_mode_set(true);
    bench_compiled_small("compile.mlp_tiny_8-16-4_b1_step", &b);
    b.function = loss;
    b.after = take_gradients;
    bench_compiled_small("compile.mlp_tiny_8-16-4_b1_loss_and_grad", &b);
    core_grad_mode_set(before);
    bench_compiled_release(&b);
}

void bench_compile(void)
{
    bench_cache_open();
    guards();
    smallest();
    bench_compiled_models();
    bench_cache_close();
}
