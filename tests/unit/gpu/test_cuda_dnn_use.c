/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* cuDNN that is not there, does not start, fails, is captured, is used by several
 * streams and threads.  Skipped where the plugin was not built. */

#define SUITE_SECONDS 100

#include "support/cudnn.h"

#include <libcore/capture.h>
#include <libcore/settings.h>

/* Real ones, where there are such, leak when they find no driver. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:cudnnCreate\nleak:libcudnn\nleak:cublasLtCreate";
}

/* ---------------------------------------------------------- no library -- */

static char told[512];
static int ntold;

static void sink(void *context, uint32_t level, const char *component,
                 const char *text)
{
    (void)context;
    if (level <= CORE_LOG_WARNING && strcmp(component, "cuda") == 0 &&
        strncmp(text, "products", 8) != 0) {
        ntold++;
        snprintf(told, sizeof told, "%s", text);
    }
}

static void without(const char *what)
{
    core_log_set_sink(sink, NULL, CORE_LOG_WARNING);
    for (int i = 0; i < 2; i++)
        right(&plain, CORE_F32, 0);
    core_log_set_sink(NULL, NULL, CORE_LOG_ERROR);
    ck_assert_int_eq(ntold, what != NULL);
    if (what != NULL) {
        ck_assert_msg(strstr(told, "the plugin's own kernels: ") != NULL, "%s",
                      told);
        ck_assert_msg(strstr(told, what) != NULL, "%s", told);
    }
}

START_TEST(without_the_library_the_plugin_computes)
{
    start("", NULL);
    /* A real one, where there is such, does not start. */
    without("");
    runtime_says("cuDNN");
    end();
}
END_TEST

START_TEST(a_library_that_is_too_old_is_not_used)
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

START_TEST(a_library_that_does_not_start_is_not_used)
{
    start("cudnnCreate=1001", CUDNN);
    without("cudnnCreate fails (status 1001)");
    ck_assert_uint_eq(counted("fake_cudnn_objects"), 0);
    end();
}
END_TEST

/* The first and the third of six convolutions tried, the seventh does. */
START_TEST(a_library_that_lacked_memory_is_tried_again)
{
    start("cudnnCreate=4004", CUDNN);
    without("cudnnCreate fails (status 4004)");
    setenv("FAKE_GPU_FAIL", "", 1);
    right(&plain, CORE_F32, 3);
    ck_assert_uint_eq(counted("fake_cudnn_handles"), 1);
    end();
}
END_TEST

START_TEST(a_handle_that_takes_no_stream_is_not_used)
{
    start("cudnnSetStream=2000", CUDNN);
    without("cudnnSetStream fails");
    end();
}
END_TEST

/* Whatever it is that fails: no description is left behind. */
START_TEST(what_cannot_be_described_or_answered_is_computed_by_the_plugin)
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

START_TEST(what_is_refused_late_is_computed_by_the_plugin_from_then_on)
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

START_TEST(a_convolution_that_failed_is_a_lost_device)
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

START_TEST(version_8_numbers_failures_otherwise)
{
    load("libcuda.so.1");
    load(CUDNN_LACKING);
    start("cudnnConvolutionForward=8", CUDNN_8);
    ck_assert_int_eq(fails(CORE_ERROR_DEVICE_LOST, "a convolution"),
                     CORE_ERROR_DEVICE_LOST);
    end();
}
END_TEST

/* What the library says then is no matter. */
START_TEST(an_illegal_address_of_before_has_its_own_name)
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

START_TEST(no_memory_of_the_librarys_own_is_told_and_the_device_goes_on)
{
    start("cudnnConvolutionForward=4004", CUDNN);
    OK(fails(CORE_ERROR_OUT_OF_MEMORY, "a convolution"));
    setenv("FAKE_GPU_FAIL", "", 1);
    right(&plain, CORE_F32, 3);
    end();
}
END_TEST

/* ------------------------------------------------------------- setting -- */

START_TEST(the_setting_leaves_the_library_alone)
{
    setenv("LIBCORE_CUDA_CUDNN", "0", 1);
    start("", CUDNN);
    runtime_says("; cuDNN is not used: LIBCORE_CUDA_CUDNN is 0");
    without(NULL);
    end();
}
END_TEST

/* As where there is no library. */
START_TEST(the_plugin_computes_what_lies_in_any_order)
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
            lies_last(have[0]);
    }
    ck_assert_int_eq(convolved(NULL), 0);
    end();
}
END_TEST

START_TEST(a_library_that_is_wanted_is_used_or_missed_aloud)
{
    setenv("LIBCORE_CUDA_CUDNN", "1", 1);
    start("", CUDNN);
    runtime_says("; cuDNN 9.10.0");
    right(&plain, CORE_F32, 3);
    /* Shapes that it does not know are the plugin's. */
    setenv("FAKE_GPU_FAIL", "cudnnGetConvolutionForwardAlgorithm_v7=3000", 1);
    right(&all_kinds[1], CORE_F32, 2);
    end();
}
END_TEST

START_TEST(a_library_that_is_wanted_and_too_old_is_an_error)
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

START_TEST(a_library_that_is_wanted_and_does_not_start_is_an_error)
{
    setenv("LIBCORE_CUDA_CUDNN", "1", 1);
    start("cudnnCreate=1001", CUDNN);
    OK(fails(CORE_ERROR_UNSUPPORTED, "cudnnCreate fails (status 1001)"));
    end();
}
END_TEST

START_TEST(another_value_of_the_setting_is_an_error)
{
    setenv("LIBCORE_CUDA_CUDNN", "yes", 1);
    start("", CUDNN);
    OK(fails(CORE_ERROR_UNSUPPORTED,
             "LIBCORE_CUDA_CUDNN is \"yes\"; 0 and 1 are accepted"));
    end();
}
END_TEST

/* ------------------------------------------- streams, threads, captures -- */

/* On the thread's stream, as it is captured and replayed. */
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

/* On whatever stream it ran before. */
START_TEST(convolutions_are_captured)
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

START_TEST(a_capture_does_not_start_the_library)
{
    core_stream *stream;

    start("", CUDNN);
    core_log_set_sink(sink, NULL, CORE_LOG_WARNING);
    stream = on_a_stream();
    replay(0);
    core_log_set_sink(NULL, NULL, CORE_LOG_ERROR);
    ck_assert_int_eq(ntold, 1);
    ck_assert_msg(strstr(told, "once before") != NULL, "%s", told);
    ck_assert_uint_eq(counted("fake_cudnn_handles"), 0);
    core_stream_release(stream);
    end();
}
END_TEST

START_TEST(a_library_that_is_wanted_is_there_before_a_capture)
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

START_TEST(a_stream_has_a_handle_that_the_next_one_gets)
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

START_TEST(an_adopted_stream_leaves_its_handle)
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

/* 2000 shapes: descriptions are dropped, and those that are left are right. */
START_TEST(not_every_shape_is_kept)
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

/* An own stream, and shapes that others have too. */
static void *convolve_much(void *word)
{
    core_tensor *const *given = word;
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

START_TEST(threads_convolve_at_the_same_time)
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

START_TEST(the_same_step_twice_has_the_same_bits)
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

START_TEST(two_devices_have_handles_of_their_own)
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
        without_the_library_the_plugin_computes,
        a_library_that_is_too_old_is_not_used,
        a_library_that_does_not_start_is_not_used,
        a_library_that_lacked_memory_is_tried_again,
        a_handle_that_takes_no_stream_is_not_used,
        what_cannot_be_described_or_answered_is_computed_by_the_plugin,
        what_is_refused_late_is_computed_by_the_plugin_from_then_on,
        a_convolution_that_failed_is_a_lost_device,
        version_8_numbers_failures_otherwise,
        an_illegal_address_of_before_has_its_own_name,
        no_memory_of_the_librarys_own_is_told_and_the_device_goes_on,
        the_setting_leaves_the_library_alone,
        the_plugin_computes_what_lies_in_any_order,
        a_library_that_is_wanted_is_used_or_missed_aloud,
        a_library_that_is_wanted_and_too_old_is_an_error,
        a_library_that_is_wanted_and_does_not_start_is_an_error,
        another_value_of_the_setting_is_an_error,
        convolutions_are_captured,
        a_capture_does_not_start_the_library,
        a_library_that_is_wanted_is_there_before_a_capture,
        a_stream_has_a_handle_that_the_next_one_gets,
        an_adopted_stream_leaves_its_handle,
        not_every_shape_is_kept,
        threads_convolve_at_the_same_time,
        the_same_step_twice_has_the_same_bits,
        two_devices_have_handles_of_their_own,
    };

    return run_behind_cudnn("the use of cuDNN", tests,
                            sizeof tests / sizeof *tests);
}
