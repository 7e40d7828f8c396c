/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The registry of backends, by type and slot, and of their devices. */

#include "base/fork.h"
#include "base/log.h"
#include "base/memory.h"
#include "device/device.h"
#include "device/interned_text.h"
#include "device/stream.h"
#include "device/upcalls.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Larger values are taken for a mistake of the plugin. */
enum { PROPERTY_LIMIT = 1 << 30 };

/* Recursive: opening a device runs a plugin's code, which may query another
 * backend's kernels. */
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
/* Guards changes of `slots`, for a search that must not wait for a plugin; no
 * other lock is taken while it is held. */
static pthread_mutex_t slots_lock = PTHREAD_MUTEX_INITIALIZER;
static core__backend *_Atomic slots[CORE__SLOTS] = {
    [CORE__SLOT_META] = &core__meta_backend,
};

core__backend core__meta_backend = {
    .type = "meta",
    .slot = CORE__SLOT_META,
    .synchronous = true,
    .device_count = 1,
};

core_device core__meta_device = {
    .references = 1,
    .backend = &core__meta_backend,
    .name = "meta",
    .keys = CORE__KEY_SLOT(CORE__SLOT_META),
    .meta = true,
    .synchronous = true,
    .stream = &core__meta_stream,
    .ordinal = CORE__ORDINAL_META,
    .properties = {.struct_size = sizeof(core_device_properties),
                   .granularity = 1,
                   .base_alignment = 1},
    .information = {.struct_size = sizeof(core_device_information),
                    .name = {"shapes only", 11}},
};

void core__device_lock(void)
{
    pthread_mutex_lock(&lock);
}

void core__device_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

/* ------------------------------------------------------------------ fork -- */

int core__device_fork_wait = 5000;

/* Guarded by the lock that a fork takes before this one (core/library.c). */
static bool fork_has_lock;
static bool fork_interrupted;

static bool wait_for_lock(void)
{
    struct timespec until;
    long nanoseconds;

    clock_gettime(CLOCK_REALTIME, &until);
    nanoseconds = until.tv_nsec + core__device_fork_wait % 1000 * 1000000L;
    until.tv_sec += core__device_fork_wait / 1000 + nanoseconds / 1000000000;
    until.tv_nsec = nanoseconds % 1000000000;
    return pthread_mutex_timedlock(&lock, &until) == 0;
}

/* The code of a plugin that runs under the lock may wait for a lock that the
 * fork has taken, so the wait ends. */
void core__devices_fork(core__fork_phase at)
{
    if (at == CORE__FORK_PREPARE)
        fork_has_lock = wait_for_lock();
    else if (at == CORE__FORK_CHILD)
        fork_interrupted = !fork_has_lock;
    /* In the child, its owner is the parent's thread: renew_lock unlocks it.
     * This call tells the thread sanitizer. */
    if (at != CORE__FORK_PREPARE && fork_has_lock)
        pthread_mutex_unlock(&lock);
}

bool core__device_fork_interrupted(void)
{
    return fork_interrupted;
}

/* If no other thread held the lock at the time of the fork, the registry is
 * consistent; otherwise that thread was about to publish a change, which is
 * lost. */
static void renew_lock(void)
{
    pthread_mutex_t initial = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

    if (pthread_mutex_trylock(&lock) == 0)
        pthread_mutex_unlock(&lock);
    else
        lock = initial;
    pthread_mutex_init(&slots_lock, NULL);
}

void core__devices_after_fork(void)
{
    renew_lock();
    for (uint32_t slot = CORE__SLOT_HOST; slot < CORE__SLOTS; slot++) {
        core__backend *backend = atomic_load(&slots[slot]);

        if (!backend || !backend->devices ||
            backend->device_count == UINT32_MAX)
            continue;
        for (uint32_t i = 0; i < backend->device_count; i++)
            if (backend->devices[i])
                core__device_after_fork(backend->devices[i]);
    }
}

core__backend *core__backend_by_slot(uint32_t slot)
{
    return slot < CORE__SLOTS ? atomic_load(&slots[slot]) : NULL;
}

static core__backend *find(const char *type, size_t size)
{
    for (uint32_t i = CORE__SLOT_META; i < CORE__SLOTS; i++) {
        core__backend *backend = atomic_load(&slots[i]);

        if (backend && strlen(backend->type) == size &&
            memcmp(backend->type, type, size) == 0)
            return backend;
    }
    return NULL;
}

core__backend *core__backend_by_type(const char *type, size_t size)
{
    core__backend *backend;

    core__device_lock();
    backend = find(type, size);
    core__device_unlock();
    return backend;
}

bool core__backend_note_change(core_string device_type, bool *out_supported)
{
    core__backend *backend;

    *out_supported = false;
    pthread_mutex_lock(&slots_lock);
    backend = find(device_type.data, device_type.size);
    if (backend && backend != &core__meta_backend)
        *out_supported = !atomic_load(&backend->hotplug_missing);
    if (*out_supported)
        atomic_store(&backend->changed, true);
    pthread_mutex_unlock(&slots_lock);
    return backend != NULL;
}

static void set_slot(uint32_t slot, core__backend *backend)
{
    pthread_mutex_lock(&slots_lock);
    atomic_store(&slots[slot], backend);
    pthread_mutex_unlock(&slots_lock);
}

core_status core__backend_not_found(const char *type, size_t size)
{
    char loaded[256] = "";
    size_t used = 0;

    core__device_lock();
    for (uint32_t i = CORE__SLOT_META; i < CORE__SLOTS; i++) {
        const core__backend *backend = atomic_load(&slots[i]);

        if (backend && used < sizeof loaded)
            used +=
                (size_t)snprintf(loaded + used, sizeof loaded - used, "%s%s",
                                 used > 0 ? ", " : "", backend->type);
    }
    core__device_unlock();
    return core__error(CORE_ERROR_NOT_FOUND,
                       "no backend \"%.*s\" is loaded; loaded: %s", (int)size,
                       type, loaded);
}

/* Copies the part of a table that the plugin knew into a complete one. */
static void copy_table(void *to, size_t full, const void *from)
{
    uint32_t known = 0;

    memset(to, 0, full);
    if (from) {
        memcpy(&known, from, sizeof known);
        memcpy(to, from, known < full ? known : full);
    }
}

static core_status check_type(core_string type)
{
    bool valid = type.size > 0 && type.size < sizeof core__meta_backend.type;

    for (uint64_t i = 0; valid && i < type.size; i++)
        valid = (type.data[i] >= 'a' && type.data[i] <= 'z') ||
                (i > 0 && type.data[i] >= '0' && type.data[i] <= '9');
    if (!valid)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "device type \"%.*s\": it must be 1 to 31 "
                           "characters of a-z and 0-9 and begin with a letter",
                           (int)(type.size < 64 ? type.size : 64), type.data);
    if (find(type.data, type.size))
        return core__error(
            CORE_ERROR_REFUSED,
            "device type \"%.*s\": another plugin has registered it",
            (int)type.size, type.data);
    return CORE_OK;
}

/* A function that every backend must have, and what this backend has. */
typedef struct required_function {
    const char *table; /* the type of its table */
    const char *name;
    size_t table_size;    /* sizeof(type) */
    size_t end;           /* the smallest struct_size that covers it */
    uint32_t struct_size; /* the backend's */
    bool has_table, is_set;
} required_function;

/* The members of `found`, a copy of the backend's table filled with zeros. */
#define REQUIRED(type, function, found, has)                           \
    {                                                                  \
        .table = #type, .name = #function, .table_size = sizeof(type), \
        .end = offsetof(type, function) + sizeof(found).function,      \
        .struct_size = (found).struct_size, .has_table = (has),        \
        .is_set = (found).function != NULL                             \
    }

static core_status check_function(const core__backend *backend,
                                  const required_function *required)
{
    if (required->is_set)
        return CORE_OK;
    if (!required->has_table)
        return core__error(CORE_ERROR_INCOMPATIBLE, "backend \"%s\" has no %s",
                           backend->type, required->table);
    if (required->struct_size < required->end)
        return core__error(
            CORE_ERROR_INCOMPATIBLE,
            "backend \"%s\": the struct_size of its %s is %u; it must be "
            "sizeof(%s), %zu",
            backend->type, required->table, required->struct_size,
            required->table, required->table_size);
    return core__error(CORE_ERROR_INCOMPATIBLE,
                       "backend \"%s\": the function %s of its %s is NULL",
                       backend->type, required->name, required->table);
}

static core_status check_functions(const core__backend *backend,
                                   const required_function *required,
                                   size_t count)
{
    for (size_t i = 0; i < count; i++)
        CORE_TRY(check_function(backend, &required[i]));
    return CORE_OK;
}

#define BACKEND(function) REQUIRED(core_backend, function, backend->table, true)
#define MEMORY(function)                                   \
    REQUIRED(core_memory_table, function, backend->memory, \
             backend->table.memory != NULL)
#define STREAM(function) \
    REQUIRED(core_stream_table, function, backend->streams, true)
#define EVENT(function)                                   \
    REQUIRED(core_event_table, function, backend->events, \
             backend->table.events != NULL)

static core_status check_tables(const core__backend *backend)
{
    const required_function always[] = {
        BACKEND(enumerate),         BACKEND(device_open), BACKEND(device_close),
        BACKEND(device_properties), MEMORY(alloc),        MEMORY(free),
        MEMORY(copy_from_host),     MEMORY(copy_to_host), MEMORY(copy),
    };
    const required_function asynchronous[] = {
        STREAM(create),      STREAM(destroy),    STREAM(query),
        STREAM(synchronize), STREAM(wait_event), EVENT(create),
        EVENT(destroy),      EVENT(record),      EVENT(query),
        EVENT(synchronize),
    };

    CORE_TRY(check_functions(backend, always, sizeof always / sizeof *always));
    if (backend->synchronous)
        return CORE_OK;
    return check_functions(backend, asynchronous,
                           sizeof asynchronous / sizeof *asynchronous);
}

#undef REQUIRED
#undef BACKEND
#undef MEMORY
#undef STREAM
#undef EVENT

/* ------------------------------------------------------------ ordinals -- */

/* Guarded by the lock of the registry: one bit per open device; the first is
 * meta's. */
static uint64_t ordinals[16] = {UINT64_C(1) << CORE__ORDINAL_META};

static bool ordinal_take(uint32_t *out_ordinal)
{
    for (uint32_t i = 0; i < sizeof ordinals / sizeof *ordinals; i++) {
        uint32_t bit;

        if (ordinals[i] == UINT64_MAX)
            continue;
        bit = (uint32_t)__builtin_ctzll(~ordinals[i]);
        ordinals[i] |= UINT64_C(1) << bit;
        *out_ordinal = i * 64 + bit;
        return true;
    }
    return false;
}

static void ordinal_release(uint32_t ordinal)
{
    ordinals[ordinal / 64] &= ~(UINT64_C(1) << ordinal % 64);
}

/* ------------------------------------------------------------ backends -- */

core_status core__backend_add(const core_backend *table, core_plugin *plugin,
                              core__backend **out_backend)
{
    core__backend *backend = NULL;
    core_status status;
    uint32_t slot = CORE__SLOT_FIRST;

    *out_backend = NULL;
    core__device_lock();
    status = check_type(table->device_type);
    if (status != CORE_OK)
        goto done;
    if (table->device_type.size == 3 &&
        memcmp(table->device_type.data, "cpu", 3) == 0)
        slot = CORE__SLOT_HOST;
    while (slot < CORE__SLOTS && atomic_load(&slots[slot]))
        slot++;
    if (slot == CORE__SLOTS) {
        status =
            core__error(CORE_ERROR_REFUSED, "all %d backend slots are taken",
                        CORE__SLOTS - CORE__SLOT_FIRST);
        goto done;
    }
    backend = core__alloc_zero(sizeof *backend);
    if (!backend) {
        status = core__error_memory(sizeof *backend);
        goto done;
    }
    memcpy(backend->type, table->device_type.data, table->device_type.size);
    backend->slot = slot;
    backend->plugin = plugin;
    copy_table(&backend->table, sizeof backend->table, table);
    copy_table(&backend->memory, sizeof backend->memory, table->memory);
    backend->synchronous = !backend->table.streams;
    copy_table(&backend->streams, sizeof backend->streams,
               backend->table.streams);
    copy_table(&backend->events, sizeof backend->events, backend->table.events);
    backend->device_count = UINT32_MAX; /* not enumerated */
    status = check_tables(backend);
    if (status != CORE_OK)
        goto done;
    set_slot(slot, backend);
    *out_backend = backend;
    backend = NULL;
done:
    core__device_unlock();
    core__free(backend);
    return status;
}

bool core__device_is_in_use(core_device *device)
{
    if (atomic_load(&device->references) > 1) /* imported memory has some */
        core__device_upcalls.imported_settle(device);
    return atomic_load(&device->references) > 1;
}

static void device_destroy(core_device *device)
{
    core__backend *backend = device->backend;

    core__device_remove_from_threads(device);
    if (!device->forked)
        backend->table.device_close(backend->table.user, device->impl);
    ordinal_release(device->ordinal);
    core__free(device->loss);
    core__free(device);
}

void (*_Atomic core__device_closing)(core_device *device);

bool core__backend_device_at(const core__backend *backend, uint32_t index,
                             core_device **out_device)
{
    bool exists;

    core__device_lock();
    exists = backend->devices && backend->device_count != UINT32_MAX &&
             index < backend->device_count;
    *out_device = exists ? backend->devices[index] : NULL;
    core__device_unlock();
    return exists;
}

void core__backend_remove(core__backend *backend)
{
    void (*closing)(core_device *) = atomic_load(&core__device_closing);
    core_device *device;

    /* Threads that serve the devices end before the lock is taken. */
    for (uint32_t i = 0;
         closing && core__backend_device_at(backend, i, &device); i++)
        if (device)
            closing(device);
    core__device_lock();
    set_slot(backend->slot, NULL);
    for (uint32_t i = 0; core__backend_device_at(backend, i, &device); i++)
        if (device)
            device_destroy(device);
    core__device_unlock();
    core__free(backend->devices);
    core__free(backend->places);
    core__free(backend->unmatched_kernels);
    core__free(backend);
}

/* Ends a call of the plugin before which the thread's error record was saved:
 * restores that record if the call succeeded, and adds a message to its error
 * if the plugin set none. */
static core_status with_reason(const core__backend *backend, core_status status,
                               const char *what,
                               const core__error_record *earlier)
{
    if (core__error_restore_on_success(earlier, status) == CORE_OK ||
        core_error_code() == status)
        return status;
    return core__error(status, "%s: the plugin's %s failed and gave no reason",
                       backend->type, what);
}

static void fetch_hotplug(core__backend *backend)
{
    core_string name = {"core.hotplug", 12};
    const core_backend *table = &backend->table;

    if (backend->hotplug.device_id || atomic_load(&backend->hotplug_missing))
        return;
    if (table->get_interface &&
        core__device_upcalls.plugin_minor(backend->plugin) >= 6)
        copy_table(&backend->hotplug, sizeof backend->hotplug,
                   table->get_interface(table->user, name, 1));
    if (!backend->hotplug.device_id)
        atomic_store(&backend->hotplug_missing, true);
}

static bool is_enumerated(core__backend *backend)
{
    if (backend == &core__meta_backend)
        return true;
    return backend->device_count != UINT32_MAX && backend->device_count > 0 &&
           !atomic_load(&backend->changed);
}

core_status core__backend_call_enumerate(core__backend *backend,
                                         uint32_t *out_count,
                                         const char **out_reason)
{
    core__error_record earlier;
    core_string reason = {0};
    uint32_t count = 0;

    *out_count = 0;
    core__error_save(&earlier);
    CORE_TRY(with_reason(
        backend, backend->table.enumerate(backend->table.user, &count, &reason),
        "enumerate", &earlier));
    if (count > CORE__DEVICES_LIMIT)
        return core__error(
            CORE_ERROR_REFUSED,
            "%s: the plugin reports %u devices; at most %d are accepted",
            backend->type, count, CORE__DEVICES_LIMIT);
    if (count > 0 || !reason.data)
        reason.size = 0;
    *out_reason = core__intern_text(reason.data, reason.size);
    if (!*out_reason)
        return core__error_memory(reason.size);
    *out_count = count;
    return CORE_OK;
}

static core_status enumerate_once(core__backend *backend)
{
    uint32_t count;

    CORE_TRY(core__backend_call_enumerate(backend, &count, &backend->reason));
    if (count > 0) {
        backend->devices = core__alloc_zero(count * sizeof(core_device *));
        if (!backend->devices)
            return core__error_memory(count * sizeof(core_device *));
    }
    backend->device_count = count;
    return CORE_OK;
}

core_status core__backend_enumerate(core__backend *backend)
{
    core_status status = CORE_OK;

    core__device_lock();
    if (!is_enumerated(backend)) {
        fetch_hotplug(backend);
        status = backend->hotplug.device_id ? core__hotplug_enumerate(backend)
                                            : enumerate_once(backend);
    }
    core__device_unlock();
    return status;
}

/* Fetches the optional tables as complete copies. */
static void fetch_interfaces(const core__backend *backend,
                             core__interfaces *interfaces)
{
    const struct {
        const char *name;
        void *to;
        size_t size;
    } rows[] = {
#define ROW(field) \
    {"core." #field, &interfaces->field, sizeof interfaces->field}
        ROW(timing),       ROW(host_callback),   ROW(host_memory),
        ROW(stream_adopt), ROW(stream_priority), ROW(virtual_memory),
        ROW(peer),         ROW(graph_capture),   ROW(device_reset),
        ROW(stream_error), ROW(numerics),        ROW(telemetry),
        ROW(fork_safe),    ROW(allocator),       ROW(profiler),
        ROW(layout),       ROW(ranges),          ROW(ipc),
        ROW(codegen),
#undef ROW
    };
    /* By the minor that the plugin and the core negotiated. */
    static const size_t known[] = {0, 0, 10, 13, 14, 17};
    uint32_t minor = core__device_upcalls.plugin_minor(backend->plugin);
    size_t count = minor < sizeof known / sizeof *known
                       ? known[minor]
                       : sizeof rows / sizeof *rows;

    /* An older plugin is not queried for later interfaces. */
    if (!backend->table.get_interface)
        return;
    for (size_t i = 0; i < count; i++) {
        core_string name = {rows[i].name, strlen(rows[i].name)};

        copy_table(rows[i].to, rows[i].size,
                   backend->table.get_interface(backend->table.user, name, 1));
    }
}

/* With the size that the struct has in the plugin's minor. */
static core_status fetch_properties(core_device *device)
{
    core_device_properties *p = &device->properties;
    core__error_record earlier;
    core_status status;

    p->struct_size =
        core__device_upcalls.plugin_minor(device->backend->plugin) < 2
            ? offsetof(core_device_properties, max_streams)
        : core__device_upcalls.plugin_minor(device->backend->plugin) < 6
            ? offsetof(core_device_properties, copy_streams)
            : sizeof *p;
    core__error_save(&earlier);
    status =
        with_reason(device->backend,
                    device->backend->table.device_properties(device->impl, p),
                    "device_properties", &earlier);
    p->struct_size = sizeof *p;
    if (p->granularity == 0)
        p->granularity = 1;
    if (status == CORE_OK && (p->granularity > PROPERTY_LIMIT ||
                              p->base_alignment > PROPERTY_LIMIT ||
                              p->base_alignment & (p->base_alignment - 1) ||
                              p->tail_padding > PROPERTY_LIMIT))
        return core__error(
            CORE_ERROR_REFUSED,
            "%s: the plugin reports an alignment of %llu, a granularity of "
            "%llu and a padding of %llu bytes; the alignment must be a power "
            "of two, and none may exceed 2^30",
            device->backend->type, (unsigned long long)p->base_alignment,
            (unsigned long long)p->granularity,
            (unsigned long long)p->tail_padding);
    return status;
}

static core_status device_open(core__backend *backend, uint32_t index,
                               core_device **out_device)
{
    core_device *device;
    core__error_record earlier;
    core_status status;
    uint32_t position;

    *out_device = NULL;
    CORE_TRY(core__hotplug_position(backend, index, &position));
    device = core__alloc_zero(sizeof *device);
    if (!device)
        return core__error_memory(sizeof *device);
    if (!ordinal_take(&device->ordinal)) {
        core__free(device);
        return core__error(CORE_ERROR_REFUSED,
                           "%s: no more devices can be opened; 1024 are open",
                           backend->type);
    }
    core__error_save(&earlier);
    status = with_reason(backend,
                         backend->table.device_open(backend->table.user,
                                                    position, &device->impl),
                         "device_open", &earlier);
    if (status != CORE_OK) {
        ordinal_release(device->ordinal);
        core__free(device);
        return status;
    }
    device->references = 1;
    device->index = index;
    device->backend = backend;
    if (index == 0)
        snprintf(device->name, sizeof device->name, "%s", backend->type);
    else
        snprintf(device->name, sizeof device->name, "%.24s:%u", backend->type,
                 index);
    device->keys = CORE__KEY_SLOT(backend->slot);
    device->synchronous = backend->synchronous;
    device->memory = backend->memory;
    fetch_interfaces(backend, &device->interfaces);
    device->launch_slot = device->ordinal < CORE__LAUNCH_SLOTS
                              ? device->ordinal
                              : CORE__ORDINAL_META;
    device->launches_before = core__thread_launches(device->launch_slot);
    device->information.struct_size = sizeof device->information;
    status = fetch_properties(device);
    if (status == CORE_OK && backend->table.device_information) {
        core__error_save(&earlier);
        status = with_reason(backend,
                             backend->table.device_information(
                                 device->impl, &device->information),
                             "device_information", &earlier);
    }
    if (status == CORE_OK)
        status = core__hotplug_check_id(device);
    device->flags = device->properties.flags;
    if (core__device_upcalls.plugin_minor(backend->plugin) < 5)
        device->flags &= ~(uint32_t)CORE_DEVICE_UNIFIED;
    device->small_blocks =
        device->synchronous && device->flags & CORE_DEVICE_HOST_ACCESS;
    if (status == CORE_OK)
        status = core__stream_default_create(device);
    if (status == CORE_OK && !device->synchronous)
        status = core__device_upcalls.allocator_create(device);
    if (status != CORE_OK) {
        device_destroy(device);
        return status;
    }
    *out_device = device;
    return CORE_OK;
}

/* Opens the device that has the index.  If the plugin's list changes meanwhile,
 * another one may be at its position. */
static core_status open_present(core__backend *backend, uint32_t index,
                                core_device **out_device)
{
    core__error_record earlier;

    core__error_save(&earlier);
    for (uint32_t i = 1;; i++) {
        core_status status = device_open(backend, index, out_device);

        if (status == CORE_OK)
            return core__error_restore_on_success(&earlier, status);
        if (!backend->hotplug.device_id || i == CORE__HOTPLUG_ATTEMPTS ||
            (status != CORE_ERROR_BUSY && !atomic_load(&backend->changed)))
            return status;
        core__error_restore(&earlier);
        CORE_TRY(core__hotplug_enumerate(backend));
    }
}

core_status core__backend_device(core__backend *backend, uint32_t index,
                                 core_device **out_device)
{
    core__error_record earlier;
    core_status status;

    *out_device = NULL;
    if (backend == &core__meta_backend) {
        if (index != 0)
            return core__error(CORE_ERROR_NOT_FOUND,
                               "device \"meta:%u\" does not exist; the only "
                               "meta device is \"meta\"",
                               index);
        *out_device = &core__meta_device;
        return CORE_OK;
    }
    core__device_lock();
    core__error_save(&earlier);
    status = core__backend_enumerate(backend);
    /* An open device is found even if the list cannot be read now. */
    if (status != CORE_OK) {
        core__backend_device_at(backend, index, out_device);
        if (*out_device) {
            core_error_clear();
            status = CORE_OK;
        }
        goto done;
    }
    if (backend->device_count == 0) {
        status = core__error(
            CORE_ERROR_NO_DEVICE, "%s: no device: %s", backend->type,
            backend->reason && *backend->reason ? backend->reason
                                                : "the plugin gave no reason");
    } else if (index >= backend->device_count) {
        status = core__error(
            CORE_ERROR_NOT_FOUND,
            "device \"%s:%u\" does not exist: the number of %s devices is %u",
            backend->type, index, backend->type, backend->device_count);
    } else {
        if (!backend->devices[index])
            status = open_present(backend, index, &backend->devices[index]);
        *out_device = backend->devices[index];
    }
done:
    core__device_unlock();
    return core__error_restore_on_success(&earlier, status);
}
