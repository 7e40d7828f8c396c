/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* A two-layer LSTM learns to continue sine waves of random phase and pitch.
 * Then it continues one by itself, a step at a time, with its states.
 *
 *     lstm [DEVICE]        such as cpu, cuda:0, opencl:0 */

#include <libcore/core.h>
#include <libcore/network.h>

#include <math.h>
#include <stdio.h>

enum { BATCH = 32, STEPS = 40, HIDDEN = 32, LAYERS = 2, HEARD = 10 };

static core_module *make(void)
{
    core_module *m = core_x_nn_sequential(NULL, NULL);

    core_x_nn_lstm(m, NULL, 1, HIDDEN, LAYERS, .batch_first = true);
    core_x_nn_linear(m, NULL, HIDDEN, 1);
    return m;
}

/* Waves [BATCH, STEPS + 1, 1]. */
static core_tensor *waves(void)
{
    core_tensor *pitch = core_x_rand(CORE_SIZES(BATCH, 1));
    core_tensor *phase = core_x_rand(CORE_SIZES(BATCH, 1));
    core_tensor *time = core_x_arange(STEPS + 1, CORE_F32);

    pitch = core_x_add(core_x_mul(pitch, 0.3), 0.2);
    phase = core_x_mul(phase, 6.2832);
    time = core_x_add(core_x_mul(time, pitch), phase);
    return core_x_unsqueeze(core_x_sin(time), 2);
}

static core_tensor *loss_of(core_module *m)
{
    core_tensor *x = waves();
    /* With noise, so that it learns to correct its own errors. */
    core_tensor *noise = core_x_mul(core_x_randn_like(x), .1);
    core_tensor *y = core_x_narrow(core_x_add(x, noise), 1, 0, STEPS);

    /* The first ones cannot be known. */
    y = core_x_narrow(core_x_module(m, y), 1, HEARD, STEPS - HEARD);
    return core_x_mse_loss(y, core_x_narrow(x, 1, HEARD + 1, STEPS - HEARD));
}

static void train(core_module *m)
{
    core_optimizer *adam = core_x_adam(m, .learning_rate = 0.01);

    for (int i = 0; core_scope_status() == CORE_OK && i <= 300; i++) {
        core_scope scope = core_scope_begin();
        core_tensor *loss = loss_of(m);

        CORE_CHECK(core_backward(&loss, 1, NULL, 0));
        core_x_clip_grad_norm(m, 1);
        CORE_CHECK(core_optimizer_step(adam));
        core_optimizer_zero_grad(adam);
        if (i % 100 == 0 && core_scope_status() == CORE_OK)
            printf("step %3d  loss %.4f\n", i, core_x_item_float(loss));
        core_scope_end_nested(scope);
    }
}

/* Hears the first HEARD steps of a wave, then continues it from its own
 * outputs. */
static void generate(core_module *m)
{
    core_tensor *wave = core_x_narrow(waves(), 0, 0, 1);
    core_tensor *x = core_x_narrow(wave, 1, 0, HEARD), *h = NULL, *c = NULL;
    double distance = 0;

    core_x_no_grad();
    for (int i = HEARD; i < STEPS; i++) {
        CORE_UNPACK(core_x_forward(core_x_nn_child(m, "0"), x, h, c), &x, &h,
                    &c);
        x = core_x_child(m, "1", core_x_narrow(x, 1, -1, 1));
        distance += fabs(core_x_item_float(x) -
                         core_x_item_float(core_x_narrow(wave, 1, i, 1)));
    }
    printf("continued alone: %.2f from the wave\n", distance / (STEPS - HEARD));
}

int main(int argc, char **argv)
{
    core_scope scope = core_scope_begin();
    core_module *m;

    core_seed(1);
    core_x_use_device(argc > 1 ? argv[1] : "cpu");
    m = make();
    train(m);
    generate(m);
    return core_scope_exit(scope);
}
