/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* sort, topk, kthvalue, medians and mode; searchsorted and bucketize. */

#include <math.h>

#include "opencl.h"
#include "opencl_kernels.h"

static const opencl_source source = {"sort", opencl_sort_cl, NULL, NULL};

/* Must match kernels/sort.cl. */
enum { SORTED, KTH, MEDIAN, NAN_MEDIAN, MODE };

/* keep: elements to write per line; for KTH the rank. */
static core_status run(core_call *call, const core_value *self,
                       opencl_line line, int64_t keep, bool descending,
                       int what, core_value *results, uint32_t nresults)
{
    core_dtype dtype = self->u.view->dtype;
    core_memory scratch = {NULL, 0};
    core_status status;
    opencl_launch l;

    if (line.outer * line.inner == 0 || line.size == 0 || keep == 0)
        return CORE_OK;
    status = opencl_host->call_scratch(call, (uint64_t)self->u.view->numel * 16,
                                       &scratch);
    if (status != CORE_OK)
        return status;
    l = opencl_begin(call, &source, &dtype, 1, "sort");
    opencl_view(&l, &results[0]);
    if (nresults > 1)
        opencl_view(&l, &results[1]);
    else
        opencl_null_buffer(&l);
    opencl_view(&l, self);
    opencl_buffer(&l, scratch);
    opencl_long(&l, line.outer);
    opencl_long(&l, line.size);
    opencl_long(&l, line.inner);
    opencl_long(&l, keep);
    opencl_int(&l, descending);
    opencl_int(&l, what);
    opencl_int(&l, nresults > 1);
    return opencl_run(&l, (uint64_t)(line.outer * line.inner), OPENCL_GROUP);
}

/* sort.stable(self, stable, dim, descending) -> (values, indices); sort(self,
 * dim, descending); the user pointer is the index of dim */
static core_status sort(core_call *call, const core_value *args, uint32_t nargs,
                        core_value *results, uint32_t nresults)
{
    intptr_t at = (intptr_t)call->user;
    opencl_line line = opencl_line_of(args[0].u.view, args[at].u.i);

    (void)nargs;
    return run(call, &args[0], line, line.size, args[at + 1].u.i != 0, SORTED,
               results, nresults);
}

static core_status check_rank(const char *name, int64_t least, int64_t k,
                              int64_t size)
{
    if (k >= least && k <= size)
        return CORE_OK;
    return opencl_refuse(CORE_ERROR_INDEX,
                         "%s: k is %lld in a dimension of size %lld", name,
                         (long long)k, (long long)size);
}

/* topk(self, k, dim, largest, sorted) -> (values, indices) */
static core_status top(core_call *call, const core_value *args, uint32_t nargs,
                       core_value *results, uint32_t nresults)
{
    opencl_line line = opencl_line_of(args[0].u.view, args[2].u.i);
    core_status status = check_rank("topk", 0, args[1].u.i, line.size);
    /* a 0-dim tensor has one result, whatever k is */
    int64_t k = args[0].u.view->ndim == 0 ? 1 : args[1].u.i;

    (void)nargs;
    if (status != CORE_OK)
        return status;
    return run(call, &args[0], line, k, args[3].u.i != 0, SORTED, results,
               nresults);
}

/* kthvalue(self, k, dim, keepdim) -> (values, indices) */
static core_status kth(core_call *call, const core_value *args, uint32_t nargs,
                       core_value *results, uint32_t nresults)
{
    opencl_line line = opencl_line_of(args[0].u.view, args[2].u.i);
    core_status status = check_rank("kthvalue", 1, args[1].u.i, line.size);

    (void)nargs;
    if (status != CORE_OK)
        return status;
    return run(call, &args[0], line, args[1].u.i, false, KTH, results,
               nresults);
}

/* median.dim(self, dim, keepdim) -> (values, indices), nanmedian.dim, mode */
static core_status one(core_call *call, const core_value *args, uint32_t nargs,
                       core_value *results, uint32_t nresults)
{
    (void)nargs;
    return run(call, &args[0], opencl_line_of(args[0].u.view, args[1].u.i), 1,
               false, (int)(intptr_t)call->user, results, nresults);
}

/* median(self), nanmedian(self): of all elements; NaN if there are none. */
static core_status median_all(core_call *call, const core_value *args,
                              uint32_t nargs, core_value *results,
                              uint32_t nresults)
{
    const core_value nan_ = {.tag = CORE_VALUE_FLOAT, .u.f = NAN};
    const core_view *to = results[0].u.view;
    opencl_line line = {1, args[0].u.view->numel, 1};

    (void)nargs;
    (void)nresults;
    if (line.size == 0)
        return opencl_fill_view(call, to, opencl_scalar_bits(&nan_, to->dtype));
    return run(call, &args[0], line, 1, false, (int)(intptr_t)call->user,
               results, 1);
}

/* -------------------------------------------------------------- search -- */

static core_status search(core_call *call, const core_value *rows,
                          const core_value *values, const core_value *order,
                          bool right, const core_value *result)
{
    const core_view *row = rows->u.view, *in = values->u.view;
    core_dtype types[2] = {row->dtype, result->u.view->dtype};
    int64_t count =
        row->ndim == 1 || in->ndim == 0 ? in->numel : in->sizes[in->ndim - 1];
    opencl_launch l;

    if (in->numel == 0)
        return CORE_OK;
    l = opencl_begin(call, &source, types, 2, "search");
    opencl_view(&l, result);
    opencl_view(&l, rows);
    opencl_view(&l, values);
    if (order != NULL)
        opencl_view(&l, order);
    else
        opencl_null_buffer(&l);
    opencl_long(&l, in->numel);
    opencl_long(&l, row->sizes[row->ndim - 1]);
    opencl_long(&l, count);
    opencl_int(&l, right);
    opencl_int(&l, order != NULL && order->tag == CORE_VALUE_VIEW);
    opencl_error_args(&l, call->id);
    return opencl_run(&l, (uint64_t)in->numel, OPENCL_GROUP);
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

core_status opencl_register_sort(core_registry *registry)
{
    enum { DENSE = CORE_REQUIRE_CONTIGUOUS, I = OPENCL_I64 };
    enum { PLACES = OPENCL_I64 | OPENCL_I32 };
    core_status status = CORE_OK;

    for (core_dtype d = CORE_F64; d <= CORE_BOOL && status == CORE_OK; d++) {
        uint32_t m = CORE_DTYPE_MASK(d);
        const opencl_row rows[] = {
            {"sort.stable", sort, (void *)2, {m, m, I}, DENSE},
            {"sort", sort, (void *)1, {m, m, I}, DENSE},
            {"topk", top, NULL, {m, m, I}, DENSE},
            {"kthvalue", kth, NULL, {m, m, I}, DENSE},
            {"median.dim", one, (void *)MEDIAN, {m, m, I}, DENSE},
            {"nanmedian.dim", one, (void *)NAN_MEDIAN, {m, m, I}, DENSE},
            {"mode", one, (void *)MODE, {m, m, I}, DENSE},
            {"median", median_all, (void *)MEDIAN, {m, m}, DENSE},
            {"nanmedian", median_all, (void *)NAN_MEDIAN, {m, m}, DENSE},
            {"searchsorted.Tensor", sorted, NULL, {m, m, I, PLACES}, DENSE},
            {"bucketize.Tensor", bucketize, NULL, {m, m, PLACES}, DENSE},
        };

        status = opencl_register(registry, rows, sizeof rows / sizeof *rows, 0);
    }
    return status;
}
