/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* A transformer that predicts the next character (Radford et al. 2019):
 * embeddings of character and position; blocks of attention and a two-layer
 * network, each after a normalization and with a residual connection; the
 * embedding of characters is also the output's weight. */

#include "layers.h"
#include "parameter_shards.h"
#include "tensor_parallel.h"

#include <libcore/saved.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Parameters, and the children of a block. */
enum { TOKENS, PLACES };
static const char *const children[] = {"norm1", "qkv",   "projection",
                                       "norm2", "widen", "narrow"};
enum { NORM1, QKV, PROJECTION, NORM2, WIDEN, NARROW, CHILDREN };

/* A uniform distribution with the standard deviation of 0.02 that is usual for
 * these networks. */
#define SPREAD (0.02 * 1.7320508075688772)

/* The Linears of a block, as multiples of the width; ranks of a group divide
 * the outputs or the inputs. */
static const struct {
    int8_t inputs, outputs;
    bool outputs_divided;
} linears[CHILDREN] = {
    [QKV] = {1, 3, true},
    [PROJECTION] = {1, 1, false},
    [WIDEN] = {1, 4, true},
    [NARROW] = {4, 1, false},
};

static core_module *make_block(const train_model *model, const char *name)
{
    core_module *block = core_x_nn_container(model->root, name);
    int64_t ranks = model->group ? core_comm_size(model->group) : 1;

    for (int i = 0; i < CHILDREN; i++) {
        int64_t inputs = model->width * linears[i].inputs;
        int64_t outputs = model->width * linears[i].outputs;

        *(linears[i].outputs_divided ? &outputs : &inputs) /= ranks;
        if (inputs == 0)
            core_x_nn_layer_norm(block, children[i], model->width);
        else
            core_x_nn_linear(block, children[i], inputs, outputs);
    }
    return block;
}

static void gpt_build(train_model *model)
{
    int64_t width = model->width;

    train_model_parameter(model, "characters",
                          CORE_SIZES(model->classes, width));
    train_model_parameter(model, "places", CORE_SIZES(model->context, width));
    for (int64_t i = 0; i < model->layers; i++)
        train_model_part(
            model,
            make_block(model, core_x_text("block%lld", (long long)i + 1)), i,
            model->layers);
    train_model_part(model, core_x_nn_layer_norm(model->root, "norm", width), 0,
                     1);
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

/* Of query, key and value, each is divided, so that a rank has whole heads; what
 * is added to a sum over the ranks is not divided. */
static train_cut gpt_cut(const train_model *model, size_t parameter)
{
    const char *name = model->names[parameter];
    bool bias = strstr(name, ".bias");

    if (strstr(name, ".qkv."))
        return (train_cut){.dim = 0, .blocks = 3};
    if (strstr(name, ".widen."))
        return (train_cut){.dim = 0, .blocks = 1};
    if (!bias && (strstr(name, ".projection.") || strstr(name, ".narrow.")))
        return (train_cut){.dim = 1, .blocks = 1};
    return (train_cut){0, 0};
}

/* Where the parameters of a block are. */
typedef struct block {
    core_module *module;
    core_tensor *const *gathered; /* a weight and a bias for each child; NULL:
                                   * those of the module */
} block;

static core_tensor *normalize(const train_model *model, const block *b,
                              int child, core_tensor *x)
{
    if (!b->gathered)
        return train_layer(core_module_child(b->module, children[child]), x);
    return core_x_layer_norm(x, CORE_SIZES(model->width),
                             b->gathered[2 * child], b->gathered[2 * child + 1],
                             1e-5);
}

static core_tensor *linear(const train_model *model, const block *b, int child,
                           core_tensor *x)
{
    core_module *layer;

    if (b->gathered)
        return core_x_linear(x, b->gathered[2 * child],
                             b->gathered[2 * child + 1]);
    layer = core_module_child(b->module, children[child]);
    return linears[child].outputs_divided ? train_linear(model, layer, x)
                                          : train_tensor_leave(model, layer, x);
}

/* The heads of this rank; qkv: [n, length, 3 * columns]. */
static core_tensor *attend(const train_model *model, core_tensor *qkv,
                           double dropout)
{
    int64_t n = core_x_size(qkv, 0), length = core_x_size(qkv, 1);
    int64_t columns = core_x_size(qkv, 2) / 3;
    int64_t size = model->width / model->heads;
    train_tensor_random before = train_tensor_random_begin(model);
    core_tensor *y;

    qkv = core_x_reshape(qkv, CORE_SIZES(n, length, 3, columns / size, size));
    qkv = core_x_permute(qkv, CORE_SIZES(2, 0, 3, 1, 4));
    y = core_x_scaled_dot_product_attention(
        core_x_select(qkv, 0, 0), core_x_select(qkv, 0, 1),
        core_x_select(qkv, 0, 2), NULL, dropout, true);
    train_tensor_random_restore(model, before);
    y = core_x_permute(y, CORE_SIZES(0, 2, 1, 3));
    return core_x_reshape(y, CORE_SIZES(n, length, columns));
}

/* x + projection(attention(norm(x))); x: [n, length, width]. */
static core_tensor *attention(const train_model *model, const block *b,
                              core_tensor *x, bool training)
{
    double dropout = training ? model->dropout : 0;
    core_tensor *y;

    y = normalize(model, b, NORM1, x);
    y = train_tensor_enter(model, y);
    y = attend(model, linear(model, b, QKV, y), dropout);
    y = linear(model, b, PROJECTION, y);
    y = train_dropout(y, dropout, training);
    return core_x_add(train_beside(x, y), y);
}

/* x + narrow(gelu(widen(norm(x)))) */
static core_tensor *network(const train_model *model, const block *b,
                            core_tensor *x, bool training)
{
    core_tensor *y = normalize(model, b, NORM2, x);

    y = train_tensor_enter(model, y);
    y = core_x_gelu(linear(model, b, WIDEN, y));
    y = linear(model, b, NARROW, y);
    return core_x_add(train_beside(x, y),
                      train_dropout(y, model->dropout, training));
}

/* embeddings: of characters and of places. */
static core_tensor *embed(const train_model *model,
                          core_tensor *const *embeddings,
                          core_tensor *characters, bool training)
{
    core_tensor *table = embeddings[TOKENS], *x, *places;

    x = core_x_embedding(table, train_beside(characters, table));
    places =
        core_x_narrow(embeddings[PLACES], 0, 0, core_x_size(characters, 1));
    x = core_x_add(train_beside(x, places), places);
    return train_dropout(x, model->dropout, training);
}

static core_tensor *logits_of(const train_model *model, core_tensor *table,
                              core_tensor *x)
{
    x = core_x_reshape(x, CORE_SIZES(-1, model->width));
    return core_x_linear(train_beside(x, table), table);
}

/* ------------------------------------------------ pieces of parameters -- */

/* The units are the embeddings, the blocks, and the last normalization. */
typedef struct step {
    const train_model *model;
    size_t unit;
    bool training;
} step;

/* inputs: x and this rank's piece of the block. */
static core_status run_block(void *context, core_tensor *const *inputs,
                             size_t ninputs, core_tensor **outputs,
                             size_t *noutputs)
{
    const step *now = context;
    core_scope scope = core_scope_begin();
    core_tensor *gathered[TRAIN_UNIT], *x;
    const block b = {.gathered = gathered};

    (void)ninputs;
    train_pieces_gather(now->model->pieces, now->unit, inputs[1], gathered);
    x = attention(now->model, &b, inputs[0], now->training);
    x = network(now->model, &b, x, now->training);
    *noutputs = 1;
    return core_scope_end_with(scope, x, &outputs[0]);
}

/* The gathered block is released after it ran; backward gathers and runs it
 * again. */
static core_tensor *checkpoint_block(const train_model *model, size_t unit,
                                     core_tensor *x, bool training)
{
    core_checkpoint_info info = {
        .struct_size = sizeof info, .function = run_block, .drop = free};
    core_tensor *inputs[] = {x, model->parameters[unit]}, *y = NULL;
    step *now = malloc(sizeof *now);
    size_t one = 1;

    if (!x || !now) {
        free(now);
        return core_scope_own(
            x ? train_error(CORE_ERROR_OUT_OF_MEMORY, "no memory for a block")
              : CORE_OK,
            &y);
    }
    *now = (step){model, unit, training};
    info.context = now;
    return core_scope_own(core_checkpoint(&info, inputs, 2, &y, &one), &y);
}

static core_tensor *forward_with_pieces(const train_model *model,
                                        core_tensor *characters, bool training)
{
    core_tensor *embeddings[TRAIN_UNIT], *last[TRAIN_UNIT], *x;
    const block end = {.gathered = last};
    size_t unit = 0;

    train_pieces_gather(model->pieces, unit, model->parameters[unit],
                        embeddings);
    x = embed(model, embeddings, characters, training);
    while (++unit <= (size_t)model->layers)
        x = checkpoint_block(model, unit, x, training);
    train_pieces_gather(model->pieces, unit, model->parameters[unit], last);
    return logits_of(model, embeddings[TOKENS],
                     normalize(model, &end, NORM1, x));
}

/* Each block has a scope, so that its intermediate results are released before
 * the next block, unless backward needs them. */
static core_tensor *gpt_forward(const train_model *model,
                                core_tensor *characters, bool training)
{
    core_tensor *x;

    if (model->pieces)
        return forward_with_pieces(model, characters, training);
    x = embed(model, model->parameters, characters, training);
    for (int64_t i = 0; i < model->layers; i++) {
        core_scope scope = core_scope_begin();
        const block b = {.module = model->parts[i]};

        x = network(model, &b, attention(model, &b, x, training), training);
        x = core_scope_return(scope, x);
    }
    return logits_of(model, model->parameters[TOKENS],
                     train_layer(model->parts[model->layers], x));
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
    .cut = gpt_cut,
    .pieces = true,
};
