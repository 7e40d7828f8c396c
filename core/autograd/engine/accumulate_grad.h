/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* accumulate_grad.h: adds gradients to those of leaves. */

#ifndef CORE_AUTOGRAD_ACCUMULATE_GRAD_H
#define CORE_AUTOGRAD_ACCUMULATE_GRAD_H

#include "autograd/engine/engine.h"

/* Adds *grad to the leaf's, or takes it over and makes it NULL.  Where the task
 * has a destination for the leaf, there instead; *grad is NULL then if formulas
 * wrote it. */
core_status core__accumulate_run(core__task *task, core_node *node,
                                 core_tensor **grad);

/* The leaf's grad is for work of this stream too. */
core_status core__accumulate_record(core_node *node, core_stream *stream);

/* In the child of a fork. */
void core__accumulate_forked(void);

#endif
