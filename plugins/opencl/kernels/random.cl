/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* random.cl: random numbers per element, with the same bits as the CPU's:
 * Philox4x32-10 (J. Salmon and others, "Parallel random numbers: as easy as 1,
 * 2, 3", 2011) of the block's number, keyed by the seed.  32 bits of element i:
 * word i mod 4 of block offset + i / 4; 64 bits: a half of block offset + i /
 * 2. */

/* Must match random.c. */
typedef struct draw {
    ulong seed, offset, n;
    ulong range; /* of integers, 0: 2^64; for bernoulli the limit of 32 bits */
    long first;
    int counted, wide_;
} draw;

static uint4 block_of(ulong seed, ulong number)
{
    uint4 x = (uint4)((uint)number, (uint)(number >> 32), 0, 0);
    uint k0 = (uint)seed, k1 = (uint)(seed >> 32);

    for (int round_ = 0; round_ < 10; round_++) {
        ulong p = (ulong)x.s0 * 0xd2511f53u, q = (ulong)x.s2 * 0xcd9e8d57u;

        x = (uint4)((uint)(q >> 32) ^ x.s1 ^ k0, (uint)q,
                    (uint)(p >> 32) ^ x.s3 ^ k1, (uint)p);
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return x;
}

static uint bits_32(const draw *d, ulong i)
{
    uint4 x = block_of(d->seed, d->offset + i / 4);

    return i % 4 == 0 ? x.s0 : i % 4 == 1 ? x.s1 : i % 4 == 2 ? x.s2 : x.s3;
}

static ulong bits_64(const draw *d, ulong i)
{
    uint4 x = block_of(d->seed, d->offset + i / 2);

    return i % 2 == 0 ? x.s0 | (ulong)x.s1 << 32 : x.s2 | (ulong)x.s3 << 32;
}

/* A replayed capture reads both from the device. */
static draw begun(draw d, const global uchar *counter, ulong counter_at)
{
    if (d.counted) {
        d.offset += AT(const ulong, counter, counter_at)[0];
        d.seed = AT(const ulong, counter, counter_at)[1];
    }
    return d;
}

#define BEGIN                                     \
    const ulong i = get_global_id(0);             \
    if (i >= given.n)                             \
        return;                                   \
    const draw d = begun(given, counter, counter_at)

#if ID0 <= BF16n
#if ID0 == F64n
static C0 unit(const draw *d, ulong i)
{
    return (double)(bits_64(d, i) >> 11) * 0x1p-53;
}
#else
static C0 unit(const draw *d, ulong i)
{
    return (float)(bits_32(d, i) >> 8) * 0x1p-24f;
}
#endif

kernel void uniform(global uchar *to, ulong to_at, const global uchar *counter,
                    ulong counter_at, draw given, wide from, wide upto)
{
    BEGIN;
    C0 low = (C0)from, width = (C0)upto - low;
#if ID0 == F16n || ID0 == BF16n
    uint kept = bits_32(&d, i) & ~0u << (ID0 == F16n ? 21 : 24);
    C0 u = (float)(kept >> 8) * 0x1p-24f;
#else
    C0 u = unit(&d, i);
#endif

    STORE(0, to, to_at, i, low + u * width);
}

/* The Box-Muller transform of a pair of elements. */
kernel void normal(global uchar *to, ulong to_at, const global uchar *counter,
                   ulong counter_at, draw given, wide mean, wide deviation)
{
    BEGIN;
    wide u = unit(&d, i & ~1ul), v = unit(&d, i | 1);
    wide radius = sqrt(-2 * log(1 - u));
    wide angle = (wide)6.283185307179586 * v;

    STORE(0, to, to_at, i,
          (C0)(mean + deviation * (radius * (i & 1 ? sin(angle)
                                                   : cos(angle)))));
}
#endif

#if ID0 == BOOLn
#define WHOLE(x) ((x) != 0)
#else
#define WHOLE(x) PUT0(x)
#endif

kernel void integers(global uchar *to, ulong to_at,
                     const global uchar *counter, ulong counter_at,
                     draw given)
{
    BEGIN;
    ulong value;

    if (d.wide_)
        value = d.range ? mul_hi(bits_64(&d, i), d.range) : bits_64(&d, i);
    else
        value = (ulong)bits_32(&d, i) * d.range >> 32;
    AT(T0, to, to_at)[i] = WHOLE((long)((ulong)d.first + value));
}

kernel void bernoulli(global uchar *to, ulong to_at,
                      const global uchar *counter, ulong counter_at,
                      draw given)
{
    BEGIN;
    AT(T0, to, to_at)[i] = WHOLE(bits_32(&d, i) < d.range ? 1 : 0);
}

/* T1: the type of the probabilities or weights. */
#ifdef T1
kernel void bernoulli_each(global uchar *to, ulong to_at,
                           const global uchar *counter, ulong counter_at,
                           const global uchar *chance, ulong chance_at,
                           draw given, global fault *errors, long call)
{
    BEGIN;
    C1 p = LOAD(1, chance, chance_at, i);

    if (!(p >= 0 && p <= 1)) {
        fail_because(errors, 1, PROBABILITY, call, i);
        p = 0;
    }
    AT(T0, to, to_at)[i] =
        WHOLE(bits_32(&d, i) < (ulong)ceil(p * (C1)4294967296.0) ? 1 : 0);
}

#ifdef HAS_F64
static double unit_f64(ulong bits)
{
    return (double)(bits >> 11) * 0x1p-53;
}

/* A work item for each row of n weights; returns whether they are valid. */
static int weights_sum(const global T1 *p, long n, long samples,
                       int replacement, double *sum)
{
    long possible = 0;

    *sum = 0;
    for (long i = 0; i < n; i++) {
        double w = GET1(p[i]);

        if (!(w >= 0) || w == INFINITY)
            return 0;
        *sum += w;
        possible += w > 0;
    }
    return *sum > 0 && *sum < INFINITY && (replacement || samples <= possible);
}

static long repeated(const draw *d, const global T1 *p, long n, double sum,
                     ulong which)
{
    double at = unit_f64(bits_64(d, which)) * sum, running = 0;
    long k = 0;

    for (; k < n - 1; k++) {
        running += GET1(p[k]);
        if (running > at)
            break;
    }
    while (k > 0 && GET1(p[k]) == 0)
        k--; /* rounding went beyond the last positive weight */
    return k;
}

/* Exponential clocks: the next one to fire after (key, index). */
static long distinct(const draw *d, const global T1 *p, long n, ulong base,
                     double *key, long before)
{
    double best = INFINITY;
    long found = -1;

    for (long k = 0; k < n; k++) {
        double w = GET1(p[k]);
        double wait =
            w > 0 ? fmin(-log1p(-unit_f64(bits_64(d, base + k))) / w, DBL_MAX)
                  : INFINITY;

        if (wait < *key || (wait == *key && k <= before))
            continue;
        if (found < 0 || wait < best) {
            best = wait;
            found = k;
        }
    }
    *key = best;
    return found;
}

kernel void multinomial(global uchar *to, ulong to_at,
                        const global uchar *counter, ulong counter_at,
                        const global uchar *weights, ulong weights_at,
                        draw given, long n, long samples, int replacement,
                        global fault *errors, long call)
{
    BEGIN; /* i: the row */
    const global T1 *p = AT(const T1, weights, weights_at) + i * n;
    global T0 *row = AT(T0, to, to_at) + i * samples;
    double sum, key = -1;
    long last = -1;

    if (!weights_sum(p, n, samples, replacement, &sum)) {
        fail_because(errors, 1, WEIGHTS, call, i);
        for (long k = 0; k < samples; k++)
            row[k] = 0;
        return;
    }
    for (long k = 0; k < samples; k++) {
        last = replacement ? repeated(&d, p, n, sum, i * samples + k)
                           : distinct(&d, p, n, i * n, &key, last);
        row[k] = last;
    }
}
#endif
#endif
