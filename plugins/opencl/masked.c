/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* nonzero, masked_select, masked_scatter and repeat_interleave.  If the size of
 * the result depends on the data, the host waits for the count. */

#include "opencl.h"
#include "opencl_kernels.h"

static const opencl_source source = {"masked", opencl_masked_cl, NULL, NULL};

/* The shape that a and b broadcast to, with the strides of both in elements; b
 * may be NULL. */
static core_status loop_of(const core_view *a, const core_view *b,
                           opencl_loop *out)
{
    uint32_t ndim = b != NULL && b->ndim > a->ndim ? b->ndim : a->ndim;
    const core_view *views[2] = {a, b != NULL ? b : a};

    *out = (opencl_loop){.numel = 1, .ndim = ndim};
    if (ndim > OPENCL_MAX_NDIM)
        return opencl_refuse(CORE_ERROR_UNSUPPORTED,
                             "a mask of %u dimensions; at most %u", ndim,
                             OPENCL_MAX_NDIM);
    for (uint32_t d = 0; d < ndim; d++) {
        int64_t size = 1;

        for (int k = 0; k < 2; k++) {
            const core_view *v = views[k];
            uint32_t at = v->ndim - 1 - d;

            if (d >= v->ndim)
                continue;
            if (v->sizes[at] != 1) {
                size = v->sizes[at];
                out->strides[k][d] = v->strides[at];
            }
        }
        out->sizes[d] = (cl_uint)size;
        out->numel *= (cl_ulong)size;
    }
    return CORE_OK;
}

/* out_total NULL: the host does not wait. */
static core_status count(core_call *call, const core_view *mask,
                         const opencl_loop *shape, bool repeats,
                         core_memory *out_sums, int64_t *out_total)
{
    core_dtype types[2] = {CORE_U8, mask->dtype};
    opencl_stream *stream = call->stream;
    core_status status = opencl_host->call_scratch(
        call, (OPENCL_GROUP + 1) * sizeof(cl_long), out_sums);
    opencl_launch l;
    cl_long total = 0;
    cl_int code;

    if (status != CORE_OK)
        return status;
    l = opencl_begin(call, &source, types, 2, "count_");
    opencl_buffer(&l, *out_sums);
    opencl_buffer(&l, mask->memory);
    opencl_bytes(&l, shape, sizeof *shape);
    opencl_int(&l, repeats);
    opencl_error_args(&l, call->id);
    status = opencl_run(&l, OPENCL_GROUP, OPENCL_GROUP);
    if (status != CORE_OK || out_total == NULL)
        return status;
    code = cl.EnqueueReadBuffer(stream->queue, out_sums->handle, CL_TRUE,
                                out_sums->offset + OPENCL_GROUP * sizeof total,
                                sizeof total, &total, 0, NULL, NULL);
    if (code != CL_SUCCESS)
        return opencl_fail(stream->device, code, "the number of elements");
    *out_total = total;
    return CORE_OK;
}

/* Writes the selected elements; in NULL: only indices. */
static core_status write(core_call *call, const char *function,
                         core_dtype dtype, core_memory to, core_memory sums,
                         const core_view *in, const core_view *mask,
                         const opencl_loop *shape)
{
    core_dtype types[2] = {opencl_bits_of(dtype), mask->dtype};
    opencl_launch l = opencl_begin(call, &source, types, 2, function);

    opencl_buffer(&l, to);
    opencl_buffer(&l, sums);
    if (in != NULL)
        opencl_buffer(&l, in->memory);
    opencl_buffer(&l, mask->memory);
    opencl_bytes(&l, shape, sizeof *shape);
    return opencl_run(&l, OPENCL_GROUP, OPENCL_GROUP);
}

/* nonzero(self) */
static core_status nonzero(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    const core_view *self = args[0].u.view, *result = NULL;
    core_memory sums;
    opencl_loop shape;
    int64_t sizes[2] = {0, self->ndim};
    core_status status = loop_of(self, NULL, &shape);

    (void)nargs;
    (void)results;
    (void)nresults;
    if (status == CORE_OK && self->numel > 0)
        status = count(call, self, &shape, false, &sums, &sizes[0]);
    if (status == CORE_OK)
        status = opencl_host->call_allocate_result(call, 0, CORE_I64, 2, sizes,
                                                   &result);
    if (status != CORE_OK || sizes[0] * sizes[1] == 0)
        return status;
    return write(call, "nonzero", CORE_I64, result->memory, sums, NULL, self,
                 &shape);
}

/* masked_select(self, mask) */
static core_status select_masked(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults)
{
    const core_view *self = args[0].u.view, *mask = args[1].u.view;
    const core_view *result = NULL;
    core_memory sums;
    opencl_loop shape;
    int64_t total = 0;
    core_status status = loop_of(self, mask, &shape);

    (void)nargs;
    (void)results;
    (void)nresults;
    if (status == CORE_OK && shape.numel > 0)
        status = count(call, mask, &shape, false, &sums, &total);
    if (status == CORE_OK)
        status = opencl_host->call_allocate_result(call, 0, self->dtype, 1,
                                                   &total, &result);
    if (status != CORE_OK || total == 0)
        return status;
    return write(call, "select_", self->dtype, result->memory, sums, self, mask,
                 &shape);
}

/* masked_scatter(self, mask, source) */
static core_status scatter_masked(core_call *call, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults)
{
    const core_view *self = args[0].u.view, *to = results[0].u.view;
    const core_view *mask = args[1].u.view, *from = args[2].u.view;
    core_dtype types[2] = {opencl_bits_of(to->dtype), mask->dtype};
    core_memory sums;
    opencl_loop shape;
    opencl_launch l;
    core_status status = loop_of(to, mask, &shape);

    (void)nargs;
    (void)nresults;
    if (status == CORE_OK && (self->memory.handle != to->memory.handle ||
                              self->memory.offset != to->memory.offset))
        status =
            opencl_copy_window(call, to->dtype, to->ndim, to->sizes, to->memory,
                               to->strides, self->memory, self->strides);
    if (status == CORE_OK && to->numel > 0)
        status = count(call, mask, &shape, false, &sums, NULL);
    if (status != CORE_OK || to->numel == 0)
        return status;
    l = opencl_begin(call, &source, types, 2, "scatter_");
    opencl_buffer(&l, to->memory);
    opencl_buffer(&l, sums);
    opencl_buffer(&l, from->memory);
    opencl_buffer(&l, mask->memory);
    opencl_bytes(&l, &shape, sizeof shape);
    opencl_long(&l, from->numel);
    opencl_error_args(&l, call->id);
    return opencl_run(&l, OPENCL_GROUP, OPENCL_GROUP);
}

/* repeat_interleave.Tensor(repeats, output_size?) */
static core_status repeat(core_call *call, const core_value *args,
                          uint32_t nargs, core_value *results,
                          uint32_t nresults)
{
    const core_view *repeats = args[0].u.view;
    const core_view *result = results[0].u.view;
    bool given = results[0].tag == CORE_VALUE_VIEW;
    core_memory sums;
    opencl_loop shape;
    int64_t total = 0;
    core_status status = loop_of(repeats, NULL, &shape);

    (void)nresults;
    if (status == CORE_OK && repeats->numel > 0)
        status = count(call, repeats, &shape, true, &sums, &total);
    if (status == CORE_OK && nargs > 1 && args[1].tag == CORE_VALUE_INT &&
        args[1].u.i != total)
        status = opencl_refuse(CORE_ERROR_INVALID_ARGUMENT,
                               "repeat_interleave: the counts add up to %lld, "
                               "output_size is %lld",
                               (long long)total, (long long)args[1].u.i);
    if (status == CORE_OK && !given)
        status = opencl_host->call_allocate_result(call, 0, repeats->dtype, 1,
                                                   &total, &result);
    if (status == CORE_OK && given && result->numel != total)
        status = opencl_refuse(CORE_ERROR_SHAPE,
                               "repeat_interleave: the counts add up to %lld, "
                               "out has %lld elements",
                               (long long)total, (long long)result->numel);
    if (status != CORE_OK || total == 0)
        return status;
    return write(call, "repeat", repeats->dtype, result->memory, sums, NULL,
                 repeats, &shape);
}

core_status opencl_register_masked(core_registry *registry)
{
    enum { DENSE = CORE_REQUIRE_CONTIGUOUS };
    core_status status = CORE_OK;

    for (core_dtype d = CORE_F64; d <= CORE_BOOL && status == CORE_OK; d++) {
        uint32_t m = CORE_DTYPE_MASK(d);
        const opencl_row rows[] = {
            {"nonzero", nonzero, NULL, {m}, DENSE},
            {"masked_select", select_masked, NULL, {m, OPENCL_BOOL}, DENSE},
            {"masked_scatter",
             scatter_masked,
             NULL,
             {m, OPENCL_BOOL, m, m},
             DENSE},
            {"repeat_interleave.Tensor", repeat, NULL, {m}, DENSE},
        };

        status = opencl_register(registry, rows,
                                 d == CORE_I64 || d == CORE_I32 ? 4 : 3, 0);
    }
    return status;
}
