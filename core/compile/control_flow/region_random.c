/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The state of generators before branches and loops (region_random.h). */

#include "compile/control_flow/region_random.h"

#include "base/memory.h"
#include "device/device.h"
#include "random/generator.h"

#include <libcore/tensor.h>

/* -------------------------------------------------------------- finding -- */

static void add(core__region_random *random, core_generator *generator)
{
    for (uint32_t i = 0; i < random->count; i++)
        if (random->generators[i] == generator)
            return;
    random->generators[random->count++] = generator;
}

/* The device of this run that is one of a region. */
static core_device *device_of(const core_program *program,
                              core_device *const *devices,
                              const core_device *recorded)
{
    uint32_t i = 0;

    while (program->devices[i] != recorded)
        i++;
    return devices[i];
}

core_status core__region_random_find(const core_program *program,
                                     const core__program_node *node,
                                     core_device *const *devices,
                                     core__region_random *out)
{
    uint32_t nregions = core__region_count(node);
    uint32_t most = core__region_most_generators(node->regions, nregions);
    size_t size = most * (sizeof *out->generators + sizeof *out->states);

    *out = (core__region_random){.generators = core__alloc_zero(size)};
    if (!out->generators)
        return core__error_memory(size);
    out->states = (void *)(out->generators + most);
    for (uint32_t i = 0; i < nregions; i++) {
        const core_program *region = node->regions[i];

        for (uint32_t k = 0; k < region->ndevices; k++)
            add(out,
                core__generator_default_find(
                    device_of(program, devices, region->devices[k])->name));
        for (uint32_t k = 0; k < region->ngenerators; k++)
            add(out, region->generators[k]);
    }
    return CORE_OK;
}

void core__region_random_free(core__region_random *random)
{
    core__free(random->generators);
    *random = (core__region_random){0};
}

/* --------------------------------------------------------------- states -- */

void core__region_random_watch(const core__region_random *random,
                               core__generator_watch *watch,
                               core__generator_state *states)
{
    core__generator_watch_begin(watch, random->generators, random->count,
                                states);
}

core_status core__region_random_check(const core__generator_watch *watch)
{
    if (core__generator_watch_holds(watch))
        return CORE_OK;
    return core__error(CORE_ERROR_REFUSED,
                       "core_program_run: another thread used a generator from "
                       "which a branch or loop, or its gradient, draws random "
                       "numbers while it ran; give each thread its own "
                       "generator, or let one wait for the other");
}

void core__region_random_get(const core__region_random *random,
                             core__generator_state *states)
{
    for (uint32_t i = 0; i < random->count; i++)
        core__generator_advance(random->generators[i], 0, &states[i][0],
                                &states[i][1]);
}

void core__region_random_set(const core__region_random *random,
                             const core__generator_state *states)
{
    for (uint32_t i = 0; i < random->count; i++)
        core__generator_state_set(random->generators[i], states[i][0],
                                  states[i][1]);
}

core_status core__region_random_save(const core__region_random *random,
                                     int64_t size, core_device *device,
                                     core_tensor **out_state)
{
    int64_t(*entries)[CORE__REGION_STATE_ENTRY] =
        core__alloc((size_t)size * sizeof(int64_t) + 1);
    core_status status;

    *out_state = NULL;
    if (!entries)
        return core__error_memory((size_t)size * sizeof(int64_t));
    for (uint32_t i = 0; i < (uint32_t)(size / CORE__REGION_STATE_ENTRY); i++) {
        uint32_t from = i < random->count ? i : 0; /* the first, again */

        entries[i][0] = (int64_t)(uintptr_t)random->generators[from];
        entries[i][1] = (int64_t)random->states[from][0];
        entries[i][2] = (int64_t)random->states[from][1];
    }
    status =
        core_tensor_from_data(entries, CORE_I64, &size, 1, device, out_state);
    core__free(entries);
    return status;
}

static core_status find_entry(
    const core__region_random *random, uint32_t of,
    const int64_t (*entries)[CORE__REGION_STATE_ENTRY], int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (entries[i][0] == (int64_t)(uintptr_t)random->generators[of]) {
            random->states[of][0] = (uint64_t)entries[i][1];
            random->states[of][1] = (uint64_t)entries[i][2];
            return CORE_OK;
        }
    return core__error(CORE_ERROR_REFUSED,
                       "core_program_run: a generator was created between a "
                       "branch or loop and its gradient, which must draw the "
                       "same random numbers");
}

core_status core__region_random_load(core__region_random *random,
                                     core_tensor *state)
{
    size_t size = (size_t)state->numel * sizeof(int64_t);
    int64_t(*entries)[CORE__REGION_STATE_ENTRY] = core__alloc(size + 1);
    core_status status;

    if (!entries)
        return core__error_memory(size);
    status = core_tensor_read(state, entries, size);
    for (uint32_t i = 0; i < random->count && status == CORE_OK; i++)
        status = find_entry(random, i,
                            (const int64_t(*)[CORE__REGION_STATE_ENTRY])entries,
                            state->numel / CORE__REGION_STATE_ENTRY);
    core__free(entries);
    return status;
}
