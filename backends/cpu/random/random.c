/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* random.c: random numbers per element (philox.h).  The core appends three
 * values to the arguments of these kernels (kernel.h): the seed, the first
 * counter block that the call may use, and the address of both at run time.
 * An operator uses no more blocks than its largest tensor has elements.
 *
 * The elements, in exact arithmetic if not stated otherwise:
 *     uniform_     from + u (to - from), rounded after each operation; u has
 *                  the 24 (f32), 11 (f16), 8 (bf16) high bits of 32, or the
 *                  53 high bits of 64 (f64)
 *     bernoulli    32 bits / 2^32 < p
 *     random_      from + the high half of bits * range; 64 bits if the
 *                  range is above 2^32, else 32
 *     normal_      the Box-Muller transform of a pair of elements, computed in
 *                  doubles and rounded once */

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <expressions/philox.h>

#include "draw.h"
#include "draw_kernel.h"
#include "isa.h"
#include "tables.h"

/* --------------------------------------------------------------- uniform -- */

static int64_t group_size(int64_t i, int64_t end)
{
    return end - i < CPU_DRAW_GROUP ? end - i : CPU_DRAW_GROUP;
}

static const cpu_draw_functions *functions(void)
{
    return CPU_CHOSEN(&cpu_draw_functions);
}

/* Writes n numbers from i on as the result's dtype. */
static void put_floats(const draw *job, int64_t i, const float *from, int64_t n)
{
    cpu_put_f32(job->dtype,
                (char *)job->out.data + i * cpu_item_size(job->dtype), 1, from,
                n);
}

static void uniform_floats(void *context, int64_t begin, int64_t end)
{
    const draw *job = context;
    float from = (float)job->a, width = (float)job->b - from;
    uint32_t kept = job->dtype == CORE_F16    ? 11
                    : job->dtype == CORE_BF16 ? 8
                                              : 24;
    float group[CPU_DRAW_GROUP];

    for (int64_t i = begin; i < end; i += CPU_DRAW_GROUP) {
        functions()->uniform(group, job->seed, job->offset, i,
                             ~UINT32_C(0) << (32 - kept), from, width);
        put_floats(job, i, group, group_size(i, end));
    }
}

static void uniform_f64(void *context, int64_t begin, int64_t end)
{
    const draw *job = context;
    double *to = job->out.data, width = job->b - job->a;

    for (int64_t i = begin; i < end; i++)
        to[i] = job->a + philox_unit_f64(
                             philox_64(job->seed, job->offset, (uint64_t)i)) *
                             width;
}

/* uniform_(self, from, to, generator) */
static core_status launch_uniform(core_call *call, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults)
{
    draw job = draw_of(args, nargs, results);
    core_dtype dtype = cpu_compute_dtype(job.dtype);

    (void)call;
    (void)nresults;
    job.a = cpu_float(&args[1]);
    job.b = cpu_float(&args[2]);
    if (!(job.a <= job.b))
        return cpu_error(CORE_ERROR_INVALID_ARGUMENT,
                         "uniform_: from is %g, to is %g", job.a, job.b);
    return draw_run(&job, results, job.dtype,
                    dtype == CORE_F64 ? uniform_f64 : uniform_floats);
}

/* ---------------------------------------------------------------- normal -- */

/* The pair of elements that i belongs to: radius and angle. */
static inline double normal_of(double u, double v, bool second)
{
    double radius = sqrt(-2 * log(1 - u)), angle = 0x1.921fb54442d18p+2 * v;

    return radius * (second ? sin(angle) : cos(angle));
}

static void normal_floats(void *context, int64_t begin, int64_t end)
{
    const draw *job = context;
    float group[CPU_DRAW_GROUP];

    for (int64_t i = begin; i < end; i += CPU_DRAW_GROUP) {
        functions()->normal(group, job->seed, job->offset, i, job->a, job->b);
        put_floats(job, i, group, group_size(i, end));
    }
}

static void normal_f64(void *context, int64_t begin, int64_t end)
{
    const draw *job = context;
    double *to = job->out.data;

    for (int64_t i = begin; i < end; i++) {
        uint64_t pair = (uint64_t)i & ~UINT64_C(1);
        uint64_t u = philox_64(job->seed, job->offset, pair);
        uint64_t v = philox_64(job->seed, job->offset, pair + 1);

        to[i] = job->a + job->b * normal_of(philox_unit_f64(u),
                                            philox_unit_f64(v), i % 2 == 1);
    }
}

/* normal_(self, mean, std, generator) */
static core_status launch_normal(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults)
{
    draw job = draw_of(args, nargs, results);
    core_dtype dtype = cpu_compute_dtype(job.dtype);

    (void)call;
    (void)nresults;
    job.a = cpu_float(&args[1]);
    job.b = cpu_float(&args[2]);
    if (!(job.b >= 0))
        return cpu_error(CORE_ERROR_INVALID_ARGUMENT, "normal_: std is %g",
                         job.b);
    return draw_run(&job, results, job.dtype,
                    dtype == CORE_F64 ? normal_f64 : normal_floats);
}

/* -------------------------------------------------------------- integers -- */

static void random_task(void *context, int64_t begin, int64_t end)
{
    const draw *job = context;
    int64_t *to = job->out.data;
    bool wide = job->range == 0 || job->range > UINT64_C(1) << 32;

    for (int64_t i = begin; i < end; i++) {
        uint64_t value;

        if (wide) {
            value = philox_64(job->seed, job->offset, (uint64_t)i);
            if (job->range)
                value = (uint64_t)((unsigned __int128)value * job->range >> 64);
        } else {
            value = philox_32(job->seed, job->offset, (uint64_t)i);
            value = value * job->range >> 32;
        }
        to[i] = cpu_add_i64(job->first, (int64_t)value);
    }
}

/* The largest integer that random_ draws without a limit. */
static int64_t largest_of(core_dtype dtype)
{
    static const int64_t largest[CORE_DTYPE_LIMIT] = {
        [CORE_F64] = INT64_C(1) << 53, [CORE_F32] = 1 << 24,
        [CORE_F16] = 1 << 11,          [CORE_BF16] = 1 << 8,
        [CORE_I64] = INT64_MAX,        [CORE_I32] = INT32_MAX,
        [CORE_I16] = INT16_MAX,        [CORE_I8] = INT8_MAX,
        [CORE_U8] = UINT8_MAX,         [CORE_BOOL] = 1};

    return largest[dtype];
}

/* random_.from(self, from, to?, generator) */
static core_status launch_random(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults)
{
    draw job = draw_of(args, nargs, results);
    bool limited = args[2].tag != CORE_VALUE_NONE;
    int64_t last = limited ? cpu_int(&args[2]) : largest_of(job.dtype);

    (void)call;
    (void)nresults;
    job.first = cpu_int(&args[1]);
    if (limited ? job.first >= last : job.first > last)
        return cpu_error(CORE_ERROR_INVALID_ARGUMENT,
                         "random_: from is %lld, to is %lld",
                         (long long)job.first, (long long)last);
    job.range = (uint64_t)last - (uint64_t)job.first + !limited;
    return draw_run(&job, results, CORE_I64, random_task);
}

/* ------------------------------------------------------------- bernoulli -- */

static void bernoulli_task(void *context, int64_t begin, int64_t end)
{
    const draw *job = context;
    const double *p = job->p.data;
    int64_t *to = job->out.data;
    uint32_t block[4];

    for (int64_t i = begin; i < end; i++) {
        if (i % 4 == 0 || i == begin)
            philox_block(job->seed, job->offset + (uint64_t)i / 4, block);
        to[i] = (double)block[i % 4] * 0x1p-32 < (p ? p[i] : job->a);
    }
}

/* The same for a mask with one probability: 32 bits / 2^32 < p where the bits
 * are less than 2^32 p, rounded up. */
static void bernoulli_mask(void *context, int64_t begin, int64_t end)
{
    const draw *job = context;
    uint64_t limit = (uint64_t)ceil(job->a * 0x1p32);
    uint8_t *to = job->out.data, mask[CPU_DRAW_GROUP];

    for (int64_t i = begin; i < end; i += CPU_DRAW_GROUP) {
        functions()->less(mask, job->seed, job->offset, i, limit);
        memcpy(to + i, mask, (size_t)group_size(i, end));
    }
}

static core_status check_probability(double p)
{
    if (p >= 0 && p <= 1)
        return CORE_OK;
    return cpu_error(CORE_ERROR_INVALID_ARGUMENT,
                     "bernoulli: a probability is %g", p);
}

/* bernoulli_.float(self, p, generator) */
static core_status launch_bernoulli(core_call *call, const core_value *args,
                                    uint32_t nargs, core_value *results,
                                    uint32_t nresults)
{
    draw job = draw_of(args, nargs, results);
    core_status status;

    (void)call;
    (void)nresults;
    job.a = cpu_float(&args[1]);
    status = check_probability(job.a);
    if (status == CORE_OK)
        status = job.dtype == CORE_BOOL
                     ? draw_run(&job, results, CORE_BOOL, bernoulli_mask)
                     : draw_run(&job, results, CORE_I64, bernoulli_task);
    return status;
}

/* bernoulli(self, generator): self contains the probabilities */
static core_status launch_bernoulli_each(core_call *call,
                                         const core_value *args, uint32_t nargs,
                                         core_value *results, uint32_t nresults)
{
    draw job = draw_of(args, nargs, results);
    core_status status = cpu_dense_read(cpu_view(&args[0]), CORE_F64, &job.p);

    (void)call;
    (void)nresults;
    for (int64_t i = 0; i < job.n && status == CORE_OK; i++)
        status = check_probability(((const double *)job.p.data)[i]);
    if (status == CORE_OK)
        status = draw_run(&job, results, CORE_I64, bernoulli_task);
    cpu_dense_close(&job.p);
    return status;
}

/* ----------------------------------------------------------- multinomial -- */

typedef struct choice {
    double key;
    int64_t index;
} choice;

static int choice_compare(const void *a, const void *b)
{
    const choice *x = a, *y = b;

    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static core_status check_weights(const double *p, int64_t n, int64_t samples,
                                 bool replacement)
{
    double sum = 0;
    int64_t possible = 0;

    for (int64_t i = 0; i < n; i++) {
        if (!(p[i] >= 0) || p[i] == INFINITY)
            return cpu_error(CORE_ERROR_INVALID_ARGUMENT,
                             "multinomial: weight %lld is %g", (long long)i,
                             p[i]);
        sum += p[i];
        possible += p[i] > 0;
    }
    if (!(sum > 0) || sum == INFINITY)
        return cpu_error(CORE_ERROR_INVALID_ARGUMENT,
                         "multinomial: the weights add up to %g", sum);
    if (!replacement && samples > possible)
        return cpu_error(CORE_ERROR_INVALID_ARGUMENT,
                         "multinomial: %lld samples without replacement from "
                         "%lld weights above 0",
                         (long long)samples, (long long)possible);
    return CORE_OK;
}

/* The first of several exponential clocks to fire, one per weight, each with
 * the draw of its index among all weights. */
static void sample_distinct(const draw *job, const double *p, int64_t n,
                            int64_t row, int64_t samples, choice *clocks)
{
    int64_t *to = (int64_t *)job->out.data + row * samples;

    for (int64_t i = 0; i < n; i++) {
        uint64_t bits =
            philox_64(job->seed, job->offset, (uint64_t)(row * n + i));
        double wait = -log1p(-philox_unit_f64(bits));

        wait = p[i] > 0 ? fmin(wait / p[i], DBL_MAX) : INFINITY;
        clocks[i] = (choice){wait, i};
    }
    qsort(clocks, (size_t)n, sizeof *clocks, choice_compare);
    for (int64_t k = 0; k < samples; k++)
        to[k] = clocks[k].index;
}

/* Each sample by its own draw, among the running sums of the weights. */
static void sample_repeated(const draw *job, const double *p, int64_t n,
                            int64_t row, int64_t samples, choice *sums)
{
    int64_t *to = (int64_t *)job->out.data + row * samples;
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sums[i] = (choice){sum += p[i], i};
    for (int64_t k = 0; k < samples; k++) {
        uint64_t bits =
            philox_64(job->seed, job->offset, (uint64_t)(row * samples + k));
        double at = philox_unit_f64(bits) * sum;
        int64_t low = 0, high = n - 1;

        while (low < high) {
            int64_t middle = (low + high) / 2;

            if (sums[middle].key > at)
                high = middle;
            else
                low = middle + 1;
        }
        while (low > 0 && p[low] == 0)
            low--; /* rounding went beyond the last positive weight */
        to[k] = low;
    }
}

/* multinomial(self, num_samples, replacement, generator): one row of indices
 * for each row of weights */
static core_status launch_multinomial(core_call *call, const core_value *args,
                                      uint32_t nargs, core_value *results,
                                      uint32_t nresults)
{
    const core_view *self = cpu_view(&args[0]);
    draw job = draw_of(args, nargs, results);
    int64_t n = self->sizes[self->ndim - 1], samples = cpu_int(&args[1]);
    bool replacement = cpu_int(&args[2]) != 0;
    choice *scratch = cpu_allocate(n, sizeof *scratch);
    core_status status = scratch ? CORE_OK : CORE_ERROR_OUT_OF_MEMORY;

    (void)call;
    (void)nresults;
    if (status == CORE_OK)
        status = cpu_dense_read(self, CORE_F64, &job.p);
    if (status == CORE_OK)
        status = cpu_dense_open(cpu_view(&results[0]), CORE_I64, &job.out);
    for (int64_t row = 0; status == CORE_OK && row * n < self->numel; row++) {
        const double *p = (const double *)job.p.data + row * n;

        status = check_weights(p, n, samples, replacement);
        if (status != CORE_OK)
            break;
        if (replacement)
            sample_repeated(&job, p, n, row, samples, scratch);
        else
            sample_distinct(&job, p, n, row, samples, scratch);
    }
    if (status == CORE_OK)
        cpu_dense_write(&job.out);
    cpu_dense_close(&job.p);
    cpu_dense_close(&job.out);
    free(scratch);
    return status;
}

/* ------------------------------------------------------ eight-bit floats -- */

/* Like math_e4m3_of_f32 and math_e5m2_of_f32, with 32 random bits: rounds up if
 * they are below the part that is cut off, as a fraction of 2^32. */
static uint8_t round_by_chance(core_dtype dtype, float x, uint32_t random,
                               bool saturate)
{
    bool wide = dtype == CORE_F8E4M3; /* its mantissa */
    uint32_t shift = wide ? 20 : 21, bias = wide ? 120 : 112;
    uint32_t most = wide ? 0x7e : 0x7b;
    uint32_t bits = math_bits_of_f32(x) & UINT32_C(0x7fffffff);
    uint32_t sign = math_bits_of_f32(x) >> 24 & 0x80, code;
    uint64_t share;

    if (bits > UINT32_C(0x7f800000))
        return (uint8_t)(sign | 0x7f);
    if (bits < (bias + 1) << 23) { /* multiples of the least subnormal */
        double units = (double)math_f32_of_bits(bits) * (wide ? 0x1p9 : 0x1p16);

        code = (uint32_t)units;
        share = (uint64_t)((units - code) * 0x1p32);
    } else {
        code = (bits - (bias << 23)) >> shift;
        share = (uint64_t)bits << (64 - shift) >> 32;
    }
    code += random < share;
    if (code > most)
        code = saturate ? most : most + 1;
    return (uint8_t)(sign | code);
}

typedef struct chance {
    draw job;
    bool saturate;
} chance;

static void stochastic_task(void *context, int64_t begin, int64_t end)
{
    const chance *c = context;
    const float *from = c->job.p.data;
    uint8_t *to = c->job.out.data;
    uint32_t block[4];

    for (int64_t i = begin; i < end; i++) {
        if (i % 4 == 0 || i == begin)
            philox_block(c->job.seed, c->job.offset + (uint64_t)i / 4, block);
        to[i] =
            round_by_chance(c->job.dtype, from[i], block[i % 4], c->saturate);
    }
}

/* stochastic_round(self, dtype, saturate, generator) */
static core_status launch_stochastic(core_call *call, const core_value *args,
                                     uint32_t nargs, core_value *results,
                                     uint32_t nresults)
{
    chance c = {.job = draw_of(args, nargs, results),
                .saturate = cpu_int(&args[2]) != 0};
    core_status status = cpu_dense_read(cpu_view(&args[0]), CORE_F32, &c.job.p);

    (void)call;
    (void)nresults;
    if (status == CORE_OK)
        status = cpu_dense_open(cpu_view(&results[0]), c.job.dtype, &c.job.out);
    if (status == CORE_OK) {
        cpu_parallel_for(c.job.n, GRAIN, stochastic_task, &c);
        cpu_dense_write(&c.job.out);
    }
    cpu_dense_close(&c.job.p);
    cpu_dense_close(&c.job.out);
    return status;
}

static const cpu_kernel kernels[] = {
    {"uniform_", launch_uniform, NULL, {CPU_FLOATS, CPU_FLOATS}, 0},
    {"normal_", launch_normal, NULL, {CPU_FLOATS, CPU_FLOATS}, 0},
    {"random_.from", launch_random, NULL, {CPU_ALL, CPU_ALL}, 0},
    {"bernoulli_.float", launch_bernoulli, NULL, {CPU_ALL, CPU_ALL}, 0},
    {"bernoulli", launch_bernoulli_each, NULL, {CPU_FLOATS, CPU_ALL}, 0},
    {"stochastic_round", launch_stochastic, NULL, {CPU_FLOATS, CPU_FLOAT8}, 0},
    {"multinomial", launch_multinomial, NULL, {CPU_FLOATS, CPU_INDICES}, 0},
};

const cpu_kernel_table cpu_random_kernels = {kernels, sizeof kernels /
                                                          sizeof kernels[0]};
