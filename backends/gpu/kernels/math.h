/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* math.h: the functions that expressions use, with the CPU backend's names.
 * The f32 formulas are shared with it and give the same bits. */

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
/* Devices do not have the variants that return the sign. */
#define lgammaf_r(x, sign) (*(sign) = 0, lgammaf(x))
#define lgamma_r(x, sign) (*(sign) = 0, lgamma(x))
#endif
#include <cpu/math/expressions.h>

#endif
