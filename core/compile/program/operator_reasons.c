/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Counts operators and reasons. */

#include "compile/program/operator_reasons.h"

#include "base/error.h"
#include "compile/program/program.h"

#include <string.h>

core_status core__operator_reason_count(core__operator_reason **list,
                                        uint32_t *count,
                                        const char *operator_name,
                                        const char *reason)
{
    core__operator_reason *added;

    for (uint32_t i = 0; i < *count; i++)
        if (strcmp((*list)[i].operator_name, operator_name) == 0 &&
            strcmp((*list)[i].reason, reason) == 0) {
            (*list)[i].count++;
            return CORE_OK;
        }
    added = core__program_grow(list, count, sizeof *added);
    if (!added)
        return core__error_memory(sizeof *added);
    *added = (core__operator_reason){operator_name, reason, 1};
    return CORE_OK;
}

void core__operator_reasons_write(const core__operator_reason *list,
                                  uint32_t count, const char *name,
                                  core__json *json)
{
    core__json_array(json, name);
    for (uint32_t i = 0; i < count; i++) {
        core__json_object(json, NULL);
        core__json_text(json, "operator", list[i].operator_name);
        core__json_text(json, "reason", list[i].reason);
        core__json_unsigned(json, "count", list[i].count);
        core__json_end(json);
    }
    core__json_end(json);
}
