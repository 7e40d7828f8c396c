/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Counts calls whose operands were converted before they reached the kernel,
 * so that tests detect a kernel that accepts fewer calls than it seems to. */

#include "dispatch/dispatch.h"
#include "dispatch/structured.h"
#include "dispatch/table.h"
#include "ops_ids.h"

#include <libcore/dispatch.h>

/* By id; those of custom operators are in the registry. */
static _Atomic uint64_t counted[CORE_OP_COUNT][CORE_CONVERSIONS];

static _Atomic uint64_t *counts_of(const core_operator *op)
{
    return op->flags & CORE__OP_CUSTOM ? core__registry_conversions(op)
                                       : counted[op->id];
}

void core__conversion_count(const core_operator *op, core_conversion conversion)
{
    atomic_fetch_add_explicit(&counts_of(op)[conversion], 1,
                              memory_order_relaxed);
}

uint64_t core_op_conversions(const core_operator *op,
                             core_conversion conversion)
{
    if (!op || (uint32_t)conversion >= CORE_CONVERSIONS)
        return 0;
    return atomic_load_explicit(&counts_of(op)[conversion],
                                memory_order_relaxed);
}
