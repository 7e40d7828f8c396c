/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Sizes, segments, the choice of a block, splitting and joining, and requests
 * beyond the device's memory. */

#define SUITE_FORKS true

#include "support/memory.h"

START_TEST(sizes_round_to_512_and_choose_their_segments)
{
    const struct {
        uint64_t size, capacity, reserved;
    } rows[] = {
        {1, 512, 2 * MIB},
        {513, 1024, 2 * MIB},
        {MIB, MIB, 2 * MIB},
        {MIB + 1, MIB + 512, 20 * MIB},
        {10 * MIB - 512, 10 * MIB - 512, 20 * MIB},
        {10 * MIB, 10 * MIB, 10 * MIB},
        /* a remainder of one MiB is not split off */
        {11 * MIB, 12 * MIB, 12 * MIB},
        {13 * MIB + 1, 14 * MIB, 14 * MIB},
    };

    open_sim("");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        piece p = take(rows[i].size);

        ck_assert_uint_eq(p.capacity, rows[i].capacity);
        ck_assert_uint_eq(stats().reserved_bytes[0].current, rows[i].reserved);
        ck_assert_uint_eq(counters().bytes, rows[i].reserved);
        ck_assert_uint_eq(stats().requested_bytes[0].current, rows[i].size);
        give(p);
        all_is_back();
    }
}
END_TEST

START_TEST(freed_block_is_reused_at_once_best_fit_first)
{
    piece a, b, c, guards[3], again;

    open_sim("");
    a = take(8 * KIB);
    guards[0] = take(512);
    b = take(4 * KIB);
    guards[1] = take(512);
    c = take(16 * KIB);
    guards[2] = take(512);
    give(a);
    give(b);
    give(c);
    again = take(4 * KIB - 512);
    ck_assert(same(again, b));
    give(again);
    again = take(4 * KIB + 512);
    ck_assert(same(again, a));
    ck_assert_uint_eq(again.capacity, 4 * KIB + 512);
    give(again);
    again = take(8 * KIB + 1);
    ck_assert(same(again, c));
    give(again);
    for (int i = 0; i < 3; i++)
        give(guards[i]);
    ck_assert_uint_eq(stats().segments[0].current, 1);
    all_is_back();
}
END_TEST

START_TEST(adjacent_blocks_are_joined_in_any_order)
{
    static const int orders[][4] = {
        {0, 1, 2, 3}, {3, 2, 1, 0}, {0, 2, 1, 3}, {1, 3, 0, 2}, {2, 0, 3, 1}};

    open_sim("");
    for (int o = 0; o < 5; o++) {
        piece p[4];

        for (int i = 0; i < 4; i++)
            p[i] = take(512 * KIB);
        ck_assert_uint_eq(stats().segments[0].current, 1);
        for (int i = 0; i < 4; i++)
            give(p[orders[o][i]]);
        ck_assert_uint_eq(stats().inactive_split[0].current, 0);
        p[0] = take(MIB);
        p[1] = take(MIB);
        ck_assert_uint_eq(stats().segments[0].current, 1);
        give(p[0]);
        give(p[1]);
    }
    all_is_back();
}
END_TEST

/* Small blocks are joined lazily: here there are more of them than may stay
 * unjoined, and all are joined before memory grows. */
START_TEST(small_blocks_are_joined_before_memory_grows)
{
    enum { MANY = 2000 };
    static piece p[MANY];
    uint64_t reserved;

    open_sim("");
    for (int i = 0; i < MANY; i++)
        p[i] = take(2 * KIB);
    reserved = stats().reserved_bytes[0].current;
    ck_assert_uint_eq(reserved, 4 * MIB);
    for (int i = 0; i < MANY; i++)
        give(p[i]);
    for (int i = 0; i < 4; i++)
        p[i] = take(MIB);
    ck_assert_uint_eq(stats().reserved_bytes[0].current, reserved);
    for (int i = 0; i < 4; i++)
        give(p[i]);
    ck_assert_uint_eq(stats().inactive_split[0].current, 0);
    /* all of them are freed when memory runs out */
    OK(control->limit(21 * MIB));
    for (int i = 0; i < MANY; i++)
        p[i] = take(2 * KIB);
    for (int i = 0; i < MANY; i++)
        give(p[i]);
    p[0] = take(3 * MIB);
    give(p[0]);
    all_is_back();
}
END_TEST

/* Unjoined blocks are in lists that several sizes share. */
START_TEST(sizes_that_share_a_list_are_distinguished)
{
    const uint64_t sizes[] = {512, 65 * 512, 129 * 512};
    piece p[3], q;

    open_sim("");
    for (int round = 0; round < 6; round++) {
        for (int i = 0; i < 3; i++)
            p[i] = take(sizes[(round + i) % 3]);
        for (int i = 0; i < 3; i++)
            give(p[i]);
        for (int i = 0; i < 3; i++) {
            q = take(sizes[i]);
            ck_assert_uint_eq(q.capacity, sizes[i]);
            give(q);
        }
    }
    ck_assert_uint_eq(stats().segments[0].current, 1);
    all_is_back();
}
END_TEST

START_TEST(large_block_is_split_only_if_more_than_1_mib_remains)
{
    piece p, q;

    open_sim("");
    give(take(2 * MIB)); /* a segment of 20 MiB */
    p = take(19 * MIB);
    ck_assert_uint_eq(p.capacity, 20 * MIB);
    give(p);
    p = take(18 * MIB);
    q = take(2 * MIB);
    ck_assert_uint_eq(p.capacity, 18 * MIB);
    ck_assert_uint_eq(q.capacity, 2 * MIB);
    ck_assert_uint_eq(stats().segments[2].current, 1);
    give(p);
    give(q);
    all_is_back();
}
END_TEST

START_TEST(oversize_blocks_are_never_split)
{
    piece p, q;

    open_sim("max_split_size_mb:20");
    give(take(64 * MIB));
    p = take(5 * MIB);
    ck_assert_uint_eq(stats().segments[2].current, 2); /* not from the 64 MiB */
    q = take(30 * MIB);
    ck_assert_uint_eq(stats().segments[2].current, 3); /* far too large */
    give(q);
    q = take(50 * MIB);
    ck_assert_uint_eq(q.capacity, 64 * MIB);
    give(p);
    give(q);
    all_is_back();
}
END_TEST

START_TEST(divisions_round_to_parts_of_a_power_of_two)
{
    piece p;

    open_sim("roundup_power2_divisions:4");
    p = take(1200 * KIB);
    ck_assert_uint_eq(p.capacity, 1280 * KIB);
    give(p);
    p = take(1281 * KIB);
    ck_assert_uint_eq(p.capacity, 1536 * KIB);
    give(p);
    p = take(700);
    ck_assert_uint_eq(p.capacity, 1024);
    give(p);
    all_is_back();
}
END_TEST

START_TEST(blocks_of_streams_are_kept_apart)
{
    piece a, b;
    core_stream *other;

    open_sim("");
    other = stream();
    a = take(4 * KIB);
    give(a);
    b = take_on(other, 4 * KIB);
    ck_assert(!same(a, b));
    ck_assert_uint_eq(stats().segments[0].current, 2);
    give(b);
    b = take(4 * KIB);
    ck_assert(same(a, b));
    give(b);
    core_stream_release(other);
    all_is_back();
}
END_TEST

/* ---------------------------------------------------------- out of memory -- */

START_TEST(cached_blocks_are_freed_before_the_device_is_out_of_memory)
{
    core_stream *other;
    piece p;

    open_sim("");
    other = stream();
    OK(control->limit(64 * MIB));
    give(take_on(other, 30 * MIB));
    give(take(20 * MIB));
    p = take(50 * MIB);
    ck_assert_uint_eq(stats().retries, 1);
    ck_assert_uint_eq(stats().out_of_memories, 0);
    ck_assert_uint_eq(stats().reserved_bytes[0].current, 50 * MIB);
    give(p);
    core_stream_release(other);
    all_is_back();
}
END_TEST

START_TEST(oversize_segments_are_freed_before_all_others)
{
    piece p;

    open_sim("max_split_size_mb:20");
    OK(control->limit(100 * MIB));
    give(take(24 * MIB));
    give(take(50 * MIB));
    give(take(20 * MIB));
    p = take(80 * MIB); /* the 24 and the 50 are freed, the 20 stay */
    ck_assert_uint_eq(stats().retries, 0);
    ck_assert_uint_eq(stats().reserved_bytes[0].current, 100 * MIB);
    give(p);
    OK(core_memory_empty_cache(sim));
    give(take(80 * MIB));
    give(take(16 * MIB));
    /* 80 - 40 is too large a remainder: the 80 are freed, the 16 stay */
    p = take(40 * MIB);
    ck_assert_uint_eq(stats().retries, 0);
    ck_assert_uint_eq(stats().reserved_bytes[0].current, 56 * MIB);
    give(p);
    all_is_back();
}
END_TEST

START_TEST(fragmentation_is_reported)
{
    piece p[10], big;

    open_sim("");
    OK(control->limit(20 * MIB));
    for (int i = 0; i < 10; i++)
        p[i] = take(2 * MIB);
    for (int i = 0; i < 10; i += 2)
        give(p[i]);
    FAILS(try_take(4 * MIB, &big), CORE_ERROR_OUT_OF_MEMORY, "sim",
          "4.00 MiB requested", "Tensors use 10.00 MiB",
          "20.00 MiB is reserved", "0 B of 20.00 MiB is free on the device",
          "fragmentation: 10.00 MiB, 50.0 %", "at most 2.00 MiB");
    ck_assert_uint_eq(stats().out_of_memories, 1);
    ck_assert_uint_eq(stats().retries, 1);
    p[0] = take(2 * MIB);
    for (int i = 0; i < 10; i++)
        if (i == 0 || i % 2)
            give(p[i]);
    all_is_back();
}
END_TEST

START_TEST(memory_fraction_is_a_limit)
{
    piece p, q;

    open_sim("");
    OK(core_memory_set_fraction(sim, 0.0078125)); /* 32 MiB of 4 GiB */
    p = take(20 * MIB);
    FAILS(try_take(14 * MIB, &q), CORE_ERROR_OUT_OF_MEMORY,
          "of at most 32.00 MiB");
    q = take(12 * MIB);
    OK(core_memory_set_fraction(sim, 1));
    give(take(14 * MIB));
    give(p);
    give(q);
    all_is_back();
}
END_TEST

START_TEST(cached_blocks_above_the_threshold_are_freed_oldest_first)
{
    piece p;

    open_sim("fraction:0.03125,garbage_collection_threshold:0.5");
    /* of 128 MiB; the threshold is 64 MiB */
    p = take(40 * MIB);
    give(take(30 * MIB));
    ck_assert_uint_eq(stats().reserved_bytes[0].current, 70 * MIB);
    /* the 30 are free and are returned, 50 are allocated */
    give(take(50 * MIB));
    ck_assert_uint_eq(stats().reserved_bytes[0].current, 90 * MIB);
    ck_assert_uint_eq(stats().retries, 0);
    give(p);
    all_is_back();
}
END_TEST

/* ------------------------------------------------------------- the others -- */

START_TEST(every_block_comes_from_the_device_without_caching)
{
    piece p, q;

    open_sim("caching:false");
    p = take(1000);
    q = take(3 * MIB);
    ck_assert_uint_eq(counters().blocks, 2);
    ck_assert_uint_eq(stats().segments[0].current, 2);
    give(p);
    ck_assert_uint_eq(counters().blocks, 1);
    give(q);
    ck_assert_uint_eq(counters().blocks, 0);
    all_is_back();
}
END_TEST

START_TEST(expandable_segments_grow_in_place)
{
    uint64_t reserved;
    piece p, q;

    open_sim("expandable_segments:true");
    p = take(15 * MIB);
    ck_assert_uint_eq(stats().segments[0].current, 1);
    ck_assert_uint_eq(stats().reserved_bytes[0].current, 20 * MIB);
    give(p);
    for (uint64_t size = 16; size < 90; size += 7) {
        /* each time the free part grows by what is missing */
        q = take(size * MIB);
        ck_assert_uint_eq(stats().segments[0].current, 1);
        ck_assert_uint_lt(stats().reserved_bytes[0].current,
                          (size + 20) * MIB + 1);
        ck_assert(same(p, q));
        give(q);
    }
    reserved = counters().bytes;
    p = take(3 * MIB);
    q = take(5 * MIB);
    give(p);
    OK(core_memory_empty_cache(sim)); /* around the blocks in use */
    ck_assert_uint_lt(counters().bytes, reserved);
    ck_assert_uint_lt(counters().bytes, 9 * MIB);
    give(take(40 * MIB));
    give(q);
    all_is_back();
    ck_assert_uint_eq(counters().reservations, 0);
}
END_TEST

static core_status no_addresses(void *device, uint64_t size,
                                core_memory *out_memory)
{
    (void)device;
    (void)size;
    (void)out_memory;
    return CORE_ERROR_OUT_OF_MEMORY;
}

START_TEST(segments_have_a_fixed_size_where_addresses_run_out)
{
    piece p, q;

    open_sim("expandable_segments:true");
    p = take(3 * MIB);
    ck_assert_uint_eq(counters().reservations, 1);
    sim->interfaces.virtual_memory.reserve = no_addresses;
    q = take(1000);
    ck_assert_uint_eq(counters().reservations, 1);
    ck_assert_uint_eq(stats().reserved_bytes[0].current, 22 * MIB);
    ck_assert_uint_eq(stats().retries, 0);
    give(p);
    give(q);
    all_is_back();
}
END_TEST

/* A free block at the end of a range grows; one in use by a stream does not. */
START_TEST(range_does_not_grow_over_a_block_in_use)
{
    core_stream *other;
    piece p, q;

    open_sim("expandable_segments:true");
    other = stream();
    p = take(20 * MIB);
    OK(control->hold(0));
    OK(core__allocator_record(sim, p.block, other));
    give(p);
    q = take(24 * MIB);
    ck_assert(!same(p, q));
    OK(control->release(0));
    give(q);
    core_stream_release(other);
    all_is_back();
}
END_TEST

START_TEST(alignment_and_padding_of_the_device_are_kept)
{
    piece p, q;

    OK(core_setting_set("LIBCORE_SIM_ALIGNMENT", "4096"));
    OK(core_setting_set("LIBCORE_SIM_TAIL", "64"));
    OK(core_setting_set("LIBCORE_SIM_GRANULARITY", "4096"));
    OK(core_setting_set("LIBCORE_SIM_LARGEST", "6291456"));
    open_sim("");
    p = take(100);
    q = take(4096); /* and 64 bytes of padding after it */
    ck_assert_uint_eq(p.memory.offset % 4096, 0);
    ck_assert_uint_eq(q.memory.offset % 4096, 0);
    ck_assert_uint_eq(q.capacity, 8192);
    give(p);
    give(q);
    p = take(5 * MIB); /* its segment of 20 MiB would be too large */
    give(p);
    FAILS(try_take(7 * MIB, &p), CORE_ERROR_OUT_OF_MEMORY, "largest");
    all_is_back();
}
END_TEST

START_TEST(every_block_has_an_alignment_above_the_unit)
{
    piece p[8];

    OK(core_setting_set("LIBCORE_SIM_ALIGNMENT", "65536"));
    OK(core_setting_set("LIBCORE_SIM_GRANULARITY", "65536"));
    open_sim("");
    for (int i = 0; i < 8; i++) {
        p[i] = take(1 + (uint64_t)i * 30 * KIB);
        ck_assert_uint_eq(p[i].memory.offset % 65536, 0);
        ck_assert_uint_eq(p[i].capacity % 65536, 0);
    }
    for (int i = 0; i < 8; i++)
        give(p[i]);
    all_is_back();
}
END_TEST

START_TEST(segments_are_multiples_of_the_granularity)
{
    const uint64_t step = 16 * MIB;
    piece p;

    OK(core_setting_set("LIBCORE_SIM_GRANULARITY", "16777216"));
    open_sim("");
    for (uint64_t size = 1000; size < 64 * MIB; size *= 7) {
        p = take(size);
        ck_assert_uint_eq(stats().reserved_bytes[0].current % step, 0);
        ck_assert_uint_eq(counters().bytes % step, 0);
        give(p);
        all_is_back();
    }
    OK(core_memory_configure(sim, "caching:false"));
    p = take(1000);
    ck_assert_uint_eq(counters().bytes, step);
    give(p);
    OK(core_memory_configure(sim, "caching:true,expandable_segments:true"));
    p = take(1000);
    ck_assert_uint_eq(stats().reserved_bytes[0].current % step, 0);
    give(p);
    all_is_back();
}
END_TEST

/* Each block has its own padding, including the last of a segment. */
START_TEST(every_block_is_followed_by_padding)
{
    piece p[4];

    OK(core_setting_set("LIBCORE_SIM_TAIL", "64"));
    open_sim("");
    for (int i = 0; i < 4; i++) {
        p[i] = take(512 * KIB - 64);
        ck_assert_uint_eq(p[i].capacity, 512 * KIB);
    }
    for (int i = 0; i < 4; i++)
        give(p[i]);
    p[0] = take(2 * MIB);
    ck_assert_uint_eq(p[0].capacity, 2 * MIB + 512);
    give(p[0]);
    p[0] = take(20 * MIB); /* does not fit into 20 MiB */
    ck_assert_uint_ge(p[0].capacity, 20 * MIB + 64);
    give(p[0]);
    all_is_back();
    ck_assert_uint_eq(counters().overruns, 0);
}
END_TEST

START_TEST(largest_allocation_limits_the_rounded_and_padded_size)
{
    piece p;

    OK(core_setting_set("LIBCORE_SIM_TAIL", "64"));
    OK(core_setting_set("LIBCORE_SIM_LARGEST", "5767168")); /* 5.5 MiB */
    open_sim("roundup_power2_divisions:2");
    p = take(5 * MIB); /* 6 MiB would be too large */
    ck_assert_uint_lt(p.capacity, 5767168);
    give(p);
    p = take(5767168 - 64);
    ck_assert_uint_eq(p.capacity, 5767168);
    give(p);
    FAILS(try_take(5767168 - 63, &p), CORE_ERROR_OUT_OF_MEMORY, "5767105 bytes",
          "largest allocation of 5767168");
    FAILS(try_take(5767169, &p), CORE_ERROR_OUT_OF_MEMORY, "largest");
    ck_assert_uint_eq(stats().retries, 0); /* no block was freed for it */
    all_is_back();
}
END_TEST

START_TEST(failing_host_allocations_leak_nothing)
{
    core_status status = CORE_ERROR_OUT_OF_MEMORY;
    core_stream *other;
    int64_t before;
    int64_t allowed = 0;

    open_sim("");
    other = stream();
    give(take(512));
    give(take_on(other, 512));
    OK(core_memory_empty_cache(sim));
    core__alloc_fault_set(INT32_MAX, false);
    before = core__alloc_live();
    for (; status != CORE_OK; allowed++) {
        piece p[4] = {{.block = NULL}};

        core__alloc_fault_set(allowed, false);
        status = try_take(700, &p[0]);
        if (status == CORE_OK)
            status = try_take(3 * MIB, &p[1]);
        if (status == CORE_OK)
            status = core__allocator_record(sim, p[1].block, other);
        if (status == CORE_OK)
            status = try_take(12 * MIB, &p[2]);
        if (status == CORE_OK)
            status = try_take(300, &p[3]);
        ck_assert(status == CORE_OK || status == CORE_ERROR_OUT_OF_MEMORY);
        for (int i = 0; i < 4; i++)
            if (p[i].block)
                give(p[i]);
        core__alloc_fault_set(INT32_MAX, false);
        all_is_back();
        ck_assert_msg(core__alloc_live() <= before + 4, /* cached events */
                      "after %lld: %lld blocks leak", (long long)allowed,
                      (long long)(core__alloc_live() - before));
    }
    ck_assert_int_gt(allowed, 10);
    core__alloc_fault_set(-1, false);
    core_stream_release(other);
}
END_TEST

SUITE("memory/memory_blocks", sizes_round_to_512_and_choose_their_segments,
      freed_block_is_reused_at_once_best_fit_first,
      adjacent_blocks_are_joined_in_any_order,
      small_blocks_are_joined_before_memory_grows,
      sizes_that_share_a_list_are_distinguished,
      large_block_is_split_only_if_more_than_1_mib_remains,
      oversize_blocks_are_never_split,
      divisions_round_to_parts_of_a_power_of_two,
      blocks_of_streams_are_kept_apart,
      cached_blocks_are_freed_before_the_device_is_out_of_memory,
      oversize_segments_are_freed_before_all_others, fragmentation_is_reported,
      memory_fraction_is_a_limit,
      cached_blocks_above_the_threshold_are_freed_oldest_first,
      every_block_comes_from_the_device_without_caching,
      expandable_segments_grow_in_place,
      segments_have_a_fixed_size_where_addresses_run_out,
      range_does_not_grow_over_a_block_in_use,
      alignment_and_padding_of_the_device_are_kept,
      every_block_has_an_alignment_above_the_unit,
      segments_are_multiples_of_the_granularity,
      every_block_is_followed_by_padding,
      largest_allocation_limits_the_rounded_and_padded_size,
      failing_host_allocations_leak_nothing)
