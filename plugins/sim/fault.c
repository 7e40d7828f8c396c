/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "fault.h"

static const char *const kinds[SIM_FAULTS] = {
    "alloc",  "launch", "copy", "async", "lost",  "stream", "event",
    "record", "wait",   "host", "map",   "graph", "plan",
};

/* Requested by the environment; the device, or UINT32_MAX for all. */
static uint64_t counts[SIM_FAULTS];
static uint32_t target_device[SIM_FAULTS];

bool sim_fault_due(sim_device *device, uint32_t kind)
{
    _Atomic uint64_t *left = &device->faults[kind];
    uint64_t before = atomic_load_explicit(left, memory_order_relaxed);

    while (before > 0)
        if (atomic_compare_exchange_weak(left, &before, before - 1))
            break;
    if (before != 1)
        return false;
    atomic_fetch_add(&device->count.faults, 1);
    return true;
}

core_status sim_fault(sim_device *device, uint32_t kind)
{
    bool memory = kind == SIM_FAULT_ALLOC || kind == SIM_FAULT_HOST ||
                  kind == SIM_FAULT_MAP;

    if (!sim_fault_due(device, kind))
        return CORE_OK;
    return core_sdk_error(
        sim_host, memory ? CORE_ERROR_OUT_OF_MEMORY : CORE_ERROR_INTERNAL,
        "sim", "%s: injected failure of %s", device->name, kinds[kind]);
}

void sim_faults_open(sim_device *device)
{
    for (uint32_t i = 0; i < SIM_FAULTS; i++)
        atomic_store(&device->faults[i],
                     target_device[i] == UINT32_MAX ||
                             target_device[i] == device->index
                         ? counts[i]
                         : 0);
}

static bool digits(const char **at, const char *end, uint64_t *out)
{
    const char *first = *at;

    *out = 0;
    for (; *at < end && **at >= '0' && **at <= '9' && *at - first < 18; ++*at)
        *out = *out * 10 + (uint64_t)(**at - '0');
    return *at > first;
}

/* "alloc:3", "lost:100@1" */
static bool read_one(const char *at, const char *end)
{
    uint64_t count, device = UINT32_MAX;

    for (uint32_t i = 0; i < SIM_FAULTS; i++) {
        size_t size = strlen(kinds[i]);

        if ((size_t)(end - at) <= size || memcmp(at, kinds[i], size) != 0 ||
            at[size] != ':')
            continue;
        at += size + 1;
        if (!digits(&at, end, &count))
            return false;
        if (at < end && *at == '@') {
            at++;
            if (!digits(&at, end, &device) || device >= sim_set.devices)
                return false;
        }
        counts[i] = count;
        target_device[i] = (uint32_t)device;
        return at == end;
    }
    return false;
}

core_status sim_faults_read(void)
{
    core_string text = sim_host->setting(core_sdk_string("LIBCORE_SIM_FAULT"));
    const char *at = text.data;
    const char *end = text.data + text.size;

    memset(counts, 0, sizeof counts);
    while (at && at < end) {
        const char *comma = memchr(at, ',', (size_t)(end - at));

        if (!comma)
            comma = end;
        if (!read_one(at, comma))
            return core_sdk_error(
                sim_host, CORE_ERROR_INVALID_ARGUMENT, "sim",
                "LIBCORE_SIM_FAULT is \"%.*s\"; accepted: lists like "
                "alloc:3,lost:100@1, for %u devices",
                (int)text.size, text.data, (unsigned)sim_set.devices);
        at = comma + (comma < end);
    }
    return CORE_OK;
}
