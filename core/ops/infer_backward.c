/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Inference for backward operators (grad, self, …) whose gradient must have the
 * sizes of the forward's result, as their kernels iterate over both. */

#include "ops/functions.h"
#include "ops/shape.h"

CORE__INFER(reflection_pad);
CORE__INFER(replication_pad);

static core_status like_forward(core__inference *infer,
                                core_status (*forward)(core__inference *))
{
    const core_tensor *grad = core__arg_tensor(infer->args, 0);
    core__inference inner = *infer;
    const core__result_spec *wanted = &inner.results[0];

    inner.args++;
    inner.nargs--;
    CORE_TRY(forward(&inner));
    CORE_TRY(core__sizes_check_equal(infer->op, "grad_output", grad,
                                     wanted->ndim, wanted->sizes));
    core__result_like(&infer->results[0], core__arg_tensor(infer->args, 1));
    infer->results[0].dtype = grad->dtype;
    return CORE_OK;
}

CORE__INFER(reflection_pad_backward)
{
    return like_forward(infer, core__infer_reflection_pad);
}

CORE__INFER(replication_pad_backward)
{
    return like_forward(infer, core__infer_replication_pad);
}
