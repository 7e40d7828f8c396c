/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Copies and conversions. */

#include "device/device.h"
#include "transfer/transfer.h"
#include "dispatch/dispatch.h"
#include "dispatch/structured.h"
#include "ops/expression.h"
#include "ops/infer.h"
#include "tensor/layout.h"

#include <libcore/stream.h>

#include <string.h>

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

/* equal(self, other): whether both have the same sizes and elements */
CORE__COMPOSITE(equal)
{
    core_tensor *self = args[0].u.tensor, *other = args[1].u.tensor;
    core_tensor *same;
    core_scalar all = core_bool(true);

    if (self->ndim != other->ndim ||
        memcmp(self->sizes, other->sizes, self->ndim * sizeof *self->sizes)) {
        all = core_bool(false);
    } else if (self->numel > 0) {
        same = core__x_eq(scope, self, other);
        same = CORE__DO(scope, core_all, same);
        if (scope->status != CORE_OK)
            return scope->status;
        CORE_TRY(core__tensor_read_scalar(same, &all));
    }
    results[0] = all;
    return scope->status;
}

/* is_set_to(self, tensor): whether both are one view of one storage */
CORE__OP(is_set_to)
{
    const core_tensor *a = args[0].u.tensor, *b = args[1].u.tensor;
    size_t bytes = a->ndim * sizeof *a->sizes;

    (void)call;
    (void)nargs;
    if (nresults > 0)
        results[0] = core_bool(a->storage == b->storage && a->storage &&
                               a->offset == b->offset && a->dtype == b->dtype &&
                               a->ndim == b->ndim &&
                               memcmp(a->sizes, b->sizes, bytes) == 0 &&
                               memcmp(a->strides, b->strides, bytes) == 0);
    return CORE_OK;
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

/* set(self): no elements, in self's dtype */
CORE__COMPOSITE(set_empty)
{
    static const int64_t zero;
    core_tensor *self = args[0].u.tensor;

    return core__scope_result(
        scope,
        CORE__DO(scope, core_new_empty, self, &zero, 1, CORE_DTYPE_NONE, NULL),
        &results[0]);
}

/* set.source_Tensor(self, source): what self is after it is set to source, in
 * memory of its own */
CORE__COMPOSITE(set_source_tensor)
{
    core_tensor *self = args[0].u.tensor, *source = args[1].u.tensor;

    if (self->dtype != source->dtype)
        return core__op_error(CORE_ERROR_DTYPE, call->op,
                              "source is %s and self %s; both must have the "
                              "same dtype",
                              core__dtype_name(source->dtype),
                              core__dtype_name(self->dtype));
    if (self->device != source->device)
        return core__op_error(CORE_ERROR_DEVICE, call->op,
                              "source is on \"%s\" and self on \"%s\"; both "
                              "must be on the same device",
                              source->device->name, self->device->name);
    return core__scope_result(scope, CORE__DO(scope, core_clone, source, -1),
                              &results[0]);
}
