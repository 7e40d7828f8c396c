/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* backends/rocm on a fake libamdhip64 (tests/fixtures/gpu): what HIP may
 * return, and what libcore reports.  Skipped if the plugin was not built. */

#define SUITE_SECONDS 60
#define GPU "rocm"
/* The version is that of the HIP that configure found. */
#define GPU_DRIVER ".libs/libamdhip64.so.?"
#define ROCBLAS ".libs/librocblas.so.?"

#define SUITE_FORKS true

#include "support/gpu_products.h"

#include <rocm/architectures.h>

/* ----------------------------------------------------------- no devices -- */

START_TEST(without_a_driver_there_is_no_device)
{
    if (access("/dev/kfd", F_OK) == 0) {
        suite_skip("this machine has a driver");
        return;
    }
    check_no_device("no /dev/kfd");
}
END_TEST

START_TEST(hip_that_lacks_a_function_is_too_old)
{
    load("old/.libs/libamdhip64.so.?");
    check_no_device("is too old: it lacks hip");
}
END_TEST

START_TEST(error_35_means_driver_too_old)
{
    load_fake("hipInit=35");
    check_no_device("too old for HIP (error 35)");
}
END_TEST

START_TEST(error_100_means_no_device)
{
    load_fake("hipInit=100");
    check_no_device("no device (error 100)");
}
END_TEST

START_TEST(other_start_errors_are_named)
{
    load_fake("hipGetDeviceCount=3");
    check_no_device("hipErrorNotInitialized (error 3)");
}
END_TEST

START_TEST(failure_to_open_a_device_is_reported)
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

START_TEST(invalid_image_is_reported)
{
    check_image_is_refused("hipModuleLoadData=200",
                           "hipErrorInvalidImage (200)");
}
END_TEST

START_TEST(image_for_other_gpus_is_reported)
{
    check_image_is_refused(
        "hipModuleLoadData=209",
        "hipErrorNoBinaryForGpu, the kernels were built for gfx");
}
END_TEST

START_TEST(missing_kernel_is_named)
{
    check_missing_kernel("hipModuleGetFunction=500");
}
END_TEST

/* More rows than HIP allows blocks.  The arguments of the launch are checked,
 * and then it fails, since emulating all rows would take long. */
START_TEST(launch_respects_the_thread_limit_of_hip)
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

START_TEST(illegal_address_loses_one_device)
{
    check_illegal_address("hipErrorIllegalAddress", "(700)");
}
END_TEST

START_TEST(destroyed_context_is_a_lost_device)
{
    check_call_loses_device(
        "hipStreamSynchronize=709 hipStreamQuery=709 hipEventQuery=709 "
        "hipEventSynchronize=709",
        "hipErrorContextIsDestroyed (709)");
}
END_TEST

START_TEST(failed_launch_is_a_lost_device)
{
    check_call_loses_device(
        "hipStreamSynchronize=719 hipStreamQuery=719 hipEventQuery=719 "
        "hipEventSynchronize=719",
        "hipErrorLaunchFailure (719)");
}
END_TEST

START_TEST(memory_does_not_survive_a_reset)
{
    check_memory_is_gone_after_reset("hipMalloc", "hipFree");
}
END_TEST

/* ------------------------------------------------ what runs on the device -- */

START_TEST(callbacks_compute_with_host_functions)
{
    setenv("FAKE_HIP_NO_GATES", "1", 1);
    check_callbacks_run();
}
END_TEST

START_TEST(integrated_gpu_uses_host_memory)
{
    setenv("FAKE_HIP_INTEGRATED", "1", 1);
    check_memory_kind(CORE_MEMORY_UNIFIED);
}
END_TEST

/* Another library of the process has made its own device current. */
START_TEST(current_device_is_preserved)
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
    ck_assert(computes(device_of("rocm:2"))); /* the current one */
    ck_assert_int_eq(get(&now), 0);
    ck_assert_int_eq(now, 2);
}
END_TEST

static void check_features(const char *expected)
{
    core_device_information information = {.struct_size = sizeof information};

    OK(core_device_get_information(device_of("rocm"), &information));
    ck_assert_uint_eq(information.features.size, strlen(expected));
    ck_assert_int_eq(
        memcmp(information.features.data, expected, information.features.size),
        0);
}

START_TEST(wavefront_width_is_the_devices)
{
    setenv("GPUEMU_WARP", "64", 1);
    load_fake("");
    ck_assert(computes(device_of("rocm")));
    check_features("gfx90a:sramecc+:xnack-, wavefront 64");
}
END_TEST

START_TEST(gpu_without_kernels_cannot_be_opened)
{
    core_device *device;

    setenv("FAKE_HIP_ARCH", "gfx90:xnack-", 1);
    load_fake("");
    FAILS(core_device_find("rocm", &device), CORE_ERROR_UNSUPPORTED,
          "kernels were built for gfx");
    ck_assert(computes(device_of("cpu")));
}
END_TEST

/* By name, for any features; an entry that is not a name may support any
 * GPU. */
START_TEST(architectures_fit_the_right_gpus)
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

/* Without a name, the width is reported. */
START_TEST(unnamed_architecture_reports_its_width)
{
    setenv("FAKE_HIP_ARCH", "", 1);
    load_fake("");
    check_features("wavefront 32");
}
END_TEST

/* --------------------------------------------------------- its libraries -- */

START_TEST(library_multiplies_on_every_stream)
{
    check_products_on_each_stream(ROCBLAS);
}
END_TEST

START_TEST(captured_products_use_memory_of_their_graph)
{
    check_captured_products(ROCBLAS);
}
END_TEST

START_TEST(captured_sum_of_products_uses_one_workspace)
{
    check_captured_sums(ROCBLAS);
}
END_TEST

START_TEST(captured_convolution_uses_one_workspace)
{
    check_captured_convolutions(ROCBLAS);
}
END_TEST

START_TEST(product_is_not_captured_without_workspace)
{
    check_capture_without_memory(ROCBLAS);
}
END_TEST

START_TEST(capture_does_not_start_the_library)
{
    check_capture_starts_no_library(ROCBLAS, "rocblas_create_handle=1");
}
END_TEST

START_TEST(reset_destroys_handles_in_their_context)
{
    check_reset_destroys_handles(ROCBLAS);
}
END_TEST

START_TEST(handles_of_adopted_streams_are_reused)
{
    check_adopted_streams_release_handles(ROCBLAS);
}
END_TEST

START_TEST(handle_that_cannot_be_waited_for_is_skipped)
{
    check_handle_is_skipped(ROCBLAS, "hipStreamWaitEvent=1");
}
END_TEST

START_TEST(event_outlives_its_stream)
{
    check_event_outlives_stream(ROCBLAS);
}
END_TEST

START_TEST(stream_captured_by_others_is_not_touched)
{
    check_stream_captured_by_others(ROCBLAS, "hipStreamBeginCapture",
                                    "hipStreamEndCapture", "hipGraphDestroy");
}
END_TEST

START_TEST(captures_of_others_are_not_disturbed)
{
    check_captures_of_others(ROCBLAS, "hipStreamBeginCapture",
                             "hipStreamEndCapture", "hipGraphDestroy");
}
END_TEST

START_TEST(failed_wait_leaves_no_work_pending)
{
    check_failed_wait("hipStreamSynchronize=2");
}
END_TEST

START_TEST(sum_that_the_library_abandons_is_finished)
{
    check_abandoned_sum(ROCBLAS, "rocblas_gemm@2=2");
}
END_TEST

START_TEST(plugin_multiplies_and_warns_without_a_library)
{
    check_without_library("rocBLAS");
}
END_TEST

START_TEST(library_that_does_not_start_is_not_used)
{
    check_library_does_not_start(ROCBLAS, "rocblas_create_handle=1");
}
END_TEST

START_TEST(failed_product_is_a_lost_device)
{
    check_failed_product(ROCBLAS, "rocblas_gemm=6");
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        without_a_driver_there_is_no_device,
        hip_that_lacks_a_function_is_too_old,
        error_35_means_driver_too_old,
        error_100_means_no_device,
        device_count_of_zero_means_no_device,
        other_start_errors_are_named,
        failure_to_open_a_device_is_reported,
        out_of_memory_fails_and_the_device_still_works,
        invalid_image_is_reported,
        image_for_other_gpus_is_reported,
        missing_kernel_is_named,
        launch_respects_the_thread_limit_of_hip,
        operands_of_two_devices_are_refused,
        illegal_address_loses_one_device,
        destroyed_context_is_a_lost_device,
        failed_launch_is_a_lost_device,
        memory_does_not_survive_a_reset,
        callbacks_compute_with_gates,
        callbacks_compute_with_host_functions,
        capture_can_be_replayed,
        error_records_of_busy_streams_are_reused,
        devices_copy_to_each_other,
        discrete_gpu_has_its_own_memory,
        integrated_gpu_uses_host_memory,
        current_device_is_preserved,
        wavefront_width_is_the_devices,
        unnamed_architecture_reports_its_width,
        gpu_without_kernels_cannot_be_opened,
        architectures_fit_the_right_gpus,
        library_multiplies_on_every_stream,
        captured_products_use_memory_of_their_graph,
        captured_sum_of_products_uses_one_workspace,
        captured_convolution_uses_one_workspace,
        product_is_not_captured_without_workspace,
        capture_does_not_start_the_library,
        reset_destroys_handles_in_their_context,
        handles_of_adopted_streams_are_reused,
        handle_that_cannot_be_waited_for_is_skipped,
        event_outlives_its_stream,
        stream_captured_by_others_is_not_touched,
        captures_of_others_are_not_disturbed,
        pinned_memory_outlives_a_reset,
        failed_wait_leaves_no_work_pending,
        sum_that_the_library_abandons_is_finished,
        plugin_multiplies_and_warns_without_a_library,
        library_that_does_not_start_is_not_used,
        failed_product_is_a_lost_device,
    };

    return run_with_fake_driver("gpu/rocm_driver", "core_rocm.so", tests,
                                sizeof tests / sizeof *tests);
}
