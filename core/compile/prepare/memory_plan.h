/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* memory_plan.h: places intermediate results in one block of memory. */

#ifndef CORE_COMPILE_MEMORY_PLAN_H
#define CORE_COMPILE_MEMORY_PLAN_H

#include "base/error.h"

enum { CORE__PLAN_ALIGNMENT = 64 };

/* Memory that is in use from step `first` to step `last`. */
typedef struct core__planned_memory {
    uint64_t size; /* bytes; 0: needs no place */
    uint32_t first, last;
    uint64_t offset; /* result */
} core__planned_memory;

/* Sets the offsets, so that what is in use in the same step does not overlap.
 * The largest are placed first, each as low as possible.  *out_size: what all of
 * them need. */
core_status core__memory_plan(core__planned_memory *all, uint32_t count,
                              uint64_t *out_size);

#endif
