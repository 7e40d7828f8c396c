/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* capture.h: captures under way, inside the core. */

#ifndef CORE_DEVICE_CAPTURE_H
#define CORE_DEVICE_CAPTURE_H

#include "base/fork.h"
#include "device/stream.h"

#include <libcore/capture.h>

/* What cannot be captured was tried: the capture, if one is under way, ends
 * with an error that says so. */
void core__capture_spoil(core_stream *stream, const char *what);
/* One more piece of work was given to a stream that captures. */
void core__capture_count(core_stream *stream);

/* What a random operator of numel elements draws with, inside a capture: an
 * offset relative to the launch, and the two words that every launch fills
 * anew; borrowed. */
core_status core__capture_random(core_stream *stream, core_generator *generator,
                                 uint64_t numel, uint64_t *out_seed,
                                 uint64_t *out_offset,
                                 core_tensor **out_counter);

/* Fork handler of captures. */
void core__captures_fork(core__fork at);

#endif
