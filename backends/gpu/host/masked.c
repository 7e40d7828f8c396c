/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* masked.c: nonzero, masked_select, masked_scatter, repeat_interleave.  If the
 * size of the result depends on the data, the host waits for it. */

#include <gpu/host/move.h>
#include <gpu/shared_masked.h>

/* Sets the shape that a and b broadcast to, and the strides of both; b may be
 * NULL. */
static core_status shape_of(core_call *call, const core_view *a,
                            const core_view *b, const core_view *mask,
                            gpu_masked *p)
{
    uint32_t ndim = b != NULL && b->ndim > a->ndim ? b->ndim : a->ndim;
    const core_view *views[2] = {a, b != NULL ? b : a};

    memset(p, 0, sizeof *p);
    p->count = 1;
    p->ndim = ndim;
    p->mask = gpu_address(mask->memory);
    p->mask_dtype = mask->dtype;
    p->error = gpu_stream_of(call)->error;
    p->call = (int64_t)call->id;
    if (ndim > GPU_DIMS)
        return gpu_refuse(CORE_ERROR_UNSUPPORTED,
                          "a mask of %u dimensions; at most %u", ndim,
                          GPU_DIMS);
    for (uint32_t d = 0; d < ndim; d++) {
        p->sizes[d] = 1;
        for (int k = 0; k < 2; k++) {
            const core_view *v = views[k];
            uint32_t at = v->ndim - 1 - d;
            int64_t *strides = k == 0 ? p->from_strides : p->mask_strides;

            if (d >= v->ndim || v->sizes[at] == 1)
                continue;
            p->sizes[d] = v->sizes[at];
            strides[d] = v->strides[at];
        }
        p->count *= p->sizes[d];
    }
    p->dense = a->numel == p->count && views[1]->numel == p->count;
    p->chunks = (p->count + GPU_MASKED_CHUNK - 1) / GPU_MASKED_CHUNK;
    return CORE_OK;
}

static core_status launch(core_call *call, const char *name,
                          const gpu_masked *p, uint64_t blocks)
{
    return gpu_launch(call, "masked", name, gpu_blocks(blocks, GPU_BLOCK), p,
                      sizeof *p);
}

/* If out_total is NULL, this does not wait. */
static core_status count(core_call *call, gpu_masked *p, int64_t *out_total)
{
    const gpu_driver *calls = gpu_this_vendor.driver;
    gpu_stream *stream = gpu_stream_of(call);
    gpu_device *device = stream->device;
    core_memory sums;
    core_status status = gpu_host->call_scratch(
        call, ((uint64_t)p->chunks + 1) * sizeof(int64_t), &sums);
    int code;

    if (status != CORE_OK)
        return status;
    p->sums = gpu_address(sums);
    status = launch(call, "masked_count", p, (uint64_t)p->chunks);
    if (status == CORE_OK)
        status = launch(call, "masked_sum", p, 1);
    if (status != CORE_OK || out_total == NULL)
        return status;
    code = calls->copy(device->context, stream->native, out_total,
                       p->sums + p->chunks, sizeof *out_total, GPU_TO_HOST);
    if (code == 0)
        code = gpu_wait_stream(device, stream->native);
    return code == 0 ? CORE_OK
                     : gpu_report(device, code, "the number of elements");
}

static core_status put(core_call *call, const char *name, gpu_masked *p,
                       const core_view *to)
{
    p->to = gpu_address(to->memory);
    p->dtype = to->dtype;
    return launch(call, name, p, (uint64_t)p->chunks);
}

/* nonzero(self) */
static core_status nonzero(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    const core_view *self = args[0].u.view, *result = NULL;
    int64_t sizes[2] = {0, self->ndim};
    gpu_masked p;
    core_status status = shape_of(call, self, NULL, self, &p);

    (void)nargs;
    (void)results;
    (void)nresults;
    if (status == CORE_OK && self->numel > 0)
        status = count(call, &p, &sizes[0]);
    if (status == CORE_OK)
        status = gpu_host->call_allocate_result(call, 0, CORE_I64, 2, sizes,
                                                &result);
    if (status != CORE_OK || sizes[0] * sizes[1] == 0)
        return status;
    return put(call, "masked_nonzero", &p, result);
}

/* masked_select(self, mask) */
static core_status select_masked(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults)
{
    const core_view *self = args[0].u.view, *mask = args[1].u.view;
    const core_view *result = NULL;
    int64_t total = 0;
    gpu_masked p;
    core_status status = shape_of(call, self, mask, mask, &p);

    (void)nargs;
    (void)results;
    (void)nresults;
    if (status == CORE_OK && p.count > 0)
        status = count(call, &p, &total);
    if (status == CORE_OK)
        status = gpu_host->call_allocate_result(call, 0, self->dtype, 1, &total,
                                                &result);
    if (status != CORE_OK || total == 0)
        return status;
    p.from = gpu_address(self->memory);
    return put(call, "masked_select", &p, result);
}

/* masked_scatter(self, mask, source) */
static core_status scatter_masked(core_call *call, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults)
{
    const core_view *self = args[0].u.view, *to = results[0].u.view;
    const core_view *mask = args[1].u.view, *from = args[2].u.view;
    gpu_masked p;
    core_status status = shape_of(call, to, mask, mask, &p);

    (void)nargs;
    (void)nresults;
    if (status == CORE_OK &&
        gpu_address(self->memory) != gpu_address(to->memory))
        status =
            gpu_copy_window(call, to->dtype, to->ndim, to->sizes, to->memory,
                            to->strides, self->memory, self->strides);
    if (status == CORE_OK && to->numel > 0)
        status = count(call, &p, NULL);
    if (status != CORE_OK || to->numel == 0)
        return status;
    p.from = gpu_address(from->memory);
    p.limit = from->numel;
    return put(call, "masked_scatter", &p, to);
}

static core_status check_total(const core_value *given, int64_t total,
                               const core_view *result)
{
    if (given != NULL && given->tag == CORE_VALUE_INT && given->u.i != total)
        return gpu_refuse(CORE_ERROR_INVALID_ARGUMENT,
                          "repeat_interleave: the counts add up to %lld, "
                          "output_size is %lld",
                          (long long)total, (long long)given->u.i);
    if (result != NULL && result->numel != total)
        return gpu_refuse(CORE_ERROR_SHAPE,
                          "repeat_interleave: the counts add up to %lld, "
                          "out has %lld elements",
                          (long long)total, (long long)result->numel);
    return CORE_OK;
}

/* repeat_interleave.Tensor(repeats, output_size?) */
static core_status repeat(core_call *call, const core_value *args,
                          uint32_t nargs, core_value *results,
                          uint32_t nresults)
{
    const core_view *repeats = args[0].u.view, *result = NULL;
    int64_t total = 0;
    gpu_masked p;
    core_status status = shape_of(call, repeats, NULL, repeats, &p);

    (void)nresults;
    p.repeats = 1;
    if (results[0].tag == CORE_VALUE_VIEW)
        result = results[0].u.view;
    if (status == CORE_OK && repeats->numel > 0)
        status = count(call, &p, &total);
    if (status == CORE_OK)
        status = check_total(nargs > 1 ? &args[1] : NULL, total, result);
    if (status == CORE_OK && result == NULL)
        status = gpu_host->call_allocate_result(call, 0, repeats->dtype, 1,
                                                &total, &result);
    if (status != CORE_OK || total == 0)
        return status;
    return put(call, "masked_repeat", &p, result);
}

core_status gpu_register_masked(core_registry *registry)
{
    enum { DENSE = CORE_REQUIRE_CONTIGUOUS, B = GPU_M_BOOL };
    static const gpu_row whole[] = {
        {"repeat_interleave.Tensor",
         repeat,
         NULL,
         {GPU_M_I64 | GPU_M_I32},
         DENSE,
         NULL},
    };
    core_status status = gpu_register(registry, whole, 1);

    for (core_dtype d = CORE_F64; d <= CORE_BOOL && status == CORE_OK; d++) {
        uint32_t m = CORE_DTYPE_MASK(d);
        const gpu_row rows[] = {
            {"nonzero", nonzero, NULL, {m}, DENSE, gpu_supports_dims},
            {"masked_select",
             select_masked,
             NULL,
             {m, B},
             DENSE,
             gpu_supports_dims},
            {"masked_scatter",
             scatter_masked,
             NULL,
             {m, B, m, m},
             DENSE,
             gpu_supports_dims},
        };

        status = gpu_register(registry, rows, sizeof rows / sizeof *rows);
    }
    return status;
}
