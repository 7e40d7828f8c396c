/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Float8 matrix products equal, on every device, the products of the numbers
 * that the codes represent. */

#include "support/devices.h"

#include <libcore/autocast.h>
#include <libcore/quantizer.h>

#include <math.h>

enum { M = 5, K = 48, N = 7 };

static const char *const places[] = {"cpu", "sim"};
static const core_dtype formats[2] = {CORE_F8E4M3, CORE_F8E5M2};
static const core_dtype results[3] = {CORE_F32, CORE_BF16, CORE_F16};

static core_tensor *at(const char *place, core_tensor *tensor, core_dtype dtype)
{
    return CALL(to_copy, tensor, dtype, device_of(place), false, -1);
}

static core_tensor *wave(const char *place, core_dtype dtype, size_t ndim,
                         const int64_t *sizes)
{
    double values[K * N];
    int64_t numel = 1;

    for (size_t i = 0; i < ndim; i++)
        numel *= sizes[i];
    for (int64_t i = 0; i < numel; i++)
        values[i] = sin((double)(i + 1) * 0.7) * 3;
    return at(place, typed(CORE_F64, ndim, sizes, values), dtype);
}

static core_tensor *scale(const char *place, double value)
{
    return CALL(full, NULL, 0, core_float(value), CORE_F32, device_of(place));
}

/* The operands of one product. */
typedef struct factors {
    core_tensor *a, *b, *scale_a, *scale_b, *bias;
    core_dtype dtype;
} factors;

static factors make_factors(const char *place, core_dtype a, core_dtype b,
                            core_dtype dtype)
{
    return (factors){
        .a = wave(place, a, 2, (int64_t[]){M, K}),
        .b = wave(place, b, 2, (int64_t[]){K, N}),
        .scale_a = scale(place, 0.3),
        .scale_b = scale(place, 1.7),
        .bias = wave(place, dtype, 1, (int64_t[]){N}),
        .dtype = dtype,
    };
}

static core_tensor *product(const factors *f)
{
    return CALL(scaled_mm, f->a, f->b, f->scale_a, f->scale_b, f->bias, NULL,
                f->dtype, false);
}

/* The expected product, computed in f32. */
static core_tensor *expected_product(const factors *f)
{
    core_tensor *a = CALL(dequantize, f->a, f->scale_a, CORE_F32);
    core_tensor *b = CALL(dequantize, f->b, f->scale_b, CORE_F32), *y;

    if (f->bias == NULL)
        y = CALL(mm, a, b);
    else
        y = CALL(addmm, CALL(to, f->bias, CORE_F32, NULL, false, false, -1), a,
                 b, core_float(1), core_float(1));
    return CALL(to, y, f->dtype, NULL, false, false, -1);
}

static void check_near(core_tensor *have, core_tensor *want, double error)
{
    double a[M * N], b[M * N];

    ck_assert_uint_eq(core_tensor_dtype(have), core_tensor_dtype(want));
    ck_assert_int_eq(core_tensor_numel(have), core_tensor_numel(want));
    OK(core_tensor_read(at("cpu", have, CORE_F64), a,
                        (size_t)core_tensor_numel(have) * sizeof *a));
    OK(core_tensor_read(at("cpu", want, CORE_F64), b,
                        (size_t)core_tensor_numel(have) * sizeof *b));
    for (int64_t i = 0; i < core_tensor_numel(have); i++)
        ck_assert_msg(a[i] == b[i] || fabs(a[i] - b[i]) <= error ||
                          (isnan(a[i]) && isnan(b[i])),
                      "%lld: %a, not %a", (long long)i, a[i], b[i]);
}

static void check_same(core_tensor *have, core_tensor *want)
{
    check_near(have, want, 0);
}

START_TEST(scaled_mm_equals_product_of_dequantized_numbers)
{
    for (int i = 0; i < 2 * 2 * 2 * 3 * 2; i++) {
        factors f = make_factors(places[i % 2], formats[i / 2 % 2],
                                 formats[i / 4 % 2], results[i / 8 % 3]);

        if (i / 24)
            f.bias = NULL;
        check_same(product(&f), expected_product(&f));
    }
}
END_TEST

/* Error bound of adding K products and the bias in any order: the summation
 * order of some BLAS libraries depends on the layout. */
static double rounding(const factors *f)
{
    core_tensor *a = CALL(dequantize, f->a, f->scale_a, CORE_F64);
    core_tensor *b = CALL(dequantize, f->b, f->scale_b, CORE_F64);
    core_tensor *all = CALL(mm, CALL(abs, a), CALL(abs, b));
    double most;

    OK(core_tensor_read(at("cpu", CALL(max, all), CORE_F64), &most,
                        sizeof most));
    return (most + 1) * K * ldexp(1, -24);
}

START_TEST(scaled_mm_gives_same_result_for_any_layout)
{
    for (int p = 0; p < 2; p++) {
        factors f = make_factors(places[p], CORE_F8E4M3, CORE_F8E5M2, CORE_F32);
        core_tensor *want = product(&f);
        double error = rounding(&f);

        f.a = CALL(t, CALL(contiguous, CALL(t, f.a), CORE_FORMAT_CONTIGUOUS));
        f.b = CALL(t, CALL(contiguous, CALL(t, f.b), CORE_FORMAT_CONTIGUOUS));
        check_near(product(&f), want, error);
    }
}
END_TEST

START_TEST(scaled_mm_propagates_nan)
{
    for (int p = 0; p < 2; p++) {
        factors f = make_factors(places[p], CORE_F8E4M3, CORE_F8E5M2, CORE_F32);
        core_tensor *row = CALL(select, f.a, 0, 1), *y;
        float values[M * N];

        OK(core_fill_(row, core_float(NAN)));
        y = product(&f);
        OK(core_tensor_read(y, values, sizeof values));
        for (int i = 0; i < M * N; i++)
            ck_assert_int_eq(isnan(values[i]) != 0, i / N == 1);
        check_same(y, expected_product(&f));
    }
}
END_TEST

START_TEST(scaled_mm_over_empty_dimension_returns_the_bias)
{
    factors f = make_factors("cpu", CORE_F8E4M3, CORE_F8E4M3, CORE_F32);
    core_tensor *want = CALL(to_copy, f.bias, CORE_F32, NULL, false, -1);

    f.a = CALL(narrow, f.a, 1, 0, 0);
    f.b = CALL(narrow, f.b, 0, 0, 0);
    check_same(CALL(select, product(&f), 0, 2), want);
    f.a = CALL(narrow, f.a, 0, 0, 0);
    ck_assert_int_eq(core_tensor_numel(product(&f)), 0);
}
END_TEST

START_TEST(autocast_does_not_change_scaled_mm)
{
    factors f = make_factors("cpu", CORE_F8E4M3, CORE_F8E4M3, CORE_F32);
    core_tensor *want = product(&f), *have;
    uint64_t region;

    OK(core_autocast_begin(device_of("cpu"), CORE_BF16, 0, &region));
    have = product(&f);
    OK(core_autocast_end(region));
    check_same(have, want);
}
END_TEST

START_TEST(scaled_mm_on_meta_returns_dtype_and_sizes)
{
    factors f = make_factors("cpu", CORE_F8E4M3, CORE_F8E5M2, CORE_BF16);
    core_tensor **all[] = {&f.a, &f.b, &f.scale_a, &f.scale_b, &f.bias}, *y;

    for (int i = 0; i < 5; i++)
        *all[i] = at("meta", *all[i], core_tensor_dtype(*all[i]));
    y = product(&f);
    ck_assert_uint_eq(core_tensor_dtype(y), CORE_BF16);
    ck_assert_int_eq(core_tensor_size(y, 0), M);
    ck_assert_int_eq(core_tensor_size(y, 1), N);
}
END_TEST

static void refused(const factors *f, core_tensor *scale_result,
                    core_status code, const char *text)
{
    core_tensor *y;

    FAILS(core_scaled_mm(f->a, f->b, f->scale_a, f->scale_b, f->bias,
                         scale_result, f->dtype, false, &y),
          code, text);
    ck_assert_ptr_null(y);
}

START_TEST(scaled_mm_refuses_invalid_arguments)
{
    const factors good =
        make_factors("cpu", CORE_F8E4M3, CORE_F8E4M3, CORE_BF16);
    factors f = good;

    f.a = wave("cpu", CORE_BF16, 2, (int64_t[]){M, K});
    refused(&f, NULL, CORE_ERROR_DTYPE, "self must be f8e4m3 or f8e5m2");
    f = good;
    f.b = wave("cpu", CORE_F32, 2, (int64_t[]){K, N});
    refused(&f, NULL, CORE_ERROR_DTYPE, "mat2 must be f8e4m3 or f8e5m2");
    f = good;
    f.scale_a = wave("cpu", CORE_F32, 1, (int64_t[]){M});
    refused(&f, NULL, CORE_ERROR_DTYPE, "scale_a is f32 with 1 dimensions");
    f = good;
    f.scale_b = CALL(full, NULL, 0, core_float(1), CORE_F64, NULL);
    refused(&f, NULL, CORE_ERROR_DTYPE, "scale_b is f64 with 0 dimensions");
    f = good;
    f.bias = wave("cpu", CORE_F32, 1, (int64_t[]){N});
    refused(&f, NULL, CORE_ERROR_DTYPE, "bias is f32; it must be bf16");
    f.bias = wave("cpu", CORE_BF16, 1, (int64_t[]){M});
    refused(&f, NULL, CORE_ERROR_SHAPE, "one dimension of 7");
    f = good;
    f.b = CALL(t, f.b);
    refused(&f, NULL, CORE_ERROR_SHAPE, "48 is not 7");
    f.b = CALL(select, good.b, 1, 0);
    refused(&f, NULL, CORE_ERROR_SHAPE, "mat2 must have 2 dimensions, not 1");
    f = good;
    f.dtype = CORE_DTYPE_NONE;
    refused(&f, NULL, CORE_ERROR_DTYPE, "not none");
    f.dtype = CORE_F8E4M3;
    refused(&f, NULL, CORE_ERROR_DTYPE, "not f8e4m3");
    refused(&good, good.scale_a, CORE_ERROR_UNSUPPORTED, "scale_result");
}
END_TEST

START_TEST(backward_through_scaled_mm_is_unsupported)
{
    factors f = make_factors("cpu", CORE_F8E4M3, CORE_F8E4M3, CORE_F32);
    core_tensor *y;

    f.bias = leaf(f.bias);
    y = CALL(sum, product(&f), CORE_DTYPE_NONE);
    FAILS(core_backward(&y, 1, NULL, 0), CORE_ERROR_UNSUPPORTED, "_scaled_mm");
}
END_TEST

SUITE("quant/scaled_mm", scaled_mm_equals_product_of_dequantized_numbers,
      scaled_mm_gives_same_result_for_any_layout, scaled_mm_propagates_nan,
      scaled_mm_over_empty_dimension_returns_the_bias,
      autocast_does_not_change_scaled_mm,
      scaled_mm_on_meta_returns_dtype_and_sizes,
      scaled_mm_refuses_invalid_arguments,
      backward_through_scaled_mm_is_unsupported)
