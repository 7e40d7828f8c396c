/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level core: a device after a reset.  In a process of its own: what existed
 * before is gone. */

#include "plugin_tables.h"

#include <string.h>

enum { BYTES = 4096 };

static uint64_t free_memory(plugin_tables *p)
{
    const uint32_t host = CORE_DEVICE_UNIFIED | CORE_DEVICE_HOST_ACCESS;
    uint64_t left = 0, total = 0;

    if (!p->memory.info || (p->properties.flags & host) ||
        p->memory.info(p->device, &left, &total) != CORE_OK)
        return 0;
    return left;
}

static bool works(plugin_tables *p, outcome *out)
{
    unsigned char wrote[BYTES], got[BYTES] = {0};
    plugin_block block = {{0}, 0};

    memset(wrote, 4, sizeof wrote);
    p->stream = NULL; /* gone with the reset */
    if (plugin_restore_stream(p, out) && plugin_alloc(p, out, BYTES, &block) &&
        plugin_write(p, out, block.memory, wrote, BYTES) &&
        plugin_read(p, out, got, block.memory, BYTES))
        expect(out, memcmp(got, wrote, BYTES) == 0,
               "new memory of a device that was reset: byte 0 is %d, "
               "expected 4",
               got[0]);
    plugin_free(p, &block);
    return out->verdict == VERDICT_PASS;
}

static void *pin(plugin_tables *p, const core_host_memory_interface *table,
                 outcome *out)
{
    void *data = NULL;

    if (table && expect_plugin_ok(out, table->alloc(p->device, BYTES, &data),
                                  "allocating host memory"))
        memset(data, 7, BYTES);
    return data;
}

static void works_after_reset(suite *self, outcome *out, const test *one)
{
    plugin_tables *p = plugin_tables_open(self, out);
    const core_device_reset_interface *table =
        p ? plugin_interface(p, "core.device_reset") : NULL;
    const core_host_memory_interface *host =
        p ? plugin_interface(p, "core.host_memory") : NULL;
    uint64_t before, after, size;
    plugin_block lost = {{0}, 0};
    unsigned char *pinned;

    (void)one;
    if (!table) {
        if (p)
            not_supported(out, "it has no core.device_reset");
        return;
    }
    pinned = pin(p, host, out);
    before = free_memory(p);
    size = plugin_visible_size(p, before);
    if (!plugin_alloc(p, out, size ? size : BYTES, &lost) ||
        !expect_plugin_ok(out, table->reset(p->device), "reset") ||
        !works(p, out))
        return;
    after = free_memory(p);
    expect(out, before == 0 || after + size / 2 >= before,
           "reset does not free memory: %llu bytes were free before an "
           "allocation of %llu bytes, and %llu after the reset",
           (unsigned long long)before, (unsigned long long)size,
           (unsigned long long)after);
    for (int i = 0; pinned && i < BYTES; i++)
        if (!expect(out, pinned[i] == 7,
                    "reset changes host memory (core.host_memory), which stays "
                    "valid: byte %d is %d, expected 7",
                    i, pinned[i]))
            break;
    if (pinned)
        host->free(p->device, pinned, BYTES);
}

bool suite_add_reset(suite *self)
{
    static const listed tests[] = {
        {"core/reset/device-works-again", works_after_reset, true},
    };

    return suite_add_list(self, LEVEL_CORE, tests,
                          sizeof tests / sizeof *tests);
}
