/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Calls of compiled functions. */

#include "compile/compiled/call.h"

#include "base/callback.h"
#include "base/log.h"
#include "base/settings.h"
#include "compile/prepare/replay.h"

/* ---------------------------------------------------------- eager calls -- */

static void release_outputs(core_tensor **outputs, size_t noutputs)
{
    for (size_t i = 0; i < noutputs; i++) {
        core_tensor_release(outputs[i]);
        outputs[i] = NULL;
    }
}

static core_status check_outputs(core_tensor *const *outputs, size_t noutputs,
                                 size_t count)
{
    if (count != noutputs)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_compiled_call: the function returned %zu "
                           "outputs; the call has space for %zu",
                           count, noutputs);
    for (size_t i = 0; i < noutputs; i++)
        if (!outputs[i])
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "core_compiled_call: the function left output "
                               "%zu NULL",
                               i);
    return CORE_OK;
}

static core_status call_eagerly(core_compiled *compiled,
                                core_tensor *const *inputs, size_t ninputs,
                                core_tensor **outputs, size_t noutputs)
{
    uint32_t errors = core__error_sequence();
    size_t count = noutputs;
    core_status status;

    CORE_TRY(core__function_enter("core_compiled_call"));
    status =
        compiled->function(compiled->context, inputs, ninputs, outputs, &count);
    core__function_leave();
    status = core__callback_status(errors, status, NULL);
    if (status == CORE_OK)
        status = check_outputs(outputs, noutputs, count);
    if (status != CORE_OK)
        release_outputs(outputs, noutputs);
    return status;
}

/* ------------------------------------------------------------- entries -- */

core_status core__call_function(const core__call *c)
{
    return call_eagerly(c->compiled, c->inputs, c->ninputs, c->outputs,
                        c->noutputs);
}

/* Of a function that has a graph break, or whose results require grad. */
static core_status __attribute__((noinline))
run_other(const core__call *c, core__compiled_entry *entry)
{
    bool full = c->compiled->options.flags & CORE_COMPILE_FULLGRAPH;

    if (!entry->program)
        return full ? core__break_error(entry) : core__call_function(c);
    if (!full && atomic_load(&entry->training->second_derivative)) {
        core__compiled_count(&entry->training->eager_calls, 1);
        return core__call_function(c);
    }
    return core__training_call(c->compiled, entry, c->inputs, c->ninputs,
                               c->outputs);
}

static inline core_status run_entry(const core__call *c,
                                    core__compiled_entry *entry)
{
    core__compiled_count(&entry->calls, 1);
    if (core__unlikely(!entry->program || entry->training))
        return run_other(c, entry);
    /* The guards have compared the inputs. */
    return core__replay_run(c->compiled->replays, entry->program, c->inputs,
                            c->outputs);
}

core_status core__call_run_entry(const core__call *c,
                                 core__compiled_entry *entry)
{
    return run_entry(c, entry);
}

/* A call that neither ran a program nor the function to its end. */
core_status core__call_failed(const core__call *c, core_status status)
{
    core__compiled_count(&c->compiled->failed_calls, 1);
    return status;
}

/* ---------------------------------------------------------------- check -- */

/* N of LIBCORE_COMPILE_CHECK, read again after each core_setting_set. */
static core_status check_interval(uint64_t *out)
{
    static _Atomic uint64_t known; /* generation of the settings + 1, and N */
    uint64_t now = (uint64_t)(core__settings_generation() + 1u) << 32;
    uint64_t cached = atomic_load_explicit(&known, memory_order_relaxed);
    int64_t interval;

    if (core__unlikely(cached >> 32 << 32 != now)) {
        CORE_TRY(core__setting_integer(CORE__SETTING_COMPILE_CHECK, &interval));
        cached = now | (uint64_t)interval;
        atomic_store_explicit(&known, cached, memory_order_relaxed);
    }
    *out = cached & UINT32_MAX;
    return CORE_OK;
}

static core_status compare_again(const core__call *c,
                                 const core__compiled_entry *entry)
{
    core_program *program;
    core__training *training;
    char difference[160];
    core__break_place place;
    core_status status;
    uint64_t ns;

    core__compiled_count(&c->compiled->checks, 1);
    status = core__call_trace(c->compiled, c->inputs, c->ninputs, c->noutputs,
                              &program, &training, &ns, &place);
    if (status != CORE_OK) {
        core__error_prefix("core_compiled_call: LIBCORE_COMPILE_CHECK: the "
                           "function cannot be recorded any more");
        return status;
    }
    if (!core__programs_equal(entry->program, program, difference,
                              sizeof difference) ||
        !core__training_equal(entry->training, training, difference,
                              sizeof difference))
        status = core__error(
            CORE_ERROR_INTERNAL,
            "core_compiled_call: LIBCORE_COMPILE_CHECK: the function does "
            "something else than when it was recorded: %s; what it depends on "
            "belongs in the key",
            difference);
    core_program_release(program);
    core__training_free(training);
    return status;
}

static core_status __attribute__((noinline))
check_again(const core__call *c, const core__compiled_entry *entry)
{
    core__error_record saved;

    core__error_save(&saved);
    return core__error_restore_on_success(&saved, compare_again(c, entry));
}

static core_status check_entry(const core__call *c,
                               const core__compiled_entry *entry)
{
    uint64_t interval, calls;

    CORE_TRY(check_interval(&interval));
    if (core__likely(interval == 0) || !entry->program)
        return CORE_OK;
    calls = atomic_load_explicit(&entry->calls, memory_order_relaxed) + 1;
    return calls % interval == 0 ? check_again(c, entry) : CORE_OK;
}

/* ---------------------------------------------------------------- calls -- */

static core_status beyond_limit(const core__call *c)
{
    core_compiled *compiled = c->compiled;
    bool warn;

    core__compiled_count(&compiled->limit_calls, 1);
    if (compiled->options.flags & CORE_COMPILE_LIMIT_ERROR)
        return core__error(
            CORE_ERROR_REFUSED,
            "core_compiled_call: the call needs another program; "
            "the function has %u, which is its limit "
            "(core_compile_options.limit)",
            compiled->limit);
    core__compiled_lock();
    warn = !compiled->limit_warned;
    compiled->limit_warned = true;
    core__compiled_unlock();
    if (warn)
        core__log(CORE_LOG_WARNING, "compile",
                  "a compiled function has %u programs, which is its limit; "
                  "calls that need another one are not compiled",
                  compiled->limit);
    return core__call_function(c);
}

/* Counts a call that the guards refuse.  True for the first one. */
static bool note_refused(core_compiled *compiled, const char *reason)
{
    uint32_t i = 0;
    bool is_first;

    core__compiled_lock();
    while (i < CORE__REFUSED_KINDS - 1 && compiled->refused[i].reason &&
           compiled->refused[i].reason != reason)
        i++;
    compiled->refused[i].reason = reason;
    is_first = compiled->refused[i].count++ == 0;
    core__compiled_unlock();
    return is_first;
}

static core_status refused(const core__call *c, const char *reason,
                           uint32_t input)
{
    bool is_first = note_refused(c->compiled, reason);

    if (!(c->compiled->options.flags & CORE_COMPILE_FULLGRAPH)) {
        if (is_first)
            core__break_log(NULL, reason, NULL);
        return core__call_function(c);
    }
    if (input == UINT32_MAX)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "core_compiled_call: CORE_COMPILE_FULLGRAPH was "
                           "given, but the call cannot be compiled: %s",
                           reason);
    return core__error(CORE_ERROR_UNSUPPORTED,
                       "core_compiled_call: CORE_COMPILE_FULLGRAPH was given, "
                       "but the call cannot be compiled: %s (input %u)",
                       reason, input);
}

static core_status call_entry(const core__call *c, core__compiled_entry *entry)
{
    core_status status = check_entry(c, entry);

    status =
        status == CORE_OK ? run_entry(c, entry) : core__call_failed(c, status);
    core__entry_release(entry);
    return status;
}

static bool has_room(core_compiled *compiled)
{
    return atomic_load(&compiled->nentries) < compiled->limit ||
           core__entries_sweep(compiled) || core__entries_replaceable(compiled);
}

/* A call without an entry. */
static core_status call_new(core__call *c)
{
    core_compiled *compiled = c->compiled;
    core__compiled_entry *entry;
    bool done;
    core_status status = core__call_run_resized(c, &done);

    if (done || status != CORE_OK)
        return done ? status : core__call_failed(c, status);
    entry = core__call_expected_break(compiled, &c->guard);
    if (entry && !(core__call_records_again(compiled) && has_room(compiled)))
        return call_entry(c, entry);
    core__entry_release(entry);
    if (!has_room(compiled))
        return beyond_limit(c);
    return core__call_record(c);
}

/* Finds the entry for a call without making its guard record, with a reference;
 * NULL: look for it with the record. */
static core__compiled_entry *find_quickly(const core__call *c)
{
    const core_compiled *compiled = c->compiled;
    core__thread *self = core__thread_self();
    core__compiled_entry *entry = NULL;

    core__thread_enter(self);
    for (uint32_t i = 0; i < compiled->limit && !entry; i++) {
        entry =
            atomic_load_explicit(&compiled->entries[i], memory_order_acquire);
        if (entry &&
            !(core__guard_holds(entry->guard, entry->guard_size, c->inputs,
                                c->ninputs, c->noutputs, compiled->options.key,
                                compiled->options.key_size) &&
              core__entry_retain(entry)))
            entry = NULL;
    }
    core__thread_leave(self);
    if (!entry || core__entry_check(entry, c->inputs) == CORE__ENTRY_HOLDS)
        return entry;
    core__entry_release(entry);
    return NULL;
}

/* Where none was found quickly. */
static core_status __attribute__((noinline)) call_with_record(core__call *c)
{
    core_compiled *compiled = c->compiled;
    core__compiled_entry *entry;
    uint32_t input;
    const char *reason =
        core__guard_refuses_inputs(c->inputs, c->ninputs, &input);
    core_status status;

    if (reason)
        return refused(c, reason, input);
    status =
        core__guard_make(&c->guard, c->inputs, c->ninputs, c->noutputs,
                         compiled->options.key, compiled->options.key_size);
    if (status != CORE_OK)
        return core__call_failed(c, status);
    entry = core__entries_find(compiled, &c->guard, c->inputs, &c->changed);
    if (entry) {
        status = call_entry(c, entry);
    } else {
        status = call_new(c);
    }
    core__guard_free(&c->guard);
    return status;
}

static core_status call_any(core__call *c);

/* A lazy region does not record what a compiled function does. */
static core_status __attribute__((cold, noinline)) call_paused(core__call *c)
{
    core__lazy_pause pause;
    core_status status;

    CORE_TRY(core__thread_pause("core_compiled_call", &pause));
    status = call_any(c);
    core__thread_resume(&pause);
    return status;
}

static core_status call_any(core__call *c)
{
    const core__thread *self = core__thread_self();
    core__compiled_entry *entry;
    const char *reason;

    if (core__unlikely(self->lazy != NULL))
        return call_paused(c);
    if (core__unlikely(self->trace != NULL)) {
        core__compiled_count(&c->compiled->inlined_calls, 1);
        return core__call_function(c);
    }
    reason = core__guard_refuses_thread(self);
    if (core__unlikely(reason != NULL))
        return refused(c, reason, UINT32_MAX);
    entry = find_quickly(c);
    return core__likely(entry != NULL) ? call_entry(c, entry)
                                       : call_with_record(c);
}

core_status core_compiled_call(core_compiled *compiled,
                               core_tensor *const *inputs, size_t ninputs,
                               core_tensor **outputs, size_t noutputs)
{
    core__call c;

    if (noutputs > 0)
        CORE__NOT_NULL(outputs);
    for (size_t i = 0; i < noutputs; i++)
        outputs[i] = NULL;
    CORE__NOT_NULL(compiled);
    if (ninputs > 0)
        CORE__NOT_NULL(inputs);
    for (size_t i = 0; i < ninputs; i++)
        if (!inputs[i])
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "core_compiled_call: input %zu is NULL", i);
    /* Not the whole: the guard record has room for large ones. */
    c.compiled = compiled;
    c.inputs = inputs;
    c.ninputs = ninputs;
    c.outputs = outputs;
    c.noutputs = noutputs;
    c.changed = false;
    return call_any(&c);
}
