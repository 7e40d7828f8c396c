/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* element_value.h: elements of every dtype as numbers, written again here so that the
 * suite does not judge libcore by libcore. */

#ifndef CONFORMANCE_NUMBER_H
#define CONFORMANCE_NUMBER_H

#include <libcore/tensor.h>

/* Rounds to nearest, ties to even; integers are cut and wrap. */
void number_store(core_dtype dtype, double value, void *to);
double number_load(core_dtype dtype, const void *from);
/* What of a value is left in a dtype. */
double number_rounded(core_dtype dtype, double value);
/* Distance of 1 to the next; 0 for integers. */
double number_epsilon(core_dtype dtype);
/* The smallest that is not denormal. */
double number_least(core_dtype dtype);

#endif
