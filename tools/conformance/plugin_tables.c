/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "plugin_tables.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static _Thread_local plugin_error last;
static plugin_tables *opening; /* the one whose init runs */

plugin_error *plugin_last_error(void)
{
    return &last;
}

/* ------------------------------------------------------ the host table -- */

static core_status host_error(const core_error_info *info)
{
    size_t size = info->text.size < sizeof last.text ? info->text.size
                                                     : sizeof last.text - 1;

    last.count++;
    last.code = info->code;
    last.severity = info->severity;
    if (size)
        memcpy(last.text, info->text.data, size);
    last.text[size] = 0;
    return info->code;
}

static void host_error_last(core_error_info *out)
{
    if (out->struct_size < sizeof *out)
        return;
    *out = (core_error_info){.struct_size = out->struct_size,
                             .code = last.code,
                             .severity = last.severity,
                             .text = {last.text, strlen(last.text)}};
}

static void host_log(uint32_t severity, core_string component, core_string text)
{
    (void)severity;
    (void)component;
    (void)text;
}

core_string plugin_setting(core_string name)
{
    char copy[128];
    const char *value = NULL;

    if (name.size < sizeof copy) {
        memcpy(copy, name.data, name.size);
        copy[name.size] = 0;
        if (core_setting_get(copy, &value) != CORE_OK)
            value = NULL;
    }
    return (core_string){value, value ? strlen(value) : 0};
}

static core_status report_error(core_status code, const char *text)
{
    core_error_info info = {
        .struct_size = sizeof info, .code = code, .text = {text, strlen(text)}};

    return host_error(&info);
}

/* Copies a table of which only the first `size` bytes are valid. */
static void copy_table(void *to, size_t capacity, const void *from)
{
    uint32_t size;

    memset(to, 0, capacity);
    if (!from)
        return;
    memcpy(&size, from, sizeof size);
    memcpy(to, from, size < capacity ? size : capacity);
}

static core_status host_backend(core_registry *registry,
                                const core_backend *backend)
{
    plugin_tables *self = opening;

    if (!self || registry != (core_registry *)(void *)self)
        return report_error(
            CORE_ERROR_INVALID_ARGUMENT,
            "this host function is not available while init runs");
    if (self->backends++ > 0)
        return CORE_OK; /* only the first is tested */
    copy_table(&self->backend, sizeof self->backend, backend);
    copy_table(&self->memory, sizeof self->memory, self->backend.memory);
    copy_table(&self->streams, sizeof self->streams, self->backend.streams);
    copy_table(&self->events, sizeof self->events, self->backend.events);
    self->synchronous = !self->backend.streams;
    slot_watch_tables(&self->memory, &self->streams, &self->events);
    slot_watch_backend(&self->backend);
    return CORE_OK;
}

static core_status host_kernels(core_registry *registry, core_string backend,
                                const core_kernel *const *kernels,
                                uint32_t count)
{
    (void)registry;
    (void)backend;
    (void)kernels;
    if (opening)
        opening->kernels += count;
    return CORE_OK;
}

static core_status host_fallback(core_registry *registry, core_string backend,
                                 core_function kernel, void *user)
{
    (void)registry;
    (void)backend;
    (void)kernel;
    (void)user;
    return CORE_OK;
}

static core_status host_operator(core_registry *registry, core_string schema)
{
    plugin_operators *own = opening ? &opening->operators : NULL;
    const char *end =
        schema.data ? memchr(schema.data, '(', schema.size) : NULL;
    size_t size = end ? (size_t)(end - schema.data) : 0;

    (void)registry;
    if (!own || own->count == PLUGIN_OPERATORS || size >= sizeof own->name[0])
        return CORE_OK;
    if (size)
        memcpy(own->name[own->count++], schema.data, size);
    return CORE_OK;
}

static core_status host_gradient(core_registry *registry, core_string name,
                                 const core_operator_gradient *gradient)
{
    plugin_operators *own = opening ? &opening->operators : NULL;

    (void)registry;
    (void)gradient;
    for (uint32_t i = 0; own && i < own->count; i++)
        if (strlen(own->name[i]) == name.size &&
            memcmp(own->name[i], name.data, name.size) == 0)
            own->gradient[i] = true;
    return CORE_OK;
}

static core_status host_shape(core_registry *registry, core_string name,
                              core_shape_function shape, void *user)
{
    (void)registry;
    (void)name;
    (void)shape;
    (void)user;
    return CORE_OK;
}

static core_status host_interface(core_registry *registry, core_string name,
                                  uint32_t version, const void *table,
                                  void *user)
{
    static const char collectives[] = "core.collectives";
    plugin_tables *self = opening;

    (void)registry;
    (void)version;
    (void)user;
    if (!self || !table || name.size != sizeof collectives - 1 ||
        memcmp(name.data, collectives, name.size) != 0)
        return CORE_OK;
    self->engines++;
    copy_table(&self->engine, sizeof self->engine, table);
    return CORE_OK;
}

static core_status host_function(core_registry *registry, core_string name,
                                 uint32_t key, core_string backend,
                                 core_function function, void *user)
{
    (void)registry;
    (void)name;
    (void)key;
    (void)backend;
    (void)function;
    (void)user;
    return CORE_OK;
}

static core_status host_borrowed(core_string backend, uint32_t index,
                                 const core_kernel **out_kernel)
{
    static core_device *opened;
    char type[64];

    *out_kernel = NULL;
    if (backend.size >= sizeof type)
        return report_error(CORE_ERROR_NOT_FOUND, "no such backend");
    memcpy(type, backend.data, backend.size);
    type[backend.size] = 0;
    if (!opened && core_device_find(type, &opened) != CORE_OK)
        return report_error(CORE_ERROR_NOT_FOUND, core_error_message());
    return core_kernel_at(type, index, out_kernel);
}

static core_status host_find(core_string name, core_operator **out)
{
    char text[128];

    *out = NULL;
    if (name.size >= sizeof text || !name.data)
        return report_error(CORE_ERROR_NOT_FOUND, "no such operator");
    memcpy(text, name.data, name.size);
    text[name.size] = 0;
    if (core_op_find(text, out) != CORE_OK)
        return report_error(CORE_ERROR_NOT_FOUND, core_error_message());
    return CORE_OK;
}

static core_string host_name(const core_operator *op)
{
    const char *name = core_op_name(op);

    return (core_string){name, strlen(name)};
}

static core_status host_cache(core_string name, core_string *out_path)
{
    (void)name;
    *out_path = (core_string){0};
    return report_error(CORE_ERROR_UNSUPPORTED, "this host stores nothing");
}

/* Counted; the suite enumerates by itself. */
static _Atomic uint64_t changes;

static core_status host_devices_changed(core_string device_type)
{
    (void)device_type;
    changes++;
    return CORE_OK;
}

uint64_t plugin_tables_changes(void)
{
    return changes;
}

static void fill_host(core_host *host)
{
    *host = (core_host){.struct_size = sizeof *host,
                        .abi_minor = CORE_ABI_MINOR,
                        .error = host_error,
                        .log = host_log,
                        .setting = plugin_setting,
                        .register_backend = host_backend,
                        .register_kernels = host_kernels,
                        .register_fallback = host_fallback,
                        .register_operator = host_operator,
                        .register_function = host_function,
                        .operator_find = host_find,
                        .operator_name = host_name,
                        .backend_kernel = host_borrowed,
                        .error_last = host_error_last,
                        .register_gradient = host_gradient,
                        .cache_directory = host_cache,
                        .devices_changed = host_devices_changed,
                        .register_shape = host_shape,
                        .register_interface = host_interface};
}

/* --------------------------------------------------------------- open -- */

core_plugin_entry_function plugin_tables_entry(suite *self, outcome *out)
{
    static void *library;
    core_plugin_entry_function entry;

    if (!library) {
        slot before = slot_enter(SLOT_CONSTRUCTORS);

        library = dlopen(self->plugin, RTLD_NOW | RTLD_LOCAL);
        slot_leave(SLOT_CONSTRUCTORS, before);
    }
    if (!expect(out, library != NULL, "the file cannot be opened: %s",
                library ? "" : dlerror()))
        return NULL;
    entry = (core_plugin_entry_function)(uintptr_t)dlsym(library,
                                                         CORE_PLUGIN_ENTRY);
    expect(out, entry != NULL, "it exports no " CORE_PLUGIN_ENTRY);
    return entry;
}

typedef struct needed_slot {
    const char *name;
    bool there;
} needed_slot;

static bool has_all(const char *table, const needed_slot *slots, size_t count,
                    outcome *out)
{
    for (size_t i = 0; i < count; i++)
        if (!expect(out, slots[i].there, "%s of %s is NULL", slots[i].name,
                    table))
            return false;
    return true;
}

static bool has_memory_slots(const core_memory_table *m, outcome *out)
{
    const needed_slot slots[] = {
        {"alloc", m->alloc},
        {"free", m->free},
        {"copy_from_host", m->copy_from_host},
        {"copy_to_host", m->copy_to_host},
        {"copy", m->copy},
        {"fill", m->fill},
    };

    return has_all("the memory table", slots, sizeof slots / sizeof *slots,
                   out);
}

static bool has_stream_slots(const core_stream_table *s,
                             const core_event_table *e, outcome *out)
{
    const needed_slot of_streams[] = {
        {"create", s->create},         {"destroy", s->destroy},
        {"query", s->query},           {"synchronize", s->synchronize},
        {"wait_event", s->wait_event},
    };
    const needed_slot of_events[] = {
        {"create", e->create},           {"destroy", e->destroy},
        {"record", e->record},           {"query", e->query},
        {"synchronize", e->synchronize},
    };

    return has_all("the stream table", of_streams,
                   sizeof of_streams / sizeof *of_streams, out) &&
           has_all("the event table", of_events,
                   sizeof of_events / sizeof *of_events, out);
}

/* Checks the slots that every test calls and no device may lack. */
static bool has_required_slots(const plugin_tables *plugin, outcome *out)
{
    const core_backend *b = &plugin->backend;
    const needed_slot slots[] = {
        {"enumerate", b->enumerate},
        {"device_open", b->device_open},
        {"device_close", b->device_close},
        {"device_properties", b->device_properties},
        {"memory", b->memory},
    };

    return has_all("core_backend", slots, sizeof slots / sizeof *slots, out) &&
           has_memory_slots(&plugin->memory, out) &&
           expect(out, plugin->answer.shutdown != NULL,
                  "the entry returns no shutdown") &&
           (plugin->synchronous ||
            (expect(out, b->events != NULL, "it has streams, but no events") &&
             has_stream_slots(&plugin->streams, &plugin->events, out)));
}

static core_status call_entry(core_plugin_entry_function entry,
                              core_plugin_answer *answer)
{
    core_plugin_offer offer = {sizeof offer,
                               CORE_ABI_MAJOR,
                               1,
                               CORE_ABI_MINOR,
                               {core_version(), strlen(core_version())}};
    slot before = slot_enter(SLOT_ENTRY);
    core_status status;

    answer->struct_size = sizeof *answer;
    status = entry(&offer, answer);
    slot_leave(SLOT_ENTRY, before);
    return status;
}

core_status plugin_tables_init(plugin_tables *plugin, slot as)
{
    slot before = slot_enter(as);
    core_status status;

    opening = plugin;
    status = plugin->answer.init(&plugin->host, (core_registry *)(void *)plugin,
                                 &plugin->plugin);
    opening = NULL;
    slot_leave(as, before);
    return status;
}

void plugin_tables_old_host(plugin_tables *plugin, uint32_t minor,
                            uint32_t size)
{
    core_host whole;

    fill_host(&whole);
    memset(&plugin->host, 0, sizeof plugin->host);
    memcpy(&plugin->host, &whole, size);
    plugin->host.struct_size = size;
    plugin->host.abi_minor = minor;
}

static bool is_refused(const core_plugin_answer *answer, core_status status,
                       outcome *out)
{
    const core_string *why = &answer->refusal;
    bool said = why->data && why->size > 0;

    if (status == CORE_OK)
        return false;
    if (strcmp(core_status_name(status), core_status_name(-1)) == 0)
        return !expect(out, false,
                       "the entry returns %d, which is not a core_status",
                       (int)status);
    if (!said)
        return !expect(out, false,
                       "the entry refuses: it sets no `refusal`, and returns "
                       "%s",
                       core_status_name(status));
    return !expect(out, false, "the entry refuses: %.*s", (int)why->size,
                   why->data);
}

/* Checks what the entry has answered. */
static bool is_answered(const core_plugin_answer *answer, core_status status,
                        outcome *out)
{
    return !is_refused(answer, status, out) &&
           expect(out,
                  answer->abi_minor >= 1 && answer->abi_minor <= CORE_ABI_MINOR,
                  "the entry returns success and selects ABI minor %u of 1 to "
                  "%u (abi_minor of the answer)",
                  answer->abi_minor, CORE_ABI_MINOR) &&
           expect(out, answer->init != NULL,
                  "the entry returns success, and init of the answer is NULL");
}

static bool start(plugin_tables *plugin, core_plugin_entry_function entry,
                  outcome *out)
{
    side_effects_before before;
    core_status status;

    side_effects_begin(&before);
    status = call_entry(entry, &plugin->answer);
    side_effects_end(&before, SLOT_ENTRY, &plugin->effects);
    if (!is_answered(&plugin->answer, status, out))
        return false;
    plugin->host.abi_minor = plugin->answer.abi_minor;
    side_effects_begin(&before);
    status = plugin_tables_init(plugin, SLOT_INIT);
    side_effects_end(&before, SLOT_INIT, &plugin->effects);
    return expect_plugin_ok(out, status, "init") &&
           expect(out, plugin->backends > 0,
                  plugin->engines > 0
                      ? "init registers no device type: an engine of "
                        "core.collectives alone is not tested by this suite"
                      : "init registers no backend") &&
           has_required_slots(plugin, out);
}

/* The index in a device's name: "example:1", or "example". */
static uint32_t index_of(const char *name)
{
    const char *colon = name ? strchr(name, ':') : NULL;

    return colon ? (uint32_t)strtoul(colon + 1, NULL, 10) : 0;
}

static bool find_device(plugin_tables *plugin, outcome *out)
{
    core_string reason = {"", 0};
    side_effects_before before;
    uint32_t count = 0;
    core_status status;

    side_effects_begin(&before);
    status = plugin->backend.enumerate(plugin->backend.user, &count, &reason);
    side_effects_end(&before, SLOT_ENUMERATE, &plugin->effects);
    if (!expect_plugin_ok(out, status, "enumerate"))
        return false;
    if (count == 0)
        not_supported(out, "there is no device: %.*s", (int)reason.size,
                      reason.data ? reason.data : "");
    return count > 0 &&
           expect(out, plugin->index < count,
                  "there are %u devices, without the wanted device %u", count,
                  plugin->index);
}

static bool open_device(plugin_tables *plugin, outcome *out)
{
    side_effects_before before;
    core_status status;

    plugin->properties.struct_size = sizeof plugin->properties;
    plugin->information.struct_size = sizeof plugin->information;
    plugin->properties.granularity = 1;
    side_effects_begin(&before);
    status = plugin->backend.device_open(plugin->backend.user, plugin->index,
                                         &plugin->device);
    side_effects_end(&before, SLOT_DEVICE_OPEN, &plugin->effects);
    if (!expect_plugin_ok(out, status, "device_open"))
        return false;
    side_effects_begin(&before);
    status =
        plugin->backend.device_properties(plugin->device, &plugin->properties);
    side_effects_end(&before, SLOT_DEVICE_PROPERTIES, &plugin->effects);
    return expect_plugin_ok(out, status, "device_properties");
}

static bool open_stream(plugin_tables *plugin, outcome *out)
{
    side_effects_before before;
    core_status status;

    if (plugin->synchronous)
        return true;
    side_effects_begin(&before);
    status = plugin->streams.create(plugin->device, 0, &plugin->stream);
    side_effects_end(&before, SLOT_STREAM_CREATE, &plugin->effects);
    return expect_plugin_ok(out, status, "creating a stream");
}

plugin_tables *plugin_tables_open(suite *self, outcome *out)
{
    core_plugin_entry_function entry;
    side_effects_before before;
    plugin_tables *plugin;

    if (self->tables)
        return self->tables;
    plugin = calloc(1, sizeof *plugin);
    if (!plugin) {
        harness_error(out, "no memory");
        return NULL;
    }
    plugin->index = index_of(self->wanted);
    plugin->second = plugin->index == 0;
    side_effects_begin(&before);
    entry = plugin_tables_entry(self, out);
    side_effects_end(&before, SLOT_CONSTRUCTORS, &plugin->effects);
    fill_host(&plugin->host);
    if (!entry || !start(plugin, entry, out) || !find_device(plugin, out) ||
        !open_device(plugin, out) || !open_stream(plugin, out))
        return NULL; /* what was opened stays open: the process ends soon */
    for (int i = 0; i < SLOTS; i++)
        plugin->seconds[i] = slot_seconds((slot)i);
    slot_watch_opened();
    self->tables = plugin;
    return plugin;
}

const void *plugin_interface(const plugin_tables *plugin, const char *name)
{
    core_string text = {name, strlen(name)};
    const void *table;
    slot before;

    if (!plugin->backend.get_interface)
        return NULL;
    before = slot_enter(SLOT_INTERFACE);
    table = plugin->backend.get_interface(plugin->backend.user, text, 1);
    slot_leave(SLOT_INTERFACE, before);
    return table;
}

/* -------------------------------------------------------------- errors -- */

bool expect_plugin_ok(outcome *out, core_status status, const char *what)
{
    if (status == CORE_OK)
        return true;
    expect(out, false, "%s: %s: %s", what, core_status_name(status),
           last.text[0] ? last.text : "no message was reported");
    if (status == CORE_ERROR_DEVICE_LOST && out->verdict == VERDICT_FAIL)
        out->verdict = VERDICT_DEVICE_LOST;
    return false;
}

bool expect_plugin_error(outcome *out, core_status status, core_status wanted,
                         const char *what)
{
    return expect(out, status == wanted, "%s: got %s, expected %s", what,
                  status == CORE_OK ? "success" : core_status_name(status),
                  core_status_name(wanted)) &&
           expect(out, last.count > 0 && last.text[0],
                  "%s: returns %s without reporting an error to the host", what,
                  core_status_name(status)) &&
           expect(out, last.code == status,
                  "%s: returns %s, but reports %s to the host (\"%s\")", what,
                  core_status_name(status), core_status_name(last.code),
                  last.text);
}

/* -------------------------------------------------------------- memory -- */

bool plugin_alloc(plugin_tables *plugin, outcome *out, uint64_t size,
                  plugin_block *block)
{
    uint64_t step = plugin->properties.granularity;

    step = step ? step : 1;
    memset(block, 0, sizeof *block);
    size = (size + step - 1) / step * step;
    if (!expect_plugin_ok(
            out, plugin->memory.alloc(plugin->device, size, &block->memory),
            "alloc"))
        return false;
    block->size = size;
    return true;
}

uint64_t plugin_visible_size(const plugin_tables *plugin, uint64_t left)
{
    uint64_t largest = plugin->properties.largest_allocation;
    uint64_t size = left / 8;

    if (size > 64 << 20)
        size = 64 << 20;
    if (largest > 0 && size > largest / 2)
        size = largest / 2;
    return size;
}

void plugin_free(plugin_tables *plugin, plugin_block *block)
{
    if (block->size)
        plugin->memory.free(plugin->device, block->memory, block->size);
    block->size = 0;
}

core_memory plugin_block_at(const plugin_block *block, uint64_t offset)
{
    return (core_memory){block->memory.handle, block->memory.offset + offset};
}

bool plugin_has_streams(plugin_tables *plugin, uint32_t more, outcome *out)
{
    uint32_t most = plugin->properties.max_streams;

    if (plugin->synchronous)
        not_supported(out, "the device is synchronous");
    else if (most > 0 && most < more + 1)
        not_supported(out, "the device has at most %u streams", most);
    else
        return true;
    return false;
}

bool plugin_reserve_streams(plugin_tables *plugin, uint32_t streams,
                            outcome *out)
{
    if (plugin->synchronous || plugin->properties.max_streams != streams)
        return plugin_has_streams(plugin, streams, out);
    plugin->streams.synchronize(plugin->device, plugin->stream);
    plugin->streams.destroy(plugin->device, plugin->stream);
    plugin->stream = NULL;
    return true;
}

bool plugin_restore_stream(plugin_tables *plugin, outcome *out)
{
    core_status status = CORE_OK;

    if (plugin->synchronous || plugin->stream)
        return true;
    /* A destroyed stream may take a moment to disappear. */
    for (int i = 0; i < 5000; i++) {
        status = plugin->streams.create(plugin->device, 0, &plugin->stream);
        if (status == CORE_OK)
            break;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    return expect_plugin_ok(out, status, "creating a stream");
}

bool plugin_wait(plugin_tables *plugin, outcome *out)
{
    if (plugin->synchronous)
        return true;
    return expect_plugin_ok(
        out, plugin->streams.synchronize(plugin->device, plugin->stream),
        "synchronizing the stream");
}

bool plugin_write(plugin_tables *plugin, outcome *out, core_memory to,
                  const void *from, uint64_t size)
{
    return expect_plugin_ok(out,
                            plugin->memory.copy_from_host(
                                plugin->device, plugin->stream, to, from, size),
                            "copy_from_host") &&
           plugin_wait(plugin, out);
}

bool plugin_read(plugin_tables *plugin, outcome *out, void *to,
                 core_memory from, uint64_t size)
{
    return expect_plugin_ok(out,
                            plugin->memory.copy_to_host(
                                plugin->device, plugin->stream, to, from, size),
                            "copy_to_host") &&
           plugin_wait(plugin, out);
}
