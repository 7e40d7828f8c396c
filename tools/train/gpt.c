/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* A transformer that predicts the next character (Radford et al. 2019):
 * embeddings of character and position; blocks of attention and a two-layer
 * network, each after a normalization and with a residual connection; the
 * embedding of characters is also the output's weight. */

#include "scope.h"

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
static core_status attention(const train_model *model, core_tensor *const *w,
                             core_tensor *x, bool training, core_tensor **out_x)
{
    int64_t n = core_tensor_size(x, 0), length = core_tensor_size(x, 1);
    const int64_t split[5] = {n, length, 3, model->heads,
                              model->width / model->heads};
    const int64_t permuted[5] = {2, 0, 3, 1, 4}, back[4] = {0, 2, 1, 3};
    const int64_t joined[3] = {n, length, model->width};
    double dropout = training ? model->dropout : 0;
    train_scope s = {.model = model};
    core_tensor *y, *qkv;

    y = train_norm(&s, x, w[NORM1], w[NORM1_BIAS]);
    y = train_linear(&s, y, w[QKV], w[QKV_BIAS]);
    qkv = train_permute(&s, train_reshape(&s, y, split, 5), permuted, 5);
    y = train_attend(&s, train_select(&s, qkv, 0, 0),
                     train_select(&s, qkv, 0, 1), train_select(&s, qkv, 0, 2),
                     dropout);
    y = train_reshape(&s, train_permute(&s, y, back, 4), joined, 3);
    y = train_linear(&s, y, w[PROJECTION], w[PROJECTION_BIAS]);
    y = train_add(&s, x, train_dropout(&s, y, dropout, training));
    return train_scope_end(&s, y, out_x);
}

/* x + narrow(gelu(widen(norm(x)))) */
static core_status network(const train_model *model, core_tensor *const *w,
                           core_tensor *x, bool training, core_tensor **out_x)
{
    train_scope s = {.model = model};
    core_tensor *y;

    y = train_norm(&s, x, w[NORM2], w[NORM2_BIAS]);
    y = train_gelu(&s, train_linear(&s, y, w[WIDEN], w[WIDEN_BIAS]));
    y = train_linear(&s, y, w[NARROW], w[NARROW_BIAS]);
    y = train_add(&s, x, train_dropout(&s, y, model->dropout, training));
    return train_scope_end(&s, y, out_x);
}

static core_status embed(const train_model *model, core_tensor *characters,
                         bool training, core_tensor **out_x)
{
    train_scope s = {.model = model};
    core_tensor *x, *places;

    x = train_embed(&s, model->parameters[TOKENS], characters);
    places = train_narrow(&s, model->parameters[PLACES], 0, 0,
                          core_tensor_size(characters, 1));
    x = train_dropout(&s, train_add(&s, x, places), model->dropout, training);
    return train_scope_end(&s, x, out_x);
}

static core_status logits_of(const train_model *model, core_tensor *x,
                             core_tensor **out_logits)
{
    core_tensor *const *w = model->parameters + model->count - 2;
    const int64_t flat[2] = {-1, model->width};
    train_scope s = {.model = model};
    core_tensor *y = train_norm(&s, x, w[0], w[1]);

    y = train_reshape(&s, y, flat, 2);
    y = train_linear(&s, y, model->parameters[TOKENS], NULL);
    return train_scope_end(&s, y, out_logits);
}

static core_status gpt_forward(const train_model *model,
                               core_tensor *characters, bool training,
                               core_tensor **out_logits)
{
    core_tensor *x = NULL, *y = NULL;
    core_status status;

    *out_logits = NULL;
    status = embed(model, characters, training, &x);
    for (int64_t i = 0; status == CORE_OK && i < model->layers; i++) {
        core_tensor *const *w = model->parameters + BLOCKS + i * BLOCK;

        status = attention(model, w, x, training, &y);
        core_tensor_release(x);
        x = NULL;
        if (status == CORE_OK)
            status = network(model, w, y, training, &x);
        core_tensor_release(y);
    }
    if (status == CORE_OK)
        status = logits_of(model, x, out_logits);
    core_tensor_release(x);
    return status;
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
