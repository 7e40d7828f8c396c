/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "bounds.h"

#include "element_value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Nothing that a device declares goes beyond these. */
enum {
    UNITS = 4,
    UNITS_CAP = 16,
    SUM_UNITS = 16,
    HALF_UNITS = 2,
    NARROW = 4, /* times as far where f16 or bf16 is summed as it is */
    PRODUCT_BITS = 11
};

/* The number behind "key=" in a list with commas; `otherwise` without. */
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

/* What the plugin says of one function, or of all. */
static double units_of(const suite *self, const core_operator *op)
{
    double units = declared(self->information.features, "ulp=", UNITS);
    double told;

    if (core_device_function_ulp(self->device, core_op_name(op), CORE_F32,
                                 &told) == CORE_OK &&
        told > units)
        units = told;
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

/* What an element may differ by. */
static double allowance(const bounds *self, const words *call,
                        const reference *wanted, core_dtype dtype, double want)
{
    const char *op = core_op_name(call->op);
    double eps = number_epsilon(dtype);
    double units = is_half(dtype) ? HALF_UNITS : self->units;

    double flushed =
        self->flushes & CORE_DTYPE_MASK(dtype) ? number_least(dtype) : 0;

    if (wanted->relative)
        return units * eps * fabs(want) + units * eps * number_least(dtype) +
               flushed;
    if (self->product_eps > 0 && dtype == CORE_F32 && is_product(op))
        eps = self->product_eps;
    units = is_half(dtype) ? 2 * HALF_UNITS : self->sum_units;
    if (is_half(dtype) && self->narrow & CORE_DTYPE_MASK(dtype))
        units *= NARROW;
    /* Special functions are sums of long series, here and in the reference. */
    if (!wanted->own && (strncmp(op, "special_", 8) == 0 || dtype == CORE_F64))
        units *= 8;
    return units * eps * (fabs(want) + wanted->scale) + flushed;
}

static bool same(double got, double want)
{
    return got == want || (isnan(got) && isnan(want));
}

bool bounds_hold(const bounds *allowed, const words *call,
                 const reference *wanted, uint32_t r, const double *got,
                 outcome *out)
{
    core_dtype dtype = wanted->dtypes[r];
    bool floating = core_dtype_is_floating(dtype);

    for (int64_t i = 0; i < wanted->numel[r]; i++) {
        double want = number_rounded(dtype, wanted->values[r][i]);
        double room;

        if (same(got[i], want))
            continue;
        if (!floating || wanted->exact || isnan(got[i]) || isnan(want))
            return expect(out, false,
                          "result %u, element %lld: got %.17g, want %.17g", r,
                          (long long)i, got[i], want);
        room = allowance(allowed, call, wanted, dtype, wanted->values[r][i]);
        if (isinf(got[i]) || isinf(want)) {
            /* At the edge of the range either is near. */
            double finite = isinf(want) ? got[i] : want;

            if (!expect(out,
                        !isinf(finite) && signbit(got[i]) == signbit(want) &&
                            isinf(number_rounded(dtype, finite * 1.01)),
                        "result %u, element %lld: got %g, want %g", r,
                        (long long)i, got[i], want))
                return false;
            continue;
        }
        note_error(out, fabs(got[i] - wanted->values[r][i]) / room);
        if (!expect(out, fabs(got[i] - wanted->values[r][i]) <= room,
                    "result %u, element %lld: got %.9g, want %.9g, which is "
                    "%.1f times the bound",
                    r, (long long)i, got[i], want,
                    fabs(got[i] - wanted->values[r][i]) / room))
            return false;
    }
    return true;
}
