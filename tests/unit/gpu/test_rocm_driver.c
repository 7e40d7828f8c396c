/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* backends/rocm behind a libamdhip64 that is none (tests/fixtures/gpu): what HIP
 * may answer, and what libcore says of it.  Skipped where the plugin was not
 * built. */

#define SUITE_SECONDS 60
#define GPU "rocm"
/* Its number is that of the HIP that was found. */
#define GPU_DRIVER ".libs/libamdhip64.so.?"
#define ROCBLAS ".libs/librocblas.so.?"

#include "support/gpu_products.h"

#include <rocm/images.h>

/* ----------------------------------------------------------- no devices -- */

START_TEST(without_a_driver_there_is_no_device)
{
    if (access("/dev/kfd", F_OK) == 0) {
        suite_skip("this machine has a driver");
        return;
    }
    there_is_none("no /dev/kfd");
}
END_TEST

START_TEST(a_hip_without_some_function_is_too_old)
{
    load("old/.libs/libamdhip64.so.?");
    there_is_none("is too old: it has no hip");
}
END_TEST

START_TEST(error_35_is_a_driver_that_is_too_old)
{
    load_fake("hipInit=35");
    there_is_none("too old for HIP (error 35)");
}
END_TEST

START_TEST(error_100_is_no_device)
{
    load_fake("hipInit=100");
    there_is_none("no device (error 100)");
}
END_TEST

START_TEST(another_error_of_the_start_has_its_name)
{
    load_fake("hipGetDeviceCount=3");
    there_is_none("hipErrorNotInitialized (error 3)");
}
END_TEST

START_TEST(a_device_that_cannot_be_opened_is_told)
{
    core_device *device;

    setenv("GPUEMU_DEVICES", "2", 1);
    load_fake("hipSetDevice=2");
    FAILS(core_device_find("rocm:1", &device), CORE_ERROR_OUT_OF_MEMORY,
          "hipErrorOutOfMemory (2)");
    ck_assert(computes(device_of("cpu")));
}
END_TEST

/* ------------------------------------------------- what it recovers from -- */

START_TEST(an_invalid_image_is_told)
{
    image_is_refused("hipModuleLoadData=200", "hipErrorInvalidImage (200)");
}
END_TEST

START_TEST(an_image_for_other_gpus_is_told)
{
    image_is_refused("hipModuleLoadData=209",
                     "hipErrorNoBinaryForGpu, the kernels here are for gfx");
}
END_TEST

START_TEST(a_kernel_that_is_missing_is_named)
{
    a_kernel_is_missing("hipModuleGetFunction=500");
}
END_TEST

/* More rows than HIP takes blocks of: what the launch asks for is looked at, and
 * then it fails, since to emulate all of them takes long. */
START_TEST(a_launch_has_no_more_threads_than_hip_takes)
{
    const int64_t rows = (1 << 24) + 1;
    core_tensor *x, *y = NULL;

    load_fake("hipModuleLaunchKernel@2=2");
    x = CALL(zeros, (int64_t[]){1, 1}, 2, CORE_F32, device_of("rocm"));
    x = CALL(add_scalar, x, core_float(1), core_float(1));
    x = CALL(expand, x, ((int64_t[]){rows, 40}), 2, false);
    FAILS(core_any_dim(x, 1, false, &y), CORE_ERROR_OUT_OF_MEMORY,
          "hipErrorOutOfMemory (2)");
    ck_assert_ptr_null(y);
}
END_TEST

/* ---------------------------------------------------------------- losses -- */

START_TEST(an_illegal_address_poisons_one_device)
{
    an_address_loses("hipErrorIllegalAddress", "(700)");
}
END_TEST

START_TEST(a_context_that_somebody_destroyed_is_a_lost_device)
{
    call_loses("hipStreamSynchronize=709 hipStreamQuery=709 hipEventQuery=709 "
               "hipEventSynchronize=709",
               "hipErrorContextIsDestroyed (709)");
}
END_TEST

START_TEST(a_launch_that_failed_is_a_lost_device)
{
    call_loses("hipStreamSynchronize=719 hipStreamQuery=719 hipEventQuery=719 "
               "hipEventSynchronize=719",
               "hipErrorLaunchFailure (719)");
}
END_TEST

START_TEST(memory_of_before_a_reset_is_gone)
{
    memory_of_before_is_gone("hipMalloc", "hipFree");
}
END_TEST

/* ------------------------------------------------ what runs on the device -- */

START_TEST(callbacks_compute_behind_host_functions)
{
    setenv("FAKE_HIP_NO_GATES", "1", 1);
    callbacks_run();
}
END_TEST

START_TEST(an_integrated_gpu_has_the_hosts_memory)
{
    setenv("FAKE_HIP_INTEGRATED", "1", 1);
    memory_is(CORE_MEMORY_UNIFIED);
}
END_TEST

/* Another library of the process has a device of its own current. */
START_TEST(the_threads_device_stays_what_it_was)
{
    int (*set)(int), (*get)(int *), now = -1;

    setenv("GPUEMU_DEVICES", "3", 1);
    load_fake("");
    *(void **)&set = dlsym(RTLD_DEFAULT, "hipSetDevice");
    *(void **)&get = dlsym(RTLD_DEFAULT, "hipGetDevice");
    ck_assert_int_eq(set(2), 0);
    ck_assert(computes(device_of("rocm:0")));
    ck_assert(computes(device_of("rocm:1")));
    ck_assert_int_eq(get(&now), 0);
    ck_assert_int_eq(now, 2);
    ck_assert(computes(device_of("rocm:2"))); /* the one that is current */
    ck_assert_int_eq(get(&now), 0);
    ck_assert_int_eq(now, 2);
}
END_TEST

static void features_are(const char *expected)
{
    core_device_information information = {.struct_size = sizeof information};

    OK(core_device_get_information(device_of("rocm"), &information));
    ck_assert_uint_eq(information.features.size, strlen(expected));
    ck_assert_int_eq(
        memcmp(information.features.data, expected, information.features.size),
        0);
}

START_TEST(the_width_of_wavefronts_is_the_devices)
{
    setenv("GPUEMU_WARP", "64", 1);
    load_fake("");
    ck_assert(computes(device_of("rocm")));
    features_are("gfx90a:sramecc+:xnack-, wavefront 64");
}
END_TEST

START_TEST(a_gpu_without_kernels_is_no_device)
{
    core_device *device;

    setenv("FAKE_HIP_ARCH", "gfx90:xnack-", 1);
    load_fake("");
    FAILS(core_device_find("rocm", &device), CORE_ERROR_UNSUPPORTED,
          "kernels here are for gfx");
    ck_assert(computes(device_of("cpu")));
}
END_TEST

/* By name, whatever features it has; what is no name may be for any. */
START_TEST(kernels_fit_gpus)
{
    static const struct {
        const char *list, *name;
        bool fit;
    } rows[] = {
        {"gfx90a", "gfx90a:sramecc+:xnack-, wavefront 64", true},
        {"gfx90a:xnack- gfx1030", "gfx90a:xnack-", true},
        {"gfx906 gfx1030", "gfx1030, wavefront 32", true},
        {"gfx906 gfx90a", "gfx90", false},
        {"gfx90", "gfx90a", false},
        {"gfx906", "gfx908, wavefront 64", false},
        {"gfx11-generic", "gfx1100, wavefront 32", true},
        {"native", "gfx1100", true},
        {"gfx906", "wavefront 64", true},
        {"", "gfx906", false},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        ck_assert_msg(rocm_arches_fit(rows[i].list, rows[i].name) ==
                          rows[i].fit,
                      "%s on %s", rows[i].list, rows[i].name);
}
END_TEST

/* Without a name the width is there. */
START_TEST(an_architecture_without_a_name_has_its_width)
{
    setenv("FAKE_HIP_ARCH", "", 1);
    load_fake("");
    features_are("wavefront 32");
}
END_TEST

/* --------------------------------------------------------- its libraries -- */

START_TEST(a_product_on_each_stream_is_the_librarys)
{
    a_product_on_each_stream(ROCBLAS);
}
END_TEST

START_TEST(captured_products_work_in_memory_of_their_graph)
{
    captured_products_work_in_their_graphs(ROCBLAS);
}
END_TEST

START_TEST(a_captured_sum_of_products_works_in_one_workspace)
{
    captured_sums_work_in_one_workspace(ROCBLAS);
}
END_TEST

START_TEST(a_captured_convolution_works_in_one_workspace)
{
    captured_convolutions_work_in_one(ROCBLAS);
}
END_TEST

START_TEST(without_memory_for_it_no_product_is_captured)
{
    without_memory_no_product_is_captured(ROCBLAS);
}
END_TEST

START_TEST(a_capture_does_not_start_the_library)
{
    a_capture_starts_no_library(ROCBLAS, "rocblas_create_handle=1");
}
END_TEST

START_TEST(a_reset_destroys_the_librarys_handles_there)
{
    a_reset_destroys_handles_there(ROCBLAS);
}
END_TEST

START_TEST(adopted_streams_leave_the_librarys_handles)
{
    adopted_streams_leave_their_handles(ROCBLAS);
}
END_TEST

START_TEST(a_handle_that_cannot_be_waited_for_is_passed_over)
{
    such_a_handle_is_passed_over(ROCBLAS, "hipStreamWaitEvent=1");
}
END_TEST

START_TEST(an_event_outlives_the_stream_that_it_was_recorded_on)
{
    an_event_outlives_its_stream(ROCBLAS);
}
END_TEST

START_TEST(a_stream_that_captures_for_others_is_left_alone)
{
    captures_for_others(ROCBLAS, "hipStreamBeginCapture", "hipStreamEndCapture",
                        "hipGraphDestroy");
}
END_TEST

START_TEST(what_others_capture_is_not_disturbed)
{
    captures_beside_others(ROCBLAS, "hipStreamBeginCapture",
                           "hipStreamEndCapture", "hipGraphDestroy");
}
END_TEST

START_TEST(a_wait_that_fails_leaves_nothing_under_way)
{
    a_wait_fails("hipStreamSynchronize=2");
}
END_TEST

START_TEST(a_sum_that_the_library_leaves_is_finished)
{
    a_sum_that_a_library_leaves(ROCBLAS, "rocblas_gemm@2=2");
}
END_TEST

START_TEST(without_a_library_the_plugin_multiplies_and_says_so)
{
    without_a_library("rocBLAS");
}
END_TEST

START_TEST(a_library_that_does_not_start_is_not_used)
{
    a_library_does_not_start(ROCBLAS, "rocblas_create_handle=1");
}
END_TEST

START_TEST(a_product_that_failed_is_a_lost_device)
{
    a_product_fails(ROCBLAS, "rocblas_gemm=6");
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        without_a_driver_there_is_no_device,
        a_hip_without_some_function_is_too_old,
        error_35_is_a_driver_that_is_too_old,
        error_100_is_no_device,
        a_count_of_zero_is_no_device,
        another_error_of_the_start_has_its_name,
        a_device_that_cannot_be_opened_is_told,
        no_memory_is_told_and_the_device_goes_on,
        an_invalid_image_is_told,
        an_image_for_other_gpus_is_told,
        a_kernel_that_is_missing_is_named,
        a_launch_has_no_more_threads_than_hip_takes,
        operands_of_two_devices_are_refused,
        an_illegal_address_poisons_one_device,
        a_context_that_somebody_destroyed_is_a_lost_device,
        a_launch_that_failed_is_a_lost_device,
        memory_of_before_a_reset_is_gone,
        callbacks_compute_behind_gates,
        callbacks_compute_behind_host_functions,
        a_capture_is_replayed,
        error_words_of_busy_streams_serve_again,
        two_devices_copy_to_one_another,
        a_card_has_memory_of_its_own,
        an_integrated_gpu_has_the_hosts_memory,
        the_threads_device_stays_what_it_was,
        the_width_of_wavefronts_is_the_devices,
        an_architecture_without_a_name_has_its_width,
        a_gpu_without_kernels_is_no_device,
        kernels_fit_gpus,
        a_product_on_each_stream_is_the_librarys,
        captured_products_work_in_memory_of_their_graph,
        a_captured_sum_of_products_works_in_one_workspace,
        a_captured_convolution_works_in_one_workspace,
        without_memory_for_it_no_product_is_captured,
        a_capture_does_not_start_the_library,
        a_reset_destroys_the_librarys_handles_there,
        adopted_streams_leave_the_librarys_handles,
        a_handle_that_cannot_be_waited_for_is_passed_over,
        an_event_outlives_the_stream_that_it_was_recorded_on,
        a_stream_that_captures_for_others_is_left_alone,
        what_others_capture_is_not_disturbed,
        pinned_memory_outlives_a_reset,
        a_wait_that_fails_leaves_nothing_under_way,
        a_sum_that_the_library_leaves_is_finished,
        without_a_library_the_plugin_multiplies_and_says_so,
        a_library_that_does_not_start_is_not_used,
        a_product_that_failed_is_a_lost_device,
    };

    return run_behind_fake("rocm driver", "core_rocm.so", tests,
                           sizeof tests / sizeof *tests);
}
