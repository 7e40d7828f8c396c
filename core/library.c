/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The composition root: the functions that earlier folders call in later ones.
 *
 * Each folder declares a table of the functions that it needs (base/upcalls.h
 * explains why); only this file includes all folders, and fills in the
 * tables. */

#include "autocast/autocast.h"
#include "autocast/thread_end.h"
#include "autograd/engine/accumulate_grad.h"
#include "autograd/engine/worker.h"
#include "autograd/graph/layer.h"
#include "autograd/graph/autograd_meta.h"
#include "autograd/graph/record_fast_path.h"
#include "base/log.h"
#include "base/upcalls.h"
#include "device/upcalls.h"
#include "dispatch/dispatch.h"
#include "dispatch/mode_stack.h"
#include "dispatch/plan.h"
#include "dispatch/upcalls.h"
#include "capture/capture.h"
#include "codegen/background_build.h"
#include "comm/upcalls.h"
#include "compile/compiled/compiled.h"
#include "compile/control_flow/region_trace.h"
#include "compile/fusion/upcalls.h"
#include "compile/prepare/replay.h"
#include "compile/prepare/tune.h"
#include "compile/program/upcalls.h"
#include "compile/record/lazy.h"
#include "compile/record/segment.h"
#include "compile/run/upcalls.h"
#include "interpose/interposers.h"
#include "io/cache_folder.h"
#include "loader/loader.h"
#include "memory/allocator.h"
#include "memory/cache.h"
#include "memory/host_memory.h"
#include "memory/imported.h"
#include "memory/memory.h"
#include "memory/upcalls.h"
#include "modes/counting.h"
#include "ops/functions.h"
#include "profiler/nan_check.h"
#include "profiler/profile.h"
#include "profiler/profiler_hooks.h"
#include "quant/float8_fallback.h"
#include "random/generator.h"
#include "random/upcalls.h"
#include "scope/scope.h"
#include "tensor/tensor_cache.h"
#include "tensor/upcalls.h"
#include "transfer/fill.h"
#include "transfer/transfer.h"
#include "transform/batch.h"

#include <string.h>

/* ---------------------------------------------------------------- base -- */

static const core__thread_end_hook thread_finish[] = {
    core__lazy_thread_end, /* runs operators */
    core__modes_thread_end,
    core__scopes_thread_end,
    core__autocast_thread_end, /* releases tensors */
    NULL,
};

static const core__thread_end_hook thread_release[] = {
    core__memory_pools_end,
    core__memory_thread_end,
    core__stream_thread_end,
    core__profiler_thread_end, /* last: records releases by the others */
    NULL,
};

/* A lock that may be taken while another is held comes after it. */
static void (*const fork_locks[])(core__fork_phase at) = {
    core__compiled_fork, /* held while operators are called */
    core__executors_fork,
    core__capture_draws_fork,
    core__devices_fork, /* held while plugins are opened */
    core__op_counters_fork,
    core__plans_fork,
    core__reclaim_fork,
    core__generators_fork,
    core__settings_fork,
    core__alloc_settings_fork,
    core__imported_fork,
    core__threads_fork,
    core__captures_fork,
    core__profile_fork,
    core__segments_fork,
    core__loop_builds_fork,
    core__traced_fork,
    core__profile_clocks_fork,
    core__profile_session_fork,
    core__fork_renew_lock_fork,
    NULL,
};

static void (*const fork_child[])(void) = {
    core__log_after_fork,           core__registry_after_fork,
    core__devices_after_fork,       core__loader_after_fork,
    core__device_health_after_fork, core__block_cache_after_fork,
    core__accumulate_after_fork,    NULL,
};

static core_status (*const setting_checks[CORE__SETTINGS])(const char *text) = {
    [CORE__SETTING_DEVICE] = core__device_name_check,
    [CORE__SETTING_PLUGIN_PATH] = core__plugin_path_check,
    [CORE__SETTING_INTERPOSERS] = core__interposers_check,
    [CORE__SETTING_FAULT] = core__faults_check,
    [CORE__SETTING_QUARANTINE] = core__quarantine_check,
    [CORE__SETTING_FALLBACK] = core__fallback_check,
    [CORE__SETTING_ALLOC] = core__alloc_settings_check,
    [CORE__SETTING_CACHE] = core__cache_folder_check,
};

static void free_cached_blocks(void)
{
    core__memory_free_cached(NULL);
}

const struct core__base_upcalls core__base_upcalls = {
    .thread_finish = thread_finish,
    .thread_release = thread_release,
    .fork_locks = fork_locks,
    .fork_child = fork_child,
    .setting_checks = setting_checks,
    .nan_check_set = core__nan_check_set,
    .lazy_cut = core__lazy_cut,
    .lazy_cut_later = core__lazy_cut_later,
    .free_cached_blocks = free_cached_blocks,
};

/* -------------------------------------------------------------- device -- */

static const core_plugin_seal *plugin_seal(const core_plugin *plugin)
{
    return plugin && memcmp(plugin->seal.mark, "SEALED\0", 8) == 0
               ? &plugin->seal
               : NULL;
}

static uint32_t plugin_minor(const core_plugin *plugin)
{
    return core__plugin_minor(plugin);
}

const struct core__device_upcalls core__device_upcalls = {
    .load_type = core__loader_load_type,
    .plugin_minor = plugin_minor,
    .plugin_seal = plugin_seal,
    .operator_name = core__operator_name,
    .capture_invalidate = core__capture_invalidate,
    .allocator_create = core__allocator_create,
    .allocator_destroy = core__allocator_destroy,
    .allocator_reset = core__allocator_reset,
    .allocator_forked = core__allocator_after_fork,
    .allocator_stream_end = core__allocator_stream_end,
    .host_memory_end = core__host_memory_end,
    .host_memory_reset = core__host_memory_reset,
    .host_memory_forked = core__host_memory_after_fork,
    .imported_settle = core__imported_settle,
    .memory_free_cached = core__memory_free_cached,
    .cache_empty = core__block_cache_empty,
};

/* -------------------------------------------------------------- memory -- */

const struct core__memory_upcalls core__memory_upcalls = {
    .tensor_cache_collect = core__tensor_cache_collect,
    .tensor_cache_drop = core__tensor_cache_free,
};

/* -------------------------------------------------------------- tensor -- */

const struct core__tensor_upcalls core__tensor_upcalls = {
    .destroy_recorded = core__autograd_destroy,
    .autograd_relayout = core__autograd_sizes_changed,
    .alias_traced = core__lazy_note,
    .traced_origin = core__traced_origin,
    .history_drop = core__history_clear,
};

/* ------------------------------------------------------------ dispatch -- */

static const char *plugin_name(const core_plugin *plugin)
{
    return plugin->information.name;
}

static const core_host *plugin_host(const core_plugin *plugin)
{
    return &plugin->host;
}

const struct core__random_upcalls core__random_upcalls = {
    .refuse_recording = core__trace_refuse,
};

const struct core__dispatch_upcalls core__dispatch_upcalls = {
    .function_fast_path = core__function_fast_path,
    .tensor_copy = core__tensor_copy_flags,
    .fill_fallback = core__fill_fallback,
    .float8_fallback = core__float8_fallback,
    .gradient_has_fast_path = core__gradient_has_fast_path,
    .record_fast_path = core__autograd_layer_fast_path,
    .check_changes = core__changes_check,
    .count_changes = core__changes_count,
    .run_numbers = core__trace_numbers,
    .run_finishes = core__trace_finishes,
    .plugin_name = plugin_name,
    .plugin_host = plugin_host,
};

const core__entry core__dispatch_layers[CORE__FUNCTIONALITIES] = {
    [CORE__FUNCTIONALITY_RECORD] = {core__record_layer, NULL},
    [CORE__FUNCTIONALITY_FUNCTIONALIZE] = {core__functionalize_layer, NULL},
    [CORE__FUNCTIONALITY_MODE_BELOW_AUTOGRAD] = {core__mode_layer, NULL},
    [CORE__FUNCTIONALITY_INPLACE_OR_VIEW] = {core__inplace_or_view_layer, NULL},
    [CORE__FUNCTIONALITY_BATCH_RULE] = {core__batch_rule_layer, NULL},
    [CORE__FUNCTIONALITY_AUTOGRAD] = {core__autograd_layer, NULL},
    [CORE__FUNCTIONALITY_BATCHED] = {core__batched_layer, NULL},
    [CORE__FUNCTIONALITY_AUTOCAST] = {core__autocast_layer, NULL},
    [CORE__FUNCTIONALITY_PROFILER] = {core__profiler_layer, NULL},
    [CORE__FUNCTIONALITY_TRACE] = {core__trace_layer, NULL},
    [CORE__FUNCTIONALITY_MODE_API] = {core__mode_layer, NULL},
};

/* ---------------------------------------------------------------- comm -- */

const struct core__comm_upcalls core__comm_upcalls = {
    .load_engines = core__loader_load_deviceless,
    .load_plugins = core__loader_load_all,
};

/* ------------------------------------------------------------- compile -- */

const struct core__program_upcalls core__program_upcalls = {
    .prepared_calls_free = core__prepared_calls_free,
    .replay_free = core__replay_free,
};

const struct core__fusion_upcalls core__fusion_upcalls = {
    .measure = core__fusion_measure,
};

const struct core__run_upcalls core__run_upcalls = {
    .region = core__region_run,
};
