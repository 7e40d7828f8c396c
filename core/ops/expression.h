/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* expression.h: operators as expressions, for composites and gradients.
 *
 * A scope owns the intermediate tensors and keeps the first error; after an
 * error, further calls do nothing and return NULL.  So code reads like the
 * formula:
 *
 *     d = core__x_sub(scope, a, b);
 *     d = core__x_mul(scope, d, d);
 *     return core__scope_finish(scope, d, out); */

#ifndef CORE_OPS_EXPRESSION_H
#define CORE_OPS_EXPRESSION_H

#include "ops/functions.h"

enum { CORE__SCOPE_TENSORS = 96 };

typedef struct core__scope {
    core_status status;
    uint32_t count;
    core_error *error;    /* the record of the first error */
    core_tensor *pending; /* where the current operator call puts its result */
    core_tensor *tensors[CORE__SCOPE_TENSORS];
} core__scope;

static inline void core__scope_begin(core__scope *scope)
{
    scope->status = CORE_OK;
    scope->count = 0;
    scope->error = NULL;
    scope->pending = NULL;
}

/* Takes ownership of the result of an operator that returned `status`. */
core_tensor *core__scope_add(core__scope *scope, core_status status);
/* After a failure: the error of a check that knows more becomes the first one if it
 * has the same status. */
void core__scope_replace_error(core__scope *scope, core_status status)
    __attribute__((cold));
/* Drops every tensor; returns the first error. */
core_status core__scope_end(core__scope *scope);
/* The same, and returns a reference to `result` on success. */
core_status core__scope_finish(core__scope *scope, core_tensor *result,
                               core_tensor **out);

/* tensor = CORE__DO(scope, core_cumsum, x, dim, CORE_DTYPE_NONE): any typed
 * call with one result. */
#define CORE__DO(scope, function, ...)                                    \
    core__scope_add(scope, (scope)->status == CORE_OK                     \
                               ? function(__VA_ARGS__, &(scope)->pending) \
                               : (scope)->status)

/* Adds one result of a call with several; takes over the reference. */
static inline core_tensor *core__scope_keep(core__scope *scope,
                                            core_tensor *tensor)
{
    scope->pending = tensor;
    return core__scope_add(scope, scope->status);
}

/* A call without a result. */
#define CORE__RUN(scope, call) \
    ((void)core__scope_add(    \
        scope, (scope)->status == CORE_OK ? (call) : (scope)->status))

#define CORE__X_ONE(name)                                                     \
    static inline core_tensor *core__x_##name(core__scope *s, core_tensor *a) \
    {                                                                         \
        return CORE__DO(s, core_##name, a);                                   \
    }
CORE__X_ONE(abs)
CORE__X_ONE(cos)
CORE__X_ONE(detach)
CORE__X_ONE(exp)
CORE__X_ONE(isnan)
CORE__X_ONE(log)
CORE__X_ONE(log1p)
CORE__X_ONE(logical_not)
CORE__X_ONE(neg)
CORE__X_ONE(reciprocal)
CORE__X_ONE(relu)
CORE__X_ONE(sigmoid)
CORE__X_ONE(sign)
CORE__X_ONE(sqrt)
CORE__X_ONE(t)
CORE__X_ONE(tanh)
#undef CORE__X_ONE

#define CORE__X_TWO(name)                                                     \
    static inline core_tensor *core__x_##name(core__scope *s, core_tensor *a, \
                                              core_tensor *b)                 \
    {                                                                         \
        return CORE__DO(s, core_##name, a, b);                                \
    }
CORE__X_TWO(bmm)
CORE__X_TWO(div)
CORE__X_TWO(eq)
CORE__X_TWO(ge)
CORE__X_TWO(gt)
CORE__X_TWO(le)
CORE__X_TWO(lt)
CORE__X_TWO(logical_and)
CORE__X_TWO(logical_or)
CORE__X_TWO(mm)
CORE__X_TWO(mul)
CORE__X_TWO(ne)
CORE__X_TWO(pow)
#undef CORE__X_TWO

static inline core_tensor *core__x_add(core__scope *s, core_tensor *a,
                                       core_tensor *b)
{
    return CORE__DO(s, core_add, a, b, core_int(1));
}

static inline core_tensor *core__x_sub(core__scope *s, core_tensor *a,
                                       core_tensor *b)
{
    return CORE__DO(s, core_sub, a, b, core_int(1));
}

/* a + x, a * x, a / x, x - a, a ** x, and comparisons with a number */
static inline core_tensor *core__x_add_scalar(core__scope *s, core_tensor *a,
                                              double x)
{
    return CORE__DO(s, core_add_scalar, a, core_float(x), core_int(1));
}

static inline core_tensor *core__x_mul_scalar(core__scope *s, core_tensor *a,
                                              double x)
{
    return CORE__DO(s, core_mul_scalar, a, core_float(x));
}

static inline core_tensor *core__x_div_scalar(core__scope *s, core_tensor *a,
                                              double x)
{
    return CORE__DO(s, core_div_scalar, a, core_float(x));
}

static inline core_tensor *core__x_rsub_scalar(core__scope *s, double x,
                                               core_tensor *a)
{
    return CORE__DO(s, core_rsub_scalar, a, core_float(x), core_int(1));
}

static inline core_tensor *core__x_pow_scalar(core__scope *s, core_tensor *a,
                                              double x)
{
    return CORE__DO(s, core_pow_scalar, a, core_float(x));
}

static inline core_tensor *core__x_eq_scalar(core__scope *s, core_tensor *a,
                                             double x)
{
    return CORE__DO(s, core_eq_scalar, a, core_float(x));
}

static inline core_tensor *core__x_lt_scalar(core__scope *s, core_tensor *a,
                                             double x)
{
    return CORE__DO(s, core_lt_scalar, a, core_float(x));
}

/* a where mask is false, else 0 */
static inline core_tensor *core__x_zero_where(core__scope *s, core_tensor *a,
                                              core_tensor *mask)
{
    return CORE__DO(s, core_masked_fill, a, mask, core_int(0));
}

static inline core_tensor *core__x_where(core__scope *s, core_tensor *mask,
                                         core_tensor *a, core_tensor *b)
{
    return CORE__DO(s, core_where, mask, a, b);
}

static inline core_tensor *core__x_sum_dim(core__scope *s, core_tensor *a,
                                           const int64_t *dims, size_t count,
                                           bool keepdim)
{
    return CORE__DO(s, core_sum_dim, a, dims, count, keepdim, CORE_DTYPE_NONE);
}

static inline core_tensor *core__x_sum(core__scope *s, core_tensor *a)
{
    return CORE__DO(s, core_sum, a, CORE_DTYPE_NONE);
}

static inline core_tensor *core__x_mean(core__scope *s, core_tensor *a)
{
    return CORE__DO(s, core_mean, a, CORE_DTYPE_NONE);
}

static inline core_tensor *core__x_unsqueeze(core__scope *s, core_tensor *a,
                                             int64_t dim)
{
    return CORE__DO(s, core_unsqueeze, a, dim);
}

static inline core_tensor *core__x_transpose(core__scope *s, core_tensor *a,
                                             int64_t dim0, int64_t dim1)
{
    return CORE__DO(s, core_transpose, a, dim0, dim1);
}

/* Matrices, in the last two dimensions. */
static inline core_tensor *core__x_adjoint(core__scope *s, core_tensor *a)
{
    return core__x_transpose(s, a, -2, -1);
}

static inline core_tensor *core__x_matmul(core__scope *s, core_tensor *a,
                                          core_tensor *b)
{
    return CORE__DO(s, core_matmul, a, b);
}

/* X with A X = B, or X A = B if not left. */
static inline core_tensor *core__x_solve_triangular(core__scope *s,
                                                    core_tensor *a,
                                                    core_tensor *b, bool upper,
                                                    bool left, bool unit)
{
    return CORE__DO(s, core_linalg_solve_triangular, a, b, upper, left, unit);
}

static inline core_tensor *core__x_diagonal(core__scope *s, core_tensor *a)
{
    return CORE__DO(s, core_diagonal, a, 0, -2, -1);
}

static inline core_tensor *core__x_diag_embed(core__scope *s, core_tensor *a)
{
    return CORE__DO(s, core_diag_embed, a, 0, -2, -1);
}

static inline core_tensor *core__x_reshape(core__scope *s, core_tensor *a,
                                           const int64_t *sizes, size_t count)
{
    return CORE__DO(s, core_reshape, a, sizes, count);
}

static inline core_tensor *core__x_slice(core__scope *s, core_tensor *a,
                                         int64_t dim, int64_t start,
                                         int64_t end)
{
    return CORE__DO(s, core_slice, a, dim, &start, &end, 1);
}

static inline core_tensor *core__x_zeros_like(core__scope *s, core_tensor *a)
{
    return CORE__DO(s, core_zeros_like, a, CORE_DTYPE_NONE, NULL, -1);
}

/* Zeros of the given sizes, with a's dtype and device. */
static inline core_tensor *core__x_new_zeros(core__scope *s, core_tensor *a,
                                             const int64_t *sizes, size_t count)
{
    return CORE__DO(s, core_new_zeros, a, sizes, count, CORE_DTYPE_NONE, NULL);
}

static inline core_tensor *core__x_cast(core__scope *s, core_tensor *a,
                                        core_dtype dtype)
{
    return CORE__DO(s, core_to, a, dtype, NULL, false, false, -1);
}

/* arange(n) as i64 on a's device */
static inline core_tensor *core__x_arange(core__scope *s, core_tensor *like,
                                          int64_t n)
{
    return CORE__DO(s, core_arange, core_int(n), CORE_I64,
                    core_tensor_device(like));
}

/* Softmax along dim, 0 in lines that are -inf throughout, as scores are where
 * everything is masked: no weights rather than NaN, nor gradients of NaN. */
core_tensor *core__x_masked_softmax(core__scope *scope, core_tensor *scores,
                                    int64_t dim, core_dtype dtype);

/* Reads on the host whether all elements, or any element, are true; inside
 * core_vmap, those of all samples. */
bool core__read_all(core__scope *scope, core_tensor *tensor);
bool core__read_any(core__scope *scope, core_tensor *tensor);

/* ---------------------------------------------------------- composites -- */

/* Begins an operator function whose body has a scope. */
#define CORE__COMPOSITE(name)                                                  \
    static core_status name##_body(core__scope *scope, core_call *call,        \
                                   const core_value *args,                     \
                                   core_value *results);                       \
    CORE__OP(name)                                                             \
    {                                                                          \
        core__scope scope;                                                     \
        core_status status;                                                    \
                                                                               \
        core__scope_begin(&scope);                                             \
        status = name##_body(&scope, call, args, results);                     \
        return core__scope_close(&scope, call->op, status, results, nresults); \
    }                                                                          \
    static core_status name##_body(                                            \
        core__scope *scope __attribute__((unused)),                            \
        core_call *call __attribute__((unused)),                               \
        const core_value *args __attribute__((unused)),                        \
        core_value *results __attribute__((unused)))

/* composite_variant.c: implements in-place and out variants of composites. */
core_status core__op_variant(core_call *call, const core_value *args,
                             uint32_t nargs, core_value *results,
                             uint32_t nresults);

/* Ends the scope of a composite; on failure releases the results and prefixes
 * the error of the inner operator with the composite's name. */
core_status core__scope_close(core__scope *scope, const core_operator *op,
                              core_status status, core_value *results,
                              uint32_t nresults);

/* In a composite: makes tensor (owned by the scope) the result; returns the
 * scope's status. */
core_status core__scope_result(core__scope *scope, core_tensor *tensor,
                               core_value *result);

#endif
