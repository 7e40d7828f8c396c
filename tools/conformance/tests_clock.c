/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level core: the time between two events is the time that passed. */

#include "stream_gate.h"
#include "tests_features.h"

#include <time.h>

static int64_t now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static bool record(raw *plugin, void *event, outcome *out)
{
    return raw_ok(out,
                  plugin->events.record(plugin->device, event, plugin->stream),
                  "recording an event");
}

static bool elapsed(raw *plugin, const core_timing_interface *table,
                    void *const *events, int64_t *out_time, outcome *out)
{
    *out_time = -1;
    return raw_ok(
        out, table->elapsed(plugin->device, events[0], events[1], out_time),
        "elapsed");
}

/* A gate holds the stream for so many milliseconds between the two events; on
 * the host's clock that takes no less than from when the first had come until
 * the gate opens, and no more than all of it. */
static void hold(raw *plugin, const core_timing_interface *table,
                 void *const *events, long milliseconds, outcome *out)
{
    int64_t begin = now(), closed, least, most, told;
    gate between;
    bool good;

    gate_begin(&between);
    good = record(plugin, events[0], out) &&
           raw_ok(out, plugin->events.synchronize(plugin->device, events[0]),
                  "synchronizing an event");
    closed = now();
    good = good && gate_close(&between, plugin, plugin->stream, out) &&
           record(plugin, events[1], out);
    nanosleep(&(struct timespec){0, milliseconds * 1000000}, NULL);
    least = now() - closed;
    gate_open(&between);
    good = raw_wait(plugin, out) && good;
    most = now() - begin;
    gate_end(&between);
    if (!good || !elapsed(plugin, table, events, &told, out))
        return;
    /* Two clocks need not agree to more than a tenth. */
    expect(out, told >= least - least / 10 && told <= most + most / 10 + 100000,
           "between two events %lld ns passed, by the device's clock; by the "
           "host's it was no less than %lld and no more than %lld",
           (long long)told, (long long)least, (long long)most);
}

enum { LONG = 16 << 20, MANY = 32 };

static bool copies(raw *plugin, const core_timing_interface *table,
                   void *const *events, const raw_block *block, int times,
                   int64_t *out_time, outcome *out)
{
    bool good = record(plugin, events[0], out);

    for (int i = 0; good && i < times; i++)
        good = raw_ok(out,
                      plugin->memory.copy(plugin->device, plugin->stream,
                                          raw_at(block, LONG), block->memory,
                                          LONG),
                      "copy");
    return good && record(plugin, events[1], out) && raw_wait(plugin, out) &&
           elapsed(plugin, table, events, out_time, out);
}

/* Without a gate: many copies take longer than one.  What else the machine
 * does can hide that once, and not each time. */
static void compare(raw *plugin, const core_timing_interface *table,
                    void *const *events, outcome *out)
{
    raw_block block = {{0}, 0};
    int64_t few = -1, many = -1;

    if (!raw_alloc(plugin, out, 2 * LONG, &block))
        return;
    for (int i = 0; i < 5 && !(few > 0 && few < many); i++)
        if (!copies(plugin, table, events, &block, 1, &few, out) ||
            !copies(plugin, table, events, &block, MANY, &many, out))
            goto done;
    expect(out, few > 0 && few < many,
           "a copy of 16 MiB took %lld ns, and %d of them %lld", (long long)few,
           MANY, (long long)many);
done:
    raw_free(plugin, &block);
}

void features_time_passes(suite *self, outcome *out, const test *one)
{
    raw *plugin = raw_open(self, out);
    const core_timing_interface *table;
    void *events[2] = {NULL, NULL};

    (void)one;
    if (!plugin)
        return;
    table = raw_interface(plugin, "core.timing");
    if (!table || plugin->synchronous) {
        not_supported(out, "it has no core.timing, or no events");
        return;
    }
    for (int i = 0; i < 2; i++)
        if (!raw_ok(out,
                    plugin->events.create(plugin->device, CORE_EVENT_TIMING,
                                          &events[i]),
                    "creating an event for timing"))
            goto done;
    if (raw_interface(plugin, "core.host_callback")) {
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
