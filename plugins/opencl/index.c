/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Gathers and sums by indices.  Sums are computed per destination, so that
 * their order is always the same. */

#include "opencl.h"
#include "opencl_kernels.h"

static const opencl_source source = {"index", opencl_index_cl, NULL, NULL};

static core_status select_lines(core_call *call, const core_value *result,
                                const core_value *in, const core_value *index,
                                opencl_line line)
{
    core_dtype types[2] = {opencl_bits_of(in->u.view->dtype),
                           index->u.view->dtype};
    int64_t n = index->u.view->numel, numel = result->u.view->numel;
    opencl_launch l;

    if (numel == 0)
        return CORE_OK;
    l = opencl_begin(call, &source, types, 2, "select_");
    opencl_view(&l, result);
    opencl_view(&l, in);
    opencl_view(&l, index);
    opencl_long(&l, line.outer);
    opencl_long(&l, n);
    opencl_long(&l, line.inner);
    opencl_long(&l, line.size);
    opencl_error_args(&l, call->id);
    return opencl_run(&l, (uint64_t)numel, OPENCL_GROUP);
}

/* index_select(self, dim, index) */
static core_status index_select(core_call *call, const core_value *args,
                                uint32_t nargs, core_value *results,
                                uint32_t nresults)
{
    (void)nargs;
    (void)nresults;
    return select_lines(call, &results[0], &args[0], &args[2],
                        opencl_line_of(args[0].u.view, args[1].u.i));
}

/* take(self, index) */
static core_status take(core_call *call, const core_value *args, uint32_t nargs,
                        core_value *results, uint32_t nresults)
{
    const core_view *self = args[0].u.view, *index = args[1].u.view;
    core_dtype types[2] = {opencl_bits_of(self->dtype), index->dtype};
    opencl_launch l;

    (void)nargs;
    (void)nresults;
    if (index->numel == 0)
        return CORE_OK;
    l = opencl_begin(call, &source, types, 2, "take_");
    opencl_view(&l, &results[0]);
    opencl_view(&l, &args[0]);
    opencl_view(&l, &args[1]);
    opencl_long(&l, index->numel);
    opencl_long(&l, self->numel);
    opencl_error_args(&l, call->id);
    return opencl_run(&l, (uint64_t)index->numel, OPENCL_GROUP);
}

/* embedding(weight, indices, padding_idx, …) */
static core_status embedding(core_call *call, const core_value *args,
                             uint32_t nargs, core_value *results,
                             uint32_t nresults)
{
    (void)nargs;
    (void)nresults;
    return select_lines(call, &results[0], &args[0], &args[1],
                        opencl_line_of(args[0].u.view, 0));
}

/* gather(self, dim, index, sparse_grad) */
static core_status gather(core_call *call, const core_value *args,
                          uint32_t nargs, core_value *results,
                          uint32_t nresults)
{
    const core_view *self = args[0].u.view, *index = args[2].u.view;
    core_dtype types[2] = {opencl_bits_of(self->dtype), index->dtype};
    /* An index without dimensions is one with one element. */
    uint32_t ndim = index->ndim ? index->ndim : 1;
    int64_t dim = args[1].u.i < 0 ? args[1].u.i + ndim : args[1].u.i;
    opencl_loop shape = {.numel = (cl_ulong)index->numel, .ndim = ndim};
    opencl_launch l;

    (void)nargs;
    (void)nresults;
    if (index->numel == 0)
        return CORE_OK;
    if (index->ndim > OPENCL_MAX_NDIM || index->numel > INT64_C(0xffffffff))
        return opencl_refuse(CORE_ERROR_UNSUPPORTED,
                             "gather: an index of %u dimensions and %lld "
                             "elements; at most %u and 2^32 - 1",
                             index->ndim, (long long)index->numel,
                             OPENCL_MAX_NDIM);
    /* Innermost first. */
    for (uint32_t d = 0; d < ndim; d++) {
        uint32_t from = ndim - 1 - d;

        shape.sizes[d] = index->ndim ? (cl_uint)index->sizes[from] : 1;
        shape.strides[0][d] = self->ndim ? self->strides[from] : 0;
        shape.strides[1][d] = self->ndim ? self->sizes[from] : 1;
    }
    l = opencl_begin(call, &source, types, 2, "gather_");
    opencl_view(&l, &results[0]);
    opencl_view(&l, &args[0]);
    opencl_view(&l, &args[2]);
    opencl_int(&l, (int32_t)(ndim - 1 - dim));
    opencl_bytes(&l, &shape, sizeof shape);
    opencl_error_args(&l, call->id);
    return opencl_run(&l, (uint64_t)index->numel, OPENCL_GROUP);
}

/* embedding_dense_backward(grad_output, indices, num_weights, padding_idx,
 * scale_grad_by_freq) */
static core_status embedding_backward(core_call *call, const core_value *args,
                                      uint32_t nargs, core_value *results,
                                      uint32_t nresults)
{
    const core_view *to = results[0].u.view, *index = args[1].u.view;
    core_dtype types[2] = {to->dtype, index->dtype};
    opencl_launch l;

    (void)nargs;
    (void)nresults;
    if (to->numel == 0)
        return CORE_OK;
    l = opencl_begin(call, &source, types, 2, "spread");
    opencl_view(&l, &results[0]);
    opencl_view(&l, &args[0]);
    opencl_view(&l, &args[1]);
    opencl_long(&l, to->sizes[0]);
    opencl_long(&l, index->numel);
    opencl_long(&l, to->sizes[1]);
    opencl_long(&l, args[3].u.i);
    opencl_int(&l, args[4].u.i != 0);
    opencl_error_args(&l, call->id);
    return opencl_run(&l, (uint64_t)to->numel, OPENCL_GROUP);
}

/* index_add(self, dim, index, source, alpha) */
static core_status index_add(core_call *call, const core_value *args,
                             uint32_t nargs, core_value *results,
                             uint32_t nresults)
{
    const core_view *to = results[0].u.view, *index = args[2].u.view;
    core_dtype types[2] = {to->dtype, index->dtype};
    opencl_line line = opencl_line_of(to, args[1].u.i);
    opencl_launch l;

    (void)nresults;
    if (to->numel == 0)
        return CORE_OK;
    l = opencl_begin(call, &source, types, 2, "add_at");
    opencl_view(&l, &results[0]);
    opencl_view(&l, &args[0]);
    opencl_view(&l, &args[2]);
    opencl_view(&l, &args[3]);
    opencl_long(&l, line.outer);
    opencl_long(&l, line.size);
    opencl_long(&l, line.inner);
    opencl_long(&l, index->numel);
    opencl_double(&l, nargs > 4 ? core_sdk_double(&args[4], 1) : 1);
    opencl_error_args(&l, call->id);
    return opencl_run(&l, (uint64_t)to->numel, OPENCL_GROUP);
}

core_status opencl_register_index(core_registry *registry)
{
    enum { INDEX = OPENCL_I64 | OPENCL_I32 };
    enum { DENSE = CORE_REQUIRE_CONTIGUOUS };
    static const opencl_row rows[] = {
        {"index_select", index_select, NULL, {0, INDEX, 0}, DENSE},
        {"embedding", embedding, NULL, {0, INDEX, 0}, DENSE},
        {"take", take, NULL, {0, INDEX, 0}, DENSE},
        {"gather", gather, NULL, {0, INDEX, 0}, DENSE},
    };
    core_status status =
        opencl_register(registry, rows, sizeof rows / sizeof *rows, 0);

    for (core_dtype d = CORE_F64; d <= CORE_BOOL && status == CORE_OK; d++) {
        uint32_t m = CORE_DTYPE_MASK(d);
        const opencl_row sums[] = {
            {"index_add", index_add, NULL, {m, INDEX, m, m}, DENSE},
            {"embedding_dense_backward",
             embedding_backward,
             NULL,
             {m, INDEX, m},
             DENSE},
        };

        status = opencl_register(registry, sums, d <= CORE_BF16 ? 2 : 1, 0);
    }
    return status;
}
