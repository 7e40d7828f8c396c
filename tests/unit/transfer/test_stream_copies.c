/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* core_tensor_copy between layouts, dtypes and devices, with and without
 * waiting. */

#define SUITE_FORKS true

#include "support/sim_device.h"
#include "support/stream.h"

#include "device/stream.h"

#include <libcore/memory.h>

static core_device *cpu, *sim1;

static void open_devices(void)
{
    cpu = device_of("cpu");
    sim_find("sim");
    sim1 = device_of("sim:1");
}

/* rows x columns: 0, 1, 2, … */
static core_tensor *counted(core_device *device, core_dtype dtype, int64_t rows,
                            int64_t columns)
{
    core_tensor *host, *there;
    int64_t sizes[] = {rows, columns};
    double *values = malloc((size_t)(rows * columns) * sizeof *values);

    ck_assert_ptr_nonnull(values);
    for (int64_t i = 0; i < rows * columns; i++)
        values[i] = (double)i;
    host = typed(dtype, 2, sizes, values);
    free(values);
    OK(core_to_copy(host, CORE_DTYPE_NONE, device, false, -1, &there));
    return keep(there);
}

static core_tensor *empty(core_device *device, core_dtype dtype, int64_t rows,
                          int64_t columns)
{
    int64_t sizes[] = {rows, columns};
    core_tensor *made;

    OK(core_empty(sizes, 2, dtype, device, -1, &made));
    return keep(made);
}

START_TEST(every_layout_dtype_and_device_is_copied_to_every_other)
{
    core_device *devices[] = {cpu, sim, sim1};
    const core_dtype dtypes[] = {CORE_F32, CORE_I64};

    for (int way = 0; way < 2 * 2 * 9 * 2; way++) {
        core_device *of = devices[way % 3], *on = devices[way / 3 % 3];
        core_dtype from_type = dtypes[way / 9 % 2];
        core_dtype to_type = dtypes[way / 18 % 2];
        bool turned = way / 36;
        core_tensor *from = counted(of, from_type, 3, 4);
        core_tensor *to =
            turned ? empty(on, to_type, 4, 3) : empty(on, to_type, 3, 4);
        core_tensor *view = to;
        core_tensor *back;

        if (turned)
            view = CALL(transpose, to, 0, 1);
        OK(core_tensor_copy(view, from, 0));
        OK(core_to_copy(view, CORE_F64, cpu, false, -1, &back));
        keep(back);
        HOLDS(back, 12, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);
    }
}
END_TEST

START_TEST(other_sizes_and_flags_are_refused)
{
    core_tensor *a = empty(sim, CORE_F32, 2, 3),
                *b = empty(sim, CORE_F32, 3, 2);
    core_tensor *row = filled(sim, 3, 1);

    FAILS(core_tensor_copy(a, b, 0), CORE_ERROR_SHAPE, "[2, 3]", "[3, 2]");
    FAILS(core_tensor_copy(a, row, 0), CORE_ERROR_SHAPE, "[2, 3]", "[3]");
    FAILS(core_tensor_copy(a, a, 2), CORE_ERROR_INVALID_ARGUMENT, "0x2");
}
END_TEST

START_TEST(copy_is_recorded_by_autograd)
{
    core_tensor *x = leaf(counted(sim, CORE_F64, 2, 2));
    core_tensor *to = empty(sim1, CORE_F64, 2, 2);
    core_tensor *grad, *back;

    OK(core_tensor_copy(to, x, 0));
    backward(sum(mul(to, to)));
    grad = core_tensor_grad(x);
    ck_assert_ptr_eq(core_tensor_device(grad), sim);
    OK(core_to_copy(grad, CORE_F64, cpu, false, -1, &back));
    keep(back);
    HOLDS(back, 4, 0, 2, 4, 6);
}
END_TEST

/* The host does not wait for a held device in either direction. */
START_TEST(host_does_not_wait_for_copies_of_pinned_memory)
{
    core_tensor *t = filled(sim, 1000, 5), *u = filled(sim, 1000, 0);
    core_tensor *down, *up;
    int64_t n = 1000;
    uint64_t waits;

    OK(core_tensor_pinned(sim, CORE_F32, &n, 1, &down));
    OK(core_tensor_pinned(sim, CORE_F32, &n, 1, &up));
    keep(down);
    keep(up);
    OK(core_fill_(down, core_float(1)));
    OK(core_fill_(up, core_float(7)));
    OK(core_device_synchronize(sim));
    OK(control->hold(0));
    waits = core_host_waits();
    OK(core_tensor_copy(down, t, CORE_COPY_NON_BLOCKING));
    OK(core_tensor_copy(u, up, CORE_COPY_NON_BLOCKING));
    ck_assert_uint_eq(core_host_waits(), waits);
    all_are(down, 1); /* no copy has run yet */
    OK(control->release(0));
    OK(core_device_synchronize(sim));
    all_are(down, 5);
    all_are(u, 7);
}
END_TEST

START_TEST(copy_of_pageable_memory_waits)
{
    core_tensor *host = filled(cpu, 1000, 3), *t = filled(sim, 1000, 0);
    core_tensor *down = filled(cpu, 1000, 0);

    OK(control->delay(1, 3000));
    OK(core_tensor_copy(t, host, CORE_COPY_NON_BLOCKING));
    OK(core_fill_(host, core_float(4))); /* the caller may reuse the memory */
    OK(core_tensor_copy(down, t, CORE_COPY_NON_BLOCKING));
    all_are(down, 3);
    all_are(t, 3);
}
END_TEST

/* ---- a stream that fails while a copy of it is under way -- */

static core_memory_table plugins_own;
static core_status (*plugins_wait)(void *, void *);
static uint32_t waited;

/* As if another thread had found the stream failed just then. */
static void poison(void)
{
    core__queue *queue = sim->stream->queue;

    queue->failure = strdup("another thread found it");
    atomic_store(&queue->failed, CORE_ERROR_STREAM);
}

static core_status poisoned_down(void *device, void *stream, void *to,
                                 core_memory from, uint64_t size)
{
    core_status status =
        plugins_own.copy_to_host(device, stream, to, from, size);

    poison();
    return status;
}

static core_status poisoned_up(void *device, void *stream, core_memory to,
                               const void *from, uint64_t size)
{
    core_status status =
        plugins_own.copy_from_host(device, stream, to, from, size);

    poison();
    return status;
}

static core_status counted_wait(void *device, void *stream)
{
    waited++;
    return plugins_wait(device, stream);
}

static void watch_the_plugin(void)
{
    plugins_own = sim->memory;
    plugins_wait = sim->backend->streams.synchronize;
    sim->memory.copy_to_host = poisoned_down;
    sim->memory.copy_from_host = poisoned_up;
    sim->backend->streams.synchronize = counted_wait;
    waited = 0;
}

START_TEST(host_memory_is_reusable_even_if_the_stream_failed)
{
    float data[1000] = {0};
    core_tensor *t = filled(sim, 1000, 5);

    OK(core_device_synchronize(sim));
    watch_the_plugin();
    OK(control->delay(1, 20000));
    FAILS(core_tensor_read(t, data, sizeof data), CORE_ERROR_STREAM,
          "another thread");
    ck_assert_uint_eq(waited, 1);
    ck_assert(data[0] == 5 && data[999] == 5);
    OK(core_device_reset(sim));
    t = filled(sim, 1000, 0);
    FAILS(core_tensor_write(t, data, sizeof data), CORE_ERROR_STREAM,
          "another thread");
    ck_assert_uint_eq(waited, 2);
}
END_TEST

START_TEST(copy_between_devices_runs_after_work_on_the_source)
{
    core_tensor *a = filled(sim, 1000, 0), *b = filled(sim1, 1000, 0);
    core_tensor *c = filled(sim1, 1000, 1);
    core_stream *there;

    OK(core_device_synchronize(sim));
    OK(core_device_synchronize(sim1));
    OK(core_stream_current(sim1, &there));
    OK(control->hold(0));
    OK(core_fill_(a, core_float(6)));
    OK(core_tensor_copy(b, a, CORE_COPY_NON_BLOCKING));
    OK(core_add_(c, b, core_int(1)));
    drop(a); /* its memory is freed after the copy */
    ck_assert_int_eq(core_stream_query(there), CORE_ERROR_BUSY);
    OK(control->release(0));
    all_are(c, 7);
}
END_TEST

START_TEST(event_lives_as_long_as_its_last_reference)
{
    core_event *event = event_of(sim);
    core_stream *stream = stream_of(sim);

    ck_assert_ptr_eq(core_event_retain(event), event);
    core_event_release(event);
    OK(core_event_record(event, stream));
    OK(core_event_synchronize(event));
    core_event_release(event);
    core_event_release(NULL);
    core_stream_release(stream);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        every_layout_dtype_and_device_is_copied_to_every_other,
        other_sizes_and_flags_are_refused,
        copy_is_recorded_by_autograd,
        host_does_not_wait_for_copies_of_pinned_memory,
        copy_of_pageable_memory_waits,
        host_memory_is_reusable_even_if_the_stream_failed,
        copy_between_devices_runs_after_work_on_the_source,
        event_lives_as_long_as_its_last_reference,
    };

    return run_suite_with("transfer/stream_copies", open_devices, tests,
                          sizeof tests / sizeof *tests);
}
