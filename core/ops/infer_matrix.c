/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Results of products of matrices and vectors. */

#include "ops/functions.h"

static core_status ranks(const core_operator *op, const char *name_a,
                         const core_tensor *a, uint32_t ndim_a,
                         const char *name_b, const core_tensor *b,
                         uint32_t ndim_b)
{
    bool first = a->ndim != ndim_a;
    uint32_t wanted = first ? ndim_a : ndim_b;

    if (!first && b->ndim == ndim_b)
        return CORE_OK;
    return core__op_shapes(op, name_a, a, name_b, b,
                           "%s must have %u dimension%s, not %u",
                           first ? name_a : name_b, wanted,
                           wanted == 1 ? "" : "s", first ? a->ndim : b->ndim);
}

static core_status same_dtype(const core_operator *op, const core_tensor *a,
                              const core_tensor *b)
{
    if (a->dtype == b->dtype)
        return CORE_OK;
    return core__op_error(CORE_ERROR_DTYPE, op,
                          "operands must have one dtype; there are %s and %s",
                          core__dtype_name(a->dtype),
                          core__dtype_name(b->dtype));
}

static core_status inner(const core_operator *op, const core_tensor *a,
                         const core_tensor *b, int64_t of_a, int64_t of_b)
{
    char text_a[256];
    char text_b[256];

    if (of_a == of_b)
        return CORE_OK;
    return core__op_error(
        CORE_ERROR_SHAPE, op, "%s times %s: %lld is not %lld",
        core__sizes_text(a->ndim, a->sizes, text_a, sizeof text_a),
        core__sizes_text(b->ndim, b->sizes, text_b, sizeof text_b),
        (long long)of_a, (long long)of_b);
}

/* [b,] m, k times [b,] k, n; ranks 2, or 3. */
static core_status matrices(core__inference *infer, uint32_t first,
                            uint32_t ndim)
{
    const core_tensor *a = core__arg_tensor(infer->args, first);
    const core_tensor *b = core__arg_tensor(infer->args, first + 1);
    int64_t sizes[3];

    CORE_TRY(
        ranks(infer->op, "the left side", a, ndim, "the right side", b, ndim));
    CORE_TRY(same_dtype(infer->op, a, b));
    CORE_TRY(inner(infer->op, a, b, a->sizes[ndim - 1], b->sizes[ndim - 2]));
    if (ndim == 3 && a->sizes[0] != b->sizes[0])
        return core__op_shapes(infer->op, "the left side", a, "the right side",
                               b, "%lld matrices times %lld",
                               (long long)a->sizes[0], (long long)b->sizes[0]);
    sizes[0] = a->sizes[0];
    sizes[ndim - 2] = a->sizes[ndim - 2];
    sizes[ndim - 1] = b->sizes[ndim - 1];
    core__result_set(&infer->results[0], a->dtype, ndim, sizes);
    return CORE_OK;
}

/* What is added must broadcast to the product. */
static core_status added(core__inference *infer)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    const core__result_spec *result = &infer->results[0];
    bool fits = self->ndim <= result->ndim;
    char have[256];
    char want[256];

    for (uint32_t i = 0; fits && i < self->ndim; i++) {
        int64_t size = self->sizes[self->ndim - 1 - i];

        fits = size == 1 || size == result->sizes[result->ndim - 1 - i];
    }
    if (!fits)
        return core__op_error(
            CORE_ERROR_SHAPE, infer->op,
            "self has sizes %s, which do not broadcast to the product's %s",
            core__sizes_text(self->ndim, self->sizes, have, sizeof have),
            core__sizes_text(result->ndim, result->sizes, want, sizeof want));
    return same_dtype(infer->op, self, core__arg_tensor(infer->args, 1));
}

CORE__INFER(mm)
{
    return matrices(infer, 0, 2);
}

CORE__INFER(bmm)
{
    return matrices(infer, 0, 3);
}

CORE__INFER(addmm)
{
    CORE_TRY(matrices(infer, 1, 2));
    return added(infer);
}

CORE__INFER(baddbmm)
{
    CORE_TRY(matrices(infer, 1, 3));
    return added(infer);
}

CORE__INFER(addbmm)
{
    CORE_TRY(matrices(infer, 1, 3));
    infer->results[0].ndim = 2;
    infer->results[0].sizes[0] = infer->results[0].sizes[1];
    infer->results[0].sizes[1] = infer->results[0].sizes[2];
    return added(infer);
}

static core_status matrix_vector(core__inference *infer, uint32_t first)
{
    const core_tensor *a = core__arg_tensor(infer->args, first);
    const core_tensor *b = core__arg_tensor(infer->args, first + 1);

    CORE_TRY(ranks(infer->op, "the matrix", a, 2, "the vector", b, 1));
    CORE_TRY(same_dtype(infer->op, a, b));
    CORE_TRY(inner(infer->op, a, b, a->sizes[1], b->sizes[0]));
    core__result_set(&infer->results[0], a->dtype, 1, a->sizes);
    return CORE_OK;
}

CORE__INFER(mv)
{
    return matrix_vector(infer, 0);
}

CORE__INFER(addmv)
{
    CORE_TRY(matrix_vector(infer, 1));
    return added(infer);
}

CORE__INFER(addr)
{
    const core_tensor *a = core__arg_tensor(infer->args, 1);
    const core_tensor *b = core__arg_tensor(infer->args, 2);

    CORE_TRY(ranks(infer->op, "vec1", a, 1, "vec2", b, 1));
    CORE_TRY(same_dtype(infer->op, a, b));
    core__result_set(&infer->results[0], a->dtype, 2,
                     (const int64_t[]){a->sizes[0], b->sizes[0]});
    return added(infer);
}

CORE__INFER(dot)
{
    const core_tensor *a = core__arg_tensor(infer->args, 0);
    const core_tensor *b = core__arg_tensor(infer->args, 1);

    CORE_TRY(ranks(infer->op, "self", a, 1, "the other vector", b, 1));
    CORE_TRY(same_dtype(infer->op, a, b));
    CORE_TRY(inner(infer->op, a, b, a->sizes[0], b->sizes[0]));
    core__result_set(&infer->results[0], a->dtype, 0, NULL);
    return CORE_OK;
}
