/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* generator.h: the state behind random operators (DESIGN.md 11). */

#ifndef CORE_RANDOM_GENERATOR_H
#define CORE_RANDOM_GENERATOR_H

#include "base/error.h"

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

#endif
