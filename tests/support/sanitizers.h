/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* sanitizers.h: whether the library under test has a sanitizer.  Without --full the
 * unit tests themselves are compiled without that of addresses. */

#ifndef TESTS_SUPPORT_SANITIZERS_H
#define TESTS_SUPPORT_SANITIZERS_H

#include <stdbool.h>

/* Those of the sanitizers' libraries, if they are loaded. */
extern void __asan_init(void) __attribute__((weak));
extern void __tsan_init(void) __attribute__((weak));

static inline bool has_address_sanitizer(void)
{
    return __asan_init;
}

static inline bool has_thread_sanitizer(void)
{
    return __tsan_init;
}

static inline bool has_sanitizer(void)
{
    return has_address_sanitizer() || has_thread_sanitizer();
}

#endif
