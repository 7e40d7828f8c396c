/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* schedule.h: the order in which the nodes of a program run. */

#ifndef CORE_COMPILE_SCHEDULE_H
#define CORE_COMPILE_SCHEDULE_H

#include "compile/program/program.h"

/* Sets order[i] to the node that runs as number i, so that little memory is in
 * use at once: a node runs as soon as it frees more than it needs, such as the
 * update of a parameter when its gradient is known; otherwise nodes keep their
 * order.  Random nodes keep theirs among each other, and so do operators of
 * programs and plugins. */
core_status core__program_order(const core_program *program, uint32_t *order);

#endif
