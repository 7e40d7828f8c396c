/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The element-wise part of the cells of LSTM and GRU, under ATen's names: with a
 * device's kernel, or composed. */

#include "dispatch/structured.h"
#include "ops/recurrent.h"
#include "ops/shape.h"
#include "ops_ids.h"
#include "tensor/batched.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

#include <string.h>

/* -------------------------------------------------------------- kernels -- */

/* Whether a kernel takes a call: the tensors that are there have one dtype. */
static bool exists(uint32_t op, core_tensor *const *tensors, uint32_t count,
                   core__recurrent_kind kind)
{
    core_value values[6] = {{0}};
    core_dtype dtype = CORE_DTYPE_NONE, results[3];

    for (uint32_t i = 0; i < count; i++) {
        const core_tensor *t = tensors[i];

        if (!t)
            continue;
        if (t->ndim < 1 || t->ndim > 2 || core__tensor_is_batched(t) ||
            (dtype != CORE_DTYPE_NONE && t->dtype != dtype))
            return false;
        dtype = t->dtype;
        values[i] = core_pack_tensor(tensors[i]);
    }
    if (!core__dtype_is_floating(dtype))
        return false;
    for (int i = 0; i < 3; i++)
        results[i] = dtype;
    values[count] = core_int(kind);
    return core__kernel_exists(&core__operators[op], values, count + 1, results,
                               3);
}

bool core__fused_cell_exists(core__recurrent_kind kind, core_tensor *input,
                             core_tensor *hidden, core_tensor *state)
{
    core_tensor *tensors[5] = {input, hidden, state, NULL, NULL};

    return input->ndim == 2 &&
           (kind == CORE__RECURRENT_LSTM || kind == CORE__RECURRENT_GRU) &&
           exists(CORE_OP_FUSED_CELL, tensors, 5, kind);
}

/* Gives results, of which those without columns are absent. */
static core_status give(core__scope *scope, core_tensor *const *tensors,
                        uint32_t count, core_value *results)
{
    for (uint32_t i = 0; i < count; i++)
        if (scope->status == CORE_OK && tensors[i])
            CORE_TRY(core__scope_result(scope, tensors[i], &results[i]));
    return scope->status;
}

/* ---------------------------------------------------------------- gates -- */

/* (input_gates, hidden_gates, state, input_bias, hidden_bias) */
static core_status check_cell(const core_operator *op, const core_value *args,
                              int64_t gates)
{
    core_tensor *input = args[0].u.tensor, *state = args[2].u.tensor;
    int64_t sizes[2];

    if (input->ndim != 2 || state->ndim != 2)
        return core__op_shapes_error(op, core__argument_name(op, 0), input,
                                     core__argument_name(op, 2), state,
                                     "both must have 2 dimensions");
    sizes[0] = state->sizes[0];
    sizes[1] = gates * state->sizes[1];
    for (uint32_t i = 0; i < 2; i++)
        CORE_TRY(core__sizes_check_equal(op, core__argument_name(op, i),
                                         args[i].u.tensor, 2, sizes));
    if (!core__tensor_of(&args[3]) != !core__tensor_of(&args[4]))
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                              "one of input_bias and hidden_bias is absent; "
                              "both must be given, or none");
    for (uint32_t i = 3; i < 5; i++)
        CORE_TRY(core__sizes_check_equal(op, core__argument_name(op, i),
                                         core__tensor_of(&args[i]), 1,
                                         &sizes[1]));
    return CORE_OK;
}

static void take(const core_value *args, core_tensor *out[5])
{
    for (int i = 0; i < 5; i++)
        out[i] = core__tensor_of(&args[i]);
}

/* Block k of columns of x. */
static core_tensor *block(core__scope *s, core_tensor *x, int64_t k, int64_t n)
{
    return core__x_slice(s, x, 1, k * n, (k + 1) * n);
}

static core_tensor *with(core__scope *s, core_tensor *x, core_tensor *bias)
{
    return bias ? core__x_add(s, x, bias) : x;
}

/* Input, forget, cell and output gate. */
static void lstm_gates(core__scope *s, core_tensor *const in[5],
                       core_tensor *out[4])
{
    core_tensor *sum =
        core__x_add(s, with(s, in[0], in[3]), with(s, in[1], in[4]));
    int64_t n = in[2]->sizes[1];

    for (int i = 0; i < 4; i++) {
        out[i] = block(s, sum, i, n);
        out[i] = i == 2 ? core__x_tanh(s, out[i]) : core__x_sigmoid(s, out[i]);
    }
}

/* Reset, update and new gate, the state, and the hidden part of the new gate. */
static void gru_gates(core__scope *s, core_tensor *const in[5],
                      core_tensor *out[5])
{
    core_tensor *x = with(s, in[0], in[3]), *h = with(s, in[1], in[4]);
    int64_t n = in[2]->sizes[1];

    for (int i = 0; i < 2; i++)
        out[i] = core__x_sigmoid(
            s, core__x_add(s, block(s, x, i, n), block(s, h, i, n)));
    out[3] = in[2];
    out[4] = block(s, h, 2, n);
    out[2] = core__x_tanh(
        s, core__x_add(s, block(s, x, 2, n), core__x_mul(s, out[0], out[4])));
}

/* -------------------------------------------------------------- forward -- */

static void kernel_forward(core__scope *s, core_tensor *const in[5],
                           core__recurrent_kind kind, core_tensor *out[3])
{
    core_tensor *made[3] = {NULL, NULL, NULL};

    CORE__RUN(s, core_fused_cell(in[0], in[1], in[2], in[3], in[4], kind,
                                 &made[0], &made[1], &made[2]));
    for (int i = 0; i < 3; i++)
        out[i] = core__scope_keep(s, made[i]);
}

/* c' = f c + i g, h' = o tanh(c') */
CORE__COMPOSITE(thnn_fused_lstm_cell)
{
    core_tensor *in[5], *gates[4], *out[3];

    CORE_TRY(check_cell(call->op, args, 4));
    take(args, in);
    if (exists(CORE_OP_FUSED_CELL, in, 5, CORE__RECURRENT_LSTM)) {
        kernel_forward(scope, in, CORE__RECURRENT_LSTM, out);
        return give(scope, out, 3, results);
    }
    lstm_gates(scope, in, gates);
    out[1] = core__x_add(scope, core__x_mul(scope, gates[1], in[2]),
                         core__x_mul(scope, gates[0], gates[2]));
    out[0] = core__x_mul(scope, gates[3], core__x_tanh(scope, out[1]));
    out[2] = CORE__DO(scope, core_cat, gates, 4, 1);
    return give(scope, out, 3, results);
}

/* h' = n + z (h - n) */
CORE__COMPOSITE(thnn_fused_gru_cell)
{
    core_tensor *in[5], *gates[5], *out[3];

    CORE_TRY(check_cell(call->op, args, 3));
    take(args, in);
    if (exists(CORE_OP_FUSED_CELL, in, 5, CORE__RECURRENT_GRU)) {
        kernel_forward(scope, in, CORE__RECURRENT_GRU, out);
        out[1] = out[2];
        return give(scope, out, 2, results);
    }
    gru_gates(scope, in, gates);
    out[0] = core__x_mul(scope, gates[1], core__x_sub(scope, in[2], gates[2]));
    out[0] = core__x_add(scope, gates[2], out[0]);
    out[1] = CORE__DO(scope, core_cat, gates, 5, 1);
    return give(scope, out, 2, results);
}

/* ------------------------------------------------------------- backward -- */

/* x y (1 - y) and x (1 - y²) */
static core_tensor *through_sigmoid(core__scope *s, core_tensor *x,
                                    core_tensor *y)
{
    return core__x_mul(s, core__x_mul(s, x, y), core__x_rsub_scalar(s, 1, y));
}

static core_tensor *through_tanh(core__scope *s, core_tensor *x, core_tensor *y)
{
    return core__x_mul(s, x, core__x_rsub_scalar(s, 1, core__x_mul(s, y, y)));
}

/* Gradients of the gates and of cx.  grad[2]: of h' and c'; one may be absent.
 * x: the gates. */
static void lstm_gradient(core__scope *s, core_tensor *const grad[2],
                          core_tensor *const x[4], core_tensor *cx,
                          core_tensor *cy, core_tensor **out_gates,
                          core_tensor **out_cx)
{
    core_tensor *t = core__x_tanh(s, cy), *dc = grad[1], *gates[4];

    if (grad[0]) {
        dc = through_tanh(s, core__x_mul(s, grad[0], x[3]), t);
        dc = grad[1] ? core__x_add(s, dc, grad[1]) : dc;
    }
    gates[0] = through_sigmoid(s, core__x_mul(s, dc, x[2]), x[0]);
    gates[1] = through_sigmoid(s, core__x_mul(s, dc, cx), x[1]);
    gates[2] = through_tanh(s, core__x_mul(s, dc, x[0]), x[2]);
    gates[3] =
        grad[0] ? through_sigmoid(s, core__x_mul(s, grad[0], t), x[3])
                : CORE__DO(s, core_zeros_like, x[3], CORE_DTYPE_NONE, NULL, -1);
    *out_gates = CORE__DO(s, core_cat, gates, 4, 1);
    *out_cx = core__x_mul(s, dc, x[1]);
}

/* Gradients of both parts of the gates, and of hx.  x: as in gru_gates. */
static void gru_gradient(core__scope *s, core_tensor *grad,
                         core_tensor *const x[5], core_tensor *out[3])
{
    core_tensor *gates[3];

    gates[2] = through_tanh(
        s, core__x_mul(s, grad, core__x_rsub_scalar(s, 1, x[1])), x[2]);
    gates[1] = through_sigmoid(
        s, core__x_mul(s, grad, core__x_sub(s, x[3], x[2])), x[1]);
    gates[0] = through_sigmoid(s, core__x_mul(s, gates[2], x[4]), x[0]);
    out[0] = CORE__DO(s, core_cat, gates, 3, 1);
    gates[2] = core__x_mul(s, gates[2], x[0]);
    out[1] = CORE__DO(s, core_cat, gates, 3, 1);
    out[2] = core__x_mul(s, grad, x[1]);
}

/* The sum over the batch, or NULL. */
static core_tensor *bias_of(core__scope *s, core_tensor *gates, bool has_bias)
{
    const int64_t dim = 0;

    return has_bias ? core__x_sum_dim(s, gates, &dim, 1, false) : NULL;
}

static void kernel_backward(core__scope *s, core_tensor *const in[5],
                            core__recurrent_kind kind, core_tensor *out[3])
{
    core_tensor *made[3] = {NULL, NULL, NULL};

    CORE__RUN(s, core_fused_cell_backward(in[0], in[1], in[2], in[3], in[4],
                                          kind, &made[0], &made[1], &made[2]));
    for (int i = 0; i < 3; i++)
        out[i] = core__scope_keep(s, made[i]);
}

/* Checks the workspace, of `saved` blocks, and tensors [batch, n] from `first`
 * to `end`.  Some may be absent. */
static core_status check_backward(const core_operator *op,
                                  const core_value *args, uint32_t first,
                                  uint32_t end, uint32_t workspace,
                                  int64_t saved)
{
    core_tensor *work = args[workspace].u.tensor;
    int64_t sizes[2];

    if (work->ndim != 2 || work->sizes[1] % saved)
        return core__op_error(CORE_ERROR_SHAPE, op,
                              "workspace has %u dimensions; it must have 2, "
                              "and a multiple of %lld columns",
                              work->ndim, (long long)saved);
    sizes[0] = work->sizes[0];
    sizes[1] = work->sizes[1] / saved;
    for (uint32_t i = first; i < end; i++)
        CORE_TRY(core__sizes_check_equal(op, core__argument_name(op, i),
                                         core__tensor_of(&args[i]), 2, sizes));
    return CORE_OK;
}

static core_status check_gradients(const core_operator *op,
                                   const core_value *args)
{
    if (core__tensor_of(&args[0]) || core__tensor_of(&args[1]))
        return CORE_OK;
    return core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                          "grad_hy and grad_cy are absent; at least one must "
                          "be given");
}

/* (grad_hy, grad_cy, cx, cy, workspace, has_bias) -> (gates, cx, bias) */
CORE__COMPOSITE(thnn_fused_lstm_cell_backward_impl)
{
    core_tensor *in[5], *gates[4], *out[3];

    CORE_TRY(check_gradients(call->op, args));
    CORE_TRY(check_backward(call->op, args, 0, 4, 4, 4));
    take(args, in);
    if (exists(CORE_OP_FUSED_CELL_BACKWARD, in, 5, CORE__RECURRENT_LSTM)) {
        kernel_backward(scope, in, CORE__RECURRENT_LSTM, out);
        out[1] = out[2];
    } else {
        for (int i = 0; i < 4; i++)
            gates[i] = block(scope, in[4], i, in[2]->sizes[1]);
        lstm_gradient(scope, in, gates, in[2], in[3], &out[0], &out[1]);
    }
    out[2] = bias_of(scope, out[0], args[5].u.i != 0);
    return give(scope, out, 3, results);
}

/* The same, with the gates' gradient and the bias's for both parts. */
CORE__COMPOSITE(thnn_fused_lstm_cell_backward)
{
    core_tensor *in[5], *made[3] = {NULL, NULL, NULL}, *out[5];

    (void)call;
    take(args, in);
    CORE__RUN(scope, core_thnn_fused_lstm_cell_backward_impl(
                         in[0], in[1], in[2], in[3], in[4], args[5].u.i != 0,
                         &made[0], &made[1], &made[2]));
    out[0] = out[1] = core__scope_keep(scope, made[0]);
    out[2] = core__scope_keep(scope, made[1]);
    out[3] = out[4] = made[2] ? core__scope_keep(scope, made[2]) : NULL;
    return give(scope, out, 5, results);
}

/* (grad_hy, grad_cy, input_gates, hidden_gates, input_bias, hidden_bias, cx, cy)
 * -> (input_gates, hidden_gates, cx, input_bias, hidden_bias) */
CORE__COMPOSITE(thnn_differentiable_lstm_cell_backward)
{
    const core_value cell[5] = {args[2], args[3], args[6], args[4], args[5]};
    core_tensor *in[5], *grad[5], *gates[4], *out[5];

    CORE_TRY(check_gradients(call->op, args));
    CORE_TRY(check_cell(call->op, cell, 4));
    take(cell, in);
    take(args, grad);
    lstm_gates(scope, in, gates);
    lstm_gradient(scope, grad, gates, in[2], args[7].u.tensor, &out[0],
                  &out[2]);
    out[1] = out[0];
    out[3] = out[4] = bias_of(scope, out[0], in[3] != NULL);
    return give(scope, out, 5, results);
}

static core_status gru_results(core__scope *scope, core_tensor *const made[3],
                               bool has_bias, core_value *results)
{
    core_tensor *out[5] = {made[0], made[1], made[2],
                           bias_of(scope, made[0], has_bias),
                           bias_of(scope, made[1], has_bias)};

    return give(scope, out, 5, results);
}

/* (grad_hy, workspace, has_bias) -> (input_gates, hidden_gates, hx, input_bias,
 * hidden_bias) */
CORE__COMPOSITE(thnn_fused_gru_cell_backward)
{
    core_tensor *in[5] = {args[0].u.tensor, NULL, NULL, NULL, args[1].u.tensor};
    core_tensor *gates[5], *out[3];

    CORE_TRY(check_backward(call->op, args, 0, 1, 1, 5));
    if (exists(CORE_OP_FUSED_CELL_BACKWARD, in, 5, CORE__RECURRENT_GRU)) {
        kernel_backward(scope, in, CORE__RECURRENT_GRU, out);
    } else {
        for (int i = 0; i < 5; i++)
            gates[i] = block(scope, in[4], i, in[0]->sizes[1]);
        gru_gradient(scope, in[0], gates, out);
    }
    return gru_results(scope, out, args[2].u.i != 0, results);
}

/* (grad_hy, input_gates, hidden_gates, hx, input_bias, hidden_bias) */
CORE__COMPOSITE(thnn_differentiable_gru_cell_backward)
{
    core_tensor *in[5], *gates[5], *out[3];

    CORE_TRY(check_cell(call->op, args + 1, 3));
    take(args + 1, in);
    gru_gates(scope, in, gates);
    gru_gradient(scope, args[0].u.tensor, gates, out);
    return gru_results(scope, out, in[3] != NULL, results);
}
