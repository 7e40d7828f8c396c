/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* factory.cl: arange, linspace, eye and triangles. */

kernel void arange(global uchar *to, ulong to_at, long n, wide start,
                   wide width, long first_, long step_)
{
    long i = get_global_id(0);

    if (i < n)
#if ID0 <= BF16n
        STORE(0, to, to_at, i, start + (wide)i * width);
#else
        AT(T0, to, to_at)[i] = (T0)(first_ + i * step_);
#endif
}

kernel void eye(global uchar *to, ulong to_at, long n, long columns)
{
    long i = get_global_id(0);

    if (i < n)
        STORE(0, to, to_at, i, i / columns == i % columns);
}

/* T0: the unsigned type of the size. */
kernel void triangle(global uchar *to, ulong to_at, const global uchar *in,
                     ulong in_at, long n, long rows, long columns,
                     long diagonal, int upper)
{
    long i = get_global_id(0);

    if (i < n) {
        long column = i % columns, row = i / columns % rows;
        int keep = upper ? column - row >= diagonal : column - row <= diagonal;

        AT(T0, to, to_at)[i] = keep ? AT(const T0, in, in_at)[i] : 0;
    }
}

/* Both ends are exact: each half counts from its own. */
static wide line_at(long i, long n, wide start, wide end, wide width)
{
    int first = i < n / 2 || n == 1;
    wide from = first ? start : end;
    wide steps = first ? (wide)i : -(wide)(n - 1 - i);

#if ID0 <= BF16n
    return from + steps * width;
#else
    /* The product is not rounded: the sum is truncated, and 2 must not become
     * 1. */
    return fma(steps, width, from);
#endif
}

kernel void linspace(global uchar *to, ulong to_at, long n, wide start,
                     wide end, wide width)
{
    long i = get_global_id(0);

    if (i >= n)
        return;
#if ID0 <= BF16n
    STORE(0, to, to_at, i, line_at(i, n, start, end, width));
#else
    STORE(0, to, to_at, i, (long)line_at(i, n, start, end, width));
#endif
}

/* The number of elements in the rows before `row`. */
static long before_row(long row, long begin, long columns, long offset,
                       int upper)
{
    long full;

    if (upper) {
        full = clamp(-offset, 0l, row);
        return full * columns + (row - full) * (columns - offset) -
               (row * (row - 1) - full * (full - 1)) / 2;
    }
    full = max(begin, min(row, columns - offset - 1));
    return (full * (full + 1) - begin * (begin + 1)) / 2 +
           (full - begin) * offset + (row - full) * columns;
}

/* A work item for each row; the result has two rows, of row and column
 * indices. */
kernel void triangle_indices(global uchar *to, ulong to_at, long count,
                             long begin, long end, long columns, long offset,
                             int upper)
{
    long row = begin + get_global_id(0), at;
    long from = upper ? max(row + offset, 0l) : 0;
    long upto = upper ? columns : min(row + offset + 1, columns);

    if (row >= end)
        return;
    at = before_row(row, begin, columns, offset, upper);
    for (long c = from; c < upto; c++, at++) {
        STORE(0, to, to_at, at, row);
        STORE(0, to, to_at, count + at, c);
    }
}
