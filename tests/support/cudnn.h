/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* cudnn.h: what the tests of convolutions with a fake libcudnn
 * (tests/fixtures/gpu) share.  It refuses what cuDNN refuses according to
 * NVIDIA's manual, and first offers algorithms that must not be used. */

#ifndef TESTS_SUPPORT_DNN_H
#define TESTS_SUPPORT_DNN_H

#include "devices.h"
#include "temporary_files.h"

#include <dlfcn.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>

#define CUDNN "libcudnn.so.9"
#define CUDNN_8 "eight/.libs/libcudnn.so.8"
#define CUDNN_LACKING "old/.libs/libcudnn.so.9"

static const char *build;

/* Loads a library of the fixtures; those with unique names are in one
 * folder. */
static inline void load(const char *library)
{
    char name[4096];

    snprintf(name, sizeof name, "%s/tests/fixtures/gpu/%s%s", build,
             strchr(library, '/') != NULL ? "" : ".libs/", library);
    ck_assert_msg(dlopen(name, RTLD_NOW | RTLD_GLOBAL) != NULL, "%s",
                  dlerror());
}

static core_device *cuda;
static temporary_path file;

/* library NULL: there is none. */
static inline void start(const char *failures, const char *library)
{
    temporary_file(file, "cudnn-calls");
    setenv("FAKE_CUDNN_CALLS", file, 1);
    setenv("FAKE_GPU_FAIL", failures, 1);
    load("libcuda.so.1");
    if (library != NULL)
        load(library);
    cuda = device_of("cuda");
}

/* Ends the test's process. */
static inline void end(void)
{
    unlink(file);
}

/* The lines that convolutions have logged since the last call. */
static inline int convolved(char text[1000])
{
    static long seen;
    FILE *lines = fopen(file, "r");
    char line[200];
    int count = 0;

    ck_assert_ptr_nonnull(lines);
    if (text != NULL)
        text[0] = 0;
    fseek(lines, seen, SEEK_SET);
    while (fgets(line, sizeof line, lines) != NULL) {
        count++;
        if (text != NULL)
            strncat(text, line, 1000 - strlen(text) - 1);
    }
    seen = ftell(lines);
    fclose(lines);
    return count;
}

/* One of the library's counters. */
static inline unsigned counted(const char *name)
{
    unsigned (*count)(void);

    *(void **)(void *)&count = dlsym(RTLD_DEFAULT, name);
    ck_assert(count != NULL);
    return count();
}

/* ------------------------------------------------------- convolutions -- */

enum { MOST = 1 << 14 };

/* Numbers that f16 and bf16 can represent, so that the CPU computes with the
 * same in f64. */
static inline core_tensor *numbers(core_dtype dtype, size_t ndim,
                                   const int64_t *sizes, int start_at)
{
    static double values[MOST];
    int64_t numel = 1;

    for (size_t i = 0; i < ndim; i++)
        numel *= sizes[i];
    ck_assert_int_le(numel, MOST);
    for (int64_t i = 0; i < numel; i++)
        values[i] = (double)((i * 37 + start_at) % 23 - 11) / 8;
    return typed(dtype, ndim, sizes, values);
}

static inline core_tensor *there(core_tensor *tensor)
{
    return CALL(to_copy, tensor, core_tensor_dtype(tensor), cuda, false, -1);
}

static inline void read_all(core_tensor *tensor, double *to)
{
    core_tensor *wide;

    OK(core_to_copy(tensor, CORE_F64, device_of("cpu"), false, 0, &wide));
    OK(core_tensor_read(wide, to, (size_t)core_tensor_numel(wide) * 8));
    core_tensor_release(wide);
}

/* The difference is at most `share` of the largest element of `want`. */
static inline void near(core_tensor *have, core_tensor *want, double share)
{
    static double a[MOST], c[MOST];
    int64_t n = core_tensor_numel(want);
    double most = 0;

    ck_assert_ptr_nonnull(have);
    ck_assert_uint_eq(core_tensor_ndim(have), core_tensor_ndim(want));
    for (uint32_t d = 0; d < core_tensor_ndim(want); d++)
        ck_assert_int_eq(core_tensor_size(have, (int32_t)d),
                         core_tensor_size(want, (int32_t)d));
    read_all(have, a);
    read_all(want, c);
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(c[i]));
    ck_assert_double_gt(most, 0);
    for (int64_t i = 0; i < n; i++)
        ck_assert_msg(fabs(a[i] - c[i]) <= share * most,
                      "element %lld: %g, not %g", (long long)i, a[i], c[i]);
}

typedef struct convolution {
    uint32_t ndim;
    int64_t input[5], weight[5];
    int64_t stride[3], padding[3], dilation[3], output_padding[3], groups;
    bool transposed, bias;
} convolution;

static const convolution plain = {.ndim = 4,
                                  .input = {2, 3, 6, 5},
                                  .weight = {4, 3, 3, 2},
                                  .stride = {1, 1},
                                  .padding = {1, 0},
                                  .dilation = {1, 1},
                                  .groups = 1,
                                  .bias = true};

static const convolution all_kinds[] = {
    {4, {2, 3, 6, 5}, {4, 3, 3, 2}, {1, 1}, {1, 0}, {1, 1}, {0}, 1, 0, 1},
    {4, {2, 4, 9, 8}, {6, 2, 3, 3}, {2, 3}, {1, 2}, {2, 1}, {0}, 2, 0, 1},
    {4, {1, 6, 5, 5}, {6, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {0}, 6, 0, 0},
    {3, {3, 4, 11}, {5, 4, 4}, {2}, {3}, {1}, {0}, 1, 0, 1},
    {5,
     {1, 2, 4, 5, 3},
     {3, 2, 2, 3, 1},
     {1, 2, 1},
     {1, 0, 0},
     {1, 1, 1},
     {0},
     1,
     0,
     1},
    {4, {2, 4, 3, 4}, {4, 3, 3, 3}, {2, 2}, {1, 0}, {1, 1}, {1, 0}, 1, 1, 1},
    {4, {2, 4, 3, 4}, {4, 3, 2, 3}, {3, 2}, {0, 1}, {1, 2}, {2, 1}, 2, 1, 1},
    {3, {2, 2, 5}, {2, 3, 2}, {1}, {0}, {1}, {0}, 1, 1, 0},
};

/* Input, weight and bias, for the results and for the gradients. */
typedef struct operands {
    core_tensor *x, *w, *b;
} operands;

static inline core_tensor *convolve(const convolution *c, const operands *o)
{
    size_t n = c->ndim - 2;

    return CALL(convolution, o->x, o->w, o->b, c->stride, n, c->padding, n,
                c->dilation, n, c->transposed, c->output_padding, n, c->groups);
}

static inline operands of(const convolution *c, core_dtype dtype)
{
    int64_t outputs = c->transposed ? c->weight[1] * c->groups : c->weight[0];

    return (operands){
        .x = numbers(dtype, c->ndim, c->input, 3),
        .w = numbers(dtype, c->ndim, c->weight, 8),
        .b = c->bias ? numbers(dtype, 1, &outputs, 5) : NULL,
    };
}

static inline operands wide(const operands *o)
{
    core_device *cpu = device_of("cpu");

    return (operands){
        .x = CALL(to_copy, o->x, CORE_F64, cpu, false, 0),
        .w = CALL(to_copy, o->w, CORE_F64, cpu, false, 0),
        .b = o->b ? CALL(to_copy, o->b, CORE_F64, cpu, false, 0) : NULL,
    };
}

static inline core_tensor *last(core_tensor *tensor)
{
    return CALL(contiguous, tensor,
                core_tensor_ndim(tensor) == 5 ? CORE_FORMAT_CHANNELS_LAST_3D
                                              : CORE_FORMAT_CHANNELS_LAST);
}

/* out: the result, and the gradients of input, weight and bias.  Gradients are
 * laid out like the result. */
static inline void step(const convolution *c, const operands *o,
                        core_tensor *out[4])
{
    core_dtype dtype = core_tensor_dtype(o->x);
    int64_t sizes[5];
    core_tensor *grad;

    leaf(o->x);
    leaf(o->w);
    if (o->b)
        leaf(o->b);
    out[0] = convolve(c, o);
    for (uint32_t d = 0; d < c->ndim; d++)
        sizes[d] = core_tensor_size(out[0], (int32_t)d);
    grad = CALL(to_copy, numbers(dtype, c->ndim, sizes, 1), dtype,
                core_tensor_device(out[0]), false, -1);
    if (!core_tensor_is_contiguous(out[0], CORE_FORMAT_CONTIGUOUS))
        grad = last(grad);
    OK(core_backward(&out[0], 1, &grad, 1));
    out[1] = core_tensor_grad(o->x);
    out[2] = core_tensor_grad(o->w);
    out[3] = o->b ? core_tensor_grad(o->b) : NULL;
}

/* Products of multiples of 1/8 are exact in f32; sums in f16 and bf16 are
 * rounded, twice if there is a bias. */
static inline double share_of(core_dtype dtype)
{
    return dtype == CORE_F64   ? 1e-14
           : dtype == CORE_F32 ? 1e-6
           : dtype == CORE_F16 ? 1.0 / 1024
                               : 1.0 / 128;
}

static inline void same(const convolution *c, const operands *on_cpu,
                        const operands *on_cuda)
{
    core_tensor *want[4], *have[4];
    double share = share_of(core_tensor_dtype(on_cuda->x));
    operands exact = wide(on_cpu);

    step(c, &exact, want);
    step(c, on_cuda, have);
    for (int i = 0; i < 3 + (on_cuda->b != NULL); i++)
        near(have[i], want[i], share);
}

static inline operands all_there(const operands *o)
{
    return (operands){there(o->x), there(o->w), o->b ? there(o->b) : NULL};
}

/* The plugin's result is right, and the library computed this many of the
 * convolutions. */
static inline void right(const convolution *c, core_dtype dtype, int by_library)
{
    operands o = of(c, dtype), on_cuda = all_there(&o);

    same(c, &o, &on_cuda);
    ck_assert_int_eq(convolved(NULL), by_library);
}

static inline void is_channels_last(core_tensor *tensor)
{
    ck_assert(core_tensor_is_contiguous(
        tensor, core_tensor_ndim(tensor) == 5 ? CORE_FORMAT_CHANNELS_LAST_3D
                                              : CORE_FORMAT_CHANNELS_LAST));
}

/* core-info shows it. */
static inline void runtime_says(const char *what)
{
    core_device_information information = {.struct_size = sizeof information};

    OK(core_device_get_information(cuda, &information));
    ck_assert_msg(strstr(information.runtime.data, what) != NULL, "%s",
                  information.runtime.data);
}

/* Each test has its own process. */
static inline int run_with_fake_cudnn(const char *name,
                                      const TTest *const *tests, size_t count)
{
    char path[4096];

    build = getenv("LIBCORE_BUILD");
    build = build != NULL ? build : ".";
    snprintf(path, sizeof path, "%s/tests/fixtures/gpu/.libs/libcudnn.so.9",
             build);
    if (access(path, R_OK) == 0)
        snprintf(path, sizeof path, "%s/backends/cuda/.libs/core_cuda.so",
                 build);
    if (access(path, R_OK) != 0)
        return suite_skip_all(
            "core_cuda.so or its fake libraries are not built");
    snprintf(path, sizeof path, "%s/.libs:%s/backends/cuda/.libs", build,
             build);
    setenv("LIBCORE_PLUGIN_PATH", path, 1);
    unsetenv("LIBCORE_DEVICE");
    unsetenv("LIBCORE_CUDA_CUDNN");
    return run_suite(name, tests, count);
}

#endif
