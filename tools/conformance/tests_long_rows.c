/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: what happens in a long row, or in one of very many.  A NaN anywhere
 * in a row is found; exponentials of large numbers do not overflow; each row of
 * hundreds of thousands is normalized. */

#include "claims.h"
#include "element_value.h"
#include "skipped_calls.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct bench {
    suite *self;
    outcome *out;
    core_dtype dtype;
    uint32_t ran;
    skipped_calls left;
} bench;

static bool begin(bench *b, suite *self, outcome *out)
{
    *b = (bench){.self = self, .out = out};
    return suite_device(self, out) &&
           expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                     "turning the fallback off");
}

/* A tensor of `rows` by `size` values. */
static core_tensor *make(bench *b, int64_t rows, int64_t size,
                         const double *values)
{
    const int64_t sizes[] = {rows, size};
    size_t count = (size_t)(rows * size), each = core_dtype_size(b->dtype);
    unsigned char *bytes = malloc(count * each);
    core_tensor *made = NULL;

    if (!bytes) {
        harness_error(b->out, "no memory");
        return NULL;
    }
    for (size_t i = 0; i < count; i++)
        element_store(b->dtype, values[i], bytes + i * each);
    expect_ok(b->out,
              core_tensor_from_data(bytes, b->dtype, sizes, 2, b->self->device,
                                    &made),
              "making an operand");
    free(bytes);
    return made;
}

/* Calls an operator and reads its first result; NULL: no kernel, or the outcome
 * says what failed. */
static double *call(bench *b, const char *name, const core_value *args,
                    uint32_t nargs, int64_t *out_count)
{
    core_value results[4] = {{0}};
    core_operator *op;
    core_status status = core_op_find(name, &op);
    double *values = NULL;

    if (status == CORE_OK)
        status = suite_op_call(op, args, nargs, results, 4);
    if (call_is_left(b->self, status, name)) {
        core_error_clear();
        skipped_calls_add(&b->left, name, b->dtype);
    } else if (expect_ok(b->out, status, name)) {
        core_tensor *first = results[0].u.tensor;
        core_dtype dtype = core_tensor_dtype(first);
        size_t each = core_dtype_size(dtype);

        b->ran++;
        *out_count = core_tensor_numel(first);
        values = calloc((size_t)*out_count + 1, sizeof *values);
        if (!values)
            harness_error(b->out, "no memory");
        else if (!expect_ok(
                     b->out,
                     suite_read(first, values, (size_t)*out_count * each),
                     "reading a result")) {
            free(values);
            values = NULL;
        }
        /* From the last on: values are at least as wide as elements. */
        for (int64_t i = *out_count; values && i-- > 0;)
            values[i] = element_load(dtype, (const unsigned char *)values +
                                                (size_t)i * each);
    }
    for (int i = 0; i < 4; i++)
        core_value_release(&results[i]);
    return values;
}

/* ------------------------------------------------------------------ NaN -- */

enum { WIDE = 20011, PLACES = 7 };

/* Where each row has its NaN: at both ends, and on both sides of what a group or
 * a tile reads. */
static const int64_t places[PLACES] = {0,    1,        1023,    4096,
                                       8191, WIDE - 2, WIDE - 1};

typedef enum arguments {
    ARGUMENTS_LIST,
    ARGUMENTS_INT,
    ARGUMENTS_NONE
} arguments;

static const struct {
    const char *name;
    arguments form;
    bool index; /* the result is the place */
} finders[] = {
    {"amax", ARGUMENTS_LIST, false},
    {"amin", ARGUMENTS_LIST, false},
    {"max.dim", ARGUMENTS_INT, false},
    {"min.dim", ARGUMENTS_INT, false},
    {"argmax", ARGUMENTS_INT, true},
    {"argmin", ARGUMENTS_INT, true},
    {"logsumexp", ARGUMENTS_LIST, false},
    {"sum.dim_IntList", ARGUMENTS_LIST, false},
    {"mean.dim", ARGUMENTS_LIST, false},
    {"prod.dim_int", ARGUMENTS_INT, false},
    {"max", ARGUMENTS_NONE, false},
    {"min", ARGUMENTS_NONE, false},
};

static const int64_t last_dim[] = {1}, first_dim[] = {0};

/* A NaN in each row, which is a column if `columns`. */
static core_tensor *make_nan(bench *b, bool columns, bool whole)
{
    double *values = malloc(PLACES * WIDE * sizeof *values);
    core_tensor *made = NULL;

    if (!values) {
        harness_error(b->out, "no memory");
        return NULL;
    }
    for (int64_t r = 0; r < PLACES; r++)
        for (int64_t i = 0; i < WIDE; i++) {
            bool here = i == places[r] && (!whole || r == PLACES - 1);
            int64_t at = columns ? i * PLACES + r : r * WIDE + i;

            values[at] = here ? NAN : (double)((i * 7 + r) % 13 - 6) / 4;
        }
    made =
        columns ? make(b, WIDE, PLACES, values) : make(b, PLACES, WIDE, values);
    free(values);
    return made;
}

static bool find_nan(bench *b, size_t which, bool columns)
{
    arguments form = finders[which].form;
    bool whole = form == ARGUMENTS_NONE;
    core_tensor *of = make_nan(b, columns, whole);
    core_value args[2] = {suite_tensor_value(of), {0}};
    int64_t count = 0;
    double *got;
    bool good = of != NULL;

    if (form == ARGUMENTS_LIST)
        args[1] = (core_value){
            CORE_VALUE_INT_LIST, 1, {.ints = columns ? first_dim : last_dim}};
    else if (form == ARGUMENTS_INT)
        args[1] = core_int(!columns);
    got =
        good ? call(b, finders[which].name, args, whole ? 1 : 2, &count) : NULL;
    for (int64_t r = 0; got && good && r < count; r++) {
        int64_t place = whole ? PLACES * WIDE - 1 : places[r];

        good = expect(b->out,
                      finders[which].index ? got[r] == (double)place
                                           : isnan(got[r]),
                      "%s of %s, %s%d elements: the NaN at element %lld is "
                      "lost, the result is %g",
                      finders[which].name, core_dtype_name(b->dtype),
                      whole     ? ""
                      : columns ? "a column of "
                                : "a row of ",
                      whole ? PLACES * WIDE : WIDE, (long long)place, got[r]);
    }
    free(got);
    core_tensor_release(of);
    return good && b->out->verdict == VERDICT_PASS;
}

static void nan_is_found(suite *self, outcome *out, const test *one)
{
    static const core_dtype dtypes[] = {CORE_F32, CORE_F64, CORE_F16,
                                        CORE_BF16};
    bench b;
    bool good = begin(&b, self, out);

    (void)one;
    for (size_t d = 0; good && d < sizeof dtypes / sizeof *dtypes; d++)
        for (size_t i = 0; good && i < sizeof finders / sizeof *finders; i++) {
            b.dtype = dtypes[d];
            good = find_nan(&b, i, false) &&
                   (finders[i].form == ARGUMENTS_NONE || find_nan(&b, i, true));
        }
    if (good)
        skipped_calls_report(&b.left, b.ran, out);
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

static bool decide(bench *b, size_t which, core_tensor *on)
{
    arguments form = deciders[which].form;
    core_value args[2] = {suite_tensor_value(on), core_int(1)};
    int64_t count = 0;
    double *got;

    if (form == ARGUMENTS_LIST)
        args[1] = (core_value){CORE_VALUE_INT_LIST, 1, {.ints = last_dim}};
    got = call(b, deciders[which].name, args, form == ARGUMENTS_NONE ? 1 : 2,
               &count);
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
    bench b;
    bool good = begin(&b, self, out);

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
        skipped_calls_report(&b.left, b.ran, out);
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

static bool check_normalized(bench *b, const many_rows *of, normalizer which,
                             const double *got)
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

static bool normalize(bench *b, const many_rows *of, normalizer which)
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
        got = call(b, normalizers[which], args, which == LOGSUMEXP ? 2 : 3,
                   &read);
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
    bench b;
    bool good = begin(&b, self, out);

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
        skipped_calls_report(&b.left, b.ran, out);
}

static void many_rows_are_normalized(suite *self, outcome *out, const test *one)
{
    static const many_rows of = {300007, 3, false, 4};
    bench b;
    bool good = begin(&b, self, out);

    (void)one;
    if (good && self->quick) {
        not_supported(out, "--quick leaves it out");
        return;
    }
    b.dtype = CORE_F32;
    for (int k = 0; good && k < NORMALIZERS; k++)
        good = normalize(&b, &of, (normalizer)k);
    if (good)
        skipped_calls_report(&b.left, b.ran, out);
}

bool suite_add_long_rows(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/nan-in-long-rows", nan_is_found, true},
        {"ops/rules/last-of-a-million", last_decides, true},
        {"ops/rules/large-numbers-in-long-rows", large_numbers, true},
        {"ops/rules/more-than-300000-rows", many_rows_are_normalized, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
