/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* core_cond and core_while (libcore/control_flow.h). */

#include "compile/control_flow/region_calls.h"

#include "compile/control_flow/batched_region.h"

#include "base/memory.h"
#include "base/thread.h"

#include <libcore/control_flow.h>

static core_status check_tensors(const char *name, core_tensor *const *inputs,
                                 size_t ninputs)
{
    for (size_t i = 0; i < ninputs; i++)
        if (!inputs[i])
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "%s: input %zu is NULL", name, i);
    return CORE_OK;
}

/* Autograd inside of core_vmap sees operators if that is possible: both functions
 * are called, and the predicate selects.  One that draws random numbers would draw
 * more than outside of a program, so the branch is one node. */
static core_status record_in_vmap(const core__region *branches,
                                  core_tensor *predicate, core_tensor **outputs)
{
    core__trace *trace = core__thread_self()->trace;
    core_error *error = NULL;
    bool inside = false;
    core_status status =
        core__batched_branch(branches, predicate, outputs, &inside);
    uint64_t blocks;

    if (status == CORE_OK || !inside)
        return status;
    core_error_detach(&error);
    blocks = core__region_blocks(trace->program);
    status = core__region_call_both(branches, predicate, outputs);
    if (status == CORE_OK && core__region_blocks(trace->program) != blocks) {
        core__region_release_all(outputs, branches->noutputs);
        return core_error_raise(error);
    }
    core_error_release(error);
    return status;
}

core_status core__region_branch(const core__region *branches,
                                core_tensor *predicate, core_tensor *state,
                                core_tensor **outputs)
{
    for (size_t i = 0; i < branches->noutputs; i++)
        outputs[i] = NULL;
    return core__region_record(branches, predicate, state, outputs, NULL);
}

core_status core_cond(core_tensor *predicate,
                      core_tensor_function then_function,
                      core_tensor_function else_function, void *context,
                      core_tensor *const *inputs, size_t ninputs,
                      core_tensor **outputs, size_t noutputs)
{
    core__region branches[2] = {
        {CORE__COND_NAME, "then_function", then_function, context, inputs,
         ninputs, noutputs, false, false},
        {CORE__COND_NAME, "else_function", else_function, context, inputs,
         ninputs, noutputs, false, false}};
    bool chosen;

    if (noutputs > 0)
        CORE__NOT_NULL(outputs);
    for (size_t i = 0; i < noutputs; i++)
        outputs[i] = NULL;
    CORE__NOT_NULL(predicate);
    CORE__NOT_NULL(then_function);
    CORE__NOT_NULL(else_function);
    if (ninputs > 0)
        CORE__NOT_NULL(inputs);
    CORE_TRY(check_tensors(CORE__COND_NAME, inputs, ninputs));
    CORE_TRY(
        core__region_check_predicate(CORE__COND_NAME, "predicate", predicate));
    if (core__region_is_mapped(predicate))
        return core__region_call_both(branches, predicate, outputs);
    if (core__region_is_recording())
        return core__thread_self()->batching
                   ? record_in_vmap(branches, predicate, outputs)
                   : core__region_record(branches, predicate, NULL, outputs,
                                         NULL);
    CORE_TRY(core__region_read_predicate(predicate, &chosen));
    return core__region_call(&branches[chosen ? 0 : 1], inputs, outputs);
}

core_status core_while(core_tensor_function condition,
                       core_tensor_function body, void *context,
                       core_tensor *const *inputs, size_t ninputs,
                       core_tensor **outputs)
{
    const core__region functions[2] = {{CORE__WHILE_NAME, "condition",
                                        condition, context, inputs, ninputs, 1,
                                        true, true},
                                       {CORE__WHILE_NAME, "body", body, context,
                                        inputs, ninputs, ninputs, true, false}};
    core_status status;
    bool more = true;

    if (ninputs > 0)
        CORE__NOT_NULL(outputs);
    for (size_t i = 0; i < ninputs; i++)
        outputs[i] = NULL;
    CORE__NOT_NULL(condition);
    CORE__NOT_NULL(body);
    if (ninputs > 0)
        CORE__NOT_NULL(inputs);
    CORE_TRY(check_tensors(CORE__WHILE_NAME, inputs, ninputs));
    if (core__region_is_recording())
        return core__thread_self()->batching
                   ? core__batched_loop(functions, outputs)
                   : core__region_record(functions, NULL, NULL, outputs, NULL);
    status = core__region_loop_begin(inputs, ninputs, outputs);
    while (status == CORE_OK && more) {
        status = core__region_loop_decide(&functions[0], outputs, &more);
        if (status == CORE_OK && more)
            status = core__region_loop_step(&functions[1], outputs);
    }
    for (size_t i = 0; i < ninputs && status == CORE_OK; i++)
        status = core__region_make_own(&outputs[i]);
    if (status != CORE_OK)
        core__region_release_all(outputs, ninputs);
    return status;
}
