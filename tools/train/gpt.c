/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* A transformer that predicts the next character (Radford et al. 2019):
 * embeddings of character and position; blocks of attention and a two-layer
 * network, each after a normalization and with a residual connection; the
 * embedding of characters is also the output's weight. */

#include "layers.h"

#include <math.h>

/* Indices of the parameters. */
enum { TOKENS = 0, PLACES = 1, BLOCKS = 2 };
enum {
    NORM1,
    NORM1_BIAS,
    QKV,
    QKV_BIAS,
    PROJECTION,
    PROJECTION_BIAS,
    NORM2,
    NORM2_BIAS,
    WIDEN,
    WIDEN_BIAS,
    NARROW,
    NARROW_BIAS,
    BLOCK
};

/* A uniform distribution with the standard deviation of 0.02 that is usual for
 * these networks. */
#define SPREAD (0.02 * 1.7320508075688772)

static core_status add_norm(train_model *model, core_device *device,
                            const char *name)
{
    char full[48];

    snprintf(full, sizeof full, "%s.weight", name);
    CORE_TRY(train_model_add(model, device, 0, full, &model->width, 1, 1, 0));
    snprintf(full, sizeof full, "%s.bias", name);
    return train_model_add(model, device, 0, full, &model->width, 1, 0, 0);
}

static core_status add_linear(train_model *model, core_device *device,
                              uint64_t seed, const char *name, int64_t outputs,
                              int64_t inputs, double bound)
{
    const int64_t sizes[2] = {outputs, inputs};
    char full[48];

    snprintf(full, sizeof full, "%s.weight", name);
    CORE_TRY(train_model_add(model, device, seed, full, sizes, 2, 0, bound));
    snprintf(full, sizeof full, "%s.bias", name);
    return train_model_add(model, device, seed, full, sizes, 1, 0, 0);
}

static core_status add_block(train_model *model, core_device *device,
                             uint64_t seed, int64_t number)
{
    /* The residual sum grows with the number of blocks. */
    double less = SPREAD / sqrt(2.0 * (double)model->layers);
    int64_t width = model->width;
    char name[40];

    snprintf(name, sizeof name, "block%lld.norm1", (long long)number);
    CORE_TRY(add_norm(model, device, name));
    snprintf(name, sizeof name, "block%lld.qkv", (long long)number);
    CORE_TRY(add_linear(model, device, seed, name, 3 * width, width, SPREAD));
    snprintf(name, sizeof name, "block%lld.projection", (long long)number);
    CORE_TRY(add_linear(model, device, seed, name, width, width, less));
    snprintf(name, sizeof name, "block%lld.norm2", (long long)number);
    CORE_TRY(add_norm(model, device, name));
    snprintf(name, sizeof name, "block%lld.widen", (long long)number);
    CORE_TRY(add_linear(model, device, seed, name, 4 * width, width, SPREAD));
    snprintf(name, sizeof name, "block%lld.narrow", (long long)number);
    return add_linear(model, device, seed, name, width, 4 * width, less);
}

static core_status gpt_build(train_model *model, uint64_t seed)
{
    const int64_t tokens[2] = {model->classes, model->width};
    const int64_t places[2] = {model->context, model->width};
    core_device *device = train_model_place(model, 0, 1);

    CORE_TRY(train_model_add(model, device, seed, "characters", tokens, 2, 0,
                             SPREAD));
    CORE_TRY(
        train_model_add(model, device, seed, "places", places, 2, 0, SPREAD));
    for (int64_t i = 0; i < model->layers; i++)
        CORE_TRY(add_block(model, train_model_place(model, i, model->layers),
                           seed, i + 1));
    return add_norm(model, device, "norm");
}

/* x + projection(attention(norm(x))); x: [n, length, width]. */
static core_tensor *attention(const train_model *model, core_tensor *const *w,
                              core_tensor *x, bool training)
{
    int64_t n = core_x_size(x, 0), length = core_x_size(x, 1);
    int64_t width = model->width, heads = model->heads;
    double dropout = training ? model->dropout : 0;
    core_tensor *y, *qkv;

    y = train_norm(x, w[NORM1], w[NORM1_BIAS]);
    qkv = train_linear(model, y, w[QKV], w[QKV_BIAS]);
    qkv = core_x_reshape(qkv, CORE_SIZES(n, length, 3, heads, width / heads));
    qkv = core_x_permute(qkv, CORE_SIZES(2, 0, 3, 1, 4));
    y = core_x_scaled_dot_product_attention(
        core_x_select(qkv, 0, 0), core_x_select(qkv, 0, 1),
        core_x_select(qkv, 0, 2), NULL, dropout, true);
    y = core_x_permute(y, CORE_SIZES(0, 2, 1, 3));
    y = core_x_reshape(y, CORE_SIZES(n, length, width));
    y = train_linear(model, y, w[PROJECTION], w[PROJECTION_BIAS]);
    y = train_dropout(y, dropout, training);
    return core_x_add(train_beside(x, y), y);
}

/* x + narrow(gelu(widen(norm(x)))) */
static core_tensor *network(const train_model *model, core_tensor *const *w,
                            core_tensor *x, bool training)
{
    core_tensor *y = train_norm(x, w[NORM2], w[NORM2_BIAS]);

    y = core_x_gelu(train_linear(model, y, w[WIDEN], w[WIDEN_BIAS]));
    y = train_linear(model, y, w[NARROW], w[NARROW_BIAS]);
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
    core_tensor *const *w = model->parameters + model->count - 2;

    x = core_x_reshape(train_norm(x, w[0], w[1]), CORE_SIZES(-1, model->width));
    return train_linear(model, x, model->parameters[TOKENS], NULL);
}

/* Each block has a scope, so that its intermediate results are released before
 * the next block, unless backward needs them. */
static core_tensor *gpt_forward(const train_model *model,
                                core_tensor *characters, bool training)
{
    core_tensor *const *w = model->parameters + BLOCKS;
    core_tensor *x = embed(model, characters, training);

    for (int64_t i = 0; i < model->layers; i++, w += BLOCK) {
        core_scope scope = core_scope_begin();

        x = network(model, w, attention(model, w, x, training), training);
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
    .forward = gpt_forward,
};
