/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* replay.h: programs as device graphs (CORE_COMPILE_REDUCE_OVERHEAD).
 *
 * The first call of a program runs it as any other.  The second one captures
 * its operators (libcore/capture.h) and launches the graph; later calls launch
 * the graph again.  A graph works on the memory of its capture.  So
 *
 *   inputs   whose memory differs between the first two calls are copied to a
 *            buffer before each launch, and back if they are written; the graph
 *            uses the others where they are.  If one of those moves later, the
 *            program is captured again, with a buffer for it;
 *   outputs  are copied from the memory of the graph, so that the next launch
 *            does not change what the caller has;
 *   random   numbers are drawn at each launch, as the operators would.
 *
 * Groups of operators that the prepared calls compute with one kernel
 * (fusion.h) have that kernel in the graph, too.
 *
 * Steps of optimizers read their count, learning rate and the like from memory of
 * the device, which is filled before each launch (replay_numbers.h).
 *
 * A graph ends before the first operator that cannot be part of it: one that
 * reads the host in each call, or another number that changes between calls, such
 * as that of an optimizer without a fused kernel.  The operators from there on are
 * called after the launch.  A program whose graph would have fewer than half of
 * its operators is called as without graphs.
 *
 * All graphs of a compiled function share a memory pool, and one call at a time
 * launches one of them; a call during a launch by another thread runs without a
 * graph.  A launch on another stream than the one before waits
 * for it. */

#ifndef CORE_COMPILE_REPLAY_H
#define CORE_COMPILE_REPLAY_H

#include "base/json.h"
#include "compile/program/program.h"

/* What the graphs of a compiled function share. */
typedef struct core__replays core__replays;

core_status core__replays_new(core__replays **out_replays);
/* Accepts NULL. */
void core__replays_free(core__replays *replays);
/* Adds the captures, launches, and calls that ran without a graph because
 * another thread launched one. */
void core__replays_count(const core__replays *replays, uint64_t *captures,
                         uint64_t *launches, uint64_t *busy);

/* core__program_run_checked, by the graph of the program where there is one.
 * replays NULL: without. */
core_status core__replay_run(core__replays *replays, core_program *program,
                             core_tensor *const *inputs, core_tensor **outputs);
/* Writes the state of the program's graph as a member "graph" of an object;
 * none if no call of the program asked for one. */
void core__replay_write(const core_program *program, core__json *json);
/* Frees the graph of a program that is being freed. */
void core__replay_free(core_program *program);

#endif
