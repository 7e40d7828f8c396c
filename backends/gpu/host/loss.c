/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* loss.c: nll_loss (kernels/index.cu). */

#include <gpu/host/host.h>
#include <gpu/shared_index.h>

/* self is (C), (N, C) or (N, C, …).  The arguments from weight on are weight?,
 * reduction, ignore_index. */
static gpu_loss begin_loss(core_call *call, const core_view *self,
                           const core_value *target, const core_value *weight)
{
    gpu_line line = gpu_line_of(self, self->ndim > 1 ? 1 : 0);
    gpu_loss p;

    memset(&p, 0, sizeof p);
    p.target = gpu_data(target);
    p.index_dtype = target->u.view->dtype;
    p.weight = gpu_data(weight);
    p.outer = line.outer;
    p.classes = line.size;
    p.inner = line.inner;
    p.reduction = (uint32_t)weight[1].u.i;
    p.ignore = weight[2].u.i;
    p.error = gpu_stream_of(call)->error;
    p.call = (int64_t)call->id;
    return p;
}

/* nll_loss_forward(self, target, weight?, reduction, ignore_index)
 * -> (output, total_weight) */
static core_status loss_forward(core_call *call, const core_value *args,
                                uint32_t nargs, core_value *results,
                                uint32_t nresults)
{
    const core_view *self = args[0].u.view;
    gpu_loss p = begin_loss(call, self, &args[1], &args[2]);
    char name[GPU_NAME];

    (void)nargs;
    (void)nresults;
    /* The single loss of a 1-D input (reduction 0) equals its sum. */
    if (self->ndim == 1 && p.reduction == 0)
        p.reduction = 2;
    p.to = gpu_data(&results[0]);
    p.total = gpu_data(&results[1]);
    p.from = gpu_data(&args[0]);
    return gpu_launch(call, "index", gpu_name(name, "nll_forward", self->dtype),
                      gpu_blocks(1, GPU_BLOCK), &p, sizeof p);
}

/* nll_loss_backward(grad_output, self, target, weight?, reduction,
 * ignore_index, total_weight) -> grad_self */
static core_status loss_backward(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults)
{
    const core_view *self = args[1].u.view;
    gpu_loss p = begin_loss(call, self, &args[2], &args[3]);
    char name[GPU_NAME];

    (void)nargs;
    (void)nresults;
    if (self->numel == 0)
        return CORE_OK;
    p.to = gpu_data(&results[0]);
    p.total = gpu_data(&args[6]);
    p.from = gpu_data(&args[0]);
    return gpu_launch(call, "index",
                      gpu_name(name, "nll_backward", self->dtype),
                      gpu_spread(gpu_stream_of(call)->device,
                                 (uint64_t)(p.outer * p.inner), 1),
                      &p, sizeof p);
}

core_status gpu_register_loss(core_registry *registry)
{
    enum { DENSE = CORE_REQUIRE_CONTIGUOUS, INDEX = GPU_M_I64 | GPU_M_I32 };
    core_status status = CORE_OK;

    for (core_dtype d = CORE_F64; d <= CORE_BF16 && status == CORE_OK; d++) {
        uint32_t m = CORE_DTYPE_MASK(d);
        const gpu_row typed[] = {
            {"nll_loss_forward",
             loss_forward,
             NULL,
             {m, INDEX, m, m, m},
             DENSE,
             NULL},
            {"nll_loss_backward",
             loss_backward,
             NULL,
             {m, m, INDEX, m, m, m},
             DENSE,
             NULL},
            {"nll_loss2d_forward",
             loss_forward,
             NULL,
             {m, INDEX, m, m, m},
             DENSE,
             NULL},
            {"nll_loss2d_backward",
             loss_backward,
             NULL,
             {m, m, INDEX, m, m, m},
             DENSE,
             NULL},
        };

        status = gpu_register(registry, typed, sizeof typed / sizeof *typed);
    }
    return status;
}
