/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* destination.h: gradients written to buffers of the program.
 *
 * A buffer can be a view of a bucket that is sent over a network as a whole; a
 * main gradient in f32 of a parameter in bf16; or a sum over micro-batches, to
 * which the backward of linear adds the weight's gradient without a temporary
 * tensor.  Every function here is thread-safe. */

#ifndef LIBCORE_DESTINATION_H
#define LIBCORE_DESTINATION_H

#include "autograd.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Flags of a destination. */
enum {
    /* Add the gradient to the content of the buffer instead of replacing it. */
    CORE_DESTINATION_ACCUMULATE = 1u << 0
};

/* How a gradient reached its buffer. */
typedef enum core_destination_result {
    CORE_DESTINATION_UNUSED,  /* no gradient; the buffer is unchanged */
    CORE_DESTINATION_COPIED,  /* a temporary gradient was copied or added */
    CORE_DESTINATION_IN_PLACE /* the gradient, or part of it, was computed in
                                 the buffer */
} core_destination_result;

/* A tensor and the buffer for its gradient.  Both are borrowed for the call.
 * All elements of an array have the same struct_size, which is the distance
 * between them; it is at least 32, and members after it count as 0. */
typedef struct core_gradient_destination {
    uint32_t struct_size;
    uint32_t flags;     /* CORE_DESTINATION_… */
    core_tensor *input; /* the tensor whose gradient is written */
    /* Has the sizes and the device of input, and any floating dtype and layout.
     * It must not require grad, be read-only, share memory with another
     * destination, or overlap itself (expanded). */
    core_tensor *buffer;
    core_destination_result result; /* set by the call, unless it refuses an
                                       argument */
    uint32_t reserved;
    /* Called once, when the gradient in the buffer is final and `result` is
     * set, during the backward; NULL: not called.  It comes after the hooks
     * that run after the grad of a leaf was updated.  It is not called for a
     * destination that gets no gradient.  core_grad_into calls it after the
     * last node.
     *
     * The gradient is ready on the calling thread's current stream of the
     * buffer's device.  That thread may be a worker of the backward, and
     * destinations on different devices may be ready in several threads at
     * once.  An error stops the backward, which returns it.  The function must
     * not start a backward that writes to the buffer.  UNSUPPORTED while a
     * program is recorded (compile.h), which could not call it. */
    core_status (*ready)(void *context,
                         struct core_gradient_destination *destination);
    void *context; /* passed to ready */
} core_gradient_destination;

/* Does the same as core_backward, but writes the gradients of the given leaves
 * to their buffers instead of their grads.  Hooks run as usual; a hook on a
 * leaf's gradient prevents that it is computed directly in the buffer.  flags:
 * CORE_RETAIN_GRAPH; CORE_CREATE_GRAPH is an error, because the content of a
 * buffer has no history.  After an error, buffers may contain part of a
 * gradient. */
core_status core_backward_into(core_tensor *const *tensors, size_t count,
                               core_tensor *const *grads, uint32_t flags,
                               core_gradient_destination *destinations,
                               size_t ndestinations);

/* Does the same as core_grad with respect to the inputs of the destinations,
 * which may be results of operators, but writes the gradients to the buffers.
 * Runs only the nodes between outputs and inputs.  flags: CORE_RETAIN_GRAPH,
 * CORE_ALLOW_UNUSED.  AUTOGRAD if the outputs do not depend on an input, unless
 * CORE_ALLOW_UNUSED.  After an error, buffers may contain part of a
 * gradient. */
core_status core_grad_into(core_tensor *const *outputs, size_t noutputs,
                           core_tensor *const *grad_outputs, uint32_t flags,
                           core_gradient_destination *destinations,
                           size_t ndestinations);

#ifdef __cplusplus
}
#endif
#endif
