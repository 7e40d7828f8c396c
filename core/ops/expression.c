/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Scopes of expression.h: ownership of intermediate tensors and the first
 * error. */

#include "ops/expression.h"

#include "base/thread.h"
#include "tensor/batched.h"

#include <math.h>

core_tensor *core__scope_add(core__scope *scope, core_status status)
{
    core_tensor *tensor = scope->pending;

    scope->pending = NULL;
    if (scope->status == CORE_OK && status != CORE_OK) {
        /* Later calls may fail for lack of an operand; the first message is
         * kept. */
        scope->status = status;
        core_error_detach(&scope->error);
    }
    if (!tensor)
        return NULL;
    if (scope->count == CORE__SCOPE_TENSORS) {
        core__tensor_release(tensor);
        scope->status =
            core__error(CORE_ERROR_INTERNAL,
                        "an expression needs more than %d intermediate tensors",
                        CORE__SCOPE_TENSORS);
        return NULL;
    }
    scope->tensors[scope->count++] = tensor;
    return tensor;
}

void core__scope_replace_error(core__scope *scope, core_status status)
{
    if (status == CORE_OK || status != scope->status)
        return;
    core_error_release(scope->error);
    scope->error = NULL;
    scope->status = status;
    core_error_detach(&scope->error);
}

core_status core__scope_end(core__scope *scope)
{
    while (scope->count > 0)
        core__tensor_release(scope->tensors[--scope->count]);
    if (scope->error)
        core_error_raise(scope->error);
    else if (core__unlikely(scope->status == CORE_ERROR_OUT_OF_MEMORY))
        core__error_memory(sizeof(core__error_record)); /* the record could not
                                                         * be kept */
    scope->error = NULL;
    return scope->status;
}

core_status core__scope_finish(core__scope *scope, core_tensor *result,
                               core_tensor **out)
{
    *out = NULL;
    if (scope->status == CORE_OK) {
        core__tensor_retain(result);
        *out = result;
    }
    return core__scope_end(scope);
}

/* Zeros replace a masked line before softmax as well: the gradient of softmax
 * at NaN is NaN, whatever the gradient of its result is. */
core_tensor *core__x_masked_softmax(core__scope *scope, core_tensor *scores,
                                    int64_t dim, core_dtype dtype)
{
    core_tensor *masked, *x;

    masked = core__x_eq_scalar(scope, scores, -INFINITY);
    masked = CORE__DO(scope, core_all_dim, masked, dim, true);
    x = core__x_zero_where(scope, scores, masked);
    x = CORE__DO(scope, core_softmax, x, dim, dtype);
    return core__x_zero_where(scope, x, masked);
}

static bool read(core__scope *scope, core_tensor *x, bool all)
{
    core_scalar found = core_bool(all);

    if (scope->status != CORE_OK)
        return all;
    x = core__batched_elements(x);
    x = all ? CORE__DO(scope, core_all, x) : CORE__DO(scope, core_any, x);
    CORE__RUN(scope, core_item(x, &found));
    return found.u.i != 0;
}

bool core__read_all(core__scope *scope, core_tensor *tensor)
{
    return read(scope, tensor, true);
}

bool core__read_any(core__scope *scope, core_tensor *tensor)
{
    return read(scope, tensor, false);
}

core_status core__scope_close(core__scope *scope, const core_operator *op,
                              core_status status, core_value *results,
                              uint32_t nresults)
{
    core_status first = core__scope_end(scope);

    if (status == CORE_OK)
        status = first;
    if (core__unlikely(status != CORE_OK))
        core__op_prefix_name(op);
    for (uint32_t i = 0; status != CORE_OK && i < nresults; i++)
        core_value_release(&results[i]);
    return status;
}

core_status core__scope_result(core__scope *scope, core_tensor *tensor,
                               core_value *result)
{
    if (scope->status != CORE_OK)
        return scope->status;
    core__tensor_retain(tensor);
    core__result_tensor(result, tensor);
    return CORE_OK;
}
