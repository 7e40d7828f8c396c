/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: random operators in captured graphs.  Each launch draws the numbers
 * that an eager call would draw next. */

#include "claims.h"
#include "skipped_calls.h"

#include <libcore/capture.h>
#include <libcore/random.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAUNCHES = 3, SEED = 4711, BYTES = 4096 };

typedef struct draws {
    unsigned char bytes[LAUNCHES][BYTES];
    size_t size; /* of each */
} draws;

/* Calls the operator without a seed of its own. */
static core_status call_on(const sample_call *call, core_stream *stream,
                           prepared *on)
{
    core_stream_guard guard;
    core_status status;

    CORE_TRY(core_stream_guard_enter(stream, &guard));
    status = core_op_call(call->op, on->args, on->nargs, on->results,
                          SAMPLE_RESULTS);
    core_stream_guard_leave(&guard);
    return status;
}

static void drop_results(prepared *on)
{
    for (uint32_t i = 0; i < SAMPLE_RESULTS; i++)
        core_value_release(&on->results[i]);
    memset(on->results, 0, sizeof on->results);
}

/* Reads the first result, or the operand that was changed. */
static core_status read_draw(const prepared *on, core_stream *stream, draws *to,
                             int which)
{
    core_tensor *from = on->results[0].tag == CORE_VALUE_TENSOR
                            ? on->results[0].u.tensor
                            : on->tensors[0];

    to->size = (size_t)core_tensor_numel(from) *
               core_dtype_size(core_tensor_dtype(from));
    if (to->size > BYTES)
        return CORE_ERROR_SHAPE;
    CORE_TRY(core_stream_synchronize(stream));
    return core_tensor_read(from, to->bytes[which], to->size);
}

static core_status draw_eagerly(const sample_call *call, core_stream *stream,
                                prepared *on, draws *to)
{
    core_seed(SEED);
    for (int i = 0; i < LAUNCHES; i++) {
        core_status status = call_on(call, stream, on);

        if (status == CORE_OK)
            status = read_draw(on, stream, to, i);
        drop_results(on);
        CORE_TRY(status);
    }
    return CORE_OK;
}

static bool draw_in_graph(const sample_call *call, core_stream *stream,
                          prepared *on, draws *to, outcome *out)
{
    core_graph *graph = NULL;
    core_status status;
    bool good;

    core_seed(SEED);
    good =
        expect_ok(out, core_capture_begin(stream, NULL), "beginning a capture");
    if (!good)
        return false;
    status = call_on(call, stream, on);
    good = expect_ok(out, status, "a call during a capture");
    good =
        expect_ok(out, core_capture_end(stream, &graph), "ending a capture") &&
        good;
    for (int i = 0; good && i < LAUNCHES; i++)
        good = expect_ok(out, core_graph_launch(graph, stream),
                         "launching a graph") &&
               expect_ok(out, read_draw(on, stream, to, i), "reading a result");
    drop_results(on);
    core_graph_release(graph);
    return good;
}

static void compare(const sample_call *call, const draws *eager,
                    const draws *launched, outcome *out)
{
    for (int i = 0; i < LAUNCHES; i++)
        expect(out,
               memcmp(eager->bytes[i], launched->bytes[i], eager->size) == 0,
               "launch %d of a graph draws other numbers than call %d%s: a "
               "kernel that is captured takes seed and offset from the view, "
               "its last argument (kernel.h)",
               i + 1, i + 1,
               i > 0 && memcmp(launched->bytes[i], launched->bytes[i - 1],
                               launched->size) == 0
                   ? ", those of the launch before"
                   : "");
    if (out->verdict == VERDICT_FAIL) {
        char text[TEST_DETAIL];

        snprintf(text, sizeof text, "%s of f32: %.450s", core_op_name(call->op),
                 out->detail);
        snprintf(out->detail, sizeof out->detail, "%s", text);
    }
}

/* Returns whether the call was checked. */
static bool check_call(suite *self, const sample_call *call,
                       core_stream *stream, outcome *out)
{
    static draws eager, launched;
    prepared on;
    core_status status;
    bool checked = false;

    if (!expect_ok(out,
                   sample_call_prepare(call, self->device, call->dtype,
                                       ARRANGED_ROWS, &on),
                   "making the operands") ||
        !expect_ok(out, core_device_synchronize(self->device), "synchronizing"))
        goto done;
    status = draw_eagerly(call, stream, &on, &eager);
    checked = status != CORE_ERROR_NO_KERNEL;
    if (checked && expect_ok(out, status, core_op_name(call->op)) &&
        draw_in_graph(call, stream, &on, &launched, out))
        compare(call, &eager, &launched, out);
done:
    sample_call_done(&on);
    return checked;
}

static bool is_claimed(const suite *self, const sample_call *call)
{
    reference wanted;
    bool claims = reference_shapes(call, &wanted) == CORE_OK &&
                  claim_holds(self, call, &wanted);

    reference_free(&wanted);
    core_error_clear();
    return claims;
}

static void random_numbers_in_graphs(suite *self, outcome *out, const test *one)
{
    static sample_call call;
    core_stream *stream = NULL;
    const sample *at;
    const void *table;
    uint32_t ran = 0;

    (void)one;
    if (!suite_device(self, out) ||
        !expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                   "turning the fallback off"))
        return;
    if (core_device_interface(self->device, "core.graph_capture", 1, &table) !=
        CORE_OK) {
        core_error_clear();
        not_supported(out, "it has no core.graph_capture");
        return;
    }
    if (self->properties.max_streams == 1) {
        not_supported(out, "the device has one stream");
        return;
    }
    if (!expect_ok(out, core_stream_create(self->device, &stream),
                   "creating a stream"))
        return;
    for (size_t i = 0; out->verdict == VERDICT_PASS && (at = sample_at(i)); i++)
        if (oracle_random(at->op) &&
            sample_call_parse(&call, self, at, CORE_F32) &&
            is_claimed(self, &call))
            ran += check_call(self, &call, stream, out);
    core_stream_release(stream);
    if (ran == 0 && out->verdict == VERDICT_PASS)
        not_supported(out, "no random operator is claimed");
}

bool suite_add_random_graphs(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/graphs-draw-new-numbers", random_numbers_in_graphs, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
