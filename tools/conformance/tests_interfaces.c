/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level core: structs and interfaces of several sizes and versions: outputs stay
 * in the struct of their caller, interfaces do not change, and init works under
 * the oldest host. */

#include "plugin_tables.h"

#include <libcore/codegen.h>

#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------ structs -- */

enum { GUARD = 64 };

static bool guard_is_intact(const unsigned char *guard, outcome *out,
                            const char *what)
{
    for (int i = GUARD; i-- > 0;)
        if (!expect(out, guard[i] == 0xa5,
                    "%s writes %d bytes past the struct_size of its caller",
                    what, i + 1))
            return false;
    return true;
}

/* A plugin that was built against later headers knows larger structs. */
static void outputs_stay_in_size(suite *self, outcome *out, const test *one)
{
    plugin_tables *p = plugin_tables_open(self, out);
    struct {
        core_device_properties it;
        unsigned char guard[GUARD];
    } properties;
    struct {
        core_device_information it;
        unsigned char guard[GUARD];
    } about;
    const core_numerics_interface *table;
    struct {
        core_numerics it;
        unsigned char guard[GUARD];
    } numbers;

    (void)one;
    if (!p)
        return;
    memset(&properties, 0xa5, sizeof properties);
    memset(&about, 0xa5, sizeof about);
    memset(&numbers, 0xa5, sizeof numbers);
    properties.it = (core_device_properties){
        .struct_size = sizeof p->properties, .granularity = 1};
    about.it = (core_device_information){.struct_size = sizeof about.it};
    numbers.it = (core_numerics){.struct_size = sizeof numbers.it};
    p->backend.device_properties(p->device, &properties.it);
    guard_is_intact(properties.guard, out, "device_properties");
    if (p->backend.device_information) {
        p->backend.device_information(p->device, &about.it);
        guard_is_intact(about.guard, out, "device_information");
    }
    table = plugin_interface(p, "core.numerics");
    if (table) {
        table->get(p->device, &numbers.it);
        guard_is_intact(numbers.guard, out, "get of core.numerics");
    }
}

/* ---------------------------------------------------------- interfaces -- */

static const char *const interfaces[] = {
    "core.cpu_threads",    "core.timing",
    "core.host_callback",  "core.host_memory",
    "core.stream_adopt",   "core.stream_priority",
    "core.virtual_memory", "core.peer",
    "core.graph_capture",  "core.device_reset",
    "core.stream_error",   "core.numerics",
    "core.telemetry",      "core.fork_safe",
    "core.allocator",      "core.ipc",
    "core.hotplug",        "core.profiler",
    "core.layout",         "core.ranges",
    "core.codegen",
};

/* The one table without a field `reserved`. */
static void flags_are_known(const core_codegen_interface *table, outcome *out)
{
    uint32_t unknown = table->flags & ~(uint32_t)CORE_CODEGEN_BUILDS_SLOWLY;

    expect(out, unknown == 0, "`flags` of core.codegen have unknown bits, %u",
           unknown);
}

/* The masks of an engine that the plugin registers beside its device. */
static void masks_are_known(const core_collectives_interface *engine,
                            outcome *out)
{
    uint32_t dtypes = 0, reductions = 0, kinds = 0;

    for (core_dtype dtype = 0; dtype < CORE_DTYPE_LIMIT; dtype++)
        if (core_dtype_size(dtype) > 0)
            dtypes |= CORE_DTYPE_MASK(dtype);
    for (uint32_t r = CORE_REDUCE_SUM; r <= CORE_REDUCE_AVG; r++)
        reductions |= CORE_REDUCE_MASK(r);
    for (uint32_t k = CORE_COLLECTIVE_ALL_REDUCE;
         k <= CORE_COLLECTIVE_ALL_TO_ALL_COUNTS; k++)
        kinds |= CORE_COLLECTIVE_MASK(k);
    expect(out, !(engine->dtypes & ~dtypes),
           "`dtypes` of core.collectives has bits of no dtype, %#x",
           engine->dtypes & ~dtypes);
    expect(out, !(engine->reductions & ~reductions),
           "`reductions` of core.collectives has unknown bits, %#x",
           engine->reductions & ~reductions);
    expect(out, !(engine->kinds & ~kinds),
           "`kinds` of core.collectives has unknown bits, %#x",
           engine->kinds & ~kinds);
}

static void interfaces_are_stable(suite *self, outcome *out, const test *one)
{
    plugin_tables *p = plugin_tables_open(self, out);

    (void)one;
    if (p && p->engines > 0)
        masks_are_known(&p->engine, out);
    if (!p || !p->backend.get_interface)
        return;
    for (size_t i = 0; i < sizeof interfaces / sizeof *interfaces; i++) {
        core_string name = {interfaces[i], strlen(interfaces[i])};
        const char *table = plugin_interface(p, interfaces[i]);
        uint32_t reserved = 0;

        expect(out, plugin_interface(p, interfaces[i]) == table,
               "get_interface(\"%s\") returns one table, then another",
               interfaces[i]);
        expect(out,
               !p->backend.get_interface(p->backend.user, name, UINT32_MAX),
               "get_interface(\"%s\", version 4294967295) is not NULL, though "
               "there is no such version",
               interfaces[i]);
        if (table && strcmp(interfaces[i], "core.codegen") == 0)
            flags_are_known((const core_codegen_interface *)(const void *)table,
                            out);
        else if (table)
            memcpy(&reserved, table + 4, sizeof reserved);
        expect(out, reserved == 0, "the field `reserved` of %s is %u, not 0",
               interfaces[i], reserved);
    }
}

/* ------------------------------------------------------------ old host -- */

/* The functions that minors after the first added to the host. */
static char called[64];

static core_status trap(const char *name)
{
    snprintf(called, sizeof called, "%s", name);
    return CORE_ERROR_UNSUPPORTED;
}

static core_status trap_gradient(core_registry *registry, core_string name,
                                 const core_operator_gradient *gradient)
{
    (void)registry;
    (void)name;
    (void)gradient;
    return trap("register_gradient");
}

static core_status trap_cache(core_string name, core_string *out_path)
{
    (void)name;
    *out_path = (core_string){0};
    return trap("cache_directory");
}

static core_status trap_shape(core_registry *registry, core_string name,
                              core_status (*shape)(void *, const core_value *,
                                                   uint32_t,
                                                   core_result_shape *,
                                                   uint32_t),
                              void *user)
{
    (void)registry;
    (void)name;
    (void)shape;
    (void)user;
    return trap("register_shape");
}

static void trap_last(core_error_info *out)
{
    trap("error_last");
    out->code = CORE_OK;
}

/* Bytes of the host's table in a minor. */
static uint32_t host_size(uint32_t minor)
{
    return minor < 2   ? offsetof(core_host, error_last)
           : minor < 3 ? offsetof(core_host, cache_directory)
           : minor < 4 ? offsetof(core_host, call_record_stream)
           : minor < 6 ? offsetof(core_host, devices_changed)
                       : sizeof(core_host);
}

/* Negotiates the oldest minor that the plugin accepts, and calls init with a
 * host that has no more than that. */
static void works_with_oldest_host(suite *self, outcome *out, const test *one)
{
    core_plugin_entry_function entry = plugin_tables_entry(self, out);
    static plugin_tables tables;
    core_plugin_offer offer = {sizeof offer, CORE_ABI_MAJOR, 1, 0, {"test", 4}};
    core_status status = CORE_ERROR_INCOMPATIBLE;

    (void)one;
    while (entry && status != CORE_OK && offer.abi_minor_max < CORE_ABI_MINOR) {
        offer.abi_minor_max++;
        tables.answer =
            (core_plugin_answer){.struct_size = sizeof tables.answer};
        status = entry(&offer, &tables.answer);
    }
    if (!entry || !expect(out, status == CORE_OK, "the entry refuses"))
        return;
    plugin_tables_old_host(&tables, offer.abi_minor_max,
                           host_size(offer.abi_minor_max));
    if (offer.abi_minor_max < 2) {
        tables.host.register_gradient = trap_gradient;
        tables.host.error_last = trap_last;
    }
    if (offer.abi_minor_max < 3)
        tables.host.cache_directory = trap_cache;
    if (offer.abi_minor_max < 6)
        tables.host.register_shape = trap_shape;
    status = plugin_tables_init(&tables, SLOT_INIT_OLD_HOST);
    expect(out, !called[0],
           "init calls %s of the host, which minor %u does not have (abi_minor "
           "and struct_size of the table say so)",
           called, offer.abi_minor_max);
    expect_plugin_ok(out, status, "init under the oldest host");
}

bool suite_add_interfaces(suite *self)
{
    static const listed tests[] = {
        {"core/device/outputs-stay-in-size", outputs_stay_in_size, false},
        {"core/device/interfaces-are-stable", interfaces_are_stable, false},
        {"core/oldest-host/init-succeeds", works_with_oldest_host, false},
    };

    return suite_add_list(self, LEVEL_CORE, tests,
                          sizeof tests / sizeof *tests);
}
