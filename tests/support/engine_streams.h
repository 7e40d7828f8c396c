/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* engine_streams.h: for tests of the engine between streams: streams that a
 * test holds, checks whether memory was reused, and nodes of the program. */

#ifndef TESTS_SUPPORT_ENGINE_STREAMS_H
#define TESTS_SUPPORT_ENGINE_STREAMS_H

#include "devices.h"

#include "tensor/tensor.h"

#include <libcore/memory.h>

enum { COUNT = 4096, PROBES = 24 };

/* ------------------------------------------------------------------ gates -- */

typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t change;
    bool open;
} gate;

#define GATE                                                       \
    {                                                              \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false \
    }

static inline void wait_for_gate(void *context)
{
    gate *gate = context;

    pthread_mutex_lock(&gate->lock);
    while (!gate->open)
        pthread_cond_wait(&gate->change, &gate->lock);
    pthread_mutex_unlock(&gate->lock);
}

static inline void hold(core_stream *stream, gate *gate)
{
    OK(core_stream_callback(stream, wait_for_gate, gate, NULL));
}

static inline void open_gate(gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    gate->open = true;
    pthread_cond_broadcast(&gate->change);
    pthread_mutex_unlock(&gate->lock);
}

static inline void stays_busy(core_stream *stream)
{
    for (int i = 0; i < 20; i++) {
        usleep(2000);
        ck_assert_int_eq(core_stream_query(stream), CORE_ERROR_BUSY);
    }
}

static inline void synchronize(void)
{
    OK(core_device_synchronize(device_of("sim:0")));
    OK(core_device_synchronize(device_of("sim:1")));
}

/* ---------------------------------------------------------------- streams -- */

typedef struct world {
    core_stream *before[2]; /* the caller's streams, by device */
    core_stream *s[8];      /* even ones on sim:0, odd ones on sim:1 */
    core_tensor *ones[4];   /* initial gradients, likewise */
} world;

static inline void use(core_stream *stream)
{
    OK(core_stream_set_current(stream));
}

static inline void callers(const world *world)
{
    use(world->before[0]);
    use(world->before[1]);
}

static inline void end(world *world)
{
    callers(world);
    synchronize();
    drop_all();
    for (int i = 0; i < 8; i++)
        core_stream_release(world->s[i]);
    core_stream_release(world->before[0]);
    core_stream_release(world->before[1]);
}

/* COUNT times the number, computed on the current stream, and ready. */
static inline core_tensor *filled(double value, const char *device)
{
    core_tensor *tensor;

    OK(core_full((int64_t[]){COUNT}, 1, core_float(value), CORE_F64,
                 device_of(device), &tensor));
    synchronize();
    return keep(tensor);
}

static inline void begin(world *world)
{
    world->before[0] = core_stream_retain(current_of("sim:0"));
    world->before[1] = core_stream_retain(current_of("sim:1"));
    for (int i = 0; i < 8; i++)
        world->s[i] = new_stream(i % 2 ? "sim:1" : "sim:0");
    for (int i = 0; i < 4; i++)
        world->ones[i] = filled(1, i % 2 ? "sim:1" : "sim:0");
}

static inline void is_filled(core_tensor *tensor, double value)
{
    static double have[COUNT];
    core_tensor *host;

    ck_assert_ptr_nonnull(tensor);
    OK(core_to_copy(tensor, CORE_F64, device_of("cpu"), false, -1, &host));
    OK(core_tensor_read(host, have, sizeof have));
    core_tensor_release(host);
    for (int i = 0; i < COUNT; i++)
        ck_assert_double_eq(have[i], value);
}

/* Whether the stream gets some of this memory again. */
static inline bool is_reused(core_stream *stream, core_memory memory)
{
    core_stream_guard guard;
    core_tensor *probes[PROBES];
    bool reused = false;

    OK(core_stream_guard_enter(stream, &guard));
    for (int i = 0; i < PROBES; i++) {
        core_memory have;

        OK(core__tensor_new(core_stream_device(stream), CORE_F64, 1,
                            (int64_t[]){COUNT}, NULL, &probes[i]));
        have = probes[i]->storage->memory;
        reused |= have.handle == memory.handle &&
                  have.offset < memory.offset + sizeof(double[COUNT]) &&
                  memory.offset < have.offset + sizeof(double[COUNT]);
    }
    for (int i = 0; i < PROBES; i++)
        core_tensor_release(probes[i]);
    core_stream_guard_leave(&guard);
    return reused;
}

/* ------------------------------------------------------------------ nodes -- */

/* y = x * factor on one device; records where its gradient is stored. */
typedef struct producer {
    double factor;
    core_memory memory;
    /* the gradient is computed on the device of this stream */
    core_stream *elsewhere;
    core_stream *leaves; /* made current before it returns */
} producer;

/* What a node does that returns a gradient on another device than its own: it
 * is computed there, on a stream of that device, for which the node's stream
 * waits. */
static inline core_status make_elsewhere(const producer *producer,
                                         core_tensor *grad, core_tensor **out)
{
    core_device *device = core_stream_device(producer->elsewhere);
    core_stream *own = current_of("sim:1");
    core_stream_guard guard;
    core_tensor *there = NULL;
    core_status status;

    CORE_TRY(core_stream_guard_enter(producer->elsewhere, &guard));
    status = core_to_copy(grad, CORE_F64, device, false, -1, &there);
    if (status == CORE_OK)
        status = core_mul_scalar(there, core_float(producer->factor), out);
    core_tensor_release(there);
    if (status == CORE_OK)
        status = core_stream_wait_stream(own, producer->elsewhere);
    core_stream_guard_leave(&guard);
    return status;
}

static inline core_status produce(core_node *node, void *context,
                                  core_tensor *const *grads, size_t ngrads,
                                  core_tensor **gradients, size_t ngradients)
{
    producer *producer = context;

    (void)node;
    (void)ngrads;
    (void)ngradients;
    if (producer->elsewhere)
        CORE_TRY(make_elsewhere(producer, grads[0], &gradients[0]));
    else
        CORE_TRY(core_mul_scalar(grads[0], core_float(producer->factor),
                                 &gradients[0]));
    producer->memory = gradients[0]->storage->memory;
    return producer->leaves ? core_stream_set_current(producer->leaves)
                            : CORE_OK;
}

/* On `device`, with the stream that is current there. */
static inline core_tensor *through(producer *producer, core_tensor *x,
                                   const char *device)
{
    core_function_info info = {.struct_size = sizeof info,
                               .name = "producer",
                               .backward = produce,
                               .context = producer};
    bool before = core_grad_mode_set(false);
    core_tensor *y;

    OK(core_to_copy(x, CORE_F64, device_of(device), false, -1, &y));
    core_grad_mode_set(before);
    synchronize();
    OK(core_function_record(&info, &x, 1, NULL, 0, &y, 1, NULL));
    return keep(y);
}

/* A node of sim:1 with a second result on sim:0, whose gradient it copies,
 * unless it is not to read it. */
typedef struct split {
    bool untouched;
    bool narrow;        /* the result on sim:0 is CORE_F32 */
    core_tensor *other; /* the result on sim:1 */
} split;

static inline core_status join(core_node *node, void *context,
                               core_tensor *const *grads, size_t ngrads,
                               core_tensor **gradients, size_t ngradients)
{
    core_stream *own = current_of("sim:1"), *there = current_of("sim:0");
    split *split = context;

    (void)node;
    (void)ngradients;
    ck_assert_uint_eq(ngrads, 2);
    if (split->untouched) {
        gradients[0] = core_tensor_retain(grads[0]);
        return CORE_OK;
    }
    /* The copy is ready on the node's own stream. */
    CORE_TRY(core_stream_wait_stream(there, own));
    CORE_TRY(core_tensor_record_stream(grads[1], there));
    CORE_TRY(core_to_copy(grads[1], CORE_F64, core_stream_device(own), false,
                          -1, &gradients[0]));
    return core_stream_wait_stream(own, there);
}

/* Returns the result on sim:0; the one on sim:1 gets no gradient. */
static inline core_tensor *split_of(split *split, core_tensor *x)
{
    core_function_info info = {.struct_size = sizeof info,
                               .name = "split",
                               .backward = join,
                               .context = split};
    bool before = core_grad_mode_set(false);
    core_tensor *out[2];

    OK(core_to_copy(x, CORE_F64, device_of("sim:1"), false, -1, &out[0]));
    OK(core_to_copy(x, split->narrow ? CORE_F32 : CORE_F64, device_of("sim:0"),
                    false, -1, &out[1]));
    core_grad_mode_set(before);
    synchronize();
    OK(core_function_record(&info, &x, 1, NULL, 0, out, 2, NULL));
    split->other = keep(out[0]);
    return keep(out[1]);
}

/* Does not wait: streams may be held. */
static inline void walk(world *world, core_tensor **roots, size_t count,
                        int device)
{
    core_tensor *grads[2] = {world->ones[device], world->ones[device + 2]};

    OK(core_backward(roots, count, grads, CORE_RETAIN_GRAPH));
}

#endif
