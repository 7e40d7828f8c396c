/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The autograd layer and the in-place-or-view layer: what is recorded, and
 * which changes in place are refused. */

#include "autograd/graph/layer.h"

#include "autograd/graph/autograd_ops.h"
#include "autograd/graph/saved.h"
#include "autograd/graph/view.h"
#include "base/thread.h"
#include "dispatch/dispatch.h"
#include "dispatch/schema.h"
#include "dispatch/structured.h"
#include "ops/infer.h"
#include "tensor/dtype.h"

#include <libcore/tensor.h>

/* The arguments that a call changes, as a mask of positions.  Operators that
 * change lists are functional by variant: fused steps. */
static inline uint32_t changed_arguments(const core_operator *op,
                                         uint32_t nargs)
{
    if (core__likely(op->variant == CORE__VARIANT_INPLACE &&
                     !(op->flags & CORE__OP_CUSTOM)))
        return 1;
    return op->variant == CORE__VARIANT_FUNCTIONAL
               ? op->data->writes & op->lists
               : core__operator_changed_arguments(op, nargs);
}

/* Calls the operator below autograd, with autograd excluded, so that operators
 * called from below (by an explicit composite, for example) skip the layer. */
static core_status call_below(core_call *call, core__thread *self,
                              const core_value *args, uint32_t nargs,
                              core_value *results, uint32_t nresults)
{
    uint64_t excluded = self->excluded;
    core_status status;

    self->excluded = excluded | CORE__KEY_AUTOGRAD;
    status = core__redispatch(
        call->op, core__keys_below(call->keys, CORE__FUNCTIONALITY_AUTOGRAD),
        args, nargs, results, nresults);
    self->excluded = excluded;
    return status;
}

/* Finds which gradients are needed, and the number of edges. */
static void collect_needed(core__recording *recording)
{
    const core__gradient *gradient = recording->gradient;

    recording->needed = 0;
    recording->nedges = 0;
    for (uint32_t i = 0; i < gradient->ngradients; i++) {
        const core_value *arg = &recording->args[gradient->arguments[i]];
        uint32_t needed = 0;

        if (core__likely(arg->tag == CORE_VALUE_TENSOR)) {
            needed = core__tensor_needs_grad(arg->u.tensor);
            recording->nedges++;
        } else if (arg->tag == CORE_VALUE_TENSOR_LIST) {
            for (uint32_t j = 0; j < arg->count; j++)
                needed |= arg->u.tensors[j] &&
                          core__tensor_needs_grad(arg->u.tensors[j]);
            recording->nedges += arg->count;
        } else {
            recording->nedges++;
        }
        recording->needed |= needed << i;
    }
}

static void release_results(core_value *results, uint32_t nresults)
{
    for (uint32_t i = 0; i < nresults; i++)
        core_value_release(&results[i]);
}

/* ------------------------------------------------------------ functional -- */

static core_status attach(core_tensor *tensor, core_node *node, uint32_t output)
{
    if (!core__dtype_is_floating(tensor->dtype))
        return CORE_OK;
    core__node_retain(node);
    return core__history_set(tensor, node, output);
}

static core_status attach_all(const core__gradient *gradient, core_node *node,
                              const core_value *results, uint32_t nresults)
{
    uint32_t output = 0;

    for (uint32_t i = 0; i < nresults; i++) {
        const core_value *result = &results[i];
        bool differentiable = !gradient || gradient->results >> i & 1;

        if (result->tag == CORE_VALUE_TENSOR) {
            if (differentiable)
                CORE_TRY(attach(result->u.tensor, node, output));
            output++;
        } else if (result->tag == CORE_VALUE_TENSOR_LIST) {
            for (uint32_t j = 0; j < result->count; j++, output++)
                if (differentiable)
                    CORE_TRY(attach(result->u.tensors[j], node, output));
        } else {
            output++;
        }
    }
    return CORE_OK;
}

static bool any_floating(const core_value *results, uint32_t nresults)
{
    for (uint32_t i = 0; i < nresults; i++) {
        const core_value *result = &results[i];

        if (result->tag == CORE_VALUE_TENSOR &&
            core__dtype_is_floating(result->u.tensor->dtype))
            return true;
        if (result->tag == CORE_VALUE_TENSOR_LIST && result->count &&
            core__dtype_is_floating(result->u.tensors[0]->dtype))
            return true;
    }
    return false;
}

static core_status record_functional(core_call *call, core__thread *self,
                                     core__recording *recording,
                                     const core_value *args, uint32_t nargs,
                                     core_value *results, uint32_t nresults)
{
    core_node *node = NULL;
    core_status status = call_below(call, self, args, nargs, results, nresults);

    if (core__unlikely(status != CORE_OK))
        return status;
    if (core__unlikely(!any_floating(results, nresults)))
        return CORE_OK;
    /* A view operator may return its argument, which records nothing. */
    if (core__unlikely(call->op->flags & CORE__OP_IDENTITY_VIEW) &&
        results[0].tag == CORE_VALUE_TENSOR &&
        args[0].tag == CORE_VALUE_TENSOR &&
        results[0].u.tensor == args[0].u.tensor)
        return CORE_OK;
    status = core__record_operator(recording, results, nresults, &node);
    if (core__likely(status == CORE_OK))
        status = attach_all(recording->gradient, node, results, nresults);
    core__node_release(node);
    if (core__unlikely(status != CORE_OK)) {
        core__error_prefix("%s", core__operator_name(call->op));
        release_results(results, nresults);
    }
    return status;
}

/* --------------------------------------------------------------- in place -- */

core_status core__in_place_check(const char *name, const core_tensor *self)
{
    const core_tensor *base = self->base;

    if (core__tensor_requires_grad(self) && core__tensor_is_leaf(self) &&
        self->flags & CORE__TENSOR_TRACED)
        return core__error(CORE_ERROR_AUTOGRAD,
                           "%s: the tensor is a leaf that requires grad, or an "
                           "input that does of a function that is recorded; "
                           "neither can be changed in place in grad mode "
                           "(core_clone makes a copy that can)",
                           name);
    if (core__tensor_requires_grad(self) && core__tensor_is_leaf(self))
        return core__error(CORE_ERROR_AUTOGRAD,
                           "%s: the tensor is a leaf that requires grad, which "
                           "cannot be changed in place in grad mode",
                           name);
    if (!base)
        return CORE_OK;
    if (self->flags & CORE__TENSOR_VIEW_INFERENCE)
        return core__error(
            CORE_ERROR_AUTOGRAD,
            "%s: the view was created in inference mode, so its relation to "
            "its base is unknown and a change in place cannot be recorded",
            name);
    if (self->flags & CORE__TENSOR_VIEW_NO_GRAD)
        return core__error(
            CORE_ERROR_AUTOGRAD,
            "%s: the view was created with grad mode off, so a change in place "
            "cannot be recorded; create the view with grad mode on, or change "
            "it with grad mode off",
            name);
    if (self->flags & CORE__TENSOR_VIEW_MULTIPLE)
        return core__error(
            CORE_ERROR_AUTOGRAD,
            "%s: the view is one of several that one operator returned, whose "
            "changes in place cannot be recorded; create the views one by one",
            name);
    if (self->flags & CORE__TENSOR_VIEW_FUNCTION)
        return core__error(
            CORE_ERROR_AUTOGRAD,
            "%s: the view was returned by a custom function, whose backward a "
            "change in place would bypass; clone the view first",
            name);
    if (core__tensor_requires_grad(base) && core__tensor_is_leaf(base))
        return core__error(
            CORE_ERROR_AUTOGRAD,
            "%s: the tensor is a view of a leaf that requires grad, which "
            "cannot be changed in place in grad mode",
            name);
    return CORE_OK;
}

/* Copies what the formula needs and the change will overwrite. */
static core_status copy_before(const core__recording *recording,
                               const core_tensor *self, core_tensor **before)
{
    const core__gradient *gradient = recording->gradient;

    for (uint32_t i = 0; i < gradient->nsaved; i++) {
        const core__saving *saving = &gradient->saved[i];
        const core_value *arg = &recording->args[saving->position];

        before[i] = NULL;
        if (saving->kind == CORE__SAVE_ARGUMENT &&
            saving->needed_by & recording->needed &&
            arg->tag == CORE_VALUE_TENSOR &&
            arg->u.tensor->storage == self->storage)
            CORE_TRY(core__autograd_op_clone(arg->u.tensor, &before[i]));
    }
    return CORE_OK;
}

static uint32_t edge_of_self(const core__gradient *gradient)
{
    for (uint32_t i = 0; gradient && i < gradient->ngradients; i++)
        if (gradient->arguments[i] == 0)
            return i; /* lists follow self */
    return UINT32_MAX;
}

static core_status record_in_place(core_call *call, core__thread *self,
                                   core__recording *recording,
                                   const core_value *args, uint32_t nargs,
                                   core_value *results, uint32_t nresults)
{
    core_tensor *target = args[0].u.tensor;
    core_tensor *before[CORE__SAVED_MAX] = {0};
    uint64_t excluded = self->excluded;
    core_node *node = NULL;
    core_status status;

    CORE_TRY(core__in_place_check(core__operator_name(call->op), target));
    CORE_TRY(core__view_check(core__operator_name(call->op), target));
    self->excluded |= CORE__KEY_AUTOGRAD;
    status =
        recording->gradient ? copy_before(recording, target, before) : CORE_OK;
    self->excluded = excluded;
    if (status == CORE_OK)
        status = call_below(call, self, args, nargs, results, nresults);
    recording->before = before;
    if (status == CORE_OK) {
        status = core__record_operator(recording, &args[0], 1, &node);
        if (status != CORE_OK)
            core__error_prefix("%s", core__operator_name(call->op));
    }
    recording->before = NULL;
    if (status == CORE_OK) {
        if (target->base)
            status = core__view_rebase(target, node,
                                       edge_of_self(recording->gradient));
        else
            status = core__history_replace(target, node, 0);
    }
    for (uint32_t i = 0; i < CORE__SAVED_MAX; i++)
        core__tensor_release(before[i]);
    if (status != CORE_OK)
        release_results(results, nresults);
    return status;
}

/* A view operator in place: the tensor becomes its own view, and its base, if
 * any, does not change.  The node is created first, since the formula needs the
 * old layout. */
static core_status record_relayout(core_call *call, core__thread *self,
                                   core__recording *recording,
                                   const core_value *args, uint32_t nargs,
                                   core_value *results, uint32_t nresults)
{
    const core_operator *op = call->op;
    core_tensor *target = args[0].u.tensor;
    core_value view = {0};
    core_node *node = NULL;
    core_status status;

    CORE_TRY(core__in_place_check(core__operator_name(op), target));
    CORE_TRY(
        core__operator_base(op)->data->function(call, args, nargs, &view, 1));
    status = core__record_operator(recording, &view, 1, &node);
    core_value_release(&view);
    if (status == CORE_OK)
        status = call_below(call, self, args, nargs, results, nresults);
    if (status != CORE_OK) {
        core__node_release(node);
        return status;
    }
    status = core__history_replace_layout(target, node);
    if (status != CORE_OK)
        release_results(results, nresults);
    return status;
}

/* ------------------------------------------------------------------ layers -- */

/* The position of the first argument that requires grad; nargs: none.  Even if
 * no argument has the bit, one may be a view whose base has a history now. */
static uint32_t first_requiring_grad(const core_value *args, uint32_t nargs)
{
    for (uint32_t i = 0; i < nargs; i++) {
        if (args[i].tag == CORE_VALUE_TENSOR) {
            if (core__tensor_needs_grad(args[i].u.tensor))
                return i;
        } else if (args[i].tag == CORE_VALUE_TENSOR_LIST) {
            for (uint32_t j = 0; j < args[i].count; j++)
                if (args[i].u.tensors[j] &&
                    core__tensor_needs_grad(args[i].u.tensors[j]))
                    return i;
        }
    }
    return nargs;
}

static core_status refuse_out(const core_operator *op, const core_value *args,
                              uint32_t nargs)
{
    return core__error(
        CORE_ERROR_AUTOGRAD,
        "%s: the argument %s requires grad, but a call that writes into given "
        "tensors cannot be recorded; call %s, or turn grad mode off",
        core__operator_name(op),
        core__argument_name(op, first_requiring_grad(args, nargs)),
        core__operator_name(core__operator_base(op)));
}

static core_status call_unrecorded(core_call *call, core__thread *self,
                                   const core_value *args, uint32_t nargs,
                                   core_value *results, uint32_t nresults)
{
    core_status status = call_below(call, self, args, nargs, results, nresults);

    if (core__unlikely(call->op->family == CORE__FAMILY_VIEW) &&
        status == CORE_OK && !self->no_grad && nresults > 0 &&
        results[0].tag == CORE_VALUE_TENSOR && results[0].u.tensor->base)
        results[0].u.tensor->keys |= CORE__KEYS_VIEW;
    return status;
}

static core_status record(core_call *call, core__thread *self,
                          const core_value *args, uint32_t nargs,
                          core_value *results, uint32_t nresults)
{
    const core_operator *op = call->op, *base = core__operator_base(op);
    bool in_place = op->variant == CORE__VARIANT_INPLACE;
    core__recording recording;

    if (core__unlikely(op->variant == CORE__VARIANT_OUT))
        return refuse_out(op, args, nargs);
    recording.op = op;
    recording.gradient = base->data->gradient;
    recording.args = args;
    recording.before = NULL;
    recording.needed = 0;
    recording.nedges = 0;
    if (core__likely(recording.gradient != NULL))
        collect_needed(&recording);
    else if (!base->data->no_gradient && !in_place)
        return call_below(call, self, args, nargs, results, nresults);
    if (core__unlikely(in_place)) {
        core_tensor *target = args[0].u.tensor;

        if (core__dtype_is_floating(target->dtype) &&
            (recording.needed || !recording.gradient ||
             core__tensor_needs_grad(target)))
            return (op->family == CORE__FAMILY_VIEW ? record_relayout
                                                    : record_in_place)(
                call, self, &recording, args, nargs, results, nresults);
        return call_below(call, self, args, nargs, results, nresults);
    }
    if (core__unlikely(!recording.needed && recording.gradient))
        return call_below(call, self, args, nargs, results, nresults);
    return record_functional(call, self, &recording, args, nargs, results,
                             nresults);
}

/* Views that cannot follow their base: the base's history would miss a change
 * of one in place, whatever the operand is. */
static core_status check_unknown_views(const core_operator *op,
                                       const core_value *args, uint32_t nargs)
{
    for (uint32_t left = changed_arguments(op, nargs); left; left &= left - 1) {
        const core_value *arg = &args[__builtin_ctz(left)];

        if (arg->tag == CORE_VALUE_TENSOR &&
            arg->u.tensor->flags & CORE__TENSOR_VIEW_UNKNOWN &&
            core__tensor_requires_grad(arg->u.tensor->base))
            CORE_TRY(
                core__in_place_check(core__operator_name(op), arg->u.tensor));
    }
    return CORE_OK;
}

core_status core__autograd_layer(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults)
{
    core__thread *self = core__thread_self();

    if (self->no_grad || core__likely(!(call->keys & (CORE__KEYS_REQUIRES_GRAD |
                                                      CORE__KEYS_VIEW))))
        return call_unrecorded(call, self, args, nargs, results, nresults);
    if (core__unlikely(call->keys & CORE__KEYS_VIEW) &&
        call->op->variant != CORE__VARIANT_FUNCTIONAL)
        CORE_TRY(check_unknown_views(call->op, args, nargs));
    if (!(call->keys & CORE__KEYS_REQUIRES_GRAD) &&
        first_requiring_grad(args, nargs) == nargs)
        return call_unrecorded(call, self, args, nargs, results, nresults);
    return record(call, self, args, nargs, results, nresults);
}

static core_status refuse_inference(const core_operator *op)
{
    return core__error(
        CORE_ERROR_AUTOGRAD,
        "%s: the tensor was created in inference mode and cannot be changed "
        "outside of it; clone it in normal mode first",
        core__operator_name(op));
}

static core_status refuse_read_only(const core_operator *op)
{
    return core__error(CORE_ERROR_REFUSED,
                       "%s: the tensor's memory was imported as read-only and "
                       "cannot be changed; clone the tensor first",
                       core__operator_name(op));
}

static core_status check_changed(const core_operator *op,
                                 const core_tensor *tensor)
{
    if (tensor->flags & CORE__TENSOR_INFERENCE &&
        !core__thread_self()->inference)
        return refuse_inference(op);
    if (core__unlikely(tensor->flags & CORE__TENSOR_READ_ONLY))
        return refuse_read_only(op);
    return CORE_OK;
}

/* The tensors of an argument, which may be one or a list. */
static core_tensor *const *tensors_of(const core_value *arg,
                                      uint32_t *out_count)
{
    *out_count = arg->tag == CORE_VALUE_TENSOR        ? 1
                 : arg->tag == CORE_VALUE_TENSOR_LIST ? arg->count
                                                      : 0;
    return arg->tag == CORE_VALUE_TENSOR ? &arg->u.tensor : arg->u.tensors;
}

static inline core_status check_changes(const core_operator *op,
                                        const core_value *args,
                                        uint32_t changed)
{
    uint32_t count;

    for (uint32_t left = changed; left; left &= left - 1) {
        core_tensor *const *tensors =
            tensors_of(&args[__builtin_ctz(left)], &count);

        for (uint32_t k = 0; k < count; k++)
            if (tensors[k])
                CORE_TRY(check_changed(op, tensors[k]));
    }
    return CORE_OK;
}

static inline void count_changes(const core_value *args, uint32_t changed)
{
    uint32_t count;

    for (uint32_t left = changed; left; left &= left - 1) {
        core_tensor *const *tensors =
            tensors_of(&args[__builtin_ctz(left)], &count);

        for (uint32_t k = 0; k < count; k++)
            if (tensors[k])
                core__tensor_bump_version(tensors[k]);
    }
}

core_status core__changes_check(const core_operator *op, const core_value *args,
                                uint32_t nargs)
{
    return check_changes(op, args, changed_arguments(op, nargs));
}

void core__changes_count(const core_operator *op, const core_value *args,
                         uint32_t nargs)
{
    count_changes(args, changed_arguments(op, nargs));
}

core_status core__inplace_or_view_layer(core_call *call, const core_value *args,
                                        uint32_t nargs, core_value *results,
                                        uint32_t nresults)
{
    uint32_t changed = changed_arguments(call->op, nargs);

    CORE_TRY(check_changes(call->op, args, changed));
    CORE_TRY(core__redispatch(
        call->op,
        core__keys_below(call->keys, CORE__FUNCTIONALITY_INPLACE_OR_VIEW), args,
        nargs, results, nresults));
    count_changes(args, changed);
    return CORE_OK;
}
