/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Activity records of a GPU, through the shared host side, on the emulated
 * device. */

#include "support/gpu_emulated.h"

#include "profiler/profile.h"

#include <libcore/capture.h>
#include <libcore/profiler.h>
#include <libcore/stream.h>

static core_profiler *profiler;
static core_device *gpu;

static void start(void)
{
    gpu = gpuemu();
    OK(core_profiler_start(NULL, &profiler));
}

static core_tensor *ones(void)
{
    return CALL(to_copy, VECTOR(3, 1, 1, 1), CORE_F32, gpu, false, -1);
}

static const core__device_activity *only(uint32_t kind, const char *part)
{
    const core__device_activity *found = NULL;

    for (size_t i = 0; i < profiler->nslices; i++)
        if (profiler->slices[i].kind == kind &&
            strstr(profiler->slices[i].name, part) != NULL) {
            ck_assert_msg(found == NULL, "two are called %s", part);
            found = &profiler->slices[i];
        }
    ck_assert_msg(found != NULL, "nothing of kind %u is called %s", kind, part);
    ck_assert_int_le(found->begin, found->end);
    return found;
}

static const char *giver(const core__device_activity *slice)
{
    const core__profile_work *work =
        core__device_activity_work(profiler, slice);

    ck_assert_ptr_nonnull(work);
    return work->parent == CORE__PROFILE_NONE
               ? "no operator"
               : profiler->parts[slice->part].events[work->parent].name;
}

START_TEST(kernels_and_copies_belong_to_their_operators)
{
    const core__device_activity *copy, *kernel;
    core_tensor *x;
    float values[3];

    start();
    x = CALL(exp, ones());
    OK(core_tensor_read(x, values, sizeof values));
    OK(core_profiler_stop(profiler));
    copy = only(CORE_ACTIVITY_COPY, "copy from the host");
    ck_assert_uint_eq(copy->bytes, 12);
    ck_assert_str_eq(giver(copy), "_to_copy");
    kernel = only(CORE_ACTIVITY_KERNEL, "ew_exp_f32");
    ck_assert_str_eq(giver(kernel), "exp");
    ck_assert_uint_eq(only(CORE_ACTIVITY_COPY, "copy to the host")->bytes, 12);
    core_profiler_release(profiler);
}
END_TEST

START_TEST(kernels_of_a_graph_belong_to_its_launch)
{
    core_stream *stream;
    core_graph *graph;
    core_tensor *x, *y;

    gpu = gpuemu();
    OK(core_stream_create(gpu, &stream));
    OK(core_stream_set_current(stream));
    x = ones();
    OK(core_capture_begin(stream, NULL));
    OK(core_exp(x, &y));
    OK(core_capture_end(stream, &graph));
    OK(core_profiler_start(NULL, &profiler));
    OK(core_graph_launch(graph, stream));
    OK(core_stream_synchronize(stream));
    OK(core_profiler_stop(profiler));
    ck_assert_ptr_nonnull(core__device_activity_work(
        profiler, only(CORE_ACTIVITY_KERNEL, "ew_exp_f32")));
    core_profiler_release(profiler);
    core_graph_release(graph);
    core_tensor_release(y);
    core_stream_release(stream);
}
END_TEST

START_TEST(second_session_records_again)
{
    core_tensor *x;

    for (int i = 0; i < 3; i++) {
        start();
        x = CALL(exp, ones());
        OK(core_device_synchronize(gpu));
        OK(core_profiler_stop(profiler));
        only(CORE_ACTIVITY_KERNEL, "ew_exp_f32");
        core_profiler_release(profiler);
        drop(x);
        CALL(exp, ones()); /* outside any range */
        OK(core_device_synchronize(gpu));
    }
}
END_TEST

EMULATED_SUITE("gpu/gpu_records", kernels_and_copies_belong_to_their_operators,
               kernels_of_a_graph_belong_to_its_launch,
               second_session_records_again)
