/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Which device's memory an address is in. */

#define SUITE_FORKS true

#include "support/memory.h"

#include <libcore/tensor.h>

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static char *address_of(piece p)
{
    return (char *)p.memory.handle + p.memory.offset;
}

static void open_flat(const char *settings)
{
    setenv("LIBCORE_SIM_MEMORY", "flat", 1);
    open_sim(settings);
}

START_TEST(memory_of_tensors_is_found)
{
    const int64_t n = 1000;
    core_memory memory;
    core_tensor *tensor;
    core_device *second;
    char *data;

    setenv("LIBCORE_SIM_DEVICES", "2", 1);
    open_flat("");
    OK(core_device_find("sim:1", &second));
    OK(core_empty(&n, 1, CORE_F32, second, -1, &tensor));
    OK(core_tensor_memory(tensor, &memory));
    data = (char *)memory.handle + memory.offset;
    ck_assert(core_memory_contains(second, data, 4000));
    ck_assert(core_memory_contains(second, data + 3999, 1));
    ck_assert(!core_memory_contains(sim, data, 1));
    ck_assert(!core_memory_contains(second, data, 3 * MIB));
    ck_assert(!core_memory_contains(second, data, SIZE_MAX));
    ck_assert(!core_memory_contains(second, data, 0));
    ck_assert(!core_memory_contains(second, NULL, 1));
    ck_assert(!core_memory_contains(NULL, data, 1));
    ck_assert(!core_memory_contains(second, &memory, 1));
    core_tensor_release(tensor);
    ck_assert(core_memory_contains(second, data, 4000)); /* cached */
    OK(core_memory_empty_cache(second));
    ck_assert(!core_memory_contains(second, data, 1));
}
END_TEST

START_TEST(ends_of_segments_are_ends)
{
    char *data;
    piece p;

    open_flat("");
    p = take(3 * MIB);
    data = address_of(p);
    ck_assert(core_memory_contains(sim, data, 20 * MIB));
    ck_assert(core_memory_contains(sim, data + 20 * MIB - 1, 1));
    ck_assert(!core_memory_contains(sim, data, 20 * MIB + 1));
    ck_assert(!core_memory_contains(sim, data + 20 * MIB, 1));
    ck_assert(!core_memory_contains(sim, data - 1, 2));
    give(p);
}
END_TEST

START_TEST(heaps_of_other_streams_and_pools_are_searched)
{
    core_memory_pool *pool;
    core_stream *other;
    piece p, q;

    open_flat("");
    other = stream();
    OK(core_memory_pool_create(sim, &pool));
    p = take_on(other, 1000);
    OK(core_memory_pool_begin(pool));
    q = take(1000);
    OK(core_memory_pool_end(pool));
    ck_assert(core_memory_contains(sim, address_of(p), 1000));
    ck_assert(core_memory_contains(sim, address_of(q), 1000));
    give(p);
    give(q);
    core_memory_pool_release(pool);
    core_stream_release(other);
    all_is_back();
}
END_TEST

START_TEST(addresses_without_memory_are_no_memory)
{
    char *data;
    piece p;

    open_flat("expandable_segments:true");
    p = take(3 * MIB);
    data = address_of(p);
    ck_assert(core_memory_contains(sim, data, 20 * MIB));
    ck_assert(!core_memory_contains(sim, data, 20 * MIB + 1));
    ck_assert(!core_memory_contains(sim, data + 20 * MIB, 1));
    give(p);
}
END_TEST

START_TEST(blocks_that_the_device_caches_are_found)
{
    piece p;

    setenv("LIBCORE_SIM_ALLOCATOR", "1", 1);
    open_flat("");
    p = take(1000);
    ck_assert(core_memory_contains(sim, address_of(p), 1000));
    give(p);
    ck_assert(!core_memory_contains(sim, address_of(p), 1));
}
END_TEST

START_TEST(handles_are_no_addresses)
{
    piece p;

    open_sim("");
    p = take(1000);
    ck_assert(!core_memory_contains(sim, address_of(p), 1));
    give(p);
}
END_TEST

START_TEST(memory_is_lost_with_its_device)
{
    char *data;
    piece p;

    open_flat("");
    p = take(1000);
    data = address_of(p);
    OK(control->lose(0));
    FAILS(core_device_synchronize(sim), CORE_ERROR_DEVICE_LOST, "sim");
    OK(core_device_reset(sim));
    ck_assert(!core_memory_contains(sim, data, 1));
    give(p);
}
END_TEST

START_TEST(child_of_fork_has_no_memory_of_devices)
{
    pid_t child;
    int result;
    piece p;

    open_flat("");
    p = take(1000);
    child = fork();
    if (child == 0)
        _exit(core_memory_contains(sim, address_of(p), 1));
    ck_assert_int_eq(waitpid(child, &result, 0), child);
    ck_assert_int_eq(result, 0);
    give(p);
}
END_TEST

START_TEST(cpu_has_no_segments)
{
    const int64_t n = 4;
    core_tensor *tensor;
    core_device *cpu;
    void *data;

    OK(core_device_find("cpu", &cpu));
    OK(core_empty(&n, 1, CORE_F32, cpu, -1, &tensor));
    OK(core_tensor_data(tensor, &data));
    ck_assert(!core_memory_contains(cpu, data, 1));
    core_tensor_release(tensor);
}
END_TEST

SUITE("memory/memory_address", memory_of_tensors_is_found,
      ends_of_segments_are_ends, heaps_of_other_streams_and_pools_are_searched,
      addresses_without_memory_are_no_memory,
      blocks_that_the_device_caches_are_found, handles_are_no_addresses,
      memory_is_lost_with_its_device, child_of_fork_has_no_memory_of_devices,
      cpu_has_no_segments)
