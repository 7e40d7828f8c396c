/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The derivative of a sample with respect to a parameter (M. Figurnov, S. Mohamed
 * and A. Mnih, "Implicit reparameterization gradients", 2018):
 *
 *     dx/da = -dF/da / f,   -dF/da = int_0^x f(t) (c - log t) dt
 *                                  = int_x^1 f(t) (log t - c) dt
 *
 * where f is the density, F its integral, and c the mean of log t: digamma(a)
 * for gamma, whose upper end is infinite, and digamma(a) - digamma(total) for
 * beta.  The first integral is taken where log x < c, else the second, so that
 * nothing cancels; f(t) is largest near x then.  Substitutions that decrease
 * double exponentially (H. Takahasi and M. Mori, 1974) resolve the narrow peak
 * there and a singularity at the other end. */

#include "math/sample_gradients.h"

#include <math.h>

#include "math/special.h"

/* A node between 0 and 1: where, how far from 1, and the weight. */
typedef struct node {
    double u, v, weight;
} node;

/* Parameters of an integrand. */
typedef struct point {
    double a, b, x, gap; /* gap: c - log x */
} point;

typedef double (*integrand)(const point *p, const node *at);

static const double pi = 0x1.921fb54442d18p+1;

/* The integral from 0 to 1: u = 1 / (1 + exp(-pi sinh y)).  The larger the sum
 * of the parameters, the narrower the peak. */
static double integral(integrand f, const point *p, double parameters)
{
    int density = parameters > 1e6 ? 64 : parameters > 1e3 ? 32 : 16;
    int count = density * 11 / 2;
    double sum = 0, step = 1. / density;

    for (int k = -count; k <= count; k++) {
        double y = k * step, e = exp(-pi * sinh(y));
        node at = {1 / (1 + e), e / (1 + e), 0};

        at.weight = pi * cosh(y) * at.u * at.v * step;
        if (at.u > 0 && at.v > 0 && at.weight > 0)
            sum += at.weight * f(p, &at);
    }
    return sum;
}

/* u^(a - 1) of a node u, for a of 1 or more.  For a smaller one the power is
 * singular, and u is z^(1/a) of the node z: u^(a - 1) du = dz / a. */
typedef struct power {
    double log_u, v, log_factor; /* v: 1 - u */
} power;

static power power_of(double a, const node *at)
{
    double log_u = at->u < .5 ? log(at->u) : log1p(-at->v);

    if (a >= 1)
        return (power){log_u, at->v, (a - 1) * log_u};
    return (power){log_u / a, -expm1(log_u / a), -log(a)};
}

/* ----------------------------------------------------------------- gamma -- */

/* t = x u: u^(a - 1) exp(x (1 - u)) (c - log x - log u) */
static double gamma_below(const point *p, const node *at)
{
    power w = power_of(p->a, at);

    return exp(w.log_factor + p->x * w.v) * (p->gap - w.log_u);
}

/* t = x + s, s from 0 to infinity:
 * (1 + s / x)^(a - 1) exp(-s) (log(1 + s / x) - gap)
 * s = width exp(pi / 2 sinh y), where the density falls within a few widths */
static double gamma_above(const point *p)
{
    double above = fmax(p->a - 1, 0);
    double width = 1 / (1 - fmin(above / p->x, 1) + sqrt(above) / p->x);
    double sum = 0, step = 1. / 16;

    for (int k = -80; k <= 64; k++) {
        double y = k * step, s = width * exp(pi / 2 * sinh(y));
        double log_t = log1p(s / p->x);
        double f = exp((p->a - 1) * log_t - s) * (log_t - p->gap);

        if (f > 0)
            sum += s * pi / 2 * cosh(y) * step * f;
    }
    return sum;
}

double cpu_gamma_slope(double a, double x)
{
    point p = {.a = a, .x = x, .gap = cpu_digamma(a) - log(x)};

    if (!(a > 0) || !(x >= 0) || x == INFINITY)
        return NAN;
    if (x == 0)
        return 0;
    return p.gap > 0 ? x * integral(gamma_below, &p, a) : gamma_above(&p);
}

/* ------------------------------------------------------------------ beta -- */

/* t = x u: u^(a - 1) ((1 - t) / (1 - x))^(b - 1) (c - log x - log u) */
static double beta_below(const point *p, const node *at)
{
    power w = power_of(p->a, at);

    return exp(w.log_factor + (p->b - 1) * log1p(p->x * w.v / (1 - p->x))) *
           (p->gap - w.log_u);
}

/* 1 - t = (1 - x) u: (t / x)^(a - 1) u^(b - 1) (log(t / x) - gap) */
static double beta_above(const point *p, const node *at)
{
    power w = power_of(p->b, at);
    double log_t = log1p((1 - p->x) * w.v / p->x);

    return exp(w.log_factor + (p->a - 1) * log_t) * (log_t - p->gap);
}

double cpu_dirichlet_slope(double x, double a, double total)
{
    point p = {.a = a, .b = total - a, .x = x};

    if (!(a > 0) || !(total > a) || !(x >= 0) || !(x <= 1))
        return NAN;
    if (x == 0)
        return 0;
    p.gap = cpu_digamma(a) - cpu_digamma(total) - log(x);
    if (p.gap > 0)
        return x / (1 - x) * integral(beta_below, &p, total);
    return integral(beta_above, &p, total);
}
