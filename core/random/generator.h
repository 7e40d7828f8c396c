/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* generator.h: the state behind random operators (docs/architecture.md,
 * Decisions 11). */

#ifndef CORE_RANDOM_GENERATOR_H
#define CORE_RANDOM_GENERATOR_H

#include "base/fork.h"
#include "base/error.h"

#include <stdbool.h>

/* The seed, and the first of the counter blocks that an operator of numel
 * elements may use; they are used up.  NULL: the default generator. */
void core__generator_take(core_generator *generator, uint64_t numel,
                          uint64_t *out_seed, uint64_t *out_offset);
/* The counter blocks of a call of numel elements: one per element, enough for
 * doubles and pairs. */
static inline uint64_t core__generator_blocks(uint64_t numel)
{
    return numel > 0 ? numel : 1;
}
/* Uses up a number of blocks. */
void core__generator_skip(core_generator *generator, uint64_t blocks,
                          uint64_t *out_seed, uint64_t *out_offset);
/* What keeps one; NULL: nothing to do. */
void core__generator_retain(core_generator *generator);
/* What a call on the device of this name draws from that is given no generator;
 * NULL: the default one of the process. */
core_generator *core__generator_of(const char *device);
/* Makes one if there is none; referenced.  NULL: there are too many. */
core_generator *core__generator_make(const char *device);

/* The default generators of the process and of devices at a time.  To draw the
 * same numbers again, a state of the past is restored: a device that had none
 * then has none, until the state before that is restored. */
enum { CORE__GENERATORS = 64 };
typedef struct core__generators {
    uint32_t count;
    uint32_t reserved;
    uint64_t states[1 + CORE__GENERATORS][2]; /* seed, offset */
} core__generators;

void core__generators_save(core__generators *state);
void core__generators_restore(const core__generators *state, bool past);

/* Fork handler of the default generators. */
void core__generators_fork(core__fork at);

#endif
