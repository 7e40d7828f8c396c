/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: what a kernel keeps of a matrix (core_host.call_view_content) is
 * used for that matrix alone, and only until it changes: not for another part of
 * its tensor, for its transpose, or for what its memory contains later. */

#include "suite.h"

#include <string.h>

/* Large enough to be kept, and used as often as a kernel may want before. */
enum { SIDE = 40, SQUARE = SIDE * SIDE, PARTS = 2, USES = 3 };

typedef struct kept {
    suite *self;
    outcome *out;
    core_tensor *left, *right; /* right: PARTS matrices, one after the other */
    float a[SQUARE], b[PARTS * SQUARE];
    uint32_t ran;
} kept;

typedef core_status product(const kept *k, core_tensor *right,
                            core_tensor **out);

static core_status viewed(core_tensor *of, uint32_t ndim, const int64_t *sizes,
                          const int64_t *strides, int64_t offset,
                          core_tensor **out)
{
    core_value args[4] = {
        suite_tensor_value(of),
        {CORE_VALUE_INT_LIST, ndim, {.ints = sizes}},
        {CORE_VALUE_INT_LIST, ndim, {.ints = strides}},
        core_int(offset),
    };

    return suite_call("as_strided", args, 4, out);
}

static core_status by_mm(const kept *k, core_tensor *right, core_tensor **out)
{
    core_value args[2] = {suite_tensor_value(k->left),
                          suite_tensor_value(right)};

    return suite_call("mm", args, 2, out);
}

static core_status by_addmm(const kept *k, core_tensor *right,
                            core_tensor **out)
{
    core_value args[5] = {
        suite_tensor_value(k->left), suite_tensor_value(k->left),
        suite_tensor_value(right), core_float(0), core_float(1)};

    return suite_call("addmm", args, 5, out);
}

/* With a dimension of 1 in front. */
static core_status batch_of(core_tensor *of, core_tensor **out)
{
    core_value args[2] = {suite_tensor_value(of), core_int(0)};

    return suite_call("unsqueeze", args, 2, out);
}

static core_status by_bmm(const kept *k, core_tensor *right, core_tensor **out)
{
    core_tensor *lefts = NULL, *rights = NULL;
    core_status status = batch_of(k->left, &lefts);

    *out = NULL;
    if (status == CORE_OK)
        status = batch_of(right, &rights);
    if (status == CORE_OK) {
        core_value args[2] = {suite_tensor_value(lefts),
                              suite_tensor_value(rights)};

        status = suite_call("bmm", args, 2, out);
    }
    core_tensor_release(rights);
    core_tensor_release(lefts);
    return status;
}

/* A convolution whose kernels have one element multiplies by the transpose of
 * its weight. */
static core_status by_convolution(const kept *k, core_tensor *right,
                                  core_tensor **out)
{
    const int64_t sizes[4] = {SIDE, SIDE, 1, 1}, *of;
    const int64_t rows[4] = {SIDE, 1, 1, 1}, ones[2] = {1, 1}, none[2] = {0, 0};
    int64_t turned[4] = {0, 0, 1, 1};
    core_tensor *input = NULL, *weight = NULL;
    core_status status = viewed(k->left, 4, sizes, rows, 0, &input);

    *out = NULL;
    of = core_tensor_strides(right);
    turned[0] = of[1];
    turned[1] = of[0];
    if (status == CORE_OK)
        status =
            viewed(right, 4, sizes, turned, core_tensor_offset(right), &weight);
    if (status == CORE_OK) {
        core_value args[9] = {suite_tensor_value(input),
                              suite_tensor_value(weight),
                              {CORE_VALUE_NONE, 0, {0}},
                              {CORE_VALUE_INT_LIST, 2, {.ints = ones}},
                              {CORE_VALUE_INT_LIST, 2, {.ints = none}},
                              {CORE_VALUE_INT_LIST, 2, {.ints = ones}},
                              core_bool(false),
                              {CORE_VALUE_INT_LIST, 2, {.ints = none}},
                              core_int(1)};

        status = suite_call("convolution", args, 9, out);
    }
    core_tensor_release(weight);
    core_tensor_release(input);
    return status;
}

static const struct {
    const char *name;
    product *call;
} products[] = {{"mm", by_mm},
                {"addmm", by_addmm},
                {"bmm", by_bmm},
                {"convolution", by_convolution}};

/* Element i of the product with the matrix at b. */
static float product_at(const kept *k, const float *b, bool transposed,
                        int64_t i)
{
    int64_t column = i % SIDE;
    float sum = 0;

    for (int64_t j = 0; j < SIDE; j++)
        sum += k->a[i / SIDE * SIDE + j] *
               b[transposed ? column * SIDE + j : j * SIDE + column];
    return sum;
}

/* Multiplies by a part of `right`, repeatedly.  Returns false if no kernel does,
 * or after a failure. */
static bool multiply(kept *k, size_t which, int part, bool transposed,
                     const char *what)
{
    const int64_t sizes[2] = {SIDE, SIDE};
    const int64_t strides[2][2] = {{SIDE, 1}, {1, SIDE}};
    core_tensor *right = NULL, *got = NULL;
    float data[SQUARE];
    core_status status = viewed(k->right, 2, sizes, strides[transposed],
                                (int64_t)part * SQUARE, &right);

    for (int use = 0; use < USES && k->out->verdict == VERDICT_PASS; use++) {
        if (status == CORE_OK)
            status = products[which].call(k, right, &got);
        if (status == CORE_ERROR_NO_KERNEL ||
            !expect_ok(k->out, status, products[which].name) ||
            !expect_ok(k->out, core_tensor_read(got, data, sizeof data),
                       "reading a result"))
            break;
        for (int64_t i = 0; i < SQUARE; i++) {
            float want = product_at(k, k->b + part * SQUARE, transposed, i);

            if (!expect(k->out, data[i] == want,
                        "%s with %s: the kernel uses what it kept of a matrix "
                        "before (a packed weight); it is the same only if "
                        "storage, version (call_view_content), memory with its "
                        "offset, dtype, sizes and strides are equal: element "
                        "%lld is %g, expected %g",
                        products[which].name, what, (long long)i,
                        (double)data[i], (double)want))
                break;
        }
        core_tensor_release(got);
        got = NULL;
    }
    core_tensor_release(got);
    core_tensor_release(right);
    if (status == CORE_ERROR_NO_KERNEL)
        core_error_clear();
    return status == CORE_OK && k->out->verdict == VERDICT_PASS;
}

/* Small integers, whose products are exact, no matrix symmetric; `seed` makes them differ. */
static void number(kept *k, int64_t seed)
{
    for (int64_t i = 0; i < SQUARE; i++)
        k->a[i] = (float)(i * 7 % 11 - 5);
    for (int64_t i = 0; i < PARTS * SQUARE; i++)
        k->b[i] = (float)((i * 5 + i / SIDE * 3 + i / SQUARE + seed) % 13 - 6);
}

static bool renew(kept *k)
{
    static const int64_t rows[2] = {PARTS * SIDE, SIDE};

    core_tensor_release(k->right);
    k->right = NULL;
    return expect_ok(k->out,
                     core_tensor_from_data(k->b, CORE_F32, rows, 2,
                                           k->self->device, &k->right),
                     "making an operand");
}

static bool rewrite(kept *k)
{
    return expect_ok(k->out, core_tensor_write(k->right, k->b, sizeof k->b),
                     "writing an operand");
}

/* Through another view of the memory, by an operator. */
static bool negate(kept *k)
{
    static const int64_t size = PARTS * SQUARE, stride = 1;
    core_tensor *flat = NULL, *same = NULL;
    core_value args[2] = {{0}};
    core_status status = viewed(k->right, 1, &size, &stride, 0, &flat);

    if (status == CORE_OK) {
        args[0] = suite_tensor_value(flat);
        status = suite_call("neg_", args, 1, &same);
    }
    core_tensor_release(same);
    core_tensor_release(flat);
    if (status == CORE_ERROR_NO_KERNEL) {
        core_error_clear();
        return true;
    }
    for (int64_t i = 0; status == CORE_OK && i < size; i++)
        k->b[i] = -k->b[i];
    return expect_ok(k->out, status, "neg_");
}

static void check_product(kept *k, size_t which)
{
    number(k, 0);
    if (!renew(k) || !multiply(k, which, 0, false, "a matrix"))
        return;
    k->ran++;
    if (!multiply(k, which, 0, true, "the transpose of a matrix") ||
        !multiply(k, which, 1, false, "another part of the same tensor") ||
        !multiply(k, which, 0, false, "the first part again"))
        return;
    number(k, 2);
    if (!renew(k) ||
        !multiply(k, which, 0, false,
                  "a matrix in the memory of another, which was released") ||
        !negate(k) ||
        !multiply(k, which, 0, false,
                  "a matrix that changed through another view"))
        return;
    number(k, 1);
    if (rewrite(k))
        multiply(k, which, 0, false, "a matrix that was written again");
}

static void kept_weights(suite *self, outcome *out, const test *one)
{
    static const int64_t square[2] = {SIDE, SIDE};
    static kept k;

    (void)one;
    memset(&k, 0, sizeof k);
    k.self = self;
    k.out = out;
    number(&k, 0);
    if (!suite_device(self, out) ||
        !expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                   "turning the fallback off") ||
        !expect_ok(out,
                   core_tensor_from_data(k.a, CORE_F32, square, 2, self->device,
                                         &k.left),
                   "making an operand"))
        return;
    for (size_t i = 0;
         i < sizeof products / sizeof *products && out->verdict == VERDICT_PASS;
         i++)
        check_product(&k, i);
    if (k.ran == 0 && out->verdict == VERDICT_PASS)
        not_supported(out, "mm, addmm, bmm and convolution of f32 are not "
                           "claimed");
    core_tensor_release(k.right);
    core_tensor_release(k.left);
}

bool suite_add_kept_weights(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/kept-weights-are-recognized", kept_weights, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
