/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* input_buffer.h: sums the gradients that arrive for one input of a node.
 *
 * Streams.  Each node has one canonical stream (node.h), or none if its results
 * are the host's.  A node uses a gradient after everything its stream waited
 * for, and its own gradients are ready on its stream.  Producer and consumer
 * mean these streams; for a node without one, it is the current stream of the
 * gradient's device.
 *
 * The first gradient of an input decides where later ones are summed:
 *
 *   A  it is on the consumer's device: on the consumer's stream
 *   B  it is on the producer's, not the consumer's: on the producer's stream
 *   C  on neither: on the current stream of its device
 *
 * The first gradient is not touched.  If the consumer or the stream of the sum
 * differs from the producer, an event is recorded on the producer's stream; in
 * case A the consumer's stream is recorded for the memory, since it may never
 * be summed.
 *
 * For each later gradient, the stream of the sum waits for the producer and for
 * what is in the buffer, is recorded for the memory of both, and adds the
 * gradient; if it differs from the consumer's stream, an event is recorded.
 * Before the node runs, its stream waits for the last event of each input.
 *
 * If all streams are equal there are no events and no waits, and nothing is
 * stored: core__slot.arrivals stays NULL, or the entry empty. */

#ifndef CORE_AUTOGRAD_INPUT_BUFFER_H
#define CORE_AUTOGRAD_INPUT_BUFFER_H

#include "autograd/graph/node.h"
#include "device/stream.h"
#include "tensor/tensor.h"

/* The state of a gradient in the buffer.  Streams are referenced; all NULL: it
 * is ready, and would be summed, on the consumer's stream. */
struct core__arrival {
    core_stream *sum;
    core_stream *ready;
    core_event *event; /* on `ready`, if some stream may have to wait for it */
};

/* Adds the second and later gradients: *buffer += grad.  In place only if the
 * buffer owns tensor and storage exclusively and the sum is not recorded.
 * Takes ownership of grad, also on failure. */
core_status core__input_buffer_sum(core_tensor **buffer, core_tensor *grad,
                                   bool recording);

/* For gradients of the host. */
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

/* For gradients of any device: input `input` of consumer, which owns the slot.
 * Takes ownership of grad, also on failure; producer may be NULL. */
core_status core__input_buffer_deliver(core_node *consumer, core__slot *slot,
                                       uint32_t input, core_tensor *grad,
                                       core_stream *producer, bool recording);
/* Called before the consumer, which has a stream, runs. */
core_status core__input_buffer_wait(core_node *consumer, core__slot *slot);
/* Drops all arrivals. */
void core__input_buffer_clear(core__slot *slot, uint32_t ninputs);

#endif
