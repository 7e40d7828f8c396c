/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* interfaces.h: the optional interfaces, offered if the driver supports
 * them. */

#ifndef GPU_INTERFACES_H
#define GPU_INTERFACES_H

#include <gpu/host/host.h>

extern const core_timing_interface gpu_timing;
extern const core_host_callback_interface gpu_host_callback;
extern const core_host_memory_interface gpu_host_memory;
extern const core_stream_adopt_interface gpu_stream_adopt;
extern const core_stream_priority_interface gpu_stream_priority;
extern const core_virtual_memory_interface gpu_virtual_memory;
extern const core_peer_interface gpu_peer;
extern const core_graph_capture_interface gpu_graph_capture;
extern const core_device_reset_interface gpu_reset;
extern const core_stream_error_interface gpu_stream_error;
extern const core_profiler_interface gpu_profiler;
extern const core_ranges_interface gpu_ranges;

#endif
