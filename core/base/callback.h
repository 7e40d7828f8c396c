/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* callback.h: statuses that callbacks of programs return. */

#ifndef CORE_BASE_CALLBACK_H
#define CORE_BASE_CALLBACK_H

#include <libcore/status.h>

/* Returns status.  A callback may return an error without setting a message,
 * while an older message is still there: sets one then.  errors: the thread's
 * error sequence before the call.  what, unless NULL, is put before the
 * message. */
core_status core__callback_status(uint32_t errors, core_status status,
                                  const char *what);

#endif
