/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Products of 8-bit matrices with scales of rows, and of groups of matrices,
 * equal sums that are computed here from the numbers and their scales. */

#include "support/devices.h"

#include <math.h>

enum { M = 5, K = 6, N = 7, G = 3 };

static const char *const places[] = {"cpu", "sim"};
static const int64_t tensor_wise = 0, row_wise = 1;

/* Numbers that f8e4m3 represents. */
static double number(int64_t i)
{
    return (double)((i * 5 + 3) % 13 - 6) / 2;
}

static double scale_number(int64_t i)
{
    return (double)(i % 5 + 1) / 4;
}

static core_tensor *filled(const char *place, core_dtype dtype, size_t ndim,
                           const int64_t *sizes, double (*value)(int64_t))
{
    double values[G * K * N];
    int64_t numel = 1;

    for (size_t i = 0; i < ndim; i++)
        numel *= sizes[i];
    for (int64_t i = 0; i < numel; i++)
        values[i] = value(i);
    return CALL(to_copy, typed(CORE_F64, ndim, sizes, values), dtype,
                device_of(place), false, -1);
}

#define EIGHT(place, ...)                                      \
    filled(place, CORE_F8E4M3,                                 \
           sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), \
           (int64_t[]){__VA_ARGS__}, number)
#define SCALES(place, ...)                                     \
    filled(place, CORE_F32,                                    \
           sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), \
           (int64_t[]){__VA_ARGS__}, scale_number)

static core_tensor *one_scale(const char *place)
{
    return filled(place, CORE_F32, 0, NULL, scale_number);
}

static void check_values(core_tensor *have, core_dtype dtype, int64_t count,
                         const double *want)
{
    double values[G * M * N];

    ck_assert_uint_eq(core_tensor_dtype(have), dtype);
    ck_assert_int_eq(core_tensor_numel(have), count);
    OK(core_tensor_read(
        CALL(to_copy, have, CORE_F64, device_of("cpu"), false, -1), values,
        (size_t)count * sizeof *values));
    for (int64_t i = 0; i < count; i++)
        ck_assert_double_eq_tol(values[i], want[i],
                                dtype == CORE_F32 ? 1e-4
                                                  : 1e-2 * (1 + fabs(want[i])));
}

/* The (i, j)-th element of the product of [M, K] and [K, N] without scales. */
static double dot(int64_t i, int64_t j)
{
    double total = 0;

    for (int64_t k = 0; k < K; k++)
        total += number(i * K + k) * number(k * N + j);
    return total;
}

START_TEST(rows_and_columns_have_their_scales)
{
    for (int c = 0; c < 16; c++) {
        const char *place = places[c & 1];
        bool rows = c & 2, columns = c & 4;
        core_dtype dtype = c & 8 ? CORE_BF16 : CORE_F32;
        core_tensor *sa = rows ? SCALES(place, M, 1) : one_scale(place);
        core_tensor *sb = columns ? SCALES(place, 1, N) : one_scale(place);
        core_tensor *bias =
            filled(place, dtype, 1, (int64_t[]){N}, scale_number);
        double want[M * N];

        for (int64_t i = 0; i < M * N; i++)
            want[i] = dot(i / N, i % N) * scale_number(rows ? i / N : 0) *
                          scale_number(columns ? i % N : 0) +
                      scale_number(i % N);
        check_values(CALL(scaled_mm_v2, EIGHT(place, M, K), EIGHT(place, K, N),
                          &sa, 1, rows ? &row_wise : &tensor_wise, 1, NULL, 0,
                          &sb, 1, columns ? &row_wise : &tensor_wise, 1, NULL,
                          0, bias, dtype, (int64_t[]){-1, -2}, 2, false),
                     dtype, M * N, want);
    }
}
END_TEST

START_TEST(scaled_addmm_adds_self)
{
    static const int64_t no_swizzle = 0;

    for (int c = 0; c < 4; c++) {
        const char *place = places[c & 1];
        double beta = c & 2 ? 0 : .5;
        core_tensor *self =
            filled(place, CORE_F32, 1, (int64_t[]){N}, scale_number);
        core_tensor *sa = SCALES(place, M), *sb = one_scale(place);
        double want[M * N];

        if (beta == 0)
            self = CALL(full_like, self, core_float(NAN), CORE_DTYPE_NONE, NULL,
                        -1);
        for (int64_t i = 0; i < M * N; i++)
            want[i] =
                2 * dot(i / N, i % N) * scale_number(i / N) * scale_number(0) +
                beta * scale_number(i % N);
        check_values(CALL(scaled_addmm, self, EIGHT(place, M, K),
                          EIGHT(place, K, N), &sa, 1, &row_wise, 1, &no_swizzle,
                          1, &sb, 1, &tensor_wise, 1, &no_swizzle, 1, NULL, 0,
                          core_float(beta), core_int(2), false),
                     CORE_F32, M * N, want);
    }
}
END_TEST

/* ---------------------------------------------------------------- groups -- */

static core_tensor *offsets(const char *place, const double *values)
{
    return CALL(to_copy, typed(CORE_F64, 1, (int64_t[]){G}, values), CORE_I32,
                device_of(place), false, -1);
}

static core_tensor *grouped(core_tensor *a, core_tensor *b, core_tensor *sa,
                            core_tensor *sb, core_tensor *offs)
{
    return CALL(scaled_grouped_mm_v2, a, b, &sa, 1, &row_wise, 1, NULL, 0, &sb,
                1, &row_wise, 1, NULL, 0, offs, NULL, CORE_F32, NULL, 0, false);
}

START_TEST(stacked_matrices_are_multiplied_one_by_one)
{
    for (int c = 0; c < 2; c++) {
        const char *place = places[c];
        double want[G * M * N];

        for (int64_t i = 0; i < G * M * N; i++) {
            int64_t g = i / (M * N), m = i / N % M, n = i % N;

            want[i] = 0;
            for (int64_t k = 0; k < K; k++)
                want[i] +=
                    number((g * M + m) * K + k) * number((g * K + k) * N + n);
            want[i] *= scale_number(g * M + m) * scale_number(g * N + n);
        }
        check_values(grouped(EIGHT(place, G, M, K), EIGHT(place, G, K, N),
                             SCALES(place, G, M), SCALES(place, G, N), NULL),
                     CORE_F32, G * M * N, want);
    }
}
END_TEST

/* Rows 0 and 1, none, 2 and 3; row 4 is in no group. */
START_TEST(rows_are_multiplied_by_the_matrix_of_their_group)
{
    const double ends[G] = {2, 2, 4};

    for (int c = 0; c < 2; c++) {
        const char *place = places[c];
        double want[M * N];

        for (int64_t i = 0; i < M * N; i++) {
            int64_t m = i / N, n = i % N, g = m < 2 ? 0 : 2;

            want[i] = 0;
            for (int64_t k = 0; k < K && m < 4; k++)
                want[i] += number(m * K + k) * number((g * K + k) * N + n);
            want[i] *= scale_number(m) * scale_number(g * N + n);
        }
        check_values(grouped(EIGHT(place, M, K), EIGHT(place, G, K, N),
                             SCALES(place, M), SCALES(place, G, N),
                             offsets(place, ends)),
                     CORE_F32, M * N, want);
    }
}
END_TEST

START_TEST(columns_are_multiplied_by_the_matrix_of_their_group)
{
    const double ends[G] = {3, 4, N};
    double want[M * N];

    for (int64_t i = 0; i < M * N; i++) {
        int64_t m = i / N, n = i % N, g = n < 3 ? 0 : n < 4 ? 1 : 2;

        want[i] = 0;
        for (int64_t k = 0; k < K; k++)
            want[i] += number((g * M + m) * K + k) * number(k * N + n);
        want[i] *= scale_number(g * M + m) * scale_number(n);
    }
    check_values(grouped(EIGHT("cpu", G, M, K), EIGHT("cpu", K, N),
                         SCALES("cpu", G, M), SCALES("cpu", N),
                         offsets("cpu", ends)),
                 CORE_F32, M * N, want);
}
END_TEST

START_TEST(groups_of_the_summed_dimension_give_a_product_each)
{
    const double ends[G] = {1, 1, K};
    double want[G * M * N];

    for (int64_t i = 0; i < G * M * N; i++) {
        int64_t g = i / (M * N), m = i / N % M, n = i % N;

        want[i] = 0;
        for (int64_t k = g == 2; g != 1 && k < (g ? K : 1); k++)
            want[i] += number(m * K + k) * number(k * N + n);
        want[i] *= scale_number(g * M + m) * scale_number(g * N + n);
    }
    check_values(grouped(EIGHT("cpu", M, K), EIGHT("cpu", K, N),
                         SCALES("cpu", G * M), SCALES("cpu", G * N),
                         offsets("cpu", ends)),
                 CORE_F32, G * M * N, want);
}
END_TEST

START_TEST(grouped_products_on_meta_have_sizes)
{
    core_tensor *y =
        grouped(EIGHT("meta", M, K), EIGHT("meta", G, K, N), SCALES("meta", M),
                SCALES("meta", G, N), offsets("meta", (double[]){1, 2, 3}));

    ck_assert_uint_eq(core_tensor_ndim(y), 2);
    ck_assert_int_eq(core_tensor_size(y, 0), M);
    ck_assert_int_eq(core_tensor_size(y, 1), N);
}
END_TEST

/* -------------------------------------------------------------- refusals -- */

static core_status product(core_tensor *scale_a, int64_t recipe,
                           int64_t swizzle, const int64_t *dims, size_t count)
{
    core_tensor *scale_b = one_scale("cpu"), *y = NULL;
    core_status status =
        core_scaled_mm_v2(EIGHT("cpu", M, K), EIGHT("cpu", K, N), &scale_a, 1,
                          &recipe, 1, &swizzle, 1, &scale_b, 1, &tensor_wise, 1,
                          NULL, 0, NULL, CORE_F32, dims, count, false, &y);

    ck_assert_ptr_null(y);
    return status;
}

START_TEST(other_recipes_and_swizzles_are_unsupported)
{
    core_tensor *scale = SCALES("cpu", M);

    FAILS(product(scale, 3, 0, NULL, 0), CORE_ERROR_UNSUPPORTED,
          "recipe_a is 3", "0, a scale for the whole matrix", "1, a scale");
    FAILS(product(scale, 1, 1, NULL, 0), CORE_ERROR_UNSUPPORTED,
          "swizzle_a is 1");
    FAILS(product(scale, 0, 0, NULL, 0), CORE_ERROR_SHAPE,
          "scale_a[0] has 5 elements of f32; it must have 1");
    FAILS(product(scale, 1, 0, (int64_t[]){0, 1}, 2), CORE_ERROR_UNSUPPORTED,
          "contraction_dim");
}
END_TEST

START_TEST(groups_that_do_not_fit_are_refused)
{
    core_tensor *sa = SCALES("cpu", M), *sb = SCALES("cpu", G, N), *y;
    core_tensor *a = EIGHT("cpu", M, K), *b = EIGHT("cpu", G, K, N);
    core_tensor *bias = SCALES("cpu", N);

#define GROUPED(offs, bias)                                                 \
    core_scaled_grouped_mm_v2(a, b, &sa, 1, &row_wise, 1, NULL, 0, &sb, 1,  \
                              &row_wise, 1, NULL, 0, offs, bias, CORE_BF16, \
                              NULL, 0, false, &y)
    FAILS(GROUPED(NULL, NULL), CORE_ERROR_INVALID_ARGUMENT, "offs is absent");
    FAILS(GROUPED(offsets("cpu", (double[]){1, 0, 2}), NULL), CORE_ERROR_INDEX,
          "offs[1] is 0");
    FAILS(GROUPED(offsets("cpu", (double[]){1, 2, M + 1}), NULL),
          CORE_ERROR_INDEX, "offs[2] is 6");
    FAILS(GROUPED(offsets("cpu", (double[]){1, 2, 3}), bias),
          CORE_ERROR_UNSUPPORTED, "bias is given");
#undef GROUPED
}
END_TEST

SUITE("quant/scaled_recipes", rows_and_columns_have_their_scales,
      scaled_addmm_adds_self, stacked_matrices_are_multiplied_one_by_one,
      rows_are_multiplied_by_the_matrix_of_their_group,
      columns_are_multiplied_by_the_matrix_of_their_group,
      groups_of_the_summed_dimension_give_a_product_each,
      grouped_products_on_meta_have_sizes,
      other_recipes_and_swizzles_are_unsupported,
      groups_that_do_not_fit_are_refused)
