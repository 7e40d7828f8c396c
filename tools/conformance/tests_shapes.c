/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: element-wise kernels on cases that the samples do not cover: more
 * elements than a launch has threads, more dimensions than a launch has
 * indices, scalars as operands, and operands that change between two calls.
 * Operands are small integers, so that all results are exact. */

#include "skipped_calls.h"
#include "operators.h"
#include "suite.h"

#include <stdlib.h>
#include <string.h>

/* Beyond 65535 groups of 256, and not a multiple of them. */
enum { MANY = (1 << 24) + (1 << 16) + 5, DIMENSIONS = 6 };

typedef struct shaped {
    suite *self;
    outcome *out;
    uint32_t ran;
    skipped_calls left;
} shaped;

static const struct {
    const char *name;
    uint32_t tensors;
} operations[] = {{"neg", 1},        {"abs", 1},        {"clone", 1},
                  {"add.Tensor", 2}, {"sub.Tensor", 2}, {"mul.Tensor", 2},
                  {"maximum", 2},    {"div.Tensor", 2}};

static float expected_value(size_t which, float a, float b)
{
    switch (which) {
    case 0:
        return -a;
    case 1:
        return a < 0 ? -a : a;
    case 2:
        return a;
    case 3:
        return a + b;
    case 4:
        return a - b;
    case 5:
        return a * b;
    case 6:
        return a > b ? a : b;
    default:
        return a / b;
    }
}

/* Later operands are powers of two, so that quotients are exact. */
static float first_value(int64_t i)
{
    return (float)(i % 251 - 125);
}

static float second_value(int64_t i)
{
    return (float)(1 << i % 7);
}

/* A kernel that is missing or refuses proves nothing. */
static bool done(shaped *test, core_status status, const char *name)
{
    if (status == CORE_ERROR_NO_KERNEL)
        skipped_calls_add(&test->left, name, CORE_DTYPE_NONE);
    if (status == CORE_ERROR_NO_KERNEL || status == CORE_ERROR_OUT_OF_MEMORY)
        return false;
    return expect_ok(test->out, status, name);
}

static bool begin(shaped *test, suite *self, outcome *out)
{
    *test = (shaped){.self = self, .out = out};
    return suite_device(self, out) &&
           expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                     "turning the fallback off");
}

static void end(const shaped *test, const char *reason)
{
    if (test->ran == 0 && test->out->verdict == VERDICT_PASS)
        not_supported(test->out,
                      "%s, or none of the operators that this "
                      "needs is claimed",
                      reason);
    skipped_calls_report(&test->left, test->ran, test->out);
}

/* ------------------------------------------------------------------ many -- */

static core_tensor *filled(shaped *test, float *data, float (*value)(int64_t))
{
    const int64_t size = MANY;
    core_tensor *made = NULL;
    core_status status;

    for (int64_t i = 0; i < MANY; i++)
        data[i] = value(i);
    status = core_tensor_from_data(data, CORE_F32, &size, 1, test->self->device,
                                   &made);
    if (status != CORE_ERROR_OUT_OF_MEMORY)
        expect_ok(test->out, status, "making an operand");
    return made;
}

static void holds_many(shaped *test, size_t which, core_tensor *got,
                       float *data)
{
    if (!expect_ok(test->out, core_tensor_read(got, data, MANY * sizeof *data),
                   "reading a result"))
        return;
    test->ran++;
    for (int64_t i = 0; i < MANY; i++) {
        float want = expected_value(which, first_value(i), second_value(i));

        if (!expect(test->out, data[i] == want,
                    "%s of %d elements: element %lld is %g, expected %g",
                    operations[which].name, (int)MANY, (long long)i,
                    (double)data[i], (double)want))
            return;
    }
}

/* Tests whether an operand is what it was before the call. */
static void still_holds(shaped *test, size_t which, uint32_t operand,
                        core_tensor *tensor, float *data)
{
    if (!expect_ok(test->out,
                   core_tensor_read(tensor, data, MANY * sizeof *data),
                   "reading an operand"))
        return;
    for (int64_t i = 0; i < MANY; i++) {
        float was = operand ? second_value(i) : first_value(i);

        if (!expect(test->out, data[i] == was,
                    "%s of %d elements changes operand %u: element %lld was "
                    "%g and is %g",
                    operations[which].name, (int)MANY, operand, (long long)i,
                    (double)was, (double)data[i]))
            return;
    }
}

/* The memory that the result gets has other values before. */
static void call_many(shaped *test, size_t which, core_tensor *const *pair,
                      float *data)
{
    core_value args[2] = {suite_tensor_value(pair[0]),
                          suite_tensor_value(pair[1])};
    uint32_t count = operations[which].tensors;
    const char *name = operations[which].name;
    core_tensor *got;

    operators_poison(test->self, MANY * sizeof *data);
    if (done(test, suite_call(name, args, count, &got), name)) {
        holds_many(test, which, got, data);
        for (uint32_t k = 0; k < count; k++)
            still_holds(test, which, k, pair[k], data);
    }
    core_tensor_release(got);
}

static void many(suite *self, outcome *out, const test *one)
{
    /* The kernels of a family share their code; these are four of them. */
    static const size_t some[] = {0, 2, 3, 5};
    float *data = malloc(MANY * sizeof *data);
    core_tensor *pair[2] = {NULL, NULL};
    shaped test;

    (void)one;
    if (!data)
        harness_error(out, "no memory");
    if (data && begin(&test, self, out)) {
        pair[0] = filled(&test, data, first_value);
        pair[1] = pair[0] ? filled(&test, data, second_value) : NULL;
        for (size_t i = 0; pair[1] && i < sizeof some / sizeof *some; i++)
            call_many(&test, some[i], pair, data);
        end(&test, "200 MB cannot be allocated");
    }
    core_tensor_release(pair[1]);
    core_tensor_release(pair[0]);
    core_memory_empty_cache(self->device);
    free(data);
}

/* ------------------------------------------------------------ dimensions -- */

/* A window in a larger tensor whose dimensions are ordered so that no two of
 * them can be merged. */
static const int64_t sizes[DIMENSIONS] = {2, 3, 2, 3, 2, 3};
static const uint32_t order[DIMENSIONS] = {4, 1, 5, 0, 3, 2};
enum { NUMEL = 216, BUFFER_SIZE = 6 * 7 * 6 * 7 * 6 * 7 };

static void strides_of(int64_t *strides)
{
    int64_t step = 1;

    for (uint32_t i = 0; i < DIMENSIONS; i++) {
        strides[order[i]] = step;
        step *= sizes[order[i]] + 1; /* with gaps between them */
    }
}

static core_status spread(suite *self, float (*value)(int64_t),
                          core_tensor **out_all, core_tensor **out_window)
{
    static float data[BUFFER_SIZE];
    int64_t strides[DIMENSIONS], capacity = BUFFER_SIZE;
    core_value args[4];

    strides_of(strides);
    for (int64_t i = 0; i < NUMEL; i++) {
        int64_t at = 0, left = i;

        for (uint32_t d = DIMENSIONS; d-- > 0;) {
            at += left % sizes[d] * strides[d];
            left /= sizes[d];
        }
        data[at] = value(i);
    }
    *out_window = NULL;
    CORE_TRY(core_tensor_from_data(data, CORE_F32, &capacity, 1, self->device,
                                   out_all));
    args[0] = suite_tensor_value(*out_all);
    args[1] = (core_value){CORE_VALUE_INT_LIST, DIMENSIONS, {.ints = sizes}};
    args[2] = (core_value){CORE_VALUE_INT_LIST, DIMENSIONS, {.ints = strides}};
    args[3] = core_int(0);
    return suite_call("as_strided", args, 4, out_window);
}

static void holds_window(shaped *test, size_t which, core_tensor *got)
{
    float data[NUMEL];

    if (!expect_ok(test->out, core_tensor_read(got, data, sizeof data),
                   "reading a result"))
        return;
    test->ran++;
    for (int64_t i = 0; i < NUMEL; i++) {
        float want = expected_value(which, first_value(i), second_value(i));

        if (!expect(test->out, data[i] == want,
                    "%s of %d dimensions that cannot be merged: element %lld "
                    "is %g, expected %g",
                    operations[which].name, (int)DIMENSIONS, (long long)i,
                    (double)data[i], (double)want))
            return;
    }
}

/* The second operand is row-major. */
static void dimensions(suite *self, outcome *out, const test *one)
{
    core_tensor *all = NULL, *window = NULL, *rows = NULL;
    float data[NUMEL];
    shaped test;

    (void)one;
    for (int64_t i = 0; i < NUMEL; i++)
        data[i] = second_value(i);
    if (begin(&test, self, out) &&
        expect_ok(out, spread(self, first_value, &all, &window),
                  "making an operand") &&
        expect_ok(out,
                  core_tensor_from_data(data, CORE_F32, sizes, DIMENSIONS,
                                        self->device, &rows),
                  "making an operand")) {
        for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
            core_value args[2] = {suite_tensor_value(window),
                                  suite_tensor_value(rows)};
            core_tensor *got;

            if (done(&test,
                     suite_call(operations[i].name, args, operations[i].tensors,
                                &got),
                     operations[i].name))
                holds_window(&test, i, got);
            core_tensor_release(got);
        }
        end(&test, "its kernels refuse so many dimensions");
    }
    core_tensor_release(rows);
    core_tensor_release(window);
    core_tensor_release(all);
}

/* --------------------------------------------------------------- numbers -- */

enum { SOME = 37 };

/* A 0-dim CPU tensor as the first or second operand; kernels receive it as an
 * immediate. */
static void number_at(shaped *test, size_t which, bool first)
{
    float data[SOME], number = first ? -12 : 4;
    int64_t size = SOME;
    core_tensor *tensor = NULL, *zero = NULL, *got = NULL;
    core_value args[2];
    const char *name = operations[which].name;

    for (int64_t i = 0; i < SOME; i++)
        data[i] = first ? second_value(i) : first_value(i);
    if (!expect_ok(test->out,
                   core_tensor_from_data(data, CORE_F32, &size, 1,
                                         test->self->device, &tensor),
                   "making an operand") ||
        !expect_ok(test->out,
                   core_tensor_from_data(&number, CORE_F32, NULL, 0,
                                         test->self->host, &zero),
                   "making a number"))
        goto done;
    args[first] = suite_tensor_value(tensor);
    args[!first] = suite_tensor_value(zero);
    if (!done(test, suite_call(name, args, 2, &got), name) ||
        !expect_ok(test->out, core_tensor_read(got, data, sizeof data),
                   "reading a result"))
        goto done;
    test->ran++;
    for (int64_t i = 0; i < SOME; i++) {
        float want = first ? expected_value(which, number, second_value(i))
                           : expected_value(which, first_value(i), number);

        if (!expect(test->out, data[i] == want,
                    "%s with a scalar as operand %d: element %lld is %g, "
                    "expected %g",
                    name, first ? 0 : 1, (long long)i, (double)data[i],
                    (double)want))
            break;
    }
done:
    core_tensor_release(got);
    core_tensor_release(zero);
    core_tensor_release(tensor);
}

static void numbers(suite *self, outcome *out, const test *one)
{
    shaped test;

    (void)one;
    if (!begin(&test, self, out))
        return;
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        for (int first = 0; operations[i].tensors > 1 && first < 2; first++)
            number_at(&test, i, first != 0);
    end(&test, "its kernels refuse scalars");
}

/* ---------------------------------------------------- changed operands -- */

/* Matrices are large enough to be kept packed, and used as often as a kernel may
 * want before it keeps one. */
enum { SIDE = 40, SQUARE = SIDE * SIDE, USES = 3 };

static void square_of(float (*value)(int64_t), float *data)
{
    for (int64_t i = 0; i < SQUARE; i++)
        data[i] = value(i);
}

static float product_at(const float *a, const float *b, int64_t i)
{
    float sum = 0;

    for (int64_t k = 0; k < SIDE; k++)
        sum += a[i / SIDE * SIDE + k] * b[k * SIDE + i % SIDE];
    return sum;
}

static bool write_both(shaped *test, core_tensor *const *pair, const float *a,
                       const float *b)
{
    size_t size = SQUARE * sizeof *a;

    return expect_ok(test->out, core_tensor_write(pair[0], a, size),
                     "writing an operand") &&
           expect_ok(test->out, core_tensor_write(pair[1], b, size),
                     "writing an operand");
}

/* The operands have other values at the second call than at the first, at the
 * same address. which: an index of operations, or one past them for mm. */
static void call_twice(shaped *test, size_t which, core_tensor *const *pair)
{
    bool product = which == sizeof operations / sizeof *operations;
    const char *name = product ? "mm" : operations[which].name;
    float a[SQUARE], b[SQUARE], data[SQUARE];
    core_tensor *before = NULL, *got = NULL;
    core_value args[2] = {suite_tensor_value(pair[0]),
                          suite_tensor_value(pair[1])};
    uint32_t nargs = product ? 2 : operations[which].tensors;

    square_of(first_value, a);
    square_of(second_value, b);
    if (!write_both(test, pair, b, a))
        return;
    for (int i = 0; i < (product ? USES : 1); i++) {
        core_tensor_release(before);
        if (!done(test, suite_call(name, args, nargs, &before), name))
            goto done;
    }
    if (!write_both(test, pair, a, b) ||
        !done(test, suite_call(name, args, nargs, &got), name) ||
        !expect_ok(test->out, core_tensor_read(got, data, sizeof data),
                   "reading a result"))
        goto done;
    test->ran++;
    for (int64_t i = 0; i < SQUARE; i++) {
        float want =
            product ? product_at(a, b, i) : expected_value(which, a[i], b[i]);

        if (!expect(test->out, data[i] == want,
                    "%s of operands that changed since the previous call: "
                    "element %lld is %g, expected %g",
                    name, (long long)i, (double)data[i], (double)want))
            break;
    }
done:
    core_tensor_release(got);
    core_tensor_release(before);
}

/* Products of the numbers of first_value with a matrix of the device. */
static bool multiply_once(shaped *test, core_tensor *left, core_tensor *right,
                          const float *b, const char *what)
{
    core_value args[2] = {suite_tensor_value(left), suite_tensor_value(right)};
    core_tensor *got = NULL;
    float a[SQUARE], data[SQUARE];

    square_of(first_value, a);
    if (done(test, suite_call("mm", args, 2, &got), "mm") &&
        expect_ok(test->out, core_tensor_read(got, data, sizeof data),
                  "reading a result")) {
        test->ran++;
        for (int64_t i = 0; i < SQUARE; i++)
            if (!expect(test->out, data[i] == product_at(a, b, i),
                        "mm with %s: element %lld is %g, expected %g", what,
                        (long long)i, (double)data[i],
                        (double)product_at(a, b, i)))
                break;
    }
    core_tensor_release(got);
    return test->out->verdict == VERDICT_PASS;
}

static bool multiply(shaped *test, core_tensor *left, core_tensor *right,
                     const float *b, const char *what)
{
    for (int i = 0; i < USES; i++)
        if (!multiply_once(test, left, right, b, what))
            return false;
    return true;
}

static core_tensor *square_on_device(shaped *test, const float *data)
{
    static const int64_t shape[2] = {SIDE, SIDE};
    core_tensor *made = NULL;

    expect_ok(test->out,
              core_tensor_from_data(data, CORE_F32, shape, 2,
                                    test->self->device, &made),
              "making an operand");
    return made;
}

/* A matrix, its transpose, another one beside it, and one in the memory that it
 * had: none is what a kernel kept of the one before. */
static void multiply_by_others(shaped *test)
{
    static const int64_t shape[2] = {SIDE, SIDE}, strides[2] = {1, SIDE};
    float a[SQUARE], b[SQUARE], transposed[SQUARE];
    core_tensor *left, *right, *turned = NULL, *other = NULL;
    core_value args[4] = {{0}};

    square_of(first_value, a);
    square_of(second_value, b);
    for (int64_t i = 0; i < SQUARE; i++)
        transposed[i] = b[i % SIDE * SIDE + i / SIDE];
    left = square_on_device(test, a);
    right = square_on_device(test, b);
    args[0] = suite_tensor_value(right);
    args[1] = (core_value){CORE_VALUE_INT_LIST, 2, {.ints = shape}};
    args[2] = (core_value){CORE_VALUE_INT_LIST, 2, {.ints = strides}};
    args[3] = core_int(0);
    if (left && right && multiply(test, left, right, b, "a matrix") &&
        expect_ok(test->out, suite_call("as_strided", args, 4, &turned),
                  "as_strided") &&
        multiply(test, left, turned, transposed,
                 "the transpose of its last operand") &&
        multiply(test, left, right, b, "a matrix") &&
        (other = square_on_device(test, a)) != NULL &&
        multiply(test, left, other, a, "another matrix than before")) {
        multiply(test, left, right, b, "the first of two matrices");
        core_tensor_release(turned);
        core_tensor_release(right);
        turned = NULL;
        right = square_on_device(test, transposed);
        if (right)
            multiply(test, left, right, transposed,
                     "a matrix in the memory of another, which was released");
    }
    core_tensor_release(other);
    core_tensor_release(turned);
    core_tensor_release(right);
    core_tensor_release(left);
}

static void changed_operands_are_reread(suite *self, outcome *out,
                                        const test *one)
{
    static const int64_t shape[2] = {SIDE, SIDE};
    core_tensor *pair[2] = {NULL, NULL};
    float data[SQUARE] = {0};
    shaped test;
    bool good = begin(&test, self, out);

    (void)one;
    for (int k = 0; good && k < 2; k++)
        good = expect_ok(out,
                         core_tensor_from_data(data, CORE_F32, shape, 2,
                                               self->device, &pair[k]),
                         "making an operand");
    if (good) {
        for (size_t i = 0; i <= sizeof operations / sizeof *operations; i++)
            call_twice(&test, i, pair);
        multiply_by_others(&test);
        end(&test, "its kernels refuse 1600 elements");
    }
    core_tensor_release(pair[1]);
    core_tensor_release(pair[0]);
}

bool suite_add_shapes(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/17-million-elements", many, true},
        {"ops/rules/six-dimensions", dimensions, true},
        {"ops/rules/scalar-operands", numbers, true},
        {"ops/rules/changed-operands-are-reread", changed_operands_are_reread,
         true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
