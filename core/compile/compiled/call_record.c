/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Records a compiled function for a call. */

#include "compile/compiled/call.h"

#include "base/memory.h"
#include "base/text.h"
#include "compile/record/trace.h"

#include <string.h>
#include <time.h>

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The newest entry; NULL: none.  Valid until the thread leaves. */
static const core__compiled_entry *newest_entry(const core_compiled *compiled)
{
    const core__compiled_entry *newest = NULL;

    for (uint32_t i = 0; i < compiled->limit; i++) {
        const core__compiled_entry *entry = atomic_load(&compiled->entries[i]);

        if (entry && (!newest || entry->recording > newest->recording))
            newest = entry;
    }
    return newest;
}

/* Why another program is needed: the difference from the newest entry. */
static core_status describe_cause(const core_compiled *compiled,
                                  core__compiled_entry *entry, bool changed)
{
    char text[128] = "the first call";
    core__thread *self = core__thread_self();
    const core__compiled_entry *before;

    core__thread_enter(self);
    before = newest_entry(compiled);
    if (before)
        core__guard_difference(before->guard, before->guard_size, entry->guard,
                               entry->guard_size, text, sizeof text);
    core__thread_leave(self);
    if (changed)
        core__format(text, sizeof text, "%s",
                     compiled->options.flags & CORE_COMPILE_FREEZE
                         ? "a frozen hidden input changed, or a function was "
                           "registered"
                         : "a hidden input changed");
    entry->why = core__strdup(text);
    return entry->why ? CORE_OK : core__error_memory(strlen(text) + 1);
}

/* Records the function, and counts it. */
core_status core__call_trace(core_compiled *compiled,
                             core_tensor *const *inputs, size_t ninputs,
                             size_t noutputs, core_program **out_program,
                             core__training **out_training, uint64_t *out_ns,
                             core__break_place *out_place)
{
    uint64_t begin = now_ns();
    core_status status =
        core__compiled_trace(compiled, inputs, ninputs, noutputs, out_program,
                             out_training, out_place);

    *out_ns = now_ns() - begin;
    core__compiled_count(&compiled->traces, 1);
    core__compiled_count(&compiled->trace_ns, *out_ns);
    return status;
}

/* Beyond as many calls that create layers, a function may always do so. */
enum { MOST_CREATIONS = 8 };

static core_status make_entry(const core__call *c, core_program *program,
                              core__training *training, uint64_t ns,
                              const char *message,
                              const core__break_place *place,
                              core__compiled_entry **out_entry)
{
    core_status status = core__entry_new(&c->guard, program, training,
                                         c->inputs, c->ninputs, out_entry);

    if (status != CORE_OK)
        return status;
    (*out_entry)->trace_ns = ns;
    (*out_entry)->recording = atomic_load(&c->compiled->traces);
    (*out_entry)->hooks_removed = c->hooks_removed;
    (*out_entry)->hooked =
        !program && strstr(message, CORE__HOOKS_REFUSED) != NULL;
    (*out_entry)->created =
        !program && strstr(message, CORE__CREATION_REFUSED) != NULL &&
        atomic_fetch_add(&c->compiled->creations, 1) < MOST_CREATIONS;
    status = describe_cause(c->compiled, *out_entry, c->changed);
    if (status == CORE_OK && !program)
        status = core__break_describe(message, place, *out_entry);
    if (status != CORE_OK) {
        core__entry_release(*out_entry);
        *out_entry = NULL;
    }
    return status;
}

/* A recording that failed is a graph break if the function itself succeeds;
 * else the error is the function's. */
static core_status after_failure(core__call *c, uint64_t ns,
                                 const core__break_place *place)
{
    bool full = c->compiled->options.flags & CORE_COMPILE_FULLGRAPH;
    core_status failure = core_error_code();
    core__compiled_entry *entry;
    core_status status;
    char message[CORE__ERROR_TEXT];

    core__format(message, sizeof message, "%s", core_error_message());
    if (failure == CORE_ERROR_OUT_OF_MEMORY ||
        (full && failure != CORE_ERROR_UNSUPPORTED &&
         failure != CORE_ERROR_DATA_DEPENDENT))
        return core__call_failed(c, failure);
    status = full ? CORE_OK : core__call_function(c);
    if (status != CORE_OK && strstr(message, CORE__KEPT_REFUSED))
        core__error_prefix(
            "core_compiled_call: the function fails after it "
            "was recorded, perhaps because it keeps " CORE__KEPT_REFUSED
            ", which have no content");
    if (status == CORE_OK)
        status = make_entry(c, NULL, NULL, ns, message, place, &entry);
    if (status != CORE_OK)
        return core__call_failed(c, status);
    core__compiled_count(&entry->calls, 1);
    if (full)
        failure = core__break_error(entry);
    else
        core__break_log(entry->operator_name, entry->reason, entry->place);
    core__entries_make_room(c->compiled);
    core__entries_add(c->compiled, &c->guard, c->inputs, entry);
    return full ? failure : CORE_OK;
}

static core_status record(core__call *c)
{
    core__compiled_entry *entry;
    core__training *training;
    core_program *program;
    core__break_place place;
    core_status status;
    uint64_t ns;
    bool joined;

    c->hooks_removed = atomic_load(&core__hooks_removed);
    status = core__call_trace(c->compiled, c->inputs, c->ninputs, c->noutputs,
                              &program, &training, &ns, &place);
    if (status != CORE_OK)
        return after_failure(c, ns, &place);
    status = core__call_learn_sizes(c, program, training, &joined);
    if (status != CORE_OK) {
        core_program_release(program);
        core__training_free(training);
        return core__call_failed(c, status);
    }
    status = make_entry(c, program, training, ns, NULL, NULL, &entry);
    if (status != CORE_OK)
        return core__call_failed(c, status);
    entry->replaceable = joined;
    status = core__call_run_entry(c, entry);
    core__entries_make_room(c->compiled);
    core__entries_add(c->compiled, &c->guard, c->inputs, entry);
    return status;
}

/* After a graph break the call does not report the error of the recording. */
core_status core__call_record(core__call *c)
{
    core__error_record saved;
    core_status status;

    core__error_save(&saved);
    /* The function may release it. */
    core_compiled_retain(c->compiled);
    status = record(c);
    core_compiled_release(c->compiled);
    return core__error_restore_on_success(&saved, status);
}
