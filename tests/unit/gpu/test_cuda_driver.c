/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* backends/cuda behind a libcuda.so.1 that is none (tests/fixtures/gpu): what a
 * driver may answer, and what libcore says of it.  Skipped where the plugin was
 * not built. */

#define SUITE_SECONDS 60
#define GPU "cuda"
#define GPU_DRIVER ".libs/libcuda.so.1"
#define CUBLAS ".libs/libcublas.so"

#include "support/gpu_products.h"

#include <cuda/images.h>

#include <sys/wait.h>

#include <gpu/shared_line.h>
#include <libcore/memory.h>
#include <libcore/settings.h>

#include <math.h>
#include <pthread.h>

/* A real one, where there is such, leaks when it finds no driver. */
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
    there_is_none("no NVIDIA driver here: libcuda.so.1: ");
}
END_TEST

START_TEST(a_driver_without_some_function_is_too_old)
{
    load("old/.libs/libcuda.so.1");
    there_is_none("too old");
}
END_TEST

START_TEST(a_driver_of_an_older_cuda_is_too_old)
{
    setenv("FAKE_CUDA_VERSION", "11040", 1);
    load_fake("");
    there_is_none("the driver knows CUDA 11.4");
}
END_TEST

START_TEST(error_35_is_a_driver_that_is_too_old)
{
    load_fake("cuInit=35");
    there_is_none("too old");
}
END_TEST

START_TEST(error_100_is_no_device)
{
    load_fake("cuInit=100");
    there_is_none("no device (error 100)");
}
END_TEST

START_TEST(another_error_of_the_start_has_its_name)
{
    load_fake("cuInit=34");
    there_is_none("CUDA_ERROR_STUB_LIBRARY (error 34)");
}
END_TEST

START_TEST(a_device_that_cannot_be_opened_is_told)
{
    core_device *device;

    load_fake("cuDevicePrimaryCtxRetain=2");
    FAILS(core_device_find("cuda", &device), CORE_ERROR_OUT_OF_MEMORY,
          "CUDA_ERROR_OUT_OF_MEMORY (2)");
    ck_assert(computes(device_of("cpu")));
}
END_TEST

/* ------------------------------------------------- what it recovers from -- */

START_TEST(an_invalid_image_is_told)
{
    image_is_refused("cuModuleLoadData=200", "CUDA_ERROR_INVALID_IMAGE (200)");
}
END_TEST

START_TEST(an_image_for_other_gpus_is_told)
{
    image_is_refused("cuModuleLoadData=209",
                     "CUDA_ERROR_NO_BINARY_FOR_GPU, the kernels here are for");
}
END_TEST

static void gpu_is(const char *capability)
{
    core_device *device;
    pid_t child = fork();
    int status;

    if (child == 0) {
        setenv("FAKE_CUDA_ARCH", capability, 1);
        load_fake("");
        FAILS(core_device_find("cuda", &device), CORE_ERROR_UNSUPPORTED,
              "kernels here are for sm_");
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(status == 0, "of %s: %d", capability, status);
}

/* Older than any that CUDA compiles for. */
START_TEST(a_gpu_without_kernels_is_no_device)
{
    gpu_is("50");
    gpu_is("70");
}
END_TEST

/* Of the same major number, by PTX of the last, for itself, for its kin. */
START_TEST(kernels_fit_gpus)
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
}
END_TEST

START_TEST(a_kernel_that_is_missing_is_named)
{
    a_kernel_is_missing("cuModuleGetFunction=500");
}
END_TEST

/* ---------------------------------------------------------------- losses -- */

START_TEST(an_illegal_address_poisons_one_device)
{
    an_address_loses("CUDA_ERROR_ILLEGAL_ADDRESS", "(700)");
}
END_TEST

START_TEST(a_context_that_somebody_destroyed_is_a_lost_device)
{
    call_loses("cuStreamSynchronize=709 cuStreamQuery=709 cuEventQuery=709 "
               "cuEventSynchronize=709",
               "CUDA_ERROR_CONTEXT_IS_DESTROYED (709)");
}
END_TEST

/* An error of a peer's memory, which drivers know since CUDA 12.8. */
START_TEST(an_error_that_was_contained_is_a_lost_device)
{
    call_loses("cuStreamSynchronize=226 cuStreamQuery=226 cuEventQuery=226 "
               "cuEventSynchronize=226",
               "(226)");
}
END_TEST

START_TEST(a_launch_that_failed_is_a_lost_device)
{
    call_loses("cuStreamSynchronize=719 cuStreamQuery=719 cuEventQuery=719 "
               "cuEventSynchronize=719",
               "CUDA_ERROR_LAUNCH_FAILED (719)");
}
END_TEST

START_TEST(memory_of_before_a_reset_is_gone)
{
    memory_of_before_is_gone("cuMemAlloc_v2", "cuMemFree_v2");
}
END_TEST

/* ------------------------------------------------ what runs on the device -- */

START_TEST(callbacks_compute_behind_host_functions)
{
    setenv("FAKE_CUDA_NO_GATES", "1", 1);
    callbacks_run();
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

/* A driver unmaps no part of a mapping. */
START_TEST(segments_give_parts_back)
{
    const _Atomic unsigned *refused;
    core_tensor *x[8];
    core_device *cuda;

    load_fake("");
    OK(core_memory_configure(NULL, "expandable_segments:true"));
    cuda = device_of("cuda");
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 8; i++) /* 8 MB each, of mappings that are larger */
            OK(core_full((int64_t[]){2 << 20}, 1, core_float(i), CORE_F32, cuda,
                         &x[i]));
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

START_TEST(an_integrated_gpu_has_the_hosts_memory)
{
    setenv("FAKE_CUDA_INTEGRATED", "1", 1);
    memory_is(CORE_MEMORY_UNIFIED);
}
END_TEST

/* Another library of the process has a context of its own current. */
START_TEST(the_threads_context_stays_what_it_was)
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

/* Lines of more than 2^32 elements are sorted by keys of 64 bits, whatever is
 * sorted.  There is no memory for such: the kernels are given a short one. */
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

START_TEST(floats_are_sorted_by_wide_keys)
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

START_TEST(a_product_on_each_stream_is_the_librarys)
{
    a_product_on_each_stream(CUBLAS);
}
END_TEST

static void *multiply(void *x)
{
    core_tensor *y;

    OK(core_mm(x, x, &y));
    core_tensor_release(y);
    return NULL;
}

/* In forward, in another thread, and not any more; f64 never is. */
START_TEST(the_setting_lets_the_library_round_to_tf32)
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
    products(letters);
    unlink(calls);
    ck_assert_str_eq(letters, "pttpp");
}
END_TEST

START_TEST(captured_products_work_in_memory_of_their_graph)
{
    captured_products_work_in_their_graphs(CUBLAS);
}
END_TEST

START_TEST(a_captured_sum_of_products_works_in_one_workspace)
{
    captured_sums_work_in_one_workspace(CUBLAS);
}
END_TEST

START_TEST(a_captured_convolution_works_in_one_workspace)
{
    captured_convolutions_work_in_one(CUBLAS);
}
END_TEST

START_TEST(without_memory_for_it_no_product_is_captured)
{
    without_memory_no_product_is_captured(CUBLAS);
}
END_TEST

START_TEST(a_capture_does_not_start_the_library)
{
    a_capture_starts_no_library(CUBLAS, "cublasCreate=1");
}
END_TEST

START_TEST(a_reset_destroys_the_librarys_handles_there)
{
    a_reset_destroys_handles_there(CUBLAS);
}
END_TEST

START_TEST(adopted_streams_leave_the_librarys_handles)
{
    adopted_streams_leave_their_handles(CUBLAS);
}
END_TEST

START_TEST(a_handle_that_cannot_be_waited_for_is_passed_over)
{
    such_a_handle_is_passed_over(CUBLAS, "cuStreamWaitEvent=1");
}
END_TEST

START_TEST(an_event_outlives_the_stream_that_it_was_recorded_on)
{
    an_event_outlives_its_stream(CUBLAS);
}
END_TEST

START_TEST(a_stream_that_captures_for_others_is_left_alone)
{
    captures_for_others(CUBLAS, "cuStreamBeginCapture_v2", "cuStreamEndCapture",
                        "cuGraphDestroy");
}
END_TEST

START_TEST(what_others_capture_is_not_disturbed)
{
    captures_beside_others(CUBLAS, "cuStreamBeginCapture_v2",
                           "cuStreamEndCapture", "cuGraphDestroy");
}
END_TEST

START_TEST(a_wait_that_fails_leaves_nothing_under_way)
{
    a_wait_fails("cuStreamSynchronize=2");
}
END_TEST

START_TEST(a_sum_that_the_library_leaves_is_finished)
{
    a_sum_that_a_library_leaves(CUBLAS, "cublasGemm@2=15");
}
END_TEST

START_TEST(without_a_library_the_plugin_multiplies_and_says_so)
{
    without_a_library("cuBLAS");
}
END_TEST

START_TEST(a_library_that_does_not_start_is_not_used)
{
    a_library_does_not_start(CUBLAS, "cublasCreate=1");
}
END_TEST

START_TEST(a_product_that_failed_is_a_lost_device)
{
    a_product_fails(CUBLAS, "cublasGemm=13");
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        without_a_driver_there_is_no_device,
        a_driver_without_some_function_is_too_old,
        a_driver_of_an_older_cuda_is_too_old,
        error_35_is_a_driver_that_is_too_old,
        error_100_is_no_device,
        a_count_of_zero_is_no_device,
        another_error_of_the_start_has_its_name,
        a_device_that_cannot_be_opened_is_told,
        no_memory_is_told_and_the_device_goes_on,
        an_invalid_image_is_told,
        an_image_for_other_gpus_is_told,
        a_gpu_without_kernels_is_no_device,
        kernels_fit_gpus,
        a_kernel_that_is_missing_is_named,
        an_illegal_address_poisons_one_device,
        a_context_that_somebody_destroyed_is_a_lost_device,
        an_error_that_was_contained_is_a_lost_device,
        a_launch_that_failed_is_a_lost_device,
        memory_of_before_a_reset_is_gone,
        callbacks_compute_behind_gates,
        callbacks_compute_behind_host_functions,
        a_capture_is_replayed,
        error_words_of_busy_streams_serve_again,
        segments_expand,
        segments_give_parts_back,
        two_devices_copy_to_one_another,
        operands_of_two_devices_are_refused,
        a_card_has_memory_of_its_own,
        an_integrated_gpu_has_the_hosts_memory,
        the_threads_context_stays_what_it_was,
        floats_are_sorted_by_wide_keys,
        a_product_on_each_stream_is_the_librarys,
        the_setting_lets_the_library_round_to_tf32,
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

    return run_behind_fake("cuda driver", "core_cuda.so", tests,
                           sizeof tests / sizeof *tests);
}
