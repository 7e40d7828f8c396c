/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* special.cl: gamma functions, error functions, modified Bessel functions and
 * orthogonal polynomials, in double precision.  Formulas are cited by number
 * from Abramowitz and Stegun (AS) and from the Digital Library of Mathematical
 * Functions (DLMF).
 *
 * The formulas are those of backends/cpu/math, special.c and bessel.c, and
 * change together with them: core-conformance compares the results.  The code
 * is separate because a plugin builds from its own folder alone, and because
 * OpenCL C has no recursion, no lgamma_r, no long double and no Bessel
 * functions, and stores tables in another address space. */

constant double pi = 3.141592653589793238;
constant double root_half = 0.70710678118654752440;
constant double bernoulli[] = {1.0 / 6,   -1.0 / 30, 1.0 / 42, -1.0 / 30,
                               5.0 / 66,  -691.0 / 2730, 7.0 / 6,
                               -3617.0 / 510};

/* Recurrence up to 12, then DLMF 5.11.2; below 0 by reflection, 5.5.4. */
static double digamma(double x)
{
    double sum = 0;
    double y;

    if (x == 0)
        return copysign((double)INFINITY, -x);
    if (x < 0) {
        if (x == floor(x))
            return NAN;
        sum = -pi / tan(pi * (x - floor(x)));
        x = 1 - x;
    }
    for (; x < 12; x++)
        sum -= 1 / x;
    y = 1 / (x * x);
    y *= 1.0 / 12 -
         y * (1.0 / 120 -
              y * (1.0 / 252 -
                   y * (1.0 / 240 - y * (1.0 / 132 - y * 691.0 / 32760))));
    return sum + log(x) - 0.5 / x - y;
}

/* Sum of (q + k)^-s over k >= 0: terms, then Euler and Maclaurin, DLMF
 * 25.11.5.  q is not far below 0. */
static double zeta_near(double s, double q)
{
    double sum = 0;
    double factor;

    if (isnan(s) || isnan(q) || s < 1)
        return NAN;
    if (s == 1 || (q <= 0 && q == floor(q)))
        return INFINITY;
    if (q <= 0 && s != floor(s))
        return NAN;
    if (q == INFINITY)
        return 0; /* below, infinity times 0 */
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

/* For q far below 0, where s is an integer: the terms below 0 are a difference
 * of two such sums above it. */
static double zeta(double s, double q)
{
    double part = -q - floor(-q), sign_ = fmod(s, 2.0) == 1 ? -1 : 1;

    if (!(q < -100) || q == floor(q) || s != floor(s) || !(s > 1))
        return zeta_near(s, q);
    return zeta_near(s, 1 - part) + sign_ * zeta_near(s, part) -
           sign_ * zeta_near(s, 1 - q);
}

static double polygamma(double n, double x)
{
    if (n < 1)
        return n == 0 ? digamma(x) : NAN;
    return (fmod(n, 2.0) == 1 ? 1 : -1) * exp(lgamma(n + 1)) *
           zeta(n + 1, x);
}

/* x^a exp(-x) / Γ(a + 1), accurate for large a and x near each other (DLMF
 * 5.11.1). */
static double gamma_front(double a, double x)
{
    double d, rest;

    if (a < 20)
        return exp(a * log(x) - x - lgamma(a + 1));
    d = (x - a) / a;
    rest = 1 / (12 * a) - 1 / (360 * a * a * a) + 1 / (1260 * pown(a, 5)) -
           1 / (1680 * pown(a, 7));
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

static double igamma(double a, double x)
{
    return gamma_part(a, x, 0);
}

static double igammac(double a, double x)
{
    return gamma_part(a, x, 1);
}

/* ------------------------------------------------------ error functions -- */

/* exp(x²) erfc(x); far out DLMF 7.12.1 */
static double erfcx(double x)
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
static double log_ndtr(double x)
{
    double t = x * root_half;

    if (x < -1)
        return log(erfcx(-t) / 2) - t * t;
    return log1p(-erfc(t) / 2);
}

/* A first guess (Winitzki 2008), then Halley's method; near 1 on the
 * complement, which is exact there. */
static double erfinv(double y)
{
    double z = fabs(y), a, b, x;

    if (!(z < 1))
        return z == 1 ? copysign((double)INFINITY, y) : NAN;
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
static double ndtri(double p)
{
    double q = p < 0.5 ? p : 1 - p;
    double goal, t, x;

    if (!(p > 0 && p < 1))
        return p == 0 ? -INFINITY : p == 1 ? INFINITY : NAN;
    if (q > 0.1)
        return erfinv(2 * p - 1) / root_half;
    goal = log(q);
    t = sqrt(-2 * goal);
    x = (2.515517 + t * (0.802853 + t * 0.010328)) /
            (1 + t * (1.432788 + t * (0.189269 + t * 0.001308))) -
        t;
    for (int k = 0; k < 4; k++) {
        double slope = 2 / (sqrt(2 * pi) * erfcx(-x * root_half));

        x -= (log_ndtr(x) - goal) / slope;
    }
    return p < 0.5 ? x : -x;
}

/* ------------------------------------------------ modified, first kind -- */

/* exp(-x) I(order, x) for x >= 0: 10.25.2, all of whose terms are positive; far
 * out 10.40.1. */
static double scaled_i(int order, double x)
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
    return isinf(x) ? 0 : sum / sqrt(2 * pi * x);
}

/* In two halves: exp(x) alone may overflow although the product does not. */
static double grown(double scaled, double x)
{
    double half_ = exp(x / 2);

    return scaled * half_ * half_;
}

static double bessel_i0e(double x)
{
    return scaled_i(0, fabs(x));
}

static double bessel_i1e(double x)
{
    return x < 0 ? -scaled_i(1, -x) : scaled_i(1, x);
}

static double bessel_i0(double x)
{
    return isinf(x) ? INFINITY : grown(bessel_i0e(x), fabs(x));
}

static double bessel_i1(double x)
{
    return isinf(x) ? x : grown(bessel_i1e(x), fabs(x));
}

/* ----------------------------------------------- modified, second kind -- */

/* exp(x) K(order, x), by the trapezoidal rule on 10.32.9, which converges
 * exponentially: the integrand is analytic and falls doubly exponentially. */
static double scaled_k_integral(double order, double x)
{
    /* as narrow as the integrand, which is exp(-x t^2 / 2) for large x */
    double root = sqrt(x), step = x > 4 ? 0.25 / root : 0.125;
    double sum = 0.5;

    /* At most 40 terms for x from 1/2 to the largest double. */
    for (int k = 1; k < 100; k++) {
        double t = k * step;
        double fall = 2 * pown(root * sinh(t / 2), 2); /* t² may underflow */

        if (fall > 45 + order * t)
            break;
        sum += exp(-fall) * cosh(order * t);
    }
    return sum * step;
}

/* 10.31.2 and 10.31.1, for 0 < x <= 1 */
static double k_series(int order, double x)
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

static double scaled_k(int order, double x)
{
    if (!(x > 0))
        return x == 0 ? INFINITY : NAN;
    if (x <= 1)
        return k_series(order, x) * exp(x);
    return isinf(x) ? 0 : scaled_k_integral(order, x);
}

static double bessel_k0e(double x)
{
    return scaled_k(0, x);
}

static double bessel_k1e(double x)
{
    return scaled_k(1, x);
}

static double bessel_k0(double x)
{
    return x > 0 && x <= 1 ? k_series(0, x) : scaled_k(0, x) * exp(-x);
}

static double bessel_k1(double x)
{
    return x > 0 && x <= 1 ? k_series(1, x) : scaled_k(1, x) * exp(-x);
}

/* ------------------------------------------------------- spherical, j0 -- */

static double spherical_j0(double x)
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

/* Orders up to which the recurrence runs. */
enum { MOST_STEPS = 100000 };

/* A Chebyshev polynomial for |x| > 1 and n > MOST_STEPS (18.5.1 to 18.5.4 with
 * an imaginary angle): if |x| is just above 1, the recurrence may take 1e10
 * steps until it overflows. */
static double chebyshev_outside(double x, double n, int kind)
{
    double angle = acosh(fabs(x)), size;
    double sign_ = x < 0 && fmod(n, 2.0) == 1 ? -1 : 1;

    if (n * angle > 720)
        return sign_ * INFINITY;
    /* the polynomials V and W are each other's reflection */
    if (x < 0 && (kind == 'v' || kind == 'w'))
        kind = kind == 'v' ? 'w' : 'v';
    size = kind == 't'   ? cosh(n * angle)
           : kind == 'u' ? sinh((n + 1) * angle) / sinh(angle)
           : kind == 'v' ? cosh((n + 0.5) * angle) / cosh(angle / 2)
                         : sinh((n + 0.5) * angle) / sinh(angle / 2);
    return sign_ * size;
}

/* By 18.9.8 from the first two; for large n by angles (18.5.1 to 18.5.4), which
 * do not take n steps. */
static double chebyshev(double x, double n, double second, int kind)
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

        return x < 0 && fmod(n, 2.0) == 1 ? -size : size;
    }
    if (n > MOST_STEPS)
        return chebyshev_outside(x, n, kind);
    for (double k = 1; k < n && isfinite(now); k++) {
        double next = 2 * x * now - before;

        before = now;
        now = next;
    }
    return now;
}

static double chebyshev_t(double x, double n)
{
    return chebyshev(x, n, x, 't');
}

static double chebyshev_u(double x, double n)
{
    return chebyshev(x, n, 2 * x, 'u');
}

static double chebyshev_v(double x, double n)
{
    return chebyshev(x, n, 2 * x - 1, 'v');
}

static double chebyshev_w(double x, double n)
{
    return chebyshev(x, n, 2 * x + 1, 'w');
}

static double shifted_chebyshev_t(double x, double n)
{
    return chebyshev_t(2 * x - 1, n);
}

static double shifted_chebyshev_u(double x, double n)
{
    return chebyshev_u(2 * x - 1, n);
}

static double shifted_chebyshev_v(double x, double n)
{
    return chebyshev_v(2 * x - 1, n);
}

static double shifted_chebyshev_w(double x, double n)
{
    return chebyshev_w(2 * x - 1, n);
}

/* 18.9.1: the next is (a x + b) now - c before, with coefficients by kind. */
static double recurrent(double x, double n, double second, int kind)
{
    double before = 1, now = second;

    n = trunc(n);
    if (!(n >= 0) || isnan(x))
        return isnan(n) || isnan(x) ? NAN : 0;
    if (n == 0)
        return 1;
    /* An odd one is 0, where even ones grow beyond all bounds. */
    if (x == 0 && fmod(n, 2.0) == 1 && (kind == 'H' || kind == 'e'))
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

static double hermite_h(double x, double n)
{
    return recurrent(x, n, 2 * x, 'H');
}

static double hermite_he(double x, double n)
{
    return recurrent(x, n, x, 'e');
}
