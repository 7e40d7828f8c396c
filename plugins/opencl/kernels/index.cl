/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* index.cl: T0 is the unsigned type of the elements' size (for sums: their own
 * type), T1 the index's.  An invalid index is reported and replaced by 0. */

static long checked(long index, long limit, global fault *errors, long call)
{
    if (index < 0 || index >= limit) {
        fail(errors, 8, call, index);
        return 0;
    }
    return index;
}

/* index_select and embedding: to[o][i][k] = in[o][index[i]][k] */
kernel void select_(global uchar *to, ulong to_at, const global uchar *in,
                    ulong in_at, const global uchar *index, ulong index_at,
                    long outer, long n, long inner, long limit,
                    global fault *errors, long call)
{
    long at = get_global_id(0), k = at % inner, i = at / inner % n;
    long o = at / inner / n;

    if (at >= outer * n * inner)
        return;
    i = checked(AT(const T1, index, index_at)[i], limit, errors, call);
    AT(T0, to, to_at)[at] =
        AT(const T0, in, in_at)[(o * limit + i) * inner + k];
}

/* take: in is one row; indices below 0 count from its end */
kernel void take_(global uchar *to, ulong to_at, const global uchar *in,
                  ulong in_at, const global uchar *index, ulong index_at,
                  long n, long limit, global fault *errors, long call)
{
    long at = get_global_id(0), i;

    if (at >= n)
        return;
    i = AT(const T1, index, index_at)[at];
    if (i < -limit || i >= limit) {
        fail(errors, 8, call, i);
        AT(T0, to, to_at)[at] = 0;
        return;
    }
    AT(T0, to, to_at)[at] = AT(const T0, in, in_at)[i < 0 ? i + limit : i];
}

/* gather: to[o][i][k] = in[o'][index[o][i][k]][k']; the index may be smaller
 * than the input except along the dimension. */
kernel void gather_(global uchar *to, ulong to_at, const global uchar *in,
                    ulong in_at, const global uchar *index, ulong index_at,
                    uint dim, loop l, global fault *errors, long call)
{
    long at = get_global_id(0);
    uint left = (uint)at;
    long from = 0;

    if (at >= (long)l.numel)
        return;
    for (uint d = 0; d < l.ndim; d++) {
        uint next = left / l.sizes[d], k = left - next * l.sizes[d];

        from += d == dim ? checked(AT(const T1, index, index_at)[at],
                                   l.strides[1][d], errors, call) *
                               l.strides[0][d]
                         : k * l.strides[0][d];
        left = next;
    }
    AT(T0, to, to_at)[at] = AT(const T0, in, in_at)[from];
}

/* embedding_dense_backward: each element of a row of the weight sums the
 * gradients of its uses, in the order of the indices. */
kernel void spread(global uchar *to, ulong to_at, const global uchar *grad,
                   ulong grad_at, const global uchar *index, ulong index_at,
                   long rows, long count, long inner, long padding, int scale,
                   global fault *errors, long call)
{
    long at = get_global_id(0), k = at % inner, row = at / inner;
    ACC0 sum = 0;
    long used = 0;

    if (at >= rows * inner)
        return;
    for (long i = 0; i < count; i++) {
        long which = AT(const T1, index, index_at)[i];

        if (at == 0)
            checked(which, rows, errors, call);
        if (which == row && row != padding) {
            sum += LOAD(0, grad, grad_at, i * inner + k);
            used++;
        }
    }
    STORE(0, to, to_at, at, scale && used > 0 ? sum / used : sum);
}

/* index_add: to = self + alpha source along a dimension. */
kernel void add_at(global uchar *to, ulong to_at, const global uchar *self,
                   ulong self_at, const global uchar *index, ulong index_at,
                   const global uchar *more, ulong more_at, long outer,
                   long n, long inner, long count, wide alpha,
                   global fault *errors, long call)
{
    long at = get_global_id(0), k = at % inner, row = at / inner % n;
    long o = at / inner / n;
    C0 sum;

    if (at >= outer * n * inner)
        return;
    sum = LOAD(0, self, self_at, at);
    for (long i = 0; i < count; i++) {
        long which = AT(const T1, index, index_at)[i];

        if (at == 0)
            checked(which, n, errors, call);
        if (which == row)
            sum += (C0)alpha *
                   LOAD(0, more, more_at, (o * count + i) * inner + k);
    }
    STORE(0, to, to_at, at, sum);
}
