/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Collectives through the plugins cuda and rocm on fake libraries
 * (tests/fixtures/gpu/nccl.c): every collective and dtype, bit for bit. */

#define SUITE_FORKS true

#include "support/suite.h"

#include "support/gpu_collectives.h"

#define main comm_ranks
int main(int count, char **arguments);
#include "../../comm_ranks.c"
#undef main

static const char *const ranks[GPU_VENDORS] = {"3", "2"};

START_TEST(every_collective_and_dtype_has_the_expected_result)
{
    const gpu_collectives_vendor *vendor = &gpu_vendors[_i];
    char *arguments[] = {(char[]){"comm_ranks"}, strdup(vendor->engine),
                         strdup(vendor->device), (char[]){"results"},
                         strdup(ranks[_i])};

    if (!gpu_find_plugin(vendor)) {
        suite_skip("the plugin or its fake library is not built");
        return;
    }
    setenv("COMM_WATCHDOG", "50", 1);
    ck_assert(gpu_open_fake(vendor->driver, RTLD_GLOBAL));
    ck_assert(gpu_open_fake(vendor->library, RTLD_LOCAL));
    ck_assert_int_eq(comm_ranks(5, arguments), 0);
    for (int i = 1; i < 5; i++)
        if (i != 3)
            free(arguments[i]);
}
END_TEST

int main(void)
{
    const suite_loop loops[] = {
        {every_collective_and_dtype_has_the_expected_result, 0, GPU_VENDORS},
    };
    const test_suite suites[] = {
        {"gpu/collective_results", SUITE_LOOPS(loops)},
    };

    return suite_run(suites, sizeof suites / sizeof *suites);
}
