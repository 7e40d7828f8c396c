/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level core: a device that is removed, and returns (core.hotplug).  The
 * commands of --remove and --restore do that to the device, as only its maker
 * can say how.  In a process of its own, which ends without a device. */

#include "plugin_tables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ID_MAX = 256, COMMAND_MAX = 4096, BYTES = 4096 };

typedef struct removal {
    suite *self;
    outcome *out;
    plugin_tables *p;
    const core_hotplug_interface *table;
    char id[ID_MAX]; /* of the device */
    uint32_t count;  /* devices, before it was removed */
    plugin_block block;
    void *event;
} removal;

/* Returns the index of the device in the current enumeration; -1: it is not
 * listed; -2: a call has failed. */
static int find(removal *r)
{
    core_string reason = {"", 0}, id = {NULL, 0};
    plugin_tables *p = r->p;

    r->count = 0;
    if (!expect_plugin_ok(
            r->out, p->backend.enumerate(p->backend.user, &r->count, &reason),
            "enumerate"))
        return -2;
    for (uint32_t i = 0; i < r->count; i++)
        if (r->table->device_id(p->backend.user, i, &id) == CORE_OK &&
            id.data && id.size == strlen(r->id) &&
            memcmp(id.data, r->id, id.size) == 0)
            return (int)i;
    return -1;
}

static bool begin(removal *r)
{
    core_string id = {NULL, 0};
    plugin_tables *p = r->p;

    if (!expect_plugin_ok(r->out,
                          r->table->device_id(p->backend.user, p->index, &id),
                          "device_id") ||
        !expect(r->out, id.data && id.size > 0 && id.size < ID_MAX,
                "the id of device %u has %llu bytes; 1 to %d are accepted",
                p->index, (unsigned long long)id.size, ID_MAX - 1))
        return false;
    memcpy(r->id, id.data, id.size);
    r->id[id.size] = '\0';
    if (!plugin_alloc(p, r->out, BYTES, &r->block))
        return false;
    return p->synchronous ||
           (expect_plugin_ok(r->out, p->events.create(p->device, 0, &r->event),
                             "creating an event") &&
            expect_plugin_ok(r->out,
                             p->events.record(p->device, r->event, p->stream),
                             "recording an event") &&
            plugin_wait(p, r->out));
}

/* Its output is not the plugin's. */
static bool run(removal *r, const char *option, const char *command)
{
    char line[COMMAND_MAX];
    int status;

    if (snprintf(line, sizeof line, "exec >&2\n%s", command) >=
        (int)sizeof line) {
        harness_error(r->out, "the command of %s is too long", option);
        return false;
    }
    status = system(line);
    if (status != 0)
        harness_error(r->out, "the command of %s, \"%s\", fails: status %d",
                      option, command, status);
    return status == 0;
}

/* Waits until the change is announced and the list says so. */
static bool await(removal *r, uint64_t before, bool present)
{
    const struct timespec pause = {.tv_nsec = 5000000};
    double end = suite_seconds() + r->self->open_budget;
    int at;

    do {
        at = find(r);
        if (at == -2)
            return false;
        if (plugin_tables_changes() != before && (at >= 0) == present)
            return true;
        nanosleep(&pause, NULL);
    } while (suite_seconds() < end);
    if (plugin_tables_changes() == before)
        return expect(r->out, false,
                      "the device \"%s\" was %s, and the plugin has not called "
                      "devices_changed of core_host within %g seconds",
                      r->id, present ? "restored" : "removed",
                      r->self->open_budget);
    return expect(r->out, false,
                  present
                      ? "the device \"%s\" was restored, but enumerate and "
                        "device_id (core.hotplug) list no device of this id: a "
                        "device keeps its id when it returns"
                      : "the device \"%s\" was removed, but enumerate and "
                        "device_id (core.hotplug) still list it",
                  r->id);
}

/* --------------------------------------------------- while it is missing -- */

static bool lost(removal *r, core_status status, const char *what)
{
    char text[100];

    snprintf(text, sizeof text, "%s of a device that was removed", what);
    return expect_plugin_error(r->out, status, CORE_ERROR_DEVICE_LOST, text);
}

static bool memory_is_lost(removal *r)
{
    unsigned char bytes[16] = {0};
    plugin_tables *p = r->p;
    core_memory other = {NULL, 0}, at = r->block.memory;
    const core_memory_table *m = &p->memory;

    return lost(r, m->alloc(p->device, r->block.size, &other), "alloc") &&
           lost(
               r,
               m->copy_from_host(p->device, p->stream, at, bytes, sizeof bytes),
               "copy_from_host") &&
           lost(r,
                m->copy_to_host(p->device, p->stream, bytes, at, sizeof bytes),
                "copy_to_host") &&
           lost(r,
                m->copy(p->device, p->stream, plugin_block_at(&r->block, 64),
                        at, sizeof bytes),
                "copy") &&
           lost(r, m->fill(p->device, p->stream, at, sizeof bytes, 0, 1),
                "fill");
}

static bool streams_are_lost(removal *r)
{
    plugin_tables *p = r->p;
    const core_stream_table *s = &p->streams;
    const core_event_table *e = &p->events;
    void *other = NULL;

    if (p->synchronous)
        return true;
    return lost(r, s->query(p->device, p->stream), "query of a stream") &&
           lost(r, s->synchronize(p->device, p->stream),
                "synchronize of a stream") &&
           lost(r, s->wait_event(p->device, p->stream, r->event),
                "wait_event") &&
           lost(r, s->create(p->device, 0, &other), "create of a stream") &&
           lost(r, e->record(p->device, r->event, p->stream),
                "record of an event") &&
           lost(r, e->query(p->device, r->event), "query of an event") &&
           lost(r, e->synchronize(p->device, r->event),
                "synchronize of an event");
}

static bool is_lost(removal *r)
{
    const core_device_reset_interface *reset =
        plugin_interface(r->p, "core.device_reset");
    plugin_tables *p = r->p;

    return (!p->backend.device_status ||
            lost(r, p->backend.device_status(p->device), "device_status")) &&
           memory_is_lost(r) && streams_are_lost(r) &&
           (!reset || lost(r, reset->reset(p->device), "reset"));
}

/* Functions that destroy accept what belonged to it. */
static void drop_all(removal *r)
{
    plugin_tables *p = r->p;

    if (r->event)
        p->events.destroy(p->device, r->event);
    if (p->stream)
        p->streams.destroy(p->device, p->stream);
    plugin_free(p, &r->block);
    r->event = p->stream = NULL;
    r->block = (plugin_block){{0}, 0};
}

/* -------------------------------------------------------- after its return -- */

/* The handle works again after reset; a device without core.device_reset is
 * closed and opened. */
static bool revive(removal *r)
{
    const core_device_reset_interface *reset =
        plugin_interface(r->p, "core.device_reset");
    plugin_tables *p = r->p;
    int at;

    if (reset)
        return expect_plugin_ok(r->out, reset->reset(p->device),
                                "reset of a device that was removed and has "
                                "returned");
    p->backend.device_close(p->backend.user, p->device);
    p->device = NULL;
    at = find(r);
    return expect(r->out, at >= 0,
                  "a device that has returned disappears when it is closed, "
                  "without another removal") &&
           expect_plugin_ok(r->out,
                            p->backend.device_open(p->backend.user,
                                                   (uint32_t)at, &p->device),
                            "device_open of a device that was removed and has "
                            "returned");
}

static void works(removal *r)
{
    unsigned char wrote[BYTES], got[BYTES] = {0};
    plugin_tables *p = r->p;

    memset(wrote, 6, sizeof wrote);
    if (plugin_restore_stream(p, r->out) &&
        plugin_alloc(p, r->out, BYTES, &r->block) &&
        plugin_write(p, r->out, r->block.memory, wrote, BYTES) &&
        plugin_read(p, r->out, got, r->block.memory, BYTES))
        expect(r->out, memcmp(got, wrote, BYTES) == 0,
               "memory of a device that was removed and has returned: byte 0 "
               "is %d, expected 6",
               got[0]);
    plugin_free(p, &r->block);
}

static void removed_device(suite *self, outcome *out, const test *one)
{
    removal r = {.self = self, .out = out, .p = plugin_tables_open(self, out)};
    uint64_t changes;

    (void)one;
    r.table = r.p ? plugin_interface(r.p, "core.hotplug") : NULL;
    if (r.p && !r.table)
        not_supported(out, "it has no core.hotplug");
    else if (r.p && !self->remove)
        not_supported(out, "no command removes the device (--remove)");
    if (!r.p || !r.table || !self->remove || !begin(&r))
        return;
    changes = plugin_tables_changes();
    if (!run(&r, "--remove", self->remove) || !await(&r, changes, false) ||
        !is_lost(&r))
        return;
    drop_all(&r);
    changes = plugin_tables_changes();
    if (self->restore && run(&r, "--restore", self->restore) &&
        await(&r, changes, true) && revive(&r))
        works(&r);
}

bool suite_add_removal(suite *self)
{
    static const listed tests[] = {
        {"core/removal/removed-device-is-lost", removed_device, true},
    };

    return suite_add_list(self, LEVEL_CORE, tests,
                          sizeof tests / sizeof *tests);
}
