/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Memory of the simulated accelerator: poison, fences, limits, addresses,
 * reservations, peers; as handles and as flat memory. */

#define SUITE_FORKS true

#include "support/sanitizers.h"
#include "support/sim.h"

#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

/* Large blocks are allocated in another way. */
enum { N = 4096, LARGE = (3 << 20) + 4 * N };

static void *stream;

static void setup_handles(void)
{
    sim_open();
    stream = new_stream(device);
}

static void setup_flat(void)
{
    setenv("LIBCORE_SIM_MEMORY", "flat", 1);
    setup_handles();
}

static void teardown(void)
{
    sim_close();
}

START_TEST(fresh_memory_is_poison)
{
    core_memory a = new_block(device, N);

    ck_assert_uint_eq(byte_of(device, stream, a), 0xa5);
    ck_assert_uint_eq(byte_of(device, stream, at(a, N - 1)), 0xa5);
    sim.memory->free(device, a, N);
    ck_assert_uint_eq(counted(0).blocks, 0);
    ck_assert_uint_eq(counted(0).bytes, 0);
}
END_TEST

static uint64_t bytes_other_than_poison(core_memory block, uint64_t size)
{
    unsigned char *bytes = malloc(size);
    uint64_t count = 0;

    ck_assert_ptr_nonnull(bytes);
    OK(sim.memory->copy_to_host(device, stream, bytes, block, size));
    OK(sim.streams->synchronize(device, stream));
    for (uint64_t i = 0; i < size; i++)
        count += bytes[i] != 0xa5;
    free(bytes);
    return count;
}

START_TEST(fresh_memory_of_large_blocks_is_poison)
{
    core_memory a = new_block(device, LARGE), b;

    ck_assert_uint_eq(bytes_other_than_poison(a, LARGE), 0);
    OK(sim.memory->fill(device, stream, at(a, 1), LARGE - 2, 0, 1));
    ck_assert_uint_eq(bytes_other_than_poison(a, LARGE), LARGE - 2);
    b = new_block(device, LARGE);
    ck_assert_uint_eq(bytes_other_than_poison(b, LARGE), 0);
    sim.memory->free(device, a, LARGE);
    a = new_block(device, LARGE);
    ck_assert_uint_eq(bytes_other_than_poison(a, LARGE), 0);
    sim.memory->free(device, a, LARGE);
    sim.memory->free(device, b, LARGE);
    ck_assert_uint_eq(counted(0).bytes, 0);
    ck_assert_uint_eq(counted(0).overruns, 0);
}
END_TEST

START_TEST(work_on_a_freed_block_fails_its_stream)
{
    core_memory a = new_block(device, N), b = new_block(device, N);

    sim.memory->free(device, a, N);
    increment_bytes(device, stream, b, a, 1);
    FAILS(sim.streams->synchronize(device, stream), CORE_ERROR_STREAM,
          "which was freed");
    ck_assert_ptr_nonnull(strstr(error_text, "increment"));
    ck_assert_ptr_nonnull(strstr(error_text, "block 1 of sim:0"));
    ck_assert_uint_eq(error_now.severity, CORE_SEVERITY_STREAM_POISONED);
}
END_TEST

START_TEST(freed_handle_is_not_reused_soon)
{
    core_memory a = new_block(device, N), c;

    sim.memory->free(device, a, N);
    for (int i = 0; i < 100; i++) {
        c = new_block(device, N);
        ck_assert_ptr_ne(a.handle, c.handle);
        sim.memory->free(device, c, N);
    }
}
END_TEST

START_TEST(work_beyond_a_block_is_detected)
{
    core_memory a = new_block(device, N);

    OK(sim.memory->fill(device, stream, at(a, N - 4), 8, 0, 1));
    FAILS(sim.streams->synchronize(device, stream), CORE_ERROR_STREAM,
          "bytes [4092, 4100)");
}
END_TEST

START_TEST(bytes_written_after_a_block_are_detected_when_it_is_freed)
{
    core_memory a = new_block(device, N), b = new_block(device, N);

    increment_bytes(device, stream, b, a, 1);
    OK(sim.streams->synchronize(device, stream));
    sim.memory->free(device, a, N);
    ck_assert_uint_eq(counted(0).overruns, 0);
    OK(launch_named("overruns", device, stream, b, 1, b, 1, N));
    OK(sim.streams->synchronize(device, stream));
    sim.memory->free(device, b, N);
    ck_assert_uint_eq(counted(0).overruns, 1);
}
END_TEST

START_TEST(bytes_written_after_a_large_block_are_detected)
{
    core_memory a = new_block(device, LARGE);

    OK(launch_named("overruns", device, stream, a, 1, a, 1, LARGE));
    OK(sim.streams->synchronize(device, stream));
    sim.memory->free(device, a, LARGE);
    ck_assert_uint_eq(counted(0).overruns, 1);
}
END_TEST

START_TEST(wrong_frees_are_counted_and_harmless)
{
    core_memory a = new_block(device, N), b = new_block(device, N);

    sim.memory->free(device, a, N);
    sim.memory->free(device, a, N);
    sim.memory->free(device, b, N - 64);
    ck_assert_uint_eq(counted(0).bad_frees, 2);
    ck_assert_uint_eq(counted(0).blocks, 1);
}
END_TEST

/* Without /proc: the kernel cannot read the memory on behalf of the process
 * either. */
static void cannot_be_written(const void *address)
{
    int ends[2];

    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_eq(write(ends[1], address, 1), -1);
    ck_assert_int_eq(errno, EFAULT);
    close(ends[0]);
    close(ends[1]);
}

START_TEST(host_cannot_access_device_memory)
{
    core_memory a = new_block(device, N);
    FILE *maps = fopen("/proc/self/maps", "r");
    unsigned long from, to;
    char line[4096], rights[8];
    bool found = false;

    if (!maps) {
        cannot_be_written(a.handle);
        return;
    }
    while (!found && fgets(line, sizeof line, maps)) {
        ck_assert_int_eq(sscanf(line, "%lx-%lx %7s", &from, &to, rights), 3);
        found = (unsigned long)a.handle >= from && (unsigned long)a.handle < to;
    }
    fclose(maps);
    ck_assert(found);
    ck_assert_str_eq(rights, "---p");
}
END_TEST

START_TEST(flat_memory_has_addresses)
{
    core_device_properties properties = {.struct_size = sizeof properties};
    core_memory a = new_block(device, N), far = a;

    OK(sim.device_properties(device, &properties));
    ck_assert(properties.flags & CORE_DEVICE_FLAT);
    fill(device, stream, at(a, 100), 1, 7);
    far.handle = (char *)a.handle + 100;
    ck_assert_uint_eq(byte_of(device, stream, far), 7);
}
END_TEST

/* With a limit on addresses the device has fewer; those of freed blocks are
 * reused when they are needed. */
START_TEST(addresses_of_freed_blocks_are_reused_under_a_limit)
{
    struct rlimit limit, before;
    core_memory a, b;

    if (has_sanitizer()) {
        suite_skip("sanitizers need terabytes of addresses");
        return;
    }
    sim_close();
    OK(getrlimit(RLIMIT_AS, &before));
    limit = before;
    if (limit.rlim_cur > UINT64_C(1) << 30)
        limit.rlim_cur = UINT64_C(1) << 30;
    OK(setrlimit(RLIMIT_AS, &limit));
    sim_open();
    stream = new_stream(device);
    for (int i = 0; i < 3000; i++) {
        a = new_block(device, 3 << 18);
        b = new_block(device, 64);
        ck_assert_ptr_ne(a.handle, b.handle);
        sim.memory->free(device, a, 3 << 18);
        sim.memory->free(device, b, 64);
    }
    a = new_block(device, N);
    fill(device, stream, a, N, 7);
    ck_assert_uint_eq(byte_of(device, stream, at(a, N - 1)), 7);
    ck_assert_uint_eq(counted(0).blocks, 1);
    OK(setrlimit(RLIMIT_AS, &before));
}
END_TEST

/* The device stays lost with its blocks, which may be freed, examined and
 * closed; it is reset when there is memory again. */
START_TEST(reset_without_memory_leaves_the_device_lost_with_its_blocks)
{
    const core_device_reset_interface *again = interface("core.device_reset");
    core_memory kept = new_block(device, N), freed = new_block(device, N);
    uint64_t some = 0, all = 0;
    struct rlimit limit, before;
    core_status status;

    if (has_sanitizer()) {
        suite_skip("sanitizers need terabytes of addresses");
        return;
    }
    OK(getrlimit(RLIMIT_AS, &before));
    limit = before;
    limit.rlim_cur = 1;
    OK(setrlimit(RLIMIT_AS, &limit));
    status = again->reset(device);
    OK(setrlimit(RLIMIT_AS, &before));
    ck_assert_int_eq(status, CORE_ERROR_OUT_OF_MEMORY);
    ck_assert_int_eq(sim.device_status(device), CORE_ERROR_DEVICE_LOST);
    sim.memory->free(device, freed, N);
    OK(sim.memory->info(device, &some, &all));
    ck_assert_uint_eq(all - some, N);
    ck_assert_uint_eq(counted(0).blocks, 1);
    ck_assert_uint_eq(counted(0).bad_frees, 0);
    ck_assert_int_eq(sim.memory->alloc(device, N, &freed),
                     CORE_ERROR_DEVICE_LOST);
    OK(again->reset(device));
    OK(sim.device_status(device));
    ck_assert_uint_eq(counted(0).blocks, 0);
    stream = new_stream(device);
    kept = new_block(device, N);
    fill(device, stream, kept, N, 7);
    ck_assert_uint_eq(byte_of(device, stream, kept), 7);
}
END_TEST

START_TEST(handles_are_not_addresses)
{
    core_device_properties properties = {.struct_size = sizeof properties};
    core_memory a = new_block(device, N);

    OK(sim.device_properties(device, &properties));
    ck_assert(!(properties.flags & CORE_DEVICE_FLAT));
    a.handle = (char *)a.handle + 100;
    fill(device, stream, a, 1, 7);
    FAILS(sim.streams->synchronize(device, stream), CORE_ERROR_STREAM,
          "not memory");
}
END_TEST

START_TEST(limits_are_enforced)
{
    core_device_properties properties = {.struct_size = sizeof properties};
    core_memory memory;

    sim_close();
    setenv("LIBCORE_SIM_BYTES", "1048576", 1);
    setenv("LIBCORE_SIM_GRANULARITY", "4096", 1);
    setenv("LIBCORE_SIM_ALIGNMENT", "1024", 1);
    setenv("LIBCORE_SIM_TAIL", "32", 1);
    setenv("LIBCORE_SIM_LARGEST", "524288", 1);
    sim_open();
    OK(sim.device_properties(device, &properties));
    ck_assert_uint_eq(properties.total_memory, 1048576);
    ck_assert_uint_eq(properties.granularity, 4096);
    ck_assert_uint_eq(properties.base_alignment, 1024);
    ck_assert_uint_eq(properties.tail_padding, 32);
    ck_assert_uint_eq(properties.largest_allocation, 524288);
    FAILS(sim.memory->alloc(device, 528384, &memory), CORE_ERROR_OUT_OF_MEMORY,
          "largest");
    FAILS(sim.memory->alloc(device, 100, &memory), CORE_ERROR_INTERNAL,
          "granularity");
    new_block(device, 524288);
    new_block(device, 524288);
    FAILS(sim.memory->alloc(device, 4096, &memory), CORE_ERROR_OUT_OF_MEMORY,
          "1048576");
    ck_assert_ptr_null(memory.handle);
    new_block(device1, 4096);
}
END_TEST

START_TEST(invalid_setting_is_reported)
{
    sim_close();
    setenv("LIBCORE_SIM_BYTES", "much", 1);
    FAILS(sim_load(), CORE_ERROR_INVALID_ARGUMENT, "LIBCORE_SIM_BYTES");
    setenv("LIBCORE_SIM_BYTES", "4096", 1);
    setenv("LIBCORE_SIM_FAULT", "alloc:1,nothing:2", 1);
    FAILS(sim_load(), CORE_ERROR_INVALID_ARGUMENT, "LIBCORE_SIM_FAULT");
    setenv("LIBCORE_SIM_FAULT", "alloc:1@2", 1);
    FAILS(sim_load(), CORE_ERROR_INVALID_ARGUMENT, "2 devices");
    unsetenv("LIBCORE_SIM_FAULT");
    setenv("LIBCORE_SIM_MEMORY", "paged", 1);
    FAILS(sim_load(), CORE_ERROR_INVALID_ARGUMENT, "handle or flat");
    setenv("LIBCORE_SIM_MEMORY", "handle", 1);
    sim_open();
}
END_TEST

START_TEST(reservations_are_mapped_in_parts)
{
    const core_virtual_memory_interface *virtual = interface(
        "core.virtual_memory");
    core_memory range;
    uint64_t unit;

    OK(virtual->granularity(device, &unit));
    OK(virtual->reserve(device, 8 * unit, &range));
    ck_assert_uint_eq(counted(0).bytes, 0);
    OK(virtual->map(device, range, unit, 2 * unit));
    ck_assert_uint_eq(counted(0).bytes, 2 * unit);
    ck_assert_uint_eq(byte_of(device, stream, at(range, unit)), 0xa5);
    fill(device, stream, at(range, 2 * unit - 4), 8, 3); /* across two parts */
    ck_assert_uint_eq(byte_of(device, stream, at(range, 2 * unit + 3)), 3);
    FAILS(virtual->map(device, range, 2 * unit, unit), CORE_ERROR_INTERNAL,
          "not a free part");
    virtual->unmap(device, range, 2 * unit, unit);
    ck_assert_uint_eq(counted(0).bytes, unit);
    fill(device, stream, at(range, 2 * unit - 4), 8, 3);
    FAILS(sim.streams->synchronize(device, stream), CORE_ERROR_STREAM,
          "no memory mapped");
    virtual->release(device, range, 8 * unit);
    ck_assert_uint_eq(counted(0).bytes, 0);
    ck_assert_uint_eq(counted(0).reservations, 0);
    OK(control->limit(unit));
    OK(virtual->reserve(device, 8 * unit, &range));
    OK(virtual->map(device, range, 0, unit));
    FAILS(virtual->map(device, range, unit, unit), CORE_ERROR_OUT_OF_MEMORY,
          "bytes");
}
END_TEST

START_TEST(peers_copy_to_each_other)
{
    const core_peer_interface *peer = interface("core.peer");
    core_memory here = new_block(device, N), there = new_block(device1, N);
    void *stream1 = new_stream(device1);
    uint32_t yes = 0;

    OK(peer->can_access(device, device1, &yes));
    ck_assert_uint_eq(yes, 1);
    fill(device1, stream1, there, N, 5);
    order(device1, stream1, device, stream);
    OK(peer->copy(device, stream, here, device1, there, N));
    ck_assert_uint_eq(byte_of(device, stream, at(here, N - 1)), 5);
    OK(control->lose(1));
    FAILS(peer->copy(device, stream, here, device1, there, N),
          CORE_ERROR_DEVICE_LOST, "sim:1");
    ck_assert_uint_eq(byte_of(device, stream, here), 5);
}
END_TEST

int main(void)
{
    const TTest *const both[] = {
        fresh_memory_is_poison,
        fresh_memory_of_large_blocks_is_poison,
        work_on_a_freed_block_fails_its_stream,
        freed_handle_is_not_reused_soon,
        work_beyond_a_block_is_detected,
        bytes_written_after_a_block_are_detected_when_it_is_freed,
        bytes_written_after_a_large_block_are_detected,
        wrong_frees_are_counted_and_harmless,
        host_cannot_access_device_memory,
        limits_are_enforced,
        reservations_are_mapped_in_parts,
        peers_copy_to_each_other,
        invalid_setting_is_reported,
        reset_without_memory_leaves_the_device_lost_with_its_blocks,
    };
    const TTest *const handles[] = {
        handles_are_not_addresses,
    };
    const TTest *const flat[] = {
        flat_memory_has_addresses,
        addresses_of_freed_blocks_are_reused_under_a_limit,
    };
    const test_suite suites[] = {
        {"sim/sim_memory, handles", setup_handles, teardown, 0,
         SUITE_TESTS(both)},
        {"sim/sim_memory, handles", setup_handles, teardown, 0,
         SUITE_TESTS(handles)},
        {"sim/sim_memory, flat", setup_flat, teardown, 0, SUITE_TESTS(both)},
        {"sim/sim_memory, flat", setup_flat, teardown, 0, SUITE_TESTS(flat)},
    };

    return suite_run(suites, sizeof suites / sizeof *suites);
}
