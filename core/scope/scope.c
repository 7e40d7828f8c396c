/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The scopes of a thread.  What all of them own is in one array, in which each
 * scope begins where the one around it has ended so far; so a scope costs no
 * allocation once the array has grown. */

#include "scope/scope.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct core__open_scope {
    uint64_t number;
    const char *where; /* it was begun */
    size_t first;      /* what it owns begins here */
    bool passes_on;    /* owns tensors for others: outputs, kept ones */
    core_status status;
    core_error *error; /* NULL without memory for it */
} open_scope;

/* NULL: a layer of the library. */
static const char *place_text(const char *where)
{
    return where ? where : "libcore";
}

static core_status __attribute__((cold))
no_scope(const char *call, const char *where)
{
    return core__error(CORE_ERROR_INVALID_ARGUMENT,
                       "%s: this thread has no open scope (at %s)", call,
                       place_text(where));
}

/* There was no memory to begin the outermost scope of this thread. */
static _Thread_local bool begin_failed;

/* The number of a scope that there was no memory to begin. */
#define NO_MEMORY UINT64_MAX

static core_scope __attribute__((cold)) without_memory(void)
{
    return (core_scope){NULL, NO_MEMORY};
}

static core_status __attribute__((cold)) not_begun(const char *call)
{
    return core__error(CORE_ERROR_OUT_OF_MEMORY,
                       "%s: there was no memory to begin the scope", call);
}

static open_scope *innermost(const core__scopes *scopes)
{
    return scopes && scopes->depth ? &scopes->open[scopes->depth - 1] : NULL;
}

bool core__scopes_is_innermost(const core__scopes *scopes, core_scope handle)
{
    return handle.thread == scopes &&
           handle.number == innermost(scopes)->number;
}

core_scope core__scopes_innermost(const core__scopes *scopes)
{
    return (core_scope){scopes, innermost(scopes)->number};
}

core__scopes *core__scopes_unready(const char *where)
{
    static atomic_flag printed = ATOMIC_FLAG_INIT;

    if (innermost(core__thread_self()->scopes))
        return NULL;
    if (begin_failed) {
        not_begun("core_scope"); /* which the end of the scope returns */
        return NULL;
    }
    no_scope("core_scope", where);
    /* No scope will return this error, and the program may never look at it. */
    if (!atomic_flag_test_and_set(&printed))
        core__log_always(CORE_LOG_ERROR, "scope",
                         "%s: calls that return what they compute do nothing "
                         "without one; begin it with core_scope_begin or "
                         "CORE_MAIN",
                         core_error_message());
    return NULL;
}

/* -------------------------------------------------------------- errors -- */

static void __attribute__((cold))
set_error(core__scopes *scopes, core_status status)
{
    open_scope *scope = innermost(scopes);

    if (scope->status != CORE_OK)
        return;
    scope->status = status;
    scope->error = core__error_copy();
    scopes->ready = false;
}

void core__scopes_fail(core__scopes *scopes, const char *where,
                       core_status status)
{
    if (where)
        core__error_suffix(" (at %s)", where);
    if (innermost(scopes))
        set_error(scopes, status);
}

/* Makes the error of an ended scope the thread's record. */
static core_status __attribute__((noinline)) raise(const open_scope *scope)
{
    if (scope->status == CORE_OK)
        return CORE_OK;
    if (scope->error)
        return core_error_raise(scope->error);
    if (core_error_code() == scope->status)
        return scope->status;
    return core__error(scope->status, "core_scope: a call failed, and there "
                                      "was no memory for its message");
}

/* ----------------------------------------------------------- ownership -- */

/* Returns an array with room for one more element, or NULL. */
static void *__attribute__((cold))
grown(void *array, size_t *capacity, size_t size)
{
    size_t more = *capacity ? 2 * *capacity : 16;

    array = core__realloc(array, more * size);
    if (array)
        *capacity = more;
    else
        core__error_memory(more * size);
    return array;
}

static core__owned *__attribute__((noinline))
add(core__scopes *scopes, const char *where, core__owned_kind kind,
    void *object)
{
    core__owned *row;

    if (core__unlikely(!scopes->ready))
        return NULL; /* the call has ended the scope that it was made in */
    if (core__unlikely(scopes->count == scopes->capacity)) {
        row = grown(scopes->owned, &scopes->capacity, sizeof *row);
        if (!row) {
            core__scopes_fail(scopes, where, CORE_ERROR_OUT_OF_MEMORY);
            return NULL;
        }
        scopes->owned = row;
    }
    row = &scopes->owned[scopes->count++];
    row->kind = kind;
    row->object = object;
    if (kind >= CORE__OWNED_OUTPUT)
        innermost(scopes)->passes_on = true;
    return row;
}

core_tensor *core__scopes_own_slow(core__scopes *scopes, const char *where,
                                   core_tensor *tensor)
{
    if (add(scopes, where, CORE__OWNED_TENSOR, tensor))
        return tensor;
    core_tensor_release(tensor);
    return NULL;
}

bool core__scopes_own_list(core__scopes *scopes, const char *where,
                           core_tensor **tensors, size_t count)
{
    core__owned *row = add(scopes, where, CORE__OWNED_LIST, tensors);

    if (row)
        row->count = count;
    else
        core_tensors_release(tensors, count);
    return row;
}

/* Moves kept tensors to the front, and returns where the others begin, whose order
 * stays. */
static size_t keep_kept(core__scopes *scopes, size_t first)
{
    size_t next = first;

    for (size_t i = first; i < scopes->count; i++) {
        core__owned row = scopes->owned[i];

        if (row.kind != CORE__OWNED_KEPT)
            continue;
        row.kind = CORE__OWNED_TENSOR;
        memmove(&scopes->owned[next + 1], &scopes->owned[next],
                (i - next) * sizeof row);
        scopes->owned[next++] = row;
    }
    return next;
}

/* Whether a later row has the same output. */
static bool is_replaced(const core__scopes *scopes, size_t at)
{
    const core__owned *rows = scopes->owned;

    for (size_t i = at + 1; i < scopes->count; i++)
        if (rows[i].kind == CORE__OWNED_OUTPUT && rows[i].out == rows[at].out)
            return true;
    return false;
}

/* Hands tensors to the owners of the outputs. */
static void hand_out(core__scopes *scopes, size_t first)
{
    for (size_t i = first; i < scopes->count; i++) {
        core__owned *row = &scopes->owned[i];

        if (row->kind != CORE__OWNED_OUTPUT || is_replaced(scopes, i))
            continue;
        *row->out = row->object;
        row->kind = CORE__OWNED_TENSOR;
        row->object = NULL;
    }
}

/* The function may begin scopes, which move the rows. */
static void __attribute__((noinline)) release_other(const core__owned *row)
{
    if (row->kind == CORE__OWNED_LIST)
        core_tensors_release(row->object, row->count);
    else
        row->release(row->object);
}

/* Ends the innermost scope, and returns it, with its error.  What is released
 * may call the program, which may begin and end scopes; its calls in this one fail,
 * without being this one's errors. */
static open_scope __attribute__((noinline))
close_innermost(core__scopes *scopes)
{
    open_scope *open = innermost(scopes), scope = *open;
    size_t end = scope.first;

    scopes->ready = false;
    open->status = CORE_ERROR_INVALID_ARGUMENT;
    open->error = NULL;
    if (scope.passes_on)
        end = keep_kept(scopes, scope.first);
    if (scope.passes_on && scope.status == CORE_OK)
        hand_out(scopes, end);
    while (scopes->count > end) {
        core__owned *row = &scopes->owned[--scopes->count];

        if (core__likely(row->kind >= CORE__OWNED_TENSOR))
            core_tensor_release(row->object);
        else
            release_other(row);
    }
    scopes->depth--;
    scopes->ready = scopes->depth && innermost(scopes)->status == CORE_OK;
    return scope;
}

/* Ends a scope that its function has left open.  The function has returned, so
 * its outputs may be variables that are gone. */
static void __attribute__((cold)) close_left_open(core__scopes *scopes)
{
    if (innermost(scopes)->status == CORE_OK)
        innermost(scopes)->status = CORE_ERROR_INVALID_ARGUMENT;
    core_error_release(close_innermost(scopes).error);
}

/* ------------------------------------------------------- begin and end -- */

static core__scopes *scopes_of_thread(core__thread *self)
{
    if (!self->scopes && !self->shared)
        self->scopes = core__alloc_zero(sizeof *self->scopes);
    if (!self->scopes) {
        begin_failed = true;
        core__error_memory(sizeof *self->scopes);
    }
    return self->scopes;
}

core_scope core_scope_begin_at(const char *where)
{
    core__scopes *scopes = scopes_of_thread(core__thread_self());
    core_scope handle;
    open_scope *open;

    if (!scopes)
        return without_memory();
    open = scopes->open;
    if (scopes->depth == scopes->open_capacity) {
        open = grown(open, &scopes->open_capacity, sizeof *open);
        begin_failed = !open && !scopes->depth;
    }
    if (!open) {
        /* Calls must not go on in the scope around it. */
        if (scopes->depth)
            core__scopes_fail(scopes, where, CORE_ERROR_OUT_OF_MEMORY);
        return without_memory();
    }
    scopes->open = open;
    open += scopes->depth++;
    open->number = handle.number = ++scopes->last_number;
    open->where = where;
    open->first = scopes->count;
    open->passes_on = false;
    open->status = CORE_OK;
    open->error = NULL;
    scopes->ready = true;
    handle.thread = scopes;
    return handle;
}

/* The place of an open scope, from 1, or 0. */
static size_t __attribute__((noinline))
find(const core__scopes *scopes, core_scope handle)
{
    size_t place = 0;

    if (!scopes || handle.thread != scopes)
        return 0;
    for (size_t i = 0; i < scopes->depth; i++)
        if (scopes->open[i].number == handle.number)
            place = i + 1;
    return place;
}

/* Ends the scopes inside the one at `place`, which is an error of that one. */
static void __attribute__((cold))
close_inner(const char *call, core__scopes *scopes, size_t place)
{
    const char *where = innermost(scopes)->where;
    open_scope *scope;

    if (scopes->depth == place)
        return;
    while (scopes->depth > place)
        close_left_open(scopes);
    scope = innermost(scopes);
    core_error_release(scope->error);
    scope->error = NULL;
    scope->status = CORE_OK;
    set_error(scopes,
              core__error(CORE_ERROR_INVALID_ARGUMENT,
                          "%s: the scope begun at %s ends, but the one inside "
                          "it, begun at %s, was not ended",
                          call, place_text(scope->where), place_text(where)));
}

static core_status __attribute__((cold))
not_open(const char *call, core_scope handle)
{
    if (handle.number == NO_MEMORY) {
        begin_failed = false;
        return not_begun(call);
    }
    if (!handle.number)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: the scope was never begun: it is zero", call);
    return core__error(CORE_ERROR_INVALID_ARGUMENT,
                       "%s: the scope is not open in this thread: it was "
                       "ended before, or begun in another thread",
                       call);
}

core_status core_scope_end(core_scope scope)
{
    core__scopes *scopes = core__thread_self()->scopes;
    size_t place = find(scopes, scope);
    open_scope ended;

    if (!place)
        return not_open("core_scope_end", scope);
    close_inner("core_scope_end", scopes, place);
    ended = close_innermost(scopes);
    return raise(&ended);
}

core_status core_scope_end_with_at(const char *where, core_scope scope,
                                   core_tensor *result,
                                   core_tensor **out_result)
{
    core__scopes *scopes = core__thread_self()->scopes;
    size_t place = find(scopes, scope);

    if (out_result)
        *out_result = NULL;
    if (place)
        close_inner("core_scope_end_with", scopes, place);
    if (place && scopes->ready)
        core_scope_output_at(where, result, out_result);
    return core_scope_end(scope);
}

/* Writes what the program has printed: otherwise exit() would, and lose errors. */
static core_status __attribute__((cold)) write_output(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return CORE_OK;
    return core__error(CORE_ERROR_IO,
                       "core_scope_exit: cannot write to the standard output");
}

int __attribute__((cold)) core_scope_exit(core_scope scope)
{
    core_status status = core_scope_end(scope);

    if (status == CORE_OK)
        status = write_output();
    if (status == CORE_OK)
        return EXIT_SUCCESS;
    fprintf(stderr, "%s\n", core_error_message());
    return EXIT_FAILURE;
}

core_tensor *core_scope_return_at(const char *where, core_scope scope,
                                  core_tensor *result)
{
    core__scopes *scopes = core__thread_self()->scopes;
    size_t place = find(scopes, scope);
    open_scope ended;

    if (!place) {
        not_open("core_scope_return", scope);
        if (innermost(scopes))
            core__scopes_fail(scopes, where, core_error_code());
        return NULL;
    }
    close_inner("core_scope_return", scopes, place);
    if (scopes->ready)
        result = core_scope_keep_at(where, result);
    ended = close_innermost(scopes);
    if (raise(&ended) == CORE_OK)
        return result;
    if (innermost(scopes))
        set_error(scopes, ended.status);
    return NULL;
}

core_status core_scope_status(void)
{
    const core__scopes *scopes = core__thread_self()->scopes;

    if (core__likely(scopes && scopes->ready))
        return CORE_OK;
    return innermost(scopes) ? innermost(scopes)->status
                             : core__error(CORE_ERROR_INVALID_ARGUMENT,
                                           "core_scope_status: this thread has "
                                           "no open scope");
}

/* ------------------------------------------------------------- tensors -- */

core_tensor *core_scope_keep_at(const char *where, core_tensor *tensor)
{
    core__scopes *scopes = core__scopes_ready(where);
    core_status status = CORE_OK;

    if (!scopes)
        return NULL;
    if (!tensor)
        status = core__error_null("core_scope_keep", "tensor");
    else if (scopes->depth < 2)
        status = core__error(CORE_ERROR_INVALID_ARGUMENT,
                             "core_scope_keep: there is no scope around the "
                             "one begun at %s",
                             place_text(innermost(scopes)->where));
    if (status != CORE_OK)
        core__scopes_fail(scopes, where, status);
    else if (add(scopes, where, CORE__OWNED_KEPT, tensor))
        return core_tensor_retain(tensor);
    return NULL;
}

void core_scope_output_at(const char *where, core_tensor *tensor,
                          core_tensor **out_tensor)
{
    core__scopes *scopes = core__scopes_ready(where);
    core__owned *row;

    if (out_tensor)
        *out_tensor = NULL;
    if (!scopes)
        return;
    if (!tensor || !out_tensor) {
        core__scopes_fail(scopes, where,
                          core__error_null("core_scope_output",
                                           tensor ? "out_tensor" : "tensor"));
        return;
    }
    row = add(scopes, where, CORE__OWNED_OUTPUT, tensor);
    if (!row)
        return;
    row->out = out_tensor;
    core_tensor_retain(tensor);
}

core_tensor *core_scope_own_at(const char *where, core_status status,
                               core_tensor *const *tensor)
{
    core__scopes *scopes = core__scopes_ready(where);

    if (scopes && status == CORE_OK && tensor && *tensor)
        return core__scopes_own(scopes, where, *tensor);
    if (status == CORE_OK && tensor)
        core_tensor_release(*tensor);
    if (scopes)
        core_scope_check_at(
            where, "core_scope_own",
            status != CORE_OK
                ? status
                : core__error_null("core_scope_own",
                                   tensor ? "*tensor" : "tensor"));
    return NULL;
}

void *core_scope_own_object_at(const char *where, core_status status,
                               void *object, void (*release)(void *object))
{
    core__scopes *scopes = core__scopes_ready(where);
    core__owned *row = NULL;

    if (scopes && status == CORE_OK && release)
        row = add(scopes, where, CORE__OWNED_OBJECT, object);
    else if (scopes && status == CORE_OK)
        status = core__error_null("core_scope_own_object", "release");
    if (row) {
        row->release = release;
        return object;
    }
    if (status != CORE_OK && scopes)
        core_scope_check_at(where, "core_scope_own_object", status);
    else if (status == CORE_OK && release)
        release(object);
    return NULL;
}

/* Formats a text that the caller frees. */
static core_status __attribute__((cold))
format_text(const char *format, va_list arguments, char **out_text)
{
    va_list again;
    int size;

    *out_text = NULL;
    if (!format)
        return core__error_null("core_x_text", "format");
    va_copy(again, arguments);
    size = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (size < 0)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_x_text: cannot format \"%.80s\": %s", format,
                           strerror(errno));
    *out_text = core__alloc((size_t)size + 1);
    if (!*out_text)
        return core__error_memory((size_t)size + 1);
    (void)vsnprintf(*out_text, (size_t)size + 1, format, arguments);
    return CORE_OK;
}

const char *core_x_text_at(const char *where, const char *format, ...)
{
    core_status status;
    va_list arguments;
    char *text;

    if (!core__scopes_ready(where))
        return NULL;
    va_start(arguments, format);
    status = format_text(format, arguments, &text);
    va_end(arguments);
    return core_scope_own_object_at(where, status, text, core__free);
}

core_status core_scope_check_at(const char *where, const char *call,
                                core_status status)
{
    core__scopes *scopes = core__scopes_ready(where);

    if (status == CORE_OK || !scopes)
        return status;
    if (core_error_code() != status)
        core__error(status, "%s returned %s", call, core_status_name(status));
    core__scopes_fail(scopes, where, status);
    return status;
}

void __attribute__((cold)) core__scopes_thread_end(core__thread *self)
{
    core__scopes *scopes = self->scopes;

    if (!scopes)
        return;
    while (scopes->depth)
        close_left_open(scopes);
    self->scopes = NULL;
    core__free(scopes->owned);
    core__free(scopes->open);
    core__free(scopes);
}
