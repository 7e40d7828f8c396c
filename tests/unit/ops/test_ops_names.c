/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Names of the operators that write into given tensors, with the names of the
 * arguments they write.  The names follow those of other frameworks, not a
 * rule, and are therefore listed here. */

#include "support/suite.h"

#include "dispatch/dispatch.h"
#include "dispatch/operator.h"

#include <libcore/dispatch.h>

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct row {
    const char *name, *base, *written;
} row;

static const row rows[] = {
    {"dropout_", "dropout", "self"},
    {"_linalg_det.result", "_linalg_det", "result LU pivots"},
    {"_linalg_eigh.eigenvalues", "_linalg_eigh", "eigenvalues eigenvectors"},
    {"_linalg_slogdet.sign", "_linalg_slogdet", "sign logabsdet LU pivots"},
    {"_linalg_svd.U", "_linalg_svd", "U S Vh"},
    {"_softmax_backward_data.out", "_softmax_backward_data", "grad_input"},
    {"adaptive_max_pool2d.out", "adaptive_max_pool2d", "out indices"},
    {"adaptive_max_pool2d_backward.grad_input", "adaptive_max_pool2d_backward",
     "grad_input"},
    {"adaptive_max_pool3d.out", "adaptive_max_pool3d", "out indices"},
    {"adaptive_max_pool3d_backward.grad_input", "adaptive_max_pool3d_backward",
     "grad_input"},
    {"all.all_out", "all", "out"},
    {"all.out", "all.dim", "out"},
    {"any.all_out", "any", "out"},
    {"any.out", "any.dim", "out"},
    {"avg_pool2d_backward.grad_input", "avg_pool2d_backward", "grad_input"},
    {"avg_pool3d_backward.grad_input", "avg_pool3d_backward", "grad_input"},
    {"bitwise_and.Tensor_out", "bitwise_and.Tensor", "out"},
    {"bitwise_left_shift.Tensor_out", "bitwise_left_shift.Tensor", "out"},
    {"bitwise_or.Tensor_out", "bitwise_or.Tensor", "out"},
    {"bitwise_right_shift.Tensor_out", "bitwise_right_shift.Tensor", "out"},
    {"bitwise_xor.Tensor_out", "bitwise_xor.Tensor", "out"},
    {"bucketize.Tensor_out", "bucketize.Tensor", "out"},
    {"div.out_mode", "div.Tensor_mode", "out"},
    {"elu_backward.grad_input", "elu_backward", "grad_input"},
    {"eq.Tensor_out", "eq.Tensor", "out"},
    {"floor_divide_.Tensor", "floor_divide", "self"},
    {"fmod.Tensor_out", "fmod.Tensor", "out"},
    {"fractional_max_pool2d.output", "fractional_max_pool2d", "output indices"},
    {"fractional_max_pool3d.output", "fractional_max_pool3d", "output indices"},
    {"frexp.Tensor_out", "frexp.Tensor", "mantissa exponent"},
    {"ge.Tensor_out", "ge.Tensor", "out"},
    {"gelu_backward.grad_input", "gelu_backward", "grad_input"},
    {"geqrf.a", "geqrf", "a tau"},
    {"gt.Tensor_out", "gt.Tensor", "out"},
    {"hardshrink_backward.grad_input", "hardshrink_backward", "grad_input"},
    {"hardsigmoid_backward.grad_input", "hardsigmoid_backward", "grad_input"},
    {"hardtanh_backward.grad_input", "hardtanh_backward", "grad_input"},
    {"index.Tensor_out", "index.Tensor", "out"},
    {"kthvalue.values", "kthvalue", "values indices"},
    {"le.Tensor_out", "le.Tensor", "out"},
    {"leaky_relu_backward.grad_input", "leaky_relu_backward", "grad_input"},
    {"lerp.Tensor_out", "lerp.Tensor", "out"},
    {"linalg_cholesky_ex.L", "linalg_cholesky_ex", "L info"},
    {"linalg_inv_ex.inverse", "linalg_inv_ex", "inverse info"},
    {"log_sigmoid_forward.output", "log_sigmoid_forward", "output buffer"},
    {"logit_backward.grad_input", "logit_backward", "grad_input"},
    {"lt.Tensor_out", "lt.Tensor", "out"},
    {"masked_fill.Tensor_out", "masked_fill.Tensor", "out"},
    {"max.dim_max", "max.dim", "max max_values"},
    {"max_pool2d_with_indices.out", "max_pool2d_with_indices", "out indices"},
    {"max_pool2d_with_indices_backward.grad_input",
     "max_pool2d_with_indices_backward", "grad_input"},
    {"max_pool3d_with_indices.out", "max_pool3d_with_indices", "out indices"},
    {"max_pool3d_with_indices_backward.grad_input",
     "max_pool3d_with_indices_backward", "grad_input"},
    {"mean.out", "mean.dim", "out"},
    {"median.dim_values", "median.dim", "values indices"},
    {"min.dim_min", "min.dim", "min min_indices"},
    {"mode.values", "mode", "values indices"},
    {"multilabel_margin_loss_forward.output", "multilabel_margin_loss_forward",
     "output is_target"},
    {"nanmedian.dim_values", "nanmedian.dim", "values indices"},
    {"native_batch_norm.out", "native_batch_norm", "out save_mean save_invstd"},
    {"ne.Tensor_out", "ne.Tensor", "out"},
    {"nll_loss2d_backward.grad_input", "nll_loss2d_backward", "grad_input"},
    {"nll_loss2d_forward.output", "nll_loss2d_forward", "output total_weight"},
    {"nll_loss_backward.grad_input", "nll_loss_backward", "grad_input"},
    {"nll_loss_forward.output", "nll_loss_forward", "output total_weight"},
    {"norm.out", "norm.ScalarOpt_dim", "out"},
    {"pow_.Scalar", "pow.Tensor_Scalar", "self"},
    {"pow_.Tensor", "pow.Tensor_Tensor", "self"},
    {"prod.int_out", "prod.dim_int", "out"},
    {"reflection_pad1d_backward.grad_input", "reflection_pad1d_backward",
     "grad_input"},
    {"reflection_pad2d_backward.grad_input", "reflection_pad2d_backward",
     "grad_input"},
    {"reflection_pad3d_backward.grad_input", "reflection_pad3d_backward",
     "grad_input"},
    {"remainder.Tensor_out", "remainder.Tensor", "out"},
    {"repeat_interleave.Tensor_out", "repeat_interleave.Tensor", "out"},
    {"replication_pad1d_backward.grad_input", "replication_pad1d_backward",
     "grad_input"},
    {"replication_pad2d_backward.grad_input", "replication_pad2d_backward",
     "grad_input"},
    {"replication_pad3d_backward.grad_input", "replication_pad3d_backward",
     "grad_input"},
    {"rsub.Tensor_out", "rsub.Tensor", "out"},
    {"searchsorted.Tensor_out", "searchsorted.Tensor", "out"},
    {"sigmoid_backward.grad_input", "sigmoid_backward", "grad_input"},
    {"silu_backward.grad_input", "silu_backward", "grad_input"},
    {"softplus_backward.grad_input", "softplus_backward", "grad_input"},
    {"softshrink_backward.grad_input", "softshrink_backward", "grad_input"},
    {"sort.values", "sort", "values indices"},
    {"sort.values_stable", "sort.stable", "values indices"},
    {"sum.IntList_out", "sum.dim_IntList", "out"},
    {"tanh_backward.grad_input", "tanh_backward", "grad_input"},
    {"threshold_backward.grad_input", "threshold_backward", "grad_input"},
    {"topk.values", "topk", "values indices"},
    {"upsample_bicubic2d_backward.grad_input", "upsample_bicubic2d_backward",
     "grad_input"},
    {"upsample_bilinear2d_backward.grad_input", "upsample_bilinear2d_backward",
     "grad_input"},
    {"upsample_linear1d_backward.grad_input", "upsample_linear1d_backward",
     "grad_input"},
    {"upsample_nearest1d_backward.grad_input", "upsample_nearest1d_backward",
     "grad_input"},
    {"upsample_nearest2d_backward.grad_input", "upsample_nearest2d_backward",
     "grad_input"},
    {"upsample_nearest3d_backward.grad_input", "upsample_nearest3d_backward",
     "grad_input"},
    {"upsample_trilinear3d_backward.grad_input",
     "upsample_trilinear3d_backward", "grad_input"},
    {"xlogy.OutTensor", "xlogy.Tensor", "out"},
};

/* Collects the names behind "(a!) ", in order. */
static void written_by(const char *schema, char *text, size_t size)
{
    size_t used = 0;

    text[0] = 0;
    for (const char *at = schema; at && used < size;) {
        const char *mark = strstr(at, "!) "), *end = strstr(at, ") -> ");

        if (!mark || (end && end < mark))
            return;
        mark += 3;
        used +=
            (size_t)snprintf(text + used, size - used, "%s%.*s",
                             used ? " " : "", (int)strcspn(mark, ",)"), mark);
        at = mark;
    }
}

START_TEST(out_operators_have_the_listed_names)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const row *r = &rows[i];
        core_operator *op = NULL;
        char written[128];

        ck_assert_msg(core_op_find(r->name, &op) == CORE_OK, "%s", r->name);
        ck_assert_str_eq(core_op_name(op), r->name);
        ck_assert_str_eq(core__operator_base(op)->data->name, r->base);
        written_by(core_op_schema(op), written, sizeof written);
        ck_assert_msg(strcmp(written, r->written) == 0, "%s writes %s, not %s",
                      r->name, written, r->written);
    }
}
END_TEST

/* Programs written with former names keep working. */
START_TEST(former_name_finds_the_operator)
{
    static const char *const names[][2] = {
        {"topk.out", "topk.values"},
        {"norm.ScalarOpt_dim_out", "norm.out"},
        {"pow_.Tensor_Tensor", "pow_.Tensor"},
        {"any.dim_out", "any.out"},
    };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        core_operator *op = NULL;

        ck_assert_int_eq(core_op_find(names[i][0], &op), CORE_OK);
        ck_assert_str_eq(core_op_name(op), names[i][1]);
    }
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        out_operators_have_the_listed_names,
        former_name_finds_the_operator,
    };
    const test_suite suite = {
        .name = "ops/ops_names",
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
