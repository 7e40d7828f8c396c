/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* counting.h: the counters of core_mode_push_counting across fork(). */

#ifndef CORE_MODES_COUNTING_H
#define CORE_MODES_COUNTING_H

#include "base/fork.h"

#include <libcore/mode.h>

void core__op_counters_fork(core__fork_phase at);

#endif
