/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The gradients of the fused cells of LSTM and GRU: from what the cell has
 * saved or, if they are to be differentiated again, from its arguments. */

#include "autograd/formulas/formulas.h"

#include <libcore/autograd.h>
#include <libcore/ops.h>

/* Hands out the gradients that are needed. */
static core_status give(core_status status, core_tensor *const made[5],
                        const uint8_t *output_mask, core_tensor **const out[5])
{
    for (int i = 0; i < 5; i++)
        if (status == CORE_OK && output_mask[i])
            *out[i] = made[i];
        else
            core_tensor_release(made[i]);
    return status;
}

core_status core__formula_lstm_cell_grad(
    core_tensor *grad_hy, core_tensor *grad_cy, core_tensor *input_gates,
    core_tensor *hidden_gates, core_tensor *input_bias,
    core_tensor *hidden_bias, core_tensor *cx, core_tensor *cy,
    core_tensor *workspace, const uint8_t *output_mask,
    size_t output_mask_count, core_tensor **out0, core_tensor **out1,
    core_tensor **out2, core_tensor **out3, core_tensor **out4)
{
    core_tensor *made[5] = {NULL};
    core_tensor **const out[5] = {out0, out1, out2, out3, out4};
    core_status status;

    (void)output_mask_count;
    status = core_grad_mode()
                 ? core_thnn_differentiable_lstm_cell_backward(
                       grad_hy, grad_cy, input_gates, hidden_gates, input_bias,
                       hidden_bias, cx, cy, &made[0], &made[1], &made[2],
                       &made[3], &made[4])
                 : core_thnn_fused_lstm_cell_backward(
                       grad_hy, grad_cy, cx, cy, workspace, input_bias != NULL,
                       &made[0], &made[1], &made[2], &made[3], &made[4]);
    return give(status, made, output_mask, out);
}

core_status core__formula_gru_cell_grad(
    core_tensor *grad_hy, core_tensor *input_gates, core_tensor *hidden_gates,
    core_tensor *hx, core_tensor *input_bias, core_tensor *hidden_bias,
    core_tensor *workspace, const uint8_t *output_mask,
    size_t output_mask_count, core_tensor **out0, core_tensor **out1,
    core_tensor **out2, core_tensor **out3, core_tensor **out4)
{
    core_tensor *made[5] = {NULL};
    core_tensor **const out[5] = {out0, out1, out2, out3, out4};
    core_status status;

    (void)output_mask_count;
    status =
        core_grad_mode()
            ? core_thnn_differentiable_gru_cell_backward(
                  grad_hy, input_gates, hidden_gates, hx, input_bias,
                  hidden_bias, &made[0], &made[1], &made[2], &made[3], &made[4])
            : core_thnn_fused_gru_cell_backward(
                  grad_hy, workspace, input_bias != NULL, &made[0], &made[1],
                  &made[2], &made[3], &made[4]);
    return give(status, made, output_mask, out);
}
