/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Describes what the loaded plugins provide, for programs that list it. */

#include "base/memory.h"
#include "base/thread.h"
#include "dispatch/registry.h"
#include "loader/loader.h"

#include <stdlib.h>
#include <string.h>

static int compare_names(const void *a, const void *b)
{
    const core_kernel *const *one = a, *const *two = b;
    core_string first = (*one)->name, second = (*two)->name;
    size_t size = first.size < second.size ? first.size : second.size;
    int order = memcmp(first.data, second.data, size);

    return order ? order
                 : (first.size > second.size) - (first.size < second.size);
}

/* Counts the backend's registrations and the operators that they serve: 0 if
 * there is no memory. */
static void count_kernels(core__backend *backend, uint32_t *out_kernels,
                          uint32_t *out_operators)
{
    const core_kernel *kernel, **all;
    uint32_t count = 0, known = 0;

    while (core__registry_kernel_at(backend, count, &kernel) == CORE_OK)
        count++;
    *out_kernels = count;
    *out_operators = 0;
    all = core__alloc(count * sizeof *all);
    if (!all)
        return;
    while (known < count &&
           core__registry_kernel_at(backend, known, &all[known]) == CORE_OK)
        known++;
    qsort(all, known, sizeof *all, compare_names);
    for (uint32_t i = 0; i < known; i++)
        *out_operators += i == 0 || compare_names(&all[i - 1], &all[i]) != 0;
    core__free(all);
}

static void describe(core__backend *backend,
                     core_backend_information *information)
{
    char unmatched_kernels[CORE__UNMATCHED_NAMES_SIZE];
    core__error_record earlier;
    core_status status;

    core__error_save(&earlier);
    core__device_lock();
    status = core__backend_enumerate(backend);
    information->reason = backend->reason ? backend->reason : "";
    if (backend->device_count != UINT32_MAX)
        information->device_count = backend->device_count;
    core__device_unlock();
    if (status != CORE_OK)
        information->reason = core__loader_intern(core_error_message());
    count_kernels(backend, &information->kernel_count,
                  &information->operator_count);
    information->device_type = backend->type;
    information->plugin = backend->plugin;
    information->synchronous = backend->synchronous;
    core__unmatched_kernel_names(backend, unmatched_kernels,
                                 sizeof unmatched_kernels);
    information->unmatched_kernels = core__loader_intern(unmatched_kernels);
    core__error_restore(&earlier);
}

core_status core_backend_describe(uint32_t index,
                                  core_backend_information *out_information)
{
    core_backend_information filled = {.struct_size = sizeof filled};
    core__backend *backend = NULL;
    uint32_t slot, size, seen = 0;

    CORE__NOT_NULL(out_information);
    CORE__CHECK_STRUCT_SIZE(out_information, core_backend_information);
    size = out_information->struct_size;
    core__loader_lock();
    for (slot = CORE__SLOT_HOST; slot < CORE__SLOTS; slot++) {
        backend = core__backend_by_slot(slot);
        if (backend && seen++ == index)
            break;
    }
    if (slot < CORE__SLOTS)
        describe(backend, &filled);
    core__loader_unlock();
    if (slot == CORE__SLOTS)
        return core__error(
            CORE_ERROR_NOT_FOUND,
            "core_backend_describe: the index is %u; %u backends are loaded",
            index, seen);
    if (size > sizeof filled)
        size = sizeof filled;
    filled.struct_size = size;
    memcpy(out_information, &filled, size);
    return CORE_OK;
}
