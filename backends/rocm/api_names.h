/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* api_names.h: the names by which backends/gpu/host uses HIP. */

#ifndef ROCM_API_NAMES_H
#define ROCM_API_NAMES_H

#include "api.h"

#define GPU_API hip
#define GPU_API_CAPTURE_RELAXED hipStreamCaptureModeRelaxed
#define GPU_API_NOT_CAPTURING hipStreamCaptureStatusNone
#define GPU_API_NOT_READY hipErrorNotReady
#define GPU_API_NON_BLOCKING hipStreamNonBlocking
#define GPU_API_NO_TIMING hipEventDisableTiming
#define GPU_API_BLOCKING_SYNC hipEventBlockingSync
#define GPU_API_INSTANTIATE(out, graph) \
    hip.GraphInstantiate(out, graph, NULL, NULL, 0)
typedef hipStreamCaptureMode gpu_api_capture_mode;
typedef hipStreamCaptureStatus gpu_api_capture_status;
typedef hipStream_t gpu_api_stream;
typedef hipEvent_t gpu_api_event;
typedef hipGraph_t gpu_api_graph;
typedef hipGraphExec_t gpu_api_graph_exec;
typedef hipModule_t gpu_api_module;
typedef hipFunction_t gpu_api_function;

#include <gpu/host/capture_mode.h>

#endif
