/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* gradient_order.h: orders streams that write the same stored gradient.
 *
 * The engine orders the streams of one backward.  Two backwards in two threads,
 * on two streams, may add to the same gradient, and no program could order
 * them, so each waits for the stream that wrote last. */

#ifndef CORE_AUTOGRAD_GRADIENT_ORDER_H
#define CORE_AUTOGRAD_GRADIENT_ORDER_H

#include <libcore/stream.h>

/* Orders this thread's stream after the work given to `earlier`.  Work inside a
 * capture and outside it cannot wait for each other; ordering replays is up to
 * the program. */
core_status core__gradient_order_wait(core_stream *earlier);
/* Sets *written, a reference or NULL, to this thread's current stream, which
 * wrote last. */
void core__gradient_order_written(core_stream **written, core_device *device);

#endif
