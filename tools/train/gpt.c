/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* A transformer that predicts the next character (Radford et al. 2019):
 * embeddings of character and position; blocks of attention and a two-layer
 * network, each after a normalization and with a residual connection; the
 * embedding of characters is also the output's weight. */

#include "layers.h"

#include <math.h>
#include <string.h>

/* Parameters. */
enum { TOKENS, PLACES };

/* A uniform distribution with the standard deviation of 0.02 that is usual for
 * these networks. */
#define SPREAD (0.02 * 1.7320508075688772)

static core_module *make_block(core_module *root, const char *name,
                               int64_t width)
{
    core_module *block = core_x_nn_container(root, name);

    core_x_nn_layer_norm(block, "norm1", width);
    core_x_nn_linear(block, "qkv", width, 3 * width);
    core_x_nn_linear(block, "projection", width, width);
    core_x_nn_layer_norm(block, "norm2", width);
    core_x_nn_linear(block, "widen", width, 4 * width);
    core_x_nn_linear(block, "narrow", 4 * width, width);
    return block;
}

static void gpt_build(train_model *model)
{
    core_module *root = model->root;
    int64_t width = model->width;

    train_model_parameter(model, "characters",
                          CORE_SIZES(model->classes, width));
    train_model_parameter(model, "places", CORE_SIZES(model->context, width));
    for (int64_t i = 0; i < model->layers; i++)
        train_model_part(
            model,
            make_block(root, core_x_text("block%lld", (long long)i + 1), width),
            i, model->layers);
    train_model_part(model, core_x_nn_layer_norm(root, "norm", width), 0, 1);
}

/* Normalizations begin as the identity, and biases with 0. */
static void gpt_range(const train_model *model, size_t parameter,
                      double *out_centre, double *out_bound)
{
    const char *name = model->names[parameter];
    bool bias = strstr(name, ".bias"), norm = strstr(name, "norm");

    *out_centre = norm && !bias ? 1 : 0;
    *out_bound = norm || bias ? 0 : SPREAD;
    /* The residual sum grows with the number of blocks. */
    if (strstr(name, "projection.weight") || strstr(name, "narrow.weight"))
        *out_bound /= sqrt(2.0 * (double)model->layers);
}

/* x + projection(attention(norm(x))); x: [n, length, width]. */
static core_tensor *attention(const train_model *model, core_module *block,
                              core_tensor *x, bool training)
{
    int64_t n = core_x_size(x, 0), length = core_x_size(x, 1);
    int64_t width = model->width, heads = model->heads;
    double dropout = training ? model->dropout : 0;
    core_tensor *y, *qkv;

    y = train_layer(core_module_child(block, "norm1"), x);
    qkv = train_linear(model, core_module_child(block, "qkv"), y);
    qkv = core_x_reshape(qkv, CORE_SIZES(n, length, 3, heads, width / heads));
    qkv = core_x_permute(qkv, CORE_SIZES(2, 0, 3, 1, 4));
    y = core_x_scaled_dot_product_attention(
        core_x_select(qkv, 0, 0), core_x_select(qkv, 0, 1),
        core_x_select(qkv, 0, 2), NULL, dropout, true);
    y = core_x_permute(y, CORE_SIZES(0, 2, 1, 3));
    y = core_x_reshape(y, CORE_SIZES(n, length, width));
    y = train_linear(model, core_module_child(block, "projection"), y);
    y = train_dropout(y, dropout, training);
    return core_x_add(train_beside(x, y), y);
}

/* x + narrow(gelu(widen(norm(x)))) */
static core_tensor *network(const train_model *model, core_module *block,
                            core_tensor *x, bool training)
{
    core_tensor *y = train_layer(core_module_child(block, "norm2"), x);

    y = core_x_gelu(train_linear(model, core_module_child(block, "widen"), y));
    y = train_linear(model, core_module_child(block, "narrow"), y);
    return core_x_add(train_beside(x, y),
                      train_dropout(y, model->dropout, training));
}

static core_tensor *embed(const train_model *model, core_tensor *characters,
                          bool training)
{
    core_tensor *table = model->parameters[TOKENS], *x, *places;

    x = core_x_embedding(table, train_beside(characters, table));
    places = core_x_narrow(model->parameters[PLACES], 0, 0,
                           core_x_size(characters, 1));
    x = core_x_add(train_beside(x, places), places);
    return train_dropout(x, model->dropout, training);
}

static core_tensor *logits_of(const train_model *model, core_tensor *x)
{
    core_tensor *table = model->parameters[TOKENS];

    x = train_layer(model->parts[model->layers], x);
    x = core_x_reshape(x, CORE_SIZES(-1, model->width));
    return core_x_linear(train_beside(x, table), table);
}

/* Each block has a scope, so that its intermediate results are released before
 * the next block, unless backward needs them. */
static core_tensor *gpt_forward(const train_model *model,
                                core_tensor *characters, bool training)
{
    core_tensor *x = embed(model, characters, training);

    for (int64_t i = 0; i < model->layers; i++) {
        core_scope scope = core_scope_begin();
        core_module *block = model->parts[i];

        x = network(model, block, attention(model, block, x, training),
                    training);
        x = core_scope_return(scope, x);
    }
    return logits_of(model, x);
}

const train_model_kind train_gpt = {
    .name = "gpt",
    .description = "transformer on characters",
    .task = &train_text_task,
    .defaults = {.epochs = 10,
                 .batch = 32,
                 .optimizer = TRAIN_ADAMW,
                 .lr = 0.001,
                 .lr_decay = 1,
                 .weight_decay = 0.01,
                 .schedule = TRAIN_COSINE,
                 .warmup = 100,
                 .clip = 1,
                 .dropout = 0.1},
    .build = gpt_build,
    .range = gpt_range,
    .forward = gpt_forward,
};
