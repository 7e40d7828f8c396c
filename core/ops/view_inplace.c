/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* View operators in place: the tensor itself gets the layout of its view, on
 * the same memory.  Views of it keep their layout. */

#include "ops/functions.h"
#include "tensor/tensor.h"

static void return_self(core_tensor *self, core_value *results,
                        uint32_t nresults)
{
    if (nresults == 0)
        return;
    core__tensor_retain(self);
    core__result_tensor(&results[0], self);
}

/* The functional operator's function creates the view, under this operator's
 * name. */
CORE__OP(view_variant)
{
    const core_operator *base = core__operator_base(call->op);
    core_tensor *self = args[0].u.tensor;
    core_value view = {0};

    CORE_TRY(base->data->function(call, args, nargs, &view, 1));
    core__tensor_take_layout(self, view.u.tensor);
    core_value_release(&view);
    return_self(self, results, nresults);
    return CORE_OK;
}

CORE__OP(detach_)
{
    core_tensor *self = args[0].u.tensor;

    if (self->base)
        return core__op_error(CORE_ERROR_AUTOGRAD, call->op,
                              "self is a view, which cannot be detached in "
                              "place; use detach, which returns a new tensor");
    core__tensor_detach(self);
    return_self(self, results, nresults);
    return CORE_OK;
}
