/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Matrix factorizations, singular and non-finite matrices; small cases of
 * searchsorted, histograms, unique and segment_reduce. */

#include "support/autograd.h"

#include <math.h>

#define SIZES(...) ((const int64_t[]){__VA_ARGS__})

/* Two matrices; the second needs a row exchange. */
static core_tensor *two_matrices(void)
{
    return typed(
        CORE_F64, 3, SIZES(2, 3, 3),
        (double[]){4, 1, 2, 1, 3, 0, 2, 0, 5, 0, 2, 1, 1, 1, 1, 3, 0, 2});
}

static void same(core_tensor *a, core_tensor *b)
{
    core_tensor *d = CALL(sub, a, b, core_int(1));

    ck_assert_uint_eq(core_tensor_ndim(a), core_tensor_ndim(b));
    d = CALL(lt_scalar, CALL(abs, d), core_float(1e-12));
    HOLDS(CALL(all, d), 1, 1);
}

static core_tensor *transposed(core_tensor *x)
{
    return CALL(transpose, x, -2, -1);
}

static core_tensor *identities(void)
{
    return CALL(expand, CALL(eye, 3, CORE_F64, NULL), SIZES(2, 3, 3), 3, false);
}

START_TEST(factors_multiply_back_to_the_matrix)
{
    core_tensor *a = two_matrices(), *p, *l, *u, *x, *info;
    core_tensor *s = CALL(matmul, a, transposed(a));

    OK(core_linalg_lu(a, true, &p, &l, &u));
    same(CALL(matmul, keep(p), CALL(matmul, keep(l), keep(u))), a);
    OK(core_linalg_svd_parts(a, false, true, NULL, &u, &l, &p));
    x = CALL(mul, keep(u), CALL(unsqueeze, keep(l), -2));
    same(CALL(matmul, x, keep(p)), a);
    OK(core_linalg_eigh_parts(s, "L", true, &l, &u));
    x = CALL(mul, keep(u), CALL(unsqueeze, keep(l), -2));
    same(CALL(matmul, x, transposed(u)), s);
    OK(core_linalg_inv_ex(a, true, &x, &info));
    keep(info);
    same(CALL(matmul, a, keep(x)), identities());
    OK(core_linalg_ldl_factor_ex(s, false, true, &l, &p, &info));
    keep(info);
    same(CALL(matmul, s,
              CALL(linalg_ldl_solve, keep(l), keep(p), identities(), false)),
         identities());
}
END_TEST

START_TEST(lu_solve_solves_both_sides_and_adjoint)
{
    core_tensor *a = two_matrices(), *lu, *pivots, *info, *x;

    OK(core_linalg_lu_factor_ex(a, true, true, &lu, &pivots, &info));
    keep(lu);
    keep(pivots);
    keep(info);
    x = CALL(linalg_lu_solve, lu, pivots, identities(), true, false);
    same(CALL(matmul, a, x), identities());
    x = CALL(linalg_lu_solve, lu, pivots, identities(), false, false);
    same(CALL(matmul, x, a), identities());
    x = CALL(linalg_lu_solve, lu, pivots, identities(), true, true);
    same(CALL(matmul, transposed(a), x), identities());
    x = CALL(linalg_lu_solve, lu, pivots, identities(), false, true);
    same(CALL(matmul, x, transposed(a)), identities());
}
END_TEST

START_TEST(singular_matrix_error_names_its_index)
{
    core_tensor *a = two_matrices(), *x, *info, *p;

    OK(core_fill_(CALL(select, CALL(select, a, 0, 1), 0, 2), core_int(0)));
    FAILS(core_linalg_inv_ex(a, true, &x, &info), CORE_ERROR_INVALID_ARGUMENT,
          "linalg_inv_ex", "matrix 1 is singular");
    FAILS(core_linalg_lu_factor_ex(a, true, true, &x, &p, &info),
          CORE_ERROR_INVALID_ARGUMENT, "linalg_lu_factor_ex",
          "matrix 1 is singular");
    OK(core_linalg_inv_ex(a, false, &x, &info));
    keep(x);
    HOLDS(keep(info), 2, 0, 3);
    OK(core_linalg_det_parts(a, &x, &p, &info));
    keep(p);
    keep(info);
    HOLDS(CALL(select, keep(x), 0, 1), 1, 0);
}
END_TEST

/* The determinant is smooth there: its gradient is the cofactor matrix. */
START_TEST(gradient_of_singular_determinant_is_the_cofactors)
{
    core_tensor *a = leaf(MATRIX(2, 2, 1, 2, 2, 4)), *x, *lu, *pivots;
    core_tensor *grad;

    OK(core_linalg_det_parts(a, &x, &lu, &pivots));
    keep(lu);
    keep(pivots);
    backward(keep(x));
    grad = core_tensor_grad(a);
    grad = CALL(sub, grad, MATRIX(2, 2, 4, -2, -2, 1), core_int(1));
    HOLDS(CALL(all, CALL(lt_scalar, CALL(abs, grad), core_float(1e-9))), 1, 1);
}
END_TEST

static core_tensor *determinant(core_tensor *a)
{
    core_tensor *x, *lu, *pivots;

    OK(core_linalg_det_parts(a, &x, &lu, &pivots));
    keep(lu);
    keep(pivots);
    return keep(x);
}

/* Checks d/da of sum(weights * cofactors(a)). */
static void second_is(core_tensor *a, core_tensor *weights, size_t count,
                      const double *expected)
{
    core_tensor *x = sum(determinant(a)), *first, *second, *off;

    OK(core_grad(&x, 1, NULL, &a, 1, CORE_CREATE_GRAPH, &first));
    keep(first);
    OK(core_grad(&first, 1, &weights, &a, 1, 0, &second));
    off = CALL(
        sub, keep(second),
        typed(CORE_F64, core_tensor_ndim(a), core_tensor_sizes(a), expected),
        core_int(1));
    off = CALL(abs, off);
    HOLDS(CALL(all, CALL(lt_scalar, off, core_float(1e-13))), 1, 1);
    ck_assert_uint_eq((size_t)core_tensor_numel(a), count);
}

#define SECOND_IS(a, weights, n, ...) \
    second_is(a, weights, n, (double[]){__VA_ARGS__})

/* Cofactors of a 2 x 2 matrix are its own elements; of a larger one, minors. */
START_TEST(second_derivative_of_singular_determinant_is_correct)
{
    core_tensor *w = MATRIX(2, 2, 1, 2, 3, 4);
    core_tensor *v = MATRIX(3, 3, 1, 0, 0, 0, 0, 0, 0, 0, 0);

    SECOND_IS(leaf(MATRIX(2, 2, 1, 2, 2, 4)), w, 4, 4, -3, -2, 1);
    SECOND_IS(leaf(MATRIX(2, 2, 0, 0, 0, 0)), w, 4, 4, -3, -2, 1);
    SECOND_IS(leaf(MATRIX(2, 2, 1e-12, 2e-12, 2e-12, 4e-12)), w, 4, 4, -3, -2,
              1);
    SECOND_IS(leaf(MATRIX(3, 3, 1, 2, 3, 4, 5, 6, 7, 8, 9)), v, 9, 0, 0, 0, 0,
              9, -8, 0, -6, 5);
    SECOND_IS(leaf(MATRIX(3, 3, 1, 2, 3, 2, 4, 6, -1, -2, -3)), v, 9, 0, 0, 0,
              0, -3, 2, 0, -6, 4);
    SECOND_IS(leaf(MATRIX(3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0)), v, 9, 0, 0, 0, 0,
              0, 0, 0, 0, 0);
    SECOND_IS(leaf(MATRIX(1, 1, 0)), MATRIX(1, 1, 7), 1, 0);
}
END_TEST

START_TEST(second_derivative_is_correct_for_nearly_equal_rows)
{
    core_tensor *v = MATRIX(3, 3, 1, 0, 0, 0, 0, 0, 0, 0, 0);
    core_tensor *w = MATRIX(3, 3, 0, 0, 0, 0, 0, 1, 0, 0, 0);
    core_tensor *a = leaf(MATRIX(3, 3, 1, 2, 3, 4, 5, 7, 4, 5, 7 + 1e-7));
    core_tensor *b = leaf(MATRIX(3, 3, 1, 2, 3, 4, 5, 7, 4, 5, 7 + 1e-14));

    SECOND_IS(a, v, 9, 0, 0, 0, 0, 7 + 1e-7, -5, 0, -7, 5);
    /* the cofactor -(a00 a21 - a01 a20) */
    SECOND_IS(a, w, 9, -5, 4, 0, 0, 0, 0, 2, -1, 0);
    SECOND_IS(b, v, 9, 0, 0, 0, 0, 7, -5, 0, -7, 5);
}
END_TEST

START_TEST(batch_may_contain_singular_matrices)
{
    const int64_t sizes[] = {2, 2, 2};
    core_tensor *a =
        leaf(typed(CORE_F64, 3, sizes, (double[]){1, 2, 2, 4, 1, 2, 3, 4}));
    core_tensor *w =
        typed(CORE_F64, 3, sizes, (double[]){1, 2, 3, 4, 5, 6, 7, 8});

    SECOND_IS(a, w, 8, 4, -3, -2, 1, 8, -7, -6, 5);
}
END_TEST

/* The first derivative as a function, so that its second is the third. */
static core_status slopes(void *context, core_tensor *const *inputs,
                          size_t ninputs, core_tensor **outputs,
                          size_t *noutputs)
{
    core_tensor *x = determinant(inputs[0]);

    (void)context;
    (void)ninputs;
    *noutputs = 1;
    return core_grad(&x, 1, NULL, inputs, 1, CORE_CREATE_GRAPH, outputs);
}

START_TEST(third_derivative_of_determinant_needs_regular_matrix)
{
    core_tensor *a = leaf(
        MATRIX(4, 4, 2, -1, .5, 3, 1, 4, -2, .25, -.5, 1.5, 3, 1, 2, 0, 1, -3));
    core_tensor *b = leaf(MATRIX(3, 3, 1, 2, 3, 4, 5, 6, 7, 8, 9));
    core_tensor *w = MATRIX(3, 3, 1, 0, 0, 0, 0, 0, 0, 0, 0);
    core_tensor *x = determinant(b), *first, *second, *third;

    OK(core_gradcheck(slopes, NULL, &a, 1, 1e-6, 1e-6, 1e-6));
    OK(core_gradgradcheck(slopes, NULL, &a, 1, 1e-6, 1e-5, 1e-5));
    OK(core_grad(&x, 1, NULL, &b, 1, CORE_CREATE_GRAPH, &first));
    keep(first);
    OK(core_grad(&first, 1, &w, &b, 1, CORE_CREATE_GRAPH, &second));
    second = sum(keep(second));
    FAILS(core_grad(&second, 1, NULL, &b, 1, 0, &third), CORE_ERROR_UNSUPPORTED,
          "determinant", "singular", "third");
}
END_TEST

START_TEST(cofactors_of_small_numbers_are_correct)
{
    core_tensor *a = leaf(MATRIX(2, 2, 1e-12, 2e-12, 2e-12, 4e-12)), *off;

    backward(determinant(a));
    off = CALL(mul_scalar, core_tensor_grad(a), core_float(1e12));
    off = CALL(sub, off, MATRIX(2, 2, 4, -2, -2, 1), core_int(1));
    HOLDS(CALL(all, CALL(lt_scalar, CALL(abs, off), core_float(1e-12))), 1, 1);
}
END_TEST

START_TEST(svd_and_eigh_refuse_non_finite_matrices)
{
    core_tensor *a = two_matrices(), *u, *s, *v;

    OK(core_fill_(CALL(select, CALL(select, a, 0, 1), 0, 2), core_float(NAN)));
    FAILS(core_linalg_svd_parts(a, false, true, NULL, &u, &s, &v),
          CORE_ERROR_INVALID_ARGUMENT, "_linalg_svd", "matrix 1", "not finite");
    FAILS(core_linalg_eigh_parts(a, "L", true, &u, &v),
          CORE_ERROR_INVALID_ARGUMENT, "_linalg_eigh", "matrix 1");
}
END_TEST

START_TEST(searchsorted_bucketize_and_isin_find_positions)
{
    core_tensor *row = VECTOR(5, 1, 3, 3, 5, 7);
    core_tensor *x = VECTOR(4, 0, 3, 7, NAN), *to;

    HOLDS(CALL(bucketize, x, row, false, false), 4, 0, 1, 4, 5);
    HOLDS(CALL(bucketize, x, row, false, true), 4, 0, 3, 5, 5);
    HOLDS(CALL(searchsorted, row, x, true, false, "right", NULL), 4, 0, 3, 5,
          5);
    FAILS(core_searchsorted(row, x, false, true, "left", NULL, &to),
          CORE_ERROR_INVALID_ARGUMENT, "searchsorted", "left");
    HOLDS(CALL(isin, x, row, false, false), 4, 0, 1, 1, 0);
}
END_TEST

START_TEST(histc_counts_both_ends_and_skips_outliers)
{
    core_tensor *x = VECTOR(6, -1, 0, .5, 1, 2, NAN), *to;
    core_tensor *n = typed(CORE_I64, 1, SIZES(3), (double[]){2, -1, 0});

    HOLDS(CALL(histc, x, 2, core_int(0), core_int(1)), 2, 1, 2);
    FAILS(core_histc(x, 2, core_int(0), core_int(0), &to),
          CORE_ERROR_INVALID_ARGUMENT, "histc", "not finite");
    FAILS(core_bincount(n, NULL, 0, &to), CORE_ERROR_INVALID_ARGUMENT,
          "bincount", "element 1", "negative");
}
END_TEST

START_TEST(unique_and_mode_find_equal_elements)
{
    core_tensor *x = VECTOR(6, 3, 1, 1, 3, 3, 2), *values, *at, *counts;

    OK(core_unique2(x, true, true, true, &values, &at, &counts));
    HOLDS(keep(values), 3, 1, 2, 3);
    HOLDS(keep(at), 6, 2, 0, 0, 2, 2, 1);
    HOLDS(keep(counts), 3, 2, 1, 3);
    OK(core_unique_consecutive(x, true, true, NULL, &values, &at, &counts));
    HOLDS(keep(values), 4, 3, 1, 3, 2);
    HOLDS(keep(at), 6, 0, 1, 1, 2, 2, 3);
    HOLDS(keep(counts), 4, 1, 2, 2, 1);
    OK(core_mode_values(x, 0, false, &values, &at));
    HOLDS(keep(values), 1, 3);
    HOLDS(keep(at), 1, 4);
}
END_TEST

START_TEST(segment_reduce_accepts_empty_segments)
{
    core_tensor *x = VECTOR(3, 1, 2, 6), *to;
    core_tensor *n = typed(CORE_I64, 1, SIZES(3), (double[]){2, 0, 1});
    core_tensor *bad = typed(CORE_I64, 1, SIZES(2), (double[]){2, 2});
    const core_scalar one = core_int(1);

    HOLDS(CALL(segment_reduce, x, "sum", n, NULL, NULL, 0, false, NULL), 3, 3,
          0, 6);
    HOLDS(CALL(segment_reduce, x, "max", n, NULL, NULL, 0, false, &one), 3, 2,
          1, 6);
    HOLDS(CALL(segment_reduce, x, "mean", n, NULL, NULL, 0, false, &one), 3, 2,
          1, 7);
    n = typed(CORE_I64, 1, SIZES(2), (double[]){1, 2});
    HOLDS(CALL(segment_reduce, x, "sum", NULL, NULL, n, 0, false, NULL), 1, 2);
    n = typed(CORE_I64, 1, SIZES(2), (double[]){2, 1});
    FAILS(core_segment_reduce(x, "sum", NULL, NULL, n, 0, false, NULL, &to),
          CORE_ERROR_INVALID_ARGUMENT, "segment_reduce", "decrease");
    n = typed(CORE_I64, 1, SIZES(2), (double[]){1, 4});
    FAILS(core_segment_reduce(x, "sum", NULL, NULL, n, 0, false, NULL, &to),
          CORE_ERROR_INDEX, "segment_reduce", "outside 0 to 3");
    n = typed(CORE_I64, 1, SIZES(2), (double[]){-1, 2});
    FAILS(core_segment_reduce(x, "sum", NULL, NULL, n, 0, false, NULL, &to),
          CORE_ERROR_INDEX, "segment_reduce", "outside 0 to 3");
    FAILS(core_segment_reduce(x, "sum", bad, NULL, NULL, 0, false, NULL, &to),
          CORE_ERROR_INVALID_ARGUMENT, "segment_reduce", "add up to 3");
}
END_TEST

SUITE("ops/ops_factors", factors_multiply_back_to_the_matrix,
      lu_solve_solves_both_sides_and_adjoint,
      singular_matrix_error_names_its_index,
      gradient_of_singular_determinant_is_the_cofactors,
      second_derivative_of_singular_determinant_is_correct,
      second_derivative_is_correct_for_nearly_equal_rows,
      batch_may_contain_singular_matrices,
      third_derivative_of_determinant_needs_regular_matrix,
      cofactors_of_small_numbers_are_correct,
      svd_and_eigh_refuse_non_finite_matrices,
      searchsorted_bucketize_and_isin_find_positions,
      histc_counts_both_ends_and_skips_outliers,
      unique_and_mode_find_equal_elements,
      segment_reduce_accepts_empty_segments)
