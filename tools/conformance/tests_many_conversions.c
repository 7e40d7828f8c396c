/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: copy_ of more than a million elements between all pairs of dtypes,
 * dense, and to a tensor with gaps. */

#include "claims.h"
#include "element_value.h"
#include "skipped_calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MANY = (1 << 20) + 4099,
    PERIOD = 15, /* of the values, which every dtype represents */
    UNWRITTEN = 0x5a,
};

static const core_dtype dtypes[] = {
    CORE_F64, CORE_F32, CORE_F16, CORE_BF16, CORE_I64,    CORE_I32,
    CORE_I16, CORE_I8,  CORE_U8,  CORE_BOOL, CORE_F8E4M3, CORE_F8E5M2};

enum { DTYPES = sizeof dtypes / sizeof *dtypes };

typedef struct bench {
    suite *self;
    outcome *out;
    unsigned char *bytes, *got;
    uint32_t ran;
    skipped_calls left;
} bench;

static double value_at(core_dtype dtype, int64_t i)
{
    return dtype == CORE_BOOL ? (double)(i % PERIOD % 3 != 0)
                              : (double)(i % PERIOD % 8);
}

/* What copy_ makes of element i: 0 is false, and true is 1. */
static double wanted_at(core_dtype from, core_dtype to, int64_t i)
{
    double value = value_at(from, i);

    return to == CORE_BOOL ? value != 0 : value;
}

/* A period of values, repeated. */
static void fill_bytes(unsigned char *bytes, core_dtype from, core_dtype to)
{
    size_t each = core_dtype_size(to), part = PERIOD * each, size = MANY * each;

    for (int64_t i = 0; i < PERIOD; i++)
        element_store(to, wanted_at(from, to, i), bytes + (size_t)i * each);
    for (; part < size; part *= 2)
        memcpy(bytes + part, bytes, part < size - part ? part : size - part);
}

/* Every second element of a vector of twice as many. */
static core_status spread(core_tensor *whole, core_tensor **out)
{
    static const int64_t size[] = {MANY}, step[] = {2};
    const core_value args[] = {suite_tensor_value(whole),
                               {CORE_VALUE_INT_LIST, 1, {.ints = size}},
                               {CORE_VALUE_INT_LIST, 1, {.ints = step}},
                               core_int(1)};

    return suite_call("as_strided", args, 4, out);
}

static core_status copy(core_tensor *to, core_tensor *from)
{
    core_value args[2] = {suite_tensor_value(to), suite_tensor_value(from)};
    core_tensor *result;
    core_status status = suite_call("copy_", args, 2, &result);

    core_tensor_release(result);
    return status;
}

static bool holds(bench *b, core_dtype from, core_dtype to, int64_t step)
{
    size_t each = core_dtype_size(to);
    unsigned char wanted[PERIOD * 8], gap[8];

    fill_bytes(b->bytes, from, to);
    if (step == 1 && memcmp(b->bytes, b->got, MANY * each) == 0)
        return true;
    memcpy(wanted, b->bytes, PERIOD * each);
    memset(gap, to == CORE_BOOL ? 1 : UNWRITTEN, sizeof gap);
    for (int64_t i = 0; i < MANY; i++) {
        const unsigned char *at =
            b->got + (size_t)(i * step + (step > 1)) * each;

        if (!expect(b->out,
                    memcmp(at, wanted + (size_t)(i % PERIOD) * each, each) == 0,
                    "%s to %s, %d elements%s: element %lld, %g, becomes %g",
                    core_dtype_name(from), core_dtype_name(to), (int)MANY,
                    step > 1 ? ", to every second one" : "", (long long)i,
                    value_at(from, i), element_load(to, at)) ||
            !expect(b->out, step == 1 || memcmp(at - each, gap, each) == 0,
                    "%s to %s, %d elements, to every second one: the gap "
                    "before element %lld is changed",
                    core_dtype_name(from), core_dtype_name(to), (int)MANY,
                    (long long)i))
            return false;
    }
    return true;
}

static void leave_out(bench *b, core_dtype from, core_dtype to)
{
    char name[40];

    snprintf(name, sizeof name, "copy_ of %s to %s", core_dtype_name(from),
             core_dtype_name(to));
    skipped_calls_add(&b->left, name, CORE_DTYPE_NONE);
}

/* step: between the elements of the target. */
static bool convert(bench *b, core_tensor *source, core_dtype from,
                    core_dtype to, int64_t step)
{
    const int64_t numel = MANY * step;
    size_t bytes = (size_t)numel * core_dtype_size(to);
    core_tensor *whole = NULL, *target = NULL;
    core_status status;
    bool good;

    memset(b->got, to == CORE_BOOL ? 1 : UNWRITTEN, bytes);
    good = expect_ok(
        b->out,
        core_tensor_from_data(b->got, to, &numel, 1, b->self->device, &whole),
        "making a target");
    if (good && step > 1)
        good = expect_ok(b->out, spread(whole, &target), "as_strided");
    if (!good)
        goto done;
    status = copy(target ? target : whole, source);
    if (call_is_left(b->self, status, "copy_")) {
        core_error_clear();
        leave_out(b, from, to);
        goto done;
    }
    b->ran++;
    good = expect_ok(b->out, status, "copy_") &&
           expect_ok(b->out, suite_read(whole, b->got, bytes),
                     "reading a result") &&
           holds(b, from, to, step);
done:
    core_tensor_release(target);
    core_tensor_release(whole);
    return good;
}

static bool convert_from(bench *b, core_dtype from)
{
    static const int64_t numel = MANY;
    core_tensor *source = NULL;
    bool good;

    fill_bytes(b->bytes, from, from);
    good = expect_ok(b->out,
                     core_tensor_from_data(b->bytes, from, &numel, 1,
                                           b->self->device, &source),
                     "making an operand");
    for (size_t i = 0; good && i < DTYPES; i++)
        if (dtypes[i] != from)
            good = convert(b, source, from, dtypes[i], 1);
    /* In f32 and i64 alone: the loops of the others are of one kind. */
    for (size_t i = 0; good && i < DTYPES; i++)
        if (dtypes[i] != from && (from == CORE_F32 || from == CORE_I64))
            good = convert(b, source, from, dtypes[i], 2);
    core_tensor_release(source);
    return good;
}

static void many_are_converted(suite *self, outcome *out, const test *one)
{
    bench b = {.self = self, .out = out};
    bool good = true;

    (void)one;
    if (!suite_device(self, out) ||
        !expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                   "turning the fallback off"))
        return;
    if (self->quick) {
        not_supported(out, "--quick leaves it out");
        return;
    }
    b.bytes = malloc(MANY * 8);
    b.got = malloc(MANY * 16);
    if (!b.bytes || !b.got) {
        harness_error(out, "no memory");
        good = false;
    }
    for (size_t i = 0; good && i < DTYPES; i++)
        good = convert_from(&b, dtypes[i]);
    free(b.got);
    free(b.bytes);
    if (good)
        skipped_calls_report(&b.left, b.ran, out);
}

bool suite_add_many_conversions(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/conversions-of-a-million", many_are_converted, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
