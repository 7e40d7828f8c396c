/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Training steps: two perceptrons, a transformer block and an LSTM. */

#include "models.h"

#include <math.h>

static void mlp(uint32_t threads)
{
    bench_perceptron p;
    double seconds;

    bench_perceptron_open(&p, (const int64_t[]){784, 512, 256, 10}, 3, 128);
    seconds = bench_seconds(bench_perceptron_step, &p, 0.1);
    bench_out_threads("mlp_step_784-512-256-10_b128", threads, seconds * 1e3,
                      "ms");
    p.forward = p.backward = p.update = 0;
    p.steps = 0;
    for (int i = 0; i < 100; i++)
        bench_perceptron_step(&p);
    bench_out_threads("mlp_fwd", threads, p.forward / (double)p.steps * 1e3,
                      "ms");
    bench_out_threads("mlp_bwd", threads, p.backward / (double)p.steps * 1e3,
                      "ms");
    bench_out_threads("mlp_sgd", threads, p.update / (double)p.steps * 1e3,
                      "ms");
    bench_perceptron_close(&p);
}

static void tiny(uint32_t threads)
{
    bench_perceptron p;

    bench_perceptron_open(&p, (const int64_t[]){8, 16, 4}, 2, 1);
    bench_out_threads("mlp_tiny_8-16-4_b1_step", threads,
                      bench_seconds(bench_perceptron_step, &p, 0.05) * 1e6,
                      "us");
    bench_perceptron_close(&p);
}

static void transformer(uint32_t threads)
{
    bench_block b;
    bool before;

    bench_block_open(&b);
    bench_out_threads("xfmr_block_fwd+bwd_B8T128C256H8", threads,
                      bench_seconds(bench_block_step, &b, 0.1) * 1e3, "ms");
    bench_out_threads("xfmr_block_fwd_grad", threads,
                      bench_seconds(bench_block_forward, &b, 0.1) * 1e3, "ms");
    before = core_grad_mode_set(false);
    bench_out_threads("xfmr_block_fwd_nograd", threads,
                      bench_seconds(bench_block_forward, &b, 0.1) * 1e3, "ms");
    core_grad_mode_set(before);
    b.fused = true;
    bench_out_threads("xfmr_block_sdpa_fwd+bwd_B8T128C256H8", threads,
                      bench_seconds(bench_block_step, &b, 0.1) * 1e3, "ms");
    bench_block_close(&b);
}

/* Runs both in turn, so that other load affects both, and takes the minimum of
 * each. */
static void mixed(uint32_t threads)
{
    const bench_row rows[2] = {bench_block_step, bench_block_step_bf16};
    double least[2] = {INFINITY, INFINITY};
    bench_block b;

    bench_block_open(&b);
    for (int i = 0; i < 60; i++) {
        double begin = bench_now(), seconds;

        rows[i % 2](&b);
        seconds = bench_now() - begin;
        if (seconds < least[i % 2])
            least[i % 2] = seconds;
    }
    bench_out_threads("xfmr_block_fwd+bwd_least", threads, least[0] * 1e3,
                      "ms");
    bench_out_threads("xfmr_block_fwd+bwd_bf16_least", threads, least[1] * 1e3,
                      "ms");
    bench_out_threads("xfmr_block_bf16_speedup", threads, least[0] / least[1],
                      "times");
    bench_block_close(&b);
}

void bench_train(void)
{
    for (uint32_t threads = bench.first_threads; threads <= bench.last_threads;
         threads++) {
        must(core_threads_set(threads));
        mlp(threads);
        tiny(threads);
        transformer(threads);
        bench_recurrent(threads);
    }
    must(core_threads_set(1));
}

void bench_amp(void)
{
    for (uint32_t threads = bench.first_threads; threads <= bench.last_threads;
         threads++) {
        must(core_threads_set(threads));
        mixed(threads);
    }
    must(core_threads_set(1));
}
