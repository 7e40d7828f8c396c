/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: of equal elements argmax and the like take the first (kernel.h,
 * core_loop), and NaN before all others; topk and sort name each element
 * once. */

#include "element_value.h"
#include "skipped_calls.h"
#include "suite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 3, MOST = 3001 };

typedef struct equals {
    suite *self;
    outcome *out;
    core_dtype dtype;
    int64_t size; /* of a row */
    bool nans;
    double numbers[ROWS * MOST];
    core_tensor *tensor;
    skipped_calls left;
    size_t ran;
} equals;

static const struct {
    const char *op;
    uint32_t results, nargs;
    bool least;
} operations[] = {{"argmax", 1, 3, false},
                  {"argmin", 1, 3, true},
                  {"max.dim", 2, 3, false},
                  {"min.dim", 2, 3, true}};

static bool make(equals *e)
{
    const int64_t sizes[2] = {ROWS, e->size};
    size_t width = core_dtype_size(e->dtype);
    unsigned char *bytes = malloc((size_t)(ROWS * e->size) * width);
    bool good;

    if (!bytes) {
        harness_error(e->out, "no memory");
        return false;
    }
    for (int64_t i = 0; i < ROWS * e->size; i++) {
        e->numbers[i] = e->size == 2 ? 1 : (double)(i * 7 % 13 % 4);
        if (e->nans && i % e->size % 5 == 3)
            e->numbers[i] = NAN;
        element_store(e->dtype, e->numbers[i], bytes + (size_t)i * width);
    }
    good = expect_ok(e->out,
                     core_tensor_from_data(bytes, e->dtype, sizes, 2,
                                           e->self->device, &e->tensor),
                     "making an operand");
    free(bytes);
    return good;
}

static bool is_better(double x, double than, bool least)
{
    return isnan(x) ? !isnan(than) : least ? x < than : x > than;
}

/* Of `count` elements that are `step` apart. */
static int64_t first_of(const double *numbers, int64_t count, int64_t step,
                        bool least)
{
    int64_t best = 0;

    for (int64_t i = 1; i < count; i++)
        if (is_better(numbers[i * step], numbers[best * step], least))
            best = i;
    return best;
}

/* dim: 0, 1, or -1 for all elements. */
static int64_t expected_of(const equals *e, int dim, int64_t i, bool least)
{
    if (dim == 0)
        return first_of(e->numbers + i, ROWS, e->size, least);
    return first_of(e->numbers + (dim < 0 ? 0 : i * e->size),
                    dim < 0 ? ROWS * e->size : e->size, 1, least);
}

static bool are_first(equals *e, size_t which, int dim, core_tensor *got)
{
    static int64_t is[MOST];
    int64_t count = core_tensor_numel(got);

    if (!expect_ok(e->out,
                   core_tensor_read(got, is, (size_t)count * sizeof *is),
                   "reading a result"))
        return false;
    for (int64_t i = 0; i < count; i++) {
        int64_t wanted = expected_of(e, dim, i, operations[which].least);
        char along[40] = "";

        if (dim >= 0)
            snprintf(along, sizeof along, " along dimension %d", dim);
        if (!expect(e->out, is[i] == wanted,
                    "%s of [%d, %lld] of %s%s%s: index %lld is %lld, expected "
                    "%lld, that of the first of equal elements",
                    operations[which].op, ROWS, (long long)e->size,
                    core_dtype_name(e->dtype), e->nans ? " with NaN" : "",
                    along, (long long)i, (long long)is[i], (long long)wanted))
            return false;
    }
    return true;
}

static bool reduce(equals *e, size_t which, int dim)
{
    core_value args[3] = {suite_tensor_value(e->tensor),
                          dim < 0 ? (core_value){0} : core_int(dim),
                          core_bool(false)};
    uint32_t results = operations[which].results;
    core_value got[2] = {{0}};
    core_operator *op;
    core_status status = core_op_find(operations[which].op, &op);
    bool good = true;

    if (status == CORE_OK)
        status = suite_op_call(op, args, 3, got, results);
    if (status == CORE_ERROR_NO_KERNEL) {
        skipped_calls_add(&e->left, operations[which].op, e->dtype);
        core_error_clear();
    } else if (expect_ok(e->out, status, operations[which].op)) {
        e->ran++;
        good = are_first(e, which, dim, got[results - 1].u.tensor);
    }
    core_value_release(&got[0]);
    core_value_release(&got[1]);
    return good && e->out->verdict == VERDICT_PASS;
}

/* topk of all elements and sort name each position of a row once, and each
 * with its number. */
static bool are_distinct(equals *e, const char *name, core_tensor *values,
                         core_tensor *indices)
{
    static int64_t is[ROWS * MOST];
    static unsigned char bytes[ROWS * MOST * 8], seen[MOST];
    size_t width = core_dtype_size(e->dtype);
    int64_t count = ROWS * e->size;

    if (!expect_ok(e->out,
                   core_tensor_read(values, bytes, (size_t)count * width),
                   "reading a result") ||
        !expect_ok(e->out,
                   core_tensor_read(indices, is, (size_t)count * sizeof *is),
                   "reading a result"))
        return false;
    for (int64_t i = 0; i < count; i++) {
        int64_t row = i / e->size * e->size, at = is[i];
        double value = element_load(e->dtype, bytes + (size_t)i * width);

        if (i == row)
            memset(seen, 0, sizeof seen);
        if (!expect(e->out, at >= 0 && at < e->size && !seen[at],
                    "%s of [%d, %lld] of %s: index %lld is %lld, %s", name,
                    ROWS, (long long)e->size, core_dtype_name(e->dtype),
                    (long long)i, (long long)at,
                    at >= 0 && at < e->size ? "which its row has twice"
                                            : "which is out of range") ||
            !expect(e->out,
                    value == e->numbers[row + at] ||
                        (isnan(value) && isnan(e->numbers[row + at])),
                    "%s of [%d, %lld] of %s: index %lld is %lld, but value "
                    "%lld is %g, and the element there %g",
                    name, ROWS, (long long)e->size, core_dtype_name(e->dtype),
                    (long long)i, (long long)at, (long long)i, value,
                    e->numbers[row + at]))
            return false;
        seen[at] = 1;
    }
    return true;
}

static bool order(equals *e, const char *name)
{
    bool top = strcmp(name, "topk") == 0;
    core_value args[5] = {
        suite_tensor_value(e->tensor), top ? core_int(e->size) : core_int(1),
        top ? core_int(1) : core_bool(true), core_bool(true), core_bool(true)};
    core_value got[2] = {{0}};
    core_operator *op;
    core_status status = core_op_find(name, &op);
    bool good = true;

    if (status == CORE_OK)
        status = suite_op_call(op, args, top ? 5 : 3, got, 2);
    if (status == CORE_ERROR_NO_KERNEL) {
        skipped_calls_add(&e->left, name, e->dtype);
        core_error_clear();
    } else if (expect_ok(e->out, status, name)) {
        e->ran++;
        good = are_distinct(e, name, got[0].u.tensor, got[1].u.tensor);
    }
    core_value_release(&got[0]);
    core_value_release(&got[1]);
    return good && e->out->verdict == VERDICT_PASS;
}

static void run_one(equals *e)
{
    size_t count = sizeof operations / sizeof *operations;
    bool good = make(e);

    for (size_t k = 0; k < count; k++)
        for (int dim = operations[k].results > 1 ? 0 : -1; good && dim < 2;
             dim++)
            good = reduce(e, k, dim);
    if (good && order(e, "sort"))
        order(e, "topk");
    core_tensor_release(e->tensor);
    e->tensor = NULL;
}

static void equal_elements(suite *self, outcome *out, const test *one)
{
    static const core_dtype dtypes[] = {CORE_F32, CORE_F64, CORE_F16,
                                        CORE_I64, CORE_I32, CORE_U8};
    static const int64_t sizes[] = {2, 9, 70, MOST};
    static equals e;

    (void)one;
    e = (equals){.self = self, .out = out};
    if (!suite_device(self, out) ||
        !expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                   "turning the fallback off"))
        return;
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (size_t s = 0; s < 2 * sizeof sizes / sizeof *sizes; s++) {
            e.dtype = dtypes[d];
            e.size = sizes[s / 2];
            e.nans = s % 2 > 0;
            if (e.nans && !core_dtype_is_floating(e.dtype))
                continue;
            run_one(&e);
            if (out->verdict != VERDICT_PASS)
                return;
        }
    skipped_calls_report(&e.left, e.ran, out);
}

bool suite_add_equal_elements(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/equal-elements", equal_elements, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
