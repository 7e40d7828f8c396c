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
#include "runtime/once.h"

/* A node between 0 and 1. */
typedef struct node {
    double log_u, v, weight; /* v: how far from 1 */
} node;

/* The nodes of an integral. */
typedef struct nodes {
    int count;
    node list[64 * 11 + 1];
} nodes;

/* Of an integral from 0 to infinity: exp(pi / 2 sinh y) and the weight. */
typedef struct far_node {
    double s, weight;
} far_node;

enum { FAR = 145 };

/* Parameters of an integrand. */
typedef struct point {
    double a, b, x, gap; /* gap: c - log x */
} point;

typedef double (*integrand)(const point *p, const node *at);

static const double pi = 0x1.921fb54442d18p+1;

static nodes tables[3]; /* 16, 32 and 64 nodes per unit */
static far_node far_nodes[FAR];
static cpu_once_state once;

/* u = 1 / (1 + exp(-pi sinh y)) */
static void fill(nodes *to, int density)
{
    int count = density * 11 / 2;
    double step = 1. / density;

    to->count = 0;
    for (int k = -count; k <= count; k++) {
        double y = k * step, e = exp(-pi * sinh(y));
        double u = 1 / (1 + e), v = e / (1 + e);
        double weight = pi * cosh(y) * u * v * step;

        if (u > 0 && v > 0 && weight > 0)
            to->list[to->count++] =
                (node){u < .5 ? log(u) : log1p(-v), v, weight};
    }
}

static void fill_once(void)
{
    for (int i = 0; i < 3; i++)
        fill(&tables[i], 16 << i);
    for (int k = 0; k < FAR; k++) {
        double y = (k - 80) / 16.;

        far_nodes[k] = (far_node){exp(pi / 2 * sinh(y)), pi / 2 * cosh(y) / 16};
    }
}

/* The integral from 0 to 1.  The larger the sum of the parameters, the narrower
 * the peak. */
static double integral(integrand f, const point *p, double parameters)
{
    const nodes *at = &tables[parameters > 1e6 ? 2 : parameters > 1e3];
    double sum = 0;

    cpu_once(&once, fill_once);
    for (int k = 0; k < at->count; k++)
        sum += at->list[k].weight * f(p, &at->list[k]);
    return sum;
}

/* u^(a - 1) of a node u, for a of 1 or more.  For a smaller one the power is
 * singular, and u is z^(1/a) of the node z: u^(a - 1) du = dz / a. */
typedef struct power {
    double log_u, v, log_factor; /* v: 1 - u */
} power;

static power power_of(double a, const node *at)
{
    double log_u = at->log_u;

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
 * s = width exp(pi / 2 sinh y), y from -5 to 4: the density falls within a few
 * widths */
static double gamma_above(const point *p)
{
    double above = fmax(p->a - 1, 0);
    double width = 1 / (1 - fmin(above / p->x, 1) + sqrt(above) / p->x);
    double sum = 0;

    cpu_once(&once, fill_once);
    for (int k = 0; k < FAR; k++) {
        double s = width * far_nodes[k].s;
        double log_t = log1p(s / p->x);
        double f = exp((p->a - 1) * log_t - s) * (log_t - p->gap);

        if (f > 0)
            sum += s * far_nodes[k].weight * f;
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
