/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* What the devices are like: read once, when the plugin is loaded. */

#include "sim.h"

sim_settings sim_set;

static core_status number(const char *name, uint64_t least, uint64_t most,
                          uint64_t *value)
{
    core_string text = sim_host->setting(core_sdk_string(name));
    uint64_t read = 0;

    if (!text.data || text.size == 0)
        return CORE_OK;
    for (uint64_t i = 0; i < text.size; i++) {
        if (text.data[i] < '0' || text.data[i] > '9' ||
            read > (UINT64_MAX - 9) / 10)
            goto refuse;
        read = read * 10 + (uint64_t)(text.data[i] - '0');
    }
    if (read < least || read > most)
        goto refuse;
    *value = read;
    return CORE_OK;
refuse:
    return core_sdk_error(sim_host, CORE_ERROR_INVALID_ARGUMENT, "sim",
                          "%s is \"%.*s\"; a number from %llu to %llu is "
                          "wanted",
                          name, (int)text.size, text.data,
                          (unsigned long long)least, (unsigned long long)most);
}

core_status sim_settings_read(void)
{
    uint64_t devices = 2, queues = 0, seed = 1, delay = 0;
    core_status status;

    status = number("LIBCORE_SIM_DEVICES", 0, SIM_DEVICES, &devices);
    if (status == CORE_OK)
        status = number("LIBCORE_SIM_QUEUES", 0, 1024, &queues);
    if (status == CORE_OK)
        status = number("LIBCORE_SIM_SEED", 0, UINT64_MAX, &seed);
    if (status == CORE_OK)
        status = number("LIBCORE_SIM_DELAY_US", 0, 10000000, &delay);
    sim_set.devices = (uint32_t)devices;
    sim_set.queues = (uint32_t)queues;
    sim_set.seed = seed;
    sim_set.delay_us = delay;
    return status;
}
