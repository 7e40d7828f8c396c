/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Gradients of linear: input (*, in), weight (out, in) or (in), result (*, out)
 * or (*). */

#include "autograd/formulas/formulas.h"

#include "ops/expression.h"

core_status core__formula_linear_input(core_tensor *grad, core_tensor *weight,
                                       core_tensor **out)
{
    core__scope scope;

    if (grad->ndim == 2 && weight->ndim == 2)
        return core_mm(grad, weight, out);
    if (weight->ndim == 2)
        return core_matmul(grad, weight, out);
    core__scope_begin(&scope);
    return core__scope_finish(
        &scope,
        core__x_mul(&scope, core__x_unsqueeze(&scope, grad, -1), weight), out);
}

/* x as rows of `width` elements. */
static core_tensor *rows(core__scope *scope, core_tensor *x, int64_t width)
{
    int64_t sizes[] = {1, width}; /* -1 would be ambiguous if width is 0 */

    for (uint32_t i = 0; i + 1 < x->ndim; i++)
        sizes[0] *= x->sizes[i];
    return x->ndim == 2 || scope->status != CORE_OK
               ? x
               : CORE__DO(scope, core_reshape, x, sizes, 2);
}

core_status core__formula_linear_weight(core_tensor *grad, core_tensor *input,
                                        int64_t ndim, core_tensor **out)
{
    int64_t width = input->sizes[input->ndim - 1];
    core_tensor *given;
    core_tensor *result;
    core__scope scope;

    core__scope_begin(&scope);
    if (ndim == 2) {
        given = rows(&scope, grad, grad->sizes[grad->ndim - 1]);
        result = core__x_mm(&scope, core__x_t(&scope, given),
                            rows(&scope, input, width));
    } else {
        int64_t all = -1;

        given = CORE__DO(&scope, core_reshape, grad, &all, 1);
        result = CORE__DO(&scope, core_mv,
                          core__x_t(&scope, rows(&scope, input, width)), given);
    }
    return core__scope_finish(&scope, result, out);
}
