/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "dispatch/kernel_constraints.h"
#include "dispatch/upcalls.h"

#include "tensor/dtype.h"

#include <string.h>

const core_kernel *core__kernel_next(const core_kernel *kernel,
                                     const core_dtype *dtypes, uint32_t count,
                                     uint32_t ndim)
{
    const core__kernel *at = ((const core__kernel *)(const void *)kernel)->next;

    if (count > CORE_SIGNATURE_MAX)
        count = CORE_SIGNATURE_MAX;
    while (at && !core__kernel_takes(&at->kernel, dtypes, count, ndim))
        at = at->next;
    return at ? &at->kernel : NULL;
}

const core_kernel *core__constraint_equal(core__kernel_set *set,
                                          const core_dtype *dtypes,
                                          uint32_t count, uint32_t ndim,
                                          core_dtype *out_common)
{
    const core__kernel *at = set ? atomic_load(&set->first) : NULL;
    core_dtype equal[CORE_SIGNATURE_MAX];
    core_dtype common = CORE_DTYPE_NONE;
    bool differ = false;

    *out_common = CORE_DTYPE_NONE;
    if (count > CORE_SIGNATURE_MAX)
        count = CORE_SIGNATURE_MAX;
    for (uint32_t i = 0; i < count; i++)
        if (core__dtype_is_floating(dtypes[i])) {
            differ |= common != CORE_DTYPE_NONE && common != dtypes[i];
            common =
                common ? core__dtype_promote(common, dtypes[i]) : dtypes[i];
        }
    for (uint32_t i = 0; i < count; i++)
        equal[i] = core__dtype_is_floating(dtypes[i]) ? common : dtypes[i];
    for (; at; at = at->next) {
        bool casts = differ && at->kernel.demands & CORE_REQUIRE_EQUAL_DTYPES;

        if (!core__kernel_takes(&at->kernel, casts ? equal : dtypes, count,
                                ndim))
            continue;
        if (casts)
            *out_common = common;
        return &at->kernel;
    }
    return NULL;
}

bool core__constraint_aligned(const core_kernel *kernel,
                              const core_device *device, core_memory memory)
{
    uint64_t bytes = UINT64_C(1)
                     << ((kernel->demands & CORE_REQUIRE_ALIGNMENT) >>
                         CORE_REQUIRE_ALIGNMENT_SHIFT);
    uint64_t place = memory.offset;

    if (device->flags & CORE_DEVICE_FLAT)
        place += (uint64_t)(uintptr_t)memory.handle;
    return (place & (bytes - 1)) == 0 &&
           (bytes == 1 || bytes <= device->properties.base_alignment);
}

bool core__constraint_aligned_tensor(const core_kernel *kernel,
                                     const core_tensor *tensor)
{
    return core__constraint_aligned(kernel, tensor->device,
                                    core__tensor_memory(tensor));
}

bool core__constraint_view_fits(const core_view *view)
{
    uint64_t last = 0;

    if (view->numel > INT32_MAX)
        return false;
    for (uint32_t i = 0; i < view->ndim && view->numel > 0; i++)
        last += (uint64_t)(view->sizes[i] - 1) * (uint64_t)view->strides[i];
    return last * core__dtype_size(view->dtype) <= INT32_MAX;
}

/* ----------------------------------------------------- splitting loops -- */

static bool loop_fits(const core_loop *loop)
{
    if (loop->numel > INT32_MAX)
        return false;
    for (uint32_t k = 0; k < loop->noperands; k++) {
        uint64_t last = 0;

        if (loop->operands[k].flags & CORE_OPERAND_IMMEDIATE)
            continue;
        for (uint32_t d = 0; d < loop->ndim && loop->numel > 0; d++)
            last += (uint64_t)(loop->sizes[d] - 1) *
                    (uint64_t)loop->operands[k].strides[d];
        if (last > INT32_MAX)
            return false;
    }
    return true;
}

/* The outermost dimension that can be split, or ndim. */
static uint32_t split_dim_of(const core_loop *loop)
{
    for (uint32_t d = loop->ndim; d-- > 0;)
        if (loop->sizes[d] > 1 && !(loop->reduced >> d & 1))
            return d;
    return loop->ndim;
}

bool core__constraint_splits(const core_loop *loop)
{
    int64_t sizes[CORE_MAX_NDIM];
    core_loop least = *loop;

    if (loop_fits(loop))
        return true;
    /* The smallest possible part. */
    least.numel = 1;
    least.sizes = sizes;
    for (uint32_t d = 0; d < loop->ndim; d++) {
        sizes[d] = loop->reduced >> d & 1 ? loop->sizes[d] : 1;
        least.numel *= sizes[d];
    }
    return loop_fits(&least);
}

core_status core__constraint_split(core__kernel_call *run,
                                   const core_kernel *kernel,
                                   const core_loop *loop,
                                   const core_value *args, uint32_t nargs)
{
    core_operand operands[CORE__OPERANDS_MAX + 2];
    int64_t sizes[CORE_MAX_NDIM];
    core_loop part = *loop;
    uint32_t cut = split_dim_of(loop);
    int64_t half;

    if (loop_fits(loop))
        return core__kernel_launch(run, kernel, loop, args, nargs, NULL, 0);
    half = loop->sizes[cut] / 2;
    memcpy(sizes, loop->sizes, loop->ndim * sizeof *sizes);
    memcpy(operands, loop->operands, loop->noperands * sizeof *operands);
    part.sizes = sizes;
    part.operands = operands;
    sizes[cut] = half;
    part.numel = loop->numel / loop->sizes[cut] * half;
    CORE_TRY(core__constraint_split(run, kernel, &part, args, nargs));
    sizes[cut] = loop->sizes[cut] - half;
    part.numel = loop->numel - part.numel;
    for (uint32_t k = 0; k < loop->noperands; k++)
        if (!(operands[k].flags & CORE_OPERAND_IMMEDIATE))
            operands[k].memory.offset +=
                (uint64_t)(half * operands[k].strides[cut]);
    return core__constraint_split(run, kernel, &part, args, nargs);
}

core_status core__constraint_copy(const core_operator *op, core_tensor *tensor,
                                  core_dtype dtype, bool filled,
                                  core_tensor **out_copy)
{
    core_status status;

    if (filled)
        core__conversion_count(op, tensor->dtype == dtype
                                       ? CORE_CONVERSION_CONTIGUOUS
                                       : CORE_CONVERSION_CAST);
    CORE_TRY(core__tensor_new(tensor->device, dtype, tensor->ndim,
                              tensor->sizes, NULL, out_copy));
    status = filled ? core__dispatch_copy(*out_copy, tensor) : CORE_OK;
    if (status != CORE_OK) {
        core__tensor_release(*out_copy);
        *out_copy = NULL;
    }
    return status;
}
