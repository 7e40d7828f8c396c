/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* gpu_fake.h: what the tests of backends/cuda and backends/rocm share behind a
 * driver that is none (tests/fixtures/gpu).  Who includes it says of whom they
 * are:
 *
 *     GPU           the type of the devices
 *     GPU_DRIVER    the driver, below the build's tests/fixtures/gpu; patterns
 *                   stand for its version */

#ifndef TESTS_UNIT_GPUFAKE_H
#define TESTS_UNIT_GPUFAKE_H

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

/* A library of the fixtures. */
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

/* No device, and the reason has the text. */
static inline void there_is_none(const char *text)
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

START_TEST(a_count_of_zero_is_no_device)
{
    setenv("GPUEMU_DEVICES", "0", 1);
    load_fake("");
    there_is_none("no device");
}
END_TEST

/* ------------------------------------------------- what it recovers from -- */

START_TEST(no_memory_is_told_and_the_device_goes_on)
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

static inline void image_is_refused(const char *failures, const char *name)
{
    core_tensor *x, *y = NULL;
    core_device *gpu;

    load_fake(failures);
    gpu = device_of(GPU);
    x = CALL(empty, (int64_t[]){100}, 1, CORE_F32, gpu, -1);
    FAILS(core_mul(x, x, &y), CORE_ERROR_UNSUPPORTED, "loading kernels", name);
    ck_assert_ptr_null(y);
    /* What needs no kernel works. */
    OK(core_tensor_copy(
        x, CALL(ones, (int64_t[]){100}, 1, CORE_F32, device_of("cpu")), 0));
    ck_assert_float_eq(first_of(x), 1);
    OK(core_device_status(gpu));
}

static inline void a_kernel_is_missing(const char *failures)
{
    core_tensor *x, *y = NULL;

    load_fake(failures);
    x = CALL(empty, (int64_t[]){100}, 1, CORE_F32, device_of(GPU), -1);
    FAILS(core_mul(x, x, &y), CORE_ERROR_NOT_FOUND, "mul");
    ck_assert_ptr_null(y);
}

/* Nothing reaches the driver: each device works on. */
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

/* Every later call says so; other devices and the process live on. */
static inline void is_lost(core_device *gpu, core_tensor *x, const char *text)
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

/* And starts anew, where the driver can. */
static inline void comes_back(core_device *gpu)
{
    unsetenv("FAKE_GPU_FAIL");
    unsetenv("GPUEMU_LOSE_AFTER");
    OK(core_device_reset(gpu));
    OK(core_device_status(gpu));
    ck_assert(computes(gpu));
}

static inline void an_address_loses(const char *name, const char *code)
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
    y = CALL(mul, y, x); /* told later: kernels run by themselves */
    FAILS(core_device_synchronize(gpu), CORE_ERROR_DEVICE_LOST, name, code);
    is_lost(gpu, x, name);
    comes_back(gpu);
}

static inline void call_loses(const char *failures, const char *name)
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
    unsetenv("FAKE_GPU_FAIL"); /* what is lost stays so by itself */
    is_lost(gpu, x, name);
    comes_back(gpu);
}

/* ------------------------------------------------ what runs on the device -- */

static _Atomic int runs;

static inline void compute_on_it(void *context)
{
    ck_assert(computes(context));
    atomic_fetch_add(&runs, 1);
}

/* The stream of the callback waits: what it computes is on another. */
static inline void callbacks_run(void)
{
    core_device *gpu;
    core_stream *stream;

    load_fake("");
    gpu = device_of(GPU);
    OK(core_stream_create(gpu, &stream));
    for (int i = 0; i < 5; i++)
        OK(core_stream_callback(stream, compute_on_it, gpu, NULL));
    OK(core_stream_synchronize(stream));
    ck_assert_int_eq(atomic_load(&runs), 5);
    core_stream_release(stream);
}

START_TEST(callbacks_compute_behind_gates)
{
    callbacks_run();
}
END_TEST

/* Its memory is new, and so may be its kernels: a driver refuses to make either
 * in a thread that captures, unless it was told not to. */
START_TEST(a_capture_is_replayed)
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

START_TEST(two_devices_copy_to_one_another)
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
    /* Not through the host: each reaches the other's memory. */
    x = CALL(to_copy, y, CORE_F32, first, false, -1);
    ck_assert_float_eq(first_of(x), 5);
    staged = dlsym(RTLD_DEFAULT, "fake_staged");
    ck_assert_ptr_nonnull(staged);
    ck_assert_uint_eq(atomic_load(staged), 0);
}
END_TEST

static inline void memory_is(uint32_t wanted)
{
    uint32_t kinds = 0;

    load_fake("");
    OK(core_device_memory_kinds(device_of(GPU), &kinds));
    ck_assert_uint_eq(kinds & (CORE_MEMORY_DEVICE | CORE_MEMORY_UNIFIED),
                      wanted);
}

START_TEST(a_card_has_memory_of_its_own)
{
    memory_is(CORE_MEMORY_DEVICE);
}
END_TEST

/* --------------------------------------------------------- its libraries -- */

static temporary_path calls;

/* A library of products, each of which leaves a letter. */
static inline void load_products(const char *library)
{
    temporary_file(calls, "gpu-products");
    setenv("FAKE_GPU_PRODUCTS", calls, 1);
    load_fake("");
    load(library);
}

/* How many there were, and their letters. */
static inline int products(char letters[16])
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

static inline void a_product_on_each_stream(const char *library)
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
        ck_assert_int_eq(products(letters), i + 1);
        /* The next one has what this one leaves. */
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
    ck_assert_int_eq(products(letters), 4);
    ck_assert_str_eq(letters, "pppp");
    core_graph_release(graph);
    core_stream_release(streams[1]);
    core_stream_release(streams[2]);
    unlink(calls);
}

/* One that does not start leaves products to the plugin's kernels. */
static char warning[512];
static int nwarnings;

static inline void hear(void *context, uint32_t level, const char *component,
                        const char *text)
{
    (void)context;
    if (level <= CORE_LOG_WARNING && strcmp(component, GPU) == 0) {
        nwarnings++;
        snprintf(warning, sizeof warning, "%s", text);
    }
}

/* Products are right, and once it is told whose they are and why. */
static inline void the_plugin_multiplies(const char *why)
{
    core_tensor *x = identity(device_of(GPU));

    core_log_set_sink(hear, NULL, CORE_LOG_WARNING);
    for (int i = 0; i < 2; i++)
        ck_assert_float_eq(first_of(CALL(mm, x, x)), 1);
    core_log_set_sink(NULL, NULL, CORE_LOG_ERROR);
    ck_assert_int_eq(nwarnings, 1);
    ck_assert_msg(strstr(warning, "by the plugin's own kernels: ") != NULL &&
                      strstr(warning, why) != NULL,
                  "%s", warning);
}

static inline void a_library_does_not_start(const char *library,
                                            const char *failures)
{
    load_fake(failures);
    load(library);
    the_plugin_multiplies("does not start (status 1)");
}

/* A real one, where there is such, does not start. */
static inline void without_a_library(const char *name)
{
    load_fake("");
    the_plugin_multiplies(name);
}

/* It says that it cannot be waited for: what it still writes to the host it has
 * written when that is told, and the device goes on. */
static inline void a_wait_fails(const char *failures)
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

static inline void a_product_fails(const char *library, const char *failures)
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

/* A stream for the one of another library, which its own stands for. */
static inline core_stream *adopted(core_device *device, core_stream *own)
{
    core_stream *stream;
    void *native;

    OK(core_stream_native(own, &native));
    OK(core_stream_adopt(device, native, &stream));
    return stream;
}

/* The next stream has what an adopted one leaves, as of any other. */
static inline void adopted_streams_leave_their_handles(const char *library)
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

static inline float in_pinned(core_tensor *tensor, int64_t at)
{
    void *data;

    OK(core_tensor_data(tensor, &data));
    return ((float *)data)[at];
}

/* It is the CPU's, and copies from and to it go on; what is cached is not. */
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
    ck_assert_float_eq(in_pinned(large, LARGE - 1), 3);
    OK(core_fill_(large, core_float(4)));
    OK(core_fill_(small, core_float(5)));
    OK(core_copy_(filled(gpu, 6), small, true));
    for (int i = 0; i < 3; i++) {
        core_tensor *one = pinned_floats(gpu, i ? LARGE : SMALL);

        OK(core_fill_(one, core_float(7)));
        ck_assert_float_eq(in_pinned(one, SMALL - 1), 7);
        if (i == 0) {
            OK(core_copy_(one, filled(gpu, 8), true));
            OK(core_device_synchronize(gpu));
            ck_assert_float_eq(in_pinned(one, SMALL - 1), 8);
        }
        core_tensor_release(one);
    }
    ck_assert_float_eq(in_pinned(large, 0), 4);
    core_tensor_release(large);
    OK(core_device_reset(gpu));
    ck_assert_float_eq(in_pinned(small, 0), 5);
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

/* Streams that end while their work is under way: what is kept for their
 * errors serves later ones. */
START_TEST(error_words_of_busy_streams_serve_again)
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

/* The driver knows nothing of before: what a mistake would free then is not
 * somebody else's. */
static inline void memory_of_before_is_gone(const char *alloc,
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

/* plugin: where the build has it. */
static inline int run_behind_fake(const char *name, const char *plugin,
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
