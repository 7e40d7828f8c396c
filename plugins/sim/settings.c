/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The properties of the devices: read once, when the plugin is loaded. */

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
                          "%s is \"%.*s\"; accepted: numbers from %llu to %llu",
                          name, (int)text.size, text.data,
                          (unsigned long long)least, (unsigned long long)most);
}

static core_status word(const char *name, const char *const *words,
                        uint32_t *value)
{
    core_string text = sim_host->setting(core_sdk_string(name));

    if (!text.data || text.size == 0)
        return CORE_OK;
    for (uint32_t i = 0; words[i]; i++) {
        if (core_sdk_string_equal(text, words[i])) {
            *value = i;
            return CORE_OK;
        }
    }
    return core_sdk_error(sim_host, CORE_ERROR_INVALID_ARGUMENT, "sim",
                          "%s is \"%.*s\"; accepted: %s or %s", name,
                          (int)text.size, text.data, words[0], words[1]);
}

static core_status powers(void)
{
    if (sim_set.alignment & (sim_set.alignment - 1))
        return core_sdk_error(
            sim_host, CORE_ERROR_INVALID_ARGUMENT, "sim",
            "LIBCORE_SIM_ALIGNMENT is %llu; accepted: powers of two",
            (unsigned long long)sim_set.alignment);
    return CORE_OK;
}

core_status sim_settings_read(void)
{
    static const char *const memories[] = {"handle", "flat", NULL};
    static const struct {
        const char *name;
        uint64_t least, most, default_value;
        uint64_t *value;
    } numbers[] = {
        {"DEVICES", 0, SIM_DEVICES, 2, &sim_set.devices},
        {"QUEUES", 0, 1024, 0, &sim_set.queues},
        {"COPY_QUEUES", 0, 1024, 1, &sim_set.copy_queues},
        {"SEED", 0, UINT64_MAX, 1, &sim_set.seed},
        {"DELAY_US", 0, 10000000, 0, &sim_set.delay_us},
        {"CHECK", 0, 1, 0, &sim_set.check},
        {"BYTES", 1, UINT64_C(1) << 40, UINT64_C(4) << 30, &sim_set.bytes},
        {"ALIGNMENT", 8, 1 << 16, 64, &sim_set.alignment},
        {"GRANULARITY", 1, 1 << 30, 64, &sim_set.granularity},
        {"TAIL", 0, 1 << 20, 0, &sim_set.tail},
        {"LARGEST", 0, UINT64_MAX, 0, &sim_set.largest},
        {"COMPILE", 0, 1, 0, &sim_set.compile},
        {"ALLOCATOR", 0, 1, 0, &sim_set.own},
        {"PROFILER", 0, 2, 1, &sim_set.profiler},
        {"LAYOUT", 0, 1, 0, &sim_set.layout},
        {"CODEGEN", 0, 1, 1, &sim_set.codegen},
    };
    core_status status = CORE_OK;
    uint32_t flat = 0;
    char name[64];

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        *numbers[i].value = numbers[i].default_value;
        snprintf(name, sizeof name, "LIBCORE_SIM_%s", numbers[i].name);
        status =
            number(name, numbers[i].least, numbers[i].most, numbers[i].value);
        if (status != CORE_OK)
            return status;
    }
    status = word("LIBCORE_SIM_MEMORY", memories, &flat);
    sim_set.flat = flat;
    return status == CORE_OK ? powers() : status;
}
