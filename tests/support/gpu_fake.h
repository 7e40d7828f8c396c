/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* gpu_fake.h: what the tests of backends/cuda and backends/rocm on a fake
 * driver (tests/fixtures/gpu) share.  Before including it, define
 *
 *     GPU           the type of the devices
 *     GPU_DRIVER    the driver, relative to the build's tests/fixtures/gpu; a
 *                   pattern, since its version varies */

#ifndef TESTS_SUPPORT_GPUFAKE_H
#define TESTS_SUPPORT_GPUFAKE_H

#include "autograd.h"
#include "temporary_files.h"

#include <libcore/capture.h>
#include <libcore/device.h>
#include <libcore/settings.h>
#include <libcore/stream.h>

#include <dlfcn.h>
#include <glob.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static const char *build;

/* Finds a library of the fixtures. */
static inline bool find_library(const char *pattern, char *out, size_t size)
{
    char path[4096];
    glob_t found;
    bool there;

    snprintf(path, sizeof path, "%s/tests/fixtures/gpu/%s", build, pattern);
    there = glob(path, 0, NULL, &found) == 0;
    if (there) {
        snprintf(out, size, "%s", found.gl_pathv[0]);
        globfree(&found);
    }
    return there;
}

static inline void load(const char *pattern)
{
    char path[4096];

    ck_assert_msg(find_library(pattern, path, sizeof path), "no %s", pattern);
    ck_assert_msg(dlopen(path, RTLD_NOW | RTLD_GLOBAL) != NULL, "%s",
                  dlerror());
}

static inline void load_fake(const char *failures)
{
    setenv("FAKE_GPU_FAIL", failures, 1);
    load(GPU_DRIVER);
}

static inline core_device *device_of(const char *name)
{
    core_device *device;

    OK(core_device_find(name, &device));
    return device;
}

static inline core_tensor *filled(core_device *device, double value)
{
    return CALL(full, (int64_t[]){100}, 1, core_float(value), CORE_F32, device);
}

static inline float first_of(core_tensor *tensor)
{
    float values[100];

    OK(core_tensor_read(tensor, values, sizeof values));
    return values[0];
}

static inline bool computes(core_device *device)
{
    core_tensor *x = filled(device, 3);

    return first_of(CALL(mul, x, x)) == 9;
}

/* ----------------------------------------------------------- no devices -- */

/* There is no device, and the reason contains the text. */
static inline void check_no_device(const char *text)
{
    const char *reason = NULL;
    core_device *device;
    uint32_t count = 7;

    OK(core_device_count(GPU, &count, &reason));
    ck_assert_uint_eq(count, 0);
    ck_assert_msg(strstr(reason, text) != NULL, "\"%s\" is not in \"%s\"", text,
                  reason);
    FAILS(core_device_find(GPU, &device), CORE_ERROR_NO_DEVICE, text);
    ck_assert(computes(device_of("cpu")));
}

START_TEST(device_count_of_zero_means_no_device)
{
    setenv("GPUEMU_DEVICES", "0", 1);
    load_fake("");
    check_no_device("no device");
}
END_TEST

/* ------------------------------------------------- what it recovers from -- */

START_TEST(out_of_memory_fails_and_the_device_still_works)
{
    core_tensor *x, *y = NULL;
    core_device *gpu;

    setenv("GPUEMU_MEMORY", "20000000", 1);
    load_fake("");
    gpu = device_of(GPU);
    x = filled(gpu, 3);
    ck_assert_int_eq(
        core_empty((int64_t[]){100000000}, 1, CORE_F32, gpu, -1, &y),
        CORE_ERROR_OUT_OF_MEMORY);
    ck_assert_ptr_null(y);
    ck_assert_float_eq(first_of(CALL(mul, x, x)), 9);
    OK(core_device_status(gpu));
}
END_TEST

static inline void check_image_is_refused(const char *failures,
                                          const char *name)
{
    core_tensor *x, *y = NULL;
    core_device *gpu;

    load_fake(failures);
    gpu = device_of(GPU);
    x = CALL(empty, (int64_t[]){100}, 1, CORE_F32, gpu, -1);
    FAILS(core_mul(x, x, &y), CORE_ERROR_UNSUPPORTED, "loading kernels", name);
    ck_assert_ptr_null(y);
    /* Work without kernels succeeds. */
    OK(core_tensor_copy(
        x, CALL(ones, (int64_t[]){100}, 1, CORE_F32, device_of("cpu")), 0));
    ck_assert_float_eq(first_of(x), 1);
    OK(core_device_status(gpu));
}

static inline void check_missing_kernel(const char *failures)
{
    core_tensor *x, *y = NULL;

    load_fake(failures);
    x = CALL(empty, (int64_t[]){100}, 1, CORE_F32, device_of(GPU), -1);
    FAILS(core_mul(x, x, &y), CORE_ERROR_NOT_FOUND, "mul");
    ck_assert_ptr_null(y);
}

/* The call does not reach the driver: both devices still work. */
START_TEST(operands_of_two_devices_are_refused)
{
    core_tensor *x, *y, *host, *z = NULL;

    setenv("GPUEMU_DEVICES", "2", 1);
    load_fake("");
    x = filled(device_of(GPU ":0"), 3);
    y = filled(device_of(GPU ":1"), 3);
    host = filled(device_of("cpu"), 3);
    FAILS(core_mul(x, y, &z), CORE_ERROR_DEVICE, GPU ":1");
    FAILS(core_mul(x, host, &z), CORE_ERROR_DEVICE, "cpu");
    FAILS(core_mul(host, x, &z), CORE_ERROR_DEVICE, "on \"" GPU "\"");
    ck_assert_ptr_null(z);
    ck_assert_float_eq(first_of(CALL(mul, x, x)), 9);
    ck_assert_float_eq(first_of(CALL(mul, y, y)), 9);
}
END_TEST

/* ---------------------------------------------------------------- losses -- */

/* Every later call fails the same way; other devices and the process are not
 * affected. */
static inline void check_device_is_lost(core_device *gpu, core_tensor *x,
                                        const char *text)
{
    core_stream *stream = NULL;
    core_tensor *y = NULL;
    float values[100];

    for (int i = 0; i < 2; i++) {
        FAILS(core_device_status(gpu), CORE_ERROR_DEVICE_LOST, text);
        ck_assert_int_eq(core_mul(x, x, &y), CORE_ERROR_DEVICE_LOST);
        ck_assert_int_eq(core_tensor_read(x, values, sizeof values),
                         CORE_ERROR_DEVICE_LOST);
        ck_assert_int_eq(
            core_empty((int64_t[]){1 << 24}, 1, CORE_F32, gpu, -1, &y),
            CORE_ERROR_DEVICE_LOST);
        ck_assert_int_eq(core_stream_create(gpu, &stream),
                         CORE_ERROR_DEVICE_LOST);
        ck_assert_int_eq(core_device_synchronize(gpu), CORE_ERROR_DEVICE_LOST);
    }
    ck_assert(computes(device_of("cpu")));
    ck_assert(computes(device_of(GPU ":1")));
}

/* The device can be reset if the driver allows it. */
static inline void check_reset_recovers(core_device *gpu)
{
    unsetenv("FAKE_GPU_FAIL");
    unsetenv("GPUEMU_LOSE_AFTER");
    OK(core_device_reset(gpu));
    OK(core_device_status(gpu));
    ck_assert(computes(gpu));
}

static inline void check_illegal_address(const char *name, const char *code)
{
    core_device *gpu;
    core_tensor *x, *y;

    setenv("GPUEMU_DEVICES", "2", 1);
    setenv("GPUEMU_LOSE_AFTER", "1", 1);
    load_fake("");
    gpu = device_of(GPU ":0");
    x = filled(gpu, 3);
    y = CALL(mul, x, x);
    OK(core_device_synchronize(gpu));
    y = CALL(mul, y, x); /* fails later: kernels run asynchronously */
    FAILS(core_device_synchronize(gpu), CORE_ERROR_DEVICE_LOST, name, code);
    check_device_is_lost(gpu, x, name);
    check_reset_recovers(gpu);
}

static inline void check_call_loses_device(const char *failures,
                                           const char *name)
{
    core_device *gpu;
    core_tensor *x;

    setenv("GPUEMU_DEVICES", "2", 1);
    load_fake("");
    ck_assert(computes(device_of(GPU ":1")));
    gpu = device_of(GPU ":0");
    x = filled(gpu, 3);
    OK(core_device_synchronize(gpu));
    setenv("FAKE_GPU_FAIL", failures, 1);
    FAILS(core_device_synchronize(gpu), CORE_ERROR_DEVICE_LOST, name);
    unsetenv("FAKE_GPU_FAIL"); /* a lost device stays lost without it */
    check_device_is_lost(gpu, x, name);
    check_reset_recovers(gpu);
}

/* ------------------------------------------------ what runs on the device -- */

static _Atomic int runs;

static inline void compute_on_device(void *context)
{
    ck_assert(computes(context));
    atomic_fetch_add(&runs, 1);
}

/* The callback's stream is waiting: it computes on another one. */
static inline void check_callbacks_run(void)
{
    core_device *gpu;
    core_stream *stream;

    load_fake("");
    gpu = device_of(GPU);
    OK(core_stream_create(gpu, &stream));
    for (int i = 0; i < 5; i++)
        OK(core_stream_callback(stream, compute_on_device, gpu, NULL));
    OK(core_stream_synchronize(stream));
    ck_assert_int_eq(atomic_load(&runs), 5);
    core_stream_release(stream);
}

START_TEST(callbacks_compute_with_gates)
{
    check_callbacks_run();
}
END_TEST

/* It allocates and may load kernels, which a driver refuses in a capturing
 * thread unless the capture is relaxed. */
START_TEST(capture_can_be_replayed)
{
    core_device *gpu;
    core_stream *stream;
    core_graph *graph;
    core_tensor *x, *y = NULL;

    load_fake("");
    gpu = device_of(GPU);
    OK(core_stream_create(gpu, &stream));
    OK(core_stream_set_current(stream));
    x = filled(gpu, 1);
    OK(core_capture_begin(stream, NULL));
    OK(core_mul_scalar_(x, core_float(2)));
    OK(core_mul(x, x, &y));
    OK(core_capture_end(stream, &graph));
    for (int i = 0; i < 3; i++)
        OK(core_graph_launch(graph, stream));
    ck_assert_float_eq(first_of(x), 8);
    ck_assert_float_eq(first_of(keep(y)), 64);
    core_graph_release(graph);
    core_stream_release(stream);
}
END_TEST

START_TEST(devices_copy_to_each_other)
{
    const _Atomic unsigned *staged;
    core_device *first, *second;
    core_tensor *x, *y;

    setenv("GPUEMU_DEVICES", "2", 1);
    load_fake("");
    first = device_of(GPU ":0");
    second = device_of(GPU ":1");
    x = filled(first, 5);
    y = CALL(to_copy, x, CORE_F32, second, false, -1);
    ck_assert_ptr_eq(core_tensor_device(y), second);
    ck_assert_float_eq(first_of(CALL(mul, y, y)), 25);
    /* Not staged through the host: each can access the other's memory. */
    x = CALL(to_copy, y, CORE_F32, first, false, -1);
    ck_assert_float_eq(first_of(x), 5);
    staged = dlsym(RTLD_DEFAULT, "fake_staged");
    ck_assert_ptr_nonnull(staged);
    ck_assert_uint_eq(atomic_load(staged), 0);
}
END_TEST

static inline void check_memory_kind(uint32_t wanted)
{
    uint32_t kinds = 0;

    load_fake("");
    OK(core_device_memory_kinds(device_of(GPU), &kinds));
    ck_assert_uint_eq(kinds & (CORE_MEMORY_DEVICE | CORE_MEMORY_UNIFIED),
                      wanted);
}

START_TEST(discrete_gpu_has_its_own_memory)
{
    check_memory_kind(CORE_MEMORY_DEVICE);
}
END_TEST

/* --------------------------------------------------------- its libraries -- */

static temporary_path calls;

/* Loads a fake BLAS library, whose products each log a letter. */
static inline void load_products(const char *library)
{
    temporary_file(calls, "gpu-products");
    setenv("FAKE_GPU_PRODUCTS", calls, 1);
    load_fake("");
    load(library);
}

/* Returns the number of products, and their letters. */
static inline int read_products(char letters[16])
{
    FILE *file = fopen(calls, "r");
    size_t count;

    ck_assert_ptr_nonnull(file);
    count = fread(letters, 1, 15, file);
    letters[count] = 0;
    fclose(file);
    return (int)count;
}

static inline core_tensor *identity(core_device *device)
{
    return CALL(eye, 10, CORE_DTYPE_NONE, device);
}

static inline void check_products_on_each_stream(const char *library)
{
    core_stream *streams[3], *own;
    core_tensor *x, *y = NULL;
    core_device *gpu;
    core_graph *graph;
    char letters[16];

    load_products(library);
    gpu = device_of(GPU);
    OK(core_stream_default(gpu, &own));
    for (int i = 0; i < 3; i++) {
        OK(core_stream_create(gpu, &streams[i]));
        OK(core_stream_set_current(streams[i]));
        x = identity(gpu);
        ck_assert_float_eq(first_of(CALL(mm, x, x)), 1);
        ck_assert_int_eq(read_products(letters), i + 1);
        /* The next stream gets the handle that this one releases. */
        OK(core_stream_set_current(own));
        if (i == 0)
            core_stream_release(streams[i]);
    }
    OK(core_stream_set_current(streams[1]));
    x = identity(gpu);
    OK(core_capture_begin(streams[1], NULL));
    OK(core_mm(x, x, &y));
    OK(core_capture_end(streams[1], &graph));
    OK(core_graph_launch(graph, streams[1]));
    ck_assert_float_eq(first_of(keep(y)), 1);
    ck_assert_int_eq(read_products(letters), 4);
    ck_assert_str_eq(letters, "pppp");
    core_graph_release(graph);
    core_stream_release(streams[1]);
    core_stream_release(streams[2]);
    unlink(calls);
}

/* If the library does not start, the plugin's kernels multiply. */
static char warning[512];
static int nwarnings;

static inline void record_warning(void *context, uint32_t level,
                                  const char *component, const char *text)
{
    (void)context;
    if (level <= CORE_LOG_WARNING && strcmp(component, GPU) == 0) {
        nwarnings++;
        snprintf(warning, sizeof warning, "%s", text);
    }
}

/* Products are right, and one warning says who computes them and why. */
static inline void check_plugin_multiplies(const char *why)
{
    core_tensor *x = identity(device_of(GPU));

    core_log_set_sink(record_warning, NULL, CORE_LOG_WARNING);
    for (int i = 0; i < 2; i++)
        ck_assert_float_eq(first_of(CALL(mm, x, x)), 1);
    core_log_set_sink(NULL, NULL, CORE_LOG_ERROR);
    ck_assert_int_eq(nwarnings, 1);
    ck_assert_msg(strstr(warning, "by the plugin's own kernels: ") != NULL &&
                      strstr(warning, why) != NULL,
                  "%s", warning);
}

static inline void check_library_does_not_start(const char *library,
                                                const char *failures)
{
    load_fake(failures);
    load(library);
    check_plugin_multiplies("does not start (status 1)");
}

/* A real library, if there is one, does not start. */
static inline void check_without_library(const char *name)
{
    load_fake("");
    check_plugin_multiplies(name);
}

/* The driver reports that a wait failed: when libcore reports that, all writes
 * to host memory are done, and the device still works. */
static inline void check_failed_wait(const char *failures)
{
    float values[100] = {0};
    core_tensor *x, *y;
    core_device *gpu;

    load_fake("");
    gpu = device_of(GPU);
    x = CALL(full, ((int64_t[]){200, 200}), 2, core_float(1), CORE_F32, gpu);
    setenv("FAKE_GPU_FAIL", failures, 1);
    y = filled(gpu, 5);
    for (int i = 0; i < 3; i++)
        CALL(mm, x, x);
    FAILS(core_tensor_read(y, values, sizeof values), CORE_ERROR_OUT_OF_MEMORY,
          "work on the stream");
    for (int i = 0; i < 100; i++)
        ck_assert_float_eq(values[i], 5);
    setenv("FAKE_GPU_FAIL", "", 1);
    ck_assert(computes(gpu));
}

static inline void check_failed_product(const char *library,
                                        const char *failures)
{
    core_tensor *x, *y = NULL;

    load_fake(failures);
    load(library);
    x = identity(device_of(GPU));
    FAILS(core_mm(x, x, &y), CORE_ERROR_DEVICE_LOST, "product of matrices");
}

static inline unsigned fake_count(const char *name)
{
    const _Atomic unsigned *count = dlsym(RTLD_DEFAULT, name);

    ck_assert_ptr_nonnull(count);
    return atomic_load(count);
}

/* A libcore stream that adopts another library's, for which its own one stands
 * in. */
static inline core_stream *adopted(core_device *device, core_stream *own)
{
    core_stream *stream;
    void *native;

    OK(core_stream_native(own, &native));
    OK(core_stream_adopt(device, native, &stream));
    return stream;
}

/* The next stream gets the handle that an adopted stream releases, like that of
 * any other. */
static inline void check_adopted_streams_release_handles(const char *library)
{
    core_stream *streams[5], *stream, *own;
    core_device *gpu;

    load_products(library);
    gpu = device_of(GPU);
    OK(core_stream_default(gpu, &own));
    for (int i = 0; i < 5; i++) {
        OK(core_stream_create(gpu, &streams[i]));
        stream = adopted(gpu, streams[i]);
        OK(core_stream_set_current(stream));
        core_tensor *x = identity(gpu);
        ck_assert_float_eq(first_of(CALL(mm, x, x)), 1);
        OK(core_stream_set_current(own));
        core_stream_release(stream);
    }
    ck_assert_uint_eq(fake_count("fake_handles"), 1);
    for (int i = 0; i < 5; i++)
        core_stream_release(streams[i]);
    unlink(calls);
}

static inline core_tensor *pinned_floats(core_device *device, int64_t size)
{
    core_tensor *tensor;

    OK(core_tensor_pinned(device, CORE_F32, &size, 1, &tensor));
    return tensor;
}

static inline float copy_in_pinned(core_tensor *tensor, int64_t at)
{
    void *data;

    OK(core_tensor_data(tensor, &data));
    return ((float *)data)[at];
}

/* It belongs to the CPU, and copies from and to it continue to work; cached
 * memory is dropped. */
START_TEST(pinned_memory_outlives_a_reset)
{
    enum { SMALL = 100, LARGE = 100000 };
    core_tensor *small, *large;
    core_device *gpu;

    load_fake("");
    gpu = device_of(GPU);
    small = pinned_floats(gpu, SMALL);
    large = pinned_floats(gpu, LARGE);
    core_tensor_release(pinned_floats(gpu, LARGE));
    core_tensor_release(pinned_floats(gpu, SMALL));
    OK(core_fill_(large, core_float(3)));
    OK(core_device_reset(gpu));
    ck_assert_float_eq(copy_in_pinned(large, LARGE - 1), 3);
    OK(core_fill_(large, core_float(4)));
    OK(core_fill_(small, core_float(5)));
    OK(core_copy_(filled(gpu, 6), small, true));
    for (int i = 0; i < 3; i++) {
        core_tensor *one = pinned_floats(gpu, i ? LARGE : SMALL);

        OK(core_fill_(one, core_float(7)));
        ck_assert_float_eq(copy_in_pinned(one, SMALL - 1), 7);
        if (i == 0) {
            OK(core_copy_(one, filled(gpu, 8), true));
            OK(core_device_synchronize(gpu));
            ck_assert_float_eq(copy_in_pinned(one, SMALL - 1), 8);
        }
        core_tensor_release(one);
    }
    ck_assert_float_eq(copy_in_pinned(large, 0), 4);
    core_tensor_release(large);
    OK(core_device_reset(gpu));
    ck_assert_float_eq(copy_in_pinned(small, 0), 5);
    core_tensor_release(small);
}
END_TEST

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static inline void wait_at_gate(void *context)
{
    (void)context;
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
}

/* Streams end while their work is pending: their error records are reused by
 * later streams. */
START_TEST(error_records_of_busy_streams_are_reused)
{
    core_device *gpu;
    core_stream *own;
    unsigned few = 0;

    load_fake("");
    gpu = device_of(GPU);
    OK(core_stream_create(gpu, &own));
    for (int i = 0; i < 1000; i++) {
        pthread_mutex_lock(&gate);
        OK(core_stream_callback(own, wait_at_gate, NULL, NULL));
        core_stream_release(adopted(gpu, own));
        pthread_mutex_unlock(&gate);
        OK(core_stream_synchronize(own));
        if (i == 0)
            few = fake_count("fake_pinned");
    }
    ck_assert_uint_eq(fake_count("fake_pinned"), few);
    core_stream_release(own);
}
END_TEST

static inline void *driver_function(const char *name)
{
    void *function = dlsym(RTLD_DEFAULT, name);

    ck_assert_msg(function != NULL, "no %s", name);
    return function;
}

/* After a reset the driver does not know the old memory: freeing it by mistake
 * would not free somebody else's. */
static inline void check_memory_is_gone_after_reset(const char *alloc,
                                                    const char *free_it)
{
    int (*allocate)(void **, size_t), (*give_back)(void *);
    void *before = NULL, *after = NULL;
    core_device *gpu;

    load_fake("");
    gpu = device_of(GPU);
    ck_assert(computes(gpu));
    *(void **)&allocate = driver_function(alloc);
    *(void **)&give_back = driver_function(free_it);
    ck_assert_int_eq(allocate(&before, 100), 0);
    OK(core_device_reset(gpu));
    ck_assert_int_ne(give_back(before), 0);
    ck_assert(computes(gpu));
    ck_assert_int_eq(allocate(&after, 100), 0);
    ck_assert_int_eq(give_back(after), 0);
    ck_assert_int_ne(give_back(after), 0);
}

/* plugin: a file of the build. */
static inline int run_with_fake_driver(const char *name, const char *plugin,
                                       const TTest *const *tests, size_t count)
{
    char path[4096], driver[4096];

    build = getenv("LIBCORE_BUILD");
    build = build != NULL ? build : ".";
    snprintf(path, sizeof path, "%s/backends/" GPU "/.libs/%s", build, plugin);
    if (access(path, R_OK) != 0 ||
        !find_library(GPU_DRIVER, driver, sizeof driver))
        return suite_skip_all("%s or its fake driver is not built", plugin);
    snprintf(path, sizeof path, "%s/.libs:%s/backends/" GPU "/.libs", build,
             build);
    setenv("LIBCORE_PLUGIN_PATH", path, 1);
    unsetenv("LIBCORE_DEVICE");
    return run_suite(name, tests, count);
}

#endif
