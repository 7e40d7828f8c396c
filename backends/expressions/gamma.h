/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* gamma.h: the derivatives of log Γ, in double precision.  Formulas are cited by
 * number from the Digital Library of Mathematical Functions (DLMF). */

#ifndef EXPRESSIONS_GAMMA_H
#define EXPRESSIONS_GAMMA_H

#include <math.h>

#include "number.h"

/* Recurrence up to 12, then DLMF 5.11.2; below 0 by reflection, 5.5.4. */
MATH_FUNCTION double math_digamma(double x)
{
    double sum = 0, reflected = 0;
    double y;

    if (x == 0)
        return copysign(__builtin_inf(), -x);
    if (x < 0) {
        if (x == floor(x))
            return __builtin_nan("");
        y = x - floor(x);
        reflected = 3.141592653589793238 / tan(3.141592653589793238 * y);
        x = 1 - x;
    }
    for (; x < 12; x++)
        sum -= 1 / x;
    y = 1 / (x * x);
    y *= 1.0 / 12 -
         y * (1.0 / 120 -
              y * (1.0 / 252 -
                   y * (1.0 / 240 - y * (1.0 / 132 - y * 691.0 / 32760))));
    return sum + log(x) - 0.5 / x - y - reflected;
}

/* Sum of (q + k)^-s over k >= 0, for q > -100: terms, then Euler and Maclaurin,
 * DLMF 25.11.5. */
MATH_FUNCTION double math_zeta_sum(double s, double q)
{
    const double bernoulli[8] = {1.0 / 6,   -1.0 / 30,    1.0 / 42,
                                 -1.0 / 30, 5.0 / 66,     -691.0 / 2730,
                                 7.0 / 6,   -3617.0 / 510};
    double sum = 0;
    double factor;

    for (int k = 0; q < 10 || k < 10; k++, q++) {
        double term = pow(q, -s);

        sum += term;
        if (fabs(term) < 1e-17 * fabs(sum) && q > 1)
            return sum;
    }
    factor = pow(q, -s);
    sum += factor * q / (s - 1) + factor / 2;
    factor *= s / q;
    for (int k = 1; k <= 8; k++) {
        /* B(2k) / (2k)! s (s + 1) … (s + 2k - 2) q^(1 - s - 2k) */
        factor /= 2 * k;
        sum += bernoulli[k - 1] * factor;
        factor *= (s + 2 * k - 1) * (s + 2 * k) / (q * q * (2 * k + 1));
    }
    return sum;
}

/* Hurwitz's zeta function. */
MATH_FUNCTION double math_zeta(double s, double q)
{
    double part, sign;

    if (s != s || q != q || s < 1)
        return __builtin_nan("");
    if (s == 1 || (q <= 0 && q == floor(q)))
        return __builtin_inf();
    if (q <= 0 && s != floor(s))
        return __builtin_nan("");
    if (q == __builtin_inf())
        return 0; /* in the sum, infinity times 0 */
    if (q >= -100)
        return math_zeta_sum(s, q);
    /* s is an integer: the terms below 0 are a difference of two such sums above
     * it. */
    part = -q - floor(-q);
    sign = fmod(s, 2.0) == 1 ? -1 : 1;
    return math_zeta_sum(s, 1 - part) + sign * math_zeta_sum(s, part) -
           sign * math_zeta_sum(s, 1 - q);
}

/* lgamma(), which POSIX has with the sign as a result. */
MATH_FUNCTION double math_log_gamma(double x)
{
    int sign;

    return lgamma_r(x, &sign);
}

/* DLMF 5.15.2 */
MATH_FUNCTION double math_polygamma(double n, double x)
{
    if (!(n >= 1))
        return n == 0 ? math_digamma(x) : __builtin_nan("");
    return (fmod(n, 2.0) == 1 ? 1 : -1) * exp(math_log_gamma(n + 1)) *
           math_zeta(n + 1, x);
}

#endif
