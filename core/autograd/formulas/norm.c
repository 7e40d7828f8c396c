/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Second derivatives of normalization layers, and the gradient of group norm
 * through its statistics. */

#include "autograd/formulas/formulas.h"

#include "ops/expression.h"

/* Everything in one shape to which statistics and weight broadcast.  With y = w
 * n + b, n = (x - mean) rstd and g = w dy, the backward operator computes
 *
 *     dx = P(g),  P(v) = rstd (v - E[v] - n E[v n])
 *     dw = sum of dy n,  db = sum of dy
 *
 * where E is the mean over the elements normalized together.  P is symmetric,
 * and is also the derivative of n. */
typedef struct norm {
    core__scope s;
    core_tensor *grad_x, *grad_weight, *grad_bias; /* incoming; or NULL */
    core_tensor *dy, *x, *mean, *rstd;
    core_tensor *weight; /* or NULL */
    const int64_t *dims; /* normalized together */
    size_t ndims;
    const int64_t *others; /* over which the weight is constant */
    size_t nothers;
    bool fixed; /* statistics do not depend on x */
    core_tensor *n;
} norm;

static core_tensor *expected(norm *k, core_tensor *x)
{
    return CORE__DO(&k->s, core_mean_dim, x, k->dims, k->ndims, true,
                    CORE_DTYPE_NONE);
}

static core_tensor *product(norm *k, core_tensor *a, core_tensor *b)
{
    return core__x_mul(&k->s, a, b);
}

static core_tensor *sum_of(norm *k, core_tensor *a, core_tensor *b)
{
    return !a ? b : !b ? a : core__x_add(&k->s, a, b);
}

/* saved, as a function of x: its derivative is that of `computed`. */
static core_tensor *follow(norm *k, core_tensor *saved, core_tensor *computed)
{
    core_tensor *rest =
        core__x_sub(&k->s, saved, core__x_detach(&k->s, computed));

    return core__x_add(&k->s, computed, rest);
}

/* The statistics were saved as numbers; for higher derivatives they are
 * recomputed as functions of x. */
static void recompute_statistics(norm *k)
{
    core_tensor *x;

    if (!k->fixed)
        k->mean = follow(k, k->mean, expected(k, k->x));
    x = core__x_sub(&k->s, k->x, k->mean);
    if (!k->fixed) {
        core_tensor *inverse = core__x_pow_scalar(&k->s, k->rstd, -2);

        inverse = follow(k, inverse, expected(k, product(k, x, x)));
        k->rstd = core__x_pow_scalar(&k->s, inverse, -0.5);
    }
    k->n = product(k, x, k->rstd);
}

static core_tensor *project(norm *k, core_tensor *v)
{
    core_tensor *x = v;

    if (!k->fixed) {
        x = product(k, k->n, expected(k, product(k, v, k->n)));
        x = core__x_add(&k->s, x, expected(k, v));
        x = core__x_sub(&k->s, v, x);
    }
    return product(k, x, k->rstd);
}

static core_tensor *zeros(norm *k, core_tensor *like)
{
    return core__x_zeros_like(&k->s, like);
}

/* w P(G) + n Gw + Gb */
static core_tensor *second_dy(norm *k, core_tensor *projected)
{
    core_tensor *x = projected;

    if (x && k->weight)
        x = product(k, x, k->weight);
    if (k->grad_weight)
        x = sum_of(k, x, product(k, k->n, k->grad_weight));
    x = sum_of(k, x, k->grad_bias);
    return x ? core__x_add(&k->s, x, zeros(k, k->dy)) : zeros(k, k->dy);
}

/* P(Gw dy), and for P's dependence on x -rstd (n E[g P(G)] + P(E[g n] G + E[G
 * n] g)). */
static core_tensor *second_x(norm *k, core_tensor *projected)
{
    core_tensor *g = k->weight ? product(k, k->dy, k->weight) : k->dy;
    core_tensor *x = NULL;

    if (projected && !k->fixed) {
        core_tensor *a =
            product(k, g, expected(k, product(k, k->grad_x, k->n)));
        core_tensor *b =
            product(k, k->grad_x, expected(k, product(k, g, k->n)));

        x = product(k, k->n, expected(k, product(k, g, projected)));
        x = sum_of(k, x, project(k, sum_of(k, a, b)));
        x = core__x_neg(&k->s, product(k, x, k->rstd));
    }
    if (k->grad_weight)
        x = sum_of(k, x, project(k, product(k, k->dy, k->grad_weight)));
    return x ? x : zeros(k, k->x);
}

static core_tensor *second_weight(norm *k, core_tensor *projected)
{
    if (!projected)
        return zeros(k, k->weight);
    return core__x_sum_dim(&k->s, product(k, k->dy, projected), k->others,
                           k->nothers, true);
}

/* In the sizes of `like`; NULL if it is not needed. */
static core_status add_result(norm *k, core_tensor *x, const core_tensor *like,
                              core_tensor **out)
{
    x = core__x_reshape(&k->s, x, like->sizes, like->ndim);
    if (k->s.status == CORE_OK) {
        core__tensor_retain(x);
        *out = x;
    }
    return k->s.status;
}

static core_status second(norm *k, const core_tensor *grad_out,
                          const core_tensor *input, const core_tensor *weight,
                          const uint8_t *mask, core_tensor **out)
{
    core_tensor *projected;

    recompute_statistics(k);
    projected = k->grad_x ? project(k, k->grad_x) : NULL;
    if (mask[0])
        add_result(k, second_dy(k, projected), grad_out, &out[0]);
    if (mask[1])
        add_result(k, second_x(k, projected), input, &out[1]);
    if (mask[2] && weight)
        add_result(k, second_weight(k, projected), weight, &out[2]);
    for (int i = 0; k->s.status != CORE_OK && i < 3; i++) {
        core__tensor_release(out[i]);
        out[i] = NULL;
    }
    return core__scope_end(&k->s);
}

static core_tensor *shaped(norm *k, core_tensor *x, const int64_t *sizes,
                           size_t count)
{
    return x ? core__x_reshape(&k->s, x, sizes, count) : NULL;
}

/* The shapes of operands: in full, as statistics, as weight. */
static void shape(norm *k, size_t count, const int64_t *full,
                  const int64_t *statistics, const int64_t *weight)
{
    k->grad_x = shaped(k, k->grad_x, full, count);
    k->dy = shaped(k, k->dy, full, count);
    k->x = shaped(k, k->x, full, count);
    k->mean = shaped(k, k->mean, statistics, count);
    k->rstd = shaped(k, k->rstd, statistics, count);
    k->weight = shaped(k, k->weight, weight, count);
    k->grad_weight = shaped(k, k->grad_weight, weight, count);
    k->grad_bias = shaped(k, k->grad_bias, weight, count);
}

core_status core__formula_layer_norm_second(
    core_tensor *grad0, core_tensor *grad1, core_tensor *grad2,
    core_tensor *grad_out, core_tensor *input, const int64_t *normalized_shape,
    size_t normalized_shape_count, core_tensor *mean, core_tensor *rstd,
    core_tensor *weight, const uint8_t *output_mask, size_t output_mask_count,
    core_tensor **out0, core_tensor **out1, core_tensor **out2)
{
    static const int64_t inner = 1, outer = 0;
    norm k = {.grad_x = grad0,
              .grad_weight = grad1,
              .grad_bias = grad2,
              .dy = grad_out,
              .x = input,
              .mean = mean,
              .rstd = rstd,
              .weight = weight,
              .dims = &inner,
              .ndims = 1,
              .others = &outer,
              .nothers = 1};
    core_tensor *out[3] = {NULL, NULL, NULL};
    int64_t n = 1, rows;
    core_status status;

    (void)output_mask_count;
    for (size_t i = 0; i < normalized_shape_count; i++)
        n *= normalized_shape[i];
    rows = n ? input->numel / n : core_tensor_numel(mean);
    core__scope_begin(&k.s);
    shape(&k, 2, (int64_t[]){rows, n}, (int64_t[]){rows, 1}, (int64_t[]){1, n});
    status = second(&k, grad_out, input, weight, output_mask, out);
    *out0 = out[0];
    *out1 = out[1];
    *out2 = out[2];
    return status;
}

core_status core__formula_group_norm_second(
    core_tensor *grad0, core_tensor *grad1, core_tensor *grad2,
    core_tensor *grad_out, core_tensor *input, core_tensor *mean,
    core_tensor *rstd, core_tensor *weight, int64_t N, int64_t C, int64_t HxW,
    int64_t group, const uint8_t *output_mask, size_t output_mask_count,
    core_tensor **out0, core_tensor **out1, core_tensor **out2)
{
    static const int64_t inner[] = {2, 3}, outer[] = {0, 3};
    norm k = {.grad_x = grad0,
              .grad_weight = grad1,
              .grad_bias = grad2,
              .dy = grad_out,
              .x = input,
              .mean = mean,
              .rstd = rstd,
              .weight = weight,
              .dims = inner,
              .ndims = 2,
              .others = outer,
              .nothers = 2};
    int64_t each = C / group;
    core_tensor *out[3] = {NULL, NULL, NULL};
    core_status status;

    (void)output_mask_count;
    core__scope_begin(&k.s);
    shape(&k, 4, (int64_t[]){N, group, each, HxW}, (int64_t[]){N, group, 1, 1},
          (int64_t[]){1, group, each, 1});
    status = second(&k, grad_out, input, weight, output_mask, out);
    *out0 = out[0];
    *out1 = out[1];
    *out2 = out[2];
    return status;
}

core_status core__formula_batch_norm_second(
    core_tensor *grad0, core_tensor *grad1, core_tensor *grad2,
    core_tensor *grad_out, core_tensor *input, core_tensor *weight,
    core_tensor *running_mean, core_tensor *running_var, core_tensor *save_mean,
    core_tensor *save_invstd, bool train, double eps,
    const uint8_t *output_mask, size_t output_mask_count, core_tensor **out0,
    core_tensor **out1, core_tensor **out2)
{
    static const int64_t inner[] = {0, 2};
    norm k = {.grad_x = grad0,
              .grad_weight = grad1,
              .grad_bias = grad2,
              .dy = grad_out,
              .x = input,
              .weight = weight,
              .dims = inner,
              .ndims = 2,
              .others = inner,
              .nothers = 2,
              .fixed = !train};
    int64_t channels = input->sizes[1];
    int64_t each = 1;
    core_tensor *out[3] = {NULL, NULL, NULL};
    core_status status;

    (void)output_mask_count;
    for (uint32_t i = 2; i < input->ndim; i++)
        each *= input->sizes[i];
    core__scope_begin(&k.s);
    k.mean = train ? save_mean : running_mean;
    k.rstd = train ? save_invstd
                   : CORE__DO(&k.s, core_rsqrt,
                              core__x_add_scalar(&k.s, running_var, eps));
    shape(&k, 3, (int64_t[]){input->sizes[0], channels, each},
          (int64_t[]){1, channels, 1}, (int64_t[]){1, channels, 1});
    status = second(&k, grad_out, input, weight, output_mask, out);
    *out0 = out[0];
    *out1 = out[1];
    *out2 = out[2];
    return status;
}

/* ------------------------------------------------- group norm's statistics -- */

/* The gradient through the statistics of group norm, which are results too:
 * mean is linear in the input, and the derivative of rstd is -rstd³ (x - mean)
 * / n. */
core_status core__formula_group_norm_grad(
    core_tensor *grad, core_tensor *grad_mean, core_tensor *grad_rstd,
    core_tensor *input, core_tensor *mean, core_tensor *rstd,
    core_tensor *weight, int64_t N, int64_t C, int64_t HxW, int64_t group,
    const uint8_t *output_mask, size_t output_mask_count, core_tensor **out0,
    core_tensor **out1, core_tensor **out2)
{
    int64_t each = C / group * HxW;
    int64_t flat[3] = {N, group, each};
    core_tensor *direct = NULL;
    core_status status;
    core__scope s;
    core_tensor *x;

    core__scope_begin(&s);
    /* Its own derivative is complete, as the statistics are functions of the
     * input there. */
    CORE__RUN(&s, core_native_group_norm_backward(
                      grad, input, core__x_detach(&s, mean),
                      core__x_detach(&s, rstd), weight, N, C, HxW, group,
                      output_mask, output_mask_count, &direct, out1, out2));
    *out0 = direct;
    if (!direct)
        return core__scope_end(&s);
    x = core__x_sub(&s, core__x_reshape(&s, input, flat, 3),
                    core__x_unsqueeze(&s, mean, -1));
    grad_rstd = core__x_mul(&s, grad_rstd, core__x_pow_scalar(&s, rstd, 3));
    x = core__x_mul(&s, x, core__x_unsqueeze(&s, grad_rstd, -1));
    x = core__x_sub(&s, core__x_unsqueeze(&s, grad_mean, -1), x);
    x = core__x_reshape(&s, core__x_div_scalar(&s, x, (double)each),
                        input->sizes, input->ndim);
    x = core__x_add(&s, direct, x);
    status = core__scope_finish(&s, x, out0);
    core__tensor_release(direct);
    return status;
}
