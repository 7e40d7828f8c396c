/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: arguments of other values than those of the samples that are made
 * in all layouts and sizes.  Each call is made once, row-major, in f32 or else in
 * i64; sequences of large integers in i64. */

#include "claims.h"
#include "oracle.h"
#include "sample_check.h"

#include <string.h>

static const sample more[] = {
    {"addbmm", "t:4,1 t:2,4,3 t:2,3,5 f:.5 f:2", .5, 2},
    {"addmm", "t:4,1 t:4,3 t:3,5 f:.5 f:2", .5, 2},
    {"addmm", "t:1,5 t:4,3 t:3,5 f:.5 f:2", .5, 2},
    {"addmm", "t: t:4,3 t:3,5 f:.5 f:2", .5, 2},
    {"addmv", "t: t:4,3 t:3 f:.5 f:2", .5, 2},
    {"addr", "t:4,1 t:4 t:3 f:.5 f:2", .5, 2},
    {"arange.start_step", "f:0 f:999 f:.1 % n @", .5, 2},
    {"arange.start_step", "f:5 f:-2 f:-.75 % n @", .5, 2},
    {"avg_pool2d", "t:1,2,5,6 l:2,3 l:2,1 l:1,1 b:1 b:0 i:4", .5, 2},
    {"avg_pool2d_backward", "t:1,2,3,3 p:1,2,5,6 l:2,3 l:2,2 l:1,1 b:0 b:0 i:4",
     .5, 2},
    {"avg_pool3d", "t:1,2,4,4,4 l:2,2,2 l:2,2,2 l:0,1,0 b:0 b:0 i:3", .5, 2},
    {"baddbmm", "t:4,1 t:2,4,3 t:2,3,5 f:.5 f:2", .5, 2},
    {"baddbmm", "t:5 t:2,4,3 t:2,3,5 f:.5 f:2", .5, 2},
    {"constant_pad_nd", "t:5,4 l:-1,2,1,-2 f:.5", .5, 2},
    {"convolution_backward",
     "t:1,6,4,6 p:1,4,7,8 p:6,2,3,2 n l:2,1 l:1,0 l:1,2 b:0 l:0,0 i:2 k:1,1,0",
     .5, 2},
    {"convolution_backward",
     "t:1,6,4,6 p:1,4,7,8 p:6,2,3,2 l:6 l:2,1 l:1,0 l:1,2 b:0 l:0,0 i:2 "
     "k:1,1,1",
     .5, 2},
    {"index.Tensor", "t:4,5,2 [ x:3/4 x:3/5 ]", .5, 2},
    {"index.Tensor", "t:4,5,2 [ x:2,1/4 x:3/5 ]", .5, 2},
    {"index.Tensor", "t:4,5,2 [ n x:3/5 ]", .5, 2},
    {"index.Tensor", "t:4,5,2 [ x:3/4=-1,0,-4 x:3/5=2,-5,-1 ]", .5, 2},
    {"index_put", "t:4,5,2 [ x:3/4 x:3/5 ] t:3,2 b:1", .5, 2},
    {"index_put", "t:4,5,2 [ x:3/4=-1,0,-4 ] t:3,5,2 b:0", .5, 2},
    {"index_put", "t:4,5,2 [ x:3/4=-1,3,-2 ] t:3,5,2 b:1", .5, 2},
    {"take", "t:4,5 x:4/20=-1,0,-20,7", .5, 2},
    {"cat", "[ t:0 t:2,3 t:1,3 ] i:0", .5, 2},
    {"cat", "[ t:2,0 t:2,3 t:2,1 ] i:-1", .5, 2},
    {"index_put", "t:4,4,2 [ q:4 q:4 ] t:4,2 b:0", .5, 2},
    {"linspace", "f:5 f:-2 i:8 % n @", .5, 2},
    {"linspace", "f:5 f:1 i:1 % n @", .5, 2},
    {"masked_fill.Scalar", "t:3,4 m:3,1 f:2", .5, 2},
    {"max_pool2d_with_indices", "u:1,2,7,8 l:3,2 l:2,1 l:1,0 l:2,3 b:0", -1, 1},
    {"max_pool2d_with_indices", "u:1,2,7,8 l:3,2 l:2,3 l:1,1 l:1,1 b:1", -1, 1},
    {"max_pool3d_with_indices",
     "u:1,2,5,5,5 l:2,2,2 l:1,2,1 l:1,0,0 l:2,1,2 b:0", -1, 1},
    {"roll", "t:3,5 l:-2,1 l:0,1", .5, 2},
    {"tril", "t:4,5 i:-2", .5, 2},
    {"tril", "t:4,5 i:2", .5, 2},
    {"triu", "t:4,5 i:-2", .5, 2},
    {"triu", "t:5,4 i:2", .5, 2},
    {"upsample_bilinear2d", "t:1,2,3,4 l:5,6 b:0 f:1.625 f:1.5", .5, 2},
    {"upsample_bilinear2d_backward",
     "t:1,2,5,6 l:5,6 l:1,2,3,4 b:0 f:1.625 f:1.5", .5, 2},
    {"upsample_bilinear2d", "t:1,2,4,6 l:2,3 b:0", .5, 2},
    {"upsample_bilinear2d", "t:1,2,3,5 l:5,9 b:1", .5, 2},
    {"upsample_bilinear2d", "t:1,2,3,4 l:1,1 b:1", .5, 2},
    {"upsample_bilinear2d", "t:1,2,3,4 l:3,4 b:0", .5, 2},
    {"upsample_bicubic2d", "t:1,2,4,6 l:2,1 b:1", .5, 2},
    {"upsample_nearest2d", "t:1,2,6,4 l:3,2", .5, 2},
    {"upsample_nearest2d", "t:1,2,3,4 l:1,4", .5, 2},
    {"upsample_nearest1d", "t:1,2,3 l:5 f:1.625", .5, 2},
    {"upsample_nearest2d", "t:1,2,3,4 l:5,6 f:1.625 f:1.5", .5, 2},
};

/* Integers that f32, or 32 bits, do not represent. */
static const sample large_integers[] = {
    {"arange", "i:7 % n @", 0, 0},
    {"arange.start", "i:16777217 i:16777222 % n @", 0, 0},
    {"arange.start_step", "i:16777217 i:16777232 i:3 % n @", 0, 0},
    {"arange.start_step", "i:4294967290 i:4294967310 i:5 % n @", 0, 0},
    {"arange.start_step", "i:9 i:-9 i:-4 % n @", 0, 0},
};

/* Tests whether the call can be made in a dtype, and compared. */
static bool can_check(suite *self, const sample *one, core_dtype dtype)
{
    static sample_call call;
    reference wanted;
    bool good;

    memset(&wanted, 0, sizeof wanted);
    good = sample_call_parse(&call, self, one, dtype) &&
           (sample_call_has_dtype(&call) ||
            (dtype == CORE_I64 && call.noperands > 0)) &&
           !oracle_random(one->op) && oracle_defines(&call) &&
           reference_shapes(&call, &wanted) == CORE_OK &&
           claim_of(self, &call, &wanted) != CLAIM_NONE &&
           reference_values(&call, self, &wanted) == CORE_OK;
    reference_free(&wanted);
    core_error_clear();
    return good;
}

/* Returns how many calls were made. */
static size_t check_all(suite *self, const sample *samples, size_t count,
                        outcome *out)
{
    size_t ran = 0;

    for (size_t i = 0; i < count && out->verdict == VERDICT_PASS; i++) {
        const sample *at = &samples[i];
        core_dtype dtype = can_check(self, at, CORE_F32) ? CORE_F32 : CORE_I64;

        ran += (dtype == CORE_F32 || can_check(self, at, dtype)) &&
               sample_check(self, at, dtype, ARRANGED_ROWS, "", out);
    }
    return ran;
}

static void argument_values(suite *self, outcome *out, const test *one)
{
    size_t ran;

    (void)one;
    if (!suite_device(self, out) ||
        !expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                   "turning the fallback off"))
        return;
    ran = check_all(self, more, sizeof more / sizeof *more, out);
    ran += check_all(self, argument_sample_table, argument_sample_count, out);
    for (size_t i = 0; i < sizeof large_integers / sizeof *large_integers &&
                       out->verdict == VERDICT_PASS;
         i++)
        ran += can_check(self, &large_integers[i], CORE_I64) &&
               sample_check(self, &large_integers[i], CORE_I64, ARRANGED_ROWS,
                            "", out);
    if (ran == 0 && out->verdict == VERDICT_PASS)
        not_supported(out, "no operator with such arguments is claimed in f32");
}

bool suite_add_arguments(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/argument-values", argument_values, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
