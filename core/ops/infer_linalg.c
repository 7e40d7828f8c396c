/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Inference for Cholesky and QR factorizations and triangular solves. */

#include "ops/functions.h"
#include "ops/shape.h"

#include <string.h>

static core_status matrices(const core_operator *op, const char *name,
                            const core_tensor *tensor, bool square)
{
    uint32_t n = tensor->ndim;
    char text[256];

    if (!core__dtype_is_floating(tensor->dtype))
        return core__op_error(CORE_ERROR_DTYPE, op,
                              "%s must have a floating dtype, not %s", name,
                              core__dtype_name(tensor->dtype));
    if (n >= 2 && (!square || tensor->sizes[n - 1] == tensor->sizes[n - 2]))
        return CORE_OK;
    return core__op_error(
        CORE_ERROR_SHAPE, op,
        "%s has sizes %s; it must be a %smatrix or a batch of them", name,
        core__sizes_text(n, tensor->sizes, text, sizeof text),
        square ? "square " : "");
}

/* linalg_cholesky_ex(self, *, upper, check_errors) -> (L, info) */
CORE__INFER(cholesky)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);

    CORE_TRY(matrices(infer->op, "self", self, true));
    core__result_like(&infer->results[0], self);
    core__result_set(&infer->results[1], CORE_I32, self->ndim - 2, self->sizes);
    return CORE_OK;
}

/* linalg_qr(A, mode): "reduced", "complete", or "r" (Q is empty) */
CORE__INFER(qr)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    const char *mode = infer->args[1].u.string;
    core__result_spec *q = &infer->results[0];
    core__result_spec *r = &infer->results[1];
    uint32_t n = self->ndim;
    int64_t rows;
    int64_t least;
    int64_t none = 0;

    CORE_TRY(matrices(infer->op, "A", self, false));
    rows = self->sizes[n - 2];
    least = rows < self->sizes[n - 1] ? rows : self->sizes[n - 1];
    core__result_like(q, self);
    core__result_like(r, self);
    if (strcmp(mode, "complete") == 0) {
        q->sizes[n - 1] = rows;
        return CORE_OK;
    }
    q->sizes[n - 1] = least;
    r->sizes[n - 2] = least;
    if (strcmp(mode, "r") == 0)
        core__result_set(q, self->dtype, 1, &none);
    else if (strcmp(mode, "reduced") != 0)
        return core__op_error(
            CORE_ERROR_INVALID_ARGUMENT, infer->op,
            "mode must be \"reduced\", \"complete\" or \"r\", not \"%s\"",
            mode);
    return CORE_OK;
}

/* _solve_triangular(self, B, *, upper, left, unitriangular): equal batches */
CORE__INFER(solve_triangular)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    const core_tensor *b = core__arg_tensor(infer->args, 1);
    bool left = core__arg_bool(infer->args, 3, true);
    core_tensor batches = {.sizes = self->sizes};
    int64_t side;

    CORE_TRY(matrices(infer->op, "self", self, true));
    CORE_TRY(matrices(infer->op, "B", b, false));
    side = b->sizes[b->ndim - (left ? 2 : 1)];
    if (side != self->sizes[self->ndim - 1])
        return core__op_error(
            CORE_ERROR_SHAPE, infer->op,
            "self has %lld rows and B %lld %s; they must be equal",
            (long long)self->sizes[self->ndim - 1], (long long)side,
            left ? "rows" : "columns");
    if (self->dtype != b->dtype)
        return core__op_error(
            CORE_ERROR_DTYPE, infer->op,
            "self is %s and B %s; they must have the same dtype",
            core__dtype_name(self->dtype), core__dtype_name(b->dtype));
    batches.ndim = (uint8_t)(self->ndim - 2);
    CORE_TRY(core__sizes_check_equal(infer->op,
                                     "self, without its last two dimensions,",
                                     &batches, b->ndim - 2, b->sizes));
    core__result_like(&infer->results[0], b);
    return CORE_OK;
}
