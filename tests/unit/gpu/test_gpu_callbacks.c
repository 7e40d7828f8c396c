/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Host callbacks of GPUs, on the emulated device, whose driver refuses calls
 * from its own host functions and frees memory only after all work of the
 * device.  Both ways in which a stream waits are tested: gates and host
 * functions. */

#define SUITE_SECONDS 60

#define SUITE_FORKS true

#include "support/gpu_emulated.h"

#include "device/device.h"

#include <libcore/memory.h>
#include <libcore/settings.h>
#include <libcore/stream.h>

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

static core_device *gpu;

static void open_with(int gates)
{
    setenv("GPUEMU_GATES", gates ? "1" : "0", 1);
    gpu = gpuemu();
}

static core_stream *new_stream(void)
{
    core_stream *stream;

    OK(core_stream_create(gpu, &stream));
    return stream;
}

static core_tensor *filled(double value)
{
    return CALL(full, (int64_t[]){100}, 1, core_float(value), CORE_F32, gpu);
}

static float first_of(core_tensor *tensor)
{
    float values[100];

    OK(core_tensor_read(tensor, values, sizeof values));
    return values[0];
}

/* Waits until another thread sets the state. */
static void until(_Atomic int *state, int value)
{
    while (atomic_load(state) < value)
        sched_yield();
}

/* What the callbacks did. */
static _Atomic int runs, drops, state;

static void count_run(void *context)
{
    (void)context;
    atomic_fetch_add(&runs, 1);
}

static void count_drop(void *context)
{
    (void)context;
    atomic_fetch_add(&drops, 1);
}

static void wait_for_state(void *context)
{
    atomic_fetch_add(&runs, 1);
    until(&state, (int)(intptr_t)context);
}

static void raise_state(void *context)
{
    (void)context;
    atomic_fetch_add(&state, 1);
}

/* --------------------------------------------------------------- order -- */

typedef struct seen {
    core_tensor *pinned;
    float value;
} seen;

static void look(void *context)
{
    seen *s = context;
    void *data;

    sched_yield();
    OK(core_tensor_data(s->pinned, &data));
    s->value = *(float *)data;
}

/* Later work on the stream has not run, earlier work has. */
static void stream_waits(int gates)
{
    enum { COUNT = 50 };
    static seen all[COUNT];
    core_tensor *pinned;
    int64_t size = 100;

    open_with(gates);
    OK(core_tensor_pinned(gpu, CORE_F32, &size, 1, &pinned));
    for (int i = 0; i < COUNT; i++) {
        core_stream *stream;
        core_tensor *x = filled(i);

        OK(core_stream_current(gpu, &stream));
        OK(core_tensor_copy(pinned, x, CORE_COPY_NON_BLOCKING));
        all[i].pinned = pinned;
        OK(core_stream_callback(stream, look, &all[i], NULL));
    }
    OK(core_device_synchronize(gpu));
    for (int i = 0; i < COUNT; i++)
        ck_assert_float_eq(all[i].value, (float)i);
    core_tensor_release(pinned);
}

START_TEST(stream_waits_at_a_gate)
{
    stream_waits(1);
}
END_TEST

START_TEST(stream_waits_in_a_host_function)
{
    stream_waits(0);
}
END_TEST

static void stream_stays_busy(int gates)
{
    core_stream *stream;
    core_tensor *x, *y;

    open_with(gates);
    stream = new_stream();
    OK(core_stream_set_current(stream));
    x = filled(2);
    OK(core_stream_callback(stream, wait_for_state, (void *)1, NULL));
    y = CALL(mul, x, x);
    until(&runs, 1);
    ck_assert_int_eq(core_stream_query(stream), CORE_ERROR_BUSY);
    raise_state(NULL);
    ck_assert_float_eq(first_of(y), 4);
    ck_assert_int_eq(core_stream_query(stream), CORE_OK);
    core_stream_release(stream);
}

START_TEST(later_work_waits_for_a_callback)
{
    stream_stays_busy(1);
}
END_TEST

START_TEST(later_work_waits_for_a_host_function)
{
    stream_stays_busy(0);
}
END_TEST

/* ---------------------------------------------------- what one may call -- */

typedef struct given {
    core_stream *stream;
    core_tensor *x;
    float value;
} given;

static void compute(void *context)
{
    given *g = context;
    core_stream_guard guard;
    core_tensor *y, *z;

    OK(core_stream_guard_enter(g->stream, &guard));
    OK(core_mul(g->x, g->x, &y));
    OK(core_add(g->x, y, core_int(1), &z));
    g->value = first_of(z);
    core_tensor_release(y);
    core_tensor_release(z);
    core_stream_guard_leave(&guard);
}

static void callback_computes(int gates)
{
    given g;
    core_stream *stream;

    open_with(gates);
    stream = new_stream();
    g.stream = new_stream();
    g.x = filled(3);
    OK(core_device_synchronize(gpu));
    OK(core_stream_callback(stream, compute, &g, NULL));
    OK(core_stream_synchronize(stream));
    ck_assert_float_eq(g.value, 12);
    core_stream_release(stream);
    core_stream_release(g.stream);
}

START_TEST(callback_can_compute_on_another_stream)
{
    callback_computes(1);
}
END_TEST

START_TEST(callback_without_gates_can_compute)
{
    callback_computes(0);
}
END_TEST

/* All kinds of memory that a plugin allocates. */
typedef struct memories {
    core_memory memory, range;
    void *host;
    uint64_t granularity;
} memories;

static void free_memories(void *context)
{
    memories *m = context;

    gpu->memory.free(gpu->impl, m->memory, 4096);
    gpu->interfaces.host_memory.free(gpu->impl, m->host, 4096);
    gpu->interfaces.virtual_memory.unmap(gpu->impl, m->range, 0,
                                         m->granularity);
    gpu->interfaces.virtual_memory.release(gpu->impl, m->range, m->granularity);
}

/* Freeing waits for all work of the device, including the callback's stream. */
static void callback_frees(int gates)
{
    uint64_t before, now, total;
    core_stream *stream;
    memories m;

    open_with(gates);
    stream = new_stream();
    OK(gpu->memory.info(gpu->impl, &before, &total));
    OK(gpu->memory.alloc(gpu->impl, 4096, &m.memory));
    OK(gpu->interfaces.host_memory.alloc(gpu->impl, 4096, &m.host));
    OK(gpu->interfaces.virtual_memory.granularity(gpu->impl, &m.granularity));
    OK(gpu->interfaces.virtual_memory.reserve(gpu->impl, m.granularity,
                                              &m.range));
    OK(gpu->interfaces.virtual_memory.map(gpu->impl, m.range, 0,
                                          m.granularity));
    OK(core_stream_callback(stream, free_memories, &m, NULL));
    OK(core_stream_callback(stream, count_run, NULL, NULL));
    OK(core_stream_synchronize(stream));
    do {
        sched_yield();
        OK(gpu->memory.info(gpu->impl, &now, &total));
    } while (now != before);
    core_stream_release(stream);
}

START_TEST(memory_freed_in_a_callback_is_freed_later)
{
    callback_frees(1);
}
END_TEST

START_TEST(memory_freed_without_gates_is_freed_later)
{
    callback_frees(0);
}
END_TEST

/* Another thread waits for the device, which waits for a callback. */
static void end_a_stream(void *context)
{
    struct timespec pause = {0, 100000000};

    atomic_fetch_add(&runs, 1);
    nanosleep(&pause, NULL); /* by now it waits */
    core_stream_release(context);
}

START_TEST(callback_can_end_a_stream_while_kernels_load)
{
    core_stream *first;
    core_tensor *x;

    setenv("GPUEMU_LOADS", "1", 1);
    open_with(1);
    first = new_stream();
    x = filled(3);
    OK(core_stream_callback(first, end_a_stream, new_stream(), NULL));
    until(&runs, 1);
    ck_assert_float_eq(first_of(CALL(neg, x)), -3);
    OK(core_stream_synchronize(first));
    core_stream_release(first);
}
END_TEST

START_TEST(callback_can_end_a_stream_during_an_enqueue)
{
    core_stream *first, *second;

    setenv("GPUEMU_LOADS", "1", 1);
    open_with(1);
    first = new_stream();
    second = new_stream();
    OK(core_stream_callback(first, end_a_stream, new_stream(), NULL));
    until(&runs, 1);
    OK(core_stream_callback(second, count_run, NULL, NULL));
    OK(core_stream_synchronize(second));
    ck_assert_int_eq(atomic_load(&runs), 2);
    core_stream_release(first);
    core_stream_release(second);
}
END_TEST

typedef struct giver {
    core_stream *stream;
    pthread_t thread;
} giver;

static void *give_first(void *context)
{
    OK(core_stream_callback(((giver *)context)->stream, count_run, NULL, NULL));
    return NULL;
}

/* Several threads may create the stream's callback queue: only one is used. */
START_TEST(threads_can_race_to_enqueue_the_first_callback)
{
    enum { THREADS = 4, TIMES = 50 };
    giver givers[THREADS];

    open_with(1);
    for (int n = 0; n < TIMES; n++) {
        core_stream *stream = new_stream();

        for (int i = 0; i < THREADS; i++) {
            givers[i].stream = stream;
            ck_assert_int_eq(
                pthread_create(&givers[i].thread, NULL, give_first, &givers[i]),
                0);
        }
        for (int i = 0; i < THREADS; i++)
            pthread_join(givers[i].thread, NULL);
        OK(core_stream_synchronize(stream));
        ck_assert_int_eq(atomic_load(&runs), (n + 1) * THREADS);
        core_stream_release(stream);
    }
}
END_TEST

static void take_a_while(void *context)
{
    struct timespec pause = {0, 400000000};

    (void)context;
    nanosleep(&pause, NULL);
}

/* By default a driver's waits spin. */
START_TEST(waiting_for_a_callback_sleeps)
{
    core_stream *first, *second;
    core_event *event;
    clock_t before;

    setenv("GPUEMU_SPIN", "1", 1);
    open_with(1);
    first = new_stream();
    second = new_stream();
    OK(core_event_create(gpu, 0, &event));
    OK(core_device_synchronize(gpu));
    before = clock();
    OK(core_stream_callback(first, take_a_while, NULL, NULL));
    OK(core_event_record(event, first));
    OK(core_stream_wait_event(second, event));
    OK(core_stream_callback(second, raise_state, NULL, NULL));
    take_a_while(NULL);
    OK(core_device_synchronize(gpu));
    ck_assert_int_eq(atomic_load(&state), 1);
    ck_assert_int_lt(clock() - before, CLOCKS_PER_SEC / 5);
    core_event_release(event);
    core_stream_release(first);
    core_stream_release(second);
}
END_TEST

/* Neither can run before the other has begun. */
START_TEST(callbacks_of_two_streams_can_wait_for_each_other)
{
    core_stream *first, *second;

    open_with(1);
    first = new_stream();
    second = new_stream();
    OK(core_stream_callback(first, wait_for_state, (void *)1, NULL));
    OK(core_stream_callback(second, raise_state, NULL, NULL));
    OK(core_stream_callback(second, wait_for_state, (void *)2, NULL));
    OK(core_stream_callback(first, raise_state, NULL, NULL));
    OK(core_stream_synchronize(first));
    OK(core_stream_synchronize(second));
    core_stream_release(first);
    core_stream_release(second);
}
END_TEST

/* A driver lets no other thread create objects while a copy to pageable memory
 * waits in it for a stream; a callback of that stream may need to. */
static void compute_late(void *context)
{
    core_stream *stream;
    core_stream_guard guard;

    (void)context;
    until(&state, 1);
    nanosleep(&(struct timespec){0, 100000000}, NULL); /* the copy has begun */
    stream = new_stream();
    OK(core_stream_guard_enter(stream, &guard));
    ck_assert_float_eq(first_of(filled(2)), 2);
    core_stream_guard_leave(&guard);
    core_stream_release(stream);
    atomic_fetch_add(&runs, 1);
}

START_TEST(callback_can_compute_during_a_copy_to_pageable_memory)
{
    core_stream *stream;
    core_tensor *x;

    setenv("GPUEMU_PAGEABLE_WAITS", "1", 1);
    open_with(1);
    x = filled(3);
    OK(core_stream_current(gpu, &stream));
    OK(core_stream_callback(stream, compute_late, NULL, NULL));
    raise_state(NULL);
    ck_assert_float_eq(first_of(x), 3);
    ck_assert_int_eq(atomic_load(&runs), 1);
}
END_TEST

/* More than a driver's queue has events for; each runs, in order. */
START_TEST(many_callbacks_can_be_pending)
{
    enum { PENDING = 200 };
    core_stream *stream;

    setenv("GPUEMU_SLEEPING", "56", 1);
    open_with(1);
    stream = new_stream();
    OK(core_stream_callback(stream, wait_for_state, (void *)1, NULL));
    for (int i = 0; i < PENDING; i++)
        OK(core_stream_callback(stream, count_run, NULL, count_drop));
    raise_state(NULL);
    OK(core_stream_synchronize(stream));
    ck_assert_int_eq(atomic_load(&runs), PENDING + 1);
    core_stream_release(stream);
}
END_TEST

/* ------------------------------------------------------------ run, drop -- */

enum { MANY = 40 };

/* Callbacks before the work that loses the device run, later ones are
 * dropped. */
static void loss_drops(int gates)
{
    core_stream *stream;
    core_tensor *x, *y = NULL;
    int refused = 0;

    setenv("GPUEMU_LOSE_AFTER", "1", 1);
    open_with(gates);
    stream = new_stream();
    OK(core_stream_set_current(stream));
    x = filled(1);
    OK(core_mul(x, x, &y));
    core_tensor_release(y);
    OK(core_stream_callback(stream, wait_for_state, (void *)1, count_drop));
    OK(core_mul(x, x, &y));
    core_tensor_release(y);
    for (int i = 0; i < MANY; i++)
        OK(core_stream_callback(stream, count_run, NULL, count_drop));
    ck_assert_int_eq(atomic_load(&drops), 0);
    raise_state(NULL);
    ck_assert_int_eq(core_stream_synchronize(stream), CORE_ERROR_DEVICE_LOST);
    for (int i = 0; i < MANY; i++)
        refused += core_stream_callback(stream, count_run, NULL, count_drop) ==
                   CORE_ERROR_DEVICE_LOST;
    ck_assert_int_eq(refused, MANY);
    until(&drops, 2 * MANY);
    core_stream_release(stream);
    ck_assert_int_eq(atomic_load(&runs), 1);
    ck_assert_int_eq(atomic_load(&drops), 2 * MANY);
}

START_TEST(lost_device_drops_callbacks)
{
    loss_drops(1);
}
END_TEST

START_TEST(lost_device_drops_callbacks_of_host_functions)
{
    loss_drops(0);
}
END_TEST

static int threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    int count = 0;

    ck_assert_ptr_nonnull(tasks);
    while (readdir(tasks) != NULL)
        count++;
    closedir(tasks);
    return count;
}

/* The context survives the device, too.  The thread of the stream's callbacks
 * ends; one more thread of the emulated driver, whose threads stay, belongs to
 * the new default stream. */
static void reset_drops(int gates)
{
    core_stream *stream;
    core_tensor *x, *y;
    int before;

    open_with(gates);
    stream = new_stream();
    OK(core_stream_callback(stream, wait_for_state, (void *)1, count_drop));
    for (int i = 0; i < MANY; i++)
        OK(core_stream_callback(stream, count_run, NULL, count_drop));
    until(&runs, 1);
    before = threads();
    OK(core_device_reset(gpu));
    raise_state(NULL);
    until(&drops, MANY);
    ck_assert_int_eq(atomic_load(&runs), 1);
    core_stream_release(stream);
    x = filled(5);
    y = CALL(mul, x, x);
    ck_assert_float_eq(first_of(y), 25);
    while (threads() > before) /* no longer than the suite's time limit */
        sched_yield();
    stream = new_stream();
    OK(core_stream_callback(stream, count_run, NULL, count_drop));
    OK(core_stream_synchronize(stream));
    ck_assert_int_eq(atomic_load(&runs), 2);
    ck_assert_int_eq(atomic_load(&drops), MANY);
    core_stream_release(stream);
}

START_TEST(reset_drops_callbacks)
{
    reset_drops(1);
}
END_TEST

START_TEST(reset_drops_callbacks_of_host_functions)
{
    reset_drops(0);
}
END_TEST

static void stream_ends(int gates)
{
    core_stream *stream;

    open_with(gates);
    for (int i = 0; i < MANY; i++) {
        stream = new_stream();
        OK(core_stream_callback(stream, wait_for_state, (void *)1, count_drop));
        OK(core_stream_callback(stream, count_run, NULL, count_drop));
        core_stream_release(stream);
    }
    raise_state(NULL);
    until(&runs, 2 * MANY);
    OK(core_device_synchronize(gpu));
    ck_assert_int_eq(atomic_load(&drops), 0);
}

START_TEST(callbacks_of_an_ended_stream_run)
{
    stream_ends(1);
}
END_TEST

START_TEST(host_functions_of_an_ended_stream_run)
{
    stream_ends(0);
}
END_TEST

static void end_stream(void *context)
{
    core_stream_release(context);
    atomic_fetch_add(&runs, 1);
}

START_TEST(stream_can_end_in_its_own_callback)
{
    for (int gates = 0; gates < 2; gates++) {
        core_stream *stream;

        open_with(gates);
        stream = new_stream();
        OK(core_stream_callback(stream, end_stream, stream, count_drop));
        until(&runs, gates + 1);
    }
    ck_assert_int_eq(atomic_load(&drops), 0);
}
END_TEST

static void *give_some(void *stream)
{
    for (int i = 0; i < MANY; i++)
        OK(core_stream_callback(stream, count_run, NULL, count_drop));
    return NULL;
}

START_TEST(threads_can_share_a_stream_for_callbacks)
{
    pthread_t threads[4];
    core_stream *stream;

    for (int gates = 0; gates < 2; gates++) {
        open_with(gates);
        stream = new_stream();
        for (int i = 0; i < 4; i++)
            ck_assert_int_eq(
                pthread_create(&threads[i], NULL, give_some, stream), 0);
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
        OK(core_stream_synchronize(stream));
        ck_assert_int_eq(atomic_load(&runs), (gates + 1) * 4 * MANY);
        core_stream_release(stream);
    }
    ck_assert_int_eq(atomic_load(&drops), 0);
}
END_TEST

EMULATED_SUITE(
    "gpu/gpu_callbacks", stream_waits_at_a_gate,
    stream_waits_in_a_host_function, later_work_waits_for_a_callback,
    later_work_waits_for_a_host_function,
    callback_can_compute_on_another_stream, callback_without_gates_can_compute,
    memory_freed_in_a_callback_is_freed_later,
    memory_freed_without_gates_is_freed_later,
    callbacks_of_two_streams_can_wait_for_each_other,
    callback_can_compute_during_a_copy_to_pageable_memory,
    many_callbacks_can_be_pending, lost_device_drops_callbacks,
    lost_device_drops_callbacks_of_host_functions, reset_drops_callbacks,
    reset_drops_callbacks_of_host_functions, callbacks_of_an_ended_stream_run,
    host_functions_of_an_ended_stream_run, stream_can_end_in_its_own_callback,
    callback_can_end_a_stream_while_kernels_load,
    callback_can_end_a_stream_during_an_enqueue,
    threads_can_race_to_enqueue_the_first_callback,
    waiting_for_a_callback_sleeps, threads_can_share_a_stream_for_callbacks)
