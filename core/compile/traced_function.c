/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Records the function of a compiled function, and refuses what a run of the
 * program could not do as the function does it. */

#include "compile/compiled.h"

#include "autograd/graph/autograd_meta.h"
#include "base/text.h"
#include "compile/simplify.h"

#include <libcore/autograd.h>

typedef struct traced_function {
    const core_compiled *compiled;
    core_tensor *const *inputs;
    size_t noutputs;
} traced_function;

/* The function sees the gradients of its inputs. */
static core_status lend_gradients(core_tensor *const *stand_ins,
                                  core_tensor *const *inputs, size_t ninputs)
{
    for (size_t i = 0; i < ninputs; i++) {
        core_tensor *grad = core_tensor_grad(inputs[i]);

        if (grad && core__tensor_requires_grad(stand_ins[i]))
            CORE_TRY(core_tensor_set_grad(stand_ins[i], grad));
    }
    return CORE_OK;
}

/* Takes them back.  False: the function has replaced one, *out_input. */
static bool take_gradients(core_tensor *const *stand_ins,
                           core_tensor *const *inputs, size_t ninputs,
                           size_t *out_input)
{
    bool same = true;

    for (size_t i = 0; i < ninputs; i++) {
        core_tensor *grad = core__tensor_requires_grad(stand_ins[i])
                                ? core_tensor_grad(inputs[i])
                                : NULL;

        if (core_tensor_grad(stand_ins[i]) == grad)
            continue;
        same = false;
        *out_input = i;
    }
    for (size_t i = 0; i < ninputs; i++)
        if (core_tensor_grad(stand_ins[i]))
            (void)core_tensor_set_grad(stand_ins[i], NULL);
    return same;
}

static core_status check_history(core_tensor *const *stand_ins,
                                 core_tensor *const *inputs, size_t ninputs)
{
    for (size_t i = 0; i < ninputs; i++)
        if (core__tensor_requires_grad(stand_ins[i]) !=
                core__tensor_requires_grad(inputs[i]) ||
            !core__tensor_is_leaf(stand_ins[i]))
            return core__error(
                CORE_ERROR_UNSUPPORTED,
                "the function changes input %zu in place, or requires_grad of "
                "it, in a way that autograd records",
                i);
    return CORE_OK;
}

static core_status check_outputs(core_tensor *const *stand_ins, size_t ninputs,
                                 core_tensor *const *outputs, size_t noutputs)
{
    for (size_t i = 0; i < noutputs; i++) {
        bool own = outputs[i] && outputs[i]->flags & CORE__TENSOR_TRACED;

        for (size_t k = 0; k < ninputs && own; k++)
            own = stand_ins[k] != outputs[i];
        if (own && core__tensor_needs_grad(outputs[i]))
            return core__error(
                CORE_ERROR_UNSUPPORTED,
                "output %zu requires grad; a backward through a compiled "
                "function is not supported in this version",
                i);
    }
    return CORE_OK;
}

static core_status check_function(const traced_function *traced,
                                  core_tensor *const *inputs, size_t ninputs,
                                  core_tensor *const *outputs, size_t noutputs)
{
    char message[256];

    if (core_error_code() != CORE_OK) {
        core__format(message, sizeof message, "%s", core_error_message());
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "%s (the function continues after this error)",
                           message);
    }
    if (noutputs != traced->noutputs)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_compiled_call: the function returned %zu "
                           "outputs; the call has space for %zu",
                           noutputs, traced->noutputs);
    CORE_TRY(check_history(inputs, traced->inputs, ninputs));
    return check_outputs(inputs, ninputs, outputs, noutputs);
}

/* The function that core_program_trace records: calls that of the compiled
 * function, and checks what it did. */
static core_status call_function(void *context, core_tensor *const *inputs,
                                 size_t ninputs, core_tensor **outputs,
                                 size_t *noutputs)
{
    const traced_function *traced = context;
    const core_compiled *compiled = traced->compiled;
    core_status status;
    size_t input = 0;
    bool same;

    CORE_TRY(lend_gradients(inputs, traced->inputs, ninputs));
    core_error_clear(); /* of what came before */
    status = compiled->function(compiled->context, inputs, ninputs, outputs,
                                noutputs);
    if (status == CORE_OK)
        status = check_function(traced, inputs, ninputs, outputs, *noutputs);
    same = take_gradients(inputs, traced->inputs, ninputs, &input);
    if (status == CORE_OK && !same)
        status = core__error(CORE_ERROR_UNSUPPORTED,
                             "the function gives input %zu a new gradient; "
                             "allocate the gradient before the call",
                             input);
    return status;
}

core_status core__compiled_trace(const core_compiled *compiled,
                                 core_tensor *const *inputs, size_t ninputs,
                                 size_t noutputs, core_program **out_program)
{
    traced_function traced = {compiled, inputs, noutputs};
    core_status status;

    CORE_TRY(core_program_trace(call_function, &traced, inputs, ninputs,
                                noutputs, out_program));
    status = core__program_simplify(*out_program);
    if (status != CORE_OK) {
        core_program_release(*out_program);
        *out_program = NULL;
    }
    return status;
}
