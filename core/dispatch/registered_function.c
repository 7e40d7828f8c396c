/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Functions that are registered under a key for which the core, or an older
 * registration, has one: how they run, and how they call what they displaced. */

#include "dispatch/dispatch.h"
#include "dispatch/registry.h"
#include "dispatch/table.h"
#include "dispatch/upcalls.h"

#include <libcore/dispatch.h>

#include <string.h>

/* A function that this thread runs. */
typedef struct core__running_function {
    const core__registration *registration;
    uint64_t keys; /* of its call */
    struct core__running_function *outer;
} core__running_function;

static _Thread_local core__running_function *innermost;

core_status core__run_registered(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults)
{
    const core__registration *registration = call->user;
    core__running_function frame = {registration, call->keys, innermost};
    core_status status;
    core_call own; /* the given one is shared */

    innermost = &frame;
    memcpy(&own, call, CORE__FUNCTION_CALL_SIZE);
    own.user = registration->own.user;
    status = registration->own.function(&own, args, nargs, results, nresults);
    innermost = frame.outer;
    return status;
}

core_status core__run_registered_change(core_call *call, const core_value *args,
                                        uint32_t nargs, core_value *results,
                                        uint32_t nresults)
{
    CORE_TRY(core__dispatch_upcalls.check_changes(call->op, args, nargs));
    CORE_TRY(core__run_registered(call, args, nargs, results, nresults));
    core__dispatch_upcalls.count_changes(call->op, args, nargs);
    return CORE_OK;
}

/* The function that received the call. */
static const core__registration *receiver(const core_call *call)
{
    const core__running_function *frame = innermost;

    return frame && frame->registration->op == call->op &&
                   frame->keys == call->keys
               ? frame->registration
               : NULL;
}

core_status core_redispatch_displaced(core_call *call, const core_value *args,
                                      uint32_t nargs, core_value *results,
                                      uint32_t nresults)
{
    const core__registration *registration;
    core__entry displaced;
    core_call own;

    CORE__NOT_NULL(call);
    registration = receiver(call);
    if (!registration)
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "core_redispatch_displaced: the call of %s was not received by a "
            "function of core_function_register that displaces another one",
            core_op_name(call->op));
    core__registry_lock();
    displaced =
        core__table_displaced(registration, core__keys_slot(call->keys));
    core__registry_unlock();
    memcpy(&own, call, CORE__FUNCTION_CALL_SIZE);
    own.user = displaced.user;
    return displaced.function(&own, args, nargs, results, nresults);
}
