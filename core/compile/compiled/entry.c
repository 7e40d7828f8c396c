/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The entries of compiled functions. */

#include "compile/compiled/compiled_node.h"

#include "autograd/graph/autograd_meta.h"
#include "base/memory.h"
#include "compile/compiled/freeze.h"
#include "compile/run/run.h"
#include "device/device.h"
#include "tensor/layout.h"

#include <string.h>

/* -------------------------------------------------------------- holders -- */

enum { HOLDER_LISTS = 256 };
static core__holder *holders[HOLDER_LISTS]; /* under the lock */

static core__holder **list_of(const core_tensor *tensor)
{
    return &holders[((uintptr_t)tensor >> 6) % HOLDER_LISTS];
}

core_status core__holder_add(core_tensor *tensor, uint32_t held,
                             core__holder **out_holder)
{
    core__holder **list = list_of(tensor), *holder;

    core__compiled_lock();
    for (holder = *list; holder && holder->tensor != tensor;)
        holder = holder->next;
    if (!holder) {
        holder = core__alloc_zero(sizeof *holder);
        if (holder) {
            holder->tensor = tensor;
            holder->next = *list;
            *list = holder;
        }
    }
    if (holder) {
        holder->users++;
        atomic_fetch_add(&holder->held, held);
    }
    core__compiled_unlock();
    *out_holder = holder;
    return holder ? CORE_OK : core__error_memory(sizeof *holder);
}

void core__holder_drop(core__holder *holder, uint32_t held)
{
    core__holder **at = list_of(holder->tensor);
    bool last;

    core__compiled_lock();
    atomic_fetch_sub(&holder->held, held);
    last = --holder->users == 0;
    if (last) {
        while (*at != holder)
            at = &(*at)->next;
        *at = holder->next;
    }
    core__compiled_unlock();
    if (last)
        core__free(holder);
}

/* --------------------------------------------------------- kept tensors -- */

static core_tensor *gradient_of(const core_tensor *tensor)
{
    return tensor->autograd ? tensor->autograd->grad : NULL;
}

static core__kept_tensor *find_kept(const core__compiled_entry *entry,
                                    const core_tensor *tensor)
{
    for (uint32_t i = 0; i < entry->nkept; i++)
        if (entry->kept[i].tensor == tensor)
            return &entry->kept[i];
    return NULL;
}

static void count_kept(core__compiled_entry *entry, core_tensor *tensor)
{
    core__kept_tensor *kept;

    if (!tensor)
        return;
    kept = find_kept(entry, tensor);
    if (!kept) {
        kept = &entry->kept[entry->nkept++];
        kept->tensor = tensor;
    }
    kept->held++;
}

static void freeze_kept(core__kept_tensor *kept)
{
    kept->frozen = true;
    kept->version = core__tensor_version(kept->tensor);
}

/* True if the program has another content than the function would read. */
static bool content_is_gone(const core__kept_tensor *kept)
{
    const core_storage *storage = kept->storage;

    return (kept->frozen &&
            (core__tensor_version(kept->tensor) != kept->version ||
             core__storage_varies(storage))) ||
           (kept->constant && storage &&
            storage->generation != atomic_load(&storage->device->generation));
}

static core_status describe_kept(core__compiled_entry *entry,
                                 core__kept_tensor *kept)
{
    core_tensor *tensor = kept->tensor, *grad = gradient_of(tensor);
    size_t size = 2 * (size_t)tensor->ndim * sizeof *tensor->sizes;

    kept->storage = tensor->storage;
    kept->keys = tensor->keys;
    kept->offset = tensor->offset;
    kept->kind = tensor->kind;
    kept->checks_grad = grad && find_kept(entry, grad);
    kept->grad = grad;
    kept->checks_hooks = !entry->training && core__tensor_needs_grad(tensor);
    kept->has_hooks = core__has_hooks(tensor);
    kept->dims = core__program_alloc(entry->program, size + 1);
    if (!kept->dims)
        return core__error_memory(size);
    if (size)
        memcpy(kept->dims, tensor->sizes, size);
    return core__holder_add(tensor, kept->held, &kept->holder);
}

/* Inputs whose gradient the program reads or writes. */
static core_status note_gradients(core__compiled_entry *entry,
                                  core_tensor *const *inputs, size_t ninputs)
{
    size_t size = 2 * ninputs * sizeof *entry->gradients + 1;

    entry->gradients = core__program_alloc(entry->program, size);
    if (!entry->gradients)
        return core__error_memory(size);
    for (uint32_t i = 0; i < ninputs; i++) {
        core_tensor *grad = gradient_of(inputs[i]);
        core__kept_tensor *kept = grad ? find_kept(entry, grad) : NULL;

        if (!kept)
            continue;
        entry->gradients[2 * entry->ngradients] = i;
        entry->gradients[2 * entry->ngradients + 1] =
            (uint32_t)(kept - entry->kept);
        entry->ngradients++;
    }
    return CORE_OK;
}

static core_status keep_tensors(core__compiled_entry *entry,
                                core_tensor *const *inputs, size_t ninputs)
{
    core_program *program = entry->program;
    size_t most = (size_t)program->nhidden + program->nknown +
                  program->naliases + program->noutputs;
    size_t size = most * sizeof *entry->kept + 1;

    entry->kept = core__program_alloc(program, size);
    if (!entry->kept)
        return core__error_memory(size);
    memset(entry->kept, 0, size);
    for (uint32_t i = 0; i < program->nhidden; i++)
        count_kept(entry, program->hidden[i].tensor);
    for (uint32_t i = 0; i < program->nknown; i++)
        count_kept(entry, program->known[i].tensor);
    for (uint32_t i = 0; i < program->naliases; i++)
        count_kept(entry, program->aliases[i]);
    for (uint32_t i = 0; i < program->noutputs; i++)
        count_kept(entry, program->outputs[i].tensor);
    for (uint32_t i = 0; i < program->nhidden; i++) {
        core__kept_tensor *kept = find_kept(entry, program->hidden[i].tensor);

        kept->constant = program->hidden[i].constant;
        if (core__program_is_frozen(program, i))
            freeze_kept(kept);
    }
    for (uint32_t i = 0; i < entry->nkept; i++)
        CORE_TRY(describe_kept(entry, &entry->kept[i]));
    return note_gradients(entry, inputs, ninputs);
}

/* ------------------------------------------------------------- entries -- */

core_status core__entry_new(const core__guard *guard, core_program *program,
                            core__training *training,
                            core_tensor *const *inputs, size_t ninputs,
                            core__compiled_entry **out_entry)
{
    size_t size = sizeof **out_entry + guard->size;
    core__compiled_entry *entry = core__alloc_zero(size);
    core_status status = CORE_OK;

    *out_entry = NULL;
    if (!entry) {
        core__training_free(training);
        core_program_release(program);
        return core__error_memory(size);
    }
    atomic_init(&entry->references, 1);
    entry->program = program;
    entry->training = training;
    entry->guard_size = guard->size;
    memcpy(entry->guard, guard->bytes, guard->size);
    if (program)
        status = keep_tensors(entry, inputs, ninputs);
    if (status != CORE_OK) {
        core__entry_release(entry);
        return status;
    }
    *out_entry = entry;
    return CORE_OK;
}

bool core__entry_retain(core__compiled_entry *entry)
{
    uint32_t references = atomic_load(&entry->references);

    while (references > 0)
        if (atomic_compare_exchange_weak(&entry->references, &references,
                                         references + 1))
            return true;
    return false;
}

void core__entry_release(core__compiled_entry *entry)
{
    if (!entry || atomic_fetch_sub(&entry->references, 1) != 1)
        return;
    /* First the holders: a tensor must never seem to have no other user. */
    for (uint32_t i = 0; i < entry->nkept; i++)
        if (entry->kept[i].holder)
            core__holder_drop(entry->kept[i].holder, entry->kept[i].held);
    core_program_release(entry->program);
    core__training_free(entry->training);
    core__free(entry->operator_name);
    core__free(entry->reason);
    core__free(entry->place);
    core__free(entry->why);
    core__reclaim(&entry->link, entry);
}

/* ------------------------------------------------------------ checking -- */

static core__entry_match check_kept(const core__kept_tensor *kept)
{
    const core_tensor *tensor = kept->tensor;
    size_t size = 2 * (size_t)tensor->ndim * sizeof *tensor->sizes;

    if (atomic_load_explicit(&tensor->references, memory_order_acquire) <=
            atomic_load_explicit(&kept->holder->held, memory_order_relaxed) ||
        tensor->storage != kept->storage || tensor->kind != kept->kind ||
        tensor->offset != kept->offset ||
        ((kept->frozen || kept->constant) && content_is_gone(kept)) ||
        (size && memcmp(tensor->sizes, kept->dims, size) != 0))
        return CORE__ENTRY_GONE;
    return tensor->keys == kept->keys &&
                   (!kept->checks_grad || gradient_of(tensor) == kept->grad) &&
                   (!kept->checks_hooks ||
                    core__has_hooks(tensor) == kept->has_hooks)
               ? CORE__ENTRY_HOLDS
               : CORE__ENTRY_DIFFERS;
}

/* True if no input shares memory with a hidden input where one is written; how
 * inputs share memory with one another is in the guard record. */
static bool hidden_inputs_apart(const core_program *program,
                                core_tensor *const *inputs)
{
    for (uint32_t i = 0; program->nwrites && i < program->ninputs; i++) {
        bool written = program->inputs[i].written;

        for (uint32_t k = 0; k < program->nhidden; k++)
            if (inputs[i]->storage == program->hidden[k].tensor->storage &&
                (written || program->hidden[k].written) &&
                core__layout_overlap(inputs[i], program->hidden[k].tensor) !=
                    CORE__OVERLAP_NONE)
                return false;
    }
    for (uint32_t i = 0; i < program->nknown; i++)
        if (!core__known_holds(&program->known[i], inputs))
            return false;
    return true;
}

/* A function that was registered since may be for what was computed before. */
static bool is_outdated(const core_program *program)
{
    return program->nfolded &&
           program->registered !=
               atomic_load_explicit(&core__registry_generation,
                                    memory_order_relaxed);
}

bool core__entry_is_gone(const core__compiled_entry *entry)
{
    if (entry->program && (core__program_object_is_gone(entry->program) ||
                           is_outdated(entry->program)))
        return true;
    for (uint32_t i = 0; i < entry->nkept; i++)
        if (check_kept(&entry->kept[i]) == CORE__ENTRY_GONE)
            return true;
    return entry->created;
}

core__entry_match core__entry_check(const core__compiled_entry *entry,
                                    core_tensor *const *inputs)
{
    core__entry_match match = CORE__ENTRY_HOLDS;

    if (!entry->program)
        return entry->created ||
                       (entry->hooked && entry->hooks_removed !=
                                             atomic_load(&core__hooks_removed))
                   ? CORE__ENTRY_GONE
                   : match;
    if (is_outdated(entry->program))
        return CORE__ENTRY_GONE;
    for (uint32_t i = 0; i < entry->nkept; i++) {
        core__entry_match one = check_kept(&entry->kept[i]);

        if (one == CORE__ENTRY_GONE)
            return one;
        if (one == CORE__ENTRY_DIFFERS)
            match = one;
    }
    for (uint32_t i = 0; i < entry->ngradients; i++)
        if (gradient_of(inputs[entry->gradients[2 * i]]) !=
            entry->kept[entry->gradients[2 * i + 1]].tensor)
            return CORE__ENTRY_DIFFERS;
    if (entry->program->nfinishes &&
        !core__program_numbers_hold(entry->program))
        return core__program_object_is_gone(entry->program)
                   ? CORE__ENTRY_GONE
                   : CORE__ENTRY_DIFFERS;
    return match == CORE__ENTRY_HOLDS &&
                   !hidden_inputs_apart(entry->program, inputs)
               ? CORE__ENTRY_DIFFERS
               : match;
}
