/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Kernels of GPUs in which threads share a row or a column: softmax, layer
 * norms, reductions.  Each length and address selects the intended kernel, and
 * the results equal the CPU's. */

#define SUITE_SECONDS 240

#include "support/gpu_kernel_names.h"

#define gpu gpuemu()
#define cpu opened("cpu")

static const core_dtype dtypes[] = {CORE_F32, CORE_F64, CORE_F16, CORE_BF16};
/* For one thread, a team with and without vectors, a block, and longer. */
static const int64_t lengths[] = {16,   17,   32,   127,  128,  1000, 1023,
                                  1024, 1025, 1032, 8184, 8192, 8208};
/* Elements before the first one; without them its address is a multiple of
 * 16. */
static const int64_t skips[] = {0, 1};
enum {
    DTYPES = sizeof dtypes / sizeof *dtypes,
    LENGTHS = sizeof lengths / sizeof *lengths,
    SKIPS = sizeof skips / sizeof *skips,
    ROWS = 9 /* more than the teams of a block */
};

typedef struct setting {
    core_device *device;
    core_dtype dtype;
    int64_t rows, length, skip;
} setting;

static double tolerance(core_dtype dtype)
{
    return dtype == CORE_F64   ? 1e-13
           : dtype == CORE_F32 ? 3e-6
           : dtype == CORE_F16 ? 2e-3
                               : 1.6e-2;
}

/* Numbers between -1 and 1. */
static core_tensor *rows(const setting *s, int64_t count, unsigned seed)
{
    int64_t size = count * s->length + s->skip;
    core_tensor *all =
        CALL(mul_scalar, numbers(CORE_F64, 1, size, seed, 101, false),
             core_float(1.0 / 76));

    all = CALL(to_copy, all, s->dtype, s->device, false, -1);
    return CALL(as_strided, all, ((int64_t[]){count, s->length}), 2,
                ((int64_t[]){s->length, 1}), 2, &s->skip);
}

static core_tensor *flat(const setting *s, unsigned seed)
{
    return CALL(select, rows(s, 1, seed), 0, 0);
}

enum { RESULTS = 6 };
typedef size_t (*calls)(const setting *s, core_tensor **out);

/* All results of f equal the CPU's. */
static void check_matches_cpu(calls f, const setting *given)
{
    setting s[2] = {*given, *given};
    core_tensor *out[2][RESULTS];
    size_t count = 0;

    for (int k = 0; k < 2; k++) {
        s[k].device = k == 0 ? cpu : gpu;
        count = f(&s[k], out[k]);
    }
    for (size_t i = 0; i < count; i++)
        same(out[0][i], out[1][i], tolerance(given->dtype));
    drop_all();
}

/* Under a sanitizer each length with two of the eight dtypes and addresses, which
 * alternate. */
static void everywhere(calls f)
{
    for (size_t n = 0; n < DTYPES * LENGTHS * SKIPS; n++) {
        size_t dtype = n % DTYPES, length = n / DTYPES % LENGTHS;
        size_t skip = n / DTYPES / LENGTHS;
        setting s = {NULL, dtypes[dtype], ROWS, lengths[length], skips[skip]};

        if (!effort_is_slow() || (dtype + length + 2 * skip) % DTYPES == 0)
            check_matches_cpu(f, &s);
    }
}

/* -------------------------------------------------------------- softmax -- */

static size_t softmax_of(const setting *s, core_tensor **out)
{
    core_tensor *x = rows(s, s->rows, 1), *grad = rows(s, s->rows, 2);

    out[0] = CALL(softmax_forward, x, 1, false);
    out[1] = CALL(log_softmax_forward, x, 1, false);
    /* Rows whose addresses are aligned like x, with the same numbers on both
     * devices. */
    x = CALL(abs, rows(s, s->rows, 3));
    out[2] = CALL(softmax_backward_data, grad, x, 1, s->dtype);
    out[3] = CALL(log_softmax_backward_data, grad, CALL(neg, x), 1, s->dtype);
    return 4;
}

START_TEST(softmax_matches_the_cpu)
{
    everywhere(softmax_of);
}
END_TEST

/* f16 and bf16 to f32, and the gradients back. */
static size_t widened(const setting *s, core_tensor **out)
{
    setting wide = *s;
    core_tensor *x = rows(s, s->rows, 1);

    if (s->dtype != CORE_F16 && s->dtype != CORE_BF16)
        return 0;
    wide.dtype = CORE_F32;
    out[0] = CALL(softmax_forward, x, 1, true);
    out[1] = CALL(log_softmax_forward, x, 1, true);
    out[2] = CALL(softmax_backward_data, rows(&wide, s->rows, 2),
                  rows(&wide, s->rows, 3), 1, s->dtype);
    return 3;
}

START_TEST(half_to_float_matches_the_cpu)
{
    setting s = {NULL, CORE_BF16, ROWS, 64, 0};

    check_matches_cpu(widened, &s);
    for (size_t n = 0; n < LENGTHS * SKIPS; n++) {
        s = (setting){NULL, n % 2 ? CORE_F16 : CORE_BF16, ROWS,
                      lengths[n % LENGTHS], skips[n / LENGTHS]};
        check_matches_cpu(widened, &s);
    }
}
END_TEST

/* Each row has one special number, at the given position. */
static core_tensor *with_special_number(core_device *device, int64_t length,
                                        int place)
{
    static const double strange[] = {INFINITY, -INFINITY, NAN, 3e38, -3e38, 0};
    core_tensor *x;
    double *values = malloc((size_t)(7 * length) * sizeof *values);

    ck_assert_ptr_nonnull(values);
    for (int64_t i = 0; i < 7 * length; i++)
        values[i] = i / length == 6 ? -INFINITY : (double)(i % 7);
    for (int64_t k = 0; k < 6; k++)
        values[k * length + place] = strange[k];
    x = typed(CORE_F32, 2, (int64_t[]){7, length}, values);
    free(values);
    return moved(x, device);
}

START_TEST(special_numbers_match_the_cpu)
{
    static const int64_t some[] = {20, 33, 1000, 2000, 9000};

    for (int i = 0; i < 5; i++)
        for (int last = 0; last < 2; last++) {
            int place = last ? (int)some[i] - 1 : 0;
            core_tensor *a = with_special_number(cpu, some[i], place);
            core_tensor *b = with_special_number(gpu, some[i], place);

            same(CALL(softmax_forward, a, 1, false),
                 CALL(softmax_forward, b, 1, false), 1e-6);
            same(CALL(log_softmax_forward, a, 1, false),
                 CALL(log_softmax_forward, b, 1, false), 1e-6);
            drop_all();
        }
}
END_TEST

/* ---------------------------------------------------------------- layers -- */

static size_t layer(const setting *s, core_tensor *weight, core_tensor *bias,
                    core_tensor **out)
{
    const uint8_t mask[] = {1, weight != NULL, bias != NULL};
    core_tensor *x = rows(s, s->rows, 1), *grad = rows(s, s->rows, 2);

    OK(core_native_layer_norm(x, &s->length, 1, weight, bias, 1e-5, &out[0],
                              &out[1], &out[2]));
    OK(core_native_layer_norm_backward(grad, x, &s->length, 1, out[1], out[2],
                                       weight, bias, mask, 3, &out[3], &out[4],
                                       &out[5]));
    for (int k = 0; k < 6; k++)
        if (out[k] != NULL)
            keep(out[k]);
    return weight != NULL ? 6 : 4;
}

static size_t layer_with(const setting *s, core_tensor **out)
{
    return layer(s, flat(s, 3), flat(s, 4), out);
}
static size_t layer_without(const setting *s, core_tensor **out)
{
    return layer(s, NULL, NULL, out);
}
/* The parameters are f32. */
static size_t layer_mixed(const setting *s, core_tensor **out)
{
    setting wide = *s;

    if (s->dtype == CORE_F64)
        return 0;
    wide.dtype = CORE_F32;
    return layer(s, flat(&wide, 3), flat(&wide, 4), out);
}

START_TEST(layer_norms_match_the_cpu)
{
    everywhere(layer_with);
}
END_TEST

START_TEST(layer_norms_without_parameters_match_the_cpu)
{
    everywhere(layer_without);
}
END_TEST

START_TEST(layer_norms_with_f32_parameters_match_the_cpu)
{
    everywhere(layer_mixed);
}
END_TEST

/* Empty rows have statistics. */
START_TEST(empty_layer_norms_match_the_cpu)
{
    setting s = {NULL, CORE_F32, 3, 0, 0};
    core_tensor *out[2][3], *x;

    for (int k = 0; k < 2; k++) {
        core_device *device = k == 0 ? cpu : gpu;

        s.device = device;
        x = CALL(zeros, ((int64_t[]){3, 0}), 2, CORE_F32, device);
        OK(core_native_layer_norm(x, &s.length, 1, NULL, NULL, 1e-5, &out[k][0],
                                  &out[k][1], &out[k][2]));
        for (int i = 0; i < 3; i++)
            keep(out[k][i]);
    }
    for (int i = 0; i < 3; i++)
        same(out[0][i], out[1][i], 0);
}
END_TEST

/* Several parts of rows; more columns than a block has. */
START_TEST(gradient_sums_over_many_rows)
{
    setting s = {NULL, CORE_F64, 700, 50, 0};

    check_matches_cpu(layer_with, &s);
    s.length = 4;
    check_matches_cpu(layer_with, &s);
}
END_TEST

/* ------------------------------------------------------------ reductions -- */

static size_t reduced(const setting *s, core_tensor **out)
{
    const int64_t dims[] = {s->skip}; /* selects the row */
    setting from = *s;
    core_tensor *x;

    from.skip = 0;
    x = rows(&from, s->rows, 5);
    out[0] = CALL(sum_dim, x, dims, 1, false, CORE_DTYPE_NONE);
    out[1] = CALL(amax, x, dims, 1, false);
    out[2] = CALL(argmin, x, &dims[0], false);
    out[3] = CALL(var, x, dims, 1, NULL, false);
    out[4] = CALL(any_dim, x, dims[0], false);
    out[5] = CALL(logsumexp, x, dims, 1, false);
    return 6;
}

START_TEST(reductions_match_the_cpu)
{
    static const int64_t sizes[][2] = {
        {1, 1},     {3, 5},     {8, 8},     {9, 40},     {33, 33},
        {600, 33},  {600, 7},   {7, 600},   {513, 1024}, {1000, 1},
        {40, 1030}, {129, 257}, {2, 40000}, {40000, 2},  {5000, 40}};

    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
        for (int dim = 0; dim < 2; dim++)
            for (int d = 0; d < 2; d++) {
                setting s = {NULL, d ? CORE_F64 : CORE_F32, sizes[n][0],
                             sizes[n][1], dim};

                if (!effort_is_slow() || (n + (size_t)(dim + d)) % 2 == 0)
                    check_matches_cpu(reduced, &s);
            }
}
END_TEST

/* The bits do not depend on addresses, nor on whether 16 bytes are loaded at a
 * time: the same numbers after a gap of one element, by rows and by columns. */
static size_t reduced_from(int64_t skip, core_dtype dtype, const int64_t *size,
                           int64_t dim, core_tensor **out)
{
    setting s = {gpu, dtype, 1, size[0] * size[1], 0};
    core_tensor *all = rows(&s, 1, 6), *gap = rows(&s, 1, 7), *x;
    int64_t one = 1, zero = 0;
    size_t n = 0;

    gap = CALL(narrow, gap, 1, 0, one);
    all = skip ? CALL(cat, ((core_tensor *[]){gap, all}), 2, 1) : all;
    x = CALL(as_strided, all, size, 2, ((int64_t[]){size[1], 1}), 2,
             skip ? &one : &zero);
    out[n++] = CALL(sum_dim, x, &dim, 1, false, CORE_DTYPE_NONE);
    out[n++] = CALL(amax, x, &dim, 1, false);
    out[n++] = CALL(argmax, x, &dim, false);
    out[n++] = CALL(var, x, &dim, 1, NULL, false);
    out[n++] = CALL(logsumexp, x, &dim, 1, false);
    out[n++] = CALL(linalg_vector_norm, x, core_float(2), &dim, 1, false,
                    CORE_DTYPE_NONE);
    return n;
}

START_TEST(reductions_do_not_depend_on_addresses)
{
    static const int64_t sizes[][2] = {{3, 8},     {7, 64},    {600, 40},
                                       {40, 1024}, {5, 20000}, {300, 128},
                                       {9000, 16}};
    core_tensor *out[2][RESULTS];

    for (size_t n = 0; n < sizeof sizes / sizeof *sizes * DTYPES; n++)
        for (int64_t dim = 0; dim < 2; dim++) {
            size_t count = 0;

            if (effort_is_slow() && n / DTYPES % 2 != (n + (size_t)dim) % 2)
                continue;
            for (int64_t skip = 0; skip < 2; skip++)
                count = reduced_from(skip, dtypes[n % DTYPES],
                                     sizes[n / DTYPES], dim, out[skip]);
            for (size_t i = 0; i < count; i++)
                same(moved(out[0][i], cpu), out[1][i], 0);
            drop_all();
        }
}
END_TEST

/* --------------------------------------------------------------- kernels -- */

static void softmax_launches(core_dtype dtype, int64_t length, int64_t skip,
                             const char *name)
{
    setting s = {gpu, dtype, 3, length, skip};
    core_tensor *x = rows(&s, 3, 1);
    core_profiler *profiler = start_kernel_trace();

    CALL(softmax_forward, x, 1, false);
    check_kernels(profiler, (const char *const[]){name, NULL});
    drop_all();
}

START_TEST(kernel_depends_on_the_row_length)
{
    softmax_launches(CORE_F32, 16, 0, "softmax_f32_f32_alone");
    softmax_launches(CORE_F32, 1024, 0, "softmax_f32_f32_team");
    softmax_launches(CORE_F32, 1024, 1, "softmax_f32_f32_single");
    softmax_launches(CORE_F32, 1023, 0, "softmax_f32_f32_single");
    softmax_launches(CORE_F32, 1028, 0, "softmax_f32_f32_wide");
    softmax_launches(CORE_F32, 8192, 0, "softmax_f32_f32_wide");
    softmax_launches(CORE_F32, 8196, 0, "softmax_f32_f32_block");
    softmax_launches(CORE_F32, 1025, 0, "softmax_f32_f32_block");
    softmax_launches(CORE_BF16, 1028, 0, "softmax_bf16_bf16_block");
    softmax_launches(CORE_BF16, 1032, 0, "softmax_bf16_bf16_wide");
    softmax_launches(CORE_F64, 18, 0, "softmax_f64_f64_team");
}
END_TEST

/* A column is cut into parts for several blocks, merged by another launch. */
START_TEST(long_columns_are_split)
{
    setting s = {gpu, CORE_F32, 1024, 256, 0};
    core_tensor *x = rows(&s, s.rows, 1);
    core_profiler *profiler = start_kernel_trace();

    CALL(sum_dim, x, (const int64_t[]){0}, 1, false, CORE_DTYPE_NONE);
    check_kernels(profiler, (const char *const[]){"red_columns_sum_f32",
                                                  "red_merge_sum_f32", NULL});
}
END_TEST

EMULATED_SUITE("gpu/gpu_row_registers", softmax_matches_the_cpu,
               half_to_float_matches_the_cpu, special_numbers_match_the_cpu,
               layer_norms_match_the_cpu,
               layer_norms_without_parameters_match_the_cpu,
               layer_norms_with_f32_parameters_match_the_cpu,
               empty_layer_norms_match_the_cpu, gradient_sums_over_many_rows,
               reductions_match_the_cpu, reductions_do_not_depend_on_addresses,
               kernel_depends_on_the_row_length, long_columns_are_split)
