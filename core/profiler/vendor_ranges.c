/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* core.ranges: passes the session's events on as ranges to plugins whose vendor
 * has a tool that shows them.  Ranges belong to threads, not devices, so one
 * device per backend is used; it is retained forever, since some thread may
 * still be inside a range. */

#include "device/device.h"
#include "base/keys.h"
#include "profiler/profile.h"

#include <string.h>

/* Deeper ranges are not passed on. */
enum { DEPTH = 64 };

static core_device *_Atomic range_devices[CORE__SLOTS];
static _Atomic uint32_t listeners; /* bits: slots of `range_devices` */

/* The open ranges of this thread with their tokens, and the backends each was
 * passed to: a range that began before a plugin listened is not ended for
 * it. */
static _Thread_local struct {
    uint32_t depth;
    uint32_t backends[DEPTH]; /* bits: slots of `range_devices` */
    uint64_t tokens[DEPTH];
} stack;

static void add_listener(uint32_t slot, core_device *device)
{
    atomic_store(&range_devices[slot], core_device_retain(device));
    atomic_fetch_or(&listeners, 1u << slot);
}

/* A device opened later is found when the next round starts. */
void core__profile_ranges_add_listeners(void)
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
            first->interfaces.ranges.end && !atomic_load(&range_devices[slot]))
            add_listener(slot, first);
    }
    core__device_unlock();
}

void core__profile_ranges_begin(uint64_t token, const char *name)
{
    uint32_t bits = atomic_load_explicit(&listeners, memory_order_acquire);
    core_string text = {name, strlen(name)};

    if (!bits || stack.depth == DEPTH)
        return;
    stack.backends[stack.depth] = bits;
    stack.tokens[stack.depth++] = token;
    for (; bits; bits &= bits - 1) {
        core_device *device = atomic_load(&range_devices[__builtin_ctz(bits)]);

        if (!device->forked)
            device->interfaces.ranges.begin(device->impl, text);
    }
}

static void leave_innermost(void)
{
    for (uint32_t bits = stack.backends[--stack.depth]; bits;
         bits &= bits - 1) {
        core_device *device = atomic_load(&range_devices[__builtin_ctz(bits)]);

        if (!device->forked)
            device->interfaces.ranges.end(device->impl);
    }
}

void core__profile_ranges_end(uint64_t token)
{
    uint32_t level = stack.depth;

    while (level > 0 && stack.tokens[level - 1] != token)
        level--;
    if (level == 0)
        return; /* not passed on, or begun by another thread */
    while (stack.depth >= level)
        leave_innermost();
}
