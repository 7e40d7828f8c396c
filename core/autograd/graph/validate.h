/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* validate.h: a gradient must match its tensor.  The gradient of a broadcast
 * tensor is summed to the tensor's sizes, one of another floating dtype is
 * cast, and one of a 0-dim tensor, which operators accept from any device, is
 * moved to the tensor's device; any other mismatch is an error that names the
 * node and the index. */

#ifndef CORE_AUTOGRAD_VALIDATE_H
#define CORE_AUTOGRAD_VALIDATE_H

#include "autograd/graph/node.h"

#include <string.h>

core_status core__gradient_validate_slow(const char *what, uint32_t index,
                                         const core__tensor_meta *meta,
                                         core_tensor **grad);

static inline bool core__gradient_fits(const core__tensor_meta *meta,
                                       const core_tensor *grad)
{
    uint32_t i = 0;

    if (core__unlikely(grad->dtype != meta->dtype || grad->ndim != meta->ndim ||
                       grad->device != meta->device))
        return false;
    while (i < grad->ndim && grad->sizes[i] == meta->sizes[i])
        i++;
    return i == grad->ndim;
}

/* what and index are for the message: "gradient INDEX of WHAT". */
static inline core_status core__gradient_validate(const char *what,
                                                  uint32_t index,
                                                  const core__tensor_meta *meta,
                                                  core_tensor **grad)
{
    if (core__likely(core__gradient_fits(meta, *grad)))
        return CORE_OK;
    return core__gradient_validate_slow(what, index, meta, grad);
}

#endif
