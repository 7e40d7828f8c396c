/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* fallback.h: what the CPU computes instead of a device. */

#ifndef BINDINGS_PYTORCH_FALLBACK_H
#define BINDINGS_PYTORCH_FALLBACK_H

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>

namespace libcore_torch
{

/* Counts that the CPU computes an operator.  Throws if that is not allowed. */
void count_fallback(const std::string &name);
/* Has torch's CPU compute the operator with the arguments on the stack. */
void fall_back(const c10::OperatorHandle &op, torch::jit::Stack *stack);

} // namespace libcore_torch

#endif
