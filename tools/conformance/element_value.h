/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* element_value.h: conversion of elements of every dtype to and from double.
 * It does not use libcore's conversions, so that libcore is not tested against
 * itself. */

#ifndef CONFORMANCE_ELEMENT_VALUE_H
#define CONFORMANCE_ELEMENT_VALUE_H

#include <libcore/tensor.h>

/* Rounds to nearest, ties to even; integers are truncated and wrap. */
void element_store(core_dtype dtype, double value, void *to);
double element_load(core_dtype dtype, const void *from);
/* Returns the value as the dtype represents it. */
double element_rounded(core_dtype dtype, double value);
/* Returns the distance from 1 to the next number; 0 for integers. */
double dtype_epsilon(core_dtype dtype);
/* Returns the smallest positive normal number. */
double dtype_min_normal(core_dtype dtype);
/* Returns the largest finite number; 0 for integers. */
double dtype_largest(core_dtype dtype);

#endif
