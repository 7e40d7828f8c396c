/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The image task: classify into ten classes. */

#include "layers.h"

#include <stdlib.h>

/* Mean and standard deviation of the training images. */
static const double pixel_mean = 0.2860, pixel_deviation = 0.3530;

static core_status upload(train_set *set, const train_images *images,
                          core_device *device)
{
    const int64_t sizes[2] = {images->count, TRAIN_PIXELS};
    size_t pixels = (size_t)images->count * TRAIN_PIXELS;
    float *values = malloc(pixels * sizeof *values);
    int64_t *labels = malloc((size_t)images->count * sizeof *labels);
    core_status status = CORE_OK;
    float table[256];

    *set = (train_set){images->count, NULL, NULL};
    for (int i = 0; i < 256; i++)
        table[i] = (float)((i / 255.0 - pixel_mean) / pixel_deviation);
    if (!values || !labels)
        status =
            train_error(CORE_ERROR_OUT_OF_MEMORY, "no memory for %lld images",
                        (long long)images->count);
    for (size_t i = 0; status == CORE_OK && i < pixels; i++)
        values[i] = table[images->pixels[i]];
    for (int64_t i = 0; status == CORE_OK && i < images->count; i++)
        labels[i] = images->labels[i];
    if (status == CORE_OK)
        status = core_tensor_from_data(values, CORE_F32, sizes, 2, device,
                                       &set->data);
    if (status == CORE_OK)
        status = core_tensor_from_data(labels, CORE_I64, sizes, 1, device,
                                       &set->labels);
    free(values);
    free(labels);
    return status;
}

static core_status load(trainer *t)
{
    train_images train = {0, NULL, NULL}, test = {0, NULL, NULL};
    core_device *host = NULL;
    core_status status = core_device_find("cpu", &host);

    if (status == CORE_OK)
        status = train_data_read(&t->options, &train, &test);
    if (status == CORE_OK)
        status = upload(&t->train, &train, host);
    if (status == CORE_OK)
        status = upload(&t->test, &test, t->device);
    train_images_free(&train);
    train_images_free(&test);
    return status;
}

static void batch(const trainer *t, const train_set *set, core_tensor *places,
                  core_tensor **out_inputs, core_tensor **out_labels)
{
    (void)t;
    *out_inputs = core_x_index_select(set->data, 0, places);
    *out_labels = core_x_index_select(set->labels, 0, places);
}

static int64_t labels(const trainer *t)
{
    (void)t;
    return 1;
}

static int64_t classes(const trainer *t)
{
    (void)t;
    return TRAIN_CLASSES;
}

const train_task train_images_task = {
    .samples = "images",
    .half = "test",
    .unit = "images",
    .part = 1000,
    .labels = labels,
    .load = load,
    .classes = classes,
    .batch = batch,
};
