/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* operator_reasons.h: why operators of a program are treated in some way, and
 * how many of them are. */

#ifndef CORE_COMPILE_OPERATOR_REASONS_H
#define CORE_COMPILE_OPERATOR_REASONS_H

#include "base/json.h"

#include <libcore/status.h>

typedef struct core__operator_reason {
    const char *operator_name; /* as long as the program */
    const char *reason;        /* static */
    uint32_t count;
} core__operator_reason;

/* Counts an operator with its reason.  The list grows with
 * core__program_grow. */
core_status core__operator_reason_count(core__operator_reason **list,
                                        uint32_t *count,
                                        const char *operator_name,
                                        const char *reason);

/* Writes the list as an array. */
void core__operator_reasons_write(const core__operator_reason *list,
                                  uint32_t count, const char *name,
                                  core__json *json);

#endif
