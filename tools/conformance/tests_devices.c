/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level core: the device's functions from other threads, beside a second
 * device, with the structs of their caller, and under the oldest host. */

#include "process_state.h"
#include "stream_gate.h"
#include "plugin_tables.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------- other threads -- */

enum { BYTES = 1024 };

typedef struct visit {
    plugin_tables *plugin;
    outcome *out;
    plugin_block made; /* by the main thread */
    void *stream;      /* blocked by the main thread; NULL: none */
    void *event;
    stream_gate gate; /* that blocks it */
    bool observed;    /* while the gate held */
} visit;

/* Work that the main thread enqueued is pending for every thread. */
static void *query_from_here(void *context)
{
    visit *self = context;
    plugin_tables *p = self->plugin;
    bool stream_busy =
        p->streams.query(p->device, self->stream) == CORE_ERROR_BUSY;
    bool event_busy =
        p->events.query(p->device, self->event) == CORE_ERROR_BUSY;
    bool held = stream_gate_holds(&self->gate);

    expect(self->out, stream_busy || !held,
           "a stream with pending work is not BUSY in another thread than the "
           "one that created it");
    expect(self->out, event_busy || !held,
           "an event behind pending work is not BUSY in another thread than "
           "the one that recorded it");
    self->observed = held || (stream_busy && event_busy);
    return NULL;
}

static void *visit_device(void *context)
{
    visit *self = context;
    plugin_tables *p = self->plugin;
    unsigned char wrote[BYTES], got[BYTES] = {0};
    plugin_block own = {{0}, 0};
    void *stream = NULL;

    memset(wrote, 5, sizeof wrote);
    if (p->synchronous || p->properties.max_streams != 0 ||
        expect_plugin_ok(self->out, p->streams.create(p->device, 0, &stream),
                         "creating a stream in another thread")) {
        if (plugin_alloc(p, self->out, BYTES, &own) &&
            plugin_write(p, self->out, own.memory, wrote, BYTES) &&
            expect_plugin_ok(self->out,
                             p->memory.copy(p->device, p->stream,
                                            self->made.memory, own.memory,
                                            BYTES),
                             "copy in another thread") &&
            plugin_read(p, self->out, got, self->made.memory, BYTES))
            expect(self->out, memcmp(got, wrote, BYTES) == 0,
                   "copies in another thread than the one that opened the "
                   "device: byte 0 is %d, expected 5",
                   got[0]);
    }
    if (stream)
        p->streams.destroy(p->device, stream);
    plugin_free(p, &own);
    return NULL;
}

static void in_another_thread(void *(*run)(void *), visit *work)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, run, work) != 0)
        harness_error(work->out, "no thread");
    else
        pthread_join(thread, NULL);
}

/* Only queries: other functions may wait for a blocked stream. */
static bool query_in_thread(suite *self, outcome *out)
{
    plugin_tables *p = plugin_tables_open(self, out);
    visit work = {.plugin = p, .out = out};

    if (!p || !plugin_has_streams(p, 1, out))
        return false;
    stream_gate_init(&work.gate);
    if (expect_plugin_ok(out, p->streams.create(p->device, 0, &work.stream),
                         "creating a stream") &&
        expect_plugin_ok(out, p->events.create(p->device, 0, &work.event),
                         "creating an event") &&
        stream_gate_close(&work.gate, p, work.stream, out) &&
        expect_plugin_ok(out,
                         p->events.record(p->device, work.event, work.stream),
                         "recording an event"))
        in_another_thread(query_from_here, &work);
    stream_gate_open(&work.gate);
    if (work.stream) {
        p->streams.synchronize(p->device, work.stream);
        p->streams.destroy(p->device, work.stream);
    }
    if (work.event)
        p->events.destroy(p->device, work.event);
    stream_gate_destroy(&work.gate);
    return work.observed;
}

static void queries_work_in_any_thread(suite *self, outcome *out,
                                       const test *one)
{
    (void)one;
    stream_gate_test(query_in_thread, self, out);
}

static void any_thread(suite *self, outcome *out, const test *one)
{
    plugin_tables *p = plugin_tables_open(self, out);
    visit work = {.plugin = p, .out = out};

    (void)one;
    if (!p)
        return;
    if (plugin_alloc(p, out, BYTES, &work.made))
        in_another_thread(visit_device, &work);
    plugin_free(p, &work.made);
}

/* --------------------------------------------------------- two devices -- */

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
                          first->backend.device_open(first->backend.user, 1,
                                                     &other->tables.device),
                          "opening device 1 beside device 0"))
        return false;
    if (!expect(out, other->tables.device != first->device,
                "device_open returns the same handle for device 0 and device "
                "1"))
        return false;
    other->open = true;
    return first->synchronous ||
           (expect_plugin_ok(out,
                             first->streams.create(other->tables.device, 0,
                                                   &other->tables.stream),
                             "creating a stream of device 1") &&
            expect(out, other->tables.stream != first->stream,
                   "a stream of device 1 has the handle of a stream of device "
                   "0"));
}

/* Closes device 1 and its stream. */
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
               "device 0 and device 1 have the same stable_id \"%.*s\"",
               (int)a.stable_id.size, a.stable_id.data);
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
               "memory of device 0 does not keep its data when memory of "
               "device 1 is written: byte 0 is %d, expected 1",
               got[0]) &&
        plugin_read(other, out, got, b.memory, BYTES))
        expect(out, memcmp(got, twos, BYTES) == 0,
               "memory of device 1 does not keep its data beside device 0: "
               "byte 0 is %d, expected 2",
               got[0]);
    plugin_free(first, &a);
    plugin_free(other, &b);
}

/* Device 0 still works when device 1 was closed. */
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
                "copy_to_host from device 0 after device 1 was closed") &&
            plugin_wait(first, out))
            expect(out, memcmp(got, wrote, BYTES) == 0,
                   "memory of device 0 does not keep its data when device 1 is "
                   "closed: byte 0 is %d, expected 3",
                   got[0]);
    }
    if (out->verdict == VERDICT_PASS) /* or device 0 may be gone */
        plugin_free(first, &kept);
}

/* A thread that uses one device. */
typedef struct worker {
    plugin_tables *plugin;
    outcome out;
    int number;
    pthread_barrier_t *start; /* both begin at once */
} worker;

static void *work(void *context)
{
    enum { ROUNDS = 100 };
    worker *self = context;
    plugin_tables *p = self->plugin;
    plugin_block a = {{0}, 0}, b = {{0}, 0};
    unsigned char wrote[BYTES], got[BYTES];

    pthread_barrier_wait(self->start);
    if (!plugin_alloc(p, &self->out, BYTES, &a) ||
        !plugin_alloc(p, &self->out, BYTES, &b))
        goto done;
    for (int i = 0; i < ROUNDS; i++) {
        int byte = (2 * i + self->number) & 255;

        memset(wrote, byte, sizeof wrote);
        if (!plugin_write(p, &self->out, a.memory, wrote, BYTES) ||
            !expect_plugin_ok(
                &self->out,
                p->memory.copy(p->device, p->stream, b.memory, a.memory, BYTES),
                "copy") ||
            !plugin_read(p, &self->out, got, b.memory, BYTES) ||
            !expect(&self->out, memcmp(got, wrote, BYTES) == 0,
                    "two threads use device 0 and device 1 at once: round %d "
                    "on device %d: byte 0 is %d and the last %d, expected %d",
                    i, self->number, got[0], got[BYTES - 1], byte))
            break;
    }
done:
    plugin_free(p, &a);
    plugin_free(p, &b);
    return NULL;
}

static void devices_work_at_once(suite *self, outcome *out, const test *one)
{
    plugin_tables *first = plugin_tables_open(self, out);
    second other = {.open = false};
    pthread_barrier_t start;
    worker workers[2] = {{.number = 0, .start = &start},
                         {.number = 1, .start = &start}};
    pthread_t thread;

    (void)one;
    if (!first || !open_second(self, first, &other, out))
        return;
    workers[0].plugin = first;
    workers[1].plugin = &other.tables;
    workers[0].out = workers[1].out = *out;
    pthread_barrier_init(&start, NULL, 2);
    if (pthread_create(&thread, NULL, work, &workers[1]) != 0) {
        harness_error(out, "no thread");
    } else {
        work(&workers[0]);
        pthread_join(thread, NULL);
        *out = workers[workers[0].out.verdict == VERDICT_PASS].out;
    }
    pthread_barrier_destroy(&start);
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
        not_supported(out, "device 0 cannot access device 1");
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
};

static void interfaces_are_stable(suite *self, outcome *out, const test *one)
{
    plugin_tables *p = plugin_tables_open(self, out);

    (void)one;
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
        if (table)
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

bool suite_add_devices(suite *self)
{
    static const listed tests[] = {
        {"core/device/works-in-any-thread", any_thread, false},
        {"core/events/queries-work-in-any-thread", queries_work_in_any_thread,
         true},
        {"core/device/outputs-stay-in-size", outputs_stay_in_size, false},
        {"core/device/interfaces-are-stable", interfaces_are_stable, false},
        {"core/two-devices/are-separate", devices_are_separate, true},
        {"core/two-devices/work-at-once", devices_work_at_once, true},
        {"core/two-devices/peer-copies-are-in-order", peer_copies_in_order,
         true},
        {"core/oldest-host/init-succeeds", works_with_oldest_host, false},
    };

    return suite_add_list(self, LEVEL_CORE, tests,
                          sizeof tests / sizeof *tests);
}
