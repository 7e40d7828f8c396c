/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* destination.h: gradients written where the program wants them.
 *
 * Uses: views of one bucket that is sent over a network as a whole; main
 * gradients in f32 of parameters in bf16; sums over micro-batches, to which the
 * backward of linear adds the weight's gradient without a tensor in between. */

#ifndef LIBCORE_DESTINATION_H
#define LIBCORE_DESTINATION_H

#include "autograd.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    /* The gradient is added to what buffer holds; else it replaces that. */
    CORE_DESTINATION_ACCUMULATE = 1u << 0
};

typedef enum core_destination_answer {
    CORE_DESTINATION_UNUSED,  /* no gradient arrived; buffer is as it was */
    CORE_DESTINATION_COPIED,  /* a gradient was made, then copied or added */
    CORE_DESTINATION_IN_PLACE /* at least part of it was computed into the
                                 buffer, or was the buffer already */
} core_destination_answer;

typedef struct core_gradient_destination {
    uint32_t struct_size;
    uint32_t flags;     /* CORE_DESTINATION_… */
    core_tensor *input; /* whose gradient */
    /* Of its sizes and device, of any floating dtype and layout, requiring no
     * grad, not read-only; it shares memory with no other destination, nor
     * within itself (expanded).  Held during the call only. */
    core_tensor *buffer;
    core_destination_answer answer; /* out */
    uint32_t reserved;
} core_gradient_destination;

/* core_backward, but the gradients of these leaves go to their buffers and not
 * to their grads.  Hooks run as ever; those on the leaf's gradient prevent that
 * it is computed straight into the buffer.  CORE_CREATE_GRAPH is refused: what
 * is in a buffer has no history.  After an error buffers may hold part of a
 * gradient. */
core_status core_backward_into(core_tensor *const *tensors, size_t count,
                               core_tensor *const *grads, uint32_t flags,
                               core_gradient_destination *destinations,
                               size_t ndestinations);

/* core_grad with respect to the destinations' inputs, which may be results of
 * operators: runs only the nodes that lie between.  An input that the outputs
 * do not depend on is an error unless CORE_ALLOW_UNUSED. */
core_status core_grad_into(core_tensor *const *outputs, size_t noutputs,
                           core_tensor *const *grad_outputs, uint32_t flags,
                           core_gradient_destination *destinations,
                           size_t ndestinations);

#ifdef __cplusplus
}
#endif
#endif
