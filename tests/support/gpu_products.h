/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* gpu_products.h: matrix products by a vendor's fake library
 * (tests/fixtures/gpu), inside and outside captures.  Needs the definitions of
 * gpu_fake.h. */

#ifndef TESTS_SUPPORT_GPUPRODUCTS_H
#define TESTS_SUPPORT_GPUPRODUCTS_H

#include "gpu_fake.h"

#include "tensor/tensor.h"

enum { PRODUCT_WORKSPACE = 32 << 20 };

/* The workspace of the latest product. */
static inline char *workspace(void)
{
    void *_Atomic *newest = dlsym(RTLD_DEFAULT, "fake_workspace");

    ck_assert_ptr_nonnull(newest);
    return atomic_load(newest);
}

static inline char *address_of(core_tensor *tensor)
{
    core_memory memory = core__tensor_memory(tensor);

    return (char *)memory.handle + memory.offset;
}

static inline core_graph *captured_product(core_stream *stream, core_tensor *x,
                                           core_tensor **out)
{
    core_graph *graph;

    OK(core_capture_begin(stream, NULL));
    OK(core_mm(x, x, out));
    keep(*out);
    OK(core_capture_end(stream, &graph));
    return graph;
}

/* As long as the graph exists, no other allocation gets the library's
 * workspace. */
static inline void check_workspace_belongs_to_graph(const char *works_in,
                                                    core_device *gpu)
{
    for (int i = 0; i < 3; i++) {
        core_tensor *other = CALL(empty, (int64_t[]){PRODUCT_WORKSPACE / 4}, 1,
                                  CORE_F32, gpu, -1);
        const char *at = address_of(other);

        ck_assert(at + PRODUCT_WORKSPACE <= works_in ||
                  at >= works_in + PRODUCT_WORKSPACE);
    }
}

static inline void check_captured_products(const char *library)
{
    core_stream *stream, *others[2], *own;
    core_tensor *x, *y[3];
    char *home, *first, *second, letters[16];
    core_graph *graphs[2];
    core_device *gpu;

    load_products(library);
    gpu = device_of(GPU);
    OK(core_stream_default(gpu, &own));
    OK(core_stream_create(gpu, &stream));
    OK(core_stream_set_current(stream));
    x = identity(gpu);
    CALL(mm, x, x);
    home = workspace();
    graphs[0] = captured_product(stream, x, &y[0]);
    first = workspace();
    graphs[1] = captured_product(stream, x, &y[1]);
    second = workspace();
    ck_assert_ptr_ne(first, home);
    ck_assert_ptr_ne(second, home);
    ck_assert(first + PRODUCT_WORKSPACE <= second ||
              second + PRODUCT_WORKSPACE <= first);
    check_workspace_belongs_to_graph(first, gpu);
    check_workspace_belongs_to_graph(second, gpu);
    OK(core_stream_synchronize(stream)); /* x, which other streams read */
    for (int i = 0; i < 2; i++) {
        OK(core_stream_create(gpu, &others[i]));
        OK(core_graph_launch(graphs[i], others[i]));
    }
    /* Products that are not captured use the stream's workspace again. */
    y[2] = CALL(mm, x, x);
    ck_assert_ptr_eq(workspace(), home);
    for (int i = 0; i < 2; i++)
        OK(core_stream_synchronize(others[i]));
    for (int i = 0; i < 3; i++)
        ck_assert_float_eq(first_of(y[i]), 1);
    read_products(letters);
    ck_assert_str_eq(letters, "pppp"); /* the library computed all of them */
    OK(core_stream_set_current(own));
    for (int i = 0; i < 2; i++) {
        core_graph_release(graphs[i]);
        core_stream_release(others[i]);
    }
    core_stream_release(stream);
    unlink(calls);
}

/* The library computes the first of three products and refuses the others: the
 * plugin's kernel continues from there. */
static inline void check_abandoned_sum(const char *library,
                                       const char *failures)
{
    core_tensor *x, *self;
    core_device *gpu;

    load_fake(failures);
    load(library);
    gpu = device_of(GPU);
    x = CALL(ones, ((int64_t[]){3, 10, 10}), 3, CORE_F32, gpu);
    self = CALL(ones, ((int64_t[]){10, 10}), 2, CORE_F32, gpu);
    ck_assert_float_eq(
        first_of(CALL(addbmm, self, x, x, core_float(2), core_float(3))), 92);
}

/* A batch is one product; a sum of several uses one workspace. */
static inline void check_captured_sums(const char *library)
{
    core_stream *stream, *own;
    core_tensor *x, *self, *y;
    core_graph *graph;
    core_device *gpu;
    char letters[16];

    load_products(library);
    gpu = device_of(GPU);
    OK(core_stream_default(gpu, &own));
    OK(core_stream_create(gpu, &stream));
    OK(core_stream_set_current(stream));
    x = CALL(ones, ((int64_t[]){3, 10, 10}), 3, CORE_F32, gpu);
    self = CALL(ones, ((int64_t[]){10, 10}), 2, CORE_F32, gpu);
    OK(core_capture_begin(stream, NULL));
    OK(core_addbmm(self, x, x, core_float(2), core_float(1), &y));
    keep(y);
    OK(core_capture_end(stream, &graph));
    OK(core_graph_launch(graph, stream));
    ck_assert_float_eq(first_of(y), 32);
    read_products(letters);
    ck_assert_str_eq(letters, "ppp");
    OK(core_stream_set_current(own));
    core_graph_release(graph);
    core_stream_release(stream);
    unlink(calls);
}

/* By columns and products: one per group and chunk of images. */
static inline void check_captured_convolutions(const char *library)
{
    const int64_t one[] = {1, 1}, none[] = {0, 0};
    core_stream *stream, *own;
    core_tensor *x, *w, *y;
    core_graph *graph;
    core_device *gpu;
    char letters[16];

    setenv("GPUEMU_MEMORY", "150000000", 1);
    setenv("LIBCORE_CUDA_CUDNN", "0", 1);
    load_products(library);
    gpu = device_of(GPU);
    OK(core_stream_default(gpu, &own));
    OK(core_stream_create(gpu, &stream));
    OK(core_stream_set_current(stream));
    x = CALL(ones, ((int64_t[]){1, 16, 6, 6}), 4, CORE_F32, gpu);
    w = CALL(ones, ((int64_t[]){16, 2, 3, 3}), 4, CORE_F32, gpu);
    OK(core_capture_begin(stream, NULL));
    OK(core_convolution(x, w, NULL, one, 2, none, 2, one, 2, false, none, 2, 8,
                        &y));
    keep(y);
    OK(core_capture_end(stream, &graph));
    ck_assert_int_eq(read_products(letters), 8);
    OK(core_graph_launch(graph, stream));
    y = CALL(reshape, y, (int64_t[]){256}, 1);
    ck_assert_float_eq(first_of(CALL(narrow, y, 0, 0, 100)), 18);
    OK(core_stream_set_current(own));
    core_graph_release(graph);
    core_stream_release(stream);
    unlink(calls);
}

/* The stream's handle takes all the memory; the capture still succeeds without
 * the library. */
static inline void check_capture_without_memory(const char *library)
{
    core_stream *stream, *own;
    core_tensor *x, *y = NULL, *sum;
    core_graph *graph;
    core_device *gpu;
    char letters[16];

    setenv("GPUEMU_MEMORY", "60000000", 1);
    load_products(library);
    gpu = device_of(GPU);
    OK(core_stream_default(gpu, &own));
    OK(core_stream_create(gpu, &stream));
    OK(core_stream_set_current(stream));
    x = identity(gpu);
    CALL(mm, x, x);
    OK(core_capture_begin(stream, NULL));
    FAILS(core_mm(x, x, &y), CORE_ERROR_OUT_OF_MEMORY, "");
    ck_assert_ptr_null(y);
    OK(core_add(x, x, core_float(1), &sum));
    keep(sum);
    OK(core_capture_end(stream, &graph));
    OK(core_graph_launch(graph, stream));
    ck_assert_float_eq(first_of(sum), 2);
    ck_assert_int_eq(read_products(letters), 1);
    /* The stream's own handle still works. */
    ck_assert_float_eq(first_of(CALL(mm, x, x)), 1);
    ck_assert_int_eq(read_products(letters), 2);
    OK(core_stream_set_current(own));
    core_graph_release(graph);
    core_stream_release(stream);
    unlink(calls);
}

/* A library that did not start before the capture is not started in it. */
static inline void check_capture_starts_no_library(const char *library,
                                                   const char *failures)
{
    core_stream *stream, *own;
    core_tensor *x, *y;
    core_graph *graph;
    core_device *gpu;
    char letters[16];

    load_products(library);
    setenv("FAKE_GPU_FAIL", failures, 1);
    gpu = device_of(GPU);
    OK(core_stream_default(gpu, &own));
    OK(core_stream_create(gpu, &stream));
    OK(core_stream_set_current(stream));
    x = identity(gpu);
    OK(core_capture_begin(stream, NULL));
    unsetenv("FAKE_GPU_FAIL");
    OK(core_mm(x, x, &y));
    keep(y);
    OK(core_capture_end(stream, &graph));
    ck_assert_uint_eq(fake_count("fake_handles"), 0);
    OK(core_graph_launch(graph, stream));
    ck_assert_float_eq(first_of(y), 1);
    CALL(mm, x, x);
    ck_assert_uint_eq(fake_count("fake_handles"), 1);
    ck_assert_int_eq(read_products(letters), 1);
    OK(core_stream_set_current(own));
    core_graph_release(graph);
    core_stream_release(stream);
    unlink(calls);
}

/* The thread's current device is another one. */
static inline void check_reset_destroys_handles(const char *library)
{
    core_device *first, *second;
    core_tensor *x;

    setenv("GPUEMU_DEVICES", "2", 1);
    load_fake("");
    load(library);
    first = device_of(GPU ":0");
    ck_assert(computes(first));
    second = device_of(GPU ":1");
    x = identity(second);
    ck_assert_float_eq(first_of(CALL(mm, x, x)), 1);
    ck_assert_uint_eq(fake_count("fake_handles"), 1);
    OK(core_device_reset(second));
    ck_assert_uint_eq(fake_count("fake_misplaced"), 0);
    x = identity(second);
    ck_assert_float_eq(first_of(CALL(mm, x, x)), 1);
    ck_assert_uint_eq(fake_count("fake_handles"), 2);
}

/* A handle that cannot be waited for is kept for a later stream. */
static inline void check_handle_is_skipped(const char *library,
                                           const char *failures)
{
    core_stream *streams[3], *own;
    core_tensor *x;
    core_device *gpu;
    char letters[16];

    load_products(library);
    gpu = device_of(GPU);
    OK(core_stream_default(gpu, &own));
    for (int i = 0; i < 3; i++) {
        OK(core_stream_create(gpu, &streams[i]));
        OK(core_stream_set_current(streams[i]));
        x = identity(gpu);
        setenv("FAKE_GPU_FAIL", i == 1 ? failures : "", 1);
        CALL(mm, x, x);
        setenv("FAKE_GPU_FAIL", "", 1);
        OK(core_stream_synchronize(streams[i]));
        OK(core_stream_set_current(own));
        if (i == 0)
            core_stream_release(streams[i]);
        ck_assert_uint_eq(fake_count("fake_handles"), i == 0 ? 1 : 2);
    }
    ck_assert_int_eq(read_products(letters), 3);
    core_stream_release(streams[1]);
    core_stream_release(streams[2]);
    unlink(calls);
}

/* The driver's objects of a stream are released with its last reference, not
 * with an event that was recorded on it: by then the library that owns the
 * stream may have destroyed it. */
static inline void check_event_outlives_stream(const char *library)
{
    core_stream *foreign, *stream, *own;
    core_event *event;
    core_tensor *x, *y, *out;
    core_device *gpu;
    char letters[16];

    load_products(library);
    gpu = device_of(GPU);
    OK(core_stream_default(gpu, &own));
    x = identity(gpu);
    out = identity(gpu);
    OK(core_device_synchronize(gpu));
    OK(core_event_create(gpu, 0, &event));
    OK(core_stream_create(gpu, &foreign));
    stream = adopted(gpu, foreign);
    OK(core_stream_set_current(stream));
    OK(core_mm_out(x, x, out));
    OK(core_event_record(event, stream));
    OK(core_stream_set_current(own));
    core_stream_release(stream);
    OK(core_stream_wait_event(own, event));
    y = CALL(mm, x, x); /* with the remaining memory */
    ck_assert_uint_eq(fake_count("fake_handles"), 1);
    core_stream_release(foreign);
    OK(core_event_synchronize(event));
    OK(core_event_query(event));
    ck_assert_float_eq(first_of(y), 1);
    ck_assert_float_eq(first_of(out), 1);
    ck_assert_int_eq(read_products(letters), 2);
    core_event_release(event);
    unlink(calls);
}

/* The driver's functions that another library calls. */
typedef int (*begin_call)(void *stream, int mode);
typedef int (*end_call)(void *stream, void **graph);
typedef int (*graph_call)(void *graph);

/* The stream ends while another library captures on it: the capture is not
 * invalidated, contains nothing of libcore, and nothing waits for work that
 * never runs. */
static inline void check_stream_captured_by_others(const char *library,
                                                   const char *begin,
                                                   const char *end,
                                                   const char *destroy)
{
    enum { RELAXED = 2 };
    core_stream *foreign, *stream, *own;
    void *native, *graph = NULL;
    core_device *gpu;
    core_tensor *x;
    char letters[16];

    load_products(library);
    gpu = device_of(GPU);
    OK(core_stream_default(gpu, &own));
    OK(core_stream_create(gpu, &foreign));
    OK(core_stream_native(foreign, &native));
    stream = adopted(gpu, foreign);
    OK(core_stream_set_current(stream));
    x = identity(gpu);
    OK(core_mm(x, x, &x));
    keep(x);
    OK(core_stream_synchronize(stream));
    ck_assert_int_eq(((begin_call)driver_function(begin))(native, RELAXED), 0);
    OK(core_stream_set_current(own));
    core_stream_release(stream);
    ck_assert_int_eq(((end_call)driver_function(end))(native, &graph), 0);
    ck_assert_uint_eq(fake_count("fake_captured"), 0);
    ck_assert_int_eq(((graph_call)driver_function(destroy))(graph), 0);
    /* The released handle cannot be waited for: the next stream gets its
     * own. */
    stream = adopted(gpu, foreign);
    OK(core_stream_set_current(stream));
    x = identity(gpu);
    ck_assert_float_eq(first_of(CALL(mm, x, x)), 1);
    ck_assert_uint_eq(fake_count("fake_handles"), 2);
    ck_assert_int_eq(read_products(letters), 2);
    OK(core_stream_set_current(own));
    core_stream_release(stream);
    core_stream_release(foreign);
    unlink(calls);
}

/* Everything that may wait, allocate or load. */
static inline void *work_during_a_capture(void *device)
{
    core_stream *stream;
    core_event *event;
    core_tensor *x;

    OK(core_stream_create(device, &stream));
    OK(core_stream_set_current(stream));
    OK(core_event_create(device, 0, &event));
    x = identity(device);
    ck_assert_float_eq(first_of(CALL(mm, x, x)), 1);
    ck_assert_float_eq(first_of(CALL(neg, x)), -1);
    OK(core_event_record(event, stream));
    OK(core_event_synchronize(event));
    OK(core_event_query(event));
    OK(core_stream_callback(stream, wait_at_gate, NULL, NULL));
    OK(core_memory_empty_cache(device));
    core_event_release(event);
    drop_all();
    OK(core_stream_synchronize(stream));
    core_stream_release(stream);
    return NULL;
}

/* Another library's capture, which no thread may disturb, runs at the same
 * time; this is the default mode of some libraries. */
static inline void check_captures_of_others(const char *library,
                                            const char *begin, const char *end,
                                            const char *destroy)
{
    enum { GLOBAL = 0 };
    core_stream *foreign;
    void *native, *graph = NULL;
    core_device *gpu;
    pthread_t thread;

    load_products(library);
    gpu = device_of(GPU);
    OK(core_stream_create(gpu, &foreign));
    OK(core_stream_native(foreign, &native));
    ck_assert_int_eq(((begin_call)driver_function(begin))(native, GLOBAL), 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, work_during_a_capture, gpu),
                     0);
    pthread_join(thread, NULL);
    ck_assert_int_eq(((end_call)driver_function(end))(native, &graph), 0);
    ck_assert_int_eq(((graph_call)driver_function(destroy))(graph), 0);
    core_stream_release(foreign);
    unlink(calls);
}

#endif
