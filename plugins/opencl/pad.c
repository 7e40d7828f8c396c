/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* roll; padding by reflection and replication, and its gradients. */

#include "opencl.h"
#include "opencl_kernels.h"

static const opencl_source source = {"pad", opencl_pad_cl, NULL, NULL};

/* Must match kernels/pad.cl. */
enum { ROLL, REFLECT, REPLICATE };
typedef struct frame {
    cl_ulong numel;
    cl_uint ndim, kind;
    cl_uint in[OPENCL_MAX_NDIM], out[OPENCL_MAX_NDIM];
    cl_long before[OPENCL_MAX_NDIM];
} frame;

static core_status run(core_call *call, const char *function, core_dtype dtype,
                       const core_value *to, const core_value *from,
                       const frame *f)
{
    opencl_launch l;

    if (f->numel == 0)
        return CORE_OK;
    l = opencl_begin(call, &source, &dtype, 1, function);
    opencl_view(&l, to);
    opencl_view(&l, from);
    opencl_bytes(&l, f, sizeof *f);
    return opencl_run(&l, f->numel, OPENCL_GROUP);
}

static int64_t modulo(int64_t a, int64_t n)
{
    return n > 0 ? (a % n + n) % n : 0;
}

/* roll(self, shifts, dims); without dims self is one row */
static core_status roll(core_call *call, const core_value *args, uint32_t nargs,
                        core_value *results, uint32_t nresults)
{
    const core_view *to = results[0].u.view;
    frame f = {.numel = (cl_ulong)to->numel, .ndim = to->ndim, .kind = ROLL};

    (void)nresults;
    if (to->ndim > OPENCL_MAX_NDIM || to->numel > INT64_C(0xffffffff))
        return opencl_refuse(CORE_ERROR_UNSUPPORTED,
                             "roll: %u dimensions, %lld elements; at most %u "
                             "and 2^32 - 1",
                             to->ndim, (long long)to->numel, OPENCL_MAX_NDIM);
    for (uint32_t d = 0; d < to->ndim; d++)
        f.in[d] = f.out[d] = (cl_uint)to->sizes[to->ndim - 1 - d];
    if (nargs < 3 || args[2].count == 0 || to->ndim == 0) {
        f.ndim = 1;
        f.in[0] = f.out[0] = (cl_uint)to->numel;
        f.before[0] = modulo(args[1].count ? args[1].u.ints[0] : 0, to->numel);
    }
    for (uint32_t k = 0; nargs > 2 && k < args[2].count && to->ndim > 0; k++) {
        int64_t dim = args[2].u.ints[k];
        uint32_t d =
            to->ndim - 1 - (uint32_t)(dim < 0 ? dim + (int64_t)to->ndim : dim);
        int64_t shift = args[1].u.ints[args[1].count > 1 ? k : 0];

        f.before[d] = modulo(f.before[d] + modulo(shift, f.in[d]), f.in[d]);
    }
    return run(call, "move_", opencl_bits_of(to->dtype), &results[0], &args[0],
               &f);
}

/* The user pointer: kind * 4 + padded dimensions.  All other dimensions are
 * planes. */
static frame frame_of(const core_call *call, const core_view *in,
                      const core_view *out, const core_value *pads)
{
    uint32_t ndim = (uint32_t)(intptr_t)call->user % 4;
    frame f = {.ndim = 4, .kind = (cl_uint)(intptr_t)call->user / 4};
    uint32_t planes = 1;

    for (uint32_t d = 0; d < 3; d++) {
        f.in[d] = d < ndim ? (cl_uint)in->sizes[in->ndim - 1 - d] : 1;
        f.out[d] = d < ndim ? (cl_uint)out->sizes[out->ndim - 1 - d] : 1;
        f.before[d] = d < ndim ? pads->u.ints[2 * d] : 0;
    }
    for (uint32_t d = 0; d + ndim < in->ndim; d++)
        planes *= (uint32_t)in->sizes[d];
    f.in[3] = f.out[3] = planes;
    return f;
}

/* reflection_pad2d(self, padding) and its variants */
static core_status pad(core_call *call, const core_value *args, uint32_t nargs,
                       core_value *results, uint32_t nresults)
{
    const core_view *to = results[0].u.view;
    frame f = frame_of(call, args[0].u.view, to, &args[1]);

    (void)nargs;
    (void)nresults;
    f.numel = (cl_ulong)to->numel;
    return run(call, "move_", opencl_bits_of(to->dtype), &results[0], &args[0],
               &f);
}

/* reflection_pad2d_backward(grad_output, self, padding) and its variants */
static core_status pad_backward(core_call *call, const core_value *args,
                                uint32_t nargs, core_value *results,
                                uint32_t nresults)
{
    const core_view *to = results[0].u.view;
    frame f = frame_of(call, to, args[0].u.view, &args[2]);

    (void)nargs;
    (void)nresults;
    f.numel = (cl_ulong)to->numel;
    return run(call, "gather_back", to->dtype, &results[0], &args[0], &f);
}

core_status opencl_register_pad(core_registry *registry)
{
    enum { DENSE = CORE_REQUIRE_CONTIGUOUS };
#define PADS(NAME, KIND, N)                                           \
    {NAME "_pad" #N "d", pad, (void *)(4 * KIND + N), {m, m}, DENSE}, \
        {NAME "_pad" #N "d_backward",                                 \
         pad_backward,                                                \
         (void *)(4 * KIND + N),                                      \
         {m, m, m},                                                   \
         DENSE}
    core_status status = CORE_OK;

    for (core_dtype d = CORE_F64; d <= CORE_BOOL && status == CORE_OK; d++) {
        uint32_t m = CORE_DTYPE_MASK(d);
        const opencl_row rows[] = {
            {"roll", roll, NULL, {m, m}, DENSE},
            PADS("reflection", REFLECT, 1),
            PADS("reflection", REFLECT, 2),
            PADS("reflection", REFLECT, 3),
            PADS("replication", REPLICATE, 1),
            PADS("replication", REPLICATE, 2),
            PADS("replication", REPLICATE, 3),
        };

        status = opencl_register(
            registry, rows, d <= CORE_BF16 ? sizeof rows / sizeof *rows : 1, 0);
    }
    return status;
}
