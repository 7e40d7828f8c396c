/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: `stochastic_round` to f8e4m3 and f8e5m2.  Each element becomes one
 * of the two nearest numbers, the upper one as often as its distance says;
 * numbers of the format stay.  The bounds are of seven standard deviations,
 * which a correct kernel exceeds in one of 10^11 runs. */

#include "claims.h"
#include "element_value.h"
#include "skipped_calls.h"
#include "suite.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    ROWS = 257,
    COLUMNS = 260,
    COUNT = ROWS * COLUMNS, /* more than 65,536 */
    STEP = 263,             /* of a transposed tensor with gaps */
    OFFSET = 3,
    SPACE = OFFSET + STEP * COLUMNS,
    SEED = 2027,
};

/* With at most 7 bits after the first, so that each dtype represents them (f16
 * the smallest with 6); some are numbers of the 8-bit formats. */
static const double magnitudes[] = {
    0,     1,    1.0625,   1.15625,  1.75,       3.90625,
    100.5, 17.5, 0x1.2p-7, 0x1.5p-9, 0x1.28p-10, 0x1.0cp-15,
};

enum { NUMBERS = 2 * sizeof magnitudes / sizeof *magnitudes };

typedef struct rounding {
    suite *self;
    outcome *out;
    core_dtype from, to;
    bool saturate, strided;
} rounding;

typedef struct neighbours {
    unsigned char below, above; /* codes without the sign */
    double up;                  /* the probability of above */
} neighbours;

static double number_at(const rounding *of, int64_t i)
{
    double value = magnitudes[i / 2 % (NUMBERS / 2)];

    return element_rounded(of->from, i % 2 ? -value : value);
}

static double decoded(core_dtype dtype, int code)
{
    unsigned char byte = (unsigned char)code;

    return element_load(dtype, &byte);
}

static neighbours neighbours_of(core_dtype dtype, double magnitude)
{
    neighbours found = {0, 0, 0};
    double low;

    while (decoded(dtype, found.below + 1) <= magnitude)
        found.below++;
    low = decoded(dtype, found.below);
    found.above = (unsigned char)(found.below + (magnitude > low));
    if (magnitude > low)
        found.up = (magnitude - low) / (decoded(dtype, found.above) - low);
    return found;
}

static const char *describe(const rounding *of, char text[120])
{
    snprintf(text, 120, "stochastic_round of %s to %s%s%s",
             core_dtype_name(of->from), core_dtype_name(of->to),
             of->saturate ? ", saturate" : "",
             of->strided ? ", transposed with gaps" : "");
    return text;
}

/* ------------------------------------------------------------------ calls -- */

/* A tensor whose element i in row-major order is value(of, i). */
static core_status make(const rounding *of, int64_t count,
                        double (*value)(const rounding *, int64_t),
                        core_tensor **out)
{
    static unsigned char bytes[SPACE * 8];
    size_t each = core_dtype_size(of->from);
    int64_t space = SPACE, sizes[] = {ROWS, COLUMNS}, strides[] = {1, STEP};
    core_value args[4] = {{0}};
    core_tensor *whole = NULL;
    core_status status;

    *out = NULL;
    memset(bytes, 0, sizeof bytes);
    for (int64_t i = 0; i < count; i++)
        element_store(of->from, value(of, i),
                      bytes + each * (size_t)(of->strided
                                                  ? OFFSET + i / COLUMNS +
                                                        i % COLUMNS * STEP
                                                  : i));
    if (!of->strided)
        return core_tensor_from_data(bytes, of->from, &count, 1,
                                     of->self->device, out);
    status = core_tensor_from_data(bytes, of->from, &space, 1, of->self->device,
                                   &whole);
    args[0] = suite_tensor_value(whole);
    args[1] = (core_value){CORE_VALUE_INT_LIST, 2, {.ints = sizes}};
    args[2] = (core_value){CORE_VALUE_INT_LIST, 2, {.ints = strides}};
    args[3] = (core_value){CORE_VALUE_INT, 0, {.i = OFFSET}};
    if (status == CORE_OK)
        status = suite_call("as_strided", args, 4, out);
    core_tensor_release(whole);
    return status;
}

static core_status round_once(const rounding *of, core_tensor *operand,
                              unsigned char *codes, int64_t count)
{
    core_value args[3] = {suite_tensor_value(operand),
                          {CORE_VALUE_DTYPE, 0, {.i = of->to}},
                          {CORE_VALUE_BOOL, 0, {.i = of->saturate}}};
    core_tensor *result = NULL;
    core_status status = suite_call("stochastic_round", args, 3, &result);

    if (status == CORE_OK)
        status = suite_read(result, codes, (size_t)count);
    core_tensor_release(result);
    return status;
}

/* ----------------------------------------------------------------- checks -- */

static bool is_neighbour(const rounding *of, int64_t i, int code,
                         const neighbours *near)
{
    int sign = i % 2 ? 0x80 : 0;
    char text[120];

    return expect(
        of->out, code == (near->below | sign) || code == (near->above | sign),
        "%s: element %lld, %g, becomes %g (0x%02x), expected %g or %g",
        describe(of, text), (long long)i, number_at(of, i),
        decoded(of->to, code), (unsigned)code,
        decoded(of->to, near->below | sign),
        decoded(of->to, near->above | sign));
}

/* All draws of one number. */
static bool check_number(const rounding *of, int64_t first,
                         const unsigned char *codes)
{
    double value = number_at(of, first), wanted;
    neighbours near = neighbours_of(of->to, fabs(value));
    int64_t up = 0, draws = 0;
    char text[120];

    for (int64_t i = first; i < COUNT; i += NUMBERS, draws++) {
        if (!is_neighbour(of, i, codes[i], &near))
            return false;
        up += near.up > 0 && (codes[i] & 0x7f) == near.above;
    }
    wanted = near.up * (double)draws;
    return expect(
        of->out,
        fabs((double)up - wanted) <= 7 * sqrt(wanted * (1 - near.up)) + 1,
        "%s: %g is rounded away from 0, to %g, %lld times of %lld, expected "
        "about %.0f: the nearer one of its neighbours is the more probable",
        describe(of, text), value,
        decoded(of->to, near.above | (first % 2 ? 0x80 : 0)), (long long)up,
        (long long)draws, wanted);
}

/* Elements, and calls, draw numbers of their own: half of the numbers that are
 * halfway differ from the one before, and from that of the call before. */
static double halfway(const rounding *of, int64_t i)
{
    (void)i;
    return of->to == CORE_F8E4M3 ? 1.0625 : 1.125;
}

static bool differ_by_half(const rounding *of, const unsigned char *a,
                           const unsigned char *b, const char *what)
{
    int64_t differ = 0;
    char text[120];

    for (int64_t i = 0; i < COUNT - 1; i++)
        differ += a[i] != b[i];
    return expect(
        of->out, fabs((double)differ - COUNT / 2.) <= 3.5 * sqrt(COUNT),
        "%s: of %d numbers halfway between two, %lld are rounded "
        "otherwise than %s, expected about half: each element draws a "
        "number of its own",
        describe(of, text), COUNT - 1, (long long)differ, what);
}

static bool check_draws(const rounding *of)
{
    static unsigned char codes[2][COUNT];
    core_tensor *operand = NULL;
    bool good = expect_ok(of->out, make(of, COUNT, halfway, &operand),
                          "making an operand");

    for (int call = 0; good && call < 2; call++)
        good = expect_ok(of->out, round_once(of, operand, codes[call], COUNT),
                         "stochastic_round");
    core_tensor_release(operand);
    return good &&
           differ_by_half(of, codes[0], codes[0] + 1, "the element after") &&
           differ_by_half(of, codes[0], codes[1], "in the next call");
}

/* NaN stays; what is beyond the range becomes infinity, or NaN where there is
 * none, or with `saturate` the largest number. */
static double beyond(const rounding *of, int64_t i)
{
    double value = i / 2 == 0                           ? (double)NAN
                   : i / 2 == 1 || of->from == CORE_F16 ? (double)INFINITY
                                                        : 0x1p20;

    return i % 2 ? -value : value;
}

static bool check_beyond(const rounding *of)
{
    enum { BEYOND = 6 };
    unsigned char codes[BEYOND];
    core_tensor *operand = NULL;
    bool good = expect_ok(of->out, make(of, BEYOND, beyond, &operand),
                          "making an operand") &&
                expect_ok(of->out, round_once(of, operand, codes, BEYOND),
                          "stochastic_round");

    core_tensor_release(operand);
    for (int i = 0; good && i < BEYOND; i++) {
        double is = decoded(of->to, codes[i]), value = beyond(of, i);
        double most = decoded(of->to, of->to == CORE_F8E4M3 ? 0x7e : 0x7b);
        double want = isnan(value)            ? (double)NAN
                      : of->saturate          ? copysign(most, value)
                      : of->to == CORE_F8E4M3 ? (double)NAN
                                              : copysign(INFINITY, value);
        char text[120];

        good = expect(of->out, isnan(want) ? isnan(is) : is == want,
                      "%s: %g becomes %g, expected %g", describe(of, text),
                      value, is, want);
    }
    return good;
}

static bool check_numbers(const rounding *of, const unsigned char *codes)
{
    for (int64_t i = 0; i < NUMBERS; i++)
        if (!check_number(of, i, codes))
            return false;
    return true;
}

static bool accepts(uint32_t signature, core_dtype dtype)
{
    return signature == 0 || signature & CORE_DTYPE_MASK(dtype);
}

/* Without a kernel the core computes it with other operators, which this does
 * not test. */
static bool is_claimed(const rounding *of)
{
    static const char name[] = "stochastic_round";
    const core_kernel *kernel;

    for (uint32_t i = 0; core_kernel_at(of->self->type, i, &kernel) == CORE_OK;
         i++)
        if (kernel->name.size == sizeof name - 1 &&
            memcmp(kernel->name.data, name, sizeof name - 1) == 0 &&
            accepts(kernel->signature[0], of->from) &&
            accepts(kernel->signature[1], of->to))
            return true;
    core_error_clear();
    return false;
}

/* Returns false if a check fails; a call without a kernel is left out. */
static bool check_call(const rounding *of, skipped_calls *left, uint32_t *ran)
{
    static unsigned char codes[COUNT];
    core_tensor *operand = NULL;
    core_status status = CORE_ERROR_NO_KERNEL;

    if (is_claimed(of)) {
        if (!expect_ok(of->out, make(of, COUNT, number_at, &operand),
                       "making an operand"))
            return false;
        core_seed(SEED);
        status = round_once(of, operand, codes, COUNT);
        core_tensor_release(operand);
    }
    if (call_is_left(of->self, status, "stochastic_round")) {
        core_error_clear();
        skipped_calls_add(left, "stochastic_round", of->from);
        return true;
    }
    ++*ran;
    return expect_ok(of->out, status, "stochastic_round") &&
           check_numbers(of, codes) &&
           (of->strided || (check_beyond(of) && check_draws(of)));
}

static void rounds_at_random(suite *self, outcome *out, const test *one)
{
    static const core_dtype floats[] = {CORE_F32, CORE_F64, CORE_F16,
                                        CORE_BF16};
    skipped_calls left = {.length = 0};
    uint32_t ran = 0;
    bool good = true;

    (void)one;
    if (!suite_device(self, out) ||
        !expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                   "turning the fallback off"))
        return;
    for (int k = 0; good && k < 32; k++) {
        const rounding of = {self,          out,
                             floats[k / 8], k & 1 ? CORE_F8E5M2 : CORE_F8E4M3,
                             (k & 2) != 0,  (k & 4) != 0};

        good = check_call(&of, &left, &ran);
    }
    if (ran == 0 && good)
        not_supported(out, "no kernel of stochastic_round is claimed");
    skipped_calls_report(&left, ran, out);
}

bool stochastic_rounding_has(const char *op)
{
    return strcmp(op, "stochastic_round") == 0;
}

bool suite_add_stochastic_rounding(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/rounds-at-random", rounds_at_random, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
