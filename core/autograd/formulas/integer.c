/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Integer arithmetic of gradient formulas. */

#include "autograd/formulas/formulas.h"

static core_status too_large(int64_t a, const char *symbol, int64_t b)
{
    return core__error(CORE_ERROR_UNSUPPORTED,
                       "the derivative needs %lld %s %lld, which is not a "
                       "64-bit integer",
                       (long long)a, symbol, (long long)b);
}

core_status core__formula_int_add(int64_t a, int64_t b, int64_t *out)
{
    return __builtin_add_overflow(a, b, out) ? too_large(a, "+", b) : CORE_OK;
}

core_status core__formula_int_sub(int64_t a, int64_t b, int64_t *out)
{
    return __builtin_sub_overflow(a, b, out) ? too_large(a, "-", b) : CORE_OK;
}

core_status core__formula_int_mul(int64_t a, int64_t b, int64_t *out)
{
    return __builtin_mul_overflow(a, b, out) ? too_large(a, "*", b) : CORE_OK;
}
