/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* A recurrent network: an LSTM of three layers over a sequence. */

#include "models.h"

#include <stdio.h>

enum { STEPS = 100, SIZE = 128, LAYERS = 3, PARAMETERS = 4 * LAYERS };

typedef struct lstm {
    core_tensor *x, *state[2], *p[PARAMETERS], *grad;
} lstm;

static core_tensor *output_of(const lstm *l)
{
    core_tensor *y, *h, *c;

    must(core_lstm(l->x, l->state, 2, l->p, PARAMETERS, true, LAYERS, 0, true,
                   false, false, &y, &h, &c));
    core_tensor_release(h);
    core_tensor_release(c);
    return y;
}

static void forward(void *context)
{
    core_tensor_release(output_of(context));
}

static void step(void *context)
{
    const lstm *l = context;
    core_tensor *y = output_of(l);

    must(core_backward(&y, 1, &l->grad, 0));
    core_tensor_release(y);
    for (int i = 0; i < PARAMETERS; i++)
        must(core_tensor_set_grad(l->p[i], NULL));
}

static void lstm_open(lstm *l, int64_t batch)
{
    l->x = bench_normal(SIZES(STEPS, batch, SIZE), 1);
    l->grad = bench_normal(SIZES(STEPS, batch, SIZE), 1);
    for (int i = 0; i < 2; i++)
        l->state[i] = bench_full(SIZES(LAYERS, batch, SIZE), 0);
    for (int i = 0; i < PARAMETERS; i++) {
        l->p[i] = i % 4 < 2 ? bench_normal(SIZES(4 * SIZE, SIZE), .05f)
                            : bench_normal(SIZES(4 * SIZE), .05f);
        must(core_tensor_set_requires_grad(l->p[i], true));
    }
}

static void lstm_close(const lstm *l)
{
    core_tensor_release(l->x);
    core_tensor_release(l->grad);
    for (int i = 0; i < 2; i++)
        core_tensor_release(l->state[i]);
    for (int i = 0; i < PARAMETERS; i++)
        core_tensor_release(l->p[i]);
}

void bench_recurrent(uint32_t threads)
{
    for (int64_t batch = 1; batch <= 8; batch += 7) {
        char name[64];
        bool before;
        lstm l;

        lstm_open(&l, batch);
        snprintf(name, sizeof name, "lstm_fwd+bwd_T100B%lldC128_3",
                 (long long)batch);
        bench_out_threads(name, threads, bench_seconds(step, &l, 0.1) * 1e3,
                          "ms");
        before = core_grad_mode_set(false);
        snprintf(name, sizeof name, "lstm_fwd_nograd_T100B%lldC128_3",
                 (long long)batch);
        bench_out_threads(name, threads, bench_seconds(forward, &l, 0.1) * 1e3,
                          "ms");
        core_grad_mode_set(before);
        lstm_close(&l);
    }
}
