/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* input_buffer.h: gradients that arrive for one input of a node, summed.
 *
 * Streams.  A gradient is produced on its node's stream and consumed on the
 * next node's.  Each device has one stream, so a producer and a consumer on
 * one device always share it: order is given, no event is made and nothing is
 * waited for.  Where devices differ, the gradient lies on the consumer's
 * device already, put there by the node (a copy between devices), which made
 * the streams wait for each other. */

#ifndef CORE_AUTOGRAD_INPUT_BUFFER_H
#define CORE_AUTOGRAD_INPUT_BUFFER_H

#include "tensor/tensor.h"

/* The second and later gradients: *buffer += grad.  In place only where the
 * buffer is the last owner of tensor and storage, and the sum is not itself
 * recorded.  Takes over grad, on failure too. */
core_status core__input_buffer_sum(core_tensor **buffer, core_tensor *grad,
                                   bool recording);

static inline core_status core__input_buffer_add(core_tensor **buffer,
                                                 core_tensor *grad,
                                                 bool recording)
{
    if (core__likely(!*buffer)) {
        *buffer = grad;
        return CORE_OK;
    }
    return core__input_buffer_sum(buffer, grad, recording);
}

#endif
