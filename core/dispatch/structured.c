/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Functions shared by the three families of structured operators. */

#include "dispatch/structured.h"

#include "dispatch/dispatch.h"
#include "dispatch/inference.h"
#include "dispatch/upcalls.h"
#include "tensor/dtype.h"
#include "tensor/layout.h"

#include <libcore/dispatch.h>

core_function core__structured_run(const core_operator *op,
                                   const core__kernel_set *set)
{
    if (op->family == CORE__FAMILY_ELEMENTWISE)
        return set ? core__elementwise_run(op) : core__elementwise_general;
    if (op->family == CORE__FAMILY_REDUCTION)
        return core__reduction_run;
    return core__kernel_run;
}

core_status core__structured_fail(core_call *call, const core_device *device,
                                  core_status status, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults)
{
    if (status == CORE_ERROR_NO_KERNEL)
        status = core__fallback(call, args, nargs, results, nresults);
    if (status != CORE_OK && status != CORE_ERROR_OUT_OF_MEMORY)
        core__op_prefix_name(call->op);
    core__op_describe_arguments(call->op, status, args, nargs);
    return core__op_check_allocation(call->op, device, status);
}

core_status core__device_of(const core_operator *op,
                            core_tensor *const *tensors, uint32_t count,
                            core_device **out_device)
{
    core_device *device = NULL;
    bool only_number = false; /* so far only 0-dim host tensors were seen */

    *out_device = NULL;
    for (uint32_t i = 0; i < count; i++) {
        core_device *own = tensors[i]->device;
        bool number = tensors[i]->ndim == 0 && core__device_host_access(own);

        if (own == device) {
            only_number = only_number && number;
        } else if (!device || only_number) {
            device = own;
            only_number = number;
        } else if (!number) {
            return core__op_error(CORE_ERROR_DEVICE, op,
                                  "operands are on different devices, \"%s\" "
                                  "and \"%s\"",
                                  device->name, own->name);
        }
    }
    *out_device = device;
    return CORE_OK;
}

core_status core__dtype_storage_error(const core_operator *op, core_dtype dtype)
{
    return core__op_error(CORE_ERROR_DTYPE, op,
                          "%s is a storage dtype, in which nothing computes; "
                          "convert to f32, bf16 or f16 first",
                          core__dtype_name(dtype));
}

core_status core__target_check(const core_operator *op, uint32_t position,
                               const core_tensor *target,
                               const core_device *device)
{
    if (target->device == device)
        return CORE_OK;
    return core__op_error(CORE_ERROR_DEVICE, op,
                          "the argument %s, which is written, is on \"%s\", "
                          "the operands on \"%s\"",
                          core__argument_name(op, position),
                          target->device->name, device->name);
}

core_status core__tensor_cast(core_tensor *tensor, core_dtype dtype,
                              core_tensor **out_tensor)
{
    int64_t strides[CORE_MAX_NDIM];
    core_status status;

    *out_tensor = NULL;
    if (tensor->dtype == dtype) {
        core__tensor_retain(tensor);
        *out_tensor = tensor;
        return CORE_OK;
    }
    core__layout_like(tensor, strides);
    CORE_TRY(core__tensor_new(tensor->device, dtype, tensor->ndim,
                              tensor->sizes, strides, out_tensor));
    status = core__dispatch_copy(*out_tensor, tensor);
    if (status != CORE_OK) {
        core__tensor_release(*out_tensor);
        *out_tensor = NULL;
    }
    return status;
}

core_status core__tensor_contiguous(core_tensor *tensor,
                                    core_tensor **out_tensor)
{
    core_status status;

    *out_tensor = NULL;
    if (tensor->flags & CORE__TENSOR_CONTIGUOUS) {
        core__tensor_retain(tensor);
        *out_tensor = tensor;
        return CORE_OK;
    }
    CORE_TRY(core__tensor_new(tensor->device, tensor->dtype, tensor->ndim,
                              tensor->sizes, NULL, out_tensor));
    status = core__dispatch_copy(*out_tensor, tensor);
    if (status != CORE_OK) {
        core__tensor_release(*out_tensor);
        *out_tensor = NULL;
    }
    return status;
}

static bool sizes_are(const core_tensor *tensor, uint32_t ndim,
                      const int64_t *sizes)
{
    bool same = ndim == tensor->ndim;

    for (uint32_t i = 0; same && i < ndim; i++)
        same = sizes[i] == tensor->sizes[i];
    return same;
}

core_status core__out_check_shape(const core_operator *op, uint32_t position,
                                  const core_tensor *out, core_dtype dtype,
                                  uint32_t ndim, const int64_t *sizes)
{
    char expected[160];
    char given[160];

    if (core__dtype_category(out->dtype) < core__dtype_category(dtype) ||
        (core__dtype_is_storage(out->dtype) && !core__dtype_is_storage(dtype)))
        return core__op_error(CORE_ERROR_DTYPE, op,
                              "the result is %s and cannot be stored in the "
                              "%s tensor given as %s",
                              core__dtype_name(dtype),
                              core__dtype_name(out->dtype),
                              core__argument_name(op, position));
    if (out->numel == 0 || sizes_are(out, ndim, sizes))
        return CORE_OK;
    return core__op_error(
        CORE_ERROR_SHAPE, op,
        "the result has sizes %s, the tensor given as %s has %s; only an empty "
        "tensor is resized",
        core__sizes_text(ndim, sizes, expected, sizeof expected),
        core__argument_name(op, position),
        core__sizes_text(out->ndim, out->sizes, given, sizeof given));
}

core_status core__out_resize(const core_operator *op, uint32_t position,
                             core_tensor *out, core_dtype dtype, uint32_t ndim,
                             const int64_t *sizes)
{
    CORE_TRY(core__out_check_shape(op, position, out, dtype, ndim, sizes));
    return sizes_are(out, ndim, sizes) ? CORE_OK
                                       : core__tensor_resize(out, ndim, sizes);
}

core_status core__tensor_copy_broadcast(const core_operator *op,
                                        core_tensor *to, core_tensor *from)
{
    int64_t sizes[CORE_MAX_NDIM];
    int64_t strides[CORE_MAX_NDIM] = {0};
    core_tensor *wide = NULL;
    char expected[128];
    char given[128];
    core_status status;
    uint32_t ndim;
    bool fits;

    CORE_TRY(core__sizes_broadcast(op, to->ndim, to->sizes, from->ndim,
                                   from->sizes, &ndim, sizes));
    fits = ndim == to->ndim;
    for (uint32_t i = 0; fits && i < ndim; i++)
        fits = sizes[i] == to->sizes[i];
    if (!fits)
        return core__op_error(
            CORE_ERROR_SHAPE, op, "%s does not broadcast to %s",
            core__sizes_text(from->ndim, from->sizes, given, sizeof given),
            core__sizes_text(to->ndim, to->sizes, expected, sizeof expected));
    for (uint32_t i = 0; i < from->ndim; i++)
        if (from->sizes[i] != 1)
            strides[ndim - from->ndim + i] = from->strides[i];
    CORE_TRY(core__tensor_alias(from, from->dtype, ndim, sizes, strides,
                                from->offset, &wide));
    status = core__dispatch_copy(to, wide);
    core__tensor_release(wide);
    return status;
}
