/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* replay_numbers.h: numbers of each call that a device graph reads.
 *
 * The numbers of a captured kernel call are those of the capture.  Steps of
 * optimizers have another form for captures, with a tensor for the numbers that
 * change from step to step (their device_numbers overloads).  A graph contains
 * that form where the device has a kernel for it, and the tensor is filled before
 * each launch, so a step with another count or learning rate is the same
 * graph. */

#ifndef CORE_COMPILE_REPLAY_NUMBERS_H
#define CORE_COMPILE_REPLAY_NUMBERS_H

#include "compile/program/program.h"
#include "device/stream.h"

typedef struct core__replay_numbers core__replay_numbers;

/* Finds the nodes whose numbers a graph on the program's device can read.  NULL:
 * there are none. */
core_status core__replay_numbers_find(const core_program *program,
                                      core__replay_numbers **out_numbers);
/* Accepts NULL, as the others. */
void core__replay_numbers_free(core__replay_numbers *numbers);
/* True if the graph reads the numbers of the node. */
bool core__replay_numbers_has(const core__replay_numbers *numbers,
                              uint32_t node);
/* Creates the tensors that a graph reads, on the current stream. */
core_status core__replay_numbers_create(core__replay_numbers *numbers);
/* Releases them after the work of the stream, which may be NULL. */
void core__replay_numbers_drop(core__replay_numbers *numbers,
                               core_stream *stream);
/* Calls the operator of a node in its form for captures. */
core_status core__replay_numbers_call(const core__replay_numbers *numbers,
                                      uint32_t node, const core_value *args);
/* Fills the tensors with the numbers of a call, by number, on the current
 * stream. */
core_status core__replay_numbers_fill(core__replay_numbers *numbers,
                                      const core_value *now);

#endif
