/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* tests_features.h: tests of optional interfaces that have their own file. */

#ifndef CONFORMANCE_TESTS_FEATURES_H
#define CONFORMANCE_TESTS_FEATURES_H

#include "plugin_tables.h"

void features_allocator(suite *self, outcome *out, const test *one);
void features_allocator_keeps_order(suite *self, outcome *out, const test *one);
void features_profiler(suite *self, outcome *out, const test *one);
void features_layout(suite *self, outcome *out, const test *one);
void features_hotplug(suite *self, outcome *out, const test *one);
void features_copy_streams(suite *self, outcome *out, const test *one);
void features_ipc(suite *self, outcome *out, const test *one);
void features_ipc_exports(suite *self, outcome *out, const test *one);
void features_registered_host_memory(suite *self, outcome *out,
                                     const test *one);
void features_copy_streams_refuse_kernels(suite *self, outcome *out,
                                          const test *one);
void features_timing_matches_host_clock(suite *self, outcome *out,
                                        const test *one);
void features_destroyed_graph_completes(suite *self, outcome *out,
                                        const test *one);
void features_capture_records_one_stream(suite *self, outcome *out,
                                         const test *one);
void features_graphs_are_separate(suite *self, outcome *out, const test *one);
void features_pending_graph_launches_again(suite *self, outcome *out,
                                           const test *one);
void features_graph_launch_is_in_order(suite *self, outcome *out,
                                       const test *one);
void features_graph_launches_on_its_stream(suite *self, outcome *out,
                                           const test *one);
void features_capture_can_be_discarded(suite *self, outcome *out,
                                       const test *one);
/* Of core.codegen. */
void codegen_kernels_are_launched_again(suite *self, outcome *out,
                                        const test *one);
void codegen_outputs_may_be_inputs(suite *self, outcome *out, const test *one);
void codegen_tiles_and_threads(suite *self, outcome *out, const test *one);
void codegen_threads_share_a_kernel(suite *self, outcome *out, const test *one);
void codegen_random_rows(suite *self, outcome *out, const test *one);
void codegen_rows_may_be_inputs(suite *self, outcome *out, const test *one);
void codegen_rows_are_independent(suite *self, outcome *out, const test *one);

#endif
