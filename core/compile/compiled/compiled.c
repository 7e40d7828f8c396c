/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Compiled functions: their options and calls. */

#include "codegen/kernel_cache.h"
#include "compile/compiled/compiled_node.h"
#include "compile/compiled/dynamic_shapes.h"
#include "compile/compiled/graph_break.h"
#include "compile/fusion/fusion.h"
#include "compile/prepare/tune.h"
#include "compile/record/trace.h"

#include "autograd/graph/callback.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/settings.h"
#include "base/text.h"

#include <string.h>
#include <time.h>

/* --------------------------------------------------------------- counts -- */

/* Under the lock: all functions, and the counts of those that were freed. */
static core_compiled *first;
static core_compile_counts freed;

static void count(_Atomic uint64_t *counter, uint64_t by)
{
    atomic_fetch_add_explicit(counter, by, memory_order_relaxed);
}

static void add_entry_counts(const core_compiled *compiled,
                             core_compile_counts *counts)
{
    core__thread *self = core__thread_self();

    counts->compiled_calls += atomic_load(&compiled->past_programs);
    counts->break_calls += atomic_load(&compiled->past_breaks);
    core__thread_enter(self);
    for (uint32_t i = 0; i < compiled->limit; i++) {
        const core__compiled_entry *entry = atomic_load(&compiled->entries[i]);

        if (!entry)
            continue;
        if (entry->program) {
            uint64_t eager = core__training_eager_calls(entry->training);

            counts->programs++;
            counts->compiled_calls += atomic_load(&entry->calls) - eager;
            counts->break_calls += eager;
        } else {
            counts->break_calls += atomic_load(&entry->calls);
        }
    }
    core__thread_leave(self);
}

void core__compiled_add_counts(const core_compiled *compiled,
                               core_compile_counts *counts)
{
    uint32_t flags = compiled->options.flags;
    core_compile_counts own = {0};

    add_entry_counts(compiled, &own);
    for (uint32_t i = 0; i < CORE__REFUSED_KINDS; i++)
        own.break_calls += compiled->refused[i].count;
    own.limit_calls = atomic_load(&compiled->limit_calls);
    own.inlined_calls = atomic_load(&compiled->inlined_calls);
    if (!(flags & CORE_COMPILE_FULLGRAPH))
        own.eager_calls += own.break_calls;
    if (!(flags & CORE_COMPILE_LIMIT_ERROR))
        own.eager_calls += own.limit_calls;
    counts->calls += own.compiled_calls + own.break_calls + own.limit_calls +
                     own.inlined_calls + atomic_load(&compiled->failed_calls);
    counts->compiled_calls += own.compiled_calls;
    counts->eager_calls += own.eager_calls;
    counts->break_calls += own.break_calls;
    counts->limit_calls += own.limit_calls;
    counts->inlined_calls += own.inlined_calls;
    counts->programs += own.programs;
    counts->traces += atomic_load(&compiled->traces);
    counts->trace_ns += atomic_load(&compiled->trace_ns);
    counts->invalidated += atomic_load(&compiled->invalidated);
    counts->checks += atomic_load(&compiled->checks);
    counts->resized += atomic_load(&compiled->resized);
    core__replays_count(compiled->replays, &counts->captures,
                        &counts->graph_launches, &counts->graph_busy);
}

core_status core_compile_get_counts(core_compile_counts *out_counts)
{
    core_compile_counts counts;
    uint32_t size;

    CORE__NOT_NULL(out_counts);
    CORE__CHECK_STRUCT_SIZE(out_counts, core_compile_counts);
    core__compiled_lock();
    counts = freed;
    for (const core_compiled *i = first; i; i = i->next)
        core__compiled_add_counts(i, &counts);
    core__compiled_unlock();
    core__fusion_add_counts(&counts);
    size = out_counts->struct_size < sizeof counts ? out_counts->struct_size
                                                   : sizeof counts;
    counts.struct_size = size;
    memcpy(out_counts, &counts, size);
    return CORE_OK;
}

core_status core_compile_get_cache(core_compile_cache *out_cache, char *path,
                                   size_t capacity)
{
    core__kernel_cache_counts counts = core__kernel_cache_get_counts();
    core_compile_cache cache = {.limit = CORE__KERNEL_CACHE_SIZE,
                                .loaded = counts.loaded,
                                .stored = counts.stored,
                                .refused = counts.refused,
                                .failed = counts.failed};

    CORE__NOT_NULL(out_cache);
    CORE__CHECK_STRUCT_SIZE(out_cache, core_compile_cache);
    core__choice_get_counts(&cache.choices_loaded, &cache.choices_stored);
    CORE_TRY(
        core__kernel_cache_measure(&cache.files, &cache.bytes, path, capacity));
    cache.struct_size = out_cache->struct_size < sizeof cache
                            ? out_cache->struct_size
                            : sizeof cache;
    memcpy(out_cache, &cache, cache.struct_size);
    return CORE_OK;
}

/* -------------------------------------------------------------- options -- */

static core_status __attribute__((cold)) unsupported(const char *what)
{
    return core__error(CORE_ERROR_UNSUPPORTED,
                       "core_compile: %s is not supported in this version",
                       what);
}

static core_status __attribute__((cold))
invalid(const char *field, uint32_t value)
{
    return core__error(
        CORE_ERROR_INVALID_ARGUMENT,
        "core_compile: options.%s is %u, which is not one of the "
        "values in compiled.h",
        field, value);
}

static core_status check_options(const core_compile_options *options)
{
    if (options->mode > CORE_COMPILE_MAX_AUTOTUNE)
        return invalid("mode", options->mode);
    if (options->flags & ~(uint32_t)CORE_COMPILE_FLAGS)
        return invalid("flags", options->flags);
    if (options->dynamic > CORE_COMPILE_DYNAMIC_ALWAYS)
        return invalid("dynamic", options->dynamic);
    if (options->codegen > CORE_COMPILE_CODEGEN_ON)
        return invalid("codegen", options->codegen);
    if (options->limit > 1 << 16)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_compile: options.limit is %u; at most 65536",
                           options->limit);
    if (options->key_size && !options->key)
        return core__error_null("core_compile", "options.key");
    if (options->key_size > 1 << 24)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_compile: options.key_size is %zu; at most "
                           "16777216",
                           options->key_size);
    return CORE_OK;
}

static core_status read_options(const core_compile_options *given,
                                core_compile_options *out)
{
    uint32_t size;

    memset(out, 0, sizeof *out);
    out->struct_size = sizeof *out;
    if (!given)
        return CORE_OK;
    size = given->struct_size;
    if (size <= sizeof size)
        return core__error_struct_size("core_compile", "core_compile_options",
                                       size, sizeof *out);
    memcpy(out, given, size < sizeof *out ? size : sizeof *out);
    out->struct_size = sizeof *out;
    /* Of a later version: what this one does not know must not be set. */
    for (uint32_t i = sizeof *out; i < size; i++)
        if (((const unsigned char *)given)[i])
            return unsupported("an option of a later version");
    return check_options(out);
}

/* ------------------------------------------------------------- lifetime -- */

core_status core_compile(core_tensor_function function, void *context,
                         const core_compile_options *options,
                         core_compiled **out_compiled)
{
    core_compile_options taken;
    core_compiled *compiled;
    core_status status;
    uint32_t limit;
    size_t size;

    CORE__NOT_NULL(out_compiled);
    *out_compiled = NULL;
    CORE__NOT_NULL(function);
    CORE_TRY(read_options(options, &taken));
    limit = taken.limit ? taken.limit : CORE_COMPILE_LIMIT;
    size = sizeof *compiled + limit * sizeof *compiled->entries +
           sizeof *compiled->patterns;
    compiled = core__alloc_zero(size);
    if (!compiled)
        return core__error_memory(size);
    compiled->patterns =
        (core__size_patterns *)(void *)(compiled->entries + limit);
    atomic_init(&compiled->references, 1);
    atomic_init(&compiled->holds, 1);
    compiled->function = function;
    compiled->context = context;
    compiled->options = taken;
    compiled->limit = limit;
    status = taken.mode == CORE_COMPILE_REDUCE_OVERHEAD
                 ? core__replays_new(&compiled->replays)
                 : CORE_OK;
    if (status != CORE_OK) {
        core__free(compiled);
        return status;
    }
    core__compiled_lock();
    compiled->next = first;
    if (first)
        first->previous = compiled;
    first = compiled;
    core__compiled_unlock();
    *out_compiled = compiled;
    return CORE_OK;
}

core_compiled *core_compiled_retain(core_compiled *compiled)
{
    if (compiled)
        atomic_fetch_add_explicit(&compiled->references, 1,
                                  memory_order_relaxed);
    return compiled;
}

void core_compiled_release(core_compiled *compiled)
{
    if (!compiled || atomic_fetch_sub(&compiled->references, 1) != 1)
        return;
    core__compiled_lock();
    core__compiled_add_counts(compiled, &freed);
    freed.programs = 0;
    if (compiled->previous)
        compiled->previous->next = compiled->next;
    else
        first = compiled->next;
    if (compiled->next)
        compiled->next->previous = compiled->previous;
    core__compiled_unlock();
    for (uint32_t i = 0; i < compiled->limit; i++)
        core__entry_release(atomic_load(&compiled->entries[i]));
    core__size_patterns_free(compiled->patterns);
    core__compiled_drop(compiled);
}

core_compiled *core__compiled_hold(core_compiled *compiled)
{
    atomic_fetch_add_explicit(&compiled->holds, 1, memory_order_relaxed);
    return compiled;
}

void core__compiled_drop(core_compiled *compiled)
{
    if (atomic_fetch_sub(&compiled->holds, 1) != 1)
        return;
    core__replays_free(compiled->replays);
    core__free(compiled);
}

bool core__compiled_retain_used(core_compiled *compiled)
{
    uint32_t references = atomic_load(&compiled->references);

    while (references > 0)
        if (atomic_compare_exchange_weak(&compiled->references, &references,
                                         references + 1))
            return true;
    return false;
}

/* Keeps the calls of an entry that is not, or no longer, in a slot. */
static void note_past(core_compiled *compiled,
                      const core__compiled_entry *entry)
{
    uint64_t calls = atomic_load(&entry->calls);
    uint64_t eager =
        entry->program ? core__training_eager_calls(entry->training) : calls;

    count(&compiled->past_programs, calls - eager);
    count(&compiled->past_breaks, eager);
}

/* -------------------------------------------------------------- entries -- */

/* Removes an entry from its slot. */
static void remove_entry(core_compiled *compiled, uint32_t slot,
                         core__compiled_entry *entry, bool gone)
{
    bool removed;

    core__compiled_lock();
    removed = atomic_load(&compiled->entries[slot]) == entry;
    if (removed) {
        atomic_store(&compiled->entries[slot], NULL);
        atomic_fetch_sub(&compiled->nentries, 1);
    }
    core__compiled_unlock();
    if (!removed)
        return;
    count(&compiled->invalidated, gone);
    note_past(compiled, entry);
    core__entry_release(entry);
}

enum { NO_SLOT = UINT32_MAX };

static bool guards_hold(const core__compiled_entry *entry,
                        const core__guard *guard)
{
    return entry->guard_size == guard->size &&
           memcmp(entry->guard, guard->bytes, guard->size) == 0;
}

/* The entry with the guard record in a slot, with a reference; NULL: none. */
static core__compiled_entry *entry_at(core_compiled *compiled, uint32_t slot,
                                      const core__guard *guard)
{
    core__thread *self = core__thread_self();
    core__compiled_entry *entry;

    core__thread_enter(self);
    entry = atomic_load(&compiled->entries[slot]);
    if (entry && !(guards_hold(entry, guard) && core__entry_retain(entry)))
        entry = NULL;
    core__thread_leave(self);
    return entry;
}

/* Finds the entry for a call, with a reference; NULL: there is none.  *changed:
 * one that had the guard record was dropped. */
static core__compiled_entry *find_entry(core_compiled *compiled,
                                        const core__guard *guard,
                                        core_tensor *const *inputs,
                                        bool *out_changed)
{
    for (uint32_t i = 0; i < compiled->limit; i++) {
        core__compiled_entry *entry = entry_at(compiled, i, guard);
        core__entry_match match;

        if (!entry)
            continue;
        match = core__entry_check(entry, inputs);
        if (match == CORE__ENTRY_HOLDS)
            return entry;
        *out_changed = true;
        if (match == CORE__ENTRY_GONE)
            remove_entry(compiled, i, entry, true);
        core__entry_release(entry);
    }
    return NULL;
}

/* Removes all entries that cannot hold again.  True if there is a place now. */
static bool sweep_entries(core_compiled *compiled)
{
    core__thread *self = core__thread_self();

    for (uint32_t i = 0; i < compiled->limit; i++) {
        core__compiled_entry *entry;

        core__thread_enter(self);
        entry = atomic_load(&compiled->entries[i]);
        if (entry && !core__entry_retain(entry))
            entry = NULL;
        core__thread_leave(self);
        if (entry && core__entry_is_gone(entry))
            remove_entry(compiled, i, entry, true);
        core__entry_release(entry);
    }
    return atomic_load(&compiled->nentries) < compiled->limit;
}

/* The slot for an entry of a call; NO_SLOT: another thread has added an
 * equal one, or there is no place any more.  Under the lock, so no entry is
 * removed meanwhile. */
static uint32_t slot_for(const core_compiled *compiled,
                         const core__guard *guard, core_tensor *const *inputs)
{
    uint32_t slot = NO_SLOT;

    for (uint32_t i = compiled->limit; i-- > 0;) {
        const core__compiled_entry *other = atomic_load(&compiled->entries[i]);

        if (!other)
            slot = i;
        else if (guards_hold(other, guard) &&
                 core__entry_check(other, inputs) == CORE__ENTRY_HOLDS)
            return NO_SLOT;
    }
    return slot;
}

/* Adds an entry if it has a slot.  Takes over a reference of it, whose call has
 * been made. */
static void add_entry(core_compiled *compiled, const core__guard *guard,
                      core_tensor *const *inputs, core__compiled_entry *entry)
{
    uint32_t slot;

    core__compiled_lock();
    slot = slot_for(compiled, guard, inputs);
    if (slot != NO_SLOT) {
        atomic_store(&compiled->entries[slot], entry);
        atomic_fetch_add(&compiled->nentries, 1);
    }
    core__compiled_unlock();
    if (slot != NO_SLOT)
        return;
    note_past(compiled, entry);
    core__entry_release(entry);
}

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

/* ------------------------------------------------------------- recording -- */

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
static core_status trace(core_compiled *compiled, core_tensor *const *inputs,
                         size_t ninputs, size_t noutputs,
                         core_program **out_program,
                         core__training **out_training, uint64_t *out_ns,
                         core__break_place *out_place)
{
    uint64_t begin = now_ns();
    core_status status =
        core__compiled_trace(compiled, inputs, ninputs, noutputs, out_program,
                             out_training, out_place);

    *out_ns = now_ns() - begin;
    count(&compiled->traces, 1);
    count(&compiled->trace_ns, *out_ns);
    return status;
}

/* A call, and what is known about it. */
typedef struct call {
    core_compiled *compiled;
    core_tensor *const *inputs;
    size_t ninputs;
    core_tensor **outputs;
    size_t noutputs;
    core__guard guard;
    bool changed; /* an entry had the guard record, but not the hidden inputs */
    uint32_t hooks_removed; /* core__hooks_removed before the recording */
} call;

static core_status make_entry(const call *c, core_program *program,
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
    status = describe_cause(c->compiled, *out_entry, c->changed);
    if (status == CORE_OK && !program)
        status = core__break_describe(message, place, *out_entry);
    if (status != CORE_OK) {
        core__entry_release(*out_entry);
        *out_entry = NULL;
    }
    return status;
}

static core_status run_function(const call *c)
{
    return call_eagerly(c->compiled, c->inputs, c->ninputs, c->outputs,
                        c->noutputs);
}

static core_status run_entry(const call *c, core__compiled_entry *entry)
{
    bool full = c->compiled->options.flags & CORE_COMPILE_FULLGRAPH;

    count(&entry->calls, 1);
    if (!entry->program)
        return full ? core__break_error(entry) : run_function(c);
    if (entry->training) {
        if (!full && atomic_load(&entry->training->second_derivative)) {
            count(&entry->training->eager_calls, 1);
            return run_function(c);
        }
        return core__training_call(c->compiled, entry, c->inputs, c->ninputs,
                                   c->outputs);
    }
    /* The guards have compared the inputs. */
    return core__replay_run(c->compiled->replays, entry->program, c->inputs,
                            c->outputs);
}

/* A call that neither ran a program nor the function to its end. */
static core_status failed(const call *c, core_status status)
{
    count(&c->compiled->failed_calls, 1);
    return status;
}

/* Frees the slot of the oldest entry that was not recorded. */
static void make_room(core_compiled *compiled)
{
    core__thread *self = core__thread_self();
    core__compiled_entry *oldest = NULL;
    uint32_t slot = 0;

    if (atomic_load(&compiled->nentries) < compiled->limit)
        return;
    core__thread_enter(self);
    for (uint32_t i = 0; i < compiled->limit; i++) {
        core__compiled_entry *entry = atomic_load(&compiled->entries[i]);

        if (!entry || !entry->replaceable ||
            (oldest && entry->recording > oldest->recording))
            continue;
        oldest = entry;
        slot = i;
    }
    if (oldest && !core__entry_retain(oldest))
        oldest = NULL;
    core__thread_leave(self);
    if (oldest)
        remove_entry(compiled, slot, oldest, false);
    core__entry_release(oldest);
}

/* A recording that failed is a graph break if the function itself succeeds;
 * else the error is the function's. */
static core_status after_failure(call *c, uint64_t ns,
                                 const core__break_place *place)
{
    bool full = c->compiled->options.flags & CORE_COMPILE_FULLGRAPH;
    core_status failure = core_error_code();
    core__compiled_entry *entry;
    core_status status;
    char message[512];

    core__format(message, sizeof message, "%s", core_error_message());
    if (failure == CORE_ERROR_OUT_OF_MEMORY ||
        (full && failure != CORE_ERROR_UNSUPPORTED &&
         failure != CORE_ERROR_DATA_DEPENDENT))
        return failed(c, failure);
    status = full ? CORE_OK : run_function(c);
    if (status != CORE_OK && strstr(message, CORE__KEPT_REFUSED))
        core__error_prefix(
            "core_compiled_call: the function fails after it "
            "was recorded, perhaps because it keeps " CORE__KEPT_REFUSED
            ", which have no content");
    if (status == CORE_OK)
        status = make_entry(c, NULL, NULL, ns, message, place, &entry);
    if (status != CORE_OK)
        return failed(c, status);
    count(&entry->calls, 1);
    if (full)
        failure = core__break_error(entry);
    else
        core__break_log(entry->operator_name, entry->reason, entry->place);
    make_room(c->compiled);
    add_entry(c->compiled, &c->guard, c->inputs, entry);
    return full ? failure : CORE_OK;
}

/* -------------------------------------------------------- dynamic shapes -- */

static bool joins_sizes(const core_compiled *compiled)
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

/* True if the entry is a graph break that has nothing to do with hooks, in a
 * call that differs from this one in sizes alone. */
static bool is_break_of_other_sizes(const core__compiled_entry *entry,
                                    const core__guard *guard)
{
    return entry && !entry->program && !entry->hooked &&
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
static core__compiled_entry *break_of_all_sizes(core_compiled *compiled,
                                                const core__guard *guard)
{
    core__thread *self = core__thread_self();
    core__compiled_entry *found = NULL;

    if (!joins_sizes(compiled) ||
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
static bool records_again(core_compiled *compiled)
{
    uint32_t before = (uint32_t)atomic_fetch_add_explicit(
        &compiled->expected_breaks, 1, memory_order_relaxed);

    return before % RECORD_AGAIN == RECORD_AGAIN - 1;
}

/* After a recording.  UNSUPPORTED if sizes must join and do not.  *out_joined:
 * the program can be made from those of other sizes. */
static core_status learn_sizes(const call *c, const core_program *program,
                               const core__training *training, bool *out_joined)
{
    core_compiled *compiled = c->compiled;
    core__compiled_entry *before;
    bool fails;

    *out_joined = false;
    /* Breaks that were expected may be over: the next one is recorded, too. */
    atomic_store_explicit(&compiled->expected_breaks, RECORD_AGAIN - 1,
                          memory_order_relaxed);
    if (!joins_sizes(compiled))
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

/* True if an entry can make room. */
static bool has_replaceable(core_compiled *compiled)
{
    core__thread *self = core__thread_self();
    bool found = false;

    core__thread_enter(self);
    for (uint32_t i = 0; i < compiled->limit && !found; i++) {
        const core__compiled_entry *entry = atomic_load(&compiled->entries[i]);

        found = entry && entry->replaceable;
    }
    core__thread_leave(self);
    return found;
}

/* Makes and runs a program from those of other sizes.  *out_done: there was
 * one. */
static core_status run_resized(call *c, bool *out_done)
{
    static const char why[] = "made from programs of other sizes";
    core_compiled *compiled = c->compiled;
    core__compiled_entry *entry;
    core_status status;

    *out_done = false;
    if (!joins_sizes(compiled) || !compiled->patterns->count)
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
    count(&compiled->resized, 1);
    entry->recording =
        atomic_load(&compiled->traces) + atomic_load(&compiled->resized);
    /* Another thread may release it meanwhile. */
    core_compiled_retain(compiled);
    status = run_entry(c, entry);
    make_room(compiled);
    add_entry(compiled, &c->guard, c->inputs, entry);
    core_compiled_release(compiled);
    return status;
}

static core_status record(call *c)
{
    core__compiled_entry *entry;
    core__training *training;
    core_program *program;
    core__break_place place;
    core_status status;
    uint64_t ns;
    bool joined;

    c->hooks_removed = atomic_load(&core__hooks_removed);
    status = trace(c->compiled, c->inputs, c->ninputs, c->noutputs, &program,
                   &training, &ns, &place);
    if (status != CORE_OK)
        return after_failure(c, ns, &place);
    status = learn_sizes(c, program, training, &joined);
    if (status != CORE_OK) {
        core_program_release(program);
        core__training_free(training);
        return failed(c, status);
    }
    status = make_entry(c, program, training, ns, NULL, NULL, &entry);
    if (status != CORE_OK)
        return failed(c, status);
    entry->replaceable = joined;
    status = run_entry(c, entry);
    make_room(c->compiled);
    add_entry(c->compiled, &c->guard, c->inputs, entry);
    return status;
}

/* After a graph break the call does not report the error of the recording. */
static core_status record_and_run(call *c)
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

static core_status compare_again(const call *c,
                                 const core__compiled_entry *entry)
{
    core_program *program;
    core__training *training;
    char difference[160];
    core__break_place place;
    core_status status;
    uint64_t ns;

    count(&c->compiled->checks, 1);
    status = trace(c->compiled, c->inputs, c->ninputs, c->noutputs, &program,
                   &training, &ns, &place);
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
check_again(const call *c, const core__compiled_entry *entry)
{
    core__error_record saved;

    core__error_save(&saved);
    return core__error_restore_on_success(&saved, compare_again(c, entry));
}

static core_status check_entry(const call *c, const core__compiled_entry *entry)
{
    uint64_t interval, calls;

    CORE_TRY(check_interval(&interval));
    if (core__likely(interval == 0) || !entry->program)
        return CORE_OK;
    calls = atomic_load_explicit(&entry->calls, memory_order_relaxed) + 1;
    return calls % interval == 0 ? check_again(c, entry) : CORE_OK;
}

/* ---------------------------------------------------------------- calls -- */

static core_status beyond_limit(const call *c)
{
    core_compiled *compiled = c->compiled;
    bool warn;

    count(&compiled->limit_calls, 1);
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
    return run_function(c);
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

static core_status refused(const call *c, const char *reason, uint32_t input)
{
    bool is_first = note_refused(c->compiled, reason);

    if (!(c->compiled->options.flags & CORE_COMPILE_FULLGRAPH)) {
        if (is_first)
            core__break_log(NULL, reason, NULL);
        return run_function(c);
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

static core_status call_entry(const call *c, core__compiled_entry *entry)
{
    core_status status = check_entry(c, entry);

    status = status == CORE_OK ? run_entry(c, entry) : failed(c, status);
    core__entry_release(entry);
    return status;
}

static bool has_room(core_compiled *compiled)
{
    return atomic_load(&compiled->nentries) < compiled->limit ||
           sweep_entries(compiled) || has_replaceable(compiled);
}

/* A call without an entry. */
static core_status call_new(call *c)
{
    core_compiled *compiled = c->compiled;
    core__compiled_entry *entry;
    bool done;
    core_status status = run_resized(c, &done);

    if (done || status != CORE_OK)
        return done ? status : failed(c, status);
    entry = break_of_all_sizes(compiled, &c->guard);
    if (entry && !(records_again(compiled) && has_room(compiled)))
        return call_entry(c, entry);
    core__entry_release(entry);
    if (!has_room(compiled))
        return beyond_limit(c);
    return record_and_run(c);
}

/* Finds the entry for a call without making its guard record, with a reference;
 * NULL: look for it with the record. */
static core__compiled_entry *find_quickly(const call *c)
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
static core_status __attribute__((noinline)) call_with_record(call *c)
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
        return failed(c, status);
    entry = find_entry(compiled, &c->guard, c->inputs, &c->changed);
    if (entry) {
        status = call_entry(c, entry);
    } else {
        status = call_new(c);
    }
    core__guard_free(&c->guard);
    return status;
}

static core_status call_any(call *c);

/* A lazy region does not record what a compiled function does. */
static core_status __attribute__((cold, noinline)) call_paused(call *c)
{
    core__lazy_pause pause;
    core_status status;

    CORE_TRY(core__thread_pause("core_compiled_call", &pause));
    status = call_any(c);
    core__thread_resume(&pause);
    return status;
}

static core_status call_any(call *c)
{
    const core__thread *self = core__thread_self();
    core__compiled_entry *entry;
    const char *reason;

    if (core__unlikely(self->lazy != NULL))
        return call_paused(c);
    if (core__unlikely(self->trace != NULL)) {
        count(&c->compiled->inlined_calls, 1);
        return run_function(c);
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
    call c;

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
