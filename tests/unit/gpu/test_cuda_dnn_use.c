/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* cuDNN that is missing, does not start, fails, is captured, or is used by
 * several streams and threads.  Skipped if the plugin was not built. */

#define SUITE_SECONDS 100

#define SUITE_FORKS true

#include "support/cudnn.h"

#include <libcore/capture.h>
#include <libcore/settings.h>

/* Real libraries, if there are some, leak when they find no driver. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:cudnnCreate\nleak:libcudnn\nleak:cublasLtCreate";
}

/* ---------------------------------------------------------- no library -- */

static char logged[512];
static int nlogged;

static void sink(void *context, uint32_t level, const char *component,
                 const char *text)
{
    (void)context;
    if (level <= CORE_LOG_WARNING && strcmp(component, "cuda") == 0 &&
        strncmp(text, "products", 8) != 0) {
        nlogged++;
        snprintf(logged, sizeof logged, "%s", text);
    }
}

static void without(const char *what)
{
    core_log_set_sink(sink, NULL, CORE_LOG_WARNING);
    for (int i = 0; i < 2; i++)
        right(&plain, CORE_F32, 0);
    core_log_set_sink(NULL, NULL, CORE_LOG_ERROR);
    ck_assert_int_eq(nlogged, what != NULL);
    if (what != NULL) {
        ck_assert_msg(strstr(logged, "the plugin's own kernels: ") != NULL,
                      "%s", logged);
        ck_assert_msg(strstr(logged, what) != NULL, "%s", logged);
    }
}

START_TEST(plugin_computes_without_the_library)
{
    start("", NULL);
    /* A real library, if there is one, does not start. */
    without("");
    runtime_says("cuDNN");
    end();
}
END_TEST

START_TEST(outdated_library_is_not_used)
{
    load("libcuda.so.1");
    load(CUDNN_8);
    setenv("FAKE_CUDNN_VERSION", "8005", 1);
    start("", CUDNN);
    runtime_says("; no cuDNN: libcudnn.so.8 is version 8.0.5; 8.1 or newer is "
                 "required");
    without("is version 8.0.5");
    end();
}
END_TEST

START_TEST(library_that_does_not_start_is_not_used)
{
    start("cudnnCreate=1001", CUDNN);
    without("cudnnCreate fails (status 1001)");
    ck_assert_uint_eq(counted("fake_cudnn_objects"), 0);
    end();
}
END_TEST

/* Attempts are made at the first, third and seventh convolution. */
START_TEST(start_is_retried_after_lack_of_memory)
{
    start("cudnnCreate=4004", CUDNN);
    without("cudnnCreate fails (status 4004)");
    setenv("FAKE_GPU_FAIL", "", 1);
    right(&plain, CORE_F32, 3);
    ck_assert_uint_eq(counted("fake_cudnn_handles"), 1);
    end();
}
END_TEST

START_TEST(handle_that_refuses_a_stream_is_not_used)
{
    start("cudnnSetStream=2000", CUDNN);
    without("cudnnSetStream fails");
    end();
}
END_TEST

/* Whichever call fails, no descriptor is leaked. */
START_TEST(plugin_computes_if_a_descriptor_or_query_fails)
{
    start("cudnnCreateTensorDescriptor@2=4003", CUDNN);
    without(NULL);
    setenv("FAKE_GPU_FAIL", "cudnnCreateFilterDescriptor=4003", 1);
    right(&all_kinds[1], CORE_F32, 0);
    setenv("FAKE_GPU_FAIL", "cudnnCreateConvolutionDescriptor=4003", 1);
    right(&all_kinds[2], CORE_F32, 0);
    setenv("FAKE_GPU_FAIL",
           "cudnnGetConvolutionForwardAlgorithm_v7=3000 "
           "cudnnGetConvolutionBackwardDataAlgorithm_v7=4000 "
           "cudnnGetConvolutionBackwardFilterWorkspaceSize=3000",
           1);
    right(&all_kinds[3], CORE_F32, 0);
    setenv("FAKE_GPU_FAIL", "", 1);
    right(&all_kinds[4], CORE_F32, 3);
    OK(core_device_synchronize(cuda));
    OK(core_device_reset(cuda));
    ck_assert_uint_eq(counted("fake_cudnn_objects"), 0);
    end();
}
END_TEST

START_TEST(late_refusal_is_remembered)
{
    start("cudnnConvolutionForward=3000 cudnnConvolutionBackwardData=3000 "
          "cudnnConvolutionBackwardFilter=3000",
          CUDNN);
    without("accepted it and then failed");
    setenv("FAKE_GPU_FAIL", "", 1);
    right(&plain, CORE_F32, 0);
    right(&all_kinds[1], CORE_F32, 3);
    end();
}
END_TEST

/* -------------------------------------------------------------- errors -- */

static core_status fails(core_status code, const char *text)
{
    operands o = of(&plain, CORE_F32), c = all_there(&o);
    core_tensor *y = NULL;

    FAILS(core_convolution(c.x, c.w, c.b, plain.stride, 2, plain.padding, 2,
                           plain.dilation, 2, false, plain.output_padding, 2, 1,
                           &y),
          code, text);
    ck_assert_ptr_null(y);
    return core_device_status(cuda);
}

START_TEST(failed_convolution_loses_the_device)
{
    start("cudnnConvolutionForward=5003", CUDNN);
    ck_assert_int_eq(fails(CORE_ERROR_DEVICE_LOST, "a convolution"),
                     CORE_ERROR_DEVICE_LOST);
    setenv("FAKE_GPU_FAIL", "", 1);
    OK(core_device_reset(cuda));
    ck_assert_uint_eq(counted("fake_cudnn_objects"), 0);
    right(&plain, CORE_F32, 3);
    end();
}
END_TEST

START_TEST(version_8_has_other_status_codes)
{
    load("libcuda.so.1");
    load(CUDNN_LACKING);
    start("cudnnConvolutionForward=8", CUDNN_8);
    ck_assert_int_eq(fails(CORE_ERROR_DEVICE_LOST, "a convolution"),
                     CORE_ERROR_DEVICE_LOST);
    end();
}
END_TEST

/* The library's status does not matter then. */
START_TEST(earlier_illegal_address_is_reported_as_such)
{
    operands o, c;
    core_tensor *y = NULL;

    start("", CUDNN);
    o = of(&plain, CORE_F32);
    c = all_there(&o);
    OK(core_device_synchronize(cuda));
    setenv("FAKE_GPU_FAIL", "cudnnConvolutionForward=4000 cuMemGetInfo_v2=700",
           1);
    FAILS(core_convolution(c.x, c.w, c.b, plain.stride, 2, plain.padding, 2,
                           plain.dilation, 2, false, plain.output_padding, 2, 1,
                           &y),
          CORE_ERROR_DEVICE_LOST, "a convolution: CUDA_ERROR_ILLEGAL_ADDRESS");
    end();
}
END_TEST

START_TEST(out_of_memory_in_the_library_fails_and_the_device_still_works)
{
    start("cudnnConvolutionForward=4004", CUDNN);
    OK(fails(CORE_ERROR_OUT_OF_MEMORY, "a convolution"));
    setenv("FAKE_GPU_FAIL", "", 1);
    right(&plain, CORE_F32, 3);
    end();
}
END_TEST

/* ------------------------------------------------------------- setting -- */

START_TEST(setting_0_disables_the_library)
{
    setenv("LIBCORE_CUDA_CUDNN", "0", 1);
    start("", CUDNN);
    runtime_says("; cuDNN is not used: LIBCORE_CUDA_CUDNN is 0");
    without(NULL);
    end();
}
END_TEST

/* The same as without a library. */
START_TEST(plugin_computes_operands_of_any_strides)
{
    setenv("LIBCORE_CUDA_CUDNN", "0", 1);
    start("", CUDNN);
    for (int i = 0; i < 2 * 8; i++) {
        const convolution *k = &all_kinds[i % 8];
        operands o = of(k, CORE_F32), c = all_there(&o), exact = wide(&o);
        core_tensor *want[4], *have[4];

        if (k->ndim == 3) {
            c.x = CALL(transpose,
                       there(CALL(contiguous, CALL(transpose, o.x, 1, 2), 0)),
                       1, 2);
        } else {
            c.x = last(c.x);
            c.w = i / 8 ? last(c.w) : c.w;
        }
        step(k, &exact, want);
        step(k, &c, have);
        for (int t = 0; t < 3 + (o.b != NULL); t++)
            near(have[t], want[t], 1e-6);
        if (k->ndim > 3)
            is_channels_last(have[0]);
    }
    ck_assert_int_eq(convolved(NULL), 0);
    end();
}
END_TEST

START_TEST(required_library_is_used_or_its_absence_is_an_error)
{
    setenv("LIBCORE_CUDA_CUDNN", "1", 1);
    start("", CUDNN);
    runtime_says("; cuDNN 9.10.0");
    right(&plain, CORE_F32, 3);
    /* Unsupported shapes are computed by the plugin. */
    setenv("FAKE_GPU_FAIL", "cudnnGetConvolutionForwardAlgorithm_v7=3000", 1);
    right(&all_kinds[1], CORE_F32, 2);
    end();
}
END_TEST

START_TEST(outdated_required_library_is_an_error)
{
    setenv("LIBCORE_CUDA_CUDNN", "1", 1);
    setenv("FAKE_CUDNN_VERSION", "8005", 1);
    load("libcuda.so.1");
    load(CUDNN_8);
    start("", CUDNN);
    OK(fails(CORE_ERROR_UNSUPPORTED, "is version 8.0.5"));
    end();
}
END_TEST

START_TEST(required_library_that_does_not_start_is_an_error)
{
    setenv("LIBCORE_CUDA_CUDNN", "1", 1);
    start("cudnnCreate=1001", CUDNN);
    OK(fails(CORE_ERROR_UNSUPPORTED, "cudnnCreate fails (status 1001)"));
    end();
}
END_TEST

START_TEST(unknown_value_of_the_setting_is_an_error)
{
    setenv("LIBCORE_CUDA_CUDNN", "yes", 1);
    start("", CUDNN);
    OK(fails(CORE_ERROR_UNSUPPORTED,
             "LIBCORE_CUDA_CUDNN is \"yes\"; 0 and 1 are accepted"));
    end();
}
END_TEST

/* ------------------------------------------- streams, threads, captures -- */

/* On the thread's stream, captured and replayed. */
static void replay(int by_library)
{
    operands o = of(&plain, CORE_F32), c = all_there(&o), exact = wide(&o);
    core_tensor *want = convolve(&plain, &exact), *y;
    core_stream *stream;
    core_graph *graph;

    OK(core_stream_current(cuda, &stream));
    OK(core_device_synchronize(cuda));
    convolved(NULL);
    OK(core_capture_begin(stream, NULL));
    y = convolve(&plain, &c);
    OK(core_capture_end(stream, &graph));
    ck_assert_int_eq(convolved(NULL), by_library);
    for (int i = 0; i < 2; i++) {
        OK(core_fill_(y, core_float(0)));
        OK(core_graph_launch(graph, stream));
        near(y, want, 1e-6);
    }
    core_graph_release(graph);
}

static core_stream *on_a_stream(void)
{
    core_stream *stream;

    OK(core_stream_create(cuda, &stream));
    OK(core_stream_set_current(stream));
    return stream;
}

/* On any stream that has convolved before. */
START_TEST(convolutions_can_be_captured)
{
    core_stream *stream;

    start("", CUDNN);
    right(&plain, CORE_F32, 3);
    stream = on_a_stream();
    replay(1);
    core_stream_release(stream);
    end();
}
END_TEST

START_TEST(capture_does_not_start_the_library)
{
    core_stream *stream;

    start("", CUDNN);
    core_log_set_sink(sink, NULL, CORE_LOG_WARNING);
    stream = on_a_stream();
    replay(0);
    core_log_set_sink(NULL, NULL, CORE_LOG_ERROR);
    ck_assert_int_eq(nlogged, 1);
    ck_assert_msg(strstr(logged, "once before") != NULL, "%s", logged);
    ck_assert_uint_eq(counted("fake_cudnn_handles"), 0);
    core_stream_release(stream);
    end();
}
END_TEST

START_TEST(required_library_starts_before_a_capture)
{
    core_stream *stream;

    setenv("LIBCORE_CUDA_CUDNN", "1", 1);
    start("", CUDNN);
    stream = on_a_stream();
    replay(1);
    core_stream_release(stream);
    end();
}
END_TEST

START_TEST(handle_of_an_ended_stream_is_reused)
{
    core_stream *streams[3], *own;

    start("", CUDNN);
    OK(core_stream_default(cuda, &own));
    for (int i = 0; i < 3; i++) {
        streams[i] = on_a_stream();
        right(&plain, CORE_F32, 3);
        ck_assert_uint_eq(counted("fake_cudnn_handles"), i + 1u);
    }
    OK(core_stream_set_current(own));
    drop_all();
    for (int i = 0; i < 3; i++)
        core_stream_release(streams[i]);
    OK(core_device_synchronize(cuda));
    for (int i = 0; i < 3; i++) {
        streams[i] = on_a_stream();
        right(&plain, CORE_F32, 3);
    }
    ck_assert_uint_eq(counted("fake_cudnn_handles"), 3);
    right(&all_kinds[1], CORE_F32, 3);
    OK(core_stream_set_current(own));
    OK(core_device_synchronize(cuda));
    OK(core_device_reset(cuda));
    ck_assert_uint_eq(counted("fake_cudnn_objects"), 0);
    for (int i = 0; i < 3; i++)
        core_stream_release(streams[i]);
    end();
}
END_TEST

START_TEST(handle_of_an_adopted_stream_is_reused)
{
    core_stream *streams[3], *stream, *own;
    void *native;

    start("", CUDNN);
    OK(core_stream_default(cuda, &own));
    for (int i = 0; i < 3; i++) {
        OK(core_stream_create(cuda, &streams[i]));
        OK(core_stream_native(streams[i], &native));
        OK(core_stream_adopt(cuda, native, &stream));
        OK(core_stream_set_current(stream));
        right(&plain, CORE_F32, 3);
        OK(core_stream_set_current(own));
        drop_all();
        core_stream_release(stream);
    }
    ck_assert_uint_eq(counted("fake_cudnn_handles"), 1);
    for (int i = 0; i < 3; i++)
        core_stream_release(streams[i]);
    end();
}
END_TEST

/* 2000 shapes: old plans are dropped, and the others are right. */
START_TEST(cache_of_plans_is_limited)
{
    enum { SHAPES = 2000, KEPT = 512 };
    core_tensor *w;
    bool before;

    start("", CUDNN);
    before = core_grad_mode_set(false);
    w = there(numbers(CORE_F32, 3, (int64_t[]){1, 1, 2}, 3));
    for (int64_t i = 0; i < SHAPES; i++) {
        core_tensor *x, *y;

        OK(core_ones((int64_t[]){1, 1, i + 2}, 3, CORE_F32, cuda, &x));
        OK(core_conv1d(x, w, NULL, (int64_t[]){1}, 1, (int64_t[]){0}, 1,
                       (int64_t[]){1}, 1, 1, &y));
        core_tensor_release(x);
        core_tensor_release(y);
    }
    core_grad_mode_set(before);
    ck_assert_int_eq(convolved(NULL), SHAPES);
    ck_assert_uint_le(counted("fake_cudnn_objects"), 4 * KEPT + 1);
    ck_assert_uint_ge(counted("fake_cudnn_objects"), 4 * KEPT / 2);
    right(&plain, CORE_F32, 3);
    OK(core_device_synchronize(cuda));
    OK(core_device_reset(cuda));
    ck_assert_uint_eq(counted("fake_cudnn_objects"), 0);
    end();
}
END_TEST

enum { THREADS = 4, ROUNDS = 20 };

/* Each thread has its own stream, and shapes that others use too. */
static void *convolve_much(void *argument)
{
    core_tensor *const *given = argument;
    core_stream *stream;

    OK(core_stream_create(cuda, &stream));
    OK(core_stream_set_current(stream));
    for (int i = 0; i < ROUNDS; i++) {
        core_tensor *y;
        double have[2 * 4 * 6 * 4], want[2 * 4 * 6 * 4];
        core_tensor *here;

        OK(core_convolution(given[0], given[1], given[2], plain.stride, 2,
                            plain.padding, 2, plain.dilation, 2, false,
                            plain.output_padding, 2, 1, &y));
        OK(core_to_copy(y, CORE_F64, device_of("cpu"), false, -1, &here));
        OK(core_tensor_read(here, have, sizeof have));
        OK(core_tensor_read(given[3], want, sizeof want));
        for (size_t k = 0; k < sizeof have / sizeof *have; k++)
            ck_assert_double_eq_tol(have[k], want[k], 1e-5);
        core_tensor_release(here);
        core_tensor_release(y);
    }
    core_stream_release(stream);
    return NULL;
}

START_TEST(threads_can_convolve_concurrently)
{
    pthread_t threads[THREADS];
    core_tensor *given[4];
    operands o, c, exact;

    start("", CUDNN);
    o = of(&plain, CORE_F32);
    c = all_there(&o);
    exact = wide(&o);
    given[0] = c.x;
    given[1] = c.w;
    given[2] = c.b;
    given[3] = convolve(&plain, &exact);
    OK(core_device_synchronize(cuda));
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(
            pthread_create(&threads[i], NULL, convolve_much, given), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    ck_assert_int_eq(convolved(NULL), THREADS * ROUNDS);
    end();
}
END_TEST

START_TEST(repeated_step_has_the_same_bits)
{
    static double first[MOST], second[MOST];
    core_tensor *out[2][4];

    start("", CUDNN);
    for (int i = 0; i < 2; i++) {
        operands o = of(&all_kinds[1], CORE_F32), c = all_there(&o);

        step(&all_kinds[1], &c, out[i]);
    }
    for (int t = 0; t < 4; t++) {
        read_all(out[0][t], first);
        read_all(out[1][t], second);
        ck_assert_mem_eq(first, second,
                         (size_t)core_tensor_numel(out[0][t]) * 8);
    }
    ck_assert_int_eq(convolved(NULL), 6);
    end();
}
END_TEST

START_TEST(devices_have_separate_handles)
{
    setenv("GPUEMU_DEVICES", "2", 1);
    start("", CUDNN);
    for (int i = 0; i < 4; i++) {
        cuda = device_of(i % 2 ? "cuda:1" : "cuda:0");
        right(&all_kinds[i], CORE_F32, 3);
    }
    ck_assert_uint_eq(counted("fake_cudnn_handles"), 2);
    end();
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        plugin_computes_without_the_library,
        outdated_library_is_not_used,
        library_that_does_not_start_is_not_used,
        start_is_retried_after_lack_of_memory,
        handle_that_refuses_a_stream_is_not_used,
        plugin_computes_if_a_descriptor_or_query_fails,
        late_refusal_is_remembered,
        failed_convolution_loses_the_device,
        version_8_has_other_status_codes,
        earlier_illegal_address_is_reported_as_such,
        out_of_memory_in_the_library_fails_and_the_device_still_works,
        setting_0_disables_the_library,
        plugin_computes_operands_of_any_strides,
        required_library_is_used_or_its_absence_is_an_error,
        outdated_required_library_is_an_error,
        required_library_that_does_not_start_is_an_error,
        unknown_value_of_the_setting_is_an_error,
        convolutions_can_be_captured,
        capture_does_not_start_the_library,
        required_library_starts_before_a_capture,
        handle_of_an_ended_stream_is_reused,
        handle_of_an_adopted_stream_is_reused,
        cache_of_plans_is_limited,
        threads_can_convolve_concurrently,
        repeated_step_has_the_same_bits,
        devices_have_separate_handles,
    };

    return run_with_fake_cudnn("gpu/cuda_dnn_use", tests,
                               sizeof tests / sizeof *tests);
}
