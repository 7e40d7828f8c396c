/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* random.h: random number generators.
 *
 * The numbers are those of Philox 4x32-10 (Salmon et al. 2011), indexed by
 * element: the same seed produces the same integers, uniforms and masks on
 * every device and with any number of threads.
 *
 * The process has one default generator.  The numbers that a program draws
 * after core_seed depend only on the order of its calls, not on the devices or
 * on how the work is split among them.  After core_generator_default was called
 * for a device, that device has its own default generator, whose numbers do not
 * depend on other devices.  A thread that needs its own sequence creates a
 * generator.
 *
 * Every function here is thread-safe. */

#ifndef LIBCORE_RANDOM_H
#define LIBCORE_RANDOM_H

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A program that is recorded (compile.h, compiled.h) can draw from generators,
 * but not create, seed or read them: in a function that is being recorded,
 * core_generator_create and core_generator_state make the recording fail, and
 * so do core_seed, core_generator_seed and core_generator_set_state, which then
 * change nothing. */

/* Seeds the default generators of the process and of devices, which random
 * operators without a generator argument use. */
void core_seed(uint64_t seed);

/* Gets the default generator of a device; the caller owns one reference.  From
 * the first call on, random operators on this device without a generator
 * argument draw from it, until the process ends, even if the plugin is unloaded
 * and loaded again.  It starts with the current seed of the process's default
 * generator; devices with the same seed draw the same numbers.  Checkpoints
 * (saved.h) save and restore its state.  UNSUPPORTED for more than 64
 * devices. */
core_status core_generator_default(core_device *device,
                                   core_generator **out_generator);

/* Creates a generator.  The caller owns one reference.  If several threads draw
 * from it at once, the order of their calls decides who gets which numbers.  A
 * captured graph keeps references to the generators that it draws from. */
core_status core_generator_create(uint64_t seed,
                                  core_generator **out_generator);

/* Drops a reference.  Accepts NULL. */
void core_generator_release(core_generator *generator);

/* Sets the seed of a generator and restarts its sequence.  NULL: the default
 * generator of the process. */
void core_generator_seed(core_generator *generator, uint64_t seed);

/* Gets the state of a generator: its seed, and the number of counter blocks
 * that it has used.  Either `out` argument may be NULL.  generator NULL: the
 * default generator of the process. */
void core_generator_state(core_generator *generator, uint64_t *out_seed,
                          uint64_t *out_offset);

/* Sets the state of a generator.  NULL: the default generator of the
 * process. */
void core_generator_set_state(core_generator *generator, uint64_t seed,
                              uint64_t offset);

#ifdef __cplusplus
}
#endif
#endif
