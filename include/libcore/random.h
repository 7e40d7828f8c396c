/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* random.h: generators of random numbers (Philox 4x32-10, indexed by element:
 * the same seed gives the same integers, uniforms and masks on every device
 * and with any number of threads).
 *
 * There is one default generator for the process, not one for each device or
 * thread: what a program draws after core_seed depends on the order of its
 * calls alone, so it has the same bits on any device, and however its work is
 * split among devices.  Who wants numbers of their own for a device or a thread
 * makes a generator of their own. */

#ifndef LIBCORE_RANDOM_H
#define LIBCORE_RANDOM_H

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Seeds the default generator, which random operators use when they are given
 * none.  Any thread. */
void core_seed(uint64_t seed);

/* A generator of one's own.  Any thread may draw from it; numbers then go to
 * the threads as they come.  A captured graph keeps those that it drew from. */
core_status core_generator_create(uint64_t seed,
                                  core_generator **out_generator);
/* Takes NULL. */
void core_generator_release(core_generator *generator);
/* In the next three NULL is the default generator. */
void core_generator_seed(core_generator *generator, uint64_t seed);
/* Its whole state: seed, and how many counter blocks were used up.  Either out
 * may be NULL. */
void core_generator_state(core_generator *generator, uint64_t *out_seed,
                          uint64_t *out_offset);
void core_generator_set_state(core_generator *generator, uint64_t seed,
                              uint64_t offset);

#ifdef __cplusplus
}
#endif
#endif
