/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* region_saved.h: tensors from outside of a branch or loop that the graph of its
 * functions saves.
 *
 * Outside of a program a backward fails with VERSION if one of them was changed
 * in place meanwhile.  A recorded gradient has their values of before, and would
 * not notice; so it refuses to be recorded. */

#ifndef CORE_COMPILE_REGION_SAVED_H
#define CORE_COMPILE_REGION_SAVED_H

#include "compile/control_flow/region_trace.h"

typedef struct core__region_saved {
    bool *inputs;         /* by input of the functions; borrowed */
    core_tensor **others; /* with references */
    uint32_t nothers;
} core__region_saved;

/* Adds what the graph between outputs and wanted saves, in the trace of the
 * region.  leaves: in the place of the inputs. */
core_status core__region_saved_add(core__region_saved *saved,
                                   core_tensor *const *outputs, size_t noutputs,
                                   core_tensor *const *wanted, size_t nwanted,
                                   core_tensor *const *leaves, size_t nleaves);
void core__region_saved_drop(core__region_saved *saved);

/* core_node_saved for the node of a recorded branch or loop: UNSUPPORTED if the
 * tensor was changed since. */
core_status core__region_saved_get(core_node *node, size_t index,
                                   core_tensor **out_tensor);
/* The same check alone. */
core_status core__region_saved_check(core_node *node, size_t index);
/* The same for what the regions from `first` on read besides their inputs, if
 * the node cannot save that: notes the versions, and compares them.  Any change
 * counts. */
core_status core__region_captured_note(core__region_node *recorded,
                                       uint32_t first);
core_status core__region_captured_check(const core__region_node *recorded,
                                        const core_node *node);

#endif
