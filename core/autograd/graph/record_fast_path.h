/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* record_fast_path.h: the autograd layer for simple calls, called through a
 * shortcut. */

#ifndef CORE_AUTOGRAD_RECORD_FAST_PATH_H
#define CORE_AUTOGRAD_RECORD_FAST_PATH_H

#include "autograd/graph/gradient.h"
#include "dispatch/registry.h"

/* Whether the formula saves only tensors and numbers; *out_saved_for: mask of
 * the gradients that it saves anything for. */
bool core__gradient_has_fast_path(const core__gradient *gradient,
                                  uint32_t *out_saved_for);
/* core__autograd_layer for a structured operator with such a formula, one
 * result, and no gradient registered by a program; call->user: the shortcut. */
core_status core__autograd_layer_fast_path(core_call *call,
                                           const core_value *args,
                                           uint32_t nargs, core_value *results,
                                           uint32_t nresults);

#endif
