/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Calls of compiled functions whose results require grad, and their
 * backward. */

#include "compile/compiled/compiled_node.h"
#include "compile/prepare/prepared.h"

#include "autocast/autocast.h"
#include "autograd/api/partial_gradients.h"
#include "autograd/graph/callback.h"
#include "autograd/graph/saved.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/thread_modes.h"
#include "dispatch/operator.h"
#include "ops_ids.h"
#include "random/generator.h"
#include "tensor/batched.h"

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

/* ----------------------------------------------------------- call record -- */

/* What a call leaves for its backward besides saved tensors: all that it takes
 * to call the function again. */
typedef struct call_record {
    core_compiled *compiled;     /* held */
    core__compiled_entry *entry; /* with a reference */
    core__thread_modes modes;
    uint32_t ninputs;
    core__generators *random; /* NULL: the function draws no numbers */
    uint32_t *versions;       /* of hidden inputs */
    core__saved inputs[];
} call_record;

static void record_free(void *context)
{
    call_record *record = context;

    for (uint32_t i = 0; i < record->ninputs; i++)
        core__saved_release(&record->inputs[i]);
    core__entry_release(record->entry);
    core__compiled_drop(record->compiled);
    core__free(record->random);
    core__free(record);
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

static core_status record_new(core_compiled *compiled,
                              core__compiled_entry *entry, size_t ninputs,
                              call_record **out_record)
{
    const core__thread *self = core__thread_self();
    const core_program *program = entry->program;
    size_t size = sizeof **out_record + ninputs * sizeof(core__saved) +
                  program->nhidden * sizeof(uint32_t);
    call_record *record = core__alloc_zero(size);

    *out_record = record;
    if (!record)
        return core__error_memory(size);
    record->compiled = core__compiled_hold(compiled);
    (void)core__entry_retain(entry);
    record->entry = entry;
    record->modes = core__thread_modes_get(self);
    record->versions = (uint32_t *)(void *)(record->inputs + ninputs);
    if (!entry->training->random)
        return CORE_OK;
    record->random = core__alloc(sizeof *record->random);
    if (!record->random)
        return core__error_memory(sizeof *record->random);
    core__generators_save(record->random);
    return CORE_OK;
}

/* After the call, which may have written some of them. */
static core_status record_tensors(call_record *record,
                                  core_tensor *const *inputs, size_t ninputs)
{
    const core_program *program = record->entry->program;

    for (; record->ninputs < ninputs; record->ninputs++)
        CORE_TRY(save_input(&record->inputs[record->ninputs],
                            inputs[record->ninputs]));
    for (uint32_t i = 0; i < program->nhidden; i++)
        record->versions[i] = core__content_version(program->hidden[i].tensor);
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

static core_status check_repeatable(const call_record *record)
{
    const core_program *program = record->entry->program;

    if (program->nwrites)
        return cannot_repeat(CORE_ERROR_UNSUPPORTED,
                             "it writes tensors, which would change twice");
    for (uint32_t i = 0; i < program->nhidden; i++)
        if (core__content_version(program->hidden[i].tensor) !=
            record->versions[i])
            return cannot_repeat(CORE_ERROR_VERSION,
                                 "a tensor that it uses was changed in place "
                                 "since the call");
    return CORE_OK;
}

/* The inputs of the call, with their history. */
static core_status restore_inputs(core_node *node, call_record *record,
                                  core_tensor **inputs)
{
    for (uint32_t i = 0; i < record->ninputs; i++) {
        core_value value = {0};
        core_status status;

        core__byte_lock(&node->lock);
        status =
            core__saved_unpack_named(node->name, &record->inputs[i], &value);
        if (status == CORE_OK)
            inputs[i] = core_tensor_retain(value.u.tensor);
        core__byte_unlock(&node->lock);
        CORE_TRY(status);
    }
    return CORE_OK;
}

/* Calls the function in the state of the first call, but with the modes of the
 * backward. */
static core_status call_again(const call_record *record,
                              core_tensor *const *inputs, core_tensor **outputs)
{
    core__thread *self = core__thread_self();
    const core_compiled *compiled = record->compiled;
    uint32_t errors = core__error_sequence();
    size_t noutputs = record->entry->training->described.noutputs;
    size_t count = noutputs;
    core__thread_modes was = core__thread_modes_get(self);
    core__thread_modes then = core__thread_modes_again(&record->modes, &was);
    uint64_t region = core__autocast_mark(self);
    core__generators random;
    core_status status;

    if (record->random) {
        core__generators_save(&random);
        core__generators_restore(record->random, true);
    }
    core__thread_modes_set(self, &then);
    status = compiled->function(compiled->context, inputs, record->ninputs,
                                outputs, &count);
    core__autocast_unwind(self, region);
    core__thread_modes_set(self, &was);
    if (record->random)
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

static core_status differentiate(const call_record *record,
                                 core_tensor *const *inputs,
                                 core_tensor *const *outputs,
                                 core_tensor *const *grads,
                                 core_tensor **gradients)
{
    const core__joint *d = &record->entry->training->described;
    size_t size =
        (2 * (size_t)d->nroots + d->nsources + 1) * sizeof(core_tensor *);
    core_tensor **roots = core__alloc(size), **sources;
    bool create = !core__thread_self()->no_grad;
    core_status status;
    size_t count;

    if (!roots)
        return core__error_memory(size);
    sources = roots + 2 * (size_t)d->nroots;
    for (uint32_t i = 0; i < d->nsources; i++)
        sources[i] = d->sources[i].tensor ? d->sources[i].tensor
                                          : inputs[d->sources[i].input];
    status = find_roots(d, outputs, grads, roots, roots + d->nroots, &count);
    if (status == CORE_OK)
        status =
            core__partial_gradients(roots, roots + d->nroots, count, sources,
                                    d->nsources, create, create, gradients);
    core__free(roots);
    return status;
}

static void release_all(core_tensor **tensors, size_t count)
{
    for (size_t i = 0; i < count; i++)
        core__tensor_release(tensors[i]);
}

static core_status repeat(core_node *node, call_record *record,
                          core_tensor *const *grads, core_tensor **gradients)
{
    size_t noutputs = record->entry->training->described.noutputs;
    size_t count = record->ninputs + noutputs;
    size_t size = (count + 1) * sizeof(core_tensor *);
    core_tensor **inputs = core__alloc_zero(size);
    core_tensor **outputs = inputs + record->ninputs;
    core_status status;

    if (!inputs)
        return core__error_memory(size);
    status = check_repeatable(record);
    if (status == CORE_OK)
        status = restore_inputs(node, record, inputs);
    if (status == CORE_OK)
        status = call_again(record, inputs, outputs);
    if (status == CORE_OK)
        status = differentiate(record, inputs, outputs, grads, gradients);
    release_all(inputs, count);
    core__free(inputs);
    return status;
}

static core_status call_and_differentiate(core_node *node, call_record *record,
                                          core_tensor *const *grads,
                                          core_tensor **gradients)
{
    core__training *t = record->entry->training;
    core_status status;

    if (!core__thread_self()->no_grad)
        atomic_store(&t->second_derivative, true);
    atomic_fetch_add_explicit(&t->repeated_calls, 1, memory_order_relaxed);
    if (!core__compiled_retain_used(record->compiled))
        return cannot_repeat(CORE_ERROR_AUTOGRAD,
                             "the compiled function was released");
    status = repeat(node, record, grads, gradients);
    core_compiled_release(record->compiled);
    return status;
}

/* -------------------------------------------------------------- backward -- */

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

static core_status run_backward(core_node *node, call_record *record,
                                uint32_t mask, core_tensor *const *grads,
                                core_tensor **gradients)
{
    core__training *t = record->entry->training;
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
        status = core__replay_run(record->compiled->replays, b->program, inputs,
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
    call_record *record = context;
    core__training *t = record->entry->training;
    uint32_t mask = find_mask(&t->described, grads);
    bool any = false;

    (void)ngradients;
    for (size_t i = 0; i < ngrads; i++)
        any = any || grads[i];
    if (!any)
        return CORE_OK;
    if (!core__thread_self()->no_grad || mask == t->described.nmasks ||
        any_unusual(grads, ngrads))
        return call_and_differentiate(node, record, grads, gradients);
    atomic_fetch_add_explicit(&t->backward_calls, 1, memory_order_relaxed);
    return run_backward(node, record, mask, grads, gradients);
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

/* Makes the roots results of a node.  Takes over the record. */
static core_status record_node(const core__training *t, call_record *record,
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
                                     .context = record,
                                     .release = record_free};
    core_status status;

    if (!roots) {
        record_free(record);
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
        saved[i] = saved_tensor(t, record->entry->program, inputs, results, i);
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
    call_record *record = NULL;
    core_status status = CORE_OK;

    if (!results)
        return core__error_memory(count * sizeof *results);
    if (t->described.nroots)
        status = record_new(compiled, entry, ninputs, &record);
    if (status == CORE_OK)
        status = core__replay_run(compiled->replays, entry->program, inputs,
                                  results);
    if (status == CORE_OK)
        status = detach_roots(t, results);
    if (status == CORE_OK && record)
        status = record_tensors(record, inputs, ninputs);
    if (status == CORE_OK && record)
        status = record_node(t, record, inputs, results);
    else if (record)
        record_free(record);
    if (status == CORE_OK)
        status = make_outputs(t, inputs, results, outputs);
    release_all(results, count);
    core__free(results);
    return status;
}
