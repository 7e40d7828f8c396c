/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "room.h"

#include "manners.h"

#include <time.h>

/* All pauses together are two seconds. */
enum { ROUNDS = 12, PAUSE_US = 4000 };

/* 0 where the device does not tell, so that nothing is ever lost.  Of a device
 * in the host's memory, what this process does not use: how much of it is free
 * depends on all others. */
static uint64_t left(raw *plugin)
{
    const uint32_t host = CORE_DEVICE_UNIFIED | CORE_DEVICE_HOST_ACCESS;
    uint64_t bytes = 0, total = 0;

    if ((plugin->properties.flags & host) == host)
        return UINT64_MAX / 2 - manners_heap() - manners_mapped();
    if (plugin->memory.info &&
        plugin->memory.info(plugin->device, &bytes, &total) != CORE_OK)
        bytes = 0;
    return bytes;
}

void room_begin(room *self, raw *plugin)
{
    long pause = (long)self->rounds * self->rounds * PAUSE_US * 1000;

    nanosleep(&(struct timespec){pause / 1000000000, pause % 1000000000}, NULL);
    self->before = left(plugin);
}

void room_end(room *self, raw *plugin, uint64_t part)
{
    self->rounds++;
    if (left(plugin) + part >= self->before)
        self->rests = true;
}

bool room_unsure(const room *self)
{
    return !self->rests && self->rounds < ROUNDS;
}
