/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Autocast with asynchronous work: cached casts on several streams and in
 * captures, and regions left open by the second run of a checkpoint. */

#include "support/devices.h"

#include <libcore/autocast.h>
#include <libcore/capture.h>
#include <libcore/memory.h>
#include <libcore/saved.h>

static core_tensor *square_on(const char *name)
{
    core_tensor *there =
        typed(CORE_F32, 2, (int64_t[]){2, 2}, (double[]){1, 2, 3, 4});

    return CALL(to_copy, there, CORE_F32, device_of(name), false, -1);
}

static void check_values(core_tensor *tensor, const float *want)
{
    core_tensor *wide =
        CALL(to_copy, tensor, CORE_F32, device_of("cpu"), false, -1);
    float have[4];

    OK(core_tensor_read(wide, have, sizeof have));
    for (int i = 0; i < 4; i++)
        ck_assert_msg(have[i] == want[i], "%d: %g, not %g", i, (double)have[i],
                      (double)want[i]);
}

/* The elements of x * w. */
static const float product[4] = {7, 10, 15, 22};

START_TEST(cached_cast_is_used_only_on_its_stream)
{
    core_device *sim = (setenv("LIBCORE_SIM_CHECK", "1", 1), device_of("sim"));
    core_stream *streams[2] = {new_stream("sim"), new_stream("sim")};
    core_tensor *x = square_on("sim"), *w = leaf(square_on("sim")), *y[4];
    uint64_t region;

    OK(core_device_synchronize(sim));
    OK(core_autocast_begin(sim, CORE_BF16, 0, &region));
    for (int i = 0; i < 4; i++) {
        core_stream_guard guard;

        OK(core_stream_guard_enter(streams[i % 2], &guard));
        y[i] = CALL(mm, x, w);
        core_stream_guard_leave(&guard);
    }
    for (int i = 0; i < 2; i++)
        OK(core_stream_synchronize(streams[i]));
    OK(core_autocast_end(region));
    for (int i = 0; i < 4; i++)
        check_values(y[i], product);
    for (int i = 0; i < 2; i++)
        core_stream_release(streams[i]);
}
END_TEST

/* A cast made during capture exists only once the graph is launched, and a cast
 * made before would not be repeated by a launch. */
START_TEST(capture_does_not_share_casts_with_eager_calls)
{
    core_device *sim = device_of("sim");
    core_stream *stream = new_stream("sim");
    core_tensor *x = square_on("sim"), *w = leaf(square_on("sim")), *y;
    core_stream_guard guard;
    core_graph *graph;
    uint64_t region;
    bool before;

    OK(core_device_synchronize(sim));
    OK(core_stream_guard_enter(stream, &guard));
    OK(core_autocast_begin(sim, CORE_BF16, 0, &region));
    check_values(CALL(mm, x, w), product);
    OK(core_capture_begin(stream, NULL));
    y = CALL(mm, x, w);
    CALL(mm, x, w);
    OK(core_capture_end(stream, &graph));
    /* Two products, two casts of x and one cached cast of w. */
    ck_assert_uint_eq(core_graph_size(graph), 5);
    check_values(CALL(mm, x, w), product);
    OK(core_autocast_end(region));
    before = core_grad_mode_set(false);
    OK(core_mul_scalar_(w, core_float(2)));
    core_grad_mode_set(before);
    OK(core_graph_launch(graph, stream));
    OK(core_stream_synchronize(stream));
    check_values(y, (float[]){14, 20, 30, 44});
    core_stream_guard_leave(&guard);
    core_graph_release(graph);
    core_stream_release(stream);
}
END_TEST

/* Begins a region and returns errors unchanged, as a checkpoint function
 * must. */
static core_status in_a_region(void *context, core_tensor *const *inputs,
                               size_t ninputs, core_tensor **outputs,
                               size_t *noutputs)
{
    core_tensor *low = NULL;
    core_status status;
    uint64_t region;

    (void)ninputs;
    CORE_TRY(core_autocast_begin(context, CORE_BF16, 0, &region));
    CORE_TRY(core_mm(inputs[0], inputs[0], &low));
    status = core_mm(low, low, &outputs[0]);
    core_tensor_release(low);
    CORE_TRY(status);
    *noutputs = 1;
    return core_autocast_end(region);
}

START_TEST(region_left_open_by_recomputation_is_closed)
{
    core_device *cpu = device_of("cpu");
    core_checkpoint_info info = {
        .struct_size = sizeof info, .function = in_a_region, .context = cpu};
    core_tensor *x = leaf(square_on("cpu")), *y, *loss;
    uint64_t outer, region;
    uint32_t references;
    size_t count = 1;

    references = core_tensor_references(x);
    OK(core_checkpoint(&info, &x, 1, &y, &count));
    loss = sum(keep(y));
    backward(loss);
    drop(loss);
    drop(y);
    ck_assert_uint_eq(core_autocast_dtype(cpu), CORE_DTYPE_NONE);
    /* The next region is the outermost one: its end drops all cached casts. */
    OK(core_autocast_begin(cpu, CORE_BF16, 0, &region));
    OK(core_mm(x, x, &y));
    core_tensor_release(y);
    OK(core_autocast_end(region));
    ck_assert_uint_eq(core_tensor_references(x), references);
    /* A region around backward stays open. */
    count = 1;
    OK(core_checkpoint(&info, &x, 1, &y, &count));
    OK(core_autocast_begin(cpu, CORE_F16, 0, &outer));
    backward(sum(keep(y)));
    ck_assert_uint_eq(core_autocast_dtype(cpu), CORE_F16);
    OK(core_autocast_end(outer));
    ck_assert_uint_eq(core_autocast_dtype(cpu), CORE_DTYPE_NONE);
}
END_TEST

SUITE("autocast/autocast_streams", cached_cast_is_used_only_on_its_stream,
      capture_does_not_share_casts_with_eager_calls,
      region_left_open_by_recomputation_is_closed)
