/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* record_fast_path.h: the autograd layer of plain calls, from a shortcut. */

#ifndef CORE_AUTOGRAD_PLAIN_H
#define CORE_AUTOGRAD_PLAIN_H

#include "autograd/graph/gradient.h"
#include "dispatch/registry.h"

/* Whether a formula keeps tensors and numbers alone; and a mask of the
 * gradients that it keeps anything for. */
bool core__plain_gradient(const core__gradient *gradient,
                          uint32_t *out_saved_for);
/* core__autograd_layer for a structured operator with such a formula, one
 * result, and no function of a program's; call->user: the shortcut. */
core_status core__autograd_plain(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults);

#endif
