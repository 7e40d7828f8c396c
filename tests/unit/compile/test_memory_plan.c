/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Places of intermediate results in an arena. */

#include "support/suite.h"

#include "compile/prepare/memory_plan.h"

#include <check.h>
#include <stdlib.h>

enum { MOST = 200 };

static uint64_t state;

static uint32_t draw(uint32_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % below;
}

static uint64_t rounded(uint64_t size)
{
    return (size + CORE__PLAN_ALIGNMENT - 1) / CORE__PLAN_ALIGNMENT *
           CORE__PLAN_ALIGNMENT;
}

/* Fails where two overlap that are in use in the same step.  Returns the most
 * that is in use in one step. */
static uint64_t check_plan(const core__planned_memory *all, uint32_t count,
                           uint64_t size)
{
    uint64_t most = 0;

    for (uint32_t i = 0; i < count; i++) {
        uint64_t together = 0;

        ck_assert_uint_eq(all[i].offset % CORE__PLAN_ALIGNMENT, 0);
        ck_assert_uint_le(all[i].offset + all[i].size, size);
        for (uint32_t k = 0; k < count; k++) {
            const core__planned_memory *a = &all[i], *b = &all[k];

            if (b->first <= a->first && a->first <= b->last)
                together += rounded(b->size);
            if (i != k && a->size && b->size && a->first <= b->last &&
                b->first <= a->last)
                ck_assert_msg(a->offset + a->size <= b->offset ||
                                  b->offset + b->size <= a->offset,
                              "%u and %u overlap", i, k);
        }
        most = together > most ? together : most;
    }
    return most;
}

START_TEST(what_is_in_use_at_once_does_not_overlap)
{
    core__planned_memory all[MOST];

    for (state = 1; state < 200; state++) {
        uint64_t seed = state, size, sum = 0;
        uint32_t count = 1 + draw(MOST);

        for (uint32_t i = 0; i < count; i++) {
            uint32_t first = draw(100);

            all[i] = (core__planned_memory){
                draw(4) ? 1 + draw(1 << (1 + draw(14))) : draw(3) * 64, first,
                first + draw(draw(8) ? 6 : 60), 1};
            sum += rounded(all[i].size);
        }
        ck_assert_int_eq(core__memory_plan(all, count, &size), CORE_OK);
        ck_assert_uint_ge(size, check_plan(all, count, size));
        ck_assert_uint_le(size, sum);
        state = seed;
    }
}
END_TEST

START_TEST(memory_is_reused_as_soon_as_it_is_free)
{
    /* A chain: each result is read by the next step only. */
    core__planned_memory chain[50], none[1];
    uint64_t size;

    for (uint32_t i = 0; i < 50; i++)
        chain[i] = (core__planned_memory){1024, i, i + 1, 0};
    ck_assert_int_eq(core__memory_plan(chain, 50, &size), CORE_OK);
    ck_assert_uint_eq(size, 2 * 1024);
    /* A small one fits below a large one that begins later. */
    chain[0] = (core__planned_memory){4096, 5, 9, 0};
    chain[1] = (core__planned_memory){64, 0, 4, 0};
    ck_assert_int_eq(core__memory_plan(chain, 2, &size), CORE_OK);
    ck_assert_uint_eq(size, 4096);
    ck_assert_int_eq(core__memory_plan(none, 0, &size), CORE_OK);
    ck_assert_uint_eq(size, 0);
    none[0] = (core__planned_memory){0, 0, 9, 7};
    ck_assert_int_eq(core__memory_plan(none, 1, &size), CORE_OK);
    ck_assert_uint_eq(size, 0);
    ck_assert_uint_eq(none[0].offset, 0);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        what_is_in_use_at_once_does_not_overlap,
        memory_is_reused_as_soon_as_it_is_free,
    };
    const test_suite suite = {
        .name = "compile/memory_plan",
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
