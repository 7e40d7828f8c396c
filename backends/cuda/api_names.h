/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* api_names.h: the names by which backends/gpu/host uses CUDA's driver. */

#ifndef CUDA_API_NAMES_H
#define CUDA_API_NAMES_H

#include "api.h"

#define GPU_API cuda
#define GPU_API_CAPTURE_RELAXED CU_STREAM_CAPTURE_MODE_RELAXED
#define GPU_API_NOT_CAPTURING CU_STREAM_CAPTURE_STATUS_NONE
#define GPU_API_NOT_READY CUDA_ERROR_NOT_READY
#define GPU_API_NON_BLOCKING CU_STREAM_NON_BLOCKING
#define GPU_API_NO_TIMING CU_EVENT_DISABLE_TIMING
#define GPU_API_BLOCKING_SYNC CU_EVENT_BLOCKING_SYNC
#define GPU_API_INSTANTIATE(out, graph) cuda.GraphInstantiate(out, graph, 0)
typedef CUstreamCaptureMode gpu_api_capture_mode;
typedef CUstreamCaptureStatus gpu_api_capture_status;
typedef CUstream gpu_api_stream;
typedef CUevent gpu_api_event;
typedef CUgraph gpu_api_graph;
typedef CUgraphExec gpu_api_graph_exec;
typedef CUmodule gpu_api_module;
typedef CUfunction gpu_api_function;

#include <gpu/host/capture_mode.h>

#endif
