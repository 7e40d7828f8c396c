/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* View operators whose results are copies: name_copy copies what name returns,
 * and unsafe_split the parts of split. */

#include "base/memory.h"
#include "ops/expression.h"

#include <stdio.h>
#include <string.h>

/* The operator of that name, which returns views of the same arguments. */
static core_status views_of(const core_operator *op, const char *name,
                            const core_value *args, uint32_t nargs,
                            core_value *views)
{
    core_operator *base = core__operator_builtin(name, strlen(name));

    if (!base)
        return core__op_error(CORE_ERROR_INTERNAL, op,
                              "the view operator %s is missing", name);
    CORE_TRY(core_op_invoke_on(base, args, nargs, views, 1));
    return CORE_OK;
}

static core_status copies_of(const core_value *views, core_value *result)
{
    uint32_t count = views->count;
    core_tensor **copies;
    core_status status = CORE_OK;

    copies = core__alloc_zero((count ? count : 1) * sizeof *copies);
    if (!copies)
        return core__error_memory(count * sizeof *copies);
    for (uint32_t i = 0; status == CORE_OK && i < count; i++)
        status =
            core_clone(views->u.tensors[i], CORE_FORMAT_CONTIGUOUS, &copies[i]);
    if (status != CORE_OK) {
        core_tensors_release(copies, count);
        return status;
    }
    *result = (core_value){CORE_VALUE_TENSOR_LIST, count, {.tensors = copies}};
    return CORE_OK;
}

static core_status copied(const core_operator *op, const char *name,
                          const core_value *args, uint32_t nargs,
                          core_value *result)
{
    core_value views = {0};
    core_tensor *copy = NULL;
    core_status status = views_of(op, name, args, nargs, &views);

    if (status == CORE_OK && views.tag == CORE_VALUE_TENSOR_LIST) {
        status = copies_of(&views, result);
    } else if (status == CORE_OK) {
        status = core_clone(views.u.tensor, CORE_FORMAT_CONTIGUOUS, &copy);
        if (status == CORE_OK)
            core__result_tensor(result, copy);
    }
    core_value_release(&views);
    if (status != CORE_OK)
        core__op_prefix_name(op);
    return status;
}

/* diagonal_copy, squeeze_copy.dim, split_with_sizes_copy and their like */
CORE__OP(view_copied)
{
    const char *name = call->op->data->name;
    const char *mark = strstr(name, "_copy");
    char base[64];

    if (!mark)
        return core__op_error(CORE_ERROR_INTERNAL, call->op,
                              "the name has no part \"_copy\"");
    snprintf(base, sizeof base, "%.*s%s", (int)(mark - name), name,
             mark + strlen("_copy"));
    return copied(call->op, base, args, nargs, &results[0]);
}

/* The parts may be changed in place although self is not changed by that, so
 * they are copies. */
CORE__OP(unsafe_split)
{
    return copied(call->op, "split.Tensor", args, nargs, &results[0]);
}
