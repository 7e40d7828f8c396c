/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* lock.h: one lock of the process for what is known of all programs: the
 * entries of compiled functions, the tensors that these hold, and what explain
 * tells about prepared calls. */

#ifndef CORE_COMPILE_LOCK_H
#define CORE_COMPILE_LOCK_H

#include "base/fork.h"

void core__compiled_lock(void);
void core__compiled_unlock(void);
void core__compiled_fork(core__fork_phase at);

#endif
