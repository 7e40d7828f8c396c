/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* segment.h: the segments of lazy regions (lazy.h).
 *
 * A segment is a program, and the bytes from which it is found again: the nodes
 * as they were recorded, before anything is simplified, what the inputs are, and
 * which values are outputs and writes.  The table of all segments belongs to the
 * process, under one lock, which is not held while a segment runs.  A segment
 * that is seen first runs operator by operator; kernels are made ready when it
 * is seen again, because code whose numbers change from step to step makes
 * segments that are not. */

#ifndef CORE_COMPILE_SEGMENT_H
#define CORE_COMPILE_SEGMENT_H

#include "compile/record/trace.h"

/* Runs what a trace has recorded, and gives the storages that are in use their
 * memory.  by, reason: what cut the region. */
core_status core__segment_run(core__trace *trace, uint32_t codegen,
                              const char *by, const char *reason);

/* For the counts. */
void core__segments_note_region(void);
void core__segments_note_call(void);
void core__segments_fork(core__fork_phase at);

#endif
