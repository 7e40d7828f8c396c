/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* dispatch.h: calling an operator. */

#ifndef CORE_DISPATCH_DISPATCH_H
#define CORE_DISPATCH_DISPATCH_H

#include "base/thread.h"
#include "dispatch/operator.h"

#include <stddef.h>

/* The host table that core_call refers to (defined in loader/host.c). */
extern const core_host core__host;

/* struct_size of the call passed to functions. */
enum { CORE__FUNCTION_CALL_SIZE = offsetof(core_call, loop) };

/* Full dispatch: computes the key set from the tensors and the thread, and
 * calls the function of the highest key.  args must fit the schema in number
 * and tags, except for absent required tensors.  results are written; all NONE
 * on failure. */
core_status core__call(core_operator *op, const core_value *args,
                       uint32_t nargs, core_value *results, uint32_t nresults);
/* Dispatches with an explicit key set; reads no thread state. */
core_status core__redispatch(core_operator *op, uint64_t keys,
                             const core_value *args, uint32_t nargs,
                             core_value *results, uint32_t nresults);
/* The key set of a call before masks: the union of its tensors' keys. */
core_status core__keys_of(const core_operator *op, const core_value *args,
                          uint32_t nargs, uint64_t *out_keys);
/* Turns logging of every call's steps on or off, for LIBCORE_TRACE_DISPATCH.
 * The trace layer sees the first step of a call; its key is then in every
 * thread's set.  Redispatches check the flag. */
void core__dispatch_trace_set(bool on);
core_status core__trace_layer(core_call *call, const core_value *args,
                              uint32_t nargs, core_value *results,
                              uint32_t nresults);

/* Keys that every call in any thread has.  While there are any, calls do not
 * use the hot path, which does not check them. */
extern _Atomic uint64_t core__keys_everywhere;
/* Adds or removes an observer of every call in the profiler's layer. */
void core__dispatch_observe(bool on);

/* Adds a shortcut for calls of an operator in this state (table.c), unless the
 * operator has the maximum number. */
void core__shortcut_add(core_operator *op, uint64_t state);

core_operator *core__operator_find(const char *name, size_t size);

/* Thread-local key sets, restored by the caller on every path. */
typedef struct core__keys_guard {
    uint64_t included;
    uint64_t excluded;
} core__keys_guard;

static inline core__keys_guard core__keys_save(void)
{
    core__thread *self = core__thread_self();

    return (core__keys_guard){self->included, self->excluded};
}

static inline void core__keys_restore(core__keys_guard guard)
{
    core__thread *self = core__thread_self();

    self->included = guard.included;
    self->excluded = guard.excluded;
}

/* Checks the text of LIBCORE_FALLBACK. */
core_status core__fallback_check(const char *text);

#endif
