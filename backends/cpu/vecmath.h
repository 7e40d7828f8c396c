/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#ifndef CPU_VECMATH_H
#define CPU_VECMATH_H

#include <math.h>

#include "number.h"

#define LIBM(NAME)                                                    \
    static inline float NAME##_f32(float x) { return NAME##f(x); }    \
    static inline double NAME##_f64(double x) { return NAME(x); }
LIBM(sqrt) LIBM(rint) LIBM(floor) LIBM(ceil) LIBM(trunc)
LIBM(exp) LIBM(exp2) LIBM(expm1) LIBM(log) LIBM(log2) LIBM(log10) LIBM(log1p)
LIBM(sin) LIBM(cos) LIBM(tan) LIBM(asin) LIBM(acos) LIBM(atan)
LIBM(sinh) LIBM(cosh) LIBM(tanh) LIBM(asinh) LIBM(acosh) LIBM(atanh)
LIBM(erf) LIBM(erfc)
static inline float abs_f32(float x) { return fabsf(x); }
static inline double abs_f64(double x) { return fabs(x); }
static inline float lgamma_f32(float x) { int s; return lgammaf_r(x, &s); }
static inline double lgamma_f64(double x) { int s; return lgamma_r(x, &s); }
static inline float sigmoid_f32(float x) { return 1 / (1 + expf(-x)); }
static inline double sigmoid_f64(double x) { return 1 / (1 + exp(-x)); }
#define LIBM2(NAME)                                                    \
    static inline float NAME##_f32(float x, float y) { return NAME##f(x, y); }    \
    static inline double NAME##_f64(double x, double y) { return NAME(x, y); }
LIBM2(fmod) LIBM2(pow) LIBM2(atan2) LIBM2(hypot) LIBM2(copysign) LIBM2(nextafter)
#endif
