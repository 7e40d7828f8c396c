/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: one size after the other is large, where kernels have other loops:
 * what is walked along, what lies within and outside of it, tables that are
 * indexed, indices, groups and channels, windows and steps. */

#include "sample_check.h"
#include "skipped_calls.h"

enum { FEW = 5 }; /* --quick: every fifth */

static const sample samples[] = {
    {"mm", "t:650,41 t:41,262", -1, 1},
    {"mm", "t:3001,41 t:41,7", -1, 1},
    {"mm", "t:131,1 t:1,197", -1, 1},
    {"addmm", "t:1,197 t:131,70 t:70,197 f:.5 f:2", -1, 1},
    {"mv", "t:1031,67 t:67", -1, 1},
    {"dot", "t:130003 t:130003", -1, 1},
    {"_softmax", "t:3,71,131 i:1 b:0", -2, 2},
    {"_softmax", "t:311,401 i:0 b:0", -2, 2},
    {"_softmax", "t:1,130003 i:1 b:0", -2, 2},
    {"_log_softmax", "t:3,71,131 i:1 b:0", -2, 2},
    {"_log_softmax", "t:1,130003 i:1 b:0", -2, 2},
    {"_softmax_backward_data", "t:311,401 t:311,401 i:0 d:f64", -1, 1},
    {"_log_softmax_backward_data", "t:311,401 t:311,401 i:0 d:f64", -1, 1},
    {"native_layer_norm", "t:3,40009 l:40009 n n f:1e-5", .5, 2},
    {"native_layer_norm", "t:3,41,67 l:41,67 t:41,67 t:41,67 f:1e-5", .5, 2},
    {"native_layer_norm_backward",
     "t:4001,17 p:4001,17 l:17 p:4001,1 p:4001,1 t:17 n k:1,1,1", .5, 1},
    {"native_layer_norm_backward",
     "t:3,20011 p:3,20011 l:20011 p:3,1 p:3,1 t:20011 n k:1,1,1", .5, 1},
    {"native_group_norm", "t:2,300,5 n n i:2 i:300 i:5 i:300 f:.001", .5, 2},
    {"native_batch_norm", "t:3,2,103,107 n n n n b:1 f:.1 f:.001", .5, 2},
    {"native_batch_norm", "t:3,2,103,107 t:2 t:2 p:2 p:2 b:0 f:.1 f:.001", .5,
     2},
    {"native_batch_norm", "t:3,1100,2 n n n n b:1 f:.1 f:.001", .5, 2},
    {"sum.dim_IntList", "t:11,67,131 l:0,2", -1, 1},
    {"sum.dim_IntList", "t:11,67,131 l:1", -1, 1},
    {"sum.dim_IntList", "t:4001,31 l:0", -1, 1},
    {"mean.dim", "t:4001,31 l:0 b:0", -1, 1},
    {"amax", "t:4001,31 l:0", -1, 1},
    {"argmax", "u:4001,31 i:0", -1, 1},
    {"max.dim", "u:3,40009 i:1", -1, 1},
    {"max.dim", "u:67,1031 i:0", -1, 1},
    {"var.correction", "t:3,40009 n i:1 b:0", -1, 1},
    {"var.correction", "t:4001,31 l:0 i:1 b:0", -1, 1},
    {"linalg_vector_norm", "t:3,40009 f:2 l:1 b:0", .5, 2},
    {"cumsum", "t:2,60013 i:1", -1, 1},
    {"cumsum", "t:311,401 i:0", -1, 1},
    {"cumprod", "t:2,20011 i:1", .9999, 1.0001},
    {"sort", "u:2,60013 i:1", -1, 1},
    {"sort", "u:2,20011 i:1 b:1", -1, 1},
    {"sort", "u:311,401 i:0", -1, 1},
    {"topk", "u:3,5003 i:301 i:1", -1, 1},
    {"embedding", "t:70001,1 x:50/70001", -1, 1},
    {"embedding", "t:9,1 x:70001/9", -1, 1},
    {"embedding_dense_backward", "t:50,2 x:50/69001 i:69001 i:-1 b:0", .5, 1},
    {"embedding_dense_backward", "t:70001,1 x:70001/3 i:3 i:-1 b:0", .5, 1},
    {"gather", "t:70001,1 i:0 x:91,1/70001", -1, 1},
    {"index_select", "t:70001 i:0 x:91/70001", -1, 1},
    {"index_select", "t:9 i:0 x:70001/9", -1, 1},
    {"index_add", "t:70001 i:0 x:91/70001 t:91 f:2", .5, 1},
    {"index_add", "t:3 i:0 x:70001/3 t:70001 f:2", .5, 1},
    {"scatter_add", "t:70001 i:0 x:91/70001 t:91", .5, 1},
    {"scatter_add", "t:3 i:0 x:70001/3 t:70001", .5, 1},
    {"scatter.src", "t:70001 i:0 q:70001 t:70001", -1, 1},
    {"index.Tensor", "t:69001,2 [ x:91/69001 ]", -1, 1},
    {"index_put", "t:3 [ x:70001/3 ] t:70001 b:1", .5, 1},
    {"convolution", "t:33,9,7,7 t:5,9,3,3 n l:1,1 l:1,1 l:1,1 b:0 l:0,0 i:1",
     -1, 1},
    {"convolution", "t:2,3,17,19 t:4,3,3,3 n l:1,1 l:3,2 l:3,3 b:0 l:0,0 i:1",
     -1, 1},
    {"convolution", "t:2,3,17,19 t:4,3,2,2 n l:3,3 l:0,1 l:1,1 b:0 l:0,0 i:1",
     -1, 1},
    {"convolution", "t:2,70,9,11 t:33,70,1,1 n l:2,2 l:0,0 l:1,1 b:0 l:0,0 i:1",
     -1, 1},
    {"convolution", "t:1,9,67,71 t:7,9,3,3 n l:1,1 l:1,1 l:1,1 b:0 l:0,0 i:1",
     -1, 1},
    {"convolution", "t:1,9,5,5 t:301,9,3,3 n l:1,1 l:1,1 l:1,1 b:0 l:0,0 i:1",
     -1, 1},
    {"convolution_backward",
     "t:1,4,5,5 p:1,131,7,7 p:4,131,3,3 n l:1,1 l:0,0 l:1,1 b:0 l:0,0 i:1 "
     "k:1,1,0",
     -1, 1},
    {"max_pool2d_with_indices", "u:1,2,17,19 l:3,3 l:2,2 l:1,1 l:2,2 b:0", -1,
     1},
    {"max_pool2d_with_indices", "u:1,2,33,35 l:9,11 l:2,3", -1, 1},
    {"upsample_bilinear2d", "t:1,2,7,9 l:5,13 b:0 f:.7 f:1.4", -1, 1},
    {"constant_pad_nd", "t:2,3,4,5 l:1,2,0,1,2,0 f:.5", -1, 1},
    {"tril", "t:131,9,11 i:1", -1, 1},
    {"where.self", "m:1031,1 t:1031,67 t:67", -1, 1},
    {"cat", "[ t:3,7001 t:3,0 t:3,13 ] i:1", -1, 1},
    {"_scaled_dot_product_efficient_attention",
     "t:1,2,131,40 t:1,2,150,40 t:1,2,150,24 n b:1", -1, 1},
    {"_scaled_dot_product_efficient_attention",
     "t:1,2,131,16 t:1,2,131,16 t:1,2,131,16 n b:1 f:0 b:1", -1, 1},
};

static void each_size_is_large(suite *self, outcome *out, const test *one)
{
    skipped_calls left = {.length = 0};
    size_t ran = 0;

    (void)one;
    if (!suite_device(self, out) ||
        !expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                   "turning the fallback off"))
        return;
    for (size_t i = 0; i < sizeof samples / sizeof *samples;
         i += self->quick ? FEW : 1) {
        bool claims =
            sample_check(self, &samples[i], CORE_F32, ARRANGED_ROWS, "", out);

        ran += claims;
        if (out->verdict != VERDICT_PASS)
            return;
        if (!claims)
            skipped_calls_add(&left, samples[i].op, CORE_DTYPE_NONE);
    }
    skipped_calls_report(&left, ran, out);
}

bool suite_add_dimension_sizes(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/each-size-is-large", each_size_is_large, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
