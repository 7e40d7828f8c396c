/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* checkpoint_scales.h: replays quantizer scales when a checkpoint recomputes
 * its function.  The first run records the scale of each call; in the second
 * run each quantizer's calls take theirs in the recorded order and leave the
 * quantizer's state unchanged.
 *
 * A backward inside the function may run nodes in other threads.  They join the
 * run with core__checkpoint_scales_set while the thread that began it waits. */

#ifndef CORE_QUANT_CHECKPOINT_SCALES_H
#define CORE_QUANT_CHECKPOINT_SCALES_H

#include "base/thread.h"

#include <libcore/quantizer.h>

#include <stdbool.h>

typedef struct core__checkpoint_scale core__checkpoint_scale;

/* The calls recorded in a run.  Zero-initialize it; a second run only reads
 * it. */
typedef struct core__checkpoint_scales {
    core__checkpoint_scale *calls;
    size_t count, capacity;
    _Atomic uint8_t lock;
} core__checkpoint_scales;

void core__checkpoint_scales_clear(core__checkpoint_scales *list);

/* A run active in a thread, innermost first; stored on the stack of its
 * caller. */
typedef struct core__checkpoint_scales_run {
    struct core__checkpoint_scales_run *outer;
    core__checkpoint_scales *list;
    /* Second runs only, protected by the list's lock: which calls were
     * repeated.  All calls before `at` were. */
    bool *used;
    size_t at;
    bool second;
} core__checkpoint_scales_run;

void core__checkpoint_scales_begin(core__checkpoint_scales_run *run,
                                   core__checkpoint_scales *list, bool second);
void core__checkpoint_scales_end(core__checkpoint_scales_run *run);

/* Return the thread's innermost run (NULL if none), and set it so that another
 * thread can take part; core__checkpoint_scales_set returns the previous one. */
core__checkpoint_scales_run *core__checkpoint_scales_current(
    const core__thread *self);
core__checkpoint_scales_run *core__checkpoint_scales_set(
    core__thread *self, core__checkpoint_scales_run *run);

#endif
