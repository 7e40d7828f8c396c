/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Training steps and a chain of operators, called as they are and compiled. */

#include "models.h"

#include <libcore/memory.h>
#include <libcore/optim.h>

#include <stdio.h>

/* ----------------------------------------------------------------- chain -- */

enum {
    CHAIN = 1 << 24,
    CHAIN_IN_CACHE = 1 << 14,
    SHORT_CHAIN = 1 << 10,
    CHAIN_SHARE = 16
};

typedef core_status (*operation)(core_tensor *self, core_tensor **out);

static core_status add_one(core_tensor *self, core_tensor **out)
{
    return core_add_scalar(self, core_float(1), core_int(1), out);
}

static core_status halve(core_tensor *self, core_tensor **out)
{
    return core_mul_scalar(self, core_float(.5), out);
}

/* 13 operators, each on the result of the one before. */
static core_status chain13(void *context, core_tensor *const *inputs,
                           size_t ninputs, core_tensor **outputs,
                           size_t *noutputs)
{
    static const operation operations[] = {
        add_one,      core_relu, halve,    core_tanh, add_one,
        core_sigmoid, halve,     core_exp, core_neg,  core_abs,
        add_one,      core_sqrt, core_sin};
    core_tensor *y = core_tensor_retain(inputs[0]), *next;

    (void)context;
    (void)ninputs;
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        must(operations[i](y, &next));
        core_tensor_release(y);
        y = next;
    }
    outputs[0] = y;
    *noutputs = 1;
    return CORE_OK;
}

static void chain(const char *name, int64_t size, uint32_t threads)
{
    bench_compiled b = {.function = chain13,
                        .inputs = {bench_full(&size, 1, .5F)},
                        .ninputs = 1,
                        .noutputs = 1};

    bench_compiled_large(name, threads, &b);
    core_tensor_release(b.inputs[0]);
}

/* A step of a loop that reads a number. */
static void read_sum(void *context)
{
    core_tensor *x = context, *y = NULL, *sum;
    size_t count = 1;
    double number;

    must(chain13(NULL, &x, 1, &y, &count));
    must(core_sum(y, CORE_DTYPE_NONE, &sum));
    must(core_tensor_item_float(sum, &number));
    core_tensor_release(y);
    core_tensor_release(sum);
}

/* In a lazy region each step is a segment that is found again. */
static void loop(const char *name, int64_t size, uint32_t threads)
{
    core_tensor *x = bench_full(&size, 1, .5F);
    char full[96];

    snprintf(full, sizeof full, "%s.eager", name);
    bench_out_threads(full, threads, bench_seconds(read_sum, x, 0.02) * 1e6,
                      "us");
    must(core_lazy_begin(NULL));
    snprintf(full, sizeof full, "%s.lazy", name);
    bench_out_threads(full, threads, bench_seconds(read_sum, x, 0.02) * 1e6,
                      "us");
    must(core_lazy_end());
    core_tensor_release(x);
}

/* ----------------------------------------------------------------- steps -- */

static void perceptron(uint32_t threads)
{
    bench_perceptron p;
    bench_compiled b = {
        .function = bench_perceptron_function, .context = &p, .noutputs = 1};

    bench_perceptron_open(&p, (const int64_t[]){784, 512, 256, 10}, 3, 128);
    bench_compiled_large("compile.mlp_step_784-512-256-10_b128", threads, &b);
    bench_perceptron_close(&p);
}

static core_status optimize(void *context, core_tensor *const *inputs,
                            size_t ninputs, core_tensor **outputs,
                            size_t *noutputs)
{
    (void)inputs;
    (void)ninputs;
    (void)outputs;
    *noutputs = 0;
    return core_optimizer_step(context);
}

/* The update alone. */
static void adam(uint32_t threads)
{
    const core_adam_options options = {.struct_size = sizeof options,
                                       .learning_rate = 1e-3,
                                       .beta1 = .9,
                                       .beta2 = .999,
                                       .epsilon = 1e-8};
    bench_compiled b = {.function = optimize};
    core_optimizer *optimizer;
    bench_perceptron p;

    bench_perceptron_open(&p, (const int64_t[]){784, 512, 256, 10}, 3, 128);
    for (int i = 0; i < 2 * p.layers; i++) {
        core_tensor *grad;

        must(core_full_like(p.parameters[i], core_float(.001), CORE_DTYPE_NONE,
                            NULL, -1, &grad));
        must(core_tensor_set_grad(p.parameters[i], grad));
        core_tensor_release(grad);
    }
    must(core_adam_create(p.parameters, 2 * (size_t)p.layers, &options,
                          &optimizer));
    b.context = optimizer;
    bench_compiled_large("compile.adam_step_784-512-256-10", threads, &b);
    core_optimizer_release(optimizer);
    bench_perceptron_close(&p);
}

static void backward(bench_compiled *b, core_tensor *out)
{
    bench_block_backward(b->context, out);
}

static void block(uint32_t threads)
{
    bench_block model;
    bench_compiled b = {
        .function = bench_block_function, .context = &model, .noutputs = 1};

    bench_block_open(&model);
    bench_compiled_large("compile.xfmr_block_step_B8T128C256H8", threads, &b);
    b.function = bench_block_forward_function;
    b.after = backward;
    bench_compiled_large("compile.xfmr_block_fwd+bwd_B8T128C256H8", threads,
                         &b);
    bench_block_close(&model);
}

/* ---------------------------------------------------------------- memory -- */

/* The most bytes of `sim` in use at once during a call. */
static double peak_of(core_device *sim, bench_row call, bench_compiled *b)
{
    core_memory_stats stats = {.struct_size = sizeof stats};

    call(b);
    must(core_device_synchronize(sim));
    must(core_memory_reset_peaks(sim));
    call(b);
    must(core_device_synchronize(sim));
    must(core_memory_get_stats(sim, &stats));
    return (double)stats.allocated_bytes[CORE_MEMORY_ALL].peak * 1e-6;
}

/* What the block's step needs, parameters included.  "sim" counts memory. */
static void memory(void)
{
    core_device *sim, *cpu;
    bench_block model;
    bench_compiled b = {
        .function = bench_block_function, .context = &model, .noutputs = 1};

    if (core_device_find("sim", &sim) != CORE_OK) {
        fprintf(stderr, "core-bench: compile: memory: skipped: %s\n",
                core_error_message());
        return;
    }
    must(core_device_find("cpu", &cpu));
    must(core_device_set_current(sim));
    bench_block_open(&model);
    must(core_compile(b.function, b.context, NULL, &b.compiled));
    bench_out("compile.xfmr_block_step_peak.eager",
              peak_of(sim, bench_call_function, &b), "MB");
    bench_out("compile.xfmr_block_step_peak.compiled",
              peak_of(sim, bench_call_compiled, &b), "MB");
    core_compiled_release(b.compiled);
    bench_block_close(&model);
    must(core_device_set_current(cpu));
}

void bench_compiled_models(void)
{
    bool trial = bench_only_checks();

    for (uint32_t threads = bench.first_threads; threads <= bench.last_threads;
         threads++) {
        must(core_threads_set(threads));
        chain("compile.chain13_16M", trial ? SHORT_CHAIN : CHAIN, threads);
        chain("compile.chain13_16K", CHAIN_IN_CACHE, threads);
        loop("compile.loop_chain13_item_16", 16, threads);
        loop("compile.loop_chain13_item_16K", CHAIN_IN_CACHE, threads);
        loop("compile.loop_chain13_item_1M",
             trial ? SHORT_CHAIN : CHAIN / CHAIN_SHARE, threads);
        perceptron(threads);
        adam(threads);
        block(threads);
        bench_compiled_fused(threads);
    }
    must(core_threads_set(1));
    memory();
}
