/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Inference for products of matrices and vectors. */

#include "dispatch/structured.h"
#include "ops/functions.h"

/* Two arguments and their names for error messages. */
typedef struct pair {
    const core_operator *op;
    const core_tensor *a, *b;
    const char *name_a, *name_b;
} pair;

static pair pair_at(const core__inference *infer, uint32_t first)
{
    return (pair){infer->op, core__arg_tensor(infer->args, first),
                  core__arg_tensor(infer->args, first + 1), "?", "?"};
}

/* Looks up the names before an error is reported. */
static const pair *named(pair *p, const core__inference *infer, uint32_t first)
{
    p->name_a = core__argument_name(infer->op, first);
    p->name_b = core__argument_name(infer->op, first + 1);
    return p;
}

static core_status rank_error(const pair *p, uint32_t ndim_a, uint32_t ndim_b)
{
    bool first = p->a->ndim != ndim_a;
    uint32_t wanted = first ? ndim_a : ndim_b;

    return core__op_shapes_error(
        p->op, p->name_a, p->a, p->name_b, p->b,
        "%s must have %u dimension%s, not %u", first ? p->name_a : p->name_b,
        wanted, wanted == 1 ? "" : "s", first ? p->a->ndim : p->b->ndim);
}

static core_status dtype_error(const pair *p)
{
    return core__op_error(CORE_ERROR_DTYPE, p->op,
                          "%s and %s must have the same dtype, not %s and %s",
                          p->name_a, p->name_b, core__dtype_name(p->a->dtype),
                          core__dtype_name(p->b->dtype));
}

/* Checks the summed dimension: the last of a, and the last but one of b if that
 * is a matrix. */
static core_status inner(core__inference *infer, uint32_t first)
{
    pair p = pair_at(infer, first);
    uint32_t last = p.a->ndim - 1, at = p.b->ndim > 1 ? p.b->ndim - 2 : 0;

    if (p.a->sizes[last] == p.b->sizes[at])
        return CORE_OK;
    named(&p, infer, first);
    return core__op_shapes_error(
        p.op, p.name_a, p.a, p.name_b, p.b,
        "dimension %u of %s must have the size of dimension "
        "%u of %s: %lld is not %lld",
        last, p.name_a, at, p.name_b, (long long)p.a->sizes[last],
        (long long)p.b->sizes[at]);
}

/* Checks ranks, the common dtype, and the summed dimension. */
static core_status product(core__inference *infer, uint32_t first,
                           uint32_t ndim_a, uint32_t ndim_b)
{
    pair p = pair_at(infer, first);

    if (p.a->ndim != ndim_a || p.b->ndim != ndim_b)
        return rank_error(named(&p, infer, first), ndim_a, ndim_b);
    if (p.a->dtype != p.b->dtype)
        return dtype_error(named(&p, infer, first));
    return inner(infer, first);
}

/* [b,] m, k times [b,] k, n; the ranks are 2 or 3. */
static core_status matrices(core__inference *infer, uint32_t first,
                            uint32_t ndim)
{
    pair p = pair_at(infer, first);
    int64_t sizes[3];

    CORE_TRY(product(infer, first, ndim, ndim));
    if (ndim == 3 && p.a->sizes[0] != p.b->sizes[0]) {
        named(&p, infer, first);
        return core__op_shapes_error(
            p.op, p.name_a, p.a, p.name_b, p.b,
            "the batches have %lld and %lld matrices; they must be equal",
            (long long)p.a->sizes[0], (long long)p.b->sizes[0]);
    }
    sizes[0] = p.a->sizes[0];
    sizes[ndim - 2] = p.a->sizes[ndim - 2];
    sizes[ndim - 1] = p.b->sizes[ndim - 1];
    core__result_set(&infer->results[0], p.a->dtype, ndim, sizes);
    return CORE_OK;
}

/* The added tensor must broadcast to the product. */
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
    if (self->dtype != core__arg_tensor(infer->args, 1)->dtype) {
        pair p = pair_at(infer, 0);

        return dtype_error(named(&p, infer, 0));
    }
    return CORE_OK;
}

CORE__INFER(mm)
{
    return matrices(infer, 0, 2);
}

/* Checks a float8 factor and its scale. */
static core_status scaled_factor(core__inference *infer, uint32_t at)
{
    const core_tensor *factor = core__arg_tensor(infer->args, at);
    const core_tensor *scale = core__arg_tensor(infer->args, at + 2);

    if (!core__dtype_is_storage((core_dtype)factor->dtype))
        return core__op_error(CORE_ERROR_DTYPE, infer->op,
                              "%s must be f8e4m3 or f8e5m2, not %s",
                              core__argument_name(infer->op, at),
                              core__dtype_name(factor->dtype));
    if (scale->dtype == CORE_F32 && scale->ndim == 0)
        return CORE_OK;
    return core__op_error(
        CORE_ERROR_DTYPE, infer->op,
        "%s is %s with %u dimensions; it must be f32 with 0 dimensions",
        core__argument_name(infer->op, at + 2), core__dtype_name(scale->dtype),
        scale->ndim);
}

static core_status scaled_bias(core__inference *infer)
{
    const core_tensor *bias = core__arg_tensor(infer->args, 4);
    const core__result_spec *result = &infer->results[0];

    if (!bias)
        return CORE_OK;
    if (bias->dtype != result->dtype)
        return core__op_error(CORE_ERROR_DTYPE, infer->op,
                              "bias is %s; it must be %s like the result",
                              core__dtype_name(bias->dtype),
                              core__dtype_name(result->dtype));
    if (bias->ndim == 1 && bias->sizes[0] == result->sizes[1])
        return CORE_OK;
    return core__op_error(CORE_ERROR_SHAPE, infer->op,
                          "bias must have one dimension of %lld",
                          (long long)result->sizes[1]);
}

/* _scaled_mm(self, mat2, scale_a, scale_b, bias, scale_result, out_dtype,
 * use_fast_accum): the factors may have different dtypes. */
CORE__INFER(scaled_mm)
{
    pair p = pair_at(infer, 0);
    core_dtype dtype = core__arg_dtype(infer->args, 6, CORE_DTYPE_NONE);

    CORE_TRY(scaled_factor(infer, 0));
    CORE_TRY(scaled_factor(infer, 1));
    if (core__arg_tensor(infer->args, 5))
        return core__op_error(CORE_ERROR_UNSUPPORTED, infer->op,
                              "scale_result is given; results of 8 bits, which "
                              "it is for, are not supported");
    if (dtype != CORE_F32 && dtype != CORE_BF16 && dtype != CORE_F16)
        return core__op_error(CORE_ERROR_DTYPE, infer->op,
                              "out_dtype must be f32, bf16 or f16, not %s",
                              dtype ? core__dtype_name(dtype) : "none");
    if (p.a->ndim != 2 || p.b->ndim != 2)
        return rank_error(named(&p, infer, 0), 2, 2);
    CORE_TRY(inner(infer, 0));
    core__result_set(&infer->results[0], dtype, 2,
                     (const int64_t[]){p.a->sizes[0], p.b->sizes[1]});
    return scaled_bias(infer);
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

    CORE_TRY(product(infer, first, 2, 1));
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
    pair p = pair_at(infer, 1);

    if (p.a->ndim != 1 || p.b->ndim != 1)
        return rank_error(named(&p, infer, 1), 1, 1);
    if (p.a->dtype != p.b->dtype)
        return dtype_error(named(&p, infer, 1));
    core__result_set(&infer->results[0], p.a->dtype, 2,
                     (const int64_t[]){p.a->sizes[0], p.b->sizes[0]});
    return added(infer);
}

CORE__INFER(dot)
{
    CORE_TRY(product(infer, 0, 1, 1));
    core__result_set(&infer->results[0],
                     core__arg_tensor(infer->args, 0)->dtype, 0, NULL);
    return CORE_OK;
}
