/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* A two-layer LSTM learns to continue sine waves of random phase and pitch.
 * Then it continues one by itself, a step at a time, with its states.
 *
 *     lstm [DEVICE]        such as cpu, cuda:0, opencl:0 */

#include <libcore/core.h>
#include <libcore/expressions.h>

#include <math.h>
#include <stdio.h>

enum { BATCH = 32, STEPS = 40, HIDDEN = 32, LAYERS = 2, HEARD = 10 };

static core_status create(const core_nn_options *options, core_module **out)
{
    const core_nn_recurrent_options lstm = {.struct_size = sizeof lstm,
                                            .kind = CORE_NN_LSTM,
                                            .input_size = 1,
                                            .hidden_size = HIDDEN,
                                            .layers = LAYERS,
                                            .batch_first = true};
    core_module *parts[2] = {NULL, NULL};

    CORE_TRY(core_nn_recurrent(&lstm, options, &parts[0]));
    (void)core_nn_linear(HIDDEN, 1, true, options, &parts[1]);
    return core_nn_sequential(parts, 2, out);
}

/* Waves [BATCH, STEPS + 1, 1]. */
static core_tensor *waves(core_device *device)
{
    core_tensor *time = core_x_arange(core_int(STEPS + 1), CORE_F32, device);
    core_tensor *pitch =
        core_x_rand(CORE_SIZES(BATCH, 1), NULL, CORE_F32, device);
    core_tensor *phase =
        core_x_rand(CORE_SIZES(BATCH, 1), NULL, CORE_F32, device);

    pitch = core_x_add_scalar(core_x_mul_scalar(pitch, core_float(0.3)),
                              core_float(0.2));
    phase = core_x_mul_scalar(phase, core_float(6.2832));
    time = core_x_add(core_x_mul(time, pitch), phase);
    return core_x_unsqueeze(core_x_sin(time), 2);
}

static core_status step(core_module *network,
                        const core_module_tensors *parameters,
                        core_optimizer *optimizer, core_device *device,
                        double *out_loss)
{
    core_scope scope = core_scope_begin();
    core_tensor *x = waves(device);
    /* With noise, so that it learns to correct its own errors. */
    core_tensor *noise =
        core_x_mul_scalar(core_x_randn_like(x), core_float(0.1));
    core_tensor *y = core_x_module(
        network, core_x_narrow(core_x_add(x, noise), 1, 0, STEPS));
    /* The first ones cannot be known. */
    core_tensor *loss =
        core_x_mse_loss(core_x_narrow(y, 1, HEARD, STEPS - HEARD),
                        core_x_narrow(x, 1, HEARD + 1, STEPS - HEARD));

    CORE_CHECK(core_backward(&loss, 1, NULL, 0));
    CORE_CHECK(core_clip_grad_norm(parameters->tensors, parameters->count, 1, 2,
                                   false, NULL));
    CORE_CHECK(core_optimizer_step(optimizer));
    core_optimizer_zero_grad(optimizer);
    *out_loss = core_x_item_float(loss);
    return core_scope_end(scope);
}

static core_status train(core_module *network, core_device *device)
{
    const core_adam_options adam = {.struct_size = sizeof adam,
                                    .learning_rate = 0.01,
                                    .beta1 = 0.9,
                                    .beta2 = 0.999,
                                    .epsilon = 1e-8};
    core_module_tensors parameters;
    core_optimizer *optimizer = NULL;
    core_status status;
    double loss = 0;

    CORE_TRY(
        core_module_list(network, NULL, CORE_MODULE_PARAMETERS, &parameters));
    status = core_adam_create(parameters.tensors, parameters.count, &adam,
                              &optimizer);
    for (int i = 0; status == CORE_OK && i <= 300; i++) {
        status = step(network, &parameters, optimizer, device, &loss);
        if (status == CORE_OK && i % 100 == 0)
            printf("step %3d  loss %.4f\n", i, loss);
    }
    core_optimizer_release(optimizer);
    core_module_tensors_free(&parameters);
    return status;
}

/* Hears the first HEARD steps of a wave, then continues it from its own outputs. */
static core_status generate(core_module *network, core_device *device)
{
    core_scope scope = core_scope_begin();
    bool before = core_grad_mode_set(false);
    core_tensor *wave = core_x_narrow(waves(device), 0, 0, 1);
    core_tensor *x = core_x_narrow(wave, 1, 0, HEARD);
    core_tensor *in[3] = {x, NULL, NULL}, *out[3] = {NULL};
    double distance = 0;

    for (int i = HEARD; i < STEPS; i++) {
        size_t count = 3, ninputs = in[1] ? 3 : 1;

        CORE_CHECK(core_module_forward(core_module_child(network, "0"), in,
                                       ninputs, out, &count));
        for (int k = 0; k < 3; k++)
            in[k] = core_scope_own(core_scope_status(), &out[k]);
        in[0] = core_x_module(core_module_child(network, "1"),
                              core_x_narrow(in[0], 1, -1, 1));
        distance += fabs(core_x_item_float(in[0]) -
                         core_x_item_float(core_x_narrow(wave, 1, i, 1)));
    }
    core_grad_mode_set(before);
    printf("continued alone: %.2f from the wave\n", distance / (STEPS - HEARD));
    return core_scope_end(scope);
}

int main(int argc, char **argv)
{
    core_nn_options options = {.struct_size = sizeof options};
    core_module *network = NULL;
    core_status status;

    core_seed(1);
    status = core_device_find(argc > 1 ? argv[1] : "cpu", &options.device);
    if (status == CORE_OK)
        status = create(&options, &network);
    if (status == CORE_OK)
        status = train(network, options.device);
    if (status == CORE_OK)
        status = generate(network, options.device);
    if (status != CORE_OK)
        fprintf(stderr, "%s\n", core_error_message());
    core_module_release(network);
    return status != CORE_OK;
}
