/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The sizes, strides and dtypes of meta results (shape inference) equal those
 * of CPU results; wrong arguments are refused on both. */

#include "support/samples.h"

static core_device *meta;

/* A meta tensor with the same layout. */
static core_tensor *shadow(core_tensor *tensor)
{
    uint32_t n = core_tensor_ndim(tensor);

    return CALL(empty_strided, core_tensor_sizes(tensor), n,
                core_tensor_strides(tensor), n, core_tensor_dtype(tensor),
                meta);
}

static void to_meta(arguments *a)
{
    for (uint32_t i = 0; i < a->count; i++) {
        core_value *value = &a->values[i];

        if (value->tag == CORE_VALUE_TENSOR)
            *value = core_pack_tensor(shadow(value->u.tensor));
        for (uint32_t j = 0;
             value->tag == CORE_VALUE_TENSOR_LIST && j < value->count; j++)
            if (a->lists[i][j])
                a->lists[i][j] = shadow(a->lists[i][j]);
    }
}

static void same(const check *c, const core_value *real, const core_value *said)
{
    uint32_t n;

    ck_assert_msg(real->tag == said->tag, "%s(%s): results", c->op, c->words);
    if (real->tag != CORE_VALUE_TENSOR)
        return;
    n = core_tensor_ndim(real->u.tensor);
    ck_assert_msg(core_tensor_device(said->u.tensor) == meta,
                  "%s(%s): not on meta", c->op, c->words);
    ck_assert_msg(core_tensor_dtype(real->u.tensor) ==
                          core_tensor_dtype(said->u.tensor) &&
                      n == core_tensor_ndim(said->u.tensor) &&
                      memcmp(core_tensor_sizes(real->u.tensor),
                             core_tensor_sizes(said->u.tensor),
                             n * sizeof(int64_t)) == 0 &&
                      memcmp(core_tensor_strides(real->u.tensor),
                             core_tensor_strides(said->u.tensor),
                             n * sizeof(int64_t)) == 0,
                  "%s(%s): meta and CPU differ", c->op, c->words);
}

/* A conversion has the stride order of its operand, in which a stride of 0 has no
 * place; on meta nothing is converted, but results have the same strides. */
static const struct converted {
    int64_t sizes[3], integers[3], floats[3];
    int64_t sum[3]; /* of integers and floats, as in PyTorch 2.15 */
} converted[] = {
    {{2, 1, 4}, {0, 4, 1}, {4, 4, 1}, {4, 4, 1}},
    {{1, 2, 3}, {0, 0, 1}, {6, 1, 2}, {6, 3, 1}},
    {{4, 3, 2}, {1, 0, 12}, {6, 2, 1}, {1, 4, 12}},
    {{3, 5, 4}, {1, 0, 3}, {20, 4, 1}, {1, 3, 15}},
    {{2, 2, 3}, {1, 30, 4}, {1, 2, 4}, {1, 6, 2}},
};

static void sum_has_strides(const struct converted *c, core_device *device)
{
    const int64_t numel = 64;
    core_tensor *integers, *floats, *a, *b, *sum;

    OK(core_zeros(&numel, 1, CORE_U8, device, &integers));
    OK(core_zeros(&numel, 1, CORE_F32, device, &floats));
    OK(core_as_strided(integers, c->sizes, 3, c->integers, 3, NULL, &a));
    OK(core_as_strided(floats, c->sizes, 3, c->floats, 3, NULL, &b));
    OK(core_add(a, b, core_int(1), &sum));
    ck_assert_mem_eq(core_tensor_strides(sum), c->sum, sizeof c->sum);
    core_tensor_release(sum);
    core_tensor_release(b);
    core_tensor_release(a);
    core_tensor_release(floats);
    core_tensor_release(integers);
}

START_TEST(converted_operands_decide_the_strides_of_results)
{
    OK(core_device_find("meta", &meta));
    for (size_t i = 0; i < sizeof converted / sizeof *converted; i++) {
        sum_has_strides(&converted[i], NULL);
        sum_has_strides(&converted[i], meta);
    }
}
END_TEST

static const check checks[] = {
    {"add.Tensor", "p:3,1 p:4", 0, 1},
    {"add.Scalar", "x:3/2 f:.5", 0, 1},
    {"div.Tensor", "x:3/2 x:3/3", 0, 1},
    {"eq.Tensor", "p:3,1 x:4/2", 0, 1},
    {"where.self", "m:3,1 p:3,4 p:", 0, 1},
    {"clamp", "x:3/2 f:.5", 0, 1},
    {"masked_fill.Scalar", "p:3,4 m:4 f:1", 0, 1},
    {"sum.dim_IntList", "m:3,4 l:1 b:1", 0, 1},
    {"mean", "p:3,4", 0, 1},
    {"argmax", "p:3,4 i:1", 0, 1},
    {"max.dim", "p:3,4 i:1 b:1", 0, 1},
    {"var_mean.correction", "p:3,4 l:0 i:1", 0, 1},
    {"sort", "p:3,4 i:0", 0, 1},
    {"topk", "p:3,4 i:2 i:0", 0, 1},
    {"cumsum", "m:3,4 i:0", 0, 1},
    {"cat", "[ p:2,3 x:1,3/2 p:0 ] i:0", 0, 1},
    {"stack", "[ p:2,3 p:2,3 ] i:-1", 0, 1},
    {"transpose.int", "p:2,3,4 i:0 i:-1", 0, 1},
    {"as_strided", "p:3,4 l:2,3 l:4,1 i:1", 0, 1},
    {"split.Tensor", "p:5,2 i:2", 0, 1},
    {"unfold", "p:5,2 i:0 i:3 i:1", 0, 1},
    {"flip", "p:3,4 l:0", 0, 1},
    {"repeat", "p:2,3 l:2,2", 0, 1},
    {"pixel_shuffle", "p:1,4,2,2 i:2", 0, 1},
    {"constant_pad_nd", "p:2,3 l:1,-1,0,2 f:.5", 0, 1},
    {"reflection_pad2d", "p:1,3,4 l:1,2,1,0", 0, 1},
    {"gather", "p:3,4 i:1 x:3,2/4", 0, 1},
    {"scatter_add", "p:3,4 i:0 x:2,4/3 p:2,4", 0, 1},
    {"index_select", "p:3,4 i:1 x:5/4", 0, 1},
    {"index.Tensor", "p:3,4,5 [ x:2/3 n x:2/5 ]", 0, 1},
    {"index.Tensor", "p:3,4,5 [ n x:2,2/4 ]", 0, 1},
    {"index_put", "p:3,4 [ x:3/3 ] p:4", 0, 1},
    {"embedding", "p:4,3 x:2,5/4", 0, 1},
    {"mm", "p:2,3 p:3,4", 0, 1},
    {"addmm", "p:4 p:2,3 p:3,4", 0, 1},
    {"matmul", "p:2,1,2,3 p:3,3,2", 0, 1},
    {"linear", "p:2,3 p:4,3 p:4", 0, 1},
    {"conv2d", "p:1,2,5,5 p:4,1,3,3 p:4 l:2,1 l:1,0 l:1,1 i:2", 0, 1},
    {"convolution", "p:1,2,3,3 p:2,2,2,2 n l:2 l:0 l:1 b:1 l:1 i:1", 0, 1},
    {"max_pool2d_with_indices", "p:1,1,5,5 l:2 l: l:0 l:1 b:1", 0, 1},
    {"avg_pool2d", "p:1,1,5,5 l:3 l:2 l:1", 0, 1},
    {"adaptive_max_pool2d", "p:1,1,5,5 l:2,3", 0, 1},
    {"upsample_bilinear2d", "p:1,1,2,3 l:4,5 b:0", 0, 1},
    {"native_layer_norm", "p:2,3,4 l:3,4 n n f:.1", 0, 1},
    {"native_group_norm", "p:2,4,3 n n i:2 i:4 i:3 i:2 f:.1", 0, 1},
    {"native_batch_norm", "p:2,4,3 n n n n b:1 f:.1 f:.1", 0, 1},
    {"_softmax", "p:3,4 i:1 b:0", 0, 1},
    {"nll_loss_forward", "p:4,3 x:4/3 n i:0 i:-100", 0, 1},
    {"cross_entropy_loss", "p:4,3 x:4/3", 0, 1},
    {"native_dropout", "p:3,4 f:.5 b:1", 0, 1},
    {"searchsorted.Tensor", "p:3,5 p:3,4 b:1", 0, 1},
    {"bucketize.Tensor", "p:3,4 p:5", 0, 1},
    {"histc", "p:3,4 i:5 f:0 f:1", 0, 1},
    {"histogram.bin_ct", "p:3,4 i:5", 0, 1},
    {"histogram.bins_tensor", "p:3,4 p:5", 0, 1},
    {"isin.Tensor_Tensor", "x:3,4/7 x:3/7", 0, 1},
    {"mode", "x:3,4/2 i:0", 0, 1},
    {"im2col", "p:2,3,4,5 l:2,3 l:1,1 l:0,1 l:2,1", 0, 1},
    {"col2im", "p:2,12,4 l:4,5 l:2,3 l:1,1 l:0,0 l:2,2", 0, 1},
    {"fractional_max_pool2d", "p:2,3,6,7 l:2,3 l:3,3 p:2,3,2", 0, 1},
    {"fractional_max_pool3d", "p:2,6,7,6 l:2,3,2 l:3,3,4 p:1,2,3", 0, 1},
    {"frexp.Tensor", "p:3,4", 0, 1},
    {"linalg_lu_factor_ex", "p:2,3,4", 0, 1},
    {"linalg_lu", "p:2,4,3", 0, 1},
    {"linalg_inv_ex", "p:2,3,3", 0, 1},
    {"_linalg_det", "p:2,3,3", 0, 1},
    {"_linalg_slogdet", "p:2,3,3", 0, 1},
    {"linalg_ldl_factor_ex", "p:2,3,3", 0, 1},
    {"geqrf", "p:2,3,4", 0, 1},
    {"_linalg_eigh", "p:2,3,3 s:U", 0, 1},
    {"_linalg_svd", "p:2,3,4", 0, 1},
    {"_linalg_svd", "p:2,3,4 b:1", 0, 1},
    {"linalg_pinv.atol_rtol_tensor", "p:2,3,4", 0, 1},
    {"linalg_matrix_exp", "p:2,3,3", 0, 1},
    {"convolution_backward",
     "p:1,2,3,3 p:1,2,4,4 p:2,2,2,2 l:2 l:1 l:0 l:1 b:0 l:0 i:1 k:1,0,1", 0, 1},
};

static const char earlier[] = "an earlier error";

/* A successful call leaves the error record unchanged (status.h). */
static void keeps_error(const check *c)
{
    ck_assert_msg(core_error_code() == CORE_ERROR_IO &&
                      strcmp(core_error_message(), earlier) == 0,
                  "%s(%s): the error record is \"%s\"", c->op, c->words,
                  core_error_message());
}

/* False: the sizes depend on data. */
static bool compare(const check *c, arguments *a)
{
    core_value real[RESULTS] = {0}, said[RESULTS] = {0};
    core_status status;

    core_error_set(CORE_ERROR_IO, earlier);
    status = core_op_call(a->op, a->values, a->count, real, RESULTS);
    ck_assert_msg(status == CORE_OK, "%s(%s): %s", c->op, c->words,
                  core_error_message());
    keeps_error(c);
    to_meta(a);
    core_error_set(CORE_ERROR_IO, earlier);
    status = core_op_call(a->op, a->values, a->count, said, RESULTS);
    ck_assert_msg(status == CORE_OK || status == CORE_ERROR_DATA_DEPENDENT,
                  "meta, %s(%s): %s", c->op, c->words, core_error_message());
    if (status == CORE_OK)
        keeps_error(c);
    for (int k = 0; k < RESULTS; k++) {
        if (status == CORE_OK)
            same(c, &real[k], &said[k]);
        core_value_release(&real[k]);
        core_value_release(&said[k]);
    }
    return status == CORE_OK;
}

START_TEST(meta_results_match_cpu_results)
{
    OK(core_device_find("meta", &meta));
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        const check *c = &checks[i];
        arguments a;

        state = 12345;
        parse(&a, c);
        ck_assert_msg(compare(c, &a), "%s(%s): %s", c->op, c->words,
                      core_error_message());
    }
}
END_TEST

static bool has_tensor(const arguments *a)
{
    for (uint32_t i = 0; i < a->count; i++)
        if (a->values[i].tag == CORE_VALUE_TENSOR ||
            a->values[i].tag == CORE_VALUE_TENSOR_LIST)
            return true;
    return false;
}

START_TEST(meta_says_what_the_cpu_does_for_every_sample)
{
    bool before = core_grad_mode_set(false);
    size_t compared = 0;

    OK(core_device_find("meta", &meta));
    for (size_t i = 0; i < SAMPLES; i++) {
        const sample *s = &samples[i];
        check c = {s->op, s->words, s->low, s->high};
        arguments a;

        parse_sample(&a, s, s->words);
        make_positive(&a);
        if (has_tensor(&a)) /* the others are made where the call says */
            compared += compare(&c, &a);
        drop_all();
    }
    core_grad_mode_set(before);
    ck_assert_uint_gt(compared, 700);
}
END_TEST

START_TEST(data_dependent_shape_is_refused_on_meta)
{
    core_tensor *mask, *out;

    OK(core_device_find("meta", &meta));
    mask = CALL(empty, (int64_t[]){4}, 1, CORE_BOOL, meta, -1);
    FAILS(core_nonzero(mask, &out), CORE_ERROR_DATA_DEPENDENT, "nonzero");
    ck_assert_ptr_null(out);
}
END_TEST

/* Refused calls: operator, arguments, code, and a part of the message. */
static const struct refusal {
    check call;
    core_status code;
    const char *text;
} refusals[] = {
    {{"view", "p:3,4 l:5,-1", 0, 1}, CORE_ERROR_SHAPE, "[3, 4]"},
    {{"expand", "p:3,4 l:2,4", 0, 1}, CORE_ERROR_SHAPE, "[2, 4]"},
    {{"transpose.int", "p:3,4 i:0 i:2", 0, 1}, CORE_ERROR_INDEX, "-2 to 1"},
    {{"permute", "p:3,4 l:0,0", 0, 1}, CORE_ERROR_INVALID_ARGUMENT, "twice"},
    {{"select.int", "p:3,4 i:0 i:3", 0, 1}, CORE_ERROR_INDEX, "index 3"},
    {{"slice.Tensor", "p:3 i:0 n n i:0", 0, 1},
     CORE_ERROR_INVALID_ARGUMENT,
     "step"},
    {{"as_strided", "p:3 l:4 l:1", 0, 1}, CORE_ERROR_SHAPE, "element 3"},
    {{"split_with_sizes", "p:5 l:2,2", 0, 1}, CORE_ERROR_SHAPE, "4"},
    {{"cat", "[ p:2,3 p:2,4 ] i:0", 0, 1}, CORE_ERROR_SHAPE, "[2, 4]"},
    {{"mm", "p:2,3 p:4,2", 0, 1}, CORE_ERROR_SHAPE, "3 is not 4"},
    {{"mm", "p:2,3 x:3,2/3", 0, 1}, CORE_ERROR_DTYPE, "i64"},
    {{"addmm", "p:3 p:2,3 p:3,2", 0, 1}, CORE_ERROR_SHAPE, "[3]"},
    {{"gather", "p:3,4 i:1 p:3,2", 0, 1}, CORE_ERROR_DTYPE, "index"},
    {{"gather", "p:3,4 i:1 x:4,2/3", 0, 1}, CORE_ERROR_SHAPE, "[4, 2]"},
    {{"topk", "p:3 i:4", 0, 1}, CORE_ERROR_INVALID_ARGUMENT, "k is 4"},
    {{"convolution", "p:1,3,4,4 p:2,2,3,3 n l:1 l:0 l:1 b:0 l:0 i:1", 0, 1},
     CORE_ERROR_SHAPE,
     "3 channels"},
    {{"convolution", "p:1,2,2,2 p:2,2,3,3 n l:1 l:0 l:1 b:0 l:0 i:1", 0, 1},
     CORE_ERROR_SHAPE,
     "does not fit"},
    {{"max_pool2d", "p:1,1,4,4 l:2 l:2 l:2", 0, 1},
     CORE_ERROR_INVALID_ARGUMENT,
     "padding"},
    {{"native_layer_norm", "p:2,3 l:4 n n f:.1", 0, 1},
     CORE_ERROR_SHAPE,
     "normalized"},
    {{"nll_loss", "p:4,3 x:5/3", 0, 1}, CORE_ERROR_SHAPE, "target"},
    {{"embedding", "p:4,3 p:2", 0, 1}, CORE_ERROR_DTYPE, "indices"},
    {{"div.Tensor_mode", "p:4 p:4 s:up", 0, 1},
     CORE_ERROR_INVALID_ARGUMENT,
     "\"up\""},
    {{"arange.start_step", "i:0 i:5 i:-1", 0, 1},
     CORE_ERROR_INVALID_ARGUMENT,
     "arange"},
    {{"matmul", "p:2,3 p:2,3", 0, 1}, CORE_ERROR_SHAPE, "3 is not 2"},
    {{"repeat", "p:2,3 l:2", 0, 1}, CORE_ERROR_SHAPE, "repeats"},
    {{"softmax.int", "x:3/2 i:0", 0, 1}, CORE_ERROR_DTYPE, "floating"},
    {{"mse_loss", "p:3 p:3 i:7", 0, 1}, CORE_ERROR_INVALID_ARGUMENT, "7"},
};

START_TEST(wrong_arguments_are_refused_with_reason)
{
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct refusal *r = &refusals[i];
        core_value results[RESULTS] = {0};
        arguments a;
        core_status status;

        parse(&a, &r->call);
        status = core_op_call(a.op, a.values, a.count, results, RESULTS);
        ck_assert_msg(status == r->code &&
                          strstr(core_error_message(), r->text),
                      "%s(%s): %d, \"%s\"", r->call.op, r->call.words, status,
                      status ? core_error_message() : "");
        for (int k = 0; k < RESULTS; k++)
            ck_assert_uint_eq(results[k].tag, CORE_VALUE_NONE);
    }
}
END_TEST

SUITE("ops/ops_meta", meta_results_match_cpu_results,
      converted_operands_decide_the_strides_of_results,
      meta_says_what_the_cpu_does_for_every_sample,
      data_dependent_shape_is_refused_on_meta,
      wrong_arguments_are_refused_with_reason)
