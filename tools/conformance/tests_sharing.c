/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level core: host memory of the program that a device pins. */

#include "tests_features.h"

#include <stdlib.h>
#include <string.h>

enum { BYTES = 10000, BEGIN = 13 /* not aligned */, ROUNDS = 3 };

static unsigned char pattern(size_t at)
{
    return (unsigned char)(at * 7 + 1);
}

static bool is_pattern(const unsigned char *data)
{
    for (size_t i = 0; i < BYTES; i++)
        if (data[i] != pattern(i))
            return false;
    return true;
}

/* One registration, copies from and to the memory, and its end. */
static bool use_registered(plugin_tables *p,
                           const core_host_memory_interface *table,
                           const plugin_block *block, unsigned char *data,
                           outcome *out)
{
    unsigned char *begin = data + BEGIN;
    bool good;

    for (size_t i = 0; i < BYTES; i++)
        begin[i] = pattern(i);
    if (!expect_plugin_ok(out, table->register_memory(p->device, begin, BYTES),
                          "registering host memory"))
        return false;
    good = expect(out, is_pattern(begin),
                  "registering host memory changes its content") &&
           plugin_write(p, out, block->memory, begin, BYTES);
    memset(begin, 0, BYTES);
    good = good && plugin_read(p, out, begin, block->memory, BYTES);
    table->unregister_memory(p->device, begin, BYTES);
    return good && expect(out, is_pattern(begin),
                          "registered host memory lost the data of a copy");
}

void features_registered_host_memory(suite *self, outcome *out, const test *one)
{
    plugin_tables *p = plugin_tables_open(self, out);
    const core_host_memory_interface *table;
    plugin_block block = {{0}, 0};
    unsigned char *data;

    (void)one;
    if (!p)
        return;
    table = plugin_interface(p, "core.host_memory");
    if (!table || table->struct_size < sizeof *table ||
        !table->register_memory) {
        not_supported(out, "it does not register host memory");
        return;
    }
    if (!expect(out, table->unregister_memory != NULL,
                "core.host_memory has register_memory, but unregister_memory "
                "is NULL"))
        return;
    data = malloc(BEGIN + BYTES);
    if (!data) {
        harness_error(out, "no memory");
        return;
    }
    if (plugin_alloc(p, out, BYTES, &block))
        for (int i = 0; i < ROUNDS; i++)
            if (!use_registered(p, table, &block, data, out))
                break;
    plugin_free(p, &block);
    free(data);
}
