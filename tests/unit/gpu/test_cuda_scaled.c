/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Products of 8-bit floats by a fake libcublasLt (tests/fixtures/gpu), which
 * refuses what cuBLASLt refuses according to NVIDIA's manual.  Skipped if the
 * plugin was not built. */

#define SUITE_SECONDS 100

#define SUITE_FORKS true

#include "support/linear.h"
#include "support/temporary_files.h"

#include <cuda/architectures.h>

#include <libcore/capture.h>
#include <libcore/settings.h>

#include <dlfcn.h>
#include <stdio.h>

/* A real driver, if there is one, leaks when it finds no device. */
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

/* The number of lines that products have logged since the last call; the last
 * one in `text`. */
static int read_products(char text[200])
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

/* Ends the test's process. */
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

/* The device's result, with these layouts, is the same; the order of sums
 * differs. */
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
    ck_assert_int_eq(read_products(NULL), by_library);
}

START_TEST(library_matches_the_emulation)
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

/* A part of a wider matrix, whose address is not a multiple of 16. */
static core_tensor *part(core_tensor *tensor, int64_t dim, int64_t from)
{
    return CALL(narrow, tensor, dim, from, core_tensor_size(tensor, dim) - 1);
}

START_TEST(unsupported_layouts_are_copied)
{
    factors f = some(CORE_F8E4M3, CORE_F8E5M2, CORE_BF16, true), g;
    core_tensor *wide;

    start("", true);
    f = some(CORE_F8E4M3, CORE_F8E5M2, CORE_BF16, true);
    /* Row-major and column-major operands. */
    same_there(&f, CALL(t, there(CALL(contiguous, CALL(t, f.a), 0))),
               there(CALL(contiguous, f.b, 0)), 1);
    same_there(&f, CALL(t, there(CALL(contiguous, CALL(t, f.a), 0))),
               there(f.b), 1);
    /* Rows that are 33 apart and start after the first byte. */
    g = f;
    wide = numbers(CORE_F8E4M3, 2, (int64_t[]){M, K + 1});
    g.a = part(wide, 1, 1);
    same_there(&g, part(there(wide), 1, 1), there(f.b), 1);
    /* In place: the address is a multiple of 16 and of no larger power of
     * two. */
    wide = numbers(CORE_F8E4M3, 2, (int64_t[]){M + 1, K});
    g.a = CALL(narrow, wide, 0, 1, M);
    same_there(&g, CALL(narrow, there(wide), 0, 1, M), there(f.b), 1);
    /* A bias with a stride of 2. */
    g = f;
    wide = there(numbers(CORE_BF16, 2, (int64_t[]){N, 2}));
    g.a = there(f.a);
    g.b = there(f.b);
    g.scale_a = there(f.scale_a);
    g.scale_b = there(f.scale_b);
    g.bias = CALL(select, wide, 1, 1);
    f.bias = CALL(to_copy, g.bias, CORE_BF16, device_of("cpu"), false, -1);
    near(product(&g), product(&f), 1.0 / 256);
    ck_assert_int_eq(read_products(NULL), 1);
    end();
}
END_TEST

START_TEST(summed_dimension_is_padded_with_zeros)
{
    char text[200] = "";
    factors f, g;

    start("", true);
    f = some(CORE_F8E4M3, CORE_F8E5M2, CORE_BF16, true);
    /* Lines of K - 1 elements, K - 1 or K apart: the padding adds nothing. */
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
        ck_assert_int_eq(read_products(text), 1);
        ck_assert_str_eq(text, k <= 16 ? "48 5 16 types 29 28 14 bias\n"
                                       : "48 5 32 types 29 28 14 bias\n");
    }
    end();
}
END_TEST

START_TEST(unsupported_products_are_multiplied_as_f32)
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

START_TEST(library_is_called_with_the_requested_options)
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
    ck_assert_int_eq(read_products(text), 1);
    /* CUDA_R_8F_E5M2, CUDA_R_8F_E4M3, CUDA_R_32F */
    ck_assert_str_eq(text, "48 5 32 types 29 28 0 added fast\n");
    f = some(CORE_F8E4M3, CORE_F8E4M3, CORE_F16, true);
    OK(core_scaled_mm(there(f.a), there(f.b), there(f.scale_a),
                      there(f.scale_b), there(f.bias), NULL, CORE_F16, false,
                      &y));
    keep(y);
    ck_assert_int_eq(read_products(text), 1);
    ck_assert_str_eq(text, "48 5 32 types 28 28 2 bias\n");
    end();
}
END_TEST

START_TEST(products_can_be_captured)
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

static char logged[512];
static int nlogged;

static void sink(void *context, uint32_t level, const char *component,
                 const char *text)
{
    (void)context;
    if (level <= CORE_LOG_WARNING && strcmp(component, "cuda") == 0 &&
        strncmp(text, "products are", 12) != 0) {
        nlogged++;
        snprintf(logged, sizeof logged, "%s", text);
    }
}

/* The warning is logged once, however often the product is needed. */
static void check_warning(const char *what)
{
    core_log_set_sink(sink, NULL, CORE_LOG_WARNING);
    for (int i = 0; i < 2; i++) {
        factors f = some(CORE_F8E4M3, CORE_F8E4M3, CORE_F32, true);

        same_there(&f, there(f.a), there(f.b), 0);
    }
    core_log_set_sink(NULL, NULL, CORE_LOG_ERROR);
    ck_assert_int_eq(nlogged, what != NULL);
    if (what != NULL)
        ck_assert_msg(strstr(logged, what) != NULL, "%s", logged);
    end();
}

START_TEST(without_the_library_f32_is_used)
{
    start("", false);
    /* A real library, if there is one, does not start. */
    check_warning("8-bit products are multiplied as f32: ");
}
END_TEST

/* A GPU that the kernels do not support cannot be tested. */
static bool has_kernels(int capability)
{
    return cuda_arches_fit(CUDA_ARCHES, capability);
}

START_TEST(older_devices_are_not_queried)
{
    if (!has_kernels(80)) {
        suite_skip("no kernels for sm_80 are built");
        return;
    }
    setenv("FAKE_CUDA_ARCH", "80", 1);
    start("", false);
    check_warning(NULL);
}
END_TEST

START_TEST(ada_is_supported)
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

START_TEST(each_device_is_queried)
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

START_TEST(library_that_does_not_start_is_not_used)
{
    start("cublasLtCreate=1", true);
    check_warning("multiplied as f32: cublasLtCreate fails");
}
END_TEST

START_TEST(refused_shape_is_multiplied_as_f32)
{
    start("cublasLtMatmulAlgoGetHeuristic=15", true);
    check_warning(NULL);
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

START_TEST(late_refusal_is_an_error)
{
    start("cublasLtMatmul=15", true);
    fails(CORE_ERROR_INTERNAL, "accepted this product and then failed");
}
END_TEST

START_TEST(failed_product_is_a_lost_device)
{
    start("cublasLtMatmul=13", true);
    fails(CORE_ERROR_DEVICE_LOST, "an 8-bit product");
}
END_TEST

/* --------------------------------------------------------- fused linear -- */

enum { FEATURES = 32, OUTPUTS = 48 };

static int64_t tokens = 16;

/* The result, and the gradients of input and weight. */
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

START_TEST(fused_linear_uses_three_8_bit_products)
{
    const uint32_t scalings[] = {CORE_SCALING_CURRENT, CORE_SCALING_DELAYED};
    core_tensor *want[3], *have[3];

    start("", true);
    for (int i = 0; i < 2 * 2 * 2; i++) {
        core_dtype dtype = i / 4 ? CORE_BF16 : CORE_F32;

        step(false, scalings[i % 2], i / 2 % 2, dtype, want);
        step(true, scalings[i % 2], i / 2 % 2, dtype, have);
        ck_assert_int_eq(read_products(NULL), 3);
        near(have[0], want[0], dtype == CORE_F32 ? 1e-6 : 1.0 / 128);
        for (int k = 1; k < 3; k++)
            near(have[k], want[k], 1.0 / 64);
    }
    /* The weight's gradient sums over the rows, which are not a multiple of
     * 16. */
    tokens = 6;
    step(false, CORE_SCALING_CURRENT, true, CORE_F32, want);
    step(true, CORE_SCALING_CURRENT, true, CORE_F32, have);
    ck_assert_int_eq(read_products(NULL), 3);
    for (int k = 0; k < 3; k++)
        near(have[k], want[k], k ? 1.0 / 64 : 1e-6);
    tokens = 16;
    /* The library does not support scales of blocks. */
    step(true, CORE_SCALING_BLOCK, true, CORE_F32, have);
    ck_assert_int_eq(read_products(NULL), 0);
    end();
}
END_TEST

START_TEST(main_and_delayed_gradients_use_8_bit_products)
{
    core_tensor *want[3], *have[3], *main_grad;
    core_linear_wgrad_queue *queue;

    start("", true);
    step(false, CORE_SCALING_CURRENT, false, CORE_F32, want);
    step(true, CORE_SCALING_CURRENT, false, CORE_F32, have);
    read_products(NULL);
    main_grad = CALL(ones_like, CALL(detach, w), CORE_F32, NULL, -1);
    OK(core_linear_wgrad_queue_create(&queue));
    clear();
    args.main_grad = main_grad;
    args.flags = CORE_LINEAR_ACCUMULATE;
    args.wgrad_queue = queue;
    backward(loss(apply()));
    ck_assert_int_eq(read_products(NULL), 2);
    OK(core_linear_backward_dw(queue));
    ck_assert_int_eq(read_products(NULL), 1);
    near(CALL(sub_scalar, main_grad, core_float(1), core_int(1)), want[2],
         1.0 / 64);
    core_linear_wgrad_queue_release(queue);
    end();
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        library_matches_the_emulation,
        unsupported_layouts_are_copied,
        summed_dimension_is_padded_with_zeros,
        unsupported_products_are_multiplied_as_f32,
        library_is_called_with_the_requested_options,
        products_can_be_captured,
        without_the_library_f32_is_used,
        older_devices_are_not_queried,
        ada_is_supported,
        each_device_is_queried,
        library_that_does_not_start_is_not_used,
        refused_shape_is_multiplied_as_f32,
        late_refusal_is_an_error,
        failed_product_is_a_lost_device,
        fused_linear_uses_three_8_bit_products,
        main_and_delayed_gradients_use_8_bit_products,
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
    return run_suite("gpu/cuda_scaled", tests, sizeof tests / sizeof *tests);
}
