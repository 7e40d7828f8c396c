/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "random/generator.h"

#include "base/error.h"
#include "base/fork.h"
#include "base/memory.h"

#include <libcore/random.h>

#include <pthread.h>
#include <stdatomic.h>

struct core_generator {
    _Atomic uint32_t references;
    uint64_t seed;
    uint64_t offset; /* counter blocks of four 32-bit numbers used up */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static core_generator standard = {.seed = 0};

void core__generators_fork(core__fork at)
{
    core__fork_mutex(at, &lock);
}

void core__generator_skip(core_generator *generator, uint64_t blocks,
                          uint64_t *out_seed, uint64_t *out_offset)
{
    core_generator *from = generator ? generator : &standard;

    pthread_mutex_lock(&lock);
    *out_seed = from->seed;
    *out_offset = from->offset;
    from->offset += blocks;
    pthread_mutex_unlock(&lock);
}

void core__generator_take(core_generator *generator, uint64_t numel,
                          uint64_t *out_seed, uint64_t *out_offset)
{
    core__generator_skip(generator, core__generator_blocks(numel), out_seed,
                         out_offset);
}

void core_generator_set_state(core_generator *generator, uint64_t seed,
                              uint64_t offset)
{
    core_generator *to = generator ? generator : &standard;

    pthread_mutex_lock(&lock);
    to->seed = seed;
    to->offset = offset;
    pthread_mutex_unlock(&lock);
}

void core_generator_state(core_generator *generator, uint64_t *out_seed,
                          uint64_t *out_offset)
{
    core_generator *from = generator ? generator : &standard;

    pthread_mutex_lock(&lock);
    if (out_seed)
        *out_seed = from->seed;
    if (out_offset)
        *out_offset = from->offset;
    pthread_mutex_unlock(&lock);
}

void core_seed(uint64_t seed)
{
    core_generator_set_state(NULL, seed, 0);
}

void core_generator_seed(core_generator *generator, uint64_t seed)
{
    core_generator_set_state(generator, seed, 0);
}

core_status core_generator_create(uint64_t seed, core_generator **out_generator)
{
    core_generator *generator;

    CORE__NOT_NULL(out_generator);
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
