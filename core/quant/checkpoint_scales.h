/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* checkpoint_scales.h: quantizers in a function that runs a second time, as checkpoints
 * have it.  Of the first run each call's scale is noted; in the second one a
 * quantizer's calls find theirs in the order in which it made them, and leave
 * it as it is.
 *
 * A backward in such a function may run nodes in other threads, which take part
 * in the run (core__quantized_set) while the thread that began it waits. */

#ifndef CORE_QUANT_AGAIN_H
#define CORE_QUANT_AGAIN_H

#include "base/thread.h"

#include <libcore/quantizer.h>

#include <stdbool.h>

typedef struct core__quantized core__quantized;

/* The calls of a run.  Zero it; a second run only reads it. */
typedef struct core__quantized_list {
    core__quantized *calls;
    size_t count, room;
    _Atomic uint8_t lock;
} core__quantized_list;

void core__quantized_clear(core__quantized_list *list);

/* What runs in a thread, innermost first; on the stack of who runs it. */
typedef struct core__quantized_run {
    struct core__quantized_run *outer;
    core__quantized_list *list;
    /* Of a second run, under the list's lock: the calls that were made again,
     * all of those before `at` among them. */
    bool *made;
    size_t at;
    bool second;
} core__quantized_run;

void core__quantized_begin(core__quantized_run *run, core__quantized_list *list,
                           bool second);
void core__quantized_end(core__quantized_run *run);

/* The innermost run of a thread, NULL if there is none, for another thread to
 * work in.  Answers what that one's was. */
core__quantized_run *core__quantized_now(const core__thread *self);
core__quantized_run *core__quantized_set(core__thread *self,
                                         core__quantized_run *run);

#endif
