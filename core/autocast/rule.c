/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Rules registered by programs: registrations of the autocast layer under the
 * autocast key, the same layer that applies the rules of ops.yaml. */

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
                           "core_autocast_register: rule is %u; it must be "
                           "CORE_AUTOCAST_NONE, _LOWER, _FP32 or _PROMOTE",
                           (unsigned)rule);
    CORE_TRY(core_op_find(operator_name, &op));
    if (core__operator_changed_arguments(op, op->nargs))
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "core_autocast_register: %s changes an argument in place, which "
            "would be lost if the argument were cast",
            operator_name);
    return core_function_register(
        operator_name, CORE_KEY_AUTOCAST, NULL, core__autocast_layer,
        (void *)(uintptr_t)&rules[rule], out_registration);
}
