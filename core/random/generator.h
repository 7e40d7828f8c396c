/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* generator.h: the state of random operators (docs/architecture.md, Decisions
 * 11). */

#ifndef CORE_RANDOM_GENERATOR_H
#define CORE_RANDOM_GENERATOR_H

#include "base/fork.h"
#include "base/error.h"

#include <stdbool.h>

/* Returns the seed and the first counter block for an operator with numel
 * elements, and advances the generator past its blocks.  NULL: the default
 * generator. */
void core__generator_advance_for(core_generator *generator, uint64_t numel,
                                 uint64_t *out_seed, uint64_t *out_offset);
/* The counter blocks of a call with numel elements: one per element, enough
 * for doubles and pairs. */
static inline uint64_t core__generator_blocks(uint64_t numel)
{
    return numel > 0 ? numel : 1;
}
/* Advances the generator by a number of blocks. */
void core__generator_advance(core_generator *generator, uint64_t blocks,
                             uint64_t *out_seed, uint64_t *out_offset);
/* Generators whose states change only as this thread changes them, while it is
 * watched.  Fields are private. */
typedef struct core__generator_watch {
    core_generator *const *generators; /* NULL: the default one; borrowed */
    uint32_t count;
    /* The sums over the generators that this thread must find. */
    uint64_t seeds, offsets;
    struct core__generator_watch *outer;
} core__generator_watch;

/* Begins to watch, and reads the states at the same time: out_states has a seed
 * and an offset for each generator.  The generators differ.  The watches of a
 * thread end in the reverse order of their beginning. */
void core__generator_watch_begin(core__generator_watch *watch,
                                 core_generator *const *generators,
                                 uint32_t count, uint64_t (*out_states)[2]);
/* False if another thread has changed a state since the beginning. */
bool core__generator_watch_holds(const core__generator_watch *watch);
void core__generator_watch_end(core__generator_watch *watch);

/* core_generator_set_state, also while the thread records. */
void core__generator_state_set(core_generator *generator, uint64_t seed,
                               uint64_t offset);
/* Adds a reference; accepts NULL. */
void core__generator_retain(core_generator *generator);
/* The generator of calls on the named device that are given none; NULL: the
 * default generator of the process. */
core_generator *core__generator_default_find(const char *device);
/* Returns the device's default generator with a reference, and creates it if
 * needed.  NULL if there are too many. */
core_generator *core__generator_default_create(const char *device);

/* The states of the default generators of the process and of devices.  To draw
 * the same numbers again, a past state is restored: a device that had no
 * generator then has none again, until the later state is restored. */
enum { CORE__GENERATORS = 64 };
typedef struct core__generators {
    uint32_t count;
    uint32_t reserved;
    uint64_t states[1 + CORE__GENERATORS][2]; /* seed, offset */
} core__generators;

void core__generators_save(core__generators *state);
void core__generators_restore(const core__generators *state, bool past);

/* Fork handler of the default generators. */
void core__generators_fork(core__fork_phase at);

#endif
