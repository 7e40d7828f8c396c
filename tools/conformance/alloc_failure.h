/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* alloc_failure.h: makes the plugin's own allocations fail, one at a time.
 *
 * Rewrites the slots through which the dynamic linker bound malloc and its
 * relatives, and free (free_quarantine.h), in the plugin's object and in no
 * other.  Allocations made by libraries that the plugin uses are not
 * intercepted. */

#ifndef CONFORMANCE_ALLOC_FAILURE_H
#define CONFORMANCE_ALLOC_FAILURE_H

#include "suite.h"

/* Installs the interception; the plugin must be loaded.  On failure returns
 * false and sets the outcome, to NOT_SUPPORTED if the plugin imports none of
 * the known functions. */
bool alloc_failure_install(const char *plugin, outcome *out);
/* Makes the n-th allocation from now on fail, in any thread. */
void alloc_failure_arm(uint64_t n);
/* Ends that; returns whether an allocation failed. */
bool alloc_failure_disarm(void);

#endif
