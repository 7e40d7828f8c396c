/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Numbers that no size can have: paddings, steps, offsets and sizes at the ends
 * of int64_t are either refused at once, by an error that names the operator,
 * or have their literal meaning. */

#include "support/ops.h"

#include <math.h>

#define MOST "9223372036854775807"
#define LEAST "-9223372036854775808"

/* Operator, arguments, and a part of the message besides the operator name. */
static const struct refusal {
    const char *op, *words, *text;
} refusals[] = {
    {"constant_pad_nd", "p:1,1,4,4 l:" MOST ",9223372036854775806", "padding"},
    {"constant_pad_nd", "p:1,1,4,4 l:" LEAST "," MOST, "padding"},
    {"constant_pad_nd", "p:1,1,4,4 l:" LEAST ",0", "padding"},
    {"constant_pad_nd", "p:4 l:1099511627775,0,0", "pad has 3"},
    {"replication_pad2d", "p:1,4,4 l:" MOST "," MOST ",0,0", "padding"},
    {"replication_pad1d", "p:1,4 l:" LEAST "," MOST, "padding"},
    {"reflection_pad1d", "p:1,4 l:" LEAST ",1", "padding"},
    {"reflection_pad2d", "p:1,4,4 l:" MOST ",0,0,0", "padding"},
    {"conv1d", "p:1,1,4 p:1,1,2 n l:1 l:0 l:" MOST, "dilation"},
    {"conv2d", "p:1,1,4,4 p:1,1,2,2 n l:" MOST, "stride"},
    {"conv2d", "p:1,1,4,4 p:1,1,2,2 n l:1 l:" MOST, "padding"},
    {"convolution", "p:1,1,4 p:1,1,2 n l:1 l:0 l:1 b:0 l:0 i:" MOST, "groups"},
    {"convolution", "p:1,1,4 p:1,1,2 n l:" MOST " l:0 l:1 b:1 l:0 i:1",
     "stride"},
    {"convolution", "p:1,1,4 p:1,1,2 n l:1 l:0 l:1 b:1 l:" MOST " i:1",
     "output_padding"},
    {"convolution_backward",
     "p:1,1,9 p:1,1,4 p:1,1,2 n l:1 l:0 l:1 b:0 l:0 i:1 k:1,1,1",
     "grad_output"},
    {"max_pool2d", "p:1,1,4,4 l:2 l:2 l:0 l:" MOST, "dilation"},
    {"max_pool2d", "p:1,1,4,4 l:2 l:2 l:0 l:1099511627775", "window"},
    {"max_pool2d", "p:1,1,4,4 l:2 l:2 l:" MOST, "padding"},
    {"avg_pool2d", "p:1,1,4,4 l:" MOST " l:1 l:4611686018427387903",
     "kernel_size"},
    {"_adaptive_avg_pool2d", "p:1,1,4,4 l:" MOST, "output_size"},
    {"_adaptive_avg_pool2d", "p:1,1,4,4 l:1099511627775", "elements"},
    {"upsample_nearest2d", "p:1,1,4,4 l:" MOST "," MOST, "output_size"},
    {"upsample_nearest2d", "p:1,1,4,4 l:1099511627775,1099511627775",
     "elements"},
    {"diag_embed", "p:3 i:" LEAST, "offset"},
    {"diag", "p:3 i:" MOST, "offset"},
    {"tril_indices", "i:" MOST " i:" MOST " i:0", "elements"},
    {"triu_indices", "i:4294967296 i:4294967296 i:" LEAST, "elements"},
    {"as_strided", "p:4 l:2 l:2305843009213693952", "element"},
    {"as_strided", "p:4 l:1 l:1 i:" MOST, "storage_offset"},
    {"as_strided", "p:4 l:" MOST "," MOST " l:0,0", "elements"},
    {"expand", "p:1,1 l:" MOST "," MOST, "elements"},
    {"repeat", "p:4 l:" MOST, "repeat"},
    {"view", "p:0 l:0," MOST "," MOST, "elements"},
    {"narrow", "p:4 i:0 i:" LEAST " i:" MOST, "exceed"},
    {"narrow", "p:4 i:0 i:" MOST " i:" MOST, "exceed"},
    {"unfold", "p:4 i:0 i:" MOST " i:1", "windows"},
    {"chunk", "p:0 i:2305843009213693952", "tensors"},
    {"chunk", "p:0 i:1048577", "tensors"},
    {"split_with_sizes", "p:4 l:" MOST "," MOST ",6", "split_sizes"},
    {"pixel_shuffle", "p:1,4,2,2 i:4294967296", "factor"},
    {"pixel_unshuffle", "p:1,4,2,2 i:" MOST, "factor"},
    {"zeros", "l:" MOST "," MOST, "elements"},
    {"zeros", "l:-1", "dimension 0 is -1"},
    {"full", "l:" LEAST " i:1", "dimension 0"},
    {"empty_strided", "l:4,4 l:" MOST "," MOST, "bytes"},
    {"linspace", "i:0 i:1 i:" MOST, "elements"},
    {"logspace", "i:0 i:1 i:" LEAST, "dimension 0"},
    {"arange", "i:" MOST, "steps"},
    {"arange", "i:4000000000000000000", "elements"},
    {"eye", "i:" MOST, "elements"},
    {"randperm", "i:" MOST, "elements"},
    {"one_hot", "x:3/2 i:" MOST, "elements"},
    {"one_hot", "x:3/2 i:-2", "num_classes"},
    {"topk", "p:3 i:" MOST, "k is"},
    {"multinomial", "p:3 i:" MOST " b:1", "elements"},
    {"native_group_norm", "p:2,2 n n i:4611686018427387905 i:4 i:1 i:4 f:1",
     "elements"},
    {"nll_loss", "p:4,3 x:4/3 n i:77", "CORE_REDUCTION"},
    /* no kernel checks a call that reads or writes no elements */
    {"scatter.src", "p:3,0 i:1 x:3,2/2 p:3,2", "index"},
    {"scatter_add", "p:0,3 i:0 x:2,3/2 p:2,3", "index"},
    {"scatter.reduce", "p:3,0 i:-1 x:3,2/2 p:3,2 s:add", "index"},
    {"index_fill.int_Scalar", "p:3,0 i:1 x:2/2 i:1", "index"},
    {"index_add", "p:0,3 i:0 x:2/2 p:2,3", "index"},
    {"index_copy", "p:3,0 i:1 x:2/2 p:3,2", "index"},
    {"index_select", "p:0,0 i:0 x:2/2", "index"},
    {"take", "p:0 x:2/2", "index"},
    {"repeat_interleave.Tensor", "x:3/3 i:1", "output_size"},
    {"nll_loss_forward", "p:4,3 x:4/3 n i:77 i:-100", "77"},
    {"cross_entropy_loss", "p:4,3 x:4/3 n i:77", "77"},
    {"mse_loss", "p:3 p:3 i:-1", "CORE_REDUCTION"},
    {"cat", "[ p:3 n ] i:0", "tensor 1 of"},
    {"stack", "[ n p:3 ] i:0", "tensor 0 of"},
};

START_TEST(numbers_beyond_any_size_are_refused)
{
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct refusal *r = &refusals[i];
        core_value results[4] = {0};
        core_status status = call_op_words(r->op, r->words, results);
        const char *said = status ? core_error_message() : "";
        char name[64];

        snprintf(name, sizeof name, "%.5s", r->op + (r->op[0] == '_'));
        ck_assert_msg((status == CORE_ERROR_SHAPE ||
                       status == CORE_ERROR_INDEX ||
                       status == CORE_ERROR_INVALID_ARGUMENT) &&
                          strstr(said, r->text) && strchr(said, ':'),
                      "%s(%s): %d, \"%s\"", r->op, r->words, status, said);
        ck_assert_msg(
            strstr(said, name) != NULL || strncmp(r->op, "max_", 4) == 0 ||
                strncmp(r->op, "conv", 4) == 0 || strcmp(r->op, "diag") == 0,
            "%s: \"%s\" does not name it", r->op, said);
        for (int k = 0; k < 4; k++)
            ck_assert_uint_eq(results[k].tag, CORE_VALUE_NONE);
    }
}
END_TEST

/* An end beyond the last element means all elements or none. */
static const struct meaning {
    const char *op, *words;
    double total; /* sum of the elements of the result */
    int64_t numel;
} meanings[] = {
    {"triu", "m:3,3 i:" MOST, 0, 9},
    {"triu", "m:3,3 i:" LEAST, 3, 9},
    {"tril", "m:3,3 i:" MOST, 3, 9},
    {"tril", "m:3,3 i:" LEAST, 0, 9},
    {"diagonal", "p:3,3 i:" MOST, 0, 0},
    {"diagonal", "p:3,3 i:" LEAST, 0, 0},
    {"tril_indices", "i:3 i:4 i:0", 12, 12},
    {"tril_indices", "i:3 i:2 i:" MOST, 9, 12},
    {"tril_indices", "i:3 i:2 i:" LEAST, 0, 0},
    {"triu_indices", "i:3 i:2 i:" LEAST, 9, 12},
    {"triu_indices", "i:3 i:2 i:" MOST, 0, 0},
    {"tril_indices", "i:1099511627776 i:3 i:-1099511627775", 1099511627775, 2},
    {"triu_indices", "i:1099511627776 i:3 i:2", 2, 2},
    {"roll", "q:4 l:" MOST " l:0", 8, 4},
    {"roll", "q:4 l:" MOST "," MOST " l:0,0", 8, 4},
    {"slice.Tensor", "q:4 i:0 i:" LEAST " i:" MOST " i:1", 8, 4},
    {"slice.Tensor", "q:4 i:0 i:0 i:4 i:" MOST, 1, 1},
    {"unfold", "q:4 i:0 i:4 i:" MOST, 8, 4},
    {"expand", "q:1 l:4", 0, 4},
};

START_TEST(int64_limits_have_their_literal_meaning)
{
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++) {
        const struct meaning *m = &meanings[i];
        core_value results[4] = {0};
        core_status status = call_op_words(m->op, m->words, results);
        core_tensor *wide;
        double total;

        ck_assert_msg(status == CORE_OK, "%s(%s): %s", m->op, m->words,
                      core_error_message());
        ck_assert_msg(core_tensor_numel(results[0].u.tensor) == m->numel,
                      "%s(%s): %lld elements", m->op, m->words,
                      (long long)core_tensor_numel(results[0].u.tensor));
        OK(core_sum(results[0].u.tensor, CORE_F64, &wide));
        OK(core_tensor_read(wide, &total, sizeof total));
        ck_assert_msg(total == m->total, "%s(%s): sum %g", m->op, m->words,
                      total);
        core_tensor_release(wide);
        core_value_release(&results[0]);
    }
}
END_TEST

/* Against the asymptotic series DLMF 10.40.1 and 10.40.2, whose next term is
 * below 1e-12. */
START_TEST(scaled_bessel_functions_are_accurate_for_large_x)
{
    static const double places[] = {1000, 30000, 1e12, 1.7e308};

    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        double x = places[i], y = 1 / (8 * x);
        double scale = sqrt(acos(-1.0) / 2) / sqrt(x);
        core_tensor *at = typed(CORE_F64, 1, (int64_t[]){1}, &x);
        double k0 = 0, k1 = 0, i0 = 0, i1 = 0;
        double want0 = scale * (1 - y + 4.5 * y * y - 37.5 * y * y * y);
        double want1 = scale * (1 + 3 * y - 7.5 * y * y + 52.5 * y * y * y);

        OK(core_tensor_item_float(CALL(special_scaled_modified_bessel_k0, at),
                                  &k0));
        OK(core_tensor_item_float(CALL(special_scaled_modified_bessel_k1, at),
                                  &k1));
        ck_assert_double_eq_tol(k0 / want0, 1, 1e-12);
        ck_assert_double_eq_tol(k1 / want1, 1, 1e-12);
        want0 = scale * (1 + y + 4.5 * y * y + 37.5 * y * y * y);
        want1 = scale * (1 - 3 * y - 7.5 * y * y - 52.5 * y * y * y);
        OK(core_tensor_item_float(CALL(special_i0e, at), &i0));
        OK(core_tensor_item_float(CALL(special_i1e, at), &i1));
        ck_assert_double_eq_tol(i0 * acos(-1.0) / want0, 1, 1e-12);
        ck_assert_double_eq_tol(i1 * acos(-1.0) / want1, 1, 1e-12);
        OK(core_tensor_item_float(CALL(i0, at), &i0));
        ck_assert(x == 1000 || isinf(i0));
    }
}
END_TEST

SUITE("ops/ops_bounds", numbers_beyond_any_size_are_refused,
      int64_limits_have_their_literal_meaning,
      scaled_bessel_functions_are_accurate_for_large_x)
