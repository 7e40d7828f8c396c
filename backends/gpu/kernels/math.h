/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* math.h: the functions of expressions, as the CPU's backend has them: the
 * formulas of f32 are written once, and give the same bits. */

#ifndef GPU_MATH_H
#define GPU_MATH_H

#include <gpu/gpu.h>

#include <math.h>
#include <string.h>

#define CPU_INLINE GPU_DEVICE
#define CPU_FMA_F32(a, b, c) fmaf(a, b, c)
#define CPU_FMA_F64(a, b, c) fma(a, b, c)
#define CPU_NATIVE_WHOLE
#if !defined(GPU_EMULATED)
/* No device has the functions that keep the sign apart. */
#define lgammaf_r(x, sign) (*(sign) = 0, lgammaf(x))
#define lgamma_r(x, sign) (*(sign) = 0, lgamma(x))
#endif
#include <cpu/math/expressions.h>

#endif
