/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* typed_calls.c: the typed calls of ops.h, for files that define CORE_OPS_EXTERN.
 * libcore.so, the tools and the unit tests are linked with those that they call. */

#define CORE_OPS_IMPLEMENTATION

#include <libcore/ops.h>
