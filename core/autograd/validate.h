/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* validate.h: a gradient must look like the tensor that it is the gradient of.
 * One of a broadcast tensor is summed to its sizes, one of another floating
 * dtype is cast, one of a 0-dim tensor, which operators take from any device,
 * is moved to that; anything else names the node and the index. */

#ifndef CORE_AUTOGRAD_VALIDATE_H
#define CORE_AUTOGRAD_VALIDATE_H

#include "autograd/node.h"

#include <string.h>

core_status core__validate_slow(const char *what, uint32_t index,
                                const core__meta *meta, core_tensor **grad);

/* what and index are for the message: "gradient INDEX of WHAT". */
static inline core_status core__validate(const char *what, uint32_t index,
                                         const core__meta *meta,
                                         core_tensor **grad)
{
    const core_tensor *g = *grad;

    if (core__likely(g->dtype == meta->dtype && g->ndim == meta->ndim &&
                     g->device == meta->device)) {
        uint32_t i = 0;

        while (i < g->ndim && g->sizes[i] == meta->sizes[i])
            i++;
        if (core__likely(i == g->ndim))
            return CORE_OK;
    }
    return core__validate_slow(what, index, meta, grad);
}

#endif
