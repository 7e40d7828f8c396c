/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Maxima and averages of sliding windows in two dimensions. */

#include "opencl.h"
#include "opencl_kernels.h"

static const opencl_source source = {"pooling", opencl_pooling_cl, NULL, NULL};

/* Must match kernels/pooling.cl. */
typedef struct windows {
    cl_long planes, height, width, out_height, out_width;
    cl_long kernel_y, kernel_x, stride_y, stride_x, pad_y, pad_x;
    cl_long dilation_y, dilation_x, divisor;
    cl_int with_padding, reserved;
} windows;

/* One number applies to both. */
static void pair(const core_value *list, int64_t otherwise_y,
                 int64_t otherwise_x, cl_long *y, cl_long *x)
{
    if (list == NULL || list->tag != CORE_VALUE_INT_LIST || list->count == 0) {
        *y = otherwise_y;
        *x = otherwise_x;
        return;
    }
    *y = list->u.ints[0];
    *x = list->u.ints[list->count > 1 ? 1 : 0];
}

/* sizes: kernel_size, stride, padding of the arguments. */
static windows windows_of(const core_view *in, const core_view *out,
                          const core_value *sizes, const core_value *dilation)
{
    uint32_t n = in->ndim;
    windows g = {.planes = 1,
                 .height = in->sizes[n - 2],
                 .width = in->sizes[n - 1],
                 .out_height = out->sizes[n - 2],
                 .out_width = out->sizes[n - 1]};

    for (uint32_t d = 0; d + 2 < n; d++)
        g.planes *= in->sizes[d];
    pair(&sizes[0], 1, 1, &g.kernel_y, &g.kernel_x);
    pair(&sizes[1], g.kernel_y, g.kernel_x, &g.stride_y, &g.stride_x);
    pair(&sizes[2], 0, 0, &g.pad_y, &g.pad_x);
    pair(dilation, 1, 1, &g.dilation_y, &g.dilation_x);
    return g;
}

static core_status run(core_call *call, const char *function,
                       const core_value *const *buffers, uint32_t count,
                       const windows *g)
{
    const core_view *to = buffers[0]->u.view;
    opencl_launch l;

    if (to->numel == 0)
        return CORE_OK;
    l = opencl_begin(call, &source, &to->dtype, 1, function);
    for (uint32_t i = 0; i < count; i++)
        opencl_view(&l, buffers[i]);
    opencl_bytes(&l, g, sizeof *g);
    return opencl_run(&l, (uint64_t)to->numel, OPENCL_GROUP);
}

/* max_pool2d_with_indices(self, kernel_size, stride, padding, dilation,
 * ceil_mode) -> (output, indices) */
static core_status most(core_call *call, const core_value *args, uint32_t nargs,
                        core_value *results, uint32_t nresults)
{
    const core_value *buffers[] = {&results[0], &results[1], &args[0]};
    windows g = windows_of(args[0].u.view, results[0].u.view, &args[1],
                           nargs > 4 ? &args[4] : NULL);

    (void)nresults;
    return run(call, "most", buffers, 3, &g);
}

/* max_pool2d_with_indices_backward(grad_output, self, kernel_size, stride,
 * padding, dilation, ceil_mode, indices) */
static core_status most_backward(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults)
{
    const core_view *to = results[0].u.view;
    windows g = windows_of(to, args[0].u.view, &args[2], &args[5]);
    opencl_launch l;

    (void)nargs;
    (void)nresults;
    if (to->numel == 0)
        return CORE_OK;
    l = opencl_begin(call, &source, &to->dtype, 1, "most_backward");
    opencl_view(&l, &results[0]);
    opencl_view(&l, &args[0]);
    opencl_view(&l, &args[7]);
    opencl_bytes(&l, &g, sizeof g);
    opencl_error_args(&l, call->id);
    return opencl_run(&l, (uint64_t)g.planes, OPENCL_GROUP);
}

/* rest: ceil_mode, count_include_pad, divisor_override */
static void average(windows *g, const core_value *rest, uint32_t count)
{
    g->with_padding = count > 1 ? rest[1].u.i != 0 : 1;
    g->divisor = count > 2 && rest[2].tag == CORE_VALUE_INT ? rest[2].u.i : 0;
}

/* avg_pool2d(self, kernel_size, stride, padding, ceil_mode,
 * count_include_pad, divisor_override) */
static core_status mean(core_call *call, const core_value *args, uint32_t nargs,
                        core_value *results, uint32_t nresults)
{
    const core_value *buffers[] = {&results[0], &args[0]};
    windows g = windows_of(args[0].u.view, results[0].u.view, &args[1], NULL);

    (void)nresults;
    average(&g, &args[4], nargs > 4 ? nargs - 4 : 0);
    return run(call, "mean", buffers, 2, &g);
}

/* avg_pool2d_backward(grad_output, self, kernel_size, stride, padding,
 * ceil_mode, count_include_pad, divisor_override) */
static core_status mean_backward(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults)
{
    const core_value *buffers[] = {&results[0], &args[0]};
    windows g = windows_of(results[0].u.view, args[0].u.view, &args[2], NULL);

    (void)nresults;
    average(&g, &args[5], nargs > 5 ? nargs - 5 : 0);
    return run(call, "mean_backward", buffers, 2, &g);
}

core_status opencl_register_pooling(core_registry *registry)
{
#define DENSE CORE_REQUIRE_CONTIGUOUS
#define I OPENCL_I64
#define ROWS(F)                                                      \
    {"max_pool2d_with_indices", most, NULL, {F, F, I}, DENSE},       \
        {"max_pool2d_with_indices_backward",                         \
         most_backward,                                              \
         NULL,                                                       \
         {F, F, I, F},                                               \
         DENSE},                                                     \
        {"avg_pool2d", mean, NULL, {F, F}, DENSE},                   \
    {                                                                \
        "avg_pool2d_backward", mean_backward, NULL, {F, F, F}, DENSE \
    }
    static const opencl_row rows[] = {ROWS(OPENCL_F32), ROWS(OPENCL_F64),
                                      ROWS(OPENCL_F16), ROWS(OPENCL_BF16)};

    return opencl_register(registry, rows, sizeof rows / sizeof *rows, 0);
}
