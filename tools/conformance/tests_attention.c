/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: the backward of attention, whose operands are results of the
 * forward, so that no sample has them.  Expected is what the CPU computes in
 * f64. */

#include "element_value.h"
#include "suite.h"

#include <libcore/random.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#define FORWARD "_scaled_dot_product_efficient_attention"

enum {
    LARGEST = 2 * 40 * 128,
    OPERANDS = 9,
    ARGUMENTS = 13,
    GRADIENTS = 4,
    LAYOUTS = 6,   /* operands whose heads may be adjacent */
    WITH_BIAS = 1, /* of `all` */
    GAP = 3,       /* elements between heads, unless these are wide */
    WIDE = 64,
    SEED = 2032
};

typedef enum bias_kind { BIAS_NONE, BIAS_NUMBERS, BIAS_MASK } bias_kind;

typedef struct attention {
    const char *text;
    int64_t batch, heads, queries, keys, inner, outer;
    bias_kind bias;
    bool for_all; /* the bias has one batch and one head */
    bool causal;
    double scale; /* 0: the default */
    double dropout;
    uint8_t wanted[GRADIENTS];
} attention;

#define ALL_SIZES(b, h, q, k, i, o) \
    .batch = b, .heads = h, .queries = q, .keys = k, .inner = i, .outer = o
#define SMALL ALL_SIZES(2, 2, 5, 7, 3, 4)
#define THREE .wanted = {1, 1, 1, 0}
#define FOUR .wanted = {1, 1, 1, 1}

static const attention all[] = {
    {.text = "", SMALL, THREE},
    {.text = " with attn_bias", SMALL, FOUR, .bias = BIAS_NUMBERS},
    {.text = " with one attn_bias for all heads",
     SMALL,
     FOUR,
     .bias = BIAS_NUMBERS,
     .for_all = true},
    {.text = " with a mask", SMALL, THREE, .bias = BIAS_MASK},
    {.text = " with is_causal",
     ALL_SIZES(1, 2, 6, 6, 4, 4),
     THREE,
     .causal = true},
    {.text = " with is_causal and attn_bias",
     ALL_SIZES(1, 2, 6, 6, 4, 4),
     FOUR,
     .bias = BIAS_NUMBERS,
     .causal = true},
    {.text = " with scale .9", ALL_SIZES(1, 1, 4, 5, 3, 2), THREE, .scale = .9},
    {.text = " of 70 queries and keys",
     ALL_SIZES(1, 2, 70, 67, 9, 8),
     FOUR,
     .bias = BIAS_NUMBERS},
    {.text = " for value alone", SMALL, .wanted = {0, 0, 1, 0}},
    {.text = " with dropout", SMALL, THREE, .dropout = .3},
    {.text = " of heads of 64",
     ALL_SIZES(1, 2, 70, 67, 64, 64),
     FOUR,
     .bias = BIAS_NUMBERS},
    {.text = " of heads of 128, with is_causal",
     ALL_SIZES(1, 2, 33, 40, 128, 128),
     THREE,
     .causal = true},
};

typedef struct run {
    suite *self;
    outcome *out;
    const attention *a;
    double numbers[OPERANDS][LARGEST]; /* in the order of the arguments */
    int64_t sizes[OPERANDS][4];
    uint32_t ndim[OPERANDS];
    core_dtype dtypes[OPERANDS]; /* f32 stands for the tested dtype */
    core_dtype dtype;            /* that is tested */
    uint32_t adjacent;           /* a bit per operand: its heads are adjacent */
    core_tensor *memory[OPERANDS]; /* of the device's operands */
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

/* The dtype of an operand; the sums of narrow dtypes are f32. */
static core_dtype dtype_of(const run *r, int k, core_dtype as)
{
    if (r->dtypes[k] != CORE_F32)
        return r->dtypes[k];
    return k == 6 && as != CORE_F64 ? CORE_F32 : as;
}

static int64_t gap_of(const run *r, int k)
{
    return r->sizes[k][3] < WIDE ? GAP : 0;
}

/* Stores the bytes of an operand, row-major, or with adjacent heads and NaN
 * between them: [batch, position, head, element].  Returns how many. */
static size_t fill(const run *r, int k, core_dtype as, bool adjacent,
                   unsigned char *bytes)
{
    core_dtype dtype = dtype_of(r, k, as);
    const int64_t *sizes = r->sizes[k];
    int64_t width = sizes[3] + (adjacent ? gap_of(r, k) : 0);
    int64_t count =
        adjacent ? sizes[0] * sizes[1] * sizes[2] * width : numel_of(r, k);
    size_t item = core_dtype_size(dtype);

    memset(bytes, 0xff, (size_t)count * item);
    for (int64_t i = 0; i < numel_of(r, k); i++) {
        int64_t row = i / sizes[3], at = i;

        if (adjacent) {
            int64_t position = row % sizes[2], head = row / sizes[2] % sizes[1];
            int64_t batch = row / (sizes[2] * sizes[1]);

            at = ((batch * sizes[2] + position) * sizes[1] + head) * width +
                 i % sizes[3];
        }
        element_store(dtype, r->numbers[k][i], bytes + (size_t)at * item);
    }
    return (size_t)count * item;
}

/* Stores what the heads' sizes are if they are adjacent. */
static void sizes_of(const run *r, int k, bool adjacent, int64_t out[4])
{
    memcpy(out, r->sizes[k], 4 * sizeof *out);
    if (adjacent) {
        out[1] = r->sizes[k][2];
        out[2] = r->sizes[k][1];
        out[3] += gap_of(r, k);
    }
}

/* A view of memory whose heads are adjacent, without the gaps. */
static core_status view_of(const run *r, int k, core_tensor *memory,
                           core_tensor **out)
{
    core_tensor *whole = NULL;
    core_value slice[5] = {suite_tensor_value(memory), core_int(3), core_int(0),
                           core_int(r->sizes[k][3]), core_int(1)};
    core_value transpose[3] = {{0}, core_int(1), core_int(2)};
    core_status status;

    CORE_TRY(suite_call("slice.Tensor", slice, 5, &whole));
    transpose[0] = suite_tensor_value(whole);
    status = suite_call("transpose.int", transpose, 3, out);
    core_tensor_release(whole);
    return status;
}

static core_status expanded(const run *r, core_tensor *from, core_tensor **out)
{
    const int64_t whole[4] = {r->a->batch, r->a->heads, r->a->queries,
                              r->a->keys};
    core_value args[3] = {suite_tensor_value(from),
                          {CORE_VALUE_INT_LIST, 4, {.ints = whole}},
                          core_bool(false)};

    return suite_call("expand", args, 3, out);
}

/* out_memory: the tensor that has the operand's memory; to be released, too. */
static core_status make(const run *r, int k, core_device *device, core_dtype as,
                        bool adjacent, core_tensor **out_memory,
                        core_tensor **out)
{
    static unsigned char bytes[LARGEST * 8];
    int64_t sizes[4];

    *out = NULL;
    sizes_of(r, k, adjacent, sizes);
    fill(r, k, as, adjacent, bytes);
    CORE_TRY(core_tensor_from_data(bytes, dtype_of(r, k, as), sizes, r->ndim[k],
                                   device, out_memory));
    if (adjacent)
        return view_of(r, k, *out_memory, out);
    if (k == 4 && r->a->for_all)
        return expanded(r, *out_memory, out);
    *out = *out_memory;
    core_tensor_retain(*out);
    return CORE_OK;
}

static bool read(core_tensor *from, double *to)
{
    static unsigned char bytes[LARGEST * 8];
    core_dtype dtype = core_tensor_dtype(from);
    int64_t numel = core_tensor_numel(from);

    if (core_tensor_read(from, bytes, (size_t)numel * core_dtype_size(dtype)) !=
        CORE_OK)
        return false;
    for (int64_t i = 0; i < numel; i++)
        to[i] = element_load(dtype, bytes + (size_t)i * core_dtype_size(dtype));
    return true;
}

/* Tensors of the first `count` operands; an absent bias stays NONE.  Those of the
 * device have the layouts of the run, and their memory is kept. */
static core_status make_all(run *r, core_device *device, core_dtype as,
                            int from, int count, core_value *args)
{
    bool kept = device == r->self->device && device != r->self->host;

    for (int k = 0; k < count; k++) {
        core_tensor *tensor = NULL, *memory = NULL;
        bool adjacent = kept && r->adjacent >> k & 1;
        core_status status;

        if (from + k == 4 && r->a->bias == BIAS_NONE)
            continue;
        status = make(r, from + k, device, as, adjacent, &memory, &tensor);
        if (kept)
            r->memory[k] = memory;
        else
            core_tensor_release(memory);
        CORE_TRY(status);
        args[k] = suite_tensor_value(tensor);
    }
    return CORE_OK;
}

/* Compares the memory of the device's operands with what was written, and
 * releases it. */
static void check_memory(run *r, core_dtype as, bool changed_matters)
{
    static unsigned char wrote[LARGEST * 8], is[LARGEST * 8];
    static const char *const names[OPERANDS] = {
        "grad_out_", "query",     "key",         "value",        "attn_bias",
        "out",       "logsumexp", "philox_seed", "philox_offset"};

    for (int k = 0; k < OPERANDS; k++) {
        size_t size =
            r->memory[k] ? fill(r, k, as, r->adjacent >> k & 1, wrote) : 0;

        if (size > 0 && changed_matters && r->out->verdict == VERDICT_PASS &&
            expect_ok(r->out, core_tensor_read(r->memory[k], is, size),
                      "reading an operand"))
            expect(r->out, memcmp(is, wrote, size) == 0,
                   FORWARD "_backward%s, %s: the memory of the operand %s was "
                           "changed",
                   r->a->text, core_dtype_name(as), names[k]);
        core_tensor_release(r->memory[k]);
        r->memory[k] = NULL;
    }
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

/* Rounds what the forward has computed to the tested dtype. */
static void round_results(run *r)
{
    for (int k = 5; k < 7; k++)
        for (int64_t i = 0; i < numel_of(r, k); i++)
            r->numbers[k][i] =
                element_rounded(dtype_of(r, k, r->dtype), r->numbers[k][i]);
}

/* Computes `out`, `logsumexp`, and what drew the mask of dropout, with the CPU. */
static bool forward(run *r)
{
    core_value args[8] = {{0}}, results[GRADIENTS] = {{0}};
    core_operator *op;
    core_status status;

    core_seed(SEED);
    status = make_all(r, r->self->host, CORE_F64, 1, 4, args);

    args[4] = core_bool(true);
    args[5] = core_float(r->a->dropout);
    args[6] = core_bool(r->a->causal);
    args[7] = scale_of(r->a);
    if (status == CORE_OK)
        status = core_op_find(FORWARD, &op);
    if (status == CORE_OK)
        status = core_op_call(op, args, 8, results, GRADIENTS);
    if (status != CORE_OK || !read(results[0].u.tensor, r->numbers[5]) ||
        !read(results[1].u.tensor, r->numbers[6]) ||
        !read(results[2].u.tensor, r->numbers[7]) ||
        !read(results[3].u.tensor, r->numbers[8]))
        harness_error(r->out, "the CPU cannot compute the forward: %s",
                      core_error_message());
    else
        round_results(r);
    release_all(results, GRADIENTS);
    release_all(args, 4);
    return r->out->verdict == VERDICT_PASS;
}

static core_status backward(run *r, core_device *device, core_dtype as,
                            core_value *results)
{
    core_value args[ARGUMENTS] = {{0}};
    core_operator *op;
    core_status status = make_all(r, device, as, 0, OPERANDS, args);

    args[9] = core_float(r->a->dropout);
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

/* Of the largest gradient: the exponentials and the products of f32, which may be
 * declared to be less exact, and weights and results that are rounded to a
 * narrower dtype. */
static double tolerance_of(const suite *self, core_dtype dtype)
{
    double narrow = dtype == CORE_F32 ? 0 : 8 * dtype_epsilon(dtype);
    uint32_t bits = self->numerics.product_bits;
    double ulp = self->numerics.max_ulp > 4 ? self->numerics.max_ulp : 4;

    return 64 * ldexp(1, -(int)(bits > 0 && bits < 24 ? bits : 24)) +
           16 * ulp * ldexp(1, -24) + narrow;
}

/* Says which heads are adjacent. */
static const char *layout_of(const run *r)
{
    static const char *const names[LAYOUTS] = {
        ", heads of grad_out_ adjacent", ", heads of query adjacent",
        ", heads of key adjacent",       ", heads of value adjacent",
        ", heads of attn_bias adjacent", ", heads of out adjacent"};

    for (int k = 0; k < LAYOUTS; k++)
        if (r->adjacent == 1u << k)
            return names[k];
    return r->adjacent ? ", heads of all operands adjacent" : "";
}

static bool is_close(run *r, int which, core_tensor *got, core_tensor *wanted)
{
    static const char *const names[GRADIENTS] = {"query", "key", "value",
                                                 "attn_bias"};
    static double is[LARGEST], expected[LARGEST];
    double scale = r->dtype == CORE_F32 ? 1 : 0;
    double tolerance = tolerance_of(r->self, r->dtype);

    if (!expect(r->out, got != NULL, FORWARD "_backward%s: no gradient of %s",
                r->a->text, names[which]))
        return false;
    if (!read(got, is) || !read(wanted, expected))
        return expect_ok(r->out, core_error_code(), "reading a gradient");
    for (int64_t i = 0; i < core_tensor_numel(wanted); i++)
        scale = fmax(scale, fabs(expected[i]));
    for (int64_t i = 0; i < core_tensor_numel(wanted); i++)
        if (!expect(r->out, fabs(is[i] - expected[i]) <= tolerance * scale,
                    FORWARD
                    "_backward%s, %s%s: element %lld of the gradient of "
                    "%s is %.9g, expected %.9g",
                    r->a->text, core_dtype_name(r->dtype), layout_of(r),
                    (long long)i, names[which], is[i], expected[i]))
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
    status = backward(r, r->self->device, r->dtype, got);
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
    check_memory(r, r->dtype, status == CORE_OK);
    release_all(wanted, GRADIENTS);
    release_all(got, GRADIENTS);
    core_error_clear();
    return status != CORE_ERROR_NO_KERNEL;
}

/* Each operand alone has adjacent heads, then all have, as where they are views
 * of one product; returns how many calls a kernel made. */
static size_t check_layouts(run *r)
{
    size_t ran = 0;

    r->a = &all[WITH_BIAS];
    for (int k = 0; k <= LAYOUTS && r->out->verdict == VERDICT_PASS; k++) {
        r->adjacent = k < LAYOUTS ? 1u << k : (1u << LAYOUTS) - 1;
        ran += check(r);
    }
    r->adjacent = 0xf;
    for (size_t i = 0;
         i < sizeof all / sizeof *all && r->out->verdict == VERDICT_PASS; i++)
        if (all[i].inner >= WIDE) {
            r->a = &all[i];
            ran += check(r);
        }
    r->adjacent = 0;
    return ran;
}

static void attention_backward(suite *self, outcome *out, const test *one)
{
    static const core_dtype dtypes[] = {CORE_F32, CORE_F16, CORE_BF16};
    static run r;
    size_t ran = 0;

    (void)one;
    r = (run){.self = self, .out = out};
    if (!suite_device(self, out) ||
        !expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                   "turning the fallback off"))
        return;
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        r.dtype = dtypes[d];
        for (size_t i = 0;
             i < sizeof all / sizeof *all && out->verdict == VERDICT_PASS;
             i++) {
            r.a = &all[i];
            ran += check(&r);
        }
        if (out->verdict == VERDICT_PASS)
            ran += check_layouts(&r);
    }
    if (ran == 0 && out->verdict == VERDICT_PASS)
        not_supported(out, "it has no kernel of " FORWARD
                           "_backward of f32, f16 or bf16");
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
