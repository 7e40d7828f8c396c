/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The common part of all models: modules and their parameters. */

#include "parameter_shards.h"
#include "tensor_parallel.h"

#include <libcore/network.h>

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

core_device *train_model_place(const train_model *model, int64_t part,
                               int64_t parts)
{
    return model->devices[part * (int64_t)model->ndevices / parts];
}

void train_model_part(train_model *model, core_module *child, int64_t part,
                      int64_t parts)
{
    if (!child)
        return;
    if (model->nparts == TRAIN_PARTS) {
        CORE_CHECK(train_error(CORE_ERROR_UNSUPPORTED,
                               "a model has at most %d parts", TRAIN_PARTS));
        return;
    }
    model->parts[model->nparts++] = child; /* the root's reference */
    CORE_CHECK(core_module_to(child, CORE_DTYPE_NONE,
                              train_model_place(model, part, parts)));
}

void train_model_parameter(train_model *model, const char *name,
                           core_sizes sizes)
{
    core_x_nn_parameter(
        model->root, name,
        core_x_empty(sizes, CORE_F32, train_model_place(model, 0, 1)));
}

/* Parameters are numbered in their order. */
static core_status draw(train_model *model, size_t index, uint64_t seed)
{
    core_tensor *tensor = model->parameters[index];
    int64_t numel = core_tensor_numel(tensor);
    double centre = 0, bound = 0;
    float *data = malloc((size_t)numel * sizeof *data);
    core_status status;

    if (!data)
        return train_error(CORE_ERROR_OUT_OF_MEMORY, "no memory for weights");
    model->kind->range(model, index, &centre, &bound);
    for (int64_t i = 0; i < numel; i++) {
        uint64_t number = train_random(
            seed, index, (uint64_t)train_tensor_element(model, index, i));

        /* In [-1, 1), exactly. */
        double uniform = (double)(number >> 40) * 0x1p-23 - 1;

        data[i] = (float)(centre + uniform * bound);
    }
    status = core_tensor_write(tensor, data, (size_t)numel * sizeof *data);
    free(data);
    return status;
}

static core_status build(train_model *model)
{
    core_scope scope = core_scope_begin();
    core_device *before = NULL;

    if (core_device_default(&before) != CORE_OK)
        before = NULL; /* the setting LIBCORE_DEVICE names no device */
    core_x_use_device("cpu");
    model->root = core_module_retain(core_x_nn_container(NULL, NULL));
    model->kind->build(model);
    (void)core_device_set_current(before);
    return core_scope_end(scope);
}

static core_status make(train_model *model, uint64_t seed)
{
    core_status status;
    uint64_t random, offset;

    /* The layers' own initialization draws numbers; dropout must not notice. */
    core_generator_state(NULL, &random, &offset);
    status = build(model);
    core_generator_set_state(NULL, random, offset);
    if (status == CORE_OK)
        status = core_module_list(model->root, NULL, CORE_MODULE_PARAMETERS,
                                  &model->all);
    model->count = model->all.count;
    model->parameters = model->all.tensors;
    model->names = model->all.names;
    for (size_t i = 0; status == CORE_OK && i < model->count; i++)
        status = draw(model, i, seed);
    return status;
}

core_status train_model_build(train_model *model, const train_options *options,
                              int64_t classes, core_device *const *devices,
                              size_t ndevices, core_comm *group)
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
        .group = group,
    };
    model->ndevices = ndevices;
    memcpy(model->devices, devices, ndevices * sizeof(core_device *));
    status = make(model, (uint64_t)options->seed);
    if (status != CORE_OK)
        train_model_release(model);
    return status;
}

void train_model_drop_modules(train_model *model)
{
    core_module_tensors_free(&model->all);
    core_module_release(model->root);
    model->all = (core_module_tensors){0};
    model->root = NULL;
}

void train_model_release(train_model *model)
{
    train_model_drop_modules(model);
    train_fp8_release(model->fp8);
    train_pieces_free(model->pieces);
    model->pieces = NULL;
    model->fp8 = NULL;
    model->parameters = NULL;
    model->names = NULL;
    model->count = model->nparts = 0;
}

int64_t train_model_size(const train_model *model)
{
    int64_t size = 0;

    if (model->pieces)
        return train_pieces_numel(model->pieces);
    for (size_t i = 0; i < model->count; i++)
        size += train_tensor_numel(model, i);
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

/* FNV-1a. */
void train_digest_add(const float *numbers, size_t count, uint64_t *digest)
{
    const uint8_t *bytes = (const uint8_t *)numbers;
    uint64_t hash = *digest ? *digest : UINT64_C(0xcbf29ce484222325);

    for (size_t k = 0; k < count * sizeof *numbers; k++)
        hash = (hash ^ bytes[k]) * UINT64_C(0x100000001b3);
    *digest = hash;
}

core_status train_tensor_digest(core_tensor *tensor, uint64_t *digest)
{
    float *data;

    CORE_TRY(read_floats(tensor, &data));
    train_digest_add(data, (size_t)core_tensor_numel(tensor), digest);
    free(data);
    return CORE_OK;
}

core_status train_model_digest(const train_model *model, uint64_t *out_digest)
{
    *out_digest = 0;
    for (size_t i = 0; i < model->count; i++)
        CORE_TRY(train_tensor_digest(model->parameters[i], out_digest));
    return CORE_OK;
}
