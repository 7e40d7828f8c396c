/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* process_times.h: how long another process has computed, or wanted to. */

#ifndef CORE_CONFORMANCE_PROCESS_TIMES_H
#define CORE_CONFORMANCE_PROCESS_TIMES_H

#include <sys/types.h>

/* The processor time of a process, in seconds; 0: not known. */
double process_seconds(pid_t pid);
/* That and the time for which its threads were ready and waited for a processor,
 * which other programs had.  Of threads that have ended nothing is known.  Where
 * the system does not tell, the processor time. */
double process_ready_seconds(pid_t pid);

#endif
