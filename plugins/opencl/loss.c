/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* nll_loss, the last step of cross entropy, of one or two dimensions. */

#include "opencl.h"
#include "opencl_kernels.h"

static const opencl_source source = {"loss", opencl_loss_cl, NULL, NULL};

/* self is (C), (N, C) or (N, C, …); from weight on the arguments are weight?,
 * reduction, ignore_index. */
static opencl_line put_shape(opencl_launch *l, const core_view *self,
                             const core_value *weight)
{
    opencl_line line = opencl_line_of(self, self->ndim > 1 ? 1 : 0);
    /* Without a reduction, one target without a batch is summed. */
    int64_t reduction =
        weight[1].u.i == 0 && self->ndim == 1 ? 2 : weight[1].u.i;

    opencl_view(l, weight);
    opencl_int(l, weight->tag == CORE_VALUE_VIEW);
    opencl_long(l, line.outer);
    opencl_long(l, line.size);
    opencl_long(l, line.inner);
    opencl_int(l, (int32_t)reduction);
    opencl_long(l, weight[2].u.i);
    return line;
}

/* nll_loss_forward(self, target, weight?, reduction, ignore_index)
 * -> (output, total_weight) */
static core_status forward(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    core_dtype types[2] = {args[0].u.view->dtype, args[1].u.view->dtype};
    opencl_launch l = opencl_begin(call, &source, types, 2, "forward");

    (void)nargs;
    (void)nresults;
    opencl_view(&l, &results[0]);
    opencl_view(&l, &results[1]);
    opencl_view(&l, &args[0]);
    opencl_view(&l, &args[1]);
    put_shape(&l, args[0].u.view, &args[2]);
    opencl_error_args(&l, call->id);
    return opencl_run(&l, OPENCL_GROUP, OPENCL_GROUP);
}

/* nll_loss_backward(grad_output, self, target, weight?, reduction,
 * ignore_index, total_weight) -> grad_self */
static core_status backward(core_call *call, const core_value *args,
                            uint32_t nargs, core_value *results,
                            uint32_t nresults)
{
    const core_view *self = args[1].u.view;
    core_dtype types[2] = {self->dtype, args[2].u.view->dtype};
    opencl_line line;
    opencl_launch l;

    (void)nargs;
    (void)nresults;
    if (self->numel == 0)
        return CORE_OK;
    l = opencl_begin(call, &source, types, 2, "backward");
    opencl_view(&l, &results[0]);
    opencl_view(&l, &args[0]);
    opencl_view(&l, &args[6]);
    opencl_view(&l, &args[2]);
    line = put_shape(&l, self, &args[3]);
    opencl_error_args(&l, call->id);
    return opencl_run(&l, (uint64_t)(line.outer * line.inner), OPENCL_GROUP);
}

core_status opencl_register_loss(core_registry *registry)
{
    enum { INDEX = OPENCL_I64 | OPENCL_I32 };
#define DENSE CORE_REQUIRE_CONTIGUOUS
#define ROWS(N, F)                                                   \
    {N "_forward", forward, NULL, {F, INDEX, F, F, F}, DENSE},       \
    {                                                                \
        N "_backward", backward, NULL, {F, F, INDEX, F, F, F}, DENSE \
    }
    static const opencl_row rows[] = {
        ROWS("nll_loss", OPENCL_F32),   ROWS("nll_loss", OPENCL_F64),
        ROWS("nll_loss", OPENCL_F16),   ROWS("nll_loss", OPENCL_BF16),
        ROWS("nll_loss2d", OPENCL_F32), ROWS("nll_loss2d", OPENCL_F64),
        ROWS("nll_loss2d", OPENCL_F16), ROWS("nll_loss2d", OPENCL_BF16)};

    return opencl_register(registry, rows, sizeof rows / sizeof *rows, 0);
}
