/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* resample.c: upsampling by nearest, linear and cubic interpolation, adaptive
 * pooling, and their gradients. */

#include "opencl.h"
#include "opencl_kernels.h"

static const opencl_source source = {"resample", opencl_resample_cl, NULL,
                                     NULL};

enum { NEAREST = 1, LINEAR = 2, CUBIC = 4 };

/* Must match kernels/resample.cl; wide is double here, float if the device has
 * no f64. */
typedef struct resampling {
    cl_long planes, in[3], out[3];
    double ratio[3];
    cl_int taps[3], align;
} resampling;
typedef struct resampling_narrow {
    cl_long planes, in[3], out[3];
    float ratio[3];
    cl_int taps[3], align, reserved;
} resampling_narrow;

static resampling sizes_of(const core_view *in, const core_view *out,
                           uint32_t ndim)
{
    resampling r = {.planes = 1};

    for (uint32_t d = 0; d + ndim < in->ndim; d++)
        r.planes *= in->sizes[d];
    for (uint32_t k = 0; k < 3; k++) {
        bool present = k + ndim >= 3;

        r.in[k] = present ? in->sizes[in->ndim + k - 3] : 1;
        r.out[k] = present ? out->sizes[out->ndim + k - 3] : 1;
        r.ratio[k] = 1;
        r.taps[k] = 1;
    }
    return r;
}

static void put_shape(opencl_launch *l, const resampling *r)
{
    resampling_narrow narrow = {.planes = r->planes, .align = r->align};

    if (l->device->has_f64) {
        opencl_bytes(l, r, sizeof *r);
        return;
    }
    for (int k = 0; k < 3; k++) {
        narrow.in[k] = r->in[k];
        narrow.out[k] = r->out[k];
        narrow.ratio[k] = (float)r->ratio[k];
        narrow.taps[k] = r->taps[k];
    }
    opencl_bytes(l, &narrow, sizeof narrow);
}

static core_status run(core_call *call, const char *function,
                       const core_value *to, const core_value *more,
                       const core_value *from, const resampling *r)
{
    const core_view *view = to->u.view;
    opencl_launch l;

    if (view->numel == 0)
        return CORE_OK;
    l = opencl_begin(call, &source, &view->dtype, 1, function);
    opencl_view(&l, to);
    if (more != NULL)
        opencl_view(&l, more);
    opencl_view(&l, from);
    put_shape(&l, r);
    return opencl_run(&l, (uint64_t)view->numel, OPENCL_GROUP);
}

/* rest: align_corners unless nearest, then the scales.  The user pointer: kind
 * * 4 + dimensions. */
static resampling upsampling_of(const core_call *call, const core_view *in,
                                const core_view *out, const core_value *rest,
                                uint32_t nrest)
{
    uint32_t ndim = (uint32_t)(intptr_t)call->user % 4;
    int kind = (int)(intptr_t)call->user / 4;
    resampling r = sizes_of(in, out, ndim);

    if (kind != NEAREST && nrest > 0) {
        r.align = rest[0].u.i != 0;
        rest++;
        nrest--;
    }
    for (uint32_t k = 3 - ndim; k < 3; k++) {
        uint32_t at = k + ndim - 3;
        double scale = at < nrest && rest[at].tag != CORE_VALUE_NONE
                           ? core_sdk_double(&rest[at], 0)
                           : 0;

        r.taps[k] = kind;
        if (r.align)
            r.ratio[k] = r.out[k] > 1
                             ? (double)(r.in[k] - 1) / (double)(r.out[k] - 1)
                             : 0;
        else
            r.ratio[k] =
                scale > 0 ? 1 / scale : (double)r.in[k] / (double)r.out[k];
    }
    return r;
}

/* upsample_bilinear2d(self, output_size, align_corners, scales…) and its
 * variants */
static core_status upsample(core_call *call, const core_value *args,
                            uint32_t nargs, core_value *results,
                            uint32_t nresults)
{
    resampling r = upsampling_of(call, args[0].u.view, results[0].u.view,
                                 &args[2], nargs > 2 ? nargs - 2 : 0);

    (void)nresults;
    return run(call, "forward", &results[0], NULL, &args[0], &r);
}

/* upsample_bilinear2d_backward(grad_output, output_size, input_size,
 * align_corners, scales…) and its variants */
static core_status upsample_backward(core_call *call, const core_value *args,
                                     uint32_t nargs, core_value *results,
                                     uint32_t nresults)
{
    resampling r = upsampling_of(call, results[0].u.view, args[0].u.view,
                                 &args[3], nargs > 3 ? nargs - 3 : 0);

    (void)nresults;
    return run(call, "backward", &results[0], NULL, &args[0], &r);
}

/* ------------------------------------------------------- adaptive pools -- */

/* _adaptive_avg_pool2d(self, output_size); the user pointer: dimensions */
static core_status mean(core_call *call, const core_value *args, uint32_t nargs,
                        core_value *results, uint32_t nresults)
{
    resampling r = sizes_of(args[0].u.view, results[0].u.view,
                            (uint32_t)(intptr_t)call->user);

    (void)nargs;
    (void)nresults;
    return run(call, "adapt_mean", &results[0], NULL, &args[0], &r);
}

/* _adaptive_avg_pool2d_backward(grad_output, self) */
static core_status mean_backward(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults)
{
    resampling r = sizes_of(results[0].u.view, args[0].u.view,
                            (uint32_t)(intptr_t)call->user);

    (void)nargs;
    (void)nresults;
    return run(call, "adapt_mean_backward", &results[0], NULL, &args[0], &r);
}

/* adaptive_max_pool2d(self, output_size) -> (output, indices) */
static core_status most(core_call *call, const core_value *args, uint32_t nargs,
                        core_value *results, uint32_t nresults)
{
    resampling r = sizes_of(args[0].u.view, results[0].u.view,
                            (uint32_t)(intptr_t)call->user);

    (void)nargs;
    (void)nresults;
    return run(call, "adapt_most", &results[0], &results[1], &args[0], &r);
}

/* adaptive_max_pool2d_backward(grad_output, self, indices) */
static core_status most_backward(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults)
{
    const core_view *to = results[0].u.view;
    resampling r = sizes_of(to, args[0].u.view, (uint32_t)(intptr_t)call->user);
    opencl_launch l;

    (void)nargs;
    (void)nresults;
    if (to->numel == 0)
        return CORE_OK;
    l = opencl_begin(call, &source, &to->dtype, 1, "most_backward");
    opencl_view(&l, &results[0]);
    opencl_view(&l, &args[0]);
    opencl_view(&l, &args[2]);
    put_shape(&l, &r);
    opencl_error_args(&l, call->id);
    return opencl_run(&l, (uint64_t)r.planes, OPENCL_GROUP);
}

static core_status register_upsampling(core_registry *registry)
{
    static const struct {
        const char *name, *backward;
        intptr_t user;
    } known[] = {
#define UPSAMPLING(NAME, KIND, N) \
    {"upsample_" NAME, "upsample_" NAME "_backward", KIND * 4 + N}
        UPSAMPLING("nearest1d", NEAREST, 1),
        UPSAMPLING("nearest2d", NEAREST, 2),
        UPSAMPLING("nearest3d", NEAREST, 3),
        UPSAMPLING("linear1d", LINEAR, 1),
        UPSAMPLING("bilinear2d", LINEAR, 2),
        UPSAMPLING("trilinear3d", LINEAR, 3),
        UPSAMPLING("bicubic2d", CUBIC, 2),
    };
    core_status status = CORE_OK;

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        for (core_dtype d = CORE_F64; d <= CORE_BF16 && status == CORE_OK;
             d++) {
            uint32_t m = CORE_DTYPE_MASK(d);
            void *user = (void *)known[i].user;
            const opencl_row rows[] = {
                {known[i].name,
                 upsample,
                 user,
                 {m, m},
                 CORE_REQUIRE_CONTIGUOUS},
                {known[i].backward,
                 upsample_backward,
                 user,
                 {m, m},
                 CORE_REQUIRE_CONTIGUOUS},
            };

            status = opencl_register(registry, rows, 2, 0);
        }
    return status;
}

core_status opencl_register_resample(core_registry *registry)
{
    enum { DENSE = CORE_REQUIRE_CONTIGUOUS, I = OPENCL_I64 };
    core_status status = register_upsampling(registry);

#define POOLS(N)                                                         \
    {"_adaptive_avg_pool" #N "d", mean, (void *)N, {m, m}, DENSE},       \
        {"_adaptive_avg_pool" #N "d_backward",                           \
         mean_backward,                                                  \
         (void *)N,                                                      \
         {m, m, m},                                                      \
         DENSE},                                                         \
        {"adaptive_max_pool" #N "d", most, (void *)N, {m, m, I}, DENSE}, \
    {                                                                    \
        "adaptive_max_pool" #N "d_backward", most_backward, (void *)N,   \
            {m, m, I, m}, DENSE                                          \
    }
    for (core_dtype d = CORE_F64; d <= CORE_BF16 && status == CORE_OK; d++) {
        uint32_t m = CORE_DTYPE_MASK(d);
        const opencl_row rows[] = {POOLS(2), POOLS(3)};

        status = opencl_register(registry, rows, sizeof rows / sizeof *rows, 0);
    }
    return status;
}
