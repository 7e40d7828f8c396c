/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Recurrent networks: cells, layers in both directions, and packed sequences.
 *
 * A sequence is computed as rows: those of all samples at the first step, then
 * those at the second, and so on.  In a packed sequence samples are sorted by
 * length, so the samples of a step are the first of the step before it. */

#include "base/memory.h"
#include "dispatch/structured.h"
#include "ops/expression.h"
#include "ops/recurrent.h"
#include "ops/shape.h"
#include "ops_ids.h"
#include "tensor/batched.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

#include <string.h>

typedef enum kind {
    RELU = CORE__RECURRENT_RELU,
    TANH = CORE__RECURRENT_TANH,
    LSTM = CORE__RECURRENT_LSTM,
    GRU = CORE__RECURRENT_GRU
} kind;

/* The weights of one layer in one direction. */
typedef struct weights {
    core_tensor *w_ih, *w_hh;
    core_tensor *b_ih, *b_hh; /* NULL without biases */
    core_tensor *w_hr;        /* the projection, or NULL */
} weights;

typedef struct network {
    const core_operator *op;
    kind kind;
    core_tensor *const *params;
    uint32_t nparams;
    bool biases, train, bidirectional, projected;
    int64_t layers;
    double dropout;
    const int64_t *sizes; /* samples of each step */
    bool uneven;          /* they differ */
    int64_t steps;
    core_tensor *hidden, *cell; /* at the beginning: [layers, batch, n] */
} network;

/* ---------------------------------------------------------------- cells -- */

/* Columns n i to n (i + count) of gates. */
static core_tensor *part(core__scope *scope, core_tensor *gates, int64_t n,
                         int64_t i, int64_t count)
{
    return core__x_slice(scope, gates, -1, n * i, n * (i + count));
}

/* Gates are input, forget, cell and output.  c' = f c + i g, h' = o tanh(c') */
static core_tensor *lstm_step(core__scope *scope, core_tensor *input,
                              core_tensor *hidden, core_tensor **cell)
{
    core_tensor *gates = core__x_add(scope, input, hidden);
    int64_t n =
        scope->status == CORE_OK ? gates->sizes[gates->ndim - 1] / 4 : 0;
    core_tensor *in_forget =
        core__x_sigmoid(scope, part(scope, gates, n, 0, 2));
    core_tensor *kept =
        core__x_mul(scope, part(scope, in_forget, n, 1, 1), *cell);
    core_tensor *fresh = core__x_tanh(scope, part(scope, gates, n, 2, 1));
    core_tensor *out = core__x_sigmoid(scope, part(scope, gates, n, 3, 1));

    fresh = core__x_mul(scope, part(scope, in_forget, n, 0, 1), fresh);
    *cell = core__x_add(scope, kept, fresh);
    return core__x_mul(scope, out, core__x_tanh(scope, *cell));
}

/* Gates are reset, update and new.  n = tanh(i_n + r h_n), h' = n + z (h - n) */
static core_tensor *gru_step(core__scope *scope, core_tensor *input,
                             core_tensor *gates, core_tensor *hidden)
{
    int64_t n = scope->status == CORE_OK ? hidden->sizes[hidden->ndim - 1] : 0;
    core_tensor *both =
        core__x_sigmoid(scope, core__x_add(scope, part(scope, input, n, 0, 2),
                                           part(scope, gates, n, 0, 2)));
    core_tensor *fresh = core__x_mul(scope, part(scope, both, n, 0, 1),
                                     part(scope, gates, n, 2, 1));

    fresh = core__x_tanh(
        scope, core__x_add(scope, part(scope, input, n, 2, 1), fresh));
    hidden = core__x_mul(scope, part(scope, both, n, 1, 1),
                         core__x_sub(scope, hidden, fresh));
    return core__x_add(scope, fresh, hidden);
}

/* The next hidden state.  `input` is the input's part of the gates; *cell is
 * replaced by the next one. */
static core_tensor *step(core__scope *scope, kind kind, const weights *w,
                         core_tensor *input, core_tensor *hidden,
                         core_tensor **cell)
{
    core_tensor *gates = CORE__DO(scope, core_linear, hidden, w->w_hh, w->b_hh);

    switch (kind) {
    case LSTM:
        hidden = lstm_step(scope, input, gates, cell);
        if (w->w_hr)
            hidden = CORE__DO(scope, core_linear, hidden, w->w_hr, NULL);
        return hidden;
    case GRU:
        return gru_step(scope, input, gates, hidden);
    case TANH:
        return core__x_tanh(scope, core__x_add(scope, input, gates));
    default:
        return core__x_relu(scope, core__x_add(scope, input, gates));
    }
}

/* weight [gates n, inputs] with n hidden units, and biases [gates n] or none */
static core_status check_weights(const core_operator *op, kind kind,
                                 const weights *w, int64_t inputs, int64_t n,
                                 int64_t outputs)
{
    int64_t rows = n * (kind == LSTM ? 4 : kind == GRU ? 3 : 1);

    CORE_TRY(core__sizes_check_equal(op, "w_ih", w->w_ih, 2,
                                     (const int64_t[]){rows, inputs}));
    CORE_TRY(core__sizes_check_equal(op, "w_hh", w->w_hh, 2,
                                     (const int64_t[]){rows, outputs}));
    CORE_TRY(core__sizes_check_equal(op, "b_ih", w->b_ih, 1, &rows));
    CORE_TRY(core__sizes_check_equal(op, "b_hh", w->b_hh, 1, &rows));
    return core__sizes_check_equal(op, "w_hr", w->w_hr, 2,
                                   (const int64_t[]){outputs, n});
}

/* cell(input, hx, w_ih, w_hh, b_ih, b_hh): input and states may lack a batch. */
static core_status one_cell(core__scope *scope, core_call *call,
                            const core_value *args, kind kind,
                            core_tensor *hidden, core_tensor *cell,
                            core_value *results)
{
    core_tensor *input = args[0].u.tensor;
    weights w = {.w_ih = args[2].u.tensor,
                 .w_hh = args[3].u.tensor,
                 .b_ih = core__tensor_of(&args[4]),
                 .b_hh = core__tensor_of(&args[5])};
    int64_t n, inputs;

    if (input->ndim < 1 || input->ndim > 2 || hidden->ndim != input->ndim ||
        (input->ndim == 2 && hidden->sizes[0] != input->sizes[0]))
        return core__op_shapes_error(call->op, "input", input, "hx", hidden,
                                     "both must be [batch, size], or [size] "
                                     "without a batch");
    if (cell)
        CORE_TRY(core__sizes_check_equal(call->op, "the cell state", cell,
                                         hidden->ndim, hidden->sizes));
    inputs = input->sizes[input->ndim - 1];
    n = hidden->sizes[hidden->ndim - 1];
    CORE_TRY(check_weights(call->op, kind, &w, inputs, n, n));
    input = CORE__DO(scope, core_linear, input, w.w_ih, w.b_ih);
    hidden = step(scope, kind, &w, input, hidden, &cell);
    CORE_TRY(core__scope_result(scope, hidden, &results[0]));
    return cell ? core__scope_result(scope, cell, &results[1]) : CORE_OK;
}

/* lstm_cell(input, hx, w_ih, w_hh, b_ih, b_hh) -> (h, c) */
CORE__COMPOSITE(lstm_cell)
{
    if (args[1].count != 2 || !args[1].u.tensors[0] || !args[1].u.tensors[1])
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                              "hx has %u tensors; it must have 2, the hidden "
                              "and the cell state",
                              args[1].count);
    return one_cell(scope, call, args, LSTM, args[1].u.tensors[0],
                    args[1].u.tensors[1], results);
}

CORE__COMPOSITE(gru_cell)
{
    return one_cell(scope, call, args, GRU, args[1].u.tensor, NULL, results);
}

CORE__COMPOSITE(rnn_tanh_cell)
{
    return one_cell(scope, call, args, TANH, args[1].u.tensor, NULL, results);
}

CORE__COMPOSITE(rnn_relu_cell)
{
    return one_cell(scope, call, args, RELU, args[1].u.tensor, NULL, results);
}

/* ------------------------------------------------------- one direction -- */

/* The states while a layer runs, each owned. */
typedef struct states {
    core_tensor *hidden, *cell; /* of the samples that run now */
    core_tensor **in;           /* the input's part of each step's gates */
    core_tensor **out;          /* what each step returned */
    core_tensor **ended[2];     /* states of samples that have ended */
    int64_t nended;
} states;

static void states_release(states *s, int64_t steps)
{
    core__tensor_release(s->hidden);
    core__tensor_release(s->cell);
    for (int64_t i = 0; i < steps; i++) {
        core__tensor_release(s->in[i]);
        core__tensor_release(s->out[i]);
        core__tensor_release(s->ended[0][i]);
        core__tensor_release(s->ended[1][i]);
    }
    core__free(s->in);
}

/* The first `count` samples of states [layers, batch, n] of a layer. */
static core_status first_states(core_tensor *all, int64_t index, int64_t count,
                                core_tensor **out)
{
    core__scope scope;

    core__scope_begin(&scope);
    all = CORE__DO(&scope, core_select, all, 0, index);
    return core__scope_finish(&scope, core__x_slice(&scope, all, 0, 0, count),
                              out);
}

/* Arrays for the steps, and the first states of `count` samples. */
static core_status states_begin(const network *net, int64_t index,
                                int64_t count, states *s)
{
    size_t n = (size_t)net->steps;
    core_status status;

    *s = (states){.in = core__alloc_zero(4 * n * sizeof(core_tensor *))};
    if (!s->in)
        return core__error_memory(4 * n * sizeof(core_tensor *));
    s->out = s->in + n;
    s->ended[0] = s->in + 2 * n;
    s->ended[1] = s->in + 3 * n;
    status = first_states(net->hidden, index, count, &s->hidden);
    if (status == CORE_OK && net->cell)
        status = first_states(net->cell, index, count, &s->cell);
    return status;
}

/* Changes the number of samples that run from `before` to `now`: takes in the
 * first states of those that begin, or puts aside those that have ended. */
static core_status resize(const network *net, int64_t index, states *s,
                          int64_t before, int64_t now)
{
    core_tensor **running[2] = {&s->hidden, &s->cell};
    core_tensor *first[2] = {net->hidden, net->cell};
    core__scope scope;
    core_tensor *x[2] = {NULL, NULL};

    core__scope_begin(&scope);
    for (int i = 0; i < 2 && first[i]; i++) {
        core_tensor *all = *running[i];

        if (now > before) {
            core_tensor *parts[2] = {
                all,
                core__x_slice(&scope,
                              CORE__DO(&scope, core_select, first[i], 0, index),
                              0, before, now)};

            x[i] = CORE__DO(&scope, core_cat, parts, 2, 0);
            continue;
        }
        x[i] = core__x_slice(&scope, all, 0, 0, now);
        CORE__RUN(&scope, core_slice(all, 0, &now, &before, 1,
                                     &s->ended[i][s->nended]));
    }
    s->nended += now < before;
    for (int i = 0; i < 2; i++)
        if (x[i] && scope.status == CORE_OK) {
            core__tensor_retain(x[i]);
            core__tensor_release(*running[i]);
            *running[i] = x[i];
        }
    return core__scope_end(&scope);
}

/* Stores the rows of each of the steps from `first` to `end` in out; `rows` has
 * those of them all.  The gradient of a slice is as large as what it was taken
 * from, so slices are taken from slices of a few steps: else the backward's time
 * would grow with the square of the number of steps. */
static core_status split_rows(const network *net, core_tensor *rows,
                              int64_t first, int64_t end, core_tensor **out)
{
    enum { PARTS = 8 };
    int64_t each = (end - first + PARTS - 1) / PARTS, row = 0;
    core_status status = CORE_OK;

    if (end - first == 1) {
        core__tensor_retain(rows);
        out[first] = rows;
        return CORE_OK;
    }
    for (int64_t t = first; status == CORE_OK && t < end; t += each) {
        int64_t last = t + each < end ? t + each : end, from = row;
        core_tensor *part = NULL;

        for (int64_t i = t; i < last; i++)
            row += net->sizes[i];
        status = core_slice(rows, 0, &from, &row, 1, &part);
        if (status == CORE_OK)
            status = split_rows(net, part, t, last, out);
        core__tensor_release(part);
    }
    return status;
}

static core_status one_step(const network *net, const weights *w,
                            core_tensor *gates, states *s)
{
    core__scope scope;
    core_tensor *hidden, *cell = s->cell;

    core__scope_begin(&scope);
    hidden = step(&scope, net->kind, w, gates, s->hidden, &cell);
    if (scope.status == CORE_OK) {
        core__tensor_retain(hidden);
        core__tensor_release(s->hidden);
        s->hidden = hidden;
        if (cell) {
            core__tensor_retain(cell);
            core__tensor_release(s->cell);
            s->cell = cell;
        }
    }
    return core__scope_end(&scope);
}

/* All steps of a layer in one direction. */
static core_status run_steps(const network *net, const weights *w,
                             int64_t index, bool backward, states *s)
{
    int64_t running = net->sizes[backward ? net->steps - 1 : 0];

    for (int64_t i = 0; i < net->steps; i++) {
        int64_t t = backward ? net->steps - 1 - i : i;
        int64_t count = net->sizes[t];

        if (count != running)
            CORE_TRY(resize(net, index, s, running, count));
        running = count;
        CORE_TRY(one_step(net, w, s->in[t], s));
        core__tensor_retain(s->hidden);
        s->out[t] = s->hidden;
    }
    return CORE_OK;
}

/* The last states of all samples: those that ended last are the first. */
static core_status last_states(states *s, int which, int64_t steps,
                               core_tensor **out)
{
    core_tensor *running = which ? s->cell : s->hidden;
    core_tensor **parts;
    core_status status;

    if (s->nended == 0) {
        core__tensor_retain(running);
        *out = running;
        return CORE_OK;
    }
    parts = core__alloc_zero(((size_t)steps + 1) * sizeof *parts);
    if (!parts)
        return core__error_memory((size_t)steps * sizeof *parts);
    parts[0] = running;
    for (int64_t i = 0; i < s->nended; i++)
        parts[i + 1] = s->ended[which][s->nended - 1 - i];
    status = core_cat(parts, (size_t)s->nended + 1, 0, out);
    core__free(parts);
    return status;
}

static bool is_backward(const network *net, int64_t index)
{
    return net->bidirectional && index % 2;
}

/* With operators. */
static core_status composed(const network *net, core_tensor *rows,
                            const weights *w, int64_t index,
                            core_tensor *out[3])
{
    bool backward = is_backward(net, index);
    core_tensor *gates = NULL;
    states s;
    core_status status =
        states_begin(net, index, net->sizes[backward ? net->steps - 1 : 0], &s);

    if (status == CORE_OK)
        status = core_linear(rows, w->w_ih, w->b_ih, &gates);
    if (status == CORE_OK)
        status = split_rows(net, gates, 0, net->steps, s.in);
    if (status == CORE_OK)
        status = run_steps(net, w, index, backward, &s);
    if (status == CORE_OK)
        status = core_cat(s.out, (size_t)net->steps, 0, &out[0]);
    if (status == CORE_OK)
        status = last_states(&s, 0, net->steps, &out[1]);
    if (status == CORE_OK && net->cell)
        status = last_states(&s, 1, net->steps, &out[2]);
    core__tensor_release(gates);
    if (s.in)
        states_release(&s, net->steps);
    return status;
}

/* Shorter sequences do not pay for packing the weight. */
enum { STEPS_FUSED = 4 };

/* Whether the device's kernel computes the layer.  The sizes are checked. */
static bool fused(const network *net, core_tensor *rows, const weights *w)
{
    core_tensor *tensors[] = {rows,    net->hidden, net->cell, w->w_hh,
                              w->b_hh, w->w_ih,     w->b_ih};
    core_dtype sums = rows->dtype == CORE_F64 ? CORE_F64 : CORE_F32;
    core_dtype results[4] = {rows->dtype, rows->dtype, rows->dtype, sums};
    core_value values[8] = {{0}};

    if (net->steps < STEPS_FUSED || w->w_hr || rows->numel == 0 ||
        net->hidden->numel == 0 || !core__dtype_is_floating(rows->dtype))
        return false;
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        if (tensors[i] && (tensors[i]->dtype != rows->dtype ||
                           core__tensor_is_batched(tensors[i])))
            return false;
        if (i < 5)
            values[i] = core_pack_tensor(tensors[i]);
    }
    values[6] = core_int(net->kind);
    values[7] = core_bool(false);
    return core__kernel_exists(&core__operators[CORE_OP_RECURRENT_LAYER],
                               values, 8, results, 4);
}

/* With the device's kernel.  The biases of a GRU's new gate are not added to
 * each other. */
static core_status fuse(const network *net, core_tensor *rows, const weights *w,
                        int64_t index, core_tensor *out[3])
{
    core_tensor *bias = w->b_ih, *hidden = w->b_hh, *cell = NULL;
    core_tensor *cy = NULL, *saved = NULL;
    size_t count = net->uneven ? (size_t)net->steps : 0;
    core__scope s;

    core__scope_begin(&s);
    if (bias && net->kind != GRU) {
        bias = core__x_add(&s, bias, hidden);
        hidden = NULL;
    }
    if (net->cell)
        cell = CORE__DO(&s, core_select, net->cell, 0, index);
    rows = CORE__DO(&s, core_linear, rows, w->w_ih, bias);
    CORE__RUN(&s, core_recurrent_layer(
                      rows, CORE__DO(&s, core_select, net->hidden, 0, index),
                      cell, w->w_hh, hidden, net->sizes, count, net->kind,
                      is_backward(net, index), &out[0], &out[1], &cy, &saved));
    core__tensor_release(saved);
    if (net->cell)
        out[2] = cy;
    else
        core__tensor_release(cy);
    return core__scope_end(&s);
}

/* One layer in one direction: rows [sum of sizes, n], and the last states. */
static core_status run_direction(const network *net, core_tensor *rows,
                                 const weights *w, int64_t index,
                                 core_tensor *out[3])
{
    return fused(net, rows, w) ? fuse(net, rows, w, index, out)
                               : composed(net, rows, w, index, out);
}

/* --------------------------------------------------------------- layers -- */

static weights weights_at(const network *net, int64_t index)
{
    int64_t each = 2 + 2 * net->biases + net->projected;
    core_tensor *const *p = net->params + index * each;
    weights w = {.w_ih = p[0], .w_hh = p[1]};

    if (net->biases) {
        w.b_ih = p[2];
        w.b_hh = p[3];
    }
    if (net->projected)
        w.w_hr = p[each - 1];
    return w;
}

/* Runs a layer: replaces *rows, and appends its last states. */
static core_status run_layer(const network *net, int64_t layer,
                             core_tensor **rows, core_tensor **hidden,
                             core_tensor **cell)
{
    int64_t directions = net->bidirectional ? 2 : 1;
    core_tensor *parts[2] = {NULL, NULL}, *x = NULL;
    core_status status = CORE_OK;

    for (int64_t d = 0; status == CORE_OK && d < directions; d++) {
        int64_t index = layer * directions + d;
        weights w = weights_at(net, index);
        core_tensor *out[3] = {NULL, NULL, NULL};
        int64_t n = net->cell ? net->cell->sizes[2] : net->hidden->sizes[2];

        status = check_weights(net->op, net->kind, &w, (*rows)->sizes[1], n,
                               net->hidden->sizes[2]);
        if (status == CORE_OK)
            status = run_direction(net, *rows, &w, index, out);
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
static core_status run_network(const network *net, core_tensor *input,
                               core_tensor *out[3])
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

static core_status check_states(const network *net)
{
    int64_t n = net->layers * (net->bidirectional ? 2 : 1);
    int64_t sizes[3] = {n, net->sizes[0], 0};
    int64_t each = 2 + 2 * net->biases + net->projected;

    if (net->hidden->ndim == 3)
        sizes[2] = net->hidden->sizes[2];
    CORE_TRY(core__sizes_check_equal(net->op, "the hidden state", net->hidden,
                                     3, sizes));
    if (net->cell) {
        if (net->cell->ndim == 3)
            sizes[2] = net->cell->sizes[2];
        CORE_TRY(core__sizes_check_equal(net->op, "the cell state", net->cell,
                                         3, sizes));
    }
    if (net->nparams == n * each)
        return CORE_OK;
    return core__op_error(CORE_ERROR_INVALID_ARGUMENT, net->op,
                          "params has %u tensors; %lld layers%s have %lld "
                          "each%s",
                          net->nparams, (long long)net->layers,
                          net->bidirectional ? " in two directions" : "",
                          (long long)each,
                          net->projected ? ", with a projection" : "");
}

/* Reads the arguments from `first` on: hx, params, has_biases, num_layers,
 * dropout, train, bidirectional. */
static core_status network_of(const core_operator *op, kind kind,
                              const core_value *args, network *net)
{
    *net = (network){.op = op,
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
    if (kind != LSTM) {
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
static core_status padded(core_call *call, const core_value *args, kind kind,
                          core_value *results)
{
    core_tensor *input = args[0].u.tensor, *x, *out[3] = {NULL, NULL, NULL};
    bool batch_first = args[8].u.i != 0;
    int64_t *sizes = NULL, shape[3];
    core_status status;
    core__scope scope;
    network net;

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
static core_status packed(core_call *call, const core_value *args, kind kind,
                          core_value *results)
{
    core_tensor *data = args[0].u.tensor, *out[3] = {NULL, NULL, NULL};
    int64_t *sizes = NULL;
    core_status status;
    network net;

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
                              const core_value *args, kind kind,
                              core_value *results)
{
    uint32_t nresults = kind == LSTM ? 3 : 2, nstates = nresults - 1;
    core_tensor *states[2] = {NULL, NULL};
    core_value own[9];

    memcpy(own, args, sizeof own);
    if (kind == LSTM && args[1].count == nstates) {
        memcpy(states, args[1].u.tensors, sizeof states);
        own[1].u.tensors = states;
    } else if (kind != LSTM) {
        states[0] = args[1].u.tensor;
    }
    for (uint32_t i = 0; i < nstates; i++)
        CORE_TRY(add_batch(scope, call->op, &states[i]));
    if (kind != LSTM)
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
                             const core_value *args, kind kind,
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
    return recurrent(scope, call, args, LSTM, results);
}

CORE__COMPOSITE(gru)
{
    return recurrent(scope, call, args, GRU, results);
}

CORE__COMPOSITE(rnn_tanh)
{
    return recurrent(scope, call, args, TANH, results);
}

CORE__COMPOSITE(rnn_relu)
{
    return recurrent(scope, call, args, RELU, results);
}
