/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Recurrent layers, and their cells, which compute one step. */

#include "nn/module.h"

#include "base/error.h"
#include "base/memory.h"

#include <libcore/ops.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef core_nn_recurrent_options recurrent;

static int64_t rows_of(const recurrent *r)
{
    static const int64_t gates[] = {4, 3, 1, 1};

    return gates[r->kind] * r->hidden_size;
}

static int64_t output_size(const recurrent *r)
{
    return r->projection_size ? r->projection_size : r->hidden_size;
}

/* How many parameters all layers have. */
static size_t parameters_of(const recurrent *r)
{
    size_t each = 2 + (r->no_bias ? 0 : 2) + (r->projection_size ? 1 : 0);

    return (size_t)r->layers * (r->bidirectional ? 2 : 1) * each;
}

/* ------------------------------------------------------------- creation -- */

static CORE__ONCE core_status add(core_module *module, const recurrent *r,
                                  const char *what, int64_t layer, bool reverse,
                                  const int64_t *sizes, size_t ndim,
                                  const core_nn_options *options)
{
    char name[64];

    snprintf(name, sizeof name, r->cell ? "%s" : "%s_l%lld%s", what,
             (long long)layer, reverse ? "_reverse" : "");
    return core__module_make(module, name, sizes, ndim, CORE__UNIFORM,
                             1 / sqrt((double)r->hidden_size), options);
}

static CORE__ONCE core_status add_layer(core_module *module, const recurrent *r,
                                        int64_t layer, bool reverse,
                                        const core_nn_options *options)
{
    int64_t outputs = output_size(r), rows = rows_of(r);
    int64_t inputs =
        layer == 0 ? r->input_size : outputs * (r->bidirectional ? 2 : 1);

    CORE_TRY(add(module, r, "weight_ih", layer, reverse,
                 (const int64_t[]){rows, inputs}, 2, options));
    CORE_TRY(add(module, r, "weight_hh", layer, reverse,
                 (const int64_t[]){rows, outputs}, 2, options));
    if (!r->no_bias) {
        CORE_TRY(add(module, r, "bias_ih", layer, reverse, &rows, 1, options));
        CORE_TRY(add(module, r, "bias_hh", layer, reverse, &rows, 1, options));
    }
    return r->projection_size
               ? add(module, r, "weight_hr", layer, reverse,
                     (const int64_t[]){outputs, r->hidden_size}, 2, options)
               : CORE_OK;
}

static CORE__ONCE core_status add_layers(core_module *module,
                                         const recurrent *r,
                                         const core_nn_options *options)
{
    for (int64_t i = 0; i < r->layers; i++) {
        CORE_TRY(add_layer(module, r, i, false, options));
        if (r->bidirectional)
            CORE_TRY(add_layer(module, r, i, true, options));
    }
    return CORE_OK;
}

static CORE__ONCE core_status check_cell(const recurrent *r)
{
    if (r->layers == 1 && !r->projection_size && !r->bidirectional &&
        !r->batch_first && r->dropout == 0)
        return CORE_OK;
    return core__error(
        CORE_ERROR_INVALID_ARGUMENT,
        "core_nn_recurrent: layers is %lld, projection_size %lld, dropout %g, "
        "bidirectional %s and batch_first %s; a cell has 1 layer and none of "
        "the others",
        (long long)r->layers, (long long)r->projection_size, r->dropout,
        r->bidirectional ? "true" : "false", r->batch_first ? "true" : "false");
}

static CORE__ONCE core_status check(const recurrent *r)
{
    if ((unsigned)r->kind > CORE_NN_RNN_RELU || r->input_size < 1 ||
        r->hidden_size < 1 || r->input_size > INT32_MAX ||
        r->hidden_size > INT32_MAX || r->layers < 1 || r->layers > 1000)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_nn_recurrent: kind is %d, input_size %lld, "
                           "hidden_size %lld and layers %lld; sizes must be "
                           "1 to 2147483647, and layers 1 to 1000",
                           (int)r->kind, (long long)r->input_size,
                           (long long)r->hidden_size, (long long)r->layers);
    if (r->projection_size < 0 ||
        (r->projection_size > 0 &&
         (r->kind != CORE_NN_LSTM || r->projection_size >= r->hidden_size)))
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_nn_recurrent: projection_size is %lld; an "
                           "LSTM can have one below hidden_size",
                           (long long)r->projection_size);
    if (!(r->dropout >= 0 && r->dropout <= 1))
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_nn_recurrent: dropout is %g; it must be from "
                           "0 to 1",
                           r->dropout);
    return r->cell ? check_cell(r) : CORE_OK;
}

/* The byte was reserved before: a program that did not set it may pass any
 * value. */
static CORE__ONCE core_status check_kind_of_module(const recurrent *r)
{
    unsigned char cell;

    memcpy(&cell, &r->cell, 1);
    if (cell > 1)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_nn_recurrent: cell is %d; it must be 0, a "
                           "layer, or 1, a cell",
                           cell);
    return CORE_OK;
}

/* ---------------------------------------------------------------- calls -- */

/* The inputs of a call. */
typedef struct given {
    core_tensor *x;
    core_tensor *batch_sizes;   /* of a packed sequence, or NULL */
    core_tensor *const *states; /* NULL: zeros */
} given;

/* The number of sequences that have a first step. */
static core_status batch_of(core_tensor *batch_sizes, int64_t *out_batch)
{
    core_tensor *first = NULL;
    core_scalar batch = core_int(0);
    core_status status = core_select(batch_sizes, 0, 0, &first);

    if (status == CORE_OK)
        status = core_item(first, &batch);
    core_tensor_release(first);
    *out_batch = batch.u.i;
    return status;
}

/* The sizes of states for a sequence, [layers, batch, size], or without a batch;
 * for a cell [batch, size] or [size].  The last one is not set. */
static core_status sizes_of_states(const recurrent *r, const given *g,
                                   int64_t sizes[3], uint32_t *out_ndim)
{
    const core_tensor *x = g->x;

    sizes[0] = r->cell ? core_tensor_sizes(x)[0]
                       : r->layers * (r->bidirectional ? 2 : 1);
    *out_ndim = g->batch_sizes ? 3 : core_tensor_ndim(x);
    if (g->batch_sizes && g->states && core_tensor_ndim(g->states[0]) == 3)
        sizes[1] =
            core_tensor_sizes(g->states[0])[1]; /* the operator compares it */
    else if (g->batch_sizes)
        return batch_of(g->batch_sizes, &sizes[1]);
    else if (*out_ndim == 3)
        sizes[1] = core_tensor_sizes(x)[r->batch_first ? 0 : 1];
    return CORE_OK;
}

static core_status zero_states(const recurrent *r, const given *g,
                               core_tensor *states[2])
{
    core_tensor *x = g->x;
    int64_t sizes[3];
    uint32_t ndim, last;

    CORE_TRY(sizes_of_states(r, g, sizes, &ndim));
    last = ndim - 1;
    sizes[last] = output_size(r);
    CORE_TRY(core_new_zeros(x, sizes, ndim, CORE_DTYPE_NONE, NULL, &states[0]));
    if (r->kind != CORE_NN_LSTM)
        return CORE_OK;
    sizes[last] = r->hidden_size;
    return core_new_zeros(x, sizes, ndim, CORE_DTYPE_NONE, NULL, &states[1]);
}

/* A layer returns a sequence and its last states, a cell its states. */
static uint32_t results_of(const recurrent *r)
{
    return (r->kind == CORE_NN_LSTM ? 2 : 1) + !r->cell;
}

/* The arguments of a cell's operator after input and states. */
static uint32_t pack_cell(const recurrent *r, core_tensor *const *params,
                          core_value *args)
{
    size_t count = parameters_of(r);

    for (size_t i = 0; i < 4; i++)
        args[i] = core_pack_tensor(i < count ? params[i] : NULL);
    return 4;
}

/* Likewise of a layer's. */
static uint32_t pack_layer(const core_module *module, const recurrent *r,
                           const given *g, core_tensor *const *params,
                           core_value *args)
{
    args[0] = core_pack_tensors(params, parameters_of(r));
    args[1] = core_pack_bool(!r->no_bias);
    args[2] = core_pack_int(r->layers);
    args[3] = core_pack_float(r->dropout);
    args[4] = core_pack_bool(core_module_is_training(module));
    args[5] = core_pack_bool(r->bidirectional);
    args[6] = core_pack_bool(r->batch_first);
    return g->batch_sizes ? 6 : 7;
}

static core_status run(const core_module *module, const recurrent *r,
                       const given *g, core_tensor *const *params,
                       core_tensor *out[3])
{
    static const uint32_t ids[3][4] = {
        {CORE_OP_LSTM_INPUT, CORE_OP_GRU_INPUT, CORE_OP_RNN_TANH_INPUT,
         CORE_OP_RNN_RELU_INPUT},
        {CORE_OP_LSTM_CELL, CORE_OP_GRU_CELL, CORE_OP_RNN_TANH_CELL,
         CORE_OP_RNN_RELU_CELL},
        {CORE_OP_LSTM_DATA, CORE_OP_GRU_DATA, CORE_OP_RNN_TANH_DATA,
         CORE_OP_RNN_RELU_DATA}};
    core_value args[10], results[3] = {{0}};
    uint32_t n = 0;
    core_status status;

    args[n++] = core_pack_tensor(g->x);
    if (g->batch_sizes)
        args[n++] = core_pack_tensor(g->batch_sizes);
    args[n++] = r->kind == CORE_NN_LSTM ? core_pack_tensors(g->states, 2)
                                        : core_pack_tensor(g->states[0]);
    n += r->cell ? pack_cell(r, params, args + n)
                 : pack_layer(module, r, g, params, args + n);
    status = core_op_invoke(ids[g->batch_sizes ? 2 : r->cell][r->kind], args, n,
                            results, results_of(r));
    for (int i = 0; i < 3; i++)
        out[i] = core_unpack_tensor(&results[i]);
    return status;
}

/* Runs with the parameters of the layers, which are the first members: the
 * program may have added others. */
static core_status run_with(const core_module *module, const recurrent *r,
                            const given *g, core_tensor *out[3])
{
    size_t count = parameters_of(r);
    core_tensor **params = core__alloc(count * sizeof *params);
    core_status status;

    if (!params)
        return core__error_memory(count * sizeof *params);
    for (size_t i = 0; i < count; i++)
        params[i] = module->members[i].u.tensor;
    status = run(module, r, g, params, out);
    core__free(params);
    return status;
}

static CORE__ONCE core_status refused(const core_module *module,
                                      const recurrent *r, size_t ninputs)
{
    int nstates = r->kind == CORE_NN_LSTM ? 2 : 1;

    return core__error(
        CORE_ERROR_INVALID_ARGUMENT,
        "a%s %s was called with %zu inputs; it accepts %s, and optionally %d "
        "state%s",
        r->kind == CORE_NN_GRU ? "" : "n", module->type, ninputs,
        r->cell ? "a step of 2 dimensions, or 1 without a batch"
                : "a sequence of 3 dimensions, or 2 without a batch or with "
                  "batch sizes after it",
        nstates, nstates == 1 ? "" : "s");
}

/* The operators only know the sizes of the parameters and of the states. */
static core_status check_features(const core_module *module, const recurrent *r,
                                  const core_tensor *x)
{
    char text[128];

    if (core_tensor_sizes(x)[core_tensor_ndim(x) - 1] == r->input_size)
        return CORE_OK;
    return core__error(
        CORE_ERROR_SHAPE,
        "the input has sizes %s; the last size must be %lld, the input_size of "
        "this %s",
        core__sizes_text(core_tensor_ndim(x), core_tensor_sizes(x), text,
                         sizeof text),
        (long long)r->input_size, module->type);
}

static core_status check_states(const recurrent *r, const given *g)
{
    uint32_t ndim = 0;
    int64_t sizes[3];

    CORE_TRY(sizes_of_states(r, g, sizes, &ndim));
    sizes[ndim - 1] = output_size(r);
    CORE_TRY(core__module_check_sizes(g->states[0], "the hidden state", sizes,
                                      ndim));
    if (r->kind != CORE_NN_LSTM)
        return CORE_OK;
    sizes[ndim - 1] = r->hidden_size;
    return core__module_check_sizes(g->states[1], "the cell state", sizes,
                                    ndim);
}

static bool is_batch_sizes(const core_tensor *tensor)
{
    return core_tensor_ndim(tensor) == 1 &&
           !core_dtype_is_floating(core_tensor_dtype(tensor));
}

static core_status inputs_of(const core_module *module, const recurrent *r,
                             core_tensor *const *inputs, size_t ninputs,
                             given *out)
{
    size_t nstates = r->kind == CORE_NN_LSTM ? 2 : 1, given = 0;
    uint32_t most = 3u - r->cell;

    while (ninputs > 1 && !inputs[ninputs - 1])
        ninputs--;
    while (given < ninputs && inputs[given])
        given++;
    if (given != ninputs || ninputs == 0)
        return refused(module, r, ninputs);
    out->x = inputs[0];
    out->batch_sizes = NULL;
    if (!r->cell && ninputs > 1 && is_batch_sizes(inputs[1])) {
        out->batch_sizes = inputs[1];
        inputs++;
        ninputs--;
        most = 2;
    }
    out->states = ninputs > 1 ? inputs + 1 : NULL;
    if ((ninputs != 1 && ninputs != 1 + nstates) ||
        core_tensor_ndim(out->x) < 2u - r->cell ||
        core_tensor_ndim(out->x) > most)
        return refused(module, r, given);
    return CORE_OK;
}

static core_status recurrent_forward(core_module *module, void *context,
                                     core_tensor *const *inputs, size_t ninputs,
                                     core_tensor **outputs, size_t *noutputs)
{
    const recurrent *r = context;
    core_tensor *zeros[2] = {NULL, NULL}, *out[3] = {NULL, NULL, NULL};
    core_status status = CORE_OK;
    given g = {NULL, NULL, NULL};

    CORE_TRY(inputs_of(module, r, inputs, ninputs, &g));
    CORE_TRY(check_features(module, r, g.x));
    if (g.states) {
        status = check_states(r, &g);
    } else {
        status = zero_states(r, &g, zeros);
        g.states = zeros;
    }
    if (status == CORE_OK)
        status = run_with(module, r, &g, out);
    core_tensor_release(zeros[0]);
    core_tensor_release(zeros[1]);
    if (status != CORE_OK)
        return status;
    if (*noutputs > results_of(r))
        *noutputs = results_of(r);
    for (size_t i = 0; i < 3; i++)
        if (i < *noutputs)
            outputs[i] = out[i];
        else
            core_tensor_release(out[i]);
    return CORE_OK;
}

CORE__ONCE core_status
core_nn_recurrent(const core_nn_recurrent_options *options,
                  const core_nn_options *where, core_module **out_module)
{
    static const char *const types[2][4] = {
        {"LSTM", "GRU", "RNN", "RNN"},
        {"LSTMCell", "GRUCell", "RNNCell", "RNNCell"}};
    core_module *module;
    recurrent own;

    CORE__NOT_NULL(out_module);
    *out_module = NULL;
    CORE__NOT_NULL(options);
    if (options->struct_size < sizeof own)
        return core__error_struct_size(__func__, "core_nn_recurrent_options",
                                       options->struct_size, sizeof own);
    own = *options;
    if (own.layers == 0)
        own.layers = 1;
    CORE_TRY(check_kind_of_module(&own));
    CORE_TRY(check(&own));
    CORE_TRY(core__module_create(types[own.cell][own.kind], recurrent_forward,
                                 &own, sizeof own, &module));
    return core__module_finish(add_layers(module, &own, where), module,
                               out_module);
}
