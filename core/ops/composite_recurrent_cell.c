/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Cells of recurrent networks: one step. */

#include "ops/recurrent.h"
#include "ops/shape.h"
#include "tensor/tensor.h"

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

/* With the device's kernel. */
static core_tensor *fused_step(core__scope *scope, core__recurrent_kind kind,
                               core_tensor *input, core_tensor *gates,
                               core_tensor *hidden, core_tensor **cell)
{
    core_tensor *out[3] = {NULL, NULL, NULL};

    if (kind == CORE__RECURRENT_LSTM)
        CORE__RUN(scope,
                  core_thnn_fused_lstm_cell(input, gates, *cell, NULL, NULL,
                                            &out[0], &out[1], &out[2]));
    else
        CORE__RUN(scope, core_thnn_fused_gru_cell(input, gates, hidden, NULL,
                                                  NULL, &out[0], &out[1]));
    hidden = core__scope_keep(scope, out[0]);
    for (int i = 1; i < 3 && out[i]; i++) {
        core_tensor *kept = core__scope_keep(scope, out[i]);

        if (kind == CORE__RECURRENT_LSTM && i == 1)
            *cell = kept;
    }
    return hidden;
}

static core_tensor *one_step(core__scope *scope, core__recurrent_kind kind,
                             core_tensor *input, core_tensor *gates,
                             core_tensor *hidden, core_tensor **cell)
{
    core_tensor *state = kind == CORE__RECURRENT_LSTM ? *cell : hidden;

    if (scope->status == CORE_OK &&
        core__fused_cell_exists(kind, input, gates, state))
        return fused_step(scope, kind, input, gates, hidden, cell);
    switch (kind) {
    case CORE__RECURRENT_LSTM:
        return lstm_step(scope, input, gates, cell);
    case CORE__RECURRENT_GRU:
        return gru_step(scope, input, gates, hidden);
    case CORE__RECURRENT_TANH:
        return core__x_tanh(scope, core__x_add(scope, input, gates));
    default:
        return core__x_relu(scope, core__x_add(scope, input, gates));
    }
}

/* The next hidden state.  `input` is the input's part of the gates; *cell is
 * replaced by the next one. */
core_tensor *core__recurrent_step(core__scope *scope, core__recurrent_kind kind,
                                  const core__recurrent_weights *w,
                                  core_tensor *input, core_tensor *hidden,
                                  core_tensor **cell)
{
    core_tensor *gates = CORE__DO(scope, core_linear, hidden, w->w_hh, w->b_hh);

    hidden = one_step(scope, kind, input, gates, hidden, cell);
    if (w->w_hr)
        hidden = CORE__DO(scope, core_linear, hidden, w->w_hr, NULL);
    return hidden;
}

/* weight [gates n, inputs] with n hidden units, and biases [gates n] or none */
static core_status check_weights(const core_operator *op,
                                 core__recurrent_kind kind,
                                 const core__recurrent_weights *w,
                                 int64_t inputs, int64_t n, int64_t outputs)
{
    int64_t rows = n * (kind == CORE__RECURRENT_LSTM  ? 4
                        : kind == CORE__RECURRENT_GRU ? 3
                                                      : 1);

    CORE_TRY(core__sizes_check_equal(op, "w_ih", w->w_ih, 2,
                                     (const int64_t[]){rows, inputs}));
    CORE_TRY(core__sizes_check_equal(op, "w_hh", w->w_hh, 2,
                                     (const int64_t[]){rows, outputs}));
    CORE_TRY(core__sizes_check_equal(op, "b_ih", w->b_ih, 1, &rows));
    CORE_TRY(core__sizes_check_equal(op, "b_hh", w->b_hh, 1, &rows));
    return core__sizes_check_equal(op, "w_hr", w->w_hr, 2,
                                   (const int64_t[]){outputs, n});
}

/* What the weights must have follows from input and states, one of which may be
 * what is wrong. */
core_status core__recurrent_check_weights(const core_operator *op,
                                          core__recurrent_kind kind,
                                          const core__recurrent_weights *w,
                                          int64_t inputs, int64_t n,
                                          int64_t outputs)
{
    core_status status = check_weights(op, kind, w, inputs, n, outputs);

    if (status != CORE_OK)
        core__error_suffix(" for inputs of size %lld and states of size %lld",
                           (long long)inputs, (long long)n);
    return status;
}

/* cell(input, hx, w_ih, w_hh, b_ih, b_hh): input and states may lack a batch. */
static core_status one_cell(core__scope *scope, core_call *call,
                            const core_value *args, core__recurrent_kind kind,
                            core_tensor *hidden, core_tensor *cell,
                            core_value *results)
{
    core_tensor *input = args[0].u.tensor;
    core__recurrent_weights w = {.w_ih = args[2].u.tensor,
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
    CORE_TRY(core__recurrent_check_weights(call->op, kind, &w, inputs, n, n));
    input = CORE__DO(scope, core_linear, input, w.w_ih, w.b_ih);
    hidden = core__recurrent_step(scope, kind, &w, input, hidden, &cell);
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
    return one_cell(scope, call, args, CORE__RECURRENT_LSTM,
                    args[1].u.tensors[0], args[1].u.tensors[1], results);
}

CORE__COMPOSITE(gru_cell)
{
    return one_cell(scope, call, args, CORE__RECURRENT_GRU, args[1].u.tensor,
                    NULL, results);
}

CORE__COMPOSITE(rnn_tanh_cell)
{
    return one_cell(scope, call, args, CORE__RECURRENT_TANH, args[1].u.tensor,
                    NULL, results);
}

CORE__COMPOSITE(rnn_relu_cell)
{
    return one_cell(scope, call, args, CORE__RECURRENT_RELU, args[1].u.tensor,
                    NULL, results);
}
