/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Operators that move windows of their operands: cat, flip, constant padding,
 * triangles. */

#include "opencl.h"

/* The memory of an element some steps along a dimension. */
static core_memory moved(const core_view *view, uint32_t dim, int64_t steps)
{
    core_memory memory = view->memory;

    memory.offset +=
        (uint64_t)(steps * view->strides[dim] * core_sdk_itemsize(view->dtype));
    return memory;
}

/* cat(tensors, dim), of any dtypes; empty tensors of one dimension are
 * skipped. */
static core_status cat(core_call *call, const core_value *args, uint32_t nargs,
                       core_value *results, uint32_t nresults)
{
    const core_view *to = results[0].u.view;
    int64_t dim = args[1].u.i < 0 ? args[1].u.i + to->ndim : args[1].u.i;
    core_status status = CORE_OK;
    int64_t at = 0;

    (void)nargs;
    (void)nresults;
    for (uint32_t i = 0; i < args[0].count && status == CORE_OK; i++) {
        const core_view *from = args[0].u.views[i];

        if (from->numel == 0)
            continue;
        status =
            opencl_convert_window(call, to->ndim, from->sizes, to->dtype,
                                  moved(to, (uint32_t)dim, at), to->strides,
                                  from->dtype, from->memory, from->strides);
        at += from->sizes[dim];
    }
    return status;
}

/* flip(self, dims) */
static core_status flip(core_call *call, const core_value *args, uint32_t nargs,
                        core_value *results, uint32_t nresults)
{
    const core_view *from = args[0].u.view, *to = results[0].u.view;
    core_memory memory = from->memory;
    int64_t strides[CORE_MAX_NDIM];

    (void)nargs;
    (void)nresults;
    for (uint32_t d = 0; d < from->ndim; d++)
        strides[d] = from->strides[d];
    for (uint32_t i = 0; i < args[1].count && from->numel > 0; i++) {
        int64_t d = args[1].u.ints[i];

        d += d < 0 ? from->ndim : 0;
        memory.offset += (uint64_t)((from->sizes[d] - 1) * from->strides[d] *
                                    core_sdk_itemsize(from->dtype));
        strides[d] = -from->strides[d];
    }
    return opencl_copy_window(call, to->dtype, to->ndim, to->sizes, to->memory,
                              to->strides, memory, strides);
}

/* constant_pad_nd(self, pad, value); pads may be negative. */
static core_status pad(core_call *call, const core_value *args, uint32_t nargs,
                       core_value *results, uint32_t nresults)
{
    static const core_value zero = {.tag = CORE_VALUE_INT};
    const core_view *from = args[0].u.view, *to = results[0].u.view;
    core_memory source = from->memory, target = to->memory;
    int64_t item = core_sdk_itemsize(to->dtype), sizes[CORE_MAX_NDIM];
    core_status status = opencl_fill_view(
        call, to, opencl_scalar_bits(nargs > 2 ? &args[2] : &zero, to->dtype));

    (void)nresults;
    for (uint32_t d = 0; d < to->ndim; d++) {
        uint32_t k = 2 * (to->ndim - 1 - d);
        int64_t before = k < args[1].count ? args[1].u.ints[k] : 0;
        int64_t behind = k < args[1].count ? args[1].u.ints[k + 1] : 0;

        sizes[d] = from->sizes[d] + (before < 0 ? before : 0) +
                   (behind < 0 ? behind : 0);
        if (sizes[d] <= 0)
            return status;
        if (before > 0)
            target.offset += (uint64_t)(before * to->strides[d] * item);
        else
            source.offset += (uint64_t)(-before * from->strides[d] * item);
    }
    if (status != CORE_OK)
        return status;
    return opencl_copy_window(call, to->dtype, to->ndim, sizes, target,
                              to->strides, source, from->strides);
}

core_status opencl_register_move(core_registry *registry)
{
    static const opencl_row rows[] = {
        {"cat", cat, NULL, {0}, 0},
        {"flip", flip, NULL, {0}, 0},
        {"constant_pad_nd", pad, NULL, {0}, 0},
    };

    return opencl_register(registry, rows, sizeof rows / sizeof *rows,
                           OPENCL_MAX_NDIM);
}
