/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level core: order on one stream, which every device with streams has, and
 * what asking a device costs the host. */

#include "stream_gate.h"
#include "process_state.h"
#include "plugin_tables.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BYTES = 4096, MANY = (3 << 20) + 24, GUARD = 64 };

/* ------------------------------------------------------------------ fills -- */

static bool all_are(outcome *out, const unsigned char *got, size_t size,
                    int byte, const char *what)
{
    for (size_t i = 0; i < size; i++)
        if (!expect(out, got[i] == byte, "%s: byte %zu is %d, not %d", what, i,
                    got[i], byte))
            return false;
    return true;
}

/* A copy, a fill of where it came from, and another copy: behind a gate where
 * there is one. */
static bool fill_between(raw *p, const raw_block *b, outcome *out)
{
    return raw_ok(out,
                  p->memory.copy(p->device, p->stream, b[1].memory, b[0].memory,
                                 BYTES),
                  "copy") &&
           raw_ok(
               out,
               p->memory.fill(p->device, p->stream, b[0].memory, BYTES, 2, 1),
               "fill") &&
           raw_ok(out,
                  p->memory.copy(p->device, p->stream, b[2].memory, b[0].memory,
                                 BYTES),
                  "copy");
}

static void fills_in_order(suite *self, outcome *out, const test *one)
{
    raw *p = raw_open(self, out);
    raw_block blocks[3] = {{{0}, 0}};
    unsigned char ones[BYTES], got[BYTES];
    gate hold;

    (void)one;
    if (!p)
        return;
    if (!p->memory.fill) {
        not_supported(out, "it has no fill: the core copies instead");
        return;
    }
    memset(ones, 1, sizeof ones);
    gate_begin(&hold);
    for (int i = 0; i < 3; i++)
        if (!raw_alloc(p, out, BYTES, &blocks[i]) ||
            !raw_write(p, out, blocks[i].memory, ones, BYTES))
            goto done;
    if (!p->synchronous && raw_interface(p, "core.host_callback"))
        gate_close(&hold, p, p->stream, out);
    fill_between(p, blocks, out);
    gate_open(&hold);
    if (raw_wait(p, out) && raw_read(p, out, got, blocks[1].memory, BYTES) &&
        all_are(out, got, BYTES, 1, "a copy before a fill saw the fill") &&
        raw_read(p, out, got, blocks[2].memory, BYTES))
        all_are(out, got, BYTES, 2, "a copy after a fill did not see it");
done:
    gate_open(&hold);
    raw_wait(p, out);
    for (int i = 0; i < 3; i++)
        raw_free(p, &blocks[i]);
    gate_end(&hold);
}

/* More than a command may take at once. */
static void fills_are_whole(suite *self, outcome *out, const test *one)
{
    static const unsigned char pattern[4] = {0x11, 0x22, 0x33, 0x44};
    raw *p = raw_open(self, out);
    raw_block block = {{0}, 0};
    unsigned char *got = calloc(1, MANY + 2 * GUARD);

    (void)one;
    if (!p || !got)
        goto done;
    if (!p->memory.fill) {
        not_supported(out, "it has no fill: the core copies instead");
        goto done;
    }
    if (!raw_alloc(p, out, MANY + 2 * GUARD, &block) ||
        !raw_write(p, out, block.memory, got, MANY + 2 * GUARD) ||
        !raw_ok(out,
                p->memory.fill(p->device, p->stream, raw_at(&block, GUARD),
                               MANY, 0x44332211, 4),
                "fill") ||
        !raw_read(p, out, got, block.memory, MANY + 2 * GUARD))
        goto done;
    for (size_t i = 0; i < MANY; i++)
        if (!expect(out, got[GUARD + i] == pattern[i % 4],
                    "a fill of %d bytes: byte %zu is %#x", (int)MANY, i,
                    got[GUARD + i]))
            break;
    all_are(out, got, GUARD, 0, "before a fill");
    all_are(out, got + GUARD + MANY, GUARD, 0, "behind a fill");
done:
    if (p)
        raw_free(p, &block);
    free(got);
}

/* ----------------------------------------------------------------- events -- */

typedef struct opener {
    gate hold;
    atomic_bool opened;
} opener;

static void *open_later(void *context)
{
    opener *self = context;

    nanosleep(&(struct timespec){0, 30000000}, NULL);
    self->opened = true;
    gate_open(&self->hold);
    return NULL;
}

/* The gate before the event opens a while after the wait began: whoever comes
 * back and finds it closed has not waited. */
static void event_waits(suite *self, outcome *out, const test *one)
{
    raw *p = raw_open(self, out);
    opener later = {.opened = false};
    void *event = NULL;
    pthread_t thread;

    (void)one;
    if (!p)
        return;
    if (p->synchronous || !raw_interface(p, "core.host_callback")) {
        not_supported(out, "without streams and host callbacks it cannot be "
                           "seen");
        return;
    }
    gate_begin(&later.hold);
    if (!raw_ok(out, p->events.create(p->device, 0, &event),
                "creating an event") ||
        !gate_close(&later.hold, p, p->stream, out) ||
        !raw_ok(out, p->events.record(p->device, event, p->stream),
                "recording an event"))
        goto done;
    if (pthread_create(&thread, NULL, open_later, &later) != 0) {
        harness_error(out, "a thread cannot be started");
        goto done;
    }
    raw_ok(out, p->events.synchronize(p->device, event),
           "synchronizing an event");
    expect(out, later.opened,
           "synchronizing an event returns before its work is done");
    pthread_join(thread, NULL);
done:
    gate_open(&later.hold);
    raw_wait(p, out);
    if (event)
        p->events.destroy(p->device, event);
    gate_end(&later.hold);
}

/* ------------------------------------------------------------- host memory -- */

/* Of host memory that is read into, nothing beside is written. */
static void host_side_is_kept(suite *self, outcome *out, const test *one)
{
    static const uint32_t sizes[] = {1, 2, 3, 5, 7, 9, 13, 31, 63, 65, 1001};
    unsigned char wrote[1024], got[1024 + 2 * GUARD];
    raw *p = raw_open(self, out);
    raw_block block = {{0}, 0};

    (void)one;
    if (!p || !raw_alloc(p, out, sizeof wrote, &block))
        return;
    memset(wrote, 0x3c, sizeof wrote);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        memset(got, 0xa5, sizeof got);
        if (!raw_write(p, out, block.memory, wrote, sizeof wrote) ||
            !raw_read(p, out, got + GUARD, block.memory, sizes[i]) ||
            !all_are(out, got, GUARD, 0xa5, "before what is read into") ||
            !all_are(out, got + GUARD + sizes[i], GUARD, 0xa5,
                     "behind what is read into"))
            break;
    }
    raw_free(p, &block);
}

/* ------------------------------------------------------------------ asking -- */

static bool ask(raw *p, outcome *out)
{
    static const char *const names[] = {"core.timing", "core.host_memory",
                                        "core.graph_capture", "core.nothing"};
    core_device_properties properties = {.struct_size = sizeof properties,
                                         .granularity = 1};
    core_device_information about = {.struct_size = sizeof about};
    core_string reason = {"", 0};
    uint32_t count;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        raw_interface(p, names[i]);
    return raw_ok(out, p->backend.enumerate(p->backend.user, &count, &reason),
                  "enumerate") &&
           raw_ok(out, p->backend.device_properties(p->device, &properties),
                  "device_properties") &&
           (!p->backend.device_information ||
            raw_ok(out, p->backend.device_information(p->device, &about),
                   "device_information")) &&
           (!p->backend.device_status ||
            raw_ok(out, p->backend.device_status(p->device), "device_status"));
}

static bool open_anew(raw *p, outcome *out)
{
    p->backend.device_close(p->backend.user, p->device);
    p->device = NULL;
    return raw_ok(out, p->backend.device_open(p->backend.user, 0, &p->device),
                  "opening the device again");
}

/* What is made once stays; what leaks comes each time. */
static void leaks_nothing(raw *p, outcome *out, uint32_t rounds,
                          bool (*act)(raw *, outcome *), const char *what)
{
    enum { TIMES = 6 };
    bool heap_grows = true;
    uint32_t map_rests = 0;

    for (int i = 0; (heap_grows || map_rests < MANNERS_RESTS) && i < TIMES;
         i++) {
        uint64_t heap = manners_heap(), mapped = manners_mapped();

        for (uint32_t k = 0; k < rounds; k++)
            if (!act(p, out))
                return;
        heap_grows = !manners_heap_below(heap + rounds * 16);
        map_rests += manners_mapped_below(mapped + rounds * MANNERS_MAP);
    }
    expect(out, !heap_grows, "every %u times %s leave more on the host's heap",
           rounds, what);
    expect(out, map_rests >= MANNERS_RESTS,
           "every %u times %s leave more mapped (mmap)", rounds, what);
}

/* What a device says of itself, kept. */
typedef struct answers {
    core_device_properties properties;
    char texts[6][256];
} answers;

static void keep(char *to, size_t room, core_string text)
{
    memset(to, 0, room);
    if (text.data)
        memcpy(to, text.data, text.size < room ? text.size : room - 1);
}

static bool hear(raw *p, answers *said, outcome *out)
{
    core_device_information about = {.struct_size = sizeof about};

    memset(said, 0, sizeof *said);
    said->properties.struct_size = sizeof said->properties;
    said->properties.granularity = 1;
    if (!raw_ok(out, p->backend.device_properties(p->device, &said->properties),
                "device_properties"))
        return false;
    if (p->backend.device_information &&
        !raw_ok(out, p->backend.device_information(p->device, &about),
                "device_information"))
        return false;
    keep(said->texts[0], sizeof *said->texts, about.name);
    keep(said->texts[1], sizeof *said->texts, about.stable_id);
    keep(said->texts[2], sizeof *said->texts, about.driver);
    keep(said->texts[3], sizeof *said->texts, about.runtime);
    keep(said->texts[4], sizeof *said->texts, about.firmware);
    keep(said->texts[5], sizeof *said->texts, about.features);
    return true;
}

static bool same(const answers *first, const answers *again, const char *when,
                 outcome *out)
{
    static const char *const names[] = {"name",    "stable id", "driver",
                                        "runtime", "firmware",  "features"};

    for (int i = 0; i < 6; i++)
        if (!expect(out, strcmp(first->texts[i], again->texts[i]) == 0,
                    "its %s was \"%s\", and is \"%s\" %s", names[i],
                    first->texts[i], again->texts[i], when))
            return false;
    return expect(out,
                  memcmp(&first->properties, &again->properties,
                         sizeof first->properties) == 0,
                  "its properties are others %s", when);
}

/* Whoever asked once need not ask again, whatever was done meanwhile. */
static void information_repeats(suite *self, outcome *out, const test *one)
{
    static answers first, again;
    raw *p = raw_open(self, out);
    unsigned char bytes[BYTES] = {0};
    raw_block block = {{0}, 0};

    (void)one;
    if (!p || !hear(p, &first, out))
        return;
    for (int i = 0; i < 20; i++)
        if (!hear(p, &again, out) ||
            !same(&first, &again, "when it is asked again", out))
            return;
    if (raw_alloc(p, out, 1 << 20, &block) &&
        raw_write(p, out, block.memory, bytes, BYTES) && hear(p, &again, out))
        same(&first, &again, "after it has worked", out);
    raw_free(p, &block);
}

/* A device that is opened again is the one that it was. */
static void is_the_same(suite *self, outcome *out, const test *one)
{
    static answers first, again;
    raw *p = raw_open(self, out);

    (void)one;
    if (!p || !hear(p, &first, out))
        return;
    if (p->stream)
        p->streams.destroy(p->device, p->stream);
    p->stream = NULL;
    for (int i = 0; i < 5; i++)
        if (!open_anew(p, out) || !hear(p, &again, out) ||
            !same(&first, &again, "when it is opened again", out))
            return;
}

static void asking_leaks_nothing(suite *self, outcome *out, const test *one)
{
    raw *p = raw_open(self, out);

    (void)one;
    if (p)
        leaks_nothing(p, out, 200, ask, "what a device is asked of itself");
}

static void opening_leaks_nothing(suite *self, outcome *out, const test *one)
{
    raw *p = raw_open(self, out);

    (void)one;
    if (!p)
        return;
    if (p->stream)
        p->streams.destroy(p->device, p->stream);
    p->stream = NULL;
    leaks_nothing(p, out, 30, open_anew, "opening and closing the device");
}

bool suite_add_order(suite *self)
{
    static const listed tests[] = {
        {"core/memory/large-fills-are-whole", fills_are_whole, true},
        {"core/memory/host-side-is-kept", host_side_is_kept, false},
        {"core/streams/fills-are-in-order", fills_in_order, true},
        {"core/events/synchronize-waits", event_waits, true},
        {"core/device/asking-leaks-nothing", asking_leaks_nothing, false},
        {"core/device/information-repeats", information_repeats, false},
        {"core/reopen/device-is-the-same", is_the_same, false},
        {"core/reopen/opening-leaks-nothing", opening_leaks_nothing, false},
    };

    return suite_add_list(self, LEVEL_CORE, tests,
                          sizeof tests / sizeof *tests);
}
