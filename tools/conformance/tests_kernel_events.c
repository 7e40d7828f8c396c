/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: an event that is recorded behind a kernel is done when the kernel
 * is, for the stream that waits for it, and a host callback behind one runs when
 * the kernel is done.  A device whose kernels run in another
 * queue than its copies may forget that. */

#include "suite.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Kernels in a row, so that the last one ends late; rounds until one is seen
 * that has not. */
enum { SIDE = 256, NUMEL = SIDE * SIDE, KERNELS = 6, ROUNDS = 8 };

typedef struct bench {
    suite *self;
    outcome *out;
    core_stream *first, *second;
    core_event *event;
    core_tensor *operand, *to;
    float *got, *wanted;
} bench;

static const struct {
    const char *name;
    uint32_t tensors;
} operations[] = {{"tanh", 1}, {"mul.Tensor", 2}, {"mm", 2}, {"_softmax", 1}};

/* A row of calls, each of the result of the one before. */
static core_status compute(const bench *b, size_t which, core_tensor **out)
{
    const char *name = operations[which].name;
    core_tensor *now = core_tensor_retain(b->operand);
    core_status status = CORE_OK;

    for (int i = 0; i < KERNELS && status == CORE_OK; i++) {
        core_value args[3] = {suite_tensor_value(now),
                              suite_tensor_value(b->operand), core_bool(false)};
        core_tensor *next = NULL;
        uint32_t nargs = operations[which].tensors;

        if (strcmp(name, "_softmax") == 0) {
            args[1] = core_int(1);
            nargs = 3;
        }
        status = suite_call(name, args, nargs, &next);
        core_tensor_release(now);
        now = next;
    }
    *out = now;
    return status;
}

/* Copies on the second stream what the first computes.  by_host: the host waits
 * for the event instead of the stream. */
static core_status copy_behind_event(bench *b, size_t which, bool by_host,
                                     core_tensor **out_result)
{
    core_stream_guard guard;
    core_status status;

    CORE_TRY(core_stream_guard_enter(b->first, &guard));
    status = compute(b, which, out_result);
    if (status == CORE_OK)
        status = core_event_record(b->event, b->first);
    core_stream_guard_leave(&guard);
    CORE_TRY(status);
    CORE_TRY(core_stream_guard_enter(b->second, &guard));
    status = by_host ? core_event_synchronize(b->event)
                     : core_stream_wait_event(b->second, b->event);
    if (status == CORE_OK)
        status = core_tensor_copy(b->to, *out_result, CORE_COPY_NON_BLOCKING);
    core_stream_guard_leave(&guard);
    return status;
}

static bool is_the_result(bench *b, size_t which, bool by_host,
                          core_tensor *result)
{
    size_t bytes = NUMEL * sizeof(float);

    if (!expect_ok(b->out, core_stream_synchronize(b->second),
                   "synchronizing") ||
        !expect_ok(b->out, core_stream_synchronize(b->first),
                   "synchronizing") ||
        !expect_ok(b->out, core_tensor_read(b->to, b->got, bytes),
                   "reading a copy") ||
        !expect_ok(b->out, core_tensor_read(result, b->wanted, bytes),
                   "reading a result"))
        return false;
    for (int i = 0; i < NUMEL; i++)
        if (!expect(b->out, memcmp(&b->got[i], &b->wanted[i], 4) == 0,
                    "%s for an event, which was recorded behind the kernel of "
                    "%s on another stream, does not wait for the kernel: a "
                    "copy of element %d is %g, expected %g",
                    by_host ? "a call of core_event_synchronize"
                            : "a stream that waits",
                    operations[which].name, i, (double)b->got[i],
                    (double)b->wanted[i]))
            return false;
    return true;
}

/* Returns whether a kernel computes it. */
static bool check_operation(bench *b, size_t which)
{
    core_tensor *result = NULL;
    core_status status = CORE_OK;

    for (int i = 0; i < ROUNDS && b->out->verdict == VERDICT_PASS; i++) {
        status = copy_behind_event(b, which, i % 2 > 0, &result);
        if (status == CORE_ERROR_NO_KERNEL)
            break;
        if (expect_ok(b->out, status, operations[which].name))
            is_the_result(b, which, i % 2 > 0, result);
        core_tensor_release(result);
        result = NULL;
    }
    core_device_synchronize(b->self->device);
    core_tensor_release(result);
    if (status == CORE_ERROR_NO_KERNEL)
        core_error_clear();
    return status != CORE_ERROR_NO_KERNEL;
}

/* --------------------------------------------------------- host callbacks -- */

enum { PENDING, RAN, DROPPED };

static void callback_ran(void *context)
{
    *(_Atomic int *)context = RAN;
}

static void callback_dropped(void *context)
{
    *(_Atomic int *)context = DROPPED;
}

/* Calls of an operator, an event, then a callback: when that has run, the event
 * is done.  Returns whether a kernel computes the operator. */
static bool callback_behind(bench *b, size_t which)
{
    static _Atomic int state;
    core_tensor *result = NULL;
    core_stream_guard guard;
    core_status status, seen = CORE_OK;

    state = PENDING;
    status = core_stream_guard_enter(b->first, &guard);
    if (status == CORE_OK) {
        status = compute(b, which, &result);
        if (status == CORE_OK)
            status = core_event_record(b->event, b->first);
        if (status == CORE_OK)
            status = core_stream_callback(b->first, callback_ran,
                                          (void *)(uintptr_t)&state,
                                          callback_dropped);
        core_stream_guard_leave(&guard);
    }
    if (status == CORE_OK) {
        while (state == PENDING)
            sched_yield();
        if (state == DROPPED)
            expect_ok(b->out, core_stream_synchronize(b->first),
                      operations[which].name);
        seen = core_event_query(b->event);
        expect(b->out, state == DROPPED || seen == CORE_OK,
               "a host callback behind the kernel of %s on its stream runs "
               "while an event between the two is not done",
               operations[which].name);
    } else if (status != CORE_ERROR_NO_KERNEL) {
        expect_ok(b->out, status, operations[which].name);
    }
    core_stream_synchronize(b->first);
    core_tensor_release(result);
    if (status == CORE_ERROR_NO_KERNEL)
        core_error_clear();
    return status != CORE_ERROR_NO_KERNEL;
}

static bool callbacks(bench *b)
{
    bool any = false;

    for (size_t k = 0; k < sizeof operations / sizeof *operations; k++)
        for (int i = 0; i < ROUNDS && b->out->verdict == VERDICT_PASS; i++) {
            if (!callback_behind(b, k))
                break;
            any = true;
        }
    return any;
}

static bool has_callbacks(const bench *b)
{
    _Atomic int state = PENDING;
    core_status status =
        core_stream_callback(b->first, callback_ran, &state, callback_dropped);

    core_stream_synchronize(b->first);
    core_error_clear();
    return status != CORE_ERROR_UNSUPPORTED;
}

static bool make(bench *b)
{
    static const int64_t sizes[2] = {SIDE, SIDE};
    core_device *device = b->self->device;

    b->got = calloc(NUMEL, sizeof *b->got);
    b->wanted = calloc(NUMEL, sizeof *b->wanted);
    if (!b->got || !b->wanted) {
        harness_error(b->out, "no memory");
        return false;
    }
    for (int i = 0; i < NUMEL; i++)
        b->wanted[i] = (float)(i * 37 % 101) / 101 - .5F;
    return expect_ok(b->out, core_stream_create(device, &b->first),
                     "creating a stream") &&
           expect_ok(b->out, core_stream_create(device, &b->second),
                     "creating a stream") &&
           expect_ok(b->out, core_event_create(device, 0, &b->event),
                     "creating an event") &&
           expect_ok(b->out,
                     core_tensor_from_data(b->wanted, CORE_F32, sizes, 2,
                                           device, &b->operand),
                     "making an operand") &&
           expect_ok(b->out,
                     core_tensor_from_data(b->got, CORE_F32, sizes, 2, device,
                                           &b->to),
                     "making a copy");
}

static bool events(bench *b)
{
    bool any = false;

    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        any = check_operation(b, i) || any;
    return any;
}

static void behind_kernels(suite *self, outcome *out, bool of_callbacks)
{
    bench b = {.self = self, .out = out};

    if (!suite_device(self, out))
        return;
    if (self->synchronous) {
        not_supported(out, "the device is synchronous");
        return;
    }
    if (expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                  "turning the fallback off") &&
        make(&b)) {
        if (of_callbacks && !has_callbacks(&b))
            not_supported(out, "it has no core.host_callback");
        else if (!(of_callbacks ? callbacks(&b) : events(&b)))
            not_supported(out, "no kernel of tanh, mul.Tensor, mm or _softmax "
                               "takes f32");
    }
    core_tensor_release(b.to);
    core_tensor_release(b.operand);
    core_event_release(b.event);
    core_stream_release(b.second);
    core_stream_release(b.first);
    free(b.wanted);
    free(b.got);
}

static void events_include_kernels(suite *self, outcome *out, const test *one)
{
    (void)one;
    behind_kernels(self, out, false);
}

static void callbacks_wait_for_kernels(suite *self, outcome *out,
                                       const test *one)
{
    (void)one;
    behind_kernels(self, out, true);
}

bool suite_add_kernel_events(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/events-include-kernels", events_include_kernels, true},
        {"ops/rules/callbacks-wait-for-kernels", callbacks_wait_for_kernels,
         true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
