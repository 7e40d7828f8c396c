/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Sums the gradients of a node's inputs, on the streams of cases A, B and C. */

#include "autograd/engine/input_buffer.h"

#include "autograd/graph/autograd_ops.h"
#include "base/memory.h"
#include "tensor/batched.h"

#include <libcore/memory.h>

static bool sole_owner(const core_tensor *tensor)
{
    return atomic_load_explicit(&tensor->references, memory_order_acquire) ==
               1 &&
           tensor->storage &&
           atomic_load_explicit(&tensor->storage->references,
                                memory_order_acquire) == 1;
}

core_status core__input_buffer_sum(core_tensor **buffer, core_tensor *grad,
                                   bool recording)
{
    core_tensor *sum = NULL;
    core_status status;

    if (!recording && sole_owner(*buffer) &&
        (*buffer)->flags & CORE__TENSOR_DENSE &&
        !((*buffer)->flags & CORE__TENSOR_INFERENCE) &&
        !core__tensor_is_batched(grad)) {
        status = core__autograd_op_add_in_place(*buffer, grad);
    } else {
        status = core__autograd_op_add(*buffer, grad, &sum);
        if (status == CORE_OK) {
            core__tensor_release(*buffer);
            *buffer = sum;
        }
    }
    core__tensor_release(grad);
    return status;
}

/* --------------------------------------------------------------- streams -- */

/* Records a new event on the stream. */
static core_status event_on(core_stream *stream, core_event **out_event)
{
    core_event *event;
    core_status status;

    *out_event = NULL;
    CORE_TRY(core__event_take(stream->device, &event));
    status = core_event_record(event, stream);
    if (status != CORE_OK) {
        core__event_return(event);
        return status;
    }
    *out_event = event;
    return CORE_OK;
}

/* Only streams of the tensor's device are recorded for its memory. */
static core_status record_stream(core_tensor *tensor, core_stream *stream)
{
    if (stream->device != tensor->device)
        return CORE_OK;
    return core_tensor_record_stream(tensor, stream);
}

static void set_stream(core_stream **slot, core_stream *stream)
{
    core_stream *old = *slot;

    *slot = core_stream_retain(stream);
    core_stream_release(old);
}

static void set_event(core__arrival *arrival, core_event *event)
{
    if (arrival->event)
        core__event_return(arrival->event);
    arrival->event = event;
}

static core_status arrivals_make(core_node *consumer, core__slot *slot)
{
    if (slot->arrivals)
        return CORE_OK;
    slot->arrivals =
        core__alloc_zero(consumer->ninputs * sizeof *slot->arrivals);
    return slot->arrivals
               ? CORE_OK
               : core__error_memory(consumer->ninputs * sizeof *slot->arrivals);
}

void core__input_buffer_clear(core__slot *slot, uint32_t ninputs)
{
    if (!slot->arrivals)
        return;
    for (uint32_t i = 0; i < ninputs; i++) {
        core_stream_release(slot->arrivals[i].sum);
        core_stream_release(slot->arrivals[i].ready);
        set_event(&slot->arrivals[i], NULL);
    }
    core__free(slot->arrivals);
    slot->arrivals = NULL;
}

/* Cases A, B and C. */
static core_stream *sum_stream(const core_tensor *grad, core_stream *consumer,
                               core_stream *producer)
{
    if (consumer->device == grad->device)
        return consumer;
    if (producer->device == grad->device)
        return producer;
    return core__stream_current(grad->device);
}

static core_status add_first(core__arrival *arrival, core_tensor *grad,
                             core_stream *consumer, core_stream *producer)
{
    core_stream *sum = sum_stream(grad, consumer, producer);
    core_event *event = NULL;

    if (sum == consumer && consumer != producer)
        CORE_TRY(record_stream(grad, consumer));
    if (consumer != producer || sum != producer)
        CORE_TRY(event_on(producer, &event));
    set_event(arrival, event);
    set_stream(&arrival->sum, sum);
    set_stream(&arrival->ready, producer);
    return CORE_OK;
}

/* Makes the buffer and the new gradient ready on the sum's stream, and keeps
 * their memory from being reused before that stream is done with them. */
static core_status make_ready(core__arrival *arrival, core_tensor *buffer,
                              core_tensor *grad, core_stream *producer)
{
    if (arrival->sum != producer) {
        CORE_TRY(core__stream_order(arrival->sum, producer));
        CORE_TRY(record_stream(grad, arrival->sum));
    }
    if (arrival->sum != arrival->ready) {
        CORE_TRY(core_stream_wait_event(arrival->sum, arrival->event));
        CORE_TRY(record_stream(buffer, arrival->sum));
    }
    return CORE_OK;
}

/* Takes ownership of grad. */
static core_status sum_on(core_stream *stream, core_tensor **buffer,
                          core_tensor *grad, bool recording)
{
    core_stream *before = NULL;
    core_status status = CORE_OK;

    if (core__stream_current(stream->device) != stream)
        status = core__stream_swap(stream, &before);
    if (status == CORE_OK)
        status = core__input_buffer_sum(buffer, grad, recording);
    else
        core__tensor_release(grad);
    core__stream_restore(before);
    return status;
}

/* Takes ownership of grad. */
static core_status add_next(core__arrival *arrival, core_tensor **buffer,
                            core_tensor *grad, core_stream *consumer,
                            core_stream *producer, bool recording)
{
    core_event *event = NULL;
    core_status status = make_ready(arrival, *buffer, grad, producer);

    if (status != CORE_OK) {
        core__tensor_release(grad);
        return status;
    }
    CORE_TRY(sum_on(arrival->sum, buffer, grad, recording));
    if (consumer != arrival->sum)
        CORE_TRY(event_on(arrival->sum, &event));
    if (event)
        set_event(arrival, event);
    set_stream(&arrival->ready, arrival->sum);
    return CORE_OK;
}

core_status core__input_buffer_deliver(core_node *consumer, core__slot *slot,
                                       uint32_t input, core_tensor *grad,
                                       core_stream *producer, bool recording)
{
    core_tensor **buffer = &slot->grads[input];
    core_stream *to = consumer->stream;
    core__arrival *arrival;
    core_status status;

    if (grad->device->synchronous)
        return core__input_buffer_add(buffer, grad, recording);
    if (!producer)
        producer = core__stream_current(grad->device);
    if (!to)
        to = core__stream_current(grad->device);
    /* All on one stream. */
    if (core__likely(to == producer && to->device == grad->device &&
                     (!slot->arrivals || !slot->arrivals[input].sum))) {
        if (!*buffer) {
            *buffer = grad;
            return CORE_OK;
        }
        return sum_on(to, buffer, grad, recording);
    }
    status = arrivals_make(consumer, slot);
    arrival = status == CORE_OK ? &slot->arrivals[input] : NULL;
    if (status == CORE_OK && !*buffer)
        status = add_first(arrival, grad, to, producer);
    if (status != CORE_OK) {
        core__tensor_release(grad);
        return status;
    }
    if (!*buffer) {
        *buffer = grad;
        return CORE_OK;
    }
    if (!arrival->sum) { /* all earlier ones were on the consumer's stream */
        set_stream(&arrival->sum, to);
        set_stream(&arrival->ready, to);
    }
    return add_next(arrival, buffer, grad, to, producer, recording);
}

core_status core__input_buffer_wait(core_node *consumer, core__slot *slot)
{
    for (uint32_t i = 0; slot->arrivals && i < consumer->ninputs; i++) {
        const core__arrival *arrival = &slot->arrivals[i];

        if (slot->grads[i] && arrival->ready &&
            arrival->ready != consumer->stream)
            CORE_TRY(core_stream_wait_event(consumer->stream, arrival->event));
    }
    return CORE_OK;
}
