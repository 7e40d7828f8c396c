/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* capture.h: captures in progress. */

#ifndef CORE_CAPTURE_CAPTURE_H
#define CORE_CAPTURE_CAPTURE_H

#include "base/fork.h"
#include "device/stream.h"

#include <libcore/capture.h>

/* Invalidates the stream's capture, if one is in progress, because something
 * that cannot be captured was attempted. */
void core__capture_invalidate(core_stream *stream, const char *what);
/* Counts another piece of work submitted to a capturing stream. */
void core__capture_count_work(core_stream *stream);

/* The seed and offset of a random operator with numel elements inside a
 * capture: an offset relative to the launch, and the counter on the device
 * that every launch updates, without a reference. */
core_status core__capture_random(core_stream *stream, core_generator *generator,
                                 uint64_t numel, uint64_t *out_seed,
                                 uint64_t *out_offset,
                                 core_tensor **out_counter);

/* Fork handlers of the locks of captures and of their random draws. */
void core__captures_fork(core__fork_phase at);
void core__capture_draws_fork(core__fork_phase at);

#endif
