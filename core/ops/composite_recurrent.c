/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Recurrent networks: layers in both directions, and packed sequences. */

#include "base/memory.h"
#include "dispatch/structured.h"
#include "ops/recurrent.h"
#include "ops/shape.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

#include <string.h>

/* --------------------------------------------------------------- layers -- */

static core__recurrent_weights weights_at(const core__recurrent_network *net,
                                          int64_t index)
{
    int64_t each = 2 + 2 * net->biases + net->projected;
    core_tensor *const *p = net->params + index * each;
    core__recurrent_weights w = {.w_ih = p[0], .w_hh = p[1]};

    if (net->biases) {
        w.b_ih = p[2];
        w.b_hh = p[3];
    }
    if (net->projected)
        w.w_hr = p[each - 1];
    return w;
}

/* Runs a layer: replaces *rows, and appends its last states. */
static core_status run_layer(const core__recurrent_network *net, int64_t layer,
                             core_tensor **rows, core_tensor **hidden,
                             core_tensor **cell)
{
    int64_t directions = net->bidirectional ? 2 : 1;
    core_tensor *parts[2] = {NULL, NULL}, *x = NULL;
    core_status status = CORE_OK;

    for (int64_t d = 0; status == CORE_OK && d < directions; d++) {
        int64_t index = layer * directions + d;
        core__recurrent_weights w = weights_at(net, index);
        core_tensor *out[3] = {NULL, NULL, NULL};
        int64_t n = net->cell ? net->cell->sizes[2] : net->hidden->sizes[2];

        status = core__recurrent_check_weights(net->op, net->kind, &w,
                                               (*rows)->sizes[1], n,
                                               net->hidden->sizes[2]);
        if (status == CORE_OK)
            status = core__recurrent_direction(net, *rows, &w, index, out);
        parts[d] = out[0];
        hidden[index] = out[1];
        cell[index] = out[2];
    }
    if (status == CORE_OK && directions == 2)
        status = core_cat(parts, 2, -1, &x);
    else if (status == CORE_OK)
        core__tensor_retain(x = parts[0]);
    core__tensor_release(parts[0]);
    core__tensor_release(parts[1]);
    if (status == CORE_OK && net->dropout > 0 && net->train &&
        layer + 1 < net->layers) {
        core_tensor *whole = x;

        x = NULL;
        status = core_dropout(whole, net->dropout, true, &x);
        core__tensor_release(whole);
    }
    core__tensor_release(*rows);
    *rows = x;
    return status;
}

/* The rows of the last layer, and the last states of all layers: owned. */
static core_status run_network(const core__recurrent_network *net,
                               core_tensor *input, core_tensor *out[3])
{
    size_t n = (size_t)(net->layers * (net->bidirectional ? 2 : 1));
    core_tensor **last = core__alloc_zero(2 * n * sizeof *last);
    core_status status = CORE_OK;

    if (!last)
        return core__error_memory(2 * n * sizeof *last);
    core__tensor_retain(input);
    out[0] = input;
    for (int64_t i = 0; status == CORE_OK && i < net->layers; i++)
        status = run_layer(net, i, &out[0], last, last + n);
    if (status == CORE_OK)
        status = core_stack(last, n, 0, &out[1]);
    if (status == CORE_OK && net->cell)
        status = core_stack(last + n, n, 0, &out[2]);
    for (size_t i = 0; i < 2 * n; i++)
        core__tensor_release(last[i]);
    core__free(last);
    return status;
}

/* -------------------------------------------------------------- operators -- */

/* [layers, batch, any size]: the weights are compared with the size later. */
static core_status check_state(const core__recurrent_network *net,
                               const char *name, const core_tensor *state)
{
    int64_t sizes[3] = {net->layers * (net->bidirectional ? 2 : 1),
                        net->sizes[0], 0};

    if (state->ndim != 3)
        return core__op_error(CORE_ERROR_SHAPE, net->op,
                              "%s has %u dimensions; it must have 3: layers, "
                              "batch and size",
                              name, state->ndim);
    sizes[2] = state->sizes[2];
    return core__sizes_check_equal(net->op, name, state, 3, sizes);
}

static core_status check_states(const core__recurrent_network *net)
{
    int64_t n = net->layers * (net->bidirectional ? 2 : 1);
    int64_t each = 2 + 2 * net->biases + net->projected;

    CORE_TRY(check_state(net, "the hidden state", net->hidden));
    if (net->cell)
        CORE_TRY(check_state(net, "the cell state", net->cell));
    if (net->nparams == n * each)
        return CORE_OK;
    return core__op_error(
        CORE_ERROR_INVALID_ARGUMENT, net->op,
        "params has %u tensors; %lld layers%s have %lld "
        "each%s",
        net->nparams, (long long)net->layers,
        net->bidirectional ? " in two directions" : "", (long long)each,
        net->projected ? ", with a projection, as the sizes of the "
                         "states differ"
                       : "");
}

/* Reads the arguments from `first` on: hx, params, has_biases, num_layers,
 * dropout, train, bidirectional. */
static core_status network_of(const core_operator *op,
                              core__recurrent_kind kind, const core_value *args,
                              core__recurrent_network *net)
{
    *net = (core__recurrent_network){.op = op,
                                     .kind = kind,
                                     .params = args[1].u.tensors,
                                     .nparams = args[1].count,
                                     .biases = args[2].u.i != 0,
                                     .layers = args[3].u.i,
                                     .dropout = core__double_of(&args[4]),
                                     .train = args[5].u.i != 0,
                                     .bidirectional = args[6].u.i != 0};
    if (net->layers < 1 || net->layers > 1000 || !(net->dropout >= 0) ||
        net->dropout > 1)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                              "num_layers is %lld and dropout %g; there must "
                              "be 1 to 1000 layers, and dropout be from 0 to 1",
                              (long long)net->layers, net->dropout);
    for (uint32_t i = 0; i < net->nparams; i++)
        if (!net->params[i])
            return core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                                  "params[%u] is NULL", i);
    if (kind != CORE__RECURRENT_LSTM) {
        net->hidden = args[0].u.tensor;
        return CORE_OK;
    }
    if (args[0].count != 2 || !args[0].u.tensors[0] || !args[0].u.tensors[1])
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                              "hx has %u tensors; it must have 2, the hidden "
                              "and the cell state",
                              args[0].count);
    net->hidden = args[0].u.tensors[0];
    net->cell = args[0].u.tensors[1];
    net->projected = net->hidden->ndim == 3 && net->cell->ndim == 3 &&
                     net->hidden->sizes[2] != net->cell->sizes[2];
    return CORE_OK;
}

static void give(core_status status, core_tensor *out[3], core_value *results)
{
    for (int i = 0; i < 3; i++)
        if (status == CORE_OK && out[i])
            core__result_tensor(&results[i], out[i]);
        else
            core__tensor_release(out[i]);
}

/* (input, hx, params, has_biases, num_layers, dropout, train, bidirectional,
 * batch_first): input is [steps, batch, size], or [batch, steps, size]. */
static core_status padded(core_call *call, const core_value *args,
                          core__recurrent_kind kind, core_value *results)
{
    core_tensor *input = args[0].u.tensor, *x, *out[3] = {NULL, NULL, NULL};
    bool batch_first = args[8].u.i != 0;
    int64_t *sizes = NULL, shape[3];
    core_status status;
    core__scope scope;
    core__recurrent_network net;

    CORE_TRY(network_of(call->op, kind, args + 1, &net));
    if (input->ndim != 3 || input->sizes[batch_first] < 1)
        return core__op_error(
            CORE_ERROR_SHAPE, call->op,
            "input has %u dimensions and %lld steps; it must "
            "have 3, or 2 without a batch, and at least one step",
            input->ndim,
            input->ndim == 3 ? (long long)input->sizes[batch_first] : 0);
    core__scope_begin(&scope);
    x = batch_first ? core__x_transpose(&scope, input, 0, 1) : input;
    if (scope.status != CORE_OK)
        return core__scope_end(&scope);
    memcpy(shape, x->sizes, sizeof shape);
    net.steps = shape[0];
    sizes = core__alloc_array((size_t)net.steps, sizeof *sizes);
    if (!sizes) {
        core__scope_end(&scope);
        return core__error_memory((size_t)net.steps * sizeof *sizes);
    }
    for (int64_t i = 0; i < net.steps; i++)
        sizes[i] = shape[1];
    net.sizes = sizes;
    status = check_states(&net);
    x = core__x_reshape(&scope, x,
                        (const int64_t[]){shape[0] * shape[1], shape[2]}, 2);
    if (status == CORE_OK)
        status = scope.status;
    if (status == CORE_OK)
        status = run_network(&net, x, out);
    core__free(sizes);
    if (status == CORE_OK) {
        x = core__scope_keep(&scope, out[0]);
        out[0] = NULL;
        shape[2] = x->sizes[1];
        x = core__x_reshape(&scope, x, shape, 3);
        if (batch_first)
            x = core__x_transpose(&scope, x, 0, 1);
        status = core__scope_finish(&scope, x, &out[0]);
    } else {
        core__scope_end(&scope);
    }
    give(status, out, results);
    return status;
}

/* Sizes of steps, on the host; freed by the caller. */
static core_status sizes_read(const core_operator *op, core_tensor *tensor,
                              int64_t rows, int64_t **out)
{
    size_t bytes = (size_t)tensor->numel * sizeof(int64_t);
    int64_t total = 0, *sizes;
    core_status status;

    if (tensor->ndim != 1 || tensor->dtype != CORE_I64 || tensor->numel < 1)
        return core__op_error(CORE_ERROR_SHAPE, op,
                              "batch_sizes has %u dimensions, dtype %s and "
                              "%lld elements; it must have 1, i64 and at least "
                              "one",
                              tensor->ndim, core__dtype_name(tensor->dtype),
                              (long long)tensor->numel);
    sizes = core__alloc_array((size_t)tensor->numel, sizeof *sizes);
    if (!sizes)
        return core__error_memory(bytes);
    status = core_tensor_read(tensor, sizes, bytes);
    for (int64_t i = 0; status == CORE_OK && i < tensor->numel; i++) {
        if (sizes[i] < 1 || (i > 0 && sizes[i] > sizes[i - 1]) ||
            sizes[i] > rows)
            status = core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                                    "batch_sizes[%lld] is %lld; sizes must be "
                                    "positive and not grow",
                                    (long long)i, (long long)sizes[i]);
        total += sizes[i];
        if (status == CORE_OK && total > rows)
            break;
    }
    if (status == CORE_OK && total != rows)
        status = core__op_error(CORE_ERROR_SHAPE, op,
                                "the sum of batch_sizes is not %lld, the "
                                "number of rows of data",
                                (long long)rows);
    if (status != CORE_OK)
        core__free(sizes);
    else
        *out = sizes;
    return status;
}

/* (data, batch_sizes, hx, params, has_biases, num_layers, dropout, train,
 * bidirectional) of a packed sequence */
static core_status packed(core_call *call, const core_value *args,
                          core__recurrent_kind kind, core_value *results)
{
    core_tensor *data = args[0].u.tensor, *out[3] = {NULL, NULL, NULL};
    int64_t *sizes = NULL;
    core_status status;
    core__recurrent_network net;

    CORE_TRY(network_of(call->op, kind, args + 2, &net));
    if (data->ndim != 2)
        return core__op_error(CORE_ERROR_SHAPE, call->op,
                              "data has %u dimensions; packed rows have 2",
                              data->ndim);
    CORE_TRY(sizes_read(call->op, args[1].u.tensor, data->sizes[0], &sizes));
    net.sizes = sizes;
    net.uneven = true;
    net.steps = args[1].u.tensor->numel;
    status = check_states(&net);
    if (status == CORE_OK)
        status = run_network(&net, data, out);
    core__free(sizes);
    give(status, out, results);
    return status;
}

/* Gives a state the dimension of one sample. */
static core_status add_batch(core__scope *scope, const core_operator *op,
                             core_tensor **state)
{
    if (*state && (*state)->ndim != 2)
        return core__op_error(CORE_ERROR_SHAPE, op,
                              "hx has %u dimensions; without a batch it has 2, "
                              "as input has",
                              (*state)->ndim);
    if (*state)
        *state = core__x_unsqueeze(scope, *state, 1);
    return scope->status;
}

/* As `padded`, with an input [steps, size] and states [layers, n]. */
static core_status one_sample(core__scope *scope, core_call *call,
                              const core_value *args, core__recurrent_kind kind,
                              core_value *results)
{
    uint32_t nresults = kind == CORE__RECURRENT_LSTM ? 3 : 2,
             nstates = nresults - 1;
    core_tensor *states[2] = {NULL, NULL};
    core_value own[9];

    memcpy(own, args, sizeof own);
    if (kind == CORE__RECURRENT_LSTM && args[1].count == nstates) {
        memcpy(states, args[1].u.tensors, sizeof states);
        own[1].u.tensors = states;
    } else if (kind != CORE__RECURRENT_LSTM) {
        states[0] = args[1].u.tensor;
    }
    for (uint32_t i = 0; i < nstates; i++)
        CORE_TRY(add_batch(scope, call->op, &states[i]));
    if (kind != CORE__RECURRENT_LSTM)
        own[1].u.tensor = states[0];
    own[0].u.tensor = core__x_unsqueeze(scope, args[0].u.tensor, 1);
    own[8].u.i = false;
    CORE_TRY(scope->status);
    CORE_TRY(padded(call, own, kind, results));
    for (uint32_t i = 0; i < nresults; i++) {
        core_tensor *whole = core__scope_keep(scope, results[i].u.tensor);

        results[i] = (core_value){0};
        CORE_TRY(core__scope_result(
            scope, CORE__DO(scope, core_squeeze_dim, whole, 1), &results[i]));
    }
    return CORE_OK;
}

static core_status recurrent(core__scope *scope, core_call *call,
                             const core_value *args, core__recurrent_kind kind,
                             core_value *results)
{
    const char *overload = strchr(call->op->data->name, '.');

    if (overload && strcmp(overload, ".data") == 0)
        return packed(call, args, kind, results);
    return args[0].u.tensor->ndim == 2
               ? one_sample(scope, call, args, kind, results)
               : padded(call, args, kind, results);
}

CORE__COMPOSITE(lstm)
{
    return recurrent(scope, call, args, CORE__RECURRENT_LSTM, results);
}

CORE__COMPOSITE(gru)
{
    return recurrent(scope, call, args, CORE__RECURRENT_GRU, results);
}

CORE__COMPOSITE(rnn_tanh)
{
    return recurrent(scope, call, args, CORE__RECURRENT_TANH, results);
}

CORE__COMPOSITE(rnn_relu)
{
    return recurrent(scope, call, args, CORE__RECURRENT_RELU, results);
}
