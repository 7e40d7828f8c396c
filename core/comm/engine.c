/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The engines that plugins register (core.collectives). */

#include "comm/comm.h"

#include "base/memory.h"
#include "base/thread.h"
#include "comm/upcalls.h"

#include <string.h>

/* Guarded by the lock of devices, which the loader holds while a plugin
 * registers or is closed.  Engines are appended and never freed. */
static core__comm_engine *engines;

/* A table of an earlier version ends before create_on_device. */
static bool has_create(const core_collectives_interface *table)
{
    size_t size = offsetof(core_collectives_interface, create_on_device) +
                  sizeof table->create_on_device;

    return table->create ||
           (table->struct_size >= size && table->create_on_device);
}

/* Slots after this one may be NULL, as may `world` and `unique_id`. */
static core_status check_table(const core_collectives_interface *table)
{
    static const char accepted[] =
        "accepted: an interface that has probe, create, destroy, exchange and "
        "run, whose engine has a name of 1 to 31 bytes";

    if (table->struct_size <
        offsetof(core_collectives_interface, run) + sizeof table->run)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core.collectives has %u bytes; %s",
                           table->struct_size, accepted);
    if (!table->engine.data || table->engine.size == 0 ||
        table->engine.size > 31)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core.collectives names an engine by %llu bytes at "
                           "%p; %s",
                           (unsigned long long)table->engine.size,
                           (const void *)table->engine.data, accepted);
    if (!table->probe || !has_create(table) || !table->destroy ||
        !table->exchange || !table->run)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core.collectives of the engine \"%.*s\" lacks %s; "
                           "%s",
                           (int)table->engine.size, table->engine.data,
                           !table->probe        ? "probe"
                           : !has_create(table) ? "create"
                           : !table->destroy    ? "destroy"
                           : !table->exchange   ? "exchange"
                                                : "run",
                           accepted);
    return CORE_OK;
}

static core_status check_first(const core_plugin *plugin, core_string name)
{
    for (core__comm_engine *engine = engines; engine; engine = engine->next)
        if (engine->plugin == plugin && strlen(engine->name) == name.size &&
            memcmp(engine->name, name.data, name.size) == 0)
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "core.collectives of the engine \"%s\" is "
                               "registered twice",
                               engine->name);
    return CORE_OK;
}

core_status core__comm_engine_add(core_plugin *plugin,
                                  const core_plugin_information *about,
                                  const void *table, void *user)
{
    const core_collectives_interface *given = table;
    core__comm_engine *engine, **last = &engines;
    size_t size = given->struct_size;

    CORE_TRY(check_table(given));
    CORE_TRY(check_first(plugin, given->engine));
    engine = core__alloc_zero(sizeof *engine);
    if (!engine)
        return core__error_memory(sizeof *engine);
    engine->plugin = plugin;
    engine->about = about;
    memcpy(&engine->table, given,
           size < sizeof engine->table ? size : sizeof engine->table);
    memcpy(engine->name, given->engine.data, given->engine.size);
    engine->table.engine.data = engine->name;
    engine->user = user;
    while (*last)
        last = &(*last)->next;
    *last = engine;
    return CORE_OK;
}

void core__comm_engines_remove(const core_plugin *plugin)
{
    for (core__comm_engine *engine = engines; engine; engine = engine->next)
        if (engine->plugin == plugin)
            engine->plugin = NULL;
}

bool core__comm_engine_is_in_use(const core_plugin *plugin)
{
    for (core__comm_engine *engine = engines; engine; engine = engine->next)
        if (engine->plugin == plugin && atomic_load(&engine->comms) > 0)
            return true;
    return false;
}

/* With the lock held.  Appends the reason of an engine that cannot be used to
 * the thread's error. */
static core__comm_engine *first_usable(const char *name)
{
    const char *before = "; ";

    for (core__comm_engine *engine = engines; engine; engine = engine->next) {
        core__error_record none;
        core_status status;

        if (!engine->plugin || strcmp(engine->name, name) != 0)
            continue;
        core__error_save(&none);
        status = engine->table.probe(engine->user);
        if (status == CORE_OK)
            return engine;
        {
            char reason[256];

            strncpy(reason, core_error_message(), sizeof reason - 1);
            reason[sizeof reason - 1] = '\0';
            core__error_restore(&none);
            core__error_suffix("%s%s", before, reason);
        }
    }
    return NULL;
}

/* With the lock held.  Appends the engines that there are to the thread's error,
 * if none has this name. */
static void append_others(const char *name)
{
    const char *before = "; there are: ", *last = "";

    for (core__comm_engine *e = engines; e; e = e->next)
        if (e->plugin && strcmp(e->name, name) == 0)
            return;
    for (core__comm_engine *e = engines; e; e = e->next)
        if (e->plugin && strcmp(e->name, last) != 0) {
            core__error_suffix("%s%s", before, e->name);
            before = ", ";
            last = e->name;
        }
}

/* With the lock held. */
static core__comm_engine *engine_at(size_t index)
{
    core__comm_engine *engine = engines;

    for (; engine; engine = engine->next)
        if (engine->plugin && index-- == 0)
            break;
    return engine;
}

static void probe(const core__comm_engine *engine,
                  core_comm_engine_information *out)
{
    core__error_record earlier;

    core__error_save(&earlier);
    out->usable = engine->table.probe(engine->user) == CORE_OK;
    if (!out->usable)
        strncpy(out->reason, core_error_message(), sizeof out->reason - 1);
    core__error_restore(&earlier);
}

core_status core_comm_engine_describe(
    size_t index, core_comm_engine_information *out_information)
{
    core_comm_engine_information found = {0};
    const core__comm_engine *engine;

    CORE__NOT_NULL(out_information);
    CORE__CHECK_STRUCT_SIZE(out_information, core_comm_engine_information);
    CORE_TRY(core__comm_upcalls.load_plugins());
    core__device_lock();
    engine = engine_at(index);
    if (engine) {
        found.name = engine->name;
        found.plugin = engine->plugin;
        probe(engine, &found);
    }
    core__device_unlock();
    if (!engine)
        return core__error(CORE_ERROR_INDEX,
                           "core_comm_engine_describe: there is no engine %zu",
                           index);
    found.struct_size = out_information->struct_size;
    if (found.struct_size > sizeof found)
        found.struct_size = sizeof found;
    memcpy(out_information, &found, found.struct_size);
    return CORE_OK;
}

core_status core__comm_engine_find(const char *name,
                                   core__comm_engine **out_engine)
{
    core__error_record earlier;
    core_status status;

    *out_engine = NULL;
    core__error_save(&earlier);
    CORE_TRY(core__comm_upcalls.load_engines());
    core__device_lock();
    status = core__error(CORE_ERROR_NOT_FOUND,
                         "core_comm_create: no engine \"%.64s\" can be used "
                         "(core-info lists the plugins)",
                         name);
    *out_engine = first_usable(name);
    if (*out_engine) {
        atomic_fetch_add(&(*out_engine)->comms, 1);
        status = CORE_OK;
    } else {
        append_others(name);
    }
    core__device_unlock();
    if (status == CORE_OK)
        core__error_restore(&earlier);
    return status;
}
