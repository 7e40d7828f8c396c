/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Pushing and popping modes, and their dispatch layer. */

#include "dispatch/mode_stack.h"

#include "base/memory.h"
#include "dispatch/dispatch.h"
#include "dispatch/schema.h"
#include "dispatch/structured.h"

#include <libcore/tensor.h>

#include <string.h>

struct core__mode {
    uint64_t number; /* its handle */
    core_function function;
    void *user;
    void (*release)(void *user);
    uint32_t depth;          /* the thread's mode_depth when it was pushed */
    uint32_t backward_depth; /* likewise */
    core__mode *outer;       /* the next one to see a call */
    core__mode *before;      /* pushed before it in this thread */
};

static uint32_t functionality_of(uint32_t level)
{
    return level == CORE_MODE_API ? CORE__FUNCTIONALITY_MODE_API
                                  : CORE__FUNCTIONALITY_MODE_BELOW_AUTOGRAD;
}

static void set_active(core__thread *self, uint32_t level, core__mode *mode)
{
    uint32_t key = (uint32_t)CORE__KEY(functionality_of(level));

    self->modes[level] = mode;
    if (mode)
        self->included |= key;
    else
        self->included &= ~key;
}

/* ------------------------------------------------------- push and pop -- */

core_status core__mode_push(const char *caller, uint32_t level,
                            core_function function, void *user,
                            void (*release)(void *user), core_mode **out_mode)
{
    static _Atomic uint64_t numbers;
    core__thread *self = core__thread_self();
    core_status status = CORE_OK;
    core__mode *mode = NULL;

    *out_mode = NULL;
    if (level >= CORE__MODE_LEVELS)
        status =
            core__error(CORE_ERROR_INVALID_ARGUMENT,
                        "%s: the level is %u; accepted: CORE_MODE_API "
                        "(%u) and CORE_MODE_BELOW_AUTOGRAD (%u)",
                        caller, level, CORE_MODE_API, CORE_MODE_BELOW_AUTOGRAD);
    else if (self->shared || !(mode = core__alloc(sizeof *mode)))
        status = core__error_memory(sizeof *mode);
    if (status != CORE_OK) {
        if (release)
            release(user);
        return status;
    }
    *mode = (core__mode){.number = atomic_fetch_add(&numbers, 1) + 1,
                         .function = function,
                         .user = user,
                         .release = release,
                         .depth = self->mode_depth,
                         .backward_depth = self->backward_depth,
                         .outer = self->modes[level],
                         .before = self->pushed_modes[level]};
    self->pushed_modes[level] = mode;
    set_active(self, level, mode);
    *out_mode = (core_mode *)(uintptr_t)mode->number;
    return CORE_OK;
}

core_status core_mode_push(uint32_t level, core_function function, void *user,
                           core_mode **out_mode)
{
    CORE__NOT_NULL(out_mode);
    *out_mode = NULL;
    CORE__NOT_NULL(function);
    return core__mode_push(__func__, level, function, user, NULL, out_mode);
}

/* Frees the mode that this thread has pushed last. */
static void drop_pushed(core__thread *self, uint32_t level)
{
    core__mode *mode = self->pushed_modes[level];

    self->pushed_modes[level] = mode->before;
    if (mode->release)
        mode->release(mode->user);
    core__free(mode);
}

static bool is_deeper(const core__mode *newest, const core_mode *handle)
{
    while (newest && newest->number != (uintptr_t)handle)
        newest = newest->before;
    return newest != NULL;
}

core_status core_mode_pop(core_mode *mode)
{
    core__thread *self = core__thread_self();
    core__mode *found = NULL;
    uint32_t level;

    CORE__NOT_NULL(mode);
    for (level = 0; level < CORE__MODE_LEVELS; level++) {
        found = self->pushed_modes[level];
        if (is_deeper(found, mode))
            break;
    }
    if (level == CORE__MODE_LEVELS)
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "core_mode_pop: this thread has not pushed the mode, "
            "or has popped it already");
    if (found->number != (uintptr_t)mode)
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "core_mode_pop: the mode is not the innermost one of "
            "its level; modes that were pushed after it are "
            "popped first");
    if (found->depth < self->mode_depth)
        return core__error(CORE_ERROR_REFUSED,
                           "core_mode_pop: the mode was pushed before the "
                           "running call of a mode, and can be popped when "
                           "that call has returned");
    if (found->backward_depth < self->backward_depth)
        return core__error(CORE_ERROR_REFUSED,
                           "core_mode_pop: a backward is running under the "
                           "mode, which can be popped when it has ended");
    set_active(self, level, found->outer);
    drop_pushed(self, level);
    return CORE_OK;
}

/* ------------------------------------------------------ other threads -- */

core__modes core__modes_of(const core__thread *self)
{
    core__modes modes;

    memcpy(modes.active, self->modes, sizeof modes.active);
    memcpy(modes.pushed, self->pushed_modes, sizeof modes.pushed);
    return modes;
}

void core__modes_enter(core__thread *self, const core__modes *modes,
                       core__modes *out_before)
{
    *out_before = core__modes_of(self);
    memcpy(self->modes, modes->active, sizeof self->modes);
    self->mode_depth++;
}

bool core__modes_leave(core__thread *self, const core__modes *before)
{
    bool all = true;

    self->mode_depth--;
    memcpy(self->modes, before->active, sizeof self->modes);
    for (uint32_t level = 0; level < CORE__MODE_LEVELS; level++)
        while (self->pushed_modes[level] != before->pushed[level]) {
            drop_pushed(self, level);
            all = false;
        }
    return all;
}

core_status core__modes_left_error(void)
{
    return core__error(CORE_ERROR_INVALID_ARGUMENT,
                       "a function or hook of a backward pushed a mode and "
                       "returned without popping it");
}

core_status core__modes_backward_end(core__thread *self, core_status status)
{
    bool all = true;

    for (uint32_t level = 0; level < CORE__MODE_LEVELS; level++) {
        core__mode *mode;

        while ((mode = self->pushed_modes[level]) != NULL &&
               mode->backward_depth >= self->backward_depth) {
            set_active(self, level, mode->outer);
            drop_pushed(self, level);
            all = false;
        }
    }
    return all || status != CORE_OK ? status : core__modes_left_error();
}

void core__modes_thread_end(core__thread *self)
{
    for (uint32_t level = 0; level < CORE__MODE_LEVELS; level++) {
        set_active(self, level, NULL);
        while (self->pushed_modes[level])
            drop_pushed(self, level);
    }
}

/* ------------------------------------------------------------- results -- */

static bool contains(const core_value *value, const core_tensor *tensor)
{
    if (value->tag == CORE_VALUE_TENSOR)
        return value->u.tensor == tensor;
    for (uint32_t i = 0;
         value->tag == CORE_VALUE_TENSOR_LIST && i < value->count; i++)
        if (value->u.tensors[i] == tensor)
            return true;
    return false;
}

static bool is_argument(const core_value *args, uint32_t nargs,
                        const core_tensor *tensor)
{
    for (uint32_t i = 0; i < nargs; i++)
        if (contains(&args[i], tensor))
            return true;
    return false;
}

/* Whether it is the changed argument of this alias. */
static bool is_changed_argument(const core__schema *schema,
                                const core_value *args, uint32_t nargs,
                                const char *alias, const core_tensor *tensor)
{
    for (uint32_t i = 0; i < schema->narguments && i < nargs; i++)
        if (schema->arguments[i].mutated && contains(&args[i], tensor) &&
            strcmp(schema->arguments[i].alias, alias) == 0)
            return true;
    return false;
}

static const char *fault_of_tensor(const core_operator *op, uint32_t level,
                                   const core__schema *schema,
                                   const core__schema_result *expected,
                                   const core_value *args, uint32_t nargs,
                                   const core_tensor *tensor)
{
    if (expected->mutated)
        return is_changed_argument(schema, args, nargs, expected->alias, tensor)
                   ? NULL
                   : "another tensor than the changed argument";
    if (level != CORE_MODE_BELOW_AUTOGRAD)
        return NULL;
    if (is_argument(args, nargs, tensor))
        return op->flags & CORE__OP_IDENTITY_VIEW
                   ? NULL
                   : "an argument, which autograd would take for a new tensor";
    return tensor->keys & CORE__KEYS_REQUIRES_GRAD
               ? "a tensor that requires grad, which is below autograd"
               : NULL;
}

static bool is_number(uint32_t tag)
{
    return tag == CORE_VALUE_INT || tag == CORE_VALUE_FLOAT ||
           tag == CORE_VALUE_BOOL;
}

/* What is wrong with a result, or NULL.  One of several may be absent. */
static const char *fault_of(const core_operator *op, uint32_t level,
                            const core__schema *schema, uint32_t i,
                            const core_value *args, uint32_t nargs,
                            const core_value *result)
{
    const core__schema_result *expected = &schema->results[i];

    if (result->tag == CORE_VALUE_NONE)
        return schema->nresults > 1 && !expected->mutated ? NULL : "nothing";
    if (is_number(expected->tag) && is_number(result->tag))
        return NULL;
    if (result->tag != expected->tag)
        return "a value of another type";
    if (result->tag == CORE_VALUE_TENSOR)
        return result->u.tensor ? fault_of_tensor(op, level, schema, expected,
                                                  args, nargs, result->u.tensor)
                                : "NULL";
    for (uint32_t k = 0;
         result->tag == CORE_VALUE_TENSOR_LIST && k < result->count; k++) {
        const char *fault = "a list with NULL";

        if (result->u.tensors[k])
            fault = fault_of_tensor(op, level, schema, expected, args, nargs,
                                    result->u.tensors[k]);
        if (fault)
            return fault;
    }
    return NULL;
}

static core_status check_results(core_operator *op, uint32_t level,
                                 const core_value *args, uint32_t nargs,
                                 const core_value *results, uint32_t nresults)
{
    const core__schema *schema;
    bool any = false;

    if (nresults == 0)
        return CORE_OK;
    CORE_TRY(core__schema_of(op, &schema));
    for (uint32_t i = 0; i < nresults && i < schema->nresults; i++) {
        const char *fault =
            fault_of(op, level, schema, i, args, nargs, &results[i]);

        any = any || results[i].tag != CORE_VALUE_NONE;
        if (fault)
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "%s: a mode returned %s as result %u. The "
                               "schema is %s",
                               core__operator_name(op), fault, i + 1,
                               op->data->schema);
    }
    if (any)
        return CORE_OK;
    return core__error(CORE_ERROR_INVALID_ARGUMENT,
                       "%s: a mode returned no results. The schema is %s",
                       core__operator_name(op), op->data->schema);
}

/* --------------------------------------------------------------- layer -- */

/* Passes a call on below the level, with the keys that its arguments have now:
 * a mode may have changed them. */
static core_status pass_below(core_operator *op, uint32_t functionality,
                              const core_value *args, uint32_t nargs,
                              core_value *results, uint32_t nresults)
{
    const core__thread *self = core__thread_self();
    uint64_t keys;

    if (nargs != op->nargs)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: a mode passed %u arguments on; the operator "
                           "has %u. The schema is %s",
                           core__operator_name(op), nargs, op->nargs,
                           op->data->schema);
    CORE_TRY(core__keys_of(op, args, nargs, &keys));
    CORE_TRY(core__numbers_check_tags(op, args, nargs));
    keys |= self->included |
            atomic_load_explicit(&core__keys_everywhere, memory_order_relaxed);
    keys = core__keys_below(keys & ~(uint64_t)self->excluded, functionality);
    /* The steps of a call without modes. */
    keys = core__keys_without_skipped(op, keys);
    return core__redispatch(op, keys, args, nargs, results, nresults);
}

/* A mode may return an error without setting a message, while an older message
 * or that of another error is still there. */
static core_status status_of(const core_operator *op, uint32_t errors,
                             core_status status)
{
    if (status == CORE_OK ||
        (core__error_sequence() != errors && core_error_code() == status))
        return status;
    return core__error(status, "%s: a mode returned %s",
                       core__operator_name(op), core_status_name(status));
}

static core_status run(core__thread *self, core__mode *mode, uint32_t level,
                       core_call *call, const core_value *args, uint32_t nargs,
                       core_value *results, uint32_t nresults)
{
    uint32_t functionality = functionality_of(level);
    uint32_t errors = self->error.sequence;
    const core__modes before = core__modes_of(self);
    uint64_t state = self->state;
    core_status status;
    core_call own;
    bool popped;

    memcpy(&own, call, CORE__FUNCTION_CALL_SIZE);
    own.user = mode->user;
    /* What is below this set has the level's key: core_redispatch_below leads
     * back to the layer, and to the next mode outside. */
    own.keys = call->keys | CORE__KEY(functionality + 1);
    set_active(self, level, mode->outer);
    self->mode_depth++;
    if (level == CORE_MODE_BELOW_AUTOGRAD)
        self->excluded |= CORE__KEY_AUTOGRAD | CORE__KEY_AUTOCAST;
    status = mode->function(&own, args, nargs, results, nresults);
    status = status_of(call->op, errors, status);
    popped = core__modes_leave(self, &before);
    self->state = state;
    if (status == CORE_OK && !popped)
        status = core__error(CORE_ERROR_INVALID_ARGUMENT,
                             "%s: a mode pushed another one and returned "
                             "without popping it",
                             core__operator_name(call->op));
    if (status == CORE_OK)
        status = check_results(call->op, level, args, nargs, results, nresults);
    for (uint32_t i = 0; status != CORE_OK && i < nresults; i++) {
        core_value_release(&results[i]);
        results[i] = (core_value){0};
    }
    return status;
}

core_status core__mode_layer(core_call *call, const core_value *args,
                             uint32_t nargs, core_value *results,
                             uint32_t nresults)
{
    core__thread *self = core__thread_self();
    uint32_t functionality = core__keys_functionality(call->keys);
    uint32_t level = functionality == CORE__FUNCTIONALITY_MODE_API
                         ? CORE_MODE_API
                         : CORE_MODE_BELOW_AUTOGRAD;
    core__mode *mode = self->modes[level];

    if (mode)
        return run(self, mode, level, call, args, nargs, results, nresults);
    return pass_below(call->op, functionality, args, nargs, results, nresults);
}
