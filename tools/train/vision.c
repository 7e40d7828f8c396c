/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The image models. */

#include "layers.h"

#include <math.h>

/* Weight and bias of a layer are uniform in ± 1 / sqrt(inputs of an output):
 * Kaiming's initialization with a = sqrt(5), the usual one.  They are adjacent,
 * the weight first. */
static void range(const train_model *model, size_t parameter,
                  double *out_centre, double *out_bound)
{
    const core_tensor *weight = model->parameters[parameter / 2 * 2];
    double inputs = 1;

    for (uint32_t i = 1; i < core_tensor_ndim(weight); i++)
        inputs *= (double)core_tensor_size(weight, i);
    *out_centre = 0;
    *out_bound = 1 / sqrt(inputs);
}

/* ------------------------------------------------------------------ mlp -- */

static const int64_t mlp_sizes[] = {TRAIN_PIXELS, 256, 128, 100, TRAIN_CLASSES};
enum { MLP_LAYERS = sizeof mlp_sizes / sizeof *mlp_sizes - 1 };

static void mlp_build(train_model *model)
{
    for (int i = 0; i < MLP_LAYERS; i++)
        train_model_part(model,
                         core_x_nn_linear(model->root,
                                          core_x_text("layer%d", i + 1),
                                          mlp_sizes[i], mlp_sizes[i + 1]),
                         i, MLP_LAYERS);
}

static core_tensor *mlp_forward(const train_model *model, core_tensor *images,
                                bool training)
{
    core_tensor *x = train_linear(model, model->parts[0], images);

    (void)training;
    for (int i = 1; i < MLP_LAYERS; i++)
        x = train_linear(model, model->parts[i], core_x_relu(x));
    return x;
}

const train_model_kind train_mlp = {
    .name = "mlp",
    .description = "784-256-128-100-10",
    .task = &train_images_task,
    .defaults = {.epochs = 15,
                 .batch = 128,
                 .optimizer = TRAIN_ADAM,
                 .lr = 0.0015,
                 .lr_decay = 0.85},
    .build = mlp_build,
    .range = range,
    .forward = mlp_forward,
};

/* ------------------------------------------------------------------ cnn -- */

enum {
    SIDE = 28,
    FIRST = 24,
    SECOND = 48,
    FEATURES = SECOND * 49,
    HIDDEN = 32
};

enum { CONV1, CONV2, DENSE, OUTPUT, CNN_LAYERS };

/* The convolutions of 3 x 3 keep the size. */
static void cnn_build(train_model *model)
{
    core_module *m = model->root, *layers[CNN_LAYERS];

    layers[CONV1] = core_x_nn_conv2d(m, "conv1", 1, FIRST, {3}, {1}, {1});
    layers[CONV2] = core_x_nn_conv2d(m, "conv2", FIRST, SECOND, {3}, {1}, {1});
    layers[DENSE] = core_x_nn_linear(m, "hidden", FEATURES, HIDDEN);
    layers[OUTPUT] = core_x_nn_linear(m, "output", HIDDEN, TRAIN_CLASSES);
    for (int i = 0; i < CNN_LAYERS; i++)
        train_model_part(model, layers[i], i, CNN_LAYERS);
}

/* A convolution, and a maximum that halves the size. */
static core_tensor *convolve(core_module *layer, core_tensor *x)
{
    return core_x_max_pool2d(core_x_relu(train_layer(layer, x)), CORE_SIZES(2));
}

static core_tensor *cnn_forward(const train_model *model, core_tensor *images,
                                bool training)
{
    core_module *const *parts = model->parts;
    core_tensor *x = core_x_reshape(images, CORE_SIZES(-1, 1, SIDE, SIDE));

    x = convolve(parts[CONV2], convolve(parts[CONV1], x));
    x = core_x_reshape(x, CORE_SIZES(-1, FEATURES));
    x = train_dropout(x, model->dropout, training);
    x = core_x_relu(train_linear(model, parts[DENSE], x));
    x = train_dropout(x, model->dropout, training);
    return train_linear(model, parts[OUTPUT], x);
}

const train_model_kind train_cnn = {
    .name = "cnn",
    .description = "3x3 convolutions of 24 and 48, 32, 10",
    .task = &train_images_task,
    .defaults = {.epochs = 20,
                 .batch = 128,
                 .optimizer = TRAIN_ADAM,
                 .lr = 0.002,
                 .lr_decay = 1,
                 .schedule = TRAIN_COSINE,
                 .warmup = 200,
                 .dropout = 0.2},
    .build = cnn_build,
    .range = range,
    .forward = cnn_forward,
};
