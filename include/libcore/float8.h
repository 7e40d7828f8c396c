/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* float8.h: the 8-bit floating dtypes.
 *
 * CORE_F8E4M3 has 3 bits of mantissa, a maximum of 448 and no infinity.
 * CORE_F8E5M2 has 2 bits of mantissa, a maximum of 57344 and infinity (OCP
 * 8-bit Floating Point Specification 1.0, 2023).  Both are storage formats:
 * tensors of these dtypes can be created, viewed, copied, filled, printed,
 * saved and converted to and from other dtypes.  Operators that compute return
 * DTYPE, and no dtype is promoted to or from them implicitly.
 *
 * A conversion (core_to, core_copy_) rounds to nearest, ties to even, in one
 * step even from f64.  A value above the maximum becomes NaN in f8e4m3 and
 * infinity in f8e5m2.  core_float8_cast has other modes.
 *
 * On a device without kernels for them, libcore fills and copies the bytes, and
 * converts by operators on integers: with the same result, but more slowly, and
 * without waiting for the device.
 *
 * Every function here is thread-safe. */

#ifndef LIBCORE_FLOAT8_H
#define LIBCORE_FLOAT8_H

#include "random.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Flags of core_float8_cast. */
enum {
    /* Clamp values above the maximum, including infinity, to the largest number
     * of their sign.  NaN stays NaN. */
    CORE_FLOAT8_SATURATE = 1u << 0,
    /* Round up or down at random, with the probabilities that preserve the
     * mean, by 32 random bits per element.  f64 is first rounded to f32. */
    CORE_FLOAT8_STOCHASTIC = 1u << 1
};

/* Converts a floating tensor to CORE_F8E4M3 or CORE_F8E5M2.  The caller owns
 * one reference to *out_tensor.  Not recorded by autograd.  flags:
 * CORE_FLOAT8_….  generator: for CORE_FLOAT8_STOCHASTIC; NULL: the default
 * generator.  DTYPE for other dtypes. */
core_status core_float8_cast(core_tensor *tensor, core_dtype dtype,
                             uint32_t flags, core_generator *generator,
                             core_tensor **out_tensor);

/* Returns the maximum of an 8-bit floating dtype, 448 or 57344, or 0 for
 * another dtype. */
double core_float8_max(core_dtype dtype);

#ifdef __cplusplus
}
#endif

#endif
