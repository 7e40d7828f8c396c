/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Misuse of devices: closing one while its objects are alive, passing host
 * memory as device memory; sizes of zero and odd sizes.  Misuse of other
 * objects is tested with them (test_event, test_memory_streams,
 * test_memory_blocks, test_engine_faults). */

#include "support/stream.h"

#include "base/thread.h"
#include "device/stream.h"

#include <libcore/capture.h>
#include <libcore/memory.h>

typedef struct made {
    core_stream *stream;
    core_event *event;
    core_tensor *tensor;
    core_memory_pool *pool;
    core_graph *graph;
} made;

enum { KINDS = 5 };

static made make(int kind)
{
    core_device *sim = device_of("sim");
    core_stream *capturing;
    int64_t n = 100;
    made m = {NULL};

    switch (kind) {
    case 0:
        OK(core_stream_create(sim, &m.stream));
        break;
    case 1:
        OK(core_event_create(sim, 0, &m.event));
        break;
    case 2:
        OK(core_full(&n, 1, core_float(1), CORE_F32, sim, &m.tensor));
        break;
    case 3:
        OK(core_memory_pool_create(sim, &m.pool));
        break;
    default:
        OK(core_stream_create(sim, &capturing));
        OK(core_capture_begin(capturing, NULL));
        OK(core_capture_end(capturing, &m.graph));
        core_stream_release(capturing);
    }
    return m;
}

static void unmake(made *m)
{
    core_stream_release(m->stream);
    core_event_release(m->event);
    core_tensor_release(m->tensor);
    core_memory_pool_release(m->pool);
    core_graph_release(m->graph);
}

/* References that keep a plugin from being unloaded (loader/open.c). */
static int64_t held(core_device *device)
{
    uint32_t slot = device->backend->slot;

    return (int64_t)atomic_load(&device->references) +
           core__thread_storages(slot);
}

/* A stream of a destroyed device cannot exist: the device is not destroyed
 * before it. */
START_TEST(device_stays_open_while_an_object_of_it_is_alive)
{
    core_device *sim = device_of("sim");
    int64_t before;

    before = held(sim);
    for (int kind = 0; kind < KINDS; kind++) {
        made m = make(kind);

        ck_assert_msg(held(sim) > before, "kind %d", kind);
        unmake(&m);
        OK(core_device_synchronize(sim));
        ck_assert_msg(held(sim) == before, "kind %d", kind);
    }
}
END_TEST

/* As a plugin's function, or a program's kernel, could do it. */
static void host_pointer_for_memory(void)
{
    core_device *sim = device_of("sim:0");
    core_stream *bad = stream_of(sim), *good = stream_of(sim);
    double mine = 1, there = 2;
    core_memory wrong = {&mine, 0};
    core_status status;

    status = sim->memory.copy_to_host(sim->impl, bad->impl, &there, wrong,
                                      sizeof mine);
    if (status == CORE_OK)
        status = core_stream_synchronize(bad);
    ck_assert_int_ne(status, CORE_OK);
    ck_assert_msg(strstr(core_error_message(), "not memory of sim:0"), "%s",
                  core_error_message());
    status = sim->memory.fill(sim->impl, bad->impl, wrong, 8, 0, 8);
    if (status == CORE_OK)
        status = core_stream_synchronize(bad);
    ck_assert_int_ne(status, CORE_OK);
    ck_assert_double_eq(mine, 1);
    ck_assert_double_eq(there, 2);
    core_stream_release(bad);
    /* Other streams still work. */
    all_are(filled(sim, 10, 3), 3);
    OK(core_stream_synchronize(good));
    core_stream_release(good);
    all_are(filled(device_of("sim:1"), 10, 3), 3);
}

START_TEST(host_pointer_is_refused_as_a_device_handle)
{
    host_pointer_for_memory();
}
END_TEST

START_TEST(host_pointer_is_refused_as_a_device_address)
{
    setenv("LIBCORE_SIM_MEMORY", "flat", 1);
    host_pointer_for_memory();
}
END_TEST

/* Memory of every kind: from the thread's lists, from those shared by all
 * threads, from the device, pinned. */
START_TEST(host_memory_is_aligned_whatever_its_size)
{
    core_device *cpu = device_of("cpu"), *sim = device_of("sim");

    for (int round = 0; round < 2; round++)
        for (int64_t n = 1; n < 3000000; n += 1 + n / 3) {
            core_tensor *made;
            void *data[3];

            OK(core_empty(&n, 1, CORE_U8, cpu, -1, &made));
            OK(core_tensor_data(made, &data[0]));
            OK(core_host_memory_alloc(cpu, (size_t)n, &data[1]));
            OK(core_host_memory_alloc(sim, (size_t)n, &data[2]));
            for (int i = 0; i < 3; i++)
                ck_assert_msg((uintptr_t)data[i] % 64 == 0, "%d: %lld at %p", i,
                              (long long)n, data[i]);
            OK(core_host_memory_free(sim, data[2]));
            OK(core_host_memory_free(cpu, data[1]));
            core_tensor_release(made);
        }
}
END_TEST

static uint64_t requested(core_device *device)
{
    core_memory_stats stats = {.struct_size = sizeof stats};

    OK(core_memory_get_stats(device, &stats));
    return stats.allocations[0].current;
}

START_TEST(tensors_without_elements_take_no_memory)
{
    core_device *sim = device_of("sim"), *other = device_of("sim:1");
    core_tensor *a = filled(sim, 0, 1), *b = filled(other, 0, 1);
    core_tensor *here = filled(device_of("cpu"), 0, 1), *y, *total;
    uint64_t before = requested(sim);
    core_stream *stream = stream_of(sim);
    double number;
    void *pinned;

    OK(core_tensor_read(a, &number, 0));
    OK(core_tensor_write(a, &number, 0));
    OK(core_tensor_copy(a, b, 0));
    OK(core_tensor_copy(a, here, 0));
    OK(core_tensor_copy(here, a, CORE_COPY_NON_BLOCKING));
    OK(core_tensor_record_stream(a, stream));
    OK(core_add(a, a, core_int(1), &y));
    ck_assert_int_eq(core_tensor_numel(y), 0);
    ck_assert_uint_eq(requested(sim), before);
    core_tensor_release(y);
    OK(core_tensor_set_requires_grad(a, true));
    OK(core_sum(a, CORE_DTYPE_NONE, &total));
    all_are(total, 0);
    OK(core_backward(&total, 1, NULL, 0));
    ck_assert_int_eq(core_tensor_numel(core_tensor_grad(a)), 0);
    core_tensor_release(total);
    FAILS(core_host_memory_alloc(sim, 0, &pinned), CORE_ERROR_INVALID_ARGUMENT,
          "0 bytes");
    OK(core_device_synchronize(sim));
    core_stream_release(stream);
}
END_TEST

SUITE("device/device_misuse", host_memory_is_aligned_whatever_its_size,
      tensors_without_elements_take_no_memory,
      device_stays_open_while_an_object_of_it_is_alive,
      host_pointer_is_refused_as_a_device_handle,
      host_pointer_is_refused_as_a_device_address)
