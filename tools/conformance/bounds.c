/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "bounds.h"

#include "element_value.h"
#include "operators.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Upper limits of what a device may declare. */
enum {
    UNITS = 4,
    UNITS_CAP = 16,
    SUM_UNITS = 16,
    HALF_UNITS = 2,
    NARROW = 4, /* factor where f16 or bf16 is accumulated as such */
    PRODUCT_BITS = 11,
    LONG = 9216 /* elements; shorter sums have the same bound */
};

/* Returns the number after "key=" in a comma-separated list, or `otherwise`. */
static double declared(core_string features, const char *key, double otherwise)
{
    size_t size = strlen(key);

    for (uint64_t i = 0; i + size < features.size; i++)
        if ((i == 0 || features.data[i - 1] == ',') &&
            memcmp(features.data + i, key, size) == 0)
            return strtod(features.data + i + size, NULL);
    return otherwise;
}

static bool declares(core_string features, const char *what)
{
    size_t size = strlen(what);

    for (uint64_t i = 0; i + size <= features.size; i++)
        if ((i == 0 || features.data[i - 1] == ',') &&
            memcmp(features.data + i, what, size) == 0 &&
            (i + size == features.size || features.data[i + size] == ','))
            return true;
    return false;
}

/* The larger of what the plugin declares for all functions and for this one. */
static double units_of(const suite *self, const core_operator *op)
{
    double units = declared(self->information.features, "ulp=", UNITS);
    double reported;

    if (core_device_function_ulp(self->device, core_op_name(op), CORE_F32,
                                 &reported) == CORE_OK &&
        reported > units)
        units = reported;
    return !(units >= UNITS) ? UNITS : units > UNITS_CAP ? UNITS_CAP : units;
}

bounds bounds_of(const suite *self, const core_operator *op)
{
    uint32_t bits = self->numerics.product_bits;
    bounds result = {.units = units_of(self, op),
                     .sum_units = SUM_UNITS,
                     .flushes = self->numerics.flushes_denormals,
                     .narrow = self->numerics.narrow_sums};

    if ((bits > 0 && bits < 24) ||
        declares(self->information.features, "matmul=tf32"))
        result.product_eps =
            ldexp(1, 1 - (bits > PRODUCT_BITS ? (int)bits : PRODUCT_BITS));
    return result;
}

static bool is_half(core_dtype dtype)
{
    return dtype == CORE_F16 || dtype == CORE_BF16;
}

static bool is_product(const char *op)
{
    static const char *const names[] = {"mm",
                                        "bmm",
                                        "addmm",
                                        "addbmm",
                                        "baddbmm",
                                        "mv",
                                        "addmv",
                                        "dot",
                                        "vdot",
                                        "convolution",
                                        "convolution_backward"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(op, names[i]) == 0)
            return true;
    return false;
}

/* Errors of sums of more than LONG numbers grow with their number; those of
 * positions in an image with its size.  f16 and bf16 are summed in f32. */
static double growth(const sample_call *call, core_dtype dtype)
{
    int64_t numel = 0, size = 0;

    for (uint32_t k = 0; k < call->noperands; k++) {
        const operand *one = &call->operands[k];

        numel = one->numel > numel ? one->numel : numel;
        for (uint32_t d = 0; d < one->ndim; d++)
            size = one->sizes[d] > size ? one->sizes[d] : size;
    }
    if (strncmp(core_op_name(call->op), "grid_sampler", 12) == 0)
        return size > 8 ? (double)size / 8 : 1;
    return numel > LONG && !is_half(dtype) ? (double)numel / 4096 : 1;
}

/* What a result may lose where subnormal numbers become 0. */
static double flushed(const bounds *self, core_dtype dtype)
{
    return self->flushes & CORE_DTYPE_MASK(dtype) ? dtype_min_normal(dtype) : 0;
}

/* The units of a sum in the dtype. */
static double units_of_sum(const bounds *self, core_dtype dtype)
{
    bool narrow = self->narrow & CORE_DTYPE_MASK(dtype);

    return !is_half(dtype) ? self->sum_units
                           : 2 * HALF_UNITS * (narrow ? NARROW : 1);
}

double bounds_of_element(const bounds *self, core_dtype dtype, double want)
{
    double units = is_half(dtype) ? HALF_UNITS : self->units;

    return units * dtype_epsilon(dtype) *
               (fabs(want) + dtype_min_normal(dtype)) +
           flushed(self, dtype);
}

double bounds_of_sum(const bounds *self, core_dtype dtype, double want)
{
    return units_of_sum(self, dtype) * dtype_epsilon(dtype) * 2 * fabs(want) +
           flushed(self, dtype);
}

/* The allowed difference of one element. */
static double allowance(const bounds *self, const sample_call *call,
                        const reference *wanted, core_dtype dtype, double want)
{
    const char *op = core_op_name(call->op);
    double eps = dtype_epsilon(dtype), units = units_of_sum(self, dtype);

    if (wanted->relative)
        return bounds_of_element(self, dtype, want);
    if (self->product_eps > 0 && dtype == CORE_F32 && is_product(op))
        eps = self->product_eps;
    /* Special functions are long series, here and in the reference. */
    if (!wanted->own && (strncmp(op, "special_", 8) == 0 || dtype == CORE_F64))
        units *= 8;
    return units * growth(call, dtype) * eps * (fabs(want) + wanted->scale) +
           wanted->margin + flushed(self, dtype);
}

/* Writes two different numbers with as few digits as show that. */
static const char *difference(char *text, size_t size, double got, double want)
{
    char other[40];

    for (int digits = 9; digits <= 17; digits += 8) {
        snprintf(text, size, "%.*g", digits, got);
        snprintf(other, sizeof other, "%.*g", digits, want);
        if (strcmp(text, other) != 0)
            break;
    }
    snprintf(text + strlen(text), size - strlen(text), ", expected %s", other);
    return text;
}

/* Tests whether a result is 0 where it should be subnormal. */
static bool was_flushed(core_dtype dtype, double got, double want)
{
    return got == 0 && want != 0 && fabs(want) < dtype_min_normal(dtype);
}

/* Reports the sign of a zero; if the device flushes subnormal numbers it does
 * not declare that, which is why the sign is wrong. */
static bool fail_zero(const reference *wanted, uint32_t r, const double *got,
                      int64_t i, outcome *out)
{
    core_dtype dtype = wanted->dtypes[r];

    for (int64_t k = 0; k < wanted->numel[r]; k++) {
        double want = element_rounded(dtype, wanted->values[r][k]);

        if (was_flushed(dtype, got[k], want))
            return expect(out, false,
                          "result %u, element %lld: got %g, expected %.9g: "
                          "subnormal numbers become 0, which the device does "
                          "not declare (flushes_denormals)",
                          r, (long long)k, got[k], want);
    }
    return expect(out, false,
                  "result %u, element %lld: got %g, expected %g: the sign of "
                  "zero is wrong",
                  r, (long long)i, got[i],
                  element_rounded(dtype, wanted->values[r][i]));
}

static bool same(const reference *wanted, double got, double want)
{
    return (got == want &&
            (!wanted->zeros || want != 0 || !signbit(got) == !signbit(want))) ||
           (isnan(got) && isnan(want));
}

/* An element that is what the memory was filled with. */
static const char *if_unwritten(core_dtype dtype, double got)
{
    unsigned char pattern[8];

    memset(pattern, OPERATORS_POISON, sizeof pattern);
    return core_dtype_is_floating(dtype) && element_load(dtype, pattern) == got
               ? ": that is what the memory was filled with before the call, "
                 "so "
                 "the element was not written, or not before the result was "
                 "read"
               : "";
}

bool bounds_hold(const bounds *allowed, const sample_call *call,
                 const reference *wanted, uint32_t r, const double *got,
                 outcome *out)
{
    core_dtype dtype = wanted->dtypes[r];
    bool floating = core_dtype_is_floating(dtype);
    char text[100];

    for (int64_t i = 0; i < wanted->numel[r]; i++) {
        double want = element_rounded(dtype, wanted->values[r][i]);
        double limit;

        if (same(wanted, got[i], want))
            continue;
        /* Numbers that were flushed, too. */
        if (got[i] == 0 && want == 0 &&
            !(allowed->flushes & CORE_DTYPE_MASK(dtype)))
            return fail_zero(wanted, r, got, i, out);
        if (!floating || wanted->exact || isnan(got[i]) || isnan(want))
            return expect(out, false,
                          "result %u, element %lld: got %.17g, expected "
                          "%.17g%s",
                          r, (long long)i, got[i], want,
                          if_unwritten(dtype, got[i]));
        limit = allowance(allowed, call, wanted, dtype, wanted->values[r][i]);
        if (isinf(got[i]) || isinf(want)) {
            /* At the edge of the range both a finite value and infinity are
             * accepted. */
            double finite = isinf(want) ? got[i] : want;

            if (!expect(out,
                        !isinf(finite) && signbit(got[i]) == signbit(want) &&
                            isinf(element_rounded(dtype, finite * 1.01)),
                        "result %u, element %lld: got %g, expected %g", r,
                        (long long)i, got[i], want))
                return false;
            continue;
        }
        note_error(out, fabs(got[i] - wanted->values[r][i]) / limit);
        if (!(fabs(got[i] - wanted->values[r][i]) <= limit))
            return expect(out, false,
                          "result %u, element %lld: got %s, which is %.1f "
                          "times the bound%s",
                          r, (long long)i,
                          difference(text, sizeof text, got[i], want),
                          fabs(got[i] - wanted->values[r][i]) / limit,
                          if_unwritten(dtype, got[i]));
    }
    return true;
}
