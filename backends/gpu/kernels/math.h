/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* math.h: the functions that expressions call.  The CPU compiles the same ones,
 * and its f32 results have the same bits, except for inverse tangents and sines,
 * which are those of the GPU's library here. */

#ifndef GPU_MATH_H
#define GPU_MATH_H

#include <gpu/gpu.h>

#include <math.h>
#include <string.h>

#define MATH_INLINE GPU_DEVICE
#define MATH_FUNCTION GPU_DEVICE
#define MATH_FMA_F32(a, b, c) fmaf(a, b, c)
#define MATH_FMA_F64(a, b, c) fma(a, b, c)
#define MATH_NATIVE_WHOLE
#if !defined(GPU_EMULATED)
/* Devices do not have the variants that return the sign. */
#define lgammaf_r(x, sign) (*(sign) = 0, lgammaf(x))
#define lgamma_r(x, sign) (*(sign) = 0, lgamma(x))
#endif
#include <expressions/functions.h>
#include <expressions/gamma.h>

#endif
