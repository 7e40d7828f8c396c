/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* input_buffer.h: gradients that arrive for one input of a node, summed.
 *
 * Streams.  Each node has one canonical stream (node.h), or none where its
 * results are the host's.  A node that uses a gradient uses it after what its
 * stream waited for; one that gives a gradient has it ready on its stream.
 * Producer and consumer mean these streams; where a node has none, the current
 * one of the gradient's device stands in.
 *
 * The first gradient of an input decides where later ones are summed:
 *   A  it lies on the consumer's device: on the consumer's stream
 *   B  it lies on the producer's, not the consumer's: on the producer's stream
 *   C  on neither: on the current stream of its device
 * It is not touched.  An event is recorded on the producer's stream if the
 * consumer or the stream of the sum is another one, and in case A the memory is
 * told of the consumer's stream, since it may never be summed.
 * For each later one the stream of the sum waits for the producer, and for what
 * is in the buffer, the memory of both is told, and it is added there; an event
 * is recorded if the consumer's stream is another one.
 * Before the node runs its stream waits for the last event of each input.
 *
 * Where streams are equal there is no event, no wait, and nothing is kept:
 * core__slot.arrivals stays NULL, or the entry empty. */

#ifndef CORE_AUTOGRAD_INPUT_BUFFER_H
#define CORE_AUTOGRAD_INPUT_BUFFER_H

#include "autograd/graph/node.h"
#include "device/stream.h"
#include "tensor/tensor.h"

/* Of a gradient that lies in the buffer.  Streams are referenced; all NULL: it
 * is the consumer's stream that it is ready on and would be summed on. */
struct core__arrival {
    core_stream *sum;
    core_stream *ready;
    core_event *event; /* of `ready`, if anyone may have to wait for it */
};

/* The second and later gradients: *buffer += grad.  In place only where the
 * buffer is the last owner of tensor and storage, and the sum is not itself
 * recorded.  Takes over grad, on failure too. */
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

/* For gradients of any device: input `input` of consumer, whose slot it is.
 * Takes over grad, on failure too; producer may be NULL. */
core_status core__input_buffer_deliver(core_node *consumer, core__slot *slot,
                                       uint32_t input, core_tensor *grad,
                                       core_stream *producer, bool recording);
/* The consumer, which has a stream, is going to run. */
core_status core__input_buffer_wait(core_node *consumer, core__slot *slot);
/* Drops what is known of the arrivals. */
void core__input_buffer_clear(core__slot *slot, uint32_t ninputs);

#endif
