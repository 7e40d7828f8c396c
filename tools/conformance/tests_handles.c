/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level core: handles are not NULL, which means that there is none. */

#include "plugin_tables.h"

static bool is_handle(outcome *out, const void *handle, const char *function,
                      const char *meaning)
{
    return expect(out, handle != NULL,
                  "%s stores NULL, which means %s; a plugin whose handles are "
                  "numbers counts from 1",
                  function, meaning);
}

static bool memory_has_one(plugin_tables *p, outcome *out)
{
    static const char meaning[] = "that a tensor has no elements";
    plugin_block first = {{0}, 0}, second = {{0}, 0};
    bool good = plugin_alloc(p, out, 4096, &first) &&
                plugin_alloc(p, out, 4096, &second) &&
                is_handle(out, first.memory.handle, "alloc of the memory table",
                          meaning) &&
                is_handle(out, second.memory.handle,
                          "the second alloc of the memory table", meaning);

    if (first.memory.handle)
        plugin_free(p, &first);
    if (second.memory.handle)
        plugin_free(p, &second);
    return good;
}

static bool stream_has_one(plugin_tables *p, outcome *out)
{
    return p->synchronous ||
           is_handle(out, p->stream, "create of the stream table",
                     "that the device is synchronous");
}

static bool event_has_one(plugin_tables *p, outcome *out)
{
    void *event = NULL;
    bool good;

    if (p->synchronous || !p->events.create)
        return true;
    if (!expect_plugin_ok(out, p->events.create(p->device, 0, &event),
                          "creating an event"))
        return false;
    good = is_handle(out, event, "create of the event table",
                     "that there is no event");
    if (good)
        p->events.destroy(p->device, event);
    return good;
}

static bool graph_has_one(plugin_tables *p, outcome *out)
{
    const core_graph_capture_interface *table =
        plugin_interface(p, "core.graph_capture");
    plugin_block block = {{0}, 0};
    void *graph = NULL;
    bool begun, good;

    if (!table || !p->stream)
        return true;
    begun = plugin_alloc(p, out, 4096, &block) &&
            expect_plugin_ok(out, table->begin(p->device, p->stream),
                             "beginning a capture");
    good = begun && expect_plugin_ok(out,
                                     p->memory.fill(p->device, p->stream,
                                                    block.memory, 4096, 1, 1),
                                     "a captured fill");
    if (begun)
        good = expect_plugin_ok(out, table->end(p->device, p->stream, &graph),
                                "ending a capture") &&
               good &&
               is_handle(out, graph, "end of core.graph_capture",
                         "that the work is discarded");
    if (graph)
        table->destroy(p->device, graph);
    plugin_free(p, &block);
    return good;
}

static void handles_are_not_null(suite *self, outcome *out, const test *one)
{
    plugin_tables *p = plugin_tables_open(self, out);

    (void)one;
    if (p && stream_has_one(p, out) && memory_has_one(p, out) &&
        event_has_one(p, out))
        graph_has_one(p, out);
}

bool suite_add_handles(suite *self)
{
    static const listed tests[] = {
        {"core/device/handles-are-not-null", handles_are_not_null, false},
    };

    return suite_add_list(self, LEVEL_CORE, tests,
                          sizeof tests / sizeof *tests);
}
