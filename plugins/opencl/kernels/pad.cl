/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* pad.cl: results that only move elements: roll, padding by reflection or
 * replication; and the gradient of padding. */

enum { ROLL, REFLECT, REPLICATE };

/* Must match pad.c; innermost first. */
typedef struct frame {
    ulong numel; /* of the output */
    uint ndim, kind;
    uint in[MAX_NDIM], out[MAX_NDIM];
    long before[MAX_NDIM];
} frame;

static long comes_from(const frame *f, uint d, long o)
{
    long n = f->in[d], i = o - f->before[d];

    if (f->kind == ROLL)
        return i < 0 ? i + n : i;
    if (f->kind == REPLICATE)
        return i < 0 ? 0 : i >= n ? n - 1 : i;
    return i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i;
}

/* T0: bits. */
kernel void move_(global uchar *to, ulong to_at, const global uchar *in,
                  ulong in_at, frame f)
{
    ulong left = get_global_id(0);
    long from = 0, stride = 1;

    if (left >= f.numel)
        return;
    for (uint d = 0; d < f.ndim; d++) {
        ulong next = left / f.out[d];

        from += comes_from(&f, d, left - next * f.out[d]) * stride;
        stride *= f.in[d];
        left = next;
    }
    AT(T0, to, to_at)[get_global_id(0)] = AT(const T0, in, in_at)[from];
}

/* The output positions that may come from i: three ranges at most. */
static int ranges(const frame *f, uint d, long i, long first[3], long last[3])
{
    long n = f->in[d], o = i + f->before[d];

    first[0] = last[0] = o;
    if (f->kind == REPLICATE) {
        first[0] = i == 0 ? 0 : o;
        last[0] = i == n - 1 ? f->out[d] - 1 : o;
        return 1;
    }
    first[1] = last[1] = f->before[d] - i;
    first[2] = last[2] = f->before[d] + 2 * (n - 1) - i;
    return 3;
}

/* One line of the output, with all other coordinates fixed. */
static ACC0 along(const frame *f, const global T0 *grad, long i)
{
    long first[3], last[3];
    ACC0 sum = 0;
    int n = ranges(f, 0, i, first, last);

    for (int r = 0; r < n; r++)
        for (long o = max(first[r], 0l); o <= last[r] && o < f->out[0]; o++)
            if (comes_from(f, 0, o) == i && (r == 0 || o != first[0]) &&
                (r < 2 || o != first[1]))
                sum += GET0(grad[o]);
    return sum;
}

/* The last three dimensions are padded; f.in[3] is the number of planes. */
kernel void gather_back(global uchar *to, ulong to_at,
                        const global uchar *grad, ulong grad_at, frame f)
{
    const ulong at = get_global_id(0);
    const long x = at % f.in[0], y = at / f.in[0] % f.in[1];
    const long z = at / f.in[0] / f.in[1] % f.in[2];
    const long plane = at / f.in[0] / f.in[1] / f.in[2];
    const global T0 *from = AT(const T0, grad, grad_at);
    ACC0 sum = 0;

    if (at >= f.numel)
        return;
    for (long oz = 0; oz < f.out[2]; oz++) {
        if (comes_from(&f, 2, oz) != z)
            continue;
        for (long oy = 0; oy < f.out[1]; oy++)
            if (comes_from(&f, 1, oy) == y)
                sum += along(&f,
                             from + ((plane * f.out[2] + oz) * f.out[1] + oy) *
                                        f.out[0],
                             x);
    }
    STORE(0, to, to_at, at, sum);
}
