/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* dispatch.h: calling an operator, inside the core. */

#ifndef CORE_DISPATCH_DISPATCH_H
#define CORE_DISPATCH_DISPATCH_H

#include "base/thread.h"
#include "dispatch/operator.h"

#include <stddef.h>

/* The host table that core_call carries (loader/host.c fills it). */
extern const core_host core__host;

/* struct_size of the call that a function gets. */
enum { CORE__FUNCTION_CALL_SIZE = offsetof(core_call, loop) };

/* Full dispatch: key set from tensors and thread, highest key served.  args
 * are trusted to fit the schema in number and tags, but for absent required
 * tensors.  results: written; all NONE on failure. */
core_status core__call(core_operator *op, const core_value *args,
                       uint32_t nargs, core_value *results, uint32_t nresults);
/* Serves an explicit key set; reads no thread state. */
core_status core__redispatch(core_operator *op, uint64_t keys,
                             const core_value *args, uint32_t nargs,
                             core_value *results, uint32_t nresults);
/* The key set of a call before masks: union of the tensors' keys. */
core_status core__keys_of(const core_operator *op, const core_value *args,
                          uint32_t nargs, uint64_t *out_keys);
/* Logs each step of every call from now on, or no more: what
 * LIBCORE_TRACE_DISPATCH asks for.  The first step of a call is seen by the
 * trace layer, whose key is then in every thread's set; redispatches look at
 * the flag. */
void core__dispatch_trace_set(bool on);
core_status core__trace_layer(core_call *call, const core_value *args,
                              uint32_t nargs, core_value *results,
                              uint32_t nresults);

/* Keys that every call has, whatever its thread: while there are any, no call
 * goes the short way, which does not ask for them. */
extern _Atomic uint64_t core__keys_everywhere;
/* One more, or one less, who sees every call in the profiler's layer. */
void core__dispatch_watch(bool on);

/* What a call that was served with these keys came with becomes a shortcut of
 * its operator (table.c), unless it has enough of them. */
void core__shortcut_learn(core_operator *op, uint64_t state);

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
