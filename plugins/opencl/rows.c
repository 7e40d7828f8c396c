/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* rows.c: softmax and layer norm, forward and backward. */

#include "opencl.h"
#include "opencl_kernels.h"

static const opencl_source source = {"rows", opencl_rows_cl, NULL, NULL};

static void put_line(opencl_launch *l, opencl_line line)
{
    opencl_long(l, line.outer);
    opencl_long(l, line.size);
    opencl_long(l, line.inner);
}

/* _softmax(self, dim, half_to_float) */
static core_status softmax(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    const core_view *to = results[0].u.view;
    opencl_line line = opencl_line_of(to, args[1].u.i);
    opencl_launch l;

    (void)nargs;
    (void)nresults;
    if (to->numel == 0)
        return CORE_OK;
    l = opencl_begin(call, &source, &to->dtype, 1, "softmax");
    opencl_buffer(&l, to->memory);
    opencl_view(&l, &args[0]);
    put_line(&l, line);
    opencl_int(&l, call->user != NULL);
    return opencl_run(&l, (uint64_t)(line.outer * line.inner), OPENCL_GROUP);
}

/* _softmax_backward_data(grad_output, output, dim, input_dtype) */
static core_status softmax_backward(core_call *call, const core_value *args,
                                    uint32_t nargs, core_value *results,
                                    uint32_t nresults)
{
    const core_view *to = results[0].u.view;
    opencl_line line = opencl_line_of(to, args[2].u.i);
    opencl_launch l;

    (void)nargs;
    (void)nresults;
    if (to->numel == 0)
        return CORE_OK;
    l = opencl_begin(call, &source, &to->dtype, 1, "softmax_backward");
    opencl_buffer(&l, to->memory);
    opencl_view(&l, &args[0]);
    opencl_view(&l, &args[1]);
    put_line(&l, line);
    opencl_int(&l, call->user != NULL);
    return opencl_run(&l, (uint64_t)(line.outer * line.inner), OPENCL_GROUP);
}

/* The dimensions that normalized_shape names are the last ones. */
static void rows_of(const core_view *in, uint32_t last, int64_t *out_rows,
                    int64_t *out_n)
{
    *out_rows = *out_n = 1;
    for (uint32_t d = 0; d < in->ndim; d++)
        *(d + last < in->ndim ? out_rows : out_n) *= in->sizes[d];
}

/* native_layer_norm(input, normalized_shape, weight?, bias?, eps)
 * -> (output, mean, rstd) */
static core_status layer_norm(core_call *call, const core_value *args,
                              uint32_t nargs, core_value *results,
                              uint32_t nresults)
{
    const core_view *in = args[0].u.view;
    int64_t rows, n;
    opencl_launch l;

    (void)nargs;
    (void)nresults;
    rows_of(in, args[1].count, &rows, &n);
    if (rows == 0)
        return CORE_OK;
    l = opencl_begin(call, &source, &in->dtype, 1, "layer_norm");
    for (int i = 0; i < 3; i++)
        opencl_view(&l, &results[i]);
    opencl_view(&l, &args[0]);
    opencl_view(&l, &args[2]);
    opencl_view(&l, &args[3]);
    opencl_long(&l, rows);
    opencl_long(&l, n);
    opencl_double(&l, core_sdk_double(&args[4], 1e-5));
    opencl_int(&l, (args[2].tag == CORE_VALUE_VIEW) |
                       (args[3].tag == CORE_VALUE_VIEW) << 1);
    return opencl_run(&l, (uint64_t)rows, OPENCL_GROUP);
}

static core_status layer_norm_input(core_call *call, const core_value *args,
                                    const core_value *result, int64_t rows,
                                    int64_t n)
{
    opencl_launch l = opencl_begin(call, &source, &args[1].u.view->dtype, 1,
                                   "layer_norm_input");

    opencl_view(&l, result);
    opencl_view(&l, &args[0]);
    opencl_view(&l, &args[1]);
    for (int i = 3; i < 6; i++)
        opencl_view(&l, &args[i]);
    opencl_long(&l, rows);
    opencl_long(&l, n);
    opencl_int(&l, args[5].tag == CORE_VALUE_VIEW);
    return opencl_run(&l, (uint64_t)rows, OPENCL_GROUP);
}

/* native_layer_norm_backward(grad_out, input, normalized_shape, mean, rstd,
 * weight?, bias?, output_mask) -> (input, weight, bias) */
static core_status layer_norm_backward(core_call *call, const core_value *args,
                                       uint32_t nargs, core_value *results,
                                       uint32_t nresults)
{
    const core_view *in = args[1].u.view;
    int want = (results[1].tag == CORE_VALUE_VIEW) |
               (results[2].tag == CORE_VALUE_VIEW) << 1;
    core_status status = CORE_OK;
    int64_t rows, n;
    opencl_launch l;

    (void)nargs;
    (void)nresults;
    rows_of(in, args[2].count, &rows, &n);
    if (results[0].tag == CORE_VALUE_VIEW && in->numel > 0)
        status = layer_norm_input(call, args, &results[0], rows, n);
    if (status != CORE_OK || want == 0 || n == 0)
        return status;
    l = opencl_begin(call, &source, &in->dtype, 1, "layer_norm_weight");
    opencl_view(&l, &results[1]);
    opencl_view(&l, &results[2]);
    opencl_view(&l, &args[0]);
    opencl_view(&l, &args[1]);
    opencl_view(&l, &args[3]);
    opencl_view(&l, &args[4]);
    opencl_long(&l, rows);
    opencl_long(&l, n);
    opencl_int(&l, want);
    return opencl_run(&l, (uint64_t)n, OPENCL_GROUP);
}

core_status opencl_register_rows(core_registry *registry)
{
#define DENSE CORE_DEMAND_CONTIGUOUS
#define ROWS(F)                                                               \
    {"_softmax", softmax, NULL, {F, F}, DENSE},                               \
        {"_log_softmax", softmax, (void *)1, {F, F}, DENSE},                  \
        {"_softmax_backward_data", softmax_backward, NULL, {F, F, F}, DENSE}, \
        {"_log_softmax_backward_data",                                        \
         softmax_backward,                                                    \
         (void *)1,                                                           \
         {F, F, F},                                                           \
         DENSE},                                                              \
        {"native_layer_norm", layer_norm, NULL, {F, F, F, F, F, F}, DENSE},   \
    {                                                                         \
        "native_layer_norm_backward", layer_norm_backward, NULL,              \
            {F, F, F, F, F, F, F, F}, DENSE                                   \
    }
    static const opencl_row rows[] = {ROWS(OPENCL_F32), ROWS(OPENCL_F64)};

    return opencl_register(registry, rows, sizeof rows / sizeof *rows, 0);
}
