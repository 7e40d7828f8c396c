/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Backward operators called directly, with gradients that do not fit. */

#include "support/ops.h"

START_TEST(padding_backward_requires_sizes_of_forward)
{
    core_tensor *grad = MATRIX(1, 3, 1, 2, 3);
    core_tensor *self = MATRIX(1, 3, 1, 2, 3);
    core_tensor *out = NULL;

    FAILS(
        core_reflection_pad1d_backward(grad, self, (int64_t[]){2, 2}, 2, &out),
        CORE_ERROR_SHAPE, "[1, 3]", "[1, 7]");
    FAILS(
        core_replication_pad1d_backward(grad, self, (int64_t[]){2, 2}, 2, &out),
        CORE_ERROR_SHAPE, "[1, 3]", "[1, 7]");
    ck_assert_ptr_null(out);
}
END_TEST

/* A call, its error code and a part of the message. */
static const struct refusal {
    check call;
    core_status code;
    const char *text;
} refusals[] = {
    {{"max_pool2d_with_indices_backward",
      "p:1,2,3,2 p:1,2,5,5 l:2 l:2 l:0 l:1 b:0 x:1,2,2,2/25", 0, 1},
     CORE_ERROR_SHAPE,
     "grad_output has sizes [1, 2, 3, 2]"},
    {{"max_pool2d_with_indices_backward",
      "p:1,2,2,2 p:1,2,5,5 l:2 l:2 l:0 l:1 b:0 x:1,2,2,1/25", 0, 1},
     CORE_ERROR_SHAPE,
     "indices"},
    {{"max_pool2d_with_indices_backward",
      "p:1,2,2,2 p:1,2,5,5 l:2 l:2 l:0 l:1 b:0 p:1,2,2,2", 0, 1},
     CORE_ERROR_DTYPE,
     "i64"},
    {{"avg_pool2d_backward", "p:1,2,3,2 p:1,2,6,6 l:2 l:2 l:0 b:0 b:1 n", 0, 1},
     CORE_ERROR_SHAPE,
     "[1, 2, 3, 3]"},
    {{"_adaptive_avg_pool2d_backward", "p:2,2,3,2 p:1,2,5,5", 0, 1},
     CORE_ERROR_SHAPE,
     "grad_output"},
    {{"adaptive_max_pool3d_backward", "p:1,1,2,2,2 p:1,1,3,4,4 x:1,1,2,2,1/48",
      0, 1},
     CORE_ERROR_SHAPE,
     "indices"},
    {{"upsample_nearest1d_backward", "p:1,2,5 l:5 l:3,2,3", 0, 1},
     CORE_ERROR_SHAPE,
     "[3, 2, 5]"},
    {{"upsample_nearest1d_backward", "p:1,2,5 l:5 l:1,2,3 f:nan", 0, 1},
     CORE_ERROR_INVALID_ARGUMENT,
     "scale factor"},
    {{"upsample_bilinear2d", "p:1,1,2,2 l:4,4 b:0 f:2 f:inf", 0, 1},
     CORE_ERROR_INVALID_ARGUMENT,
     "scale factor"},
    {{"grid_sampler_2d_backward",
      "p:2,2,4,1 p:2,2,3,3 p:2,4,2,2 i:0 i:0 b:1 k:1,1", 0, 1},
     CORE_ERROR_SHAPE,
     "grad_output"},
    {{"grid_sampler_2d_backward",
      "p:2,2,4,2 p:2,2,3,3 p:2,4,2,2 i:0 i:0 b:1 k:1,1,1", 0, 1},
     CORE_ERROR_INVALID_ARGUMENT,
     "output_mask"},
    {{"nll_loss_backward", "p:4 p:4,3 x:4/3 n i:7 i:-100 p:", 0, 1},
     CORE_ERROR_INVALID_ARGUMENT,
     "reduction"},
    {{"nll_loss_backward", "p: p:4,3 x:4/3 n i:0 i:-100 p:", 0, 1},
     CORE_ERROR_SHAPE,
     "grad_output"},
    {{"native_layer_norm_backward",
      "p:2,3,4 p:2,3,4 l:3,4 p:2,1,1 p:1,1,1 n n k:1,1,1", 0, 1},
     CORE_ERROR_SHAPE,
     "rstd"},
    {{"native_batch_norm_backward",
      "p:2,4,3 p:2,4,3 n n n p:4 p:3 b:1 f:.1 k:1,1,1", 0, 1},
     CORE_ERROR_SHAPE,
     "save_invstd"},
    {{"embedding_dense_backward", "p:3,4 x:2,3/5 i:5 i:-1 b:0", 0, 1},
     CORE_ERROR_SHAPE,
     "[2, 3, 4]"},
    {{"_solve_triangular", "p:3,3 p:2,3,2 b:1 b:1 b:0", 0, 1},
     CORE_ERROR_SHAPE,
     "without its last two dimensions"},
    {{"masked_select", "p:3,4 m:3,0", 0, 1}, CORE_ERROR_SHAPE, "broadcast"},
    {{"clamp.Tensor", "p:3 n n", 0, 1},
     CORE_ERROR_INVALID_ARGUMENT,
     "optional"},
};

START_TEST(arguments_impossible_in_forward_are_refused)
{
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct refusal *r = &refusals[i];
        core_value results[4] = {0};
        arguments a;
        core_status status;

        parse(&a, &r->call);
        status = core_op_call(a.op, a.values, a.count, results, 4);
        ck_assert_msg(status == r->code &&
                          strstr(core_error_message(), r->text),
                      "%s(%s): %d, \"%s\"", r->call.op, r->call.words, status,
                      status ? core_error_message() : "");
    }
}
END_TEST

START_TEST(cat_and_stack_take_a_thousand_tensors)
{
    core_tensor *tensors[1000], *out;
    double total;

    for (int i = 0; i < 1000; i++)
        tensors[i] = VECTOR(2, i, 1);
    out = CALL(cat, tensors, 1000, 0);
    ck_assert_int_eq(core_tensor_numel(out), 2000);
    OK(core_tensor_read(sum(out), &total, sizeof total));
    ck_assert_double_eq_tol(total, 499500 + 1000, 1e-9);
    out = CALL(stack, tensors, 1000, 1);
    ck_assert_int_eq(core_tensor_size(out, 1), 1000);
}
END_TEST

START_TEST(out_on_another_device_is_refused)
{
    core_device *meta;
    core_tensor *on_meta, *here = SCALAR(1);

    OK(core_device_find("meta", &meta));
    on_meta = CALL(empty, NULL, 0, CORE_F64, meta, -1);
    FAILS(core_mish_out(on_meta, here), CORE_ERROR_DEVICE, "cpu", "meta");
}
END_TEST

static core_status ctc(void *context, core_tensor *const *inputs,
                       size_t ninputs, core_tensor **outputs, size_t *noutputs)
{
    const int64_t times[2] = {5, 4}, labels[2] = {3, 1};
    core_tensor *logs = NULL, *alpha = NULL;
    core_status status;

    (void)ninputs;
    status = core_log_softmax(inputs[0], 2, CORE_DTYPE_NONE, &logs);
    if (status == CORE_OK)
        status = core_ctc_loss_forward(logs, context, times, 2, labels, 2, 0,
                                       true, &outputs[0], &alpha);
    core_tensor_release(logs);
    core_tensor_release(alpha);
    *noutputs = 1;
    return status;
}

START_TEST(gradient_of_ctc_loss_holds_for_normalised_probabilities)
{
    const int64_t sizes[3] = {5, 2, 4}, rows[2] = {2, 3};
    const int64_t labels[6] = {2, 2, 1, 3, 1, 1};
    double values[40];
    core_tensor *x, *targets;

    for (int i = 0; i < 40; i++)
        values[i] = sin(i * i + 1);
    OK(core_tensor_from_data(values, CORE_F64, sizes, 3, NULL, &x));
    OK(core_tensor_from_data(labels, CORE_I64, rows, 2, NULL, &targets));
    OK(core_tensor_set_requires_grad(x, true));
    OK(core_gradcheck(ctc, targets, &x, 1, 1e-6, 1e-6, 1e-6));
    core_tensor_release(x);
    core_tensor_release(targets);
}
END_TEST

SUITE("ops/ops_backward",
      gradient_of_ctc_loss_holds_for_normalised_probabilities,
      padding_backward_requires_sizes_of_forward,
      arguments_impossible_in_forward_are_refused,
      cat_and_stack_take_a_thousand_tensors, out_on_another_device_is_refused)
