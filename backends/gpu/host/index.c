/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* index.c: reading by indices. */

#include <gpu/host/host.h>
#include <gpu/shared_index.h>

static gpu_indexing begin(core_call *call, const core_value *to,
                          const core_value *index)
{
    gpu_indexing p;

    memset(&p, 0, sizeof p);
    p.to = gpu_data(to);
    p.count = (uint64_t)to->u.view->numel;
    p.index = gpu_data(index);
    p.index_dtype = index->u.view->dtype;
    p.error = gpu_stream_of(call)->error;
    p.call = (int64_t)call->id;
    return p;
}

static core_status finish(core_call *call, const char *stem, const char *type,
                          const gpu_indexing *p)
{
    char name[GPU_NAME];
    size_t n = strlen(stem);

    if (p->count == 0)
        return CORE_OK;
    memcpy(name, stem, n);
    name[n] = '_';
    memcpy(name + n + 1, type, strlen(type) + 1);
    return gpu_launch(call, "index", name,
                      gpu_spread(gpu_stream_of(call)->device, p->count, 2), p,
                      sizeof *p);
}

static const char *index_type_name(const core_view *view)
{
    return gpu_width_name(core_sdk_itemsize(view->dtype));
}

/* ---------------------------------------------------------------- lines -- */

static void set_lines(gpu_indexing *p, gpu_line line, int64_t n)
{
    p->outer = line.outer;
    p->limit = line.size;
    p->inner = line.inner;
    p->n = n;
}

/* Lines of 16-byte parts, if they consist of these. */
static bool has_parts(gpu_indexing *p, uint32_t itemsize)
{
    uint32_t each = 16 / itemsize;

    if (p->inner % each != 0 ||
        (((uintptr_t)p->from | (uintptr_t)p->to) & 15) != 0)
        return false;
    p->inner /= each;
    p->count /= each;
    return true;
}

/* index_select(self, dim, index); embedding(weight, indices, …) */
static core_status select_lines(core_call *call, const core_value *args,
                                uint32_t nargs, core_value *results,
                                uint32_t nresults)
{
    bool embedding = call->user != NULL;
    const core_value *index = &args[embedding ? 1 : 2];
    gpu_indexing p = begin(call, &results[0], index);

    (void)nargs;
    (void)nresults;
    p.from = gpu_data(&args[0]);
    set_lines(&p, gpu_line_of(args[0].u.view, embedding ? 0 : args[1].u.i),
              index->u.view->numel);
    return finish(call, "index_select",
                  has_parts(&p, core_sdk_itemsize(results[0].u.view->dtype))
                      ? "w128"
                      : index_type_name(results[0].u.view),
                  &p);
}

/* ------------------------------------------------------------- elements -- */

static core_status too_many(const core_view *view)
{
    if (view->ndim <= GPU_DIMS && view->numel <= INT32_MAX)
        return CORE_OK;
    return gpu_refuse(CORE_ERROR_UNSUPPORTED,
                      "gather: %u dimensions and %lld elements; at most %d and "
                      "2^31 - 1 are supported",
                      view->ndim, (long long)view->numel, GPU_DIMS);
}

static void set_elements(gpu_indexing *p, const core_view *to,
                         const core_view *from, int64_t dim)
{
    dim += dim < 0 ? to->ndim : 0;
    p->ndim = to->ndim > 0 ? to->ndim : 1;
    p->sizes[0] = gpu_divide_by(1);
    for (uint32_t d = 0; d < to->ndim; d++) {
        uint32_t k = to->ndim - 1 - d;

        p->sizes[d] = gpu_divide_by((uint32_t)to->sizes[k]);
        p->from_strides[d] = from->ndim > 0 ? from->strides[k] : 0;
    }
    if (to->ndim > 0)
        p->dim = to->ndim - 1 - (uint32_t)dim;
}

/* gather(self, dim, index, sparse_grad) */
static core_status gather(core_call *call, const core_value *args,
                          uint32_t nargs, core_value *results,
                          uint32_t nresults)
{
    const core_view *self = args[0].u.view, *index = args[2].u.view;
    gpu_indexing p = begin(call, &results[0], &args[2]);
    core_status status = too_many(index);

    (void)nargs;
    (void)nresults;
    if (status != CORE_OK)
        return status;
    p.from = gpu_data(&args[0]);
    set_elements(&p, results[0].u.view, self, args[1].u.i);
    p.limit = self->ndim > 0 ? self->sizes[self->ndim - 1 - p.dim] : 1;
    return finish(call, "index_gather", index_type_name(self), &p);
}

core_status gpu_register_index(core_registry *registry)
{
    enum { INDEX = GPU_M_I64 | GPU_M_I32 };
    enum { DENSE = CORE_REQUIRE_CONTIGUOUS };
    static const gpu_row rows[] = {
        {"index_select", select_lines, NULL, {0, INDEX, 0}, DENSE, NULL},
        {"embedding", select_lines, (void *)1, {0, INDEX, 0}, DENSE, NULL},
        {"gather", gather, NULL, {0, INDEX, 0}, DENSE, gpu_supports_dims},
    };

    return gpu_register(registry, rows, sizeof rows / sizeof *rows);
}
