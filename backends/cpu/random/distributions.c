/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Samples of distributions that are drawn by rejection, so an element needs
 * any number of random numbers: element i takes 128 bits at a time from the
 * blocks offset + i whose third counter word is 1, 2, … (philox.h). */

#define _DEFAULT_SOURCE /* lgamma_r */

#include <math.h>

#include <expressions/philox.h>

#include "draw.h"
#include "math/sample_gradients.h"
#include "tables.h"

/* Two numbers in (0, 1) at a time, of one element. */
typedef struct source {
    uint64_t seed, block;
    uint32_t round; /* of blocks that were used */
    uint32_t left;  /* of words, 0 or 2 */
    uint32_t words[4];
} source;

static source source_of(const draw *job, int64_t i)
{
    return (source){.seed = job->seed, .block = job->offset + (uint64_t)i};
}

static double next_uniform(source *s)
{
    uint64_t bits;

    if (s->left == 0) {
        philox_block_round(s->seed, s->block, ++s->round, s->words);
        s->left = 4;
    }
    s->left -= 2;
    bits = s->words[s->left] | (uint64_t)s->words[s->left + 1] << 32;
    return ((double)(bits >> 11) + .5) * 0x1p-53;
}

/* The Box-Muller transform. */
static double next_normal(source *s)
{
    double radius = sqrt(-2 * log(next_uniform(s)));

    return radius * cos(0x1.921fb54442d18p+2 * next_uniform(s));
}

static double log_factorial(double k)
{
    int sign;

    return lgamma_r(k + 1, &sign);
}

/* --------------------------------------------------------------- poisson -- */

/* The first k whose running sum of probabilities reaches u. */
static double poisson_by_search(source *s, double rate)
{
    double u = next_uniform(s), p = exp(-rate), sum = p, k = 0;

    while (u > sum && p > 0) {
        p *= rate / ++k;
        sum += p;
    }
    return k;
}

/* W. Hörmann, "The transformed rejection method for generating Poisson random
 * variables", 1993, algorithm PTRS; for rates of 10 or more. */
static double poisson_by_rejection(source *s, double rate)
{
    double b = .931 + 2.53 * sqrt(rate), a = -.059 + .02483 * b;
    double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
    double squeeze = .9277 - 3.6224 / (b - 2);

    for (;;) {
        double u = next_uniform(s) - .5, v = next_uniform(s);
        double us = .5 - fabs(u);
        double k = floor((2 * a / us + b) * u + rate + .43);

        if (us >= .07 && v <= squeeze)
            return k;
        if (k < 0 || (us < .013 && v > us))
            continue;
        if (log(v * inverse_alpha / (a / (us * us) + b)) <=
            k * log(rate) - rate - log_factorial(k))
            return k;
    }
}

static double poisson_of(source *s, double rate)
{
    if (rate == INFINITY)
        return rate;
    return rate < 10 ? poisson_by_search(s, rate)
                     : poisson_by_rejection(s, rate);
}

/* -------------------------------------------------------------- binomial -- */

/* p is at most 1/2, and n p less than 10. */
static double binomial_by_search(source *s, double n, double p)
{
    double u = next_uniform(s), odds = p / (1 - p), k = 0;
    double chance = exp(n * log1p(-p)), sum = chance;

    while (u > sum && k < n) {
        chance *= odds * (n - k) / (k + 1);
        sum += chance;
        k++;
        if (chance == 0)
            break;
    }
    return k;
}

/* W. Hörmann, "The generation of binomial random variates", 1993, algorithm
 * BTRS; p is at most 1/2, and n p 10 or more. */
static double binomial_by_rejection(source *s, double n, double p)
{
    double deviation = sqrt(n * p * (1 - p));
    double b = 1.15 + 2.53 * deviation, a = -.0873 + .0248 * b + .01 * p;
    double c = n * p + .5, squeeze = .92 - 4.2 / b;
    double alpha = (2.83 + 5.1 / b) * deviation;
    double odds = log(p / (1 - p)), mode = floor((n + 1) * p);
    double top = log_factorial(mode) + log_factorial(n - mode);

    for (;;) {
        double u = next_uniform(s) - .5, v = next_uniform(s);
        double us = .5 - fabs(u);
        double k = floor((2 * a / us + b) * u + c);

        if (us >= .07 && v <= squeeze)
            return k;
        if (k < 0 || k > n)
            continue;
        if (log(v * alpha / (a / (us * us) + b)) <=
            top - log_factorial(k) - log_factorial(n - k) + (k - mode) * odds)
            return k;
    }
}

static double binomial_of(source *s, double count, double p)
{
    double n = floor(count), q = p > .5 ? 1 - p : p, k;

    if (n <= 0 || p <= 0)
        return 0;
    if (p >= 1 || n == INFINITY)
        return n;
    if (isnan(n) || isnan(p))
        return NAN;
    k = n * q < 10 ? binomial_by_search(s, n, q)
                   : binomial_by_rejection(s, n, q);
    return p > .5 ? n - k : k;
}

/* ----------------------------------------------------------------- gamma -- */

/* G. Marsaglia and W. W. Tsang, "A simple method for generating gamma
 * variables", 2000.  A shape below 1 is one more, whose sample is multiplied by
 * a power of a uniform number. */
static double gamma_of(source *s, double shape)
{
    double factor = 1, d, c;

    if (shape == 0 || shape == INFINITY)
        return shape;
    if (shape < 1) {
        factor = pow(next_uniform(s), 1 / shape);
        shape++;
    }
    d = shape - 1. / 3;
    c = 1 / sqrt(9 * d);
    for (;;) {
        double x = next_normal(s), v = 1 + c * x;

        if (v <= 0)
            continue;
        v = v * v * v;
        if (log(next_uniform(s)) < x * x / 2 + d - d * v + d * log(v))
            return factor * d * v;
    }
}

/* --------------------------------------------------------------- kernels -- */

typedef enum distribution { POISSON, BINOMIAL, GAMMA } distribution;

typedef struct samples {
    draw job;
    cpu_dense second;
    distribution of;
    double least; /* of the results */
} samples;

static void samples_task(void *context, int64_t begin, int64_t end)
{
    const samples *job = context;
    const double *a = job->job.p.data, *b = job->second.data;
    double *to = job->job.out.data;

    for (int64_t i = begin; i < end; i++) {
        source s = source_of(&job->job, i);
        double x = job->of == POISSON    ? poisson_of(&s, a[i])
                   : job->of == BINOMIAL ? binomial_of(&s, a[i], b[i])
                                         : gamma_of(&s, a[i]);

        to[i] = x < job->least ? job->least : x;
    }
}

/* The least normal number of a dtype, which a gamma sample is not below. */
static double least_of(core_dtype dtype)
{
    return dtype == CORE_F64   ? 0x1p-1022
           : dtype == CORE_F16 ? 0x1p-14
                               : 0x1p-126;
}

static core_status check_parameters(const core_call *call, const draw *job)
{
    const double *a = job->p.data;
    core_string name = cpu_operator(call);

    for (int64_t i = 0; i < job->n; i++)
        if (!(a[i] >= 0))
            return cpu_error(CORE_ERROR_INVALID_ARGUMENT,
                             "%.*s: an element of self is %g; it must be 0 or "
                             "more",
                             (int)name.size, name.data, a[i]);
    return CORE_OK;
}

static core_status sample(core_call *call, const core_value *args,
                          uint32_t nargs, core_value *results, distribution of)
{
    const core_view *out = cpu_view(&results[0]);
    samples job = {.job = draw_of(args, nargs, results),
                   .of = of,
                   .least = of == GAMMA ? least_of(out->dtype) : 0};
    core_status status =
        cpu_dense_expand(cpu_view(&args[0]), out, CORE_F64, &job.job.p);

    if (status == CORE_OK && of == BINOMIAL)
        status =
            cpu_dense_expand(cpu_view(&args[1]), out, CORE_F64, &job.second);
    else if (status == CORE_OK)
        status = check_parameters(call, &job.job);
    if (status == CORE_OK)
        status = cpu_dense_open(out, CORE_F64, &job.job.out);
    if (status == CORE_OK) {
        cpu_parallel_for(job.job.n, 256, samples_task, &job);
        cpu_dense_write(&job.job.out);
    }
    cpu_dense_close(&job.job.p);
    cpu_dense_close(&job.second);
    cpu_dense_close(&job.job.out);
    return status;
}

/* poisson(self, generator) */
static core_status launch_poisson(core_call *call, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults)
{
    (void)nresults;
    return sample(call, args, nargs, results, POISSON);
}

/* binomial(count, prob, generator) */
static core_status launch_binomial(core_call *call, const core_value *args,
                                   uint32_t nargs, core_value *results,
                                   uint32_t nresults)
{
    (void)nresults;
    return sample(call, args, nargs, results, BINOMIAL);
}

/* _standard_gamma(self, generator) */
static core_status launch_gamma(core_call *call, const core_value *args,
                                uint32_t nargs, core_value *results,
                                uint32_t nresults)
{
    (void)nresults;
    return sample(call, args, nargs, results, GAMMA);
}

/* ------------------------------------------------------------- gradients -- */

typedef struct slopes {
    cpu_dense in[3], out;
    int count; /* of tensors in `in` */
} slopes;

static void slopes_task(void *context, int64_t begin, int64_t end)
{
    const slopes *job = context;
    const double *a = job->in[0].data, *b = job->in[1].data;
    const double *c = job->in[2].data;
    double *to = job->out.data;

    for (int64_t i = begin; i < end; i++)
        to[i] = job->count == 2 ? cpu_gamma_slope(a[i], b[i])
                                : cpu_dirichlet_slope(a[i], b[i], c[i]);
}

static core_status slope(const core_value *args, core_value *results, int count)
{
    const core_view *out = cpu_view(&results[0]);
    slopes job = {.count = count};
    core_status status = CORE_OK;

    for (int k = 0; status == CORE_OK && k < count; k++)
        status =
            cpu_dense_expand(cpu_view(&args[k]), out, CORE_F64, &job.in[k]);
    if (status == CORE_OK)
        status = cpu_dense_open(out, CORE_F64, &job.out);
    if (status == CORE_OK) {
        cpu_parallel_for(out->numel, 64, slopes_task, &job);
        cpu_dense_write(&job.out);
    }
    for (int k = 0; k < count; k++)
        cpu_dense_close(&job.in[k]);
    cpu_dense_close(&job.out);
    return status;
}

/* _standard_gamma_grad(self, output) */
static core_status launch_gamma_slope(core_call *call, const core_value *args,
                                      uint32_t nargs, core_value *results,
                                      uint32_t nresults)
{
    (void)call;
    (void)nargs;
    (void)nresults;
    return slope(args, results, 2);
}

/* _dirichlet_grad(x, alpha, total) */
static core_status launch_dirichlet_slope(core_call *call,
                                          const core_value *args,
                                          uint32_t nargs, core_value *results,
                                          uint32_t nresults)
{
    (void)call;
    (void)nargs;
    (void)nresults;
    return slope(args, results, 3);
}

static const cpu_kernel kernels[] = {
    {"poisson", launch_poisson, NULL, {CPU_FLOATS, CPU_FLOATS}, 0},
    {"binomial",
     launch_binomial,
     NULL,
     {CPU_FLOATS, CPU_FLOATS, CPU_FLOATS},
     0},
    {"_standard_gamma", launch_gamma, NULL, {CPU_FLOATS, CPU_FLOATS}, 0},
    {"_standard_gamma_grad",
     launch_gamma_slope,
     NULL,
     {CPU_FLOATS, CPU_FLOATS, CPU_FLOATS},
     0},
    {"_dirichlet_grad",
     launch_dirichlet_slope,
     NULL,
     {CPU_FLOATS, CPU_FLOATS, CPU_FLOATS, CPU_FLOATS},
     0},
};

const cpu_kernel_table cpu_distributions_kernels = {
    kernels, sizeof kernels / sizeof kernels[0]};
