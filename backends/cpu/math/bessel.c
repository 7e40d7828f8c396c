/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Modified Bessel functions, Airy's function, orthogonal polynomials.  Numbers
 * of formulas are those of the Digital Library of Mathematical Functions.  The
 * steps of their recurrences depend on each other, so everything is compiled
 * for size. */

#include "special.h"

#include <math.h>

#define SMALL __attribute__((cold))

static const double pi = 3.141592653589793238;

/* ------------------------------------------------ modified, first kind -- */

/* exp(-x) I(order, x) for x >= 0: 10.25.2, all of whose terms are positive; far
 * out 10.40.1. */
SMALL static double scaled_i(int order, double x)
{
    double sum = 1, term = 1, mu = 4.0 * order * order;

    if (x <= 30) {
        double square = x * x / 4;

        for (int k = 1; term > 1e-17 * sum; k++) {
            term *= square / ((double)k * (k + order));
            sum += term;
        }
        return exp(-x) * (order ? x / 2 * sum : sum);
    }
    for (int k = 1; k < 30; k++) {
        double odd = 2 * k - 1;

        term *= -(mu - odd * odd) / (8 * x * k);
        sum += term;
    }
    return isinf(x) ? 0 : sum / (sqrt(2 * pi) * sqrt(x));
}

/* In two halves: exp(x) alone may overflow where the product does not. */
static double grown(double scaled, double x)
{
    double half = exp(x / 2);

    return scaled * half * half;
}

double cpu_bessel_i0e(double x)
{
    return scaled_i(0, fabs(x));
}

double cpu_bessel_i1e(double x)
{
    return x < 0 ? -scaled_i(1, -x) : scaled_i(1, x);
}

double cpu_bessel_i0(double x)
{
    return isinf(x) ? INFINITY : grown(cpu_bessel_i0e(x), fabs(x));
}

double cpu_bessel_i1(double x)
{
    return isinf(x) ? x : grown(cpu_bessel_i1e(x), fabs(x));
}

/* ----------------------------------------------- modified, second kind -- */

/* exp(x) K(order, x), by the trapezoidal rule on 10.32.9, which converges
 * exponentially: the integrand is analytic and falls doubly exponentially. */
SMALL static double scaled_k_integral(double order, double x)
{
    /* as narrow as the integrand, which is exp(-x t^2 / 2) for large x */
    double root = sqrt(x), step = x > 4 ? 0.25 / root : 0.125;
    double sum = 0.5;

    /* At most 40 terms for x from 1/2 to the largest double. */
    for (int k = 1; k < 100; k++) {
        double t = k * step;
        double fall = 2 * pow(root * sinh(t / 2), 2); /* t² may underflow */

        if (fall > 45 + order * t)
            break;
        sum += exp(-fall) * cosh(order * t);
    }
    return sum * step;
}

/* 10.31.2 and 10.31.1, for 0 < x <= 1 */
SMALL static double k_series(int order, double x)
{
    const double euler = 0.57721566490153286061;
    double square = x * x / 4, logarithm = log(x / 2), harmonic = -euler;
    double term = 1, sum = 0;

    for (int k = 0; k < 20; k++) {
        if (order == 0)
            sum += term * (harmonic - logarithm);
        else
            sum += term / (k + 1) * (logarithm - harmonic - 0.5 / (k + 1));
        harmonic += 1.0 / (k + 1);
        term *= square / ((double)(k + 1) * (k + 1));
    }
    return order == 0 ? sum : 1 / x + x / 2 * sum;
}

SMALL static double scaled_k(int order, double x)
{
    if (!(x > 0))
        return x == 0 ? INFINITY : NAN;
    if (x <= 1)
        return k_series(order, x) * exp(x);
    return isinf(x) ? 0 : scaled_k_integral(order, x);
}

double cpu_bessel_k0e(double x)
{
    return scaled_k(0, x);
}

double cpu_bessel_k1e(double x)
{
    return scaled_k(1, x);
}

double cpu_bessel_k0(double x)
{
    return x > 0 && x <= 1 ? k_series(0, x) : scaled_k(0, x) * exp(-x);
}

double cpu_bessel_k1(double x)
{
    return x > 0 && x <= 1 ? k_series(1, x) : scaled_k(1, x) * exp(-x);
}

/* ----------------------------------------------------------------- Airy -- */

/* 9.4.1 */
SMALL static double airy_series(double x)
{
    const long double first = 0.355028053887817239260L;
    const long double second = 0.258819403792806798405L;
    long double cube = (long double)x * x * x;
    long double f = 1, g = x, sum = first - second * x;

    for (int k = 1; k < 200; k++) {
        long double before = sum;

        f *= cube / ((3 * k - 1) * (3 * k));
        g *= cube / ((3 * k) * (3 * k + 1));
        sum += first * f - second * g;
        if (sum == before && k > 3)
            break;
    }
    return (double)sum;
}

/* 9.7.9, for large negative arguments; 0, the limit, where zeta overflows. */
SMALL static double airy_waves(double z)
{
    double zeta = z * sqrt(z) * 2 / 3, u = 1, even = 1, odd = 0;

    if (isinf(zeta))
        return 0;
    for (int k = 1; k < 20; k++) {
        u *= (6.0 * k - 5) * (6.0 * k - 1) / (72.0 * k * zeta);
        if (k % 2)
            odd += k % 4 == 1 ? u : -u;
        else
            even += k % 4 == 0 ? u : -u;
    }
    return (cos(zeta - pi / 4) * even + sin(zeta - pi / 4) * odd) /
           (sqrt(pi) * sqrt(sqrt(z)));
}

SMALL double cpu_airy_ai(double x)
{
    if (isinf(x))
        return 0;
    if (x < -9)
        return airy_waves(-x);
    if (x > 1) { /* 9.6.2 */
        double zeta = x * sqrt(x) * 2 / 3;

        if (zeta > 800) /* exp(-zeta) is 0, and zeta may be infinite */
            return 0;
        return sqrt(x / 3) / pi * scaled_k_integral(1.0 / 3, zeta) * exp(-zeta);
    }
    return isnan(x) ? x : airy_series(x);
}

double cpu_spherical_j0(double x)
{
    if (isinf(x))
        return 0;
    if (fabs(x) < 0.5) {
        double square = x * x, sum = 1, term = 1;

        for (int k = 1; k < 9; k++) {
            term *= -square / (2 * k * (2 * k + 1));
            sum += term;
        }
        return sum;
    }
    return sin(x) / x;
}

/* ---------------------------------------------------------- polynomials -- */

/* Orders up to which the recurrences run. */
static const double most_steps = 1e5;

/* A Chebyshev polynomial for |x| > 1 and n > most_steps (18.5.1 to 18.5.4 with
 * an imaginary angle): if |x| is just above 1, the recurrence may take 1e10
 * steps until it overflows. */
SMALL static double chebyshev_outside(double x, double n, int kind)
{
    double angle = acosh(fabs(x)), size;
    double sign = x < 0 && fmod(n, 2) == 1 ? -1 : 1;

    if (n * angle > 720)
        return sign * INFINITY;
    /* the polynomials V and W are each other's reflection */
    if (x < 0 && (kind == 'v' || kind == 'w'))
        kind = kind == 'v' ? 'w' : 'v';
    size = kind == 't'   ? cosh(n * angle)
           : kind == 'u' ? sinh((n + 1) * angle) / sinh(angle)
           : kind == 'v' ? cosh((n + 0.5) * angle) / cosh(angle / 2)
                         : sinh((n + 0.5) * angle) / sinh(angle / 2);
    return sign * size;
}

/* By 18.9.8 from the first two; for large n by angles (18.5.1 to 18.5.4), which
 * do not take n steps. */
SMALL static double chebyshev(double x, double n, double second, int kind)
{
    double before = 1, now = second;

    n = trunc(n);
    if (!(n >= 0) || isnan(x))
        return isnan(n) || isnan(x) ? NAN : 0;
    if (n == 0)
        return 1;
    if (fabs(x) < 1 && n > 64) {
        double angle = acos(x);

        switch (kind) {
        case 't':
            return cos(n * angle);
        case 'u':
            return sin((n + 1) * angle) / sin(angle);
        case 'v':
            return cos((n + 0.5) * angle) / cos(angle / 2);
        default:
            return sin((n + 0.5) * angle) / sin(angle / 2);
        }
    }
    if (fabs(x) == 1 && n > 64) {
        double size = kind == 't'                ? 1
                      : kind == 'u'              ? n + 1
                      : (kind == 'v') == (x < 0) ? 2 * n + 1
                                                 : 1;

        return x < 0 && fmod(n, 2) == 1 ? -size : size;
    }
    if (n > most_steps)
        return chebyshev_outside(x, n, kind);
    for (double k = 1; k < n && isfinite(now); k++) {
        double next = 2 * x * now - before;

        before = now;
        now = next;
    }
    return now;
}

double cpu_chebyshev_t(double x, double n)
{
    return chebyshev(x, n, x, 't');
}

double cpu_chebyshev_u(double x, double n)
{
    return chebyshev(x, n, 2 * x, 'u');
}

double cpu_chebyshev_v(double x, double n)
{
    return chebyshev(x, n, 2 * x - 1, 'v');
}

double cpu_chebyshev_w(double x, double n)
{
    return chebyshev(x, n, 2 * x + 1, 'w');
}

double cpu_shifted_chebyshev_t(double x, double n)
{
    return cpu_chebyshev_t(2 * x - 1, n);
}

double cpu_shifted_chebyshev_u(double x, double n)
{
    return cpu_chebyshev_u(2 * x - 1, n);
}

double cpu_shifted_chebyshev_v(double x, double n)
{
    return cpu_chebyshev_v(2 * x - 1, n);
}

double cpu_shifted_chebyshev_w(double x, double n)
{
    return cpu_chebyshev_w(2 * x - 1, n);
}

/* 18.9.1: the next is (a x + b) now - c before, with coefficients by kind. */
SMALL static double recurrent(double x, double n, double second, int kind)
{
    double before = 1, now = second;

    n = trunc(n);
    if (!(n >= 0) || isnan(x))
        return isnan(n) || isnan(x) ? NAN : 0;
    if (n == 0)
        return 1;
    /* An odd one is 0, where even ones grow beyond all bounds. */
    if (x == 0 && fmod(n, 2) == 1 && (kind == 'H' || kind == 'e'))
        return 0;
    for (double k = 1; k < n && isfinite(now); k++) {
        double next = kind == 'H'   ? 2 * (x * now - k * before)
                      : kind == 'e' ? x * now - k * before
                      : kind == 'L'
                          ? ((2 * k + 1 - x) * now - k * before) / (k + 1)
                          : ((2 * k + 1) * x * now - k * before) / (k + 1);

        before = now;
        now = next;
    }
    return now;
}

double cpu_hermite_h(double x, double n)
{
    return recurrent(x, n, 2 * x, 'H');
}

double cpu_hermite_he(double x, double n)
{
    return recurrent(x, n, x, 'e');
}

/* For n > most_steps, Laguerre and Legendre polynomials are computed by Hilb's
 * formulas (Szegö, Orthogonal Polynomials, 8.21 and 8.22), with an error of order
 * n^(-3/4) and n^(-3/2). */

/* J0 of the root of a square, I0 where that is negative. */
static double bessel_of_square(double square)
{
    return square < 0 ? cpu_bessel_i0(sqrt(-square)) : j0(sqrt(square));
}

SMALL double cpu_laguerre_l(double x, double n)
{
    if (n > most_steps)
        return exp(x / 2) * bessel_of_square(4 * (trunc(n) + 0.5) * x);
    return recurrent(x, n, 1 - x, 'L');
}

SMALL double cpu_legendre_p(double x, double n)
{
    if (n > most_steps) {
        double sign = x < 0 && fmod(trunc(n), 2) == 1 ? -1 : 1;
        double order = trunc(n) + 0.5;
        double angle = fabs(x) <= 1 ? acos(fabs(x)) : acosh(fabs(x));
        double sine = fabs(x) <= 1 ? sin(angle) : sinh(angle);
        double square = order * order * angle * angle;

        return sign * (angle > 0 ? sqrt(angle / sine) : 1) *
               bessel_of_square(fabs(x) <= 1 ? square : -square);
    }
    return recurrent(x, n, x, 'P');
}
