/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The image models. */

#include "layers.h"

#include <math.h>

/* Weight and bias, uniform in ± 1 / sqrt(inputs of an output): Kaiming's
 * initialization with a = sqrt(5), the usual one. */
static core_status add_layer(train_model *model, core_device *device,
                             uint64_t seed, const char *name,
                             const int64_t *sizes, size_t ndim)
{
    double inputs = 1;
    char full[48];

    for (size_t i = 1; i < ndim; i++)
        inputs *= (double)sizes[i];
    snprintf(full, sizeof full, "%s.weight", name);
    CORE_TRY(train_model_add(model, device, seed, full, sizes, ndim, 0,
                             1 / sqrt(inputs)));
    snprintf(full, sizeof full, "%s.bias", name);
    return train_model_add(model, device, seed, full, sizes, 1, 0,
                           1 / sqrt(inputs));
}

/* ------------------------------------------------------------------ mlp -- */

static const int64_t mlp_sizes[] = {TRAIN_PIXELS, 256, 128, 100, TRAIN_CLASSES};
enum { MLP_LAYERS = sizeof mlp_sizes / sizeof *mlp_sizes - 1 };

static core_status mlp_build(train_model *model, uint64_t seed)
{
    char name[24];

    for (int i = 0; i < MLP_LAYERS; i++) {
        const int64_t sizes[2] = {mlp_sizes[i + 1], mlp_sizes[i]};

        snprintf(name, sizeof name, "layer%d", i + 1);
        CORE_TRY(add_layer(model, train_model_place(model, i, MLP_LAYERS), seed,
                           name, sizes, 2));
    }
    return CORE_OK;
}

static core_tensor *mlp_forward(const train_model *model, core_tensor *images,
                                bool training)
{
    core_tensor *const *w = model->parameters;
    core_tensor *x = images;

    (void)training;
    for (int i = 0; i < MLP_LAYERS; i++, w += 2) {
        x = train_linear(model, x, w[0], w[1]);
        if (i + 1 < MLP_LAYERS)
            x = core_x_relu(x);
    }
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

static core_status cnn_build(train_model *model, uint64_t seed)
{
    const int64_t conv1[4] = {FIRST, 1, 3, 3};
    const int64_t conv2[4] = {SECOND, FIRST, 3, 3};
    const int64_t hidden[2] = {HIDDEN, FEATURES};
    const int64_t output[2] = {TRAIN_CLASSES, HIDDEN};

    CORE_TRY(add_layer(model, train_model_place(model, 0, 4), seed, "conv1",
                       conv1, 4));
    CORE_TRY(add_layer(model, train_model_place(model, 1, 4), seed, "conv2",
                       conv2, 4));
    CORE_TRY(add_layer(model, train_model_place(model, 2, 4), seed, "hidden",
                       hidden, 2));
    return add_layer(model, train_model_place(model, 3, 4), seed, "output",
                     output, 2);
}

/* A 3 x 3 convolution that keeps the size, and a maximum that halves it. */
static core_tensor *convolve(core_tensor *x, core_tensor *const *w)
{
    x = core_x_conv2d(train_beside(x, w[0]), w[0], w[1], CORE_SIZES(1),
                      CORE_SIZES(1));
    return core_x_max_pool2d(core_x_relu(x), CORE_SIZES(2));
}

static core_tensor *cnn_forward(const train_model *model, core_tensor *images,
                                bool training)
{
    core_tensor *const *w = model->parameters;
    core_tensor *x = core_x_reshape(images, CORE_SIZES(-1, 1, SIDE, SIDE));

    x = convolve(convolve(x, w), w + 2);
    x = core_x_reshape(x, CORE_SIZES(-1, FEATURES));
    x = train_dropout(x, model->dropout, training);
    x = core_x_relu(train_linear(model, x, w[4], w[5]));
    x = train_dropout(x, model->dropout, training);
    return train_linear(model, x, w[6], w[7]);
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
    .forward = cnn_forward,
};
