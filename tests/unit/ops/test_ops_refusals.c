/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Arguments without a meaning: the error names the operator, the argument and
 * its value.  Each table also has valid calls of the same operators. */

#include "support/ops.h"

/* Operator, arguments, and a part of the message; NULL: the call succeeds. */
typedef struct row {
    const char *op, *words, *text;
} row;

static core_status call_words(const row *r, core_value *results)
{
    check c = {r->op, r->words, 0, 1};
    arguments a;

    parse(&a, &c);
    return core_op_call(a.op, a.values, a.count, results, 4);
}

static void check_rows(const row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const row *r = &rows[i];
        core_value results[4] = {0};
        core_status status = call_words(r, results);
        const char *said = status ? core_error_message() : "";

        ck_assert_msg(r->text ? status && strstr(said, r->text) &&
                                    strstr(said, r->op + (*r->op == '_'))
                              : !status,
                      "%s(%s): %d, \"%s\"", r->op, r->words, status, said);
        for (int k = 0; k < 4; k++) {
            if (status)
                ck_assert_uint_eq(results[k].tag, CORE_VALUE_NONE);
            core_value_release(&results[k]);
        }
    }
}

#define CHECK_ROWS(rows) check_rows(rows, sizeof rows / sizeof *(rows))

START_TEST(messages_name_argument_sizes_and_dtype)
{
    static const row rows[] = {
        {"add.Tensor", "n p:3 f:1",
         "argument 1, self, is absent; it must be a"},
        {"pow.Tensor_Scalar", "p:3 n", "argument 2, exponent, is absent"},
        {"add_.Tensor", "x:3/2 p:3 f:1", "stored in a tensor of i64"},
        {"view", "p:4 l:-1,-1",
         "the sizes are [-1, -1]; at most one of them may be -1"},
        {"reshape", "p:4 l:2,-1,-1", "at most one of them may be -1"},
    };
    core_tensor *out;

    CHECK_ROWS(rows);
    FAILS(core_hypot(NULL, NULL, &out), CORE_ERROR_INVALID_ARGUMENT,
          "hypot: argument 1, self, is absent; it must be a tensor");
}
END_TEST

/* The number is checked for every variant and for empty tensors. */
START_TEST(softshrink_refuses_negative_lambd)
{
    static const row rows[] = {
        {"softshrink", "p:3 f:-0.5", "lambd is -0.5"},
        {"softshrink", "p:3 i:-1", "lambd is -1"},
        {"softshrink", "p:3 f:nan", "lambd is nan"},
        {"softshrink", "p:0 f:-0.5", "lambd is -0.5"},
        {"softshrink", "p:3 f:0", NULL},
        {"softshrink", "p:3 f:0.5", NULL},
    };

    CHECK_ROWS(rows);
}
END_TEST

/* An extreme of zero elements has no value; a sum is 0. */
START_TEST(vector_norm_of_zero_elements_refuses_orders_of_extremes)
{
    static const row rows[] = {
        {"linalg_vector_norm", "p:0 f:inf n", "order inf"},
        {"linalg_vector_norm", "p:0 f:-inf n", "order -inf"},
        {"linalg_vector_norm", "p:0 f:-1 n", "order -1"},
        {"linalg_vector_norm", "p:2,0 f:inf l:1", "order inf"},
        {"linalg_vector_norm", "p:2,0 f:-1 l:-1", "zero elements"},
        {"linalg_vector_norm", "p:0,0 f:inf l:1", "zero elements"},
        {"linalg_vector_norm", "p:0,2 f:inf n", "zero elements"},
        {"norm.ScalarOpt_dim", "p:2,0 f:inf l:1", "zero elements"},
        {"linalg_vector_norm", "p:0,2 f:inf l:1", NULL},
        {"linalg_vector_norm", "p:0,2 f:-1 l:1", NULL},
        {"linalg_vector_norm", "p:2,0 f:2 l:1", NULL},
        {"linalg_vector_norm", "p:0 f:0 n", NULL},
        {"linalg_vector_norm", "p:0 f:.5 n", NULL},
        {"_cdist_forward", "p:2,0 p:3,0 f:inf n", NULL},
        {"_pdist_forward", "p:3,0 f:inf", NULL},
    };

    CHECK_ROWS(rows);
}
END_TEST

START_TEST(max_unpool3d_refuses_invalid_strides_and_padding)
{
    static const row rows[] = {
        {"max_unpool3d", "p:1,1,2,2 x:1,1,2,2/18 l:2,3,3 l:0,1,1 l:0",
         "stride is 0"},
        {"max_unpool3d", "p:1,1,2,2 x:1,1,2,2/18 l:2,3,3 l:1,1,-5 l:0",
         "stride is -5"},
        {"max_unpool3d", "p:1,1,2,2 x:1,1,2,2/18 l:2,3,3 l:1 l:0,-1,0",
         "padding -1"},
        {"max_unpool3d", "p:1,1,2,2 x:1,1,2,2/18 l:2,3,3 l:1,1 l:0", "stride"},
        {"max_unpool3d", "p:1,1,2,2 x:1,1,2,2/18 l:2,3,3 l:1 l:0,0", "padding"},
        {"max_unpool3d", "p:1,1,2,2 x:1,1,2,2/18 l:2,3,3 l:2 l:1", NULL},
    };

    CHECK_ROWS(rows);
}
END_TEST

START_TEST(label_smoothing_must_be_from_0_to_1)
{
    static const row rows[] = {
        {"cross_entropy_loss", "p:2,3 x:2/3 n i:1 i:-100 f:nan",
         "label_smoothing is nan"},
        {"cross_entropy_loss", "p:2,3 x:2/3 n i:1 i:-100 f:-.1",
         "label_smoothing is -0.1"},
        {"cross_entropy_loss", "p:2,3 x:2/3 n i:1 i:-100 f:1.1",
         "label_smoothing is 1.1"},
        {"cross_entropy_loss", "p:2,3 x:2/3 n i:1 i:-100 f:1", NULL},
    };

    CHECK_ROWS(rows);
}
END_TEST

START_TEST(alpha_of_integer_result_must_be_whole)
{
    static const row rows[] = {
        {"add.Tensor", "x:3/2 x:3/2 f:0.5", "alpha is 0.5"},
        {"add.Tensor", "x:3/2 x:1/2 f:0.5", "as the result is i64"},
        {"add.Tensor", "m:3 m:3 f:1", "as the result is bool"},
        {"add.Scalar", "x:3/2 i:1 f:inf", "alpha is inf"},
        {"add_.Tensor", "x:3/2 x:3/2 f:nan", "alpha is nan"},
        {"add_.Tensor", "y:3 y:3 f:1e30", "i32 cannot hold"},
        {"sub.Tensor", "x:3/2 x:3/2 f:1.5", "alpha is 1.5"},
        {"sub.Scalar", "x:3/2 i:0 f:-0.5", "alpha is -0.5"},
        {"sub_.Scalar", "x:3/2 i:0 f:-0.5", "a whole number"},
        {"rsub.Tensor", "x:3/2 x:3/2 f:0.25", "alpha is 0.25"},
        {"rsub.Scalar", "x:3/2 i:3 f:0.25", "alpha is 0.25"},
        {"index_add", "x:3/2 i:0 x:2/2 x:2/2 f:0.5", "alpha is 0.5"},
        {"index_add_", "x:3/2 i:0 x:2/2 x:2/2 f:0.5", "as the result is i64"},
        {"add.Tensor", "x:3/2 x:3/2 f:2", NULL},
        {"add.Tensor", "m:3 m:3 b:1", NULL},
        {"add.Tensor", "p:3 p:3 f:0.5", NULL},
        {"add.Tensor", "x:3/2 p:3 f:0.5", NULL},
        {"sub.Scalar", "x:3/2 f:0.5 f:0.5", NULL},
        /* integer products truncate their factors, as recorded results do */
        {"addmv", "x:2/2 x:2,2/2 x:2/2 f:0.5 i:1", NULL},
        {"addmm", "p:2,2 p:2,2 p:2,2 f:0.5 f:0.5", NULL},
        {"index_add", "x:3/2 i:0 x:2/2 x:2/2 f:2", NULL},
        {"index_add", "p:3 i:0 x:2/2 p:2 f:0.5", NULL},
        {"index_copy", "x:3/2 i:0 x:2/2 x:2/2", NULL},
    };

    CHECK_ROWS(rows);
}
END_TEST

START_TEST(empty_size_list_is_refused)
{
    static const row rows[] = {
        {"_adaptive_avg_pool2d",
         "p:1,1,4,4 l:", "output_size has 0 entries; it must have 2"},
        {"convolution", "p:1,1,4 p:1,1,2 n l:1 l: l:1 b:0 l:0 i:1",
         "padding has 0 entries; it must have 1"},
        {"convolution", "p:1,1,4 p:1,1,2 n l: l:0 l:1 b:0 l:0 i:1",
         "stride has 0 entries; it must have 1"},
        {"reflection_pad3d",
         "p:1,2,2,2 l:", "padding has 0 entries; it must have 6"},
        {"max_pool2d_with_indices", "p:1,1,4,4 l: l:2 l:0 l:1 b:0",
         "kernel_size has 0 entries; it must have 2"},
        {"avg_pool2d", "p:1,1,4,4 l:2 l: l: b:0 b:1 n",
         "padding has 0 entries; it must have 2"},
        {"avg_pool2d", "p:1,1,4,4 l:2 l: l:0 b:0 b:1 n", NULL},
    };

    CHECK_ROWS(rows);
}
END_TEST

START_TEST(mask_must_be_bool)
{
    static const row rows[] = {
        {"masked_fill.Scalar", "p:3 x:3/2 f:1", "mask must be bool, not i64"},
        {"masked_fill_.Scalar", "p:3 p:3 f:1", "mask must be bool, not f64"},
        {"masked_fill.Scalar", "p:3 m:3 f:1", NULL},
        {"where.self", "x:3/2 p:3 p:3", "condition must be bool, not i64"},
        {"where.ScalarOther", "p:3 p:3 f:1", "condition must be bool, not f64"},
        {"where.ScalarSelf", "p:3 f:1 p:3", "condition must be bool, not f64"},
        {"where.self", "m:3 p:3 p:3", NULL},
    };

    CHECK_ROWS(rows);
}
END_TEST

START_TEST(smooth_l1_loss_refuses_negative_or_nan_beta)
{
    static const row rows[] = {
        {"smooth_l1_loss", "p:3 p:3 i:1 f:nan", "beta is nan"},
        {"smooth_l1_loss", "p:3 p:3 i:1 f:-1", "beta is -1"},
        {"smooth_l1_loss", "p:3 p:3 i:1 f:0", NULL},
    };

    CHECK_ROWS(rows);
}
END_TEST

START_TEST(index_out_of_range_names_its_argument)
{
    static const row rows[] = {
        {"index_select", "p:3 i:0 x:5/9",
         "index_select: cpu: argument index contains 3"},
        {"index_add", "p:3 i:0 x:5/9 p:5", "argument index contains"},
        {"gather", "p:3 i:0 x:5/9", "argument index contains"},
        {"scatter.src", "p:3 i:0 x:5/9 p:5", "argument index contains"},
        {"take", "p:3 x:5/9", "argument index contains"},
        {"embedding", "p:3,2 x:5/9", "argument indices contains"},
        {"index.Tensor", "p:3 [ x:5/9 ]", "argument indices contains"},
        {"index_put", "p:3 [ x:5/9 ] p:", "argument indices contains"},
        {"_ctc_loss", "p:4,1,3 x:1,4/9 l:4 l:4 i:2 b:0",
         "targets contains 3; it must be from 0 to 2, the last class of "
         "log_probs"},
        {"_ctc_loss", "p:4,1,3 x:1,2/9 l:4 l:2 i:2 b:0", NULL},
        {"nll_loss_forward", "p:5,3 x:5/9 n i:1 i:-100",
         "argument target contains"},
        {"multi_margin_loss", "p:5,3 x:5/9 i:1 f:1 n i:1", "argument"},
    };

    CHECK_ROWS(rows);
}
END_TEST

START_TEST(index_select_of_scalar_requires_one_index)
{
    static const row rows[] = {
        {"index_select", "p: i:0 x:0/1", "index has 0 elements"},
        {"index_select", "p: i:0 x:2/1", "index has 2 elements"},
        {"index_select", "p: i:0 x:1/1", NULL},
        {"index_select", "p: i:0 x:/1", NULL},
        {"index_select", "p:3 i:0 x:0/1", NULL},
    };

    CHECK_ROWS(rows);
}
END_TEST

START_TEST(lstsq_gels_requires_full_rank)
{
    static const row rows[] = {
        {"linalg_lstsq", "m:3,2 m:3,1 n s:gels", "self"},
        {"linalg_lstsq", "p:3,2 p:3,1 n s:gelsx", "gelsx"},
        {"linalg_lstsq", "p:3,2 p:3,1 n s:gels", NULL},
        {"linalg_lstsq", "q:1 p:3,1 n s:gels", "self"},
    };
    core_tensor *a = MATRIX(3, 2, 1, 2, 2, 4, 3, 6), *x[4];
    core_tensor *b = MATRIX(3, 1, 1, 1, 1);

    CHECK_ROWS(rows);
    FAILS(core_linalg_lstsq(a, b, NULL, "gels", &x[0], &x[1], &x[2], &x[3]),
          CORE_ERROR_INVALID_ARGUMENT, "linalg_lstsq", "full rank", "gelsd");
    OK(core_linalg_lstsq(a, b, NULL, "gelsd", &x[0], &x[1], &x[2], &x[3]));
    for (int i = 0; i < 4; i++)
        keep(x[i]);
    HOLDS(x[2], 1, 1);
}
END_TEST

/* A scale factor must be above 0 and give a valid size. */
START_TEST(upsample_refuses_scale_without_valid_size)
{
    static const row rows[] = {
        {"upsample_nearest2d.vec", "p:1,1,2,2 n g:nan,2", "scale"},
        {"upsample_nearest2d.vec", "p:1,1,2,2 n g:1e300,2", "scale"},
        {"upsample_bilinear2d.vec", "p:1,1,2,2 n b:0 g:inf,2", "scale"},
        {"upsample_bilinear2d.vec", "p:1,1,2,2 n b:0 g:-1,2", "factor is -1"},
        {"upsample_nearest1d.vec", "p:1,1,2 n g:2", NULL},
    };

    CHECK_ROWS(rows);
}
END_TEST

START_TEST(gelu_refuses_unknown_approximation)
{
    static const row rows[] = {
        {"gelu", "p:3 s:foo",
         "approximate must be \"none\" or \"tanh\", not \"foo\""},
        {"gelu_", "p:3 s:foo", "not \"foo\""},
        {"gelu_backward", "p:3 p:3 s:foo", "not \"foo\""},
        {"gelu", "p:3 s:none", NULL},
        {"gelu", "p:3 s:tanh", NULL},
        {"gelu_backward", "p:3 p:3 s:tanh", NULL},
    };

    CHECK_ROWS(rows);
}
END_TEST

/* 0 is a divisor; only a missing one means the size of the window. */
START_TEST(avg_pool_refuses_divisor_0)
{
    static const row rows[] = {
        {"avg_pool2d", "p:1,4,4 l:2 l:2 l:0 b:0 b:1 i:0",
         "divisor_override is 0"},
        {"avg_pool3d", "p:1,4,4,4 l:2 l:2 l:0 b:0 b:1 i:0",
         "divisor_override is 0"},
        {"avg_pool2d_backward", "p:1,2,2 p:1,4,4 l:2 l:2 l:0 b:0 b:1 i:0",
         "divisor_override is 0"},
        {"avg_pool3d_backward", "p:1,2,2,2 p:1,4,4,4 l:2 l:2 l:0 b:0 b:1 i:0",
         "divisor_override is 0"},
        {"avg_pool2d", "p:1,4,4 l:2 l:2 l:0 b:0 b:1 i:3", NULL},
        {"avg_pool2d", "p:1,4,4 l:2 l:2 l:0 b:0 b:1 n", NULL},
        {"avg_pool2d_backward", "p:1,2,2 p:1,4,4 l:2 l:2 l:0 b:0 b:1 n", NULL},
    };

    CHECK_ROWS(rows);
}
END_TEST

START_TEST(cdist_refuses_negative_or_nan_p)
{
    static const row rows[] = {
        {"_cdist_forward", "p:2,3 p:2,3 f:-1 n", "p is -1"},
        {"_cdist_forward", "p:2,3 p:2,3 f:nan n", "p is nan"},
        {"_cdist_forward", "p:2,3 p:2,3 f:0 n", NULL},
        {"_cdist_forward", "p:2,3 p:2,3 f:inf n", NULL},
    };

    CHECK_ROWS(rows);
}
END_TEST

START_TEST(integers_refuse_negative_exponents)
{
    static const row rows[] = {
        {"pow.Tensor_Scalar", "x:3/2 i:-1", "-1"},
        {"pow_.Scalar", "x:3/2 i:-2", "-2"},
        {"pow.Tensor_Scalar", "x:3/2 i:2", NULL},
        {"pow.Tensor_Scalar", "p:3 i:-2", NULL},
    };

    CHECK_ROWS(rows);
}
END_TEST

START_TEST(running_statistics_have_no_gradient)
{
    static const char *const words[] = {
        "t:2,2 n n t:2 p:2 b:0 f:0.1 f:0.1",
        "t:2,2 n n p:2 t:2 b:0 f:0.1 f:0.1",
    };
    static const char *const names[] = {"running_mean", "running_var"};

    for (int i = 0; i < 2; i++) {
        const row r = {"native_batch_norm", words[i], NULL};
        core_value results[4] = {0};
        core_tensor *y;

        OK(call_words(&r, results));
        y = CALL(sum, results[0].u.tensor, CORE_DTYPE_NONE);
        FAILS(core_backward(&y, 1, NULL, 0), CORE_ERROR_UNSUPPORTED,
              "native_batch_norm", names[i]);
        for (int k = 0; k < 4; k++)
            core_value_release(&results[k]);
    }
}
END_TEST

START_TEST(scalars_with_invalid_tag_name_their_argument)
{
    static const uint32_t tags[] = {CORE_VALUE_NONE, CORE_VALUE_STRING, 99,
                                    0x5a5a5a5a};
    int64_t sizes[] = {2, 3};
    core_tensor *x, *y, *z;

    OK(core_ones(sizes, 2, CORE_F32, NULL, &x));
    OK(core_ones(sizes, 2, CORE_F64, NULL, &y));
    for (int i = 0; i < 4; i++) {
        core_scalar junk = {.tag = tags[i]};

#define REFUSED(call, ...) FAILS(call, CORE_ERROR_INVALID_ARGUMENT, __VA_ARGS__)
        REFUSED(core_add(x, x, junk, &z), "add", "argument 3, alpha");
        REFUSED(core_add(x, y, junk, &z), "add", "argument 3, alpha");
        REFUSED(core_add_(x, x, junk), "add_", "alpha");
        REFUSED(core_add_out(x, x, junk, x), "add", "alpha");
        REFUSED(core_add_scalar(x, junk, core_int(1), &z), "argument 2, other");
        REFUSED(core_add_scalar(x, core_int(1), junk, &z), "argument 3, alpha");
        REFUSED(core_full(sizes, 2, junk, CORE_F32, NULL, &z), "full",
                "argument 2, fill_value");
        REFUSED(core_full(sizes, 2, junk, CORE_DTYPE_NONE, NULL, &z), "full",
                "fill_value");
        REFUSED(core_fill_(x, junk), "fill_", "argument 2, value");
        REFUSED(core_arange(junk, CORE_DTYPE_NONE, NULL, &z), "arange", "end");
        REFUSED(core_leaky_relu(x, junk, &z), "leaky_relu", "negative_slope");
        REFUSED(core_leaky_relu_(x, junk), "leaky_relu", "negative_slope");
        REFUSED(core_linalg_vector_norm(x, junk, NULL, 0, false,
                                        CORE_DTYPE_NONE, &z),
                "vector_norm", "ord");
        if (tags[i] != CORE_VALUE_NONE)
            REFUSED(core_clamp(x, &junk, NULL, &z), "clamp", "argument 2, min");
        ck_assert_ptr_null(z);
    }
    OK(core_add(x, x, core_bool(true), &z));
    core_tensor_release(z);
    core_tensor_release(x);
    core_tensor_release(y);
}
END_TEST

/* The core checks this for every device; meta has no kernels. */
START_TEST(random_operators_refuse_invalid_ranges)
{
    core_device *devices[2];
    int64_t n = 3, limit;
    core_tensor *x, *bytes, *bits, *half, *z;

    OK(core_device_find("cpu", &devices[0]));
    OK(core_device_find("meta", &devices[1]));
    for (int i = 0; i < 2; i++) {
        OK(core_zeros(&n, 1, CORE_F32, devices[i], &x));
        OK(core_zeros(&n, 1, CORE_U8, devices[i], &bytes));
        OK(core_zeros(&n, 1, CORE_BOOL, devices[i], &bits));
        OK(core_zeros(&n, 1, CORE_F16, devices[i], &half));
        REFUSED(core_uniform_(x, 1, 0, NULL), "uniform_: from is 1 and to 0");
        REFUSED(core_uniform_(x, NAN, 1, NULL), "uniform_: from is nan");
        REFUSED(core_uniform_(x, 0, INFINITY, NULL), "uniform_", "and to inf");
        REFUSED(core_normal_(x, 0, -1, NULL), "normal_: std is -1");
        REFUSED(core_normal_(x, 0, NAN, NULL), "normal_: std is nan");
        REFUSED(core_bernoulli_float_(x, 1.5, NULL), "bernoulli_", "p is 1.5");
        REFUSED(core_bernoulli_float_(x, NAN, NULL), "bernoulli_", "p is nan");
        limit = 5;
        REFUSED(core_random_from_(x, 5, &limit, NULL), "random_",
                "to is 5; it must be above 5");
        limit = 257;
        REFUSED(core_random_from_(bytes, 0, &limit, NULL), "random_",
                "0 to 256", "u8", "0 to 255");
        REFUSED(core_random_from_(bytes, -1, &limit, NULL), "random_", "-1");
        REFUSED(core_random_from_(bytes, 256, NULL, NULL), "random_", "256");
        REFUSED(core_random_from_(bits, 0, &limit, NULL), "random_", "bool");
        limit = 65506;
        REFUSED(core_random_from_(half, 0, &limit, NULL), "random_", "f16",
                "65504");
        limit = INT64_MIN;
        REFUSED(core_random_from_(x, 0, &limit, NULL), "random_",
                "to is -9223372036854775808; it must be above 0");
        REFUSED(core_randint(1000, &n, 1, NULL, CORE_U8, devices[i], &z),
                "randint", "u8", "0 to 255");
        limit = 256;
        OK(core_random_from_(bytes, 0, &limit, NULL));
        OK(core_random_from_(bytes, 255, NULL, NULL));
        limit = 65505;
        OK(core_random_from_(half, -65504, &limit, NULL));
        limit = INT64_MAX;
        OK(core_random_from_(x, INT64_MIN, &limit, NULL));
        OK(core_uniform_(x, 2, 2, NULL));
        OK(core_normal_(x, INFINITY, 0, NULL));
        core_tensor_release(x);
        core_tensor_release(bytes);
        core_tensor_release(bits);
        core_tensor_release(half);
    }
}
END_TEST

START_TEST(numbers_too_large_are_named)
{
    int64_t sizes[] = {2, 3}, strides[] = {3, 1}, most = INT64_MAX;
    core_tensor *x, *z;

    OK(core_ones(sizes, 2, CORE_F32, NULL, &x));
    FAILS(core_as_strided(x, sizes, 2, strides, 2, &most, &z), CORE_ERROR_SHAPE,
          "storage_offset 9223372036854775807");
    most = -1;
    FAILS(core_as_strided(x, sizes, 2, strides, 2, &most, &z), CORE_ERROR_SHAPE,
          "storage_offset -1");
    FAILS(core_arange(core_int(INT64_MAX), CORE_DTYPE_NONE, NULL, &z),
          CORE_ERROR_INVALID_ARGUMENT, "more than a tensor can have");
    FAILS(core_arange(core_float(INFINITY), CORE_DTYPE_NONE, NULL, &z),
          CORE_ERROR_INVALID_ARGUMENT, "does not lead");
    core_tensor_release(x);
}
END_TEST

START_TEST(arange_refuses_end_before_start)
{
    static const row rows[] = {
        {"arange.start", "i:1 f:0.5", "from 1 to 0.5"},
        {"arange.start", "f:0.5 f:0.25", "from 0.5 to 0.25"},
        {"arange.start_step", "f:0.5 f:1 f:-2", "does not lead"},
        {"arange", "f:-0.5", "does not lead"},
        {"arange.start", "i:2 f:0.5", "does not lead"},
        {"arange.start", "f:0.5 f:0.5", NULL},
        {"arange.start", "i:2 i:2", NULL},
        {"arange.start_step", "f:1 f:0.5 f:-2", NULL},
        {"arange.start_step", "f:1 f:1 f:-2", NULL},
    };

    CHECK_ROWS(rows);
}
END_TEST

/* Modes are also checked where there is nothing to compute. */
START_TEST(unknown_mode_is_refused_even_for_empty_tensors)
{
    static const row rows[] = {
        {"scatter_.value_reduce", "p:3,3 i:1 x:3,3/3 f:2 s:reduced",
         "\"reduced\""},
        {"scatter_.value_reduce", "p:3,0 i:1 x:3,0/3 f:2 s:reduced",
         "\"reduced\""},
        {"scatter.value_reduce", "p:3,0 i:1 x:3,0/3 f:2 s:", "not \"\""},
        {"scatter.reduce", "p:3,0 i:1 x:3,0/3 p:3,0 s:max", "\"max\""},
        {"scatter_reduce.two", "p:3 i:0 x:0/3 p:0 s:max b:1", "\"max\""},
        {"index_reduce", "p:3,0 i:0 x:0/3 p:0,0 s:sum b:1", "\"sum\""},
        {"segment_reduce", "p:0 s:add x:0/3", "\"add\""},
        {"div.Tensor_mode", "p:0 p:0 s:up", "up"},
        {"_linalg_eigh", "p:0,0 s:X b:1", "X"},
        {"linalg_qr", "p:0,0 s:X", "X"},
        {"grid_sampler_2d", "p:0,1,2,2 p:0,2,2,2 i:7 i:0 b:1", "7"},
        {"grid_sampler_2d", "p:0,1,2,2 p:0,2,2,2 i:0 i:7 b:1", "7"},
        {"mse_loss", "p:0 p:0 i:7", "7"},
        {"scatter.value_reduce", "p:3,0 i:1 x:3,0/3 f:2 s:add", NULL},
        {"scatter.value_reduce", "p:3 i:0 x:2/3 f:2 s:multiply", NULL},
        {"scatter_reduce.two", "p:3 i:0 x:2/3 p:2 s:amax b:1", NULL},
        {"scatter_add", "p:3 i:0 x:2/3 p:2", NULL},
    };

    CHECK_ROWS(rows);
}
END_TEST

START_TEST(prelu_weight_must_be_a_vector)
{
    static const row rows[] = {
        {"prelu", "p:2,3 p:3,1", "weight has 2 dimensions"},
        {"prelu", "p:0,3 p:3,1", "weight has 2 dimensions"},
        {"prelu", "p:2,3 p:1,1", "weight has 2 dimensions"},
        {"prelu", "p:2,3 p:2", "weight has 2 elements"},
        {"prelu", "p:2,3 p:3", NULL},
        {"prelu", "p:2,3 p:1", NULL},
        {"prelu", "p:2,3 p:", NULL},
    };

    CHECK_ROWS(rows);
}
END_TEST

START_TEST(in_place_operators_refuse_to_change_dtype)
{
    static const row rows[] = {
        {"clamp_", "m:2 n f:2", "dtype bool cannot hold"},
        {"clamp_", "m:2 i:0 n", "dtype bool cannot hold"},
        {"clamp_", "x:3/2 f:0.5 n", "dtype i64 cannot hold"},
        {"clamp_min_", "x:3/2 f:0.5", "dtype i64 cannot hold"},
        {"clamp_max_", "m:2 f:2", "dtype bool cannot hold"},
        {"cumsum_", "p:3 i:0 d:f32", "dtype is f32"},
        {"cumsum_", "x:3/2 i:0 d:i32", "dtype is i32"},
        {"cumsum_", "x:3/2 i:0 d:f64", "dtype is f64"},
        {"cumprod_", "p:3 i:0 d:i64", "dtype is i64"},
        {"clamp_", "x:3/2 i:0 n", NULL},
        {"clamp_", "p:3 f:0 n", NULL},
        {"cumsum_", "p:3 i:0 d:f64", NULL},
        {"cumprod_", "y:3 i:0 d:i32", NULL},
        {"cumprod_", "y:3 i:0 n", NULL},
        {"cumprod_", "p:3 i:0 n", NULL},
    };

    CHECK_ROWS(rows);
}
END_TEST

/* Lists of a typed call are checked as well. */
START_TEST(conv2d_names_invalid_stride_padding_and_dilation)
{
    const int64_t sizes[4] = {1, 1, 3, 3}, one[2] = {1, 1}, none[2] = {0, 0};
    const int64_t odd[2] = {1, -4};
    core_tensor *x, *y;

    OK(core_ones(sizes, 4, CORE_F32, NULL, &x));
    REFUSED(core_conv2d(x, x, NULL, odd, 2, none, 2, one, 2, 1, &y), "conv2d",
            "dimension 1 stride is -4");
    REFUSED(core_conv2d(x, x, NULL, one, 2, odd, 2, one, 2, 1, &y),
            "padding -4");
    REFUSED(core_conv2d(x, x, NULL, one, 2, none, 2, none, 2, 1, &y),
            "dimension 0", "dilation 0");
    core_tensor_release(x);
}
END_TEST

START_TEST(list_longer_than_uint32_is_refused)
{
    const int64_t two[] = {2, 3};
    core_tensor *x = VECTOR(1, 1), *out = x;

    FAILS(core_cat(&x, ((size_t)1 << 32) + 1, 0, &out),
          CORE_ERROR_INVALID_ARGUMENT, "core_cat", "tensors");
    ck_assert_ptr_null(out);
    FAILS(core_zeros(two, ((size_t)1 << 32) + 2, CORE_F32, NULL, &out),
          CORE_ERROR_INVALID_ARGUMENT, "core_zeros", "size");
    FAILS(core_sum_dim(x, two, (size_t)1 << 32, false, CORE_DTYPE_NONE, &out),
          CORE_ERROR_INVALID_ARGUMENT, "core_sum_dim", "dim");
}
END_TEST

/* Its derivative would be that of order 2^63. */
START_TEST(polygamma_of_the_largest_order_has_no_derivative)
{
    core_tensor *x = leaf(VECTOR(2, 1, 2)), *y;

    y = CALL(polygamma, INT64_MAX, x);
    FAILS(core_backward(&y, 1, (core_tensor *[]){VECTOR(2, 1, 1)}, 0),
          CORE_ERROR_UNSUPPORTED, "9223372036854775807 + 1");
}
END_TEST

START_TEST(unknown_memory_format_is_refused)
{
    static const int64_t sizes[] = {1, 2, 3, 1, 2};
    static const int32_t unknown[] = {77, 4, -2, -7};

    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        for (size_t ndim = 2; ndim <= 5; ndim++) {
            int32_t format = unknown[i];
            core_tensor *x = CALL(zeros, sizes, ndim, CORE_F32, NULL), *out;
            char text[48];

            snprintf(text, sizeof text, "%d is not a memory format;", format);
#define UNKNOWN(name, ...)                                                     \
    FAILS(core_##name(__VA_ARGS__, &out), CORE_ERROR_UNSUPPORTED, text, #name, \
          "preserve (1)")
            UNKNOWN(clone, x, format);
            UNKNOWN(contiguous, x, format);
            UNKNOWN(to, x, CORE_F64, NULL, false, false, format);
            UNKNOWN(to, x, CORE_DTYPE_NONE, NULL, false, false, format);
            UNKNOWN(empty, sizes, ndim, CORE_F32, NULL, format);
            UNKNOWN(empty_like, x, CORE_DTYPE_NONE, NULL, format);
            UNKNOWN(ones_like, x, CORE_DTYPE_NONE, NULL, format);
            UNKNOWN(rand_like, x, CORE_DTYPE_NONE, NULL, format);
        }
}
END_TEST

SUITE("ops/ops_refusals", messages_name_argument_sizes_and_dtype,
      softshrink_refuses_negative_lambd,
      vector_norm_of_zero_elements_refuses_orders_of_extremes,
      max_unpool3d_refuses_invalid_strides_and_padding,
      label_smoothing_must_be_from_0_to_1,
      alpha_of_integer_result_must_be_whole, empty_size_list_is_refused,
      mask_must_be_bool, smooth_l1_loss_refuses_negative_or_nan_beta,
      index_select_of_scalar_requires_one_index,
      index_out_of_range_names_its_argument, lstsq_gels_requires_full_rank,
      upsample_refuses_scale_without_valid_size,
      integers_refuse_negative_exponents, running_statistics_have_no_gradient,
      gelu_refuses_unknown_approximation, avg_pool_refuses_divisor_0,
      cdist_refuses_negative_or_nan_p,
      scalars_with_invalid_tag_name_their_argument, numbers_too_large_are_named,
      arange_refuses_end_before_start,
      unknown_mode_is_refused_even_for_empty_tensors,
      prelu_weight_must_be_a_vector, in_place_operators_refuse_to_change_dtype,
      list_longer_than_uint32_is_refused, unknown_memory_format_is_refused,
      polygamma_of_the_largest_order_has_no_derivative,
      random_operators_refuse_invalid_ranges,
      conv2d_names_invalid_stride_padding_and_dilation)
