/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The autocast regions of a thread, innermost first.  Each stores the enclosing
 * state, so that ending one also ends those inside it. */

#include "autocast/autocast.h"

#include "autocast/thread_end.h"
#include "base/memory.h"
#include "device/device.h"
#include "tensor/dtype.h"

#include <string.h>

typedef struct core__autocast_region region;
struct core__autocast_region {
    region *outer;
    uint64_t number;
    uint8_t before[CORE__SLOTS];
    bool cached_before;
};

/* Unique across threads, so that a number of one thread is invalid in
 * another. */
static _Atomic uint64_t numbers;

static void update_key(core__thread *self)
{
    uint64_t any = 0;

    for (uint32_t i = 0; i < CORE__SLOTS; i++)
        any |= self->autocast[i];
    if (any)
        self->included |= CORE__KEY_AUTOCAST;
    else
        self->included &= ~CORE__KEY_AUTOCAST;
}

static core_status check(const core_device *device, core_dtype dtype,
                         uint32_t flags)
{
    if (flags & ~(uint32_t)(CORE_AUTOCAST_OFF | CORE_AUTOCAST_NO_CACHE))
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_autocast_begin: the flags are 0x%x; accepted: "
                           "CORE_AUTOCAST_OFF and CORE_AUTOCAST_NO_CACHE",
                           flags);
    if (flags & CORE_AUTOCAST_OFF || dtype == CORE_BF16 || dtype == CORE_F16)
        return CORE_OK;
    return core__error(
        CORE_ERROR_DTYPE,
        "core_autocast_begin on \"%s\": dtype is %s; it must be bf16 or f16",
        device->name, core__dtype_name(dtype));
}

core_status core_autocast_begin(core_device *device, core_dtype dtype,
                                uint32_t flags, uint64_t *out_region)
{
    core__thread *self = core__thread_self();
    uint32_t slot;
    region *region;

    CORE__NOT_NULL(out_region);
    *out_region = 0;
    CORE__NOT_NULL(device);
    if (dtype == CORE_DTYPE_NONE)
        dtype = CORE_BF16;
    CORE_TRY(check(device, dtype, flags));
    region = self->shared ? NULL : core__alloc(sizeof *region);
    if (!region)
        return core__error_memory(sizeof *region);
    slot = core__keys_slot(device->keys);
    region->outer = self->autocast_regions;
    region->number = atomic_fetch_add(&numbers, 1) + 1;
    region->cached_before = self->autocast_cached;
    memcpy(region->before, self->autocast, sizeof region->before);
    self->autocast_regions = region;
    self->autocast[slot] =
        flags & CORE_AUTOCAST_OFF ? (uint8_t)CORE_DTYPE_NONE : (uint8_t)dtype;
    self->autocast_cached = !(flags & CORE_AUTOCAST_NO_CACHE);
    update_key(self);
    *out_region = region->number;
    return CORE_OK;
}

static void pop(core__thread *self)
{
    region *region = self->autocast_regions;

    self->autocast_regions = region->outer;
    self->autocast_cached = region->cached_before;
    memcpy(self->autocast, region->before, sizeof region->before);
    core__free(region);
}

core_status core_autocast_end(uint64_t number)
{
    core__thread *self = core__thread_self();
    region *at = self->autocast_regions;
    bool last = false;

    while (at && at->number != number)
        at = at->outer;
    if (!at)
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "core_autocast_end: %llu is not an open region of this thread; it "
            "has ended or began in another thread",
            (unsigned long long)number);
    if (number <= self->autocast_outer)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "core_autocast_end: the region began outside of the "
                           "function that is recorded, which cannot end it");
    while (!last) {
        last = self->autocast_regions->number == number;
        pop(self);
    }
    update_key(self);
    if (!self->autocast_regions)
        core__autocast_cache_clear(self);
    return CORE_OK;
}

uint64_t core__autocast_mark(const core__thread *self)
{
    return self->autocast_regions ? self->autocast_regions->number : 0;
}

void core__autocast_unwind(core__thread *self, uint64_t mark)
{
    if (core__autocast_mark(self) <= mark)
        return;
    while (core__autocast_mark(self) > mark)
        pop(self);
    update_key(self);
    if (!self->autocast_regions)
        core__autocast_cache_clear(self);
}

core_dtype core_autocast_dtype(const core_device *device)
{
    const core__thread *self = core__thread_self();

    if (!device || self->excluded & CORE__KEY_AUTOCAST)
        return CORE_DTYPE_NONE;
    return (core_dtype)self->autocast[core__keys_slot(device->keys)];
}

void core_autocast_clear_cache(void)
{
    core__autocast_cache_clear(core__thread_self());
}

void core__autocast_thread_end(core__thread *self)
{
    core__autocast_cache_clear(self);
    while (self->autocast_regions)
        pop(self);
}
