/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The cells of LSTM and GRU after their products, and their gradients: a row for
 * each sample.  Compiled per instruction set. */

#include <math.h>

#include <expressions/vecmath.h>

#include "runtime/thread_pool.h"
#include "tables.h"
#include "view.h"

enum { BUFFERS = 8, TASK_UNITS = 4096 };

/* Rows of gates have 4 or 3 blocks of `units` numbers, those of `saved` 4 or 5,
 * and the others one.  NULL: absent. */
typedef struct cell {
    bool lstm, backward;
    int64_t batch, units, gates;
    const void *input, *hidden, *input_bias, *hidden_bias, *state;
    void *h, *c, *saved;
    const void *grad_h, *grad_c;
    void *to_input, *to_hidden, *to_state;
    cpu_dense buffers[BUFFERS];
    uint32_t nbuffers;
} cell;

#define TYPE float
#define T(name) name##_f32
#define L(name) name##_f32
#include "cell_type.h"
#undef TYPE
#undef T
#undef L
#define TYPE double
#define T(name) name##_f64
#define L(name) name##_f64
#include "cell_type.h"
#undef TYPE
#undef T
#undef L

/* The contents of a view in the type that is computed in; NULL for none. */
static void *open_view(cell *a, const core_value *value, bool writes,
                       core_dtype dtype, core_status *status)
{
    const core_view *view = cpu_view(value);
    cpu_dense *buffer = &a->buffers[a->nbuffers];

    if (*status != CORE_OK || !view)
        return NULL;
    *status = writes ? cpu_dense_open(view, dtype, buffer)
                     : cpu_dense_read(view, dtype, buffer);
    a->nbuffers++;
    return buffer->data;
}

static core_status run(cell *a, const core_value *state, const core_value *mode,
                       core_dtype dtype, core_status status)
{
    int64_t units = cpu_view(state)->sizes[1];

    a->lstm = cpu_int(mode) == 2;
    a->gates = a->lstm ? 4 : 3;
    a->batch = cpu_view(state)->sizes[0];
    a->units = units;
    if (status == CORE_OK && units > 0)
        cpu_parallel_for(a->batch, TASK_UNITS / units + 1,
                         dtype == CORE_F64 ? rows_f64 : rows_f32, a);
    for (uint32_t i = 0; i < a->nbuffers; i++) {
        if (status == CORE_OK)
            cpu_dense_write(&a->buffers[i]);
        cpu_dense_close(&a->buffers[i]);
    }
    return status;
}

/* (input_gates, hidden_gates, state, input_bias?, hidden_bias?, mode) -> (h, c,
 * workspace) */
static core_status forward(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    core_dtype dtype = cpu_compute_dtype(cpu_view(&args[2])->dtype);
    core_status status = CORE_OK;
    cell a = {.backward = false};

    (void)call;
    (void)nargs;
    (void)nresults;
    a.input = open_view(&a, &args[0], false, dtype, &status);
    a.hidden = open_view(&a, &args[1], false, dtype, &status);
    a.state = open_view(&a, &args[2], false, dtype, &status);
    a.input_bias = open_view(&a, &args[3], false, dtype, &status);
    a.hidden_bias = open_view(&a, &args[4], false, dtype, &status);
    a.h = open_view(&a, &results[0], true, dtype, &status);
    a.c = open_view(&a, &results[1], true, dtype, &status);
    a.saved = open_view(&a, &results[2], true, dtype, &status);
    return run(&a, &args[2], &args[5], dtype, status);
}

/* (grad_hy?, grad_cy?, cx?, cy?, workspace, mode) -> (input_gates, hidden_gates,
 * state) */
static core_status backward(core_call *call, const core_value *args,
                            uint32_t nargs, core_value *results,
                            uint32_t nresults)
{
    core_dtype dtype = cpu_compute_dtype(cpu_view(&args[4])->dtype);
    core_status status = CORE_OK;
    cell a = {.backward = true};

    (void)call;
    (void)nargs;
    (void)nresults;
    a.grad_h = open_view(&a, &args[0], false, dtype, &status);
    a.grad_c = open_view(&a, &args[1], false, dtype, &status);
    a.state = open_view(&a, &args[2], false, dtype, &status);
    a.c = open_view(&a, &args[3], false, dtype, &status);
    a.saved = open_view(&a, &args[4], false, dtype, &status);
    a.to_input = open_view(&a, &results[0], true, dtype, &status);
    a.to_hidden = open_view(&a, &results[1], true, dtype, &status);
    a.to_state = open_view(&a, &results[2], true, dtype, &status);
    return run(&a, &results[2], &args[5], dtype, status);
}

#define FLOATS_5 CPU_FLOATS, CPU_FLOATS, CPU_FLOATS, CPU_FLOATS, CPU_FLOATS
static const cpu_kernel kernels[] = {
    {"_fused_cell", forward, NULL, {FLOATS_5}, 0},
    {"_fused_cell_backward", backward, NULL, {FLOATS_5}, 0},
};

const cpu_kernel_table CPU_NAME(cpu_cell_kernels) = {
    kernels, sizeof kernels / sizeof kernels[0]};
