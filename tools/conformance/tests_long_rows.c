/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: what happens in a long row, or in one of very many.  A NaN, the
 * largest and the smallest element are found anywhere in a row or column; exponentials of large numbers do not overflow; each row of
 * hundreds of thousands is normalized. */

#include "number_calls.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* A tensor of `rows` by `size` values. */
static core_tensor *make(number_calls *c, int64_t rows, int64_t size,
                         const double *values)
{
    const int64_t sizes[] = {rows, size};

    return number_calls_make(c, sizes, 2, values);
}

/* ----------------------------------------------------------------- marks -- */

enum { WIDE = 20011, PLACES = 7 };

/* Where each row has its mark: at both ends, and on both sides of what a group or
 * a tile reads. */
static const int64_t places[PLACES] = {0,    1,        1023,    4096,
                                       8191, WIDE - 2, WIDE - 1};

typedef enum arguments {
    ARGUMENTS_LIST,
    ARGUMENTS_INT,
    ARGUMENTS_NONE
} arguments;

/* What one element of each row is, and the others are not. */
typedef enum mark { MARK_NAN, MARK_LARGEST, MARK_SMALLEST } mark;

enum {
    NANS = 1 << MARK_NAN,
    LARGEST = NANS | 1 << MARK_LARGEST,
    SMALLEST = NANS | 1 << MARK_SMALLEST,
};

static const struct {
    const char *name;
    arguments form;
    uint32_t finds; /* these marks */
    uint32_t which; /* of the results */
    bool index;     /* that is the place */
} finders[] = {
    {"amax", ARGUMENTS_LIST, LARGEST, 0, false},
    {"amin", ARGUMENTS_LIST, SMALLEST, 0, false},
    {"max.dim", ARGUMENTS_INT, LARGEST, 0, false},
    {"max.dim", ARGUMENTS_INT, LARGEST, 1, true},
    {"min.dim", ARGUMENTS_INT, SMALLEST, 0, false},
    {"min.dim", ARGUMENTS_INT, SMALLEST, 1, true},
    {"argmax", ARGUMENTS_INT, LARGEST, 0, true},
    {"argmin", ARGUMENTS_INT, SMALLEST, 0, true},
    {"logsumexp", ARGUMENTS_LIST, NANS, 0, false},
    {"sum.dim_IntList", ARGUMENTS_LIST, NANS, 0, false},
    {"mean.dim", ARGUMENTS_LIST, NANS, 0, false},
    {"prod.dim_int", ARGUMENTS_INT, NANS, 0, false},
    {"max", ARGUMENTS_NONE, LARGEST, 0, false},
    {"min", ARGUMENTS_NONE, SMALLEST, 0, false},
};

static const int64_t last_dim[] = {1}, first_dim[] = {0};

/* Numbers of every dtype; as a signed byte the largest is the smallest. */
static double mark_value(mark of)
{
    return of == MARK_NAN ? (double)NAN : of == MARK_LARGEST ? 200 : 3;
}

/* How the marked numbers are laid out. */
typedef enum shape { SHAPE_ROWS, SHAPE_COLUMNS, SHAPE_WHOLE, SHAPES } shape;

/* A mark in each row, which may be a column, or in the last row alone. */
static core_tensor *make_marked(number_calls *b, mark of, shape in)
{
    double *values = malloc(PLACES * WIDE * sizeof *values);
    core_tensor *made = NULL;

    if (!values) {
        harness_error(b->out, "no memory");
        return NULL;
    }
    for (int64_t r = 0; r < PLACES; r++)
        for (int64_t i = 0; i < WIDE; i++) {
            bool here =
                i == places[r] && (in != SHAPE_WHOLE || r == PLACES - 1);
            int64_t at = in == SHAPE_COLUMNS ? i * PLACES + r : r * WIDE + i;

            values[at] =
                here ? mark_value(of) : 50 + (double)((i * 7 + r) % 13);
        }
    made = in == SHAPE_COLUMNS ? make(b, WIDE, PLACES, values)
                               : make(b, PLACES, WIDE, values);
    free(values);
    return made;
}

static bool holds_mark(const number_calls *b, size_t which, mark of, shape in,
                       const double *got, int64_t count)
{
    static const char *const names[] = {"NaN", "largest", "smallest"};
    static const char *const shapes[] = {"a row of ", "a column of ", ""};
    bool good = true;

    for (int64_t r = 0; good && r < count; r++) {
        int64_t place = in == SHAPE_WHOLE ? PLACES * WIDE - 1 : places[r];
        bool found = finders[which].index ? got[r] == (double)place
                     : of == MARK_NAN     ? isnan(got[r])
                                          : got[r] == mark_value(of);

        good = expect(b->out, found,
                      "%s of %s, %s%d elements: the %s at element %lld is "
                      "lost, the result is %g",
                      finders[which].name, core_dtype_name(b->dtype),
                      shapes[in], in == SHAPE_WHOLE ? PLACES * WIDE : WIDE,
                      names[of], (long long)place, got[r]);
    }
    return good;
}

static bool find_mark(number_calls *b, size_t which, mark of, shape in,
                      core_tensor *on)
{
    arguments form = finders[which].form;
    core_value args[2] = {suite_tensor_value(on), core_int(in == SHAPE_ROWS)};
    int64_t count = 0;
    double *got;
    bool good;

    if (form == ARGUMENTS_LIST)
        args[1] =
            (core_value){CORE_VALUE_INT_LIST,
                         1,
                         {.ints = in == SHAPE_ROWS ? last_dim : first_dim}};
    got = number_calls_read(b, finders[which].name, args,
                            in == SHAPE_WHOLE ? 1 : 2, finders[which].which,
                            &count);
    good = !got || holds_mark(b, which, of, in, got, count);
    free(got);
    return good && b->out->verdict == VERDICT_PASS;
}

static bool find_marks(number_calls *b, mark of)
{
    bool good = true;

    for (int in = 0; good && in < SHAPES; in++) {
        core_tensor *on = make_marked(b, of, (shape)in);

        good = on != NULL;
        for (size_t i = 0; good && i < sizeof finders / sizeof *finders; i++)
            if (finders[i].finds >> of & 1 &&
                (finders[i].form == ARGUMENTS_NONE) == (in == SHAPE_WHOLE))
                good = find_mark(b, i, of, (shape)in, on);
        core_tensor_release(on);
    }
    return good;
}

static void nan_is_found(suite *self, outcome *out, const test *one)
{
    static const core_dtype dtypes[] = {CORE_F32, CORE_F64, CORE_F16,
                                        CORE_BF16};
    number_calls b;
    bool good = number_calls_begin(&b, self, out);

    (void)one;
    for (size_t d = 0; good && d < sizeof dtypes / sizeof *dtypes; d++) {
        b.dtype = dtypes[d];
        good = find_marks(&b, MARK_NAN);
    }
    if (good)
        number_calls_end(&b);
}

static void extremes_are_found(suite *self, outcome *out, const test *one)
{
    static const core_dtype dtypes[] = {CORE_F32, CORE_F64, CORE_F16, CORE_BF16,
                                        CORE_I64, CORE_I32, CORE_I16, CORE_U8};
    number_calls b;
    bool good = number_calls_begin(&b, self, out);

    (void)one;
    for (size_t d = 0; good && d < sizeof dtypes / sizeof *dtypes; d++) {
        b.dtype = dtypes[d];
        good = find_marks(&b, MARK_LARGEST) && find_marks(&b, MARK_SMALLEST);
    }
    if (good)
        number_calls_end(&b);
}

/* -------------------------------------------------------------- the last -- */

enum { MILLION = 1200007 };

/* What the last element of very many decides. */
typedef enum content {
    CONTENT_PEAK, /* the largest */
    CONTENT_DIP,  /* the smallest */
    CONTENT_ONE,  /* the others are 0 */
    CONTENT_ZERO, /* the others are 1 */
    CONTENTS
} content;

static const struct {
    const char *name;
    arguments form;
    content of;
    double wanted;
} deciders[] = {
    {"amax", ARGUMENTS_LIST, CONTENT_PEAK, 5000},
    {"amin", ARGUMENTS_LIST, CONTENT_DIP, -5000},
    {"max", ARGUMENTS_NONE, CONTENT_PEAK, 5000},
    {"min", ARGUMENTS_NONE, CONTENT_DIP, -5000},
    {"max.dim", ARGUMENTS_INT, CONTENT_PEAK, 5000},
    {"min.dim", ARGUMENTS_INT, CONTENT_DIP, -5000},
    {"argmax", ARGUMENTS_INT, CONTENT_PEAK, MILLION - 1},
    {"argmin", ARGUMENTS_INT, CONTENT_DIP, MILLION - 1},
    {"any", ARGUMENTS_NONE, CONTENT_ONE, 1},
    {"all", ARGUMENTS_NONE, CONTENT_ZERO, 0},
    {"count_nonzero", ARGUMENTS_NONE, CONTENT_ONE, 1},
    {"sum", ARGUMENTS_NONE, CONTENT_ONE, 1},
    {"prod", ARGUMENTS_NONE, CONTENT_ZERO, 0},
};

static double content_at(content of, int64_t i)
{
    bool last = i == MILLION - 1;

    switch (of) {
    case CONTENT_PEAK:
        return last ? 5000 : (double)(i % 1000);
    case CONTENT_DIP:
        return last ? -5000 : (double)(i % 1000);
    case CONTENT_ONE:
        return last;
    default:
        return !last;
    }
}

static bool decide(number_calls *b, size_t which, core_tensor *on)
{
    arguments form = deciders[which].form;
    core_value args[2] = {suite_tensor_value(on), core_int(1)};
    int64_t count = 0;
    double *got;

    if (form == ARGUMENTS_LIST)
        args[1] = (core_value){CORE_VALUE_INT_LIST, 1, {.ints = last_dim}};
    got = number_calls_read(b, deciders[which].name, args,
                            form == ARGUMENTS_NONE ? 1 : 2, 0, &count);
    if (got)
        expect(b->out, got[0] == deciders[which].wanted,
               "%s of f32: the last of %d elements is %g, the others are not: "
               "the result is %.9g, expected %.9g",
               deciders[which].name, (int)MILLION,
               content_at(deciders[which].of, MILLION - 1), got[0],
               deciders[which].wanted);
    free(got);
    return b->out->verdict == VERDICT_PASS;
}

static void last_decides(suite *self, outcome *out, const test *one)
{
    double *values = malloc(MILLION * sizeof *values);
    number_calls b;
    bool good = number_calls_begin(&b, self, out);

    (void)one;
    b.dtype = CORE_F32;
    if (!values) {
        harness_error(out, "no memory");
        good = false;
    }
    if (good && self->quick) {
        not_supported(out, "--quick leaves it out");
        good = false;
    }
    for (int of = 0; good && of < CONTENTS; of++) {
        core_tensor *on;

        for (int64_t i = 0; i < MILLION; i++)
            values[i] = content_at((content)of, i);
        on = make(&b, 1, MILLION, values);
        good = on != NULL;
        for (size_t i = 0; good && i < sizeof deciders / sizeof *deciders; i++)
            if (deciders[i].of == (content)of)
                good = decide(&b, i, on);
        core_tensor_release(on);
    }
    free(values);
    if (good)
        number_calls_end(&b);
}

/* --------------------------------------------------------- large numbers -- */

typedef enum normalizer {
    SOFTMAX,
    LOG_SOFTMAX,
    LOGSUMEXP,
    NORMALIZERS
} normalizer;

static const char *const normalizers[NORMALIZERS] = {"_softmax", "_log_softmax",
                                                     "logsumexp"};

/* Rows of numbers whose exponentials overflow, or are all 0. */
typedef struct many_rows {
    int64_t rows, size;
    bool columns;
    double base; /* of the first row; that of the next has the other sign */
} many_rows;

static double base_of(const many_rows *of, int64_t row)
{
    return row % 2 ? -of->base : of->base;
}

static double value_at(const many_rows *of, int64_t row, int64_t i)
{
    return base_of(of, row) + (double)((i * 5 + row) % 9) / 2;
}

/* The logarithm of the sum of a row's exponentials, without the base. */
static double sum_of_row(const many_rows *of, int64_t row)
{
    double sum = 0;

    for (int64_t i = 0; i < of->size; i++)
        sum += exp(value_at(of, row, i) - base_of(of, row));
    return log(sum);
}

static int64_t element_of(const many_rows *of, int64_t row, int64_t i)
{
    return of->columns ? i * of->rows + row : row * of->size + i;
}

static bool check_normalized(number_calls *b, const many_rows *of,
                             normalizer which, const double *got)
{
    /* Sums may be made one by one: what overflows is far off. */
    double tolerance = b->dtype == CORE_F32 ? 1e-3 : 1e-9;
    bool good = true;

    for (int64_t r = 0; good && r < of->rows; r++) {
        double sum = sum_of_row(of, r);

        for (int64_t i = 0; good && i < (which == LOGSUMEXP ? 1 : of->size);
             i++) {
            double wanted = which == LOGSUMEXP
                                ? base_of(of, r) + sum
                                : value_at(of, r, i) - base_of(of, r) - sum;
            int64_t at = which == LOGSUMEXP ? r : element_of(of, r, i);
            double bound;

            if (which == SOFTMAX)
                wanted = exp(wanted);
            bound = tolerance *
                    (which == SOFTMAX ? wanted : fabs(wanted) + fabs(of->base));
            good = expect(b->out, fabs(got[at] - wanted) <= bound,
                          "%s of %s, %lld %s of %lld numbers from %g on: "
                          "element %lld of %s %lld is %.9g, expected %.9g",
                          normalizers[which], core_dtype_name(b->dtype),
                          (long long)of->rows, of->columns ? "columns" : "rows",
                          (long long)of->size, value_at(of, r, 0), (long long)i,
                          of->columns ? "column" : "row", (long long)r, got[at],
                          wanted);
        }
    }
    return good;
}

static bool normalize(number_calls *b, const many_rows *of, normalizer which)
{
    int64_t count = of->rows * of->size, read = 0;
    double *values = malloc((size_t)count * sizeof *values), *got = NULL;
    core_tensor *made = NULL;
    core_value args[3] = {{0}, core_int(!of->columns), core_bool(false)};

    if (!values) {
        harness_error(b->out, "no memory");
        return false;
    }
    for (int64_t r = 0; r < of->rows; r++)
        for (int64_t i = 0; i < of->size; i++)
            values[element_of(of, r, i)] = value_at(of, r, i);
    made = of->columns ? make(b, of->size, of->rows, values)
                       : make(b, of->rows, of->size, values);
    args[0] = suite_tensor_value(made);
    if (which == LOGSUMEXP)
        args[1] = (core_value){CORE_VALUE_INT_LIST,
                               1,
                               {.ints = of->columns ? first_dim : last_dim}};
    if (made)
        got = number_calls_read(b, normalizers[which], args,
                                which == LOGSUMEXP ? 2 : 3, 0, &read);
    if (got)
        check_normalized(b, of, which, got);
    free(got);
    core_tensor_release(made);
    free(values);
    return b->out->verdict == VERDICT_PASS;
}

/* Halves up to 2004, which f16 and bf16 do not represent; those are computed in
 * f32. */
static void large_numbers(suite *self, outcome *out, const test *one)
{
    static const int64_t sizes[] = {1031, 2053, 4133, 9001, 20011};
    static const core_dtype dtypes[] = {CORE_F32, CORE_F64};
    number_calls b;
    bool good = number_calls_begin(&b, self, out);

    (void)one;
    for (size_t d = 0; good && d < 2; d++)
        for (size_t s = 0; good && s < sizeof sizes / sizeof *sizes; s++)
            for (int k = 0; good && k < 2 * NORMALIZERS; k++) {
                const many_rows of = {4, sizes[s], k >= NORMALIZERS,
                                      d == 0 ? 200 : 2000};

                b.dtype = dtypes[d];
                good = normalize(&b, &of, (normalizer)(k % NORMALIZERS));
            }
    if (good)
        number_calls_end(&b);
}

static void many_rows_are_normalized(suite *self, outcome *out, const test *one)
{
    static const many_rows of = {300007, 3, false, 4};
    number_calls b;
    bool good = number_calls_begin(&b, self, out);

    (void)one;
    if (good && self->quick) {
        not_supported(out, "--quick leaves it out");
        return;
    }
    b.dtype = CORE_F32;
    for (int k = 0; good && k < NORMALIZERS; k++)
        good = normalize(&b, &of, (normalizer)k);
    if (good)
        number_calls_end(&b);
}

bool suite_add_long_rows(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/nan-in-long-rows", nan_is_found, true},
        {"ops/rules/extremes-in-long-rows", extremes_are_found, true},
        {"ops/rules/last-of-a-million", last_decides, true},
        {"ops/rules/large-numbers-in-long-rows", large_numbers, true},
        {"ops/rules/more-than-300000-rows", many_rows_are_normalized, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
