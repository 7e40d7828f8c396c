/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Optimizer steps, element by element.  Each element has the same operations
 * with the same roundings as the sequence of operators that is used elsewhere
 * (core/optim).  Choices are made by numbers of the element's type, which the
 * compiler can vectorize.  Compiled per instruction set. */

#include <math.h>

#include <expressions/number.h>

#include "optim.h"

#define STEPS(NAME, TYPE, FMA, SQRT)                                           \
    static void adam_##NAME(const cpu_step *step, void *const *lists,          \
                            int64_t n)                                         \
    {                                                                          \
        TYPE *x = lists[0], *average = lists[2], *square = lists[3];           \
        const TYPE *grad = lists[1];                                           \
        const TYPE decay = (TYPE)step->decay, rate = (TYPE)step->rate,         \
                   remainder = (TYPE)step->remainder,                          \
                   beta1 = (TYPE)step->beta1, share1 = (TYPE)step->share1,     \
                   beta2 = (TYPE)step->beta2, share2 = (TYPE)step->share2,     \
                   root = (TYPE)step->root, epsilon = (TYPE)step->epsilon;     \
        const TYPE coupled = (TYPE)step->coupled,                              \
                   decoupled = (TYPE)step->decoupled;                          \
                                                                               \
        n &= -CPU_STEP_ROUND;                                                  \
        MATH_LOOP                                                              \
        for (int64_t i = 0; i < n; i++) {                                      \
            TYPE y = x[i], g = grad[i], m, v;                                  \
                                                                               \
            g = coupled != 0 ? FMA(decay, y, g) : g;                           \
            y = decoupled != 0 ? y * remainder : y;                            \
            m = FMA(share1, g, average[i] * beta1);                            \
            v = FMA(share2 * g, g, square[i] * beta2);                         \
            x[i] = FMA(rate, m / (SQRT(v) / root + epsilon), y);               \
            average[i] = m;                                                    \
            square[i] = v;                                                     \
        }                                                                      \
    }                                                                          \
    static void momentum_##NAME(const cpu_step *step, void *const *lists,      \
                                int64_t n)                                     \
    {                                                                          \
        TYPE *x = lists[0], *buffer = lists[2];                                \
        const TYPE *grad = lists[1];                                           \
        const TYPE decay = (TYPE)step->decay, rate = (TYPE)step->rate,         \
                   momentum = (TYPE)step->beta1, share = (TYPE)step->share1;   \
        const TYPE coupled = (TYPE)step->coupled,                              \
                   nesterov = (TYPE)step->nesterov, first = (TYPE)step->first; \
                                                                               \
        n &= -CPU_STEP_ROUND;                                                  \
        MATH_LOOP                                                              \
        for (int64_t i = 0; i < n; i++) {                                      \
            TYPE y = x[i], g = grad[i], b = buffer[i];                         \
                                                                               \
            g = coupled != 0 ? FMA(decay, y, g) : g;                           \
            b = first != 0 ? g : FMA(share, g, b * momentum);                  \
            x[i] = FMA(rate, nesterov != 0 ? FMA(momentum, b, g) : b, y);      \
            buffer[i] = b;                                                     \
        }                                                                      \
    }                                                                          \
    static void plain_##NAME(const cpu_step *step, void *const *lists,         \
                             int64_t n)                                        \
    {                                                                          \
        TYPE *x = lists[0];                                                    \
        const TYPE *grad = lists[1];                                           \
        const TYPE decay = (TYPE)step->decay, rate = (TYPE)step->rate;         \
        const TYPE coupled = (TYPE)step->coupled;                              \
                                                                               \
        n &= -CPU_STEP_ROUND;                                                  \
        MATH_LOOP                                                              \
        for (int64_t i = 0; i < n; i++)                                        \
            x[i] =                                                             \
                FMA(rate, coupled != 0 ? FMA(decay, x[i], grad[i]) : grad[i],  \
                    x[i]);                                                     \
    }
STEPS(f32, float, MATH_FMA_F32, sqrtf)
STEPS(f64, double, MATH_FMA_F64, sqrt)

const cpu_step_functions CPU_NAME(cpu_step_functions) = {
    {adam_f32, momentum_f32, plain_f32},
    {adam_f64, momentum_f64, plain_f64},
};
