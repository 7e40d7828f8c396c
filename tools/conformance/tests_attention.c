/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: the backward of attention, whose operands are results of the
 * forward, so that no sample has them.  Expected is what the CPU computes in
 * f64. */

#include "element_value.h"
#include "suite.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define FORWARD "_scaled_dot_product_efficient_attention"

enum { LARGEST = 2 * 70 * 67, OPERANDS = 9, ARGUMENTS = 13, GRADIENTS = 4 };

typedef enum bias_kind { BIAS_NONE, BIAS_NUMBERS, BIAS_MASK } bias_kind;

typedef struct attention {
    const char *text;
    int64_t batch, heads, queries, keys, inner, outer;
    bias_kind bias;
    bool for_all; /* the bias has one batch and one head */
    bool causal;
    double scale; /* 0: the default */
    uint8_t wanted[GRADIENTS];
} attention;

static const attention all[] = {
    {"", 2, 2, 5, 7, 3, 4, BIAS_NONE, false, false, 0, {1, 1, 1, 0}},
    {" with attn_bias",
     2,
     2,
     5,
     7,
     3,
     4,
     BIAS_NUMBERS,
     false,
     false,
     0,
     {1, 1, 1, 1}},
    {" with one attn_bias for all heads",
     2,
     2,
     5,
     7,
     3,
     4,
     BIAS_NUMBERS,
     true,
     false,
     0,
     {1, 1, 1, 1}},
    {" with a mask",
     2,
     2,
     5,
     7,
     3,
     4,
     BIAS_MASK,
     false,
     false,
     0,
     {1, 1, 1, 0}},
    {" with is_causal",
     1,
     2,
     6,
     6,
     4,
     4,
     BIAS_NONE,
     false,
     true,
     0,
     {1, 1, 1, 0}},
    {" with is_causal and attn_bias",
     1,
     2,
     6,
     6,
     4,
     4,
     BIAS_NUMBERS,
     false,
     true,
     0,
     {1, 1, 1, 1}},
    {" with scale .9",
     1,
     1,
     4,
     5,
     3,
     2,
     BIAS_NONE,
     false,
     false,
     .9,
     {1, 1, 1, 0}},
    {" of 70 queries and keys",
     1,
     2,
     70,
     67,
     9,
     8,
     BIAS_NUMBERS,
     false,
     false,
     0,
     {1, 1, 1, 1}},
    {" for value alone",
     1,
     2,
     5,
     7,
     3,
     4,
     BIAS_NONE,
     false,
     false,
     0,
     {0, 0, 1, 0}},
};

typedef struct run {
    suite *self;
    outcome *out;
    const attention *a;
    double numbers[OPERANDS][LARGEST]; /* in the order of the arguments */
    int64_t sizes[OPERANDS][4];
    uint32_t ndim[OPERANDS];
    core_dtype dtypes[OPERANDS]; /* f32 stands for the tested dtype */
} run;

static int64_t numel_of(const run *r, int k)
{
    int64_t numel = 1;

    for (uint32_t d = 0; d < r->ndim[k]; d++)
        numel *= r->sizes[k][d];
    return numel;
}

static void size(run *r, int k, uint32_t ndim, int64_t a, int64_t b, int64_t c,
                 int64_t d)
{
    const int64_t sizes[4] = {a, b, c, d};

    memcpy(r->sizes[k], sizes, sizeof sizes);
    r->ndim[k] = ndim;
    r->dtypes[k] = CORE_F32;
}

/* Numbers that f32 represents. */
static void describe(run *r)
{
    const attention *a = r->a;
    bool one = a->for_all;

    size(r, 0, 4, a->batch, a->heads, a->queries, a->outer); /* grad_out */
    size(r, 1, 4, a->batch, a->heads, a->queries, a->inner);
    size(r, 2, 4, a->batch, a->heads, a->keys, a->inner);
    size(r, 3, 4, a->batch, a->heads, a->keys, a->outer);
    size(r, 4, 4, one ? 1 : a->batch, one ? 1 : a->heads, a->queries, a->keys);
    size(r, 5, 4, a->batch, a->heads, a->queries, a->outer); /* out */
    size(r, 6, 3, a->batch, a->heads, a->queries, 1);        /* logsumexp */
    size(r, 7, 0, 1, 1, 1, 1);
    size(r, 8, 0, 1, 1, 1, 1);
    r->dtypes[7] = r->dtypes[8] = CORE_I64;
    if (a->bias == BIAS_MASK)
        r->dtypes[4] = CORE_BOOL;
    for (int k = 0; k < 5; k++)
        for (int64_t i = 0; i < numel_of(r, k); i++) {
            double number = (double)((i * 37 + 11 * k) % 101) / 64 - .75;

            r->numbers[k][i] = r->dtypes[k] == CORE_BOOL ? i % 3 != 1 : number;
        }
    r->numbers[7][0] = r->numbers[8][0] = 0;
}

static core_status make(const run *r, int k, core_device *device, core_dtype as,
                        core_tensor **out)
{
    core_dtype dtype = r->dtypes[k] == CORE_F32 ? as : r->dtypes[k];
    const int64_t whole[4] = {r->a->batch, r->a->heads, r->a->queries,
                              r->a->keys};
    core_value args[3] = {
        {0}, {CORE_VALUE_INT_LIST, 4, {.ints = whole}}, core_bool(false)};
    unsigned char bytes[LARGEST * 8];
    core_tensor *made = NULL;
    core_status status;

    for (int64_t i = 0; i < numel_of(r, k); i++)
        element_store(dtype, r->numbers[k][i],
                      bytes + (size_t)i * core_dtype_size(dtype));
    *out = NULL;
    CORE_TRY(core_tensor_from_data(bytes, dtype, r->sizes[k], r->ndim[k],
                                   device, &made));
    if (k != 4 || !r->a->for_all) {
        *out = made;
        return CORE_OK;
    }
    args[0] = suite_tensor_value(made);
    status = suite_call("expand", args, 3, out);
    core_tensor_release(made);
    return status;
}

static bool read(core_tensor *from, double *to)
{
    core_dtype dtype = core_tensor_dtype(from);
    unsigned char bytes[LARGEST * 8];
    int64_t numel = core_tensor_numel(from);

    if (core_tensor_read(from, bytes, (size_t)numel * core_dtype_size(dtype)) !=
        CORE_OK)
        return false;
    for (int64_t i = 0; i < numel; i++)
        to[i] = element_load(dtype, bytes + (size_t)i * core_dtype_size(dtype));
    return true;
}

/* Tensors of the first `count` operands; an absent bias stays NONE. */
static core_status make_all(const run *r, core_device *device, core_dtype as,
                            int from, int count, core_value *args)
{
    for (int k = 0; k < count; k++) {
        core_tensor *tensor = NULL;

        if (from + k == 4 && r->a->bias == BIAS_NONE)
            continue;
        CORE_TRY(make(r, from + k, device, as, &tensor));
        args[k] = suite_tensor_value(tensor);
    }
    return CORE_OK;
}

static void release_all(core_value *values, int count)
{
    for (int k = 0; k < count; k++)
        core_value_release(&values[k]);
}

static core_value scale_of(const attention *a)
{
    return a->scale > 0 ? core_float(a->scale) : (core_value){0};
}

/* Computes `out` and `logsumexp` with the CPU. */
static bool forward(run *r)
{
    core_value args[8] = {{0}}, results[GRADIENTS] = {{0}};
    core_operator *op;
    core_status status = make_all(r, r->self->host, CORE_F64, 1, 4, args);

    args[4] = core_bool(true);
    args[5] = core_float(0);
    args[6] = core_bool(r->a->causal);
    args[7] = scale_of(r->a);
    if (status == CORE_OK)
        status = core_op_find(FORWARD, &op);
    if (status == CORE_OK)
        status = core_op_call(op, args, 8, results, GRADIENTS);
    if (status != CORE_OK || !read(results[0].u.tensor, r->numbers[5]) ||
        !read(results[1].u.tensor, r->numbers[6]))
        harness_error(r->out, "the CPU cannot compute the forward: %s",
                      core_error_message());
    release_all(results, GRADIENTS);
    release_all(args, 4);
    return r->out->verdict == VERDICT_PASS;
}

static core_status backward(const run *r, core_device *device, core_dtype as,
                            core_value *results)
{
    core_value args[ARGUMENTS] = {{0}};
    core_operator *op;
    core_status status = make_all(r, device, as, 0, OPERANDS, args);

    args[9] = core_float(0);
    args[10] =
        (core_value){CORE_VALUE_BOOL_LIST, GRADIENTS, {.bools = r->a->wanted}};
    args[11] = core_bool(r->a->causal);
    args[12] = scale_of(r->a);
    if (status == CORE_OK)
        status = core_op_find(FORWARD "_backward", &op);
    if (status == CORE_OK)
        status = suite_op_call(op, args, ARGUMENTS, results, GRADIENTS);
    release_all(args, OPERANDS);
    return status;
}

/* The exponentials and the products of f32, which may be declared to be less
 * exact. */
static double tolerance_of(const suite *self)
{
    uint32_t bits = self->numerics.product_bits;
    double ulp = self->numerics.max_ulp > 4 ? self->numerics.max_ulp : 4;

    return 64 * ldexp(1, -(int)(bits > 0 && bits < 24 ? bits : 24)) +
           16 * ulp * ldexp(1, -24);
}

static bool is_close(run *r, int which, core_tensor *got, core_tensor *wanted)
{
    static const char *const names[GRADIENTS] = {"query", "key", "value",
                                                 "attn_bias"};
    static double is[LARGEST], expected[LARGEST];
    double scale = 1, tolerance = tolerance_of(r->self);

    if (!expect(r->out, got != NULL, FORWARD "_backward%s: no gradient of %s",
                r->a->text, names[which]))
        return false;
    if (!read(got, is) || !read(wanted, expected))
        return expect_ok(r->out, core_error_code(), "reading a gradient");
    for (int64_t i = 0; i < core_tensor_numel(wanted); i++)
        scale = fmax(scale, fabs(expected[i]));
    for (int64_t i = 0; i < core_tensor_numel(wanted); i++)
        if (!expect(r->out, fabs(is[i] - expected[i]) <= tolerance * scale,
                    FORWARD "_backward%s, f32: element %lld of the gradient of "
                            "%s is %.9g, expected %.9g",
                    r->a->text, (long long)i, names[which], is[i], expected[i]))
            return false;
    return true;
}

/* Returns whether the device has a kernel for it. */
static bool check(run *r)
{
    core_value got[GRADIENTS] = {{0}}, wanted[GRADIENTS] = {{0}};
    core_status status;

    describe(r);
    if (!forward(r))
        return true;
    status = backward(r, r->self->device, CORE_F32, got);
    if (status != CORE_OK && status != CORE_ERROR_NO_KERNEL)
        expect_ok(r->out, status, FORWARD "_backward");
    if (status == CORE_OK &&
        backward(r, r->self->host, CORE_F64, wanted) != CORE_OK)
        harness_error(r->out, "the CPU cannot compute the backward: %s",
                      core_error_message());
    for (int k = 0;
         k < GRADIENTS && status == CORE_OK && r->out->verdict == VERDICT_PASS;
         k++)
        if (r->a->wanted[k])
            is_close(r, k, got[k].u.tensor, wanted[k].u.tensor);
    release_all(wanted, GRADIENTS);
    release_all(got, GRADIENTS);
    core_error_clear();
    return status != CORE_ERROR_NO_KERNEL;
}

static void attention_backward(suite *self, outcome *out, const test *one)
{
    static run r;
    size_t ran = 0;

    (void)one;
    r = (run){.self = self, .out = out};
    if (!suite_device(self, out) ||
        !expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                   "turning the fallback off"))
        return;
    for (size_t i = 0;
         i < sizeof all / sizeof *all && out->verdict == VERDICT_PASS; i++) {
        r.a = &all[i];
        ran += check(&r);
    }
    if (ran == 0 && out->verdict == VERDICT_PASS)
        not_supported(out, "it has no kernel of " FORWARD "_backward of f32");
}

bool attention_has(const char *op)
{
    return strcmp(op, FORWARD "_backward") == 0;
}

bool suite_add_attention(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/attention-backward", attention_backward, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
