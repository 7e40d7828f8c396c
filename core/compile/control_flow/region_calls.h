/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* region_calls.h: how branches and loops are called, recorded and run. */

#ifndef CORE_COMPILE_REGION_CALLS_H
#define CORE_COMPILE_REGION_CALLS_H

#include "compile/control_flow/region_trace.h"

/* region_call.c */

void core__region_release_all(core_tensor **tensors, size_t count);
core_status core__region_check_predicate(const char *name, const char *what,
                                         const core_tensor *predicate);
/* A lazy region records the operators of what is called. */
bool core__region_is_recording(void);
core_status core__region_read_predicate(core_tensor *predicate, bool *out);
/* Whether it differs between the samples of core_vmap. */
bool core__region_is_mapped(core_tensor *tensor);
/* The dtype, sizes and device of a tensor are those of another one. */
core_status core__region_check_same(const core__region *region, size_t output,
                                    const core_tensor *tensor,
                                    const core_tensor *expected,
                                    const char *of);
/* For samples that take different branches: both are called, and each sample gets
 * its elements. */
core_status core__region_call_both(const core__region *branches,
                                   core_tensor *predicate,
                                   core_tensor **outputs);

/* region_record.c */

/* Locks the trace.  state: with which the node begins, or NULL.  out_state: not
 * NULL if it shall keep its own. */
core_status core__region_record(const core__region *functions,
                                core_tensor *predicate, core_tensor *state,
                                core_tensor **outputs, core_tensor **out_state);

#endif
