/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Properties that a device reports, and counters of its use. */

#include "base/thread.h"
#include "device/device.h"

#include <libcore/device.h>

#include <string.h>

enum { DEFAULT_ULP = 4 };

void core__device_copy_struct(void *out, const void *from, size_t size)
{
    uint32_t struct_size;

    memcpy(&struct_size, out, sizeof struct_size);
    if (struct_size > size)
        struct_size = (uint32_t)size;
    memcpy(out, from, struct_size);
    memcpy(out, &struct_size, sizeof struct_size);
}

core_status core_device_get_counts(core_device *device, core_device_counts *out)
{
    core_device_counts counts = {0};

    CORE__NOT_NULL(device);
    CORE__NOT_NULL(out);
    CORE__CHECK_STRUCT_SIZE(out, core_device_counts);
    counts.launches =
        core__thread_launches(device->launch_slot) - device->launches_before;
    counts.fallbacks = atomic_load(&device->fallbacks);
    counts.graphs = atomic_load(&device->graphs);
    core__device_copy_struct(out, &counts, sizeof counts);
    return CORE_OK;
}

core_status core_device_get_numerics(core_device *device, core_numerics *out)
{
    core_numerics numerics = {.struct_size = sizeof numerics};
    core_status status = CORE_OK;
    uint32_t errors = core__error_sequence();

    CORE__NOT_NULL(device);
    CORE__NOT_NULL(out);
    CORE__CHECK_STRUCT_SIZE(out, core_numerics);
    CORE_TRY(core__device_check_process(device));
    if (device->interfaces.numerics.get)
        status = core__device_check_status(
            device, device->interfaces.numerics.get(device->impl, &numerics),
            errors);
    if (status == CORE_OK)
        core__device_copy_struct(out, &numerics, sizeof numerics);
    return status;
}

core_status core_device_function_ulp(core_device *device,
                                     const char *operator_name,
                                     core_dtype dtype, double *out)
{
    const core_numerics_interface *table;
    core_numerics numerics = {.struct_size = sizeof numerics};
    double ulp = 0;

    CORE__NOT_NULL(out);
    *out = 0;
    CORE__NOT_NULL(device);
    CORE__NOT_NULL(operator_name);
    CORE_TRY(core_device_get_numerics(device, &numerics));
    table = &device->interfaces.numerics;
    if (table->function_ulp)
        ulp = table->function_ulp(
            device->impl, (core_string){operator_name, strlen(operator_name)},
            dtype);
    if (!(ulp > 0))
        ulp = numerics.max_ulp;
    *out = ulp > 0 ? ulp : DEFAULT_ULP;
    return CORE_OK;
}

static core_status measure(core_device *device, uint32_t index,
                           core_measurement *out)
{
    return device->interfaces.telemetry.read
               ? device->interfaces.telemetry.read(device->impl, index, out)
               : CORE_ERROR_NOT_FOUND;
}

/* For an index behind the last one. */
static core_status no_measurement(core_device *device, uint32_t index)
{
    core_measurement one = {.struct_size = sizeof one};
    uint32_t count = 0;

    while (count < index && measure(device, count, &one) == CORE_OK)
        count++;
    return core__error(
        CORE_ERROR_NOT_FOUND,
        "core_device_measure: \"%s\" has no measurement %u; it has %u",
        device->name, index, count);
}

core_status core_device_measure(core_device *device, uint32_t index,
                                core_measurement *out)
{
    core_measurement one = {.struct_size = sizeof one};
    core_status status;
    uint32_t errors = core__error_sequence();

    CORE__NOT_NULL(device);
    CORE__NOT_NULL(out);
    CORE__CHECK_STRUCT_SIZE(out, core_measurement);
    CORE_TRY(core__device_check_process(device));
    status = measure(device, index, &one);
    if (status == CORE_ERROR_NOT_FOUND)
        return no_measurement(device, index);
    CORE_TRY(core__device_check_status(device, status, errors));
    core__device_copy_struct(out, &one, sizeof one);
    return CORE_OK;
}
