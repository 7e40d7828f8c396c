/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level core: the ids of devices, by which the core finds them again. */

#include "tests_features.h"

#include <string.h>

enum { IDS = 64, ID_MAX = 256 };

/* Copies the id of a device, which must exist. */
static bool read_id(const plugin_tables *plugin,
                    const core_hotplug_interface *table, uint32_t index,
                    outcome *out, char *id)
{
    core_string text = {NULL, 0};

    if (!expect_plugin_ok(out,
                          table->device_id(plugin->backend.user, index, &text),
                          "device_id"))
        return false;
    if (!expect(out, text.data && text.size > 0 && text.size < ID_MAX,
                "the id of device %u has %llu bytes; 1 to %d are accepted",
                index, (unsigned long long)text.size, ID_MAX - 1))
        return false;
    memcpy(id, text.data, text.size);
    id[text.size] = '\0';
    return true;
}

/* If the list of devices changes meanwhile, the core may ask for one that it
 * has opened. */
static void open_again(plugin_tables *plugin, outcome *out)
{
    const unsigned char wrote[4] = {1, 2, 3, 4};
    unsigned char got[4] = {0};
    plugin_block block = {{0}, 0};
    void *other = NULL;
    core_status status;

    if (!plugin_alloc(plugin, out, sizeof wrote, &block) ||
        !plugin_write(plugin, out, block.memory, wrote, sizeof wrote))
        goto done;
    plugin_last_error()->count = 0;
    status = plugin->backend.device_open(plugin->backend.user, plugin->index,
                                         &other);
    if (expect_plugin_error(out, status, CORE_ERROR_BUSY,
                            "device_open of a device that is open") &&
        plugin_read(plugin, out, got, block.memory, sizeof got))
        expect(out, memcmp(got, wrote, sizeof got) == 0,
               "device_open of a device that is open changes its memory");
done:
    plugin_free(plugin, &block);
}

/* The core reads the list again if a change was announced meanwhile, so a
 * plugin that announces one each time is never read to the end. */
static bool reads_announce_nothing(plugin_tables *plugin,
                                   const core_hotplug_interface *table,
                                   outcome *out)
{
    enum { TIMES = 5 };
    core_string reason, id;
    uint32_t first = 0, count = 0, announced = 0;

    for (int i = 0; i < TIMES; i++) {
        uint64_t before = plugin_tables_changes();

        if (!expect_plugin_ok(out,
                              plugin->backend.enumerate(plugin->backend.user,
                                                        &count, &reason),
                              "enumerate"))
            return false;
        if (count > 0)
            table->device_id(plugin->backend.user, 0, &id);
        if (i == 0)
            first = count;
        announced += plugin_tables_changes() > before;
    }
    return expect(out, announced < TIMES || count != first,
                  "enumerate or device_id calls devices_changed each time, "
                  "though there are still %u devices: a change is announced "
                  "once, by what changes the list",
                  count);
}

void features_hotplug(suite *self, outcome *out, const test *one)
{
    plugin_tables *plugin = plugin_tables_open(self, out);
    const core_hotplug_interface *table;
    char ids[IDS][ID_MAX], again[ID_MAX];
    core_string reason, text;
    uint32_t count = 0, at;

    (void)one;
    if (!plugin)
        return;
    at = plugin->index;
    table = plugin_interface(plugin, "core.hotplug");
    if (!table) {
        not_supported(out, "it has no core.hotplug");
        return;
    }
    if (!reads_announce_nothing(plugin, table, out) ||
        !expect_plugin_ok(
            out,
            plugin->backend.enumerate(plugin->backend.user, &count, &reason),
            "enumerate"))
        return;
    for (uint32_t i = 0; i < count && i < IDS; i++) {
        if (!read_id(plugin, table, i, out, ids[i]) ||
            !read_id(plugin, table, i, out, again) ||
            !expect(out, strcmp(ids[i], again) == 0,
                    "the id of device %u changes from \"%s\" to \"%s\"", i,
                    ids[i], again))
            return;
        for (uint32_t k = 0; k < i; k++)
            if (!expect(out, strcmp(ids[i], ids[k]) != 0,
                        "devices %u and %u have the same id, \"%s\"", k, i,
                        ids[i]))
                return;
    }
    expect_plugin_error(
        out, table->device_id(plugin->backend.user, count, &text),
        CORE_ERROR_NOT_FOUND, "device_id of a device that does not exist");
    open_again(plugin, out);
    if (plugin->backend.device_information)
        plugin->backend.device_information(plugin->device,
                                           &plugin->information);
    text = plugin->information.stable_id;
    expect(out,
           count <= at || at >= IDS ||
               (text.size == strlen(ids[at]) &&
                memcmp(text.data, ids[at], text.size) == 0),
           "device_id of device %u is \"%s\", its stable_id is \"%.*s\"", at,
           at < IDS ? ids[at] : "", (int)(text.size < ID_MAX ? text.size : 0),
           text.size ? text.data : "");
}
