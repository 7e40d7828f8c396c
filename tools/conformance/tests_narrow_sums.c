/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: sums, means, products, convolutions and average pooling of f16 and
 * bf16 are accumulated in f32, or `narrow_sums` of core.numerics says that the
 * device does not.  Not tested here: normalizations, softmax, norms, variances, and
 * sums by indices (index_add, scatter_add, the backward of embedding). */

#include "claims.h"
#include "element_value.h"
#include "skipped_calls.h"

#include <string.h>

enum { SUMMANDS = 4096, PARTS = 16384, NONE = -1 };

/* Large numbers that cancel each other, between small ones that f16 or bf16
 * loses next to a large one.  All partial sums are exact in f32, in any
 * order. */
static double summand(core_dtype dtype, int64_t i)
{
    int64_t quarter = i * 1103 % SUMMANDS / (SUMMANDS / 4);
    double large = dtype == CORE_F16 ? 1024 : 256;
    double small = dtype == CORE_F16 ? .25 : 1;

    return quarter == 0 ? large : quarter == 1 ? -large : small;
}

/* The first half adds up to a number that f16 and bf16 do not represent, and so
 * does each part of 1024 or more; the second half cancels all but 3 of it. */
static double part_of(int64_t i)
{
    return i >= PARTS / 2 ? -1 : i % 1024 == 0 ? 1.375 : 1;
}

/* Calls whose last result ends with the sum, or the mean, of an operand. */
static const struct {
    const char *name;
    const char *words[2]; /* of SUMMANDS and of PARTS numbers */
    int summed;           /* the operand; the others are 1 */
    int zero;             /* the operand that is 0, or NONE */
    bool mean;
} sums[] = {
    {"sum", {"t:4096", "t:16384"}, 0, NONE, false},
    {"sum.dim_IntList", {"t:1,4096 l:1", "t:1,16384 l:1"}, 0, NONE, false},
    {"nansum", {"t:4096", "t:16384"}, 0, NONE, false},
    {"mean", {"t:4096", "t:16384"}, 0, NONE, true},
    {"mean.dim", {"t:1,4096 l:1", "t:1,16384 l:1"}, 0, NONE, true},
    {"mm", {"t:1,4096 t:4096,1", "t:1,16384 t:16384,1"}, 0, NONE, false},
    {"bmm",
     {"t:1,1,4096 t:1,4096,1", "t:1,1,16384 t:1,16384,1"},
     0,
     NONE,
     false},
    {"mv", {"t:1,4096 t:4096", "t:1,16384 t:16384"}, 0, NONE, false},
    {"dot", {"t:4096 t:4096", "t:16384 t:16384"}, 0, NONE, false},
    {"addmm",
     {"t:1,1 t:1,4096 t:4096,1", "t:1,1 t:1,16384 t:16384,1"},
     1,
     0,
     false},
    {"baddbmm",
     {"t:1,1,1 t:1,1,4096 t:1,4096,1", "t:1,1,1 t:1,1,16384 t:1,16384,1"},
     1,
     0,
     false},
    {"addmv", {"t:1 t:1,4096 t:4096", "t:1 t:1,16384 t:16384"}, 1, 0, false},
    {"cumsum", {"t:4096 i:0", "t:16384 i:0"}, 0, NONE, false},
    {"convolution",
     {"t:1,4096,1 t:1,4096,1 n l:1 l:0 l:1 b:0 l:0 i:1",
      "t:1,16384,1 t:1,16384,1 n l:1 l:0 l:1 b:0 l:0 i:1"},
     0,
     NONE,
     false},
    /* Of the weight, then of the bias. */
    {"convolution_backward",
     {"t:1,1,4096 t:1,1,4096 t:1,1,1 l:1 l:1 l:0 l:1 b:0 l:0 i:1 k:0,1,0",
      "t:1,1,16384 t:1,1,16384 t:1,1,1 l:1 l:1 l:0 l:1 b:0 l:0 i:1 k:0,1,0"},
     0,
     NONE,
     false},
    {"convolution_backward",
     {"t:1,1,4096 t:1,1,4096 t:1,1,1 l:1 l:1 l:0 l:1 b:0 l:0 i:1 k:0,0,1",
      "t:1,1,16384 t:1,1,16384 t:1,1,1 l:1 l:1 l:0 l:1 b:0 l:0 i:1 k:0,0,1"},
     0,
     NONE,
     false},
    {"avg_pool2d",
     {"t:1,64,64 l:64,64", "t:1,128,128 l:128,128"},
     0,
     NONE,
     true},
    {"avg_pool3d",
     {"t:1,16,16,16 l:16,16,16", "t:1,16,32,32 l:16,32,32"},
     0,
     NONE,
     true},
    {"_adaptive_avg_pool2d",
     {"t:1,64,64 l:1,1", "t:1,128,128 l:1,1"},
     0,
     NONE,
     true},
    {"_adaptive_avg_pool3d",
     {"t:1,16,16,16 l:1,1,1", "t:1,16,32,32 l:1,1,1"},
     0,
     NONE,
     true},
};

typedef struct narrow {
    suite *self;
    outcome *out;
    uint32_t ran;
    skipped_calls left;
} narrow;

/* Gives the operands their numbers; returns the sum. */
static double fill(sample_call *call, size_t which, bool split)
{
    double total = 0;

    for (uint32_t k = 0; k < call->noperands; k++)
        for (int64_t i = 0; i < call->operands[k].numel; i++) {
            double *to = &call->operands[k].values[i];

            *to = (int)k != sums[which].zero;
            if ((int)k == sums[which].summed) {
                *to = split ? part_of(i) : summand(call->dtype, i);
                total += *to;
            }
        }
    return sums[which].mean ? total / (split ? PARTS : SUMMANDS) : total;
}

/* Reads the last element of the last result. */
static bool read_last(const prepared *on, double *out_is, outcome *out)
{
    unsigned char bytes[PARTS * 2];
    core_tensor *last = on->flat[on->nflat - 1];
    size_t size = core_dtype_size(core_tensor_dtype(last));
    size_t used = size * (size_t)core_tensor_numel(last);

    if (used > sizeof bytes || used == 0 ||
        !expect_ok(out, core_tensor_read(last, bytes, used),
                   "reading a result"))
        return false;
    *out_is = element_load(core_tensor_dtype(last), bytes + used - size);
    return true;
}

/* A call of an operator that is not claimed for these dtypes proves nothing. */
static bool is_left(narrow *of, core_status status, const char *name,
                    core_dtype dtype)
{
    if (!call_is_left(of->self, status, name))
        return false;
    skipped_calls_add(&of->left, name, dtype);
    return true;
}

/* `split`: with numbers whose partial sums must be kept in f32. */
static bool sum_wide(narrow *of, size_t which, core_dtype dtype, bool split)
{
    static sample_call call;
    const char *name = sums[which].name;
    const sample one = {name, sums[which].words[split], -1, 1};
    double total, is = 0;
    core_status status;
    prepared on;
    bool good = false;

    if (!sample_call_parse(&call, of->self, &one, dtype)) {
        harness_error(of->out, "malformed sample: %s %s", name, one.words);
        return false;
    }
    total = fill(&call, which, split);
    status =
        sample_call_prepare(&call, of->self->device, dtype, ARRANGED_ROWS, &on);
    if (status == CORE_OK)
        status = sample_call_run(&call, &on);
    if (is_left(of, status, name, dtype)) {
        good = true;
    } else if (expect_ok(of->out, status, name) &&
               read_last(&on, &is, of->out)) {
        of->ran++;
        good = expect(of->out, is == total,
                      "%s of %d numbers of %s is %g, expected %g: %s not "
                      "computed in f32, which narrow_sums of core.numerics "
                      "does not declare",
                      name, split ? PARTS : SUMMANDS, core_dtype_name(dtype),
                      is, total, split ? "partial sums are" : "the sum is");
    }
    sample_call_done(&on);
    core_error_clear();
    return good;
}

static void narrow_sums_are_declared(suite *self, outcome *out, const test *one)
{
    static const core_dtype halves[] = {CORE_F16, CORE_BF16};
    narrow of = {.self = self, .out = out};

    (void)one;
    if (!suite_device(self, out) ||
        !expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                   "turning the fallback off"))
        return;
    for (size_t d = 0; d < sizeof halves / sizeof *halves; d++)
        for (size_t k = 0; k < sizeof sums / sizeof *sums; k++)
            if (!(self->numerics.narrow_sums & CORE_DTYPE_MASK(halves[d])) &&
                (!sum_wide(&of, k, halves[d], false) ||
                 !sum_wide(&of, k, halves[d], true)))
                return;
    if (of.ran == 0)
        not_supported(out, "no kernel of sums of f16 and bf16 with wider "
                           "partial sums is claimed");
    skipped_calls_report(&of.left, of.ran, out);
}

bool suite_add_narrow_sums(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/narrow-sums-are-declared", narrow_sums_are_declared, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
