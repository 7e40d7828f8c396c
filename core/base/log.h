/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* log.h: messages for people who look for a fault.  Errors are not logged but
 * returned; nothing is printed unless it was asked for (settings.h). */

#ifndef CORE_BASE_LOG_H
#define CORE_BASE_LOG_H

#include <libcore/settings.h>

#include <stdbool.h>

/* True if messages of the level (CORE_LOG_…) go anywhere: ask before making an
 * expensive one. */
bool core__log_wanted(uint32_t level);
/* component: "loader", "dispatch", a plugin's name.  Cut at 1023 bytes. */
void core__log(uint32_t level, const char *component, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));

/* The same, whatever the level: what a setting of its own asked for. */
void core__log_asked(const char *component, const char *format, ...)
    __attribute__((format(printf, 2, 3), cold));

/* In the child of a fork. */
void core__log_forked(void);

#endif
