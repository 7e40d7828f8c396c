/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* A process whose memory does not suffice for the buffers of OpenBLAS computes
 * products itself, and ends. */

#define SUITE_FORKS true

#include "support/children.h"
#include "support/suite.h"

#include "gemm/blas.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum { SIDE = 64 };

/* Leaves room for the library, but not for its buffers. */
static bool limit_memory(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long pages = 0;
    struct rlimit limit;

    if (!file || fscanf(file, "%lu", &pages) != 1)
        return false;
    fclose(file);
    limit.rlim_cur = limit.rlim_max =
        pages * (unsigned long)sysconf(_SC_PAGESIZE) + (100ul << 20);
    return setrlimit(RLIMIT_AS, &limit) == 0;
}

static bool multiplies(void)
{
    static float a[SIDE * SIDE], c[SIDE * SIDE];

    for (int i = 0; i < SIDE * SIDE; i++)
        a[i] = 1;
    cpu_gemm_f32(false, false, SIDE, SIDE, SIDE, 1, a, SIDE, a, SIDE, 0, c,
                 SIDE);
    for (int i = 0; i < SIDE * SIDE; i++)
        if (c[i] != SIDE)
            return false;
    return true;
}

START_TEST(products_need_no_buffers_of_the_library)
{
    pid_t child;

    if (has_sanitizer())
        return; /* which reserves more memory than any limit */
    child = fork();
    if (child == 0) {
        bool well;

        child_begins(60);
        well = limit_memory() && multiplies() &&
               strstr(cpu_blas_information(), "too little memory");
        exit(well ? CHILD_IS_WELL : EXIT_FAILURE); /* ends libraries, too */
    }
    wait_for_child(child);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {products_need_no_buffers_of_the_library};
    const test_suite suite = {
        .name = "cpu/cpu_little_memory",
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
