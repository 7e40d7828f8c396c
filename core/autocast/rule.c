/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Rules of a program's own: registrations under the key of autocast, of the
 * same layer that serves the rules of ops.yaml. */

#include "autocast/autocast.h"
#include "dispatch/dispatch.h"
#include "dispatch/schema.h"

#include <string.h>

static const core_autocast_rule rules[] = {
    CORE_AUTOCAST_NONE, CORE_AUTOCAST_LOWER, CORE_AUTOCAST_FP32,
    CORE_AUTOCAST_PROMOTE};

core_status core_autocast_register(const char *operator_name,
                                   core_autocast_rule rule,
                                   core_registration **out_registration)
{
    core_operator *op;

    CORE__NOT_NULL(out_registration);
    *out_registration = NULL;
    CORE__NOT_NULL(operator_name);
    if ((uint32_t)rule >= sizeof rules / sizeof *rules)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_autocast_register: %u is no rule; there are "
                           "none, lower, fp32 and promote",
                           (unsigned)rule);
    CORE_TRY(core_op_find(operator_name, &op));
    if (core__operator_changes(op, op->nargs))
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_autocast_register: %s changes an argument, "
                           "and of a cast the change would be lost",
                           operator_name);
    return core_function_register(
        operator_name, CORE_KEY_AUTOCAST, NULL, core__autocast_layer,
        (void *)(uintptr_t)&rules[rule], out_registration);
}
