/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The sets of prepared calls of a program, and what is known of them. */

#include "compile/prepare/prepared_sets.h"

#include "compile/program/lock.h"

#include "base/memory.h"
#include "base/thread.h"
#include "device/stream.h"
#include "dispatch/dispatch.h"
#include "tensor/tensor_cache.h"

#include <string.h>
#include <time.h>

enum { SETS = CORE__PREPARED_SETS };

core_status core__prepared_calls_new(core_program *program,
                                     core__prepared_calls **out)
{
    core__prepared_calls *fresh, *none = NULL;

    fresh = core__alloc_zero(sizeof *fresh);
    if (!fresh)
        return core__error_memory(sizeof *fresh);
    *out = fresh;
    if (!atomic_compare_exchange_strong(&program->prepared, &none, fresh)) {
        core__free(fresh);
        *out = none;
    }
    return CORE_OK;
}

void core__prepared_calls_free(core_program *program)
{
    core__prepared_calls *calls = atomic_load(&program->prepared);

    if (!calls)
        return;
    for (uint32_t i = 0; i < SETS; i++)
        core__prepared_free(atomic_load(&calls->sets[i]));
    core__prepared_facts_release(calls->facts);
    core__fusion_release(atomic_load(&calls->fusion));
    core__free(calls);
    atomic_store(&program->prepared, NULL);
}

/* False if it can never be used again. */
static bool is_current(const core__prepared *set)
{
    return set->registered == atomic_load_explicit(&core__registry_generation,
                                                   memory_order_relaxed) &&
           set->impl == set->device->impl &&
           set->generation == atomic_load_explicit(&set->device->generation,
                                                   memory_order_relaxed) &&
           (core__likely(!set->waits) || !core__fusion_is_built(set->fusion));
}

static bool suits(const core__prepared *set, const core__thread *self,
                  const core_stream *stream)
{
    return set->call_flags == self->call_flags &&
           (set->device->synchronous || set->stream == stream->id);
}

void core__prepared_give_back(core__prepared_calls *calls, core__prepared *set)
{
    for (uint32_t i = 0; i < SETS; i++) {
        core__prepared *none = NULL;

        if (atomic_compare_exchange_strong_explicit(&calls->sets[i], &none, set,
                                                    memory_order_release,
                                                    memory_order_relaxed))
            return;
    }
    core__prepared_free(set);
}

/* Takes a set out; NULL: none fits.  *out_former: one that can never be used
 * again, and has references to kernels that the next one may need; or NULL. */
static core__prepared *take(core__prepared_calls *calls,
                            const core__thread *self, const core_stream *stream,
                            core__prepared **out_former)
{
    *out_former = NULL;
    for (uint32_t i = 0; i < SETS; i++) {
        core__prepared *set;

        if (!atomic_load_explicit(&calls->sets[i], memory_order_relaxed))
            continue;
        set = atomic_exchange_explicit(&calls->sets[i], NULL,
                                       memory_order_acquire);
        if (core__likely(set && is_current(set) && suits(set, self, stream)))
            return set;
        if (set && is_current(set)) {
            core__prepared_give_back(calls, set);
            continue;
        }
        core__prepared_free(*out_former);
        *out_former = set;
    }
    return NULL;
}

/* Makes room for a set of another stream. */
static void drop_one(core__prepared_calls *calls)
{
    for (uint32_t i = 0; i < SETS; i++)
        if (!atomic_load(&calls->sets[i]))
            return;
    core__prepared_free(atomic_exchange(
        &calls->sets[atomic_fetch_add(&calls->dropped, 1) % SETS], NULL));
}

void core__prepared_facts_release(core__prepared_facts *facts)
{
    if (!facts || atomic_fetch_sub(&facts->references, 1) > 1)
        return;
    core__fusion_release(facts->fusion);
    core__row_facts_release(facts->rows);
    core__epilogue_facts_release(facts->epilogues);
    core__free(facts);
}

/* Takes over the reference; NULL: what was known does not hold any more. */
static void replace_facts(core__prepared_calls *calls,
                          core__prepared_facts *facts)
{
    core__prepared_facts *before;

    core__compiled_lock();
    before = calls->facts;
    calls->facts = facts;
    core__compiled_unlock();
    core__prepared_facts_release(before);
}

static bool has_facts(const core__prepared_calls *calls,
                      const core__prepared *set)
{
    bool found;

    core__compiled_lock();
    found = calls->facts && calls->facts->registered == set->registered &&
            calls->facts->fusion == set->fusion;
    core__compiled_unlock();
    return found;
}

/* Keeps what explain tells, which is the same for all sets until something is
 * registered or kernels have been built. */
static core_status note_facts(const core_program *program,
                              core__prepared_calls *calls,
                              const core__prepared *set)
{
    uint32_t recomputed = set->program->nnodes - program->nnodes;
    size_t size = set->nunprepared * sizeof *set->unprepared;
    core__prepared_facts *facts;

    if (has_facts(calls, set))
        return CORE_OK;
    facts = core__alloc(sizeof *facts + size);
    if (!facts)
        return core__error_memory(sizeof *facts + size);
    *facts = (core__prepared_facts){
        .references = 1,
        .registered = set->registered,
        .nodes = set->nodes - recomputed,
        .recomputed = recomputed,
        .launches = set->launches,
        .arena_size = set->arena_size,
        .unprepared = (void *)(facts + 1),
        .nunprepared = set->nunprepared,
        .fusion = core__fusion_retain(set->fusion),
        .rows = core__row_facts_retain(set->rows.facts),
        .epilogues = core__epilogue_facts_retain(set->epilogues.facts)};
    if (size)
        memcpy(facts + 1, set->unprepared, size);
    replace_facts(calls, facts);
    return CORE_OK;
}

core__prepared_facts *core__prepared_describe(core_program *program,
                                              const char **out_reason)
{
    core__prepared_calls *calls = atomic_load(&program->prepared);
    core__prepared_facts *facts = NULL;

    if (calls) {
        core__compiled_lock();
        facts = calls->facts;
        if (facts)
            atomic_fetch_add(&facts->references, 1);
        core__compiled_unlock();
    }
    *out_reason = calls ? atomic_load(&calls->reason) : NULL;
    return facts;
}

/* Makes a set with the groups and kernels of the last one, unless that one
 * has its own program. */
static core_status make_set(core_program *program, core_tensor *const *inputs,
                            core__prepared_calls *calls,
                            core__prepared **out_set, const char **out_reason)
{
    core__fusion *fusion = atomic_exchange(&calls->fusion, NULL);
    core__fusion *former = NULL;
    core_status status;

    if (fusion && !core__fusion_is_current(fusion)) {
        former = fusion;
        fusion = NULL;
    }
    status = core__prepare(program, inputs, fusion, out_set, out_reason);
    if (status == CORE_OK && !fusion && !(*out_set)->own)
        fusion = core__fusion_retain((*out_set)->fusion);
    core__fusion_release(former);
    core__fusion_release(atomic_exchange(&calls->fusion, fusion));
    return status;
}

static _Atomic uint64_t spent_ns;

uint64_t core__prepared_spent_ns(void)
{
    return atomic_load(&spent_ns);
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Makes a set; *out_set is NULL if there can be none. */
static core_status new_set(core_program *program, core_tensor *const *inputs,
                           core__prepared_calls *calls,
                           core__prepared **out_set)
{
    core__error_record saved;
    const char *reason;
    core_status status;
    uint64_t begin;

    if (atomic_load(&calls->reason) &&
        atomic_load(&calls->refused) == atomic_load(&core__registry_generation))
        return CORE_OK;
    core__error_save(&saved);
    begin = now_ns();
    status = make_set(program, inputs, calls, out_set, &reason);
    atomic_fetch_add(&spent_ns, now_ns() - begin);
    if (status == CORE_OK || status == CORE_ERROR_UNSUPPORTED)
        core__error_restore(&saved);
    if (status == CORE_ERROR_UNSUPPORTED) {
        atomic_store(&calls->refused, atomic_load(&core__registry_generation));
        atomic_store(&calls->reason, reason);
        replace_facts(calls, NULL);
        return CORE_OK;
    }
    if (status != CORE_OK)
        return status;
    atomic_store(&calls->reason, NULL);
    drop_one(calls);
    status = note_facts(program, calls, *out_set);
    if (status != CORE_OK) {
        core__prepared_free(*out_set);
        *out_set = NULL;
    }
    return status;
}

/* Takes a set, or makes one; *out_set is NULL if there can be none. */
core_status core__prepared_take(core_program *program,
                                core_tensor *const *inputs,
                                core__prepared_calls *calls,
                                const core_stream *stream,
                                core__prepared **out_set)
{
    core__prepared *former;
    core_status status = CORE_OK;

    *out_set = take(calls, core__thread_self(), stream, &former);
    if (core__likely(*out_set && !former))
        return CORE_OK;
    if (!*out_set)
        status = new_set(program, inputs, calls, out_set);
    core__prepared_free(former);
    return status;
}
