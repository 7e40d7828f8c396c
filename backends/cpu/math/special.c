/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Gamma functions, error functions, and the tables of all special functions.
 * Formulas are cited by number from Abramowitz and Stegun (AS) and from the
 * Digital Library of Mathematical Functions (DLMF). */

#include "special.h"

#include <math.h>

#include <expressions/gamma.h>

static const double pi = 3.141592653589793238;
static const double root_half = 0.70710678118654752440;

/* --------------------------------------------------------------- gammas -- */

double cpu_digamma(double x)
{
    return math_digamma(x);
}

double cpu_zeta(double s, double q)
{
    return math_zeta(s, q);
}

double cpu_polygamma(double n, double x)
{
    return math_polygamma(n, x);
}

/* x^a exp(-x) / Γ(a + 1), accurate for large a and x near each other (DLMF
 * 5.11.1). */
static double gamma_front(double a, double x)
{
    double d, rest;

    if (a < 20)
        return exp(a * log(x) - x - math_log_gamma(a + 1));
    d = (x - a) / a;
    rest = 1 / (12 * a) - 1 / (360 * a * a * a) + 1 / (1260 * pow(a, 5)) -
           1 / (1680 * pow(a, 7));
    return exp(a * (log1p(d) - d) - rest) / sqrt(2 * pi * a);
}

/* DLMF 8.7.1 */
static double gamma_series(double a, double x)
{
    double term = 1, sum = 1;

    for (int k = 1; k < 100000 && term > 1e-17 * sum; k++) {
        term *= x / (a + k);
        sum += term;
    }
    return sum * gamma_front(a, x);
}

/* DLMF 8.9.2, by Lentz's method */
static double gamma_fraction(double a, double x)
{
    const double tiny = 1e-300;
    double b = x + 1 - a, c = 1 / tiny, d = 1 / b, h = d;

    for (int k = 1; k < 100000; k++) {
        double an = -k * (k - a), step;

        b += 2;
        d = an * d + b;
        d = 1 / (fabs(d) < tiny ? tiny : d);
        c = b + an / c;
        c = fabs(c) < tiny ? tiny : c;
        step = d * c;
        h *= step;
        if (fabs(step - 1) < 1e-16)
            break;
    }
    return h * a * gamma_front(a, x);
}

static double gamma_part(double a, double x, int upper)
{
    if (isnan(a) || isnan(x) || a < 0 || x < 0 || (a == 0 && x == 0) ||
        (isinf(a) && isinf(x)))
        return NAN;
    if (a == 0 || isinf(x))
        return upper ? 0 : 1;
    if (x == 0 || isinf(a))
        return upper ? 1 : 0;
    if (x < a + 1) {
        double p = gamma_series(a, x);

        return upper ? 1 - p : p;
    }
    return upper ? gamma_fraction(a, x) : 1 - gamma_fraction(a, x);
}

double cpu_igamma(double a, double x)
{
    return gamma_part(a, x, 0);
}

double cpu_igammac(double a, double x)
{
    return gamma_part(a, x, 1);
}

/* ------------------------------------------------------ error functions -- */

/* exp(x²) erfc(x); far out DLMF 7.12.1 */
double cpu_erfcx(double x)
{
    double square = x * x, rest = fma(x, x, -square), sum = 1, term = 1;

    if (x < 25)
        return x < -26.7 ? INFINITY : exp(square) * (1 + rest) * erfc(x);
    for (int k = 1; k < 12; k++) {
        term *= -(2 * k - 1) / (2 * square);
        sum += term;
    }
    return sum / (x * sqrt(pi));
}

/* Logarithm of the normal distribution. */
double cpu_log_ndtr(double x)
{
    double t = x * root_half;

    if (x < -1)
        return log(cpu_erfcx(-t) / 2) - t * t;
    return log1p(-erfc(t) / 2);
}

/* A first guess (Winitzki 2008), then Halley's method; near 1 on the
 * complement, which is exact there. */
double cpu_erfinv(double y)
{
    double z = fabs(y), a, b, x;

    if (!(z < 1))
        return z == 1 ? copysign(INFINITY, y) : NAN;
    a = log1p(-z * z);
    b = 4.330746750799873 + a / 2;
    x = z < 0.01 ? z * 0.886226925452758 : sqrt(sqrt(b * b - a / 0.147) - b);
    for (int k = 0; k < 3; k++) {
        double error = z < 0.5 ? erf(x) - z : (1 - z) - erfc(x);
        double step = error * 0.886226925452758 * exp(x * x);

        x -= step / (1 + x * step);
    }
    return copysign(x, y);
}

/* Inverse of the normal distribution: a first guess (AS 26.2.23), then
 * Newton's method on logarithms. */
double cpu_ndtri(double p)
{
    double q = p < 0.5 ? p : 1 - p;
    double goal, t, x;

    if (!(p > 0 && p < 1))
        return p == 0 ? -INFINITY : p == 1 ? INFINITY : NAN;
    if (q > 0.1)
        return cpu_erfinv(2 * p - 1) / root_half;
    goal = log(q);
    t = sqrt(-2 * goal);
    x = (2.515517 + t * (0.802853 + t * 0.010328)) /
            (1 + t * (1.432788 + t * (0.189269 + t * 0.001308))) -
        t;
    for (int k = 0; k < 4; k++) {
        double slope = 2 / (sqrt(2 * pi) * cpu_erfcx(-x * root_half));

        x -= (cpu_log_ndtr(x) - goal) / slope;
    }
    return p < 0.5 ? x : -x;
}

/* ---------------------------------------------------------------- tables -- */

static double angle(double x)
{
    return isnan(x) ? x : x < 0 ? pi : 0;
}

/* In the order of SPECIAL_UNARY and SPECIAL_BINARY in
 * backends/expressions/table.py. */
const cpu_special_1 cpu_special_unary[] = {
    cpu_digamma,
    cpu_erfinv,
    cpu_erfcx,
    cpu_log_ndtr,
    cpu_ndtri,
    cpu_bessel_i0,
    cpu_bessel_i0e,
    cpu_bessel_i1,
    cpu_bessel_i1e,
    cpu_bessel_k0,
    cpu_bessel_k0e,
    cpu_bessel_k1,
    cpu_bessel_k1e,
    j0,
    j1,
    y0,
    y1,
    cpu_airy_ai,
    cpu_spherical_j0,
    angle,
};
const cpu_special_2 cpu_special_binary[] = {
    cpu_polygamma,
    cpu_zeta,
    cpu_igamma,
    cpu_igammac,
    cpu_chebyshev_t,
    cpu_chebyshev_u,
    cpu_chebyshev_v,
    cpu_chebyshev_w,
    cpu_shifted_chebyshev_t,
    cpu_shifted_chebyshev_u,
    cpu_shifted_chebyshev_v,
    cpu_shifted_chebyshev_w,
    cpu_hermite_h,
    cpu_hermite_he,
    cpu_laguerre_l,
    cpu_legendre_p,
};
