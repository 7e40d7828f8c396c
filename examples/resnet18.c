/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Trains a ResNet-18 (He et al. 2016) on images made here: a pattern for each of
 * ten labels, and noise.
 *
 *     resnet18 [DEVICE [STEPS [WEIGHTS]]]
 *
 * WEIGHTS: safetensors of a trained ResNet-18, with the names of torchvision,
 * which the modules have here, too.  Its last layer, for other labels, is not
 * used. */

#include <libcore/core.h>
#include <libcore/network.h>

#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 8, SIDE = 32, LABELS = 10 };

static core_tensor *basic_block(core_module *m, core_tensor *x)
{
    core_tensor *y = core_x_relu(core_x_children(m, x, "conv1", "bn1"));

    y = core_x_children(m, y, "conv2", "bn2");
    if (core_module_child(m, "downsample"))
        x = core_x_child(m, "downsample", x);
    return core_x_relu(core_x_add(y, x));
}

static void add_block(core_module *layer, int64_t in, int64_t out, int64_t step)
{
    core_module *m = core_x_nn_module(layer, NULL, basic_block);

    core_x_nn_conv2d(m, "conv1", in, out, {3}, {step}, {1}, .no_bias = true);
    core_x_nn_batch_norm(m, "bn1", out);
    core_x_nn_conv2d(m, "conv2", out, out, {3}, {1}, {1}, .no_bias = true);
    core_x_nn_batch_norm(m, "bn2", out);
    if (in == out)
        return;
    m = core_x_nn_sequential(m, "downsample");
    core_x_nn_conv2d(m, NULL, in, out, {1}, {step}, .no_bias = true);
    core_x_nn_batch_norm(m, NULL, out);
}

static core_tensor *resnet(core_module *m, core_tensor *x)
{
    x = core_x_relu(core_x_children(m, x, "conv1", "bn1"));
    x = core_x_max_pool2d(x, CORE_SIZES(3), CORE_SIZES(2), CORE_SIZES(1));
    x = core_x_children(m, x, "layer1", "layer2", "layer3", "layer4");
    return core_x_child(m, "fc", core_x_mean_dim(x, CORE_SIZES(2, 3)));
}

/* weights: of all layers but the last one; may be NULL. */
static core_module *make_resnet(const char *weights)
{
    core_module *m = core_x_nn_module(NULL, NULL, resnet);
    const char *const names[] = {"layer1", "layer2", "layer3", "layer4"};

    core_x_nn_conv2d(m, "conv1", 3, 64, {7}, {2}, {3}, .no_bias = true);
    core_x_nn_batch_norm(m, "bn1", 64);
    for (int i = 0; i < 4; i++) {
        core_module *layer = core_x_nn_sequential(m, names[i]);

        add_block(layer, i ? 32 << i : 64, 64 << i, i ? 2 : 1);
        add_block(layer, 64 << i, 64 << i, 1);
    }
    if (weights) /* there "fc" is unexpected */
        CORE_CHECK(core_module_load(m, weights, NULL,
                                    CORE_MODULE_ALLOW_UNEXPECTED, NULL));
    core_x_nn_linear(m, "fc", 512, LABELS);
    return m;
}

int main(int argc, char **argv)
{
    core_scope all = core_scope_begin();
    int steps = argc > 2 ? atoi(argv[2]) : 20;
    core_tensor *patterns;
    core_optimizer *sgd;
    core_module *m;

    core_seed(1);
    core_x_use_device(argc > 1 ? argv[1] : "cpu");
    m = make_resnet(argc > 3 ? argv[3] : NULL);
    sgd = core_x_sgd(m, .learning_rate = 0.02, .momentum = 0.9,
                     .weight_decay = 1e-4);
    patterns = core_x_randn(CORE_SIZES(LABELS, 3, SIDE, SIDE));
    for (int i = 0; i < steps && core_scope_status() == CORE_OK; i++) {
        core_scope scope = core_scope_begin();
        core_tensor *labels = core_x_randint(LABELS, CORE_SIZES(BATCH));
        core_tensor *x = core_x_index_select(patterns, 0, labels), *loss;

        x = core_x_add(x, core_x_randn_like(x));
        loss = core_x_cross_entropy_loss(core_x_module(m, x), labels);
        core_x_minimize(sgd, loss);
        if (core_scope_status() == CORE_OK)
            printf("step %d  loss %.3f\n", i, core_x_item_float(loss));
        core_scope_end_nested(scope);
    }
    return core_scope_exit(all);
}
