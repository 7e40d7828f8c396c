/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: operators that order elements, on rows of two: every number with
 * every other, of integers that f64 does not represent or that are negative as
 * signed bytes, of NaN with either sign, zeros of both signs, infinities and
 * subnormal numbers.  NaN is larger than all numbers, zeros are equal. */

#include "claims.h"
#include "element_value.h"
#include "skipped_calls.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 16, PAIRS = MOST * MOST };

typedef struct element {
    double f;  /* of floats */
    int64_t i; /* of integers */
} element;

typedef struct bench {
    suite *self;
    outcome *out;
    core_dtype dtype;
    int64_t count; /* of numbers, all of which are paired */
    unsigned char bytes[2 * PAIRS * 8];
    core_tensor *rows;
    uint32_t ran;
    skipped_calls left;
} bench;

/* -------------------------------------------------------------- numbers -- */

static const int64_t integers[] = {
    0,
    1,
    -1,
    127,
    -128,
    128,
    255,
    -32768,
    2147483647,
    -2147483647 - 1,
    INT64_C(9007199254740992),
    INT64_C(9007199254740993),
    INT64_C(-9007199254740993),
    INT64_C(-9007199254740992),
    INT64_MAX,
    INT64_MIN,
};

/* Bits of a NaN whose sign is set. */
static void put_negative_nan(core_dtype dtype, unsigned char *to)
{
    size_t size = core_dtype_size(dtype);

    element_store(dtype, (double)NAN, to);
    to[size - 1] |= 0x80;
}

/* Number k, of MOST; false: the dtype has fewer. */
static bool put(const bench *b, int64_t k, unsigned char *to)
{
    core_dtype dtype = b->dtype;
    bool flushes = b->self->numerics.flushes_denormals & CORE_DTYPE_MASK(dtype);
    const double least =
        dtype_min_normal(dtype) * (flushes ? 1 : dtype_epsilon(dtype));
    const double most = dtype_largest(dtype);
    const double floats[] = {NAN,   0,         -0.0, 1,     -1,    INFINITY,
                             least, -INFINITY, most, -most, -least};

    if (!core_dtype_is_floating(dtype)) {
        /* The low bytes, which come first. */
        memcpy(to, &integers[k], core_dtype_size(dtype));
        return true;
    }
    if (k >= 1 + (int64_t)(sizeof floats / sizeof *floats))
        return false;
    if (k == 0)
        put_negative_nan(dtype, to);
    else
        element_store(dtype, floats[k - 1], to);
    return true;
}

static element load(core_dtype dtype, const unsigned char *from)
{
    element is = {0, 0};

    if (core_dtype_is_floating(dtype))
        is.f = element_load(dtype, from);
    else if (dtype == CORE_I64)
        memcpy(&is.i, from, sizeof is.i);
    else
        is.i = (int64_t)element_load(dtype, from);
    return is;
}

static bool is_less(element a, element b)
{
    return a.i < b.i || (isnan(b.f) ? !isnan(a.f) : a.f < b.f);
}

static bool are_equal(element a, element b)
{
    return !is_less(a, b) && !is_less(b, a);
}

static bool make(bench *b)
{
    size_t size = core_dtype_size(b->dtype);
    unsigned char numbers[MOST][8];
    int64_t sizes[2];

    for (b->count = 0; b->count < MOST; b->count++)
        if (!put(b, b->count, numbers[b->count]))
            break;
    for (int64_t k = 0; k < b->count * b->count; k++) {
        memcpy(b->bytes + (size_t)(2 * k) * size, numbers[k / b->count], size);
        memcpy(b->bytes + (size_t)(2 * k + 1) * size, numbers[k % b->count],
               size);
    }
    sizes[0] = b->count * b->count;
    sizes[1] = 2;
    return expect_ok(b->out,
                     core_tensor_from_data(b->bytes, b->dtype, sizes, 2,
                                           b->self->device, &b->rows),
                     "making an operand");
}

/* ------------------------------------------------------------ operators -- */

/* Which of two is the first result. */
typedef enum choice { LARGER, SMALLER_OR_NAN, SMALLER } choice;

static const int64_t last_dim[] = {1};
#define ROW_LIST                \
    {                           \
        CORE_VALUE_INT_LIST, 1, \
        {                       \
            .ints = last_dim    \
        }                       \
    }
#define INT(value)         \
    {                      \
        CORE_VALUE_INT, 0, \
        {                  \
            .i = (value)   \
        }                  \
    }
#define BOOL(value)         \
    {                       \
        CORE_VALUE_BOOL, 0, \
        {                   \
            .i = (value)    \
        }                   \
    }

static const struct {
    const char *name, *how;
    core_value args[4]; /* behind the tensor */
    uint32_t nargs;
    int values, indices; /* the numbers of these results, or -1 */
    uint32_t width;      /* of a row of results */
    choice first;
    bool running;  /* the first result is the first element */
    bool anywhere; /* of equal elements, any may come first */
} operators[] = {
    {"amax", "", {ROW_LIST}, 1, 0, -1, 1, LARGER, false, false},
    {"amin", "", {ROW_LIST}, 1, 0, -1, 1, SMALLER_OR_NAN, false, false},
    {"max.dim", "", {INT(1)}, 1, 0, 1, 1, LARGER, false, false},
    {"min.dim", "", {INT(1)}, 1, 0, 1, 1, SMALLER_OR_NAN, false, false},
    {"argmax", "", {INT(1)}, 1, -1, 0, 1, LARGER, false, false},
    {"argmin", "", {INT(1)}, 1, -1, 0, 1, SMALLER_OR_NAN, false, false},
    {"sort", "", {INT(1), BOOL(0)}, 2, 0, 1, 2, SMALLER, false, true},
    {"sort",
     ", descending",
     {INT(1), BOOL(1)},
     2,
     0,
     1,
     2,
     LARGER,
     false,
     true},
    {"sort.stable",
     "",
     {BOOL(1), INT(1), BOOL(0)},
     3,
     0,
     1,
     2,
     SMALLER,
     false,
     false},
    {"sort.stable",
     ", descending",
     {BOOL(1), INT(1), BOOL(1)},
     3,
     0,
     1,
     2,
     LARGER,
     false,
     false},
    {"topk",
     "",
     {INT(1), INT(1), BOOL(1), BOOL(1)},
     4,
     0,
     1,
     1,
     LARGER,
     false,
     true},
    {"topk",
     ", of the smallest",
     {INT(1), INT(1), BOOL(0), BOOL(1)},
     4,
     0,
     1,
     1,
     SMALLER,
     false,
     true},
    {"cummax", "", {INT(1)}, 1, 0, 1, 2, LARGER, true, true},
    {"cummin", "", {INT(1)}, 1, 0, 1, 2, SMALLER_OR_NAN, true, true},
};

static int chosen(choice of, element a, element b)
{
    if (of == SMALLER_OR_NAN && (isnan(a.f) || isnan(b.f)))
        return !isnan(a.f);
    return of == LARGER ? is_less(a, b) : is_less(b, a);
}

/* The place of the element that result `column` of a row is. */
static int place_of(size_t which, element a, element b, uint32_t column)
{
    int first = chosen(operators[which].first, a, b);

    if (operators[which].running)
        return column == 0 ? 0 : first;
    return column == 0 ? first : !first;
}

static const char *describe(core_dtype dtype, element is, char text[40])
{
    if (core_dtype_is_floating(dtype))
        snprintf(text, 40, "%s%.9g", isnan(is.f) && signbit(is.f) ? "-" : "",
                 isnan(is.f) ? fabs(is.f) : is.f);
    else
        snprintf(text, 40, "%lld", (long long)is.i);
    return text;
}

static bool holds(const bench *b, size_t which, int64_t row, uint32_t column,
                  const unsigned char *values, const int64_t *indices)
{
    size_t size = core_dtype_size(b->dtype);
    const unsigned char *at = b->bytes + (size_t)(2 * row) * size;
    const element pair[] = {load(b->dtype, at), load(b->dtype, at + size)};
    int place = place_of(which, pair[0], pair[1], column);
    int64_t i = row * operators[which].width + column;
    bool any = operators[which].anywhere && are_equal(pair[0], pair[1]);
    char x[40], y[40], is[40], want[40];

    if (operators[which].values >= 0) {
        element got = load(b->dtype, values + (size_t)i * size);

        if (!expect(b->out, are_equal(got, pair[place]),
                    "%s of %s%s, of %s and %s: result %u is %s, expected %s",
                    operators[which].name, core_dtype_name(b->dtype),
                    operators[which].how, describe(b->dtype, pair[0], x),
                    describe(b->dtype, pair[1], y), column,
                    describe(b->dtype, got, is),
                    describe(b->dtype, pair[place], want)))
            return false;
    }
    return operators[which].indices < 0 || any ||
           expect(b->out, indices[i] == place,
                  "%s of %s%s, of %s and %s: index %u is %lld, expected %d%s",
                  operators[which].name, core_dtype_name(b->dtype),
                  operators[which].how, describe(b->dtype, pair[0], x),
                  describe(b->dtype, pair[1], y), column, (long long)indices[i],
                  place,
                  are_equal(pair[0], pair[1])
                      ? ", that of the first of equal elements"
                      : "");
}

static bool compare(bench *b, size_t which, const core_value *results)
{
    static unsigned char values[2 * PAIRS * 8];
    static int64_t indices[2 * PAIRS];
    int64_t rows = b->count * b->count;
    size_t count = (size_t)rows * operators[which].width;
    bool good = true;

    if (operators[which].values >= 0)
        good = expect_ok(b->out,
                         suite_read(results[operators[which].values].u.tensor,
                                    values, count * core_dtype_size(b->dtype)),
                         "reading a result");
    if (good && operators[which].indices >= 0)
        good = expect_ok(b->out,
                         suite_read(results[operators[which].indices].u.tensor,
                                    indices, count * sizeof *indices),
                         "reading a result");
    for (int64_t row = 0; good && row < rows; row++)
        for (uint32_t k = 0; good && k < operators[which].width; k++)
            good = holds(b, which, row, k, values, indices);
    return good;
}

static bool run(bench *b, size_t which)
{
    const char *name = operators[which].name;
    core_value args[5] = {suite_tensor_value(b->rows)}, results[2] = {{0}};
    core_operator *op;
    core_status status = core_op_find(name, &op);
    bool good = true;

    memcpy(args + 1, operators[which].args, sizeof operators[which].args);
    if (status == CORE_OK)
        status =
            suite_op_call(op, args, 1 + operators[which].nargs, results, 2);
    if (call_is_left(b->self, status, name)) {
        core_error_clear();
        skipped_calls_add(&b->left, name, b->dtype);
    } else {
        good = expect_ok(b->out, status, name) && compare(b, which, results);
        b->ran++;
    }
    core_value_release(&results[1]);
    core_value_release(&results[0]);
    return good;
}

static void rows_are_ordered(suite *self, outcome *out, const test *one)
{
    static const core_dtype dtypes[] = {CORE_F32,  CORE_F64, CORE_F16,
                                        CORE_BF16, CORE_I64, CORE_I32,
                                        CORE_I16,  CORE_I8,  CORE_U8};
    static bench b;
    bool good = true;

    (void)one;
    b = (bench){.self = self, .out = out};
    if (!suite_device(self, out) ||
        !expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                   "turning the fallback off"))
        return;
    for (size_t d = 0; good && d < sizeof dtypes / sizeof *dtypes; d++) {
        b.dtype = dtypes[d];
        good = make(&b);
        for (size_t i = 0; good && i < sizeof operators / sizeof *operators;
             i++)
            good = run(&b, i);
        core_tensor_release(b.rows);
        b.rows = NULL;
    }
    if (good)
        skipped_calls_report(&b.left, b.ran, out);
}

bool suite_add_rows_of_two(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/rows-of-two-are-ordered", rows_are_ordered, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
