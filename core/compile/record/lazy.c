/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Lazy regions: their begin and end, cuts, and calls that cannot be recorded. */

#include "compile/record/lazy.h"

#include "autocast/autocast.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "compile/record/segment.h"
#include "dispatch/dispatch.h"

#include <string.h>

static const char *const needs_content =
    "it needs the content of tensors, or depends on earlier calls";

/* --------------------------------------------------------------- tensors -- */

void core__lazy_note(core_tensor *tensor)
{
    const core__traced_storage *traced = tensor->storage->context;
    core__trace *trace = core__thread_self()->trace;

    if (!trace || traced->trace != trace || !trace->lazy)
        return;
    core__tensor_retain(tensor);
    tensor->held = trace->lazy->tensors;
    trace->lazy->tensors = tensor;
}

/* Releases the tensors that only the list has.  True if there were some, which
 * may have been the last to refer to others. */
static bool drop_unused_once(core__lazy *lazy)
{
    core_tensor **at = &lazy->tensors;
    bool any = false;

    while (*at) {
        core_tensor *tensor = *at;

        if (atomic_load(&tensor->references) > 1) {
            at = &tensor->held;
            continue;
        }
        *at = tensor->held;
        core__tensor_release(tensor);
        any = true;
    }
    return any;
}

static void drop_unused(core__lazy *lazy)
{
    while (drop_unused_once(lazy))
        ;
}

/* Empties the list.  Tensors that have content now are ordinary ones. */
static void settle_tensors(core__lazy *lazy)
{
    while (lazy->tensors) {
        core_tensor *tensor = lazy->tensors;

        lazy->tensors = tensor->held;
        if (!tensor->storage || !core__traced_is_pending(tensor->storage)) {
            tensor->flags &= (uint16_t)~CORE__TENSOR_TRACED;
            tensor->keys &= ~CORE__KEYS_TRACED;
        }
        core__tensor_release(tensor);
    }
}

/* ------------------------------------------------------------------ cuts -- */

static void stop(core__thread *self)
{
    self->lazy = NULL;
    self->trace = NULL;
    self->included &= (uint32_t)~CORE__KEYS_TRACED;
}

static void start(core__thread *self, core__lazy *lazy)
{
    self->lazy = lazy;
    self->trace = &lazy->trace;
    self->included |= (uint32_t)CORE__KEYS_TRACED;
}

/* Runs the segment and begins another one. */
static core_status run_segment(core__thread *self, core__lazy *lazy,
                               const char *by, const char *reason)
{
    core__trace *trace = &lazy->trace;
    core_status status;

    drop_unused(lazy);
    status = core__segment_run(trace, lazy->options.codegen, by, reason);
    if (status != CORE_OK) {
        /* Casts without content. */
        core__autocast_cache_clear(self);
        for (uint32_t i = 0; i < trace->nstorages; i++)
            trace->storages[i]->failed = true;
    }
    settle_tensors(lazy);
    core__traced_end(trace);
    core_program_release(trace->program);
    trace->program = NULL;
    lazy->device = NULL;
    lazy->calls = 0;
    return status;
}

static core_status cut(core__thread *self, core__lazy *lazy, const char *by,
                       const char *reason)
{
    core_error *deferred = lazy->deferred;
    core_status status = CORE_OK;

    lazy->deferred = NULL;
    lazy->paused = lazy->depth;
    if (lazy->trace.program) {
        stop(self);
        status = run_segment(self, lazy, by, reason);
        start(self, lazy);
    }
    if (status != CORE_OK || !deferred) {
        core_error_release(deferred);
        return status;
    }
    return core_error_raise(deferred);
}

core_status core__lazy_cut(core__thread *self, const char *name)
{
    return cut(self, self->lazy, name, needs_content);
}

void core__lazy_cut_later(core__thread *self, const char *name)
{
    core__error_record saved;

    if (!self->lazy->trace.program)
        return;
    core__error_save(&saved);
    if (core__lazy_cut(self, name) != CORE_OK)
        core_error_detach(&self->lazy->deferred);
    core__error_restore(&saved);
}

core_status core__lazy_enter(core__lazy *lazy)
{
    core__thread *self = core__thread_self();

    if (core__unlikely(lazy->calls >= lazy->options.limit))
        CORE_TRY(cut(self, lazy, "the limit of calls",
                     "the segment has as many calls as it may have"));
    lazy->calls++;
    return core__likely(lazy->trace.program != NULL)
               ? CORE_OK
               : core__program_new(&lazy->trace.program);
}

/* The thread's message without the operator's name. */
static void take_reason(const core_operator *op, char *reason, size_t size)
{
    const char *message = core_error_message();
    const char *name = core__operator_name(op);
    size_t length = strlen(name);

    if (strncmp(message, name, length) == 0 &&
        strncmp(message + length, ": ", 2) == 0)
        message += length + 2;
    core__format(reason, size, "%s", message);
}

core_status core__lazy_call(core_call *call, const core_value *args,
                            uint32_t nargs, core_value *results,
                            uint32_t nresults)
{
    core__thread *self = core__thread_self();
    core__lazy *lazy = self->lazy;
    core_status status;
    char reason[160];

    take_reason(call->op, reason, sizeof reason);
    core_error_clear();
    CORE_TRY(cut(self, lazy, core__operator_name(call->op), reason));
    /* After a cut only tensors of a segment that failed have no content, and
     * those of other threads. */
    CORE_TRY(core__trace_check_content(call->op, args, nargs));
    core__segments_note_call();
    stop(self);
    status = core__redispatch(
        call->op, core__keys_below(call->keys, CORE__FUNCTIONALITY_RECORD),
        args, nargs, results, nresults);
    start(self, lazy);
    return status;
}

/* --------------------------------------------------------- begin and end -- */

static core_status read_options(const core_lazy_options *given,
                                core_lazy_options *out)
{
    *out = (core_lazy_options){.struct_size = sizeof *out,
                               .limit = CORE_LAZY_LIMIT};
    if (!given)
        return CORE_OK;
    if (given->struct_size <= sizeof given->struct_size)
        return core__error_struct_size("core_lazy_begin", "core_lazy_options",
                                       given->struct_size, sizeof *given);
    *out = (core_lazy_options){0};
    memcpy(out, given,
           given->struct_size < sizeof *out ? given->struct_size : sizeof *out);
    if (out->flags)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_lazy_begin: options.flags is %u; it must be 0",
                           out->flags);
    if (out->codegen > CORE_COMPILE_CODEGEN_ON)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_lazy_begin: options.codegen is %u, which is "
                           "not one of the values in compiled.h",
                           out->codegen);
    if (!out->limit)
        out->limit = CORE_LAZY_LIMIT;
    return CORE_OK;
}

static void init_trace(core__lazy *lazy)
{
    pthread_mutexattr_t recursive;

    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lazy->trace.lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
    lazy->trace.lazy = lazy;
}

core_status core_lazy_begin(const core_lazy_options *options)
{
    core__thread *self = core__thread_self();
    core_lazy_options taken;
    core__lazy *lazy;

    CORE_TRY(read_options(options, &taken));
    if (self->lazy_open) {
        self->lazy_open->depth++;
        return CORE_OK;
    }
    lazy = core__alloc_zero(sizeof *lazy);
    if (!lazy || self->shared) {
        core__free(lazy);
        return core__error_memory(sizeof *lazy);
    }
    lazy->options = taken;
    lazy->depth = 1;
    lazy->inert = self->trace != NULL;
    init_trace(lazy);
    self->lazy_open = lazy;
    if (!lazy->inert) {
        core__segments_note_region();
        start(self, lazy);
    }
    return CORE_OK;
}

static core_status end(core__thread *self, const char *name)
{
    core__lazy *lazy = self->lazy_open;
    core_status status = CORE_OK;

    if (!lazy->inert) {
        status = cut(self, lazy, name, needs_content);
        stop(self);
    }
    self->lazy_open = NULL;
    pthread_mutex_destroy(&lazy->trace.lock);
    core__free(lazy);
    return status;
}

core_status core_lazy_end(void)
{
    core__thread *self = core__thread_self();
    core__lazy *lazy = self->lazy_open;

    if (!lazy)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_lazy_end: the calling thread has not begun a "
                           "lazy region");
    if (!lazy->inert && !self->lazy && lazy->depth <= lazy->paused)
        return core__error(CORE_ERROR_REFUSED,
                           "core_lazy_end: the lazy region was begun outside "
                           "of the function that is running, which cannot end "
                           "it");
    if (lazy->depth > 1) {
        lazy->depth--;
        return CORE_OK;
    }
    return end(self, __func__);
}

core_status core_lazy_sync(void)
{
    return core__thread_cut(__func__);
}

void core__lazy_thread_end(core__thread *self)
{
    if (!self->lazy_open)
        return;
    if (self->lazy_open->inert || !self->lazy)
        self->lazy_open->inert = true;
    else
        core__log(CORE_LOG_WARNING, "compile",
                  "a thread ended without core_lazy_end, so its region ends");
    if (end(self, "the end of the thread") != CORE_OK)
        core__log(CORE_LOG_ERROR, "compile",
                  "the last segment of a thread that ended failed: %s",
                  core_error_message());
}
