/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* core.ranges: what a session sees is told to plugins whose vendor has a tool
 * that shows it.  One device of each backend is told, since threads and not
 * devices have ranges; it is kept for good, as some thread may be inside of
 * what it was told of. */

#include "device/device.h"
#include "dispatch/keys.h"
#include "profiler/profile.h"

#include <string.h>

/* Deeper stretches are not told.  A bit for each backend in a level's word. */
enum { DEPTH = 64 };

static core_device *_Atomic told[CORE__SLOTS];
static _Atomic uint32_t listeners; /* bits of `told` */

/* Which backends were told of each stretch that this thread is in: what began
 * before a plugin listened does not end for it. */
static _Thread_local struct {
    uint32_t depth;
    uint16_t levels[DEPTH];
} stack;

static void listen(uint32_t slot, core_device *device)
{
    atomic_store(&told[slot], core_device_retain(device));
    atomic_fetch_or(&listeners, 1u << slot);
}

/* A device that is opened later is found by the next round. */
void core__profile_ranges_find(void)
{
    core__device_lock();
    for (uint32_t slot = 0; slot < CORE__SLOTS; slot++) {
        core__backend *backend = core__backend_by_slot(slot);
        core_device *first = backend && backend->devices &&
                                     backend->device_count > 0 &&
                                     backend->device_count != UINT32_MAX
                                 ? backend->devices[0]
                                 : NULL;

        if (first && !first->forked && first->interfaces.ranges.begin &&
            first->interfaces.ranges.end && !atomic_load(&told[slot]))
            listen(slot, first);
    }
    core__device_unlock();
}

void core__profile_ranges_begin(const char *name)
{
    uint32_t bits = atomic_load_explicit(&listeners, memory_order_acquire);
    core_string text = {name, strlen(name)};

    if (stack.depth >= DEPTH)
        bits = 0;
    else
        stack.levels[stack.depth] = (uint16_t)bits;
    stack.depth++;
    for (; bits; bits &= bits - 1) {
        core_device *device = atomic_load(&told[__builtin_ctz(bits)]);

        if (!device->forked)
            device->interfaces.ranges.begin(device->impl, text);
    }
}

void core__profile_ranges_end(void)
{
    uint32_t bits;

    if (stack.depth == 0)
        return; /* a range that another thread began */
    stack.depth--;
    if (stack.depth >= DEPTH)
        return;
    for (bits = stack.levels[stack.depth]; bits; bits &= bits - 1) {
        core_device *device = atomic_load(&told[__builtin_ctz(bits)]);

        if (!device->forked)
            device->interfaces.ranges.end(device->impl);
    }
}
