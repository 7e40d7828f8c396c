/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Every formula of ops.yaml against finite differences, to second order where
 * it has one. */

#include "ops.h"

enum { FIRST = 1, SECOND = 2 };

/* All floating results that have a gradient. */
static core_status call(void *context, core_tensor *const *inputs,
                        size_t ninputs, core_tensor **outputs, size_t *noutputs)
{
    arguments *a = context;
    core_value results[4];

    (void)inputs;
    (void)ninputs;
    *noutputs = 0;
    CORE_TRY(core_op_call(a->op, a->values, a->count, results, 4));
    for (int i = 0; i < 4; i++) {
        if (results[i].tag == CORE_VALUE_TENSOR &&
            core_tensor_requires_grad(results[i].u.tensor))
            outputs[(*noutputs)++] = results[i].u.tensor;
        else if (results[i].tag == CORE_VALUE_TENSOR_LIST)
            for (uint32_t j = 0; j < results[i].count; j++)
                outputs[(*noutputs)++] =
                    core_tensor_retain(results[i].u.tensors[j]);
        if (results[i].tag != CORE_VALUE_TENSOR ||
            !core_tensor_requires_grad(results[i].u.tensor))
            core_value_release(&results[i]);
    }
    ck_assert_uint_gt(*noutputs, 0);
    return CORE_OK;
}

static void run(const check *checks, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const check *c = &checks[i];
        char words[256];
        arguments a;
        core_status status;

        state = 12345;
        snprintf(words, sizeof words, "%s", c->words);
        parse(&a, c, words);
        status =
            core_gradcheck(call, &a, a.leaves, a.nleaves, 1e-6, 1e-5, 1e-5);
        ck_assert_msg(status == CORE_OK, "%s(%s): %s", c->op, c->words,
                      core_error_message());
        if (c->order < SECOND)
            continue;
        status =
            core_gradgradcheck(call, &a, a.leaves, a.nleaves, 1e-6, 1e-4, 1e-4);
        ck_assert_msg(status == CORE_OK, "second order of %s(%s): %s", c->op,
                      c->words, core_error_message());
    }
}

#define RUN(checks) run(checks, sizeof checks / sizeof *checks)

/* ------------------------------------------------------------------ cases -- */

static const check unary[] = {
    {"abs", "t:5", .1, 2, SECOND},
    {"neg", "t:5", -2, 2, SECOND},
    {"sign", "t:5", .1, 2, SECOND},
    {"ceil", "t:5", .1, .9, SECOND},
    {"round.decimals", "t:5 i:1", .01, .04, FIRST},
    {"frac", "t:5", .1, .9, SECOND},
    {"reciprocal", "t:5", .5, 2, SECOND},
    {"sqrt", "t:5", .5, 2, SECOND},
    {"rsqrt", "t:5", .5, 2, SECOND},
    {"deg2rad", "t:5", .5, 2, SECOND},
    {"exp", "t:5", -1, 1, SECOND},
    {"exp2", "t:5", -1, 1, SECOND},
    {"expm1", "t:5", -1, 1, SECOND},
    {"log", "t:5", .5, 2, SECOND},
    {"log2", "t:5", .5, 2, SECOND},
    {"log10", "t:5", .5, 2, SECOND},
    {"log1p", "t:5", -.5, 2, SECOND},
    {"sin", "t:5", -2, 2, SECOND},
    {"cos", "t:5", -2, 2, SECOND},
    {"tan", "t:5", -1, 1, SECOND},
    {"asin", "t:5", -.8, .8, SECOND},
    {"acos", "t:5", -.8, .8, SECOND},
    {"atan", "t:5", -2, 2, SECOND},
    {"sinh", "t:5", -1, 1, SECOND},
    {"cosh", "t:5", -1, 1, SECOND},
    {"tanh", "t:5", -1, 1, SECOND},
    {"asinh", "t:5", -1, 1, SECOND},
    {"acosh", "t:5", 1.5, 3, SECOND},
    {"atanh", "t:5", -.8, .8, SECOND},
    {"erf", "t:5", -1, 1, SECOND},
    {"erfc", "t:5", -1, 1, SECOND},
    {"sigmoid", "t:5", -2, 2, SECOND},
    {"sinc", "t:5", .2, 2, SECOND},
    {"special_entr", "t:5", .2, 2, SECOND},
    {"logit", "t:5", .2, .8, SECOND},
    {"logit", "t:5 f:.1", .2, .8, SECOND},
    {"nan_to_num", "t:5", -1, 1, SECOND},
    {"clamp", "t:9 f:-.5 f:.5", -1, 1, SECOND},
    {"clamp_min", "t:9 f:0", -1, 1, SECOND},
    {"cumsum", "t:3,4 i:1", -1, 1, SECOND},
    {"cumprod", "t:3,4 i:0", .5, 2, SECOND},
    {"logcumsumexp", "t:3,4 i:1", -1, 1, FIRST},
    {"pow.Tensor_Scalar", "t:5 f:2.5", .5, 2, SECOND},
    {"pow.Tensor_Scalar", "t:5 i:2", -2, 2, SECOND},
    {"pow.Scalar", "f:2 t:5", -1, 1, SECOND},
};

START_TEST(functions_of_one_tensor)
{
    RUN(unary);
}
END_TEST

static const check binary[] = {
    {"add.Tensor", "t:3,1 t:4 f:.5", -1, 1, SECOND},
    {"sub.Tensor", "t:3,1 t:4 f:2", -1, 1, SECOND},
    {"rsub.Tensor", "t:3 t:3 f:2", -1, 1, SECOND},
    {"mul.Tensor", "t:3,1 t:4", -1, 1, SECOND},
    {"div.Tensor", "t:3,1 t:4", .5, 2, SECOND},
    {"div.Tensor_mode", "t:4 t:4 s:floor", 1.1, 1.4, FIRST},
    {"fmod.Tensor", "t:4 p:4", 1.1, 1.9, FIRST},
    {"remainder.Tensor", "t:4 p:4", 1.1, 1.9, FIRST},
    {"pow.Tensor_Tensor", "t:3,1 t:4", .5, 2, SECOND},
    {"atan2", "t:4 t:4", .5, 2, SECOND},
    {"hypot", "t:4 t:4", .5, 2, SECOND},
    {"copysign.Tensor", "t:4 p:4", .5, 2, FIRST},
    {"maximum", "u:5 t:5", -1, 1, SECOND},
    {"minimum", "u:5 t:5", -1, 1, SECOND},
    {"fmax", "u:5 t:5", -1, 1, SECOND},
    {"fmin", "u:5 t:5", -1, 1, SECOND},
    {"logaddexp", "t:4 t:4", -1, 1, SECOND},
    {"logaddexp2", "t:4 t:4", -1, 1, SECOND},
    {"xlogy.Tensor", "t:4 t:4", .5, 2, SECOND},
    {"special_xlog1py", "t:4 t:4", .5, 2, SECOND},
    {"lerp.Scalar", "t:4 t:4 f:.3", -1, 1, SECOND},
    {"lerp.Tensor", "t:4 t:4 t:4", -1, 1, SECOND},
    {"addcmul", "t:4 t:4 t:4 f:.5", .5, 2, SECOND},
    {"addcdiv", "t:4 t:4 t:4 f:.5", .5, 2, SECOND},
    {"where.self", "m:5 t:5 t:5", -1, 1, SECOND},
    {"masked_fill.Scalar", "t:5 m:5 f:2", -1, 1, SECOND},
    {"masked_fill.Tensor", "t:5 m:5 t:", -1, 1, SECOND},
    {"clamp.Tensor", "t:7 p:7 n", -1, 1, SECOND},
    {"clamp_max.Tensor", "u:7 t:7", -1, 1, SECOND},
};

START_TEST(functions_of_several_tensors)
{
    RUN(binary);
}
END_TEST

static const check activations[] = {
    {"relu", "t:7", -1, 1, SECOND},
    {"gelu", "t:7", -2, 2, SECOND},
    {"gelu", "t:7 s:tanh", -2, 2, SECOND},
    {"silu", "t:7", -2, 2, SECOND},
    {"mish", "t:7", -2, 2, FIRST},
    {"elu", "t:7 f:.5 f:2 f:1.5", -1, 1, FIRST},
    {"celu", "t:7 f:.5", -1, 1, FIRST},
    {"selu", "t:7", -1, 1, FIRST},
    {"leaky_relu", "t:7 f:.1", -1, 1, SECOND},
    {"hardtanh", "t:7 f:-.5 f:.5", -1, 1, SECOND},
    {"relu6", "t:7", -1, 1, SECOND},
    {"hardsigmoid", "t:7", -4, 4, SECOND},
    {"hardswish", "t:7", -4, 4, SECOND},
    {"hardshrink", "t:7 f:.3", -1, 1, SECOND},
    {"softshrink", "t:7 f:.3", -1, 1, SECOND},
    {"softplus", "t:7 f:2 f:1", -1, 1, SECOND},
    {"threshold", "t:7 f:.1 f:3", -1, 1, SECOND},
    {"log_sigmoid", "t:7", -2, 2, SECOND},
    {"prelu", "t:2,3,2 t:3", -1, 1, SECOND},
    {"glu", "t:3,4 i:1", -1, 1, SECOND},
    {"softmax.int", "t:3,4 i:1", -1, 1, SECOND},
    {"log_softmax.int", "t:3,4 i:0", -1, 1, SECOND},
};

START_TEST(activation_functions)
{
    RUN(activations);
}
END_TEST

static const check reductions[] = {
    {"sum", "t:3,4", -1, 1, SECOND},
    {"sum.dim_IntList", "t:3,4 l:1", -1, 1, SECOND},
    {"sum.dim_IntList", "t:3,4,2 l:0,-1 b:1", -1, 1, SECOND},
    {"mean", "t:3,4", -1, 1, SECOND},
    {"mean.dim", "t:3,4 l:0", -1, 1, SECOND},
    {"prod", "t:2,3", .5, 2, SECOND},
    {"prod.dim_int", "t:2,3 i:1 b:0", .5, 2, SECOND},
    {"amax", "u:3,4 l:1 b:0", -1, 1, FIRST},
    {"amin", "u:3,4 l: b:0", -1, 1, FIRST},
    {"max", "u:3,4", -1, 1, FIRST},
    {"max.dim", "u:3,4 i:1", -1, 1, SECOND},
    {"min.dim", "u:3,4 i:0 b:1", -1, 1, SECOND},
    {"var.correction", "t:3,4 l:1 i:1 b:0", -1, 1, SECOND},
    {"std.correction", "t:3,4 l:1 i:0 b:1", -1, 1, SECOND},
    {"var_mean.correction", "t:3,4 n i:1", -1, 1, SECOND},
    {"aminmax", "u:3,4 i:0", -1, 1, FIRST},
    {"nansum", "t:3,4", -1, 1, SECOND},
    {"logsumexp", "t:3,4 l:1", -1, 1, SECOND},
    {"linalg_vector_norm", "t:3,4 f:2 l:1", .5, 2, SECOND},
    {"linalg_vector_norm", "t:3,4 f:3 n", .5, 2, SECOND},
    {"linalg_vector_norm", "t:3,4 f:1 l:0", .5, 2, SECOND},
    {"median.dim", "u:3,5 i:1", -1, 1, FIRST},
    {"kthvalue", "u:3,5 i:2 i:1", -1, 1, FIRST},
    {"sort", "u:3,5 i:1", -1, 1, SECOND},
    {"topk", "u:3,5 i:2", -1, 1, SECOND},
    {"cummax", "u:3,5 i:1", -1, 1, FIRST},
};

START_TEST(reductions_and_order)
{
    RUN(reductions);
}
END_TEST

static const check shapes[] = {
    {"view", "t:3,4 l:2,-1", -1, 1, SECOND},
    {"transpose.int", "t:3,4,2 i:0 i:-1", -1, 1, SECOND},
    {"t", "t:3,4", -1, 1, SECOND},
    {"permute", "t:3,4,2 l:2,0,1", -1, 1, SECOND},
    {"slice.Tensor", "t:5,3 i:0 i:1 i:5 i:2", -1, 1, SECOND},
    {"select.int", "t:5,3 i:1 i:-1", -1, 1, SECOND},
    {"narrow", "t:5,3 i:0 i:1 i:3", -1, 1, SECOND},
    {"expand", "t:3,1 l:2,3,4", -1, 1, SECOND},
    {"squeeze", "t:3,1,2", -1, 1, SECOND},
    {"squeeze.dim", "t:3,1,2 i:1", -1, 1, SECOND},
    {"unsqueeze", "t:3,2 i:-1", -1, 1, SECOND},
    {"diagonal", "t:3,4 i:1", -1, 1, SECOND},
    {"as_strided", "t:3,4 l:2,3 l:4,1 i:1", -1, 1, SECOND},
    {"as_strided", "t:6 l:4,3 l:1,1", -1, 1, SECOND},
    {"unfold", "t:5,2 i:0 i:3 i:1", -1, 1, SECOND},
    {"split.Tensor", "t:5,2 i:2", -1, 1, SECOND},
    {"unbind.int", "t:3,2", -1, 1, SECOND},
    {"chunk", "t:5,2 i:2", -1, 1, SECOND},
    {"reshape", "t:3,4 l:6,2", -1, 1, SECOND},
    {"slice_scatter", "t:5,3 t:2,3 i:0 i:1 i:3", -1, 1, SECOND},
    {"select_scatter", "t:3,4 t:3 i:1 i:2", -1, 1, SECOND},
    {"diagonal_scatter", "t:3,4 t:3", -1, 1, SECOND},
    {"as_strided_scatter", "t:3,4 t:2,2 l:2,2 l:4,1 i:1", -1, 1, SECOND},
    {"diag_embed", "t:2,3 i:1", -1, 1, SECOND},
    {"diag", "t:3,3", -1, 1, SECOND},
    {"trace", "t:3,3", -1, 1, SECOND},
    {"flip", "t:3,4 l:0,1", -1, 1, SECOND},
    {"roll", "t:3,4 l:1,2 l:0,1", -1, 1, SECOND},
    {"tril", "t:3,4 i:1", -1, 1, SECOND},
    {"cat", "[ t:2,3 t:1,3 ] i:0", -1, 1, SECOND},
    {"stack", "[ t:2,3 t:2,3 ] i:1", -1, 1, SECOND},
    {"repeat", "t:2,3 l:2,1,2", -1, 1, SECOND},
    {"pixel_shuffle", "t:1,4,2,2 i:2", -1, 1, SECOND},
    {"pixel_unshuffle", "t:1,1,4,4 i:2", -1, 1, SECOND},
    {"constant_pad_nd", "t:2,3 l:1,-1,0,2 f:.5", -1, 1, SECOND},
    {"reflection_pad2d", "t:1,3,4 l:1,2,1,0", -1, 1, SECOND},
    {"replication_pad1d", "t:2,3 l:1,2", -1, 1, SECOND},
};

START_TEST(views_and_arrangements)
{
    RUN(shapes);
}
END_TEST

static const check indexing[] = {
    {"gather", "t:3,4 i:1 x:3,2/4", -1, 1, SECOND},
    {"scatter.src", "t:3,4 i:1 x:3,2/2 t:3,2", -1, 1, SECOND},
    {"scatter.value", "t:3,4 i:1 x:3,2/2 f:1", -1, 1, SECOND},
    {"scatter_add", "t:3,4 i:0 x:2,4/3 t:2,4", -1, 1, SECOND},
    {"scatter_reduce.two", "t:4 i:0 x:6/3 t:6 s:sum", .5, 2, SECOND},
    {"scatter_reduce.two", "t:4 i:0 x:6/3 t:6 s:mean b:0", .5, 2, SECOND},
    {"scatter_reduce.two", "t:4 i:0 x:6/3 t:6 s:prod", .5, 2, FIRST},
    {"scatter_reduce.two", "t:4 i:0 x:6/3 u:6 s:amax", .5, 2, FIRST},
    {"index_select", "t:3,4 i:1 x:5/4", -1, 1, SECOND},
    {"index_add", "t:3,4 i:0 x:5/3 t:5,4 f:2", -1, 1, SECOND},
    {"index_copy", "t:5,2 i:0 q:5 t:5,2", -1, 1, SECOND},
    {"index_fill.int_Scalar", "t:5,2 i:0 x:2/4 f:1", -1, 1, SECOND},
    {"index.Tensor", "t:3,4 [ x:5/3 x:5/4 ]", -1, 1, SECOND},
    {"index.Tensor", "t:3,4 [ n m:4 ]", -1, 1, SECOND},
    {"index_put", "t:3,4 [ x:3/3 ] t:3,4 b:1", -1, 1, SECOND},
    {"masked_select", "t:3,4 m:3,4", -1, 1, SECOND},
    {"masked_scatter", "t:3,4 m:3,4 t:12", -1, 1, SECOND},
    {"take", "t:3,4 x:5/12", -1, 1, SECOND},
    {"embedding", "t:4,3 x:5/4", -1, 1, SECOND},
};

START_TEST(indices_and_masks)
{
    RUN(indexing);
}
END_TEST

static const check matrices[] = {
    {"mm", "t:2,3 t:3,4", -1, 1, SECOND},
    {"bmm", "t:2,2,3 t:2,3,2", -1, 1, SECOND},
    {"mv", "t:2,3 t:3", -1, 1, SECOND},
    {"dot", "t:3 t:3", -1, 1, SECOND},
    {"addmm", "t:4 t:2,3 t:3,4 f:.5 f:2", -1, 1, SECOND},
    {"addmv", "t:2 t:2,3 t:3 f:.5 f:2", -1, 1, SECOND},
    {"addr", "t:2,3 t:2 t:3 f:.5 f:2", -1, 1, SECOND},
    {"baddbmm", "t:2,2,2 t:2,2,3 t:2,3,2 f:.5 f:2", -1, 1, SECOND},
    {"addbmm", "t:2,2 t:2,2,3 t:2,3,2 f:.5 f:2", -1, 1, SECOND},
    {"matmul", "t:2,1,2,3 t:3,3,2", -1, 1, SECOND},
    {"matmul", "t:2,2,3 t:3", -1, 1, SECOND},
    {"linear", "t:2,3 t:4,3 t:4", -1, 1, SECOND},
    {"linear", "t:2,2,3 t:4,3 t:4", -1, 1, SECOND},
    {"_cdist_forward", "t:3,2 t:4,2 f:2 n", -1, 1, SECOND},
    {"_pdist_forward", "t:4,2 f:3", -1, 1, SECOND},
    {"linalg_qr", "u:4,3", -1, 1, SECOND},
    {"linalg_qr", "u:2,2,3", -1, 1, FIRST},
    {"linalg_solve_triangular", "t:3,3 t:3,2 b:1", .5, 2, SECOND},
    {"linalg_solve_triangular", "t:3,3 t:2,3 b:0 b:0 b:1", .5, 2, SECOND},
    {"linalg_cross", "t:2,3 t:2,3", -1, 1, SECOND},
    {"scaled_dot_product_attention", "t:2,3,2 t:2,3,2 t:2,3,2 n f:0 b:1", -1, 1,
     SECOND},
};

START_TEST(products_of_matrices)
{
    RUN(matrices);
}
END_TEST

static const check networks[] = {
    {"conv2d", "t:1,2,4,4 t:2,2,3,3 t:2 i:1 i:1", -1, 1, SECOND},
    {"conv1d", "t:2,2,5 t:4,1,3 t:4 i:2 i:1 i:1 i:2", -1, 1, SECOND},
    {"convolution", "t:1,2,3,3 t:2,2,2,2 n l:2,2 l:0,0 l:1,1 b:1 l:0,0 i:1", -1,
     1, SECOND},
    {"max_pool2d", "u:1,1,4,4 l:2,2", -1, 1, SECOND},
    {"avg_pool2d", "t:1,1,4,4 l:2,2 l: l:1,1", -1, 1, SECOND},
    {"_adaptive_avg_pool2d", "t:1,1,4,5 l:2,3", -1, 1, SECOND},
    {"adaptive_max_pool2d", "u:1,1,4,4 l:2,2", -1, 1, FIRST},
    {"upsample_nearest2d", "t:1,1,2,3 l:4,5", -1, 1, SECOND},
    {"upsample_bilinear2d", "t:1,1,2,3 l:4,5 b:0", -1, 1, SECOND},
    {"upsample_bicubic2d", "t:1,1,3,3 l:4,5 b:1", -1, 1, SECOND},
    {"grid_sampler_2d", "t:1,1,3,3 t:1,2,2,2 i:0 i:0 b:1", -.7, .7, FIRST},
    {"layer_norm", "t:2,3,4 l:4 t:4 t:4", -1, 1, FIRST},
    {"group_norm", "t:2,4,3 i:2 t:4 t:4", -1, 1, FIRST},
    {"native_group_norm", "t:2,4,3 t:4 t:4 i:2 i:4 i:3 i:2 f:.001", -1, 1,
     FIRST},
    {"batch_norm", "t:3,2,4 t:2 t:2 n n b:1 f:.1 f:.001", -1, 1, FIRST},
    {"nll_loss", "t:4,3 x:4/3 p:3", .5, 2, SECOND},
    {"cross_entropy_loss", "t:4,3 x:4/3", -1, 1, SECOND},
    {"cross_entropy_loss", "t:4,3 x:4/3 p:3 i:1 i:-100 f:.2", .5, 2, SECOND},
    {"cross_entropy_loss", "t:4,3 p:4,3", .1, .9, SECOND},
    {"mse_loss", "t:4 t:4", -1, 1, SECOND},
    {"smooth_l1_loss", "t:6 t:6 i:2 f:.5", -1, 1, SECOND},
    {"huber_loss", "t:6 t:6 i:0 f:.5", -1, 1, SECOND},
    {"soft_margin_loss", "t:4 t:4", -1, 1, SECOND},
    {"kl_div", "t:4 t:4 i:1 b:0", .2, .8, SECOND},
    {"binary_cross_entropy", "t:4 t:4", .2, .8, SECOND},
    {"binary_cross_entropy_with_logits", "t:4 t:4 n p:4", .2, .8, SECOND},
};

START_TEST(layers_and_losses)
{
    RUN(networks);
}
END_TEST

START_TEST(a_missing_formula_raises_when_it_is_asked_for)
{
    core_tensor *x = leaf(VECTOR(2, .5, 1.5));
    core_tensor *y = CALL(lgamma, x);
    core_tensor *grad = NULL;
    core_tensor *loss = CALL(sum, y, CORE_DTYPE_NONE);

    FAILS(core_backward(&loss, 1, NULL, 0), CORE_ERROR_UNSUPPORTED, "lgamma");
    /* nor does core_grad take its input for an unused one */
    loss = sum(CALL(lgamma, x));
    FAILS(core_grad(&loss, 1, NULL, &x, 1, CORE_ALLOW_UNUSED, &grad),
          CORE_ERROR_UNSUPPORTED, "lgamma");
    ck_assert_ptr_null(grad);
}
END_TEST

SUITE("ops gradients", functions_of_one_tensor, functions_of_several_tensors,
      activation_functions, reductions_and_order, views_and_arrangements,
      indices_and_masks, products_of_matrices, layers_and_losses,
      a_missing_formula_raises_when_it_is_asked_for)
