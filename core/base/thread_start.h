/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* thread_start.h: threads of libcore's own. */

#ifndef CORE_BASE_THREAD_START_H
#define CORE_BASE_THREAD_START_H

#include <pthread.h>

/* Starts a thread in which all signals are blocked, since they are for the
 * program's threads.  Returns 0 or the error of pthread_create; *out is set if
 * it is 0. */
int core__thread_start(pthread_t *out, void *(*run)(void *argument),
                       void *argument);

#endif
