/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* pad.c: roll; padding by reflection and replication, and its gradients. */

#include <gpu/host/host.h>
#include <gpu/shared_pad.h>

static core_status run(core_call *call, const char *name, const core_value *to,
                       const core_value *from, gpu_pad *p)
{
    p->to = gpu_data(to);
    p->from = gpu_data(from);
    p->count = to->u.view->numel;
    if (p->count == 0)
        return CORE_OK;
    return gpu_launch(
        call, "pad", name,
        gpu_spread(gpu_stream_of(call)->device, (uint64_t)p->count, 1), p,
        sizeof *p);
}

static core_status move(core_call *call, const core_value *to,
                        const core_value *from, gpu_pad *p)
{
    char name[GPU_NAME] = "pad_";

    strcat(name, gpu_width_name(core_sdk_itemsize(to->u.view->dtype)));
    return run(call, name, to, from, p);
}

static int64_t modulo(int64_t a, int64_t n)
{
    return n > 0 ? (a % n + n) % n : 0;
}

/* roll(self, shifts, dims); without dims, self is flattened */
static core_status roll(core_call *call, const core_value *args, uint32_t nargs,
                        core_value *results, uint32_t nresults)
{
    const core_view *to = results[0].u.view;
    gpu_pad f = {.ndim = to->ndim, .kind = GPU_ROLL};

    (void)nresults;
    if (to->ndim > GPU_DIMS)
        return gpu_refuse(CORE_ERROR_UNSUPPORTED,
                          "roll: %u dimensions; at most %u", to->ndim,
                          GPU_DIMS);
    for (uint32_t d = 0; d < to->ndim; d++)
        f.in[d] = f.out[d] = to->sizes[to->ndim - 1 - d];
    if (nargs < 3 || args[2].count == 0 || to->ndim == 0) {
        f.ndim = 1;
        f.in[0] = f.out[0] = to->numel;
        f.before[0] = modulo(args[1].count ? args[1].u.ints[0] : 0, to->numel);
    }
    for (uint32_t k = 0; nargs > 2 && k < args[2].count && to->ndim > 0; k++) {
        int64_t dim = args[2].u.ints[k];
        uint32_t d =
            to->ndim - 1 - (uint32_t)(dim < 0 ? dim + (int64_t)to->ndim : dim);
        int64_t shift = args[1].u.ints[args[1].count > 1 ? k : 0];

        f.before[d] = modulo(f.before[d] + modulo(shift, f.in[d]), f.in[d]);
    }
    return move(call, &results[0], &args[0], &f);
}

/* The user pointer is kind * 4 + the number of padded dimensions.  All other
 * dimensions are planes. */
static gpu_pad pad_of(const core_call *call, const core_view *in,
                      const core_view *out, const core_value *pads)
{
    uint32_t ndim = (uint32_t)(uintptr_t)call->user % 4;
    gpu_pad f = {.ndim = 4, .kind = (uint32_t)(uintptr_t)call->user / 4};
    int64_t planes = 1;

    for (uint32_t d = 0; d < 3; d++) {
        f.in[d] = d < ndim ? in->sizes[in->ndim - 1 - d] : 1;
        f.out[d] = d < ndim ? out->sizes[out->ndim - 1 - d] : 1;
        f.before[d] = d < ndim ? pads->u.ints[2 * d] : 0;
    }
    for (uint32_t d = 0; d + ndim < in->ndim; d++)
        planes *= in->sizes[d];
    f.in[3] = f.out[3] = planes;
    return f;
}

/* reflection_pad2d(self, padding) and similar operators */
static core_status pad(core_call *call, const core_value *args, uint32_t nargs,
                       core_value *results, uint32_t nresults)
{
    const core_view *to = results[0].u.view;
    gpu_pad f = pad_of(call, args[0].u.view, to, &args[1]);

    (void)nargs;
    (void)nresults;
    return move(call, &results[0], &args[0], &f);
}

/* reflection_pad2d_backward(grad_output, self, padding) and similar
 * operators */
static core_status pad_backward(core_call *call, const core_value *args,
                                uint32_t nargs, core_value *results,
                                uint32_t nresults)
{
    const core_view *to = results[0].u.view;
    gpu_pad f = pad_of(call, to, args[0].u.view, &args[2]);
    char name[GPU_NAME];

    (void)nargs;
    (void)nresults;
    return run(call, gpu_name(name, "pad_grad", to->dtype), &results[0],
               &args[0], &f);
}

core_status gpu_register_pad(core_registry *registry)
{
    enum { DENSE = CORE_REQUIRE_CONTIGUOUS };
#define PAD(NAME, KIND, N) \
    {NAME "_pad" #N "d", pad, (void *)(4 * KIND + N), {m, m}, DENSE, NULL}
#define PAD_BACKWARD(NAME, KIND, N)                                        \
    {                                                                      \
        NAME "_pad" #N "d_backward", pad_backward, (void *)(4 * KIND + N), \
            {m, m, m}, DENSE, NULL                                         \
    }
#define PADS(MAKE)                                                          \
    MAKE("reflection", GPU_REFLECT, 1), MAKE("reflection", GPU_REFLECT, 2), \
        MAKE("reflection", GPU_REFLECT, 3),                                 \
        MAKE("replication", GPU_REPLICATE, 1),                              \
        MAKE("replication", GPU_REPLICATE, 2),                              \
        MAKE("replication", GPU_REPLICATE, 3)
    core_status status = CORE_OK;

    for (core_dtype d = CORE_F64; d <= CORE_BOOL && status == CORE_OK; d++) {
        uint32_t m = CORE_DTYPE_MASK(d);
        const gpu_row rows[] = {
            {"roll", roll, NULL, {m, m}, DENSE, gpu_supports_dims},
            PADS(PAD),
            PADS(PAD_BACKWARD),
        };

        /* Integers have no gradients. */
        status = gpu_register(registry, rows, d <= CORE_BF16 ? 13 : 7);
    }
    return status;
}
