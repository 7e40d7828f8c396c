/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ----------------------------------------------------------- parameters -- */

/* Uniform in (-bound, bound): the usual start of a layer with `inputs` inputs,
 * bound = 1 / sqrt(inputs), is Kaiming's with a = sqrt(5). */
static core_status add_parameter(train_model *model, core_device *device,
                                 uint64_t seed, const char *name,
                                 const int64_t *sizes, size_t ndim,
                                 double bound)
{
    size_t index = model->count;
    int64_t numel = 1;
    float *data;
    core_status status;

    for (size_t i = 0; i < ndim; i++)
        numel *= sizes[i];
    data = malloc((size_t)numel * sizeof *data);
    if (!data)
        return train_error(CORE_ERROR_OUT_OF_MEMORY, "no memory for weights");
    for (int64_t i = 0; i < numel; i++) {
        uint64_t number = train_random(seed, index, (uint64_t)i);

        /* In [-1, 1), exactly. */
        double uniform = (double)(number >> 40) * 0x1p-23 - 1;

        data[i] = (float)(uniform * bound);
    }
    status = core_tensor_from_data(data, CORE_F32, sizes, ndim, device,
                                   &model->parameters[index]);
    free(data);
    if (status != CORE_OK)
        return status;
    model->count++;
    snprintf(model->names[index], sizeof model->names[index], "%s", name);
    return core_tensor_set_requires_grad(model->parameters[index], true);
}

static core_status add_linear(train_model *model, core_device *device,
                              uint64_t seed, const char *name, int64_t inputs,
                              int64_t outputs)
{
    const int64_t sizes[2] = {outputs, inputs};
    double bound = 1 / sqrt((double)inputs);
    char full[32];

    snprintf(full, sizeof full, "%s.weight", name);
    CORE_TRY(add_parameter(model, device, seed, full, sizes, 2, bound));
    snprintf(full, sizeof full, "%s.bias", name);
    return add_parameter(model, device, seed, full, sizes, 1, bound);
}

/* ------------------------------------------------------------------ mlp -- */

static const int64_t mlp_sizes[] = {TRAIN_PIXELS, 256, 128, 100, TRAIN_CLASSES};
enum { MLP_LAYERS = sizeof mlp_sizes / sizeof *mlp_sizes - 1 };

static core_status mlp_build(train_model *model, core_device *device,
                             uint64_t seed)
{
    char name[16];

    for (int i = 0; i < MLP_LAYERS; i++) {
        snprintf(name, sizeof name, "layer%d", i + 1);
        CORE_TRY(add_linear(model, device, seed, name, mlp_sizes[i],
                            mlp_sizes[i + 1]));
    }
    return CORE_OK;
}

static core_status mlp_forward(const train_model *model, core_tensor *images,
                               core_tensor **out_logits)
{
    core_tensor *hidden = core_tensor_retain(images);
    core_status status = CORE_OK;

    *out_logits = NULL;
    for (int i = 0; status == CORE_OK && i < MLP_LAYERS; i++) {
        core_tensor *next = NULL, *active = NULL;

        status = core_linear(hidden, model->parameters[2 * i],
                             model->parameters[2 * i + 1], &next);
        if (status == CORE_OK && i + 1 < MLP_LAYERS) {
            status = core_relu(next, &active);
            core_tensor_release(next);
            next = active;
        }
        core_tensor_release(hidden);
        hidden = next;
    }
    if (status == CORE_OK)
        *out_logits = hidden;
    else
        core_tensor_release(hidden);
    return status;
}

static const train_model_kind mlp = {
    .name = "mlp",
    .description = "784-256-128-100-10",
    .build = mlp_build,
    .forward = mlp_forward,
};

/* --------------------------------------------------------------- models -- */

const train_model_kind *const train_model_kinds[] = {&mlp, NULL};

const train_model_kind *train_model_find(const char *name)
{
    for (size_t i = 0; train_model_kinds[i]; i++)
        if (strcmp(train_model_kinds[i]->name, name) == 0)
            return train_model_kinds[i];
    return NULL;
}

core_status train_model_build(train_model *model, const train_model_kind *kind,
                              core_device *device, uint64_t seed)
{
    core_status status;

    memset(model, 0, sizeof *model);
    model->kind = kind;
    status = kind->build(model, device, seed);
    if (status != CORE_OK)
        train_model_release(model);
    return status;
}

void train_model_release(train_model *model)
{
    for (size_t i = 0; i < model->count; i++)
        core_tensor_release(model->parameters[i]);
    model->count = 0;
}

int64_t train_model_size(const train_model *model)
{
    int64_t size = 0;

    for (size_t i = 0; i < model->count; i++)
        size += core_tensor_numel(model->parameters[i]);
    return size;
}

core_status train_model_digest(const train_model *model, uint64_t *out_digest)
{
    uint64_t digest = UINT64_C(0xcbf29ce484222325); /* FNV-1a */

    for (size_t i = 0; i < model->count; i++) {
        core_tensor *tensor = model->parameters[i];
        size_t size = (size_t)core_tensor_numel(tensor) * sizeof(float);
        uint8_t *data = malloc(size);
        core_status status;

        if (!data)
            return train_error(CORE_ERROR_OUT_OF_MEMORY,
                               "no memory to read the weights");
        status = core_tensor_read(tensor, data, size);
        for (size_t k = 0; status == CORE_OK && k < size; k++)
            digest = (digest ^ data[k]) * UINT64_C(0x100000001b3);
        free(data);
        if (status != CORE_OK)
            return status;
    }
    *out_digest = digest;
    return CORE_OK;
}
