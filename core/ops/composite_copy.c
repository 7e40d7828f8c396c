/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Copies, conversions, and the in-place and out variants of operators that have
 * a function instead of a kernel. */

#include "device/device.h"
#include "transfer/transfer.h"
#include "dispatch/dispatch.h"
#include "dispatch/structured.h"
#include "ops/expression.h"
#include "ops/infer.h"
#include "tensor/layout.h"

#include <libcore/stream.h>

#include <string.h>

/* ------------------------------------------------------------ variants -- */

static core_status variant_write(core_operator *op, uint32_t position,
                                 core_tensor *target, core_tensor *value)
{
    if (op->variant == CORE__VARIANT_OUT)
        CORE_TRY(core__out_resize(op, position, target, value->dtype,
                                  value->ndim, value->sizes));
    else if (core__dtype_category(target->dtype) <
             core__dtype_category(value->dtype))
        return core__op_error(
            CORE_ERROR_DTYPE, op,
            "the result has dtype %s, which a tensor of dtype %s cannot hold",
            core__dtype_name(value->dtype), core__dtype_name(target->dtype));
    return core_copy_(target, value, false);
}

/* The functional operator saves arguments whose content is about to change:
 * where autograd records, it gets copies of self and of what shares its
 * storage. */
static bool needs_copies(const core_operator *op, const core_value *args,
                         uint32_t nargs)
{
    const core__thread *thread = core__thread_self();

    if (op->variant != CORE__VARIANT_INPLACE ||
        args[0].tag != CORE_VALUE_TENSOR || thread->no_grad ||
        thread->excluded & CORE__KEY_AUTOGRAD)
        return false;
    for (uint32_t i = 0; i < nargs; i++)
        if (args[i].tag == CORE_VALUE_TENSOR &&
            core__tensor_requires_grad(args[i].u.tensor))
            return true;
    return false;
}

static core_status variant_call(const core_operator *op, core_operator *base,
                                const core_value *args, core_value *values)
{
    core_tensor *copies[32] = {NULL};
    core_value own[32];
    core_status status = CORE_OK;

    if (!needs_copies(op, args, base->nargs))
        return core_op_invoke_on(base, args, base->nargs, values,
                                 base->nresults);
    memcpy(own, args, base->nargs * sizeof *own);
    for (uint32_t i = 0; status == CORE_OK && i < base->nargs; i++) {
        if (args[i].tag != CORE_VALUE_TENSOR ||
            args[i].u.tensor->storage != args[0].u.tensor->storage)
            continue;
        status = core_clone(args[i].u.tensor, -1, &copies[i]);
        own[i].u.tensor = copies[i];
    }
    if (status == CORE_OK)
        status =
            core_op_invoke_on(base, own, base->nargs, values, base->nresults);
    for (uint32_t i = 0; i < base->nargs; i++)
        core__tensor_release(copies[i]);
    return status;
}

/* Calls the functional operator, then copies its result into the tensor to be
 * changed; autograd records both. */
core_status core__op_variant(core_call *call, const core_value *args,
                             uint32_t nargs, core_value *results,
                             uint32_t nresults)
{
    core_operator *op = call->op;
    core_operator *base = &core__operators[op->data->base];
    core_value values[CORE__RESULTS_MAX] = {0};
    core_status status;

    CORE_TRY(core__overlap_check(op, args, nargs));
    status = variant_call(op, base, args, values);
    for (uint32_t i = 0; status == CORE_OK && i < base->nresults &&
                         op->variant == CORE__VARIANT_OUT;
         i++)
        status = core__out_check_shape(
            op, nargs - base->nresults + i,
            args[nargs - base->nresults + i].u.tensor,
            values[i].u.tensor->dtype, values[i].u.tensor->ndim,
            values[i].u.tensor->sizes);
    for (uint32_t i = 0; status == CORE_OK && i < base->nresults; i++) {
        uint32_t position = op->variant == CORE__VARIANT_INPLACE
                                ? i
                                : nargs - base->nresults + i;
        core_tensor *target = args[position].u.tensor;

        if (values[i].u.tensor != target)
            status = variant_write(op, position, target, values[i].u.tensor);
        if (status == CORE_OK && i < nresults) {
            core__tensor_retain(target);
            core__result_tensor(&results[i], target);
        }
    }
    for (uint32_t i = 0; i < base->nresults; i++)
        core_value_release(&values[i]);
    return status;
}

/* The arguments of the functional operator: dtype, layout and device of the new
 * tensor are those of the given one. */
static void given_args(const core_operator *op, const core_value *args,
                       const core_tensor *out, core_value *own)
{
    const core_operator *base = core__operator_base(op);
    uint32_t at = op->data->dtype;

    memcpy(own, args, at * sizeof *own);
    own[at] = core_pack_dtype(out->dtype);
    own[at + 1] = core_pack_none();
    own[at + 2] = core_pack_device(out->device);
    own[at + 3] = core_pack_none();
    memcpy(own + at + 4, args + at, (base->nargs - at - 4) * sizeof *own);
}

/* The out variant of factories: the new tensor is copied into the given one. */
CORE__OP(given_variant)
{
    core_operator *op = call->op;
    core_operator *base = &core__operators[op->data->base];
    core_tensor *out = args[nargs - 1].u.tensor;
    core_value own[32];
    core_value made = {0};
    core_status status;

    CORE_TRY(core__overlap_check(op, args, nargs));
    given_args(op, args, out, own);
    CORE_TRY(core_op_invoke_on(base, own, base->nargs, &made, 1));
    /* empty…: the content is undefined, so only the sizes matter. */
    if (strstr(base->data->name, "empty"))
        status = core__out_resize(op, nargs - 1, out, out->dtype,
                                  made.u.tensor->ndim, made.u.tensor->sizes);
    else
        status = variant_write(op, nargs - 1, out, made.u.tensor);
    core_value_release(&made);
    if (status == CORE_OK && nresults > 0) {
        core__tensor_retain(out);
        core__result_tensor(&results[0], out);
    }
    return status;
}

/* -------------------------------------------------------------- copies -- */

/* Strides for a copy of `self` in a memory format. */
static core_status format_strides(const core_operator *op,
                                  const core_tensor *self, int64_t format,
                                  int64_t *out_strides)
{
    uint32_t wants = format == CORE_FORMAT_CHANNELS_LAST ? 4 : 5;

    CORE_TRY(core__op_format_check(op, format));
    if (format == CORE_FORMAT_PRESERVE) {
        if (self->flags & CORE__TENSOR_DENSE)
            memcpy(out_strides, self->strides,
                   self->ndim * sizeof *out_strides);
        else
            core__layout_like(self, out_strides);
    } else if (format == CORE_FORMAT_CONTIGUOUS) {
        core__layout_contiguous(self->ndim, self->sizes, out_strides);
    } else if (self->ndim != wants) {
        return core__op_error(
            CORE_ERROR_SHAPE, op,
            "self has %u dimensions; this memory format needs %u", self->ndim,
            wants);
    } else {
        core__layout_channels_last(self->ndim, self->sizes, out_strides);
    }
    return CORE_OK;
}

static core_status copy_of(const core_operator *op, core_tensor *self,
                           core_device *device, core_dtype dtype,
                           bool non_blocking, int64_t format,
                           core_value *result)
{
    int64_t strides[CORE_MAX_NDIM];
    core_tensor *copy;
    core_status status;

    CORE_TRY(core__op_dtype_check(op, dtype));
    CORE_TRY(format_strides(op, self, format, strides));
    CORE_TRY(core__op_check_allocation(op, device,
                                       core__tensor_new(device, dtype,
                                                        self->ndim, self->sizes,
                                                        strides, &copy)));
    status = core__op_check_allocation(
        op, device, core__tensor_copy_flags(copy, self, non_blocking));
    if (status != CORE_OK) {
        core__tensor_release(copy);
        return status;
    }
    core__result_tensor(result, copy);
    return CORE_OK;
}

static int64_t format_of(const core_value *value)
{
    return value->tag == CORE_VALUE_NONE ? CORE_FORMAT_PRESERVE : value->u.i;
}

CORE__OP(clone)
{
    core_tensor *self = args[0].u.tensor;

    return copy_of(call->op, self, self->device, self->dtype, false,
                   format_of(&args[1]), &results[0]);
}

/* _to_copy(self, *, dtype, layout, device, pin_memory, non_blocking,
 * memory_format) */
CORE__OP(to_copy)
{
    core_tensor *self = args[0].u.tensor;
    core_device *device =
        args[3].tag == CORE_VALUE_DEVICE ? args[3].u.device : self->device;

    return copy_of(
        call->op, self, device, core__arg_dtype(args, 1, self->dtype),
        core__arg_bool(args, 5, false), format_of(&args[6]), &results[0]);
}

static bool has_format(const core_tensor *self, int64_t format)
{
    return format == CORE_FORMAT_PRESERVE ||
           core_tensor_is_contiguous(self, (uint32_t)format);
}

/* to(self, *, dtype, layout, device, pin_memory, non_blocking, copy,
 * memory_format): self itself if nothing changes. */
CORE__COMPOSITE(to)
{
    core_tensor *self = args[0].u.tensor;
    core_device *device =
        args[3].tag == CORE_VALUE_DEVICE ? args[3].u.device : self->device;
    core_dtype dtype = core__arg_dtype(args, 1, self->dtype);
    int64_t format = format_of(&args[7]);

    CORE_TRY(core__op_format_check(call->op, format));
    if (device == self->device && dtype == self->dtype &&
        !core__arg_bool(args, 6, false) && has_format(self, format))
        return core__scope_result(scope, self, &results[0]);
    return core__scope_result(scope,
                              CORE__DO(scope, core_to_copy, self, dtype, device,
                                       core__arg_bool(args, 5, false),
                                       (int32_t)format),
                              &results[0]);
}

CORE__COMPOSITE(type_as)
{
    core_tensor *other = args[1].u.tensor;

    return core__scope_result(scope,
                              CORE__DO(scope, core_to, args[0].u.tensor,
                                       other->dtype, other->device, false,
                                       false, -1),
                              &results[0]);
}

CORE__COMPOSITE(contiguous)
{
    core_tensor *self = args[0].u.tensor;
    int64_t format =
        args[1].tag == CORE_VALUE_NONE ? CORE_FORMAT_CONTIGUOUS : args[1].u.i;

    CORE_TRY(core__op_format_check(call->op, format));
    if (has_format(self, format))
        return core__scope_result(scope, self, &results[0]);
    return core__scope_result(
        scope, CORE__DO(scope, core_clone, self, (int32_t)format), &results[0]);
}

CORE__OP(fill_tensor_)
{
    core_tensor *self = args[0].u.tensor;
    core_tensor *value = args[1].u.tensor;

    if (value->ndim != 0)
        return core__op_error(CORE_ERROR_SHAPE, call->op,
                              "value must have no dimensions, not %u",
                              value->ndim);
    CORE_TRY(core_copy_(self, value, false));
    if (nresults > 0) {
        core__tensor_retain(self);
        core__result_tensor(&results[0], self);
    }
    return CORE_OK;
}

CORE__OP(item)
{
    core_tensor *self = args[0].u.tensor;

    if (self->numel != 1)
        return core__op_error(
            CORE_ERROR_SHAPE, call->op,
            "self has %lld elements; it must have exactly one",
            (long long)self->numel);
    return core__tensor_read_scalar(self, &results[0]);
}

/* --------------------------------------------------------------- public -- */

static core_status sizes_error(const core_tensor *to, const core_tensor *from)
{
    char wants[256], has[256];

    return core__error(
        CORE_ERROR_SHAPE,
        "core_tensor_copy: the source has sizes %s, which do not broadcast to "
        "the destination's %s",
        core__sizes_text(from->ndim, from->sizes, has, sizeof has),
        core__sizes_text(to->ndim, to->sizes, wants, sizeof wants));
}

core_status core_tensor_copy(core_tensor *to, core_tensor *from, uint32_t flags)
{
    CORE__NOT_NULL(to);
    CORE__NOT_NULL(from);
    if (flags & ~(uint32_t)CORE_COPY_NON_BLOCKING)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_tensor_copy: flags are 0x%x; they must be 0 "
                           "or CORE_COPY_NON_BLOCKING",
                           flags);
    if (to->ndim != from->ndim ||
        memcmp(to->sizes, from->sizes, to->ndim * sizeof *to->sizes) != 0)
        return sizes_error(to, from);
    return core_copy_(to, from, (flags & CORE_COPY_NON_BLOCKING) != 0);
}
