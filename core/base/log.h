/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* log.h: diagnostic messages.  Errors are returned, not logged, and nothing is
 * printed unless a setting requests it (settings.h). */

#ifndef CORE_BASE_LOG_H
#define CORE_BASE_LOG_H

#include <libcore/settings.h>

#include <stdbool.h>

/* True if messages of the level (CORE_LOG_…) are written anywhere.  Check it
 * before composing an expensive message. */
bool core__log_is_enabled(uint32_t level);
/* component: "loader", "dispatch", or a plugin's name.  Messages are cut at
 * 1023 bytes. */
void core__log(uint32_t level, const char *component, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));

/* Writes also if the level is not enabled: for output with its own setting, and for
 * an error that no call can return. */
void core__log_always(uint32_t level, const char *component, const char *format,
                      ...) __attribute__((format(printf, 3, 4), cold));

/* For the child of a fork. */
void core__log_after_fork(void);

#endif
