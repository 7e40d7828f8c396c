/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: values whose results are exact and that simplifications of a
 * kernel get wrong: integers that wrap or that f64 cannot represent, a beta of 0, equal
 * elements to sort. */

#include "claims.h"
#include "element_value.h"
#include "number_calls.h"

#include <math.h>
#include <string.h>

static void end(const number_calls *v, const char *what)
{
    if (v->ran == 0 && v->out->verdict == VERDICT_PASS)
        not_supported(v->out, "no kernel of %s is claimed", what);
    skipped_calls_report(&v->left, v->ran, v->out);
}

/* A call of an operator that is not claimed for these dtypes proves nothing. */
static bool done(number_calls *v, core_status status, const char *name)
{
    if (call_is_left(v->self, status, name)) {
        skipped_calls_add(&v->left, name, CORE_DTYPE_NONE);
        return false;
    }
    return expect_ok(v->out, status, name);
}

static core_tensor *tensor_of(number_calls *v, core_dtype dtype,
                              const void *bytes, const int64_t *sizes,
                              uint32_t ndim)
{
    core_tensor *made = NULL;

    expect_ok(v->out,
              core_tensor_from_data(bytes, dtype, sizes, ndim, v->self->device,
                                    &made),
              "making an operand");
    return made;
}

/* A tensor of numbers. */
static core_tensor *numbers_of(number_calls *v, core_dtype dtype,
                               const double *numbers, const int64_t *sizes,
                               uint32_t ndim)
{
    v->dtype = dtype;
    return number_calls_make(v, sizes, ndim, numbers);
}

/* -------------------------------------------------------------- integers -- */

static const core_dtype integer_dtypes[] = {CORE_I64, CORE_I32, CORE_I16,
                                            CORE_I8, CORE_U8};

static const int64_t integer_values[] = {0,
                                         1,
                                         -1,
                                         2,
                                         3,
                                         100,
                                         101,
                                         127,
                                         -128,
                                         128,
                                         200,
                                         255,
                                         -7,
                                         32767,
                                         -32768,
                                         65535,
                                         1000003,
                                         2147483647,
                                         -2147483647 - 1,
                                         INT64_C(9007199254740992),
                                         INT64_C(9007199254740993),
                                         INT64_C(-9007199254740993),
                                         INT64_C(9007199254740995),
                                         INT64_MAX,
                                         INT64_MIN,
                                         INT64_C(4611686018427387905)};

enum {
    VALUES = sizeof integer_values / sizeof *integer_values,
    PAIRS = VALUES * VALUES
};

typedef enum operation {
    ADD,
    SUB,
    MUL,
    MAXIMUM,
    MINIMUM,
    AND,
    OR,
    XOR,
    EQUAL,
    LESS,
    NEG,
    SUM,
    MAX,
    CUMSUM,
    OPERATIONS
} operation;

static const struct {
    const char *name;
    uint32_t tensors;
} operations[OPERATIONS] = {{"add.Tensor", 2},
                            {"sub.Tensor", 2},
                            {"mul.Tensor", 2},
                            {"maximum", 2},
                            {"minimum", 2},
                            {"bitwise_and.Tensor", 2},
                            {"bitwise_or.Tensor", 2},
                            {"bitwise_xor.Tensor", 2},
                            {"eq.Tensor", 2},
                            {"lt.Tensor", 2},
                            {"neg", 1},
                            {"sum", 1},
                            {"max", 1},
                            {"cumsum", 1}};

/* The value that the low bits of a number are in a dtype. */
static int64_t wrapped(core_dtype dtype, uint64_t bits)
{
    switch (dtype) {
    case CORE_I64:
        return (int64_t)bits;
    case CORE_I32:
        return (int32_t)(uint32_t)bits;
    case CORE_I16:
        return (int16_t)(uint16_t)bits;
    case CORE_I8:
        return (int8_t)(uint8_t)bits;
    default:
        return (uint8_t)bits;
    }
}

static uint64_t combined(operation which, int64_t a, int64_t b)
{
    switch (which) {
    case ADD:
        return (uint64_t)a + (uint64_t)b;
    case SUB:
        return (uint64_t)a - (uint64_t)b;
    case MUL:
        return (uint64_t)a * (uint64_t)b;
    case MAXIMUM:
        return (uint64_t)(a > b ? a : b);
    case MINIMUM:
        return (uint64_t)(a < b ? a : b);
    case AND:
        return (uint64_t)a & (uint64_t)b;
    case OR:
        return (uint64_t)a | (uint64_t)b;
    case XOR:
        return (uint64_t)a ^ (uint64_t)b;
    case EQUAL:
        return a == b;
    case LESS:
        return a < b;
    default:
        return -(uint64_t)a;
    }
}

typedef struct integers {
    core_dtype dtype;
    int64_t a[PAIRS], b[PAIRS], wanted[PAIRS];
    int64_t count; /* of wanted */
} integers;

static void expect_integers(integers *i, operation which)
{
    core_dtype result = which == EQUAL || which == LESS   ? CORE_U8
                        : which == SUM || which == CUMSUM ? CORE_I64
                                                          : i->dtype;
    uint64_t sum = 0;
    int64_t most = i->a[0];

    i->count = which == SUM || which == MAX ? 1 : PAIRS;
    for (int k = 0; k < PAIRS; k++) {
        sum += (uint64_t)i->a[k];
        most = i->a[k] > most ? i->a[k] : most;
        if (which < SUM)
            i->wanted[k] = wrapped(result, combined(which, i->a[k], i->b[k]));
        else if (which == CUMSUM)
            i->wanted[k] = (int64_t)sum;
    }
    if (which == SUM || which == MAX)
        i->wanted[0] = which == SUM ? (int64_t)sum : most;
}

static bool hold_integers(number_calls *v, const integers *i, operation which,
                          core_tensor *got)
{
    core_dtype dtype = core_tensor_dtype(got);
    size_t size = core_dtype_size(dtype);
    unsigned char bytes[PAIRS * 8];
    uint64_t bits;

    if (!expect(v->out, core_tensor_numel(got) == i->count,
                "%s of %s has %lld elements", operations[which].name,
                core_dtype_name(i->dtype), (long long)core_tensor_numel(got)) ||
        !expect_ok(v->out,
                   core_tensor_read(got, bytes, (size_t)i->count * size),
                   "reading a result"))
        return false;
    v->ran++;
    for (int64_t k = 0; k < i->count; k++) {
        int64_t is;

        bits = 0;
        memcpy(&bits, bytes + (size_t)k * size, size);
        is = wrapped(dtype == CORE_BOOL ? CORE_U8 : dtype, bits);
        if (!expect(
                v->out, is == i->wanted[k],
                "%s of %s: element %lld, of %lld%s%.0lld, is %lld, expected "
                "%lld",
                operations[which].name, core_dtype_name(i->dtype), (long long)k,
                (long long)i->a[k],
                operations[which].tensors > 1 ? " and " : "",
                operations[which].tensors > 1 ? (long long)i->b[k] : 0LL,
                (long long)is, (long long)i->wanted[k]))
            return false;
    }
    return true;
}

/* Every value with every other. */
static bool call_integers(number_calls *v, core_dtype dtype)
{
    static integers i;
    const int64_t size = PAIRS;
    unsigned char bytes[2][PAIRS * 8];
    size_t item = core_dtype_size(dtype);
    core_tensor *operands[2];
    bool good = true;

    i.dtype = dtype;
    for (int k = 0; k < PAIRS; k++) {
        i.a[k] = wrapped(dtype, (uint64_t)integer_values[k / VALUES]);
        i.b[k] = wrapped(dtype, (uint64_t)integer_values[k % VALUES]);
        memcpy(bytes[0] + (size_t)k * item, &i.a[k], item);
        memcpy(bytes[1] + (size_t)k * item, &i.b[k], item);
    }
    operands[0] = tensor_of(v, dtype, bytes[0], &size, 1);
    operands[1] = tensor_of(v, dtype, bytes[1], &size, 1);
    for (int which = 0;
         good && operands[0] && operands[1] && which < OPERATIONS; which++) {
        const char *name = operations[which].name;
        core_value args[2] = {suite_tensor_value(operands[0]),
                              suite_tensor_value(operands[1])};
        core_tensor *got = NULL;

        if (which == CUMSUM)
            args[1] = core_int(0);
        expect_integers(&i, (operation)which);
        if (done(v,
                 suite_call(name, args,
                            which == CUMSUM ? 2 : operations[which].tensors,
                            &got),
                 name))
            good = hold_integers(v, &i, (operation)which, got);
        core_tensor_release(got);
    }
    core_tensor_release(operands[1]);
    core_tensor_release(operands[0]);
    return good && v->out->verdict == VERDICT_PASS;
}

static void integers_are_exact(suite *self, outcome *out, const test *one)
{
    number_calls v;

    (void)one;
    if (!number_calls_begin(&v, self, out))
        return;
    for (size_t d = 0; d < sizeof integer_dtypes / sizeof *integer_dtypes; d++)
        if (!call_integers(&v, integer_dtypes[d]))
            return;
    end(&v, "integers");
}

/* ------------------------------------------------------------- beta of 0 -- */

/* Operators that add a product to beta times self.  ATen ignores self where
 * beta is 0. */
static const struct {
    const char *name;
    uint32_t ndim[3]; /* of self and of the factors */
} additions[] = {{"addmm", {2, 2, 2}},
                 {"addmm", {1, 2, 2}},
                 {"addmv", {1, 2, 1}},
                 {"addbmm", {2, 3, 3}},
                 {"baddbmm", {3, 3, 3}},
                 {"addr", {2, 1, 1}},
                 {"_addmm_activation", {1, 2, 2}}};

enum { EDGE = 3 };

/* The factors are ones; so each result is the number of summands. */
static double summands(const char *name)
{
    return strcmp(name, "addr") == 0     ? 1
           : strcmp(name, "addbmm") == 0 ? EDGE * EDGE
                                         : EDGE;
}

static bool add_nothing(number_calls *v, size_t which, core_dtype dtype,
                        double self)
{
    static const int64_t sizes[3] = {EDGE, EDGE, EDGE};
    const char *name = additions[which].name;
    double numbers[EDGE * EDGE * EDGE];
    core_tensor *operands[3] = {NULL}, *got = NULL;
    core_value args[5] = {{0}};
    bool good = true;

    for (int k = 0; k < 3; k++) {
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
            numbers[i] = k ? 1 : self;
        operands[k] =
            numbers_of(v, dtype, numbers, sizes, additions[which].ndim[k]);
        if (!operands[k])
            goto done;
        args[k] = suite_tensor_value(operands[k]);
    }
    args[3] = core_int(0);
    args[4] = core_int(1);
    if (done(v, suite_call(name, args, 5, &got), name)) {
        unsigned char bytes[EDGE * EDGE * EDGE * 8];
        size_t size = core_dtype_size(dtype);
        size_t numel = (size_t)core_tensor_numel(got);

        v->ran++;
        good = expect_ok(v->out, core_tensor_read(got, bytes, numel * size),
                         "reading a result");
        for (size_t i = 0; good && i < numel; i++) {
            double is = element_load(dtype, bytes + i * size);

            good = expect(v->out, is == summands(name),
                          "%s of %s with beta 0: element %zu is %g, expected "
                          "%g; self, which is %g, must be ignored",
                          name, core_dtype_name(dtype), i, is, summands(name),
                          self);
        }
    }
done:
    core_tensor_release(got);
    for (int k = 0; k < 3; k++)
        core_tensor_release(operands[k]);
    return good && v->out->verdict == VERDICT_PASS;
}

static void beta_0_ignores_self(suite *self, outcome *out, const test *one)
{
    static const core_dtype floats[] = {CORE_F64, CORE_F32, CORE_F16,
                                        CORE_BF16};
    number_calls v;

    (void)one;
    if (!number_calls_begin(&v, self, out))
        return;
    for (size_t k = 0; k < sizeof additions / sizeof *additions; k++)
        for (size_t d = 0; d < sizeof floats / sizeof *floats; d++)
            if (!add_nothing(&v, k, floats[d], (double)NAN) ||
                !add_nothing(&v, k, floats[d], (double)INFINITY))
                return;
    end(&v, "addmm and the like");
}

/* ------------------------------------------------------------------ ties -- */

enum { SORTED = 2049 };

/* NaN is larger than every number, as in ATen. */
static bool before(double a, double b, bool descending)
{
    double t = descending ? a : b;

    if (descending) {
        a = b;
        b = t;
    }
    return isnan(b) ? !isnan(a) : a < b;
}

/* The position to which a stable sort brings each element. */
static void ranks(const double *numbers, int64_t count, bool descending,
                  int64_t *from)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t rank = 0;

        for (int64_t j = 0; j < count; j++)
            rank += before(numbers[j], numbers[i], descending) ||
                    (j < i && !before(numbers[i], numbers[j], descending));
        from[rank] = i;
    }
}

static bool sort_ties(number_calls *v, core_dtype dtype, int64_t count,
                      bool descending)
{
    static double numbers[SORTED];
    static int64_t from[SORTED], is[SORTED];
    core_value args[4] = {{0}}, results[2] = {{0}};
    core_tensor *self;
    core_operator *op;
    bool good = true;

    for (int64_t i = 0; i < count; i++) {
        numbers[i] = (double)(i * 7 / 3 % 5);
        if (core_dtype_is_floating(dtype) && i % 7 == 3)
            numbers[i] = i % 2 ? (double)NAN : -0.0;
    }
    ranks(numbers, count, descending, from);
    self = numbers_of(v, dtype, numbers, &count, 1);
    if (!self)
        return false;
    args[0] = suite_tensor_value(self);
    args[1] = core_bool(true);
    args[2] = core_int(-1);
    args[3] = core_bool(descending);
    if (!expect_ok(v->out, core_op_find("sort.stable", &op), "sort.stable") ||
        !done(v, core_op_call(op, args, 4, results, 2), "sort.stable"))
        goto done;
    v->ran++;
    good = expect_ok(
        v->out,
        core_tensor_read(results[1].u.tensor, is, (size_t)count * sizeof *is),
        "reading a result");
    for (int64_t i = 0; good && i < count; i++)
        good = expect(v->out, is[i] == from[i],
                      "sort.stable of %lld elements of %s%s: element %lld is "
                      "that of position %lld, expected %lld%s",
                      (long long)count, core_dtype_name(dtype),
                      descending ? ", descending" : "", (long long)i,
                      (long long)is[i], (long long)from[i],
                      is[i] >= 0 && is[i] < count &&
                              numbers[is[i]] == numbers[from[i]]
                          ? ": they are equal and change their order"
                          : "");
done:
    core_value_release(&results[0]);
    core_value_release(&results[1]);
    core_tensor_release(self);
    return good && v->out->verdict == VERDICT_PASS;
}

static void stable_sorts_keep_ties(suite *self, outcome *out, const test *one)
{
    static const core_dtype some[] = {CORE_F64, CORE_F32, CORE_F16, CORE_BF16,
                                      CORE_I64, CORE_I32, CORE_I8,  CORE_U8};
    static const int64_t counts[] = {2, 9, 100, SORTED};
    number_calls v;

    (void)one;
    if (!number_calls_begin(&v, self, out))
        return;
    for (size_t d = 0; d < sizeof some / sizeof *some; d++)
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
            if (!sort_ties(&v, some[d], counts[k], false) ||
                !sort_ties(&v, some[d], counts[k], true))
                return;
    end(&v, "sort.stable");
}

bool suite_add_values(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/integers-are-exact", integers_are_exact, true},
        {"ops/rules/beta-0-ignores-self", beta_0_ignores_self, true},
        {"ops/rules/stable-sorts-keep-ties", stable_sorts_keep_ties, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
