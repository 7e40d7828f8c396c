/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* random.h: generators of random numbers (Philox 4x32-10, indexed by element:
 * the same seed gives the same integers, uniforms and masks on every device
 * and with any number of threads).
 *
 * There is one default generator for the process: what a program draws after
 * core_seed depends on the order of its calls alone, so it has the same bits on
 * any device, and however its work is split among devices.  A device has a
 * default generator of its own once core_generator_default was called for it:
 * what it draws then does not depend on other devices.  Who wants numbers of
 * their own for a thread makes a generator of their own. */

#ifndef LIBCORE_RANDOM_H
#define LIBCORE_RANDOM_H

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Seeds the default generators, of the process and of devices, which random
 * operators use when they are given none.  Any thread. */
void core_seed(uint64_t seed);

/* The default generator of a device, to be released.  From the first call on,
 * random operators on this device that are given none draw from it, as long as
 * the process lives, also after its plugin was unloaded and loaded again.  It begins
 * with the seed of the process's at that time; devices of one seed draw the same
 * numbers.  Its state is saved and restored with the calls below; checkpoints
 * (saved.h) do so by themselves.  UNSUPPORTED for more than 64 devices. */
core_status core_generator_default(core_device *device,
                                   core_generator **out_generator);

/* A generator of one's own.  Any thread may draw from it; numbers then go to
 * the threads as they come.  A captured graph keeps those that it drew from. */
core_status core_generator_create(uint64_t seed,
                                  core_generator **out_generator);
/* Takes NULL. */
void core_generator_release(core_generator *generator);
/* In the next three NULL is the default generator of the process. */
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
