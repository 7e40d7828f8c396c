/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* resample.c: upsampling by nearest, linear and cubic interpolation,
 * and its gradients. */

#include <gpu/host/host.h>
#include <gpu/shared_resample.h>

static gpu_resample sizes_of(const core_view *in, const core_view *out,
                             uint32_t ndim)
{
    gpu_resample r;

    memset(&r, 0, sizeof r);
    for (uint32_t k = 0; k < 3; k++) {
        bool present = k + ndim >= 3;

        r.in[k] = present ? in->sizes[in->ndim + k - 3] : 1;
        r.out[k] = present ? out->sizes[out->ndim + k - 3] : 1;
        r.ratio[k] = 1;
        r.taps[k] = 1;
    }
    return r;
}

static core_status launch(core_call *call, const char *name,
                          const core_value *to, const core_value *from,
                          gpu_resample *r)
{
    r->to = gpu_data(to);
    r->from = gpu_data(from);
    r->count = to->u.view->numel;
    if (r->count == 0)
        return CORE_OK;
    return gpu_launch(
        call, "resample", name,
        gpu_spread(gpu_stream_of(call)->device, (uint64_t)r->count, 1), r,
        sizeof *r);
}

static core_status run(core_call *call, const char *stem, const core_value *to,
                       const core_value *from, gpu_resample *r)
{
    char name[GPU_NAME];

    return launch(call, gpu_name(name, stem, to->u.view->dtype), to, from, r);
}

/* rest: align_corners (except for nearest), then the scales.  The user pointer
 * is kind * 4 + dimensions. */
static gpu_resample upsampling_of(const core_call *call, const core_view *in,
                                  const core_view *out, const core_value *rest,
                                  uint32_t nrest)
{
    uint32_t ndim = (uint32_t)(uintptr_t)call->user % 4;
    uint32_t kind = (uint32_t)(uintptr_t)call->user / 4;
    gpu_resample r = sizes_of(in, out, ndim);

    if (kind != GPU_NEAREST && nrest > 0) {
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

/* upsample_nearest2d of types that are only copied */
static core_status move(core_call *call, const core_value *args, uint32_t nargs,
                        core_value *results, uint32_t nresults)
{
    gpu_resample r = upsampling_of(call, args[0].u.view, results[0].u.view,
                                   &args[2], nargs > 2 ? nargs - 2 : 0);
    char name[GPU_NAME] = "resample_move_";

    (void)nresults;
    strcat(name, gpu_width_name(core_sdk_itemsize(args[0].u.view->dtype)));
    return launch(call, name, &results[0], &args[0], &r);
}

/* upsample_bilinear2d(self, output_size, align_corners, scales…) and similar
 * operators */
static core_status upsample(core_call *call, const core_value *args,
                            uint32_t nargs, core_value *results,
                            uint32_t nresults)
{
    gpu_resample r = upsampling_of(call, args[0].u.view, results[0].u.view,
                                   &args[2], nargs > 2 ? nargs - 2 : 0);

    (void)nresults;
    return run(call, "resample", &results[0], &args[0], &r);
}

/* upsample_bilinear2d_backward(grad_output, output_size, input_size,
 * align_corners, scales…) and similar operators */
static core_status upsample_backward(core_call *call, const core_value *args,
                                     uint32_t nargs, core_value *results,
                                     uint32_t nresults)
{
    gpu_resample r = upsampling_of(call, results[0].u.view, args[0].u.view,
                                   &args[3], nargs > 3 ? nargs - 3 : 0);

    (void)nresults;
    return run(call, "resample_grad", &results[0], &args[0], &r);
}

core_status gpu_register_resample(core_registry *registry)
{
    static const struct {
        const char *name, *backward;
        intptr_t user;
    } known[] = {
#define UPSAMPLING(NAME, KIND, N) \
    {"upsample_" NAME, "upsample_" NAME "_backward", KIND * 4 + N}
        UPSAMPLING("nearest1d", GPU_NEAREST, 1),
        UPSAMPLING("nearest2d", GPU_NEAREST, 2),
        UPSAMPLING("nearest3d", GPU_NEAREST, 3),
        UPSAMPLING("linear1d", GPU_LINEAR, 1),
        UPSAMPLING("bilinear2d", GPU_LINEAR, 2),
        UPSAMPLING("trilinear3d", GPU_LINEAR, 3),
        UPSAMPLING("bicubic2d", GPU_CUBIC, 2),
    };
    core_status status = CORE_OK;

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        void *user = (void *)known[i].user;

        for (core_dtype d = CORE_F64; d <= CORE_BF16 && status == CORE_OK;
             d++) {
            uint32_t m = CORE_DTYPE_MASK(d);
            const gpu_row rows[] = {
                {known[i].name,
                 upsample,
                 user,
                 {m, m},
                 CORE_REQUIRE_CONTIGUOUS,
                 NULL},
                {known[i].backward,
                 upsample_backward,
                 user,
                 {m, m},
                 CORE_REQUIRE_CONTIGUOUS,
                 NULL},
            };

            status = gpu_register(registry, rows, 2);
        }
        for (core_dtype d = CORE_I64;
             d <= CORE_BOOL && known[i].user / 4 == GPU_NEAREST &&
             status == CORE_OK;
             d++) {
            uint32_t m = CORE_DTYPE_MASK(d);
            const gpu_row row = {known[i].name,           move, user, {m, m},
                                 CORE_REQUIRE_CONTIGUOUS, NULL};

            status = gpu_register(registry, &row, 1);
        }
    }
    return status;
}
