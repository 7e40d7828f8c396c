/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* gradient_order.h: which stream last wrote a gradient that is kept.
 *
 * The engine orders what one backward does.  Two backwards in two threads, on
 * two streams, may add to one gradient, and no program could order them: who
 * adds waits for the stream that wrote last. */

#ifndef CORE_AUTOGRAD_TURNS_H
#define CORE_AUTOGRAD_TURNS_H

#include <libcore/stream.h>

/* What this thread gives its stream is to come behind what `earlier` was given.
 * What a capture holds and what it does not hold cannot wait for each other:
 * that a replay comes in its turn is the program's part. */
core_status core__turn_after(core_stream *earlier);
/* This thread's stream wrote: *written, a reference or NULL, names it now. */
void core__turn_taken(core_stream **written, core_device *device);

#endif
