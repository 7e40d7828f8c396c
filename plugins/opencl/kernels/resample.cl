/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* resample.cl: separable nearest, linear and cubic interpolation, and adaptive
 * pooling; of the last three dimensions of planes. */

enum { NEAREST = 1, LINEAR = 2, CUBIC = 4 }; /* = taps */

/* Must match resample.c. */
typedef struct resampling {
    long planes, in[3], out[3];
    wide ratio[3];
    int taps[3], align;
} resampling;

static wide cubic(wide x)
{
    const wide a = (wide)-0.75;

    x = fabs(x);
    if (x <= 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
}

/* Rounds down to an index. */
static long index_near(wide at, long size)
{
    return !(at > 0) ? 0 : at >= (wide)(size - 1) ? size - 1 : (long)at;
}

/* Tap k of an output coordinate: the input coordinate and its weight. */
static long tap(const resampling *r, int d, long o, int k, wide *weight)
{
    const long in = r->in[d];
    wide at, whole;
    long i;

    *weight = 1;
    if (r->taps[d] == NEAREST) {
        if (in == r->out[d])
            return o;
        if (r->out[d] == 2 * in)
            return o / 2;
        return index_near((wide)((float)o * (float)r->ratio[d]), in);
    }
    at = r->align ? (wide)o * r->ratio[d]
                  : ((wide)o + (wide)0.5) * r->ratio[d] - (wide)0.5;
    if (r->taps[d] == LINEAR) {
        at = !(at > 0) ? 0 : at > (wide)(in - 1) ? (wide)(in - 1) : at;
        i = index_near(at, in);
        *weight = k == 0 ? 1 - (at - (wide)i) : at - (wide)i;
        return k == 0 ? i : i + (i + 1 < in);
    }
    /* There, all taps are the last. */
    at = at < (wide)in + 2 ? at : (wide)in + 2;
    whole = floor(at);
    *weight = cubic(at - whole - (wide)(k - 1));
    return index_near(whole + (wide)(k - 1), in);
}

#define PLACE(size)                                                       \
    const long at = get_global_id(0), x = at % r.size[2];                 \
    const long y = at / r.size[2] % r.size[1];                            \
    const long z = at / r.size[2] / r.size[1] % r.size[0];                \
    const long plane = at / r.size[2] / r.size[1] / r.size[0];            \
    if (plane >= r.planes)                                                \
        return

kernel void forward(global uchar *to, ulong to_at, const global uchar *in,
                    ulong in_at, resampling r)
{
    PLACE(out);
    const global T0 *from =
        AT(const T0, in, in_at) + plane * r.in[0] * r.in[1] * r.in[2];
    wide sum = 0, wz, wy, wx;

    for (int i = 0; i < r.taps[0]; i++) {
        long iz = tap(&r, 0, z, i, &wz);

        for (int j = 0; j < r.taps[1]; j++) {
            long iy = tap(&r, 1, y, j, &wy);
            wide row = 0;

            for (int k = 0; k < r.taps[2]; k++) {
                long ix = tap(&r, 2, x, k, &wx);

                row += wx * GET0(from[(iz * r.in[1] + iy) * r.in[2] + ix]);
            }
            sum += wz * wy * row;
        }
    }
    STORE(0, to, to_at, at, sum);
}

/* The outputs that may use an input coordinate. */
static void reach(const resampling *r, int d, long i, long *first, long *last)
{
    wide centre = r->align ? (wide)i / r->ratio[d]
                           : ((wide)i + (wide)0.5) / r->ratio[d] - (wide)0.5;
    wide margin = 3 / r->ratio[d] + 2;

    *first = 0;
    *last = r->out[d] - 1;
    if (i == 0 || i == r->in[d] - 1 || !(r->ratio[d] > 0))
        return;
    *first = index_near(centre - margin, r->out[d]);
    *last = index_near(centre + margin, r->out[d]);
}

/* The weight of an input coordinate in an output coordinate. */
static wide share(const resampling *r, int d, long o, long i)
{
    wide sum = 0, weight;

    for (int k = 0; k < r->taps[d]; k++)
        if (tap(r, d, o, k, &weight) == i)
            sum += weight;
    return sum;
}

kernel void backward(global uchar *to, ulong to_at, const global uchar *grad,
                     ulong grad_at, resampling r)
{
    PLACE(in);
    const global T0 *from =
        AT(const T0, grad, grad_at) + plane * r.out[0] * r.out[1] * r.out[2];
    long z0, z1, y0, y1, x0, x1;
    wide sum = 0;

    reach(&r, 0, z, &z0, &z1);
    reach(&r, 1, y, &y0, &y1);
    reach(&r, 2, x, &x0, &x1);
    for (long oz = z0; oz <= z1; oz++) {
        wide wz = share(&r, 0, oz, z);

        for (long oy = y0; oy <= y1 && wz != 0; oy++) {
            wide wy = share(&r, 1, oy, y);

            for (long ox = x0; ox <= x1 && wy != 0; ox++)
                sum += wz * wy * share(&r, 2, ox, x) *
                       GET0(from[(oz * r.out[1] + oy) * r.out[2] + ox]);
        }
    }
    STORE(0, to, to_at, at, sum);
}

/* ------------------------------------------------------- adaptive pools -- */

static long begins(const resampling *r, int d, long o)
{
    return o * r->in[d] / r->out[d];
}

static long ends(const resampling *r, int d, long o)
{
    return ((o + 1) * r->in[d] + r->out[d] - 1) / r->out[d];
}

kernel void adapt_mean(global uchar *to, ulong to_at, const global uchar *in,
                       ulong in_at, resampling r)
{
    PLACE(out);
    const global T0 *from =
        AT(const T0, in, in_at) + plane * r.in[0] * r.in[1] * r.in[2];
    const long z1 = ends(&r, 0, z), y1 = ends(&r, 1, y), x1 = ends(&r, 2, x);
    long count = (z1 - begins(&r, 0, z)) * (y1 - begins(&r, 1, y)) *
                 (x1 - begins(&r, 2, x));
    ACC0 sum = 0;

    for (long iz = begins(&r, 0, z); iz < z1; iz++)
        for (long iy = begins(&r, 1, y); iy < y1; iy++)
            for (long ix = begins(&r, 2, x); ix < x1; ix++)
                sum += GET0(from[(iz * r.in[1] + iy) * r.in[2] + ix]);
    STORE(0, to, to_at, at, sum / count);
}

kernel void adapt_mean_backward(global uchar *to, ulong to_at,
                                const global uchar *grad, ulong grad_at,
                                resampling r)
{
    PLACE(in);
    const global T0 *from =
        AT(const T0, grad, grad_at) + plane * r.out[0] * r.out[1] * r.out[2];
    ACC0 sum = 0;

    for (long oz = z * r.out[0] / r.in[0];
         oz < r.out[0] && begins(&r, 0, oz) <= z; oz++) {
        if (ends(&r, 0, oz) <= z)
            continue;
        for (long oy = y * r.out[1] / r.in[1];
             oy < r.out[1] && begins(&r, 1, oy) <= y; oy++) {
            if (ends(&r, 1, oy) <= y)
                continue;
            for (long ox = x * r.out[2] / r.in[2];
                 ox < r.out[2] && begins(&r, 2, ox) <= x; ox++) {
                long count = (ends(&r, 0, oz) - begins(&r, 0, oz)) *
                             (ends(&r, 1, oy) - begins(&r, 1, oy)) *
                             (ends(&r, 2, ox) - begins(&r, 2, ox));

                if (ends(&r, 2, ox) > x)
                    sum += (ACC0)GET0(from[(oz * r.out[1] + oy) * r.out[2] +
                                           ox]) / count;
            }
        }
    }
    STORE(0, to, to_at, at, sum);
}

kernel void adapt_most(global uchar *to, ulong to_at, global uchar *where,
                       ulong where_at, const global uchar *in, ulong in_at,
                       resampling r)
{
    PLACE(out);
    const global T0 *from =
        AT(const T0, in, in_at) + plane * r.in[0] * r.in[1] * r.in[2];
    long best = -1;
    C0 value = 0;

    for (long iz = begins(&r, 0, z); iz < ends(&r, 0, z); iz++)
        for (long iy = begins(&r, 1, y); iy < ends(&r, 1, y); iy++)
            for (long ix = begins(&r, 2, x); ix < ends(&r, 2, x); ix++) {
                long i = (iz * r.in[1] + iy) * r.in[2] + ix;
                C0 v = GET0(from[i]);

                if (best < 0 || v > value || v != v) {
                    best = i;
                    value = v;
                }
            }
    STORE(0, to, to_at, at, value);
    AT(long, where, where_at)[at] = best;
}

/* A work item for each plane: indices may refer to any of its positions. */
kernel void most_backward(global uchar *to, ulong to_at,
                          const global uchar *grad, ulong grad_at,
                          const global uchar *where, ulong where_at,
                          resampling r, global fault *errors, long call)
{
    const long plane = get_global_id(0), size = r.in[0] * r.in[1] * r.in[2];
    const long count = r.out[0] * r.out[1] * r.out[2];

    if (plane >= r.planes)
        return;
    global T0 *out = AT(T0, to, to_at) + plane * size;
    for (long i = 0; i < size; i++)
        out[i] = 0;
    for (long o = plane * count; o < (plane + 1) * count; o++) {
        long i = AT(const long, where, where_at)[o];

        if (i >= 0 && i < size)
            out[i] = PUT0(GET0(out[i]) + LOAD(0, grad, grad_at, o));
        else
            fail(errors, 8, call, i);
    }
}
