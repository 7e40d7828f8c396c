/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* quarantine.h: a plugin is opened in a process of its own first, where
 * LIBCORE_QUARANTINE asks for that. */

#ifndef CORE_LOADER_QUARANTINE_H
#define CORE_LOADER_QUARANTINE_H

#include "base/error.h"

#include <stdbool.h>

/* CORE_OK also where no quarantine is asked for, or none of what is sealed.
 * Else why it may not be opened here: it crashed, ended or hung there, or said
 * so itself. */
core_status core__quarantine(const char *path, bool sealed);

/* How long it may take there, and the installed helper; for tests. */
extern uint32_t core__quarantine_ms;
extern const char *core__quarantine_helper;

#endif
