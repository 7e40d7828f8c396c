/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Detects where a voice sounds in a noisy signal, chunk by chunk.
 *
 *     voice_activity [DEVICE [FILE]]
 *
 * One function is the network: its layers are created by the first call, of the
 * sizes of their inputs.  The program trains it, saves it to FILE (default:
 * voice_activity.safetensors), and computes it again with the tensors of the file,
 * whose names and sizes are compared with those of the function.  The voices are
 * tones with overtones, of random pitch. */

#include <libcore/core.h>
#include <libcore/network.h>
#include <libcore/random.h>

enum { CHUNK = 64, CHUNKS = 16, BATCH = 16, WIDTH = 16, STEPS = 60 };

/* Whether the next chunk [N, CHUNK] of N signals has a voice, as a logit [N].  h
 * and c: the states after the chunks before, which change; NULL at first. */
static core_tensor *detect(core_module *m, core_tensor *x, core_tensor **h,
                           core_tensor **c)
{
    x = core_x_unsqueeze(x, 1);
    x = core_x_lazy_conv1d(m, "encoder.0", x, 8, {16}, {4});
    x = core_x_lazy_conv1d(m, "encoder.1", core_x_relu(x), WIDTH, {4}, {2});
    x = core_x_mean_dim(core_x_relu(x), CORE_SIZES(2));
    CORE_UNPACK(core_x_lazy_lstm_cell(m, "rnn", CORE_LIST(x, *h, *c), WIDTH), h,
                c);
    return core_x_squeeze_dim(core_x_lazy_linear(m, "out", *h, 1), 1);
}

/* The logits of all chunks: [N, CHUNKS]. */
static core_tensor *detect_all(core_module *m, core_tensor *audio)
{
    core_growing_list logits = {0};
    core_tensor *h = NULL, *c = NULL;

    for (int i = 0; i < CHUNKS; i++) {
        core_tensor *x =
            core_x_part(audio, ":, *:*", i * CHUNK, (i + 1) * CHUNK);

        core_x_append(&logits, detect(m, x, &h, &c));
    }
    return core_x_stack(logits.list, 1);
}

/* Signals [count, CHUNKS * CHUNK], in which voices come and go, and 1 for each
 * chunk in which there is one: [count, CHUNKS]. */
static core_tensor *signals(int64_t count, core_tensor **voiced)
{
    core_tensor *rate = core_x_add(core_x_rand(CORE_SIZES(count, 1)), 0.3);
    core_tensor *phase = core_x_mul(core_x_rand(CORE_SIZES(count, 1)), 6.3);
    core_tensor *pitch = core_x_rand(CORE_SIZES(count, 1));
    core_tensor *place = core_x_arange(CHUNKS * CHUNK), *x, *tone;

    x = core_x_add(core_x_mul(rate, core_x_arange(CHUNKS)), phase);
    *voiced = core_x_to(core_x_gt(core_x_sin(x), 0), CORE_F32);
    pitch = core_x_add(core_x_mul(pitch, 0.3), 0.2);
    x = core_x_mul(pitch, place);
    tone = core_x_add(core_x_sin(x), core_x_sin(core_x_mul(x, 2)), 0.5);
    tone =
        core_x_mul(tone, core_x_repeat_interleave_self_int(*voiced, CHUNK, 1));
    return core_x_add(tone, core_x_randn(CORE_SIZES(count, CHUNKS * CHUNK)),
                      0.5);
}

static void train(core_module *m)
{
    core_tensor *voiced, *x = signals(BATCH, &voiced);
    core_optimizer *adam;

    detect_all(m, x); /* creates the parameters */
    adam = core_x_adam(m, .learning_rate = 0.01);
    for (int i = 0; i < STEPS && core_scope_status() == CORE_OK; i++) {
        core_scope scope = core_scope_begin();
        core_tensor *loss;

        x = detect_all(m, signals(BATCH, &voiced));
        loss = core_x_binary_cross_entropy_with_logits(x, voiced);
        core_x_minimize(adam, loss);
        if (i % 10 == 9)
            core_x_printf("step %d: loss %.3f\n", i, core_x_item_float(loss));
        core_scope_end_nested(scope);
    }
}

CORE_MAIN(argc, argv)
{
    const char *device = argc > 1 ? argv[1] : "cpu";
    const char *file = argc > 2 ? argv[2] : "voice_activity.safetensors";
    core_module *m = core_x_nn_container(NULL, NULL);
    core_tensor *voiced, *x, *found;

    core_x_use_device(device);
    core_seed(7);
    train(m);
    CORE_CHECK(core_module_save(m, file));

    m = core_x_inference(core_x_nn_from_file(file));
    x = signals(200, &voiced);
    found = core_x_to(core_x_gt(detect_all(m, x), 0), CORE_F32);
    x = core_x_mean(core_x_to(core_x_eq(found, voiced), CORE_F32));
    core_x_printf("of the chunks %.0f %% are right\n",
                  100 * core_x_item_float(x));
}
