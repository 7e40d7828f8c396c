/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* formulas.h: what the gradient formulas of ops.yaml are made of, besides
 * operators: reading saved values, and the helpers that ops.yaml declares
 * under `helpers:`.  A helper is made of differentiable operators, so that the
 * gradients of gradients come by themselves. */

#ifndef CORE_AUTOGRAD_FORMULAS_H
#define CORE_AUTOGRAD_FORMULAS_H

#include "autograd/gradient.h"

#include <libcore/ops.h>

#include <string.h>

/* -------------------------------------------------------- saved values -- */

static inline core_tensor *core__saved_tensor(const core_value *value)
{
    return value->tag == CORE_VALUE_TENSOR ? value->u.tensor : NULL;
}

static inline double core__scalar_double(core_scalar scalar)
{
    return scalar.tag == CORE_VALUE_FLOAT ? scalar.u.f : (double)scalar.u.i;
}

static inline core_dtype core__saved_dtype(const core_value *value)
{
    return value->tag == CORE_VALUE_DTYPE ? (core_dtype)value->u.i
                                          : CORE_DTYPE_NONE;
}

/* A list of numbers may have been given as one number. */
static inline const int64_t *core__saved_ints(const core_value *value)
{
    if (value->tag == CORE_VALUE_INT)
        return &value->u.i;
    return value->tag == CORE_VALUE_INT_LIST ? value->u.ints : NULL;
}

static inline const double *core__saved_floats(const core_value *value)
{
    if (value->tag == CORE_VALUE_FLOAT)
        return &value->u.f;
    return value->tag == CORE_VALUE_FLOAT_LIST ? value->u.floats : NULL;
}

static inline const uint8_t *core__saved_bools(const core_value *value)
{
    return value->tag == CORE_VALUE_BOOL_LIST ? value->u.bools : NULL;
}

static inline size_t core__saved_count(const core_value *value)
{
    if (value->tag == CORE_VALUE_INT || value->tag == CORE_VALUE_FLOAT)
        return 1;
    return value->tag == CORE_VALUE_NONE ? 0 : value->count;
}

static inline const char *core__saved_string(const core_value *value)
{
    return value->tag == CORE_VALUE_STRING ? value->u.string : NULL;
}

static inline const core_scalar *
core__saved_scalar_optional(const core_value *value)
{
    return value->tag == CORE_VALUE_NONE ? NULL : value;
}

static inline const int64_t *core__saved_int_optional(const core_value *value)
{
    return value->tag == CORE_VALUE_NONE ? NULL : &value->u.i;
}

static inline const double *core__saved_float_optional(const core_value *value)
{
    return value->tag == CORE_VALUE_NONE ? NULL : &value->u.f;
}

/* NULL is no text. */
static inline bool core__same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

/* A new reference; takes NULL. */
static inline core_tensor *core__formula_same(core_tensor *tensor)
{
    if (tensor)
        core__tensor_retain(tensor);
    return tensor;
}

#endif
