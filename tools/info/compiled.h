/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* compiled.h: what core-info shows of compiled functions. */

#ifndef INFO_COMPILED_H
#define INFO_COMPILED_H

#include "base/json.h"

/* Compiles a small function on the default device, calls it and the function
 * itself, and shows what that took, the settings and the counters. */
void print_compiled(void);
void write_compiled(core__json *json);

#endif
