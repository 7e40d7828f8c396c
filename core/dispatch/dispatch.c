/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The hot path: key set, shortcut, one indirect call (docs/architecture.md,
 * "The path of a call").  It takes no lock and allocates nothing.
 *
 * The minimal cost of a call: a jump by the positions of the operator's
 * tensors, the thread's pointer, one load per tensor, the depth that tells
 * epoch_reclaim.c what this thread may be reading, and a comparison with the
 * operator's first shortcut (registry.h): about two dozen instructions for an
 * operator with one tensor; tests/instruction-budget.txt enforces this.  The
 * first call of an operator in a new state is looked up in the table. */

#include "dispatch/dispatch.h"

#include "base/log.h"
#include "device/device.h"
#include "dispatch/registry.h"
#include "dispatch/structured.h"
#include "ops_ids.h"
#include "tensor/dtype.h"

#include <libcore/dispatch.h>

#include <stddef.h>
#include <stdio.h>
#include <string.h>

static int tracing;

_Atomic uint64_t core__keys_everywhere;

_Static_assert(CORE__THREAD_INCLUDED == CORE__KEY_INPLACE_OR_VIEW,
               "CORE__THREAD_INCLUDED must be this key");

/* Logs the steps of a call that this thread has recorded. */
static void write_steps(core__trace_steps *steps)
{
    if (steps->op)
        core__log_always(CORE_LOG_INFO, "dispatch", "%s", steps->text);
    steps->op = NULL;
}

/* Logs one line per call: its steps, from the highest key down.  It is written
 * at the last step, or when another call begins before that. */
static void __attribute__((cold, noinline))
log_step(const core_operator *op, uint64_t keys)
{
    static const char *const names[CORE__FUNCTIONALITIES] = {
        [CORE__FUNCTIONALITY_RECORD] = "record",
        [CORE__FUNCTIONALITY_FUNCTIONALIZE] = "functionalize",
        [CORE__FUNCTIONALITY_MODE_BELOW_AUTOGRAD] = "mode",
        [CORE__FUNCTIONALITY_INPLACE_OR_VIEW] = "inplace-or-view",
        [CORE__FUNCTIONALITY_BATCH_RULE] = "batch-rule",
        [CORE__FUNCTIONALITY_AUTOGRAD] = "autograd",
        [CORE__FUNCTIONALITY_BATCHED] = "batched",
        [CORE__FUNCTIONALITY_AUTOCAST] = "autocast",
        [CORE__FUNCTIONALITY_PROFILER] = "profiler",
    };
    uint32_t functionality = core__keys_functionality(keys);
    core__backend *backend = core__backend_by_slot(core__keys_slot(keys));
    core__trace_steps *steps = &core__thread_self()->steps;
    const char *between = " -> ";
    int size;

    if (functionality >= CORE__FUNCTIONALITY_TRACE ||
        op->table == core__table_unresolved)
        return; /* an operator's first call, before it has a table */
    if (functionality == CORE__FUNCTIONALITY_MODE_BELOW_AUTOGRAD &&
        steps->op == op && steps->last == functionality)
        return; /* from one mode to the next */
    if (steps->op != op || functionality >= steps->last) {
        write_steps(steps);
        steps->op = op;
        steps->size = 0;
        between = ": ";
    }
    steps->last = functionality;
    size =
        snprintf(steps->text + steps->size, sizeof steps->text - steps->size,
                 "%s%s%s", steps->size ? "" : core__operator_name(op), between,
                 functionality ? names[functionality]
                 : backend     ? backend->type
                               : "(no backend)");
    steps->size += (size_t)size;
    if (size < 0 || steps->size >= sizeof steps->text)
        steps->size = sizeof steps->text - 1; /* the rest is omitted */
    if (functionality == CORE__FUNCTIONALITY_BACKEND)
        write_steps(steps);
}

static inline core_status call_entry_at(core_operator *op, uint64_t keys,
                                        uint64_t index, const core_value *args,
                                        uint32_t nargs, core_value *results,
                                        uint32_t nresults)
{
    const core__entry *_Atomic *table =
        __atomic_load_n(&op->table, __ATOMIC_ACQUIRE);
    const core__entry *entry =
        atomic_load_explicit(&table[index], memory_order_acquire);
    core_call call;

    /* struct_size and flags, as one store */
    memcpy(&call, &(const uint64_t){CORE__FUNCTION_CALL_SIZE},
           sizeof(uint64_t));
    call.host = &core__host;
    call.user = entry->user;
    call.op = op;
    call.keys = keys;
    return entry->function(&call, args, nargs, results, nresults);
}

static inline core_status call_by_keys(core_operator *op, uint64_t keys,
                                       const core_value *args, uint32_t nargs,
                                       core_value *results, uint32_t nresults)
{
    return call_entry_at(op, keys, core__keys_index(keys), args, nargs, results,
                         nresults);
}

static core_status __attribute__((cold, noinline))
missing_tensor(const core_operator *op, uint32_t position)
{
    return core__error(
        CORE_ERROR_INVALID_ARGUMENT,
        "%s: argument %u, %s, is absent; it must be a tensor. The schema is %s",
        core__operator_name(op), position + 1,
        core__argument_name(op, position), op->data->schema);
}

/* Returns the position of a required tensor that is absent, or
 * CORE__OP_NOWHERE. */
static inline uint32_t collect(const core_operator *op, const core_value *args,
                               uint64_t *keys)
{
    uint64_t found = 0;

    for (uint32_t left = op->tensors; left; left &= left - 1) {
        uint32_t i = (uint32_t)__builtin_ctz(left);

        if (core__likely(args[i].tag == CORE_VALUE_TENSOR))
            found |= args[i].u.tensor->keys;
        else if (core__unlikely(op->required & 1u << i))
            return i;
    }
    *keys |= found;
    return CORE__OP_NOWHERE;
}

/* Handles lists of tensors, and the device of calls without tensors. */
static core_status __attribute__((noinline))
collect_rest(const core_operator *op, const core_value *args, uint32_t nargs,
             uint64_t *keys)
{
    for (uint32_t left = op->lists; left; left &= left - 1) {
        uint32_t i = (uint32_t)__builtin_ctz(left);

        if (args[i].tag != CORE_VALUE_TENSOR_LIST)
            continue;
        for (uint32_t k = 0; k < args[i].count; k++)
            if (args[i].u.tensors[k])
                *keys |= args[i].u.tensors[k]->keys;
    }
    if (!(*keys & CORE__KEY_BACKEND) && op->flags & CORE__OP_FACTORY) {
        core_device *device = NULL;

        for (uint32_t i = 0; i < nargs && !device; i++)
            if (args[i].tag == CORE_VALUE_DEVICE)
                device = args[i].u.device;
        if (!device)
            CORE_TRY(core__device_current(&device));
        *keys |= device->keys | CORE__KEY_BACKEND;
    }
    return CORE_OK;
}

core_status core__keys_of(const core_operator *op, const core_value *args,
                          uint32_t nargs, uint64_t *out_keys)
{
    uint32_t missing;

    *out_keys = 0;
    missing = collect(op, args, out_keys);
    if (missing != CORE__OP_NOWHERE)
        return missing_tensor(op, missing);
    return collect_rest(op, args, nargs, out_keys);
}

static core_status __attribute__((cold, noinline))
no_keys(const core_operator *op)
{
    return core__error(CORE_ERROR_INVALID_ARGUMENT,
                       "%s: there is no tensor among the arguments, so no "
                       "device can be chosen",
                       core__operator_name(op));
}

/* Everything that the hot path does not handle: a new thread, lists of tensors,
 * calls without tensors, errors. */
static core_status __attribute__((noinline))
call_general(core_operator *op, const core_value *args, uint32_t nargs,
             core_value *results, uint32_t nresults)
{
    core__thread *self = core__thread_self();
    uint64_t keys = 0;
    core_status status = core__keys_of(op, args, nargs, &keys);

    keys |= self->included |
            atomic_load_explicit(&core__keys_everywhere, memory_order_relaxed);
    keys &= ~self->excluded & core__operator_mask(op);
    if (status == CORE_OK && keys < CORE__KEY_BACKEND)
        status = no_keys(op);
    if (status == CORE_OK)
        status = core__numbers_check_tags(op, args, nargs);
    if (status == CORE_OK) {
        core__thread_enter(self);
        status = call_by_keys(op, keys, args, nargs, results, nresults);
        core__thread_leave(self);
    }
    return status;
}

/* A call whose shortcut is not the first in the list; the thread has entered
 * it. */
static core_status __attribute__((noinline))
call_in_state(core_operator *op, const core_value *args, uint32_t nargs,
              core_value *results, uint32_t nresults, uint64_t state)
{
    core__thread *self = core__thread_self();
    const core__shortcut *at =
        atomic_load_explicit(&op->shortcut, memory_order_acquire);
    core_status status;
    uint64_t keys;

    while (at && at->state != state)
        at = at->next;
    if (core__likely(at != NULL)) {
        status = at->function((core_call *)(uintptr_t)&at->call, args, nargs,
                              results, nresults);
    } else if ((keys = core__keys_of_state(op, state)) < CORE__KEY_BACKEND) {
        status = no_keys(op);
    } else {
        status = call_by_keys(op, keys, args, nargs, results, nresults);
        if (status == CORE_OK)
            core__shortcut_add(op, state);
    }
    core__thread_leave(self);
    return status;
}

/* Makes a single call, at the end, so that few registers are saved.  Results
 * are NONE when a function is called and when it fails, so they are not
 * cleared here. */
static inline __attribute__((always_inline)) core_status call_with(
    core_operator *op, const core_value *args, uint32_t nargs,
    core_value *results, uint32_t nresults, core__thread *self, uint64_t state)
{
    const core__shortcut *shortcut;
    core_status status;

    core__thread_enter(self); /* before reading anything that may be
                               * unregistered */
    shortcut = atomic_load_explicit(&op->shortcut, memory_order_acquire);
    if (core__unlikely(shortcut->state != state))
        return call_in_state(op, args, nargs, results, nresults, state);
    status = shortcut->function((core_call *)(uintptr_t)&shortcut->call, args,
                                nargs, results, nresults);
    core__thread_leave(self);
    return status;
}

/* ------------------------------------- by the positions of the tensors -- */

static core_status call_one(core_operator *op, const core_value *args,
                            uint32_t nargs, core_value *results,
                            uint32_t nresults)
{
    core__thread *self = core__self_pointer;

    if (core__unlikely(!self || args[0].tag != CORE_VALUE_TENSOR))
        return call_general(op, args, nargs, results, nresults);
    return call_with(op, args, nargs, results, nresults, self,
                     self->state | args[0].u.tensor->keys);
}

static core_status call_two(core_operator *op, const core_value *args,
                            uint32_t nargs, core_value *results,
                            uint32_t nresults)
{
    core__thread *self = core__self_pointer;

    if (core__unlikely(!self || args[0].tag != CORE_VALUE_TENSOR ||
                       args[1].tag != CORE_VALUE_TENSOR))
        return call_general(op, args, nargs, results, nresults);
    return call_with(op, args, nargs, results, nresults, self,
                     self->state | args[0].u.tensor->keys |
                         args[1].u.tensor->keys);
}

/* Two tensors, and an out tensor as the last argument. */
static core_status call_out(core_operator *op, const core_value *args,
                            uint32_t nargs, core_value *results,
                            uint32_t nresults)
{
    core__thread *self = core__self_pointer;
    const core_value *last = &args[op->nargs - 1u];

    if (core__unlikely(!self || args[0].tag != CORE_VALUE_TENSOR ||
                       args[1].tag != CORE_VALUE_TENSOR ||
                       last->tag != CORE_VALUE_TENSOR))
        return call_general(op, args, nargs, results, nresults);
    return call_with(op, args, nargs, results, nresults, self,
                     self->state | args[0].u.tensor->keys |
                         args[1].u.tensor->keys | last->u.tensor->keys);
}

/* Tensors at any positions. */
static core_status call_any(core_operator *op, const core_value *args,
                            uint32_t nargs, core_value *results,
                            uint32_t nresults)
{
    core__thread *self = core__thread_self();
    uint64_t state = self->state;
    uint32_t missing = collect(op, args, &state);

    if (core__unlikely(missing != CORE__OP_NOWHERE))
        return missing_tensor(op, missing);
    CORE_TRY(core__numbers_check_tags(op, args, nargs));
    core__thread_enter(self);
    return call_in_state(op, args, nargs, results, nresults, state);
}

/* No tensors: the device argument decides, or the current device. */
static core_status __attribute__((noinline))
call_factory_general(core_operator *op, const core_value *args, uint32_t nargs,
                     core_value *results, uint32_t nresults)
{
    core__thread *self = core__thread_self();
    const core_value *place = &args[op->place];
    core_device *device = NULL;

    if (place->tag == CORE_VALUE_DEVICE)
        device = place->u.device;
    if (!device)
        CORE_TRY(core__device_current(&device));
    CORE_TRY(core__numbers_check_tags(op, args, nargs));
    return call_with(op, args, nargs, results, nresults, self,
                     self->state | device->keys | CORE__KEY_BACKEND);
}

/* The same if the device is known, and no Scalar must be checked. */
static core_status call_factory(core_operator *op, const core_value *args,
                                uint32_t nargs, core_value *results,
                                uint32_t nresults)
{
    core__thread *self = core__self_pointer;
    const core_value *place = &args[op->place];
    core_device *device = NULL;

    if (core__likely(self && !op->numbers))
        device = place->tag == CORE_VALUE_DEVICE && place->u.device
                     ? place->u.device
                     : core__device_current_known(self);
    if (core__unlikely(!device))
        return call_factory_general(op, args, nargs, results, nresults);
    return call_with(op, args, nargs, results, nresults, self,
                     self->state | device->keys | CORE__KEY_BACKEND);
}

/* Indexed by core_operator.key_path. */
static core_status (*const calls[])(core_operator *op, const core_value *args,
                                    uint32_t nargs, core_value *results,
                                    uint32_t nresults) = {
    [CORE__KEY_PATH_NONE] = call_general,
    [CORE__KEY_PATH_ONE] = call_one,
    [CORE__KEY_PATH_TWO] = call_two,
    [CORE__KEY_PATH_OUT] = call_out,
    [CORE__KEY_PATH_ANY] = call_any,
    [CORE__KEY_PATH_FACTORY] = call_factory,
};

core_status core__call(core_operator *op, const core_value *args,
                       uint32_t nargs, core_value *results, uint32_t nresults)
{
    uint8_t key_path = __atomic_load_n(&op->key_path, __ATOMIC_ACQUIRE);

    return calls[key_path](op, args, nargs, results, nresults);
}

core_status core__redispatch(core_operator *op, uint64_t keys,
                             const core_value *args, uint32_t nargs,
                             core_value *results, uint32_t nresults)
{
    keys &= core__operator_mask(op);
    if (core__unlikely(keys < CORE__KEY_BACKEND))
        return no_keys(op);
    if (core__unlikely(tracing))
        log_step(op, keys);
    return call_by_keys(op, keys, args, nargs, results, nresults);
}

core_status core__trace_layer(core_call *call, const core_value *args,
                              uint32_t nargs, core_value *results,
                              uint32_t nresults)
{
    uint64_t keys = core__keys_below(call->keys, CORE__FUNCTIONALITY_TRACE);
    core__trace_steps *steps = &core__thread_self()->steps;
    core_status status;

    /* The steps of a call that is not traced. */
    keys = core__keys_without_skipped(call->op, keys);
    status = core__redispatch(call->op, keys, args, nargs, results, nresults);
    if (steps->op == call->op)
        write_steps(steps);
    return status;
}

static void set_included(core__thread *thread, void *context)
{
    if (*(bool *)context)
        thread->included |= CORE__KEY_TRACE;
    else
        thread->included &= ~CORE__KEY_TRACE;
}

void core__dispatch_trace_set(bool on)
{
    tracing = on;
    core__thread_self();
    core__thread_included_set(CORE__THREAD_INCLUDED |
                              (on ? CORE__KEY_TRACE : 0));
    core__thread_each(set_included, &on);
}

core_status core_redispatch_below(core_call *call, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults)
{
    CORE__NOT_NULL(call);
    return core__redispatch(
        call->op,
        core__keys_below(call->keys, core__keys_functionality(call->keys)),
        args, nargs, results, nresults);
}

core_status core_op_invoke(uint32_t id, const core_value *args, uint32_t nargs,
                           core_value *results, uint32_t nresults)
{
    if (core__unlikely(id >= CORE_OP_COUNT))
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "this libcore has no operator %u: the program was "
                           "built for a newer one",
                           id);
    return core__call(&core__operators[id], args, nargs, results, nresults);
}

/* The same function under its public name, without another jump. */
core_status core_op_invoke_on(core_operator *op, const core_value *args,
                              uint32_t nargs, core_value *results,
                              uint32_t nresults)
    __attribute__((alias("core__call")));
