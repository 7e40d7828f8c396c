/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "random/generator.h"

#include "base/error.h"
#include "base/fork.h"
#include "base/memory.h"
#include "base/thread.h"
#include "random/upcalls.h"

#include <libcore/random.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

struct core_generator {
    _Atomic uint32_t references;
    uint64_t seed;
    uint64_t offset; /* counter blocks of four 32-bit numbers already used */
};

/* Guards everything below, and every generator's state. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static core_generator process_default = {.seed = 0};

/* Devices that have a default generator, in the order of its
 * creation.  Stored by name, so that it outlives the open device. */
static struct {
    char name[40];
    core_generator generator;
} own[CORE__GENERATORS];
static uint32_t known;          /* entries of `own` */
static _Atomic uint32_t active; /* entries in use */

void core__generators_fork(core__fork_phase at)
{
    core__fork_mutex(at, &lock);
}

/* ------------------------------------------------------------- watches -- */

static core_generator *or_default(core_generator *generator)
{
    return generator ? generator : &process_default;
}

/* This thread's watches expect the new state of a generator.  With the lock
 * held, before the state changes. */
static void __attribute__((noinline))
expect(core__generator_watch *watch, const core_generator *generator,
       uint64_t seed, uint64_t offset)
{
    for (; watch; watch = watch->outer)
        for (uint32_t i = 0; i < watch->count; i++)
            if (or_default(watch->generators[i]) == generator) {
                watch->seeds += seed - generator->seed;
                watch->offsets += offset - generator->offset;
            }
}

/* With the lock held. */
static void change(core_generator *generator, uint64_t seed, uint64_t offset)
{
    core__generator_watch *watch = core__thread_self()->generator_watches;

    if (core__unlikely(watch != NULL))
        expect(watch, generator, seed, offset);
    generator->seed = seed;
    generator->offset = offset;
}

void core__generator_watch_begin(core__generator_watch *watch,
                                 core_generator *const *generators,
                                 uint32_t count, uint64_t (*out_states)[2])
{
    core__thread *self = core__thread_self();

    *watch = (core__generator_watch){generators, count, 0, 0,
                                     self->generator_watches};
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < count; i++) {
        const core_generator *from = or_default(generators[i]);

        out_states[i][0] = from->seed;
        out_states[i][1] = from->offset;
        watch->seeds += from->seed;
        watch->offsets += from->offset;
    }
    pthread_mutex_unlock(&lock);
    self->generator_watches = watch;
}

bool core__generator_watch_holds(const core__generator_watch *watch)
{
    uint64_t seeds = 0, offsets = 0;

    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < watch->count; i++) {
        const core_generator *from = or_default(watch->generators[i]);

        seeds += from->seed;
        offsets += from->offset;
    }
    pthread_mutex_unlock(&lock);
    return seeds == watch->seeds && offsets == watch->offsets;
}

void core__generator_watch_end(core__generator_watch *watch)
{
    core__thread_self()->generator_watches = watch->outer;
}

/* -------------------------------------------------------------- states -- */

void core__generator_advance(core_generator *generator, uint64_t blocks,
                             uint64_t *out_seed, uint64_t *out_offset)
{
    core_generator *from = or_default(generator);

    pthread_mutex_lock(&lock);
    *out_seed = from->seed;
    *out_offset = from->offset;
    change(from, from->seed, from->offset + blocks);
    pthread_mutex_unlock(&lock);
}

void core__generator_advance_for(core_generator *generator, uint64_t numel,
                                 uint64_t *out_seed, uint64_t *out_offset)
{
    core__generator_advance(generator, core__generator_blocks(numel), out_seed,
                            out_offset);
}

/* True if the thread records a program, which cannot contain the call: the
 * recording fails, and nothing changes.  What is read would be a constant of
 * the program.  A lazy region first draws what it has recorded. */
static bool is_recording(const char *name)
{
    core__thread_cut_later(name);
    if (core__likely(core__thread_self()->trace == NULL ||
                     core__thread_self()->lazy))
        return false;
    core__random_upcalls.refuse_recording(name);
    return true;
}

void core__generator_state_set(core_generator *generator, uint64_t seed,
                               uint64_t offset)
{
    pthread_mutex_lock(&lock);
    change(or_default(generator), seed, offset);
    pthread_mutex_unlock(&lock);
}

void core_generator_set_state(core_generator *generator, uint64_t seed,
                              uint64_t offset)
{
    if (!is_recording(__func__))
        core__generator_state_set(generator, seed, offset);
}

void core_generator_state(core_generator *generator, uint64_t *out_seed,
                          uint64_t *out_offset)
{
    core_generator *from = or_default(generator);

    is_recording(__func__);
    pthread_mutex_lock(&lock);
    if (out_seed)
        *out_seed = from->seed;
    if (out_offset)
        *out_offset = from->offset;
    pthread_mutex_unlock(&lock);
}

void core_seed(uint64_t seed)
{
    if (is_recording(__func__))
        return;
    pthread_mutex_lock(&lock);
    change(&process_default, seed, 0);
    for (uint32_t i = 0; i < known; i++)
        change(&own[i].generator, seed, 0);
    pthread_mutex_unlock(&lock);
}

/* ------------------------------------------------------------- devices -- */

/* With the lock held; returns `count` if there is no entry of that name. */
static uint32_t find(const char *name, uint32_t count)
{
    uint32_t i = 0;

    while (i < count && strcmp(own[i].name, name) != 0)
        i++;
    return i;
}

core_generator *core__generator_default_find(const char *device)
{
    core_generator *generator = NULL;
    uint32_t i;

    if (atomic_load(&active) == 0)
        return NULL;
    pthread_mutex_lock(&lock);
    i = find(device, active);
    if (i < active)
        generator = &own[i].generator;
    pthread_mutex_unlock(&lock);
    return generator;
}

core_generator *core__generator_default_create(const char *device)
{
    core_generator *generator = NULL;
    uint32_t i;

    pthread_mutex_lock(&lock);
    i = find(device, known);
    if (i == known && known < CORE__GENERATORS) {
        snprintf(own[i].name, sizeof own[i].name, "%s", device);
        own[i].generator.seed = process_default.seed;
        own[i].generator.offset = 0;
        atomic_init(&own[i].generator.references, 1); /* never released */
        known++;
    }
    if (i < known) {
        active = known;
        generator = &own[i].generator;
        core__generator_retain(generator);
    }
    pthread_mutex_unlock(&lock);
    return generator;
}

void core__generators_save(core__generators *state)
{
    core__thread_cut_later(__func__);
    pthread_mutex_lock(&lock);
    state->count = active;
    state->states[0][0] = process_default.seed;
    state->states[0][1] = process_default.offset;
    for (uint32_t i = 0; i < active; i++) {
        state->states[1 + i][0] = own[i].generator.seed;
        state->states[1 + i][1] = own[i].generator.offset;
    }
    pthread_mutex_unlock(&lock);
}

void core__generators_restore(const core__generators *state, bool past)
{
    pthread_mutex_lock(&lock);
    if (past || active < state->count)
        active = state->count;
    change(&process_default, state->states[0][0], state->states[0][1]);
    for (uint32_t i = 0; i < state->count; i++)
        change(&own[i].generator, state->states[1 + i][0],
               state->states[1 + i][1]);
    pthread_mutex_unlock(&lock);
}

/* ------------------------------------------------- explicit generators -- */

void core_generator_seed(core_generator *generator, uint64_t seed)
{
    if (!is_recording(__func__))
        core__generator_state_set(generator, seed, 0);
}

core_status core_generator_create(uint64_t seed, core_generator **out_generator)
{
    core_generator *generator;

    CORE__NOT_NULL(out_generator);
    is_recording(__func__); /* a program would not start it again */
    generator = core__alloc_zero(sizeof *generator);
    *out_generator = generator;
    if (!generator)
        return core__error_memory(sizeof *generator);
    atomic_init(&generator->references, 1);
    generator->seed = seed;
    return CORE_OK;
}

void core__generator_retain(core_generator *generator)
{
    if (generator)
        atomic_fetch_add(&generator->references, 1);
}

void core_generator_release(core_generator *generator)
{
    if (generator && atomic_fetch_sub(&generator->references, 1) == 1)
        core__free(generator);
}
