/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* lazy.h: lazy regions, which compile the code between two reads on the host.
 *
 * In a lazy region, the operators that the thread calls are recorded instead of
 * run.  Where the content of a tensor is needed, the region is cut: what has
 * been recorded since the last cut, a segment, runs as one program, with fused
 * kernels.  A segment that ran before is found again by its operators, numbers,
 * sizes and aliases.  So the code in a region may be any C: it may read a
 * number in each step of a loop, branch on it, and print it.
 *
 *     core_lazy_begin(NULL);
 *     for (int i = 0; i < steps; i++) {
 *         ... operators ...
 *         core_tensor_item_float(norm, &x);      cuts: the segment runs
 *         ... operators that depend on x ...
 *     }
 *     core_lazy_end();                           cuts
 *
 * A tensor that an operator returns in a region is pending until the next cut:
 * it has sizes, strides, dtype, device and version, but only the cut computes
 * its content, and does not if nothing refers to the tensor any more.  Results
 * and gradients have the same bits as without a region, except that NaN
 * payloads and signs may differ.  Autograd builds its graph while operators are
 * recorded, as it does without a region.
 *
 * What cuts.  Each call that needs the content of a tensor, or whose effect
 * depends on what was submitted before: core_tensor_item, _read, _write and
 * _data, printing, saving, DLPack and copies to another device; events, streams
 * and waits; graph captures and launches; memory pools; seeds and states of
 * generators; settings and registrations; a backward and an optimizer's step,
 * which run as usual; core_compiled_call, core_program_trace and
 * core_program_run.  An operator that cannot be recorded cuts, too, and is then
 * called as usual: one whose result has a size that depends on the content of
 * tensors, one that a program or plugin registered without a shape function, or
 * one on another device than the segment.  So does a call beyond the limit.
 *
 * Errors.  A call reports a wrong argument at once, as usual.  An error that
 * occurs while a segment runs (an index out of range, no memory) is reported by
 * the call that cuts, which then does nothing else; the message names the
 * operator.  Afterwards the pending tensors of the segment have no content, and
 * calls that use them fail with UNSUPPORTED; other tensors that the segment
 * changes in place may or may not have been changed.  The region stays open.
 *
 * Threads.  A region belongs to the thread that began it.  Other threads can
 * use its pending tensors only after a cut (otherwise UNSUPPORTED), and see its
 * changes of other tensors only then; call core_lazy_sync first.  Segments are
 * shared by all threads.  A region ends with its thread, with a warning in the
 * log.  After fork, the child continues the region of the thread that forked.
 *
 * Pointers.  The application may hold a pointer to the memory of a tensor, from
 * core_tensor_data or DLPack, or because core_tensor_from_memory was given it.
 * Recorded calls change this memory only at the next cut.  What the application
 * writes to it before the cut, recorded calls see already.  So call
 * core_lazy_sync before such a read or write.  Such memory must stay valid
 * until the next cut, even if its tensor was released before. */

#ifndef LIBCORE_LAZY_H
#define LIBCORE_LAZY_H

#include "compiled.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The number of calls after which a region is cut, unless its options say
 * otherwise. */
enum { CORE_LAZY_LIMIT = 512 };

/* The options of core_lazy_begin.  All fields but struct_size may be 0. */
typedef struct core_lazy_options {
    uint32_t struct_size;
    uint32_t flags;   /* reserved; 0 */
    uint32_t codegen; /* CORE_COMPILE_CODEGEN_… (compiled.h) */
    /* The greatest number of calls in a segment; 0: CORE_LAZY_LIMIT.  Until the
     * cut, a segment keeps the memory of all tensors that it reads. */
    uint32_t limit;
} core_lazy_options;

/* Begins a lazy region in the calling thread.  options: NULL: all 0.  Regions
 * may be nested; an inner one has no effect, and its options are only checked.
 * A region that begins while a program is recorded has no effect, either: its
 * operators become part of that program.  INVALID_ARGUMENT: an option has
 * another value than those above. */
core_status core_lazy_begin(const core_lazy_options *options);

/* Ends the region that was begun last in the calling thread.  The end of the
 * outermost region cuts, and ends the region even if the segment fails.
 * INVALID_ARGUMENT: the thread has no region.  REFUSED: the caller is a
 * function that runs while the region is paused, such as a hook of a backward,
 * and did not begin the region. */
core_status core_lazy_end(void);

/* Cuts the region of the calling thread; does nothing without a region.  Does
 * not wait for the device.  Errors are those of the segment. */
core_status core_lazy_sync(void);

/* Counts of all lazy regions since the process started. */
typedef struct core_lazy_counts {
    uint32_t struct_size; /* in: sizeof of the caller's; out: filled */
    uint32_t reserved;
    uint64_t regions;          /* that were begun, without nested ones */
    uint64_t cuts;             /* that had something to run */
    uint64_t operators;        /* in the segments of these cuts */
    uint64_t called_operators; /* that were called: they cannot be recorded */
    uint64_t compiled;         /* cuts whose segment was new */
    uint64_t found;            /* cuts whose segment was found again */
    uint64_t failed;           /* cuts whose segment failed */
    uint64_t segments;         /* that are kept now */
    uint64_t dropped;          /* segments, to make room for others */
} core_lazy_counts;

/* Fills in the counts.  The caller sets struct_size. */
core_status core_lazy_get_counts(core_lazy_counts *out_counts);

/* Returns a JSON text with the counts, what has cut regions and how often, and
 * the segments that are kept (docs/compile.md).  The caller frees it with
 * core_text_free. */
core_status core_lazy_explain(char **out_json);

#ifdef __cplusplus
}
#endif
#endif
