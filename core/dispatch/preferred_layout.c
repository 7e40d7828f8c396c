/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The memory format in which a device prefers to compute an operator
 * (core.layout): queried once per operator, dtype and number of dimensions. */

#include "dispatch/preferred_layout.h"

#include "base/log.h"
#include "base/settings.h"
#include "dispatch/dispatch.h"

#include <libcore/device.h>
#include <libcore/dispatch.h>

#include <string.h>

static bool fits(uint32_t format, uint32_t ndim)
{
    return format == CORE_FORMAT_CONTIGUOUS ||
           (format == CORE_FORMAT_CHANNELS_LAST && ndim == 4) ||
           (format == CORE_FORMAT_CHANNELS_LAST_3D && ndim == 5);
}

static uint32_t query(core_device *device, const core_operator *op,
                      core_dtype dtype, uint32_t ndim)
{
    const char *name = core__operator_name(op);
    uint32_t format = device->interfaces.layout.preferred(
        device->impl, (core_string){name, strlen(name)}, dtype, ndim);

    if (fits(format, ndim))
        return format;
    core__log(CORE_LOG_WARNING, "device",
              "%s prefers for %s with %u dimensions the format %u, which does "
              "not apply to that number; contiguous memory is used",
              device->name, name, ndim, format);
    return CORE_FORMAT_CONTIGUOUS;
}

/* Results are cached as operator, dtype, dimensions and format in one 64-bit
 * value, which is read and written atomically; two results that share an entry
 * replace each other. */
uint32_t core__device_preferred_format(core_device *device,
                                       const core_operator *op,
                                       core_dtype dtype, uint32_t ndim)
{
    uint32_t key = 1u << 31 | (uint32_t)op->id << 11 | dtype << 6 | ndim;
    _Atomic uint64_t *place =
        &device->formats[(op->id * 31u + dtype * 7u + ndim) %
                         CORE__DEVICE_FORMATS];
    uint64_t cached = atomic_load_explicit(place, memory_order_relaxed);
    uint32_t format;

    if (!device->interfaces.layout.preferred || dtype >= CORE_DTYPE_LIMIT ||
        ndim > CORE_MAX_NDIM)
        return CORE_FORMAT_CONTIGUOUS;
    if (cached >> 32 == key)
        return (uint32_t)cached;
    format = query(device, op, dtype, ndim);
    if (op->id != UINT16_MAX) /* it may be unregistered, and its entry reused */
        atomic_store_explicit(place, (uint64_t)key << 32 | format,
                              memory_order_relaxed);
    return format;
}

bool core__layout_is_by_device(void)
{
    static _Atomic uint64_t known; /* generation of the settings, and the
                                    * result in the lowest bit */
    uint64_t now = ((uint64_t)core__settings_generation() + 1) << 1;
    uint64_t cached = atomic_load_explicit(&known, memory_order_relaxed);
    uint32_t choice = 0;

    if (core__likely((cached & ~UINT64_C(1)) == now))
        return cached & 1;
    if (core__setting_choice(CORE__SETTING_LAYOUT, &choice) != CORE_OK)
        choice = 0;
    atomic_store_explicit(&known, now | choice, memory_order_relaxed);
    return choice;
}

core_status core_device_preferred_format(core_device *device,
                                         const char *operator_name,
                                         core_dtype dtype, uint32_t ndim,
                                         uint32_t *out_format)
{
    core_operator *op;

    CORE__NOT_NULL(out_format);
    *out_format = CORE_FORMAT_CONTIGUOUS;
    CORE__NOT_NULL(device);
    CORE__NOT_NULL(operator_name);
    CORE_TRY(core__device_check_process(device));
    CORE_TRY(core_op_find(operator_name, &op));
    *out_format = core__device_preferred_format(device, op, dtype, ndim);
    return CORE_OK;
}

/* -------------------------------------------------------------- memory -- */

core_status core_device_memory_kinds(core_device *device, uint32_t *out_kinds)
{
    const core__interfaces *has;
    uint32_t kinds = 0;

    CORE__NOT_NULL(out_kinds);
    *out_kinds = 0;
    CORE__NOT_NULL(device);
    if (device->meta)
        return CORE_OK;
    CORE_TRY(core__device_check_process(device));
    has = &device->interfaces;
    kinds = device->flags & CORE_DEVICE_UNIFIED ? CORE_MEMORY_UNIFIED
                                                : CORE_MEMORY_DEVICE;
    if (device->flags & CORE_DEVICE_HOST_ACCESS)
        kinds |= CORE_MEMORY_HOST_VISIBLE;
    if (has->host_memory.alloc && has->host_memory.free)
        kinds |= CORE_MEMORY_PINNED;
    if (has->virtual_memory.reserve)
        kinds |= CORE_MEMORY_VIRTUAL;
    if (has->peer.copy)
        kinds |= CORE_MEMORY_PEER;
    *out_kinds = kinds;
    return CORE_OK;
}
