/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level core: streams that only copy. */

#include "process_state.h"
#include "stream_gate.h"
#include "tests_features.h"

#include <libcore/stream.h>

#include <stdlib.h>
#include <string.h>

enum { BYTES = 1 << 16 };

typedef struct copying {
    plugin_tables *plugin;
    plugin_block a, b;
    void *stream;
    void *event;
    unsigned char wrote[BYTES], got[BYTES];
} copying;

static bool copies_itself(copying *c, outcome *out)
{
    plugin_tables *p = c->plugin;

    memset(c->wrote, 0x35, BYTES);
    return expect_plugin_ok(out,
                            p->memory.copy_from_host(p->device, c->stream,
                                                     c->a.memory, c->wrote,
                                                     BYTES),
                            "copy_from_host on a copy stream") &&
           expect_plugin_ok(out,
                            p->memory.copy(p->device, c->stream, c->b.memory,
                                           c->a.memory, BYTES),
                            "copy on a copy stream") &&
           expect_plugin_ok(
               out,
               p->memory.fill(p->device, c->stream, c->b.memory, 16, 0x77, 1),
               "fill on a copy stream") &&
           expect_plugin_ok(out,
                            p->memory.copy_to_host(p->device, c->stream, c->got,
                                                   c->b.memory, BYTES),
                            "copy_to_host on a copy stream") &&
           expect_plugin_ok(out, p->streams.synchronize(p->device, c->stream),
                            "synchronizing a copy stream") &&
           expect(out, c->got[0] == 0x77 && c->got[15] == 0x77,
                  "a fill on a copy stream has no effect") &&
           expect(out, memcmp(c->got + 16, c->wrote + 16, BYTES - 16) == 0,
                  "copies on a copy stream lose data");
}

/* Gives work that does not wait the time to run; gates that copies are do not
 * hold that long. */
static void settle(const plugin_tables *p)
{
    if (plugin_interface(p, "core.host_callback"))
        process_settle();
}

/* The copy stream waits for an event of the plugin's stream, which is behind a
 * gate. */
static bool waits_for_events(copying *c, outcome *out)
{
    plugin_tables *p = c->plugin;
    stream_gate gate;
    bool busy, observed = false;

    stream_gate_init(&gate);
    if (stream_gate_close(&gate, p, p->stream, out) &&
        expect_plugin_ok(
            out,
            p->memory.fill(p->device, p->stream, c->a.memory, BYTES, 0x21, 1),
            "fill") &&
        expect_plugin_ok(out, p->events.record(p->device, c->event, p->stream),
                         "recording an event") &&
        expect_plugin_ok(out,
                         p->streams.wait_event(p->device, c->stream, c->event),
                         "a wait of a copy stream for an event") &&
        expect_plugin_ok(out,
                         p->memory.copy(p->device, c->stream, c->b.memory,
                                        c->a.memory, BYTES),
                         "copy on a copy stream")) {
        settle(p);
        busy = p->streams.query(p->device, c->stream) == CORE_ERROR_BUSY;
        observed = stream_gate_holds(&gate);
        expect(out, busy || !observed,
               "a copy stream does not wait for an event of another stream");
    }
    stream_gate_open(&gate);
    if (expect_plugin_ok(out, p->streams.synchronize(p->device, c->stream),
                         "synchronizing a copy stream") &&
        plugin_read(p, out, c->got, c->b.memory, BYTES))
        for (int i = 0; i < BYTES; i++)
            if (!expect(out, c->got[i] == 0x21,
                        "a copy stream reads memory before the event that it "
                        "waits for"))
                break;
    plugin_wait(p, out);
    stream_gate_destroy(&gate);
    return observed;
}

/* The other way round: the plugin's stream waits for an event of the copy
 * stream, which is behind a gate. */
static bool is_waited_for(copying *c, outcome *out)
{
    plugin_tables *p = c->plugin;
    bool observed = false, busy, event_busy;
    stream_gate gate;

    stream_gate_init(&gate);
    if (stream_gate_close(&gate, p, c->stream, out) &&
        expect_plugin_ok(
            out,
            p->memory.fill(p->device, c->stream, c->a.memory, BYTES, 0x43, 1),
            "fill on a copy stream") &&
        expect_plugin_ok(out, p->events.record(p->device, c->event, c->stream),
                         "recording an event on a copy stream") &&
        expect_plugin_ok(out,
                         p->streams.wait_event(p->device, p->stream, c->event),
                         "a wait for an event of a copy stream") &&
        expect_plugin_ok(out,
                         p->memory.copy(p->device, p->stream, c->b.memory,
                                        c->a.memory, BYTES),
                         "copy")) {
        settle(p);
        event_busy = p->events.query(p->device, c->event) == CORE_ERROR_BUSY;
        busy = p->streams.query(p->device, p->stream) == CORE_ERROR_BUSY;
        observed = stream_gate_holds(&gate);
        expect(out, event_busy || !observed,
               "an event that was recorded on a copy stream is done before "
               "the work of that stream");
        expect(out, busy || !observed,
               "a stream does not wait for an event of a copy stream");
    }
    stream_gate_open(&gate);
    expect_plugin_ok(out, p->streams.synchronize(p->device, c->stream),
                     "synchronizing a copy stream");
    if (plugin_wait(p, out) && plugin_read(p, out, c->got, c->b.memory, BYTES))
        expect(out, c->got[0] == 0x43 && c->got[BYTES - 1] == 0x43,
               "a stream reads memory before the event of a copy stream that "
               "it waits for");
    stream_gate_destroy(&gate);
    return observed;
}

static bool copy_on_copy_stream(suite *self, outcome *out)
{
    copying *c = calloc(1, sizeof *c);
    bool observed = false;
    plugin_tables *p;

    if (!c) {
        harness_error(out, "no memory");
        return false;
    }
    p = c->plugin = plugin_tables_open(self, out);
    if (!p)
        goto done;
    if (p->synchronous || p->properties.copy_streams == 0) {
        not_supported(out, "it has no copy streams");
        goto done;
    }
    if (plugin_alloc(p, out, BYTES, &c->a) &&
        plugin_alloc(p, out, BYTES, &c->b) &&
        expect_plugin_ok(
            out, p->streams.create(p->device, CORE_STREAM_COPY, &c->stream),
            "creating a copy stream") &&
        expect_plugin_ok(out, p->events.create(p->device, 0, &c->event),
                         "creating an event") &&
        copies_itself(c, out))
        observed = waits_for_events(c, out) &&
                   (out->verdict != VERDICT_PASS || is_waited_for(c, out));
    if (c->event)
        p->events.destroy(p->device, c->event);
    if (c->stream)
        p->streams.destroy(p->device, c->stream);
    plugin_free(p, &c->a);
    plugin_free(p, &c->b);
done:
    free(c);
    return observed;
}

void features_copy_streams(suite *self, outcome *out, const test *one)
{
    (void)one;
    stream_gate_test(copy_on_copy_stream, self, out);
}

/* Finds a kernel of the device, and calls it; NULL: it has none of these. */
static const char *some_operator(core_value *args, core_tensor **out_tensor)
{
    static const char *const names[] = {"neg", "exp", "relu", "abs", "sqrt"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (suite_call(names[i], args, 1, out_tensor) == CORE_OK)
            return names[i];
    return NULL;
}

static void refuses(suite *self, core_stream *stream, core_tensor *tensor,
                    outcome *out)
{
    core_value argument = suite_tensor_value(tensor);
    core_tensor *result = NULL;
    const char *name = some_operator(&argument, &result);
    core_stream_guard guard;
    core_status status;

    core_tensor_release(result);
    if (!name) {
        not_supported(out, "it has no kernel of neg, exp, relu, abs or sqrt");
        return;
    }
    if (!expect_ok(out, core_device_synchronize(self->device),
                   "synchronizing the device") ||
        !expect_ok(out, core_stream_guard_enter(stream, &guard),
                   "making a copy stream current"))
        return;
    status = suite_call(name, &argument, 1, &result);
    core_stream_guard_leave(&guard);
    core_tensor_release(result);
    if (!expect(out, status == CORE_ERROR_UNSUPPORTED,
                "%s on a copy stream returns %s; its launch must return "
                "CORE_ERROR_UNSUPPORTED",
                name, core_status_name(status)))
        return;
    expect_ok(out, core_stream_synchronize(stream),
              "synchronizing a copy stream that has refused a kernel");
    expect_ok(out, suite_call(name, &argument, 1, &result),
              "the same operator on the default stream");
    core_tensor_release(result);
}

void features_copy_streams_refuse_kernels(suite *self, outcome *out,
                                          const test *one)
{
    const float values[4] = {1, 2, 3, 4};
    core_tensor *tensor = NULL;
    core_stream *stream = NULL;
    const int64_t size = 4;
    uint32_t kinds = 0;

    (void)one;
    if (!suite_device(self, out))
        return;
    if (!expect_ok(out, core_device_stream_kinds(self->device, &kinds),
                   "the kinds of its streams"))
        return;
    if (!(kinds >> CORE_STREAM_COPY & 1)) {
        not_supported(out, "it has no copy streams");
        return;
    }
    if (expect_ok(
            out,
            core_stream_create_kind(self->device, CORE_STREAM_COPY, &stream),
            "creating a copy stream") &&
        expect_ok(out,
                  core_tensor_from_data(values, CORE_F32, &size, 1,
                                        self->device, &tensor),
                  "making a tensor"))
        refuses(self, stream, tensor, out);
    core_tensor_release(tensor);
    core_stream_release(stream);
}
