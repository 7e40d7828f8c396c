/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The host table of an interposed plugin.  Its functions have no argument that
 * identifies the calling plugin, so there is a set of shims for each of a few
 * plugins. */

#include "base/log.h"
#include "dispatch/dispatch.h"
#include "interpose/interposer.h"

#include <string.h>

enum { SETS = 8, TEXT_MAX = 1 << 20 };

static core__interposers *_Atomic interposers_of_set[SETS];

static core_status enter(interposer_call *call, core__interposers *interposers,
                         const char *slot, interposer_kind kind)
{
    core_status status =
        interposer_enter(call, interposers, "host", slot, kind);

    call->to_host = true;
    return status;
}

static core_status host_error(core__interposers *interposers,
                              const core_error_info *info)
{
    core_error_info fixed = {0};
    interposer_call call;
    uint32_t size;

    enter(&call, interposers, "error", INTERPOSER_NEVER);
    if (!info) {
        interposer_violation(&call, "passes no error information");
        return interposer_leave(&call, CORE_ERROR_INTERNAL, "NULL");
    }
    size = info->struct_size < sizeof fixed ? info->struct_size : sizeof fixed;
    memcpy(&fixed, info, size);
    if (fixed.code == CORE_OK && interposer_validates(interposers))
        interposer_violation(&call, "reports an error whose code is CORE_OK");
    if (fixed.severity > CORE_SEVERITY_DEVICE_LOST &&
        interposer_validates(interposers))
        interposer_violation(&call, "reports the severity %u", fixed.severity);
    if (fixed.text.size > TEXT_MAX ||
        (fixed.text.size > 0 && !fixed.text.data)) {
        interposer_violation(&call, "reports %llu bytes of text at %p",
                             (unsigned long long)fixed.text.size,
                             (const void *)fixed.text.data);
        fixed.text.size = 0;
    }
    fixed.struct_size = sizeof fixed;
    if (!call.violated)
        core__host.error(&fixed);
    return interposer_leave(
        &call, fixed.code, "%.*s",
        (int)(fixed.text.size < 200 ? fixed.text.size : 200),
        fixed.text.data ? fixed.text.data : "");
}

static core_status host_operator_find(core__interposers *interposers,
                                      core_string name, core_operator **out)
{
    interposer_call call;

    CORE_TRY(enter(&call, interposers, "operator_find", INTERPOSER_HOST));
    return interposer_leave(&call, core__host.operator_find(name, out), "%.*s",
                            (int)(name.size < 128 ? name.size : 128),
                            name.data);
}

static core_status host_operator_call(core__interposers *interposers,
                                      core_operator *op, const core_value *args,
                                      uint32_t nargs, core_value *results,
                                      uint32_t nresults)
{
    core_status status = CORE_ERROR_INTERNAL;
    interposer_call call;

    CORE_TRY(enter(&call, interposers, "operator_call", INTERPOSER_HOST));
    if (!op || (nargs > 0 && !args) || (nresults > 0 && !results))
        interposer_violation(&call,
                             "op %p, %u arguments at %p, %u results at %p",
                             (const void *)op, nargs, (const void *)args,
                             nresults, (void *)results);
    for (uint32_t i = 0; !call.violated && i < nargs; i++)
        if (args[i].tag > CORE_VALUE_VALUE_LIST)
            interposer_violation(&call, "argument %u has the tag %u", i,
                                 args[i].tag);
    if (!call.violated)
        status = core__host.operator_call(op, args, nargs, results, nresults);
    return interposer_leave(&call, status, "%s, %u arguments",
                            op ? core__operator_name(op) : "NULL", nargs);
}

static core_status host_redispatch(core__interposers *interposers,
                                   core_call *of, uint64_t keys,
                                   const core_value *args, uint32_t nargs,
                                   core_value *results, uint32_t nresults)
{
    core_status status = CORE_ERROR_INTERNAL;
    interposer_call call;

    CORE_TRY(enter(&call, interposers, "redispatch", INTERPOSER_HOST));
    if (!interposer_runs(of) && interposer_validates(interposers))
        interposer_violation(
            &call, "names a call (%p) that is not running in this thread",
            (void *)of);
    if (!call.violated)
        status =
            core__host.redispatch(of, keys, args, nargs, results, nresults);
    return interposer_leave(&call, status, "0x%llx", (unsigned long long)keys);
}

static core_status host_redispatch_from(core__interposers *interposers,
                                        const char *name,
                                        core_function redispatch, core_call *of,
                                        const core_value *args, uint32_t nargs,
                                        core_value *results, uint32_t nresults)
{
    core_status status = CORE_ERROR_INTERNAL;
    interposer_call call;

    CORE_TRY(enter(&call, interposers, name, INTERPOSER_HOST));
    /* The call may be a copy: the core checks that it is that of the function
     * that runs. */
    if (!of || (nargs > 0 && !args) || (nresults > 0 && !results))
        interposer_violation(
            &call, "call %p, %u arguments at %p, %u results at %p", (void *)of,
            nargs, (const void *)args, nresults, (void *)results);
    if (!call.violated)
        status = redispatch(of, args, nargs, results, nresults);
    return interposer_leave(&call, status, "%p, %u arguments", (void *)of,
                            nargs);
}

static void host_tensor_retain(core__interposers *interposers,
                               core_tensor *tensor)
{
    interposer_call call;

    enter(&call, interposers, "tensor_retain", INTERPOSER_NEVER);
    if (!tensor)
        interposer_violation(&call, "NULL");
    else
        core__host.tensor_retain(tensor);
    interposer_leave_void(&call, "%p", (void *)tensor);
}

static core_status host_tensor_view(core__interposers *interposers,
                                    core_tensor *tensor, core_view *out_view)
{
    core_status status = CORE_ERROR_INTERNAL;
    interposer_call call;

    CORE_TRY(enter(&call, interposers, "tensor_view", INTERPOSER_HOST));
    if (!tensor || !out_view)
        interposer_violation(&call, "tensor %p, view %p", (void *)tensor,
                             (void *)out_view);
    else
        status = core__host.tensor_view(tensor, out_view);
    return interposer_leave(&call, status, "%p", (void *)tensor);
}

static core_status host_call_scratch(core__interposers *interposers,
                                     core_call *of, uint64_t size,
                                     core_memory *out_memory)
{
    core_status status = CORE_ERROR_INTERNAL;
    interposer_call call;

    *out_memory = (core_memory){0};
    CORE_TRY(enter(&call, interposers, "call_scratch", INTERPOSER_HOST));
    if (!interposer_runs(of) && interposer_validates(interposers))
        interposer_violation(
            &call,
            "requests scratch memory for a call (%p) that is not "
            "running in this thread",
            (void *)of);
    if (!call.violated)
        status = core__host.call_scratch(of, size, out_memory);
    return interposer_leave(&call, status, "%llu -> %p",
                            (unsigned long long)size, out_memory->handle);
}

/* A stream that is private to the plugin is unknown here. */
static void check_stream(interposer_call *call, const void *stream)
{
    if (!stream && interposer_validates(call->interposers))
        interposer_violation(call, "names a NULL stream");
}

static core_status host_call_record_stream(core__interposers *interposers,
                                           core_call *of, void *stream)
{
    core_status status = CORE_ERROR_INTERNAL;
    interposer_call call;

    CORE_TRY(enter(&call, interposers, "call_record_stream", INTERPOSER_HOST));
    if (!interposer_runs(of) && interposer_validates(interposers))
        interposer_violation(
            &call,
            "names a stream for a call (%p) that is not running in this thread",
            (void *)of);
    check_stream(&call, stream);
    interposer_names_stream = true;
    if (!call.violated)
        status = core__host.call_record_stream(of, stream);
    interposer_names_stream = false;
    return interposer_leave(&call, status, "stream %p", stream);
}

static core_status host_tensor_record_stream(core__interposers *interposers,
                                             core_tensor *tensor, void *stream)
{
    core_status status = CORE_ERROR_INTERNAL;
    interposer_call call;

    CORE_TRY(
        enter(&call, interposers, "tensor_record_stream", INTERPOSER_HOST));
    check_stream(&call, stream);
    interposer_names_stream = true;
    if (!call.violated)
        status = core__host.tensor_record_stream(tensor, stream);
    interposer_names_stream = false;
    return interposer_leave(&call, status, "%p, stream %p", (void *)tensor,
                            stream);
}

static core_status host_call_allocate_result(core__interposers *interposers,
                                             core_call *of, uint32_t index,
                                             core_dtype dtype, uint32_t ndim,
                                             const int64_t *sizes,
                                             const core_view **out_view)
{
    core_status status = CORE_ERROR_INTERNAL;
    interposer_call call;

    *out_view = NULL;
    CORE_TRY(
        enter(&call, interposers, "call_allocate_result", INTERPOSER_HOST));
    if (!interposer_runs(of) && interposer_validates(interposers))
        interposer_violation(
            &call,
            "requests a result of a call (%p) that is not running in "
            "this thread",
            (void *)of);
    if (ndim > (uint32_t)CORE_MAX_NDIM || (ndim > 0 && !sizes))
        interposer_violation(
            &call, "requests a result of %u dimensions with sizes at %p", ndim,
            (const void *)sizes);
    if (!call.violated)
        status = core__host.call_allocate_result(of, index, dtype, ndim, sizes,
                                                 out_view);
    return interposer_leave(&call, status, "%u, dtype %u, %u dimensions", index,
                            dtype, ndim);
}

static core_status host_call_copy(core__interposers *interposers,
                                  const core_call *of, const core_value *args,
                                  uint32_t nargs, const core_value *results,
                                  uint32_t nresults, core_call **out_call,
                                  const core_value **out_args,
                                  core_value **out_results)
{
    core_status status = CORE_ERROR_INTERNAL;
    interposer_call call;

    *out_call = NULL;
    CORE_TRY(enter(&call, interposers, "call_copy", INTERPOSER_HOST));
    if (!interposer_runs(of) && interposer_validates(interposers))
        interposer_violation(
            &call, "copies a call (%p) that is not running in this thread",
            (const void *)of);
    if (!call.violated)
        status = core__host.call_copy(of, args, nargs, results, nresults,
                                      out_call, out_args, out_results);
    if (status == CORE_OK)
        interposer_created(&call, INTERPOSER_CALL_OBJECT, NULL, *out_call, 0,
                           0);
    return interposer_leave(&call, status, "%p -> %p", (const void *)of,
                            (void *)*out_call);
}

static void host_call_drop(core__interposers *interposers, core_call *of)
{
    interposer_call call;

    enter(&call, interposers, "call_drop", INTERPOSER_NEVER);
    if (interposer_destroys(&call, INTERPOSER_CALL_OBJECT, NULL, of, 0, 0))
        core__host.call_drop(of);
    interposer_leave_void(&call, "%p", (void *)of);
}

static core_status host_devices_changed(core__interposers *interposers,
                                        core_string type)
{
    core_status status = CORE_ERROR_INTERNAL;
    interposer_call call;

    CORE_TRY(enter(&call, interposers, "devices_changed", INTERPOSER_HOST));
    if (!type.data || type.size > TEXT_MAX)
        interposer_violation(&call, "names a device type of %llu bytes at %p",
                             (unsigned long long)type.size,
                             (const void *)type.data);
    if (!call.violated)
        status = core__host.devices_changed(type);
    return interposer_leave(&call, status, "%.*s",
                            call.violated     ? 0
                            : type.size < 128 ? (int)type.size
                                              : 128,
                            type.data ? type.data : "");
}

static core_status host_call_view_content(core__interposers *interposers,
                                          const core_call *of,
                                          const core_view *view,
                                          core_view_content *out_content)
{
    core_status status = CORE_ERROR_INTERNAL;
    interposer_call call;

    CORE_TRY(enter(&call, interposers, "call_view_content", INTERPOSER_HOST));
    if (!interposer_runs(of) && interposer_validates(interposers))
        interposer_violation(&call,
                             "asks for the content of a view of a call (%p) "
                             "that is not running in this thread",
                             (const void *)of);
    if (!view || !out_content)
        interposer_violation(&call, "view %p, content %p", (const void *)view,
                             (void *)out_content);
    if (!call.violated)
        status = core__host.call_view_content(of, view, out_content);
    return interposer_leave(&call, status, "view %p", (const void *)view);
}

/* --------------------------------------------------------------- shims -- */

#define SET(n)                                                                 \
    static core_status error_##n(const core_error_info *info)                  \
    {                                                                          \
        return host_error(interposers_of_set[n], info);                        \
    }                                                                          \
    static core_status find_##n(core_string name, core_operator **out)         \
    {                                                                          \
        return host_operator_find(interposers_of_set[n], name, out);           \
    }                                                                          \
    static core_status call_##n(core_operator *op, const core_value *args,     \
                                uint32_t nargs, core_value *results,           \
                                uint32_t nresults)                             \
    {                                                                          \
        return host_operator_call(interposers_of_set[n], op, args, nargs,      \
                                  results, nresults);                          \
    }                                                                          \
    static core_status redispatch_##n(core_call *of, uint64_t keys,            \
                                      const core_value *args, uint32_t nargs,  \
                                      core_value *results, uint32_t nresults)  \
    {                                                                          \
        return host_redispatch(interposers_of_set[n], of, keys, args, nargs,   \
                               results, nresults);                             \
    }                                                                          \
    static void retain_##n(core_tensor *tensor)                                \
    {                                                                          \
        host_tensor_retain(interposers_of_set[n], tensor);                     \
    }                                                                          \
    static core_status view_##n(core_tensor *tensor, core_view *out)           \
    {                                                                          \
        return host_tensor_view(interposers_of_set[n], tensor, out);           \
    }                                                                          \
    static core_status scratch_##n(core_call *of, uint64_t size,               \
                                   core_memory *out)                           \
    {                                                                          \
        return host_call_scratch(interposers_of_set[n], of, size, out);        \
    }                                                                          \
    static core_status result_##n(core_call *of, uint32_t index,               \
                                  core_dtype dtype, uint32_t ndim,             \
                                  const int64_t *sizes, const core_view **out) \
    {                                                                          \
        return host_call_allocate_result(interposers_of_set[n], of, index,     \
                                         dtype, ndim, sizes, out);             \
    }                                                                          \
    static core_status copy_##n(                                               \
        const core_call *of, const core_value *args, uint32_t nargs,           \
        const core_value *results, uint32_t nresults, core_call **out_call,    \
        const core_value **out_args, core_value **out_results)                 \
    {                                                                          \
        return host_call_copy(interposers_of_set[n], of, args, nargs, results, \
                              nresults, out_call, out_args, out_results);      \
    }                                                                          \
    static void drop_##n(core_call *of)                                        \
    {                                                                          \
        host_call_drop(interposers_of_set[n], of);                             \
    }                                                                          \
    static core_status use_##n(core_call *of, void *stream)                    \
    {                                                                          \
        return host_call_record_stream(interposers_of_set[n], of, stream);     \
    }                                                                          \
    static core_status use_of_##n(core_tensor *tensor, void *stream)           \
    {                                                                          \
        return host_tensor_record_stream(interposers_of_set[n], tensor,        \
                                         stream);                              \
    }                                                                          \
    static core_status changed_##n(core_string type)                           \
    {                                                                          \
        return host_devices_changed(interposers_of_set[n], type);              \
    }                                                                          \
    static core_status content_##n(const core_call *of, const core_view *view, \
                                   core_view_content *out)                     \
    {                                                                          \
        return host_call_view_content(interposers_of_set[n], of, view, out);   \
    }                                                                          \
    static core_status displaced_##n(core_call *of, const core_value *args,    \
                                     uint32_t nargs, core_value *results,      \
                                     uint32_t nresults)                        \
    {                                                                          \
        return host_redispatch_from(interposers_of_set[n],                     \
                                    "redispatch_displaced",                    \
                                    core__host.redispatch_displaced, of, args, \
                                    nargs, results, nresults);                 \
    }                                                                          \
    static core_status below_##n(core_call *of, const core_value *args,        \
                                 uint32_t nargs, core_value *results,          \
                                 uint32_t nresults)                            \
    {                                                                          \
        return host_redispatch_from(interposers_of_set[n], "redispatch_below", \
                                    core__host.redispatch_below, of, args,     \
                                    nargs, results, nresults);                 \
    }

SET(0)
SET(1)
SET(2)
SET(3)
SET(4)
SET(5)
SET(6)
SET(7)

#define ROW(n)                                                               \
    {                                                                        \
        .error = error_##n, .operator_find = find_##n,                       \
        .operator_call = call_##n, .redispatch = redispatch_##n,             \
        .tensor_retain = retain_##n, .tensor_view = view_##n,                \
        .call_scratch = scratch_##n, .call_allocate_result = result_##n,     \
        .call_copy = copy_##n, .call_drop = drop_##n,                        \
        .call_record_stream = use_##n, .tensor_record_stream = use_of_##n,   \
        .devices_changed = changed_##n, .call_view_content = content_##n,    \
        .redispatch_displaced = displaced_##n, .redispatch_below = below_##n \
    }

static const core_host sets[SETS] = {ROW(0), ROW(1), ROW(2), ROW(3),
                                     ROW(4), ROW(5), ROW(6), ROW(7)};

/* A set that serves a plugin serves it again when it is reloaded, but never
 * another plugin, because a closed plugin may have left a thread that calls
 * it. */
static uint32_t take_set(core__interposers *interposers)
{
    uint32_t n = 0;

    while (n < SETS && atomic_load(&interposers_of_set[n]) &&
           !(interposers_of_set[n]->ended &&
             strcmp(interposers_of_set[n]->plugin, interposers->plugin) == 0))
        n++;
    if (n < SETS) {
        core__interposers *old =
            atomic_exchange(&interposers_of_set[n], interposers);

        if (old)
            core__reclaim(&old->retired, old);
        interposers->lasting = true;
    }
    return n;
}

/* Plugins are opened one at a time. */
void core__interposers_host(core__interposers *interposers, core_host *host)
{
    uint32_t n = take_set(interposers);

    interposers->minor = host->abi_minor;
    if (n == SETS) {
        core__log(CORE_LOG_WARNING, "interpose",
                  "%s: its calls into libcore are not interposed; those of at "
                  "most %d plugins are",
                  interposers->plugin, SETS);
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
    if (interposers->minor < 4)
        return; /* its table ends before the others */
    host->call_record_stream = sets[n].call_record_stream;
    host->tensor_record_stream = sets[n].tensor_record_stream;
    if (interposers->minor < 6)
        return;
    host->devices_changed = sets[n].devices_changed;
    host->call_view_content = sets[n].call_view_content;
    host->redispatch_displaced = sets[n].redispatch_displaced;
    host->redispatch_below = sets[n].redispatch_below;
}
