/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* profiler.h: times of operators on devices, for torch's profiler. */

#ifndef BINDINGS_PYTORCH_PROFILER_H
#define BINDINGS_PYTORCH_PROFILER_H

namespace libcore_torch
{

void register_profiler();

} // namespace libcore_torch

#endif
