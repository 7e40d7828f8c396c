/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* capture.h: a sequence of calls, recorded once and launched often.
 *
 * Between begin and end, what the thread gives to the stream does not run but
 * becomes a graph; launching the graph does what the calls would have done, on
 * the same memory: tensors made during the capture hold the results of the
 * latest launch and live in a private pool.  Inputs are changed by copying into
 * the tensors that were used.  Random operators draw fresh numbers at every
 * launch, the same ones that eager calls would have drawn.
 *
 * Whatever needs the host to wait (item, a copy to the host, an operator whose
 * shape depends on data), a fallback to another device, a host callback, the
 * launch of another graph, or a plan that was not made before (run the calls
 * once first) is CORE_ERROR_UNSUPPORTED inside a capture, and says which; the
 * capture is then spoilt, and end says so.
 */

#ifndef LIBCORE_CAPTURE_H
#define LIBCORE_CAPTURE_H

#include "memory.h"
#include "stream.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct core_graph core_graph;

/* The stream becomes current for the thread (not a default stream); no other
 * thread may use it meanwhile.  pool NULL: a new one, the graph's own; the pool
 * of another graph shares memory with it: then the two are launched in the
 * order of their captures.  BUSY if the stream is capturing.  UNSUPPORTED where
 * the device has so few streams that this one is others' too. */
core_status core_capture_begin(core_stream *stream, core_memory_pool *pool);
/* Ends it in any case and restores the current stream.  *out_graph is NULL on
 * failure; out_graph NULL throws the work away. */
core_status core_capture_end(core_stream *stream, core_graph **out_graph);
bool core_stream_capturing(const core_stream *stream);

/* Any stream of the same device.  One launch after the other: a graph is not
 * launched on a second stream before the first is past it (the caller orders
 * them).  Bad data that its kernels meet is told by the waits for that stream, as
 * of operators; where that cannot be noted for want of memory, and under
 * LIBCORE_BLOCKING, by this call, which has launched it then. */
core_status core_graph_launch(core_graph *graph, core_stream *stream);
/* Kernels, copies and fills in it. */
uint64_t core_graph_size(const core_graph *graph);
/* Borrowed. */
core_memory_pool *core_graph_pool(const core_graph *graph);
core_graph *core_graph_retain(core_graph *graph);
/* Launches of it may be under way: its memory waits for them. */
void core_graph_release(core_graph *graph);

#ifdef __cplusplus
}
#endif
#endif
