/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Host callbacks of GPUs, on the emulated device, whose driver refuses every
 * call that a host function of its own makes, and whose memory is freed when
 * all work of the device is done.  Both ways in which a stream waits: at a gate,
 * and in a host function of the driver's. */

#define SUITE_SECONDS 60

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

/* Waits for a state that another thread makes. */
static void until(_Atomic int *state, int value)
{
    while (atomic_load(state) < value)
        sched_yield();
}

/* What came of callbacks. */
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

/* What comes later on the stream has not been done, what came before has. */
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

START_TEST(a_stream_waits_at_a_gate)
{
    stream_waits(1);
}
END_TEST

START_TEST(a_stream_waits_in_a_host_function)
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

START_TEST(work_behind_a_callback_waits_for_it)
{
    stream_stays_busy(1);
}
END_TEST

START_TEST(work_behind_a_host_function_waits_for_it)
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

START_TEST(a_callback_computes_on_another_stream)
{
    callback_computes(1);
}
END_TEST

START_TEST(a_callback_behind_no_gate_computes_too)
{
    callback_computes(0);
}
END_TEST

/* Memory of each kind, as a plugin is asked for it. */
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

/* The device's driver frees when its work is done, the callback's stream too. */
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

START_TEST(what_a_callback_frees_goes_when_the_stream_goes_on)
{
    callback_frees(1);
}
END_TEST

START_TEST(what_is_freed_behind_no_gate_goes_too)
{
    callback_frees(0);
}
END_TEST

/* What another thread is at waits for the device, and that for a callback. */
static void end_a_stream(void *context)
{
    struct timespec pause = {0, 100000000};

    atomic_fetch_add(&runs, 1);
    nanosleep(&pause, NULL); /* it waits by now */
    core_stream_release(context);
}

START_TEST(a_callback_ends_a_stream_while_kernels_are_loaded)
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

START_TEST(a_callback_ends_a_stream_while_another_is_given_one)
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

/* Each thread may make the stream's first: all are of one in the end. */
START_TEST(threads_give_a_stream_its_first_callback)
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

/* Drivers' waits are busy if nobody says otherwise. */
START_TEST(what_waits_for_a_callback_sleeps)
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

/* Neither can be run before the other began. */
START_TEST(callbacks_of_two_streams_wait_for_one_another)
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

/* ------------------------------------------------------------ run, drop -- */

enum { MANY = 40 };

/* Those in front of what loses the device are run, those behind dropped. */
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

START_TEST(what_a_lost_device_does_not_come_to_is_dropped)
{
    loss_drops(1);
}
END_TEST

START_TEST(what_a_lost_device_holds_by_host_functions_is_dropped)
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

/* The context is one that keeps the device, too.  The thread that served the
 * stream ends: of the emulated driver's, which stay, one more is there, of the
 * new default stream. */
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
    while (threads() > before) /* as long as the suite may take */
        sched_yield();
    stream = new_stream();
    OK(core_stream_callback(stream, count_run, NULL, count_drop));
    OK(core_stream_synchronize(stream));
    ck_assert_int_eq(atomic_load(&runs), 2);
    ck_assert_int_eq(atomic_load(&drops), MANY);
    core_stream_release(stream);
}

START_TEST(a_reset_drops_callbacks)
{
    reset_drops(1);
}
END_TEST

START_TEST(a_reset_drops_callbacks_of_host_functions)
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

START_TEST(callbacks_of_a_stream_that_ended_are_run)
{
    stream_ends(1);
}
END_TEST

START_TEST(host_functions_of_a_stream_that_ended_are_run)
{
    stream_ends(0);
}
END_TEST

static void end_stream(void *context)
{
    core_stream_release(context);
    atomic_fetch_add(&runs, 1);
}

START_TEST(a_stream_ends_in_its_own_callback)
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

START_TEST(several_threads_give_callbacks_to_one_stream)
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

EMULATED_SUITE("gpu callbacks", a_stream_waits_at_a_gate,
               a_stream_waits_in_a_host_function,
               work_behind_a_callback_waits_for_it,
               work_behind_a_host_function_waits_for_it,
               a_callback_computes_on_another_stream,
               a_callback_behind_no_gate_computes_too,
               what_a_callback_frees_goes_when_the_stream_goes_on,
               what_is_freed_behind_no_gate_goes_too,
               callbacks_of_two_streams_wait_for_one_another,
               what_a_lost_device_does_not_come_to_is_dropped,
               what_a_lost_device_holds_by_host_functions_is_dropped,
               a_reset_drops_callbacks,
               a_reset_drops_callbacks_of_host_functions,
               callbacks_of_a_stream_that_ended_are_run,
               host_functions_of_a_stream_that_ended_are_run,
               a_stream_ends_in_its_own_callback,
               a_callback_ends_a_stream_while_kernels_are_loaded,
               a_callback_ends_a_stream_while_another_is_given_one,
               threads_give_a_stream_its_first_callback,
               what_waits_for_a_callback_sleeps,
               several_threads_give_callbacks_to_one_stream)
