/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* capture.h: device graphs (CUDA graphs): a sequence of calls, captured once
 * and launched repeatedly.
 *
 * Between begin and end, work that the thread enqueues on the stream does not
 * run; it becomes a graph.  A launch of the graph does what the calls would
 * have done, on the same memory.  Tensors created during the capture are in a
 * private pool, and contain the results of the latest launch.  To change the
 * inputs, copy into the tensors that were used.  Random operators draw new
 * numbers at every launch, the same as eager calls would.
 *
 * The following calls return CORE_ERROR_UNSUPPORTED during a capture, with a
 * message that names them: calls that make the host wait (item, a copy to the
 * host, an operator whose shape depends on data), a fallback to another device,
 * a host callback, the launch of another graph, and a call that needs a plan
 * which is not cached (run the calls once before).  The capture then fails at
 * its end.
 *
 * core_capture_begin, core_capture_end and the captured calls belong to one
 * thread.  The other functions are thread-safe. */

#ifndef LIBCORE_CAPTURE_H
#define LIBCORE_CAPTURE_H

#include "memory.h"
#include "stream.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Captured work.  Reference-counted. */
typedef struct core_graph core_graph;

/* Begins a capture and makes the stream current for the calling thread.  No
 * other thread may use the stream until core_capture_end.  pool: where tensors
 * are allocated; NULL: a new pool for this graph.  A graph may share the pool
 * of another one if the two are always launched in the order of their captures.
 * INVALID_ARGUMENT for a default stream; BUSY if the stream is being captured;
 * UNSUPPORTED if the device cannot capture, or has so few streams that this one
 * shares a queue with others. */
core_status core_capture_begin(core_stream *stream, core_memory_pool *pool);

/* Ends a capture, even if it fails, and restores the current stream.  The
 * caller owns *out_graph, which is NULL on failure.  out_graph NULL: the
 * captured work is discarded.  UNSUPPORTED if a call during the capture was;
 * the message names it. */
core_status core_capture_end(core_stream *stream, core_graph **out_graph);

/* Returns whether a stream is being captured.  false for NULL. */
bool core_stream_is_capturing(const core_stream *stream);

/* Enqueues the captured work on any stream of the same device.  Launches of one
 * graph must not overlap: before a launch on a second stream, the caller makes
 * that stream wait for the first.  Bad data that a kernel finds is reported by
 * later waits for the stream, as for operators.  This call itself waits and
 * reports it under LIBCORE_BLOCKING, and if recording the launch runs out of
 * memory. */
core_status core_graph_launch(core_graph *graph, core_stream *stream);

/* Returns the number of kernels, copies and fills in a graph.  0 for NULL. */
uint64_t core_graph_size(const core_graph *graph);

/* Returns the memory pool of a graph, borrowed.  NULL for NULL. */
core_memory_pool *core_graph_pool(const core_graph *graph);

/* Adds a reference and returns graph.  Accepts NULL. */
core_graph *core_graph_retain(core_graph *graph);

/* Drops a reference.  Accepts NULL.  Launches that were enqueued run to
 * completion; the memory is reused after them. */
void core_graph_release(core_graph *graph);

#ifdef __cplusplus
}
#endif
#endif
