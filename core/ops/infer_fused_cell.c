/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Inference for the kernels of fused cells of LSTM and GRU. */

#include "dispatch/structured.h"
#include "ops/functions.h"
#include "ops/recurrent.h"
#include "ops/shape.h"
#include "tensor/dtype.h"

/* Blocks of columns, of n each: of the gates, and of what backward reads. */
static core_status blocks_of(const core__inference *infer, uint32_t mode,
                             bool *lstm, int64_t *gates, int64_t *saved)
{
    int64_t kind = core__arg_int(infer->args, mode, 0);

    *lstm = kind == CORE__RECURRENT_LSTM;
    *gates = *lstm ? 4 : 3;
    *saved = *lstm ? 4 : 5;
    if (*lstm || kind == CORE__RECURRENT_GRU)
        return CORE_OK;
    return core__op_error(CORE_ERROR_INVALID_ARGUMENT, infer->op,
                          "mode is %lld; accepted: 2, LSTM, and 3, GRU",
                          (long long)kind);
}

/* Checks a tensor that has the dtype of another one; NULL: absent. */
static core_status check(const core__inference *infer, uint32_t at,
                         core_dtype dtype, uint32_t ndim, const int64_t *sizes)
{
    const core_tensor *tensor = core__arg_tensor(infer->args, at);
    const char *name = core__argument_name(infer->op, at);

    if (tensor && (tensor->dtype != dtype || !core__dtype_is_floating(dtype)))
        return core__op_error(CORE_ERROR_DTYPE, infer->op,
                              "%s is %s; all tensors must have one floating "
                              "dtype",
                              name, core__dtype_name(tensor->dtype));
    return core__sizes_check_equal(infer->op, name, tensor, ndim, sizes);
}

static core_status check_matrix(const core__inference *infer, uint32_t at)
{
    const core_tensor *tensor = core__arg_tensor(infer->args, at);

    if (tensor->ndim == 2)
        return CORE_OK;
    return core__op_error(CORE_ERROR_SHAPE, infer->op,
                          "%s has %u dimensions; it must have 2",
                          core__argument_name(infer->op, at), tensor->ndim);
}

/* (input_gates, hidden_gates, state, input_bias, hidden_bias, mode) ->
 * (h, c, workspace) */
CORE__INFER(fused_cell)
{
    const core_tensor *state = core__arg_tensor(infer->args, 2);
    int64_t gates, saved, sizes[2], width;
    bool lstm;

    CORE_TRY(blocks_of(infer, 5, &lstm, &gates, &saved));
    CORE_TRY(check_matrix(infer, 2));
    sizes[0] = state->sizes[0];
    sizes[1] = width = gates * state->sizes[1];
    for (uint32_t i = 0; i < 5; i++)
        if (i != 2)
            CORE_TRY(check(infer, i, state->dtype, i < 2 ? 2 : 1,
                           i < 2 ? sizes : &width));
    core__result_set(&infer->results[0], state->dtype, 2, state->sizes);
    sizes[1] = lstm ? state->sizes[1] : 0;
    core__result_set(&infer->results[1], state->dtype, 2, sizes);
    sizes[1] = saved * state->sizes[1];
    core__result_set(&infer->results[2], state->dtype, 2, sizes);
    return CORE_OK;
}

/* LSTM needs both cell states; GRU has none, and needs the gradient of h. */
static core_status check_given(const core__inference *infer, bool lstm)
{
    for (uint32_t i = 0; i < 4; i++) {
        bool given = core__arg_tensor(infer->args, i) != NULL;

        if (lstm ? i >= 2 && !given : i == 0 ? !given : given)
            return core__op_error(CORE_ERROR_INVALID_ARGUMENT, infer->op,
                                  "%s is %s; LSTM needs cx and cy, and GRU "
                                  "only grad_hy",
                                  core__argument_name(infer->op, i),
                                  given ? "given" : "absent");
    }
    return CORE_OK;
}

/* (grad_hy, grad_cy, cx, cy, workspace, mode) -> (input_gates, hidden_gates,
 * state) */
CORE__INFER(fused_cell_backward)
{
    const core_tensor *work = core__arg_tensor(infer->args, 4);
    int64_t gates, saved, sizes[2];
    bool lstm;

    CORE_TRY(blocks_of(infer, 5, &lstm, &gates, &saved));
    CORE_TRY(check_given(infer, lstm));
    CORE_TRY(check_matrix(infer, 4));
    if (work->sizes[1] % saved)
        return core__op_error(CORE_ERROR_SHAPE, infer->op,
                              "workspace has %lld columns; it must have a "
                              "multiple of %lld",
                              (long long)work->sizes[1], (long long)saved);
    sizes[0] = work->sizes[0];
    sizes[1] = work->sizes[1] / saved;
    for (uint32_t i = 0; i < 4; i++)
        CORE_TRY(check(infer, i, work->dtype, 2, sizes));
    core__result_set(&infer->results[2], work->dtype, 2, sizes);
    sizes[1] *= gates;
    core__result_set(&infer->results[0], work->dtype, 2, sizes);
    if (lstm)
        sizes[1] = 0;
    core__result_set(&infer->results[1], work->dtype, 2, sizes);
    return CORE_OK;
}
