/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The calls of operators that expressions.h consists of. */

#include "base/error.h"
#include "dispatch/dispatch.h"
#include "scope/scope.h"

#include <libcore/dispatch.h>

/* Returns the tensor of a call, owned by the innermost scope. */
static core_tensor *own_result(core__scopes *scopes, const char *where,
                               core_status status, const core_value *result)
{
    if (core__likely(status == CORE_OK && result->tag == CORE_VALUE_TENSOR))
        return core__scopes_own(scopes, where, result->u.tensor);
    if (status == CORE_OK)
        status = core__error(CORE_ERROR_INTERNAL,
                             "core_scope_call: the result is not a tensor");
    core__scopes_fail(scopes, where, status);
    return NULL;
}

core_tensor *core_scope_call(const char *where, uint32_t op,
                             const core_value *args, uint32_t nargs)
{
    core__scopes *scopes = core__scopes_ready(where);
    core_value result = {0};
    core_status status;

    if (!scopes)
        return NULL;
    status = core__likely(op < core__operator_count)
                 ? core__call(&core__operators[op], args, nargs, &result, 1)
                 : core_op_invoke(op, args, nargs, &result, 1);
    return own_result(scopes, where, status, &result);
}

static core_status call_checked(uint32_t op, const core_value *args,
                                uint32_t nargs, core_value *results,
                                uint32_t nresults)
{
    /* It reports an unknown id. */
    if (op >= core__operator_count)
        return core_op_invoke(op, args, nargs, results, nresults);
    return core_op_call(&core__operators[op], args, nargs, results, nresults);
}

core_tensor *core_scope_call_checked(const char *where, uint32_t op,
                                     const core_value *args, uint32_t nargs)
{
    core__scopes *scopes = core__scopes_ready(where);
    core_value result = {0};
    core_status status;

    if (!scopes)
        return NULL;
    status = call_checked(op, args, nargs, &result, 1);
    return own_result(scopes, where, status, &result);
}

/* Makes the innermost scope the owner of results, all of which are released if
 * that fails. */
static core_status own_results(core__scopes *scopes, const char *where,
                               core_value *results, uint32_t nresults)
{
    core_status status = CORE_OK;

    for (uint32_t i = 0; i < nresults; i++) {
        core_value *value = &results[i];

        if (status != CORE_OK)
            core_value_release(value);
        else if ((value->tag == CORE_VALUE_TENSOR &&
                  !core__scopes_own(scopes, where, value->u.tensor)) ||
                 (value->tag == CORE_VALUE_TENSOR_LIST &&
                  !core__scopes_own_list(scopes, where,
                                         (core_tensor **)value->u.tensors,
                                         value->count)))
            status = core_error_code();
    }
    for (uint32_t i = 0; i < nresults && status != CORE_OK; i++)
        results[i] = (core_value){0};
    return status;
}

core_status core_scope_call_results(const char *where, uint32_t op,
                                    const core_value *args, uint32_t nargs,
                                    core_value *results, uint32_t nresults)
{
    core__scopes *scopes = core__scopes_ready(where);
    core_status status;

    for (uint32_t i = 0; i < nresults; i++)
        results[i] = (core_value){0};
    if (!scopes)
        return core_scope_status();
    status = call_checked(op, args, nargs, results, nresults);
    if (status == CORE_OK)
        return own_results(scopes, where, results, nresults);
    core__scopes_fail(scopes, where, status);
    return status;
}
