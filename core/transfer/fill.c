/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* zero_ and fill_.Scalar on a device without a kernel for the call: the fill of
 * its memory table, or for zero_ its kernel of fill_.Scalar. */

#include "transfer/fill.h"

#include "base/thread.h"
#include "device/device.h"
#include "dispatch/dispatch.h"
#include "dispatch/inference.h"
#include "dispatch/registry.h"
#include "dispatch/structured.h"
#include "dispatch/table.h"
#include "ops_ids.h"
#include "tensor/dtype.h"
#include "tensor/storage_check.h"
#include "transfer/copy.h"

#include <libcore/tensor.h>

/* Fills a tensor without gaps; there is at least one element. */
static core_status fill_memory(const core_operator *op, core_tensor *tensor,
                               core_scalar number)
{
    uint32_t itemsize = core__dtype_size(tensor->dtype);
    uint64_t pattern = 0;

    CORE_TRY(core__number_check_range(op, "the value", &number, tensor->dtype));
    CORE_TRY(core__storage_check(tensor->storage));
    core__element_store(tensor->dtype, &pattern, number);
    return core__fill_bytes(op, tensor->device, core__tensor_memory(tensor),
                            (uint64_t)tensor->numel * itemsize, pattern,
                            itemsize);
}

static bool has_fill_kernel(const core_device *device)
{
    core__kernel_set *set;

    core__registry_lock();
    set = core__registry_set(&core__operators[CORE_OP_FILL__SCALAR],
                             device->backend);
    core__registry_unlock();
    return set && atomic_load(&set->first);
}

/* If that kernel does not accept the dtype, the error stays that of zero_. */
static core_status zero_by_fill(core_tensor *self)
{
    core_value args[2] = {{CORE_VALUE_TENSOR, 0, {.tensor = self}},
                          core_int(0)};
    core__error_record earlier;
    core_status status;

    core__error_save(&earlier);
    status = core__redispatch(&core__operators[CORE_OP_FILL__SCALAR],
                              self->device->keys | CORE__KEY_BACKEND, args, 2,
                              NULL, 0);
    if (status == CORE_ERROR_NO_KERNEL)
        core__error_restore(&earlier);
    return status;
}

/* No gaps are filled: the bytes between the elements are not the tensor's. */
static core_status fill(core_call *call, const core_value *args)
{
    core_tensor *self = args[0].u.tensor;
    bool zero = call->op->id == CORE_OP_ZERO_;
    core_scalar number = zero ? core_int(0) : args[1];

    if (core__dtype_is_storage(self->dtype))
        return CORE_ERROR_NO_KERNEL; /* filled as bytes: float8_fallback.h */
    CORE_TRY(core__target_check(call->op, 0, self, self->device));
    if (self->numel == 0)
        return CORE_OK;
    if (self->flags & CORE__TENSOR_DENSE && self->device->memory.fill)
        return fill_memory(call->op, self, number);
    return zero && has_fill_kernel(self->device) ? zero_by_fill(self)
                                                 : CORE_ERROR_NO_KERNEL;
}

core_status core__fill_fallback(core_call *call, const core_value *args,
                                uint32_t nargs, core_value *results,
                                uint32_t nresults)
{
    if (call->op->id != CORE_OP_ZERO_ && call->op->id != CORE_OP_FILL__SCALAR)
        return CORE_ERROR_NO_KERNEL;
    CORE_TRY(core__numbers_check_tags(call->op, args, nargs));
    CORE_TRY(fill(call, args));
    if (nresults > 0) {
        core__tensor_retain(args[0].u.tensor);
        results[0] = args[0];
    }
    return CORE_OK;
}
