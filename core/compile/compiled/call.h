/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* call.h: a call of a compiled function, and what its parts share. */

#ifndef CORE_COMPILE_CALL_H
#define CORE_COMPILE_CALL_H

#include "compile/compiled/compiled_node.h"
#include "compile/compiled/graph_break.h"

static inline void core__compiled_count(_Atomic uint64_t *counter, uint64_t by)
{
    atomic_fetch_add_explicit(counter, by, memory_order_relaxed);
}

/* A call, and what is known about it. */
typedef struct core__call {
    core_compiled *compiled;
    core_tensor *const *inputs;
    size_t ninputs;
    core_tensor **outputs;
    size_t noutputs;
    core__guard guard;
    bool changed; /* an entry had the guard record, but not the hidden inputs */
    uint32_t hooks_removed; /* core__hooks_removed before the recording */
} core__call;

/* compiled.c */

/* Keeps the calls of an entry that is not, or no longer, in a slot. */
void core__compiled_note_past(core_compiled *compiled,
                              const core__compiled_entry *entry);

/* entry_slots.c */

/* Removes an entry from its slot. */
void core__entries_remove(core_compiled *compiled, uint32_t slot,
                          core__compiled_entry *entry, bool gone);
/* Finds the entry for a call, with a reference; NULL: there is none.  *changed:
 * one that had the guard record was dropped. */
core__compiled_entry *core__entries_find(core_compiled *compiled,
                                         const core__guard *guard,
                                         core_tensor *const *inputs,
                                         bool *out_changed);
/* Removes all entries that cannot hold again.  True if there is a place now. */
bool core__entries_sweep(core_compiled *compiled);
/* Adds an entry if it has a slot.  Takes over a reference of it, whose call has
 * been made. */
void core__entries_add(core_compiled *compiled, const core__guard *guard,
                       core_tensor *const *inputs, core__compiled_entry *entry);
/* Frees the slot of the oldest entry that was not recorded. */
void core__entries_make_room(core_compiled *compiled);
/* True if an entry can make room. */
bool core__entries_replaceable(core_compiled *compiled);

/* call.c */

/* Calls the function itself. */
core_status core__call_function(const core__call *c);
/* Runs the program of an entry whose guards hold, or calls the function. */
core_status core__call_run_entry(const core__call *c,
                                 core__compiled_entry *entry);
/* A call that neither ran a program nor the function to its end. */
core_status core__call_failed(const core__call *c, core_status status);

/* call_record.c */

/* Records the function, adds its entry and makes the call. */
core_status core__call_record(core__call *c);
/* Records the function, and counts it. */
core_status core__call_trace(core_compiled *compiled,
                             core_tensor *const *inputs, size_t ninputs,
                             size_t noutputs, core_program **out_program,
                             core__training **out_training, uint64_t *out_ns,
                             core__break_place *out_place);

/* call_dynamic_shapes.c */

/* True if programs of several sizes may become one of dynamic shapes. */
bool core__call_joins_sizes(const core_compiled *compiled);
/* After a recording.  UNSUPPORTED if sizes must join and do not.  *out_joined:
 * the program can be made from those of other sizes. */
core_status core__call_learn_sizes(const core__call *c,
                                   const core_program *program,
                                   const core__training *training,
                                   bool *out_joined);
/* Makes and runs a program from those of other sizes.  *out_done: there was
 * one. */
core_status core__call_run_resized(core__call *c, bool *out_done);
/* A break that two sizes have had: others are expected to have it, too.  With a
 * reference; or NULL. */
core__compiled_entry *core__call_expected_break(core_compiled *compiled,
                                                const core__guard *guard);
/* True for one call of many whose break was expected: its cause may be over. */
bool core__call_records_again(core_compiled *compiled);

#endif
