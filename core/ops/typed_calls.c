/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* typed_calls.c: the typed calls of ops.h, for files that define CORE_OPS_EXTERN.
 * libcore.so, the tools and the unit tests are linked with those that they call. */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#pragma GCC optimize "O0" /* compiles in half of the time */
#endif

#define CORE_OPS_IMPLEMENTATION

#include <libcore/ops.h>
