/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: a graph that contains a random operator draws, at each launch, the
 * numbers that an eager call would draw then. */

#include "left_out.h"
#include "suite.h"

#include <libcore/capture.h>
#include <libcore/ops.h>
#include <libcore/random.h>
#include <libcore/stream.h>

#include <string.h>

enum { NUMBERS = 37, LAUNCHES = 3, SEED = 42 };

static core_status draw_uniform(core_tensor *to)
{
    return core_uniform_(to, 0, 1, NULL);
}

static core_status draw_normal(core_tensor *to)
{
    return core_normal_(to, 0, 1, NULL);
}

static core_status draw_bernoulli(core_tensor *to)
{
    return core_bernoulli_float_(to, .5, NULL);
}

static const struct {
    const char *name;
    core_status (*draw)(core_tensor *to);
} draws[] = {{"uniform_", draw_uniform},
             {"normal_", draw_normal},
             {"bernoulli_.float", draw_bernoulli}};

typedef struct drawing {
    suite *self;
    outcome *out;
    core_stream *stream;
    core_tensor *to;
    left_out left;
    uint32_t ran;
} drawing;

/* What LAUNCHES calls draw; false: there is no such kernel, or a failure. */
static bool draw_eagerly(drawing *d, uint32_t which,
                         float numbers[LAUNCHES][NUMBERS])
{
    core_seed(SEED);
    for (int i = 0; i < LAUNCHES; i++) {
        core_status status = draws[which].draw(d->to);

        if (status == CORE_ERROR_NO_KERNEL ||
            status == CORE_ERROR_UNSUPPORTED) {
            left_out_add(&d->left, draws[which].name, CORE_F32);
            core_error_clear();
            return false;
        }
        if (!expect_ok(d->out, status, draws[which].name) ||
            !expect_ok(d->out,
                       core_tensor_read(d->to, numbers[i], sizeof *numbers),
                       "reading numbers"))
            return false;
    }
    return true;
}

static void check_launches(drawing *d, uint32_t which, core_graph *graph,
                           float wanted[LAUNCHES][NUMBERS])
{
    float got[NUMBERS];

    core_seed(SEED);
    for (int i = 0; i < LAUNCHES && d->out->verdict == VERDICT_PASS; i++) {
        int k = 0;

        if (!expect_ok(d->out, core_graph_launch(graph, d->stream),
                       "launching a graph") ||
            !expect_ok(d->out, core_stream_synchronize(d->stream),
                       "synchronizing") ||
            !expect_ok(d->out, core_tensor_read(d->to, got, sizeof got),
                       "reading numbers"))
            return;
        while (k < NUMBERS && got[k] == wanted[i][k])
            k++;
        expect(d->out, k == NUMBERS,
               "%s of f32: launch %d of a graph draws %g as element %d; the "
               "call that was captured, called then, draws %g. The last "
               "argument of the kernel, a view, has the seed and an addition "
               "to the offset",
               draws[which].name, i + 1, (double)got[k % NUMBERS], k,
               (double)wanted[i][k % NUMBERS]);
    }
}

static void check_draw(drawing *d, uint32_t which)
{
    float wanted[LAUNCHES][NUMBERS];
    core_graph *graph = NULL;
    core_status status;

    if (!draw_eagerly(d, which, wanted) ||
        !expect_ok(d->out, core_device_synchronize(d->self->device),
                   "synchronizing") ||
        !expect_ok(d->out, core_capture_begin(d->stream, NULL),
                   "beginning a capture"))
        return;
    status = draws[which].draw(d->to);
    if (expect_ok(d->out, core_capture_end(d->stream, &graph),
                  "ending a capture") &&
        expect_ok(d->out, status, draws[which].name)) {
        d->ran++;
        check_launches(d, which, graph, wanted);
    }
    core_graph_release(graph);
}

static bool captures(suite *self, outcome *out)
{
    core_graph *graph = NULL;
    core_stream *stream = NULL;
    core_status status;

    if (!expect_ok(out, core_stream_create(self->device, &stream), "a stream"))
        return false;
    status = core_capture_begin(stream, NULL);
    if (status == CORE_OK)
        status = core_capture_end(stream, &graph);
    core_graph_release(graph);
    core_stream_release(stream);
    if (status == CORE_ERROR_UNSUPPORTED) {
        not_supported(out, "it has no core.graph_capture");
        core_error_clear();
        return false;
    }
    return expect_ok(out, status, "capturing");
}

static void graphs_draw_new_numbers(suite *self, outcome *out, const test *one)
{
    const int64_t size = NUMBERS;
    drawing d = {.self = self, .out = out};

    (void)one;
    if (!suite_device(self, out) ||
        !expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                   "turning the fallback off") ||
        !captures(self, out))
        return;
    if (expect_ok(out, core_stream_create(self->device, &d.stream),
                  "a stream") &&
        expect_ok(out, core_stream_set_current(d.stream), "a stream") &&
        expect_ok(out,
                  core_empty(&size, 1, CORE_F32, self->device,
                             CORE_FORMAT_CONTIGUOUS, &d.to),
                  "a tensor"))
        for (uint32_t i = 0;
             i < sizeof draws / sizeof *draws && out->verdict == VERDICT_PASS;
             i++)
            check_draw(&d, i);
    if (d.ran == 0 && out->verdict == VERDICT_PASS)
        not_supported(out, "no kernel of a random operator is claimed");
    left_out_report(&d.left, d.ran, out);
    core_tensor_release(d.to);
    core_stream_release(d.stream);
}

bool suite_add_random(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/graphs-draw-new-numbers", graphs_draw_new_numbers, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
