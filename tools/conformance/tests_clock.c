/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level core: the time between two events matches the host's clock. */

#include "stream_gate.h"
#include "tests_features.h"

#include <time.h>

static int64_t now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static bool record(plugin_tables *plugin, void *event, outcome *out)
{
    return expect_plugin_ok(
        out, plugin->events.record(plugin->device, event, plugin->stream),
        "recording an event");
}

static bool elapsed(plugin_tables *plugin, const core_timing_interface *table,
                    void *const *events, int64_t *out_time, outcome *out)
{
    *out_time = -1;
    return expect_plugin_ok(
        out, table->elapsed(plugin->device, events[0], events[1], out_time),
        "elapsed");
}

/* Blocks the stream between two events for some milliseconds.  On the host's
 * clock the time between them is at least that from the first event's
 * completion until the gate opens, and at most that of the whole function. */
static void hold(plugin_tables *plugin, const core_timing_interface *table,
                 void *const *events, long milliseconds, outcome *out)
{
    int64_t begin = now(), closed, least, most, reported;
    stream_gate between;
    bool good;

    stream_gate_init(&between);
    good = record(plugin, events[0], out) &&
           expect_plugin_ok(
               out, plugin->events.synchronize(plugin->device, events[0]),
               "synchronizing an event");
    closed = now();
    good = good && stream_gate_close(&between, plugin, plugin->stream, out) &&
           record(plugin, events[1], out);
    nanosleep(&(struct timespec){0, milliseconds * 1000000}, NULL);
    least = now() - closed;
    stream_gate_open(&between);
    good = plugin_wait(plugin, out) && good;
    most = now() - begin;
    stream_gate_destroy(&between);
    if (!good || !elapsed(plugin, table, events, &reported, out))
        return;
    /* The clocks may differ by a tenth. */
    expect(out,
           reported >= least - least / 10 &&
               reported <= most + most / 10 + 100000,
           "the time between two events is %lld ns by the device's clock; by "
           "the host's it is at least %lld and at most %lld",
           (long long)reported, (long long)least, (long long)most);
}

enum { LONG = 16 << 20, MANY = 32 };

static bool copies(plugin_tables *plugin, const core_timing_interface *table,
                   void *const *events, const plugin_block *block, int times,
                   int64_t *out_time, outcome *out)
{
    bool good = record(plugin, events[0], out);

    for (int i = 0; good && i < times; i++)
        good =
            expect_plugin_ok(out,
                             plugin->memory.copy(plugin->device, plugin->stream,
                                                 plugin_block_at(block, LONG),
                                                 block->memory, LONG),
                             "copy");
    return good && record(plugin, events[1], out) && plugin_wait(plugin, out) &&
           elapsed(plugin, table, events, out_time, out);
}

/* Without a gate: many copies must take longer than one.  The machine's load
 * can hide that once, but not each time. */
static void compare(plugin_tables *plugin, const core_timing_interface *table,
                    void *const *events, outcome *out)
{
    plugin_block block = {{0}, 0};
    int64_t few = -1, many = -1;

    if (!plugin_alloc(plugin, out, 2 * LONG, &block))
        return;
    for (int i = 0; i < 5 && !(few > 0 && few < many); i++)
        if (!copies(plugin, table, events, &block, 1, &few, out) ||
            !copies(plugin, table, events, &block, MANY, &many, out))
            goto done;
    expect(out, few > 0 && few < many,
           "a copy of 16 MiB took %lld ns, %d of them took %lld ns",
           (long long)few, MANY, (long long)many);
done:
    plugin_free(plugin, &block);
}

void features_timing_matches_host_clock(suite *self, outcome *out,
                                        const test *one)
{
    plugin_tables *plugin = plugin_tables_open(self, out);
    const core_timing_interface *table;
    void *events[2] = {NULL, NULL};

    (void)one;
    if (!plugin)
        return;
    table = plugin_interface(plugin, "core.timing");
    if (!table || plugin->synchronous) {
        not_supported(out, "it has no core.timing, or no events");
        return;
    }
    for (int i = 0; i < 2; i++)
        if (!expect_plugin_ok(out,
                              plugin->events.create(plugin->device,
                                                    CORE_EVENT_TIMING,
                                                    &events[i]),
                              "creating an event for timing"))
            goto done;
    if (plugin_interface(plugin, "core.host_callback")) {
        hold(plugin, table, events, 20, out);
        hold(plugin, table, events, 80, out);
    } else {
        compare(plugin, table, events, out);
    }
done:
    for (int i = 0; i < 2; i++)
        if (events[i])
            plugin->events.destroy(plugin->device, events[i]);
}
