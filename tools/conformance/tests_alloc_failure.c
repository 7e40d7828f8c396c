/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level stress: each host allocation of the plugin fails in turn.  A call must
 * then succeed or report that there is no memory, and everything must work
 * again afterwards. */

#include "bounds.h"
#include "claims.h"
#include "plugin_tables.h"
#include "alloc_failure.h"
#include "skipped_calls.h"

#include <stdlib.h>
#include <string.h>

enum { POINTS = 400, BYTES = 3000 };

/* Asynchronous work may have failed; its stream reports that. */
static bool allowed(core_status status)
{
    return status == CORE_OK || status == CORE_ERROR_OUT_OF_MEMORY ||
           status == CORE_ERROR_STREAM;
}

/* libcore has a message of its own for a launch that reports none. */
static bool is_silent(suite *self, core_status status)
{
    const char *message = core_error_message();

    if (status == CORE_OK)
        return false;
    if (self->tables)
        return plugin_last_error()->count == 0;
    return strstr(message, "the kernel of \"") != NULL &&
           (strstr(message, "\" ran out of memory") != NULL ||
            strstr(message, "\" failed and gave no reason") != NULL);
}

/* Runs it repeatedly, each time with the next allocation failing. */
static void fail_each_allocation(suite *self, outcome *out, const char *what,
                                 core_status (*run)(suite *self,
                                                    const void *with,
                                                    const char **out_where),
                                 const void *with)
{
    for (uint64_t n = 1; n <= POINTS; n++) {
        const char *where = "";
        core_status status;
        bool came;

        plugin_last_error()->count = 0;
        core_error_clear();
        alloc_failure_arm(n);
        status = run(self, with, &where);
        came = alloc_failure_disarm();
        if (!expect(out, allowed(status),
                    "%s: when allocation %llu fails, %s fails with %s", what,
                    (unsigned long long)n, where, core_status_name(status)))
            return;
        if (!expect(
                out,
                status != CORE_ERROR_OUT_OF_MEMORY || !is_silent(self, status),
                "%s: when allocation %llu fails, %s fails with %s, but "
                "reports no message (core_host.error), which says what was "
                "needed",
                what, (unsigned long long)n, where, core_status_name(status)))
            return;
        /* Streams that share a queue share its error. */
        if (status == CORE_ERROR_STREAM && self->properties.max_streams > 0 &&
            !expect_ok(out, core_device_reset(self->device), "a reset"))
            return;
        status = run(self, with, &where);
        if (!expect(out, status == CORE_OK,
                    "%s: after allocation %llu failed, %s fails with %s", what,
                    (unsigned long long)n, where, core_status_name(status)))
            return;
        if (!came)
            return;
    }
}

/* ---------------------------------------------------------------- tables -- */

/* Uses each function of the tables once; ends at the first failure. */
static core_status use_tables(suite *self, const void *with, const char **where)
{
    plugin_tables *p = self->tables;
    uint64_t step = p->properties.granularity ? p->properties.granularity : 1;
    uint64_t size = (BYTES + step - 1) / step * step;
    core_memory a = {0}, b = {0};
    void *stream = NULL, *event = NULL;
    unsigned char wrote[BYTES], got[BYTES] = {0};
    bool has_a = false, has_b = false;
    core_status status = CORE_OK;

    (void)with;
    memset(wrote, 0x3c, sizeof wrote);
#define DO(name, call)         \
    do {                       \
        *where = name;         \
        status = p->call;      \
        if (status != CORE_OK) \
            goto done;         \
    } while (0)
    if (!p->synchronous) {
        DO("creating a stream", streams.create(p->device, 0, &stream));
        DO("creating an event", events.create(p->device, 0, &event));
    }
    DO("alloc", memory.alloc(p->device, size, &a));
    has_a = true;
    DO("alloc", memory.alloc(p->device, size, &b));
    has_b = true;
    DO("copy_from_host",
       memory.copy_from_host(p->device, stream, a, wrote, BYTES));
    DO("copy", memory.copy(p->device, stream, b, a, BYTES));
    if (!p->synchronous) {
        DO("recording", events.record(p->device, event, stream));
        DO("waiting for an event",
           streams.wait_event(p->device, stream, event));
    }
    DO("copy_to_host", memory.copy_to_host(p->device, stream, got, b, BYTES));
    if (!p->synchronous)
        DO("synchronizing", streams.synchronize(p->device, stream));
#undef DO
    *where = "a copy that reports success";
    if (memcmp(wrote, got, BYTES) != 0)
        status = CORE_ERROR_INTERNAL;
done:
    /* Pending work still uses the host's memory. */
    if (stream)
        p->streams.synchronize(p->device, stream);
    if (has_a)
        p->memory.free(p->device, a, size);
    if (has_b)
        p->memory.free(p->device, b, size);
    if (event)
        p->events.destroy(p->device, event);
    if (stream)
        p->streams.destroy(p->device, stream);
    return status;
}

static void tables_without_memory(suite *self, outcome *out, const test *one)
{
    plugin_tables *plugin = plugin_tables_open(self, out);

    (void)one;
    if (plugin &&
        (plugin->synchronous || plugin_reserve_streams(plugin, 1, out)) &&
        alloc_failure_install(self->plugin, out))
        fail_each_allocation(self, out, "the tables", use_tables, NULL);
    if (plugin)
        plugin_restore_stream(plugin, out);
}

/* --------------------------------------------------------------- kernels -- */

typedef struct failing_call {
    const sample_call *call;
    const reference *wanted;
    const bounds *allowed;
} failing_call;

static core_status read_and_compare(const failing_call *of, core_tensor *tensor,
                                    const char **where)
{
    core_dtype dtype = of->wanted->dtypes[0];
    outcome out = {.error = -1, .measured = -1};
    float got[64];
    double values[64];
    size_t numel = (size_t)of->wanted->numel[0];

    if (dtype != CORE_F32 || numel > 64)
        return CORE_OK;
    *where = "reading the result";
    CORE_TRY(core_tensor_read(tensor, got, numel * sizeof *got));
    for (size_t i = 0; i < numel; i++)
        values[i] = (double)got[i];
    *where = "a call that reports success";
    return bounds_hold(of->allowed, of->call, of->wanted, 0, values, &out)
               ? CORE_OK
               : CORE_ERROR_INTERNAL;
}

static core_status use_kernel(suite *self, const void *with, const char **where)
{
    const failing_call *of = with;
    core_stream *stream = NULL;
    core_stream_guard guard;
    bool entered = false;
    prepared on;
    core_status status = CORE_OK;

    memset(&on, 0, sizeof on);
    if (!self->synchronous) {
        *where = "creating a stream";
        status = core_stream_create(self->device, &stream);
        if (status == CORE_OK)
            status = core_stream_guard_enter(stream, &guard);
        entered = status == CORE_OK;
    }
    *where = "making the operands";
    if (status == CORE_OK)
        status = sample_call_prepare(of->call, self->device, CORE_F32,
                                     ARRANGED_ROWS, &on);
    if (status == CORE_OK) {
        *where = "the call";
        status = sample_call_run(of->call, &on);
    }
    if (status == CORE_OK)
        status = read_and_compare(of, on.flat[0], where);
    sample_call_done(&on);
    if (entered)
        core_stream_guard_leave(&guard);
    core_stream_release(stream);
    return status;
}

static void kernels_without_memory(suite *self, outcome *out, const test *one)
{
    static const sample samples[] = {{"mul.Tensor", "t:3,4 t:3,4", .5, 2},
                                     {"exp", "t:3,4", .5, 2},
                                     {"sum", "t:3,4", .5, 2},
                                     {"mm", "t:3,4 t:4,5", .5, 2},
                                     {"cat", "[ t:2,6 t:2,6 ] i:0", .5, 2}};
    static sample_call call;
    skipped_calls left = {.length = 0};
    size_t ran = 0;

    (void)one;
    if (!suite_device(self, out) || !alloc_failure_install(self->plugin, out))
        return;
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        reference wanted;
        bounds allowed;
        failing_call with = {&call, &wanted, &allowed};

        memset(&wanted, 0, sizeof wanted);
        if (sample_call_parse(&call, self, &samples[i], CORE_F32) &&
            reference_shapes(&call, &wanted) == CORE_OK &&
            claim_of(self, &call, &wanted) == CLAIM_KERNEL &&
            reference_values(&call, self, &wanted) == CORE_OK) {
            ran++;
            allowed = bounds_of(self, call.op);
            fail_each_allocation(self, out, samples[i].op, use_kernel, &with);
        } else {
            skipped_calls_add(&left, samples[i].op, CORE_DTYPE_NONE);
        }
        reference_free(&wanted);
    }
    skipped_calls_report(&left, ran, out);
}

bool suite_add_alloc_failure(suite *self)
{
    static const listed tests[] = {
        {"stress/tables/host-allocation-failures", tables_without_memory, true},
        {"stress/kernels/host-allocation-failures", kernels_without_memory,
         true},
    };

    return suite_add_list(self, LEVEL_STRESS, tests,
                          sizeof tests / sizeof *tests);
}
