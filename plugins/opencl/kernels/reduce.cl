/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* reduce.cl: reductions, combined in an order that depends on the shape alone.
 * This is preceded by the row's INITIAL, MAP(x), COMBINE(s, t), FINISH(s) on a
 * STATE { S value; long index }; T0 is the output's type, T1 the input's. */

typedef struct state {
    S value;
    long index;
} state;

/* Sizes and strides of the kept and the reduced dimensions. */
typedef struct shape {
    ulong outputs, count;
    uint nkept, nreduced, noutputs, immediates;
    uint kept[MAX_NDIM], reduced[MAX_NDIM];
    long to[2][MAX_NDIM], from[MAX_NDIM], along[MAX_NDIM];
} shape;

static state first(wide number)
{
    state s;

    s.value = (S)(INITIAL);
    s.index = -1;
    return s;
}

static state one(C1 x, long index, wide number)
{
    state s;

    s.value = (S)(MAP(x));
    s.index = index;
    return s;
}

#if INDEXED
/* NaN wins; among equals the first. */
static int better(state a, state b)
{
    if (a.index < 0 || b.index < 0)
        return b.index < 0;
    if (a.value != a.value || b.value != b.value)
        return a.value != a.value &&
               (b.value == b.value || a.index < b.index);
    return BETTER(a.value, b.value) ||
           (a.value == b.value && a.index < b.index);
}

static state both(state a, state b, wide number)
{
    if (better(b, a))
        return b;
    return a;
}
#else
static state both(state a, state b, wide number)
{
    state s;

    s.value = COMBINE(a.value, b.value);
    s.index = 0;
    return s;
}
#endif

static long locate(const shape *p, ulong at, long *to0, long *to1)
{
    uint left = (uint)at;
    long from = 0;

    *to0 = *to1 = 0;
    for (uint d = 0; d < p->nkept; d++) {
        uint next = left / p->kept[d], k = left - next * p->kept[d];

        *to0 += k * p->to[0][d];
        *to1 += k * p->to[1][d];
        from += k * p->from[d];
        left = next;
    }
    return from;
}

static long along(const shape *p, ulong at)
{
    uint left = (uint)at;
    long from = 0;

    if (p->nreduced == 1)
        return (long)at * p->along[0];
    for (uint d = 0; d < p->nreduced; d++) {
        uint next = left / p->reduced[d];

        from += (left - next * p->reduced[d]) * p->along[d];
        left = next;
    }
    return from;
}

static void finish(state s, global uchar *to, ulong to_at, long to0,
                   global uchar *more, ulong more_at, long to1, ulong count,
                   wide number)
{
#if INDEXED == 2
    *AT(T0, to, to_at + to0) = (T0)s.index;
#else
    STORE(0, to, to_at + to0, 0, FINISH(s.value));
#endif
#if INDEXED == 1
    *AT(long, more, more_at + to1) = s.index;
#endif
}

/* A work item for each output. */
kernel void lines(global uchar *to, ulong to_at, global uchar *more,
                  ulong more_at, const global uchar *in, ulong in_at,
                  ulong now, wide number, shape p)
{
    ulong at = get_global_id(0);
    state s = first(number);
    long to0, to1, from;

    if (at >= p.outputs)
        return;
    from = locate(&p, at, &to0, &to1);
    for (ulong r = 0; r < p.count; r++) {
        C1 x = GET1(p.immediates
                        ? *(T1 *)&now
                        : *AT(const T1, in, in_at + from + along(&p, r)));

        s = both(s, one(x, (long)r, number), number);
    }
    finish(s, to, to_at, to0, more, more_at, to1, p.count, number);
}

/* A group for each output. */
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
groups(global uchar *to, ulong to_at, global uchar *more, ulong more_at,
       const global uchar *in, ulong in_at, ulong now, wide number, shape p)
{
    local state lanes[GROUP];
    uint me = get_local_id(0);
    state s = first(number);
    long to0, to1, from = locate(&p, get_group_id(0), &to0, &to1);

    for (ulong r = me; r < p.count; r += GROUP) {
        C1 x = GET1(p.immediates
                        ? *(T1 *)&now
                        : *AT(const T1, in, in_at + from + along(&p, r)));

        s = both(s, one(x, (long)r, number), number);
    }
    lanes[me] = s;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint half_ = GROUP / 2; half_ > 0; half_ /= 2) {
        if (me < half_)
            lanes[me] = both(lanes[me], lanes[me + half_], number);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (me == 0)
        finish(lanes[0], to, to_at, to0, more, more_at, to1, p.count, number);
}

#if MOMENTS == 3
/* The logarithm of the sum of exponentials: the maximum, then the sum. */
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
exponentials(global uchar *to, ulong to_at, global uchar *more, ulong more_at,
             const global uchar *in, ulong in_at, ulong now, wide number,
             shape p)
{
    local S lanes[GROUP];
    uint me = get_local_id(0);
    long to0, to1, from = locate(&p, get_group_id(0), &to0, &to1);
    S most = 0, mine;

    for (int pass = 0; pass < 2; pass++) {
        mine = pass ? 0 : -INFINITY;
        for (ulong r = me; r < p.count; r += GROUP) {
            S x = (S)GET1(p.immediates
                              ? *(T1 *)&now
                              : *AT(const T1, in,
                                    in_at + from + along(&p, r)));

            if (pass)
                mine += exp(x - most);
            else
                mine = x > mine || x != x ? x : mine;
        }
        lanes[me] = mine;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint half_ = GROUP / 2; half_ > 0; half_ /= 2) {
            S other = me < half_ ? lanes[me + half_] : 0;

            if (me < half_ && pass)
                lanes[me] += other;
            else if (me < half_ && (other > lanes[me] || other != other))
                lanes[me] = other;
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        mine = lanes[0];
        /* The difference of infinities is NaN. */
        if (!pass)
            most = isinf(mine) ? 0 : mine;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (me == 0)
        STORE(0, to, to_at + to0, 0, log(mine) + most);
}
#elif MOMENTS
/* Variance in two passes: in the second, S is the sum of squares. */
static void deviate(S squares, S mean, wide number, ulong count,
                    global uchar *to, ulong to_at, long to0)
{
    S divisor = (S)count - (S)number;

    squares = squares / (divisor > 0 ? divisor : 0);
    STORE(0, to, to_at + to0, 0, MOMENTS == 2 ? sqrt(squares) : squares);
}

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
moments(global uchar *to, ulong to_at, global uchar *more, ulong more_at,
        const global uchar *in, ulong in_at, ulong now, wide number, shape p)
{
    local S lanes[GROUP];
    uint me = get_local_id(0);
    long to0, to1, from = locate(&p, get_group_id(0), &to0, &to1);
    S sum = 0, mean = 0;

    for (int pass = 0; pass < 2; pass++) {
        sum = 0;
        for (ulong r = me; r < p.count; r += GROUP) {
            S x = (S)GET1(p.immediates
                              ? *(T1 *)&now
                              : *AT(const T1, in,
                                    in_at + from + along(&p, r)));

            sum += pass ? (x - mean) * (x - mean) : x;
        }
        lanes[me] = sum;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint half_ = GROUP / 2; half_ > 0; half_ /= 2) {
            if (me < half_)
                lanes[me] += lanes[me + half_];
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        sum = lanes[0];
        if (pass == 0)
            mean = sum / (S)p.count;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (me == 0)
        deviate(sum, mean, number, p.count, to, to_at, to0);
}
#endif
