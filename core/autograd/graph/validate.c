/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Makes a gradient match its tensor, or reports why it cannot. */

#include "autograd/graph/validate.h"

#include "autograd/graph/autograd_ops.h"
#include "device/device.h"
#include "ops/infer.h"
#include "tensor/dtype.h"

static bool same_sizes(const core__tensor_meta *meta, const core_tensor *grad)
{
    return grad->ndim == meta->ndim &&
           memcmp(grad->sizes, meta->sizes, meta->ndim * sizeof *meta->sizes) ==
               0;
}

/* Whether a tensor with meta's sizes broadcasts to the gradient's. */
static bool broadcasts(const core__tensor_meta *meta, const core_tensor *grad)
{
    uint32_t lead;

    if (grad->ndim < meta->ndim)
        return false;
    lead = grad->ndim - meta->ndim;
    for (uint32_t i = 0; i < meta->ndim; i++)
        if (meta->sizes[i] != 1 && meta->sizes[i] != grad->sizes[i + lead])
            return false;
    return true;
}

static void exchange(core_tensor **grad, core_tensor *other)
{
    core__tensor_release(*grad);
    *grad = other;
}

core_status core__gradient_validate_slow(const char *what, uint32_t index,
                                         const core__tensor_meta *meta,
                                         core_tensor **grad)
{
    core_tensor *other;

    /* A 0-dim tensor combines with tensors of any device. */
    if ((*grad)->device != meta->device && meta->ndim)
        return core__error(
            CORE_ERROR_DEVICE,
            "gradient %u of %s is on \"%s\", but its tensor is on \"%s\"",
            index, what, (*grad)->device->name, meta->device->name);
    if (!core__dtype_is_floating((*grad)->dtype))
        return core__error(
            CORE_ERROR_DTYPE,
            "gradient %u of %s is %s; it must have a floating dtype", index,
            what, core__dtype_name((*grad)->dtype));
    if (!same_sizes(meta, *grad)) {
        if (!broadcasts(meta, *grad)) {
            char given[256], expected[256];

            return core__error(
                CORE_ERROR_SHAPE,
                "gradient %u of %s has sizes %s, but its tensor has %s", index,
                what,
                core__sizes_text((*grad)->ndim, (*grad)->sizes, given,
                                 sizeof given),
                core__sizes_text(meta->ndim, meta->sizes, expected,
                                 sizeof expected));
        }
        CORE_TRY(core__autograd_op_sum_to_size(*grad, meta->ndim, meta->sizes,
                                               &other));
        exchange(grad, other);
    }
    if ((*grad)->device != meta->device) {
        CORE_TRY(core__autograd_op_to_device(*grad, meta->device, &other));
        exchange(grad, other);
    }
    if ((*grad)->dtype != meta->dtype) {
        CORE_TRY(core__autograd_op_cast(*grad, meta->dtype, &other));
        exchange(grad, other);
    }
    return CORE_OK;
}
