/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The cells of LSTM and GRU on a GPU: one kernel after the products, for a step,
 * its gradient, and the steps of a layer; the numbers are the CPU's. */

#include "support/gpu_kernel_names.h"

#include <libcore/expressions.h>

enum { BATCH = 3, UNITS = 5 };

/* Numbers of the sizes, on a device. */
static core_tensor *sines(core_device *device, int k, int64_t rows,
                          int64_t columns)
{
    core_tensor *x = core_x_arange(core_int(rows * columns), CORE_F32);

    x = core_x_reshape(core_x_sin(core_x_add(x, k)), CORE_SIZES(rows, columns));
    return core_x_to_copy(x, CORE_F32, device);
}

/* A step and its gradients: h, then c of an LSTM, then three gradients. */
static void step(core_device *device, bool lstm, core_tensor *out[5])
{
    int64_t gates = lstm ? 4 : 3;
    core_tensor *x[3] = {sines(device, 1, BATCH, gates * UNITS),
                         sines(device, 2, BATCH, gates * UNITS),
                         sines(device, 3, BATCH, UNITS)};
    core_tensor *loss;

    for (int i = 0; i < 3; i++)
        CORE_CHECK(core_tensor_set_requires_grad(x[i], true));
    if (lstm) {
        core_x_thnn_fused_lstm_cell_result y =
            core_x_thnn_fused_lstm_cell(x[0], x[1], x[2]);

        out[0] = y.result0;
        out[1] = y.result1;
    } else {
        out[0] = out[1] = core_x_thnn_fused_gru_cell(x[0], x[1], x[2]).result0;
    }
    loss = core_x_sum(core_x_add(out[0], out[1]));
    CORE_CHECK(core_grad(&loss, 1, NULL, x, 3, 0, &out[2]));
}

/* _i: GRU or LSTM. */
START_TEST(cells_have_the_numbers_of_the_cpu)
{
    core_scope scope = core_scope_begin();
    core_tensor *here[5] = {NULL}, *there[5] = {NULL};

    step(opened("cpu"), _i, here);
    step(gpuemu(), _i, there);
    OK(core_scope_status());
    for (int i = 0; i < 5; i++)
        same(core_x_detach(here[i]), core_x_detach(there[i]), 1e-6);
    for (int i = 2; i < 5; i++) {
        core_tensor_release(here[i]);
        core_tensor_release(there[i]);
    }
    OK(core_scope_end(scope));
}
END_TEST

/* _i: GRU or LSTM. */
START_TEST(a_cell_is_one_kernel)
{
    core_scope scope = core_scope_begin();
    core_device *device = gpuemu();
    core_tensor *x[3] = {sines(device, 1, BATCH, 4 * UNITS),
                         sines(device, 2, BATCH, 4 * UNITS),
                         sines(device, 3, BATCH, UNITS)};
    core_profiler *profiler;

    for (int i = 0; i < 2 && !_i; i++)
        x[i] = core_x_contiguous(core_x_slice(x[i], 1, 0, 3 * UNITS));
    OK(core_device_synchronize(device));
    profiler = start_kernel_trace();
    if (_i)
        (void)core_x_thnn_fused_lstm_cell(x[0], x[1], x[2]);
    else
        (void)core_x_thnn_fused_gru_cell(x[0], x[1], x[2]);
    OK(core_scope_status());
    check_kernels(profiler,
                  (const char *const[]){_i ? "lstm_f32" : "gru_f32", NULL});
    OK(core_scope_end(scope));
}
END_TEST

/* Whether a profile has a kernel, and how often. */
static int launches_of(core_profiler *profiler, const char *name)
{
    int count = 0;

    for (size_t i = 0; i < profiler->nslices; i++)
        count += profiler->slices[i].kind == CORE_ACTIVITY_KERNEL &&
                 strcmp(profiler->slices[i].name, name) == 0;
    return count;
}

/* _i: GRU or LSTM.  A layer of two steps, and its backward. */
START_TEST(the_steps_of_a_layer_are_cells)
{
    core_scope scope = core_scope_begin();
    core_device *device = gpuemu();
    int64_t gates = _i ? 4 : 3;
    core_tensor *weights[2] = {sines(device, 1, gates * UNITS, 4),
                               sines(device, 2, gates * UNITS, UNITS)};
    core_tensor *x = sines(device, 3, 2, BATCH * 4), *y, *grads[2] = {NULL};
    core_tensor *state =
        core_x_zeros(CORE_SIZES(1, BATCH, UNITS), CORE_F32, device);
    core_profiler *profiler;

    for (int i = 0; i < 2; i++)
        CORE_CHECK(core_tensor_set_requires_grad(weights[i], true));
    x = core_x_reshape(x, CORE_SIZES(2, BATCH, 4));
    OK(core_device_synchronize(device));
    profiler = start_kernel_trace();
    if (_i)
        y = core_x_lstm(x, CORE_LIST(state, state), core_list_from(weights, 2),
                        false, 1, 0, true, false, false)
                .result0;
    else
        y = core_x_gru(x, state, core_list_from(weights, 2), false, 1, 0, true,
                       false, false)
                .result0;
    y = core_x_sum(y);
    CORE_CHECK(core_grad(&y, 1, NULL, weights, 2, 0, grads));
    OK(core_scope_status());
    OK(core_device_synchronize(device));
    OK(core_profiler_stop(profiler));
    ck_assert_int_eq(launches_of(profiler, _i ? "lstm_f32" : "gru_f32"), 2);
    ck_assert_int_eq(
        launches_of(profiler, _i ? "lstm_grad_f32" : "gru_grad_f32"), 2);
    core_profiler_release(profiler);
    for (int i = 0; i < 2; i++)
        core_tensor_release(grads[i]);
    OK(core_scope_end(scope));
}
END_TEST

int main(void)
{
    const suite_loop loops[] = {
        {cells_have_the_numbers_of_the_cpu, 0, 2},
        {a_cell_is_one_kernel, 0, 2},
        {the_steps_of_a_layer_are_cells, 0, 2},
    };
    const test_suite suite = {
        .name = "gpu/recurrent", .teardown = drop_all, SUITE_LOOPS(loops)};

    if (!gpu_plugin_found())
        return suite_skip_all("the plugin of %s is not built", gpu_name());
    return suite_run(&suite, 1);
}
