/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: more dimensions than a fixed array of four holds, and more tensors
 * in a list than the arguments of one launch hold. */

#include "skipped_calls.h"
#include "sample_check.h"

#include <stdlib.h>
#include <string.h>

/* No two dimensions that an operator treats alike can be merged. */
static const sample samples[] = {
    {"flip", "t:2,2,3,2,2,3 l:0,2,4", .5, 2},
    {"roll", "t:2,2,3,2,2,3 l:1,1 l:0,3", .5, 2},
    {"cat", "[ t:2,2,2,2,2,3 t:2,2,2,1,2,3 ] i:3", .5, 2},
    {"gather", "t:2,2,2,3,2,2 i:3 x:2,2,2,2,2,2/3", .5, 2},
    {"scatter_add", "t:2,2,2,3,2,2 i:3 x:2,2,2,2,2,2/3 t:2,2,2,2,2,2", .5, 2},
    {"index_select", "t:2,2,3,2,2,3 i:2 x:2/3", .5, 2},
    {"index_add", "t:2,2,3,2,2,3 i:2 x:2/3 t:2,2,2,2,2,3 f:2", .5, 2},
    {"constant_pad_nd", "t:2,2,2,2,2,2 l:1,0,0,1,1,0 f:.5", .5, 2},
    {"tril", "t:2,2,2,2,3,3 i:0", .5, 2},
    {"sort", "u:2,2,2,3,2,2 i:3", -1, 1},
    {"topk", "u:2,2,2,3,2,2 i:2 i:3", -1, 1},
    {"cumsum", "t:2,2,3,2,2,3 i:2", .5, 2},
    {"_softmax", "t:2,2,3,2,2,3 i:2 b:0", -2, 2},
    {"_log_softmax", "t:2,2,3,2,2,3 i:2 b:0", -2, 2},
    {"sum.dim_IntList", "t:2,3,2,3,2,3 l:0,2,4", .5, 2},
    {"sum.dim_IntList", "t:2,3,2,3,2,3 l:1,3,5", .5, 2},
    {"mean.dim", "t:2,3,2,3,2,3 l:0,2,4", .5, 2},
    {"amax", "t:2,3,2,3,2,3 l:0,2,4", .5, 2},
    {"var.correction", "t:2,3,2,3,2,3 l:0,2,4 i:1 b:0", -1, 1},
    {"logsumexp", "t:2,3,2,3,2,3 l:0,2,4", -1, 1},
    {"argmax", "u:2,2,2,3,2,2 i:3", -1, 1},
    {"max.dim", "u:2,2,2,3,2,2 i:3", -1, 1},
    {"prod.dim_int", "t:2,2,2,3,2,2 i:3", .5, 2},
    {"add.Tensor", "t:2,1,2,1,2,1 t:1,3,1,3,1,3 i:1", .5, 2},
    {"where.self", "m:2,1,2,1,2,1 t:1,3,1,3,1,3 t:2,3,2,3,2,3", .5, 2},
    {"native_layer_norm", "t:2,2,2,2,2,3 l:2,3 t:2,3 t:2,3 f:1e-5", .5, 2},
    {"embedding", "t:4,3 x:2,1,2,1,2/4", .5, 2},
};

static void more_than_four(suite *self, outcome *out, const test *one)
{
    skipped_calls left = {.length = 0};
    size_t ran = 0;

    (void)one;
    if (!suite_device(self, out) ||
        !expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                   "turning the fallback off"))
        return;
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        bool claims =
            sample_check(self, &samples[i], CORE_F32, ARRANGED_ROWS, "", out) &&
            out->verdict == VERDICT_PASS &&
            sample_check(self, &samples[i], CORE_F32,
                         ARRANGED(LAYOUT_STRIDED, 0),
                         ", operand 0 transposed with gaps", out);

        ran += claims;
        if (out->verdict != VERDICT_PASS)
            return;
        if (!claims)
            skipped_calls_add(&left, samples[i].op, CORE_DTYPE_NONE);
    }
    skipped_calls_report(&left, ran, out);
}

/* ------------------------------------------------------------ many tensors -- */

/* The core joins them in groups of two dozen. */
enum { TENSORS = 150, SIZE = 3, ALL = TENSORS * SIZE };

static bool are_in_order(core_tensor *got, const char *name, outcome *out)
{
    float data[ALL];

    if (!expect(out, core_tensor_numel(got) == ALL,
                "%s of %d tensors has %lld elements, expected %d", name,
                TENSORS, (long long)core_tensor_numel(got), ALL) ||
        !expect_ok(out, core_tensor_read(got, data, sizeof data),
                   "reading a result"))
        return false;
    for (int i = 0; i < ALL; i++)
        if (!expect(out, data[i] == (float)i,
                    "%s of %d tensors of %d elements each: element %d, of "
                    "tensor %d, is %g, expected %d",
                    name, TENSORS, SIZE, i, i / SIZE, (double)data[i], i))
            return false;
    return true;
}

/* Joins them; returns false if no kernel does. */
static bool join(core_tensor *const *tensors, const char *name, outcome *out)
{
    core_value args[2] = {
        {CORE_VALUE_TENSOR_LIST, TENSORS, {.tensors = tensors}}, core_int(0)};
    core_tensor *got;
    core_status status = suite_call(name, args, 2, &got);

    if (status == CORE_ERROR_NO_KERNEL) {
        core_error_clear();
        return false;
    }
    if (expect_ok(out, status, name))
        are_in_order(got, name, out);
    core_tensor_release(got);
    return true;
}

static void many_tensors(suite *self, outcome *out, const test *one)
{
    static const int64_t size = SIZE;
    core_tensor *tensors[TENSORS] = {NULL};
    bool good, any = false;

    (void)one;
    good = suite_device(self, out) &&
           expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                     "turning the fallback off");
    for (int i = 0; good && i < TENSORS; i++) {
        float data[SIZE] = {(float)(i * SIZE), (float)(i * SIZE + 1),
                            (float)(i * SIZE + 2)};

        good = expect_ok(out,
                         core_tensor_from_data(data, CORE_F32, &size, 1,
                                               self->device, &tensors[i]),
                         "making an operand");
    }
    if (good) {
        any = join(tensors, "cat", out);
        any = join(tensors, "stack", out) || any;
        if (!any)
            not_supported(out, "cat and stack are not claimed");
    }
    for (int i = 0; i < TENSORS; i++)
        core_tensor_release(tensors[i]);
}

bool suite_add_dimensions(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/more-than-four-dimensions", more_than_four, true},
        {"ops/rules/many-tensors", many_tensors, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
