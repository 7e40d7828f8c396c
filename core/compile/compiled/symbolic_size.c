/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Forms of numbers. */

#include "compile/compiled/symbolic_size.h"

#include <string.h>

/* False: it is too large, or there is a remainder. */
static bool evaluate(const core__symbolic_size *f, const int64_t *symbols,
                     int64_t *out)
{
    int64_t product = 1;

    for (uint32_t i = 0; i < f->nfactors; i++)
        if (__builtin_mul_overflow(product, symbols[f->factors[i]], &product))
            return false;
    if (!f->divisor)
        return !__builtin_add_overflow(product, f->constant, out);
    if (__builtin_mul_overflow(product, f->constant, &product))
        return false;
    *out = product / f->divisor;
    return product % f->divisor == 0;
}

/* False: there are too many. */
static bool add_form(core__dynamic_number *v, core__symbolic_size f,
                     int64_t constant, int64_t divisor)
{
    if (v->nforms == CORE__NUMBER_FORMS)
        return false;
    f.constant = constant;
    f.divisor = divisor;
    v->forms[v->nforms++] = f;
    return true;
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;

        a = b;
        b = rest;
    }
    return a < 0 ? -a : a;
}

/* Adds the forms with these factors that give a and b. */
static bool add_forms(const core__sizes_seen *sizes, const uint32_t *factors,
                      uint32_t count, int64_t a, int64_t b,
                      core__dynamic_number *v)
{
    int64_t x = 1, y = 1, common, to, from;
    core__symbolic_size f = {.nfactors = (uint8_t)count};

    for (uint32_t i = 0; i < count; i++) {
        f.factors[i] = (uint8_t)factors[i];
        if (__builtin_mul_overflow(x, sizes->symbols[factors[i]].first, &x) ||
            __builtin_mul_overflow(y, sizes->symbols[factors[i]].second, &y))
            return true;
    }
    common = common_divisor(a, x);
    if (!__builtin_mul_overflow(y, a / common, &to) &&
        !__builtin_mul_overflow(b, x / common, &from) && to == from)
        return add_form(v, f, a / common, x / common);
    return a - x != b - y || add_form(v, f, a - x, 0);
}

/* All forms that explain an integer; false: none, or too many. */
static bool find_forms(const core__sizes_seen *sizes, int64_t a, int64_t b,
                       core__dynamic_number *v)
{
    uint32_t n = sizes->count, f[CORE__FORM_FACTORS];
    bool good = true;

    for (f[0] = 0; f[0] < n && good; f[0]++) {
        good = add_forms(sizes, f, 1, a, b, v);
        for (f[1] = f[0]; f[1] < n && good; f[1]++) {
            good = add_forms(sizes, f, 2, a, b, v);
            for (f[2] = f[1]; f[2] < n && good; f[2]++)
                good = add_forms(sizes, f, 3, a, b, v);
        }
    }
    return good && v->nforms;
}

static double as_float(int64_t bits)
{
    double value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The integer that a floating number is, or is 1 by. */
static bool as_integer(double value, bool reciprocal, int64_t *out)
{
    double integer = reciprocal ? 1 / value : value;

    if (!(integer > -1e15 && integer < 1e15))
        return false;
    *out = (int64_t)(integer + (integer < 0 ? -.5 : .5));
    return reciprocal ? *out != 0 && 1 / (double)*out == value
                      : (double)*out == value;
}

bool core__dynamic_explain(const core__sizes_seen *sizes,
                           const core__recorded_number *a,
                           const core__recorded_number *b,
                           core__dynamic_number *v)
{
    int64_t x, y;

    if (!a->is_float)
        return find_forms(sizes, a->value, b->value, v);
    for (int reciprocal = 0; reciprocal < 2; reciprocal++) {
        v->kind = reciprocal ? CORE__NUMBER_RECIPROCAL : CORE__NUMBER_FLOAT;
        v->nforms = 0;
        if (as_integer(as_float(a->value), reciprocal, &x) &&
            as_integer(as_float(b->value), reciprocal, &y) &&
            find_forms(sizes, x, y, v))
            return true;
    }
    return false;
}

bool core__dynamic_value(const core__dynamic_number *v, const int64_t *symbols,
                         int64_t *out)
{
    double value;
    int64_t other;

    if (!evaluate(&v->forms[0], symbols, out))
        return false;
    for (uint32_t i = 1; i < v->nforms; i++)
        if (!evaluate(&v->forms[i], symbols, &other) || other != *out)
            return false;
    if (v->kind == CORE__NUMBER_INTEGER)
        return true;
    value = v->kind == CORE__NUMBER_FLOAT ? (double)*out : 1 / (double)*out;
    memcpy(out, &value, sizeof value);
    return true;
}

bool core__dynamic_keep(core__dynamic_number *v, const int64_t *symbols,
                        const core__recorded_number *found)
{
    int64_t wanted = found->value, value;
    uint32_t kept = 0;

    if (v->kind != CORE__NUMBER_INTEGER &&
        !as_integer(as_float(found->value), v->kind == CORE__NUMBER_RECIPROCAL,
                    &wanted))
        return false;
    for (uint32_t i = 0; i < v->nforms; i++)
        if (evaluate(&v->forms[i], symbols, &value) && value == wanted)
            v->forms[kept++] = v->forms[i];
    v->nforms = (uint8_t)kept;
    return kept > 0;
}
