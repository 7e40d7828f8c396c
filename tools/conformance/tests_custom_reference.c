/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level training: results of the plugin's own operators, compared with those of
 * the functions or kernels that the plugin has for cpu; and their arguments that
 * are numbers, each of which changes the results. */

#include "element_value.h"
#include "tests_custom.h"

#include <libcore/autograd.h>
#include <libcore/dispatch.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 4096, NUMBERS = OWN_NUMBERS, REASON = 160 };

/* The sizes of all operands, the last for kernels with large tiles. */
static const struct {
    uint32_t ndim;
    int64_t sizes[3];
} shapes[] = {{1, {11}},      {1, {16}},   {2, {2, 3}},   {2, {3, 2}},
              {2, {11, 3}},   {2, {4, 4}}, {2, {16, 2}},  {1, {64}},
              {3, {2, 3, 4}}, {0, {0}},    {2, {5, 131}}, {1, {0}},
              {2, {256, 16}}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static const double floats[NUMBERS] = {1.25, -.75, 3, 0, 100};
static const int64_t ints[NUMBERS] = {1, 0, 2, -1, 3};

/* The results of a call, as numbers. */
typedef struct numbers {
    uint32_t count; /* of results */
    core_dtype dtype[OWN_RESULTS];
    uint32_t ndim[OWN_RESULTS];
    int64_t sizes[OWN_RESULTS][8];
    int64_t numel[OWN_RESULTS];
    double *values[OWN_RESULTS];
} numbers;

static void numbers_free(numbers *self)
{
    for (uint32_t r = 0; r < OWN_RESULTS; r++)
        free(self->values[r]);
    memset(self, 0, sizeof *self);
}

static core_status read_one(numbers *self, uint32_t r, core_tensor *from)
{
    size_t numel = (size_t)core_tensor_numel(from);
    core_dtype dtype = core_tensor_dtype(from);
    size_t size = core_dtype_size(dtype);
    unsigned char *bytes = malloc(numel * size + 1);
    core_status status = CORE_ERROR_OUT_OF_MEMORY;

    self->dtype[r] = dtype;
    self->ndim[r] = (uint32_t)core_tensor_ndim(from);
    for (uint32_t d = 0; d < self->ndim[r] && d < 8; d++)
        self->sizes[r][d] = core_tensor_sizes(from)[d];
    self->numel[r] = (int64_t)numel;
    self->values[r] = malloc((numel + 1) * sizeof *self->values[r]);
    if (bytes && self->values[r])
        status = core_tensor_read(from, bytes, numel * size);
    for (size_t i = 0; status == CORE_OK && i < numel; i++)
        self->values[r][i] = element_load(dtype, bytes + i * size);
    free(bytes);
    return status;
}

/* Element i of operand k: of both signs. */
static double element(const suite *self, uint32_t k, int64_t i)
{
    uint64_t random =
        suite_random(self, "own operands", k * MOST + (uint64_t)i);

    return (double)(random >> 11) * 0x1p-51 - 2;
}

static core_status make_operands(const suite *self, own_call *call,
                                 core_device *device, size_t shape,
                                 core_dtype dtype)
{
    static unsigned char bytes[MOST * 8];
    int64_t numel = 1;

    for (uint32_t d = 0; d < shapes[shape].ndim; d++)
        numel *= shapes[shape].sizes[d];
    for (uint32_t k = 0; k < call->nargs; k++) {
        core_tensor **tensor = &call->tensors[call->ntensors];

        if (call->args[k].tag != CORE_VALUE_TENSOR)
            continue;
        for (int64_t i = 0; i < numel; i++)
            element_store(dtype, element(self, k, i),
                          bytes + (size_t)i * core_dtype_size(dtype));
        CORE_TRY(core_tensor_from_data(bytes, dtype, shapes[shape].sizes,
                                       shapes[shape].ndim, device, tensor));
        call->args[k].u.tensor = *tensor;
        call->ntensors++;
    }
    return CORE_OK;
}

/* Makes a call on a device; *out is empty if it fails. */
static core_status call_on(const suite *self, own_call *call,
                           core_device *device, size_t shape, core_dtype dtype,
                           numbers *out)
{
    core_value results[OWN_RESULTS];
    core_status status;

    memset(out, 0, sizeof *out);
    memset(results, 0, sizeof results);
    status = make_operands(self, call, device, shape, dtype);
    if (status == CORE_OK)
        status = core_op_call(call->op, call->args, call->nargs, results,
                              call->nresults);
    for (uint32_t r = 0; status == CORE_OK && r < OWN_RESULTS; r++)
        if (results[r].tag == CORE_VALUE_TENSOR)
            status = read_one(out, out->count++, results[r].u.tensor);
    for (uint32_t r = 0; r < OWN_RESULTS; r++)
        core_value_release(&results[r]);
    while (call->ntensors > 0)
        core_tensor_release(call->tensors[--call->ntensors]);
    if (status != CORE_OK)
        numbers_free(out);
    return status;
}

bool own_is_number(const core_value *value)
{
    return value->tag == CORE_VALUE_FLOAT || value->tag == CORE_VALUE_INT ||
           value->tag == CORE_VALUE_BOOL;
}

bool own_set_number(core_value *value, int n)
{
    if (value->tag == CORE_VALUE_FLOAT)
        value->u.f = floats[n];
    else if (value->tag == CORE_VALUE_INT)
        value->u.i = ints[n];
    else
        value->u.i = n == 0;
    return value->tag != CORE_VALUE_BOOL || n < 2;
}

const char *own_describe(const own_call *call, char *text, size_t size)
{
    size_t used = 0;

    text[0] = 0;
    for (uint32_t k = 0; k < call->nargs && used < size; k++) {
        const core_value *value = &call->args[k];
        double number =
            value->tag == CORE_VALUE_FLOAT ? value->u.f : (double)value->u.i;

        if (own_is_number(value))
            used += (size_t)snprintf(text + used, size - used, ", %s %g",
                                     call->names[k], number);
    }
    return text;
}

static const char *sizes_of(size_t shape, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "[");

    for (uint32_t d = 0; d < shapes[shape].ndim; d++)
        used +=
            (size_t)snprintf(text + used, size - used, "%s%lld", d ? ", " : "",
                             (long long)shapes[shape].sizes[d]);
    snprintf(text + used, size - used, "]");
    return text;
}

/* Copies a call for changes of its numbers. */
static own_call with_numbers(const own_call *call)
{
    own_call copy = {.op = call->op};

    own_call_parse(&copy, true);
    return copy;
}

/* --------------------------------------------------------- beside the cpu -- */

static bool same_shape(const numbers *a, const numbers *b, uint32_t r)
{
    return a->dtype[r] == b->dtype[r] && a->ndim[r] == b->ndim[r] &&
           memcmp(a->sizes[r], b->sizes[r], sizeof a->sizes[r]) == 0;
}

static double largest_of(const numbers *from, uint32_t r)
{
    double largest = 2; /* of the operands */

    for (int64_t i = 0; i < from->numel[r]; i++)
        if (isfinite(from->values[r][i]) && fabs(from->values[r][i]) > largest)
            largest = fabs(from->values[r][i]);
    return largest;
}

static double bound_of(const suite *self, const numbers *wanted, uint32_t r)
{
    core_dtype dtype = wanted->dtype[r];
    double relative = 16 * dtype_epsilon(dtype);

    if (!core_dtype_is_floating(dtype))
        return 0;
    if (dtype == CORE_F32 && 4 * own_relative_error(self) > relative)
        relative = 4 * own_relative_error(self);
    return relative * largest_of(wanted, r);
}

static bool agree(const suite *self, outcome *out, const own_call *call,
                  size_t shape, const numbers *got, const numbers *wanted)
{
    char sizes[60], text[200];
    const char *name = core_op_name(call->op);

    sizes_of(shape, sizes, sizeof sizes);
    own_describe(call, text, sizeof text);
    if (!expect(out, got->count == wanted->count,
                "%s of %s%s: the device has %u results, the plugin's function "
                "or kernel for cpu %u",
                name, sizes, text, got->count, wanted->count))
        return false;
    for (uint32_t r = 0; r < got->count; r++) {
        double bound = bound_of(self, wanted, r);

        if (!expect(out, same_shape(got, wanted, r),
                    "%s of %s%s: result %u has other sizes or another dtype "
                    "than with the plugin's function or kernel for cpu",
                    name, sizes, text, r))
            return false;
        for (int64_t i = 0; i < got->numel[r]; i++) {
            double is = got->values[r][i], be = wanted->values[r][i];
            bool good =
                is == be || (isnan(is) && isnan(be)) || fabs(is - be) <= bound;

            if (!expect(out, good,
                        "%s of %s %s%s: result %u, element %lld: the device "
                        "has %.9g, the plugin's function or kernel for cpu "
                        "%.9g",
                        name, core_dtype_name(wanted->dtype[r]), sizes, text, r,
                        (long long)i, is, be))
                return false;
        }
    }
    return true;
}

static bool identical(const numbers *a, const numbers *b)
{
    if (a->count != b->count)
        return false;
    for (uint32_t r = 0; r < a->count; r++)
        if (!same_shape(a, b, r) ||
            memcmp(a->values[r], b->values[r],
                   (size_t)a->numel[r] * sizeof *a->values[r]) != 0)
            return false;
    return true;
}

typedef enum comparison { COMPARED, REFUSED, NO_REFERENCE, RANDOM } comparison;

static comparison compare(suite *self, outcome *out, own_call *call,
                          size_t shape, core_dtype dtype)
{
    numbers got, wanted, again;
    core_status status = call_on(self, call, self->host, shape, dtype, &wanted);
    comparison how = status == CORE_OK                ? COMPARED
                     : status == CORE_ERROR_NO_KERNEL ? NO_REFERENCE
                                                      : REFUSED;

    memset(&again, 0, sizeof again);
    memset(&got, 0, sizeof got);
    if (how == COMPARED &&
        call_on(self, call, self->host, shape, dtype, &again) == CORE_OK &&
        !identical(&wanted, &again))
        how = RANDOM;
    if (how == COMPARED &&
        call_on(self, call, self->device, shape, dtype, &got) != CORE_OK)
        how = REFUSED;
    if (how == COMPARED)
        agree(self, out, call, shape, &got, &wanted);
    core_error_clear();
    numbers_free(&wanted);
    numbers_free(&again);
    numbers_free(&got);
    return how;
}

/* With the first numbers, then with one changed at a time. */
static bool compare_all(suite *self, outcome *out, own_call *call,
                        core_dtype dtype, uint32_t counts[4])
{
    for (size_t shape = 0; shape < SHAPES; shape++) {
        own_call varied = with_numbers(call);

        counts[compare(self, out, &varied, shape, dtype)]++;
        for (uint32_t k = 0; k < varied.nargs; k++) {
            core_value before = varied.args[k];

            if (!own_is_number(&before))
                continue;
            for (int n = 0; n < NUMBERS && out->verdict == VERDICT_PASS &&
                            own_set_number(&varied.args[k], n);
                 n++)
                counts[compare(self, out, &varied, shape, dtype)]++;
            varied.args[k] = before;
        }
        if (out->verdict != VERDICT_PASS)
            return false;
    }
    return true;
}

static bool agrees_with_cpu(suite *self, outcome *out, own_call *call,
                            bool gradient)
{
    uint32_t counts[4] = {0};

    (void)gradient;
    if (compare_all(self, out, call, CORE_F32, counts))
        compare_all(self, out, call, CORE_F64, counts);
    if (counts[COMPARED] == 0)
        call->unchecked =
            counts[RANDOM] > 0 ? "its results are random"
            : counts[NO_REFERENCE] > 0
                ? "the plugin has neither a function nor a kernel of it for "
                  "cpu, which would be a reference"
                : "no call was accepted";
    return counts[COMPARED] > 0;
}

void own_results_agree_with_cpu(suite *self, outcome *out, const test *one)
{
    (void)one;
    own_operators_check(self, out, agrees_with_cpu, 0);
}

/* ---------------------------------------------------------------- numbers -- */

/* What calls that differ in one number have shown. */
typedef enum effect { UNKNOWN, NONE, SOME } effect;

static effect effect_of(suite *self, own_call *call, uint32_t k, size_t shape,
                        core_dtype dtype)
{
    core_value before = call->args[k];
    numbers first, other;
    effect found = UNKNOWN;
    bool has_first = false;

    memset(&first, 0, sizeof first);
    for (int n = 0;
         n < NUMBERS && found != SOME && own_set_number(&call->args[k], n);
         n++) {
        if (call_on(self, call, self->device, shape, dtype, &other) != CORE_OK)
            continue;
        if (has_first) {
            found = identical(&first, &other) ? NONE : SOME;
            numbers_free(&other);
        } else {
            first = other;
            has_first = true;
        }
    }
    call->args[k] = before;
    numbers_free(&first);
    core_error_clear();
    return found;
}

static bool numbers_change_results(suite *self, outcome *out, own_call *call,
                                   bool gradient)
{
    static char reason[REASON];
    own_call varied = with_numbers(call);
    bool checked = false;

    (void)gradient;
    for (uint32_t k = 0; k < varied.nargs && out->verdict == VERDICT_PASS;
         k++) {
        effect all = UNKNOWN;

        if (!own_is_number(&varied.args[k]))
            continue;
        for (size_t shape = 0; all != SOME && shape < 2 * SHAPES; shape++) {
            effect one = effect_of(self, &varied, k, shape / 2,
                                   shape % 2 ? CORE_F64 : CORE_F32);

            all = one != UNKNOWN ? one : all;
        }
        checked |= all != UNKNOWN;
        /* Sizes of blocks and flags may be hints. */
        if (all == NONE && varied.args[k].tag != CORE_VALUE_FLOAT) {
            snprintf(reason, sizeof reason,
                     "its argument %s, which changed no result",
                     varied.names[k]);
            call->unchecked = reason;
            continue;
        }
        expect(out, all != NONE,
               "%s: the argument %s has no effect: 1.25, -0.75, 3, 0 and 100 "
               "give the same results with operands of both signs; the kernel "
               "may ignore it",
               core_op_name(call->op), varied.names[k]);
    }
    return checked;
}

void own_numbers_matter(suite *self, outcome *out, const test *one)
{
    (void)one;
    own_operators_check(self, out, numbers_change_results, 0);
}
