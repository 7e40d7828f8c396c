/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Gradients of operators that index, scatter or mask. */

#include "autograd/formulas/formulas.h"

#include "autograd/graph/autograd_ops.h"
#include "base/thread.h"
#include "ops/expression.h"
#include "tensor/batched.h"

#include <libcore/autograd.h>

#include <string.h>

core_status core__formula_take_grad(core_tensor *grad, const int64_t *sizes,
                                    size_t sizes_count, core_tensor *index,
                                    core_tensor **out)
{
    int64_t numel = 1;
    core__scope s;
    core_tensor *x;

    for (size_t i = 0; i < sizes_count; i++)
        numel *= sizes[i];
    core__scope_begin(&s);
    x = core__x_new_zeros(&s, grad, &numel, 1);
    x = CORE__DO(&s, core_index_put_same, x, &index, 1, grad, true);
    return core__scope_finish(&s, core__x_reshape(&s, x, sizes, sizes_count),
                              out);
}

/* An empty index may have any dtype. */
core_status core__formula_gather_grad(core_tensor *grad, const int64_t *sizes,
                                      size_t sizes_count, int64_t dim,
                                      core_tensor *index, core_tensor **out)
{
    core__scope s;
    core_tensor *x;

    core__scope_begin(&s);
    x = core__x_new_zeros(&s, grad, sizes, sizes_count);
    if (index->numel == 0)
        index = core__x_cast(&s, index, CORE_I64);
    x = CORE__DO(&s, core_scatter_add, x, dim, index, grad);
    return core__scope_finish(&s, x, out);
}

core_status core__formula_embedding_grad(core_tensor *grad,
                                         core_tensor *indices,
                                         int64_t padding_idx, bool scale,
                                         core_tensor **out)
{
    core__scope s;
    core_tensor *padding;
    core_tensor *x;

    *out = NULL;
    if (scale)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "the second derivative of embedding is not "
                           "supported with scale_grad_by_freq");
    core__scope_begin(&s);
    x = CORE__DO(&s, core_embedding, grad, indices, -1, false, false);
    padding = CORE__DO(&s, core_eq_scalar, indices, core_int(padding_idx));
    x = core__x_zero_where(&s, x, core__x_unsqueeze(&s, padding, -1));
    return core__scope_finish(&s, x, out);
}

core_status core__formula_index_grad(core_tensor *grad, const int64_t *sizes,
                                     size_t sizes_count,
                                     core_tensor *const *indices,
                                     size_t indices_count, core_tensor **out)
{
    core__scope s;
    core_tensor *x;

    core__scope_begin(&s);
    x = core__x_new_zeros(&s, grad, sizes, sizes_count);
    x = CORE__DO(&s, core_index_put_same, x, indices, indices_count, grad,
                 true);
    return core__scope_finish(&s, x, out);
}

core_status core__formula_index_put_self(core_tensor *grad,
                                         core_tensor *const *indices,
                                         size_t indices_count, bool accumulate,
                                         core_tensor **out)
{
    core__scope s;
    core_tensor *zero;

    core__scope_begin(&s);
    if (accumulate)
        return core__scope_finish(&s, grad, out);
    zero = core__x_new_zeros(&s, grad, NULL, 0);
    return core__scope_finish(&s,
                              CORE__DO(&s, core_index_put_same, grad, indices,
                                       indices_count, zero, false),
                              out);
}

core_status core__formula_index_by_masks_grad(
    core_tensor *grad, const int64_t *sizes, size_t sizes_count,
    core_tensor *const *indices, size_t indices_count, core_tensor **out)
{
    core__scope s;
    core_tensor *x;

    core__scope_begin(&s);
    x = core__x_new_zeros(&s, grad, sizes, sizes_count);
    x = CORE__DO(&s, core_index_put_by_masks, x, indices, indices_count, grad,
                 true);
    return core__scope_finish(&s, x, out);
}

/* index_put with 0: the places get no gradient. */
core_status core__formula_index_put_by_masks_self(core_tensor *grad,
                                                  core_tensor *const *indices,
                                                  size_t indices_count,
                                                  bool accumulate,
                                                  core_tensor **out)
{
    core__scope s;
    core_tensor *zero;

    core__scope_begin(&s);
    if (accumulate)
        return core__scope_finish(&s, grad, out);
    zero = core__x_new_zeros(&s, grad, NULL, 0);
    return core__scope_finish(
        &s,
        CORE__DO(&s, core_index_put, grad, indices, indices_count, zero, false),
        out);
}

/* Whether a tensor of these sizes broadcasts to those of x. */
static bool expands_to(const core_value *sizes, const core_tensor *x)
{
    if (sizes->count > x->ndim)
        return false;
    for (uint32_t i = 1; i <= sizes->count; i++) {
        int64_t size = sizes->u.ints[sizes->count - i];

        if (size != 1 && size != x->sizes[x->ndim - i])
            return false;
    }
    return true;
}

/* _index_by_masks(self, indices, sizes): self at the indices, summed to sizes:
 * the gradient of the values that _index_put_by_masks puts */
CORE__OP(index_by_masks)
{
    core_tensor *self = args[0].u.tensor, *x = NULL, *sum = NULL;
    const core_value *sizes = &args[2];
    core_status status;

    if (!self->storage)
        status = core_new_empty(self, sizes->u.ints, sizes->count,
                                CORE_DTYPE_NONE, NULL, &sum);
    else
        status = core_index(self, args[1].u.tensors, args[1].count, &x);
    if (status == CORE_OK && x && !expands_to(sizes, x))
        status = core__op_error(CORE_ERROR_SHAPE, call->op,
                                "values do not broadcast to the %lld elements "
                                "at the indices",
                                (long long)x->numel);
    else if (status == CORE_OK && x)
        status =
            core__autograd_op_sum_to_size(x, sizes->count, sizes->u.ints, &sum);
    core_tensor_release(x);
    if (status == CORE_OK)
        results[0] = (core_value){CORE_VALUE_TENSOR, 0, {.tensor = sum}};
    return status;
}

/* --------------------------------------------------------------- masks -- */

/* The elements of grad where the mask is true, and zeros after them.  In a
 * program, where their number is not known. */
static core_tensor *selected_and_zeros(core__scope *s, core_tensor *grad,
                                       core_tensor *mask, int64_t numel)
{
    core_tensor *places, *missing, *x;

    if (grad->numel == 0)
        return core__x_new_zeros(s, grad, &numel, 1);
    places =
        CORE__DO(s, core_nonzero_static,
                 core__x_reshape(s, mask, (const int64_t[]){-1}, 1), numel, -1);
    places = core__x_reshape(s, places, &numel, 1);
    missing = CORE__DO(s, core_lt_scalar, places, core_int(0));
    x = CORE__DO(s, core_index_select,
                 core__x_reshape(s, grad, (const int64_t[]){-1}, 1), 0,
                 CORE__DO(s, core_clamp_min, places, core_int(0)));
    return CORE__DO(s, core_masked_fill, x, missing, core_int(0));
}

core_status core__formula_masked_scatter_source(core_tensor *grad,
                                                core_tensor *mask,
                                                const int64_t *sizes,
                                                size_t sizes_count,
                                                core_tensor **out)
{
    const core__thread *thread = core__thread_self();
    int64_t numel = 1;
    int64_t pad[2] = {0, 0};
    core__scope s;
    core_tensor *x;

    for (size_t i = 0; i < sizes_count; i++)
        numel *= sizes[i];
    core__scope_begin(&s);
    if (thread->trace && thread->no_grad)
        return core__scope_finish(
            &s,
            core__x_reshape(&s, selected_and_zeros(&s, grad, mask, numel),
                            sizes, sizes_count),
            out);
    x = CORE__DO(&s, core_masked_select, grad, mask);
    if (s.status == CORE_OK)
        pad[1] = numel - x->numel;
    x = CORE__DO(&s, core_constant_pad_nd, x, pad, 2, core_int(0));
    return core__scope_finish(&s, core__x_reshape(&s, x, sizes, sizes_count),
                              out);
}

core_status core__formula_masked_select_grad(core_tensor *grad,
                                             core_tensor *mask,
                                             const int64_t *sizes,
                                             size_t sizes_count,
                                             core_tensor **out)
{
    core__scope s;
    core_tensor *x;

    core__scope_begin(&s);
    x = core__x_new_zeros(&s, grad, sizes, sizes_count);
    return core__scope_finish(
        &s, CORE__DO(&s, core_masked_scatter, x, mask, grad), out);
}

/* ------------------------------------------------------- scatter_reduce -- */

typedef struct scattering {
    int64_t dim;
    core_tensor *index;
    core_tensor *src;
    const char *reduce;
    bool include_self;
} scattering;

/* scatter.reduce has different names for the reductions. */
static const char *plain_name(const char *reduce)
{
    return strcmp(reduce, "add") == 0        ? "sum"
           : strcmp(reduce, "multiply") == 0 ? "prod"
                                             : reduce;
}

static core_tensor *gathered(core__scope *s, const scattering *k,
                             core_tensor *x)
{
    return CORE__DO(s, core_gather, x, k->dim, k->index, false);
}

static core_tensor *added(core__scope *s, const scattering *k, core_tensor *x,
                          core_tensor *src)
{
    return CORE__DO(s, core_scatter_add, x, k->dim, k->index, src);
}

/* The number of values in each element of the mean; 1 where there is none. */
static core_tensor *counts(core__scope *s, const scattering *k,
                           core_tensor *grad)
{
    core_tensor *n = k->include_self ? CORE__DO(s, core_ones_like, grad,
                                                CORE_DTYPE_NONE, NULL, -1)
                                     : core__x_zeros_like(s, grad);
    core_tensor *ones =
        CORE__DO(s, core_ones_like, k->src, CORE_DTYPE_NONE, NULL, -1);

    n = added(s, k, n, ones);
    return CORE__DO(s, core_masked_fill, n, core__x_eq_scalar(s, n, 0),
                    core_int(1));
}

/* grad divided evenly among all values equal to the extremum */
static core_tensor *distribute_evenly(core__scope *s, const scattering *k,
                                      core_tensor *grad, core_tensor *self,
                                      core_tensor *result)
{
    core_tensor *own =
        core__x_cast(s, core__x_eq(s, self, result), grad->dtype);
    core_tensor *theirs = core__x_cast(
        s, core__x_eq(s, k->src, gathered(s, k, result)), grad->dtype);

    return core__x_div(s, grad, added(s, k, own, theirs));
}

static core_tensor *product(core__scope *s, const scattering *k,
                            core_tensor *self, core_tensor *src)
{
    return CORE__DO(s, core_scatter_reduce, self, k->dim, k->index, src,
                    k->reduce, k->include_self);
}

static core_tensor *ones_where(core__scope *s, core_tensor *x,
                               core_tensor *mask)
{
    return CORE__DO(s, core_masked_fill, x, mask, core_int(1));
}

core_status core__formula_scatter_reduce_self(
    core_tensor *grad, core_tensor *self, int64_t dim, core_tensor *index,
    core_tensor *src, const char *reduce, bool include_self,
    core_tensor *result, core_tensor **out)
{
    scattering k = {dim, index, src, plain_name(reduce), include_self};
    core__scope s;
    core_tensor *x = grad;

    core__scope_begin(&s);
    if (strcmp(k.reduce, "prod") == 0) {
        core_tensor *safe =
            ones_where(&s, self, core__x_eq_scalar(&s, self, 0));

        x = core__x_mul(&s, grad, product(&s, &k, safe, src));
        x = core__x_div(&s, x, safe);
    } else if (strcmp(k.reduce, "mean") == 0) {
        x = core__x_div(&s, grad, counts(&s, &k, grad));
    } else if (strcmp(k.reduce, "sum") != 0) {
        x = distribute_evenly(&s, &k, grad, self, result);
        x = core__x_mul(&s, x, core__x_eq(&s, self, result));
    }
    if (!include_self)
        x = CORE__DO(&s, core_scatter_value, x, dim, index, core_int(0));
    return core__scope_finish(&s, x, out);
}

/* Where several sources of an element are 0 their slope is 0, but the second
 * derivative is not that of any formula here, so it is refused. */
static void refuse_zeros(core__scope *s, core_tensor *zero, core_tensor *count)
{
    core_tensor *ambiguous;
    bool found = false;

    ambiguous = core__x_logical_and(
        s, zero, CORE__DO(s, core_gt_scalar, count, core_int(1)));
    if (s->status == CORE_OK && !core__tensor_is_on_meta(ambiguous))
        found = core__read_any(s, ambiguous);
    if (found)
        s->status = core__error(CORE_ERROR_UNSUPPORTED,
                                "the second derivative of a scattered product "
                                "is not supported where several sources are 0");
}

/* The gradient of a source that is the only 0 is the product of the others. */
static core_tensor *product_src(core__scope *s, const scattering *k,
                                core_tensor *grad, core_tensor *self,
                                core_tensor *result)
{
    core_tensor *zero = core__x_eq_scalar(s, k->src, 0);
    core_tensor *count = added(s, k, core__x_zeros_like(s, self),
                               core__x_cast(s, zero, self->dtype));
    core_tensor *single;
    core_tensor *without;
    core_tensor *a;
    core_tensor *b;

    count = gathered(s, k, count);
    if (core_grad_mode())
        refuse_zeros(s, zero, count);
    single = core__x_logical_and(s, zero, core__x_eq_scalar(s, count, 1));
    without = product(s, k, self, ones_where(s, k->src, single));
    a = gathered(s, k, core__x_mul(s, grad, without));
    b = gathered(s, k, core__x_mul(s, grad, result));
    b = core__x_div(s, b, ones_where(s, k->src, zero));
    return core__x_where(s, single, a, b);
}

core_status core__formula_scatter_reduce_src(
    core_tensor *grad, core_tensor *self, int64_t dim, core_tensor *index,
    core_tensor *src, const char *reduce, bool include_self,
    core_tensor *result, core_tensor **out)
{
    scattering k = {dim, index, src, plain_name(reduce), include_self};
    core__scope s;
    core_tensor *x;

    core__scope_begin(&s);
    if (strcmp(k.reduce, "sum") == 0) {
        x = gathered(&s, &k, grad);
    } else if (strcmp(k.reduce, "prod") == 0) {
        x = product_src(&s, &k, grad, self, result);
    } else if (strcmp(k.reduce, "mean") == 0) {
        x = core__x_div(&s, grad, counts(&s, &k, grad));
        x = gathered(&s, &k, x);
    } else {
        x = gathered(&s, &k, distribute_evenly(&s, &k, grad, self, result));
        x = core__x_mul(&s, x, core__x_eq(&s, src, gathered(&s, &k, result)));
    }
    return core__scope_finish(&s, x, out);
}
