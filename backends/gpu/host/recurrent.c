/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* recurrent.c: the cells of LSTM and GRU after their products, and their
 * gradients. */

#include <gpu/host/host.h>
#include <gpu/shared_recurrent.h>

/* The argument `mode`: 2 is LSTM, 3 is GRU. */
static bool is_lstm(const core_value *mode)
{
    return mode->u.i == 2;
}

static core_status launch(core_call *call, const char *stem,
                          const core_view *state, const void *parameters,
                          size_t size)
{
    char name[GPU_NAME];

    if (state->numel == 0)
        return CORE_OK;
    return gpu_launch(
        call, "recurrent", gpu_name(name, stem, state->dtype),
        gpu_spread(gpu_stream_of(call)->device, (uint64_t)state->numel, 1),
        parameters, size);
}

/* _fused_cell(input_gates, hidden_gates, state, input_bias?, hidden_bias?, mode)
 * -> (h, c, workspace) */
static core_status cell(core_call *call, const core_value *args, uint32_t nargs,
                        core_value *results, uint32_t nresults)
{
    const core_view *state = args[2].u.view;
    const gpu_cell p = {.input = gpu_data(&args[0]),
                        .hidden = gpu_data(&args[1]),
                        .input_bias = gpu_data(&args[3]),
                        .hidden_bias = gpu_data(&args[4]),
                        .state = gpu_data(&args[2]),
                        .h = gpu_data(&results[0]),
                        .c = gpu_data(&results[1]),
                        .saved = gpu_data(&results[2]),
                        .count = state->numel,
                        .units = state->sizes[1]};

    (void)nargs;
    (void)nresults;
    return launch(call, is_lstm(&args[5]) ? "lstm" : "gru", state, &p,
                  sizeof p);
}

/* _fused_cell_backward(grad_hy?, grad_cy?, cx?, cy?, workspace, mode)
 * -> (input_gates, hidden_gates, state) */
static core_status cell_backward(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults)
{
    const core_view *state = results[2].u.view;
    const gpu_cell_grad p = {.grad_h = gpu_data(&args[0]),
                             .grad_c = gpu_data(&args[1]),
                             .state = gpu_data(&args[2]),
                             .c = gpu_data(&args[3]),
                             .saved = gpu_data(&args[4]),
                             .to_input = gpu_data(&results[0]),
                             .to_hidden = gpu_data(&results[1]),
                             .to_state = gpu_data(&results[2]),
                             .count = state->numel,
                             .units = state->sizes[1]};

    (void)nargs;
    (void)nresults;
    return launch(call, is_lstm(&args[5]) ? "lstm_grad" : "gru_grad", state, &p,
                  sizeof p);
}

core_status gpu_register_recurrent(core_registry *registry)
{
    enum { DENSE = CORE_REQUIRE_CONTIGUOUS };
#define CELLS(M)                                                               \
    {"_fused_cell", cell, NULL, {M, M, M, M, M, M, M, M}, DENSE, NULL},        \
    {                                                                          \
        "_fused_cell_backward", cell_backward, NULL, {M, M, M, M, M, M, M, M}, \
            DENSE, NULL                                                        \
    }
    static const gpu_row rows[] = {CELLS(GPU_M_F32), CELLS(GPU_M_F64),
                                   CELLS(GPU_M_F16), CELLS(GPU_M_BF16)};

    return gpu_register(registry, rows, sizeof rows / sizeof *rows);
}
