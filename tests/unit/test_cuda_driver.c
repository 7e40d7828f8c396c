/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* backends/cuda behind a libcuda.so.1 that is none (tests/fixtures/gpu): what a
 * driver may answer, and what libcore says of it.  Skipped where the plugin was
 * not built. */

#define SUITE_SECONDS 60

#include "autograd.h"

#include <libcore/capture.h>
#include <libcore/device.h>
#include <libcore/memory.h>
#include <libcore/stream.h>

#include <dlfcn.h>
#include <stdatomic.h>
#include <unistd.h>

static const char *build;

static void load(const char *library)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/tests/fixtures/gpu/%s", build, library);
    ck_assert_msg(dlopen(path, RTLD_NOW | RTLD_GLOBAL) != NULL, "%s",
                  dlerror());
}

static void load_fake(const char *failures)
{
    setenv("FAKE_GPU_FAIL", failures, 1);
    load(".libs/libcuda.so.1");
}

static core_device *device_of(const char *name)
{
    core_device *device;

    OK(core_device_find(name, &device));
    return device;
}

static core_tensor *filled(core_device *device, double value)
{
    return CALL(full, (int64_t[]){100}, 1, core_float(value), CORE_F32, device);
}

static float first_of(core_tensor *tensor)
{
    float values[100];

    OK(core_tensor_read(tensor, values, sizeof values));
    return values[0];
}

static bool computes(core_device *device)
{
    core_tensor *x = filled(device, 3);

    return first_of(CALL(mul, x, x)) == 9;
}

/* ----------------------------------------------------------- no devices -- */

/* No device, and the reason has the text. */
static void there_is_none(const char *text)
{
    const char *reason = NULL;
    core_device *device;
    uint32_t count = 7;

    OK(core_device_count("cuda", &count, &reason));
    ck_assert_uint_eq(count, 0);
    ck_assert_msg(strstr(reason, text) != NULL, "\"%s\" is not in \"%s\"", text,
                  reason);
    FAILS(core_device_find("cuda", &device), CORE_ERROR_NO_DEVICE, text);
    ck_assert(computes(device_of("cpu")));
}

START_TEST(without_a_driver_there_is_no_device)
{
    void *real = dlopen("libcuda.so.1", RTLD_LAZY);

    if (real != NULL) /* a machine with a driver */
        return;
    there_is_none("no libcuda.so.1");
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

START_TEST(a_count_of_zero_is_no_device)
{
    setenv("GPUEMU_DEVICES", "0", 1);
    load_fake("");
    there_is_none("no device");
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

START_TEST(no_memory_is_told_and_the_device_goes_on)
{
    core_tensor *x, *y = NULL;
    core_device *cuda;

    setenv("GPUEMU_MEMORY", "20000000", 1);
    load_fake("");
    cuda = device_of("cuda");
    x = filled(cuda, 3);
    ck_assert_int_eq(
        core_empty((int64_t[]){100000000}, 1, CORE_F32, cuda, -1, &y),
        CORE_ERROR_OUT_OF_MEMORY);
    ck_assert_ptr_null(y);
    ck_assert_float_eq(first_of(CALL(mul, x, x)), 9);
    OK(core_device_status(cuda));
}
END_TEST

static void image_is_refused(const char *failures, const char *name)
{
    core_tensor *x, *y = NULL;
    core_device *cuda;

    load_fake(failures);
    cuda = device_of("cuda");
    x = CALL(empty, (int64_t[]){100}, 1, CORE_F32, cuda, -1);
    FAILS(core_mul(x, x, &y), CORE_ERROR_UNSUPPORTED, "loading kernels", name);
    ck_assert_ptr_null(y);
    /* What needs no kernel works. */
    OK(core_tensor_copy(
        x, CALL(ones, (int64_t[]){100}, 1, CORE_F32, device_of("cpu")), 0));
    ck_assert_float_eq(first_of(x), 1);
    OK(core_device_status(cuda));
}

START_TEST(an_invalid_image_is_told)
{
    image_is_refused("cuModuleLoadData=200", "CUDA_ERROR_INVALID_IMAGE (200)");
}
END_TEST

START_TEST(an_image_for_other_gpus_is_told)
{
    image_is_refused("cuModuleLoadData=209",
                     "CUDA_ERROR_NO_BINARY_FOR_GPU (209)");
}
END_TEST

START_TEST(a_kernel_that_is_missing_is_named)
{
    core_tensor *x, *y = NULL;

    load_fake("cuModuleGetFunction=500");
    x = CALL(empty, (int64_t[]){100}, 1, CORE_F32, device_of("cuda"), -1);
    FAILS(core_mul(x, x, &y), CORE_ERROR_NOT_FOUND, "mul");
}
END_TEST

/* ---------------------------------------------------------------- losses -- */

/* Every later call says so; other devices and the process live on. */
static void is_lost(core_device *cuda, core_tensor *x, const char *text)
{
    core_stream *stream = NULL;
    core_tensor *y = NULL;
    float values[100];

    for (int i = 0; i < 2; i++) {
        FAILS(core_device_status(cuda), CORE_ERROR_DEVICE_LOST, text);
        ck_assert_int_eq(core_mul(x, x, &y), CORE_ERROR_DEVICE_LOST);
        ck_assert_int_eq(core_tensor_read(x, values, sizeof values),
                         CORE_ERROR_DEVICE_LOST);
        ck_assert_int_eq(
            core_empty((int64_t[]){1 << 24}, 1, CORE_F32, cuda, -1, &y),
            CORE_ERROR_DEVICE_LOST);
        ck_assert_int_eq(core_stream_create(cuda, &stream),
                         CORE_ERROR_DEVICE_LOST);
        ck_assert_int_eq(core_device_synchronize(cuda), CORE_ERROR_DEVICE_LOST);
    }
    ck_assert(computes(device_of("cpu")));
    ck_assert(computes(device_of("cuda:1")));
}

/* And starts anew, where the driver can. */
static void comes_back(core_device *cuda)
{
    unsetenv("FAKE_GPU_FAIL");
    unsetenv("GPUEMU_LOSE_AFTER");
    OK(core_device_reset(cuda));
    OK(core_device_status(cuda));
    ck_assert(computes(cuda));
}

START_TEST(an_illegal_address_poisons_one_device)
{
    core_device *cuda;
    core_tensor *x, *y;

    setenv("GPUEMU_DEVICES", "2", 1);
    setenv("GPUEMU_LOSE_AFTER", "1", 1);
    load_fake("");
    cuda = device_of("cuda:0");
    x = filled(cuda, 3);
    y = CALL(mul, x, x);
    OK(core_device_synchronize(cuda));
    y = CALL(mul, y, x); /* told later: kernels run by themselves */
    FAILS(core_device_synchronize(cuda), CORE_ERROR_DEVICE_LOST,
          "CUDA_ERROR_ILLEGAL_ADDRESS (700)");
    is_lost(cuda, x, "CUDA_ERROR_ILLEGAL_ADDRESS");
    comes_back(cuda);
}
END_TEST

static void call_loses(const char *failures, const char *name)
{
    core_device *cuda;
    core_tensor *x;

    setenv("GPUEMU_DEVICES", "2", 1);
    load_fake("");
    ck_assert(computes(device_of("cuda:1")));
    cuda = device_of("cuda:0");
    x = filled(cuda, 3);
    OK(core_device_synchronize(cuda));
    setenv("FAKE_GPU_FAIL", failures, 1);
    FAILS(core_device_synchronize(cuda), CORE_ERROR_DEVICE_LOST, name);
    unsetenv("FAKE_GPU_FAIL"); /* what is lost stays so by itself */
    is_lost(cuda, x, name);
    comes_back(cuda);
}

START_TEST(a_context_that_somebody_destroyed_is_a_lost_device)
{
    call_loses("cuStreamSynchronize=709 cuStreamQuery=709 cuEventQuery=709 "
               "cuEventSynchronize=709",
               "CUDA_ERROR_CONTEXT_IS_DESTROYED (709)");
}
END_TEST

START_TEST(a_launch_that_failed_is_a_lost_device)
{
    call_loses("cuStreamSynchronize=719 cuStreamQuery=719 cuEventQuery=719 "
               "cuEventSynchronize=719",
               "CUDA_ERROR_LAUNCH_FAILED (719)");
}
END_TEST

/* ------------------------------------------------ what runs on the device -- */

static _Atomic int runs;

static void compute_on_it(void *context)
{
    ck_assert(computes(context));
    atomic_fetch_add(&runs, 1);
}

/* The stream of the callback waits: what it computes is on another. */
static void callbacks_run(void)
{
    core_device *cuda;
    core_stream *stream;

    load_fake("");
    cuda = device_of("cuda");
    OK(core_stream_create(cuda, &stream));
    for (int i = 0; i < 5; i++)
        OK(core_stream_callback(stream, compute_on_it, cuda, NULL));
    OK(core_stream_synchronize(stream));
    ck_assert_int_eq(atomic_load(&runs), 5);
    core_stream_release(stream);
}

START_TEST(callbacks_compute_behind_gates)
{
    callbacks_run();
}
END_TEST

START_TEST(callbacks_compute_behind_host_functions)
{
    setenv("FAKE_CUDA_NO_GATES", "1", 1);
    callbacks_run();
}
END_TEST

START_TEST(a_capture_is_replayed)
{
    core_device *cuda;
    core_stream *stream;
    core_graph *graph;
    core_tensor *x;

    load_fake("");
    cuda = device_of("cuda");
    OK(core_stream_create(cuda, &stream));
    OK(core_stream_set_current(stream));
    x = filled(cuda, 1);
    OK(core_capture_begin(stream, NULL));
    OK(core_mul_scalar_(x, core_float(2)));
    OK(core_capture_end(stream, &graph));
    for (int i = 0; i < 3; i++)
        OK(core_graph_launch(graph, stream));
    ck_assert_float_eq(first_of(x), 8);
    core_graph_release(graph);
    core_stream_release(stream);
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

START_TEST(two_devices_copy_to_one_another)
{
    core_device *first, *second;
    core_tensor *x, *y;

    setenv("GPUEMU_DEVICES", "2", 1);
    load_fake("");
    first = device_of("cuda:0");
    second = device_of("cuda:1");
    x = filled(first, 5);
    y = CALL(to_copy, x, CORE_F32, second, false, -1);
    ck_assert_ptr_eq(core_tensor_device(y), second);
    ck_assert_float_eq(first_of(CALL(mul, y, y)), 25);
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

/* --------------------------------------------------------- its libraries -- */

static int products(const char *path)
{
    FILE *file = fopen(path, "r");
    int count = 0;

    while (file != NULL && fgetc(file) != EOF)
        count++;
    if (file != NULL)
        fclose(file);
    return count;
}

static core_tensor *identity(core_device *device)
{
    return CALL(eye, 10, CORE_DTYPE_NONE, device);
}

START_TEST(a_product_on_each_stream_is_the_librarys)
{
    char path[] = "/tmp/cublas-calls-XXXXXX";
    core_stream *streams[3], *own;
    core_device *cuda;
    core_graph *graph;
    int file = mkstemp(path);

    close(file);
    setenv("FAKE_CUBLAS_CALLS", path, 1);
    load_fake("");
    load(".libs/libcublas.so");
    cuda = device_of("cuda");
    OK(core_stream_default(cuda, &own));
    for (int i = 0; i < 3; i++) {
        core_tensor *x;

        OK(core_stream_create(cuda, &streams[i]));
        OK(core_stream_set_current(streams[i]));
        x = identity(cuda);
        ck_assert_float_eq(first_of(CALL(mm, x, x)), 1);
        ck_assert_int_eq(products(path), i + 1);
        /* The next one has what this one leaves. */
        OK(core_stream_set_current(own));
        if (i == 0)
            core_stream_release(streams[i]);
    }
    OK(core_stream_set_current(streams[1]));
    {
        core_tensor *x = identity(cuda), *y = NULL;

        OK(core_capture_begin(streams[1], NULL));
        OK(core_mm(x, x, &y));
        OK(core_capture_end(streams[1], &graph));
        OK(core_graph_launch(graph, streams[1]));
        ck_assert_float_eq(first_of(keep(y)), 1);
        ck_assert_int_eq(products(path), 4);
        core_graph_release(graph);
    }
    core_stream_release(streams[1]);
    core_stream_release(streams[2]);
    unlink(path);
}
END_TEST

/* A library that does not start leaves products to the plugin's kernels. */
START_TEST(a_library_that_does_not_start_is_not_used)
{
    core_tensor *x;

    load_fake("cublasCreate=1");
    load(".libs/libcublas.so");
    x = identity(device_of("cuda"));
    ck_assert_float_eq(first_of(CALL(mm, x, x)), 1);
}
END_TEST

START_TEST(a_product_that_failed_is_a_lost_device)
{
    core_tensor *x, *y = NULL;

    load_fake("cublasGemm=13");
    load(".libs/libcublas.so");
    x = identity(device_of("cuda"));
    FAILS(core_mm(x, x, &y), CORE_ERROR_DEVICE_LOST, "product of matrices");
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
        a_kernel_that_is_missing_is_named,
        an_illegal_address_poisons_one_device,
        a_context_that_somebody_destroyed_is_a_lost_device,
        a_launch_that_failed_is_a_lost_device,
        callbacks_compute_behind_gates,
        callbacks_compute_behind_host_functions,
        a_capture_is_replayed,
        segments_expand,
        two_devices_copy_to_one_another,
        the_threads_context_stays_what_it_was,
        a_product_on_each_stream_is_the_librarys,
        a_library_that_does_not_start_is_not_used,
        a_product_that_failed_is_a_lost_device,
    };
    char path[4096];

    build = getenv("LIBCORE_BUILD");
    build = build != NULL ? build : ".";
    snprintf(path, sizeof path, "%s/tests/fixtures/gpu/.libs/libcuda.so.1",
             build);
    if (access(path, R_OK) == 0)
        snprintf(path, sizeof path, "%s/backends/cuda/.libs/core_cuda.so",
                 build);
    if (access(path, R_OK) != 0) {
        printf("1..0 # SKIP core_cuda.so or its fake driver is not built\n");
        return 0;
    }
    snprintf(path, sizeof path, "%s/.libs:%s/backends/cuda/.libs", build,
             build);
    setenv("LIBCORE_PLUGIN_PATH", path, 1);
    unsetenv("LIBCORE_DEVICE");
    return run_suite("cuda driver", tests, sizeof tests / sizeof *tests);
}
