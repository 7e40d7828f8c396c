/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Scaled products of 8-bit matrices, with scales for a whole matrix or for each
 * of its rows.  All are made of _scaled_mm, which takes scales of the first
 * kind. */

#include "base/memory.h"
#include "dispatch/structured.h"
#include "ops/expression.h"
#include "ops/shape.h"

#include <libcore/tensor.h>

/* ATen's ScalingType. */
enum { TENSOR_WISE = 0, ROW_WISE = 1 };

/* A factor and its scale, f32: without dimensions, or one for each row of self
 * or column of mat2. */
typedef struct factor {
    core_tensor *matrix, *scale;
    bool by_row;
} factor;

/* ---------------------------------------------------------------- checks -- */

/* The recipe from the arguments scales, recipes and swizzles at `at`. */
static core_status recipe_of(const core_operator *op, const core_value *args,
                             uint32_t at, int64_t *out)
{
    size_t count, swizzles;
    const int64_t *recipe = core__ints_of(&args[at + 1], &count);
    const int64_t *swizzle = core__ints_of(&args[at + 2], &swizzles);

    if (args[at].count != 1 || count != 1 || !args[at].u.tensors[0])
        return core__op_error(
            CORE_ERROR_UNSUPPORTED, op,
            "%s has %u scales and %s %zu numbers; only one of each is "
            "supported",
            core__argument_name(op, at), args[at].count,
            core__argument_name(op, at + 1), count);
    if (recipe[0] != TENSOR_WISE && recipe[0] != ROW_WISE)
        return core__op_error(CORE_ERROR_UNSUPPORTED, op,
                              "%s is %lld; supported are 0, a scale for the "
                              "whole matrix, and 1, a scale for each row",
                              core__argument_name(op, at + 1),
                              (long long)recipe[0]);
    for (size_t i = 0; i < swizzles; i++)
        if (swizzle[i] != 0)
            return core__op_error(CORE_ERROR_UNSUPPORTED, op,
                                  "%s is %lld; only scales without swizzle, "
                                  "which is 0, are supported",
                                  core__argument_name(op, at + 2),
                                  (long long)swizzle[i]);
    *out = recipe[0];
    return CORE_OK;
}

/* Only the dimensions of a matrix product can be summed. */
static core_status check_contraction(const core_operator *op,
                                     const core_value *dims)
{
    size_t count;
    const int64_t *d = core__ints_of(dims, &count);

    if (count == 0 || (count == 2 && d[0] == -1 && d[1] == -2))
        return CORE_OK;
    return core__op_error(CORE_ERROR_UNSUPPORTED, op,
                          "contraction_dim has %zu dimensions; it must be "
                          "empty or [-1, -2]",
                          count);
}

static core_status check_out_dtype(const core_operator *op, core_dtype dtype)
{
    if (dtype == CORE_F32 || dtype == CORE_BF16 || dtype == CORE_F16)
        return CORE_OK;
    return core__op_error(CORE_ERROR_DTYPE, op,
                          "the result must be f32, bf16 or f16, not %s",
                          dtype ? core__dtype_name(dtype) : "none");
}

/* The scale at `at`, reshaped to these sizes. */
static core_status scale_of(core__scope *scope, const core_operator *op,
                            const core_value *args, uint32_t at, size_t ndim,
                            const int64_t *sizes, core_tensor **out)
{
    core_tensor *scale = args[at].u.tensors[0];
    int64_t count = 1;

    for (size_t i = 0; i < ndim; i++)
        count *= sizes[i];
    if (scale->dtype != CORE_F32 || scale->numel != count)
        return core__op_error(CORE_ERROR_SHAPE, op,
                              "%s[0] has %lld elements of %s; it must have "
                              "%lld of f32",
                              core__argument_name(op, at),
                              (long long)scale->numel,
                              core__dtype_name(scale->dtype), (long long)count);
    *out = core__x_reshape(scope, scale, sizes, ndim);
    return scope->status;
}

/* -------------------------------------------------------------- products -- */

/* The product in f32, before it is multiplied by scales of rows. */
static core_tensor *unscaled(core__scope *s, const factor *a, const factor *b,
                             bool fast)
{
    core_tensor *one = NULL;

    if (a->by_row || b->by_row)
        one = CORE__DO(s, core_full, NULL, 0, core_float(1), CORE_F32,
                       a->matrix->device);
    return CORE__DO(s, core_scaled_mm, a->matrix, b->matrix,
                    a->by_row ? one : a->scale, b->by_row ? one : b->scale,
                    NULL, NULL, CORE_F32, fast);
}

/* The product in f32. */
static core_tensor *product(core__scope *s, const factor *a, const factor *b,
                            bool fast)
{
    core_tensor *x = unscaled(s, a, b, fast);

    if (a->by_row)
        x = core__x_mul(s, x, core__x_unsqueeze(s, a->scale, 1));
    return b->by_row ? core__x_mul(s, x, b->scale) : x;
}

/* The factors of self at `first` and the matrix after it. */
static core_status factors_of(core__scope *scope, const core_operator *op,
                              const core_value *args, uint32_t first, factor *a,
                              factor *b)
{
    int64_t recipe_a, recipe_b;

    *a = (factor){.matrix = args[first].u.tensor};
    *b = (factor){.matrix = args[first + 1].u.tensor};
    if (a->matrix->ndim != 2 || b->matrix->ndim != 2)
        return core__op_shapes_error(op, core__argument_name(op, first),
                                     a->matrix,
                                     core__argument_name(op, first + 1),
                                     b->matrix, "both must have 2 dimensions");
    CORE_TRY(recipe_of(op, args, first + 2, &recipe_a));
    CORE_TRY(recipe_of(op, args, first + 5, &recipe_b));
    a->by_row = recipe_a == ROW_WISE;
    b->by_row = recipe_b == ROW_WISE;
    CORE_TRY(scale_of(scope, op, args, first + 2, a->by_row, a->matrix->sizes,
                      &a->scale));
    return scale_of(scope, op, args, first + 5, b->by_row, b->matrix->sizes + 1,
                    &b->scale);
}

/* _scaled_mm_v2(self, mat2, scale_a, recipe_a, swizzle_a, scale_b, recipe_b,
 * swizzle_b, bias, out_dtype, contraction_dim, use_fast_accum) */
CORE__COMPOSITE(scaled_mm_v2)
{
    core_tensor *bias = core__arg_tensor(args, 8);
    core_dtype dtype = core__arg_dtype(args, 9, CORE_DTYPE_NONE);
    bool fast = core__arg_bool(args, 11, false);
    factor a, b;
    core_tensor *x;

    CORE_TRY(factors_of(scope, call->op, args, 0, &a, &b));
    CORE_TRY(check_contraction(call->op, &args[10]));
    if (!a.by_row && !b.by_row) {
        x = CORE__DO(scope, core_scaled_mm, a.matrix, b.matrix, a.scale,
                     b.scale, bias, NULL, dtype, fast);
        return core__scope_result(scope, x, &results[0]);
    }
    CORE_TRY(check_out_dtype(call->op, dtype));
    if (bias && (bias->ndim != 1 || bias->sizes[0] != b.matrix->sizes[1] ||
                 bias->dtype != dtype))
        return core__op_error(CORE_ERROR_SHAPE, call->op,
                              "bias must have one dimension of %lld, and dtype "
                              "%s like the result",
                              (long long)b.matrix->sizes[1],
                              core__dtype_name(dtype));
    x = product(scope, &a, &b, fast);
    if (bias)
        x = core__x_add(scope, x, core__x_cast(scope, bias, CORE_F32));
    return core__scope_result(scope, core__x_cast(scope, x, dtype),
                              &results[0]);
}

/* _scaled_addmm(self, mat1, mat2, scale_a, recipe_a, swizzle_a, scale_b,
 * recipe_b, swizzle_b, contraction_dim, *, beta, alpha, use_fast_accum):
 * beta self + alpha times the product, in self's dtype */
CORE__COMPOSITE(scaled_addmm)
{
    core_tensor *self = args[0].u.tensor;
    core_scalar beta = core__arg_number(args, 10, 1);
    core_scalar alpha = core__arg_number(args, 11, 1);
    bool fast = core__arg_bool(args, 12, false);
    factor a, b;
    core_tensor *x, *added;

    CORE_TRY(check_out_dtype(call->op, (core_dtype)self->dtype));
    CORE_TRY(factors_of(scope, call->op, args, 1, &a, &b));
    CORE_TRY(check_contraction(call->op, &args[9]));
    x = product(scope, &a, &b, fast);
    x = CORE__DO(scope, core_mul_scalar, x, alpha);
    added = CORE__DO(scope, core_expand, self,
                     (const int64_t[]){a.matrix->sizes[0], b.matrix->sizes[1]},
                     2, false);
    if (core__double_of(&beta) != 0)
        x = CORE__DO(scope, core_add, x, core__x_cast(scope, added, CORE_F32),
                     beta);
    return core__scope_result(
        scope, core__x_cast(scope, x, (core_dtype)self->dtype), &results[0]);
}

/* ------------------------------------------------------ groups of products -- */

/* Products of matrices that are either stacked, in 3 dimensions, or side by
 * side in one matrix, where ends[g] is the end of the g-th along the dimension
 * that is grouped. */
typedef struct groups {
    factor a, b;
    int64_t count;
    int64_t
        grouped;   /* the size of the grouped dimension; 0 if all are stacked */
    int64_t *ends; /* NULL if all are stacked */
    bool fast;
} groups;

static bool stacked(const core_tensor *tensor)
{
    return tensor->ndim == 3;
}

static core_status check_ranks(const core_operator *op, const core_tensor *a,
                               const core_tensor *b, const core_tensor *offs)
{
    bool all = stacked(a) && stacked(b);

    if ((a->ndim != 2 && !stacked(a)) || (b->ndim != 2 && !stacked(b)))
        return core__op_shapes_error(op, "self", a, "mat2", b,
                                     "each must have 2 or 3 dimensions");
    if (all != !offs)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                              "offs is %s; it must be given unless self and "
                              "mat2 both have 3 dimensions",
                              offs ? "given" : "absent");
    if (offs && (offs->dtype != CORE_I32 || offs->ndim != 1))
        return core__op_error(CORE_ERROR_DTYPE, op,
                              "offs is %s with %u dimensions; it must be i32 "
                              "with 1 dimension",
                              core__dtype_name(offs->dtype), offs->ndim);
    return CORE_OK;
}

/* Sizes, the number of groups, and what is grouped. */
static core_status count_groups(const core_operator *op, groups *g,
                                const core_tensor *offs)
{
    const core_tensor *a = g->a.matrix, *b = g->b.matrix;
    bool fits = a->sizes[a->ndim - 1] == b->sizes[b->ndim - 2];

    g->count = offs ? offs->sizes[0] : a->sizes[0];
    if (!fits || (stacked(a) && a->sizes[0] != g->count) ||
        (stacked(b) && b->sizes[0] != g->count))
        return core__op_shapes_error(
            op, "self", a, "mat2", b,
            "with %lld groups the products are not defined",
            (long long)g->count);
    if (!stacked(a))
        g->grouped = stacked(b) ? a->sizes[0] : a->sizes[1];
    else if (!stacked(b))
        g->grouped = b->sizes[1];
    return CORE_OK;
}

/* Scales of rows are those of each group, or of one matrix side by side. */
static core_status group_scale(core__scope *scope, const core_operator *op,
                               const core_value *args, uint32_t at,
                               const groups *g, int64_t rows, factor *f)
{
    bool one =
        !stacked(f->matrix) && (stacked(g->a.matrix) || stacked(g->b.matrix));
    int64_t sizes[2] = {g->count, rows}, recipe;

    CORE_TRY(recipe_of(op, args, at, &recipe));
    f->by_row = recipe == ROW_WISE;
    return scale_of(scope, op, args, at, f->by_row ? 2 - one : 0, sizes + one,
                    &f->scale);
}

/* Reads offs; the caller frees ends. */
static core_status read_ends(const core_operator *op, core__scope *s,
                             core_tensor *offs, groups *g)
{
    size_t bytes = (size_t)g->count * sizeof *g->ends;
    core_tensor *wide = core__x_cast(s, offs, CORE_I64);
    int64_t start = 0;

    g->ends = core__alloc(bytes + 1);
    if (!g->ends)
        return core__error_memory(bytes);
    CORE__RUN(s, core_tensor_read(wide, g->ends, bytes));
    if (s->status != CORE_OK)
        return s->status;
    for (int64_t i = 0; i < g->count; start = g->ends[i++])
        if (g->ends[i] < start || g->ends[i] > g->grouped)
            return core__op_error(CORE_ERROR_INDEX, op,
                                  "offs[%lld] is %lld; it must be %lld to %lld",
                                  (long long)i, (long long)g->ends[i],
                                  (long long)start, (long long)g->grouped);
    return CORE_OK;
}

/* Group i of a tensor that has `whole` dimensions if groups are side by side
 * along dim. */
static core_tensor *part(core__scope *s, const groups *g, core_tensor *tensor,
                         uint32_t whole, int64_t dim, int64_t i)
{
    int64_t start = g->ends && i > 0 ? g->ends[i - 1] : 0;

    if (tensor->ndim != whole)
        return CORE__DO(s, core_select, tensor, 0, i);
    return core__x_slice(s, tensor, dim, start, g->ends[i]);
}

static factor factor_part(core__scope *s, const groups *g, const factor *f,
                          int64_t dim, int64_t i)
{
    factor own = *f;

    own.matrix = part(s, g, f->matrix, 2, dim, i);
    if (f->by_row)
        own.scale = part(s, g, f->scale, 1, 0, i);
    return own;
}

static core_status multiply_group(core__scope *s, const groups *g, int64_t i,
                                  core_tensor *out)
{
    bool inner = !stacked(g->a.matrix) && !stacked(g->b.matrix);
    factor a = factor_part(s, g, &g->a, inner ? 1 : 0, i);
    factor b = factor_part(s, g, &g->b, inner ? 0 : 1, i);
    core_tensor *target = part(s, g, out, 2, stacked(g->a.matrix) ? 1 : 0, i);

    if (s->status != CORE_OK || target->numel == 0)
        return s->status;
    CORE__RUN(s, core_copy_(target, product(s, &a, &b, g->fast), false));
    return s->status;
}

/* Sizes: [groups, m, n], or [m, n] if one factor's rows or columns are
 * grouped.  Rows and columns after the last group are 0. */
static core_status multiply_groups(core__scope *scope, const groups *g,
                                   core_dtype dtype, core_value *result)
{
    const core_tensor *a = g->a.matrix, *b = g->b.matrix;
    const int64_t sizes[3] = {g->count, a->sizes[a->ndim - 2],
                              b->sizes[b->ndim - 1]};
    bool one = stacked(a) != stacked(b);
    core_tensor *out =
        CORE__DO(scope, core_zeros, sizes + one, 3 - one, dtype, a->device);

    for (int64_t i = 0; scope->status == CORE_OK && i < g->count; i++) {
        core__scope inner;
        core_status status;

        if (core__tensor_is_meta(a))
            break;
        core__scope_begin(&inner);
        status = multiply_group(&inner, g, i, out);
        core__scope_end(&inner);
        CORE_TRY(status);
    }
    return core__scope_result(scope, out, result);
}

/* _scaled_grouped_mm_v2(self, mat2, scale_a, recipe_a, swizzle_a, scale_b,
 * recipe_b, swizzle_b, offs, bias, out_dtype, contraction_dim,
 * use_fast_accum) */
CORE__COMPOSITE(scaled_grouped_mm_v2)
{
    core_tensor *offs = core__arg_tensor(args, 8);
    core_dtype dtype = core__arg_dtype(args, 10, CORE_DTYPE_NONE);
    groups g = {.a = {.matrix = args[0].u.tensor},
                .b = {.matrix = args[1].u.tensor},
                .fast = core__arg_bool(args, 12, false)};
    const core_tensor *a = g.a.matrix, *b = g.b.matrix;
    core_status status = CORE_OK;

    if (core__arg_tensor(args, 9))
        return core__op_error(CORE_ERROR_UNSUPPORTED, call->op,
                              "bias is given; only products without bias are "
                              "supported");
    CORE_TRY(check_out_dtype(call->op, dtype));
    CORE_TRY(check_contraction(call->op, &args[11]));
    CORE_TRY(check_ranks(call->op, a, b, offs));
    CORE_TRY(count_groups(call->op, &g, offs));
    CORE_TRY(
        group_scale(scope, call->op, args, 2, &g, a->sizes[a->ndim - 2], &g.a));
    CORE_TRY(
        group_scale(scope, call->op, args, 5, &g, b->sizes[b->ndim - 1], &g.b));
    if (offs && !core__tensor_is_meta(a))
        status = read_ends(call->op, scope, offs, &g);
    if (status == CORE_OK)
        status = multiply_groups(scope, &g, dtype, &results[0]);
    core__free(g.ends);
    return status;
}
