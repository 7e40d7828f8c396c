/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* effort.h: how much a test repeats. */

#ifndef TESTS_SUPPORT_EFFORT_H
#define TESTS_SUPPORT_EFFORT_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* LIBCORE_TEST_LONG: run-tests --full. */
static inline bool effort_is_long(void)
{
    const char *text = getenv("LIBCORE_TEST_LONG");

    return text && *text && strcmp(text, "0") != 0;
}

/* LIBCORE_TEST_SLOW: under a sanitizer, beside a run without one that repeats
 * everything. */
static inline bool effort_is_slow(void)
{
    const char *text = getenv("LIBCORE_TEST_SLOW");

    return text && *text && strcmp(text, "0") != 0;
}

/* LIBCORE_TEST_THREADS: under the thread sanitizer. */
static inline bool effort_is_for_threads(void)
{
    const char *text = getenv("LIBCORE_TEST_THREADS");

    return text && *text && strcmp(text, "0") != 0;
}

#endif
