/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The common part of all models: a list of named parameters. */

#include "train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const train_model_kind *const train_model_kinds[] = {&train_mlp, &train_cnn,
                                                     &train_gpt, NULL};

const train_model_kind *train_model_find(const char *name)
{
    for (size_t i = 0; train_model_kinds[i]; i++)
        if (strcmp(train_model_kinds[i]->name, name) == 0)
            return train_model_kinds[i];
    return NULL;
}

static core_status reserve(train_model *model)
{
    size_t capacity = model->capacity ? 2 * model->capacity : 16;
    core_tensor **parameters;
    char(*names)[48];

    if (model->count < model->capacity)
        return CORE_OK;
    parameters = realloc(model->parameters, capacity * sizeof *parameters);
    if (parameters)
        model->parameters = parameters;
    names = realloc(model->names, capacity * sizeof *names);
    if (names)
        model->names = names;
    if (!parameters || !names)
        return train_error(CORE_ERROR_OUT_OF_MEMORY, "no memory for weights");
    model->capacity = capacity;
    return CORE_OK;
}

core_device *train_model_place(const train_model *model, int64_t part,
                               int64_t parts)
{
    return model->devices[part * (int64_t)model->ndevices / parts];
}

core_status train_model_add(train_model *model, core_device *device,
                            uint64_t seed, const char *name,
                            const int64_t *sizes, size_t ndim, double centre,
                            double bound)
{
    size_t index = model->count;
    int64_t numel = 1;
    float *data;
    core_status status;

    CORE_TRY(reserve(model));
    for (size_t i = 0; i < ndim; i++)
        numel *= sizes[i];
    data = malloc((size_t)numel * sizeof *data);
    if (!data)
        return train_error(CORE_ERROR_OUT_OF_MEMORY, "no memory for weights");
    for (int64_t i = 0; i < numel; i++) {
        uint64_t number = train_random(seed, index, (uint64_t)i);

        /* In [-1, 1), exactly. */
        double uniform = (double)(number >> 40) * 0x1p-23 - 1;

        data[i] = (float)(centre + uniform * bound);
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

core_status train_model_build(train_model *model, const train_options *options,
                              int64_t classes, core_device *const *devices,
                              size_t ndevices)
{
    core_status status;

    *model = (train_model){
        .kind = train_model_find(options->model),
        .classes = classes,
        .context = options->context,
        .layers = options->layers,
        .heads = options->heads,
        .width = options->width,
        .dropout = options->dropout,
    };
    model->ndevices = ndevices;
    memcpy(model->devices, devices, ndevices * sizeof(core_device *));
    status = model->kind->build(model, (uint64_t)options->seed);
    if (status != CORE_OK)
        train_model_release(model);
    return status;
}

void train_model_release(train_model *model)
{
    for (size_t i = 0; i < model->count; i++)
        core_tensor_release(model->parameters[i]);
    train_fp8_release(model->fp8);
    free(model->parameters);
    free(model->names);
    model->fp8 = NULL;
    model->parameters = NULL;
    model->names = NULL;
    model->count = model->capacity = 0;
}

int64_t train_model_size(const train_model *model)
{
    int64_t size = 0;

    for (size_t i = 0; i < model->count; i++)
        size += core_tensor_numel(model->parameters[i]);
    return size;
}

static core_status read_floats(core_tensor *tensor, float **out_data)
{
    size_t size = (size_t)core_tensor_numel(tensor) * sizeof(float);
    core_status status;

    *out_data = malloc(size);
    if (!*out_data)
        return train_error(CORE_ERROR_OUT_OF_MEMORY,
                           "no memory to read the weights");
    status = core_tensor_read(tensor, *out_data, size);
    if (status != CORE_OK) {
        free(*out_data);
        *out_data = NULL;
    }
    return status;
}

core_status train_tensor_finite(core_tensor *tensor, bool *out_finite)
{
    int64_t numel = core_tensor_numel(tensor);
    float *data;

    CORE_TRY(read_floats(tensor, &data));
    *out_finite = true;
    for (int64_t i = 0; i < numel && *out_finite; i++)
        *out_finite = isfinite(data[i]);
    free(data);
    return CORE_OK;
}

core_status train_model_digest(const train_model *model, uint64_t *out_digest)
{
    uint64_t digest = UINT64_C(0xcbf29ce484222325); /* FNV-1a */

    for (size_t i = 0; i < model->count; i++) {
        core_tensor *tensor = model->parameters[i];
        size_t size = (size_t)core_tensor_numel(tensor) * sizeof(float);
        const uint8_t *bytes;
        float *data;

        CORE_TRY(read_floats(tensor, &data));
        bytes = (const uint8_t *)data;
        for (size_t k = 0; k < size; k++)
            digest = (digest ^ bytes[k]) * UINT64_C(0x100000001b3);
        free(data);
    }
    *out_digest = digest;
    return CORE_OK;
}
