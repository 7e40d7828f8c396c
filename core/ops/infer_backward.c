/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Backward operators (grad, self, …) whose gradient must have the sizes that
 * the forward of (self, …) gives: their kernels walk both. */

#include "ops/functions.h"
#include "ops/infer.h"

CORE__INFER(reflection_pad);
CORE__INFER(replication_pad);

static core_status check(core__inference *infer,
                         core_status (*forward)(core__inference *),
                         const core_tensor *tensor, const char *what)
{
    const core_tensor *self = core__arg_tensor(infer->args, 1);
    core__result_spec *result = &infer->results[0];
    char have[160];
    char want[160];
    bool same;

    infer->args++;
    infer->nargs--;
    {
        core_status status = forward(infer);

        infer->args--;
        infer->nargs++;
        CORE_TRY(status);
    }
    same = result->ndim == tensor->ndim;
    for (uint32_t i = 0; same && i < tensor->ndim; i++)
        same = result->sizes[i] == tensor->sizes[i];
    if (!same)
        return core__op_error(
            CORE_ERROR_SHAPE, infer->op,
            "%s is %s; the forward of these arguments gives %s", what,
            core__sizes_text(tensor->ndim, tensor->sizes, have, sizeof have),
            core__sizes_text(result->ndim, result->sizes, want, sizeof want));
    core__result_like(result, self);
    result->dtype = core__arg_tensor(infer->args, 0)->dtype;
    return CORE_OK;
}

static core_status like_forward(core__inference *infer,
                                core_status (*forward)(core__inference *))
{
    return check(infer, forward, core__arg_tensor(infer->args, 0),
                 "the gradient");
}

CORE__INFER(reflection_pad_backward)
{
    return like_forward(infer, core__infer_reflection_pad);
}

CORE__INFER(replication_pad_backward)
{
    return like_forward(infer, core__infer_replication_pad);
}
