/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Records the function of a compiled function, and refuses what a run of the
 * program could not do as the function does it. */

#include "compile/compiled/compiled_node.h"

#include "autograd/graph/autograd_meta.h"
#include "base/memory.h"
#include "base/text.h"
#include "compile/compiled/freeze.h"
#include "compile/compiled/graph_break.h"
#include "compile/fusion/fusion.h"
#include "compile/passes/simplify.h"

#include <libcore/autograd.h>

typedef struct traced_function {
    const core_compiled *compiled;
    core_tensor *const *inputs;
    size_t noutputs;
    core__break_place *place;
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

/* ---------------------------------------------------------------- hooks -- */

static core_status refuse_hook(void *context, core_tensor *grad,
                               core_tensor **out_grad)
{
    (void)context;
    (void)grad;
    (void)out_grad;
    return core__error(CORE_ERROR_UNSUPPORTED,
                       "an input has hooks, which the backward in the function "
                       "calls each time");
}

/* The hooks of inputs run when a backward outside of the function reaches them.
 * One inside must call the function for that. */
static core_status refuse_hooks(core_tensor *const *stand_ins,
                                core_tensor *const *inputs, size_t ninputs,
                                core_hook **hooks)
{
    for (size_t i = 0; i < ninputs; i++)
        if (core__has_hooks(inputs[i]) &&
            core__tensor_requires_grad(stand_ins[i]))
            CORE_TRY(core_tensor_register_hook(stand_ins[i], refuse_hook, NULL,
                                               NULL, &hooks[i]));
    return CORE_OK;
}

static core_status call_with_hooks(const traced_function *traced,
                                   core_tensor *const *inputs, size_t ninputs,
                                   core_tensor **outputs, size_t *noutputs)
{
    const core_compiled *compiled = traced->compiled;
    size_t size = (ninputs + 1) * sizeof(core_hook *);
    core_hook **hooks = core__alloc_zero(size);
    core_status status = hooks ? CORE_OK : core__error_memory(size);

    if (status == CORE_OK)
        status = refuse_hooks(inputs, traced->inputs, ninputs, hooks);
    if (status == CORE_OK)
        status = compiled->function(compiled->context, inputs, ninputs, outputs,
                                    noutputs);
    for (size_t i = 0; hooks && i < ninputs; i++)
        if (hooks[i])
            core_hook_remove(hooks[i]);
    core__free(hooks);
    return status;
}

/* -------------------------------------------------------------- function -- */

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

static core_status check_function(const traced_function *traced,
                                  core_tensor *const *inputs, size_t ninputs,
                                  size_t noutputs)
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
    return check_history(inputs, traced->inputs, ninputs);
}

/* The function that core_program_trace records: calls that of the compiled
 * function, and checks what it did. */
static core_status call_function(void *context, core_tensor *const *inputs,
                                 size_t ninputs, core_tensor **outputs,
                                 size_t *noutputs)
{
    const traced_function *traced = context;
    core_status status;
    size_t input = 0;
    bool same;

    CORE_TRY(lend_gradients(inputs, traced->inputs, ninputs));
    core_error_clear(); /* of what came before */
    status = call_with_hooks(traced, inputs, ninputs, outputs, noutputs);
    core__break_find(status, traced->place);
    if (status == CORE_OK)
        status = check_function(traced, inputs, ninputs, *noutputs);
    same = take_gradients(inputs, traced->inputs, ninputs, &input);
    if (status == CORE_OK && !same)
        status = core__error(CORE_ERROR_UNSUPPORTED,
                             "the function gives input %zu a new gradient; "
                             "allocate the gradient before the call",
                             input);
    return status;
}

/* True for a tensor that the program still refers to: those that the function
 * made itself are gone. */
static bool refers_to(const core_program *program, const core_tensor *tensor)
{
    bool found = false;

    for (uint32_t i = 0; i < program->nhidden; i++)
        found = found || program->hidden[i].tensor == tensor;
    for (uint32_t i = 0; i < program->nknown; i++)
        found = found || program->known[i].tensor == tensor;
    for (uint32_t i = 0; i < program->naliases; i++)
        found = found || program->aliases[i] == tensor;
    return found;
}

static core_status check_sources(const core_program *program,
                                 const core__joint *joint)
{
    for (uint32_t i = 0; i < joint->nsources; i++)
        if (joint->sources[i].tensor &&
            !refers_to(program, joint->sources[i].tensor))
            return core__error(CORE_ERROR_UNSUPPORTED,
                               "the function makes a tensor that requires grad "
                               "from one that is not an input, which cannot be "
                               "compiled");
    return CORE_OK;
}

core_status core__compiled_trace(const core_compiled *compiled,
                                 core_tensor *const *inputs, size_t ninputs,
                                 size_t noutputs, core_program **out_program,
                                 core__training **out_training,
                                 core__break_place *out_place)
{
    traced_function traced = {compiled, inputs, noutputs, out_place};
    core_program *joint;
    core__joint described;
    core_status status;

    *out_program = NULL;
    *out_training = NULL;
    out_place->text[0] = '\0';
    CORE_TRY(core__joint_trace(call_function, &traced, inputs, ninputs,
                               noutputs, &described, &joint));
    joint->codegen = (uint8_t)compiled->options.codegen;
    joint->reorders = compiled->options.flags & CORE_COMPILE_REORDER_SUMS;
    if (compiled->options.mode == CORE_COMPILE_MAX_AUTOTUNE &&
        joint->codegen == CORE_COMPILE_CODEGEN_AUTO)
        joint->codegen = CORE__CODEGEN_MEASURED;
    status = check_sources(joint, &described);
    if (status == CORE_OK)
        status = core__program_simplify(joint);
    if (status != CORE_OK) {
        core_program_release(joint);
        return status;
    }
    if (described.nroots || described.views)
        return core__training_new(joint, &described,
                                  compiled->options.recompute_budget,
                                  out_program, out_training);
    if (compiled->options.flags & CORE_COMPILE_FREEZE)
        status = core__program_freeze(joint);
    if (status != CORE_OK) {
        core_program_release(joint);
        return status;
    }
    joint->recomputes = compiled->options.recompute_budget != UINT64_MAX;
    *out_program = joint;
    return CORE_OK;
}
