/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* nan_check.h: LIBCORE_NAN_CHECK.  Checks every operator call, from the
 * profiler's place in the dispatcher: a call that creates a NaN from operands
 * without one returns an error that names the operator.  Each call then waits
 * for the device. */

#ifndef CORE_PROFILER_NAN_CHECK_H
#define CORE_PROFILER_NAN_CHECK_H

#include "base/thread.h"

#include <libcore/plugin.h>

#include <stdbool.h>

/* Whether calls are checked. */
bool core__nan_check_enabled(void);
/* Before the call: sets *out_spoilt if an operand contains NaN already, so that
 * nothing can be concluded afterwards. */
core_status core__nan_check_before(const core_operator *op,
                                   const core_value *args, uint32_t nargs,
                                   bool *out_spoilt);
/* After the call.  On failure its results are released. */
core_status core__nan_check_after(const core_operator *op,
                                  const core_value *args, uint32_t nargs,
                                  core_value *results, uint32_t nresults);

/* LIBCORE_NAN_CHECK: called before the first device, and whenever it is
 * set. */
void core__nan_check_set(bool on);

#endif
