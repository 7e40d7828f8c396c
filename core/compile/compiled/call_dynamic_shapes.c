/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Calls of a compiled function with other sizes (dynamic_shapes.h). */

#include "compile/compiled/call.h"
#include "compile/compiled/dynamic_shapes.h"

#include "base/memory.h"
#include "base/text.h"

#include <string.h>

bool core__call_joins_sizes(const core_compiled *compiled)
{
    return compiled->options.dynamic != CORE_COMPILE_DYNAMIC_NEVER &&
           !(compiled->options.flags & CORE_COMPILE_FREEZE);
}

/* The newest entry with the facts of a call but for sizes, with a reference. */
static core__compiled_entry *entry_of_other_sizes(core_compiled *compiled,
                                                  const core__guard *guard,
                                                  bool training)
{
    core__thread *self = core__thread_self();
    core__compiled_entry *found = NULL;

    for (uint32_t i = 0; i < compiled->limit; i++) {
        core__compiled_entry *entry;

        core__thread_enter(self);
        entry = atomic_load(&compiled->entries[i]);
        if (entry && entry->program && !entry->training == !training &&
            (!found || entry->recording > found->recording) &&
            core__guard_same_but_sizes(entry->guard, entry->guard_size,
                                       guard->bytes, guard->size) &&
            core__entry_retain(entry)) {
            core__compiled_entry *before = found;

            found = entry;
            entry = before;
        } else {
            entry = NULL;
        }
        core__thread_leave(self);
        core__entry_release(entry);
    }
    return found;
}

/* True if the entry is a graph break that has nothing to do with hooks or new
 * layers, in a call that differs from this one in sizes alone. */
static bool is_break_of_other_sizes(const core__compiled_entry *entry,
                                    const core__guard *guard)
{
    return entry && !entry->program && !entry->hooked && !entry->created &&
           core__guard_same_but_sizes(entry->guard, entry->guard_size,
                                      guard->bytes, guard->size);
}

static bool is_same_break(const core__compiled_entry *a,
                          const core__compiled_entry *b)
{
    return strcmp(a->reason, b->reason) == 0 &&
           (a->operator_name && b->operator_name
                ? strcmp(a->operator_name, b->operator_name) == 0
                : a->operator_name == b->operator_name);
}

/* Whether one of the first `count` entries is the same break of other sizes. */
static bool has_same_break(core_compiled *compiled,
                           const core__compiled_entry *entry, uint32_t count,
                           const core__guard *guard)
{
    for (uint32_t i = 0; i < count; i++) {
        const core__compiled_entry *other = atomic_load(&compiled->entries[i]);

        if (is_break_of_other_sizes(other, guard) &&
            is_same_break(other, entry))
            return true;
    }
    return false;
}

/* Of so many calls whose break was expected, one is recorded. */
enum { RECORD_AGAIN = 64 };

/* A break that two sizes have had: others are expected to have it, too.  With a
 * reference; or NULL. */
core__compiled_entry *core__call_expected_break(core_compiled *compiled,
                                                const core__guard *guard)
{
    core__thread *self = core__thread_self();
    core__compiled_entry *found = NULL;

    if (!core__call_joins_sizes(compiled) ||
        compiled->options.flags & CORE_COMPILE_FULLGRAPH)
        return NULL;
    core__thread_enter(self);
    for (uint32_t i = 1; i < compiled->limit && !found; i++) {
        core__compiled_entry *entry = atomic_load(&compiled->entries[i]);

        if (is_break_of_other_sizes(entry, guard) &&
            has_same_break(compiled, entry, i, guard) &&
            core__entry_retain(entry))
            found = entry;
    }
    core__thread_leave(self);
    return found;
}

/* What caused the breaks may be over, such as gradients that did not exist. */
bool core__call_records_again(core_compiled *compiled)
{
    uint32_t before = (uint32_t)atomic_fetch_add_explicit(
        &compiled->expected_breaks, 1, memory_order_relaxed);

    return before % RECORD_AGAIN == RECORD_AGAIN - 1;
}

/* After a recording.  UNSUPPORTED if sizes must join and do not.  *out_joined:
 * the program can be made from those of other sizes. */
core_status core__call_learn_sizes(const core__call *c,
                                   const core_program *program,
                                   const core__training *training,
                                   bool *out_joined)
{
    core_compiled *compiled = c->compiled;
    core__compiled_entry *before;
    bool fails;

    *out_joined = false;
    /* Breaks that were expected may be over: the next one is recorded, too. */
    atomic_store_explicit(&compiled->expected_breaks, RECORD_AGAIN - 1,
                          memory_order_relaxed);
    if (!core__call_joins_sizes(compiled))
        return CORE_OK;
    before = entry_of_other_sizes(compiled, &c->guard, training != NULL);
    *out_joined = core__size_patterns_learn(
        compiled->patterns, &c->guard, c->inputs, program, training, before);
    if (before && *out_joined)
        before->replaceable = true;
    fails = before && !*out_joined &&
            compiled->options.dynamic == CORE_COMPILE_DYNAMIC_ALWAYS;
    core__entry_release(before);
    if (!fails)
        return CORE_OK;
    return core__error(CORE_ERROR_UNSUPPORTED,
                       "core_compiled_call: CORE_COMPILE_DYNAMIC_ALWAYS was "
                       "given, but the programs of two sizes differ in more "
                       "than sizes: %s",
                       compiled->patterns->difference);
}

/* Makes and runs a program from those of other sizes.  *out_done: there was
 * one. */
core_status core__call_run_resized(core__call *c, bool *out_done)
{
    static const char why[] = "made from programs of other sizes";
    core_compiled *compiled = c->compiled;
    core__compiled_entry *entry;
    core_status status;

    *out_done = false;
    if (!core__call_joins_sizes(compiled) || !compiled->patterns->count)
        return CORE_OK;
    status = core__size_patterns_apply(compiled->patterns, &c->guard, c->inputs,
                                       c->ninputs, &entry);
    if (status != CORE_OK || !entry)
        return status;
    entry->why = core__strdup(why);
    if (!entry->why) {
        core__entry_release(entry);
        return core__error_memory(sizeof why);
    }
    *out_done = true;
    entry->replaceable = true;
    core__compiled_count(&compiled->resized, 1);
    entry->recording =
        atomic_load(&compiled->traces) + atomic_load(&compiled->resized);
    /* Another thread may release it meanwhile. */
    core_compiled_retain(compiled);
    status = core__call_run_entry(c, entry);
    core__entries_make_room(compiled);
    core__entries_add(compiled, &c->guard, c->inputs, entry);
    core_compiled_release(compiled);
    return status;
}
