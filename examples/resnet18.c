/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Trains a ResNet-18 (He et al. 2016) on images made here: a pattern for each of
 * ten labels, and noise.  The modules have the names that they have in
 * torchvision, so core_module_load reads its weights.
 *
 *     resnet18 [DEVICE [STEPS]] */

#include <libcore/core.h>
#include <libcore/expressions.h>

#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 8, SIDE = 32, LABELS = 10 };

/* A convolution that keeps the size divided by stride, and its normalization. */
static core_status add_conv(core_module *m, const char *conv, const char *norm,
                            int64_t in, int64_t out, int64_t kernel,
                            int64_t stride, const core_nn_options *options)
{
    const core_nn_conv_options c = {.struct_size = sizeof c,
                                    .dims = 2,
                                    .in_channels = in,
                                    .out_channels = out,
                                    .kernel_size = {kernel},
                                    .stride = {stride},
                                    .padding = {kernel / 2},
                                    .no_bias = true};
    core_module *part;

    CORE_TRY(core_module_take_child(m, conv, core_nn_conv(&c, options, &part),
                                    &part));
    return core_module_take_child(
        m, norm, core_nn_batch_norm(out, 1e-5, 0.1, true, options, &part),
        &part);
}

static core_tensor *block_forward(core_module *m, core_tensor *x)
{
    core_tensor *y =
        core_x_relu(core_x_child(m, "bn1", core_x_child(m, "conv1", x)));

    y = core_x_child(m, "bn2", core_x_child(m, "conv2", y));
    if (core_module_child(m, "downsample"))
        x = core_x_child(m, "downsample", x);
    return core_x_relu(core_x_add(y, x));
}

static core_status add_block(core_module *layer, const char *name, int64_t in,
                             int64_t out, int64_t stride,
                             const core_nn_options *options)
{
    core_module *block, *shortcut;

    CORE_TRY(core_module_take_child(
        layer, name, core_nn_expression("BasicBlock", block_forward, &block),
        &block));
    block = core_module_child(layer, name);
    CORE_TRY(add_conv(block, "conv1", "bn1", in, out, 3, stride, options));
    CORE_TRY(add_conv(block, "conv2", "bn2", out, out, 3, 1, options));
    if (in == out)
        return CORE_OK;
    CORE_TRY(core_module_take_child(block, "downsample",
                                    core_nn_sequential(NULL, 0, &shortcut),
                                    &shortcut));
    return add_conv(core_module_child(block, "downsample"), "0", "1", in, out,
                    1, stride, options);
}

static core_status add_parts(core_module *m, const core_nn_options *options)
{
    static const char *const names[] = {"layer1", "layer2", "layer3", "layer4"};
    core_module *child;
    int64_t in = 64;

    CORE_TRY(add_conv(m, "conv1", "bn1", 3, 64, 7, 2, options));
    for (int i = 0; i < 4; in = 64 << i++) {
        CORE_TRY(core_module_take_child(
            m, names[i], core_nn_sequential(NULL, 0, &child), &child));
        child = core_module_child(m, names[i]);
        CORE_TRY(add_block(child, "0", in, 64 << i, i ? 2 : 1, options));
        CORE_TRY(add_block(child, "1", 64 << i, 64 << i, 1, options));
    }
    return core_module_take_child(
        m, "fc", core_nn_linear(512, LABELS, true, options, &child), &child);
}

static core_tensor *forward(core_module *m, core_tensor *x)
{
    x = core_x_relu(core_x_child(m, "bn1", core_x_child(m, "conv1", x)));
    x = core_x_max_pool2d(x, CORE_SIZES(3), CORE_SIZES(2), CORE_SIZES(1));
    x = core_x_child(m, "layer2", core_x_child(m, "layer1", x));
    x = core_x_child(m, "layer4", core_x_child(m, "layer3", x));
    return core_x_child(m, "fc", core_x_mean_dim(x, CORE_SIZES(2, 3)));
}

static core_status train(core_module *m, core_device *device, int steps)
{
    const core_sgd_options sgd = {.struct_size = sizeof sgd,
                                  .learning_rate = 0.02,
                                  .momentum = 0.9,
                                  .weight_decay = 1e-4};
    core_scope all = core_scope_begin();
    core_tensor *patterns =
        core_x_randn(CORE_SIZES(LABELS, 3, SIDE, SIDE), NULL, CORE_F32, device);
    core_module_tensors parameters = {0};
    core_optimizer *optimizer = NULL;
    core_status status;

    CORE_CHECK(core_module_list(m, NULL, CORE_MODULE_PARAMETERS, &parameters));
    CORE_CHECK(core_sgd_create(parameters.tensors, parameters.count, &sgd,
                               &optimizer));
    status = core_scope_status();
    for (int i = 0; i < steps && status == CORE_OK; i++) {
        core_scope scope = core_scope_begin();
        core_tensor *labels =
            core_x_randint(LABELS, CORE_SIZES(BATCH), NULL, CORE_I64, device);
        core_tensor *x = core_x_index_select(patterns, 0, labels), *loss;

        x = core_x_add(x, core_x_randn_like(x));
        loss = core_x_cross_entropy_loss(forward(m, x), labels);
        CORE_CHECK(core_backward(&loss, 1, NULL, 0));
        CORE_CHECK(core_optimizer_step(optimizer));
        core_optimizer_zero_grad(optimizer);
        printf("step %d  loss %.3f\n", i, core_x_item_float(loss));
        status = core_scope_end(scope);
    }
    core_optimizer_release(optimizer);
    core_module_tensors_free(&parameters);
    CORE_CHECK(status);
    return core_scope_end(all);
}

int main(int argc, char **argv)
{
    core_nn_options options = {.struct_size = sizeof options};
    core_module *m = NULL;
    core_status status;

    core_seed(1);
    status = core_device_find(argc > 1 ? argv[1] : "cpu", &options.device);
    if (status == CORE_OK)
        status = core_module_create("ResNet", NULL, NULL, NULL, &m);
    if (status == CORE_OK)
        status = add_parts(m, &options);
    if (status == CORE_OK)
        status = train(m, options.device, argc > 2 ? atoi(argv[2]) : 20);
    if (status != CORE_OK)
        fprintf(stderr, "%s\n", core_error_message());
    core_module_release(m);
    return status != CORE_OK;
}
