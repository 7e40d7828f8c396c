/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: more rows, columns or batches than the second and third dimension
 * of a launch have groups, 65,535 on most devices; all other sizes are small. */

#include "skipped_calls.h"
#include "sample_check.h"

enum { FEW = 6 }; /* --quick: every sixth */

static const sample samples[] = {
    {"bmm", "t:65537,1,2 t:65537,2,1", .5, 2},
    {"baddbmm", "t:65537,1,1 t:65537,1,2 t:65537,2,1 f:.5 f:2", .5, 2},
    {"mm", "t:1,2 t:2,65537", .5, 2},
    {"mm", "t:65537,2 t:2,1", .5, 2},
    {"addmm", "t:1 t:65537,2 t:2,1 f:.5 f:2", .5, 2},
    {"addmm", "t:65537 t:1,2 t:2,65537 f:.5 f:2", .5, 2},
    {"mv", "t:65537,2 t:2", .5, 2},
    {"convolution", "t:65537,1,2 t:1,1,2 n l:1 l:0 l:1 b:0 l:0 i:1", .5, 2},
    {"convolution", "t:1,1,2 t:65537,1,2 n l:1 l:0 l:1 b:0 l:0 i:1", .5, 2},
    {"convolution_backward",
     "t:65537,1,1 t:65537,1,2 t:1,1,2 n l:1 l:0 l:1 b:0 l:0 i:1 k:1,1,0", .5,
     2},
    {"_log_softmax", "t:65537,2 i:1 b:0", -2, 2},
    {"_softmax", "t:65537,2 i:1 b:0", -2, 2},
    {"_softmax", "t:2,65537 i:0 b:0", -2, 2},
    {"_softmax_backward_data", "t:65537,2 t:65537,2 i:1 d:f64", -1, 1},
    {"_log_softmax_backward_data", "t:65537,2 t:65537,2 i:1 d:f64", -1, 1},
    {"sum.dim_IntList", "t:65537,2 l:1", .5, 2},
    {"sum.dim_IntList", "t:2,65537 l:0", .5, 2},
    {"amax", "t:65537,2 l:1", .5, 2},
    {"argmax", "u:65537,2 i:1", -1, 1},
    {"max.dim", "u:65537,2 i:1", -1, 1},
    {"any.dim", "m:65537,2 i:1", 0, 1},
    {"prod.dim_int", "t:65537,2 i:1 b:0", .5, 2},
    {"var.correction", "t:65537,2 l:1 i:1 b:0", -1, 1},
    {"logsumexp", "t:65537,2 l:1", -1, 1},
    {"native_layer_norm", "t:65537,2 l:2 n n f:1e-5", .5, 2},
    {"native_layer_norm_backward",
     "t:65537,2 p:65537,2 l:2 p:65537,1 p:65537,1 n n k:1,0,0", .5, 1},
    {"native_group_norm", "t:32769,2,2 n n i:32769 i:2 i:2 i:2 f:.001", .5, 2},
    {"native_batch_norm", "t:2,65537 n n n n b:1 f:.1 f:.001", .5, 2},
    {"cumsum", "t:65537,2 i:1", .5, 2},
    {"cumsum", "t:2,65537 i:0", .5, 2},
    {"cumprod", "t:65537,2 i:1", .5, 2},
    {"sort", "u:65537,2 i:1", -1, 1},
    {"topk", "u:65537,2 i:1", -1, 1},
    {"embedding", "t:9,2 x:65537/9", .5, 2},
    {"embedding_dense_backward", "t:65537,2 x:65537/9 i:9 i:-1 b:0", .5, 1},
    {"gather", "t:65537,2 i:1 x:65537,2/2", .5, 2},
    {"scatter_add", "t:65537,2 i:1 x:65537,1/2 t:65537,1", .5, 2},
    {"index_select", "t:65537,2 i:1 x:2/2", .5, 2},
    {"index_select", "t:2,65537 i:0 x:2/2", .5, 2},
    {"index_add", "t:65537,2 i:1 x:1/2 t:65537,1 f:2", .5, 2},
    {"index.Tensor", "t:65537,2 [ x:65537/65537 ]", .5, 2},
    {"flip", "t:65537,2 l:1", .5, 2},
    {"roll", "t:65537,2 l:1 l:1", .5, 2},
    {"cat", "[ t:65537,1 t:65537,1 ] i:1", .5, 2},
    {"tril", "t:65537,1,2 i:0", .5, 2},
    {"constant_pad_nd", "t:65537,1 l:0,1 f:.5", .5, 2},
    {"reflection_pad1d", "t:65537,2 l:1,0", .5, 2},
    {"nll_loss_forward", "t:65537,2 x:65537/2 n i:0 i:-100", .5, 1},
    {"max_pool2d_with_indices", "u:65537,1,2 l:1,2", -1, 1},
    {"avg_pool2d", "t:65537,1,2 l:1,2 l: l:0,0", .5, 2},
    {"upsample_nearest2d", "t:65537,1,1,1 l:1,2", .5, 2},
    {"upsample_bilinear2d", "t:65537,1,1,1 l:1,2 b:0", .5, 2},
    {"add.Tensor", "t:65537,2 t:65537,1 i:1", .5, 2},
    {"where.self", "m:65537,1 t:65537,2 t:2", .5, 2},
    {"masked_fill.Scalar", "t:65537,2 m:65537,1 f:2", .5, 2},
    {"lerp.Tensor", "t:65537,2 t:65537,1 t:2", .5, 2},
};

static void grid_limits(suite *self, outcome *out, const test *one)
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

bool suite_add_grid_limits(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/more-than-65535-rows", grid_limits, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
