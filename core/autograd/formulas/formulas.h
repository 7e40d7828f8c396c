/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* formulas.h: what the gradient formulas of ops.yaml use besides operators:
 * access to saved values, and the helpers declared under `helpers:`.  Helpers
 * are composed of differentiable operators, so that gradients of gradients need
 * no further code. */

#ifndef CORE_AUTOGRAD_FORMULAS_H
#define CORE_AUTOGRAD_FORMULAS_H

#include "autograd/graph/gradient.h"

#include <libcore/ops.h>

#include <string.h>

/* -------------------------------------------------------- saved values -- */

static inline core_tensor *core__value_tensor(const core_value *value)
{
    return value->tag == CORE_VALUE_TENSOR ? value->u.tensor : NULL;
}

static inline double core__scalar_double(core_scalar scalar)
{
    return scalar.tag == CORE_VALUE_FLOAT ? scalar.u.f : (double)scalar.u.i;
}

static inline core_dtype core__value_dtype(const core_value *value)
{
    return value->tag == CORE_VALUE_DTYPE ? (core_dtype)value->u.i
                                          : CORE_DTYPE_NONE;
}

/* A list of numbers may have been given as a single number. */
static inline const int64_t *core__value_ints(const core_value *value)
{
    if (value->tag == CORE_VALUE_INT)
        return &value->u.i;
    return value->tag == CORE_VALUE_INT_LIST ? value->u.ints : NULL;
}

static inline const double *core__value_floats(const core_value *value)
{
    if (value->tag == CORE_VALUE_FLOAT)
        return &value->u.f;
    return value->tag == CORE_VALUE_FLOAT_LIST ? value->u.floats : NULL;
}

static inline const uint8_t *core__value_bools(const core_value *value)
{
    return value->tag == CORE_VALUE_BOOL_LIST ? value->u.bools : NULL;
}

static inline size_t core__value_count(const core_value *value)
{
    if (value->tag == CORE_VALUE_INT || value->tag == CORE_VALUE_FLOAT)
        return 1;
    return value->tag == CORE_VALUE_NONE ? 0 : value->count;
}

static inline const char *core__value_string(const core_value *value)
{
    return value->tag == CORE_VALUE_STRING ? value->u.string : NULL;
}

static inline const core_scalar *core__value_scalar_optional(
    const core_value *value)
{
    return value->tag == CORE_VALUE_NONE ? NULL : value;
}

static inline const int64_t *core__value_int_optional(const core_value *value)
{
    return value->tag == CORE_VALUE_NONE ? NULL : &value->u.i;
}

static inline const double *core__value_float_optional(const core_value *value)
{
    return value->tag == CORE_VALUE_NONE ? NULL : &value->u.f;
}

static inline const bool *core__value_bool_optional(const core_value *value)
{
    static const bool values[2] = {false, true};

    return value->tag == CORE_VALUE_NONE ? NULL : &values[value->u.i != 0];
}

/* NULL equals no string. */
static inline bool core__string_equal(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

/* A new reference; takes NULL. */
static inline core_tensor *core__formula_same(core_tensor *tensor)
{
    if (tensor)
        core__tensor_retain(tensor);
    return tensor;
}

/* Integer arithmetic on arguments, which may be any number:
 * CORE_ERROR_UNSUPPORTED if the result does not fit. */
core_status core__formula_int_add(int64_t a, int64_t b, int64_t *out);
core_status core__formula_int_sub(int64_t a, int64_t b, int64_t *out);
core_status core__formula_int_mul(int64_t a, int64_t b, int64_t *out);

/* ------------------------------------------------------------- helpers -- */

/* Called by formulas of the operator that they are named after; the arguments
 * are those of `helpers:` in ops.yaml.  Helpers for lists fill one gradient per
 * element where `needed` is not 0. */
core_status core__formula_addbmm_grad(core_tensor *grad, const int64_t *sizes,
                                      size_t sizes_count, core_tensor **out);
core_status core__formula_as_strided_grad(
    core_tensor *grad, const int64_t *layout, size_t layout_count,
    const int64_t *size, size_t size_count, const int64_t *stride,
    size_t stride_count, const int64_t *storage_offset, core_tensor **out);
core_status core__formula_as_strided_self(
    core_tensor *grad, const int64_t *layout, size_t layout_count,
    const int64_t *size, size_t size_count, const int64_t *stride,
    size_t stride_count, const int64_t *storage_offset, core_tensor **out);
core_status core__formula_as_strided_src(
    core_tensor *grad, const int64_t *layout, size_t layout_count,
    const int64_t *size, size_t size_count, const int64_t *stride,
    size_t stride_count, const int64_t *storage_offset, core_tensor **out);
core_status core__formula_atan2_grad(core_tensor *value, core_tensor *self,
                                     core_tensor *other, core_tensor **out);
core_status core__formula_attention_grad(
    core_tensor *grad, core_tensor *query, core_tensor *key, core_tensor *value,
    core_tensor *attn_bias, core_tensor *output, core_tensor *log_sumexp,
    core_tensor *philox_seed, core_tensor *philox_offset, double dropout_p,
    bool is_causal, const double *scale, const uint8_t *output_mask,
    size_t output_mask_count, core_tensor **out0, core_tensor **out1,
    core_tensor **out2, core_tensor **out3);
core_status core__formula_batch_norm_second(
    core_tensor *grad0, core_tensor *grad1, core_tensor *grad2,
    core_tensor *grad_out, core_tensor *input, core_tensor *weight,
    core_tensor *running_mean, core_tensor *running_var, core_tensor *save_mean,
    core_tensor *save_invstd, bool train, double eps,
    const uint8_t *output_mask, size_t output_mask_count, core_tensor **out0,
    core_tensor **out1, core_tensor **out2);
core_status core__formula_cat_grad(core_tensor *grad, const int64_t *sizes,
                                   size_t sizes_count, int64_t dim,
                                   const uint8_t *needed, size_t count,
                                   core_tensor **out);
core_status core__formula_cholesky_grad(core_tensor *grad, core_tensor *L,
                                        bool upper, core_tensor **out);
core_status core__formula_clamp_bound(core_tensor *grad, core_tensor *self,
                                      core_tensor *min, core_tensor *max,
                                      bool upper, core_tensor **out);
core_status core__formula_clamp_grad(core_tensor *grad, core_tensor *self,
                                     const core_scalar *min,
                                     const core_scalar *max, core_tensor **out);
core_status core__formula_clamp_tensor_grad(core_tensor *grad,
                                            core_tensor *self, core_tensor *min,
                                            core_tensor *max,
                                            core_tensor **out);
core_status core__formula_constant_pad_grad(core_tensor *grad,
                                            const int64_t *pad,
                                            size_t pad_count,
                                            core_tensor **out);
core_status core__formula_convolution_grad_output(
    core_tensor *grad_input, core_tensor *grad_weight, core_tensor *grad_bias,
    core_tensor *input, core_tensor *weight, const int64_t *stride,
    size_t stride_count, const int64_t *padding, size_t padding_count,
    const int64_t *dilation, size_t dilation_count, bool transposed,
    const int64_t *output_padding, size_t output_padding_count, int64_t groups,
    core_tensor **out);
core_status core__formula_convolution_input(
    core_tensor *grad_weight, core_tensor *grad_output, core_tensor *input,
    core_tensor *weight, const int64_t *stride, size_t stride_count,
    const int64_t *padding, size_t padding_count, const int64_t *dilation,
    size_t dilation_count, bool transposed, const int64_t *output_padding,
    size_t output_padding_count, int64_t groups, core_tensor **out);
core_status core__formula_convolution_weight(
    core_tensor *grad_input, core_tensor *grad_output, core_tensor *input,
    core_tensor *weight, const int64_t *stride, size_t stride_count,
    const int64_t *padding, size_t padding_count, const int64_t *dilation,
    size_t dilation_count, bool transposed, const int64_t *output_padding,
    size_t output_padding_count, int64_t groups, core_tensor **out);
core_status core__formula_copied(core_tensor *grad, core_device *device,
                                 core_tensor **out);
core_status core__formula_cumprod_grad(core_tensor *grad, core_tensor *self,
                                       core_tensor *result, int64_t dim,
                                       core_tensor **out);
core_status core__formula_cumsum_grad(core_tensor *grad, int64_t dim,
                                      core_tensor **out);
core_status core__formula_dropout_grad(core_tensor *grad, core_tensor *mask,
                                       double p, const bool *train,
                                       core_tensor **out);
core_status core__formula_elu_self(core_tensor *grad, core_tensor *grad_output,
                                   core_scalar alpha, core_scalar scale,
                                   core_scalar input_scale, bool is_result,
                                   core_tensor *self_or_result,
                                   core_tensor **out);
core_status core__formula_embedding_grad(core_tensor *grad,
                                         core_tensor *indices,
                                         int64_t padding_idx, bool scale,
                                         core_tensor **out);
core_status core__formula_expanded(core_tensor *grad, const int64_t *sizes,
                                   size_t sizes_count, const int64_t *dim,
                                   size_t dim_count, bool keepdim,
                                   core_tensor **out);
core_status core__formula_extremum(core_tensor *grad, core_tensor *self,
                                   core_tensor *result, const int64_t *dim,
                                   size_t dim_count, bool keepdim, bool nan,
                                   core_tensor **out);
core_status core__formula_bce_self(core_tensor *grad, core_tensor *self,
                                   core_tensor *target, core_tensor **out);
core_status core__formula_sinc_grad(core_tensor *grad, core_tensor *self,
                                    core_tensor **out);
core_status core__formula_gather_grad(core_tensor *grad, const int64_t *sizes,
                                      size_t sizes_count, int64_t dim,
                                      core_tensor *index, core_tensor **out);
core_status core__formula_gelu_self(core_tensor *grad, core_tensor *grad_output,
                                    core_tensor *self, const char *approximate,
                                    core_tensor **out);
core_status core__formula_group_norm_grad(
    core_tensor *grad, core_tensor *grad_mean, core_tensor *grad_rstd,
    core_tensor *input, core_tensor *mean, core_tensor *rstd,
    core_tensor *weight, int64_t N, int64_t C, int64_t HxW, int64_t group,
    const uint8_t *output_mask, size_t output_mask_count, core_tensor **out0,
    core_tensor **out1, core_tensor **out2);
core_status core__formula_group_norm_second(
    core_tensor *grad0, core_tensor *grad1, core_tensor *grad2,
    core_tensor *grad_out, core_tensor *input, core_tensor *mean,
    core_tensor *rstd, core_tensor *weight, int64_t N, int64_t C, int64_t HxW,
    int64_t group, const uint8_t *output_mask, size_t output_mask_count,
    core_tensor **out0, core_tensor **out1, core_tensor **out2);
core_status core__formula_index_grad(core_tensor *grad, const int64_t *sizes,
                                     size_t sizes_count,
                                     core_tensor *const *indices,
                                     size_t indices_count, core_tensor **out);
core_status core__formula_index_by_masks_grad(
    core_tensor *grad, const int64_t *sizes, size_t sizes_count,
    core_tensor *const *indices, size_t indices_count, core_tensor **out);
core_status core__formula_index_put_by_masks_self(core_tensor *grad,
                                                  core_tensor *const *indices,
                                                  size_t indices_count,
                                                  bool accumulate,
                                                  core_tensor **out);
core_status core__formula_index_put_self(core_tensor *grad,
                                         core_tensor *const *indices,
                                         size_t indices_count, bool accumulate,
                                         core_tensor **out);
core_status core__formula_gru_cell_grad(
    core_tensor *grad_hy, core_tensor *input_gates, core_tensor *hidden_gates,
    core_tensor *hx, core_tensor *input_bias, core_tensor *hidden_bias,
    core_tensor *workspace, const uint8_t *output_mask,
    size_t output_mask_count, core_tensor **out0, core_tensor **out1,
    core_tensor **out2, core_tensor **out3, core_tensor **out4);
core_status core__formula_halved(core_tensor *grad, core_tensor *tie,
                                 core_tensor *none, core_tensor **out);
core_status core__formula_larger(core_tensor *grad, core_tensor *self,
                                 core_tensor *other, core_tensor **out);
core_status core__formula_logcumsumexp_grad(core_tensor *grad,
                                            core_tensor *self,
                                            core_tensor *result, int64_t dim,
                                            core_tensor **out);
core_status core__formula_layer_norm_second(
    core_tensor *grad0, core_tensor *grad1, core_tensor *grad2,
    core_tensor *grad_out, core_tensor *input, const int64_t *normalized_shape,
    size_t normalized_shape_count, core_tensor *mean, core_tensor *rstd,
    core_tensor *weight, const uint8_t *output_mask, size_t output_mask_count,
    core_tensor **out0, core_tensor **out1, core_tensor **out2);
core_status core__formula_like(core_tensor *grad, const int64_t *layout,
                               size_t layout_count, core_tensor **out);
core_status core__formula_linear_input(core_tensor *grad, core_tensor *weight,
                                       core_tensor **out);
core_status core__formula_linear_weight(core_tensor *grad, core_tensor *input,
                                        int64_t ndim, core_tensor **out);
core_status core__formula_logsumexp_grad(core_tensor *grad, core_tensor *self,
                                         core_tensor *result,
                                         const int64_t *dim, size_t dim_count,
                                         bool keepdim, core_tensor **out);
core_status core__formula_lstm_cell_grad(
    core_tensor *grad_hy, core_tensor *grad_cy, core_tensor *input_gates,
    core_tensor *hidden_gates, core_tensor *input_bias,
    core_tensor *hidden_bias, core_tensor *cx, core_tensor *cy,
    core_tensor *workspace, const uint8_t *output_mask,
    size_t output_mask_count, core_tensor **out0, core_tensor **out1,
    core_tensor **out2, core_tensor **out3, core_tensor **out4);
core_status core__formula_masked_scatter_source(core_tensor *grad,
                                                core_tensor *mask,
                                                const int64_t *sizes,
                                                size_t sizes_count,
                                                core_tensor **out);
core_status core__formula_masked_select_grad(core_tensor *grad,
                                             core_tensor *mask,
                                             const int64_t *sizes,
                                             size_t sizes_count,
                                             core_tensor **out);
core_status core__formula_mean_grad(core_tensor *grad, const int64_t *sizes,
                                    size_t sizes_count, const int64_t *dim,
                                    size_t dim_count, bool keepdim,
                                    core_tensor **out);
core_status core__formula_mish_self(core_tensor *grad, core_tensor *grad_output,
                                    core_tensor *self, core_tensor **out);
core_status core__formula_over_or(core_tensor *value, core_tensor *self,
                                  double limit, core_tensor **out);
core_status core__formula_pooled(core_tensor *grad, core_tensor *indices,
                                 int64_t spatial, core_tensor **out);
core_status core__formula_pow_exponent(core_tensor *grad, core_tensor *self,
                                       core_tensor *exponent,
                                       core_tensor *result, core_tensor **out);
core_status core__formula_pow_of_scalar_grad(core_tensor *grad,
                                             core_scalar self,
                                             core_tensor *exponent,
                                             core_tensor *result,
                                             core_tensor **out);
core_status core__formula_pow_scalar_grad(core_tensor *grad, core_tensor *self,
                                          core_scalar exponent,
                                          core_tensor **out);
core_status core__formula_pow_self(core_tensor *grad, core_tensor *self,
                                   core_tensor *exponent, core_tensor **out);
core_status core__formula_prod_grad(core_tensor *grad, core_tensor *self,
                                    const int64_t *dim, bool keepdim,
                                    core_tensor **out);
core_status core__formula_qr_grad(core_tensor *grad_Q, core_tensor *grad_R,
                                  core_tensor *Q, core_tensor *R,
                                  const char *mode, core_tensor **out);
core_status core__formula_recurrent_grad(
    core_tensor *grad_output, core_tensor *grad_hy, core_tensor *grad_cy,
    core_tensor *grad_workspace, core_tensor *output, core_tensor *hx,
    core_tensor *cx, core_tensor *w_hh, core_tensor *workspace,
    const int64_t *batch_sizes, size_t batch_sizes_count, int64_t mode,
    bool reverse, const uint8_t *output_mask, size_t output_mask_count,
    core_tensor **out0, core_tensor **out1, core_tensor **out2,
    core_tensor **out3, core_tensor **out4);
core_status core__formula_refused(core_tensor *grad, const char *op,
                                  const char *argument, core_tensor **out);
core_status core__formula_scale(core_tensor *grad, core_scalar alpha,
                                core_tensor **out);
core_status core__formula_scatter_reduce_self(
    core_tensor *grad, core_tensor *self, int64_t dim, core_tensor *index,
    core_tensor *src, const char *reduce, bool include_self,
    core_tensor *result, core_tensor **out);
core_status core__formula_scatter_reduce_src(
    core_tensor *grad, core_tensor *self, int64_t dim, core_tensor *index,
    core_tensor *src, const char *reduce, bool include_self,
    core_tensor *result, core_tensor **out);
core_status core__formula_selected(core_tensor *grad, const int64_t *sizes,
                                   size_t sizes_count, int64_t dim,
                                   core_tensor *indices, bool keepdim,
                                   core_tensor **out);
core_status core__formula_silu_self(core_tensor *grad, core_tensor *grad_output,
                                    core_tensor *self, core_tensor **out);
core_status core__formula_softmax_grad(core_tensor *grad, core_tensor *output,
                                       int64_t dim, core_dtype dtype,
                                       core_tensor **out);
core_status core__formula_softmax_output(core_tensor *grad,
                                         core_tensor *grad_output,
                                         core_tensor *output, int64_t dim,
                                         core_tensor **out);
core_status core__formula_std_grad(core_tensor *grad, core_tensor *self,
                                   core_tensor *result, const int64_t *dim,
                                   size_t dim_count,
                                   const core_scalar *correction, bool keepdim,
                                   core_tensor **out);
core_status core__formula_take_grad(core_tensor *grad, const int64_t *sizes,
                                    size_t sizes_count, core_tensor *index,
                                    core_tensor **out);
core_status core__formula_triangular_grad(core_tensor *grad_B,
                                          core_tensor *result, bool upper,
                                          bool left, bool unitriangular,
                                          core_tensor **out);
core_status core__formula_unpermuted(core_tensor *grad, const int64_t *dims,
                                     size_t dims_count, core_tensor **out);
core_status core__formula_unrolled(core_tensor *grad, const int64_t *shifts,
                                   size_t shifts_count, const int64_t *dims,
                                   size_t dims_count, core_tensor **out);
core_status core__formula_var_grad(core_tensor *grad, core_tensor *self,
                                   const int64_t *dim, size_t dim_count,
                                   const core_scalar *correction, bool keepdim,
                                   core_tensor **out);
core_status core__formula_vector_norm_grad(core_tensor *grad, core_tensor *self,
                                           core_tensor *result, core_scalar ord,
                                           const int64_t *dim, size_t dim_count,
                                           bool keepdim, core_tensor **out);
core_status core__formula_det_grad(core_tensor *grad, core_tensor *A,
                                   core_tensor **out);
core_status core__formula_eigh_grad(core_tensor *gL, core_tensor *gV,
                                    core_tensor *L, core_tensor *V,
                                    bool compute_v, core_tensor **out);
core_status core__formula_lu_factor_grad(core_tensor *grad, core_tensor *LU,
                                         core_tensor *pivots,
                                         core_tensor **out);
core_status core__formula_matrix_exp_grad(core_tensor *grad, core_tensor *self,
                                          core_tensor **out);
core_status core__formula_matrix_sqrth_grad(core_tensor *grad,
                                            core_tensor *result,
                                            core_tensor **out);
core_status core__formula_polar_grad(core_tensor *gU, core_tensor *gH,
                                     core_tensor *U, core_tensor *H,
                                     core_tensor **out);
core_status core__formula_pinv_grad(core_tensor *grad, core_tensor *self,
                                    core_tensor *result, core_tensor **out);
core_status core__formula_slogdet_grad(core_tensor *grad, core_tensor *A,
                                       core_tensor **out);
core_status core__formula_spread(core_tensor *grad, core_tensor *indices,
                                 const int64_t *sizes, size_t sizes_count,
                                 int64_t spatial, core_tensor **out);
core_status core__formula_svd_grad(core_tensor *gU, core_tensor *gS,
                                   core_tensor *gVh, core_tensor *U,
                                   core_tensor *S, core_tensor *Vh,
                                   bool compute_uv, const int64_t *sizes,
                                   size_t sizes_count, core_tensor **out);

#endif
