/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "leak_check.h"

#include "process_state.h"

#include <time.h>

/* All pauses together take two seconds. */
enum { ROUNDS = 12, PAUSE_US = 4000 };

/* Free memory; 0 where the device does not report it, so that nothing is ever
 * lost.  For a device in the host's memory: what this process does not use,
 * because the free memory depends on all other processes. */
static uint64_t left(plugin_tables *plugin)
{
    const uint32_t host = CORE_DEVICE_UNIFIED | CORE_DEVICE_HOST_ACCESS;
    uint64_t bytes = 0, total = 0;

    if ((plugin->properties.flags & host) == host)
        return UINT64_MAX / 2 - process_heap() - process_mapped();
    if (plugin->memory.info &&
        plugin->memory.info(plugin->device, &bytes, &total) != CORE_OK)
        bytes = 0;
    return bytes;
}

void leak_check_begin(leak_check *self, plugin_tables *plugin)
{
    long pause = (long)self->rounds * self->rounds * PAUSE_US * 1000;

    nanosleep(&(struct timespec){pause / 1000000000, pause % 1000000000}, NULL);
    self->before = left(plugin);
}

void leak_check_end(leak_check *self, plugin_tables *plugin, uint64_t part)
{
    self->rounds++;
    if (left(plugin) + part >= self->before)
        self->recovered = true;
}

bool leak_check_undecided(const leak_check *self)
{
    return !self->recovered && self->rounds < ROUNDS;
}
