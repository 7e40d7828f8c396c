/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* schemas.h: for tests that count allocations.  Error texts name arguments, for
 * which an operator's schema is parsed when it is first needed, and kept. */

#ifndef SUPPORT_SCHEMAS_H
#define SUPPORT_SCHEMAS_H

#include "dispatch/operator.h"
#include "dispatch/schema.h"

#include <stdlib.h>

static inline void schemas_parse(void)
{
    const core__schema *schema;

    for (uint32_t i = 0; i < core__operator_count; i++)
        if (core__schema_of(&core__operators[i], &schema) != CORE_OK)
            abort();
}

#endif
