/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* search.c: positions in sorted rows (kernels/sort.cu). */

#include <gpu/host/host.h>
#include <gpu/shared_line.h>

static core_status search(core_call *call, const core_value *rows,
                          const core_value *values, const core_value *order,
                          bool right, const core_value *result)
{
    const core_view *row = rows->u.view, *in = values->u.view;
    gpu_search p;

    if (in->numel == 0)
        return CORE_OK;
    memset(&p, 0, sizeof p);
    p.to = gpu_data(result);
    p.rows = gpu_data(rows);
    p.from = gpu_data(values);
    p.order = order != NULL ? gpu_data(order) : NULL;
    p.count = in->numel;
    p.size = row->sizes[row->ndim - 1];
    p.each =
        row->ndim == 1 || in->ndim == 0 ? in->numel : in->sizes[in->ndim - 1];
    p.to_dtype = result->u.view->dtype;
    p.dtype = row->dtype;
    p.right = right;
    p.error = gpu_stream_of(call)->error;
    p.call = (int64_t)call->id;
    return gpu_launch(
        call, "sort",
        row->dtype <= CORE_BF16 ? "sort_search_float" : "sort_search_whole",
        gpu_spread(gpu_stream_of(call)->device, (uint64_t)p.count, 1), &p,
        sizeof p);
}

/* searchsorted(sorted_sequence, self, out_int32, right, side, sorter) */
static core_status sorted(core_call *call, const core_value *args,
                          uint32_t nargs, core_value *results,
                          uint32_t nresults)
{
    bool right = args[3].u.i != 0;

    (void)nargs;
    (void)nresults;
    if (args[4].tag == CORE_VALUE_STRING)
        right = args[4].u.string[0] == 'r';
    return search(call, &args[0], &args[1], &args[5], right, &results[0]);
}

/* bucketize(self, boundaries, out_int32, right) */
static core_status bucketize(core_call *call, const core_value *args,
                             uint32_t nargs, core_value *results,
                             uint32_t nresults)
{
    (void)nargs;
    (void)nresults;
    return search(call, &args[1], &args[0], NULL, args[3].u.i != 0,
                  &results[0]);
}

core_status gpu_register_search(core_registry *registry)
{
    enum { DENSE = CORE_REQUIRE_CONTIGUOUS, I = GPU_M_I64 };
    enum { PLACES = GPU_M_I64 | GPU_M_I32 };
    core_status status = CORE_OK;

    for (core_dtype d = CORE_F64; d <= CORE_BOOL && status == CORE_OK; d++) {
        uint32_t m = CORE_DTYPE_MASK(d);
        const gpu_row rows[] = {
            {"searchsorted.Tensor",
             sorted,
             NULL,
             {m, m, I, PLACES},
             DENSE,
             NULL},
            {"bucketize.Tensor", bucketize, NULL, {m, m, PLACES}, DENSE, NULL},
        };

        status = gpu_register(registry, rows, sizeof rows / sizeof *rows);
    }
    return status;
}
