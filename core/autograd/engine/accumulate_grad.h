/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* accumulate_grad.h: adds gradients to those of leaves. */

#ifndef CORE_AUTOGRAD_ACCUMULATE_GRAD_H
#define CORE_AUTOGRAD_ACCUMULATE_GRAD_H

#include "autograd/engine/engine.h"

/* Adds *grad to the leaf's gradient, or takes it over and sets it to NULL.  If
 * the task has a destination for the leaf, adds to that instead; *grad is NULL
 * then if a formula wrote it there. */
core_status core__accumulate_run(core__task *task, core_node *node,
                                 core_tensor **grad);

/* Records the stream for the leaf's gradient. */
core_status core__accumulate_record_stream(core_node *node,
                                           core_stream *stream);

/* In the child of a fork. */
void core__accumulate_after_fork(void);

#endif
