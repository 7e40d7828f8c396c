/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* thread_end.h: what a thread that ends leaves of autocast. */

#ifndef CORE_AUTOCAST_THREAD_END_H
#define CORE_AUTOCAST_THREAD_END_H

#include "base/thread.h"

void core__autocast_thread_end(core__thread *self);

#endif
