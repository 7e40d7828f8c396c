/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "device.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <libcore/sdk.h>

#include "codegen/native.h"
#include "cpu.h"
#include "isa.h"
#include "runtime/once.h"
#include "runtime/thread_pool.h"

/* Strings of the device's information, which must stay valid as long as
 * that. */
static struct {
    char name[128];
    char driver[128];
    char features[128];
} texts;
static cpu_once_state texts_once;

#if defined(__x86_64__)

/* CPUID returns it at once; /proc/cpuinfo first queries every core. */
static void read_model(char *text, size_t size)
{
    unsigned int words[12];
    const char *name = (const char *)words;
    char copy[sizeof(words) + 1];
    unsigned int k;

    snprintf(text, size, "x86-64 processor");
    if (__get_cpuid_max(0x80000000, NULL) < 0x80000004)
        return;
    for (k = 0; k < 3; k++)
        __get_cpuid(0x80000002 + k, &words[4 * k], &words[4 * k + 1],
                    &words[4 * k + 2], &words[4 * k + 3]);
    memcpy(copy, name, sizeof(words));
    copy[sizeof(words)] = '\0';
    name = copy + strspn(copy, " ");
    k = (unsigned int)strlen(name);
    while (k > 0 && name[k - 1] == ' ')
        k--;
    if (k > 0)
        snprintf(text, size, "%.*s", (int)k, name);
}

#else

static void read_model(char *text, size_t size)
{
    char line[256], *value;
    FILE *file = fopen("/proc/cpuinfo", "re");

    snprintf(text, size, "processor");
    if (file == NULL)
        return;
    while (fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "model name", 10) != 0)
            continue;
        value = strchr(line, ':');
        if (value == NULL)
            continue;
        value += 1 + strspn(value + 1, " \t");
        value[strcspn(value, "\n")] = '\0';
        snprintf(text, size, "%s", value);
        break;
    }
    fclose(file);
}

#endif

static void write_texts(void)
{
    struct utsname system;

    read_model(texts.name, sizeof(texts.name));
    if (uname(&system) == 0)
        snprintf(texts.driver, sizeof(texts.driver), "%.40s %.60s",
                 system.sysname, system.release);
    snprintf(texts.features, sizeof(texts.features), "isa=%s loop_programs=%s",
             cpu_isa_name(cpu_isa),
             cpu_native_is_on() ? "native" : "interpreted");
}

core_status cpu_device_enumerate(void *backend, uint32_t *out_count,
                                 core_string *out_reason)
{
    (void)backend;
    *out_count = 1;
    *out_reason = core_sdk_string(NULL);
    return CORE_OK;
}

core_status cpu_device_open(void *backend, uint32_t index, void **out_device)
{
    static char device; /* it has no state */

    (void)backend;
    *out_device = NULL;
    if (index != 0)
        return cpu_error(CORE_ERROR_NOT_FOUND,
                         "there is one CPU device, cpu:0, not %u", index);
    *out_device = &device;
    return CORE_OK;
}

void cpu_device_close(void *backend, void *device)
{
    (void)backend;
    (void)device;
}

core_status cpu_device_information(void *device, core_device_information *out)
{
    (void)device;
    cpu_once(&texts_once, write_texts);
    out->name = core_sdk_string(texts.name);
    out->stable_id = core_sdk_string("");
    out->driver = core_sdk_string(texts.driver);
    out->runtime = core_sdk_string("");
    out->firmware = core_sdk_string("");
    out->features = core_sdk_string(texts.features);
    return CORE_OK;
}

core_status cpu_device_properties(void *device, core_device_properties *out)
{
    uint64_t available, total;

    (void)device;
    cpu_memory_sizes(&available, &total);
    out->flags = CORE_DEVICE_FLAT | CORE_DEVICE_HOST_ACCESS |
                 CORE_DEVICE_UNIFIED | CORE_DEVICE_HOST_STABLE |
                 CORE_DEVICE_HAS_F64;
    out->base_alignment = CPU_MEMORY_ALIGNMENT;
    out->granularity = 1;
    out->tail_padding = CPU_MEMORY_TAIL;
    out->largest_allocation = 0;
    out->total_memory = total;
    out->compute_units = cpu_thread_pool_threads();
    out->numa_node = UINT32_MAX;
    return CORE_OK;
}
