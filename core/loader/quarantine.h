/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* quarantine.h: opens a plugin in a separate process first, if
 * LIBCORE_QUARANTINE requests it. */

#ifndef CORE_LOADER_QUARANTINE_H
#define CORE_LOADER_QUARANTINE_H

#include "base/error.h"

#include <stdbool.h>

/* CORE_OK also if no quarantine is requested, or none for sealed plugins.
 * Otherwise the reason why the plugin may not be opened here: it crashed,
 * exited or hung there, or reported an error. */
core_status core__quarantine(const char *path, bool sealed);

/* The time limit in the helper process, and the path of the installed helper;
 * for tests. */
extern uint32_t core__quarantine_ms;
extern const char *core__quarantine_helper;

#endif
