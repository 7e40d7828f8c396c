/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Calls a compiled function again, to differentiate it. */

#include "compile/compiled/repeated_call.h"

#include "autocast/autocast.h"
#include "autograd/api/partial_gradients.h"
#include "base/callback.h"
#include "base/memory.h"
#include "tensor/batched.h"

#include <string.h>

/* -------------------------------------------------------------- the state -- */

static void repeated_free(core__repeated_call *call)
{
    if (!call)
        return;
    for (uint32_t i = 0; i < call->count; i++)
        core__tensor_release(call->inputs[i]);
    core__free(call);
}

void core__call_state_free(void *context)
{
    core__call_state *state = context;

    if (!state)
        return;
    repeated_free(atomic_load(&state->repeated));
    for (uint32_t i = 0; i < state->ninputs; i++)
        core__saved_release(&state->inputs[i]);
    core__entry_release(state->entry);
    core__compiled_drop(state->compiled);
    core__free(state->random);
    core__free(state);
}

/* An alias: see save_input in checkpoint.c. */
static core_status save_input(core__saved *saved, core_tensor *input)
{
    core_tensor *alias;
    core_status status;

    if (core__tensor_needs_grad(input))
        return core__saved_tensor(saved, input, NULL);
    CORE_TRY(core__tensor_shallow_copy(input, &alias));
    status = core__saved_tensor(saved, input, alias);
    core__tensor_release(alias);
    return status;
}

core_status core__call_state_new(core_compiled *compiled,
                                 core__compiled_entry *entry, size_t ninputs,
                                 core__call_state **out_state)
{
    const core__thread *self = core__thread_self();
    const core_program *program = entry->program;
    size_t size = sizeof **out_state + ninputs * sizeof(core__saved) +
                  program->nhidden * sizeof(uint32_t);
    core__call_state *state = core__alloc_zero(size);

    *out_state = state;
    if (!state)
        return core__error_memory(size);
    state->compiled = core__compiled_hold(compiled);
    (void)core__entry_retain(entry);
    state->entry = entry;
    state->modes = core__thread_modes_get(self);
    state->versions = (uint32_t *)(void *)(state->inputs + ninputs);
    if (!entry->training->random)
        return CORE_OK;
    state->random = core__alloc(sizeof *state->random);
    if (!state->random)
        return core__error_memory(sizeof *state->random);
    core__generators_save(state->random);
    return CORE_OK;
}

/* After the call, which may have written some of them. */
core_status core__call_state_tensors(core__call_state *state,
                                     core_tensor *const *inputs, size_t ninputs)
{
    const core_program *program = state->entry->program;

    for (; state->ninputs < ninputs; state->ninputs++)
        CORE_TRY(
            save_input(&state->inputs[state->ninputs], inputs[state->ninputs]));
    for (uint32_t i = 0; i < program->nhidden; i++)
        state->versions[i] = core__content_version(program->hidden[i].tensor);
    return CORE_OK;
}

/* --------------------------------------------------- calling it again -- */

static core_status __attribute__((cold))
cannot_repeat(core_status code, const char *why)
{
    return core__error(
        code,
        "the function must be called again, because a derivative of its "
        "gradients or a set of gradients is asked for that was not recorded; "
        "but %s",
        why);
}

static core_status check_repeatable(const core__call_state *state)
{
    const core_program *program = state->entry->program;

    if (program->nwrites)
        return cannot_repeat(CORE_ERROR_UNSUPPORTED,
                             "it writes tensors, which would change twice");
    for (uint32_t i = 0; i < program->nhidden; i++)
        if (core__content_version(program->hidden[i].tensor) !=
            state->versions[i])
            return cannot_repeat(CORE_ERROR_VERSION,
                                 "a tensor that it uses was changed in place "
                                 "since the call");
    return CORE_OK;
}

/* The inputs of the call, with their history. */
static core_status restore_inputs(core_node *node, core__call_state *state,
                                  core_tensor **inputs)
{
    for (uint32_t i = 0; i < state->ninputs; i++) {
        core_value value = {0};
        core_status status;

        core__byte_lock(&node->lock);
        status =
            core__saved_unpack_named(node->name, &state->inputs[i], &value);
        if (status == CORE_OK)
            inputs[i] = core_tensor_retain(value.u.tensor);
        core__byte_unlock(&node->lock);
        CORE_TRY(status);
    }
    return CORE_OK;
}

/* Calls the function in the state of the first call, but with the modes of the
 * backward. */
static core_status call_again(const core__call_state *state,
                              core_tensor *const *inputs, core_tensor **outputs)
{
    core__thread *self = core__thread_self();
    const core_compiled *compiled = state->compiled;
    uint32_t errors = core__error_sequence();
    size_t noutputs = state->entry->training->described.noutputs;
    size_t count = noutputs;
    core__thread_modes was = core__thread_modes_get(self);
    core__thread_modes then = core__thread_modes_again(&state->modes, &was);
    uint64_t region = core__autocast_mark(self);
    core__generators random;
    core_status status;

    if (state->random) {
        core__generators_save(&random);
        core__generators_restore(state->random, true);
    }
    core__thread_modes_set(self, &then);
    status = compiled->function(compiled->context, inputs, state->ninputs,
                                outputs, &count);
    core__autocast_unwind(self, region);
    core__thread_modes_set(self, &was);
    if (state->random)
        core__generators_restore(&random, false);
    status = core__callback_status(errors, status, NULL);
    if (status == CORE_OK && count != noutputs)
        status = cannot_repeat(CORE_ERROR_AUTOGRAD,
                               "it returns another number of outputs now");
    return status;
}

/* The roots of the new outputs that have a gradient, and those gradients. */
static core_status find_roots(const core__joint *d, core_tensor *const *outputs,
                              core_tensor *const *grads, core_tensor **roots,
                              core_tensor **seeds, size_t *out_count)
{
    *out_count = 0;
    for (uint32_t i = 0; i < d->nroots; i++) {
        core_tensor *output = outputs[d->root_outputs[i]];

        if (!grads[i])
            continue;
        if (!output || !core__tensor_needs_grad(output))
            return cannot_repeat(CORE_ERROR_AUTOGRAD,
                                 "an output does not require grad now");
        roots[*out_count] = d->outputs[d->root_outputs[i]].nsteps ||
                                    d->outputs[d->root_outputs[i]].alias
                                ? core__joint_root_of(output)
                                : output;
        seeds[(*out_count)++] = grads[i];
    }
    return CORE_OK;
}

/* The part of the graph of a call that is made again: the roots with gradients,
 * these gradients, and the sources. */
typedef struct graph_part {
    core_tensor **roots, **seeds, **sources;
    size_t count, nsources;
} graph_part;

static core_status find_part(const core__call_state *state,
                             const core__repeated_call *call,
                             core_tensor *const *grads, graph_part *out_part)
{
    const core__joint *d = &state->entry->training->described;
    size_t count = 2 * (size_t)d->nroots + d->nsources;
    core_tensor **roots = core__alloc((count + 1) * sizeof *roots);

    *out_part = (graph_part){.roots = roots, .nsources = d->nsources};
    if (!roots)
        return core__error_memory(count * sizeof *roots);
    out_part->seeds = roots + d->nroots;
    out_part->sources = out_part->seeds + d->nroots;
    for (uint32_t i = 0; i < d->nsources; i++)
        out_part->sources[i] = d->sources[i].tensor
                                   ? d->sources[i].tensor
                                   : call->inputs[d->sources[i].input];
    return find_roots(d, call->outputs, grads, roots, out_part->seeds,
                      &out_part->count);
}

/* gradients: by source. */
static core_status differentiate(const core__call_state *state,
                                 const core__repeated_call *call, bool retain,
                                 core_tensor *const *grads,
                                 core_tensor **gradients)
{
    graph_part part;
    core_status status = find_part(state, call, grads, &part);

    if (status == CORE_OK)
        status = core__partial_gradients(
            part.roots, part.seeds, part.count, part.sources, part.nsources,
            retain, !core__thread_self()->no_grad, gradients);
    core__free(part.roots);
    return status;
}

static core_status repeat(core_node *node, core__call_state *state,
                          core__repeated_call **out_call)
{
    size_t noutputs = state->entry->training->described.noutputs;
    size_t count = state->ninputs + noutputs;
    size_t size = sizeof **out_call + count * sizeof(core_tensor *);
    core__repeated_call *call = core__alloc_zero(size);
    core_status status;

    *out_call = call;
    if (!call)
        return core__error_memory(size);
    call->count = (uint32_t)count;
    call->outputs = call->inputs + state->ninputs;
    CORE_TRY(check_repeatable(state));
    CORE_TRY(restore_inputs(node, state, call->inputs));
    if (!core__compiled_retain_used(state->compiled))
        return cannot_repeat(CORE_ERROR_AUTOGRAD,
                             "the compiled function was released");
    atomic_fetch_add_explicit(&state->entry->training->repeated_calls, 1,
                              memory_order_relaxed);
    status = call_again(state, call->inputs, call->outputs);
    core_compiled_release(state->compiled);
    return status;
}

/* Of two threads, one keeps its graph. */
static core_status repeat_and_differentiate(core_node *node,
                                            core__call_state *state,
                                            core_tensor *const *grads,
                                            bool keeps, core_tensor **gradients)
{
    bool retain = !core__thread_self()->no_grad;
    core__repeated_call *call, *before = NULL;
    core_status status = repeat(node, state, &call);

    if (status == CORE_OK)
        status = differentiate(state, call, retain, grads, gradients);
    if (status != CORE_OK || !keeps ||
        !atomic_compare_exchange_strong(&state->repeated, &before, call))
        repeated_free(call);
    return status;
}

core_status core__call_differentiate(core_node *node, core__call_state *state,
                                     core_tensor *const *grads, bool keeps,
                                     core_tensor **gradients)
{
    const core__repeated_call *call = atomic_load(&state->repeated);

    if (call && keeps)
        return differentiate(state, call, true, grads, gradients);
    return repeat_and_differentiate(node, state, grads, keeps, gradients);
}

core_status core__call_check_graph(const core__call_state *state,
                                   core_tensor *const *grads)
{
    const core__repeated_call *call = atomic_load(&state->repeated);
    graph_part part;
    core_status status;

    if (!call)
        return CORE_OK;
    status = find_part(state, call, grads, &part);
    if (status == CORE_OK)
        status = core__partial_gradients_check_saved(
            part.roots, part.count, part.sources, part.nsources);
    core__free(part.roots);
    return status;
}

core_status core__call_release_graph(const core__call_state *state,
                                     core_tensor *const *grads)
{
    const core__repeated_call *call = atomic_load(&state->repeated);
    graph_part part;
    core_status status;

    if (!call || core__backward_retains())
        return CORE_OK;
    status = find_part(state, call, grads, &part);
    if (status == CORE_OK)
        status = core__partial_gradients_release_saved(
            part.roots, part.count, part.sources, part.nsources);
    core__free(part.roots);
    return status;
}
