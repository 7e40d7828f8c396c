/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* grid_sample.c: sampling at the points of a grid, and its gradients. */

#include <gpu/host/host.h>
#include <gpu/shared_resample.h>

/* args: input, grid, interpolation_mode, padding_mode, align_corners */
static gpu_grid_sample grid_of(const core_value *args)
{
    const core_view *in = args[0].u.view, *grid = args[1].u.view;
    gpu_grid_sample p;

    memset(&p, 0, sizeof p);
    p.from = gpu_data(&args[0]);
    p.grid = gpu_data(&args[1]);
    p.mode = (uint32_t)args[2].u.i;
    p.padding = (uint32_t)args[3].u.i;
    p.align = args[4].u.i != 0;
    p.dtype = in->dtype;
    p.images = in->sizes[0];
    p.channels = in->sizes[1];
    for (int k = 0; k < 2; k++) {
        p.in[k] = in->sizes[k + 2];
        p.out[k] = grid->sizes[k + 1];
    }
    return p;
}

static core_status grid_run(core_call *call, const char *stem, core_dtype dtype,
                            const gpu_grid_sample *p, int64_t items)
{
    char name[GPU_NAME];

    if (items == 0)
        return CORE_OK;
    return gpu_launch(
        call, "grid_sample",
        gpu_name(name, stem, dtype == CORE_F64 ? CORE_F64 : CORE_F32),
        gpu_spread(gpu_stream_of(call)->device, (uint64_t)items, 1), p,
        sizeof *p);
}

/* grid_sampler_2d(input, grid, interpolation_mode, padding_mode,
 * align_corners) */
static core_status grid(core_call *call, const core_value *args, uint32_t nargs,
                        core_value *results, uint32_t nresults)
{
    gpu_grid_sample p = grid_of(args);

    (void)nargs;
    (void)nresults;
    p.to = gpu_data(&results[0]);
    return grid_run(call, "grid_sample", args[0].u.view->dtype, &p,
                    p.images * p.out[0] * p.out[1]);
}

/* grid_sampler_2d_backward(grad_output, input, grid, interpolation_mode,
 * padding_mode, align_corners, output_mask) -> (input, grid) */
static core_status grid_backward(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults)
{
    gpu_grid_sample p = grid_of(&args[1]);
    core_dtype dtype = args[1].u.view->dtype;
    core_status status = CORE_OK;

    (void)nargs;
    (void)nresults;
    p.grad = gpu_data(&args[0]);
    p.to = gpu_data(&results[0]);
    p.to_grid = gpu_data(&results[1]);
    if (p.to != NULL)
        status =
            grid_run(call, "grid_image", dtype, &p, results[0].u.view->numel);
    if (p.to_grid != NULL && status == CORE_OK)
        status = grid_run(call, "grid_grid", dtype, &p,
                          p.images * p.out[0] * p.out[1]);
    return status;
}

core_status gpu_register_grid_sample(core_registry *registry)
{
    enum { DENSE = CORE_REQUIRE_CONTIGUOUS };
    core_status status = CORE_OK;

    for (core_dtype d = CORE_F64; d <= CORE_BF16 && status == CORE_OK; d++) {
        uint32_t m = CORE_DTYPE_MASK(d);
        const gpu_row rows[] = {
            {"grid_sampler_2d", grid, NULL, {m, m, m}, DENSE, NULL},
            {"grid_sampler_2d_backward",
             grid_backward,
             NULL,
             {m, m, m, m, m},
             DENSE,
             NULL},
        };

        status = gpu_register(registry, rows, 2);
    }
    return status;
}
