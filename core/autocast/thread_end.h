/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* thread_end.h: frees a thread's autocast state when the thread ends. */

#ifndef CORE_AUTOCAST_THREAD_END_H
#define CORE_AUTOCAST_THREAD_END_H

#include "base/thread.h"

void core__autocast_thread_end(core__thread *self);

#endif
