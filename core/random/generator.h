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

#endif
