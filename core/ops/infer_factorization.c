/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Inference for LU, LDL, determinants, spectra and related operators. */

#include "ops/functions.h"
#include "ops/shape.h"

#include <string.h>

static core_status check_matrix(const core_operator *op,
                                const core_tensor *self, bool square)
{
    uint32_t n = self->ndim;
    char text[256];

    if (!core__dtype_is_floating(self->dtype))
        return core__op_error(CORE_ERROR_DTYPE, op,
                              "self must have a floating dtype, not %s",
                              core__dtype_name(self->dtype));
    if (n >= 2 && (!square || self->sizes[n - 1] == self->sizes[n - 2]))
        return CORE_OK;
    return core__op_error(
        CORE_ERROR_SHAPE, op,
        "self has sizes %s; it must be a %smatrix or a batch of them",
        core__sizes_text(n, self->sizes, text, sizeof text),
        square ? "square " : "");
}

/* A result of the matrix's sizes, row-major. */
static void whole(core__result_spec *result, const core_tensor *self)
{
    core__result_set(result, self->dtype, self->ndim, self->sizes);
}

/* One number per matrix. */
static void one_each(core__result_spec *result, core_dtype dtype,
                     const core_tensor *self)
{
    core__result_set(result, dtype, self->ndim - 2, self->sizes);
}

/* `count` numbers per matrix. */
static void some_each(core__result_spec *result, core_dtype dtype,
                      const core_tensor *self, int64_t count)
{
    core__result_set(result, dtype, self->ndim - 1, self->sizes);
    result->sizes[self->ndim - 2] = count;
}

static int64_t shorter(const core_tensor *self)
{
    int64_t m = self->sizes[self->ndim - 2];
    int64_t n = self->sizes[self->ndim - 1];

    return m < n ? m : n;
}

/* linalg_lu_factor_ex(A, *, pivot, check_errors) -> (LU, pivots, info) */
CORE__INFER(lu_factor)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);

    CORE_TRY(check_matrix(infer->op, self, false));
    whole(&infer->results[0], self);
    some_each(&infer->results[1], CORE_I32, self, shorter(self));
    one_each(&infer->results[2], CORE_I32, self);
    return CORE_OK;
}

/* linalg_ldl_factor_ex(self, *, hermitian, check_errors), for square
 * matrices */
CORE__INFER(ldl_factor)
{
    CORE_TRY(check_matrix(infer->op, core__arg_tensor(infer->args, 0), true));
    return core__infer_lu_factor(infer);
}

/* linalg_inv_ex(A, *, check_errors) -> (inverse, info) */
CORE__INFER(inverse)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);

    CORE_TRY(check_matrix(infer->op, self, true));
    whole(&infer->results[0], self);
    one_each(&infer->results[1], CORE_I32, self);
    return CORE_OK;
}

/* _linalg_det(A) -> (result, LU, pivots), _linalg_slogdet(A) -> (sign,
 * logabsdet, LU, pivots) */
CORE__INFER(determinant)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    uint32_t at = infer->op->nresults - 2;

    CORE_TRY(check_matrix(infer->op, self, true));
    for (uint32_t i = 0; i < at; i++)
        one_each(&infer->results[i], self->dtype, self);
    whole(&infer->results[at], self);
    some_each(&infer->results[at + 1], CORE_I32, self, shorter(self));
    return CORE_OK;
}

/* _lu_permutation(pivots, rows, dtype) */
CORE__INFER(lu_permutation)
{
    const core_tensor *pivots = core__arg_tensor(infer->args, 0);
    core__result_spec *result = &infer->results[0];
    int64_t rows = infer->args[1].u.i;

    if (pivots->dtype != CORE_I32)
        return core__op_error(CORE_ERROR_DTYPE, infer->op,
                              "pivots must be i32, not %s",
                              core__dtype_name(pivots->dtype));
    if (pivots->ndim == 0 || pivots->sizes[pivots->ndim - 1] > rows)
        return core__op_error(CORE_ERROR_SHAPE, infer->op,
                              "pivots must have at least 1 dimension, the last "
                              "of size %lld at most",
                              (long long)rows);
    CORE_TRY(core__ndim_check(infer->op, pivots->ndim + 1));
    core__result_set(result, core__arg_dtype(infer->args, 2, CORE_F32),
                     pivots->ndim, pivots->sizes);
    result->ndim++;
    result->sizes[result->ndim - 2] = rows;
    result->sizes[result->ndim - 1] = rows;
    return core__sizes_check(infer->op, result->ndim, result->sizes);
}

/* _linalg_ldl_solve(LD, pivots, B, *, hermitian): batches must be equal */
CORE__INFER(ldl_solve)
{
    const core_tensor *ld = core__arg_tensor(infer->args, 0);
    const core_tensor *pivots = core__arg_tensor(infer->args, 1);
    const core_tensor *b = core__arg_tensor(infer->args, 2);
    core_tensor batches = {.sizes = ld->sizes};

    CORE_TRY(check_matrix(infer->op, ld, true));
    CORE_TRY(check_matrix(infer->op, b, false));
    if (ld->dtype != b->dtype || pivots->dtype != CORE_I32)
        return core__op_error(CORE_ERROR_DTYPE, infer->op,
                              "LD is %s, B %s and pivots %s; LD and B must "
                              "have the same dtype and pivots i32",
                              core__dtype_name(ld->dtype),
                              core__dtype_name(b->dtype),
                              core__dtype_name(pivots->dtype));
    if (b->sizes[b->ndim - 2] != ld->sizes[ld->ndim - 1])
        return core__op_error(
            CORE_ERROR_SHAPE, infer->op,
            "LD has %lld columns and B %lld rows; they must be equal",
            (long long)ld->sizes[ld->ndim - 1],
            (long long)b->sizes[b->ndim - 2]);
    CORE_TRY(core__sizes_check_equal(infer->op, "pivots", pivots, ld->ndim - 1,
                                     ld->sizes));
    batches.ndim = (uint8_t)(ld->ndim - 2);
    CORE_TRY(core__sizes_check_equal(infer->op,
                                     "LD, without its last two dimensions,",
                                     &batches, b->ndim - 2, b->sizes));
    whole(&infer->results[0], b);
    return CORE_OK;
}

/* geqrf(self) -> (a, tau) */
CORE__INFER(geqrf)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);

    CORE_TRY(check_matrix(infer->op, self, false));
    whole(&infer->results[0], self);
    some_each(&infer->results[1], self->dtype, self, shorter(self));
    return CORE_OK;
}

/* _linalg_eigh(A, UPLO, compute_v) -> (eigenvalues, eigenvectors) */
CORE__INFER(eigh)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    const char *half =
        infer->args[1].tag == CORE_VALUE_STRING ? infer->args[1].u.string : "L";
    int64_t none = 0;

    CORE_TRY(check_matrix(infer->op, self, true));
    if (!half[0] || half[1] || !strchr("LUlu", half[0]))
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, infer->op,
                              "UPLO must be \"L\" or \"U\", not \"%s\"", half);
    some_each(&infer->results[0], self->dtype, self, shorter(self));
    if (core__arg_bool(infer->args, 2, true))
        whole(&infer->results[1], self);
    else
        core__result_set(&infer->results[1], self->dtype, 1, &none);
    return CORE_OK;
}

/* _linalg_svd(A, full_matrices, compute_uv, *, driver) -> (U, S, Vh) */
CORE__INFER(svd)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    core__result_spec *u = &infer->results[0];
    core__result_spec *vh = &infer->results[2];
    bool full = core__arg_bool(infer->args, 1, false);
    uint32_t n = self->ndim;
    int64_t none = 0;

    CORE_TRY(check_matrix(infer->op, self, false));
    if (infer->args[3].tag == CORE_VALUE_STRING)
        return core__op_error(
            CORE_ERROR_UNSUPPORTED, infer->op,
            "driver is \"%s\"; a driver cannot be chosen, it must be none",
            infer->args[3].u.string);
    some_each(&infer->results[1], self->dtype, self, shorter(self));
    if (!core__arg_bool(infer->args, 2, true)) {
        core__result_set(u, self->dtype, 1, &none);
        core__result_set(vh, self->dtype, 1, &none);
        return CORE_OK;
    }
    whole(u, self);
    whole(vh, self);
    u->sizes[n - 1] = full ? self->sizes[n - 2] : shorter(self);
    vh->sizes[n - 2] = full ? self->sizes[n - 1] : shorter(self);
    return CORE_OK;
}

/* linalg_matrix_exp(self) */
CORE__INFER(matrix_exp)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);

    CORE_TRY(check_matrix(infer->op, self, true));
    whole(&infer->results[0], self);
    return CORE_OK;
}
