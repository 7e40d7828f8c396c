/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* replay.h: repeats one recorded call on a device. */

#ifndef CONFORMANCE_REPLAY_H
#define CONFORMANCE_REPLAY_H

#include "golden.h"
#include "replay_compiled.h"

typedef struct replay_device {
    core_device *device;
    bool has_f64;
    bool meta;                 /* shapes only */
    compiled_counts *compiled; /* cases are also called by core_compile */
} replay_device;

typedef enum replay_outcome {
    REPLAY_PASSED,
    REPLAY_FAILED,
    REPLAY_MISSING, /* no such operator, or no kernel for it */
    REPLAY_DIFFERS, /* from the recording, as its list of differences says */
    REPLAY_OUTCOMES
} replay_outcome;

/* The note on a case that passed because it agrees with the same call in f64,
 * though not with the recording. */
#define REPLAY_AGREED "agrees with the same call in f64"

/* The note on a case that passed because its gradients are the recorded ones if
 * arguments with the same bits are one tensor. */
#define REPLAY_SHARED "agrees if equal arguments are one tensor"

/* text: what failed or is missing, or why it differs; for a case that passed,
 * empty, REPLAY_AGREED or REPLAY_SHARED. */
replay_outcome replay_case(const replay_device *on, const golden_case *the_case,
                           char *text, size_t capacity);

#endif
