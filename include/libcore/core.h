/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* core.h: includes every header for programs but expressions.h and network.h.
 * Plugins include sdk.h instead. */

#ifndef LIBCORE_CORE_H
#define LIBCORE_CORE_H

#include "autocast.h"
#include "autograd.h"
#include "capture.h"
#include "comm.h"
#include "compile.h"
#include "compiled.h"
#include "control_flow.h"
#include "data.h"
#include "destination.h"
#include "device.h"
#include "dispatch.h"
#include "dlpack.h"
#include "float8.h"
#include "function.h"
#include "functional.h"
#include "grad_scaler.h"
#include "lazy.h"
#include "linear.h"
#include "memory.h"
#include "mode.h"
#include "ops.h"
#include "nn.h"
#include "optim.h"
#include "plugins.h"
#include "profiler.h"
#include "quantizer.h"
#include "random.h"
#include "reducer.h"
#include "safetensors.h"
#include "saved.h"
#include "scope.h"
#include "settings.h"
#include "shard.h"
#include "status.h"
#include "stream.h"
#include "tensor.h"
#include "transform.h"

#endif
