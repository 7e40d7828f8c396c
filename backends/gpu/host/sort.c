/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* sort.c: sort, topk, kthvalue, medians, mode. */

#include <math.h>

#include <gpu/host/move.h>
#include <gpu/host/sort.h>
#include <gpu/shared_line.h>

static core_status stage(core_call *call, const char *what, bool wide,
                         gpu_shape shape, const gpu_sort *p)
{
    char name[GPU_NAME];

    snprintf(name, sizeof name, "sort_%s_%s", what, wide ? "wide" : "short");
    return gpu_launch(call, "sort", name, shape, p, sizeof *p);
}

/* Sorts tiles, then merges them; p->keys has the sorted pairs. */
static core_status order(core_call *call, bool wide, gpu_sort *p)
{
    uint64_t lines = (uint64_t)(p->outer * p->inner);
    uint64_t tiles = (uint64_t)((p->size - 1) / GPU_SORT_TILE + 1);
    core_status status =
        stage(call, "tiles", wide, gpu_blocks(lines * tiles, GPU_BLOCK), p);

    for (p->run = GPU_SORT_TILE; p->run < p->size && status == CORE_OK;
         p->run *= 2) {
        void *swap = p->keys;

        status = stage(call, "merge", wide,
                       gpu_spread(gpu_stream_of(call)->device,
                                  lines * (uint64_t)p->size, 1),
                       p);
        p->keys = p->scratch;
        p->scratch = swap;
    }
    return status;
}

core_status gpu_sort_positions(core_call *call, const int64_t *positions,
                               int64_t count, const void **out_pairs)
{
    enum { PAIR = 16 };
    gpu_sort p = {.from = positions,
                  .outer = 1,
                  .size = count,
                  .inner = 1,
                  .dtype = CORE_I64};
    core_memory scratch;
    core_status status =
        gpu_host->call_scratch(call, (uint64_t)count * 2 * PAIR, &scratch);

    if (status != CORE_OK)
        return status;
    p.keys = gpu_address(scratch);
    p.scratch = (char *)p.keys + count * PAIR;
    status = order(call, true, &p);
    *out_pairs = p.keys;
    return status;
}

core_status gpu_sort_smallest(core_call *call, const double *from,
                              int64_t lines, int64_t size, int64_t keep,
                              int64_t *where)
{
    enum { PAIR = 16 };
    gpu_sort p = {.where = where,
                  .from = from,
                  .outer = lines,
                  .size = size,
                  .inner = 1,
                  .keep = keep,
                  .dtype = CORE_F64,
                  .what = GPU_SORTED};
    int64_t bytes = lines * size * PAIR;
    core_memory scratch;
    core_status status = gpu_host->call_scratch(
        call, (uint64_t)(2 * bytes + lines * keep * 8), &scratch);

    if (status != CORE_OK)
        return status;
    p.keys = gpu_address(scratch);
    p.scratch = (char *)p.keys + bytes;
    p.to = (char *)p.scratch + bytes; /* the numbers themselves are not used */
    status = order(call, true, &p);
    if (status != CORE_OK)
        return status;
    return stage(
        call, "take", true,
        gpu_spread(gpu_stream_of(call)->device, (uint64_t)(lines * keep), 1),
        &p);
}

/* keep: the elements kept of each line; for GPU_KTH, the rank. */
static core_status run(core_call *call, const core_value *self, gpu_line line,
                       int64_t keep, bool descending, uint32_t what,
                       core_value *results, uint32_t nresults)
{
    const core_view *from = self->u.view;
    gpu_device *device = gpu_stream_of(call)->device;
    bool wide = core_sdk_itemsize(from->dtype) == 8 || line.size > UINT32_MAX;
    uint64_t lines = (uint64_t)(line.outer * line.inner);
    uint64_t tiles = (uint64_t)((line.size - 1) / GPU_SORT_TILE + 1);
    uint64_t bytes = (uint64_t)from->numel * (wide ? 16 : 8);
    core_memory scratch;
    core_status status;
    gpu_sort p;

    if (lines == 0 || line.size == 0 || keep == 0)
        return CORE_OK;
    status =
        gpu_host->call_scratch(call, tiles > 1 ? 2 * bytes : bytes, &scratch);
    if (status != CORE_OK)
        return status;
    memset(&p, 0, sizeof p);
    p.to = gpu_data(&results[0]);
    p.where = nresults > 1 ? gpu_data(&results[1]) : NULL;
    p.from = gpu_data(self);
    p.keys = gpu_address(scratch);
    p.scratch = (char *)p.keys + bytes;
    p.outer = line.outer;
    p.size = line.size;
    p.inner = line.inner;
    p.keep = keep;
    p.dtype = from->dtype;
    p.descending = descending;
    p.what = what;
    status = order(call, wide, &p);
    if (status != CORE_OK)
        return status;
    return stage(call, "take", wide,
                 gpu_spread(device,
                            lines * (what == GPU_SORTED ? (uint64_t)keep : 1),
                            1),
                 &p);
}

/* sort.stable(self, stable, dim, descending) -> (values, indices); sort(self,
 * dim, descending).  The user pointer is the index of dim. */
static core_status sort(core_call *call, const core_value *args, uint32_t nargs,
                        core_value *results, uint32_t nresults)
{
    intptr_t at = (intptr_t)call->user;
    gpu_line line = gpu_line_of(args[0].u.view, args[at].u.i);

    (void)nargs;
    return run(call, &args[0], line, line.size, args[at + 1].u.i != 0,
               GPU_SORTED, results, nresults);
}

static core_status check_rank(const char *name, int64_t least, int64_t k,
                              int64_t size)
{
    if (k >= least && k <= size)
        return CORE_OK;
    return gpu_refuse(CORE_ERROR_INDEX,
                      "%s: k is %lld, the dimension has size %lld", name,
                      (long long)k, (long long)size);
}

/* topk(self, k, dim, largest, sorted) -> (values, indices) */
static core_status top(core_call *call, const core_value *args, uint32_t nargs,
                       core_value *results, uint32_t nresults)
{
    gpu_line line = gpu_line_of(args[0].u.view, args[2].u.i);
    core_status status = check_rank("topk", 0, args[1].u.i, line.size);
    /* A 0-D tensor has one result for every k. */
    int64_t k = args[0].u.view->ndim == 0 ? 1 : args[1].u.i;

    (void)nargs;
    if (status != CORE_OK)
        return status;
    return run(call, &args[0], line, k, args[3].u.i != 0, GPU_SORTED, results,
               nresults);
}

/* kthvalue(self, k, dim, keepdim) -> (values, indices) */
static core_status kth(core_call *call, const core_value *args, uint32_t nargs,
                       core_value *results, uint32_t nresults)
{
    gpu_line line = gpu_line_of(args[0].u.view, args[2].u.i);
    core_status status = check_rank("kthvalue", 1, args[1].u.i, line.size);

    (void)nargs;
    if (status != CORE_OK)
        return status;
    return run(call, &args[0], line, args[1].u.i, false, GPU_KTH, results,
               nresults);
}

/* median.dim(self, dim, keepdim) -> (values, indices), nanmedian.dim, mode */
static core_status one(core_call *call, const core_value *args, uint32_t nargs,
                       core_value *results, uint32_t nresults)
{
    (void)nargs;
    return run(call, &args[0], gpu_line_of(args[0].u.view, args[1].u.i), 1,
               false, (uint32_t)(uintptr_t)call->user, results, nresults);
}

/* median(self), nanmedian(self) of all elements; NaN if there are none. */
static core_status median_all(core_call *call, const core_value *args,
                              uint32_t nargs, core_value *results,
                              uint32_t nresults)
{
    const core_value nan_ = {.tag = CORE_VALUE_FLOAT, .u.f = NAN};
    const core_view *to = results[0].u.view;
    gpu_line line = {1, args[0].u.view->numel, 1};

    (void)nargs;
    (void)nresults;
    if (line.size == 0)
        return gpu_fill_view(call, to, gpu_scalar_bits(&nan_, to->dtype));
    return run(call, &args[0], line, 1, false, (uint32_t)(uintptr_t)call->user,
               results, 1);
}

core_status gpu_register_sort(core_registry *registry)
{
    enum { DENSE = CORE_REQUIRE_CONTIGUOUS, I = GPU_M_I64 };
    core_status status = CORE_OK;

    for (core_dtype d = CORE_F64; d <= CORE_BOOL && status == CORE_OK; d++) {
        uint32_t m = CORE_DTYPE_MASK(d);
        const gpu_row rows[] = {
            {"sort.stable", sort, (void *)2, {m, m, I}, DENSE, NULL},
            {"sort", sort, (void *)1, {m, m, I}, DENSE, NULL},
            {"topk", top, NULL, {m, m, I}, DENSE, NULL},
            {"kthvalue", kth, NULL, {m, m, I}, DENSE, NULL},
            {"median.dim", one, (void *)GPU_MEDIAN, {m, m, I}, DENSE, NULL},
            {"nanmedian.dim",
             one,
             (void *)GPU_NAN_MEDIAN,
             {m, m, I},
             DENSE,
             NULL},
            {"mode", one, (void *)GPU_MODE, {m, m, I}, DENSE, NULL},
            {"median", median_all, (void *)GPU_MEDIAN, {m, m}, DENSE, NULL},
            {"nanmedian",
             median_all,
             (void *)GPU_NAN_MEDIAN,
             {m, m},
             DENSE,
             NULL},
        };

        status = gpu_register(registry, rows, sizeof rows / sizeof *rows);
    }
    return status;
}
