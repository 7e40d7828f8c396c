/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Products of eight bits by a libcublasLt that is none (tests/fixtures/gpu),
 * which refuses what NVIDIA's manual says it refuses.  Skipped where the plugin
 * was not built. */

#define SUITE_SECONDS 100

#include "support/linear.h"
#include "support/temporary_files.h"

#include <cuda/images.h>

#include <libcore/capture.h>
#include <libcore/settings.h>

#include <dlfcn.h>
#include <stdio.h>

/* A real one, where there is such, leaks when it finds no driver. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:cublasLtCreate";
}

static const char *build;
static temporary_path path;
static core_device *cuda;

static void load(const char *library)
{
    char name[4096];

    snprintf(name, sizeof name, "%s/tests/fixtures/gpu/.libs/%s", build,
             library);
    ck_assert_msg(dlopen(name, RTLD_NOW | RTLD_GLOBAL) != NULL, "%s",
                  dlerror());
}

static void start(const char *failures, bool library)
{
    temporary_file(path, "cublaslt-calls");
    setenv("FAKE_CUBLASLT_CALLS", path, 1);
    setenv("FAKE_GPU_FAIL", failures, 1);
    load("libcuda.so.1");
    if (library)
        load("libcublasLt.so");
    cuda = device_of("cuda");
}

/* Lines that products left since the last call; the last one in `text`. */
static int products(char text[200])
{
    static long seen;
    FILE *file = fopen(path, "r");
    char line[200];
    int count = 0;

    ck_assert_ptr_nonnull(file);
    fseek(file, seen, SEEK_SET);
    while (fgets(line, sizeof line, file) != NULL) {
        count++;
        if (text != NULL)
            memcpy(text, line, sizeof line);
    }
    seen = ftell(file);
    fclose(file);
    return count;
}

/* A test has a process of its own. */
static void end(void)
{
    unlink(path);
}

/* ------------------------------------------------------------ products -- */

enum { M = 5, K = 32, N = 48 };

typedef struct factors {
    core_tensor *a, *b, *scale_a, *scale_b, *bias;
    core_dtype dtype;
} factors;

static core_tensor *numbers(core_dtype dtype, size_t ndim, const int64_t *sizes)
{
    static double values[64 * 64];
    int64_t numel = 1;

    for (size_t i = 0; i < ndim; i++)
        numel *= sizes[i];
    for (int64_t i = 0; i < numel; i++)
        values[i] = sin((double)(i + 1) * 0.7) * 3;
    return CALL(to_copy, typed(CORE_F64, ndim, sizes, values), dtype,
                device_of("cpu"), false, -1);
}

static core_tensor *there(core_tensor *tensor)
{
    return CALL(to_copy, tensor, core_tensor_dtype(tensor), cuda, false, -1);
}

static factors some(core_dtype a, core_dtype b, core_dtype dtype, bool bias)
{
    return (factors){
        .a = numbers(a, 2, (int64_t[]){M, K}),
        .b = CALL(t, numbers(b, 2, (int64_t[]){N, K})),
        .scale_a = CALL(full, NULL, 0, core_float(0.3), CORE_F32, NULL),
        .scale_b = CALL(full, NULL, 0, core_float(1.7), CORE_F32, NULL),
        .bias = bias ? numbers(dtype, 1, (int64_t[]){N}) : NULL,
        .dtype = dtype};
}

static core_tensor *product(const factors *f)
{
    return CALL(scaled_mm, f->a, f->b, f->scale_a, f->scale_b, f->bias, NULL,
                f->dtype, false);
}

/* The same on the device, in these layouts; sums are rounded otherwise. */
static void same_there(const factors *f, core_tensor *a, core_tensor *b,
                       int by_library)
{
    factors g = {a,
                 b,
                 there(f->scale_a),
                 there(f->scale_b),
                 f->bias ? there(f->bias) : NULL,
                 f->dtype};
    double share = f->dtype == CORE_F32    ? 1e-6
                   : f->dtype == CORE_BF16 ? 1.0 / 256
                                           : 1.0 / 2048;
    core_tensor *y = product(&g);

    near(y, product(f), share);
    ck_assert_int_eq(products(NULL), by_library);
}

START_TEST(the_library_gives_what_the_emulation_gives)
{
    const core_dtype results[] = {CORE_F32, CORE_BF16, CORE_F16};

    start("", true);
    for (int i = 0; i < 3 * 3 * 2; i++) {
        int types = i % 3;
        factors f = some(types == 1 ? CORE_F8E5M2 : CORE_F8E4M3,
                         types == 2 ? CORE_F8E5M2 : CORE_F8E4M3,
                         results[i / 3 % 3], i / 9);

        same_there(&f, there(f.a), there(f.b), 1);
    }
    end();
}
END_TEST

/* A part of a wider matrix, that begins where 16 does not divide. */
static core_tensor *part(core_tensor *tensor, int64_t dim, int64_t from)
{
    return CALL(narrow, tensor, dim, from, core_tensor_size(tensor, dim) - 1);
}

START_TEST(layouts_that_it_does_not_take_are_arranged)
{
    factors f = some(CORE_F8E4M3, CORE_F8E5M2, CORE_BF16, true), g;
    core_tensor *wide;

    start("", true);
    f = some(CORE_F8E4M3, CORE_F8E5M2, CORE_BF16, true);
    /* By rows and by columns, each. */
    same_there(&f, CALL(t, there(CALL(contiguous, CALL(t, f.a), 0))),
               there(CALL(contiguous, f.b, 0)), 1);
    same_there(&f, CALL(t, there(CALL(contiguous, CALL(t, f.a), 0))),
               there(f.b), 1);
    /* Rows that are 33 apart, and begin behind the first byte. */
    g = f;
    wide = numbers(CORE_F8E4M3, 2, (int64_t[]){M, K + 1});
    g.a = part(wide, 1, 1);
    same_there(&g, part(there(wide), 1, 1), there(f.b), 1);
    /* As it is, where 16 divides the address and no more does. */
    wide = numbers(CORE_F8E4M3, 2, (int64_t[]){M + 1, K});
    g.a = CALL(narrow, wide, 0, 1, M);
    same_there(&g, CALL(narrow, there(wide), 0, 1, M), there(f.b), 1);
    /* A bias of every second number. */
    g = f;
    wide = there(numbers(CORE_BF16, 2, (int64_t[]){N, 2}));
    g.a = there(f.a);
    g.b = there(f.b);
    g.scale_a = there(f.scale_a);
    g.scale_b = there(f.scale_b);
    g.bias = CALL(select, wide, 1, 1);
    f.bias = CALL(to_copy, g.bias, CORE_BF16, device_of("cpu"), false, -1);
    near(product(&g), product(&f), 1.0 / 256);
    ck_assert_int_eq(products(NULL), 1);
    end();
}
END_TEST

START_TEST(zeros_make_whole_what_is_summed_over)
{
    char text[200] = "";
    factors f, g;

    start("", true);
    f = some(CORE_F8E4M3, CORE_F8E5M2, CORE_BF16, true);
    /* Lines of K - 1 that lie K - 1 apart, or K: no garbage is added. */
    g = f;
    g.a = part(f.a, 1, 0);
    g.b = part(f.b, 0, 0);
    same_there(&g, there(CALL(contiguous, g.a, 0)),
               there(CALL(contiguous, g.b, 0)), 1);
    same_there(&g, part(there(f.a), 1, 0), part(there(f.b), 0, 0), 1);
    for (int64_t k = 1; k < K; k += 10) {
        core_tensor *y;

        g.a = CALL(narrow, f.a, 1, 0, k);
        g.b = CALL(narrow, f.b, 0, 0, k);
        OK(core_scaled_mm(there(g.a), there(g.b), there(f.scale_a),
                          there(f.scale_b), there(f.bias), NULL, CORE_BF16,
                          false, &y));
        near(keep(y), product(&g), 1.0 / 256);
        ck_assert_int_eq(products(text), 1);
        ck_assert_str_eq(text, k <= 16 ? "48 5 16 types 29 28 14 bias\n"
                                       : "48 5 32 types 29 28 14 bias\n");
    }
    end();
}
END_TEST

START_TEST(what_it_cannot_is_multiplied_as_f32)
{
    factors f;

    start("", true);
    f = some(CORE_F8E5M2, CORE_F8E5M2, CORE_F32, true);
    same_there(&f, there(f.a), there(f.b), 0);
    /* 47 columns. */
    f = some(CORE_F8E4M3, CORE_F8E4M3, CORE_F32, false);
    f.b = part(f.b, 1, 0);
    same_there(&f, there(f.a), there(f.b), 0);
    end();
}
END_TEST

START_TEST(the_call_says_what_was_asked_for)
{
    char text[200] = "";
    factors f;
    core_tensor *y;

    start("", true);
    f = some(CORE_F8E4M3, CORE_F8E5M2, CORE_F32, true);
    OK(core_scaled_mm(there(f.a), there(f.b), there(f.scale_a),
                      there(f.scale_b), there(f.bias), NULL, CORE_F32, true,
                      &y));
    keep(y);
    ck_assert_int_eq(products(text), 1);
    /* CUDA_R_8F_E5M2, CUDA_R_8F_E4M3, CUDA_R_32F */
    ck_assert_str_eq(text, "48 5 32 types 29 28 0 added fast\n");
    f = some(CORE_F8E4M3, CORE_F8E4M3, CORE_F16, true);
    OK(core_scaled_mm(there(f.a), there(f.b), there(f.scale_a),
                      there(f.scale_b), there(f.bias), NULL, CORE_F16, false,
                      &y));
    keep(y);
    ck_assert_int_eq(products(text), 1);
    ck_assert_str_eq(text, "48 5 32 types 28 28 2 bias\n");
    end();
}
END_TEST

START_TEST(products_are_captured)
{
    core_stream *stream;
    core_graph *graph;
    core_tensor *y;
    factors f, g;

    start("", true);
    f = some(CORE_F8E4M3, CORE_F8E4M3, CORE_F32, false);
    g = (factors){there(f.a),       there(f.b), there(f.scale_a),
                  there(f.scale_b), NULL,       CORE_F32};
    OK(core_stream_create(cuda, &stream));
    OK(core_device_synchronize(cuda));
    OK(core_stream_set_current(stream));
    OK(core_capture_begin(stream, NULL));
    OK(core_scaled_mm(g.a, g.b, g.scale_a, g.scale_b, NULL, NULL, CORE_F32,
                      false, &y));
    OK(core_capture_end(stream, &graph));
    for (int i = 0; i < 2; i++) {
        OK(core_fill_(y, core_float(0)));
        OK(core_graph_launch(graph, stream));
        near(y, product(&f), 1e-6);
    }
    core_tensor_release(y);
    core_graph_release(graph);
    core_stream_release(stream);
    end();
}
END_TEST

/* ------------------------------------------------------------- refusals -- */

static char told[512];
static int ntold;

static void sink(void *context, uint32_t level, const char *component,
                 const char *text)
{
    (void)context;
    if (level <= CORE_LOG_WARNING && strcmp(component, "cuda") == 0 &&
        strncmp(text, "products are", 12) != 0) {
        ntold++;
        snprintf(told, sizeof told, "%s", text);
    }
}

/* Said once, however often it is wanted. */
static void told_of(const char *what)
{
    core_log_set_sink(sink, NULL, CORE_LOG_WARNING);
    for (int i = 0; i < 2; i++) {
        factors f = some(CORE_F8E4M3, CORE_F8E4M3, CORE_F32, true);

        same_there(&f, there(f.a), there(f.b), 0);
    }
    core_log_set_sink(NULL, NULL, CORE_LOG_ERROR);
    ck_assert_int_eq(ntold, what != NULL);
    if (what != NULL)
        ck_assert_msg(strstr(told, what) != NULL, "%s", told);
    end();
}

START_TEST(without_the_library_it_is_multiplied_as_f32)
{
    start("", false);
    /* A real one, where there is such, does not start. */
    told_of("products of eight bits are multiplied as f32: ");
}
END_TEST

/* Of GPUs that the kernels were not built for nothing can be seen. */
static bool has_kernels(int capability)
{
    return cuda_arches_fit(CUDA_ARCHES, capability);
}

START_TEST(devices_without_eight_bits_are_not_asked)
{
    if (!has_kernels(80)) {
        suite_skip("no kernels for sm_80 are built");
        return;
    }
    setenv("FAKE_CUDA_ARCH", "80", 1);
    start("", false);
    told_of(NULL);
}
END_TEST

START_TEST(ada_has_them_too)
{
    factors f;

    if (!has_kernels(89)) {
        suite_skip("no kernels for sm_89 are built");
        return;
    }
    setenv("FAKE_CUDA_ARCH", "89", 1);
    start("", true);
    f = some(CORE_F8E4M3, CORE_F8E4M3, CORE_F32, true);
    same_there(&f, there(f.a), there(f.b), 1);
    end();
}
END_TEST

START_TEST(each_device_is_asked_for_itself)
{
    factors f;

    if (!has_kernels(80) || !has_kernels(90)) {
        suite_skip("no kernels for sm_80 and sm_90 are built");
        return;
    }
    setenv("GPUEMU_DEVICES", "2", 1);
    setenv("FAKE_CUDA_ARCH", "80,90", 1);
    start("", true);
    f = some(CORE_F8E4M3, CORE_F8E4M3, CORE_F32, true);
    for (int i = 0; i < 2; i++) {
        cuda = device_of("cuda:0");
        same_there(&f, there(f.a), there(f.b), 0);
        cuda = device_of("cuda:1");
        same_there(&f, there(f.a), there(f.b), 1);
    }
    end();
}
END_TEST

START_TEST(a_library_that_does_not_start_is_not_used)
{
    start("cublasLtCreate=1", true);
    told_of("multiplied as f32: cublasLtCreate fails");
}
END_TEST

START_TEST(a_shape_that_it_refuses_is_multiplied_as_f32)
{
    start("cublasLtMatmulAlgoGetHeuristic=15", true);
    told_of(NULL);
}
END_TEST

static void fails(core_status code, const char *text)
{
    factors f = some(CORE_F8E4M3, CORE_F8E4M3, CORE_F32, false);
    core_tensor *y;

    FAILS(core_scaled_mm(there(f.a), there(f.b), there(f.scale_a),
                         there(f.scale_b), NULL, NULL, CORE_F32, false, &y),
          code, text);
    end();
}

START_TEST(a_product_that_is_refused_late_is_an_error)
{
    start("cublasLtMatmul=15", true);
    fails(CORE_ERROR_INTERNAL, "took this product and then refused it");
}
END_TEST

START_TEST(a_product_that_failed_is_a_lost_device)
{
    start("cublasLtMatmul=13", true);
    fails(CORE_ERROR_DEVICE_LOST, "a product of eight bits");
}
END_TEST

/* --------------------------------------------------------- fused linear -- */

enum { FEATURES = 32, OUTPUTS = 48 };

static int64_t tokens = 16;

/* Result, and gradients of input and weight. */
static void step(bool on_cuda, uint32_t scaling, bool bias, core_dtype dtype,
                 core_tensor *out[3])
{
    const int64_t sizes[3] = {2, tokens / 2, FEATURES};

    for (int i = 0; i < 3; i++) {
        core_quantizer_release(quantizers[i]);
        quantizers[i] = NULL;
    }
    x = numbers(dtype, 3, sizes);
    w = numbers(dtype, 2, (int64_t[]){OUTPUTS, FEATURES});
    b = numbers(dtype, 1, (int64_t[]){OUTPUTS});
    x = leaf(on_cuda ? there(x) : x);
    w = leaf(on_cuda ? there(w) : w);
    b = leaf(on_cuda ? there(b) : b);
    args = (core_linear_forward_args){.struct_size = sizeof args,
                                      .input = x,
                                      .weight = w,
                                      .bias = bias ? b : NULL};
    quantized(scaling);
    out[0] = apply();
    backward(loss(out[0]));
    out[1] = core_tensor_grad(x);
    out[2] = core_tensor_grad(w);
}

START_TEST(the_fused_linear_multiplies_eight_bits_three_times)
{
    const uint32_t scalings[] = {CORE_SCALING_CURRENT, CORE_SCALING_DELAYED};
    core_tensor *want[3], *have[3];

    start("", true);
    for (int i = 0; i < 2 * 2 * 2; i++) {
        core_dtype dtype = i / 4 ? CORE_BF16 : CORE_F32;

        step(false, scalings[i % 2], i / 2 % 2, dtype, want);
        step(true, scalings[i % 2], i / 2 % 2, dtype, have);
        ck_assert_int_eq(products(NULL), 3);
        near(have[0], want[0], dtype == CORE_F32 ? 1e-6 : 1.0 / 128);
        for (int k = 1; k < 3; k++)
            near(have[k], want[k], 1.0 / 64);
    }
    /* 16 does not divide the rows, which the weight's gradient sums over. */
    tokens = 6;
    step(false, CORE_SCALING_CURRENT, true, CORE_F32, want);
    step(true, CORE_SCALING_CURRENT, true, CORE_F32, have);
    ck_assert_int_eq(products(NULL), 3);
    for (int k = 0; k < 3; k++)
        near(have[k], want[k], k ? 1.0 / 64 : 1e-6);
    tokens = 16;
    /* Scales of blocks are not the library's. */
    step(true, CORE_SCALING_BLOCK, true, CORE_F32, have);
    ck_assert_int_eq(products(NULL), 0);
    end();
}
END_TEST

START_TEST(main_and_delayed_gradients_multiply_eight_bits)
{
    core_tensor *want[3], *have[3], *main_grad;
    core_linear_store *store;

    start("", true);
    step(false, CORE_SCALING_CURRENT, false, CORE_F32, want);
    step(true, CORE_SCALING_CURRENT, false, CORE_F32, have);
    products(NULL);
    main_grad = CALL(ones_like, CALL(detach, w), CORE_F32, NULL, -1);
    OK(core_linear_store_create(&store));
    clear();
    args.main_grad = main_grad;
    args.flags = CORE_LINEAR_ACCUMULATE;
    args.store = store;
    backward(loss(apply()));
    ck_assert_int_eq(products(NULL), 2);
    OK(core_linear_backward_dw(store));
    ck_assert_int_eq(products(NULL), 1);
    near(CALL(sub_scalar, main_grad, core_float(1), core_int(1)), want[2],
         1.0 / 64);
    core_linear_store_release(store);
    end();
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        the_library_gives_what_the_emulation_gives,
        layouts_that_it_does_not_take_are_arranged,
        zeros_make_whole_what_is_summed_over,
        what_it_cannot_is_multiplied_as_f32,
        the_call_says_what_was_asked_for,
        products_are_captured,
        without_the_library_it_is_multiplied_as_f32,
        devices_without_eight_bits_are_not_asked,
        ada_has_them_too,
        each_device_is_asked_for_itself,
        a_library_that_does_not_start_is_not_used,
        a_shape_that_it_refuses_is_multiplied_as_f32,
        a_product_that_is_refused_late_is_an_error,
        a_product_that_failed_is_a_lost_device,
        the_fused_linear_multiplies_eight_bits_three_times,
        main_and_delayed_gradients_multiply_eight_bits,
    };
    char name[4096];

    build = getenv("LIBCORE_BUILD");
    build = build != NULL ? build : ".";
    snprintf(name, sizeof name, "%s/tests/fixtures/gpu/.libs/libcublasLt.so",
             build);
    if (access(name, R_OK) == 0)
        snprintf(name, sizeof name, "%s/backends/cuda/.libs/core_cuda.so",
                 build);
    if (access(name, R_OK) != 0)
        return suite_skip_all(
            "core_cuda.so or its fake libraries are not built");
    snprintf(name, sizeof name, "%s/.libs:%s/backends/cuda/.libs", build,
             build);
    setenv("LIBCORE_PLUGIN_PATH", name, 1);
    unsetenv("LIBCORE_DEVICE");
    return run_suite("products of eight bits by cuBLASLt", tests,
                     sizeof tests / sizeof *tests);
}
