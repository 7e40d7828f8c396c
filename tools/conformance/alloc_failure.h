/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* alloc_failure.h: the plugin's own allocations fail, one at a time.
 *
 * Calls of malloc and its like, and of free (free_quarantine.h), in the plugin's object, and in no other, come
 * here: the slots by which the dynamic linker bound them are rewritten.  What a
 * library that it uses allocates is not seen. */

#ifndef CONFORMANCE_STARVE_H
#define CONFORMANCE_STARVE_H

#include "suite.h"

/* After the plugin was loaded.  False: told in the outcome, NOT_SUPPORTED where
 * it allocates by none of the functions that are known. */
bool starve_begin(const char *plugin, outcome *out);
/* The n-th allocation from now on fails, in whichever thread. */
void starve_arm(uint64_t n);
/* No more; whether it came to that. */
bool starve_disarm(void);

#endif
