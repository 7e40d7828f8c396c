/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* lazy.h: lazy regions, which compile code between reads on the host.
 *
 * In a lazy region, operators that the thread calls are recorded and do not
 * run.  Where the content of a tensor is needed, the region is cut: what has
 * been recorded since the last cut, a segment, runs as one program, with fused
 * kernels.  A segment that was run before is found again by its operators,
 * numbers, sizes and aliases, so the code that is recorded may contain any C: a
 * number that is read in each step of a loop, branches on it, printing.
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
 * it has sizes, strides, dtype, device, and a version, but its content is
 * computed by the cut.  If nothing refers to it then, it is not computed.  The
 * results have the bits that they have without a region, except that a NaN may
 * be another NaN, and gradients do, too: the graph is built while operators are
 * recorded, as it is otherwise.
 *
 * What cuts.  Each call that needs the content of a tensor, or whose effect
 * depends on what was submitted before: core_tensor_item, _read, _write and
 * _data, printing, saving, DLPack and copies to another device; events, streams
 * and waits; graph captures and launches; memory pools; seeds and states of
 * generators; settings and registrations; a backward and an optimizer's step,
 * which run as usual; core_compiled_call, core_program_trace and
 * core_program_run, too.  So does an operator that cannot be recorded, which is
 * then called as usual: one whose result has a size that depends on data, one
 * of a program or plugin without a shape function, one on another device.
 *
 * Errors.  A wrong argument is reported by the call, as usual.  An error that
 * occurs while a segment runs (an index out of range, no memory) is reported by
 * the call that cuts, which then does nothing, and names the operator.
 * Afterwards the pending tensors of the segment have no content, and calls that
 * use them fail with UNSUPPORTED; existing tensors that the segment changes in
 * place may or may not have been changed.  The region stays open.
 *
 * Threads.  A region belongs to the thread that began it.  Other threads can
 * use its pending tensors only after a cut (else UNSUPPORTED), and see its
 * changes of other tensors only then: call core_lazy_sync first.  Segments are
 * shared by all threads.  If a thread ends, its region does, too.  After a
 * fork, the child continues the region of the thread that forked.
 *
 * Memory that the program reads through a pointer that it got before, from
 * core_tensor_data or DLPack, is changed by the next cut, not by the calls.  In
 * the same way, what it writes through such a pointer, or to memory that it gave
 * to core_tensor_from_memory, is seen by calls from before: cut first.  A tensor
 * on such memory is used until the next cut, even if it was released before. */

#ifndef LIBCORE_LAZY_H
#define LIBCORE_LAZY_H

#include "compiled.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The number of calls after which a region is cut, unless its options say
 * otherwise. */
enum { CORE_LAZY_LIMIT = 512 };

/* Options of core_lazy_begin.  Fields beyond struct_size are 0. */
typedef struct core_lazy_options {
    uint32_t struct_size;
    uint32_t flags;   /* 0 */
    uint32_t codegen; /* CORE_COMPILE_CODEGEN_… (compiled.h) */
    /* How many calls a segment contains at most; 0: CORE_LAZY_LIMIT.  A cut
     * releases the memory of tensors that are not used any more. */
    uint32_t limit;
} core_lazy_options;

/* Begins a lazy region in the calling thread.  options: NULL for all defaults.
 * Regions may be nested; an inner one has no effect, and its options are only
 * checked.  Neither has a region that is begun while a program is recorded:
 * what it contains becomes a part of that program.  INVALID_ARGUMENT for options
 * that are not those above. */
core_status core_lazy_begin(const core_lazy_options *options);

/* Ends the region that was begun last in the calling thread.  The end of the
 * outermost one cuts.  It ends the region also if that fails.  INVALID_ARGUMENT
 * without a region; REFUSED in a function that is called while the region is
 * paused, such as a hook of a backward, which did not begin it. */
core_status core_lazy_end(void);

/* Cuts the region of the calling thread; without one it does nothing.  It does
 * not wait for the device. */
core_status core_lazy_sync(void);

/* Counts of all lazy regions of the process since its start. */
typedef struct core_lazy_counts {
    uint32_t struct_size; /* in: sizeof of the caller's; out: filled */
    uint32_t reserved;
    uint64_t regions;          /* begun */
    uint64_t cuts;             /* that had something to run */
    uint64_t operators;        /* recorded and run in segments */
    uint64_t called_operators; /* that could not be recorded */
    uint64_t compiled;         /* segments that were new */
    uint64_t found;            /* segments that were found again */
    uint64_t failed;           /* segments whose run failed */
    uint64_t segments;         /* that exist now */
    uint64_t dropped;          /* to make room for others */
} core_lazy_counts;

/* Fills in the counts. */
core_status core_lazy_get_counts(core_lazy_counts *out_counts);

/* Returns a JSON text with the counts, what cut regions and how often, and the
 * segments that exist.  The caller frees it with core_text_free. */
core_status core_lazy_explain(char **out_json);

#ifdef __cplusplus
}
#endif
#endif
