/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* All forms of scatter, index_copy, index_fill, and indexing by lists of
 * tensors. */

#include "opencl.h"
#include "opencl_kernels.h"

static const opencl_source source = {"scatter", opencl_scatter_cl, NULL, NULL};

/* Must match kernels/scatter.cl. */
typedef struct lines {
    cl_ulong count;
    cl_uint ndim, value_given;
    cl_uint sizes[OPENCL_MAX_NDIM], within[OPENCL_MAX_NDIM];
    cl_long self[OPENCL_MAX_NDIM], index[OPENCL_MAX_NDIM],
        source[OPENCL_MAX_NDIM];
    cl_long size, self_step, n, index_step, source_step;
} lines;

static core_status copy_of(core_call *call, const core_view *from,
                           const core_view *to)
{
    if (from->memory.handle == to->memory.handle &&
        from->memory.offset == to->memory.offset)
        return CORE_OK;
    return opencl_copy_window(call, to->dtype, to->ndim, to->sizes, to->memory,
                              to->strides, from->memory, from->strides);
}

static core_status lines_of(const core_value *args, const core_view *self,
                            lines *p)
{
    const core_view *index = args[2].u.view, *from = NULL;
    int64_t dim = args[1].u.i < 0 ? args[1].u.i + self->ndim : args[1].u.i;

    if (args[3].tag == CORE_VALUE_VIEW)
        from = args[3].u.view;
    *p = (lines){.count = 1, .size = 1, .n = 1, .value_given = from == NULL};
    if (self->ndim > OPENCL_MAX_NDIM + 1)
        return opencl_refuse(CORE_ERROR_UNSUPPORTED,
                             "scatter: %u dimensions; at most %u", self->ndim,
                             OPENCL_MAX_NDIM + 1);
    for (int64_t d = (int64_t)self->ndim - 1; d >= 0; d--) {
        uint32_t k = p->ndim;
        int64_t step = index->ndim ? index->strides[d] : 0;

        if (d == dim) {
            p->size = self->sizes[d];
            p->self_step = self->strides[d];
            p->n = index->ndim ? index->sizes[d] : 1;
            p->index_step = step;
            p->source_step = from && from->ndim ? from->strides[d] : 0;
            continue;
        }
        p->count *= (cl_ulong)self->sizes[d];
        p->sizes[k] = (cl_uint)self->sizes[d];
        p->within[k] = (cl_uint)(index->ndim ? index->sizes[d] : 1);
        p->self[k] = self->strides[d];
        p->index[k] = step;
        p->source[k] = from && from->ndim ? from->strides[d] : 0;
        p->ndim++;
    }
    return CORE_OK;
}

/* scatter.src(self, dim, index, src), scatter.value(self, dim, index, value) */
static core_status scatter(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    const core_view *to = results[0].u.view;
    core_dtype types[2] = {opencl_bits_of(to->dtype), args[2].u.view->dtype};
    uint64_t value = opencl_scalar_bits(&args[3], to->dtype);
    core_status status;
    opencl_launch l;
    lines p;

    (void)nargs;
    (void)nresults;
    status = lines_of(args, to, &p);
    if (status == CORE_OK)
        status = copy_of(call, args[0].u.view, to);
    if (status != CORE_OK || args[2].u.view->numel == 0 || to->numel == 0)
        return status;
    l = opencl_begin(call, &source, types, 2, "scatter");
    opencl_view(&l, &results[0]);
    opencl_view(&l, &args[2]);
    opencl_view(&l, &args[3]);
    opencl_bytes(&l, &value, sizeof value);
    opencl_bytes(&l, &p, sizeof p);
    opencl_error_args(&l, call->id);
    return opencl_run(&l, p.count, OPENCL_GROUP);
}

static core_status reduction_of(const core_value *name, int32_t *out)
{
    static const struct {
        const char *name;
        int32_t what;
    } known[] = {{"sum", 0},  {"add", 0},  {"prod", 1}, {"multiply", 1},
                 {"mean", 2}, {"amax", 3}, {"amin", 4}};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i].name) == name->count &&
            memcmp(known[i].name, name->u.string, name->count) == 0) {
            *out = known[i].what;
            return CORE_OK;
        }
    return opencl_refuse(CORE_ERROR_INVALID_ARGUMENT,
                         "scatter: no reduction is called '%.*s'",
                         (int)name->count, name->u.string);
}

/* scatter_add(self, dim, index, src), scatter.reduce(…, reduce),
 * scatter.value_reduce(…, reduce), scatter_reduce.two(…, reduce,
 * include_self) */
static core_status reduce(core_call *call, const core_value *args,
                          uint32_t nargs, core_value *results,
                          uint32_t nresults)
{
    const core_view *to = results[0].u.view;
    core_dtype types[2] = {to->dtype, args[2].u.view->dtype};
    uint64_t numel = (uint64_t)to->numel;
    core_memory sums = {NULL, 0}, counts = {NULL, 0};
    core_status status;
    int32_t what = 0;
    opencl_launch l;
    lines p;

    (void)nresults;
    status = nargs > 4 ? reduction_of(&args[4], &what) : CORE_OK;
    if (status == CORE_OK)
        status = lines_of(args, to, &p);
    if (status != CORE_OK || to->numel == 0)
        return status;
    if (args[2].u.view->numel == 0)
        return copy_of(call, args[0].u.view, to);
    status = opencl_host->call_scratch(call, numel * 8, &sums);
    if (status == CORE_OK)
        status = opencl_host->call_scratch(call, numel * 4, &counts);
    if (status != CORE_OK)
        return status;
    l = opencl_begin(call, &source, types, 2, "reduce");
    opencl_view(&l, &results[0]);
    opencl_view(&l, &args[0]);
    opencl_view(&l, &args[2]);
    opencl_view(&l, &args[3]);
    opencl_buffer(&l, sums);
    opencl_buffer(&l, counts);
    opencl_double(&l, core_sdk_double(&args[3], 0));
    opencl_long(&l, core_sdk_int(&args[3], 0));
    opencl_bytes(&l, &p, sizeof p);
    opencl_int(&l, what);
    opencl_int(&l, nargs < 6 || core_sdk_int(&args[5], 1) != 0);
    opencl_error_args(&l, call->id);
    return opencl_run(&l, p.count, OPENCL_GROUP);
}

/* index_copy(self, dim, index, source), index_fill.int_Scalar(self, dim, index,
 * value) */
static core_status slices(core_call *call, const core_value *args,
                          uint32_t nargs, core_value *results,
                          uint32_t nresults)
{
    const core_view *to = results[0].u.view, *index = args[2].u.view;
    core_dtype types[2] = {opencl_bits_of(to->dtype), index->dtype};
    opencl_line line = opencl_line_of(to, args[1].u.i);
    uint64_t value = opencl_scalar_bits(&args[3], to->dtype);
    core_status status = copy_of(call, args[0].u.view, to);
    opencl_launch l;

    (void)nargs;
    (void)nresults;
    if (status != CORE_OK || to->numel == 0 || index->numel == 0)
        return status;
    l = opencl_begin(call, &source, types, 2, "slices");
    opencl_view(&l, &results[0]);
    opencl_view(&l, &args[2]);
    opencl_view(&l, &args[3]);
    opencl_bytes(&l, &value, sizeof value);
    opencl_int(&l, args[3].tag != CORE_VALUE_VIEW);
    opencl_long(&l, line.outer);
    opencl_long(&l, line.size);
    opencl_long(&l, line.inner);
    opencl_long(&l, index->numel);
    opencl_error_args(&l, call->id);
    return opencl_run(&l, (uint64_t)(line.outer * line.inner), OPENCL_GROUP);
}

/* ------------------------------------------------- by several at once -- */

enum { TENSORS = 4 };

typedef struct indexing {
    cl_long outer, count, rest, outer_step;
    cl_uint tensors, ndim;
    cl_long limits[TENSORS], steps[TENSORS];
    cl_uint sizes[OPENCL_MAX_NDIM];
    cl_long strides[OPENCL_MAX_NDIM];
} indexing;

/* If the indexed dimensions are adjacent, the dimensions before them are
 * `outer`; else the indices come first, and all others are `rest`. */
static void indexing_of(const core_view *self, const core_value *list,
                        indexing *p, const core_view **out_tensors)
{
    uint32_t first = self->ndim, last = 0;

    *p = (indexing){.outer = 1, .count = 1, .rest = 1};
    for (uint32_t d = 0; d < list->count; d++)
        if (list->u.views[d] != NULL) {
            first = p->tensors == 0 ? d : first;
            last = d;
            p->limits[p->tensors] = self->sizes[d];
            p->steps[p->tensors] = self->strides[d];
            p->count = list->u.views[d]->numel;
            out_tensors[p->tensors++] = list->u.views[d];
        }
    for (uint32_t d = self->ndim; d-- > 0;) {
        if (d < list->count && list->u.views[d] != NULL)
            continue;
        if (last - first + 1 == p->tensors && d < first) {
            p->outer_step = p->outer == 1 ? self->strides[d] : p->outer_step;
            p->outer *= self->sizes[d];
            continue;
        }
        p->rest *= self->sizes[d];
        p->sizes[p->ndim] = (cl_uint)self->sizes[d];
        p->strides[p->ndim++] = self->strides[d];
    }
    /* Merges contiguous dimensions. */
    if (p->outer > 1)
        p->outer_step = self->strides[first - 1];
}

/* Tests whether the indexed dimensions are adjacent. */
static bool is_run(const core_value *list)
{
    uint32_t runs = 0;

    for (uint32_t d = 0; d < list->count; d++)
        runs += list->u.views[d] != NULL &&
                (d == 0 || list->u.views[d - 1] == NULL);
    return runs == 1;
}

/* Computes the sizes of an indexing result; returns their number. */
static uint32_t result_sizes(const core_view *self, const core_value *list,
                             const core_view *index, int64_t *sizes)
{
    bool run = is_run(list);
    uint32_t ndim = 0, d = 0;

    for (; run && list->u.views[d] == NULL; d++)
        sizes[ndim++] = self->sizes[d];
    for (uint32_t k = 0; k < index->ndim; k++)
        sizes[ndim++] = index->sizes[k];
    for (; d < self->ndim; d++)
        if (d >= list->count || list->u.views[d] == NULL)
            sizes[ndim++] = self->sizes[d];
    return ndim;
}

/* Values of index_put may be broadcast: they are expanded in scratch memory. */
static core_status spread_values(core_call *call, const core_view *self,
                                 const core_value *list,
                                 const core_view *values, core_memory *out)
{
    const core_view *tensors[TENSORS];
    int64_t sizes[2 * CORE_MAX_NDIM], to[2 * CORE_MAX_NDIM];
    int64_t from[2 * CORE_MAX_NDIM], numel = 1;
    core_status status;
    uint32_t ndim;
    indexing p;

    *out = values->memory;
    indexing_of(self, list, &p, tensors);
    if (p.outer * p.count * p.rest == values->numel)
        return CORE_OK;
    ndim = result_sizes(self, list, tensors[0], sizes);
    if (ndim > OPENCL_MAX_NDIM)
        return opencl_refuse(CORE_ERROR_UNSUPPORTED,
                             "index_put: values are broadcast to %u "
                             "dimensions; at most %u",
                             ndim, OPENCL_MAX_NDIM);
    for (uint32_t d = ndim; d-- > 0;) {
        uint32_t behind = ndim - d;
        bool has =
            behind <= values->ndim && values->sizes[values->ndim - behind] != 1;

        to[d] = numel;
        from[d] = has ? values->strides[values->ndim - behind] : 0;
        numel *= sizes[d];
    }
    if (numel == 0)
        return CORE_OK;
    status = opencl_host->call_scratch(
        call, (uint64_t)numel * core_sdk_itemsize(values->dtype), out);
    if (status == CORE_OK)
        status = opencl_copy_window(call, values->dtype, ndim, sizes, *out, to,
                                    values->memory, from);
    return status;
}

static core_status run_indexing(core_call *call, const char *function,
                                const core_value *to, core_memory other,
                                const core_view *self, const core_value *list,
                                bool all)
{
    const core_view *tensors[TENSORS];
    core_dtype types[2] = {to->u.view->dtype, CORE_I64};
    opencl_launch l;
    indexing p;

    indexing_of(self, list, &p, tensors);
    if (p.outer * p.count * p.rest == 0)
        return CORE_OK;
    types[1] = tensors[0]->dtype;
    if (strcmp(function, "add_") != 0)
        types[0] = opencl_bits_of(types[0]);
    l = opencl_begin(call, &source, types, 2, function);
    opencl_view(&l, to);
    opencl_buffer(&l, other);
    for (uint32_t k = 0; k < TENSORS; k++)
        if (k < p.tensors)
            opencl_buffer(&l, tensors[k]->memory);
        else
            opencl_null_buffer(&l);
    opencl_bytes(&l, &p, sizeof p);
    opencl_error_args(&l, call->id);
    return opencl_run(&l, (uint64_t)(p.outer * p.rest * (all ? p.count : 1)),
                      OPENCL_GROUP);
}

/* index.Tensor(self, indices) */
static core_status index_tensor(core_call *call, const core_value *args,
                                uint32_t nargs, core_value *results,
                                uint32_t nresults)
{
    (void)nargs;
    (void)nresults;
    return run_indexing(call, "index_", &results[0], args[0].u.view->memory,
                        args[0].u.view, &args[1], true);
}

/* index_put(self, indices, values, accumulate) */
static core_status index_put(core_call *call, const core_value *args,
                             uint32_t nargs, core_value *results,
                             uint32_t nresults)
{
    bool accumulate = nargs > 3 && args[3].u.i != 0;
    core_status status = copy_of(call, args[0].u.view, results[0].u.view);
    core_memory values = {NULL, 0};

    (void)nresults;
    if (status == CORE_OK)
        status = spread_values(call, results[0].u.view, &args[1],
                               args[2].u.view, &values);
    if (status != CORE_OK)
        return status;
    return run_indexing(call, accumulate ? "add_" : "put_", &results[0], values,
                        results[0].u.view, &args[1], false);
}

/* Up to four tensors of one dtype and shape. */
static core_status index_supports(const core_call *call, const core_value *args,
                                  uint32_t nargs)
{
    const core_value *list = &args[1];
    const core_view *first = NULL;
    uint32_t tensors = 0;

    for (uint32_t k = 0; k < list->count; k++) {
        const core_view *view = list->u.views[k];

        if (view == NULL)
            continue;
        first = first ? first : view;
        tensors++;
        if (view->dtype != first->dtype || view->numel != first->numel)
            return opencl_refuse(CORE_ERROR_UNSUPPORTED,
                                 "index: tensors of different types or "
                                 "shapes are not supported");
    }
    if (tensors == 0 || tensors > TENSORS)
        return opencl_refuse(CORE_ERROR_UNSUPPORTED,
                             "index: %u index tensors; 1 to %u are supported",
                             tensors, TENSORS);
    if (args[0].u.view->ndim > OPENCL_MAX_NDIM)
        return opencl_refuse(CORE_ERROR_UNSUPPORTED,
                             "index: %u dimensions; at most %u",
                             args[0].u.view->ndim, OPENCL_MAX_NDIM);
    return opencl_supports(call, args, nargs);
}

static core_status register_index(core_registry *registry)
{
    enum { INDEX = OPENCL_I64 | OPENCL_I32 };
    core_status status = CORE_OK;

    for (core_dtype d = CORE_F64; d <= CORE_BOOL && status == CORE_OK; d++) {
        uint32_t mask = CORE_DTYPE_MASK(d);
        core_kernel kernels[2] = {
            {.struct_size = sizeof kernels[0],
             .demands = CORE_REQUIRE_CONTIGUOUS,
             .name = {"index.Tensor", 12},
             .launch = index_tensor,
             .supports = index_supports,
             .signature = {mask, INDEX, mask}},
            {.struct_size = sizeof kernels[0],
             .demands = CORE_REQUIRE_CONTIGUOUS,
             .name = {"index_put", 9},
             .launch = index_put,
             .supports = index_supports,
             .signature = {mask, INDEX, mask, mask}},
        };

        status = opencl_register_kernel(registry, kernels[0]);
        if (status == CORE_OK)
            status = opencl_register_kernel(registry, kernels[1]);
    }
    return status;
}

core_status opencl_register_scatter(core_registry *registry)
{
    enum { INDEX = OPENCL_I64 | OPENCL_I32, DENSE = CORE_REQUIRE_CONTIGUOUS };
    core_status status = CORE_OK;

    for (core_dtype d = CORE_F64; d <= CORE_BOOL && status == CORE_OK; d++) {
        uint32_t m = CORE_DTYPE_MASK(d);
        const opencl_row rows[] = {
            {"scatter.src", scatter, NULL, {m, INDEX, m, m}, DENSE},
            {"scatter.value", scatter, NULL, {m, INDEX, m}, DENSE},
            {"index_copy", slices, NULL, {m, INDEX, m, m}, DENSE},
            {"index_fill.int_Scalar", slices, NULL, {m, INDEX, m}, DENSE},
            {"scatter_add", reduce, NULL, {m, INDEX, m, m}, DENSE},
            {"scatter.reduce", reduce, NULL, {m, INDEX, m, m}, DENSE},
            {"scatter.value_reduce", reduce, NULL, {m, INDEX, m}, DENSE},
            {"scatter_reduce.two", reduce, NULL, {m, INDEX, m, m}, DENSE},
        };

        status = opencl_register(registry, rows, sizeof rows / sizeof *rows, 0);
    }
    if (status == CORE_OK)
        status = register_index(registry);
    return status;
}
