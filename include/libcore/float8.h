/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* float8.h: values of eight bits.
 *
 * CORE_F8E4M3 has 3 bits of mantissa, goes up to 448 and has no infinity;
 * CORE_F8E5M2 has 2, goes up to 57344 and has one (OCP 8-bit Floating Point
 * Specification 1.0, 2023).  Both are for storage: tensors of them are made,
 * viewed, copied, filled, printed and saved, and converted to and from other
 * dtypes; every operator that computes refuses them (DTYPE), and nothing is
 * promoted to or from them unasked.
 *
 * A conversion (core_to, core_copy_) rounds to the nearest, of two as near the
 * even one, from f64 too at once; what is too large becomes NaN in f8e4m3 and
 * infinity in f8e5m2.  core_float8_cast can do otherwise.
 *
 * A device that has no kernels for them fills and copies the bytes, and converts
 * by operators on integers: the same bits, more slowly.  Nothing waits. */

#ifndef LIBCORE_FLOAT8_H
#define LIBCORE_FLOAT8_H

#include "random.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    /* What is too large, infinity too, becomes the largest number of its sign.
     * NaN stays NaN. */
    CORE_FLOAT8_SATURATE = 1u << 0,
    /* Up or down with the chance that keeps the mean, by 32 random bits an
     * element; of f64, what is left of it in f32 is rounded so. */
    CORE_FLOAT8_STOCHASTIC = 1u << 1
};

/* The floating tensor as dtype, which is F8E4M3 or F8E5M2; not recorded by
 * autograd.  generator: of the stochastic one; NULL is the default one.
 * DTYPE error for other dtypes. */
core_status core_float8_cast(core_tensor *tensor, core_dtype dtype,
                             uint32_t flags, core_generator *generator,
                             core_tensor **out_tensor);
/* 448 or 57344; 0 for another dtype. */
double core_float8_max(core_dtype dtype);

#ifdef __cplusplus
}
#endif

#endif
