/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* backends/cuda on a fake libcuda.so.1 (tests/fixtures/gpu): what a driver may
 * return, and what libcore reports.  Skipped if the plugin was not built. */

#define SUITE_SECONDS 60
#define GPU "cuda"
#define GPU_DRIVER ".libs/libcuda.so.1"
#define CUBLAS ".libs/libcublas.so"

#define SUITE_FORKS true

#include "support/gpu_products.h"

#include <cuda/architectures.h>

#include <sys/wait.h>

#include <gpu/shared_line.h>
#include <libcore/memory.h>
#include <libcore/settings.h>

#include <math.h>
#include <pthread.h>

/* A real driver, if there is one, leaks when it finds no device. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:cublasLtCreate";
}

/* ----------------------------------------------------------- no devices -- */

START_TEST(without_a_driver_there_is_no_device)
{
    void *real = dlopen("libcuda.so.1", RTLD_LAZY);

    if (real != NULL) {
        suite_skip("this machine has a driver");
        return;
    }
    check_no_device("no NVIDIA driver was found: libcuda.so.1: ");
}
END_TEST

START_TEST(driver_that_lacks_a_function_is_too_old)
{
    load("old/.libs/libcuda.so.1");
    check_no_device("too old");
}
END_TEST

START_TEST(driver_of_an_older_cuda_is_too_old)
{
    setenv("FAKE_CUDA_VERSION", "11040", 1);
    load_fake("");
    check_no_device("the driver supports CUDA 11.4");
}
END_TEST

START_TEST(error_35_means_driver_too_old)
{
    load_fake("cuInit=35");
    check_no_device("too old");
}
END_TEST

START_TEST(error_100_means_no_device)
{
    load_fake("cuInit=100");
    check_no_device("no device (error 100)");
}
END_TEST

START_TEST(other_start_errors_are_named)
{
    load_fake("cuInit=34");
    check_no_device("CUDA_ERROR_STUB_LIBRARY (error 34)");
}
END_TEST

START_TEST(failure_to_open_a_device_is_reported)
{
    core_device *device;

    load_fake("cuDevicePrimaryCtxRetain=2");
    FAILS(core_device_find("cuda", &device), CORE_ERROR_OUT_OF_MEMORY,
          "CUDA_ERROR_OUT_OF_MEMORY (2)");
    ck_assert(computes(device_of("cpu")));
}
END_TEST

/* ------------------------------------------------- what it recovers from -- */

START_TEST(invalid_image_is_reported)
{
    check_image_is_refused("cuModuleLoadData=200",
                           "CUDA_ERROR_INVALID_IMAGE (200)");
}
END_TEST

START_TEST(image_for_other_gpus_is_reported)
{
    check_image_is_refused(
        "cuModuleLoadData=209",
        "CUDA_ERROR_NO_BINARY_FOR_GPU, the kernels were built for");
}
END_TEST

static void set_architecture(const char *capability)
{
    core_device *device;
    pid_t child = fork();
    int status;

    if (child == 0) {
        setenv("FAKE_CUDA_ARCH", capability, 1);
        load_fake("");
        FAILS(core_device_find("cuda", &device), CORE_ERROR_UNSUPPORTED,
              "kernels were built for sm_");
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(status == 0, "of %s: %d", capability, status);
}

/* Older than any GPU that CUDA compiles for. */
START_TEST(gpu_without_kernels_cannot_be_opened)
{
    set_architecture("50");
    set_architecture("70");
}
END_TEST

/* By the same major version, by PTX of the last, and by suffixes. */
START_TEST(architectures_fit_the_right_gpus)
{
    static const struct {
        const char *list;
        int capability;
        bool fit;
    } rows[] = {
        {"sm_80", 80, true},
        {"sm_80", 86, true},
        {"sm_80", 90, true},
        {"sm_80", 75, false},
        {"sm_86", 80, false},
        {"sm_75 sm_90", 75, true},
        {"sm_75 sm_90", 80, false},
        {"sm_75 sm_90", 100, true},
        {"sm_90a", 90, true},
        {"sm_90a", 100, false},
        {"sm_80 sm_90a", 86, true},
        {"sm_80 sm_90a", 100, false},
        {"sm_100f", 103, true},
        {"sm_100f", 120, false},
        {"", 90, false},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        ck_assert_msg(cuda_arches_fit(rows[i].list, rows[i].capability) ==
                          rows[i].fit,
                      "%s on %d", rows[i].list, rows[i].capability);
    ck_assert_int_eq(cuda_code_for("sm_75 sm_80 sm_86", 89), 86);
    ck_assert_int_eq(cuda_code_for("sm_90 sm_75", 80), 75);
    ck_assert_int_eq(cuda_code_for("sm_75", 90), 75);
    ck_assert_int_eq(cuda_code_for("sm_75", 70), 0);
}
END_TEST

START_TEST(missing_kernel_is_named)
{
    check_missing_kernel("cuModuleGetFunction=500");
}
END_TEST

/* ---------------------------------------------------------------- losses -- */

START_TEST(illegal_address_loses_one_device)
{
    check_illegal_address("CUDA_ERROR_ILLEGAL_ADDRESS", "(700)");
}
END_TEST

START_TEST(destroyed_context_is_a_lost_device)
{
    check_call_loses_device(
        "cuStreamSynchronize=709 cuStreamQuery=709 cuEventQuery=709 "
        "cuEventSynchronize=709",
        "CUDA_ERROR_CONTEXT_IS_DESTROYED (709)");
}
END_TEST

/* An error of a peer's memory, which drivers return since CUDA 12.8. */
START_TEST(contained_error_is_a_lost_device)
{
    check_call_loses_device(
        "cuStreamSynchronize=226 cuStreamQuery=226 cuEventQuery=226 "
        "cuEventSynchronize=226",
        "(226)");
}
END_TEST

START_TEST(failed_launch_is_a_lost_device)
{
    check_call_loses_device(
        "cuStreamSynchronize=719 cuStreamQuery=719 cuEventQuery=719 "
        "cuEventSynchronize=719",
        "CUDA_ERROR_LAUNCH_FAILED (719)");
}
END_TEST

START_TEST(memory_does_not_survive_a_reset)
{
    check_memory_is_gone_after_reset("cuMemAlloc_v2", "cuMemFree_v2");
}
END_TEST

/* ------------------------------------------------ what runs on the device -- */

START_TEST(callbacks_compute_with_host_functions)
{
    setenv("FAKE_CUDA_NO_GATES", "1", 1);
    check_callbacks_run();
}
END_TEST

START_TEST(segments_expand)
{
    core_memory_stats stats = {.struct_size = sizeof stats};
    core_tensor *x[20];
    core_device *cuda;

    load_fake("");
    OK(core_memory_configure(NULL, "expandable_segments:true"));
    cuda = device_of("cuda");
    for (int i = 0; i < 20; i++)
        x[i] =
            CALL(full, (int64_t[]){200000}, 1, core_float(i), CORE_F32, cuda);
    for (int i = 0; i < 20; i++) {
        float values[4];

        OK(core_tensor_read(CALL(narrow, x[i], 0, 199996, 4), values,
                            sizeof values));
        ck_assert_float_eq(values[3], (float)i);
        drop(x[i]);
    }
    OK(core_memory_get_stats(cuda, &stats));
    ck_assert_uint_gt(stats.segments[0].peak, 0);
    OK(core_memory_empty_cache(cuda));
}
END_TEST

/* A driver cannot unmap a part of a mapping. */
START_TEST(segments_release_parts)
{
    const _Atomic unsigned *refused;
    core_tensor *x[8];
    core_device *cuda;

    load_fake("");
    OK(core_memory_configure(NULL, "expandable_segments:true"));
    cuda = device_of("cuda");
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 8; i++) { /* 8 MB each; mappings are larger */
            OK(core_empty((int64_t[]){2 << 20}, 1, CORE_F32, cuda, 0, &x[i]));
            OK(core_fill_(CALL(narrow, x[i], 0, 2000000, 100), core_float(i)));
        }
        for (int i = 1; i < 8; i += 2)
            core_tensor_release(x[i]);
        OK(core_memory_empty_cache(cuda));
        for (int i = 0; i < 8; i += 2) {
            ck_assert_float_eq(first_of(CALL(narrow, x[i], 0, 2000000, 100)),
                               (float)i);
            core_tensor_release(x[i]);
        }
    }
    OK(core_memory_empty_cache(cuda));
    refused = dlsym(RTLD_DEFAULT, "fake_bad_unmaps");
    ck_assert_ptr_nonnull(refused);
    ck_assert_uint_eq(atomic_load(refused), 0);
}
END_TEST

START_TEST(integrated_gpu_uses_host_memory)
{
    setenv("FAKE_CUDA_INTEGRATED", "1", 1);
    check_memory_kind(CORE_MEMORY_UNIFIED);
}
END_TEST

/* Another library of the process has made its own context current. */
START_TEST(current_context_is_preserved)
{
    int (*set)(void *), (*get)(void **);
    void *mine, *now = NULL;
    core_device *first, *second;

    setenv("GPUEMU_DEVICES", "2", 1);
    load_fake("");
    *(void **)&set = dlsym(RTLD_DEFAULT, "cuCtxSetCurrent");
    *(void **)&get = dlsym(RTLD_DEFAULT, "cuCtxGetCurrent");
    first = device_of("cuda:0");
    second = device_of("cuda:1");
    ck_assert(computes(first));
    get(&mine);
    ck_assert(computes(second));
    ck_assert_int_eq(get(&now), 0);
    ck_assert_ptr_nonnull(mine);
    ck_assert_ptr_eq(now, mine);
    set(NULL);
    ck_assert(computes(second));
    ck_assert(computes(first));
}
END_TEST

/* Lines of more than 2^32 elements are sorted by 64-bit keys.  There is not
 * enough memory for such a line: the kernels get a short one. */
static void sort_widely(gpu_sort *p, core_stream *stream)
{
    static const char *const names[] = {"sort_tiles_wide", "sort_take_wide"};
    int (*find)(void **, void *, const char *);
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned,
                  unsigned, unsigned, void *, void **, void **);
    void *native, *kernel, *given[] = {p};

    *(void **)&find = dlsym(RTLD_DEFAULT, "cuModuleGetFunction");
    *(void **)&launch = dlsym(RTLD_DEFAULT, "cuLaunchKernel");
    OK(core_stream_native(stream, &native));
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(find(&kernel, NULL, names[i]), 0);
        ck_assert_int_eq(
            launch(kernel, 1, 1, 1, 256, 1, 1, 0, native, given, NULL), 0);
    }
    OK(core_stream_synchronize(stream));
}

START_TEST(long_lines_are_sorted_by_64_bit_keys)
{
    const float from[] = {0.75f, -0.5f, NAN, 0.25f, -0.75f, 1e30f};
    const uint16_t halves[] = {0x3f40, 0xbf00, 0x7fc0, 0x3e80, 0xbf40, 0x7149};
    float to[6];
    uint16_t to_halves[6];
    int64_t where[6], wanted[] = {4, 1, 3, 0, 5, 2};
    uint64_t pairs[12];
    core_stream *stream;
    gpu_sort p = {.to = to,
                  .where = where,
                  .from = from,
                  .keys = pairs,
                  .outer = 1,
                  .size = 6,
                  .inner = 1,
                  .keep = 6,
                  .dtype = GPU_F32,
                  .what = GPU_SORTED};

    load_fake("");
    OK(core_stream_create(device_of("cuda"), &stream));
    sort_widely(&p, stream);
    ck_assert_mem_eq(where, wanted, sizeof wanted);
    p.dtype = GPU_BF16;
    p.from = halves;
    p.to = to_halves;
    sort_widely(&p, stream);
    ck_assert_mem_eq(where, wanted, sizeof wanted);
    core_stream_release(stream);
}
END_TEST

/* --------------------------------------------------------- its libraries -- */

START_TEST(library_multiplies_on_every_stream)
{
    check_products_on_each_stream(CUBLAS);
}
END_TEST

static void *multiply(void *x)
{
    core_tensor *y;

    OK(core_mm(x, x, &y));
    core_tensor_release(y);
    return NULL;
}

/* In forward, in another thread, and not afterwards; f64 is never rounded. */
START_TEST(setting_allows_the_library_to_round_to_tf32)
{
    char letters[16];
    core_device *cuda;
    pthread_t thread;
    core_tensor *x;

    load_products(CUBLAS);
    cuda = device_of("cuda");
    x = identity(cuda);
    CALL(mm, x, x);
    OK(core_setting_set("LIBCORE_ALLOW_TF32", "1"));
    CALL(mm, x, x);
    ck_assert_int_eq(pthread_create(&thread, NULL, multiply, x), 0);
    pthread_join(thread, NULL);
    {
        core_tensor *wide = CALL(eye, 10, CORE_F64, cuda);

        CALL(mm, wide, wide);
    }
    OK(core_setting_set("LIBCORE_ALLOW_TF32", NULL));
    CALL(mm, x, x);
    OK(core_device_synchronize(cuda));
    read_products(letters);
    unlink(calls);
    ck_assert_str_eq(letters, "pttpp");
}
END_TEST

START_TEST(captured_products_use_memory_of_their_graph)
{
    check_captured_products(CUBLAS);
}
END_TEST

START_TEST(captured_sum_of_products_uses_one_workspace)
{
    check_captured_sums(CUBLAS);
}
END_TEST

START_TEST(captured_convolution_uses_one_workspace)
{
    check_captured_convolutions(CUBLAS);
}
END_TEST

START_TEST(product_is_not_captured_without_workspace)
{
    check_capture_without_memory(CUBLAS);
}
END_TEST

START_TEST(capture_does_not_start_the_library)
{
    check_capture_starts_no_library(CUBLAS, "cublasCreate=1");
}
END_TEST

START_TEST(reset_destroys_handles_in_their_context)
{
    check_reset_destroys_handles(CUBLAS);
}
END_TEST

START_TEST(handles_of_adopted_streams_are_reused)
{
    check_adopted_streams_release_handles(CUBLAS);
}
END_TEST

START_TEST(handle_that_cannot_be_waited_for_is_skipped)
{
    check_handle_is_skipped(CUBLAS, "cuStreamWaitEvent=1");
}
END_TEST

START_TEST(event_outlives_its_stream)
{
    check_event_outlives_stream(CUBLAS);
}
END_TEST

START_TEST(stream_captured_by_others_is_not_touched)
{
    check_stream_captured_by_others(CUBLAS, "cuStreamBeginCapture_v2",
                                    "cuStreamEndCapture", "cuGraphDestroy");
}
END_TEST

START_TEST(captures_of_others_are_not_disturbed)
{
    check_captures_of_others(CUBLAS, "cuStreamBeginCapture_v2",
                             "cuStreamEndCapture", "cuGraphDestroy");
}
END_TEST

START_TEST(failed_wait_leaves_no_work_pending)
{
    check_failed_wait("cuStreamSynchronize=2");
}
END_TEST

START_TEST(sum_that_the_library_abandons_is_finished)
{
    check_abandoned_sum(CUBLAS, "cublasGemm@2=15");
}
END_TEST

START_TEST(plugin_multiplies_and_warns_without_a_library)
{
    check_without_library("cuBLAS");
}
END_TEST

START_TEST(library_that_does_not_start_is_not_used)
{
    check_library_does_not_start(CUBLAS, "cublasCreate=1");
}
END_TEST

START_TEST(failed_product_is_a_lost_device)
{
    check_failed_product(CUBLAS, "cublasGemm=13");
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        without_a_driver_there_is_no_device,
        driver_that_lacks_a_function_is_too_old,
        driver_of_an_older_cuda_is_too_old,
        error_35_means_driver_too_old,
        error_100_means_no_device,
        device_count_of_zero_means_no_device,
        other_start_errors_are_named,
        failure_to_open_a_device_is_reported,
        out_of_memory_fails_and_the_device_still_works,
        invalid_image_is_reported,
        image_for_other_gpus_is_reported,
        gpu_without_kernels_cannot_be_opened,
        architectures_fit_the_right_gpus,
        missing_kernel_is_named,
        illegal_address_loses_one_device,
        destroyed_context_is_a_lost_device,
        contained_error_is_a_lost_device,
        failed_launch_is_a_lost_device,
        memory_does_not_survive_a_reset,
        callbacks_compute_with_gates,
        callbacks_compute_with_host_functions,
        capture_can_be_replayed,
        error_records_of_busy_streams_are_reused,
        segments_expand,
        segments_release_parts,
        devices_copy_to_each_other,
        operands_of_two_devices_are_refused,
        discrete_gpu_has_its_own_memory,
        integrated_gpu_uses_host_memory,
        current_context_is_preserved,
        long_lines_are_sorted_by_64_bit_keys,
        library_multiplies_on_every_stream,
        setting_allows_the_library_to_round_to_tf32,
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

    return run_with_fake_driver("gpu/cuda_driver", "core_cuda.so", tests,
                                sizeof tests / sizeof *tests);
}
