/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Looks up devices by name, and chooses the device of calls that name none. */

#include "device/device.h"
#include "device/stream.h"
#include "device/upcalls.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/settings.h"
#include "base/thread.h"

#include <libcore/device.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

core_device *_Atomic core__default_device;
_Atomic uint32_t core__default_device_generation;
static core_device *_Atomic host_device;
static char *preference; /* guarded by the lock of devices */

/* Splits "cuda:1" into the type's length and the index; false if it is not
 * such a name. */
static bool parse_name(const char *name, size_t size, size_t *out_type,
                       uint32_t *out_index)
{
    const char *colon = memchr(name, ':', size);
    uint64_t index = 0;

    *out_type = colon ? (size_t)(colon - name) : size;
    *out_index = 0;
    if (*out_type == 0 || *out_type > 31)
        return false;
    for (size_t i = 0; i < *out_type; i++)
        if (!(name[i] >= 'a' && name[i] <= 'z') &&
            !(i > 0 && name[i] >= '0' && name[i] <= '9'))
            return false;
    if (!colon)
        return true;
    if (colon + 1 == name + size)
        return false;
    for (const char *at = colon + 1; at < name + size; at++) {
        if (*at < '0' || *at > '9')
            return false;
        index = index * 10 + (uint64_t)(*at - '0');
        if (index > 65535)
            return false;
    }
    *out_index = (uint32_t)index;
    return true;
}

static core_status name_error(const char *name, size_t size)
{
    return core__error(
        CORE_ERROR_INVALID_ARGUMENT,
        "\"%.*s\" is not a device name; names look like cpu, cuda or cuda:1",
        (int)(size < 64 ? size : 64), name);
}

/* Checks the form only.  Whether the device exists is reported when it is
 * used, because its plugin may not be known yet. */
core_status core__device_name_check(const char *text)
{
    size_t size = strlen(text), type;
    uint32_t index;

    if (size == 0 || parse_name(text, size, &type, &index))
        return CORE_OK;
    name_error(text, size);
    core__error_prefix("LIBCORE_DEVICE");
    return CORE_ERROR_INVALID_ARGUMENT;
}

/* Loads the plugin if necessary. */
static core_status find_backend(const char *type, size_t size,
                                core__backend **out_backend)
{
    *out_backend = core__backend_by_type(type, size);
    if (!*out_backend) {
        CORE_TRY(core__settings_check());
        CORE_TRY(core__device_upcalls.load_type(type, size));
        *out_backend = core__backend_by_type(type, size);
    }
    if (*out_backend)
        return CORE_OK;
    return core__error(CORE_ERROR_NOT_FOUND,
                       "no plugin provides devices of type \"%.*s\"", (int)size,
                       type);
}

static core_status find(const char *name, size_t size, core_device **out_device)
{
    core__backend *backend;
    uint32_t index;
    size_t type;

    *out_device = NULL;
    if (!parse_name(name, size, &type, &index))
        return name_error(name, size);
    CORE_TRY(find_backend(name, type, &backend));
    return core__backend_device(backend, index, out_device);
}

core_status core_device_find(const char *name, core_device **out_device)
{
    CORE__NOT_NULL(out_device);
    *out_device = NULL;
    CORE__NOT_NULL(name);
    return find(name, strlen(name), out_device);
}

enum { CAUSE_SIZE = 256 };

/* Whether the device of an index has the id; opens it if its plugin cannot
 * identify it without.  cause: receives the first error of an opening. */
static bool has_id(core__backend *backend, uint32_t index, const char *id,
                   char *cause)
{
    core_device *device;
    core_string text;

    if (backend->hotplug.device_id)
        return strcmp(backend->places[index].id, id) == 0;
    if (core__backend_device(backend, index, &device) != CORE_OK) {
        if (!*cause)
            snprintf(cause, CAUSE_SIZE, "; device %u cannot be opened: %s",
                     index, core_error_message());
        return false;
    }
    text = device->information.stable_id;
    return text.size == strlen(id) && memcmp(text.data, id, text.size) == 0;
}

/* The index of the device with the id; false: none is known. */
static bool index_of_id(core__backend *backend, const char *id,
                        uint32_t *out_index, char *cause)
{
    core__error_record earlier;
    uint32_t count =
        backend->device_count == UINT32_MAX ? 0 : backend->device_count;
    uint32_t index = 0;

    core__error_save(&earlier);
    while (index < count && !(*id && has_id(backend, index, id, cause)))
        index++;
    core__error_restore(&earlier);
    *out_index = index;
    return index < count;
}

core_status core_device_find_id(const char *type, const char *stable_id,
                                core_device **out_device)
{
    core__error_record earlier;
    core__backend *backend;
    char cause[CAUSE_SIZE] = "";
    core_status status;
    uint32_t index;

    CORE__NOT_NULL(out_device);
    *out_device = NULL;
    CORE__NOT_NULL(type);
    CORE__NOT_NULL(stable_id);
    CORE_TRY(find_backend(type, strlen(type), &backend));
    core__device_lock();
    core__error_save(&earlier);
    status = core__backend_enumerate(backend);
    /* A known device may be open, even if the list cannot be read now. */
    if (index_of_id(backend, stable_id, &index, cause)) {
        status = core__backend_device(backend, index, out_device);
        core__error_restore_on_success(&earlier, status);
    } else if (status == CORE_OK) {
        status = core__error(CORE_ERROR_NOT_FOUND,
                             "core_device_find_id: no device of type \"%s\" "
                             "has the stable id \"%.128s\"%s",
                             type, stable_id, cause);
    }
    core__device_unlock();
    return status;
}

core_status core__device_host(core_device **out_device)
{
    core_device *device = atomic_load(&host_device);

    if (core__likely(device != NULL)) {
        *out_device = device;
        return CORE_OK;
    }
    CORE_TRY(find("cpu", 3, out_device));
    atomic_store(&host_device, *out_device);
    return CORE_OK;
}

/* The next name of a comma-separated list, without surrounding blanks; false
 * at the end. */
static bool next_name(const char **list, const char **out_name,
                      size_t *out_size)
{
    const char *first = *list;
    size_t size;

    if (!first)
        return false;
    size = strcspn(first, ",");
    *list = first[size] == ',' ? first + size + 1 : NULL;
    while (size > 0 && *first == ' ')
        first++, size--;
    while (size > 0 && first[size - 1] == ' ')
        size--;
    *out_name = first;
    *out_size = size;
    return true;
}

/* The first device of the list that can be opened; the last error if none
 * can. */
static core_status first_of(const char *list, core_device **out_device)
{
    core_status status = CORE_ERROR_NOT_FOUND;
    const char *name;
    size_t size;

    *out_device = NULL;
    while (status != CORE_OK && next_name(&list, &name, &size))
        status = find(name, size, out_device);
    return status;
}

static core_status choose(core_device **out_device)
{
    const char *name;
    core_status status;

    CORE_TRY(core__setting_text(CORE__SETTING_DEVICE, &name));
    if (name && *name)
        return find(name, strlen(name), out_device);
    core__device_lock();
    status =
        preference ? first_of(preference, out_device) : CORE_ERROR_NOT_FOUND;
    if (status != CORE_OK)
        status = find("cpu", 3, out_device);
    core__device_unlock();
    return status;
}

core_status core__device_current(core_device **out_device)
{
    uint32_t generation = core__settings_generation(); /* of LIBCORE_DEVICE */

    *out_device = core__device_current_known(core__thread_self());
    if (core__likely(*out_device != NULL))
        return CORE_OK;
    CORE_TRY(choose(out_device));
    atomic_store(&core__default_device_generation, generation);
    atomic_store(&core__default_device, *out_device);
    return CORE_OK;
}

core_status core_device_default(core_device **out_device)
{
    CORE__NOT_NULL(out_device);
    return core__device_current(out_device);
}

core_status core_device_set_preference(const char *names)
{
    const char *list = names, *name;
    char *copy = NULL;
    size_t size, type;
    uint32_t index;

    while (next_name(&list, &name, &size))
        if (!parse_name(name, size, &type, &index)) {
            name_error(name, size);
            if (strchr(names, ','))
                core__error_prefix("\"%.128s\"", names);
            core__error_prefix("core_device_set_preference");
            return CORE_ERROR_INVALID_ARGUMENT;
        }
    if (names) {
        copy = core__strdup(names);
        if (!copy)
            return core__error_memory(strlen(names));
    }
    core__device_lock();
    core__free(preference);
    preference = copy;
    atomic_store(&core__default_device, NULL);
    core__device_unlock();
    return CORE_OK;
}

core_status core_device_set_current(core_device *device)
{
    core__thread_self()->device = device;
    return CORE_OK;
}

static void clear_current(core__thread *thread, void *context)
{
    if (thread->device == context)
        thread->device = NULL;
}

void core__device_remove_from_threads(core_device *device)
{
    core_device *expected = device;

    atomic_compare_exchange_strong(&core__default_device, &expected, NULL);
    expected = device;
    atomic_compare_exchange_strong(&host_device, &expected, NULL);
    core__thread_each(clear_current, device);
    core__device_upcalls.memory_free_cached(device);
    core__stream_reset_current(device);
    core__device_upcalls.host_memory_end(device);
    core__device_upcalls.allocator_destroy(device);
    core__stream_default_destroy(device);
    core__device_upcalls.cache_empty(device);
}

core_status core_device_count(const char *type, uint32_t *out_count,
                              const char **out_reason)
{
    core__backend *backend;
    core_status status;

    CORE__NOT_NULL(out_count);
    *out_count = 0;
    if (out_reason)
        *out_reason = "";
    CORE__NOT_NULL(type);
    CORE_TRY(find_backend(type, strlen(type), &backend));
    core__device_lock();
    status = core__backend_enumerate(backend);
    if (status == CORE_OK)
        *out_count = backend->device_count;
    if (status == CORE_OK && out_reason && backend->reason && *out_count == 0)
        *out_reason = backend->reason;
    core__device_unlock();
    return status;
}

const char *core_device_name(const core_device *device)
{
    return device ? device->name : "";
}

const char *core_device_type(const core_device *device)
{
    return device ? device->backend->type : "";
}

uint32_t core_device_index(const core_device *device)
{
    return device ? device->index : 0;
}

core_device *core_device_retain(core_device *device)
{
    if (device)
        atomic_fetch_add(&device->references, 1);
    return device;
}

/* The last reference is the backend's, which the program must not release. */
void core_device_release(core_device *device)
{
    uint32_t references = device ? atomic_load(&device->references) : 0;

    while (references > 1)
        if (atomic_compare_exchange_weak(&device->references, &references,
                                         references - 1))
            return;
    if (device)
        core__log(CORE_LOG_ERROR, "device",
                  "core_device_release: %s was released more often than it "
                  "was retained",
                  device->name);
}

core_status core_device_get_properties(core_device *device,
                                       core_device_properties *out)
{
    CORE__NOT_NULL(device);
    CORE__NOT_NULL(out);
    CORE__CHECK_STRUCT_SIZE(out, core_device_properties);
    core__device_copy_struct(out, &device->properties, sizeof *out);
    return CORE_OK;
}

core_status core_device_get_information(core_device *device,
                                        core_device_information *out)
{
    CORE__NOT_NULL(device);
    CORE__NOT_NULL(out);
    CORE__CHECK_STRUCT_SIZE(out, core_device_information);
    core__device_copy_struct(out, &device->information, sizeof *out);
    return CORE_OK;
}

core_status core_device_memory(core_device *device, uint64_t *out_free,
                               uint64_t *out_total)
{
    uint32_t errors;

    CORE__NOT_NULL(out_free);
    CORE__NOT_NULL(out_total);
    *out_free = 0;
    *out_total = 0;
    CORE__NOT_NULL(device);
    CORE_TRY(core__device_check_process(device));
    if (!device->memory.info)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "core_device_memory: the plugin of \"%s\" does not "
                           "report how much memory it has",
                           device->name);
    errors = core__error_sequence();
    return core__device_check_status(
        device, device->memory.info(device->impl, out_free, out_total), errors);
}

core_status core__host_wait(core_device *device, const char *reason)
{
    if (device->synchronous)
        return CORE_OK;
    return core__stream_wait(core__stream_current(device), reason);
}

core_status core_device_synchronize(core_device *device)
{
    core_stream *current;
    core_status status;

    CORE__NOT_NULL(device);
    CORE_TRY(core__thread_check_unrecorded(__func__));
    if (device->synchronous)
        return CORE_OK;
    if (atomic_load(&device->lost))
        return core__device_stale_error(device);
    current = core__stream_current(device);
    if (current->capture)
        return core__capture_refuse(current, "core_device_synchronize");
    status = core__queues_wait(device, "core_device_synchronize");
    core__device_upcalls.imported_settle(device);
    return status;
}

static core_status cpu_threads(const core_cpu_threads_interface **out)
{
    core_string name = {"core.cpu_threads", 16};
    core_device *host;

    *out = NULL;
    CORE_TRY(core__device_host(&host));
    if (host->backend->table.get_interface)
        *out = host->backend->table.get_interface(host->backend->table.user,
                                                  name, 1);
    if (!*out)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "the CPU backend does not offer core.cpu_threads, "
                           "which sets and reports its number of threads");
    return CORE_OK;
}

core_status core_threads_set(uint32_t threads)
{
    const core_cpu_threads_interface *interface;

    if (threads < 1)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_threads_set: 0 threads; at least 1 is needed");
    CORE_TRY(cpu_threads(&interface));
    return interface->set(threads);
}

core_status core_threads_get(uint32_t *out_threads)
{
    const core_cpu_threads_interface *interface;

    CORE__NOT_NULL(out_threads);
    *out_threads = 0;
    CORE_TRY(cpu_threads(&interface));
    *out_threads = interface->get();
    return CORE_OK;
}
