/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "support/suite.h"

#include "base/checksum.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 1000 };

static unsigned char bytes[SIZE];

static void fill(void)
{
    for (uint32_t i = 0, x = 1; i < SIZE; i++, x = x * 1664525 + 1013904223)
        bytes[i] = (unsigned char)(x >> 24);
}

static void sum_of(size_t size, size_t step, bool plain, uint8_t out_sum[16])
{
    core__checksum sum;

    core__checksum_begin(&sum, plain);
    for (size_t at = 0; at < size; at += step)
        core__checksum_add(&sum, bytes + at,
                           size - at < step ? size - at : step);
    core__checksum_end(&sum, out_sum);
}

static void assert_differs(const uint8_t a[16], const uint8_t b[16])
{
    ck_assert(memcmp(a, b, 8) != 0 && memcmp(a + 8, b + 8, 8) != 0);
}

/* A file may be sealed on one machine and read on another. */
START_TEST(checksum_is_the_same_on_every_machine)
{
    static const uint8_t wanted[16] = {0x97, 0x34, 0x43, 0x3e, 0x6c, 0xf6,
                                       0x49, 0xfc, 0x36, 0x81, 0xaf, 0x65,
                                       0xd2, 0xe4, 0x53, 0x1c};
    uint8_t sum[16];

    fill();
    sum_of(SIZE, SIZE, true, sum);
    ck_assert_mem_eq(sum, wanted, sizeof sum);
    sum_of(SIZE, SIZE, false, sum);
    ck_assert_mem_eq(sum, wanted, sizeof sum);
}
END_TEST

START_TEST(parts_add_up_to_the_checksum_of_the_whole)
{
    uint8_t whole[16], parts[16];

    fill();
    for (size_t size = 0; size < 260; size++)
        for (size_t step = 1; step < 140; step += 9) {
            sum_of(size, SIZE, true, whole);
            sum_of(size, step, false, parts);
            ck_assert_mem_eq(whole, parts, sizeof whole);
        }
}
END_TEST

START_TEST(every_bit_changes_both_halves)
{
    uint8_t before[16], after[16];

    fill();
    sum_of(SIZE, SIZE, false, before);
    for (size_t bit = 0; bit < SIZE * 8; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        sum_of(SIZE, SIZE, false, after);
        assert_differs(before, after);
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
}
END_TEST

/* Changes that plain sums of words would not detect. */
START_TEST(order_length_and_pairs_of_bits_change_the_checksum)
{
    unsigned char kept[64];
    uint8_t before[16], after[16];

    memset(bytes, 0, SIZE);
    sum_of(640, SIZE, false, before);
    sum_of(641, SIZE, false, after);
    assert_differs(before, after);
    for (size_t i = 0; i < 10; i++)
        for (size_t k = 0; k < i; k++) {
            /* The highest bits: their sum is zero. */
            bytes[i * 64 + 7] = bytes[k * 64 + 7] = 0x80;
            sum_of(640, SIZE, false, after);
            assert_differs(before, after);
            bytes[i * 64 + 7] = bytes[k * 64 + 7] = 0;
        }
    fill();
    sum_of(640, SIZE, false, before);
    for (size_t i = 1; i < 10; i++) {
        memcpy(kept, bytes, 64);
        memcpy(bytes, bytes + i * 64, 64);
        memcpy(bytes + i * 64, kept, 64);
        sum_of(640, SIZE, false, after);
        assert_differs(before, after);
        fill();
    }
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        checksum_is_the_same_on_every_machine,
        parts_add_up_to_the_checksum_of_the_whole,
        every_bit_changes_both_halves,
        order_length_and_pairs_of_bits_change_the_checksum,
    };
    const test_suite suite = {
        .name = "base/checksum",
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
