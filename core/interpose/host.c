/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The host table of a plugin.  Its functions get no word that says whose call
 * it is, so there is a set of them for each of a few plugins: a shim that adds
 * that. */

#include "base/log.h"
#include "dispatch/dispatch.h"
#include "interpose/interposer.h"

#include <string.h>

enum { SETS = 8, TEXT_MAX = 1 << 20 };

static core__layers *_Atomic of_set[SETS];

static core_status enter(layer_call *call, core__layers *layers,
                         const char *slot, layer_kind kind)
{
    core_status status = layer_enter(call, layers, "host", slot, kind);

    call->outwards = true;
    return status;
}

static core_status host_error(core__layers *layers, const core_error_info *info)
{
    core_error_info fixed = {0};
    layer_call call;
    uint32_t size;

    enter(&call, layers, "error", LAYER_NEVER);
    if (!info) {
        layer_breach(&call, "no information");
        return layer_leave(&call, CORE_ERROR_INTERNAL, "NULL");
    }
    size = info->struct_size < sizeof fixed ? info->struct_size : sizeof fixed;
    memcpy(&fixed, info, size);
    if (fixed.code == CORE_OK && layer_validates(layers))
        layer_breach(&call, "reports an error whose code is CORE_OK");
    if (fixed.severity > CORE_SEVERITY_DEVICE_LOST && layer_validates(layers))
        layer_breach(&call, "reports the severity %u", fixed.severity);
    if (fixed.text.size > TEXT_MAX ||
        (fixed.text.size > 0 && !fixed.text.data)) {
        layer_breach(&call, "reports %llu bytes of text at %p",
                     (unsigned long long)fixed.text.size,
                     (const void *)fixed.text.data);
        fixed.text.size = 0;
    }
    fixed.struct_size = sizeof fixed;
    if (!call.broken)
        core__host.error(&fixed);
    return layer_leave(&call, fixed.code, "%.*s",
                       (int)(fixed.text.size < 200 ? fixed.text.size : 200),
                       fixed.text.data ? fixed.text.data : "");
}

static core_status host_operator_find(core__layers *layers, core_string name,
                                      core_operator **out)
{
    layer_call call;

    CORE_TRY(enter(&call, layers, "operator_find", LAYER_HOST));
    return layer_leave(&call, core__host.operator_find(name, out), "%.*s",
                       (int)(name.size < 128 ? name.size : 128), name.data);
}

static core_status host_operator_call(core__layers *layers, core_operator *op,
                                      const core_value *args, uint32_t nargs,
                                      core_value *results, uint32_t nresults)
{
    core_status status = CORE_ERROR_INTERNAL;
    layer_call call;

    CORE_TRY(enter(&call, layers, "operator_call", LAYER_HOST));
    if (!op || (nargs > 0 && !args) || (nresults > 0 && !results))
        layer_breach(&call, "op %p, %u arguments at %p, %u results at %p",
                     (const void *)op, nargs, (const void *)args, nresults,
                     (void *)results);
    for (uint32_t i = 0; !call.broken && i < nargs; i++)
        if (args[i].tag > CORE_VALUE_VALUE_LIST)
            layer_breach(&call, "argument %u has the tag %u", i, args[i].tag);
    if (!call.broken)
        status = core__host.operator_call(op, args, nargs, results, nresults);
    return layer_leave(&call, status, "%s, %u arguments",
                       op ? core__operator_name(op) : "NULL", nargs);
}

static core_status host_redispatch(core__layers *layers, core_call *of,
                                   uint64_t keys, const core_value *args,
                                   uint32_t nargs, core_value *results,
                                   uint32_t nresults)
{
    core_status status = CORE_ERROR_INTERNAL;
    layer_call call;

    CORE_TRY(enter(&call, layers, "redispatch", LAYER_HOST));
    if (!layer_runs(of) && layer_validates(layers))
        layer_breach(&call, "names a call (%p) that does not run here",
                     (void *)of);
    if (!call.broken)
        status =
            core__host.redispatch(of, keys, args, nargs, results, nresults);
    return layer_leave(&call, status, "0x%llx", (unsigned long long)keys);
}

static void host_tensor_retain(core__layers *layers, core_tensor *tensor)
{
    layer_call call;

    enter(&call, layers, "tensor_retain", LAYER_NEVER);
    if (!tensor)
        layer_breach(&call, "NULL");
    else
        core__host.tensor_retain(tensor);
    layer_leave_void(&call, "%p", (void *)tensor);
}

static core_status host_tensor_view(core__layers *layers, core_tensor *tensor,
                                    core_view *out_view)
{
    core_status status = CORE_ERROR_INTERNAL;
    layer_call call;

    CORE_TRY(enter(&call, layers, "tensor_view", LAYER_HOST));
    if (!tensor || !out_view)
        layer_breach(&call, "tensor %p, view %p", (void *)tensor,
                     (void *)out_view);
    else
        status = core__host.tensor_view(tensor, out_view);
    return layer_leave(&call, status, "%p", (void *)tensor);
}

static core_status host_call_scratch(core__layers *layers, core_call *of,
                                     uint64_t size, core_memory *out_memory)
{
    core_status status = CORE_ERROR_INTERNAL;
    layer_call call;

    *out_memory = (core_memory){0};
    CORE_TRY(enter(&call, layers, "call_scratch", LAYER_HOST));
    if (!layer_runs(of) && layer_validates(layers))
        layer_breach(&call,
                     "wants scratch of a call (%p) that does not run "
                     "here",
                     (void *)of);
    if (!call.broken)
        status = core__host.call_scratch(of, size, out_memory);
    return layer_leave(&call, status, "%llu -> %p", (unsigned long long)size,
                       out_memory->handle);
}

/* A stream that the plugin keeps to itself is not known here. */
static void check_stream(layer_call *call, const void *stream)
{
    if (!stream && layer_validates(call->layers))
        layer_breach(call, "names the stream NULL");
}

static core_status host_call_record_stream(core__layers *layers, core_call *of,
                                           void *stream)
{
    core_status status = CORE_ERROR_INTERNAL;
    layer_call call;

    CORE_TRY(enter(&call, layers, "call_record_stream", LAYER_HOST));
    if (!layer_runs(of) && layer_validates(layers))
        layer_breach(&call,
                     "names a stream for a call (%p) that does not run here",
                     (void *)of);
    check_stream(&call, stream);
    layer_names_stream = true;
    if (!call.broken)
        status = core__host.call_record_stream(of, stream);
    layer_names_stream = false;
    return layer_leave(&call, status, "stream %p", stream);
}

static core_status host_tensor_record_stream(core__layers *layers,
                                             core_tensor *tensor, void *stream)
{
    core_status status = CORE_ERROR_INTERNAL;
    layer_call call;

    CORE_TRY(enter(&call, layers, "tensor_record_stream", LAYER_HOST));
    check_stream(&call, stream);
    layer_names_stream = true;
    if (!call.broken)
        status = core__host.tensor_record_stream(tensor, stream);
    layer_names_stream = false;
    return layer_leave(&call, status, "%p, stream %p", (void *)tensor, stream);
}

static core_status host_call_allocate_result(core__layers *layers,
                                             core_call *of, uint32_t index,
                                             core_dtype dtype, uint32_t ndim,
                                             const int64_t *sizes,
                                             const core_view **out_view)
{
    core_status status = CORE_ERROR_INTERNAL;
    layer_call call;

    *out_view = NULL;
    CORE_TRY(enter(&call, layers, "call_allocate_result", LAYER_HOST));
    if (!layer_runs(of) && layer_validates(layers))
        layer_breach(&call,
                     "wants a result of a call (%p) that does not run "
                     "here",
                     (void *)of);
    if (ndim > (uint32_t)CORE_MAX_NDIM || (ndim > 0 && !sizes))
        layer_breach(&call, "wants a result of %u dimensions at %p", ndim,
                     (const void *)sizes);
    if (!call.broken)
        status = core__host.call_allocate_result(of, index, dtype, ndim, sizes,
                                                 out_view);
    return layer_leave(&call, status, "%u, dtype %u, %u dimensions", index,
                       dtype, ndim);
}

static core_status host_call_copy(core__layers *layers, const core_call *of,
                                  const core_value *args, uint32_t nargs,
                                  const core_value *results, uint32_t nresults,
                                  core_call **out_call,
                                  const core_value **out_args,
                                  core_value **out_results)
{
    core_status status = CORE_ERROR_INTERNAL;
    layer_call call;

    *out_call = NULL;
    CORE_TRY(enter(&call, layers, "call_copy", LAYER_HOST));
    if (!layer_runs(of) && layer_validates(layers))
        layer_breach(&call, "copies a call (%p) that does not run here",
                     (const void *)of);
    if (!call.broken)
        status = core__host.call_copy(of, args, nargs, results, nresults,
                                      out_call, out_args, out_results);
    if (status == CORE_OK)
        layer_made(&call, LAYER_CALL_OBJECT, NULL, *out_call, 0, 0);
    return layer_leave(&call, status, "%p -> %p", (const void *)of,
                       (void *)*out_call);
}

static void host_call_drop(core__layers *layers, core_call *of)
{
    layer_call call;

    enter(&call, layers, "call_drop", LAYER_NEVER);
    if (layer_destroys(&call, LAYER_CALL_OBJECT, NULL, of, 0, 0))
        core__host.call_drop(of);
    layer_leave_void(&call, "%p", (void *)of);
}

/* ----------------------------------------------------------------- shims -- */

#define SET(n)                                                                 \
    static core_status error_##n(const core_error_info *info)                  \
    {                                                                          \
        return host_error(of_set[n], info);                                    \
    }                                                                          \
    static core_status find_##n(core_string name, core_operator **out)         \
    {                                                                          \
        return host_operator_find(of_set[n], name, out);                       \
    }                                                                          \
    static core_status call_##n(core_operator *op, const core_value *args,     \
                                uint32_t nargs, core_value *results,           \
                                uint32_t nresults)                             \
    {                                                                          \
        return host_operator_call(of_set[n], op, args, nargs, results,         \
                                  nresults);                                   \
    }                                                                          \
    static core_status redispatch_##n(core_call *of, uint64_t keys,            \
                                      const core_value *args, uint32_t nargs,  \
                                      core_value *results, uint32_t nresults)  \
    {                                                                          \
        return host_redispatch(of_set[n], of, keys, args, nargs, results,      \
                               nresults);                                      \
    }                                                                          \
    static void retain_##n(core_tensor *tensor)                                \
    {                                                                          \
        host_tensor_retain(of_set[n], tensor);                                 \
    }                                                                          \
    static core_status view_##n(core_tensor *tensor, core_view *out)           \
    {                                                                          \
        return host_tensor_view(of_set[n], tensor, out);                       \
    }                                                                          \
    static core_status scratch_##n(core_call *of, uint64_t size,               \
                                   core_memory *out)                           \
    {                                                                          \
        return host_call_scratch(of_set[n], of, size, out);                    \
    }                                                                          \
    static core_status result_##n(core_call *of, uint32_t index,               \
                                  core_dtype dtype, uint32_t ndim,             \
                                  const int64_t *sizes, const core_view **out) \
    {                                                                          \
        return host_call_allocate_result(of_set[n], of, index, dtype, ndim,    \
                                         sizes, out);                          \
    }                                                                          \
    static core_status copy_##n(                                               \
        const core_call *of, const core_value *args, uint32_t nargs,           \
        const core_value *results, uint32_t nresults, core_call **out_call,    \
        const core_value **out_args, core_value **out_results)                 \
    {                                                                          \
        return host_call_copy(of_set[n], of, args, nargs, results, nresults,   \
                              out_call, out_args, out_results);                \
    }                                                                          \
    static void drop_##n(core_call *of)                                        \
    {                                                                          \
        host_call_drop(of_set[n], of);                                         \
    }                                                                          \
    static core_status use_##n(core_call *of, void *stream)                    \
    {                                                                          \
        return host_call_record_stream(of_set[n], of, stream);                 \
    }                                                                          \
    static core_status use_of_##n(core_tensor *tensor, void *stream)           \
    {                                                                          \
        return host_tensor_record_stream(of_set[n], tensor, stream);           \
    }

SET(0)
SET(1)
SET(2)
SET(3)
SET(4)
SET(5)
SET(6)
SET(7)

#define ROW(n)                                                            \
    {                                                                     \
        .error = error_##n, .operator_find = find_##n,                    \
        .operator_call = call_##n, .redispatch = redispatch_##n,          \
        .tensor_retain = retain_##n, .tensor_view = view_##n,             \
        .call_scratch = scratch_##n, .call_allocate_result = result_##n,  \
        .call_copy = copy_##n, .call_drop = drop_##n,                     \
        .call_record_stream = use_##n, .tensor_record_stream = use_of_##n \
    }

static const core_host sets[SETS] = {ROW(0), ROW(1), ROW(2), ROW(3),
                                     ROW(4), ROW(5), ROW(6), ROW(7)};

/* A set that serves a plugin serves it again when it is loaded anew; nobody
 * else gets it, because a closed plugin may have left a thread that calls. */
static uint32_t take_set(core__layers *layers)
{
    uint32_t n = 0;

    while (
        n < SETS && atomic_load(&of_set[n]) &&
        !(of_set[n]->ended && strcmp(of_set[n]->plugin, layers->plugin) == 0))
        n++;
    if (n < SETS) {
        core__layers *old = atomic_exchange(&of_set[n], layers);

        if (old)
            core__reclaim(&old->retired, old);
        layers->lasting = true;
    }
    return n;
}

/* Plugins are opened one at a time. */
void core__layers_host(core__layers *layers, core_host *host)
{
    uint32_t n = take_set(layers);

    layers->minor = host->abi_minor;
    if (n == SETS) {
        core__log(CORE_LOG_WARNING, "layers",
                  "%s: calls into libcore are not watched; those of %d plugins "
                  "are",
                  layers->plugin, SETS);
        return;
    }
    host->error = sets[n].error;
    host->operator_find = sets[n].operator_find;
    host->operator_call = sets[n].operator_call;
    host->redispatch = sets[n].redispatch;
    host->tensor_retain = sets[n].tensor_retain;
    host->tensor_view = sets[n].tensor_view;
    host->call_scratch = sets[n].call_scratch;
    host->call_allocate_result = sets[n].call_allocate_result;
    host->call_copy = sets[n].call_copy;
    host->call_drop = sets[n].call_drop;
    if (layers->minor < 4)
        return; /* its table ends before the others */
    host->call_record_stream = sets[n].call_record_stream;
    host->tensor_record_stream = sets[n].tensor_record_stream;
}
