/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* NaN, infinity and numbers far out of range where operators turn numbers into
 * indices or codes: coordinates of a grid, sought numbers, classes, float8.
 * The results are those of PyTorch 2.15, except where a comment says
 * otherwise. */

#include "support/ops.h"

#include <libcore/float8.h>

#include <math.h>

#define N NAN
#define INF INFINITY

static void has(const char *what, core_tensor *tensor, const double *right,
                int count)
{
    double got[16];

    tensor = CALL(to_copy, tensor, CORE_F64, NULL, false, -1);
    ck_assert_int_eq(core_tensor_numel(tensor), count);
    OK(core_tensor_read(tensor, got, (size_t)count * sizeof *got));
    for (int i = 0; i < count; i++)
        ck_assert_msg(
            isnan(right[i]) ? isnan(got[i]) : fabs(got[i] - right[i]) <= 1e-6,
            "%s, element %d: %.17g, not %.17g", what, i, got[i], right[i]);
}

/* ------------------------------------------------------------ grid points -- */

enum { POINTS = 11 };

static const double points[POINTS][2] = {
    {N, 0},      {0, N},    {INF, 0}, {-INF, 0},     {0, INF}, {1e300, 0},
    {-1e300, 0}, {0, 1e20}, {3e9, 0}, {1e18, -1e18}, {N, INF},
};

/* A mode and a padding, and the pixel's number at each point with the corners
 * aligned and not. */
typedef struct sampled {
    int64_t mode, padding;
    double right[POINTS];
} sampled;

static core_tensor *grid_of(core_dtype dtype, int ndim)
{
    int64_t sizes[5] = {1, POINTS, 1, ndim, ndim};
    double values[3 * POINTS] = {0};

    for (int i = 0; i < POINTS; i++)
        memcpy(&values[i * ndim], points[i], sizeof points[i]);
    if (ndim == 3)
        sizes[3] = 1;
    return typed(dtype, (size_t)ndim + 2, sizes, values);
}

static void grid_samples(core_dtype dtype, const sampled *s, bool align)
{
    core_tensor *x =
        typed(dtype, 4, (int64_t[]){1, 1, 2, 3}, (double[]){1, 2, 3, 4, 5, 6});
    char what[64];

    snprintf(what, sizeof what, "%s, mode %d, padding %d, align %d",
             core_dtype_name(dtype), (int)s->mode, (int)s->padding, align);
    has(what,
        CALL(grid_sampler_2d, x, grid_of(dtype, 2), s->mode, s->padding, align),
        s->right, POINTS);
}

/* A NaN coordinate is outside of the image if the padding is zeros, where
 * PyTorch returns NaN; nearest returns 0 there too.  Otherwise it is that of
 * the first pixel, like a reflected infinity.  1e300 is infinite in f32. */
START_TEST(grid_points_out_of_range_are_padded_in_2d)
{
    static const sampled list[] = {
        {0, 0, {0}}, {0, 1, {2.5, 2, 4.5, 2.5, 5, 4.5, 2.5, 5, 4.5, 3, 4}},
        {1, 0, {0}}, {1, 1, {1, 2, 3, 1, 5, 3, 1, 5, 3, 3, 4}},
        {2, 0, {0}}, {2, 1, {N, N, N, N, N, 4.5, 2.5, 5, 4.5, 3, N}},
    };

    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        for (int align = 0; align < 2; align++) {
            grid_samples(CORE_F64, &list[i], align);
            drop_all();
        }
}
END_TEST

/* Which pixel a reflection of a number without digits for pixels selects is
 * undefined; it is one of them, or a value between. */
START_TEST(reflected_grid_points_select_pixels)
{
    static const core_dtype dtypes[] = {CORE_F64, CORE_F32, CORE_F16,
                                        CORE_BF16};

    for (int i = 0; i < 24; i++) {
        core_dtype dtype = dtypes[i % 4];
        int64_t mode = i / 4 % 2;
        bool align = i / 8 % 2, deep = i >= 16;
        int64_t sizes[] = {1, 1, deep ? 1 : 2, deep ? 2 : 3, 3};
        core_tensor *x =
            typed(dtype, deep ? 5 : 4, sizes, (double[]){1, 2, 3, 4, 5, 6});
        double got[POINTS];

        x = deep ? CALL(grid_sampler_3d, x, grid_of(dtype, 3), mode, 2, align)
                 : CALL(grid_sampler_2d, x, grid_of(dtype, 2), mode, 2, align);
        x = CALL(to_copy, x, CORE_F64, NULL, false, -1);
        OK(core_tensor_read(x, got, sizeof got));
        for (int k = 0; k < POINTS; k++)
            ck_assert_msg(got[k] >= 1 && got[k] <= 6, "case %d, point %d: %g",
                          i, k, got[k]);
        drop_all();
    }
}
END_TEST

/* At NaN, PyTorch takes the last pixel if the padding is the border. */
START_TEST(grid_points_out_of_range_are_padded_in_3d)
{
    static const sampled list[] = {
        {0, 0, {0}},
        {0, 1, {4, 3.5, 5, 4, 5.5, 5, 4, 5.5, 5, 4, 5}},
        {1, 0, {0}},
        {1, 1, {1, 1, 2, 1, 3, 2, 1, 3, 2, 2, 3}},
    };
    core_tensor *x = typed(CORE_F64, 5, (int64_t[]){1, 1, 2, 2, 2},
                           (double[]){1, 2, 3, 4, 5, 6, 7, 8});

    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        for (int align = 0; align < 2; align++)
            has("3d",
                CALL(grid_sampler_3d, x, grid_of(CORE_F64, 3), list[i].mode,
                     list[i].padding, align),
                list[i].right, POINTS);
    drop_all();
}
END_TEST

/* The gradient of the image has no place outside of it to go to. */
START_TEST(gradients_of_grid_points_out_of_range_stay_in_the_image)
{
    for (int i = 0; i < 36; i++) {
        int64_t mode = i % 3, padding = i / 3 % 3;
        bool align = i / 9 % 2, deep = i >= 18;
        core_tensor *x, *y, *grid = grid_of(CORE_F64, deep ? 3 : 2);

        if (deep && mode == 2)
            continue;
        x = leaf(typed(CORE_F64, deep ? 5 : 4, (int64_t[]){1, 1, 1, 2, 3},
                       (double[]){1, 2, 3, 4, 5, 6}));
        if (!deep)
            x = leaf(MATRIX(2, 3, 1, 2, 3, 4, 5, 6));
        y = deep ? x : CALL(reshape, x, (int64_t[]){1, 1, 2, 3}, 4);
        leaf(grid);
        y = deep ? CALL(grid_sampler_3d, y, grid, mode, padding, align)
                 : CALL(grid_sampler_2d, y, grid, mode, padding, align);
        y = CALL(sum, y, CORE_DTYPE_NONE);
        OK(core_backward(&y, 1, NULL, 0));
        ck_assert_int_eq(core_tensor_numel(core_tensor_grad(x)), 6);
        if (mode == 1) { /* each point in the image counts once */
            double total;

            y = CALL(sum, core_tensor_grad(x), CORE_F64);
            OK(core_tensor_read(y, &total, sizeof total));
            ck_assert_double_eq(total, padding == 0 ? 0 : POINTS);
        }
        drop_all();
    }
}
END_TEST

/* ----------------------------------------------------------------- search -- */

/* NaN is after everything, infinity before it. */
START_TEST(sought_nan_and_infinity_have_positions)
{
    static const core_dtype dtypes[] = {CORE_F64, CORE_F32, CORE_F16,
                                        CORE_BF16};
    static const double left[] = {5, 4, 0, 1, 2, 2},
                        right[] = {5, 5, 1, 1, 3, 3};

    for (int i = 0; i < 8; i++) {
        core_dtype dtype = dtypes[i / 2];
        core_tensor *row =
            typed(dtype, 1, (int64_t[]){5}, (double[]){-INF, -1, 0, 1, INF});
        core_tensor *x = typed(dtype, 1, (int64_t[]){6},
                               (double[]){N, INF, -INF, -30000, 0, -0.0});
        bool narrow = i % 2;

        has("left", CALL(searchsorted, row, x, narrow, false, NULL, NULL), left,
            6);
        has("right", CALL(searchsorted, row, x, narrow, true, NULL, NULL),
            right, 6);
        has("left", CALL(bucketize, x, row, narrow, false), left, 6);
        has("right", CALL(bucketize, x, row, narrow, true), right, 6);
        drop_all();
    }
}
END_TEST

START_TEST(numbers_beyond_a_finite_row_are_at_its_ends)
{
    core_tensor *row = VECTOR(3, -1, 0, 1), *numbers;
    core_tensor *x = VECTOR(5, N, INF, -INF, 1e300, -1e300);

    HOLDS(CALL(searchsorted, row, x, false, false, NULL, NULL), 5, 3, 3, 0, 3,
          0);
    HOLDS(CALL(searchsorted, row, x, false, true, NULL, NULL), 5, 3, 3, 0, 3,
          0);
    HOLDS(CALL(bucketize_scalar, core_float(N), row, false, false), 1, 3);
    HOLDS(CALL(bucketize_scalar, core_float(-INF), row, false, true), 1, 0);
    numbers = typed(CORE_I64, 1, (int64_t[]){3}, (double[]){1, 2, 3});
    HOLDS(CALL(bucketize_scalar, core_float(1e30), numbers, false, false), 1,
          3);
    HOLDS(CALL(bucketize_scalar, core_float(N), numbers, false, false), 1, 3);
    HOLDS(CALL(bucketize_scalar, core_float(-1e30), numbers, false, false), 1,
          0);
    drop_all();
}
END_TEST

/* ---------------------------------------------------------------- classes -- */

static core_tensor *class_of(int64_t number)
{
    const int64_t one = 1;
    core_tensor *x;

    OK(core_tensor_from_data(&number, CORE_I64, &one, 1, NULL, &x));
    return keep(x);
}

/* None of these allocates the result. */
START_TEST(one_hot_refuses_extreme_classes)
{
    core_tensor *out;

    FAILS(core_one_hot(class_of(INT64_MAX), -1, &out),
          CORE_ERROR_INVALID_ARGUMENT, "one_hot", "9223372036854775807");
    FAILS(core_one_hot(class_of(INT64_MIN), -1, &out),
          CORE_ERROR_INVALID_ARGUMENT, "one_hot", "-9223372036854775808");
    FAILS(core_one_hot(class_of(-1), -1, &out), CORE_ERROR_INVALID_ARGUMENT,
          "one_hot", "-1");
    FAILS(core_one_hot(class_of(INT64_MAX - 1), -1, &out), CORE_ERROR_SHAPE,
          "one_hot");
    FAILS(core_one_hot(class_of(INT64_C(1) << 62), -1, &out), CORE_ERROR_SHAPE,
          "one_hot");
    FAILS(core_one_hot(class_of(2), INT64_MAX, &out), CORE_ERROR_SHAPE,
          "one_hot");
    FAILS(core_one_hot(class_of(2), INT64_MIN, &out),
          CORE_ERROR_INVALID_ARGUMENT, "one_hot", "num_classes");
    FAILS(core_one_hot(class_of(INT64_MAX), 5, &out), CORE_ERROR_INDEX, "5");
    FAILS(core_one_hot(class_of(INT64_MIN), 5, &out), CORE_ERROR_INDEX, "5");
    FAILS(core_one_hot(class_of(5), 5, &out), CORE_ERROR_INDEX, "5");
    FAILS(core_one_hot(class_of(-1), 5, &out), CORE_ERROR_INDEX, "5");
    FAILS(core_one_hot(class_of(0), 0, &out), CORE_ERROR_INDEX, "0");
    drop_all();
}
END_TEST

/* ----------------------------------------------------------------- float8 -- */

/* f8e4m3 has no infinity: what overflows is NaN, unless it is saturated. */
START_TEST(float8_of_nan_and_infinity_is_nan_infinity_or_the_largest)
{
    static const double from[] = {N, INF, -INF, 1e30, -1e30, 449, 3e-20};
    static const struct {
        core_dtype dtype;
        uint32_t flags;
        double right[7];
    } list[] = {
        {CORE_F8E4M3, 0, {N, N, N, N, N, 448, 0}},
        {CORE_F8E5M2, 0, {N, INF, -INF, INF, -INF, 448, 0}},
        {CORE_F8E4M3, CORE_FLOAT8_SATURATE, {N, 448, -448, 448, -448, 448, 0}},
        {CORE_F8E5M2,
         CORE_FLOAT8_SATURATE,
         {N, 57344, -57344, 57344, -57344, 448, 0}},
    };
    static const core_dtype dtypes[] = {CORE_F64, CORE_F32, CORE_BF16};

    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        for (int k = 0; k < 6; k++) {
            uint32_t random = k >= 3 ? CORE_FLOAT8_STOCHASTIC : 0;
            core_tensor *x = typed(dtypes[k % 3], 1, (int64_t[]){7}, from), *y;
            double got[7];

            OK(core_float8_cast(x, list[i].dtype, list[i].flags | random, NULL,
                                &y));
            keep(y);
            y = CALL(to_copy, y, CORE_F64, NULL, false, -1);
            OK(core_tensor_read(y, got, sizeof got));
            for (int e = 0; e < (random ? 5 : 7); e++)
                ck_assert_msg(isnan(list[i].right[e])
                                  ? isnan(got[e])
                                  : got[e] == list[i].right[e],
                              "%s to %s, flags %u, %g: %g",
                              core_dtype_name(dtypes[k % 3]),
                              core_dtype_name(list[i].dtype),
                              list[i].flags | random, from[e], got[e]);
            drop_all();
        }
}
END_TEST

SUITE("ops/ops_out_of_range", grid_points_out_of_range_are_padded_in_2d,
      grid_points_out_of_range_are_padded_in_3d,
      reflected_grid_points_select_pixels,
      gradients_of_grid_points_out_of_range_stay_in_the_image,
      sought_nan_and_infinity_have_positions,
      numbers_beyond_a_finite_row_are_at_its_ends,
      one_hot_refuses_extreme_classes,
      float8_of_nan_and_infinity_is_nan_infinity_or_the_largest)
