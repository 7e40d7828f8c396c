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
    const core_value *args;
    uint32_t nargs;
    bool displaced_ran; /* with the same arguments, and succeeded */
    struct core__running_function *outer;
} core__running_function;

static _Thread_local core__running_function *innermost;

static core_status run(core_call *call, const core_value *args, uint32_t nargs,
                       core_value *results, uint32_t nresults,
                       bool *out_displaced_ran)
{
    const core__registration *registration = call->user;
    core__running_function frame = {registration, call->keys, args,
                                    nargs,        false,      innermost};
    core_status status;
    core_call own; /* the given one is shared */

    innermost = &frame;
    memcpy(&own, call, CORE__FUNCTION_CALL_SIZE);
    own.user = registration->own.user;
    status = registration->own.function(&own, args, nargs, results, nresults);
    innermost = frame.outer;
    *out_displaced_ran = frame.displaced_ran;
    return status;
}

core_status core__run_registered(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults)
{
    bool displaced_ran;

    return run(call, args, nargs, results, nresults, &displaced_ran);
}

core_status core__run_registered_change(core_call *call, const core_value *args,
                                        uint32_t nargs, core_value *results,
                                        uint32_t nresults)
{
    bool displaced_ran;

    CORE_TRY(core__dispatch_upcalls.check_changes(call->op, args, nargs));
    CORE_TRY(run(call, args, nargs, results, nresults, &displaced_ran));
    if (!displaced_ran) /* it has counted them */
        core__dispatch_upcalls.count_changes(call->op, args, nargs);
    return CORE_OK;
}

/* The function that received the call. */
static core__running_function *receiver(const core_call *call)
{
    core__running_function *frame = innermost;

    return frame && frame->registration->op == call->op &&
                   frame->keys == call->keys
               ? frame
               : NULL;
}

core_status core_redispatch_displaced(core_call *call, const core_value *args,
                                      uint32_t nargs, core_value *results,
                                      uint32_t nresults)
{
    core__running_function *frame;
    core__entry displaced;
    core_status status;
    core_call own;

    CORE__NOT_NULL(call);
    frame = receiver(call);
    if (!frame)
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "core_redispatch_displaced: this thread does not run a registered "
            "function that has received the call of %s and displaced another "
            "one",
            call->op ? core_op_name(call->op) : "no operator");
    core__registry_lock();
    displaced =
        core__table_displaced(frame->registration, core__keys_slot(call->keys));
    core__registry_unlock();
    if (!displaced.function)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_redispatch_displaced: the function of %s has "
                           "displaced nothing",
                           core_op_name(call->op));
    memcpy(&own, call, CORE__FUNCTION_CALL_SIZE);
    own.user = displaced.user;
    status = displaced.function(&own, args, nargs, results, nresults);
    if (status == CORE_OK && nargs == frame->nargs &&
        (args == frame->args ||
         memcmp(args, frame->args, nargs * sizeof *args) == 0))
        frame->displaced_ran = true;
    return status;
}
