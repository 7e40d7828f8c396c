/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* engine_streams.h: streams that a test holds, and whether memory was given
 * anew, for tests of the engine between streams. */

#ifndef TESTS_UNIT_ENGINE_STREAMS_H
#define TESTS_UNIT_ENGINE_STREAMS_H

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
    core_stream *before[2]; /* the caller's own, by device */
    core_stream *s[8];      /* even ones of sim:0, odd ones of sim:1 */
    core_tensor *ones[4];   /* gradients to begin with, likewise */
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

/* COUNT times the number, made and ready on the current stream. */
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

/* Some of this memory is given anew to the stream. */
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

#endif
