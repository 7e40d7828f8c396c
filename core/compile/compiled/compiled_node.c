/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Calls of compiled functions whose results require grad, and their
 * backward. */

#include "compile/compiled/compiled_node.h"
#include "compile/compiled/repeated_call.h"
#include "compile/prepare/prepared.h"

#include "base/memory.h"
#include "base/text.h"
#include "dispatch/operator.h"
#include "ops_ids.h"

#include <libcore/autograd.h>
#include <libcore/ops.h>

#include <string.h>

/* ------------------------------------------------------------- programs -- */

static void backward_free(core__backward *backward)
{
    if (backward)
        core_program_release(backward->program);
    core__free(backward);
}

/* Makes the program of a mask; other threads may do so at the same time. */
static core_status make_backward(core__training *t, uint32_t mask,
                                 core__backward **out_backward)
{
    core__backward *made = core__alloc_zero(sizeof *made), *before = NULL;
    core_status status;

    if (!made)
        return core__error_memory(sizeof *made);
    status =
        core__backward_make(t->joint, &t->described, &t->partition, mask, made);
    if (status != CORE_OK) {
        core__free(made);
        return status;
    }
    if (atomic_compare_exchange_strong(&t->backwards[mask], &before, made)) {
        *out_backward = made;
    } else {
        *out_backward = before;
        backward_free(made);
    }
    return CORE_OK;
}

static core_status find_backward(core__training *t, uint32_t mask,
                                 core__backward **out_backward)
{
    *out_backward = atomic_load(&t->backwards[mask]);
    return *out_backward ? CORE_OK : make_backward(t, mask, out_backward);
}

/* Nodes of the function that are in the backward, too; views cost nothing. */
static uint32_t count_recomputed(const core_program *backward)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < backward->nnodes; i++) {
        const core__program_node *node = &backward->nodes[i];

        count += !node->backward && node->op &&
                 !core__operator_is_view(node->op) &&
                 node->op->id != CORE_OP_CLONE;
    }
    return count;
}

/* The partition changes what outputs and roots refer to. */
static core_status keep_recorded(core__training *t)
{
    core__joint *d = &t->described;
    size_t outputs = d->noutputs * sizeof *d->outputs;
    size_t roots = d->nroots * sizeof *d->roots;
    char *copy = core__program_alloc(t->joint, outputs + roots + 1);

    if (!copy)
        return core__error_memory(outputs + roots);
    if (outputs)
        d->outputs = memcpy(copy, d->outputs, outputs);
    if (roots)
        d->roots = memcpy(copy + outputs, d->roots, roots);
    return CORE_OK;
}

static core_status make_programs(core__training *t)
{
    size_t size = (t->described.nmasks + 1) * sizeof *t->backwards;
    core__backward *backward;

    CORE_TRY(keep_recorded(t));
    CORE_TRY(core__partition_make(t->joint, &t->described, t->budget,
                                  &t->partition));
    t->forward_nodes = t->partition.forward->nnodes;
    for (uint32_t i = 0; i < t->forward_nodes; i++)
        t->random = t->random || t->partition.forward->nodes[i].draws ||
                    !t->partition.forward->nodes[i].op;
    t->backwards = core__program_alloc(t->joint, size);
    if (!t->backwards)
        return core__error_memory(size);
    memset((void *)t->backwards, 0, size);
    if (!t->described.nmasks)
        return CORE_OK;
    CORE_TRY(find_backward(t, 0, &backward));
    t->backward_nodes = backward->program->nnodes;
    t->recomputed = count_recomputed(backward->program);
    return CORE_OK;
}

core_status core__training_new(core_program *joint,
                               const core__joint *described, uint64_t budget,
                               core_program **out_forward,
                               core__training **out_training)
{
    core__training *t = core__alloc_zero(sizeof *t);
    core_status status;

    *out_forward = NULL;
    *out_training = t;
    if (!t) {
        core_program_release(joint);
        return core__error_memory(sizeof *t);
    }
    t->joint = joint;
    t->described = t->recorded = *described;
    t->budget = budget;
    status = make_programs(t);
    *out_forward = t->partition.forward;
    if (status == CORE_OK)
        return CORE_OK;
    core_program_release(t->partition.forward);
    core__training_free(t);
    *out_forward = NULL;
    *out_training = NULL;
    return status;
}

void core__training_free(core__training *t)
{
    if (!t)
        return;
    for (uint32_t i = 0; t->backwards && i < t->described.nmasks; i++)
        backward_free(atomic_load(&t->backwards[i]));
    core_program_release(t->joint);
    core__free(t);
}

uint64_t core__training_eager_calls(const core__training *t)
{
    return t ? atomic_load_explicit(&t->eager_calls, memory_order_relaxed) : 0;
}

bool core__training_equal(core__training *a, core__training *b, char *text,
                          size_t size)
{
    core__backward *x, *y;

    if (!a && !b)
        return true;
    if (!a || !b || a->described.nmasks != b->described.nmasks ||
        a->described.nsources != b->described.nsources) {
        core__format(text, size, "other results require grad");
        return false;
    }
    if (!a->described.nmasks)
        return true;
    x = atomic_load(&a->backwards[0]);
    y = atomic_load(&b->backwards[0]);
    return core__programs_equal(x->program, y->program, text, size);
}

/* -------------------------------------------------------------- backward -- */

static void release_all(core_tensor **tensors, size_t count)
{
    for (size_t i = 0; i < count; i++)
        core__tensor_release(tensors[i]);
}

/* The number of the mask of the gradients that are there; nmasks: none. */
static uint32_t find_mask(const core__joint *d, core_tensor *const *grads)
{
    uint64_t mask = 0;
    uint32_t i = 0;

    for (uint32_t k = 0; k < d->nroots; k++)
        mask |= (uint64_t)(grads[k] != NULL) << k;
    while (i < d->nmasks && d->masks[i] != mask)
        i++;
    return i;
}

static bool any_unusual(core_tensor *const *grads, size_t count)
{
    const uint64_t unusual = CORE__KEYS_FUNCTIONALITY & ~CORE__KEYS_TENSOR;

    for (size_t i = 0; i < count; i++)
        if (grads[i] && (grads[i]->keys & unusual) & ~CORE__KEYS_TRACED)
            return true;
    return false;
}

/* A gradient in the layout, and as aligned, as the program expects. */
static core_status take_tangent(const core__program_type *type,
                                core_tensor *grad, core_tensor **out_tensor)
{
    core_memory memory = core__tensor_memory(grad);
    bool same =
        ((uintptr_t)memory.handle + memory.offset) % CORE__INPUT_ALIGNMENT == 0;

    for (uint32_t i = 0; i < type->ndim; i++)
        same = same && (grad->sizes[i] <= 1 ||
                        grad->strides[i] == core__type_strides(type)[i]);
    if (same) {
        *out_tensor = core_tensor_retain(grad);
        return CORE_OK;
    }
    CORE_TRY(core_empty_strided(core__type_sizes(type), type->ndim,
                                core__type_strides(type), type->ndim,
                                type->dtype, grad->device, out_tensor));
    return core_copy_(*out_tensor, grad, false);
}

static core_status take_inputs(core_node *node, const core__training *t,
                               const core__backward *b,
                               core_tensor *const *grads, core_tensor **inputs)
{
    uint32_t nroots = t->described.nroots;

    for (uint32_t i = 0; i < b->program->ninputs; i++) {
        uint32_t from = b->inputs[i];

        if (from < nroots)
            CORE_TRY(take_tangent(&b->program->inputs[i].type, grads[from],
                                  &inputs[i]));
        else
            CORE_TRY(core_node_saved(node, from - nroots, &inputs[i]));
    }
    return CORE_OK;
}

static core_status run_backward(core_node *node, core__call_state *state,
                                uint32_t mask, core_tensor *const *grads,
                                core_tensor **gradients)
{
    core__training *t = state->entry->training;
    core_tensor **inputs = NULL, **outputs;
    core__backward *b;
    core_status status;
    size_t count;

    CORE_TRY(find_backward(t, mask, &b));
    count = (size_t)b->program->ninputs + b->program->noutputs;
    inputs = core__alloc_zero((count + 1) * sizeof *inputs);
    if (!inputs)
        return core__error_memory(count * sizeof *inputs);
    outputs = inputs + b->program->ninputs;
    status = take_inputs(node, t, b, grads, inputs);
    if (status == CORE_OK)
        status = core__replay_run(state->compiled->replays, b->program, inputs,
                                  outputs);
    for (uint32_t i = 0; i < t->described.nsources && status == CORE_OK; i++)
        if (b->outputs[i] != CORE__NO_VALUE &&
            core_node_needs_gradient(node, i))
            gradients[i] = core_tensor_retain(outputs[b->outputs[i]]);
    release_all(inputs, count);
    core__free(inputs);
    return status;
}

static core_status backward(core_node *node, void *context,
                            core_tensor *const *grads, size_t ngrads,
                            core_tensor **gradients, size_t ngradients)
{
    core__call_state *state = context;
    core__training *t = state->entry->training;
    uint32_t mask = find_mask(&t->described, grads);
    bool unusual = any_unusual(grads, ngrads), any = false;
    const core__thread *self = core__thread_self();
    bool graph = !self->no_grad;

    (void)ngradients;
    for (size_t i = 0; i < ngrads; i++)
        any = any || grads[i];
    if (!any)
        return CORE_OK;
    CORE_TRY(core__call_check_graph(state, grads));
    if (graph)
        atomic_store(&t->second_derivative, true);
    if (graph || unusual || mask == t->described.nmasks)
        return core__call_differentiate(
            node, state, grads, graph && !unusual && !self->trace, gradients);
    atomic_fetch_add_explicit(&t->backward_calls, 1, memory_order_relaxed);
    CORE_TRY(run_backward(node, state, mask, grads, gradients));
    return core__call_release_graph(state, grads);
}

/* ----------------------------------------------------------------- calls -- */

static core_tensor *saved_tensor(const core__training *t,
                                 const core_program *program,
                                 core_tensor *const *inputs,
                                 core_tensor *const *results, uint32_t i)
{
    const core__saved_value *saved = &t->partition.saved[i];

    switch (saved->source) {
    case CORE__SAVED_INPUT:
        return inputs[saved->index];
    case CORE__SAVED_HIDDEN:
        return program->hidden[saved->index].tensor;
    default:
        return results[saved->index];
    }
}

/* A root is nothing else's view. */
static core_status detach_roots(const core__training *t, core_tensor **results)
{
    for (uint32_t i = 0; i < t->described.nroots; i++) {
        core_tensor **root = &results[t->described.roots[i]], *own;

        if (!(*root)->base)
            continue;
        CORE_TRY(core__tensor_shallow_copy(*root, &own));
        core__tensor_release(*root);
        *root = own;
    }
    return CORE_OK;
}

/* Makes the roots results of a node.  Takes over the state. */
static core_status record_node(const core__training *t, core__call_state *state,
                               core_tensor *const *inputs,
                               core_tensor *const *results)
{
    const core__joint *d = &t->described;
    size_t count = (size_t)d->nroots + d->nsources + t->partition.nsaved + 1;
    core_tensor **roots = core__alloc(count * sizeof *roots), **sources,
                **saved;
    const core_function_info info = {.struct_size = sizeof info,
                                     .flags = CORE_FUNCTION_NO_ZEROS,
                                     .name = "compiled function backward",
                                     .backward = backward,
                                     .context = state,
                                     .release = core__call_state_free};
    core_status status;

    if (!roots) {
        core__call_state_free(state);
        return core__error_memory(count * sizeof *roots);
    }
    sources = roots + d->nroots;
    saved = sources + d->nsources;
    for (uint32_t i = 0; i < d->nroots; i++)
        roots[i] = results[d->roots[i]];
    for (uint32_t i = 0; i < d->nsources; i++)
        sources[i] = d->sources[i].tensor ? d->sources[i].tensor
                                          : inputs[d->sources[i].input];
    for (uint32_t i = 0; i < t->partition.nsaved; i++)
        saved[i] = saved_tensor(t, state->entry->program, inputs, results, i);
    status = core_function_record(&info, sources, d->nsources, saved,
                                  t->partition.nsaved, roots, d->nroots, NULL);
    core__free(roots);
    return status;
}

static core_status make_output(const core__training *t,
                               core_tensor *const *inputs,
                               core_tensor *const *results, uint32_t i,
                               core_tensor *const *outputs, core_tensor **out)
{
    const core__joint_output *output = &t->described.outputs[i];
    const core__program_output *described = &t->joint->outputs[i];
    core_tensor *root;
    int64_t offset;

    switch (output->kind) {
    case CORE__JOINT_SAME:
        *out = core_tensor_retain(outputs[output->index]);
        return CORE_OK;
    case CORE__JOINT_ROOT:
        root = results[t->described.roots[output->index]];
        return core__joint_view(t->joint, output, root, out);
    case CORE__JOINT_INPUT:
        return core__joint_view(t->joint, output, inputs[output->index], out);
    case CORE__JOINT_DETACHED:
        root = results[t->described.roots[output->index]];
        offset =
            t->joint->outputs[t->described.noutputs + output->index].offset;
        return core__tensor_alias(
            root, described->type.dtype, described->type.ndim,
            core__type_sizes(&described->type),
            core__type_strides(&described->type),
            root->offset - offset + described->offset, out);
    default:
        *out = core_tensor_retain(results[output->index]);
        return CORE_OK;
    }
}

/* Makes the outputs; on failure none. */
static core_status make_outputs(const core__training *t,
                                core_tensor *const *inputs,
                                core_tensor *const *results,
                                core_tensor **outputs)
{
    core_status status = CORE_OK;
    uint32_t count = t->described.noutputs;

    for (uint32_t i = 0; i < count && status == CORE_OK; i++)
        status = make_output(t, inputs, results, i, outputs, &outputs[i]);
    for (uint32_t i = 0; i < count && status != CORE_OK; i++) {
        core__tensor_release(outputs[i]);
        outputs[i] = NULL;
    }
    return status;
}

core_status core__training_call(core_compiled *compiled,
                                core__compiled_entry *entry,
                                core_tensor *const *inputs, size_t ninputs,
                                core_tensor **outputs)
{
    core__training *t = entry->training;
    size_t count = entry->program->noutputs;
    core_tensor **results = core__alloc_zero((count + 1) * sizeof *results);
    core__call_state *state = NULL;
    core_status status = CORE_OK;

    if (!results)
        return core__error_memory(count * sizeof *results);
    if (t->described.nroots)
        status = core__call_state_new(compiled, entry, ninputs, &state);
    if (status == CORE_OK)
        status = core__replay_run(compiled->replays, entry->program, inputs,
                                  results);
    if (status == CORE_OK)
        status = detach_roots(t, results);
    if (status == CORE_OK && state)
        status = core__call_state_tensors(state, inputs, ninputs);
    if (status == CORE_OK && state)
        status = record_node(t, state, inputs, results);
    else
        core__call_state_free(state);
    if (status == CORE_OK)
        status = make_outputs(t, inputs, results, outputs);
    release_all(results, count);
    core__free(results);
    return status;
}
