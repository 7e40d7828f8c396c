/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* scatter.c: writing by indices: all forms of scatter, index_add, index_copy,
 * index_fill, index_put, the gradient of embeddings; and reading by lists of
 * index tensors, which are described in the same way. */

#include <gpu/host/move.h>
#include <gpu/host/sort.h>
#include <gpu/shared_scatter.h>

static gpu_scatter begin(core_call *call, const core_value *to)
{
    gpu_scatter p;

    memset(&p, 0, sizeof p);
    p.to = gpu_data(to);
    p.dtype = to->u.view->dtype;
    p.outer = p.rest = 1;
    p.with_self = 1;
    p.alpha = 1;
    p.alpha_whole = 1;
    p.padding = INT64_MIN;
    p.error = gpu_stream_of(call)->error;
    p.call = (int64_t)call->id;
    return p;
}

static core_status launch(core_call *call, const char *name,
                          const gpu_scatter *p, int64_t items)
{
    return gpu_launch(
        call, "scatter", name,
        gpu_spread(gpu_stream_of(call)->device, (uint64_t)items, 1), p,
        sizeof *p);
}

/* `to` already holds a copy of self or other initial values. */
static core_status run(core_call *call, gpu_scatter *p)
{
    int64_t items = p->outer * p->entries * p->rest;
    char name[GPU_NAME] = "scatter_put_";
    core_memory keys;
    core_status status;

    if (items == 0)
        return CORE_OK;
    status = gpu_host->call_scratch(
        call, (uint64_t)p->entries * sizeof *p->keys, &keys);
    if (status != CORE_OK)
        return status;
    p->keys = gpu_address(keys);
    status = launch(call, "scatter_keys", p, p->entries);
    if (status == CORE_OK)
        status = gpu_sort_positions(call, p->keys, p->entries, &p->pairs);
    if (status != CORE_OK)
        return status;
    if (p->mode == GPU_SCATTER_PUT)
        strcat(name, gpu_width_name(core_sdk_itemsize(p->dtype)));
    else if (p->dtype <= CORE_BF16)
        gpu_name(name, "scatter_reduce", p->dtype);
    else
        strcpy(name, "scatter_reduce_whole");
    return launch(call, name, p, items);
}

static core_status copy_of(core_call *call, const core_view *from,
                           const core_view *to)
{
    if (gpu_address(from->memory) == gpu_address(to->memory))
        return CORE_OK;
    return gpu_copy_window(call, to->dtype, to->ndim, to->sizes, to->memory,
                           to->strides, from->memory, from->strides);
}

/* The source: a tensor or a number. */
static void set_source(gpu_scatter *p, const core_value *value)
{
    p->from = gpu_data(value);
    if (value->tag == CORE_VALUE_VIEW)
        return;
    p->bits = gpu_scalar_bits(value, p->dtype);
    p->number = core_sdk_double(value, 0);
    p->number_whole = core_sdk_int(value, 0);
}

/* ------------------------------------------------------------- scatter -- */

static core_status reduction_of(const core_value *name, uint32_t *out)
{
    static const struct {
        const char *name;
        uint32_t mode;
    } known[] = {
        {"sum", GPU_SCATTER_ADD},       {"add", GPU_SCATTER_ADD},
        {"prod", GPU_SCATTER_MULTIPLY}, {"multiply", GPU_SCATTER_MULTIPLY},
        {"mean", GPU_SCATTER_AVERAGE},  {"amax", GPU_SCATTER_LARGEST},
        {"amin", GPU_SCATTER_SMALLEST},
    };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i].name) == name->count &&
            memcmp(known[i].name, name->u.string, name->count) == 0) {
            *out = known[i].mode;
            return CORE_OK;
        }
    return gpu_refuse(CORE_ERROR_INVALID_ARGUMENT,
                      "scatter: reduce is '%.*s'; accepted: sum, add, prod, "
                      "multiply, mean, amax and amin",
                      (int)name->count, name->u.string);
}

/* args: self, dim, index, source or number */
static core_status set_window(gpu_scatter *p, const core_value *args,
                              const core_view *to)
{
    const core_view *index = args[2].u.view, *from = NULL;
    int64_t dim = args[1].u.i < 0 ? args[1].u.i + to->ndim : args[1].u.i;

    if (args[3].tag == CORE_VALUE_VIEW)
        from = args[3].u.view;
    if (to->ndim > GPU_DIMS)
        return gpu_refuse(CORE_ERROR_UNSUPPORTED,
                          "scatter: %u dimensions; at most %d", to->ndim,
                          GPU_DIMS);
    p->index[0] = gpu_address(index->memory);
    p->index_dtype = index->dtype;
    p->entries = index->numel;
    p->index_ndim = to->ndim > 0 ? to->ndim : 1;
    p->index_sizes[0] = index->numel;
    p->limits[0] = 1;
    for (uint32_t d = 0; d < to->ndim; d++) {
        uint32_t k = to->ndim - 1 - d;

        p->index_sizes[d] = index->ndim > 0 ? index->sizes[k] : 1;
        p->index_steps[d] = to->strides[k];
        p->from_steps[d] =
            from != NULL && from->ndim > 0 ? from->strides[k] : 0;
    }
    if (to->ndim > 0) {
        p->dim = to->ndim - 1 - (uint32_t)dim;
        p->limits[0] = to->sizes[dim];
    }
    set_source(p, &args[3]);
    return CORE_OK;
}

/* scatter.src(self, dim, index, src), scatter.value(…, value); scatter_add,
 * scatter.reduce(…, reduce), scatter.value_reduce(…, reduce),
 * scatter_reduce.two(…, reduce, include_self).  The user pointer is the
 * mode. */
static core_status scatter(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    const core_view *to = results[0].u.view;
    gpu_scatter p = begin(call, &results[0]);
    core_status status = CORE_OK;

    (void)nresults;
    p.mode = (uint32_t)(uintptr_t)call->user;
    if (nargs > 4)
        status = reduction_of(&args[4], &p.mode);
    if (nargs > 5)
        p.with_self = core_sdk_int(&args[5], 1) != 0;
    if (status == CORE_OK)
        status = set_window(&p, args, to);
    if (status == CORE_OK)
        status = copy_of(call, args[0].u.view, to);
    return status != CORE_OK || to->numel == 0 ? status : run(call, &p);
}

/* --------------------------------------------------------------- lines -- */

static void set_lines(gpu_scatter *p, gpu_line line, const core_view *index)
{
    p->index[0] = gpu_address(index->memory);
    p->index_dtype = index->dtype;
    p->tensors = 1;
    p->entries = index->numel;
    p->outer = line.outer;
    p->rest = line.inner;
    p->outer_step = line.size * line.inner;
    p->limits[0] = line.size;
    p->steps[0] = p->sizes[0] = line.inner;
    p->strides[0] = 1;
    p->ndim = 1;
}

/* index_copy(self, dim, index, source), index_fill(self, dim, index, value),
 * index_add(self, dim, index, source, alpha).  The user pointer is the mode. */
static core_status lines(core_call *call, const core_value *args,
                         uint32_t nargs, core_value *results, uint32_t nresults)
{
    const core_view *to = results[0].u.view;
    gpu_scatter p = begin(call, &results[0]);
    core_status status = copy_of(call, args[0].u.view, to);

    (void)nresults;
    p.mode = (uint32_t)(uintptr_t)call->user;
    set_lines(&p, gpu_line_of(to, args[1].u.i), args[2].u.view);
    set_source(&p, &args[3]);
    p.wraps = args[3].tag != CORE_VALUE_VIEW; /* index_fill */
    if (p.mode == GPU_SCATTER_ADD && nargs > 4) {
        p.alpha = core_sdk_double(&args[4], 1);
        p.alpha_whole = core_sdk_int(&args[4], 1);
    }
    return status != CORE_OK || to->numel == 0 ? status : run(call, &p);
}

/* embedding_dense_backward(grad_output, indices, num_weights, padding_idx,
 * scale_grad_by_freq) */
static core_status embedding_backward(core_call *call, const core_value *args,
                                      uint32_t nargs, core_value *results,
                                      uint32_t nresults)
{
    const core_view *to = results[0].u.view;
    gpu_scatter p = begin(call, &results[0]);
    core_status status = gpu_fill_view(call, to, 0);

    (void)nargs;
    (void)nresults;
    p.mode = args[4].u.i != 0 ? GPU_SCATTER_AVERAGE : GPU_SCATTER_ADD;
    p.with_self = 0;
    set_lines(&p, gpu_line_of(to, 0), args[1].u.view);
    p.from = gpu_data(&args[0]);
    if (args[3].u.i >= 0)
        p.padding = args[3].u.i;
    return status != CORE_OK || to->numel == 0 ? status : run(call, &p);
}

/* ------------------------------------------------- by several at once -- */

/* If the indexed dimensions are adjacent, the dimensions before them are
 * `outer`; otherwise the indices come first and all others are `rest`. */
static void set_tensors(gpu_scatter *p, const core_view *self,
                        const core_value *list)
{
    uint32_t first = self->ndim, last = 0;

    for (uint32_t d = 0; d < list->count; d++)
        if (list->u.views[d] != NULL) {
            first = p->tensors == 0 ? d : first;
            last = d;
            p->limits[p->tensors] = self->sizes[d];
            p->steps[p->tensors] = self->strides[d];
            p->entries = list->u.views[d]->numel;
            p->index_dtype = list->u.views[d]->dtype;
            p->index[p->tensors++] = gpu_address(list->u.views[d]->memory);
        }
    for (uint32_t d = self->ndim; d-- > 0;) {
        if (d < list->count && list->u.views[d] != NULL)
            continue;
        if (last - first + 1 == p->tensors && d < first) {
            p->outer *= self->sizes[d];
            continue;
        }
        p->rest *= self->sizes[d];
        p->sizes[p->ndim] = self->sizes[d];
        p->strides[p->ndim++] = self->strides[d];
    }
    /* Contiguous dimensions are merged. */
    if (p->outer > 1)
        p->outer_step = self->strides[first - 1];
    p->wraps = 1;
}

/* Stores the sizes of the result of indexing; returns how many there are. */
static uint32_t result_sizes(const core_view *self, const core_value *list,
                             const gpu_scatter *p, int64_t *sizes)
{
    const core_view *index = NULL;
    uint32_t ndim = 0, d = 0, first = 0, last = 0;

    for (uint32_t k = 0; k < list->count; k++)
        if (list->u.views[k] != NULL) {
            first = index == NULL ? k : first;
            index = list->u.views[k];
            last = k;
        }
    if (last - first + 1 == p->tensors)
        for (; d < first; d++)
            sizes[ndim++] = self->sizes[d];
    for (uint32_t k = 0; k < index->ndim; k++)
        sizes[ndim++] = index->sizes[k];
    for (; d < self->ndim; d++)
        if (d >= list->count || list->u.views[d] == NULL)
            sizes[ndim++] = self->sizes[d];
    return ndim;
}

/* Values of index_put that are broadcast are expanded in scratch memory. */
static core_status spread_values(core_call *call, const core_view *self,
                                 const core_value *list,
                                 const core_view *values, gpu_scatter *p)
{
    int64_t sizes[2 * CORE_MAX_NDIM], to[2 * CORE_MAX_NDIM];
    int64_t from[2 * CORE_MAX_NDIM], numel = 1;
    core_memory spread;
    core_status status;
    uint32_t ndim;

    p->from = gpu_address(values->memory);
    if (p->outer * p->entries * p->rest == values->numel)
        return CORE_OK;
    ndim = result_sizes(self, list, p, sizes);
    if (ndim > CORE_MAX_NDIM)
        return gpu_refuse(CORE_ERROR_UNSUPPORTED,
                          "index_put: values are broadcast to %u dimensions; "
                          "at most %u",
                          ndim, CORE_MAX_NDIM);
    for (uint32_t d = ndim; d-- > 0;) {
        uint32_t trailing = ndim - d;
        bool has = trailing <= values->ndim &&
                   values->sizes[values->ndim - trailing] != 1;

        to[d] = numel;
        from[d] = has ? values->strides[values->ndim - trailing] : 0;
        numel *= sizes[d];
    }
    if (numel == 0)
        return CORE_OK;
    status = gpu_host->call_scratch(
        call, (uint64_t)numel * core_sdk_itemsize(values->dtype), &spread);
    if (status != CORE_OK)
        return status;
    p->from = gpu_address(spread);
    return gpu_copy_window(call, values->dtype, ndim, sizes, spread, to,
                           values->memory, from);
}

/* index.Tensor(self, indices) */
static core_status index_tensor(core_call *call, const core_value *args,
                                uint32_t nargs, core_value *results,
                                uint32_t nresults)
{
    gpu_scatter p = begin(call, &results[0]);
    char name[GPU_NAME] = "scatter_read_";

    (void)nargs;
    (void)nresults;
    set_tensors(&p, args[0].u.view, &args[1]);
    p.from = gpu_data(&args[0]);
    strcat(name, gpu_width_name(core_sdk_itemsize(p.dtype)));
    if (p.outer * p.entries * p.rest == 0)
        return CORE_OK;
    return launch(call, name, &p, p.outer * p.entries * p.rest);
}

/* take(self, index): self is flattened */
static core_status take(core_call *call, const core_value *args, uint32_t nargs,
                        core_value *results, uint32_t nresults)
{
    const core_view *index = args[1].u.view;
    const int64_t numel = args[0].u.view->numel, next = 1;
    const core_view line = {
        .numel = numel, .ndim = 1, .sizes = &numel, .strides = &next};
    const core_value list = {CORE_VALUE_VIEW_LIST, 1, {.views = &index}};
    gpu_scatter p = begin(call, &results[0]);
    char name[GPU_NAME] = "scatter_read_";

    (void)nargs;
    (void)nresults;
    set_tensors(&p, &line, &list);
    p.from = gpu_data(&args[0]);
    strcat(name, gpu_width_name(core_sdk_itemsize(p.dtype)));
    return p.entries == 0 ? CORE_OK : launch(call, name, &p, p.entries);
}

/* index_put(self, indices, values, accumulate) */
static core_status index_put(core_call *call, const core_value *args,
                             uint32_t nargs, core_value *results,
                             uint32_t nresults)
{
    const core_view *to = results[0].u.view;
    gpu_scatter p = begin(call, &results[0]);
    core_status status = copy_of(call, args[0].u.view, to);

    (void)nresults;
    p.mode = nargs > 3 && args[3].u.i != 0 ? GPU_SCATTER_ADD : GPU_SCATTER_PUT;
    set_tensors(&p, to, &args[1]);
    if (status == CORE_OK)
        status = spread_values(call, to, &args[1], args[2].u.view, &p);
    return status == CORE_OK ? run(call, &p) : status;
}

/* The index tensors have the same dtype and shape. */
static core_status tensors_supports(const core_call *call,
                                    const core_value *args, uint32_t nargs)
{
    const core_value *list = &args[1];
    const core_view *first = NULL;

    (void)call;
    (void)nargs;
    for (uint32_t k = 0; k < list->count; k++) {
        const core_view *view = list->u.views[k];

        if (view == NULL)
            continue;
        first = first ? first : view;
        if (view->dtype != first->dtype || view->numel != first->numel)
            return gpu_refuse(CORE_ERROR_UNSUPPORTED,
                              "index: tensors of different types or shapes "
                              "are not supported");
    }
    if (first == NULL || args[0].u.view->ndim > GPU_DIMS)
        return gpu_refuse(
            CORE_ERROR_UNSUPPORTED,
            "index: %u dimensions and %s index tensor; at most %d "
            "dimensions and one tensor or more are supported",
            args[0].u.view->ndim, first ? "a" : "no", GPU_DIMS);
    return CORE_OK;
}

core_status gpu_register_scatter(core_registry *registry)
{
    enum { DENSE = CORE_REQUIRE_CONTIGUOUS, I = GPU_M_I64 | GPU_M_I32 };
    core_status status = CORE_OK;
    void *put = (void *)GPU_SCATTER_PUT, *add = (void *)GPU_SCATTER_ADD;

    for (core_dtype d = CORE_F64; d <= CORE_BOOL && status == CORE_OK; d++) {
        uint32_t m = CORE_DTYPE_MASK(d);
        const gpu_row rows[] = {
            {"scatter.src",
             scatter,
             put,
             {m, I, m, m},
             DENSE,
             gpu_supports_dims},
            {"scatter.value",
             scatter,
             put,
             {m, I, m},
             DENSE,
             gpu_supports_dims},
            {"scatter_add",
             scatter,
             add,
             {m, I, m, m},
             DENSE,
             gpu_supports_dims},
            {"scatter.reduce",
             scatter,
             add,
             {m, I, m, m},
             DENSE,
             gpu_supports_dims},
            {"scatter.value_reduce",
             scatter,
             add,
             {m, I, m},
             DENSE,
             gpu_supports_dims},
            {"scatter_reduce.two",
             scatter,
             add,
             {m, I, m, m},
             DENSE,
             gpu_supports_dims},
            {"index_copy", lines, put, {m, I, m, m}, DENSE, NULL},
            {"index_fill.int_Scalar", lines, put, {m, I, m}, DENSE, NULL},
            {"index_add", lines, add, {m, I, m, m}, DENSE, NULL},
            {"index.Tensor",
             index_tensor,
             NULL,
             {m, I, m},
             DENSE,
             tensors_supports},
            {"take", take, NULL, {m, I, m}, DENSE, NULL},
            {"index_put",
             index_put,
             NULL,
             {m, I, m, m},
             DENSE,
             tensors_supports},
            {"embedding_dense_backward",
             embedding_backward,
             NULL,
             {m, I, m},
             DENSE,
             NULL},
        };

        /* Integers have no gradients. */
        status = gpu_register(registry, rows, d <= CORE_BF16 ? 13 : 12);
    }
    return status;
}
