/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level core: a second device beside the first, used through the same tables. */

#include "device_checks.h"
#include "process_state.h"
#include "stream_gate.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { BYTES = 1024 };

/* The second device of the plugin, used through the same tables. */
typedef struct second {
    plugin_tables tables;
    bool open;
} second;

static bool open_second(suite *self, plugin_tables *first, second *other,
                        outcome *out)
{
    core_string reason;
    uint32_t count = 0;

    (void)self;
    first->backend.enumerate(first->backend.user, &count, &reason);
    if (count < 2) {
        not_supported(out, "there is only one device");
        return false;
    }
    other->tables = *first;
    other->tables.stream = NULL;
    if (!expect_plugin_ok(out,
                          first->backend.device_open(first->backend.user,
                                                     first->second,
                                                     &other->tables.device),
                          "opening a second device beside the first"))
        return false;
    if (!expect(out, other->tables.device != first->device,
                "device_open returns the same handle for device %u and device "
                "%u",
                first->index, first->second))
        return false;
    other->open = true;
    return first->synchronous ||
           (expect_plugin_ok(out,
                             first->streams.create(other->tables.device, 0,
                                                   &other->tables.stream),
                             "creating a stream of a second device") &&
            expect(out, other->tables.stream != first->stream,
                   "a stream of device %u has the handle of a stream of device "
                   "%u",
                   first->second, first->index));
}

/* Closes the second device and its stream. */
static void close_second(plugin_tables *first, second *other)
{
    if (!other->open)
        return;
    if (other->tables.stream && other->tables.stream != first->stream)
        first->streams.destroy(other->tables.device, other->tables.stream);
    first->backend.device_close(first->backend.user, other->tables.device);
}

static bool same_text(core_string a, core_string b)
{
    return a.size == b.size && a.size > 0 &&
           memcmp(a.data, b.data, a.size) == 0;
}

static void have_own_ids(plugin_tables *first, plugin_tables *other,
                         outcome *out)
{
    core_device_information a = {.struct_size = sizeof a}, b = a;
    core_status (*get)(void *, core_device_information *) =
        first->backend.device_information;

    if (get && expect_plugin_ok(out, get(first->device, &a), "information") &&
        expect_plugin_ok(out, get(other->device, &b), "information"))
        expect(out, !same_text(a.stable_id, b.stable_id),
               "device %u and device %u have the same stable_id \"%.*s\"",
               first->index, first->second, (int)a.stable_id.size,
               a.stable_id.data);
}

static void keep_own_data(plugin_tables *first, plugin_tables *other,
                          outcome *out)
{
    plugin_block a = {{0}, 0}, b = {{0}, 0};
    unsigned char ones[BYTES], twos[BYTES], got[BYTES];

    memset(ones, 1, sizeof ones);
    memset(twos, 2, sizeof twos);
    if (plugin_alloc(first, out, BYTES, &a) &&
        plugin_alloc(other, out, BYTES, &b) &&
        plugin_write(first, out, a.memory, ones, BYTES) &&
        plugin_write(other, out, b.memory, twos, BYTES) &&
        plugin_read(first, out, got, a.memory, BYTES) &&
        expect(out, memcmp(got, ones, BYTES) == 0,
               "memory of device %u does not keep its data when memory of "
               "device %u is written: byte 0 is %d, expected 1",
               first->index, first->second, got[0]) &&
        plugin_read(other, out, got, b.memory, BYTES))
        expect(out, memcmp(got, twos, BYTES) == 0,
               "memory of device %u does not keep its data beside device %u: "
               "byte 0 is %d, expected 2",
               first->second, first->index, got[0]);
    plugin_free(first, &a);
    plugin_free(other, &b);
}

/* The first device still works when the second was closed. */
static void devices_are_separate(suite *self, outcome *out, const test *one)
{
    plugin_tables *first = plugin_tables_open(self, out);
    second other = {.open = false};
    unsigned char wrote[BYTES], got[BYTES] = {0};
    plugin_block kept = {{0}, 0};

    (void)one;
    if (!first)
        return;
    memset(wrote, 3, sizeof wrote);
    if (plugin_alloc(first, out, BYTES, &kept) &&
        plugin_write(first, out, kept.memory, wrote, BYTES) &&
        open_second(self, first, &other, out)) {
        have_own_ids(first, &other.tables, out);
        keep_own_data(first, &other.tables, out);
    }
    close_second(first, &other);
    if (other.open) {
        if (out->verdict == VERDICT_PASS &&
            expect_plugin_ok(
                out,
                first->memory.copy_to_host(first->device, first->stream, got,
                                           kept.memory, BYTES),
                "copy_to_host from a device after another was closed") &&
            plugin_wait(first, out))
            expect(out, memcmp(got, wrote, BYTES) == 0,
                   "memory of device %u does not keep its data when device %u "
                   "is closed: byte 0 is %d, expected 3",
                   first->index, first->second, got[0]);
    }
    if (out->verdict == VERDICT_PASS) /* or the device may be gone */
        plugin_free(first, &kept);
}

/* What core-info prints of a second device; that of the first stays as it is. */
static void information_of_second(suite *self, outcome *out, const test *one)
{
    plugin_tables *first = plugin_tables_open(self, out);
    core_device_information a = {.struct_size = sizeof a}, b = a;
    core_status (*get)(void *, core_device_information *);
    core_device_properties properties = {.struct_size = sizeof properties,
                                         .granularity = 1};
    second other = {.open = false};
    char name[256], which[32];

    (void)one;
    if (!first || !open_second(self, first, &other, out))
        return;
    get = first->backend.device_information;
    snprintf(which, sizeof which, "device %u", first->second);
    if (expect_plugin_ok(
            out,
            first->backend.device_properties(other.tables.device, &properties),
            "device_properties of a second device"))
        device_checks_check_properties(&properties, which, out);
    if (get &&
        expect_plugin_ok(out, get(first->device, &a), "device_information")) {
        int size = (int)(a.name.size < sizeof name ? a.name.size : 0);

        memcpy(name, a.name.data, (size_t)size);
        if (expect_plugin_ok(out, get(other.tables.device, &b),
                             "device_information of a second device")) {
            device_checks_check(&b, which, out);
            expect(out, memcmp(a.name.data, name, (size_t)size) == 0,
                   "the name of device %u, \"%.*s\", changes when that of "
                   "device %u is read: its texts must live as long as the "
                   "device",
                   first->index, size, name, first->second);
        }
    }
    close_second(first, &other);
}

/* A thread that uses one device. */
typedef struct worker {
    plugin_tables *plugin;
    outcome out;
    int number;
    pthread_barrier_t *turn; /* both begin each round at once */
    _Atomic bool *ended;     /* one has failed */
} worker;

static void *work(void *context)
{
    enum { ROUNDS = 100 };
    worker *self = context;
    plugin_tables *p = self->plugin;
    plugin_block a = {{0}, 0}, b = {{0}, 0};
    unsigned char wrote[BYTES], got[BYTES];

    bool good = plugin_alloc(p, &self->out, BYTES, &a) &&
                plugin_alloc(p, &self->out, BYTES, &b);

    for (int i = 0; i < ROUNDS; i++) {
        int byte = (2 * i + self->number) & 255;

        pthread_barrier_wait(self->turn);
        *self->ended = *self->ended || !good;
        if (!good || *self->ended)
            continue;

        memset(wrote, byte, sizeof wrote);
        good = plugin_write(p, &self->out, a.memory, wrote, BYTES) &&
               expect_plugin_ok(&self->out,
                                p->memory.copy(p->device, p->stream, b.memory,
                                               a.memory, BYTES),
                                "copy") &&
               plugin_read(p, &self->out, got, b.memory, BYTES) &&
               expect(&self->out, memcmp(got, wrote, BYTES) == 0,
                      "two threads use two devices at once: round %d "
                      "on the device number %d: byte 0 is %d and the last %d, "
                      "expected %d",
                      i, self->number, got[0], got[BYTES - 1], byte);
    }
    plugin_free(p, &a);
    plugin_free(p, &b);
    return NULL;
}

static void devices_work_at_once(suite *self, outcome *out, const test *one)
{
    plugin_tables *first = plugin_tables_open(self, out);
    second other = {.open = false};
    pthread_barrier_t turn;
    _Atomic bool ended = false;
    worker workers[2] = {{.number = 0, .turn = &turn, .ended = &ended},
                         {.number = 1, .turn = &turn, .ended = &ended}};
    pthread_t thread;

    (void)one;
    if (!first || !open_second(self, first, &other, out))
        return;
    workers[0].plugin = first;
    workers[1].plugin = &other.tables;
    workers[0].out = workers[1].out = *out;
    pthread_barrier_init(&turn, NULL, 2);
    if (pthread_create(&thread, NULL, work, &workers[1]) != 0) {
        harness_error(out, "no thread");
    } else {
        work(&workers[0]);
        pthread_join(thread, NULL);
        *out = workers[workers[0].out.verdict == VERDICT_PASS].out;
    }
    pthread_barrier_destroy(&turn);
    close_second(first, &other);
}

/* near = 1, then near = far, behind a gate: a copy that does not wait for its
 * stream is overwritten. */
static bool peer_copy_behind_gate(suite *self, outcome *out)
{
    plugin_tables *p = plugin_tables_open(self, out);
    const core_peer_interface *table =
        p ? plugin_interface(p, "core.peer") : NULL;
    plugin_block near = {{0}, 0}, far = {{0}, 0};
    unsigned char twos[BYTES], got[BYTES] = {0};
    second other = {.open = false};
    stream_gate gate;
    uint32_t yes = 0;
    bool held = false;

    stream_gate_init(&gate);
    if (p && (!table || p->synchronous))
        not_supported(out, "it has no core.peer, or no streams");
    if (!table || p->synchronous || !open_second(self, p, &other, out) ||
        !expect_plugin_ok(
            out, table->can_access(p->device, other.tables.device, &yes),
            "can_access"))
        goto done;
    if (!yes) {
        not_supported(out, "the device cannot access the second");
        goto done;
    }
    memset(twos, 2, sizeof twos);
    if (!plugin_alloc(p, out, BYTES, &near) ||
        !plugin_alloc(&other.tables, out, BYTES, &far) ||
        !plugin_write(&other.tables, out, far.memory, twos, BYTES) ||
        !stream_gate_close(&gate, p, p->stream, out) ||
        !expect_plugin_ok(
            out, p->memory.fill(p->device, p->stream, near.memory, BYTES, 1, 1),
            "fill") ||
        !expect_plugin_ok(out,
                          table->copy(p->device, p->stream, near.memory,
                                      other.tables.device, far.memory, BYTES),
                          "copy of core.peer"))
        goto done;
    if (plugin_interface(p, "core.host_callback"))
        process_settle();
    held = stream_gate_holds(&gate);
    stream_gate_open(&gate);
    if (plugin_wait(p, out) && plugin_read(p, out, got, near.memory, BYTES))
        expect(out, got[0] == 2 && got[BYTES - 1] == 2,
               "copy of core.peer, behind a fill with 1 on its stream: byte 0 "
               "is %d, expected 2",
               got[0]);
done:
    stream_gate_open(&gate);
    if (p)
        plugin_wait(p, out);
    plugin_free(p, &near);
    plugin_free(&other.tables, &far);
    close_second(p, &other);
    stream_gate_destroy(&gate);
    return held;
}

static void peer_copies_in_order(suite *self, outcome *out, const test *one)
{
    (void)one;
    stream_gate_test(peer_copy_behind_gate, self, out);
}

bool suite_add_two_devices(suite *self)
{
    static const listed tests[] = {
        {"core/two-devices/are-separate", devices_are_separate, true},
        {"core/two-devices/information-is-sound", information_of_second, true},
        {"core/two-devices/work-at-once", devices_work_at_once, true},
        {"core/two-devices/peer-copies-are-in-order", peer_copies_in_order,
         true},
    };

    return suite_add_list(self, LEVEL_CORE, tests,
                          sizeof tests / sizeof *tests);
}
