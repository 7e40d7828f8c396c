/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The layer FUNCTIONALIZE: views, and changes in place. */

#include "compile/record/trace.h"

#include "base/thread.h"
#include "device/device.h"
#include "dispatch/dispatch.h"
#include "dispatch/inference.h"
#include "dispatch/schema.h"
#include "dispatch/structured.h"
#include "ops_ids.h"
#include "tensor/layout.h"

#include <string.h>

/* --------------------------------------------------------------- views -- */

static core_status __attribute__((cold))
refuse_relayout(const core_operator *op)
{
    return core__error(CORE_ERROR_UNSUPPORTED,
                       "%s: it changes the layout of a tensor that the program "
                       "only refers to, which cannot be recorded",
                       core__operator_name(op));
}

/* A view operator in place gives the tensor itself another layout. */
static core_status relayout(core__trace *trace, core_call *call,
                            const core_value *args, uint32_t nargs,
                            core_value *results, uint32_t nresults)
{
    core_operator *base =
        (core_operator *)(uintptr_t)core__operator_base(call->op);
    core_tensor *tensor = args[0].u.tensor;
    core__traced_storage *traced;
    uint32_t parent;

    if (!(tensor->flags & CORE__TENSOR_TRACED))
        return refuse_relayout(call->op);
    CORE_TRY(core__traced_find(trace, call->op, tensor, &traced, &parent));
    CORE_TRY(core__redispatch(
        call->op, core__keys_below(call->keys, CORE__FUNCTIONALITY_RECORD),
        args, nargs, results, nresults));
    trace->changes +=
        base->id != CORE_OP_AS_STRIDED; /* it cannot be repeated */
    return core__traced_add_view(trace, traced, parent, base, args, nargs,
                                 tensor);
}

static core_status make_view(core__trace *trace, core_call *call,
                             const core_value *args, uint32_t nargs,
                             core_value *results, uint32_t nresults)
{
    core_tensor *source = args[0].u.tensor;
    core__traced_storage *traced;
    core_status status;
    uint32_t parent;

    CORE_TRY(core__traced_find(trace, call->op, source, &traced, &parent));
    CORE_TRY(core__redispatch(
        call->op, core__keys_below(call->keys, CORE__FUNCTIONALITY_RECORD),
        args, nargs, results, nresults));
    if (nresults == 0 ||
        (results[0].tag == CORE_VALUE_TENSOR && results[0].u.tensor == source))
        return CORE_OK;
    if (results[0].tag == CORE_VALUE_TENSOR_LIST)
        status =
            core__traced_add_views(trace, traced, parent, call->op, args, nargs,
                                   results[0].u.tensors, results[0].count);
    else
        status = core__traced_add_view(trace, traced, parent, call->op, args,
                                       nargs, results[0].u.tensor);
    if (status != CORE_OK)
        core_value_release(&results[0]);
    return status;
}

/* -------------------------------------------------------------- writes -- */

/* core__layout_overlap, also for a stand-in and the input that it stands for. */
static core_status find_overlap(core__trace *trace, const core_operator *op,
                                core_tensor *a, core_tensor *b,
                                core__overlap *out)
{
    core_tensor *stands = a->flags & CORE__TENSOR_TRACED ? a : b;
    core_tensor *real = stands == a ? b : a, *alias;
    core__traced_storage *of_a, *of_b;
    uint32_t view;

    *out = core__layout_overlap(a, b);
    if (!((a->flags ^ b->flags) & CORE__TENSOR_TRACED))
        return CORE_OK;
    CORE_TRY(core__traced_find(trace, op, a, &of_a, &view));
    CORE_TRY(core__traced_find(trace, op, b, &of_b, &view));
    if (of_a != of_b)
        return CORE_OK;
    CORE_TRY(core__tensor_alias(stands, real->dtype, real->ndim, real->sizes,
                                real->strides, real->offset, &alias));
    *out = core__layout_overlap(alias, stands);
    core__tensor_release(alias);
    return CORE_OK;
}

/* True if a call refuses that this argument shares memory with its target. */
static bool is_checked(const core_operator *op, uint32_t position)
{
    if (op->variant == CORE__VARIANT_OUT)
        return true;
    for (uint32_t k = 0; k < op->data->operands; k++)
        if (op->family == CORE__FAMILY_ELEMENTWISE &&
            op->data->operand[k] == position)
            return true;
    return false;
}

/* The operator's checks of shared memory, which stand-ins on meta do not
 * share. */
static core_status check_memory(core__trace *trace, const core_operator *op,
                                const core_value *args, uint32_t nargs)
{
    uint32_t written = core__operator_changed_arguments(op, nargs);

    CORE_TRY(core__overlap_check(op, args, nargs));
    for (uint32_t left = written; left; left &= left - 1) {
        uint32_t i = (uint32_t)__builtin_ctz(left);

        for (uint32_t k = 0; k < nargs; k++) {
            core__overlap overlap;

            if (k == i || !is_checked(op, k) ||
                args[i].tag != CORE_VALUE_TENSOR ||
                args[k].tag != CORE_VALUE_TENSOR)
                continue;
            CORE_TRY(find_overlap(trace, op, args[i].u.tensor, args[k].u.tensor,
                                  &overlap));
            if (overlap == CORE__OVERLAP_PARTIAL ||
                (overlap == CORE__OVERLAP_SAME && written >> k & 1))
                return core__overlap_shared_error(op, i, k);
        }
    }
    return CORE_OK;
}

/* True for tensors of the same sizes. */
static bool same_sizes(const core_tensor *a, const core_tensor *b)
{
    return a->ndim == b->ndim &&
           memcmp(a->sizes, b->sizes, a->ndim * sizeof *a->sizes) == 0;
}

/* The checks that the operator makes on meta: dtypes and sizes. */
static core_status check_on_meta(core_operator *op, const core_value *args,
                                 uint32_t nargs)
{
    core_value meta[CORE__SCHEMA_ARGUMENTS], results[CORE__SCHEMA_RESULTS];
    core_tensor *owned[CORE__SCHEMA_ARGUMENTS] = {NULL};
    core_status status = CORE_OK;
    uint64_t draws;

    for (uint32_t i = 0; i < nargs && status == CORE_OK; i++) {
        core_tensor *tensor = args[i].u.tensor;

        meta[i] = args[i];
        if (args[i].tag != CORE_VALUE_TENSOR)
            continue;
        status =
            core__tensor_new(&core__meta_device, tensor->dtype, tensor->ndim,
                             tensor->sizes, tensor->strides, &owned[i]);
        meta[i].u.tensor = owned[i];
    }
    if (status == CORE_OK) {
        status =
            core__program_infer(op, meta, nargs, results, op->nresults, &draws);
        for (uint32_t i = 0; i < op->nresults; i++)
            core_value_release(&results[i]);
    }
    for (uint32_t i = 0; i < nargs; i++) {
        if (status == CORE_OK && owned[i] &&
            !same_sizes(owned[i], args[i].u.tensor))
            status = core__op_error(CORE_ERROR_UNSUPPORTED, op,
                                    "it resizes the tensor given as %s, which "
                                    "cannot be recorded",
                                    core__argument_name(op, i));
        core__tensor_release(owned[i]);
    }
    return status;
}

/* Stores a result in a tensor that may have another dtype or other strides. */
static core_status store(core__trace *trace, core_operator *op,
                         uint32_t position, core_tensor *target,
                         core_tensor *result)
{
    core__program_argument args[3] = {{CORE_VALUE_TENSOR, 0, {0}},
                                      {CORE_VALUE_TENSOR, 0, {0}},
                                      {CORE_VALUE_BOOL, 0, {0}}};
    core__program_type type;
    uint32_t value;

    CORE_TRY(core__target_check(op, position, target, result->device));
    CORE_TRY(core__traced_read(trace, op, result, &value));
    if (result->dtype != target->dtype) {
        CORE_TRY(core__traced_read(trace, op, target, &args[0].u.value));
        args[1].u.value = value;
        type = trace->program->values[args[0].u.value].type;
        CORE_TRY(core__trace_append(trace, &core__operators[CORE_OP_COPY_],
                                    args, 3, 1, &type, &value));
    }
    return core__traced_write(trace, op, target, value);
}

/* The functional operator, and a write of its results. */
static core_status by_results(core__trace *trace, core_call *call,
                              const core_value *args, uint32_t nargs)
{
    core_operator *base =
        (core_operator *)(uintptr_t)core__operator_base(call->op);
    uint32_t count = base->nresults;
    uint32_t first =
        call->op->variant == CORE__VARIANT_INPLACE ? 0 : nargs - count;
    core_value made[CORE__SCHEMA_RESULTS] = {{0}};
    core_status status;

    CORE_TRY(check_memory(trace, call->op, args, nargs));
    CORE_TRY(check_on_meta(call->op, args, nargs));
    status = core__trace_record(trace, base, args, base->nargs, 0, made, count);
    for (uint32_t i = 0; i < count && status == CORE_OK; i++)
        if (made[i].tag == CORE_VALUE_TENSOR)
            status = store(trace, call->op, first + i, args[first + i].u.tensor,
                           made[i].u.tensor);
    for (uint32_t i = 0; i < count; i++)
        core_value_release(&made[i]);
    return status;
}

/* A copy that changes neither dtype nor layout nor device is a clone; others
 * keep the layout of the target. */
static core_status copy(core__trace *trace, core_call *call,
                        const core_value *args, uint32_t nargs)
{
    core_tensor *target = args[0].u.tensor, *source = args[1].u.tensor;
    core__program_argument clone[2] = {{CORE_VALUE_TENSOR, 0, {0}}, {0}};
    core__program_type type;
    uint32_t value;
    bool same =
        target->dtype == source->dtype && target->device == source->device &&
        target->ndim == source->ndim && target->flags & CORE__TENSOR_DENSE;

    CORE_TRY(check_memory(trace, call->op, args, nargs));
    for (uint32_t i = 0; same && i < 2u * target->ndim; i++)
        same = target->sizes[i] == source->sizes[i];
    if (!same)
        return core__trace_record(trace, call->op, args, nargs, 1, NULL, 0);
    CORE_TRY(core__traced_read(trace, call->op, source, &clone[0].u.value));
    type = trace->program->values[clone[0].u.value].type;
    CORE_TRY(core__trace_append(trace, &core__operators[CORE_OP_CLONE], clone,
                                2, 0, &type, &value));
    return core__traced_write(trace, call->op, target, value);
}

/* Returns the written arguments where results are those. */
static void return_written(const core_operator *op, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    uint32_t first = op->variant == CORE__VARIANT_INPLACE
                         ? 0
                         : nargs - core__operator_base(op)->nresults;

    for (uint32_t i = 0; i < nresults; i++) {
        results[i] = args[first + i];
        if (results[i].tag == CORE_VALUE_TENSOR)
            core__tensor_retain(results[i].u.tensor);
    }
}

static core_status check_host_number(const core_operator *op,
                                     const core_value *args)
{
    const core_tensor *self = args[0].u.tensor, *source = args[1].u.tensor;

    if (self->storage && source->storage)
        return CORE_OK;
    return core__error(CORE_ERROR_DATA_DEPENDENT,
                       "%s: a tensor on \"meta\" has no data to read or write",
                       core__operator_name(op));
}

static core_status write(core__trace *trace, core_call *call,
                         const core_value *args, uint32_t nargs,
                         uint32_t written, core_value *results,
                         uint32_t nresults)
{
    core_operator *op = call->op;
    const core_operator *base = core__operator_base(op);
    bool custom = op->flags & CORE__OP_CUSTOM;

    /* Its call can be made instead only while nothing has been changed. */
    if (trace->lazy)
        CORE_TRY(core__traced_check_writes(trace, op, args, written));
    if (custom || op->variant == CORE__VARIANT_FUNCTIONAL)
        return core__trace_record(trace, op, args, nargs, written, results,
                                  nresults);
    if (op->id == CORE_OP_COPY_) {
        CORE_TRY(check_host_number(op, args));
        CORE_TRY(copy(trace, call, args, nargs));
    } else if (base != op && base->family >= CORE__FAMILY_ELEMENTWISE &&
               !base->data->writes && !base->lists) {
        CORE_TRY(by_results(trace, call, args, nargs));
    } else {
        CORE_TRY(check_memory(trace, op, args, nargs));
        return core__trace_record(trace, op, args, nargs, written, results,
                                  nresults);
    }
    return_written(op, args, nargs, results, nresults);
    return CORE_OK;
}

/* --------------------------------------------------------------- layer -- */

core_status core__functionalize_layer(core_call *call, const core_value *args,
                                      uint32_t nargs, core_value *results,
                                      uint32_t nresults)
{
    core_operator *op = call->op;
    bool view = core__operator_is_view(op);
    uint32_t written = view ? 0 : core__operator_written_arguments(op, nargs);
    core__trace *trace;
    core_status status;
    uint32_t changes;

    if (core__trace_on_meta(op, args, nargs) || (!view && !written))
        return core__redispatch(
            op, core__keys_below(call->keys, CORE__FUNCTIONALITY_FUNCTIONALIZE),
            args, nargs, results, nresults);
    CORE_TRY(core__trace_enter(op, args, nargs, &trace));
    changes = trace->changes;
    status = !view ? write(trace, call, args, nargs, written, results, nresults)
             : op->variant == CORE__VARIANT_INPLACE
                 ? relayout(trace, call, args, nargs, results, nresults)
                 : make_view(trace, call, args, nargs, results, nresults);
    return core__trace_finish_call(trace, changes, status, call, args, nargs,
                                   results, nresults);
}
