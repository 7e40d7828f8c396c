/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Statuses that callbacks of programs return. */

#include "base/callback.h"

#include "base/error.h"
#include "base/thread.h"

core_status core__callback_status(uint32_t errors, core_status status,
                                  const char *what)
{
    if (status == CORE_OK)
        return CORE_OK;
    if (core__thread_self()->error.sequence == errors ||
        core_error_code() != status)
        core__error(status, "the callback returned %s without a message",
                    core_status_name(status));
    if (what)
        core__error_prefix("%s", what);
    return status;
}
