/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* region_trace.h: recording of regions (region.h). */

#ifndef CORE_COMPILE_REGION_TRACE_H
#define CORE_COMPILE_REGION_TRACE_H

#include "compile/region.h"
#include "compile/trace.h"

#include <libcore/autograd.h>

/* A function of core_cond or core_while, and what it is called with. */
typedef struct core__region {
    const char *name; /* "core_cond" */
    const char *part; /* "then_function" */
    core_tensor_function function;
    void *context;
    core_tensor *const *inputs;
    size_t ninputs, noutputs;
    bool row_major; /* the inputs are, when it is called */
} core__region;

typedef struct core__region_captured {
    uint32_t *values; /* of the outer program; in its arena */
    uint32_t count;
} core__region_captured;

/* Calls the function.  The outputs are row-major and have memory of their
 * own. */
core_status core__region_call(const core__region *region,
                              core_tensor *const *inputs,
                              core_tensor **outputs);
/* Records it; the caller owns *out_program. */
core_status core__region_trace(core__trace *outer, const core__region *region,
                               core__region_captured *out_captured,
                               core_program **out_program);

#endif
