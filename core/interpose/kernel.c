/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Wrappers of a plugin's kernels and functions. */

#include "base/memory.h"
#include "dispatch/dispatch.h"
#include "interpose/interposer.h"
#include "tensor/dtype.h"

#include <libcore/tensor.h>

#include <stdio.h>
#include <string.h>

/* -------------------------------------------------------------- checks -- */

/* First and last byte of a window, relative to its element (0, …, 0). */
static bool extent(uint32_t ndim, const int64_t *sizes, const int64_t *strides,
                   int64_t unit, int64_t item, int64_t *low, int64_t *high)
{
    *low = 0;
    *high = item;
    for (uint32_t i = 0; i < ndim; i++) {
        int64_t reach;

        if (sizes[i] == 0)
            return false;
        if (__builtin_mul_overflow(sizes[i] - 1, strides[i] * unit, &reach))
            continue;
        if (reach < 0)
            *low += reach;
        else
            *high += reach;
    }
    return true;
}

static void check_window(interposer_call *call, const interposer_device *device,
                         core_memory memory, int64_t low, int64_t high)
{
    if (low < 0 && (uint64_t)-low > memory.offset) {
        interposer_violation(call,
                             "libcore: a window begins %lld bytes before its "
                             "memory",
                             (long long)-low);
        return;
    }
    memory.offset += (uint64_t)low;
    interposer_uses_memory(call, device, memory, (uint64_t)(high - low));
}

static void check_view(interposer_call *call, const interposer_device *device,
                       const core_view *view)
{
    int64_t low, high;

    if (!view)
        return;
    if (view->ndim > (uint32_t)CORE_MAX_NDIM ||
        view->dtype >= (core_dtype)CORE_DTYPE_LIMIT) {
        interposer_violation(call,
                             "libcore: a view of %u dimensions and dtype %u",
                             view->ndim, view->dtype);
        return;
    }
    if (extent(view->ndim, view->sizes, view->strides,
               core__dtype_size(view->dtype), core__dtype_size(view->dtype),
               &low, &high))
        check_window(call, device, view->memory, low, high);
}

static void check_values(interposer_call *call, const interposer_device *device,
                         const core_value *values, uint32_t count)
{
    if (count > 0 && !values) {
        interposer_violation(call, "libcore: %u values at NULL", count);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (values[i].tag > CORE_VALUE_VALUE_LIST)
            interposer_violation(call, "libcore: a value with the tag %u",
                                 values[i].tag);
        else if (values[i].tag == CORE_VALUE_VIEW)
            check_view(call, device, values[i].u.view);
        else if (values[i].tag == CORE_VALUE_VIEW_LIST)
            for (uint32_t j = 0; j < values[i].count; j++)
                check_view(call, device, values[i].u.views[j]);
    }
}

void interposer_check_loop(interposer_call *call,
                           const interposer_device *device,
                           const core_loop *loop)
{
    int64_t low, high;

    if (!loop || loop->numel == 0)
        return;
    for (uint32_t i = 0; i < loop->noperands; i++) {
        const core_operand *o = &loop->operands[i];

        if (!(o->flags & CORE_OPERAND_IMMEDIATE) &&
            extent(loop->ndim, loop->sizes, o->strides, 1,
                   core__dtype_size(o->dtype), &low, &high))
            check_window(call, device, o->memory, low, high);
    }
}

/* Host functions accept a call only while it runs. */
static _Thread_local const core_call *running[8];
static _Thread_local uint32_t depth;

static void run_begin(const core_call *call)
{
    if (depth < sizeof running / sizeof *running)
        running[depth] = call;
    depth++;
}

static void run_end(void)
{
    depth--;
}

bool interposer_runs(const core_call *call)
{
    if (depth > sizeof running / sizeof *running)
        return true;
    for (uint32_t i = 0; i < depth; i++)
        if (running[i] == call)
            return true;
    return false;
}

/* ------------------------------------------------------------- kernels -- */

/* The call with the plugin's own handles. */
static core_call own_call(const interposer_kernel *kernel,
                          const core_call *call, interposer_device **out_device)
{
    core_call own = *call;

    own.user = kernel->real.user;
    own.device = interposer_device_handle(kernel->backend->interposers,
                                          call->device, out_device);
    return own;
}

/* Replaces the handles in place while the kernel runs: the call must stay the
 * same object, because a plugin that lends kernels finds it by its address. */
typedef struct handles {
    void *user, *device, *plan;
} handles;

static handles handles_replace(const interposer_kernel *kernel, core_call *call,
                               interposer_device **out_device)
{
    handles saved = {call->user, call->device, call->plan};

    call->user = kernel->real.user;
    call->device = interposer_device_handle(kernel->backend->interposers,
                                            call->device, out_device);
    if (kernel->real.prepare && call->plan)
        call->plan = ((interposer_plan *)call->plan)->plan;
    return saved;
}

static void handles_restore(core_call *call, handles saved)
{
    call->user = saved.user;
    call->device = saved.device;
    call->plan = saved.plan;
}

static const char *name_of(const interposer_kernel *kernel)
{
    return kernel->real.name.data;
}

static void check_call(interposer_call *c, const interposer_device *device,
                       const core_call *call, const core_value *args,
                       uint32_t nargs, const core_value *results,
                       uint32_t nresults)
{
    /* If another backend borrowed the kernel, its memory is unknown. */
    if (!device || !interposer_validates(c->interposers))
        return;
    if (device->backend->real.streams)
        interposer_uses(c, INTERPOSER_STREAM_OBJECT, device, call->stream,
                        true);
    if (device->backend->real.streams &&
        interposer_is_capturing(c->interposers, device, call->stream) !=
            ((call->flags & CORE_CALL_CAPTURING) != 0))
        interposer_violation(
            c, "libcore: the flag CAPTURING is %s, but the stream %s",
            call->flags & CORE_CALL_CAPTURING ? "set" : "not set",
            call->flags & CORE_CALL_CAPTURING ? "is not capturing"
                                              : "is capturing");
    interposer_check_loop(c, device, call->loop);
    check_values(c, device, args, nargs);
    check_values(c, device, results, nresults);
}

enum { RESULTS_KEPT = 16 };

/* A kernel writes memory, not the values that describe it; a kernel that
 * allocates its results uses the host for that. */
static void check_results(interposer_call *c, const core_value *before,
                          const core_value *after, uint32_t count)
{
    if (!interposer_validates(c->interposers))
        return;
    for (uint32_t i = 0; i < count && i < RESULTS_KEPT; i++)
        if (memcmp(&before[i], &after[i], sizeof *before) != 0)
            interposer_violation(
                c, "changes the value of result %u, which describes memory", i);
}

static core_status launch(core_call *call, const core_value *args,
                          uint32_t nargs, core_value *results,
                          uint32_t nresults)
{
    interposer_kernel *kernel = call->user;
    core_value before[RESULTS_KEPT] = {{0}};
    core_status status = CORE_ERROR_INTERNAL;
    interposer_device *device;
    interposer_call c;
    handles saved;

    CORE_TRY(interposer_enter(&c, kernel->backend->interposers,
                              kernel->backend->type, name_of(kernel),
                              INTERPOSER_LAUNCH));
    saved = handles_replace(kernel, call, &device);
    check_call(&c, device, call, args, nargs, results, nresults);
    if (nresults > 0 && results)
        memcpy(before, results,
               (nresults < RESULTS_KEPT ? nresults : RESULTS_KEPT) *
                   sizeof *results);
    if (!c.violated) {
        run_begin(call);
        status = kernel->real.launch(call, args, nargs, results, nresults);
        run_end();
        check_results(&c, before, results, results ? nresults : 0);
    }
    status =
        interposer_leave(&c, status, "%p, stream %p, %u arguments, %u results",
                         call->device, call->stream, nargs, nresults);
    handles_restore(call, saved);
    return status;
}

static core_status supports(const core_call *call, const core_value *args,
                            uint32_t nargs)
{
    interposer_kernel *kernel = call->user;
    interposer_device *device;
    core_call own = own_call(kernel, call, &device);
    core_status status, again;
    interposer_call c;
    char slot[96];

    snprintf(slot, sizeof slot, "%s.supports", name_of(kernel));
    CORE_TRY(interposer_enter(&c, kernel->backend->interposers,
                              kernel->backend->type, slot, INTERPOSER_NEVER));
    status = kernel->real.supports(&own, args, nargs);
    if (interposer_validates(c.interposers)) {
        again = kernel->real.supports(&own, args, nargs);
        if (again != status)
            interposer_violation(
                &c, "returns %s and then %s for the same query",
                core_status_name(status), core_status_name(again));
    }
    return interposer_leave(&c, status, "%u arguments", nargs);
}

static core_status prepare(core_call *call, const core_value *args,
                           uint32_t nargs, const core_value *results,
                           uint32_t nresults, void **out_plan)
{
    interposer_kernel *kernel = call->user;
    interposer_plan *plan = core__alloc_zero(sizeof *plan);
    core_status status;
    interposer_device *device;
    interposer_call c;
    char slot[96];
    handles saved;

    *out_plan = NULL;
    if (!plan)
        return core__error_memory(sizeof *plan);
    snprintf(slot, sizeof slot, "%s.prepare", name_of(kernel));
    status = interposer_enter(&c, kernel->backend->interposers,
                              kernel->backend->type, slot, INTERPOSER_PREPARE);
    if (status == CORE_OK) {
        call->plan = NULL;
        saved = handles_replace(kernel, call, &device);
        run_begin(call);
        status = kernel->real.prepare(call, args, nargs, results, nresults,
                                      &plan->plan);
        run_end();
        plan->kernel = kernel;
        status = interposer_leave(&c, status, "%p -> plan %p", call->device,
                                  plan->plan);
        handles_restore(call, saved);
    }
    if (status == CORE_OK)
        *out_plan = plan;
    else
        core__free(plan);
    return status;
}

static void plan_destroy(void *handle)
{
    interposer_plan *plan = handle;
    interposer_call c;
    char slot[96];

    if (!plan)
        return;
    snprintf(slot, sizeof slot, "%s.plan_destroy", name_of(plan->kernel));
    interposer_enter(&c, plan->kernel->backend->interposers,
                     plan->kernel->backend->type, slot, INTERPOSER_NEVER);
    if (plan->kernel->real.plan_destroy)
        plan->kernel->real.plan_destroy(plan->plan);
    interposer_leave_void(&c, "plan %p", plan->plan);
    core__free(plan);
}

static interposer_backend *backend_of(core__interposers *interposers,
                                      core_string type)
{
    interposer_backend *backend = interposers->backends;

    while (backend && (strlen(backend->type) != type.size ||
                       memcmp(backend->type, type.data, type.size) != 0))
        backend = backend->next;
    return backend;
}

core_status core__interposers_kernel(core__interposers *interposers,
                                     core_string device_type,
                                     const core_kernel *kernel,
                                     const core_kernel **out_kernel)
{
    interposer_backend *backend = backend_of(interposers, device_type);
    interposer_kernel *wrapper;
    size_t size = kernel->struct_size;
    char *name;

    *out_kernel = kernel;
    if (!backend || size < offsetof(core_kernel, supports) || !kernel->launch)
        return CORE_OK; /* rejected at registration */
    wrapper = core__alloc_zero(sizeof *wrapper + kernel->name.size + 1);
    if (!wrapper)
        return core__error_memory(sizeof *wrapper);
    name = (char *)(wrapper + 1);
    wrapper->backend = backend;
    memcpy(&wrapper->real, kernel,
           size < sizeof *kernel ? size : sizeof *kernel);
    wrapper->real.struct_size = sizeof wrapper->real;
    memcpy(name, kernel->name.data, kernel->name.size);
    wrapper->real.name.data = name;
    wrapper->wrapped = wrapper->real;
    wrapper->wrapped.user = wrapper;
    wrapper->wrapped.launch = launch;
    if (wrapper->real.supports)
        wrapper->wrapped.supports = supports;
    if (wrapper->real.prepare) {
        wrapper->wrapped.prepare = prepare;
        wrapper->wrapped.plan_destroy = plan_destroy;
    }
    wrapper->next = interposers->kernels;
    interposers->kernels = wrapper;
    *out_kernel = &wrapper->wrapped;
    return CORE_OK;
}

/* ----------------------------------------------------------- functions -- */

static core_status function(core_call *call, const core_value *args,
                            uint32_t nargs, core_value *results,
                            uint32_t nresults)
{
    interposer_function *f = call->user;
    core_call own; /* the given one is shared */
    core_status status;
    interposer_call c;

    CORE_TRY(
        interposer_enter(&c, f->interposers, "", f->name, INTERPOSER_FUNCTION));
    if (interposer_validates(f->interposers)) {
        for (uint32_t i = 0; i < nresults; i++)
            if (results[i].tag != CORE_VALUE_NONE)
                interposer_violation(
                    &c, "libcore: result %u is not NONE before the call", i);
        check_values(&c, NULL, args, nargs);
    }
    memcpy(&own, call, CORE__FUNCTION_CALL_SIZE);
    own.user = f->user;
    run_begin(&own);
    status = f->function(&own, args, nargs, results, nresults);
    run_end();
    if (interposer_validates(f->interposers))
        for (uint32_t i = 0; i < nresults; i++) {
            if (status != CORE_OK && results[i].tag != CORE_VALUE_NONE) {
                interposer_violation(
                    &c, "fails and leaves a value in result %u", i);
                results[i] = (core_value){0};
            } else if (results[i].tag == CORE_VALUE_VIEW ||
                       results[i].tag > CORE_VALUE_VALUE_LIST ||
                       (results[i].tag == CORE_VALUE_TENSOR &&
                        !results[i].u.tensor)) {
                interposer_violation(
                    &c, "leaves result %u with the tag %u%s", i, results[i].tag,
                    results[i].tag == CORE_VALUE_TENSOR ? ", NULL" : "");
                results[i] = (core_value){0};
            }
        }
    if (c.violated)
        for (uint32_t i = 0; i < nresults; i++)
            core_value_release(&results[i]);
    return interposer_leave(&c, status, "%u arguments, %u results", nargs,
                            nresults);
}

core_status core__interposers_function(core__interposers *interposers,
                                       core_string name, core_function *given,
                                       void **user)
{
    interposer_function *wrapper;

    if (!*given)
        return CORE_OK;
    wrapper = core__alloc_zero(sizeof *wrapper);
    if (!wrapper)
        return core__error_memory(sizeof *wrapper);
    wrapper->interposers = interposers;
    wrapper->function = *given;
    wrapper->user = *user;
    snprintf(wrapper->name, sizeof wrapper->name, "%.*s",
             (int)(name.size < 90 ? name.size : 90), name.data);
    wrapper->next = interposers->functions;
    interposers->functions = wrapper;
    *given = function;
    *user = wrapper;
    return CORE_OK;
}
