/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* nan.h: LIBCORE_NAN_CHECK.  Each call of an operator is looked at, from the
 * place where the profiler sees it: one that makes a NaN of operands that have
 * none is an error, and names itself.  A call costs a wait of the host then. */

#ifndef CORE_PROFILER_NAN_H
#define CORE_PROFILER_NAN_H

#include "base/thread.h"

#include <libcore/plugin.h>

#include <stdbool.h>

/* Whether calls are looked at. */
bool core__nan_checked(void);
/* Before the call: what it changes has NaN already, so that nothing can be said
 * of it afterwards. */
core_status core__nan_before(const core_operator *op, const core_value *args,
                             uint32_t nargs, bool *out_spoilt);
/* After it.  On failure its results are released. */
core_status core__nan_after(const core_operator *op, const core_value *args,
                            uint32_t nargs, core_value *results,
                            uint32_t nresults);

/* LIBCORE_NAN_CHECK: called before the first device, and whenever it is
 * set. */
void core__nan_check_set(bool on);

#endif
