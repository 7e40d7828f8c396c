/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: maximum pooling of windows that have only minus infinities, or a
 * NaN: the result is an element of the window, and the index is its own. */

#include "number_calls.h"

#include <math.h>
#include <stdlib.h>

enum { SIDE = 4, NUMEL = SIDE * SIDE, WINDOWS = 4 };

/* Of 2 x 2 elements; with padding, of 3 x 3 that begin one before. */
static const int64_t first_of[WINDOWS] = {0, 2, 8, 10};

typedef enum content { INFINITIES, NANS } content;

static const char *const names[] = {"minus infinities alone", "a NaN"};

static void fill(double *values, content of)
{
    for (int64_t i = 0; i < NUMEL; i++)
        values[i] = of == INFINITIES ? -(double)INFINITY : (double)(i % 5);
    /* One in each window of 2 x 2. */
    for (int64_t w = 0; of == NANS && w < WINDOWS; w++)
        values[first_of[w] + 5 * (w % 2)] = (double)NAN;
}

static core_value size_of(const int64_t *list)
{
    return (core_value){CORE_VALUE_INT_LIST, 2, {.ints = list}};
}

/* Result 0: the values, 1: the indices. */
static bool holds(const number_calls *c, content of, const double *values,
                  const double *got, uint32_t which)
{
    bool good = true;

    for (int64_t w = 0; good && w < WINDOWS; w++) {
        int64_t at = first_of[w] + (of == NANS ? 5 * (w % 2) : 0);
        double want = which ? (double)at : values[at];

        good = expect(c->out, got[w] == want || (isnan(got[w]) && isnan(want)),
                      "max_pool2d_with_indices of %s, windows of 2 x 2 with "
                      "%s: %s %lld is %g, expected %g",
                      core_dtype_name(c->dtype), names[of],
                      which ? "index" : "result", (long long)w, got[w], want);
    }
    return good;
}

/* Padding is no element: no index is outside of the tensor. */
static bool holds_padded(const number_calls *c, const double *got,
                         int64_t count, uint32_t which)
{
    bool good = true;

    for (int64_t w = 0; good && w < count; w++)
        good = expect(
            c->out,
            which ? got[w] >= 0 && got[w] < NUMEL : got[w] == -(double)INFINITY,
            "max_pool2d_with_indices of %s, of minus infinities with "
            "padding 1: %s %lld is %g, %s",
            core_dtype_name(c->dtype), which ? "index" : "result", (long long)w,
            got[w], which ? "which is outside of the tensor" : "expected -inf");
    return good;
}

static bool check(number_calls *c, content of, bool padded)
{
    static const int64_t sizes[] = {1, 1, SIDE, SIDE};
    static const int64_t two[] = {2, 2}, three[] = {3, 3}, ones[] = {1, 1};
    double values[NUMEL];
    core_value args[4] = {
        {0}, size_of(padded ? three : two), size_of(two), size_of(ones)};
    core_tensor *on;
    bool good;

    fill(values, of);
    on = number_calls_make(c, sizes, 4, values);
    good = on != NULL;
    args[0] = suite_tensor_value(on);
    for (uint32_t which = 0; good && which < 2; which++) {
        int64_t count = 0;
        double *got = number_calls_read(c, "max_pool2d_with_indices", args,
                                        padded ? 4 : 3, which, &count);

        if (got)
            good = padded ? holds_padded(c, got, count, which)
                          : holds(c, of, values, got, which);
        free(got);
        good = good && c->out->verdict == VERDICT_PASS;
    }
    core_tensor_release(on);
    return good;
}

static void windows_of_infinities(suite *self, outcome *out, const test *one)
{
    static const core_dtype floats[] = {CORE_F32, CORE_F64, CORE_F16,
                                        CORE_BF16};
    number_calls c;
    bool good = number_calls_begin(&c, self, out);

    (void)one;
    for (size_t d = 0; good && d < sizeof floats / sizeof *floats; d++) {
        c.dtype = floats[d];
        good = check(&c, INFINITIES, false) && check(&c, INFINITIES, true) &&
               check(&c, NANS, false);
    }
    if (good)
        number_calls_end(&c);
}

bool suite_add_windows(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/windows-of-infinities", windows_of_infinities, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
