/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The mode that replaces one operator by a function. */

#include "base/error.h"
#include "base/memory.h"
#include "dispatch/mode_stack.h"

typedef struct replacement {
    const core_operator *op;
    core_function function;
    void *user;
} replacement;

static core_status replace(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    const replacement *replacement = call->user;

    if (call->op != replacement->op)
        return core_redispatch_below(call, args, nargs, results, nresults);
    call->user = replacement->user; /* a mode's call is its own */
    return replacement->function(call, args, nargs, results, nresults);
}

core_status core_mode_push_replacement(uint32_t level,
                                       const char *operator_name,
                                       core_function function, void *user,
                                       core_mode **out_mode)
{
    replacement *own;
    core_operator *op;

    CORE__NOT_NULL(out_mode);
    *out_mode = NULL;
    CORE__NOT_NULL(operator_name);
    CORE__NOT_NULL(function);
    CORE_TRY(core_op_find(operator_name, &op));
    own = core__alloc(sizeof *own);
    if (!own)
        return core__error_memory(sizeof *own);
    *own = (replacement){op, function, user};
    return core__mode_push(__func__, level, replace, own, core__free, out_mode);
}
