/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Compiled functions: their options, counts and lifetime. */

#include "codegen/kernel_cache.h"
#include "compile/compiled/call.h"
#include "compile/compiled/dynamic_shapes.h"
#include "compile/fusion/fusion.h"
#include "compile/prepare/prepared.h"
#include "compile/prepare/tune.h"

#include "base/memory.h"

#include <string.h>

/* --------------------------------------------------------------- counts -- */

/* Under the lock: all functions, and the counts of those that were freed. */
static core_compiled *first;
static core_compile_counts freed;

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
    counts.prepare_ns = core__prepared_spent_ns();
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
void core__compiled_note_past(core_compiled *compiled,
                              const core__compiled_entry *entry)
{
    uint64_t calls = atomic_load(&entry->calls);
    uint64_t eager =
        entry->program ? core__training_eager_calls(entry->training) : calls;

    core__compiled_count(&compiled->past_programs, calls - eager);
    core__compiled_count(&compiled->past_breaks, eager);
}
